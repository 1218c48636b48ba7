//! Operators of neural networks: convolution, pooling, normalization, dropout.

pub(crate) mod attention;
pub(crate) mod average_pool;
pub(crate) mod batch_normalization;
pub(crate) mod conv;
pub(crate) mod conv_variants;
pub(crate) mod dropout;
pub(crate) mod global_pool;
pub(crate) mod gradients;
pub(crate) mod instance_normalization;
pub(crate) mod layer_normalization;
pub(crate) mod loss;
mod loss_gradients;
pub(crate) mod lp_pool;
pub(crate) mod lrn;
pub(crate) mod max_pool;
pub(crate) mod max_unpool;
pub(crate) mod recurrent;

mod window;

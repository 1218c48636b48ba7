//! Layers: convolution, pooling, normalization, dropout, recurrence.

pub(crate) mod attention;
pub(crate) mod batch_normalization;
pub(crate) mod col2im;
pub(crate) mod conv;
pub(crate) mod conv_transpose;
pub(crate) mod deform_conv;
pub(crate) mod dropout;
pub(crate) mod global_pool;
pub(crate) mod images;
pub(crate) mod instance_normalization;
pub(crate) mod layer_normalization;
pub(crate) mod loss;
pub(crate) mod lrn;
pub(crate) mod max_unpool;
pub(crate) mod pool;
pub(crate) mod pool_gradient;
pub(crate) mod recurrent;
pub(crate) mod weight_gradient;
pub(crate) mod window;

//! Layers: convolution, pooling, normalization, dropout, recurrence.

pub(crate) mod attention;
pub(crate) mod batch_normalization;
#[cfg(feature = "vision")]
pub(crate) mod col2im;
pub(crate) mod conv;
pub(crate) mod conv_transpose;
#[cfg(feature = "vision")]
pub(crate) mod deform_conv;
pub(crate) mod dropout;
pub(crate) mod global_pool;
pub(crate) mod images;
pub(crate) mod instance_normalization;
pub(crate) mod layer_normalization;
#[cfg(feature = "training")]
pub(crate) mod loss;
pub(crate) mod lrn;
#[cfg(feature = "vision")]
pub(crate) mod max_unpool;
pub(crate) mod pool;
#[cfg(feature = "training")]
pub(crate) mod pool_gradient;
#[cfg(feature = "recurrent")]
pub(crate) mod recurrent;
#[cfg(feature = "training")]
pub(crate) mod weight_gradient;
pub(crate) mod window;

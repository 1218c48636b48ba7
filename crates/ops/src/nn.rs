//! Operators of networks: convolution, pooling, normalization, dropout.

pub mod average_pool;
pub mod batch_normalization;
pub mod conv;
pub mod dropout;
pub mod global_pool;
pub mod instance_normalization;
pub mod lrn;
pub mod max_pool;

mod window;

//! Layers: convolution, pooling, normalisation, dropout.

pub(crate) mod conv;
mod window;

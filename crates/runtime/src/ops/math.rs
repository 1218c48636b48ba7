//! Arithmetic, products and activations.

pub(crate) mod gemm;
pub(crate) mod matmul;

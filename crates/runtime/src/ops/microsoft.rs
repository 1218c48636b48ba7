//! Operators that ONNX Runtime adds to the standard and that no function defines.

#[cfg(feature = "quantization")]
mod codes;
#[cfg(feature = "quantization")]
pub(super) mod gather_block_quantized;
#[cfg(feature = "quantization")]
pub(super) mod matmul_n_bits;
#[cfg(feature = "strings")]
pub(super) mod murmur_hash_3;

//! Operators that ONNX Runtime adds to the standard and that no function defines.

pub(super) mod gather_block_quantized;
pub(super) mod matmul_n_bits;
pub(super) mod murmur_hash_3;

use sardonyx_kernels::quantized::Codes;
use sardonyx_tensor::{DataType, TensorView};

use crate::error::{KernelError, fail};

/// Returns an input of integers with few bits; bytes hold integers of `bits` bits.
fn codes<'a>(view: &TensorView<'a>, bits: usize) -> Result<Codes<'a>, KernelError> {
    let (bits, signed) = match view.data_type() {
        DataType::Uint8 => (bits, false),
        DataType::Uint4 => (4, false),
        DataType::Int4 => (4, true),
        other => fail!("packed integers of type {} are not supported", other.name()),
    };
    match view.contiguous_bytes() {
        Some(bytes) => Ok(Codes { bytes, bits, signed }),
        None => fail!("the elements are not dense"),
    }
}

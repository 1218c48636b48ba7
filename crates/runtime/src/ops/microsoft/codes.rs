//! Packed integers of few bits as inputs.

use sardonyx_kernels::quantized::Codes;
use sardonyx_tensor::{DataType, TensorView};

use crate::error::{KernelError, fail};

/// Returns the bytes of an input of integers of few bits. Elements of a type of bytes have `bits`
/// each.
pub(super) fn codes<'a>(view: &TensorView<'a>, bits: usize) -> Result<Codes<'a>, KernelError> {
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

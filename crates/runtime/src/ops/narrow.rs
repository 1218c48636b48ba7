//! Floats narrower than 32 bits: widened, computed in `f32`, rounded once.

use sardonyx_tensor::{CastOptions, DataType, TensorView, cast_slices};

use crate::error::KernelError;
use crate::kernel::Call;

/// The elements of a tensor as `f32`, for the time of the call.
pub(crate) fn widen(call: &Call<'_>, view: &TensorView<'_>) -> Result<Vec<f32>, KernelError> {
    let mut wide = call.scratch::<f32>(view.len())?;
    let dense;
    let bytes = match view.contiguous_bytes() {
        Some(bytes) => bytes,
        // Of a part of another value, or with its axes in another order.
        None => {
            call.reserve(view.data_type().storage_bytes(view.len()).unwrap_or(0))?;
            dense = view.to_tensor()?;
            dense.bytes()
        }
    };
    let options = CastOptions::default();
    cast_slices(
        view.data_type(),
        bytes,
        DataType::Float,
        bytes_of(&mut wide),
        view.len(),
        options,
    )?;
    Ok(wide)
}

/// Writes `f32` elements as an output of a narrower type.
pub(crate) fn narrow(
    call: &mut Call<'_>,
    index: usize,
    data_type: DataType,
    dims: &[usize],
    mut wide: Vec<f32>,
) -> Result<(), KernelError> {
    let elems = wide.len();
    let mut output = call.output(index, data_type, dims)?;
    let options = CastOptions::default();
    Ok(cast_slices(
        DataType::Float,
        bytes_of(&mut wide),
        data_type,
        output.bytes_mut(),
        elems,
        options,
    )?)
}

fn bytes_of(floats: &mut [f32]) -> &mut [u8] {
    bytemuck::cast_slice_mut(floats)
}

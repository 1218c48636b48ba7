//! Floats narrower than 32 bits: widened, computed in `f32`, rounded once.

use sardonyx_tensor::{CastOptions, DataType, TensorView, cast_slices};

use crate::error::KernelError;
use crate::kernel::Call;
use crate::ops::tensor::moves::dense;
use crate::scratch::{Contents, Scratch};

/// The elements of a tensor as `f32`, for the time of the call.
pub(crate) fn widen(call: &Call<'_>, view: &TensorView<'_>) -> Result<Scratch<f32>, KernelError> {
    let mut wide = call.scratch::<f32>(view.len())?;
    // Not dense is a part of another value, or one with its axes in another order.
    let bytes = dense(call, view)?;
    let options = CastOptions::default();
    cast_slices(
        view.data_type(),
        &bytes,
        DataType::Float,
        bytemuck::cast_slice_mut(&mut wide),
        view.len(),
        options,
    )?;
    Ok(wide)
}

/// The numbers of an input as `f32`: those of floats of 32 bits as they lie.
pub(crate) fn numbers<'a>(call: &Call<'a>, index: usize) -> Result<Contents<'a, f32>, KernelError> {
    let view = call.tensor(index)?;
    Ok(match view.data_type() {
        DataType::Float => Contents::Borrowed(call.slice(index)?),
        _ => Contents::Made(widen(call, view)?),
    })
}

/// Writes `f32` elements as an output of a narrower type.
pub(crate) fn narrow(
    call: &mut Call<'_>,
    index: usize,
    data_type: DataType,
    dims: &[usize],
    wide: &[f32],
) -> Result<(), KernelError> {
    let elems = wide.len();
    let mut output = call.output(index, data_type, dims)?;
    let options = CastOptions::default();
    Ok(cast_slices(
        DataType::Float,
        bytemuck::cast_slice(wide),
        data_type,
        output.bytes_mut(),
        elems,
        options,
    )?)
}

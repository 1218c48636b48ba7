//! Floats narrower than 32 bits: widened, computed in `f32`, rounded once.

use half::{bf16, f16};
use sardonyx_kernels::{Exec, NarrowLoops};
use sardonyx_tensor::{CastOptions, DataType, Element, TensorView, cast_slices};

use crate::error::KernelError;
use crate::kernel::Call;
use crate::ops::tensor::moves::dense;
use crate::scratch::{Contents, Scratch};

/// Returns the elements of a tensor as `f32`, for the time of the call.
pub(crate) fn widen(call: &Call<'_>, view: &TensorView<'_>) -> Result<Scratch<f32>, KernelError> {
    let mut wide = call.scratch_uninit::<f32>(view.len())?;
    // Not dense is a part of another value, or one with its axes in another order.
    let bytes = dense(call, view)?;
    let is_done = match view.data_type() {
        DataType::Float16 => widen_elements::<f16>(call.exec, &bytes, &mut wide)?,
        DataType::Bfloat16 => widen_elements::<bf16>(call.exec, &bytes, &mut wide)?,
        _ => false,
    };
    if !is_done {
        cast_slices(
            view.data_type(),
            &bytes,
            DataType::Float,
            bytemuck::cast_slice_mut(&mut wide),
            view.len(),
            CastOptions::default(),
        )?;
    }
    Ok(wide)
}

/// Widens elements in vectors, if they lie where these can be read.
fn widen_elements<T: Element + NarrowLoops>(
    exec: &Exec<'_>,
    bytes: &[u8],
    wide: &mut [f32],
) -> Result<bool, KernelError> {
    let Ok(elements) = bytemuck::try_cast_slice::<u8, T>(bytes) else { return Ok(false) };
    T::widen_slice(exec, elements, wide)?;
    Ok(true)
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
    let exec = call.exec;
    match data_type {
        DataType::Float16 => f16::narrow_slice(exec, wide, call.output_slice(index, dims)?)?,
        DataType::Bfloat16 => bf16::narrow_slice(exec, wide, call.output_slice(index, dims)?)?,
        _ => {
            let mut output = call.output(index, data_type, dims)?;
            let (bytes, options) = (bytemuck::cast_slice(wide), CastOptions::default());
            cast_slices(
                DataType::Float,
                bytes,
                data_type,
                output.bytes_mut(),
                wide.len(),
                options,
            )?;
        }
    }
    Ok(())
}

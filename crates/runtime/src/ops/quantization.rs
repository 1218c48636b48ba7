//! Quantized types: integers and small floats that stand for floats.

pub(crate) mod conv;
pub(crate) mod gather_codes;
pub(crate) mod linear;
pub(crate) mod matmul;

use half::{bf16, f16};
use sardonyx_kernels::quantized::{Scales, Spread};
use sardonyx_tensor::shape::normalize_axis;
use sardonyx_tensor::{DataType, TensorView};

use crate::error::{KernelError, fail};
use crate::kernel::Call;
use crate::ops::narrow::numbers;

/// Returns the elements of a dense tensor of floats as scales.
pub(super) fn scales<'a>(view: &TensorView<'a>) -> Result<Scales<'a>, KernelError> {
    Ok(match view.data_type() {
        DataType::Float16 => Scales::Float16(view.as_slice::<f16>()?),
        DataType::Bfloat16 => Scales::Bfloat16(view.as_slice::<bf16>()?),
        _ => Scales::Floats(view.as_slice::<f32>()?),
    })
}

/// Returns the numbers of elements before, along and after an axis.
pub(super) fn split_at_axis(dims: &[usize], axis: usize) -> [usize; 3] {
    [dims[..axis].iter().product(), dims[axis], dims[axis + 1..].iter().product()]
}

/// Returns how scales apply to the elements of a tensor of `dims` that is not empty.
fn spread(
    dims: &[usize],
    scales: &[usize],
    axis: i64,
    block: usize,
) -> Result<Spread, KernelError> {
    match (scales, block) {
        ([], _) | ([1], 0) => return Ok(Spread::One),
        ([_], 0) => {}
        (_, 0) => fail!(
            "scales have shape {scales:?}, but without block_size there must be one scale, or one for each slice of \
             an axis"
        ),
        _ if scales.len() != dims.len() => fail!(
            "scales have shape {scales:?}, but scales of blocks must have the rank of the input, {}",
            dims.len()
        ),
        _ => {}
    }
    let axis = normalize_axis(axis, dims.len())?;
    let sizes = split_at_axis(dims, axis);
    if block == 0 {
        if scales[0] != dims[axis] {
            fail!("{} scales for {} slices of axis {axis}", scales[0], dims[axis]);
        }
        return Ok(Spread::Slices(sizes));
    }
    for (at, (found, size)) in scales.iter().zip(dims).enumerate() {
        let want = if at == axis { size.div_ceil(block) } else { *size };
        if *found != want {
            fail!(
                "scales have shape {scales:?}, but blocks of {block} along axis {axis} of {dims:?} require {want} on \
                 axis {at}"
            );
        }
    }
    Ok(Spread::Blocks { sizes, block })
}

/// Whether elements are integers of 8 bits.
fn is_byte(elem: DataType) -> bool {
    matches!(elem, DataType::Int8 | DataType::Uint8)
}

/// Returns the only element of an 8-bit integer input, as its bits.
fn one_byte(call: &Call<'_>, index: usize, elem: DataType) -> Result<u8, KernelError> {
    match bytes(call, index, elem)? {
        [one] => Ok(*one),
        several => fail!("input {index} has {} elements, not 1", several.len()),
    }
}

/// Returns the only element of an input as a float.
fn one_number(call: &Call<'_>, index: usize) -> Result<f32, KernelError> {
    match &*numbers(call, index)? {
        [one] => Ok(*one),
        several => fail!("input {index} has {} elements, not 1", several.len()),
    }
}

/// Returns the bytes of an 8-bit integer input.
fn bytes<'a>(call: &Call<'a>, index: usize, elem: DataType) -> Result<&'a [u8], KernelError> {
    let found = call.tensor(index)?.data_type();
    if found != elem {
        fail!("input {index} is {found}, not {elem}");
    }
    Ok(match elem {
        DataType::Int8 => bytemuck::cast_slice(call.slice::<i8>(index)?),
        _ => call.slice::<u8>(index)?,
    })
}

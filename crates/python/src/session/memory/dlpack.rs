//! Arrays that other libraries hand over by DLPack: a capsule with the address of a structure that
//! says where the elements lie.
//!
//! Numbers and structures are those of the header `dlpack.h`. The capsule is kept while its
//! elements are read, and frees them when it goes, as nobody has taken them over.

use std::ffi::c_void;

use pyo3::PyErr;
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyCapsuleMethods};
use sardonyx::{DataType, Tensor, TensorView, ViewData};

use crate::session::errors::refused;
use crate::session::take::{What, unfit};

/// The number of the CPU among devices.
const CPU: i32 = 1;

/// Arrays of more dimensions are refused: nobody has them, and what claims to be one is not.
const MOST_DIMS: usize = 64;

/// `DLTensor`, with which `DLManagedTensor` begins.
#[repr(C)]
struct DlTensor {
    data: *mut c_void,
    device_type: i32,
    device_id: i32,
    ndim: i32,
    code: u8,
    bits: u8,
    lanes: u16,
    shape: *const i64,
    strides: *const i64,
    byte_offset: u64,
}

/// A copy of the array of an object that offers DLPack; `None` for other objects, and where the
/// library refuses to hand it over like this.
///
/// # Errors
///
/// An array on another device, or of elements that ONNX has no type for.
pub(crate) fn tensor(object: &Bound<'_, PyAny>, what: &What<'_>) -> Result<Option<Tensor>, PyErr> {
    let py = object.py();
    let (Some(device), Some(hand_over)) =
        (object.getattr_opt("__dlpack_device__")?, object.getattr_opt("__dlpack__")?)
    else {
        return Ok(None);
    };
    let (device, _): (i64, i64) = device.call0()?.extract()?;
    if device != i64::from(CPU) {
        let what = format!("{what} lies on a device, DLPack's number {device}; copy it to the CPU");
        return Err(refused(py, what));
    }
    let Ok(handed) = hand_over.call0() else { return Ok(None) };
    let Ok(capsule) = handed.cast_into::<PyCapsule>() else { return Ok(None) };
    let Ok(address) = capsule.pointer_checked(Some(c"dltensor")) else { return Ok(None) };
    // SAFETY: a capsule of this name holds the address of a `DLManagedTensor`, which begins with
    // a `DLTensor` and stays until the capsule goes, which is kept until the end of this function.
    let array = unsafe { address.cast::<DlTensor>().as_ref() };
    copied(py, array, what).map(Some)
}

/// A dense copy of the elements.
fn copied(py: Python<'_>, array: &DlTensor, what: &What<'_>) -> Result<Tensor, PyErr> {
    let refuse = |said: String| Err(refused(py, format!("{what} {said}")));
    let Some(data_type) = data_type(array) else {
        let (code, bits, lanes) = (array.code, array.bits, array.lanes);
        return refuse(format!(
            "has elements of DLPack's type {code} with {bits} bits in {lanes} lanes, which no ONNX \
             type has"
        ));
    };
    let rank = usize::try_from(array.ndim).unwrap_or(usize::MAX);
    if rank > MOST_DIMS || array.device_type != CPU {
        return refuse(format!("is an array of {} dimensions, which cannot be", array.ndim));
    }
    // SAFETY: the structure has as many sizes as the array has dimensions, and as many strides if
    // it has any.
    let (shape, strides) = unsafe { (numbers(array.shape, rank), numbers(array.strides, rank)) };
    let dims: Result<Vec<usize>, _> = shape.iter().map(|size| usize::try_from(*size)).collect();
    let Ok(dims) = dims else {
        return refuse(format!("has the shape {shape:?}, which cannot be"));
    };
    if dims.len() != rank {
        return refuse("has no shape".to_string());
    }
    let failed = |error| unfit(py, what, &error);
    if dims.contains(&0) {
        return Tensor::zeros(data_type, dims).map_err(failed);
    }
    let strides: Vec<isize> = if strides.is_empty() {
        dense(&dims)
    } else {
        strides.iter().map(|stride| *stride as isize).collect()
    };
    let Some((before, elements)) = reach(&dims, &strides) else {
        return refuse(format!("has the strides {strides:?}, which reach too far"));
    };
    let width = data_type.element_bytes().unwrap_or(1);
    let bytes = elements.checked_mul(width);
    let Some(bytes) = bytes.filter(|bytes| isize::try_from(*bytes).is_ok()) else {
        return refuse(format!("has the strides {strides:?}, which reach too far"));
    };
    if array.data.is_null() {
        return refuse("has elements, but no address".to_string());
    }
    let start = array.data.cast::<u8>().cast_const();
    // SAFETY: the first element lies `byte_offset` after `data`, and the others as far from it as
    // the strides say, down to `before` elements before it. All of them are the library's.
    let bytes = unsafe {
        let first = start.wrapping_add(array.byte_offset as usize);
        std::slice::from_raw_parts(first.wrapping_sub(before * width), bytes)
    };
    let view = TensorView::with_strides(data_type, dims, strides, before, ViewData::Bytes(bytes));
    view.and_then(|view| view.to_tensor()).map_err(failed)
}

/// The numbers at an address; none if there is no address.
///
/// # Safety
///
/// `count` numbers lie there if it is not null, for as long as the result is used.
unsafe fn numbers<'a>(start: *const i64, count: usize) -> &'a [i64] {
    if start.is_null() || count == 0 {
        return &[];
    }
    // SAFETY: as the caller says.
    unsafe { std::slice::from_raw_parts(start, count) }
}

/// The strides of elements that lie one after the other.
fn dense(dims: &[usize]) -> Vec<isize> {
    let mut strides = vec![1isize; dims.len()];
    for axis in (1..dims.len()).rev() {
        strides[axis - 1] = strides[axis].saturating_mul(dims[axis] as isize);
    }
    strides
}

/// How many elements lie before the first, and how many there are from there to the last, gaps
/// included.
fn reach(dims: &[usize], strides: &[isize]) -> Option<(usize, usize)> {
    let (mut before, mut after) = (0usize, 0usize);
    for (dim, stride) in dims.iter().zip(strides) {
        let far = (dim - 1).checked_mul(stride.unsigned_abs())?;
        let side = if *stride < 0 { &mut before } else { &mut after };
        *side = side.checked_add(far)?;
    }
    Some((before, before.checked_add(after)?.checked_add(1)?))
}

/// The element type of an array, by the codes of `DLDataTypeCode`.
fn data_type(array: &DlTensor) -> Option<DataType> {
    if array.lanes != 1 {
        return None;
    }
    Some(match (array.code, array.bits) {
        (0, 8) => DataType::Int8,
        (0, 16) => DataType::Int16,
        (0, 32) => DataType::Int32,
        (0, 64) => DataType::Int64,
        (1, 8) => DataType::Uint8,
        (1, 16) => DataType::Uint16,
        (1, 32) => DataType::Uint32,
        (1, 64) => DataType::Uint64,
        (2, 16) => DataType::Float16,
        (2, 32) => DataType::Float,
        (2, 64) => DataType::Double,
        (4, 16) => DataType::Bfloat16,
        (5, 64) => DataType::Complex64,
        (5, 128) => DataType::Complex128,
        (6, 8) => DataType::Bool,
        (10, 8) => DataType::Float8e4m3fn,
        (11, 8) => DataType::Float8e4m3fnuz,
        (12, 8) => DataType::Float8e5m2,
        (13, 8) => DataType::Float8e5m2fnuz,
        (14, 8) => DataType::Float8e8m0,
        _ => return None,
    })
}

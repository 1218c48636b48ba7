//! DLPack: reads arrays of other libraries, and exports tensors to them, through capsules with the
//! address of a `DLManagedTensor`.
//!
//! Structures and constants are those of the header `dlpack.h`. A capsule that is read here is held
//! until its elements have been copied. It is not marked as consumed, so its destructor frees the
//! array.

use std::ffi::{CStr, c_void};
use std::ptr::{self, NonNull};

use pyo3::exceptions::PyBufferError;
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyCapsuleMethods};
use pyo3::{PyErr, ffi};
use sardonyx::value::ViewData;
use sardonyx::{DataType, ErrorKind, Tensor, TensorView};

use crate::session::errors::{input_error, new_error};
use crate::session::memory::PyTensor;
use crate::session::take::{ValueName, no_array_error, tensor_error};

/// Device type of the CPU, `kDLCPU`.
const CPU: i32 = 1;

/// Greatest rank of an array. A larger one is taken for corrupt data, because no library makes such
/// arrays.
const MOST_DIMS: usize = 64;

/// C structure `DLTensor`, the first field of `DLManagedTensor`.
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

/// Copies the array of an object with `__dlpack__` to a tensor; `None` for other objects, and if
/// the library refuses to export a capsule of version 0.
///
/// # Errors
///
/// `sardonyx.Error` for an array on another device, or of elements that ONNX has no type for.
pub(crate) fn import_tensor(
    object: &Bound<'_, PyAny>,
    what: &ValueName<'_>,
) -> Result<Option<Tensor>, PyErr> {
    let py = object.py();
    let (Some(device), Some(hand_over)) =
        (object.getattr_opt("__dlpack_device__")?, object.getattr_opt("__dlpack__")?)
    else {
        return Ok(None);
    };
    let device = device.call0().map_err(|error| no_array_error(object, error, what))?;
    let (device, _): (i64, i64) = device.extract()?;
    if device != i64::from(CPU) {
        let what = format!("{what} is on another device (DLPack device type {device})");
        return Err(new_error(py, ErrorKind::Input, what, Some("copy the array to the CPU")));
    }
    let Ok(handed) = hand_over.call0() else { return Ok(None) };
    let Ok(capsule) = handed.cast_into::<PyCapsule>() else { return Ok(None) };
    let Ok(address) = capsule.pointer_checked(Some(NAME)) else { return Ok(None) };
    // SAFETY: a capsule of this name holds the address of a `DLManagedTensor`, which begins with
    // a `DLTensor` and lives as long as the capsule, which is held until the end of this function.
    let array = unsafe { address.cast::<DlTensor>().as_ref() };
    copy_elements(py, array, what).map(Some)
}

/// Copies the elements of an array to a contiguous tensor.
fn copy_elements(py: Python<'_>, array: &DlTensor, what: &ValueName<'_>) -> Result<Tensor, PyErr> {
    let refuse = |said: String| Err(input_error(py, format!("{what} {said}")));
    let Some(data_type) = find_data_type(array) else {
        let (code, bits, lanes) = (array.code, array.bits, array.lanes);
        return refuse(format!(
            "has elements of DLPack type {code} with {bits} bits in {lanes} lanes, which is not an ONNX type"
        ));
    };
    let rank = usize::try_from(array.ndim).unwrap_or(usize::MAX);
    if rank > MOST_DIMS || array.device_type != CPU {
        return refuse(format!("is an array with the invalid number of dimensions {}", array.ndim));
    }
    // SAFETY: `shape` points to `ndim` sizes, and `strides` to `ndim` strides unless it is null.
    let (shape, strides) =
        unsafe { (read_numbers(array.shape, rank), read_numbers(array.strides, rank)) };
    let dims: Result<Vec<usize>, _> = shape.iter().map(|size| usize::try_from(*size)).collect();
    let Ok(dims) = dims else {
        return refuse(format!("has the invalid shape {shape:?}"));
    };
    if dims.len() != rank {
        return refuse("has no shape".to_string());
    }
    let failed = |error| tensor_error(py, what, &error);
    if dims.contains(&0) {
        return Tensor::zeros(data_type, dims).map_err(failed);
    }
    let strides: Vec<isize> = if strides.is_empty() {
        compute_contiguous_strides(&dims)
    } else {
        strides.iter().map(|stride| *stride as isize).collect()
    };
    let Some((before, elements)) = compute_memory_extent(&dims, &strides) else {
        return refuse(format!("has the strides {strides:?}, which are too large"));
    };
    let width = data_type.element_bytes().unwrap_or(1);
    let bytes = elements.checked_mul(width);
    let Some(bytes) = bytes.filter(|bytes| isize::try_from(*bytes).is_ok()) else {
        return refuse(format!("has the strides {strides:?}, which are too large"));
    };
    if array.data.is_null() {
        return refuse("has elements, but its data pointer is null".to_string());
    }
    let start = array.data.cast::<u8>().cast_const();
    // SAFETY: the first element lies at `data + byte_offset`. By the strides, the others lie from
    // `before` elements before it on, `elements` in all; the library owns all this memory.
    let bytes = unsafe {
        let first = start.wrapping_add(array.byte_offset as usize);
        std::slice::from_raw_parts(first.wrapping_sub(before * width), bytes)
    };
    let view = TensorView::with_strides(data_type, dims, strides, before, ViewData::Bytes(bytes));
    view.and_then(|view| view.to_tensor()).map_err(failed)
}

/// Returns the `count` numbers at the address `start`; an empty slice for null.
///
/// # Safety
///
/// Unless `start` is null, `count` numbers must lie there for as long as the result is used.
unsafe fn read_numbers<'a>(start: *const i64, count: usize) -> &'a [i64] {
    if start.is_null() || count == 0 {
        return &[];
    }
    // SAFETY: the caller guarantees `count` numbers at `start`.
    unsafe { std::slice::from_raw_parts(start, count) }
}

/// Computes the strides of a contiguous array in C order, in elements.
fn compute_contiguous_strides(dims: &[usize]) -> Vec<isize> {
    let mut strides = vec![1isize; dims.len()];
    for axis in (1..dims.len()).rev() {
        strides[axis - 1] = strides[axis].saturating_mul(dims[axis] as isize);
    }
    strides
}

/// Computes how many elements lie before the first element in memory, and the number of elements
/// from the lowest to the highest address, gaps included; `None` on overflow.
fn compute_memory_extent(dims: &[usize], strides: &[isize]) -> Option<(usize, usize)> {
    let (mut before, mut after) = (0usize, 0usize);
    for (dim, stride) in dims.iter().zip(strides) {
        let far = (dim - 1).checked_mul(stride.unsigned_abs())?;
        let side = if *stride < 0 { &mut before } else { &mut after };
        *side = side.checked_add(far)?;
    }
    Some((before, before.checked_add(after)?.checked_add(1)?))
}

/// Element types with their `DLDataTypeCode` and their width in bits.
const TYPES: [(DataType, u8, u8); 20] = [
    (DataType::Int8, 0, 8),
    (DataType::Int16, 0, 16),
    (DataType::Int32, 0, 32),
    (DataType::Int64, 0, 64),
    (DataType::Uint8, 1, 8),
    (DataType::Uint16, 1, 16),
    (DataType::Uint32, 1, 32),
    (DataType::Uint64, 1, 64),
    (DataType::Float16, 2, 16),
    (DataType::Float, 2, 32),
    (DataType::Double, 2, 64),
    (DataType::Bfloat16, 4, 16),
    (DataType::Complex64, 5, 64),
    (DataType::Complex128, 5, 128),
    (DataType::Bool, 6, 8),
    (DataType::Float8e4m3fn, 10, 8),
    (DataType::Float8e4m3fnuz, 11, 8),
    (DataType::Float8e5m2, 12, 8),
    (DataType::Float8e5m2fnuz, 13, 8),
    (DataType::Float8e8m0, 14, 8),
];

/// Returns the element type of an array; `None` if ONNX has no such type.
fn find_data_type(array: &DlTensor) -> Option<DataType> {
    let wanted = (array.code, array.bits, array.lanes);
    TYPES.iter().find(|(_, code, bits)| (*code, *bits, 1) == wanted).map(|(ty, ..)| *ty)
}

/// C structure `DLManagedTensor`: an array that the consumer frees by calling `deleter`.
#[repr(C)]
struct ManagedTensor {
    array: DlTensor,
    context: *mut c_void,
    deleter: Option<unsafe extern "C" fn(*mut ManagedTensor)>,
}

/// Exported array together with the data that it points to.
#[repr(C)]
struct ExportedTensor {
    managed: ManagedTensor,
    shape: Vec<i64>,
    strides: Vec<i64>,
    /// Keeps the memory of the elements alive.
    _owner: Py<PyTensor>,
}

/// Name of a DLPack capsule that has not been consumed; a consumer renames the capsule.
const NAME: &CStr = c"dltensor";

/// Exports the memory of a tensor, which begins at `start`, as a capsule.
///
/// # Errors
///
/// `BufferError` for elements that DLPack has no type for, or that are narrower than a byte.
pub(crate) fn export_tensor<'py>(
    owner: &Bound<'py, PyTensor>,
    start: *mut u8,
) -> Result<Bound<'py, PyCapsule>, PyErr> {
    let tensor = owner.get().tensor();
    let Some((_, code, bits)) = TYPES.iter().find(|row| row.0 == tensor.data_type()) else {
        let what = format!("DLPack has no type for elements of type {}", tensor.data_type());
        return Err(PyBufferError::new_err(what));
    };
    let array = DlTensor {
        data: start.cast(),
        device_type: CPU,
        device_id: 0,
        ndim: i32::try_from(tensor.rank()).unwrap_or(i32::MAX),
        code: *code,
        bits: *bits,
        lanes: 1,
        shape: ptr::null(),
        strides: ptr::null(),
        byte_offset: 0,
    };
    let mut handed = Box::new(ExportedTensor {
        managed: ManagedTensor { array, context: ptr::null_mut(), deleter: Some(free_exported) },
        shape: tensor.dims().iter().map(|dim| *dim as i64).collect(),
        strides: compute_contiguous_strides(tensor.dims())
            .into_iter()
            .map(|stride| stride as i64)
            .collect(),
        _owner: owner.clone().unbind(),
    });
    handed.managed.array.shape = handed.shape.as_ptr();
    handed.managed.array.strides = handed.strides.as_ptr();
    let address = NonNull::from(Box::leak(handed));
    // SAFETY: the address is that of a leaked `ExportedTensor`, which lives until `free_exported`
    // is called, by the consumer, or by `destroy_capsule` if the capsule is never consumed.
    let made = unsafe {
        PyCapsule::new_with_pointer_and_destructor(
            owner.py(),
            address.cast(),
            NAME,
            Some(destroy_capsule),
        )
    };
    if made.is_err() {
        // SAFETY: no capsule holds the address.
        drop(unsafe { Box::from_raw(address.as_ptr()) });
    }
    made
}

/// Frees an exported array.
///
/// # Safety
///
/// `managed` must be the first field of a leaked [`ExportedTensor`] that is not used afterwards.
unsafe extern "C" fn free_exported(managed: *mut ManagedTensor) {
    // SAFETY: the caller passes the first field of a leaked `ExportedTensor`, which is `repr(C)`.
    drop(unsafe { Box::from_raw(managed.cast::<ExportedTensor>()) });
}

/// Frees the array of a capsule that the interpreter destroys, unless a consumer has renamed the
/// capsule, and so taken over the array.
///
/// # Safety
///
/// `capsule` must be one that [`export_tensor`] made; the interpreter is destroying it.
unsafe extern "C" fn destroy_capsule(capsule: *mut ffi::PyObject) {
    // SAFETY: the caller passes a capsule that `export_tensor` made. While it has this name, its
    // address is that of an `ExportedTensor` that has not been freed.
    unsafe {
        if ffi::PyCapsule_IsValid(capsule, NAME.as_ptr()) == 1 {
            free_exported(ffi::PyCapsule_GetPointer(capsule, NAME.as_ptr()).cast());
        }
    }
}

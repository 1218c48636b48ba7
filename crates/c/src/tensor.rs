//! Tensors: made of arrays and strings, read in place, and exchanged by DLPack.

use std::ffi::{c_char, c_int, c_void};
use std::ptr;
use std::sync::Arc;

use sardonyx::value::{Buffer, StringArray, ViewData};
use sardonyx::{DataType, TensorView};

use crate::error::{Error, Failure, answer, answer_or, argument};
use crate::pointers::{Array, Out, Owned, Ref, Text, give, give_text};

/// Elements of type `float`.
pub(crate) const SARDONYX_TYPE_FLOAT: c_int = DataType::Float.number();
/// Elements of type `uint8`.
pub(crate) const SARDONYX_TYPE_UINT8: c_int = DataType::Uint8.number();
/// Elements of type `int8`.
pub(crate) const SARDONYX_TYPE_INT8: c_int = DataType::Int8.number();
/// Elements of type `uint16`.
pub(crate) const SARDONYX_TYPE_UINT16: c_int = DataType::Uint16.number();
/// Elements of type `int16`.
pub(crate) const SARDONYX_TYPE_INT16: c_int = DataType::Int16.number();
/// Elements of type `int32`.
pub(crate) const SARDONYX_TYPE_INT32: c_int = DataType::Int32.number();
/// Elements of type `int64`.
pub(crate) const SARDONYX_TYPE_INT64: c_int = DataType::Int64.number();
/// Elements of type `string`.
pub(crate) const SARDONYX_TYPE_STRING: c_int = DataType::String.number();
/// Elements of type `bool`, a byte each.
pub(crate) const SARDONYX_TYPE_BOOL: c_int = DataType::Bool.number();
/// Elements of type `float16`.
pub(crate) const SARDONYX_TYPE_FLOAT16: c_int = DataType::Float16.number();
/// Elements of type `double`.
pub(crate) const SARDONYX_TYPE_DOUBLE: c_int = DataType::Double.number();
/// Elements of type `uint32`.
pub(crate) const SARDONYX_TYPE_UINT32: c_int = DataType::Uint32.number();
/// Elements of type `uint64`.
pub(crate) const SARDONYX_TYPE_UINT64: c_int = DataType::Uint64.number();
/// Elements of type `bfloat16`.
pub(crate) const SARDONYX_TYPE_BFLOAT16: c_int = DataType::Bfloat16.number();

/// Tensor. It is never changed, so several threads may read it.
#[derive(Debug)]
pub(crate) struct Tensor {
    pub(crate) value: sardonyx::Tensor,
    dims: Vec<i64>,
}

impl Tensor {
    pub(crate) fn new(value: sardonyx::Tensor) -> Tensor {
        let dims = value.dims().iter().map(|dim| *dim as i64).collect();
        Tensor { value, dims }
    }
}

fn read_dims(dims: Array<i64>, rank: usize) -> Result<Vec<usize>, Failure> {
    let dims = dims.read(rank, "sizes")?;
    let sizes: Option<Vec<usize>> = dims.iter().map(|size| usize::try_from(*size).ok()).collect();
    sizes.ok_or_else(|| argument(format!("the shape {dims:?} has a negative size")))
}

/// Makes a tensor of a copy of elements in row-major order. The type is the number of the element
/// type in ONNX, such as `SARDONYX_TYPE_FLOAT`; `byte_count` is the size of all elements.
#[unsafe(no_mangle)]
extern "C" fn sardonyx_tensor_new(
    element_type: c_int,
    dims: Array<i64>,
    rank: usize,
    elements: Array<c_void>,
    byte_count: usize,
    tensor: Out<*mut Tensor>,
) -> *mut Error {
    answer(|| {
        let place = tensor.demand()?;
        let data_type = DataType::from_number(element_type)
            .ok_or_else(|| argument(format!("no element type has the number {element_type}")))?;
        let bytes = Buffer::copy_of(elements.cast::<u8>().read(byte_count, "bytes")?)?;
        let value = sardonyx::Tensor::from_buffer(data_type, read_dims(dims, rank)?, bytes)?;
        place.set(give(Tensor::new(value)))
    })
}

/// Makes a tensor of copies of strings. Their number is the product of the sizes.
#[unsafe(no_mangle)]
extern "C" fn sardonyx_tensor_from_strings(
    dims: Array<i64>,
    rank: usize,
    strings: Array<Text>,
    tensor: Out<*mut Tensor>,
) -> *mut Error {
    answer(|| {
        let place = tensor.demand()?;
        let dims = read_dims(dims, rank)?;
        let count = dims.iter().try_fold(1usize, |count, dim| count.checked_mul(*dim));
        let count = count.ok_or_else(|| argument(format!("the shape {dims:?} is too large")))?;
        let mut all = StringArray::new();
        for string in strings.read(count, "strings")? {
            all.push(string.read("string")?.as_bytes());
        }
        place.set(give(Tensor::new(sardonyx::Tensor::from_strings(dims, all)?)))
    })
}

/// Returns the number of the element type in ONNX; 0 for a null pointer.
#[unsafe(no_mangle)]
extern "C" fn sardonyx_tensor_type(tensor: Ref<Tensor>) -> c_int {
    answer_or(0, || Ok(tensor.get()?.value.data_type().number()))
}

/// Returns the number of dimensions; 0 for a null pointer.
#[unsafe(no_mangle)]
extern "C" fn sardonyx_tensor_rank(tensor: Ref<Tensor>) -> usize {
    answer_or(0, || Ok(tensor.get()?.dims.len()))
}

/// Returns the sizes, which live as long as the tensor; null for a null pointer.
#[unsafe(no_mangle)]
extern "C" fn sardonyx_tensor_dims(tensor: Ref<Tensor>) -> *const i64 {
    answer_or(ptr::null(), || Ok(tensor.get()?.dims.as_ptr()))
}

/// Returns the number of elements; 0 for a null pointer.
#[unsafe(no_mangle)]
extern "C" fn sardonyx_tensor_count(tensor: Ref<Tensor>) -> usize {
    answer_or(0, || Ok(tensor.get()?.value.len()))
}

/// Returns the elements in row-major order, which live as long as the tensor; null for strings.
#[unsafe(no_mangle)]
extern "C" fn sardonyx_tensor_elements(tensor: Ref<Tensor>) -> *const c_void {
    answer_or(ptr::null(), || {
        let value = &tensor.get()?.value;
        let has_strings = value.data_type().number() == SARDONYX_TYPE_STRING;
        Ok(if has_strings { ptr::null() } else { value.bytes().as_ptr().cast() })
    })
}

/// Returns the number of bytes of all elements; 0 for strings.
#[unsafe(no_mangle)]
extern "C" fn sardonyx_tensor_byte_count(tensor: Ref<Tensor>) -> usize {
    answer_or(0, || {
        let value = &tensor.get()?.value;
        let has_strings = value.data_type().number() == SARDONYX_TYPE_STRING;
        Ok(if has_strings { 0 } else { value.bytes().len() })
    })
}

/// Copies a string of a tensor of strings. The caller frees it with `sardonyx_text_free`.
#[unsafe(no_mangle)]
extern "C" fn sardonyx_tensor_string(
    tensor: Ref<Tensor>,
    index: usize,
    text: Out<*mut c_char>,
) -> *mut Error {
    answer(|| {
        let place = text.demand()?;
        let value = &tensor.get()?.value;
        let Some(strings) = value.strings() else {
            return Err(argument(format!("the elements are of type {}", value.data_type())));
        };
        if index >= strings.len() {
            return Err(argument(format!("there are {} strings", strings.len())));
        }
        place.set(give_text(&String::from_utf8_lossy(strings.get(index))))
    })
}

/// Frees a tensor. Ignores a null pointer.
#[unsafe(no_mangle)]
extern "C" fn sardonyx_tensor_free(tensor: Owned<Tensor>) {
    tensor.free();
}

/// C structure `DLTensor` of DLPack.
#[repr(C)]
#[derive(Debug)]
struct DlTensor {
    elements: *mut c_void,
    device_type: c_int,
    device_id: c_int,
    rank: c_int,
    code: u8,
    bits: u8,
    lanes: u16,
    dims: *const i64,
    strides: *const i64,
    offset: u64,
}

/// C structure `DLManagedTensor` of DLPack: an array that its receiver frees by calling `deleter`.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct DLManagedTensor {
    array: DlTensor,
    context: *mut c_void,
    deleter: Option<unsafe extern "C" fn(*mut DLManagedTensor)>,
}

/// Device type of the CPU in DLPack.
const CPU: c_int = 1;

/// Greatest rank of an array. No library makes larger ones.
const MOST_DIMS: usize = 64;

/// Element types with their code and width in bits in DLPack.
const TYPES: [(c_int, u8, u8); 13] = [
    (SARDONYX_TYPE_INT8, 0, 8),
    (SARDONYX_TYPE_INT16, 0, 16),
    (SARDONYX_TYPE_INT32, 0, 32),
    (SARDONYX_TYPE_INT64, 0, 64),
    (SARDONYX_TYPE_UINT8, 1, 8),
    (SARDONYX_TYPE_UINT16, 1, 16),
    (SARDONYX_TYPE_UINT32, 1, 32),
    (SARDONYX_TYPE_UINT64, 1, 64),
    (SARDONYX_TYPE_FLOAT16, 2, 16),
    (SARDONYX_TYPE_FLOAT, 2, 32),
    (SARDONYX_TYPE_DOUBLE, 2, 64),
    (SARDONYX_TYPE_BFLOAT16, 4, 16),
    (SARDONYX_TYPE_BOOL, 6, 8),
];

/// Array of another library, which is freed with the tensor that reads it.
#[derive(Debug)]
struct Foreign {
    array: *mut DLManagedTensor,
    start: *const u8,
    count: usize,
}

// SAFETY: DLPack leaves it to both sides that nothing writes to an array that is handed over.
unsafe impl Send for Foreign {}
// SAFETY: as above.
unsafe impl Sync for Foreign {}

impl AsRef<[u8]> for Foreign {
    fn as_ref(&self) -> &[u8] {
        if self.count == 0 {
            return &[];
        }
        // SAFETY: the array has as many bytes, which live until it is freed.
        unsafe { std::slice::from_raw_parts(self.start, self.count) }
    }
}

impl Drop for Foreign {
    fn drop(&mut self) {
        // SAFETY: the array was handed over and is freed here alone.
        unsafe { free_array(self.array) };
    }
}

/// Frees an array that was handed over.
///
/// # Safety
///
/// The array is live, and nothing uses it afterwards.
unsafe fn free_array(array: *mut DLManagedTensor) {
    // SAFETY: as the caller promises.
    if let Some(deleter) = unsafe { (*array).deleter } {
        // SAFETY: the function frees its argument.
        unsafe { deleter(array) };
    }
}

/// Memory of elements with strides.
struct Extent {
    /// Number of elements before the first.
    before: usize,
    /// Number of bytes from the lowest element to the highest.
    bytes: usize,
}

/// Checked content of an array.
struct Content<'a> {
    data_type: DataType,
    dims: Vec<usize>,
    strides: Option<&'a [i64]>,
    start: *const u8,
    count: usize,
}

fn read_array(array: &DlTensor) -> Result<Content<'_>, Failure> {
    let wanted = (array.code, array.bits, array.lanes);
    let found = TYPES.iter().find(|(_, code, bits)| (*code, *bits, 1) == wanted);
    let found = found.and_then(|(number, ..)| DataType::from_number(*number));
    let Some(data_type) = found else {
        let (code, bits, lanes) = wanted;
        let what = format!("DLPack type {code} with {bits} bits in {lanes} lanes is not supported");
        return Err(argument(what));
    };
    let rank = usize::try_from(array.rank).ok().filter(|rank| *rank <= MOST_DIMS);
    let rank = rank.ok_or_else(|| argument(format!("the rank {} is invalid", array.rank)))?;
    if array.device_type != CPU {
        let what = format!("the array is on device type {}, not the CPU", array.device_type);
        return Err(argument(what));
    }
    let dims = read_dims(Array::new(array.dims), rank)?;
    let elements = dims.iter().try_fold(1usize, |count, dim| count.checked_mul(*dim));
    let count = elements.and_then(|elements| data_type.storage_bytes(elements));
    let count = count.ok_or_else(|| argument(format!("the shape {dims:?} is too large")))?;
    if count > 0 && array.elements.is_null() {
        return Err(argument("the array has elements, but its data pointer is null"));
    }
    let start = array.elements.cast::<u8>().wrapping_add(array.offset as usize);
    let strides = if array.strides.is_null() || count == 0 {
        None
    } else {
        // SAFETY: strides that are not null are as many as the dimensions, and live like the array.
        Some(unsafe { std::slice::from_raw_parts(array.strides, rank) })
    };
    Ok(Content { data_type, dims, strides, start, count })
}

impl Content<'_> {
    /// Whether the elements are in row-major order without gaps.
    fn is_contiguous(&self) -> bool {
        let Some(strides) = self.strides else { return true };
        let mut expected = 1;
        for (dim, stride) in self.dims.iter().zip(strides).rev() {
            if *dim != 1 && *stride != expected {
                return false;
            }
            expected *= *dim as i64;
        }
        true
    }

    /// Returns the memory that elements with these strides span; `None` if it is too large.
    fn find_extent(&self, strides: &[i64]) -> Option<Extent> {
        let (mut before, mut after) = (0usize, 0usize);
        for (dim, stride) in self.dims.iter().zip(strides) {
            let far = (dim - 1).checked_mul(usize::try_from(stride.unsigned_abs()).ok()?)?;
            let side = if *stride < 0 { &mut before } else { &mut after };
            *side = side.checked_add(far)?;
        }
        let elements = before.checked_add(after)?.checked_add(1)?;
        let bytes = elements.checked_mul(self.data_type.element_bytes().unwrap_or(1))?;
        isize::try_from(bytes).ok().map(|_| Extent { before, bytes })
    }

    /// Copies elements with strides to row-major order.
    fn copy(&self, strides: &[i64]) -> Result<sardonyx::Tensor, Failure> {
        let extent = self.find_extent(strides);
        let Some(Extent { before, bytes }) = extent else {
            return Err(argument(format!("the strides {strides:?} are too large")));
        };
        let width = self.data_type.element_bytes().unwrap_or(1);
        // SAFETY: by its strides, the array has as many bytes, and the first element lies `before`
        // elements after the lowest.
        let bytes =
            unsafe { std::slice::from_raw_parts(self.start.wrapping_sub(before * width), bytes) };
        let strides: Vec<isize> = strides.iter().map(|stride| *stride as isize).collect();
        let data = ViewData::Bytes(bytes);
        let view = TensorView::with_strides(self.data_type, &self.dims, strides, before, data)?;
        Ok(view.to_tensor()?)
    }
}

/// Makes a tensor of an array of another library, without a copy where its elements are contiguous.
/// After success the array belongs to the tensor, which frees it; after an error it stays with the
/// caller.
#[unsafe(no_mangle)]
extern "C" fn sardonyx_tensor_from_dlpack(
    array: Ref<DLManagedTensor>,
    tensor: Out<*mut Tensor>,
) -> *mut Error {
    answer(|| {
        let place = tensor.demand()?;
        let content = read_array(&array.get()?.array)?;
        let value = match content.strides.filter(|_| !content.is_contiguous()) {
            Some(strides) => {
                let copy = content.copy(strides)?;
                // SAFETY: the caller hands the array over, and nothing uses it any more.
                unsafe { free_array(array.address().cast_mut()) };
                copy
            }
            None => {
                let Content { data_type, dims, start, count, .. } = content;
                let foreign = Foreign { array: array.address().cast_mut(), start, count };
                let buffer = Buffer::from_shared(Arc::new(foreign));
                sardonyx::Tensor::from_buffer(data_type, dims, buffer)?
            }
        };
        place.set(give(Tensor::new(value)))
    })
}

/// Array together with the tensor that it shows.
#[repr(C)]
struct Export {
    array: DLManagedTensor,
    tensor: Tensor,
}

/// Frees an array that was exported.
///
/// # Safety
///
/// `array` is the first field of a leaked [`Export`] that is not used afterwards.
unsafe extern "C" fn free_export(array: *mut DLManagedTensor) {
    // SAFETY: as the caller promises; the structure is `repr(C)`.
    drop(unsafe { Box::from_raw(array.cast::<Export>()) });
}

/// Exports a tensor as an array for another library, which shares its memory, must not write to it
/// and frees it with its `deleter`.
#[unsafe(no_mangle)]
extern "C" fn sardonyx_tensor_to_dlpack(
    tensor: Ref<Tensor>,
    array: Out<*mut DLManagedTensor>,
) -> *mut Error {
    answer(|| {
        let place = array.demand()?;
        let value = tensor.get()?.value.clone();
        let Some((_, code, bits)) = TYPES.iter().find(|row| row.0 == value.data_type().number())
        else {
            let what = format!("DLPack has no type for elements of type {}", value.data_type());
            return Err(argument(what));
        };
        let tensor = Tensor::new(value);
        let array = DlTensor {
            elements: tensor.value.bytes().as_ptr().cast_mut().cast(),
            device_type: CPU,
            device_id: 0,
            rank: c_int::try_from(tensor.dims.len()).unwrap_or(c_int::MAX),
            code: *code,
            bits: *bits,
            lanes: 1,
            dims: tensor.dims.as_ptr(),
            strides: ptr::null(),
            offset: 0,
        };
        let array = DLManagedTensor { array, context: ptr::null_mut(), deleter: Some(free_export) };
        place.set(give(Export { array, tensor }).cast())
    })
}

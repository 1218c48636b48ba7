//! Values: the object `OrtValue`, over memory of ours or of the caller.

#![allow(unsafe_code)]

use std::ffi::{c_int, c_void};
use std::sync::{Arc, Mutex, PoisonError};
use std::{ptr, slice};

use sardonyx::value::{Buffer, Map, Sequence, StringArray};
use sardonyx::{DataType, ErrorKind, Tensor, TensorViewMut, Type, Value as EngineValue};
use sardonyx_ort::Status as Code;
use smallvec::SmallVec;

use crate::failure::{Error, StatusPointer, answer, argument, demand, of_tensor, release};
use crate::handles::{Handle, Object, give, give_boxed};
use crate::memory::{AllocatorHandle, CPU, MemoryInfo};
use crate::pointers::{Array, Out};
use crate::types::{TensorInfo, TypeInfo, kind, to_data_type, to_number, to_type};

/// Value that C code holds, `OrtValue`. Clones share the content. A tensor of numbers is in the
/// object itself, as most values are one and each output of a run is made and released.
#[derive(Debug, Clone)]
pub(crate) enum Value {
    /// Tensor of numbers.
    Numbers(Numbers),
    /// Tensor of strings, which callers fill in.
    Strings(Arc<Mutex<Strings>>),
    /// Value that is not a tensor.
    Other(Arc<EngineValue>),
}

impl Object for Value {
    const NAME: &'static str = "OrtValue";
}

/// Tensor whose elements stay in their place.
#[derive(Debug, Clone)]
pub(crate) struct Numbers {
    tensor: Tensor,
    /// Address of the elements, for callers who write to them.
    start: *mut u8,
    /// Dims for callers who read them in place.
    dims: SignedDims,
}

/// Dims as C code reads them.
type SignedDims = SmallVec<[i64; 4]>;

// SAFETY: the address belongs to memory that the tensor in the same structure owns or borrows from
// the caller. The C interface leaves it to callers that no two threads write to it.
unsafe impl Send for Numbers {}
// SAFETY: as above.
unsafe impl Sync for Numbers {}

/// Elements of a tensor of strings.
#[derive(Debug)]
pub(crate) struct Strings {
    tensor: Tensor,
    dims: SignedDims,
    /// Elements that callers have written since `tensor` was made. They stay, as callers have
    /// addresses of their bytes.
    written: Option<Vec<Vec<u8>>>,
}

impl Strings {
    fn new(tensor: Tensor) -> Strings {
        let dims = to_signed(tensor.dims());
        Strings { tensor, dims, written: None }
    }

    /// Returns the elements for changes.
    fn change(&mut self) -> &mut Vec<Vec<u8>> {
        let strings = self.tensor.strings();
        self.written.get_or_insert_with(|| {
            strings.into_iter().flat_map(StringArray::iter).map(<[u8]>::to_vec).collect()
        })
    }

    /// Returns the tensor with the elements that were written.
    pub(crate) fn to_tensor(&self) -> Result<Tensor, Error> {
        match &self.written {
            None => Ok(self.tensor.clone()),
            Some(written) => {
                let strings: StringArray = written.iter().collect();
                Tensor::from_strings(self.tensor.dims(), strings).map_err(of_tensor)
            }
        }
    }

    /// Calls a function with each element.
    pub(crate) fn for_each(&self, mut visit: impl FnMut(&[u8])) {
        match (&self.written, self.tensor.strings()) {
            (Some(written), _) => written.iter().for_each(|string| visit(string)),
            (None, Some(strings)) => strings.iter().for_each(visit),
            (None, None) => {}
        }
    }

    /// Returns an element.
    ///
    /// # Errors
    ///
    /// An index without an element.
    pub(crate) fn get(&self, index: usize) -> Result<&[u8], Error> {
        let count = self.tensor.len();
        demand(index < count, || {
            format!("index {index} is out of range: the tensor has {count} strings")
        })?;
        Ok(match &self.written {
            Some(written) => &written[index],
            None => self.tensor.strings().map_or(&[], |strings| strings.get(index)),
        })
    }

    /// Replaces all elements.
    ///
    /// # Errors
    ///
    /// Another number of elements.
    pub(crate) fn fill(&mut self, strings: Vec<Vec<u8>>) -> Result<(), Error> {
        let (count, given) = (self.tensor.len(), strings.len());
        demand(count == given, || format!("there are {given} strings for a tensor of {count}"))?;
        self.written = Some(strings);
        Ok(())
    }

    /// Returns an element for a change.
    ///
    /// # Errors
    ///
    /// An index without an element.
    pub(crate) fn change_one(&mut self, index: usize) -> Result<&mut Vec<u8>, Error> {
        let count = self.tensor.len();
        demand(index < count, || {
            format!("index {index} is out of range: the tensor has {count} strings")
        })?;
        Ok(&mut self.change()[index])
    }

    /// Returns the dims.
    pub(crate) fn dims(&self) -> &[usize] {
        self.tensor.dims()
    }
}

/// Memory of the caller under a tensor.
struct Lent {
    start: *mut u8,
    len: usize,
    /// Allocator that frees the memory; `None` for the caller.
    allocator: Option<AllocatorHandle>,
}

// SAFETY: the C interface leaves it to callers that no thread writes to the memory while another
// uses it.
unsafe impl Send for Lent {}
// SAFETY: as above.
unsafe impl Sync for Lent {}

impl AsRef<[u8]> for Lent {
    fn as_ref(&self) -> &[u8] {
        if self.len == 0 {
            return &[];
        }
        // SAFETY: the caller promises `len` bytes that stay until the value is released.
        unsafe { slice::from_raw_parts(self.start, self.len) }
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        if let Some(allocator) = self.allocator {
            // An allocator without a function to free leaves the memory to its owner.
            let _ = allocator.free(self.start.cast());
        }
    }
}

fn to_signed(dims: &[usize]) -> SignedDims {
    dims.iter().map(|dim| i64::try_from(*dim).unwrap_or(i64::MAX)).collect()
}

/// Converts the sizes that a caller gives.
///
/// # Errors
///
/// A negative size.
pub(crate) fn to_dims(shape: Array<i64>, rank: usize) -> Result<Vec<usize>, Error> {
    let sizes = shape.read(rank, "sizes")?;
    let dims: Option<Vec<usize>> = sizes.iter().map(|size| usize::try_from(*size).ok()).collect();
    dims.ok_or_else(|| argument(format!("the shape {sizes:?} has a negative size")))
}

/// Returns the number of bytes of a tensor.
fn count_bytes(data_type: DataType, dims: &[usize]) -> Result<usize, Error> {
    let elements = dims.iter().try_fold(1usize, |count, dim| count.checked_mul(*dim));
    let bytes = elements.and_then(|elements| data_type.storage_bytes(elements));
    bytes.ok_or_else(|| argument(format!("{data_type}{dims:?} is larger than memory can be")))
}

impl Value {
    /// Makes a value of the engine one that callers may write to. Memory that other values share is
    /// copied.
    ///
    /// # Errors
    ///
    /// No memory for a copy.
    pub(crate) fn from_engine(value: EngineValue) -> Result<Box<Value>, Error> {
        let value = match value {
            EngineValue::Optional(_, Some(held)) => *held,
            other => other,
        };
        Ok(Box::new(match value {
            EngineValue::Tensor(tensor) if tensor.data_type() == DataType::String => {
                Value::Strings(Arc::new(Mutex::new(Strings::new(tensor))))
            }
            EngineValue::Tensor(mut tensor) => {
                let start = tensor.bytes_mut().map_err(of_tensor)?.as_mut_ptr();
                let dims = to_signed(tensor.dims());
                Value::Numbers(Numbers { tensor, start, dims })
            }
            EngineValue::Sequence(sequence) => {
                Value::Other(Arc::new(EngineValue::Sequence(copy_shared(&sequence)?)))
            }
            other => Value::Other(Arc::new(other)),
        }))
    }

    /// Makes a tensor over memory of the caller, or of an allocator that frees it.
    ///
    /// # Errors
    ///
    /// Too few bytes.
    fn from_memory(data_type: DataType, dims: &[usize], memory: Lent) -> Result<Value, Error> {
        let start = memory.start;
        let buffer = Buffer::from_shared(Arc::new(memory));
        let tensor = Tensor::from_buffer(data_type, dims, buffer).map_err(of_tensor)?;
        Ok(Value::Numbers(Numbers { tensor, start, dims: to_signed(dims) }))
    }

    /// Returns the value for the engine. It shares memory with `self`.
    ///
    /// # Errors
    ///
    /// No memory for strings.
    pub(crate) fn to_engine(&self) -> Result<EngineValue, Error> {
        match self {
            Value::Numbers(numbers) => Ok(EngineValue::Tensor(numbers.tensor.clone())),
            Value::Strings(strings) => {
                let strings = strings.lock().unwrap_or_else(PoisonError::into_inner);
                Ok(EngineValue::Tensor(strings.to_tensor()?))
            }
            Value::Other(value) => Ok((**value).clone()),
        }
    }

    /// Returns the tensor of numbers; `None` for other values.
    pub(crate) fn as_tensor(&self) -> Option<&Tensor> {
        match self {
            Value::Numbers(numbers) => Some(&numbers.tensor),
            Value::Strings(_) | Value::Other(_) => None,
        }
    }

    /// Returns the value that is not a tensor; `None` for tensors.
    fn as_other(&self) -> Option<&EngineValue> {
        match self {
            Value::Other(value) => Some(value),
            Value::Numbers(_) | Value::Strings(_) => None,
        }
    }

    /// Returns the tensor of strings; `None` for other values.
    pub(crate) fn strings(&self) -> Option<&Mutex<Strings>> {
        match self {
            Value::Strings(strings) => Some(strings),
            Value::Numbers(_) | Value::Other(_) => None,
        }
    }

    /// Returns the elements of a tensor of numbers for a run that writes to them; `None` for other
    /// values, types and shapes.
    pub(crate) fn lend<'v>(
        &'v self,
        data_type: DataType,
        dims: &[usize],
    ) -> Option<TensorViewMut<'v>> {
        let Value::Numbers(Numbers { tensor, start, .. }) = self else { return None };
        if tensor.data_type() != data_type || tensor.dims() != dims {
            return None;
        }
        let len = tensor.bytes().len();
        if len == 0 {
            return TensorViewMut::new(data_type, dims, &mut []).ok();
        }
        // SAFETY: the memory has `len` bytes, and the C interface leaves it to callers that nothing
        // else uses an output during a run. A run borrows no memory that an input overlaps.
        let bytes = unsafe { slice::from_raw_parts_mut(*start, len) };
        TensorViewMut::new(data_type, dims, bytes).ok()
    }

    /// Copies an output of the engine into a tensor of the caller.
    ///
    /// # Errors
    ///
    /// Another type or shape.
    pub(crate) fn copy_from(&self, output: &EngineValue) -> Result<(), Error> {
        let EngineValue::Tensor(tensor) = output else {
            return Err(argument(
                "a given OrtValue can only receive a tensor, and the output is a sequence, map or optional",
            ));
        };
        if let (Some(strings), Some(from)) = (self.strings(), tensor.strings()) {
            let mut strings = strings.lock().unwrap_or_else(PoisonError::into_inner);
            demand(strings.dims() == tensor.dims(), || {
                format!(
                    "the output is {:?}, but the given value is {:?}",
                    tensor.dims(),
                    strings.dims()
                )
            })?;
            return strings.fill(from.iter().map(<[u8]>::to_vec).collect());
        }
        let own = self.as_tensor().filter(|own| own.dims() == tensor.dims());
        let own = own.filter(|own| own.data_type() == tensor.data_type());
        if own.is_some_and(|own| ptr::eq(own.bytes(), tensor.bytes())) {
            return Ok(());
        }
        match self.lend(tensor.data_type(), tensor.dims()) {
            Some(mut memory) => memory.copy_from(&tensor.view()).map_err(of_tensor),
            None => Err(argument(format!(
                "the output is {}{:?}, but the given value is {}",
                tensor.data_type(),
                tensor.dims(),
                self.describe()
            ))),
        }
    }

    fn describe(&self) -> String {
        match self.as_tensor() {
            Some(tensor) => format!("{}{:?}", tensor.data_type(), tensor.dims()),
            None => "no tensor of that type".to_string(),
        }
    }

    /// Describes the type.
    ///
    /// # Errors
    ///
    /// No memory for strings.
    pub(crate) fn type_info(&self) -> Result<TypeInfo, Error> {
        Ok(TypeInfo::from_type(&match self.tensor_info() {
            Some(info) => info.to_type()?,
            None => to_type(&self.to_engine()?.value_type()),
        }))
    }

    /// Describes a tensor; `None` for other values.
    fn tensor_info(&self) -> Option<TensorInfo> {
        match (self.as_tensor(), self.strings()) {
            (Some(tensor), _) => Some(TensorInfo::from_dims(tensor.data_type(), tensor.dims())),
            (None, Some(strings)) => {
                let strings = strings.lock().unwrap_or_else(PoisonError::into_inner);
                Some(TensorInfo::from_dims(DataType::String, strings.dims()))
            }
            (None, None) => None,
        }
    }

    /// Returns the number of the kind of the value.
    fn kind(&self) -> c_int {
        match self {
            Value::Numbers(_) | Value::Strings(_) => kind::TENSOR,
            Value::Other(value) => match &**value {
                EngineValue::Tensor(_) => kind::TENSOR,
                EngineValue::Sparse(_) => kind::SPARSE,
                EngineValue::Sequence(_) => kind::SEQUENCE,
                EngineValue::Map(_) => kind::MAP,
                EngineValue::Optional(..) => kind::OPTIONAL,
                EngineValue::Opaque(_) => kind::OPAQUE,
            },
        }
    }

    /// Returns the address of the elements of a tensor of numbers.
    ///
    /// # Errors
    ///
    /// Another value.
    fn data(&self) -> Result<*mut u8, Error> {
        match self {
            Value::Numbers(numbers) => Ok(numbers.start),
            Value::Other(_) => Err(argument("the OrtValue is not a tensor")),
            Value::Strings(_) => Err(argument(
                "the elements of a tensor of strings have no address; \
                 GetStringTensorContent copies them",
            )),
        }
    }

    /// Returns the number of values that a sequence or a map gives out.
    fn count_parts(&self) -> Result<usize, Error> {
        match self.as_other() {
            Some(EngineValue::Sequence(sequence)) => Ok(sequence.len()),
            Some(EngineValue::Map(_)) => Ok(2),
            _ => Err(argument("the OrtValue is neither a sequence nor a map")),
        }
    }

    /// Returns an item of a sequence; of a map its keys (0) or its values (1), as tensors.
    fn part(&self, index: usize) -> Result<Box<Value>, Error> {
        let count = self.count_parts()?;
        demand(index < count, || {
            format!("index {index} is out of range: the OrtValue has {count} parts")
        })?;
        match self.as_other() {
            Some(EngineValue::Sequence(sequence)) => {
                Value::from_engine(sequence.items()[index].clone())
            }
            Some(EngineValue::Map(map)) if index == 0 => {
                Value::from_engine(crate::maps::keys(map)?.into())
            }
            Some(EngineValue::Map(map)) => Value::from_engine(crate::maps::values(map)?.into()),
            _ => Err(argument("the OrtValue is neither a sequence nor a map")),
        }
    }
}

/// Copies tensors of a sequence whose memory other values share, such as inputs of the caller.
fn copy_shared(sequence: &Sequence) -> Result<Sequence, Error> {
    let mut copy = Sequence::new(sequence.element().clone());
    for item in sequence.items() {
        let item = match item {
            EngineValue::Tensor(tensor) if tensor.data_type() != DataType::String => {
                EngineValue::Tensor(tensor.view().to_tensor().map_err(of_tensor)?)
            }
            EngineValue::Sequence(inner) => EngineValue::Sequence(copy_shared(inner)?),
            other => other.clone(),
        };
        copy.push(item).map_err(of_tensor)?;
    }
    Ok(copy)
}

pub(crate) extern "C" fn create_tensor_as_ort_value(
    allocator: AllocatorHandle,
    shape: Array<i64>,
    rank: usize,
    element: c_int,
    out: Out<*mut Value>,
) -> StatusPointer {
    answer("CreateTensorAsOrtValue", || {
        let out = out.demand()?;
        let (data_type, dims) = (to_data_type(element)?, to_dims(shape, rank)?);
        if allocator.is_ours() || data_type == DataType::String {
            let tensor = Tensor::zeros(data_type, &dims).map_err(of_tensor)?;
            return out.set(give_boxed(Value::from_engine(tensor.into())?));
        }
        let len = count_bytes(data_type, &dims)?;
        let start = allocator.allocate(len)?.cast();
        let memory = Lent { start, len, allocator: Some(allocator) };
        out.set(give(Value::from_memory(data_type, &dims, memory)?))
    })
}

/// Makes a tensor over memory of the caller.
struct Request {
    start: *mut c_void,
    len: usize,
    shape: Array<i64>,
    rank: usize,
    element: c_int,
    allocator: Option<AllocatorHandle>,
}

impl Request {
    fn make(self, out: Out<*mut Value>) -> Result<(), Error> {
        let out = out.demand()?;
        let (data_type, dims) = (to_data_type(self.element)?, to_dims(self.shape, self.rank)?);
        if data_type == DataType::String {
            return Err(argument("a tensor of strings has no memory of the caller")
                .with_help("use CreateTensorAsOrtValue and FillStringTensor"));
        }
        let len = count_bytes(data_type, &dims)?;
        demand(len <= self.len, || {
            format!("{data_type}{dims:?} needs {len} bytes, but there are {}", self.len)
        })?;
        demand(len == 0 || !self.start.is_null(), || {
            "the memory of the tensor is a null pointer".to_string()
        })?;
        let memory = Lent { start: self.start.cast(), len, allocator: self.allocator };
        out.set(give(Value::from_memory(data_type, &dims, memory)?))
    }
}

pub(crate) extern "C" fn create_tensor_with_data_as_ort_value(
    info: Handle<MemoryInfo>,
    start: *mut c_void,
    len: usize,
    shape: Array<i64>,
    rank: usize,
    element: c_int,
    out: Out<*mut Value>,
) -> StatusPointer {
    answer("CreateTensorWithDataAsOrtValue", || {
        info.get()?.demand_cpu()?;
        Request { start, len, shape, rank, element, allocator: None }.make(out)
    })
}

pub(crate) extern "C" fn create_tensor_with_data_and_deleter_as_ort_value(
    deleter: AllocatorHandle,
    start: *mut c_void,
    len: usize,
    shape: Array<i64>,
    rank: usize,
    element: c_int,
    out: Out<*mut Value>,
) -> StatusPointer {
    answer("CreateTensorWithDataAndDeleterAsOrtValue", || {
        Request { start, len, shape, rank, element, allocator: Some(deleter) }.make(out)
    })
}

pub(crate) extern "C" fn is_tensor(value: Handle<Value>, out: Out<c_int>) -> StatusPointer {
    answer("IsTensor", || out.set(c_int::from(value.get()?.kind() == kind::TENSOR)))
}

pub(crate) extern "C" fn is_sparse_tensor(value: Handle<Value>, out: Out<c_int>) -> StatusPointer {
    answer("IsSparseTensor", || out.set(c_int::from(value.get()?.kind() == kind::SPARSE)))
}

pub(crate) extern "C" fn has_value(value: Handle<Value>, out: Out<c_int>) -> StatusPointer {
    answer("HasValue", || out.set(c_int::from(value.get()?.kind() != kind::OPTIONAL)))
}

pub(crate) extern "C" fn get_tensor_mutable_data(
    value: Handle<Value>,
    out: Out<*mut c_void>,
) -> StatusPointer {
    answer("GetTensorMutableData", || out.set(value.get()?.data()?.cast()))
}

pub(crate) extern "C" fn get_tensor_data(
    value: Handle<Value>,
    out: Out<*const c_void>,
) -> StatusPointer {
    answer("GetTensorData", || out.set(value.get()?.data()?.cast_const().cast()))
}

pub(crate) extern "C" fn get_tensor_size_in_bytes(
    value: Handle<Value>,
    out: Out<usize>,
) -> StatusPointer {
    answer("GetTensorSizeInBytes", || {
        let value = value.get()?;
        value.data()?;
        out.set(value.as_tensor().map_or(0, |tensor| tensor.bytes().len()))
    })
}

pub(crate) extern "C" fn tensor_at(
    value: Handle<Value>,
    index: Array<i64>,
    rank: usize,
    out: Out<*mut c_void>,
) -> StatusPointer {
    answer("TensorAt", || {
        let value = value.get()?;
        let start = value.data()?;
        let Some(tensor) = value.as_tensor() else {
            return Err(argument("the OrtValue is not a tensor"));
        };
        let (dims, index) = (tensor.dims(), index.read(rank, "indices")?);
        let mut place = 0usize;
        demand(index.len() == dims.len(), || {
            format!("there are {rank} indices for a tensor of rank {}", dims.len())
        })?;
        for (index, dim) in index.iter().zip(dims) {
            let index = usize::try_from(*index).ok().filter(|index| index < dim);
            let index = index.ok_or_else(|| argument(format!("an index exceeds {dims:?}")))?;
            place = place * dim + index;
        }
        let size = tensor
            .data_type()
            .element_bytes()
            .ok_or_else(|| argument("elements of less than a byte have no address"))?;
        out.set(start.wrapping_add(place * size).cast())
    })
}

pub(crate) extern "C" fn get_tensor_type_and_shape(
    value: Handle<Value>,
    out: Out<*mut TensorInfo>,
) -> StatusPointer {
    answer("GetTensorTypeAndShape", || {
        let out = out.demand()?;
        let info = value.get()?.tensor_info();
        out.set(give(info.ok_or_else(|| argument("the OrtValue is not a tensor"))?))
    })
}

pub(crate) extern "C" fn get_tensor_element_type_and_shape_data_reference(
    value: Handle<Value>,
    element: Out<c_int>,
    dims: Out<*const i64>,
    rank: Out<usize>,
) -> StatusPointer {
    answer("GetTensorElementTypeAndShapeDataReference", || {
        let (data_type, found): (DataType, &[i64]) = match value.get()? {
            Value::Numbers(Numbers { tensor, dims, .. }) => (tensor.data_type(), dims),
            Value::Other(_) => return Err(argument("the OrtValue is not a tensor")),
            Value::Strings(strings) => {
                let strings = strings.lock().unwrap_or_else(PoisonError::into_inner);
                rank.set(strings.dims.len())?;
                dims.set(strings.dims.as_ptr())?;
                return element.set(to_number(DataType::String));
            }
        };
        rank.set(found.len())?;
        dims.set(found.as_ptr())?;
        element.set(to_number(data_type))
    })
}

pub(crate) extern "C" fn get_type_info(
    value: Handle<Value>,
    out: Out<*mut TypeInfo>,
) -> StatusPointer {
    answer("GetTypeInfo", || {
        let out = out.demand()?;
        out.set(give(value.get()?.type_info()?))
    })
}

pub(crate) extern "C" fn get_value_type(value: Handle<Value>, out: Out<c_int>) -> StatusPointer {
    answer("GetValueType", || out.set(value.get()?.kind()))
}

pub(crate) extern "C" fn get_tensor_memory_info(
    value: Handle<Value>,
    out: Out<*const MemoryInfo>,
) -> StatusPointer {
    answer("GetTensorMemoryInfo", || {
        value.get()?;
        out.set(CPU.pointer())
    })
}

pub(crate) extern "C" fn get_value(
    value: Handle<Value>,
    index: c_int,
    _allocator: AllocatorHandle,
    out: Out<*mut Value>,
) -> StatusPointer {
    answer("GetValue", || {
        let out = out.demand()?;
        let index = usize::try_from(index).map_err(|_| argument("the index is negative"))?;
        out.set(give_boxed(value.get()?.part(index)?))
    })
}

pub(crate) extern "C" fn get_value_count(value: Handle<Value>, out: Out<usize>) -> StatusPointer {
    answer("GetValueCount", || out.set(value.get()?.count_parts()?))
}

pub(crate) extern "C" fn create_value(
    values: Array<Handle<Value>>,
    count: usize,
    wanted: c_int,
    out: Out<*mut Value>,
) -> StatusPointer {
    answer("CreateValue", || {
        let out = out.demand()?;
        let values = values.read(count, "values")?.iter();
        let values: Result<Vec<EngineValue>, Error> =
            values.map(|value| value.get()?.to_engine()).collect();
        let value = match (wanted, values?) {
            (kind::SEQUENCE, values) => EngineValue::Sequence(make_sequence(values)?),
            (kind::MAP, values) => {
                let Ok([EngineValue::Tensor(keys), EngineValue::Tensor(values)]) =
                    <[EngineValue; 2]>::try_from(values)
                else {
                    return Err(argument("a map is made of two tensors: its keys and its values"));
                };
                let map: Map = crate::maps::make(&keys, &values)?;
                EngineValue::Map(map)
            }
            _ => return Err(argument(format!("no value of the kind {wanted} is made of others"))),
        };
        out.set(give_boxed(Value::from_engine(value)?))
    })
}

fn make_sequence(values: Vec<EngineValue>) -> Result<Sequence, Error> {
    let first = values.first().map(EngineValue::value_type);
    let first = first.ok_or_else(|| argument("a sequence of no values has no type"))?;
    let mut sequence = Sequence::new(first);
    for value in values {
        sequence.push(value).map_err(of_tensor)?;
    }
    Ok(sequence)
}

/// Copies tensors to others of the same type and shape.
pub(crate) extern "C" fn copy_tensors(
    env: Handle<crate::environment::Environment>,
    from: Array<Handle<Value>>,
    to: Array<Handle<Value>>,
    stream: *mut c_void,
    count: usize,
) -> StatusPointer {
    answer("CopyTensors", || {
        env.get()?;
        if !stream.is_null() {
            return Err(sardonyx_ort::refused::find("stream", &[]).unwrap_or_else(|| {
                Error::new(Code::NotImplemented, ErrorKind::Unsupported, "there are no streams")
            }));
        }
        let pairs = from.read(count, "tensors")?.iter().zip(to.read(count, "tensors")?);
        for (from, to) in pairs {
            to.get()?.copy_from(&from.get()?.to_engine()?)?;
        }
        Ok(())
    })
}

pub(crate) extern "C" fn release_value(value: Handle<Value>) {
    release("ReleaseValue", value);
}

/// Wraps a value for an input that may be missing.
pub(crate) fn fit_to_input(value: EngineValue, ty: Option<&Type>) -> EngineValue {
    match (ty, value) {
        (Some(Type::Optional(_)), value @ EngineValue::Optional(..)) => value,
        (Some(Type::Optional(_)), value) => EngineValue::some(value),
        (_, value) => value,
    }
}

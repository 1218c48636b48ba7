//! Conversion of Python inputs to values.
//!
//! A contiguous array is read in place, unless it is small; all other objects are copied.

use std::fmt;
use std::sync::Arc;

use pyo3::PyErr;
use pyo3::buffer::PyUntypedBuffer;
use pyo3::exceptions::PyException;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::{
    PyBytes, PyComplex, PyDict, PyFloat, PyInt, PyList, PyMapping, PyMemoryView, PyString, PyTuple,
    PyType,
};
use sardonyx::tool::Class;
use sardonyx::value::{Buffer, Map, MapKey, Sequence, Sparse, TensorError};
use sardonyx::{DataType, Dim, Port, Tensor, Type, Value, ValueType};

use super::elements::{self, Format};
use super::errors::input_error;
use super::lists;
use super::memory::BorrowedBuffer;
use super::memory::PyTensor;
use super::memory::dlpack;
use super::memory::numpy::SmallArray;

/// Size in bytes up to which arrays are copied: keeping a buffer borrowed takes longer than the
/// copy.
pub(crate) const COPIED_BYTES: usize = 1 << 14;

/// Greatest nesting depth of lists and dicts, and so the greatest rank of a tensor given as lists.
pub(crate) const MOST_NESTED: usize = 64;

/// Converter of Python inputs to values. Keeps the buffers that the values borrow until the
/// converter is dropped, which must happen with the GIL held.
#[derive(Default)]
pub(crate) struct InputConverter {
    /// Borrowed buffers of the values that were read in place.
    lent: Vec<Arc<BorrowedBuffer>>,
    /// Whether large arrays are copied too.
    copies_all: bool,
}

/// Name of an argument of a call, or of a value inside an argument, for messages. Formatted only
/// when a message is made.
pub(crate) enum ValueName<'w> {
    /// Value of the input with this name.
    Input(&'w str),
    /// Item of a list: its index and the name of the list.
    Item(usize, &'w ValueName<'w>),
    /// Value in a dict: its key and the name of the dict.
    ValueOf(String, &'w ValueName<'w>),
    /// Any other value, described by a noun phrase.
    Other(&'static str),
}

impl fmt::Display for ValueName<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ValueName::Input(name) => write!(f, "the input '{name}'"),
            ValueName::Item(index, of) => write!(f, "item {index} of {of}"),
            ValueName::ValueOf(key, of) => write!(f, "the value of {key} in {of}"),
            ValueName::Other(name) => f.write_str(name),
        }
    }
}

impl InputConverter {
    /// Makes a converter that copies all arrays, for values that outlive the run.
    pub(crate) fn with_copies() -> InputConverter {
        InputConverter { copies_all: true, ..InputConverter::default() }
    }

    /// Whether no converted value borrows a buffer.
    pub(crate) fn has_copies_only(&self) -> bool {
        self.lent.is_empty()
    }

    /// Converts a Python argument to the value of an input. Returns `None` for a Python None that
    /// omits an input which is not of an optional type.
    ///
    /// # Errors
    ///
    /// The errors of [`InputConverter::convert_value`].
    pub(crate) fn convert_argument(
        &mut self,
        object: &Bound<'_, PyAny>,
        port: &Port,
    ) -> Result<Option<Value>, PyErr> {
        if object.is_none() && !matches!(port.ty(), Some(Type::Optional(_))) {
            return Ok(None);
        }
        self.convert_value(object, port).map(Some)
    }

    /// Converts a Python argument to the type that the model declares for the input.
    ///
    /// # Errors
    ///
    /// `sardonyx.Error` if the object does not match the type; exceptions of the object's methods.
    pub(crate) fn convert_value(
        &mut self,
        object: &Bound<'_, PyAny>,
        port: &Port,
    ) -> Result<Value, PyErr> {
        self.convert_nested(object, port.ty(), &ValueName::Input(port.name()), 0)
    }

    /// Converts an object inside `depth` lists, dicts or optionals to type `ty`; for `None`, to a
    /// tensor of the object's own element type.
    fn convert_nested(
        &mut self,
        object: &Bound<'_, PyAny>,
        ty: Option<&Type>,
        what: &ValueName<'_>,
        depth: usize,
    ) -> Result<Value, PyErr> {
        let py = object.py();
        if depth > MOST_NESTED {
            return Err(input_error(py, format!("{what} is nested more than {MOST_NESTED} deep")));
        }
        match ty {
            Some(Type::Optional(inner)) if object.is_none() => {
                let element = inner.value_type_or(Some(DataType::Float));
                let element = element.unwrap_or(ValueType::Tensor(DataType::Float));
                Ok(Value::none(element))
            }
            Some(Type::Optional(inner)) => {
                Ok(Value::some(self.convert_nested(object, Some(inner), what, depth + 1)?))
            }
            Some(Type::Sequence(inner)) => self.convert_sequence(object, inner, what, depth),
            Some(Type::Map(key, inner)) => self.convert_map(object, *key, inner, what, depth),
            Some(Type::Opaque { .. }) => Err(input_error(
                py,
                format!("{what} has an opaque type, which Python cannot create"),
            )),
            Some(Type::SparseTensor(tensor)) if object.hasattr("indices")? => {
                self.convert_sparse(object, tensor.elem, what)
            }
            Some(Type::Tensor(tensor) | Type::SparseTensor(tensor)) => {
                Ok(self.convert_tensor(object, tensor.elem, what)?.into())
            }
            None => Ok(self.convert_tensor(object, None, what)?.into()),
        }
    }

    /// Converts a `sardonyx.SparseTensor`, or any object with `values`, `indices` and `shape`.
    fn convert_sparse(
        &mut self,
        object: &Bound<'_, PyAny>,
        elem: Option<DataType>,
        what: &ValueName<'_>,
    ) -> Result<Value, PyErr> {
        let values = self.convert_tensor(&object.getattr("values")?, elem, what)?;
        let indices =
            self.convert_tensor(&object.getattr("indices")?, Some(DataType::Int64), what)?;
        let dims = read_dims(&object.getattr("shape")?, what)?;
        let made = Sparse::new(dims, values, indices);
        made.map(Value::from).map_err(|error| tensor_error(object.py(), what, &error))
    }

    /// Converts a list or tuple to a sequence of values of type `inner`.
    fn convert_sequence(
        &mut self,
        object: &Bound<'_, PyAny>,
        inner: &Type,
        what: &ValueName<'_>,
        depth: usize,
    ) -> Result<Value, PyErr> {
        let py = object.py();
        if !object.is_instance_of::<PyList>() && !object.is_instance_of::<PyTuple>() {
            let found = describe_class(object);
            return Err(input_error(
                py,
                format!("{what} is {found}, which is not a list or a tuple"),
            ));
        }
        let mut items = Vec::new();
        for item in object.try_iter()? {
            let name = ValueName::Item(items.len(), what);
            items.push(self.convert_nested(&item?, Some(inner), &name, depth + 1)?);
        }
        let element = match items.first() {
            Some(item) => item.value_type(),
            None => inner.value_type_or(Some(DataType::Float)).ok_or_else(|| {
                input_error(py, format!("{what} is a list with an unknown element type"))
            })?,
        };
        let mut sequence = Sequence::new(element);
        for item in items {
            sequence.push(item).map_err(|error| tensor_error(py, what, &error))?;
        }
        Ok(sequence.into())
    }

    /// Converts a dict to a map of values of type `inner`.
    fn convert_map(
        &mut self,
        object: &Bound<'_, PyAny>,
        key_type: DataType,
        inner: &Type,
        what: &ValueName<'_>,
        depth: usize,
    ) -> Result<Value, PyErr> {
        let py = object.py();
        let Ok(mapping) = object.cast::<PyMapping>() else {
            let found = describe_class(object);
            return Err(input_error(py, format!("{what} is {found}, which is not a dict")));
        };
        let mut entries = Vec::new();
        for pair in mapping.items()?.iter() {
            let (key, value): (Bound<'_, PyAny>, Bound<'_, PyAny>) = pair.extract()?;
            let name = ValueName::ValueOf(shorten_repr(&key), what);
            let value = self.convert_nested(&value, Some(inner), &name, depth + 1)?;
            entries
                .push((convert_map_key(&key, key_type, what)?, reshape_to_declared(value, inner)));
        }
        let element = match entries.first() {
            Some((_, value)) => value.value_type(),
            None => inner.value_type_or(Some(DataType::Float)).ok_or_else(|| {
                input_error(py, format!("{what} is a dict with an unknown value type"))
            })?,
        };
        let failed = |error: TensorError| tensor_error(py, what, &error);
        let mut map = Map::new(key_type, element).map_err(failed)?;
        for (key, value) in entries {
            map.push(key, value).map_err(failed)?;
        }
        Ok(map.into())
    }

    /// Converts an array, an object with the buffer protocol or DLPack, a number, a string, or
    /// nested lists to a tensor. `elem` is the element type of numbers in lists; `None` derives it
    /// from the first one.
    ///
    /// # Errors
    ///
    /// `sardonyx.Error` if the object is none of these, or has elements that ONNX has no type for;
    /// exceptions of the object's methods.
    pub(crate) fn convert_tensor(
        &mut self,
        object: &Bound<'_, PyAny>,
        elem: Option<DataType>,
        what: &ValueName<'_>,
    ) -> Result<Tensor, PyErr> {
        if let Some(SmallArray { data_type, dims, bytes }) = super::arrays::read_small(object) {
            // `Vec` aligns enough for every type and is cheaper than cache line alignment.
            let copy = Buffer::from_vec(bytes.to_vec());
            return Tensor::from_buffer(data_type, dims, copy)
                .map_err(|error| tensor_error(object.py(), what, &error));
        }
        if let Ok(tensor) = object.cast_exact::<PyTensor>() {
            return tensor.get().copy().map_err(|error| tensor_error(object.py(), what, &error));
        }
        let is_text = elem == Some(DataType::String);
        let is_plain = object.is_none()
            || object.is_instance_of::<PyList>()
            || object.is_instance_of::<PyTuple>()
            || object.is_instance_of::<PyFloat>()
            || object.is_instance_of::<PyInt>()
            || object.is_instance_of::<PyComplex>()
            || object.is_instance_of::<PyString>()
            || is_text && object.is_instance_of::<PyBytes>();
        if is_plain {
            return lists::tensor_from_lists(object, elem, what);
        }
        match PyUntypedBuffer::get(object) {
            Ok(buffer) => self.convert_buffer(object, buffer, elem, what),
            Err(_) => self.convert_array(object, elem, what),
        }
    }

    /// Converts an object that exports `buffer`: borrows large contiguous elements, copies all
    /// others.
    fn convert_buffer(
        &mut self,
        object: &Bound<'_, PyAny>,
        buffer: PyUntypedBuffer,
        elem: Option<DataType>,
        what: &ValueName<'_>,
    ) -> Result<Tensor, PyErr> {
        let py = object.py();
        let format = elements::parse_format(buffer.format().to_bytes(), buffer.item_size());
        let (data_type, is_swapped) = match format {
            Some(Format::Numbers(data_type, is_swapped)) => (data_type, is_swapped),
            Some(Format::Objects) => {
                drop(buffer);
                return lists::tensor_from_objects(object, elem, what);
            }
            None => {
                let format = buffer.format().to_string_lossy().into_owned();
                let what = format!(
                    "{what} has elements of the format '{format}', which is not an ONNX type"
                );
                return Err(input_error(py, what));
            }
        };
        let failed = |error: TensorError| tensor_error(py, what, &error);
        let lent = match BorrowedBuffer::new(buffer) {
            Ok(lent) if !is_swapped => lent,
            _ => return gather_elements(object, data_type, is_swapped, what),
        };
        let dims = lent.dims();
        let bytes = lent.as_ref();
        if bytes.len() <= COPIED_BYTES {
            // `Vec` aligns enough for every type and is cheaper than cache line alignment.
            let copy = Buffer::from_vec(bytes.to_vec());
            return Tensor::from_buffer(data_type, dims, copy).map_err(failed);
        }
        if self.copies_all {
            let copy = Buffer::copy_of(bytes);
            return copy
                .and_then(|copy| Tensor::from_buffer(data_type, dims, copy))
                .map_err(failed);
        }
        let lent = Arc::new(lent);
        self.lent.push(lent.clone());
        Tensor::from_buffer(data_type, lent.dims(), Buffer::from_shared(lent.clone()))
            .map_err(failed)
    }

    /// Converts an array that does not export a typed buffer of its elements: one of rank 0, of an
    /// ml_dtypes type, or of another library.
    fn convert_array(
        &mut self,
        object: &Bound<'_, PyAny>,
        elem: Option<DataType>,
        what: &ValueName<'_>,
    ) -> Result<Tensor, PyErr> {
        let py = object.py();
        if let Ok(memory) = PyMemoryView::from(object) {
            let format: String = memory.getattr("format")?.extract()?;
            let itemsize: usize = memory.getattr("itemsize")?.extract()?;
            return match elements::parse_format(format.as_bytes(), itemsize) {
                Some(Format::Numbers(data_type, swapped)) => {
                    gather_elements(object, data_type, swapped, what)
                }
                Some(Format::Objects) => lists::tensor_from_objects(object, elem, what),
                None => {
                    let what = format!(
                        "{what} has elements of the format '{format}', which is not an ONNX type"
                    );
                    Err(input_error(py, what))
                }
            };
        }
        if let Some(tensor) = super::arrays::tensor_from_ml_dtypes(object, what)? {
            return Ok(tensor);
        }
        if !object.is_instance_of::<PyType>()
            && let Some(tensor) = dlpack::import_tensor(object, what)?
        {
            return Ok(tensor);
        }
        let array = super::arrays::as_array(object);
        let array = array.map_err(|error| no_array_error(object, error, what))?;
        let Some(array) = array else {
            let found = describe_class(object);
            let wanted = elem.map_or("numbers", DataType::name);
            return Err(input_error(
                py,
                format!("{what} is {found}, which is not an array, a list or a number of {wanted}"),
            ));
        };
        match PyUntypedBuffer::get(&array) {
            Ok(buffer) => self.convert_buffer(&array, buffer, elem, what),
            Err(_) => match super::arrays::tensor_from_ml_dtypes(&array, what)? {
                Some(tensor) => Ok(tensor),
                None if PyMemoryView::from(&array).is_ok() => {
                    self.convert_array(&array, elem, what)
                }
                None => Err(input_error(
                    py,
                    format!(
                        "{what} is an array of {}, which is not an ONNX type",
                        shorten_repr(&array.getattr("dtype")?)
                    ),
                )),
            },
        }
    }
}

/// Reads a shape: any iterable of ints.
///
/// Does not extract a `Vec`, which would reserve memory for the length that the object claims: a
/// false `__len__` would panic or abort the process.
///
/// # Errors
///
/// `sardonyx.Error` if there are more than [`MOST_NESTED`] dimensions; `TypeError` or
/// `OverflowError` for an object that is not a shape; exceptions of the object's methods.
pub(crate) fn read_dims(
    shape: &Bound<'_, PyAny>,
    what: &ValueName<'_>,
) -> Result<Vec<usize>, PyErr> {
    let mut dims = Vec::new();
    for size in shape.try_iter()? {
        if dims.len() == MOST_NESTED {
            let what = format!("{what} has a shape of more than {MOST_NESTED} dimensions");
            return Err(input_error(shape.py(), what));
        }
        dims.push(size?.extract()?);
    }
    Ok(dims)
}

/// Returns a mapping of inputs by name as a dict.
///
/// # Errors
///
/// `sardonyx.Error` if the object is not a mapping.
pub(crate) fn as_dict<'py>(inputs: &Bound<'py, PyAny>) -> Result<Bound<'py, PyDict>, PyErr> {
    if let Ok(dict) = inputs.cast::<PyDict>() {
        return Ok(dict.clone());
    }
    let Ok(mapping) = inputs.cast::<PyMapping>() else {
        let found = describe_class(inputs);
        let what = format!("the inputs are {found}, which is not a dict of names and values");
        return Err(input_error(inputs.py(), what));
    };
    let dict = PyDict::new(inputs.py());
    dict.update(mapping)?;
    Ok(dict)
}

/// Copies the elements of a buffer that are not contiguous, or not in the byte order of this
/// machine, to a contiguous tensor.
fn gather_elements(
    object: &Bound<'_, PyAny>,
    data_type: DataType,
    is_swapped: bool,
    what: &ValueName<'_>,
) -> Result<Tensor, PyErr> {
    let py = object.py();
    let memory = PyMemoryView::from(object)?;
    let dims: Vec<usize> = memory.getattr("shape")?.extract()?;
    let bytes: PyBackedBytes = memory.call_method1("tobytes", ("C",))?.extract()?;
    let failed = |error: TensorError| tensor_error(py, what, &error);
    let mut copy = Buffer::copy_of(&bytes).map_err(failed)?;
    if is_swapped {
        sardonyx::tool::swap_bytes(data_type, copy.make_mut().map_err(failed)?).map_err(failed)?;
    }
    Tensor::from_buffer(data_type, dims, copy).map_err(failed)
}

/// Reshapes a number in a map to the declared shape of ones, such as `[1]`: some converters declare
/// the values of a map that way.
fn reshape_to_declared(value: Value, declared: &Type) -> Value {
    let (Value::Tensor(number), Type::Tensor(wanted)) = (&value, declared) else {
        return value;
    };
    let Some(shape) = wanted.shape.as_ref().filter(|_| number.dims().is_empty()) else {
        return value;
    };
    if shape.iter().any(|size| *size != Dim::Known(1)) {
        return value;
    }
    number.reshape(vec![1; shape.len()]).map_or(value, Value::from)
}

/// Converts a dict key to a map key of the declared type.
fn convert_map_key(
    key: &Bound<'_, PyAny>,
    key_type: DataType,
    what: &ValueName<'_>,
) -> Result<MapKey, PyErr> {
    let made = match key_type.class() {
        Class::String => lists::extract_text_bytes(key).map(|text| MapKey::String(text.into())),
        Class::Signed => key.extract().ok().map(MapKey::Signed),
        _ => key.extract().ok().map(MapKey::Unsigned),
    };
    made.ok_or_else(|| {
        let found = shorten_repr(key);
        input_error(key.py(), format!("the key {found} of {what} is not of type {key_type}"))
    })
}

/// Makes the exception for an object whose array methods raise `error`, which becomes its cause.
pub(crate) fn no_array_error(
    object: &Bound<'_, PyAny>,
    error: PyErr,
    what: &ValueName<'_>,
) -> PyErr {
    let py = object.py();
    // `KeyboardInterrupt` and `SystemExit` are not the fault of the object.
    if !error.is_instance_of::<PyException>(py) {
        return error;
    }
    let found = describe_class(object);
    let refusal = input_error(
        py,
        format!("{what} is {found}, which cannot be converted to an array: {}", error.value(py)),
    );
    refusal.set_cause(py, Some(error));
    refusal
}

/// Makes the exception for a value from which no tensor can be made.
pub(crate) fn tensor_error(py: Python<'_>, what: &ValueName<'_>, error: &TensorError) -> PyErr {
    input_error(py, format!("{what}: {error}"))
}

/// Describes the class of an object for messages: "a str", "None", "an object of the class x.Y".
pub(crate) fn describe_class(object: &Bound<'_, PyAny>) -> String {
    if object.is_none() {
        return "None".to_string();
    }
    let ty = object.get_type();
    let is_builtin = ty.module().is_ok_and(|module| module == "builtins");
    match if is_builtin { ty.qualname() } else { ty.fully_qualified_name() } {
        Ok(name) if name == "int" || name == "object" => format!("an {name}"),
        Ok(name) if is_builtin => format!("a {name}"),
        Ok(name) => format!("an object of the class {name}"),
        Err(_) => "an object of an unknown class".to_string(),
    }
}

/// Formats an object for messages: its `repr`, cut to 60 characters.
pub(crate) fn shorten_repr(object: &Bound<'_, PyAny>) -> String {
    let text = object.repr().map_or_else(|_| "?".to_string(), |text| text.to_string());
    if text.chars().count() <= 60 { text } else { text.chars().take(59).chain(['…']).collect() }
}

//! Conversion of nested lists, and of arrays of Python objects, to tensors.

use pyo3::PyErr;
use pyo3::exceptions::PyOverflowError;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes, PyComplex, PyFloat, PyInt, PyList, PyString, PyTuple};
use sardonyx::tool::{CastOptions, Class, cast};
use sardonyx::value::{Complex128, StringArray, TensorError};
use sardonyx::{DataType, ErrorKind, Tensor};

use super::errors::{input_error, new_error};
use super::take::{MOST_NESTED, ValueName, describe_class, read_dims, shorten_repr, tensor_error};

/// Greatest number of elements of an array inside a list. Such arrays are converted element by
/// element, which is slow and takes much memory.
const MOST_IN_LISTS: u64 = 1 << 24;

/// Elements of a list, in the widest type of their class: `f64`, `i64` and so on.
enum Elements {
    Floats(Vec<f64>),
    Signed(Vec<i64>),
    Unsigned(Vec<u64>),
    Bools(Vec<bool>),
    Complex(Vec<Complex128>),
    Strings(StringArray),
}

/// State of the conversion of one nested list.
struct Reader<'w> {
    /// Name of the converted list in messages.
    what: &'w ValueName<'w>,
    /// Element type of the result; `None` derives it from the first element.
    elem: Option<DataType>,
    /// Dimensions of the tensor: the length of the first list of each nesting level.
    dims: Vec<usize>,
    /// Elements read so far; `None` before the first one.
    elements: Option<Elements>,
}

/// Converts a number, a string or nested lists to a tensor, with one dimension per level.
///
/// # Errors
///
/// `sardonyx.Error` if lists of one level differ in length, or an element does not have type
/// `elem`.
pub(crate) fn tensor_from_lists(
    object: &Bound<'_, PyAny>,
    elem: Option<DataType>,
    what: &ValueName<'_>,
) -> Result<Tensor, PyErr> {
    let mut reader = Reader { what, elem, dims: Vec::new(), elements: None };
    reader.find_dims(object)?;
    reader.read(object, 0)?;
    reader.finish(object.py())
}

/// Converts an array of strings or Python objects to a tensor of strings.
///
/// # Errors
///
/// `sardonyx.Error` if the model expects another type, or the object has no `shape`.
pub(crate) fn tensor_from_objects(
    array: &Bound<'_, PyAny>,
    elem: Option<DataType>,
    what: &ValueName<'_>,
) -> Result<Tensor, PyErr> {
    let py = array.py();
    let Some(shape) = array.getattr_opt("shape")? else {
        let found = describe_class(array);
        return Err(input_error(py, format!("{what} is {found}, whose elements are not numbers")));
    };
    let dims = read_dims(&shape, what)?;
    if elem.is_some_and(|elem| elem != DataType::String) {
        let wanted = elem.map_or("", DataType::name);
        let found = shorten_repr(&array.getattr("dtype")?);
        return Err(input_error(
            py,
            format!("{what} has elements of {found}, but the model expects {wanted}"),
        ));
    }
    let flat = array.call_method1("reshape", (-1,))?.call_method0("tolist")?;
    let mut strings = StringArray::new();
    for item in flat.try_iter()? {
        strings.push(convert_to_text(&item?)?);
    }
    Tensor::from_strings(dims, strings).map_err(|error| tensor_error(py, what, &error))
}

/// Returns the bytes of a `bytes` object, or of a str in UTF-8; `None` for other objects.
pub(crate) fn extract_text_bytes(object: &Bound<'_, PyAny>) -> Option<Vec<u8>> {
    if let Ok(bytes) = object.cast::<PyBytes>() {
        return Some(bytes.as_bytes().to_vec());
    }
    let text = object.cast::<PyString>().ok()?;
    if let Ok(text) = text.to_str() {
        return Some(text.as_bytes().to_vec());
    }
    // Surrogates stand for bytes that are not UTF-8; `tensor::to_str` makes them.
    let bytes = text.call_method1("encode", ("utf-8", "surrogateescape")).ok()?;
    Some(bytes.cast::<PyBytes>().ok()?.as_bytes().to_vec())
}

/// Converts an element to bytes of text: any object but str and bytes by `str()`, because columns
/// of tables mix strings with numbers.
fn convert_to_text(object: &Bound<'_, PyAny>) -> Result<Vec<u8>, PyErr> {
    match extract_text_bytes(object) {
        Some(text) => Ok(text),
        None => Ok(object.str()?.to_string_lossy().into_owned().into_bytes()),
    }
}

/// Whether the object is a list or a tuple.
fn is_list(object: &Bound<'_, PyAny>) -> bool {
    object.is_instance_of::<PyList>() || object.is_instance_of::<PyTuple>()
}

/// Converts an array inside a list to nested lists, and a numpy scalar to a Python number; returns
/// other objects unchanged.
///
/// # Errors
///
/// `sardonyx.Error` for an array of more than [`MOST_IN_LISTS`] elements.
fn as_lists<'py>(
    object: &Bound<'py, PyAny>,
    what: &ValueName<'_>,
) -> Result<Bound<'py, PyAny>, PyErr> {
    let is_plain = is_list(object)
        || object.is_instance_of::<PyFloat>()
        || object.is_instance_of::<PyInt>()
        || object.is_instance_of::<PyString>();
    if is_plain {
        return Ok(object.clone());
    }
    let Some(to_list) = object.getattr_opt("tolist")? else { return Ok(object.clone()) };
    let size = object.getattr_opt("size")?.and_then(|size| size.extract::<u64>().ok());
    if let Some(size) = size.filter(|size| *size > MOST_IN_LISTS) {
        let what = format!("{what} is a list that contains an array of {size} elements");
        return Err(new_error(
            object.py(),
            ErrorKind::Input,
            what,
            Some("pass one array instead of the list"),
        ));
    }
    to_list.call0()
}

impl Reader<'_> {
    /// Determines the tensor dimensions from the length of the first list of each nesting level.
    fn find_dims(&mut self, object: &Bound<'_, PyAny>) -> Result<(), PyErr> {
        let mut first = as_lists(object, self.what)?;
        while is_list(&first) {
            if self.dims.len() == MOST_NESTED {
                let what = format!("{} is nested more than {MOST_NESTED} deep", self.what);
                return Err(input_error(object.py(), what));
            }
            let len = first.len()?;
            self.dims.push(len);
            if len == 0 {
                break;
            }
            first = as_lists(&first.get_item(0)?, self.what)?;
        }
        Ok(())
    }

    /// Reads the elements of `object`, which must be lists of the lengths `dims[axis..]`.
    fn read(&mut self, object: &Bound<'_, PyAny>, axis: usize) -> Result<(), PyErr> {
        let py = object.py();
        let object = as_lists(object, self.what)?;
        let Some(len) = self.dims.get(axis).copied() else {
            if is_list(&object) {
                return Err(self.ragged_error(py));
            }
            return self.read_element(&object);
        };
        if !is_list(&object) || object.len()? != len {
            return Err(self.ragged_error(py));
        }
        for item in object.try_iter()? {
            self.read(&item?, axis + 1)?;
        }
        Ok(())
    }

    /// Makes the exception for lists of different length or depth.
    fn ragged_error(&self, py: Python<'_>) -> PyErr {
        let Reader { what, dims, .. } = self;
        input_error(
            py,
            format!(
                "{what} has lists that differ in length or depth; the first ones have the lengths {dims:?}"
            ),
        )
    }

    /// Appends an element to the elements read so far. The first element decides the class, such as
    /// float, if the model declares no type.
    fn read_element(&mut self, object: &Bound<'_, PyAny>) -> Result<(), PyErr> {
        if self.elements.is_none() {
            self.elements = Some(self.start_elements(object)?);
        }
        let is_known = self.elem.is_some();
        let added = match &mut self.elements {
            Some(Elements::Floats(all)) => to_float(object)?.map(|number| all.push(number)),
            Some(Elements::Signed(all)) => to_int(object)?.map(|number| all.push(number)),
            Some(Elements::Unsigned(all)) => to_int(object)?.map(|number| all.push(number)),
            Some(Elements::Bools(all)) => to_bool(object).map(|truth| all.push(truth)),
            Some(Elements::Complex(all)) => to_complex(object)?.map(|number| all.push(number)),
            Some(Elements::Strings(all)) if is_known => {
                all.push(convert_to_text(object)?);
                Some(())
            }
            Some(Elements::Strings(all)) => extract_text_bytes(object).map(|text| all.push(text)),
            None => None,
        };
        added.ok_or_else(|| self.element_error(object))
    }

    /// Creates empty elements for the class of the declared type, or else of the first element
    /// `object`.
    fn start_elements(&self, object: &Bound<'_, PyAny>) -> Result<Elements, PyErr> {
        Ok(match self.elem.map(DataType::class) {
            Some(Class::Float) => Elements::Floats(Vec::new()),
            Some(Class::Signed) => Elements::Signed(Vec::new()),
            Some(Class::Unsigned) => Elements::Unsigned(Vec::new()),
            Some(Class::Bool) => Elements::Bools(Vec::new()),
            Some(Class::Complex) => Elements::Complex(Vec::new()),
            Some(Class::String) => Elements::Strings(StringArray::new()),
            None if object.is_instance_of::<PyBool>() => Elements::Bools(Vec::new()),
            None if object.is_instance_of::<PyInt>() => Elements::Signed(Vec::new()),
            None if object.is_instance_of::<PyFloat>() => Elements::Floats(Vec::new()),
            None if object.is_instance_of::<PyComplex>() => Elements::Complex(Vec::new()),
            None if extract_text_bytes(object).is_some() => Elements::Strings(StringArray::new()),
            None => return Err(self.element_error(object)),
        })
    }

    /// Makes the exception for an element of the wrong type.
    fn element_error(&self, object: &Bound<'_, PyAny>) -> PyErr {
        let is_number = object.is_instance_of::<PyInt>() || object.is_instance_of::<PyFloat>();
        let found = if is_number { shorten_repr(object) } else { describe_class(object) };
        let what = self.what;
        let said = match self.elem {
            Some(elem) => format!("{what} contains {found}, which does not have type {elem}"),
            None => {
                format!("{what} contains {found}, which has another type than the first element")
            }
        };
        input_error(object.py(), said)
    }

    /// Casts the elements to the declared type and makes the tensor.
    fn finish(self, py: Python<'_>) -> Result<Tensor, PyErr> {
        let Reader { what, elem, dims, elements } = self;
        let failed = |error: TensorError| tensor_error(py, what, &error);
        let Some(elements) = elements else {
            return Tensor::zeros(elem.unwrap_or(DataType::Float), dims).map_err(failed);
        };
        let wide = match elements {
            Elements::Floats(all) => Tensor::from_vec(dims, all),
            Elements::Signed(all) => {
                check_range(py, what, elem, all.iter().map(|number| i128::from(*number)))?;
                Tensor::from_vec(dims, all)
            }
            Elements::Unsigned(all) => {
                check_range(py, what, elem, all.iter().map(|number| i128::from(*number)))?;
                Tensor::from_vec(dims, all)
            }
            Elements::Bools(all) => Tensor::from_bools(dims, &all),
            Elements::Complex(all) => Tensor::from_vec(dims, all),
            Elements::Strings(all) => Tensor::from_strings(dims, all),
        };
        let wide = wide.map_err(failed)?;
        let to = elem.unwrap_or(wide.data_type());
        cast(&wide, to, CastOptions::default()).map_err(failed)
    }
}

/// Checks that integers fit in the declared type, because a cast would wrap them around.
fn check_range(
    py: Python<'_>,
    what: &ValueName<'_>,
    elem: Option<DataType>,
    mut numbers: impl Iterator<Item = i128>,
) -> Result<(), PyErr> {
    let Some((elem, bits)) = elem.and_then(|elem| Some((elem, elem.bits()?))) else {
        return Ok(());
    };
    let range = if elem.is_signed() {
        -(1i128 << (bits - 1))..1i128 << (bits - 1)
    } else {
        0..1i128 << bits
    };
    match numbers.find(|number| !range.contains(number)) {
        Some(number) => Err(input_error(
            py,
            format!("{what} contains {number}, which is out of range for {elem}"),
        )),
        None => Ok(()),
    }
}

/// Converts a Python float or int to an `f64`; `None` for other objects and for an int that is too
/// large.
fn to_float(object: &Bound<'_, PyAny>) -> Result<Option<f64>, PyErr> {
    if !object.is_instance_of::<PyFloat>() && !object.is_instance_of::<PyInt>() {
        return Ok(None);
    }
    ignore_overflow(object.extract())
}

/// Converts a Python int to an integer of type `T`; `None` for other objects and for an int that is
/// too large.
fn to_int<'py, T>(object: &Bound<'py, PyAny>) -> Result<Option<T>, PyErr>
where
    T: for<'a> FromPyObject<'a, 'py, Error = PyErr>,
{
    if !object.is_instance_of::<PyInt>() {
        return Ok(None);
    }
    ignore_overflow(object.extract())
}

/// Turns an `OverflowError` into `None`.
fn ignore_overflow<T>(extracted: Result<T, PyErr>) -> Result<Option<T>, PyErr> {
    match extracted {
        Ok(number) => Ok(Some(number)),
        Err(error) => {
            let is_too_large = Python::attach(|py| error.is_instance_of::<PyOverflowError>(py));
            if is_too_large { Ok(None) } else { Err(error) }
        }
    }
}

/// Converts 0, 1 or a bool to a bool; `None` for other objects.
fn to_bool(object: &Bound<'_, PyAny>) -> Option<bool> {
    match object.extract::<i64>() {
        Ok(0) => Some(false),
        Ok(1) => Some(true),
        _ => object.extract().ok(),
    }
}

/// Converts a number to a complex number; `None` for other objects.
fn to_complex(object: &Bound<'_, PyAny>) -> Result<Option<Complex128>, PyErr> {
    if let Ok(number) = object.cast::<PyComplex>() {
        return Ok(Some(Complex128 {
            re: number.getattr("real")?.extract()?,
            im: number.getattr("imag")?.extract()?,
        }));
    }
    Ok(to_float(object)?.map(|re| Complex128 { re, im: 0.0 }))
}

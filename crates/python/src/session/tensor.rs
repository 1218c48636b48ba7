//! Conversion of tensor elements to Python objects.

use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes, PyComplex, PyList, PyString};
use pyo3::{IntoPyObjectExt, PyErr};
use sardonyx::tool::{CastOptions, Class, cast};
use sardonyx::value::{Complex128, TensorError};
use sardonyx::{DataType, Tensor};

use super::take::{ValueName, tensor_error};

/// Converts bytes to a str. Bytes that are not UTF-8 become surrogates (`surrogateescape`), which
/// convert back to the same bytes.
pub(crate) fn to_str<'py>(py: Python<'py>, bytes: &[u8]) -> Result<Bound<'py, PyAny>, PyErr> {
    match std::str::from_utf8(bytes) {
        Ok(text) => Ok(PyString::new(py, text).into_any()),
        Err(_) => PyBytes::new(py, bytes).call_method1("decode", ("utf-8", "surrogateescape")),
    }
}

/// Converts a tensor to nested lists, one level per dimension; a tensor without dimensions to its
/// element.
pub(crate) fn to_lists<'py>(py: Python<'py>, tensor: &Tensor) -> Result<Bound<'py, PyAny>, PyErr> {
    let mut level = to_objects(py, tensor)?;
    let dims = tensor.dims();
    for (axis, dim) in dims.iter().enumerate().rev() {
        let count = dims[..axis].iter().product();
        let mut items = level.into_iter();
        let mut lists: Vec<Bound<'py, PyAny>> = Vec::new();
        for _ in 0..count {
            let part: Vec<Bound<'py, PyAny>> = items.by_ref().take(*dim).collect();
            lists.push(PyList::new(py, part)?.into_any());
        }
        level = lists;
    }
    match level.into_iter().next() {
        Some(whole) => Ok(whole),
        None => Ok(PyList::empty(py).into_any()),
    }
}

/// Converts the elements of a tensor to Python objects, in row-major order.
pub(crate) fn to_objects<'py>(
    py: Python<'py>,
    tensor: &Tensor,
) -> Result<Vec<Bound<'py, PyAny>>, PyErr> {
    let failed = |error: TensorError| tensor_error(py, &ValueName::Other("a tensor"), &error);
    if let Some(strings) = tensor.strings() {
        return strings.iter().map(|bytes| to_str(py, bytes)).collect();
    }
    let widened = |to: DataType| cast(tensor, to, CastOptions::default()).map_err(failed);
    match tensor.data_type().class() {
        Class::Float => {
            numbers_to_objects(py, widened(DataType::Double)?.to_vec::<f64>().map_err(failed)?)
        }
        Class::Signed => {
            numbers_to_objects(py, widened(DataType::Int64)?.to_vec::<i64>().map_err(failed)?)
        }
        Class::Unsigned => {
            numbers_to_objects(py, widened(DataType::Uint64)?.to_vec::<u64>().map_err(failed)?)
        }
        Class::Bool => {
            let truths = tensor.bytes().iter().map(|byte| PyBool::new(py, *byte != 0));
            Ok(truths.map(|truth| truth.to_owned().into_any()).collect())
        }
        Class::Complex => {
            let wide = widened(DataType::Complex128)?;
            let numbers = wide.to_vec::<Complex128>().map_err(failed)?;
            let numbers = numbers
                .into_iter()
                .map(|Complex128 { re, im }| PyComplex::from_doubles(py, re, im).into_any());
            Ok(numbers.collect())
        }
        Class::String => Ok(Vec::new()),
    }
}

/// Converts the numbers of a tensor to Python objects, in order.
fn numbers_to_objects<'py, T: IntoPyObject<'py>>(
    py: Python<'py>,
    numbers: Vec<T>,
) -> Result<Vec<Bound<'py, PyAny>>, PyErr> {
    numbers.into_iter().map(|number| number.into_bound_py_any(py)).collect()
}

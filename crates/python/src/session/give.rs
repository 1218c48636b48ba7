//! Conversion of output values to Python objects.

use pyo3::PyErr;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyTuple};
use sardonyx::value::{Map, MapKey};
use sardonyx::{Tensor, Value};

use super::arrays::import_numpy;
use super::errors::input_error;
use super::memory::PyTensor;
use super::tensor;

/// Converts an output value to a Python object: tensors to arrays, sequences to lists, maps to
/// dicts, an empty optional to None.
///
/// # Errors
///
/// `sardonyx.Error` for a value of an opaque type, or if memory cannot be allocated.
pub(crate) fn to_python<'py>(py: Python<'py>, value: Value) -> Result<Bound<'py, PyAny>, PyErr> {
    match value {
        Value::Tensor(tensor) => tensor_to_python(py, tensor),
        Value::Sparse(sparse) => {
            let tuple = py.import("sardonyx._values")?.getattr("SparseTensor")?;
            let values = tensor_to_python(py, sparse.values().clone())?;
            let indices = tensor_to_python(py, sparse.indices().clone())?;
            let shape = PyTuple::new(py, sparse.dims())?;
            tuple.call1((values, indices, shape))
        }
        Value::Sequence(sequence) => {
            let items = sequence.into_items().into_iter().map(|item| to_python(py, item));
            let items: Result<Vec<_>, PyErr> = items.collect();
            Ok(PyList::new(py, items?)?.into_any())
        }
        Value::Map(map) => map_to_dict(py, &map),
        Value::Optional(_, None) => Ok(py.None().into_bound(py)),
        Value::Optional(_, Some(held)) => to_python(py, *held),
        Value::Opaque(_) => {
            Err(input_error(py, "an output has an opaque type, which is not supported in Python"))
        }
    }
}

/// Converts a tensor to a numpy array, or to a `Tensor` where numpy is not installed.
fn tensor_to_python<'py>(py: Python<'py>, tensor: Tensor) -> Result<Bound<'py, PyAny>, PyErr> {
    match import_numpy(py) {
        Some(numpy) => numpy.to_array(py, tensor),
        None => Ok(Bound::new(py, PyTensor::new(py, tensor)?)?.into_any()),
    }
}

/// Converts a map to a dict. Tensors without dimensions become Python numbers and strings.
fn map_to_dict<'py>(py: Python<'py>, map: &Map) -> Result<Bound<'py, PyAny>, PyErr> {
    let dict = PyDict::new(py);
    for (key, value) in map.entries() {
        let value = match value {
            Value::Tensor(one) if one.rank() == 0 => match tensor::to_objects(py, one)?.pop() {
                Some(element) => element,
                None => py.None().into_bound(py),
            },
            value => to_python(py, value.clone())?,
        };
        match key {
            MapKey::Signed(key) => dict.set_item(key, value)?,
            MapKey::Unsigned(key) => dict.set_item(key, value)?,
            MapKey::String(key) => dict.set_item(tensor::to_str(py, key)?, value)?,
        }
    }
    Ok(dict.into_any())
}

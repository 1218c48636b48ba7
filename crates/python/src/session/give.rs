//! Values of ours as objects of Python.

use pyo3::PyErr;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyTuple};
use sardonyx::value::{Map, MapKey};
use sardonyx::{Tensor, Value};

use super::arrays::numpy;
use super::errors::refused;
use super::memory::PyTensor;
use super::tensor;

/// A value as arrays, lists, dicts and `None`.
///
/// # Errors
///
/// An opaque value; memory is refused.
pub(crate) fn object<'py>(py: Python<'py>, value: Value) -> Result<Bound<'py, PyAny>, PyErr> {
    match value {
        Value::Tensor(tensor) => array(py, tensor),
        Value::Sparse(sparse) => {
            let tuple = py.import("sardonyx._values")?.getattr("SparseTensor")?;
            let values = array(py, sparse.values().clone())?;
            let indices = array(py, sparse.indices().clone())?;
            let shape = PyTuple::new(py, sparse.dims())?;
            tuple.call1((values, indices, shape))
        }
        Value::Sequence(sequence) => {
            let items = sequence.into_items().into_iter().map(|item| object(py, item));
            let items: Result<Vec<_>, PyErr> = items.collect();
            Ok(PyList::new(py, items?)?.into_any())
        }
        Value::Map(map) => dict(py, &map),
        Value::Optional(_, None) => Ok(py.None().into_bound(py)),
        Value::Optional(_, Some(held)) => object(py, *held),
        Value::Opaque(_) => {
            Err(refused(py, "an output has an opaque type, which is not supported in Python"))
        }
    }
}

/// A tensor as an array of numpy, or as a `Tensor` without numpy.
fn array<'py>(py: Python<'py>, tensor: Tensor) -> Result<Bound<'py, PyAny>, PyErr> {
    match numpy(py) {
        Some(numpy) => numpy.array(py, tensor),
        None => Ok(Bound::new(py, PyTensor::new(py, tensor)?)?.into_any()),
    }
}

/// A map as a dict; single numbers and texts are objects of Python in it.
fn dict<'py>(py: Python<'py>, map: &Map) -> Result<Bound<'py, PyAny>, PyErr> {
    let dict = PyDict::new(py);
    for (key, value) in map.entries() {
        let value = match value {
            Value::Tensor(one) if one.rank() == 0 => match tensor::elements(py, one)?.pop() {
                Some(element) => element,
                None => py.None().into_bound(py),
            },
            value => object(py, value.clone())?,
        };
        match key {
            MapKey::Signed(key) => dict.set_item(key, value)?,
            MapKey::Unsigned(key) => dict.set_item(key, value)?,
            MapKey::String(key) => dict.set_item(tensor::text(py, key)?, value)?,
        }
    }
    Ok(dict.into_any())
}

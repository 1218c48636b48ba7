//! Lists as arguments of Python functions.

use pyo3::conversion::FromPyObjectOwned;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::PyString;

/// Elements of a Python iterable.
///
/// Arguments have this type in place of `Vec`, for which pyo3 reserves as much memory as the
/// `__len__` of the object claims: a false one would panic or abort the process.
pub(crate) struct Items<T>(pub(crate) Vec<T>);

impl<'py, T: FromPyObjectOwned<'py>> FromPyObject<'_, 'py> for Items<T> {
    type Error = PyErr;

    /// Converts each element. A str is refused, because its elements would be characters.
    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Items<T>> {
        if object.is_instance_of::<PyString>() {
            return Err(PyTypeError::new_err("expected a list, found a str"));
        }
        let mut items = Vec::new();
        for item in object.try_iter()? {
            items.push(item?.extract::<T>().map_err(Into::into)?);
        }
        Ok(Items(items))
    }
}

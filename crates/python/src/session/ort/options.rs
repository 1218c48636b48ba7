//! Base classes of `sardonyx.ort.SessionOptions` and `sardonyx.ort.RunOptions`.

use std::ffi::OsString;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pyo3::buffer::PyUntypedBuffer;
use pyo3::exceptions::{PyAttributeError, PyRuntimeError, PyTypeError};
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::{PyBytes, PyDict, PyMemoryView, PySlice, PyTuple};
use sardonyx_ort as ort;
use sardonyx_ort::options::{
    GivenInitializer, OptionDefault, OptionInfo, OptionValue, RUN_OPTIONS, SESSION_OPTIONS, Values,
    file_lengths,
};

use super::super::take::shorten_repr;
use super::errors::to_exception;
use crate::items::Items;
use crate::message;

/// Array that a caller passes to replace an initializer.
type Shared = Arc<Py<PyAny>>;

/// Pickled state of [`SessionOptions`]: option values, configuration entries, sizes by name, sizes
/// by denotation, initializers, and contents of data files.
type State<'py> = (
    Bound<'py, PyDict>,
    Items<(String, OsString)>,
    Items<(String, usize)>,
    Items<(String, usize)>,
    Items<(String, Bound<'py, PyAny>, bool)>,
    Items<(String, PyBackedBytes)>,
);

/// Options of a session.
#[pyclass(frozen, subclass, name = "SessionOptions", module = "sardonyx._core.ort")]
pub(crate) struct SessionOptions {
    /// Option values. Never locked while Python code may run, which could wait for the same lock.
    options: Mutex<ort::SessionOptions<Shared>>,
}

impl SessionOptions {
    /// Locks the options. A panic of another thread leaves them consistent, so poisoning is
    /// ignored.
    fn lock_options(&self) -> MutexGuard<'_, ort::SessionOptions<Shared>> {
        self.options.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Clones the session options. The clone shares arrays and file contents.
    pub(super) fn clone_options(&self) -> ort::SessionOptions<Shared> {
        self.lock_options().clone()
    }
}

#[pymethods]
impl SessionOptions {
    #[new]
    #[pyo3(signature = (*_args, **_kwargs))]
    fn new(_args: &Bound<'_, PyTuple>, _kwargs: Option<&Bound<'_, PyDict>>) -> SessionOptions {
        SessionOptions { options: Mutex::default() }
    }

    /// Returns names and documentation of the options.
    #[staticmethod]
    fn _docs() -> Vec<(&'static str, &'static str)> {
        list_docs(&SESSION_OPTIONS)
    }

    /// Returns the value of an option. Raises `AttributeError` for an unknown name.
    fn _get<'py>(&self, py: Python<'py>, name: &str) -> PyResult<Bound<'py, PyAny>> {
        let value = self.lock_options().values.get(name);
        to_python(py, name, value)
    }

    /// Sets an option. Raises `AttributeError` for an unknown name and `TypeError` for a value of
    /// another type.
    fn _set(&self, name: &str, value: &Bound<'_, PyAny>) -> PyResult<()> {
        let value = to_option_value(&SESSION_OPTIONS, name, value)?;
        let set = self.lock_options().values.set(name, value);
        set.map_err(|error| PyTypeError::new_err(error.message))
    }

    /// Sets a configuration entry of the session.
    fn _add_entry(&self, key: String, value: OsString) {
        self.lock_options().values.add_entry(key, value);
    }

    /// Returns the configuration entry of a key. Raises `RuntimeError` if the configuration entry
    /// is not set.
    fn _entry(&self, key: &str) -> PyResult<OsString> {
        find_entry(&self.lock_options().values, key)
    }

    /// Fixes the size of symbolic dimensions with this name.
    fn _fix_size(&self, name: String, size: usize) {
        self.lock_options().fix_size(name, size);
    }

    /// Fixes the size of axes with this denotation, such as `DATA_BATCH`.
    fn _fix_denoted(&self, denotation: String, size: usize) {
        self.lock_options().denoted.push((denotation, size));
    }

    /// Adds an array that replaces an initializer.
    fn _add_initializer(&self, py: Python<'_>, name: String, array: Py<PyAny>) -> PyResult<()> {
        let added = self.lock_options().add_initializer(name, Arc::new(array));
        added.map_err(|error| to_exception(py, &error))
    }

    /// Adds arrays that replace initializers stored in data files.
    fn _add_external(
        &self,
        py: Python<'_>,
        names: Items<String>,
        arrays: Items<Py<PyAny>>,
    ) -> PyResult<()> {
        let arrays = arrays.0.into_iter().map(Arc::new).collect();
        let added = self.lock_options().add_external_initializers(names.0, arrays);
        added.map_err(|error| to_exception(py, &error))
    }

    /// Adds contents of data files: the first `lengths[i]` bytes of each buffer.
    fn _add_files(
        &self,
        py: Python<'_>,
        names: Items<String>,
        buffers: Items<Bound<'_, PyAny>>,
        lengths: Items<i64>,
    ) -> PyResult<()> {
        let (Items(names), Items(buffers), Items(lengths)) = (names, buffers, lengths);
        let sizes = buffers.iter().map(|buffer| {
            // The error for an object without the buffer protocol names its type.
            PyUntypedBuffer::get(buffer).map(|buffer| buffer.len_bytes())
        });
        let sizes = sizes.collect::<PyResult<Vec<usize>>>()?;
        let lengths =
            file_lengths(&names, &sizes, &lengths).map_err(|error| to_exception(py, &error))?;
        let mut contents = Vec::with_capacity(names.len());
        for ((buffer, size), length) in buffers.iter().zip(sizes).zip(lengths) {
            contents.push(message::share_bytes(take_first_bytes(buffer, size, length)?));
        }
        let mut options = self.lock_options();
        for (name, content) in names.into_iter().zip(contents) {
            options.add_file(name, content);
        }
        Ok(())
    }

    fn __getstate__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        let options = self.clone_options();
        let values = PyDict::new(py);
        for (name, value) in options.values.set_values() {
            values.set_item(name, to_python(py, name, Some(value.clone()))?)?;
        }
        let entries = options.values.entries();
        let entries: Vec<_> = entries.map(|(key, value)| (key, value.to_os_string())).collect();
        let initializers = options.initializers.iter();
        let initializers: Vec<_> = initializers
            .map(|given| (&*given.name, given.value.bind(py), given.must_be_external))
            .collect();
        let files = options.files.iter();
        let files: Vec<_> =
            files.map(|(name, content)| (&**name, PyBytes::new(py, content.as_slice()))).collect();
        (values, entries, options.sizes, options.denoted, initializers, files).into_pyobject(py)
    }

    fn __setstate__(&self, state: State<'_>) -> PyResult<()> {
        let (values, entries, sizes, denoted, initializers, files) = state;
        for (name, value) in values {
            self._set(&name.extract::<String>()?, &value)?;
        }
        let mut options = self.lock_options();
        for (key, value) in entries.0 {
            options.values.add_entry(key, value);
        }
        options.sizes = sizes.0;
        options.denoted = denoted.0;
        let given = initializers.0.into_iter().map(|(name, value, must_be_external)| {
            GivenInitializer { name, value: Arc::new(value.unbind()), must_be_external }
        });
        options.initializers = given.collect();
        let files =
            files.0.into_iter().map(|(name, content)| (name, message::share_bytes(content)));
        options.files = files.collect();
        Ok(())
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        // Never fails while the GIL is held, which the garbage collector and each lock holder do.
        let Ok(options) = self.options.try_lock() else { return Ok(()) };
        // A clone that a session is being opened with holds shared arrays too. Visiting those would
        // make the garbage collector count references that this object does not own.
        let own = options.initializers.iter().filter(|given| Arc::strong_count(&given.value) == 1);
        for given in own {
            visit.call(&*given.value)?;
        }
        Ok(())
    }

    fn __clear__(&self) {
        let before = std::mem::take(&mut self.lock_options().initializers);
        drop(before);
    }
}

/// Options of a run.
#[pyclass(frozen, subclass, name = "RunOptions", module = "sardonyx._core.ort")]
pub(crate) struct RunOptions {
    /// Option values. Never locked while Python code may run, which could wait for the same lock.
    options: Mutex<ort::RunOptions>,
}

impl RunOptions {
    /// Locks the options. A panic of another thread leaves them consistent, so poisoning is
    /// ignored.
    fn lock_options(&self) -> MutexGuard<'_, ort::RunOptions> {
        self.options.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the flag that cancels runs with these options.
    pub(super) fn stop_flag(&self) -> sardonyx::StopFlag {
        self.lock_options().stop.clone()
    }
}

#[pymethods]
impl RunOptions {
    #[new]
    #[pyo3(signature = (*_args, **_kwargs))]
    fn new(_args: &Bound<'_, PyTuple>, _kwargs: Option<&Bound<'_, PyDict>>) -> RunOptions {
        RunOptions { options: Mutex::default() }
    }

    /// Returns names and documentation of the options.
    #[staticmethod]
    fn _docs() -> Vec<(&'static str, &'static str)> {
        list_docs(&RUN_OPTIONS)
    }

    /// Returns the value of an option. Raises `AttributeError` for an unknown name.
    fn _get<'py>(&self, py: Python<'py>, name: &str) -> PyResult<Bound<'py, PyAny>> {
        let value = self.lock_options().values.get(name);
        to_python(py, name, value)
    }

    /// Sets an option. Raises `AttributeError` for an unknown name and `TypeError` for a value of
    /// another type.
    fn _set(&self, name: &str, value: &Bound<'_, PyAny>) -> PyResult<()> {
        let value = to_option_value(&RUN_OPTIONS, name, value)?;
        let set = self.lock_options().values.set(name, value);
        set.map_err(|error| PyTypeError::new_err(error.message))
    }

    /// Sets a configuration entry of the run.
    fn _add_entry(&self, key: String, value: OsString) {
        self.lock_options().values.add_entry(key, value);
    }

    /// Returns the configuration entry of a key. Raises `RuntimeError` if the configuration entry
    /// is not set.
    fn _entry(&self, key: &str) -> PyResult<OsString> {
        find_entry(&self.lock_options().values, key)
    }

    /// Whether runs with these options end before their next node. Any thread may set it.
    #[getter]
    fn terminate(&self) -> bool {
        self.lock_options().stop.is_raised()
    }

    #[setter]
    fn set_terminate(&self, value: &Bound<'_, PyAny>) -> PyResult<()> {
        let Ok(is_raised) = value.extract::<bool>() else {
            return Err(option_type_error("terminate", value, "bool"));
        };
        let stop = self.stop_flag();
        if is_raised {
            stop.stop()
        } else {
            stop.reset()
        }
        Ok(())
    }
}

/// Returns names and documentation of the options in `table`.
fn list_docs(table: &[OptionInfo]) -> Vec<(&'static str, &'static str)> {
    table.iter().map(|option| (option.name, option.doc)).collect()
}

/// Converts an option value to a Python object. Raises `AttributeError` for `None`, an unknown
/// option.
fn to_python<'py>(
    py: Python<'py>,
    name: &str,
    value: Option<OptionValue>,
) -> PyResult<Bound<'py, PyAny>> {
    Ok(match value {
        Some(OptionValue::Int(number)) => number.into_pyobject(py)?.into_any(),
        Some(OptionValue::Bool(choice)) => choice.into_pyobject(py)?.to_owned().into_any(),
        Some(OptionValue::Text(text)) => text.into_pyobject(py)?.into_any(),
        None => return Err(PyAttributeError::new_err(format!("unknown option '{name}'"))),
    })
}

/// Converts a Python object to the value of an option.
///
/// # Errors
///
/// `AttributeError` for an unknown option; `TypeError` for an object of another type.
fn to_option_value(
    table: &'static [OptionInfo],
    name: &str,
    value: &Bound<'_, PyAny>,
) -> PyResult<OptionValue> {
    let Some(info) = table.iter().find(|option| option.name == name) else {
        return Err(PyAttributeError::new_err(format!("unknown option '{name}'")));
    };
    let taken = match info.default {
        OptionDefault::Bool(_) => value.extract().ok().map(OptionValue::Bool),
        OptionDefault::Text(_) => value.extract().ok().map(OptionValue::Text),
        OptionDefault::Int(_) | OptionDefault::Level(..) => {
            value.extract().ok().map(OptionValue::Int)
        }
    };
    taken.ok_or_else(|| option_type_error(name, value, info.default.type_name()))
}

/// Makes the exception for a value of another type than the option has.
fn option_type_error(name: &str, value: &Bound<'_, PyAny>, kind: &str) -> PyErr {
    let found = shorten_repr(value);
    PyTypeError::new_err(format!("the option '{name}' is {found}, which is not of the type {kind}"))
}

/// Returns the configuration entry of a key.
///
/// # Errors
///
/// `RuntimeError` if the configuration entry is not set.
fn find_entry(values: &Values, key: &str) -> PyResult<OsString> {
    let found = values.entry(key).map(ToOwned::to_owned);
    found.map_err(|error| PyRuntimeError::new_err(error.message))
}

/// Returns the first `length` of the `size` bytes of a buffer: the object itself if it is a `bytes`
/// object of this length, else a copy.
fn take_first_bytes(
    buffer: &Bound<'_, PyAny>,
    size: usize,
    length: usize,
) -> PyResult<PyBackedBytes> {
    if length == size && buffer.is_instance_of::<PyBytes>() {
        return Ok(buffer.extract()?);
    }
    let view = PyMemoryView::from(buffer)?.call_method1("cast", ("B",))?;
    let end = isize::try_from(length).unwrap_or(isize::MAX);
    let part = view.get_item(PySlice::new(buffer.py(), 0, end, 1))?;
    Ok(part.call_method0("tobytes")?.extract()?)
}

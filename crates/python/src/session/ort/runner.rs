//! Base class of `sardonyx.ort.InferenceSession`: the calls that run a model. In Rust, as the
//! overhead of a run matters.

use std::sync::Arc;
use std::time::Instant;

use pyo3::exceptions::{PyRuntimeError, PyTypeError, PyUserWarning, PyValueError};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyList, PyMapping, PyTuple};
use sardonyx::{ErrorKind, Port};
use sardonyx_ort::ports::{self, InputKind, Size, demand_inputs, has_different_sizes, type_name};
use sardonyx_ort::profile::Recorder;

use super::super::engine::Objects;
use super::super::limits::Limits;
use super::super::take::{as_dict, describe_class, shorten_repr};
use super::super::{PySession, make_thread_limits};
use super::binding::{self, Binding, Snapshot};
use super::errors::{self, to_missing_input, to_run_exception};
use super::opening;
use super::options::{RunOptions, SessionOptions};
use super::profile::Profile;

/// Warning of the first run in which dimensions that share a name differ in size.
const DIFFERENT_SIZES: &std::ffi::CStr =
    c"inputs differ in size in dimensions that share a name in the \
    model: the run treats the sizes of these dimensions as independent";

/// Name, type and shape of an input or output. The shape has an int, a str or None per axis.
type PortFacts<'py> = (String, String, Bound<'py, PyList>);

/// Session of an `InferenceSession`, opened by `_open`.
#[pyclass(frozen, subclass, name = "Runner", module = "sardonyx._core.ort")]
pub(crate) struct Runner {
    session: PyOnceLock<Py<PySession>>,
    /// Session for inputs in which dimensions that share a name differ in size.
    independent: PyOnceLock<Py<PySession>>,
    /// Profile of the session, if the options enable profiling.
    profile: PyOnceLock<Py<Profile>>,
}

#[pymethods]
impl Runner {
    #[new]
    #[pyo3(signature = (*_args, **_kwargs))]
    fn new(_args: &Bound<'_, PyTuple>, _kwargs: Option<&Bound<'_, PyDict>>) -> Runner {
        Runner {
            session: PyOnceLock::new(),
            independent: PyOnceLock::new(),
            profile: PyOnceLock::new(),
        }
    }

    /// Opens a model, a path or bytes. Returns the profile of the session if the options enable
    /// profiling, else None.
    fn _open<'py>(
        &self,
        model: &Bound<'py, PyAny>,
        options: &Bound<'py, SessionOptions>,
    ) -> PyResult<Option<Bound<'py, Profile>>> {
        let py = model.py();
        let (recorder, started) = (Arc::new(Recorder::default()), Instant::now());
        let session = Py::new(py, opening::open(model, options)?)?;
        if self.session.set(py, session.clone_ref(py)).is_err() {
            return Err(PyRuntimeError::new_err(
                "_open was called twice: the session is open already",
            ));
        }
        let Some(prefix) = options.get().clone_options().profile_prefix() else { return Ok(None) };
        let profile = Profile::new(prefix, recorder, started.elapsed(), session);
        let profile = Bound::new(py, profile)?;
        if self.profile.set(py, profile.clone().unbind()).is_err() {
            return Err(PyRuntimeError::new_err(
                "_open was called twice: the session has a profile already",
            ));
        }
        Ok(Some(profile))
    }

    /// Returns the session that `_open` has opened.
    #[getter]
    fn _session<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PySession>> {
        self.session(py).cloned()
    }

    /// Returns name, type and shape of each input that is not an initializer.
    fn _inputs<'py>(&self, py: Python<'py>) -> PyResult<Vec<PortFacts<'py>>> {
        self.describe_inputs(py, InputKind::Input)
    }

    /// Returns name, type and shape of each input that has an initializer as default.
    fn _overridable<'py>(&self, py: Python<'py>) -> PyResult<Vec<PortFacts<'py>>> {
        self.describe_inputs(py, InputKind::OverridableInitializer)
    }

    /// Returns name, type and shape of each output.
    fn _outputs<'py>(&self, py: Python<'py>) -> PyResult<Vec<PortFacts<'py>>> {
        let outputs = self.session(py)?.get().0.outputs();
        outputs.iter().map(|port| self.describe_port(py, &port.0)).collect()
    }

    /// Raises an exception if `input_feed` lacks a required input.
    fn _demand_inputs(&self, input_feed: &Bound<'_, PyAny>) -> PyResult<()> {
        self.check_inputs(&as_dict(input_feed)?, None)
    }

    /// Writes the profile and returns the name of its file, or an empty string if there is none.
    fn _end_profiling(&self, py: Python<'_>) -> PyResult<std::ffi::OsString> {
        match self.profile.get(py) {
            Some(profile) => profile.get().end(py),
            None => Ok(std::ffi::OsString::new()),
        }
    }

    /// Runs the model and returns a list of outputs.
    ///
    /// `output_names` lists the names of the outputs to return; all if it is None or empty.
    /// `input_feed` is a dict of inputs by name. `run_options` is a `RunOptions` or None.
    #[pyo3(signature = (output_names, input_feed, run_options=None))]
    fn run<'py>(
        &self,
        output_names: &Bound<'py, PyAny>,
        input_feed: &Bound<'py, PyAny>,
        run_options: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyList>> {
        let py = input_feed.py();
        let engine = &self.session(py)?.get().0;
        let wanted = if output_names.is_none() {
            None
        } else {
            let wanted =
                engine.find_outputs(output_names).map_err(|error| to_run_exception(py, error))?;
            Some(wanted).filter(|wanted| !wanted.is_empty())
        };
        let wanted = wanted.as_deref();
        let limits = self.make_limits(py, run_options)?;
        let outputs = match engine.run(input_feed, wanted, limits) {
            Ok(outputs) => outputs,
            Err(error) => {
                self.retry_with_independent_sizes(error, wanted, input_feed, run_options)?
            }
        };
        PyList::new(py, outputs)
    }

    /// Runs the model on the bound inputs and stores the bound outputs in the binding.
    #[pyo3(signature = (iobinding, run_options=None))]
    fn run_with_iobinding<'py>(
        slf: &Bound<'py, Self>,
        iobinding: &Bound<'py, PyAny>,
        run_options: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<()> {
        let py = slf.py();
        let Ok(binding) = iobinding.cast::<Binding>() else {
            let found = describe_class(iobinding);
            let what = format!("iobinding is {found}, which is not an IOBinding");
            return Err(PyTypeError::new_err(what));
        };
        if !binding.get().belongs_to(slf) {
            return Err(PyValueError::new_err(
                "the binding belongs to another session; use a binding that io_binding() of this session made",
            ));
        }
        let snapshot = binding.get().snapshot(py);
        if snapshot.outputs.is_empty() {
            return Binding::store_outputs(binding, &snapshot, Objects::new());
        }
        let runner = slf.get();
        let outputs = match runner.run_bound(py, &snapshot, run_options) {
            Ok(outputs) => outputs,
            Err(error) => {
                let names = runner.session(py)?.get().0.input_names();
                let feed = binding::inputs_to_dict(py, names, &snapshot.inputs)?;
                runner.retry_with_independent_sizes(
                    error,
                    Some(&snapshot.outputs),
                    &feed,
                    run_options,
                )?
            }
        };
        Binding::store_outputs(binding, &snapshot, outputs)
    }
}

/// Returns the shape of an input in `feed`, if it is a tuple of ints.
fn find_shape(feed: &Bound<'_, PyDict>, port: &Port) -> Option<Vec<usize>> {
    let given = feed.get_item(port.name()).ok().flatten()?;
    // A tuple in numpy and torch. The length of any other object cannot be trusted.
    let shape = given.getattr_opt("shape").ok().flatten()?;
    let shape = shape.cast::<PyTuple>().ok()?;
    shape.iter().map(|size| size.extract().ok()).collect()
}

impl Runner {
    /// Returns the session that `_open` has opened.
    ///
    /// # Errors
    ///
    /// `RuntimeError` if `_open` has not been called.
    pub(super) fn session<'py>(&self, py: Python<'py>) -> PyResult<&Bound<'py, PySession>> {
        match self.session.get(py) {
            Some(session) => Ok(session.bind(py)),
            None => {
                Err(PyRuntimeError::new_err("the session is not initialized: __init__ did not run"))
            }
        }
    }

    /// Runs the model on a snapshot of bindings; errors are not converted to classes of
    /// onnxruntime.
    fn run_bound<'py>(
        &self,
        py: Python<'py>,
        snapshot: &Snapshot<'py>,
        run_options: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Objects<'py>> {
        let limits = self.make_limits(py, run_options)?;
        let engine = &self.session(py)?.get().0;
        engine.run_by_index(py, &snapshot.inputs, snapshot.to_selection(), limits)
    }

    /// Makes the limits of a run from its `RunOptions`, with the recorder of the profile.
    fn make_limits(
        &self,
        py: Python<'_>,
        run_options: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Limits> {
        let mut limits = make_thread_limits(None, None);
        if let Some(options) = run_options {
            let Ok(options) = options.cast::<RunOptions>() else {
                let found = describe_class(options);
                let what = format!("run_options is {found}, which is not RunOptions");
                return Err(PyTypeError::new_err(what));
            };
            limits.stop = Some(options.get().stop_flag());
        }
        limits.profile = self.profile.get(py).and_then(|profile| profile.get().recorder());
        Ok(limits)
    }

    /// Repeats a run that failed because dimensions that share a name differ in size, in a session
    /// that allows this.
    ///
    /// # Errors
    ///
    /// An exception of onnxruntime's class for `error` if that was not the cause, or for the error
    /// of the second run.
    fn retry_with_independent_sizes<'py>(
        &self,
        error: PyErr,
        wanted: Option<&[usize]>,
        input_feed: &Bound<'py, PyAny>,
        run_options: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Objects<'py>> {
        let py = input_feed.py();
        let is_of_input = errors::find_error_kind(py, &error) == Some(ErrorKind::Input);
        if !is_of_input || !input_feed.is_instance_of::<PyMapping>() {
            return Err(to_run_exception(py, error));
        }
        let feed = as_dict(input_feed)?;
        let help: Option<String> = error.value(py).getattr("help")?.extract()?;
        self.check_inputs(&feed, help)?;
        let inputs = self.session(py)?.get().0.input_ports();
        if !has_different_sizes(inputs, |port| find_shape(&feed, port)) {
            return Err(to_run_exception(py, error));
        }
        // The profile describes the steps of the first session.
        let limits = Limits { profile: None, ..self.make_limits(py, run_options)? };
        let outputs = self.open_independent_session(py)?.get().0.run(input_feed, wanted, limits);
        outputs.map_err(|error| to_run_exception(py, error))
    }

    /// Returns the session that allows different sizes for dimensions that share a name. The first
    /// call makes it and emits a warning.
    fn open_independent_session<'py>(&self, py: Python<'py>) -> PyResult<&Bound<'py, PySession>> {
        if self.independent.get(py).is_none() {
            let engine = self.session(py)?.get().0.with_independent_sizes(py);
            let session =
                Py::new(py, PySession(engine.map_err(|error| to_run_exception(py, error))?))?;
            let is_first = self.independent.set(py, session).is_ok();
            if is_first {
                PyErr::warn(py, &py.get_type::<PyUserWarning>(), DIFFERENT_SIZES, 1)?;
            }
        }
        match self.independent.get(py) {
            Some(session) => Ok(session.bind(py)),
            None => self.session(py),
        }
    }

    /// Checks that a dict of inputs has every required input. `help` replaces the advice of the
    /// exception.
    fn check_inputs(&self, feed: &Bound<'_, PyDict>, help: Option<String>) -> PyResult<()> {
        let py = feed.py();
        let given: Vec<String> = feed
            .keys()
            .iter()
            .map(|key| key.extract().unwrap_or_else(|_| shorten_repr(&key)))
            .collect();
        let is_given =
            |name: &str| matches!(feed.get_item(name), Ok(Some(value)) if !value.is_none());
        let inputs = self.session(py)?.get().0.input_ports();
        demand_inputs(inputs, &given, is_given).map_err(|error| {
            let error = match help {
                Some(help) => error.with_help(help),
                None => error,
            };
            to_missing_input(py, &error)
        })
    }

    /// Returns name, type and shape of each input of a kind: required, or with a default.
    fn describe_inputs<'py>(
        &self,
        py: Python<'py>,
        kind: InputKind,
    ) -> PyResult<Vec<PortFacts<'py>>> {
        let inputs = self.session(py)?.get().0.input_ports().iter();
        let inputs = inputs.filter(|port| ports::input_kind(port) == kind);
        inputs.map(|port| self.describe_port(py, port)).collect()
    }

    /// Returns name, type and shape of a port in the form of onnxruntime's `NodeArg`.
    fn describe_port<'py>(&self, py: Python<'py>, port: &Port) -> PyResult<PortFacts<'py>> {
        let invalid_symbols = self.session(py)?.get().0.list_invalid_symbols(port.name());
        let sizes = PyList::empty(py);
        for size in ports::sizes(port, &invalid_symbols) {
            match size {
                Size::Known(size) => sizes.append(size)?,
                Size::Text(text) => sizes.append(text)?,
                Size::Unknown => sizes.append(py.None())?,
            }
        }
        let kind = port.ty().map_or_else(String::new, type_name);
        Ok((port.name().to_string(), kind, sizes))
    }
}

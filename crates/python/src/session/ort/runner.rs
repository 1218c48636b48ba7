//! The base class of `sardonyx.ort.InferenceSession`: the run, which must take no time of its own.

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
use super::super::take::{as_dict, kind_of, shown};
use super::super::{PySession, limits};
use super::binding::{self, Binding, Snapshot};
use super::errors::{self, missing_input, of_run};
use super::opening;
use super::options::{RunOptions, SessionOptions};
use super::profile::Profile;

/// Warning of the first run whose inputs differ in a size of one name.
const DIFFERENT_SIZES: &std::ffi::CStr = c"inputs differ in a size to which the model gives one \
    name: it runs with sizes that have nothing to do with each other";

/// An input or output: name, type, and sizes: numbers, texts, and None where the model has none.
type PortFacts<'py> = (String, String, Bound<'py, PyList>);

/// Runs a session that is opened once.
#[pyclass(frozen, subclass, name = "Runner", module = "sardonyx._core.ort")]
pub(crate) struct Runner {
    session: PyOnceLock<Py<PySession>>,
    /// The session for inputs that differ in a size of one name.
    independent: PyOnceLock<Py<PySession>>,
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

    /// Opens a model, a path or bytes, and returns the profile of the session, if the options ask
    /// for one.
    fn _open<'py>(
        &self,
        model: &Bound<'py, PyAny>,
        options: &Bound<'py, SessionOptions>,
    ) -> PyResult<Option<Bound<'py, Profile>>> {
        let py = model.py();
        let (recorder, started) = (Arc::new(Recorder::default()), Instant::now());
        let session = Py::new(py, opening::open(model, options)?)?;
        if self.session.set(py, session.clone_ref(py)).is_err() {
            return Err(PyRuntimeError::new_err("the session is set already"));
        }
        let Some(prefix) = options.get().copied().profile_prefix() else { return Ok(None) };
        let profile = Profile::new(prefix, recorder, started.elapsed(), session);
        let profile = Bound::new(py, profile)?;
        if self.profile.set(py, profile.clone().unbind()).is_err() {
            return Err(PyRuntimeError::new_err("runs are recorded already"));
        }
        Ok(Some(profile))
    }

    /// The session.
    #[getter]
    fn _session<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PySession>> {
        self.session(py).cloned()
    }

    /// Inputs that callers give.
    fn _inputs<'py>(&self, py: Python<'py>) -> PyResult<Vec<PortFacts<'py>>> {
        self.input_facts(py, InputKind::Input)
    }

    /// Inputs that have a value in the model.
    fn _overridable<'py>(&self, py: Python<'py>) -> PyResult<Vec<PortFacts<'py>>> {
        self.input_facts(py, InputKind::OverridableInitializer)
    }

    /// Outputs.
    fn _outputs<'py>(&self, py: Python<'py>) -> PyResult<Vec<PortFacts<'py>>> {
        let outputs = self.session(py)?.get().0.outputs();
        outputs.iter().map(|port| self.facts(py, &port.0)).collect()
    }

    /// Refuses inputs without one that a run needs.
    fn _demand_inputs(&self, input_feed: &Bound<'_, PyAny>) -> PyResult<()> {
        self.demand_inputs(&as_dict(input_feed)?, None)
    }

    /// Writes the profile and returns the name of its file; an empty text if there is none.
    fn _end_profiling(&self, py: Python<'_>) -> PyResult<std::ffi::OsString> {
        match self.profile.get(py) {
            Some(profile) => profile.get().end(py),
            None => Ok(std::ffi::OsString::new()),
        }
    }

    /// Runs the model and returns the outputs in a list: those of these names, or all if
    /// `output_names` is None or empty.
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
            let wanted = engine.wanted(output_names).map_err(|error| of_run(py, error))?;
            Some(wanted).filter(|wanted| !wanted.is_empty())
        };
        let wanted = wanted.as_deref();
        let limits = self.limits(py, run_options)?;
        let outputs = match engine.run(input_feed, wanted, limits) {
            Ok(outputs) => outputs,
            Err(error) => self.recover(error, wanted, input_feed, run_options)?,
        };
        PyList::new(py, outputs)
    }

    /// Runs the model on what is bound.
    #[pyo3(signature = (iobinding, run_options=None))]
    fn run_with_iobinding<'py>(
        slf: &Bound<'py, Self>,
        iobinding: &Bound<'py, PyAny>,
        run_options: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<()> {
        let py = slf.py();
        let Ok(binding) = iobinding.cast::<Binding>() else {
            let found = kind_of(iobinding);
            let what = format!("iobinding is {found}, which is not an IOBinding");
            return Err(PyTypeError::new_err(what));
        };
        if !binding.get().is_of(slf) {
            return Err(PyValueError::new_err(
                "the binding is of another session; use one that io_binding() of this session made",
            ));
        }
        let snapshot = binding.get().snapshot(py);
        if snapshot.outputs.is_empty() {
            return Binding::keep(binding, &snapshot, Objects::new());
        }
        let runner = slf.get();
        let outputs = match runner.attempt_bound(py, &snapshot, run_options) {
            Ok(outputs) => outputs,
            Err(error) => {
                let names = runner.session(py)?.get().0.input_names();
                let feed = binding::by_name(py, names, &snapshot.inputs)?;
                runner.recover(error, Some(&snapshot.outputs), &feed, run_options)?
            }
        };
        Binding::keep(binding, &snapshot, outputs)
    }
}

impl Runner {
    /// The session.
    pub(super) fn session<'py>(&self, py: Python<'py>) -> PyResult<&Bound<'py, PySession>> {
        match self.session.get(py) {
            Some(session) => Ok(session.bind(py)),
            None => {
                Err(PyRuntimeError::new_err("the session is not initialized: __init__ did not run"))
            }
        }
    }

    fn attempt_bound<'py>(
        &self,
        py: Python<'py>,
        snapshot: &Snapshot<'py>,
        run_options: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Objects<'py>> {
        let limits = self.limits(py, run_options)?;
        let engine = &self.session(py)?.get().0;
        engine.run_given(py, &snapshot.inputs, snapshot.wanted(), limits)
    }

    /// Limits of a run with these options, and the recorder of its steps.
    fn limits(&self, py: Python<'_>, run_options: Option<&Bound<'_, PyAny>>) -> PyResult<Limits> {
        let mut limits = limits(None, None);
        if let Some(options) = run_options {
            let Ok(options) = options.cast::<RunOptions>() else {
                let found = kind_of(options);
                let what = format!("run_options is {found}, which is not RunOptions");
                return Err(PyTypeError::new_err(what));
            };
            limits.stop = Some(options.get().stop());
        }
        limits.profile = self.profile.get(py).and_then(|profile| profile.get().recorder());
        Ok(limits)
    }

    /// Returns the outputs of a run that failed after all, if inputs only differ in a size of one
    /// name.
    ///
    /// # Errors
    ///
    /// An exception of onnxruntime's class.
    fn recover<'py>(
        &self,
        error: PyErr,
        wanted: Option<&[usize]>,
        input_feed: &Bound<'py, PyAny>,
        run_options: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Objects<'py>> {
        let py = input_feed.py();
        let is_of_input = errors::kind_of(py, &error) == Some(ErrorKind::Input);
        if !is_of_input || !input_feed.is_instance_of::<PyMapping>() {
            return Err(of_run(py, error));
        }
        let feed = as_dict(input_feed)?;
        let help: Option<String> = error.value(py).getattr("help")?.extract()?;
        self.demand_inputs(&feed, help)?;
        let inputs = self.session(py)?.get().0.input_ports();
        let dims = |port: &Port| {
            let given = feed.get_item(port.name()).ok().flatten()?;
            // A tuple in numpy and torch. The length of any other object may be a lie.
            let shape = given.getattr_opt("shape").ok().flatten()?;
            let shape = shape.cast::<PyTuple>().ok()?;
            shape.iter().map(|size| size.extract().ok()).collect()
        };
        if !has_different_sizes(inputs, dims) {
            return Err(of_run(py, error));
        }
        // Steps of another session are not those of the profile.
        let limits = Limits { profile: None, ..self.limits(py, run_options)? };
        let outputs = self.independent(py)?.get().0.run(input_feed, wanted, limits);
        outputs.map_err(|error| of_run(py, error))
    }

    /// The session for inputs that differ in a size of one name. Warns when it is made.
    fn independent<'py>(&self, py: Python<'py>) -> PyResult<&Bound<'py, PySession>> {
        if self.independent.get(py).is_none() {
            let engine = self.session(py)?.get().0.with_independent_sizes(py);
            let session = Py::new(py, PySession(engine.map_err(|error| of_run(py, error))?))?;
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

    /// Refuses inputs without one that a run needs.
    fn demand_inputs(&self, feed: &Bound<'_, PyDict>, help: Option<String>) -> PyResult<()> {
        let py = feed.py();
        let given: Vec<String> =
            feed.keys().iter().map(|key| key.extract().unwrap_or_else(|_| shown(&key))).collect();
        let is_given =
            |name: &str| matches!(feed.get_item(name), Ok(Some(value)) if !value.is_none());
        let inputs = self.session(py)?.get().0.input_ports();
        demand_inputs(inputs, &given, is_given).map_err(|error| {
            let error = match help {
                Some(help) => error.with_help(help),
                None => error,
            };
            missing_input(py, &error)
        })
    }

    /// Inputs of a kind.
    fn input_facts<'py>(&self, py: Python<'py>, kind: InputKind) -> PyResult<Vec<PortFacts<'py>>> {
        let inputs = self.session(py)?.get().0.input_ports().iter();
        let inputs = inputs.filter(|port| ports::input_kind(port) == kind);
        inputs.map(|port| self.facts(py, port)).collect()
    }

    /// Name, type and sizes of an input or output, as onnxruntime describes them.
    fn facts<'py>(&self, py: Python<'py>, port: &Port) -> PyResult<PortFacts<'py>> {
        let marks = self.session(py)?.get().0.size_marks(port.name());
        let sizes = PyList::empty(py);
        for size in ports::sizes(port, &marks) {
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

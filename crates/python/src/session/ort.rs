//! What `sardonyx.ort.InferenceSession` is built on: the run, which must take no time of its own.

use pyo3::exceptions::{PyRuntimeError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyList, PyTuple};

use super::binding::{self, Binding, Snapshot};
use super::engine::Objects;
use super::limits::Limits;
use super::profile::Profile;
use super::take::kind_of;
use super::{PySession, PyStopFlag, limits};

/// Runs a session that is set once. A class that extends it says in `_failed` what an error
/// becomes.
#[pyclass(frozen, subclass, name = "Runner", module = "sardonyx._core.session")]
pub(crate) struct Runner {
    session: PyOnceLock<Py<PySession>>,
    profile: PyOnceLock<Py<Profile>>,
}

#[pymethods]
impl Runner {
    #[new]
    #[pyo3(signature = (*_args, **_kwargs))]
    fn new(_args: &Bound<'_, PyTuple>, _kwargs: Option<&Bound<'_, PyDict>>) -> Runner {
        Runner { session: PyOnceLock::new(), profile: PyOnceLock::new() }
    }

    /// Sets the session.
    fn _use(&self, py: Python<'_>, session: Py<PySession>) -> PyResult<()> {
        let set = self.session.set(py, session);
        set.map_err(|_| PyRuntimeError::new_err("the session is set already"))
    }

    /// Has all runs recorded in a profile.
    fn _record(&self, py: Python<'_>, profile: Py<Profile>) -> PyResult<()> {
        let set = self.profile.set(py, profile);
        set.map_err(|_| PyRuntimeError::new_err("runs are recorded already"))
    }

    /// The session.
    #[getter]
    fn _session<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PySession>> {
        self.session(py).cloned()
    }

    /// Runs the model and returns the outputs in a list: those of these names, or all if
    /// `output_names` is None or empty.
    #[pyo3(signature = (output_names, input_feed, run_options=None))]
    fn run<'py>(
        slf: &Bound<'py, Self>,
        output_names: &Bound<'py, PyAny>,
        input_feed: &Bound<'py, PyAny>,
        run_options: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        match slf.get().attempt(output_names, input_feed, run_options) {
            Ok(outputs) => Ok(outputs.into_any()),
            Err(error) => {
                slf.call_method1("_failed", (error, output_names, input_feed, run_options))
            }
        }
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
        let outputs = match slf.get().attempt_bound(py, &snapshot, run_options) {
            Ok(outputs) => outputs,
            Err(error) => {
                let engine = &slf.get().session(py)?.get().0;
                let names = engine.output_names();
                let names = snapshot.outputs.iter().map(|number| names[*number].bind(py));
                let names = PyList::new(py, names)?;
                let feed = binding::by_name(py, engine.input_names(), &snapshot.inputs)?;
                let outputs = slf.call_method1("_failed", (error, names, feed, run_options))?;
                Objects::from_vec(outputs.extract()?)
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
        let mut limits = match run_options {
            None => limits(None, None),
            Some(options) => {
                let stop = options.getattr_opt("_stop")?;
                let Some(stop) = stop.and_then(|stop| stop.cast_into::<PyStopFlag>().ok()) else {
                    let found = kind_of(options);
                    let what = format!("run_options is {found}, which is not RunOptions");
                    return Err(PyTypeError::new_err(what));
                };
                Limits { stop: Some(stop.get().0.clone()), ..limits(None, None) }
            }
        };
        limits.profile = self.profile.get(py).and_then(|profile| profile.get().recorder());
        Ok(limits)
    }

    fn attempt<'py>(
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
            Some(engine.wanted(output_names)?).filter(|wanted| !wanted.is_empty())
        };
        let limits = self.limits(py, run_options)?;
        let outputs = engine.run(input_feed, wanted.as_deref(), limits)?;
        PyList::new(py, outputs)
    }
}

//! Base class of `sardonyx.ort.IOBinding`: values and arrays bound to the inputs and outputs of one
//! session.

use std::mem::take;
use std::sync::{Mutex, MutexGuard, PoisonError};

use pyo3::exceptions::PyRuntimeError;
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyString};
use sardonyx_ort::{Bindings, unknown_name};
use smallvec::SmallVec;

use super::super::engine::{Objects, OutputSelection};
use super::runner::Runner;

/// Bound inputs and outputs of one session. A subclass defines `_write`, which copies an output to
/// an array that the run could not write to.
#[pyclass(frozen, subclass, name = "Binding", module = "sardonyx._core.ort")]
pub(crate) struct Binding {
    /// Session whose inputs and outputs are bound.
    runner: Py<Runner>,
    /// Bound inputs and outputs. Never locked while Python code may run, which could wait for the
    /// same lock.
    bindings: Mutex<Bindings<Py<PyAny>>>,
}

/// Copy of the bindings at the start of a run.
pub(super) struct Snapshot<'py> {
    /// Indices and values of the bound inputs.
    pub(super) inputs: SmallVec<[(usize, Bound<'py, PyAny>); 4]>,
    /// Indices of the bound outputs, in the order in which they were bound.
    pub(super) outputs: SmallVec<[usize; 4]>,
    /// Destination arrays, by position in `outputs`.
    pub(super) into: SmallVec<[Option<Bound<'py, PyAny>>; 4]>,
}

impl<'py> Snapshot<'py> {
    /// Returns the bound outputs with their destination arrays, as the selection for a run.
    pub(super) fn to_selection(&self) -> OutputSelection<'_, 'py> {
        OutputSelection { numbers: Some(&self.outputs), into: &self.into }
    }
}

impl Binding {
    /// Locks the bindings. A panic of another thread leaves them consistent, so poisoning is
    /// ignored.
    fn lock_bindings(&self) -> MutexGuard<'_, Bindings<Py<PyAny>>> {
        self.bindings.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the bindings belong to the session `runner`.
    pub(super) fn belongs_to(&self, runner: &Bound<'_, Runner>) -> bool {
        self.runner.is(runner)
    }

    /// Copies the references to bound values and arrays.
    pub(super) fn snapshot<'py>(&self, py: Python<'py>) -> Snapshot<'py> {
        let bindings = self.lock_bindings();
        let into = bindings.outputs().iter().map(|output| output.into.as_ref());
        Snapshot {
            inputs: bindings
                .inputs()
                .map(|(number, value)| (number, value.bind(py).clone()))
                .collect(),
            outputs: bindings.outputs().iter().map(|output| output.number).collect(),
            into: into.map(|into| into.map(|into| into.bind(py).clone())).collect(),
        }
    }

    /// Stores the outputs of a run, and copies outputs that the run could not write to their
    /// destination arrays into these arrays.
    pub(super) fn store_outputs(
        slf: &Bound<'_, Self>,
        snapshot: &Snapshot<'_>,
        outputs: Objects<'_>,
    ) -> PyResult<()> {
        let mut results = SmallVec::new();
        let places = snapshot.outputs.iter().zip(&snapshot.into);
        for ((number, into), output) in places.zip(outputs) {
            let Some(into) = into.as_ref().filter(|into| !into.is(&output)) else {
                results.push(output.unbind());
                continue;
            };
            let runner = slf.get().runner.bind(slf.py());
            let name = &runner.get().session(slf.py())?.get().0.output_names()[*number];
            slf.call_method1("_write", (name, into, output))?;
            results.push(into.clone().unbind());
        }
        let before = slf.get().lock_bindings().keep(results);
        // Dropped after the lock is released: finalizers of the old objects may run Python code.
        drop(before);
        Ok(())
    }

    /// Makes the exception for a name that no input (or output) has.
    fn unknown_name_error(name: &Bound<'_, PyString>, kind: &str, all: &[Py<PyString>]) -> PyErr {
        let py = name.py();
        let all: Vec<_> = all.iter().map(|known| known.bind(py).to_string_lossy()).collect();
        let all: Vec<&str> = all.iter().map(|known| &**known).collect();
        PyRuntimeError::new_err(unknown_name(kind, &name.to_string_lossy(), &all))
    }
}

#[pymethods]
impl Binding {
    #[new]
    fn new(session: Py<Runner>) -> Binding {
        Binding { runner: session, bindings: Mutex::default() }
    }

    /// Returns the session whose inputs and outputs are bound.
    #[getter]
    fn _session<'py>(&self, py: Python<'py>) -> Bound<'py, Runner> {
        self.runner.bind(py).clone()
    }

    /// Binds a value to an input.
    fn _bind_input(&self, name: &Bound<'_, PyString>, value: Py<PyAny>) -> PyResult<()> {
        let session = self.runner.get().session(name.py())?;
        let engine = &session.get().0;
        let Some(number) = engine.find_input_index(name)? else {
            return Err(Binding::unknown_name_error(name, "input", engine.input_names()));
        };
        let before = self.lock_bindings().bind_input(number, value);
        drop(before);
        Ok(())
    }

    /// Binds an output: runs return it, in array `into` if one is given.
    fn _bind_output(&self, name: &Bound<'_, PyString>, into: Option<Py<PyAny>>) -> PyResult<()> {
        let session = self.runner.get().session(name.py())?;
        let engine = &session.get().0;
        let Some(number) = engine.find_output_index(name)? else {
            return Err(Binding::unknown_name_error(name, "output", engine.output_names()));
        };
        let before = self.lock_bindings().bind_output(number, into);
        drop(before);
        Ok(())
    }

    /// Returns the outputs of the last run, in the order in which they were bound.
    fn _results<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let results: Vec<Bound<'py, PyAny>> =
            self.lock_bindings().results().iter().map(|result| result.bind(py).clone()).collect();
        PyList::new(py, results)
    }

    /// Returns the indices of the bound outputs, in the order in which they were bound.
    fn _output_numbers(&self) -> Vec<usize> {
        self.lock_bindings().outputs().iter().map(|output| output.number).collect()
    }

    /// Removes the bindings of all inputs.
    fn _clear_inputs(&self) {
        let before = self.lock_bindings().clear_inputs();
        drop(before);
    }

    /// Removes the bindings of all outputs, and the outputs of the last run.
    fn _clear_outputs(&self) {
        let before = self.lock_bindings().clear_outputs();
        drop(before);
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.runner)?;
        // Never fails while the GIL is held, which the garbage collector and each lock holder do.
        let Ok(bindings) = self.bindings.try_lock() else { return Ok(()) };
        let inputs = bindings.inputs().map(|(_, value)| value);
        let into = bindings.outputs().iter().filter_map(|output| output.into.as_ref());
        for object in inputs.chain(into).chain(bindings.results()) {
            visit.call(object)?;
        }
        Ok(())
    }

    fn __clear__(&self) {
        let before = take(&mut *self.lock_bindings());
        drop(before);
    }
}

/// Makes a dict of inputs by name, for messages.
pub(super) fn inputs_to_dict<'py>(
    py: Python<'py>,
    names: &[Py<PyString>],
    inputs: &[(usize, Bound<'py, PyAny>)],
) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    for (number, value) in inputs {
        dict.set_item(&names[*number], value)?;
    }
    Ok(dict)
}

//! `Member`: what workers and ranks have in common, whose classes extend it.

use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString};
use sardonyx::{Outputs, Port};

use super::engine::{by_name, objects};
use super::group::{Close, close, close_after};
use super::ports::PyPort;

/// One of several programs that work together: a `Worker` or a `Rank`.
#[pyclass(frozen, subclass, name = "Member", module = "sardonyx._core.session")]
pub(crate) struct PyMember {
    open: Arc<dyn Close>,
    pub(super) inputs: Vec<PyPort>,
    pub(super) outputs: Vec<PyPort>,
    pub(super) output_names: Vec<Py<PyString>>,
    pub(super) rank: usize,
    pub(super) size: usize,
    threads: usize,
}

impl PyMember {
    /// A member that closes `open`, with its number and how many there are, and the number of
    /// threads of its session.
    pub(super) fn new(
        py: Python<'_>,
        open: Arc<dyn Close>,
        (rank, size): (usize, usize),
        threads: usize,
        (inputs, outputs): (&[Port], &[Port]),
    ) -> PyMember {
        let names = outputs.iter().map(|port| PyString::intern(py, port.name()).unbind());
        let ports = |all: &[Port]| all.iter().cloned().map(PyPort).collect();
        PyMember {
            open,
            output_names: names.collect(),
            inputs: ports(inputs),
            outputs: ports(outputs),
            rank,
            size,
            threads,
        }
    }

    /// The outputs of a run, or those that are wanted, by name.
    pub(super) fn dict<'py>(
        &self,
        py: Python<'py>,
        outputs: Outputs,
        wanted: Option<&[usize]>,
    ) -> PyResult<Bound<'py, PyDict>> {
        let values = objects(py, outputs, wanted)?;
        by_name(py, &self.output_names, values, wanted)
    }
}

#[pymethods]
impl PyMember {
    /// Ends the work of this member. If it is worker 0, `serve` of the others ends.
    fn close(&self, py: Python<'_>) {
        close(py, &*self.open);
    }

    fn __enter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    /// Closes the member. The others are told of the exception that ends the block.
    #[pyo3(signature = (kind=None, value=None, trace=None))]
    fn __exit__(
        &self,
        py: Python<'_>,
        kind: Option<&Bound<'_, PyAny>>,
        value: Option<&Bound<'_, PyAny>>,
        trace: Option<&Bound<'_, PyAny>>,
    ) {
        let _ = (kind, trace);
        close_after(py, &*self.open, value);
    }

    /// The number of this member, from 0.
    #[getter]
    fn rank(&self) -> usize {
        self.rank
    }

    /// How many members there are.
    #[getter]
    fn size(&self) -> usize {
        self.size
    }

    /// How many threads a run uses here, the calling one included. Those of a worker are shared by
    /// its devices.
    #[getter]
    fn threads(&self) -> usize {
        self.threads
    }

    /// What a run takes, in the order of the model.
    #[getter]
    fn inputs(&self) -> Vec<PyPort> {
        self.inputs.clone()
    }

    /// What a run gives back, in the order of the model.
    #[getter]
    fn outputs(&self) -> Vec<PyPort> {
        self.outputs.clone()
    }
}

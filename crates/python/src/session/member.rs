//! `Member`: base class of `Worker` and `Rank`.

use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString};
use sardonyx::{Outputs, Port};

use super::engine::{to_dict, to_objects};
use super::group::{Close, close, close_after_block};
use super::ports::PyPort;

/// Base class of the programs that work together in a group: `Worker` and `Rank`.
#[pyclass(frozen, subclass, name = "Member", module = "sardonyx._core.session")]
pub(crate) struct PyMember {
    /// Session of the member, for `close`.
    open: Arc<dyn Close>,
    pub(super) inputs: Vec<PyPort>,
    pub(super) outputs: Vec<PyPort>,
    pub(super) output_names: Vec<Py<PyString>>,
    /// Number of this member in its group, from 0.
    pub(super) rank: usize,
    /// Number of members of the group.
    pub(super) size: usize,
    /// Number of threads of a run.
    threads: usize,
}

/// Position of a member in its group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct MemberPlace {
    /// Number of the member in its group, from 0.
    pub(super) rank: usize,
    /// Number of members of the group.
    pub(super) size: usize,
}

impl PyMember {
    /// Makes the base object of a worker or rank, whose method `close` closes `open`.
    pub(super) fn new(
        py: Python<'_>,
        open: Arc<dyn Close>,
        place: MemberPlace,
        threads: usize,
        inputs: &[Port],
        outputs: &[Port],
    ) -> PyMember {
        let names = outputs.iter().map(|port| PyString::intern(py, port.name()).unbind());
        let MemberPlace { rank, size } = place;
        PyMember {
            open,
            output_names: names.collect(),
            inputs: inputs.iter().cloned().map(PyPort).collect(),
            outputs: outputs.iter().cloned().map(PyPort).collect(),
            rank,
            size,
            threads,
        }
    }

    /// Converts the outputs of a run to a dict by name: all outputs, or the outputs at the indices
    /// `wanted`.
    pub(super) fn outputs_to_dict<'py>(
        &self,
        py: Python<'py>,
        outputs: Outputs,
        wanted: Option<&[usize]>,
    ) -> PyResult<Bound<'py, PyDict>> {
        let values = to_objects(py, outputs, wanted)?;
        to_dict(py, &self.output_names, values, wanted)
    }
}

#[pymethods]
impl PyMember {
    /// Ends the work of this member and closes its connections. When worker 0 is closed, `serve`
    /// returns on the other workers.
    fn close(&self, py: Python<'_>) {
        close(py, &*self.open);
    }

    /// Returns the member, which is closed at the end of the block.
    fn __enter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    /// Closes the member. An exception that ends the block is reported to the other members, whose
    /// calls raise an error.
    #[pyo3(signature = (kind=None, value=None, trace=None))]
    fn __exit__(
        &self,
        py: Python<'_>,
        kind: Option<&Bound<'_, PyAny>>,
        value: Option<&Bound<'_, PyAny>>,
        trace: Option<&Bound<'_, PyAny>>,
    ) {
        let _ = (kind, trace);
        close_after_block(py, &*self.open, value);
    }

    /// Returns the number of this member, from 0.
    #[getter]
    fn rank(&self) -> usize {
        self.rank
    }

    /// Returns the number of members of the group.
    #[getter]
    fn size(&self) -> usize {
        self.size
    }

    /// Returns the number of threads of a run in this process, including the calling thread. The
    /// devices of a worker share them.
    #[getter]
    fn threads(&self) -> usize {
        self.threads
    }

    /// Returns the inputs of a run as a list of `Port`, in the order of the model.
    #[getter]
    fn inputs(&self) -> Vec<PyPort> {
        self.inputs.clone()
    }

    /// Returns the outputs of a run as a list of `Port`, in the order of the model.
    #[getter]
    fn outputs(&self) -> Vec<PyPort> {
        self.outputs.clone()
    }
}

//! `Rank`: one of several programs that each run a model of their own, connected by collective
//! operators.

use pyo3::prelude::*;
use pyo3::types::PyDict;
use sardonyx::{RunOptions, Session};

use super::engine::find_output_indices;
use super::group::{Connection, Handle, parse_deadline};
use super::member::PyMember;
use super::opened::open_model;
use super::settings::Settings;
use super::take::InputConverter;
use super::{PyStopFlag, make_call_limits};

/// One of several programs that each run a model of their own, with collective operators that
/// exchange values between them.
///
/// Such models are written by `sardonyx.shard(local=True)`, by `sardonyx shard --local` and by
/// other tools. `model` is the model of this rank, or one that all ranks share: a path, the bytes
/// of a model, or an object with `SerializeToString`. `transport` carries messages to the other
/// ranks; see `sardonyx.distributed.Transport`. `deadline` is the time in seconds after which a
/// silent rank counts as lost. `threads`, `precision`, `memory_limit`, `dims` and `seed` have the
/// meanings they have in `Session`.
///
/// All ranks must be created at the same time and call `run` equally often. If one rank fails, the
/// calls of all ranks raise an error that names it, and no rank can run again.
///
/// The constructor waits until all ranks are connected. Raises `sardonyx.Error` if a rank is
/// missing or has collectives that do not match, or if the model cannot be opened or is not
/// supported.
#[pyclass(frozen, extends = PyMember, name = "Rank", module = "sardonyx.distributed")]
pub(crate) struct PyRank {
    /// Session of the rank; `None` inside once the rank is closed.
    open: Handle<Session>,
}

#[pymethods]
impl PyRank {
    #[new]
    #[pyo3(signature = (
        model, transport, *, deadline=60.0, threads=None, precision="exact", memory_limit=None,
        dims=None, seed=None
    ))]
    #[expect(clippy::too_many_arguments, reason = "arguments of the Python function")]
    fn new(
        model: &Bound<'_, PyAny>,
        transport: &Bound<'_, PyAny>,
        deadline: f64,
        threads: Option<i128>,
        precision: &str,
        memory_limit: Option<i128>,
        dims: Option<&Bound<'_, PyDict>>,
        seed: Option<i128>,
    ) -> PyResult<PyClassInitializer<PyRank>> {
        let py = model.py();
        let settings = Settings::new(py, threads, precision, memory_limit, dims, seed)?;
        let connection = Connection::new(py, Some(transport), parse_deadline(py, deadline)?)?;
        let made = open_model(model).inspect_err(|error| connection.report_failure(error));
        let made = made.and_then(|(model, _)| {
            connection.build_session(py, || {
                let builder = settings.apply_to(Session::builder(&model));
                match connection.transport() {
                    Some(transport) => builder.transport(transport),
                    None => builder,
                }
                .build()
            })
        });
        let session = match made {
            Ok(session) => session,
            Err(error) => {
                connection.end(py);
                return Err(error);
            }
        };
        let (place, threads) = (connection.place(), session.threads());
        let (inputs, outputs) = (session.inputs().to_vec(), session.outputs().to_vec());
        let open = Handle::new(py, session, connection, "rank")?;
        let member = PyMember::new(py, open.as_close(), place, threads, &inputs, &outputs);
        Ok(PyClassInitializer::from(member).add_subclass(PyRank { open }))
    }

    /// Runs the model of this rank, while the other ranks run theirs, and returns a dict of outputs
    /// by name.
    ///
    /// `feeds` is a dict of inputs by name. `outputs` lists the names of the outputs to return; the
    /// default is all. `timeout` is a time limit in seconds, and `stop` is a `StopFlag` that
    /// cancels the run; either ends the work of all ranks.
    #[pyo3(signature = (feeds, *, outputs=None, timeout=None, stop=None))]
    fn run<'py>(
        slf: &Bound<'py, Self>,
        feeds: &Bound<'py, PyAny>,
        outputs: Option<&Bound<'py, PyAny>>,
        timeout: Option<f64>,
        stop: Option<&Bound<'py, PyStopFlag>>,
    ) -> PyResult<Bound<'py, PyDict>> {
        let py = slf.py();
        let (member, open) = (slf.as_super().get(), &slf.get().open);
        let of_call = make_call_limits(stop, timeout)?;
        let picked =
            outputs.map(|names| find_output_indices(names, &member.output_names)).transpose()?;
        let mut converter = InputConverter::default();
        let values =
            open.convert_inputs(feeds, &member.inputs, &mut converter, |session, name| {
                session.input(name).map(|_| ())
            })?;
        let found = open.with_session(py, of_call.stop, |open, stop| {
            let mut options = RunOptions::new().stop(stop);
            options.deadline = of_call.deadline;
            open.session.run(values, &options)
        });
        let dict = found.and_then(|outputs| member.outputs_to_dict(py, outputs, picked.as_deref()));
        // Releases the borrowed buffers here, where this thread holds the GIL.
        drop(converter);
        dict
    }

    fn __repr__(slf: &Bound<'_, Self>) -> String {
        let member = slf.as_super().get();
        format!("Rank(rank {} of {})", member.rank, member.size)
    }
}

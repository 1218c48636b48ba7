//! `Rank`: one of several programs that each run a model of their own, whose collectives connect
//! them.

use pyo3::prelude::*;
use pyo3::types::PyDict;
use sardonyx::{RunOptions, Session};

use super::engine::wanted;
use super::group::{Connection, Handle, deadline_of};
use super::member::PyMember;
use super::opened::opened;
use super::settings::Settings;
use super::take::Taker;
use super::{PyStopFlag, limits_of};

/// One of several ranks that each run a model of their own with collectives: those that `sardonyx
/// shard --local` and other tools write.
///
/// `model` is what a `Session` takes: the model of this rank, or one that all ranks have.
/// `transport` carries messages to the other ranks; it is what a `Worker` takes. `deadline` is how
/// many seconds a rank waits for another one before that is taken for lost. The other options are
/// those of `Session`.
///
/// All ranks make their sessions at the same time and call `run` equally often. If a run of one
/// fails, the calls of all end with an error that names the rank, and none of them can run any
/// more.
///
/// Waits until all ranks are there. Raises `sardonyx.Error` if one is missing or has collectives
/// that do not fit, or if the model cannot be opened or run.
#[pyclass(frozen, extends = PyMember, name = "Rank", module = "sardonyx.distributed")]
pub(crate) struct PyRank {
    open: Handle<Session>,
}

#[pymethods]
impl PyRank {
    #[new]
    #[pyo3(signature = (
        model, transport, *, deadline=60.0, threads=None, precision="exact", memory_limit=None,
        dims=None, seed=None
    ))]
    #[expect(clippy::too_many_arguments, reason = "those of the function in Python")]
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
        let connection = Connection::new(py, Some(transport), deadline_of(py, deadline)?)?;
        let made = opened(model).inspect_err(|error| connection.fail(error));
        let made = made.and_then(|(model, _)| {
            connection.make(py, || {
                let builder = settings.applied(Session::builder(&model));
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
        let member = PyMember::new(py, open.closing(), place, threads, (&inputs, &outputs));
        Ok(PyClassInitializer::from(member).add_subclass(PyRank { open }))
    }

    /// Runs the model of this rank on inputs by name, together with the runs of the other ranks,
    /// and returns a dict of its outputs by name.
    ///
    /// `outputs` names those that are wanted; all by default. `timeout` ends the run after some
    /// seconds, and `stop` when another thread raises the flag; both end the work of all ranks.
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
        let of_call = limits_of(stop, timeout)?;
        let picked = outputs.map(|names| wanted(names, &member.output_names)).transpose()?;
        let mut taker = Taker::default();
        let known = |session: &Session, name: &str| session.input(name).map(|_| ());
        let values = open.values(feeds, &member.inputs, &mut taker, known)?;
        let found = open.with(py, of_call.stop, |open, stop| {
            let mut options = RunOptions::new().stop(stop);
            options.deadline = of_call.deadline;
            open.session.run(values, &options)
        });
        let dict = found.and_then(|outputs| member.dict(py, outputs, picked.as_deref()));
        // What is lent is given back here, where the interpreter is held.
        drop(taker);
        dict
    }

    fn __repr__(slf: &Bound<'_, Self>) -> String {
        let member = slf.as_super().get();
        format!("Rank(rank {} of {})", member.rank, member.size)
    }
}

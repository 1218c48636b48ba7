//! `Worker`: one of several programs that run a model together, each some of its devices.

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyTuple};
use sardonyx::device::{DeviceOptions, DeviceSession, OutputPart, Results};
use sardonyx::{Outputs, RunOptions, Session};

use super::engine::wanted;
use super::errors::wrong_argument;
use super::give;
use super::group::{Connection, Handle, deadline_of};
use super::member::PyMember;
use super::opened::opened;
use super::settings::Settings;
use super::take::Taker;
use super::{PyStopFlag, limits_of};

/// What a run gives a worker.
enum Served {
    Outputs(Outputs),
    Parts(Vec<OutputPart>),
}

/// One of several workers that run a model on the devices of one of its configurations.
///
/// `model` is what a `Session` takes; all workers open the same one with the same options.
/// `configuration` is the name of the configuration; the only one of the model if it is None.
/// `transport` carries messages to the other workers; without it there are none, and each device
/// is a thread of this process. It is an object with `rank`, the number of this
/// worker, `size`, the number of all, `send(to, data)` and `recv(timeout)`, which returns
/// `(source, data)`, or None if nothing came in so many seconds. Each of the two methods is called
/// by one thread, not the same for both. `send` may wait until the other worker receives.
/// `deadline` is how many seconds a worker waits for another one before that is taken for lost.
/// `results` says who gets what runs give: `"first"`, worker 0; `"all"` workers, which get them
/// by `serve`; or `"split"`: outputs stay on the devices, and each worker gets what its own devices
/// have, for each output a list of `sardonyx.distributed.OutputPart`. `threads`, `precision` and
/// `seed` are those of `Session`; by default, the devices of this worker share the processors.
///
/// Devices are spread evenly over the workers. Worker 0 calls `run` or `run_many`, all others
/// `serve`, which ends when worker 0 is closed. A node that fails, or a limit, ends one run, on all
/// workers. If a worker fails otherwise or is lost, the calls of all end with an error that names
/// it, and none of them can run any more.
///
/// Waits until all workers are there. Raises `sardonyx.Error` if one is missing or has another
/// model or other options, or if the model cannot be opened or run.
#[pyclass(frozen, extends = PyMember, name = "Worker", module = "sardonyx.distributed")]
pub(crate) struct PyWorker {
    open: Handle<DeviceSession>,
    devices: usize,
    results: Results,
}

#[pymethods]
impl PyWorker {
    #[new]
    #[pyo3(signature = (
        model, configuration=None, *, transport=None, deadline=60.0, results="first", threads=None,
        precision="exact", seed=None
    ))]
    #[expect(clippy::too_many_arguments, reason = "those of the function in Python")]
    fn new(
        model: &Bound<'_, PyAny>,
        configuration: Option<String>,
        transport: Option<&Bound<'_, PyAny>>,
        deadline: f64,
        results: &str,
        threads: Option<i128>,
        precision: &str,
        seed: Option<i128>,
    ) -> PyResult<PyClassInitializer<PyWorker>> {
        let py = model.py();
        let results = match results {
            "first" => Results::First,
            "all" => Results::All,
            "split" => Results::Split,
            _ => {
                let what = format!("results is {results:?}, which does not exist");
                let help = "use 'first', 'all' or 'split'";
                return Err(wrong_argument(py, what, Some(help)));
            }
        };
        let settings = Settings::new(py, threads, precision, None, None, seed)?;
        let deadline = deadline_of(py, deadline)?;
        let connection = Connection::new(py, transport, deadline)?;
        let mut options = DeviceOptions::new().deadline(deadline).results(results);
        if let Some(transport) = connection.transport() {
            options = options.transport(transport);
        }
        if let Some(name) = configuration {
            options = options.configuration(name);
        }
        let made = opened(model).inspect_err(|error| connection.fail(error));
        let made = made.and_then(|(model, _)| {
            let session = connection
                .make(py, || settings.applied(Session::builder(&model)).devices(options))?;
            Ok((model, session))
        });
        let (model, session) = match made {
            Ok(made) => made,
            Err(error) => {
                connection.end(py);
                return Err(error);
            }
        };
        let place = (session.worker(), connection.place().1);
        let (threads, devices) = (session.threads(), session.device_count());
        let (inputs, outputs) = (session.inputs().to_vec(), model.outputs());
        let open = Handle::new(py, session, connection, "worker")?;
        let member = PyMember::new(py, open.closing(), place, threads, (&inputs, &outputs));
        Ok(PyClassInitializer::from(member).add_subclass(PyWorker { open, devices, results }))
    }

    /// Runs the model on inputs by name and returns a dict of its outputs by name. For worker 0.
    ///
    /// `outputs` names those that are wanted; all by default. `timeout` ends the run after some
    /// seconds, and `stop` when another thread raises the flag; both end the run on all workers.
    #[pyo3(signature = (feeds, *, outputs=None, timeout=None, stop=None))]
    fn run<'py>(
        slf: &Bound<'py, Self>,
        feeds: &Bound<'py, PyAny>,
        outputs: Option<&Bound<'py, PyAny>>,
        timeout: Option<f64>,
        stop: Option<&Bound<'py, PyStopFlag>>,
    ) -> PyResult<Bound<'py, PyDict>> {
        let py = feeds.py();
        let runs = PyList::new(py, [feeds])?;
        let found = run_all(slf, runs.as_any(), outputs, (timeout, stop))?;
        Ok(found.into_iter().next().unwrap_or_else(|| PyDict::new(py)))
    }

    /// Runs the model on each of several sets of inputs, and returns a list of dicts of outputs.
    /// Devices do not wait for each other between runs. For worker 0.
    #[pyo3(signature = (feeds, *, outputs=None, timeout=None, stop=None))]
    fn run_many<'py>(
        slf: &Bound<'py, Self>,
        feeds: &Bound<'py, PyAny>,
        outputs: Option<&Bound<'py, PyAny>>,
        timeout: Option<f64>,
        stop: Option<&Bound<'py, PyStopFlag>>,
    ) -> PyResult<Vec<Bound<'py, PyDict>>> {
        run_all(slf, feeds, outputs, (timeout, stop))
    }

    /// Runs the devices of this worker whenever worker 0 runs the model, until that is closed. For
    /// all workers but 0.
    ///
    /// `take` is called with a dict of outputs by name for each run that worker 0 makes, if the
    /// workers were made with `results="all"` or `results="split"`. An exception that it raises
    /// ends the work of all.
    #[pyo3(signature = (take=None))]
    fn serve(slf: &Bound<'_, Self>, take: Option<Py<PyAny>>) -> PyResult<()> {
        let (py, PyWorker { open, results, .. }) = (slf.py(), slf.get());
        let member = slf.as_super().get();
        if take.is_some() && *results == Results::First {
            let what = "results are for worker 0 alone, so take is never called";
            let help = "make all workers with results='all' or results='split'";
            return Err(wrong_argument(py, what, Some(help)));
        }
        let mut raised = None;
        let served = open.with(py, None, |open, stop| {
            let mut hand = |served: Served| {
                let Some(take) = take.as_ref().filter(|_| raised.is_none()) else { return };
                let taken = Python::attach(|py| {
                    let outputs = match served {
                        Served::Outputs(outputs) => member.dict(py, outputs, None)?,
                        Served::Parts(parts) => parts_by_name(py, member, parts, None)?,
                    };
                    take.call1(py, (outputs,)).map(|_| ())
                });
                if let Err(error) = taken {
                    open.connection.fail(&error);
                    raised = Some(error);
                }
            };
            match results {
                Results::Split => {
                    open.session.serve_split(stop, |parts| hand(Served::Parts(parts)))
                }
                _ => open.session.serve(stop, |outputs| hand(Served::Outputs(outputs))),
            }
        });
        raised.map_or(served, Err)
    }

    /// How many devices the model runs on, those of all workers together.
    #[getter]
    fn devices(&self) -> usize {
        self.devices
    }

    fn __repr__(slf: &Bound<'_, Self>) -> String {
        let (member, devices) = (slf.as_super().get(), slf.get().devices);
        format!("Worker(rank {} of {}, {devices} devices)", member.rank, member.size)
    }
}

/// Runs the model on each of several sets of inputs.
fn run_all<'py>(
    worker: &Bound<'py, PyWorker>,
    feeds: &Bound<'py, PyAny>,
    outputs: Option<&Bound<'py, PyAny>>,
    (timeout, stop): (Option<f64>, Option<&Bound<'py, PyStopFlag>>),
) -> PyResult<Vec<Bound<'py, PyDict>>> {
    let (py, PyWorker { open, results, .. }) = (feeds.py(), worker.get());
    let member = worker.as_super().get();
    let of_call = limits_of(stop, timeout)?;
    let picked = outputs.map(|names| wanted(names, &member.output_names)).transpose()?;
    let mut taker = Taker::default();
    let mut runs = Vec::new();
    for feeds in feeds.try_iter()? {
        let known = |session: &DeviceSession, name: &str| session.input(name).map(|_| ());
        runs.push(open.values(&feeds?, &member.inputs, &mut taker, known)?);
    }
    let found = open.with(py, of_call.stop, |open, stop| {
        let mut options = RunOptions::new().stop(stop);
        options.deadline = of_call.deadline;
        match results {
            Results::Split => {
                let found = open.session.run_split(runs, &options)?;
                Ok(found.into_iter().map(Served::Parts).collect::<Vec<_>>())
            }
            _ => {
                let found = open.session.run_many(runs, &options)?;
                Ok(found.into_iter().map(Served::Outputs).collect())
            }
        }
    });
    let dicts = found?.into_iter().map(|served| match served {
        Served::Outputs(outputs) => member.dict(py, outputs, picked.as_deref()),
        Served::Parts(parts) => parts_by_name(py, member, parts, picked.as_deref()),
    });
    let dicts = dicts.collect();
    // What is lent is given back here, where the interpreter is held.
    drop(taker);
    dicts
}

/// The parts of the outputs of a run, or of those that are wanted, that devices of this worker
/// have.
fn parts_by_name<'py>(
    py: Python<'py>,
    member: &PyMember,
    parts: Vec<OutputPart>,
    wanted: Option<&[usize]>,
) -> PyResult<Bound<'py, PyDict>> {
    let class = py.import("sardonyx._values")?.getattr("OutputPart")?;
    let mut of_output: Vec<Vec<Bound<'py, PyAny>>> = vec![Vec::new(); member.outputs.len()];
    for part in parts {
        let output = member.outputs.iter().position(|port| port.0.name() == part.output);
        let Some(list) = output.and_then(|output| of_output.get_mut(output)) else { continue };
        let ranges = part
            .ranges
            .iter()
            .map(|axis| PyTuple::new(py, axis.iter().map(|range| (range.start, range.end))));
        let ranges = PyTuple::new(py, ranges.collect::<PyResult<Vec<_>>>()?)?;
        let shape = PyTuple::new(py, &part.dims)?;
        let value = give::object(py, part.value)?;
        list.push(class.call1((part.device, shape, ranges, value))?);
    }
    let dict = PyDict::new(py);
    let all: Vec<usize> = (0..member.outputs.len()).collect();
    for index in wanted.unwrap_or(&all) {
        dict.set_item(&member.output_names[*index], std::mem::take(&mut of_output[*index]))?;
    }
    Ok(dict)
}

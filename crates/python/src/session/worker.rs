//! `Worker`: one of several programs that run one model together, each on some of its devices.

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyTuple};
use sardonyx::device::{DeviceOptions, DeviceSession, OutputPart, Results};
use sardonyx::{Outputs, RunOptions, Session};

use super::engine::find_output_indices;
use super::errors::argument_error;
use super::give;
use super::group::{Connection, Handle, parse_deadline};
use super::limits::Limits;
use super::member::{MemberPlace, PyMember};
use super::opened::open_model;
use super::settings::Settings;
use super::take::InputConverter;
use super::{PyStopFlag, make_call_limits};

/// Outputs of one run that this worker receives.
enum Served {
    /// Complete tensors of all outputs.
    Outputs(Outputs),
    /// Shards of outputs that the devices of this worker hold.
    Parts(Vec<OutputPart>),
}

/// One of several programs that run one model together, on the devices of one of its
/// configurations.
///
/// `model` is a path, the bytes of a model, or an object with `SerializeToString`; all workers must
/// open the same model with the same options. `configuration` is the name of the device
/// configuration; None selects the only configuration of the model. `transport` carries messages to
/// the other workers; without it there is one worker, and each device is a thread of this process.
///
/// A transport has the attributes `rank`, the number of this worker, and `size`, the number of
/// workers, and two methods: `send(to, data)`, which may block until the other worker receives, and
/// `recv(timeout)`, which returns `(source, data)`, or None if no message arrives within `timeout`
/// seconds. One thread calls `send`, another one `recv`.
///
/// `deadline` is the time in seconds after which a silent worker counts as lost. `results` selects
/// the workers that receive the outputs of a run: `"first"`, worker 0 alone; `"all"`, every worker,
/// through `serve`; `"split"`, every worker the shards that its own devices hold, as a list of
/// `sardonyx.distributed.OutputPart` for each output. `threads`, `precision` and `seed` have the
/// meanings they have in `Session`; by default, the devices of this worker share the processors.
///
/// Devices are distributed evenly over the workers. Worker 0 calls `run` or `run_many`, all others
/// call `serve`, which returns when worker 0 is closed. An error of a node, a time limit or a stop
/// flag ends one run on all workers. After any other failure, or if a worker is lost, the calls of
/// all workers raise an error that names the worker, and no worker can run again.
///
/// The constructor waits until all workers are connected. Raises `sardonyx.Error` if a worker is
/// missing or has another model or other options, or if the model cannot be opened or is not
/// supported.
#[pyclass(frozen, extends = PyMember, name = "Worker", module = "sardonyx.distributed")]
pub(crate) struct PyWorker {
    /// Session of the worker; `None` inside once the worker is closed.
    open: Handle<DeviceSession>,
    /// Number of devices of all workers.
    devices: usize,
    /// Workers that receive the outputs of a run.
    results: Results,
}

#[pymethods]
impl PyWorker {
    #[new]
    #[pyo3(signature = (
        model, configuration=None, *, transport=None, deadline=60.0, results="first", threads=None,
        precision="exact", seed=None
    ))]
    #[expect(clippy::too_many_arguments, reason = "arguments of the Python function")]
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
                return Err(argument_error(py, what, Some(help)));
            }
        };
        let settings = Settings::new(py, threads, precision, None, None, seed)?;
        let deadline = parse_deadline(py, deadline)?;
        let connection = Connection::new(py, transport, deadline)?;
        let mut options = DeviceOptions::new().deadline(deadline).results(results);
        if let Some(transport) = connection.transport() {
            options = options.transport(transport);
        }
        if let Some(name) = configuration {
            options = options.configuration(name);
        }
        let made = open_model(model).inspect_err(|error| connection.report_failure(error));
        let made = made.and_then(|(model, _)| {
            let session = connection.build_session(py, || {
                settings.apply_to(Session::builder(&model)).devices(options)
            })?;
            Ok((model, session))
        });
        let (model, session) = match made {
            Ok(made) => made,
            Err(error) => {
                connection.end(py);
                return Err(error);
            }
        };
        let place = MemberPlace { rank: session.worker(), size: connection.place().size };
        let (threads, devices) = (session.threads(), session.device_count());
        let (inputs, outputs) = (session.inputs().to_vec(), model.outputs());
        let open = Handle::new(py, session, connection, "worker")?;
        let member = PyMember::new(py, open.as_close(), place, threads, &inputs, &outputs);
        Ok(PyClassInitializer::from(member).add_subclass(PyWorker { open, devices, results }))
    }

    /// Runs the model on a dict of inputs by name and returns a dict of outputs by name. Only
    /// worker 0 may call it.
    ///
    /// `outputs` lists the names of the outputs to return; the default is all. `timeout` is a time
    /// limit in seconds, and `stop` is a `StopFlag` that cancels the run; either ends the run on
    /// all workers.
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
        let found = run_all(slf, runs.as_any(), outputs, make_call_limits(stop, timeout)?)?;
        Ok(found.into_iter().next().unwrap_or_else(|| PyDict::new(py)))
    }

    /// Runs the model once for each dict of inputs in `feeds` and returns a list of dicts of
    /// outputs. Only worker 0 may call it.
    ///
    /// Devices that finish one run start the next one without waiting for the others. `outputs`,
    /// `timeout` and `stop` are those of `run`, and apply to all runs together.
    #[pyo3(signature = (feeds, *, outputs=None, timeout=None, stop=None))]
    fn run_many<'py>(
        slf: &Bound<'py, Self>,
        feeds: &Bound<'py, PyAny>,
        outputs: Option<&Bound<'py, PyAny>>,
        timeout: Option<f64>,
        stop: Option<&Bound<'py, PyStopFlag>>,
    ) -> PyResult<Vec<Bound<'py, PyDict>>> {
        run_all(slf, feeds, outputs, make_call_limits(stop, timeout)?)
    }

    /// Runs the devices of this worker for every run of worker 0, and returns when worker 0 is
    /// closed. All workers but worker 0 call it.
    ///
    /// `take` is called after each run with a dict of the outputs by name that this worker
    /// receives; it requires workers with `results="all"` or `results="split"`. An exception in
    /// `take` ends the work of all workers.
    #[pyo3(signature = (take=None))]
    fn serve(slf: &Bound<'_, Self>, take: Option<Py<PyAny>>) -> PyResult<()> {
        let (py, PyWorker { open, results, .. }) = (slf.py(), slf.get());
        let member = slf.as_super().get();
        if take.is_some() && *results == Results::First {
            let what = "take is never called: only worker 0 receives results with results='first'";
            let help = "create all workers with results='all' or results='split'";
            return Err(argument_error(py, what, Some(help)));
        }
        let mut raised = None;
        let served = open.with_session(py, None, |open, stop| {
            let mut call_take = |served: Served| {
                let Some(take) = take.as_ref().filter(|_| raised.is_none()) else { return };
                let taken = Python::attach(|py| {
                    let outputs = match served {
                        Served::Outputs(outputs) => member.outputs_to_dict(py, outputs, None)?,
                        Served::Parts(parts) => group_parts_by_name(py, member, parts, None)?,
                    };
                    take.call1(py, (outputs,)).map(|_| ())
                });
                if let Err(error) = taken {
                    open.connection.report_failure(&error);
                    raised = Some(error);
                }
            };
            match results {
                Results::Split => {
                    open.session.serve_split(stop, |parts| call_take(Served::Parts(parts)))
                }
                _ => open.session.serve(stop, |outputs| call_take(Served::Outputs(outputs))),
            }
        });
        raised.map_or(served, Err)
    }

    /// Returns the number of devices that the model runs on, over all workers.
    #[getter]
    fn devices(&self) -> usize {
        self.devices
    }

    fn __repr__(slf: &Bound<'_, Self>) -> String {
        let (member, devices) = (slf.as_super().get(), slf.get().devices);
        format!("Worker(rank {} of {}, {devices} devices)", member.rank, member.size)
    }
}

/// Runs the model once for each dict of inputs and returns the dicts of outputs, converted as
/// `results` requires.
fn run_all<'py>(
    worker: &Bound<'py, PyWorker>,
    feeds: &Bound<'py, PyAny>,
    outputs: Option<&Bound<'py, PyAny>>,
    limits: Limits,
) -> PyResult<Vec<Bound<'py, PyDict>>> {
    let (py, PyWorker { open, results, .. }) = (feeds.py(), worker.get());
    let member = worker.as_super().get();
    let picked =
        outputs.map(|names| find_output_indices(names, &member.output_names)).transpose()?;
    let mut converter = InputConverter::default();
    let mut runs = Vec::new();
    for feeds in feeds.try_iter()? {
        runs.push(open.convert_inputs(
            &feeds?,
            &member.inputs,
            &mut converter,
            |session, name| session.input(name).map(|_| ()),
        )?);
    }
    let found = open.with_session(py, limits.stop, |open, stop| {
        let mut options = RunOptions::new().stop(stop);
        options.deadline = limits.deadline;
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
        Served::Outputs(outputs) => member.outputs_to_dict(py, outputs, picked.as_deref()),
        Served::Parts(parts) => group_parts_by_name(py, member, parts, picked.as_deref()),
    });
    let dicts = dicts.collect();
    // Releases the borrowed buffers here, where this thread holds the GIL.
    drop(converter);
    dicts
}

/// Groups the output shards of this worker's devices by output: a dict of lists of `OutputPart`,
/// for all outputs, or the outputs at the indices `wanted`.
fn group_parts_by_name<'py>(
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
        let value = give::to_python(py, part.value)?;
        list.push(class.call1((part.device, shape, ranges, value))?);
    }
    let dict = PyDict::new(py);
    let all: Vec<usize> = (0..member.outputs.len()).collect();
    for index in wanted.unwrap_or(&all) {
        dict.set_item(&member.output_names[*index], std::mem::take(&mut of_output[*index]))?;
    }
    Ok(dict)
}

//! `Worker`: one of several programs that run a model together, each some of its devices.
//!
//! What connects them is an object of Python. Two threads call it ([`Channels`]), so it takes the
//! interpreter where it needs it, and whoever waits for a message does not hold it.

mod channel;

use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread;
use std::time::Duration;

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyList, PyString};
use sardonyx::devices::{Channels, Limits, Results, Settings as DeviceSettings, Transport};
use sardonyx::{
    DeviceOptions, DeviceSession, Error, ErrorKind, Model, Outputs, Session, StopFlag, Value,
};

use super::engine::{by_name, input_name, objects, wanted};
use super::errors::{of_kind, refused};
use super::interrupts::{PAUSE, is_main_thread};
use super::opened::opened;
use super::ports::PyPort;
use super::settings::Settings;
use super::take::{Taker, as_dict};
use super::{PyStopFlag, limits_of};
use channel::{PyChannel, Raised};

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
/// `results` says who gets what runs give: `"first"`, worker 0, or `"all"` workers, which get them
/// by `serve`. `threads`, `precision` and `seed` are those of `Session`; by default, the devices of
/// this worker share the processors.
///
/// Devices are spread evenly over the workers. Worker 0 calls `run` or `run_many`, all others
/// `serve`, which ends when worker 0 is closed. A node that fails, or a limit, ends one run, on all
/// workers. If a worker fails otherwise or is lost, the calls of all end with an error that names
/// it, and none of them can run any more.
///
/// Waits until all workers are there. Raises `sardonyx.Error` if one is missing or has another
/// model or other options, or if the model cannot be opened or run.
#[pyclass(frozen, name = "Worker", module = "sardonyx.distributed")]
pub(crate) struct PyWorker {
    /// None once it is closed.
    open: Arc<Mutex<Option<Arc<Open>>>>,
    inputs: Vec<PyPort>,
    outputs: Vec<PyPort>,
    output_names: Vec<Py<PyString>>,
    rank: usize,
    size: usize,
    devices: usize,
    threads: usize,
    results: Results,
}

/// A worker that is not closed.
///
/// To be dropped without the interpreter: the threads of the transport need it to end.
struct Open {
    session: DeviceSession,
    /// None if there are no other workers.
    transport: Option<Arc<Channels>>,
    raised: Raised,
}

/// Workers to close before Python ends: their threads must not use it any more then.
static OPEN: Mutex<Vec<Weak<Mutex<Option<Arc<Open>>>>>> = Mutex::new(Vec::new());

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
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
        threads: Option<usize>,
        precision: &str,
        seed: Option<u64>,
    ) -> PyResult<PyWorker> {
        let py = model.py();
        let results = match results {
            "first" => Results::First,
            "all" => Results::All,
            _ => {
                let what = format!("results must be 'first' or 'all', not {results:?}");
                return Err(refused(py, what));
            }
        };
        let settings = Settings::new(py, threads, precision, None, None, seed)?;
        // Longer than the second is for ever, and all clocks can say it.
        if !(0.001..=1e9).contains(&deadline) {
            let what = format!("the deadline must be 0.001 or more seconds, not {deadline}");
            return Err(refused(py, what));
        }
        let deadline = Duration::from_secs_f64(deadline);
        let raised = Raised::default();
        let mut starting = Starting { transport: None, raised, deadline, results };
        if let Some(transport) = transport {
            starting.connect(transport)?;
        }
        let made = starting.open(model, configuration, &settings);
        let Starting { transport, raised, .. } = starting;
        let (model, session) = match made {
            Ok(made) => made,
            Err(error) => {
                py.detach(|| drop(transport));
                return Err(error);
            }
        };
        close_at_exit(py)?;
        let outputs = model.outputs();
        let names = outputs.iter().map(|port| PyString::intern(py, port.name()).unbind());
        let worker = PyWorker {
            inputs: session.inputs().iter().cloned().map(PyPort).collect(),
            output_names: names.collect(),
            outputs: outputs.into_iter().map(PyPort).collect(),
            rank: session.worker(),
            size: transport.as_ref().map_or(1, |transport| transport.workers()),
            devices: session.device_count(),
            threads: session.threads(),
            results,
            open: Arc::new(Mutex::new(Some(Arc::new(Open { session, transport, raised })))),
        };
        let mut all = locked(&OPEN);
        all.retain(|one| one.strong_count() > 0);
        all.push(Arc::downgrade(&worker.open));
        Ok(worker)
    }

    /// Runs the model on inputs by name and returns a dict of its outputs by name. For worker 0.
    ///
    /// `outputs` names those that are wanted; all by default. `timeout` ends the run after some
    /// seconds, and `stop` when another thread raises the flag; both end the run on all workers.
    #[pyo3(signature = (feeds, *, outputs=None, timeout=None, stop=None))]
    fn run<'py>(
        &self,
        feeds: &Bound<'py, PyAny>,
        outputs: Option<&Bound<'py, PyAny>>,
        timeout: Option<f64>,
        stop: Option<&Bound<'py, PyStopFlag>>,
    ) -> PyResult<Bound<'py, PyDict>> {
        let py = feeds.py();
        let runs = PyList::new(py, [feeds])?;
        let found = self.run_all(runs.as_any(), outputs, (timeout, stop))?;
        Ok(found.into_iter().next().unwrap_or_else(|| PyDict::new(py)))
    }

    /// Runs the model on each of several sets of inputs, and returns a list of dicts of outputs.
    /// Devices do not wait for each other between runs. For worker 0.
    #[pyo3(signature = (feeds, *, outputs=None, timeout=None, stop=None))]
    fn run_many<'py>(
        &self,
        feeds: &Bound<'py, PyAny>,
        outputs: Option<&Bound<'py, PyAny>>,
        timeout: Option<f64>,
        stop: Option<&Bound<'py, PyStopFlag>>,
    ) -> PyResult<Vec<Bound<'py, PyDict>>> {
        self.run_all(feeds, outputs, (timeout, stop))
    }

    /// Runs the devices of this worker whenever worker 0 runs the model, until that is closed. For
    /// all workers but 0.
    ///
    /// `take` is called with a dict of outputs by name for each run that worker 0 makes, if the
    /// workers were made with `results="all"`. An exception that it raises ends the work of all.
    #[pyo3(signature = (take=None))]
    fn serve(&self, py: Python<'_>, take: Option<Py<PyAny>>) -> PyResult<()> {
        if take.is_some() && self.results == Results::First {
            let what = "results are for worker 0 alone: make all workers with results='all'";
            return Err(refused(py, what.to_string()));
        }
        let mut raised = None;
        let served = self.with_open(py, None, |open, stop| {
            open.session.serve_with(stop, |outputs| {
                let Some(take) = take.as_ref().filter(|_| raised.is_none()) else { return };
                let taken = Python::attach(|py| {
                    let outputs = self.dict(py, outputs, None)?;
                    take.call1(py, (outputs,)).map(|_| ())
                });
                if let Err(error) = taken {
                    fail(open.transport.as_ref(), &error);
                    raised = Some(error);
                }
            })
        });
        raised.map_or(served, Err)
    }

    /// Ends the work of this worker. If it is worker 0, `serve` of the others ends.
    fn close(&self, py: Python<'_>) {
        py.detach(|| close(&self.open));
    }

    fn __enter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    /// Closes the worker. The others are told of the exception that ends the block.
    #[pyo3(signature = (kind=None, value=None, trace=None))]
    fn __exit__(
        &self,
        py: Python<'_>,
        kind: Option<&Bound<'_, PyAny>>,
        value: Option<&Bound<'_, PyAny>>,
        trace: Option<&Bound<'_, PyAny>>,
    ) {
        let _ = (kind, trace);
        if let Some(value) = value {
            let error = PyErr::from_value(value.clone());
            py.detach(|| {
                let open = locked(&self.open).clone();
                open.inspect(|open| fail(open.transport.as_ref(), &error));
            });
        }
        self.close(py);
    }

    /// The number of this worker.
    #[getter]
    fn rank(&self) -> usize {
        self.rank
    }

    /// How many workers there are.
    #[getter]
    fn size(&self) -> usize {
        self.size
    }

    /// How many devices the model runs on, those of all workers together.
    #[getter]
    fn devices(&self) -> usize {
        self.devices
    }

    /// The threads of the devices of this worker.
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

    fn __repr__(&self) -> String {
        let PyWorker { rank, size, devices, .. } = self;
        format!("Worker(rank {rank} of {size}, {devices} devices)")
    }
}

impl Drop for PyWorker {
    fn drop(&mut self) {
        Python::attach(|py| self.close(py));
    }
}

/// What a worker is made with.
struct Starting {
    transport: Option<Arc<Channels>>,
    raised: Raised,
    deadline: Duration,
    results: Results,
}

impl Starting {
    fn connect(&mut self, transport: &Bound<'_, PyAny>) -> PyResult<()> {
        let py = transport.py();
        let channel = PyChannel::new(transport, self.raised.clone())?;
        let settings = DeviceSettings { deadline: self.deadline };
        let transport = py.detach(|| Channels::new(channel, &settings));
        let transport =
            transport.map_err(|error| of_kind(py, ErrorKind::Worker, error.message(), None))?;
        self.transport = Some(Arc::new(transport));
        Ok(())
    }

    /// Opens the model, and waits for the other workers. They are told if that fails here.
    fn open(
        &self,
        model: &Bound<'_, PyAny>,
        configuration: Option<String>,
        settings: &Settings,
    ) -> PyResult<(Model, DeviceSession)> {
        let py = model.py();
        let transport = self.transport.as_ref();
        let (model, _) = opened(model).inspect_err(|error| fail(transport, error))?;
        let mut options = DeviceOptions::new().deadline(self.deadline).results(self.results);
        if let Some(transport) = transport {
            options = options.transport(transport.clone());
        }
        if let Some(name) = configuration {
            options = options.configuration(name);
        }
        let stop = StopFlag::new();
        let session = attentive(py, transport, &stop, || {
            settings.applied(Session::builder(&model)).devices(options)
        })?;
        let session = session.map_err(|error| {
            let exception = self.raised.because(py, &error);
            // What workers say about each other, the others find out themselves.
            if error.kind() != ErrorKind::Worker {
                fail(transport, &exception);
            }
            exception
        })?;
        Ok((model, session))
    }
}

impl PyWorker {
    fn run_all<'py>(
        &self,
        feeds: &Bound<'py, PyAny>,
        outputs: Option<&Bound<'py, PyAny>>,
        (timeout, stop): (Option<f64>, Option<&Bound<'py, PyStopFlag>>),
    ) -> PyResult<Vec<Bound<'py, PyDict>>> {
        let py = feeds.py();
        let of_call = limits_of(stop, timeout)?;
        let picked = outputs.map(|names| wanted(names, &self.output_names)).transpose()?;
        let mut taker = Taker::default();
        let mut runs = Vec::new();
        for feeds in feeds.try_iter()? {
            runs.push(self.values(&feeds?, &mut taker)?);
        }
        let found = self.with_open(py, of_call.stop, |open, stop| {
            let mut limits = Limits::default();
            limits.stop = Some(stop.clone());
            limits.deadline = of_call.deadline;
            open.session.run_many(runs, &limits)
        });
        let dicts = found?.into_iter().map(|outputs| self.dict(py, outputs, picked.as_deref()));
        let dicts = dicts.collect();
        // What is lent is given back here, where the interpreter is held.
        drop(taker);
        dicts
    }

    /// Inputs by name.
    fn values(
        &self,
        feeds: &Bound<'_, PyAny>,
        taker: &mut Taker,
    ) -> PyResult<Vec<(String, Value)>> {
        let py = feeds.py();
        let mut values = Vec::new();
        for (key, value) in as_dict(feeds)?.iter() {
            let name = input_name(&key)?;
            let Some(PyPort(port)) = self.inputs.iter().find(|PyPort(port)| port.name() == name)
            else {
                // For its words.
                self.with_open(py, None, |open, _| open.session.input(&name).map(|_| ()))?;
                continue;
            };
            if let Some(value) = taker.given(&value, port)? {
                values.push((name, value));
            }
        }
        Ok(values)
    }

    /// The outputs of a run, or those that are wanted.
    fn dict<'py>(
        &self,
        py: Python<'py>,
        outputs: Outputs,
        wanted: Option<&[usize]>,
    ) -> PyResult<Bound<'py, PyDict>> {
        let values = objects(py, outputs, wanted)?;
        by_name(py, &self.output_names, values, wanted)
    }

    /// Does something with the open worker, without the interpreter.
    fn with_open<R: Send>(
        &self,
        py: Python<'_>,
        stop: Option<StopFlag>,
        work: impl FnOnce(&Open, &StopFlag) -> Result<R, Error> + Send,
    ) -> PyResult<R> {
        let Some(open) = locked(&self.open).clone() else {
            return Err(of_kind(py, ErrorKind::Worker, "the worker is closed", None));
        };
        let stop = stop.unwrap_or_default();
        let result = attentive(py, open.transport.as_ref(), &stop, || work(&open, &stop));
        let result = result.and_then(|done| done.map_err(|error| open.raised.because(py, &error)));
        // Another thread may have closed the worker.
        py.detach(|| drop(open));
        result
    }
}

/// Works without the interpreter. In the main thread of Python, an exception that a handler of a
/// signal raises, such as Ctrl-C, ends the work of all workers, and is what this returns.
fn attentive<R: Send>(
    py: Python<'_>,
    transport: Option<&Arc<Channels>>,
    stop: &StopFlag,
    work: impl FnOnce() -> R + Send,
) -> PyResult<R> {
    if !is_main_thread(py) {
        return Ok(py.detach(work));
    }
    py.detach(|| {
        thread::scope(|scope| {
            let (working, ended) = channel::<()>();
            let working = scope.spawn(move || {
                let _until_the_end = working;
                work()
            });
            let mut raised = None;
            while ended.recv_timeout(PAUSE) == Err(RecvTimeoutError::Timeout) {
                let looked = Python::attach(|py| py.check_signals());
                if let (Err(error), None) = (looked, &raised) {
                    stop.stop();
                    fail(transport, &error);
                    raised = Some(error);
                }
            }
            let result = working.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            match raised {
                Some(error) => {
                    // The caller did not raise it.
                    stop.reset();
                    Err(error)
                }
                None => Ok(result),
            }
        })
    })
}

/// Tells the other workers, if there are any, of an exception.
fn fail(transport: Option<&Arc<Channels>>, error: &PyErr) {
    if let Some(transport) = transport {
        let text = error.to_string();
        // An exception without a text, such as that of Ctrl-C.
        transport.fail(text.strip_suffix(": ").unwrap_or(&text));
    }
}

/// Ends the work of a worker, without the interpreter.
fn close(open: &Mutex<Option<Arc<Open>>>) {
    let open = locked(open).take();
    drop(open);
}

/// Has all workers closed before Python ends.
fn close_at_exit(py: Python<'_>) -> PyResult<()> {
    static REGISTERED: PyOnceLock<()> = PyOnceLock::new();
    REGISTERED
        .get_or_try_init(py, || {
            let close_all = wrap_pyfunction!(close_all, py)?;
            py.import("atexit")?.call_method1("register", (close_all,)).map(|_| ())
        })
        .copied()
}

/// Closes all workers.
#[pyfunction]
fn close_all(py: Python<'_>) {
    py.detach(|| {
        let all = std::mem::take(&mut *locked(&OPEN));
        all.iter().filter_map(Weak::upgrade).for_each(|open| close(&open));
    });
}

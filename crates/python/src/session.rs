//! `session`: models that run.

mod arrays;
mod elements;
mod engine;
mod errors;
mod give;
mod group;
mod interrupts;
mod limits;
mod lists;
mod member;
mod memory;
mod opened;
pub(crate) mod ort;
mod ports;
mod rank;
mod settings;
mod shard;
mod take;
mod tensor;
mod test_operators;
mod trainer;
mod training;
mod worker;

use std::cell::Cell;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use sardonyx::StopFlag;
use sardonyx_ort::profile::Recorder;

use crate::errors::Error;
use engine::Engine;
use limits::Limits;
use ports::PyPort;
use settings::Settings;

pub(crate) fn fill(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("Error", module.py().get_type::<Error>())?;
    module.add_class::<PySession>()?;
    module.add_class::<trainer::PyTrainer>()?;
    module.add_class::<trainer::Snapshot>()?;
    module.add_class::<member::PyMember>()?;
    module.add_class::<worker::PyWorker>()?;
    module.add_class::<rank::PyRank>()?;
    module.add_class::<PyPort>()?;
    module.add_class::<memory::PyTensor>()?;
    module.add_class::<PyStopFlag>()?;
    module.add_class::<Deadline>()?;
    interrupts::note_main_thread(module.py())?;
    module.add_function(wrap_pyfunction!(element_types, module)?)?;
    module.add_function(wrap_pyfunction!(training::add_training, module)?)?;
    module.add_function(wrap_pyfunction!(training::differentiate, module)?)?;
    module.add_function(wrap_pyfunction!(shard::shard, module)?)?;
    module.add_function(wrap_pyfunction!(opened::model_content, module)?)
}

/// Every element type: its number in a file, its ONNX name, and what numpy or ml_dtypes calls it.
#[pyfunction]
fn element_types() -> Vec<(i32, &'static str, &'static str)> {
    let all = sardonyx::DataType::ALL.iter();
    all.map(|ty| (ty.number(), ty.name(), elements::name_of(*ty))).collect()
}

thread_local! {
    /// When the runs of this thread end.
    static DEADLINE: Cell<Option<Instant>> = const { Cell::new(None) };
}

/// What ends a run that has no options of its own.
pub(crate) fn limits(stop: Option<&StopFlag>, timeout: Option<Instant>) -> Limits {
    let deadline = match (DEADLINE.get(), timeout) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    };
    Limits { stop: stop.cloned(), deadline, profile: None }
}

/// The limits of a call with these options.
pub(crate) fn limits_of(
    stop: Option<&Bound<'_, PyStopFlag>>,
    timeout: Option<f64>,
) -> PyResult<Limits> {
    let timeout = timeout.map(after).transpose()?;
    Ok(limits(stop.map(|stop| &stop.get().0), timeout))
}

/// The time that is some seconds from now.
pub(crate) fn after(seconds: f64) -> PyResult<Instant> {
    // Longer than this is for ever, and all clocks can say it.
    const LONGEST: f64 = 1e9;
    if seconds.is_nan() || seconds < 0.0 {
        let what = format!("the time must be 0 or more seconds, not {seconds}");
        return Err(PyValueError::new_err(what));
    }
    let duration = Duration::from_secs_f64(seconds.min(LONGEST));
    let now = Instant::now();
    Ok(now.checked_add(duration).unwrap_or(now))
}

/// Ends runs of this thread that take longer, while its block runs.
///
///     with sardonyx.deadline(0.5):
///         session(x)
///
/// A run that is not done by then raises `sardonyx.Error` with the code `stopped`. The time counts
/// from the beginning of the block. Of two that are nested, the earlier holds.
#[pyclass(frozen, name = "deadline", module = "sardonyx")]
pub(crate) struct Deadline {
    seconds: f64,
    /// For each block that is being run: its thread, and the time that held around it.
    before: Mutex<Vec<(ThreadId, Option<Instant>)>>,
}

#[pymethods]
impl Deadline {
    #[new]
    fn new(seconds: f64) -> PyResult<Deadline> {
        after(seconds)?;
        Ok(Deadline { seconds, before: Mutex::default() })
    }

    fn __enter__(&self) -> PyResult<()> {
        let before = DEADLINE.get();
        let until = after(self.seconds)?;
        let mut blocks = self.before.lock().unwrap_or_else(PoisonError::into_inner);
        blocks.push((thread::current().id(), before));
        DEADLINE.set(Some(before.map_or(until, |before| before.min(until))));
        Ok(())
    }

    #[pyo3(signature = (*_args))]
    fn __exit__(&self, _args: &Bound<'_, PyTuple>) {
        let mut blocks = self.before.lock().unwrap_or_else(PoisonError::into_inner);
        let of_thread = |(thread, _): &(ThreadId, _)| *thread == thread::current().id();
        if let Some(last) = blocks.iter().rposition(of_thread) {
            DEADLINE.set(blocks.remove(last).1);
        }
    }
}

/// A flag that ends the runs that look at it; any thread may raise it.
#[pyclass(frozen, name = "StopFlag", module = "sardonyx")]
#[derive(Default)]
pub(crate) struct PyStopFlag(pub(crate) StopFlag);

#[pymethods]
impl PyStopFlag {
    #[new]
    fn new() -> PyStopFlag {
        PyStopFlag::default()
    }

    /// Raises the flag: runs that look at it end before their next step, or the next part of a long
    /// one.
    fn stop(&self) {
        self.0.stop();
    }

    /// Lowers the flag, for runs that begin later.
    fn reset(&self) {
        self.0.reset();
    }

    /// Whether it is up.
    #[getter]
    fn is_raised(&self) -> bool {
        self.0.is_raised()
    }
}

/// What is said of a call in the form of onnxruntime.
const RUN_TAKES: &str = "Session.run takes one positional argument, the inputs: run({'x': x}), or \
                         run({'x': x}, outputs=['y']); run(outputs, inputs) is the form of \
                         sardonyx.InferenceSession and of onnxruntime";

/// A model made ready to run. Any number of threads may use it at once.
///
/// `model` is a path, the bytes of a model, or an object with `SerializeToString`, such as
/// `onnx.ModelProto`. `threads` is the number of threads that a run uses, the calling one included;
/// by default one per processor that the process may use, or what the environment variable
/// `OMP_NUM_THREADS` says. `precision` is `exact` or `fast`, which rounds factors of large products
/// to 16 bits. `memory_limit` bounds the bytes that the session and one run take together. `dims`
/// fixes sizes that the model leaves open, by name. `seed` is what random operators without a seed
/// start from.
///
/// A session keeps no file open and copies what it needs, so a model file may be saved again while
/// the session lives. `mapped=True` keeps weights in the file instead, as memory that processes
/// share; each run then first checks that the file and its data files have not changed.
///
/// Raises `sardonyx.Error` if the model cannot be opened or run.
#[pyclass(frozen, name = "Session", module = "sardonyx")]
pub(crate) struct PySession(pub(crate) Engine);

#[pymethods]
impl PySession {
    #[new]
    #[pyo3(signature = (
        model, *, threads=None, precision="exact", memory_limit=None, dims=None, seed=None,
        mapped=false
    ))]
    fn new(
        model: &Bound<'_, PyAny>,
        threads: Option<i128>,
        precision: &str,
        memory_limit: Option<i128>,
        dims: Option<&Bound<'_, PyDict>>,
        seed: Option<i128>,
        mapped: bool,
    ) -> PyResult<PySession> {
        let py = model.py();
        let settings = Settings::new(py, threads, precision, memory_limit, dims, seed)?;
        let settings = Settings { mapped, ..settings };
        Ok(PySession(Engine::open(model, settings)?))
    }

    /// Runs the model: inputs by position in the order of the model, or by name.
    ///
    /// Returns the output if the model has one, else a tuple of all. `None` leaves out an input
    /// that need not be given.
    #[pyo3(signature = (*args, **kwargs))]
    fn __call__<'py>(
        &self,
        args: &Bound<'py, PyTuple>,
        kwargs: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let py = args.py();
        let mut outputs = self.0.called(args, kwargs, limits(None, None))?;
        match outputs.len() {
            1 => Ok(outputs.remove(0)),
            _ => Ok(PyTuple::new(py, outputs)?.into_any()),
        }
    }

    /// Runs the model on inputs by name and returns a dict of its outputs by name.
    ///
    /// `outputs` names those that are wanted; all by default. `timeout` ends the run after some
    /// seconds, and `stop` when another thread raises the flag.
    #[pyo3(
        signature = (feeds, *more, outputs=None, timeout=None, stop=None),
        text_signature = "($self, feeds, *, outputs=None, timeout=None, stop=None)"
    )]
    fn run<'py>(
        &self,
        feeds: &Bound<'py, PyAny>,
        more: &Bound<'py, PyTuple>,
        outputs: Option<&Bound<'py, PyAny>>,
        timeout: Option<f64>,
        stop: Option<&Bound<'py, PyStopFlag>>,
    ) -> PyResult<Bound<'py, PyDict>> {
        let py = feeds.py();
        if !more.is_empty() {
            return Err(PyTypeError::new_err(RUN_TAKES));
        }
        let limits = limits_of(stop, timeout)?;
        let wanted = outputs.map(|names| self.0.wanted(names)).transpose()?;
        let values = self.0.run(feeds, wanted.as_deref(), limits)?;
        engine::by_name(py, self.0.output_names(), values, wanted.as_deref())
    }

    /// Runs the model `runs` times, after one run that is not counted, and returns how long each
    /// step took: a `sardonyx.Profile`.
    ///
    /// `feeds` are the inputs of each run. `timeout` and `stop` end it as they end `run`; the time
    /// is that of all runs together.
    #[pyo3(signature = (feeds, *, runs=10, timeout=None, stop=None))]
    fn profile<'py>(
        &self,
        feeds: &Bound<'py, PyAny>,
        runs: i128,
        timeout: Option<f64>,
        stop: Option<&Bound<'py, PyStopFlag>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let py = feeds.py();
        if runs < 1 {
            return Err(PyValueError::new_err(format!("runs must be 1 or more, not {runs}")));
        }
        let mut limits = limits_of(stop, timeout)?;
        let nothing = Some(&[][..]);
        self.0.run(feeds, nothing, limits.clone())?;
        let recorder = Arc::new(Recorder::default());
        limits.profile = Some(recorder.clone());
        for _ in 0..runs {
            self.0.run(feeds, nothing, limits.clone())?;
        }
        let runs = recorder.take().into_iter().map(|run| {
            let steps = run.steps.iter().map(|step| (step.number, step.start, step.took));
            (run.start, run.took, steps.collect())
        });
        let runs: Vec<(u64, u64, Vec<(usize, u64, u64)>)> = runs.collect();
        let made = py.import("sardonyx._profile")?.getattr("Profile")?;
        made.call1((self.steps(), runs, self.threads()))
    }

    /// What a run takes, in the order of the model.
    #[getter]
    fn inputs(&self) -> Vec<PyPort> {
        self.0.inputs()
    }

    /// What a run gives back, in the order of the model.
    #[getter]
    fn outputs(&self) -> Vec<PyPort> {
        self.0.outputs()
    }

    /// What the steps of a run are: the name of a node, its operator, and what computes it. Nodes
    /// that are done together are one step.
    fn steps(&self) -> Vec<(String, &'static str, String)> {
        self.0.steps()
    }

    /// How many threads a run uses, the calling one included.
    #[getter]
    fn threads(&self) -> usize {
        self.0.threads()
    }

    /// What the model says about itself: `producer_name`, `producer_version`, `domain`,
    /// `graph_name`, `doc`, `graph_doc`, and `version`, which is None if it does not say.
    #[getter]
    fn info<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let dict = PyDict::new(py);
        for (key, value) in &self.0.facts.texts {
            dict.set_item(key, value)?;
        }
        dict.set_item("version", self.0.facts.version)?;
        Ok(dict)
    }

    /// The metadata of the model, by key.
    #[getter]
    fn metadata<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let dict = PyDict::new(py);
        for (key, value) in &self.0.facts.metadata {
            dict.set_item(key, value)?;
        }
        Ok(dict)
    }

    /// The same session for inputs whose sizes differ where the model gives them one name.
    fn with_independent_sizes(&self, py: Python<'_>) -> PyResult<PySession> {
        Ok(PySession(self.0.with_independent_sizes(py)?))
    }

    /// What notebooks show: inputs, outputs, nodes by operator, and how the session was made.
    fn _repr_html_<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        slf.py().import("sardonyx._notebook")?.call_method1("session", (slf,))
    }

    /// Bytes that the session has computed or packed ahead of time, without what the file stores.
    #[getter]
    fn made_bytes(&self) -> usize {
        self.0.made_bytes()
    }

    /// How exact products are: `exact` or `fast`.
    #[getter]
    fn precision(&self) -> &str {
        self.0.precision()
    }

    fn __repr__(&self) -> String {
        let list =
            |ports: Vec<PyPort>| ports.iter().map(PyPort::text).collect::<Vec<_>>().join(", ");
        format!("Session(({}) => ({}))", list(self.0.inputs()), list(self.0.outputs()))
    }

    /// Sessions are pickled as what they were made of: the path or the bytes of the model, and the
    /// options.
    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyTuple>> {
        let py = slf.py();
        let keywords = slf.get().0.keywords(py)?;
        let partial = py.import("functools")?.getattr("partial")?;
        let make = partial.call((slf.get_type(),), Some(&keywords))?;
        (make, (slf.get().0.source(py),)).into_pyobject(py)
    }
}

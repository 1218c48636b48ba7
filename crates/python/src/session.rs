//! The Python submodule `sardonyx._core.session`: sessions, trainers, workers and ranks that run
//! models.

mod arrays;
mod comparing;
mod editing;
mod elements;
mod engine;
pub(crate) mod errors;
pub(crate) mod give;
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
mod state;
mod take;
mod tensor;
mod test_operators;
mod trainer;
mod training;
mod turns;
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
use crate::items::Items;
use engine::Engine;
use limits::Limits;
use ports::{PyPort, join_ports};
use settings::Settings;
use state::{PySessionState, PyStatePair};

/// Adds the classes and functions of `sardonyx._core.session` to `module`.
pub(crate) fn fill_module(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("Error", module.py().get_type::<Error>())?;
    module.add_class::<PySession>()?;
    module.add_class::<PySessionState>()?;
    module.add_class::<PyStatePair>()?;
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
    module.add_function(wrap_pyfunction!(comparing::compare, module)?)?;
    module.add_function(wrap_pyfunction!(training::add_training, module)?)?;
    module.add_function(wrap_pyfunction!(training::differentiate, module)?)?;
    module.add_function(wrap_pyfunction!(editing::extract, module)?)?;
    module.add_function(wrap_pyfunction!(editing::extract_file, module)?)?;
    module.add_function(wrap_pyfunction!(editing::reduce, module)?)?;
    module.add_function(wrap_pyfunction!(editing::diff, module)?)?;
    module.add_function(wrap_pyfunction!(shard::shard, module)?)?;
    module.add_function(wrap_pyfunction!(opened::model_content, module)?)
}

/// Returns every ONNX element type as a tuple of its number in `TensorProto.DataType`, its ONNX
/// name, and its name in numpy or ml_dtypes.
#[pyfunction]
fn element_types() -> Vec<(i32, &'static str, &'static str)> {
    let all = sardonyx::DataType::ALL.iter();
    all.map(|ty| (ty.number(), ty.name(), elements::find_dtype_name(*ty))).collect()
}

thread_local! {
    /// Time at which runs of this thread are canceled; set by [`Deadline`] blocks, `None` outside
    /// them.
    static DEADLINE: Cell<Option<Instant>> = const { Cell::new(None) };
}

/// Creates the limits of a run from a stop flag, a time limit and the deadline of this thread. The
/// earlier time applies.
pub(crate) fn make_thread_limits(stop: Option<&StopFlag>, timeout: Option<Instant>) -> Limits {
    let deadline = match (DEADLINE.get(), timeout) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    };
    Limits { stop: stop.cloned(), deadline, profile: None }
}

/// Creates the limits of a run from the Python arguments `stop` and `timeout` (seconds from now).
///
/// # Errors
///
/// `ValueError` if the timeout is negative or NaN.
pub(crate) fn make_call_limits(
    stop: Option<&Bound<'_, PyStopFlag>>,
    timeout: Option<f64>,
) -> PyResult<Limits> {
    let timeout = timeout.map(compute_deadline).transpose()?;
    Ok(make_thread_limits(stop.map(|stop| &stop.get().0), timeout))
}

/// Returns the time that lies `seconds` in the future, at most 1e9 seconds (32 years).
///
/// # Errors
///
/// `ValueError` if `seconds` is negative or NaN.
pub(crate) fn compute_deadline(seconds: f64) -> PyResult<Instant> {
    // Practically forever, and still within the range of every platform's `Instant`.
    const LONGEST: f64 = 1e9;
    if seconds.is_nan() || seconds < 0.0 {
        let what = format!("the time limit must be 0 or more seconds, not {seconds}");
        return Err(PyValueError::new_err(what));
    }
    let duration = Duration::from_secs_f64(seconds.min(LONGEST));
    let now = Instant::now();
    Ok(now.checked_add(duration).unwrap_or(now))
}

/// Context manager that ends runs of the current thread at a deadline.
///
///     with sardonyx.deadline(0.5):
///         session(x)
///
/// `seconds` counts from the start of the block. A run that has not finished by then raises
/// `sardonyx.Error` with the code `stopped`. In nested blocks, the earliest deadline applies.
/// Raises `ValueError` if `seconds` is negative or NaN.
#[pyclass(frozen, name = "deadline", module = "sardonyx")]
pub(crate) struct Deadline {
    seconds: f64,
    /// Thread of each active `with` block, and the deadline that applied outside the block.
    before: Mutex<Vec<(ThreadId, Option<Instant>)>>,
}

#[pymethods]
impl Deadline {
    #[new]
    fn new(seconds: f64) -> PyResult<Deadline> {
        compute_deadline(seconds)?;
        Ok(Deadline { seconds, before: Mutex::default() })
    }

    fn __enter__(&self) -> PyResult<()> {
        let before = DEADLINE.get();
        let until = compute_deadline(self.seconds)?;
        let mut blocks = self.before.lock().unwrap_or_else(PoisonError::into_inner);
        blocks.push((thread::current().id(), before));
        DEADLINE.set(Some(before.map_or(until, |before| before.min(until))));
        Ok(())
    }

    #[pyo3(signature = (*_args))]
    fn __exit__(&self, _args: &Bound<'_, PyTuple>) {
        let mut blocks = self.before.lock().unwrap_or_else(PoisonError::into_inner);
        let me = thread::current().id();
        if let Some(last) = blocks.iter().rposition(|(thread, _)| *thread == me) {
            DEADLINE.set(blocks.remove(last).1);
        }
    }
}

/// Flag that cancels the runs it is passed to. Any thread may raise it.
#[pyclass(frozen, name = "StopFlag", module = "sardonyx")]
#[derive(Default)]
pub(crate) struct PyStopFlag(pub(crate) StopFlag);

#[pymethods]
impl PyStopFlag {
    #[new]
    fn new() -> PyStopFlag {
        PyStopFlag::default()
    }

    /// Raises the flag. Runs that hold it end before their next node, or earlier within a long
    /// node, and raise `sardonyx.Error` with the code `stopped`.
    fn stop(&self) {
        self.0.stop();
    }

    /// Lowers the flag, so that it can be passed to later runs.
    fn reset(&self) {
        self.0.reset();
    }

    /// Whether the flag is raised.
    #[getter]
    fn is_raised(&self) -> bool {
        self.0.is_raised()
    }
}

/// Message for `Session.run` called with the positional arguments of onnxruntime.
const RUN_TAKES: &str = "Session.run takes one positional argument, the inputs: run({'x': x}), or \
                         run({'x': x}, outputs=['y']); run(outputs, inputs) is the form of \
                         sardonyx.InferenceSession and of onnxruntime";

/// Model that is ready to run. Any number of threads may use it at once.
///
/// `model` is a path, the bytes of a model, or an object with `SerializeToString`, such as
/// `onnx.ModelProto`. `threads` is the number of threads of a run, including the calling thread;
/// the default is the first number in the environment variable `OMP_NUM_THREADS`, or one thread per
/// available processor. `precision` is `exact`, or `fast`, which rounds operands of large products
/// to 16 bits. `memory_limit` is the maximum number of bytes that the session and one run use
/// together; unlimited by default. `dims` maps names of symbolic dimensions to sizes. `seed`
/// seeds random operators without an attribute `seed`; by default, each run draws new numbers.
///
/// A session keeps no file open and copies what it needs, so the model file may be overwritten
/// while the session lives. `mapped=True` memory-maps the weights instead, so that processes share
/// them; each run then first checks that the model file and its data files are unmodified.
///
/// Raises `sardonyx.Error` if the model cannot be opened or is not supported.
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

    /// Runs the model on inputs given by position, in the order of the model, or by name.
    ///
    /// Returns the output of a model with one output, else a tuple of all outputs. `None` omits an
    /// optional input.
    #[pyo3(signature = (*args, **kwargs))]
    fn __call__<'py>(
        &self,
        args: &Bound<'py, PyTuple>,
        kwargs: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let py = args.py();
        let mut outputs = self.0.call(args, kwargs, make_thread_limits(None, None))?;
        match outputs.len() {
            1 => Ok(outputs.remove(0)),
            _ => Ok(PyTuple::new(py, outputs)?.into_any()),
        }
    }

    /// Runs the model on a dict of inputs by name and returns a dict of outputs by name.
    ///
    /// `outputs` lists the names of the outputs to return; the default is all. `timeout` is a time
    /// limit in seconds. `stop` is a `StopFlag` with which another thread can cancel the run.
    /// Raises `sardonyx.Error`; its code is `input` for an unsuitable input and `stopped` for a
    /// canceled run.
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
        let limits = make_call_limits(stop, timeout)?;
        let wanted = outputs.map(|names| self.0.find_outputs(names)).transpose()?;
        let values = self.0.run(feeds, wanted.as_deref(), limits)?;
        engine::to_dict(py, self.0.output_names(), values, wanted.as_deref())
    }

    /// Makes the state of a series of runs, in which outputs become inputs of the next run, such as
    /// the keys and values of a decoder.
    ///
    /// `pairs` lists `StatePair` objects, or tuples of the name of an input and that of its output;
    /// by default pairs are found by names and types, such as `past_key_values.0.key` with
    /// `present.0.key`. `batch` is the number of sequences. `dims` maps names of other symbolic
    /// dimensions of the kept inputs to sizes. `capacity` is the number of rows that memory is
    /// reserved for; without it, memory doubles when it is full.
    ///
    /// Raises `sardonyx.Error` with the code `argument` without any pair, for a name that does not
    /// exist and for an open size, and with the code `run` if the memory exceeds the limit of the
    /// session.
    #[pyo3(signature = (pairs=None, *, batch=1, dims=None, capacity=0))]
    fn state(
        slf: &Bound<'_, Self>,
        pairs: Option<Items<PyStatePair>>,
        batch: i128,
        dims: Option<&Bound<'_, PyDict>>,
        capacity: i128,
    ) -> PyResult<PySessionState> {
        PySessionState::build(slf, pairs, batch, dims, capacity)
    }

    /// Runs the model `runs` times after one warm-up run and returns the time of each step as a
    /// `sardonyx.Profile`.
    ///
    /// `feeds` is the dict of inputs of every run. `timeout` limits the total time of all runs, in
    /// seconds. `stop` is a `StopFlag` that cancels them. Raises `ValueError` if `runs` is less
    /// than 1.
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
        let mut limits = make_call_limits(stop, timeout)?;
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

    /// Returns the inputs of a run as a list of `Port`, in the order of the model.
    #[getter]
    fn inputs(&self) -> Vec<PyPort> {
        self.0.inputs()
    }

    /// Returns the outputs of a run as a list of `Port`, in the order of the model.
    #[getter]
    fn outputs(&self) -> Vec<PyPort> {
        self.0.outputs()
    }

    /// Returns the steps of a run as tuples of node name, operator and kernel. Nodes that are fused
    /// share one step.
    fn steps(&self) -> Vec<(String, &'static str, String)> {
        self.0.steps()
    }

    /// Returns the number of threads that a run uses, including the calling thread.
    #[getter]
    fn threads(&self) -> usize {
        self.0.threads()
    }

    /// Returns facts about the model in a dict: the texts `producer_name`, `producer_version`,
    /// `domain`, `graph_name`, `doc` and `graph_doc`, and the int `version`, which is None if the
    /// model has no version.
    #[getter]
    fn info<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let dict = PyDict::new(py);
        for (key, value) in &self.0.facts.texts {
            dict.set_item(key, value)?;
        }
        dict.set_item("version", self.0.facts.version)?;
        Ok(dict)
    }

    /// Returns the metadata of the model (`metadata_props`) as a dict of strings.
    #[getter]
    fn metadata<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let dict = PyDict::new(py);
        for (key, value) in &self.0.facts.metadata {
            dict.set_item(key, value)?;
        }
        Ok(dict)
    }

    /// Returns a copy of the session that accepts different sizes for dimensions that share a name
    /// in the model.
    fn with_independent_sizes(&self, py: Python<'_>) -> PyResult<PySession> {
        Ok(PySession(self.0.with_independent_sizes(py)?))
    }

    /// Returns HTML for notebooks: inputs, outputs, the number of nodes by operator, and the
    /// options of the session.
    fn _repr_html_<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        slf.py().import("sardonyx._notebook")?.call_method1("session", (slf,))
    }

    /// Returns the memory of constants that the session computed or packed when it was made, in
    /// bytes. Values stored in the model file do not count.
    #[getter]
    fn made_bytes(&self) -> usize {
        self.0.made_bytes()
    }

    /// Returns the precision of matrix products: `exact` or `fast`.
    #[getter]
    fn precision(&self) -> &str {
        self.0.precision()
    }

    fn __repr__(&self) -> String {
        let (inputs, outputs) = (self.0.inputs(), self.0.outputs());
        let inputs = join_ports(inputs.iter().map(|port| &port.0));
        let outputs = join_ports(outputs.iter().map(|port| &port.0));
        format!("Session(({inputs}) => ({outputs}))")
    }

    /// Pickles the arguments of the session: the path or the bytes of the model, and the options.
    /// Unpickling opens the model again.
    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyTuple>> {
        let py = slf.py();
        let keywords = slf.get().0.to_keywords(py)?;
        let partial = py.import("functools")?.getattr("partial")?;
        let make = partial.call((slf.get_type(),), Some(&keywords))?;
        (make, (slf.get().0.source(py),)).into_pyobject(py)
    }
}

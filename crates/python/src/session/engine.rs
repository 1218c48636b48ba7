//! A session and what Python needs around it: how it was made, names as objects, when the
//! interpreter is released.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::{PyDict, PyList, PyMapping, PyString, PyTuple};
use sardonyx::{
    Dim, ErrorKind, Model, Outputs, Port, Precision, RunOptions, Session, StepEvent, StopFlag,
    Type, Value,
};

use super::errors::{of_kind, raised, refused};
use super::give;
use super::interrupts::Interrupts;
use super::ports::PyPort;
use super::profile::Recorder;
use super::take::{Taker, kind_of, shown};
use crate::message;

/// A run that took less than this is expected to do so again, and is not worth the release of the
/// interpreter: other threads would have to wait for longer to get it back.
const SHORT_NANOSECONDS: u64 = 20_000;

/// A run of a model without loops that took less than this is not expected to be worth an end by
/// Ctrl-C. Looking for signals costs the time of two readings of the clock for each step.
const UNINTERRUPTED_NANOSECONDS: u64 = 1_000_000;

/// How a session is made.
#[derive(Debug, Clone, Default)]
pub(crate) struct Settings {
    pub(crate) threads: Option<usize>,
    pub(crate) precision: String,
    pub(crate) memory_limit: Option<usize>,
    pub(crate) dims: Vec<(String, usize)>,
    pub(crate) seed: Option<u64>,
    /// Whether names in `dims` that no input has are left out instead of refused.
    pub(crate) ignores_other_dims: bool,
}

/// What a model was made of.
enum Source {
    Path(String),
    Bytes(Py<PyAny>),
}

/// What a model says about itself.
pub(crate) struct Facts {
    pub(crate) texts: [(&'static str, String); 6],
    pub(crate) version: Option<i64>,
    pub(crate) metadata: Vec<(String, String)>,
}

/// What may end a run, and who is told of its steps.
#[derive(Debug, Clone, Default)]
pub(crate) struct Limits {
    pub(crate) stop: Option<StopFlag>,
    pub(crate) deadline: Option<Instant>,
    pub(crate) profile: Option<Arc<Recorder>>,
}

pub(crate) struct Engine {
    session: Session,
    model: Model,
    source: Source,
    settings: Settings,
    pub(crate) facts: Facts,
    /// By input and output.
    input_names: Vec<Py<PyString>>,
    output_names: Vec<Py<PyString>>,
    /// How long the last run took.
    last_nanoseconds: AtomicU64,
    /// Whether a run may take turns without end.
    has_loops: bool,
}

/// Sizes by name, of a dict.
pub(crate) fn dims(dims: Option<&Bound<'_, PyDict>>) -> PyResult<Vec<(String, usize)>> {
    let Some(dims) = dims else { return Ok(Vec::new()) };
    let mut pairs = Vec::new();
    for pair in dims.items().iter() {
        let (name, size): (Bound<'_, PyAny>, Bound<'_, PyAny>) = pair.extract()?;
        let made = name.extract::<String>().ok().zip(size.extract::<usize>().ok());
        let Some(pair) = made else {
            let what = format!(
                "dims holds {}: {}, which is not a name with a size of 0 or more",
                shown(&name),
                shown(&size)
            );
            return Err(refused(dims.py(), what));
        };
        pairs.push(pair);
    }
    Ok(pairs)
}

impl Engine {
    /// Opens a model and makes it ready to run.
    pub(crate) fn open(model: &Bound<'_, PyAny>, settings: Settings) -> PyResult<Engine> {
        let py = model.py();
        let messages = py.import("sardonyx._messages")?;
        if messages.call_method1("is_path", (model,))?.is_truthy()? {
            let path: String = messages.call_method1("file_path", (model,))?.extract()?;
            // Where it lies is remembered, wherever the process goes.
            let full = std::path::absolute(&path).unwrap_or_else(|_| PathBuf::from(&path));
            let full = full.to_str().map_or(path.clone(), str::to_string);
            let model = py.detach(|| Model::open(&path)).map_err(|error| raised(py, &error))?;
            return Engine::make(py, model, Source::Path(full), settings);
        }
        let bytes = messages.call_method1("serialized_model", (model,))?;
        let content: PyBackedBytes = bytes.extract()?;
        let model = py.detach(|| Model::from_bytes(message::shared(content)));
        let model = model.map_err(|error| raised(py, &error))?;
        Engine::make(py, model, Source::Bytes(bytes.unbind()), settings)
    }

    fn make(
        py: Python<'_>,
        model: Model,
        source: Source,
        mut settings: Settings,
    ) -> PyResult<Engine> {
        let precision = match settings.precision.as_str() {
            "exact" => Precision::Exact,
            "fast" => Precision::Fast,
            other => {
                let what = format!("precision is '{other}', which is not one of exact, fast");
                return Err(refused(py, what));
            }
        };
        if settings.threads == Some(0) {
            return Err(refused(py, "threads is 0, which is not 1 or more"));
        }
        if settings.ignores_other_dims {
            let names = size_names(&model.inputs());
            settings.dims.retain(|(name, _)| names.contains(name));
        }
        let session = py.detach(|| {
            let mut builder = Session::builder(&model).precision(precision);
            if let Some(threads) = settings.threads.or_else(threads_of_environment) {
                builder = builder.threads(threads);
            }
            if let Some(bytes) = settings.memory_limit {
                builder = builder.memory_limit(bytes);
            }
            if let Some(seed) = settings.seed {
                builder = builder.seed(seed);
            }
            for (name, size) in &settings.dims {
                builder = builder.dim(name, *size);
            }
            builder.build()
        });
        let session = session.map_err(|error| raised(py, &error))?;
        let names = |ports: &[Port]| {
            ports.iter().map(|port| PyString::intern(py, port.name()).unbind()).collect()
        };
        Ok(Engine {
            input_names: names(session.inputs()),
            output_names: names(session.outputs()),
            facts: facts(&model),
            has_loops: session.steps().iter().any(|step| matches!(step.op, "Loop" | "Scan")),
            session,
            model,
            source,
            settings,
            last_nanoseconds: AtomicU64::new(u64::MAX),
        })
    }

    /// The same model with sizes that have nothing to do with each other, whatever their names.
    pub(crate) fn with_independent_sizes(&self, py: Python<'_>) -> PyResult<Engine> {
        let mut model = self.model.clone();
        let fixed: Vec<&str> = self.settings.dims.iter().map(|(name, _)| name.as_str()).collect();
        model.forget_size_names(&fixed);
        let source = match &self.source {
            Source::Path(path) => Source::Path(path.clone()),
            Source::Bytes(bytes) => Source::Bytes(bytes.clone_ref(py)),
        };
        Engine::make(py, model, source, self.settings.clone())
    }

    /// Runs the model on inputs by name; returns the outputs, or those that are wanted, by number.
    pub(crate) fn run<'py>(
        &self,
        feeds: &Bound<'py, PyAny>,
        wanted: Option<&[usize]>,
        limits: Limits,
    ) -> PyResult<Vec<Bound<'py, PyAny>>> {
        let py = feeds.py();
        if let Ok(feeds) = feeds.cast::<PyDict>() {
            return self.run_dict(feeds, wanted, limits);
        }
        let Ok(mapping) = feeds.cast::<PyMapping>() else {
            let found = kind_of(feeds);
            let what = format!("the inputs are {found}, which is not a dict of names and values");
            return Err(refused(py, what));
        };
        let dict = PyDict::new(py);
        dict.update(mapping)?;
        self.run_dict(&dict, wanted, limits)
    }

    fn run_dict<'py>(
        &self,
        feeds: &Bound<'py, PyDict>,
        wanted: Option<&[usize]>,
        limits: Limits,
    ) -> PyResult<Vec<Bound<'py, PyAny>>> {
        let py = feeds.py();
        let mut given = Vec::with_capacity(feeds.len());
        for (index, name) in self.input_names.iter().enumerate() {
            if let Some(value) = feeds.get_item(name.bind(py))? {
                given.push((index, value));
            }
        }
        if given.len() != feeds.len() {
            self.demand_known(feeds)?;
        }
        self.run_given(py, given, wanted, limits)
    }

    /// Refuses names that no input has.
    fn demand_known(&self, feeds: &Bound<'_, PyDict>) -> PyResult<()> {
        let py = feeds.py();
        for key in feeds.keys().iter() {
            let Ok(name) = key.extract::<String>() else {
                let found = shown(&key);
                return Err(refused(py, format!("the name {found} of an input is not a str")));
            };
            self.session.input(&name).map_err(|error| raised(py, &error))?;
        }
        Ok(())
    }

    /// Runs the model on inputs by position, and then by name.
    pub(crate) fn called<'py>(
        &self,
        args: &Bound<'py, PyTuple>,
        kwargs: Option<&Bound<'py, PyDict>>,
        limits: Limits,
    ) -> PyResult<Vec<Bound<'py, PyAny>>> {
        let py = args.py();
        let inputs = self.input_names.len();
        if args.len() > inputs {
            let s = if inputs == 1 { "" } else { "s" };
            let what = format!("the model has {inputs} input{s}, but {} are given", args.len());
            return Err(refused(py, what));
        }
        let mut given: Vec<(usize, Bound<'py, PyAny>)> = args.iter().enumerate().collect();
        if let Some(kwargs) = kwargs {
            for (index, name) in self.input_names.iter().enumerate() {
                let Some(value) = kwargs.get_item(name.bind(py))? else { continue };
                if index < args.len() {
                    let what = format!("the input '{}' is given twice", name.bind(py));
                    return Err(refused(py, what));
                }
                given.push((index, value));
            }
            if given.len() != args.len() + kwargs.len() {
                self.demand_known(kwargs)?;
            }
        }
        self.run_given(py, given, None, limits)
    }

    fn run_given<'py>(
        &self,
        py: Python<'py>,
        given: Vec<(usize, Bound<'py, PyAny>)>,
        wanted: Option<&[usize]>,
        limits: Limits,
    ) -> PyResult<Vec<Bound<'py, PyAny>>> {
        let mut taker = Taker::default();
        let mut inputs: Vec<(String, Value)> = Vec::with_capacity(given.len());
        for (index, object) in given {
            let port = &self.session.inputs()[index];
            if object.is_none() && !matches!(port.ty(), Some(Type::Optional(_))) {
                continue;
            }
            let value = taker.value(&object, port)?;
            inputs.push((port.name().to_string(), value));
        }
        let last = self.last_nanoseconds.load(Ordering::Relaxed);
        let is_short = last < SHORT_NANOSECONDS;
        let has_limits = limits.stop.is_some() || limits.deadline.is_some();
        let keeps_interpreter = is_short && !has_limits && taker.has_copies_only();
        let looks = !keeps_interpreter && (self.has_loops || last >= UNINTERRUPTED_NANOSECONDS);
        let mut interrupts = looks.then(|| Interrupts::new(py, limits.stop.as_ref())).flatten();
        let started = Instant::now();
        let run = || {
            let Limits { stop, deadline, profile } = limits;
            let stop = interrupts.as_ref().map(|interrupts| interrupts.stop.clone()).or(stop);
            let watched = |watch: Option<&mut dyn FnMut(StepEvent)>| {
                let mut options = RunOptions::new();
                options.stop = stop;
                options.deadline = deadline;
                options.watch = watch;
                self.session.run_with(inputs, options)
            };
            match (profile, &mut interrupts) {
                (None, None) => watched(None),
                (None, Some(interrupts)) => watched(Some(&mut |event| interrupts.look(event))),
                (Some(profile), None) => profile.record(|watch| watched(Some(watch))),
                (Some(profile), Some(interrupts)) => profile.record(|watch| {
                    watched(Some(&mut |event| {
                        watch(event);
                        interrupts.look(event);
                    }))
                }),
            }
        };
        let outputs = if keeps_interpreter { run() } else { py.detach(run) };
        if let Some(raised) = interrupts.and_then(Interrupts::raised) {
            return Err(raised);
        }
        let taken = u64::try_from(started.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.last_nanoseconds.store(taken, Ordering::Relaxed);
        let outputs = outputs.map_err(|error| raised(py, &error))?;
        let returned = match wanted {
            None => outputs.into_iter().map(|(_, value)| give::object(py, value)).collect(),
            Some(wanted) => chosen(outputs, wanted).map(|value| give::object(py, value)).collect(),
        };
        // What is lent is given back here, where the interpreter is held.
        drop(taker);
        returned
    }

    /// The numbers of outputs that a list or a tuple names.
    ///
    /// # Errors
    ///
    /// `TypeError` if it is not a list or a tuple of texts.
    pub(crate) fn wanted(&self, names: &Bound<'_, PyAny>) -> PyResult<Vec<usize>> {
        let py = names.py();
        let wrong = || {
            let found = shown(names);
            let what = format!("the names of outputs are {found}, which is not a list of str");
            PyTypeError::new_err(what)
        };
        if !names.is_instance_of::<PyList>() && !names.is_instance_of::<PyTuple>() {
            return Err(wrong());
        }
        let mut wanted = Vec::new();
        for name in names.try_iter()? {
            let name = name?;
            let name = name.cast::<PyString>().map_err(|_| wrong())?;
            // The same object nearly always, as names come from `outputs` or are interned.
            let same = self.output_names.iter().position(|known| known.is(name));
            wanted.push(match same {
                Some(index) => index,
                None => self.output_of(py, &name.to_cow()?)?,
            });
        }
        Ok(wanted)
    }

    /// The number of the output of a name.
    fn output_of(&self, py: Python<'_>, name: &str) -> PyResult<usize> {
        let outputs = self.session.outputs();
        outputs.iter().position(|port| port.name() == name).ok_or_else(|| {
            let all: Vec<&str> = outputs.iter().map(Port::name).collect();
            let help = format!("its outputs are '{}'", all.join("', '"));
            let what = format!("the model has no output '{name}'");
            of_kind(py, ErrorKind::Output, what, Some(&help))
        })
    }

    /// The name of an output.
    pub(crate) fn output_name(&self, index: usize) -> &Py<PyString> {
        &self.output_names[index]
    }

    /// What a run takes.
    pub(crate) fn inputs(&self) -> Vec<PyPort> {
        self.session.inputs().iter().cloned().map(PyPort).collect()
    }

    /// What a run gives back: as the model declares it, and where it does not, as is known.
    pub(crate) fn outputs(&self) -> Vec<PyPort> {
        let declared = self.model.outputs();
        let mut names = size_names(&self.model.inputs());
        names.extend(size_names(&declared));
        let known = self.session.outputs();
        let ports = known.iter().enumerate().map(|(index, known)| {
            let declared = declared.get(index).filter(|port| {
                let shape = port.ty().and_then(Type::shape);
                shape.is_some() && self.settings.dims.is_empty()
            });
            match declared {
                Some(declared) => PyPort(declared.clone()),
                None => PyPort(with_names_of_model(known, &names)),
            }
        });
        ports.collect()
    }

    /// What the steps of a run are: the name of the node, its operator, and its kernel.
    pub(crate) fn steps(&self) -> Vec<(String, &'static str, String)> {
        let steps = self.session.steps().into_iter();
        steps.map(|step| (step.node, step.op, step.kernel)).collect()
    }

    /// How many threads a run uses.
    pub(crate) fn threads(&self) -> usize {
        self.session.threads()
    }

    /// Bytes that were made ahead of time.
    pub(crate) fn made_bytes(&self) -> usize {
        self.session.report().made_bytes
    }

    /// How exact products are.
    pub(crate) fn precision(&self) -> &str {
        &self.settings.precision
    }

    /// The path of the model, or its bytes.
    pub(crate) fn source<'py>(&self, py: Python<'py>) -> Bound<'py, PyAny> {
        match &self.source {
            Source::Path(path) => PyString::new(py, path).into_any(),
            Source::Bytes(bytes) => bytes.bind(py).clone(),
        }
    }

    /// The options of the session, as keywords.
    pub(crate) fn keywords<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let settings = &self.settings;
        let keywords = PyDict::new(py);
        keywords.set_item("threads", settings.threads)?;
        keywords.set_item("precision", &settings.precision)?;
        keywords.set_item("memory_limit", settings.memory_limit)?;
        keywords.set_item("seed", settings.seed)?;
        let dims = PyDict::new(py);
        for (name, size) in &settings.dims {
            dims.set_item(name, size)?;
        }
        keywords.set_item("dims", dims)?;
        Ok(keywords)
    }
}

/// The outputs of these numbers. Each is handed over where it is wanted last, as an array may only
/// write what nothing else refers to.
fn chosen(outputs: Outputs, wanted: &[usize]) -> impl Iterator<Item = Value> {
    let mut outputs: Vec<Option<Value>> =
        outputs.into_iter().map(|(_, value)| Some(value)).collect();
    wanted.iter().enumerate().filter_map(move |(turn, index)| {
        if wanted[turn + 1..].contains(index) {
            outputs[*index].clone()
        } else {
            outputs[*index].take()
        }
    })
}

/// A port without names of sizes that only inference has made up.
fn with_names_of_model(port: &Port, names: &[String]) -> Port {
    let mut ty = port.ty().cloned();
    let mut forget = |dim: &mut Dim| {
        if dim.symbols().iter().any(|symbol| !names.contains(symbol)) {
            *dim = Dim::Unknown;
        }
    };
    if let Some(ty) = &mut ty {
        ty.for_each_dim(&mut forget);
    }
    Port::new(port.name().to_string(), ty, port.is_required())
}

/// The names of sizes that inputs or outputs leave open.
fn size_names(ports: &[Port]) -> Vec<String> {
    let mut names = Vec::new();
    for port in ports {
        let Some(ty) = port.ty() else { continue };
        let mut ty = ty.clone();
        ty.for_each_dim(&mut |dim| names.extend(dim.as_symbol().map(str::to_string)));
    }
    names
}

/// How many threads the environment asks for, and not more than there are processors: the first
/// number of `OMP_NUM_THREADS`, which may be a list.
fn threads_of_environment() -> Option<usize> {
    let text = std::env::var("OMP_NUM_THREADS").ok()?;
    let threads: usize = text.split(',').next()?.trim().parse().ok()?;
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    (threads > 0).then_some(threads.min(processors))
}

fn facts(model: &Model) -> Facts {
    let metadata = model.metadata().into_iter();
    Facts {
        texts: [
            ("producer_name", model.producer_name().into_owned()),
            ("producer_version", model.producer_version().into_owned()),
            ("domain", model.domain().into_owned()),
            ("graph_name", model.graph_name().into_owned()),
            ("doc", model.doc().into_owned()),
            ("graph_doc", model.graph_doc().into_owned()),
        ],
        version: model.model_version(),
        metadata: metadata.map(|(key, value)| (key.into_owned(), value.into_owned())).collect(),
    }
}

//! A session and what Python needs around it: how it was made, names as objects, when the
//! interpreter is released.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyString, PyTuple};
use sardonyx::io::Access;
use sardonyx::tool::profile::StepInfo;
use sardonyx::tool::{ModelExt, SessionExt};
use sardonyx::{Dim, ErrorKind, Model, Outputs, Port, RunOptions, Session, Type, Value};
use sardonyx_ort::ports::size_names;
use smallvec::SmallVec;

use super::errors::{of_kind, raised, refused};
use super::give;
use super::limits::{Interpreter, Limits};
use super::memory::in_place::{self, BoundRun};
use super::opened::{Source, opened_by};
use super::ports::PyPort;
use super::settings::Settings;
use super::take::{Taker, as_dict, shown};
use super::test_operators;

/// A run that took less than this is expected to do so again, and is not worth the release of the
/// interpreter: other threads would have to wait for longer to get it back.
const SHORT_NANOSECONDS: u64 = 20_000;

/// A run of a model without loops that took less than this is not expected to be worth an end by
/// Ctrl-C. Looking for signals costs the time of two readings of the clock for each step.
const UNINTERRUPTED_NANOSECONDS: u64 = 1_000_000;

/// Outputs of a call: most models have few outputs, which need no memory of their own.
pub(crate) type Objects<'py> = SmallVec<[Bound<'py, PyAny>; 4]>;

/// Outputs that a call returns.
#[derive(Clone, Copy, Default)]
pub(crate) struct Wanted<'w, 'py> {
    /// Numbers of outputs, in the order in which they are returned; `None` for all.
    pub(crate) numbers: Option<&'w [usize]>,
    /// Arrays that take them, by position among those that are returned. An output that could not
    /// be written there is returned as another object, which the caller copies.
    pub(crate) into: &'w [Option<Bound<'py, PyAny>>],
}

impl<'w, 'py> Wanted<'w, 'py> {
    /// New objects for outputs of these numbers, or for all.
    pub(crate) fn new(numbers: Option<&'w [usize]>) -> Self {
        Wanted { numbers, into: &[] }
    }

    /// Position of an output among those that are returned.
    pub(crate) fn place_of(&self, number: usize) -> Option<usize> {
        match self.numbers {
            None => Some(number),
            Some(numbers) => numbers.iter().position(|wanted| *wanted == number),
        }
    }

    /// Whether an output is returned twice.
    pub(crate) fn has_duplicates(&self) -> bool {
        let numbers = self.numbers.unwrap_or_default();
        let mut all = numbers.iter().enumerate();
        all.any(|(place, number)| numbers[..place].contains(number))
    }

    /// The outputs that are returned, none of which is so twice: those that are `None` lie in the
    /// arrays that take them.
    fn objects(&self, py: Python<'py>, mut values: Vec<Option<Value>>) -> PyResult<Objects<'py>> {
        let count = self.numbers.map_or(values.len(), <[usize]>::len);
        let mut objects = Objects::with_capacity(count);
        for place in 0..count {
            let number = self.numbers.map_or(place, |numbers| numbers[place]);
            match values[number].take() {
                Some(value) => objects.push(give::object(py, value)?),
                None => objects.extend(self.into.get(place).cloned().flatten()),
            }
        }
        Ok(objects)
    }
}

/// What a model says about itself.
pub(crate) struct Facts {
    pub(crate) texts: [(&'static str, String); 6],
    pub(crate) version: Option<i64>,
    pub(crate) metadata: Vec<(String, String)>,
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
    /// Whether a run may iterate without end.
    has_loops: bool,
}

impl Engine {
    /// Opens a model and makes it ready to run.
    pub(crate) fn open(model: &Bound<'_, PyAny>, settings: Settings) -> PyResult<Engine> {
        let access = if settings.mapped { Access::Share } else { Access::Map };
        let (opened, source) = opened_by(model, access)?;
        // The session reads the declarations of the model for as long as it lives.
        let opened = opened.with_own_structure().map_err(|error| raised(model.py(), &error))?;
        Engine::make(model.py(), opened, source, settings)
    }

    /// Makes a model ready to run that is open already.
    pub(crate) fn make(
        py: Python<'_>,
        model: Model,
        source: Source,
        settings: Settings,
    ) -> PyResult<Engine> {
        let engine = Engine::build(py, model, source, settings);
        engine.map_err(|error| raised(py, &error))
    }

    /// Makes a model ready to run, without an exception for the error.
    pub(crate) fn build(
        py: Python<'_>,
        model: Model,
        source: Source,
        settings: Settings,
    ) -> Result<Engine, sardonyx::Error> {
        let builder = test_operators::add_to(Session::builder(&model), &model);
        let session = py.detach(|| settings.applied(builder).build())?;
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
        let source = self.source.clone_ref(py);
        Engine::make(py, model, source, self.settings.clone())
    }

    /// Runs the model on inputs by name; returns the outputs, or those that are wanted, by number.
    pub(crate) fn run<'py>(
        &self,
        feeds: &Bound<'py, PyAny>,
        wanted: Option<&[usize]>,
        limits: Limits,
    ) -> PyResult<Objects<'py>> {
        self.run_dict(&as_dict(feeds)?, wanted, limits)
    }

    fn run_dict<'py>(
        &self,
        feeds: &Bound<'py, PyDict>,
        wanted: Option<&[usize]>,
        limits: Limits,
    ) -> PyResult<Objects<'py>> {
        let py = feeds.py();
        let mut given: SmallVec<[(usize, Bound<'py, PyAny>); 4]> = SmallVec::new();
        for (index, name) in self.input_names.iter().enumerate() {
            if let Some(value) = feeds.get_item(name.bind(py))? {
                given.push((index, value));
            }
        }
        if given.len() != feeds.len() {
            self.demand_known(feeds)?;
        }
        self.run_given(py, &given, Wanted::new(wanted), limits)
    }

    /// Refuses names that no input has.
    fn demand_known(&self, feeds: &Bound<'_, PyDict>) -> PyResult<()> {
        let py = feeds.py();
        for key in feeds.keys().iter() {
            let name = input_name(&key)?;
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
    ) -> PyResult<Objects<'py>> {
        let py = args.py();
        let inputs = self.input_names.len();
        if args.len() > inputs {
            let s = if inputs == 1 { "" } else { "s" };
            let what = format!("the model has {inputs} input{s}, but {} are passed", args.len());
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
        self.run_given(py, &given, Wanted::default(), limits)
    }

    /// Runs the model on inputs by number, each at most once.
    pub(crate) fn run_given<'py>(
        &self,
        py: Python<'py>,
        given: &[(usize, Bound<'py, PyAny>)],
        wanted: Wanted<'_, 'py>,
        limits: Limits,
    ) -> PyResult<Objects<'py>> {
        let last = self.last_nanoseconds.load(Ordering::Relaxed);
        let is_short = last < SHORT_NANOSECONDS;
        let has_limits = limits.stop.is_some() || limits.deadline.is_some();
        let is_free = !has_limits && limits.profile.is_none();
        // A limit of memory counts outputs, but not memory of the caller.
        if is_short && is_free && self.settings.memory_limit.is_none() {
            let started = Instant::now();
            if let Some(outputs) = in_place::run(py, &self.session, given, wanted) {
                self.note(started);
                return outputs;
            }
        }
        let mut taker = Taker::default();
        let mut inputs: Vec<(&str, Value)> = Vec::with_capacity(given.len());
        for (index, object) in given {
            let port = &self.session.inputs()[*index];
            if let Some(value) = taker.given(object, port)? {
                inputs.push((port.name(), value));
            }
        }
        let keeps = is_short && !has_limits && taker.has_copies_only();
        let looks = self.has_loops || last >= UNINTERRUPTED_NANOSECONDS;
        let interpreter = if keeps {
            Interpreter::Keep
        } else if looks {
            Interpreter::ReleaseAndLook
        } else {
            Interpreter::Release
        };
        let started = Instant::now();
        if let Some(bound) = BoundRun::new(py, &inputs, wanted) {
            let run = |options: &RunOptions<'_>| bound.run(&self.session, options);
            let outputs = limits.run(py, interpreter, run);
            self.note(started);
            return wanted.objects(py, outputs?);
        }
        let run = |options: &RunOptions<'_>| self.session.run(inputs, options);
        let outputs = limits.run(py, interpreter, run);
        self.note(started);
        let returned = objects(py, outputs?, wanted.numbers);
        // What is lent is given back here, where the interpreter is held.
        drop(taker);
        returned
    }

    /// Notes how long a run took that has just ended.
    fn note(&self, started: Instant) {
        let taken = u64::try_from(started.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.last_nanoseconds.store(taken, Ordering::Relaxed);
    }

    /// The number of the input of a name.
    pub(crate) fn input_number(&self, name: &Bound<'_, PyString>) -> PyResult<Option<usize>> {
        number_of(name, &self.input_names)
    }

    /// The number of the output of a name.
    pub(crate) fn output_number(&self, name: &Bound<'_, PyString>) -> PyResult<Option<usize>> {
        number_of(name, &self.output_names)
    }

    /// The names of inputs.
    pub(crate) fn input_names(&self) -> &[Py<PyString>] {
        &self.input_names
    }

    /// The numbers of outputs that a list or a tuple names.
    ///
    /// # Errors
    ///
    /// `TypeError` if it is not a list or a tuple of texts.
    pub(crate) fn wanted(&self, names: &Bound<'_, PyAny>) -> PyResult<Vec<usize>> {
        wanted(names, &self.output_names)
    }

    /// The names of outputs.
    pub(crate) fn output_names(&self) -> &[Py<PyString>] {
        &self.output_names
    }

    /// Inputs of a run.
    pub(crate) fn input_ports(&self) -> &[Port] {
        self.session.inputs()
    }

    /// Inputs of a run, as objects.
    pub(crate) fn inputs(&self) -> Vec<PyPort> {
        self.session.inputs().iter().cloned().map(PyPort).collect()
    }

    /// What a run gives back: as the model declares it, and where it does not, or says what cannot
    /// be, as is known.
    pub(crate) fn outputs(&self) -> Vec<PyPort> {
        let declared = self.model.outputs();
        let mut names = size_names(&self.model.inputs());
        names.extend(size_names(&declared));
        let known = self.session.outputs();
        let ports = known.iter().enumerate().map(|(index, known)| {
            let declared = declared.get(index).filter(|port| {
                let ty = port.ty().filter(|ty| ty.shape().is_some());
                let fits = |ty: &Type| known.ty().is_none_or(|known| known.merge(ty).is_some());
                ty.is_some_and(fits) && !self.settings.has_fixed_sizes()
            });
            match declared {
                Some(declared) => PyPort(declared.clone()),
                None => PyPort(with_names_of_model(known, &names)),
            }
        });
        ports.collect()
    }

    /// The texts that mark sizes of an input or output as unknown, each with its axis.
    pub(crate) fn size_marks(&self, name: &str) -> Vec<(usize, String)> {
        self.model.size_marks(name)
    }

    /// The steps of a run.
    pub(crate) fn step_infos(&self) -> Vec<StepInfo> {
        self.session.steps()
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
        self.settings.precision_name()
    }

    /// The path of the model, or its bytes.
    pub(crate) fn source<'py>(&self, py: Python<'py>) -> Bound<'py, PyAny> {
        self.source.object(py)
    }

    /// The options of the session, as keywords.
    pub(crate) fn keywords<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        self.settings.keywords(py)
    }
}

/// The numbers of outputs that a list or a tuple names, of all that there are.
///
/// # Errors
///
/// `TypeError` if it is not a list or a tuple of texts.
pub(crate) fn wanted(names: &Bound<'_, PyAny>, all: &[Py<PyString>]) -> PyResult<Vec<usize>> {
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
        let same = all.iter().position(|known| known.is(name));
        wanted.push(match same {
            Some(index) => index,
            None => output_of(py, &name.to_cow()?, all)?,
        });
    }
    Ok(wanted)
}

/// The number of a name among some.
fn number_of(name: &Bound<'_, PyString>, all: &[Py<PyString>]) -> PyResult<Option<usize>> {
    // Nearly always one object, as names come from the session or are interned.
    if let Some(same) = all.iter().position(|known| known.is(name)) {
        return Ok(Some(same));
    }
    for (number, known) in all.iter().enumerate() {
        if known.bind(name.py()).as_any().eq(name)? {
            return Ok(Some(number));
        }
    }
    Ok(None)
}

/// The number of the output of a name.
fn output_of(py: Python<'_>, name: &str, all: &[Py<PyString>]) -> PyResult<usize> {
    let all: Vec<_> = all.iter().map(|known| known.bind(py).to_string_lossy()).collect();
    all.iter().position(|known| known == name).ok_or_else(|| {
        let help = format!("use one of its outputs: '{}'", all.join("', '"));
        let what = format!("the model has no output '{name}'");
        of_kind(py, ErrorKind::Output, what, Some(&help))
    })
}

/// The name of an input among those that are given.
///
/// # Errors
///
/// If it is no text.
pub(crate) fn input_name(key: &Bound<'_, PyAny>) -> PyResult<String> {
    key.extract()
        .map_err(|_| refused(key.py(), format!("the name {} of an input is not a str", shown(key))))
}

/// Outputs, or those that are wanted, by number, as objects of Python.
pub(crate) fn objects<'py>(
    py: Python<'py>,
    outputs: Outputs,
    wanted: Option<&[usize]>,
) -> PyResult<Objects<'py>> {
    match wanted {
        None => outputs.into_values().map(|value| give::object(py, value)).collect(),
        Some(wanted) => chosen(outputs, wanted).map(|value| give::object(py, value)).collect(),
    }
}

/// A dict of outputs, or of those that are wanted, by number.
pub(crate) fn by_name<'py>(
    py: Python<'py>,
    names: &[Py<PyString>],
    values: Objects<'py>,
    wanted: Option<&[usize]>,
) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    for (turn, value) in values.into_iter().enumerate() {
        let index = wanted.map_or(turn, |wanted| wanted[turn]);
        dict.set_item(&names[index], value)?;
    }
    Ok(dict)
}

/// The outputs of these numbers. Each is handed over where it is wanted last, as an array may only
/// write what nothing else refers to.
fn chosen(outputs: Outputs, wanted: &[usize]) -> impl Iterator<Item = Value> {
    let mut outputs: Vec<Option<Value>> = outputs.into_values().map(Some).collect();
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

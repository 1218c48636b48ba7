//! Session with the state that Python calls need: interned input and output names, the origin of
//! the model for pickling, and the duration of the last run, which decides whether the next one
//! releases the GIL.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyString, PyTuple};
use sardonyx::io::Access;
use sardonyx::tool::profile::StepInfo;
use sardonyx::tool::{ModelExt, SessionExt};
use sardonyx::{Dim, ErrorKind, Model, Outputs, Port, Session, Value};
use sardonyx_ort::ports::size_names;
use smallvec::SmallVec;

use super::errors::{input_error, new_error, to_exception};
use super::give;
use super::limits::{GilUse, Limits};
use super::memory::in_place::{self, BoundRun};
use super::opened::{Source, open_model_by};
use super::ports::PyPort;
use super::settings::Settings;
use super::take::{InputConverter, as_dict, shorten_repr};
use super::test_operators;

/// Duration of a run in nanoseconds below which the next run keeps the GIL: handing the GIL to
/// another thread and back would take longer.
const SHORT_NANOSECONDS: u64 = 20_000;

/// Duration of a run in nanoseconds below which the next run of a model without loops ignores
/// Ctrl-C. Checking for signals reads the clock twice per step.
const UNINTERRUPTED_NANOSECONDS: u64 = 1_000_000;

/// Outputs of a run as Python objects; up to 4 are stored on the stack.
pub(crate) type Objects<'py> = SmallVec<[Bound<'py, PyAny>; 4]>;

/// Indices and values of inputs; up to 4 are stored on the stack.
pub(crate) type Given<'py> = SmallVec<[(usize, Bound<'py, PyAny>); 4]>;

/// Selection of the model outputs that a run returns.
#[derive(Clone, Copy, Default)]
pub(crate) struct OutputSelection<'w, 'py> {
    /// Indices of the outputs in the order in which they are returned; `None` for all.
    pub(crate) numbers: Option<&'w [usize]>,
    /// Destination arrays, by position among the returned outputs. An output that cannot be
    /// written in place is returned as another object, which the caller copies.
    pub(crate) into: &'w [Option<Bound<'py, PyAny>>],
}

impl<'w, 'py> OutputSelection<'w, 'py> {
    /// Selects outputs by index (`None` for all), without destination arrays.
    pub(crate) fn new(numbers: Option<&'w [usize]>) -> Self {
        OutputSelection { numbers, into: &[] }
    }

    /// Returns the position of the output with index `number` among the selected outputs; `None` if
    /// that output is not selected.
    pub(crate) fn find_position(&self, number: usize) -> Option<usize> {
        match self.numbers {
            None => Some(number),
            Some(numbers) => numbers.iter().position(|wanted| *wanted == number),
        }
    }

    /// Whether any output is selected more than once.
    pub(crate) fn has_duplicates(&self) -> bool {
        let numbers = self.numbers.unwrap_or_default();
        let mut all = numbers.iter().enumerate();
        all.any(|(place, number)| numbers[..place].contains(number))
    }

    /// Converts the outputs of a run to Python objects. No output may be selected twice. A `None`
    /// output has been written into its destination array, which is returned instead.
    fn to_objects(self, py: Python<'py>, mut values: Vec<Option<Value>>) -> PyResult<Objects<'py>> {
        let count = self.numbers.map_or(values.len(), <[usize]>::len);
        let mut objects = Objects::with_capacity(count);
        for place in 0..count {
            let number = self.numbers.map_or(place, |numbers| numbers[place]);
            match values[number].take() {
                Some(value) => objects.push(give::to_python(py, value)?),
                None => objects.extend(self.into.get(place).cloned().flatten()),
            }
        }
        Ok(objects)
    }
}

/// Descriptive fields of a model.
pub(crate) struct ModelFacts {
    /// Names and values of text fields such as `producer_name`.
    pub(crate) texts: [(&'static str, String); 6],
    /// Version of the model, its field `model_version`.
    pub(crate) version: Option<i64>,
    /// Keys and values of `metadata_props`.
    pub(crate) metadata: Vec<(String, String)>,
}

/// Session of a model with the state that Python calls need.
pub(crate) struct Engine {
    session: Session,
    model: Model,
    /// Path or bytes of the model, for pickling.
    source: Source,
    settings: Settings,
    pub(crate) facts: ModelFacts,
    /// Interned names of the model inputs, in the order of the model.
    input_names: Vec<Py<PyString>>,
    /// Interned names of the model outputs, in the order of the model.
    output_names: Vec<Py<PyString>>,
    /// Duration of the last run, in nanoseconds.
    last_nanoseconds: AtomicU64,
    /// Whether the model has a Loop or Scan node, which may iterate without end.
    has_loops: bool,
}

impl Engine {
    /// Opens a model and builds its session.
    ///
    /// # Errors
    ///
    /// `sardonyx.Error` if the model cannot be opened or is not supported.
    pub(crate) fn open(model: &Bound<'_, PyAny>, settings: Settings) -> PyResult<Engine> {
        let access = if settings.mapped { Access::Share } else { Access::Map };
        let (opened, source) = open_model_by(model, access)?;
        // Copies the graph structure out of the file, which may be overwritten while the session
        // lives.
        let opened =
            opened.with_own_structure().map_err(|error| to_exception(model.py(), &error))?;
        Engine::from_model(model.py(), opened, source, settings)
    }

    /// Builds the session of an opened model.
    ///
    /// # Errors
    ///
    /// `sardonyx.Error` if the model is not supported.
    pub(crate) fn from_model(
        py: Python<'_>,
        model: Model,
        source: Source,
        settings: Settings,
    ) -> PyResult<Engine> {
        let engine = Engine::build(py, model, source, settings);
        engine.map_err(|error| to_exception(py, &error))
    }

    /// Builds the session of an opened model; returns the library's error instead of an exception.
    pub(crate) fn build(
        py: Python<'_>,
        model: Model,
        source: Source,
        settings: Settings,
    ) -> Result<Engine, sardonyx::Error> {
        let builder = test_operators::add_test_operators(Session::builder(&model), &model);
        let session = py.detach(|| settings.apply_to(builder).build())?;
        Ok(Engine {
            input_names: intern_names(py, session.inputs()),
            output_names: intern_names(py, session.outputs()),
            facts: read_facts(&model),
            has_loops: session.steps().iter().any(|step| matches!(step.op, "Loop" | "Scan")),
            session,
            model,
            source,
            settings,
            last_nanoseconds: AtomicU64::new(u64::MAX),
        })
    }

    /// Builds a second session of this model, in which dimensions that share a name may have
    /// different sizes.
    pub(crate) fn with_independent_sizes(&self, py: Python<'_>) -> PyResult<Engine> {
        let mut model = self.model.clone();
        let fixed: Vec<&str> = self.settings.dims.iter().map(|(name, _)| name.as_str()).collect();
        model.forget_size_names(&fixed);
        let source = self.source.clone_ref(py);
        Engine::from_model(py, model, source, self.settings.clone())
    }

    /// Runs the model on a mapping of inputs by name and returns all outputs, or the outputs at the
    /// indices `wanted`.
    pub(crate) fn run<'py>(
        &self,
        feeds: &Bound<'py, PyAny>,
        wanted: Option<&[usize]>,
        limits: Limits,
    ) -> PyResult<Objects<'py>> {
        let given = self.find_given(feeds)?;
        self.run_by_index(feeds.py(), &given, OutputSelection::new(wanted), limits)
    }

    /// Finds the indices of inputs that a mapping gives by name.
    ///
    /// # Errors
    ///
    /// `sardonyx.Error` if `feeds` is not a mapping, or has a name that no input has.
    pub(crate) fn find_given<'py>(&self, feeds: &Bound<'py, PyAny>) -> PyResult<Given<'py>> {
        let (py, feeds) = (feeds.py(), as_dict(feeds)?);
        let mut given = Given::new();
        for (index, name) in self.input_names.iter().enumerate() {
            if let Some(value) = feeds.get_item(name.bind(py))? {
                given.push((index, value));
            }
        }
        if given.len() != feeds.len() {
            self.check_names(&feeds)?;
        }
        Ok(given)
    }

    /// Checks that every key of `feeds` is the name of a model input.
    ///
    /// # Errors
    ///
    /// `sardonyx.Error` for an unknown name, with suggestions.
    fn check_names(&self, feeds: &Bound<'_, PyDict>) -> PyResult<()> {
        let py = feeds.py();
        for key in feeds.keys().iter() {
            let name = to_input_name(&key)?;
            self.session.input(&name).map_err(|error| to_exception(py, &error))?;
        }
        Ok(())
    }

    /// Runs the model on positional arguments followed by keyword arguments, and returns all
    /// outputs.
    pub(crate) fn call<'py>(
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
            return Err(input_error(py, what));
        }
        let mut given: Vec<(usize, Bound<'py, PyAny>)> = args.iter().enumerate().collect();
        if let Some(kwargs) = kwargs {
            for (index, name) in self.input_names.iter().enumerate() {
                let Some(value) = kwargs.get_item(name.bind(py))? else { continue };
                if index < args.len() {
                    let what = format!("the input '{}' is given twice", name.bind(py));
                    return Err(input_error(py, what));
                }
                given.push((index, value));
            }
            if given.len() != args.len() + kwargs.len() {
                self.check_names(kwargs)?;
            }
        }
        self.run_by_index(py, &given, OutputSelection::default(), limits)
    }

    /// Runs the model on pairs of input index and value, with each index at most once. Chooses
    /// between the run in place for small arrays and the general run, and whether the GIL is
    /// released.
    pub(crate) fn run_by_index<'py>(
        &self,
        py: Python<'py>,
        given: &[(usize, Bound<'py, PyAny>)],
        wanted: OutputSelection<'_, 'py>,
        limits: Limits,
    ) -> PyResult<Objects<'py>> {
        let is_short = self.last_nanoseconds.load(Ordering::Relaxed) < SHORT_NANOSECONDS;
        let has_limits = limits.stop.is_some() || limits.deadline.is_some();
        let is_free = !has_limits && limits.profile.is_none();
        // Outputs in memory of the caller would escape the memory limit.
        if is_short && is_free && self.settings.memory_limit.is_none() {
            let started = Instant::now();
            if let Some(outputs) = in_place::run_small(py, &self.session, given, wanted) {
                self.record_duration(started);
                return outputs;
            }
        }
        let mut converter = InputConverter::default();
        let inputs = self.convert_given(&mut converter, given)?;
        let interpreter = self.choose_gil_use(&limits, &converter);
        let started = Instant::now();
        if let Some(bound) = BoundRun::new(py, &inputs, wanted) {
            let outputs = limits.run(py, interpreter, |options| bound.run(&self.session, options));
            self.record_duration(started);
            return wanted.to_objects(py, outputs?);
        }
        let outputs = limits.run(py, interpreter, |options| self.session.run(inputs, options));
        self.record_duration(started);
        let returned = to_objects(py, outputs?, wanted.numbers);
        // Releases the borrowed buffers here, where this thread holds the GIL.
        drop(converter);
        returned
    }

    /// Converts pairs of input index and value to names and values. Leaves out inputs that a Python
    /// None omits.
    ///
    /// # Errors
    ///
    /// The errors of [`InputConverter::convert_argument`].
    pub(crate) fn convert_given(
        &self,
        converter: &mut InputConverter,
        given: &[(usize, Bound<'_, PyAny>)],
    ) -> PyResult<Vec<(&str, Value)>> {
        let mut inputs = Vec::with_capacity(given.len());
        for (index, object) in given {
            let port = &self.session.inputs()[*index];
            if let Some(value) = converter.convert_argument(object, port)? {
                inputs.push((port.name(), value));
            }
        }
        Ok(inputs)
    }

    /// Decides by the duration of the last run whether a run releases the GIL.
    pub(crate) fn choose_gil_use(&self, limits: &Limits, converter: &InputConverter) -> GilUse {
        let last = self.last_nanoseconds.load(Ordering::Relaxed);
        let has_limits = limits.stop.is_some() || limits.deadline.is_some();
        if last < SHORT_NANOSECONDS && !has_limits && converter.has_copies_only() {
            GilUse::Keep
        } else if self.has_loops || last >= UNINTERRUPTED_NANOSECONDS {
            GilUse::ReleaseAndCheck
        } else {
            GilUse::Release
        }
    }

    /// Records the duration of a run that began at `started` and has just ended.
    pub(crate) fn record_duration(&self, started: Instant) {
        let taken = u64::try_from(started.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.last_nanoseconds.store(taken, Ordering::Relaxed);
    }

    /// Returns the index of the model input with this name; `None` if there is none.
    pub(crate) fn find_input_index(&self, name: &Bound<'_, PyString>) -> PyResult<Option<usize>> {
        find_name(name, &self.input_names)
    }

    /// Returns the index of the model output with this name; `None` if there is none.
    pub(crate) fn find_output_index(&self, name: &Bound<'_, PyString>) -> PyResult<Option<usize>> {
        find_name(name, &self.output_names)
    }

    /// Returns the names of the model inputs, in the order of the model.
    pub(crate) fn input_names(&self) -> &[Py<PyString>] {
        &self.input_names
    }

    /// Converts a list or tuple of output names to indices.
    ///
    /// # Errors
    ///
    /// `TypeError` for any other object; `sardonyx.Error` for an unknown name.
    pub(crate) fn find_outputs(&self, names: &Bound<'_, PyAny>) -> PyResult<Vec<usize>> {
        find_output_indices(names, &self.output_names)
    }

    /// Returns the names of the model outputs, in the order of the model.
    pub(crate) fn output_names(&self) -> &[Py<PyString>] {
        &self.output_names
    }

    /// Returns the session, for runs on a kept state.
    pub(crate) fn session(&self) -> &Session {
        &self.session
    }

    /// Returns name and type of each input of a run.
    pub(crate) fn input_ports(&self) -> &[Port] {
        self.session.inputs()
    }

    /// Returns the inputs of a run as Python objects.
    pub(crate) fn inputs(&self) -> Vec<PyPort> {
        self.session.inputs().iter().cloned().map(PyPort).collect()
    }

    /// Returns the outputs of a run as Python objects: as the model declares them, or as inferred
    /// where the declaration is missing or contradicts inference.
    pub(crate) fn outputs(&self) -> Vec<PyPort> {
        let declared = self.model.outputs();
        let mut names = size_names(&self.model.inputs());
        names.extend(size_names(&declared));
        let known = self.session.outputs();
        let ports = known.iter().enumerate().map(|(index, known)| {
            let declared = declared.get(index).filter(|port| {
                let ty = port.ty().filter(|ty| ty.shape().is_some());
                let is_consistent =
                    ty.is_some_and(|ty| known.ty().is_none_or(|known| known.merge(ty).is_some()));
                is_consistent && !self.settings.has_fixed_sizes()
            });
            match declared {
                Some(declared) => PyPort(declared.clone()),
                None => PyPort(forget_inferred_names(known, &names)),
            }
        });
        ports.collect()
    }

    /// Returns the axes of the input or output `name` whose sizes the model marks as unknown, with
    /// the text that marks each.
    pub(crate) fn list_invalid_symbols(&self, name: &str) -> Vec<(usize, String)> {
        self.model.list_invalid_symbols(name)
    }

    /// Returns the steps of a run, for profiles.
    pub(crate) fn step_infos(&self) -> Vec<StepInfo> {
        self.session.steps()
    }

    /// Returns node name, operator and kernel of each step of a run.
    pub(crate) fn steps(&self) -> Vec<(String, &'static str, String)> {
        let steps = self.session.steps().into_iter();
        steps.map(|step| (step.node, step.op, step.kernel)).collect()
    }

    /// Returns the number of threads of a run.
    pub(crate) fn threads(&self) -> usize {
        self.session.threads()
    }

    /// Returns the memory of constants that were computed or packed when the session was built, in
    /// bytes.
    pub(crate) fn made_bytes(&self) -> usize {
        self.session.report().made_bytes
    }

    /// Returns the precision of matrix products: `exact` or `fast`.
    pub(crate) fn precision(&self) -> &str {
        self.settings.precision_name()
    }

    /// Returns the path of the model as a str, or its bytes.
    pub(crate) fn source<'py>(&self, py: Python<'py>) -> Bound<'py, PyAny> {
        self.source.to_object(py)
    }

    /// Returns the options of the session as keyword arguments, for pickling.
    pub(crate) fn to_keywords<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        self.settings.to_keywords(py)
    }
}

/// Converts a list or tuple of output names to indices in `all`.
///
/// # Errors
///
/// `TypeError` for any other object; `sardonyx.Error` for a name that `all` does not contain.
pub(crate) fn find_output_indices(
    names: &Bound<'_, PyAny>,
    all: &[Py<PyString>],
) -> PyResult<Vec<usize>> {
    let py = names.py();
    if !names.is_instance_of::<PyList>() && !names.is_instance_of::<PyTuple>() {
        return Err(output_names_error(names));
    }
    let mut wanted = Vec::new();
    for name in names.try_iter()? {
        let name = name?;
        let name = name.cast::<PyString>().map_err(|_| output_names_error(names))?;
        // Usually the same object, as names come from `outputs` or are interned.
        let same = all.iter().position(|known| known.is(name));
        wanted.push(match same {
            Some(index) => index,
            None => find_output(py, &name.to_cow()?, all)?,
        });
    }
    Ok(wanted)
}

/// Makes the exception for output names that are not a list of str.
fn output_names_error(names: &Bound<'_, PyAny>) -> PyErr {
    let found = shorten_repr(names);
    let what = format!("the names of outputs are {found}, which is not a list of str");
    PyTypeError::new_err(what)
}

/// Interns the names of inputs or outputs, so that equal names in calls are usually the same
/// object.
fn intern_names(py: Python<'_>, ports: &[Port]) -> Vec<Py<PyString>> {
    ports.iter().map(|port| PyString::intern(py, port.name()).unbind()).collect()
}

/// Returns the index of a name in `all`; `None` if `all` does not contain the name.
fn find_name(name: &Bound<'_, PyString>, all: &[Py<PyString>]) -> PyResult<Option<usize>> {
    // Usually the same object, as names come from the session or are interned.
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

/// Returns the index of an output name in `all`.
///
/// # Errors
///
/// `sardonyx.Error` if no output has the name, with the names of all outputs as advice.
fn find_output(py: Python<'_>, name: &str, all: &[Py<PyString>]) -> PyResult<usize> {
    let all: Vec<_> = all.iter().map(|known| known.bind(py).to_string_lossy()).collect();
    all.iter().position(|known| known == name).ok_or_else(|| {
        let help = format!("use one of the model's outputs: '{}'", all.join("', '"));
        let what = format!("the model has no output '{name}'");
        new_error(py, ErrorKind::Output, what, Some(&help))
    })
}

/// Converts a key of a dict of inputs to the name of an input.
///
/// # Errors
///
/// `sardonyx.Error` if the key is not a str.
pub(crate) fn to_input_name(key: &Bound<'_, PyAny>) -> PyResult<String> {
    key.extract().map_err(|_| {
        input_error(key.py(), format!("the name {} of an input is not a str", shorten_repr(key)))
    })
}

/// Converts the outputs of a run to Python objects: all outputs, or the outputs at the indices
/// `wanted`.
pub(crate) fn to_objects<'py>(
    py: Python<'py>,
    outputs: Outputs,
    wanted: Option<&[usize]>,
) -> PyResult<Objects<'py>> {
    match wanted {
        None => outputs.into_values().map(|value| give::to_python(py, value)).collect(),
        Some(wanted) => {
            select_outputs(outputs, wanted).map(|value| give::to_python(py, value)).collect()
        }
    }
}

/// Makes a dict of outputs by name. `values` are all outputs, or the outputs at the indices
/// `wanted`.
pub(crate) fn to_dict<'py>(
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

/// Selects outputs by index. Moves each output where it occurs last and clones it before, so that a
/// single occurrence stays the sole owner of its memory and the array over it is writable.
fn select_outputs(outputs: Outputs, wanted: &[usize]) -> impl Iterator<Item = Value> {
    let mut outputs: Vec<Option<Value>> = outputs.into_values().map(Some).collect();
    wanted.iter().enumerate().filter_map(move |(turn, index)| {
        if wanted[turn + 1..].contains(index) {
            outputs[*index].clone()
        } else {
            outputs[*index].take()
        }
    })
}

/// Replaces symbolic sizes that shape inference invented, whose symbols are not in `names`, by
/// unknown sizes.
fn forget_inferred_names(port: &Port, names: &[String]) -> Port {
    let mut ty = port.ty().cloned();
    if let Some(ty) = &mut ty {
        ty.for_each_dim(&mut |dim: &mut Dim| {
            if dim.symbols().iter().any(|symbol| !names.contains(symbol)) {
                *dim = Dim::Unknown;
            }
        });
    }
    Port::new(port.name().to_string(), ty, port.is_required())
}

/// Reads the descriptive fields of a model.
fn read_facts(model: &Model) -> ModelFacts {
    let metadata = model.metadata().into_iter();
    ModelFacts {
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

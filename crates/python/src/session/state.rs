//! `SessionState`: values that stay between the runs of a session, such as the keys and values of a
//! decoder.
//!
//! A state is used by one call at a time, in the order of the calls. A call takes its turn before
//! it locks the state, so that a signal handler which uses the state of the run that it interrupts
//! raises an error and does not wait for its own thread.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use sardonyx::run::{SessionState, StatePair};
use sardonyx::tool::SessionStateExt;
use sardonyx::{Error, ErrorKind, Outputs, Type, Value};

use super::errors::{argument_error, input_error, new_error, to_exception};
use super::give;
use super::settings::parse_dims;
use super::take::{InputConverter, ValueName, describe_class, read_dims};
use super::turns::TurnLock;
use super::{PySession, PyStopFlag, make_call_limits, make_thread_limits};
use crate::items::Items;

/// Choice: maximum number of sequences that `select` keeps, as an iterable may be endless.
const MOST_SEQUENCES: usize = 1 << 20;

/// Output and the input that it becomes in the next run, such as `present.0.key` and
/// `past_key_values.0.key`.
///
/// `first_dims` is the shape of the input before the first run; by default it follows from the type
/// of the input, with 0 rows. `axis` is the axis of rows, which `SessionState.truncate` cuts; it is
/// found where runs append to the input. `batch_axis` is the axis of sequences, of which
/// `SessionState.select` keeps some; by default it is the axis whose name contains `batch`, or else
/// the first one if its size is open.
#[pyclass(frozen, eq, skip_from_py_object, name = "StatePair", module = "sardonyx")]
#[derive(Clone, PartialEq)]
pub(crate) struct PyStatePair {
    /// Name of the input.
    #[pyo3(get)]
    input: String,
    /// Name of the output.
    #[pyo3(get)]
    output: String,
    first_dims: Option<Vec<usize>>,
    /// Axis of rows; None if it is to be found.
    #[pyo3(get)]
    axis: Option<usize>,
    /// Axis of sequences; None if it is to be found.
    #[pyo3(get)]
    batch_axis: Option<usize>,
}

#[pymethods]
impl PyStatePair {
    #[new]
    #[pyo3(signature = (input, output, *, first_dims=None, axis=None, batch_axis=None))]
    fn new(
        py: Python<'_>,
        input: String,
        output: String,
        first_dims: Option<&Bound<'_, PyAny>>,
        axis: Option<i128>,
        batch_axis: Option<i128>,
    ) -> PyResult<PyStatePair> {
        let what = ValueName::Other("first_dims");
        Ok(PyStatePair {
            input,
            output,
            first_dims: first_dims.map(|dims| read_dims(dims, &what)).transpose()?,
            axis: axis.map(|axis| to_count(py, "axis", axis)).transpose()?,
            batch_axis: batch_axis.map(|axis| to_count(py, "batch_axis", axis)).transpose()?,
        })
    }

    /// Finds the pairs of a session by names and types: `past_key_values.0.key` with
    /// `present.0.key`, `past_0` with `present_0`, `cache_in` with `cache_out`, and the like.
    #[staticmethod]
    fn find(session: &Bound<'_, PySession>) -> Vec<PyStatePair> {
        let session = session.get().0.session();
        let found = StatePair::find(session.inputs(), session.outputs());
        found.iter().map(|pair| PyStatePair::from_names(pair.input(), pair.output())).collect()
    }

    /// Returns the shape of the input before the first run, as a tuple; None if it follows from the
    /// type.
    #[getter]
    fn first_dims<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyTuple>>> {
        self.first_dims.as_ref().map(|dims| PyTuple::new(py, dims)).transpose()
    }

    fn __repr__(&self) -> String {
        let mut text = format!("StatePair('{}', '{}'", self.input, self.output);
        if let Some(dims) = &self.first_dims {
            text += &format!(", first_dims={dims:?}");
        }
        for (name, axis) in [("axis", self.axis), ("batch_axis", self.batch_axis)] {
            if let Some(axis) = axis {
                text += &format!(", {name}={axis}");
            }
        }
        text + ")"
    }
}

impl PyStatePair {
    /// Pairs an input with an output, with all other properties found.
    fn from_names(input: &str, output: &str) -> PyStatePair {
        PyStatePair {
            input: input.to_string(),
            output: output.to_string(),
            first_dims: None,
            axis: None,
            batch_axis: None,
        }
    }

    /// Converts the pair to that of the library.
    fn to_pair(&self) -> StatePair {
        let mut pair = StatePair::new(&*self.input, &*self.output);
        if let Some(dims) = &self.first_dims {
            pair = pair.first_dims(dims.clone());
        }
        if let Some(axis) = self.axis {
            pair = pair.axis(axis);
        }
        if let Some(axis) = self.batch_axis {
            pair = pair.batch_axis(axis);
        }
        pair
    }
}

impl<'py> FromPyObject<'_, 'py> for PyStatePair {
    type Error = PyErr;

    /// Converts a `StatePair`, or a tuple of the names of an input and an output.
    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<PyStatePair> {
        if let Ok(pair) = object.cast::<PyStatePair>() {
            return Ok(pair.get().clone());
        }
        let names = object.cast::<PyTuple>().ok().and_then(|names| names.extract().ok());
        let Some((input, output)): Option<(String, String)> = names else {
            let found = describe_class(&object);
            let what = format!(
                "an item of pairs is {found}, which is not a StatePair or a tuple of the names of \
                 an input and an output"
            );
            return Err(PyTypeError::new_err(what));
        };
        Ok(PyStatePair::from_names(&input, &output))
    }
}

/// State of a series of runs of a session: outputs of a run that are inputs of the next one, such
/// as the keys and values of a text that a decoder continues. `Session.state` makes it.
///
/// A run writes new rows into the memory of the state and copies no earlier ones where the model
/// joins both by `Concat`, in `Attention` or `GroupQueryAttention`, or writes rows by
/// `TensorScatter`. Results have the bits of runs that pass the same values by hand. A run that
/// fails leaves the state as it was, but for rows in whose place it wrote others.
///
/// Threads may share a state: calls wait for each other. `len(state)` is the number of rows,
/// positions of a text.
#[pyclass(frozen, name = "SessionState", module = "sardonyx")]
pub(crate) struct PySessionState {
    session: Py<PySession>,
    pairs: Vec<PyStatePair>,
    /// Whether runs append in place, by pair.
    appended: Vec<bool>,
    turns: TurnLock,
    /// Locked only by the thread that has a turn.
    state: Mutex<SessionState>,
}

#[pymethods]
impl PySessionState {
    /// Runs the session on a dict of the inputs that the state does not keep, and returns a dict of
    /// the outputs that it does not keep, by name.
    ///
    /// `outputs` lists the names of the outputs to return; the default is all. `timeout` is a time
    /// limit in seconds, waiting for other calls included. `stop` is a `StopFlag` with which
    /// another thread can cancel the run.
    ///
    /// Raises `sardonyx.Error` like `Session.run`, and leaves the state as it was; its code is
    /// `input` also for an input that the state keeps, and for a model that appends a number of
    /// rows that depends on values.
    #[pyo3(signature = (feeds, *, outputs=None, timeout=None, stop=None))]
    fn run<'py>(
        &self,
        feeds: &Bound<'py, PyAny>,
        outputs: Option<&Bound<'py, PyAny>>,
        timeout: Option<f64>,
        stop: Option<&Bound<'py, PyStopFlag>>,
    ) -> PyResult<Bound<'py, PyDict>> {
        let py = feeds.py();
        let engine = &self.session.get().0;
        let limits = make_call_limits(stop, timeout)?;
        let wanted = outputs.map(|names| self.find_outputs(names)).transpose()?;
        let given = engine.find_given(feeds)?;
        // Copies large arrays too if an output replaces a pair: it may be an input, and must not
        // alias memory of the caller.
        let mut converter = if self.appended.contains(&false) {
            InputConverter::with_copies()
        } else {
            InputConverter::default()
        };
        let inputs = engine.convert_given(&mut converter, &given)?;
        let turn = self.turns.acquire(py, &limits)?;
        let interpreter = engine.choose_gil_use(&limits, &converter);
        let started = Instant::now();
        let outputs = {
            let mut state = self.lock();
            let state = &mut *state;
            limits.run(py, interpreter, |options| state.run(inputs, options))
        };
        engine.record_duration(started);
        drop(turn);
        let returned = outputs.and_then(|outputs| to_dict(py, outputs, wanted.as_deref()));
        // Releases the borrowed buffers here, where this thread holds the GIL.
        drop(converter);
        returned
    }

    /// Returns the session that the state belongs to.
    #[getter]
    fn session<'py>(&self, py: Python<'py>) -> Bound<'py, PySession> {
        self.session.bind(py).clone()
    }

    /// Returns the pairs of the state as a list of `StatePair`.
    #[getter]
    fn pairs(&self) -> Vec<PyStatePair> {
        self.pairs.clone()
    }

    /// Whether runs append to the input `name` in place. Other inputs of the state are replaced by
    /// outputs.
    fn is_appended(&self, name: &str) -> bool {
        let mut pairs = self.pairs.iter().zip(&self.appended);
        pairs.any(|(pair, is_appended)| pair.input == name && *is_appended)
    }

    /// Explains how a run on the inputs `feeds` would keep the state. Returns a dict with a list
    /// for each kept input, by name: reasons why the run copies earlier rows, as sentences without
    /// their subject. An empty list means that it copies none.
    fn explain<'py>(&self, feeds: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyDict>> {
        let py = feeds.py();
        let engine = &self.session.get().0;
        let given = engine.find_given(feeds)?;
        let mut converter = InputConverter::default();
        let inputs = engine.convert_given(&mut converter, &given)?;
        let types = inputs.iter().filter_map(|(name, value)| {
            let tensor = value.as_tensor()?;
            Some((*name, Type::tensor(tensor.data_type(), tensor.dims().iter().copied())))
        });
        let types: Vec<(&str, Type)> = types.collect();
        let uses = self.change(py, |state| state.explain(&types));
        drop(inputs);
        drop(converter);
        let dict = PyDict::new(py);
        for (name, used) in uses? {
            dict.set_item(name, used.copies)?;
        }
        Ok(dict)
    }

    fn __len__(&self, py: Python<'_>) -> PyResult<usize> {
        self.read(py, SessionState::len)
    }

    /// Returns the number of rows that fit before memory grows; None if runs append to no pair.
    #[getter]
    fn capacity(&self, py: Python<'_>) -> PyResult<Option<usize>> {
        self.read(py, SessionState::capacity)
    }

    /// Returns the size of the memory of the state, in bytes. Clones count what they share.
    #[getter]
    fn nbytes(&self, py: Python<'_>) -> PyResult<usize> {
        self.read(py, SessionState::bytes)
    }

    /// Returns how many bytes of earlier rows the last run copied. It is 0 if runs append to all
    /// pairs, memory did not grow, no clone shared it, and no step had to rearrange it.
    #[getter]
    fn copied_bytes(&self, py: Python<'_>) -> PyResult<usize> {
        self.read(py, SessionState::copied_bytes)
    }

    /// Whether `truncate` works: the axis of rows of each pair is known.
    #[getter]
    fn can_truncate(&self, py: Python<'_>) -> PyResult<bool> {
        self.read(py, SessionState::can_truncate)
    }

    /// Drops all rows after the first `length`, and copies nothing of pairs to which runs append.
    ///
    /// Raises `sardonyx.Error` with the code `input` if the axis of rows of a pair is not known.
    fn truncate(&self, py: Python<'_>, length: i128) -> PyResult<()> {
        let length = to_count(py, "length", length)?;
        self.change(py, |state| state.truncate(length))
    }

    /// Keeps the sequences with these numbers, in this order, such as the best beams. A number may
    /// occur several times.
    ///
    /// Raises `sardonyx.Error` with the code `input` for a number that no sequence has.
    fn select(&self, indices: &Bound<'_, PyAny>) -> PyResult<()> {
        let py = indices.py();
        let mut members: Vec<usize> = Vec::new();
        for index in indices.try_iter()? {
            let index: i128 = index?.extract()?;
            let Ok(member) = usize::try_from(index) else {
                let what = format!("no member of the batch has the number {index}");
                return Err(input_error(py, what));
            };
            if members.len() == MOST_SEQUENCES {
                let what = format!("indices has more than {MOST_SEQUENCES} numbers");
                return Err(argument_error(py, what, None));
            }
            members.push(member);
        }
        self.change(py, |state| state.select(&members))
    }

    /// Reserves memory for `rows` rows in all. Raises `sardonyx.Error` with the code `run` if the
    /// memory exceeds the limit of the session.
    fn reserve(&self, py: Python<'_>, rows: i128) -> PyResult<()> {
        let rows = to_count(py, "rows", rows)?;
        self.change(py, |state| state.reserve(rows))
    }

    /// Returns the value of the input `name` as a new array, to save it. Raises `sardonyx.Error`
    /// with the code `argument` if the state has no such input.
    fn value<'py>(&self, py: Python<'py>, name: &str) -> PyResult<Bound<'py, PyAny>> {
        let value = self.change(py, |state| state.value(name))?;
        give::to_python(py, Value::from(value))
    }

    /// Replaces the value of the input `name` by a copy of an array, such as one that was saved.
    ///
    /// Raises `sardonyx.Error` with the code `argument` if the state has no such input, and with
    /// the code `input` if the element type or the rank is not that of the state.
    fn set_value(&self, name: &str, value: &Bound<'_, PyAny>) -> PyResult<()> {
        let py = value.py();
        let elem = self.session.get().0.input_ports().iter().find(|port| port.name() == name);
        let elem = elem.and_then(|port| port.ty()?.elem());
        let what = ValueName::Other("the new value of the state");
        let tensor = InputConverter::with_copies().convert_tensor(value, elem, &what)?;
        self.change(py, |state| state.set_value(name, tensor))
    }

    /// Returns a state with the same values, which shares memory with this one until one of them
    /// runs. `copy.copy` and `copy.deepcopy` do the same.
    fn clone(&self, py: Python<'_>) -> PyResult<PySessionState> {
        let state = self.read(py, SessionState::clone)?;
        Ok(PySessionState::new(self.session.clone_ref(py), self.pairs.clone(), state))
    }

    fn __copy__(&self, py: Python<'_>) -> PyResult<PySessionState> {
        self.clone(py)
    }

    fn __deepcopy__(&self, py: Python<'_>, _memo: &Bound<'_, PyAny>) -> PyResult<PySessionState> {
        self.clone(py)
    }

    fn __repr__(&self) -> String {
        let pairs: Vec<String> = self.pairs.iter().map(PyStatePair::__repr__).collect();
        format!("SessionState([{}])", pairs.join(", "))
    }
}

impl PySessionState {
    fn new(session: Py<PySession>, pairs: Vec<PyStatePair>, state: SessionState) -> Self {
        let appended = pairs.iter().map(|pair| state.is_appended(&pair.input)).collect();
        let turns = TurnLock::new("state");
        PySessionState { session, pairs, appended, turns, state: Mutex::new(state) }
    }

    /// Makes the state of runs of `session` from the arguments of `Session.state`.
    ///
    /// # Errors
    ///
    /// `sardonyx.Error` for a negative number, and for the errors of the library's builder.
    pub(super) fn build(
        session: &Bound<'_, PySession>,
        pairs: Option<Items<PyStatePair>>,
        batch: i128,
        dims: Option<&Bound<'_, PyDict>>,
        capacity: i128,
    ) -> PyResult<PySessionState> {
        let py = session.py();
        let batch = to_count(py, "batch", batch)?;
        let capacity = to_count(py, "capacity", capacity)?;
        let dims = parse_dims(dims)?;
        let pairs = match pairs {
            Some(pairs) => pairs.0,
            None => PyStatePair::find(session),
        };
        let engine = session.get().0.session();
        let mut builder = engine.state().batch(batch).capacity(capacity);
        builder = builder.pairs(pairs.iter().map(PyStatePair::to_pair));
        for (name, size) in dims {
            builder = builder.dim(name, size);
        }
        let state = py.detach(|| builder.build()).map_err(|error| to_exception(py, &error))?;
        Ok(PySessionState::new(session.clone().unbind(), pairs, state))
    }

    /// Locks the state for the thread that has a turn. A panic of another thread leaves the state
    /// consistent, so poisoning is ignored.
    fn lock(&self) -> MutexGuard<'_, SessionState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Calls `read`, which takes no time, on the state when no other call uses it.
    fn read<R>(&self, py: Python<'_>, read: impl FnOnce(&SessionState) -> R) -> PyResult<R> {
        let _turn = self.turns.acquire(py, &make_thread_limits(None, None))?;
        Ok(read(&self.lock()))
    }

    /// Calls `change` on the state when no other call uses it, with the GIL released.
    fn change<R: Send>(
        &self,
        py: Python<'_>,
        change: impl FnOnce(&mut SessionState) -> Result<R, Error> + Send,
    ) -> PyResult<R> {
        let _turn = self.turns.acquire(py, &make_thread_limits(None, None))?;
        let mut state = self.lock();
        let state = &mut *state;
        py.detach(|| change(state)).map_err(|error| to_exception(py, &error))
    }

    /// Converts a list or tuple of output names to indices.
    ///
    /// # Errors
    ///
    /// `TypeError` for any other object; `sardonyx.Error` for an output that does not exist or that
    /// the state keeps.
    fn find_outputs(&self, names: &Bound<'_, PyAny>) -> PyResult<Vec<&str>> {
        let engine = &self.session.get().0;
        let ports = engine.session().outputs();
        let wanted = engine.find_outputs(names)?.into_iter().map(|index| {
            let name = ports[index].name();
            match self.pairs.iter().find(|pair| pair.output == name) {
                None => Ok(name),
                Some(pair) => Err(new_error(
                    names.py(),
                    ErrorKind::Output,
                    format!("the state keeps the output '{name}'"),
                    Some(&format!("read it after the run: value('{}')", pair.input)),
                )),
            }
        });
        wanted.collect()
    }
}

/// Makes a dict of the outputs of a run, or of those called `wanted`.
fn to_dict<'py>(
    py: Python<'py>,
    outputs: Outputs,
    wanted: Option<&[&str]>,
) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    let Some(wanted) = wanted else {
        for (name, value) in outputs {
            dict.set_item(name, give::to_python(py, value)?)?;
        }
        return Ok(dict);
    };
    let mut outputs: Vec<(String, Value)> = outputs.into_iter().collect();
    for name in wanted {
        // A name that is listed twice has been found before.
        if let Some(place) = outputs.iter().position(|(own, _)| own == name) {
            let (name, value) = outputs.swap_remove(place);
            dict.set_item(name, give::to_python(py, value)?)?;
        }
    }
    Ok(dict)
}

/// Converts an argument that counts; a count above `usize::MAX` becomes `usize::MAX`.
///
/// # Errors
///
/// `sardonyx.Error` for a negative number.
fn to_count(py: Python<'_>, name: &str, count: i128) -> PyResult<usize> {
    if count < 0 {
        return Err(argument_error(py, format!("{name} must be 0 or more, not {count}"), None));
    }
    Ok(usize::try_from(count).unwrap_or(usize::MAX))
}

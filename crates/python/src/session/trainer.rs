//! `Trainer`: models that describe their training.
//!
//! A change of the state works on a copy of the trainer, which shares its programs and values, and
//! replaces the trainer at its end. So all that only reads the state never waits for a step, and an
//! error or Ctrl-C leaves the state as it was.

mod turns;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use pyo3::exceptions::{PyKeyError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyList, PyString};
use sardonyx::device::DeviceOptions;
use sardonyx::{Error, ErrorKind, Model, Outputs, Port, RunOptions, Trainer, Value};

use super::errors::{of_kind, raised};
use super::give;
use super::group::deadline_of;
use super::limits::{Interpreter, Limits};
use super::opened::{as_message, class_of, file_path, opened};
use super::ports::PyPort;
use super::settings::Settings;
use super::take::{Taker, What, as_dict, shown};
use super::{PyStopFlag, limits_of};
use turns::Turns;

/// A model that is trained as it says itself, by its field `training_info`.
///
/// The state variables are the initializers that a binding of the training information names.
/// `initialize`, `step`, `iterate`, `set_state` and `load` change them; they wait for each other.
/// `infer`, `evaluate` and all else use the state between two changes, and do not wait. An error
/// or Ctrl-C leaves the state as it was before the call.
///
/// `model`, `threads`, `precision`, `memory_limit` and `dims` are those of `Session`. `seed` is
/// what random operators without a seed draw by; by default one from the system. `outputs` names
/// the outputs that training steps return; all by default. Others are not computed.
///
/// `devices` runs steps and inference on the devices of a configuration of the model, each a thread
/// with its part of the model and of the state: `True` for the only configuration, or a name. The
/// results are the same, except for the rounding of sums. `threads` counts the threads of each
/// device then; by default the devices share the processors. `device_timeout` is how many seconds a
/// device waits for a message of another one.
///
/// Raises `sardonyx.Error` if the model has no training information, or cannot be opened or run.
#[pyclass(frozen, name = "Trainer", module = "sardonyx")]
pub(crate) struct PyTrainer {
    current: Mutex<Arc<Trainer>>,
    turns: Turns,
    settings: Settings,
    /// `FromString` of the class of the model; `None` if that has none.
    class: Option<Py<PyAny>>,
}

/// The state of a trainer at one moment.
#[pyclass(frozen, module = "sardonyx._core.session")]
pub(crate) struct Snapshot(Arc<Trainer>);

#[pymethods]
impl PyTrainer {
    #[new]
    #[pyo3(signature = (
        model, *, seed=None, threads=None, precision="exact", memory_limit=None, dims=None,
        outputs=None, devices=None, device_timeout=60.0
    ))]
    #[expect(clippy::too_many_arguments, reason = "those of the function in Python")]
    fn new(
        model: &Bound<'_, PyAny>,
        seed: Option<i128>,
        threads: Option<i128>,
        precision: &str,
        memory_limit: Option<i128>,
        dims: Option<&Bound<'_, PyDict>>,
        outputs: Option<Vec<String>>,
        devices: Option<&Bound<'_, PyAny>>,
        device_timeout: f64,
    ) -> PyResult<PyTrainer> {
        let py = model.py();
        let devices = device_options(devices, deadline_of(py, device_timeout)?)?;
        let settings = Settings::new(py, threads, precision, memory_limit, dims, seed)?;
        let class = class_of(model)?;
        let (model, _) = opened(model)?;
        let trainer = py.detach(|| {
            let mut builder = Trainer::builder(&model).session(|session| settings.applied(session));
            if let Some(names) = outputs {
                builder = builder.outputs(names);
            }
            if let Some(devices) = devices {
                builder = builder.devices(devices);
            }
            builder.build()
        });
        let trainer = trainer.map_err(|error| raised(py, &error))?;
        Ok(PyTrainer {
            turns: Turns::default(),
            settings,
            class,
            current: Mutex::new(Arc::new(trainer)),
        })
    }

    /// Brings the state back to the beginning: every state variable gets its stored value, then the
    /// initialization graphs are evaluated and assigned, in the order of the entries.
    ///
    /// `timeout` and `stop` are those of `Session.run`.
    #[pyo3(signature = (*, timeout=None, stop=None))]
    fn initialize(
        &self,
        py: Python<'_>,
        timeout: Option<f64>,
        stop: Option<&Bound<'_, PyStopFlag>>,
    ) -> PyResult<()> {
        let limits = limits_of(stop, timeout)?;
        let run = |trainer: &mut Trainer, options: &RunOptions<'_>| trainer.initialize(options);
        self.change(py, limits, run, Ok)
    }

    /// Runs the training step of an entry once: the main graph followed by the algorithm of the
    /// entry, both with the values that the state has before. Assigns new values as
    /// `update_binding` says, and returns a dict of the outputs of both graphs by name.
    ///
    /// `inputs` are inputs by name, as for `Session.run`. The time that `timeout` says counts the
    /// waiting for other steps as well.
    #[pyo3(signature = (inputs, *, entry=0, timeout=None, stop=None))]
    fn step<'py>(
        &self,
        inputs: &Bound<'py, PyAny>,
        entry: usize,
        timeout: Option<f64>,
        stop: Option<&Bound<'py, PyStopFlag>>,
    ) -> PyResult<Bound<'py, PyDict>> {
        let py = inputs.py();
        let limits = limits_of(stop, timeout)?;
        // Copies, as a step may assign an input to a state variable.
        let ports = step_inputs(py, &self.current(), entry)?;
        let inputs = given(&mut Taker::copying(), inputs, &ports)?;
        let run =
            |trainer: &mut Trainer, options: &RunOptions<'_>| trainer.step(entry, inputs, options);
        self.change(py, limits, run, |outputs| named(py, outputs))
    }

    /// What `step` would return now: the same computation, which assigns nothing.
    #[pyo3(signature = (inputs, *, entry=0, timeout=None, stop=None))]
    fn evaluate<'py>(
        &self,
        inputs: &Bound<'py, PyAny>,
        entry: usize,
        timeout: Option<f64>,
        stop: Option<&Bound<'py, PyStopFlag>>,
    ) -> PyResult<Bound<'py, PyDict>> {
        let ports = step_inputs(inputs.py(), &self.current(), entry)?;
        let limits = limits_of(stop, timeout)?;
        self.read(inputs, &ports, limits, |trainer, inputs, options| {
            trainer.evaluate(entry, inputs, options)
        })
    }

    /// One iteration of training: the training steps of all entries, in the order of the list. Each
    /// takes those of the inputs that it has. Returns a list with the outputs of each.
    #[pyo3(signature = (inputs, *, timeout=None, stop=None))]
    fn iterate<'py>(
        &self,
        inputs: &Bound<'py, PyAny>,
        timeout: Option<f64>,
        stop: Option<&Bound<'py, PyStopFlag>>,
    ) -> PyResult<Bound<'py, PyList>> {
        let py = inputs.py();
        let limits = limits_of(stop, timeout)?;
        let current = self.current();
        let ports = (0..current.entries()).map(|entry| step_inputs(py, &current, entry));
        let ports = ports.collect::<PyResult<Vec<_>>>()?.concat();
        let inputs = given(&mut Taker::copying(), inputs, &ports)?;
        let run =
            |trainer: &mut Trainer, options: &RunOptions<'_>| trainer.iterate(inputs, options);
        self.change(py, limits, run, |all: Vec<Outputs>| {
            let dicts = all.into_iter().map(|outputs| named(py, outputs));
            PyList::new(py, dicts.collect::<PyResult<Vec<_>>>()?)
        })
    }

    /// Runs the main graph with the current state, and changes nothing: the same call again gives
    /// the same outputs, random numbers included. Returns a dict of the outputs by name.
    ///
    /// A state variable that is an input of the main graph may be given another value for this
    /// call.
    #[pyo3(signature = (inputs, *, timeout=None, stop=None))]
    fn infer<'py>(
        &self,
        inputs: &Bound<'py, PyAny>,
        timeout: Option<f64>,
        stop: Option<&Bound<'py, PyStopFlag>>,
    ) -> PyResult<Bound<'py, PyDict>> {
        let limits = limits_of(stop, timeout)?;
        let ports: Vec<Port> = self.current().inference_inputs().cloned().collect();
        self.read(inputs, &ports, limits, |trainer, inputs, options| trainer.infer(inputs, options))
    }

    /// The state variables and their values, by name: a mapping that later steps do not change.
    ///
    /// A name that variables of two entries have is told apart by the entry:
    /// `training_info[1].rate`.
    #[getter]
    fn state<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let snapshot = Bound::new(py, Snapshot(self.current()))?;
        py.import("sardonyx._state")?.getattr("State")?.call1((snapshot,))
    }

    /// Gives a state variable another value, of the same element type and shape.
    fn set_state(&self, name: &str, value: &Bound<'_, PyAny>) -> PyResult<()> {
        let py = value.py();
        let current = self.current();
        let held = current.variable(name).map_err(|error| raised(py, &error))?;
        let what = What::Other("the value");
        let tensor = Taker::copying().tensor(value, Some(held.data_type()), &what)?;
        let set = |trainer: &mut Trainer, _: &RunOptions<'_>| trainer.set_state(name, tensor);
        self.change(py, limits_of(None, None)?, set, Ok)
    }

    /// Writes the state to a file that ends in `.safetensors` or `.npz`, whole or not at all: the
    /// values of all state variables, the position of the random generator, and a hash of the
    /// model.
    fn save(&self, py: Python<'_>, path: &Bound<'_, PyAny>) -> PyResult<()> {
        let (path, current) = (file_path(path)?, self.current());
        py.detach(|| current.save(path)).map_err(|error| raised(py, &error))
    }

    /// Takes over the state of a file that `save` wrote for the same model.
    fn load(&self, py: Python<'_>, path: &Bound<'_, PyAny>) -> PyResult<()> {
        let path = file_path(path)?;
        let load = |trainer: &mut Trainer, _: &RunOptions<'_>| trainer.load(path);
        self.change(py, limits_of(None, None)?, load, Ok)
    }

    /// The model with the current values in its initializers, ready to be trained further: an
    /// object of the class of the model that the trainer was made of, or bytes. What was in data
    /// files is inside.
    fn export<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.message(py, false)
    }

    /// The model with the current values in its initializers and without its training information;
    /// as `export` otherwise.
    fn export_inference<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.message(py, true)
    }

    /// Writes the model that `export` returns to a file, whole or not at all; with `inference=True`
    /// that of `export_inference`. Values in data files are copied if the file is in another
    /// directory. The ending of the name decides the form, as everywhere.
    #[pyo3(signature = (path, *, inference=false))]
    fn export_to(&self, path: &Bound<'_, PyAny>, inference: bool) -> PyResult<()> {
        let (py, path) = (path.py(), file_path(path)?);
        let current = self.current();
        let saved = py.detach(|| exported(&current, inference)?.save(path));
        saved.map_err(|error| raised(py, &error))
    }

    /// How many entries the training information has.
    #[getter]
    fn entries(&self) -> usize {
        self.current().entries()
    }

    /// How many devices run steps and inference; 0 without devices.
    #[getter]
    fn devices(&self) -> usize {
        self.current().device_count()
    }

    /// What random operators of the model draw by.
    #[getter]
    fn seed(&self) -> u64 {
        self.current().seed()
    }

    /// What is odd about the training information and does not stand against running it.
    #[getter]
    fn warnings(&self) -> Vec<String> {
        self.current().warnings().to_vec()
    }

    /// What the training step of an entry takes: inputs of the main graph, then those of its
    /// algorithm.
    #[pyo3(signature = (entry=0))]
    fn inputs(&self, py: Python<'_>, entry: usize) -> PyResult<Vec<PyPort>> {
        Ok(listed(step_inputs(py, &self.current(), entry)?))
    }

    /// What the training step of an entry returns.
    #[pyo3(signature = (entry=0))]
    fn outputs(&self, py: Python<'_>, entry: usize) -> PyResult<Vec<PyPort>> {
        Ok(listed(step_outputs(py, &self.current(), entry)?))
    }

    /// What inference takes. State variables that are inputs of the main graph may be given.
    #[getter]
    fn inference_inputs(&self) -> Vec<PyPort> {
        listed(self.current().inference_inputs().cloned())
    }

    /// What inference returns.
    #[getter]
    fn inference_outputs(&self) -> Vec<PyPort> {
        listed(self.current().inference_outputs().iter().cloned())
    }

    /// How exact products are: `exact` or `fast`.
    #[getter]
    fn precision(&self) -> &'static str {
        self.settings.precision_name()
    }

    /// What notebooks show: state variables, and inputs and outputs of each step.
    fn _repr_html_<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        slf.py().import("sardonyx._notebook")?.call_method1("trainer", (slf,))
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let current = self.current();
        let variables = current.state_types().map(|(name, ty)| format!("{name}: {ty}"));
        let variables: Vec<String> = variables.collect();
        let list = |ports: Vec<Port>| {
            ports.iter().map(ToString::to_string).collect::<Vec<String>>().join(", ")
        };
        let mut steps = Vec::new();
        for entry in 0..current.entries() {
            let inputs = list(step_inputs(py, &current, entry)?);
            let outputs = list(step_outputs(py, &current, entry)?);
            steps.push(format!("({inputs}) => ({outputs})"));
        }
        Ok(format!("Trainer([{}], state=({}))", steps.join(", "), variables.join(", ")))
    }
}

impl PyTrainer {
    /// The trainer between two changes.
    fn current(&self) -> Arc<Trainer> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Changes the state, one thread after the other. What is given back is made before the change
    /// is seen, so that no error of the call leaves a change behind.
    fn change<R: Send, G>(
        &self,
        py: Python<'_>,
        limits: Limits,
        change: impl FnOnce(&mut Trainer, &RunOptions<'_>) -> Result<R, Error> + Send,
        give: impl FnOnce(R) -> PyResult<G>,
    ) -> PyResult<G> {
        let _turn = self.turns.begin(py, &limits)?;
        let mut next = Trainer::clone(&self.current());
        let on_devices = next.device_count() > 0;
        let changed = run(py, limits, on_devices, |options| change(&mut next, options))?;
        let given = give(changed)?;
        let mut next = Arc::new(next);
        std::mem::swap(
            &mut *self.current.lock().unwrap_or_else(PoisonError::into_inner),
            &mut next,
        );
        Ok(given)
    }

    /// Runs something that leaves the state alone.
    fn read<'py>(
        &self,
        inputs: &Bound<'py, PyAny>,
        ports: &[Port],
        limits: Limits,
        run: impl FnOnce(&Trainer, Vec<(String, Value)>, &RunOptions<'_>) -> Result<Outputs, Error>
        + Send,
    ) -> PyResult<Bound<'py, PyDict>> {
        let py = inputs.py();
        let mut taker = Taker::default();
        let inputs = given(&mut taker, inputs, ports)?;
        let current = self.current();
        let on_devices = current.device_count() > 0;
        let outputs = self::run(py, limits, on_devices, |options| run(&current, inputs, options));
        let returned = outputs.and_then(|outputs| named(py, outputs));
        // What is lent is given back here, where the interpreter is held.
        drop(taker);
        returned
    }

    fn message<'py>(&self, py: Python<'py>, inference: bool) -> PyResult<Bound<'py, PyAny>> {
        let current = self.current();
        // Nothing finds its data files once it is away from where it lay.
        let model = py.detach(|| exported(&current, inference)?.with_values_inside());
        let model = model.map_err(|error| raised(py, &error))?;
        as_message(py, &model, self.class.as_ref())
    }
}

#[pymethods]
impl Snapshot {
    /// The names of the state variables: those of the main graph, then those of the algorithms.
    fn names(&self) -> Vec<&str> {
        self.0.state_types().map(|(name, _)| name).collect()
    }

    /// The value of a state variable, as an array of its own.
    fn value<'py>(&self, name: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let found = name.extract::<&str>().ok().and_then(|name| self.0.variable(name).ok());
        match found {
            Some(value) => give::object(name.py(), Value::from(value)),
            None => Err(PyKeyError::new_err(name.clone().unbind())),
        }
    }

    /// Types and shapes of the state variables, such as `float[2, 3]`.
    fn types(&self) -> Vec<String> {
        self.0.state_types().map(|(_, ty)| ty.to_string()).collect()
    }
}

/// Does a run, on devices or in this thread.
fn run<R: Send>(
    py: Python<'_>,
    limits: Limits,
    on_devices: bool,
    run: impl FnOnce(&RunOptions<'_>) -> Result<R, Error> + Send,
) -> PyResult<R> {
    if on_devices {
        limits.run_on_devices(py, run)
    } else {
        limits.run(py, Interpreter::ReleaseAndLook, run)
    }
}

/// The devices that `devices` asks for, if any.
///
/// # Errors
///
/// It is neither a bool nor a name.
fn device_options(
    devices: Option<&Bound<'_, PyAny>>,
    deadline: Duration,
) -> PyResult<Option<DeviceOptions>> {
    let options = DeviceOptions::new().deadline(deadline);
    let Some(devices) = devices else { return Ok(None) };
    if let Ok(wanted) = devices.cast::<PyBool>() {
        return Ok(wanted.is_true().then_some(options));
    }
    let Ok(name) = devices.cast::<PyString>() else {
        let found = shown(devices);
        let what = format!(
            "devices is {found}, which is neither True nor the name of a configuration of the model"
        );
        return Err(PyTypeError::new_err(what));
    };
    Ok(Some(options.configuration(name.to_cow()?)))
}

/// The model with the values of a trainer.
fn exported(trainer: &Trainer, inference: bool) -> Result<Model, Error> {
    if inference { trainer.export_inference() } else { trainer.export() }
}

/// What the training step of an entry takes.
fn step_inputs(py: Python<'_>, trainer: &Trainer, entry: usize) -> PyResult<Vec<Port>> {
    let ports = trainer.step_inputs(entry).map_err(|error| raised(py, &error))?;
    Ok(ports.cloned().collect())
}

/// What the training step of an entry returns.
fn step_outputs(py: Python<'_>, trainer: &Trainer, entry: usize) -> PyResult<Vec<Port>> {
    let ports = trainer.step_outputs(entry).map_err(|error| raised(py, &error))?;
    Ok(ports.cloned().collect())
}

fn listed(ports: impl IntoIterator<Item = Port>) -> Vec<PyPort> {
    ports.into_iter().map(PyPort).collect()
}

/// The inputs that a dict gives. Names that no port has are left in, as the run says best what is
/// wrong with them.
fn given(
    taker: &mut Taker,
    inputs: &Bound<'_, PyAny>,
    ports: &[Port],
) -> PyResult<Vec<(String, Value)>> {
    let inputs = as_dict(inputs)?;
    let mut values = Vec::with_capacity(inputs.len());
    for (key, object) in inputs.iter() {
        let Ok(name) = key.extract::<String>() else {
            let what = format!("the name {} of an input is not a str", shown(&key));
            return Err(of_kind(key.py(), ErrorKind::Input, what, None));
        };
        let known = ports.iter().find(|port| port.name() == name);
        let value = match known {
            Some(port) => taker.given(&object, port)?,
            None => taker.given(&object, &Port::new(name.clone(), None, false))?,
        };
        if let Some(value) = value {
            values.push((name, value));
        }
    }
    Ok(values)
}

/// Outputs as a dict by name.
fn named<'py>(py: Python<'py>, outputs: Outputs) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    for (name, value) in outputs {
        dict.set_item(name, give::object(py, value)?)?;
    }
    Ok(dict)
}

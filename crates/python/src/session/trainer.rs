//! `Trainer`: runs the training that a model describes in its field `training_info`.
//!
//! A step runs on the state that readers see, and changes it at its end, in the moment in which new
//! values are written over old ones. Another change works on a clone of the trainer, which shares
//! programs and values, and replaces the trainer when it has succeeded. So readers never wait for
//! the computation of a change, and an error or Ctrl-C leaves the state as it was.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use pyo3::exceptions::PyKeyError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};
use sardonyx::device::DeviceOptions;
use sardonyx::{Error, ErrorKind, Model, Outputs, Port, RunOptions, Trainer, Value};

use super::errors::{argument_error, new_error, to_exception};
use super::give;
use super::group::parse_deadline;
use super::limits::{GilUse, Limits};
use super::opened::{find_parser, open_model, to_message, to_path};
use super::ports::{PyPort, join_ports};
use super::settings::Settings;
use super::take::{InputConverter, ValueName, as_dict, shorten_repr};
use super::turns::TurnLock;
use super::{PyStopFlag, make_call_limits};
use crate::items::Items;

/// Trainer of a model that describes its training in `training_info`.
///
/// The state variables are the initializers that a binding of the training information names.
/// `initialize`, `step`, `iterate`, `set_state` and `load` change them, one call at a time, in the
/// order of the calls. All other methods, such as `infer` and `evaluate`, use the state of the last
/// finished change and never wait for the computation of another one. A call that raises an
/// exception, or that Ctrl-C interrupts, leaves the state unchanged.
///
/// `model` is a path, the bytes of a model, or an object with `SerializeToString`. `threads`,
/// `precision`, `memory_limit` and `dims` have the meanings they have in `Session`. `seed` seeds
/// random operators without an attribute `seed`; the default is drawn from the operating system.
/// `outputs` lists the names of the outputs that training steps compute and return; the default is
/// all.
///
/// `devices=True` shards the model and its state over the devices of a configuration, each of which
/// is a thread of this process. `configuration` is the name of that configuration; the default is
/// the only one of the model. The results differ only in the rounding of sums. `threads` is then
/// the number of threads of each device; by default the devices share the processors.
/// `device_timeout` is the longest time in seconds that a device waits for a message of another
/// device.
///
/// Raises `sardonyx.Error` if the model has no training information, cannot be opened, or is not
/// supported.
#[pyclass(frozen, name = "Trainer", module = "sardonyx")]
pub(crate) struct PyTrainer {
    /// Trainer with the state of the last finished change.
    current: Mutex<Arc<Trainer>>,
    /// FIFO lock of the calls that change the state.
    turns: TurnLock,
    settings: Settings,
    /// `FromString` of the class of `model`; `None` if the model is a path or bytes.
    class: Option<Py<PyAny>>,
}

/// Immutable state of a trainer at one moment.
#[pyclass(frozen, module = "sardonyx._core.session")]
pub(crate) struct Snapshot(Arc<Trainer>);

#[pymethods]
impl PyTrainer {
    #[new]
    #[pyo3(signature = (
        model, *, seed=None, threads=None, precision="exact", memory_limit=None, dims=None,
        outputs=None, devices=false, configuration=None, device_timeout=60.0
    ))]
    #[expect(clippy::too_many_arguments, reason = "arguments of the Python function")]
    fn new(
        model: &Bound<'_, PyAny>,
        seed: Option<i128>,
        threads: Option<i128>,
        precision: &str,
        memory_limit: Option<i128>,
        dims: Option<&Bound<'_, PyDict>>,
        outputs: Option<Items<String>>,
        devices: bool,
        configuration: Option<&str>,
        device_timeout: f64,
    ) -> PyResult<PyTrainer> {
        let py = model.py();
        let deadline = parse_deadline(py, device_timeout)?;
        let devices = parse_device_options(py, devices, configuration, deadline)?;
        let settings = Settings::new(py, threads, precision, memory_limit, dims, seed)?;
        let class = find_parser(model)?;
        let (model, _) = open_model(model)?;
        let trainer = py.detach(|| {
            let mut builder =
                Trainer::builder(&model).session(|session| settings.apply_to(session));
            if let Some(names) = outputs {
                builder = builder.outputs(names.0);
            }
            if let Some(devices) = devices {
                builder = builder.devices(devices);
            }
            builder.build()
        });
        let trainer = trainer.map_err(|error| to_exception(py, &error))?;
        Ok(PyTrainer {
            turns: TurnLock::new("trainer"),
            settings,
            class,
            current: Mutex::new(Arc::new(trainer)),
        })
    }

    /// Resets the state: every state variable gets its stored value, then the initialization graphs
    /// of the entries are run and assigned in order.
    ///
    /// `timeout` is a time limit in seconds, waiting for other changes included. `stop` is a
    /// `StopFlag` that cancels the call.
    #[pyo3(signature = (*, timeout=None, stop=None))]
    fn initialize(
        &self,
        py: Python<'_>,
        timeout: Option<f64>,
        stop: Option<&Bound<'_, PyStopFlag>>,
    ) -> PyResult<()> {
        let limits = make_call_limits(stop, timeout)?;
        self.update_trainer(py, limits, |trainer, options| trainer.initialize(options), Ok)
    }

    /// Runs one training step of an entry of `training_info` and returns a dict of the outputs by
    /// name.
    ///
    /// The main graph runs first, then the algorithm of the entry, both on the state before the
    /// step. Then the state variables are assigned by the `update_binding` of the entry. `inputs`
    /// is a dict of inputs by name. `timeout` is a time limit in seconds, waiting for other changes
    /// included. `stop` is a `StopFlag` that cancels the step.
    #[pyo3(signature = (inputs, *, entry=0, timeout=None, stop=None))]
    fn step<'py>(
        &self,
        inputs: &Bound<'py, PyAny>,
        entry: usize,
        timeout: Option<f64>,
        stop: Option<&Bound<'py, PyStopFlag>>,
    ) -> PyResult<Bound<'py, PyDict>> {
        let py = inputs.py();
        let limits = make_call_limits(stop, timeout)?;
        // Copies large arrays too: a step may assign an input to a state variable, which must not
        // alias memory of the caller.
        let ports = list_step_inputs(py, &self.current(), entry)?;
        let inputs = convert_inputs(&mut InputConverter::with_copies(), inputs, &ports)?;
        let _turn = self.turns.acquire(py, &limits)?;
        let current = self.current();
        let (programs, on_devices) = (current.programs(), current.device_count() > 0);
        let begin =
            |options: &RunOptions<'_>| programs.begin_step(&current, entry, inputs, options);
        let mut step = run(py, limits, on_devices, begin)?;
        drop(current);
        if !step.has_all_outputs() {
            // Only outputs that have become Python objects may change the state.
            let mut next = Trainer::clone(&self.current());
            let outputs = py.detach(|| next.end_step(step));
            let given = outputs.map_err(|error| to_exception(py, &error));
            let given = outputs_to_dict(py, given?)?;
            self.publish(next);
            return Ok(given);
        }
        let given = outputs_to_dict(py, step.take_outputs())?;
        let committed = py.detach(|| {
            let mut next = {
                let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
                // Old values are overwritten unless a reader still has them.
                if let Some(trainer) = Arc::get_mut(&mut current) {
                    return trainer.end_step(step).map(drop);
                }
                Trainer::clone(&current)
            };
            next.end_step(step)?;
            self.publish(next);
            Ok(())
        });
        committed.map_err(|error| to_exception(py, &error))?;
        Ok(given)
    }

    /// Computes the outputs that `step` would return now, without changing the state.
    ///
    /// Takes the arguments of `step` and returns a dict of the outputs by name.
    #[pyo3(signature = (inputs, *, entry=0, timeout=None, stop=None))]
    fn evaluate<'py>(
        &self,
        inputs: &Bound<'py, PyAny>,
        entry: usize,
        timeout: Option<f64>,
        stop: Option<&Bound<'py, PyStopFlag>>,
    ) -> PyResult<Bound<'py, PyDict>> {
        let ports = list_step_inputs(inputs.py(), &self.current(), entry)?;
        let limits = make_call_limits(stop, timeout)?;
        self.run_on_state(inputs, &ports, limits, |trainer, inputs, options| {
            trainer.evaluate(entry, inputs, options)
        })
    }

    /// Runs one iteration of training: a step of each entry, in order. Returns a list with a dict
    /// of outputs for each entry.
    ///
    /// `inputs` is a dict of the inputs of all entries; each step takes the inputs that it
    /// declares. `timeout` is a time limit in seconds, waiting for other changes included. `stop`
    /// is a `StopFlag` that cancels the iteration.
    #[pyo3(signature = (inputs, *, timeout=None, stop=None))]
    fn iterate<'py>(
        &self,
        inputs: &Bound<'py, PyAny>,
        timeout: Option<f64>,
        stop: Option<&Bound<'py, PyStopFlag>>,
    ) -> PyResult<Bound<'py, PyList>> {
        let py = inputs.py();
        let limits = make_call_limits(stop, timeout)?;
        let current = self.current();
        let ports = (0..current.entries()).map(|entry| list_step_inputs(py, &current, entry));
        let ports = ports.collect::<PyResult<Vec<_>>>()?.concat();
        let inputs = convert_inputs(&mut InputConverter::with_copies(), inputs, &ports)?;
        self.update_trainer(
            py,
            limits,
            |trainer, options| trainer.iterate(inputs, options),
            |all: Vec<Outputs>| {
                let dicts = all.into_iter().map(|outputs| outputs_to_dict(py, outputs));
                PyList::new(py, dicts.collect::<PyResult<Vec<_>>>()?)
            },
        )
    }

    /// Runs the main graph on the current state and returns a dict of the outputs by name.
    ///
    /// Changes nothing, not even the random generator, so repeated calls return equal outputs.
    /// `inputs` is a dict of inputs by name; a state variable that is also an input of the main
    /// graph may be overridden for this call. `timeout` is a time limit in seconds. `stop` is a
    /// `StopFlag` that cancels the run.
    #[pyo3(signature = (inputs, *, timeout=None, stop=None))]
    fn infer<'py>(
        &self,
        inputs: &Bound<'py, PyAny>,
        timeout: Option<f64>,
        stop: Option<&Bound<'py, PyStopFlag>>,
    ) -> PyResult<Bound<'py, PyDict>> {
        let limits = make_call_limits(stop, timeout)?;
        let ports: Vec<Port> = self.current().inference_inputs().cloned().collect();
        self.run_on_state(inputs, &ports, limits, |trainer, inputs, options| {
            trainer.infer(inputs, options)
        })
    }

    /// Returns the state variables as a mapping from names to values. Later steps do not change it.
    ///
    /// If two entries have variables of the same name, the key is qualified by the entry:
    /// `training_info[1].rate`.
    #[getter]
    fn state<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let snapshot = Bound::new(py, Snapshot(self.current()))?;
        py.import("sardonyx._state")?.getattr("State")?.call1((snapshot,))
    }

    /// Assigns a value to a state variable. It must have the element type and shape of the
    /// variable.
    fn set_state(&self, name: &str, value: &Bound<'_, PyAny>) -> PyResult<()> {
        let py = value.py();
        let current = self.current();
        let held = current.variable(name).map_err(|error| to_exception(py, &error))?;
        let what = ValueName::Other("the new value of the state variable");
        let tensor =
            InputConverter::with_copies().convert_tensor(value, Some(held.data_type()), &what)?;
        let limits = make_call_limits(None, None)?;
        self.update_trainer(py, limits, |trainer, _| trainer.set_state(name, tensor), Ok)
    }

    /// Writes the state atomically to a file whose name ends in `.safetensors` or `.npz`: the
    /// values of all state variables, the position of the random generator, and a hash of the
    /// model.
    fn save(&self, py: Python<'_>, path: &Bound<'_, PyAny>) -> PyResult<()> {
        let (path, current) = (to_path(path)?, self.current());
        py.detach(|| current.save(path)).map_err(|error| to_exception(py, &error))
    }

    /// Replaces the state by that of a file that `save` wrote for the same model.
    fn load(&self, py: Python<'_>, path: &Bound<'_, PyAny>) -> PyResult<()> {
        let path = to_path(path)?;
        self.update_trainer(py, make_call_limits(None, None)?, |trainer, _| trainer.load(path), Ok)
    }

    /// Returns the model with the current state as initializers and with its training information.
    ///
    /// The result is an object of the class of the trainer's `model`, or bytes if that was a path
    /// or bytes. Values from data files are embedded.
    fn export<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.export_message(py, false)
    }

    /// Returns the model with the current state as initializers and without its training
    /// information.
    ///
    /// The result is an object of the class of the trainer's `model`, or bytes if that was a path
    /// or bytes. Values from data files are embedded.
    fn export_inference<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.export_message(py, true)
    }

    /// Writes the model with the current state to a file, atomically: with its training
    /// information, or without if `inference` is True.
    ///
    /// The extension of `path` selects the file format, such as `.onnx` or `.onnxtxt`. Data files
    /// of the model are copied if `path` is in another directory.
    #[pyo3(signature = (path, *, inference=false))]
    fn export_to(&self, path: &Bound<'_, PyAny>, inference: bool) -> PyResult<()> {
        let (py, path) = (path.py(), to_path(path)?);
        let current = self.current();
        let saved = py.detach(|| export_model(&current, inference)?.save(path));
        saved.map_err(|error| to_exception(py, &error))
    }

    /// Returns the number of entries of the model's `training_info`.
    #[getter]
    fn entries(&self) -> usize {
        self.current().entries()
    }

    /// Returns the number of devices that steps and inference run on; 0 if the trainer uses no
    /// devices.
    #[getter]
    fn devices(&self) -> usize {
        self.current().device_count()
    }

    /// Returns the seed of the model's random operators.
    #[getter]
    fn seed(&self) -> u64 {
        self.current().seed()
    }

    /// Returns non-fatal problems in the training information, one sentence each.
    #[getter]
    fn warnings(&self) -> Vec<String> {
        self.current().warnings().to_vec()
    }

    /// Returns the inputs of the training step of an entry as a list of `Port`: those of the main
    /// graph, then those of the algorithm.
    #[pyo3(signature = (entry=0))]
    fn inputs(&self, py: Python<'_>, entry: usize) -> PyResult<Vec<PyPort>> {
        Ok(to_python_ports(list_step_inputs(py, &self.current(), entry)?))
    }

    /// Returns the outputs of the training step of an entry as a list of `Port`.
    #[pyo3(signature = (entry=0))]
    fn outputs(&self, py: Python<'_>, entry: usize) -> PyResult<Vec<PyPort>> {
        Ok(to_python_ports(list_step_outputs(py, &self.current(), entry)?))
    }

    /// Returns the inputs of `infer` as a list of `Port`. Those that are state variables are
    /// optional.
    #[getter]
    fn inference_inputs(&self) -> Vec<PyPort> {
        to_python_ports(self.current().inference_inputs().cloned())
    }

    /// Returns the outputs of `infer` as a list of `Port`.
    #[getter]
    fn inference_outputs(&self) -> Vec<PyPort> {
        to_python_ports(self.current().inference_outputs().iter().cloned())
    }

    /// Returns the precision of matrix products: `exact` or `fast`.
    #[getter]
    fn precision(&self) -> &'static str {
        self.settings.precision_name()
    }

    /// Returns HTML for notebooks: the state variables, and the inputs and outputs of each step.
    fn _repr_html_<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        slf.py().import("sardonyx._notebook")?.call_method1("trainer", (slf,))
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let current = self.current();
        let variables = current.state_types().map(|(name, ty)| format!("{name}: {ty}"));
        let variables: Vec<String> = variables.collect();
        let mut steps = Vec::new();
        for entry in 0..current.entries() {
            let inputs = join_ports(&list_step_inputs(py, &current, entry)?);
            let outputs = join_ports(&list_step_outputs(py, &current, entry)?);
            steps.push(format!("({inputs}) => ({outputs})"));
        }
        Ok(format!("Trainer([{}], state=({}))", steps.join(", "), variables.join(", ")))
    }
}

impl PyTrainer {
    /// Returns the trainer with the state of the last finished change.
    fn current(&self) -> Arc<Trainer> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Applies `update` to a clone of the trainer, converts its result with `convert`, and then
    /// publishes the clone. Admits one thread at a time; an error of either closure leaves the
    /// state unchanged.
    fn update_trainer<R: Send, G>(
        &self,
        py: Python<'_>,
        limits: Limits,
        update: impl FnOnce(&mut Trainer, &RunOptions<'_>) -> Result<R, Error> + Send,
        convert: impl FnOnce(R) -> PyResult<G>,
    ) -> PyResult<G> {
        let _turn = self.turns.acquire(py, &limits)?;
        let mut next = Trainer::clone(&self.current());
        let on_devices = next.device_count() > 0;
        let changed = run(py, limits, on_devices, |options| update(&mut next, options))?;
        let given = convert(changed)?;
        self.publish(next);
        Ok(given)
    }

    /// Makes a trainer that has been changed the current one.
    fn publish(&self, next: Trainer) {
        let mut next = Arc::new(next);
        // The old state is dropped after the lock.
        std::mem::swap(
            &mut *self.current.lock().unwrap_or_else(PoisonError::into_inner),
            &mut next,
        );
    }

    /// Converts `inputs`, calls `run` on the current state without a lock, and returns the outputs
    /// as a dict.
    fn run_on_state<'py>(
        &self,
        inputs: &Bound<'py, PyAny>,
        ports: &[Port],
        limits: Limits,
        run: impl FnOnce(&Trainer, Vec<(String, Value)>, &RunOptions<'_>) -> Result<Outputs, Error>
        + Send,
    ) -> PyResult<Bound<'py, PyDict>> {
        let py = inputs.py();
        let mut converter = InputConverter::default();
        let inputs = convert_inputs(&mut converter, inputs, ports)?;
        let current = self.current();
        let on_devices = current.device_count() > 0;
        let outputs = self::run(py, limits, on_devices, |options| run(&current, inputs, options));
        let returned = outputs.and_then(|outputs| outputs_to_dict(py, outputs));
        // Releases the borrowed buffers here, where this thread holds the GIL.
        drop(converter);
        returned
    }

    /// Exports the model as an object of the class of the given model, or as bytes, with all values
    /// embedded.
    fn export_message<'py>(&self, py: Python<'py>, inference: bool) -> PyResult<Bound<'py, PyAny>> {
        let current = self.current();
        // Embeds data files: their paths are relative to the file that the model came from.
        let model = py.detach(|| export_model(&current, inference)?.with_values_inside());
        let model = model.map_err(|error| to_exception(py, &error))?;
        to_message(py, &model, self.class.as_ref())
    }
}

#[pymethods]
impl Snapshot {
    /// Returns the names of the state variables: those of the main graph, then those of the
    /// algorithms.
    fn names(&self) -> Vec<&str> {
        self.0.state_types().map(|(name, _)| name).collect()
    }

    /// Returns the value of a state variable as a new array. Raises `KeyError` for an unknown
    /// name.
    fn value<'py>(&self, name: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let found = name.extract::<&str>().ok().and_then(|name| self.0.variable(name).ok());
        match found {
            Some(value) => give::to_python(name.py(), Value::from(value)),
            None => Err(PyKeyError::new_err(name.clone().unbind())),
        }
    }

    /// Returns type and shape of each state variable, such as `float[2, 3]`, in the order of
    /// `names()`.
    fn types(&self) -> Vec<String> {
        self.0.state_types().map(|(_, ty)| ty.to_string()).collect()
    }
}

/// Calls `run` with the options of `limits`: on the device threads while this thread waits for
/// signals, or in this thread.
fn run<R: Send>(
    py: Python<'_>,
    limits: Limits,
    on_devices: bool,
    run: impl FnOnce(&RunOptions<'_>) -> Result<R, Error> + Send,
) -> PyResult<R> {
    if on_devices {
        limits.run_on_devices(py, run)
    } else {
        limits.run(py, GilUse::ReleaseAndCheck, run)
    }
}

/// Converts the arguments of `Trainer` about devices to options; `None` for a trainer without
/// devices.
///
/// # Errors
///
/// A configuration is named for a trainer without devices.
fn parse_device_options(
    py: Python<'_>,
    devices: bool,
    configuration: Option<&str>,
    deadline: Duration,
) -> PyResult<Option<DeviceOptions>> {
    let options = DeviceOptions::new().deadline(deadline);
    match (devices, configuration) {
        (true, Some(name)) => Ok(Some(options.configuration(name))),
        (true, None) => Ok(Some(options)),
        (false, None) => Ok(None),
        (false, Some(name)) => {
            let what = format!("configuration is '{name}', but devices is False");
            Err(argument_error(py, what, Some("give devices=True as well")))
        }
    }
}

/// Exports the model with the state of `trainer`: for inference, or with its training information.
fn export_model(trainer: &Trainer, inference: bool) -> Result<Model, Error> {
    if inference { trainer.export_inference() } else { trainer.export() }
}

/// Returns the inputs of the training step of an entry of `training_info`.
///
/// # Errors
///
/// `sardonyx.Error` if the entry does not exist.
fn list_step_inputs(py: Python<'_>, trainer: &Trainer, entry: usize) -> PyResult<Vec<Port>> {
    let ports = trainer.step_inputs(entry).map_err(|error| to_exception(py, &error))?;
    Ok(ports.cloned().collect())
}

/// Returns the outputs of the training step of an entry of `training_info`.
///
/// # Errors
///
/// `sardonyx.Error` if the entry does not exist.
fn list_step_outputs(py: Python<'_>, trainer: &Trainer, entry: usize) -> PyResult<Vec<Port>> {
    let ports = trainer.step_outputs(entry).map_err(|error| to_exception(py, &error))?;
    Ok(ports.cloned().collect())
}

/// Wraps ports in their Python class.
fn to_python_ports(ports: impl IntoIterator<Item = Port>) -> Vec<PyPort> {
    ports.into_iter().map(PyPort).collect()
}

/// Converts a dict of inputs to values. Keeps unknown names: the run reports them with suggestions.
fn convert_inputs(
    converter: &mut InputConverter,
    inputs: &Bound<'_, PyAny>,
    ports: &[Port],
) -> PyResult<Vec<(String, Value)>> {
    let inputs = as_dict(inputs)?;
    let mut values = Vec::with_capacity(inputs.len());
    for (key, object) in inputs.iter() {
        let Ok(name) = key.extract::<String>() else {
            let what = format!("the name {} of an input is not a str", shorten_repr(&key));
            return Err(new_error(key.py(), ErrorKind::Input, what, None));
        };
        let known = ports.iter().find(|port| port.name() == name);
        let value = match known {
            Some(port) => converter.convert_argument(&object, port)?,
            None => converter.convert_argument(&object, &Port::new(name.clone(), None, false))?,
        };
        if let Some(value) = value {
            values.push((name, value));
        }
    }
    Ok(values)
}

/// Converts outputs to a dict of Python objects by name.
fn outputs_to_dict<'py>(py: Python<'py>, outputs: Outputs) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    for (name, value) in outputs {
        dict.set_item(name, give::to_python(py, value)?)?;
    }
    Ok(dict)
}

//! A model that runs on several devices, as one of its configurations says.

mod exchange;

use std::collections::hash_map::RandomState;
use std::fmt;
use std::hash::{BuildHasher, Hasher};
use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use sardonyx_devices::{Settings, Threads, Traffic, Transport};
use sardonyx_model::{self as graph, Type};
use sardonyx_ops::Registry;
use sardonyx_passes::{
    Device, EXCHANGE, EXCHANGE_DOMAIN, Local, ShardError, ShardOptions, prepare_to_shard, shard,
    suggest,
};
pub use sardonyx_passes::{Division, Plan, Suggested};
use sardonyx_runtime::{Port, RunOptions};
use sardonyx_tensor::Value;

use crate::error::{Error, ErrorKind};
use crate::model::Model;
use crate::outputs::Outputs;
use crate::session::{Choices, Session, SessionBuilder};
use exchange::{Exchange, Link};

/// What a session on several devices is made with.
#[derive(Debug, Clone, Default)]
pub struct DeviceOptions {
    configuration: Option<String>,
    settings: Settings,
}

impl DeviceOptions {
    /// The only configuration of the model, and a minute for each message.
    pub fn new() -> DeviceOptions {
        DeviceOptions::default()
    }

    /// The configuration of a name.
    #[must_use]
    pub fn configuration(mut self, name: impl Into<String>) -> Self {
        self.configuration = Some(name.into());
        self
    }

    /// How long a device waits for a message of another one before the run fails.
    #[must_use]
    pub fn deadline(mut self, deadline: std::time::Duration) -> Self {
        self.settings.deadline = deadline;
        self
    }
}

/// How many sets of input sizes a session remembers how to run.
const MOST_PLANS: usize = 4;

/// A model made ready to run on the devices of one of its configurations.
///
/// Each device is a thread of this process with a session of its own for its part of the model. The
/// results are those of a [`Session`]: annotations decide only where and in which parts values are
/// computed; sums may be rounded otherwise. Runs with inputs of new sizes make a new [`Plan`].
///
/// ```
/// use sardonyx::{DeviceOptions, Model, Session, Tensor};
///
/// // The rows of x on two devices.
/// let model = Model::from_text(
///     "<ir_version: 11, opset_import: [\"\": 21]>
///      g (float[4] x) => (float[4] y) {
///          y = Neg (x) @<device_configurations: [{
///              configuration_id: \"pair\",
///              sharding_spec: [{tensor_name: \"x\", device: [0, 1], sharded_dim:
///                  [{axis: 0, simple_sharding: [{num_shards: 2}]}]}]}]>
///      }
///      @<configuration: [{name: \"pair\", num_devices: 2}]>",
/// )?;
/// let session = Session::builder(&model).devices(DeviceOptions::new())?;
/// let x = Tensor::from_vec([4], vec![1f32, 2.0, 3.0, 4.0])?;
/// let outputs = session.run([("x", x)])?;
/// assert_eq!(outputs.tensor("y")?.as_slice::<f32>()?, [-1.0, -2.0, -3.0, -4.0]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct DeviceSession {
    model: Model,
    /// What plans are made of.
    prepared: graph::Model,
    choices: Choices,
    /// Sizes of symbolic dimensions that are fixed.
    symbols: Vec<(String, i64)>,
    device_options: DeviceOptions,
    /// The whole model, to look at inputs and outputs.
    look: Session,
    /// The devices of this process.
    ends: Vec<(Device, Link)>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The last used one last.
    plans: Vec<Arc<Prepared>>,
}

/// How to run with inputs of some sizes.
struct Prepared {
    inputs: Vec<Option<Type>>,
    plan: Arc<Plan>,
    workers: Vec<Worker>,
}

/// A device of this process.
struct Worker {
    device: Device,
    session: Session,
    /// By output of the model, the output of the device.
    outputs: Vec<Option<usize>>,
}

impl fmt::Debug for DeviceSession {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DeviceSession").field("ends", &self.ends).finish_non_exhaustive()
    }
}

impl SessionBuilder<'_> {
    /// Makes a session that runs the model on the devices of a configuration, each a thread of this
    /// process. Where [`SessionBuilder::threads`] says nothing, the processors are shared by the
    /// devices.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Input`] for a configuration that the model does not have or that cannot be
    /// chosen; as [`SessionBuilder::build`].
    pub fn devices(self, options: DeviceOptions) -> Result<DeviceSession, Error> {
        let mut choices = self.choices().clone();
        let model = choices.take_functions(self.model())?;
        let count = configured(&model, &options)?;
        let transports = Threads::new(count, &options.settings);
        let transports = transports.into_iter().map(|one| Arc::new(one) as Arc<dyn Transport>);
        let ends = (0..).zip(transports.map(Link::new)).collect();
        let look = choices.of_model(&model).only_look().build()?;
        let processors = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
        choices.options.threads.get_or_insert((processors / count).max(1));
        // All devices draw the same numbers.
        let any = || RandomState::new().build_hasher().finish();
        choices.options.seed.get_or_insert_with(any);
        // The models of devices have numbers in their place.
        let symbols = std::mem::take(&mut choices.options.dims);
        let registry = choices.options.operators.registry();
        let prepared = prepare_to_shard(&model.graph, &registry);
        let prepared = prepared.map_err(|error| shard_error(error, &model))?;
        let (device_options, state) = (options, Mutex::default());
        Ok(DeviceSession { model, prepared, choices, symbols, device_options, look, ends, state })
    }
}

impl Model {
    /// The same model with a device configuration of a name and a number of devices, and
    /// annotations that divide it among them. Calls of functions are inlined, as far as they can
    /// be. Sizes that the model leaves open are those of `sizes`, or else 64.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Input`] if the model has a configuration of the name; [`ErrorKind::Invalid`] if
    /// it cannot be run.
    pub fn shard(
        &self,
        configuration: (&str, usize),
        division: Division,
        sizes: &[(String, i64)],
    ) -> Result<(Model, Suggested), Error> {
        let registry = Registry::with_microsoft();
        let options = ShardOptions { symbols: sizes, ..ShardOptions::default() };
        suggest(&self.graph, &registry, configuration, division, options)
            .map(|(graph, report)| (self.with_graph(graph), report))
            .map_err(|error| shard_error(error, self))
    }
}

/// The number of devices of the chosen configuration.
fn configured(model: &Model, options: &DeviceOptions) -> Result<usize, Error> {
    sardonyx_passes::chosen_configuration(&model.graph, options.configuration.as_deref())
        .map(|(_, count)| count)
        .map_err(|error| shard_error(error, model))
}

fn shard_error(error: ShardError, model: &Model) -> Error {
    match error {
        ShardError::Configuration(why) => Error::new(ErrorKind::Input, why),
        ShardError::Invalid(findings) => crate::session::compile_error(
            sardonyx_runtime::CompileError::Invalid(findings),
            &crate::external::Watched::new(&model.data),
            model,
        ),
    }
}

impl DeviceSession {
    /// What a run takes, in the model's order.
    pub fn inputs(&self) -> &[Port] {
        self.look.inputs()
    }

    /// What a run gives back, in the model's order.
    pub fn outputs(&self) -> &[Port] {
        self.look.outputs()
    }

    /// The threads of all devices together.
    pub fn threads(&self) -> usize {
        self.ends.len() * self.choices.options.threads.unwrap_or(1)
    }

    /// The number of devices.
    pub fn device_count(&self) -> usize {
        self.ends.len()
    }

    /// How the model runs on inputs of these types; those of the model where there is none.
    ///
    /// # Errors
    ///
    /// As [`DeviceSession::run`] before anything runs.
    pub fn plan(&self, inputs: &[(&str, Type)]) -> Result<Plan, Error> {
        self.made(&self.by_position(|name| {
            inputs.iter().find(|(given, _)| *given == name).map(|(_, ty)| ty.clone())
        }))
    }

    /// The plan of the last run.
    pub fn last_plan(&self) -> Option<Arc<Plan>> {
        self.locked().plans.last().map(|prepared| Arc::clone(&prepared.plan))
    }

    /// What each device has sent so far.
    pub fn traffic(&self) -> Vec<Traffic> {
        self.ends.iter().map(|(_, link)| link.get().traffic()).collect()
    }

    /// Runs the model on inputs, given by name in any order, and returns its outputs. Runs of one
    /// session take turns.
    ///
    /// # Errors
    ///
    /// As [`Session::run`]. If a device fails, the others end too, and the error is that of the
    /// device that failed first.
    pub fn run<I, N, V>(&self, inputs: I) -> Result<Outputs, Error>
    where
        I: IntoIterator<Item = (N, V)>,
        N: Into<String>,
        V: Into<Value>,
    {
        let inputs: Vec<(String, Value)> =
            inputs.into_iter().map(|(name, value)| (name.into(), value.into())).collect();
        let types =
            self.by_position(|name| match &inputs.iter().find(|(given, _)| given == name)?.1 {
                Value::Tensor(tensor) => {
                    Some(Type::tensor(tensor.data_type(), tensor.dims().iter().copied()))
                }
                _ => None,
            });
        self.check(&inputs)?;
        let mut state = self.locked();
        let prepared = self.prepared(&mut state, &types)?;
        let found = self.run_all(&prepared, &inputs);
        if found.is_err() {
            self.reconnect();
        }
        found
    }

    /// Refuses names that no input has, and inputs that are missing, as a device is given only what
    /// it reads.
    fn check(&self, inputs: &[(String, Value)]) -> Result<(), Error> {
        for (name, _) in inputs {
            self.look.input(name)?;
        }
        let is_given = |port: &&Port| !inputs.iter().any(|(name, _)| name == port.name());
        match self.inputs().iter().filter(|port| port.is_required()).find(is_given) {
            Some(port) => {
                Err(Error::new(ErrorKind::Input, format!("the input '{}' is missing", port.name())))
            }
            None => Ok(()),
        }
    }

    fn locked(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// By input of the graph, which initializers may be too, the type that a name is given.
    fn by_position(&self, ty: impl Fn(&str) -> Option<Type>) -> Vec<Option<Type>> {
        let graph = &self.prepared;
        let inputs = graph.main_graph().into_iter().flat_map(|main| &main.inputs);
        inputs.map(|info| ty(&graph.display(info.name))).collect()
    }

    fn made(&self, inputs: &[Option<Type>]) -> Result<Plan, Error> {
        let registry = self.choices.options.operators.registry();
        let options = ShardOptions {
            configuration: self.device_options.configuration.as_deref(),
            inputs,
            symbols: &self.symbols,
        };
        let plan = shard(self.prepared.clone(), &registry, options);
        plan.map_err(|error| shard_error(error, &self.model))
    }

    /// How to run with inputs of these types.
    fn prepared(&self, state: &mut State, inputs: &[Option<Type>]) -> Result<Arc<Prepared>, Error> {
        if let Some(at) = state.plans.iter().position(|plan| plan.inputs == inputs) {
            let found = state.plans.remove(at);
            state.plans.push(Arc::clone(&found));
            return Ok(found);
        }
        let plan = Arc::new(self.made(inputs)?);
        let mut workers = Vec::with_capacity(self.ends.len());
        for (device, link) in &self.ends {
            let Local { model, outputs } = plan.local(*device);
            let model = self.model.with_graph(model);
            let exchange = Exchange::new(Arc::clone(&plan), *device, link.clone());
            let builder = self.choices.of_model(&model);
            let session = builder.operator(EXCHANGE_DOMAIN, EXCHANGE, exchange).build()?;
            workers.push(Worker { device: *device, session, outputs });
        }
        let found = Arc::new(Prepared { inputs: inputs.to_vec(), plan, workers });
        if state.plans.len() == MOST_PLANS {
            state.plans.remove(0);
        }
        state.plans.push(Arc::clone(&found));
        Ok(found)
    }

    /// Runs all devices at once.
    fn run_all(&self, prepared: &Prepared, inputs: &[(String, Value)]) -> Result<Outputs, Error> {
        let results: Vec<Result<Outputs, Error>> = std::thread::scope(|scope| {
            let (first, others) = prepared.workers.split_at(1);
            let others: Vec<_> =
                others.iter().map(|worker| scope.spawn(|| self.run_one(worker, inputs))).collect();
            let mut results: Vec<_> =
                first.iter().map(|worker| self.run_one(worker, inputs)).collect();
            results.extend(others.into_iter().map(|thread| match thread.join() {
                Ok(result) => result,
                Err(panic) => std::panic::resume_unwind(panic),
            }));
            results
        });
        let mut values = None;
        let mut errors = Vec::new();
        for (worker, result) in prepared.workers.iter().zip(results) {
            match result {
                Ok(outputs) if worker.device == 0 => values = Some(outputs),
                Ok(_) => {}
                Err(error) => errors.push((self.link(worker.device).ended_by_other(), error)),
            }
        }
        // Devices that ended because another one failed come after it.
        errors.sort_by_key(|(is_of_other, _)| *is_of_other);
        if let Some((_, error)) = errors.into_iter().next() {
            return Err(error);
        }
        let mut values: Vec<Option<Value>> = values
            .map(|outputs| outputs.into_iter().map(|(_, value)| Some(value)).collect())
            .unwrap_or_default();
        let places = prepared.workers.first().map_or(&[][..], |worker| &worker.outputs);
        let mut named = Vec::with_capacity(places.len());
        for (index, (port, place)) in self.outputs().iter().zip(places).enumerate() {
            let Some(place) = place else { continue };
            let is_last = !places[index + 1..].contains(&Some(*place));
            let value = if is_last { values[*place].take() } else { values[*place].clone() };
            named.extend(value.map(|value| (port.name().to_string(), value)));
        }
        Ok(Outputs::new(named))
    }

    fn run_one(&self, worker: &Worker, inputs: &[(String, Value)]) -> Result<Outputs, Error> {
        let ports = worker.session.inputs().iter();
        let own = ports.filter_map(|port| {
            let (name, value) = inputs.iter().find(|(name, _)| name == port.name())?;
            Some((name.clone(), value.clone()))
        });
        let found = worker.session.run_with(own.collect::<Vec<_>>(), RunOptions::new());
        if let Err(error) = &found {
            self.link(worker.device).get().fail(&error.to_string());
        }
        found
    }

    fn link(&self, device: Device) -> &Link {
        let found = self.ends.iter().find(|(own, _)| *own == device);
        found.map(|(_, link)| link).expect("a worker is one of the devices of this process")
    }

    /// Connects the devices anew, after a failure that all of them know.
    fn reconnect(&self) {
        let transports = Threads::new(self.ends.len(), &self.device_options.settings);
        for ((_, link), transport) in self.ends.iter().zip(transports) {
            link.set(Arc::new(transport));
        }
    }
}

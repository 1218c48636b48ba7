//! A model that runs on several devices, as one of its configurations says.

pub(crate) mod collectives;
mod exchange;
mod into;
mod parts;
mod profile;
mod rank_models;
mod runs;
mod seat;
mod split;
mod state;
mod team;
mod undivided;

use std::fmt;
use std::num::NonZeroUsize;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

pub use profile::{DeviceEvent, DevicePart, DeviceRun, Exchanged};
pub use rank_models::{RankModels, RankOptions};
pub use sardonyx_devices::{
    Channel, ChannelError, Channels, PrivateDirectory, Sent, Settings, Threads, Traffic, Transport,
    TransportError,
};
use sardonyx_devices::{Hosted, RunNumber};
#[cfg(all(unix, feature = "mpi", not(target_feature = "crt-static")))]
pub use sardonyx_devices::{Mpi, MpiInterface, MpiSettings};
#[cfg(unix)]
pub use sardonyx_devices::{Processes, Rendezvous};
use sardonyx_model::{self as graph, Dim, Type, ValueId};
use sardonyx_ops::Registry;
pub use sardonyx_passes::{Collectives, Division, EXCHANGE, Plan, Suggested};
use sardonyx_passes::{
    Device, EXCHANGE_DOMAIN, Local, Numbers, OutputsAt, ShardError, ShardOptions, prepare_to_shard,
    shard, suggest,
};
use sardonyx_runtime::{Port, StopFlag};
use sardonyx_tensor::{DataType, Tensor, Value};

use crate::error::{Error, ErrorKind, guarded};
use crate::model::Model;
use crate::outputs::Outputs;
use crate::results::InvalidResult;
use crate::session::{Choices, Session, SessionBuilder};
use exchange::{Exchange, Link, Routes, run_ended};
pub(crate) use parts::Parts;
use runs::{Running, Served, Serving};
pub use seat::Limits;
use seat::{Finished, Job, Seat, Sends, Taken, Terms};
pub use split::OutputPart;
pub(crate) use state::{Forms, Stay, Stays};
use team::{Said, Team};

/// What a session on several devices is made with.
#[derive(Debug, Clone, Default)]
pub struct DeviceOptions {
    configuration: Option<String>,
    settings: Settings,
    transport: Option<Arc<dyn Transport>>,
    results: Results,
}

/// Who gets what runs give.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Results {
    /// Worker 0, which gives the inputs.
    #[default]
    First,
    /// All workers: [`DeviceSession::serve_with`] hands the outputs of each run to those that
    /// serve.
    All,
    /// Nobody: each device keeps what it has of them, in parts or whole. Worker 0 calls
    /// [`DeviceSession::run_split`], all others [`DeviceSession::serve_split`].
    Split,
}

impl DeviceOptions {
    /// The only configuration of the model, devices that are threads of this process, and a minute
    /// for each message.
    pub fn new() -> DeviceOptions {
        DeviceOptions::default()
    }

    /// The configuration of a name.
    #[must_use]
    pub fn configuration(mut self, name: impl Into<String>) -> Self {
        self.configuration = Some(name.into());
        self
    }

    /// How long a device waits for a message of another one before the run fails. A transport that
    /// is given has a deadline of its own.
    #[must_use]
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.settings.deadline = deadline;
        self
    }

    /// Who gets what runs give; worker 0 alone by default.
    #[must_use]
    pub fn results(mut self, results: Results) -> Self {
        self.results = results;
        self
    }

    /// This process is one worker of several, which this transport connects: [`Processes`], `Mpi`,
    /// [`Channels`], or one of the program's own. Each worker makes a session of the same model
    /// with the same options. Devices are spread evenly over the workers; a worker may have several
    /// devices, or none. Worker 0 calls [`DeviceSession::run`], all others
    /// [`DeviceSession::serve`].
    #[must_use]
    pub fn transport(mut self, transport: Arc<dyn Transport>) -> Self {
        self.transport = Some(transport);
        self
    }

    /// Whether there may be other workers.
    pub(crate) fn has_transport(&self) -> bool {
        self.transport.is_some()
    }
}

/// How many plans a session keeps.
const MOST_PLANS: usize = 4;

/// A model made ready to run on the devices of one of its configurations.
///
/// Each device is a thread with a session of its own for its part of the model; all threads are in
/// this process, unless [`DeviceOptions::transport`] connects it with others. The results are those
/// of a [`Session`]: annotations decide only where and in which parts values are computed; sums may
/// be rounded otherwise. A [`Plan`] is made in the first run. It holds for all sizes that the model
/// leaves open, apart from 0 and 1, and from those along which something is split.
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
    /// The names of the inputs of that graph, which initializers may be too.
    names: Vec<String>,
    /// Their declared types.
    declared: Vec<Option<Type>>,
    /// The types of the initializers that they have where they are not given.
    defaults: Vec<Option<Type>>,
    choices: Choices,
    /// Sizes of symbolic dimensions that are fixed.
    symbols: Vec<(String, i64)>,
    device_options: DeviceOptions,
    /// The whole model, to look at inputs and outputs.
    look: Session,
    /// The devices of this process. Sessions of a trainer share them.
    seats: Arc<Vec<Seat>>,
    /// Who holds this runs.
    turn: Arc<Mutex<()>>,
    /// The other processes, if there are any.
    team: Option<Team>,
    devices: usize,
    /// What stays on the devices from run to run.
    stays: Stays,
    state: Mutex<State>,
    /// Copies of the inputs of the last run on memory of the caller.
    copied: Mutex<Vec<(String, Tensor)>>,
}

#[derive(Default)]
struct State {
    /// The last used one last.
    plans: Vec<Arc<Prepared>>,
}

/// How to run with inputs of some types.
struct Prepared {
    /// By input of the graph, with symbols for sizes that are open; its own type where there is
    /// none.
    inputs: Vec<Option<Type>>,
    plan: Arc<Plan>,
    /// By device of this process.
    parts: Vec<LocalSession>,
}

/// The same with the sizes of a run.
#[derive(Clone)]
struct Fitted {
    prepared: Arc<Prepared>,
    numbers: Arc<Numbers>,
}

/// The part of a model that a device runs.
struct LocalSession {
    session: Session,
    exchange: Exchange,
    /// By output of the model, the output of the session, if the device gives it.
    outputs: Vec<Option<usize>>,
    /// By resident, the output that is the device's part of its new value, if it has one.
    kept: Vec<Option<usize>>,
}

/// The devices of a session, which others may share.
struct Crew {
    device_options: DeviceOptions,
    seats: Arc<Vec<Seat>>,
    turn: Arc<Mutex<()>>,
    team: Option<Team>,
    devices: usize,
}

impl Prepared {
    /// What open sizes are in a run with inputs of these types; `None` if the plan does not hold
    /// for them.
    fn numbers(&self, inputs: &[Option<Type>]) -> Option<Numbers> {
        let mut numbers: Vec<(String, i64)> = Vec::new();
        for (own, given) in self.inputs.iter().zip(inputs) {
            let (Some(own), Some(given)) = (own, given) else {
                (own.is_none() && given.is_none()).then_some(())?;
                continue;
            };
            let (dims, sizes) = (own.shape()?, given.shape()?);
            if own.elem() != given.elem() || dims.len() != sizes.len() {
                return None;
            }
            for (dim, size) in dims.iter().zip(sizes) {
                match dim.as_symbol() {
                    None => (dim == size).then_some(())?,
                    Some(symbol) => {
                        let number = size.known().filter(|number| *number > 1)?;
                        match numbers.iter().find(|(known, _)| known == symbol) {
                            None => numbers.push((symbol.to_string(), number)),
                            Some((_, known)) => (*known == number).then_some(())?,
                        }
                    }
                }
            }
        }
        let numbers = numbers.into_iter().collect();
        self.plan.holds(&numbers).then_some(numbers)
    }
}

impl fmt::Debug for DeviceSession {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DeviceSession")
            .field("devices", &self.devices)
            .field("seats", &self.seats)
            .finish_non_exhaustive()
    }
}

impl SessionBuilder<'_> {
    /// Makes a session that runs the model on the devices of a configuration, each a thread. Where
    /// [`SessionBuilder::threads`] says nothing, the processors are shared by the devices of this
    /// process. With [`DeviceOptions::transport`], waits until all workers are there, and compares
    /// what they are about to run.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Argument`] for a configuration that the model does not have or that cannot be
    /// chosen; [`ErrorKind::Worker`] if workers do not have the same model, options and version, or
    /// one is missing; as [`SessionBuilder::build`].
    pub fn devices(self, options: DeviceOptions) -> Result<DeviceSession, Error> {
        guarded(|| self.make_on_devices(options))
    }

    fn make_on_devices(self, options: DeviceOptions) -> Result<DeviceSession, Error> {
        let mut choices = self.choices().clone();
        if choices.rank.take().is_some() {
            let message = "a session on devices takes its transport from the options of the devices, not from those of the session";
            return Err(Error::new(ErrorKind::Argument, message));
        }
        let model = choices.take_functions(self.model())?;
        let (configuration, devices) = model.devices_of(options.configuration.as_deref())?;
        // All devices draw the same numbers.
        let seed = choices.seed();
        let team = options.transport.clone().map(Team::new);
        choices.options.seed = Some(match &team {
            Some(team) => {
                let mut what = team::description(&model, (&configuration, devices), &choices)?;
                match options.results {
                    Results::First => {}
                    Results::All => what.push_str("results to all workers\n"),
                    Results::Split => what.push_str("results stay on the devices\n"),
                }
                team.agree(&what, seed)?
            }
            None => seed,
        });
        let links = linked(devices, &options);
        let processors = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
        choices.options.threads.get_or_insert((processors / links.len().max(1)).max(1));
        let seats = links.into_iter().map(|(device, link)| Seat::new(device, link));
        let crew = Crew {
            device_options: options,
            seats: Arc::new(seats.collect()),
            turn: Arc::default(),
            team,
            devices,
        };
        DeviceSession::of(model, choices, crew, Stays::default())
    }
}

/// The type of the initializer of an input of the main graph, if it has one.
fn default_of(model: &graph::Model, input: ValueId) -> Option<Type> {
    let main = model.main_graph()?;
    let dense = main.initializers.iter().find(|default| default.value == Some(input));
    let dense = dense.map(|default| (default.tensor.data_type, &default.tensor.dims));
    let sparse = || {
        let mut defaults = main.sparse_initializers.iter();
        let tensor = &defaults.find(|default| default.value == Some(input))?.tensor;
        Some((tensor.values.as_ref()?.data_type, &tensor.dims))
    };
    let (elem, dims) = dense.or_else(sparse)?;
    let elem = DataType::from_number(elem?)?;
    let sizes = dims.iter().map(|size| Dim::Known(*size));
    Some(Type::tensor(elem, sizes.collect::<Vec<_>>()))
}

/// The devices of this process, and what connects each with the others.
fn linked(devices: usize, options: &DeviceOptions) -> Vec<(Device, Link)> {
    match &options.transport {
        None => {
            let all = Threads::new(devices, &options.settings).into_iter();
            (0..).zip(all.map(|one| Link::new(Arc::new(one)))).collect()
        }
        // Each worker has one device at most.
        Some(transport) if transport.workers() >= devices => {
            let own = transport.number();
            let has_one = (own < devices).then(|| (own as Device, Link::new(transport.clone())));
            has_one.into_iter().collect()
        }
        Some(transport) => {
            let hosted = Hosted::new(transport, devices, &options.settings).into_iter();
            hosted.map(|one| (one.number() as Device, Link::new(Arc::new(one)))).collect()
        }
    }
}

impl Model {
    /// The device configuration of a name, or the only one of the model: its name, and how many
    /// devices it has.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Argument`] if there is none, or several that could be meant.
    pub fn devices_of(&self, configuration: Option<&str>) -> Result<(String, usize), Error> {
        sardonyx_passes::chosen_configuration(&self.graph, configuration)
            .map_err(|error| shard_error(error, self))
    }

    /// The same model with a device configuration of a name and a number of devices, and
    /// annotations that divide it among them. Calls of functions are inlined, as far as they can
    /// be. Sizes that the model leaves open are those of `sizes`, or else 64, or another one that
    /// the model accepts.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Argument`] if the model has a configuration of the name, or no size of a name
    /// in `sizes`; [`ErrorKind::Invalid`] if it cannot be run.
    pub fn shard(
        &self,
        configuration: (&str, usize),
        division: Division,
        sizes: &[(String, i64)],
    ) -> Result<(Model, Suggested), Error> {
        check_sizes(self, sizes)?;
        let registry = Registry::with_microsoft();
        let options = ShardOptions { symbols: sizes, ..ShardOptions::default() };
        suggest(&self.graph, &registry, configuration, division, options)
            .map(|(graph, report)| (self.with_graph(graph), report))
            .map_err(|error| shard_error(error, self))
    }
}

/// Refuses sizes that no input has. `INPUT[AXIS]` is one without a name.
fn check_sizes(model: &Model, sizes: &[(String, i64)]) -> Result<(), Error> {
    let inputs = model.inputs();
    let is_place = |name: &str| {
        let place = name.strip_suffix(']').and_then(|name| name.rsplit_once('['));
        place.is_some_and(|(input, _)| inputs.iter().any(|port| port.name() == input))
    };
    let named: Vec<_> = sizes.iter().filter(|(name, _)| !is_place(name)).cloned().collect();
    let checked = sardonyx_runtime::check_dims(&model.graph, &named);
    checked.map_err(|error| Error::new(ErrorKind::Argument, error.to_string()))
}

fn shard_error(error: ShardError, model: &Model) -> Error {
    match error {
        ShardError::Configuration(why) => {
            let error = Error::new(ErrorKind::Argument, why);
            if sardonyx_passes::configurations(&model.graph).is_empty() {
                return error.with_help("`sardonyx shard` adds one");
            }
            error
        }
        ShardError::Invalid(findings) => crate::session::compile_error(
            sardonyx_runtime::CompileError::Invalid(findings),
            &crate::external::Watched::new(&model.data),
            model,
        ),
        ShardError::Rejected(rejected) => InvalidResult::of(model, *rejected).into(),
    }
}

impl DeviceSession {
    /// A session of a model that has all its functions.
    fn of(
        model: Model,
        mut choices: Choices,
        crew: Crew,
        stays: Stays,
    ) -> Result<DeviceSession, Error> {
        // Names are read in every run, large constants when a run brings new sizes.
        let model = model.with_own_structure()?;
        let look = choices.of_model(&model).only_look().build()?;
        // The models of devices have numbers in their place.
        let symbols = std::mem::take(&mut choices.options.dims);
        choices.options.has_sizes_of_runs = true;
        let registry = choices.options.operators.registry();
        let prepared = prepare_to_shard(&model.graph, &registry);
        let prepared = prepared.map_err(|error| shard_error(error, &model))?;
        let inputs = || prepared.main_graph().into_iter().flat_map(|main| &main.inputs);
        let names = inputs().map(|info| prepared.display(info.name).to_string()).collect();
        let declared = inputs().map(|info| prepared.type_of(info.ty.as_ref()?)).collect();
        let defaults = inputs().map(|info| default_of(&prepared, info.value?)).collect();
        let Crew { device_options, seats, turn, team, devices } = crew;
        Ok(DeviceSession {
            model,
            prepared,
            names,
            declared,
            defaults,
            choices,
            symbols,
            device_options,
            look,
            seats,
            turn,
            team,
            devices,
            stays,
            state: Mutex::default(),
            copied: Mutex::default(),
        })
    }

    /// What a run takes, in the model's order.
    pub fn inputs(&self) -> &[Port] {
        self.look.inputs()
    }

    /// What a run gives back, in the model's order.
    pub fn outputs(&self) -> &[Port] {
        self.look.outputs()
    }

    /// The input of a name.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Input`] if there is none.
    pub fn input(&self, name: &str) -> Result<&Port, Error> {
        self.look.input(name)
    }

    /// The threads of all devices of this process together.
    pub fn threads(&self) -> usize {
        self.seats.len() * self.threads_per_device()
    }

    /// The threads of each device.
    pub fn threads_per_device(&self) -> usize {
        self.choices.options.threads.unwrap_or(1)
    }

    /// The instruction set that kernels use in this process, as
    /// [`Session::instruction_set`] says it.
    pub fn instruction_set(&self) -> String {
        self.look.instruction_set()
    }

    /// The number of devices, of all processes together.
    pub fn device_count(&self) -> usize {
        self.devices
    }

    /// The number of this process among the workers that run the model: 0 where all devices are
    /// threads of one process.
    pub fn worker(&self) -> usize {
        self.team.as_ref().map_or(0, Team::number)
    }

    /// How the model runs on inputs of these types; those of the model where there is none.
    ///
    /// # Errors
    ///
    /// As [`DeviceSession::run`] before anything runs.
    pub fn plan(&self, inputs: &[(&str, Type)]) -> Result<Plan, Error> {
        let types = self.by_position(|name| {
            inputs.iter().find(|(given, _)| *given == name).map(|(_, ty)| ty.clone())
        });
        // Of training steps, plans are made for numbers alone.
        let open = (!self.stays.is_empty()).then_some(&[][..]);
        guarded(|| self.made(&self.stays.with_types(types), open))
    }

    /// The plan of the last run.
    pub fn last_plan(&self) -> Option<Arc<Plan>> {
        self.locked().plans.last().map(|prepared| Arc::clone(&prepared.plan))
    }

    /// What each device of this process has sent so far.
    pub fn traffic(&self) -> Vec<Traffic> {
        self.seats.iter().map(|seat| seat.link.transport().traffic()).collect()
    }

    /// Runs the model on inputs, given by name in any order, and returns its outputs. Runs of one
    /// session take turns.
    ///
    /// # Errors
    ///
    /// As [`Session::run`]. If a device fails, the run ends on the others too, and the error is
    /// that of the device that failed first; where that is one of another process,
    /// [`ErrorKind::Worker`]. Other runs go on, unless a worker is lost: then none of the workers
    /// can run anything any more.
    pub fn run<I, N, V>(&self, inputs: I) -> Result<Outputs, Error>
    where
        I: IntoIterator<Item = (N, V)>,
        N: Into<String>,
        V: Into<Value>,
    {
        let found = self.run_many([inputs], &Limits::default())?;
        Ok(found.into_iter().next().unwrap_or_else(|| Outputs::new(Vec::new())))
    }

    /// Runs the model on each of several sets of inputs, and returns their outputs in the same
    /// order. Devices do not wait for each other between runs: where a model is divided into
    /// stages, each device works on another set.
    ///
    /// ```
    /// use sardonyx::devices::{Division, Limits};
    /// use sardonyx::{DeviceOptions, Model, Session, Tensor};
    ///
    /// let text = "<ir_version: 11, opset_import: [\"\": 21]>
    ///     g (float[2] x) => (float[2] y) { a = Exp (x)  y = Neg (a) }";
    /// let (model, _) = Model::from_text(text)?.shard(("two", 2), Division::Pipeline, &[])?;
    /// let session = Session::builder(&model).devices(DeviceOptions::new())?;
    /// let runs = (0..3).map(|n| [("x", Tensor::from_slice([2], &[0.0, n as f32]).unwrap())]);
    /// let outputs = session.run_many(runs, &Limits::default())?;
    /// assert_eq!(outputs[2].tensor("y")?.as_slice::<f32>()?[1], -(2f32.exp()));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`DeviceSession::run`], for the first set that fails; [`ErrorKind::Stopped`] if the
    /// limits end a run.
    pub fn run_many<I, N, V>(
        &self,
        runs: impl IntoIterator<Item = I>,
        limits: &Limits,
    ) -> Result<Vec<Outputs>, Error>
    where
        I: IntoIterator<Item = (N, V)>,
        N: Into<String>,
        V: Into<Value>,
    {
        self.check_gathers()?;
        let found = self.run_all(runs, limits, false)?;
        Ok(found.into_iter().map(|found| found.outputs).collect())
    }

    /// Runs the model once, and returns with its outputs what each device did, those of other
    /// processes included, in the order of their numbers. What the steps are,
    /// [`DeviceSession::parts`] says.
    ///
    /// ```
    /// use sardonyx::devices::{Division, Limits};
    /// use sardonyx::{DeviceOptions, Model, Session, Tensor};
    ///
    /// let text = "<ir_version: 11, opset_import: [\"\": 21]>
    ///     g (float[2] x) => (float[2] y) { a = Exp (x)  y = Neg (a) }";
    /// let (model, _) = Model::from_text(text)?.shard(("two", 2), Division::Pipeline, &[])?;
    /// let session = Session::builder(&model).devices(DeviceOptions::new())?;
    /// let x = Tensor::from_slice([2], &[0.0f32, 1.0])?;
    /// let (_, devices) = session.run_watched([("x", x)], &Limits::default())?;
    /// let sent: u64 = devices[0].events.iter().filter_map(|event| event.exchanged)
    ///     .map(|exchanged| exchanged.sent.bytes).sum();
    /// assert_eq!(sent, 8);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`DeviceSession::run_many`].
    pub fn run_watched<I, N, V>(
        &self,
        inputs: I,
        limits: &Limits,
    ) -> Result<(Outputs, Vec<DeviceRun>), Error>
    where
        I: IntoIterator<Item = (N, V)>,
        N: Into<String>,
        V: Into<Value>,
    {
        self.check_gathers()?;
        let found = self.run_all([inputs], limits, true)?.into_iter().next();
        let found = found.map(|found| (found.outputs, found.watched));
        Ok(found.unwrap_or_else(|| (Outputs::new(Vec::new()), Vec::new())))
    }

    /// The parts of the model that devices run for inputs of these types, those of the model where
    /// there is none, in the order of their numbers. For devices of other processes, the parts are
    /// as this process would run them.
    ///
    /// # Errors
    ///
    /// As [`DeviceSession::run`] before anything runs.
    pub fn parts(&self, inputs: &[(String, Type)]) -> Result<Vec<DevicePart>, Error> {
        guarded(|| self.make_parts(inputs))
    }

    fn make_parts(&self, inputs: &[(String, Type)]) -> Result<Vec<DevicePart>, Error> {
        let types = self.by_position(|name| {
            inputs.iter().find(|(given, _)| given == name).map(|(_, ty)| ty.clone())
        });
        let first = self.first().ok_or_else(|| self.only_first())?;
        let Fitted { prepared, numbers } = self.fitted(&types)?;
        let part = |device: Device| {
            let own = self.seats.iter().position(|seat| seat.device == device);
            let looked;
            let session = match own.and_then(|own| prepared.parts.get(own)) {
                Some(own) => &own.session,
                None => {
                    let place = (device, first.clone());
                    looked = self.part(&prepared.plan, place, &numbers, true)?.session;
                    &looked
                }
            };
            let reads = |name: &str| session.inputs().iter().any(|port| port.name() == name);
            let inputs = inputs.iter().filter(|(name, _)| reads(name)).cloned();
            Ok(DevicePart {
                device: device as usize,
                steps: session.steps(),
                details: session.details(inputs)?,
            })
        };
        (0..self.devices as Device).map(part).collect()
    }

    /// Runs the devices of this process whenever worker 0 runs the model, until its session is
    /// dropped.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Input`] for worker 0. [`ErrorKind::Worker`] if another worker is lost. Why a
    /// run ends early, worker 0 is told.
    pub fn serve(&self) -> Result<(), Error> {
        self.serve_until(&StopFlag::new())
    }

    /// As [`DeviceSession::serve`], but runs also end while this flag is up, with an error that the
    /// others are told. It does not end the wait for the next run; [`Transport::fail`] does.
    ///
    /// # Errors
    ///
    /// As [`DeviceSession::serve`].
    pub fn serve_until(&self, stop: &StopFlag) -> Result<(), Error> {
        self.serve_with(stop, |_| ())
    }

    /// As [`DeviceSession::serve_until`], and hands out the outputs of each run, in the order of
    /// runs, if they are for all workers ([`Results::All`]). Those of runs that end early are not
    /// handed out. Runs that follow wait while the function does something long.
    ///
    /// # Errors
    ///
    /// As [`DeviceSession::serve`].
    pub fn serve_with(&self, stop: &StopFlag, mut take: impl FnMut(Outputs)) -> Result<(), Error> {
        self.serve_all(stop, &mut |served| {
            if let Served::Outputs(outputs) = served {
                take(outputs);
            }
        })
    }

    fn serve_all(&self, stop: &StopFlag, take: &mut dyn FnMut(Served)) -> Result<(), Error> {
        let team = self.team.as_ref().filter(|team| team.number() > 0);
        let Some(team) = team else {
            return Err(Error::new(ErrorKind::Input, "worker 0 does not serve")
                .with_help("call 'run' here, and 'serve' on all other workers"));
        };
        let (done, finished) = channel();
        let mut serving = Serving::new(self, finished);
        let ended = loop {
            let order = match team.next(&self.names, self.inputs(), self.outputs()) {
                Ok(Some(Said::Run(order))) => order,
                Ok(Some(Said::Results(outputs))) => {
                    take(Served::Outputs(outputs));
                    continue;
                }
                Ok(Some(Said::Kept(run))) => {
                    take(Served::Parts(serving.keep(run)));
                    continue;
                }
                Ok(Some(Said::CalledOff(run))) => {
                    serving.call_off(|terms| terms.run == run);
                    continue;
                }
                Ok(None) => break Ok(()),
                Err(error) => break Err(error),
            };
            serving.note_finished();
            let limits = Limits { stop: Some(stop.clone()), ..order.limits };
            let terms = Terms::new(order.run, &limits, order.watched);
            match guarded(|| self.fitted(&order.types)) {
                Ok(fitted) => {
                    let taken = Arc::new(Taken { inputs: order.inputs, ..Taken::default() });
                    self.hand_out(&fitted, &taken, &terms, &done);
                    serving.begin(fitted, terms);
                }
                Err(error) => self.end_run(&terms, &error.to_string()),
            }
        };
        drop(done);
        serving.end();
        ended
    }

    /// Gives each device of this process its part of a run.
    fn hand_out(
        &self,
        fitted: &Fitted,
        taken: &Arc<Taken>,
        terms: &Terms,
        done: &Sender<Finished>,
    ) {
        let sends = match (self.worker(), self.splits_outputs()) {
            (0, _) => Sends::Nothing,
            (_, false) => Sends::Outputs,
            (_, true) => Sends::Done,
        };
        for (part, seat) in self.seats.iter().enumerate() {
            seat.give(Job {
                fitted: fitted.clone(),
                part,
                taken: Arc::clone(taken),
                terms: terms.clone(),
                sends,
                done: done.clone(),
            });
        }
    }

    /// Refuses names that no input has, and inputs that are missing, as a device is given only what
    /// it reads.
    fn check(&self, inputs: &[(String, Value)]) -> Result<(), Error> {
        for (name, _) in inputs {
            self.look.input(name)?;
        }
        let is_missing = |port: &&Port| {
            port.is_required()
                && !inputs.iter().any(|(name, _)| name == port.name())
                && !self.stays.have(port.name())
        };
        match self.inputs().iter().find(is_missing) {
            Some(port) => {
                Err(Error::new(ErrorKind::Input, format!("the input '{}' is missing", port.name())))
            }
            None => Ok(()),
        }
    }

    /// Waits until nothing else runs on the devices.
    fn turn(&self) -> MutexGuard<'_, ()> {
        self.turn.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn locked(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// By input of the graph, the type that a name is given.
    fn by_position(&self, ty: impl Fn(&str) -> Option<Type>) -> Vec<Option<Type>> {
        self.names.iter().map(|name| ty(name)).collect()
    }

    /// By input of the graph, the type of the tensor that it is given, or of its initializer.
    fn types_of(&self, inputs: &[(String, Value)]) -> Vec<Option<Type>> {
        let given = self.names.iter().map(|name| inputs.iter().find(|(given, _)| given == name));
        let types = given.zip(&self.defaults).map(|(given, default)| match given {
            Some((_, Value::Tensor(tensor))) => {
                Some(Type::tensor(tensor.data_type(), tensor.dims().iter().copied()))
            }
            Some(_) => None,
            None => default.clone(),
        });
        types.collect()
    }

    fn made(&self, inputs: &[Option<Type>], open: Option<&[(String, i64)]>) -> Result<Plan, Error> {
        let residents = self.stays.residents();
        let registry = self.choices.options.operators.registry();
        let options = ShardOptions {
            configuration: self.device_options.configuration.as_deref(),
            inputs,
            symbols: &self.symbols,
            open,
            outputs: if self.splits_outputs() { OutputsAt::Parts } else { OutputsAt::One },
            residents: &residents,
            unreturned: self.stays.unreturned(),
            whole_bodies: false,
        };
        shard(self.prepared.clone(), &registry, options).map_err(|error| match error {
            // The model itself has been looked at.
            ShardError::Invalid(findings) if open.is_some() => {
                let lines: Vec<String> = findings.iter().map(ToString::to_string).collect();
                let lines = lines.join("\n  ");
                let message = format!("the model is invalid for inputs of these shapes\n  {lines}");
                Error::new(ErrorKind::Input, message)
            }
            error => shard_error(error, &self.model),
        })
    }

    /// How to run with inputs of these types.
    fn fitted(&self, inputs: &[Option<Type>]) -> Result<Fitted, Error> {
        let mut state = self.locked();
        let mut plans = state.plans.iter().enumerate().rev();
        let known = plans.find_map(|(at, known)| Some((at, known.numbers(inputs)?)));
        if let Some((at, numbers)) = known {
            let prepared = state.plans.remove(at);
            state.plans.push(Arc::clone(&prepared));
            return Ok(Fitted { prepared, numbers: Arc::new(numbers) });
        }
        let (open_inputs, open) = self.left_open(inputs);
        let numbers: Numbers = open.iter().cloned().collect();
        // Batches of training have few sizes, and what gradients are computed by depends on them.
        let plan = self.stays.is_empty().then(|| self.made(&open_inputs, Some(&open)));
        let plan = plan.and_then(Result::ok).filter(|plan| plan.holds(&numbers));
        let (plan, pattern, numbers) = match plan {
            Some(plan) => (plan, open_inputs, numbers),
            // It may hold for these sizes alone.
            None => (self.made(inputs, Some(&[]))?, inputs.to_vec(), Numbers::default()),
        };
        let plan = Arc::new(plan);
        self.stays.settle(&plan);
        let mut parts = Vec::with_capacity(self.seats.len());
        for seat in self.seats.iter() {
            let place = (seat.device, seat.link.clone());
            parts.push(self.part(&plan, place, &numbers, false)?);
        }
        let prepared = Arc::new(Prepared { inputs: pattern, plan, parts });
        if state.plans.len() == MOST_PLANS {
            state.plans.remove(0);
        }
        state.plans.push(Arc::clone(&prepared));
        Ok(Fitted { prepared, numbers: Arc::new(numbers) })
    }

    /// Types of inputs with symbols for the sizes that the model leaves open, and the numbers that
    /// these stand for. Sizes of 0 and 1 mean something of their own to many operators and stay
    /// what they are.
    fn left_open(&self, inputs: &[Option<Type>]) -> (Vec<Option<Type>>, Vec<(String, i64)>) {
        let mut symbols: Vec<(String, i64)> = Vec::new();
        let all = inputs.iter().zip(&self.declared).zip(&self.names);
        let types = all.map(|((ty, declared), name)| {
            let mut ty = ty.clone()?;
            let declared = declared.as_ref().and_then(Type::shape);
            let mut axis = 0;
            ty.for_each_dim(&mut |dim| {
                let declared = declared.and_then(|dims| dims.get(axis));
                let own = declared.and_then(Dim::as_symbol).map(str::to_string);
                let symbol = own.unwrap_or_else(|| format!("{name}[{axis}]"));
                axis += 1;
                let Some(number) = dim.known().filter(|number| *number > 1) else { return };
                if declared.is_some_and(|dim| dim.known().is_some()) {
                    return;
                }
                match symbols.iter().find(|(known, _)| *known == symbol) {
                    None => symbols.push((symbol.clone(), number)),
                    Some((_, known)) if *known == number => {}
                    // It is no size of its own.
                    Some(_) => return,
                }
                *dim = Dim::symbol(&symbol);
            });
            Some(ty)
        });
        let types = types.collect();
        (types, symbols)
    }

    /// The part of a plan that a device runs; only to be looked at, if `looks`.
    fn part(
        &self,
        plan: &Arc<Plan>,
        (device, link): (Device, Link),
        numbers: &Numbers,
        looks: bool,
    ) -> Result<LocalSession, Error> {
        self.model.demand_unchanged_files()?;
        let Local { model, outputs, kept } = plan.local(device);
        let model = self.model.with_graph(model);
        let exchange = Exchange::new(Routes::new(Arc::clone(plan), device, numbers), link);
        let builder = self.choices.of_model(&model);
        let builder = builder.operator(EXCHANGE_DOMAIN, EXCHANGE, exchange.clone());
        let session = if looks { builder.only_look() } else { builder }.build()?;
        Ok(LocalSession { session, exchange, outputs, kept })
    }

    /// The error of what only worker 0 can do.
    #[cold]
    fn only_first(&self) -> Error {
        let message = format!("this is worker {}: only worker 0 takes inputs", self.worker());
        Error::new(ErrorKind::Input, message).with_help("call 'serve' here")
    }

    /// What connects the first device, if that is one of this process.
    fn first(&self) -> Option<&Link> {
        self.seats.iter().find(|seat| seat.device == 0).map(|seat| &seat.link)
    }

    /// What connects the workers; without others, the devices.
    fn transport(&self) -> Option<&dyn Transport> {
        let team = self.team.as_ref().map(Team::transport);
        team.or_else(|| self.first().map(Link::transport))
    }

    /// Ends a run early on all devices, unless it has ended already.
    fn end_run(&self, terms: &Terms, why: &str) {
        terms.ended.stop();
        // Devices of one worker know of each other only by their own transports.
        let links = self.seats.iter().map(|seat| seat.link.transport());
        for transport in links.chain(self.transport()) {
            transport.end_run(terms.run, &run_ended(transport, why));
        }
        if let Some(team) = self.team.as_ref().filter(|team| team.number() == 0) {
            team.call_off(terms.run, self.devices);
        }
    }

    /// Says that a run is over in this process, with all before it.
    fn forget(&self, run: RunNumber) {
        let links = self.seats.iter().map(|seat| seat.link.transport());
        for transport in links.chain(self.transport()) {
            transport.endpoint().forget_runs_before(run.checked_add(1).unwrap_or(1));
        }
    }
}

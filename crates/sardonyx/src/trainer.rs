//! Training as a model describes it: state variables, initialization, training steps.
//!
//! `build` makes the programs, `state` holds the variables, `file` saves them.

mod build;
mod file;
mod state;

use std::fmt;
use std::sync::{Arc, OnceLock};

use sardonyx_model::Type;
use sardonyx_passes::{Form, Plan};
use sardonyx_runtime::{Input, Port, RunOptions};
use sardonyx_tensor::{Tensor, TensorError, TensorView, TensorViewMut, Value};

pub use build::TrainerBuilder;
pub use state::{DataPosition, StateVariable, TrainingEntry};

use crate::devices::{DeviceSession, Limits, Traffic};
use crate::error::{Error, ErrorKind};
use crate::model::Model;
use crate::outputs::Outputs;
use crate::session::Session;
use state::{Held, New, State, Variable};

/// A model that is trained as it says itself, by its field `training_info`.
///
/// Such a model is an object with a state. Its state variables are those initializers that a
/// binding of the training information names. Three methods use them: [`initialize`] and [`step`]
/// change them, [`infer`] does not.
///
/// An error leaves the state as it was before the call. Assignment is late and whole: all new
/// values are computed from the old ones, then all are assigned. A [panic](ErrorKind::Internal)
/// during assignment is the exception: the trainer then refuses every use of its state until
/// [`initialize`] or [`load`](Trainer::load) gives it another.
///
/// A clone has a state of its own and shares the programs; values are not copied. So a step can
/// run on a clone while other threads use the state before it.
///
/// ```
/// use sardonyx::{Model, Tensor, Trainer};
///
/// // y = x * w, and one step of descent: w falls by the tenth part of x * (y - target).
/// let model = Model::from_text(
///     "<notation: \"full\", ir_version: 10, opset_import: [\"\": 21]>
///      g (float x) => (float y) <float w = {1}> { y = Mul (x, w) }
///      @<training_info: [{
///          algorithm: descent (float target) => (float loss, float new_w) {
///              d = Sub (y, target)
///              loss = Mul (d, d)
///              slope = Mul (x, d)
///              tenth = Constant <value_float: float = 0.1> ()
///              change = Mul (slope, tenth)
///              new_w = Sub (w, change)
///          },
///          update_binding: [\"w\": \"new_w\"]
///      }]>",
/// )?;
/// let mut trainer = Trainer::new(&model)?;
/// let data = [("x", Tensor::scalar(2f32)), ("target", Tensor::scalar(6f32))];
/// let first = trainer.step(0, data.clone())?;
/// assert_eq!(first.tensor("loss")?.item::<f32>()?, 16.0);
/// for _ in 0..50 {
///     trainer.step(0, data.clone())?;
/// }
/// let w: f32 = trainer.variable("w")?.item()?;
/// assert!((w - 3.0).abs() < 1e-3);
/// let outputs = trainer.infer([("x", Tensor::scalar(5f32))])?;
/// assert!((outputs.tensor("y")?.item::<f32>()? - 15.0).abs() < 1e-2);
/// trainer.export_inference()?.to_bytes();
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// [`initialize`]: Trainer::initialize
/// [`step`]: Trainer::step
/// [`infer`]: Trainer::infer
#[derive(Clone)]
pub struct Trainer {
    made: Arc<Made>,
    state: State,
    room: Room,
}

/// Lists that a run fills. They are empty between calls, and kept so that a step need not allocate
/// them.
#[derive(Default)]
struct Room {
    /// Values of the state variables that the program only reads.
    read: Vec<Value>,
    /// Numbers of those whose new values it may write over the old ones.
    written: Vec<usize>,
    /// All outputs of the program; `None` for those that it wrote over old values.
    outputs: Vec<Option<Value>>,
    /// Those that the caller gets.
    returned: Vec<Option<Value>>,
    /// What state variables get, by their numbers.
    assigned: Vec<(usize, New)>,
}

impl Clone for Room {
    fn clone(&self) -> Room {
        Room::default()
    }
}

/// Inputs of a call.
#[derive(Clone, Copy)]
enum Given<'v> {
    Values(&'v [(String, Value)]),
    Views(&'v [(&'v str, TensorView<'v>)]),
}

/// The state that a run reads.
enum Using<'s> {
    /// It stays as it is.
    Kept(&'s State),
    /// New values may be written over old ones.
    Changed(&'s mut State),
}

impl Using<'_> {
    fn state(&self) -> &State {
        match self {
            Using::Kept(state) => state,
            Using::Changed(state) => state,
        }
    }
}

/// What stays as it is while the state changes.
struct Made {
    model: Model,
    entries: Vec<Programs>,
    inference: Program,
    warnings: Vec<String>,
    /// Hash of the model in saved states, once it is known: hashing a model takes as long as
    /// reading it.
    identity: OnceLock<String>,
    /// The devices that run steps and inference, if there are any.
    devices: Option<DeviceSession>,
}

/// What an entry of the training information runs.
struct Programs {
    /// `None` if the entry has no initialization graph.
    initialization: Option<Program>,
    step: Program,
}

/// What runs a program.
enum Runner {
    Here(Box<Session>),
    /// State stays on the devices.
    OnDevices(Box<DeviceSession>),
}

/// What runs, and what it has to do with the state. State variables are inputs of it, so that
/// nothing that depends on them is computed when it is made.
///
/// New values that are functions of the elements at the same place, as those of optimizers are, are
/// written over the old ones when all else is done and nothing can fail any more. Others come as
/// outputs of a run, in memory of their own, and take the place of the old ones by changing an
/// owner; the next step gets the memory of the old ones.
struct Program {
    runner: Runner,
    /// Inputs that are state variables: name, and number of the variable.
    variables: Vec<(String, usize)>,
    /// Those of them whose new value can be written over the old one, by number.
    updated: Vec<(String, usize)>,
    /// Number of a state variable, and that of the output whose value it gets.
    assignments: Vec<(usize, usize)>,
    /// Whether each of the session's outputs is returned to the caller.
    returned: Vec<bool>,
    /// Whether a caller may give a state variable another value for one run, where the model
    /// declares it as an input: inference lets it, a step uses the state.
    takes_defaults: bool,
}

impl Trainer {
    /// Makes a model ready to be trained.
    ///
    /// # Errors
    ///
    /// See [`TrainerBuilder::build`].
    pub fn new(model: &Model) -> Result<Trainer, Error> {
        Trainer::builder(model).build()
    }

    /// Makes a model ready to be trained, with options.
    pub fn builder(model: &Model) -> TrainerBuilder<'_> {
        TrainerBuilder::new(model)
    }

    /// How many entries the training information has: each has an initialization and a training
    /// step.
    pub fn entries(&self) -> usize {
        self.made.entries.len()
    }

    /// What is odd about the training information and does not stand against running it, such as a
    /// variable that two entries assign: what it holds depends on the order of the calls.
    pub fn warnings(&self) -> &[String] {
        &self.made.warnings
    }

    /// What the training step of an entry takes: inputs of the main graph, then those of its
    /// algorithm, without state variables.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Argument`] if there is no such entry.
    pub fn step_inputs(&self, entry: usize) -> Result<impl Iterator<Item = &Port>, Error> {
        let program = &self.made.entry(entry)?.step;
        let is_variable =
            |port: &Port| program.variables.iter().any(|(name, _)| name == port.name());
        Ok(program.runner.inputs().iter().filter(move |port| !is_variable(port)))
    }

    /// What the training step of an entry returns.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Argument`] if there is no such entry.
    pub fn step_outputs(&self, entry: usize) -> Result<impl Iterator<Item = &Port>, Error> {
        let program = &self.made.entry(entry)?.step;
        let ports = program.runner.outputs().iter().zip(&program.returned);
        Ok(ports.filter_map(|(port, returned)| returned.then_some(port)))
    }

    /// What inference takes, in the model's order. State variables that are inputs of the main
    /// graph may be given, and need not be.
    pub fn inference_inputs(&self) -> impl Iterator<Item = &Port> {
        let inputs = self.made.inference.runner.inputs().iter();
        inputs.filter(|port| match self.made.inference.variable_of(port.name()) {
            Some(variable) => self.state.is_default(variable),
            None => true,
        })
    }

    /// What inference returns, in the model's order.
    pub fn inference_outputs(&self) -> &[Port] {
        self.made.inference.runner.outputs()
    }

    /// Brings the state back to the beginning: every state variable gets its stored value, and the
    /// random generator its seed. Then the initialization graph of each entry is evaluated, in the
    /// order of the list, and its outputs are assigned as `initialization_binding` says.
    ///
    /// # Errors
    ///
    /// See [`Session::run`]; the state is then as it was.
    pub fn initialize(&mut self) -> Result<(), Error> {
        self.initialize_with(RunOptions::new())
    }

    /// As [`Trainer::initialize`] with options. They hold for each graph by itself.
    ///
    /// # Errors
    ///
    /// As [`Trainer::initialize`]; [`ErrorKind::Stopped`] if the options end it.
    pub fn initialize_with(&mut self, mut options: RunOptions<'_>) -> Result<(), Error> {
        let mut state = self.state.at_beginning();
        for programs in &self.made.entries {
            if let Some(program) = &programs.initialization {
                let options = again(&mut options, state.seed_of_step());
                let (using, none) = (Using::Kept(&state), Given::Values(&[]));
                program.run(using, none, &mut self.room, options, |_, _| Ok(()))?;
                state.assign(&mut self.room.assigned);
            }
        }
        self.state = state;
        Ok(())
    }

    /// Runs the training step of an entry once: the main graph followed by the algorithm of the
    /// entry, both with the values that the state has before. Returns the outputs of both, and
    /// assigns new values as `update_binding` says. Inputs are given as to [`Session::run`]. In
    /// which order entries are called is up to the caller, and matters.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Argument`] if there is no such entry, [`ErrorKind::Input`] if an input is a
    /// state variable; else as [`Session::run`]. The state is then as it was.
    pub fn step<I, N, V>(&mut self, entry: usize, inputs: I) -> Result<Outputs, Error>
    where
        I: IntoIterator<Item = (N, V)>,
        N: Into<String>,
        V: Into<Value>,
    {
        self.step_with(entry, inputs, RunOptions::new())
    }

    /// As [`Trainer::step`] with options, as those of [`Session::run_with`]. A seed among them is
    /// used in place of the trainer's generator.
    ///
    /// # Errors
    ///
    /// As [`Trainer::step`]; [`ErrorKind::Stopped`] if the options end it.
    pub fn step_with<I, N, V>(
        &mut self,
        entry: usize,
        inputs: I,
        mut options: RunOptions<'_>,
    ) -> Result<Outputs, Error>
    where
        I: IntoIterator<Item = (N, V)>,
        N: Into<String>,
        V: Into<Value>,
    {
        let Trainer { made, state, room } = self;
        let options = again(&mut options, state.seed_of_step());
        let program = &made.entry(entry)?.step;
        let inputs = owned(inputs);
        let (using, given) = (Using::Changed(state), Given::Values(&inputs));
        program.run(using, given, room, options, |_, _| Ok(()))?;
        state.assign(&mut room.assigned);
        program.outputs(state, room)
    }

    /// As [`Trainer::step`], on inputs that stay with the caller; outputs are written into memory
    /// of the caller. Outputs that are not named are not returned. After the first steps with
    /// inputs of some sizes this allocates nothing, as [`Session::run_into`], but for values that
    /// are no tensors and operators that need memory of their own.
    ///
    /// # Errors
    ///
    /// As [`Trainer::step`]; [`ErrorKind::Input`] if an output is unknown, or has another type or
    /// other dimensions than its memory. The state is then as it was.
    pub fn step_into(
        &mut self,
        entry: usize,
        inputs: &[(&str, TensorView<'_>)],
        outputs: &mut [(&str, TensorViewMut<'_>)],
    ) -> Result<(), Error> {
        self.step_into_with(entry, inputs, outputs, RunOptions::new())
    }

    /// As [`Trainer::step_into`] with options, as [`Trainer::step_with`].
    ///
    /// # Errors
    ///
    /// As [`Trainer::step_into`]; [`ErrorKind::Stopped`] if the options end it.
    pub fn step_into_with(
        &mut self,
        entry: usize,
        inputs: &[(&str, TensorView<'_>)],
        outputs: &mut [(&str, TensorViewMut<'_>)],
        mut options: RunOptions<'_>,
    ) -> Result<(), Error> {
        let Trainer { made, state, room } = self;
        let options = again(&mut options, state.seed_of_step());
        let program = &made.entry(entry)?.step;
        for (name, _) in outputs.iter() {
            program.returned_at(name)?;
        }
        let copy = |memory: &mut TensorViewMut<'_>, value: &Value| match value {
            Value::Tensor(tensor) => memory.copy_from(&tensor.view()).map_err(|e| e.to_string()),
            other => Err(format!("it is {}, not a tensor", other.value_type())),
        };
        let refused =
            |name: &str, what| Error::new(ErrorKind::Input, format!("the output '{name}': {what}"));
        let accept = |variables: &[Variable], returned: &[Option<Value>]| {
            for (name, memory) in outputs.iter_mut() {
                let at = program.returned_at(name)?;
                let copied = match (&returned[at], program.variable_at(at)) {
                    (Some(value), _) => copy(memory, value),
                    // It will be in the place of the old value.
                    (None, Some(variable)) => variables[variable]
                        .check(&memory.as_view(), ErrorKind::Input)
                        .map_err(|error| error.to_string()),
                    (None, None) => Err("it has not been computed".to_string()),
                };
                copied.map_err(|what| refused(name, what))?;
            }
            Ok(())
        };
        program.run(Using::Changed(state), Given::Views(inputs), room, options, accept)?;
        state.assign(&mut room.assigned);
        for (name, memory) in outputs {
            let at = program.returned_at(name)?;
            if let (None, Some(variable)) = (&room.returned[at], program.variable_at(at)) {
                let value = Value::Tensor(state.value(variable)?);
                copy(memory, &value).map_err(|what| refused(name, what))?;
            }
        }
        room.returned.clear();
        Ok(())
    }

    /// What a training step of an entry would return now: the same computation, which assigns
    /// nothing.
    ///
    /// # Errors
    ///
    /// As [`Trainer::step`].
    pub fn evaluate<I, N, V>(&self, entry: usize, inputs: I) -> Result<Outputs, Error>
    where
        I: IntoIterator<Item = (N, V)>,
        N: Into<String>,
        V: Into<Value>,
    {
        self.evaluate_with(entry, inputs, RunOptions::new())
    }

    /// As [`Trainer::evaluate`] with options, as those of [`Session::run_with`].
    ///
    /// # Errors
    ///
    /// As [`Trainer::evaluate`]; [`ErrorKind::Stopped`] if the options end it.
    pub fn evaluate_with<I, N, V>(
        &self,
        entry: usize,
        inputs: I,
        mut options: RunOptions<'_>,
    ) -> Result<Outputs, Error>
    where
        I: IntoIterator<Item = (N, V)>,
        N: Into<String>,
        V: Into<Value>,
    {
        let options = again(&mut options, self.state.seed_of_step());
        self.made.entry(entry)?.step.returning(&self.state, &owned(inputs), options)
    }

    /// One iteration of training: the training steps of all entries, in the order of the list. Each
    /// takes those of the inputs that it has. Returns the outputs of each.
    ///
    /// # Errors
    ///
    /// As [`Trainer::step`]. The state is then as it was before the first step.
    pub fn iterate<I, N, V>(&mut self, inputs: I) -> Result<Vec<Outputs>, Error>
    where
        I: IntoIterator<Item = (N, V)>,
        N: Into<String>,
        V: Into<Value>,
    {
        self.iterate_with(inputs, RunOptions::new())
    }

    /// As [`Trainer::iterate`] with options. A limit of iterations holds for each step by itself.
    ///
    /// # Errors
    ///
    /// As [`Trainer::iterate`]; [`ErrorKind::Stopped`] if the options end it.
    pub fn iterate_with<I, N, V>(
        &mut self,
        inputs: I,
        mut options: RunOptions<'_>,
    ) -> Result<Vec<Outputs>, Error>
    where
        I: IntoIterator<Item = (N, V)>,
        N: Into<String>,
        V: Into<Value>,
    {
        let inputs = owned(inputs);
        let takes = |programs: &Programs, name: &str| programs.step.runner.has_input(name);
        let unknown = inputs
            .iter()
            .find(|(name, _)| !self.made.entries.iter().any(|programs| takes(programs, name)));
        if let Some((name, _)) = unknown {
            let message = format!("no training step has an input '{name}'");
            return Err(Error::new(ErrorKind::Input, message));
        }
        if self.made.entries.len() == 1 {
            return Ok(vec![self.step_with(0, inputs, options)?]);
        }
        // The old values stay alive until all steps are done, so that a failing one undoes nothing.
        let mut state = self.state.clone();
        let mut returned = Vec::with_capacity(self.made.entries.len());
        for programs in &self.made.entries {
            let inputs = inputs.iter().filter(|(name, _)| takes(programs, name)).cloned();
            let inputs: Vec<(String, Value)> = inputs.collect();
            let options = again(&mut options, state.seed_of_step());
            let (using, given) = (Using::Kept(&state), Given::Values(&inputs));
            programs.step.run(using, given, &mut self.room, options, |_, _| Ok(()))?;
            state.assign(&mut self.room.assigned);
            returned.push(programs.step.outputs(&state, &mut self.room)?);
        }
        self.state = state;
        Ok(returned)
    }

    /// Runs the main graph with the current state, and changes nothing: the same call again gives
    /// the same outputs, random numbers included. A state variable that is an input of the main
    /// graph may be given another value for this call.
    ///
    /// # Errors
    ///
    /// See [`Session::run`].
    pub fn infer<I, N, V>(&self, inputs: I) -> Result<Outputs, Error>
    where
        I: IntoIterator<Item = (N, V)>,
        N: Into<String>,
        V: Into<Value>,
    {
        self.infer_with(inputs, RunOptions::new())
    }

    /// As [`Trainer::infer`] with options, as those of [`Session::run_with`].
    ///
    /// # Errors
    ///
    /// As [`Trainer::infer`]; [`ErrorKind::Stopped`] if the options end it.
    pub fn infer_with<I, N, V>(
        &self,
        inputs: I,
        mut options: RunOptions<'_>,
    ) -> Result<Outputs, Error>
    where
        I: IntoIterator<Item = (N, V)>,
        N: Into<String>,
        V: Into<Value>,
    {
        let options = again(&mut options, self.state.seed_of_inference());
        self.made.inference.returning(&self.state, &owned(inputs), options)
    }

    /// The state variables with their current values: those of the main graph in the order of its
    /// initializers, then those of the algorithms. A name that variables of two entries have is
    /// told apart by the entry: `training_info[1].rate`. Values that are on devices in parts are
    /// put together.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Run`] if there is no memory for values that are on devices.
    pub fn state(&self) -> Result<Vec<(&str, Tensor)>, Error> {
        self.state.values()
    }

    /// Names and types of the state variables, in the order of [`Trainer::state`].
    pub fn state_types(&self) -> impl ExactSizeIterator<Item = (&str, Type)> {
        self.state.types()
    }

    /// The current value of a state variable.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Input`] if there is none of that name; as [`Trainer::state`].
    pub fn variable(&self, name: &str) -> Result<Tensor, Error> {
        let index = self.state.find(name)?;
        self.state.value(index)
    }

    /// Gives a state variable another value.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Input`] if there is none of that name, or the value has another element type or
    /// shape.
    pub fn set_state(&mut self, name: &str, value: Tensor) -> Result<(), Error> {
        let index = self.state.find(name)?;
        self.state.check(index, &value, ErrorKind::Input)?;
        self.state.set(index, New::Whole(value));
        Ok(())
    }

    /// The number of devices that run steps and inference, of all processes together; 0 if this
    /// trainer was made without devices.
    pub fn device_count(&self) -> usize {
        self.made.devices.as_ref().map_or(0, DeviceSession::device_count)
    }

    /// What each device of this process has sent so far.
    pub fn traffic(&self) -> Vec<Traffic> {
        self.made.devices.as_ref().map_or_else(Vec::new, DeviceSession::traffic)
    }

    /// How devices run the training step of an entry on inputs of these types; those that the model
    /// declares where there is none.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Argument`] if there is no such entry, or the trainer was made without devices;
    /// as [`Trainer::step`] before anything runs.
    pub fn plan(&self, entry: usize, inputs: &[(&str, Type)]) -> Result<Plan, Error> {
        match &self.made.entry(entry)?.step.runner {
            Runner::Here(_) => Err(Error::new(ErrorKind::Argument, "the trainer has no devices")
                .with_help("make it with devices (Python: Trainer(..., devices=True); Rust: TrainerBuilder::devices)")),
            Runner::OnDevices(session) => session.plan(inputs),
        }
    }

    /// The plan of the last training step of an entry on devices, if there was one.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Argument`] if there is no such entry.
    pub fn last_plan(&self, entry: usize) -> Result<Option<Arc<Plan>>, Error> {
        Ok(match &self.made.entry(entry)?.step.runner {
            Runner::Here(_) => None,
            Runner::OnDevices(session) => session.last_plan(),
        })
    }

    /// What random operators of the model draw by.
    pub fn seed(&self) -> u64 {
        self.state.seed()
    }

    /// The position of training in its data. Steps do not change it: it is up to the caller,
    /// as the data are.
    pub fn data_position(&self) -> DataPosition {
        self.state.position
    }

    /// Changes what [`data_position`](Trainer::data_position) returns and [`save`](Trainer::save)
    /// writes.
    pub fn set_data_position(&mut self, epochs: u64, examples: u64) {
        self.state.position = DataPosition { epochs, examples };
    }

    /// The model with the current values in its initializers, ready to be trained further.
    ///
    /// # Errors
    ///
    /// As [`Trainer::state`].
    pub fn export(&self) -> Result<Model, Error> {
        let mut model = self.made.model.clone();
        self.state.write_into(&mut model)?;
        Ok(model)
    }

    /// The model with the current values in its initializers and without its training information.
    ///
    /// # Errors
    ///
    /// As [`Trainer::export`].
    pub fn export_inference(&self) -> Result<Model, Error> {
        let mut model = self.export()?;
        model.graph.remove_training(None);
        Ok(model)
    }
}

impl Made {
    fn entry(&self, entry: usize) -> Result<&Programs, Error> {
        self.entries.get(entry).ok_or_else(|| {
            let message = format!("training step {entry} does not exist");
            let last = self.entries.len() - 1;
            Error::new(ErrorKind::Argument, message)
                .with_help(format!("use an entry from 0 to {last}"))
        })
    }
}

impl Program {
    fn variable_of(&self, input: &str) -> Option<usize> {
        let found = self.variables.iter().find(|(name, _)| name == input);
        found.map(|(_, variable)| *variable)
    }

    /// Runs with the values of a state. All that can fail does so here. `room` gets what is
    /// returned and what is to be assigned. `accept` looks at what is returned before a value of
    /// the state changes.
    fn run(
        &self,
        using: Using<'_>,
        given: Given<'_>,
        room: &mut Room,
        options: RunOptions<'_>,
        accept: impl FnOnce(&[Variable], &[Option<Value>]) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let state = using.state();
        state.demand_whole()?;
        let is_fixed = |variable| !(self.takes_defaults && state.is_default(variable));
        let mut variables = self.variables.iter();
        let refused = variables.find(|(name, variable)| is_fixed(*variable) && given.has(name));
        if let Some((name, _)) = refused {
            return Err(is_variable(name));
        }
        room.returned.clear();
        room.assigned.clear();
        match &self.runner {
            Runner::Here(session) => self.run_here(session, using, given, room, (options, accept)),
            Runner::OnDevices(session) => {
                self.run_on_devices(session, state, given.owned()?, room, &options)?;
                accept(state.variables(), &room.returned)
            }
        }
    }

    /// Runs with the values of a state and assigns nothing.
    fn returning(
        &self,
        state: &State,
        inputs: &[(String, Value)],
        options: RunOptions<'_>,
    ) -> Result<Outputs, Error> {
        let mut room = Room::default();
        self.run(Using::Kept(state), Given::Values(inputs), &mut room, options, |_, _| Ok(()))?;
        self.outputs(state, &mut room)
    }

    /// What is returned of a run that gave a state its values, with names.
    fn outputs(&self, state: &State, room: &mut Room) -> Result<Outputs, Error> {
        let ports = self.runner.outputs().iter().zip(&self.returned);
        let names = ports.filter(|(_, returned)| **returned).map(|(port, _)| port.name());
        let mut outputs = Vec::with_capacity(room.returned.len());
        for (at, (name, value)) in names.zip(room.returned.drain(..)).enumerate() {
            let value = match (value, self.variable_at(at)) {
                (None, Some(variable)) => Some(Value::Tensor(state.value(variable)?)),
                (value, _) => value,
            };
            outputs.extend(value.map(|value| (name.to_string(), value)));
        }
        Ok(Outputs::new(outputs))
    }

    /// The state variable that gets what is at a position among what is returned.
    fn variable_at(&self, position: usize) -> Option<usize> {
        let mut returned = self.returned.iter().enumerate().filter(|(_, returned)| **returned);
        let (output, _) = returned.nth(position)?;
        let found = self.assignments.iter().find(|(_, assigned)| *assigned == output);
        found.map(|(variable, _)| *variable)
    }

    /// The position among what is returned of the output with a name.
    fn returned_at(&self, name: &str) -> Result<usize, Error> {
        let ports = self.runner.outputs().iter().zip(&self.returned);
        let mut names = ports.filter(|(_, returned)| **returned).map(|(port, _)| port.name());
        names.position(|port| port == name).ok_or_else(|| {
            let message = format!("the training step returns no output '{name}'");
            Error::new(ErrorKind::Input, message)
        })
    }

    fn run_here(
        &self,
        session: &Session,
        mut using: Using<'_>,
        given: Given<'_>,
        room: &mut Room,
        (options, accept): (
            RunOptions<'_>,
            impl FnOnce(&[Variable], &[Option<Value>]) -> Result<(), Error>,
        ),
    ) -> Result<(), Error> {
        let Room { read, written, outputs, returned, assigned } = room;
        read.clear();
        written.clear();
        if let Using::Changed(state) = &mut using {
            let numbers = self.updated.iter().map(|(_, number)| *number);
            for number in numbers {
                written.extend(state.make_own(number)?.then_some(number));
            }
        }
        let is_written = |number: &usize| written.binary_search(number).is_ok();
        let read_only = || {
            let variables = self.variables.iter();
            variables.filter(|(name, variable)| !given.has(name) && !is_written(variable))
        };
        for (_, variable) in read_only() {
            read.push(using.state().value(*variable)?.into());
        }
        let values = read_only().zip(&*read);
        let values = values.map(|((name, _), value)| (name.as_str(), Input::Borrowed(value)));
        let inputs = given.inputs().chain(values);
        let accept_all = |variables: &[Variable], outputs: &mut Vec<Option<Value>>| {
            self.assign_later(variables, outputs, assigned)?;
            let mut is_returned = self.returned.iter();
            let values = outputs.drain(..);
            returned.extend(values.filter(|_| is_returned.next() == Some(&true)));
            accept(variables, returned)
        };
        let ran = match using {
            Using::Kept(state) => {
                let accept = |outputs: &mut Vec<_>| accept_all(state.variables(), outputs);
                session.run_updating(inputs, outputs, options, accept)
            }
            Using::Changed(state) => {
                let names = self.updated.iter().filter(|(_, number)| is_written(number));
                let (variables, memory) = state.overwritable(names);
                let memory = memory.map(|(name, memory)| (name, Input::Updated(memory)));
                let accept = |outputs: &mut Vec<_>| accept_all(variables, outputs);
                let ran = session.run_updating(inputs.chain(memory), outputs, options, accept);
                if ran.as_ref().is_err_and(Error::has_written) {
                    state.tear();
                }
                ran
            }
        };
        read.clear();
        ran.map_err(|error| self.about_inputs(error, &session.describe_inputs()))
    }

    /// Whether a new value of a variable can be written over the old one.
    fn is_updated(&self, variable: usize) -> bool {
        self.updated.binary_search_by_key(&variable, |(_, number)| *number).is_ok()
    }

    /// What state variables get of the outputs of a run, if it fits.
    fn assign_later(
        &self,
        variables: &[Variable],
        outputs: &[Option<Value>],
        assigned: &mut Vec<(usize, New)>,
    ) -> Result<(), Error> {
        for (number, output) in &self.assignments {
            let variable = &variables[*number];
            let new = match &outputs[*output] {
                None if self.is_updated(*number) => New::InPlace,
                None => {
                    let name = variable.name();
                    let message = format!("the state variable '{name}' has no new value");
                    return Err(Error::new(ErrorKind::Run, message));
                }
                Some(Value::Tensor(value)) => {
                    variable.check(&value.view(), ErrorKind::Run)?;
                    New::Whole(value.clone())
                }
                Some(other) => {
                    let (name, ty) = (variable.name(), other.value_type());
                    let message = format!("the state variable '{name}' is a tensor, not {ty}");
                    return Err(Error::new(ErrorKind::Run, message));
                }
            };
            assigned.push((*number, new));
        }
        Ok(())
    }

    /// An error about inputs that lists those that a caller gives: the session also has an input
    /// for each state variable.
    fn about_inputs(&self, error: Error, listed: &str) -> Error {
        let Some(before) = error.help().and_then(|help| help.strip_suffix(listed)) else {
            return error;
        };
        let mut help = format!("{before}the inputs are");
        for port in self.runner.inputs() {
            if self.variable_of(port.name()).is_none() {
                let default = if port.is_required() { "" } else { " (has a default)" };
                help += &format!("\n  {port}{default}");
            }
        }
        error.with_help(help)
    }

    fn run_on_devices(
        &self,
        session: &DeviceSession,
        state: &State,
        mut inputs: Vec<(String, Value)>,
        room: &mut Room,
        options: &RunOptions<'_>,
    ) -> Result<(), Error> {
        if options.watch.is_some() {
            let message = "the steps of a run on devices cannot be watched";
            return Err(Error::new(ErrorKind::Unsupported, message));
        }
        // Values that are given in place of those of the state go to the devices as those do.
        let mut given = Vec::new();
        for (name, variable) in &self.variables {
            if let Some(at) = inputs.iter().position(|(given, _)| given == name) {
                let (_, value) = inputs.swap_remove(at);
                let value = value.into_tensor().map_err(|other| {
                    let message =
                        format!("the input '{name}' is a tensor, not {}", other.value_type());
                    Error::new(ErrorKind::Input, message)
                })?;
                state.check(*variable, &value, ErrorKind::Input)?;
                given.push((*variable, Held::whole(value)));
            }
        }
        let parts = |variable: usize, form: &Form| {
            let own = given.iter().find(|(given, _)| *given == variable).map(|(_, held)| held);
            own.unwrap_or_else(|| state.held(variable)).parts(session, form)
        };
        let how = (Limits::of(options), options.seed);
        let (outputs, values) = session.run_on_state(inputs, &parts, how)?;
        let values = values.into_iter();
        room.assigned.extend(values.map(|(variable, parts)| (variable, New::OnDevices(parts))));
        room.returned.extend(outputs.into_iter().map(|(_, value)| Some(value)));
        Ok(())
    }
}

impl<'v> Given<'v> {
    fn has(self, name: &str) -> bool {
        match self {
            Given::Values(values) => values.iter().any(|(given, _)| given == name),
            Given::Views(views) => views.iter().any(|(given, _)| *given == name),
        }
    }

    fn inputs(self) -> impl Iterator<Item = (&'v str, Input<'v>)> {
        let (values, views) = match self {
            Given::Values(values) => (values, &[][..]),
            Given::Views(views) => (&[][..], views),
        };
        let values = values.iter().map(|(name, value)| (name.as_str(), Input::Borrowed(value)));
        values.chain(views.iter().map(|(name, view)| (*name, Input::View(view.clone()))))
    }

    /// Copies of views, as devices take values only.
    fn owned(self) -> Result<Vec<(String, Value)>, Error> {
        match self {
            Given::Values(values) => Ok(values.to_vec()),
            Given::Views(views) => {
                let refused = |e: TensorError| Error::new(ErrorKind::Run, e.to_string());
                let copy = |(name, view): &(&str, TensorView<'_>)| {
                    Ok((name.to_string(), view.to_tensor().map_err(refused)?.into()))
                };
                views.iter().map(copy).collect()
            }
        }
    }
}

impl Runner {
    fn inputs(&self) -> &[Port] {
        match self {
            Runner::Here(session) => session.inputs(),
            Runner::OnDevices(session) => session.inputs(),
        }
    }

    fn outputs(&self) -> &[Port] {
        match self {
            Runner::Here(session) => session.outputs(),
            Runner::OnDevices(session) => session.outputs(),
        }
    }

    fn has_input(&self, name: &str) -> bool {
        self.inputs().iter().any(|port| port.name() == name)
    }
}

/// The error about an input that only the trainer itself gives.
fn is_variable(name: &str) -> Error {
    let message = format!("'{name}' is a state variable, not an input");
    Error::new(ErrorKind::Input, message).with_help("change it with set_state")
}

fn owned<I, N, V>(inputs: I) -> Vec<(String, Value)>
where
    I: IntoIterator<Item = (N, V)>,
    N: Into<String>,
    V: Into<Value>,
{
    inputs.into_iter().map(|(name, value)| (name.into(), value.into())).collect()
}

/// The same options for one of several runs, with a seed if they have none.
fn again<'b>(options: &'b mut RunOptions<'_>, seed: u64) -> RunOptions<'b> {
    let mut made = RunOptions::new();
    made.stop.clone_from(&options.stop);
    made.deadline = options.deadline;
    made.iteration_limit = options.iteration_limit;
    made.seed = Some(options.seed.unwrap_or(seed));
    made.asks = options.asks;
    made.watch = match &mut options.watch {
        Some(watch) => Some(&mut **watch),
        None => None,
    };
    made
}

impl fmt::Debug for Trainer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (entries, variables) = (self.made.entries.len(), self.state.len());
        write!(f, "Trainer({entries} training steps, {variables} state variables)")
    }
}

//! Trainers run the training that a model describes: initialization, training steps, inference.

mod build;
mod calls;
#[cfg(feature = "device")]
mod devices;
#[cfg(not(feature = "device"))]
#[path = "trainer/no_devices.rs"]
mod devices;
mod file;
mod inputs;
mod program;
mod state;

use std::fmt;
use std::sync::Arc;

use sardonyx_model::Type;
use sardonyx_runtime::Port;
use sardonyx_tensor::Tensor;

pub use build::TrainerBuilder;
pub use state::{DataPosition, StateVariable, TrainingEntry};

use crate::error::{Error, ErrorKind};
use crate::model::Model;
use crate::runner::{Run, Runner};
#[cfg(doc)]
use crate::session::Session;
use program::{StepBuffers, TrainingPrograms};
use state::{NewValue, State};

/// A model that is trained by its own training information, the field `training_info`.
///
/// Such a model has a state: its state variables are those initializers that a binding of the
/// training information names. [`initialize`] and [`step`] change them, [`infer`] does not.
///
/// An error leaves the state as it was before the call. All new values are computed from the old
/// ones and assigned together at the end. A [panic](ErrorKind::Internal) during assignment is the
/// exception: the trainer then refuses every use of its state until [`initialize`] or
/// [`load`](Trainer::load) replaces it.
///
/// A clone shares the programs and starts with the same state; values are copied on write. So a
/// step can run on a clone while other threads read the state before it.
///
/// ```
/// use sardonyx::{Model, RunOptions, Tensor, Trainer};
///
/// // y = x * w, and one step of gradient descent: w -= 0.1 * x * (y - target).
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
/// let options = RunOptions::default();
/// let data = [("x", Tensor::scalar(2f32)), ("target", Tensor::scalar(6f32))];
/// let first = trainer.step(0, data.clone(), &options)?;
/// assert_eq!(first.tensor("loss")?.item::<f32>()?, 16.0);
/// for _ in 0..50 {
///     trainer.step(0, data.clone(), &options)?;
/// }
/// let w: f32 = trainer.variable("w")?.item()?;
/// assert!((w - 3.0).abs() < 1e-3);
/// let outputs = trainer.infer([("x", Tensor::scalar(5f32))], &options)?;
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
    programs: Arc<TrainingPrograms>,
    state: State,
    buffers: StepBuffers,
}

impl Trainer {
    /// Makes a model ready to be trained. State variables start with the values of their
    /// initializers; [`Trainer::initialize`] runs the initialization of a model that has one.
    ///
    /// # Errors
    ///
    /// See [`TrainerBuilder::build`].
    pub fn new(model: &Model) -> Result<Trainer, Error> {
        Trainer::builder(model).build()
    }

    /// Returns a builder that sets the options of a trainer of `model`.
    pub fn builder(model: &Model) -> TrainerBuilder<'_> {
        TrainerBuilder::new(model)
    }

    /// Returns the number of entries in the field `training_info`. Each entry has a training step,
    /// and may have an initialization.
    pub fn entries(&self) -> usize {
        self.programs.entries.len()
    }

    /// Returns messages about non-fatal problems in the training information. An example is a
    /// variable that two entries assign, so that its value depends on the order of the calls.
    pub fn warnings(&self) -> &[String] {
        &self.programs.warnings
    }

    /// Returns the names and types of the inputs of the training step of an entry, without state
    /// variables: inputs of the main graph, then inputs of the entry's algorithm.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Argument`] if the entry does not exist.
    pub fn step_inputs(&self, entry: usize) -> Result<impl Iterator<Item = &Port>, Error> {
        let program = &self.programs.entry(entry)?.step;
        let inputs = program.session.inputs().iter();
        Ok(inputs.filter(move |port| program.find_variable(port.name()).is_none()))
    }

    /// Returns the names and types of the outputs of the training step of an entry.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Argument`] if the entry does not exist.
    pub fn step_outputs(&self, entry: usize) -> Result<impl Iterator<Item = &Port>, Error> {
        let program = &self.programs.entry(entry)?.step;
        let ports = program.session.outputs().iter().zip(&program.returned);
        Ok(ports.filter_map(|(port, returned)| returned.then_some(port)))
    }

    /// Returns the names and types of the inputs of inference, in the model's order. State
    /// variables that are inputs of the main graph are optional.
    pub fn inference_inputs(&self) -> impl Iterator<Item = &Port> {
        let inputs = self.programs.inference.session.inputs().iter();
        inputs.filter(|port| match self.programs.inference.find_variable(port.name()) {
            Some(variable) => self.state.is_default(variable),
            None => true,
        })
    }

    /// Returns the names and types of the outputs of inference, in the model's order.
    pub fn inference_outputs(&self) -> &[Port] {
        self.programs.inference.session.outputs()
    }

    /// Returns the state variables with their current values: state variables of the main graph in
    /// the order of its initializers, then those of the algorithms. If several variables have one
    /// name, those of algorithms are prefixed by their entry: `training_info[1].rate`. Values that
    /// are sharded over devices are gathered.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Run`] if memory to gather values from devices cannot be allocated.
    pub fn state(&self) -> Result<Vec<(&str, Tensor)>, Error> {
        self.state.gather_values()
    }

    /// Returns names and types of the state variables, in the order of [`Trainer::state`].
    pub fn state_types(&self) -> impl ExactSizeIterator<Item = (&str, Type)> {
        self.state.list_types()
    }

    /// Returns the current value of the state variable called `name`.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Input`] if no state variable has this name; errors of [`Trainer::state`].
    pub fn variable(&self, name: &str) -> Result<Tensor, Error> {
        let index = self.state.find(name)?;
        self.state.gather_value(index)
    }

    /// Replaces the value of the state variable called `name`.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Input`] if no state variable has this name, or if the value has another element
    /// type or shape.
    pub fn set_state(&mut self, name: &str, value: Tensor) -> Result<(), Error> {
        let index = self.state.find(name)?;
        self.state.check(index, &value, ErrorKind::Input)?;
        self.state.set(index, NewValue::Whole(value));
        Ok(())
    }

    /// Returns the seed of the model's random operators.
    pub fn seed(&self) -> u64 {
        self.state.seed()
    }

    /// Returns the position of training in its data. Steps do not change it: the caller sets it.
    pub fn data_position(&self) -> DataPosition {
        self.state.position
    }

    /// Sets the position that [`data_position`](Trainer::data_position) returns and
    /// [`save`](Trainer::save) writes.
    pub fn set_data_position(&mut self, epochs: u64, examples: u64) {
        self.state.position = DataPosition { epochs, examples };
    }

    /// Returns the model with its training information and with the current state in its
    /// initializers, for further training. [`Trainer::export_inference`] exports it for inference.
    ///
    /// # Errors
    ///
    /// The errors of [`Trainer::state`].
    pub fn export(&self) -> Result<Model, Error> {
        let mut model = self.programs.model.clone();
        self.state.write_into(&mut model)?;
        Ok(model)
    }

    /// Returns the trained model for inference: the current state is in its initializers, the
    /// training information is removed.
    ///
    /// # Errors
    ///
    /// The errors of [`Trainer::export`].
    pub fn export_inference(&self) -> Result<Model, Error> {
        let mut model = self.export()?;
        model.graph.remove_training(None);
        Ok(model)
    }
}

impl fmt::Debug for Trainer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (entries, variables) = (self.programs.entries.len(), self.state.len());
        write!(f, "Trainer({entries} training steps, {variables} state variables)")
    }
}

//! Methods of a trainer that run a program: initialization, steps, evaluation, inference.

use std::fmt;
use std::sync::Arc;

use sardonyx_runtime::RunOptions;
use sardonyx_tensor::{TensorView, TensorViewMut, Value};

use super::Trainer;
use super::inputs::StepInputs;
use super::program::{
    BegunRun, EntryPrograms, StateAccess, StepBuffers, TrainingProgram, TrainingPrograms,
};
use super::state::{State, Variable};
use crate::error::{Error, ErrorKind};
use crate::outputs::Outputs;
use crate::runner::{Run, collect_inputs};
#[cfg(doc)]
use crate::session::Session;

impl Trainer {
    /// Resets the state: every state variable gets its stored value, and the random generator
    /// restarts with its seed. Then runs the initialization graph of each entry in their order and
    /// assigns its outputs by `initialization_binding`. Limits in the options apply to each graph
    /// separately.
    ///
    /// # Errors
    ///
    /// The errors of [`Session::run`]. An error leaves the state unchanged.
    pub fn initialize(&mut self, options: &RunOptions<'_>) -> Result<(), Error> {
        let mut state = self.state.to_initial_state();
        for entry in &self.programs.entries {
            if let Some(program) = &entry.initialization {
                let options = with_default_seed(options, state.make_step_seed());
                program.run(&state, StepInputs::Values(&[]), &mut self.buffers, &options)?;
                state.assign(&mut self.buffers.assigned);
            }
        }
        self.state = state;
        Ok(())
    }

    /// Runs the training step of an entry once: the main graph followed by the algorithm of the
    /// entry, both on the old state. Returns the outputs of both graphs and assigns new values by
    /// `update_binding`. Inputs are given like those of [`Session::run`]. The result depends on the
    /// order in which the caller runs the entries. A seed in the options replaces the trainer's
    /// generator for this step.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Argument`] if the entry does not exist, [`ErrorKind::Input`] if an input is a
    /// state variable; errors of [`Session::run`]. An error leaves the state unchanged.
    pub fn step<I, N, V>(
        &mut self,
        entry: usize,
        inputs: I,
        options: &RunOptions<'_>,
    ) -> Result<Outputs, Error>
    where
        I: IntoIterator<Item = (N, V)>,
        N: AsRef<str>,
        V: Into<Value>,
    {
        let Trainer { programs, state, buffers } = self;
        let options = with_default_seed(options, state.make_step_seed());
        let program = &programs.entry(entry)?.step;
        let inputs = collect_inputs(inputs, program.session.inputs().iter());
        let begun = program.begin(state, StepInputs::Values(&inputs), buffers, &options)?;
        program.finish(begun, StateAccess::Write(state), buffers, &options)?;
        state.assign(&mut buffers.assigned);
        program.take_outputs(state, buffers)
    }

    /// Runs the training step of an entry like [`Trainer::step`], but borrows the inputs and writes
    /// the named outputs into memory of the caller; other outputs are dropped. After the first
    /// steps with inputs of some sizes, a step allocates nothing, like [`Session::run_into`],
    /// except for values that are not tensors and for operators that need scratch memory.
    ///
    /// # Errors
    ///
    /// The errors of [`Trainer::step`]; [`ErrorKind::Input`] if an output is unknown, or differs
    /// from its memory in type or dimensions. An error leaves the state unchanged.
    pub fn step_into(
        &mut self,
        entry: usize,
        inputs: &[(&str, TensorView<'_>)],
        outputs: &mut [(&str, TensorViewMut<'_>)],
        options: &RunOptions<'_>,
    ) -> Result<(), Error> {
        let Trainer { programs, state, buffers } = self;
        let options = with_default_seed(options, state.make_step_seed());
        let program = &programs.entry(entry)?.step;
        for (name, _) in outputs.iter() {
            program.find_output(name)?;
        }
        let begun = program.begin(state, StepInputs::Views(inputs), buffers, &options)?;
        copy_returned(program, state.variables(), &buffers.returned, outputs)?;
        program.finish(begun, StateAccess::Write(state), buffers, &options)?;
        state.assign(&mut buffers.assigned);
        let copied = copy_assigned(program, state, &buffers.returned, outputs);
        buffers.returned.clear();
        copied
    }

    /// Runs the training step of an entry and returns the outputs that [`Trainer::step`] would
    /// return, but assigns nothing.
    ///
    /// # Errors
    ///
    /// The errors of [`Trainer::step`].
    pub fn evaluate<I, N, V>(
        &self,
        entry: usize,
        inputs: I,
        options: &RunOptions<'_>,
    ) -> Result<Outputs, Error>
    where
        I: IntoIterator<Item = (N, V)>,
        N: AsRef<str>,
        V: Into<Value>,
    {
        let program = &self.programs.entry(entry)?.step;
        let options = with_default_seed(options, self.state.make_step_seed());
        let inputs = collect_inputs(inputs, program.session.inputs().iter());
        program.evaluate(&self.state, &inputs, &options)
    }

    /// Runs one iteration of training: the training steps of all entries in their order, each on
    /// its own subset of the inputs. Returns the outputs of each step. Limits in the options apply
    /// to each step separately.
    ///
    /// # Errors
    ///
    /// The errors of [`Trainer::step`]. If one step fails, the state is the one before the first
    /// step.
    pub fn iterate<I, N, V>(
        &mut self,
        inputs: I,
        options: &RunOptions<'_>,
    ) -> Result<Vec<Outputs>, Error>
    where
        I: IntoIterator<Item = (N, V)>,
        N: AsRef<str>,
        V: Into<Value>,
    {
        let programs = Arc::clone(&self.programs);
        let entries = &programs.entries;
        let ports = entries.iter().flat_map(|entry| entry.step.session.inputs());
        let inputs = collect_inputs(inputs, ports);
        let unknown = inputs
            .iter()
            .find(|(name, _)| !entries.iter().any(|entry| has_step_input(entry, name)));
        if let Some((name, _)) = unknown {
            let message = format!("no training step has an input '{name}'");
            return Err(Error::new(ErrorKind::Input, message));
        }
        if entries.len() == 1 {
            return Ok(vec![self.step(0, inputs, options)?]);
        }
        // A copy of the state is changed, so that the steps before a failing one need not be
        // undone.
        let mut state = self.state.clone();
        let mut returned = Vec::with_capacity(entries.len());
        for entry in entries {
            let own = inputs.iter().filter(|(name, _)| has_step_input(entry, name)).cloned();
            let own: Vec<_> = own.collect();
            let options = with_default_seed(options, state.make_step_seed());
            entry.step.run(&state, StepInputs::Values(&own), &mut self.buffers, &options)?;
            state.assign(&mut self.buffers.assigned);
            returned.push(entry.step.take_outputs(&state, &mut self.buffers)?);
        }
        self.state = state;
        Ok(returned)
    }

    /// Runs the main graph on the current values of the state variables and changes nothing: equal
    /// calls return equal outputs, random numbers included. A state variable that is an input of
    /// the main graph may be overridden for this call.
    ///
    /// # Errors
    ///
    /// The errors of [`Session::run`].
    pub fn infer<I, N, V>(&self, inputs: I, options: &RunOptions<'_>) -> Result<Outputs, Error>
    where
        I: IntoIterator<Item = (N, V)>,
        N: AsRef<str>,
        V: Into<Value>,
    {
        let program = &self.programs.inference;
        let options = with_default_seed(options, self.state.make_inference_seed());
        let inputs = collect_inputs(inputs, program.session.inputs().iter());
        program.evaluate(&self.state, &inputs, &options)
    }
}

/// Programs that the clones of a trainer share.
#[doc(hidden)]
pub struct TrainerPrograms(Arc<TrainingPrograms>);

/// Training step whose outputs have been computed, and that has not changed a state yet.
#[doc(hidden)]
pub struct PendingStep<'p> {
    program: &'p TrainingProgram,
    begun: BegunRun<'p>,
    buffers: StepBuffers,
    /// Whether the caller has taken the outputs.
    is_taken: bool,
}

impl fmt::Debug for TrainerPrograms {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TrainerPrograms({} training steps)", self.0.entries.len())
    }
}

impl fmt::Debug for PendingStep<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PendingStep").field("names", &self.program.names).finish_non_exhaustive()
    }
}

impl Trainer {
    /// Returns the programs of the trainer, which stay the same while its state changes.
    #[doc(hidden)]
    pub fn programs(&self) -> TrainerPrograms {
        TrainerPrograms(Arc::clone(&self.programs))
    }

    /// Ends a step: assigns the new values of state variables, in place where only this trainer has
    /// the old ones, and returns the outputs unless [`PendingStep::take_outputs`] has taken them.
    /// The step must have begun with the current state of this trainer.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Run`] if memory cannot be allocated. An error leaves the state unchanged.
    #[doc(hidden)]
    pub fn end_step(&mut self, step: PendingStep<'_>) -> Result<Outputs, Error> {
        let PendingStep { program, begun, mut buffers, is_taken } = step;
        let access = StateAccess::Write(&mut self.state);
        program.finish(begun, access, &mut buffers, &RunOptions::default())?;
        self.state.assign(&mut buffers.assigned);
        if is_taken {
            return Ok(Outputs::new(Vec::new()));
        }
        program.take_outputs(&self.state, &mut buffers)
    }
}

impl TrainerPrograms {
    /// Runs the training step of an entry like [`Trainer::step`] on the state of `trainer`, which
    /// has these programs, but changes nothing.
    ///
    /// # Errors
    ///
    /// The errors of [`Trainer::step`].
    pub fn begin_step<I, N, V>(
        &self,
        trainer: &Trainer,
        entry: usize,
        inputs: I,
        options: &RunOptions<'_>,
    ) -> Result<PendingStep<'_>, Error>
    where
        I: IntoIterator<Item = (N, V)>,
        N: AsRef<str>,
        V: Into<Value>,
    {
        let options = with_default_seed(options, trainer.state.make_step_seed());
        let program = &self.0.entry(entry)?.step;
        let inputs = collect_inputs(inputs, program.session.inputs().iter());
        let mut buffers = StepBuffers::default();
        let inputs = StepInputs::Values(&inputs);
        let begun = program.begin(&trainer.state, inputs, &mut buffers, &options)?;
        Ok(PendingStep { program, begun, buffers, is_taken: false })
    }
}

impl PendingStep<'_> {
    /// Whether no returned output is a new value that is computed last.
    pub fn has_all_outputs(&self) -> bool {
        self.buffers.returned.iter().all(Option::is_some)
    }

    /// Takes the outputs that have been computed.
    pub fn take_outputs(&mut self) -> Outputs {
        self.is_taken = true;
        let returned = self.program.names.iter().zip(&mut self.buffers.returned);
        let outputs = returned.filter_map(|(name, value)| Some((Arc::clone(name), value.take()?)));
        Outputs::new(outputs.collect())
    }
}

/// Whether the training step of an entry has an input called `name`.
fn has_step_input(entry: &EntryPrograms, name: &str) -> bool {
    entry.step.session.inputs().iter().any(|port| port.name() == name)
}

/// Adds a seed to the options of a run, unless the options have one.
fn with_default_seed<'o>(options: &RunOptions<'o>, seed: u64) -> RunOptions<'o> {
    options.clone().seed(options.seed.unwrap_or(seed))
}

/// Copies returned outputs into memory of the caller before values are assigned. For outputs that
/// will overwrite an old value in place, only checks that the memory fits.
fn copy_returned(
    program: &TrainingProgram,
    variables: &[Variable],
    returned: &[Option<Value>],
    outputs: &mut [(&str, TensorViewMut<'_>)],
) -> Result<(), Error> {
    for (name, memory) in outputs {
        let at = program.find_output(name)?;
        let copied = match (&returned[at], program.find_assigned_variable(at)) {
            (Some(value), _) => copy_tensor(memory, value),
            (None, Some(variable)) => variables[variable]
                .check(&memory.as_view(), ErrorKind::Input)
                .map_err(|error| error.to_string()),
            (None, None) => Err("no value has been computed".to_string()),
        };
        copied.map_err(|what| output_error(name, &what))?;
    }
    Ok(())
}

/// Copies outputs that a step has written over old values into memory of the caller.
fn copy_assigned(
    program: &TrainingProgram,
    state: &State,
    returned: &[Option<Value>],
    outputs: &mut [(&str, TensorViewMut<'_>)],
) -> Result<(), Error> {
    for (name, memory) in outputs {
        let at = program.find_output(name)?;
        if let (None, Some(variable)) = (&returned[at], program.find_assigned_variable(at)) {
            let value = Value::Tensor(state.gather_value(variable)?);
            copy_tensor(memory, &value).map_err(|what| output_error(name, &what))?;
        }
    }
    Ok(())
}

/// Copies a tensor into memory of the caller; the error completes "the output …:".
fn copy_tensor(memory: &mut TensorViewMut<'_>, value: &Value) -> Result<(), String> {
    match value {
        Value::Tensor(tensor) => memory.copy_from(&tensor.view()).map_err(|e| e.to_string()),
        other => Err(format!("expected a tensor, found {}", other.value_type())),
    }
}

/// Makes the error about an output that cannot be written into memory of the caller.
fn output_error(name: &str, what: &str) -> Error {
    Error::new(ErrorKind::Input, format!("the output '{name}': {what}"))
}

//! The calls of a trainer that run something: initialization, steps, evaluation, inference.

use std::sync::Arc;

use sardonyx_runtime::RunOptions;
use sardonyx_tensor::{TensorView, TensorViewMut, Value};

use super::Trainer;
use super::inputs::StepInputs;
use super::program::{EntryPrograms, StateAccess, TrainingProgram};
use super::state::{State, Variable};
use crate::devices::Run;
use crate::error::{Error, ErrorKind};
use crate::outputs::Outputs;
use crate::runner::collect_inputs;
#[cfg(doc)]
use crate::session::Session;

impl Trainer {
    /// Brings the state back to the beginning: every state variable gets its stored value, and the
    /// random generator its seed. Then the initialization graph of each entry is evaluated, in the
    /// order of the list, and its outputs are assigned as `initialization_binding` says. The
    /// options hold for each graph by itself.
    ///
    /// # Errors
    ///
    /// Those of [`Session::run`]. The state is then as it was.
    pub fn initialize(&mut self, options: &RunOptions<'_>) -> Result<(), Error> {
        let mut state = self.state.at_beginning();
        for entry in &self.programs.entries {
            if let Some(program) = &entry.initialization {
                let options = seeded(options, state.seed_of_step());
                let (access, none) = (StateAccess::Read(&state), StepInputs::Values(&[]));
                program.run(access, none, &mut self.buffers, &options, |_, _| Ok(()))?;
                state.assign(&mut self.buffers.assigned);
            }
        }
        self.state = state;
        Ok(())
    }

    /// Runs the training step of an entry once: the main graph followed by the algorithm of the
    /// entry, both with the values that the state has before. Returns the outputs of both, and
    /// assigns new values as `update_binding` says. Inputs are given as to [`Session::run`]. The
    /// caller decides the order of the entries, and it matters. A seed among the options replaces
    /// the trainer's generator for this step.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Argument`] if there is no such entry, [`ErrorKind::Input`] if an input is a
    /// state variable; those of [`Session::run`]. The state is then as it was.
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
        let options = seeded(options, state.seed_of_step());
        let program = &programs.entry(entry)?.step;
        let inputs = collect_inputs(inputs, program.session.inputs().iter());
        let (access, inputs) = (StateAccess::Write(state), StepInputs::Values(&inputs));
        program.run(access, inputs, buffers, &options, |_, _| Ok(()))?;
        state.assign(&mut buffers.assigned);
        program.take_outputs(state, buffers)
    }

    /// Runs the training step of an entry once, like [`Trainer::step`], on inputs that stay with
    /// the caller, and writes outputs into memory of the caller. Outputs that are not named are not
    /// returned. After the first steps with inputs of some sizes this allocates nothing, like
    /// [`Session::run_into`], but for values that are no tensors and operators that need memory of
    /// their own.
    ///
    /// # Errors
    ///
    /// Those of [`Trainer::step`]; [`ErrorKind::Input`] if an output is unknown, or has another
    /// type or other dimensions than its memory. The state is then as it was.
    pub fn step_into(
        &mut self,
        entry: usize,
        inputs: &[(&str, TensorView<'_>)],
        outputs: &mut [(&str, TensorViewMut<'_>)],
        options: &RunOptions<'_>,
    ) -> Result<(), Error> {
        let Trainer { programs, state, buffers } = self;
        let options = seeded(options, state.seed_of_step());
        let program = &programs.entry(entry)?.step;
        for (name, _) in outputs.iter() {
            program.position_of(name)?;
        }
        let accept = |variables: &[Variable], returned: &[Option<Value>]| {
            copy_returned(program, variables, returned, outputs)
        };
        let (access, inputs) = (StateAccess::Write(state), StepInputs::Views(inputs));
        program.run(access, inputs, buffers, &options, accept)?;
        state.assign(&mut buffers.assigned);
        let copied = copy_assigned(program, state, &buffers.returned, outputs);
        buffers.returned.clear();
        copied
    }

    /// Returns what a training step of an entry would return now, like [`Trainer::step`], and
    /// assigns nothing.
    ///
    /// # Errors
    ///
    /// Those of [`Trainer::step`].
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
        let options = seeded(options, self.state.seed_of_step());
        let inputs = collect_inputs(inputs, program.session.inputs().iter());
        program.evaluate(&self.state, &inputs, &options)
    }

    /// Runs one iteration of training: the training steps of all entries, in the order of the list.
    /// Each takes those of the inputs that it has. Returns the outputs of each. The options hold
    /// for each step by itself.
    ///
    /// # Errors
    ///
    /// Those of [`Trainer::step`]. The state is then as it was before the first step.
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
        let takes = |entry: &EntryPrograms, name: &str| {
            entry.step.session.inputs().iter().any(|port| port.name() == name)
        };
        let unknown =
            inputs.iter().find(|(name, _)| !entries.iter().any(|entry| takes(entry, name)));
        if let Some((name, _)) = unknown {
            let message = format!("no training step has an input '{name}'");
            return Err(Error::new(ErrorKind::Input, message));
        }
        if entries.len() == 1 {
            return Ok(vec![self.step(0, inputs, options)?]);
        }
        // The old values stay alive until all steps are done, so that a failing one undoes nothing.
        let mut state = self.state.clone();
        let mut returned = Vec::with_capacity(entries.len());
        for entry in entries {
            let own = inputs.iter().filter(|(name, _)| takes(entry, name)).cloned();
            let own: Vec<_> = own.collect();
            let options = seeded(options, state.seed_of_step());
            let (access, own) = (StateAccess::Read(&state), StepInputs::Values(&own));
            entry.step.run(access, own, &mut self.buffers, &options, |_, _| Ok(()))?;
            state.assign(&mut self.buffers.assigned);
            returned.push(entry.step.take_outputs(&state, &mut self.buffers)?);
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
    /// Those of [`Session::run`].
    pub fn infer<I, N, V>(&self, inputs: I, options: &RunOptions<'_>) -> Result<Outputs, Error>
    where
        I: IntoIterator<Item = (N, V)>,
        N: AsRef<str>,
        V: Into<Value>,
    {
        let program = &self.programs.inference;
        let options = seeded(options, self.state.seed_of_inference());
        let inputs = collect_inputs(inputs, program.session.inputs().iter());
        program.evaluate(&self.state, &inputs, &options)
    }
}

/// Returns the options of one run of a call, which has a seed.
fn seeded<'o>(options: &RunOptions<'o>, seed: u64) -> RunOptions<'o> {
    options.clone().seed(options.seed.unwrap_or(seed))
}

/// Copies returned outputs into memory of the caller, before anything is assigned. Checks the
/// memory of those that will lie in the place of an old value.
fn copy_returned(
    program: &TrainingProgram,
    variables: &[Variable],
    returned: &[Option<Value>],
    outputs: &mut [(&str, TensorViewMut<'_>)],
) -> Result<(), Error> {
    for (name, memory) in outputs {
        let at = program.position_of(name)?;
        let copied = match (&returned[at], program.variable_at(at)) {
            (Some(value), _) => copy(memory, value),
            (None, Some(variable)) => variables[variable]
                .check(&memory.as_view(), ErrorKind::Input)
                .map_err(|error| error.to_string()),
            (None, None) => Err("it has not been computed".to_string()),
        };
        copied.map_err(|what| output_error(name, &what))?;
    }
    Ok(())
}

/// Copies those returned outputs into memory of the caller that a step has written over old values.
fn copy_assigned(
    program: &TrainingProgram,
    state: &State,
    returned: &[Option<Value>],
    outputs: &mut [(&str, TensorViewMut<'_>)],
) -> Result<(), Error> {
    for (name, memory) in outputs {
        let at = program.position_of(name)?;
        if let (None, Some(variable)) = (&returned[at], program.variable_at(at)) {
            let value = Value::Tensor(state.value(variable)?);
            copy(memory, &value).map_err(|what| output_error(name, &what))?;
        }
    }
    Ok(())
}

fn copy(memory: &mut TensorViewMut<'_>, value: &Value) -> Result<(), String> {
    match value {
        Value::Tensor(tensor) => memory.copy_from(&tensor.view()).map_err(|e| e.to_string()),
        other => Err(format!("it is {}, not a tensor", other.value_type())),
    }
}

fn output_error(name: &str, what: &str) -> Error {
    Error::new(ErrorKind::Input, format!("the output '{name}': {what}"))
}

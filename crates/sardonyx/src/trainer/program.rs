//! Programs of a trainer: compiled graphs whose inputs and outputs are state variables.

use std::borrow::Cow;
use std::sync::{Arc, OnceLock};

use sardonyx_passes::Form;
use sardonyx_runtime::{Input, RunOptions};
use sardonyx_tensor::Value;

use super::inputs::StepInputs;
use super::state::{Held, New, State, Variable};
use crate::devices::{DeviceSession, Run, Runner};
use crate::error::{Error, ErrorKind};
use crate::model::Model;
use crate::outputs::Outputs;
use crate::session::Session;

/// Programs of a trainer, which stay as they are while its state changes.
pub(super) struct TrainingPrograms {
    pub(super) model: Model,
    pub(super) entries: Vec<EntryPrograms>,
    pub(super) inference: TrainingProgram,
    pub(super) warnings: Vec<String>,
    /// Hash of the model in saved states. Set on first use: hashing a model takes as long as
    /// reading it.
    pub(super) identity: OnceLock<String>,
    /// Devices that run steps and inference, if there are any.
    pub(super) devices: Option<DeviceSession>,
}

/// Programs of an entry of the training information.
pub(super) struct EntryPrograms {
    /// `None` if the entry has no initialization graph.
    pub(super) initialization: Option<TrainingProgram>,
    pub(super) step: TrainingProgram,
}

/// Compiled graph with its state variables, which are inputs of it, so that compiling folds none of
/// their values.
///
/// New values that are functions of the elements at the same place, such as those of optimizers,
/// are written over the old ones when all else is done and nothing can fail any more. Other new
/// values are outputs of a run, in memory of their own, and replace the old ones by changing an
/// owner; the next step gets the memory of the old ones.
pub(super) struct TrainingProgram {
    pub(super) session: Runner,
    /// Inputs that are state variables: name, and number of the variable.
    pub(super) variables: Vec<(String, usize)>,
    /// Those of them whose new value can be written over the old one, by number.
    pub(super) updated: Vec<(String, usize)>,
    /// Number of a state variable, and that of the output whose value it gets.
    pub(super) assignments: Vec<(usize, usize)>,
    /// Whether each of the session's outputs is returned to the caller.
    pub(super) returned: Vec<bool>,
    /// Names of the returned outputs.
    pub(super) names: Vec<Arc<str>>,
    /// Whether a caller may give a state variable another value for one run, where the model
    /// declares it as an input. Inference allows it; a step uses the state.
    pub(super) takes_defaults: bool,
}

/// Lists that a run fills. They are empty between calls, and kept so that a step need not allocate
/// them.
#[derive(Default)]
pub(super) struct StepBuffers {
    /// Values of the state variables that the program only reads.
    read: Vec<Value>,
    /// Numbers of those whose new values it may write over the old ones.
    written: Vec<usize>,
    /// All outputs of the program; `None` for those that it wrote over old values.
    outputs: Vec<Option<Value>>,
    /// Outputs for the caller.
    pub(super) returned: Vec<Option<Value>>,
    /// New values of state variables, by their numbers.
    pub(super) assigned: Vec<(usize, New)>,
}

impl Clone for StepBuffers {
    fn clone(&self) -> StepBuffers {
        StepBuffers::default()
    }
}

/// State that a run uses.
pub(super) enum StateAccess<'s> {
    /// The run leaves it as it is.
    Read(&'s State),
    /// The run may write new values over old ones.
    Write(&'s mut State),
}

impl StateAccess<'_> {
    fn state(&self) -> &State {
        match self {
            StateAccess::Read(state) => state,
            StateAccess::Write(state) => state,
        }
    }
}

impl TrainingPrograms {
    /// Returns the programs of an entry.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Argument`] if there is no such entry.
    pub(super) fn entry(&self, entry: usize) -> Result<&EntryPrograms, Error> {
        self.entries.get(entry).ok_or_else(|| {
            let message = format!("training step {entry} does not exist");
            let last = self.entries.len() - 1;
            Error::new(ErrorKind::Argument, message)
                .with_help(format!("use an entry from 0 to {last}"))
        })
    }
}

impl TrainingProgram {
    /// Returns the number of the state variable that an input is.
    pub(super) fn variable_of(&self, input: &str) -> Option<usize> {
        let found = self.variables.iter().find(|(name, _)| name == input);
        found.map(|(_, variable)| *variable)
    }

    /// Runs with the values of a state. Every error of a step comes from here. `buffers` get the
    /// returned outputs and the new values to assign. `accept` checks the outputs before a value of
    /// the state changes.
    pub(super) fn run(
        &self,
        access: StateAccess<'_>,
        inputs: StepInputs<'_>,
        buffers: &mut StepBuffers,
        options: &RunOptions<'_>,
        accept: impl FnOnce(&[Variable], &[Option<Value>]) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let state = access.state();
        state.demand_whole()?;
        let is_fixed = |variable| !(self.takes_defaults && state.is_default(variable));
        let mut variables = self.variables.iter();
        let refused = variables.find(|(name, variable)| is_fixed(*variable) && inputs.has(name));
        if let Some((name, _)) = refused {
            return Err(is_variable(name));
        }
        buffers.returned.clear();
        buffers.assigned.clear();
        match &self.session {
            Runner::Devices(session) => {
                self.run_on_devices(session, state, inputs.to_values()?, buffers, options)?;
                accept(state.variables(), &buffers.returned)
            }
            Runner::Session(session) => {
                self.run_here(session, access, inputs, buffers, (options, accept))
            }
        }
    }

    /// Runs with the values of a state and assigns nothing.
    pub(super) fn evaluate(
        &self,
        state: &State,
        inputs: &[(Cow<'_, str>, Value)],
        options: &RunOptions<'_>,
    ) -> Result<Outputs, Error> {
        let (access, inputs) = (StateAccess::Read(state), StepInputs::Values(inputs));
        let mut buffers = StepBuffers::default();
        self.run(access, inputs, &mut buffers, options, |_, _| Ok(()))?;
        self.take_outputs(state, &mut buffers)
    }

    /// Takes the returned outputs of a run, once the state has its new values.
    pub(super) fn take_outputs(
        &self,
        state: &State,
        buffers: &mut StepBuffers,
    ) -> Result<Outputs, Error> {
        let returned = self.names.iter().zip(buffers.returned.drain(..));
        let mut outputs = Vec::with_capacity(self.names.len());
        for (at, (name, value)) in returned.enumerate() {
            let value = match (value, self.variable_at(at)) {
                (None, Some(variable)) => Some(Value::Tensor(state.value(variable)?)),
                (value, _) => value,
            };
            outputs.extend(value.map(|value| (Arc::clone(name), value)));
        }
        Ok(Outputs::new(outputs))
    }

    /// Returns the state variable that gets the returned output of a position.
    pub(super) fn variable_at(&self, position: usize) -> Option<usize> {
        let mut returned = self.returned.iter().enumerate().filter(|(_, returned)| **returned);
        let (output, _) = returned.nth(position)?;
        let found = self.assignments.iter().find(|(_, assigned)| *assigned == output);
        found.map(|(variable, _)| *variable)
    }

    /// Returns the position of a name among the returned outputs.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Input`] if no output of that name is returned.
    pub(super) fn position_of(&self, name: &str) -> Result<usize, Error> {
        self.names.iter().position(|own| **own == *name).ok_or_else(|| {
            let message = format!("the training step returns no output '{name}'");
            Error::new(ErrorKind::Input, message)
        })
    }

    fn run_here(
        &self,
        session: &Session,
        mut access: StateAccess<'_>,
        inputs: StepInputs<'_>,
        buffers: &mut StepBuffers,
        (options, accept): (
            &RunOptions<'_>,
            impl FnOnce(&[Variable], &[Option<Value>]) -> Result<(), Error>,
        ),
    ) -> Result<(), Error> {
        let StepBuffers { read, written, outputs, returned, assigned } = buffers;
        read.clear();
        written.clear();
        if let StateAccess::Write(state) = &mut access {
            let numbers = self.updated.iter().map(|(_, number)| *number);
            for number in numbers {
                written.extend(state.make_own(number)?.then_some(number));
            }
        }
        let is_written = |number: &usize| written.binary_search(number).is_ok();
        let read_only = || {
            let variables = self.variables.iter();
            variables.filter(|(name, variable)| !inputs.has(name) && !is_written(variable))
        };
        for (_, variable) in read_only() {
            read.push(access.state().value(*variable)?.into());
        }
        let values = read_only().zip(&*read);
        let values = values.map(|((name, _), value)| (name.as_str(), Input::Borrowed(value)));
        let inputs = inputs.borrowed().chain(values);
        let accept_all = |variables: &[Variable], outputs: &mut Vec<Option<Value>>| {
            self.assign_later(variables, outputs, assigned)?;
            let mut is_returned = self.returned.iter();
            let values = outputs.drain(..);
            returned.extend(values.filter(|_| is_returned.next() == Some(&true)));
            accept(variables, returned)
        };
        let ran = match access {
            StateAccess::Read(state) => {
                let accept = |outputs: &mut Vec<_>| accept_all(state.variables(), outputs);
                session.run_updating(inputs, outputs, options, accept)
            }
            StateAccess::Write(state) => {
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

    /// Takes the new values of state variables out of the outputs of a run, if they fit.
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

    /// Lists the inputs of the caller in an error about inputs: the session also has an input for
    /// each state variable.
    fn about_inputs(&self, error: Error, listed: &str) -> Error {
        let Some(before) = error.help().and_then(|help| help.strip_suffix(listed)) else {
            return error;
        };
        let mut help = format!("{before}the inputs are");
        for port in self.session.inputs() {
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
        mut inputs: Vec<(&str, Value)>,
        buffers: &mut StepBuffers,
        options: &RunOptions<'_>,
    ) -> Result<(), Error> {
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
        let (outputs, values) = session.run_on_state(inputs, &parts, options)?;
        let values = values.into_iter();
        buffers.assigned.extend(values.map(|(variable, parts)| (variable, New::OnDevices(parts))));
        buffers.returned.extend(outputs.into_values().map(Some));
        Ok(())
    }
}

/// Makes the error about an input that only the trainer itself gives.
fn is_variable(name: &str) -> Error {
    let message = format!("'{name}' is a state variable, not an input");
    Error::new(ErrorKind::Input, message).with_help("change it with set_state")
}

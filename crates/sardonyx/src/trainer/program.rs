//! Programs of a trainer: compiled graphs whose inputs and outputs are state variables.

use std::borrow::Cow;
use std::sync::{Arc, OnceLock};

use sardonyx_runtime::{Input, Pending, RunOptions};
use sardonyx_tensor::Value;

use super::devices::TrainingDevices;
use super::inputs::StepInputs;
use super::state::{NewValue, State, Variable};
use crate::error::{Error, ErrorKind};
use crate::model::Model;
use crate::outputs::Outputs;
use crate::runner::{Run, Runner};
use crate::session::Session;

/// Compiled programs of a trainer, which its clones share. They are immutable while the state
/// changes.
pub(super) struct TrainingPrograms {
    pub(super) model: Model,
    pub(super) entries: Vec<EntryPrograms>,
    pub(super) inference: TrainingProgram,
    pub(super) warnings: Vec<String>,
    /// Hash of the model in saved states. Set on first use: hashing a model takes as long as
    /// reading it.
    pub(super) identity: OnceLock<String>,
    /// Devices that run steps and inference; `None` for a trainer without devices.
    #[cfg_attr(not(feature = "device"), expect(dead_code, reason = "there are none"))]
    pub(super) devices: Option<TrainingDevices>,
}

/// Compiled programs of an entry of the training information.
pub(super) struct EntryPrograms {
    /// Initialization; `None` if the entry has no initialization graph.
    pub(super) initialization: Option<TrainingProgram>,
    pub(super) step: TrainingProgram,
}

/// Compiled graph with state variables as inputs, so that compiling does not fold their values.
///
/// A new value that is computed element by element from the old one, such as that of an optimizer,
/// is committed: written over it in place, at the end of the run, when nothing can fail any more.
/// Other new values are outputs of the run and replace the old value as a whole; the next step
/// reuses the memory of the old one.
pub(super) struct TrainingProgram {
    pub(super) session: Runner,
    /// Inputs that read a state variable: name of the input, index of the variable.
    pub(super) variables: Vec<(String, usize)>,
    /// State variables whose new value can be written in place, sorted by index.
    pub(super) overwritable: Vec<StateOutput>,
    /// Pairs of indices: a state variable, and the output that is assigned to it.
    pub(super) assignments: Vec<(usize, usize)>,
    /// Whether each of the session's outputs is returned to the caller.
    pub(super) returned: Vec<bool>,
    /// Names of the outputs that are returned to the caller.
    pub(super) names: Vec<Arc<str>>,
    /// Whether the caller may override state variables for one run if the model declares them as
    /// inputs. True for inference; a training step always uses the state.
    pub(super) takes_defaults: bool,
}

/// State variable whose new value a run computes last.
#[derive(Debug, Clone, Copy)]
pub(super) struct StateOutput {
    /// Index of the output that is the new value.
    pub(super) output: usize,
    /// Index of the variable.
    pub(super) variable: usize,
}

/// Buffers that a training step fills. They are empty between steps, and reused so that a step need
/// not allocate them.
#[derive(Default)]
pub(super) struct StepBuffers {
    /// Values of the state variables that the program reads.
    read: Vec<Value>,
    /// All outputs of the program; `None` for outputs that are written in place.
    outputs: Vec<Option<Value>>,
    /// Outputs that are returned to the caller; `None` for outputs that were written in place.
    pub(super) returned: Vec<Option<Value>>,
    /// New values of state variables, with the index of the variable.
    pub(super) assigned: Vec<(usize, NewValue)>,
}

impl Clone for StepBuffers {
    fn clone(&self) -> StepBuffers {
        StepBuffers::default()
    }
}

/// Access of a run to the state variables.
pub(super) enum StateAccess<'s> {
    /// The run does not change the state.
    Read(&'s State),
    /// The run may write new values over old ones in place.
    Write(&'s mut State),
}

/// Run whose outputs have been computed, but not the new values of state that are computed last.
pub(super) struct BegunRun<'p>(Option<(&'p Session, Pending<'p>)>);

impl TrainingPrograms {
    /// Returns the programs of the training entry with an index.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Argument`] if the entry does not exist.
    pub(super) fn entry(&self, entry: usize) -> Result<&EntryPrograms, Error> {
        self.entries.get(entry).ok_or_else(|| {
            let message = format!("training step {entry} does not exist");
            let last = self.entries.len() - 1;
            Error::new(ErrorKind::Argument, message)
                .with_help(format!("use a training entry from 0 to {last}"))
        })
    }
}

impl TrainingProgram {
    /// Returns the index of the state variable that an input reads; `None` if the input reads none.
    pub(super) fn find_variable(&self, input: &str) -> Option<usize> {
        let found = self.variables.iter().find(|(name, _)| name == input);
        found.map(|(_, variable)| *variable)
    }

    /// Runs the program on a state, but for the new values that are computed last: see
    /// [`TrainingProgram::finish`]. `buffers` receives the returned outputs and other new values to
    /// assign, which the caller can look at before any value of the state changes.
    pub(super) fn begin(
        &self,
        state: &State,
        inputs: StepInputs<'_>,
        buffers: &mut StepBuffers,
        options: &RunOptions<'_>,
    ) -> Result<BegunRun<'_>, Error> {
        state.demand_consistent()?;
        let mut variables = self.variables.iter();
        let refused = variables.find(|(name, variable)| {
            let is_fixed = !(self.takes_defaults && state.is_default(*variable));
            is_fixed && inputs.has_input(name)
        });
        if let Some((name, _)) = refused {
            return Err(variable_input_error(name));
        }
        buffers.returned.clear();
        buffers.assigned.clear();
        match &self.session {
            #[cfg(feature = "device")]
            Runner::Devices(session) => {
                self.run_on_devices(session, state, inputs.to_values()?, buffers, options)?;
                Ok(BegunRun(None))
            }
            Runner::Session(session) => {
                let run = self.begin_in_session(session, state, inputs, buffers, options)?;
                Ok(BegunRun(Some((session, run))))
            }
        }
    }

    /// Computes the new values that a run leaves to its end. They are written over the old values
    /// of the state that it may change and that no clone shares; `buffers` receives the others. An
    /// error other than a panic leaves the state unchanged.
    pub(super) fn finish(
        &self,
        begun: BegunRun<'_>,
        mut access: StateAccess<'_>,
        buffers: &mut StepBuffers,
        options: &RunOptions<'_>,
    ) -> Result<(), Error> {
        let Some((session, run)) = begun.0 else { return Ok(()) };
        let committed = match &mut access {
            StateAccess::Read(state) => run.commit(state.show(&self.overwritable), options.watch),
            StateAccess::Write(state) => {
                for StateOutput { variable, .. } in &self.overwritable {
                    state.make_exclusive(*variable)?;
                }
                let committed = run.commit(state.lend(&self.overwritable), options.watch);
                if committed.as_ref().is_err_and(|error| error.is_partial) {
                    state.mark_torn();
                }
                committed
            }
        };
        let made = committed.map_err(|refused| session.report_run_error(refused.error))?;
        for StateOutput { output, variable } in &self.overwritable {
            let made = made.iter().find(|(made, _)| made == output);
            match (made, &mut access) {
                (Some((_, value)), _) => {
                    if let Value::Tensor(value) = value {
                        let new = NewValue::Whole(value.clone());
                        buffers.assigned.push((*variable, new));
                    }
                    if self.returned[*output] {
                        let before = self.returned[..*output].iter();
                        let position = before.filter(|returned| **returned).count();
                        buffers.returned[position] = Some(value.clone());
                    }
                }
                (None, StateAccess::Write(state)) => state.note_overwritten(*variable),
                (None, StateAccess::Read(_)) => {}
            }
        }
        Ok(())
    }

    /// Runs the program on a state that it does not change. `buffers` receives the returned outputs
    /// and all new values to assign.
    pub(super) fn run(
        &self,
        state: &State,
        inputs: StepInputs<'_>,
        buffers: &mut StepBuffers,
        options: &RunOptions<'_>,
    ) -> Result<(), Error> {
        let begun = self.begin(state, inputs, buffers, options)?;
        self.finish(begun, StateAccess::Read(state), buffers, options)
    }

    /// Runs the program on a state and returns the outputs, but assigns no new value.
    pub(super) fn evaluate(
        &self,
        state: &State,
        inputs: &[(Cow<'_, str>, Value)],
        options: &RunOptions<'_>,
    ) -> Result<Outputs, Error> {
        let mut buffers = StepBuffers::default();
        self.run(state, StepInputs::Values(inputs), &mut buffers, options)?;
        self.take_outputs(state, &mut buffers)
    }

    /// Takes the returned outputs of a run out of `buffers`, after the new values have been
    /// assigned. An output that was written in place is read from the state.
    pub(super) fn take_outputs(
        &self,
        state: &State,
        buffers: &mut StepBuffers,
    ) -> Result<Outputs, Error> {
        let returned = self.names.iter().zip(buffers.returned.drain(..));
        let mut outputs = Vec::with_capacity(self.names.len());
        for (at, (name, value)) in returned.enumerate() {
            let value = match (value, self.find_assigned_variable(at)) {
                (None, Some(variable)) => Some(Value::Tensor(state.gather_value(variable)?)),
                (value, _) => value,
            };
            outputs.extend(value.map(|value| (Arc::clone(name), value)));
        }
        Ok(Outputs::new(outputs))
    }

    /// Returns the index of the state variable to which the returned output at a position is
    /// assigned; `None` if it is not assigned.
    pub(super) fn find_assigned_variable(&self, position: usize) -> Option<usize> {
        let mut returned = self.returned.iter().enumerate().filter(|(_, returned)| **returned);
        let (output, _) = returned.nth(position)?;
        let found = self.assignments.iter().find(|(_, assigned)| *assigned == output);
        found.map(|(variable, _)| *variable)
    }

    /// Returns the position of the output called `name` among the outputs that are returned to the
    /// caller.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Input`] if no output of that name is returned.
    pub(super) fn find_output(&self, name: &str) -> Result<usize, Error> {
        self.names.iter().position(|own| **own == *name).ok_or_else(|| {
            let message = format!("the training step returns no output '{name}'");
            Error::new(ErrorKind::Input, message)
        })
    }

    /// Begins a run of the program in one session.
    fn begin_in_session<'p>(
        &self,
        session: &'p Session,
        state: &State,
        inputs: StepInputs<'_>,
        buffers: &mut StepBuffers,
        options: &RunOptions<'_>,
    ) -> Result<Pending<'p>, Error> {
        let StepBuffers { read, outputs, returned, assigned } = buffers;
        read.clear();
        let read_here = || self.variables.iter().filter(|(name, _)| !inputs.has_input(name));
        for (_, variable) in read_here() {
            read.push(state.gather_value(*variable)?.into());
        }
        let values = read_here().zip(&*read);
        let values = values.map(|((name, _), value)| (name.as_str(), Input::Borrowed(value)));
        let begun = session.begin(inputs.to_inputs().chain(values), outputs, options);
        // Values that only the state holds can be overwritten.
        read.clear();
        let run = begun.map_err(|error| error.replace_inputs(|| self.list_own_inputs()))?;
        self.collect_assignments(state.variables(), outputs, assigned)?;
        let mut is_returned = self.returned.iter();
        let values = outputs.drain(..);
        returned.extend(values.filter(|_| is_returned.next() == Some(&true)));
        Ok(run)
    }

    /// Whether the new value of a state variable is computed last.
    fn is_committed(&self, variable: usize) -> bool {
        self.overwritable.binary_search_by_key(&variable, |state| state.variable).is_ok()
    }

    /// Collects the new values of state variables from the outputs of a run that has not been
    /// committed; fails if a new value differs from its state variable in type or shape.
    fn collect_assignments(
        &self,
        variables: &[Variable],
        outputs: &[Option<Value>],
        assigned: &mut Vec<(usize, NewValue)>,
    ) -> Result<(), Error> {
        for (number, output) in &self.assignments {
            let variable = &variables[*number];
            let new = match &outputs[*output] {
                None if self.is_committed(*number) => continue,
                None => {
                    let name = variable.name();
                    let message =
                        format!("no new value was computed for the state variable '{name}'");
                    return Err(Error::new(ErrorKind::Run, message));
                }
                Some(Value::Tensor(value)) => {
                    variable.check(&value.view(), ErrorKind::Run)?;
                    NewValue::Whole(value.clone())
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

    /// Lists the inputs that the caller may give: inputs of the session that are not state
    /// variables.
    fn list_own_inputs(&self) -> String {
        let mut list = "the inputs are".to_string();
        for port in self.session.inputs() {
            if self.find_variable(port.name()).is_none() {
                let default = if port.is_required() { "" } else { " (has a default)" };
                list += &format!("\n  {port}{default}");
            }
        }
        list
    }
}

/// Makes the error about a given input that is a state variable.
fn variable_input_error(name: &str) -> Error {
    let message = format!("'{name}' is a state variable, not an input");
    Error::new(ErrorKind::Input, message).with_help("change a state variable with set_state")
}

//! Training on several devices, which hold the shards of the state variables between steps.

use std::sync::Arc;

use sardonyx_devices::Traffic;
use sardonyx_model::Type;
use sardonyx_runtime::RunOptions;
use sardonyx_shard::{Form, Plan};
use sardonyx_tensor::Value;

use super::Trainer;
use super::build::{DeviceProgram, TrainerBuilder};
use super::program::{StepBuffers, TrainingProgram};
use super::state::{Held, NewValue, State};
pub(super) use crate::devices::{DeviceOptions, Parts};
use crate::devices::{DeviceSession, ResidentVariable, ResidentVariables, StateForms};
use crate::error::{Error, ErrorKind};
use crate::runner::Runner;
use crate::session::SessionBuilder;

/// Devices that run the programs of a trainer.
pub(super) struct TrainingDevices {
    session: DeviceSession,
    /// Shardings of the state variables on the devices, shared by all programs.
    forms: Arc<StateForms>,
}

impl TrainingDevices {
    /// Connects the devices of a trainer with this number of state variables.
    pub(super) fn connect(
        options: DeviceOptions,
        session: SessionBuilder<'_>,
        variables: usize,
    ) -> Result<TrainingDevices, Error> {
        if options.has_transport() {
            let message = "training does not run on devices of several processes";
            return Err(Error::new(ErrorKind::Unsupported, message)
                .with_help("remove the transport; the devices are then threads of this process"));
        }
        let session = session.devices(options)?;
        session.check_gathers()?;
        Ok(TrainingDevices { session, forms: Arc::new(StateForms::new(variables)) })
    }

    /// Returns the seed that the random operators of all devices share.
    pub(super) fn seed(&self) -> Option<u64> {
        self.session.seed()
    }

    /// Compiles a program for the devices.
    pub(super) fn compile(&self, program: &DeviceProgram<'_>) -> Result<Runner, Error> {
        let DeviceProgram { model, choices, state, bound, inputs, returned } = program;
        let mut all = Vec::with_capacity(bound.variables.len());
        for (input, variable) in &bound.variables {
            let mut assignments = bound.assignments.iter();
            let assigned = assignments.find(|(assigned, _)| assigned == variable);
            let stored = state.stored_value(*variable);
            all.push(ResidentVariable {
                variable: *variable,
                name: inputs[*input].as_str().into(),
                input: *input,
                output: assigned.map(|(_, output)| *output),
                ty: (stored.data_type(), stored.dims().to_vec()),
            });
        }
        let unreturned = (0..returned.len()).filter(|output| !returned[*output]);
        let unreturned = unreturned.collect();
        let stays = ResidentVariables { all, unreturned, forms: Arc::clone(&self.forms) };
        Ok(self.session.make_sibling(model, choices, stays)?.into())
    }
}

impl TrainerBuilder<'_> {
    /// Runs training steps and inference on the devices of a device configuration of the model,
    /// like [`SessionBuilder::devices`]. The sharding annotations are those of the main graph and
    /// of the algorithms, and are propagated to nodes without one. Results differ from a run on one
    /// device only in the rounding of sums.
    ///
    /// State variables stay on the devices between steps. Each is sharded like the new value that
    /// the first step computes for it: if a weight is split by columns, its gradient and the
    /// optimizer state of it are split by columns too and never gathered. Gradients of replicated
    /// weights are all-reduced if the examples are divided among the devices. [`Trainer::state`]
    /// and the methods that write a state gather the shards. Initialization runs without devices.
    /// All devices are threads of this process: making the trainer fails with
    /// [`DeviceOptions::transport`].
    pub fn devices(mut self, options: DeviceOptions) -> Self {
        self.devices = Some(options);
        self
    }
}

impl Trainer {
    /// Returns the number of devices, in all processes, that run steps and inference; 0 for a
    /// trainer without devices.
    pub fn device_count(&self) -> usize {
        self.programs.devices.as_ref().map_or(0, |devices| devices.session.device_count())
    }

    /// Returns the traffic that each device of this process has sent so far.
    #[doc(hidden)]
    pub fn traffic(&self) -> Vec<Traffic> {
        self.programs.devices.as_ref().map_or_else(Vec::new, |devices| devices.session.traffic())
    }

    /// Plans the training step of an entry on devices for inputs of the given types. Inputs that
    /// are not listed have their declared type.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Argument`] if the entry does not exist, or the trainer has no devices; errors
    /// that [`Trainer::step`] returns before a run starts.
    #[doc(hidden)]
    pub fn plan(&self, entry: usize, inputs: &[(&str, Type)]) -> Result<Plan, Error> {
        match &self.programs.entry(entry)?.step.session {
            Runner::Session(_) => Err(Error::new(ErrorKind::Argument, "the trainer has no devices")
                .with_help("make the trainer with devices (Python: Trainer(..., devices=True); Rust: TrainerBuilder::devices)")),
            Runner::Devices(session) => session.plan(inputs),
        }
    }

    /// Returns the plan of the last training step of an entry on devices; `None` before the first
    /// step and without devices.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Argument`] if the entry does not exist.
    #[doc(hidden)]
    pub fn last_plan(&self, entry: usize) -> Result<Option<Arc<Plan>>, Error> {
        Ok(match &self.programs.entry(entry)?.step.session {
            Runner::Session(_) => None,
            Runner::Devices(session) => session.last_plan(),
        })
    }
}

impl TrainingProgram {
    /// Runs the program on devices, which hold the shards of the state variables.
    pub(super) fn run_on_devices(
        &self,
        session: &DeviceSession,
        state: &State,
        mut inputs: Vec<(&str, Value)>,
        buffers: &mut StepBuffers,
        options: &RunOptions<'_>,
    ) -> Result<(), Error> {
        // Values that override state variables are sharded like the state.
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
                given.push((*variable, Held::from_tensor(value)));
            }
        }
        let parts = |variable: usize, form: &Form| {
            let own = given.iter().find(|(given, _)| *given == variable).map(|(_, held)| held);
            own.unwrap_or_else(|| state.held_value(variable)).to_parts(session, form)
        };
        let (outputs, values) = session.run_on_state(inputs, &parts, options)?;
        let values = values.into_iter();
        let assigned = values.map(|(variable, parts)| (variable, NewValue::OnDevices(parts)));
        buffers.assigned.extend(assigned);
        buffers.returned.extend(outputs.into_values().map(Some));
        Ok(())
    }
}

impl Held {
    /// Returns the shards of the held value on devices; makes the shards on first use. A variable
    /// always has one sharding, so that shards stay valid.
    pub(super) fn to_parts(
        &self,
        devices: &DeviceSession,
        form: &Form,
    ) -> Result<Arc<Parts>, Error> {
        match self {
            Held::OnDevices(parts) => Ok(Arc::clone(parts)),
            Held::Whole(value, known) => {
                if let Some(parts) = known.get() {
                    return Ok(Arc::clone(parts));
                }
                let parts = Arc::new(devices.distribute(value, form)?);
                Ok(Arc::clone(known.get_or_init(|| parts)))
            }
        }
    }
}

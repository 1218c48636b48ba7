//! Sessions that run a model on several devices, along the annotations of one device configuration.

mod build;
pub(crate) mod collectives;
mod crew;
mod exchange;
mod into;
mod options;
mod parts;
mod plans;
mod profile;
mod rank_models;
mod runs;
mod seat;
mod serve;
mod shard;
mod split;
mod state;
mod team;

use std::fmt;
use std::sync::{Arc, Mutex};

pub use options::{DeviceOptions, Results};
pub use profile::{DevicePart, DeviceRun, Exchanged};
pub use rank_models::{RankModels, RankOptions};
use sardonyx_devices::Traffic;
use sardonyx_runtime::Port;
use sardonyx_tensor::Tensor;
pub use shard::ShardOptions;

use crate::error::Error;
use crate::model::Model;
use crate::session::{Choices, Session};
use crew::Crew;
pub(crate) use parts::Parts;
use plans::{CompiledPlan, ShardSource};
pub use split::OutputPart;
pub(crate) use state::{ResidentVariable, ResidentVariables, StateForms};

/// A model compiled to run on the devices of one of its configurations.
///
/// Each device is a thread with a session for its part of the model. All threads are in this
/// process, unless [`DeviceOptions::transport`] connects several processes. Outputs equal those of
/// a [`Session`] up to the rounding of sums: annotations only assign computations to devices and
/// split tensors into shards. The first run makes a plan. Later runs reuse it for other sizes of
/// symbolic dimensions, except for sizes of 0 and 1 and of axes that are split.
///
/// ```
/// use sardonyx::device::DeviceOptions;
/// use sardonyx::{Model, RunOptions, Session, Tensor};
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
/// let outputs = session.run([("x", x)], &RunOptions::default())?;
/// assert_eq!(outputs.tensor("y")?.as_slice::<f32>()?, [-1.0, -2.0, -3.0, -4.0]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct DeviceSession {
    model: Model,
    source: ShardSource,
    choices: Choices,
    /// Session of the whole model, which never runs and only describes the inputs and outputs.
    look: Session,
    crew: Crew,
    /// State variables that stay on the devices between runs.
    stays: ResidentVariables,
    /// Cache of compiled sharding plans in the order of their last use, the most recent one last.
    plans: Mutex<Vec<Arc<CompiledPlan>>>,
    /// Copies of the inputs of the last `run_into`, whose memory the next `run_into` reuses.
    copied: Mutex<Vec<(Arc<str>, Tensor)>>,
}

impl fmt::Debug for DeviceSession {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DeviceSession")
            .field("devices", &self.crew.devices)
            .field("seats", &self.crew.seats)
            .finish_non_exhaustive()
    }
}

impl DeviceSession {
    /// Returns the names and types of the model's inputs, in the model's order.
    pub fn inputs(&self) -> &[Port] {
        self.look.inputs()
    }

    /// Returns the names and types of the model's outputs, in the model's order.
    pub fn outputs(&self) -> &[Port] {
        self.look.outputs()
    }

    /// Returns the model input called `name`.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Input`](crate::ErrorKind::Input) if the model has no input of this name.
    pub fn input(&self, name: &str) -> Result<&Port, Error> {
        self.look.input(name)
    }

    /// Returns the total number of threads of the devices in this process.
    pub fn threads(&self) -> usize {
        self.crew.seats.len() * self.threads_per_device()
    }

    /// Returns the number of threads of each device.
    pub fn threads_per_device(&self) -> usize {
        self.choices.options.threads.unwrap_or(1)
    }

    /// Returns the instruction set that kernels use in this process; see
    /// [`Session::instruction_set`].
    pub fn instruction_set(&self) -> String {
        self.look.instruction_set()
    }

    /// Returns the total number of devices in all processes.
    pub fn device_count(&self) -> usize {
        self.crew.devices
    }

    /// Returns the rank of this process among the workers that run the model: 0 if all devices are
    /// threads of one process.
    pub fn worker(&self) -> usize {
        self.crew.worker()
    }

    /// Returns the messages and bytes that each device of this process has sent so far.
    #[doc(hidden)]
    pub fn traffic(&self) -> Vec<Traffic> {
        self.crew.traffic()
    }
}

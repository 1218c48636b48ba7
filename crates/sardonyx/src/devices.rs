//! A model that runs on several devices, as one of its configurations says.

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
pub(crate) use crate::runner::{Run, Runner};
use crate::session::{Choices, Session};
use crew::Crew;
pub(crate) use parts::Parts;
use plans::{Prepared, ShardSource};
pub use split::OutputPart;
pub(crate) use state::{Forms, Stay, Stays};

/// A model made ready to run on the devices of one of its configurations.
///
/// Each device is a thread with a session of its own for its part of the model; all threads are in
/// this process, unless [`DeviceOptions::transport`] connects it with others. The results are those
/// of a [`Session`]: annotations decide only where and in which parts values are computed; sums may
/// be rounded otherwise. A plan is made in the first run. It holds for all sizes that the model
/// leaves open, apart from 0 and 1, and from those along which something is split.
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
    /// Session of the whole model, which never runs: it has the inputs and outputs.
    look: Session,
    crew: Crew,
    /// State that stays on the devices from run to run.
    stays: Stays,
    /// Plans of the last runs, the last used one last.
    plans: Mutex<Vec<Arc<Prepared>>>,
    /// Copies of the inputs of the last run on memory of the caller.
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
    /// Returns the inputs of a run, in the model's order.
    pub fn inputs(&self) -> &[Port] {
        self.look.inputs()
    }

    /// Returns the outputs of a run, in the model's order.
    pub fn outputs(&self) -> &[Port] {
        self.look.outputs()
    }

    /// Returns the input of a name.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Input`](crate::ErrorKind::Input) if there is none.
    pub fn input(&self, name: &str) -> Result<&Port, Error> {
        self.look.input(name)
    }

    /// Returns the number of threads of all devices of this process together.
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

    /// Returns the number of devices of all processes together.
    pub fn device_count(&self) -> usize {
        self.crew.devices
    }

    /// Returns the number of this process among the workers that run the model: 0 where all devices
    /// are threads of one process.
    pub fn worker(&self) -> usize {
        self.crew.worker()
    }

    /// Returns the traffic that each device of this process has sent so far.
    #[doc(hidden)]
    pub fn traffic(&self) -> Vec<Traffic> {
        self.crew.traffic()
    }
}

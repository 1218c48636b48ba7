//! Options of sessions on several devices.

use std::sync::Arc;
use std::time::Duration;

use sardonyx_devices::{Settings, Transport};

#[cfg(doc)]
use super::DeviceSession;

/// Options of a session on several devices; see
/// [`SessionBuilder::devices`](crate::SessionBuilder::devices).
#[derive(Debug, Clone, Default)]
pub struct DeviceOptions {
    pub(super) configuration: Option<String>,
    pub(super) settings: Settings,
    pub(super) transport: Option<Arc<dyn Transport>>,
    pub(super) results: Results,
}

/// Worker processes that receive the outputs of a run on devices.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Results {
    /// Worker 0, which passes the inputs.
    #[default]
    First,
    /// All workers: [`DeviceSession::serve`] passes the outputs of each run to its callback.
    All,
    /// No worker: each device keeps its shards of the outputs. Worker 0 calls
    /// [`DeviceSession::run_split`], all others [`DeviceSession::serve_split`].
    Split,
}

impl DeviceOptions {
    /// Makes options for a model with one device configuration, devices that are threads of this
    /// process, and a deadline of one minute for each message.
    pub fn new() -> DeviceOptions {
        DeviceOptions::default()
    }

    /// Chooses a device configuration of the model by name.
    #[must_use]
    pub fn configuration(mut self, name: impl Into<String>) -> Self {
        self.configuration = Some(name.into());
        self
    }

    /// Sets the time that a device waits for a message of another device before the run fails.
    /// Has no effect with a [transport](DeviceOptions::transport), which has its own deadline.
    #[must_use]
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.settings.deadline = deadline;
        self
    }

    /// Sets which worker processes receive the outputs of runs; by default, worker 0 alone.
    #[must_use]
    pub fn results(mut self, results: Results) -> Self {
        self.results = results;
        self
    }

    /// Makes this process one of several worker processes, connected by a transport:
    /// [`Processes`](super::Processes), `Mpi`, [`Channels`](super::Channels), or an implementation
    /// of the caller. Each worker makes a session of the same model with the same options. Devices
    /// are spread evenly over the workers; a worker may have several devices, or none. Worker 0
    /// calls [`DeviceSession::run`], all others [`DeviceSession::serve`].
    #[must_use]
    pub fn transport(mut self, transport: Arc<dyn Transport>) -> Self {
        self.transport = Some(transport);
        self
    }

    /// Whether the devices may belong to several worker processes, connected by a transport.
    pub(crate) fn has_transport(&self) -> bool {
        self.transport.is_some()
    }
}

//! Running on the devices of a configuration of the model: the options, and which session runs.

use std::time::Duration;

use sardonyx::{DeviceOptions, DeviceSession, Error, Outputs, Session, Value};

use crate::failure::Failure;
use crate::session::{Opened, SessionArgs};
use crate::stopping::StopArgs;

/// Which devices run the model.
#[derive(clap::Args)]
#[group(skip)]
pub(crate) struct DeviceArgs {
    /// Run on the devices of a configuration of the model: each is a thread with its part of the
    /// model. The results are the same, except for the rounding of sums. --threads counts the
    /// threads of each device; by default the processors are divided among the devices
    #[arg(long, conflicts_with_all = ["timeout", "turn_limit"])]
    pub(crate) devices: bool,
    /// Name of the device configuration; by default the only one of the model
    #[arg(long, value_name = "NAME", requires = "devices")]
    configuration: Option<String>,
    /// Seconds that a device waits for a message of another one
    #[arg(long, value_name = "SECONDS", default_value_t = 60, requires = "devices", value_parser = clap::value_parser!(u64).range(1..))]
    device_timeout: u64,
}

/// What runs a model.
pub(crate) enum Runner {
    Session(Box<Session>),
    Devices(Box<DeviceSession>),
}

impl DeviceArgs {
    /// The options of a session on devices.
    pub(crate) fn options(&self) -> DeviceOptions {
        let options = DeviceOptions::new().deadline(Duration::from_secs(self.device_timeout));
        match &self.configuration {
            Some(name) => options.configuration(name),
            None => options,
        }
    }

    /// What runs a model that was opened; only to be looked at, if devices run it.
    pub(crate) fn runner(
        &self,
        opened: Opened,
        session: &SessionArgs,
    ) -> Result<(sardonyx::Model, Runner), Failure> {
        let Opened { model, session: whole, sizes } = opened;
        if !self.devices {
            return Ok((model, Runner::Session(Box::new(whole))));
        }
        let devices = session.on_devices(&model, &sizes, self.options())?;
        Ok((model, Runner::Devices(Box::new(devices))))
    }
}

impl Runner {
    pub(crate) fn run(
        &self,
        values: Vec<(String, Value)>,
        stopping: &StopArgs,
    ) -> Result<Outputs, Error> {
        match self {
            Runner::Session(session) => session.run_with(values, stopping.options()),
            Runner::Devices(session) => session.run(values),
        }
    }

    /// Threads that a run uses.
    pub(crate) fn threads(&self) -> usize {
        match self {
            Runner::Session(session) => session.threads(),
            Runner::Devices(session) => session.threads(),
        }
    }
}

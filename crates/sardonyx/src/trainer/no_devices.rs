//! Stand-ins for devices in a library without the feature `device`: types without values, so that
//! trainers are the same code with the feature and without it.

pub(super) use std::convert::Infallible as DeviceOptions;
pub(super) use std::convert::Infallible as Parts;

use super::build::DeviceProgram;
use crate::error::Error;
use crate::runner::Runner;
use crate::session::SessionBuilder;

/// Devices that run the programs of a trainer.
pub(super) enum TrainingDevices {}

impl TrainingDevices {
    /// Returns devices for options, which have no values.
    pub(super) fn connect(
        options: DeviceOptions,
        _: SessionBuilder<'_>,
        _: usize,
    ) -> Result<TrainingDevices, Error> {
        match options {}
    }

    /// Returns the seed of devices, which have no values.
    pub(super) fn seed(&self) -> Option<u64> {
        match *self {}
    }

    /// Compiles a program for devices, which have no values.
    pub(super) fn compile(&self, _: &DeviceProgram<'_>) -> Result<Runner, Error> {
        match *self {}
    }
}

//! Runs a model on the devices of one of its configurations, or as one rank of several processes:
//! options, the choice of the session, and the worker processes.

mod ranks;
mod workers;

use std::ffi::OsString;
use std::sync::Arc;
use std::time::Duration;

use sardonyx::device::{DeviceOptions, TransportSettings};
use sardonyx::run::Runner;
use sardonyx::{Model, StopFlag};

use crate::failure::Failure;
use crate::human::parse_optional;
use crate::session::{Opened, SessionArgs};
pub(crate) use ranks::{NUMBER, Rank};
use workers::Workers;

/// Options that select the devices or processes that run a model.
#[derive(clap::Args)]
#[group(skip)]
#[command(group = clap::ArgGroup::new("workers").args(["devices", "processes", "mpi"]).multiple(true))]
pub(crate) struct DeviceArgs {
    /// Run on the devices of a configuration of the model: each is a thread with its part of the
    /// model. The results are the same, except for the rounding of sums. --threads counts the
    /// threads of each device; by default the processors are divided among the devices
    #[arg(long)]
    pub(crate) devices: bool,
    /// Name of the device configuration; by default the only one of the model
    #[arg(long, value_name = "NAME", requires = "devices")]
    configuration: Option<String>,
    /// With --devices, spread the devices over N processes of this machine, this one included; by
    /// default one process per device. Without, each of N processes runs a model of its own, whose
    /// collectives connect them, as `sardonyx shard --local` writes them: %d in MODEL stands for
    /// the number of the process, from 0. Process 0 writes the answer
    #[arg(
        long,
        value_name = "N",
        num_args = 0..=1,
        value_parser = |text: &str| parse_optional(text, 2..=1024)
    )]
    processes: Option<Option<u64>>,
    /// Like --processes, with the processes of the MPI job that runs this command, as in `mpiexec
    /// -n 4 sardonyx run MODEL x.npy --devices --mpi`. FILE is the MPI library; by default the
    /// usual names are tried. Not in static builds
    #[arg(
        long,
        value_name = "FILE",
        conflicts_with = "processes",
        num_args = 0..=1,
        require_equals = true
    )]
    mpi: Option<Option<OsString>>,
    /// Combine partial results in the order of the devices also over MPI, so that sums have the
    /// same bits in every run; otherwise they are left to the MPI library
    #[arg(long, requires = "mpi")]
    reproducible: bool,
    /// Seconds that a device or process waits for a message of another one
    #[arg(long, value_name = "SECONDS", default_value_t = 60, requires = "workers", value_parser = crate::human::parse_positive)]
    device_timeout: u64,
}

/// Session that runs a model, with the worker processes that serve it.
pub(crate) struct Running {
    /// Session that runs the model. Dropping the session ends the worker processes, so it is
    /// dropped before `_workers`, which waits for them.
    pub(crate) runner: Runner,
    _workers: Workers,
}

impl DeviceArgs {
    /// Returns an error if the model has no device configuration, or several although
    /// `--configuration` is not given.
    fn check_configuration(&self, model: &Model) -> Result<(), Failure> {
        if self.configuration.is_some() {
            return Ok(());
        }
        let error = match (model.devices_of(None), model.device_configurations().len()) {
            (Ok(_), _) => return Ok(()),
            (Err(error), 0 | 1) => error.into(),
            (Err(error), _) => {
                Failure::from(error).help("choose a device configuration with --configuration NAME")
            }
        };
        Err(error)
    }

    /// Builds the options of a session on devices: configuration, deadline and transport.
    fn make_options(&self, settings: &TransportSettings, workers: &Workers) -> DeviceOptions {
        let mut options = DeviceOptions::new().deadline(settings.deadline);
        if let Some(name) = &self.configuration {
            options = options.configuration(name);
        }
        match workers.transport() {
            Some(transport) => options.transport(Arc::clone(transport)),
            None => options,
        }
    }

    /// Returns the settings of the transport between workers, which hold its deadline.
    fn transport_settings(&self) -> TransportSettings {
        TransportSettings { deadline: Duration::from_secs(self.device_timeout) }
    }

    /// Creates the session that runs an opened model, on devices if the options select them.
    /// Returns `None` in a worker process after it has served the runs of worker 0.
    pub(crate) fn start_runner(
        &self,
        opened: &Opened,
        session: &SessionArgs,
        is_stdin: bool,
    ) -> Result<Option<Running>, Failure> {
        let Opened { model, session: whole, sizes, .. } = opened;
        if !self.devices {
            let runner = whole.clone().into();
            return Ok(Some(Running { runner, _workers: Workers::default() }));
        }
        self.check_configuration(model)?;
        let settings = self.transport_settings();
        let workers = self.start_workers(model, is_stdin, &settings)?;
        let devices =
            session.prepare_devices(model, sizes, self.make_options(&settings, &workers))?;
        if devices.worker() == 0 {
            return Ok(Some(Running { runner: devices.into(), _workers: workers }));
        }
        // Worker 0 reports the error.
        let served = devices.serve(&StopFlag::new(), |_| ());
        served.map(|()| None).map_err(|_| Failure::reported_elsewhere())
    }
}

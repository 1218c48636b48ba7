//! Runs one of several processes that each load their own model, whose collectives connect them.

use std::path::PathBuf;
use std::sync::Arc;

use sardonyx::device::Transport;
use sardonyx::tool::ModelExt;
use sardonyx::{Model, SessionBuilder};

use super::DeviceArgs;
use super::workers::Workers;
use crate::failure::Failure;
use crate::model_arg::ModelArg;
use crate::terminal::Terminal;
use crate::verdict::Verdict;

/// Placeholder for the number of the process in the name of a model file.
pub(crate) const NUMBER: &str = "%d";

/// This process as a rank: one of several processes that each run a model of their own and exchange
/// values by collective operators.
pub(crate) struct Rank {
    /// Connection to the other ranks.
    transport: Arc<dyn Transport>,
    /// Worker processes. Dropped after the transport, as dropping waits for their end.
    _workers: Workers,
}

impl DeviceArgs {
    /// Connects this process with the other ranks. Returns `None` if this process runs alone, or if
    /// several processes share the devices of one model.
    pub(crate) fn connect_rank(&self, model: &ModelArg) -> Result<Option<Rank>, Failure> {
        if self.devices || (self.processes.is_none() && self.mpi.is_none()) {
            self.refuse_placeholder(model)?;
            return Ok(None);
        }
        if model.is_stdin() {
            let message = "several processes cannot read models from standard input";
            return Err(Failure::new(message).help(
                "name the model files with %d for the number of the process, such as rank%d.onnx",
            ));
        }
        let workers = self.start_rank_workers(&self.transport_settings())?;
        let transport = workers.transport().cloned();
        Ok(transport.map(|transport| Rank { transport, _workers: workers }))
    }

    /// Returns an error if the file name of the model holds `%d` although the processes do not run
    /// models of their own.
    fn refuse_placeholder(&self, model: &ModelArg) -> Result<(), Failure> {
        let has_number = model.path.to_str().is_some_and(|path| path.contains(NUMBER));
        if !has_number || model.path.exists() {
            return Ok(());
        }
        let name = model.name();
        let message = format!("'{name}' names models of several processes, but one model is run");
        Err(Failure::new(message).help(if self.devices {
            "use --processes N without --devices: %d is the number of the process, from 0"
        } else {
            "add --processes N: %d is the number of the process, from 0"
        }))
    }

    /// Returns an error if the options start ranks, for a command that does not support them.
    pub(crate) fn refuse_ranks(&self) -> Result<(), Failure> {
        if self.devices || (self.processes.is_none() && self.mpi.is_none()) {
            return Ok(());
        }
        Err(Failure::new("--processes and --mpi need --devices in this command")
            .help("add --devices; `sardonyx run` also runs processes with models of their own"))
    }
}

impl Rank {
    /// Whether this process is rank 0, which writes the answer.
    pub(crate) fn is_first(&self) -> bool {
        self.transport.number() == 0
    }

    /// Returns the model argument of this rank, with `%d` in the file name replaced by the number
    /// of this process.
    pub(crate) fn fill_in_number(&self, model: &ModelArg) -> ModelArg {
        let path = match model.path.to_str() {
            Some(path) => PathBuf::from(path.replace(NUMBER, &self.transport.number().to_string())),
            // A file name that is not UTF-8 cannot contain the number of a process.
            None => model.path.clone(),
        };
        ModelArg { path, limits: model.limits.clone() }
    }

    /// Warns if the model has no collective operators, so that each process runs the whole model.
    /// Fails if such a model has a device configuration, which `--devices` would run.
    pub(crate) fn check_collectives(
        &self,
        model: &Model,
        terminal: &Terminal,
    ) -> Result<(), Failure> {
        if model.has_collectives() {
            return Ok(());
        }
        let count = self.transport.workers();
        let what = format!("each of {count} processes runs the whole model");
        if let Some(configuration) = model.device_configurations().first() {
            let message = format!("{what}, as no node of the model is a collective");
            return Err(Failure::new(message).help(format!(
                "add --devices to run the model on the devices of its configuration '{}'",
                configuration.name
            )));
        }
        if self.is_first() {
            terminal.note(&format!("{what}: it has no collectives that would connect them"));
        }
        Ok(())
    }

    /// Sets the transport over which the collective operators of a session exchange values.
    pub(crate) fn connect<'m>(&self, builder: SessionBuilder<'m>) -> SessionBuilder<'m> {
        builder.transport(Arc::clone(&self.transport))
    }

    /// Waits until all ranks have finished their runs.
    pub(crate) fn wait_for_ranks(&self) -> Result<(), Failure> {
        Ok(self.transport.barrier()?)
    }

    /// Returns the result of this rank. A failure ends the runs of all ranks, but only rank 0
    /// reports the failure.
    pub(crate) fn report_result(
        self,
        result: Result<Verdict, Failure>,
    ) -> Result<Verdict, Failure> {
        let Err(failure) = result else { return result };
        self.transport.fail(&failure.to_line());
        Err(if self.is_first() { failure } else { Failure::reported_elsewhere() })
    }
}

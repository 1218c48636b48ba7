//! Several processes that each run a model of their own, whose collectives connect them.

use std::path::PathBuf;
use std::sync::Arc;

use sardonyx::device::Transport;
use sardonyx::tool::ModelExt;
use sardonyx::{Model, SessionBuilder};

use super::DeviceArgs;
use super::workers::Workers;
use crate::failure::Failure;
use crate::terminal::Terminal;
use crate::{ModelArg, Verdict};

/// What stands for the number of a process in the name of a file.
pub(crate) const NUMBER: &str = "%d";

/// This process among those that run models with collectives.
pub(crate) struct Rank {
    transport: Arc<dyn Transport>,
    /// Ends after the transport.
    _workers: Workers,
}

impl DeviceArgs {
    /// The place of this process among those that each run a model of their own; `None` if it runs
    /// alone, or the devices of one model.
    pub(crate) fn rank(&self, model: &ModelArg) -> Result<Option<Rank>, Failure> {
        if self.devices || (self.processes.is_none() && self.mpi.is_none()) {
            self.refuse_number(model)?;
            return Ok(None);
        }
        if model.is_stdin() {
            let message = "several processes cannot read models from standard input";
            return Err(Failure::new(message).help("name the files: rank%d.onnx"));
        }
        let workers = self.rank_workers(&self.settings())?;
        let transport = workers.transport().cloned();
        Ok(transport.map(|transport| Rank { transport, _workers: workers }))
    }

    /// Refuses a file name with the number of a process where each process does not run a model of
    /// its own.
    fn refuse_number(&self, model: &ModelArg) -> Result<(), Failure> {
        let has_number = model.path.to_str().is_some_and(|path| path.contains(NUMBER));
        if !has_number || model.path.exists() {
            return Ok(());
        }
        let message = format!("the models of several processes are named: '{}'", model.name());
        Err(Failure::new(message).help(if self.devices {
            "use --processes N without --devices: %d is the number of the process, from 0"
        } else {
            "add --processes N: %d is the number of the process, from 0"
        }))
    }

    /// Refuses processes with models of their own, for a command that has no use for them.
    pub(crate) fn refuse_ranks(&self) -> Result<(), Failure> {
        if self.devices || (self.processes.is_none() && self.mpi.is_none()) {
            return Ok(());
        }
        Err(Failure::new("--processes and --mpi are for the devices of a model here")
            .help("add --devices; `sardonyx run` also runs processes with models of their own"))
    }
}

impl Rank {
    /// Whether this is the process that answers.
    pub(crate) fn is_first(&self) -> bool {
        self.transport.number() == 0
    }

    /// The model of this process.
    pub(crate) fn model(&self, model: &ModelArg) -> ModelArg {
        let path = match model.path.to_str() {
            Some(path) => PathBuf::from(path.replace(NUMBER, &self.transport.number().to_string())),
            // No file of a number has a name that is not text.
            None => model.path.clone(),
        };
        ModelArg { path, limits: model.limits.clone() }
    }

    /// Looks at the model that this process runs beside those of the others.
    pub(crate) fn check(&self, model: &Model, terminal: &Terminal) -> Result<(), Failure> {
        if model.has_collectives() {
            return Ok(());
        }
        let count = self.transport.workers();
        let what = format!("each of {count} processes runs the whole model");
        if let Some(configuration) = model.device_configurations().first() {
            let message = format!("{what}, as no node of it is a collective");
            return Err(Failure::new(message).help(format!(
                "add --devices to run it on the devices of its configuration '{}'",
                configuration.name
            )));
        }
        if self.is_first() {
            terminal.note(&format!("{what}: it has no collectives that would connect them"));
        }
        Ok(())
    }

    /// Connects a session with those of the other processes.
    pub(crate) fn connect<'m>(&self, builder: SessionBuilder<'m>) -> SessionBuilder<'m> {
        builder.transport(Arc::clone(&self.transport))
    }

    /// Waits until all processes have done their runs.
    pub(crate) fn wait(&self) -> Result<(), Failure> {
        Ok(self.transport.barrier()?)
    }

    /// What this process ends with. If it failed, the others are told; process 0 says why.
    pub(crate) fn end(self, result: Result<Verdict, Failure>) -> Result<Verdict, Failure> {
        let Err(failure) = result else { return result };
        self.transport.fail(&failure.in_a_line());
        Err(if self.is_first() { failure } else { Failure::told_elsewhere() })
    }
}

//! Several processes that each run a model of their own, whose collectives connect them.

use std::path::PathBuf;
use std::sync::Arc;

use sardonyx::SessionBuilder;
use sardonyx::devices::Transport;

use super::DeviceArgs;
use super::workers::Workers;
use crate::failure::Failure;
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

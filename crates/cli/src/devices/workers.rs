//! Worker processes that run the devices of a model together: child processes or an MPI job.

use std::ffi::OsString;
use std::sync::Arc;

use sardonyx::Model;
use sardonyx::device::{Transport, TransportSettings};

use super::DeviceArgs;
use crate::failure::Failure;
#[cfg(unix)]
use unix::{ChildProcesses, join_processes};

/// Worker processes of a run, with the transport between them.
#[derive(Default)]
pub(crate) struct Workers {
    /// Transport to the other processes; `None` if this process is alone.
    transport: Option<Arc<dyn Transport>>,
    /// Child processes. Dropped after the transport, which informs them that this process ends.
    #[cfg(unix)]
    started: Option<ChildProcesses>,
}

#[cfg(unix)]
impl Drop for Workers {
    fn drop(&mut self) {
        let has_failed =
            self.transport.as_ref().is_some_and(|transport| transport.endpoint().has_failed());
        if let Some(started) = &mut self.started
            && has_failed
        {
            started.shorten_farewell();
        }
    }
}

impl Workers {
    fn from_transport(transport: impl Transport + 'static) -> Workers {
        let mut workers = Workers::default();
        workers.transport = Some(Arc::new(transport));
        workers
    }

    /// Returns the transport to the other processes; `None` if this process is alone.
    pub(super) fn transport(&self) -> Option<&Arc<dyn Transport>> {
        self.transport.as_ref()
    }
}

impl DeviceArgs {
    /// Starts the worker processes that run the devices of a model, or joins the workers if this
    /// process was started as one.
    pub(super) fn start_workers(
        &self,
        model: &Model,
        is_stdin: bool,
        settings: &TransportSettings,
    ) -> Result<Workers, Failure> {
        if let Some(library) = &self.mpi {
            return self.join_mpi(library.clone(), settings);
        }
        let Some(count) = self.processes else { return Ok(Workers::default()) };
        if is_stdin {
            let message = "other processes cannot read the model from standard input";
            return Err(Failure::new(message).help("save the model to a file first"));
        }
        let (_, devices) = model.devices_of(self.configuration.as_deref())?;
        let count = count.and_then(|count| usize::try_from(count).ok()).unwrap_or(devices);
        join_processes(count, settings)
    }

    /// Starts the worker processes that each run a model of their own, or joins the workers if this
    /// process was started as one.
    pub(super) fn start_rank_workers(
        &self,
        settings: &TransportSettings,
    ) -> Result<Workers, Failure> {
        match (&self.mpi, self.processes) {
            (Some(library), _) => self.join_mpi(library.clone(), settings),
            (None, Some(Some(count))) => {
                join_processes(usize::try_from(count).unwrap_or(usize::MAX), settings)
            }
            (None, _) => Err(Failure::new("the number of processes is missing").help(
                "give --processes N for N models of their own, or add --devices for the devices of \
                 one model",
            )),
        }
    }

    /// Joins the processes of the MPI job that runs this command. `library` is the path of the MPI
    /// library; `None` tries the usual names.
    #[cfg(all(unix, feature = "mpi", not(target_feature = "crt-static")))]
    fn join_mpi(
        &self,
        library: Option<OsString>,
        settings: &TransportSettings,
    ) -> Result<Workers, Failure> {
        use sardonyx::device::{Mpi, MpiSettings};
        let settings =
            MpiSettings { settings: settings.clone(), reproducible: self.reproducible, library };
        let mpi = Mpi::start(&settings)?;
        Ok(Workers::from_transport(mpi))
    }

    /// Returns an error, as this build does not support MPI.
    #[cfg(not(all(unix, feature = "mpi", not(target_feature = "crt-static"))))]
    fn join_mpi(&self, _: Option<OsString>, _: &TransportSettings) -> Result<Workers, Failure> {
        Err(Failure::new("this build of sardonyx does not support MPI").help(
            "a static program cannot open the MPI library of the system: build a dynamically \
             linked one with `cargo install --path crates/cli`",
        ))
    }
}

#[cfg(unix)]
mod unix {
    use std::os::unix::process::CommandExt;
    use std::path::Path;
    use std::process::{Child, Command, Stdio};
    use std::sync::Arc;
    use std::time::{Duration, Instant};

    use sardonyx::ErrorKind;
    use sardonyx::device::{Processes, Rendezvous, TransportError, TransportSettings};

    use super::Workers;
    use crate::failure::Failure;

    /// Environment variable that makes a child process a worker. Its value is
    /// `DIRECTORY:NUMBER:COUNT`: the rendezvous directory, the worker's number and the number of
    /// workers.
    const WORKER: &str = "SARDONYX_WORKER";

    /// Worker processes that this process started. Dropping waits for their end.
    pub(super) struct ChildProcesses {
        children: Vec<Child>,
        /// Directory in which the workers find each other.
        rendezvous: Rendezvous,
        /// Time that the child processes have to end after worker 0, before they are killed.
        farewell: Duration,
    }

    /// Time that worker processes have to end after a successful run.
    const FAREWELL: Duration = Duration::from_secs(5);
    /// Time that worker processes have to end after a failure. The time is short because a process
    /// that did not answer is not expected to end by itself.
    const SHORT_FAREWELL: Duration = Duration::from_millis(250);

    impl ChildProcesses {
        /// Shortens the time that the child processes have to end, after the run has failed.
        pub(super) fn shorten_farewell(&mut self) {
            self.farewell = SHORT_FAREWELL;
        }
    }

    impl Drop for ChildProcesses {
        fn drop(&mut self) {
            let until = Instant::now() + self.farewell;
            for child in &mut self.children {
                while matches!(child.try_wait(), Ok(None)) {
                    if Instant::now() >= until {
                        let _ = child.kill();
                        let _ = child.wait();
                        break;
                    }
                    std::thread::sleep(Duration::from_millis(1));
                }
            }
        }
    }

    /// Starts the workers 1 to `count - 1` as child processes and joins them as worker 0. If this
    /// process is such a child, joins as the worker that [`WORKER`] names.
    pub(super) fn join_processes(
        count: usize,
        settings: &TransportSettings,
    ) -> Result<Workers, Failure> {
        if let Ok(own) = std::env::var(WORKER) {
            // Worker 0 reports the missing worker.
            return join_as_child(&own, settings).ok_or_else(Failure::reported_elsewhere);
        }
        let rendezvous = Rendezvous::new()?;
        let mut started = ChildProcesses { children: Vec::new(), rendezvous, farewell: FAREWELL };
        let program = std::env::current_exe()?;
        for number in 1..count {
            // Repeats the command line, so that all workers have equal models and options.
            let place = format!("{}:{number}:{count}", started.rendezvous.path().display());
            let child = Command::new(&program)
                .args(std::env::args_os().skip(1))
                .env(WORKER, place)
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                // Keeps Ctrl-C from the child: worker 0 receives it and cancels the others.
                .process_group(0)
                .spawn();
            let child = child
                .map_err(|error| Failure::new(format!("worker {number} cannot start: {error}")))?;
            started.children.push(child);
        }
        let own = Processes::join(started.rendezvous.path(), 0, count, settings);
        let own = own.inspect_err(|_| started.shorten_farewell())?;
        Ok(Workers { transport: Some(Arc::new(own)), started: Some(started) })
    }

    /// Joins the workers that `own`, the value of [`WORKER`], describes. Returns `None` if `own` is
    /// malformed or joining fails.
    fn join_as_child(own: &str, settings: &TransportSettings) -> Option<Workers> {
        let (rest, count) = own.rsplit_once(':')?;
        let (directory, number) = rest.rsplit_once(':')?;
        let (number, count) = (number.parse().ok()?, count.parse().ok()?);
        let joined = Processes::join(Path::new(directory), number, count, settings);
        joined.ok().map(Workers::from_transport)
    }

    impl From<TransportError> for Failure {
        fn from(error: TransportError) -> Failure {
            Failure::new(error.to_string()).code(ErrorKind::Worker)
        }
    }
}
/// Returns an error, as this system does not support worker processes.
#[cfg(not(unix))]
fn join_processes(_count: usize, _settings: &TransportSettings) -> Result<Workers, Failure> {
    let message = "devices cannot be processes on this system";
    Err(Failure::new(message).help("remove --processes: each device is then a thread"))
}

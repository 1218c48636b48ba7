//! The processes that run the devices of a model together: started here, or those of an MPI job.

use std::ffi::OsString;
use std::sync::Arc;

use sardonyx::Model;
use sardonyx::device::{Transport, TransportSettings};

use super::DeviceArgs;
use crate::failure::Failure;
#[cfg(unix)]
use unix::{Started, processes};

/// The processes of a run.
#[derive(Default)]
pub(crate) struct Workers {
    transport: Option<Arc<dyn Transport>>,
    /// Dropped after the transport, which tells the other processes that this one ends.
    #[cfg(unix)]
    started: Option<Started>,
}

#[cfg(unix)]
impl Drop for Workers {
    fn drop(&mut self) {
        let has_failed = |transport: &Arc<dyn Transport>| transport.endpoint().has_failed();
        if let Some(started) = &mut self.started
            && self.transport.as_ref().is_some_and(has_failed)
        {
            started.hurry();
        }
    }
}

impl Workers {
    fn connected(transport: impl Transport + 'static) -> Workers {
        let mut workers = Workers::default();
        workers.transport = Some(Arc::new(transport));
        workers
    }

    /// What connects this process with the others; `None` if it is alone.
    pub(super) fn transport(&self) -> Option<&Arc<dyn Transport>> {
        self.transport.as_ref()
    }
}

impl DeviceArgs {
    /// The processes that run the devices of a model: starts them, or finds the place of this one
    /// among them.
    pub(super) fn workers(
        &self,
        (model, is_stdin): (&Model, bool),
        settings: &TransportSettings,
    ) -> Result<Workers, Failure> {
        if let Some(library) = &self.mpi {
            return self.mpi_workers(library.clone(), settings);
        }
        let Some(count) = self.processes else { return Ok(Workers::default()) };
        if is_stdin {
            let message = "other processes cannot read the model from standard input";
            return Err(Failure::new(message).help("save it to a file first"));
        }
        let (_, devices) = model.devices_of(self.configuration.as_deref())?;
        let count = count.and_then(|count| usize::try_from(count).ok()).unwrap_or(devices);
        processes(count, settings)
    }

    /// The processes that each run a model of their own.
    pub(super) fn rank_workers(&self, settings: &TransportSettings) -> Result<Workers, Failure> {
        match (&self.mpi, self.processes) {
            (Some(library), _) => self.mpi_workers(library.clone(), settings),
            (None, Some(Some(count))) => {
                processes(usize::try_from(count).unwrap_or(usize::MAX), settings)
            }
            (None, _) => Err(Failure::new("the number of processes is missing").help(
                "give --processes N for N models of their own, or add --devices for the devices of \
                 one model",
            )),
        }
    }

    #[cfg(all(unix, feature = "mpi", not(target_feature = "crt-static")))]
    fn mpi_workers(
        &self,
        library: Option<OsString>,
        settings: &TransportSettings,
    ) -> Result<Workers, Failure> {
        use sardonyx::device::{Mpi, MpiSettings};
        let settings =
            MpiSettings { settings: settings.clone(), reproducible: self.reproducible, library };
        let mpi = Mpi::start(&settings)?;
        Ok(Workers::connected(mpi))
    }

    #[cfg(not(all(unix, feature = "mpi", not(target_feature = "crt-static"))))]
    fn mpi_workers(&self, _: Option<OsString>, _: &TransportSettings) -> Result<Workers, Failure> {
        Err(Failure::new("this build of sardonyx has no MPI").help(
            "a static program cannot open the MPI library of the system: build another one with \
             `cargo install --path crates/cli`",
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

    /// Says to a process that was started for this which worker it is: the directory where the
    /// workers find each other, its number, and how many there are.
    const WORKER: &str = "SARDONYX_WORKER";

    /// Processes that were started here. They have ended when this has been dropped.
    pub(super) struct Started {
        children: Vec<Child>,
        /// Where they find each other.
        rendezvous: Rendezvous,
        /// The time that they have to end once worker 0 has.
        farewell: Duration,
    }

    /// The time that processes have to end after work that was done.
    const FAREWELL: Duration = Duration::from_secs(5);
    /// The time that they have to end after a failure: one that did not answer will not end by
    /// itself, and what the others do is in vain.
    const SHORT_FAREWELL: Duration = Duration::from_millis(250);

    impl Started {
        /// Lets the processes end soon, as the work has failed.
        pub(super) fn hurry(&mut self) {
            self.farewell = SHORT_FAREWELL;
        }
    }

    impl Drop for Started {
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

    /// Starts all but the first of so many processes, or joins them as one of these.
    pub(super) fn processes(
        count: usize,
        settings: &TransportSettings,
    ) -> Result<Workers, Failure> {
        if let Ok(own) = std::env::var(WORKER) {
            // Worker 0 says that one is missing.
            return joined(&own, settings).ok_or_else(Failure::told_elsewhere);
        }
        let rendezvous = Rendezvous::new()?;
        let mut started = Started { children: Vec::new(), rendezvous, farewell: FAREWELL };
        let program = std::env::current_exe()?;
        for number in 1..count {
            // The same command, so that all have the same model and options.
            let place = format!("{}:{number}:{count}", started.rendezvous.path().display());
            let child = Command::new(&program)
                .args(std::env::args_os().skip(1))
                .env(WORKER, place)
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                // Ctrl-C is for worker 0 alone, which tells the others.
                .process_group(0)
                .spawn();
            let refused = |error| Failure::new(format!("worker {number} cannot start: {error}"));
            started.children.push(child.map_err(refused)?);
        }
        let own = Processes::join(started.rendezvous.path(), 0, count, settings);
        let own = own.inspect_err(|_| started.hurry())?;
        Ok(Workers { transport: Some(Arc::new(own)), started: Some(started) })
    }

    fn joined(own: &str, settings: &TransportSettings) -> Option<Workers> {
        let (rest, count) = own.rsplit_once(':')?;
        let (directory, number) = rest.rsplit_once(':')?;
        let (number, count) = (number.parse().ok()?, count.parse().ok()?);
        let joined = Processes::join(Path::new(directory), number, count, settings);
        joined.ok().map(Workers::connected)
    }

    impl From<TransportError> for Failure {
        fn from(error: TransportError) -> Failure {
            Failure::new(error.to_string()).code(ErrorKind::Worker)
        }
    }
}
#[cfg(not(unix))]
fn processes(_count: usize, _settings: &TransportSettings) -> Result<Workers, Failure> {
    let message = "devices cannot be processes on this system";
    Err(Failure::new(message).help("remove --processes: each device is then a thread"))
}

//! The devices of this process, and their links to the devices of other processes.

use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use sardonyx_devices::{Hosted, RunNumber, Threads, Traffic, Transport};
use sardonyx_shard::Device;

use super::exchange::{Link, run_ended};
use super::options::{DeviceOptions, Results};
use super::plans::SizedPlan;
use super::seat::{FinishedJob, Job, RunInputs, Seat, Sends, Terms};
use super::team::Team;
use crate::error::{Error, ErrorKind};

/// Device threads of one process, which all sessions of a trainer share.
#[derive(Clone)]
pub(super) struct Crew {
    pub(super) options: DeviceOptions,
    pub(super) seats: Arc<Vec<Seat>>,
    /// Lock held by the call whose runs occupy the devices; it serializes concurrent calls.
    turn: Arc<Mutex<()>>,
    /// Connection with the other processes; `None` if all devices are threads of this process.
    pub(super) team: Option<Team>,
    /// Total number of devices in all processes.
    pub(super) devices: usize,
}

impl Crew {
    /// Starts the device threads of this process, one for each of `links`, which wait for jobs.
    pub(super) fn start(
        links: Vec<(Device, Link)>,
        options: DeviceOptions,
        team: Option<Team>,
        devices: usize,
    ) -> Crew {
        let seats = links.into_iter().map(|(device, link)| Seat::new(device, link));
        Crew { options, seats: Arc::new(seats.collect()), turn: Arc::default(), team, devices }
    }

    /// Returns the rank of this process among the worker processes; 0 without other processes.
    pub(super) fn worker(&self) -> usize {
        self.team.as_ref().map_or(0, Team::number)
    }

    /// Whether each device keeps its shards of the outputs ([`Results::Split`]).
    pub(super) fn splits_outputs(&self) -> bool {
        self.options.results == Results::Split
    }

    /// Locks the devices for the runs of one call. Blocks until the runs of other calls are over.
    pub(super) fn take_turn(&self) -> MutexGuard<'_, ()> {
        self.turn.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes the error of a call that passes inputs in a worker process other than worker 0.
    #[cold]
    pub(super) fn make_worker_error(&self) -> Error {
        let message =
            format!("worker {} cannot start a run: only worker 0 takes inputs", self.worker());
        Error::new(ErrorKind::Input, message)
            .with_help("call 'serve' on every worker other than worker 0")
    }

    /// Returns the transport link of device 0; `None` if device 0 is in another process.
    pub(super) fn find_first_link(&self) -> Option<&Link> {
        self.seats.iter().find(|seat| seat.device == 0).map(|seat| &seat.link)
    }

    /// Returns the transport between the worker processes; in a single process, the transport of
    /// device 0.
    pub(super) fn transport(&self) -> Option<&dyn Transport> {
        let team = self.team.as_ref().map(Team::transport);
        team.or_else(|| self.find_first_link().map(Link::transport))
    }

    /// Returns the messages and bytes that each device of this process has sent so far.
    pub(super) fn traffic(&self) -> Vec<Traffic> {
        self.seats.iter().map(|seat| seat.link.transport().traffic()).collect()
    }

    /// Queues a run of the plan `fitted` with the inputs `taken` on each device of this process.
    /// Each device sends its result to `done`.
    pub(super) fn queue_run(
        &self,
        fitted: &SizedPlan,
        taken: &Arc<RunInputs>,
        terms: &Terms,
        done: &Sender<FinishedJob>,
    ) {
        let sends = match (self.worker(), self.splits_outputs()) {
            (0, _) => Sends::Nothing,
            (_, false) => Sends::Outputs,
            (_, true) => Sends::Done,
        };
        for (part, seat) in self.seats.iter().enumerate() {
            seat.queue_job(Job {
                fitted: fitted.clone(),
                part,
                taken: Arc::clone(taken),
                terms: terms.clone(),
                sends,
                done: done.clone(),
            });
        }
    }

    /// Cancels a run on the devices of all worker processes, for the reason `why`. Does nothing if
    /// the run is over.
    pub(super) fn end_run(&self, terms: &Terms, why: &str) {
        terms.ended.stop();
        // Each device of a worker blocks on its own transport, so all of these must be notified.
        let links = self.seats.iter().map(|seat| seat.link.transport());
        for transport in links.chain(self.transport()) {
            transport.end_run(terms.run, &run_ended(transport, why));
        }
        if let Some(team) = self.team.as_ref().filter(|team| team.number() == 0) {
            team.send_cancellation(terms.run, self.devices);
        }
    }

    /// Drops buffered messages of `run`, which is over in this process, and of earlier runs.
    pub(super) fn drop_messages(&self, run: RunNumber) {
        let links = self.seats.iter().map(|seat| seat.link.transport());
        for transport in links.chain(self.transport()) {
            transport.endpoint().forget_runs_before(run.checked_add(1).unwrap_or(1));
        }
    }
}

/// Makes the transport links of the devices of this process: between threads, or over the transport
/// that `options` sets.
pub(super) fn connect(devices: usize, options: &DeviceOptions) -> Vec<(Device, Link)> {
    match &options.transport {
        None => {
            let all = Threads::new(devices, &options.settings).into_iter();
            (0..).zip(all.map(|one| Link::new(Arc::new(one)))).collect()
        }
        // Workers have at most one device each, which uses the transport directly.
        Some(transport) if transport.workers() >= devices => {
            let own = transport.number();
            let has_one = (own < devices).then(|| (own as Device, Link::new(transport.clone())));
            has_one.into_iter().collect()
        }
        Some(transport) => {
            let hosted = Hosted::new(transport, devices, &options.settings).into_iter();
            hosted.map(|one| (one.number() as Device, Link::new(Arc::new(one)))).collect()
        }
    }
}

//! The devices of this process and what connects them with the others.

use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use sardonyx_devices::{Hosted, RunNumber, Threads, Traffic, Transport};
use sardonyx_passes::Device;

use super::exchange::{Link, run_ended};
use super::options::{DeviceOptions, Results};
use super::plans::Fitted;
use super::seat::{Finished, Job, Seat, Sends, Taken, Terms};
use super::team::Team;
use crate::error::{Error, ErrorKind};

/// Devices of one process. Sessions of a trainer share them.
#[derive(Clone)]
pub(super) struct Crew {
    pub(super) options: DeviceOptions,
    pub(super) seats: Arc<Vec<Seat>>,
    /// Held by the call whose runs the devices do.
    turn: Arc<Mutex<()>>,
    /// The other processes, if there are any.
    pub(super) team: Option<Team>,
    /// Number of devices of all processes.
    pub(super) devices: usize,
}

impl Crew {
    /// Starts the devices of this process, each a thread that waits for jobs.
    pub(super) fn start(
        links: Vec<(Device, Link)>,
        options: DeviceOptions,
        team: Option<Team>,
        devices: usize,
    ) -> Crew {
        let seats = links.into_iter().map(|(device, link)| Seat::new(device, link));
        Crew { options, seats: Arc::new(seats.collect()), turn: Arc::default(), team, devices }
    }

    /// Number of this process among the workers.
    pub(super) fn worker(&self) -> usize {
        self.team.as_ref().map_or(0, Team::number)
    }

    /// Whether outputs stay on the devices.
    pub(super) fn splits_outputs(&self) -> bool {
        self.options.results == Results::Split
    }

    /// Waits until the runs of other calls are over.
    pub(super) fn take_turn(&self) -> MutexGuard<'_, ()> {
        self.turn.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes the error for a call that only worker 0 can do.
    #[cold]
    pub(super) fn only_first(&self) -> Error {
        let message = format!("this is worker {}: only worker 0 takes inputs", self.worker());
        Error::new(ErrorKind::Input, message).with_help("call 'serve' here")
    }

    /// Returns the link of the first device, if it belongs to this process.
    pub(super) fn first(&self) -> Option<&Link> {
        self.seats.iter().find(|seat| seat.device == 0).map(|seat| &seat.link)
    }

    /// Returns the transport between the workers; without others, between the devices.
    pub(super) fn transport(&self) -> Option<&dyn Transport> {
        let team = self.team.as_ref().map(Team::transport);
        team.or_else(|| self.first().map(Link::transport))
    }

    /// Returns the traffic that each device of this process has sent so far.
    pub(super) fn traffic(&self) -> Vec<Traffic> {
        self.seats.iter().map(|seat| seat.link.transport().traffic()).collect()
    }

    /// Gives each device of this process its part of a run.
    pub(super) fn hand_out(
        &self,
        fitted: &Fitted,
        taken: &Arc<Taken>,
        terms: &Terms,
        done: &Sender<Finished>,
    ) {
        let sends = match (self.worker(), self.splits_outputs()) {
            (0, _) => Sends::Nothing,
            (_, false) => Sends::Outputs,
            (_, true) => Sends::Done,
        };
        for (part, seat) in self.seats.iter().enumerate() {
            seat.give(Job {
                fitted: fitted.clone(),
                part,
                taken: Arc::clone(taken),
                terms: terms.clone(),
                sends,
                done: done.clone(),
            });
        }
    }

    /// Ends a run early on all devices, unless it has ended already.
    pub(super) fn end_run(&self, terms: &Terms, why: &str) {
        terms.ended.stop();
        // Devices of one worker know of each other only by their own transports.
        let links = self.seats.iter().map(|seat| seat.link.transport());
        for transport in links.chain(self.transport()) {
            transport.end_run(terms.run, &run_ended(transport, why));
        }
        if let Some(team) = self.team.as_ref().filter(|team| team.number() == 0) {
            team.call_off(terms.run, self.devices);
        }
    }

    /// Forgets the messages of a run that is over in this process, and of all before it.
    pub(super) fn forget(&self, run: RunNumber) {
        let links = self.seats.iter().map(|seat| seat.link.transport());
        for transport in links.chain(self.transport()) {
            transport.endpoint().forget_runs_before(run.checked_add(1).unwrap_or(1));
        }
    }
}

/// Connects the devices of this process with the others.
pub(super) fn connect(devices: usize, options: &DeviceOptions) -> Vec<(Device, Link)> {
    match &options.transport {
        None => {
            let all = Threads::new(devices, &options.settings).into_iter();
            (0..).zip(all.map(|one| Link::new(Arc::new(one)))).collect()
        }
        // Each worker has one device at most.
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

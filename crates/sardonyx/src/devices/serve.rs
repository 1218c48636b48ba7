//! Runs on the devices of a worker that another process leads.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};

use sardonyx_devices::RunNumber;
use sardonyx_passes::Device;
use sardonyx_runtime::StopFlag;

#[cfg(doc)]
use super::Results;
use super::plans::Fitted;
use super::seat::{Done, Finished, Limits, Taken, Terms};
use super::team::Said;
use super::{DeviceSession, OutputPart};
use crate::error::{Error, ErrorKind, catch_panic};
use crate::outputs::Outputs;
#[cfg(doc)]
use sardonyx_devices::Transport;

impl DeviceSession {
    /// Runs the devices of this process whenever worker 0 runs the model, until its session is
    /// dropped. Runs also end while the flag is up, with an error that the others are told. The
    /// flag does not end the wait for the next run; [`Transport::fail`] does.
    ///
    /// If outputs are for all workers ([`Results::All`]), `take` is called with the outputs of each
    /// run that does not end early, in the order of runs. Later runs wait until it returns.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Input`] for worker 0; [`ErrorKind::Worker`] if another worker is lost. The
    /// reason why a run ends early is an error of worker 0.
    pub fn serve(&self, stop: &StopFlag, mut take: impl FnMut(Outputs)) -> Result<(), Error> {
        self.serve_all(stop, &mut |served| {
            if let Served::Outputs(outputs) = served {
                take(outputs);
            }
        })
    }

    /// Serves runs until the session of worker 0 is dropped, and passes on what it says of their
    /// ends.
    pub(super) fn serve_all(
        &self,
        stop: &StopFlag,
        take: &mut dyn FnMut(Served),
    ) -> Result<(), Error> {
        let team = self.crew.team.as_ref().filter(|team| team.number() > 0);
        let Some(team) = team else {
            return Err(Error::new(ErrorKind::Input, "worker 0 does not serve")
                .with_help("call 'run' here, and 'serve' on all other workers"));
        };
        let (done, finished) = channel();
        let mut serving = Serving::new(self, finished);
        let ended = loop {
            let order = match team.next(&self.source.names, self.inputs(), self.outputs()) {
                Ok(Some(Said::Run(order))) => order,
                Ok(Some(Said::Results(outputs))) => {
                    take(Served::Outputs(outputs));
                    continue;
                }
                Ok(Some(Said::Kept(run))) => {
                    take(Served::Parts(serving.keep(run)));
                    continue;
                }
                Ok(Some(Said::CalledOff(run))) => {
                    serving.call_off(|terms| terms.run == run);
                    continue;
                }
                Ok(None) => break Ok(()),
                Err(error) => break Err(error),
            };
            serving.note_finished();
            let limits = Limits { stop: Some(stop.clone()), ..order.limits };
            let terms = Terms::new(order.run, &limits, order.watched);
            match catch_panic(|| self.fit_plan(&order.types)) {
                Ok(fitted) => {
                    let taken = Arc::new(Taken { inputs: order.inputs, residents: Vec::new() });
                    self.crew.hand_out(&fitted, &taken, &terms, &done);
                    serving.begin(fitted, terms);
                }
                Err(error) => self.crew.end_run(&terms, &error.to_string()),
            }
        };
        drop(done);
        serving.end();
        ended
    }
}

/// Result of a run that a worker is handed while it serves.
pub(super) enum Served {
    /// All outputs.
    Outputs(Outputs),
    /// Parts that devices of this process have of them.
    Parts(Vec<OutputPart>),
}

/// Runs that this process serves.
pub(super) struct Serving<'s> {
    session: &'s DeviceSession,
    finished: Receiver<Finished>,
    /// The oldest first.
    active: VecDeque<ServedRun>,
}

/// Run that is not over.
struct ServedRun {
    fitted: Fitted,
    terms: Terms,
    /// Number of devices of this process that are not done.
    left: usize,
    /// Results of those that are done.
    done: Vec<(Device, Done)>,
}

impl<'s> Serving<'s> {
    pub(super) fn new(session: &'s DeviceSession, finished: Receiver<Finished>) -> Self {
        Serving { session, finished, active: VecDeque::new() }
    }

    /// Notes that devices of this process are given a run.
    pub(super) fn begin(&mut self, fitted: Fitted, terms: Terms) {
        let left = self.session.crew.seats.len();
        self.active.push_back(ServedRun { fitted, terms, left, done: Vec::new() });
    }

    /// Notes what devices have done by now.
    pub(super) fn note_finished(&mut self) {
        while let Ok(finished) = self.finished.try_recv() {
            self.note(finished);
        }
    }

    /// Notes that a device is done with a run. Why it failed, worker 0 knows.
    fn note(&mut self, Finished { run, device, result }: Finished) {
        if let Some(active) = self.active.iter_mut().find(|active| active.terms.run == run) {
            active.left -= 1;
            active.done.extend(result.ok().map(|done| (device, done)));
        }
        // Parts are kept until worker 0 says whether the run is over or called off.
        let waits = self.session.crew.splits_outputs();
        let is_over =
            |run: &mut ServedRun| run.left == 0 && (!waits || run.terms.ended.is_raised());
        while let Some(over) = self.active.pop_front_if(is_over) {
            self.session.crew.forget(over.terms.run);
        }
    }

    /// Takes the parts of outputs that devices of this process have, of a run that all have
    /// finished.
    pub(super) fn keep(&mut self, run: RunNumber) -> Vec<OutputPart> {
        let position =
            |active: &VecDeque<ServedRun>| active.iter().position(|active| active.terms.run == run);
        while position(&self.active).is_some_and(|at| self.active[at].left > 0)
            && let Ok(finished) = self.finished.recv()
        {
            self.note(finished);
        }
        let over = position(&self.active).and_then(|at| self.active.remove(at));
        let Some(ServedRun { fitted, mut done, .. }) = over else { return Vec::new() };
        self.session.crew.forget(run);
        done.sort_by_key(|(device, _)| *device);
        self.session.output_parts(&fitted, &mut done)
    }

    /// Stops what devices of this process do for runs that have ended early.
    pub(super) fn call_off(&mut self, has_ended: impl Fn(&Terms) -> bool) {
        let called_off = self.active.iter().filter(|active| has_ended(&active.terms));
        called_off.for_each(|active| active.terms.ended.stop());
        let is_over = |run: &mut ServedRun| run.left == 0 && run.terms.ended.is_raised();
        while let Some(over) = self.active.pop_front_if(is_over) {
            self.session.crew.forget(over.terms.run);
        }
    }

    /// Ends everything: nobody wants what is still computed.
    pub(super) fn end(&mut self) {
        self.call_off(|_| true);
        while let Ok(finished) = self.finished.recv() {
            self.note(finished);
        }
    }
}

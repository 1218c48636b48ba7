//! Serving in worker processes other than worker 0, whose devices take part in worker 0's runs.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};

use sardonyx_devices::RunNumber;
use sardonyx_runtime::StopFlag;
use sardonyx_shard::Device;

#[cfg(doc)]
use super::Results;
use super::plans::SizedPlan;
use super::seat::{DeviceResult, FinishedJob, Limits, RunInputs, Terms};
use super::team::LeaderMessage;
use super::{DeviceSession, OutputPart};
use crate::error::{Error, ErrorKind, catch_panic};
use crate::outputs::Outputs;
#[cfg(doc)]
use sardonyx_devices::Transport;

impl DeviceSession {
    /// Runs the devices of this worker process whenever worker 0 runs the model. Returns when
    /// worker 0 drops its session. Raising `stop` fails the current run, on all workers, but does
    /// not end the wait for the next run; [`Transport::fail`] ends the wait.
    ///
    /// With [`Results::All`], calls `take` with the outputs of each successful run, in the order of
    /// the runs. Later runs wait until it returns.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Input`] if this is worker 0; [`ErrorKind::Worker`] if another worker is lost. A
    /// failed run is not an error here: worker 0 returns it.
    pub fn serve(&self, stop: &StopFlag, mut take: impl FnMut(Outputs)) -> Result<(), Error> {
        self.serve_all(stop, &mut |served| {
            if let ServedResult::Outputs(outputs) = served {
                take(outputs);
            }
        })
    }

    /// Serves runs of worker 0 until it drops its session. Calls `take` with the outputs or output
    /// shards of each successful run.
    pub(super) fn serve_all(
        &self,
        stop: &StopFlag,
        take: &mut dyn FnMut(ServedResult),
    ) -> Result<(), Error> {
        let team = self.crew.team.as_ref().filter(|team| team.number() > 0);
        let Some(team) = team else {
            return Err(Error::new(
                ErrorKind::Input,
                "worker 0 does not serve runs: it starts them",
            )
            .with_help("call 'run' on worker 0, and 'serve' on all other workers"));
        };
        let (done, finished) = channel();
        let mut serving = ServedRuns::new(self, finished);
        let ended = loop {
            let order = match team.receive(&self.source.names, self.inputs(), self.outputs()) {
                Ok(Some(LeaderMessage::Run(order))) => order,
                Ok(Some(LeaderMessage::Results(outputs))) => {
                    take(ServedResult::Outputs(outputs));
                    continue;
                }
                Ok(Some(LeaderMessage::Kept(run))) => {
                    take(ServedResult::Parts(serving.take_parts(run)));
                    continue;
                }
                Ok(Some(LeaderMessage::Cancelled(run))) => {
                    serving.cancel(|terms| terms.run == run);
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
                    let taken = Arc::new(RunInputs { inputs: order.inputs, residents: Vec::new() });
                    self.crew.queue_run(&fitted, &taken, &terms, &done);
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

/// Result of a run in a worker process other than worker 0.
pub(super) enum ServedResult {
    /// All outputs of the model, gathered by worker 0.
    Outputs(Outputs),
    /// Output shards on the devices of this process.
    Parts(Vec<OutputPart>),
}

/// Queue of the unfinished runs that worker 0 has ordered.
pub(super) struct ServedRuns<'s> {
    session: &'s DeviceSession,
    finished: Receiver<FinishedJob>,
    /// Unfinished runs, the oldest first.
    active: VecDeque<ServedRun>,
}

/// An unfinished run that worker 0 has ordered.
struct ServedRun {
    fitted: SizedPlan,
    terms: Terms,
    /// Number of devices of this process that have not finished the run.
    left: usize,
    /// Results of the devices of this process that have finished successfully.
    done: Vec<(Device, DeviceResult)>,
}

impl<'s> ServedRuns<'s> {
    /// Makes an empty queue. `finished` receives the results of this process's devices.
    pub(super) fn new(session: &'s DeviceSession, finished: Receiver<FinishedJob>) -> Self {
        ServedRuns { session, finished, active: VecDeque::new() }
    }

    /// Adds a run that has been queued on the devices of this process.
    pub(super) fn begin(&mut self, fitted: SizedPlan, terms: Terms) {
        let left = self.session.crew.seats.len();
        self.active.push_back(ServedRun { fitted, terms, left, done: Vec::new() });
    }

    /// Records the results of devices that have finished a run so far, without blocking.
    pub(super) fn note_finished(&mut self) {
        while let Ok(finished) = self.finished.try_recv() {
            self.record_result(finished);
        }
    }

    /// Records the result of one device in a run. Drops an error, as worker 0 returns it.
    fn record_result(&mut self, FinishedJob { run, device, result }: FinishedJob) {
        if let Some(active) = self.active.iter_mut().find(|active| active.terms.run == run) {
            active.left -= 1;
            active.done.extend(result.ok().map(|done| (device, done)));
        }
        // Shards are kept until worker 0 reports whether the run succeeded on all devices.
        let waits = self.session.crew.splits_outputs();
        self.forget_finished(|run| run.left == 0 && (!waits || run.terms.ended.is_raised()));
    }

    /// Removes the oldest runs, as long as `is_over` selects them, and drops their buffered
    /// messages.
    fn forget_finished(&mut self, is_over: impl Fn(&ServedRun) -> bool) {
        while let Some(over) = self.active.pop_front_if(|run| is_over(run)) {
            self.session.crew.drop_messages(over.terms.run);
        }
    }

    /// Returns the index of a run in the queue; `None` if it is not there.
    fn find_run(&self, run: RunNumber) -> Option<usize> {
        self.active.iter().position(|active| active.terms.run == run)
    }

    /// Waits until the devices of this process have finished a successful run, and takes their
    /// output shards; empty if the run is not in the queue.
    pub(super) fn take_parts(&mut self, run: RunNumber) -> Vec<OutputPart> {
        while self.find_run(run).is_some_and(|at| self.active[at].left > 0)
            && let Ok(finished) = self.finished.recv()
        {
            self.record_result(finished);
        }
        let over = self.find_run(run).and_then(|at| self.active.remove(at));
        let Some(ServedRun { fitted, mut done, .. }) = over else { return Vec::new() };
        self.session.crew.drop_messages(run);
        done.sort_by_key(|(device, _)| *device);
        self.session.take_output_parts(&fitted, &mut done)
    }

    /// Cancels the runs that `has_ended` selects, on the devices of this process.
    pub(super) fn cancel(&mut self, has_ended: impl Fn(&Terms) -> bool) {
        let cancelled = self.active.iter().filter(|active| has_ended(&active.terms));
        cancelled.for_each(|active| active.terms.ended.stop());
        self.forget_finished(|run| run.left == 0 && run.terms.ended.is_raised());
    }

    /// Cancels all runs in the queue, and blocks until the devices of this process have stopped.
    pub(super) fn end(&mut self) {
        self.cancel(|_| true);
        while let Ok(finished) = self.finished.recv() {
            self.record_result(finished);
        }
    }
}

//! Runs on devices: those of the process that is given inputs, and those that others serve.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::SystemTime;

use sardonyx_devices::RunNumber;
use sardonyx_passes::Device;
use sardonyx_tensor::Value;

use super::profile::DeviceRun;
use super::seat::{Done, Failed, Finished, Given, Limits, Taken, Terms};
use super::team::{self, Order};
use super::{DeviceSession, Fitted, OutputPart, Results};
use crate::error::{Error, guarded};
use crate::outputs::Outputs;

/// What a run gives.
#[derive(Default)]
pub(super) struct Found {
    pub(super) outputs: Outputs,
    /// What devices did in it, if they were watched.
    pub(super) watched: Vec<DeviceRun>,
    /// What devices of this process have of outputs that nobody gathers.
    pub(super) parts: Vec<OutputPart>,
    /// What devices of this process have of the new values of residents.
    pub(super) kept: Vec<(Device, Given)>,
}

impl DeviceSession {
    /// Runs the model on each of several sets of inputs; with outputs comes what devices did, if
    /// they are `watched`.
    pub(super) fn run_all<I, N, V>(
        &self,
        runs: impl IntoIterator<Item = I>,
        limits: &Limits,
        watched: bool,
    ) -> Result<Vec<Found>, Error>
    where
        I: IntoIterator<Item = (N, V)>,
        N: Into<String>,
        V: Into<Value>,
    {
        guarded(|| self.run_each(runs, limits, watched))
    }

    fn run_each<I, N, V>(
        &self,
        runs: impl IntoIterator<Item = I>,
        limits: &Limits,
        watched: bool,
    ) -> Result<Vec<Found>, Error>
    where
        I: IntoIterator<Item = (N, V)>,
        N: Into<String>,
        V: Into<Value>,
    {
        if self.worker() > 0 {
            return Err(self.only_first());
        }
        let watched = watched.then(SystemTime::now);
        let transport = self.transport().ok_or_else(|| self.only_first())?;
        let _turn = self.turn();
        let mut running = Running::new(self);
        let mut outputs = Vec::new();
        for inputs in runs {
            let inputs: Vec<(String, Value)> =
                inputs.into_iter().map(|(name, value)| (name.into(), value.into())).collect();
            let started = self.check(&inputs).and_then(|()| {
                let types = self.types_of(&inputs);
                let fitted = self.fitted(&types)?;
                let run = transport.endpoint().next_run();
                if let Some(team) = &self.team {
                    let (inputs, limits) = (inputs.clone(), limits.clone());
                    let order = Order { run, types, inputs, limits, watched };
                    team.order(&fitted.prepared.plan, &self.names, &order)?;
                }
                Ok((fitted, Terms::new(run, limits, watched)))
            });
            match started {
                Ok((fitted, terms)) => {
                    running.start(fitted, Taken { inputs, ..Taken::default() }, terms);
                }
                Err(error) => {
                    // Nobody but this call takes the outputs of runs that have begun.
                    running.finish_all()?;
                    return Err(error);
                }
            }
            // Each device has something to do, and nobody gets far ahead.
            if running.open.len() > self.devices {
                outputs.push(running.finish_next()?);
            }
        }
        outputs.extend(running.finish_all()?);
        Ok(outputs)
    }
}

/// Runs of a call of [`DeviceSession::run_many`] that have begun. Those that have not been finished
/// when it is dropped, because of a failure or a panic, are ended.
pub(super) struct Running<'s> {
    session: &'s DeviceSession,
    done: Sender<Finished>,
    finished: Receiver<Finished>,
    /// The oldest first.
    open: VecDeque<OpenRun>,
}

/// A run whose outputs are not there yet.
struct OpenRun {
    terms: Terms,
    fitted: Fitted,
    /// What devices of this process are done with.
    done: Vec<(Device, Done)>,
    failed: Vec<Failed>,
}

impl<'s> Running<'s> {
    pub(super) fn new(session: &'s DeviceSession) -> Self {
        let (done, finished) = channel();
        Running { session, done, finished, open: VecDeque::new() }
    }

    pub(super) fn start(&mut self, fitted: Fitted, taken: Taken, terms: Terms) {
        self.session.hand_out(&fitted, &Arc::new(taken), &terms, &self.done);
        self.open.push_back(OpenRun { terms, fitted, done: Vec::new(), failed: Vec::new() });
    }

    /// Waits until all devices of this process are done with the oldest run.
    fn wait(&mut self) -> Option<OpenRun> {
        let devices = self.session.seats.len();
        while self.open.front().is_some_and(|run| run.done.len() + run.failed.len() < devices) {
            let Finished { run, device, result } =
                self.finished.recv().expect("a seat answers each job, and this holds a sender");
            if let Some(open) = self.open.iter_mut().find(|open| open.terms.run == run) {
                match result {
                    Ok(done) => open.done.push((device, done)),
                    Err(failed) => open.failed.push(failed),
                }
            }
        }
        self.open.pop_front()
    }

    /// What the oldest run gives. If it ends early, so do all others that have begun.
    pub(super) fn finish_next(&mut self) -> Result<Found, Error> {
        let Some(run) = self.wait() else {
            return Ok(Found::default());
        };
        let failed = run.failed.into_iter().min_by_key(Failed::rank);
        let found = match failed {
            Some(failed) => Err(failed.into_error()),
            None => self.gathered(&run.fitted, run.done, &run.terms),
        };
        if let Err(error) = &found {
            self.session.end_run(&run.terms, &error.to_string());
            self.end_all();
        }
        self.session.forget(run.terms.run);
        let found = found?;
        if let Some(team) = &self.session.team {
            match self.session.device_options.results {
                Results::First => {}
                Results::All => team.give_results(&found.outputs, self.session.devices)?,
                Results::Split => team.keep(run.terms.run, self.session.devices)?,
            }
        }
        Ok(found)
    }

    /// Ends all runs that have begun, and waits until devices of this process are done with them.
    fn end_all(&mut self) {
        self.call_off();
        while let Some(run) = self.wait() {
            self.session.forget(run.terms.run);
        }
    }

    fn call_off(&self) {
        for run in &self.open {
            self.session.end_run(&run.terms, "a run that began before this one failed");
        }
    }

    /// What devices of this process have of a run, with what the others send.
    fn gathered(
        &self,
        fitted: &Fitted,
        mut done: Vec<(Device, Done)>,
        terms: &Terms,
    ) -> Result<Found, Error> {
        let run = terms.run;
        let first = self.session.first();
        let plan = &*fitted.prepared.plan;
        done.sort_by_key(|(device, _)| *device);
        let (mut named, mut parts) = (Vec::new(), Vec::new());
        if self.session.splits_outputs() {
            let all = 0..self.session.devices as Device;
            let is_other = |device: &Device| done.iter().all(|(own, _)| own != device);
            for other in all.filter(is_other) {
                team::receive_done(first, run, other, plan)?;
            }
            parts = self.session.output_parts(fitted, &mut done);
        } else {
            let ports = self.session.outputs().iter().zip(plan.givers_of_outputs());
            for (index, (port, by)) in ports.enumerate() {
                let Some(by) = by else { continue };
                let value = match done.iter_mut().find(|(device, _)| *device == by) {
                    Some((_, own)) => own.given[index].take(),
                    None => Some(team::receive(first, run, by, (index, port))?),
                };
                named.extend(value.map(|value| (port.name().to_string(), value)));
            }
        }
        let kept = done.iter_mut().map(|(device, own)| (*device, std::mem::take(&mut own.kept)));
        let kept = kept.collect();
        let mut watched = Vec::new();
        if terms.watched.is_some() {
            let mut own = done.into_iter().peekable();
            for device in 0..self.session.devices as Device {
                match own.next_if(|(own, _)| *own == device) {
                    Some((_, own)) => watched.extend(own.watched),
                    None => watched.push(team::receive_watched(first, run, device, plan)?),
                }
            }
        }
        Ok(Found { outputs: Outputs::new(named), parts, watched, kept })
    }

    /// What all runs give that have begun.
    fn finish_all(&mut self) -> Result<Vec<Found>, Error> {
        (0..self.open.len()).map(|_| self.finish_next()).collect()
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.call_off();
    }
}

/// What a worker that serves is handed of a run.
pub(super) enum Served {
    /// All outputs.
    Outputs(Outputs),
    /// What devices of this process have of them.
    Parts(Vec<OutputPart>),
}

/// Runs that this process serves.
pub(super) struct Serving<'s> {
    session: &'s DeviceSession,
    finished: Receiver<Finished>,
    /// The oldest first.
    active: VecDeque<ServedRun>,
}

/// A run that is not over.
struct ServedRun {
    fitted: Fitted,
    terms: Terms,
    /// How many devices of this process are not done.
    left: usize,
    /// What those have that are.
    done: Vec<(Device, Done)>,
}

impl<'s> Serving<'s> {
    pub(super) fn new(session: &'s DeviceSession, finished: Receiver<Finished>) -> Self {
        Serving { session, finished, active: VecDeque::new() }
    }

    /// Notes that devices of this process are given a run.
    pub(super) fn begin(&mut self, fitted: Fitted, terms: Terms) {
        let left = self.session.seats.len();
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
        let waits = self.session.splits_outputs();
        let is_over =
            |run: &mut ServedRun| run.left == 0 && (!waits || run.terms.ended.is_raised());
        while let Some(over) = self.active.pop_front_if(is_over) {
            self.session.forget(over.terms.run);
        }
    }

    /// What devices of this process have of the outputs of a run with which all are done.
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
        self.session.forget(run);
        done.sort_by_key(|(device, _)| *device);
        self.session.output_parts(&fitted, &mut done)
    }

    /// Stops what devices of this process do for runs that have ended early.
    pub(super) fn call_off(&mut self, has_ended: impl Fn(&Terms) -> bool) {
        let called_off = self.active.iter().filter(|active| has_ended(&active.terms));
        called_off.for_each(|active| active.terms.ended.stop());
        let is_over = |run: &mut ServedRun| run.left == 0 && run.terms.ended.is_raised();
        while let Some(over) = self.active.pop_front_if(is_over) {
            self.session.forget(over.terms.run);
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

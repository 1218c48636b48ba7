//! Runs on devices: those of the process that is given inputs, and those that others serve.

use std::collections::VecDeque;
use std::panic::resume_unwind;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::SystemTime;

use sardonyx_passes::{Device, Plan};
use sardonyx_tensor::Value;

use super::profile::DeviceRun;
use super::seat::{Done, Failed, Finished, Given, Limits, Taken, Terms};
use super::team::{self, Order};
use super::{DeviceSession, Fitted, Prepared, Results};
use crate::error::Error;
use crate::outputs::Outputs;

/// What a run gives.
pub(super) struct Found {
    pub(super) outputs: Outputs,
    /// What devices did in it, if they were watched.
    pub(super) watched: Vec<DeviceRun>,
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
    prepared: Arc<Prepared>,
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
        let prepared = fitted.prepared;
        self.open.push_back(OpenRun { terms, prepared, done: Vec::new(), failed: Vec::new() });
    }

    /// Waits until all devices of this process are done with the oldest run.
    fn wait(&mut self) -> Option<OpenRun> {
        let devices = self.session.seats.len();
        while self.open.front().is_some_and(|run| run.done.len() + run.failed.len() < devices) {
            let Finished { run, device, result } =
                self.finished.recv().expect("a seat answers each job, and this holds a sender");
            let result = result.unwrap_or_else(|panic| resume_unwind(panic));
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
            let outputs = Outputs::new(Vec::new());
            return Ok(Found { outputs, watched: Vec::new(), kept: Vec::new() });
        };
        let failed = run.failed.into_iter().min_by_key(Failed::rank);
        let found = match failed {
            Some(failed) => Err(failed.into_error()),
            None => self.gathered(&run.prepared.plan, run.done, &run.terms),
        };
        if let Err(error) = &found {
            self.session.end_run(&run.terms, &error.to_string());
            self.end_all();
        }
        self.session.forget(run.terms.run);
        let found = found?;
        if let (Some(team), Results::All) =
            (&self.session.team, self.session.device_options.results)
        {
            team.give_results(&found.outputs, self.session.devices)?;
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
        plan: &Plan,
        mut done: Vec<(Device, Done)>,
        terms: &Terms,
    ) -> Result<Found, Error> {
        let run = terms.run;
        let first = self.session.first();
        let mut named = Vec::new();
        let ports = self.session.outputs().iter().zip(plan.givers_of_outputs());
        for (index, (port, by)) in ports.enumerate() {
            let Some(by) = by else { continue };
            let value = match done.iter_mut().find(|(device, _)| *device == by) {
                Some((_, own)) => own.given[index].take(),
                None => Some(team::receive(first, run, by, (index, port))?),
            };
            named.extend(value.map(|value| (port.name().to_string(), value)));
        }
        let kept = done.iter_mut().map(|(device, own)| (*device, std::mem::take(&mut own.kept)));
        let kept = kept.collect();
        let mut watched = Vec::new();
        if terms.watched.is_some() {
            done.sort_by_key(|(device, _)| *device);
            let mut own = done.into_iter().peekable();
            for device in 0..self.session.devices as Device {
                match own.next_if(|(own, _)| *own == device) {
                    Some((_, own)) => watched.extend(own.watched),
                    None => watched.push(team::receive_watched(first, run, device, plan)?),
                }
            }
        }
        Ok(Found { outputs: Outputs::new(named), watched, kept })
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

/// Runs that this process serves.
pub(super) struct Serving<'s> {
    pub(super) session: &'s DeviceSession,
    /// By run, the oldest first: how many devices of this process are not done.
    pub(super) active: VecDeque<(Terms, usize)>,
}

impl Serving<'_> {
    /// Notes that a device is done with a run. Why it failed, worker 0 knows.
    pub(super) fn note(&mut self, Finished { run, result, .. }: Finished) {
        if let Err(panic) = result {
            resume_unwind(panic);
        }
        if let Some((_, left)) = self.active.iter_mut().find(|(terms, _)| terms.run == run) {
            *left -= 1;
        }
        while let Some((over, _)) = self.active.pop_front_if(|(_, left)| *left == 0) {
            self.session.forget(over.run);
        }
    }

    /// Stops what devices of this process do for runs that have ended early.
    pub(super) fn call_off(&self, has_ended: impl Fn(&Terms) -> bool) {
        let called_off = self.active.iter().filter(|(terms, _)| has_ended(terms));
        called_off.for_each(|(terms, _)| terms.ended.stop());
    }
}

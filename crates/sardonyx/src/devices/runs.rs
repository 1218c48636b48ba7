//! Runs on devices, in the process that passes the inputs.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::SystemTime;

use sardonyx_passes::Device;
use sardonyx_runtime::{Port, RunOptions};
use sardonyx_tensor::Value;

use super::plans::Fitted;
use super::profile::DeviceRun;
use super::seat::{Done, Failed, Finished, Given, Inputs, Limits, Taken, Terms};
use super::team::{self, Order};
use super::{DeviceSession, OutputPart, Results};
use crate::error::{Error, ErrorKind, catch_panic};
use crate::outputs::Outputs;

/// Results of a run in this process.
#[derive(Default)]
pub(super) struct Found {
    pub(super) outputs: Outputs,
    /// Steps of the devices, if they were watched.
    pub(super) watched: Vec<DeviceRun>,
    /// Parts that devices of this process have of outputs that stay on them.
    pub(super) parts: Vec<OutputPart>,
    /// Parts that devices of this process have of the new values of residents.
    pub(super) kept: Vec<(Device, Given)>,
}

impl DeviceSession {
    /// Runs the model on inputs, given by name in any order, and returns its outputs. Runs of one
    /// session take turns.
    ///
    /// # Errors
    ///
    /// Those of [`Session::run`](crate::Session::run); [`ErrorKind::Unsupported`] for options that
    /// watch steps: call [`DeviceSession::run_watched`]. If a device fails, the run ends on the
    /// others too, and the error is that of the device that failed first; where that is one of
    /// another process, [`ErrorKind::Worker`]. Other runs go on, unless a worker is lost: then none
    /// of the workers can run anything any more.
    pub fn run<I, N, V>(&self, inputs: I, options: &RunOptions<'_>) -> Result<Outputs, Error>
    where
        I: IntoIterator<Item = (N, V)>,
        N: AsRef<str>,
        V: Into<Value>,
    {
        Ok(self.run_many([inputs], options)?.pop().unwrap_or_default())
    }

    /// Runs the model on each of several sets of inputs, and returns their outputs in the same
    /// order. Devices do not wait for each other between runs: where a model is divided into
    /// stages, each device works on another set.
    ///
    /// ```
    /// use sardonyx::device::{DeviceOptions, Division, ShardOptions};
    /// use sardonyx::{Model, RunOptions, Session, Tensor};
    ///
    /// let text = "<ir_version: 11, opset_import: [\"\": 21]>
    ///     g (float[2] x) => (float[2] y) { a = Exp (x)  y = Neg (a) }";
    /// let two = ShardOptions::new(Division::Pipeline, 2);
    /// let (model, _) = Model::from_text(text)?.shard(&two)?;
    /// let session = Session::builder(&model).devices(DeviceOptions::new())?;
    /// let runs = (0..3).map(|n| [("x", Tensor::from_slice([2], &[0.0, n as f32]).unwrap())]);
    /// let outputs = session.run_many(runs, &RunOptions::default())?;
    /// assert_eq!(outputs[2].tensor("y")?.as_slice::<f32>()?[1], -(2f32.exp()));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Those of [`DeviceSession::run`], for the first set that fails.
    pub fn run_many<I, N, V>(
        &self,
        runs: impl IntoIterator<Item = I>,
        options: &RunOptions<'_>,
    ) -> Result<Vec<Outputs>, Error>
    where
        I: IntoIterator<Item = (N, V)>,
        N: AsRef<str>,
        V: Into<Value>,
    {
        self.check_gathers()?;
        let found = self.run_all(runs, options, false)?;
        Ok(found.into_iter().map(|found| found.outputs).collect())
    }

    /// Runs the model once, and returns with its outputs what each device did, those of other
    /// processes included, in the order of their numbers. What the steps are,
    /// [`DeviceSession::parts`] says.
    ///
    /// ```
    /// use sardonyx::device::{DeviceOptions, Division, ShardOptions};
    /// use sardonyx::{Model, RunOptions, Session, Tensor};
    ///
    /// let text = "<ir_version: 11, opset_import: [\"\": 21]>
    ///     g (float[2] x) => (float[2] y) { a = Exp (x)  y = Neg (a) }";
    /// let two = ShardOptions::new(Division::Pipeline, 2);
    /// let (model, _) = Model::from_text(text)?.shard(&two)?;
    /// let session = Session::builder(&model).devices(DeviceOptions::new())?;
    /// let x = Tensor::from_slice([2], &[0.0f32, 1.0])?;
    /// let (_, devices) = session.run_watched([("x", x)], &RunOptions::default())?;
    /// let sent: u64 = devices[0].events.iter().filter_map(|event| event.exchanged)
    ///     .map(|exchanged| exchanged.sent.bytes).sum();
    /// assert_eq!(sent, 8);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Those of [`DeviceSession::run`].
    #[doc(hidden)]
    pub fn run_watched<I, N, V>(
        &self,
        inputs: I,
        options: &RunOptions<'_>,
    ) -> Result<(Outputs, Vec<DeviceRun>), Error>
    where
        I: IntoIterator<Item = (N, V)>,
        N: AsRef<str>,
        V: Into<Value>,
    {
        self.check_gathers()?;
        let found = self.run_all([inputs], options, true)?.pop().unwrap_or_default();
        Ok((found.outputs, found.watched))
    }

    /// Runs the model on each of several sets of inputs, and notes the steps of the devices if they
    /// are `watched`.
    pub(super) fn run_all<I, N, V>(
        &self,
        runs: impl IntoIterator<Item = I>,
        options: &RunOptions<'_>,
        watched: bool,
    ) -> Result<Vec<Found>, Error>
    where
        I: IntoIterator<Item = (N, V)>,
        N: AsRef<str>,
        V: Into<Value>,
    {
        let limits = Limits::new(options)?;
        let mut runs = runs.into_iter().map(|inputs| self.inputs_of(inputs));
        catch_panic(|| self.run_each(&mut runs, &limits, watched))
    }

    /// Brings inputs into the form in which devices take them.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Input`] for a name that no input has, or that is given twice.
    pub(super) fn inputs_of<I, N, V>(&self, inputs: I) -> Result<Inputs, Error>
    where
        I: IntoIterator<Item = (N, V)>,
        N: AsRef<str>,
        V: Into<Value>,
    {
        let mut named = Inputs::new();
        for (name, value) in inputs {
            let name = self.known_name(name.as_ref())?;
            if named.iter().any(|(given, _)| *given == name) {
                let message = format!("the input '{name}' is given twice");
                return Err(Error::new(ErrorKind::Input, message));
            }
            named.push((name, value.into()));
        }
        Ok(named)
    }

    /// Returns the session's own copy of the name of an input.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Input`] for a name that no input has.
    pub(super) fn known_name(&self, name: &str) -> Result<Arc<str>, Error> {
        let port = self.input(name)?;
        let own = self.source.names.iter().find(|own| ***own == *name);
        Ok(own.map_or_else(|| Arc::from(port.name()), Arc::clone))
    }

    fn run_each(
        &self,
        runs: &mut dyn Iterator<Item = Result<Inputs, Error>>,
        limits: &Limits,
        watched: bool,
    ) -> Result<Vec<Found>, Error> {
        let crew = &self.crew;
        if crew.worker() > 0 {
            return Err(crew.only_first());
        }
        let watched = watched.then(SystemTime::now);
        let transport = crew.transport().ok_or_else(|| crew.only_first())?;
        let _turn = crew.take_turn();
        let mut running = Running::new(self);
        let mut outputs = Vec::new();
        for inputs in runs {
            let started = inputs.and_then(|inputs| {
                self.demand_all(&inputs)?;
                let types = self.types_of(&inputs);
                let fitted = self.fit_plan(&types)?;
                let run = transport.endpoint().next_run();
                if let Some(team) = &crew.team {
                    let (inputs, limits) = (inputs.clone(), limits.clone());
                    let order = Order { run, types, inputs, limits, watched };
                    team.order(&fitted.prepared.plan, &self.source.names, &order)?;
                }
                let taken = Taken { inputs, residents: Vec::new() };
                Ok((fitted, taken, Terms::new(run, limits, watched)))
            });
            match started {
                Ok((fitted, taken, terms)) => running.start(fitted, taken, terms),
                Err(error) => {
                    // No other call takes the outputs of runs that have begun.
                    running.finish_all()?;
                    return Err(error);
                }
            }
            // Each device has work, and no device gets far ahead.
            if running.open.len() > crew.devices {
                outputs.push(running.finish_next()?);
            }
        }
        outputs.extend(running.finish_all()?);
        Ok(outputs)
    }

    /// Refuses a run without inputs that it needs, as a device is given only what it reads.
    pub(super) fn demand_all(&self, inputs: &Inputs) -> Result<(), Error> {
        let is_missing = |port: &&Port| {
            port.is_required()
                && !inputs.iter().any(|(name, _)| **name == *port.name())
                && !self.stays.have(port.name())
        };
        match self.inputs().iter().find(is_missing) {
            Some(port) => {
                Err(Error::new(ErrorKind::Input, format!("the input '{}' is missing", port.name())))
            }
            None => Ok(()),
        }
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
        self.session.crew.hand_out(&fitted, &Arc::new(taken), &terms, &self.done);
        self.open.push_back(OpenRun { terms, fitted, done: Vec::new(), failed: Vec::new() });
    }

    /// Waits until all devices of this process are done with the oldest run.
    fn wait(&mut self) -> Option<OpenRun> {
        let devices = self.session.crew.seats.len();
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
            self.session.crew.end_run(&run.terms, &error.to_string());
            self.end_all();
        }
        self.session.crew.forget(run.terms.run);
        let found = found?;
        if let Some(team) = &self.session.crew.team {
            match self.session.crew.options.results {
                Results::First => {}
                Results::All => team.give_results(&found.outputs, self.session.crew.devices)?,
                Results::Split => team.keep(run.terms.run, self.session.crew.devices)?,
            }
        }
        Ok(found)
    }

    /// Ends all runs that have begun, and waits until devices of this process are done with them.
    fn end_all(&mut self) {
        self.call_off();
        while let Some(run) = self.wait() {
            self.session.crew.forget(run.terms.run);
        }
    }

    fn call_off(&self) {
        for run in &self.open {
            self.session.crew.end_run(&run.terms, "a run that began before this one failed");
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
        let first = self.session.crew.first();
        let plan = &*fitted.prepared.plan;
        done.sort_by_key(|(device, _)| *device);
        let (mut named, mut parts) = (Vec::new(), Vec::new());
        if self.session.crew.splits_outputs() {
            let all = 0..self.session.crew.devices as Device;
            let is_other = |device: &Device| done.iter().all(|(own, _)| own != device);
            for other in all.filter(is_other) {
                team::receive_done(first, run, other, plan)?;
            }
            parts = self.session.output_parts(fitted, &mut done);
        } else {
            let ports = self.session.outputs().iter().zip(self.session.look.output_names());
            let ports = ports.zip(plan.givers_of_outputs());
            for (index, ((port, name), by)) in ports.enumerate() {
                let Some(by) = by else { continue };
                let value = match done.iter_mut().find(|(device, _)| *device == by) {
                    Some((_, own)) => own.given[index].take(),
                    None => Some(team::receive(first, run, by, (index, port))?),
                };
                named.extend(value.map(|value| (Arc::clone(name), value)));
            }
        }
        let kept = done.iter_mut().map(|(device, own)| (*device, std::mem::take(&mut own.kept)));
        let kept = kept.collect();
        let mut watched = Vec::new();
        if terms.watched.is_some() {
            let mut own = done.into_iter().peekable();
            for device in 0..self.session.crew.devices as Device {
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

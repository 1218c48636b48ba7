//! Runs on devices, in the process that passes the inputs (worker 0).

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::SystemTime;

use sardonyx_runtime::RunOptions;
use sardonyx_shard::Device;
use sardonyx_tensor::Value;

use super::plans::SizedPlan;
use super::profile::DeviceRun;
use super::seat::{
    DeviceFailure, DeviceResult, FinishedJob, Inputs, Limits, OutputValues, RunInputs, Terms,
};
use super::team::{self, Order};
use super::{DeviceSession, OutputPart, Results};
use crate::error::{Error, ErrorKind, catch_panic};
use crate::outputs::Outputs;

/// Results of a run that this process has received or computed.
#[derive(Default)]
pub(super) struct RunResult {
    pub(super) outputs: Outputs,
    /// Recorded steps of all devices; empty if the run was not watched.
    pub(super) watched: Vec<DeviceRun>,
    /// Output shards on the devices of this process; empty if outputs are gathered into whole
    /// tensors.
    pub(super) parts: Vec<OutputPart>,
    /// New shards of the state variables, for each device of this process.
    pub(super) kept: Vec<(Device, OutputValues)>,
}

impl DeviceSession {
    /// Runs the model on inputs, given by name in any order, and returns the outputs. Concurrent
    /// calls on one session are serialized.
    ///
    /// # Errors
    ///
    /// The errors of [`Session::run`](crate::Session::run); [`ErrorKind::Unsupported`] for options
    /// with a `watch`. If a device fails, the run is cancelled on all devices, and the error is
    /// that of the device that failed first, or [`ErrorKind::Worker`] if that device is in another
    /// process. The session stays usable, unless a worker is lost: then all further runs of all
    /// workers fail.
    pub fn run<I, N, V>(&self, inputs: I, options: &RunOptions<'_>) -> Result<Outputs, Error>
    where
        I: IntoIterator<Item = (N, V)>,
        N: AsRef<str>,
        V: Into<Value>,
    {
        Ok(self.run_many([inputs], options)?.pop().unwrap_or_default())
    }

    /// Runs the model on each of several sets of inputs, and returns the outputs for each set, in
    /// the order of the sets. Devices do not synchronize between runs, so the stages of a pipeline
    /// work on different sets at the same time.
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
    /// The errors of [`DeviceSession::run`], for the first set that fails.
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

    /// Runs the model once, and returns the outputs, and the timed steps of each device, including
    /// devices of other processes, in the order of the devices. [`DeviceSession::parts`] describes
    /// the steps.
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
    /// The errors of [`DeviceSession::run`].
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

    /// Runs the model on each of several sets of inputs; with `watched`, records the steps of the
    /// devices.
    pub(super) fn run_all<I, N, V>(
        &self,
        runs: impl IntoIterator<Item = I>,
        options: &RunOptions<'_>,
        watched: bool,
    ) -> Result<Vec<RunResult>, Error>
    where
        I: IntoIterator<Item = (N, V)>,
        N: AsRef<str>,
        V: Into<Value>,
    {
        let limits = Limits::new(options)?;
        let mut runs = runs.into_iter().map(|inputs| self.collect_inputs(inputs));
        catch_panic(|| self.run_each(&mut runs, &limits, watched))
    }

    /// Converts the inputs of a run into owned names and values, which other threads can read.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Input`] for a name that no model input has, or that occurs twice.
    pub(super) fn collect_inputs<I, N, V>(&self, inputs: I) -> Result<Inputs, Error>
    where
        I: IntoIterator<Item = (N, V)>,
        N: AsRef<str>,
        V: Into<Value>,
    {
        let mut named = Inputs::new();
        for (name, value) in inputs {
            let name = self.find_name(name.as_ref())?;
            if named.iter().any(|(given, _)| *given == name) {
                let message = format!("the input '{name}' is given twice");
                return Err(Error::new(ErrorKind::Input, message));
            }
            named.push((name, value.into()));
        }
        Ok(named)
    }

    /// Returns the session's shared copy of a model input's name, which saves an allocation.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Input`] if the model has no input of this name.
    pub(super) fn find_name(&self, name: &str) -> Result<Arc<str>, Error> {
        let port = self.input(name)?;
        let own = self.source.names.iter().find(|own| ***own == *name);
        Ok(own.map_or_else(|| Arc::from(port.name()), Arc::clone))
    }

    /// Starts a run for each item of `runs`, and returns all results in the order of the items.
    fn run_each(
        &self,
        runs: &mut dyn Iterator<Item = Result<Inputs, Error>>,
        limits: &Limits,
        watched: bool,
    ) -> Result<Vec<RunResult>, Error> {
        let crew = &self.crew;
        if crew.worker() > 0 {
            return Err(crew.make_worker_error());
        }
        let watched = watched.then(SystemTime::now);
        let transport = crew.transport().ok_or_else(|| crew.make_worker_error())?;
        let _turn = crew.take_turn();
        let mut running = OpenRuns::new(self);
        let mut outputs = Vec::new();
        for inputs in runs {
            let started = inputs.and_then(|inputs| {
                self.check_required_inputs(&inputs)?;
                let types = self.find_types(&inputs);
                let fitted = self.fit_plan(&types)?;
                let run = transport.endpoint().next_run();
                if let Some(team) = &crew.team {
                    let (inputs, limits) = (inputs.clone(), limits.clone());
                    let order = Order { run, types, inputs, limits, watched };
                    team.send_order(&fitted.prepared.plan, &self.source.names, &order)?;
                }
                let taken = RunInputs { inputs, residents: Vec::new() };
                Ok((fitted, taken, Terms::new(run, limits, watched)))
            });
            match started {
                Ok((fitted, taken, terms)) => running.start(fitted, taken, terms),
                Err(error) => {
                    // Runs that have begun must end here, as no other call takes their outputs.
                    running.finish_all()?;
                    return Err(error);
                }
            }
            // One run more than devices keeps each of them busy, and bounds the queued inputs.
            if running.open.len() > crew.devices {
                outputs.push(running.finish_next()?);
            }
        }
        outputs.extend(running.finish_all()?);
        Ok(outputs)
    }

    /// Checks that `inputs` has all required inputs of the model. The session of a device cannot
    /// check this, as it receives only the inputs that the device reads.
    pub(super) fn check_required_inputs(&self, inputs: &Inputs) -> Result<(), Error> {
        for port in self.inputs().iter().filter(|port| port.is_required()) {
            let name = port.name();
            if !inputs.iter().any(|(given, _)| **given == *name) && !self.stays.has_input(name) {
                let message = format!("the input '{name}' is missing");
                return Err(Error::new(ErrorKind::Input, message));
            }
        }
        Ok(())
    }
}

/// Queue of the runs that one call has begun. Dropping the queue, after a failure or in a panic,
/// cancels the unfinished runs.
pub(super) struct OpenRuns<'s> {
    session: &'s DeviceSession,
    done: Sender<FinishedJob>,
    finished: Receiver<FinishedJob>,
    /// Unfinished runs, the oldest first.
    open: VecDeque<OpenRun>,
}

/// A run that at least one device of this process has not finished.
struct OpenRun {
    terms: Terms,
    fitted: SizedPlan,
    /// Results of the devices of this process that have finished the run.
    done: Vec<(Device, DeviceResult)>,
    failed: Vec<DeviceFailure>,
}

impl<'s> OpenRuns<'s> {
    /// Makes an empty queue of runs on the devices of `session`.
    pub(super) fn new(session: &'s DeviceSession) -> Self {
        let (done, finished) = channel();
        OpenRuns { session, done, finished, open: VecDeque::new() }
    }

    /// Starts a run of the plan `fitted` on the devices of this process, and adds it to the queue.
    pub(super) fn start(&mut self, fitted: SizedPlan, taken: RunInputs, terms: Terms) {
        self.session.crew.queue_run(&fitted, &Arc::new(taken), &terms, &self.done);
        self.open.push_back(OpenRun { terms, fitted, done: Vec::new(), failed: Vec::new() });
    }

    /// Waits until all devices of this process have finished the oldest run, and takes the run out
    /// of the queue; `None` if the queue is empty.
    fn wait_for_oldest(&mut self) -> Option<OpenRun> {
        let devices = self.session.crew.seats.len();
        while self.open.front().is_some_and(|run| run.done.len() + run.failed.len() < devices) {
            let FinishedJob { run, device, result } = self
                .finished
                .recv()
                .expect("each device answers each job, and `self.done` is a sender");
            if let Some(open) = self.open.iter_mut().find(|open| open.terms.run == run) {
                match result {
                    Ok(done) => open.done.push((device, done)),
                    Err(failed) => open.failed.push(failed),
                }
            }
        }
        self.open.pop_front()
    }

    /// Waits until the oldest run in the queue has finished, and returns its results; empty results
    /// without a run. If the run failed, cancels all other runs in the queue.
    pub(super) fn finish_next(&mut self) -> Result<RunResult, Error> {
        let Some(run) = self.wait_for_oldest() else {
            return Ok(RunResult::default());
        };
        let failed = run.failed.into_iter().min_by_key(DeviceFailure::rank_cause);
        let found = match failed {
            Some(failed) => Err(failed.into_error()),
            None => self.gather_results(&run.fitted, run.done, &run.terms),
        };
        if let Err(error) = &found {
            self.session.crew.end_run(&run.terms, &error.to_string());
            self.end_all();
        }
        self.session.crew.drop_messages(run.terms.run);
        let found = found?;
        if let Some(team) = &self.session.crew.team {
            match self.session.crew.options.results {
                Results::First => {}
                Results::All => team.send_results(&found.outputs, self.session.crew.devices)?,
                Results::Split => team.send_success(run.terms.run, self.session.crew.devices)?,
            }
        }
        Ok(found)
    }

    /// Cancels all runs in the queue, and blocks until the devices of this process have stopped.
    fn end_all(&mut self) {
        self.cancel_all();
        while let Some(run) = self.wait_for_oldest() {
            self.session.crew.drop_messages(run.terms.run);
        }
    }

    /// Cancels all runs in the queue without waiting for the devices to stop.
    fn cancel_all(&self) {
        for run in &self.open {
            self.session.crew.end_run(&run.terms, "an earlier run of the same call failed");
        }
    }

    /// Gathers the results of a run: `done` from this process's devices, and the results that the
    /// devices of other processes send.
    fn gather_results(
        &self,
        fitted: &SizedPlan,
        mut done: Vec<(Device, DeviceResult)>,
        terms: &Terms,
    ) -> Result<RunResult, Error> {
        let run = terms.run;
        let first = self.session.crew.find_first_link();
        let plan = &*fitted.prepared.plan;
        done.sort_by_key(|(device, _)| *device);
        let (mut named, mut parts) = (Vec::new(), Vec::new());
        if self.session.crew.splits_outputs() {
            for device in 0..self.session.crew.devices as Device {
                if done.iter().all(|(own, _)| *own != device) {
                    team::receive_done(first, run, device, plan)?;
                }
            }
            parts = self.session.take_output_parts(fitted, &mut done);
        } else {
            let ports = self.session.outputs().iter().zip(self.session.look.output_names());
            let ports = ports.zip(plan.givers_of_outputs());
            for (index, ((port, name), by)) in ports.enumerate() {
                let Some(by) = by else { continue };
                let value = match done.iter_mut().find(|(device, _)| *device == by) {
                    Some((_, own)) => own.given[index].take(),
                    None => Some(team::receive_output(first, run, by, index, port)?),
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
        Ok(RunResult { outputs: Outputs::new(named), parts, watched, kept })
    }

    /// Waits until all runs in the queue have finished, and returns their results, oldest first.
    fn finish_all(&mut self) -> Result<Vec<RunResult>, Error> {
        (0..self.open.len()).map(|_| self.finish_next()).collect()
    }
}

impl Drop for OpenRuns<'_> {
    fn drop(&mut self) {
        self.cancel_all();
    }
}

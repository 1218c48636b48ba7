//! The thread of a device: runs the device's part of the model, job after job.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Instant, SystemTime};

use sardonyx_devices::{RunNumber, TransportError, TransportErrorKind};
use sardonyx_runtime::{RunOptions, StepEvent, StopFlag};
use sardonyx_shard::Device;
use sardonyx_tensor::Value;

use super::exchange::Link;
use super::parts::Parts;
use super::plans::{LocalSession, SizedPlan};
use super::profile::DeviceRun;
use super::team;
use crate::error::{Error, ErrorKind, catch_panic};
use crate::outputs::Outputs;
use crate::session::Session;

/// Owned copy of the options of a run, which device threads can share. The iteration limit applies
/// to each device separately.
#[derive(Debug, Clone, Default)]
pub(super) struct Limits {
    pub(super) stop: Option<StopFlag>,
    pub(super) deadline: Option<Instant>,
    pub(super) iteration_limit: Option<u64>,
    pub(super) seed: Option<u64>,
}

impl Limits {
    /// Copies the options of a run on devices.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Unsupported`] for options with a callback that watches steps, as the callback
    /// cannot be called from several threads.
    pub(super) fn new(options: &RunOptions<'_>) -> Result<Limits, Error> {
        if options.watch.is_some() {
            let message = "the steps of a run on devices cannot be watched";
            return Err(Error::new(ErrorKind::Unsupported, message)
                .with_help("call 'run_watched', which returns the steps of all devices"));
        }
        Ok(Limits {
            stop: options.stop.clone(),
            deadline: options.deadline,
            iteration_limit: options.iteration_limit,
            seed: options.seed,
        })
    }

    /// Converts the limits into options for the session of one device.
    fn to_options<'w>(&self) -> RunOptions<'w> {
        let mut options = RunOptions::new();
        options.stop.clone_from(&self.stop);
        options.deadline = self.deadline;
        options.iteration_limit = self.iteration_limit;
        options.seed = self.seed;
        options
    }
}

/// Inputs of a run: owned names and values, as other threads read them.
pub(super) type Inputs = Vec<(Arc<str>, Value)>;

/// Values that a device computes, one entry for each output (or state variable) of the model;
/// `None` where another device computes the value.
pub(super) type OutputValues = Vec<Option<Value>>;

/// Values that the devices of a process read in a run.
pub(super) struct RunInputs {
    /// Inputs of the run by name; may lack inputs that no device of this process reads.
    pub(super) inputs: Inputs,
    /// Shards of state variables, by the name of the model input that reads each.
    pub(super) residents: Vec<(Arc<str>, Arc<Parts>)>,
}

/// Number, limits and cancellation flag of a run, shared by the devices of a process.
#[derive(Debug, Clone)]
pub(super) struct Terms {
    pub(super) run: RunNumber,
    pub(super) limits: Limits,
    /// Cancellation flag: raised when the run fails on any device, so that all other devices stop.
    pub(super) ended: StopFlag,
    /// Wall-clock time at which the run began; `None` if steps are not recorded.
    pub(super) watched: Option<SystemTime>,
}

impl Terms {
    /// Makes the terms of a run that the caller's stop flag or a failed device cancels.
    pub(super) fn new(run: RunNumber, limits: &Limits, watched: Option<SystemTime>) -> Terms {
        let ended = StopFlag::new();
        let stop = limits.stop.as_ref().map_or_else(|| ended.clone(), |stop| ended.or(stop));
        Terms { run, limits: Limits { stop: Some(stop), ..limits.clone() }, ended, watched }
    }
}

/// Order to a device thread to run its part of the model once.
pub(super) struct Job {
    pub(super) fitted: SizedPlan,
    /// Index of the device's part among the parts of this process.
    pub(super) part: usize,
    pub(super) taken: Arc<RunInputs>,
    pub(super) terms: Terms,
    /// Message that the device sends to device 0 at the end of the run.
    pub(super) sends: Sends,
    /// Channel that receives the result of the job.
    pub(super) done: Sender<FinishedJob>,
}

/// Message of a device to device 0 at the end of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sends {
    /// No message: device 0 is in the process of the device, which receives the result by a
    /// channel.
    Nothing,
    /// Model outputs that the device has computed.
    Outputs,
    /// Empty message, which reports success; the output shards stay on the device.
    Done,
}

/// Values that a device has computed in a successful run.
#[derive(Default)]
pub(super) struct DeviceResult {
    /// Model outputs or their shards; empty if they were sent to device 0.
    pub(super) given: OutputValues,
    /// New shards of the state variables, one entry for each variable.
    pub(super) kept: OutputValues,
    /// Recorded steps; `None` if steps are not recorded or were sent to device 0.
    pub(super) watched: Option<DeviceRun>,
}

/// Failure of a device in a run.
pub(super) struct DeviceFailure {
    pub(super) error: Error,
    /// Error of the transport that made the device fail; `None` if its computation failed.
    pub(super) because: Option<TransportError>,
    /// Whether the device only stopped because another device had failed before.
    pub(super) too_late: bool,
}

impl DeviceFailure {
    /// Returns the failure's rank among the failures of one run, from 0 to 3: the lowest is the
    /// cause, higher ones are consequences.
    pub(super) fn rank_cause(&self) -> usize {
        use TransportErrorKind::{Ended, Failed, Lost, RunEnded};
        match self.because.as_ref().map(TransportError::kind) {
            None if self.too_late => 3,
            Some(Failed | Lost | Ended | RunEnded) => 2,
            Some(_) => 1,
            None => 0,
        }
    }

    /// Converts the failure of a device into the error of the run.
    pub(super) fn into_error(self) -> Error {
        self.because.map_or(self.error, team::worker_error)
    }
}

/// Result of one device in one run.
pub(super) struct FinishedJob {
    pub(super) run: RunNumber,
    pub(super) device: Device,
    pub(super) result: Result<DeviceResult, DeviceFailure>,
}

/// A device of this process: its thread and its queue of jobs.
#[derive(Debug)]
pub(super) struct Seat {
    pub(super) device: Device,
    pub(super) link: Link,
    /// Sender of the thread's job queue; `None` once the thread is to end.
    jobs: Option<Sender<Job>>,
    thread: Option<JoinHandle<()>>,
}

impl Seat {
    /// Starts the thread of a device.
    pub(super) fn new(device: Device, link: Link) -> Seat {
        let (jobs, taken) = channel();
        let own = link.clone();
        let thread = std::thread::Builder::new()
            .name(format!("device {device}"))
            .spawn(move || run_jobs(device, &own, &taken));
        // If the system refuses a thread, the receiver is dropped and `queue_job` fails the first
        // job.
        Seat { device, link, jobs: Some(jobs), thread: thread.ok() }
    }

    /// Queues a job after the jobs that the device thread already has. Never blocks.
    pub(super) fn queue_job(&self, job: Job) {
        let Some(jobs) = &self.jobs else { return };
        if let Err(refused) = jobs.send(job) {
            let Job { terms, done, .. } = refused.0;
            let why = "the operating system refuses a thread for the device";
            self.link.begin(terms.run);
            self.link.end_run(why);
            let error = Error::new(ErrorKind::Run, why);
            let failed = DeviceFailure { error, because: None, too_late: false };
            // The receiver may be gone: then no caller waits for the result.
            let _ =
                done.send(FinishedJob { run: terms.run, device: self.device, result: Err(failed) });
        }
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.jobs = None;
        // A panic of the thread was reported as the error of its run.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// Runs the jobs of a device thread in FIFO order, until the queue is closed.
fn run_jobs(device: Device, link: &Link, jobs: &Receiver<Job>) {
    for job in jobs {
        let Job { fitted, part, taken, terms, sends, done } = job;
        let part = &fitted.prepared.parts[part];
        link.begin(terms.run);
        let result = catch_panic(|| -> Result<DeviceResult, Error> {
            part.exchange.set_sizes(&fitted.numbers);
            let mut watched = terms.watched.map(|time| DeviceRun::begin(device as usize, time));
            let own_inputs = taken.select_inputs(&part.session, device);
            let found = run_session(part, link, own_inputs, &terms.limits, watched.as_mut())?;
            let (given, kept) = part.split_outputs(found);
            let given = match sends {
                Sends::Nothing => return Ok(DeviceResult { given, kept, watched }),
                Sends::Outputs => {
                    team::send_outputs(link, given)?;
                    OutputValues::new()
                }
                Sends::Done => {
                    team::send_done(link, &fitted.prepared)?;
                    given
                }
            };
            watched
                .map_or(Ok(()), |watched| team::send_watched(link, &fitted.prepared, &watched))?;
            Ok(DeviceResult { given, kept, watched: None })
        });
        let result = result.map_err(|error| {
            let too_late = terms.ended.is_raised() && error.kind() == ErrorKind::Stopped;
            DeviceFailure { error, because: link.failure(), too_late }
        });
        if let Err(failed) = &result {
            link.end_run(&failed.error.to_string());
            terms.ended.stop();
            part.exchange.join_remaining_reductions();
        }
        // Drop the references before the result is sent: its receiver may drop the session next.
        drop(taken);
        drop(fitted);
        let _ = done.send(FinishedJob { run: terms.run, device, result });
    }
}

impl RunInputs {
    /// Selects the inputs that the session of `device` reads: inputs of the run, and shards of
    /// state variables.
    fn select_inputs<'s>(
        &'s self,
        session: &'s Session,
        device: Device,
    ) -> impl Iterator<Item = (&'s str, Value)> {
        session.inputs().iter().filter_map(move |port| {
            let name = port.name();
            let resident = self.residents.iter().find(|(resident, _)| **resident == *name);
            if let Some((_, parts)) = resident {
                return Some((name, Value::from(parts.find_shard(device)?.clone())));
            }
            let (_, value) = self.inputs.iter().find(|(given, _)| **given == *name)?;
            Some((name, value.clone()))
        })
    }
}

/// Runs the session of a device, and records its steps and exchanges in `watched`.
fn run_session<'s>(
    part: &'s LocalSession,
    link: &Link,
    inputs: impl Iterator<Item = (&'s str, Value)>,
    limits: &Limits,
    watched: Option<&mut DeviceRun>,
) -> Result<Outputs, Error> {
    let options = limits.to_options();
    let Some(watched) = watched else { return part.session.run(inputs, &options) };
    let began = Instant::now();
    let steps = RefCell::new(&mut *watched);
    let watch = |step: StepEvent| steps.borrow_mut().add(step, link.take_exchanged());
    let found = part.session.run(inputs, &options.watch(&watch))?;
    watched.took = began.elapsed();
    Ok(found)
}

impl LocalSession {
    /// Sorts the outputs of a device's session into outputs of the model and new shards of state
    /// variables. Clones a session output that is used for several.
    fn split_outputs(&self, found: Outputs) -> (OutputValues, OutputValues) {
        let mut values: OutputValues = found.into_values().map(Some).collect();
        let places: Vec<Option<usize>> = self.outputs.iter().chain(&self.kept).copied().collect();
        let mut given = OutputValues::with_capacity(places.len());
        for (index, place) in places.iter().enumerate() {
            let is_needed_again = places[index + 1..].contains(place);
            given.push(match place {
                Some(place) if is_needed_again => values[*place].clone(),
                Some(place) => values[*place].take(),
                None => None,
            });
        }
        let kept = given.split_off(self.outputs.len());
        (given, kept)
    }
}

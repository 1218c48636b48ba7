//! A device of this process: a thread that runs its part of the model.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Instant, SystemTime};

use sardonyx_devices::{ErrorKind as Kind, RunNumber, TransportError};
use sardonyx_passes::Device;
use sardonyx_runtime::{RunOptions, StepEvent, StopFlag};
use sardonyx_tensor::Value;

use super::exchange::Link;
use super::parts::Parts;
use super::plans::{Fitted, LocalSession};
use super::profile::DeviceRun;
use super::team;
use crate::error::{Error, ErrorKind, catch_panic};

/// Options of a run as threads of devices take them. A limit of iterations holds for each device.
#[derive(Debug, Clone, Default)]
pub(super) struct Limits {
    pub(super) stop: Option<StopFlag>,
    pub(super) deadline: Option<Instant>,
    pub(super) iteration_limit: Option<u64>,
    pub(super) seed: Option<u64>,
}

impl Limits {
    /// Takes over the options of a run.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Unsupported`] for options that watch steps.
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

    fn options<'w>(&self) -> RunOptions<'w> {
        let mut options = RunOptions::new();
        options.stop.clone_from(&self.stop);
        options.deadline = self.deadline;
        options.iteration_limit = self.iteration_limit;
        options.seed = self.seed;
        options
    }
}

/// Inputs of a run by name. Devices are threads, so values and names are owned.
pub(super) type Inputs = Vec<(Arc<str>, Value)>;

/// By output of the model, the value that a device gives.
pub(super) type Given = Vec<Option<Value>>;

/// Values that devices are given in a run.
pub(super) struct Taken {
    /// Inputs of the model by name, at least those that devices of this process read.
    pub(super) inputs: Inputs,
    /// What stays on the devices, by the names of its inputs.
    pub(super) residents: Vec<(Arc<str>, Arc<Parts>)>,
}

/// What all devices of a process are told of a run.
#[derive(Debug, Clone)]
pub(super) struct Terms {
    pub(super) run: RunNumber,
    pub(super) limits: Limits,
    /// Up once the run has ended early, so that nobody computes in vain.
    pub(super) ended: StopFlag,
    /// The time of day when the run was handed out, if devices are to tell of their steps.
    pub(super) watched: Option<SystemTime>,
}

impl Terms {
    pub(super) fn new(run: RunNumber, limits: &Limits, watched: Option<SystemTime>) -> Terms {
        let ended = StopFlag::new();
        let stop = limits.stop.as_ref().map_or_else(|| ended.clone(), |stop| ended.or(stop));
        Terms { run, limits: Limits { stop: Some(stop), ..limits.clone() }, ended, watched }
    }
}

/// A run of the part of a device.
pub(super) struct Job {
    pub(super) fitted: Fitted,
    /// The number of the device's part among those of this process.
    pub(super) part: usize,
    pub(super) taken: Arc<Taken>,
    pub(super) terms: Terms,
    /// What goes to the first device in the end.
    pub(super) sends: Sends,
    /// Who is told of the end.
    pub(super) done: Sender<Finished>,
}

/// What a device sends the first one at the end of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sends {
    /// Nothing: they are devices of the same process.
    Nothing,
    /// The outputs that it has to give.
    Outputs,
    /// That it is done.
    Done,
}

/// What a device has of a run in the end.
#[derive(Default)]
pub(super) struct Done {
    /// Nothing if it has sent it to the first device.
    pub(super) given: Given,
    /// By resident, the device's part of its new value.
    pub(super) kept: Given,
    /// If it was to tell of its steps.
    pub(super) watched: Option<DeviceRun>,
}

/// Why a device did not run its part to the end.
pub(super) struct Failed {
    pub(super) error: Error,
    /// The error of the transport that was the reason, if it was one.
    pub(super) because: Option<TransportError>,
    /// Whether the run had ended already, because of another device.
    pub(super) too_late: bool,
}

impl Failed {
    /// Of several devices of a run, the one with the lowest number failed by itself.
    pub(super) fn rank(&self) -> usize {
        use Kind::{Ended, Failed, Lost, RunEnded};
        match self.because.as_ref().map(TransportError::kind) {
            None if self.too_late => 3,
            Some(Failed | Lost | Ended | RunEnded) => 2,
            Some(_) => 1,
            None => 0,
        }
    }

    /// What to say.
    pub(super) fn into_error(self) -> Error {
        self.because.map_or(self.error, team::worker_error)
    }
}

/// That a device is done with a run.
pub(super) struct Finished {
    pub(super) run: RunNumber,
    pub(super) device: Device,
    /// What it has.
    pub(super) result: Result<Done, Failed>,
}

/// A device of this process.
#[derive(Debug)]
pub(super) struct Seat {
    pub(super) device: Device,
    pub(super) link: Link,
    /// None once it is to end.
    jobs: Option<Sender<Job>>,
    thread: Option<JoinHandle<()>>,
}

impl Seat {
    pub(super) fn new(device: Device, link: Link) -> Seat {
        let (jobs, taken) = channel();
        let own = link.clone();
        let thread = std::thread::Builder::new()
            .name(format!("device {device}"))
            .spawn(move || work(device, &own, &taken));
        // Without a thread, the first job is refused.
        Seat { device, link, jobs: Some(jobs), thread: thread.ok() }
    }

    /// Lets the device do a job, after those that it was given before.
    pub(super) fn give(&self, job: Job) {
        let Some(jobs) = &self.jobs else { return };
        if let Err(refused) = jobs.send(job) {
            let Job { terms, done, .. } = refused.0;
            let why = "the system refuses a thread for the device";
            self.link.begin(terms.run);
            self.link.end_run(why);
            let error = Error::new(ErrorKind::Run, why);
            let failed = Failed { error, because: None, too_late: false };
            // Who does not listen does not want to know.
            let _ =
                done.send(Finished { run: terms.run, device: self.device, result: Err(failed) });
        }
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.jobs = None;
        // A panic of the device is the error of its run.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// Does the jobs of a device, one after the other.
fn work(device: Device, link: &Link, jobs: &Receiver<Job>) {
    for job in jobs {
        let Job { fitted, part, taken, terms, sends, done } = job;
        let part = &fitted.prepared.parts[part];
        link.begin(terms.run);
        let result = catch_panic(|| -> Result<Done, Error> {
            part.exchange.set_sizes(&fitted.numbers);
            let mut watched = terms.watched.map(|time| DeviceRun::begin(device as usize, time));
            let place = (device, link);
            let (given, kept) = run_part(part, place, &taken, &terms.limits, watched.as_mut())?;
            let given = match sends {
                Sends::Nothing => return Ok(Done { given, kept, watched }),
                Sends::Outputs => {
                    team::send_outputs(link, given)?;
                    Given::new()
                }
                Sends::Done => {
                    team::send_done(link, &fitted.prepared)?;
                    given
                }
            };
            watched
                .map_or(Ok(()), |watched| team::send_watched(link, &fitted.prepared, &watched))?;
            Ok(Done { given, kept, watched: None })
        });
        let result = result.map_err(|error| {
            let too_late = terms.ended.is_raised() && error.kind() == ErrorKind::Stopped;
            Failed { error, because: link.failure(), too_late }
        });
        if let Err(failed) = &result {
            link.end_run(&failed.error.to_string());
            terms.ended.stop();
            part.exchange.take_leave();
        }
        // The session of a part ends before the run does, not after it.
        drop(taken);
        drop(fitted);
        let _ = done.send(Finished { run: terms.run, device, result });
    }
}

/// Runs the part of a device: by output of the model the value that it gives, and by resident its
/// part of the new value.
fn run_part(
    part: &LocalSession,
    (device, link): (Device, &Link),
    taken: &Taken,
    limits: &Limits,
    watched: Option<&mut DeviceRun>,
) -> Result<(Given, Given), Error> {
    let ports = part.session.inputs().iter();
    let own = ports.filter_map(|port| {
        let name = port.name();
        if let Some((_, parts)) = taken.residents.iter().find(|(resident, _)| **resident == *name) {
            return Some((name, Value::from(parts.on(device)?.clone())));
        }
        let (_, value) = taken.inputs.iter().find(|(given, _)| **given == *name)?;
        Some((name, value.clone()))
    });
    let options = limits.options();
    let found = match watched {
        None => part.session.run(own, &options)?,
        Some(watched) => {
            let began = Instant::now();
            let steps = RefCell::new(&mut *watched);
            let watch = |step: StepEvent| steps.borrow_mut().add(step, link.take_exchanged());
            let found = part.session.run(own, &options.watch(&watch))?;
            watched.took = began.elapsed();
            found
        }
    };
    let mut values: Given = found.into_values().map(Some).collect();
    let places: Vec<Option<usize>> = part.outputs.iter().chain(&part.kept).copied().collect();
    let mut given = Given::with_capacity(places.len());
    for (index, place) in places.iter().enumerate() {
        given.push(match place {
            Some(place) if places[index + 1..].contains(&Some(*place)) => values[*place].clone(),
            Some(place) => values[*place].take(),
            None => None,
        });
    }
    let kept = given.split_off(part.outputs.len());
    Ok((given, kept))
}

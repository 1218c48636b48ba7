//! A device of this process: a thread that runs its part of the model.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::Instant;

use sardonyx_passes::Device;
use sardonyx_runtime::{RunOptions, StopFlag};
use sardonyx_tensor::Value;

use super::exchange::Link;
use super::parts::Parts;
use super::{Fitted, LocalSession, team};
use crate::error::Error;

/// What may end runs on several devices early. The default ends nothing.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct Limits {
    /// Runs end when this flag is up.
    pub stop: Option<StopFlag>,
    /// Runs end at this time.
    pub deadline: Option<Instant>,
    /// How many turns of loops and scans each device may take in a run, all of them together.
    pub turn_limit: Option<u64>,
}

impl Limits {
    /// What ends a run with these options early.
    pub(crate) fn of(options: &RunOptions<'_>) -> Limits {
        Limits {
            stop: options.stop.clone(),
            deadline: options.deadline,
            turn_limit: options.turn_limit,
        }
    }

    fn options(&self) -> RunOptions<'static> {
        let mut options = RunOptions::new();
        options.stop.clone_from(&self.stop);
        options.deadline = self.deadline;
        options.turn_limit = self.turn_limit;
        options
    }
}

/// By output of the model, the value that a device gives.
pub(super) type Given = Vec<Option<Value>>;

/// What devices are given in a run.
#[derive(Default)]
pub(super) struct Taken {
    /// Inputs of the model by name, at least those that devices of this process read.
    pub(super) inputs: Vec<(String, Value)>,
    /// What stays on the devices, by the names of its inputs.
    pub(super) residents: Vec<(String, Arc<Parts>)>,
    /// What random operators draw by, if it is not what the session says.
    pub(super) seed: Option<u64>,
}

/// What a device has when it is done.
#[derive(Default)]
pub(super) struct Left {
    /// Nothing if it has been sent.
    pub(super) given: Given,
    /// By resident, the device's part of its new value.
    pub(super) kept: Given,
}

/// A run of the part of a device.
pub(super) struct Job {
    pub(super) fitted: Fitted,
    /// The number of the device's part among those of this process.
    pub(super) part: usize,
    pub(super) taken: Arc<Taken>,
    pub(super) limits: Limits,
    /// The number of the run.
    pub(super) run: usize,
    /// Whether outputs go to the first device, which is one of another process.
    pub(super) sends_outputs: bool,
    /// Who is told of the end.
    pub(super) done: Sender<Finished>,
}

/// That a device is done with a run.
pub(super) struct Finished {
    pub(super) run: usize,
    pub(super) device: Device,
    /// What it has, or what it panicked with.
    pub(super) result: Result<Result<Left, Error>, Box<dyn Any + Send>>,
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
        let refused = self.jobs.as_ref().map(|jobs| jobs.send(job));
        if let Some(Err(refused)) = refused {
            let Job { run, done, .. } = refused.0;
            let why = "the system refuses a thread for the device";
            self.link.get().fail(why);
            let error = Error::new(crate::error::ErrorKind::Run, why);
            // Who does not listen does not want to know.
            let _ = done.send(Finished { run, device: self.device, result: Ok(Err(error)) });
        }
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.jobs = None;
        // A panic of the device has been handed on.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// Does the jobs of a device, one after the other.
fn work(device: Device, link: &Link, jobs: &Receiver<Job>) {
    for job in jobs {
        let Job { fitted, part, taken, limits, run, sends_outputs, done } = job;
        let part = &fitted.prepared.parts[part];
        let result = catch_unwind(AssertUnwindSafe(|| -> Result<Left, Error> {
            part.routes.set(&fitted.numbers);
            let mut left = run_part(part, device, &taken, &limits)?;
            if sends_outputs {
                team::send_outputs(link, std::mem::take(&mut left.given))?;
            }
            Ok(left)
        }));
        match &result {
            Ok(Ok(_)) => {}
            Ok(Err(error)) => link.get().fail(&error.to_string()),
            Err(_) => link.get().fail("it panicked"),
        }
        // The session of a part ends before the run does, not after it.
        drop(taken);
        drop(fitted);
        let _ = done.send(Finished { run, device, result });
    }
}

/// Runs the part of a device.
fn run_part(
    part: &LocalSession,
    device: Device,
    taken: &Taken,
    limits: &Limits,
) -> Result<Left, Error> {
    let ports = part.session.inputs().iter();
    let own = ports.filter_map(|port| {
        if let Some((name, parts)) = taken.residents.iter().find(|(name, _)| name == port.name()) {
            return Some((name.clone(), Value::from(parts.on(device)?.clone())));
        }
        let (name, value) = taken.inputs.iter().find(|(name, _)| name == port.name())?;
        Some((name.clone(), value.clone()))
    });
    let mut options = limits.options();
    options.seed = taken.seed;
    let found = part.session.run_with(own.collect::<Vec<_>>(), options)?;
    let mut values: Given = found.into_iter().map(|(_, value)| Some(value)).collect();
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
    Ok(Left { given, kept })
}

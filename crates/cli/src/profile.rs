//! `sardonyx profile`: time of each step of a run.

mod measured;
mod on_devices;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use sardonyx::Session;
use sardonyx::device::DeviceSession;
use sardonyx::run::{Run as _, Runner, StepEvent};
use sardonyx::tool::SessionExt;
use sardonyx::tool::profile::{DevicePart, DeviceRun, Exchanged};
use serde_json::{Value, json};

use crate::devices::DeviceArgs;
use crate::escape::escape_controls_in_json;
use crate::failure::{Code, Failure};
use crate::files;
use crate::human;
use crate::inputs::{self, Inputs, gather_or_fill_all};
use crate::model_arg::ModelArg;
use crate::saving;
use crate::session::SessionArgs;
use crate::stopping::StopArgs;
use crate::terminal::Terminal;
use crate::timing::{RepeatArgs, compute_median};
use measured::{ModelPart, Profile, Track, to_micros};

/// Measure the time of every step of a run
///
/// The time of a step is the median over all runs; time outside of steps is overhead. With
/// --devices, the steps of each device, and for each move of a value between devices how long they
/// wait for it, how long it takes to move, and what is sent. If no inputs are given, they are
/// filled as by --random 0.
#[derive(clap::Args)]
#[group(skip)]
pub(crate) struct Args {
    #[command(flatten)]
    model: ModelArg,
    #[command(flatten)]
    inputs: inputs::Args,
    #[command(flatten)]
    session: SessionArgs,
    #[command(flatten)]
    repeat: RepeatArgs,
    #[command(flatten)]
    devices: DeviceArgs,
    #[command(flatten)]
    stopping: StopArgs,
    /// Profile the training step of this entry of the training information, from 0, instead of the
    /// main graph. State variables are inputs; those that are not given have their stored values
    #[arg(long, value_name = "ENTRY", conflicts_with = "devices")]
    training_step: Option<usize>,
    /// List the N slowest steps
    #[arg(long, value_name = "N", default_value_t = 10)]
    top: usize,
    /// List all steps in the order of execution
    #[arg(long, conflicts_with = "top")]
    all: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Write a trace of the median run for chrome://tracing and Perfetto
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
}

/// Schema of the JSON answer: its name and version. A key that changes its meaning raises the
/// version, a new key does not.
const SCHEMA: &str = "sardonyx.profile/1";
/// Maximum number of step timings that are kept in memory, unless `--runs` needs more.
const MOST_EVENTS: u64 = 1_000_000;

/// Runs `sardonyx profile`: measures the steps of a model, and prints them or writes a trace.
pub(crate) fn profile(args: &Args, terminal: &Terminal) -> Result<(), Failure> {
    let opened = if args.devices.devices {
        args.session.open(&args.model, true, terminal)?
    } else {
        args.session.open_step(&args.model, args.training_step, terminal)?
    };
    let running = args.devices.start_runner(&opened, &args.session, args.model.is_stdin())?;
    let Some(running) = running else { return Ok(()) };
    let inputs = gather_or_fill_all(&args.inputs, &opened, terminal)?;
    let protected = saving::protect_inputs(&args.model, &opened.model, &inputs.files);
    if let Some(target) = &args.trace {
        protected
            .check(target)
            .map_err(|failure| failure.help("choose another file for the trace with --trace"))?;
    }
    let runner = &running.runner;
    let Measured { wall, devices } = measure(args, runner, &inputs, terminal)?;
    let instruction_set = runner.instruction_set();
    let nearest = find_nearest_run(&wall);
    if let Some(target) = &args.trace {
        let tracks = devices.iter().filter_map(|device| device.to_track(runner, nearest?));
        let more = json!({
            "threads": runner.threads(),
            "instruction_set": instruction_set,
            "run_us": nearest.map(|run| to_micros(wall[run])),
        });
        args.write_trace(target, &tracks.collect::<Vec<_>>(), more, terminal)?;
    }
    match (runner, &devices[..]) {
        (Runner::Session(_), [Device { profile, .. }]) if args.json => {
            terminal.json(&profile.json(args, &instruction_set), true)
        }
        (Runner::Session(_), [Device { profile, .. }]) => {
            terminal.print(&profile.text(args, &instruction_set))
        }
        (Runner::Devices(session), _) => {
            let report = on_devices::DeviceProfile::new(session, &wall, devices)?;
            if args.json {
                terminal.json(&report.json(args), true)
            } else {
                terminal.print(&report.text(args))
            }
        }
        (Runner::Session(_), _) => Err(fail_without_runs()),
    }
}

/// Returns the failure for a profile without runs, which options cannot cause.
fn fail_without_runs() -> Failure {
    Failure::new("the model was not run").code(Code::Internal)
}

/// Measured times of a model. A model that one session runs counts as one device.
struct Measured {
    /// Wall time of each run.
    wall: Vec<Duration>,
    devices: Vec<Device>,
}

/// Part of a model that one device runs, with the measured times of each run.
struct Device {
    number: usize,
    profile: Profile,
    runs: Vec<Run>,
    /// Exchanges with other devices in each run.
    exchanges: Vec<Exchanges>,
}

/// Exchanges of a device in one run, by the index of their step in the plan.
type Exchanges = BTreeMap<usize, TimedExchange>;

/// Timed exchange of values between a device and other devices.
struct TimedExchange {
    /// Time of the whole exchange, including waiting.
    took: Duration,
    /// Time spent waiting for other devices, and the sent messages.
    exchanged: Exchanged,
}

impl Device {
    /// Returns the track of a trace that shows the steps of the run with index `run`; `None` if
    /// the run does not exist.
    fn to_track(&self, runner: &Runner, run: usize) -> Option<Track<'_>> {
        let name = match runner {
            Runner::Session(_) => "steps".to_string(),
            Runner::Devices(_) => format!("device {}", self.number),
        };
        Some(Track { name, profile: &self.profile, run: self.runs.get(run)? })
    }
}

/// Runs the model as often as the options require, and measures each run.
fn measure(
    args: &Args,
    runner: &Runner,
    inputs: &Inputs,
    terminal: &Terminal,
) -> Result<Measured, Failure> {
    // The run comes first, as its errors explain better than those of inference why inputs do not
    // fit.
    runner.run(inputs.named_values(), &args.stopping.to_run_options())?;
    let parts = list_device_parts(runner, inputs)?;
    let steps: Vec<usize> = parts.iter().map(|(_, part)| part.infos.len()).collect();
    let timed = args.repeat_runs(steps.iter().sum(), terminal, |keeps| {
        let (took, devices) = match runner {
            Runner::Session(session) => time_session(args, session, inputs, keeps)?,
            Runner::Devices(session) => time_devices(args, session, inputs, &steps, keeps)?,
        };
        let kept = devices.iter().map(|(run, _)| run.events.len()).sum();
        Ok(((took, devices), kept))
    })?;
    let mut wall = Vec::with_capacity(timed.len());
    let mut of_devices: Vec<(Vec<Run>, Vec<Exchanges>)> =
        parts.iter().map(|_| Default::default()).collect();
    for (took, devices) in timed {
        wall.push(took);
        for ((runs, exchanges), (run, exchanged)) in of_devices.iter_mut().zip(devices) {
            runs.push(run);
            exchanges.push(exchanged);
        }
    }
    let devices = parts.into_iter().zip(of_devices).map(|((number, part), (runs, exchanges))| {
        Ok(Device { number, profile: Profile::new(part, &runs)?, runs, exchanges })
    });
    Ok(Measured { wall, devices: devices.collect::<Result<_, Failure>>()? })
}

/// Returns the part of the model that each device runs, with the number of the device. A session
/// runs the whole model as device 0.
fn list_device_parts(runner: &Runner, inputs: &Inputs) -> Result<Vec<(usize, ModelPart)>, Failure> {
    Ok(match runner {
        Runner::Session(session) => {
            let (infos, threads) = (session.steps(), session.threads());
            vec![(
                0,
                ModelPart { infos, details: session.details(inputs.to_tensor_types())?, threads },
            )]
        }
        Runner::Devices(session) => {
            let threads = session.threads_per_device();
            let parts = session.parts(&inputs.to_tensor_types())?.into_iter();
            parts
                .map(|part: DevicePart| {
                    (part.device, ModelPart { infos: part.steps, details: part.details, threads })
                })
                .collect()
        }
    })
}

/// Duration of a run, with the steps and exchanges of each device.
type TimedRun = (Duration, Vec<(Run, Exchanges)>);

/// Runs the model once in a session and times its steps. Keeps up to `keeps` events for a trace.
fn time_session(
    args: &Args,
    session: &Session,
    inputs: &Inputs,
    keeps: usize,
) -> Result<TimedRun, Failure> {
    let run = RefCell::new(Run::new(session.steps().len()));
    let watch = |event: StepEvent| run.borrow_mut().add_event(event, keeps);
    let options = args.stopping.to_run_options().watch(&watch);
    let values = inputs.named_values();
    let began = Instant::now();
    session.run(values, &options)?;
    let took = began.elapsed();
    let mut run = run.into_inner();
    run.took = took;
    Ok((took, vec![(run, Exchanges::new())]))
}

/// Runs the model once on devices and times their steps. `steps` has the number of steps of each
/// device; up to `keeps` events of each are kept for a trace.
fn time_devices(
    args: &Args,
    session: &DeviceSession,
    inputs: &Inputs,
    steps: &[usize],
    keeps: usize,
) -> Result<TimedRun, Failure> {
    let (values, options) = (inputs.named_values(), args.stopping.to_run_options());
    let began = Instant::now();
    let (_, devices) = session.run_watched(values, &options)?;
    let took = began.elapsed();
    let devices = devices.iter().zip(steps);
    Ok((took, devices.map(|(device, steps)| collect_run(device, *steps, keeps)).collect()))
}

/// Collects the events of a device with `steps` steps in one run, and keeps up to `keeps` of them
/// for a trace.
fn collect_run(watched: &DeviceRun, steps: usize, keeps: usize) -> (Run, Exchanges) {
    let mut run = Run::new(steps);
    (run.start, run.took) = (watched.start, watched.took);
    let mut exchanges = Exchanges::new();
    for event in &watched.events {
        run.add_event(event.step, keeps);
        if let Some(exchanged) = event.exchanged {
            let took = event.step.took;
            exchanges.insert(exchanged.step, TimedExchange { took, exchanged });
        }
    }
    run.dropped += watched.untold;
    (run, exchanges)
}

/// Returns the index of the run whose wall time is nearest to the median; `None` without runs.
fn find_nearest_run(wall: &[Duration]) -> Option<usize> {
    let mut sorted = wall.to_vec();
    sorted.sort_unstable();
    let median = compute_median(&sorted)?;
    (0..wall.len()).min_by_key(|run| wall[*run].abs_diff(median))
}

impl Args {
    /// Calls `run` for the warm-up, and then as often as the options require; returns the results
    /// of the latter calls. `run` takes the maximum number of events to keep for a trace, and
    /// returns the number of timings that it kept beside its result. The model has `steps` steps.
    fn repeat_runs<R>(
        &self,
        steps: usize,
        terminal: &Terminal,
        mut run: impl FnMut(usize) -> Result<(R, usize), Failure>,
    ) -> Result<Vec<R>, Failure> {
        let bar = terminal.progress("running", self.repeat.runs());
        let (start, mut warm_ups) = (Instant::now(), 0);
        while self.repeat.is_cold(warm_ups, start.elapsed()) {
            run(0)?;
            warm_ups += 1;
        }
        let start = Instant::now();
        let mut runs = Vec::new();
        let keeps = if self.trace.is_some() { MOST_EVENTS as usize } else { 0 };
        let mut kept = steps;
        loop {
            let most = MOST_EVENTS / kept.max(1) as u64;
            if !self.repeat.has_next_run(runs.len() as u64, start.elapsed(), most) {
                break;
            }
            let (one, events) = run(keeps)?;
            kept = steps.max(events);
            runs.push(one);
            bar.inc(1);
        }
        bar.finish_and_clear();
        Ok(runs)
    }

    /// Writes the steps of a run in the trace event format, with a track for each device.
    fn write_trace(
        &self,
        target: &Path,
        tracks: &[Track<'_>],
        more: Value,
        terminal: &Terminal,
    ) -> Result<(), Failure> {
        let mut events = vec![make_name_event("process_name", 1, &self.model.name())];
        for (thread, track) in (1..).zip(tracks) {
            events.push(make_name_event("thread_name", thread, &track.name));
            events.extend(track.to_events(thread));
        }
        let mut other = json!({"model": self.model.name()});
        if let (Value::Object(other), Value::Object(more)) = (&mut other, more) {
            other.extend(more);
        }
        let trace = json!({"traceEvents": events, "displayTimeUnit": "ns", "otherData": other});
        write_json(target, &trace)?;
        terminal.remark(&format!("wrote {}", target.display()));
        let dropped: u64 = tracks.iter().map(|track| track.run.dropped).sum();
        if dropped > 0 {
            let (first, more) = (human::group_digits(MOST_EVENTS), human::group_digits(dropped));
            terminal.note(&format!("the trace has the first {first} steps; {more} more ran"));
        }
        Ok(())
    }
}

/// Calls of a step in one run: a step in a loop is called in each iteration.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Calls {
    /// Time of all calls of the step together.
    took: Duration,
    count: u64,
}

/// One run of a session or of a device, with the times of its steps.
struct Run {
    /// Time from the start of the run on all devices to the start on this device.
    start: Duration,
    took: Duration,
    /// Calls of each step; `None` for a step that did not run.
    steps: Vec<Option<Calls>>,
    /// First events of the run, for a trace.
    events: Vec<StepEvent>,
    /// Number of later events, which are not kept.
    dropped: u64,
}

impl Run {
    /// Returns a run without events, of a session or device with `steps` steps.
    fn new(steps: usize) -> Run {
        Run {
            start: Duration::ZERO,
            took: Duration::ZERO,
            steps: vec![None; steps],
            events: Vec::new(),
            dropped: 0,
        }
    }

    /// Adds the time of a step that has run. Keeps the event for a trace while fewer than `keeps`
    /// events are kept.
    fn add_event(&mut self, event: StepEvent, keeps: usize) {
        if let Some(calls) = self.steps.get_mut(event.step) {
            let calls = calls.get_or_insert_default();
            calls.took += event.took;
            calls.count += 1;
        }
        if self.events.len() < keeps { self.events.push(event) } else { self.dropped += 1 }
    }
}

/// Returns the event of the trace event format that names a process or thread.
fn make_name_event(what: &str, thread: usize, name: &str) -> Value {
    let args = json!({"name": name});
    json!({"name": what, "ph": "M", "pid": 1, "tid": thread, "args": args})
}

/// Writes a trace to a file as JSON, with control characters escaped.
fn write_json(target: &Path, value: &Value) -> Result<(), Failure> {
    let text = serde_json::to_string(value);
    let text = text.map_err(|error| {
        Failure::new(format!("the trace cannot be written as JSON: {error}")).code(Code::Internal)
    })?;
    files::write(target, |file| {
        file.write_all(escape_controls_in_json(&text).as_bytes())?;
        Ok(())
    })
}

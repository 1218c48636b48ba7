//! `sardonyx profile`: where the time of a run goes, step by step.

mod measured;
mod on_devices;

use std::cell::RefCell;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use sardonyx::Session;
use sardonyx::run::Runner;
use sardonyx::run::StepEvent;
use sardonyx::tool::SessionExt;
use serde_json::{Value, json};

use crate::ModelArg;
use crate::devices::DeviceArgs;
use crate::failure::{Code, Failure};
use crate::files;
use crate::human;
use crate::inputs::{self, Inputs, gather_or_make};
use crate::saving;
use crate::session::SessionArgs;
use crate::stopping::StopArgs;
use crate::terminal::{Terminal, harmless_json};
use crate::timing::RepeatArgs;
use measured::{Measured, Profile, Track};

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

/// The name and version of the form of the JSON answer. New keys may be added; a change of meaning
/// gets a new number.
const SCHEMA: &str = "sardonyx.profile/1";
/// Timings that are kept in memory, unless more runs are asked for.
const MOST_EVENTS: u64 = 1_000_000;

pub(crate) fn profile(args: &Args, terminal: &Terminal) -> Result<(), Failure> {
    let opened = if args.devices.devices {
        args.session.open(&args.model, true, terminal)?
    } else {
        args.session.open_step((&args.model, args.training_step), terminal)?
    };
    let running = args.devices.runner(&opened, &args.session, args.model.is_stdin())?;
    let Some(running) = running else { return Ok(()) };
    let inputs = gather_or_make(&args.inputs, &opened, terminal)?;
    let protected = saving::protect_inputs(&args.model, &opened.model, &inputs.files);
    if let Some(target) = &args.trace {
        let refused = |failure: Failure| failure.help("choose another file with --trace");
        protected.check(target).map_err(refused)?;
    }
    match &running.runner {
        Runner::Devices(session) => on_devices::profile(args, session, &inputs, terminal),
        _ => whole(args, &opened.session, &inputs, terminal),
    }
}

/// The profile of one session.
fn whole(
    args: &Args,
    session: &Session,
    inputs: &Inputs,
    terminal: &Terminal,
) -> Result<(), Failure> {
    let count = session.steps().len();
    let runs = args.record(count, terminal, |keeps| {
        let run = RefCell::new(Run::new(count));
        let watch = |event: StepEvent| run.borrow_mut().add(event, keeps);
        let options = args.stopping.options().watch(&watch);
        let values = inputs.named();
        let began = Instant::now();
        session.run(values, &options)?;
        let took = began.elapsed();
        let mut run = run.into_inner();
        run.took = took;
        let kept = run.events.len();
        Ok((run, kept))
    })?;
    let details = session.details(inputs.types())?;
    let measured = Measured { infos: session.steps(), details, threads: session.threads() };
    let profile = Profile::of(measured, &runs)?;
    if let Some(target) = &args.trace {
        let nearest = profile.nearest(&runs);
        let more = json!({
            "threads": profile.threads,
            "instruction_set": session.instruction_set(),
            "run_us": nearest.map(|run| measured::rounded_micros(run.took)),
        });
        let track = nearest.map(|run| Track { name: "steps".to_string(), profile: &profile, run });
        args.write_trace(target, track.as_slice(), more, terminal)?;
    }
    let instruction_set = session.instruction_set();
    if args.json {
        terminal.json(&profile.json(args, &instruction_set), true)
    } else {
        terminal.print(&profile.text(args, &instruction_set))
    }
}

impl Args {
    /// Runs a model as often as is asked for. The function runs it once and keeps so many events
    /// for a trace, and says how many numbers it keeps of the run; there are `steps` steps.
    fn record<R>(
        &self,
        steps: usize,
        terminal: &Terminal,
        mut run: impl FnMut(usize) -> Result<(R, usize), Failure>,
    ) -> Result<Vec<R>, Failure> {
        let bar = terminal.progress("running", self.repeat.runs());
        run(0)?;
        let (start, mut warm_ups) = (Instant::now(), 0);
        while self.repeat.is_cold(warm_ups, start.elapsed()) {
            run(0)?;
            warm_ups += 1;
        }
        let start = Instant::now();
        let mut runs = Vec::new();
        let keeps = if self.trace.is_some() { MOST_EVENTS as usize } else { 0 };
        let mut kept = steps;
        let most = |kept: usize| MOST_EVENTS / kept.max(1) as u64;
        while self.repeat.goes_on(runs.len() as u64, start.elapsed(), most(kept)) {
            let (one, events) = run(keeps)?;
            kept = steps.max(events);
            runs.push(one);
            bar.inc(1);
        }
        bar.finish_and_clear();
        Ok(runs)
    }

    /// Writes the steps of a run in the trace event format: a track for each device.
    fn write_trace(
        &self,
        target: &Path,
        tracks: &[Track<'_>],
        more: Value,
        terminal: &Terminal,
    ) -> Result<(), Failure> {
        let name = |what: &str, thread: usize, name: &str| {
            let args = json!({"name": name});
            json!({"name": what, "ph": "M", "pid": 1, "tid": thread, "args": args})
        };
        let mut events = vec![name("process_name", 1, &self.model.name())];
        for (thread, track) in (1..).zip(tracks) {
            events.push(name("thread_name", thread, &track.name));
            events.extend(track.events(thread));
        }
        let mut other = json!({"model": self.model.name()});
        if let (Value::Object(other), Value::Object(more)) = (&mut other, more) {
            other.extend(more);
        }
        let trace = json!({"traceEvents": events, "displayTimeUnit": "ns", "otherData": other});
        write_json(target, &trace)?;
        terminal.remark(&format!("wrote {}", target.display()));
        let untold: u64 = tracks.iter().map(|track| track.run.untold).sum();
        if untold > 0 {
            let (first, more) = (human::group(MOST_EVENTS), human::group(untold));
            terminal.note(&format!("the trace has the first {first} steps; {more} more ran"));
        }
        Ok(())
    }
}

/// How long a step took in one run, and how often it ran: a step in a loop runs in each iteration.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Calls {
    took: Duration,
    count: u64,
}

/// A run with its steps.
struct Run {
    /// When it began, after others of the same trace.
    start: Duration,
    took: Duration,
    /// By step; `None` for one that did not run.
    steps: Vec<Option<Calls>>,
    /// The first steps that ran, for a trace.
    events: Vec<StepEvent>,
    /// Steps that ran after these.
    untold: u64,
}

impl Run {
    /// Of a session with so many steps.
    fn new(steps: usize) -> Run {
        Run {
            start: Duration::ZERO,
            took: Duration::ZERO,
            steps: vec![None; steps],
            events: Vec::new(),
            untold: 0,
        }
    }

    /// Adds a step that has run, and keeps so many of them for a trace.
    fn add(&mut self, event: StepEvent, keeps: usize) {
        if let Some(calls) = self.steps.get_mut(event.step) {
            let calls = calls.get_or_insert_default();
            calls.took += event.took;
            calls.count += 1;
        }
        if self.events.len() < keeps { self.events.push(event) } else { self.untold += 1 }
    }
}

fn write_json(target: &Path, value: &Value) -> Result<(), Failure> {
    let text = serde_json::to_string(value);
    let text = text.map_err(|error| {
        Failure::new(format!("the trace cannot be written as JSON: {error}")).code(Code::Internal)
    })?;
    files::write(target, |file| {
        file.write_all(harmless_json(&text).as_bytes())?;
        Ok(())
    })
}

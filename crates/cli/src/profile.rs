//! `sardonyx profile`: where the time of a run goes, step by step.

use std::collections::{BTreeMap, HashMap};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use sardonyx::{Dim, OperandDetails, Session, StepDetails, StepEvent, StepInfo};
use serde_json::{Value, json};

use crate::failure::{Code, Failure};
use crate::files;
use crate::human::{self, Align, columns, count, cut};
use crate::inputs::{self, Inputs, gather_or_make};
use crate::saving;
use crate::session::{Opened, SessionArgs};
use crate::stopping::StopArgs;
use crate::terminal::{Terminal, harmless_json};
use crate::timing::{RepeatArgs, median};
use crate::{ModelArg, steps};

/// Measure the time of every step of a run
///
/// The time of a step is the median over all runs; time outside of steps is overhead. If no inputs
/// are given, they are filled as by --random 0.
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
    stopping: StopArgs,
    /// Profile the training step of this entry of the training information, from 0, instead of the
    /// main graph. State variables are inputs
    #[arg(long, value_name = "ENTRY")]
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
    let opened = args.session.open_step((&args.model, args.training_step), terminal)?;
    let inputs = gather_or_make(&args.inputs, &opened, terminal)?;
    let Opened { model, session, .. } = opened;
    let protected = saving::protect_inputs(&args.model, &model, &inputs.files);
    if let Some(target) = &args.trace {
        let refused = |failure: Failure| failure.help("choose another file with --trace");
        protected.check(target).map_err(refused)?;
    }
    let runs = record(args, &session, &inputs, terminal)?;
    let profile = Profile::of(&session, &inputs, &runs)?;
    if let Some(target) = &args.trace {
        let nearest = profile.nearest(&runs);
        let trace = profile.trace(args, nearest);
        write_json(target, &trace)?;
        terminal.remark(&format!("wrote {}", target.display()));
        if let Some(untold @ 1..) = nearest.map(|run| run.untold) {
            let (first, more) = (human::group(MOST_EVENTS), human::group(untold));
            terminal.note(&format!("the trace has the first {first} steps; {more} more ran"));
        }
    }
    if args.json {
        terminal.json(&profile.json(args), true)
    } else {
        terminal.print(&profile.text(args))
    }
}

/// How long a step took in one run, and how often it ran: in the turns of a loop more than once.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Calls {
    took: Duration,
    count: u64,
}

/// A run with its steps.
struct Run {
    took: Duration,
    /// By step; `None` for one that did not run.
    steps: Vec<Option<Calls>>,
    /// The first steps that ran, for a trace.
    events: Vec<StepEvent>,
    /// Steps that ran after these.
    untold: u64,
}

fn record(
    args: &Args,
    session: &Session,
    inputs: &Inputs,
    terminal: &Terminal,
) -> Result<Vec<Run>, Failure> {
    let bar = terminal.progress("running", args.repeat.runs());
    session.run_with(inputs.values.clone(), args.stopping.options())?;
    let (start, mut warm_ups) = (Instant::now(), 0);
    while args.repeat.is_cold(warm_ups, start.elapsed()) {
        session.run_with(inputs.values.clone(), args.stopping.options())?;
        warm_ups += 1;
    }
    let start = Instant::now();
    let mut runs: Vec<Run> = Vec::new();
    let count = session.steps().len();
    let keeps = if args.trace.is_some() { MOST_EVENTS as usize } else { 0 };
    let mut kept = count;
    let most = |kept: usize| MOST_EVENTS / kept.max(1) as u64;
    while args.repeat.goes_on(runs.len() as u64, start.elapsed(), most(kept)) {
        let mut steps: Vec<Option<Calls>> = vec![None; count];
        let (mut events, mut untold) = (Vec::new(), 0);
        let values = inputs.values.clone();
        let began = Instant::now();
        let mut watch = |event: StepEvent| {
            let calls = steps[event.step].get_or_insert_default();
            calls.took += event.took;
            calls.count += 1;
            if events.len() < keeps { events.push(event) } else { untold += 1 }
        };
        let outputs = session.run_with(values, args.stopping.options().watch(&mut watch));
        let took = began.elapsed();
        outputs?;
        kept = count.max(events.len());
        runs.push(Run { took, steps, events, untold });
        bar.inc(1);
    }
    bar.finish_and_clear();
    Ok(runs)
}

/// A step with what was measured.
struct Step {
    info: StepInfo,
    details: StepDetails,
    /// Median and shortest time in a run; `None` if it did not run.
    time: Option<(Duration, Duration)>,
    /// How often it ran in the run of median time.
    calls: u64,
}

impl Step {
    fn took(&self) -> Duration {
        self.time.map_or(Duration::ZERO, |(median, _)| median)
    }

    /// Bytes that a call reads and writes.
    fn bytes_of_call(&self) -> Option<u64> {
        let (read, written) = (self.details.read_bytes?, self.details.written_bytes?);
        read.checked_add(written)
    }

    /// Bytes that all of its calls in a run read and write.
    fn bytes(&self) -> Option<u64> {
        self.bytes_of_call()?.checked_mul(self.calls)
    }

    /// Multiply-adds of all of its calls in a run.
    fn multiply_adds(&self) -> Option<u64> {
        self.details.multiply_adds?.checked_mul(self.calls)
    }

    fn layout(&self) -> String {
        steps::layout(&self.details)
    }

    /// `Conv with Relu`
    fn operator(&self) -> String {
        steps::operator(&self.info)
    }

    /// Sizes of the first operands and the first result.
    fn dims(&self) -> String {
        let shown = |operands: &[OperandDetails]| {
            let shapes = operands.iter().filter_map(|operand| {
                let shape = operand.ty.as_ref()?.shape()?;
                let dims: Vec<String> = shape.iter().map(Dim::to_string).collect();
                Some(format!("[{}]", dims.join(",")))
            });
            shapes.take(2).collect::<Vec<_>>().join(" ")
        };
        let made = &self.details.outputs;
        let made = shown(&made[..made.len().min(1)]);
        format!("{} -> {made}", shown(&self.details.inputs))
    }
}

/// Work and time of many steps.
struct Sum {
    calls: u64,
    took: Duration,
    /// `None` once one of them is unknown.
    multiply_adds: Option<u64>,
    bytes: Option<u64>,
    /// Time by kernel.
    kernels: BTreeMap<String, Duration>,
}

impl Default for Sum {
    fn default() -> Sum {
        Sum {
            calls: 0,
            took: Duration::ZERO,
            multiply_adds: Some(0),
            bytes: Some(0),
            kernels: BTreeMap::new(),
        }
    }
}

impl Sum {
    fn add(&mut self, step: &Step) {
        let plus = |a: Option<u64>, b: Option<u64>| a?.checked_add(b?);
        self.calls += step.calls;
        self.took += step.took();
        self.multiply_adds = plus(self.multiply_adds, step.multiply_adds());
        self.bytes = plus(self.bytes, step.bytes());
        *self.kernels.entry(step.info.kernel.clone()).or_default() += step.took();
    }

    /// The kernel that took most, and how many others there are.
    fn kernel(&self) -> String {
        let most = self.kernels.iter().max_by_key(|(_, took)| **took);
        let name = most.map_or("", |(name, _)| name.as_str());
        match self.kernels.len() {
            0 | 1 => name.to_string(),
            several => format!("{name} and {} more", several - 1),
        }
    }
}

struct Profile {
    steps: Vec<Step>,
    run: Duration,
    shortest: Duration,
    /// What runs take outside of their steps: the median over them.
    overhead: Duration,
    runs: usize,
    threads: usize,
    instruction_set: String,
    arena_bytes: usize,
}

impl Profile {
    fn of(session: &Session, inputs: &Inputs, runs: &[Run]) -> Result<Profile, Failure> {
        let details = session.details(inputs.types())?;
        let infos = session.steps();
        let mut times: Vec<Vec<Calls>> = vec![Vec::new(); infos.len()];
        for run in runs {
            for (times, took) in times.iter_mut().zip(&run.steps) {
                times.extend(took);
            }
        }
        let steps = infos.into_iter().zip(details.steps).zip(times);
        let steps = steps.map(|((info, details), mut times)| {
            times.sort_unstable();
            let calls = times.get(times.len() / 2).map_or(0, |calls| calls.count);
            let times: Vec<Duration> = times.iter().map(|calls| calls.took).collect();
            let time = median(&times).zip(times.first().copied());
            Step { info, details, time, calls }
        });
        let mut wall: Vec<Duration> = runs.iter().map(|run| run.took).collect();
        wall.sort_unstable();
        let outside = runs.iter().map(|run| {
            let steps: Duration = run.steps.iter().flatten().map(|calls| calls.took).sum();
            run.took.saturating_sub(steps)
        });
        let mut outside: Vec<Duration> = outside.collect();
        outside.sort_unstable();
        let nothing = || Failure::new("nothing was run").code(Code::Internal);
        Ok(Profile {
            steps: steps.collect(),
            run: median(&wall).ok_or_else(nothing)?,
            shortest: *wall.first().ok_or_else(nothing)?,
            overhead: median(&outside).ok_or_else(nothing)?,
            runs: runs.len(),
            threads: session.threads(),
            instruction_set: session.instruction_set(),
            arena_bytes: details.arena_bytes,
        })
    }

    /// Steps that take time.
    fn timed(&self) -> impl Iterator<Item = &Step> {
        self.steps.iter().filter(|step| step.time.is_some())
    }

    fn views(&self) -> usize {
        self.steps.iter().filter(|step| step.time.is_none()).count()
    }

    fn total(&self) -> Sum {
        let mut sum = Sum::default();
        self.timed().for_each(|step| sum.add(step));
        sum
    }

    /// Sums by operator, those that took most first.
    fn operators(&self) -> Vec<(&'static str, Sum)> {
        let mut found: HashMap<&'static str, Sum> = HashMap::new();
        for step in self.timed() {
            found.entry(step.info.op).or_default().add(step);
        }
        let mut sums: Vec<_> = found.into_iter().collect();
        sums.sort_by(|a, b| b.1.took.cmp(&a.1.took).then(a.0.cmp(b.0)));
        sums
    }

    fn share(&self, took: Duration) -> f64 {
        let all: Duration = self.timed().map(Step::took).sum();
        if all.is_zero() { 0.0 } else { took.as_secs_f64() / all.as_secs_f64() }
    }

    fn text(&self, args: &Args) -> String {
        let total = self.total();
        let percent = 100.0 * self.overhead.as_secs_f64() / self.run.as_secs_f64().max(1e-12);
        let mut text = String::new();
        let mut line = |name: &str, rest: String| text += &format!("{name:<8}  {rest}\n");
        line(
            "run",
            format!(
                "{} us, the median of {}; the shortest {} us; {}, {}",
                micros(self.run),
                count(self.runs, "run"),
                micros(self.shortest),
                count(self.threads, "thread"),
                self.instruction_set
            ),
        );
        line(
            "steps",
            format!(
                "{} us in {}; overhead {} us ({percent:.1} %)",
                micros(total.took),
                count(usize::try_from(total.calls).unwrap_or(usize::MAX), "step"),
                micros(self.overhead)
            ),
        );
        if self.views() > 0 {
            let views = human::group(self.views() as u64);
            line("views", format!("{views}, which are not run"));
        }
        if let Some(multiply_adds @ 1..) = total.multiply_adds {
            let speed = rate(2.0, Some(multiply_adds), total.took).unwrap_or(0.0);
            let number = human::group(multiply_adds);
            line("work", format!("{number} multiply-adds, {speed:.1} GFLOP/s"));
        }
        let arena = human::bytes(self.arena_bytes as u64);
        line("memory", format!("{arena} for intermediate values"));

        let right = Align::Right;
        let headings = [
            ("operator", Align::Left),
            ("calls", right),
            ("us", right),
            ("share", right),
            ("GFLOP/s", right),
            ("GB/s", right),
            ("kernel", Align::Left),
        ];
        let rows = self.operators().into_iter().map(|(operator, sum)| {
            let mut row = vec![operator.to_string(), sum.calls.to_string()];
            row.extend(self.speeds(sum.took, sum.multiply_adds, sum.bytes));
            row.push(cut(&sum.kernel()));
            row
        });
        text += "\n";
        text += &columns(&headings, &rows.collect::<Vec<_>>());

        let mut steps: Vec<(usize, &Step)> = self.steps.iter().enumerate().collect();
        if !args.all {
            steps.retain(|(_, step)| step.time.is_some());
            // A sort that keeps the order of equals.
            steps.sort_by_key(|(_, step)| std::cmp::Reverse(step.took()));
            steps.truncate(args.top);
        }
        if steps.is_empty() {
            return text;
        }
        let headings = [
            ("step", right),
            ("node", Align::Left),
            ("operator", Align::Left),
            ("us", right),
            ("share", right),
            ("GFLOP/s", right),
            ("GB/s", right),
            ("layout", Align::Left),
            ("sizes", Align::Left),
            ("kernel", Align::Left),
        ];
        let rows = steps.into_iter().map(|(index, step)| {
            let mut row = vec![index.to_string(), cut(&step.info.node), step.operator()];
            match step.time {
                Some(_) => row.extend(self.speeds(step.took(), step.multiply_adds(), step.bytes())),
                None => row.extend([const { String::new() }; 4]),
            }
            row.extend([step.layout(), step.dims(), cut(&step.info.kernel)]);
            row
        });
        text += "\n";
        text += &columns(&headings, &rows.collect::<Vec<_>>());
        text
    }

    /// Time, share, GFLOP/s and GB/s as cells.
    fn speeds(
        &self,
        took: Duration,
        multiply_adds: Option<u64>,
        bytes: Option<u64>,
    ) -> [String; 4] {
        let cell = |rate: Option<f64>| rate.map_or(String::new(), |rate| format!("{rate:.1}"));
        [
            micros(took),
            format!("{:.1} %", 100.0 * self.share(took)),
            cell(rate(2.0, multiply_adds, took)),
            cell(rate(1.0, bytes, took)),
        ]
    }

    fn json(&self, args: &Args) -> Value {
        let total = self.total();
        let operators = self.operators().into_iter().map(|(operator, sum)| {
            let kernels = sum.kernels.iter();
            let kernels: BTreeMap<&str, f64> =
                kernels.map(|(name, took)| (name.as_str(), rounded_micros(*took))).collect();
            json!({
                "operator": operator,
                "calls": sum.calls,
                "us": rounded_micros(sum.took),
                "share": rounded(self.share(sum.took)),
                "multiply_adds": sum.multiply_adds,
                "bytes": sum.bytes,
                "gflops": rate(2.0, sum.multiply_adds, sum.took).map(rounded),
                "gbps": rate(1.0, sum.bytes, sum.took).map(rounded),
                "kernels": kernels,
            })
        });
        let steps = self.steps.iter().map(|step| self.step_json(step));
        json!({
            "schema": SCHEMA,
            "model": args.model.name(),
            "threads": self.threads,
            "instruction_set": self.instruction_set,
            "runs": self.runs,
            "run_us": rounded_micros(self.run),
            "run_min_us": rounded_micros(self.shortest),
            "steps_us": rounded_micros(total.took),
            "overhead_us": rounded_micros(self.overhead),
            "views": self.views(),
            "multiply_adds": total.multiply_adds,
            "bytes": total.bytes,
            "arena_bytes": self.arena_bytes,
            "operators": operators.collect::<Vec<_>>(),
            "steps": steps.collect::<Vec<_>>(),
        })
    }

    fn step_json(&self, step: &Step) -> Value {
        let time = step.time;
        let rate = |factor, amount| rate(factor, amount, time?.0).map(rounded);
        let mut answer = steps::step_json(&step.info, &step.details);
        let measured = [
            ("calls", json!(step.calls)),
            ("us", json!(time.map(|(median, _)| rounded_micros(median)))),
            ("min_us", json!(time.map(|(_, min)| rounded_micros(min)))),
            ("share", json!(time.map(|(median, _)| rounded(self.share(median))))),
            ("gflops", json!(rate(2.0, step.multiply_adds()))),
            ("gbps", json!(rate(1.0, step.bytes()))),
        ];
        for (key, value) in measured {
            answer.insert(key.to_string(), value);
        }
        Value::Object(answer)
    }

    /// The run that is nearest to the median.
    fn nearest<'r>(&self, runs: &'r [Run]) -> Option<&'r Run> {
        runs.iter().min_by_key(|run| run.took.abs_diff(self.run))
    }

    /// A run in the trace event format.
    fn trace(&self, args: &Args, nearest: Option<&Run>) -> Value {
        let name = |what: &str, name: &str| json!({"name": what, "ph": "M", "pid": 1, "tid": 1, "args": {"name": name}});
        let mut events =
            vec![name("process_name", &args.model.name()), name("thread_name", "steps")];
        for event in nearest.into_iter().flat_map(|run| &run.events) {
            let step = &self.steps[event.step];
            events.push(json!({
                "name": step.operator(),
                "cat": step.info.op,
                "ph": "X",
                "pid": 1,
                "tid": 1,
                "ts": rounded_micros(event.start),
                "dur": rounded_micros(event.took),
                "args": {
                    "step": event.step,
                    "op": step.info.op,
                    "node": step.info.node,
                    "kernel": step.info.kernel,
                    "dims": step.dims(),
                    "layout": step.layout(),
                    "multiply_adds": step.details.multiply_adds,
                    "bytes": step.bytes_of_call(),
                },
            }));
        }
        json!({
            "traceEvents": events,
            "displayTimeUnit": "ns",
            "otherData": {
                "model": args.model.name(),
                "threads": self.threads,
                "instruction_set": self.instruction_set,
                "run_us": nearest.map(|run| rounded_micros(run.took)),
            },
        })
    }
}

/// Billions in a second. `None` if there is nothing to count.
fn rate(factor: f64, amount: Option<u64>, took: Duration) -> Option<f64> {
    let amount = amount.filter(|amount| *amount > 0)?;
    Some(factor * amount as f64 / took.as_nanos().max(1) as f64)
}

fn micros(took: Duration) -> String {
    format!("{:.1}", took.as_secs_f64() * 1e6)
}

fn rounded_micros(took: Duration) -> f64 {
    rounded(took.as_secs_f64() * 1e6)
}

/// To four digits after the point.
fn rounded(number: f64) -> f64 {
    (number * 1e4).round() / 1e4
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

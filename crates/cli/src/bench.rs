//! `sardonyx bench`: measures the load time, the latency of runs and the throughput of a model.

use std::panic::resume_unwind;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use sardonyx::run::{Run, Runner};
use sardonyx::tool::SessionExt;
use sardonyx::{Error, ErrorKind, Outputs, RunOptions, Value};
use serde::Serialize;

use crate::devices::DeviceArgs;
use crate::failure::{Code, Failure};
use crate::human;
use crate::inputs::{self, Inputs, gather_or_fill_all};
use crate::model_arg::ModelArg;
use crate::outputs;
use crate::saving;
use crate::session::{Opened, SessionArgs};
use crate::terminal::Terminal;
use crate::timing::{RepeatArgs, Timing, time_call, to_millis};

/// Benchmark a model: load time, first run, and repeated runs
///
/// If no inputs are given, they are filled as by --random 0.
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
    /// Number of concurrent callers, which share one session and its threads. With --devices,
    /// number of runs that are given to the devices at once; a time is that of all of them, divided
    /// by their number
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=256))]
    concurrency: u16,
    /// Print one line of JSON
    #[arg(long)]
    json: bool,
    /// Write the outputs, as `sardonyx run -o` does
    #[arg(short, long, value_name = "DIR|FILE")]
    output: Option<PathBuf>,
}

/// JSON answer of `bench`. Times are in milliseconds.
#[derive(Serialize)]
struct Report {
    schema: &'static str,
    model: String,
    threads: usize,
    concurrency: u16,
    instruction_set: String,
    /// Time to open the file and prepare the model for running.
    load_ms: f64,
    /// Duration of the first run.
    first_ms: f64,
    median_ms: f64,
    min_ms: f64,
    mean_ms: f64,
    /// Median duration, equal to `median_ms`; repeated beside the other percentiles.
    p50_ms: f64,
    p90_ms: f64,
    p95_ms: f64,
    p99_ms: f64,
    max_ms: f64,
    /// Throughput of all callers together.
    runs_per_second: f64,
    /// Number of measured runs, without the first run and the warm-up.
    n: usize,
    /// Size in bytes, before packing, of the constants that kernels packed; null on several
    /// devices.
    packed_bytes: Option<usize>,
    /// Size in bytes of the arena that holds the intermediate values of a run; null if unknown.
    arena_bytes: Option<usize>,
    /// Total size in bytes of the input and output tensors of a run.
    given_bytes: usize,
    /// Peak resident memory of the process, in MiB; null where the system does not report it.
    rss_peak_mb: Option<f64>,
}

/// Name and version of the schema of `bench --json`. The version rises when the meaning of a key
/// changes, not when a key is added.
const SCHEMA: &str = "sardonyx.bench/1";
/// Maximum number of measured runs. Without a maximum, the timings of a model that runs for a few
/// microseconds would fill the memory.
const MOST_RUNS: u64 = 1_000_000;

pub(crate) fn bench(args: &Args, terminal: &Terminal) -> Result<(), Failure> {
    let place = args.output.as_deref().map(outputs::Place::from_path).transpose()?;
    if place.as_ref().is_some_and(outputs::Place::is_stdout) {
        return Err(Failure::new("times and outputs cannot both be written to stdout")
            .help("name a file or a directory with --output"));
    }
    args.devices.refuse_ranks()?;
    let only_looks = args.devices.devices;
    let (loaded, mut load) = time_call(|| args.session.open(&args.model, only_looks, terminal));
    let loaded = loaded?;
    let (runner, more) =
        time_call(|| args.devices.start_runner(&loaded, &args.session, args.model.is_stdin()));
    load += more;
    let Some(running) = runner? else { return Ok(()) };
    let runner = &running.runner;
    let inputs = gather_or_fill_all(&args.inputs, &loaded, terminal)?;
    let Opened { model, session, .. } = &loaded;

    // Two sets of outputs at a time would count towards the peak memory, so the first set is
    // dropped before the next run.
    let values = inputs.named_values();
    let (outputs, first) = time_call(|| run_concurrently(runner, values, 1));
    drop(outputs?);

    let progress = terminal.progress("warming up", None);
    let (start, mut runs) = (Instant::now(), 0);
    while args.repeat.is_cold(runs, start.elapsed()) {
        run_concurrently(runner, inputs.named_values(), 1)?;
        runs += 1;
    }
    progress.set_message("running");
    let measured = measure(args, runner, &inputs)?;
    progress.finish_and_clear();
    if let (Some(place), Some(outputs)) = (&place, &measured.outputs) {
        let protected = saving::protect_inputs(&args.model, model, &inputs.files);
        outputs::write(outputs, place, &protected, terminal)?;
    }
    let timing = Timing::from_durations(&measured.durations)
        .ok_or_else(|| Failure::new("the benchmark measured no run").code(Code::Internal))?;
    let whole = if only_looks { None } else { Some(session) };
    let details = whole.and_then(|session| session.details(inputs.to_tensor_types()).ok());
    let report = Report {
        schema: SCHEMA,
        model: args.model.name(),
        threads: runner.threads(),
        concurrency: args.concurrency,
        instruction_set: session.instruction_set(),
        load_ms: to_millis(load),
        first_ms: to_millis(first),
        median_ms: timing.median_ms,
        min_ms: timing.min_ms,
        mean_ms: timing.mean_ms,
        p50_ms: timing.median_ms,
        p90_ms: timing.p90_ms,
        p95_ms: timing.p95_ms,
        p99_ms: timing.p99_ms,
        max_ms: timing.max_ms,
        runs_per_second: compute_runs_per_second(timing.runs, measured.took),
        n: timing.runs,
        packed_bytes: whole.map(|session| session.report().packed_bytes),
        given_bytes: count_tensor_bytes(&inputs, measured.outputs.as_ref()),
        arena_bytes: details.map(|details| details.arena_bytes),
        rss_peak_mb: read_peak_memory_mib(),
    };
    if args.json { terminal.json(&report, false) } else { terminal.print(&as_text(&report)) }
}

/// Measurements of the runs of a benchmark, over all concurrent callers.
struct Measured {
    /// Duration of each run. Dropping the previous outputs is not included, as that time depends on
    /// the caller.
    durations: Vec<Duration>,
    /// Wall-clock time from the start of the first run to the end of the last.
    took: Duration,
    /// Outputs of the last run of one of the callers; `None` if no caller ran the model.
    outputs: Option<Outputs>,
}

/// Runs the model with default options and returns the outputs. A session on devices makes
/// `at_once` concurrent runs and returns the outputs of the last run.
fn run_concurrently(
    runner: &Runner,
    values: Vec<(&str, Value)>,
    at_once: usize,
) -> Result<Outputs, Error> {
    let options = RunOptions::default();
    match runner {
        Runner::Devices(session) => {
            let runs = std::iter::repeat_n(values, at_once);
            Ok(session.run_many(runs, &options)?.pop().unwrap_or_default())
        }
        Runner::Session(session) => session.run(values, &options),
    }
}

/// Calls the model repeatedly from `--concurrency` threads and collects the durations.
fn measure(args: &Args, runner: &Runner, inputs: &Inputs) -> Result<Measured, Failure> {
    let (callers, at_once) = match runner {
        Runner::Devices(_) => (1, usize::from(args.concurrency)),
        Runner::Session(_) => (args.concurrency, 1),
    };
    let failed = AtomicBool::new(false);
    let start = Instant::now();
    let call = || {
        let mut durations = Vec::new();
        let mut outputs: Option<Outputs> = None;
        while !failed.load(Ordering::Relaxed)
            && args.repeat.has_next_run(durations.len() as u64, start.elapsed(), MOST_RUNS)
        {
            drop(outputs.take());
            let values = inputs.named_values();
            let (again, duration) = time_call(|| run_concurrently(runner, values, at_once));
            if again.is_err() {
                failed.store(true, Ordering::Relaxed);
            }
            outputs = Some(again?);
            durations.extend(std::iter::repeat_n(duration / at_once as u32, at_once));
        }
        Ok((durations, outputs))
    };
    // The last caller is this thread.
    let callers: Vec<Result<_, Failure>> = thread::scope(|scope| {
        let mut others = Vec::new();
        for _ in 1..callers {
            let spawned = thread::Builder::new().spawn_scoped(scope, call);
            if let Err(error) = &spawned {
                failed.store(true, Ordering::Relaxed);
                return vec![Err(
                    Failure::new(format!("cannot start a thread: {error}")).code(ErrorKind::Io)
                )];
            }
            others.extend(spawned);
        }
        let own = call();
        let others = others
            .into_iter()
            .map(|caller| caller.join().unwrap_or_else(|panic| resume_unwind(panic)));
        let mut all: Vec<_> = others.collect();
        all.push(own);
        all
    });
    let mut measured = Measured { durations: Vec::new(), took: start.elapsed(), outputs: None };
    for caller in callers {
        let (durations, outputs) = caller?;
        measured.durations.extend(durations);
        measured.outputs = outputs.or(measured.outputs);
    }
    Ok(measured)
}

/// Returns the total size in bytes of the input and output tensors of a run.
fn count_tensor_bytes(inputs: &Inputs, outputs: Option<&Outputs>) -> usize {
    let given = inputs.values.iter().map(|(_, value)| value);
    let made = outputs.into_iter().flat_map(Outputs::iter).map(|(_, value)| value);
    let tensors = given.chain(made).filter_map(|value| value.as_tensor());
    tensors.map(|tensor| tensor.bytes().len()).sum()
}

/// Returns the number of runs per second, rounded to two decimals.
fn compute_runs_per_second(runs: usize, took: Duration) -> f64 {
    let rate = runs as f64 / took.as_secs_f64().max(1e-9);
    (rate * 100.0).round() / 100.0
}

fn as_text(report: &Report) -> String {
    let mut text = String::new();
    let mut line = |name: &str, value: String| text += &format!("{name:<10}  {value:>14}\n");
    let times = [
        ("load", report.load_ms),
        ("first", report.first_ms),
        ("median", report.median_ms),
        ("min", report.min_ms),
        ("p90", report.p90_ms),
        ("p95", report.p95_ms),
        ("p99", report.p99_ms),
        ("max", report.max_ms),
    ];
    for (name, time) in times {
        line(name, format!("{time:.3} ms"));
    }
    line("throughput", format!("{:.2} runs/s", report.runs_per_second));
    line("runs", human::group_digits(report.n as u64));
    line("threads", report.threads.to_string());
    if report.concurrency > 1 {
        line("callers", report.concurrency.to_string());
    }
    if let Some(bytes) = report.arena_bytes {
        line("planned", human::format_bytes(bytes as u64));
    }
    let peak = report.rss_peak_mb;
    line("memory", peak.map_or("unknown".to_string(), |mib| format!("{mib:.1} MiB")));
    text
}

/// Reads the peak resident memory of this process in MiB, `VmHWM` in `/proc/self/status`; `None` if
/// the system does not report it.
fn read_peak_memory_mib() -> Option<f64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kib: f64 = line.split_whitespace().next()?.parse().ok()?;
    Some((kib / 102.4).round() / 10.0)
}

//! `sardonyx bench`: how long a model takes to load and to run.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use serde::Serialize;

use crate::failure::Failure;
use crate::files::Protected;
use crate::inputs::{self, gather};
use crate::run::{open, parse_threads};
use crate::terminal::Terminal;
use crate::timing::{Timing, millis, timed};
use crate::{ModelArg, outputs};

/// Time a model: loading, the first run, and repeated runs
#[derive(clap::Args)]
#[group(skip)]
pub(crate) struct Args {
    #[command(flatten)]
    model: ModelArg,
    #[command(flatten)]
    inputs: inputs::Args,
    /// Threads to use; by default one per processor
    #[arg(long, value_name = "N", value_parser = parse_threads)]
    threads: Option<usize>,
    /// Repeat for about this long; at least 7 times
    #[arg(long, value_name = "SECONDS", default_value_t = 2.0, value_parser = parse_budget)]
    budget: f64,
    /// Answer in one line of JSON
    #[arg(long)]
    json: bool,
    /// Write the outputs: to one .npz file, or to a folder
    #[arg(short, long, value_name = "FILE.npz|DIR")]
    output: Option<PathBuf>,
}

/// The answer. Times in milliseconds.
#[derive(Serialize)]
struct Report {
    schema: &'static str,
    model: String,
    threads: usize,
    /// Opening the file and making it ready to run.
    load_ms: f64,
    first_ms: f64,
    median_ms: f64,
    min_ms: f64,
    p95_ms: f64,
    /// Repeated runs, the first one not counted.
    n: usize,
    /// Most memory that the process ever held, in MiB; null where the system does not say.
    rss_peak_mb: Option<f64>,
}

const SCHEMA: &str = "sardonyx.bench/1";
const FEWEST_RUNS: usize = 7;
/// So that a model of microseconds does not fill the memory with timings.
const MOST_RUNS: usize = 1_000_000;

pub(crate) fn bench(args: &Args, terminal: &Terminal) -> Result<(), Failure> {
    let (loaded, load) = timed(|| open(&args.model, args.threads, terminal));
    let (model, session) = loaded?;
    let inputs = gather(&args.inputs, &model, session.inputs(), terminal)?;

    let values = inputs.values.clone();
    let (outputs, first) = timed(|| session.run(values));
    let mut outputs = outputs?;

    let progress = terminal.progress("running", None);
    let budget = Duration::from_secs_f64(args.budget);
    let start = Instant::now();
    let mut durations = Vec::new();
    while durations.len() < FEWEST_RUNS || (start.elapsed() < budget && durations.len() < MOST_RUNS)
    {
        let values = inputs.values.clone();
        let (again, duration) = timed(|| session.run(values));
        // Dropping the old outputs belongs to whoever uses them, not to the run.
        outputs = again?;
        durations.push(duration);
    }
    progress.finish_and_clear();

    if let Some(target) = &args.output {
        let mut protected = Protected::default();
        protected.add(&args.model.path);
        inputs.files.iter().for_each(|file| protected.add(file));
        outputs::write(&outputs, target, &protected)?;
    }
    let timing = Timing::of(&durations).ok_or_else(|| Failure::new("nothing was run"))?;
    let report = Report {
        schema: SCHEMA,
        model: args.model.name(),
        threads: session.threads(),
        load_ms: millis(load),
        first_ms: millis(first),
        median_ms: timing.median_ms,
        min_ms: timing.min_ms,
        p95_ms: timing.p95_ms,
        n: timing.runs,
        rss_peak_mb: peak_memory_mib(),
    };
    match args.json {
        true => terminal.json(&report, false),
        false => terminal.print(&as_text(&report)),
    }
}

fn as_text(report: &Report) -> String {
    let peak = report
        .rss_peak_mb
        .map_or("unknown".to_string(), |mib| format!("{mib:.1} MiB"));
    format!(
        "load    {:>12.3} ms\nfirst   {:>12.3} ms\nmedian  {:>12.3} ms\nmin     {:>12.3} ms\np95     {:>12.3} ms\nruns    {:>12}\nthreads {:>12}\nmemory  {peak:>12}\n",
        report.load_ms,
        report.first_ms,
        report.median_ms,
        report.min_ms,
        report.p95_ms,
        report.n,
        report.threads
    )
}

/// The high-water mark of this process's memory, as Linux keeps it.
fn peak_memory_mib() -> Option<f64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kib: f64 = line.split_whitespace().next()?.parse().ok()?;
    Some((kib / 102.4).round() / 10.0)
}

fn parse_budget(arg: &str) -> Result<f64, String> {
    match arg.parse::<f64>() {
        Ok(seconds) if (0.0..=86_400.0).contains(&seconds) => Ok(seconds),
        _ => Err("expected seconds, from 0 to 86400".to_string()),
    }
}

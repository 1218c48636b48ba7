//! `cargo xtask bench models`: whole models, ONNX Runtime and us.
//!
//! Figures are only worth comparing when both sides had the same machine at the same time: each
//! measurement is a process of its own, bound to as many processors as it has threads, and the two
//! sides take turns. Speed is their time divided by ours: of the best run that each had in any
//! round, and of the median runs, divided within a round. Times of two runs that gave different
//! outputs are not comparable at all, so outputs are checked in every round; where the model is one
//! of floats also against itself in double precision, which shows the side that is off.

mod cases;
mod document;
mod groups;
mod growing;
mod row;
mod sides;

pub(crate) use cases::{Case, zoo_cases};
pub(super) use document::{describe_machine, new_note, processor_facts};
pub(super) use row::{Accuracy, median};
pub(super) use sides::{Job, Sample, Sides, allowed_processors};

use crate::workspace::{artifacts, root};
use crate::{Result, shell};
use groups::Summary;
use growing::Growing;
use row::{Measured, Outcome, Round, Row};
use serde_json::{Value, json};
use sides::Precision;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

#[derive(clap::Args)]
pub(crate) struct Models {
    /// Models, or single cases such as resnet50.b1, or nodes for models of many small nodes, loops
    /// for models of one loop, or gpt2.growing for inputs of new sizes; all if none is named.
    names: Vec<String>,
    /// Numbers of threads to measure with.
    #[arg(long, value_delimiter = ',', default_value = "1,2")]
    threads: Vec<usize>,
    /// Number of rounds, in each of which both sides run once.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Seconds of repetition per measurement.
    #[arg(long, default_value_t = 2.0)]
    budget: f64,
    /// Fail also where we are not fast enough, or less accurate than we should be.
    #[arg(long)]
    bars: bool,
    /// Measure and judge our runs with fewer bits too.
    #[arg(long)]
    fast: bool,
    /// Do not run models in double precision as a judge.
    #[arg(long)]
    no_float64: bool,
    /// Write the tables into a new note under docs/measurements.
    #[arg(long)]
    write: bool,
    /// Print JSON instead of a table.
    #[arg(long)]
    json: bool,
    /// Measure this build of the command instead of building one.
    #[arg(long, value_name = "FILE")]
    pub(super) program: Option<PathBuf>,
    /// The directory of models without weights and of .case files [default: ../shared/zoo
    /// beside the checkout].
    #[arg(long, value_name = "DIR")]
    zoo: Option<PathBuf>,
    /// Only the model in examples/digits, briefly: does the bench itself still work?
    #[arg(long, conflicts_with_all = ["names", "zoo", "bars", "write"])]
    smoke: bool,
}

pub(crate) fn run(task: &Models) -> Result {
    let cases = if task.smoke { vec![Case::digits()] } else { select_cases(task)? };
    let budget = if task.smoke { 0.2 } else { task.budget };
    let sides = Sides::prepare(task.program.as_deref(), budget)?;

    let (mut rows, mut failures) = (Vec::new(), Vec::new());
    for case in &cases {
        let inputs = case.make_inputs()?;
        // The smoke run is about the bench, so it takes what the machine has.
        let available = sides.processors.len();
        let possible = |threads: &usize| !task.smoke || *threads <= available;
        for threads in task.threads.iter().copied().filter(possible) {
            let job = Job { case, inputs: &inputs, threads, processors: threads };
            match measure(&sides, job, task) {
                Ok(row) => {
                    eprintln!("{}", in_short(&row));
                    rows.push(row);
                }
                Err(reason) => {
                    failures.push(format!("{}, threads: {threads}: {reason}", case.name))
                }
            }
        }
    }

    let mut grown = Vec::new();
    if !task.smoke && growing::is_wanted(&task.names) {
        grown = growing::measure(&sides, &zoo(task)?, &task.threads, task.rounds)?;
    }

    let summaries = groups::summaries(&rows);
    let report = json!({
        "growing": grown.iter().map(Growing::to_json).collect::<Vec<_>>(),
        "cases": rows.iter().map(Row::to_json).collect::<Vec<_>>(),
        "groups": summaries.iter().map(Summary::to_json).collect::<Vec<_>>(),
    });
    let report = serde_json::to_string_pretty(&report)?;
    let file = if task.smoke { "models-smoke.json" } else { "models.json" };
    fs::write(artifacts("bench").join(file), &report)?;
    if task.json {
        println!("{report}");
    } else {
        print_table(&rows);
        print_summaries(&summaries);
        for growing in &grown {
            println!("{}", growing.in_words());
        }
    }
    if task.write {
        document::write(&rows, &summaries, &sides)?;
    }
    failures.extend(rows.iter().flat_map(Row::failures));
    if task.bars {
        failures.extend(groups::missed_bars(&rows, &summaries));
        failures.extend(grown.iter().filter_map(Growing::complaint));
    }
    if failures.is_empty() { Ok(()) } else { Err(failures.join("\n").into()) }
}

/// Returns the path of the models without weights, whether it exists or not.
pub(in crate::bench) fn zoo_at(given: Option<&Path>) -> PathBuf {
    given.map_or_else(|| root().join("../shared/zoo"), Path::to_path_buf)
}

/// Returns the directory of models without weights.
fn zoo(task: &Models) -> Result<PathBuf> {
    let zoo = zoo_at(task.zoo.as_deref());
    if !zoo.is_dir() {
        let hint = "pass --zoo DIR (NAME.onnx, NAME.weights.json and NAME.*.case), or --smoke to do without";
        return Err(format!("no models in {}: {hint}", zoo.display()).into());
    }
    Ok(zoo)
}

/// Prepares the selected cases: models are made or filled with weights.
fn select_cases(task: &Models) -> Result<Vec<Case>> {
    let zoo = zoo(task)?;
    let mut cases = Case::generate(&task.names)?;
    let is_other =
        |name: &&String| *name != growing::NAME && !cases.iter().any(|case| case.is(name));
    let others: Vec<String> = task.names.iter().filter(is_other).cloned().collect();
    if task.names.is_empty() || !others.is_empty() {
        cases.extend(zoo_cases(&zoo, &others)?);
    }
    Ok(cases)
}

fn measure(sides: &Sides, job: Job<'_>, task: &Models) -> Result<Row> {
    let row = |outcome| Row { case: job.case.name.clone(), threads: job.threads, outcome };
    let directory = artifacts("bench/outputs");
    fs::create_dir_all(&directory)?;
    let outputs =
        ["onnxruntime", "sardonyx", "fast"].map(|side| directory.join(format!("{side}.npz")));
    let [theirs, ours, fast] = &outputs;
    let mut measured = Measured::default();
    let mut float64 = None;
    for round in 0..if task.smoke { 1 } else { task.rounds } {
        // A side that writes nothing must not be judged by what it wrote last time.
        for old in outputs.iter().filter(|path| path.exists()) {
            fs::remove_file(old)?;
        }
        let ort = sides.ort(job, theirs)?;
        let sample = match sides.ours(job, Precision::Full.options(), ours)? {
            Ok(sample) => sample,
            Err(reason) => return Ok(row(Outcome::CannotRun(reason))),
        };
        let mut fast_sample = None;
        if task.fast {
            match sides.ours(job, Precision::Fast.options(), fast)? {
                Ok(sample) => fast_sample = Some(sample),
                Err(reason) => {
                    let problem = format!("fast: cannot run: {reason}");
                    measured.accuracy.add_problem(&problem);
                }
            }
        }
        // Only of models that run.
        if round == 0 && !task.no_float64 {
            match job.case.float64_outputs() {
                Ok(path) => float64 = path,
                Err(reason) => {
                    let problem = format!("no outputs in float64: {reason}");
                    measured.accuracy.add_problem(&problem);
                }
            }
        }
        let fast = fast_sample.is_some().then_some(fast.as_path());
        compare(sides, [theirs, ours], float64.as_deref(), fast, &mut measured.accuracy)?;
        measured.rounds.push(Round { ort, ours: sample, fast: fast_sample });
    }
    Ok(row(Outcome::Measured(measured)))
}

/// Adds the result of comparing outputs of a reference with ours.
pub(super) fn compare(
    sides: &Sides,
    outputs: [&Path; 2],
    float64: Option<&Path>,
    fast: Option<&Path>,
    accuracy: &mut Accuracy,
) -> Result {
    let mut command = Command::new(&sides.python);
    command.arg(root().join("tests/perf/compare_outputs.py")).args(outputs);
    for (flag, path) in [("--float64", float64), ("--fast", fast)] {
        if let Some(path) = path {
            command.arg(flag).arg(path);
        }
    }
    let verdict: Value = serde_json::from_str(&shell::output(&mut command)?)?;
    accuracy.add(&verdict);
    Ok(())
}

/// Formats a row in one line, for progress.
fn in_short(row: &Row) -> String {
    let name = row.name();
    match &row.outcome {
        Outcome::CannotRun(reason) => format!("{name}: cannot run: {reason}"),
        Outcome::Measured(measured) => {
            let (best, median) = (measured.speed(), measured.median_speed());
            format!("{name}: {best:.2}, median {median:.2}")
        }
    }
}

fn print_table(rows: &[Row]) {
    println!(
        "Milliseconds of the best and of the median run. Speed: ONNX Runtime's time divided by \
         ours. Creating the session, milliseconds, and memory, MB, as ours divided by ONNX \
         Runtime's."
    );
    println!(
        "{:22} {:>7} {:>10} {:>10} {:>6} {:>10} {:>10} {:>6} {:>8} {:>8} {:>7} {:>7} {:>7} {:>7}  outputs",
        "case",
        "threads",
        "ORT best",
        "ours",
        "speed",
        "ORT median",
        "ours",
        "speed",
        "session",
        "ours",
        "ratio",
        "memory",
        "ours",
        "ratio",
    );
    for row in rows {
        let measured = match &row.outcome {
            Outcome::CannotRun(reason) => {
                println!("{:22} {:>7} cannot run: {reason}", row.case, row.threads);
                continue;
            }
            Outcome::Measured(measured) => measured,
        };
        println!(
            "{:22} {:>7} {:>10.3} {:>10.3} {:>6.2} {:>10.3} {:>10.3} {:>6.2} {:>8.1} {:>8.1} \
             {:>7.2} {:>7.0} {:>7.0} {:>7.2}  {}",
            row.case,
            row.threads,
            measured.best(|round| round.ort.min_ms),
            measured.best(|round| round.ours.min_ms),
            measured.speed(),
            measured.median(|round| round.ort.median_ms),
            measured.median(|round| round.ours.median_ms),
            measured.median_speed(),
            measured.best(|round| round.ort.load_ms),
            measured.best(|round| round.ours.load_ms),
            measured.session_ratio(),
            measured.median(|round| round.ort.rss_peak_mb),
            measured.median(|round| round.ours.rss_peak_mb),
            measured.memory_ratio(),
            measured.accuracy.verdict(),
        );
        print_fast(measured);
    }
}

/// Formats a line for our runs with fewer bits, if there were any.
fn print_fast(measured: &Measured) {
    let speeds = measured.fast_best().zip(measured.fast_speed());
    let median = measured.fast_median(|sample| sample.median_ms);
    if let (Some((best, (speed, median_speed))), Some(median)) = (speeds, median) {
        println!(
            "{:>30} {:>10} {best:>10.3} {speed:>6.2} {:>10} {median:>10.3} {median_speed:>6.2}  error {:.1e}",
            "fast",
            "",
            "",
            measured.accuracy.fast.unwrap_or(f64::NAN),
        );
    }
}

fn print_summaries(summaries: &[Summary]) {
    println!(
        "\n{:24} {:>5} {:>6} {:>6} {:>8}",
        "geometric means", "cases", "best", "median", "smallest"
    );
    for summary in summaries {
        println!(
            "{:24} {:>5} {:>6.3} {:>6.3} {:>8.3}  {}",
            summary.group.name(),
            summary.cells,
            summary.best,
            summary.median,
            summary.smallest,
            summary.slowest
        );
    }
}

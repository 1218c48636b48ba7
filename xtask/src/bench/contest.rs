//! Parts shared by contests between a rival and us: processes bound to one processor, their
//! answers, and ratios within rounds.

use super::models::{allowed_processors, median};
use crate::workspace::{artifacts, build_release, root};
use crate::{Result, python, shell};
use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Options of contests between the onnx package and `check_bench`.
#[derive(clap::Args)]
pub(crate) struct Task {
    /// Only contests whose name contains one of these.
    names: Vec<String>,
    /// Number of rounds, in each of which both sides run once.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Leave the files, more than 1 GB.
    #[arg(long)]
    keep: bool,
    /// Tiny models, one round and no bars: does everything still run and agree?
    #[arg(long)]
    pub(super) smoke: bool,
}

impl Task {
    pub(super) fn rounds(&self) -> u32 {
        if self.smoke { 1 } else { self.rounds }
    }

    /// Makes the models, has those contests held that are wanted, and concludes. `job` is what both
    /// sides do.
    pub(super) fn hold<C>(
        &self,
        job: &str,
        contests: &[C],
        name: impl Fn(&C) -> &str,
        contest: impl Fn(&Sides, &C) -> Result<Vec<Row>>,
    ) -> Result {
        let suffix = if self.smoke { "-smoke" } else { "" };
        let sides = Sides::prepare(job, &format!("{job}{suffix}"))?;
        let held = || -> Result {
            let mut make = Command::new(&sides.ours);
            make.arg("make").arg(&sides.directory);
            shell::run(make.args(self.smoke.then_some("--smoke")))?;
            let mut rows = Vec::new();
            for next in contests {
                let wanted = |part: &String| name(next).contains(part.as_str());
                if self.names.is_empty() || self.names.iter().any(wanted) {
                    eprintln!("{}", name(next));
                    rows.extend(contest(&sides, next)?);
                }
            }
            conclude(&rows, &format!("{job}{suffix}.json"))
        };
        let result = held();
        if !self.keep && sides.directory.exists() {
            fs::remove_dir_all(&sides.directory)?;
        }
        result
    }
}

/// The onnx package and us, each on the same processor.
pub(super) struct Sides {
    python: PathBuf,
    script: PathBuf,
    ours: PathBuf,
    pub(super) directory: PathBuf,
    processor: usize,
    job: String,
}

impl Sides {
    fn prepare(job: &str, directory: &str) -> Result<Sides> {
        let requirements = root().join("tests/perf/io-requirements.txt");
        let processors = allowed_processors()?;
        Ok(Sides {
            python: python::environment(&artifacts("bench/onnx"), &requirements)?,
            script: root().join(format!("tests/perf/{job}_onnx.py")),
            ours: build_release("check_bench", &[])?,
            directory: artifacts("bench").join(directory),
            processor: *processors.first().ok_or("there is no processor")?,
            job: job.to_string(),
        })
    }

    /// Returns the command for a job of the rival on a model.
    pub(super) fn theirs(&self, job: &str, model: &Path) -> Command {
        let mut command = bound(self.processor, &self.python);
        command.arg(&self.script).arg(job).arg(model);
        command
    }

    /// Returns the command for our job on a model.
    pub(super) fn ours(&self, model: &Path) -> Command {
        let mut command = self.ours_without_model(&self.job);
        command.arg(model);
        command
    }

    /// Returns the command for a job of ours without a model.
    pub(super) fn ours_without_model(&self, job: &str) -> Command {
        let mut command = bound(self.processor, &self.ours);
        command.arg(job);
        command
    }

    /// Builds the program that does our jobs.
    pub(super) fn program(&self) -> &Path {
        &self.ours
    }
}

/// Binds a command to one processor.
pub(super) fn bound(processor: usize, program: &Path) -> Command {
    bound_to(&[processor], program)
}

/// Binds a command to some processors.
pub(super) fn bound_to(processors: &[usize], program: &Path) -> Command {
    let list: Vec<String> = processors.iter().map(usize::to_string).collect();
    let mut command = Command::new("taskset");
    command.args(["--cpu-list", &list.join(",")]);
    command.arg(program);
    command
}

/// Runs a process and parses the line of JSON that it prints.
pub(super) fn answer(command: &mut Command) -> Result<Value> {
    let line = shell::output(command)?;
    Ok(serde_json::from_str(line.trim())
        .map_err(|error| format!("{line:?} is no JSON: {error}"))?)
}

/// Figures of one process, printed by it or observed. Missing ones are NaN.
#[derive(Clone)]
pub(super) struct Sample {
    pub(super) first_ms: f64,
    pub(super) median_ms: f64,
    pub(super) min_ms: f64,
    pub(super) rss_before_mb: f64,
    pub(super) rss_peak_mb: f64,
    pub(super) found: String,
}

impl Sample {
    /// Reads the answer of a process.
    pub(super) fn new(answer: &Value) -> Result<Sample> {
        let times = answer["ms"].as_array().into_iter().flatten();
        let times: Vec<f64> = times.filter_map(Value::as_f64).collect();
        let figure = |name: &str| answer[name].as_f64().unwrap_or(f64::NAN);
        Ok(Sample {
            rss_before_mb: figure("rss_before_mb"),
            rss_peak_mb: figure("rss_peak_mb"),
            found: answer["found"].as_str().unwrap_or_default().to_string(),
            ..Sample::from_times(&times)?
        })
    }

    /// Builds a sample from times alone.
    pub(super) fn from_times(times: &[f64]) -> Result<Sample> {
        Ok(Sample {
            first_ms: *times.first().ok_or("no times")?,
            median_ms: median(times.iter().copied()),
            min_ms: times.iter().copied().fold(f64::INFINITY, f64::min),
            rss_before_mb: f64::NAN,
            rss_peak_mb: f64::NAN,
            found: String::new(),
        })
    }

    /// Returns the memory that the job added.
    pub(super) fn rss_added_mb(&self) -> f64 {
        self.rss_peak_mb - self.rss_before_mb
    }
}

/// Figures of a sample by name.
pub(super) type Figures = [(&'static str, fn(&Sample) -> f64)];

/// A pair of samples per round: the rival's and ours.
#[derive(Default)]
pub(super) struct Rounds(pub(super) Vec<(Sample, Sample)>);

impl Rounds {
    /// Computes the medians over the rounds of a figure of both sides.
    pub(super) fn median(&self, figure: impl Fn(&Sample) -> f64) -> (f64, f64) {
        (
            median(self.0.iter().map(|(theirs, _)| figure(theirs))),
            median(self.0.iter().map(|(_, ours)| figure(ours))),
        )
    }

    /// Computes the median over the rounds of the ratio of their figure to ours: our speed-up.
    pub(super) fn ratio(&self, figure: impl Fn(&Sample) -> f64) -> f64 {
        let ratios = self.0.iter().map(|(theirs, ours)| figure(theirs) / figure(ours));
        median(ratios)
    }

    /// Adds figures of both sides and their ratios to a row of a report.
    pub(super) fn report(&self, row: &mut Value, figures: &Figures) {
        row["rounds"] = json!(self.0.len());
        for (name, figure) in figures {
            let (theirs, ours) = self.median(figure);
            row[*name] = json!({ "rival": theirs, "sardonyx": ours, "ratio": self.ratio(figure) });
        }
    }
}

/// One line of the table of a contest about models in memory.
pub(super) struct Row {
    pub(super) contest: &'static str,
    /// Name of the row within the contest.
    pub(super) what: &'static str,
    /// Lowest accepted ratio of the rival's time to ours.
    pub(super) bar: Option<f64>,
    /// Megabytes that we may take beyond the bytes of the model.
    pub(super) memory_bar: Option<f64>,
    pub(super) rounds: Rounds,
}

impl Row {
    /// Returns the complaints about bars that are not reached.
    fn complaints(&self) -> Vec<String> {
        let Row { contest, what, .. } = self;
        let mut missed = Vec::new();
        let ratio = self.rounds.ratio(|sample| sample.median_ms);
        if let Some(bar) = self.bar.filter(|bar| ratio < *bar) {
            missed.push(format!("{contest}, {what}: {ratio:.2} times, the bar is {}", short(bar)));
        }
        let (_, memory) = self.rounds.median(Sample::rss_added_mb);
        if let Some(most) = self.memory_bar.filter(|most| memory > *most) {
            missed.push(format!("{contest}, {what}: {memory:.1} MB, the bar is {most}"));
        }
        missed
    }

    fn to_json(&self) -> Value {
        let mut row = json!({
            "contest": self.contest,
            "what": self.what,
            "bar": self.bar,
            "memory_bar_mb": self.memory_bar,
        });
        self.rounds.report(
            &mut row,
            &[
                ("median_ms", |sample| sample.median_ms),
                ("min_ms", |sample| sample.min_ms),
                ("rss_added_mb", Sample::rss_added_mb),
            ],
        );
        row
    }
}

/// Writes rows to a file of the artifacts, prints them, and fails if a bar is not reached.
fn conclude(rows: &[Row], file: &str) -> Result {
    let report: Vec<Value> = rows.iter().map(Row::to_json).collect();
    fs::write(artifacts("bench").join(file), serde_json::to_string_pretty(&report)?)?;
    print_table(rows);
    let failures: Vec<String> = rows.iter().flat_map(Row::complaints).collect();
    if failures.is_empty() { Ok(()) } else { Err(failures.join("\n").into()) }
}

fn print_table(rows: &[Row]) {
    println!(
        "Milliseconds; ratio: how many times faster we are. Memory: what came on top of the model's bytes, MB."
    );
    println!(
        "{:16} {:24} {:>9} {:>9} {:>7} {:>5} {:>9} {:>9} {:>7} {:>8} {:>7}",
        "contest", "", "median", "ours", "ratio", "bar", "best", "ours", "ratio", "memory", "ours"
    );
    for row in rows {
        let medians = row.rounds.median(|sample| sample.median_ms);
        let best = row.rounds.median(|sample| sample.min_ms);
        let memory = row.rounds.median(Sample::rss_added_mb);
        println!(
            "{:16} {:24} {:>9.2} {:>9.2} {:>7.2} {:>5} {:>9.2} {:>9.2} {:>7.2} {:>8} {:>7}{}",
            row.contest,
            row.what,
            medians.0,
            medians.1,
            row.rounds.ratio(|sample| sample.median_ms),
            row.bar.map_or(String::new(), short),
            best.0,
            best.1,
            row.rounds.ratio(|sample| sample.min_ms),
            megabytes(memory.0),
            megabytes(memory.1),
            if row.complaints().is_empty() { "" } else { "  missed" },
        );
    }
}

/// Formats a figure, or nothing where it was not measured.
fn megabytes(figure: f64) -> String {
    if figure.is_nan() { String::new() } else { format!("{figure:.1}") }
}

/// Formats a number with at most two digits after the point.
fn short(bar: f64) -> String {
    ((bar * 100.0).round() / 100.0).to_string()
}

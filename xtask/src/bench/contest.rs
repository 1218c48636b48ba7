//! What contests between a rival and us have in common: processes bound to one processor, what they answer, and ratios
//! within rounds.

use super::models::median;
use crate::{Result, shell};
use serde_json::{Value, json};
use std::path::Path;
use std::process::Command;

/// A command bound to one processor.
pub(super) fn bound(processor: usize, program: &Path) -> Command {
    let mut command = Command::new("taskset");
    command.args(["--cpu-list", &processor.to_string()]);
    command.arg(program);
    command
}

/// The line of JSON that a process prints.
pub(super) fn answer(command: &mut Command) -> Result<Value> {
    let line = shell::output(command)?;
    Ok(serde_json::from_str(line.trim())
        .map_err(|error| format!("{line:?} is no JSON: {error}"))?)
}

/// What one process said, or what was seen of it. Figures that it did not give are not a number.
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
    /// From the answer of a process.
    pub(super) fn new(answer: &Value) -> Result<Sample> {
        let times = answer["ms"].as_array().into_iter().flatten();
        let times: Vec<f64> = times.filter_map(Value::as_f64).collect();
        let figure = |name: &str| answer[name].as_f64().unwrap_or(f64::NAN);
        Ok(Sample {
            rss_before_mb: figure("rss_before_mb"),
            rss_peak_mb: figure("rss_peak_mb"),
            found: answer["found"].as_str().unwrap_or_default().to_string(),
            ..Sample::timed(&times)?
        })
    }

    /// Of times alone.
    pub(super) fn timed(times: &[f64]) -> Result<Sample> {
        Ok(Sample {
            first_ms: *times.first().ok_or("no times")?,
            median_ms: median(times.iter().copied()),
            min_ms: times.iter().copied().fold(f64::INFINITY, f64::min),
            rss_before_mb: f64::NAN,
            rss_peak_mb: f64::NAN,
            found: String::new(),
        })
    }

    /// The memory that came with the job.
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
    /// The medians over the rounds of a figure of both sides.
    pub(super) fn median(&self, figure: impl Fn(&Sample) -> f64) -> (f64, f64) {
        (
            median(self.0.iter().map(|(theirs, _)| figure(theirs))),
            median(self.0.iter().map(|(_, ours)| figure(ours))),
        )
    }

    /// The median over the rounds of their figure divided by ours: how many times faster we are.
    pub(super) fn ratio(&self, figure: impl Fn(&Sample) -> f64) -> f64 {
        let ratios = self
            .0
            .iter()
            .map(|(theirs, ours)| figure(theirs) / figure(ours));
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

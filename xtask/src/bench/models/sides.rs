//! The two programs that are measured: their options, commands and answers.

use super::cases::Case;
use crate::bench::contest::bound_to;
use crate::workspace::{artifacts, build_release, root};
use crate::{Result, python, shell};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

pub(in crate::bench) struct Sides {
    pub(super) python: PathBuf,
    /// Our command.
    pub(in crate::bench) ours: PathBuf,
    budget: f64,
    pub(super) processors: Vec<usize>,
}

/// A way of ours to run a model.
#[derive(Clone, Copy)]
pub(super) enum Precision {
    Full,
    /// With fewer bits where that is faster.
    Fast,
}

impl Precision {
    /// Returns the options of our command.
    pub(super) fn options(self) -> &'static [&'static str] {
        match self {
            Precision::Full => &[],
            Precision::Fast => &["--precision", "fast"],
        }
    }
}

/// One measurement: a model with inputs on some processors.
#[derive(Clone, Copy)]
pub(in crate::bench) struct Job<'a> {
    pub(in crate::bench) case: &'a Case,
    pub(in crate::bench) inputs: &'a [String],
    /// Threads of a session, or of each device.
    pub(in crate::bench) threads: usize,
    pub(in crate::bench) processors: usize,
}

/// Each side runs the model once in a process of its own before the one that is measured. So it
/// finds the model in the page cache, and memory as it has left it itself: what the other side has
/// just given back comes in other pieces, and getting memory from the host of a virtual machine
/// takes up to thirty times as long as clearing it.
impl Sides {
    /// Prepares both sides. `program` is our command; it is built if none is given.
    pub(in crate::bench) fn prepare(program: Option<&Path>, budget: f64) -> Result<Sides> {
        Ok(Sides {
            python: python::environment(
                &artifacts("bench"),
                &root().join("tests/perf/requirements.txt"),
            )?,
            ours: match program {
                Some(program) => program.canonicalize()?,
                None => build_release("sardonyx", &[])?,
            },
            budget,
            processors: allowed_processors()?,
        })
    }

    /// Returns the name and version that our command prints.
    pub(super) fn version(&self) -> Result<String> {
        let line = shell::output(Command::new(&self.ours).arg("--version"))?;
        Ok(line.trim().to_string())
    }

    pub(in crate::bench) fn ort(&self, job: Job<'_>, output: &Path) -> Result<Sample> {
        let script = root().join("tests/perf/run_ort.py");
        let mut first = self.bound(job.processors, &self.python)?;
        add_job(first.arg(&script).arg("--once"), job);
        shell::output(&mut first)?;
        let mut command = self.bound(job.processors, &self.python)?;
        add_job(command.arg(&script), job);
        self.add_measurement(&mut command, output);
        Sample::from_line(&shell::output(&mut command)?)
    }

    /// Returns the sample of a run with these options, or a short reason why it failed.
    pub(in crate::bench) fn ours(
        &self,
        job: Job<'_>,
        options: &[&str],
        output: &Path,
    ) -> Result<std::result::Result<Sample, String>> {
        let mut first = self.bound(job.processors, &self.ours)?;
        add_job(first.args(["run", "-q"]).args(options), job);
        // An error of this run occurs in the measurement as well.
        let _ = shell::attempt(&mut first)?;
        let mut command = self.bound(job.processors, &self.ours)?;
        add_job(command.args(["bench", "--json"]).args(options), job);
        self.add_measurement(&mut command, output);
        match shell::attempt(&mut command)? {
            Ok(line) => Sample::from_line(&line).map(Ok),
            Err(complaint) => Ok(Err(in_few_words(&complaint))),
        }
    }

    fn add_measurement(&self, command: &mut Command, output: &Path) {
        command.args(["--budget", &self.budget.to_string()]);
        command.arg("--output").arg(output);
    }

    /// Binds a command to the first `threads` of our processors.
    pub(in crate::bench) fn bound(&self, threads: usize, program: &Path) -> Result<Command> {
        let Some(processors) = self.processors.get(..threads) else {
            return Err(format!("there are only {} processors", self.processors.len()).into());
        };
        Ok(bound_to(processors, program))
    }
}

fn add_job(command: &mut Command, job: Job<'_>) {
    command.arg(&job.case.model).args(job.inputs);
    command.args(["--threads", &job.threads.to_string()]);
}

/// Lists the processors that this process may use.
pub(in crate::bench) fn allowed_processors() -> Result<Vec<usize>> {
    let status = fs::read_to_string("/proc/self/status")?;
    let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    let mut processors = Vec::new();
    for part in list.ok_or("/proc/self/status names no processors")?.trim().split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        processors.extend(first.parse::<usize>()?..=last.parse()?);
    }
    Ok(processors)
}

/// Shortens a complaint of our command: to the operators that it names, or else to the text after
/// `error:`.
fn in_few_words(complaint: &str) -> String {
    // `  LSTM, opset 18, 2 nodes: operator not implemented`, and beyond a screen
    // `  and 3 more: Scan, STFT, Unique`.
    let operators: Vec<&str> = complaint
        .lines()
        .filter_map(|line| {
            let line = line.trim();
            match line.strip_prefix("and ").and_then(|l| l.split_once(" more: ")) {
                Some((_, names)) => Some(names),
                None => line.split_once(", opset ").map(|(name, _)| name),
            }
        })
        .collect();
    if !operators.is_empty() {
        return operators.join(", ");
    }
    let error = complaint.lines().find_map(|line| line.trim().strip_prefix("error:"));
    let line = error.or_else(|| complaint.lines().last());
    line.unwrap_or_default().trim().to_string()
}

/// Figures that one process printed.
pub(in crate::bench) struct Sample {
    pub(super) load_ms: f64,
    pub(super) first_ms: f64,
    pub(in crate::bench) median_ms: f64,
    pub(super) min_ms: f64,
    pub(in crate::bench) rss_peak_mb: f64,
    /// Memory that our side cannot do without, part of the peak.
    pub(super) must_hold: Option<MustHold>,
    /// Version of ONNX Runtime.
    pub(super) version: Option<String>,
}

/// Bytes that a process must hold to run a model.
#[derive(Clone, Copy)]
pub(super) struct MustHold {
    /// Constants that are packed, as large as they are in the file: with full precision they stay
    /// that large.
    pub(super) packed: f64,
    /// Bytes of inputs, outputs and intermediate values.
    pub(super) live: f64,
}

impl MustHold {
    fn from_answer(answer: &Value) -> Option<MustHold> {
        let number = |key: &str| answer[key].as_f64();
        Some(MustHold {
            packed: number("packed_bytes")?,
            live: number("arena_bytes")? + number("given_bytes")?,
        })
    }
}

impl Sample {
    fn from_line(line: &str) -> Result<Sample> {
        let answer: Value = serde_json::from_str(line.trim())
            .map_err(|error| format!("{line:?} is no JSON: {error}"))?;
        let number = |key: &str| answer[key].as_f64().ok_or_else(|| format!("no {key} in {line}"));
        Ok(Sample {
            load_ms: number("load_ms")?,
            first_ms: number("first_ms")?,
            median_ms: number("median_ms")?,
            min_ms: number("min_ms")?,
            rss_peak_mb: number("rss_peak_mb")?,
            must_hold: MustHold::from_answer(&answer),
            version: answer["version"].as_str().map(str::to_string),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn complaints_become_short() {
        for (complaint, wanted) in [
            (
                "error: the model uses 2 operators that this release does not support\n  in \
                 m.onnx\n  LSTM, opset 18, 2 nodes: operator not implemented\n  ai.onnx.ml.Scaler, \
                 opset 1, 1 node: operator not implemented\n",
                "LSTM, ai.onnx.ml.Scaler",
            ),
            ("error: too many\n  A, opset 1, 1 node: no\n  and 2 more: B, C\n", "A, B, C"),
            ("error: no such file\n  in m.onnx\n", "no such file"),
            ("signal: 11 (SIGSEGV)", "signal: 11 (SIGSEGV)"),
            ("", ""),
        ] {
            assert_eq!(in_few_words(complaint), wanted);
        }
    }
}

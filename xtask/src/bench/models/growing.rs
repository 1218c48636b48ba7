//! Costs of inputs of new sizes: a decoder whose past gets longer by one position with every call.

use super::cases::{Case, zoo_cases};
use super::median;
use super::sides::Sides;
use crate::workspace::{build_release, root};
use crate::{Result, shell};
use serde_json::{Value, json};
use std::path::Path;
use std::process::Command;

/// Name of the case.
pub(super) const NAME: &str = "gpt2.growing";
/// The case of the zoo with which it begins, and how long the past is there.
const BEGINS_AS: (&str, usize) = ("gpt2.decode", 128);
const SIZES: usize = 128;

/// The largest part of the time of runs with sizes that another run has had, that runs with sizes
/// that none has had may take.
const BAR: f64 = 1.02;

/// The sums that one process has found.
#[derive(Clone, Copy)]
struct Sums {
    first_ms: f64,
    second_ms: f64,
}

impl Sums {
    fn from_line(line: &str) -> Result<Sums> {
        let answer: Value = serde_json::from_str(line.trim())
            .map_err(|error| format!("{line:?} is no JSON: {error}"))?;
        let number = |key: &str| answer[key].as_f64().ok_or_else(|| format!("no {key} in {line}"));
        Ok(Sums { first_ms: number("first_ms")?, second_ms: number("second_ms")? })
    }

    fn ratio(self) -> f64 {
        self.first_ms / self.second_ms
    }
}

/// Measurements with one number of threads: for each round, ONNX Runtime's sums and ours.
pub(super) struct Growing {
    threads: usize,
    rounds: Vec<[Sums; 2]>,
}

/// Whether the names ask for the case.
pub(super) fn is_wanted(names: &[String]) -> bool {
    names.is_empty() || names.iter().any(|name| name == NAME)
}

/// Measures the case; the two sides take turns.
pub(super) fn measure(
    sides: &Sides,
    zoo: &Path,
    threads: &[usize],
    rounds: u32,
) -> Result<Vec<Growing>> {
    let (begin, past) = BEGINS_AS;
    let cases = zoo_cases(zoo, &[begin.to_string()])?;
    let [case] = &cases[..] else {
        return Err(format!("{begin} is not one case").into());
    };
    let inputs = case.make_inputs()?;
    let ours = build_release("size_bench", &[])?;
    let script = root().join("tests/perf/grow_ort.py");
    let one = |mut command: Command, threads: usize| -> Result<Sums> {
        give(&mut command, case, &inputs, past, threads);
        Sums::from_line(&shell::output(&mut command)?)
    };
    let mut measured = Vec::new();
    for threads in threads.iter().copied() {
        let mut growing = Growing { threads, rounds: Vec::new() };
        for _ in 0..rounds {
            let mut python = sides.bound(threads, &sides.python)?;
            python.arg(&script);
            let theirs = one(python, threads)?;
            let ours = one(sides.bound(threads, &ours)?, threads)?;
            growing.rounds.push([theirs, ours]);
        }
        eprintln!("{}", growing.in_words());
        measured.push(growing);
    }
    Ok(measured)
}

/// Formats the arguments that both sides parse.
fn give(command: &mut Command, case: &Case, inputs: &[String], past: usize, threads: usize) {
    command.arg(&case.model).args(inputs);
    command.args(["--threads", &threads.to_string(), "--past", &past.to_string()]);
    command.args(["--sizes", &SIZES.to_string()]);
}

impl Growing {
    fn ratio(&self, side: usize) -> f64 {
        median(self.rounds.iter().map(|round| round[side].ratio()))
    }

    fn name(&self) -> String {
        let threads = if self.threads == 1 { "thread" } else { "threads" };
        format!("{NAME}, {} {threads}", self.threads)
    }

    pub(super) fn in_words(&self) -> String {
        let per_run = |side: usize| {
            let sums = self.rounds.iter().map(|round| round[side].first_ms);
            median(sums) / SIZES as f64
        };
        format!(
            "{}: {SIZES} new sizes take {:.3} times as long as the same again, the bar is {BAR}; ONNX Runtime: {:.3}; \
             milliseconds of a run: {:.2}, ONNX Runtime {:.2}",
            self.name(),
            self.ratio(1),
            self.ratio(0),
            per_run(1),
            per_run(0),
        )
    }

    /// Returns the complaint if the bar is missed.
    pub(super) fn complaint(&self) -> Option<String> {
        let ratio = self.ratio(1);
        (ratio > BAR).then(|| {
            let name = self.name();
            format!(
                "{name}: new sizes take {ratio:.3} times as long as known ones, the bar is {BAR}"
            )
        })
    }

    pub(super) fn to_json(&self) -> Value {
        let side = |side: usize| {
            let sums = self.rounds.iter().map(|round| round[side]);
            let sums = sums.map(|sums| json!([sums.first_ms, sums.second_ms]));
            json!({ "ratio": self.ratio(side), "first_and_second_ms": sums.collect::<Vec<_>>() })
        };
        json!({
            "case": NAME,
            "threads": self.threads,
            "sizes": SIZES,
            "onnxruntime": side(0),
            "ours": side(1),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn new_sizes_have_a_bar() {
        let sums = |first_ms: f64| Sums { first_ms, second_ms: 1000.0 };
        for (ours, misses) in [([1010.0, 1050.0, 1000.0], false), ([1030.0, 1050.0, 1000.0], true)]
        {
            let rounds = ours.map(|ours| [sums(1200.0), sums(ours)]).to_vec();
            let growing = Growing { threads: 1, rounds };
            assert_eq!(growing.complaint().is_some(), misses, "{}", growing.in_words());
            assert!(growing.in_words().contains("ONNX Runtime: 1.200"));
        }
    }

    #[test]
    fn a_line_without_both_sums_is_refused() {
        let sums = Sums::from_line("{\"first_ms\": 3.0, \"second_ms\": 2.0}\n").expect("both");
        assert_eq!(sums.ratio(), 1.5);
        assert!(Sums::from_line("{\"first_ms\": 3.0}").is_err());
    }
}

//! `cargo xtask bench check`: checking models; the onnx package and us.
//!
//! Both sides take the bytes of a model in memory and say whether it is valid, parsing included; sides take turns, each
//! measurement is a process bound to one processor that repeats its job, and ratios are computed within a round. Both must
//! accept the models, and refuse them once a name in them is changed. We do all that `sardonyx check` does by default,
//! which is more than the rival does.

use super::contest::{Rounds, Sample, answer, bound};
use super::models::allowed_processors;
use crate::workspace::{artifacts, build_release, root};
use crate::{Result, python, shell};
use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

#[derive(clap::Args)]
pub(crate) struct Check {
    /// Only contests whose name contains one of these.
    names: Vec<String>,
    /// How often the sides take turns.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Leave the files, more than 1 GB.
    #[arg(long)]
    keep: bool,
    /// Tiny models, one round and no bars: does everything still run and agree?
    #[arg(long)]
    smoke: bool,
}

/// A model, and what is asked of us.
struct Contest {
    name: &'static str,
    file: &'static str,
    /// Jobs of `check_onnx.py`, and what they call.
    rivals: &'static [(&'static str, &'static str)],
    /// How many times faster than the first rival we must be.
    bar: f64,
    /// Megabytes that we may take beyond the bytes of the model.
    memory_bar: Option<f64>,
    repeat: u32,
}

const CONTESTS: &[Contest] = &[
    Contest {
        name: "100,000 nodes",
        file: "nodes.onnx",
        rivals: &[
            ("check-bytes", "check_model(bytes)"),
            ("check-proto", "check_model(ModelProto)"),
        ],
        bar: 4.0,
        memory_bar: None,
        repeat: 7,
    },
    Contest {
        name: "1 GB of weights",
        file: "weights.onnx",
        rivals: &[("check-bytes", "check_model(bytes)")],
        bar: 100.0,
        memory_bar: Some(20.0),
        repeat: 3,
    },
];

pub(crate) fn run(task: &Check) -> Result {
    let requirements = root().join("tests/perf/io-requirements.txt");
    let sides = Sides {
        python: python::environment(&artifacts("bench/onnx"), &requirements)?,
        ours: build_release("sardonyx-tests", "check_bench", &[])?,
        folder: artifacts("bench").join(if task.smoke { "check-smoke" } else { "check" }),
        processor: *allowed_processors()?
            .first()
            .ok_or("there is no processor")?,
    };
    let result = contests(task, &sides);
    if !task.keep && sides.folder.exists() {
        fs::remove_dir_all(&sides.folder)?;
    }
    result
}

fn contests(task: &Check, sides: &Sides) -> Result {
    let mut make = Command::new(&sides.ours);
    make.arg("make").arg(&sides.folder);
    shell::run(make.args(task.smoke.then_some("--smoke")))?;
    let wanted = |contest: &&Contest| {
        task.names.is_empty() || task.names.iter().any(|name| contest.name.contains(name))
    };
    let mut rows = Vec::new();
    for contest in CONTESTS.iter().filter(wanted) {
        eprintln!("{}", contest.name);
        rows.extend(sides.contest(contest, task)?);
    }
    let report: Vec<Value> = rows.iter().map(Row::to_json).collect();
    let file = if task.smoke {
        "check-smoke.json"
    } else {
        "check.json"
    };
    fs::write(
        artifacts("bench").join(file),
        serde_json::to_string_pretty(&report)?,
    )?;
    print_table(&rows);
    let failures: Vec<String> = rows.iter().flat_map(Row::missed).collect();
    match failures.is_empty() {
        true => Ok(()),
        false => Err(failures.join("\n").into()),
    }
}

struct Sides {
    python: PathBuf,
    ours: PathBuf,
    folder: PathBuf,
    processor: usize,
}

impl Sides {
    fn contest(&self, contest: &'static Contest, task: &Check) -> Result<Vec<Row>> {
        let model = self.folder.join(contest.file);
        let broken = self.folder.join(format!("broken-{}", contest.file));
        for (model, valid) in [(&model, true), (&broken, false)] {
            for (job, name) in contest.rivals {
                self.agree(&self.theirs(job, model, 1)?, valid, name)?;
            }
            self.agree(&self.ours(model, 1)?, valid, "sardonyx")?;
        }
        fs::remove_file(broken)?;
        let mut rows: Vec<Row> = contest
            .rivals
            .iter()
            .enumerate()
            .map(|(index, (_, rival))| Row {
                contest,
                rival,
                barred: index == 0 && !task.smoke,
                rounds: Rounds::default(),
            })
            .collect();
        for _ in 0..if task.smoke { 1 } else { task.rounds } {
            for (row, (job, name)) in rows.iter_mut().zip(contest.rivals) {
                let theirs = self.theirs(job, &model, contest.repeat)?;
                self.agree(&theirs, true, name)?;
                let ours = self.ours(&model, contest.repeat)?;
                self.agree(&ours, true, "sardonyx")?;
                row.rounds.0.push((theirs, ours));
            }
        }
        Ok(rows)
    }

    fn agree(&self, sample: &Sample, valid: bool, who: &str) -> Result {
        let wanted = if valid { "valid" } else { "invalid" };
        match sample.found == wanted {
            true => Ok(()),
            false => Err(format!(
                "{who} says that a model is {}, which is {wanted}",
                sample.found
            )
            .into()),
        }
    }

    fn theirs(&self, job: &str, model: &Path, repeat: u32) -> Result<Sample> {
        let mut command = bound(self.processor, &self.python);
        command.arg(root().join("tests/perf/check_onnx.py"));
        command.arg(job).arg(model);
        Sample::new(&answer(command.args(["--repeat", &repeat.to_string()]))?)
    }

    fn ours(&self, model: &Path, repeat: u32) -> Result<Sample> {
        let mut command = bound(self.processor, &self.ours);
        command.arg("check").arg(model);
        Sample::new(&answer(command.args(["--repeat", &repeat.to_string()]))?)
    }
}

/// One line of the table.
struct Row {
    contest: &'static Contest,
    rival: &'static str,
    barred: bool,
    rounds: Rounds,
}

impl Row {
    /// What is wrong if a bar is not reached.
    fn missed(&self) -> Vec<String> {
        let mut missed = Vec::new();
        if !self.barred {
            return missed;
        }
        let Contest {
            name,
            bar,
            memory_bar,
            ..
        } = self.contest;
        let ratio = self.rounds.ratio(|sample| sample.median_ms);
        if ratio < *bar {
            missed.push(format!("{name}: {ratio:.2} times, the bar is {bar}"));
        }
        let (_, memory) = self.rounds.median(Sample::rss_added_mb);
        if let Some(most) = memory_bar.filter(|most| memory > *most) {
            missed.push(format!("{name}: {memory:.1} MB, the bar is {most}"));
        }
        missed
    }

    fn to_json(&self) -> Value {
        let mut row = json!({
            "contest": self.contest.name,
            "rival": self.rival,
            "bar": self.barred.then_some(self.contest.bar),
            "memory_bar_mb": self.contest.memory_bar.filter(|_| self.barred),
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

fn print_table(rows: &[Row]) {
    println!(
        "Milliseconds; ratio: how many times faster we are. Memory: what came on top of the model's bytes, MB."
    );
    println!(
        "{:16} {:24} {:>9} {:>9} {:>7} {:>5} {:>9} {:>9} {:>7} {:>8} {:>7}",
        "contest",
        "rival",
        "median",
        "ours",
        "ratio",
        "bar",
        "best",
        "ours",
        "ratio",
        "memory",
        "ours"
    );
    for row in rows {
        let medians = row.rounds.median(|sample| sample.median_ms);
        let best = row.rounds.median(|sample| sample.min_ms);
        let memory = row.rounds.median(Sample::rss_added_mb);
        println!(
            "{:16} {:24} {:>9.2} {:>9.2} {:>7.2} {:>5} {:>9.2} {:>9.2} {:>7.2} {:>8.1} {:>7.1}{}",
            row.contest.name,
            row.rival,
            medians.0,
            medians.1,
            row.rounds.ratio(|sample| sample.median_ms),
            match row.barred {
                true => row.contest.bar.to_string(),
                false => String::new(),
            },
            best.0,
            best.1,
            row.rounds.ratio(|sample| sample.min_ms),
            memory.0,
            memory.1,
            if row.missed().is_empty() {
                ""
            } else {
                "  missed"
            },
        );
    }
}

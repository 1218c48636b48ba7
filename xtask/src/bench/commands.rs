//! `cargo xtask bench commands`: commands as whole processes; the onnx package and us.
//!
//! A user waits for a process: for its start, for reading the model, for the answer, and for its
//! end. We are timed from starting the process to its exit, with its answer written to a
//! file. The rival is timed from calling a function of the onnx package to its return, in a process
//! that has imported the package before. Where the package has no such function, the rival
//! is a process of ours that opens the model and does nothing else. Sides take turns as in
//! [`bench check`](super::check), and what commands write is compared with what the package makes
//! of the same model.

use super::contest::{Rounds, Row, Sample, Sides, Task, answer};
use crate::Result;
use crate::workspace::build_release;
use std::fs;
use std::path::{Path, PathBuf};

/// A model, and the commands that are run on it.
struct Contest {
    name: &'static str,
    file: &'static str,
    commands: &'static [Command],
    repeat: u32,
}

struct Command {
    name: &'static str,
    /// Arguments of `sardonyx`; [`MODEL`] and [`OUTPUT`] stand for files.
    arguments: &'static [&'static str],
    against: Against,
    /// A job of `commands_onnx.py` that compares [`OUTPUT`], or the answer if there is none, with
    /// the model.
    compare: Option<&'static str>,
    /// Lowest accepted ratio of the rival's time to ours.
    bar: Option<f64>,
}

#[derive(Clone, Copy)]
enum Against {
    /// A job of `commands_onnx.py`.
    Onnx(&'static str),
    /// A process of ours that opens the model and does nothing else.
    Opening,
}

use Against::{Onnx, Opening};

const MODEL: &str = "MODEL";
const OUTPUT: &str = "OUTPUT";

/// At most a third of the rival's time.
const THIRD: Option<f64> = Some(3.0);
/// At most three times the time of opening.
const THRICE: Option<f64> = Some(1.0 / 3.0);
/// SHA-256 goes through all bytes one after the other, with the same instructions on both sides.
const AS_FAST: Option<f64> = Some(0.8);

const fn command(
    name: &'static str,
    arguments: &'static [&'static str],
    against: Against,
    bar: Option<f64>,
) -> Command {
    Command { name, arguments, against, compare: None, bar }
}

impl Command {
    const fn with_comparison(self, job: &'static str) -> Command {
        Command { compare: Some(job), ..self }
    }
}

const INFO: Command = command("info", &["info", MODEL], Opening, THRICE);
const INFO_JSON: Command = command("info --json", &["info", MODEL, "--json"], Opening, THRICE);
const LS: Command = command("ls", &["ls", MODEL], Opening, THRICE);
const CHECK: Command = command("check", &["check", MODEL], Onnx("check"), THIRD);
const SET: Command =
    command("set -o", &["set", MODEL, "--producer", "bench", "-o", OUTPUT], Onnx("copy"), THIRD)
        .with_comparison("compare-set");
const STRIP: Command =
    command("strip -o", &["strip", MODEL, "--names", "-o", OUTPUT], Onnx("copy"), THIRD)
        .with_comparison("compare-strip");
const PRINT: &[&str] = &["print", MODEL];
const INFER: Command = command("infer", &["infer", MODEL], Onnx("infer"), THIRD);
const INFER_TO_FILE: Command =
    command("infer -o", &["infer", MODEL, "-o", OUTPUT], Onnx("infer-path"), THIRD)
        .with_comparison("compare-infer");

const CONTESTS: &[Contest] = &[
    Contest {
        name: "100,000 nodes",
        file: "shapes.onnx",
        commands: &[
            INFO,
            INFO_JSON,
            LS,
            command("hash", &["hash", MODEL], Opening, THRICE),
            CHECK,
            SET,
            STRIP,
            command("print", PRINT, Onnx("print"), THIRD).with_comparison("compare-print"),
            command("print, its C++ part", PRINT, Onnx("print-core"), THIRD),
            INFER,
            INFER_TO_FILE,
            command("infer --json", &["infer", MODEL, "--json"], Onnx("infer"), None),
        ],
        repeat: 5,
    },
    Contest {
        name: "1 GB of weights",
        file: "weights.onnx",
        commands: &[
            INFO,
            LS,
            command("hash", &["hash", MODEL], Onnx("sha256"), AS_FAST),
            CHECK,
            SET,
            STRIP,
            // The package prints every number; we refer to the model's file.
            command("print", PRINT, Opening, THRICE).with_comparison("compare-print"),
            INFER,
            INFER_TO_FILE,
        ],
        repeat: 2,
    },
];

pub(crate) fn run(task: &Task) -> Result {
    let sardonyx = build_release("sardonyx", &[])?;
    let held = |sides: &Sides, contest: &Contest| {
        let bench = Bench {
            sides,
            sardonyx: &sardonyx,
            model: sides.directory.join(contest.file),
            output: sides.directory.join("output.onnx"),
            answer: sides.directory.join("answer"),
            repeat: contest.repeat,
        };
        bench.hold(contest, task)
    };
    task.hold("commands", CONTESTS, |contest| contest.name, held)
}

/// The programs and files of a contest.
struct Bench<'a> {
    sides: &'a Sides,
    sardonyx: &'a Path,
    model: PathBuf,
    output: PathBuf,
    /// File for the answers of commands.
    answer: PathBuf,
    repeat: u32,
}

impl Bench<'_> {
    fn hold(&self, contest: &Contest, task: &Task) -> Result<Vec<Row>> {
        let mut rows = Vec::new();
        for command in contest.commands {
            self.compare(command)?;
            rows.push(Row {
                contest: contest.name,
                what: command.name,
                bar: command.bar.filter(|_| !task.smoke),
                memory_bar: None,
                rounds: Rounds::default(),
            });
        }
        for _ in 0..task.rounds() {
            for (row, command) in rows.iter_mut().zip(contest.commands) {
                let theirs = self.other(command)?;
                let ours = self.ours(command, self.repeat)?;
                row.rounds.0.push((theirs, ours));
            }
        }
        fs::remove_file(&self.answer)?;
        Ok(rows)
    }

    /// Runs a command once, and has the package look at what it wrote.
    fn compare(&self, command: &Command) -> Result {
        let Some(job) = command.compare else {
            return Ok(());
        };
        self.ours(command, 1)?;
        let writes = command.arguments.contains(&OUTPUT);
        let written = if writes { &self.output } else { &self.answer };
        let mut compare = self.sides.theirs(job, &self.model);
        let verdict = Sample::new(&answer(compare.arg("--output").arg(written))?)?;
        match verdict.found.as_str() {
            "same" => Ok(()),
            difference => Err(format!("{}: {difference}", command.name).into()),
        }
    }

    fn ours(&self, command: &Command, repeat: u32) -> Result<Sample> {
        let mut timed = self.process(repeat);
        timed.arg(self.sardonyx);
        for argument in command.arguments {
            match *argument {
                MODEL => timed.arg(&self.model),
                OUTPUT => timed.arg(&self.output),
                other => timed.arg(other),
            };
        }
        Sample::new(&answer(&mut timed)?)
    }

    fn other(&self, command: &Command) -> Result<Sample> {
        let mut timed = match command.against {
            Onnx(job) => {
                let mut timed = self.sides.theirs(job, &self.model);
                timed.args(["--repeat", &self.repeat.to_string(), "--output"]);
                timed.arg(&self.output);
                timed
            }
            Opening => {
                let mut timed = self.process(self.repeat);
                timed.arg(self.sides.program()).arg("open").arg(&self.model);
                timed
            }
        };
        Sample::new(&answer(&mut timed)?)
    }

    /// Returns the command that times a process, without the program and its arguments.
    fn process(&self, repeat: u32) -> std::process::Command {
        let mut timed = self.sides.ours_without_model("process");
        timed.args(["--repeat", &repeat.to_string(), "--answer"]);
        timed.arg(&self.answer);
        timed.arg("--output").arg(&self.output).arg("--");
        timed
    }
}

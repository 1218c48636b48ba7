//! `cargo xtask bench check`: checking models; the onnx package and us.
//!
//! Both sides decide whether the bytes of a model in memory are valid, parsing included;
//! sides take turns, each measurement is a process bound to one processor that repeats its job, and
//! ratios are computed within a round. Both must accept the models, and refuse them once a name in
//! them is changed. We do all that `sardonyx check` does by default, which is more than the rival
//! does.

use super::contest::{Rounds, Row, Sample, Sides, Task, answer};
use crate::Result;
use std::fs;
use std::path::Path;

/// A model, and the job on our side.
struct Contest {
    name: &'static str,
    file: &'static str,
    /// Jobs of `check_onnx.py`, and what they call.
    rivals: &'static [(&'static str, &'static str)],
    /// Lowest accepted ratio of the first rival's time to ours.
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

pub(crate) fn run(task: &Task) -> Result {
    let held = |sides: &Sides, contest: &Contest| hold(sides, contest, task);
    task.hold("check", CONTESTS, |contest| contest.name, held)
}

fn hold(sides: &Sides, contest: &Contest, task: &Task) -> Result<Vec<Row>> {
    let model = sides.directory.join(contest.file);
    let broken = sides.directory.join(format!("broken-{}", contest.file));
    for (model, valid) in [(&model, true), (&broken, false)] {
        for (job, name) in contest.rivals {
            agree(&theirs(sides, job, model, 1)?, valid, name)?;
        }
        agree(&ours(sides, model, 1)?, valid, "sardonyx")?;
    }
    fs::remove_file(broken)?;
    let mut rows: Vec<Row> = contest
        .rivals
        .iter()
        .enumerate()
        .map(|(index, (_, rival))| {
            let barred = index == 0 && !task.smoke;
            Row {
                contest: contest.name,
                what: rival,
                bar: barred.then_some(contest.bar),
                memory_bar: contest.memory_bar.filter(|_| barred),
                rounds: Rounds::default(),
            }
        })
        .collect();
    for _ in 0..task.rounds() {
        for (row, (job, name)) in rows.iter_mut().zip(contest.rivals) {
            let theirs = theirs(sides, job, &model, contest.repeat)?;
            agree(&theirs, true, name)?;
            let ours = ours(sides, &model, contest.repeat)?;
            agree(&ours, true, "sardonyx")?;
            row.rounds.0.push((theirs, ours));
        }
    }
    Ok(rows)
}

fn agree(sample: &Sample, valid: bool, who: &str) -> Result {
    let wanted = if valid { "valid" } else { "invalid" };
    if sample.found == wanted {
        Ok(())
    } else {
        Err(format!("{who} says that a model is {}, which is {wanted}", sample.found).into())
    }
}

fn theirs(sides: &Sides, job: &str, model: &Path, repeat: u32) -> Result<Sample> {
    let mut command = sides.theirs(job, model);
    Sample::new(&answer(command.args(["--repeat", &repeat.to_string()]))?)
}

fn ours(sides: &Sides, model: &Path, repeat: u32) -> Result<Sample> {
    let mut command = sides.ours(model);
    Sample::new(&answer(command.args(["--repeat", &repeat.to_string()]))?)
}

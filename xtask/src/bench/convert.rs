//! `cargo xtask bench convert`: conversion between versions and inlining; the onnx package and us.
//!
//! Both sides take the bytes of a model and give those of the converted or inlined one; the rival
//! in its C++ part, without Python's messages around it. Sides take turns as in
//! [`bench check`](super::check). Both must make as many nodes of the same operators, with as many
//! attributes.

use super::contest::{Rounds, Row, Sample, Sides, Task, answer};
use crate::Result;

/// A model, and the conversion of it.
struct Contest {
    name: &'static str,
    file: &'static str,
    job: &'static str,
    /// Lowest accepted ratio of the rival's time to ours.
    bar: f64,
    repeat: u32,
    /// Upper limit of the rounds, as the rival takes minutes.
    rounds: Option<u32>,
}

const CONTESTS: &[Contest] = &[
    Contest {
        name: "convert 40,000 nodes from 13 to 21",
        file: "opset13.onnx",
        job: "convert",
        bar: 5.0,
        repeat: 3,
        rounds: None,
    },
    Contest {
        name: "convert 400,000 nodes from 13 to 21",
        file: "opset13-long.onnx",
        job: "convert",
        bar: 5.0,
        repeat: 1,
        rounds: Some(1),
    },
    Contest {
        name: "inline 4,000 calls of 10 nodes",
        file: "calls.onnx",
        job: "inline",
        bar: 3.0,
        repeat: 3,
        rounds: None,
    },
];

pub(crate) fn run(task: &Task) -> Result {
    let held = |sides: &Sides, contest: &Contest| hold(sides, contest, task);
    task.hold("convert", CONTESTS, |contest| contest.name, held)
}

fn hold(sides: &Sides, contest: &Contest, task: &Task) -> Result<Vec<Row>> {
    let model = sides.directory.join(contest.file);
    let mut row = Row {
        contest: contest.name,
        what: contest.job,
        bar: Some(contest.bar).filter(|_| !task.smoke),
        memory_bar: None,
        rounds: Rounds::default(),
    };
    let rounds = contest.rounds.map_or(task.rounds(), |most| most.min(task.rounds()));
    for _ in 0..rounds {
        let repeat = ["--repeat", &contest.repeat.to_string()];
        let theirs = Sample::new(&answer(sides.theirs(contest.job, &model).args(repeat))?)?;
        let mut ours = sides.ours(&model);
        ours.args(["--job", contest.job]).args(repeat);
        let ours = Sample::new(&answer(&mut ours)?)?;
        if theirs.found != ours.found {
            return Err(format!("the rival makes {}, we make {}", theirs.found, ours.found).into());
        }
        row.rounds.0.push((theirs, ours));
    }
    Ok(vec![row])
}

//! `cargo xtask bench infer`: shape inference; the onnx package and us.
//!
//! The rival takes the bytes of a model and gives those of the model with types, in its C++ part,
//! without Python's messages around it. Sides take turns as in [`bench check`](super::check). Both
//! must list the same values, and where the rival finds a number we must find it.

use super::contest::{Rounds, Row, Sample, Sides, Task, answer};
use crate::Result;
use std::fs;
use std::path::Path;

/// A model, and the ways in which we infer its shapes.
struct Contest {
    name: &'static str,
    file: &'static str,
    ways: &'static [Way],
    repeat: u32,
}

struct Way {
    name: &'static str,
    /// Flags of `check_bench infer`.
    flags: &'static [&'static str],
    /// Lowest accepted ratio of the rival's time to ours.
    bar: Option<f64>,
    /// Megabytes that we may take beyond the bytes of the model.
    memory_bar: Option<f64>,
}

const CONTESTS: &[Contest] = &[
    Contest {
        name: "100,000 nodes",
        file: "shapes.onnx",
        ways: &[
            Way {
                name: "like the rival",
                flags: &["--like-onnx"],
                bar: Some(4.0),
                memory_bar: None,
            },
            Way { name: "with expressions", flags: &[], bar: None, memory_bar: None },
        ],
        repeat: 3,
    },
    Contest {
        name: "1 GB of weights",
        file: "weights.onnx",
        ways: &[
            Way {
                name: "file to slices",
                flags: &["--map", "--slices"],
                bar: Some(100.0),
                memory_bar: Some(30.0),
            },
            Way { name: "file to one vector", flags: &["--map"], bar: None, memory_bar: None },
        ],
        repeat: 3,
    },
];

pub(crate) fn run(task: &Task) -> Result {
    let held = |sides: &Sides, contest: &Contest| hold(sides, contest, task);
    task.hold("infer", CONTESTS, |contest| contest.name, held)
}

fn hold(sides: &Sides, contest: &Contest, task: &Task) -> Result<Vec<Row>> {
    let model = sides.directory.join(contest.file);
    for way in contest.ways {
        compare(sides, &model, way)?;
    }
    let mut rows: Vec<Row> = contest
        .ways
        .iter()
        .map(|way| Row {
            contest: contest.name,
            what: way.name,
            bar: way.bar.filter(|_| !task.smoke),
            memory_bar: way.memory_bar.filter(|_| !task.smoke),
            rounds: Rounds::default(),
        })
        .collect();
    for _ in 0..task.rounds() {
        for (row, way) in rows.iter_mut().zip(contest.ways) {
            let repeat = ["--repeat", &contest.repeat.to_string()];
            let theirs = answer(sides.theirs("infer", &model).args(repeat))?;
            let ours = answer(sides.ours(&model).args(way.flags).args(repeat))?;
            row.rounds.0.push((Sample::new(&theirs)?, Sample::new(&ours)?));
        }
    }
    Ok(rows)
}

/// Whether both find the same.
fn compare(sides: &Sides, model: &Path, way: &Way) -> Result {
    let output = sides.directory.join("ours.onnx");
    answer(sides.ours(model).args(way.flags).arg("--output").arg(&output))?;
    let verdict = Sample::new(&answer(sides.theirs("compare", model).arg("--ours").arg(&output))?)?;
    fs::remove_file(output)?;
    match verdict.found.as_str() {
        "same" => Ok(()),
        difference => Err(format!("{}: {difference}", way.name).into()),
    }
}

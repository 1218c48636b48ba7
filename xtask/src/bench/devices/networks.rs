//! Networks on two devices against one session: how fast they are, whether they give the same, and
//! whether a transformer sends what its sums take and no more.

use super::Devices;
use crate::bench::models::{
    Accuracy, Case, Job, Sample, Sides, compare, median, zoo_at, zoo_cases,
};
use crate::workspace::artifacts;
use crate::{Result, shell};
use serde_json::{Value, json};
use std::fs;
use std::path::PathBuf;

/// Way to run a network, with two threads in all.
struct Way {
    name: &'static str,
    options: &'static [&'static str],
    /// Threads of the session, or of each device.
    threads: usize,
}

/// The first is the one that the others are compared with.
const WAYS: [Way; 3] = [
    Way { name: "one session", options: &[], threads: 2 },
    Way { name: "two threads", options: &["--devices"], threads: 1 },
    Way { name: "two processes", options: &["--devices", "--processes", "2"], threads: 1 },
];

/// Number of rounds, in each of which all ways run once.
const ROUNDS: usize = 3;
/// Seconds of repetition per measurement.
const BUDGET: f64 = 3.0;

/// The network that is timed, and the transformer whose bytes are counted.
const TIMED: &str = "bert_base.b8";
const COUNTED: &str = "gpt2.prefill";

/// Sizes of GPT-2: layers, elements of a position, positions of the case.
const LAYERS: u64 = 12;
const WIDTH: u64 = 768;
const POSITIONS: u64 = 128;

/// Measurements of networks.
pub(super) struct Networks {
    case: String,
    /// Times by way.
    timed: Vec<Timed>,
    sums: Option<Sums>,
}

/// A way of running a network, round by round.
#[derive(Default)]
struct Timed {
    samples: Vec<Sample>,
    /// Against ONNX Runtime, and against one session.
    accuracy: [Accuracy; 2],
}

/// Collective sums of a transformer in a run.
struct Sums {
    /// Bytes of sums over both devices that both need.
    bytes: u64,
    /// Number of sums.
    count: u64,
    /// Bytes of everything else.
    other_bytes: u64,
}

/// Measures networks; `None` where there are none.
pub(super) fn measure(task: &Devices) -> Result<Option<Networks>> {
    let zoo = zoo_at(task.zoo.as_deref());
    if !task.smoke && !zoo.is_dir() {
        eprintln!("no models in {}: networks are left out", zoo.display());
        return Ok(None);
    }
    let sides = Sides::prepare(None, if task.smoke { 0.2 } else { BUDGET })?;
    let one = |name: &str| -> Result<Case> {
        let found = zoo_cases(&zoo, &[name.to_string()])?.into_iter().next();
        found.ok_or_else(|| format!("the case '{name}' does not exist").into())
    };
    let (case, rounds) = if task.smoke { (Case::digits(), 1) } else { (one(TIMED)?, ROUNDS) };
    let timed = time_ways(&sides, &case, rounds)?;
    let sums = if task.smoke { None } else { Some(sums(&sides, &one(COUNTED)?)?) };
    Ok(Some(Networks { case: case.name, timed, sums }))
}

/// Annotates the network of a case for two devices.
fn annotate_network(sides: &Sides, case: &Case) -> Result<Case> {
    let directory = artifacts("bench/models");
    fs::create_dir_all(&directory)?;
    let model = directory.join(format!("{}.on2.onnx", case.name));
    let mut command = sides.bound(2, &sides.ours)?;
    command.arg("shard").arg(&case.model).args(["--devices", "2", "-q", "-o"]).arg(&model);
    shell::output(&mut command)?;
    Ok(Case { name: case.name.clone(), model, case: case.case.clone() })
}

fn time_ways(sides: &Sides, whole: &Case, rounds: usize) -> Result<Vec<Timed>> {
    let annotated = annotate_network(sides, whole)?;
    let inputs = whole.make_inputs()?;
    let directory = artifacts("bench/outputs");
    fs::create_dir_all(&directory)?;
    let output = |name: &str| directory.join(format!("devices {name}.npz"));
    let reference = output("onnxruntime");
    let outputs: Vec<PathBuf> = WAYS.iter().map(|way| output(way.name)).collect();
    let mut timed: Vec<Timed> = WAYS.iter().map(|_| Timed::default()).collect();
    for round in 0..rounds {
        for (index, way) in WAYS.iter().enumerate() {
            let case = if way.options.is_empty() { whole } else { &annotated };
            let job = Job { case, inputs: &inputs, threads: way.threads, processors: 2 };
            if round == 0 && index == 0 {
                sides.ort(Job { threads: 2, ..job }, &reference)?;
            }
            // A run without an output must not be judged by an earlier output.
            let _ = fs::remove_file(&outputs[index]);
            let sample = sides.ours(job, way.options, &outputs[index])?;
            timed[index].samples.push(sample.map_err(|why| format!("{}: {why}", way.name))?);
            let found = &outputs[index];
            for (accuracy, wanted) in
                timed[index].accuracy.iter_mut().zip([&reference, &outputs[0]])
            {
                compare(sides, [wanted.as_path(), found.as_path()], None, None, accuracy)?;
            }
        }
    }
    Ok(timed)
}

/// Counts the bytes that a transformer sends in a run.
fn sums(sides: &Sides, case: &Case) -> Result<Sums> {
    let annotated = annotate_network(sides, case)?;
    let mut command = sides.bound(2, &sides.ours)?;
    command.arg("profile").arg(&annotated.model).args(case.make_inputs()?);
    command.args(["--devices", "--threads", "1", "--runs", "1", "--json", "-q"]);
    let answer: Value = serde_json::from_str(&shell::output(&mut command)?)?;
    let mut sums = Sums { bytes: 0, count: 0, other_bytes: 0 };
    for moved in answer["moves"].as_array().ok_or("the profile has no moves")? {
        let form = |key: &str| moved[key].as_str().unwrap_or_default();
        let devices = moved["devices"].as_array().into_iter().flatten();
        let bytes: u64 = devices.filter_map(|device| device["sent_bytes"].as_u64()).sum();
        if form("from").contains("partial sums") && form("to") == "whole on 0 1" {
            sums.bytes += bytes;
            sums.count += 1;
        } else {
            sums.other_bytes += bytes;
        }
    }
    Ok(sums)
}

impl Sums {
    /// Computes the bytes of two sums of a layer: of the value of a layer, each device sends a half
    /// to the other, and its half of the result.
    fn formula() -> u64 {
        2 * 2 * POSITIONS * WIDTH * 4
    }

    /// Returns the bytes that a layer sends, without the last sum, which only one device needs.
    fn bytes_of_layer(&self) -> u64 {
        2 * self.bytes / self.count.max(1)
    }

    fn failure(&self) -> Option<String> {
        let is_right = self.bytes_of_layer() == Sums::formula()
            && (2 * LAYERS - 1..=2 * LAYERS).contains(&self.count);
        (!is_right).then(|| {
            format!(
                "{COUNTED}: {} sums of both devices send {} bytes; two in each of {LAYERS} layers \
                 were expected, which send {} bytes in a layer",
                self.count,
                self.bytes,
                Sums::formula()
            )
        })
    }
}

impl Networks {
    /// Computes the median ratio of the time of one session to that of a way.
    fn speed(&self, way: usize) -> f64 {
        let rounds = self.timed[0].samples.iter().zip(&self.timed[way].samples);
        median(rounds.map(|(whole, ours)| whole.median_ms / ours.median_ms))
    }

    /// Computes the ratio of the memory of a way's first process to that of one session.
    fn memory(&self, way: usize) -> f64 {
        let peak = |way: usize| median(self.timed[way].samples.iter().map(|one| one.rss_peak_mb));
        peak(way) / peak(0)
    }

    pub(super) fn to_json(&self) -> Value {
        let ways = WAYS.iter().zip(&self.timed).enumerate().map(|(index, (way, timed))| {
            let [reference, whole] = &timed.accuracy;
            json!({
                "name": way.name,
                "median_ms": timed.samples.iter().map(|one| one.median_ms).collect::<Vec<_>>(),
                "speed": self.speed(index),
                "memory": self.memory(index),
                "difference_from_onnxruntime": reference.difference,
                "difference_from_one_session": whole.difference,
            })
        });
        let sums = self.sums.as_ref().map(|sums| {
            json!({
                "case": COUNTED,
                "sums": sums.count,
                "bytes_of_layer": sums.bytes_of_layer(),
                "formula": Sums::formula(),
                "other_bytes": sums.other_bytes,
            })
        });
        json!({"case": self.case, "ways": ways.collect::<Vec<_>>(), "sums": sums})
    }

    pub(super) fn print(&self) {
        println!(
            "\n{:16} {:>10} {:>6} {:>7}  difference from ONNX Runtime, one session",
            self.case, "median ms", "speed", "memory"
        );
        for (index, (way, timed)) in WAYS.iter().zip(&self.timed).enumerate() {
            let [reference, whole] = &timed.accuracy;
            println!(
                "{:16} {:10.1} {:6.3} {:7.2}  {:.1e}, {:.1e}",
                way.name,
                median(timed.samples.iter().map(|one| one.median_ms)),
                self.speed(index),
                self.memory(index),
                reference.difference,
                whole.difference
            );
        }
        if let Some(sums) = &self.sums {
            println!(
                "\n{COUNTED}: {} sums of both devices, {} bytes in a layer, {} by the formula; \
                 {} bytes of everything else",
                sums.count,
                sums.bytes_of_layer(),
                Sums::formula(),
                sums.other_bytes
            );
        }
    }

    /// Lists outputs that differ, and bytes that contradict the formula.
    pub(super) fn failures(&self) -> Vec<String> {
        let problems = WAYS.iter().zip(&self.timed).flat_map(|(way, timed)| {
            let problems = timed.accuracy.iter().flat_map(|accuracy| &accuracy.problems);
            problems.map(move |problem| format!("{}, {}: {problem}", self.case, way.name))
        });
        problems.chain(self.sums.as_ref().and_then(Sums::failure)).collect()
    }
}

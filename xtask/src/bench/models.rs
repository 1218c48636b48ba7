//! `cargo xtask bench models`: whole models, ONNX Runtime and us.
//!
//! Figures are only worth comparing when both sides had the same machine at the same time: each measurement is a
//! process of its own, bound to as many processors as it has threads, and the two sides take turns. The ratio is
//! computed within a round; what is printed are medians over the rounds. Times of two runs that gave different
//! outputs are not comparable at all, so outputs are checked first.

use crate::conformance::python_with_onnx;
use crate::workspace::{artifacts, build_release, root, shown};
use crate::{Result, python, shell};
use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

#[derive(clap::Args)]
pub(crate) struct Models {
    /// Models, or single cases such as resnet50.b1; all of the zoo if none is named.
    names: Vec<String>,
    /// Numbers of threads to measure with.
    #[arg(long, value_delimiter = ',', default_value = "1,2")]
    threads: Vec<usize>,
    /// How often the two sides take turns.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Seconds of repetition per measurement.
    #[arg(long, default_value_t = 2.0)]
    budget: f64,
    /// Print JSON instead of a table.
    #[arg(long)]
    json: bool,
    /// The folder of models without weights and of .case files [default: ../shared/zoo beside the checkout].
    #[arg(long, value_name = "DIR")]
    zoo: Option<PathBuf>,
    /// Only the model in examples/digits, briefly: does the bench itself still work?
    #[arg(long, conflicts_with_all = ["names", "zoo"])]
    smoke: bool,
}

pub(crate) fn run(task: &Models) -> Result {
    let cases = if task.smoke {
        vec![digits()]
    } else {
        chosen(task)?
    };
    let sides = Sides::prepare(if task.smoke { 0.2 } else { task.budget })?;
    let rounds = if task.smoke { 1 } else { task.rounds };

    let (mut rows, mut failures) = (Vec::new(), Vec::new());
    for case in &cases {
        let inputs = case.make_inputs()?;
        // The smoke run is about the bench, so it takes what the machine has.
        let available = sides.processors.len();
        for &threads in task
            .threads
            .iter()
            .filter(|&&n| !task.smoke || n <= available)
        {
            eprintln!("{}, threads: {threads}", case.name);
            match measure(&sides, case, &inputs, threads, rounds) {
                Ok(row) => {
                    if !row.problems.is_empty() {
                        failures.push(format!(
                            "{}: outputs disagree: {}",
                            case.name,
                            row.problems.join("; ")
                        ));
                    }
                    rows.push(row);
                }
                Err(reason) => {
                    failures.push(format!("{}, threads: {threads}: {reason}", case.name))
                }
            }
        }
    }

    if task.json {
        let rows: Vec<Value> = rows.iter().map(Row::to_json).collect();
        println!("{}", serde_json::to_string_pretty(&rows)?);
    } else {
        print_table(&rows);
    }
    if failures.is_empty() {
        Ok(())
    } else {
        Err(failures.join("\n").into())
    }
}

/// A model with weights, and how its inputs are made.
pub(crate) struct Case {
    /// `resnet50.b1`
    pub(crate) name: String,
    pub(crate) model: PathBuf,
    pub(crate) case: PathBuf,
}

impl Case {
    /// The inputs as `NAME=FILE` words, which both sides understand.
    fn make_inputs(&self) -> Result<Vec<String>> {
        let folder = artifacts("bench/inputs").join(&self.name);
        let script = root().join("tests/perf/case_inputs.py");
        let words = shell::output(
            Command::new(python_with_onnx()?)
                .arg(script)
                .arg(&self.case)
                .arg(folder),
        )?;
        Ok(words.lines().map(str::to_string).collect())
    }
}

fn digits() -> Case {
    Case {
        name: "digits".into(),
        model: root().join("examples/digits/digits.onnx"),
        case: root().join("tests/perf/digits.case"),
    }
}

/// The cases that were asked for, their models filled with weights.
fn chosen(task: &Models) -> Result<Vec<Case>> {
    let zoo = match &task.zoo {
        Some(zoo) => zoo.clone(),
        None => root().join("../shared/zoo"),
    };
    if !zoo.is_dir() {
        let hint = "pass --zoo DIR (NAME.onnx, NAME.weights.json and NAME.*.case), or --smoke to do without";
        return Err(format!("no models in {}: {hint}", zoo.display()).into());
    }
    zoo_cases(&zoo, &task.names)
}

/// The cases in a folder that the names of models and cases ask for, or all of them, with their models filled.
pub(crate) fn zoo_cases(zoo: &Path, names: &[String]) -> Result<Vec<Case>> {
    let mut cases = Vec::new();
    for entry in fs::read_dir(zoo)? {
        let file = entry?.file_name().to_string_lossy().into_owned();
        if let Some(name) = file.strip_suffix(".case") {
            cases.push(name.to_string());
        }
    }
    cases.sort();
    for name in names {
        if !cases
            .iter()
            .any(|case| case == name || model_of(case) == name)
        {
            return Err(format!(
                "{name}: no such model or case; there are: {}",
                cases.join(", ")
            )
            .into());
        }
    }
    cases.retain(|case| {
        names.is_empty()
            || names
                .iter()
                .any(|name| case == name || model_of(case) == name)
    });
    cases.into_iter().map(|name| fill(zoo, name)).collect()
}

/// `resnet50` of `resnet50.b1`.
fn model_of(case: &str) -> &str {
    case.split_once('.').map_or(case, |(model, _)| model)
}

fn fill(zoo: &Path, name: String) -> Result<Case> {
    let file = format!("{}.onnx", model_of(&name));
    let (skeleton, model) = (zoo.join(&file), artifacts("bench/models").join(&file));
    let script = root().join("tests/perf/zoo_weights.py");
    if !is_newer(&model, &[&skeleton, &script]) {
        eprintln!("Filling {} with weights", shown(&model));
        fs::create_dir_all(artifacts("bench/models"))?;
        shell::run(
            Command::new(python_with_onnx()?)
                .arg(script)
                .arg(skeleton)
                .arg(&model),
        )?;
    }
    Ok(Case {
        case: zoo.join(format!("{name}.case")),
        name,
        model,
    })
}

fn is_newer(made: &Path, sources: &[&Path]) -> bool {
    let time = |path: &Path| {
        fs::metadata(path)
            .and_then(|metadata| metadata.modified())
            .ok()
    };
    time(made).is_some_and(|made| {
        sources
            .iter()
            .all(|source| time(source).is_some_and(|source| source <= made))
    })
}

/// The two programs that are measured, and what they share.
struct Sides {
    python: PathBuf,
    ours: PathBuf,
    budget: f64,
    processors: Vec<usize>,
}

impl Sides {
    fn prepare(budget: f64) -> Result<Sides> {
        Ok(Sides {
            python: python::environment(
                &artifacts("bench"),
                &root().join("tests/perf/requirements.txt"),
            )?,
            ours: build_release("sardonyx", &[])?,
            budget,
            processors: allowed_processors()?,
        })
    }

    fn ort(&self, threads: usize) -> Result<Command> {
        let mut command = self.bound(threads)?;
        command
            .arg(&self.python)
            .arg(root().join("tests/perf/run_ort.py"));
        Ok(command)
    }

    fn sardonyx(&self, threads: usize) -> Result<Command> {
        let mut command = self.bound(threads)?;
        command.arg(&self.ours).args(["bench", "--json"]);
        Ok(command)
    }

    /// A command that may use only the first `threads` of our processors.
    fn bound(&self, threads: usize) -> Result<Command> {
        let Some(processors) = self.processors.get(..threads) else {
            return Err(format!("there are only {} processors", self.processors.len()).into());
        };
        let list: Vec<String> = processors.iter().map(usize::to_string).collect();
        let mut command = Command::new("taskset");
        command.args(["--cpu-list", &list.join(",")]);
        Ok(command)
    }
}

/// The processors that this process may use.
pub(super) fn allowed_processors() -> Result<Vec<usize>> {
    let status = fs::read_to_string("/proc/self/status")?;
    let list = status
        .lines()
        .find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    let mut processors = Vec::new();
    for part in list
        .ok_or("/proc/self/status names no processors")?
        .trim()
        .split(',')
    {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        processors.extend(first.parse::<usize>()?..=last.parse()?);
    }
    Ok(processors)
}

/// What one process said.
struct Sample {
    load_ms: f64,
    first_ms: f64,
    median_ms: f64,
    min_ms: f64,
    rss_peak_mb: f64,
}

impl Sample {
    fn take(
        mut command: Command,
        case: &Case,
        inputs: &[String],
        sides: &Sides,
        threads: usize,
        output: &Path,
    ) -> Result<Sample> {
        command.arg(&case.model).args(inputs);
        command.args([
            "--threads",
            &threads.to_string(),
            "--budget",
            &sides.budget.to_string(),
            "--output",
        ]);
        command.arg(output);
        let line = shell::output(&mut command)?;
        let answer: Value = serde_json::from_str(line.trim())
            .map_err(|error| format!("{line:?} is no JSON: {error}"))?;
        let number = |key: &str| {
            answer[key]
                .as_f64()
                .ok_or_else(|| format!("no {key} in {line}"))
        };
        Ok(Sample {
            load_ms: number("load_ms")?,
            first_ms: number("first_ms")?,
            median_ms: number("median_ms")?,
            min_ms: number("min_ms")?,
            rss_peak_mb: number("rss_peak_mb")?,
        })
    }
}

/// One line of the table: a case at a number of threads, a pair of samples per round.
struct Row {
    name: String,
    threads: usize,
    rounds: Vec<(Sample, Sample)>,
    /// The largest difference of an output, as a part of its largest magnitude.
    worst: f64,
    problems: Vec<String>,
}

fn measure(
    sides: &Sides,
    case: &Case,
    inputs: &[String],
    threads: usize,
    rounds: u32,
) -> Result<Row> {
    let folder = artifacts("bench/outputs");
    fs::create_dir_all(&folder)?;
    let (theirs, ours) = (folder.join("onnxruntime.npz"), folder.join("sardonyx.npz"));
    let mut row = Row {
        name: case.name.clone(),
        threads,
        rounds: Vec::new(),
        worst: 0.0,
        problems: Vec::new(),
    };
    for _ in 0..rounds {
        // A side that writes nothing must not be judged by what it wrote last time.
        for old in [&theirs, &ours].into_iter().filter(|path| path.exists()) {
            fs::remove_file(old)?;
        }
        let ort = Sample::take(sides.ort(threads)?, case, inputs, sides, threads, &theirs)?;
        let sardonyx = Sample::take(
            sides.sardonyx(threads)?,
            case,
            inputs,
            sides,
            threads,
            &ours,
        )?;
        row.rounds.push((ort, sardonyx));

        let script = root().join("tests/perf/compare_outputs.py");
        let verdict = shell::output(
            Command::new(&sides.python)
                .arg(script)
                .arg(&theirs)
                .arg(&ours),
        )?;
        let verdict: Value = serde_json::from_str(&verdict)?;
        row.worst = row.worst.max(verdict["worst"].as_f64().unwrap_or(f64::NAN));
        for problem in verdict["problems"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
        {
            if !row.problems.iter().any(|known| known == problem) {
                row.problems.push(problem.to_string());
            }
        }
    }
    Ok(row)
}

impl Row {
    /// The median over the rounds of a figure of both sides.
    fn median(&self, figure: impl Fn(&Sample) -> f64) -> (f64, f64) {
        (
            median(self.rounds.iter().map(|(ort, _)| figure(ort))),
            median(self.rounds.iter().map(|(_, ours)| figure(ours))),
        )
    }

    /// The median over the rounds of our figure divided by theirs.
    fn ratio(&self, figure: impl Fn(&Sample) -> f64) -> f64 {
        median(
            self.rounds
                .iter()
                .map(|(ort, ours)| figure(ours) / figure(ort)),
        )
    }

    fn verdict(&self) -> &'static str {
        if self.problems.is_empty() {
            "agree"
        } else {
            "disagree"
        }
    }

    fn to_json(&self) -> Value {
        let figures: [(&str, fn(&Sample) -> f64); 5] = [
            ("load_ms", |sample| sample.load_ms),
            ("first_ms", |sample| sample.first_ms),
            ("median_ms", |sample| sample.median_ms),
            ("min_ms", |sample| sample.min_ms),
            ("rss_peak_mb", |sample| sample.rss_peak_mb),
        ];
        let mut row = json!({
            "case": self.name,
            "threads": self.threads,
            "rounds": self.rounds.len(),
            "outputs": self.verdict(),
            "worst_difference": self.worst,
            "problems": self.problems,
        });
        for (name, figure) in figures {
            let (ort, ours) = self.median(figure);
            row[name] =
                json!({ "onnxruntime": ort, "sardonyx": ours, "ratio": self.ratio(figure) });
        }
        row
    }
}

pub(super) fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    if values.len() % 2 == 1 {
        values[middle]
    } else {
        (values[middle - 1] + values[middle]) / 2.0
    }
}

fn print_table(rows: &[Row]) {
    println!("Milliseconds of the best and the median run; a ratio below 1: sardonyx is faster.");
    println!(
        "{:22} {:>7} {:>10} {:>10} {:>6} {:>10} {:>10} {:>6} {:>8} {:>8} {:>7} {:>7}  outputs",
        "case",
        "threads",
        "ORT best",
        "ours",
        "ratio",
        "ORT median",
        "ours",
        "ratio",
        "ORT load",
        "ours",
        "ORT MB",
        "ours"
    );
    for row in rows {
        let best = row.median(|sample| sample.min_ms);
        let median = row.median(|sample| sample.median_ms);
        let load = row.median(|sample| sample.load_ms);
        let memory = row.median(|sample| sample.rss_peak_mb);
        println!(
            "{:22} {:>7} {:>10.3} {:>10.3} {:>6.2} {:>10.3} {:>10.3} {:>6.2} {:>8.1} {:>8.1} {:>7.0} {:>7.0}  {} ({:.1e})",
            row.name,
            row.threads,
            best.0,
            best.1,
            row.ratio(|sample| sample.min_ms),
            median.0,
            median.1,
            row.ratio(|sample| sample.median_ms),
            load.0,
            load.1,
            memory.0,
            memory.1,
            row.verdict(),
            row.worst,
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians() {
        for (values, wanted) in [
            (vec![3.0], 3.0),
            (vec![9.0, 1.0, 2.0], 2.0),
            (vec![4.0, 1.0], 2.5),
        ] {
            assert_eq!(median(values.into_iter()), wanted);
        }
    }

    #[test]
    fn a_case_belongs_to_a_model() {
        assert_eq!(model_of("qwen2_0_5b.decode"), "qwen2_0_5b");
    }
}

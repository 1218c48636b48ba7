//! `cargo xtask bench threads`: how speed would grow with more threads than this machine has.
//!
//! The program records the chunks of each parallel region on one thread, cut as for many, and
//! simulates the pool with costs that are options. With one and two threads, which machines have,
//! the prediction stands beside the time of real runs.

use super::contest::bound_to;
use super::models::{allowed_processors, zoo_at};
use super::{Case, zoo_cases};
use crate::workspace::{artifacts, build_release};
use crate::{Result, shell};
use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};

#[derive(clap::Args)]
pub(crate) struct Threads {
    /// Models or single cases such as resnet50.b8, or products for products of random sizes; all if
    /// none is named.
    names: Vec<String>,
    /// Numbers of threads.
    #[arg(long, value_delimiter = ',', default_value = "1,2,4,8,16,32,64",
        value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: Vec<u16>,
    /// Milliseconds of repetition for each number of threads.
    #[arg(long, default_value_t = 500)]
    budget: u64,
    /// Fail where efficiency or the prediction for two threads is not good enough.
    #[arg(long)]
    bars: bool,
    /// Print JSON instead of a table.
    #[arg(long)]
    json: bool,
    /// Directory of models without weights and of .case files [default: ../shared/zoo beside the
    /// checkout].
    #[arg(long, value_name = "DIR")]
    zoo: Option<PathBuf>,
    /// Only the model in examples/digits, briefly: does the bench itself still work?
    #[arg(long, conflicts_with_all = ["names", "zoo", "bars"])]
    smoke: bool,
    /// Costs of the simulation after `--`, such as `-- --slow 0.5 --wake-ns 3000`; `-- --help`
    /// lists them.
    #[arg(last = true)]
    costs: Vec<String>,
}

/// Name of the case of random products.
const PRODUCTS: &str = "products";
/// Least efficiency of regions that compute, by number of threads.
const BARS: [(u64, f64); 2] = [(8, 0.9), (32, 0.75)];
/// Largest deviation of the prediction from real runs with two threads.
const DEVIATION: f64 = 0.1;

pub(crate) fn run(task: &Threads) -> Result {
    let program = build_release("thread_bench", &[])?;
    if task.costs.iter().any(|cost| cost == "--help") {
        return shell::run(std::process::Command::new(program).arg("--help"));
    }
    let mut rows = Vec::new();
    let mut measure = |name: &str, case: Option<&Case>| -> Result {
        let found = simulate(task, &program, name, case)?;
        if !task.json {
            print(name, &found);
        }
        rows.extend(found.into_iter().map(|row| Row { case: name.to_string(), row }));
        Ok(())
    };
    if task.smoke {
        measure("digits", Some(&Case::digits()))?;
    } else {
        let others: Vec<String> =
            task.names.iter().filter(|name| *name != PRODUCTS).cloned().collect();
        if task.names.len() != others.len() || task.names.is_empty() {
            measure(PRODUCTS, None)?;
        }
        if task.names.is_empty() || !others.is_empty() {
            for case in zoo_cases(&zoo_at(task.zoo.as_deref()), &others)? {
                measure(&case.name, Some(&case))?;
            }
        }
    }
    let report: Vec<Value> = rows.iter().map(Row::to_json).collect();
    let report = serde_json::to_string_pretty(&report)?;
    fs::create_dir_all(artifacts("bench"))?;
    let file = if task.smoke { "threads-smoke.json" } else { "threads.json" };
    fs::write(artifacts("bench").join(file), &report)?;
    if task.json {
        println!("{report}");
    }
    let missed: Vec<String> = rows.iter().flat_map(Row::complaints).collect();
    if task.bars && !missed.is_empty() { Err(missed.join("\n").into()) } else { Ok(()) }
}

/// Runs the program for one case.
fn simulate(task: &Threads, program: &Path, name: &str, case: Option<&Case>) -> Result<Vec<Value>> {
    let processors = allowed_processors()?;
    let mut command = bound_to(&processors[..processors.len().min(2)], program);
    if let Some(case) = case {
        command.arg(&case.model).args(case.make_inputs()?);
    }
    let threads: Vec<String> = if task.smoke {
        ["1", "2", "16"].map(str::to_string).to_vec()
    } else {
        task.threads.iter().map(u16::to_string).collect()
    };
    let budget = if task.smoke { 20 } else { task.budget };
    command.args(["--threads", &threads.join(","), "--budget", &budget.to_string()]);
    let lines = shell::output(command.args(&task.costs))?;
    let rows: serde_json::Result<Vec<Value>> = lines.lines().map(serde_json::from_str).collect();
    rows.map_err(|error| format!("{name}: {error}").into())
}

/// Prediction for one case and number of threads.
struct Row {
    case: String,
    row: Value,
}

/// Returns a figure of a row.
fn figure(row: &Value, key: &str) -> f64 {
    row[key].as_f64().unwrap_or(f64::NAN)
}

/// Returns the prediction divided by the time of real runs.
fn deviation(row: &Value) -> Option<f64> {
    Some(figure(row, "predicted_ms") / row["real_ms"].as_f64()?)
}

impl Row {
    fn to_json(&self) -> Value {
        let mut row = self.row.clone();
        row["case"] = json!(self.case);
        row["deviation"] = json!(deviation(&self.row));
        row
    }

    /// Returns the complaints about bars that are not reached.
    fn complaints(&self) -> Vec<String> {
        let (case, row) = (&self.case, &self.row);
        let threads = row["threads"].as_u64().unwrap_or_default();
        let mut missed = Vec::new();
        let efficiency = figure(row, "compute_bound");
        for (_, bar) in BARS.iter().filter(|(of, bar)| *of == threads && efficiency < *bar) {
            missed.push(format!(
                "{case}, threads: {threads}: efficiency {efficiency:.2}, the bar is {bar}"
            ));
        }
        if let Some(ratio) = deviation(row).filter(|ratio| (ratio - 1.0).abs() > DEVIATION)
            && threads == 2
        {
            missed.push(format!("{case}: predicted {ratio:.2} of the time of two real threads"));
        }
        missed
    }
}

fn print(name: &str, rows: &[Value]) {
    println!(
        "\n{name}\n{:>7} {:>10} {:>10} {:>6} {:>8} {:>10} {:>9} {:>8} {:>7} {:>7}  worst step, its parts and threads",
        "threads",
        "predicted",
        "real",
        "ratio",
        "speed-up",
        "efficiency",
        "computing",
        "balance",
        "memory",
        "serial",
    );
    for row in rows {
        let real = row["real_ms"].as_f64().map_or(String::new(), |real| format!("{real:.3}"));
        let ratio = deviation(row).map_or(String::new(), |ratio| format!("{ratio:.2}"));
        let worst = &row["worst"][0];
        println!(
            "{:>7} {:>10.3} {real:>10} {ratio:>6} {:>8.2} {:>10.2} {:>9.2} {:>8.2} {:>7.2} {:>7.2}  \
             {}: {} parts, {} threads, {:.1} % lost",
            row["threads"],
            figure(row, "predicted_ms"),
            figure(row, "speedup"),
            figure(row, "efficiency"),
            figure(row, "compute_bound"),
            figure(row, "balance"),
            figure(row, "memory_share"),
            figure(row, "serial_share"),
            worst["step"].as_str().unwrap_or_default(),
            worst["parts"],
            worst["threads"],
            100.0 * figure(worst, "lost"),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_are_those_of_the_number_of_threads() {
        let row = |threads: u64, efficiency: f64, predicted: f64| {
            let row = json!({
                "threads": threads, "compute_bound": efficiency, "predicted_ms": predicted,
                "real_ms": if threads == 2 { json!(1.0) } else { Value::Null },
            });
            Row { case: "x".into(), row }.complaints().len()
        };
        assert_eq!(row(8, 0.91, 1.0), 0);
        assert_eq!(row(8, 0.89, 1.0), 1);
        assert_eq!(row(32, 0.76, 1.0), 0);
        assert_eq!(row(32, 0.74, 1.0), 1);
        assert_eq!(row(2, 0.5, 1.09), 0);
        assert_eq!(row(2, 0.5, 0.89), 1);
    }
}

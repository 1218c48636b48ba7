//! `cargo xtask bench kernels`: how much of what the machine can do at most our kernels do.
//!
//! A kernel is bound by what it computes or by what it moves, so both are set against their peaks;
//! the larger share is the one to look at. Peaks are found in the same process with the same number
//! of threads, before and after each group.

use super::contest::bound_to;
use super::models::allowed_processors;
use crate::workspace::{artifacts, build_release};
use crate::{Result, shell};
use serde_json::{Value, json};
use std::{env, fs};

#[derive(clap::Args)]
pub(crate) struct Kernels {
    /// Number of threads.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=256))]
    threads: u16,
    /// Only measurements whose name, group included, contains this.
    #[arg(long, value_name = "NAME", default_value = "")]
    filter: String,
    /// Milliseconds for each measurement.
    #[arg(long, default_value_t = 200)]
    budget: u64,
    /// Let the kernels use no better instructions than these.
    #[arg(long, value_name = "NAME", value_parser = ["portable", "avx2", "avx512"])]
    isa: Option<String>,
    /// Print JSON instead of a table.
    #[arg(long)]
    json: bool,
    /// Compare kernels with the speeds that they must reach on every processor: shares of the peak
    /// with AVX2, for caches of 32 KB, 512 KB and 4 MB unless `SARDONYX_CACHES` has others.
    #[arg(long)]
    bars: bool,
}

/// Caches of the processors that the bars were set on.
const CACHES_OF_BARS: &str = "32K,512K,4M";

pub(crate) fn run(task: &Kernels) -> Result {
    let program = build_release("kernel_bench", &[])?;
    let processors = allowed_processors()?;
    let Some(processors) = processors.get(..usize::from(task.threads)) else {
        return Err(format!("there are only {} processors", processors.len()).into());
    };
    let mut command = bound_to(processors, &program);
    command.args(["--threads", &task.threads.to_string()]);
    command.args(["--budget", &task.budget.to_string()]);
    command.args(["--filter", &task.filter]);
    let isa = task.isa.as_deref().or(task.bars.then_some("avx2"));
    if let Some(isa) = isa {
        command.env("SARDONYX_ISA", isa);
    }
    if task.bars {
        command.arg("--bars");
        if env::var_os("SARDONYX_CACHES").is_none() {
            command.env("SARDONYX_CACHES", CACHES_OF_BARS);
        }
    }
    let lines = shell::output(&mut command)?;
    if task.bars {
        return report_bars(&lines, task.json);
    }
    let rows: Vec<Row> = lines.lines().map(Row::from_line).collect::<Result<_>>()?;
    if rows.is_empty() {
        return Err(format!("no measurement has {:?} in its name", task.filter).into());
    }
    let report: Vec<Value> = rows.iter().map(Row::to_json).collect();
    let report = serde_json::to_string_pretty(&report)?;
    fs::create_dir_all(artifacts("bench"))?;
    fs::write(artifacts("bench/kernels.json"), &report)?;
    if task.json {
        println!("{report}")
    } else {
        print_table(&rows)
    }
    Ok(())
}

/// Prints each measured speed beside its bar and its aim.
fn report_bars(lines: &str, as_json: bool) -> Result {
    let bars: Vec<Value> =
        lines.lines().map(serde_json::from_str).collect::<serde_json::Result<_>>()?;
    if bars.is_empty() {
        return Err("no bar has the filter in its name".into());
    }
    let report = serde_json::to_string_pretty(&bars)?;
    fs::create_dir_all(artifacts("bench"))?;
    fs::write(artifacts("bench/bars.json"), &report)?;
    if as_json {
        println!("{report}");
        return Ok(());
    }
    println!("{:52} {:>7} {:>7} {:>7}", "", "value", "bar", "aim");
    for bar in &bars {
        let [value, limit, aim] =
            ["value", "bar", "aim"].map(|key| bar[key].as_f64().unwrap_or(f64::NAN));
        println!(
            "{:52} {value:>7.2} {limit:>7.2} {aim:>7.2}  {:4}  {}",
            bar["bar_of"].as_str().unwrap_or_default(),
            if bar["is_met"] == true { "met" } else { "MISS" },
            bar["unit"].as_str().unwrap_or_default(),
        );
    }
    let met = bars.iter().filter(|bar| bar["is_met"] == true).count();
    println!("{met} of {} bars are met", bars.len());
    Ok(())
}

/// One measurement.
struct Row {
    group: String,
    name: String,
    isa: String,
    threads: u64,
    times: Times,
    /// Times with cold weights, of layers.
    cold: Option<Times>,
    flops: f64,
    bytes: f64,
    from_memory: bool,
    peaks: Peaks,
}

/// Durations of calls, in seconds.
#[derive(Clone, Copy)]
struct Times {
    best: f64,
    median: f64,
}

/// Rate of a row in a second, and its share of the peak.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Rate {
    rate: f64,
    share: f64,
}

/// Operations and bytes in a second.
#[derive(Clone, Copy)]
struct Peaks {
    multiply_add: f64,
    bf16_dot: Option<f64>,
    memory: f64,
    cache: f64,
}

impl Row {
    fn from_line(line: &str) -> Result<Row> {
        let line: Value = serde_json::from_str(line)?;
        let text = |key: &str| line[key].as_str().unwrap_or_default().to_string();
        let peaks = &line["peaks"];
        Ok(Row {
            group: text("group"),
            name: text("name"),
            isa: text("isa"),
            threads: line["threads"].as_u64().unwrap_or_default(),
            times: Times::from_json(&line["times"])?,
            cold: Some(&line["cold"])
                .filter(|cold| !cold.is_null())
                .map(Times::from_json)
                .transpose()?,
            flops: number(&line["flops"])?,
            bytes: number(&line["bytes"])?,
            from_memory: line["from_memory"] == true,
            peaks: Peaks {
                multiply_add: number(&peaks["multiply_add"])?,
                bf16_dot: peaks["bf16_dot"].as_f64(),
                memory: number(&peaks["memory"])?,
                cache: number(&peaks["cache"])?,
            },
        })
    }

    /// Returns the operations per second of the best run; `None` if it is not about computing.
    fn computing(&self, times: Times) -> Option<Rate> {
        let rate = self.flops / times.best;
        (self.flops > 0.0).then_some(Rate { rate, share: rate / self.peaks.multiply_add })
    }

    /// Returns the bytes per second of the best run, against the memory or cache that most come
    /// from.
    fn moving(&self, times: Times, from_memory: bool) -> Option<Rate> {
        let rate = self.bytes / times.best;
        let peak = if from_memory { self.peaks.memory } else { self.peaks.cache };
        (self.bytes > 0.0).then_some(Rate { rate, share: rate / peak })
    }

    fn to_json(&self) -> Value {
        let mut row = self.figures(self.times, self.from_memory);
        row["group"] = json!(self.group);
        row["name"] = json!(self.name);
        row["isa"] = json!(self.isa);
        row["threads"] = json!(self.threads);
        row["cold"] = json!(self.cold.map(|cold| self.figures(cold, true)));
        row["peaks"] = json!({
            "gflop_per_s": giga(self.peaks.multiply_add),
            "bf16_gflop_per_s": self.peaks.bf16_dot.map(giga),
            "memory_gb_per_s": giga(self.peaks.memory),
            "cache_gb_per_s": giga(self.peaks.cache),
        });
        row
    }

    /// Returns durations and rates as JSON.
    fn figures(&self, times: Times, from_memory: bool) -> Value {
        let (computing, moving) = (self.computing(times), self.moving(times, from_memory));
        json!({
            "best_us": times.best * 1e6,
            "median_us": times.median * 1e6,
            "gflop_per_s": computing.map(|found| giga(found.rate)),
            "gflop_share": computing.map(|found| found.share),
            "gb_per_s": moving.map(|found| giga(found.rate)),
            "gb_share": moving.map(|found| found.share),
            "from": if from_memory { "memory" } else { "cache" },
        })
    }
}

impl Times {
    fn from_json(times: &Value) -> Result<Times> {
        Ok(Times { best: number(&times["best_s"])?, median: number(&times["median_s"])? })
    }
}

fn number(value: &Value) -> Result<f64> {
    value.as_f64().ok_or_else(|| "a figure is missing".into())
}

fn giga(rate: f64) -> f64 {
    rate * 1e-9
}

fn print_table(rows: &[Row]) {
    println!(
        "Microseconds of the best and of the median run; rates of the best one, as shares of the \
         peaks around the group. Bytes: all that is read and written, once each, from memory or \
         the second cache. Layers have figures with weights that stay in the caches if they fit, \
         and with cold ones: 80 MB of copies in turn."
    );
    let mut group = "";
    for row in rows {
        if row.group != group {
            group = &row.group;
            print_header(row);
        }
        let source = match (row.bytes > 0.0, row.from_memory) {
            (false, _) => "",
            (true, true) => "memory",
            (true, false) => "cache",
        };
        let figures = format_figures(row, row.times, row.from_memory);
        let cold = row.cold.map_or(String::new(), |cold| format_figures(row, cold, true));
        println!("{}", format!("  {:36} {figures} {source:6} {cold}", row.name).trim_end());
    }
}

/// Renders durations and rates in columns.
fn format_figures(row: &Row, times: Times, from_memory: bool) -> String {
    let [computing, moving] =
        [row.computing(times), row.moving(times, from_memory)].map(|found| match found {
            Some(Rate { rate, share }) => format!("{:>9.1} {:>4.0} %", giga(rate), share * 100.0),
            None => " ".repeat(16),
        });
    format!("{:>11.2} {:>11.2} {computing} {moving}", times.best * 1e6, times.median * 1e6)
}

/// Prints the group's name, its peaks and the names of columns.
fn print_header(row: &Row) {
    let peaks = row.peaks;
    let bf16 = peaks.bf16_dot.map_or(String::new(), |rate| format!(" ({:.0} of bf16)", giga(rate)));
    println!(
        "\n{}: {}, threads: {}, peaks {:.0} GFLOP/s{bf16}, {:.1} GB/s from memory, {:.0} from the second cache",
        row.group,
        row.isa,
        row.threads,
        giga(peaks.multiply_add),
        giga(peaks.memory),
        giga(peaks.cache),
    );
    let columns = format!("{:>11} {:>11} {:>16} {:>16}", "best", "median", "GFLOP/s", "GB/s");
    match row.cold {
        Some(_) => println!("  {:36} {columns} {:6} {columns} of cold weights", "", ""),
        None => println!("  {:36} {columns}", ""),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_shares_of_the_right_peaks() {
        let line = |from_memory: bool, cold: Value| {
            let peaks =
                json!({ "multiply_add": 100.0, "bf16_dot": null, "memory": 10.0, "cache": 40.0 });
            let row = json!({
                "group": "g", "name": "n", "isa": "Avx2", "threads": 1,
                "times": { "best_s": 0.5, "median_s": 0.7, "runs": 3 }, "cold": cold,
                "flops": 25.0, "bytes": 4.0, "from_memory": from_memory, "peaks": peaks,
            });
            Row::from_line(&row.to_string())
        };
        let row = line(true, json!(null)).expect("it is whole");
        assert_eq!(row.computing(row.times), Some(Rate { rate: 50.0, share: 0.5 }));
        assert_eq!(row.moving(row.times, true), Some(Rate { rate: 8.0, share: 0.8 }));
        assert_eq!(row.to_json()["gb_share"], 0.8);
        assert!(row.to_json()["cold"].is_null());
        let row = line(false, json!({ "best_s": 1.0, "median_s": 2.0 })).expect("it is whole");
        assert_eq!(row.to_json()["gb_share"], 0.2);
        assert_eq!(row.to_json()["cold"]["gb_share"], 0.4);
        assert_eq!(row.to_json()["cold"]["gflop_share"], 0.25);
        assert!(line(false, json!({ "best_s": 1.0 })).is_err());
        assert!(Row::from_line("{}").is_err());
    }
}

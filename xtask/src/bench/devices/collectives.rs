//! Collectives between workers that are threads, against what the machine needs for a barrier of
//! the standard library and a copy of as many bytes.

use crate::bench::contest::bound_to;
use crate::workspace::build_release_example;
use crate::{Result, shell};
use serde_json::{Value, json};

/// The measurements that must not take more than so many times the barrier and the copy.
const BARS: &[(&str, f64)] = &[("all-reduce of 1 MB", 10.0)];

/// Times the collectives on two processors; only a few calls for a smoke test.
pub(super) fn measure(processors: &[usize], smoke: bool) -> Result<Vec<Row>> {
    let program = build_release_example("devices_bench")?;
    let mut command = bound_to(processors, &program);
    command.args(smoke.then_some("--smoke"));
    shell::output(&mut command)?.lines().map(Row::from_line).collect()
}

/// One measurement: seconds of a call, and of a barrier and a copy of as many bytes.
pub(super) struct Row {
    name: String,
    seconds: f64,
    copy_seconds: f64,
}

impl Row {
    fn from_line(line: &str) -> Result<Row> {
        let line: Value = serde_json::from_str(line)?;
        let number = |key: &str| line[key].as_f64().ok_or(format!("{key} is missing"));
        Ok(Row {
            name: line["name"].as_str().ok_or("name is missing")?.to_string(),
            seconds: number("seconds")?,
            copy_seconds: number("copy_seconds")?,
        })
    }

    fn ratio(&self) -> f64 {
        self.seconds / self.copy_seconds
    }

    pub(super) fn to_json(&self) -> Value {
        json!({
            "name": self.name,
            "us": self.seconds * 1e6,
            "copy_us": self.copy_seconds * 1e6,
            "ratio": self.ratio(),
        })
    }
}

pub(super) fn print(rows: &[Row]) {
    println!("{:32} {:>10} {:>16} {:>6}", "between two threads", "us", "barrier, copy us", "ratio");
    for row in rows {
        let (us, copy_us) = (row.seconds * 1e6, row.copy_seconds * 1e6);
        println!("{:32} {us:10.1} {copy_us:16.1} {:6.2}", row.name, row.ratio());
    }
}

/// Lists collectives that take longer than allowed or were not measured.
pub(super) fn failures(rows: &[Row]) -> Vec<String> {
    missed_bars(rows, BARS)
}

fn missed_bars(rows: &[Row], bars: &[(&str, f64)]) -> Vec<String> {
    let failure = |(name, bar): &(&str, f64)| match rows.iter().find(|row| row.name == *name) {
        None => Some(format!("{name} was not measured")),
        Some(row) if row.ratio() > *bar => {
            let ratio = row.ratio();
            Some(format!("{name} takes {ratio:.2} times a barrier and a copy; the bar is {bar}"))
        }
        Some(_) => None,
    };
    bars.iter().filter_map(failure).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slow_and_missing_measurements_miss_the_bar() {
        let line = r#"{"name": "a", "bytes": 1, "seconds": 3e-6, "copy_seconds": 2e-6}"#;
        let rows = [Row::from_line(line).expect("it is complete")];
        assert_eq!(missed_bars(&rows, &[("a", 1.5)]), [""; 0]);
        let found = missed_bars(&rows, &[("a", 1.25), ("b", 1.0)]);
        assert_eq!(
            found,
            ["a takes 1.50 times a barrier and a copy; the bar is 1.25", "b was not measured"]
        );
        assert!(Row::from_line(r#"{"name": "a", "seconds": 1}"#).is_err());
    }
}

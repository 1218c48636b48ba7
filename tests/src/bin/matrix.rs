//! Runs the cases of `cargo xtask matrix`, one for each type that a version of an operator accepts,
//! and compares the outcomes with the table of results and the list of cells that do not pass.

use clap::Parser;
use sardonyx_tests::cells::{self, Cell};
use sardonyx_tests::expectations::Expectations;
use sardonyx_tests::outcome::Outcome;
use sardonyx_tests::{run_case, workers};
use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::fs;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Duration;

/// Time limit of a case. The slowest cases take a second.
const LIMIT: Duration = Duration::from_secs(60);
const HEADER: &str = "operator\tversion\tvariable\ttype\toutcome\tjudge";

#[derive(Parser)]
struct Arguments {
    /// Directory of cases.
    #[arg(required_unless_present = "worker")]
    cases: Option<PathBuf>,
    /// List of cells that do not pass.
    #[arg(required_unless_present = "worker")]
    expectations: Option<PathBuf>,
    /// Table of all cells.
    #[arg(required_unless_present = "worker")]
    results: Option<PathBuf>,
    /// The directory holds only some of all cells.
    #[arg(long)]
    partial: bool,
    /// Rewrite list and table from the outcomes of this run.
    #[arg(long)]
    bless: bool,
    /// With --bless, also list cells that give wrong values, panic or hang.
    #[arg(long)]
    allow_wrong: bool,
    /// Run the cases of standard input for another process.
    #[arg(long, hide = true)]
    worker: bool,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    match run(&arguments) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("matrix: {error}");
            ExitCode::from(2)
        }
    }
}

/// Runs the cells. Returns whether every outcome is as expected.
fn run(arguments: &Arguments) -> Result<bool, Box<dyn Error>> {
    if arguments.worker {
        workers::serve(run_case::run_case)?;
        return Ok(true);
    }
    let (Some(directory), Some(list), Some(table)) =
        (&arguments.cases, &arguments.expectations, &arguments.results)
    else {
        return Err("the directory of cases, the expectations and the results are needed".into());
    };
    let text = fs::read_to_string(list).map_err(|error| format!("{}: {error}", list.display()))?;
    let mut expectations =
        Expectations::parse(&text).map_err(|why| format!("{}: {why}", list.display()))?;
    let cells = cells::read(directory)?;
    let outcomes = run_cells(&cells, directory)?;
    print_counts(&cells, &outcomes);

    let ran = |cell: &str| !arguments.partial || outcomes.contains_key(cell);
    let surprises = expectations.surprises(&outcomes, ran);
    surprises.iter().for_each(|surprise| println!("{surprise}"));
    let lines = cells.iter().map(|cell| cell.write_line(&outcomes[&cell.id])).collect();
    let results = Results::read(table)?;
    let changes = results.changes(&lines, arguments.partial);
    changes.iter().for_each(|change| println!("{change}"));

    let bugs = surprises.iter().filter(|surprise| surprise.is_bug()).count();
    if arguments.bless && (bugs == 0 || arguments.allow_wrong) {
        expectations.adopt(&surprises);
        fs::write(list, expectations.to_string())?;
        results.with(&lines, arguments.partial).write(table)?;
        println!("blessed {} changes", surprises.len().max(changes.len()));
        return Ok(true);
    }
    if arguments.bless {
        println!(
            "not blessed: {bugs} cells give wrong values, panic or hang; fix them, or pass --allow-wrong as well"
        );
    }
    Ok(surprises.is_empty() && changes.is_empty())
}

fn run_cells(
    cells: &[Cell],
    directory: &Path,
) -> Result<BTreeMap<String, Outcome>, Box<dyn Error>> {
    let mut outcomes = BTreeMap::new();
    let mut cases = Vec::new();
    for cell in cells {
        match cell.case(directory) {
            Ok(case) => cases.push(case),
            Err(failure) => {
                outcomes.insert(cell.id.clone(), Err(failure));
            }
        }
    }
    let program = std::env::current_exe()?;
    let worker = || {
        let mut command = Command::new(&program);
        command.arg("--worker");
        command
    };
    let count = std::thread::available_parallelism()?.get();
    workers::run_all(&cases, count, LIMIT, worker, |case, outcome| {
        outcomes.insert(case.id.clone(), outcome);
        ControlFlow::Continue(())
    });
    Ok(outcomes)
}

fn print_counts(cells: &[Cell], outcomes: &BTreeMap<String, Outcome>) {
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for cell in cells {
        let outcome = match &outcomes[&cell.id] {
            Ok(()) => format!("passed: {}", cell.judge),
            Err(failure) => failure.class.label().to_string(),
        };
        *counts.entry(outcome).or_default() += 1;
    }
    for (outcome, count) in counts {
        println!("{outcome:26} {count:5}");
    }
    let passed = outcomes.values().filter(|outcome| outcome.is_ok()).count();
    println!("matrix: {passed} of {} cells passed", cells.len());
}

/// Lines of the table of results, without its header.
struct Results(BTreeSet<String>);

impl Results {
    fn read(path: &Path) -> Result<Results, Box<dyn Error>> {
        let text = fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()));
        Ok(Results(text?.lines().skip(1).map(str::to_string).collect()))
    }

    /// Lists the differences from the table: new lines, and lines that no longer hold.
    fn changes(&self, lines: &BTreeSet<String>, partial: bool) -> Vec<String> {
        let after = self.with(lines, partial);
        let gone = self.0.difference(&after.0).map(|line| format!("- {line}"));
        gone.chain(after.0.difference(&self.0).map(|line| format!("+ {line}"))).collect()
    }

    /// Replaces the lines of the same cells, or all lines unless `partial`.
    fn with(&self, lines: &BTreeSet<String>, partial: bool) -> Results {
        let ran: BTreeSet<&str> = lines.iter().map(|line| cell_of(line)).collect();
        let kept = self.0.iter().filter(|line| partial && !ran.contains(cell_of(line)));
        Results(kept.chain(lines).cloned().collect())
    }

    fn write(&self, path: &Path) -> std::io::Result<()> {
        let lines: String = self.0.iter().map(|line| format!("{line}\n")).collect();
        fs::write(path, format!("{HEADER}\n{lines}"))
    }
}

/// Returns a line up to its outcome.
fn cell_of(line: &str) -> &str {
    line.rsplitn(3, '\t').last().unwrap_or(line)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(list: &[&str]) -> BTreeSet<String> {
        list.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_changed_line_is_listed_twice() {
        let table = Results(lines(&["a\t1\tT\tx\tpassed\tcase", "b\t1\tT\tx\tpassed\tcase"]));
        let ran = lines(&["a\t1\tT\tx\twrong\tcase"]);
        let changed = ["- a\t1\tT\tx\tpassed\tcase", "+ a\t1\tT\tx\twrong\tcase"];
        assert_eq!(table.changes(&ran, true), changed);
        let whole = [changed[0], "- b\t1\tT\tx\tpassed\tcase", changed[1]];
        assert_eq!(table.changes(&ran, false), whole);
        assert_eq!(table.changes(&lines(&["b\t1\tT\tx\tpassed\tcase"]), true), [""; 0]);
        let after = table.with(&ran, true).0;
        assert_eq!(after, lines(&["a\t1\tT\tx\twrong\tcase", "b\t1\tT\tx\tpassed\tcase"]));
    }
}

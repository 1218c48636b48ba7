//! Replaces operators with the bodies of their functions in the cases of
//! `tests/conformance/body_cases.py` and judges the results, for `cargo xtask conversions`.
//!
//! An inlined model is valid and has the results of the case. A node that stays is counted, with
//! the reason. Every other outcome is a problem.

use clap::Parser;
use sardonyx_tests::cases::{self, Case};
use sardonyx_tests::inline_case::{Depth, inline_case, operator};
use sardonyx_tests::outcome::{Class, Outcome};
use sardonyx_tests::{run_case, workers};
use std::collections::BTreeMap;
use std::error::Error;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::process::{Command, ExitCode};
use std::time::Duration;

/// Time limit of a case.
const LIMIT: Duration = Duration::from_secs(60);

#[derive(Parser)]
struct Arguments {
    /// Directory of cases.
    #[arg(required_unless_present = "worker")]
    cases: Option<PathBuf>,
    /// Write the inlined models under this directory.
    #[arg(long)]
    write: Option<PathBuf>,
    /// Inline the cases of standard input for another process; only run them without `--depth`.
    #[arg(long, hide = true)]
    worker: bool,
    #[arg(long, hide = true, requires = "worker")]
    depth: Option<Depth>,
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("inlinings: {error}");
            ExitCode::from(2)
        }
    }
}

/// Runs the cases. Returns whether none has a problem.
fn run(arguments: &Arguments) -> Result<bool, Box<dyn Error>> {
    if arguments.worker {
        let written = arguments.write.as_deref();
        match arguments.depth {
            Some(depth) => workers::serve(|case| inline_case(case, depth, written))?,
            None => workers::serve(run_case::run_case)?,
        }
        return Ok(true);
    }
    let Some(directory) = &arguments.cases else {
        return Err("the directory of cases is needed".into());
    };
    let cases = cases::find(directory)?;
    let (mut problems, mut stays) = (0, BTreeMap::<(String, String), usize>::new());
    println!("what\tcases\tstay\tthe same\tproblems");
    for depth in std::iter::once(None).chain(Depth::ALL.map(Some)) {
        let title = depth.map_or("plain".to_string(), |depth| depth.to_string());
        let (mut kept, mut same) = (0, 0);
        for (case, outcome) in run_all(&cases, arguments, depth)? {
            match outcome {
                Ok(()) => same += 1,
                Err(failure) if failure.class == Class::Refused => {
                    kept += 1;
                    let operator = operator(case).to_string();
                    *stays.entry((operator, failure.detail)).or_default() += 1;
                }
                Err(failure) => println!("{title}\t{}\t{failure}", case.id),
            }
        }
        let wrong = cases.len() - kept - same;
        problems += wrong;
        println!("{title}\t{}\t{kept}\t{same}\t{wrong}", cases.len());
    }
    for ((operator, why), count) in stays {
        println!("stays: {count} {operator}: {why}");
    }
    println!("inlinings: {problems} problems");
    Ok(problems == 0 && !cases.is_empty())
}

fn run_all<'c>(
    cases: &'c [Case],
    arguments: &Arguments,
    depth: Option<Depth>,
) -> Result<Vec<(&'c Case, Outcome)>, Box<dyn Error>> {
    let program = std::env::current_exe()?;
    let worker = || {
        let mut command = Command::new(&program);
        command.arg("--worker");
        if let Some(depth) = depth {
            command.args(["--depth", depth.name()]);
        }
        if let Some(directory) = &arguments.write {
            command.arg("--write").arg(directory);
        }
        command
    };
    let mut outcomes = BTreeMap::new();
    let count = std::thread::available_parallelism()?.get();
    workers::run_all(cases, count, LIMIT, worker, |case, outcome| {
        outcomes.insert(case.id.clone(), outcome);
        ControlFlow::Continue(())
    });
    let found = cases.iter().filter_map(|case| Some((case, outcomes.remove(&case.id)?)));
    Ok(found.collect())
}

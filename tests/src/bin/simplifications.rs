//! Simplifies every case below a directory at both levels, and judges the results, for `cargo xtask
//! conversions`.

use clap::Parser;
use sardonyx::edit::SimplifyLevel;
use sardonyx_tests::cases::{self, Case};
use sardonyx_tests::outcome::{Class, Outcome};
use sardonyx_tests::simplify_case::simplify_case;
use sardonyx_tests::workers;
use std::collections::BTreeMap;
use std::error::Error;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Duration;

/// Time that a case may take.
const LIMIT: Duration = Duration::from_secs(60);

#[derive(Parser)]
struct Arguments {
    /// The directory of cases.
    #[arg(required_unless_present = "worker")]
    cases: Option<PathBuf>,
    /// Simplify the cases named on standard input, for another process.
    #[arg(long, hide = true)]
    worker: bool,
    /// Merge floating-point operations.
    #[arg(long, hide = true, requires = "worker")]
    close: bool,
    /// Simplify only cases whose kind/name contains this text.
    #[arg(long, value_name = "TEXT")]
    filter: Option<String>,
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("simplifications: {error}");
            ExitCode::from(2)
        }
    }
}

/// Whether nothing is a problem.
fn run(arguments: &Arguments) -> Result<bool, Box<dyn Error>> {
    if arguments.worker {
        let level = if arguments.close { SimplifyLevel::Close } else { SimplifyLevel::Exact };
        workers::serve(|case| simplify_case(case, level))?;
        return Ok(true);
    }
    let Some(directory) = &arguments.cases else {
        return Err("the directory of cases is needed".into());
    };
    let mut cases = cases::find(directory)?;
    if let Some(text) = &arguments.filter {
        cases.retain(|case| case.id.contains(text));
    }
    let mut problems = 0;
    println!("level\tcases\trefused\tthe same\tproblems");
    for is_close in [false, true] {
        let title = if is_close { "close" } else { "exact" };
        let (mut refused, mut same) = (0, 0);
        for (case, outcome) in run_all(&cases, is_close)? {
            match outcome {
                Ok(()) => same += 1,
                // A model that does not run cannot be compared.
                Err(failure) if matches!(failure.class, Class::Refused) => refused += 1,
                Err(failure) if is_known(&failure.class) => refused += 1,
                Err(failure) => println!("{title}\t{}\t{failure}", case.id),
            }
        }
        let wrong = cases.len() - refused - same;
        problems += wrong;
        println!("{title}\t{}\t{refused}\t{same}\t{wrong}", cases.len());
    }
    println!("simplifications: {problems} problems");
    Ok(problems == 0 && !cases.is_empty())
}

/// Whether a model has operators or types without a kernel.
fn is_known(class: &Class) -> bool {
    matches!(class, Class::OperatorNotImplemented | Class::TypeNotImplemented)
}

fn run_all(cases: &[Case], is_close: bool) -> Result<Vec<(&Case, Outcome)>, Box<dyn Error>> {
    let program = std::env::current_exe()?;
    let mut outcomes = BTreeMap::new();
    let count = std::thread::available_parallelism()?.get();
    workers::run_all(
        cases,
        count,
        LIMIT,
        || start_worker(&program, is_close),
        |case, outcome| {
            outcomes.insert(case.id.clone(), outcome);
            ControlFlow::Continue(())
        },
    );
    let found = cases.iter().filter_map(|case| Some((case, outcomes.remove(&case.id)?)));
    Ok(found.collect())
}

/// Makes the command of a process that simplifies cases.
fn start_worker(program: &Path, is_close: bool) -> Command {
    let mut command = Command::new(program);
    command.arg("--worker");
    if is_close {
        command.arg("--close");
    }
    command
}

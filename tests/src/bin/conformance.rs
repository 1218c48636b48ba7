//! Runs the backend cases that `cargo xtask conformance` has written to disk, and judges the
//! results.

use clap::Parser;
use sardonyx_tests::cases::{self, Case};
use sardonyx_tests::expectations::{Expectations, Surprise};
use sardonyx_tests::outcome::{Class, Outcome};
use sardonyx_tests::round_trip::{RoundTrips, check_round_trips};
use sardonyx_tests::{run_case, workers};
use std::collections::BTreeMap;
use std::error::Error;
use std::fs;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Duration;

/// Time limit of a case. The slowest cases take seconds.
const LIMIT: Duration = Duration::from_secs(60);
/// Number of surprises after which the run stops, since it means a general fault.
const ENOUGH: usize = 20;

#[derive(Parser)]
struct Arguments {
    /// Directory of cases.
    #[arg(required_unless_present = "worker")]
    cases: Option<PathBuf>,
    /// List of cases that do not pass.
    #[arg(required_unless_present = "worker")]
    expectations: Option<PathBuf>,
    /// Run only the cases whose kind/name contains this text.
    #[arg(long, default_value = "")]
    filter: String,
    /// Rewrite the expectations from the outcomes of this run.
    #[arg(long)]
    bless: bool,
    /// With --bless, also list cases that give wrong values, panic or hang.
    #[arg(long)]
    allow_wrong: bool,
    /// Do not stop after twenty surprises.
    #[arg(long)]
    keep_going: bool,
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
            eprintln!("conformance: {error}");
            ExitCode::from(2)
        }
    }
}

/// Runs the cases. Returns whether every outcome is as expected.
fn run(arguments: &Arguments) -> Result<bool, Box<dyn Error>> {
    if arguments.worker {
        workers::serve(run_case::run_case)?;
        return Ok(true);
    }
    let (Some(directory), Some(list)) = (&arguments.cases, &arguments.expectations) else {
        return Err("the directory of cases and the expectations are needed".into());
    };
    let mut expectations = read_expectations(list)?;
    let mut cases = cases::find(directory)?;
    let all = cases.len();
    cases.retain(|case| case.id.contains(&arguments.filter));

    let trips = if arguments.filter.is_empty() { Some(round_trip_wheel(directory)?) } else { None };
    let outcomes = run_cases(&cases, &expectations, arguments)?;
    let finished = outcomes.len() == cases.len();
    print_counts(&cases, &outcomes, all);

    let judged = |case: &str| finished && case.contains(&arguments.filter);
    let surprises = expectations.surprises(&outcomes, judged);
    for surprise in &surprises {
        println!("{surprise}");
    }
    if !finished {
        println!("stopped after {ENOUGH} surprises; --keep-going runs all cases");
    }
    let unexpected =
        if arguments.bless && bless(&mut expectations, &surprises, arguments.allow_wrong, list)? {
            0
        } else {
            surprises.len()
        };
    let failures = unexpected + trips.map_or(0, |trips| trips.failures.len());
    println!("conformance: {} passed, {failures} failed", count_passed(outcomes.values()));
    Ok(failures == 0)
}

fn read_expectations(list: &Path) -> Result<Expectations, Box<dyn Error>> {
    let text = fs::read_to_string(list).map_err(|error| format!("{}: {error}", list.display()))?;
    Ok(Expectations::parse(&text).map_err(|why| format!("{}: {why}", list.display()))?)
}

fn round_trip_wheel(directory: &Path) -> Result<RoundTrips, Box<dyn Error>> {
    let files: Vec<PathBuf> =
        fs::read_to_string(directory.join("wheel_files.txt"))?.lines().map(PathBuf::from).collect();
    let models = files
        .iter()
        .filter(|file| file.extension().is_some_and(|extension| extension == "onnx"))
        .count();
    let trips = check_round_trips(&files);
    for failure in &trips.failures {
        println!("{failure}");
    }
    println!(
        "bytes -> model -> bytes: {} of {models} models and {} of {} values unchanged",
        trips.models,
        trips.values,
        files.len() - models
    );
    Ok(trips)
}

fn run_cases(
    cases: &[Case],
    expectations: &Expectations,
    arguments: &Arguments,
) -> Result<BTreeMap<String, Outcome>, Box<dyn Error>> {
    let program = std::env::current_exe()?;
    let worker = || {
        let mut command = Command::new(&program);
        command.arg("--worker");
        command
    };
    let count = std::thread::available_parallelism()?.get();
    let stops = !arguments.keep_going && !arguments.bless;
    let mut outcomes = BTreeMap::new();
    let mut surprises = 0;
    workers::run_all(cases, count, LIMIT, worker, |case, outcome| {
        surprises += usize::from(expectations.surprise(&case.id, &outcome).is_some());
        outcomes.insert(case.id.clone(), outcome);
        if stops && surprises >= ENOUGH {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    });
    Ok(outcomes)
}

fn print_counts(cases: &[Case], outcomes: &BTreeMap<String, Outcome>, all: usize) {
    let mut kinds: BTreeMap<&str, Vec<&Outcome>> = BTreeMap::new();
    for case in cases {
        kinds.entry(&case.kind).or_default().extend(outcomes.get(&case.id));
    }
    for (kind, outcomes) in kinds {
        println!("{kind:18} {:4} of {:4}", count_passed(outcomes.iter().copied()), outcomes.len());
    }
    let mut classes: BTreeMap<Class, usize> = BTreeMap::new();
    for failure in outcomes.values().filter_map(|outcome| outcome.as_ref().err()) {
        *classes.entry(failure.class).or_default() += 1;
    }
    for (class, count) in classes {
        println!("{:24} {count:4}", class.label());
    }
    println!("{} passed of {all}", count_passed(outcomes.values()));
}

fn count_passed<'a>(outcomes: impl Iterator<Item = &'a Outcome>) -> usize {
    outcomes.filter(|outcome| outcome.is_ok()).count()
}

/// Rewrites the list. Returns whether it did: a bug is not listed as if it were a gap, except on
/// request.
fn bless(
    expectations: &mut Expectations,
    surprises: &[Surprise],
    allow_wrong: bool,
    list: &Path,
) -> Result<bool, Box<dyn Error>> {
    let bugs = surprises.iter().filter(|surprise| surprise.is_bug()).count();
    if bugs > 0 && !allow_wrong {
        println!(
            "not blessed: {bugs} cases give wrong values, panic or hang; fix them, or pass --allow-wrong as well"
        );
        return Ok(false);
    }
    expectations.adopt(surprises);
    fs::write(list, expectations.to_string())?;
    println!("blessed {} changes in {}", surprises.len(), list.display());
    Ok(true)
}

//! Converts the backend cases to other versions of operator sets and judges the results, for `cargo
//! xtask conversions`.
//!
//! A conversion is exact or refused. So a converted model is valid and has the results of the case,
//! and so does the model that is converted back to its original version. Every other outcome is a
//! problem, except that the engine may lack a kernel: such models are converted, checked and
//! written, for another engine to run.

use clap::Parser;
use sardonyx_tests::cases::{self, Case};
use sardonyx_tests::convert_case::{Opset, convert_case, version_of};
use sardonyx_tests::outcome::{Class, Outcome};
use sardonyx_tests::{run_case, workers};
use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::fmt::Write as _;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Duration;

/// Time limit of a case.
const LIMIT: Duration = Duration::from_secs(60);
/// Kinds of cases with operators as nodes. Those whose nodes are not replaced with functions are
/// counted for conversions to earlier versions.
const DIRECT: [&str; 2] = ["node", "version"];

#[derive(Parser)]
struct Arguments {
    /// Directory of cases.
    #[arg(required_unless_present = "worker")]
    cases: Option<PathBuf>,
    /// Expected numbers of outcomes.
    #[arg(long)]
    expectations: Option<PathBuf>,
    /// Convert to this version, `[DOMAIN=]VERSION`; may be repeated.
    #[arg(long = "opset", required = true)]
    opsets: Vec<Opset>,
    /// Convert each case to one of the versions only, chosen by the case and this number.
    #[arg(long)]
    sample: Option<u64>,
    /// Convert only the cases whose kind/name contains this text.
    #[arg(long, default_value = "")]
    filter: String,
    /// Rewrite the numbers from the outcomes of this run.
    #[arg(long, requires = "expectations")]
    bless: bool,
    /// Print the number of refusals for each reason.
    #[arg(long)]
    reasons: bool,
    /// Write the converted models under this directory.
    #[arg(long)]
    write: Option<PathBuf>,
    /// Convert the cases of standard input to the first version, for another process.
    #[arg(long, hide = true)]
    worker: bool,
    /// Only run the cases.
    #[arg(long, hide = true, requires = "worker")]
    unchanged: bool,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    match run(&arguments) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("conversions: {error}");
            ExitCode::from(2)
        }
    }
}

/// Converts the cases. Returns whether the counts are as expected.
fn run(arguments: &Arguments) -> Result<bool, Box<dyn Error>> {
    if arguments.worker {
        let (to, written) = (&arguments.opsets[0], arguments.write.as_deref());
        if arguments.unchanged {
            workers::serve(run_case::run_case)?;
        } else {
            workers::serve(|case| convert_case(case, to, written))?;
        }
        return Ok(true);
    }
    let Some(directory) = &arguments.cases else {
        return Err("the directory of cases is needed".into());
    };
    let mut cases = cases::find(directory)?;
    cases.retain(|case| case.id.contains(&arguments.filter));
    let all = cases.len();
    let outcomes = run_all(&cases, arguments, &arguments.opsets[0], true)?;
    // Cases that fail unconverted in another way are left out.
    let is_meant = |outcome: &Outcome| match outcome {
        Ok(()) => true,
        Err(failure) => has_no_kernel(failure.class),
    };
    cases.retain(|case| outcomes.get(&case.id).is_some_and(is_meant));
    let run = outcomes.values().filter(|outcome| outcome.is_ok()).count();
    let left_out = all - cases.len();
    println!("{run} of {all} cases run as they are; {left_out} fail and are left out");
    for (id, outcome) in &outcomes {
        if let Err(failure) = outcome
            && !is_meant(outcome)
        {
            println!("left out: {id}\t{failure}");
        }
    }

    let domains: BTreeSet<&str> = arguments.opsets.iter().map(|to| to.domain.as_str()).collect();
    let mut lines =
        vec!["opset\tdirection\tcases\trefused\tnot run\tthe same\tproblems".to_string()];
    let (mut problems, mut reasons) = (0, BTreeMap::new());
    for domain in domains {
        let versions: BTreeMap<&str, i64> = cases
            .iter()
            .filter_map(|case| Some((case.id.as_str(), version_of(case, domain)?)))
            .collect();
        let mut opsets: Vec<&Opset> = arguments.opsets.iter().collect();
        opsets.retain(|to| to.domain == domain);
        for (index, to) in opsets.iter().enumerate() {
            let is_meant = |case: &&Case| {
                let chosen = arguments.sample.is_none_or(|seed| {
                    let mut hasher = DefaultHasher::new();
                    (seed, &case.id).hash(&mut hasher);
                    hasher.finish() as usize % opsets.len() == index
                });
                let version = versions.get(case.id.as_str());
                chosen && version.is_some_and(|version| *version != i64::from(to.version))
            };
            let meant: Vec<Case> = cases.iter().filter(is_meant).cloned().collect();
            let outcomes = run_all(&meant, arguments, to, false)?;
            for (direction, is_down) in [("down", true), ("up", false)] {
                let is_direct = |id: &str| {
                    let kind = id.split_once('/').map_or("", |(kind, _)| kind);
                    DIRECT.contains(&kind) && !id.contains("_expanded")
                };
                let found = outcomes.iter().filter(|(id, _)| {
                    (versions[id.as_str()] > i64::from(to.version)) == is_down
                        && (!is_down || is_direct(id))
                });
                lines.extend(count_outcomes(to, direction, found.map(|(_, outcome)| outcome)));
            }
            for (id, outcome) in outcomes {
                match outcome {
                    Ok(()) => {}
                    Err(failure) if has_no_kernel(failure.class) => {}
                    Err(failure) if failure.class == Class::Refused => {
                        let cases: &mut Vec<String> = reasons.entry(failure.detail).or_default();
                        cases.push(id);
                    }
                    Err(failure) => {
                        problems += 1;
                        println!("{to}\t{id}\t{failure}");
                    }
                }
            }
        }
    }
    let table = lines.join("\n") + "\n";
    print!("{table}");
    if arguments.reasons {
        print_reasons(&reasons);
    }
    println!("conversions: {problems} problems");
    let list = arguments.expectations.as_deref();
    let is_expected = list.map_or(Ok(true), |list| is_expected(&table, list, arguments.bless))?;
    Ok(problems == 0 && is_expected)
}

/// Returns whether a model does not run because a kernel is missing.
fn has_no_kernel(class: Class) -> bool {
    matches!(class, Class::OperatorNotImplemented | Class::TypeNotImplemented)
}

fn run_all(
    cases: &[Case],
    arguments: &Arguments,
    to: &Opset,
    unchanged: bool,
) -> Result<BTreeMap<String, Outcome>, Box<dyn Error>> {
    let program = std::env::current_exe()?;
    let worker = || {
        let mut command = Command::new(&program);
        command.args(["--worker", "--opset", &to.to_string()]);
        if unchanged {
            command.arg("--unchanged");
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
    Ok(outcomes)
}

/// Writes a line of the table. Returns `None` if no case is counted.
fn count_outcomes<'a>(
    to: &Opset,
    direction: &str,
    outcomes: impl Iterator<Item = &'a Outcome>,
) -> Option<String> {
    let (mut cases, mut refused, mut not_run, mut same) = (0, 0, 0, 0);
    for outcome in outcomes {
        cases += 1;
        match outcome {
            Ok(()) => same += 1,
            Err(failure) => match failure.class {
                Class::Refused => refused += 1,
                class if has_no_kernel(class) => not_run += 1,
                _ => {}
            },
        }
    }
    let problems = cases - refused - not_run - same;
    (cases > 0)
        .then(|| format!("{to}\t{direction}\t{cases}\t{refused}\t{not_run}\t{same}\t{problems}"))
}

fn print_reasons(reasons: &BTreeMap<String, Vec<String>>) {
    let mut reasons: Vec<_> = reasons.iter().collect();
    reasons.sort_by_key(|(_, cases)| std::cmp::Reverse(cases.len()));
    let mut text = String::new();
    for (reason, cases) in reasons {
        let example = cases.first().map_or("", String::as_str);
        let _ = writeln!(text, "{}\t{reason}\t{example}", cases.len());
    }
    print!("{text}");
}

fn is_expected(table: &str, list: &Path, bless: bool) -> Result<bool, Box<dyn Error>> {
    let expected = fs::read_to_string(list).unwrap_or_default();
    if expected == table {
        return Ok(true);
    }
    if bless {
        fs::write(list, table)?;
        println!("blessed {}", list.display());
        return Ok(true);
    }
    for line in expected.lines().filter(|line| !table.lines().any(|found| found == *line)) {
        println!("expected: {line}");
    }
    println!("the numbers are not those of {}; --bless rewrites it", list.display());
    Ok(false)
}

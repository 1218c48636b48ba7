//! Supervisor of the workers: starts one per property, watches it, and starts another after an
//! input that ended it.

use std::fs;
use std::io::Read;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use sardonyx_fuzz::corpus::Corpus;
use sardonyx_fuzz::{PROPERTIES, Property, make_input};

use crate::work::{GIVEN_UP, report};
use crate::{Arguments, Result};

/// Time after which an input counts as a failure.
const HANG: Duration = Duration::from_secs(2);

/// Address space of a worker in KiB. With a bound, an allocation of a size from the input fails
/// instead of succeeding without being touched.
const ADDRESS_SPACE: u64 = 2 << 20;

/// Results of one property.
#[derive(Default)]
struct Totals {
    executions: u64,
    failures: u64,
    slowest: Duration,
    time: Duration,
}

/// Runs the chosen properties. Returns whether all held.
pub(crate) fn run(arguments: &Arguments) -> Result<bool> {
    let all: Vec<&Property> = PROPERTIES.iter().collect();
    let properties =
        if arguments.properties.is_empty() { all } else { arguments.properties.clone() };
    let shares: u64 = properties.iter().map(|property| u64::from(property.share)).sum();
    let mut sum = Totals::default();
    for property in properties {
        let part = |whole: u64| (whole * u64::from(property.share)).div_ceil(shares);
        let budget = Budget {
            seconds: arguments.seconds.map(|seconds| part(seconds) as f64),
            mutations: arguments.mutations.map_or(u64::MAX / 2, part),
        };
        let totals = run_property(property, arguments, &budget)?;
        print_line(property.name, &totals);
        sum.executions += totals.executions;
        sum.failures += totals.failures;
        sum.time += totals.time;
        sum.slowest = sum.slowest.max(totals.slowest);
    }
    print_line("all", &sum);
    Ok(sum.failures == 0)
}

struct Budget {
    seconds: Option<f64>,
    mutations: u64,
}

fn print_line(name: &str, totals: &Totals) {
    let seconds = totals.time.as_secs_f64();
    println!(
        "{name:16} {:>10} executions in {seconds:6.1} s, {:>7.0} per second, slowest {:8.3} ms, {} failures",
        totals.executions,
        totals.executions as f64 / seconds.max(0.001),
        totals.slowest.as_secs_f64() * 1e3,
        totals.failures
    );
}

fn run_property(
    property: &'static Property,
    arguments: &Arguments,
    budget: &Budget,
) -> Result<Totals> {
    let scratch = tempfile::tempdir()?;
    let progress = scratch.path().join("progress");
    let start = Instant::now();
    let mut totals = Totals::default();
    let (mut at, end) = (arguments.first, arguments.first.saturating_add(budget.mutations));
    loop {
        let left = budget.seconds.map(|seconds| seconds - start.elapsed().as_secs_f64());
        if at >= end || left.is_some_and(|left| left <= 0.0) || totals.failures >= GIVEN_UP {
            break;
        }
        let mut command = limit_memory()?;
        command
            .args(["--property", property.name, "--seed", &arguments.seed.to_string()])
            .args(["--first", &at.to_string(), "--mutations", &(end - at).to_string()])
            .arg("--progress")
            .arg(&progress);
        if let Some(left) = left {
            command.args(["--seconds", &(left.ceil() as u64).to_string()]);
        }
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
        let hung = watch(&mut child, &progress)?;
        let mut output = String::new();
        if let Some(mut stdout) = child.stdout.take() {
            stdout.read_to_string(&mut output)?;
        }
        let status = child.wait()?;
        if let Some([reached, failures, slowest]) = parse_totals(&output) {
            totals.executions += reached - at;
            totals.failures += failures;
            totals.slowest = totals.slowest.max(Duration::from_micros(slowest));
            // The worker has reached its limit of time, mutations or failures.
            break;
        }
        let Some(index) = read_progress(&progress) else {
            return Err(format!("the worker for {} did not start: {status}", property.name).into());
        };
        totals.executions += index + 1 - at;
        totals.failures += 1;
        at = index + 1;
        let message = if hung {
            format!("an input takes longer than {} s", HANG.as_secs())
        } else {
            format!("the process ended: {status} (out of stack or memory?)")
        };
        report(
            property,
            &message,
            &make_input(property, &Corpus::load(property)?, arguments.seed, index),
        )?;
    }
    totals.time = start.elapsed();
    Ok(totals)
}

/// Prepares a command for this program, with bounded memory on Unix.
fn limit_memory() -> Result<Command> {
    let program = std::env::current_exe()?;
    if !cfg!(unix) {
        return Ok(Command::new(program));
    }
    let mut command = Command::new("sh");
    let script = format!("ulimit -v {ADDRESS_SPACE} 2>/dev/null; exec \"$0\" \"$@\"");
    command.args(["-c", &script]).arg(program);
    Ok(command)
}

/// Waits for the end of a worker. Kills it if it stays at one input for too long, and returns
/// whether it did.
fn watch(child: &mut Child, progress: &Path) -> Result<bool> {
    let mut last = (None, Instant::now());
    while child.try_wait()?.is_none() {
        thread::sleep(Duration::from_millis(50));
        let now = read_progress(progress);
        if now != last.0 {
            last = (now, Instant::now());
        } else if now.is_some() && last.1.elapsed() > HANG {
            child.kill()?;
            return Ok(true);
        }
    }
    Ok(false)
}

/// Reads the number of the input that a worker is at.
fn read_progress(progress: &Path) -> Option<u64> {
    let bytes = fs::read(progress).ok()?;
    Some(u64::from_le_bytes(*bytes.first_chunk()?))
}

/// Parses the last line of a worker: the next index, the number of failures, and the microseconds
/// of the slowest input.
fn parse_totals(output: &str) -> Option<[u64; 3]> {
    let line = output.lines().rev().find_map(|line| line.strip_prefix("done "))?;
    let mut numbers = line.split(' ').map(|word| word.parse().ok());
    Some([numbers.next()??, numbers.next()??, numbers.next()??])
}

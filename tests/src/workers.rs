//! Processes that run cases, so that a case that hangs, aborts or overflows its stack ends no
//! other.
//!
//! A worker reads one directory per line from its standard input and writes one line for each:
//! `passed`, or the text of a failure. A worker that exceeds the time limit is killed, and the next
//! case gets a new one.

use crate::cases::Case;
use crate::outcome::{Class, Failure, Outcome};
use std::io::{self, BufRead, BufReader, Write};
use std::ops::ControlFlow;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::Duration;

/// Runs all cases, `count` at a time. Calls `report` with each outcome as soon as it is known, in
/// no particular order, and stops early when `report` breaks.
pub fn run_all(
    cases: &[Case],
    count: usize,
    limit: Duration,
    command: impl Fn() -> Command + Sync,
    mut report: impl FnMut(&Case, Outcome) -> ControlFlow<()>,
) {
    let next = AtomicUsize::new(0);
    let stop = AtomicBool::new(false);
    let (sender, outcomes) = mpsc::channel();
    thread::scope(|scope| {
        for _ in 0..count {
            let (sender, next, stop, command) = (sender.clone(), &next, &stop, &command);
            scope.spawn(move || {
                let mut worker = None;
                while !stop.load(Ordering::Relaxed) {
                    let Some(case) = cases.get(next.fetch_add(1, Ordering::Relaxed)) else {
                        break;
                    };
                    let outcome = run_one(&mut worker, case, limit, command);
                    if sender.send((case, outcome)).is_err() {
                        break;
                    }
                }
            });
        }
        drop(sender);
        for (case, outcome) in &outcomes {
            if report(case, outcome).is_break() {
                stop.store(true, Ordering::Relaxed);
                break;
            }
        }
        // Outcomes that arrive later are dropped.
        drop(outcomes);
    });
}

/// Runs the case of each directory on standard input with `run` and prints its outcome.
pub fn serve(run: impl Fn(&Case) -> Outcome) -> io::Result<()> {
    for line in io::stdin().lock().lines() {
        let answer = match run(&Case::at(line?.as_ref())) {
            Ok(()) => PASSED.to_string(),
            Err(failure) => failure.to_string(),
        };
        let mut out = io::stdout().lock();
        writeln!(out, "{answer}")?;
        out.flush()?;
    }
    Ok(())
}

const PASSED: &str = "passed";

/// Runs a case in the worker, or in a new one if there is none. Leaves the worker for the next case
/// unless this case ended it.
fn run_one(
    worker: &mut Option<Worker>,
    case: &Case,
    limit: Duration,
    command: impl Fn() -> Command,
) -> Outcome {
    let broken =
        |error: io::Error| Err(Failure::new(Class::Error, format!("cannot run a worker: {error}")));
    let mut current = match worker.take() {
        Some(worker) => worker,
        None => match Worker::start(command()) {
            Ok(worker) => worker,
            Err(error) => return broken(error),
        },
    };
    let sent = writeln!(current.input, "{}", case.directory.display());
    let answer = match sent.and_then(|()| current.input.flush()) {
        Ok(()) => current.answers.recv_timeout(limit),
        Err(_) => Err(RecvTimeoutError::Disconnected),
    };
    match answer {
        Ok(line) => {
            *worker = Some(current);
            if line == PASSED {
                return Ok(());
            }
            Err(Failure::parse(&line)
                .unwrap_or_else(|| Failure::new(Class::Panic, format!("stray output: {line}"))))
        }
        Err(RecvTimeoutError::Timeout) => {
            Err(Failure::new(Class::Timeout, format!("no answer in {limit:?}")))
        }
        Err(RecvTimeoutError::Disconnected) => match current.child.wait() {
            Ok(status) => Err(Failure::new(Class::Panic, format!("the process ended: {status}"))),
            Err(error) => broken(error),
        },
    }
}

struct Worker {
    child: Child,
    input: ChildStdin,
    answers: Receiver<String>,
}

impl Worker {
    fn start(mut command: Command) -> io::Result<Worker> {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let (Some(input), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(io::Error::other("no pipes"));
        };
        let (sender, answers) = mpsc::channel();
        // The thread ends with the process. It exists because reading cannot have a time limit, but
        // waiting for a channel can.
        thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    break;
                }
            }
        });
        Ok(Worker { child, input, answers })
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // The process may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    /// Script of a worker whose answer depends on the name of the case.
    const SCRIPT: &str = "while read directory; do case $directory in \
        *pass*) echo passed;; *die*) exit 3;; *hang*) sleep 100;; *noise*) echo boo;; *) echo error: no;; esac; done";

    fn shell() -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", SCRIPT]);
        command
    }

    fn cases(names: &[&str]) -> Vec<Case> {
        names.iter().map(|name| Case::at(&std::path::Path::new("node").join(name))).collect()
    }

    #[test]
    fn each_case_gets_its_own_outcome() {
        let cases = cases(&["die1", "pass1", "hang", "pass2", "fail", "noise", "die2", "pass3"]);
        let mut outcomes = BTreeMap::new();
        run_all(&cases, 2, Duration::from_millis(500), shell, |case, outcome| {
            outcomes.insert(case.id.clone(), outcome.map_err(|failure| failure.class));
            ControlFlow::Continue(())
        });
        let wanted = [
            ("die1", Err(Class::Panic)),
            ("die2", Err(Class::Panic)),
            ("fail", Err(Class::Error)),
            ("hang", Err(Class::Timeout)),
            ("noise", Err(Class::Panic)),
            ("pass1", Ok(())),
            ("pass2", Ok(())),
            ("pass3", Ok(())),
        ];
        assert_eq!(
            outcomes,
            BTreeMap::from(wanted.map(|(name, outcome)| (format!("node/{name}"), outcome)))
        );
    }

    #[test]
    fn a_run_can_be_stopped() {
        let names: Vec<String> = (0..100).map(|n| format!("pass{n}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let mut reports = 0;
        run_all(&cases(&names), 1, Duration::from_secs(9), shell, |_, _| {
            reports += 1;
            ControlFlow::Break(())
        });
        assert_eq!(reports, 1);
    }
}

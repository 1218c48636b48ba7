//! Canceling runs: by Ctrl-C and other signals, after a time, or after a number of iterations.

use std::sync::OnceLock;
use std::time::{Duration, Instant};

use sardonyx::{RunOptions, StopFlag};

/// Options that cancel a run, besides Ctrl-C.
#[derive(clap::Args)]
#[group(skip)]
pub(crate) struct StopArgs {
    /// Stop a run after this many seconds; by default never
    #[arg(long, value_name = "SECONDS", value_parser = parse_seconds)]
    timeout: Option<Duration>,
    /// Stop a run after this many iterations of all loops together; by default never
    #[arg(long, alias = "turn-limit", value_name = "N")]
    iteration_limit: Option<u64>,
}

impl StopArgs {
    /// Returns the run options for a run that begins now. The first call installs a handler for
    /// Ctrl-C, which cancels runs, so that the command ends with a message. A second Ctrl-C ends
    /// the process at once.
    pub(crate) fn to_run_options<'a>(&self) -> RunOptions<'a> {
        let mut options = RunOptions::new();
        options.stop = interrupt_flag().cloned();
        options.deadline = self.timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        options.iteration_limit = self.iteration_limit;
        options
    }
}

/// Returns the flag that Ctrl-C raises to cancel runs. `None` where signals cannot be caught, so
/// that Ctrl-C ends the process.
fn interrupt_flag() -> Option<&'static StopFlag> {
    static FLAG: OnceLock<Option<StopFlag>> = OnceLock::new();
    FLAG.get_or_init(install_handler).as_ref()
}

/// Installs a handler for Ctrl-C, and returns the flag that the handler raises; `None` where
/// signals cannot be caught.
fn install_handler() -> Option<StopFlag> {
    let flag = StopFlag::new();
    let raised = flag.clone();
    let mut first: Option<Instant> = None;
    ctrlc::set_handler(move || match first {
        Some(first) if first.elapsed() >= REPEATED => std::process::exit(EXIT_INTERRUPTED),
        Some(_) => {}
        None => {
            raised.stop();
            first = Some(Instant::now());
        }
    })
    .is_ok()
    .then_some(flag)
}

/// Minimum time between two Ctrl-C signals that count as separate: `timeout -s INT` sends two at
/// once.
const REPEATED: Duration = Duration::from_millis(500);

/// Makes SIGTERM and SIGHUP cancel runs like Ctrl-C from now on, so that the results so far can be
/// saved. SIGHUP is sent when the terminal is closed.
#[cfg(unix)]
pub(crate) fn catch_termination() {
    use signal_hook::consts::{SIGHUP, SIGTERM};
    use signal_hook::iterator::Signals;

    let Some(flag) = interrupt_flag() else { return };
    let mut caught = vec![SIGTERM];
    // Under `nohup` SIGHUP stays ignored, so that the process outlives its terminal.
    if is_ignored(SIGHUP) == Some(false) {
        caught.push(SIGHUP);
    }
    // Registered before the thread starts, so that no later signal ends the process.
    let Ok(mut signals) = Signals::new(caught) else { return };
    let thread = std::thread::Builder::new().name("signals".to_string());
    let _ = thread.spawn(move || signals.forever().for_each(|_| flag.stop()));
}

/// Does nothing, because SIGTERM and SIGHUP exist only on Unix.
#[cfg(not(unix))]
pub(crate) fn catch_termination() {}

/// Whether the process ignores a signal; `None` on systems without `/proc`.
#[cfg(unix)]
fn is_ignored(signal: i32) -> Option<bool> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"))?;
    let ignored = u64::from_str_radix(ignored.trim(), 16).ok()?;
    Some(ignored >> (signal - 1) & 1 == 1)
}

/// Exit code of a process that Ctrl-C ended, as shells report it: 128 plus the number of SIGINT.
const EXIT_INTERRUPTED: i32 = 130;

/// Parses a number of seconds of at least 0.
fn parse_seconds(text: &str) -> Result<Duration, String> {
    let seconds: Option<f64> = text.parse().ok();
    let duration = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    duration.ok_or_else(|| "expected a number of seconds, such as 2.5".to_string())
}

//! Ending runs early: Ctrl-C and other signals, a time, a number of iterations.

use std::sync::OnceLock;
use std::time::{Duration, Instant};

use sardonyx::{RunOptions, StopFlag};

/// What ends a run early, besides Ctrl-C.
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
    /// Returns the options of a run that begins now. From the first one on, Ctrl-C ends runs, and
    /// the command with a message that says where; a second Ctrl-C ends the command at once.
    pub(crate) fn options<'a>(&self) -> RunOptions<'a> {
        let mut options = RunOptions::new();
        options.stop = interrupted().cloned();
        options.deadline = self.timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        options.iteration_limit = self.iteration_limit;
        options
    }
}

/// The flag that Ctrl-C raises; `None` where signals cannot be caught, so that Ctrl-C ends the
/// command as usual.
fn interrupted() -> Option<&'static StopFlag> {
    static FLAG: OnceLock<Option<StopFlag>> = OnceLock::new();
    let install = || {
        let flag = StopFlag::new();
        let raised = flag.clone();
        let mut first: Option<Instant> = None;
        let handler = move || match first {
            Some(first) if first.elapsed() >= REPEATED => std::process::exit(EXIT_INTERRUPTED),
            Some(_) => {}
            None => {
                raised.stop();
                first = Some(Instant::now());
            }
        };
        ctrlc::set_handler(handler).is_ok().then_some(flag)
    };
    FLAG.get_or_init(install).as_ref()
}

/// Signals that arrive within this time are one: `timeout -s INT` sends two at once.
const REPEATED: Duration = Duration::from_millis(500);

/// Lets SIGTERM, and the end of the terminal, stop runs like Ctrl-C from now on. What has been
/// computed can be saved then; only SIGKILL ends the command at once.
#[cfg(unix)]
pub(crate) fn catch_termination() {
    use signal_hook::consts::{SIGHUP, SIGTERM};
    use signal_hook::iterator::Signals;

    let Some(flag) = interrupted() else { return };
    let mut caught = vec![SIGTERM];
    // `nohup` ignores it, so that the command outlives its terminal.
    if is_ignored(SIGHUP) == Some(false) {
        caught.push(SIGHUP);
    }
    // Before the thread starts, so that no signal after this call ends the command.
    let Ok(mut signals) = Signals::new(caught) else { return };
    let wait = move || signals.forever().for_each(|_| flag.stop());
    let _ = std::thread::Builder::new().name("signals".to_string()).spawn(wait);
}

#[cfg(not(unix))]
pub(crate) fn catch_termination() {}

/// Whether the process ignores a signal; `None` if the system does not say.
#[cfg(unix)]
fn is_ignored(signal: i32) -> Option<bool> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"))?;
    let ignored = u64::from_str_radix(ignored.trim(), 16).ok()?;
    Some(ignored >> (signal - 1) & 1 == 1)
}

/// What shells say of a command that Ctrl-C ended.
const EXIT_INTERRUPTED: i32 = 130;

fn parse_seconds(text: &str) -> Result<Duration, String> {
    let seconds: Option<f64> = text.parse().ok();
    let duration = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    duration.ok_or_else(|| "expected a number of seconds, such as 2.5".to_string())
}

//! Output of the command: answers on stdout, notes and errors on stderr, colored on a terminal.

use std::ffi::OsString;
use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde::{Serialize, Serializer};

use crate::escape::{escape_controls, escape_controls_in_json};
use crate::failure::{Code, Failure};
use crate::sarif;
use crate::usage::FailureFormat;

#[derive(clap::Args)]
#[group(skip)]
pub(crate) struct Args {
    /// When to use color
    #[arg(long, global = true, value_enum, default_value_t = Color::Auto, value_name = "WHEN")]
    color: Color,
    /// Print only results and errors, no notes
    #[arg(short, long, global = true, conflicts_with = "verbose")]
    quiet: bool,
    /// Print more about what is done
    #[arg(short, long, global = true)]
    verbose: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Color {
    Auto,
    Always,
    Never,
}

/// Output of the command on stdout and stderr.
pub(crate) struct Terminal {
    color: bool,
    quiet: bool,
    verbose: bool,
    /// Format in which failures are also written to stdout.
    format: FailureFormat,
    /// Whether a JSON answer was written: a failure after the answer does not add a second one.
    answered: AtomicBool,
}

impl Terminal {
    /// Creates the output of a command from the options `--color`, `--quiet` and `--verbose`.
    pub(crate) fn new(args: &Args, format: FailureFormat) -> Terminal {
        let color = match args.color {
            Color::Always => true,
            Color::Never => false,
            // https://no-color.org
            Color::Auto => {
                io::stderr().is_terminal()
                    && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
            }
        };
        Terminal {
            color,
            quiet: args.quiet,
            verbose: args.verbose,
            format,
            answered: AtomicBool::new(false),
        }
    }

    /// Creates an output without color and notes, for failures before the arguments are parsed.
    pub(crate) fn plain(format: FailureFormat) -> Terminal {
        Terminal {
            color: false,
            quiet: true,
            verbose: false,
            format,
            answered: AtomicBool::new(false),
        }
    }

    /// Writes a text answer to stdout, with control characters escaped.
    pub(crate) fn print(&self, text: &str) -> Result<(), Failure> {
        write_answer(&escape_controls(text))
    }

    /// Writes an answer to stdout as JSON: indented if `pretty`, else on one line.
    pub(crate) fn json(&self, answer: &impl Serialize, pretty: bool) -> Result<(), Failure> {
        let text = if pretty {
            serde_json::to_string_pretty(answer)
        } else {
            serde_json::to_string(answer)
        };
        let mut text = text.map_err(|error| {
            Failure::new(format!("the answer cannot be written as JSON: {error}"))
                .code(Code::Internal)
        })?;
        text.push('\n');
        self.answered.store(true, Ordering::Relaxed);
        write_answer(&escape_controls_in_json(&text))
    }

    /// Writes a note to stderr, unless `--quiet` is given.
    pub(crate) fn note(&self, text: &str) {
        if !self.quiet {
            self.write_line("note:", text);
        }
    }

    /// Writes a note to stderr if `--verbose` is given.
    pub(crate) fn detail(&self, text: &str) {
        if self.verbose {
            self.write_line("note:", text);
        }
    }

    /// Writes a line without label to stderr, unless `--quiet` is given.
    pub(crate) fn remark(&self, text: &str) {
        if !self.quiet {
            // An error of stderr is ignored, as no other stream is left to report it.
            let _ = writeln!(io::stderr(), "{}", escape_controls(text));
        }
    }

    /// Writes a label and a text to stderr.
    fn write_line(&self, label: &str, text: &str) {
        let _ = writeln!(io::stderr(), "{} {}", self.paint(label), escape_controls(text));
    }

    /// Reports the failure of the command, and returns the exit code. A broken pipe is a success,
    /// because the reader of stdout has seen enough.
    pub(crate) fn report(&self, failure: &Failure) -> ExitCode {
        if failure.broken_pipe {
            return ExitCode::SUCCESS;
        }
        if !failure.is_reported_elsewhere {
            self.print_failure(failure);
            self.answer_failure(failure);
        }
        ExitCode::from(2)
    }

    /// Writes the failure to stdout in the format that the arguments select, unless an answer was
    /// written before.
    pub(crate) fn answer_failure(&self, failure: &Failure) {
        if self.answered.load(Ordering::Relaxed) {
            return;
        }
        let answer = match self.format {
            FailureFormat::Prose => return,
            FailureFormat::Json => failure.answer(),
            FailureFormat::Sarif => sarif::build_failure_log(failure),
        };
        // An error of stdout is ignored: stderr has the failure.
        let _ = self.json(&answer, true);
    }

    /// Writes a failure to stderr, with control characters escaped.
    pub(crate) fn print_failure(&self, failure: &Failure) {
        let text = failure.render(&|label| format!("\u{1}{label}\u{2}"));
        // Escapes of color are added last, because all escapes in texts from files are removed.
        let mut painted = String::new();
        for (i, part) in text.split('\u{1}').enumerate() {
            match part.split_once('\u{2}') {
                Some((label, rest)) if i > 0 => {
                    painted += &(self.paint(label) + &escape_controls(rest))
                }
                _ => painted += &escape_controls(part),
            }
        }
        let _ = io::stderr().write_all(painted.as_bytes());
    }

    /// Colors the label of a message, if colors are on.
    fn paint(&self, label: &str) -> String {
        let code = match label {
            "error:" => "1;31",
            "help:" => "1;36",
            _ => "2",
        };
        if self.color { format!("\u{1b}[{code}m{label}\u{1b}[0m") } else { label.to_string() }
    }

    /// Returns a progress bar of `steps` steps, or a spinner if the number of steps is unknown. The
    /// bar is visible only on a terminal, after [`PROGRESS_AFTER`].
    pub(crate) fn progress(&self, what: &'static str, steps: Option<u64>) -> ProgressBar {
        let template = match steps {
            Some(_) => "{msg} {wide_bar} {pos}/{len} {eta}",
            None => "{spinner} {msg} {elapsed}",
        };
        self.make_bar(what, steps, template)
    }

    /// Returns a progress bar of `total` bytes, a number that may be set later.
    pub(crate) fn progress_bytes(&self, what: &'static str, total: u64) -> ProgressBar {
        let template = "{msg} {wide_bar} {decimal_bytes}/{decimal_total_bytes} {eta}";
        self.make_bar(what, Some(total), template)
    }

    /// Creates a progress bar with the label `what`, hidden until [`PROGRESS_AFTER`] has passed.
    fn make_bar(&self, what: &'static str, steps: Option<u64>, template: &str) -> ProgressBar {
        if self.quiet || !shows_progress(io::stderr().is_terminal(), std::env::var_os("CI")) {
            return ProgressBar::hidden();
        }
        let bar = ProgressBar::with_draw_target(steps, ProgressDrawTarget::hidden());
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style);
        }
        bar.set_message(what);
        // Work that is finished within this time never shows a bar.
        let shown = bar.downgrade();
        thread::spawn(move || {
            thread::sleep(PROGRESS_AFTER);
            if let Some(bar) = shown.upgrade().filter(|bar| !bar.is_finished()) {
                bar.set_draw_target(ProgressDrawTarget::stderr());
                bar.enable_steady_tick(Duration::from_millis(200));
            }
        });
        bar
    }
}

/// Time after which a progress bar is shown.
const PROGRESS_AFTER: Duration = Duration::from_millis(500);

/// Whether progress bars are shown: on a terminal outside of CI services. CI services set `CI`, and
/// log the output even if they provide a terminal.
fn shows_progress(is_terminal: bool, ci: Option<OsString>) -> bool {
    let in_service = ci.is_some_and(|value| !value.is_empty() && value != "false");
    is_terminal && !in_service
}

/// Writes `text` to stdout and flushes it.
fn write_answer(text: &str) -> Result<(), Failure> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(text.as_bytes())?;
    stdout.flush()?;
    Ok(())
}

/// List in a JSON answer that is serialized from an iterator, element by element, so that an answer
/// about a large model is not in memory as a whole.
pub(crate) struct Each<F>(pub(crate) F);

impl<F, I> Serialize for Each<F>
where
    F: Fn() -> I,
    I: Iterator<Item: Serialize>,
{
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq((self.0)())
    }
}

#[cfg(test)]
mod tests {
    use super::shows_progress;

    #[test]
    fn progress_is_shown_on_terminals_outside_of_services() {
        let rows = [
            (true, None, true),
            (true, Some(""), true),
            (true, Some("false"), true),
            (true, Some("true"), false),
            (true, Some("1"), false),
            (false, None, false),
        ];
        for (is_terminal, ci, expected) in rows {
            let found = shows_progress(is_terminal, ci.map(Into::into));
            assert_eq!(found, expected, "{is_terminal} {ci:?}");
        }
    }
}

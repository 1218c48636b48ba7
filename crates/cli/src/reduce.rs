//! `sardonyx reduce`: the smallest model for which a command still fails.

use std::fs::{self, File, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use sardonyx::edit::{CheckAnswer, ReduceOptions, ReduceReport};
use sardonyx::io::Weights;
use sardonyx::{Model, SaveOptions};
use serde_json::json;

use crate::failure::Failure;
use crate::files::io_failure;
use crate::human::{format_count, group_digits};
use crate::model_arg::ModelArg;
use crate::saving::{self, Target};
use crate::terminal::Terminal;
use crate::verdict::Verdict;

/// Reduce a model to a small one for which a command still fails
///
/// COMMAND is run by the shell for each candidate, with % or {} replaced by the path of the
/// candidate. It fails if its exit code is 1; with any other exit code, and after --timeout, it
/// does not. Outputs, nodes, inputs, attributes and texts are removed, graphs in nodes entered,
/// constants replaced by nodes that generate zeros, and sizes lowered. The answers are kept in
/// FILE.reduce until the reduction is complete, so that an interrupted one goes on where it was.
#[derive(clap::Args)]
#[group(skip)]
pub(crate) struct Args {
    #[command(flatten)]
    model: ModelArg,
    #[command(flatten)]
    saving: saving::Args,
    /// Command that fails for MODEL, such as 'sardonyx run % --random'
    #[arg(long, value_name = "COMMAND")]
    check: String,
    /// Time after which a command is ended, and counts as not failing
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    timeout: u64,
    /// Maximum number of commands that are run
    #[arg(long, value_name = "N", default_value_t = 10_000)]
    limit: u64,
    /// Ignore the answers of an interrupted reduction
    #[arg(long)]
    restart: bool,
}

/// Schema of the JSON answer: its name and version. A key that changes its meaning raises the
/// version, a new key does not.
const SCHEMA: &str = "sardonyx.reduce/1";

/// Exit code of a command that fails.
const FAILING: i32 = 1;

/// Runs `sardonyx reduce`.
pub(crate) fn reduce(args: &Args, terminal: &Terminal) -> Result<Verdict, Failure> {
    let model = args.model.open()?;
    let target = args.saving.target(&args.model, &model)?;
    let Target::File(path) = &target else {
        return Err(Failure::new("a reduction needs a file for its result").help("give -o FILE"));
    };
    if !args.check.contains('%') && !args.check.contains("{}") {
        return Err(Failure::new("the command of --check has no %, the place of the model's path")
            .help("for example: --check 'sardonyx run % --random'"));
    }
    let mut journal = Journal::open(args, path, &model)?;
    let mut checker = Checker::new(args, path, &model)?;
    let bar = terminal.progress("reducing", None);
    let mut failed: Option<Failure> = None;
    let options = ReduceOptions { checks: args.limit };
    let (reduced, report) = model.reduce(&options, &mut |candidate| {
        let nodes = candidate.node_count();
        bar.set_message(format!("reducing: {}", format_count(nodes, "node")));
        bar.inc(1);
        if let Some(known) = journal.next_answer(nodes) {
            return known;
        }
        let answer = checker.check(candidate).and_then(|answer| {
            journal.append(answer, nodes)?;
            Ok(answer)
        });
        answer.unwrap_or_else(|error| {
            failed = Some(error);
            CheckAnswer::Stop
        })
    });
    bar.finish_and_clear();
    if let Some(failure) = failed {
        return Err(failure);
    }
    if report.never_failed {
        journal.remove();
        let found = match checker.last {
            Some(code) => format!("its exit code is {code}"),
            None => {
                format!("it takes longer than {} seconds or is ended by a signal", args.timeout)
            }
        };
        let help = match checker.last {
            Some(126 | 127) => {
                "the shell cannot run it; a command fails if its exit code is 1".into()
            }
            // With another meaning of 1, or a crash.
            Some(code @ 2..) if cfg!(unix) => format!(
                "a command fails if its exit code is 1; if {code} is the failure, end the command \
                 with '; test $? -ne {code}'"
            ),
            _ => "a command fails if its exit code is 1".to_string(),
        };
        return Err(Failure::new(format!("the command does not fail for the model: {found}"))
            .at(args.model.name())
            .help(help));
    }
    let save = SaveOptions::new();
    let saved =
        args.saving.save(&args.model, &reduced, save, Weights::Keep, target.clone(), terminal)?;
    if !report.stopped {
        journal.remove();
    }
    if args.saving.json {
        let answer = json!({
            "schema": SCHEMA,
            "model": args.model.name(),
            "reduced": report,
            "saved": saved.json(),
        });
        terminal.json(&answer, true)?;
        return Ok(Verdict::Fine);
    }
    terminal.remark(&as_text(&report));
    saved.print(terminal);
    Ok(Verdict::Fine)
}

/// Runs the command on candidates.
struct Checker<'a> {
    command: &'a str,
    timeout: Duration,
    /// File that holds the candidate while the command runs.
    candidate: PathBuf,
    /// Exit code of the last command; `None` if it was ended.
    last: Option<i32>,
}

impl<'a> Checker<'a> {
    /// Creates the checker. Candidates are written beside the result; those of a model with data
    /// files beside the model, so that values stay where they are.
    fn new(args: &'a Args, output: &Path, model: &Model) -> Result<Checker<'a>, Failure> {
        let has_data = !model.external_files().is_empty() && !args.model.is_stdin();
        let beside = if has_data { &args.model.path } else { output };
        let stem = output.file_stem().unwrap_or_default().to_string_lossy();
        let name = format!("{stem}.candidate-{}.onnx", std::process::id());
        let candidate = std::path::absolute(beside.with_file_name(name))
            .map_err(|error| io_failure("cannot find", output, &error))?;
        let timeout = Duration::from_secs(args.timeout);
        Ok(Checker { command: &args.check, timeout, candidate, last: None })
    }

    /// Writes a candidate and runs the command on it.
    fn check(&mut self, candidate: &Model) -> Result<CheckAnswer, Failure> {
        SaveOptions::new().weights(Weights::Keep).save(candidate, &self.candidate)?;
        let status = self.run_command();
        // The next candidate replaces it; data files are those of this candidate alone.
        let _ = fs::remove_file(&self.candidate);
        self.last = status?.and_then(|status| status.code());
        Ok(if self.last == Some(FAILING) { CheckAnswer::Fails } else { CheckAnswer::Passes })
    }

    /// Runs the command. Returns `None` if the time is over.
    fn run_command(&self) -> Result<Option<ExitStatus>, Failure> {
        let path = self.candidate.to_string_lossy();
        let path = quote(&path);
        let text = self.command.replace('%', &path).replace("{}", &path);
        let mut command = shell(&text);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut child = command.spawn().map_err(|error| {
            Failure::new(format!("the command of --check cannot be run: {error}"))
        })?;
        let start = Instant::now();
        let mut pause = Duration::from_millis(1);
        loop {
            match child.try_wait() {
                Ok(Some(status)) => return Ok(Some(status)),
                Ok(None) if start.elapsed() >= self.timeout => {
                    end_command(&mut child);
                    return Ok(None);
                }
                Ok(None) => thread::sleep(pause),
                Err(error) => {
                    return Err(Failure::new(format!("the command has no exit code: {error}")));
                }
            }
            pause = (pause * 2).min(Duration::from_millis(20));
        }
    }
}

impl Drop for Checker<'_> {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.candidate);
    }
}

/// Returns the shell with a command. On Unix it leads a process group, so that all its processes
/// can be ended.
fn shell(text: &str) -> Command {
    #[cfg(unix)]
    {
        use std::os::unix::process::CommandExt;
        let mut command = Command::new("sh");
        command.arg("-c").arg(text).process_group(0);
        command
    }
    #[cfg(not(unix))]
    {
        let mut command = Command::new("cmd");
        command.arg("/C").arg(text);
        command
    }
}

/// Ends a command and the processes that it has started.
fn end_command(child: &mut Child) {
    if cfg!(unix) {
        let group = format!("-{}", child.id());
        let _ = Command::new("kill").args(["-KILL", "--", &group]).stderr(Stdio::null()).status();
    }
    let _ = child.kill();
    let _ = child.wait();
}

/// Quotes a path for the shell.
fn quote(path: &str) -> String {
    if path.chars().all(|c| c.is_ascii_alphanumeric() || "/._-+:\\".contains(c)) {
        path.to_string()
    } else if cfg!(unix) {
        format!("'{}'", path.replace('\'', "'\\''"))
    } else {
        format!("\"{path}\"")
    }
}

/// Answers of the command so far, in a file: the first line names model and command, each other
/// line has an answer and the number of nodes of its candidate. The candidates follow from the
/// answers, so that they need not be stored.
struct Journal {
    path: PathBuf,
    file: File,
    known: std::vec::IntoIter<(CheckAnswer, usize)>,
}

impl Journal {
    /// Opens the journal beside the result, and reads the answers if it is about the same model and
    /// command.
    fn open(args: &Args, output: &Path, model: &Model) -> Result<Journal, Failure> {
        let mut name = output.file_name().unwrap_or_default().to_os_string();
        name.push(".reduce");
        let path = output.with_file_name(name);
        let header = format!(
            "sardonyx {} {} {} {} {}",
            env!("CARGO_PKG_VERSION"),
            args.model.name(),
            model.node_count(),
            fs::metadata(&args.model.path).map_or(0, |found| found.len()),
            args.check.replace('\n', " ")
        );
        let known = if args.restart { Vec::new() } else { read_answers(&path, &header) };
        let cannot = |error| io_failure("cannot write", &path, &error);
        let mut file = OpenOptions::new()
            .create(true)
            .write(true)
            .truncate(true)
            .open(&path)
            .map_err(cannot)?;
        writeln!(file, "{header}").map_err(cannot)?;
        for (answer, nodes) in &known {
            write_answer(&mut file, *answer, *nodes).map_err(cannot)?;
        }
        Ok(Journal { path, file, known: known.into_iter() })
    }

    /// Returns the known answer for the next candidate, which has `nodes` nodes.
    fn next_answer(&mut self, nodes: usize) -> Option<CheckAnswer> {
        let (answer, known) = self.known.next()?;
        if known == nodes {
            return Some(answer);
        }
        // Answers for other candidates: the file is of another model of the same size.
        self.known = Vec::new().into_iter();
        None
    }

    fn append(&mut self, answer: CheckAnswer, nodes: usize) -> Result<(), Failure> {
        write_answer(&mut self.file, answer, nodes)
            .map_err(|error| io_failure("cannot write", &self.path, &error))
    }

    /// Removes the file, as the reduction is complete.
    fn remove(&self) {
        let _ = fs::remove_file(&self.path);
    }
}

fn write_answer(file: &mut File, answer: CheckAnswer, nodes: usize) -> std::io::Result<()> {
    let word = if answer == CheckAnswer::Fails { "fails" } else { "passes" };
    writeln!(file, "{word} {nodes}")
}

/// Reads the answers of a journal with a header; none if it has another one.
fn read_answers(path: &Path, header: &str) -> Vec<(CheckAnswer, usize)> {
    let Ok(file) = File::open(path) else { return Vec::new() };
    let mut lines = BufReader::new(file).lines().map_while(Result::ok);
    if lines.next().as_deref() != Some(header) {
        return Vec::new();
    }
    let answers = lines.map_while(|line| {
        let (word, nodes) = line.split_once(' ')?;
        let answer = match word {
            "fails" => CheckAnswer::Fails,
            "passes" => CheckAnswer::Passes,
            _ => return None,
        };
        Some((answer, nodes.parse().ok()?))
    });
    answers.collect()
}

/// Formats the sizes before and after the reduction.
fn as_text(report: &ReduceReport) -> String {
    let end = if report.stopped { "; stopped at the limit" } else { "" };
    let checks = format_count(usize::try_from(report.checks).unwrap_or(usize::MAX), "check");
    format!(
        "reduced {} to {}, and {} elements of constants to {}, in {checks}{end}",
        format_count(report.nodes_before, "node"),
        group_digits(report.nodes as u64),
        group_digits(report.elements_before),
        group_digits(report.elements),
    )
}

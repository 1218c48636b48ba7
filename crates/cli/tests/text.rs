//! The files of `tests/text`: texts that say at their top, in comments, which commands to run on them; what these answer
//! stands beside each, in `.out`. `BLESS=1 cargo test -p sardonyx-cli --test text` rewrites the answers.
//!
//! ```text
//! # run: parse % -o out.onnx
//! # run: print out.onnx
//! # run: fmt - < %
//! ```
//!
//! `%` is the file. Each runs in a folder that has nothing else in it.
#![allow(clippy::unwrap_used)]

use std::fmt::Write;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use libtest_mimic::{Arguments, Failed, Trial};

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/text");
    let mut files = Vec::new();
    gather(&folder, &mut files);
    files.sort();
    assert!(!files.is_empty(), "no cases in {}", folder.display());
    let trials = files.into_iter().map(|file| {
        let name = file.strip_prefix(&folder).unwrap().display().to_string();
        Trial::test(name, move || case(&file))
    });
    libtest_mimic::run(&arguments, trials.collect()).exit_code()
}

fn gather(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            gather(&path, files);
        } else if path.extension().is_some_and(|suffix| suffix == "onnxtxt") {
            files.push(path);
        }
    }
}

fn case(file: &Path) -> Result<(), Failed> {
    let text = fs::read(file).unwrap();
    let lines = text.split(|byte| *byte == b'\n');
    let runs: Vec<String> = lines
        .map_while(|line| line.strip_prefix(b"# "))
        .filter_map(|line| line.strip_prefix(b"run: "))
        .map(|line| String::from_utf8_lossy(line).into_owned())
        .collect();
    if runs.is_empty() {
        return Err("its first lines have no `# run: `".into());
    }
    let folder = tempfile::tempdir().unwrap();
    let name = file.file_name().unwrap().to_str().unwrap();
    fs::write(folder.path().join(name), &text).unwrap();
    let mut answers = String::new();
    for run in runs {
        answer(&run, name, folder.path(), &mut answers);
    }
    let expected = file.with_extension("out");
    if std::env::var_os("BLESS").is_some_and(|bless| bless == "1") {
        fs::write(&expected, answers).unwrap();
        return Ok(());
    }
    let wanted = fs::read_to_string(&expected)
        .map_err(|error| format!("{}: {error}", expected.display()))?;
    if wanted == answers {
        return Ok(());
    }
    let differs = wanted
        .lines()
        .zip(answers.lines())
        .position(|(a, b)| a != b);
    Err(format!(
        "the answers differ from {}, first in line {} (BLESS=1 rewrites them):\n{answers}",
        expected.display(),
        differs.unwrap_or(wanted.lines().count().min(answers.lines().count())) + 1,
    )
    .into())
}

/// Runs a command and writes down what it says.
fn answer(run: &str, name: &str, folder: &Path, answers: &mut String) {
    let (arguments, stdin) = match run.split_once(" < ") {
        Some((arguments, file)) => (arguments, Some(file.replace('%', name))),
        None => (run, None),
    };
    let mut command = Command::new(env!("CARGO_BIN_EXE_sardonyx"));
    command.current_dir(folder).stdin(Stdio::null());
    // An argument with blanks stands in single quotes.
    for (index, part) in arguments.split('\'').enumerate() {
        if index % 2 == 1 {
            command.arg(part);
        } else {
            let words = part.split_whitespace();
            command.args(words.map(|word| word.replace('%', name)));
        }
    }
    if let Some(file) = stdin {
        command.stdin(File::open(folder.join(file)).unwrap());
    }
    let output = command.output().unwrap();
    writeln!(answers, "$ sardonyx {run}").unwrap();
    for stream in [&output.stdout, &output.stderr] {
        answers.push_str(&String::from_utf8_lossy(stream));
        if !stream.is_empty() && !stream.ends_with(b"\n") {
            answers.push('\n');
        }
    }
    if output.status.code() != Some(0) {
        writeln!(answers, "exit code {}", output.status.code().unwrap_or(-1)).unwrap();
    }
}

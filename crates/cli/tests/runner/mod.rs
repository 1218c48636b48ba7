//! Runs test files whose first lines are comments with commands to run on them. The expected output
//! is in a file with the suffix `.out` beside each. With `BLESS=1` in the environment it is
//! rewritten.
//!
//! ```text
//! # run: parse % -o out.onnx
//! # run: print out.onnx
//! # run: fmt - < %
//! ```
//!
//! `%` is the file. Its commands run in a directory with nothing but copies of the file and of
//! those that differ from it only in the suffix.

use std::fmt::Write;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use libtest_mimic::{Failed, Trial};
use tempfile::TempDir;

/// Returns a trial for each file with one of the suffixes below a directory of `tests/`, in the
/// order of their names.
pub(crate) fn trials(directory: &str, suffixes: &[&str]) -> Vec<Trial> {
    let tests = root().join("tests");
    let files = cases(&tests.join(directory), suffixes);
    assert!(!files.is_empty(), "no cases in tests/{directory}");
    let trials = files.into_iter().map(|file| {
        let name = file.strip_prefix(&tests).unwrap().display().to_string();
        Trial::test(name, move || case(&file))
    });
    trials.collect()
}

/// Returns the path of the top of the repository.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Returns all files with one of the suffixes below a directory, sorted.
pub(crate) fn cases(directory: &Path, suffixes: &[&str]) -> Vec<PathBuf> {
    let mut files = Vec::new();
    gather(directory, suffixes, &mut files);
    files.sort();
    files
}

fn gather(directory: &Path, suffixes: &[&str], files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        let suffix = path.extension().and_then(|suffix| suffix.to_str());
        if path.is_dir() {
            gather(&path, suffixes, files);
        } else if suffix.is_some_and(|suffix| suffixes.contains(&suffix)) {
            files.push(path);
        }
    }
}

fn case(file: &Path) -> Result<(), Failed> {
    let answers = answers(file, &[])?;
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
    let differs = wanted.lines().zip(answers.lines()).position(|(a, b)| a != b);
    Err(format!(
        "the answers differ from {}, first in line {} (BLESS=1 rewrites them):\n{answers}",
        expected.display(),
        differs.unwrap_or(wanted.lines().count().min(answers.lines().count())) + 1,
    )
    .into())
}

/// Runs the commands of a file with `variables` in their environment, and returns their output.
pub(crate) fn answers(file: &Path, variables: &[(&str, &str)]) -> Result<String, Failed> {
    let (directory, runs) = prepare(file)?;
    let name = file.file_name().unwrap().to_str().unwrap();
    let mut answers = String::new();
    for run in runs {
        answer(&run, name, directory.path(), variables, &mut answers);
    }
    Ok(answers)
}

/// Creates a directory with copies of a file and those that differ only in the suffix. Returns it
/// with the commands of the file.
pub(crate) fn prepare(file: &Path) -> Result<(TempDir, Vec<String>), Failed> {
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
    let directory = tempfile::tempdir().unwrap();
    let expected = file.with_extension("out");
    for entry in fs::read_dir(file.parent().unwrap()).unwrap() {
        let beside = entry.unwrap().path();
        if beside.file_stem() == file.file_stem() && beside != expected {
            fs::copy(&beside, directory.path().join(beside.file_name().unwrap())).unwrap();
        }
    }
    Ok((directory, runs))
}

/// Runs a command, and appends it with its output and exit code to `answers`.
pub(crate) fn answer(
    run: &str,
    name: &str,
    directory: &Path,
    variables: &[(&str, &str)],
    answers: &mut String,
) {
    let (arguments, stdin) = match run.split_once(" < ") {
        Some((arguments, file)) => (arguments, Some(file.replace('%', name))),
        None => (run, None),
    };
    let mut command = Command::new(env!("CARGO_BIN_EXE_sardonyx"));
    command.current_dir(directory).stdin(Stdio::null());
    command.envs(variables.iter().copied());
    // Arguments with blanks are in single quotes.
    for (index, part) in arguments.split('\'').enumerate() {
        if index % 2 == 1 {
            command.arg(part);
        } else {
            let words = part.split_whitespace();
            command.args(words.map(|word| word.replace('%', name)));
        }
    }
    if let Some(file) = stdin {
        command.stdin(File::open(directory.join(file)).unwrap());
    }
    let output = command.output().unwrap();
    // The path of the temporary directory differs between runs, so it is replaced.
    let here = directory.canonicalize().unwrap().display().to_string();
    writeln!(answers, "$ sardonyx {run}").unwrap();
    for stream in [&output.stdout, &output.stderr] {
        let stream_text = String::from_utf8_lossy(stream).replace(&here, ".");
        // The version is replaced, so that a release does not change expected output.
        let producer = concat!("producer_version: \"", env!("CARGO_PKG_VERSION"), "\"");
        let stream_text = stream_text.replace(producer, "producer_version: \"VERSION\"");
        answers.push_str(&stream_text);
        if !stream.is_empty() && !stream.ends_with(b"\n") {
            answers.push('\n');
        }
    }
    if output.status.code() != Some(0) {
        writeln!(answers, "exit code {}", output.status.code().unwrap_or(-1)).unwrap();
    }
}

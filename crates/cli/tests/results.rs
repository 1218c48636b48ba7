//! Checks that models written by `convert` and `inline` are valid if their inputs are, and give the
//! same outputs.

use std::path::Path;
use std::process::{Command, Output, Stdio};

use libtest_mimic::{Failed, Trial};

use crate::runner;

/// Suites whose commands write an equivalent model, with the suffixes of their models.
const SUITES: &[(&str, &[&str])] = &[("convert", &["onnxtxt"]), ("inline", &["onnxtxt", "txtpb"])];

pub(crate) fn trials() -> Vec<Trial> {
    let tests = runner::root().join("tests");
    let suites = SUITES.iter().flat_map(|(suite, suffixes)| {
        let files = runner::cases(&tests.join(suite), suffixes);
        files.into_iter().map(|file| {
            let name = file.strip_prefix(&tests).unwrap().display();
            Trial::test(format!("results: {name}"), move || case(&file))
        })
    });
    suites.collect()
}

fn case(file: &Path) -> Result<(), Failed> {
    let (directory, runs) = runner::prepare(file)?;
    let here = directory.path();
    let name = file.file_name().unwrap().to_str().unwrap();
    for run in runs {
        let mut answers = String::new();
        runner::answer(&run, name, here, &[], &mut answers);
        let is_done = !answers.contains("\nexit code ");
        let words: Vec<String> =
            run.split_whitespace().map(|word| word.replace('%', name)).collect();
        let changes = SUITES.iter().any(|(suite, _)| words[0] == *suite);
        let written = words.iter().position(|word| word == "-o").and_then(|at| words.get(at + 1));
        if let Some(written) = written.filter(|_| is_done && changes)
            && here.join(written).is_file()
        {
            check_written(here, name, &words, written)
                .map_err(|why| format!("$ sardonyx {run}\n{why}"))?;
        }
    }
    Ok(())
}

/// Checks that the model that a command has written is valid, and gives the same outputs as its
/// input model.
fn check_written(
    directory: &Path,
    given: &str,
    command: &[String],
    written: &str,
) -> Result<(), String> {
    let is_valid = |model| sardonyx(directory, &["check", "--full", model]);
    let found = is_valid(written);
    if !found.status.success() && is_valid(given).status.success() {
        return Err(format!("{written} is not valid any more\n{}", text(&found)));
    }
    // With --assume the results may differ, and --verify has compared both models already.
    let is_free = command.iter().any(|word| word == "--assume" || word == "--verify");
    let run = |model: &str, more: [&str; 2]| {
        sardonyx(directory, &[&["run", model, "--random", "1"], &more[..]].concat())
    };
    // Skips models that do not run, and those that draw random numbers: these differ between runs.
    // Three comparisons, as a few numbers are equal in one of some dozen pairs of runs.
    if is_free
        || !run(given, ["-o", "outputs"]).status.success()
        || (0..3).any(|_| !run(given, ["--expect", "outputs"]).status.success())
    {
        return Ok(());
    }
    let found = if command[0] == "convert" {
        // Both models get the inputs of the old one.
        let again: Vec<&str> = command.iter().map(String::as_str).collect();
        sardonyx(directory, &[&again[..], &["--verify", "2"]].concat())
    } else {
        run(written, ["--expect", "outputs"])
    };
    if found.status.success() {
        return Ok(());
    }
    Err(format!("{written} gives something else\n{}", text(&found)))
}

fn sardonyx(directory: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sardonyx"));
    command.current_dir(directory).stdin(Stdio::null()).args(arguments).output().unwrap()
}

fn text(output: &Output) -> String {
    [&output.stdout, &output.stderr].map(|stream| String::from_utf8_lossy(stream)).concat()
}

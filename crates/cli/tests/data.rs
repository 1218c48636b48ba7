//! Tests that are files with their answers beside them, in the format that [`runner`] describes.
//!
//! The name of a trial is the path of its file below `tests/` at the top of the repository:
//! `cargo test -p sardonyx-cli --test data check/graph` runs those of one directory, and with
//! `BLESS=1` rewrites their answers.
#![allow(clippy::unwrap_used)]

mod check;
mod results;
mod runner;
mod switched;

use std::process::ExitCode;

use libtest_mimic::Arguments;

/// Directories below `tests/`, each with the suffixes of its models.
const SUITES: &[(&str, &[&str])] = &[
    ("check", &["onnxtxt", "txtpb"]),
    ("convert", &["onnxtxt"]),
    ("cost", &["onnxtxt"]),
    ("devices", &["onnxtxt"]),
    ("diff", &["onnxtxt"]),
    ("infer", &["onnxtxt"]),
    ("inline", &["onnxtxt", "txtpb"]),
    ("program", &["onnxtxt"]),
    ("ranks", &["onnxtxt"]),
    // These models give default values to their inputs, and the answers are the outputs of a run.
    ("run", &["onnxtxt", "txtpb"]),
    ("text", &["onnxtxt"]),
];

fn main() -> ExitCode {
    let mut trials = check::trials();
    trials.extend(results::trials());
    trials.extend(switched::trials());
    for (directory, suffixes) in SUITES {
        // Ranks are processes, which are connected on Unix only.
        if *directory != "ranks" || cfg!(unix) {
            trials.extend(runner::trials(directory, suffixes));
        }
    }
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}

//! Tests that are files with their expected output beside them; see [`runner`] for the format.
//!
//! A test is named after its path below `tests/` at the top of the repository:
//! `cargo test -p sardonyx-cli --test data check/graph` runs the tests of one directory, and with
//! `BLESS=1` rewrites their expected output.
#![allow(clippy::unwrap_used)]

mod check;
mod results;
mod runner;
mod switched;

use std::process::ExitCode;

use libtest_mimic::Arguments;

/// Directories below `tests/`, and the suffixes of their models.
const SUITES: &[(&str, &[&str])] = &[
    ("check", &["onnxtxt", "txtpb"]),
    ("compare", &["onnxtxt"]),
    ("convert", &["onnxtxt"]),
    ("cost", &["onnxtxt"]),
    ("devices", &["onnxtxt"]),
    ("diff", &["onnxtxt"]),
    ("extract", &["onnxtxt"]),
    ("infer", &["onnxtxt"]),
    ("inline", &["onnxtxt", "txtpb"]),
    ("program", &["onnxtxt"]),
    ("ranks", &["onnxtxt"]),
    // Commands of a shell that Unix systems have.
    ("reduce", &["onnxtxt"]),
    // Models whose inputs have default values, with the outputs of a run.
    ("run", &["onnxtxt", "txtpb"]),
    ("simplify", &["onnxtxt"]),
    ("text", &["onnxtxt"]),
];

fn main() -> ExitCode {
    let mut trials = check::trials();
    trials.extend(results::trials());
    trials.extend(switched::trials());
    for (directory, suffixes) in SUITES {
        // Ranks are processes, which only Unix systems can connect.
        if !["ranks", "reduce"].contains(directory) || cfg!(unix) {
            trials.extend(runner::trials(directory, suffixes));
        }
    }
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}

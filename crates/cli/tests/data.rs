//! Tests that are files with their answers beside them; [`runner`] says what they look like.
//!
//! A trial is called after its file, below `tests/` at the top of the repository:
//! `cargo test -p sardonyx-cli --test data check/graph` runs those of one directory, and with
//! `BLESS=1` rewrites their answers.
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
    ("convert", &["onnxtxt"]),
    ("cost", &["onnxtxt"]),
    ("devices", &["onnxtxt"]),
    ("diff", &["onnxtxt"]),
    ("infer", &["onnxtxt"]),
    ("inline", &["onnxtxt", "txtpb"]),
    ("program", &["onnxtxt"]),
    ("ranks", &["onnxtxt"]),
    // Models whose inputs have default values, and what a run gives.
    ("run", &["onnxtxt", "txtpb"]),
    ("text", &["onnxtxt"]),
];

fn main() -> ExitCode {
    let mut trials = check::trials();
    trials.extend(results::trials());
    trials.extend(switched::trials());
    for (directory, suffixes) in SUITES {
        // Ranks are processes, which other systems do not connect.
        if *directory != "ranks" || cfg!(unix) {
            trials.extend(runner::trials(directory, suffixes));
        }
    }
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}

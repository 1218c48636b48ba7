//! The files of `tests/run`: models whose inputs have default values, and what a run gives;
//! [`runner`] says what the files look like. `BLESS=1 cargo test -p sardonyx-cli --test run`
//! rewrites the answers.
#![allow(clippy::unwrap_used)]

mod runner;

use std::process::ExitCode;

use libtest_mimic::Arguments;

fn main() -> ExitCode {
    let trials = runner::trials("tests/run", &["onnxtxt"]);
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}

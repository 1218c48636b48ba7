//! The files of `tests/cost`; [`runner`] says what they look like.
//! `BLESS=1 cargo test -p sardonyx-cli --test cost` rewrites the answers.
#![allow(clippy::unwrap_used)]

mod runner;

use std::process::ExitCode;

use libtest_mimic::Arguments;

fn main() -> ExitCode {
    let trials = runner::trials("tests/cost", &["onnxtxt"]);
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}

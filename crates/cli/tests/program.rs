//! The files of `tests/program`; [`runner`] says what they look like.
//! `BLESS=1 cargo test -p sardonyx-cli --test program` rewrites the answers.
#![allow(clippy::unwrap_used)]

mod runner;

use std::process::ExitCode;

use libtest_mimic::Arguments;

fn main() -> ExitCode {
    let trials = runner::trials("tests/program", &["onnxtxt"]);
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}

//! The files of `tests/devices`; [`runner`] says what they look like.
//! `BLESS=1 cargo test -p sardonyx-cli --test devices` rewrites the answers.
#![allow(clippy::unwrap_used)]

mod runner;

use std::process::ExitCode;

use libtest_mimic::Arguments;

fn main() -> ExitCode {
    let trials = runner::trials("tests/devices", &["onnxtxt"]);
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}

//! The files of `tests/convert`; [`runner`] says what they look like.
//! `BLESS=1 cargo test -p sardonyx-cli --test convert` rewrites the answers.
#![allow(clippy::unwrap_used)]

mod runner;

use std::process::ExitCode;

use libtest_mimic::Arguments;

fn main() -> ExitCode {
    let trials = runner::trials("tests/convert", &["onnxtxt"]);
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}

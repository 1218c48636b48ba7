//! The files of `tests/ranks`; [`runner`] says what they look like.
//! `BLESS=1 cargo test -p sardonyx-cli --test ranks` rewrites the answers.
#![allow(clippy::unwrap_used)]

mod runner;

use std::process::ExitCode;

use libtest_mimic::Arguments;

fn main() -> ExitCode {
    // Ranks are processes, which other systems do not connect.
    let trials = if cfg!(unix) { runner::trials("tests/ranks", &["onnxtxt"]) } else { Vec::new() };
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}

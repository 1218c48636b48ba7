//! The files of `tests/text`; [`runner`] says what they look like.
//! `BLESS=1 cargo test -p sardonyx-cli --test text` rewrites the answers.
#![allow(clippy::unwrap_used)]

mod runner;

use std::process::ExitCode;

use libtest_mimic::Arguments;

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    libtest_mimic::run(&arguments, runner::trials("tests/text", &["onnxtxt"])).exit_code()
}

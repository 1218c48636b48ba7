//! The files of `tests/check`; [`runner`] says what they look like. `BLESS=1 cargo test -p sardonyx-cli --test check` rewrites
//! the answers. Every code that the checker can say has a file here that makes it say it.
#![allow(clippy::unwrap_used)]

mod runner;

use std::fs;
use std::process::ExitCode;

use libtest_mimic::{Arguments, Failed, Trial};
use sardonyx::check::CODES;

const FOLDER: &str = "tests/check";

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    let mut trials = runner::trials(FOLDER, &["onnxtxt", "txtpb"]);
    trials.push(Trial::test("every_code_has_an_example", every_code));
    libtest_mimic::run(&arguments, trials).exit_code()
}

/// Codes of other jobs, which `check` does not say.
const OF_OTHER_JOBS: &[&str] = &["malformed-node", "no-exact-upgrade"];

/// Codes about models too large for a file here; they are met in `crates/passes/src/check/tests.rs`.
const OF_LARGE_MODELS: &[&str] = &["too-many-functions", "calls-too-deep"];

fn every_code() -> Result<(), Failed> {
    let files = runner::cases(&runner::root().join(FOLDER), &["out"]);
    let answers: Vec<String> = files
        .iter()
        .map(|file| fs::read_to_string(file).unwrap())
        .collect();
    let occurs = |code: &str| {
        let said = format!("[{code}]: ");
        answers.iter().any(|answer| answer.contains(&said))
    };
    let missing: Vec<&str> = CODES
        .iter()
        .map(|code| code.name)
        .filter(|code| {
            let elsewhere = OF_OTHER_JOBS.contains(code) || OF_LARGE_MODELS.contains(code);
            occurs(code) == elsewhere
        })
        .collect();
    if missing.is_empty() {
        return Ok(());
    }
    Err(format!(
        "no file of {FOLDER} has an example of these, or one has that is said to be met elsewhere only: {}",
        missing.join(", ")
    )
    .into())
}

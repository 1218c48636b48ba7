//! Tests of workers that are processes. The program runs the tests, and each worker as well.
#![allow(clippy::unwrap_used)]

#[cfg(unix)]
#[path = "../steps/mod.rs"]
mod steps;
#[cfg(unix)]
mod workers;

#[cfg(unix)]
fn main() -> std::process::ExitCode {
    workers::run()
}

#[cfg(not(unix))]
fn main() {}

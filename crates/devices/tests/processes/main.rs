//! Workers that are processes: the program of tests, and of each worker.
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

//! Workers that are processes: the program of tests, and of each worker.

#[cfg(unix)]
mod workers;

#[cfg(unix)]
fn main() -> std::process::ExitCode {
    workers::run()
}

#[cfg(not(unix))]
fn main() {}

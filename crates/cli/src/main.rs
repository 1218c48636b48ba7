//! The program `sardonyx`. Its code is in the library beside it, which is compiled while the
//! crates that it uses are; a program waits for all of them.

use std::process::ExitCode;

/// Global allocator, which backs large allocations with large pages.
#[global_allocator]
static ALLOCATOR: sardonyx::run::LargePages = sardonyx::run::LargePages;

fn main() -> ExitCode {
    sardonyx_cli::run_command()
}

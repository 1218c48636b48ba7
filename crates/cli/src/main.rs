//! The `sardonyx` command. One file per subcommand; what they share is in files named after it.
//!
//! Exit codes: 0 fine, 1 findings, 2 wrong usage, input or output that fails, or bad input. Answers go to stdout, everything else to
//! stderr.

// In a test, a panic is the report.
#![cfg_attr(test, allow(clippy::unwrap_used))]

mod bench;
mod classes;
mod failure;
mod files;
mod info;
mod inputs;
mod last_resort;
mod npz;
mod outputs;
mod picture;
mod random;
mod run;
mod show;
mod terminal;
mod timing;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use sardonyx::Model;

use crate::failure::Failure;
use crate::terminal::Terminal;

/// ONNX models: inspect and run them.
#[derive(Parser)]
#[command(name = "sardonyx", version, max_term_width = 110)]
struct Cli {
    #[command(flatten)]
    terminal: terminal::Args,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Info(info::Args),
    Run(run::Args),
    Bench(bench::Args),
}

/// The model that a command works on.
#[derive(clap::Args)]
#[group(skip)]
struct ModelArg {
    /// ONNX file, or - for stdin
    #[arg(value_name = "MODEL")]
    path: PathBuf,
}

fn main() -> ExitCode {
    last_resort::install();
    let answered = last_resort::catch(|| {
        let cli = match Cli::try_parse() {
            Ok(cli) => cli,
            Err(usage) => {
                // Help asked for is an answer; whether it could be printed changes nothing.
                let _ = usage.print();
                return ExitCode::from(if usage.use_stderr() { 2 } else { 0 });
            }
        };
        let terminal = Terminal::new(&cli.terminal);
        let result = match cli.command {
            Command::Info(args) => info::info(&args, &terminal),
            Command::Run(args) => run::run(&args, &terminal),
            Command::Bench(args) => bench::bench(&args, &terminal),
        };
        match result {
            Ok(()) => ExitCode::SUCCESS,
            Err(failure) => terminal.report(&failure),
        }
    });
    answered.unwrap_or_else(|bug| Terminal::plain().report(&bug))
}

impl ModelArg {
    fn open(&self) -> Result<Model, Failure> {
        if self.path.as_os_str() == "-" {
            return Model::from_reader(std::io::stdin().lock())
                .map_err(|error| Failure::from(error).at("standard input"));
        }
        Ok(Model::open(&self.path)?)
    }

    /// The name for reports.
    fn name(&self) -> String {
        self.path.display().to_string()
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        super::Cli::command().debug_assert();
    }
}

//! The `sardonyx` command. Each subcommand is a file; shared code is in files named after its
//! topic.
//!
//! Exit codes: 0 for success, 1 for findings, 2 for wrong usage, I/O errors or bad input. Answers
//! go to stdout, notes and errors to stderr.

// A panic is how a test reports a failure.
#![cfg_attr(test, allow(clippy::unwrap_used))]

mod add_training;
mod arrays;
mod bench;
mod cat;
mod check;
mod classes;
#[cfg(feature = "generate")]
mod classify;
mod compare;
mod completions;
mod convert;
mod cost;
mod data_files;
mod derived;
mod devices;
mod diff;
mod differentiate;
#[cfg(feature = "generate")]
mod directory;
#[cfg(feature = "generate")]
mod embed;
mod escape;
mod expect;
mod explain_model;
mod externalize;
mod extract;
mod failure;
mod features;
mod files;
mod filling;
mod fmt;
#[cfg(feature = "generate")]
mod generate;
mod graph;
mod hash;
mod human;
mod images;
mod infer;
mod info;
mod inline;
mod inner;
mod inputs;
mod invalid;
mod last_resort;
mod ls;
mod machine;
mod model_arg;
mod models;
mod nodes;
mod objects;
mod operator_name;
mod ops;
mod outputs;
mod pack;
mod parallel;
mod parse;
mod print;
mod profile;
mod reduce;
mod refused;
mod rules;
mod run;
mod sarif;
mod save;
mod saving;
mod scan;
mod session;
mod set;
mod shard;
mod show;
mod simplify;
mod stats;
mod steps;
mod stopping;
mod stored_tensors;
mod strip;
mod symbols;
mod terminal;
#[cfg(feature = "generate")]
mod texts;
mod timing;
mod train;
mod types;
mod usage;
mod verdict;
mod verify;

use std::process::ExitCode;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};

use crate::failure::Failure;
use crate::terminal::Terminal;
use crate::verdict::Verdict;

/// ONNX models: inspect, change and run them.
#[derive(Parser)]
#[command(name = "sardonyx", version, max_term_width = 100)]
struct Cli {
    #[command(flatten)]
    terminal: terminal::Args,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Models(models::Args),
    Info(info::Args),
    Ls(ls::Args),
    Cat(cat::Args),
    Print(print::Args),
    Parse(parse::Args),
    Fmt(fmt::Args),
    Run(run::Args),
    Bench(bench::Args),
    Profile(profile::Args),
    #[cfg(feature = "generate")]
    Generate(Box<generate::Args>),
    #[cfg(feature = "generate")]
    Embed(Box<embed::Args>),
    #[cfg(feature = "generate")]
    Classify(Box<classify::Args>),
    Train(train::Args),
    AddTraining(add_training::Args),
    Differentiate(differentiate::Args),
    Pack(pack::Args),
    Externalize(externalize::Args),
    Convert(convert::Args),
    #[command(alias = "convert-format")]
    Save(save::Args),
    Set(set::Args),
    Strip(strip::Args),
    Simplify(simplify::Args),
    /// Simplify a model, with the arguments of the command `onnxslim`
    #[command(hide = true)]
    Slim(simplify::SlimArgs),
    /// Simplify a model, with the arguments of the command `onnxsim`
    #[command(hide = true)]
    Sim(simplify::SlimArgs),
    Inline(inline::Args),
    Extract(Box<extract::Args>),
    Reduce(reduce::Args),
    Shard(shard::Args),
    Check(check::Args),
    Infer(infer::Args),
    Cost(cost::Args),
    Explain(explain_model::Args),
    Scan(scan::Args),
    Diff(diff::Args),
    Compare(compare::Args),
    Hash(hash::Args),
    Features(features::Args),
    Ops(ops::Args),
    Graph(graph::Args),
    Completions(completions::CompletionArgs),
    Man(completions::ManArgs),
}

/// Parses the arguments of the process, runs the command, and returns its exit code.
pub fn run_command() -> ExitCode {
    last_resort::install_hook();
    sardonyx::tool::keep_panic_places();
    let wanted = usage::EarlyOptions::from_args(std::env::args_os().skip(1));
    let answered = last_resort::catch_panic(|| {
        let command = usage::allow_negative_numbers(Cli::command());
        let mut arguments: Vec<_> = std::env::args_os().collect();
        if arguments.len() == 1 && models::is_in_directory_of_models() {
            arguments.push("models".into());
        }
        let matches = command.color(wanted.color).try_get_matches_from(arguments);
        let cli = match matches.and_then(|matches| Cli::from_arg_matches(&matches)) {
            Ok(cli) => cli,
            Err(usage) => {
                // A failure to print is ignored: the exit code depends on the arguments alone.
                let _ = usage.print();
                if !usage.use_stderr() {
                    return ExitCode::SUCCESS;
                }
                Terminal::plain(wanted.format).answer_failure(&Failure::from(&usage));
                return ExitCode::from(2);
            }
        };
        let terminal = Terminal::new(&cli.terminal, wanted.format);
        let result = match cli.command {
            Command::Models(args) => models::models(&args, &terminal),
            Command::Info(args) => to_verdict(info::info(&args, &terminal)),
            Command::Ls(args) => ls::ls(&args, &terminal),
            Command::Ops(args) => ops::ops(&args, &terminal),
            Command::Cat(args) => to_verdict(cat::cat(&args, &terminal)),
            Command::Print(args) => print::print(&args, &terminal),
            Command::Parse(args) => parse::parse(&args, &terminal),
            Command::Fmt(args) => fmt::fmt(&args, &terminal),
            Command::Run(args) => run::run(&args, &terminal),
            Command::Bench(args) => to_verdict(bench::bench(&args, &terminal)),
            Command::Profile(args) => to_verdict(profile::profile(&args, &terminal)),
            #[cfg(feature = "generate")]
            Command::Generate(args) => to_verdict(generate::generate(&args, &terminal)),
            #[cfg(feature = "generate")]
            Command::Embed(args) => to_verdict(embed::embed(&args, &terminal)),
            #[cfg(feature = "generate")]
            Command::Classify(args) => to_verdict(classify::classify(&args, &terminal)),
            Command::Train(args) => to_verdict(train::train(&args, &terminal)),
            Command::AddTraining(args) => add_training::add_training(&args, &terminal),
            Command::Differentiate(args) => differentiate::differentiate(&args, &terminal),
            Command::Pack(args) => to_verdict(pack::pack(&args, &terminal)),
            Command::Externalize(args) => to_verdict(externalize::externalize(&args, &terminal)),
            Command::Convert(args) => convert::convert(&args, &terminal),
            Command::Save(args) => save::save(&args, &terminal),
            Command::Set(args) => set::set(&args, &terminal),
            Command::Check(args) => check::check(&args, &terminal),
            Command::Explain(args) => to_verdict(explain_model::explain(&args, &terminal)),
            Command::Scan(args) => scan::scan(&args, &terminal),
            Command::Diff(args) => diff::diff(&args, &terminal),
            Command::Compare(mut args) => compare::compare(&mut args, &terminal),
            Command::Infer(args) => infer::infer(&args, &terminal),
            Command::Cost(args) => to_verdict(cost::cost(&args, &terminal)),
            Command::Strip(args) => strip::strip(&args, &terminal),
            Command::Simplify(args) => simplify::simplify(&args, &terminal),
            Command::Slim(args) | Command::Sim(args) => simplify::slim(&args, &terminal),
            Command::Inline(args) => inline::inline(&args, &terminal),
            Command::Extract(args) => extract::extract(&args, &terminal),
            Command::Reduce(args) => reduce::reduce(&args, &terminal),
            Command::Shard(args) => shard::shard(&args, &terminal),
            Command::Hash(args) => to_verdict(hash::hash(&args, &terminal)),
            Command::Features(args) => to_verdict(features::features(&args, &terminal)),
            Command::Graph(args) => to_verdict(graph::graph(&args, &terminal)),
            Command::Completions(args) => {
                to_verdict(completions::completions(&args, Cli::command()))
            }
            Command::Man(args) => to_verdict(completions::man(&args, Cli::command(), &terminal)),
        };
        match result {
            Ok(Verdict::Fine) => ExitCode::SUCCESS,
            Ok(Verdict::Findings) => ExitCode::from(1),
            Err(failure) => terminal.report(&failure),
        }
    });
    answered.unwrap_or_else(|bug| Terminal::plain(wanted.format).report(&bug))
}

/// Converts the result of a command that never has findings.
fn to_verdict(result: Result<(), Failure>) -> Result<Verdict, Failure> {
    result.map(|()| Verdict::Fine)
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        super::Cli::command().debug_assert();
    }

    /// Checks that tests/json.rs runs every command with an option `--json`.
    #[test]
    fn every_command_with_json_is_tested() {
        let commands = super::Cli::command();
        let with_json = commands
            .get_subcommands()
            .filter(|command| command.get_arguments().any(|arg| arg.get_id() == "json"));
        let mut defined: Vec<&str> = with_json.map(clap::Command::get_name).collect();
        let lines = include_str!("../tests/json_commands.txt").lines();
        let lines = lines.filter(|line| !line.starts_with('#'));
        let mut tested: Vec<&str> = lines.filter_map(|line| line.split(' ').next()).collect();
        defined.sort_unstable();
        tested.sort_unstable();
        assert_eq!(tested, defined);
    }

    #[test]
    fn every_command_has_a_page_with_its_options() {
        let pages = crate::completions::render_pages(super::Cli::command()).unwrap();
        let commands = super::Cli::command();
        let visible: Vec<&clap::Command> =
            commands.get_subcommands().filter(|command| !command.is_hide_set()).collect();
        assert_eq!(pages.len(), visible.len() + 1);
        let page = |name: &str| {
            let (_, page) = pages.iter().find(|(found, _)| found == name).unwrap();
            String::from_utf8(page.clone()).unwrap()
        };
        for command in visible {
            let page = page(&format!("sardonyx-{}", command.get_name()));
            for option in command.get_arguments().filter_map(clap::Arg::get_long) {
                let option = format!("\\-\\-{}", option.replace('-', "\\-"));
                assert!(page.contains(&option), "{} lacks {option}", command.get_name());
            }
            assert!(page.contains(".SH SYNOPSIS"));
        }
        assert!(page("sardonyx").contains("sardonyx\\-run(1)"));
    }
}

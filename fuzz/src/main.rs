//! Long run: checks mutations of the saved inputs, property by property, in processes that may end
//! in any way.

mod supervise;
mod work;

use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use sardonyx_fuzz::{PROPERTIES, Property, corpus, seeds};

type Result<T = ()> = std::result::Result<T, Box<dyn std::error::Error>>;

/// Search for bytes that break a property.
///
/// Failing inputs are saved in fuzz/found; examine one with --property NAME --input FILE.
#[derive(Parser, Debug, Clone)]
#[command(name = "sardonyx-fuzz")]
pub(crate) struct Arguments {
    /// Seconds to run, over all properties.
    #[arg(long)]
    seconds: Option<u64>,
    /// Number of mutations to make, over all properties.
    #[arg(long)]
    mutations: Option<u64>,
    /// Seed of the random numbers; equal seeds make equal mutations.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Check only this property; may be given several times.
    #[arg(long = "property", value_name = "NAME", value_parser = find)]
    properties: Vec<&'static Property>,
    /// Check this one file, without catching anything.
    #[arg(long, value_name = "FILE")]
    input: Option<PathBuf>,
    /// Write the made inputs under fuzz/corpus again; inputs added by hand stay.
    #[arg(long)]
    write_corpus: bool,
    /// Number of the first mutation.
    #[arg(long, default_value_t = 0)]
    first: u64,
    /// File into which a worker writes the number of its current input; makes this process a
    /// worker.
    #[arg(long, hide = true)]
    progress: Option<PathBuf>,
}

fn find(name: &str) -> std::result::Result<&'static Property, String> {
    Property::find(name).ok_or_else(|| {
        let names: Vec<&str> = PROPERTIES.iter().map(|property| property.name).collect();
        format!("no property has this name; there are {}", names.join(", "))
    })
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("sardonyx-fuzz: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Runs what the arguments ask for. Returns whether every property held.
fn run(arguments: &Arguments) -> Result<bool> {
    if arguments.write_corpus {
        return write_corpus().map(|()| true);
    }
    if let Some(input) = &arguments.input {
        let [property] = arguments.properties[..] else {
            return Err("give the property that the file is checked with: --property NAME".into());
        };
        (property.check)(&fs::read(input)?);
        println!("{} holds for {}", property.name, input.display());
        return Ok(true);
    }
    if let Some(progress) = &arguments.progress {
        return work::run(arguments, progress).map(|()| true);
    }
    if arguments.seconds.is_none() && arguments.mutations.is_none() {
        return Err("give the extent of the run: --seconds N or --mutations M".into());
    }
    supervise::run(arguments)
}

fn write_corpus() -> Result {
    for property in PROPERTIES {
        let directory = corpus::directory_of(property);
        fs::create_dir_all(&directory)?;
        let seeds = seeds::make(property)?;
        let bytes: usize = seeds.iter().map(|(_, content)| content.len()).sum();
        println!("{}: {} files, {bytes} bytes", property.name, seeds.len());
        for (name, content) in seeds {
            fs::write(directory.join(name), content)?;
        }
    }
    Ok(())
}

//! Our side of `cargo xtask bench io`: makes the files, and times one job a given number of times.
//!
//! Prints one line of JSON: the times of all repetitions in milliseconds, the counts of the result
//! (which must equal those of the rival) and the peak memory of the process.

mod make;
mod packed;
mod visit;

use clap::{Parser, Subcommand};
use make::Scale;
use sardonyx::io::Weights;
use sardonyx::{Model, SaveOptions};
use sardonyx_tests::bench::rss_peak_mb;
use serde_json::json;
use std::error::Error;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

#[global_allocator]
static ALLOCATOR: sardonyx::run::LargePages = sardonyx::run::LargePages;

type Result<T = ()> = std::result::Result<T, Box<dyn Error>>;

#[derive(Parser)]
struct Arguments {
    #[command(subcommand)]
    job: Job,
    /// Number of repetitions.
    #[arg(long, global = true, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    repeat: u32,
}

#[derive(Subcommand)]
enum Job {
    /// Write the files that are measured.
    Make {
        directory: PathBuf,
        /// Make small files.
        #[arg(long)]
        smoke: bool,
    },
    /// Open a model with its names and uses resolved, and drop it.
    Open { model: PathBuf },
    /// Open a model, read every byte of its weights once, and drop it.
    Touch { model: PathBuf },
    /// Visit every field of a model in memory with the pull reader.
    Visit { model: PathBuf },
    /// Decode all packed lists of a model in memory.
    Packed { model: PathBuf },
    /// Save an opened model.
    Save { model: PathBuf, copy: PathBuf },
    /// Save an opened model with its weights in a file beside it.
    Externalize { model: PathBuf, copy: PathBuf },
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("io_bench: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> Result {
    let repeat = arguments.repeat;
    let (times, found) = match &arguments.job {
        Job::Make { directory, smoke } => {
            let scale = if *smoke { Scale::SMOKE } else { Scale::FULL };
            return Ok(make::write_all(directory, scale)?);
        }
        Job::Open { model } => {
            let open_and_drop = || {
                Model::open(model)?;
                Ok(())
            };
            let (times, ()) = measure(repeat, open_and_drop)?;
            (times, count_parts(model)?)
        }
        Job::Touch { model } => measure(repeat, || touch(model))?,
        Job::Visit { model } => {
            let bytes = fs::read(model)?;
            let (times, seen) = measure(repeat, || Ok(visit::visit_model(&bytes)?))?;
            (times, seen.to_string())
        }
        Job::Packed { model } => {
            let bytes = fs::read(model)?;
            let mut lists = packed::Lists::default();
            let (times, ()) = measure(repeat, || Ok(lists.decode(&bytes)?))?;
            (times, lists.sum())
        }
        Job::Save { model, copy } => {
            let model = Model::open(model)?;
            let clear = || match fs::remove_file(copy) {
                Err(error) if error.kind() != ErrorKind::NotFound => Err(error.into()),
                _ => Ok(()),
            };
            measure_after(repeat, clear, || {
                // Without waiting for the disk, since the rivals do not wait either.
                let report = SaveOptions::new().sync(false).save(&model, copy)?;
                Ok(format!("{} files", report.files.len()))
            })?
        }
        Job::Externalize { model, copy } => {
            let model = Model::open(model)?;
            let directory = copy.parent().ok_or("the copy is in no directory")?;
            let clear = || {
                fs::remove_dir_all(directory)?;
                Ok(fs::create_dir(directory)?)
            };
            let options = SaveOptions::new().weights(Weights::Outside).sync(false);
            measure_after(repeat, clear, || {
                let report = options.save(&model, copy)?;
                Ok(format!("{} files", report.files.len()))
            })?
        }
    };
    let answer = json!({ "ms": times, "found": found, "rss_peak_mb": rss_peak_mb()? });
    println!("{answer}");
    Ok(())
}

/// Times all repetitions in milliseconds. Also returns the result of the last one.
fn measure<T>(repeat: u32, job: impl FnMut() -> Result<T>) -> Result<(Vec<f64>, T)> {
    measure_after(repeat, || Ok(()), job)
}

/// Times a function without the preparation before each repetition.
fn measure_after<T>(
    repeat: u32,
    mut before: impl FnMut() -> Result,
    mut job: impl FnMut() -> Result<T>,
) -> Result<(Vec<f64>, T)> {
    let mut times = Vec::new();
    loop {
        before()?;
        let start = Instant::now();
        let result = job()?;
        times.push(start.elapsed().as_secs_f64() * 1e3);
        if times.len() == repeat as usize {
            return Ok((times, result));
        }
    }
}

/// Counts the parts of a file for comparison, outside of the measured time.
fn count_parts(path: &Path) -> Result<String> {
    let model = Model::open(path)?;
    Ok(format!("{} nodes, {} initializers", model.node_count(), model.parameters().tensors))
}

fn touch(path: &Path) -> Result<String> {
    let model = Model::open(path)?;
    let (mut bytes, mut sum) = (0, 0u64);
    for tensor in model.tensors() {
        let value = model.value_of(&tensor)?;
        let words = value.bytes().as_chunks().0.iter();
        sum = words.fold(sum, |sum, word| sum.wrapping_add(u64::from_le_bytes(*word)));
        bytes += value.bytes().len();
    }
    Ok(format!("{bytes} bytes, sum {sum}"))
}

//! Our side of `cargo xtask bench text`: makes the models, and times one job a given number of
//! times.
//!
//! Prints one line of JSON: the times of all repetitions in milliseconds, the counts of the result
//! (as when it was compared with the rival's), and the peak memory of the process before and after.

mod make;

use clap::{Parser, Subcommand, ValueEnum};
use make::Scale;
use sardonyx_model::Model;
use sardonyx_tensor::Buffer;
use sardonyx_tests::bench::rss_peak_mb;
use sardonyx_text::{ParseOptions, PrintOptions, TextForm};
use serde_json::json;
use std::error::Error;
use std::fs;
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
    /// Write the models whose text is measured.
    Make {
        directory: PathBuf,
        /// Make small models.
        #[arg(long)]
        smoke: bool,
    },
    /// Read a text and drop the model.
    Parse {
        text: PathBuf,
        /// Write the model that was read.
        #[arg(long)]
        result: Option<PathBuf>,
    },
    /// Print a model from memory.
    Print {
        model: PathBuf,
        #[arg(long, value_enum, default_value = "portable")]
        form: Chosen,
        /// Print into memory that is used again.
        #[arg(long)]
        reuse: bool,
        /// Write the text that was printed.
        #[arg(long)]
        result: Option<PathBuf>,
    },
    /// Lay out a text.
    Format { text: PathBuf },
}

#[derive(Clone, Copy, ValueEnum)]
enum Chosen {
    Portable,
    Full,
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("text_bench: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> Result {
    let repeat = arguments.repeat;
    let measured = match &arguments.job {
        Job::Make { directory, smoke } => {
            let scale = if *smoke { Scale::SMOKE } else { Scale::FULL };
            return Ok(make::write_all(directory, scale)?);
        }
        Job::Parse { text, result } => parse(text, result.as_deref(), repeat)?,
        Job::Print { model, form, reuse, result } => {
            let measured =
                if *reuse { reprint(model, *form, repeat)? } else { print(model, *form, repeat)? };
            if let Some(path) = result {
                fs::write(path, &measured.bytes)?;
            }
            Measured { found: checksum(&measured.bytes), ..measured }
        }
        Job::Format { text } => {
            let text = read(text)?;
            measure(repeat, || {
                Ok(sardonyx_text::format(text.clone()).map_err(|error| error.to_string())?)
            })?
        }
    };
    let answer = json!({
        "ms": measured.times,
        "found": measured.found,
        "rss_before_mb": measured.rss_before_mb,
        "rss_peak_mb": rss_peak_mb()?,
        "bytes": measured.bytes.len(),
    });
    println!("{answer}");
    Ok(())
}

/// Times and result of a job.
struct Measured {
    times: Vec<f64>,
    /// Output of the last repetition, if that is bytes.
    bytes: Vec<u8>,
    found: String,
    rss_before_mb: f64,
}

fn parse(text: &Path, result: Option<&Path>, repeat: u32) -> Result<Measured> {
    let text = read(text)?;
    let parse = || -> Result<Model> {
        let parsed = sardonyx_text::parse_model(text.clone(), ParseOptions::default());
        Ok(parsed.map_err(|error| error.to_string())?.model)
    };
    let mut found = String::new();
    if let Some(path) = result {
        fs::write(path, parse()?.to_bytes())?;
        return Ok(Measured { times: Vec::new(), bytes: Vec::new(), found, rss_before_mb: 0.0 });
    }
    let measured = measure(repeat, || {
        let model = parse()?;
        // The time of counting is negligible beside parsing; dropping the model is part of the
        // time.
        let graph = model.main_graph().ok_or("no graph")?;
        found = format!("{} nodes, {} initializers", graph.nodes.len(), graph.initializers.len());
        Ok(Vec::new())
    })?;
    Ok(Measured { found, ..measured })
}

fn print(model: &Path, form: Chosen, repeat: u32) -> Result<Measured> {
    let model = Model::read(read(model)?)?;
    measure(repeat, || Ok(sardonyx_text::model_to_text(&model, options(form))?.0))
}

fn reprint(model: &Path, form: Chosen, repeat: u32) -> Result<Measured> {
    let model = Model::read(read(model)?)?;
    let mut text = Vec::new();
    // The memory is as after a first print.
    sardonyx_text::print_model(&model, options(form), &mut text)?;
    let measured = measure(repeat, || {
        text.clear();
        sardonyx_text::print_model(&model, options(form), &mut text)?;
        Ok(Vec::new())
    })?;
    Ok(Measured { bytes: text, ..measured })
}

fn options(form: Chosen) -> PrintOptions<'static> {
    PrintOptions {
        form: match form {
            Chosen::Portable => TextForm::Portable,
            Chosen::Full => TextForm::Full,
        },
        ..PrintOptions::default()
    }
}

fn read(path: &Path) -> Result<Buffer> {
    let bytes = fs::read(path).map_err(|error| format!("{}: {error}", path.display()))?;
    Ok(Buffer::from_vec(bytes))
}

/// Times all repetitions. Freeing the results of all but the last is part of the time.
fn measure(repeat: u32, mut job: impl FnMut() -> Result<Vec<u8>>) -> Result<Measured> {
    let rss_before_mb = rss_peak_mb()?;
    let (mut times, mut bytes) = (Vec::new(), Vec::new());
    for _ in 0..repeat {
        let start = Instant::now();
        drop(std::mem::take(&mut bytes));
        bytes = job()?;
        times.push(start.elapsed().as_secs_f64() * 1e3);
    }
    Ok(Measured { times, bytes, found: String::new(), rss_before_mb })
}

/// Computes a checksum of a text: its length and the sum of its 64-bit words.
fn checksum(text: &[u8]) -> String {
    let (words, rest) = text.as_chunks();
    let sum = words.iter().fold(0u64, |sum, word| sum.wrapping_add(u64::from_le_bytes(*word)));
    let mut last = [0; 8];
    last[..rest.len()].copy_from_slice(rest);
    let sum = sum.wrapping_add(u64::from_le_bytes(last));
    format!("{} bytes, sum {sum}", text.len())
}

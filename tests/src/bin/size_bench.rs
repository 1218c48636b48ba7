//! Our side of the growing case of `cargo xtask bench models`: measures the extra time of a run
//! with inputs of sizes that no run had before.
//!
//! Inputs that hold a past grow by one position from size to size. Each size runs twice in a row;
//! the first run counts into one sum, the second into another. A run with the previous size
//! precedes each of them, so that both begin with the caches that a run leaves. Prints one line of
//! JSON.

use clap::Parser;
use sardonyx::tool::npy;
use sardonyx::value::Buffer;
use sardonyx::{Model, Outputs, Session, Tensor};
use sardonyx_tests::bench::rss_peak_mb;
use serde_json::json;
use std::error::Error;
use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

#[global_allocator]
static ALLOCATOR: sardonyx::run::LargePages = sardonyx::run::LargePages;

type Result<T = ()> = std::result::Result<T, Box<dyn Error>>;

#[derive(Parser)]
struct Arguments {
    model: PathBuf,
    /// NAME=FILE.npy
    inputs: Vec<String>,
    #[arg(long, default_value_t = 1)]
    threads: usize,
    /// Length of the past to begin with. Axes of that length, or longer by one, grow.
    #[arg(long)]
    past: usize,
    /// Number of sizes.
    #[arg(long, default_value_t = 128)]
    sizes: usize,
}

fn main() -> ExitCode {
    match measure(&Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn measure(arguments: &Arguments) -> Result {
    let model = Model::open(&arguments.model)?;
    let session = Session::builder(&model).threads(arguments.threads).build()?;
    let inputs: Vec<(String, Tensor)> =
        arguments.inputs.iter().map(|pair| read(pair)).collect::<Result<_>>()?;
    let time = |inputs: &[(String, Tensor)]| -> Result<f64> {
        let given = inputs.to_vec();
        let start = Instant::now();
        let outputs: Outputs = session.run(given, &Default::default())?;
        let took = start.elapsed();
        drop(outputs);
        Ok(took.as_secs_f64() * 1e3)
    };
    let mut before = inputs.clone();
    // The first runs warm up memory and clock rate.
    for _ in 0..3 {
        time(&before)?;
    }
    let (mut first, mut second) = (0.0, 0.0);
    for by in 1..=arguments.sizes {
        let longer = |(name, tensor): &(String, Tensor)| {
            Ok((name.clone(), grow(tensor, arguments.past, by)?))
        };
        let grown: Vec<(String, Tensor)> = inputs.iter().map(longer).collect::<Result<_>>()?;
        time(&before)?;
        first += time(&grown)?;
        second += time(&grown)?;
        before = grown;
    }
    println!(
        "{}",
        json!({
            "first_ms": first,
            "second_ms": second,
            "sizes": arguments.sizes,
            "rss_peak_mb": rss_peak_mb()?,
        })
    );
    Ok(())
}

fn read(pair: &str) -> Result<(String, Tensor)> {
    let (name, file) = pair.rsplit_once('=').ok_or_else(|| format!("{pair} is not NAME=FILE"))?;
    Ok((name.to_string(), npy::read(&Buffer::from_vec(fs::read(file)?))?))
}

/// Repeats the elements along longer axes.
fn grow(tensor: &Tensor, past: usize, by: usize) -> Result<Tensor> {
    let longer = |dim: &usize| if (past..=past + 1).contains(dim) { dim + by } else { *dim };
    let dims: Vec<usize> = tensor.dims().iter().map(longer).collect();
    let elements: usize = dims.iter().product();
    let bytes = tensor.bytes();
    let count = bytes.len() / tensor.len() * elements;
    let bytes: Vec<u8> = bytes.iter().copied().cycle().take(count).collect();
    Ok(Tensor::from_buffer(tensor.data_type(), dims, Buffer::from_vec(bytes))?)
}

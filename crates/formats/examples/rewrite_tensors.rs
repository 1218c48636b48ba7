//! Reads every `.safetensors` and `.npz` file of a directory and writes it again into the same
//! directory, as `NAME.out`.
//!
//! Prints one line per file: its name, then `ok` or the error, separated by a tab.
//! `tests/formats/compare_tensors.py` compares them with the results of Python libraries for the
//! same files.

#![allow(clippy::print_stdout)] // the lines are what it is for

use std::error::Error;
use std::fs::{self, File};
use std::io::BufWriter;
use std::path::Path;

use sardonyx_formats::{npz, safetensors};
use sardonyx_tensor::{Buffer, Tensor, npy};

fn main() -> Result<(), Box<dyn Error>> {
    let directory = std::env::args().nth(1).ok_or("give a directory")?;
    let mut paths: Vec<_> = fs::read_dir(directory)?
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<Result<_, _>>()?;
    paths.sort();
    for path in paths {
        let outcome = match path.extension().and_then(|suffix| suffix.to_str()) {
            Some("safetensors") => rewrite_safetensors(&path),
            Some("npz") => rewrite_npz(&path),
            _ => continue,
        };
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        match outcome {
            Ok(()) => println!("{name}\tok"),
            Err(error) => println!("{name}\t{}", error.to_string().escape_debug()),
        }
    }
    Ok(())
}

fn output_path(path: &Path) -> std::path::PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".out");
    name.into()
}

fn rewrite_safetensors(path: &Path) -> Result<(), Box<dyn Error>> {
    let content = safetensors::read(&Buffer::from_vec(fs::read(path)?))?;
    let tensors = content.tensors.iter().map(|(name, t)| (name.as_str(), t));
    let metadata = content.metadata.iter().map(|(name, text)| (name.as_str(), text.as_str()));
    let mut sink = BufWriter::new(File::create(output_path(path))?);
    safetensors::write(&mut sink, tensors, metadata)?;
    sink.into_inner()?;
    Ok(())
}

fn rewrite_npz(path: &Path) -> Result<(), Box<dyn Error>> {
    let archive = Buffer::from_vec(fs::read(path)?);
    let tensors: Vec<(String, Tensor)> = npz::read(&archive)?
        .into_iter()
        .map(|(name, file)| Ok((name, npy::read(&file)?)))
        .collect::<Result<_, Box<dyn Error>>>()?;
    let pairs = tensors.iter().map(|(name, t)| (name.as_str(), t));
    npz::write(File::create(output_path(path))?, pairs, npz::Packing::Deflated)?;
    Ok(())
}

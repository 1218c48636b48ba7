//! Labels files with magika and prints a line for each: the path, the label that the model gave and
//! the final one, a tab, and the score.
//!
//! `magika FILES`: FILES has a path a line. Each file is labeled alone, then in batches of 32. The
//! model is part of magika, the library is the one that `ORT_DYLIB_PATH` names.

use magika::{Features, FeaturesOrRuled, FileType, Session};
use std::error::Error;
use std::fs::{self, File};

/// Number of files of a batch.
const BATCH: usize = 32;

fn main() -> Result<(), Box<dyn Error>> {
    let list = std::env::args_os().nth(1).ok_or("magika FILES")?;
    let list = fs::read_to_string(list)?;
    let paths: Vec<&str> = list.lines().collect();
    let mut session = Session::new()?;
    let (mut inferred, mut features): (Vec<&str>, Vec<Features>) = Default::default();
    for path in &paths {
        print_line(path, &session.identify_file_sync(path)?);
        let extracted = FeaturesOrRuled::extract_sync(File::open(path)?)?;
        if let FeaturesOrRuled::Features(found) = extracted {
            inferred.push(path);
            features.push(found);
        }
    }
    for (paths, features) in inferred.chunks(BATCH).zip(features.chunks(BATCH)) {
        for (path, file) in paths.iter().zip(session.identify_features_batch_sync(features)?) {
            print_line(&format!("{path} in a batch"), &file);
        }
    }
    Ok(())
}

fn print_line(path: &str, file: &FileType) {
    let guess = match file {
        FileType::Inferred(inferred) => inferred.inferred_type.info().label,
        _ => "no model",
    };
    println!("{path}: {guess}, {}\t{}", file.info().label, file.score());
}

//! `cargo xtask tidy --voice`: measures how the sources are written, by crate, and keeps it from
//! getting worse.
//!
//! The rules are in CONTRIBUTING.md, the word lists in `tests/voice`, each entry with the better
//! form. `tests/voice/counts.tsv` holds the violations of each crate; a crate may not have more
//! than it lists there, and one that has fewer must lower its number.

mod lists;
mod measures;
mod report;

use crate::Result;
use crate::rust_source::Source;
use crate::workspace::{files, readable_path, root};
use lists::Lists;
use measures::Measures;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// Numbers that may only fall, relative to the root of the workspace.
const COUNTS: &str = "tests/voice/counts.tsv";

/// Options of `tidy` about wording.
#[derive(clap::Args)]
pub(crate) struct Voice {
    /// Print the measures of each crate
    #[arg(long)]
    voice: bool,
    /// Measure the sources below these directories instead, such as another project
    #[arg(long, value_name = "DIR", requires = "voice")]
    sources: Vec<PathBuf>,
    /// List the violations of one crate, with their places
    #[arg(long, value_name = "CRATE", conflicts_with = "sources")]
    places: Option<String>,
    /// Lower the numbers of tests/voice/counts.tsv to those found
    #[arg(long, conflicts_with = "sources")]
    bless: bool,
}

impl Voice {
    /// Whether a report replaces the other checks of `tidy`.
    pub(crate) fn is_report(&self) -> bool {
        self.voice || self.places.is_some() || self.bless
    }

    /// Prints what the options ask for.
    pub(crate) fn report(&self) -> Result {
        let lists = Lists::read()?;
        if !self.sources.is_empty() {
            let measured = self.sources.iter().map(|directory| {
                let name = directory.file_name().unwrap_or(directory.as_os_str());
                Ok((name.to_string_lossy().into_owned(), measure(directory, &lists)?))
            });
            print!("{}", report::table(&measured.collect::<Result<_>>()?));
            return Ok(());
        }
        let crates = measure_workspace(&lists)?;
        if let Some(name) = &self.places {
            let names = || crates.keys().map(String::as_str).collect::<Vec<_>>().join(", ");
            let Some(measures) = crates.get(name) else {
                return Err(format!("no crate {name}: there are {}", names()).into());
            };
            for violation in &measures.violations {
                println!("{violation}");
            }
        }
        if self.voice {
            print!("{}", report::table(&crates));
        }
        if self.bless {
            let before = fs::read_to_string(root().join(COUNTS)).unwrap_or_default();
            fs::write(root().join(COUNTS), report::lower_counts(&before, &crates)?)?;
        }
        Ok(())
    }
}

/// Reports the crates whose violations rose above `tests/voice/counts.tsv`, or fell below it.
pub(crate) fn check(findings: &mut Vec<String>) -> Result {
    let lists = Lists::read()?;
    let crates = measure_workspace(&lists)?;
    let counts = fs::read_to_string(root().join(COUNTS))?;
    findings.extend(report::compare(&report::read_counts(&counts)?, &crates));
    findings.extend(unused_exceptions(&lists, &crates));
    Ok(())
}

/// Reports exceptions that no source needs any more.
fn unused_exceptions(lists: &Lists, crates: &BTreeMap<String, Measures>) -> Vec<String> {
    let is_used = |index: &usize| crates.values().any(|m| m.exceptions_used.contains(index));
    let unused = (0..lists.exceptions.len()).filter(|index| !is_used(index));
    let lines = unused.map(|index| {
        let exception = &lists.exceptions[index];
        format!(
            "tests/voice/exceptions.tsv: no place needs `{}` in {}",
            exception.text, exception.path
        )
    });
    lines.collect()
}

/// Measures all crates of the workspace, by name.
fn measure_workspace(lists: &Lists) -> Result<BTreeMap<String, Measures>> {
    let mut crates = BTreeMap::new();
    let mut directories: Vec<PathBuf> = vec![root().join("xtask"), root().join("tests")];
    for entry in fs::read_dir(root().join("crates"))? {
        directories.push(entry?.path());
    }
    for directory in directories.iter().filter(|directory| directory.join("Cargo.toml").exists()) {
        let name = directory.file_name().unwrap_or_default().to_string_lossy().into_owned();
        crates.insert(name, measure(directory, lists)?);
    }
    Ok(crates)
}

fn measure(directory: &Path, lists: &Lists) -> Result<Measures> {
    let mut measures = Measures::default();
    for path in files(directory, &[".rs"])? {
        let text = fs::read_to_string(&path)?;
        measures.add(&readable_path(&path), &Source::new(&text), lists);
    }
    Ok(measures)
}

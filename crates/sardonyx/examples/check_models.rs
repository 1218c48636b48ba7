//! Checks all models of a program in a build script: prints findings as cargo warnings, and fails
//! the build on errors.
//!
//! Can be used as a `build.rs` as it is.

use std::error::Error;
use std::path::Path;

use sardonyx::Model;
use sardonyx::check::{CheckOptions, Severity};

/// Checks one model file, and prints its findings. Returns the number of errors.
fn check_model(path: &Path) -> Result<u64, Box<dyn Error>> {
    println!("cargo::rerun-if-changed={}", path.display());
    let model = Model::open(path)?;
    // Like `sardonyx check --full`: also infers types and shapes and reports contradictions.
    let report = model.check(&CheckOptions::new().types(true));
    for finding in &report.findings {
        let text = model.render_finding(finding, &path.display().to_string());
        let kind = if finding.severity == Severity::Error { "error" } else { "warning" };
        for line in text.lines() {
            println!("cargo::{kind}={line}");
        }
    }
    Ok(report.errors)
}

fn main() -> Result<(), Box<dyn Error>> {
    let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/digits");
    let mut errors = 0;
    for entry in std::fs::read_dir(directory)? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "onnx") {
            errors += check_model(&path)?;
        }
    }
    if errors > 0 { Err(format!("{errors} errors in models").into()) } else { Ok(()) }
}

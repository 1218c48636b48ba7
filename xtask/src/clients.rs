//! `cargo xtask clients`: programs that others wrote for the C interface of onnxruntime, with our
//! library in the place of theirs.
//!
//! onnxruntime-node runs the node cases of the onnx package twice, once with the library that it
//! comes with and once with ours. A case that passes with theirs must pass with ours.

use crate::workspace::{artifacts, cargo, readable_path, root, run_build};
use crate::{Result, python, shell};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Packages of the npm registry: the client, and what it imports.
const PACKAGES: [&str; 2] = ["onnxruntime-node@1.30.0", "onnxruntime-common@1.30.0"];

/// Library of the client, in its package.
const LIBRARY: &str = "bin/napi-v6/linux/x64/libonnxruntime.so.1";

#[derive(clap::Args)]
pub(crate) struct Clients {
    /// The cargo profile that the library is built with.
    #[arg(long, value_name = "NAME", default_value = "release")]
    profile: String,
    /// A library that is there already.
    #[arg(long, value_name = "FILE")]
    library: Option<PathBuf>,
}

pub(crate) fn run(task: &Clients) -> Result {
    let library = match &task.library {
        Some(library) => library.clone(),
        None => build(&task.profile)?,
    };
    let directory = artifacts("clients");
    let cases = make_cases(&directory)?;
    let theirs = install(&directory, "theirs")?;
    let ours = install(&directory, "ours")?;
    fs::copy(&library, ours.join(LIBRARY))?;
    let theirs = run_cases(&theirs, &cases)?;
    let ours = run_cases(&ours, &cases)?;
    let mut lost = 0;
    for (name, state) in theirs.iter().filter(|(_, state)| *state == "passes") {
        let found = ours.get(name).map_or("is missing", String::as_str);
        if found != state {
            println!("{name}: {found}");
            lost += 1;
        }
    }
    println!(
        "onnxruntime-node, library of its package: {}; ours: {}",
        count(&theirs),
        count(&ours)
    );
    if lost > 0 {
        return Err(format!("{lost} cases pass with the library of the client only").into());
    }
    Ok(())
}

/// Counts the cases by their state.
fn count(cases: &BTreeMap<String, String>) -> String {
    let counts = ["passes", "differs", "fails"].map(|start| {
        let states = cases.values().filter(|state| state.starts_with(start));
        format!("{start}: {}", states.count())
    });
    counts.join(", ")
}

/// Builds the shared library and returns its path.
fn build(profile: &str) -> Result<PathBuf> {
    let mut command = cargo();
    command.args(["build", "-p", "sardonyx-libonnxruntime", "--profile", profile]);
    let messages = run_build(&mut command)?;
    let files = messages.iter().flat_map(|message| message["filenames"].as_array()).flatten();
    let mut libraries = files.filter_map(|file| file.as_str());
    let found = libraries.find(|file| file.ends_with("libonnxruntime.so"));
    Ok(found.ok_or("the build made no libonnxruntime.so")?.into())
}

/// Writes the cases of the onnx package.
fn make_cases(directory: &Path) -> Result<PathBuf> {
    let requirements = root().join("tests/conformance/requirements.txt");
    let interpreter = python::environment(directory, &requirements)?;
    let cases = directory.join("cases");
    let script = root().join("tests/clients/make_cases.py");
    shell::run(Command::new(interpreter).arg(script).arg(&cases))?;
    Ok(cases)
}

/// Unpacks the client and returns its directory. Runs no script of its package, which downloads.
fn install(directory: &Path, name: &str) -> Result<PathBuf> {
    let modules = directory.join(name).join("node_modules");
    for package in PACKAGES {
        let (short, _) = package.split_once('@').unwrap_or((package, ""));
        let place = modules.join(short);
        fs::create_dir_all(&place)?;
        let mut pack = Command::new("npm");
        let packed =
            shell::output(pack.args(["pack", "--silent", package]).current_dir(directory))?;
        let archive = directory.join(packed.trim());
        shell::run(
            Command::new("tar")
                .arg("xzf")
                .arg(archive)
                .arg("-C")
                .arg(&place)
                .arg("--strip-components=1"),
        )?;
    }
    Ok(modules.join("onnxruntime-node"))
}

/// Runs the cases and returns the state of each.
fn run_cases(client: &Path, cases: &Path) -> Result<BTreeMap<String, String>> {
    println!("{}", readable_path(client));
    let script = root().join("tests/clients/cases.js");
    let lines = shell::output(Command::new("node").arg(script).arg(client).arg(cases))?;
    let pairs = lines.lines().filter_map(|line| line.split_once(": "));
    Ok(pairs.map(|(name, state)| (name.to_string(), state.to_string())).collect())
}

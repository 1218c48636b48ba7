//! Directories of the checkout, its packages and its source files.

use crate::{Result, shell};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Returns the directory that holds the workspace's `Cargo.toml`.
pub(crate) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask is a directory of the workspace")
}

/// Returns the directory for downloads and products of tasks. `CARGO_TARGET_DIR` moves build
/// products only: a virtual environment or a filled model is the same for all of them.
pub(crate) fn artifacts(name: &str) -> PathBuf {
    root().join("target").join(name)
}

/// Formats a path for people: from the root of the workspace.
pub(crate) fn readable_path(path: &Path) -> String {
    path.strip_prefix(root()).unwrap_or(path).display().to_string()
}

/// Returns a command for `cargo` at the root of the workspace.
pub(crate) fn cargo() -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root());
    command
}

/// Reads the workspace's own packages from `cargo metadata`.
pub(crate) fn packages() -> Result<Vec<Value>> {
    let output = cargo().args(["metadata", "--format-version=1", "--no-deps"]).output()?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into());
    }
    let mut metadata: Value = serde_json::from_slice(&output.stdout)?;
    match metadata["packages"].take() {
        Value::Array(packages) => Ok(packages),
        _ => Err("cargo metadata lists no packages".into()),
    }
}

/// Variables that a build is started with.
pub(crate) type Environment = &'static [(&'static str, &'static str)];

/// Names the profile that [`build_release`] builds with, where that is not `release`.
///
/// CI sets it for all of its steps, so that the crates are optimised once: programs of two profiles
/// share nothing.
pub(crate) const PROFILE: &str = "SARDONYX_XTASK_PROFILE";

/// Builds an optimised program of the workspace and returns its path.
///
/// With the features that the crates have in the workspace as a whole: those of one package alone
/// may be fewer, and every crate that they reach would be built again.
pub(crate) fn build_release(program: &str, environment: Environment) -> Result<PathBuf> {
    build_optimised("--bin", program, environment)
}

/// Builds like [`build_release`], but an example of a crate.
pub(crate) fn build_release_example(program: &str) -> Result<PathBuf> {
    build_optimised("--example", program, &[])
}

fn build_optimised(kind: &str, program: &str, environment: Environment) -> Result<PathBuf> {
    let mut command = cargo();
    command.envs(environment.iter().copied());
    let given = environment.iter().find(|(name, _)| *name == PROFILE);
    let profile = match given {
        Some((_, profile)) => (*profile).to_string(),
        None => std::env::var(PROFILE).unwrap_or_else(|_| "release".to_string()),
    };
    command.args(["build", "--workspace", "--profile", &profile, kind, program]);
    // The binary's own message has the path of the executable.
    run_build(&mut command)?
        .into_iter()
        .filter(|message| message["target"]["name"] == program)
        .find_map(|message| message["executable"].as_str().map(PathBuf::from))
        .ok_or_else(|| format!("cargo built no executable {program}").into())
}

/// Runs a command of cargo that builds, and returns its messages: among them one for each artifact.
pub(crate) fn run_build(command: &mut Command) -> Result<Vec<Value>> {
    command.arg("--message-format=json-render-diagnostics");
    let messages = shell::output(command)?;
    Ok(messages.lines().filter_map(|line| serde_json::from_str(line).ok()).collect())
}

/// Returns the only file of a directory.
pub(crate) fn find_single(directory: &Path) -> Result<PathBuf> {
    let mut paths = std::fs::read_dir(directory)?.map(|entry| entry.map(|entry| entry.path()));
    match (paths.next().transpose()?, paths.next()) {
        (Some(path), None) => Ok(path),
        _ => Err(format!("{}: expected one file", readable_path(directory)).into()),
    }
}

/// Lists files below `directory` whose name ends with one of `suffixes`, sorted. Build products and
/// hidden directories are left out.
pub(crate) fn files(directory: &Path, suffixes: &[&str]) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut directories = vec![directory.to_path_buf()];
    while let Some(directory) = directories.pop() {
        for entry in std::fs::read_dir(&directory)
            .map_err(|error| format!("{}: {error}", readable_path(&directory)))?
        {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            if entry.file_type()?.is_dir() {
                if name != "target" && name != "__pycache__" && !name.starts_with('.') {
                    directories.push(entry.path());
                }
            } else if suffixes.iter().any(|suffix| name.ends_with(suffix)) {
                found.push(entry.path());
            }
        }
    }
    found.sort();
    Ok(found)
}

//! `cargo xtask onnx-suite`: the tests of the onnx package, unchanged, on our Python module in the
//! place of its core.
//!
//! Python runs them and judges; the wheel is built here.

use crate::sizes::{self, Artefact};
use crate::workspace::{artifacts, find_single, root};
use crate::{Result, python, shell};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The release whose tests are run, as in `tests/onnx-suite/requirements.txt`.
pub(crate) const RELEASE: &str = "onnx==1.23.2";

#[derive(clap::Args)]
pub(crate) struct OnnxSuite {
    /// Run only these files below tests/python of the package.
    #[arg(value_name = "TEST_FILE")]
    files: Vec<String>,
    /// Rewrite the expectations to what happened.
    #[arg(long)]
    bless: bool,
    /// Run on the package's own core, and compare with the list of what does not pass there.
    #[arg(long)]
    original: bool,
    /// The cargo profile that the module is built with.
    #[arg(long, value_name = "NAME", default_value = "release")]
    profile: String,
    /// Only the tests of our Python package itself.
    #[arg(long, conflicts_with = "original")]
    own: bool,
}

pub(crate) fn run(task: &OnnxSuite) -> Result {
    let scripts = root().join("tests/onnx-suite");
    let directory = artifacts("onnx-suite");
    let python = python::environment(&directory, &scripts.join("requirements.txt"))?;
    let wheel = if task.original { None } else { Some(wheel(&python, &directory, &task.profile)?) };
    if let Some(wheel) = wheel.as_deref().filter(|_| task.files.is_empty()) {
        own_tests(&python, &directory, wheel)?;
    }
    if task.own {
        return Ok(());
    }
    let mut suite = Command::new(&python);
    suite
        .arg(scripts.join("run_suite.py"))
        .args(["--suite", "core", "--tests"])
        .arg(sources(&python, &directory, RELEASE)?)
        .arg("--work")
        .arg(&directory);
    match &wheel {
        Some(wheel) => suite.arg("--wheel").arg(wheel),
        None => suite.arg("--original"),
    };
    if task.bless {
        suite.arg("--bless");
    }
    shell::run(suite.args(&task.files))
}

/// Our wheel, and a Python that has onnxruntime and what our package works with.
pub(crate) struct Package {
    pub(crate) python: PathBuf,
    pub(crate) wheel: PathBuf,
    /// Directory of the installed wheel.
    pub(crate) site: PathBuf,
}

impl Package {
    /// Builds the wheel with a cargo profile, and installs it.
    pub(crate) fn new(profile: &str) -> Result<Package> {
        let requirements = root().join("tests/onnx-suite/requirements.txt");
        let directory = artifacts("onnx-suite");
        let python = python::environment(&directory, &requirements)?;
        let wheel = wheel(&python, &directory, profile)?;
        Ok(Package { site: install_wheel(&python, &directory, &wheel)?, wheel, python })
    }
}

/// Builds the wheel of `crates/python`.
pub(crate) fn wheel(python: &Path, directory: &Path, profile: &str) -> Result<PathBuf> {
    let wheels = directory.join("wheels");
    if wheels.exists() {
        fs::remove_dir_all(&wheels)?;
    }
    shell::run(
        Command::new(python)
            .args(["-m", "maturin", "build", "--quiet", "--profile", profile])
            .arg("--manifest-path")
            .arg(root().join("crates/python/Cargo.toml"))
            .arg("--out")
            .arg(&wheels),
    )?;
    let wheel = find_single(&wheels)?;
    if profile == "dev" {
        sizes::check(Artefact::DevWheel, &wheel)?;
    }
    Ok(wheel)
}

/// Installs the wheel in a directory of its own.
pub(crate) fn install_wheel(python: &Path, directory: &Path, wheel: &Path) -> Result<PathBuf> {
    let site = directory.join("own-site");
    if site.exists() {
        fs::remove_dir_all(&site)?;
    }
    shell::run(
        Command::new(python)
            .args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check"])
            .args(["--no-deps", "--no-index", "--target"])
            .arg(&site)
            .arg(wheel),
    )?;
    Ok(site)
}

/// Runs the tests of our Python package on the installed wheel.
fn own_tests(python: &Path, directory: &Path, wheel: &Path) -> Result {
    let site = install_wheel(python, directory, wheel)?;
    shell::run(
        Command::new(python)
            .args(["-m", "pytest", "-q", "-p", "no:cacheprovider"])
            .arg(root().join("crates/python/tests"))
            .env("PYTHONPATH", &site)
            .env("PYTHONDONTWRITEBYTECODE", "1"),
    )
}

/// Downloads and unpacks the source distribution of a package, `name==version`. Only its tests are
/// used; nothing of it is built.
pub(crate) fn sources(python: &Path, directory: &Path, release: &str) -> Result<PathBuf> {
    let sources = directory.join("sources");
    let name = release.split("==").next().unwrap_or(release);
    let unpacked = sources.join(release.replace("==", "-"));
    // Written last, so a stopped download is never taken for a finished one.
    let stamp = sources.join(format!("{release}.unpacked"));
    if stamp.exists() {
        return Ok(unpacked);
    }
    shell::run(
        Command::new(python)
            .args(["-m", "pip", "download", "--quiet", "--disable-pip-version-check"])
            // Of this package alone: pip looks at its metadata, for which it installs what would
            // build it.
            .args([release, "--no-deps", "--no-binary", name, "--dest"])
            .arg(&sources),
    )?;
    let archive = sources.join(format!("{}.tar.gz", release.replace("==", "-")));
    shell::run(
        Command::new(python).args(["-m", "tarfile", "--extract"]).arg(archive).arg(&sources),
    )?;
    fs::write(stamp, "")?;
    Ok(unpacked)
}

//! Builds of released products: the static command and the wheel, from the same compiled crates.
//!
//! Two builds in different directories are equal: paths in panic messages are remapped, and nothing
//! else that goes into a product depends on the place or the time.

use crate::release::{Plan, embedded};
use crate::static_build::{self, TARGET};
use crate::workspace::{artifacts, find_single, root, run_build};
use crate::{Result, python, shell};
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The profile of released programs.
const PROFILE: &str = "dist";

/// Object file with the list of crates, from the root of a checkout: its path is in the arguments
/// of the compiler, which go into hashes of symbols.
const EMBEDDED: &str = "target/release-link/dependencies.o";

/// The oldest C library that the wheel runs with, as wheels name it.
pub(crate) const WHEEL_PLATFORM: &str = "manylinux_2_28";

/// Copy of the sources that products are built in.
pub(crate) struct Checkout {
    root: PathBuf,
    /// Directory of build products.
    target: PathBuf,
}

impl Checkout {
    /// Returns the checkout that this program is from.
    pub(crate) fn current() -> Checkout {
        let target = std::env::var_os("CARGO_TARGET_DIR").map(PathBuf::from);
        Checkout {
            root: root().to_path_buf(),
            target: target.unwrap_or_else(|| root().join("target")),
        }
    }

    /// Copies the sources, as git lists them, into another directory. Nothing that is built there
    /// before is used.
    pub(crate) fn copy() -> Result<Checkout> {
        // Deeper and longer than the first one.
        let copy = artifacts("release-again/in-another-directory/sardonyx");
        if copy.exists() {
            fs::remove_dir_all(&copy)?;
        }
        for name in list_sources()? {
            let (from, to) = (root().join(&name), copy.join(&name));
            fs::create_dir_all(to.parent().unwrap_or(&copy))?;
            // `cp` keeps links, through which crates have the licences.
            shell::run(Command::new("cp").args(["--no-dereference", "--"]).arg(from).arg(to))?;
        }
        Ok(Checkout { target: copy.join("target"), root: copy })
    }

    /// Builds the static command.
    pub(crate) fn build_command(&self) -> Result<PathBuf> {
        let object = self.root.join(EMBEDDED);
        fs::create_dir_all(object.parent().unwrap_or(&self.root))?;
        embedded::write_object(&crate::dependencies::Dependencies::read("sardonyx-cli")?, &object)?;
        let mut command = self.start(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        command.args(["rustc", "--locked", "--package", "sardonyx-cli", "--bin", "sardonyx"]);
        command.args(["--profile", PROFILE, "--target", TARGET, "--"]);
        // For the last step alone, so that the wheel shares all crates with the command.
        command.args(static_build::LINK_ARGUMENTS);
        command.arg(format!("-Clink-arg={EMBEDDED}"));
        command.arg(format!("-Clink-arg=-Wl,--undefined={}", embedded::SYMBOL));
        run_build(&mut command)?
            .into_iter()
            .find_map(|message| message["executable"].as_str().map(PathBuf::from))
            .ok_or_else(|| "cargo built no command".into())
    }

    /// Builds the wheel into an empty directory, against old versions of the symbols of the C
    /// library, which zig has. `bill` is the list of crates that it contains.
    pub(crate) fn build_wheel(&self, python: &Path, wheels: &Path, bill: &Path) -> Result<PathBuf> {
        if wheels.exists() {
            fs::remove_dir_all(wheels)?;
        }
        let mut command = self.start(python);
        command.args(["-m", "maturin", "build", "--quiet", "--locked", "--profile", PROFILE]);
        command.args(["--target", TARGET, "--zig", "--compatibility", WHEEL_PLATFORM]);
        command.arg("--manifest-path").arg(self.root.join("crates/python/Cargo.toml"));
        command.arg("--sbom-include").arg(bill).env("PATH", python::search_path(python)?);
        shell::run(command.arg("--out").arg(wheels))?;
        find_single(wheels)
    }

    /// Starts a program that builds here.
    fn start(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(program);
        command
            .current_dir(&self.root)
            .env("CARGO_TARGET_DIR", &self.target)
            .env_remove("RUSTFLAGS")
            .env("CARGO_ENCODED_RUSTFLAGS", self.remapped_paths().join("\u{1f}"));
        command
    }

    /// Returns flags that remap all paths of this machine.
    fn remapped_paths(&self) -> Vec<String> {
        let home = std::env::var_os("CARGO_HOME").map(PathBuf::from);
        let home = home.or_else(|| Some(Path::new(&std::env::var_os("HOME")?).join(".cargo")));
        // The last one that fits counts.
        let paths = [
            home.map(|home| (home, "cargo")),
            Some((self.root.clone(), "sardonyx")),
            Some((self.target.clone(), "target")),
        ];
        paths
            .into_iter()
            .flatten()
            .map(|(path, name)| format!("--remap-path-prefix={}={name}", path.display()))
            .collect()
    }
}

/// Builds the wheel that provides the module onnxruntime, which has two files of Python.
pub(crate) fn build_stand_in(plan: &Plan, python: &Path) -> Result<PathBuf> {
    let wheels = plan.work("stand-in")?;
    shell::run(
        Command::new(python)
            .args(["-m", "pip", "wheel", "--quiet", "--disable-pip-version-check", "--no-deps"])
            .args(["--no-build-isolation", "--wheel-dir"])
            .arg(&wheels)
            .arg(root().join("crates/python/onnxruntime"))
            .env("SOURCE_DATE_EPOCH", plan.time.to_string()),
    )?;
    find_single(&wheels)
}

/// Lists the files that are or could be committed.
fn list_sources() -> Result<Vec<String>> {
    let mut git = Command::new("git");
    git.current_dir(root()).args(["ls-files", "--cached", "--others", "--exclude-standard", "-z"]);
    let names = shell::output(&mut git)?;
    let names = names.split('\0').filter(|name| !name.is_empty());
    // A file that was removed and not committed is still listed.
    Ok(names
        .filter(|name| fs::symlink_metadata(root().join(name)).is_ok())
        .map(str::to_string)
        .collect())
}

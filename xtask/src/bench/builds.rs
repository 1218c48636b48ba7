//! `cargo xtask bench builds`: measures what building takes, by crate, from nothing and after a
//! change of one line.
//!
//! Cargo starts this very program in place of rustc (`RUSTC_WRAPPER`), so that each call is logged
//! with its crate, its wall time and the CPU time of rustc and the linker. Builds from nothing are
//! not incremental, as in CI; builds after a change are, as on a developer's machine.
//!
//! Another checkout can be measured in turn, with the cargo and rustc of this one. Its cells have
//! ratios within a round: one virtual machine differs from itself by 15 percent over time.

mod calls;
mod loops;
mod tables;

pub(crate) use calls::{LOG, wrap_rustc};

use crate::workspace::{artifacts, cargo, readable_path, root, run_build};
use crate::{Result, shell};
use calls::{Call, Time, time_call};
use serde_json::{Value, json};
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::Command;

#[derive(clap::Args)]
pub(crate) struct Builds {
    /// Parts to measure; all if none is named.
    #[arg(long, value_delimiter = ',', value_name = "PARTS")]
    only: Vec<Part>,
    /// Number of measurements of each part; the tables show medians.
    #[arg(long, value_name = "NUMBER", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Another checkout to measure in turn with this one.
    #[arg(long, value_name = "DIR")]
    against: Option<PathBuf>,
    /// Directory for the build products of both checkouts [default: target/builds].
    #[arg(long, value_name = "DIR")]
    directory: Option<PathBuf>,
    /// Keep the build products of the last round, several GB.
    #[arg(long)]
    keep: bool,
    /// JSON file for all measurements, call by call.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// Parts of the task, in the order in which they are measured.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum)]
enum Part {
    /// Release build of the command.
    Command,
    /// Release build of the Python module after that of the command.
    Wheel,
    /// Build of all tests, and their run.
    Tests,
    /// Test commands after a change of one line.
    Loops,
}

impl Part {
    fn name(self) -> &'static str {
        match self {
            Part::Command => "command",
            Part::Wheel => "wheel",
            Part::Tests => "tests",
            Part::Loops => "loops",
        }
    }
}

const COMMAND: &[&str] = &["build", "--release", "-p", "sardonyx-cli"];

/// Build of the library that maturin strips and puts into the wheel.
const WHEEL: &[&str] = &["build", "--release", "-p", "sardonyx-python", "--lib"];

/// One build and its calls of rustc.
struct Build {
    time: Time,
    calls: Vec<Call>,
}

/// A program or library that is given to others.
struct Product {
    build: Build,
    bytes: u64,
    /// Bytes without symbols; `None` if the machine has no `strip`.
    stripped_bytes: Option<u64>,
}

struct Tests {
    build: Build,
    run: Time,
}

/// Measurements of one checkout in one round. Parts that were not measured are missing.
#[derive(Default)]
struct Sample {
    command: Option<Product>,
    wheel: Option<Product>,
    tests: Option<Tests>,
    loops: Vec<loops::Times>,
}

#[derive(Default)]
struct Round {
    here: Sample,
    /// Measurements of the other checkout, if there is one.
    against: Option<Sample>,
}

/// A checkout and the target directory that it is built in.
struct Side {
    root: PathBuf,
    target: PathBuf,
}

pub(crate) fn run(task: &Builds) -> Result {
    if !cfg!(target_os = "linux") {
        return Err("`bench builds` needs Linux: it reads CPU times from /proc".into());
    }
    let directory = match &task.directory {
        Some(directory) => std::path::absolute(directory)?,
        None => artifacts("builds"),
    };
    let mut sides = vec![Side { root: root().to_path_buf(), target: directory.join("here") }];
    if let Some(against) = &task.against {
        sides.push(Side { root: other_checkout(against)?, target: directory.join("against") });
    }
    let mut parts = task.only.clone();
    if parts.is_empty() {
        parts = vec![Part::Command, Part::Wheel, Part::Tests, Part::Loops];
    }
    parts.sort();
    parts.dedup();
    if parts.contains(&Part::Loops) {
        sides.iter().try_for_each(|side| loops::check(&side.root))?;
    }

    // A part that fails leaves the tables of those before it.
    let mut rounds = Vec::new();
    let measured = measure(&sides, &parts, task.rounds, &mut rounds);
    let reported = report(task, &rounds);
    let mut cleared = Ok(());
    if !task.keep {
        cleared = sides.iter().try_for_each(Side::clear);
        // Fails if there is anything else in it.
        let _ = fs::remove_dir(&directory);
    }
    measured.and(reported).and(cleared)
}

/// Prints the tables, and writes the JSON file if one is wanted.
fn report(task: &Builds, rounds: &[Round]) -> Result {
    print!("{}", tables::document(rounds)?);
    if let Some(file) = &task.json {
        let report = serde_json::to_string_pretty(&to_json(rounds)?)?;
        fs::write(file, report).map_err(|error| format!("{}: {error}", file.display()))?;
    }
    Ok(())
}

/// Returns the root of the checkout at `path`.
fn other_checkout(path: &Path) -> Result<PathBuf> {
    let checkout = path.canonicalize().map_err(|error| format!("{}: {error}", path.display()))?;
    if !checkout.join("crates/cli/Cargo.toml").exists() {
        let checkout = checkout.display();
        return Err(format!("{checkout} is not a checkout: it has no crates/cli/Cargo.toml").into());
    }
    if checkout == root().canonicalize()? {
        return Err(format!("{} is this checkout, expected another", checkout.display()).into());
    }
    Ok(checkout)
}

/// Measures all parts on all sides, `rounds` times, and appends to `measured` as it goes.
///
/// Sides take turns part by part, and the first side of a round is the last of the next.
fn measure(sides: &[Side], parts: &[Part], rounds: u32, measured: &mut Vec<Round>) -> Result {
    for number in 0..rounds {
        sides.iter().try_for_each(Side::clear)?;
        measured.push(Round::default());
        let Some(round) = measured.last_mut() else { continue };
        let mut samples = vec![&mut round.here];
        if sides.len() > 1 {
            samples.push(round.against.insert(Sample::default()));
        }
        let mut turns: Vec<_> = sides.iter().zip(samples).collect();
        if number % 2 == 1 {
            turns.reverse();
        }
        for part in parts {
            for (side, sample) in &mut turns {
                let (root, part_name) = (side.root.display(), part.name());
                eprintln!("Round {} of {rounds}: {part_name}, {root}", number + 1);
                side.measure(*part, number, sample)?;
            }
        }
    }
    Ok(())
}

impl Side {
    /// Measures a part, and adds it to the sample.
    fn measure(&self, part: Part, round: u32, sample: &mut Sample) -> Result {
        match part {
            Part::Command => sample.command = Some(self.product(COMMAND)?),
            Part::Wheel => {
                if sample.command.is_none() {
                    self.build(COMMAND)?;
                }
                sample.wheel = Some(self.product(WHEEL)?);
            }
            Part::Tests => {
                let (build, _) = self.build(&["test", "--workspace", "--no-run"])?;
                let mut command = self.cargo();
                command.args(["test", "--workspace", "--quiet"]);
                let ((), run) = time_call(|| run_aside(&mut command))?;
                sample.tests = Some(Tests { build, run });
            }
            Part::Loops => {
                for edit in loops::LOOPS {
                    sample.loops.push(edit.measure(self, round)?);
                }
            }
        }
        Ok(())
    }

    /// Returns a command of cargo that builds this checkout in its target directory, without
    /// incremental compilation and without a wrapper.
    fn cargo(&self) -> Command {
        let mut command = cargo();
        command
            .current_dir(&self.root)
            .env("CARGO_TARGET_DIR", &self.target)
            .env("CARGO_INCREMENTAL", "0")
            .env("RUSTC_WRAPPER", "");
        command
    }

    /// Builds with a command of cargo; returns the messages of cargo too.
    fn build(&self, arguments: &[&str]) -> Result<(Build, Vec<Value>)> {
        let log = self.path_beside("log");
        // The target directory itself is left to cargo, which tags those that it creates.
        fs::create_dir_all(log.parent().unwrap_or(&self.root))?;
        fs::write(&log, "")?;
        let mut command = self.cargo();
        command.args(arguments).env("RUSTC_WRAPPER", std::env::current_exe()?).env(LOG, &log);
        let (messages, time) = time_call(|| run_build(&mut command))?;
        let calls = calls::parse_log(&fs::read_to_string(&log)?)?;
        fs::remove_file(log)?;
        Ok((Build { time, calls }, messages))
    }

    /// Builds a product and measures its size.
    fn product(&self, arguments: &[&str]) -> Result<Product> {
        let (build, messages) = self.build(arguments)?;
        let file = product_file(&messages)
            .ok_or_else(|| format!("cargo {} built no file", arguments.join(" ")))?;
        let bytes = fs::metadata(file)?.len();
        let stripped = self.path_beside("stripped");
        let mut strip = Command::new("strip");
        let stripped_bytes = match strip.arg("-o").arg(&stripped).arg(file).status() {
            Ok(status) if status.success() => {
                let bytes = fs::metadata(&stripped)?.len();
                fs::remove_file(stripped)?;
                Some(bytes)
            }
            Ok(status) => return Err(format!("{}: {status}", shell::line(&strip)).into()),
            Err(error) if error.kind() == ErrorKind::NotFound => None,
            Err(error) => return Err(format!("cannot start strip: {error}").into()),
        };
        Ok(Product { build, bytes, stripped_bytes })
    }

    /// Returns the path of a file next to the target directory.
    fn path_beside(&self, extension: &str) -> PathBuf {
        self.target.with_extension(extension)
    }

    /// Removes the target directory, unless cargo did not create it, and what a failed build left
    /// beside it.
    fn clear(&self) -> Result {
        for left in ["log", "stripped"].map(|extension| self.path_beside(extension)) {
            if left.exists() {
                fs::remove_file(left)?;
            }
        }
        if !self.target.exists() {
            return Ok(());
        }
        if !self.target.join("CACHEDIR.TAG").exists() {
            let target = readable_path(&self.target);
            return Err(format!("cannot remove {target}: it has no CACHEDIR.TAG of cargo").into());
        }
        Ok(fs::remove_dir_all(&self.target)?)
    }
}

/// Runs the command with its standard output on our standard error: ours is for the tables.
fn run_aside(command: &mut Command) -> Result {
    shell::run(command.stdout(std::io::stderr()))
}

/// Returns the file of the last artifact, which depends on all others.
fn product_file(messages: &[Value]) -> Option<&str> {
    let artifact = messages.iter().rfind(|message| message["reason"] == "compiler-artifact")?;
    artifact["filenames"][0].as_str()
}

/// Returns the version of the rustc that builds all sides.
fn rustc_version() -> Result<String> {
    let mut command = Command::new("rustc");
    Ok(shell::output(command.arg("--version").current_dir(root()))?.trim().to_string())
}

fn to_json(rounds: &[Round]) -> Result<Value> {
    let rounds = rounds.iter().map(|round| {
        json!({
            "here": round.here.to_json(),
            "against": round.against.as_ref().map(Sample::to_json),
        })
    });
    Ok(json!({
        "processor": tables::processor(),
        "rustc": rustc_version()?,
        "rounds": rounds.collect::<Vec<_>>(),
    }))
}

impl Sample {
    fn to_json(&self) -> Value {
        json!({
            "command": self.command.as_ref().map(Product::to_json),
            "wheel": self.wheel.as_ref().map(Product::to_json),
            "tests": self.tests.as_ref().map(|tests| {
                json!({ "build": tests.build.to_json(), "run": tests.run.to_json() })
            }),
            "loops": self.loops.iter().map(loops::Times::to_json).collect::<Vec<_>>(),
        })
    }
}

impl Product {
    fn to_json(&self) -> Value {
        json!({
            "build": self.build.to_json(),
            "bytes": self.bytes,
            "stripped_bytes": self.stripped_bytes,
        })
    }
}

impl Build {
    fn to_json(&self) -> Value {
        let mut build = self.time.to_json();
        build["calls"] = self.calls.iter().map(Call::to_json).collect();
        build
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_product_is_the_file_of_the_last_artifact() {
        let artifact = |file: &str| json!({ "reason": "compiler-artifact", "filenames": [file] });
        let end = json!({ "reason": "build-finished", "success": true });
        let messages = [artifact("libbase64.rlib"), artifact("sardonyx"), end.clone()];
        assert_eq!(product_file(&messages), Some("sardonyx"));
        assert_eq!(product_file(&[end]), None);
    }

    #[test]
    fn a_directory_that_cargo_did_not_create_is_not_removed() {
        let directory = artifacts("builds-test");
        let side = Side { root: root().to_path_buf(), target: directory.join("here") };
        assert!(side.clear().is_ok());
        fs::create_dir_all(&side.target).unwrap();
        assert!(side.clear().unwrap_err().to_string().contains("CACHEDIR.TAG"));
        fs::write(side.target.join("CACHEDIR.TAG"), "").unwrap();
        side.clear().unwrap();
        assert!(!side.target.exists());
        fs::remove_dir(directory).unwrap();
    }
}

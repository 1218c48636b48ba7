//! `cargo xtask release`: every artefact of a release, tried on bare systems, in one directory,
//! with the commands that publish it. Nothing is uploaded.
//!
//! Checks that take seconds come first, and all of their findings are listed. Then the crates are
//! packaged and built from their packages, the command and the wheel are built, twice, in different
//! directories, and installed in systems that have nothing else. A part that is finished leaves its
//! files even if a later one fails.

mod archive;
mod bare;
mod crates;
mod digest;
mod embedded;
mod notes;
mod notices;
mod preconditions;
mod products;
mod sbom;
mod tools;

use crate::dependencies::Dependencies;
use crate::sizes::{self, Artefact};
use crate::workspace::{artifacts, readable_path, root};
use crate::{Result, deny, shell, static_build};
use bare::Trial;
use crates::Crate;
use products::Checkout;
use sbom::Library;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

/// Make every artefact of a release, and try each on a bare system. Nothing is uploaded.
#[derive(clap::Args)]
pub(crate) struct Release {
    /// The version, such as 0.2.0. A dry run has the version of the crates.
    #[arg(required_unless_present = "dry_run", conflicts_with = "dry_run")]
    version: Option<String>,
    /// Accept changes that are not committed, and a changelog without the version.
    #[arg(long)]
    dry_run: bool,
    /// Parts to leave out of a dry run.
    #[arg(long, value_enum, value_delimiter = ',', requires = "dry_run")]
    skip: Vec<Part>,
}

/// Part of a release that takes minutes.
#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Part {
    /// The comparison of the public interface with its list.
    Interface,
    /// cargo-deny, which is built the first time.
    Deny,
    /// Packages of the crates, each built alone.
    Crates,
    /// The second build, in another directory.
    Reproduction,
    /// The build of the source distribution of Python.
    Sdist,
    /// Installation in a root directory of Debian 11.
    Bare,
}

/// Version of the artefacts, and their directory.
pub(crate) struct Plan {
    pub(crate) version: String,
    /// Directory of the artefacts.
    pub(crate) directory: PathBuf,
    pub(crate) is_dry_run: bool,
    /// Time of the commit, in seconds since 1970: that of all files in archives.
    pub(crate) time: u64,
    skip: Vec<Part>,
}

/// Results of the parts, for the page of the release.
#[derive(Default)]
struct Results {
    crates: Vec<Crate>,
    /// Digests of the command and of the wheel, which both builds have.
    reproduced: Vec<(String, String)>,
    trials: Vec<Trial>,
}

pub(crate) fn run(task: &Release) -> Result {
    if !cfg!(all(target_os = "linux", target_arch = "x86_64")) {
        return Err("releases are made on x86_64 Linux".into());
    }
    let plan = Plan::new(task)?;
    part("checks", || {
        preconditions::check(&plan)?;
        deny::run()
    })?;
    if plan.has(Part::Interface) {
        part("interface", || {
            let program = std::env::current_exe()?;
            shell::run(Command::new(program).args(["api", "--check"]))
        })?;
    }
    if plan.has(Part::Deny) {
        part("cargo deny", tools::run_cargo_deny)?;
    }
    let mut results = Results::default();
    if plan.has(Part::Crates) {
        results.crates = part("crates", || crates::package(&plan))?;
    }
    let python = part("tools", tools::python)?;
    let checkout = Checkout::current();
    let papers = part("bills of materials", || write_papers(&plan, &python))?;
    let binary = part("command", || make_command(&plan, &checkout, &papers))?;
    let wheels = part("wheels", || make_wheels(&plan, &checkout, &python, &papers))?;
    if plan.has(Part::Reproduction) {
        results.reproduced = part("second build", || {
            let checkout = Checkout::copy()?;
            let again = checkout.build_command()?;
            let wheel = checkout.build_wheel(&python, &plan.work("wheel-again")?, &papers.wheel)?;
            Ok(vec![compare_builds(&binary, &again)?, compare_builds(&wheels[0], &wheel)?])
        })?;
    }
    if plan.has(Part::Sdist) {
        part("source distribution", || {
            let sdist = plan.directory.join(format!("sardonyx-{}.tar.gz", plan.version));
            println!("  built {}", bare::build_sdist(&plan, &sdist, &python)?.display());
            Ok(())
        })?;
    }
    if plan.has(Part::Bare) {
        if bare::is_root() {
            results.trials = part("bare systems", || bare::try_artefacts(&plan, &wheels, &python))?;
        } else if plan.is_dry_run {
            println!("skipped the bare systems: only root may make and enter root directories");
        } else {
            return Err("artefacts are tried in bare systems, which only root may enter".into());
        }
    }
    notes::write(&plan, &results)
}

/// Runs a part and prints its time.
fn part<T>(name: &str, run: impl FnOnce() -> Result<T>) -> Result<T> {
    println!("==> {name}");
    let start = Instant::now();
    let result = run().map_err(|reason| format!("{name}: {reason}"))?;
    println!("    {name}: {:.1} s", start.elapsed().as_secs_f64());
    Ok(result)
}

/// Bills of materials of the artefacts, and notices.
struct Papers {
    /// Bill of the command, as text.
    command: String,
    /// File with the bill of the wheel.
    wheel: PathBuf,
    notices: String,
}

/// Writes bills of materials and notices into the release.
fn write_papers(plan: &Plan, python: &Path) -> Result<Papers> {
    let Plan { version, directory, .. } = plan;
    let command = Dependencies::read("sardonyx-cli")?;
    let wheel = Dependencies::read("sardonyx-python")?;
    let libraries = [c_library()?];
    let texts = Path::new("/usr/share/common-licenses");
    let notices = notices::render_notices(&[&command, &wheel], &libraries, texts)?;
    fs::write(directory.join("NOTICES.txt"), &notices)?;
    let bill = sbom::render_sbom("the command", &command, &libraries)?;
    write_bill(directory, python, &archive::archive_name(version), &bill)?;
    let library = sbom::render_sbom("the library", &Dependencies::read("sardonyx")?, &[])?;
    write_bill(directory, python, &format!("sardonyx-{version}-crate"), &library)?;
    let wheel = sbom::render_sbom("the wheel", &wheel, &[])?;
    let wheel = write_bill(directory, python, &format!("sardonyx-{version}-wheel"), &wheel)?;
    Ok(Papers { command: bill, wheel, notices })
}

/// Writes the bill of an artefact, and checks its form.
fn write_bill(directory: &Path, python: &Path, artefact: &str, bill: &str) -> Result<PathBuf> {
    let path = directory.join(format!("{artefact}.cdx.json"));
    fs::write(&path, bill)?;
    tools::validate_sbom(python, &path)?;
    Ok(path)
}

/// Builds the command, checks it, and packs its archive.
fn make_command(plan: &Plan, checkout: &Checkout, papers: &Papers) -> Result<PathBuf> {
    let built = checkout.build_command()?;
    // The wheel is built beside it.
    let binary = plan.work("command")?.join("sardonyx");
    fs::copy(&built, &binary)?;
    static_build::check(&binary)?;
    sizes::check(Artefact::Command, &binary)?;
    tools::check_embedded(&binary)?;
    archive::pack(plan, &binary, &papers.command, &papers.notices)?;
    Ok(binary)
}

/// Describes the C library that the command is linked with: the one of this machine.
fn c_library() -> Result<Library> {
    let output = shell::output(Command::new("ldd").arg("--version"))?;
    let version = output.lines().next().and_then(|line| line.split_whitespace().last());
    Ok(Library {
        name: "glibc",
        version: version.ok_or("ldd prints no version")?.to_string(),
        license: "LGPL-2.1-or-later",
        url: "https://www.gnu.org/software/libc/",
    })
}

/// Builds the wheel and the source distribution of Python.
fn make_wheels(
    plan: &Plan,
    checkout: &Checkout,
    python: &Path,
    papers: &Papers,
) -> Result<Vec<PathBuf>> {
    let wheel = checkout.build_wheel(python, &plan.work("wheel")?, &papers.wheel)?;
    sizes::check(Artefact::Wheel, &wheel)?;
    tools::check_wheel(python, &wheel)?;
    shell::run(
        Command::new(python)
            .args(["-m", "maturin", "sdist", "--manifest-path"])
            .arg(root().join("crates/python/Cargo.toml"))
            .arg("--out")
            .arg(&plan.directory),
    )?;
    let stand_in = products::build_stand_in(plan, python)?;
    [wheel, stand_in]
        .into_iter()
        .map(|wheel| {
            let copy = plan.directory.join(wheel.file_name().unwrap_or_default());
            fs::copy(&wheel, &copy)?;
            Ok(copy)
        })
        .collect()
}

/// Compares the digests of two builds of a product, and returns it with the name of the file.
fn compare_builds(first: &Path, second: &Path) -> Result<(String, String)> {
    let (one, other) = (digest::hash_file(first)?, digest::hash_file(second)?);
    let name = first.file_name().unwrap_or_default().to_string_lossy().into_owned();
    println!("  {one}  {}", readable_path(first));
    println!("  {other}  {}", readable_path(second));
    if one == other { Ok((name, one)) } else { Err(format!("{name}: two builds differ").into()) }
}

impl Plan {
    fn new(task: &Release) -> Result<Plan> {
        let version = task.version.clone().map_or_else(preconditions::own_version, Ok)?;
        let directory = artifacts(&format!("release-{version}"));
        if directory.exists() {
            fs::remove_dir_all(&directory)?;
        }
        fs::create_dir_all(&directory)?;
        let mut git = Command::new("git");
        git.current_dir(root()).args(["log", "-1", "--format=%ct"]);
        let time = shell::output(&mut git)?.trim().parse()?;
        Ok(Plan { version, directory, is_dry_run: task.dry_run, time, skip: task.skip.clone() })
    }

    #[cfg(test)]
    fn for_tests(version: &str) -> Plan {
        Plan {
            version: version.to_string(),
            directory: PathBuf::new(),
            is_dry_run: true,
            time: 0,
            skip: Vec::new(),
        }
    }

    fn has(&self, part: Part) -> bool {
        !self.skip.contains(&part)
    }

    /// Returns an empty directory for files that are not released.
    pub(crate) fn work(&self, name: &str) -> Result<PathBuf> {
        let directory = artifacts("release").join(name);
        if directory.exists() {
            fs::remove_dir_all(&directory)?;
        }
        fs::create_dir_all(&directory)?;
        Ok(directory)
    }
}

//! Tools of others that check the artefacts, installed under `target/` at pinned versions.

use crate::release::products::WHEEL_PLATFORM;
use crate::workspace::{artifacts, cargo, root};
use crate::{Result, python, shell};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Program that cargo installs.
struct Tool {
    name: &'static str,
    version: &'static str,
}

/// The version is also in `.github/workflows/advisories.yml`.
const CARGO_DENY: Tool = Tool { name: "cargo-deny", version: "0.20.2" };
const AUDIT_INFO: Tool = Tool { name: "rust-audit-info", version: "0.5.4" };

impl Tool {
    /// Installs the program, if it is not there yet, and returns its path.
    fn install(&self) -> Result<PathBuf> {
        let Tool { name, version } = self;
        let root = artifacts("release/tools").join(format!("{name}-{version}"));
        let program = root.join("bin").join(name);
        if program.exists() {
            return Ok(program);
        }
        let mut install = cargo();
        install.args(["install", "--quiet", "--locked", "--root"]).arg(&root);
        // Building them takes longer than running them.
        install.env("CARGO_PROFILE_RELEASE_OPT_LEVEL", "0");
        install.env("CARGO_TARGET_DIR", artifacts("release/tools-target"));
        shell::run(install.arg(format!("{name}@{version}")))?;
        Ok(program)
    }
}

/// Runs cargo-deny on what `cargo xtask deny` has checked.
pub(crate) fn run_cargo_deny() -> Result {
    let deny = CARGO_DENY.install()?;
    shell::run(Command::new(deny).current_dir(root()).args([
        "--log-level",
        "error",
        "check",
        "licenses",
        "bans",
        "sources",
    ]))
}

/// Makes a Python with maturin, zig, and what judges wheels and bills of materials.
pub(crate) fn python() -> Result<PathBuf> {
    python::environment(&artifacts("release"), &root().join("tests/release/requirements.txt"))
}

/// Checks with the reader of cargo-auditable that the command has the list of its crates.
pub(crate) fn check_embedded(binary: &Path) -> Result {
    let reader = AUDIT_INFO.install()?;
    let list: serde_json::Value =
        serde_json::from_str(&shell::output(Command::new(reader).arg(binary))?)?;
    let packages = list["packages"].as_array().map_or(&[][..], Vec::as_slice);
    let own = packages.iter().find(|package| package["root"] == true);
    if own.is_none_or(|own| own["name"] != "sardonyx-cli") {
        return Err("the list of crates in the command does not name sardonyx-cli".into());
    }
    println!("  the command lists {} crates", packages.len());
    Ok(())
}

/// Checks the symbol versions of a wheel with auditwheel, by the policy of its platform tag.
pub(crate) fn check_wheel(python: &Path, wheel: &Path) -> Result {
    let report = shell::output(
        Command::new(python)
            .arg(root().join("tests/release/check_wheel.py"))
            .arg(wheel)
            .arg(format!("{WHEEL_PLATFORM}_x86_64")),
    )?;
    print!("{report}");
    Ok(())
}

/// Checks a bill of materials against the schema of CycloneDX.
pub(crate) fn validate_sbom(python: &Path, path: &Path) -> Result {
    shell::run(Command::new(python).arg(root().join("tests/release/validate_sbom.py")).arg(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_workflow_installs_the_same_cargo_deny() {
        let path = root().join(".github/workflows/advisories.yml");
        let workflow = std::fs::read_to_string(path).unwrap();
        let Tool { name, version } = CARGO_DENY;
        assert!(workflow.contains(&format!("cargo install --locked {name}@{version}\n")));
    }
}

//! Crates as they are published: the files of each package, and its build from the package alone.

use crate::release::Plan;
use crate::workspace::{artifacts, cargo, packages, root};
use crate::{Result, shell};
use serde_json::Value;
use std::fs;
use std::path::Path;
use std::process::Command;

/// Files that every package has.
const WANTED: &[&str] = &["Cargo.toml", "README.md", "LICENSE-APACHE", "LICENSE-MIT", "src/lib.rs"];

/// The sentence in the README of a crate that is only a part.
const UNSTABLE: &str = "No stability is promised";

/// Crates that programs name, whose interface is promised.
const PROMISED: &[&str] = &["ort-sardonyx", "sardonyx", "sardonyx-cli"];

/// Package as crates.io gets it.
pub(crate) struct Crate {
    pub(crate) name: String,
    /// Compressed size, in bytes.
    pub(crate) size: u64,
    pub(crate) files: usize,
}

/// Whether a package of the workspace goes to the registry.
pub(crate) fn is_published(package: &Value) -> bool {
    // `publish = false` is a list without registries.
    package["publish"].is_null()
}

/// Finds what the manifests of published crates lack.
pub(crate) fn check_manifests(packages: &[Value]) -> Vec<String> {
    let mut findings = Vec::new();
    for package in packages.iter().filter(|package| is_published(package)) {
        let name = package["name"].as_str().unwrap_or_default();
        for key in ["description", "license", "repository", "readme", "documentation"] {
            if package[key].as_str().is_none_or(str::is_empty) {
                findings.push(format!("{name}: the manifest has no {key}"));
            }
        }
        for (key, most) in [("keywords", 5), ("categories", 5)] {
            let count = package[key].as_array().map_or(0, Vec::len);
            if !(1..=most).contains(&count) {
                findings.push(format!("{name}: {count} {key}, expected 1 to {most}"));
            }
        }
        if package["metadata"]["docs"]["rs"]["all-features"] != true {
            findings.push(format!("{name}: docs.rs would not document all features"));
        }
        let manifest = Path::new(package["manifest_path"].as_str().unwrap_or_default());
        let readme = fs::read_to_string(manifest.with_file_name("README.md")).unwrap_or_default();
        if !PROMISED.contains(&name) && !readme.contains(UNSTABLE) {
            findings.push(format!("{name}: README.md does not contain {UNSTABLE:?}"));
        }
    }
    findings
}

/// Packages and builds all published crates, each from its package, and copies the packages into
/// the release.
pub(crate) fn package(plan: &Plan) -> Result<Vec<Crate>> {
    let mut command = cargo();
    command.args(["publish", "--workspace", "--dry-run", "--locked"]);
    let target = artifacts("release/crates");
    command.env("CARGO_TARGET_DIR", &target);
    if plan.is_dry_run {
        command.arg("--allow-dirty");
    }
    shell::run(&mut command)?;
    let directory = plan.directory.join("crates");
    fs::create_dir_all(&directory)?;
    let mut crates = Vec::new();
    for package in packages()?.iter().filter(|package| is_published(package)) {
        let name = package["name"].as_str().unwrap_or_default().to_string();
        let file = format!("{name}-{}.crate", plan.version);
        let packed = target.join("package").join(&file);
        let names = shell::output(Command::new("tar").arg("--list").arg("--file").arg(&packed))?;
        check_files(&name, &format!("{name}-{}/", plan.version), &names)?;
        let copy = directory.join(&file);
        fs::copy(&packed, &copy)?;
        crates.push(Crate { name, size: fs::metadata(&copy)?.len(), files: names.lines().count() });
    }
    Ok(crates)
}

/// Checks the names of the files in a package.
fn check_files(name: &str, prefix: &str, names: &str) -> Result {
    let names: Vec<&str> = names.lines().filter_map(|line| line.strip_prefix(prefix)).collect();
    for wanted in WANTED {
        if !names.contains(wanted) {
            return Err(format!("{name}: the package has no {wanted}").into());
        }
    }
    if let Some(extra) = names.iter().find(|name| name.starts_with("tests/")) {
        return Err(format!("{name}: the package has {extra}, a test").into());
    }
    Ok(())
}

/// Checks that the versions of dependencies on each other are the version of the release.
pub(crate) fn check_versions(version: &str, packages: &[Value]) -> Result<Vec<String>> {
    let mut findings = Vec::new();
    for package in packages {
        if package["version"] != version {
            findings.push(format!("{}: the version is {}", package["name"], package["version"]));
        }
    }
    let manifest = fs::read_to_string(root().join("Cargo.toml"))?;
    for line in manifest.lines().filter(|line| line.contains("path = \"crates/")) {
        if !line.contains(&format!("version = \"{version}\"")) {
            findings.push(format!("Cargo.toml: another version is in {line:?}"));
        }
    }
    // The only project of Python whose version is not taken from its crate.
    let project = "crates/python/onnxruntime/pyproject.toml";
    let text = fs::read_to_string(root().join(project))?;
    for line in
        [format!("version = \"{version}\""), format!("dependencies = [\"sardonyx=={version}\"]")]
    {
        if !text.lines().any(|found| found == line) {
            findings.push(format!("{project}: expected the line {line}"));
        }
    }
    Ok(findings)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn manifests_of_this_workspace_are_complete() {
        let packages = packages().unwrap();
        assert_eq!(check_manifests(&packages), Vec::<String>::new());
        let published = packages.iter().filter(|package| is_published(package)).count();
        assert!(published >= 17, "{published}");
    }

    #[test]
    fn versions_are_equal_everywhere() {
        let packages = packages().unwrap();
        let version = crate::release::preconditions::own_version().unwrap();
        assert_eq!(check_versions(&version, &packages).unwrap(), Vec::<String>::new());
        // Each package, each dependency on one, and both lines of the project.
        let manifest = fs::read_to_string(root().join("Cargo.toml")).unwrap();
        let dependencies = manifest.matches("{ path = \"crates/").count();
        let found = check_versions("99.0.0", &packages).unwrap().len();
        assert_eq!(found, packages.len() + dependencies + 2);
    }

    #[test]
    fn what_a_manifest_lacks_is_found() {
        let package = json!({
            "name": "sardonyx-x", "publish": null, "description": "x", "license": "MIT",
            "repository": "r", "readme": "README.md", "documentation": "", "keywords": ["onnx"],
            "categories": [], "metadata": null, "manifest_path": "/nowhere/Cargo.toml",
        });
        let findings = check_manifests(&[package]);
        assert_eq!(
            findings,
            [
                "sardonyx-x: the manifest has no documentation",
                "sardonyx-x: 0 categories, expected 1 to 5",
                "sardonyx-x: docs.rs would not document all features",
                "sardonyx-x: README.md does not contain \"No stability is promised\"",
            ]
        );
    }

    #[test]
    fn tests_and_missing_licences_are_found_in_packages() {
        let names =
            |names: &[&str]| names.iter().map(|name| format!("a-1/{name}\n")).collect::<String>();
        assert!(check_files("a", "a-1/", &names(WANTED)).is_ok());
        assert!(check_files("a", "a-1/", &names(&WANTED[1..])).is_err());
        let with_test = [WANTED, &["tests/main.rs"]].concat();
        assert!(check_files("a", "a-1/", &names(&with_test)).is_err());
    }
}

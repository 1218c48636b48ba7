//! Checks before anything is built.

use crate::Result;
use crate::release::{Plan, archive, crates};
use crate::shell;
use crate::workspace::{packages, root};
use serde_json::Value;
use std::fs;
use std::process::Command;

/// Checks all of it, and lists every finding. A dry run goes on after those that only a release has
/// to mend.
pub(crate) fn check(plan: &Plan) -> Result {
    let packages = packages()?;
    let mut findings = crates::check_manifests(&packages);
    findings.extend(crates::check_versions(&plan.version, &packages)?);
    let command = packages.iter().find(|package| package["name"] == "sardonyx-cli");
    let metadata = command.map_or(&Value::Null, |package| &package["metadata"]["binstall"]);
    findings.extend(archive::check_binstall(metadata, &plan.version));
    findings.extend(check_toolchain(&packages)?);
    let for_releases = check_release(plan)?;
    for finding in &for_releases {
        println!("  {}{finding}", if plan.is_dry_run { "for a release: " } else { "" });
    }
    for finding in &findings {
        println!("  {finding}");
    }
    let count = findings.len() + if plan.is_dry_run { 0 } else { for_releases.len() };
    if count == 0 { Ok(()) } else { Err(format!("{count} findings").into()) }
}

/// Returns the version of the crates.
pub(crate) fn own_version() -> Result<String> {
    let packages = packages()?;
    let front = packages.iter().find(|package| package["name"] == "sardonyx");
    let version = front.and_then(|package| package["version"].as_str());
    Ok(version.ok_or("the workspace has no package sardonyx")?.to_string())
}

/// Finds what only a release has to have: a commit, a tag that is free, and notes.
fn check_release(plan: &Plan) -> Result<Vec<String>> {
    let git =
        |arguments: &[&str]| shell::output(Command::new("git").current_dir(root()).args(arguments));
    let mut findings = Vec::new();
    let changes = git(&["status", "--porcelain"])?.lines().count();
    if changes > 0 {
        findings.push(format!("{changes} files have changes that are not committed"));
    }
    if !git(&["tag", "--list", &format!("v{}", plan.version)])?.is_empty() {
        findings.push(format!("the tag v{} exists", plan.version));
    }
    let changelog = fs::read_to_string(root().join("CHANGELOG.md"))?;
    if find_section(&changelog, &plan.version).is_none() {
        findings.push(format!(
            "CHANGELOG.md has no section `## {} - DATE`; rename `## Unreleased`",
            plan.version
        ));
    }
    Ok(findings)
}

/// Checks that the Rust that every crate names is the one that builds and tests: a lower one would
/// be a claim without a test.
fn check_toolchain(packages: &[Value]) -> Result<Vec<String>> {
    let file = fs::read_to_string(root().join("rust-toolchain.toml"))?;
    let channel = file.lines().find_map(|line| line.strip_prefix("channel = "));
    let channel = channel.ok_or("rust-toolchain.toml names no channel")?.trim_matches('"');
    Ok(packages
        .iter()
        .filter(|package| {
            let minimum = package["rust_version"].as_str().unwrap_or_default();
            channel != minimum && channel.strip_suffix(".0") != Some(minimum)
        })
        .map(|package| {
            format!(
                "{}: rust-version is {}, but Rust {channel} builds and tests it",
                package["name"], package["rust_version"]
            )
        })
        .collect())
}

/// Returns the section of a version in the changelog, or `Unreleased` in its place.
pub(crate) fn find_section<'t>(changelog: &'t str, version: &str) -> Option<&'t str> {
    let heading = [format!("\n## {version} - "), format!("\n## [{version}] - ")];
    let start = heading.iter().find_map(|heading| changelog.find(heading))?;
    Some(take_section(&changelog[start + 1..]))
}

/// Returns the section of changes that no release has.
pub(crate) fn find_unreleased(changelog: &str) -> Option<&str> {
    changelog.find("\n## Unreleased").map(|start| take_section(&changelog[start + 1..]))
}

/// Returns the text below a heading, up to the next one of its level.
fn take_section(text: &str) -> &str {
    let body = text.split_once('\n').map_or("", |(_, body)| body);
    body.split("\n## ").next().unwrap_or(body).trim()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sections_are_found_by_version() {
        let changelog = "# Changelog\n\n## Unreleased\n\n- c\n\n## 0.2.0 - 2026-12-01\n\n### Files\n\n- b\n\n## [0.1.0] - 2026-11-01\n\n- a\n";
        assert_eq!(find_section(changelog, "0.2.0"), Some("### Files\n\n- b"));
        assert_eq!(find_section(changelog, "0.1.0"), Some("- a"));
        assert_eq!(find_section(changelog, "0.1"), None);
        assert_eq!(find_unreleased(changelog), Some("- c"));
    }

    #[test]
    fn crates_name_the_rust_that_tests_them() {
        assert_eq!(check_toolchain(&packages().unwrap()).unwrap(), Vec::<String>::new());
        let older = serde_json::json!([{ "name": "a", "rust_version": "1.90" }]);
        assert_eq!(check_toolchain(older.as_array().unwrap()).unwrap().len(), 1);
    }
}

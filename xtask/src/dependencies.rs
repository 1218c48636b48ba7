//! Dependencies of a product, as cargo resolves them for the released target.

use crate::static_build::TARGET;
use crate::workspace::{cargo, root};
use crate::{Result, shell};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;

/// Crate of a product, or one that it is built with.
pub(crate) struct Package {
    pub(crate) name: String,
    pub(crate) version: String,
    /// SPDX expression.
    pub(crate) license: String,
    pub(crate) repository: Option<String>,
    /// Directory of its sources.
    pub(crate) directory: PathBuf,
    /// SHA-256 of the package in the registry; `None` for crates of the workspace.
    pub(crate) checksum: Option<String>,
    /// Whether it only takes part in the build: procedural macros, build scripts and what they use.
    pub(crate) is_build_only: bool,
    /// Indices of its own dependencies.
    pub(crate) uses: Vec<usize>,
}

#[cfg(test)]
impl Package {
    /// Makes a crate of the registry, version 1.0.0, that uses `uses`.
    pub(crate) fn sample(name: &str, license: &str, uses: &[usize]) -> Package {
        Package {
            name: name.to_string(),
            version: "1.0.0".to_string(),
            license: license.to_string(),
            repository: None,
            directory: PathBuf::new(),
            checksum: Some("00".to_string()),
            is_build_only: false,
            uses: uses.to_vec(),
        }
    }
}

/// Product and all crates below it, sorted by name and version.
pub(crate) struct Dependencies {
    pub(crate) packages: Vec<Package>,
    /// Index of the product.
    pub(crate) product: usize,
}

/// Name and version of a package.
type Identity = (String, String);

impl Dependencies {
    /// Reads the dependencies of a package of the workspace, built for the released target.
    pub(crate) fn read(product: &str) -> Result<Dependencies> {
        let edges = parse_tree(&print_tree(product, "normal,build", "depth")?)?;
        let linked = read_linked(product)?;
        let known = read_packages()?;
        let checksums = parse_checksums(&fs::read_to_string(root().join("Cargo.lock"))?);
        let identities: Vec<&Identity> = edges.keys().collect();
        let mut packages = Vec::new();
        for (identity, uses) in &edges {
            let (name, version) = identity;
            let package = known
                .get(identity)
                .ok_or_else(|| format!("{name} {version} is not in cargo metadata"))?;
            let manifest = PathBuf::from(find_text(package, "manifest_path").unwrap_or_default());
            let uses = uses.iter();
            packages.push(Package {
                name: name.clone(),
                version: version.clone(),
                license: find_text(package, "license")
                    .ok_or_else(|| format!("{name} {version} declares no licence"))?,
                repository: find_text(package, "repository"),
                directory: manifest.parent().map(PathBuf::from).unwrap_or_default(),
                checksum: checksums.get(identity).cloned(),
                is_build_only: !linked.contains(identity),
                uses: uses
                    .filter_map(|wanted| identities.iter().position(|found| *found == wanted))
                    .collect(),
            });
        }
        let product = packages
            .iter()
            .position(|package| package.name == product)
            .ok_or_else(|| format!("{product} is not in its own tree"))?;
        Ok(Dependencies { packages, product })
    }

    /// Returns the crates from registries.
    pub(crate) fn foreign(&self) -> impl Iterator<Item = &Package> {
        self.packages.iter().filter(|package| package.checksum.is_some())
    }
}

fn print_tree(product: &str, edges: &str, prefix: &str) -> Result<String> {
    shell::output(
        cargo()
            .args(["tree", "--locked", "--package", product, "--target", TARGET, "--no-dedupe"])
            .args(["--format", "\t{p}", "--edges", edges, "--prefix", prefix]),
    )
}

/// Collects the crates whose code is linked into the product.
fn read_linked(product: &str) -> Result<BTreeSet<Identity>> {
    let lines = print_tree(product, "normal,no-proc-macro", "none")?;
    lines.lines().map(|line| parse_identity(line.trim())).collect()
}

/// Reads a tree whose lines begin with their depth: dependencies by package.
fn parse_tree(tree: &str) -> Result<BTreeMap<Identity, BTreeSet<Identity>>> {
    let mut edges: BTreeMap<Identity, BTreeSet<Identity>> = BTreeMap::new();
    let mut path: Vec<Identity> = Vec::new();
    for line in tree.lines() {
        let (depth, package) =
            line.split_once('\t').ok_or_else(|| format!("cargo tree printed {line:?}"))?;
        path.truncate(depth.parse()?);
        let package = parse_identity(package)?;
        if let Some(user) = path.last() {
            edges.entry(user.clone()).or_default().insert(package.clone());
        }
        edges.entry(package.clone()).or_default();
        path.push(package);
    }
    Ok(edges)
}

/// Reads `name v1.2.3 (…)`.
fn parse_identity(text: &str) -> Result<Identity> {
    let mut words = text.split_whitespace();
    match (words.next(), words.next().and_then(|version| version.strip_prefix('v'))) {
        (Some(name), Some(version)) => Ok((name.to_string(), version.to_string())),
        _ => Err(format!("cargo tree printed {text:?} for a package").into()),
    }
}

/// Reads all packages of the lock file, for all targets and features, from `cargo metadata`.
pub(crate) fn read_packages() -> Result<BTreeMap<Identity, Value>> {
    let output = shell::output(cargo().args([
        "metadata",
        "--format-version=1",
        "--locked",
        "--all-features",
    ]))?;
    let mut metadata: Value = serde_json::from_str(&output)?;
    let Value::Array(packages) = metadata["packages"].take() else {
        return Err("cargo metadata lists no packages".into());
    };
    Ok(packages
        .into_iter()
        .filter_map(|package| {
            let identity = (find_text(&package, "name")?, find_text(&package, "version")?);
            Some((identity, package))
        })
        .collect())
}

fn find_text(package: &Value, key: &str) -> Option<String> {
    package[key].as_str().map(str::to_string)
}

/// Reads the checksums of a lock file.
fn parse_checksums(lock: &str) -> BTreeMap<Identity, String> {
    let mut checksums = BTreeMap::new();
    for package in lock.split("[[package]]").skip(1) {
        if let (Some(name), Some(version), Some(checksum)) = (
            find_field(package, "name"),
            find_field(package, "version"),
            find_field(package, "checksum"),
        ) {
            checksums.insert((name, version), checksum);
        }
    }
    checksums
}

/// Returns the value of a line `key = "value"`.
fn find_field(package: &str, key: &str) -> Option<String> {
    let value = package.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(" = "))?;
    Some(value.trim_matches('"').to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity(name: &str, version: &str) -> Identity {
        (name.to_string(), version.to_string())
    }

    #[test]
    fn a_tree_becomes_edges() {
        let tree =
            "0\tp v1.0.0 (/p)\n1\ta v0.2.0\n2\tc v3.0.0 (proc-macro)\n1\tc v3.0.0 (proc-macro)\n";
        let edges = parse_tree(tree).unwrap();
        let [p, a, c] = [identity("p", "1.0.0"), identity("a", "0.2.0"), identity("c", "3.0.0")];
        assert_eq!(edges[&p], BTreeSet::from([a.clone(), c.clone()]));
        assert_eq!(edges[&a], BTreeSet::from([c.clone()]));
        assert!(edges[&c].is_empty());
        assert!(parse_tree("0\tp\n").is_err());
    }

    #[test]
    fn only_packages_from_registries_have_checksums() {
        let lock = "version = 4\n\n[[package]]\nname = \"a\"\nversion = \"1.0.0\"\nsource = \"x\"\n\
                    checksum = \"00ff\"\n\n[[package]]\nname = \"ours\"\nversion = \"0.1.0\"\n";
        let checksums = parse_checksums(lock);
        assert_eq!(checksums, BTreeMap::from([(identity("a", "1.0.0"), "00ff".to_string())]));
    }
}

//! `cargo xtask deny`: the licences, bans and sources of deny.toml, without `cargo-deny`.
//!
//! CI installs no tools of cargo, and cargo-deny takes longer to build than CI may grow. This check
//! reads the policy that cargo-deny reads; `cargo xtask release` runs cargo-deny itself on it, and
//! advisories, which change without a commit, are checked by a workflow of hosted runners.

use crate::dependencies::read_packages;
use crate::workspace::root;
use crate::{Result, shell};
use serde_json::Value;
use std::collections::BTreeSet;
use std::process::Command;

const POLICY: &str = "deny.toml";

/// The registry that cargo uses unless another one is named.
const REGISTRY: &str = "registry+https://github.com/rust-lang/crates.io-index";

pub(crate) fn run() -> Result {
    let policy = read_policy()?;
    let packages: Vec<Value> = read_packages()?.into_values().collect();
    let findings = find_violations(&policy, &packages);
    if findings.is_empty() {
        println!("deny: {} packages follow {POLICY}", packages.len());
        return Ok(());
    }
    for finding in &findings {
        println!("{finding}");
    }
    Err(format!("deny: {} findings", findings.len()).into())
}

/// Reads the policy. Python's standard library has a parser for TOML, Rust's has none.
fn read_policy() -> Result<Value> {
    let convert =
        "import json, sys, tomllib; json.dump(tomllib.load(open(sys.argv[1], 'rb')), sys.stdout)";
    let json =
        shell::output(Command::new("python3").args(["-c", convert]).arg(root().join(POLICY)))
            .map_err(|error| format!("{error}; Python 3.11 or newer is needed to read {POLICY}"))?;
    Ok(serde_json::from_str(&json)?)
}

fn find_violations(policy: &Value, packages: &[Value]) -> Vec<String> {
    let allowed = texts(&policy["licenses"]["allow"]);
    let banned: BTreeSet<&str> =
        list(&policy["bans"]["deny"]).iter().filter_map(|ban| ban["crate"].as_str()).collect();
    let mut findings = Vec::new();
    for (name, size) in [("licenses.allow", allowed.len()), ("bans.deny", banned.len())] {
        if size == 0 {
            findings.push(format!("{POLICY}: the list {name} is missing or empty"));
        }
    }
    for package in packages {
        let name = format!("{} {}", text(package, "name"), text(package, "version"));
        match package["license"].as_str().map(|license| is_allowed(license, &allowed)) {
            None => findings.push(format!("{name}: declares no licence")),
            Some(Err(problem)) => findings.push(format!("{name}: {problem}")),
            Some(Ok(false)) => findings.push(format!(
                "{name}: the licence {} is not in {POLICY}",
                text(package, "license")
            )),
            Some(Ok(true)) => {}
        }
        if banned.contains(text(package, "name")) {
            findings.push(format!("{name}: is banned by {POLICY}"));
        }
        match package["source"].as_str() {
            // A crate of the workspace.
            None => findings.extend(find_wildcards(&name, package)),
            Some(REGISTRY) => {}
            Some(source) => findings.push(format!("{name}: comes from {source}")),
        }
    }
    findings
}

/// Finds dependencies of any version; crates of the workspace may name each other so.
fn find_wildcards(name: &str, package: &Value) -> Vec<String> {
    let dependencies = list(&package["dependencies"]).iter();
    dependencies
        .filter(|dependency| dependency["req"] == "*" && dependency["path"].is_null())
        .filter_map(|dependency| dependency["name"].as_str())
        .map(|dependency| format!("{name}: any version of {dependency} would do"))
        .collect()
}

/// Returns the text under a key, or an empty one.
fn text<'p>(package: &'p Value, key: &str) -> &'p str {
    package[key].as_str().unwrap_or_default()
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn texts(value: &Value) -> BTreeSet<&str> {
    list(value).iter().filter_map(Value::as_str).collect()
}

/// Whether an SPDX expression can be met by allowed licences alone. A slash is an old form of `OR`.
fn is_allowed(expression: &str, allowed: &BTreeSet<&str>) -> Result<bool> {
    let spaced = expression.replace('/', " OR ").replace('(', " ( ").replace(')', " ) ");
    let mut words = spaced.split_whitespace().peekable();
    let met = read_or(&mut words, allowed)?;
    match words.next() {
        None => Ok(met),
        Some(word) => Err(format!("unexpected `{word}` in the licence {expression}").into()),
    }
}

type Words<'a> = std::iter::Peekable<std::str::SplitWhitespace<'a>>;

fn read_or(words: &mut Words, allowed: &BTreeSet<&str>) -> Result<bool> {
    let mut met = read_and(words, allowed)?;
    while words.next_if_eq(&"OR").is_some() {
        met |= read_and(words, allowed)?;
    }
    Ok(met)
}

fn read_and(words: &mut Words, allowed: &BTreeSet<&str>) -> Result<bool> {
    let mut met = read_license(words, allowed)?;
    while words.next_if_eq(&"AND").is_some() {
        met &= read_license(words, allowed)?;
    }
    Ok(met)
}

fn read_license(words: &mut Words, allowed: &BTreeSet<&str>) -> Result<bool> {
    let license = words.next().ok_or("a licence is missing at the end of the expression")?;
    if license == "(" {
        let met = read_or(words, allowed)?;
        return words.next_if_eq(&")").map(|_| met).ok_or_else(|| "a `)` is missing".into());
    }
    if words.next_if_eq(&"WITH").is_some() {
        let exception = words.next().ok_or("an exception is missing after WITH")?;
        return Ok(allowed.contains(format!("{license} WITH {exception}").as_str()));
    }
    Ok(allowed.contains(license))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn expressions_are_met_by_allowed_licences_alone() {
        let allowed = BTreeSet::from(["MIT", "Apache-2.0 WITH LLVM-exception", "Unicode-3.0"]);
        for (expression, met) in [
            ("MIT", true),
            ("GPL-3.0", false),
            ("GPL-3.0 OR MIT", true),
            ("Apache-2.0/MIT", true),
            ("MIT AND GPL-3.0", false),
            ("GPL-3.0 OR MIT AND Unicode-3.0", true),
            ("(MIT OR GPL-3.0) AND Unicode-3.0", true),
            ("(MIT OR GPL-3.0) AND Zlib", false),
            ("Apache-2.0 WITH LLVM-exception", true),
            ("Apache-2.0", false),
        ] {
            assert_eq!(is_allowed(expression, &allowed).unwrap(), met, "{expression}");
        }
        for wrong in ["", "MIT OR", "(MIT", "MIT MIT", "MIT WITH"] {
            assert!(is_allowed(wrong, &allowed).is_err(), "{wrong}");
        }
    }

    /// Makes a package without dependencies of the registry.
    fn make_package(name: &str, license: Value, source: Value) -> Value {
        json!({
            "name": name, "version": "1.0.0", "license": license, "source": source,
            "dependencies": [],
        })
    }

    #[test]
    fn each_rule_finds_its_violation() {
        let policy = json!({
            "licenses": { "allow": ["MIT"] },
            "bans": { "deny": [{ "crate": "cc" }] },
        });
        let fine = make_package("a", json!("MIT"), json!(REGISTRY));
        assert!(find_violations(&policy, &[fine]).is_empty());
        let empty = find_violations(&json!({}), &[]);
        assert_eq!(empty[1], "deny.toml: the list bans.deny is missing or empty");
        let mut ours = make_package("ours", json!("MIT"), Value::Null);
        ours["dependencies"] =
            json!([{ "name": "any", "req": "*" }, { "name": "b", "req": "*", "path": "/b" }]);
        let findings = find_violations(
            &policy,
            &[
                make_package("a", json!("GPL-3.0"), json!(REGISTRY)),
                make_package("b", Value::Null, json!(REGISTRY)),
                make_package("cc", json!("MIT"), json!(REGISTRY)),
                make_package("d", json!("MIT"), json!("git+https://example.org/d")),
                ours,
            ],
        );
        assert_eq!(
            findings,
            [
                "a 1.0.0: the licence GPL-3.0 is not in deny.toml",
                "b 1.0.0: declares no licence",
                "cc 1.0.0: is banned by deny.toml",
                "d 1.0.0: comes from git+https://example.org/d",
                "ours 1.0.0: any version of any would do",
            ]
        );
    }
}

//! Every version of every operator, expanded, in a file for each operator, so that a change of a
//! shared fact shows where it has an effect. `BLESS=1` rewrites the files.
//! `tests/conformance/compare_schemas.py` checks that they are right.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use sardonyx_ops::{OpDef, Registry};

/// Folder of operators outside the standard, with one folder for each domain in it.
const MICROSOFT: &str = "microsoft";

#[test]
fn each_operator_matches_its_file() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/schemas");
    let registry = Registry::standard();
    // Added operators have files of their own, which `tests/agree/microsoft_schemas.py` compares.
    let microsoft = directory.join(MICROSOFT);
    let added = registry.microsoft_operators().map(|op| (microsoft.join(file_of(op)), expand(op)));
    let listed = registry.operators().map(|op| (directory.join(file_of(op)), expand(op)));
    let expected: BTreeMap<PathBuf, String> = listed.chain(added).collect();
    if std::env::var_os("BLESS").is_some() {
        for (path, text) in &expected {
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
    }
    let mut found = BTreeMap::new();
    let domains = [&directory, &microsoft].map(|list| fs::read_dir(list).unwrap());
    for domain in domains.into_iter().flatten() {
        if domain.as_ref().unwrap().file_name() == MICROSOFT {
            continue;
        }
        for file in fs::read_dir(domain.unwrap().path()).unwrap() {
            let path = file.unwrap().path();
            let text = fs::read_to_string(&path).unwrap();
            found.insert(path, text);
        }
    }
    let differs = |path: &&PathBuf| expected.get(*path) != found.get(*path);
    let mut paths: Vec<&PathBuf> = expected.keys().chain(found.keys()).filter(differs).collect();
    paths.dedup();
    assert!(
        paths.is_empty(),
        "BLESS=1 and a look at the difference would tell what changed in {paths:#?}"
    );
}

fn file_of(op: &OpDef) -> PathBuf {
    let domain = if op.domain.is_empty() { "ai.onnx" } else { op.domain };
    Path::new(domain).join(op.name).with_extension("txt")
}

fn expand(op: &OpDef) -> String {
    let schemas = op.versions().map(|version| op.schema_at(version.since).unwrap().to_string());
    schemas.collect::<Vec<_>>().join("\n")
}

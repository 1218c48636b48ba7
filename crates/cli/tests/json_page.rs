//! docs/json.md names every key of every JSON answer.

#![allow(clippy::unwrap_used)] // a panic is the report

mod support;

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use serde_json::Value;
use support::{Files, digits_model, sardonyx};

/// All keys in a value. Those below some keys are names of something else.
fn keys<'v>(value: &'v Value, found: &mut BTreeSet<&'v str>) {
    match value {
        Value::Object(entries) => {
            for (key, value) in entries {
                found.insert(key);
                if key != "kernels" {
                    keys(value, found);
                }
            }
        }
        Value::Array(items) => items.iter().for_each(|item| keys(item, found)),
        _ => {}
    }
}

#[test]
fn the_page_names_every_key() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/json.md");
    let page = fs::read_to_string(page).unwrap();
    let named: BTreeSet<&str> = page.split('`').skip(1).step_by(2).collect();
    let files = Files::new(&[]);
    let lines = include_str!("json_commands.txt").lines();
    let mut answers = 0;
    let mut missing = Vec::new();
    for line in lines.filter(|line| !line.starts_with('#')) {
        let words = line.split(' ');
        let words = words.map(|word| word.replace("%o", &files.path("out")));
        let words: Vec<String> = words.map(|word| word.replace('%', &digits_model())).collect();
        let mut arguments: Vec<&str> = words.iter().map(String::as_str).collect();
        arguments.push("--json");
        let answer = sardonyx(&arguments);
        let json: Value = serde_json::from_str(&answer.stdout).unwrap();
        let schema = json["schema"].as_str().unwrap();
        if !named.contains(schema) {
            missing.push(format!("{line}: {schema}"));
        }
        let mut found = BTreeSet::new();
        keys(&json, &mut found);
        let unnamed = found.iter().filter(|key| **key != "schema" && !named.contains(*key));
        missing.extend(unnamed.map(|key| format!("{line}: {key}")));
        answers += usize::from(answer.code == Some(0));
    }
    assert!(missing.is_empty(), "{}", missing.join("\n"));
    assert!(answers >= 20, "{answers}");
}

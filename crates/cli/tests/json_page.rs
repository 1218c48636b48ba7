//! docs/json.md names every key of every JSON answer.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use crate::support::{Files, digits_model, sardonyx};
use serde_json::Value;

/// Adds all keys of objects in a value to `found`, except those below `kernels`, which are names of
/// kernels.
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

/// Model with parts that the digits model lacks: a function, an operator that cannot run, an
/// optional input, training information, device annotations, and rules that it breaks.
const ODD: &str = r#"<ir_version: 11, opset_import: ["": 21, "local": 1, "com.example": 1], notation: "full">
odd (float[N, 2] x, float[2] b = {1, 2}) => (float[N, M] y, float[N, 2] z) <float[2] w = {0, 0}> {
    [first] a = local.twice(x)
    y = com.example.Unknown(a, w)
    c = "".Add(x, b)
    z = "".Relu<alpha: float = 1.0>(c)
}
<domain: "local", opset_import: ["": 21]>
twice (v) => (u) { u = "".Add(v, v) }
@<
  training_info: [{
    algorithm: step (float[2] t) => (float[2] v) { v = "".Sub(w, t) },
    update_binding: ["w": "v"]
  }],
  configuration: [{name: "c", num_devices: 2}]
>"#;

#[test]
fn the_page_names_every_key() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/json.md");
    let page = fs::read_to_string(page).unwrap();
    let named: BTreeSet<&str> = page.split('`').skip(1).step_by(2).collect();
    let files = Files::new(&[("odd.onnxtxt", ODD.as_bytes().to_vec())]);
    let mut answers = 0;
    let mut missing = Vec::new();
    let on_devices = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/devices/products.onnxtxt");
    let all = include_str!("json_commands.txt");
    for (model, lines) in [
        (digits_model(), all),
        (files.path("odd.onnxtxt"), all),
        (on_devices.to_string(), "profile % --devices --runs 1\nexplain % --devices"),
    ] {
        let lines = lines.lines();
        for line in lines.filter(|line| !line.starts_with('#')) {
            let words = line.split(' ');
            let words = words.map(|word| word.replace("%o", &files.path("out")));
            let words: Vec<String> = words.map(|word| word.replace('%', &model)).collect();
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
    }
    assert!(missing.is_empty(), "{}", missing.join("\n"));
    assert!(answers >= 30, "{answers}");
}

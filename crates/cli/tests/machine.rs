//! `sardonyx info --machine`, and the variable that overrides cache sizes.

use std::process::{Command, Output};

use crate::support::{digits_model, sardonyx};

/// Runs the command with a value of `SARDONYX_CACHES`.
fn run_with_caches(caches: &str, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sardonyx"));
    command.args(arguments).env("SARDONYX_CACHES", caches).output().unwrap()
}

#[test]
fn machine_is_described_without_a_model() {
    let keys = ["processor", "processors", "instruction_set", "caches", "flops", "bandwidth"];
    let answer = sardonyx(&["info", "--machine", "--json"]).json("sardonyx.info-machine/1", &keys);
    let caches = ["near", "own", "shared"].map(|key| answer["caches"][key].as_u64().unwrap());
    assert!(caches.is_sorted() && caches[0] >= 4 << 10, "{caches:?}");
    for key in ["flops", "bandwidth"] {
        assert!(answer[key].as_f64().unwrap() > 1e6, "{answer}");
    }
    let text = sardonyx(&["info", "--machine"]).good();
    assert!(text.contains("GFLOP/s") && text.lines().count() == 1, "{text}");
    sardonyx(&["info"]).fails_with(&["MODEL"]);
    sardonyx(&["info", "--machine", &digits_model()]).fails_with(&["--machine"]);
}

#[test]
fn caches_are_overridden_and_a_malformed_value_is_an_error() {
    let output = run_with_caches("16K,256K,2M", &["info", "--machine", "--json"]);
    let answer: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let expected = serde_json::json!({"near": 16 << 10, "own": 256 << 10, "shared": 2 << 20});
    assert_eq!(answer["caches"], expected);
    let model = digits_model();
    for arguments in [&["info", "--machine"][..], &["run", &model, "--random", "1"]] {
        let output = run_with_caches("large", arguments);
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success(), "{arguments:?}");
        assert!(error.contains("SARDONYX_CACHES is \"large\""), "{error}");
        assert!(error.contains("32K,512K,4M"), "{error}");
    }
}

//! `sardonyx ops`: text and JSON.

use std::process::{Command, Output};

fn ops(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_sardonyx")).arg("ops").args(arguments).output().unwrap()
}

fn text(arguments: &[&str]) -> String {
    let output = ops(arguments);
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn the_whole_standard_is_listed() {
    assert!(text(&[]).ends_with("\n227 operators in 659 versions\n"));
    assert!(text(&["--domain", "ai.onnx.ml"]).ends_with("\n19 operators in 25 versions\n"));
    // Finds operators by a part of the name or description, or by a pattern.
    assert!(text(&["softmax"]).contains("\nSoftmaxCrossEntropyLoss "));
    assert!(text(&["transform"]).contains("\nDFT "));
    assert!(text(&["Reduce*"]).ends_with("\n10 operators in 45 versions\n"));
}

#[test]
fn one_operator_at_one_version() {
    let newest = text(&["Reshape"]);
    assert!(newest.contains("Reshape since opset version 25\n"), "{newest}");
    let old = text(&["Reshape", "--opset", "4"]);
    assert!(old.contains("Reshape since opset version 1\n"), "{old}");
    assert!(old.contains("  attribute shape: ints\n"), "{old}");
    assert!(text(&["ai.onnx.ml.LabelEncoder", "--all"]).contains("since opset version 2\n"));
    assert_eq!(
        text(&["Reshape", "--diff", "13", "14"]),
        "Reshape from version 13 to version 14\n+ attribute allowzero: int = 0\n"
    );
    assert_eq!(
        text(&["Reshape", "--diff", "6", "12"]),
        "Reshape from version 5 to version 5: same inputs, outputs, attributes and types\n"
    );
}

#[test]
fn json_has_every_fact() {
    let answer: serde_json::Value = serde_json::from_str(&text(&["Gemm", "--json"])).unwrap();
    assert_eq!(answer["schema"], "sardonyx.ops/1");
    let versions = answer["operators"][0]["versions"].as_array().unwrap();
    assert_eq!(versions.len(), 6);
    assert_eq!(versions[5]["inputs"][2]["arity"], "optional");
    assert_eq!(versions[5]["attributes"][0]["default"], 1.0);
    assert_eq!(versions[5]["most_inputs"], 3);
    let about = |part: &str, index: usize| &versions[5][part][index]["about"];
    assert_eq!(about("attributes", 0), "Factor of the product.");
    assert_eq!(about("inputs", 2), "Matrix added to the product, broadcast to `[M, N]`.");
}

#[test]
fn unknown_names_and_versions_are_refused() {
    let output = ops(&["Convv"]);
    assert_eq!(output.status.code(), Some(2));
    let message = String::from_utf8(output.stderr).unwrap();
    assert!(message.contains("no operator 'Convv' exists"), "{message}");
    assert!(message.contains("did you mean Conv?"), "{message}");
    for arguments in
        [&["Conv", "--opset", "0"][..], &["--domain", "nowhere"], &["Conv", "--diff", "0", "1"]]
    {
        assert_eq!(ops(arguments).status.code(), Some(2), "{arguments:?}");
    }
}

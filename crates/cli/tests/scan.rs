//! `sardonyx scan`: answers, JSON keys and exit codes.

use std::fs;

use crate::support::{
    add_node, chain, digits_model, edited_digits, sardonyx, sardonyx_with_stdin, with_external_data,
};
use serde_json::Value;
use tempfile::tempdir;

#[test]
fn a_harmless_model_has_no_findings() {
    let text = sardonyx(&["scan", &digits_model()]).good();
    assert_eq!(text.lines().count(), 2, "{text}");
    assert!(text.contains("tensors"), "{text}");
    assert!(text.contains("no findings that make the file unsafe"), "{text}");
    let text = sardonyx(&["scan", "--strict", "--checksums", &digits_model()]).good();
    assert!(text.contains("no findings that make"), "{text}");
}

#[test]
fn findings_are_lines_with_help_and_a_verdict() {
    let directory = tempdir().unwrap();
    let path = |name: &str| directory.path().join(name).display().to_string();
    fs::write(path("out.onnx"), with_external_data("../secret")).unwrap();
    fs::write(path("page.onnx"), "<html>404</html>").unwrap();
    let answer = sardonyx(&["scan", &path("out.onnx"), &path("page.onnx"), &digits_model()]);
    assert_eq!((answer.code, answer.stderr.as_str()), (Some(1), ""));
    let text = answer.stdout;
    for words in [
        "out.onnx: ",
        "error[location-escapes] graph.initializer[0] 'w': the location '../secret' has a '..' part",
        "help: a reader that follows the path",
        "(EXT-09)", // EXT-09
        "do not open this file: 1 error",
        "page.onnx: ",
        "error[not-a-model] the file is a web page",
        "digits.onnx: ",
        "no findings that make the file unsafe to open",
    ] {
        assert!(text.contains(words), "lacks '{words}':\n{text}");
    }
}

#[test]
fn strict_counts_warnings() {
    let directory = tempdir().unwrap();
    let path = directory.path().join("python.onnx").display().to_string();
    fs::write(&path, edited_digits(|model| add_node(model, "PyOp", "ai.onnx.contrib"))).unwrap();
    let text = sardonyx(&["scan", &path]).good();
    assert!(text.contains("warning[foreign-code]"), "{text}");
    assert!(text.contains("note[custom-domain]"), "{text}");
    assert!(
        text.contains("review the findings before opening this file: 1 warning, 1 note"),
        "{text}"
    );
    assert_eq!(sardonyx(&["scan", "--strict", &path]).code, Some(1));
}

#[test]
fn the_json_answer_has_its_keys() {
    let directory = tempdir().unwrap();
    let path = |name: &str| directory.path().join(name).display().to_string();
    fs::write(path("missing.onnx"), with_external_data("w.bin")).unwrap();
    let (model, absent) = (path("missing.onnx"), path("absent.onnx"));
    let answer = sardonyx(&["scan", "--json", &model, &absent]);
    assert_eq!(answer.code, Some(2));
    assert!(answer.stderr.contains("absent.onnx"), "{}", answer.stderr);
    let json: Value = serde_json::from_str(&answer.stdout).unwrap();
    assert_eq!(json["schema"], "sardonyx.scan/1");
    assert_eq!(json["strict"], false);
    let file = &json["files"][0];
    assert_eq!(file["model"], model);
    assert_eq!(file["verdict"], "findings");
    assert_eq!((&file["errors"], &file["warnings"]), (&1.into(), &0.into()));
    let found = &file["findings"][0];
    assert_eq!(found["code"], "data-file-missing");
    assert_eq!(found["severity"], "error");
    assert_eq!(found["requirement"], "EXT-02"); // EXT-02, EXT-22
    assert_eq!(found["place"], "graph.initializer[0] 'w'");
    assert!(found["help"].is_string() && found["message"].is_string());
    let facts = &file["facts"];
    assert_eq!(facts["ir_version"], 8);
    assert_eq!(facts["opsets"][0]["version"], 13);
    assert_eq!((&facts["nodes"], &facts["tensors"]), (&1.into(), &1.into()));
    assert_eq!(facts["outside_claimed"], 16);
    assert_eq!(facts["data_files"][0]["location"], "w.bin");
    assert_eq!(facts["data_files"][0]["bytes"], Value::Null);
    assert_eq!(facts["domains"][0]["nodes"], 1);
    for key in ["bytes", "graphs", "functions", "messages", "depth", "inside_bytes"] {
        assert!(facts[key].is_u64(), "{key}");
    }
    assert_eq!(json["files"][1]["verdict"], "unreadable");
    assert!(json["files"][1]["error"].is_string());
}

#[test]
fn an_unreadable_model_does_not_stop_the_scan() {
    let directory = tempdir().unwrap();
    let path = |name: &str| directory.path().join(name).display().to_string();
    let answer = sardonyx(&["scan", &path("a.onnx"), &digits_model(), &path("b.onnx")]);
    assert!(answer.stdout.contains("no findings that make"), "{}", answer.stdout);
    assert!(answer.stderr.contains("a.onnx"), "{}", answer.stderr);
    answer.fails_with(&["b.onnx", "no such file"]);
    sardonyx(&["scan", directory.path().to_str().unwrap()]).fails_with(&["directory"]);
    sardonyx(&["scan", "-", "-"]).fails_with(&["only once"]);
    assert_eq!(sardonyx(&["scan"]).code, Some(2));
}

#[test]
fn a_model_may_come_from_stdin() {
    let directory = tempdir().unwrap();
    let path = directory.path().join("m.onnx");
    fs::write(&path, with_external_data("w.bin")).unwrap();
    let text = sardonyx_with_stdin(&["scan", "-"], &path).good();
    assert!(text.contains("note[data-files-not-looked-at]"), "{text}");
    fs::write(directory.path().join("w.bin"), [0; 16]).unwrap();
    let data = directory.path().to_str().unwrap();
    let text = sardonyx_with_stdin(&["scan", "--data-dir", data, "-"], &path).good();
    assert!(text.contains("1 data file of 16 bytes"), "{text}");
    sardonyx_with_stdin(&["scan", "--max-bytes", "10", "-"], &path).fails_with(&["10 bytes"]);
}

#[test]
fn limits_are_options() {
    let directory = tempdir().unwrap();
    let path = directory.path().join("m.onnx").display().to_string();
    fs::write(&path, chain(&["Relu"; 100], &[2])).unwrap();
    sardonyx(&["scan", &path]).good();
    for (option, code) in [("--max-depth", "too-deep"), ("--max-messages", "too-many-messages")] {
        let answer = sardonyx(&["scan", option, "1", &path]);
        assert_eq!(answer.code, Some(1));
        assert!(answer.stdout.contains(code), "{}", answer.stdout);
    }
}

#[test]
fn control_characters_in_names_are_escaped() {
    let directory = tempdir().unwrap();
    let path = directory.path().join("m.onnx").display().to_string();
    fs::write(&path, with_external_data("/a\u{1b}[31m\u{202e}")).unwrap();
    let answer = sardonyx(&["scan", &path]);
    assert_eq!(answer.code, Some(1));
    assert!(!answer.stdout.contains(['\u{1b}', '\u{202e}']), "{}", answer.stdout);
    assert!(answer.stdout.contains("location-absolute"), "{}", answer.stdout);
}

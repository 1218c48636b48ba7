//! `sardonyx models`, and `sardonyx` without arguments.

use std::fs;
use std::process::{Command, Stdio};

use crate::support::{Files, digits_model};
use serde_json::Value;

/// Runs the command in a directory.
fn run_in(files: &Files, args: &[&str]) -> (Option<i32>, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sardonyx"));
    let command = command.args(args).current_dir(files.path(".")).stdin(Stdio::null());
    let output = command.output().unwrap();
    let [text, errors] =
        [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).unwrap());
    (output.status.code(), text, errors)
}

const WRONG: &str = "<ir_version: 10, opset_import: [\"\": 21]>\n\
    g (float[N] x) => (float[N] y) { y = Relu(z) }\n";
const FOREIGN: &str = "<ir_version: 10, opset_import: [\"\": 21, \"com.example\": 1]>\n\
    g (float[N] x) => (float[N] y) { y = com.example.Fast(x) }\n";
const CHAIN: &str = "<ir_version: 10, opset_import: [\"\": 21]>\n\
    g (float[N] x) => (float[N] y) { y = Relu(x) }\n";

fn mixed_files() -> Files {
    let files = Files::new(&[
        ("digits.onnx", fs::read(digits_model()).unwrap()),
        ("a wrong one.onnxtxt", WRONG.into()),
        ("foreign.onnxtxt", FOREIGN.into()),
        ("notes.txt", b"no model".to_vec()),
    ]);
    for (directory, name) in [
        ("onnx", "Chain.ONNXTXT"),
        (".hidden", "h.onnx"),
        ("one/two", "in.onnxtxt"),
        ("one/two/three", "deep.onnx"),
    ] {
        fs::create_dir_all(files.path(directory)).unwrap();
        fs::write(files.path(&format!("{directory}/{name}")), CHAIN).unwrap();
    }
    files
}

#[test]
fn a_directory_of_models_is_described_without_arguments() {
    let files = mixed_files();
    let (code, text, errors) = run_in(&files, &[]);
    assert_eq!(code, Some(1), "{errors}");
    let rows: Vec<&str> = text.lines().take_while(|line| !line.is_empty()).collect();
    let starts = [
        "model",
        "a wrong one.onnxtxt",
        "digits.onnx",
        "foreign.onnxtxt",
        "one/two/in.onnxtxt",
        "onnx/Chain.ONNXTXT",
    ];
    assert_eq!(rows.len(), starts.len(), "{text}");
    for (row, start) in rows.iter().zip(starts) {
        assert!(row.starts_with(start), "{row}");
    }
    assert!(rows[1].contains("no, 1 error, 3 notes (undefined-value …)"), "{text}");
    assert!(rows[1].contains("not before it is valid"), "{text}");
    assert!(rows[2].contains("136 kB") && rows[2].contains("yes"), "{text}");
    assert!(rows[2].contains("Conv, ") && rows[2].ends_with(" % of multiply-adds"), "{text}");
    assert!(rows[3].contains("no, without ") && rows[3].contains("com.example"), "{text}");
    assert!(rows[5].contains("Relu, 100 % of elements"), "{text}");
    for command in [
        "sardonyx run digits.onnx --random ",
        "sardonyx profile digits.onnx --random ",
        "sardonyx check --full 'a wrong one.onnxtxt'",
        "sardonyx explain foreign.onnxtxt",
    ] {
        assert!(text.contains(&format!("\n  {command}")), "{text}");
    }
    // The command by its name does the same.
    assert_eq!(run_in(&files, &["models"]), (code, text, errors));
}

#[test]
fn suggested_commands_work() {
    let files = mixed_files();
    let (_, text, _) = run_in(&files, &["models", "--json"]);
    let answer: Value = serde_json::from_str(&text).unwrap();
    let next = answer["next"].as_array().unwrap();
    assert_eq!(next.len(), 5, "{text}");
    for suggestion in next {
        let line = suggestion["command"].as_str().unwrap();
        let quoted: Vec<&str> = line.split('\'').collect();
        let args: Vec<&str> = match &quoted[..] {
            [plain] => plain.split(' ').skip(1).collect(),
            [before, name, _] => before.split_whitespace().skip(1).chain([*name]).collect(),
            _ => panic!("{line}"),
        };
        let (code, _, errors) = run_in(&files, &args);
        // A model with errors or foreign operators has exit code 1 or 2.
        assert!(!errors.contains("Usage"), "{line}: {errors}");
        assert_eq!(code == Some(0), args.contains(&"digits.onnx"), "{line}: {errors}");
    }
}

#[test]
fn a_directory_without_models_shows_the_help() {
    let files = Files::new(&[("notes.txt", b"no model".to_vec())]);
    let (code, text, errors) = run_in(&files, &[]);
    assert_eq!((code, text.as_str()), (Some(2), ""));
    assert!(errors.contains("Usage: sardonyx"), "{errors}");
    let (code, text, _) = run_in(&files, &["models"]);
    assert_eq!(code, Some(0));
    assert_eq!(text, "no models: files that end in .onnx, .onnxtxt or .onnxtext\n");
}

#[test]
fn damaged_and_further_models_are_counted() {
    let digits = fs::read(digits_model()).unwrap();
    let files = Files::new(&[
        ("a.onnx", digits[..100].to_vec()),
        ("b.onnx", digits.clone()),
        ("c.onnx", digits),
    ]);
    let (code, text, errors) = run_in(&files, &["models", "--max-models", "2"]);
    assert_eq!(code, Some(2));
    assert!(text.contains("a.onnx") && text.contains("cannot be read"), "{text}");
    assert!(text.contains("… and 1 more model\n"), "{text}");
    assert!(errors.contains("a.onnx"), "{errors}");
    let (code, _, errors) = run_in(&files, &["models", "absent"]);
    assert_eq!(code, Some(2));
    assert!(errors.contains("absent"), "{errors}");
}

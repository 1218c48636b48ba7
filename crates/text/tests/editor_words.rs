//! Checks that the grammar for editors has exactly the words of the notation, and that the parser
//! accepts its samples.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use sardonyx_tensor::{Buffer, DataType};
use sardonyx_text::{DiagnosticSeverity, Position, syntax_tree, words};
use serde_json::Value;

fn editor() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../editors/vscode")
}

/// Returns the words of a rule of the grammar: `\b(one|two)\b`.
fn grammar_words(grammar: &Value, rule: &str) -> BTreeSet<String> {
    let rule = &grammar["repository"][rule];
    let pattern = rule["match"].as_str().or(rule["begin"].as_str()).unwrap();
    let words = pattern.strip_prefix(r"\b(").and_then(|rest| rest.strip_suffix(r")\b")).unwrap();
    words.split('|').map(String::from).collect()
}

#[test]
fn grammar_has_all_words_and_no_others() {
    let text = std::fs::read_to_string(editor().join("syntaxes/onnxtxt.tmLanguage.json")).unwrap();
    let grammar: Value = serde_json::from_str(&text).unwrap();
    let elements = DataType::ALL.map(DataType::name);
    let attributes: Vec<&str> = words::ATTRIBUTE_TYPES.iter().map(|row| row.0).collect();
    let rules: [(&str, &[&[&str]]); 6] = [
        ("tensor-type", &[&elements]),
        ("type-constructor", &[words::TYPE_CONSTRUCTORS]),
        ("attribute-type", &[&attributes]),
        ("storage-word", &[words::STORAGE_WORDS]),
        ("header-key", &[words::MODEL_KEYS, words::FUNCTION_KEYS]),
        (
            "note-key",
            &[
                words::MODEL_NOTES,
                words::TRAINING_KEYS,
                words::GRAPH_NOTES,
                words::NODE_NOTES,
                words::VALUE_NOTES,
                words::ATTRIBUTE_NOTES,
                words::TENSOR_NOTES,
                words::TYPE_NOTES,
                words::DIMENSION_NOTES,
            ],
        ),
    ];
    for (rule, lists) in rules {
        let known: BTreeSet<String> = lists.concat().iter().map(|word| word.to_string()).collect();
        assert_eq!(grammar_words(&grammar, rule), known, "rule `{rule}`");
    }
}

#[test]
fn samples_are_texts() {
    let mut count = 0;
    let mut wrong = String::new();
    for entry in std::fs::read_dir(editor().join("tests/samples")).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|extension| extension != "onnxtxt") {
            continue;
        }
        count += 1;
        let text = Buffer::from_vec(std::fs::read(&path).unwrap());
        for found in syntax_tree(&text).1 {
            // Omitted values are not an error in a text that only demonstrates syntax.
            if found.severity == DiagnosticSeverity::Error
                && !found.message.contains("were left out")
            {
                let name = path.file_name().unwrap().to_string_lossy();
                let Position { line, column } = Position::of(text.as_slice(), found.span.start);
                wrong += &format!("\n{name}:{line}:{column}: {}", found.message);
            }
        }
    }
    assert!(count > 0, "there are no samples");
    assert!(wrong.is_empty(), "{wrong}");
}

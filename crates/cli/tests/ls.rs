//! `sardonyx ls`.

use crate::support::{
    Files, broken_tensors, digits, digits_model, many_tensors, sardonyx, sardonyx_with_stdin,
    with_external_data,
};
use serde_json::json;

/// Returns the first word of each line below the headings, up to the empty line.
fn names(text: &str) -> Vec<&str> {
    let lines = text.lines().skip(1).take_while(|line| !line.is_empty());
    lines.map(|line| line.split_whitespace().next().unwrap()).collect()
}

#[test]
fn tensors_are_listed_with_their_places() {
    let files = Files::new(&[("many.onnx", many_tensors())]);
    let text = files.run("ls", "many.onnx", &[]).good();
    for line in [
        "w            float    [2, 2]  16 bytes  raw",
        "layer.2.ids  int64    [3]      5 bytes  int64_data",
        "none         float    [0, 4]   0 bytes  no elements",
        "graph.node[0] 'value'",
        "w            double   [1]      8 bytes  raw          graph.node[1] 'then_branch'.initializer[0]",
        "\n7 tensors, 13 elements, ",
    ] {
        assert!(text.contains(line), "lacks {line}:\n{text}");
    }
    let from_stdin = sardonyx_with_stdin(&["ls", "-"], &digits().join("digits.onnx")).good();
    assert_eq!(from_stdin, sardonyx(&["ls", &digits_model()]).good());
    assert!(from_stdin.ends_with("8 tensors, 33,546 elements, 134 kB\n"));
}

#[test]
fn orders_and_filters() {
    let files = Files::new(&[("many.onnx", many_tensors())]);
    let run = |args: &[&str]| files.run("ls", "many.onnx", args).good();
    // The order is that of the file. A line without a name begins with the type.
    let all = ["w", "layer.10.h", "layer.2.ids", "words", "none", "int32", "w"];
    assert_eq!(names(&run(&[])), all);
    let mut reversed = all;
    reversed.reverse();
    assert_eq!(names(&run(&["--reverse"])), reversed);
    let sorted = run(&["--sort", "name"]);
    let expected = ["int32", "layer.2.ids", "layer.10.h", "none", "w", "w", "words"];
    assert_eq!(names(&sorted), expected);
    let by_size = run(&["--sort", "size"]);
    assert_eq!(names(&by_size)[0], "w");
    assert_eq!(names(&by_size)[6], "none");
    assert_eq!(names(&run(&["--sort", "type"]))[0], "w"); // double
    assert_eq!(names(&run(&["--sort", "place"])), all);
    assert_eq!(names(&run(&["--name", "layer.*.?"])), ["layer.10.h"]);
    let two = run(&["--name", "words", "--name", "none"]);
    assert_eq!(names(&two), ["words", "none"]);
    assert_eq!(names(&run(&["--type", "float16"])), ["layer.10.h"]);
    assert_eq!(names(&run(&["--type", "float64"])), ["w"]);
    assert_eq!(names(&run(&["--min-bytes", "0.015625K"])), ["w"]);
    assert_eq!(run(&["--external"]), "none of 7 tensors matches\n");
    assert_eq!(names(&run(&["--inside"])), all);
    assert!(run(&["--name", "w"]).contains("2 of 7 tensors"));
    for usage in [["--type", "flaot16"], ["--min-bytes", "much"], ["--sort", "colour"]] {
        assert_eq!(files.run("ls", "many.onnx", &usage).code, Some(2));
    }
}

#[test]
fn statistics_are_those_of_the_values() {
    let files = Files::new(&[("many.onnx", many_tensors())]);
    let json = files.run("ls", "many.onnx", &["--stats", "--json"]);
    let json = json.json("sardonyx.ls/1", &["model", "tensors", "total"]);
    let stats = |index: usize| &json["tensors"][index]["stats"];
    let expected = json!({
        "zeros": 2, "sparsity": 0.5, "min": -2.0, "max": 1.5, "mean": -0.125, "nan": 0, "inf": 0,
    });
    assert_eq!(*stats(0), expected);
    assert_eq!((&stats(1)["nan"], &stats(1)["mean"]), (&json!(1), &json!(1.0)));
    assert_eq!((&stats(2)["min"], &stats(2)["max"]), (&json!(1), &json!(3)));
    assert!(stats(3).is_null(), "strings have no statistics");
    assert!(stats(4)["min"].is_null() && stats(4)["sparsity"].is_null());
    let first = &json["tensors"][2];
    let keys: Vec<&String> = first.as_object().unwrap().keys().collect();
    let expected = [
        "name",
        "place",
        "role",
        "type",
        "type_number",
        "shape",
        "elements",
        "bytes",
        "storage",
        "problem",
        "stats",
        "field",
    ];
    assert_eq!(keys, expected);
    assert_eq!(first["field"], "int64_data");
    assert_eq!(json["tensors"][5]["role"], "attribute");
    assert_eq!(json["total"]["tensors"], 7);
    let text = files.run("ls", "many.onnx", &["--stats"]).good();
    assert!(text.contains("50.0 %"), "{text}");
}

#[test]
fn broken_tensors_are_listed_with_what_is_wrong() {
    let files = Files::new(&[("broken.onnx", broken_tensors())]);
    let text = files.run("ls", "broken.onnx", &[]).finds();
    for words in [
        "20 bytes",
        "element type 99",
        "no values",
        "both raw_data and",
        "no location",
        "\n5 tensors cannot be read\n",
    ] {
        assert!(text.contains(words), "lacks {words}:\n{text}");
    }
    // Only statistics read values, which finds one more broken tensor.
    let text = files.run("ls", "broken.onnx", &["--stats"]).finds();
    assert!(text.contains("\n6 tensors cannot be read\n"), "{text}");
    let json = files.run("ls", "broken.onnx", &["--json"]);
    let json = json.json("sardonyx.ls/1", &["model", "tensors", "total"]);
    assert_eq!(json["total"]["broken"], 5);
    assert!(json["tensors"][0]["problem"].is_null());
    assert_eq!(json["tensors"][2]["type_number"], 99);
    assert_eq!(json["tensors"][5]["storage"], "broken");
}

#[test]
fn broken_data_files_are_listed() {
    let files = Files::new(&[
        ("missing.onnx", with_external_data("weights.bin")),
        ("escape.onnx", with_external_data("../weights.bin")),
        ("short.onnx", with_external_data("short.bin")),
        ("short.bin", vec![0; 10]),
        ("full.onnx", with_external_data("full.bin")),
        ("full.bin", vec![0; 16]),
    ]);
    let found = |model: &str, more: &[&str]| files.run("ls", model, more).finds();
    for more in [&[][..], &["--stats"]] {
        let text = found("missing.onnx", more);
        assert!(text.contains("weights.bin @ 0") && text.contains("is missing"), "{text}");
        let text = found("short.onnx", more);
        assert!(text.contains("has 10 bytes"), "{text}");
        let text = found("escape.onnx", more);
        assert!(text.contains("outside of the model's directory"), "{text}");
    }
    let text = files.run("ls", "full.onnx", &["--stats", "--external"]);
    assert!(text.good().contains("100 %"));
    let json = files.run("ls", "full.onnx", &["--json"]);
    let json = json.json("sardonyx.ls/1", &["model", "tensors", "total"]);
    assert_eq!(json["tensors"][0]["location"], "full.bin");
    assert_eq!(json["tensors"][0]["length"], 16);
    // A model on stdin has no directory, so that data files are not looked up.
    let from_stdin = sardonyx_with_stdin(&["ls", "-"], files.path("full.onnx").as_ref());
    assert!(from_stdin.good().contains("full.bin @ 0"));
    files.run("ls", "absent.onnx", &[]).fails_with(&["no such file"]);
}

//! `sardonyx info`: storage of values, and sizes of files.

use std::fs::File;

use crate::support::{
    Files, broken_tensors, digits, digits_model, many_tensors, sardonyx, sardonyx_with_stdin,
    with_external_data,
};
use serde_json::json;

fn info(files: &Files, name: &str) -> (String, serde_json::Value) {
    let text = files.run("info", name, &[]).good();
    let json = files.run("info", name, &["--json"]).good();
    (text, serde_json::from_str(&json).unwrap())
}

#[test]
fn storage_forms_and_types() {
    let files = Files::new(&[("many.onnx", many_tensors()), ("broken.onnx", broken_tensors())]);
    let (text, json) = info(&files, "many.onnx");
    for line in ["stored as   float raw data: 1 tensor, 16 bytes", "int64 typed lists: 1 tensor"] {
        assert!(text.contains(line), "lacks {line}:\n{text}");
    }
    let expected = json!({"storage": "raw", "type": "float", "tensors": 1, "bytes": 16});
    assert_eq!(json["stored"][0], expected);
    assert_eq!(json["file_bytes"], files.read("many.onnx").len());
    assert_eq!(json["exceeds_2_gib"], false);
    let (text, _) = info(&files, "broken.onnx");
    assert!(text.contains("not to be read"), "{text}");
    let piped = sardonyx_with_stdin(&["info", "-", "--json"], &digits().join("digits.onnx"));
    let piped: serde_json::Value = serde_json::from_str(&piped.good()).unwrap();
    assert!(piped["file_bytes"].is_null() && piped["exceeds_2_gib"].is_null());
    assert!(sardonyx(&["info", &digits_model()]).good().starts_with("file        136 kB\n"));
}

#[test]
fn data_files_are_looked_for_and_not_needed() {
    let files = Files::new(&[
        ("missing.onnx", with_external_data("absent.bin")),
        ("short.onnx", with_external_data("short.bin")),
        ("short.bin", vec![0; 10]),
        ("long.onnx", with_external_data("long.bin")),
        ("long.bin", vec![0; 2000]),
        ("escape.onnx", with_external_data("../x.bin")),
    ]);
    for (name, words) in [
        ("missing.onnx", "absent.bin: 1 tensor, 16 bytes; the file is missing"),
        ("short.onnx", "short.bin: 1 tensor, 16 bytes; the file is cut off: 10 bytes of 16"),
        ("long.onnx", "long.bin: 1 tensor, 16 bytes of a file of 2.0 kB"),
        ("escape.onnx", "../x.bin: 1 tensor, 16 bytes; not looked for"),
    ] {
        let (text, _) = info(&files, name);
        assert!(text.contains(words), "lacks {words}:\n{text}");
    }
    let (_, json) = info(&files, "missing.onnx");
    let expected = json!({
        "location": "absent.bin", "tensors": 1, "bytes": 16, "end": 16, "present_bytes": null, "missing": true,
    });
    assert_eq!(json["external_files"][0], expected);
    let (_, json) = info(&files, "long.onnx");
    assert_eq!(json["external_files"][0]["present_bytes"], 2000);
}

#[test]
fn files_above_2_gib_are_noted() {
    let files = Files::new(&[("large.onnx", many_tensors())]);
    // An unknown field that lies in a hole of a sparse file: large, but without bytes on disk.
    let size = (1u64 << 31) + 16;
    let path = files.path("large.onnx");
    let mut bytes = files.read("large.onnx");
    bytes.extend([0x82, 0x7d]); // field 2000, length-delimited
    let mut rest = size - bytes.len() as u64 - 5;
    for _ in 0..5 {
        bytes.push((rest & 0x7f) as u8 | if rest >= 0x80 { 0x80 } else { 0 });
        rest >>= 7;
    }
    std::fs::write(&path, &bytes).unwrap();
    File::options().write(true).open(&path).unwrap().set_len(size).unwrap();
    // EXT-23
    let (text, json) = info(&files, "large.onnx");
    assert!(text.starts_with("file        2.1 GB, more than the 2 GiB"), "{text}");
    assert_eq!(json["exceeds_2_gib"], true);
}

#[test]
fn nodes_are_listed_with_what_they_read_and_make() {
    let text = "<ir_version: 10, opset_import: [\"\": 21]>
        g (bool c, float[N, 2] x) => (float[N, 2] y) <float[2] w = {1, 2}> {
            [first] a = Add (x, w)
            [choice] y = If (c) <
                then_branch = yes () => (t) { [inner] t = Clip (a, , w) },
                else_branch = no () => (e) { e = Neg (a) }>
        }";
    let files = Files::new(&[("m.onnxtxt", text.into())]);
    let list = |more: &[&str]| files.run("info", "m.onnxtxt", &[&["--nodes"], more].concat());
    let expected = "graph:
  node  operator  name    inputs                      outputs
     0  Add       first   x: float[N, 2], w: float[2]  a: float[N, 2]
     1  If        choice  c: bool                     y: float[N, 2]
graph.node[1] 'then_branch':
  node  operator  name   inputs                         outputs
     0  Clip      inner  a: float[N, 2], -, w: float[2]  t: float[N, 2]
graph.node[1] 'else_branch':
  node  operator  inputs           outputs
     0  Neg       a: float[N, 2]   e: float[N, 2]

4 nodes
";
    let words = |text: &str| -> Vec<Vec<String>> {
        let lines = text.lines();
        lines.map(|line| line.split_whitespace().map(str::to_string).collect()).collect()
    };
    assert_eq!(words(&list(&[]).good()), words(expected));
    let text = list(&["--op", "C*"]).good();
    assert!(text.starts_with("graph.node[1] 'then_branch':\n"), "{text}");
    assert!(text.ends_with("\n1 of 4 nodes\n"), "{text}");
    for (options, hint) in [
        (["--op", "Conv"], "no node has the operator 'Conv'; `sardonyx info` lists the operators"),
        (["--op", "Cilp"], "no node has the operator 'Cilp'; did you mean Clip?"),
        (["--name", "chioce"], "no node has the name 'chioce'; did you mean 'choice'?"),
    ] {
        let answer = list(&options);
        assert!(answer.stderr.contains(hint), "{}", answer.stderr);
        assert_eq!(answer.good(), "0 of 4 nodes\n");
    }
    let json = list(&["--name", "*i*", "--json"])
        .json("sardonyx.info-nodes/1", &["model", "total", "nodes"]);
    assert_eq!(json["total"], 4);
    let nodes = json["nodes"].as_array().unwrap();
    let names: Vec<_> = nodes.iter().map(|node| node["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["first", "choice", "inner"]);
    let input = json!({
        "name": "w", "type": "float[2]", "source": "initializer", "made_by": null, "output": false,
    });
    assert_eq!(nodes[0]["inputs"][1], input);
    let output = json!({
        "name": "y", "type": "float[N, 2]", "source": "node", "made_by": 1, "output": true,
    });
    assert_eq!(nodes[1]["outputs"][0], output);
    assert_eq!(nodes[2]["inputs"][1], json!(null));
    files.run("info", "m.onnxtxt", &["--op", "Add"]).fails_with(&["--nodes"]);
}

//! Tests of `sardonyx externalize`.

use crate::support::{
    Files, digits_model, field, floats, model, sardonyx, tensor, with_external_data,
};

const KEYS: &[&str] = &["model", "saved", "inside"];

fn digits_copy() -> Files {
    Files::new(&[("digits.onnx", std::fs::read(digits_model()).unwrap())])
}

#[test]
fn one_file_and_back() {
    let files = digits_copy();
    let original = files.read("digits.onnx");
    let answer = files.run("externalize", "digits.onnx", &["--in-place"]);
    assert!(
        answer.stderr.contains(&format!("wrote {}", files.path("digits.onnx.data"))),
        "{}",
        answer.stderr
    );
    assert_eq!(answer.good(), "");
    assert_eq!(files.names(), ["digits.onnx", "digits.onnx.data"]);
    let first = files.content();
    let again = files.run("externalize", "digits.onnx", &["--in-place"]);
    assert!(
        again.stderr.contains(&format!("kept {}", files.path("digits.onnx.data"))),
        "{}",
        again.stderr
    );
    assert!(files.content() == first);
    let copied = files.run("set", "digits.onnx", &["--doc", "", "-o", &files.path("copy.onnx")]);
    assert!(copied.stderr.contains("digits.onnx.data, as the old model does"), "{}", copied.stderr);
    std::fs::remove_file(files.path("copy.onnx")).unwrap();
    let listed = files.run("ls", "digits.onnx", &["--external"]).good();
    assert!(listed.contains("3 of 8 tensors"), "{listed}");
    files.run("run", "digits.onnx", &["--random", "1"]).good();
    files.run("pack", "digits.onnx", &["--in-place"]).good();
    assert!(files.read("digits.onnx") == original);
    assert_eq!(files.names(), ["digits.onnx"]);
}

#[test]
fn layouts_and_names() {
    let run = |args: &[&str]| {
        let files = digits_copy();
        let args = [&["--in-place", "--json"], args].concat();
        let answer = files.run("externalize", "digits.onnx", &args);
        let json = answer.json("sardonyx.externalize/1", KEYS);
        let hash = |path: &str| sardonyx(&["hash", path]).good()[..64].to_string();
        assert_eq!(hash(&files.path("digits.onnx")), hash(&digits_model()));
        (files, json)
    };
    // EXT-20+: every tensor of the model moves.
    let (files, json) = run(&["--per-tensor", "--threshold", "0"]);
    let listed = files.run("ls", "digits.onnx", &["--external"]).good();
    assert!(listed.contains("8 tensors") && !listed.contains(" of "), "{listed}");
    assert_eq!(json["saved"]["files"].as_array().unwrap().len(), 8);
    assert_eq!(files.names().len(), 9);
    let (_, json) = run(&["--shards", "40K"]);
    assert_eq!(json["saved"]["files"].as_array().unwrap().len(), 3);
    let (files, json) = run(&["--one-file", "--data", "w.bin", "--align", "1", "--checksum"]);
    assert_eq!(files.names(), ["digits.onnx", "w.bin"]);
    assert_eq!(json["saved"]["files"][0]["bytes"], 133_120);
    assert_eq!(json["saved"]["files"][0]["reused"], false);
    let listed = files.run("ls", "digits.onnx", &["--external", "--json"]);
    let listed = listed.json("sardonyx.ls/1", &["model", "tensors", "total"]);
    assert_eq!(listed["tensors"][1]["checksum"].as_str().unwrap().len(), 40);
}

#[test]
fn data_files_of_another_model_stay() {
    let files = digits_copy();
    let out = files.path("b.onnx");
    let before = || {
        std::fs::copy(digits_model(), files.path("c.onnx")).unwrap();
        files.run("externalize", "c.onnx", &["--in-place", "--data", "b.data"]).good();
        std::fs::rename(files.path("c.onnx"), &out).unwrap();
    };
    before();
    let weights = files.read("b.data");
    let answer = files.run("set", "digits.onnx", &["--doc", "x", "-o", &out]);
    assert!(
        answer.stderr.contains("kept b.data") && answer.stderr.contains("--replace"),
        "{}",
        answer.stderr
    );
    answer.good();
    assert!(files.read("b.data") == weights);
    std::fs::remove_file(files.path("b.data")).unwrap();
    before();
    let args = ["--doc", "x", "-o", &out, "--json"];
    let json = files
        .run("set", "digits.onnx", &args)
        .json("sardonyx.set/1", &["model", "changes", "checked", "saved"]);
    assert_eq!(json["saved"]["left"][0], "b.data");
    assert_eq!(json["saved"]["removed"], serde_json::json!([]));
    // `--replace` removes them, unless a third model uses them.
    std::fs::remove_file(files.path("b.data")).unwrap();
    before();
    std::fs::copy(&out, files.path("third.onnx")).unwrap();
    let args = ["--doc", "x", "-o", &out, "--replace"];
    let answer = files.run("set", "digits.onnx", &args);
    assert!(answer.stderr.contains("which another model uses"), "{}", answer.stderr);
    answer.good();
    std::fs::rename(files.path("third.onnx"), &out).unwrap();
    files.run("set", "digits.onnx", &args).good();
    assert_eq!(files.names(), ["b.onnx", "digits.onnx"]);
}

#[test]
fn a_name_for_the_data_file_is_obeyed_when_there_is_one_already() {
    let files = digits_copy();
    files.run("externalize", "digits.onnx", &["--in-place"]).good();
    let args = ["--in-place", "--data", "w.bin"];
    files.run("externalize", "digits.onnx", &args).good();
    assert_eq!(files.names(), ["digits.onnx", "w.bin"]);
    let first = files.content();
    files.run("externalize", "digits.onnx", &args).good();
    assert!(files.content() == first);
    // The data file cannot have the name of the model itself.
    let args = ["-o", &files.path("b.onnx"), "--data", "b.onnx"];
    let answer = files.run("externalize", "digits.onnx", &args);
    assert!(
        answer.stderr.contains(&format!("wrote {}", files.path("b-2.onnx"))),
        "{}",
        answer.stderr
    );
    let hash = |name: &str| files.run("hash", name, &[]).good()[..64].to_string();
    assert_eq!(hash("b.onnx"), hash("digits.onnx"));
}

#[test]
fn a_data_file_is_not_replaced_by_a_model() {
    let files = digits_copy();
    files.run("externalize", "digits.onnx", &["--in-place"]).good();
    let before = files.content();
    let out = files.path("digits.onnx.data");
    for command in ["pack", "externalize"] {
        files
            .run(command, "digits.onnx", &["-o", &out])
            .fails_with(&["digits.onnx.data", "another"]);
    }
    assert!(files.content() == before);
}

#[test]
fn tensors_that_stay_inside_are_noted() {
    let values = floats(&[1.0; 4]);
    let constant = field(5, &tensor("", 1, &[4], field(9, &values)));
    let attribute = field(5, &[field(1, b"value"), constant].concat());
    let node = [field(2, b"c"), field(4, b"Constant"), attribute].concat();
    let list = tensor("list", 1, &[4], field(4, &values));
    let files = Files::new(&[("m.onnx", model(&[list], &[node]))]);
    let out = files.path("o.onnx");
    let run = |more: &[&str]| {
        let args = [&["-o", &out, "--threshold", "16"], more].concat();
        let answer = files.run("externalize", "m.onnx", &args);
        let notes = answer.stderr.clone();
        answer.good();
        notes
    };
    let notes = run(&[]);
    for words in
        ["1 tensor in typed fields", "--typed", "1 tensor in attributes", "no tensor was moved"]
    {
        assert!(notes.contains(words), "lacks {words}: {notes}");
    }
    let notes = run(&["--typed", "--attributes"]);
    assert!(notes.contains("2 tensors") && !notes.contains("inside"), "{notes}");
    let json = files.run("externalize", "m.onnx", &["-o", &out, "--json", "--threshold", "1"]);
    let json = json.json("sardonyx.externalize/1", KEYS);
    assert_eq!(json["inside"]["typed"]["tensors"], 1);
    assert_eq!(json["inside"]["attributes"]["bytes"], 16);
}

#[test]
fn nothing_is_lost_when_it_is_refused() {
    let files = Files::new(&[
        ("m.onnx", with_external_data("absent.bin")),
        ("digits.onnx", std::fs::read(digits_model()).unwrap()),
        ("broken.onnx", b"\x08\x0a\x3a\xff".to_vec()),
    ]);
    let before = files.content();
    let refused = |model: &str, args: &[&str], words: &[&str]| {
        files.run("externalize", model, args).fails_with(words);
    };
    let to = |name: &str| files.path(name);
    refused("digits.onnx", &["-o", "-"], &["cannot be written to stdout"]);
    refused("digits.onnx", &["-o", &to("digits.onnx")], &["is also the input file"]);
    refused("digits.onnx", &["--in-place", "--data", "../w.bin"], &["data file", ".."]);
    refused("digits.onnx", &["-o", &to("none/x.onnx")], &["no such directory"]);
    refused("m.onnx", &["--in-place"], &["absent.bin", "missing", "m.onnx"]);
    refused("broken.onnx", &["--in-place"], &["broken.onnx"]);
    assert!(files.content() == before);
    for usage in [
        &["--in-place", "--per-tensor", "--shards", "1M"][..],
        &["--in-place", "--threshold", "few"],
        &["--in-place", "--one-file", "--per-tensor"],
        &[],
    ] {
        let answer = files.run("externalize", "digits.onnx", usage);
        assert_eq!(answer.code, Some(2), "{usage:?}");
    }
}

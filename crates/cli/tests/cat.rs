//! Tests of `sardonyx cat`.

use std::fs;

use crate::support::{
    Files, broken_tensors, digits_model, floats, many_tensors, npy, sardonyx, sardonyx_bytes,
    with_external_data,
};
use serde_json::json;

#[test]
fn values_are_shown() {
    let files = Files::new(&[("many.onnx", many_tensors())]);
    let run = |args: &[&str]| files.run("cat", "many.onnx", args).good();
    assert_eq!(run(&["layer.2.ids"]), "layer.2.ids: int64[3]\n  1 2 3\n");
    assert_eq!(run(&["words"]), "words: string[2]\n    \"a\" \"b,c\"\n");
    assert_eq!(run(&["words", "--all"]), "words: string[2]\n  \"a\" \"b,c\"\n");
    let inner = ["w", "--place", "then_branch"];
    assert_eq!(run(&inner), "w: double[1]\n  7.5\n");
    let main = ["w", "--place", "graph.initializer[0]", "--all"];
    let expected = "w: float[2, 2]\n  [0, :] 0.0 1.5\n  [1, :] -2.0 0.0\n";
    assert_eq!(run(&main), expected);
    let nameless = ["--place", "graph.node[0] 'value'"];
    assert_eq!(run(&nameless), "graph.node[0] 'value': int32\n  5\n");
    // Tensors are shown in the order of the arguments, each once.
    let several = run(&["words", "layer.*", "layer.2.ids"]);
    let titles: Vec<&str> = several.lines().filter(|line| !line.starts_with(' ')).collect();
    let expected = ["words: string[2]", "layer.10.h: float16[2]", "layer.2.ids: int64[3]"];
    assert_eq!(titles, expected);
    let all = run(&["--all-tensors"]);
    assert!(all.contains("none: float[0, 4]\n  no elements\n"), "{all}");
    let large = sardonyx(&["cat", &digits_model(), "dense.weight"]).good();
    assert!(large.contains("... and 2 more rows"), "{large}");
    let all = sardonyx(&["cat", &digits_model(), "dense.weight", "--all"]).good();
    assert_eq!(all.split_whitespace().count(), 3 + 10 * 2 + 10_240);
}

#[test]
fn json_has_all_elements_when_asked() {
    let model = digits_model();
    let cat = |more: &[&str]| {
        let args = [&["cat", &model, "dense.weight", "--json"], more].concat();
        sardonyx(&args).json("sardonyx.cat/1", &["model", "tensors"])
    };
    let json = cat(&[]);
    let first = &json["tensors"][0];
    assert_eq!(first["truncated"], true);
    assert_eq!(first["shape"], json!([10, 1024]));
    assert_eq!(first["place"], "graph.initializer[6]");
    let json = cat(&["--all"]);
    assert_eq!(json["tensors"][0]["values"].as_array().unwrap().len(), 10_240);
}

#[test]
fn files_of_every_kind() {
    let files = Files::new(&[("many.onnx", many_tensors())]);
    let write = |args: &[&str], name: &str| {
        let path = files.path(name);
        let args = [args, &["-o", &path]].concat();
        let answer = files.run("cat", "many.onnx", &args);
        assert!(answer.stderr.contains(&path), "{}", answer.stderr);
        assert_eq!(answer.good(), "");
        files.read(name)
    };
    let w = ["w", "--place", "graph.initializer[0]"];
    let values = floats(&[0.0, 1.5, -2.0, 0.0]);
    assert_eq!(write(&w, "w.npy"), npy("<f4", "(2, 2)", &values));
    let proto = write(&w, "w.pb");
    assert_eq!(proto, [&b"\x08\x02\x08\x02\x10\x01\x42\x01w\x4a\x10"[..], &values].concat());
    assert_eq!(write(&w, "w.csv"), b"0.0,1.5\n-2.0,0.0\n");
    assert_eq!(write(&w, "w.txt"), b"0.0 1.5\n-2.0 0.0\n");
    assert_eq!(write(&["words"], "words.csv"), b"a,\"b,c\"\n");
    let raw = [&w[..], &["--raw"]].concat();
    assert_eq!(write(&raw, "w.bin"), values);
    // An existing file is replaced, as `run --output` does.
    assert_eq!(write(&["layer.2.ids"], "w.txt"), b"1 2 3\n");

    let model = files.path("many.onnx");
    let stdout = |more: &[&str]| sardonyx_bytes(&[&["cat", &model], more].concat(), None);
    assert_eq!(stdout(&raw), values);
    assert_eq!(stdout(&[&raw[..], &["-o", "-"]].concat()), values);
    assert_eq!(stdout(&["layer.2.ids", "-o", "-"]), b"1 2 3\n");

    let tensors = write(&["w", "layer.10.h", "--place", "graph.init"], "w.safetensors");
    let header = String::from_utf8_lossy(&tensors[8..]).into_owned();
    assert!(header.contains("\"w\":") && header.contains("\"F16\""), "{header}");
    let path = files.path("words.safetensors");
    let strings = files.run("cat", "many.onnx", &["words", "-o", &path]);
    strings.fails_with(&["'words'", "string"]);

    // Tensors are stored under their names, or their locations if names are empty or duplicate.
    write(&["--all-tensors"], "all.npz");
    let mut names = Vec::new();
    let archive = fs::File::open(files.path("all.npz")).unwrap();
    let archive = zip::ZipArchive::new(archive).unwrap();
    names.extend(archive.file_names().map(|name| name.unwrap().into_owned()));
    names.sort();
    let expected = [
        "graph.initializer[0].npy",
        "graph.node[0] 'value'.npy",
        "graph.node[1] 'then_branch'.initializer[0].npy",
        "layer.10.h.npy",
        "layer.2.ids.npy",
        "none.npy",
        "words.npy",
    ];
    assert_eq!(names, expected);
    let back = sardonyx(&["save", &files.path("all.npz"), "-o", "-", "--to", "csv"]);
    back.fails_with(&["one tensor, not 7"]);
}

#[test]
fn missing_tensors_are_refused_with_advice() {
    let files = Files::new(&[("many.onnx", many_tensors())]);
    let refused = |args: &[&str], words: &[&str]| {
        files.run("cat", "many.onnx", args).fails_with(words);
    };
    refused(&[], &["the command names no tensor", "--all-tensors", "sardonyx ls"]);
    refused(&["layer.2.idz"], &["did you mean 'layer.2.ids'?", "many.onnx"]);
    refused(&["strange"], &["no tensor 'strange'", "7 tensors"]);
    refused(&["x*"], &["no tensor matches 'x*'"]);
    refused(&["w"], &["2 tensors", "graph.initializer[0]", "then_branch", "--place"]);
    refused(&["--place", "graph"], &["7 tensors", "location 'graph'"]);
    refused(&["--place", "nowhere"], &["no tensor has the location 'nowhere'"]);
    refused(&["w", "--place", "node[0]"], &["no tensor 'w'"]);
    let to = |name: &str| files.path(name);
    refused(&["words", "-o", &to("x.foo")], &["x.foo", ".npy", "--raw"]);
    refused(&["layer.*", "-o", &to("x.npy")], &["one tensor, not 2", ".npz"]);
    refused(&["words", "--raw"], &["strings cannot be written as raw bytes"]);
    refused(&["words", "-o", &to("none/x.npy")], &["none/x.npy", "no such directory"]);
    refused(&["words", "-o", &to("many.onnx/x.npy")], &["many.onnx/x.npy"]);
    refused(&["words", "-o", &to("many.onnx"), "--raw"], &["is an input"]);
    #[cfg(unix)]
    {
        // A pipe stands for a device, which root would replace by a file if this failed.
        let made = std::process::Command::new("mkfifo").arg(to("pipe")).status();
        if made.is_ok_and(|status| status.success()) {
            refused(&["words", "-o", &to("pipe")], &["pipe", "not a regular file"]);
            fs::remove_file(to("pipe")).unwrap();
        }
    }
    let before = files.read("many.onnx");
    assert_eq!(files.names(), ["many.onnx"]);
    assert_eq!(before, many_tensors());
}

#[test]
fn damaged_tensors_and_data_files() {
    let files = Files::new(&[
        ("broken.onnx", broken_tensors()),
        ("outside.onnx", with_external_data("weights.npy")),
        ("full.onnx", with_external_data("full.npy")),
        ("full.npy", floats(&[1.0, 2.0, 3.0, 4.0])),
    ]);
    let good = files.run("cat", "broken.onnx", &["good"]).good();
    assert!(good.contains("1.0 2.0 3.0 4.0"), "{good}");
    for (name, words) in [
        ("short", "20 bytes"),
        ("unknown", "element type 99"),
        ("valueless", "no values"),
        ("both", "both raw_data"),
        ("lost", "no location"),
        ("list", "need"),
    ] {
        let answer = files.run("cat", "broken.onnx", &[name]);
        answer.fails_with(&[name, words, "broken.onnx"]);
    }
    let all = ["--all-tensors", "-o", &files.path("all.npz")];
    files.run("cat", "broken.onnx", &all).fails_with(&["short"]);
    assert!(!files.names().contains(&"all.npz".to_string()));
    let missing = files.run("cat", "outside.onnx", &["w"]);
    missing.fails_with(&["'weights.npy'", "missing", "outside.onnx"]);
    // A data file of the model is an input, whatever its extension.
    let over = ["w", "-o", &files.path("full.npy")];
    files.run("cat", "full.onnx", &over).fails_with(&["full.npy", "is an input"]);
    assert_eq!(files.read("full.npy"), floats(&[1.0, 2.0, 3.0, 4.0]));
}

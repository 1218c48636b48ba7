//! `sardonyx set`.

use crate::support::{Files, digits_model, sardonyx, sardonyx_bytes, with_external_data};

fn digits_copy() -> Files {
    Files::new(&[("d.onnx", std::fs::read(digits_model()).unwrap())])
}

#[test]
fn everything_can_be_set() {
    let files = digits_copy();
    std::fs::write(files.path("doc.txt"), "two\nlines").unwrap();
    let doc = format!("@{}", files.path("doc.txt"));
    let args = [
        "--in-place",
        "--json",
        "--opset",
        "22",
        "--opset",
        "com.example=1.2.3",
        "--ir-version",
        "11",
        "--producer",
        "me",
        "--producer-version",
        "2",
        "--domain",
        "org.example",
        "--model-version",
        "1.2.3",
        "--doc",
        &doc,
        "--metadata",
        "author=a=b",
        "--metadata",
        "empty=",
        "--remove-metadata",
        "labels",
    ];
    let answer = files.run("set", "d.onnx", &args);
    let json = answer.json("sardonyx.set/1", &["model", "changes", "saved"]);
    let changes = json["changes"].as_array().unwrap();
    let what: Vec<&str> = changes.iter().map(|change| change["what"].as_str().unwrap()).collect();
    let expected = [
        "opset ai.onnx",
        "opset com.example",
        "ir_version",
        "producer_name",
        "producer_version",
        "domain",
        "model_version",
        "doc",
        "metadata labels",
        "metadata author",
        "metadata empty",
    ];
    assert_eq!(what, expected);
    assert_eq!((&changes[0]["before"], &changes[0]["after"]), (&"21".into(), &"22".into()));
    assert!(changes[1]["before"].is_null() && changes[8]["after"].is_null());
    let info = files.run("info", "d.onnx", &["--json"]).good();
    let info: serde_json::Value = serde_json::from_str(&info).unwrap();
    assert_eq!(info["ir_version"], 11);
    assert_eq!(info["opsets"][1]["domain"], "com.example");
    assert_eq!(info["producer_name"], "me");
    assert_eq!(info["model_version_text"], "1.2.3");
    assert_eq!(info["doc"], "two\nlines");
    let metadata = info["metadata"].as_array().unwrap();
    assert!(metadata.iter().any(|entry| entry["key"] == "author" && entry["value"] == "a=b"));
    assert!(metadata.iter().all(|entry| entry["key"] != "labels"));
}

#[test]
fn changes_are_told_and_only_changes() {
    let files = digits_copy();
    let out = files.path("o.onnx");
    let args = ["-o", &out, "--producer", "me", "--opset", "21", "--remove-metadata", "label"];
    let answer = files.run("set", "d.onnx", &args);
    for words in ["producer_name: sardonyx digits → me", "did you mean 'labels'?", "wrote"] {
        assert!(answer.stderr.contains(words), "lacks {words}: {}", answer.stderr);
    }
    assert!(!answer.stderr.contains("opset"), "{}", answer.stderr);
    answer.good();
    assert!(files.read("d.onnx") == std::fs::read(digits_model()).unwrap());
    let args = ["set", "-", "-o", "-", "--producer", "me"];
    let piped = sardonyx_bytes(&args, Some(&digits_model()));
    assert!(piped == files.read("o.onnx"));
}

#[test]
fn what_cannot_be_set_is_refused() {
    let files = digits_copy();
    std::fs::write(files.path("m.onnx"), with_external_data("absent.bin")).unwrap();
    std::fs::write(files.path("broken.onnx"), b"\x08\x0a\x3a\xff").unwrap();
    std::fs::write(files.path("latin.txt"), b"\xe4").unwrap();
    let before = files.content();
    let latin = format!("@{}", files.path("latin.txt"));
    let refused = |model: &str, args: &[&str], words: &[&str]| {
        files.run("set", model, args).refused(words);
    };
    refused("d.onnx", &["--in-place"], &["nothing to set"]);
    refused(
        "d.onnx",
        &["--in-place", "--ir-version", "3"],
        &["IR version 3", "initializers", "d.onnx"],
    );
    refused("d.onnx", &["--in-place", "--ir-version", "99"], &["IR version 99 does not exist"]);
    refused("d.onnx", &["--in-place", "--doc", "@absent.txt"], &["absent.txt"]);
    refused("d.onnx", &["--in-place", "--doc", &latin], &["UTF-8", "latin.txt"]);
    refused("broken.onnx", &["--in-place", "--domain", "x"], &["broken.onnx"]);
    let to = |name: &str| files.path(name);
    refused("d.onnx", &["-o", &to("d.onnx"), "--domain", "x"], &["--in-place"]);
    refused("d.onnx", &["-o", &to("none/x.onnx"), "--domain", "x"], &["no such directory"]);
    assert!(files.content() == before);
    for usage in [
        &["--opset", "0"][..],
        &["--opset", "x"],
        &["--metadata", "novalue"],
        &["--metadata", "=value"],
        &["--model-version", "1.2"],
        &["--ir-version", "new"],
    ] {
        let answer = files.run("set", "d.onnx", &[&["--in-place"], usage].concat());
        assert_eq!(answer.code, Some(2), "{usage:?}");
    }
    // Data files are not needed for this.
    files.run("set", "m.onnx", &["--in-place", "--domain", "x"]).good();
    let info = sardonyx(&["info", &to("m.onnx")]).good();
    assert!(info.contains("absent.bin: 1 tensor, 16 bytes; the file is missing"), "{info}");
}

/// Exporters of scikit-learn models import `ai.onnx` twice.
#[test]
fn duplicate_imports_are_merged() {
    let text = "<ir_version: 8, opset_import: [\"\": 20, \"ai.onnx.ml\": 1, \"\": 21]>
        g (float[1] x) => (float[1] y) { y = Neg (x) }";
    let files = Files::new(&[("m.onnxtxt", text.into())]);
    for command in ["set", "convert"] {
        let out = files.path("out.onnx");
        let answer = files.run(command, "m.onnxtxt", &["--opset", "21", "-o", &out]);
        assert!(answer.stderr.contains("removed 1 duplicate import"), "{}", answer.stderr);
        answer.good();
        sardonyx(&["check", "--deny", "warnings", &out]).good();
    }
}

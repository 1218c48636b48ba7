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
        "com.example=3",
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
    let json = answer.json("sardonyx.set/1", &["model", "changes", "checked", "saved"]);
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
fn only_changes_are_reported() {
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
fn invalid_values_are_refused() {
    let files = digits_copy();
    std::fs::write(files.path("m.onnx"), with_external_data("absent.bin")).unwrap();
    std::fs::write(files.path("broken.onnx"), b"\x08\x0a\x3a\xff").unwrap();
    std::fs::write(files.path("latin.txt"), b"\xe4").unwrap();
    let before = files.content();
    let latin = format!("@{}", files.path("latin.txt"));
    let refused = |model: &str, args: &[&str], words: &[&str]| {
        files.run("set", model, args).fails_with(words);
    };
    refused("d.onnx", &["--in-place"], &["no option changes the header"]);
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
    // The header is changed without reading the data files, which are missing here.
    files.run("set", "m.onnx", &["--in-place", "--domain", "x"]).good();
    let info = sardonyx(&["info", &to("m.onnx")]).good();
    assert!(info.contains("absent.bin: 1 tensor, 16 bytes; the file is missing"), "{info}");
}

/// Checks that duplicate imports of an operator set, which exporters of scikit-learn models write,
/// are merged.
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

/// Commands that change a model, with their arguments and the file that they change.
const CHANGES: &[(&str, &[&str], &str)] = &[
    ("convert", &["--opset", "22"], "m.onnxtxt"),
    ("inline", &[], "f.onnxtxt"),
    ("infer", &[], "m.onnxtxt"),
    ("differentiate", &[], "m.onnxtxt"),
    ("add-training", &["--loss", "squared-error"], "m.onnxtxt"),
    ("shard", &["--devices", "2"], "m.onnxtxt"),
];

/// Commands that write a model without changing any field of it.
const SAME: &[(&str, &[&str], &str)] = &[
    ("parse", &[], "m.onnxtxt"),
    ("save", &[], "m.onnxtxt"),
    ("convert", &["--opset", "21"], "m.onnxtxt"),
    ("inline", &[], "m.onnxtxt"),
    ("strip", &["--docs"], "m.onnxtxt"),
    ("set", &["--model-version", "7"], "m.onnxtxt"),
    ("externalize", &["--threshold", "0"], "m.onnxtxt"),
    ("pack", &[], "m.onnxtxt"),
];

#[test]
fn changed_models_have_a_producer() {
    // MODEL-06+: a model that a command changed has a producer: its own, or Sardonyx. MODEL-06-: an
    // unchanged model without a producer stays so, and `check` notes it.
    let graph = "g (float[2, 4] x) => (float[2, 4] y) <float[4, 4] w = {1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 2, 3, 4, 5, 6, 7}> { y = MatMul (x, w) }";
    let function = "g (float[2, 4] x) => (float[2, 4] y) { y = local.f (x) }
        <domain: \"local\", opset_import: [\"\": 21]> f (a) => (b) { b = Abs (a) }";
    for (producer, expected) in
        [("", ("Sardonyx", env!("CARGO_PKG_VERSION"))), (", producer_name: \"me\"", ("me", ""))]
    {
        let model = format!("<ir_version: 10, opset_import: [\"\": 21]{producer}> {graph}");
        let called = format!(
            "<ir_version: 10, opset_import: [\"\": 21, \"local\": 1]{producer}> {function}"
        );
        for (all, changes) in [(CHANGES, true), (SAME, false)] {
            for (command, args, file) in all {
                let files = Files::new(&[
                    ("m.onnxtxt", model.clone().into()),
                    ("f.onnxtxt", called.clone().into()),
                ]);
                let written = files.path("out.onnx");
                files.run(command, file, &[args, &["-o", &written][..]].concat()).good();
                let info = sardonyx(&["info", &written, "--json"]).good();
                let info: serde_json::Value = serde_json::from_str(&info).unwrap();
                let found = (
                    info["producer_name"].as_str().unwrap_or(""),
                    info["producer_version"].as_str().unwrap_or(""),
                );
                let kept = if producer.is_empty() && !changes { ("", "") } else { expected };
                assert_eq!(found, kept, "{command} {producer}");
                let notes = sardonyx(&["check", &written, "--notes"]).stdout;
                assert_eq!(notes.contains("no-producer"), found == ("", ""), "{command}: {notes}");
            }
        }
    }
}

#[test]
fn versions_change_what_depends_on_them() {
    // GRAPH-20+, VER-24+, VER-23: a higher IR version removes inputs that only older ones allow.
    let text = "<ir_version: 3, opset_import: [\"\": 8]>
        g (int64 n, bool c, float[2] x) => (float[2] y) {
          y = Loop (n, c, x) <body = s (int64 i, bool go, float[2] a, float[2] w) => (bool go2, float[2] b)
            <float[2] w = {1, 2}> { go2 = Identity (go) b = Add (a, w) }>
        }";
    let plain = "<ir_version: 3, opset_import: [\"\": 8]>
        g (float[2] x, float[2] w) => (float[2] y) <float[2] w = raw {1, 2}> { y = Add (x, w) }";
    let tanh = "<ir_version: 3, opset_import: [\"\": 8]>
        g (float[2, 2] x, float[2, 2] w) => (float[2, 2] y) <float[2, 2] w = {1, 2, 3, 4}> { a = Mul (x, w) y = Tanh (a) }";
    let texts = [("m.onnxtxt", text), ("p.onnxtxt", plain), ("t.onnxtxt", tanh)];
    let files = Files::new(&texts.map(|(name, text)| (name, text.into())));
    for (command, args, file, version) in [
        ("set", &["--ir-version", "10"][..], "m.onnxtxt", 10),
        ("convert", &["--opset", "13"], "m.onnxtxt", 7),
        // Added constants are not inputs, which IR version 4 allows; `w` is still an input.
        ("differentiate", &[], "t.onnxtxt", 4),
        ("externalize", &["--threshold", "0"], "p.onnxtxt", 4),
        ("externalize", &["--threshold", "1M"], "p.onnxtxt", 3),
    ] {
        let written = files.path("out.onnx");
        files.run(command, file, &[args, &["-o", &written, "--replace"]].concat()).good();
        let info = sardonyx(&["info", &written, "--json"]).good();
        let info: serde_json::Value = serde_json::from_str(&info).unwrap();
        assert_eq!(info["ir_version"], version, "{command}");
        let inputs = info["inputs"].as_array().unwrap().len();
        assert_eq!(inputs, if file == "m.onnxtxt" { 3 } else { 2 }, "{command}");
        let checked = sardonyx(&["check", &written, "--full"]);
        assert!(!checked.good().contains("ir-version-too-old"), "{command}");
    }
}

#[test]
fn edits_that_break_rules_are_not_written() {
    let text = "<ir_version: 8, opset_import: [\"\": 17]>
        g (float[2, 3] x) => (float[2, 1] y) { y = ReduceMax <axes = [1]> (x) }";
    let files = Files::new(&[("m.onnxtxt", text.into())]);
    let out = files.path("out.onnx");
    let set = |more: &[&str]| files.run("set", "m.onnxtxt", &[more, &["-o", &out][..]].concat());
    let found = set(&["--opset", "18"]).finds();
    for words in [
        "error[unknown-attribute]",
        "result of set: attribute 'axes' of ReduceMax node that makes 'y'",
        "from: ReduceMax node that makes 'y' of the input, operator ReduceMax",
        "set made a model with 1 error that",
        "nothing was written; --keep-invalid",
    ] {
        assert!(found.contains(words), "{words}\n{found}");
    }
    assert!(!std::path::Path::new(&out).exists());
    let answer = set(&["--opset", "18", "--json"]);
    assert_eq!(answer.code, Some(1));
    let json: serde_json::Value = serde_json::from_str(&answer.stdout).unwrap();
    let error = &json["invalid"]["errors"][0];
    assert_eq!(
        (&json["invalid"]["job"], &error["code"]),
        (&"set".into(), &"unknown-attribute".into())
    );
    assert_eq!(error["origin"]["operator"], "ReduceMax");
    assert!(json["saved"].is_null());
    let kept = set(&["--opset", "18", "--keep-invalid"]);
    assert_eq!(kept.code, Some(1), "{}", kept.stderr);
    assert!(kept.stdout.contains("the invalid model was written"), "{}", kept.stdout);
    let written = sardonyx(&["check", &out]);
    assert!(written.stdout.contains("unknown-attribute"), "{}", written.stdout);
    // An error that the model had before does not prevent other changes, and only the rules that
    // these can break are checked.
    std::fs::remove_file(&out).unwrap();
    let wrong = text.replace("axes", "axis");
    std::fs::write(files.path("m.onnxtxt"), wrong).unwrap();
    set(&["--opset", "16"]).good();
    let answer = set(&["--ir-version", "9", "--json", "--metadata", "a=b"]).good();
    let json: serde_json::Value = serde_json::from_str(&answer).unwrap();
    let rules = json["checked"]["rules"].as_array().unwrap();
    assert!(rules.contains(&"initializer-not-input".into()), "{answer}");
    assert!(rules.contains(&"duplicate-metadata".into()), "{answer}");
    assert_eq!(json["checked"]["everything"], false);
}

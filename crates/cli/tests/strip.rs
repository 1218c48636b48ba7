//! `sardonyx strip`.

use crate::support::{
    Files, digits, digits_model, field, floats, many_tensors, model, sardonyx, sardonyx_bytes,
    tensor,
};

#[test]
fn removed_parts_are_reported() {
    let files = Files::new(&[("d.onnx", std::fs::read(digits_model()).unwrap())]);
    let out = files.path("o.onnx");
    let answer = files.run("strip", "d.onnx", &["--all", "-o", &out]);
    for words in ["texts of documentation", "10 names", "4 entries of metadata", "wrote"] {
        assert!(answer.stderr.contains(words), "lacks {words}: {}", answer.stderr);
    }
    answer.good();
    assert!(files.read("o.onnx").len() < files.read("d.onnx").len());
    let seven = digits().join("seven.png").to_str().unwrap().to_string();
    let run = |model: &str| sardonyx(&["run", model, &seven, "--top", "1"]).good();
    let probability = |text: &str| text.split_whitespace().last().unwrap().to_string();
    assert_eq!(probability(&run(&out)), probability(&run(&digits_model())));
    let again = files.run("strip", "o.onnx", &["--all", "--in-place"]);
    assert!(again.stderr.contains("nothing to remove"), "{}", again.stderr);
    again.good();
    let args = ["strip", "-", "-o", "-", "--all"];
    assert!(sardonyx_bytes(&args, Some(&digits_model())) == files.read("o.onnx"));
}

#[test]
fn only_requested_parts_are_removed() {
    let unused = tensor("unused", 1, &[1], field(9, &floats(&[1.0])));
    let files =
        Files::new(&[("unused.onnx", model(&[unused], &[])), ("many.onnx", many_tensors())]);
    let out = files.path("o.onnx");
    let strip = |model: &str, option: &str| {
        let answer = files.run("strip", model, &[option, "-o", &out, "--json"]);
        let json = answer.json("sardonyx.strip/1", &["model", "stripped", "checked", "saved"]);
        json["stripped"].clone()
    };
    let stripped = strip("unused.onnx", "--unused");
    assert_eq!(stripped["unused"], 1);
    let keys: Vec<&String> = stripped.as_object().unwrap().keys().collect();
    assert_eq!(keys, ["docs", "names", "metadata", "unused", "training", "types"]);
    assert_eq!(sardonyx(&["ls", &out]).good(), "no tensors\n");
    for option in ["--docs", "--names", "--metadata", "--training", "--types"] {
        strip("unused.onnx", option);
        assert!(files.read("o.onnx") == files.read("unused.onnx"), "{option}");
    }
}

#[test]
fn nothing_is_lost_when_it_is_refused() {
    let files = Files::new(&[
        ("d.onnx", std::fs::read(digits_model()).unwrap()),
        ("broken.onnx", b"\x08\x0a\x3a\xff".to_vec()),
    ]);
    let before = files.content();
    let to = |name: &str| files.path(name);
    let refused = |model: &str, args: &[&str], words: &[&str]| {
        files.run("strip", model, args).fails_with(words);
    };
    refused("d.onnx", &["--in-place"], &["nothing to remove", "--docs"]);
    refused("d.onnx", &["--all", "-o", &to("d.onnx")], &["--in-place"]);
    refused("d.onnx", &["--all", "-o", &to("none/x.onnx")], &["no such directory"]);
    refused("broken.onnx", &["--all", "--in-place"], &["broken.onnx"]);
    assert!(files.content() == before);
    let both = files.run("strip", "d.onnx", &["--all", "--docs", "--in-place"]);
    assert_eq!(both.code, Some(2));
}

/// Checks that --training with --unused also removes values that only the training read.
#[test]
fn values_of_removed_training_are_unused() {
    let text = r#"<notation: "full", ir_version: 10, opset_import: ["": 21]>
        g (float[2] x) => (float[2] y) <float[2] w = {1, 2}, float[2] extra = {3, 4}> {
            y = Mul (x, w)
        }
        @<training_info: [{
            algorithm: s () => (float[2] w1) { w1 = Add (w, extra) },
            update_binding: ["w": "w1"]
        }]>"#;
    let files = Files::new(&[("m.onnxtxt", text.into())]);
    let out = files.path("o.onnx");
    for (options, words, stays) in [
        (&["--unused"][..], "nothing to remove", true),
        (&["--training", "--unused"], "removed 1 unused initializer, 1 training step", false),
    ] {
        let answer = files.run("strip", "m.onnxtxt", &[options, &["-o", &out]].concat());
        assert!(answer.stderr.contains(words), "{}", answer.stderr);
        answer.good();
        let text = sardonyx(&["print", &out]).good();
        assert_eq!(text.contains("extra"), stays, "{text}");
    }
}

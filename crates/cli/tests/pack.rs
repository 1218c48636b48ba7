//! `sardonyx pack`.

use crate::support::{
    Files, digits_model, floats, sardonyx, sardonyx_bytes, sardonyx_with_stdin, with_external_data,
};

const KEYS: &[&str] = &["model", "moved", "saved"];

/// Creates a model with four floats in the data file `weights.bin`.
fn external_model() -> Files {
    Files::new(&[
        ("model.onnx", with_external_data("weights.bin")),
        ("weights.bin", floats(&[1.0, 2.0, 3.0, 4.0])),
    ])
}

#[test]
fn values_are_copied_into_the_model() {
    let files = external_model();
    let out = files.path("packed.onnx");
    let answer = files.run("pack", "model.onnx", &["-o", &out]);
    for words in ["wrote", "packed.onnx", "copied 1 tensor, 16 bytes, from data files"] {
        assert!(answer.stderr.contains(words), "{}", answer.stderr);
    }
    assert_eq!(answer.good(), "");
    let listed = files.run("ls", "packed.onnx", &["--stats"]).good();
    assert!(listed.contains("raw") && listed.contains("2.5"), "{listed}");
    assert_eq!(files.names(), ["model.onnx", "packed.onnx", "weights.bin"]);
    let to_stdout = sardonyx_bytes(&["pack", &files.path("model.onnx"), "-o", "-"], None);
    assert!(to_stdout == files.read("packed.onnx"));
    // Packing again changes nothing.
    let again = files.run("pack", "packed.onnx", &["--in-place"]);
    assert!(again.stderr.contains("already in the model"), "{}", again.stderr);
    assert!(to_stdout == files.read("packed.onnx"));
    let piped = sardonyx_bytes(&["pack", "-", "-o", "-"], Some(&digits_model()));
    assert!(piped == std::fs::read(digits_model()).unwrap());
}

#[test]
fn in_place_removes_the_data_files() {
    let files = external_model();
    let answer = files.run("pack", "model.onnx", &["--in-place", "--sync", "--json"]);
    let json = answer.json("sardonyx.pack/1", KEYS);
    assert_eq!(json["moved"]["tensors"], 1);
    assert_eq!(json["saved"]["removed"][0], "weights.bin");
    assert_eq!(json["saved"]["exceeds_2_gib"], false);
    let keys: Vec<&String> = json["saved"].as_object().unwrap().keys().collect();
    let expected =
        ["output", "bytes", "exceeds_2_gib", "files", "removed", "shared", "left", "left_out"];
    assert_eq!(keys, expected);
    assert_eq!(files.names(), ["model.onnx"]);
    // A data file that another model uses stays.
    let files = external_model();
    std::fs::copy(files.path("model.onnx"), files.path("other.onnx")).unwrap();
    let answer = files.run("pack", "model.onnx", &["--in-place"]);
    assert!(answer.stderr.contains("kept weights.bin"), "{}", answer.stderr);
    answer.good();
    assert_eq!(files.names(), ["model.onnx", "other.onnx", "weights.bin"]);
}

#[test]
fn nothing_is_lost_when_it_is_refused() {
    let files = external_model();
    std::fs::write(files.path("broken.onnx"), b"\x08\x0a\x3a\xff").unwrap();
    std::fs::write(files.path("lost.onnx"), with_external_data("absent.bin")).unwrap();
    let before = files.content();
    let refused = |model: &str, args: &[&str], words: &[&str]| {
        files.run("pack", model, args).fails_with(words);
    };
    let to = |name: &str| files.path(name);
    refused("model.onnx", &["-o", &to("model.onnx")], &["is also the input file", "--in-place"]);
    refused("model.onnx", &["-o", &to("weights.bin")], &["weights.bin", "is an input"]);
    refused("model.onnx", &["-o", &to("")], &["directory"]);
    refused("model.onnx", &["-o", &to("none/x.onnx")], &["none/x.onnx", "no such directory"]);
    refused("model.onnx", &["-o", &to("weights.bin/x.onnx")], &["x.onnx"]);
    refused("model.onnx", &["-o", "-", "--json"], &["--json", "stdout"]);
    refused("broken.onnx", &["--in-place"], &["broken.onnx", "byte"]);
    let words = ["'w'", "absent.bin", "missing", "lost.onnx"];
    refused("lost.onnx", &["-o", &to("x.onnx")], &words);
    refused("lost.onnx", &["--in-place"], &words);
    let path = to("x.onnx");
    let args = ["pack", "-", "-o", &path];
    sardonyx_with_stdin(&args, files.path("model.onnx").as_ref())
        .fails_with(&["standard input", "directory of its data files"]);
    let args = ["pack", "-", "--in-place"];
    sardonyx_with_stdin(&args, files.path("model.onnx").as_ref())
        .fails_with(&["stdin", "--output"]);
    assert!(files.content() == before);
    assert_eq!(files.run("pack", "model.onnx", &[]).code, Some(2));
    let both = ["--in-place", "-o", &to("x.onnx")];
    assert_eq!(files.run("pack", "model.onnx", &both).code, Some(2));
    assert!(sardonyx(&["pack", "--help"]).good().contains("--in-place"));
}

/// Checks EXT-23+ and WIRE-31-: a model above 2^31 - 1 bytes is written, with a note that other
/// programs cannot read it.
#[test]
fn a_large_model_is_written_with_a_note() {
    const ELEMENTS: u64 = 1 << 29;
    let text = format!(
        "<notation: \"full\", ir_version: 10, opset_import: [\"\": 21]>
         g () => (float[{ELEMENTS}] w) <float[{ELEMENTS}] w = [\"location\": \"w.bin\"]> {{}}"
    );
    let files = Files::new(&[("m.onnxtxt", text.into_bytes()), ("w.bin", Vec::new())]);
    let data = std::fs::OpenOptions::new().write(true).open(files.path("w.bin")).unwrap();
    // Some file systems do not support sparse files.
    if data.set_len(ELEMENTS * 4).is_err() {
        return;
    }
    // Output to the null device needs no disk space.
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_sardonyx"))
        .args(["pack", &files.path("m.onnxtxt"), "-o", "-"])
        .stdout(std::process::Stdio::null())
        .output()
        .unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{said}");
    assert!(said.contains("2 GiB") && said.contains("libprotobuf"), "{said}");
    assert!(said.contains("externalize"), "{said}");
    let small = external_model();
    let small = small.run("pack", "model.onnx", &["-o", &small.path("packed.onnx")]);
    assert!(!small.stderr.contains("GiB"), "{}", small.stderr);
}

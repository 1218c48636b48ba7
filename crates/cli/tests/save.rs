//! `sardonyx save`.

use crate::support::{
    Answer, Files, digits_model, floats, npy, sardonyx, sardonyx_bytes, with_external_data,
};

fn pair() -> Files {
    let array = |values: &[f32]| npy("<f4", "(2,)", &floats(values));
    let files = Files::new(&[("a.npy", array(&[1.0, 2.0])), ("b.npy", array(&[3.0, 4.0]))]);
    let mut archive = zip::ZipWriter::new(std::fs::File::create(files.path("ab.npz")).unwrap());
    for name in ["a.npy", "b.npy"] {
        let options = zip::write::SimpleFileOptions::default();
        archive.start_file(name, options).unwrap();
        std::io::Write::write_all(&mut archive, &files.read(name)).unwrap();
    }
    archive.finish().unwrap();
    files
}

fn convert(files: &Files, input: &str, output: &str, more: &[&str]) -> Answer {
    let (input, output) = (files.path(input), files.path(output));
    sardonyx(&[&["save", &input, "-o", &output], more].concat())
}

#[test]
fn values_are_converted_between_formats() {
    let files = pair();
    let answer = convert(&files, "a.npy", "a.pb", &[]);
    assert!(
        answer.stderr.contains("a.pb") && answer.stderr.contains("1 value"),
        "{}",
        answer.stderr
    );
    assert_eq!(answer.good(), "");
    convert(&files, "a.pb", "back.npy", &[]).good();
    assert_eq!(files.read("back.npy"), files.read("a.npy"));
    convert(&files, "ab.npz", "again.npz", &[]).good();
    convert(&files, "again.npz", "ab.safetensors", &["--strict"]).good();
    convert(&files, "ab.safetensors", "again.npz", &["--strict"]).good();
    let info = convert(&files, "again.npz", "x.safetensors", &["--json"]);
    let info = info.json("sardonyx.save/1", &["input", "values", "saved"]);
    assert_eq!(info["values"][0]["name"], "a");
    assert_eq!(files.read("x.safetensors"), files.read("ab.safetensors"));
    convert(&files, "a.npy", "a.csv", &[]).good();
    assert_eq!(files.read("a.csv"), b"1.0,2.0\n");
    let named = convert(&files, "a.npy", "x.pb", &["--name", "input"]);
    named.good();
    let bytes = files.read("x.pb");
    assert!(bytes.windows(7).any(|bytes| bytes == b"\x42\x05input"));
    // Element types that NumPy lacks are bare bytes in .npy files.
    std::fs::write(files.path("half.npy"), npy("|V2", "(1,)", &[0x80, 0x3f])).unwrap();
    convert(&files, "half.npy", "half.csv", &[]).fails_with(&["half.npy"]);
    convert(&files, "half.npy", "half.csv", &["--type", "bfloat16"]).good();
    assert_eq!(files.read("half.csv"), b"1.0\n");
    let input = files.path("a.npy");
    let args = ["save", "-", "--from", "npy", "-o", "-", "--form", "txt"];
    assert_eq!(sardonyx_bytes(&args, Some(&input)), b"1.0 2.0\n");
    let args = ["save", &input, "-o", "-", "--form", "npz"];
    assert!(sardonyx_bytes(&args, None).starts_with(b"PK"));
}

#[test]
fn sequences_maps_and_optionals() {
    let files = pair();
    for (ty, input, words) in [
        ("seq(tensor(float))", "ab.npz", "sequence"),
        ("map(string,tensor(float))", "ab.npz", "map"),
        ("optional(tensor(float))", "a.npy", "optional"),
    ] {
        let ty = ["--type", ty, "--name", "value"];
        convert(&files, input, "value.pb", &ty).good();
        convert(&files, "value.pb", "copy.pb", &ty).good();
        assert_eq!(files.read("copy.pb"), files.read("value.pb"));
        let answer = convert(&files, "value.pb", "value.npz", &ty);
        assert!(answer.stderr.contains("'value'"), "{}", answer.stderr);
        assert!(answer.stderr.contains(words), "{}", answer.stderr);
        answer.good();
        let strict = convert(&files, "value.pb", "value.npz", &[&ty[..], &["--strict"]].concat());
        assert_eq!(strict.code, Some(1));
    }
    let answer = convert(&files, "ab.npz", "m.pb", &["--type", "map(string,float)", "--json"]);
    let json = answer.json("sardonyx.save/1", &["input", "values", "saved"]);
    assert_eq!(json["values"][1]["name"], "b");
    assert_eq!(json["values"][1]["type"], "tensor(float)");
}

#[test]
fn texts_in_safetensors_stay_where_they_can() {
    let header = br#"{"__metadata__":{"format":"pt"},"x":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}}     "#;
    let header = &header[..header.len() / 8 * 8];
    let bytes = [&(header.len() as u64).to_le_bytes()[..], header, &[1, 2]].concat();
    let files = Files::new(&[("x.safetensors", bytes)]);
    convert(&files, "x.safetensors", "y.safetensors", &["--strict"]).good();
    let text = String::from_utf8_lossy(&files.read("y.safetensors")).into_owned();
    assert!(text.contains(r#""format":"pt""#), "{text}");
    let answer = convert(&files, "x.safetensors", "x.npy", &["--strict"]);
    assert!(answer.stderr.contains("omitted: 1 text of metadata"), "{}", answer.stderr);
    answer.finds();
    let cut = files.read("x.safetensors");
    std::fs::write(files.path("cut.safetensors"), &cut[..cut.len() - 1]).unwrap();
    convert(&files, "cut.safetensors", "x.npz", &[]).fails_with(&["cut.safetensors", "truncated"]);
}

#[test]
fn conversion_does_not_change_models() {
    let files = Files::new(&[("d.onnx", std::fs::read(digits_model()).unwrap())]);
    convert(&files, "d.onnx", "copy.pb", &[]).good();
    assert!(files.read("copy.pb") == files.read("d.onnx"));
    let args = ["save", "-", "--from", "onnx", "-o", "-", "--form", "onnx"];
    let piped = sardonyx_bytes(&args, Some(&digits_model()));
    assert!(piped == files.read("d.onnx"));
    let answer = convert(&files, "d.onnx", "again.onnx", &["--json"]);
    let json = answer.json("sardonyx.save/1", &["input", "saved"]);
    assert_eq!(json["saved"]["bytes"], files.read("d.onnx").len());
}

#[test]
fn models_as_text_and_back() {
    let files = Files::new(&[("d.onnx", std::fs::read(digits_model()).unwrap())]);
    for text in ["d.json", "d.textproto"] {
        convert(&files, "d.onnx", text, &["--strict"]).good();
        convert(&files, text, "back.onnx", &[]).good();
        assert!(files.read("back.onnx") == files.read("d.onnx"), "{text}");
        let text = files.path(text);
        let args = ["save", &digits_model(), "-o", "-", "--form"];
        let form = text.rsplit('.').next().unwrap();
        let piped = sardonyx_bytes(&[&args[..], &[form]].concat(), None);
        assert!(piped == std::fs::read(&text).unwrap());
    }
}

#[test]
fn impossible_conversions_are_refused() {
    let files = pair();
    let write = |name: &str, bytes: Vec<u8>| std::fs::write(files.path(name), bytes).unwrap();
    write("d.onnx", std::fs::read(digits_model()).unwrap());
    write("m.onnx", with_external_data("absent.bin"));
    write("broken.npy", b"\x93NUMPY".to_vec());
    write("broken.onnx", b"\x08\x0a\x3a\xff".to_vec());
    let before = files.content();
    let refused = |input: &str, output: &str, more: &[&str], words: &[&str]| {
        convert(&files, input, output, more).fails_with(words);
    };
    refused("d.onnx", "x.npz", &[], &["cannot be written as .npz", "sardonyx cat"]);
    refused("ab.npz", "x.onnx", &[], &["holds values"]);
    refused("a.npy", "x.foo", &[], &["x.foo", "--form"]);
    refused("a.foo", "x.npy", &[], &["a.foo", "--from"]);
    refused("a.csv", "x.npy", &[], &["a.csv"]);
    refused("absent.npy", "x.pb", &[], &["absent.npy", "no such file"]);
    refused("a.npy", "a.npy", &[], &["is an input"]);
    refused("d.onnx", "d.onnx", &[], &["is an input"]);
    refused("ab.npz", "x.pb", &[], &["one value, not 2", "seq(tensor(float))"]);
    refused("ab.npz", "x.npy", &[], &["one tensor, not 2"]);
    refused("a.npy", "x.pb", &["--type", "int8"], &["tensor(float)", "tensor(int8)"]);
    refused("ab.npz", "x.pb", &["--type", "map(int64,float)"], &["'a' is not a key"]);
    refused("ab.npz", "x.pb", &["--type", "seq(int8)"], &["seq", "float"]);
    refused("broken.npy", "x.pb", &[], &["broken.npy"]);
    refused("broken.onnx", "x.json", &[], &["broken.onnx"]);
    refused("a.npy", "x.npy", &["--from", "pb"], &["--from", "NumPy"]);
    refused("a.npy", "none/x.pb", &[], &["none/x.pb"]);
    refused("a.npy", "a.npy/x.pb", &[], &["x.pb"]);
    refused("m.onnx", "none/x.onnx", &[], &["none/x.onnx"]);
    let input = files.path("m.onnx");
    let args = ["save", &input, "-o", "-", "--form", "json"];
    sardonyx(&args).fails_with(&["data files", "sardonyx pack"]);
    assert!(files.content() == before);
    let usage = convert(&files, "a.npy", "x.pb", &["--type", "list(float)"]);
    assert!(usage.code == Some(2) && usage.stderr.contains("seq(…)"), "{}", usage.stderr);
}

/// Checks that a note warns of an unknown file extension, with which the model is binary.
#[test]
fn an_unknown_extension_is_noted() {
    let files = Files::new(&[]);
    let model = digits_model();
    let noted = "selects no format: the model is written as binary ONNX";
    for (name, more, is_noted) in [
        ("out.txt", &[][..], true),
        ("out.txt", &["--form", "onnx"][..], false),
        ("out", &[][..], false),
        ("out.onnxjson", &[][..], false),
    ] {
        let out = files.path(name);
        let answer = sardonyx(&[&["strip", &model, "--docs", "-o", &out], more].concat());
        assert_eq!(answer.stderr.contains(noted), is_noted, "{name}: {}", answer.stderr);
        answer.good();
    }
}

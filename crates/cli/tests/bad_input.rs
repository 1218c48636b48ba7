//! Bad input leads to an error of at most one screen and exit code 2, never to a panic.

use std::fs;
use std::panic::catch_unwind;
use std::path::Path;

use crate::support::{
    Files, add_node, chain, digits, digits_model, edited_digits, floats, model, npy, sardonyx,
    with_external_data,
};
use sardonyx::{ErrorKind, Model, Session, Tensor};

#[test]
fn files_that_are_not_models() {
    let png = fs::read(digits().join("one.png")).unwrap();
    let files = Files::new(&[
        ("empty.onnx", Vec::new()),
        ("image.onnx", png),
        ("text.onnx", b"Hello, this is text.\n".to_vec()),
        (
            "lfs.onnx",
            b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n".to_vec(),
        ),
        ("zeros.onnx", vec![0; 1000]),
        ("headless.onnx", b"\x08\x0a".to_vec()),
    ]);
    for command in ["info", "run", "bench"] {
        files.run(command, "empty.onnx", &[]).fails_with(&["empty"]);
        files.run(command, "image.onnx", &[]).fails_with(&["PNG image"]);
        files.run(command, "text.onnx", &[]).fails_with(&["plain text"]);
        files.run(command, "lfs.onnx", &[]).fails_with(&["Git LFS", "git lfs pull"]);
        files.run(command, "zeros.onnx", &[]).fails_with(&["not an ONNX model"]);
        files.run(command, "headless.onnx", &[]).fails_with(&["no graph"]);
        files.run(command, "missing.onnx", &[]).fails_with(&["missing.onnx", "no such file"]);
        sardonyx(&[command, digits().to_str().unwrap()]).fails_with(&["directory", "digits.onnx"]);
    }
}

#[test]
fn files_that_grow_in_memory() {
    let bomb = [model(&[], &[]), b"\xca\x01\x00".repeat(100_000)].concat();
    let files = Files::new(&[("functions.onnx", bomb)]);
    let rows: [(&str, &[&str]); 3] =
        [("info", &[]), ("hash", &[]), ("save", &["-o", "-", "--form", "json"])];
    for (command, more) in rows {
        files.run(command, "functions.onnx", more).fails_with(&[
            "MiB of memory",
            "functions[",
            "--max-structure",
        ]);
    }
    files.run("info", "functions.onnx", &["--max-structure", "1G"]).good();
}

#[test]
fn inputs_of_wrong_type_or_shape() {
    let files = Files::new(&[
        ("relu.onnx", chain(&["Relu"], &[2])),
        ("good.npy", npy("<f4", "(2,)", &floats(&[1.0, 2.0]))),
        ("double.npy", npy("<f8", "(2,)", &[0; 16])),
        ("long.npy", npy("<f4", "(3,)", &[0; 12])),
        ("deep.npy", npy("<f4", "(1, 2)", &[0; 8])),
        ("cut.npy", npy("<f4", "(2,)", &[0; 7])),
        ("huge.npy", npy("<f4", "(1000000000000,)", &[0; 8])),
        ("broken.npz", b"PK\x03\x04 and nothing".to_vec()),
        ("broken.pb", b"\x0a\xff\xff\xff\xff\x0f".to_vec()),
        ("notes.txt", b"1 2".to_vec()),
    ]);
    let run = |args: &[&str]| {
        let args: Vec<String> = args
            .iter()
            .map(|arg| match arg.split_once('=') {
                Some((name, file)) => format!("{name}={}", files.path(file)),
                None => files.path(arg),
            })
            .collect();
        files.run("run", "relu.onnx", &args.iter().map(String::as_str).collect::<Vec<_>>())
    };
    run(&["good.npy"]).good();
    run(&[]).fails_with(&["'x' is missing", "x: float[2]", "--random"]);
    run(&["X=good.npy"]).fails_with(&["no input 'X'", "did you mean 'x'?"]);
    run(&["input=good.npy"]).fails_with(&["no input 'input'", "x: float[2]"]);
    run(&["good.npy", "good.npy"]).fails_with(&["all inputs of the model have a value already"]);
    run(&["x=good.npy", "x=good.npy"]).fails_with(&["given twice"]);
    run(&["double.npy"]).fails_with(&["has element type float", "double", "--cast", "float32"]);
    run(&["long.npy"]).fails_with(&["[3]", "float[2]"]);
    run(&["deep.npy"]).fails_with(&["2 dimensions", "float[2]"]);
    run(&["cut.npy"]).fails_with(&["cut.npy", "need 8"]);
    run(&["huge.npy"]).fails_with(&["huge.npy"]);
    run(&["broken.npz"]).fails_with(&["broken.npz", "npz"]);
    run(&["broken.pb"]).fails_with(&["broken.pb"]);
    run(&["notes.txt"]).fails_with(&["notes.txt", ".npy"]);
    run(&["absent.npy"]).fails_with(&["absent.npy", "no such file"]);
    sardonyx(&["run", &files.path("relu.onnx"), "--random", "1", "--dim", "M=2"])
        .fails_with(&["no dimension 'M'"]);
    let out = files.path("out.png");
    let args = ["run", &files.path("relu.onnx"), &files.path("good.npy"), "-o", &out];
    sardonyx(&args).fails_with(&["outputs are not written as .png", "out.png/'"]);
    assert!(!Path::new(&out).exists());
    let out = format!("{out}/");
    let args = ["run", &files.path("relu.onnx"), &files.path("good.npy"), "-o", &out];
    sardonyx(&args).good();
    assert!(Path::new(&out).is_dir());
    for usage in [["--threads", "0"], ["--repeat", "0"], ["--top", "x"], ["--dim", "N"]] {
        assert_eq!(files.run("run", "relu.onnx", &usage).code, Some(2));
    }
}

#[test]
fn images_that_cannot_be_inputs() {
    let png = fs::read(digits().join("one.png")).unwrap();
    let files = Files::new(&[
        ("cut.png", png[..png.len() / 2].to_vec()),
        ("fake.png", b"no image at all".to_vec()),
        ("fake.jpg", b"\xff\xd8\xff\xe0 and nothing".to_vec()),
        ("empty.png", Vec::new()),
        ("one.gif", b"GIF89a".to_vec()),
        ("relu.onnx", chain(&["Relu"], &[1, 7, 8, 8])),
        ("five.onnx", chain(&["Relu"], &[1, 1, 1, 8, 8])),
    ]);
    for name in ["cut.png", "fake.png", "fake.jpg", "empty.png"] {
        sardonyx(&["run", &digits_model(), &files.path(name)])
            .fails_with(&[name, "cannot be decoded"]);
    }
    sardonyx(&["run", &digits_model(), &files.path("one.gif")]).fails_with(&["GIF", "PNG"]);
    let one = digits().join("one.png").to_str().unwrap().to_string();
    files.run("run", "relu.onnx", &[&one]).fails_with(&["cannot take an image", "channels"]);
    files.run("run", "five.onnx", &[&one]).fails_with(&["cannot take an image"]);
    sardonyx(&["run", &digits_model(), &one, "--mean", "1,2"])
        .fails_with(&["--mean", "1 channels"]);
    sardonyx(&["run", &digits_model(), &one, "--std", "0"]).fails_with(&["--std"]);
}

#[test]
fn data_files_that_are_missing() {
    let files = Files::new(&[
        ("model.onnx", with_external_data("weights.bin")),
        ("escape.onnx", with_external_data("../weights.bin")),
        ("short.onnx", with_external_data("short.bin")),
        ("short.bin", vec![0; 10]),
        ("full.onnx", with_external_data("full.bin")),
        ("full.bin", floats(&[1.0, 2.0, 3.0, 4.0])),
    ]);
    let random = ["--random", "1"];
    files.run("run", "model.onnx", &random).fails_with(&[
        "tensor 'w'",
        "'weights.bin'",
        "missing",
        &files.path("weights.bin"),
    ]);
    files.run("run", "escape.onnx", &random).fails_with(&["tensor 'w'", "..", "model's directory"]);
    files.run("run", "short.onnx", &random).fails_with(&["tensor 'w'", "short.bin", "10 bytes"]);
    files.run("run", "full.onnx", &random).good();
    // `info` does not open data files.
    assert!(
        files.run("info", "model.onnx", &[]).good().contains("weights.bin: 1 tensor, 16 bytes")
    );
}

#[test]
fn all_unsupported_operators_are_listed() {
    let names: Vec<String> = (0..40).map(|i| format!("Strange{i}")).collect();
    let model = edited_digits(|model| names.iter().for_each(|name| add_node(model, name, "")));
    let files = Files::new(&[("strange.onnx", model)]);
    let words: Vec<&str> = names.iter().map(String::as_str).collect();
    files.run("run", "strange.onnx", &["--random", "1"]).fails_with(&words);
    let info = files.run("info", "strange.onnx", &[]).good();
    assert!(words.iter().all(|word| info.contains(word)), "{info}");
}

/// Reads, compiles and runs a model, which must not panic. If it fails, the error must have a
/// message and a kind other than `Internal`.
fn survives(bytes: Vec<u8>, what: &str) {
    let outcome = catch_unwind(|| {
        let session = Model::from_bytes(bytes).and_then(|model| {
            // Queries everything that `info` shows.
            let _ = (
                model.inputs(),
                model.outputs(),
                model.operators(),
                model.functions(),
                model.parameters(),
                model.constants(),
            );
            let _ = (
                model.external_files(),
                model.metadata(),
                model.unsupported_operators(),
                model.opsets(),
            );
            Session::builder(&model).threads(1).build()
        });
        let session = match session {
            Ok(session) => session,
            Err(error) => return Err(error),
        };
        let input = Tensor::from_vec([2], vec![1.0f32, -1.0]).unwrap();
        session.run([("x", input)], &Default::default()).map(drop)
    });
    match outcome {
        Ok(Err(error)) => {
            assert!(!error.message().is_empty(), "{what}");
            assert!(error.kind() != ErrorKind::Internal, "{what}: {error}");
        }
        Ok(Ok(())) => {}
        Err(_) => panic!("{what}: panicked"),
    }
}

#[test]
fn every_prefix_of_a_small_model() {
    let model = chain(&["Relu", "Sigmoid", "Flatten"], &[2]);
    for end in 0..model.len() {
        survives(model[..end].to_vec(), &format!("prefix of {end} bytes"));
    }
}

#[test]
fn prefixes_of_the_digits_model() {
    let model = fs::read(digits().join("digits.onnx")).unwrap();
    for end in (0..model.len()).step_by(997).chain(model.len() - 600..model.len()) {
        survives(model[..end].to_vec(), &format!("prefix of {end} bytes"));
    }
    let files = Files::new(&[("half.onnx", model[..model.len() / 2].to_vec())]);
    for command in ["info", "run", "bench"] {
        files.run(command, "half.onnx", &[]).fails_with(&["half.onnx", "byte "]);
    }
}

#[test]
fn a_bit_flipped_at_each_byte() {
    let model = chain(&["Relu", "Sigmoid", "Flatten"], &[2]);
    for at in 0..model.len() {
        for bit in 0..8 {
            let mut flipped = model.clone();
            flipped[at] ^= 1 << bit;
            survives(flipped, &format!("bit {bit} of byte {at}"));
        }
    }
}

//! Programs without the features of this crate: what they still run, and the errors about the rest,
//! which name the feature. `cargo test -p sardonyx --no-default-features --test integration
//! left_out` builds them, as does CI.

use std::path::Path;

use sardonyx::io::{ModelFormat, TensorFormat, read_tensors, write_tensors};
use sardonyx::{Error, ErrorKind, Model, RunOptions, Session, Tensor};

/// Graphs with an operator of each family, and the feature of the family.
const FAMILIES: &[(&str, &str)] = &[
    ("(float[N, 2] x) => (float[N, 2] y) { y = ai.onnx.ml.Normalizer <norm = \"L1\"> (x) }", "ml"),
    ("(float[N] x, float s) => (uint8[N] y) { y = QuantizeLinear (x, s) }", "quantization"),
    (
        "(float[S, B, 2] x, float[1, 9, 2] w, float[1, 9, 3] r) => (float[S, 1, B, 3] y) {
             y = GRU <hidden_size = 3> (x, w, r)
         }",
        "recurrent",
    ),
    ("(float[B, N, 1] x) => (float[B, N, 2] y) { y = DFT (x) }", "signal"),
    ("(string[N] x) => (bool[N] y) { y = RegexFullMatch <pattern = \"a+\"> (x) }", "strings"),
    (
        "(float r, int64 t, float[N] x, float[N] g, float[N] v) => (float[N] y, float[N] w) {
             y, w = ai.onnx.preview.training.Momentum
                 <alpha = 0.9, beta = 1.0, mode = \"standard\", norm_coefficient = 0.0> (r, t, x, g, v)
         }",
        "training",
    ),
    (
        "(float[1, 1, H, W] x, float[4] s) => (float[1, 1, I, J] y) { y = Resize (x, , s) }",
        "vision",
    ),
];

/// Reads a graph of the newest operator sets.
fn read(graph: &str) -> Model {
    let opsets = "\"\": 22, \"ai.onnx.ml\": 5, \"ai.onnx.preview.training\": 1";
    let header = format!("<ir_version: 10, opset_import: [{opsets}]>");
    Model::from_text(&format!("{header} g {graph}")).unwrap_or_else(|error| panic!("{error}"))
}

#[test]
fn features_of_models_are_listed_in_every_build() {
    for (graph, feature) in FAMILIES {
        let features = read(graph).required_features();
        let names: Vec<&str> = features.iter().map(|found| found.feature).collect();
        assert_eq!(names, [*feature], "{graph}");
    }
    // Through a function, which is named by its call; without types, by the names of operators.
    let caller = "<ir_version: 10, opset_import: [\"\": 22, \"own\": 1]>
        g (float[N] x, float s) => (float[N] y) { y = own.Both (x, s) }
        <domain: \"own\", opset_import: [\"\": 22]>
        Both (x, s) => (y) { q = QuantizeLinear (x, s) y = DequantizeLinear (q, s) }";
    let features = Model::from_text(caller).unwrap().required_features();
    assert_eq!(features.len(), 1);
    assert_eq!(
        (features[0].feature, &features[0].operators[..]),
        ("quantization", &["own.Both".to_string()][..])
    );
    let cyclic = "(float[N, 2] x) => (float[N, 2] y) { y = Add (x, z) z = Resize (y) }";
    assert_eq!(read(cyclic).required_features()[0].operators, ["Resize"]);
    // A decoder may come from the program, so its family is enough.
    let decoder = "(uint8[N] x) => (uint8[H, W, C] y) { y = ImageDecoder (x) }";
    let features = read(decoder).required_features();
    let names: Vec<&str> = features.iter().map(|found| found.feature).collect();
    assert_eq!(names, ["images", "vision"]);
}

#[test]
fn operators_run_with_their_features_alone() {
    let compiled = [
        ("ml", cfg!(feature = "ml")),
        ("quantization", cfg!(feature = "quantization")),
        ("recurrent", cfg!(feature = "recurrent")),
        ("signal", cfg!(feature = "signal")),
        ("strings", cfg!(feature = "strings")),
        ("training", cfg!(feature = "training")),
        ("vision", cfg!(feature = "vision")),
    ];
    for (graph, feature) in FAMILIES {
        let is_compiled =
            compiled.iter().any(|(name, is_compiled)| name == feature && *is_compiled);
        match Session::new(&read(graph)) {
            Ok(_) => assert!(is_compiled, "{graph}"),
            Err(error) => {
                assert!(!is_compiled, "{graph}: {error}");
                assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
                assert!(error.to_string().contains(&format!("the feature `{feature}`")), "{error}");
            }
        }
    }
    // What every program runs.
    let session = Session::new(&read("(float[2] x) => (float[2] y) { y = Relu (x) }")).unwrap();
    let x = Tensor::from_vec([2], vec![-1.0f32, 2.0]).unwrap();
    let outputs = session.run([("x", x)], &RunOptions::default()).unwrap();
    assert_eq!(outputs.tensor("y").unwrap().as_slice::<f32>().unwrap(), [0.0, 2.0]);
}

/// Checks an answer about a format: an error that names the feature, unless it is compiled in.
fn expect_format<T: std::fmt::Debug>(answer: Result<T, Error>, feature: &str, is_compiled: bool) {
    match answer {
        Ok(_) => assert!(is_compiled, "{feature}"),
        Err(error) => {
            assert!(!is_compiled, "{feature}: {error}");
            assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
            assert!(error.to_string().contains(&format!("the feature `{feature}`")), "{error}");
        }
    }
}

#[test]
fn formats_are_read_and_written_with_their_features_alone() {
    let one = Tensor::scalar(1.0f32);
    for (format, start, feature, is_compiled) in [
        (TensorFormat::Npz, &b"PK\x05\x06"[..], "npz", cfg!(feature = "npz")),
        (
            TensorFormat::Safetensors,
            &b"\x02\0\0\0\0\0\0\0{}"[..],
            "safetensors",
            cfg!(feature = "safetensors"),
        ),
    ] {
        expect_format(write_tensors(format, [("one", &one)]), feature, is_compiled);
        if !is_compiled {
            expect_format(read_tensors(start.to_vec()), feature, is_compiled);
        }
    }
    let directory = tempfile::tempdir().unwrap();
    let model = read("(float[2] x) => (float[2] y) { y = Relu (x) }");
    for (name, text, feature, is_compiled) in [
        ("m.json", "{\"irVersion\": \"10\"}", "json", cfg!(feature = "json")),
        ("m.textproto", "ir_version: 10", "textproto", cfg!(feature = "textproto")),
    ] {
        let path = directory.path().join(name);
        assert_ne!(ModelFormat::from_path(Path::new(name)), Some(ModelFormat::Binary));
        if is_compiled {
            model.save(&path).unwrap();
        } else {
            std::fs::write(&path, text).unwrap();
        }
        expect_format(Model::open(&path), feature, is_compiled);
    }
}

//! Programs that use `ort`.

#![allow(clippy::unwrap_used)]

use std::sync::LazyLock;

use ort::environment::Environment;
use ort::session::{Session, builder::GraphOptimizationLevel};
use ort::value::{DynSequenceValueType, MapValueType, Tensor};

/// Environment of all sessions.
static ENVIRONMENT: LazyLock<Environment> = LazyLock::new(|| {
    ort::set_api(ort_sardonyx::api());
    ort::init().build().unwrap()
});

fn open(graph: &str) -> ort::Result<Session> {
    let head =
        "<ir_version: 10, opset_import: [\"\": 21, \"ai.onnx.ml\": 3], producer_name: \"tests\">";
    let model = sardonyx::Model::from_text(&format!("{head} {graph}")).unwrap();
    Session::builder(&ENVIRONMENT)?
        .with_optimization_level(GraphOptimizationLevel::Level3)?
        .with_intra_threads(2)?
        .commit_from_memory(&model.to_bytes())
}

#[test]
fn a_session_runs() {
    let mut session =
        open("g (float[N, 2] x) => (float[N, 2] y, int64 n) { y = Relu (x) n = Size (x) }")
            .unwrap();
    assert_eq!(session.inputs()[0].name(), "x");
    assert_eq!(session.outputs().len(), 2);
    let x = Tensor::from_array(([2usize, 2], vec![-1.0f32, 2.0, -3.0, 4.0])).unwrap();
    let outputs = session.run(ort::inputs!["x" => x]).unwrap();
    let (shape, y) = outputs["y"].try_extract_tensor::<f32>().unwrap();
    assert_eq!((&shape[..], y), (&[2i64, 2][..], &[0.0f32, 2.0, 0.0, 4.0][..]));
    assert_eq!(outputs["n"].try_extract_scalar::<i64>().unwrap(), 4);
}

#[test]
fn strings_and_metadata() {
    let mut session = open(
        "words (string[N] x) => (string[N] y) {
        y = StringNormalizer <case_change_action = \"UPPER\"> (x)
    }",
    )
    .unwrap();
    let x = Tensor::from_string_array(([2usize], &["one", "two"][..])).unwrap();
    let outputs = session.run(ort::inputs!["x" => x]).unwrap();
    let (_, strings) = outputs["y"].try_extract_strings().unwrap();
    assert_eq!(strings, ["ONE", "TWO"]);
    drop(outputs);
    let metadata = session.metadata().unwrap();
    assert_eq!(metadata.producer().as_deref(), Some("tests"));
}

#[test]
fn sequences_of_maps() {
    let mut session = open(
        "g (float[N, 2] x) => (seq(map(int64, float)) y) {
        y = ai.onnx.ml.ZipMap <classlabels_int64s = [5, 7]> (x)
    }",
    )
    .unwrap();
    let x = Tensor::from_array(([1usize, 2], vec![0.25f32, 0.75])).unwrap();
    let mut outputs = session.run(ort::inputs!["x" => x]).unwrap();
    let y = outputs.remove("y").unwrap();
    let sequence = y.downcast::<DynSequenceValueType>().unwrap();
    let maps = sequence.try_extract_sequence::<MapValueType<i64, f32>>().unwrap();
    assert_eq!(maps.len(), 1);
    let mut entries: Vec<(i64, f32)> =
        maps[0].try_extract_map::<i64, f32>().unwrap().into_iter().collect();
    entries.sort_by_key(|entry| entry.0);
    assert_eq!(entries, [(5, 0.25), (7, 0.75)]);
}

#[test]
fn errors_have_the_words_of_sardonyx() {
    let error = open("g (float x) => (float y) { y = Foo (x) }").unwrap_err();
    assert!(error.to_string().contains("Foo"), "{error}");
    let mut session = open("g (float[2] x) => (float[2] y) { y = Relu (x) }").unwrap();
    let x = Tensor::from_array(([3usize], vec![0f32; 3])).unwrap();
    let error = session.run(ort::inputs!["x" => x]).unwrap_err();
    assert!(error.to_string().contains('x'), "{error}");
}

//! Runs models before and after conversion between operator set versions, and compares results.

use sardonyx::convert::{ConvertOptions, Target};
use sardonyx::edit::EditError;
use sardonyx::tool::RELEASES;
use sardonyx::{Model, Session, Tensor, check};

fn model(opset: u32, nodes: &str) -> Model {
    let text = format!(
        "<ir_version: 8, opset_import: [\"\": {opset}]>
         g (float[2, 3, 4] x) => (float[?, ?, ?] y) {{ {nodes} }}"
    );
    Model::from_text(&text).unwrap()
}

fn run(model: &Model) -> Vec<f32> {
    let values: Vec<f32> = (0..24u8).map(|index| f32::from(index * 7 % 24) / 8.0 - 1.5).collect();
    let x = Tensor::from_vec([2, 3, 4], values).unwrap();
    let outputs = Session::new(model).unwrap().run([("x", x)], &Default::default()).unwrap();
    outputs.tensor("y").unwrap().to_vec().unwrap()
}

fn convert(model: &Model, opset: u32) -> Result<Model, EditError> {
    let converted = model.convert(&ConvertOptions::new(Target::new().opset("", opset)));
    converted.map(|(converted, _)| converted)
}

/// Converts models from version 9 to 13 and back, and compares results. Each of these operators
/// changed between the two. VER-25+, VER-15+, GRAPH-02+, NODE-15+
#[test]
fn round_trip_conversion_keeps_results() {
    for nodes in [
        "y = Clip <min = -1.0> (x)",
        "y = Clip <max = 1.0> (x)",
        "y = Clip <min = -1.0, max = 1.0> (x)",
        "y = Softmax <axis = 1> (x)",
        "y = LogSoftmax <axis = 0> (x)",
        "y = ReduceSum <axes = [1]> (x)",
        "t = Unsqueeze <axes = [0, 4]> (x) y = Squeeze <axes = [0, 4]> (t)",
        "y = Pad <pads = [0, 1, 0, 0, 0, 2], value = 0.5> (x)",
        "y, parts = Split <axis = 1, split = [1, 2]> (x)",
        "y, places = TopK <axis = 2, k = 2> (x)",
        "y = Dropout <ratio = 0.25> (x)",
        "y = Slice <axes = [2], starts = [1], ends = [3]> (x)",
    ] {
        let old = model(9, nodes);
        let before = run(&old);
        let new = convert(&old, 13).unwrap();
        let again = convert(&new, 9).unwrap();
        for converted in [&new, &again] {
            let report = converted.check(&check::CheckOptions::new());
            assert_eq!(report.errors, 0, "{nodes}: {:?}", report.findings);
            assert_eq!(run(converted), before, "{nodes}");
        }
        assert_ne!(new.to_bytes(), old.to_bytes());
    }
}

/// Checks that the error for a node without an exact equivalent names its operator and the
/// versions, and that the model is unchanged. VER-25-
#[test]
fn nodes_without_an_equivalent_are_errors() {
    let text = "<ir_version: 8, opset_import: [\"\": 16]>
        g (float[1, 1, 4, 4] x, float[1, 2, 2, 2] at) => (float[?, ?, ?, ?] y) {
          y = GridSample (x, at)
        }";
    let sampled = Model::from_text(text).unwrap();
    let before = sampled.to_bytes();
    let Err(EditError::NotConvertible(refusals)) = convert(&sampled, 15) else {
        panic!("GridSample is new in version 16");
    };
    let [refusal] = &refusals[..] else { panic!("{refusals:?}") };
    for part in ["GridSample", "16", "15"] {
        assert!(refusal.fact.contains(part), "{}", refusal.fact);
    }
    assert_eq!(sampled.to_bytes(), before);
}

/// Checks that the constants that conversion adds are initializers, not inputs that a caller can
/// set. GRAPH-13+-
#[test]
fn constants_that_are_added_cannot_be_overridden() {
    let converted = convert(&model(12, "y = ReduceSum <axes = [1]> (x)"), 13).unwrap();
    let session = Session::new(&converted).unwrap();
    let names: Vec<&str> = session.inputs().iter().map(|input| input.name()).collect();
    assert_eq!(names, ["x"]);
    let text = converted.to_text();
    let (_, after) = text.split_once("int64[1] ").unwrap();
    let (constant, _) = after.split_once(' ').unwrap();
    let x = Tensor::from_vec([2, 3, 4], vec![0.0f32; 24]).unwrap();
    let axes = Tensor::from_vec([1], vec![0i64]).unwrap();
    assert!(
        session.run([("x", x), (constant.trim_matches('"'), axes)], &Default::default()).is_err()
    );
}

/// Checks that a release of ONNX stands for the versions of operator sets and of the file format
/// that it introduced. VER-19+-
#[test]
fn releases_name_versions() {
    let text = "<ir_version: 8, opset_import: [\"\": 17, \"ai.onnx.ml\": 3]>
        g (float[N] x) => (float[N] y) { y = Relu (x) }";
    let model = Model::from_text(text).unwrap();
    let target = Target::new().release("1.16.0").unwrap();
    let (converted, _) = model.convert(&ConvertOptions::new(target)).unwrap();
    let sets = converted.opsets();
    let sets: Vec<(String, i64)> = sets.into_iter().map(|set| (set.domain, set.version)).collect();
    assert_eq!(converted.ir_version(), Some(10));
    assert_eq!(sets, [(String::new(), 21), ("ai.onnx.ml".to_string(), 5)]);
    assert!(Target::new().release("1.99").is_none());
    // VER-19-: releases that do not exist, next to existing ones.
    for name in ["1.16.x", "1.16.9", "1.16.3", "1.3.1", "1.2.4", "1.1.3", "1.1.2.0", "1.16.", "1"] {
        assert!(Target::new().release(name).is_none(), "{name}");
    }
    for name in ["1.16.2", "1.2.3", "1.1.1", "1.1.2", "1.0.1", "1.23.2", "1.23.0", "1.23"] {
        assert!(Target::new().release(name).is_some(), "{name}");
    }
    assert_eq!(RELEASES.last().unwrap().name, "1.23");
}

fn model_of_type(opset: u32, ty: &str, node: &str) -> Model {
    Model::from_text(&format!(
        "<ir_version: 8, opset_import: [\"\": {opset}]>
         g ({ty}[2, 3] x, int64[2] s) => ({ty}[?, ?] y) {{ y = {node} }}"
    ))
    .unwrap()
}

/// Checks that conversion to an older version fails for element types of Add and Reshape, and for
/// an attribute of Reshape, that a later version added. VER-15-
#[test]
fn additions_of_newer_versions_are_refused_in_older_ones() {
    let rows = [
        ("int8", "Add(x, x)", 14),
        ("uint16", "Add(x, x)", 14),
        ("bfloat16", "Add(x, x)", 13),
        ("float", "Add(x, x)", 7),
        ("bfloat16", "Reshape(x, s)", 13),
        ("float", "Reshape<allowzero = 1>(x, s)", 14),
    ];
    for (ty, node, first) in rows {
        let model = model_of_type(15, ty, node);
        let report = model.check(&check::CheckOptions::new().types(true));
        assert_eq!(report.errors, 0, "{ty} {node}: {:?}", report.findings);
        for opset in 7..15 {
            let converted = convert(&model, opset);
            if opset < first {
                assert!(converted.is_err(), "{ty} {node} in {opset}");
                let old = model_of_type(opset, ty, node);
                let report = old.check(&check::CheckOptions::new().types(true));
                assert!(report.errors > 0, "{ty} {node} in {opset}");
            } else {
                let report = converted.unwrap().check(&check::CheckOptions::new().types(true));
                assert_eq!(report.errors, 0, "{ty} {node} in {opset}: {:?}", report.findings);
            }
        }
    }
}

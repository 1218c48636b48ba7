//! Tests of operators that ONNX Runtime adds to the standard: those that run, and the errors of
//! others. `cargo xtask agree microsoft` compares results.

use sardonyx_model::{Model, NoExternalData};
use sardonyx_runtime::{Options, Session, unsupported};
use sardonyx_tensor::{Buffer, Tensor, Value};
use sardonyx_text::{ParseOptions, parse_model};

fn model(graph: &str) -> Model {
    let text = format!(
        "<ir_version: 10, opset_import: [\"\": 21, \"com.microsoft\": 1, \
         \"com.microsoft.nchwc\": 1, \"com.ms.internal.nhwc\": 1]>\n{graph}"
    );
    let buffer = Buffer::from_vec(text.into_bytes());
    parse_model(buffer, ParseOptions::default()).unwrap().model
}

fn session(graph: &str) -> Session {
    Session::compile(&model(graph), &NoExternalData, &Options::with_threads(1)).unwrap()
}

/// Runs a graph on an input `x`, and returns the elements of the only output.
fn run(graph: &str, dims: &[usize], x: &[f32]) -> Vec<f32> {
    let x = Value::from(Tensor::from_vec(dims, x.to_vec()).unwrap());
    let outputs = session(graph).run(vec![("x".to_string(), x)]).unwrap();
    outputs[0].1.as_tensor().unwrap().view().as_slice::<f32>().unwrap().to_vec()
}

#[test]
fn what_is_refused_says_why() {
    let rows = [
        (
            "g (float[2, 3, 8] x, float[8, 24] w) => (y) {
                y = com.microsoft.Attention <num_heads = 2, do_rotary = 1> (x, w)
            }",
            "do_rotary is not supported",
        ),
        (
            "g (float[2, 3] x, float[3, 4] w) => (y) {
                y = com.microsoft.FusedGemm <activation = \"Snake\"> (x, w)
            }",
            "its activation 'Snake' is not implemented",
        ),
        (
            "g (float[1, 8, 3, 3] x) => (y) { y = com.microsoft.nchwc.ReorderOutput (x) }",
            "operator not implemented: ONNX Runtime created it for the memory layout of one machine; use the original \
             model, or save it with ONNX Runtime at the level ORT_ENABLE_EXTENDED",
        ),
        (
            "g (float[1, 8, 3, 3] x) => (y) { y = com.microsoft.Nonsense (x) }",
            "operator not implemented",
        ),
    ];
    for (graph, why) in rows {
        let listed = unsupported(&model(graph));
        let found: Vec<&str> = listed.iter().map(|operator| operator.why.as_str()).collect();
        assert_eq!(found, [why], "{graph}");
    }
}

#[test]
fn a_function_of_the_model_takes_the_place_of_an_operator() {
    let graph = "g (float[2] x) => (y) { y = com.microsoft.Gelu (x) }
        <domain: \"com.microsoft\", opset_import: [\"\": 21]> Gelu (X) => (Y) { Y = Neg (X) }";
    assert_eq!(run(graph, &[2], &[1.0, -2.0]), [-1.0, 2.0]);
}

#[test]
fn the_one_in_the_default_domain_runs_at_any_version() {
    let graph = "g (float[1, 2] x) => (y) <float[2] s = {1.0, 2.0}> {
            y = SimplifiedLayerNormalization <epsilon = 0.0> (x, s)
        }";
    assert_eq!(run(graph, &[1, 2], &[7.0, 1.0]), [1.4, 0.4]);
}

#[test]
fn operators_of_the_standard_run_before_it_has_them() {
    let run_at = |version: u32, graph: &str| {
        let text = format!("<ir_version: 7, opset_import: [\"\": {version}]>\n{graph}");
        let buffer = Buffer::from_vec(text.into_bytes());
        let model = parse_model(buffer, ParseOptions::default()).unwrap().model;
        let options = Options::with_threads(1);
        let session = Session::compile(&model, &NoExternalData, &options).unwrap();
        let outputs = session.run(Vec::<(String, Value)>::new()).unwrap();
        outputs[0].1.as_tensor().unwrap().view().as_slice::<f32>().unwrap().to_vec()
    };
    let x = "<float[1, 2] x = {7.0, 1.0}, float[2] s = {1.0, 2.0}, float[2] b = {0.0, 1.0}>";
    for version in [1, 7, 11, 14, 16, 17, 22] {
        let graph =
            format!("g () => (y) {x} {{ y = LayerNormalization <epsilon = 0.0> (x, s, b) }}");
        assert_eq!(run_at(version, &graph), [1.0, -1.0], "{version}");
    }
    for version in [6, 9, 10, 22] {
        let graph = format!("g () => (y) {x} {{ y = ThresholdedRelu <alpha = 2.0> (x) }}");
        assert_eq!(run_at(version, &graph), [7.0, 0.0], "{version}");
    }
    // The optimizer of ONNX Runtime removes a Cast before it.
    let mixed = "<float16[1, 2] x = raw {7.0, 1.0}, float[2] s = {1.0, 2.0}>";
    for operator in ["LayerNormalization", "SimplifiedLayerNormalization"] {
        let graph = format!("g () => (y) {mixed} {{ y = {operator} <epsilon = 0.0> (x, s) }}");
        let expected = if operator == "LayerNormalization" { [1.0, -2.0] } else { [1.4, 0.4] };
        assert_eq!(run_at(14, &graph), expected, "{operator}");
    }
}

/// Product with two columns of three elements in a block of 16: 1 2 3 and 4 5 6, minus a zero point
/// of 8.
const N_BITS: &str = "g (float[M, 3] x) => (y) <
        uint8[2, 1, 8] b = {33, 3, 0, 0, 0, 0, 0, 0, 84, 6, 0, 0, 0, 0, 0, 0},
        float[2, 1] s = {1.0, 10.0}
    > {
        y = com.microsoft.MatMulNBits <K = 3, N = 2, block_size = 16, bits = 4> (x, b, s)
    }";

#[test]
fn few_bits() {
    let y = run(N_BITS, &[2, 3], &[1.0, 0.0, 0.0, 1.0, 1.0, 2.0]);
    assert_eq!(y, [-7.0, -40.0, -7.0 - 6.0 - 10.0, -40.0 - 30.0 - 40.0]);
    assert_eq!(run(N_BITS, &[0, 3], &[]), [0.0; 0]);
}

#[test]
fn sizes_that_do_not_fit_are_errors() {
    let rows = [
        ("K = 3", "K = 40", "B has 16 bytes, but 2 columns of 3 blocks need 48"),
        ("float[2, 1] s = {1.0, 10.0}", "float[1] s = {1.0}", "1 scales for 2 blocks"),
    ];
    for (from, to, expected) in rows {
        let graph = N_BITS.replace(from, to).replace("float[M, 3]", "float[M, N]");
        let width = if to == "K = 40" { 40 } else { 3 };
        let x = Value::from(Tensor::from_vec([1, width], vec![0.0_f32; width]).unwrap());
        let error = session(&graph).run(vec![("x".to_string(), x)]).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
}

//! Tests of the errors of nodes: the node, the nodes around it, and its inputs.

use sardonyx_model::NoExternalData;
use sardonyx_runtime::{CompileError, NodeError, Options, RunError, Session};
use sardonyx_tensor::{Bool8, Buffer, Tensor, Value};
use sardonyx_text::{ParseOptions, parse_model};

fn session(text: &str) -> Result<Session, CompileError> {
    compile(text, &Options::with_threads(1))
}

fn compile(text: &str, options: &Options) -> Result<Session, CompileError> {
    let text = format!("<ir_version: 10, opset_import: [\"\": 21, \"local\": 1]>\n{text}");
    let text = Buffer::from_vec(text.into_bytes());
    let model = parse_model(text, ParseOptions::default()).unwrap_or_else(|e| panic!("{e:?}"));
    Session::compile(&model.model, &NoExternalData, options)
}

/// Runs a model and returns the error of a node.
fn failure(text: &str, inputs: &[(&str, Tensor)]) -> NodeError {
    failure_of(&session(text).unwrap(), inputs)
}

fn failure_of(session: &Session, inputs: &[(&str, Tensor)]) -> NodeError {
    let inputs = inputs.iter().map(|(name, tensor)| (name.to_string(), tensor.clone().into()));
    match session.run(inputs.collect::<Vec<(String, Value)>>()) {
        Err(RunError::Node(error)) => *error,
        other => panic!("{other:?}"),
    }
}

fn ones(dims: &[usize]) -> Tensor {
    Tensor::from_vec(dims, vec![1f32; dims.iter().product()]).unwrap()
}

fn index(index: i64) -> Tensor {
    Tensor::from_slice([1], &[index]).unwrap()
}

fn truth(is: bool) -> Tensor {
    Tensor::from_slice([1], &[Bool8::from(is)]).unwrap()
}

/// Lists the operator and kind of part of each node of the path.
fn path(error: &NodeError) -> Vec<String> {
    let nodes = error.path.0.iter();
    nodes.map(|node| format!("{} {:?}", node.operator, node.part)).collect()
}

const OUT_OF_RANGE: &str = "axis 0: index 9 is outside of a dimension of size 4";

#[test]
fn a_node_says_what_it_was_given() {
    let error = failure(
        "g (float[N, 2] x, int64[K] at) => (float[K, 2] y) { y = Gather (x, at) }",
        &[("x", ones(&[4, 2])), ("at", index(9))],
    );
    assert_eq!(
        error.to_string(),
        format!(
            "Gather node that makes 'y': {OUT_OF_RANGE}\n  \
             inputs: x: float[4, 2], at: int64[1]"
        )
    );
    assert_eq!(path(&error), ["Gather None"]);
    assert!(!error.is_constant && error.with.is_empty());
}

/// Checks that inputs whose sizes depend on data are described with their dimensions.
#[test]
fn inputs_of_sizes_that_data_tells_have_their_dimensions() {
    let error = failure(
        "g (float[N] x, int64[K] at) => (int64[1, K] y) {
            found = NonZero (x) y = Gather <axis = 1> (found, at) }",
        &[("x", ones(&[4])), ("at", index(9))],
    );
    assert_eq!(error.given(), "found: int64[1, 4], at: int64[1]");
}

#[test]
fn a_fused_step_names_the_operators_that_are_in_it() {
    let mut options = Options::with_threads(1);
    options.memory_limit = Some(1000);
    let text = "g (float[N, 2] x) => (y) <float[2, 64] w> { p = MatMul (x, w) y = Relu (p) }";
    let text = text.replace("w>", &format!("w = {{{}}}>", ["1"; 128].join(", ")));
    let session = compile(&text, &options).unwrap();
    let error = failure_of(&session, &[("x", ones(&[4, 2]))]);
    assert_eq!(error.place(), "MatMul node that makes 'p' with Relu");
    assert_eq!((error.with.as_slice(), error.path.0.len()), (&["Relu"][..], 1));
    assert!(error.what.contains("the memory limit is 1000"), "{error}");
    // Packed weights are among the inputs.
    assert_eq!(error.given(), "x: float[4, 2], w: float[2, 64]");
}

#[test]
fn the_path_leads_through_three_branches() {
    let nested = |name: &str, inner: &str| {
        format!(
            "{name} = If (c) <then_branch = in_{name} () => ({name}_t) {{ {inner} \
             {name}_t = Identity (inner) }}, \
             else_branch = other_{name} () => ({name}_e) {{ {name}_e = Identity (x) }}>"
        )
    };
    let third = nested("third", "inner = Gather (x, at)");
    let second = nested("second", &third).replace(
        "Identity (inner) }, \
             else_branch = other_second",
        "Identity (third) }, else_branch = other_second",
    );
    let first = nested("y", &second).replace("y_t = Identity (inner)", "y_t = Identity (second)");
    let text = format!("g (float[N, 2] x, int64[K] at, bool[1] c) => (y) {{ {first} }}");
    let error = failure(&text, &[("x", ones(&[4, 2])), ("at", index(9)), ("c", truth(true))]);
    assert_eq!(
        error.place(),
        "Gather node that makes 'inner' in graph 'in_third' in If node that makes 'third' in graph \
         'in_second' in If node that makes 'second' in graph 'in_y' in If node that makes 'y'"
    );
    assert_eq!(error.what, OUT_OF_RANGE);
    assert_eq!(error.given(), "x: float[4, 2], at: int64[1]");
}

/// Checks the path through calls, and through a graph of a node in a body.
#[test]
fn the_path_leads_through_functions() {
    let text = "g (float[N, 2] x, int64[K] at, bool[1] c) => (y) {
            [outer] y = local.Outer (x, at, c)
        }
        <domain: \"local\", opset_import: [\"\": 21, \"local\": 1]>
        Outer (a, i, c) => (b) {
            b = If (c) <
                then_branch = inside () => (t) { [call] t = local.Inner (a, i) },
                else_branch = not () => (e) { e = Identity (a) }>
        }
        <domain: \"local\", opset_import: [\"\": 21]>
        Inner (a, i) => (b) { [take] b = Gather (a, i) }";
    let error = failure(text, &[("x", ones(&[4, 2])), ("at", index(9)), ("c", truth(true))]);
    assert_eq!(
        path(&error),
        ["Gather Some(Body)", "Inner Some(Graph(\"inside\"))", "If Some(Body)", "Outer None",]
    );
    assert_eq!(
        error.place(),
        "node 'take' (Gather) in the body of node 'call' (Inner) in graph 'inside' in If node that \
         makes 'y' in the body of node 'outer' (Outer)"
    );
}

#[test]
fn a_node_of_constants_fails_when_the_session_is_made() {
    let text = "g (float[N, 2] x) => (y)
        <float[4, 2] table = {1, 2, 3, 4, 5, 6, 7, 8}, float[10] best = {0, 0, 0, 0, 0, 0, 0, 0, 0, 1}> {
            index = ArgMax (best) row = Gather (table, index) y = Add (x, row) }";
    match session(text) {
        Err(CompileError::Node(error)) => {
            assert!(error.is_constant);
            assert_eq!(error.what, OUT_OF_RANGE);
            assert_eq!(error.given(), "table: float[4, 2], index: int64[1]");
        }
        other => panic!("{other:?}"),
    }
}

/// Checks SHAPE-17: as in ONNX Runtime, element types are compared and sizes are ignored.
#[test]
fn outputs_of_other_types_than_declared() {
    let text = |outputs: &str, nodes: &str| format!("g (float[2] x) => ({outputs}) {{ {nodes} }}");
    let rows = [
        (
            "optional(float[2]) y",
            "y = Relu (x)",
            "output 'y' is float[2], but the model declares optional(float[2])",
        ),
        ("float y", "y = Shape (x)", "output 'y' is int64[1], but the model declares float"),
        (
            "float[2] y, double[2] z",
            "z = Relu (x) y = Neg (x)",
            "output 'z' is float[2], but the model declares double[2]",
        ),
        (
            "float[2] y",
            "y = SequenceConstruct (x)",
            "output 'y' is seq(float[2]), but the model declares float[2]",
        ),
    ];
    for (outputs, nodes, expected) in rows {
        let error = session(&text(outputs, nodes)).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
    let session = session(&text("float[3] y", "y = Relu (x)")).unwrap();
    assert_eq!(session.outputs()[0].ty().unwrap().to_string(), "float[2]");
}

/// Checks SHAPE-17: declarations of values inside of a model are compared like those of its
/// outputs, in graphs of nodes too.
#[test]
fn inner_values_of_other_types_than_declared() {
    let refused = [
        (
            "g (float[2] x) => (float[2] y) <optional(float[2]) t> { t = Relu (x) y = Neg (t) }",
            "'t' is float[2], but the model declares optional(float[2])",
        ),
        (
            "g (float[2] x) => (float[2] y) <double[2] t> { t = Relu (x) y = Neg (t) }",
            "Relu node that makes 't': 't' is float[2], but the model declares double[2]",
        ),
        (
            "g (float[2] x) => (float[2] y) <double[2] t> { t = SequenceConstruct (x)
                i = Constant <value_int = 0> () y = SequenceAt (t, i) }",
            "'t' is seq(float[2]), but the model declares double[2]",
        ),
        (
            "g (float[2] x, bool c) => (float[2] y) {
                y = If (c) <then_branch = a () => (float[2] z) <double[2] u> { u = Neg (x) z = Neg (u) },
                    else_branch = b () => (float[2] w) { w = Abs (x) }> }",
            "Neg node that makes 'u' in graph 'a' in If node that makes 'y': \
             'u' is float[2], but the model declares double[2]",
        ),
        (
            "g (float[2] x, bool c) => (float[2] y) {
                y = If (c) <then_branch = a () => (double[2] z) { z = Neg (x) },
                    else_branch = b () => (float[2] w) { w = Abs (x) }> }",
            "'z' is float[2], but the model declares double[2]",
        ),
        (
            "g (double[2] x) => (double[2] y) <float[2] x = {1, 2}> { y = Neg (x) }",
            "the initializer of 'x' is float, but the model declares double[2]",
        ),
        (
            "g (float[2] x) => (float[2] y) <double[2] t> { t = local.f (x) y = Neg (t) }
             <domain: \"local\", opset_import: [\"\": 21]> f (a) => (b) { b = Relu (a) }",
            "'t' is float[2], but the model declares double[2]",
        ),
    ];
    for (text, expected) in refused {
        let error = session(text).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
    let accepted = [
        "g (float[2] x) => (float[2] y) <float[3] t> { t = Relu (x) y = Neg (t) }",
        "g (double[2] x, bool c) => (double[2] y) { y = local.f (x, c) }
         <domain: \"local\", opset_import: [\"\": 21]> f (a, c) => (b) <float[2] t> { t = Relu (a)
            b = If (c) <then_branch = t () => (float[2] z) <float[2] u> { u = Neg (t) z = Neg (u) },
                else_branch = b () => (float[2] w) { w = Abs (t) }> }",
    ];
    for text in accepted {
        session(text).unwrap();
    }
}

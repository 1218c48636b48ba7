//! Tests of every job in every graph: the main graph, a branch, the body of a loop, and a function
//! that the model calls.

use sardonyx_model::{GraphId, Model, NoExternalData, NodeId, ValueId};
use sardonyx_ops::Registry;
use sardonyx_passes::{
    Expansions, InferOptions, Inference, Resolved, eliminate_common, expand_calls, fuse, infer,
    remove_dead, resolve, unpack_sequences,
};
use sardonyx_tensor::{Buffer, Tensor};
use sardonyx_text::{ParseOptions, parse_model};

/// Makes a model with these nodes in each of the four places. They read `x`, `one`, `half` and
/// `root`, and compute `y`.
fn make_everywhere(nodes: &str, opset: u32) -> Resolved {
    let model = model(&format!(
        "<ir_version: 10, opset_import: [\"\": {opset}, \"local\": 1]>
        g (float[2, 3] x, bool c, int64 n) => (float[] y, float[] in_if, float[] in_loop, float[] called)
        <float one = {{1.0}}, float half = {{0.5}}, float root = {{1.4142135}}>
        {{
          {nodes}
          in_if = If (c) <
            then_branch = then () => (float[] y) {{ {nodes} }},
            else_branch = else () => (float[] z) {{ z = Identity (x) }}
          >
          in_loop = Loop (n, c, x) <body = body (int64 i, bool k, float[2, 3] s) => (bool k, float[] y) {{
            {nodes}
          }}>
          called = local.F (x, one, half, root)
        }}
        <domain: \"local\", opset_import: [\"\": {opset}]>
        F (x, one, half, root) => (y) {{ {nodes} }}"
    ));
    let mut resolved = resolve(model, Registry::standard()).expect("the model can run");
    let mut expansions = Expansions::default();
    expand_calls(&mut resolved, &mut expansions).expect("the call fits");
    assert_eq!(expansions[&("local".to_string(), "F".to_string())], 1);
    resolved
}

fn model(text: &str) -> Model {
    let text = Buffer::from_vec(text.as_bytes().to_vec());
    parse_model(text, ParseOptions::default()).expect("the text is a model").model
}

fn infer_all(resolved: &Resolved) -> Inference {
    infer(resolved, InferOptions::default()).expect("the types fit")
}

fn constant(model: &Model, value: ValueId) -> Option<Tensor> {
    model.tensor(&model.initializer(value)?.tensor, &NoExternalData).ok()
}

/// Lists the operators of each graph, in the order of the nodes: the main graph with the body of
/// the function, then the branches and the loop.
fn operators(resolved: &Resolved) -> Vec<String> {
    let model = resolved.model();
    let op = |node: &NodeId| {
        let op = resolved.op(*node).expect("an operator of the standard");
        assert_eq!(op.schema.name, model.display(model.node(*node).op_type));
        op.schema.name
    };
    let graph = |graph: &GraphId| {
        let ops: Vec<&str> = resolved.order_of(*graph).iter().map(op).collect();
        ops.join(" ")
    };
    resolved.graphs().iter().map(graph).collect()
}

#[test]
fn functions_become_nodes_of_the_graph_that_calls_them() {
    let resolved = make_everywhere("a = Neg (x) y = Relu (a)", 17);
    assert_eq!(
        operators(&resolved),
        ["Neg Relu If Loop Neg Relu", "Neg Relu", "Identity", "Neg Relu"]
    );
    let found = infer_all(&resolved);
    let outputs = &resolved.model().graph(resolved.main()).outputs;
    let types = outputs.iter().map(|output| found.ty(output.value?).map(ToString::to_string));
    let types: Vec<_> = types.map(Option::unwrap_or_default).collect();
    assert_eq!(types, ["float[2, 3]"; 4]);
}

/// Uses axes, which are an attribute before version 13 and an input since.
#[test]
fn nodes_are_upgraded_in_every_graph() {
    let mut resolved = make_everywhere("y = ReduceSum <axes = [1]> (x)", 12);
    let found = infer_all(&resolved);
    let upgraded = sardonyx_passes::upgrade(&mut resolved, &found, &|_, _| false)
        .expect("there is a newer form");
    let sums = upgraded.iter().find(|group| group.op == "ReduceSum").expect("they changed");
    assert_eq!((sums.from, sums.to, sums.nodes), (12, 13, 4));
    let model = resolved.model();
    for node in resolved.graphs().iter().flat_map(|graph| resolved.order_of(*graph)) {
        let op = resolved.op(*node).expect("an operator of the standard");
        if op.schema.name == "ReduceSum" {
            let axes = model.inputs(*node).nth(1).flatten().expect("axes");
            assert_eq!(constant(model, axes).and_then(|axes| axes.to_vec().ok()), Some(vec![1i64]));
            assert_eq!((op.opset, model.attributes(*node).len()), (13, 0));
        }
    }
    infer_all(&resolved);
}

#[test]
fn common_subexpressions_are_eliminated_in_every_graph() {
    let mut resolved = make_everywhere("a = Neg (x) b = Neg (x) y = Add (a, b)", 17);
    let found = infer_all(&resolved);
    let model = resolved.model().clone();
    let eliminated = eliminate_common(&mut resolved, &found, &|value| constant(&model, value));
    // One in the main graph; both of the function, whose sum is an output and stays; two in each
    // body, which finds `Neg (x)` outside.
    assert_eq!(operators(&resolved), ["Neg Add If Loop Add", "Add", "Identity", "Add"]);
    assert_eq!(eliminated.nodes, 7);
}

#[test]
fn values_of_a_branch_do_not_replace_others() {
    let text = "<ir_version: 10, opset_import: [\"\": 17]>
        g (float[2, 3] x, bool c) => (float[2, 3] y, float[2, 3] b)
        {
          b = If (c) <
            then_branch = then () => (float[2, 3] t) { t = Neg (x) },
            else_branch = else () => (float[2, 3] e) { e = Neg (x) }
          >
          y = Neg (x)
        }";
    let mut resolved = resolve(model(text), Registry::standard()).expect("the model can run");
    let found = infer_all(&resolved);
    let eliminated = eliminate_common(&mut resolved, &found, &|_| None);
    assert_eq!(operators(&resolved), ["If Neg", "Neg", "Neg"]);
    assert_eq!(eliminated.nodes, 0);
}

const GELU: &str =
    "d = Div (x, root) e = Erf (d) o = Add (e, one) m = Mul (x, o) y = Mul (m, half)";

#[test]
fn patterns_are_fused_in_every_graph() {
    let mut resolved = make_everywhere(GELU, 20);
    let found = infer_all(&resolved);
    let model = resolved.model().clone();
    let is_constant = |value: ValueId| model.initializer(value).is_some();
    let fusions = fuse(&mut resolved, &found, &is_constant, &|value| constant(&model, value));
    let gelus = fusions.iter().filter(|fusion| fusion.pattern == "Gelu" && fusion.nodes == 5);
    assert_eq!(gelus.count(), 4);
    assert_eq!(operators(&resolved), ["Gelu If Loop Gelu", "Gelu", "Identity", "Gelu"]);
    infer_all(&resolved);
}

/// Checks that no pattern crosses a body: its nodes run more often than those around it, or never.
#[test]
fn a_pattern_over_several_graphs_is_not_fused() {
    let text = "<ir_version: 10, opset_import: [\"\": 20]>
        g (float[2, 3] x, bool c) => (float[2, 3] b)
        <float one = {1.0}, float half = {0.5}, float root = {1.4142135}>
        {
          d = Div (x, root)
          b = If (c) <
            then_branch = then () => (float[2, 3] y) {
              e = Erf (d) o = Add (e, one) m = Mul (x, o) y = Mul (m, half)
            },
            else_branch = else () => (float[2, 3] z) { z = Identity (x) }
          >
        }";
    let mut resolved = resolve(model(text), Registry::standard()).expect("the model can run");
    let found = infer_all(&resolved);
    let model = resolved.model().clone();
    let is_constant = |value: ValueId| model.initializer(value).is_some();
    fuse(&mut resolved, &found, &is_constant, &|value| constant(&model, value));
    assert_eq!(operators(&resolved), ["Div If", "Erf Add Mul Mul", "Identity"]);
}

/// Readers of a sequence at constant positions read its elements instead.
#[test]
fn sequences_are_removed_in_every_graph() {
    let constants = "last = Constant <value_int = -1> () sizes = Constant <value_ints = [1, 2]> ()";
    let nodes = "parts = SplitToSequence <axis = 1> (x, sizes) y = SequenceAt (parts, last)";
    let mut resolved = make_everywhere(&format!("{constants} {nodes}"), 17);
    let found = infer_all(&resolved);
    assert_eq!(unpack_sequences(&mut resolved, &found), 4);
    let nodes = "Constant Constant Split Identity";
    let main = format!("{nodes} If Loop {nodes}");
    assert_eq!(operators(&resolved), [main.as_str(), nodes, "Identity", nodes]);
    infer_all(&resolved);
}

/// Checks a branch that reads a sequence of the graph around it.
#[test]
fn a_sequence_that_bodies_read_is_removed() {
    let text = "<ir_version: 10, opset_import: [\"\": 17]>
        g (float[2, 3] x, bool c) => (float[] b, int64 n)
        <int64 last = {-1}>
        {
          s = SplitToSequence <keepdims = 0> (x)
          n = SequenceLength (s)
          b = If (c) <
            then_branch = then () => (float[3] t) { t = SequenceAt (s, last) },
            else_branch = else () => (float[2, 3] e) { e = Identity (x) }
          >
        }";
    let mut resolved = resolve(model(text), Registry::standard()).expect("the model can run");
    let found = infer_all(&resolved);
    assert_eq!(unpack_sequences(&mut resolved, &found), 1);
    assert_eq!(operators(&resolved), ["Split Identity If", "Squeeze", "Identity"]);
    infer_all(&resolved);
}

/// Checks that unknown sizes, unknown or invalid positions, many parts and other readers keep the
/// sequence.
#[test]
fn sequences_that_cannot_be_replaced_stay() {
    for (inputs, nodes) in [
        ("float[6] x, int64 p", "s = SplitToSequence (x) y = SequenceAt (s, p)"),
        ("float[N] x", "s = SplitToSequence (x) y = SequenceAt (s, zero)"),
        ("float[6] x", "s = SplitToSequence (x, sizes) y = SequenceAt (s, two)"),
        ("float[6] x, int64[2] k", "s = SplitToSequence (x, k) y = SequenceAt (s, zero)"),
        ("float[2000] x", "s = SplitToSequence (x) y = SequenceAt (s, zero)"),
        ("float[6] x", "s = SequenceConstruct (x, x) y = SequenceAt (s, two)"),
        (
            "float[6] x",
            "s = SequenceConstruct (x, x) t = SequenceErase (s) y = SequenceAt (s, zero)
             z = SequenceAt (t, zero)",
        ),
    ] {
        let text = format!(
            "<ir_version: 10, opset_import: [\"\": 17]> g ({inputs}) => (float[] y)
             <int64 zero = {{0}}, int64 two = {{2}}, int64[2] sizes = {{4, 2}}> {{ {nodes} }}"
        );
        let mut resolved = resolve(model(&text), Registry::standard()).expect("it can run");
        let found = infer_all(&resolved);
        assert_eq!(unpack_sequences(&mut resolved, &found), 0, "{nodes}");
    }
}

#[test]
fn dead_code_is_removed_in_every_graph() {
    let mut resolved = make_everywhere("u = Neg (x) v = Relu (u) y = Abs (x)", 17);
    assert_eq!(remove_dead(&mut resolved), 8);
    assert_eq!(operators(&resolved), ["Abs If Loop Abs", "Abs", "Identity", "Abs"]);
    assert_eq!(remove_dead(&mut resolved), 0);
}

/// Checks that a node whose output only a body reads is not dead, unless the body is.
#[test]
fn values_that_a_body_reads_from_outside_are_needed() {
    let text = |output: &str| {
        format!(
            "<ir_version: 10, opset_import: [\"\": 17]>
            g (float[2, 3] x, bool c) => (float[2, 3] {output})
            {{
              a = Neg (x)
              y = Relu (x)
              b = If (c) <
                then_branch = then () => (float[2, 3] t) {{ t = Abs (a) }},
                else_branch = else () => (float[2, 3] e) {{ e = Identity (x) }}
              >
            }}"
        )
    };
    let left = |output: &str| {
        let model = model(&text(output));
        let mut resolved = resolve(model, Registry::standard()).expect("the model can run");
        remove_dead(&mut resolved);
        operators(&resolved)
    };
    assert_eq!(left("b"), ["Neg If", "Abs", "Identity"]);
    assert_eq!(left("y"), ["Relu"]);
}

/// Checks FUNC-15-: directly or through others.
#[test]
fn functions_that_call_themselves_are_refused() {
    let function = |name: &str, callee: &str| {
        format!(
            "<domain: \"local\", opset_import: [\"\": 17, \"local\": 1]>
            {name} (x) => (y) {{ y = local.{callee} (x) }}"
        )
    };
    let refused = |functions: &[String]| {
        let text = format!(
            "<ir_version: 10, opset_import: [\"local\": 1]>
            g (float[2] x) => (float[2] y) {{ y = local.A (x) }} {}",
            functions.concat()
        );
        let findings = resolve(model(&text), Registry::standard()).err().unwrap_or_default();
        findings.iter().map(|found| found.code.name).collect::<Vec<_>>()
    };
    assert_eq!(refused(&[function("A", "A")]), ["recursive-function"]);
    assert_eq!(refused(&[function("A", "B"), function("B", "A")]), ["recursive-function"]);
    assert_eq!(refused(&[function("A", "Other")]), [""; 0], "an operator that is not known");
}

/// Checks the limit: thirty functions, each of which calls the next one twice, expand to a billion
/// nodes.
#[test]
fn functions_that_expand_to_too_many_nodes_are_refused() {
    let mut text = "<ir_version: 10, opset_import: [\"local\": 1]>
        g (float[2] x) => (float[2] y) { y = local.F0 (x) }"
        .to_string();
    for level in 0..30 {
        let next = level + 1;
        text += &format!(
            "<domain: \"local\", opset_import: [\"\": 17, \"local\": 1]>
            F{level} (x) => (y) {{ a = local.F{next} (x) y = local.F{next} (a) }}\n"
        );
    }
    text += "<domain: \"local\", opset_import: [\"\": 17]> F30 (x) => (y) { y = Neg (x) }";
    let mut resolved = resolve(model(&text), Registry::standard()).expect("no circle");
    let refused = expand_calls(&mut resolved, &mut Expansions::default());
    let fact = refused.expect_err("too many").remove(0).fact;
    assert!(fact.contains("more than 4194304 nodes"), "{fact}");
}

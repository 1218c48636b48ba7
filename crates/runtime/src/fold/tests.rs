//! Tests of which values of which graphs are constants.

use sardonyx_kernels::{Isa, Pool};
use sardonyx_model::NoExternalData;
use sardonyx_passes::InferOptions;
use sardonyx_tensor::Buffer;
use sardonyx_text::{ParseOptions, parse_model};

use super::*;
use crate::custom::CustomOperators;
use crate::expanded::{Expanded, expand};
use crate::weights::{Packer, SharedWeights};

/// Folds a model and lists the names of the values that became constants, by graph. Values of
/// functions end in a number.
fn fold_names(text: &str) -> Vec<String> {
    let text = Buffer::from_vec(text.as_bytes().to_vec());
    let model = parse_model(text, ParseOptions::default()).expect("the text is a model").model;
    let none = CustomOperators::default();
    let expanded = expand(&model, None, InferOptions::default(), &none, &[]);
    let expanded = expanded.expect("the model fits together");
    let Expanded { resolved, inference, .. } = expanded;
    let (shared, account) = (SharedWeights::default(), Account::new(None, 0));
    let mut constants =
        Constants::read(&resolved, &NoExternalData, &account, &shared).expect("constants");
    let lowering = Lowering {
        resolved: &resolved,
        inference: &inference,
        isa: Isa::detect(),
        precision: crate::Precision::Exact,
        exact_up_to: 0,
        weights: &Packer::new(&shared, &account, false),
        operators: &none,
        images: None,
    };
    let left =
        constants.fold(&resolved, &inference, &lowering, Pool::global(), true).expect("folds");
    let graph = |graph: &sardonyx_model::GraphId| {
        let model = resolved.model();
        let nodes = resolved.order_of(*graph).iter().filter(|node| !left.contains(node));
        let values = nodes.flat_map(|node| model.outputs(*node)).flatten();
        let values = values.filter(|value| constants.contains(**value));
        let names = values.map(|value| model.display(Some(model.value(*value).name)));
        let names: Vec<String> =
            names.map(|name| name.split("__").next().unwrap_or_default().to_string()).collect();
        names.join(" ")
    };
    resolved.graphs().iter().map(graph).collect()
}

#[test]
fn every_graph_is_folded() {
    let nodes = "p = Mul (half, root) q = Exp (p) y = Add (x, q)";
    let found = fold_names(&format!(
        "<ir_version: 10, opset_import: [\"\": 17, \"local\": 1]>
        g (float[2] x, bool c, int64 n) => (float[] y, float[] in_if, float[] in_loop, float[] called)
        <float half = {{0.5}}, float root = {{1.4142135}}>
        {{
          {nodes}
          in_if = If (c) <
            then_branch = then () => (float[] y) {{ {nodes} }},
            else_branch = else () => (float[] z) <float one = {{1}}> {{ z = Add (one, q) }}
          >
          in_loop = Loop (n, c, x) <body = body (int64 i, bool k, float[2] s) => (bool k, float[] y) {{
            {nodes}
          }}>
          called = local.F (x, half, root)
        }}
        <domain: \"local\", opset_import: [\"\": 17]>
        F (x, half, root) => (y) {{ {nodes} }}"
    ));
    assert_eq!(found, ["p q F/p F/q", "p q", "z", "p q"]);
}

/// Checks that a loop-carried value is not folded, as it differs in each iteration.
#[test]
fn what_a_loop_carries_is_no_constant() {
    let found = fold_names(
        "<ir_version: 10, opset_import: [\"\": 17]>
        g (bool c, int64 n) => (float[] y)
        <float one = {1}>
        {
          y = Loop (n, c, one) <body = body (int64 i, bool k, float[] s) => (bool k, float[] t) {
            t = Add (s, one)
          }>
        }",
    );
    assert_eq!(found, ["", ""]);
}

/// Checks that folding skips operators that the schema marks as random.
#[test]
fn random_numbers_are_not_folded() {
    let found = fold_names(
        "<ir_version: 10, opset_import: [\"\": 17]>
        g () => (float[] y, float[] z)
        <float[2] one = {1, 1}>
        { y = RandomNormalLike (one) z = Neg (one) }",
    );
    assert_eq!(found, ["z"]);
}

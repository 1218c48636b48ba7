//! Runs models before and after inlining, and compares results.

use std::collections::BTreeSet;

use sardonyx::edit::InlineOptions;
use sardonyx::tool::schema::{Determinism, Registry};
use sardonyx::value::Buffer;
use sardonyx::{Model, Session, Tensor, check};
use sardonyx_model as graph;
use sardonyx_runtime::has_kernel;

/// Makes a model with two inputs of six numbers each.
fn model(calls: &str, functions: &str) -> Model {
    let text = format!(
        "<ir_version: 10, opset_import: [\"\": 21, \"local\": 1]>
         g (float[2, 3] x, float[2, 3] z) => (float[?, ?] y) {{ {calls} }}
         {functions}"
    );
    Model::from_text(&text).unwrap()
}

fn function(text: &str) -> String {
    format!("<domain: \"local\", opset_import: [\"\": 21, \"local\": 1]> {text}\n")
}

/// Runs a model of [`model`], and returns the bits of `y`.
fn run(model: &Model) -> Vec<u32> {
    let x = Tensor::from_vec([2, 3], vec![-2.5f32, -1.0, 0.0, 0.5, 3.0, 40.0]).unwrap();
    let z = Tensor::from_vec([2, 3], vec![1.5f32, -2.0, 0.25, 8.0, -0.75, 2.0]).unwrap();
    let outputs =
        Session::new(model).unwrap().run([("x", x), ("z", z)], &Default::default()).unwrap();
    let values: Vec<f32> = outputs.tensor("y").unwrap().to_vec().unwrap();
    values.into_iter().map(f32::to_bits).collect()
}

/// Adds an empty `ref_attr_name` to each attribute that has a value.
fn with_empty_references(model: &Model) -> Model {
    let mut graph = graph::Model::read(Buffer::from_vec(model.to_bytes())).unwrap();
    let empty = graph.intern("");
    let nodes: Vec<_> = graph.graphs().flat_map(|(_, graph)| graph.nodes.clone()).collect();
    let ids: Vec<_> = nodes.iter().flat_map(|node| graph.attributes(*node).to_vec()).collect();
    let mut marked = 0;
    for id in ids {
        let attribute = graph.attribute_mut(id);
        if attribute.ref_attr_name().is_none() {
            attribute.set_ref_attr_name(empty, b"");
            marked += 1;
        }
    }
    for function in &mut graph.functions {
        for default in &mut function.attribute_protos {
            default.set_ref_attr_name(empty, b"");
            marked += 1;
        }
    }
    let bytes = graph.to_bytes();
    // Field 21 of length 0.
    assert_eq!(bytes.windows(3).filter(|field| *field == [0xaa, 1, 0]).count(), marked);
    Model::from_bytes(bytes).unwrap()
}

fn assert_sound(model: &Model) {
    let report = model.check(&check::CheckOptions::new());
    assert_eq!(report.errors, 0, "{:?}", report.findings);
}

/// Checks that inlining keeps the bits of results, for calls with various omitted operands and
/// attributes, and with and without an empty `ref_attr_name` in attributes that have a value.
/// FUNC-25+, FUNC-08+, FUNC-15+, FUNC-21+-, FUNC-22+-, FUNC-24+, FUNC-26+, FUNC-27+, ATTR-10+,
/// GRAPH-02+, GRAPH-31+, GRAPH-34+, NAME-13+, NODE-15+
#[test]
fn inlining_keeps_results() {
    let leaky = function(
        "leaky <slope: float = 0.5> (a) => (b) { b = LeakyRelu <alpha: float = @slope> (a) }",
    );
    let plain = function("plain <slope> (a) => (b) { b = LeakyRelu <alpha: float = @slope> (a) }");
    let clip = function("clip (a, low, high) => (b, c) { b = Clip (a, low, high) c = Neg (b) }");
    let choose = function(
        "choose <scale> (a) => (b) {
           sum = ReduceSum <keepdims = 0> (a)
           zero = Constant <value_float = 0.0> ()
           up = Greater (sum, zero)
           b = If (up) <
             then_branch = t () => (p) { s = Constant <value_float: float = @scale> () p = Mul (a, s) },
             else_branch = e () => (p) { p = Neg (a) }
           >
         }",
    );
    let deep =
        function("deep (a) => (b) { t = local.leaky <slope = 0.125> (a) b = local.plain (t) }");
    let same = function("same (a) => (a, a) { unused = Neg (a) }");
    // `deep` is defined before the functions that it calls.
    let all = [deep, leaky, plain, clip, choose].concat();
    let calls = [
        "y = local.leaky <slope = 0.25> (x)",
        "y = local.leaky (x)",
        "y = local.plain (x)",
        "low = Constant <value_float = -1.0> () y = local.clip (x, low)",
        "high = Constant <value_float = 1.0> () a, n = local.clip (x, , high) , y = local.clip (n, , high)",
        "y = local.choose <scale = 3.0> (x)",
        "a = local.deep (x) b = local.deep (z) y = Add (a, b)",
        "a, b = local.same (x) y, n = local.same (z)",
    ];
    for call in calls {
        // `same` apart from the others: a function without calls is kept, and its duplicate output
        // names would fail `assert_sound`.
        let functions = if call.contains("local.same") { &same } else { &all };
        let mut model = model(call, functions);
        let before = run(&model);
        let report = model.inline(&InlineOptions::new()).unwrap();
        assert!(report.functions.values().sum::<usize>() > 0, "{call}");
        let written = Model::from_bytes(model.to_bytes()).unwrap();
        assert_sound(&written);
        assert!(!written.to_text().contains("local."), "{call}");
        assert_eq!(run(&written), before, "{call}");

        let mut empty = with_empty_references(&self::model(call, functions));
        assert_eq!(run(&empty), before, "{call}");
        empty.inline(&InlineOptions::new()).unwrap();
        assert_eq!(run(&empty), before, "{call}");
    }
}

/// Checks that an attribute with neither value nor default is omitted from the inlined node, so
/// that the operator's default applies, not zero. FUNC-08+-
#[test]
fn an_attribute_without_value_is_left_out() {
    let functions = function("f <slope> (a) => (b) { b = LeakyRelu <alpha: float = @slope> (a) }");
    let mut called = model("y = local.f (x)", &functions);
    let operator = run(&model("y = LeakyRelu (x)", ""));
    assert_ne!(operator, run(&model("y = LeakyRelu <alpha = 0.0> (x)", "")));
    assert_eq!(run(&called), operator);
    called.inline(&InlineOptions::new()).unwrap();
    assert_eq!(run(&called), operator);
}

/// Operators that have both a kernel and a function body, nodes that compute `y` with them, and the
/// sizes of the float inputs `a`, `b` and `c`.
const CALLS: &[(&str, &[&str], &[&[usize]])] = &[
    (
        "Attention",
        &[
            "y = Attention (a, b, c)",
            "y = Attention <is_causal = 1, scale = 0.25> (a, b, c)",
            "y = Attention <softcap = 2.0> (a, b, c)",
        ],
        &[&[1, 2, 3, 4], &[1, 2, 5, 4], &[1, 2, 5, 4]],
    ),
    (
        "Attention",
        &["y = Attention <q_num_heads = 2, kv_num_heads = 1> (a, b, c)"],
        &[&[2, 3, 8], &[2, 5, 4], &[2, 5, 4]],
    ),
    ("Celu", &["y = Celu (a)", "y = Celu <alpha = 0.5> (a)"], ONE),
    (
        "Clip",
        &[
            "low = Constant <value_float = -1.0> () high = Constant <value_float = 0.5> () y = Clip (a, low, high)",
            "low = Constant <value_float = -1.0> () y = Clip (a, low)",
            "high = Constant <value_float = 0.5> () y = Clip (a, , high)",
            "y = Clip (a)",
        ],
        ONE,
    ),
    (
        "DynamicQuantizeLinear",
        &[
            "q, s, z = DynamicQuantizeLinear (a) t = Cast <to = 1> (q) y = Mul (t, s)",
            "q, s, z = DynamicQuantizeLinear (a) t = Cast <to = 1> (q) u = Cast <to = 1> (z) y = Sub (t, u)",
            // Inputs of only zeros, and of only NaN.
            "n = Sub (a, a) q, s, z = DynamicQuantizeLinear (n) t = Cast <to = 1> (q) y = Add (t, s)",
            "n = Sub (a, a) m = Div (n, n) q, s, z = DynamicQuantizeLinear (m)
             t = Cast <to = 1> (q) u = Cast <to = 1> (z) y = Add (t, u)",
        ],
        ONE,
    ),
    ("Elu", &["y = Elu (a)", "y = Elu <alpha = 0.5> (a)"], ONE),
    ("Gelu", &["y = Gelu (a)", "y = Gelu <approximate = \"tanh\"> (a)"], ONE),
    ("GreaterOrEqual", &["t = GreaterOrEqual (a, b) y = Cast <to = 1> (t)"], PAIR),
    (
        "GroupNormalization",
        &[
            "y = GroupNormalization <num_groups = 2> (a, b, c)",
            "y = GroupNormalization <num_groups = 1, epsilon = 0.5> (a, b, c)",
        ],
        &[&[2, 4, 3, 2], &[4], &[4]],
    ),
    ("HardSigmoid", &["y = HardSigmoid (a)", "y = HardSigmoid <alpha = 0.5, beta = 0.1> (a)"], ONE),
    ("HardSwish", &["y = HardSwish (a)"], ONE),
    (
        "LayerNormalization",
        &[
            "y = LayerNormalization (a, b)",
            "y = LayerNormalization <axis = -1, epsilon = 0.5> (a, b, c)",
            "t, y = LayerNormalization (a, b, c)",
            "t, u, y = LayerNormalization (a, b, c)",
        ],
        &[&[2, 3, 4], &[4], &[4]],
    ),
    ("LeakyRelu", &["y = LeakyRelu (a)", "y = LeakyRelu <alpha = -0.5> (a)"], ONE),
    ("LessOrEqual", &["t = LessOrEqual (a, b) y = Cast <to = 1> (t)"], PAIR),
    ("LogSoftmax", &["y = LogSoftmax (a)", "y = LogSoftmax <axis = 0> (a)"], ONE),
    (
        "MeanVarianceNormalization",
        &["y = MeanVarianceNormalization (a)", "y = MeanVarianceNormalization <axes = [0, 1]> (a)"],
        &[&[2, 2, 3, 2]],
    ),
    ("Mish", &["y = Mish (a)"], ONE),
    (
        "NegativeLogLikelihoodLoss",
        &[
            "t = Constant <value = int64[2] {2, 0}> () y = NegativeLogLikelihoodLoss (a, t)",
            "t = Constant <value = int64[2] {1, 0}> ()
             y = NegativeLogLikelihoodLoss <ignore_index = 1, reduction = \"none\"> (a, t)",
        ],
        &[&[2, 3]],
    ),
    ("PRelu", &["y = PRelu (a, b)"], PAIR),
    (
        "Range",
        &["first = ReduceSum <keepdims = 0> (a)
           seven = Constant <value_float = 7.0> ()
           step = Constant <value_float = 1.5> ()
           end = Add (first, seven)
           y = Range (first, end, step)"],
        &[&[3]],
    ),
    (
        "RMSNormalization",
        &["y = RMSNormalization (a, b)", "y = RMSNormalization <axis = 2, epsilon = 0.25> (a, b)"],
        &[&[2, 3, 4], &[4]],
    ),
    (
        "ReduceL1",
        &[
            "y = ReduceL1 (a)",
            "x = Constant <value_ints = [1]> () y = ReduceL1 <keepdims = 0> (a, x)",
        ],
        ONE,
    ),
    (
        "ReduceL2",
        &[
            "y = ReduceL2 (a)",
            "x = Constant <value_ints = [1]> () y = ReduceL2 <keepdims = 0> (a, x)",
        ],
        ONE,
    ),
    (
        "ReduceLogSum",
        &[
            "p = Abs (a) y = ReduceLogSum (p)",
            "p = Abs (a) x = Constant <value_ints = [0]> () y = ReduceLogSum <keepdims = 0> (p, x)",
        ],
        ONE,
    ),
    (
        "ReduceLogSumExp",
        &[
            "y = ReduceLogSumExp (a)",
            "x = Constant <value_ints = [-1]> () y = ReduceLogSumExp <keepdims = 0> (a, x)",
        ],
        ONE,
    ),
    (
        "ReduceSumSquare",
        &[
            "y = ReduceSumSquare (a)",
            "x = Constant <value_ints = [1]> () y = ReduceSumSquare <keepdims = 0> (a, x)",
            "y = ReduceSumSquare <noop_with_empty_axes = 1> (a)",
        ],
        ONE,
    ),
    ("Relu", &["y = Relu (a)"], ONE),
    (
        "RotaryEmbedding",
        &["y = RotaryEmbedding (a, b, c)", "y = RotaryEmbedding <interleaved = 1> (a, b, c)"],
        &[&[1, 2, 3, 4], &[1, 3, 2], &[1, 3, 2]],
    ),
    ("Selu", &["y = Selu (a)", "y = Selu <alpha = 2.0, gamma = 0.5> (a)"], ONE),
    ("Shrink", &["y = Shrink (a)", "y = Shrink <lambd = 0.75, bias = 0.25> (a)"], ONE),
    ("Softmax", &["y = Softmax (a)", "y = Softmax <axis = 0> (a)"], ONE),
    ("Softplus", &["y = Softplus (a)"], ONE),
    ("Softsign", &["y = Softsign (a)"], ONE),
    ("SwiGLU", &["y = SwiGLU (a, b)", "y = SwiGLU <alpha = 0.5> (a, b)"], &[&[2, 3], &[2, 3]]),
    ("Swish", &["y = Swish (a)", "y = Swish <alpha = 0.5> (a)"], ONE),
    (
        "ThresholdedRelu",
        &["y = ThresholdedRelu (a)", "y = ThresholdedRelu <alpha = 0.75> (a)"],
        ONE,
    ),
];

const ONE: &[&[usize]] = &[&[3, 4]];
const PAIR: &[&[usize]] = &[&[3, 4], &[3, 4]];

/// Runs a model with pseudorandom inputs between -2.5 and 2.5, and returns the numbers of `y`.
fn run_call(model: &Model, sizes: &[&[usize]]) -> Vec<f32> {
    let mut state = 1_u32;
    let mut inputs = Vec::new();
    for (name, dims) in ["a", "b", "c"].into_iter().zip(sizes) {
        let count = dims.iter().product();
        let values = std::iter::repeat_with(|| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 8) as f32 / (1 << 24) as f32 * 5.0 - 2.5
        });
        let values: Vec<f32> = values.take(count).collect();
        inputs.push((name, Tensor::from_vec(dims, values).unwrap()));
    }
    let outputs = Session::new(model).unwrap().run(inputs, &Default::default()).unwrap();
    outputs.tensor("y").unwrap().to_vec().unwrap()
}

/// Compares each kernel with the function body of its operator, within a tolerance for the rounding
/// in each node of the body. FUNC-04+, OPSET-26+
#[test]
fn kernels_agree_with_function_bodies() {
    let registry = Registry::standard();
    for (operator, calls, sizes) in CALLS {
        for call in *calls {
            let inputs = ["a", "b", "c"].into_iter().zip(*sizes);
            let inputs: Vec<String> =
                inputs.map(|(name, dims)| format!("float{dims:?} {name}")).collect();
            let (inputs, (_, newest)) = (inputs.join(", "), registry.versions("").unwrap());
            let text = format!(
                "<ir_version: 13, opset_import: [\"\": {newest}]> g ({inputs}) => (float y) {{ {call} }}"
            );
            let mut model = Model::from_text(&text).unwrap();
            let by_kernel = run_call(&model, sizes);
            let report = model.inline(&InlineOptions::new().operators([*operator])).unwrap();
            assert_eq!(report.operators[&(String::new(), operator.to_string())], 1, "{call}");
            assert_eq!(report.without_body, [], "{call}");
            assert_sound(&model);
            let by_body = run_call(&model, sizes);
            assert_eq!(by_kernel.len(), by_body.len(), "{call}");
            for (kernel, body) in by_kernel.iter().zip(&by_body) {
                let apart = (kernel - body).abs();
                assert!(apart <= 2e-6 * body.abs().max(1.0), "{call}: {kernel} {body}");
            }
        }
    }
}

/// Checks that `CALLS` has every deterministic operator with a kernel and a function body.
#[test]
fn all_kernels_that_have_bodies_are_compared() {
    let registry = Registry::standard();
    let mut with_both = BTreeSet::new();
    for schema in registry.schemas() {
        let (_, newest) = registry.versions(schema.domain).unwrap();
        let Some(op) = registry.op_ref(schema.domain, schema.name, newest) else { continue };
        // Random numbers cannot be compared.
        let is_deterministic = schema.determinism == Determinism::Deterministic;
        let has_body = !op.def.functions_of(op.schema.since).is_empty();
        let has_both = has_kernel(op) && has_body && is_deterministic;
        if has_both {
            with_both.insert(schema.name);
        }
    }
    let compared: BTreeSet<&str> = CALLS.iter().map(|(operator, ..)| *operator).collect();
    assert_eq!(compared, with_both);
}

/// Checks that a model is unchanged after inlining fails.
#[test]
fn failed_inlining_leaves_the_model_unchanged() {
    let functions = function("f (a) => (b) { b = Neg (a) }");
    let mut model = model("t = local.f (x) y = local.f (t, x)", &functions);
    let before = model.to_bytes();
    assert!(model.inline(&InlineOptions::new()).is_err());
    assert!(model.inline(&InlineOptions::new().limit(1).functions(["local.f"])).is_err());
    assert!(model.inline(&InlineOptions::new().functions(["local.g"])).is_err());
    assert_eq!(model.to_bytes(), before);
    let report = model.inline(&InlineOptions::new().keep_conflicting(true)).unwrap();
    assert_eq!((report.kept.len(), report.removed.len()), (1, 0));
    assert_eq!(model.functions().len(), 1, "a call of it is left");
}

/// Checks that an operator without a kernel runs by its function body, also after inlining, and
/// that a session fails for one without both. OPSET-27+-
#[test]
fn operators_without_kernels_run_by_their_functions() {
    let text = "<ir_version: 14, opset_import: [\"\": 28]>
        g (float[2, 3] x, float[2, 3] z) => (float[2, 2] y) {
            s = Constant <value = int64[2] {2, 2}> ()
            y = CenterCropPad (x, s)
        }";
    let mut crop = Model::from_text(text).unwrap();
    let before = run(&crop);
    let report = crop.inline(&InlineOptions::new().operators_without_kernel()).unwrap();
    assert_eq!(report.operators[&(String::new(), "CenterCropPad".to_string())], 1);
    assert_eq!(run(&crop), before);
    let mut unknown = model("y = local.Unknown (x)", "");
    assert!(Session::new(&unknown).is_err());
    unknown.inline(&InlineOptions::new().operators_without_kernel()).unwrap();
    assert_eq!(unknown.node_count(), 1, "nothing takes its place");
}

/// Checks that a node calls only the function with its domain, name and overload. FUNC-01-,
/// FUNC-02+-, FUNC-03-, GRAPH-04+-, MODEL-13+, NODE-07+-
#[test]
fn functions_are_distinguished_by_overload() {
    let [negated, absolute] = [("neg", "Neg"), ("abs", "Abs")].map(|(overload, body)| {
        format!(
            "<domain: \"local\", overload: \"{overload}\", opset_import: [\"\": 21]>
             f (a) => (b) {{ b = {body} (a) }}\n"
        )
    });
    let both = negated.clone() + &absolute;
    for (call, operator) in [("neg", "Neg"), ("abs", "Abs")] {
        let mut called = model(&format!("y = local.f:{call} (x)"), &both);
        let wanted = run(&model(&format!("y = {operator} (x)"), ""));
        assert_eq!(run(&called), wanted);
        called.inline(&InlineOptions::new()).unwrap();
        assert_eq!(run(&called), wanted);
    }
    for (call, functions) in [
        ("y = local.f (x)", both.clone()),
        ("y = local.f:other (x)", both.clone()),
        ("y = local.missing (x)", both),
    ] {
        let mut called = model(call, &functions);
        assert!(Session::new(&called).is_err(), "{call}");
        let report = called.inline(&InlineOptions::new()).unwrap();
        assert!(report.functions.is_empty(), "{call}");
    }
    let plain = function("f (a) => (b) { b = Neg (a) }");
    let aliases = ["", "ai.onnx"].map(|domain| {
        format!(
            "<domain: \"{domain}\", opset_import: [\"\": 21]> Mine (a) => (b) {{ b = Neg (a) }}\n"
        )
    });
    for (call, twice) in [
        ("y = local.f:neg (x)", negated.clone() + &negated),
        ("y = local.f (x)", plain.clone() + &plain),
        // Both domains mean `ai.onnx`.
        ("y = Mine (x)", aliases.concat()),
    ] {
        let mut called = model(call, &twice);
        assert!(Session::new(&called).is_err(), "{call}");
        assert!(called.inline(&InlineOptions::new()).is_err(), "{call}");
    }
}

/// Checks that a function may import `ai.onnx` by its name, and cannot use a domain without
/// importing it. OPSET-07+-, FUNC-10-
#[test]
fn bodies_import_what_they_use() {
    let body = |domain: &str| {
        format!(
            "<domain: \"local\", opset_import: [\"{domain}\": 21]> f (a) => (b) {{ b = Neg (a) }}"
        )
    };
    let mut called = model("y = local.f (x)", &body("ai.onnx"));
    let wanted = run(&model("y = Neg (x)", ""));
    assert_eq!(run(&called), wanted);
    called.inline(&InlineOptions::new()).unwrap();
    assert_eq!(run(&called), wanted);
    let called = model("y = local.f (x)", &body("ai.onnx "));
    let report = called.check(&check::CheckOptions::new());
    assert!(report.errors > 0);
    assert!(Session::new(&called).is_err());
}

/// Checks that an operator of the standard takes precedence over a model function with its domain
/// and name. FUNC-20+
#[test]
fn operators_of_the_standard_take_precedence() {
    let relu = |domain: &str| {
        format!(
            "<domain: \"{domain}\", opset_import: [\"\": 21]> Relu (a) => (b) {{ b = Neg (a) }}"
        )
    };
    assert_eq!(run(&model("y = Relu (x)", &relu(""))), run(&model("y = Relu (x)", "")));
    assert_eq!(run(&model("y = local.Relu (x)", &relu("local"))), run(&model("y = Neg (x)", "")));
}

/// Checks that the body of a function that imports another operator set version is converted, or
/// that inlining fails. FUNC-10+, FUNC-16+-
#[test]
fn functions_of_other_versions_are_converted() {
    let old = |version: u32, body: &str| {
        format!("<domain: \"local\", opset_import: [\"\": {version}]> f (a) => (b) {{ {body} }}")
    };
    // In version 12, Softmax normalizes over all axes from `axis` on together.
    let text = old(12, "t = Softmax (a) b = Softmax <axis = 0> (t)");
    let mut called = model("y = local.f (x)", &text);
    let before = run(&called);
    assert_ne!(run(&model("t = Softmax (x) y = Softmax <axis = 0> (t)", "")), before);
    let report = called.inline(&InlineOptions::new()).unwrap();
    assert_eq!(report.converted.len(), 1);
    assert_sound(&called);
    assert_eq!(run(&called), before);

    let text = old(6, "b = Dropout <is_test = 0> (a)");
    let mut called = model("y = local.f (x)", &text);
    let bytes = called.to_bytes();
    let refusal = called.inline(&InlineOptions::new()).unwrap_err().to_string();
    assert!(refusal.contains("Dropout"), "{refusal}");
    assert_eq!(called.to_bytes(), bytes);
}

/// Checks that attribute references in a subgraph that is an argument of a call mean the caller's
/// attributes, even if the callee has an attribute of the same name. FUNC-25+, FUNC-27+
#[test]
fn subgraph_arguments_keep_the_scope_of_the_caller() {
    let functions = [
        function(
            "outer <alpha> (a) => (b) {
               sum = ReduceSum <keepdims = 0> (a)
               zero = Constant <value_float = 0.0> ()
               up = Greater (sum, zero)
               b = local.hands_over <
                 alpha = 0.25, branch = g () => (p) { p = LeakyRelu <alpha: float = @alpha> (a) }
               > (up)
             }",
        ),
        function(
            "hands_over <alpha, branch> (c) => (b) {
               t = If (c) <then_branch: graph = @branch, else_branch: graph = @branch>
               b = LeakyRelu <alpha: float = @alpha> (t)
             }",
        ),
    ]
    .concat();
    let inlined = |options: InlineOptions| {
        let mut called = model("y = local.outer <alpha = 0.5> (x)", &functions);
        called.inline(&options).unwrap();
        run(&called)
    };
    let wanted = run(&model("y = LeakyRelu <alpha = 0.125> (x)", ""));
    assert_eq!(inlined(InlineOptions::new()), wanted);
    assert_eq!(inlined(InlineOptions::new().functions(["local.hands_over"])), wanted);
}

/// Checks that a function is converted to the version of each caller, and copied unchanged into
/// callers that import its own version. FUNC-10+, FUNC-16+
#[test]
fn each_caller_gets_a_function_in_its_version() {
    let in_version = |version: u32, text: &str| {
        format!("<domain: \"local\", opset_import: [\"\": {version}, \"local\": 1]> {text}\n")
    };
    let functions = [
        in_version(12, "same (a) => (b) { b = local.old (a) }"),
        in_version(21, "newer (a) => (b) { b = local.old (a) }"),
        in_version(12, "old (a) => (b) { b = Softmax <axis = 0> (a) }"),
    ]
    .concat();
    let mut called = model(
        "a = local.same (x) b = local.newer (a) c = local.old (b) y = Add (b, c)",
        &functions,
    );
    let before = run(&called);
    let report = called.inline(&InlineOptions::new().functions(["local.old"])).unwrap();
    assert_eq!(report.functions.values().sum::<usize>(), 3);
    assert_eq!((report.converted.len(), report.removed.len()), (1, 1));
    assert_eq!(run(&called), before);
    called.inline(&InlineOptions::new()).unwrap();
    assert_sound(&called);
    assert_eq!(run(&called), before);
}

/// Checks that function bodies of standard operators are converted to the version that the model
/// imports, with subgraphs of the node that capture values. OPSET-27+, FUNC-16+
#[test]
fn bodies_of_operators_fit_the_versions_of_the_model() {
    const SIZES: &[&[usize]] = &[&[1, 2, 3, 4], &[1, 2, 5, 4], &[1, 2, 5, 4]];
    let attention = "low = ReduceMin (a)
        y = ai.onnx.preview.FlexAttention <
          score_mod = s (x) => (t) { r = Mul (x, low) t = Tanh (r) },
          prob_mod = p (x) => (t) <float half = {0.5}> { t = Mul (x, half) }
        > (a, b, c)";
    let with_call = |opset: u32, call: &str| {
        let text = format!(
            "<ir_version: 8, opset_import: [\"\": {opset}, \"ai.onnx.preview\": 1]>
             g (float[1, 2, 3, 4] a, float[1, 2, 5, 4] b, float[1, 2, 5, 4] c) => (float y) {{ {call} }}"
        );
        Model::from_text(&text).unwrap()
    };
    let inlined = |opset: u32, call: &str, operator: &str| {
        let mut model = with_call(opset, call);
        let report = model.inline(&InlineOptions::new().operators([operator])).unwrap();
        assert_eq!(report.operators.values().sum::<usize>(), 1, "{opset}");
        assert_eq!(report.without_body, [], "{opset}");
        assert_sound(&model);
        model
    };
    let newest = run_call(&inlined(28, attention, "ai.onnx.preview.FlexAttention"), SIZES);
    for opset in 13..28 {
        let model = inlined(opset, attention, "ai.onnx.preview.FlexAttention");
        assert_eq!(run_call(&model, SIZES), newest, "{opset}");
    }
    // The body of DynamicQuantizeLinear uses ReduceMin, which changed in version 18. All versions
    // must compute what the kernel does.
    let quantize = "q, s, z = DynamicQuantizeLinear (a) t = Cast <to = 1> (q) y = Mul (t, s)";
    let newest = run_call(&with_call(28, quantize), SIZES);
    for opset in 11..=28 {
        let model = inlined(opset, quantize, "DynamicQuantizeLinear");
        assert_eq!(run_call(&model, SIZES), newest, "{opset}");
    }
}

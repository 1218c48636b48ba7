//! What is inlined computes the same, in the engine's hands before and after.
#![allow(clippy::unwrap_used)]

use sardonyx::inline::Options;
use sardonyx::{Model, Session, Tensor, check};

/// A model over a function of two inputs, which are six numbers each.
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

/// The bits of what comes out.
fn run(model: &Model) -> Vec<u32> {
    let tensor = |values: [f32; 6]| Tensor::from_vec([2, 3], values.to_vec()).unwrap();
    let x = tensor([-2.5, -1.0, 0.0, 0.5, 3.0, 40.0]);
    let z = tensor([1.5, -2.0, 0.25, 8.0, -0.75, 2.0]);
    let outputs = Session::new(model).unwrap().run([("x", x), ("z", z)]).unwrap();
    let values: Vec<f32> = outputs.tensor("y").unwrap().to_vec().unwrap();
    values.into_iter().map(f32::to_bits).collect()
}

fn assert_sound(model: &Model) {
    let report = model.check(&check::Options::new());
    assert_eq!(report.errors, 0, "{:?}", report.findings);
}

/// FUNC-25+, FUNC-08+, FUNC-15+, FUNC-21+-, FUNC-22+-, FUNC-24+, FUNC-26+, FUNC-27+, ATTR-10+,
/// GRAPH-02+, GRAPH-31+, GRAPH-34+, NAME-13+, NODE-15+: the same bits before and after, whatever
/// the call says and leaves out.
#[test]
fn results_stay() {
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
    let all = [leaky, plain, clip, choose, deep].concat();
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
        // One that nothing calls stays, and two outputs of one name are an error of its own.
        let functions = if call.contains("local.same") { &same } else { &all };
        let mut model = model(call, functions);
        let before = run(&model);
        let report = model.inline(&Options::new()).unwrap();
        assert!(report.functions.values().sum::<usize>() > 0, "{call}");
        let written = Model::from_bytes(model.to_bytes()).unwrap();
        assert_sound(&written);
        assert!(!written.to_text().contains("local."), "{call}");
        assert_eq!(run(&written), before, "{call}");
    }
}

/// FUNC-08+-: an attribute with neither value nor default is left out, so that the operator's own
/// default counts, and not zero.
#[test]
fn an_attribute_without_value_is_left_out() {
    let functions = function("f <slope> (a) => (b) { b = LeakyRelu <alpha: float = @slope> (a) }");
    let mut called = model("y = local.f (x)", &functions);
    let operator = run(&model("y = LeakyRelu (x)", ""));
    assert_ne!(operator, run(&model("y = LeakyRelu <alpha = 0.0> (x)", "")));
    assert_eq!(run(&called), operator);
    called.inline(&Options::new()).unwrap();
    assert_eq!(run(&called), operator);
}

/// FUNC-04+, OPSET-26+: a kernel and the body that the standard has for its operator agree.
#[test]
fn kernels_compute_what_bodies_say() {
    for (operator, call) in [
        ("Softsign", "y = Softsign (x)"),
        ("HardSwish", "y = HardSwish (x)"),
        ("ThresholdedRelu", "y = ThresholdedRelu <alpha = 0.75> (x)"),
        ("Shrink", "y = Shrink <lambd = 0.75, bias = 0.5> (x)"),
        ("PRelu", "y = PRelu (x, z)"),
        ("LessOrEqual", "b = LessOrEqual (x, z) y = Cast <to = 1> (b)"),
        ("ReduceSumSquare", "y = ReduceSumSquare (x)"),
    ] {
        let mut model = model(call, "");
        let by_kernel: Vec<f32> = run(&model).into_iter().map(f32::from_bits).collect();
        let report = model.inline(&Options::new().operators([operator])).unwrap();
        assert_eq!(report.operators[&(String::new(), operator.to_string())], 1);
        assert_sound(&model);
        let by_body: Vec<f32> = run(&model).into_iter().map(f32::from_bits).collect();
        for (kernel, body) in by_kernel.iter().zip(&by_body) {
            assert!(
                (kernel - body).abs() <= 1e-6 * body.abs().max(1.0),
                "{operator}: {kernel} {body}"
            );
        }
        assert_eq!(by_kernel.len(), by_body.len());
    }
}

/// A model that is refused is as it was.
#[test]
fn what_is_refused_stays() {
    let functions = function("f (a) => (b) { b = Neg (a) }");
    let mut model = model("t = local.f (x) y = local.f (t, x)", &functions);
    let before = model.to_bytes();
    assert!(model.inline(&Options::new()).is_err());
    assert!(model.inline(&Options::new().limit(1).only(["local.f"])).is_err());
    assert!(model.inline(&Options::new().only(["local.g"])).is_err());
    assert_eq!(model.to_bytes(), before);
    let report = model.inline(&Options::new().keep_conflicting(true)).unwrap();
    assert_eq!((report.kept.len(), report.removed.len()), (1, 0));
    assert_eq!(model.functions().len(), 1, "a call of it is left");
}

/// OPSET-27+-: what has no kernel runs as its function, and is inlined by that; what has neither is
/// refused.
#[test]
fn operators_without_kernels_are_their_functions() {
    let text = "<ir_version: 14, opset_import: [\"\": 28]>
        g (float[2, 3] x, float[2, 3] z) => (float[2, 3] y) { y = SwiGLU (x, z) }";
    let mut swish = Model::from_text(text).unwrap();
    let before = run(&swish);
    let report = swish.inline(&Options::new().operators_without_kernel()).unwrap();
    assert_eq!(report.operators[&(String::new(), "SwiGLU".to_string())], 1);
    assert_eq!(run(&swish), before);
    let mut unknown = model("y = local.Unknown (x)", "");
    assert!(Session::new(&unknown).is_err());
    unknown.inline(&Options::new().operators_without_kernel()).unwrap();
    assert_eq!(unknown.node_count(), 1, "nothing takes its place");
}

/// FUNC-01-, FUNC-02+-, FUNC-03-, GRAPH-04+-, MODEL-13+, NODE-07+-: a node calls the function of
/// its domain, name and overload, and no other.
#[test]
fn functions_are_told_apart_by_overload() {
    let function = |overload: &str, body: &str| {
        format!(
            "<domain: \"local\", overload: \"{overload}\", opset_import: [\"\": 21]>
             f (a) => (b) {{ b = {body} (a) }}\n"
        )
    };
    let (negated, doubled) = (function("neg", "Neg"), function("abs", "Abs"));
    let both = negated.clone() + &doubled;
    for (call, operator) in [("neg", "Neg"), ("abs", "Abs")] {
        let mut called = model(&format!("y = local.f:{call} (x)"), &both);
        let wanted = run(&model(&format!("y = {operator} (x)"), ""));
        assert_eq!(run(&called), wanted);
        called.inline(&Options::new()).unwrap();
        assert_eq!(run(&called), wanted);
    }
    for (call, functions) in [
        ("y = local.f (x)", both.clone()),
        ("y = local.f:other (x)", both.clone()),
        ("y = local.missing (x)", both),
    ] {
        let mut called = model(call, &functions);
        assert!(Session::new(&called).is_err(), "{call}");
        let report = called.inline(&Options::new()).unwrap();
        assert!(report.functions.is_empty(), "{call}");
    }
    let plain = self::function("f (a) => (b) { b = Neg (a) }");
    for (call, twice) in [
        ("y = local.f:neg (x)", negated.clone() + &negated),
        ("y = local.f (x)", plain.clone() + &plain),
    ] {
        let mut called = model(call, &twice);
        assert!(Session::new(&called).is_err(), "{call}");
        assert!(called.inline(&Options::new()).is_err(), "{call}");
    }
}

/// OPSET-07+-, FUNC-10-: a body may call the standard's domain by its name, but no domain that its
/// function does not import.
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
    called.inline(&Options::new()).unwrap();
    assert_eq!(run(&called), wanted);
    let called = model("y = local.f (x)", &body("ai.onnx "));
    let report = called.check(&check::Options::new());
    assert!(report.errors > 0);
    assert!(Session::new(&called).is_err());
}

/// FUNC-20+: in a domain of the standard an operator comes before a function of its name; in
/// another domain there is only the function.
#[test]
fn operators_of_the_standard_come_first() {
    let relu = |domain: &str| {
        format!(
            "<domain: \"{domain}\", opset_import: [\"\": 21]> Relu (a) => (b) {{ b = Neg (a) }}"
        )
    };
    assert_eq!(run(&model("y = Relu (x)", &relu(""))), run(&model("y = Relu (x)", "")));
    assert_eq!(run(&model("y = local.Relu (x)", &relu("local"))), run(&model("y = Neg (x)", "")));
}

/// FUNC-10+, FUNC-16+-: a function that imports another version means what it meant, or its call is
/// refused.
#[test]
fn functions_of_other_versions_are_converted() {
    let old = |version: u32, body: &str| {
        format!("<domain: \"local\", opset_import: [\"\": {version}]> f (a) => (b) {{ {body} }}")
    };
    // Version 12 takes all axes from 1 on together; twice, since one name may not come twice.
    let text = old(12, "t = Softmax (a) b = Softmax <axis = 0> (t)");
    let mut called = model("y = local.f (x)", &text);
    let before = run(&called);
    assert_ne!(run(&model("t = Softmax (x) y = Softmax <axis = 0> (t)", "")), before);
    let report = called.inline(&Options::new()).unwrap();
    assert_eq!(report.converted.len(), 1);
    assert_sound(&called);
    assert_eq!(run(&called), before);

    let text = old(6, "b = Dropout <is_test = 0> (a)");
    let mut called = model("y = local.f (x)", &text);
    let bytes = called.to_bytes();
    let refusal = called.inline(&Options::new()).unwrap_err().to_string();
    assert!(refusal.contains("Dropout"), "{refusal}");
    assert_eq!(called.to_bytes(), bytes);
}

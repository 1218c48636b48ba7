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

/// FUNC-25+, FUNC-08+, FUNC-21+, FUNC-22+, FUNC-26+, FUNC-27+: the same bits before and after,
/// whatever the call says and leaves out.
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
             else_branch = e () => (q) { q = Neg (a) }
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

/// FUNC-04+: a kernel and the body that the standard has for its operator agree.
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

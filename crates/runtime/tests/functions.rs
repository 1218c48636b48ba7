//! Tests of functions of a model, and of operators that are functions of others: they run as the
//! nodes of their bodies.

use sardonyx_model::{Model, NoExternalData};
use sardonyx_runtime::{CompileError, Options, Session, unsupported};
use sardonyx_tensor::{Buffer, Tensor, Value};
use sardonyx_text::{ParseOptions, parse_model};

fn model(text: &str) -> Model {
    let text = Buffer::from_vec(text.as_bytes().to_vec());
    parse_model(text, ParseOptions::default()).unwrap_or_else(|error| panic!("{error:?}")).model
}

fn session(text: &str) -> Result<Session, CompileError> {
    Session::compile(&model(text), &NoExternalData, &Options::with_threads(1))
}

/// Runs a model on `x`, of two dimensions.
fn run(text: &str, dims: [usize; 2], x: &[f32]) -> Vec<Vec<f32>> {
    let x = Value::Tensor(Tensor::from_slice(dims, x).unwrap());
    let outputs = session(text).unwrap().run(vec![("x".to_string(), x)]).unwrap();
    let numbers = outputs.into_iter().map(|(_, value)| match value {
        Value::Tensor(tensor) => tensor.to_vec::<f32>().unwrap(),
        other => panic!("{other:?}"),
    });
    numbers.collect()
}

/// Checks FUNC-08, FUNC-26, FUNC-28: attributes of the call, defaults, neither; functions that call
/// others, which come before them.
#[test]
fn functions_of_a_model_run() {
    let text = "<ir_version: 10, opset_import: [\"\": 17, \"local\": 1]>
        g (float[1, 2] x) => (float[1, 2] a, float[1, 2] b, float[1, 2] c, float[1, 2] x2, float[1, 2] d)
        {
          a = local.Scale <by = 3.0> (x)
          b = local.Scale (x)
          c, x2 = local.Both (x)
          d = local.Leaky (x)
        }
        <domain: \"local\", opset_import: [\"\": 17, \"local\": 1]>
        Both (v) => (w, v) {
          a = local.Scale <by = 2.0> (v)
          w = Add (a, v)
        }
        <domain: \"local\", opset_import: [\"\": 17]>
        Scale <by: float = 10.0> (v) => (w) {
          factor = Constant <value_float: float = @by> ()
          w = Mul (v, factor)
        }
        <domain: \"local\", opset_import: [\"\": 17]>
        Leaky <slope> (v) => (w) { w = LeakyRelu <alpha: float = @slope> (v) }";
    let expected = [[3.0, -6.0], [10.0, -20.0], [3.0, -6.0], [1.0, -2.0], [1.0, -0.02]];
    assert_eq!(run(text, [1, 2], &[1.0, -2.0]), expected);
}

/// Checks FUNC-21, FUNC-22: inputs that a call omits are absent in the body.
#[test]
fn inputs_and_outputs_may_be_left_out() {
    let text = "<ir_version: 10, opset_import: [\"\": 17, \"local\": 1]>
        g (float[1, 2] x) => (float[1, 2] both, float[1, 2] least, float[1, 2] most)
        <float low = {0.0}, float high = {1.0}>
        {
          both = local.Limit (x, low, high)
          least = local.Limit (x, low)
          most, = local.Limit (x, , high)
        }
        <domain: \"local\", opset_import: [\"\": 17]>
        Limit (v, a, b) => (w, unread) {
          w = Clip (v, a, b)
          unread = Neg (w)
        }";
    let text = text.replace("most, =", "most =");
    let expected = [[0.0, 1.0], [0.0, 5.0], [-5.0, 1.0]];
    assert_eq!(run(&text, [1, 2], &[-5.0, 5.0]), expected);
}

/// Checks FUNC-10+: the imports of a function decide the versions of its nodes. Before version 13
/// Softmax reduces all axes from `axis` on.
#[test]
fn nodes_of_a_function_have_its_versions() {
    let text = "<ir_version: 10, opset_import: [\"\": 17, \"local\": 1]>
        g (float[2, 2] x) => (float[2, 2] old, float[2, 2] new)
        {
          old = local.F (x)
          new = Softmax <axis = 0> (x)
        }
        <domain: \"local\", opset_import: [\"\": 11]>
        F (v) => (w) { w = Softmax <axis = 0> (v) }";
    let half = [0.5; 4];
    let quarter = [0.25; 4];
    assert_eq!(run(text, [2, 2], &[1.0; 4]), [quarter, half]);
}

/// Checks OPSET-27+: minus the logarithm of the softmax.
#[test]
fn an_operator_without_a_kernel_runs_as_its_function() {
    let text = "<ir_version: 10, opset_import: [\"\": 21]>
        g (float[1, 2] x) => (float[1] y) <int64[1] class = {1}>
        { y = SoftmaxCrossEntropyLoss <reduction = \"none\"> (x, class) }";
    let [y] = &run(text, [1, 2], &[0.0, 2.0])[..] else { panic!("one output") };
    assert!((y[0] - (-2.0f32).exp().ln_1p()).abs() < 1e-6, "{y:?}");
    let session = session(text).unwrap();
    let name = "SoftmaxCrossEntropyLoss";
    assert_eq!(session.report().expanded[&(String::new(), name.to_string())], 1);
    let places: Vec<_> = session.steps().into_iter().map(|step| step.place).collect();
    assert!(
        places
            .iter()
            .all(|place| place.contains(&format!("in the body of {name} node that makes 'y'"))),
        "{places:?}"
    );
}

#[test]
fn what_a_function_cannot_run_is_told_of_with_the_node_that_calls_it() {
    let text = "<ir_version: 10, opset_import: [\"\": 17, \"local\": 1]>
        g (float[1, 2] x) => (float[1, 2] y) { y = local.F (x) }
        <domain: \"local\", opset_import: [\"\": 17]>
        F (v) => (w) { u = Nonsense (v) w = Neg (u) }";
    let listed = unsupported(&model(text));
    let rows: Vec<_> = listed.iter().map(|op| (&*op.domain, &*op.name, &*op.why)).collect();
    let why = "its function uses Nonsense: operator not implemented";
    assert_eq!(rows, [("local", "F", why)]);
    let refused = session(text).unwrap_err();
    assert!(matches!(refused, CompileError::Unsupported(operators) if operators == listed));
}

/// Checks FUNC-23-: calls with a wrong number of inputs or outputs.
#[test]
fn a_call_that_does_not_fit_is_refused() {
    let function = "<domain: \"local\", opset_import: [\"\": 17]> F (v) => (w) { w = Neg (v) }";
    for (call, expected) in [
        ("y = local.F (x, x)", "the call has 2 inputs, but the function has 1"),
        ("y, z = local.F (x)", "the call has 2 outputs, but the function has 1"),
    ] {
        let text = format!(
            "<ir_version: 10, opset_import: [\"\": 17, \"local\": 1]>
            g (float[1, 2] x) => (float[1, 2] y) {{ {call} }} {function}"
        );
        let error = session(&text).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
}

/// Checks OPSET-27+: a node that cannot be upgraded to the form of its kernel runs as its body.
/// That of version 18 has a scale for each group, and the number of channels is unknown.
#[test]
fn what_cannot_be_upgraded_runs_as_its_body() {
    let text = |opset: u32, scale: &str| {
        format!(
            "<ir_version: 8, opset_import: [\"\": {opset}]> g (float[N, C] x) => (float[N, C] y) {{
               s = Constant <value_floats = [{scale}]> ()
               y = GroupNormalization <num_groups = 2> (x, s, s)
             }}"
        )
    };
    let x = [1.0, 2.0, 4.0, 8.0];
    let old = &run(&text(18, "2.0, 3.0"), [1, 4], &x)[0];
    let new = &run(&text(21, "2.0, 2.0, 3.0, 3.0"), [1, 4], &x)[0];
    for (old, new) in old.iter().zip(new) {
        assert!((old - new).abs() < 1e-5, "{old} {new}");
    }
}

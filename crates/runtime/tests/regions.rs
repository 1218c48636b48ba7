//! Tests of inner graphs: branches of `If` with constants, captures and errors of their own.

use std::cell::RefCell;

use sardonyx_model::{Model, NoExternalData};
use sardonyx_runtime::{
    CompileError, Options, RunError, RunOptions, Session, SharedWeights, StepEvent,
};
use sardonyx_tensor::{Bool8, Buffer, DataType, Tensor, TensorView, TensorViewMut, Value};
use sardonyx_text::{ParseOptions, parse_model};

fn model(text: &str) -> Model {
    let text = Buffer::from_vec(text.as_bytes().to_vec());
    parse_model(text, ParseOptions::default()).unwrap_or_else(|error| panic!("{error:?}")).model
}

fn session(text: &str, options: &Options) -> Session {
    Session::compile(&model(text), &NoExternalData, options).unwrap()
}

fn truth(value: bool) -> Tensor {
    Tensor::scalar(Bool8::from(value))
}

fn make_inputs(x: &Tensor, conditions: &[(&str, bool)]) -> Vec<(String, Value)> {
    let conditions =
        conditions.iter().map(|(name, value)| (name.to_string(), Value::Tensor(truth(*value))));
    std::iter::once(("x".to_string(), Value::Tensor(x.clone()))).chain(conditions).collect()
}

fn numbers(value: &Value) -> (Vec<usize>, Vec<f32>) {
    match value {
        Value::Tensor(tensor) => (tensor.dims().to_vec(), tensor.to_vec().unwrap()),
        other => panic!("{other:?}"),
    }
}

/// Graph of depth three, with branches of different shapes, captured values and constants of their
/// own.
const NESTED: &str = "<ir_version: 10, opset_import: [\"\": 21]>
    g (float[N, 2] x, bool a, bool b, bool c) => (float[M, 2] y)
    <float[2, 2] w = {1, 2, 3, 4}, float[2] one = {1, 1}>
    {
      h = MatMul (x, w)
      y = If (a) <
        then_branch = shallow () => (float[M, 2] t) { t = Add (h, one) },
        else_branch = first () => (float[M, 2] e) {
          two = Concat <axis = 0> (h, x)
          e = If (b) <
            then_branch = second () => (float[M, 2] u) { u = MatMul (two, w) },
            else_branch = third () => (float[M, 2] v) <float[2] ten = {10, 10}> {
              far = Mul (two, ten)
              v = If (c) <
                then_branch = deep () => (float[M, 2] p) { p = Sub (far, two) },
                else_branch = deeper () => (float[M, 2] q) { q = Identity (h) }
              >
            }
          >
        }
      >
    }";

#[test]
fn branches_run_three_deep() {
    let x = Tensor::from_slice([1, 2], &[1f32, -1.0]).unwrap();
    // h = [-2, -2]; two = [h, x].
    let rows: [([bool; 3], &[usize], &[f32]); 4] = [
        ([true, false, false], &[1, 2], &[-1.0, -1.0]),
        ([false, true, false], &[2, 2], &[-8.0, -12.0, -2.0, -2.0]),
        ([false, false, true], &[2, 2], &[-18.0, -18.0, 9.0, -9.0]),
        ([false, false, false], &[1, 2], &[-2.0, -2.0]),
    ];
    for threads in [1, 3] {
        let session = session(NESTED, &Options::with_threads(threads));
        // Twice, to reuse memory of inner graphs.
        for ([a, b, c], dims, expected) in rows.iter().chain(&rows) {
            let inputs = make_inputs(&x, &[("a", *a), ("b", *b), ("c", *c)]);
            let outputs = session.run(inputs).unwrap();
            let (is, found) = numbers(&outputs[0].1);
            assert_eq!((&is[..], &found[..]), (*dims, *expected), "{a} {b} {c}");
        }
    }
}

#[test]
fn a_captured_constant_is_packed_once() {
    let size = 64;
    let w: Vec<String> = (0..size * size).map(|i| format!("{}", i % 7)).collect();
    let text = format!(
        "<ir_version: 10, opset_import: [\"\": 21]>
        g (float[N, {size}] x, bool c) => (float[N, {size}] y)
        <float[{size}, {size}] w = {{{}}}>
        {{
          h = MatMul (x, w)
          y = If (c) <
            then_branch = yes () => (float[N, {size}] t) {{ t = MatMul (h, w) }},
            else_branch = no () => (float[N, {size}] e) {{ e0 = Neg (h) e = MatMul (e0, w) }}
          >
        }}",
        w.join(", ")
    );
    let weights = SharedWeights::default();
    let mut options = Options::with_threads(1);
    options.weights = weights.clone();
    let session = session(&text, &options);
    assert_eq!(weights.in_use(), 1, "three products read the same panels");
    let report = session.report();
    assert_eq!((report.packed, report.packed_bytes), (1, size * size * 4));
    let x = Tensor::from_slice([1, size], &vec![1f32; size]).unwrap();
    let run = |c| numbers(&session.run(make_inputs(&x, &[("c", c)])).unwrap()[0].1).1;
    let negated: Vec<f32> = run(false).iter().map(|number| -number).collect();
    assert_eq!(run(true), negated);
}

#[test]
fn errors_and_steps_lead_through_the_branches() {
    let text = "<ir_version: 10, opset_import: [\"\": 21]>
        g (float[2] x, int64[K] at, bool c) => (float[L] y)
        {
          y = If <then_branch = yes () => (float[L] t) { t = Gather (x, at) },
                  else_branch = no () => (float[L] e) { e = Identity (x) }> (c)
        }";
    let session = session(text, &Options::with_threads(1));
    let x = Tensor::from_slice([2], &[1f32, 2.0]).unwrap();
    let mut inputs = make_inputs(&x, &[("c", true)]);
    inputs.push(("at".to_string(), Value::Tensor(Tensor::from_slice([1], &[5i64]).unwrap())));
    let place = "Gather node that makes 't' in graph 'yes' in If node that makes 'y'";
    match session.run(inputs.clone()) {
        Err(RunError::Node(error)) => assert_eq!(error.place(), place),
        other => panic!("{other:?}"),
    }
    let steps = session.steps();
    let found: Vec<&str> = steps.iter().map(|step| step.op).collect();
    assert_eq!(found, ["If", "Gather"]);
    assert_eq!(steps[1].place, place);
    // Steps of a branch are reported before the enclosing step ends.
    inputs[2].1 = Value::Tensor(Tensor::from_slice([1], &[1i64]).unwrap());
    let numbers = RefCell::new(Vec::new());
    let watch = |event: StepEvent| numbers.borrow_mut().push(event.step);
    session.run_with(inputs, &RunOptions::new().watch(&watch)).unwrap();
    assert_eq!(numbers.into_inner(), [1, 0]);
    assert_eq!(session.details(&[None, None, None]).unwrap().steps.len(), steps.len());
}

#[test]
fn outputs_of_branches_go_where_the_caller_wants_them() {
    let session = session(
        "<ir_version: 10, opset_import: [\"\": 21]>
        g (float[2] x, bool c) => (float[2] y, float[2] z)
        {
          h = Abs (x)
          y, z = If (c) <
            then_branch = yes () => (float[2] i, float[2] own) <float[2] own = {5, 6}> { i = Identity (h) },
            else_branch = no () => (float[2] a, float[2] a) { a = Exp (h) }
          >
        }",
        &Options::with_threads(1),
    );
    let x = Tensor::from_slice([2], &[0f32, 0.0]).unwrap();
    for (condition, expected) in [(true, [[0.0, 0.0], [5.0, 6.0]]), (false, [[1.0, 1.0]; 2])] {
        let (mut y, mut z) = ([9f32; 2], [9f32; 2]);
        let condition = truth(condition);
        let inputs: [(&str, TensorView<'_>); 2] = [("x", x.view()), ("c", condition.view())];
        let outputs: &mut [(&str, TensorViewMut<'_>)] = &mut [
            ("y", TensorViewMut::from_slice([2], &mut y).unwrap()),
            ("z", TensorViewMut::from_slice([2], &mut z).unwrap()),
        ];
        session.run_into(&inputs, outputs).unwrap();
        assert_eq!([y, z], expected);
    }
}

#[test]
fn a_condition_is_one_bool() {
    let session = session(
        "<ir_version: 10, opset_import: [\"\": 21]>
        g (float[2] x, bool[K] c) => (float[2] y)
        {
          y = If <then_branch = yes () => (float[2] t) { t = Neg (x) },
                  else_branch = no () => (float[2] e) { e = Exp (x) }> (c)
        }",
        &Options::with_threads(1),
    );
    let x = Tensor::from_slice([2], &[0f32, 0.0]).unwrap();
    let run = |conditions: &[bool]| {
        let conditions: Vec<Bool8> = conditions.iter().map(|c| Bool8::from(*c)).collect();
        let conditions = Tensor::from_slice([conditions.len()], &conditions).unwrap();
        session.run(vec![
            ("x".to_string(), Value::Tensor(x.clone())),
            ("c".to_string(), Value::Tensor(conditions)),
        ])
    };
    assert_eq!(numbers(&run(&[false]).unwrap()[0].1).1, [1.0, 1.0]);
    for wrong in [&[][..], &[true, false]] {
        match run(wrong) {
            Err(RunError::Node(error)) => {
                assert_eq!(
                    error.what,
                    format!("the condition must be one bool, not [{}]", wrong.len())
                )
            }
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn memory_of_inner_graphs_counts() {
    let text = "<ir_version: 10, opset_import: [\"\": 21]>
        g (float[1000] x, bool c) => (float[1] y)
        {
          y = If <then_branch = yes () => (float[1] t) {
                    a = Exp (x) b = Concat <axis = 0> (a, a, a, a) t = ReduceSum <keepdims = 1> (b) },
                  else_branch = no () => (float[1] e) { e = ReduceSum <keepdims = 1> (x) }> (c)
        }";
    let x = Tensor::from_slice([1000], &[0.5f32; 1000]).unwrap();
    let limited = |limit: usize| {
        let mut options = Options::with_threads(1);
        options.memory_limit = Some(limit);
        session(text, &options)
    };
    let enough = limited(1 << 20);
    assert!(enough.run(make_inputs(&x, &[("c", true)])).is_ok());
    let little = limited(10_000);
    assert!(little.run(make_inputs(&x, &[("c", false)])).is_ok());
    match little.run(make_inputs(&x, &[("c", true)])) {
        Err(RunError::Node(error)) => assert!(error.what.contains("memory"), "{error}"),
        other => panic!("{other:?}"),
    }
}

/// Checks that the sizes of inputs which only one branch reads are compared with others as that
/// branch is taken.
#[test]
fn sizes_of_inputs_of_other_branches_need_not_agree() {
    let text = |ty: &str, no: &str| {
        format!(
            "<ir_version: 10, opset_import: [\"\": 21]>
            g (bool c, float[N] m, float[N] x, float[{ty}] y, float[B, N] z) => (float[K] a)
            {{
              a = If (c) <
                then_branch = yes () => (float[N] t) {{
                  axis = Constant <value_ints = [0]> ()
                  p = ReduceSum <keepdims = 0> (z, axis)
                  q = Add (x, p)
                  t = Add (q, m)
                }},
                else_branch = no () => (float[M] e) {{ {no} }}>
            }}"
        )
    };
    let zeros = |dims: &[usize]| Tensor::zeros(DataType::Float, dims).unwrap();
    let given = |c: bool, [m, x, y]: [usize; 3], z: [usize; 2]| {
        let tensors =
            [("m", zeros(&[m])), ("x", zeros(&[x])), ("y", zeros(&[y])), ("z", zeros(&z))];
        let named = tensors.map(|(name, tensor)| (name.to_string(), Value::from(tensor)));
        let condition = ("c".to_string(), Value::from(truth(c)));
        std::iter::once(condition).chain(named).collect::<Vec<_>>()
    };
    let run = |session: &Session, c, sizes, z| {
        let outputs = session.run(given(c, sizes, z)).map_err(|error| error.to_string());
        outputs.map(|outputs| numbers(&outputs[0].1).0)
    };
    // Two branches, and `m` in one of them or in both.
    for (no, is_in_both) in [("e = Neg (y)", false), ("e = Add (y, m)", true)] {
        let m = |x, y| if is_in_both { y } else { x };
        let session = session(&text("N", no), &Options::with_threads(1));
        for _ in 0..2 {
            assert_eq!(run(&session, true, [3, 3, 3], [2, 3]).unwrap(), [3]);
            assert_eq!(run(&session, true, [3, 3, 0], [2, 3]).unwrap(), [3]);
            assert_eq!(run(&session, false, [m(0, 5), 0, 5], [2, 0]).unwrap(), [5]);
            assert_eq!(run(&session, false, [m(2, 5), 2, 5], [0, 2]).unwrap(), [5]);
        }
        // Inputs of one branch must agree, taken or not.
        let error = run(&session, false, [m(3, 5), 3, 5], [2, 4]).unwrap_err();
        assert!(error.contains("so N is 4, but N is 3 for the input"), "{error}");
    }
    // Both branches read `m`, so the inputs of the one that is taken must agree with it.
    let both = session(&text("N", "e = Add (y, m)"), &Options::with_threads(1));
    let expected = "the inputs do not fit the branch: N is 5 for the input 'm' and 3 for 'x'";
    let error = run(&both, true, [5, 3, 5], [2, 3]).unwrap_err();
    assert!(error.contains(expected), "{error}");
    // Even if the operator would accept it.
    let error = run(&both, false, [5, 5, 1], [2, 5]).unwrap_err();
    assert!(error.contains("N is 5 for the input 'm' and 1 for 'y'"), "{error}");
    // A fixed size applies to all inputs.
    let mut fixed = Options::with_threads(1);
    fixed.dims = vec![("N".to_string(), 3)];
    let fixed = session(&text("N", "e = Neg (y)"), &fixed);
    assert!(run(&fixed, true, [3, 3, 0], [2, 3]).is_err());
}

/// Checks GRAPH-21-, GRAPH-22-, GRAPH-31-, GRAPH-39-: bodies receive values by position, and inner
/// values are not visible outside.
#[test]
fn graphs_that_do_not_fit_their_node_are_refused() {
    let cases = [
        // A constant occupies the only position for the value of the loop.
        (
            "<ir_version: 3, opset_import: [\"\": 8]>
         g (int64 n, bool c, float[2] x) => (float[2] y) {
           y = Loop <body = step (int64 i, bool go, float[2] a) => (bool go, float[2] b)
             <float[2] a = {1, 2}> { b = Neg (a) }> (n, c, x)
         }",
            "is an initializer, but the node passes a value",
        ),
        // A constant precedes the value of the loop.
        (
            "<ir_version: 3, opset_import: [\"\": 8]>
         g (int64 n, bool c, float[2] x) => (float[2] y) {
           y = Loop <body = step (int64 i, bool go, float[2] w, float[2] a) => (bool go, float[2] b)
             <float[2] w = {1, 2}> { b = Add (a, w) }> (n, c, x)
         }",
            "the graph has 4 inputs, but the node passes 3",
        ),
        // A value of a branch is read outside of it.
        (
            "<ir_version: 10, opset_import: [\"\": 21]>
         g (bool c, float[N] x) => (float[N] y) {
           r = If (c) <then_branch = yes () => (t) { hidden = Neg (x) t = Abs (hidden) },
                       else_branch = no () => (e) { e = Identity (x) }>
           y = Add (r, hidden)
         }",
            "'hidden', is not defined",
        ),
        // A branch has no inputs.
        (
            "<ir_version: 10, opset_import: [\"\": 21]>
         g (bool c, float[N] x) => (float[N] y) {
           y = If (c) <then_branch = yes (a) => (t) { t = Neg (a) },
                       else_branch = no () => (e) { e = Abs (x) }>
         }",
            "the graph has 1 inputs, but the node passes 0",
        ),
        // A loop of one value passes three to its body.
        (
            "<ir_version: 10, opset_import: [\"\": 21]>
         g (int64 n, float[N] x) => (float[N] y) {
           y = Loop (n, , x) <body = step (int64 i, float[N] a) => (bool go, float[N] b) {
             go = Constant <value = bool {1}> () b = Neg (a) }>
         }",
            "the graph has 2 inputs, but the node passes 3",
        ),
    ];
    for (text, expected) in cases {
        let options = Options::with_threads(1);
        match Session::compile(&model(text), &NoExternalData, &options) {
            Err(CompileError::Invalid(findings)) => {
                let facts: Vec<&str> = findings.iter().map(|found| found.fact.as_str()).collect();
                assert!(facts.len() == 1 && facts[0].contains(expected), "{facts:?}");
            }
            other => panic!("{other:?}\n{text}"),
        }
    }
}

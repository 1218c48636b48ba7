//! Runs models with operators and functions that a program adds, from building a session to its
//! outputs.

use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use sardonyx::ops::{CustomOperator, NodeTypes, OperatorCall, OperatorError, RuleAnswer};
use sardonyx::run::Optimization;
use sardonyx::tool::schema::{
    Arity, AttrDefault, AttrType, Attribute, Differentiability, Param, Schema,
};
use sardonyx::tool::{SessionBuilderExt, SessionExt};
use sardonyx::value::Opaque;
use sardonyx::{
    Error, ErrorKind, Model, Outputs, RunOptions, Session, SessionBuilder, Tensor, Type, Value,
};

fn model(text: &str) -> Model {
    let head =
        "<ir_version: 10, opset_import: [\"\": 21, \"com.example\": 3, \"com.microsoft\": 1]>";
    Model::from_text(&format!("{head} {text}")).expect("the text is a model")
}

fn x() -> Tensor {
    Tensor::from_vec([2], vec![1f32, -2.0]).expect("a vector")
}

fn run(session: &Session) -> Outputs {
    session.run([("x", x())], &RunOptions::default()).expect("the model runs")
}

fn numbers(outputs: &Outputs, name: &str) -> Vec<f32> {
    outputs.tensor(name).expect("a tensor").to_vec::<f32>().expect("of float")
}

fn build_error(builder: SessionBuilder<'_>) -> Error {
    builder.build().expect_err("no session")
}

/// Operator that adds the attribute `by` (1 by default) to each element, and counts its runs.
struct Plus {
    runs: Arc<AtomicUsize>,
    is_deterministic: bool,
}

impl Plus {
    fn new() -> Plus {
        Plus { runs: Arc::default(), is_deterministic: true }
    }
}

impl CustomOperator for Plus {
    fn run(&self, call: &mut OperatorCall<'_, '_>) -> Result<(), OperatorError> {
        self.runs.fetch_add(1, Ordering::Relaxed);
        let by = call.attributes().float("by").ok_or("no 'by'")?;
        let dims = call.dims(0)?.to_vec();
        let x = call.slice::<f32>(0)?;
        let y = call.output_slice::<f32>(0, &dims)?;
        y.iter_mut().zip(x).for_each(|(y, x)| *y = x + by);
        Ok(())
    }

    fn infer(&self, node: &mut NodeTypes<'_, '_>) -> RuleAnswer {
        match node.input(0) {
            Some(Type::Tensor(x)) => {
                let x = Type::Tensor(x.clone());
                node.set_output(0, x);
                RuleAnswer::Inferred
            }
            Some(other) => RuleAnswer::Misfit(format!("x is {other}, which has no elements")),
            None => RuleAnswer::NoRule,
        }
    }

    fn schema(&self) -> Option<Schema> {
        let param = |name| Param {
            name,
            ty: "tensor(float)",
            arity: Arity::Single,
            differentiability: Differentiability::Unknown,
        };
        Some(Schema {
            inputs: vec![param("x")],
            outputs: vec![param("y")],
            attributes: vec![Attribute {
                name: "by",
                ty: AttrType::Float,
                required: false,
                default: Some(AttrDefault::Float(1.0)),
            }],
            ..Schema::new("", "", 2)
        })
    }

    fn is_deterministic(&self) -> bool {
        self.is_deterministic
    }
}

/// Runs an operator of the program's own operator set in the main graph, in a subgraph and in a
/// function. MODEL-19+
#[test]
fn an_operator_of_the_program_runs_in_every_graph() {
    let model = model(
        "g (float[N] x) => (float[N] a, float[N] b, float[N] c) {
            a = com.example.Plus (x)
            yes = Constant <value = bool {1}> ()
            n = Constant <value = int64 {3}> ()
            b = Loop (n, yes, x) <
              body = iteration (int64 i, bool d, float[N] v) => (bool d, float[N] w) {
                w = com.example.Plus <by = 10.0> (v)
              }>
            c = com.example.Both (x)
         }
         <domain: \"com.example\", opset_import: [\"\": 21, \"com.example\": 3]>
         Both (x) => (y) { z = com.example.Plus <by = 0.5> (x) y = com.example.Plus (z) }",
    );
    let session = Session::builder(&model).operator("com.example", "Plus", Plus::new());
    let outputs = run(&session.build().expect("a session"));
    assert_eq!(numbers(&outputs, "a"), [2.0, -1.0]);
    assert_eq!(numbers(&outputs, "b"), [31.0, 28.0]);
    assert_eq!(numbers(&outputs, "c"), [2.5, -0.5]);
}

/// Checks that a session needs the operator, the import of its domain and its version. MODEL-19-,
/// MODEL-04-
#[test]
fn a_session_needs_the_operator_and_its_import() {
    let text = "g (float[N] x) => (float[N] y) { y = com.example.Plus (x) }";
    let known = model(text);
    let error = build_error(Session::builder(&known));
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert_eq!(error.unsupported_operators()[0].name, "Plus");
    let stranger = Model::from_text(&format!("<ir_version: 10, opset_import: [\"\": 21]> {text}"));
    let stranger = stranger.expect("the text is a model");
    let error =
        build_error(Session::builder(&stranger).operator("com.example", "Plus", Plus::new()));
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(error.to_string().contains("does not import"), "{error}");
    // The registered operator has version 2, and the model imports version 1.
    let old =
        Model::from_text(&format!("<ir_version: 10, opset_import: [\"com.example\": 1]> {text}"));
    let old = old.expect("the text is a model");
    let error = build_error(Session::builder(&old).operator("com.example", "Plus", Plus::new()));
    assert_eq!(error.kind(), ErrorKind::Unsupported);
}

#[test]
fn a_node_that_the_schema_or_the_rule_does_not_allow_is_refused() {
    let cases = [
        ("y = com.example.Plus (x, x)", "2"),
        ("y = com.example.Plus <bye = 1.0> (x)", "did you mean 'by'?"),
        ("y = com.example.Plus <by = 1> (x)", "'by' to be a float"),
        ("s = SequenceConstruct (x) y = com.example.Plus (s)", "x is seq(float[N]), which"),
    ];
    for (nodes, wanted) in cases {
        let model = model(&format!("g (float[N] x) => (y) {{ {nodes} }}"));
        let error =
            build_error(Session::builder(&model).operator("com.example", "Plus", Plus::new()));
        assert_eq!(error.kind(), ErrorKind::Invalid, "{nodes}");
        assert!(format!("{error}").contains(wanted), "{nodes}: {error}");
    }
    let relu = model("g (float[N] x) => (float[N] y) { y = Relu (x) }");
    let error = build_error(Session::builder(&relu).operator("", "Relu", Plus::new()));
    assert!(error.to_string().contains("'Relu' of the domain 'ai.onnx'"), "{error}");
}

/// Checks that a deterministic operator of constants runs once, when the session is built, and
/// another one in each run.
#[test]
fn only_deterministic_operators_are_folded() {
    let model = model(
        "g (float[N] x) => (float[N] y) <float[2] w = {1, 2}> {
            a = com.example.Plus (w)
            b = com.example.Plus (w)
            s = Add (a, b)
            y = Add (x, s)
         }",
    );
    for (is_deterministic, made, each) in [(true, 1, 0), (false, 0, 2)] {
        let plus = Plus { is_deterministic, ..Plus::new() };
        let runs = Arc::clone(&plus.runs);
        let session = Session::builder(&model).operator("com.example", "Plus", plus);
        let session = session.build().expect("a session");
        assert_eq!(runs.swap(0, Ordering::Relaxed), made);
        assert_eq!(numbers(&run(&session), "y"), [5.0, 4.0]);
        run(&session);
        assert_eq!(runs.load(Ordering::Relaxed), 2 * each);
    }
}

/// Checks that outputs of a closure, which has no type inference, have the types that the model
/// declares, and that the next operator is unsupported without a declaration.
#[test]
fn declared_types_replace_missing_inference() {
    let double = |call: &mut OperatorCall<'_, '_>| {
        let x = call.slice::<f32>(0)?;
        let y = call.output_slice::<f32>(0, &[x.len()])?;
        y.iter_mut().zip(x).for_each(|(y, x)| *y = 2.0 * x);
        Ok(())
    };
    let text = |info| {
        let graph = "{ d = com.example.Double <whatever = 3> (x) y = Relu (d) }";
        format!("g (float[N] x) => (float[K] y) {info} {graph}")
    };
    let declared = model(&text("<float[K] d>"));
    let session = Session::builder(&declared).operator("com.example", "Double", double);
    assert_eq!(numbers(&run(&session.build().expect("a session")), "y"), [2.0, 0.0]);
    let bare = model(&text(""));
    let error = build_error(Session::builder(&bare).operator("com.example", "Double", double));
    assert_eq!(error.unsupported_operators()[0].name, "Relu");
}

#[test]
fn errors_of_an_operator_name_its_node() {
    let model = model(
        "g (float[N] x) => (float[N] y) { [bad] y = com.example.Bad <kind = \"K\"> (x) }"
            .replace("K", "some")
            .as_str(),
    );
    let run_with = |how: fn(&mut OperatorCall<'_, '_>) -> Result<(), OperatorError>| {
        let session = Session::builder(&model).operator("com.example", "Bad", how);
        let session = session.build().expect("a session");
        let error = session.run([("x", x())], &RunOptions::default()).expect_err("the run fails");
        assert_eq!(error.kind(), ErrorKind::Run);
        error.to_string()
    };
    let error = run_with(|_| Err("no luck".into()));
    assert!(error.contains("no luck") && error.contains("bad"), "{error}");
    let error = run_with(|_| Ok(()));
    assert!(error.contains("did not write output 0"), "{error}");
    let error = run_with(|call| call.slice::<i64>(0).map(|_| ()));
    assert!(error.contains("int64") && error.contains("float"), "{error}");
    let error = run_with(|call| call.tensor(3).map(|_| ()));
    assert!(error.contains("input 3 is missing"), "{error}");
    let error = run_with(|call| call.value(0).map(|_| ()));
    assert!(error.contains("input 0 is a tensor, float[2]"), "{error}");
    let error = run_with(|call| call.set_output(0, Tensor::scalar(1i64)));
    assert!(error.contains("output 0 is int64[], but declared as float[N]"), "{error}");
    let error = run_with(|call| call.set_output(0, Tensor::scalar(1f32)));
    assert!(error.contains("output 0 is float[], but declared as float[N]"), "{error}");
}

/// Checks precedence: functions of the session override those of the model, and operators of the
/// program override both, and operators of ONNX Runtime too.
#[test]
fn operators_of_the_program_take_precedence() {
    let text = "g (float[N] x) => (float[N] y) { y = com.example.F (x) }
        <domain: \"com.example\", opset_import: [\"\": 21]> F (x) => (y) { y = Neg (x) }";
    let of_model = model(text);
    let function =
        "<domain: \"com.example\", opset_import: [\"\": 21]> F (x) => (y) { y = Abs (x) }";
    let built = |builder: SessionBuilder<'_>| numbers(&run(&builder.build().expect("built")), "y");
    assert_eq!(built(Session::builder(&of_model)), [-1.0, 2.0]);
    let with_function = Session::builder(&of_model).function(function);
    assert_eq!(built(with_function.clone()), [1.0, 2.0]);
    assert_eq!(built(with_function.operator("com.example", "F", Plus::new())), [2.0, -1.0]);
    let error = build_error(Session::builder(&of_model).function("F (x) => (y) {"));
    assert_eq!(error.kind(), ErrorKind::Format);

    let of_microsoft = model("g (float[N] x) => (float[N] y) { y = com.microsoft.QuickGelu (x) }");
    let quick = Session::builder(&of_microsoft);
    assert_ne!(built(quick.clone()), [1.0, -2.0]);
    let same = |call: &mut OperatorCall<'_, '_>| {
        let x = call.tensor(0)?.to_tensor()?;
        call.set_output(0, x)
    };
    assert_eq!(built(quick.operator("com.microsoft", "QuickGelu", same)), [1.0, -2.0]);
}

/// Passes opaque values between operators of the program, directly and through a loop, and in and
/// out of the model.
#[test]
fn opaque_values_are_made_and_read_by_operators_of_the_program() {
    let words = |call: &mut OperatorCall<'_, '_>| {
        let words: Vec<String> = call.slice::<f32>(0)?.iter().map(f32::to_string).collect();
        call.set_output(0, Opaque::new("com.example", "Words", 64, words))
    };
    let more = |call: &mut OperatorCall<'_, '_>| {
        let mut words = call.opaque::<Vec<String>>(0)?.clone();
        words.push("more".to_string());
        call.set_output(0, Opaque::new("com.example", "Words", 64, words))
    };
    let count = |call: &mut OperatorCall<'_, '_>| {
        let count = call.opaque::<Vec<String>>(0)?.len();
        call.set_output(0, Tensor::scalar(count as i64))
    };
    let model = model(
        "g (float[N] x, opaque(com.example, Words) given)
            => (int64 n, opaque(com.example, Words) last, int64 m)
         <opaque(com.example, Words) w, opaque(com.example, Words) e> {
            w = com.example.Split (x)
            iterations = Constant <value = int64 {4}> ()
            last = Loop (iterations, , w) <
              body = iteration (int64 i, bool d, opaque(com.example, Words) v)
                => (bool e, opaque(com.example, Words) u) {
                e = Identity (d)
                u = com.example.More (v)
              }>
            n = com.example.Count (last)
            m = com.example.Count (given)
         }",
    );
    let session = Session::builder(&model)
        .operator("com.example", "Split", words)
        .operator("com.example", "More", more)
        .operator("com.example", "Count", count)
        .build()
        .expect("a session");
    let given = Opaque::new("com.example", "Words", 0, vec!["one".to_string()]);
    let run = |given: Opaque| {
        let inputs = [("x", Value::from(x())), ("given", Value::from(given))];
        session.run(inputs, &RunOptions::new())
    };
    let outputs = run(given).expect("the model runs");
    assert_eq!(outputs.tensor("n").unwrap().to_vec::<i64>().unwrap(), [6]);
    assert_eq!(outputs.tensor("m").unwrap().to_vec::<i64>().unwrap(), [1]);
    let Some(Value::Opaque(last)) = outputs.get("last") else { panic!("an opaque value") };
    assert_eq!(last.get::<Vec<String>>().unwrap().join(" "), "1 -2 more more more more");
    // Opaque values with another Rust type, or another name.
    let error = run(Opaque::new("com.example", "Words", 0, 1u8)).expect_err("no words");
    assert!(
        error.to_string().contains("opaque(com.example, Words), which does not hold"),
        "{error}"
    );
    let error = run(Opaque::new("com.example", "Letters", 0, 1u8)).expect_err("no words");
    assert_eq!(error.kind(), ErrorKind::Input);
    assert!(sardonyx::io::write_value(&Value::Opaque(last.clone()), "x").is_err());
}

/// Checks that an operator of the program between convolutions reads images with channels first:
/// the engine inserts a step that restores the layout.
#[test]
fn operators_of_the_program_read_images_between_convolutions() {
    let model = model(
        "g (float[1, 3, 24, 24] x, float[16, 3, 3, 3] v, float[16, 16, 3, 3] w)
           => (float[N, C, H, W] y)
         <float[1, 16, 21, 21] c, float[1, 16, 18, 18] f> {
            a = Conv (x, v)
            b = MaxPool <kernel_shape = [2, 2]> (a)
            c = com.example.Copy (b)
            d = Conv (c, w)
            e = MaxPool <kernel_shape = [2, 2]> (d)
            f = com.example.Copy (e)
            y = MaxPool <kernel_shape = [9, 9]> (f)
         }",
    );
    let copy = |call: &mut OperatorCall<'_, '_>| {
        let dims = call.dims(0)?.to_vec();
        let x = call.slice::<f32>(0)?;
        call.output_slice::<f32>(0, &dims)?.copy_from_slice(x);
        Ok(())
    };
    let sizes: [(&str, [usize; 4]); 3] =
        [("x", [1, 3, 24, 24]), ("v", [16, 3, 3, 3]), ("w", [16, 16, 3, 3])];
    let inputs = sizes.map(|(name, dims)| {
        let count = dims.iter().product::<usize>();
        let elements = (0..count).map(|index| ((index * 7919) % 101) as f32 / 50.0 - 1.0);
        (name, Tensor::from_vec(dims, elements.collect()).expect("as many elements as in dims"))
    });
    let run = |optimization| {
        let session = Session::builder(&model).operator("com.example", "Copy", copy);
        let session = session.optimization(optimization).print_after("orders");
        let session = session.build().expect("a session");
        let program = session.program().expect("the program");
        let reorders = program.matches("= reorder").count();
        assert_eq!(reorders, if optimization == Optimization::All { 2 } else { 0 }, "{program}");
        numbers(&session.run(inputs.clone(), &RunOptions::default()).expect("a run"), "y")
    };
    let (fast, plain) = (run(Optimization::All), run(Optimization::Off));
    assert_eq!(fast.len(), plain.len());
    for (a, b) in fast.iter().zip(&plain) {
        assert!((a - b).abs() <= 1e-4 * b.abs().max(1.0), "{a} {b}");
    }
}

/// Checks that cancelling a run does not unwind through an operator of the program, which may hold
/// locks: a session that the operator runs is cancelled only by its own options.
#[test]
fn a_session_within_an_operator_has_its_own_limits() {
    let inner = model("g (float[2] x) => (float[2] y) { y = Erf (x) }");
    let inner = Session::builder(&inner).threads(1).build().expect("a session");
    let inner = Arc::new(Mutex::new(inner));
    let outer = model(
        "g (float[2] x) => (float[2] z) <float[2] y> { y = com.example.Inner (x) z = Neg (y) }",
    );
    let of_operator = Arc::clone(&inner);
    let operator = move |call: &mut OperatorCall<'_, '_>| {
        let x = Tensor::from_vec([2], call.slice::<f32>(0)?.to_vec())?;
        let session = of_operator.lock().map_err(|_| "the lock is poisoned")?;
        let outputs =
            session.run([("x", x)], &RunOptions::default()).map_err(|error| error.to_string())?;
        let y = outputs.tensor("y").map_err(|error| error.to_string())?;
        call.output_slice::<f32>(0, &[2])?.copy_from_slice(&y.to_vec::<f32>()?);
        Ok(())
    };
    let session = Session::builder(&outer).operator("com.example", "Inner", operator);
    let session = session.threads(1).build().expect("a session");
    let asked = Cell::new(0);
    // The run goes on at the first question, before the operator, and is cancelled at the second.
    let ends = || asked.replace(asked.get() + 1) > 0;
    let options = RunOptions::new().asks(&ends);
    let error = session.run([("x", x())], &options).expect_err("it was ended");
    assert_eq!((error.kind(), asked.get()), (ErrorKind::Stopped, 2));
    assert!(!inner.is_poisoned());
    assert_eq!(numbers(&run(&session), "z").len(), 2);
}

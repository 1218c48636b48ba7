//! Tests of training steps: order of entries, inputs and outputs, gradients, clones.

use sardonyx::{ErrorKind, Model, RunOptions, Tensor, Trainer, Value};

use super::{
    ADD_AND_DOUBLE, DESCENT, bits, descent_data, model, output, trainer, value_of, vector, x,
};

/// Checks that inference reads the current state and does not change it, and that a step changes it
/// (MODEL-18+-, TRAIN-10+-, TRAIN-11+, TRAIN-24-). A step of gradient descent, whose loss reads an
/// output of the main graph, gives the value computed by hand (TRAIN-06+, TRAIN-17+). `frozen` and
/// `rate` are not state, because no binding names them (TRAIN-09+).
#[test]
fn a_step_changes_what_inference_computes() {
    let mut trainer = trainer(DESCENT);
    assert_eq!(trainer.state_types().map(|(name, _)| name).collect::<Vec<_>>(), ["w"]);
    assert_eq!(value_of(&trainer, "w"), [1.0, 2.0]);
    let infer = |trainer: &Trainer| {
        trainer.infer(x(&[1.0, 1.0]), &RunOptions::default()).expect("inference runs")
    };
    let before = bits(&trainer);
    assert_eq!(output(&infer(&trainer), "y"), [1.0, 2.0]);
    assert_eq!(infer(&trainer), infer(&trainer));
    assert_eq!(bits(&trainer), before);

    let tried = trainer.evaluate(0, descent_data(), &RunOptions::default()).expect("an evaluation");
    assert_eq!(bits(&trainer), before);
    let outputs = trainer.step(0, descent_data(), &RunOptions::default()).expect("a step");
    assert_eq!(tried, outputs);
    assert_eq!(outputs.names().collect::<Vec<_>>(), ["y", "loss", "w1"]);
    assert_eq!(output(&outputs, "y"), [1.0, 4.0]);
    assert_eq!(output(&outputs, "loss"), [17.0]);
    // w - rate * x * (y - target): 1 - 0.5 * 1 * 1, 2 - 0.5 * 2 * 4.
    assert_eq!(value_of(&trainer, "w"), [0.5, -2.0]);
    let after = bits(&trainer);
    assert_eq!(output(&infer(&trainer), "y"), [0.5, -2.0]);
    assert_eq!(infer(&trainer), infer(&trainer));
    assert_eq!(bits(&trainer), after);

    // The second step continues from the state after the first.
    let outputs = trainer.step(0, descent_data(), &RunOptions::default()).expect("a step");
    assert_eq!(output(&outputs, "y"), [0.5, -4.0]);
    assert_eq!(value_of(&trainer, "w"), [0.25, 2.0]);
    let error = trainer.variable("frozen").expect_err("not a state variable");
    assert_eq!(error.kind(), ErrorKind::Input);
}

/// Checks that entries may run in any order, which decides the result (TRAIN-14+, TRAIN-15+-). An
/// iteration runs each entry once in the order of the list (TRAIN-22+).
#[test]
fn the_order_of_steps_is_that_of_the_caller() {
    for (order, expected) in
        [(vec![0, 1], 8.0), (vec![1, 0], 7.0), (vec![1, 1], 12.0), (vec![0, 1, 1, 0], 17.0)]
    {
        let mut trainer = trainer(ADD_AND_DOUBLE);
        for entry in &order {
            trainer
                .step(*entry, [("x", Tensor::scalar(1f32))], &RunOptions::default())
                .expect("a step");
        }
        assert_eq!(value_of(&trainer, "w"), [expected], "{order:?}");
    }
    let mut iterated = trainer(ADD_AND_DOUBLE);
    let returned = iterated
        .iterate([("x", Tensor::scalar(1f32))], &RunOptions::default())
        .expect("an iteration");
    assert_eq!(value_of(&iterated, "w"), [8.0]);
    let [first, second] = &returned[..] else { panic!("{returned:?}") };
    assert_eq!((output(first, "added"), output(second, "doubled")), (vec![4.0], vec![8.0]));
    let error = iterated
        .step(2, [("x", Tensor::scalar(1f32))], &RunOptions::default())
        .expect_err("no such entry");
    assert_eq!(
        error.to_string(),
        "training step 2 does not exist\nhelp: use a training entry from 0 to 1"
    );
}

/// Checks that bindings can swap two variables, even if the values are not outputs of a node:
/// assigning one after the other would make both equal (TRAIN-19+-).
#[test]
fn two_variables_swap() {
    for (outputs, body) in [
        ("float[2] new_a, float[2] new_b", "new_a = Identity (b) new_b = Identity (a)"),
        ("float[2] a, float[2] b", ""),
    ] {
        let [new_a, new_b] = if body.is_empty() { ["b", "a"] } else { ["new_a", "new_b"] };
        let mut trainer = trainer(&format!(
            "g (float[2] x) => (float[2] y) <float[2] a = {{1, 2}}, float[2] b = {{3, 4}}> {{
                 y = Sub (a, b)
             }}
             @<training_info: [{{
                 algorithm: swap () => ({outputs}) {{ {body} }},
                 update_binding: [\"a\": \"{new_a}\", \"b\": \"{new_b}\"]
             }}]>"
        ));
        for round in 0..4 {
            let expected =
                if round % 2 == 0 { [[1.0, 2.0], [3.0, 4.0]] } else { [[3.0, 4.0], [1.0, 2.0]] };
            assert_eq!(
                [value_of(&trainer, "a"), value_of(&trainer, "b")],
                expected,
                "{body}, round {round}"
            );
            let outputs = trainer.step(0, x(&[0.0, 0.0]), &RunOptions::default()).expect("a step");
            let sign = if round % 2 == 0 { -2.0 } else { 2.0 };
            assert_eq!(output(&outputs, "y"), [sign, sign]);
        }
    }
}

/// Checks that a binding may name an output of the main graph, even one that is an input or a
/// constant, and that one value may be assigned to several variables (TRAIN-07+).
#[test]
fn outputs_of_the_main_graph_are_assigned() {
    let mut trainer = trainer(
        "g (float[2] x) => (float[2] y, float[2] x, float[2] c)
           <float[2] u = {0, 0}, float[2] v = {0, 0}, float[2] w = {0, 0}, float[2] z = {1, 1},
            float[2] c = {9, 9}> {
             y = Add (x, z)
         }
         @<training_info: [{
             update_binding: [\"u\": \"y\", \"v\": \"y\", \"w\": \"x\", \"z\": \"c\"]
         }]>",
    );
    trainer.step(0, x(&[4.0, 5.0]), &RunOptions::default()).expect("a step");
    assert_eq!([value_of(&trainer, "u"), value_of(&trainer, "v")], [[5.0, 6.0], [5.0, 6.0]]);
    assert_eq!([value_of(&trainer, "w"), value_of(&trainer, "z")], [[4.0, 5.0], [9.0, 9.0]]);
}

/// Checks that an absent graph is like an empty one: a step of an empty entry returns the outputs
/// of the main graph and leaves the state unchanged (TRAIN-20+, TRAIN-13+).
#[test]
fn an_empty_entry_changes_nothing() {
    let mut trainer = trainer(
        "g (float[2] x) => (float[2] y) <float[2] w = {1, 2}> { y = Mul (x, w) }
         @<training_info: [{}, { algorithm: empty () => () {} }]>",
    );
    assert_eq!(trainer.state_types().count(), 0);
    trainer.initialize(&RunOptions::default()).expect("an initialization");
    for entry in 0..2 {
        let outputs = trainer.step(entry, x(&[3.0, 4.0]), &RunOptions::default()).expect("a step");
        assert_eq!(output(&outputs, "y"), [3.0, 8.0]);
    }
    let mut kept = self::trainer(
        "g (float[2] x) => (float[2] y) <float[2] w = {1, 2}> { y = Mul (x, w) }
         @<training_info: [{}, {
             algorithm: step () => (float[2] w1) { w1 = Neg (w) },
             update_binding: [\"w\": \"w1\"]
         }]>",
    );
    kept.step(0, x(&[3.0, 4.0]), &RunOptions::default()).expect("a step");
    assert_eq!(value_of(&kept, "w"), [1.0, 2.0]);
    kept.step(1, x(&[3.0, 4.0]), &RunOptions::default()).expect("a step");
    kept.step(0, x(&[3.0, 4.0]), &RunOptions::default()).expect("a step");
    assert_eq!(value_of(&kept, "w"), [-1.0, -2.0]);
}

/// Checks that an optimizer of `ai.onnx.preview.training` runs only if its domain is imported
/// (TRAIN-26+-).
#[test]
fn operators_of_training_need_their_import() {
    let text = |import: &str| {
        format!(
            "<notation: \"full\", ir_version: 10, opset_import: [\"\": 21{import}]>
             g (float[2] x) => (float[2] y) <float[2] w = {{1, 2}}> {{ y = Mul (x, w) }}
             @<training_info: [{{
                 algorithm: adam (float[2] slope) => (float[2] w1, float[2] v1, float[2] h1, int64 t1)
                   <float rate = {{0.5}}, int64 t = {{0}}, float[2] v = {{0, 0}}, float[2] h = {{0, 0}}> {{
                     w1, v1, h1 = ai.onnx.preview.training.Adam
                         <alpha: float = 0.5, beta: float = 0.5, epsilon: float = 1.0>
                         (rate, t, w, slope, v, h)
                     one = Constant <value_int: int = 1> ()
                     t1 = Add (t, one)
                 }},
                 update_binding: [\"w\": \"w1\", \"v\": \"v1\", \"h\": \"h1\", \"t\": \"t1\"]
             }}]>"
        )
    };
    let with = Model::from_text(&text(", \"ai.onnx.preview.training\": 1")).expect("a model");
    let mut trainer = Trainer::new(&with).expect("a trainer");
    let given = [("x", vector(&[1.0, 1.0])), ("slope", vector(&[2.0, 4.0]))];
    trainer.step(0, given.clone(), &RunOptions::default()).expect("a step");
    // Adam: both running means move by half; without bias correction in the first step.
    assert_eq!([value_of(&trainer, "v"), value_of(&trainer, "h")], [[1.0, 2.0], [2.0, 8.0]]);
    let expected =
        [(1f32, 1f32, 2f32), (2.0, 2.0, 8.0)].map(|(w, v, h)| w - 0.5 * v / (h.sqrt() + 1.0));
    for (found, expected) in value_of(&trainer, "w").iter().zip(expected) {
        assert!((found - expected).abs() < 1e-6, "{found} {expected}");
    }
    trainer.step(0, given, &RunOptions::default()).expect("a step");
    assert_eq!(trainer.variable("t").expect("a variable").item::<i64>().expect("a number"), 2);

    let without = Model::from_text(&text("")).expect("a model");
    let error = Trainer::new(&without).expect_err("no trainer");
    assert!(error.to_string().contains("ai.onnx.preview.training"), "{error}");
}

/// Checks that a `Gradient` node can name values of the main graph and of the algorithm, and that
/// its `xs` may be a state variable (TRAIN-16+, TRAIN-26+, TRAIN-17+).
#[test]
fn a_gradient_names_values_of_both_graphs() {
    let mut trainer = trainer(
        "g (float[2] x) => (float[2] y) <float[2] w = {1, 2}> { y = Mul (x, w) }
         @<training_info: [{
             algorithm: descent (float[2] target) => (float loss, float[2] w1) <float rate = {0.5}> {
                 d = Sub (y, target)
                 s = Mul (d, d)
                 loss = ReduceSum <keepdims: int = 0> (s)
                 slope = ai.onnx.preview.training.Gradient
                     <xs: strings = [\"w\"], zs: strings = [\"x\", \"target\"], y: string = \"loss\">
                     (w, x, target)
                 change = Mul (slope, rate)
                 w1 = Sub (w, change)
             },
             update_binding: [\"w\": \"w1\"]
         }]>",
    );
    trainer.step(0, descent_data(), &RunOptions::default()).expect("a step");
    // w - 0.5 * 2 * (y - target) * x, where y is 1 and 4.
    assert_eq!(value_of(&trainer, "w"), [0.0, -6.0]);
}

/// Checks that the step of each entry has only the inputs of its algorithm, and that an iteration
/// takes the union.
#[test]
fn steps_take_the_inputs_of_their_algorithm() {
    let mut trainer = trainer(
        "g (float x) => (float y) <float a = {0}, float b = {0}> { y = Add (x, x) }
         @<training_info: [
             { algorithm: s (float p) => (float a1) { a1 = Add (y, p) }, update_binding: [\"a\": \"a1\"] },
             { algorithm: t (float q) => (float b1) { b1 = Add (a, q) }, update_binding: [\"b\": \"b1\"] }
         ]>",
    );
    let names = |entry| {
        let ports = trainer.step_inputs(entry).expect("an entry");
        ports.map(|port| port.name().to_string()).collect::<Vec<_>>()
    };
    assert_eq!([names(0), names(1)], [["x", "p"], ["x", "q"]]);
    let given = |names: &[&'static str]| -> Vec<(&str, Tensor)> {
        names.iter().map(|name| (*name, Tensor::scalar(1f32))).collect()
    };
    trainer.iterate(given(&["x", "p", "q"]), &RunOptions::default()).expect("an iteration");
    assert_eq!([value_of(&trainer, "a"), value_of(&trainer, "b")], [[3.0], [4.0]]);
    assert!(trainer.step(0, given(&["x", "q"]), &RunOptions::default()).is_err());
}

/// Checks that a step computes only outputs that are selected or assigned.
#[test]
fn unselected_outputs_are_not_computed() {
    let text = "
        g (float[N] x) => (float[N] y, bad) <float[2] w = {1, 1}> {
            y = Mul (x, w)
            three = Constant <value_ints: ints = [3]> ()
            bad = Reshape (x, three)
        }
        @<training_info: [{
            algorithm: step () => (float[N] loss, w1) { loss = Neg (y) w1 = Add (w, x) },
            update_binding: [\"w\": \"w1\"]
        }]>";
    let model = model(text);
    let mut trainer =
        Trainer::builder(&model).outputs(["loss"]).threads(1).build().expect("a trainer");
    let names: Vec<_> =
        trainer.step_outputs(0).expect("an entry").map(|port| port.name().to_string()).collect();
    assert_eq!(names, ["loss"]);
    let outputs = trainer.step(0, x(&[2.0, 3.0]), &RunOptions::default()).expect("a step");
    assert_eq!(outputs.names().collect::<Vec<_>>(), ["loss"]);
    assert_eq!(value_of(&trainer, "w"), [3.0, 4.0]);
    // `bad` reshapes two elements to three.
    let mut all = Trainer::new(&model).expect("a trainer");
    all.step(0, x(&[2.0, 3.0]), &RunOptions::default()).expect_err("bad cannot be computed");
    assert_eq!(value_of(&all, "w"), [1.0, 1.0]);
    let error = Trainer::builder(&model).outputs(["los"]).build().expect_err("no such output");
    assert_eq!(error.kind(), ErrorKind::Output);
}

/// Checks that subgraphs of an algorithm capture values of the algorithm and of the main graph.
#[test]
fn inner_graphs_of_an_algorithm_see_both_graphs() {
    let mut trainer = trainer(
        "g (float x) => (float y) <float w = {1}> { y = Mul (x, w) }
         @<training_info: [{
             algorithm: step (int64 n) => (float w1) {
                 yes = Constant <value: tensor = bool {1}> ()
                 half = Constant <value_float: float = 0.5> ()
                 w1 = Loop (n, yes, w) <body: graph = iteration (int64 i, bool d, float v) => (bool e, float u) {
                     e = Identity (d)
                     s = Mul (half, y)
                     t = Add (v, s)
                     u = Add (t, w)
                 }>
             },
             update_binding: [\"w\": \"w1\"]
         }]>",
    );
    let given = [("x", Value::from(Tensor::scalar(4f32))), ("n", Tensor::scalar(3i64).into())];
    trainer.step(0, given, &RunOptions::default()).expect("a step");
    // Three iterations, each adding half of y = 4, and w = 1.
    assert_eq!(value_of(&trainer, "w"), [1.0 + 3.0 * 3.0]);
}

/// Checks that training a clone leaves the original unchanged.
#[test]
fn a_clone_is_trained_by_itself() {
    let kept = trainer(DESCENT);
    let mut trained = kept.clone();
    trained.step(0, descent_data(), &RunOptions::default()).expect("a step");
    assert_eq!(value_of(&trained, "w"), [0.5, -2.0]);
    assert_eq!(value_of(&kept, "w"), [1.0, 2.0]);
    let outputs = kept.infer(x(&[1.0, 1.0]), &RunOptions::default()).expect("inference runs");
    assert_eq!(output(&outputs, "y"), [1.0, 2.0]);
    let names: Vec<&str> = kept.inference_outputs().iter().map(sardonyx::Port::name).collect();
    assert_eq!(names, ["y"]);
}

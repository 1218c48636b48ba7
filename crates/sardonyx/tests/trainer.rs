//! Models that carry their training run, run as written.

use std::fs;
use std::path::PathBuf;
use std::time::Instant;

use sardonyx::check;
use sardonyx::io::Weights;
use sardonyx::run::Optimization;
use sardonyx::tool::{ModelExt, npy, npz, safetensors};
use sardonyx::train::{Clipping, Loss, OptimizerKind, TrainingOptions};
use sardonyx::{
    DataType, Error, ErrorKind, Model, Outputs, RunOptions, SaveOptions, Session, Tensor,
    TensorView, TensorViewMut, Trainer, Value,
};

fn model(text: &str) -> Model {
    let head = "<notation: \"full\", ir_version: 10,
                 opset_import: [\"\": 21, \"ai.onnx.preview.training\": 1, \"local\": 1]>";
    Model::from_text(&format!("{head} {text}")).expect("the text is a model")
}

fn trainer(text: &str) -> Trainer {
    Trainer::new(&model(text)).expect("the model can be trained")
}

fn refused(text: &str) -> Error {
    Trainer::new(&model(text)).expect_err("no trainer")
}

fn vector(elements: &[f32]) -> Tensor {
    Tensor::from_vec([elements.len()], elements.to_vec()).expect("a vector")
}

fn numbers(tensor: &Tensor) -> Vec<f32> {
    tensor.to_vec::<f32>().expect("of float")
}

/// The values of a state variable.
fn of(trainer: &Trainer, name: &str) -> Vec<f32> {
    numbers(&trainer.variable(name).expect("a state variable"))
}

/// Bits of the whole state.
fn bits(trainer: &Trainer) -> Vec<(String, Vec<u8>)> {
    let state = trainer.state().expect("the state").into_iter();
    state.map(|(name, value)| (name.to_string(), value.bytes().to_vec())).collect()
}

fn output(outputs: &Outputs, name: &str) -> Vec<f32> {
    numbers(outputs.tensor(name).expect("an output"))
}

fn nothing() -> [(&'static str, Tensor); 0] {
    []
}

fn x(elements: &[f32]) -> [(&'static str, Tensor); 1] {
    [("x", vector(elements))]
}

/// y = x * w; descent with the rate 0.5 towards a target.
const DESCENT: &str = "
    g (float[2] x) => (float[2] y) <float[2] w = {1, 2}, float[2] frozen = {3, 4}> {
        y = Mul (x, w)
    }
    @<training_info: [{
        initialization: init () => (float[2] w0) {
            w0 = Constant <value_floats: floats = [5.0, 6.0]> ()
        },
        algorithm: descent (float[2] target) => (float loss, float[2] w1)
          <float[2] rate = {0.5, 0.5}> {
            d = Sub (y, target)
            s = Mul (d, d)
            loss = ReduceSum <keepdims: int = 0> (s)
            slope = Mul (x, d)
            change = Mul (slope, rate)
            w1 = Sub (w, change)
        },
        initialization_binding: [\"w\": \"w0\"],
        update_binding: [\"w\": \"w1\"]
    }]>";

fn descent_data() -> Vec<(&'static str, Tensor)> {
    vec![("x", vector(&[1.0, 2.0])), ("target", vector(&[0.0, 0.0]))]
}

/// MODEL-18+-, TRAIN-10+-, TRAIN-11+, TRAIN-24-: inference uses the current state and changes none
/// of it; a step changes it. TRAIN-06+, TRAIN-17+: one step of descent gives the value that was
/// computed by hand; its loss reads an output of the main graph. TRAIN-09+: `frozen` and `rate` are
/// no state, as no binding names them.
#[test]
fn a_step_changes_what_inference_computes() {
    let mut trainer = trainer(DESCENT);
    assert_eq!(trainer.state_types().map(|(name, _)| name).collect::<Vec<_>>(), ["w"]);
    assert_eq!(of(&trainer, "w"), [1.0, 2.0]);
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
    assert_eq!(of(&trainer, "w"), [0.5, -2.0]);
    let after = bits(&trainer);
    assert_eq!(output(&infer(&trainer), "y"), [0.5, -2.0]);
    assert_eq!(infer(&trainer), infer(&trainer));
    assert_eq!(bits(&trainer), after);

    // The second step begins where the first ended.
    let outputs = trainer.step(0, descent_data(), &RunOptions::default()).expect("a step");
    assert_eq!(output(&outputs, "y"), [0.5, -4.0]);
    assert_eq!(of(&trainer, "w"), [0.25, 2.0]);
    let error = trainer.variable("frozen").expect_err("not a state variable");
    assert_eq!(error.kind(), ErrorKind::Input);
}

/// TRAIN-02+-, TRAIN-21+: the initialization assigns its outputs; a variable that no initialization
/// binding names goes back to its stored value. After training the state equals that of a fresh
/// object.
#[test]
fn initialization_brings_the_untrained_state_back() {
    let text = "
        g (float[2] x) => (float[2] y) <float[2] w = {1, 2}, float[2] last = {7, 8}> {
            y = Mul (x, w)
        }
        @<training_info: [{
            initialization: init () => (float[2] w0) {
                w0 = Constant <value_floats: floats = [5.0, 6.0]> ()
            },
            algorithm: step () => (float[2] w1) { w1 = Neg (w) },
            initialization_binding: [\"w\": \"w0\"],
            update_binding: [\"w\": \"w1\", \"last\": \"y\"]
        }]>";
    let mut fresh = trainer(text);
    fresh.initialize(&RunOptions::default()).expect("an initialization");
    assert_eq!(of(&fresh, "w"), [5.0, 6.0]);
    assert_eq!(of(&fresh, "last"), [7.0, 8.0]);

    let mut trained = trainer(text);
    for _ in 0..3 {
        trained.step(0, x(&[3.0, 4.0]), &RunOptions::default()).expect("a step");
    }
    assert_eq!(of(&trained, "last"), [3.0, 8.0]);
    assert_ne!(bits(&trained), bits(&fresh));
    trained.initialize(&RunOptions::default()).expect("an initialization");
    assert_eq!(bits(&trained), bits(&fresh));
}

/// TRAIN-01+, TRAIN-12+: of two entries that initialize one variable the second wins, and it sees
/// nothing of the first. TRAIN-08-: a variable that two entries update is said, and works.
#[test]
fn entries_initialize_in_the_order_of_the_list() {
    let entry = |name: &str, value: f32| {
        format!(
            "{{
                initialization: {name} () => (float {name}0) {{
                    {name}0 = Constant <value_float: float = {value:?}> ()
                }},
                algorithm: {name}_step () => (float {name}1) {{ {name}1 = Neg (w) }},
                initialization_binding: [\"w\": \"{name}0\"],
                update_binding: [\"w\": \"{name}1\"]
            }}"
        )
    };
    let text = |first: &str, second: &str| {
        format!(
            "g (float x) => (float y) <float w = {{1}}> {{ y = Mul (x, w) }}
             @<training_info: [{first}, {second}]>"
        )
    };
    let (a, b) = (entry("a", 3.0), entry("b", 4.0));
    for (text, expected) in [(text(&a, &b), 4.0), (text(&b, &a), 3.0)] {
        let mut trainer = trainer(&text);
        assert_eq!(trainer.entries(), 2);
        trainer.initialize(&RunOptions::default()).expect("an initialization");
        assert_eq!(of(&trainer, "w"), [expected]);
        let [warning] = trainer.warnings() else { panic!("{:?}", trainer.warnings()) };
        assert!(warning.contains("'w' is also assigned by another training entry"), "{warning}");
        trainer.step(1, [("x", Tensor::scalar(1f32))], &RunOptions::default()).expect("a step");
        assert_eq!(of(&trainer, "w"), [-expected]);
    }
}

/// Adds one, and doubles.
const ADD_AND_DOUBLE: &str = "
    g (float x) => (float y) <float w = {3}> { y = Mul (x, w) }
    @<training_info: [
        {
            algorithm: add () => (float added) {
                one = Constant <value_float: float = 1.0> ()
                added = Add (w, one)
            },
            update_binding: [\"w\": \"added\"]
        },
        {
            algorithm: double () => (float doubled) { doubled = Add (w, w) },
            update_binding: [\"w\": \"doubled\"]
        }
    ]>";

/// TRAIN-14+, TRAIN-15+-: any entry may be run, in any order; the order is the caller's and decides
/// the result. TRAIN-22+: an iteration is all of them once in the order of the list.
#[test]
fn the_order_of_steps_is_that_of_the_caller() {
    let given = || [("x", Tensor::scalar(1f32))];
    for (order, expected) in
        [(vec![0, 1], 8.0), (vec![1, 0], 7.0), (vec![1, 1], 12.0), (vec![0, 1, 1, 0], 17.0)]
    {
        let mut trainer = trainer(ADD_AND_DOUBLE);
        for entry in &order {
            trainer.step(*entry, given(), &RunOptions::default()).expect("a step");
        }
        assert_eq!(of(&trainer, "w"), [expected], "{order:?}");
    }
    let mut iterated = trainer(ADD_AND_DOUBLE);
    let returned = iterated.iterate(given(), &RunOptions::default()).expect("an iteration");
    assert_eq!(of(&iterated, "w"), [8.0]);
    let [first, second] = &returned[..] else { panic!("{returned:?}") };
    assert_eq!((output(first, "added"), output(second, "doubled")), (vec![4.0], vec![8.0]));
    let error = iterated.step(2, given(), &RunOptions::default()).expect_err("no such entry");
    assert_eq!(error.to_string(), "training step 2 does not exist\nhelp: use an entry from 0 to 1");
}

/// TRAIN-19+-: two variables are swapped by their bindings, also where the values are no output of
/// any node. Assigning one after the other would leave two equal ones.
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
            assert_eq!([of(&trainer, "a"), of(&trainer, "b")], expected, "{body}, round {round}");
            let outputs = trainer.step(0, x(&[0.0, 0.0]), &RunOptions::default()).expect("a step");
            let sign = if round % 2 == 0 { -2.0 } else { 2.0 };
            assert_eq!(output(&outputs, "y"), [sign, sign]);
        }
    }
}

/// TRAIN-07+: the value of a binding may be an output of the main graph, and that may be an input
/// or a constant; one value may go into several variables.
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
    assert_eq!([of(&trainer, "u"), of(&trainer, "v")], [[5.0, 6.0], [5.0, 6.0]]);
    assert_eq!([of(&trainer, "w"), of(&trainer, "z")], [[4.0, 5.0], [9.0, 9.0]]);
}

/// TRAIN-20+, TRAIN-13+: absent graphs are empty: a step of an empty entry returns what the main
/// graph does and changes nothing, and neither does its initialization.
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
    assert_eq!(of(&kept, "w"), [1.0, 2.0]);
    kept.step(1, x(&[3.0, 4.0]), &RunOptions::default()).expect("a step");
    kept.step(0, x(&[3.0, 4.0]), &RunOptions::default()).expect("a step");
    assert_eq!(of(&kept, "w"), [-1.0, -2.0]);
}

/// What training information must not say, with what is said about it.
#[test]
fn training_information_that_contradicts_itself_is_refused() {
    let with = |initializers: &str, info: &str| {
        format!(
            "g (float[2] x) => (float[2] y) <float[2] w = {{1, 2}}{initializers}> {{ y = Mul (x, w) }}
             @<training_info: [{{{info}}}]>"
        )
    };
    let step = "algorithm: step () => (float[2] w1) { inner = Abs (w) w1 = Neg (inner) }";
    for (initializers, info, expected) in [
        // TRAIN-03-
        ("", format!("{step}, update_binding: [\"y\": \"w1\"]"), "'y' is not an initializer"),
        // TRAIN-04-
        (
            "",
            "initialization: i () => (float[2] w0) { w0 = Constant <value_floats: floats = [1.0, 2.0]> () },
             initialization_binding: [\"w\": \"w9\"]"
                .to_string(),
            "'w9' is not an output",
        ),
        // TRAIN-05-
        (
            "",
            "initialization: i () => (float[2] w0) { w0 = Constant <value_floats: floats = [1.0, 2.0]> () },
             initialization_binding: [\"w\": \"w0\", \"w\": \"w0\"]"
                .to_string(),
            "'w' is assigned twice",
        ),
        // TRAIN-07-
        ("", format!("{step}, update_binding: [\"w\": \"inner\"]"), "'inner' is not an output"),
        // TRAIN-13-
        ("", "initialization_binding: [\"w\": \"w0\"]".to_string(), "initialization graph"),
        // TRAIN-16-: the combined graph follows the rules of graphs.
        ("", "algorithm: s () => (float[2] y) { y = Neg (w) }".to_string(), "'y' is also a name of the main graph"),
        // TRAIN-18-
        (
            "",
            "initialization: i (float[2] seed) => (float[2] w0) { w0 = Neg (seed) },
             initialization_binding: [\"w\": \"w0\"]"
                .to_string(),
            "has an input",
        ),
        // TRAIN-25-: said by the declared type, and by the inferred one.
        (
            "",
            "algorithm: s () => (float[3] w1) { w1 = Constant <value_floats: floats = [1.0, 2.0, 3.0]> () },
             update_binding: [\"w\": \"w1\"]"
                .to_string(),
            "'w1' does not have the type and shape of 'w'",
        ),
        (
            "",
            "algorithm: s () => (w1) { w1 = Concat <axis: int = 0> (w, w) }, update_binding: [\"w\": \"w1\"]".to_string(),
            "training_info[0].update_binding assigns 'w1: float[4]' to the state variable 'w', which is float[2]",
        ),
        (
            "",
            "algorithm: s () => (w1) { w1 = SequenceConstruct (w, w) }, update_binding: [\"w\": \"w1\"]".to_string(),
            "training_info[0].update_binding assigns 'w1: seq(float[2])' to the state variable 'w'",
        ),
        (
            ", sparse(float[100000, 10000], float[0] z {}, int64[0] {})",
            "algorithm: s () => (w1) { w1 = Neg (z) }, update_binding: [\"z\": \"w1\"]".to_string(),
            "have 1000000000 elements, more than 8 for each of the 0 elements of dense ones",
        ),
        (
            ", string[1] s = {\"a\"}",
            "algorithm: s () => (string[1] s) {}, update_binding: [\"s\": \"s\"]".to_string(),
            "the state variable 's' has type string",
        ),
    ] {
        let error = refused(&with(initializers, &info));
        assert!(error.to_string().contains(expected), "{info}\n{error}");
    }
}

/// TRAIN-09+, TRAIN-11+, TRAIN-21+: sparse initializers of the main graph and of an algorithm are
/// state. They are written dense once they have other values; the others stay as they are.
#[test]
fn sparse_initializers_are_state() {
    let text = "g (float[2, 2] x) => (float[2, 2] y)
        <sparse(float[2, 2], float[1] w {3}, int64[1] {2}), sparse(float[2], float[1] c {5}, int64[1] {1})> {
            a = Mul (x, w)
            y = Add (a, c)
        }
        @<training_info: [{
            algorithm: grow () => (float[2, 2] w1, float[2, 2] m1, float[3] idle1)
                <sparse(float[2, 2], float[0] m {}, int64[0] {}),
                 sparse(float[3], float[1] idle {7}, int64[1, 1] {0})> {
                m1 = Add (m, x)
                w1 = Add (w, m1)
                idle1 = Neg (idle)
            },
            initialization: start () => (idle0) { idle0 = Constant <value_floats: floats = [0.0, 1.0, 2.0]> () },
            initialization_binding: [\"idle\": \"idle0\"],
            update_binding: [\"w\": \"w1\", \"m\": \"m1\"]
        }]>";
    // What is written is what is read.
    let model = Model::from_bytes(model(text).to_bytes()).unwrap();
    let listed: Vec<String> = model
        .state_variables()
        .iter()
        .map(|found| format!("{} {:?}", found.name, found.dims))
        .collect();
    assert_eq!(listed, ["w [2, 2]", "m [2, 2]", "idle [3]"]);
    let mut trainer = Trainer::new(&model).unwrap();
    let value = |trainer: &Trainer, name: &str| -> Vec<f32> {
        trainer.variable(name).unwrap().to_vec().unwrap()
    };
    assert_eq!(value(&trainer, "w"), [0.0, 0.0, 3.0, 0.0]);
    assert_eq!(value(&trainer, "m"), [0.0; 4]);
    assert_eq!(value(&trainer, "idle"), [7.0, 0.0, 0.0]);
    let x = || [("x", Tensor::from_slice([2, 2], &[1f32, 2.0, 3.0, 4.0]).unwrap())];
    trainer.step(0, x(), &RunOptions::default()).unwrap();
    trainer.step(0, x(), &RunOptions::default()).unwrap();
    assert_eq!(value(&trainer, "m"), [2.0, 4.0, 6.0, 8.0]);
    assert_eq!(value(&trainer, "w"), [3.0, 6.0, 12.0, 12.0]);
    assert_eq!(value(&trainer, "idle"), [7.0, 0.0, 0.0]);
    let exported = trainer.export().unwrap();
    let exported = Model::from_bytes(exported.to_bytes()).unwrap();
    let errors = exported.check(&check::CheckOptions::new());
    assert_eq!(
        errors.findings.iter().filter(|found| found.severity == check::Severity::Error).count(),
        0
    );
    let again = Trainer::new(&exported).unwrap();
    for name in ["w", "m", "idle"] {
        assert_eq!(value(&again, name), value(&trainer, name), "{name}");
    }
    let session = Session::new(&trainer.export_inference().unwrap()).unwrap();
    let found = session.run(x(), &RunOptions::default()).unwrap();
    let found: Vec<f32> = found.tensor("y").unwrap().to_vec().unwrap();
    assert_eq!(found, [3.0, 17.0, 36.0, 53.0]);
    trainer.initialize(&RunOptions::default()).unwrap();
    assert_eq!(value(&trainer, "m"), [0.0; 4]);
    assert_eq!(value(&trainer, "idle"), [0.0, 1.0, 2.0]);
}

/// Graphs of training entries run in sorted order, and a warning names those that are not sorted.
#[test]
fn unsorted_training_graphs_are_named() {
    let trainer = trainer(
        "g (float[2] x) => (float[2] y) <float[2] w = {1, 2}> { y = Mul (x, w) }
         @<training_info: [{
             algorithm: sorted () => (float[2] w1) { w1 = Neg (w) },
             update_binding: [\"w\": \"w1\"]
         }, {
             initialization: begin () => (float[2] z0) {
                 z0 = Neg (c)
                 c = Constant <value_floats: floats = [1.0, 2.0]> ()
             },
             algorithm: unsorted () => (float[2] z1) <float[2] z = {3, 4}, bool yes = {1}> {
                 z1 = If (yes) <
                     then_branch = one () => (b) {
                         b = Add (a, z)
                         a = Neg (z)
                     },
                     else_branch = other () => (d) { d = Neg (z) }
                 >
             },
             initialization_binding: [\"z\": \"z0\"],
             update_binding: [\"z\": \"z1\"]
         }]>",
    );
    let [initialization, algorithm] = trainer.warnings() else {
        panic!("{:?}", trainer.warnings())
    };
    assert!(
        initialization.starts_with("training_info[1].initialization is not sorted topologically: ")
    );
    assert!(algorithm.starts_with("training_info[1].algorithm is not sorted topologically: "));
    assert!(algorithm.contains("other runtimes may refuse it"), "{algorithm}");
    let mut trainer = trainer;
    trainer.step(1, [("x", vector(&[1.0, 1.0]))], &RunOptions::default()).unwrap();
    assert_eq!(trainer.variable("z").unwrap().to_vec::<f32>().unwrap(), [0.0; 2]);
}

/// TRAIN-17-: the main graph cannot read what an algorithm makes, although both run together.
#[test]
fn the_main_graph_reads_nothing_of_an_algorithm() {
    let error = refused(
        "g (float[2] x) => (float[2] y) <float[2] w = {1, 2}> { y = Mul (x, w1) }
         @<training_info: [{
             algorithm: step () => (float[2] w1) { w1 = Neg (w) },
             update_binding: [\"w\": \"w1\"]
         }]>",
    );
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(error.to_string().contains("'w1'"), "{error}");
}

/// TRAIN-23-: without training information there is nothing to run.
#[test]
fn a_model_without_training_information_is_refused() {
    let error = refused("g (float x) => (float y) { y = Neg (x) }");
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(error.message().contains("no training information"), "{error}");
    assert!(error.help().is_some_and(|help| help.contains("add-training")), "{error}");
}

/// TRAIN-26+-: an optimizer of `ai.onnx.preview.training` runs if its version is imported.
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
    // Averages: half of the slope, and half of its square; no correction for the first step.
    assert_eq!([of(&trainer, "v"), of(&trainer, "h")], [[1.0, 2.0], [2.0, 8.0]]);
    let expected =
        [(1f32, 1f32, 2f32), (2.0, 2.0, 8.0)].map(|(w, v, h)| w - 0.5 * v / (h.sqrt() + 1.0));
    for (found, expected) in of(&trainer, "w").iter().zip(expected) {
        assert!((found - expected).abs() < 1e-6, "{found} {expected}");
    }
    trainer.step(0, given, &RunOptions::default()).expect("a step");
    assert_eq!(trainer.variable("t").expect("a variable").item::<i64>().expect("a number"), 2);

    let without = Model::from_text(&text("")).expect("a model");
    let error = Trainer::new(&without).expect_err("no trainer");
    assert!(error.to_string().contains("ai.onnx.preview.training"), "{error}");
}

/// TRAIN-16+, TRAIN-26+, TRAIN-17+: Gradient refers to values by their names, of the main graph and
/// of the algorithm; its `xs` is a state variable.
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
    assert_eq!(of(&trainer, "w"), [0.0, -6.0]);
}

/// A step that fails, whichever way, leaves every variable as it was.
#[test]
fn a_failing_step_changes_nothing() {
    // The first variable could be assigned; the value of the second has another shape.
    let text = "
        g (float[N] x) => (float[N] y) <float[2] a = {1, 2}, float[2] b = {3, 4}> {
            y = Add (x, x)
        }
        @<training_info: [{
            algorithm: step () => (float[2] a1) { a1 = Neg (a) },
            update_binding: [\"a\": \"a1\", \"b\": \"y\"]
        }]>";
    let mut trainer = trainer(text);
    let before = bits(&trainer);
    let error = trainer
        .step(0, x(&[1.0, 2.0, 3.0]), &RunOptions::default())
        .expect_err("y is too long for b");
    assert_eq!(error.kind(), ErrorKind::Run);
    assert_eq!(error.message(), "the state variable 'b' is float[2], not float[3]");
    assert_eq!(bits(&trainer), before);

    let given = [("x", Tensor::scalar(1i64))];
    assert_eq!(
        trainer.step(0, given, &RunOptions::default()).expect_err("no float").kind(),
        ErrorKind::Input
    );
    let error = trainer.step(0, nothing(), &RunOptions::default()).expect_err("no input");
    assert_eq!(error.kind(), ErrorKind::Input);
    let given = [("x", vector(&[1.0, 2.0])), ("a", vector(&[1.0, 2.0]))];
    let error = trainer.step(0, given, &RunOptions::default()).expect_err("a is given");
    assert_eq!(error.message(), "'a' is a state variable, not an input");
    let late = RunOptions::new().deadline(Instant::now());
    let error = trainer.step(0, x(&[1.0, 2.0]), &late).expect_err("it is late");
    assert_eq!(error.kind(), ErrorKind::Stopped);
    assert_eq!(bits(&trainer), before);

    trainer.step(0, x(&[1.0, 2.0]), &RunOptions::default()).expect("a step");
    assert_eq!([of(&trainer, "a"), of(&trainer, "b")], [[-1.0, -2.0], [2.0, 4.0]]);
}

/// An iteration whose second step fails undoes the first; so does an initialization.
#[test]
fn a_failing_iteration_changes_nothing() {
    let mut trainer = trainer(
        "g (float[N] x) => (float[N] y) <float[2] a = {1, 2}, float[2] b = {3, 4}> {
             y = Add (x, x)
         }
         @<training_info: [
             {
                 initialization: first () => (float[2] a0) { a0 = Constant <value_floats: floats = [9.0, 9.0]> () },
                 algorithm: step () => (float[2] a1) { a1 = Neg (a) },
                 initialization_binding: [\"a\": \"a0\"],
                 update_binding: [\"a\": \"a1\"]
             },
             {
                 initialization: second () => (b0) {
                     drawn = RandomUniform <shape: ints = [3], low: float = 1.0, high: float = 2.0> ()
                     found = NonZero (drawn)
                     flat = Constant <value_ints: ints = [-1]> ()
                     places = Reshape (found, flat)
                     b0 = Cast <to: int = 1> (places)
                 },
                 initialization_binding: [\"b\": \"b0\"],
                 update_binding: [\"b\": \"y\"]
             }
         ]>",
    );
    let before = bits(&trainer);
    let error = trainer
        .iterate(x(&[1.0, 2.0, 3.0]), &RunOptions::default())
        .expect_err("y is too long for b");
    assert_eq!(error.kind(), ErrorKind::Run);
    assert_eq!(bits(&trainer), before);
    // Its shape is known only when it is computed.
    let error =
        trainer.initialize(&RunOptions::default()).expect_err("b0 has another shape than b");
    assert_eq!(error.kind(), ErrorKind::Run);
    assert_eq!(bits(&trainer), before);
    let error =
        trainer.iterate([("z", vector(&[1.0]))], &RunOptions::default()).expect_err("z is unknown");
    assert_eq!(error.message(), "no training step has an input 'z'");
    let mut alone = self::trainer(DESCENT);
    let error =
        alone.iterate([("z", vector(&[1.0]))], &RunOptions::default()).expect_err("z is unknown");
    assert_eq!(error.message(), "no training step has an input 'z'");
    trainer.iterate(x(&[1.0, 2.0]), &RunOptions::default()).expect("an iteration");
    assert_eq!([of(&trainer, "a"), of(&trainer, "b")], [[-1.0, -2.0], [2.0, 4.0]]);
}

/// Each entry has inputs of its own; an iteration is given those of all.
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
    assert_eq!([of(&trainer, "a"), of(&trainer, "b")], [[3.0], [4.0]]);
    assert!(trainer.step(0, given(&["x", "q"]), &RunOptions::default()).is_err());
}

/// An initializer that is also an input: steps use the state, a call of inference may override it.
#[test]
fn a_default_is_state_and_may_be_overridden_for_inference() {
    let mut trainer = trainer(
        "g (float[2] x, float[M] w) => (float[2] y) <w = {1, 2}> { y = Mul (x, w) }
         @<training_info: [{
             algorithm: step () => (float[2] w1) { w1 = Add (w, w) },
             update_binding: [\"w\": \"w1\"]
         }]>"
        .replace("<w = {1, 2}>", "<float[2] w = {1, 2}>")
        .as_str(),
    );
    trainer.step(0, x(&[1.0, 1.0]), &RunOptions::default()).expect("a step");
    let own = [("x", vector(&[1.0, 1.0])), ("w", vector(&[7.0, 8.0]))];
    let error =
        trainer.step(0, own.clone(), &RunOptions::default()).expect_err("a step uses the state");
    assert_eq!(error.message(), "'w' is a state variable, not an input");
    assert_eq!(
        output(&trainer.infer(x(&[1.0, 1.0]), &RunOptions::default()).expect("a run"), "y"),
        [2.0, 4.0]
    );
    assert_eq!(
        output(&trainer.infer(own, &RunOptions::default()).expect("a run"), "y"),
        [7.0, 8.0]
    );
    // The type that the model declares holds for the call, which lets a size be another.
    let short = [("x", vector(&[1.0, 1.0])), ("w", vector(&[3.0]))];
    assert_eq!(
        output(&trainer.infer(short, &RunOptions::default()).expect("a run"), "y"),
        [3.0, 3.0]
    );
    assert_eq!(of(&trainer, "w"), [2.0, 4.0]);
    let inputs: Vec<_> = trainer.inference_inputs().map(|port| port.name().to_string()).collect();
    assert_eq!(inputs, ["x", "w"]);
}

/// Without being an input a state variable cannot be given to inference.
#[test]
fn a_state_variable_that_is_no_input_is_not_overridden() {
    let trainer = trainer(DESCENT);
    let own = [("x", vector(&[1.0, 1.0])), ("w", vector(&[7.0, 8.0]))];
    let error = trainer.infer(own, &RunOptions::default()).expect_err("w is not an input");
    assert_eq!(error.message(), "'w' is a state variable, not an input");
}

/// TRAIN-10-: a state variable is no constant, although an equal constant stands beside it and what
/// depends on it could be computed ahead of time. Functions and graphs of nodes see it too.
#[test]
fn state_is_neither_folded_nor_shared_with_equal_constants() {
    let mut trainer = trainer(
        "g (float[2] x, bool c) => (float[2] y, float[2] z, float[2] b)
           <float[2] w = {1, 2}, float[2] same = {1, 2}> {
             s = Exp (w)
             t = Log (s)
             y = Mul (x, t)
             z = local.scaled (x, same)
             b = If (c) <
                 then_branch: graph = yes () => (float[2] p) { p = Add (w, x) },
                 else_branch: graph = no () => (float[2] q) { q = local.scaled (x, w) }
             >
         }
         <domain: \"local\", opset_import: [\"\": 21]>
         scaled (a, b) => (c) { c = Mul (a, b) }
         @<training_info: [{
             algorithm: step () => (float[2] w1) {
                 ten = Constant <value_floats: floats = [10.0, 10.0]> ()
                 w1 = Add (w, ten)
             },
             update_binding: [\"w\": \"w1\"]
         }]>",
    );
    let given = |c: bool| {
        let c = Tensor::from_bools([], &[c]).expect("a scalar");
        [("x", vector(&[1.0, 1.0])), ("c", c)]
    };
    trainer.step(0, given(true), &RunOptions::default()).expect("a step");
    for (c, expected) in [(true, [12.0, 13.0]), (false, [11.0, 12.0])] {
        let outputs = trainer.infer(given(c), &RunOptions::default()).expect("a run");
        let y = output(&outputs, "y");
        assert!((y[0] - 11.0).abs() < 1e-4 && (y[1] - 12.0).abs() < 1e-4, "{y:?}");
        assert_eq!(output(&outputs, "z"), [1.0, 2.0]);
        assert_eq!(output(&outputs, "b"), expected);
    }
}

/// Only what is asked for or assigned is returned and computed.
#[test]
fn outputs_that_nobody_asks_for_are_not_computed() {
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
    assert_eq!(of(&trainer, "w"), [3.0, 4.0]);
    // Two elements are no three.
    let mut all = Trainer::new(&model).expect("a trainer");
    all.step(0, x(&[2.0, 3.0]), &RunOptions::default()).expect_err("bad cannot be computed");
    assert_eq!(of(&all, "w"), [1.0, 1.0]);
    let error = Trainer::builder(&model).outputs(["los"]).build().expect_err("no such output");
    assert_eq!(error.kind(), ErrorKind::Output);
}

/// Random numbers come from the trainer's generator.
const RANDOM: &str = "
    g (float[4] x) => (float[4] y, float[4] noise) <float[4] w = {0, 0, 0, 0}> {
        y = Mul (x, w)
        noise = RandomNormalLike (x)
    }
    @<training_info: [{
        initialization: init () => (float[4] w0) { w0 = RandomNormal <shape: ints = [4]> () },
        algorithm: step () => (float[4] w1) {
            step_noise = RandomUniformLike (w)
            w1 = Add (w, step_noise)
        },
        initialization_binding: [\"w\": \"w0\"],
        update_binding: [\"w\": \"w1\"]
    }]>";

/// TRAIN-18+: an initialization of random numbers. TRAIN-21+, TRAIN-24-: the generator is part of
/// the state: initialization brings it back, inference does not move it.
#[test]
fn a_seed_decides_all_random_numbers() {
    let model = model(RANDOM);
    let seeded = |seed| Trainer::builder(&model).seed(seed).build().expect("a trainer");
    let four = || x(&[1.0, 1.0, 1.0, 1.0]);
    let history = |trainer: &mut Trainer| {
        trainer.initialize(&RunOptions::default()).expect("an initialization");
        let mut states = vec![of(trainer, "w")];
        for _ in 0..2 {
            trainer.step(0, four(), &RunOptions::default()).expect("a step");
            states.push(of(trainer, "w"));
            let one = trainer.infer(four(), &RunOptions::default()).expect("a run");
            assert_eq!(one, trainer.infer(four(), &RunOptions::default()).expect("a run"));
            states.push(output(&one, "noise"));
        }
        states
    };
    let mut trainer = seeded(7);
    let first = history(&mut trainer);
    assert_eq!(history(&mut trainer), first);
    assert_eq!(history(&mut seeded(7)), first);
    assert_ne!(history(&mut seeded(8)), first);
    assert_ne!(first[2], first[4], "inference draws other numbers after a step");
    let added = |index: usize, before: usize| -> Vec<f32> {
        first[index].iter().zip(&first[before]).map(|(after, before)| after - before).collect()
    };
    assert_ne!(added(1, 0), added(3, 1), "the second step draws other numbers");
    let system = Trainer::new(&model).expect("a trainer");
    assert_ne!(system.seed(), Trainer::new(&model).expect("a trainer").seed());
}

#[test]
fn values_are_set_if_they_fit() {
    let mut trainer = trainer(DESCENT);
    trainer.set_state("w", vector(&[8.0, 9.0])).expect("it fits");
    assert_eq!(
        output(&trainer.infer(x(&[1.0, 1.0]), &RunOptions::default()).expect("a run"), "y"),
        [8.0, 9.0]
    );
    let error = trainer.set_state("w", vector(&[8.0])).expect_err("too short");
    assert_eq!(error.kind(), ErrorKind::Input);
    let error = trainer.set_state("w", Tensor::scalar(1i64)).expect_err("no float");
    assert_eq!(error.message(), "the state variable 'w' is float[2], not int64");
    let error = trainer.set_state("v", vector(&[8.0, 9.0])).expect_err("unknown");
    assert_eq!(error.message(), "state variable 'v' does not exist");
    assert_eq!(error.help(), Some("use one of: w"));
    assert_eq!(of(&trainer, "w"), [8.0, 9.0]);
}

/// Initializers of two algorithms may have the same name: they are two variables.
#[test]
fn variables_of_algorithms_are_told_apart_by_their_entry() {
    let mut trainer = trainer(
        "g (float x) => (float y) <float w = {1}> { y = Mul (x, w) }
         @<training_info: [
             {
                 initialization: i () => (float r0) { r0 = Constant <value_float: float = 3.0> () },
                 algorithm: s () => (float r1) <float rate = {1}> { r1 = Add (rate, x) },
                 initialization_binding: [\"rate\": \"r0\"],
                 update_binding: [\"rate\": \"r1\"]
             },
             {
                 algorithm: t () => (float r2) <float rate = {10}> { r2 = Mul (rate, x) },
                 update_binding: [\"rate\": \"r2\"]
             }
         ]>",
    );
    let [first, second] = ["training_info[0].rate", "training_info[1].rate"];
    assert_eq!(trainer.state_types().map(|(name, _)| name).collect::<Vec<_>>(), [first, second]);
    trainer.iterate([("x", Tensor::scalar(2f32))], &RunOptions::default()).expect("an iteration");
    assert_eq!([of(&trainer, first), of(&trainer, second)], [[3.0], [20.0]]);
    let exported = trainer.export().expect("an export");
    trainer.initialize(&RunOptions::default()).expect("an initialization");
    assert_eq!([of(&trainer, first), of(&trainer, second)], [[3.0], [10.0]]);
    let again = Trainer::new(&exported).expect("a trainer");
    assert_eq!([of(&again, first), of(&again, second)], [[3.0], [20.0]]);
}

/// MODEL-12+-, TRAIN-27+: a model with training information is exported byte by byte before the
/// first step, and a session runs it. After a step, the inference model computes the results of
/// `infer`, and the exported model continues from the state of the trainer.
#[test]
fn an_export_has_the_current_values() {
    let model = model(DESCENT);
    let mut trainer = Trainer::new(&model).expect("a trainer");
    // What was never assigned is written as the file has it.
    assert_eq!(trainer.export().expect("an export").to_bytes(), model.to_bytes());
    let untrained = trainer.infer(x(&[3.0, 5.0]), &RunOptions::default()).expect("a run");
    let session = Session::new(&model).expect("a session");
    assert_eq!(session.run(x(&[3.0, 5.0]), &RunOptions::default()).expect("a run"), untrained);
    trainer.step(0, descent_data(), &RunOptions::default()).expect("a step");
    let infer = trainer.infer(x(&[3.0, 5.0]), &RunOptions::default()).expect("a run");
    let inference = trainer.export_inference().expect("an export");
    assert_eq!(inference.training_steps(), 0);
    let inference = Model::from_bytes(inference.to_bytes()).expect("a model");
    let session = Session::new(&inference).expect("a session");
    assert_eq!(session.run(x(&[3.0, 5.0]), &RunOptions::default()).expect("a run"), infer);
    assert!(Trainer::new(&inference).is_err());

    let exported = Model::from_bytes(trainer.export().expect("an export").to_bytes());
    let mut again = Trainer::new(&exported.expect("a model")).expect("a trainer");
    assert_eq!(bits(&again), bits(&trainer));
    for trainer in [&mut again, &mut trainer] {
        trainer.step(0, descent_data(), &RunOptions::default()).expect("a step");
    }
    assert_eq!(bits(&again), bits(&trainer));
    assert_eq!(model.to_bytes(), self::model(DESCENT).to_bytes());
}

/// State variables whose values lie in a file beside the model.
#[test]
fn stored_values_may_lie_in_data_files() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("m.onnx");
    let options = SaveOptions::new().weights(Weights::Outside).typed_values(true).threshold(0);
    options.save(&model(DESCENT), &path).expect("saved");
    let model = Model::open(&path).expect("a model");
    assert!(model.external_files().iter().len() > 0);
    let mut trainer = Trainer::new(&model).expect("a trainer");
    trainer.step(0, descent_data(), &RunOptions::default()).expect("a step");
    assert_eq!(of(&trainer, "w"), [0.5, -2.0]);
    let out = directory.path().join("out.onnx");
    trainer.export().expect("an export").save(&out).expect("saved");
    let again = Trainer::new(&Model::open(&out).expect("a model")).expect("a trainer");
    assert_eq!(of(&again, "w"), [0.5, -2.0]);
}

struct Files(tempfile::TempDir);

impl Files {
    fn new() -> Files {
        Files(tempfile::tempdir().expect("a directory"))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }
}

/// The state in a file of its own, with the generator: training goes on as if nothing had happened.
#[test]
fn a_state_is_saved_and_loaded() {
    let files = Files::new();
    let model = model(RANDOM);
    let four = || x(&[1.0, 1.0, 1.0, 1.0]);
    let mut trainer = Trainer::builder(&model).seed(3).build().expect("a trainer");
    trainer.initialize(&RunOptions::default()).expect("an initialization");
    trainer.step(0, four(), &RunOptions::default()).expect("a step");
    let saved = bits(&trainer);
    for name in ["state.npz", "state.safetensors"] {
        trainer.save(files.path(name)).expect("saved");
    }
    trainer.step(0, four(), &RunOptions::default()).expect("a step");
    for name in ["state.npz", "state.safetensors"] {
        let mut other = Trainer::new(&model).expect("a trainer");
        other.load(files.path(name)).expect("loaded");
        assert_eq!(bits(&other), saved, "{name}");
        assert_eq!(other.seed(), 3);
        other.step(0, four(), &RunOptions::default()).expect("a step");
        assert_eq!(bits(&other), bits(&trainer), "{name}");
    }
    let names = |path| {
        let bytes = fs::read(path).expect("a file");
        npz::read(&bytes.into()).expect("an archive").into_iter().map(|(name, _)| name)
    };
    let names: Vec<String> = names(files.path("state.npz")).collect();
    assert_eq!(names, ["w", "sardonyx.model", "sardonyx.generator"]);
    let error = trainer.save(files.path("state.txt")).expect_err("no such form");
    assert!(error.help().is_some_and(|help| help.contains(".safetensors or .npz")), "{error}");
}

/// The place in the data goes with the state. The hash of earlier releases, which counted devices,
/// is taken as well.
#[test]
fn a_state_has_a_place_in_the_data() {
    let files = Files::new();
    let model = model(DESCENT);
    let mut trainer = Trainer::new(&model).expect("a trainer");
    trainer.step(0, descent_data(), &RunOptions::default()).expect("a step");
    trainer.set_data_position(3, 40);
    for name in ["state.npz", "state.safetensors"] {
        trainer.check_save(files.path(name)).expect("it can be written");
        assert!(!files.path(name).exists());
        trainer.save(files.path(name)).expect("saved");
        let mut other = Trainer::new(&model).expect("a trainer");
        other.load(files.path(name)).expect("loaded");
        assert_eq!(other.data_position(), trainer.data_position(), "{name}");
        other.initialize(&RunOptions::default()).expect("an initialization");
        assert_eq!(other.data_position(), sardonyx::train::DataPosition::default());
    }

    let bytes = fs::read(files.path("state.npz")).expect("a file").into();
    let arrays = npz::read(&bytes).expect("an archive").into_iter();
    let arrays = arrays.map(|(name, bytes)| (name, npy::read(&bytes).expect("an array")));
    let mut arrays: Vec<(String, Tensor)> =
        arrays.filter(|(name, _)| name != "sardonyx.data").collect();
    let hash = model.content_hash().expect("a hash").into_bytes();
    arrays[1].1 = Tensor::from_vec([hash.len()], hash).expect("a tensor");
    let old = fs::File::create(files.path("old.npz")).expect("a file");
    let pairs = arrays.iter().map(|(name, array)| (name.as_str(), array));
    npz::write(old, pairs, npz::Packing::Stored).expect("written");
    let mut other = Trainer::new(&model).expect("a trainer");
    other.load(files.path("old.npz")).expect("loaded");
    assert_eq!(bits(&other), bits(&trainer));
    assert_eq!(other.data_position(), sardonyx::train::DataPosition::default());
}

/// A state that was loaded and is the stored one leaves the file as it is.
#[test]
fn values_that_did_not_change_stay_as_they_are_stored() {
    let files = Files::new();
    let model = model(DESCENT);
    let trainer = Trainer::new(&model).expect("a trainer");
    trainer.save(files.path("state.npz")).expect("saved");
    let mut other = Trainer::new(&model).expect("a trainer");
    other.load(files.path("state.npz")).expect("loaded");
    assert_eq!(other.export().expect("an export").to_bytes(), model.to_bytes());
    other.step(0, descent_data(), &RunOptions::default()).expect("a step");
    assert_ne!(other.export().expect("an export").to_bytes(), model.to_bytes());
}

/// What is no state of this model leaves the state as it was.
#[test]
fn a_state_of_another_model_is_refused() {
    let files = Files::new();
    let mut trainer = trainer(DESCENT);
    trainer.step(0, descent_data(), &RunOptions::default()).expect("a step");
    let before = bits(&trainer);
    let other = self::trainer(ADD_AND_DOUBLE);
    for name in ["other.npz", "other.safetensors"] {
        other.save(files.path(name)).expect("saved");
        let error = trainer.load(files.path(name)).expect_err("another model");
        assert!(error.message().contains("holds the state of another model"), "{error}");
    }
    let plain = fs::File::create(files.path("plain.npz")).expect("a file");
    npz::write(plain, [("w", &vector(&[1.0, 2.0]))], npz::Packing::Stored).expect("written");
    let error = trainer.load(files.path("plain.npz")).expect_err("it does not say of which model");
    assert!(error.message().contains("it is not a saved state"), "{error}");
    let mut plain = fs::File::create(files.path("plain.safetensors")).expect("a file");
    let tensors = [("w", &vector(&[1.0, 2.0]))];
    safetensors::write(&mut plain, tensors, []).expect("written");
    let error = trainer.load(files.path("plain.safetensors")).expect_err("no saved state");
    assert!(error.message().contains("it is not a saved state"), "{error}");
    fs::write(files.path("damaged.npz"), b"PK").expect("written");
    assert_eq!(
        trainer.load(files.path("damaged.npz")).expect_err("damaged").kind(),
        ErrorKind::Format
    );
    assert_eq!(trainer.load(files.path("none.npz")).expect_err("missing").kind(), ErrorKind::Io);
    assert_eq!(bits(&trainer), before);
}

/// What a model says about its training, without a trainer.
#[test]
fn a_model_lists_its_entries_and_state_variables() {
    let model = model(DESCENT);
    let [entry] = &model.training_entries()[..] else { panic!("one entry") };
    assert_eq!(entry.initialization.as_deref(), Some("init"));
    assert_eq!(entry.algorithm.as_deref(), Some("descent"));
    assert_eq!(
        (&entry.inputs[..], &entry.outputs[..]),
        (&["target".to_string()][..], &["loss".to_string(), "w1".to_string()][..])
    );
    assert_eq!(entry.initialization_binding, [("w".to_string(), "w0".to_string())]);
    assert_eq!(entry.update_binding, [("w".to_string(), "w1".to_string())]);
    let [variable] = &model.state_variables()[..] else { panic!("one variable") };
    assert_eq!((variable.name.as_str(), variable.entry, &variable.dims[..]), ("w", None, &[2][..]));
}

/// Graphs of nodes of an algorithm see values of the algorithm and of the main graph.
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
    // Three iterations, each with half of y = 4, and w = 1.
    assert_eq!(of(&trainer, "w"), [1.0 + 3.0 * 3.0]);
}

/// A clone has a state of its own.
#[test]
fn a_clone_is_trained_by_itself() {
    let kept = trainer(DESCENT);
    let mut trained = kept.clone();
    trained.step(0, descent_data(), &RunOptions::default()).expect("a step");
    assert_eq!(of(&trained, "w"), [0.5, -2.0]);
    assert_eq!(of(&kept, "w"), [1.0, 2.0]);
    let outputs = kept.infer(x(&[1.0, 1.0]), &RunOptions::default()).expect("inference runs");
    assert_eq!(output(&outputs, "y"), [1.0, 2.0]);
    let names: Vec<&str> = kept.inference_outputs().iter().map(sardonyx::Port::name).collect();
    assert_eq!(names, ["y"]);
}

/// Where the elements of a variable lie.
fn address(trainer: &Trainer, name: &str) -> usize {
    let value = trainer.variable(name).expect("a state variable");
    value.bytes().as_ptr().addr()
}

/// The weights and what an optimizer keeps for them stay where they are, and are what they become
/// with memory of their own.
#[test]
fn new_values_are_written_over_old_ones() {
    let text = "<ir_version: 10, opset_import: [\"\": 21]>
                g (float[N, 3] x) => (float[N, 2] y)
                <float[3, 2] w = {0, 1, 2, 3, 4, 5}, float[2] b = {1, 2}> { y = Gemm (x, w, b) }";
    let adam =
        |decoupled| OptimizerKind::Adam { beta1: 0.9, beta2: 0.999, epsilon: 1e-8, decoupled };
    let kinds = [
        (OptimizerKind::Sgd, 2),
        (OptimizerKind::Momentum { momentum: 0.9, nesterov: false }, 4),
        (OptimizerKind::Momentum { momentum: 0.9, nesterov: true }, 4),
        (OptimizerKind::Adagrad { epsilon: 1e-8, decay: 0.1 }, 4),
        (adam(false), 6),
        (adam(true), 6),
    ];
    let data = [
        ("x", Tensor::from_vec([2, 3], vec![1f32, -2.0, 3.0, 0.5, 4.0, -1.0]).expect("data")),
        ("target", Tensor::from_vec([2, 2], vec![1f32, 2.0, -1.0, 0.5]).expect("data")),
    ];
    for (kind, floats) in kinds {
        let loss = Loss::SquaredError { output: None };
        let mut options = TrainingOptions::new(loss).optimizer(kind, 0.01).weight_decay(0.1);
        if kind == OptimizerKind::Sgd {
            options = options.clipping(Clipping::Norm(1.0));
        }
        let model = Model::from_text(text).expect("a model");
        let (model, _) = model.add_training(&options).expect("training");
        let mut trainer = Trainer::builder(&model).seed(1).build().expect("a trainer");
        let mut apart = trainer.clone();
        trainer.step(0, data.clone(), &RunOptions::default()).expect("a step");
        apart.step(0, data.clone(), &RunOptions::default()).expect("a step");
        let names: Vec<String> = trainer
            .state_types()
            .filter(|(_, ty)| ty.elem() == Some(DataType::Float))
            .map(|(name, _)| name.to_string())
            .collect();
        assert_eq!(names.len(), floats, "{kind:?}");
        let before: Vec<usize> = names.iter().map(|name| address(&trainer, name)).collect();
        for _ in 0..3 {
            let outputs = trainer.step(0, data.clone(), &RunOptions::default()).expect("a step");
            assert!(output(&outputs, "loss")[0].is_finite());
            // Somebody else has the old values, so the new ones are elsewhere.
            let kept = apart.state().expect("the state").into_iter().map(|(_, value)| value);
            let kept: Vec<Tensor> = kept.collect();
            let old: Vec<Vec<u8>> = kept.iter().map(|value| value.bytes().to_vec()).collect();
            apart.step(0, data.clone(), &RunOptions::default()).expect("a step");
            let still: Vec<Vec<u8>> = kept.iter().map(|value| value.bytes().to_vec()).collect();
            assert_eq!(old, still, "{kind:?}");
            drop(outputs);
        }
        let after: Vec<usize> = names.iter().map(|name| address(&trainer, name)).collect();
        assert_eq!(before, after, "{kind:?}");
        assert_eq!(bits(&trainer), bits(&apart), "{kind:?}");
        // The same without any rewrite of the program.
        let plain =
            Trainer::builder(&model).session(|session| session.optimization(Optimization::Off));
        let mut plain = plain.seed(1).build().expect("a trainer");
        for _ in 0..4 {
            plain.step(0, data.clone(), &RunOptions::default()).expect("a step");
        }
        for name in &names {
            let close = of(&plain, name).into_iter().zip(of(&trainer, name));
            for (plain, updated) in close {
                assert!((plain - updated).abs() <= 1e-5 * plain.abs().max(1.0), "{kind:?} {name}");
            }
        }
    }
}

/// What a step returns stays what it was when a later step writes over the state.
#[test]
fn returned_values_are_not_overwritten() {
    let mut trainer = trainer(DESCENT);
    let first = trainer.step(0, descent_data(), &RunOptions::default()).expect("a step");
    let w = output(&first, "w1");
    assert_eq!(w, of(&trainer, "w"));
    let second = trainer.step(0, descent_data(), &RunOptions::default()).expect("a step");
    assert_eq!(output(&first, "w1"), w);
    assert_eq!(output(&second, "w1"), of(&trainer, "w"));
    assert_ne!(output(&second, "w1"), w);
}

/// Memory for outputs that does not fit is refused before a value changes, also that of an output
/// that is written over the state.
#[test]
fn memory_that_does_not_fit_changes_nothing() {
    let mut trainer = trainer(DESCENT);
    let before = bits(&trainer);
    let data = descent_data();
    let inputs: Vec<(&str, TensorView<'_>)> =
        data.iter().map(|(name, value)| (*name, value.view())).collect();
    let mut room = [0f32; 3];
    let memory = TensorViewMut::from_slice([3], &mut room).expect("memory");
    let error = trainer
        .step_into(0, &inputs, &mut [("w1", memory)], &RunOptions::default())
        .expect_err("w has two");
    assert_eq!(error.kind(), ErrorKind::Input);
    assert!(error.message().starts_with("the output 'w1': "), "{error}");
    assert_eq!(bits(&trainer), before);
    let mut room = [0f32; 2];
    let memory = TensorViewMut::from_slice([2], &mut room).expect("memory");
    trainer.step_into(0, &inputs, &mut [("w1", memory)], &RunOptions::default()).expect("a step");
    assert_eq!(room.to_vec(), of(&trainer, "w"));
    assert_ne!(bits(&trainer), before);
}

/// One new value may become that of two variables, whether something reads these or not.
#[test]
fn one_value_becomes_two_variables() {
    for value in ["Neg (f)", "Add (f, g)"] {
        let mut trainer = trainer(&format!(
            "g (float[2] x) => (float[2] y) <float[2] f = {{1, 2}}, float[2] g = {{3, 5}}> {{
                 y = Neg (x)
             }}
             @<training_info: [{{
                 algorithm: both () => (float[2] f1) {{ f1 = {value} }},
                 update_binding: [\"f\": \"f1\", \"g\": \"f1\"]
             }}]>"
        ));
        for _ in 0..2 {
            let outputs = trainer.step(0, x(&[0.0, 0.0]), &RunOptions::default()).expect("a step");
            let expected = output(&outputs, "f1");
            assert_eq!([of(&trainer, "f"), of(&trainer, "g")], [expected.clone(), expected]);
        }
    }
}

/// A step whose only work is to write over the state is stopped as any other.
#[test]
fn a_step_of_updates_alone_can_be_stopped() {
    let model = model(
        "g (float[2] x) => (float[2] y) <float[2] w = {1, 2}> { y = Neg (x) }
         @<training_info: [{
             algorithm: down () => (float[2] w1) { w1 = Sub (w, x) },
             update_binding: [\"w\": \"w1\"]
         }]>",
    );
    let trainer = Trainer::builder(&model).outputs::<String>([]);
    let mut trainer = trainer.build().expect("a trainer");
    let late = RunOptions::new().deadline(Instant::now());
    let error = trainer.step(0, x(&[1.0, 1.0]), &late).expect_err("it is late");
    assert_eq!(error.kind(), ErrorKind::Stopped);
    assert_eq!(of(&trainer, "w"), [1.0, 2.0]);
    trainer.step(0, x(&[1.0, 1.0]), &RunOptions::default()).expect("a step");
    assert_eq!(of(&trainer, "w"), [0.0, 1.0]);
}

/// What updates read stays until they run, also if an image is brought into rows for one of them.
#[test]
fn operands_of_updates_stay_until_the_end() {
    let numbers = |count: usize, by: usize| {
        let numbers = (0..count).map(|i| ((i * by % 23) as f32 / 23.0 - 0.5).to_string());
        numbers.collect::<Vec<_>>().join(", ")
    };
    let text = format!(
        "g (float[1, 16, 16, 16] x, float[64, 8] s, float[8, 64] t) => (float[1, 16, 16, 16] y)
         <float[16, 16, 3, 3] k = {{{}}}, float[16, 16, 1, 1] l = {{{}}}, float[64, 64] a = {{{}}},
          float[1, 16, 16, 16] ema = {{{}}}> {{
             f = Conv <pads: ints = [1, 1, 1, 1]> (x, k)
             h = Conv (f, l)
             i = Conv <pads: ints = [1, 1, 1, 1]> (f, k)
             y = Add (h, i)
         }}
         @<training_info: [{{
             algorithm: means () => (float[64, 64] a1, float[1, 16, 16, 16] ema1)
               <float most = {{0.9}}, float few = {{0.1}}> {{
                 p = MatMul (s, t)
                 a1 = Sub (a, p)
                 kept = Mul (ema, most)
                 part = Mul (f, few)
                 ema1 = Add (kept, part)
             }},
             update_binding: [\"a\": \"a1\", \"ema\": \"ema1\"]
         }}]>",
        numbers(2304, 7),
        numbers(256, 11),
        numbers(4096, 13),
        numbers(4096, 17),
    );
    let model = model(&text);
    let tensor = |dims: &[usize]| {
        let count = dims.iter().product();
        let numbers = (0..count).map(|i| (i * 29 % 31) as f32 / 31.0).collect();
        Tensor::from_vec(dims, numbers).expect("a tensor")
    };
    let data = [("x", tensor(&[1, 16, 16, 16])), ("s", tensor(&[64, 8])), ("t", tensor(&[8, 64]))];
    let trained = |optimization| {
        let trainer = Trainer::builder(&model).session(|s| s.optimization(optimization));
        let mut trainer = trainer.build().expect("a trainer");
        for _ in 0..3 {
            trainer.step(0, data.clone(), &RunOptions::default()).expect("a step");
        }
        [of(&trainer, "a"), of(&trainer, "ema")].concat()
    };
    let (plain, updated) = (trained(Optimization::Off), trained(Optimization::All));
    for (plain, updated) in plain.iter().zip(&updated) {
        assert!((plain - updated).abs() < 1e-5, "{plain} {updated}");
    }
}

/// Steps that are fused take the same steps of descent as nodes one by one: through a pool whose
/// windows overlap, and with weights that are transposed.
#[test]
fn fused_gradients_are_those_of_single_nodes() {
    let numbers = |count: usize| {
        let numbers = (0..count).map(|i| ((i * 37 % 23) as f32 / 23.0 - 0.5).to_string());
        numbers.collect::<Vec<_>>().join(", ")
    };
    let text = format!(
        "<ir_version: 10, opset_import: [\"\": 21]>
         g (float[N, 1, 6, 6] x) => (float[N, 3] y)
         <float[2, 1, 3, 3] k = {{{}}}, float[3, 50] w = {{{}}}> {{
             c = Conv <pads = [1, 1, 1, 1]> (x, k)
             p = MaxPool <kernel_shape = [2, 2]> (c)
             f = Flatten (p)
             t = Transpose (w)
             y = MatMul (f, t)
         }}",
        numbers(18),
        numbers(150)
    );
    let options = TrainingOptions::new(Loss::SquaredError { output: None });
    let options = options.optimizer(OptimizerKind::Sgd, 0.01);
    let model = Model::from_text(&text).expect("a model");
    let (model, _) = model.add_training(&options).expect("training");
    let tensor = |dims: &[usize]| {
        let count = dims.iter().product();
        let numbers = (0..count).map(|i| (i * 29 % 31) as f32 / 31.0).collect();
        Tensor::from_vec(dims, numbers).expect("a tensor")
    };
    let data = [("x", tensor(&[4, 1, 6, 6])), ("target", tensor(&[4, 3]))];
    let trained = |optimization| {
        let trainer = Trainer::builder(&model).session(|s| s.optimization(optimization));
        let mut trainer = trainer.build().expect("a trainer");
        for _ in 0..5 {
            trainer.step(0, data.clone(), &RunOptions::default()).expect("a step");
        }
        [of(&trainer, "k"), of(&trainer, "w")].concat()
    };
    let (plain, fused) = (trained(Optimization::Off), trained(Optimization::All));
    for (plain, fused) in plain.iter().zip(&fused) {
        assert!((plain - fused).abs() < 1e-6, "{plain} {fused}");
    }
    assert_ne!(
        trained(Optimization::All)[..18],
        of(&Trainer::new(&model).expect("a trainer"), "k")[..]
    );
}

/// A session of an exported model shares packed weights with later ones of the same bytes, and not
/// with those that a step has written over them.
#[test]
fn sessions_of_exports_have_the_weights_of_their_time() {
    let text = "<ir_version: 10, opset_import: [\"\": 21]>
                g (float[N, 2] x) => (float[N, 2] y) <float[2, 2] w = {1, 2, 3, 4}> { y = MatMul (x, w) }";
    let options = TrainingOptions::new(Loss::SquaredError { output: None });
    let options = options.optimizer(OptimizerKind::Sgd, 0.1);
    let (model, _) =
        Model::from_text(text).expect("a model").add_training(&options).expect("training");
    let mut trainer = Trainer::new(&model).expect("a trainer");
    let pair = |elements: [f32; 2]| Tensor::from_vec([1, 2], elements.to_vec()).expect("a row");
    let data = [("x", pair([1.0, 2.0])), ("target", pair([0.0, 1.0]))];
    let mut sessions = Vec::new();
    for _ in 0..3 {
        trainer.step(0, data.clone(), &RunOptions::default()).expect("a step");
        let session = Session::new(&trainer.export_inference().expect("a model")).expect("it runs");
        sessions.push((
            session,
            trainer.infer([("x", pair([1.0, 2.0]))], &RunOptions::default()).expect("inference"),
        ));
    }
    for (session, expected) in &sessions {
        let found = session.run([("x", pair([1.0, 2.0]))], &RunOptions::default()).expect("a run");
        assert_eq!(output(&found, "y"), output(expected, "y"));
    }
    let distinct = sessions.iter().map(|(_, outputs)| output(outputs, "y"));
    let distinct: Vec<Vec<f32>> = distinct.collect();
    assert!(distinct[0] != distinct[1] && distinct[1] != distinct[2], "{distinct:?}");
}

//! Tests of training information that is refused, and of failing calls, which leave the state
//! unchanged.

use std::time::Instant;

use sardonyx::{ErrorKind, RunOptions, Tensor};

use super::{DESCENT, bits, expect_refusal, no_inputs, trainer, value_of, vector, x};

/// Makes a model with more initializers, and one entry of training information.
fn with_training(initializers: &str, info: &str) -> String {
    format!(
        "g (float[2] x) => (float[2] y) <float[2] w = {{1, 2}}{initializers}> {{ y = Mul (x, w) }}
         @<training_info: [{{{info}}}]>"
    )
}

/// Checks the error for each contradiction in training information.
#[test]
fn training_information_that_contradicts_itself_is_refused() {
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
        // TRAIN-16-: names of the main graph and of the algorithm must be distinct.
        ("", "algorithm: s () => (float[2] y) { y = Neg (w) }".to_string(), "'y' is also a name of the main graph"),
        // TRAIN-18-
        (
            "",
            "initialization: i (float[2] seed) => (float[2] w0) { w0 = Neg (seed) },
             initialization_binding: [\"w\": \"w0\"]"
                .to_string(),
            "has an input",
        ),
        // TRAIN-25-: the declared type differs, then the inferred one.
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
            "have 1000000000 elements, more than 8 for each of the 0 elements of dense state variables",
        ),
        (
            ", string[1] s = {\"a\"}",
            "algorithm: s () => (string[1] s) {}, update_binding: [\"s\": \"s\"]".to_string(),
            "the state variable 's' has type string",
        ),
    ] {
        let error = expect_refusal(&with_training(initializers, &info));
        assert!(error.to_string().contains(expected), "{info}\n{error}");
    }
}

/// Checks that graphs of training entries run in sorted order, with a warning for unsorted ones.
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
    assert!(algorithm.contains("other runtimes may refuse the model"), "{algorithm}");
    let mut trainer = trainer;
    trainer.step(1, [("x", vector(&[1.0, 1.0]))], &RunOptions::default()).unwrap();
    assert_eq!(trainer.variable("z").unwrap().to_vec::<f32>().unwrap(), [0.0; 2]);
}

/// Checks that the main graph cannot read a value of an algorithm, although a step runs both
/// (TRAIN-17-).
#[test]
fn the_main_graph_reads_nothing_of_an_algorithm() {
    let error = expect_refusal(
        "g (float[2] x) => (float[2] y) <float[2] w = {1, 2}> { y = Mul (x, w1) }
         @<training_info: [{
             algorithm: step () => (float[2] w1) { w1 = Neg (w) },
             update_binding: [\"w\": \"w1\"]
         }]>",
    );
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(error.to_string().contains("'w1'"), "{error}");
}

/// Checks that a model without training information is refused (TRAIN-23-).
#[test]
fn a_model_without_training_information_is_refused() {
    let error = expect_refusal("g (float x) => (float y) { y = Neg (x) }");
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(error.message().contains("no training information"), "{error}");
    assert!(error.help().is_some_and(|help| help.contains("add-training")), "{error}");
}

/// Checks that the state is unchanged after a step that fails for any reason.
#[test]
fn a_failing_step_changes_nothing() {
    // The new value of `a` fits, that of `b` has another shape.
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
    let error = trainer.step(0, no_inputs(), &RunOptions::default()).expect_err("no input");
    assert_eq!(error.kind(), ErrorKind::Input);
    let given = [("x", vector(&[1.0, 2.0])), ("a", vector(&[1.0, 2.0]))];
    let error = trainer.step(0, given, &RunOptions::default()).expect_err("a is given");
    assert_eq!(error.message(), "'a' is a state variable, not an input");
    let late = RunOptions::new().deadline(Instant::now());
    let error = trainer.step(0, x(&[1.0, 2.0]), &late).expect_err("it is late");
    assert_eq!(error.kind(), ErrorKind::Stopped);
    assert_eq!(bits(&trainer), before);

    trainer.step(0, x(&[1.0, 2.0]), &RunOptions::default()).expect("a step");
    assert_eq!([value_of(&trainer, "a"), value_of(&trainer, "b")], [[-1.0, -2.0], [2.0, 4.0]]);
}

/// Checks that an iteration whose second step fails undoes the first step, and likewise for
/// initialization.
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
    // The shape of `b0` is known only after it has been computed.
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
    assert_eq!([value_of(&trainer, "a"), value_of(&trainer, "b")], [[-1.0, -2.0], [2.0, 4.0]]);
}

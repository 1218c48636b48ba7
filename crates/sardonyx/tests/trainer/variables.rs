//! Tests of state variables: sparse ones, overridable ones, those of several entries.

use sardonyx::check;
use sardonyx::tool::ModelExt;
use sardonyx::{ErrorKind, Model, RunOptions, Session, Tensor, Trainer};

use super::{DESCENT, model, output, trainer, value_of, vector, x};

/// Checks that sparse initializers of the main graph and of an algorithm are state, and that only
/// changed ones are exported as dense initializers (TRAIN-09+, TRAIN-11+, TRAIN-21+).
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
    // Through bytes, so that reading the sparse initializers is tested too.
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

/// Checks that a step ignores the default of an initializer that is also an input, and that
/// inference may override it.
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
    // The declared type, not that of the stored value, limits an overriding value.
    let short = [("x", vector(&[1.0, 1.0])), ("w", vector(&[3.0]))];
    assert_eq!(
        output(&trainer.infer(short, &RunOptions::default()).expect("a run"), "y"),
        [3.0, 3.0]
    );
    assert_eq!(value_of(&trainer, "w"), [2.0, 4.0]);
    let inputs: Vec<_> = trainer.inference_inputs().map(|port| port.name().to_string()).collect();
    assert_eq!(inputs, ["x", "w"]);
}

/// Checks that inference cannot override a state variable that is not an input.
#[test]
fn a_state_variable_that_is_not_an_input_is_not_overridden() {
    let trainer = trainer(DESCENT);
    let own = [("x", vector(&[1.0, 1.0])), ("w", vector(&[7.0, 8.0]))];
    let error = trainer.infer(own, &RunOptions::default()).expect_err("w is not an input");
    assert_eq!(error.message(), "'w' is a state variable, not an input");
}

/// Checks that a state variable is not treated as a constant: it is neither merged with an equal
/// constant nor folded, and functions and subgraphs read its current value (TRAIN-10-).
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
    assert_eq!(error.help(), Some("use one of the state variables: w"));
    assert_eq!(value_of(&trainer, "w"), [8.0, 9.0]);
}

/// Checks that equally named initializers of two algorithms are two variables.
#[test]
fn variables_of_algorithms_are_distinguished_by_their_entry() {
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
    assert_eq!([value_of(&trainer, first), value_of(&trainer, second)], [[3.0], [20.0]]);
    let exported = trainer.export().expect("an export");
    trainer.initialize(&RunOptions::default()).expect("an initialization");
    assert_eq!([value_of(&trainer, first), value_of(&trainer, second)], [[3.0], [10.0]]);
    let again = Trainer::new(&exported).expect("a trainer");
    assert_eq!([value_of(&again, first), value_of(&again, second)], [[3.0], [20.0]]);
}

/// Checks the description of a model's training information, which needs no trainer.
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

//! Tests of new values that a step writes over the old ones in place.

use std::time::Instant;

use sardonyx::run::Optimization;
use sardonyx::train::{Clipping, Loss, OptimizerKind, TrainingOptions};
use sardonyx::{
    DataType, ErrorKind, Model, RunOptions, Tensor, TensorView, TensorViewMut, Trainer,
};

use super::{DESCENT, bits, descent_data, model, output, trainer, value_of, x};

/// Returns the address of the elements of a variable.
fn address(trainer: &Trainer, name: &str) -> usize {
    let value = trainer.variable(name).expect("a state variable");
    value.bytes().as_ptr().addr()
}

/// Checks for every optimizer that weights and optimizer state are updated in place, with the
/// values of a copying trainer.
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
            // The old values are shared with `kept`, so the new ones need other memory.
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
        // Without rewrites, nothing is updated in place.
        let plain =
            Trainer::builder(&model).session(|session| session.optimization(Optimization::Off));
        let mut plain = plain.seed(1).build().expect("a trainer");
        for _ in 0..4 {
            plain.step(0, data.clone(), &RunOptions::default()).expect("a step");
        }
        for name in &names {
            let close = value_of(&plain, name).into_iter().zip(value_of(&trainer, name));
            for (plain, updated) in close {
                assert!((plain - updated).abs() <= 1e-5 * plain.abs().max(1.0), "{kind:?} {name}");
            }
        }
    }
}

/// Checks that a later step does not overwrite returned outputs.
#[test]
fn returned_values_are_not_overwritten() {
    let mut trainer = trainer(DESCENT);
    let first = trainer.step(0, descent_data(), &RunOptions::default()).expect("a step");
    let w = output(&first, "w1");
    assert_eq!(w, value_of(&trainer, "w"));
    let second = trainer.step(0, descent_data(), &RunOptions::default()).expect("a step");
    assert_eq!(output(&first, "w1"), w);
    assert_eq!(output(&second, "w1"), value_of(&trainer, "w"));
    assert_ne!(output(&second, "w1"), w);
}

/// Checks that output memory of a wrong size is refused before the state changes, also for an
/// output that is updated in place.
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
    assert_eq!(room.to_vec(), value_of(&trainer, "w"));
    assert_ne!(bits(&trainer), before);
}

/// Checks that one value can be assigned to two variables, read or unread by the step.
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
            assert_eq!(
                [value_of(&trainer, "f"), value_of(&trainer, "g")],
                [expected.clone(), expected]
            );
        }
    }
}

/// Checks that a step that consists only of in-place updates can be stopped.
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
    assert_eq!(value_of(&trainer, "w"), [1.0, 2.0]);
    trainer.step(0, x(&[1.0, 1.0]), &RunOptions::default()).expect("a step");
    assert_eq!(value_of(&trainer, "w"), [0.0, 1.0]);
}

/// Checks that the operands of deferred updates are kept until the updates run, also if one is an
/// image in a blocked layout.
#[test]
fn operands_of_updates_stay_until_the_end() {
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
        number_list(2304, 7),
        number_list(256, 11),
        number_list(4096, 13),
        number_list(4096, 17),
    );
    let model = model(&text);
    let data = [
        ("x", test_tensor(&[1, 16, 16, 16])),
        ("s", test_tensor(&[64, 8])),
        ("t", test_tensor(&[8, 64])),
    ];
    let (plain, updated) = (
        train(&model, Optimization::Off, &data, 3, &["a", "ema"]),
        train(&model, Optimization::All, &data, 3, &["a", "ema"]),
    );
    for (plain, updated) in plain.iter().zip(&updated) {
        assert!((plain - updated).abs() < 1e-5, "{plain} {updated}");
    }
}

/// Checks that fused steps descend like single nodes, through a pool with overlapping windows and a
/// transposed weight.
#[test]
fn fused_gradients_are_those_of_single_nodes() {
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
        number_list(18, 37),
        number_list(150, 37)
    );
    let options = TrainingOptions::new(Loss::SquaredError { output: None });
    let options = options.optimizer(OptimizerKind::Sgd, 0.01);
    let model = Model::from_text(&text).expect("a model");
    let (model, _) = model.add_training(&options).expect("training");
    let data = [("x", test_tensor(&[4, 1, 6, 6])), ("target", test_tensor(&[4, 3]))];
    let (plain, fused) = (
        train(&model, Optimization::Off, &data, 5, &["k", "w"]),
        train(&model, Optimization::All, &data, 5, &["k", "w"]),
    );
    for (plain, fused) in plain.iter().zip(&fused) {
        assert!((plain - fused).abs() < 1e-6, "{plain} {fused}");
    }
    assert_ne!(
        train(&model, Optimization::All, &data, 5, &["k", "w"])[..18],
        value_of(&Trainer::new(&model).expect("a trainer"), "k")[..]
    );
}

/// Writes numbers between -0.5 and 0.5 as a list of initializer elements.
fn number_list(count: usize, factor: usize) -> String {
    let numbers = (0..count).map(|i| ((i * factor % 23) as f32 / 23.0 - 0.5).to_string());
    numbers.collect::<Vec<_>>().join(", ")
}

fn test_tensor(dims: &[usize]) -> Tensor {
    let count = dims.iter().product();
    let numbers = (0..count).map(|i| (i * 29 % 31) as f32 / 31.0).collect();
    Tensor::from_vec(dims, numbers).expect("a tensor")
}

/// Trains for some steps and returns the elements of some variables.
fn train(
    model: &Model,
    optimization: Optimization,
    data: &[(&str, Tensor)],
    steps: usize,
    names: &[&str],
) -> Vec<f32> {
    let trainer = Trainer::builder(model).session(|s| s.optimization(optimization));
    let mut trainer = trainer.build().expect("a trainer");
    for _ in 0..steps {
        trainer.step(0, data.to_vec(), &RunOptions::default()).expect("a step");
    }
    names.iter().flat_map(|name| value_of(&trainer, name)).collect()
}

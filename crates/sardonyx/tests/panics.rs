//! Panics during runs, of operators and callbacks of the program: each becomes an error of the call
//! that caused it, and later calls work.

use std::cell::Cell;
use std::iter;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

#[cfg(feature = "device")]
use sardonyx::device::{DeviceOptions, Division, ShardOptions};
use sardonyx::ops::{CustomOperator, NodeTypes, OperatorCall, OperatorError, RuleAnswer};
use sardonyx::run::StepEvent;
use sardonyx::tool::keep_panic_places;
use sardonyx::{
    Error, ErrorKind, Model, Outputs, RunOptions, Session, Tensor, TensorView, TensorViewMut,
    Trainer, Value,
};

/// Operator that adds 1 to each element, and panics while `breaks` is set.
#[derive(Clone, Default)]
struct Fragile {
    breaks: Arc<AtomicBool>,
    breaks_types: bool,
}

impl Fragile {
    fn set(&self, breaks: bool) {
        self.breaks.store(breaks, Ordering::Relaxed);
    }
}

impl CustomOperator for Fragile {
    fn run(&self, call: &mut OperatorCall<'_, '_>) -> Result<(), OperatorError> {
        let dims = call.dims(0)?.to_vec();
        let x = call.slice::<f32>(0)?;
        let y = call.output_slice::<f32>(0, &dims)?;
        y.iter_mut().zip(x).for_each(|(y, x)| *y = x + 1.0);
        assert!(!self.breaks.load(Ordering::Relaxed), "the operator broke");
        Ok(())
    }

    fn infer(&self, node: &mut NodeTypes<'_, '_>) -> RuleAnswer {
        assert!(!self.breaks_types, "the types broke");
        let Some(x) = node.input(0).cloned() else { return RuleAnswer::NoRule };
        node.set_output(0, x);
        RuleAnswer::Inferred
    }
}

fn model(graph: &str) -> Model {
    let head = "<ir_version: 11, opset_import: [\"\": 21, \"com.example\": 1]>";
    Model::from_text(&format!("{head} {graph}")).unwrap()
}

fn x() -> Tensor {
    Tensor::from_vec([2, 2], vec![1f32, -2.0, 3.0, 0.5]).unwrap()
}

fn numbers(outputs: &Outputs) -> Vec<f32> {
    outputs.tensor("y").unwrap().to_vec::<f32>().unwrap()
}

/// Asserts that an error is of a panic in this file, with this message and node.
#[track_caller]
fn assert_internal(error: &Error, what: &str, node: &str) {
    assert_eq!((error.kind(), error.kind().name()), (ErrorKind::Internal, "internal"), "{error}");
    assert_eq!(error.message(), format!("internal error: {what}"));
    let place = error.place().unwrap();
    assert!(place.starts_with(&format!("{}:", file!())), "{place}");
    assert!(place.contains(node), "{place}");
    assert!(error.help().unwrap().contains("bug"), "{error}");
}

/// Checks that a panic of an operator fails only its run.
#[test]
fn a_session_runs_again_after_a_panic() {
    keep_panic_places();
    let graphs = [
        "g (float[N, 2] x) => (float[N, 2] y) {
            a = Neg (x)  b = com.example.Fragile (a)  y = Relu (b) }",
        "g (float[N, 2] x) => (float[N, 2] y) <int64 n = {2}, bool on = {1}> {
            y = Loop (n, on, x) <
              body = turn (int64 i, bool d, float[N, 2] v) => (bool d, float[N, 2] w) {
                a = Neg (v)  b = com.example.Fragile (a)  w = Relu (b) }> }",
    ];
    for (graph, threads) in graphs.into_iter().flat_map(|graph| [(graph, 1), (graph, 2)]) {
        let fragile = Fragile::default();
        let model = model(graph);
        let builder = Session::builder(&model).threads(threads);
        let session = builder.operator("com.example", "Fragile", fragile.clone()).build().unwrap();
        let run = || session.run([("x", x())], &RunOptions::default());
        let wanted = numbers(&run().unwrap());
        for _ in 0..3 {
            fragile.set(true);
            assert_internal(&run().unwrap_err(), "the operator broke", "Fragile");
            // With a deadline, kernels run inside another `catch_unwind`, which cancels by a panic.
            let deadline = Instant::now() + Duration::from_secs(600);
            let limited = session.run([("x", x())], &RunOptions::new().deadline(deadline));
            assert_internal(&limited.unwrap_err(), "the operator broke", "Fragile");
            let (given, mut memory) = (x().to_vec::<f32>().unwrap(), vec![0f32; 4]);
            let view = TensorView::from_slice([2, 2], &given).unwrap();
            let output = TensorViewMut::from_slice([2, 2], &mut memory).unwrap();
            let into = session.run_into(
                &[("x", view.clone())],
                &mut [("y", output)],
                &RunOptions::default(),
            );
            assert_internal(&into.unwrap_err(), "the operator broke", "Fragile");
            fragile.set(false);
            assert_eq!(numbers(&run().unwrap()), wanted);
            let output = TensorViewMut::from_slice([2, 2], &mut memory).unwrap();
            session.run_into(&[("x", view)], &mut [("y", output)], &RunOptions::default()).unwrap();
            assert_eq!(memory, wanted);
        }
    }
}

#[test]
fn a_panic_of_a_watcher_ends_its_run_only() {
    keep_panic_places();
    let session = Session::new(&model("g (float[N, 2] x) => (float[N, 2] y) { y = Erf (x) }"));
    let session = session.unwrap();
    let watch = |_: StepEvent| panic!("the watcher broke");
    let error = session.run([("x", x())], &RunOptions::new().watch(&watch)).unwrap_err();
    assert_internal(&error, "the watcher broke", "Erf");
    assert_eq!(numbers(&session.run([("x", x())], &RunOptions::default()).unwrap()).len(), 4);
}

#[test]
fn building_a_session_fails_after_a_panic() {
    keep_panic_places();
    let constant = model(
        "g () => (float[2] y) <float[2] w = {1, 2}> { a = com.example.Fragile (w) y = Neg (a) }",
    );
    let fragile = Fragile::default();
    fragile.set(true);
    let build = |fragile: &Fragile| {
        Session::builder(&constant).operator("com.example", "Fragile", fragile.clone()).build()
    };
    assert_internal(&build(&fragile).unwrap_err(), "the operator broke", "");
    fragile.set(false);
    assert_eq!(
        numbers(
            &build(&fragile)
                .unwrap()
                .run(iter::empty::<(String, Value)>(), &RunOptions::default())
                .unwrap()
        ),
        [-2.0, -3.0]
    );
    let typed = Fragile { breaks_types: true, ..Fragile::default() };
    assert_internal(&build(&typed).unwrap_err(), "the types broke", "");
}

#[test]
#[cfg(feature = "device")]
fn devices_run_again_after_a_panic_of_one() {
    keep_panic_places();
    let text = model(
        "g (float[N, 2] x) => (float[N, 2] y) {
            a = Exp (x)  b = com.example.Fragile (a)  y = Neg (b) }",
    );
    let (divided, _) =
        text.shard(&ShardOptions::new(Division::Pipeline, 2).configuration("two")).unwrap();
    let fragile = Fragile::default();
    let builder = Session::builder(&divided).operator("com.example", "Fragile", fragile.clone());
    let session = builder.devices(DeviceOptions::new()).unwrap();
    let run = || session.run([("x", x())], &RunOptions::default());
    let wanted = numbers(&run().unwrap());
    for _ in 0..3 {
        fragile.set(true);
        assert_internal(&run().unwrap_err(), "the operator broke", "Fragile");
        fragile.set(false);
        assert_eq!(numbers(&run().unwrap()), wanted);
    }
}

/// Makes a model whose training step subtracts `slope`, the output of an operator of the program,
/// from `w`.
fn training_model() -> Model {
    Model::from_text(
        "<notation: \"full\", ir_version: 10, opset_import: [\"\": 21, \"com.example\": 1]>
         g (float[2, 2] x) => (float[2, 2] y) <float[2, 2] w = {1, 2, 3, 4}> { y = Mul (x, w) }
         @<training_info: [{
             algorithm: descent () => (float[2, 2] new_w) {
                 slope = com.example.Fragile (y)
                 new_w = Sub (w, slope)
             },
             update_binding: [\"w\": \"new_w\"]
         }]>",
    )
    .unwrap()
}

fn weights(trainer: &Trainer) -> Vec<f32> {
    trainer.variable("w").unwrap().to_vec::<f32>().unwrap()
}

#[test]
fn a_panic_of_a_step_leaves_the_state_as_it_was() {
    keep_panic_places();
    let model = training_model();
    let fragile = Fragile::default();
    let builder = Trainer::builder(&model)
        .session(|session| session.operator("com.example", "Fragile", fragile.clone()));
    let mut trainer = builder.build().unwrap();
    trainer.step(0, [("x", x())], &RunOptions::default()).unwrap();
    let before = weights(&trainer);
    fragile.set(true);
    let error = trainer.step(0, [("x", x())], &RunOptions::default()).unwrap_err();
    assert_internal(&error, "the operator broke", "Fragile");
    assert_eq!(weights(&trainer), before);
    fragile.set(false);
    trainer.step(0, [("x", x())], &RunOptions::default()).unwrap();
    assert_ne!(weights(&trainer), before);
}

#[test]
fn a_trainer_with_partly_written_state_fails() {
    keep_panic_places();
    let model = training_model();
    let builder = Trainer::builder(&model)
        .session(|session| session.operator("com.example", "Fragile", Fragile::default()));
    let mut trainer = builder.build().unwrap();
    let directory = tempfile::tempdir().unwrap();
    let saved = directory.path().join("state.safetensors");
    let events = Cell::new(0);
    let count = |_: StepEvent| events.update(|events| events + 1);
    trainer.step(0, [("x", x())], &RunOptions::new().watch(&count)).unwrap();
    let after_one = weights(&trainer);
    trainer.save(&saved).unwrap();
    for loads in [false, true] {
        // The last step of the program overwrites `w` in place.
        let left = Cell::new(events.get());
        let last = |_: StepEvent| {
            left.update(|left| left - 1);
            assert!(left.get() > 0, "the watcher broke");
        };
        let options = RunOptions::new().watch(&last);
        let error = trainer.step(0, [("x", x())], &options).unwrap_err();
        assert_internal(&error, "the watcher broke", "");
        let torn = [
            trainer.step(0, [("x", x())], &RunOptions::default()).map(drop),
            trainer.infer([("x", x())], &RunOptions::default()).map(drop),
            trainer.state().map(drop),
            trainer.variable("w").map(drop),
            trainer.export().map(drop),
            trainer.save(&saved),
        ];
        for error in torn.map(Result::unwrap_err) {
            assert_eq!(error.kind(), ErrorKind::Internal);
            assert!(error.message().contains("new values"), "{error}");
            assert!(error.help().unwrap().contains("load"), "{error}");
        }
        if loads {
            trainer.load(&saved).unwrap();
            assert_eq!(weights(&trainer), after_one);
        } else {
            trainer.initialize(&RunOptions::default()).unwrap();
            assert_eq!(weights(&trainer), [1.0, 2.0, 3.0, 4.0]);
            trainer.step(0, [("x", x())], &RunOptions::default()).unwrap();
            assert_eq!(weights(&trainer), after_one);
        }
    }
}

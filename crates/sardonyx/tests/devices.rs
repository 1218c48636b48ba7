//! Sessions on several devices, whose outputs equal those of a session on one.

use std::time::{Duration, Instant};

use sardonyx::device::{DeviceOptions, Division, ShardOptions};
use sardonyx::run::{Run, Runner, StepEvent};
use sardonyx::{ErrorKind, Model, RunOptions, Session, Tensor, TensorViewMut};

/// Feed-forward layer of two products, with a configuration of two devices.
const LAYER: &str = "<ir_version: 11, opset_import: [\"\": 21]>
    layer (float[N, 64] x, float[64, 128] v, float[128, 64] w) => (float[N, 64] y) {
        a = MatMul (x, v)
        b = Relu (a)
        c = MatMul (b, w)
        y = Add (c, x)
    }";

fn numbers(dims: &[usize], by: usize) -> Tensor {
    let count: usize = dims.iter().product();
    let elements = (0..count).map(|index| ((index * by) % 97) as f32 / 48.0 - 1.0);
    Tensor::from_vec(dims, elements.collect()).unwrap()
}

fn inputs(rows: usize) -> [(&'static str, Tensor); 3] {
    [
        ("x", numbers(&[rows, 64], 31)),
        ("v", numbers(&[64, 128], 57)),
        ("w", numbers(&[128, 64], 73)),
    ]
}

/// Makes the layer with matrices as constants, which automatic sharding requires.
fn with_constants() -> Model {
    let text = |tensor: &Tensor| {
        let elements = tensor.to_vec::<f32>().unwrap();
        elements.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
    };
    let [_, (_, v), (_, w)] = inputs(1);
    let text = LAYER.replace(
        "layer (float[N, 64] x, float[64, 128] v, float[128, 64] w) => (float[N, 64] y)",
        &format!(
            "layer (float[N, 64] x) => (float[N, 64] y)
             <float[64, 128] v = {{{}}}, float[128, 64] w = {{{}}}>",
            text(&v),
            text(&w)
        ),
    );
    Model::from_text(&text).unwrap()
}

/// Checks that a runner holds a session or a device session, with equal results and errors.
#[test]
fn a_runner_has_either_session() {
    let model = with_constants();
    let (divided, _) = model.shard(&ShardOptions::new(Division::Pipeline, 2)).unwrap();
    let divided = Session::builder(&divided).devices(DeviceOptions::new()).unwrap();
    let runners = [Runner::from(Session::new(&model).unwrap()), Runner::from(divided)];
    let (x, options) = (numbers(&[4, 64], 31), RunOptions::default());
    let late = RunOptions::new().deadline(Instant::now());
    let wanted = Session::new(&model).unwrap().run([("x", x.clone())], &options).unwrap();
    for runner in &runners {
        assert_eq!(runner.inputs()[0].name(), "x");
        assert_eq!(runner.outputs().len(), 1);
        assert_eq!(runner.run([("x", x.clone())], &options).unwrap(), wanted);
        let mut memory = vec![0f32; 4 * 64];
        let y = TensorViewMut::from_slice([4, 64], &mut memory).unwrap();
        runner.run_into(&[("x", x.view())], &mut [("y", y)], &options).unwrap();
        assert_eq!(memory, wanted.tensor("y").unwrap().to_vec::<f32>().unwrap());

        let error = runner.run([("x", x.clone())], &late).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Stopped);
        let twice = [("x", x.clone()), ("x", x.clone())];
        let error = runner.run(twice, &options).unwrap_err();
        assert_eq!(
            (error.kind(), error.message()),
            (ErrorKind::Input, "the input 'x' is given twice")
        );
        for inputs in [vec![("z", x.clone())], vec![]] {
            assert_eq!(runner.run(inputs, &options).unwrap_err().kind(), ErrorKind::Input);
        }
    }
    let watch = |_: StepEvent| {};
    let watched = options.clone().watch(&watch);
    runners[0].run([("x", x.clone())], &watched).unwrap();
    let error = runners[1].run([("x", x)], &watched).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(error.help().is_some_and(|help| help.contains("run_watched")));
}

/// Checks that the annotations of automatic sharding change no result (DIST-16, DIST-20).
#[test]
fn suggested_annotations_change_no_result() {
    let model = with_constants();
    let plain = Session::new(&model).unwrap();
    for (devices, division) in [
        (2, Division::Tensor),
        (4, Division::Tensor),
        (2, Division::Pipeline),
        (8, Division::Pipeline),
    ] {
        let (annotated, _) =
            model.shard(&ShardOptions::new(division, devices).configuration("c")).unwrap();
        let session = Session::builder(&annotated).devices(DeviceOptions::new()).unwrap();
        // New sizes need a new plan; the cache keeps the earlier ones.
        for rows in [1, 3, 8, 3] {
            let x = [("x", numbers(&[rows, 64], 31))];
            let wanted = plain.run(x.clone(), &Default::default()).unwrap();
            let found = session.run(x.clone(), &Default::default()).unwrap();
            let (wanted, found) = (wanted.tensor("y").unwrap(), found.tensor("y").unwrap());
            assert_eq!(wanted.dims(), found.dims());
            let pairs = wanted.to_vec::<f32>().unwrap();
            let near = pairs.iter().zip(found.to_vec::<f32>().unwrap());
            assert!(near.into_iter().all(|(a, b)| (a - b).abs() <= 1e-4 * a.abs().max(1.0)));
            let again = session.run(x, &Default::default()).unwrap();
            assert_eq!(again.tensor("y").unwrap().bytes(), found.bytes());
        }
    }
}

#[test]
fn products_are_split_in_pairs() {
    let model = with_constants();
    let (annotated, report) =
        model.shard(&ShardOptions::new(Division::Tensor, 2).configuration("c")).unwrap();
    assert_eq!((report.columns, report.rows, report.whole), (1, 1, 0));
    let session = Session::builder(&annotated).devices(DeviceOptions::new()).unwrap();
    session.run([("x", numbers(&[4, 64], 31))], &Default::default()).unwrap();
    // One sum of 4 x 64 floats is sent, to the first device only.
    let sent: Vec<u64> = session.traffic().iter().map(|one| one.total().bytes).collect();
    assert_eq!(sent, [0, 1024]);
}

/// Checks that an annotated model runs without devices, and that a configuration can be chosen by
/// name (DIST-01+, DIST-17+).
#[test]
fn configurations_are_chosen() {
    let plain = Model::from_text(LAYER).unwrap();
    let error = Session::builder(&plain).devices(DeviceOptions::new()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Argument);
    assert_eq!(error.message(), "the model has no device configuration");
    let error = plain.shard(&ShardOptions::new(Division::Pipeline, 2).dim("Q", 3)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Argument);
    assert!(error.message().contains("no dimension 'Q'"), "{error}");
    let (one, _) =
        plain.shard(&ShardOptions::new(Division::Pipeline, 2).configuration("one")).unwrap();
    let (both, _) =
        one.shard(&ShardOptions::new(Division::Pipeline, 3).configuration("other")).unwrap();
    assert!(one.shard(&ShardOptions::new(Division::Tensor, 2).configuration("one")).is_err());
    let open = |options| Session::builder(&both).devices(options);
    let error = open(DeviceOptions::new()).unwrap_err();
    assert_eq!(error.message(), "choose one of the configurations of the model: 'one', 'other'");
    let error = open(DeviceOptions::new().configuration("two")).unwrap_err();
    assert_eq!(error.message(), "the model has no configuration 'two'; it has 'one', 'other'");
    let session = open(DeviceOptions::new().configuration("other")).unwrap();
    assert_eq!(session.device_count(), 3);
    let wanted = Session::new(&both).unwrap().run(inputs(2), &Default::default()).unwrap();
    let found = session.run(inputs(2), &Default::default()).unwrap();
    assert_eq!(wanted.tensor("y").unwrap().bytes(), found.tensor("y").unwrap().bytes());
}

/// Splits two rows into three shards, of which one is empty (DIST-23). In the shape of Reshape, the
/// size 0 of the empty shard must not mean the size of the input.
#[test]
fn parts_may_be_empty() {
    let text = "<ir_version: 11, opset_import: [\"\": 21]>
        g (float[2, 2] x) => (float[1, 2, 2] y) {
            sizes = Constant <value_ints = [1, 2, 2]> ()
            a = Neg (x) @<device_configurations: [{
                configuration_id: \"three\",
                sharding_spec: [{tensor_name: \"x\", device: [0, 1, 2], sharded_dim:
                    [{axis: 0, simple_sharding: [{num_shards: 3}]}]}]}]>
            b = Reshape (a, sizes)
            y = Neg (b)
        }
        @<configuration: [{name: \"three\", num_devices: 3}]>";
    let model = Model::from_text(text).unwrap();
    let session = Session::builder(&model).devices(DeviceOptions::new()).unwrap();
    let x = Tensor::from_vec([2, 2], vec![1f32, 2.0, 3.0, 4.0]).unwrap();
    let outputs = session.run([("x", x)], &Default::default()).unwrap();
    let y = outputs.tensor("y").unwrap();
    assert_eq!(y.dims(), [1, 2, 2]);
    assert_eq!(y.to_vec::<f32>().unwrap(), [1.0, 2.0, 3.0, 4.0]);
    // The third device holds the empty shard, and is part of the plan nevertheless.
    assert_eq!(session.device_count(), 3);
}

/// Checks that a failing device ends the run of all with its error, and that the next run works.
#[test]
fn a_device_that_fails_ends_the_run() {
    let text = "<ir_version: 11, opset_import: [\"\": 21]>
        g (float[4] x, int64[1] at) => (float[1] y) {
            a = Neg (x)
            y = Gather (a, at)
        }";
    let model = Model::from_text(text).unwrap();
    let (annotated, _) =
        model.shard(&ShardOptions::new(Division::Pipeline, 2).configuration("c")).unwrap();
    let options = DeviceOptions::new().deadline(Duration::from_secs(20));
    let session = Session::builder(&annotated).devices(options).unwrap();
    let run = |at: i64| {
        let x = Tensor::from_vec([4], vec![1f32, 2.0, 3.0, 4.0]).unwrap();
        session
            .run([("x", x), ("at", Tensor::from_vec([1], vec![at]).unwrap())], &Default::default())
    };
    let error = run(9).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Run);
    assert!(error.to_string().contains("Gather"), "{error}");
    assert_eq!(run(2).unwrap().tensor("y").unwrap().to_vec::<f32>().unwrap(), [-3.0]);
}

/// Checks that the indices of MaxPool are those in the whole batch, even on a device that holds
/// only later images or none.
#[test]
fn places_are_those_in_the_whole_batch() {
    for devices in [2, 3, 8] {
        let text = "<ir_version: 10, opset_import: [\"\": 21]>
            g (float[N, 2, 4, 4] x) => (float[N, 2, 3, 3] y, int64[N, 2, 3, 3] at) {
                y, at = MaxPool <kernel_shape = [2, 2]> (x)
            }";
        let plain = Model::from_text(text).unwrap();
        let (model, _) =
            plain.shard(&ShardOptions::new(Division::Batch, devices).configuration("c")).unwrap();
        let session = Session::builder(&model).devices(DeviceOptions::new()).unwrap();
        let x = [("x", numbers(&[5, 2, 4, 4], 31))];
        let wanted = Session::new(&plain).unwrap().run(x.clone(), &Default::default()).unwrap();
        assert_eq!(session.run(x, &Default::default()).unwrap(), wanted);
        assert!(session.last_plan().unwrap().facts().in_parts > 0);
    }
}

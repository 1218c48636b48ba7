//! Training on several devices: results equal those on one, and the state stays in shards.

use sardonyx::device::{DeviceOptions, Division, ShardOptions};
use sardonyx::tool::shard::Plan;
use sardonyx::train::{Loss, OptimizerKind, TrainingOptions};
use sardonyx::{ErrorKind, Model, Session, Tensor, Trainer};

/// Makes a tensor of pseudo-random numbers between -1 and 1.
fn numbers(dims: &[usize], by: usize) -> Tensor {
    let count: usize = dims.iter().product();
    let elements = (0..count).map(|index| ((index * by + 13) % 97) as f64 / 48.0 - 1.0);
    Tensor::from_vec(dims, elements.collect()).unwrap()
}

/// Makes a network of two layers, whose weights are in the model file.
fn network() -> Model {
    let text = |dims: &[usize], by: usize| {
        let elements = numbers(dims, by).to_vec::<f64>().unwrap();
        let small: Vec<String> = elements.iter().map(|one| (one * 0.1).to_string()).collect();
        small.join(", ")
    };
    let text = format!(
        "<ir_version: 10, opset_import: [\"\": 21]>
        network (double[N, 64] x) => (double[N, 48] y)
        <double[64, 96] w1 = {{{}}}, double[96] b1 = {{{}}},
         double[96, 48] w2 = {{{}}}, double[48] b2 = {{{}}}>
        {{
            a = MatMul (x, w1)
            b = Add (a, b1)
            c = Relu (b)
            d = MatMul (c, w2)
            y = Add (d, b2)
        }}",
        text(&[64, 96], 57),
        text(&[96], 31),
        text(&[96, 48], 73),
        text(&[48], 11),
    );
    Model::from_text(&text).unwrap()
}

fn batch(rows: usize, step: usize) -> [(&'static str, Tensor); 2] {
    [("x", numbers(&[rows, 64], 29 + step)), ("target", numbers(&[rows, 48], 41 + step))]
}

fn trainable(kind: OptimizerKind) -> Model {
    let options = TrainingOptions::new(Loss::SquaredError { output: None }).optimizer(kind, 0.05);
    network().add_training(&options).unwrap().0
}

fn on_devices(model: &Model) -> Trainer {
    Trainer::builder(model).devices(DeviceOptions::new()).threads(1).build().unwrap()
}

/// Returns the number of bytes that devices send in a step.
fn bytes_of(plan: &Plan) -> u64 {
    plan.bytes().known().and_then(|bytes| u64::try_from(bytes).ok()).unwrap()
}

fn assert_near(found: &Tensor, wanted: &Tensor, what: &str) {
    assert_eq!(found.dims(), wanted.dims(), "{what}");
    let (found, wanted) = (found.to_vec::<f64>().unwrap(), wanted.to_vec::<f64>().unwrap());
    let far = found.iter().zip(&wanted).find(|(a, b)| (*a - *b).abs() > 1e-11 * b.abs().max(1.0));
    assert!(far.is_none(), "{what}: {far:?}");
}

const OPTIMIZERS: [OptimizerKind; 3] = [
    OptimizerKind::Sgd,
    OptimizerKind::Momentum { momentum: 0.9, nesterov: false },
    OptimizerKind::Adam { beta1: 0.9, beta2: 0.999, epsilon: 1e-8, decoupled: false },
];

/// Trains ten steps on devices and on one, and compares outputs and state. Returns the trainer on
/// devices.
fn assert_trains_alike(model: &Model, rows: usize) -> Trainer {
    let builder = Trainer::builder(model).threads(1).outputs(["y", "loss"]);
    let mut plain = builder.clone().build().unwrap();
    let mut trainer = builder.devices(DeviceOptions::new()).build().unwrap();
    for step in 0..10 {
        let wanted = plain.step(0, batch(rows, step), &Default::default()).unwrap();
        let found = trainer.step(0, batch(rows, step), &Default::default()).unwrap();
        assert_eq!(found.names().collect::<Vec<_>>(), wanted.names().collect::<Vec<_>>());
        assert_near(found.tensor("loss").unwrap(), wanted.tensor("loss").unwrap(), "loss");
        assert_near(found.tensor("y").unwrap(), wanted.tensor("y").unwrap(), "y");
    }
    for ((name, found), (other, wanted)) in
        trainer.state().unwrap().into_iter().zip(plain.state().unwrap())
    {
        assert_eq!(name, other);
        if found.data_type() == sardonyx::DataType::Double {
            assert_near(&found, &wanted, name);
        } else {
            assert_eq!(found.bytes(), wanted.bytes(), "{name}");
        }
    }
    trainer
}

/// Bytes of each weight of [`network`].
const WEIGHTS: [(&str, u64); 4] =
    [("w1", 64 * 96 * 8), ("b1", 96 * 8), ("w2", 96 * 48 * 8), ("b2", 48 * 8)];

/// Splits the rows of a batch over two and four devices (DIST-16+, DIST-30+). A step sends only the
/// sums of the gradients and of the loss, and the rows of the output for the caller.
#[test]
fn gradients_of_parts_of_a_batch_are_summed() {
    for devices in [2, 4] {
        for kind in OPTIMIZERS {
            let (model, report) = trainable(kind)
                .shard(&ShardOptions::new(Division::Batch, devices).configuration("c"))
                .unwrap();
            assert_eq!(report.inputs, 1);
            let trainer = assert_trains_alike(&model, 10);
            let plan = trainer.last_plan(0).unwrap().unwrap();
            let others = devices as u64 - 1;
            let gradients: u64 = WEIGHTS.iter().map(|(_, bytes)| bytes).sum();
            let rows = 10 - 10u64.div_ceil(devices as u64);
            let expected = 2 * others * gradients + others * 8 + rows * 48 * 8;
            assert_eq!(bytes_of(&plan), expected, "{}", plan.text());
        }
    }
}

/// Splits two products by columns and by rows (DIST-16+, DIST-31+). Each device holds its shards of
/// the weights and of the optimizer's state. A step sends the sum between the layers, and two
/// numbers for each row: whether it is finite, and whether its gradient is 0.
#[test]
fn split_weights_stay_split() {
    for devices in [2, 4] {
        for kind in OPTIMIZERS {
            let (model, report) = trainable(kind)
                .shard(&ShardOptions::new(Division::Tensor, devices).configuration("c"))
                .unwrap();
            assert_eq!((report.columns, report.rows), (1, 1));
            let trainer = assert_trains_alike(&model, 10);
            let plan = trainer.last_plan(0).unwrap().unwrap();
            let (parts, others) = (devices as u64, devices as u64 - 1);
            let expected = 2 * others * 10 * 48 * 8 + 2 * (2 * others * 10 * 8);
            assert_eq!(bytes_of(&plan), expected, "{}", plan.text());
            let own = trainer.state_types().map(|(name, ty)| {
                let dims = ty.shape().unwrap().iter().map(|dim| dim.size().unwrap());
                let bytes = 8 * dims.product::<usize>() as u64;
                let is_split = ["w1", "b1", "w2"].iter().any(|split| name.starts_with(split));
                if is_split { bytes / parts } else { bytes }
            });
            let own: u64 = own.sum();
            for device in 0..devices {
                assert_eq!(plan.resident_bytes(device as u32), own, "{}", plan.text());
            }
        }
    }
}

/// Returns the name and the bytes of each state variable.
fn bits(trainer: &Trainer) -> Vec<(String, Vec<u8>)> {
    let state = trainer.state().unwrap().into_iter();
    state.map(|(name, value)| (name.to_string(), value.bytes().to_vec())).collect()
}

/// Checks a pipeline of two stages: weights of the first stage are on the first device; optimizer
/// and its state are on the device of the loss.
#[test]
fn stages_keep_what_they_read() {
    let (model, _) = trainable(OPTIMIZERS[1])
        .shard(&ShardOptions::new(Division::Pipeline, 2).configuration("c"))
        .unwrap();
    let trainer = assert_trains_alike(&model, 6);
    let plan = trainer.last_plan(0).unwrap().unwrap();
    let weights: u64 = WEIGHTS.iter().map(|(_, bytes)| bytes).sum();
    let first = WEIGHTS[0].1 + WEIGHTS[1].1;
    assert_eq!([0, 1].map(|device| plan.resident_bytes(device)), [first, 2 * weights]);
}

/// Checks that inference reads the weights on their devices, before the first step and between
/// steps (TRAIN-10+).
#[test]
fn inference_reads_weights_where_they_are() {
    for division in [Division::Pipeline, Division::Tensor, Division::Batch] {
        for devices in [2, 3] {
            let (model, _) = trainable(OPTIMIZERS[1])
                .shard(&ShardOptions::new(division, devices).configuration("c"))
                .unwrap();
            for infers_first in [true, false] {
                let mut plain = Trainer::builder(&model).threads(1).build().unwrap();
                let mut trainer = on_devices(&model);
                for step in 0..3 {
                    if step > 0 || infers_first {
                        let [x, _] = batch(5, step);
                        let wanted = plain.infer([x.clone()], &Default::default()).unwrap();
                        let found = trainer.infer([x], &Default::default()).unwrap();
                        assert_near(found.tensor("y").unwrap(), wanted.tensor("y").unwrap(), "y");
                    }
                    plain.step(0, batch(6, step), &Default::default()).unwrap();
                    trainer.step(0, batch(6, step), &Default::default()).unwrap();
                }
                let (found, wanted) =
                    (trainer.variable("w2").unwrap(), plain.variable("w2").unwrap());
                assert_near(&found, &wanted, "w2");
            }
        }
    }
}

/// Trains the convolutional network of the example by shards of the batch (DIST-30+). The gradient
/// of its MaxPool needs the indices of maxima. Only gradients are summed, only scores gathered.
#[test]
fn convolutions_are_trained_by_parts_of_a_batch() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/digits/digits.onnx");
    let options =
        TrainingOptions::new(Loss::CrossEntropy { output: None, axis: None, ignored: None })
            .optimizer(OPTIMIZERS[2], 0.002);
    let (model, _) = Model::open(path).unwrap().add_training(&options).unwrap();
    let (model, _) =
        model.shard(&ShardOptions::new(Division::Batch, 2).configuration("c")).unwrap();
    let builder = Trainer::builder(&model).threads(1).outputs(["loss"]);
    let mut plain = builder.clone().build().unwrap();
    let mut trainer = builder.devices(DeviceOptions::new()).build().unwrap();
    for step in 0..4 {
        // The last batch of an epoch may have an odd size.
        let rows = if step == 3 { 7 } else { 12 };
        let pixels = numbers(&[rows, 1, 8, 8], 29 + step).to_vec::<f64>().unwrap();
        let pixels = pixels.into_iter().map(|pixel| pixel as f32 / 2.0 + 0.5).collect();
        let labels = (0..rows as i64).map(|row| (row * 7 + step as i64) % 10).collect();
        let data = [
            ("image", Tensor::from_vec([rows, 1, 8, 8], pixels).unwrap()),
            ("label", Tensor::from_vec([rows], labels).unwrap()),
        ];
        let wanted = plain
            .step(0, data.clone(), &Default::default())
            .unwrap()
            .tensor("loss")
            .unwrap()
            .item::<f32>();
        let found = trainer
            .step(0, data, &Default::default())
            .unwrap()
            .tensor("loss")
            .unwrap()
            .item::<f32>();
        let (wanted, found) = (wanted.unwrap(), found.unwrap());
        assert!((wanted - found).abs() < 1e-4 * wanted.abs(), "{found} instead of {wanted}");
    }
    let plan = trainer.last_plan(0).unwrap().unwrap();
    // An all-reduce sends each of 33,546 gradients twice. The scores of three images go to the
    // device that computes the loss.
    assert_eq!(bytes_of(&plan), 2 * 33_546 * 4 + 3 * 10 * 4, "{}", plan.text());
    assert!(plan.not_honored().is_empty(), "{}", plan.text());
}

/// Checks that a step that fails on one device, because of an index outside of a table, changes the
/// state of no device, and that the next step runs (TRAIN-19+).
#[test]
fn a_failing_step_changes_no_state() {
    let text = "<ir_version: 11, opset_import: [\"\": 21]>
        g (int64[N] index) => (float[N, 3] rows)
        <float[4, 3] table = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}>
        { rows = Gather (table, index) }";
    let options = TrainingOptions::new(Loss::SquaredError { output: None })
        .optimizer(OptimizerKind::Momentum { momentum: 0.5, nesterov: false }, 0.125);
    let (model, _) = Model::from_text(text).unwrap().add_training(&options).unwrap();
    let (model, _) =
        model.shard(&ShardOptions::new(Division::Batch, 2).configuration("c")).unwrap();
    let mut plain = Trainer::new(&model).unwrap();
    let mut trainer = on_devices(&model);
    let given = |index: [i64; 4]| {
        let target = Tensor::from_vec([4, 3], (0..12).map(|n| (n % 5) as f32).collect()).unwrap();
        [("index", Tensor::from_slice([4], &index).unwrap()), ("target", target)]
    };
    plain.step(0, given([0, 1, 2, 0]), &Default::default()).unwrap();
    trainer.step(0, given([0, 1, 2, 0]), &Default::default()).unwrap();
    let before = bits(&trainer);
    assert_eq!(before, bits(&plain));
    for index in [[0, 1, 2, 9], [9, 1, 2, 0]] {
        let error = trainer.step(0, given(index), &Default::default()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Run, "{error}");
        assert!(error.to_string().contains('9'), "{error}");
        assert_eq!(bits(&trainer), before);
    }
    plain.step(0, given([3, 3, 1, 2]), &Default::default()).unwrap();
    trainer.step(0, given([3, 3, 1, 2]), &Default::default()).unwrap();
    assert_eq!(bits(&trainer), bits(&plain));
}

/// Checks that a state saved on devices can be loaded without devices and vice versa, and that
/// exported models have equal weights.
#[test]
fn states_are_saved_and_loaded() {
    let directory = tempfile::tempdir().unwrap();
    for (division, file) in [(Division::Batch, "s.npz"), (Division::Tensor, "s.safetensors")] {
        let path = directory.path().join(file);
        let (model, _) = trainable(OPTIMIZERS[2])
            .shard(&ShardOptions::new(division, 2).configuration("c"))
            .unwrap();
        let mut plain = Trainer::new(&model).unwrap();
        let mut trainer = on_devices(&model);
        trainer.step(0, batch(8, 0), &Default::default()).unwrap();
        trainer.save(&path).unwrap();
        plain.load(&path).unwrap();
        assert_eq!(bits(&plain), bits(&trainer));
        plain.step(0, batch(8, 1), &Default::default()).unwrap();
        trainer.step(0, batch(8, 1), &Default::default()).unwrap();
        assert_near(&trainer.variable("w1").unwrap(), &plain.variable("w1").unwrap(), "w1");

        plain.save(&path).unwrap();
        trainer.load(&path).unwrap();
        assert_eq!(bits(&plain), bits(&trainer));
        plain.step(0, batch(8, 2), &Default::default()).unwrap();
        trainer.step(0, batch(8, 2), &Default::default()).unwrap();
        assert_near(&trainer.variable("w2").unwrap(), &plain.variable("w2").unwrap(), "w2");

        let exported = trainer.export().unwrap();
        assert_eq!(bits(&Trainer::new(&exported).unwrap()), bits(&trainer));
        let session = Session::new(&trainer.export_inference().unwrap()).unwrap();
        let [x, _] = batch(5, 3);
        let found = trainer.infer([x.clone()], &Default::default()).unwrap();
        assert_near(
            found.tensor("y").unwrap(),
            session.run([x], &Default::default()).unwrap().tensor("y").unwrap(),
            "y",
        );
    }
}

/// Checks that repeated training gives equal bits, also in a clone, which has a state of its own.
#[test]
fn runs_are_repeated_with_the_same_bits() {
    for division in [Division::Batch, Division::Tensor] {
        let (model, _) = trainable(OPTIMIZERS[2])
            .shard(&ShardOptions::new(division, 4).configuration("c"))
            .unwrap();
        let mut first = on_devices(&model);
        let mut second = on_devices(&model);
        first.step(0, batch(7, 0), &Default::default()).unwrap();
        second.step(0, batch(7, 0), &Default::default()).unwrap();
        let mut third = second.clone();
        let at_one = bits(&second);
        for step in 1..6 {
            first.step(0, batch(7, step), &Default::default()).unwrap();
            third.step(0, batch(7, step), &Default::default()).unwrap();
        }
        assert_eq!(bits(&first), bits(&third));
        assert_eq!(bits(&second), at_one);
    }
}

/// Checks that a step assigns all variables at once, here a swap of two; that inference reads the
/// state without changing it; and that a variable can be set (TRAIN-10+, TRAIN-19+, TRAIN-24-).
#[test]
fn state_is_assigned_whole() {
    let text = "<notation: \"full\", ir_version: 11, opset_import: [\"\": 21]>
        g (float[4] x) => (float[4] y) <float[4] a = {1, 2, 3, 4}, float[4] b = {5, 6, 7, 8}> {
            c = Mul (x, a) @<device_configurations: [{configuration_id: \"c\",
                sharding_spec: [{tensor_name: \"a\", device: [0, 1], sharded_dim:
                    [{axis: 0, simple_sharding: [{num_shards: 2}]}]}]}]>
            y = Add (c, b)
        }
        @<configuration: [{name: \"c\", num_devices: 2}], training_info: [{
            algorithm: swap () => (float[4] new_a, float[4] new_b) {
                new_a = Identity (b)
                new_b = Identity (a)
            },
            update_binding: [\"a\": \"new_a\", \"b\": \"new_b\"]
        }]>";
    let model = Model::from_text(text).unwrap();
    let mut trainer = on_devices(&model);
    let x = || [("x", Tensor::from_slice([4], &[1f32, 10.0, 100.0, 1000.0]).unwrap())];
    let infer = |trainer: &Trainer| {
        trainer
            .infer(x(), &Default::default())
            .unwrap()
            .tensor("y")
            .unwrap()
            .to_vec::<f32>()
            .unwrap()
    };
    assert_eq!(infer(&trainer), [6.0, 26.0, 307.0, 4008.0]);
    trainer.step(0, x(), &Default::default()).unwrap();
    let state =
        |trainer: &Trainer, name: &str| trainer.variable(name).unwrap().to_vec::<f32>().unwrap();
    assert_eq!(state(&trainer, "a"), [5.0, 6.0, 7.0, 8.0]);
    assert_eq!(state(&trainer, "b"), [1.0, 2.0, 3.0, 4.0]);
    assert_eq!(infer(&trainer), [6.0, 62.0, 703.0, 8004.0]);
    assert_eq!(infer(&trainer), [6.0, 62.0, 703.0, 8004.0]);
    trainer.set_state("b", Tensor::from_slice([4], &[0f32; 4]).unwrap()).unwrap();
    assert_eq!(infer(&trainer), [5.0, 60.0, 700.0, 8000.0]);
    let before = bits(&trainer);
    let outputs = trainer.evaluate(0, x(), &Default::default()).unwrap();
    assert_eq!(outputs.tensor("new_a").unwrap().to_vec::<f32>().unwrap(), [0.0; 4]);
    assert_eq!(bits(&trainer), before);
    trainer.initialize(&Default::default()).unwrap();
    assert_eq!(state(&trainer, "a"), [1.0, 2.0, 3.0, 4.0]);
    let error = trainer
        .step(0, [("a", Tensor::from_slice([4], &[0f32; 4]).unwrap())], &Default::default())
        .unwrap_err();
    assert_eq!(error.message(), "'a' is a state variable, not an input");
}

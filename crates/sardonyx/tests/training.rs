//! Tests of training information that is added to models: optimizers against their formulas, the
//! choice of weights, and the content of the files.

use sardonyx::check;
use sardonyx::edit::EditError;
use sardonyx::train::{
    Clipping, GradientOptions, Initialization, Loss, OptimizerKind, Skipped, TrainingOptions,
};
use sardonyx::{DataType, Model, Session, Tensor, Trainer};

const LINE: &str = "<ir_version: 8, opset_import: [\"\": 17]>
    g (double[4] x) => (double[4] y) <double[4] w = {1, -2, 0.5, 3}> { y = Mul (x, w) }";

const X: [f64; 4] = [0.5, -1.0, 2.0, 1.5];
const TARGET: [f64; 4] = [1.0, 0.25, -3.0, 0.0];

fn model(text: &str) -> Model {
    Model::from_text(text).unwrap()
}

fn squared_error() -> TrainingOptions {
    TrainingOptions::new(Loss::SquaredError { output: None })
}

fn cross_entropy() -> TrainingOptions {
    TrainingOptions::new(Loss::CrossEntropy { output: None, axis: None, ignored: None })
}

fn double(values: &[f64]) -> Tensor {
    Tensor::from_slice([values.len()], values).unwrap()
}

/// Checks that the checker finds no error in a model.
fn assert_valid(model: &Model) {
    let report = model.check(&check::CheckOptions::new());
    let errors = report.findings.iter().filter(|found| found.severity == check::Severity::Error);
    let errors: Vec<String> = errors.map(ToString::to_string).collect();
    assert!(errors.is_empty(), "{errors:#?}");
}

/// Trains for some steps with a trainer and returns the weights.
fn train(options: &TrainingOptions, steps: usize) -> Vec<f64> {
    let (model, _) = model(LINE).add_training(options).unwrap();
    assert_valid(&model);
    // Through bytes, so that reading and writing are tested too.
    let model = Model::from_bytes(model.to_bytes()).unwrap();
    let mut trainer = Trainer::new(&model).unwrap();
    for _ in 0..steps {
        trainer
            .step(0, [("x", double(&X)), ("target", double(&TARGET))], &Default::default())
            .unwrap();
    }
    trainer.variable("w").unwrap().to_vec().unwrap()
}

/// Applies `rule` for some steps and returns the weights. The rule maps the number of the step from
/// 1, a weight, its gradient and two numbers of optimizer state to the new weight.
fn apply_rule(steps: usize, rule: impl Fn(i32, f64, f64, &mut [f64; 2]) -> f64) -> Vec<f64> {
    let mut weights = [1.0, -2.0, 0.5, 3.0];
    let mut kept = [[0.0; 2]; 4];
    for step in 1..=steps as i32 {
        for (index, w) in weights.iter_mut().enumerate() {
            let gradient = 2.0 * (X[index] * *w - TARGET[index]) * X[index] / 4.0;
            *w = rule(step, *w, gradient, &mut kept[index]);
        }
    }
    weights.to_vec()
}

fn assert_close(found: &[f64], expected: &[f64], what: &str) {
    let far = found.iter().zip(expected).any(|(a, b)| (a - b).abs() > 1e-12 * b.abs().max(1.0));
    assert!(!far, "{what}: {found:?} instead of {expected:?}");
}

#[test]
fn optimizers_follow_their_formulas() {
    const STEPS: usize = 7;
    let (rate, decay) = (0.05, 0.1);
    let options = |kind| squared_error().optimizer(kind, rate).weight_decay(decay);
    let sgd = apply_rule(STEPS, |_, w, g, _| w - rate * (g + decay * w));
    assert_close(&train(&options(OptimizerKind::Sgd), STEPS), &sgd, "SGD");
    for nesterov in [false, true] {
        let kind = OptimizerKind::Momentum { momentum: 0.9, nesterov };
        let momentum = apply_rule(STEPS, |_, w, g, kept| {
            let g = g + decay * w;
            kept[0] = 0.9 * kept[0] + g;
            w - rate * if nesterov { g + 0.9 * kept[0] } else { kept[0] }
        });
        assert_close(&train(&options(kind), STEPS), &momentum, "Momentum");
    }
    let kind = OptimizerKind::Adagrad { epsilon: 1e-3, decay: 0.2 };
    let adagrad = apply_rule(STEPS, |step, w, g, kept| {
        let g = g + decay * w;
        kept[0] += g * g;
        w - rate / (1.0 + f64::from(step - 1) * 0.2) * g / (kept[0].sqrt() + 1e-3)
    });
    assert_close(&train(&options(kind), STEPS), &adagrad, "Adagrad");
    for decoupled in [false, true] {
        let kind = OptimizerKind::Adam { beta1: 0.8, beta2: 0.95, epsilon: 1e-3, decoupled };
        let adam = apply_rule(STEPS, |step, w, g, kept| {
            let (w, g) = if decoupled { (w - rate * decay * w, g) } else { (w, g + decay * w) };
            kept[0] = 0.8 * kept[0] + (1.0 - 0.8) * g;
            kept[1] = 0.95 * kept[1] + (1.0 - 0.95) * g * g;
            let mean = kept[0] / (1.0 - 0.8f64.powi(step));
            let squares = kept[1] / (1.0 - 0.95f64.powi(step));
            w - rate * mean / (squares.sqrt() + 1e-3)
        });
        assert_close(&train(&options(kind), STEPS), &adam, "Adam");
    }
}

/// Checks that clipping comes before weight decay and does not change small gradients.
#[test]
fn gradients_are_clipped() {
    let decay = 0.125;
    let options = |clipping| {
        squared_error().optimizer(OptimizerKind::Sgd, 0.5).weight_decay(decay).clipping(clipping)
    };
    let weights = [1.0, -2.0, 0.5, 3.0];
    let gradients: Vec<f64> =
        (0..4).map(|i| 2.0 * (X[i] * weights[i] - TARGET[i]) * X[i] / 4.0).collect();
    let norm = gradients.iter().map(|g| g * g).sum::<f64>().sqrt();
    let moved = |clipped: &dyn Fn(f64) -> f64| -> Vec<f64> {
        let pairs = weights.iter().zip(&gradients);
        pairs.map(|(w, g)| w - 0.5 * (clipped(*g) + decay * w)).collect()
    };
    let half = norm / 2.0;
    let found = train(&options(Clipping::Norm(half)), 1);
    assert_close(&found, &moved(&|g| g / 2.0), "norm");
    let found = train(&options(Clipping::Value(0.5)), 1);
    assert_close(&found, &moved(&|g| g.clamp(-0.5, 0.5)), "value");
    let without = train(&squared_error().optimizer(OptimizerKind::Sgd, 0.5).weight_decay(decay), 1);
    for clipping in [Clipping::Norm(2.0 * norm), Clipping::Value(100.0)] {
        assert_eq!(train(&options(clipping), 1), without);
    }
    for clipping in [Clipping::Norm(0.0), Clipping::Value(f64::NAN)] {
        let message = model(LINE).add_training(&options(clipping)).unwrap_err().to_string();
        assert!(message.contains("has to be greater than 0, not"), "{message}");
    }
}

/// Checks that the operators of `ai.onnx.preview.training` move weights like the nodes. The numbers
/// are exact in float, because attributes are, and epsilon is 0 for Adam, because the operator adds
/// it to another term.
#[test]
fn operators_of_optimizers_agree_with_nodes() {
    let momentum = |nesterov| OptimizerKind::Momentum { momentum: 0.5, nesterov };
    let adam = OptimizerKind::Adam { beta1: 0.5, beta2: 0.75, epsilon: 0.0, decoupled: false };
    let adagrad = OptimizerKind::Adagrad { epsilon: 0.25, decay: 0.125 };
    for kind in [momentum(false), momentum(true), adagrad, adam] {
        let options = squared_error().optimizer(kind, 0.25).weight_decay(0.125);
        let nodes = train(&options, 4);
        let operator = train(&options.optimizer_operator(true), 4);
        assert_close(&operator, &nodes, &format!("{kind:?}"));
    }
    let refused = model(LINE).add_training(&squared_error().optimizer_operator(true));
    let message = refused.unwrap_err().to_string();
    assert!(message.starts_with("ai.onnx.preview.training has no operator SGD"), "{message}");
}

/// Checks that a `Gradient` node and its expansion give equal weights.
#[test]
fn gradient_nodes_are_what_they_mean() {
    let kind = OptimizerKind::Momentum { momentum: 0.5, nesterov: false };
    let options = squared_error().optimizer(kind, 0.1);
    let expanded = train(&options, 3);
    let nodes = options.gradient_nodes(true);
    assert_eq!(train(&nodes, 3), expanded);
    let (model, _) = model(LINE).add_training(&nodes).unwrap();
    let (model, report) = model.expand_gradients().unwrap();
    assert_eq!(report.replaced, 1);
    assert_valid(&model);
    let mut trainer = Trainer::new(&model).unwrap();
    for _ in 0..3 {
        trainer
            .step(0, [("x", double(&X)), ("target", double(&TARGET))], &Default::default())
            .unwrap();
    }
    assert_eq!(trainer.variable("w").unwrap().to_vec::<f64>().unwrap(), expanded);
}

const CLASSIFIER: &str = "<ir_version: 8, opset_import: [\"\": 13]>
    g (float[N, 3] x) => (float[N, 2] p)
    <float[3, 4] w1 = {0.1, -0.2, 0.3, 0.4, 0.5, -0.6, 0.7, 0.8, -0.9, 0.1, 0.2, 0.3},
     float[4] scale = {1, 1, 1, 1}, float[4] bias = {0, 0, 0, 0}, float[4] mean = {0, 0, 0, 0},
     float[4] var = {1, 1, 1, 1}, float[4, 2] w2 = {1, 2, 3, 4, -1, -2, -3, -4}, float half = {0.5},
     float[2] mask = {0, -10000}, float[5] unused = {1, 2, 3, 4, 5}> {
        a = MatMul (x, w1)
        n = BatchNormalization (a, scale, bias, mean, var)
        r = Relu (n)
        h = Mul (r, half)
        ratio = Constant <value_float: float = 0.25> ()
        d = Dropout (h, ratio)
        scores = MatMul (d, w2)
        p = Softmax <axis = 1> (scores)
    }";

#[test]
fn weights_are_trained_and_other_constants_are_not() {
    let (changed, report) = model(CLASSIFIER).add_training(&cross_entropy()).unwrap();
    assert_valid(&changed);
    let names: Vec<&str> = report.variables.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["w1", "scale", "bias", "w2"]);
    let skipped = |name: &str| report.skipped.iter().find(|(found, _)| found == name).unwrap().1;
    assert_eq!(skipped("half"), Skipped::Constant);
    assert_eq!(skipped("mean"), Skipped::Statistic);
    assert_eq!(skipped("unused"), Skipped::NoInfluence);
    assert_eq!(report.label.as_deref(), Some("label"));
    assert_eq!((report.loss.as_str(), report.learning_rate.as_str()), ("loss", "learning_rate"));
    // Opset 13 has every operator that the step needs.
    assert_eq!(report.opset, (13, 13));

    let only = cross_entropy().variables(["w*"]).freeze(["w1"]);
    let (_, report) = model(CLASSIFIER).add_training(&only).unwrap();
    assert_eq!(report.variables, [("w2".to_string(), 8)]);
    let nothing = option_error(cross_entropy().variables(["unused"]));
    assert!(nothing.starts_with("nothing to train"), "{nothing}");
    assert_eq!(option_error(cross_entropy().variables(["q*"])), "no initializer 'q*' exists");
    let loss = Loss::CrossEntropy { output: Some("q".into()), axis: None, ignored: None };
    assert_eq!(option_error(TrainingOptions::new(loss)), "the model has no output 'q'; it has p");
    let loss = Loss::CrossEntropy { output: None, axis: Some(2), ignored: None };
    let message = "class axis 2 is out of range: the output has 2 axes";
    assert_eq!(option_error(TrainingOptions::new(loss)), message);
}

fn option_error(options: TrainingOptions) -> String {
    match model(CLASSIFIER).add_training(&options) {
        Err(EditError::Option(message)) => message,
        other => panic!("{other:?}"),
    }
}

/// Checks that a weight is found through the nodes that exporters write to reorder the gates of a
/// recurrent layer.
#[test]
fn weights_are_found_through_parts() {
    let text = "<ir_version: 8, opset_import: [\"\": 17]>
        g (float[3, 2, 4] x) => (float[3, 1, 2, 5] y)
        <float[10, 4] w = {
            1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20,
            1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20},
         float[1, 5, 5] r = {
            1, 2, 3, 4, 5, 1, 2, 3, 4, 5, 1, 2, 3, 4, 5, 1, 2, 3, 4, 5, 1, 2, 3, 4, 5},
         int64[1] zero = {0}, int64[1] five = {5}> {
            part = Slice (w, zero, five)
            w3 = Unsqueeze (part, zero)
            joined = Concat <axis = 0> (w3)
            y = RNN <hidden_size = 5> (x, joined, r)
        }";
    let (changed, report) = model(text).add_training(&squared_error()).unwrap();
    assert_valid(&changed);
    let names: Vec<&str> = report.variables.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["w", "r"]);
}

/// Checks that the main graph is unchanged, and that the loss is the cross entropy of its scores.
#[test]
fn a_classifier_is_trained_from_its_scores() {
    let original = model(CLASSIFIER);
    let options = cross_entropy().optimizer(OptimizerKind::Sgd, 0.5);
    let (changed, _) = original.add_training(&options).unwrap();
    let x = Tensor::from_vec([2, 3], vec![1f32, 2.0, -1.0, 0.5, -1.5, 2.0]).unwrap();
    let label = Tensor::from_vec([2], vec![1i64, 0]).unwrap();
    let mut trainer = Trainer::new(&changed).unwrap();
    let main = trainer.export_inference().unwrap();
    assert_eq!(main.to_text(), original.to_text());
    let p = trainer.infer([("x", x.clone())], &Default::default()).unwrap();
    let p: Vec<f32> = p.tensor("p").unwrap().to_vec().unwrap();
    let expected = -(f64::from(p[1]).ln() + f64::from(p[2]).ln()) / 2.0;
    let mut losses = Vec::new();
    for _ in 0..30 {
        let outputs = trainer
            .step(0, [("x", x.clone()), ("label", label.clone())], &Default::default())
            .unwrap();
        losses.push(f64::from(outputs.tensor("loss").unwrap().item::<f32>().unwrap()));
    }
    assert!((losses[0] - expected).abs() < 1e-5, "{} instead of {expected}", losses[0]);
    assert!(losses[29] < losses[0] / 4.0, "{losses:?}");
    // The learning rate is an input with a default.
    let rate = Tensor::scalar(0f32);
    let before: Vec<f32> = trainer.variable("w2").unwrap().to_vec().unwrap();
    trainer
        .step(0, [("x", x), ("label", label), ("learning_rate", rate)], &Default::default())
        .unwrap();
    assert_eq!(trainer.variable("w2").unwrap().to_vec::<f32>().unwrap(), before);
}

/// Checks that running statistics become state in training mode, and that inference ignores it.
#[test]
fn training_mode_is_that_of_the_step_alone() {
    let options = cross_entropy().training_mode(true);
    let (changed, report) = model(CLASSIFIER).add_training(&options).unwrap();
    assert_valid(&changed);
    assert_eq!(report.training_mode, 2);
    let mut trainer = Trainer::builder(&changed).seed(1).build().unwrap();
    let x = Tensor::from_vec([2, 3], vec![1f32, 2.0, -1.0, 0.5, -1.5, 2.0]).unwrap();
    let label = Tensor::from_vec([2], vec![1i64, 0]).unwrap();
    let first = trainer.infer([("x", x.clone())], &Default::default()).unwrap();
    assert_eq!(
        first.tensor("p").unwrap().to_vec::<f32>().unwrap(),
        trainer
            .infer([("x", x.clone())], &Default::default())
            .unwrap()
            .tensor("p")
            .unwrap()
            .to_vec::<f32>()
            .unwrap()
    );
    trainer.step(0, [("x", x), ("label", label)], &Default::default()).unwrap();
    // a = x · w1; the momentum of the statistics is 0.9.
    let a0: f64 = 0.1 * 1.0 + 0.5 * 2.0 + -0.9 * -1.0;
    let a1: f64 = 0.1 * 0.5 + 0.5 * -1.5 + -0.9 * 2.0;
    let mean = (a0 + a1) / 2.0;
    let var = ((a0 - mean).powi(2) + (a1 - mean).powi(2)) / 2.0;
    let state = |name: &str| f64::from(trainer.variable(name).unwrap().to_vec::<f32>().unwrap()[0]);
    assert!((state("mean") - 0.1 * mean).abs() < 1e-6);
    assert!((state("var") - (0.9 + 0.1 * var)).abs() < 1e-6);
}

#[test]
fn weights_are_initialized_by_the_option() {
    let build = |initialization| {
        let options = cross_entropy().initialization(initialization);
        let (changed, _) = model(CLASSIFIER).add_training(&options).unwrap();
        assert_valid(&changed);
        let mut trainer = Trainer::builder(&changed).seed(3).build().unwrap();
        trainer.initialize(&Default::default()).unwrap();
        trainer
    };
    let values = |trainer: &Trainer, name: &str| -> Vec<f32> {
        trainer.variable(name).unwrap().to_vec().unwrap()
    };
    let kept = build(Initialization::Keep);
    assert_eq!(values(&kept, "w2"), [1.0, 2.0, 3.0, 4.0, -1.0, -2.0, -3.0, -4.0]);
    let xavier = build(Initialization::Xavier);
    let bound = (6.0f32 / (3.0 + 4.0)).sqrt();
    let w1 = values(&xavier, "w1");
    assert!(w1.iter().all(|w| w.abs() <= bound) && w1.iter().any(|w| w.abs() > bound / 4.0));
    let uniform = build(Initialization::Uniform(0.01));
    assert!(values(&uniform, "w1").iter().all(|w| w.abs() <= 0.01 && *w != 0.0));
    let he = build(Initialization::He);
    assert!(values(&he, "w1").iter().all(|w| *w != 0.0));
    for trainer in [&xavier, &uniform, &he] {
        assert_eq!(
            (values(trainer, "scale"), values(trainer, "bias")),
            (vec![1.0; 4], vec![0.0; 4])
        );
    }
}

/// Checks mean and variance of 16,384 random weights. The standard error of the mean is 0.8 % of
/// the standard deviation, that of the variance at most 1.1 %.
#[test]
fn random_weights_have_the_variance_that_is_asked_for() {
    let zeros = vec!["0"; 64 * 256].join(", ");
    let text = format!(
        "<ir_version: 8, opset_import: [\"\": 17]>
         g (float[N, 64] x) => (float[N, 256] y) <float[64, 256] w = {{{zeros}}}> {{
             y = MatMul (x, w)
         }}"
    );
    let wide = model(&text);
    for (initialization, variance) in [
        (Initialization::He, 2.0f64 / 64.0),
        (Initialization::Xavier, 2.0 / (64.0 + 256.0)),
        (Initialization::Uniform(0.3), 0.3 * 0.3 / 3.0),
    ] {
        let (changed, _) =
            wide.add_training(&squared_error().initialization(initialization)).unwrap();
        let mut trainer = Trainer::builder(&changed).seed(11).build().unwrap();
        trainer.initialize(&Default::default()).unwrap();
        let weights: Vec<f32> = trainer.variable("w").unwrap().to_vec().unwrap();
        let count = weights.len() as f64;
        let mean = weights.iter().copied().map(f64::from).sum::<f64>() / count;
        let squares = weights.iter().map(|w| (f64::from(*w) - mean).powi(2)).sum::<f64>();
        let found = squares / count;
        assert!(mean.abs() < 0.04 * variance.sqrt(), "{initialization:?}: the mean is {mean}");
        let off = (found / variance - 1.0).abs();
        assert!(off < 0.05, "{initialization:?}: {found} instead of {variance}");
    }
}

/// Checks that 16-bit weights are updated with sums in float.
#[test]
fn half_precision_weights_move() {
    let text = LINE.replace("double[4] x", "float16[4] x").replace("double[4] y", "float16[4] y");
    let text = text.replace("double[4] w =", "float16[4] w = raw");
    let kind = OptimizerKind::Adam { beta1: 0.9, beta2: 0.999, epsilon: 1e-8, decoupled: false };
    let options = squared_error().optimizer(kind, 0.01);
    let (changed, _) = model(&text).add_training(&options).unwrap();
    assert_valid(&changed);
    let mut trainer = Trainer::new(&changed).unwrap();
    let half = |values: &[f64]| as_elem(values, DataType::Float16);
    let first =
        trainer.step(0, [("x", half(&X)), ("target", half(&TARGET))], &Default::default()).unwrap();
    assert_eq!(first.tensor("loss").unwrap().data_type(), DataType::Float16);
    assert_eq!(trainer.variable("w").unwrap().data_type(), DataType::Float16);
    // The first step of Adam is the learning rate against the sign of the gradient.
    let expected = [1.01, -1.99, 0.49, 2.99];
    for (found, expected) in state(&trainer, "w").iter().zip(expected) {
        assert!((found - expected).abs() < 2e-3, "{found} instead of {expected}");
    }
    assert_eq!(trainer.variable("w_mean").unwrap().data_type(), DataType::Float);
}

/// Makes a model of `y = x * w` whose gradient with respect to the four weights is `x`.
fn sum_of_products(elem: DataType) -> Model {
    let text = LINE.replace("double[4] w =", "double[4] w = raw").replace("double", elem.name());
    model(&text)
}

/// Makes a tensor of an element type.
fn as_elem(values: &[f64], elem: DataType) -> Tensor {
    sardonyx::tool::cast(&double(values), elem, sardonyx::tool::CastOptions::default()).unwrap()
}

/// Returns the elements of a state variable.
fn state(trainer: &Trainer, name: &str) -> Vec<f64> {
    let value = trainer.variable(name).unwrap();
    let value =
        sardonyx::tool::cast(&value, DataType::Double, sardonyx::tool::CastOptions::default());
    value.unwrap().to_vec().unwrap()
}

/// Checks that SGD steps below half a unit in the last place of each weight add up: the weights
/// equal those of SGD in float, rounded. Without the float copy they never move.
#[test]
fn small_steps_add_up_in_the_float_copy() {
    const STEPS: usize = 2000;
    for elem in [DataType::Float16, DataType::Bfloat16] {
        let line = sum_of_products(elem);
        let options =
            TrainingOptions::new(Loss::Value("y".into())).optimizer(OptimizerKind::Sgd, 1e-4);
        let slopes = [1.0, -0.75, 0.25, 1.0];
        let x = || [("x", as_elem(&slopes, elem))];
        let weights = [1.0, -2.0, 0.5, 3.0];
        let mut expected = weights.map(|w| w as f32);
        for _ in 0..STEPS {
            for (w, slope) in expected.iter_mut().zip(slopes) {
                *w -= slope as f32 * 1e-4;
            }
        }
        let (changed, report) = line.add_training(&options).unwrap();
        assert_valid(&changed);
        assert_eq!(report.float_copies, 1);
        let changed = Model::from_bytes(changed.to_bytes()).unwrap();
        let mut trainer = Trainer::new(&changed).unwrap();
        for step in 0..STEPS {
            if step == STEPS / 2 {
                // The float copy must survive an export.
                trainer = Trainer::new(&trainer.export().unwrap()).unwrap();
            }
            trainer.step(0, x(), &Default::default()).unwrap();
        }
        let rounded = as_elem(&expected.map(f64::from), elem);
        assert_eq!(trainer.variable("w").unwrap().bytes(), rounded.bytes(), "{elem}");
        let sums = state(&trainer, "w").into_iter().zip(state(&trainer, "w_remainder"));
        let sums: Vec<f32> = sums.map(|(w, remainder)| (w + remainder) as f32).collect();
        assert_eq!(sums, expected, "{elem}");
        assert!(state(&trainer, "w").iter().zip(weights).all(|(w, before)| *w != before));

        let (changed, report) = line.add_training(&options.float_copies(false)).unwrap();
        assert_valid(&changed);
        assert_eq!(report.float_copies, 0);
        let mut trainer = Trainer::new(&changed).unwrap();
        for _ in 0..STEPS {
            trainer.step(0, x(), &Default::default()).unwrap();
        }
        assert_eq!(state(&trainer, "w"), weights, "{elem}");
    }
}

/// Checks that setting or initializing a weight resets its float copy.
#[test]
fn a_float_copy_follows_its_weight() {
    let elem = DataType::Bfloat16;
    let options = TrainingOptions::new(Loss::Value("y".into()))
        .optimizer(OptimizerKind::Sgd, 1e-4)
        .initialization(Initialization::Uniform(0.5));
    let (changed, _) = sum_of_products(elem).add_training(&options).unwrap();
    let mut trainer = Trainer::builder(&changed).seed(5).build().unwrap();
    let step = |trainer: &mut Trainer| {
        trainer.step(0, [("x", as_elem(&[1.0; 4], elem))], &Default::default()).unwrap()
    };
    for _ in 0..10 {
        step(&mut trainer);
    }
    assert!(state(&trainer, "w_remainder").iter().all(|remainder| *remainder != 0.0));
    trainer.set_state("w", as_elem(&[8.0, -16.0, 4.0, 32.0], elem)).unwrap();
    step(&mut trainer);
    assert_eq!(state(&trainer, "w"), [8.0, -16.0, 4.0, 32.0]);
    trainer.initialize(&Default::default()).unwrap();
    assert_eq!(state(&trainer, "w_remainder"), [0.0; 4]);
    let first = state(&trainer, "w");
    assert_eq!(first, [1.0; 4]);
    step(&mut trainer);
    let (w, remainder) = (state(&trainer, "w"), state(&trainer, "w_remainder"));
    for ((w, remainder), first) in w.into_iter().zip(remainder).zip(first) {
        assert!((w + remainder - (first - 1e-4)).abs() < 1e-7, "{w} + {remainder} after {first}");
    }
}

/// Checks for every optimizer that the sum of weight and remainder moves exactly like a float
/// weight.
#[test]
fn every_optimizer_moves_the_float_copy() {
    let adam =
        |decoupled| OptimizerKind::Adam { beta1: 0.9, beta2: 0.999, epsilon: 1e-8, decoupled };
    for kind in [
        OptimizerKind::Momentum { momentum: 0.9, nesterov: false },
        OptimizerKind::Momentum { momentum: 0.9, nesterov: true },
        OptimizerKind::Adagrad { epsilon: 1e-10, decay: 0.125 },
        adam(false),
        adam(true),
    ] {
        let options = TrainingOptions::new(Loss::Value("y".into()))
            .optimizer(kind, 1e-5)
            .weight_decay(0.0625);
        let wanted = state(&train_sum_of_products(&options, DataType::Float), "w");
        for elem in [DataType::Float16, DataType::Bfloat16] {
            let trainer = train_sum_of_products(&options, elem);
            let (w, remainder) = (state(&trainer, "w"), state(&trainer, "w_remainder"));
            let sums: Vec<f64> = w.iter().zip(remainder).map(|(w, rest)| w + rest).collect();
            assert_eq!(sums, wanted, "{kind:?} {elem}");
        }
    }
}

fn train_sum_of_products(options: &TrainingOptions, elem: DataType) -> Trainer {
    let (changed, _) = sum_of_products(elem).add_training(options).unwrap();
    let mut trainer = Trainer::new(&changed).unwrap();
    let slopes = as_elem(&[1.0, -0.75, 0.25, 1.0], elem);
    for _ in 0..50 {
        trainer.step(0, [("x", slopes.clone())], &Default::default()).unwrap();
    }
    trainer
}

/// Checks that optimizer state of zeros takes no bytes in the file.
#[test]
fn zeros_of_optimizers_are_not_stored() {
    let zeros = vec!["0"; 64 * 256].join(", ");
    let text = format!(
        "<ir_version: 8, opset_import: [\"\": 17]>
         g (float[N, 64] x) => (float[N, 256] y) <float[64, 256] w = raw {{{zeros}}}, float b = {{1}}> {{
             a = MatMul (x, w)
             y = Mul (a, b)
         }}"
    );
    let plain = model(&text);
    let before = plain.to_bytes().len();
    assert!(before > 64 * 256 * 4);
    let adam = OptimizerKind::Adam { beta1: 0.9, beta2: 0.999, epsilon: 1e-8, decoupled: false };
    for kind in [adam, OptimizerKind::Adagrad { epsilon: 1e-10, decay: 0.0 }] {
        let options = squared_error().optimizer(kind, 0.01).variables(["w", "b"]);
        let (changed, _) = plain.add_training(&options).unwrap();
        assert_valid(&changed);
        let bytes = changed.to_bytes();
        assert!(bytes.len() < before + 8000, "{} instead of {before}", bytes.len());
        let trainer = Trainer::new(&Model::from_bytes(bytes).unwrap()).unwrap();
        assert_eq!(state(&trainer, "w_squares"), vec![0.0; 64 * 256]);
        assert_eq!(state(&trainer, "b_squares"), [0.0]);
    }
}

/// Checks that a model of an old opset is converted only as far as the step requires.
#[test]
fn old_models_are_converted_as_far_as_needed() {
    let text = LINE.replace("ir_version: 8", "ir_version: 4").replace("\"\": 17", "\"\": 9");
    let text = text.replace("double", "float");
    let (changed, report) = model(&text).add_training(&squared_error()).unwrap();
    assert_valid(&changed);
    assert_eq!(report.opset.0, 9);
    let mut trainer = Trainer::new(&changed).unwrap();
    let x = Tensor::from_vec([4], vec![1f32; 4]).unwrap();
    let outputs = trainer.step(0, [("x", x.clone()), ("target", x)], &Default::default()).unwrap();
    assert_eq!(outputs.tensor("loss").unwrap().item::<f32>().unwrap(), 13.25 / 4.0);
}

/// Checks that the report lists operators without a gradient rule, which are expanded to their
/// functions.
#[test]
fn operators_that_become_functions_are_reported() {
    let text = LINE.replace("y = Mul (x, w)", "m = Mul (x, w) y = LeakyRelu (m)");
    let (changed, report) = model(&text).add_training(&squared_error()).unwrap();
    assert_valid(&changed);
    let leaky = (String::new(), "LeakyRelu".to_string());
    assert_eq!(report.expansions.get(&leaky), Some(&1), "{:?}", report.expansions);
}

#[test]
fn an_operator_without_gradient_is_named() {
    let text = "<ir_version: 10, opset_import: [\"\": 21, \"ai.onnx.ml\": 3]>
        g (float[2, 2] x) => (float[2, 2] y) <float[2, 2] w = {1, 2, 3, 4}> {
            a = MatMul (x, w)
            q = CastLike (a, x)
            y = ai.onnx.ml.Normalizer (q)
        }";
    let Err(EditError::NotDifferentiable(findings)) = model(text).add_training(&squared_error())
    else {
        panic!("Normalizer has no gradient");
    };
    assert_eq!(findings[0].code.name, "no-gradient");
    assert!(findings[0].fact.contains("Normalizer"), "{}", findings[0].fact);
}

/// Checks that a gradient through a function uses values of the function's body. The body of
/// HardSigmoid rounds differently from its kernel, and the gradient of its last node compares input
/// and output for equality.
#[test]
fn gradients_of_functions_read_what_the_functions_make() {
    let line = model(
        "<ir_version: 8, opset_import: [\"\": 17]>
         g (float[2001] x) => (float[2001] y) { y = HardSigmoid (x) }",
    );
    let (changed, _) = line.add_gradients(&GradientOptions::new()).unwrap();
    let values: Vec<f32> = (0..2001u16).map(|i| (f32::from(i) - 1000.0) / 256.0).collect();
    let x = Tensor::from_slice([2001], &values).unwrap();
    let outputs = Session::new(&changed).unwrap().run([("x", x)], &Default::default()).unwrap();
    let gradients: Vec<f32> = outputs.tensor("x_grad").unwrap().to_vec().unwrap();
    for (x, gradient) in values.iter().zip(gradients) {
        let expected = if x.abs() < 2.5 { 0.2 } else { 0.0 };
        // At the two kinks, any value between the slopes is right.
        assert!(gradient == expected || x.abs() == 2.5, "{gradient} at {x}");
    }
}

/// Checks that the gradient of a Loop declares the type of its condition, which runtimes cannot
/// infer because the Loop has no condition input.
#[test]
fn graphs_of_gradients_of_loops_declare_their_conditions() {
    let repeated = model(
        "<ir_version: 8, opset_import: [\"\": 17]>
         g (float[2] x, int64 n) => (float[2] y) {
             y = Loop (n, , x) <body = iteration (int64 i, bool c, float[2] a) => (bool d, float[2] b) {
                 d = Identity (c)
                 b = Sin (a)
             }>
         }",
    );
    let (changed, _) = repeated.add_gradients(&GradientOptions::new()).unwrap();
    let text = changed.to_text();
    assert!(text.contains("iteration (int64 number__"), "{text}");
    assert!(text.contains(", bool condition__"), "{text}");
}

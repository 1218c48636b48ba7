//! `sardonyx add-training`: training information for a model that has none.

use std::collections::BTreeMap;
use std::str::FromStr;

use sardonyx::training::{
    self, Clipping, Initialization, Loss, Optimizer, OptimizerNumbers, Options, Skipped,
    TrainingReport,
};
use serde_json::{Value, json};

use crate::derived::{Command, expansions_json, notes, opset_json};
use crate::failure::Failure;
use crate::human::{count, group};
use crate::terminal::Terminal;
use crate::{ModelArg, Verdict, saving};

/// Add a loss, gradients and an optimizer to a model, so that sardonyx train can train it
///
/// The model gets an entry of training information: an algorithm that computes the loss, its
/// gradients by the weights, and one step of an optimizer. The main graph stays as it is, so that
/// the file is still a model for inference. Gradients and optimizer are operators of ai.onnx unless
/// --gradient-nodes or --optimizer-operator is given. Operators without a gradient are listed; the
/// exit code is then 1.
#[derive(clap::Args)]
#[group(skip)]
pub(crate) struct Args {
    #[command(flatten)]
    model: ModelArg,
    #[command(flatten)]
    saving: saving::Args,
    #[command(flatten)]
    loss: LossArgs,
    #[command(flatten)]
    optimizer: OptimizerArgs,
    /// Train only initializers whose names fit PATTERN, such as 'classifier.*'; by default all that
    /// are read as weights. May be repeated
    #[arg(long, value_name = "PATTERN")]
    train: Vec<String>,
    /// Do not train initializers whose names fit PATTERN. May be repeated
    #[arg(long, value_name = "PATTERN")]
    freeze: Vec<String>,
    /// Weights after sardonyx train --initialize: 'keep' the stored ones; 'he' (normal, variance 2
    /// over inputs), 'xavier' (uniform, by inputs and outputs), or 'uniform:BOUND'. Biases become 0
    /// and factors of normalizations 1, unless they are kept
    #[arg(long, value_name = "HOW", default_value = "keep", value_parser = Initialization::from_str)]
    init: Initialization,
    /// Run Dropout and BatchNormalization as in training, and update running means and variances.
    /// Inference still runs them as the model says
    #[arg(long)]
    training_mode: bool,
    /// Write gradients as a Gradient node (ai.onnx.preview.training) and not as the nodes that it
    /// means
    #[arg(long)]
    gradient_nodes: bool,
}

/// What is made small.
#[derive(clap::Args)]
#[group(skip)]
struct LossArgs {
    /// Loss: 'cross-entropy' of class scores and a new input 'label' of class numbers (int64), or
    /// 'squared-error' between an output and a new input 'target'
    #[arg(long, value_enum, value_name = "LOSS", required_unless_present = "loss_value")]
    loss: Option<LossName>,
    /// Use this value of the model as the loss; the sum of its elements if it has several
    #[arg(long, value_name = "VALUE", conflicts_with_all = ["loss", "of", "class_axis", "ignore_class"])]
    loss_value: Option<String>,
    /// Output that the loss compares; by default the only one
    #[arg(long, value_name = "OUTPUT")]
    of: Option<String>,
    /// Axis of the output that counts classes; by default that of a Softmax which makes the output,
    /// or 1
    #[arg(long, value_name = "AXIS", allow_negative_numbers = true)]
    class_axis: Option<i64>,
    /// Class number of examples that do not count in the loss
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    ignore_class: Option<i64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum LossName {
    CrossEntropy,
    SquaredError,
}

/// How weights move.
#[derive(clap::Args)]
#[group(skip)]
struct OptimizerArgs {
    /// Optimizer
    #[arg(long, value_enum, value_name = "NAME", default_value = "sgd")]
    optimizer: OptimizerName,
    /// Default of the input 'learning_rate' of each step [default: 0.01; 0.001 for adam and adamw]
    #[arg(long, value_name = "RATE")]
    learning_rate: Option<f64>,
    /// Part of the sum of gradients that momentum and nesterov keep
    #[arg(long, value_name = "PART", default_value_t = 0.9)]
    momentum: f64,
    /// Part of the mean of gradients that adam and adamw keep
    #[arg(long, value_name = "PART", default_value_t = 0.9)]
    beta1: f64,
    /// Part of the mean of squared gradients that adam and adamw keep
    #[arg(long, value_name = "PART", default_value_t = 0.999)]
    beta2: f64,
    /// Number added to divisors by adam, adamw [default: 1e-8] and adagrad [default: 1e-10]
    #[arg(long, value_name = "NUMBER")]
    epsilon: Option<f64>,
    /// Decay of the learning rate of adagrad: step t, from 0, has the rate over 1 + t times this
    #[arg(long, value_name = "NUMBER", default_value_t = 0.0)]
    rate_decay: f64,
    /// Part of each weight that is added to its gradient; for adamw the part that it loses, times
    /// the learning rate [default: 0; 0.01 for adamw]
    #[arg(long, value_name = "PART")]
    weight_decay: Option<f64>,
    /// Clip gradients by their norm: where the root of the sum of the squares of all gradients is
    /// greater than NORM, all are multiplied by the factor that makes it NORM
    #[arg(long, value_name = "NORM", conflicts_with = "clip_value")]
    clip_norm: Option<f64>,
    /// Clip each element of the gradients between -LIMIT and LIMIT
    #[arg(long, value_name = "LIMIT")]
    clip_value: Option<f64>,
    /// Write the step as an operator of ai.onnx.preview.training: Momentum, Adagrad or Adam, whose
    /// epsilon is added before the bias is corrected
    #[arg(long)]
    optimizer_operator: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum OptimizerName {
    /// Gradient descent
    Sgd,
    /// Gradient descent with momentum
    Momentum,
    /// Gradient descent with Nesterov's momentum
    Nesterov,
    /// Steps over the root of the sum of squared gradients
    Adagrad,
    /// Running means of gradients and of their squares
    Adam,
    /// Adam with weight decay apart from the gradient
    Adamw,
}

/// The name and version of the form of the JSON answer. New keys may be added; a change of meaning
/// gets a new number.
const SCHEMA: &str = "sardonyx.add-training/1";

pub(crate) fn add_training(args: &Args, terminal: &Terminal) -> Result<Verdict, Failure> {
    let model = args.model.open()?;
    let target = args.saving.target(&args.model, &model)?;
    let result = model.add_training(&args.options());
    let command = Command { schema: SCHEMA, arg: &args.model, saving: &args.saving };
    command.finish(&model, target, result, (as_json, as_text), terminal)
}

impl Args {
    fn options(&self) -> Options {
        let mut options = Options::new(self.loss.loss())
            .with_optimizer(self.optimizer.optimizer())
            .frozen(&self.freeze)
            .initialization(self.init)
            .training_mode(self.training_mode)
            .gradient_nodes(self.gradient_nodes);
        if let Some(clipping) = self.optimizer.clipping() {
            options = options.clipping(clipping);
        }
        if !self.train.is_empty() {
            options = options.variables(&self.train);
        }
        options
    }
}

impl LossArgs {
    fn loss(&self) -> Loss {
        if let Some(value) = &self.loss_value {
            return Loss::Value(value.clone());
        }
        let output = self.of.clone();
        match self.loss {
            Some(LossName::SquaredError) => Loss::SquaredError { output },
            Some(LossName::CrossEntropy) | None => {
                Loss::CrossEntropy { output, axis: self.class_axis, ignored: self.ignore_class }
            }
        }
    }
}

impl OptimizerArgs {
    fn optimizer(&self) -> Optimizer {
        let name = match self.optimizer {
            OptimizerName::Sgd => training::OptimizerName::Sgd,
            OptimizerName::Momentum => training::OptimizerName::Momentum,
            OptimizerName::Nesterov => training::OptimizerName::Nesterov,
            OptimizerName::Adagrad => training::OptimizerName::Adagrad,
            OptimizerName::Adam => training::OptimizerName::Adam,
            OptimizerName::Adamw => training::OptimizerName::AdamW,
        };
        let optimizer = name.with(&OptimizerNumbers {
            learning_rate: self.learning_rate,
            momentum: Some(self.momentum),
            beta1: Some(self.beta1),
            beta2: Some(self.beta2),
            epsilon: self.epsilon,
            rate_decay: Some(self.rate_decay),
            weight_decay: self.weight_decay,
        });
        Optimizer { as_operator: self.optimizer_operator, ..optimizer }
    }

    fn clipping(&self) -> Option<Clipping> {
        self.clip_norm.map(Clipping::Norm).or(self.clip_value.map(Clipping::Value))
    }
}

fn as_json(report: &TrainingReport) -> Value {
    let variables = report.variables.iter();
    let variables: Vec<Value> =
        variables.map(|(name, elements)| json!({"name": name, "elements": elements})).collect();
    let skipped = report.skipped.iter();
    let skipped: Vec<Value> =
        skipped.map(|(name, why)| json!({"name": name, "reason": why.text()})).collect();
    json!({
        "variables": variables,
        "not_trained": skipped,
        "label": report.label,
        "loss": report.loss,
        "learning_rate": report.learning_rate,
        "nodes": report.nodes,
        "training_mode": report.training_mode,
        "opset": opset_json(report.opset),
        "expanded": expansions_json(&report.expansions),
    })
}

fn as_text(report: &TrainingReport) -> String {
    /// Names that are listed of those that share a reason.
    const SHOWN: usize = 5;
    let elements: usize = report.variables.iter().map(|(_, elements)| elements).sum();
    let mut text = format!(
        "training {} with {} elements; {} in the algorithm",
        count(report.variables.len(), "variable"),
        group(elements as u64),
        count(report.nodes, "node")
    );
    let mut inputs: Vec<String> = report.label.iter().map(|label| format!("'{label}'")).collect();
    inputs.push(format!("'{}' (has a default)", report.learning_rate));
    text += &format!("\nnew inputs: {}; new output: '{}'", inputs.join(", "), report.loss);
    if report.training_mode > 0 {
        text += &format!("\nin training mode: {}", count(report.training_mode, "node"));
    }
    let mut skipped: BTreeMap<Skipped, Vec<&str>> = BTreeMap::new();
    for (name, why) in &report.skipped {
        skipped.entry(*why).or_default().push(name);
    }
    for (why, names) in skipped {
        let listed = names.iter().take(SHOWN).copied().collect::<Vec<_>>().join(", ");
        let more = names.len().saturating_sub(SHOWN);
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        text += &format!("\nnot trained, as {}: {listed}{more}", why.text());
    }
    text + &notes(report.opset, &report.expansions)
}

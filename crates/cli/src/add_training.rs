//! `sardonyx add-training`: training information for a model that has none.

use std::collections::BTreeMap;
use std::str::FromStr;

use sardonyx::tool;
use sardonyx::tool::{ModelExt, Optimizer, OptimizerNumbers};
use sardonyx::train::{Clipping, Initialization, Loss, Skipped, TrainingOptions, TrainingReport};

use crate::derived::{Command, format_side_effects};
use crate::failure::Failure;
use crate::human::{format_count, group_digits};
use crate::model_arg::ModelArg;
use crate::terminal::Terminal;
use crate::verdict::Verdict;
use crate::{invalid, saving};

/// Add a loss, gradients and an optimizer to a model, so that sardonyx train can train it
///
/// Adds an entry of training information: an algorithm that computes the loss, its gradients with
/// respect to the weights, and one optimizer step. The main graph is unchanged, so the file remains
/// a model for inference. Gradients and optimizer use operators of ai.onnx unless --gradient-nodes
/// or --optimizer-operator is given. If an operator has no gradient, such operators are listed and
/// the exit code is 1.
#[derive(clap::Args)]
#[group(skip)]
pub(crate) struct Args {
    #[command(flatten)]
    model: ModelArg,
    #[command(flatten)]
    saving: saving::Args,
    #[command(flatten)]
    invalid: invalid::Args,
    #[command(flatten)]
    loss: LossArgs,
    #[command(flatten)]
    optimizer: OptimizerArgs,
    /// Train only initializers whose names match PATTERN, such as 'classifier.*'; by default all
    /// that are used as weights. May be repeated
    #[arg(long, value_name = "PATTERN")]
    train: Vec<String>,
    /// Do not train initializers whose names match PATTERN. May be repeated
    #[arg(long, value_name = "PATTERN")]
    freeze: Vec<String>,
    /// Initial weights of sardonyx train --initialize: 'keep' (the stored values), 'he' (normal,
    /// variance 2 / fan-in), 'xavier' (uniform, by fan-in and fan-out), or 'uniform:BOUND'. Except
    /// with 'keep', biases become 0 and scales of normalizations 1
    #[arg(long, value_name = "HOW", default_value = "keep", value_parser = Initialization::from_str)]
    init: Initialization,
    /// Keep no float copy of weights of float16 and bfloat16: steps below half a unit in the last
    /// place of a weight then change nothing
    #[arg(long)]
    no_float_copies: bool,
    /// Run Dropout and BatchNormalization in training mode during training, and update running
    /// means and variances. Does not change inference
    #[arg(long)]
    training_mode: bool,
    /// Write a Gradient node (ai.onnx.preview.training) instead of the nodes that compute the
    /// gradients
    #[arg(long)]
    gradient_nodes: bool,
}

/// Options that select the loss.
#[derive(clap::Args)]
#[group(skip)]
struct LossArgs {
    /// Loss: 'cross-entropy' of class scores and a new input 'label' with class indices (int64), or
    /// 'squared-error' between an output and a new input 'target'
    #[arg(long, value_enum, value_name = "LOSS", required_unless_present = "loss_value")]
    loss: Option<LossName>,
    /// Use this value of the model as the loss, or the sum of its elements if it is not a scalar
    #[arg(long, value_name = "VALUE", conflicts_with_all = ["loss", "of", "class_axis", "ignore_class"])]
    loss_value: Option<String>,
    /// Output to compute the loss from; by default the only output
    #[arg(long, value_name = "OUTPUT")]
    of: Option<String>,
    /// Class axis of the output; by default that of the Softmax that computes the output, else 1
    #[arg(long, value_name = "AXIS", allow_negative_numbers = true)]
    class_axis: Option<i64>,
    /// Class index of examples that the loss ignores; by default none
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    ignore_class: Option<i64>,
}

/// Loss function that `--loss` selects.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum LossName {
    CrossEntropy,
    SquaredError,
}

/// Options that select the optimizer and its coefficients.
#[derive(clap::Args)]
#[group(skip)]
struct OptimizerArgs {
    /// Optimizer
    #[arg(long, value_enum, value_name = "NAME", default_value = "sgd")]
    optimizer: OptimizerName,
    /// Default of the input 'learning_rate' of each step [default: 0.01; adam and adamw: 0.001]
    #[arg(long, value_name = "RATE")]
    learning_rate: Option<f64>,
    /// Momentum coefficient of momentum and nesterov [default: 0.9]
    #[arg(long, value_name = "PART")]
    momentum: Option<f64>,
    /// Decay rate of the averaged gradient of adam and adamw [default: 0.9]
    #[arg(long, value_name = "PART")]
    beta1: Option<f64>,
    /// Decay rate of the averaged squared gradient of adam and adamw [default: 0.999]
    #[arg(long, value_name = "PART")]
    beta2: Option<f64>,
    /// Constant added to the divisor [default: 1e-8 for adam and adamw, 1e-10 for adagrad]
    #[arg(long, value_name = "NUMBER")]
    epsilon: Option<f64>,
    /// Learning rate decay of adagrad: step t, from 0, uses rate / (1 + t * NUMBER) [default: 0]
    #[arg(long, value_name = "NUMBER")]
    rate_decay: Option<f64>,
    /// Weight decay: adds PART * weight to the gradient; adamw subtracts rate * PART * weight from
    /// the weight [default: 0; adamw: 0.01]
    #[arg(long, value_name = "PART")]
    weight_decay: Option<f64>,
    /// Clip gradients by their global norm, the root of the sum of the squares of all gradients: if
    /// it exceeds NORM, all gradients are scaled so that it becomes NORM
    #[arg(long, value_name = "NORM", conflicts_with = "clip_value")]
    clip_norm: Option<f64>,
    /// Clip each element of the gradients between -LIMIT and LIMIT
    #[arg(long, value_name = "LIMIT")]
    clip_value: Option<f64>,
    /// Write the optimizer step as an operator of ai.onnx.preview.training: Momentum, Adagrad or
    /// Adam. Its Adam adds epsilon before the bias correction
    #[arg(long)]
    optimizer_operator: bool,
}

/// Optimizer that `--optimizer` selects.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum OptimizerName {
    /// Gradient descent
    Sgd,
    /// Gradient descent with momentum
    Momentum,
    /// Gradient descent with Nesterov's momentum
    Nesterov,
    /// Adagrad: scales steps by the accumulated squared gradients
    Adagrad,
    /// Adam: averages of gradients and of squared gradients
    Adam,
    /// Adam with decoupled weight decay
    Adamw,
}

/// Name and version of the schema of `add-training --json`. The version rises when the meaning of a
/// key changes, not when a key is added.
const SCHEMA: &str = "sardonyx.add-training/1";

pub(crate) fn add_training(args: &Args, terminal: &Terminal) -> Result<Verdict, Failure> {
    let model = args.model.open()?;
    let target = args.saving.target(&args.model, &model)?;
    let entries = model.training_entries().len();
    if entries > 0 {
        terminal.note(&format!(
            "the model has training information already; `sardonyx train` runs the old entries and \
             the new one, `sardonyx train --entry {entries}` runs only the new entry, and \
             `sardonyx strip --training` removes all entries"
        ));
    }
    let result = model.add_training(&args.to_options()?);
    let command =
        Command { schema: SCHEMA, arg: &args.model, saving: &args.saving, invalid: &args.invalid };
    command.finish(&model, target, result, as_text, terminal)
}

impl Args {
    fn to_options(&self) -> Result<TrainingOptions, Failure> {
        let mut options = TrainingOptions::new(self.loss.to_loss()?)
            .with_optimizer(self.optimizer.to_optimizer()?)
            .freeze(&self.freeze)
            .initialization(self.init)
            .training_mode(self.training_mode)
            .gradient_nodes(self.gradient_nodes)
            .float_copies(!self.no_float_copies);
        if let Some(clipping) = self.optimizer.to_clipping() {
            options = options.clipping(clipping);
        }
        if !self.train.is_empty() {
            options = options.variables(&self.train);
        }
        Ok(options)
    }
}

impl LossArgs {
    /// Converts the options of the loss. Fails if an option of cross-entropy is given for another
    /// loss.
    fn to_loss(&self) -> Result<Loss, Failure> {
        if let Some(value) = &self.loss_value {
            return Ok(Loss::Value(value.clone()));
        }
        let output = self.of.clone();
        if self.loss == Some(LossName::SquaredError) {
            let of_classes = [
                ("--class-axis", self.class_axis.is_some()),
                ("--ignore-class", self.ignore_class.is_some()),
            ];
            if let Some((option, _)) = of_classes.into_iter().find(|(_, is_given)| *is_given) {
                let message = format!(
                    "the loss squared-error does not take {option}, only cross-entropy does"
                );
                return Err(Failure::new(message)
                    .help(format!("remove {option}, or use --loss cross-entropy")));
            }
            return Ok(Loss::SquaredError { output });
        }
        Ok(Loss::CrossEntropy { output, axis: self.class_axis, ignored: self.ignore_class })
    }
}

impl OptimizerArgs {
    /// Converts the options of the optimizer. Fails if the optimizer has no coefficient of that
    /// name.
    fn to_optimizer(&self) -> Result<Optimizer, Failure> {
        let name = match self.optimizer {
            OptimizerName::Sgd => tool::OptimizerName::Sgd,
            OptimizerName::Momentum => tool::OptimizerName::Momentum,
            OptimizerName::Nesterov => tool::OptimizerName::Nesterov,
            OptimizerName::Adagrad => tool::OptimizerName::Adagrad,
            OptimizerName::Adam => tool::OptimizerName::Adam,
            OptimizerName::Adamw => tool::OptimizerName::AdamW,
        };
        let optimizer = name.to_optimizer(&OptimizerNumbers {
            learning_rate: self.learning_rate,
            momentum: self.momentum,
            beta1: self.beta1,
            beta2: self.beta2,
            epsilon: self.epsilon,
            rate_decay: self.rate_decay,
            weight_decay: self.weight_decay,
        });
        let optimizer = optimizer.map_err(|foreign| {
            let option = format!("--{}", foreign.number.replace('_', "-"));
            let uses: Vec<String> = foreign
                .optimizers
                .iter()
                .map(|name| format!("--optimizer {}", name.name()))
                .collect();
            Failure::new(foreign.to_string())
                .help(format!("remove {option}, or use {}", uses.join(" or ")))
        })?;
        Ok(Optimizer { as_operator: self.optimizer_operator, ..optimizer })
    }

    /// Returns the limit of `--clip-norm` or `--clip-value`; `None` without these options.
    fn to_clipping(&self) -> Option<Clipping> {
        self.clip_norm.map(Clipping::Norm).or(self.clip_value.map(Clipping::Value))
    }
}

fn as_text(report: &TrainingReport) -> String {
    /// Maximum number of untrained initializers to list for each reason.
    const SHOWN: usize = 5;
    let elements: usize = report.variables.iter().map(|(_, elements)| elements).sum();
    let mut text = format!(
        "training {} with {} elements; {} in the algorithm",
        format_count(report.variables.len(), "variable"),
        group_digits(elements as u64),
        format_count(report.nodes, "node")
    );
    let mut inputs: Vec<String> = report.label.iter().map(|label| format!("'{label}'")).collect();
    inputs.push(format!("'{}' (has a default)", report.learning_rate));
    text += &format!("\nnew inputs: {}; new output: '{}'", inputs.join(", "), report.loss);
    if report.float_copies > 0 {
        let variables = format_count(report.float_copies, "variable");
        text += &format!("\nwith a float copy: {variables} of float16 or bfloat16");
    }
    if report.training_mode > 0 {
        text += &format!("\nin training mode: {}", format_count(report.training_mode, "node"));
    }
    let mut skipped: BTreeMap<Skipped, Vec<&str>> = BTreeMap::new();
    for (name, why) in &report.skipped {
        skipped.entry(*why).or_default().push(name);
    }
    for (why, names) in skipped {
        let listed = names.iter().take(SHOWN).copied().collect::<Vec<_>>().join(", ");
        let more = names.len().saturating_sub(SHOWN);
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        text += &format!("\nnot trained because {}: {listed}{more}", why.text());
    }
    text + &format_side_effects(report.opset.0, report.opset.1, &report.expansions)
}

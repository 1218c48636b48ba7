//! Training information for a model that has none: a loss, gradients of its weights, and a step of
//! an optimizer, as an entry of the field `training_info`.
//!
//! The algorithm of the entry reads values of the main graph. The main graph is unchanged, or
//! converted to a newer version of `ai.onnx` if the algorithm has no equivalent in the version of
//! the model.

mod clipping;
mod initialization;
mod loss;
mod optimizer;
mod variables;

use std::fmt;

use sardonyx_model::{Entry, ExternalData, Model, NodeId, TrainingInfo, ValueId};
use sardonyx_ops::Registry;
use sardonyx_tensor::Tensor;

use crate::addition::{Added, Addition, TRAINING, import_operator_set};
use crate::derivatives::DeriveError;
use crate::expand::Expansions;
use crate::ir_version::{PLAIN_INITIALIZERS, raise_ir_version};
use crate::results::{Accepted, JobInput, JobKind};

pub use clipping::Clipping;
pub use initialization::Initialization;
pub use loss::Loss;
pub use optimizer::{Optimizer, OptimizerKind};

/// First version of the format with training information.
const TRAINING_INFO: i64 = 7;

/// Options of the training information.
pub struct TrainingOptions<'a> {
    /// Loss to minimize.
    pub loss: Loss,
    /// Rule that updates the weights.
    pub optimizer: Optimizer,
    /// Limit of gradients.
    pub clipping: Option<Clipping>,
    /// Predicate that selects the initializers to train, by name. By default all weights are
    /// selected; [`Skipped`] has the reasons for which other initializers are not.
    pub variables: Option<&'a dyn Fn(&str) -> bool>,
    /// Predicate that excludes selected initializers, by name.
    pub frozen: &'a dyn Fn(&str) -> bool,
    /// Initial values of the weights, which the entry's initialization assigns.
    pub initialization: Initialization,
    /// Whether the algorithm runs Dropout and BatchNormalization in training mode. Running
    /// statistics are then state variables. The main graph is unchanged.
    pub training_mode: bool,
    /// Whether `Gradient` nodes, which few runtimes support, compute the gradients. Otherwise they
    /// are expanded to other nodes.
    pub gradient_nodes: bool,
    /// Whether float16 and bfloat16 weights have a float copy. It is the sum of the weight and a
    /// float state variable, which has the remainder of rounding to 16 bits. Without copies, a step
    /// below half a unit in the last place of a weight has no effect.
    pub float_copies: bool,
}

impl fmt::Debug for TrainingOptions<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TrainingOptions")
            .field("loss", &self.loss)
            .field("optimizer", &self.optimizer)
            .field("clipping", &self.clipping)
            .field("initialization", &self.initialization)
            .field("training_mode", &self.training_mode)
            .field("gradient_nodes", &self.gradient_nodes)
            .field("float_copies", &self.float_copies)
            .finish_non_exhaustive()
    }
}

/// Description of the training information that was added to a model.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct TrainingReport {
    /// Trained weights, each with its number of elements.
    pub variables: Vec<(String, usize)>,
    /// Floating-point initializers that are not trained, each with the reason.
    pub skipped: Vec<(String, Skipped)>,
    /// Name of the new input for the wanted outputs, such as `label` or `target`; `None` if the
    /// loss needs none.
    pub label: Option<String>,
    /// Name of the algorithm's output that is the loss.
    pub loss: String,
    /// Name of the algorithm's input for the learning rate, which has a default value.
    pub learning_rate: String,
    /// Number of nodes in the algorithm.
    pub nodes: usize,
    /// Number of nodes that run in training mode.
    pub training_mode: usize,
    /// Number of weights of 16 bits that have a float copy.
    pub float_copies: usize,
    /// Version of `ai.onnx` before and after.
    pub opset: (u32, u32),
    /// Number of nodes in the algorithm that were expanded to the body of their operator's
    /// function, by domain and name.
    pub expansions: Expansions,
}

/// Reason for which a floating-point initializer is not trained.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Skipped {
    /// The loss does not depend on it.
    NoInfluence,
    /// It is also an input of the main graph.
    Input,
    /// It is a running mean or variance.
    Statistic,
    /// It is a parameter of an operator other than a weight: a factor, an exponent, a limit or a
    /// mask.
    Constant,
    /// The options did not select it.
    NotChosen,
}

impl Skipped {
    /// Describes the reason as a clause, such as `the loss does not depend on it`.
    pub fn text(self) -> &'static str {
        match self {
            Skipped::NoInfluence => "the loss does not depend on it",
            Skipped::Input => "it is an input of the model",
            Skipped::Statistic => "it is a running statistic",
            Skipped::Constant => "it is not used as a weight",
            Skipped::NotChosen => "it was not selected",
        }
    }
}

/// Adds an entry of training information to a model. Reads data of initializers in other files from
/// `external`, to distinguish masks from weights.
///
/// # Errors
///
/// Options that do not fit the model; operators before the loss that have no gradient.
pub fn add_training(
    model: &Model,
    registry: &Registry,
    external: &dyn ExternalData,
    options: &TrainingOptions<'_>,
) -> Result<(Model, TrainingReport), DeriveError> {
    options.optimizer.check().map_err(DeriveError::Option)?;
    options.clipping.map_or(Ok(()), Clipping::check).map_err(DeriveError::Option)?;
    let input = JobInput { job: JobKind::AddTraining, model, registry };
    let mut model = model.clone();
    if let (Some(main), ..PLAIN_INITIALIZERS) = (model.main, model.header.ir_version.unwrap_or(0)) {
        // In the written version of the format, variables are not inputs.
        model.fix_default_inputs(main);
    }
    let mut add = Addition::new(model, registry, &[])?;
    let statistics = if options.training_mode { training_mode(&mut add) } else { Modes::default() };
    let loss = loss::add(&mut add, &options.loss)?;
    let types = add.types()?;
    let chosen = variables::choose(&add, &types, external, options, loss.value)?;
    let initial = initialization::plan(options.initialization, &chosen.variables);
    let xs: Vec<ValueId> = chosen.variables.iter().map(|found| found.value).collect();
    let gradients = add.gradient(loss.value, &xs, &chosen.inputs, options.gradient_nodes);
    if !options.gradient_nodes {
        add.derive()?;
    }
    let gradients = match options.clipping {
        Some(clipping) => clipping::add(&mut add, clipping, &chosen.variables, &gradients),
        None => gradients,
    };
    let (optimizer, copies) = (&options.optimizer, options.float_copies);
    let step = optimizer::add(&mut add, optimizer, copies, &chosen.variables, &gradients)?;
    add.output(loss.value);
    let mut bindings = step.updates;
    bindings.extend(statistics.updates);
    for (_, value) in &bindings {
        add.output(*value);
    }
    let mut report = TrainingReport {
        variables: chosen.variables.iter().map(|found| (found.name.clone(), found.len)).collect(),
        skipped: chosen.skipped,
        label: loss.label.map(|label| add.name(label)),
        loss: add.name(loss.value),
        learning_rate: step.learning_rate,
        training_mode: statistics.nodes,
        float_copies: step.float_copies,
        expansions: add.expansions.clone(),
        ..TrainingReport::default()
    };
    let bindings: Vec<(String, String)> =
        bindings.into_iter().map(|(key, value)| (key, add.name(value))).collect();
    let Added { mut model, graph, opset, nodes, origins } =
        add.finish(options.initialization.opset())?;
    (report.opset, report.nodes) = (opset, nodes);
    model.graph_mut(graph).name = Some(model.intern("training_step"));
    let mut info = TrainingInfo { algorithm: Some(graph), ..TrainingInfo::default() };
    info.update_binding = entries(&mut model, bindings);
    let (initialization, bindings) = initialization::build(&mut model, &initial);
    info.initialization = initialization;
    info.initialization_binding = entries(&mut model, bindings);
    model.training_info.push(info);
    if options.gradient_nodes || options.optimizer.as_operator {
        import_operator_set(&mut model, TRAINING.0, TRAINING.1);
    }
    raise_ir_version(&mut model, TRAINING_INFO);
    let Accepted { model, .. } = input.accept(model, &origins)?;
    Ok((model, report))
}

/// Changes by training mode.
#[derive(Default)]
struct Modes {
    nodes: usize,
    /// Names of running statistics, with their new values.
    updates: Vec<(String, ValueId)>,
}

/// Sets Dropout and BatchNormalization nodes to training mode.
fn training_mode(add: &mut Addition) -> Modes {
    let resolved = add.resolved();
    let graphs = resolved.graphs().iter();
    let nodes = graphs.flat_map(|graph| resolved.order_of(*graph)).copied();
    let named = |node: NodeId, name: &str| {
        resolved.op(node).is_some_and(|op| op.def.domain.is_empty() && op.def.name == name)
    };
    let nodes: Vec<NodeId> = nodes.collect();
    let dropouts: Vec<NodeId> =
        nodes.iter().copied().filter(|node| named(*node, "Dropout")).collect();
    let main = resolved.main();
    // Running statistics in a branch cannot be state variables.
    let is_main = |node: &NodeId| resolved.model().node(*node).graph == main;
    let normalizations: Vec<NodeId> = nodes
        .into_iter()
        .filter(|node| named(*node, "BatchNormalization") && is_main(node))
        .collect();
    let changed: Vec<NodeId> = dropouts.iter().chain(&normalizations).copied().collect();
    let on = (!dropouts.is_empty()).then(|| {
        let yes = Tensor::from_bools([], &[true]).expect("a scalar has one element");
        add.constant("training_mode", &yes)
    });
    for node in dropouts {
        add.model_mut().set_input(node, 2, on);
        add.renew(node);
    }
    let mut updates = Vec::new();
    for node in normalizations {
        let model = add.model_mut();
        let read: Vec<Option<ValueId>> = model.inputs(node).collect();
        model.set_attribute(node, "training_mode", 1);
        model.fill_outputs(node, 3);
        let made = model.outputs(node).to_vec();
        for part in [1, 2] {
            let (Some(Some(old)), Some(Some(new))) = (read.get(part + 2), made.get(part)) else {
                continue;
            };
            let is_stored = |value: ValueId| {
                let producer = add.model().value(value).producer;
                matches!(producer, sardonyx_model::Producer::Initializer(_))
            };
            let name = add.name(*old);
            if is_stored(*old) && !updates.iter().any(|(key, _)| *key == name) {
                updates.push((name.clone(), *new));
            }
            add.rename(*new, &format!("{name}_new"));
        }
        add.renew(node);
    }
    add.change(&changed);
    Modes { nodes: changed.len(), updates }
}

/// Makes bindings from pairs of names.
fn entries(model: &mut Model, pairs: Vec<(String, String)>) -> Vec<Entry> {
    let mut entry = |(key, value): (String, String)| Entry {
        key: Some(model.intern(&key)),
        value: Some(model.intern(&value)),
        ..Entry::default()
    };
    pairs.into_iter().map(&mut entry).collect()
}

//! Annotations for a model that has none: they split its products, heads and tables, divide its
//! nodes into pipeline stages, or split the batch.

mod batch;
mod columns;
mod pipeline;
mod sizes;
mod tensor;

use hashbrown::HashSet;
use sardonyx_model::{Model, NodeId};
use sardonyx_ops::Registry;
use sardonyx_passes::{
    JobInput, JobKind, NodeAnnotation, ShardingSpec, add_configuration, annotate_devices,
    configurations, raise_ir_version,
};

pub(crate) use columns::Columns;
use pipeline::InnerWork;
use sizes::prepare_with_sizes;

use crate::candidates::find_cheapest;
use crate::options::{ShardError, ShardOptions};
use crate::prepare::inlined;

/// Scheme that divides a model among devices.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Division {
    /// Tensor parallelism: matrix products with constant right operands are split by columns and,
    /// where the split extends to a later product, that product by rows, so that one sum over all
    /// devices is the only exchange for the two. Attention is split by heads, and large embedding
    /// tables by rows. The scheme is that of Shoeybi et al., "Megatron-LM: Training Multi-Billion
    /// Parameter Language Models Using Model Parallelism", 2019.
    Tensor,
    /// Pipeline parallelism: the nodes are divided into one stage for each device. Stages have
    /// about equal work, measured in multiply-adds and in elements read and written.
    Pipeline,
    /// Data parallelism: the examples of a batch are split along the first axis of the first input
    /// that has axes, and of all other inputs whose first axis has that size. All devices hold all
    /// weights. In training, the gradients of each device are partial sums.
    Batch,
}

/// Statistics of a division of a model among devices.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ShardReport {
    /// Number of products whose matrices are split by columns.
    pub columns: usize,
    /// Number of products whose matrices are split by rows.
    pub rows: usize,
    /// Number of products with constant matrices that are not split, because their whole results
    /// would be needed.
    pub whole: usize,
    /// Number of tables that are split by rows.
    pub tables: usize,
    /// Multiply-adds of each stage of a pipeline, in the order of the devices; empty for other
    /// divisions.
    pub stages: Vec<u64>,
    /// Number of inputs whose first axis is split.
    pub inputs: usize,
    /// Number of nodes that compute a part of the batch, if the batch is split.
    pub in_parts: usize,
    /// Number of nodes with multiply-adds in subgraphs, such as branches of an `If`, which are not
    /// divided.
    pub inside: usize,
}

/// Returns the model with a configuration of this name and number of devices, and with annotations
/// for it. Inlines calls of functions first. Each open size is assumed to be 64, or another size if
/// the model does not accept 64.
///
/// # Errors
///
/// A configuration of this name that the model already has; findings because of which the model
/// cannot run.
pub fn suggest(
    model: &Model,
    registry: &Registry,
    (name, devices): (&str, usize),
    division: Division,
    options: ShardOptions<'_>,
) -> Result<(Model, ShardReport), ShardError> {
    if configurations(model).iter().any(|known| known.name == name.as_bytes()) {
        let why = format!("the model has a configuration '{name}' already");
        return Err(ShardError::Configuration(why));
    }
    let (mut annotated, origins) = inlined(model, registry)?;
    add_configuration(&mut annotated, name, devices);
    let prepared = prepare_with_sizes(&annotated, registry, name, options)?;
    // Version 11 of the format added configurations.
    raise_ir_version(&mut annotated, 11);
    let mut annotations = Annotations::new(annotated, name, devices);
    let inner = InnerWork::new(&prepared, registry);
    let mut report = match division {
        Division::Batch => {
            let inputs = annotations.split_batch()?;
            let again = prepare_with_sizes(&annotations.model, registry, name, options)?;
            let options = ShardOptions { configuration: Some(name), ..options };
            let in_parts = find_cheapest(again, options).facts().in_parts;
            ShardReport { inputs, in_parts, ..ShardReport::default() }
        }
        Division::Tensor => annotations.split_products(&prepared),
        Division::Pipeline => annotations.divide_into_stages(&prepared, &inner),
    };
    report.inside = inner.nodes;
    let input = JobInput { job: JobKind::Shard, model, registry };
    let accepted = input.accept(annotations.model, &origins).map_err(ShardError::Rejected)?;
    Ok((accepted.model, report))
}

/// Model that gets annotations for a configuration.
struct Annotations<'n> {
    model: Model,
    /// Nodes of the main graph. Nodes that conversion to newest versions adds are not in the model,
    /// and get no annotations.
    own: HashSet<NodeId>,
    /// Name of the configuration.
    name: &'n str,
    /// Number of devices.
    devices: usize,
}

impl<'n> Annotations<'n> {
    fn new(model: Model, name: &'n str, devices: usize) -> Annotations<'n> {
        let own = model.main_graph().into_iter().flat_map(|main| &main.nodes).copied().collect();
        Annotations { model, own, name, devices }
    }

    /// Annotates a node if it is in the model.
    fn annotate(&mut self, node: NodeId, specs: Vec<ShardingSpec<'_>>, stage: Option<i64>) {
        if self.own.contains(&node) {
            let configuration = self.name.as_bytes();
            let annotation = NodeAnnotation { configuration, specs, stage };
            annotate_devices(&mut self.model, node, &annotation);
        }
    }
}

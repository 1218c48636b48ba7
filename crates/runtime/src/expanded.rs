//! Expansion of a model to nodes that have kernels: functions, and operators without a kernel,
//! become their bodies.

use hashbrown::HashSet;
use sardonyx_model::{ExternalData, Model, NodeId};
use sardonyx_ops::OpRef;
use sardonyx_passes::{
    Expansions, InferOptions, Inference, Resolved, bind_gradients, expand_calls, expand_operators,
    fix_constants_of_bodies, infer, load_attributes, newer_types, resolve, upgrade,
};

use crate::custom::CustomOperators;
use crate::error::CompileError;
use crate::ops::binding_of;
use crate::weights::SharedWeights;

/// Sources of tensors besides the model.
#[derive(Clone, Copy)]
pub(crate) struct Outside<'a> {
    /// Data files.
    pub(crate) data: &'a dyn ExternalData,
    /// Copies of tensors from mapped files.
    pub(crate) weights: &'a SharedWeights,
}

/// Model without calls of functions, at its own versions.
pub(crate) struct Expanded {
    pub(crate) resolved: Resolved,
    pub(crate) inference: Inference,
    /// Number of nodes of the file that run, in all graphs.
    pub(crate) nodes: usize,
    /// Nodes that were replaced by the body of a function.
    pub(crate) expansions: Expansions,
}

/// Resolves a model and expands nodes without a kernel, as far as the standard has a function for
/// them. Then expands the sets `not_upgraded`, one after the other: nodes that have kernels and no
/// exact newest form. With `outside` it also loads attributes that lie in data files, and copies
/// small tensors out of mapped files.
///
/// # Errors
///
/// All reasons why the model cannot run, except unknown operators.
pub(crate) fn expand(
    model: &Model,
    outside: Option<Outside<'_>>,
    declared: InferOptions<'_>,
    operators: &CustomOperators,
    not_upgraded: &[HashSet<NodeId>],
) -> Result<Expanded, CompileError> {
    let mut model = model.clone_to_run();
    if let (Some(main), ..4) = (model.main, model.header.ir_version.unwrap_or(0)) {
        // Before IR version 4 every initializer had to be an input as well, so being one does not
        // mean that it may be overridden.
        model.fix_default_inputs(main);
    }
    bind_gradients(&mut model)?;
    let mut resolved = resolve(model, operators.registry())?;
    fix_constants_of_bodies(&mut resolved);
    if let Some(Outside { data, weights }) = outside {
        // Loads before calls are copied, so that each tensor is loaded once.
        load_attributes(&mut resolved, data).map_err(CompileError::Constant)?;
        // Copies before inference, which keeps the values that it knows.
        let copied = resolved.copy_small(&mut |bytes| weights.copy_of(bytes));
        copied.map_err(|error| CompileError::Resources(error.to_string()))?;
    }
    let nodes = count_nodes(&resolved);
    let mut expansions = Expansions::default();
    expand_calls(&mut resolved, &mut expansions)?;
    // Kernels implement the newest form of an operator; older forms are upgraded.
    let has_no_kernel = |op: OpRef| !has_kernel(op) && !operators.has(op.def.domain, op.def.name);
    let (none, mut not_upgraded) = (HashSet::new(), not_upgraded.iter());
    let mut also = &none;
    let mut is_file = true;
    let inference = loop {
        let inference = infer(&resolved, declared)?;
        if std::mem::take(&mut is_file) {
            // Bodies of operators, which come next, may compute in more types than their versions.
            let newer = newer_types(&resolved, &operators.registry(), &inference);
            if !newer.is_empty() {
                return Err(CompileError::Invalid(newer));
            }
        }
        // Bodies may have operators without a kernel as well.
        if expand_operators(&mut resolved, &inference, &has_no_kernel, also, &mut expansions)? {
            also = &none;
        } else if !upgrade_to_body(&mut resolved, &inference, &has_no_kernel) {
            also = match not_upgraded.next() {
                Some(next) => next,
                None => break inference,
            };
        }
    };
    Ok(Expanded { resolved, inference, nodes, expansions })
}

/// Upgrades nodes without a kernel to their newest form, which may have a body where the old form
/// has none. Returns whether any node changed.
fn upgrade_to_body(
    resolved: &mut Resolved,
    inference: &Inference,
    has_no_kernel: &dyn Fn(OpRef) -> bool,
) -> bool {
    let is_old = |op: OpRef| has_no_kernel(op) && op.schema.since < op.def.newest();
    let stays = |resolved: &Resolved, node: NodeId| !resolved.op(node).is_some_and(is_old);
    let count = |resolved: &Resolved| {
        let graphs = resolved.graphs().iter();
        let nodes = graphs.flat_map(|graph| resolved.order_of(*graph));
        nodes.filter(|node| !stays(resolved, **node)).count()
    };
    let before = count(resolved);
    if before > 0 {
        // A refused node stays without a kernel, which is reported.
        let _ = upgrade(resolved, inference, &stays);
    }
    count(resolved) < before
}

/// Whether an operator has a kernel of its own.
pub fn has_kernel(op: OpRef) -> bool {
    binding_of(op.def).is_some()
}

/// Counts the nodes in all graphs.
pub(crate) fn count_nodes(resolved: &Resolved) -> usize {
    resolved.graphs().iter().map(|graph| resolved.order_of(*graph).len()).sum()
}

//! Conversion of a resolved model to the form that can run: constants of old inner graphs become
//! plain constants, tensors in data files are loaded, and the required parts of mapped files are
//! copied.

use sardonyx_model::{ConstantError, ExternalData, GraphId, Model, NodeId, Symbol, TensorId};
use sardonyx_ops::MAX_KNOWN;
use sardonyx_ops::operators::{IF, LOOP, SCAN};
use sardonyx_tensor::{Buffer, TensorError};

use crate::finding::place_of_node;
use crate::ir_version::PLAIN_INITIALIZERS;
use crate::order::{inner_graphs, tree};
use crate::resolve::Resolved;

/// Converts the constants that inner graphs list among their inputs, as before IR version 4, to
/// plain constants. They follow the inputs for which the node passes a value. Graphs with other
/// inputs there stay unchanged, and inference refuses them.
pub fn fix_constants_of_bodies(resolved: &mut Resolved) {
    let model = resolved.model();
    if model.header.ir_version.unwrap_or(0) >= PLAIN_INITIALIZERS {
        return;
    }
    let has_both = |graph: &GraphId| {
        let graph = model.graph(*graph);
        !graph.inputs.is_empty() && !graph.initializers.is_empty()
    };
    let nodes = model.graphs().flat_map(|(_, graph)| graph.nodes.iter().copied());
    let inner = nodes.flat_map(|node| inner_graphs(model, node).map(move |graph| (graph, node)));
    let passed: Vec<(GraphId, usize)> = inner
        .filter(|(graph, _)| has_both(graph))
        .map(|(graph, node)| (graph, values_passed(resolved, node)))
        .collect();
    for (graph, passed) in passed {
        resolved.model_mut().fix_constant_inputs(graph, passed);
    }
}

/// Returns the number of values that a node passes to each of its graphs.
fn values_passed(resolved: &Resolved, node: NodeId) -> usize {
    let inputs = resolved.model().inputs(node).len();
    if resolved.is(node, &IF) {
        return 0;
    }
    if resolved.is(node, &LOOP) {
        // The iteration number and the condition are passed even if the node omits both.
        return inputs.max(2);
    }
    // The lengths of sequences are for the node itself.
    let has_lengths =
        resolved.is(node, &SCAN) && resolved.schema(node).is_some_and(|schema| schema.since < 9);
    inputs.saturating_sub(usize::from(has_lengths))
}

impl Resolved {
    /// Copies names, strings and the small tensors that inference may read out of mapped files, so
    /// that no kept part refers there. Larger tensors stay until
    /// [`drop_mapped`](Resolved::drop_mapped).
    ///
    /// # Errors
    ///
    /// An error of `copy`, which makes the copies of tensors.
    pub fn copy_small(
        &mut self,
        copy: &mut dyn FnMut(&Buffer) -> Result<Buffer, TensorError>,
    ) -> Result<(), TensorError> {
        self.model_mut().copy_small(MAX_KNOWN, copy)
    }

    /// Drops mapped files. The values of tensors that are still in them are lost.
    pub fn drop_mapped(&mut self) {
        self.model_mut().drop_mapped();
    }
}

/// Loads the tensors in attributes whose values lie outside the message, of all nodes that may run
/// and whose outputs are read: those of the main graph, of graphs in it, and of functions that they
/// call.
///
/// # Errors
///
/// Returns the first tensor that cannot be loaded, with the place of its node.
pub fn load_attributes(
    resolved: &mut Resolved,
    external: &dyn ExternalData,
) -> Result<(), ConstantError> {
    let model = resolved.model();
    if !model.has_external_attributes() {
        return Ok(());
    }
    let mut wanted: Vec<(TensorId, String)> = Vec::new();
    let mut is_called = vec![false; model.functions.len()];
    let mut open: Vec<GraphId> = resolved.graphs().to_vec();
    while let Some(graph) = open.pop() {
        for node in model.graph(graph).nodes.iter().copied() {
            if let Some(function) = resolved.function_of(node)
                && !std::mem::replace(&mut is_called[function], true)
            {
                let called = &model.functions[function];
                let graphs = called.attribute_protos.iter().flat_map(|default| default.graphs());
                let roots = std::iter::once(called.body).chain(graphs);
                open.extend(roots.flat_map(|root| tree(model, root)));
                let name = sardonyx_proto::shown(model.maybe_text(called.name).unwrap_or_default());
                let defaults = model.external_defaults_of(function).into_iter();
                wanted.extend(defaults.map(|(id, attribute)| {
                    (
                        id,
                        format!(
                            "{} of the function '{name}'",
                            describe_attribute(model, attribute)
                        ),
                    )
                }));
            }
            if !model.outputs(node).iter().flatten().any(|value| model.is_read(*value)) {
                continue;
            }
            let tensors = model.external_tensors_of(node).into_iter();
            wanted.extend(tensors.map(|(id, attribute)| {
                (
                    id,
                    format!(
                        "{} of {}",
                        describe_attribute(model, attribute),
                        place_of_node(model, node)
                    ),
                )
            }));
        }
    }
    for (tensor, place) in wanted {
        resolved.model_mut().load_stored(tensor, external).map_err(|error| ConstantError {
            what: format!("in the {place}: {}", error.what),
            ..error
        })?;
    }
    Ok(())
}

/// Describes an attribute for a message.
fn describe_attribute(model: &Model, attribute: Option<Symbol>) -> String {
    let name = sardonyx_proto::shown(model.maybe_text(attribute).unwrap_or_default());
    format!("attribute '{name}'")
}

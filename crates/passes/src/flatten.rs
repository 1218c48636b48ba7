//! Models without calls and without annotations of devices: what models that are divided among
//! devices have in common with the model before.

use sardonyx_model::{Model, NodeId};
use sardonyx_ops::Registry;

use crate::{
    DeriveError, InlineOptions, Inlining, NEWEST_IR_VERSION, Origins, annotations,
    expand_gradients, gradients_in, inline_in_any_order, set_ir_version,
};

/// Returns the model with calls of functions inlined and `Gradient` nodes expanded, as far as
/// possible, and the nodes of `model` for which its nodes were made.
///
/// # Errors
///
/// `Gradient` nodes that cannot be derived.
pub fn flatten(model: &Model, registry: &Registry) -> Result<(Model, Origins), DeriveError> {
    // Calls that cannot be inlined are computed whole.
    let inlined = inline_in_any_order(model, registry, &InlineOptions::default());
    let (inlined, origins) = match inlined {
        Ok(Inlining { model, origins, .. }) => (model, origins),
        Err(_) => (model.clone(), Origins::default()),
    };
    // `Gradient` nodes refer to names of the graph around them, which a part of that graph does not
    // have.
    let has_gradients = inlined.main.is_some_and(|main| gradients_in(&inlined, main) > 0);
    if !has_gradients {
        return Ok((inlined, origins));
    }
    let (expanded, _) = expand_gradients(&inlined, registry)?;
    Ok((expanded, origins))
}

/// Removes configurations of devices and annotations of nodes, inlines calls of functions, and sets
/// the newest version of the format, as a division among devices does first. Models that differ in
/// these alone become equal.
pub fn without_devices(model: &Model, registry: &Registry) -> Model {
    // A model that cannot be inlined has not been divided.
    let flat = flatten(model, registry);
    let mut plain = flat.map_or_else(|_| model.clone(), |(flat, _)| flat);
    set_ir_version(&mut plain, NEWEST_IR_VERSION);
    plain.header.configuration.clear();
    let nodes = plain.graphs().flat_map(|(_, graph)| &graph.nodes).copied();
    let annotated: Vec<NodeId> =
        nodes.filter(|node| annotations(&plain, *node).next().is_some()).collect();
    annotated.into_iter().for_each(|node| plain.set_devices(node, Vec::new()));
    plain
}

//! Constants in a conversion: nodes that become constants, constants without readers, and new ones.

use hashbrown::{HashMap, HashSet};
use sardonyx_model::{
    AttrValue, GraphId, Initializer, Model, NoExternalData, NodeId, Producer, Symbol, ValueId,
};
use sardonyx_ops::Assumption;
use sardonyx_tensor::Tensor;

use super::{Job, Scope, refusal};
use crate::cross::Crossings;

/// First version of `ai.onnx` in which a `Constant` may have any type.
const CONSTANTS_OF_ALL_TYPES: u32 = 9;

impl Job<'_> {
    /// Removes constants without readers, whose values became attributes.
    pub(super) fn remove_constants(&mut self) {
        let mut operands = std::mem::take(&mut self.operands);
        let kept = names_of_annotations(&self.model);
        let defaults = self.defaults();
        let mut of_graphs: HashMap<GraphId, HashSet<ValueId>> = HashMap::new();
        while let Some(value) = operands.pop() {
            if self.model.is_read(value) {
                continue;
            }
            let found = self.model.value(value);
            if kept.contains(&found.name) {
                continue;
            }
            match found.producer {
                // A `Constant` node, or a node that was made for one.
                Producer::Node(node, _) if is_constant(self.original, self.made.origin(node)) => {
                    operands.extend(self.model.inputs(node).flatten());
                    self.made.remove(&mut self.model, node);
                }
                Producer::Initializer(_) => {
                    of_graphs.entry(found.graph).or_default().insert(value);
                }
                // An input that keeps its default is also a constant.
                Producer::Input(_) if defaults.contains(&value) => {
                    of_graphs.entry(found.graph).or_default().insert(value);
                }
                _ => {}
            }
        }
        for (graph, values) in of_graphs {
            let is_kept =
                |value: Option<ValueId>| value.is_none_or(|value| !values.contains(&value));
            self.model.retain_initializers(graph, |_, initializer| is_kept(initializer.value));
            if self.model.main == Some(graph) {
                self.model.retain_inputs(graph, |input| is_kept(input.value));
            }
        }
    }

    /// Removes constants without readers that the conversion added to a graph.
    pub(super) fn remove_dead_constants(&mut self, graph: GraphId) {
        let old = &self.original.graph(graph).initializers;
        if self.model.graph(graph).initializers.len() == old.len() {
            return;
        }
        let old: HashSet<ValueId> = old.iter().filter_map(|found| found.value).collect();
        let initializers = self.model.graph(graph).initializers.iter();
        let values = initializers.filter_map(|found| found.value);
        let is_dead = |value: &ValueId| !old.contains(value) && !self.model.is_read(*value);
        let dead: HashSet<ValueId> = values.filter(is_dead).collect();
        if !dead.is_empty() {
            let is_kept = |value: Option<ValueId>| value.is_none_or(|value| !dead.contains(&value));
            self.model.retain_initializers(graph, |_, initializer| is_kept(initializer.value));
        }
    }

    /// Returns the inputs of the main graph with a default, if the caller grants that they keep it.
    fn defaults(&self) -> HashSet<ValueId> {
        let is_granted = self.granted.contains(&Assumption::DefaultInputs);
        let main = self.original.main.filter(|_| is_granted);
        let main = main.map(|main| &self.original.graph(main).initializers);
        main.into_iter().flatten().filter_map(|initializer| initializer.value).collect()
    }

    /// Replaces the constants that were added to a graph by `Constant` nodes, and returns these.
    pub(super) fn constants_become_nodes(&mut self, root: GraphId) -> Vec<NodeId> {
        let Job { original, model, kept, .. } = self;
        let old = &original.graph(root).initializers;
        let old: HashSet<ValueId> = old.iter().filter_map(|found| found.value).collect();
        let is_made = |found: &Initializer| {
            found.value.is_some_and(|found| !old.contains(&found) && !kept.contains(&found))
        };
        let initializers = std::mem::take(&mut model.graph_mut(root).initializers);
        let (made, kept): (Vec<_>, Vec<_>) = initializers.into_iter().partition(is_made);
        model.graph_mut(root).initializers = kept;
        let mut nodes = Vec::with_capacity(made.len());
        for initializer in made {
            let tensor = model.tensor(&initializer.tensor, &NoExternalData).ok();
            if let (Some(value), Some(tensor)) = (initializer.value, tensor) {
                let node = model.add_node(root, "Constant", "", &[], 1);
                model.set_attribute(node, "value", AttrValue::Tensor(tensor));
                model.redefine_output(node, 0, value);
                nodes.push(node);
            }
        }
        // Constants come first.
        model.graph_mut(root).nodes.rotate_right(nodes.len());
        nodes
    }

    /// Converts new `Constant` nodes to versions that do not allow all types.
    pub(super) fn bring_constants(
        &mut self,
        crossings: &mut Crossings<'_>,
        scope: &Scope,
        nodes: &[NodeId],
    ) {
        let is_old = scope.to.get("").is_some_and(|to| *to < CONSTANTS_OF_ALL_TYPES);
        let constant = self.registry.op_ref("", "Constant", CONSTANTS_OF_ALL_TYPES);
        let Some(constant) = constant.filter(|_| is_old) else { return };
        crossings.import(scope.to.clone());
        for node in nodes {
            let Job { model, made, registry, .. } = &mut *self;
            let crossed = crossings.cross(model, made, registry, *node, constant);
            for stop in crossed.stops {
                let fact = refusal(constant, scope.to[""], &stop);
                self.refused.push((self.made.origin(stop.node), fact));
            }
        }
    }
}

/// Turns a node with a known value into a `Constant`.
pub(super) fn become_constant(model: &mut Model, node: NodeId, value: Tensor) {
    let name = model.intern("Constant");
    model.node_mut(node).op_type = Some(name);
    model.clear_attributes(node);
    model.set_attribute(node, "value", AttrValue::Tensor(value));
    model.set_inputs(node, &[]);
}

/// Returns the names of values that the model refers to outside of its graphs: in the bindings of
/// training steps and in the annotations of quantized tensors.
fn names_of_annotations(model: &Model) -> HashSet<Symbol> {
    let steps = model.training_info.iter();
    let bindings =
        steps.flat_map(|step| step.initialization_binding.iter().chain(&step.update_binding));
    let mut names: HashSet<Symbol> = HashSet::new();
    names.extend(bindings.flat_map(|entry| [entry.key, entry.value]).flatten());
    for (_, graph) in model.graphs() {
        for annotation in &graph.quantization_annotation {
            names.extend(annotation.tensor_name);
            let parameters = annotation.quant_parameter_tensor_names.iter();
            names.extend(parameters.filter_map(|entry| entry.value));
        }
    }
    names
}

/// Whether a node is a `Constant` of the standard, which has no inputs.
fn is_constant(model: &Model, node: NodeId) -> bool {
    model.domain_of(node).is_empty() && model.display(model.node(node).op_type) == "Constant"
}

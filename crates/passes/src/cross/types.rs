//! Types and known values during a conversion: the results of inference on the file, and the types
//! of new values.

use hashbrown::{HashMap, HashSet};
use sardonyx_model::{
    GraphId, Model, NoExternalData, NodeAttributes, NodeId, Producer, TensorType, Type, ValueId,
};
use sardonyx_ops::{Infer, Known, Registry, ValueTypes};
use sardonyx_tensor::{DataType, Tensor};

use super::{find_operator, reference};
use crate::infer::Inference;

/// Types of values.
pub(crate) struct Types<'a> {
    found: &'a Inference,
    made: HashMap<ValueId, Type>,
    known: HashMap<ValueId, Known>,
    /// Default values of inputs of the main graph.
    defaults: HashMap<ValueId, Tensor>,
    /// Graphs of functions without calls: the types of their values are unknown, and no result
    /// depends on them.
    open: HashSet<GraphId>,
}

impl ValueTypes for Types<'_> {
    fn ty(&self, value: ValueId) -> Option<&Type> {
        self.found.ty(value).or_else(|| self.made.get(&value))
    }

    fn known(&self, value: ValueId) -> Option<&Known> {
        self.found.known(value).or_else(|| self.known.get(&value))
    }

    fn default(&self, value: ValueId) -> Option<&Tensor> {
        self.defaults.get(&value)
    }
}

impl<'a> Types<'a> {
    pub(crate) fn new(found: &'a Inference) -> Types<'a> {
        Types {
            found,
            made: HashMap::new(),
            known: HashMap::new(),
            defaults: HashMap::new(),
            open: HashSet::new(),
        }
    }

    /// Reads the default values of inputs of the main graph.
    pub(crate) fn learn_defaults(&mut self, model: &Model) {
        let main = model.main.map(|main| model.graph(main));
        for initializer in main.iter().flat_map(|main| &main.initializers) {
            let Some(value) = initializer.value else { continue };
            if !matches!(model.value(value).producer, Producer::Input(_)) {
                continue;
            }
            if let Ok(tensor) = model.tensor(&initializer.tensor, &NoExternalData) {
                self.defaults.insert(value, tensor);
            }
        }
    }

    /// Reads the declared types of subgraph inputs without an inferred type: their nodes do not
    /// pass them.
    pub(crate) fn learn_declared(&mut self, model: &Model) {
        for (_, graph) in model.graphs().filter(|(_, graph)| graph.owner.is_some()) {
            for input in &graph.inputs {
                let Some(value) = input.value.filter(|value| self.ty(*value).is_none()) else {
                    continue;
                };
                let declared = input.ty.as_ref().and_then(|ty| model.type_of(ty));
                self.made.extend(declared.map(|declared| (value, declared)));
            }
        }
    }

    /// Records the graphs of a function without calls.
    pub(crate) fn open(&mut self, function: usize, graphs: &[GraphId]) {
        if !self.found.is_called(function) {
            self.open.extend(graphs);
        }
    }

    /// Whether a node is in a function without calls.
    pub(super) fn are_open(&self, model: &Model, node: NodeId) -> bool {
        self.open.contains(&model.node(node).graph)
    }

    /// Infers the types of outputs of `node`, which an adapter changed, and of the nodes that it
    /// made. `form` returns the opset version of the form of each node.
    pub(super) fn follow(
        &mut self,
        model: &Model,
        registry: &Registry,
        made: &[NodeId],
        node: NodeId,
        form: impl Fn(NodeId) -> u32,
    ) {
        // Nodes that follow the node are at the end of the list, in reverse order.
        let reads = |made: &&NodeId| {
            let mut outputs = model.outputs(node).iter().flatten();
            outputs.any(|output| model.inputs(**made).flatten().any(|input| input == *output))
        };
        let (after, before): (Vec<&NodeId>, Vec<&NodeId>) = made.iter().partition(reads);
        let after = after.into_iter().rev();
        for node in before.into_iter().chain([&node]).chain(after) {
            for value in model.inputs(*node).flatten() {
                self.learn_constant(model, value);
            }
            self.infer(model, registry, *node, form(*node));
        }
    }

    fn infer(&mut self, model: &Model, registry: &Registry, node: NodeId, opset: u32) {
        let outputs = model.outputs(node);
        let is_open = |value: &Option<ValueId>| value.is_some_and(|value| self.ty(value).is_none());
        if !outputs.iter().any(is_open) || reference(model, node).is_some() {
            return;
        }
        let inputs: Vec<Option<ValueId>> = model.inputs(node).collect();
        let Some(op) = find_operator(model, registry, node, opset) else { return };
        let Some(rule) = op.def.inference_at(opset) else { return };
        let types: Vec<Option<&Type>> = inputs.iter().map(|value| self.ty((*value)?)).collect();
        let known: Vec<Option<&Known>> = inputs.iter().map(|value| self.known((*value)?)).collect();
        let attributes = NodeAttributes::new(model, node);
        let mut cx = Infer::new(op.schema, &attributes, &types, &known, outputs.len());
        if rule(&mut cx).is_err() {
            return;
        }
        let outcome = cx.finish();
        for (value, ty) in outputs.iter().zip(outcome.types) {
            if let (Some(value), Some(ty)) = (value, ty)
                && self.ty(*value).is_none()
            {
                self.made.insert(*value, ty);
            }
        }
    }

    /// Records the type and the value of a new constant.
    fn learn_constant(&mut self, model: &Model, value: ValueId) {
        if self.ty(value).is_some() {
            return;
        }
        let Some(initializer) = model.initializer(value) else { return };
        let Ok(tensor) = model.tensor(&initializer.tensor, &NoExternalData) else { return };
        let elem: Option<DataType> = Some(tensor.data_type());
        let shape = tensor.dims().iter().map(|dim| (*dim).into()).collect();
        self.made.insert(value, Type::Tensor(TensorType { elem, shape: Some(shape) }));
        self.known.insert(value, Known::Tensor(tensor));
    }
}

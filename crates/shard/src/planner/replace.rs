//! Nodes that are not placed in their turn: known ones become constants, and those of constants are
//! placed where they are read.

use sardonyx_model::{AttrValue, NodeId, ValueId};
use sardonyx_ops::Known;
use sardonyx_ops::operators::{CAST_LIKE, CONSTANT};
use sardonyx_tensor::DataType;

use super::Planner;

impl Planner<'_> {
    /// Replaces a `CastLike` by a `Cast`: only the type of its second input counts, so its elements
    /// are not sent.
    pub(super) fn forget_like(&mut self, node: NodeId) {
        if !self.prepared.resolved.is(node, &CAST_LIKE) {
            return;
        }
        let inputs: Vec<Option<ValueId>> = self.typed.model.inputs(node).collect();
        let like = inputs.get(1).copied().flatten();
        let elem = like.and_then(|like| self.typed.ty(like)?.elem());
        let model = &mut self.typed.model;
        if let (Some(x), Some(elem)) = (inputs.first(), elem) {
            model.set_inputs(node, &[*x]);
            model.set_attribute(node, "to", AttrValue::Int(i64::from(elem.number())));
            let op_type = Some(model.intern("Cast"));
            model.node_mut(node).op_type = op_type;
        }
    }

    /// Replaces a node by constants if inference knows its outputs, mostly shapes. Returns whether
    /// it does.
    pub(super) fn replace_known(&mut self, node: NodeId) -> bool {
        let typed = &mut self.typed;
        let outputs: Vec<ValueId> = typed.model.outputs(node).iter().flatten().copied().collect();
        let known = outputs.iter().map(|output| {
            let is_free = !typed.model.value(*output).is_output;
            let has_ints = |elem: DataType| elem.is_integer() || elem == DataType::Bool;
            let known = typed.known(*output);
            known.filter(|known| is_free && has_ints(known.elem())).and_then(Known::to_tensor)
        });
        let Some(tensors) = known.collect::<Option<Vec<_>>>() else { return false };
        if outputs.is_empty() || self.prepared.resolved.is(node, &CONSTANT) {
            return false;
        }
        let graph = typed.model.node(node).graph;
        for (output, tensor) in outputs.into_iter().zip(tensors) {
            let constant = typed.add_constant(graph, "known", &tensor);
            typed.model.replace_uses(output, constant, None);
        }
        true
    }

    /// Leaves a node to its reader: a transposed weight, for example, is best made in the form in
    /// which it is read. Returns whether the node can be left.
    pub(super) fn defer(&mut self, node: NodeId) -> bool {
        let model = &self.typed.model;
        let [Some(output)] = *model.outputs(node) else { return false };
        let is_constant = |value: ValueId| {
            self.typed.is_constant(value) || self.locations.is_from_constants(value)
        };
        let mut inputs = model.inputs(node).flatten().peekable();
        let graph = model.node(node).graph;
        let is_read_once = model.uses(output).count() == 1
            && model.uses(output).all(|(reader, _)| model.node(reader).graph == graph);
        let can_wait = inputs.peek().is_some()
            && inputs.all(is_constant)
            && is_read_once
            && !model.value(output).is_output
            && !self.requests.is_annotated(node)
            && self.rule(node).is_some();
        if can_wait {
            self.locations.defer(output, node);
        }
        can_wait
    }
}

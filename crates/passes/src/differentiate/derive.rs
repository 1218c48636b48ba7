//! Nodes that replace a `Gradient` node.

use hashbrown::HashMap;
use sardonyx_model::{AttrValue, GraphId, NodeBuilder, NodeId, Type, ValueId};
use sardonyx_ops::{
    Around, Backward, Given, PerItem, Refusal, append_in_body, make_per_item, scalar,
};
use sardonyx_tensor::DataType;

use super::activity::{Flow, makes_active};
use super::flow::FlowBack;
use super::region::{Region, Target};
use crate::cross::Types;
use crate::infer::Inference;
use crate::resolve::Resolved;

impl Region {
    /// Replaces the `Gradient` node by nodes that compute the gradients.
    pub(super) fn derive(
        &self,
        resolved: &mut Resolved,
        inference: &Inference,
    ) -> Result<(), Refusal> {
        self.refuse_narrow(resolved, inference)?;
        let mut way = Way::new(resolved, inference, self.gradient);
        let mut arrived: HashMap<ValueId, Vec<ValueId>> = HashMap::new();
        for Target { y, seed } in &self.ys {
            let seed = match seed {
                Some(seed) => *seed,
                None => way.ones(*y)?,
            };
            arrived.entry(*y).or_default().push(seed);
        }
        for node in self.nodes.iter().rev().copied() {
            let model = way.resolved.model();
            if !makes_active(model, node, &self.active) {
                continue;
            }
            let outputs = model.outputs(node).to_vec();
            let arriving = outputs.iter().map(|value| way.total(&mut arrived, (*value)?));
            let arriving: Vec<Option<ValueId>> = arriving.collect();
            if arriving.iter().all(Option::is_none) {
                continue;
            }
            let gradients = match Flow::of(way.resolved, node) {
                Some(flow) => {
                    let before = way.made.len();
                    let back = FlowBack::new(&mut way, &self.active, &flow, &arriving).derive()?;
                    way.resolved.note_derived(node, &way.made[before..]);
                    back
                }
                None => self.apply_rule(&mut way, node, &arriving, &mut arrived)?,
            };
            for (value, gradient) in gradients {
                arrived.entry(value).or_default().push(gradient);
            }
        }
        let totals: Vec<Option<ValueId>> =
            self.named[..self.xs].iter().map(|x| way.total(&mut arrived, *x)).collect();
        self.hand_over(&mut way, &totals);
        way.finish();
        Ok(())
    }

    /// Applies the gradient rule of a node. Returns its active inputs with gradients, to be added
    /// to the gradients that `arrived`.
    fn apply_rule(
        &self,
        way: &mut Way<'_>,
        node: NodeId,
        arriving: &[Option<ValueId>],
        arrived: &mut HashMap<ValueId, Vec<ValueId>>,
    ) -> Result<Vec<(ValueId, ValueId)>, Refusal> {
        let Some(op) = way.resolved.op(node) else { return Ok(Vec::new()) };
        let Some(rule) = op.def.gradient_rule() else { return Ok(Vec::new()) };
        let inputs: Vec<Option<ValueId>> = way.resolved.model().inputs(node).collect();
        let is_active =
            |value: &Option<ValueId>| value.is_some_and(|value| self.active.contains(&value));
        let wanted: Vec<bool> = inputs.iter().map(is_active).collect();
        let gathered = inputs.iter().zip(&wanted).map(|(value, wanted)| {
            let sequence = value.filter(|value| *wanted && way.is_sequence(*value))?;
            way.total(arrived, sequence)
        });
        let gathered: Vec<Option<ValueId>> = gathered.collect();
        let types = Types::new(way.inference);
        let build = way.resolved.build(way.gradient);
        let around = Around { arriving, wanted: &wanted, gathered: &gathered };
        let cx = Backward::new(build, &types, node, op.schema, around);
        rule(&cx)?;
        let derived = cx.finish();
        way.resolved.note_derived(node, &derived.made);
        way.made.extend(derived.made);
        let gradients = inputs.into_iter().zip(derived.gradients).zip(wanted);
        let gradients = gradients.filter(|(_, wanted)| *wanted);
        let gradients = gradients.filter_map(|((value, gradient), _)| {
            let (value, gradient) = value.zip(gradient)?;
            Some(match gradient {
                Given::Part(gradient) => (value, gradient),
                Given::Total(gradient) => {
                    arrived.remove(&value);
                    (value, gradient)
                }
            })
        });
        Ok(gradients.collect())
    }

    /// Removes the `Gradient` node, and gives its outputs the values `totals`.
    fn hand_over(&self, way: &mut Way<'_>, totals: &[Option<ValueId>]) {
        let outputs = way.resolved.model().outputs(self.gradient).to_vec();
        for (index, output) in outputs.iter().enumerate() {
            let (Some(output), Some(x)) = (*output, self.named.get(index)) else { continue };
            let total = totals.get(index).copied().flatten();
            let total = total.unwrap_or_else(|| {
                let elem = way.inference.ty(*x).and_then(Type::elem_of_items);
                way.zeros(elem.unwrap_or(DataType::Float), *x)
            });
            let node = way.add_before("Identity", &[Some(total)], &[]).0;
            let model = way.resolved.model_mut();
            model.drop_output(self.gradient, index);
            model.redefine_output(node, 0, output);
        }
        let (model, nodes, _) = way.resolved.parts_mut();
        nodes.remove(model, self.gradient);
    }
}

/// Backward pass for one `Gradient` node. New nodes precede that node.
pub(super) struct Way<'a> {
    pub(super) resolved: &'a mut Resolved,
    pub(super) inference: &'a Inference,
    pub(super) gradient: NodeId,
    /// New nodes, in the newest forms.
    made: Vec<NodeId>,
}

impl<'a> Way<'a> {
    fn new(resolved: &'a mut Resolved, inference: &'a Inference, gradient: NodeId) -> Way<'a> {
        Way { resolved, inference, gradient, made: Vec::new() }
    }

    /// Adds a node with one output before the `Gradient` node.
    pub(super) fn add_before(
        &mut self,
        op: &str,
        inputs: &[Option<ValueId>],
        attributes: &[(&str, AttrValue<'_>)],
    ) -> (NodeId, ValueId) {
        let made = self.resolved.build(self.gradient).before(op, "", inputs, attributes);
        self.made.push(made.0);
        made
    }

    /// Adds a node with one output before `node`.
    pub(super) fn add_beside(
        &mut self,
        node: NodeId,
        op: &str,
        inputs: &[ValueId],
        attributes: &[(&str, AttrValue<'_>)],
    ) -> ValueId {
        let inputs: Vec<Option<ValueId>> = inputs.iter().copied().map(Some).collect();
        let (node, value) = self.resolved.build(node).before(op, "", &inputs, attributes);
        self.made.push(node);
        value
    }

    /// Adds a `Loop` at the end of a subgraph that appends tensors to a sequence: `inputs` are the
    /// number of tensors, a true condition, and the sequence. `item` adds the nodes for one tensor.
    pub(super) fn append(
        &mut self,
        graph: GraphId,
        inputs: [ValueId; 3],
        item: impl FnOnce(&mut NodeBuilder<'_>, GraphId, ValueId) -> ValueId,
    ) -> (NodeId, ValueId) {
        let (node, grown) = self.add_inside(graph, "Loop", &inputs);
        let mut build = self.resolved.build(self.gradient);
        let made = append_in_body(&mut build, node, item);
        self.made.extend(made);
        (node, grown)
    }

    /// Adds a node of the default domain at the end of a subgraph.
    pub(super) fn add_inside(
        &mut self,
        graph: GraphId,
        op: &str,
        inputs: &[ValueId],
    ) -> (NodeId, ValueId) {
        let inputs: Vec<Option<ValueId>> = inputs.iter().copied().map(Some).collect();
        let node = self.resolved.build(self.gradient).inside(graph, op, "", &inputs, 1);
        self.made.push(node);
        let output = self.resolved.model().outputs(node).first().copied().flatten();
        (node, output.expect("the node has one output"))
    }

    /// Adds a scalar constant to the graph of the `Gradient` node.
    pub(super) fn number(&mut self, hint: &str, elem: DataType, value: f64) -> ValueId {
        self.resolved.build(self.gradient).constant(hint, &scalar(elem, value))
    }

    /// Whether a value is a sequence of tensors.
    pub(super) fn is_sequence(&self, value: ValueId) -> bool {
        matches!(self.inference.ty(value), Some(Type::Sequence(_)))
    }

    /// Adds nodes that make a sequence with a tensor for each item of `sequences`, which have equal
    /// lengths.
    pub(super) fn per_item(&mut self, sequences: &[ValueId], what: PerItem) -> ValueId {
        let mut build = self.resolved.build(self.gradient);
        let made = make_per_item(&mut build, sequences, what);
        self.made.extend(made.nodes);
        made.sequence
    }

    /// Adds zeros in the shape of a tensor, or of the items of a sequence.
    pub(super) fn zeros(&mut self, elem: DataType, like: ValueId) -> ValueId {
        if self.is_sequence(like) {
            return self.per_item(&[like], PerItem::Zeros(elem));
        }
        let zero = self.number("zero", elem, 0.0);
        let (_, sizes) = self.add_before("Shape", &[Some(like)], &[]);
        self.add_before("Expand", &[Some(zero), Some(sizes)], &[]).1
    }

    /// Adds the gradient of the sum of the elements of `y` with respect to `y`, which is ones.
    fn ones(&mut self, y: ValueId) -> Result<ValueId, Refusal> {
        let ty = self.inference.ty(y);
        let elem = ty.and_then(|ty| ty.elem()).filter(|elem| elem.is_float());
        let Some(elem) = elem else {
            let name = self.resolved.name_of(y);
            return Err(Refusal::from(format!(
                "'{name}' is not a floating-point tensor, so it has no gradient"
            )));
        };
        let is_scalar = ty.and_then(|ty| ty.shape()).is_some_and(|shape| shape.is_empty());
        let one = self.number("one", elem, 1.0);
        if is_scalar {
            return Ok(one);
        }
        let (_, sizes) = self.add_before("Shape", &[Some(y)], &[]);
        Ok(self.add_before("Expand", &[Some(one), Some(sizes)], &[]).1)
    }

    /// Returns the sum of the gradients that arrived for a value; `None` if none arrived.
    fn total(
        &mut self,
        arrived: &mut HashMap<ValueId, Vec<ValueId>>,
        value: ValueId,
    ) -> Option<ValueId> {
        let parts = arrived.get(&value)?;
        let total = match parts[..] {
            [] => return None,
            [only] => return Some(only),
            _ if self.is_sequence(value) => {
                let elem = self.inference.ty(value).and_then(Type::elem_of_items);
                let parts = parts.clone();
                self.per_item(&parts, PerItem::Sum(elem.unwrap_or(DataType::Float)))
            }
            _ => {
                let inputs: Vec<Option<ValueId>> = parts.iter().copied().map(Some).collect();
                self.add_before("Sum", &inputs, &[]).1
            }
        };
        arrived.insert(value, vec![total]);
        Some(total)
    }

    /// Records the form of the new nodes, and the origin of nodes that no rule made.
    fn finish(self) {
        self.resolved.note_derived_alike(self.gradient, &self.made);
        let newest = self.resolved.registry().versions("").map_or(1, |(_, newest)| newest);
        for node in self.made {
            self.resolved.set_opset(node, newest);
        }
    }
}

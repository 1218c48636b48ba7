//! Graphs of `If`, `Loop` and `Scan` in the model of a device.

use std::borrow::Cow;

use sardonyx_model::{AttrValue, AttributeValue, Model, NodeId, ValueId};
use sardonyx_tensor::Tensor;

use super::Building;
use crate::bodies::{Bodies, Operator};

impl Building<'_> {
    /// Replaces the nodes in the graphs of a node by those of the device, and the outputs of the
    /// graphs by those that the device has.
    pub(super) fn fill_bodies(&mut self, node: NodeId, bodies: &Bodies) {
        let around = self.graph;
        let have_exchanges = bodies.graphs.iter().any(|body| self.has_tokens(body.graph));
        for body in &bodies.graphs {
            self.graph = body.graph;
            let mut outputs: Vec<ValueId> =
                body.outputs.iter().map(|(value, form)| self.held(*value, *form)).collect();
            if have_exchanges {
                let token = self.join_tokens();
                outputs.push(token);
            }
            let is_same = outputs.iter().eq(body.outputs.iter().map(|(value, _)| value));
            if !is_same {
                self.model.retain_outputs(body.graph, |_, _| false);
                outputs.iter().for_each(|value| self.model.add_graph_output(body.graph, *value));
            }
            self.put_nodes();
        }
        self.graph = around;
        if have_exchanges {
            self.take_token(node, bodies);
        }
    }

    /// Joins the second outputs of the exchanges in the graph into one byte, which keeps the
    /// exchanges alive, so that the device takes part in all of them.
    fn join_tokens(&mut self) -> ValueId {
        let tokens = self.take_tokens();
        match *tokens {
            [] => self.byte(),
            [token] => token,
            _ => {
                let inputs: Vec<Option<ValueId>> = tokens.into_iter().map(Some).collect();
                self.add("Max", "", &inputs).1
            }
        }
    }

    /// Adds a constant vector of one byte.
    fn byte(&mut self) -> ValueId {
        let zero = Tensor::from_slice([1], &[0u8]).expect("a vector has its length");
        self.model.add_initializer(self.graph, "none", &zero)
    }

    /// Adds an output to a node for the last output of its graphs, the byte of their exchanges, and
    /// reduces it to one byte.
    fn take_token(&mut self, node: NodeId, bodies: &Bodies) {
        let count = bodies.graphs.iter().map(|body| body.outputs.len()).max().unwrap_or(0);
        // The first output of the body of a `Loop` is its condition.
        let index = count - usize::from(bodies.operator == Operator::Loop);
        self.model.fill_outputs(node, index + 1);
        let Some(output) = self.model.outputs(node).get(index).copied().flatten() else { return };
        if bodies.operator == Operator::If {
            return self.add_token(output);
        }
        append_to_lists(&mut self.model, node);
        // One byte for each iteration, of which there may be none.
        let all = self.constant(&[-1]);
        let (_, bytes) = self.add("Reshape", "", &[Some(output), Some(all)]);
        let none = self.byte();
        let (concat, some) = self.add("Concat", "", &[Some(bytes), Some(none)]);
        self.model.set_attribute(concat, "axis", AttrValue::Int(0));
        let (_, token) = self.add("ReduceMax", "", &[Some(some)]);
        self.add_token(token);
    }
}

/// Appends an item for one more output to the attributes of a `Scan` that have an item per output.
fn append_to_lists(model: &mut Model, node: NodeId) {
    for name in ["scan_output_axes", "scan_output_directions"] {
        let list = model.attribute_of(node, name).and_then(|attribute| attribute.value());
        let Some(AttributeValue::Ints(list)) = list else { continue };
        let list = list.iter().copied().chain([0]).collect::<Vec<i64>>();
        model.set_attribute(node, name, AttrValue::Ints(Cow::Owned(list)));
    }
}

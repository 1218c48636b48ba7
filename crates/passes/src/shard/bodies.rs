//! `If`, `Loop` and `Scan` whose graphs hold nodes that say how they are divided.
//!
//! Such a node runs on all devices of the configuration. They take the same branch and the same
//! number of iterations, as conditions are whole on all of them. Nodes in its graphs are placed as
//! those of the main graph are. Inputs of the graphs are whole on all devices, and so are their
//! outputs at the end.

use std::borrow::Cow;

use sardonyx_model::{AttrValue, AttributeValue, GraphId, Model, NodeId, ValueId};
use sardonyx_ops::OpDef;
use sardonyx_ops::operators::{IF, LOOP, SCAN};
use sardonyx_tensor::Tensor;

use super::assign::Assignment;
use super::local::Building;
use super::place::Wishes;
use super::{Computed, FormId, Planner};
use crate::order::{inner_graphs, tree};

/// An operator whose graphs can be divided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Operator {
    If,
    Loop,
    Scan,
}

/// The graphs of a node whose nodes are steps of the plan.
#[derive(Debug, Clone)]
pub(super) struct Bodies {
    operator: Operator,
    graphs: Vec<Body>,
}

#[derive(Debug, Clone)]
struct Body {
    graph: GraphId,
    /// Its outputs, in the form in which they have to be there in the end.
    outputs: Vec<(ValueId, FormId)>,
}

impl Bodies {
    /// What has to be there at the end of the graphs, in which form.
    pub(super) fn outputs(&self) -> impl Iterator<Item = (ValueId, FormId)> + '_ {
        self.graphs.iter().flat_map(|body| body.outputs.iter().copied())
    }
}

impl Planner<'_> {
    /// The operator of a node in whose graphs nodes say how they are divided, if that can be done.
    fn divided(&self, node: NodeId) -> Option<Operator> {
        const OPERATORS: [(&OpDef, Operator); 3] =
            [(&IF, Operator::If), (&LOOP, Operator::Loop), (&SCAN, Operator::Scan)];
        if self.prepared.whole_bodies || self.columns.is_some() {
            return None;
        }
        let op = self.resolved.op(node).filter(|op| op.schema.since == op.def.newest())?;
        let found = OPERATORS.iter().find(|(known, _)| std::ptr::eq(*known, op.def));
        found.filter(|_| !self.annotated_in(node).is_empty()).map(|(_, operator)| *operator)
    }

    /// The nodes in the graphs of a node that say something of the configuration.
    fn annotated_in(&self, node: NodeId) -> Vec<NodeId> {
        let model = self.resolved.model();
        let graphs = inner_graphs(model, node).flat_map(|graph| tree(model, graph));
        let nodes = graphs.flat_map(|graph| model.graph(graph).nodes.iter().copied());
        nodes.filter(|inner| self.is_annotated(*inner)).collect()
    }

    /// Says of the nodes in the graphs of a node that they run whole, whatever they say.
    fn note_bodies(&mut self, node: NodeId) {
        for inner in self.annotated_in(node) {
            let why = "is in a graph of a node, which runs whole on each of its devices";
            self.refuse(inner, None, why);
        }
    }

    /// Decides about a node and about the nodes in its graphs, if these are divided.
    pub(super) fn place_with_bodies(&mut self, node: NodeId, wishes: &Wishes) -> bool {
        let Some(operator) = self.divided(node) else {
            self.note_bodies(node);
            return false;
        };
        self.note_without_rule(node, wishes);
        if wishes.stage.is_some() {
            let why = "does not run on the devices of its stage alone: \
                       nodes in its graphs are divided among all devices";
            self.refuse(node, None, why);
        }
        let whole = self.everywhere;
        let inputs: Vec<Option<ValueId>> = self.plan.model.inputs(node).collect();
        inputs.iter().flatten().for_each(|value| self.need(*value, whole));
        let graphs: Vec<GraphId> = inner_graphs(&self.plan.model, node).collect();
        let graphs = graphs.into_iter().map(|graph| self.place_body(graph)).collect();
        let outputs = self.plan.model.outputs(node).iter().map(|value| value.map(|_| whole));
        let computed = Computed {
            node,
            inputs: inputs.iter().map(|value| value.map(|_| whole)).collect(),
            outputs: outputs.collect(),
            captured: Vec::new(),
            changes: Vec::new(),
            assignment: Assignment::whole(self.all()),
            bodies: Some(Bodies { operator, graphs }),
        };
        self.run(computed);
        self.leave(node, wishes);
        true
    }

    fn place_body(&mut self, graph: GraphId) -> Body {
        // Forms that values around get in the graph are not there after it.
        let around = (self.graph, self.forms_of.clone(), self.preferred.clone());
        self.place_nodes_of(graph);
        let outputs = self.plan.model.graph(graph).outputs.iter().filter_map(|info| info.value);
        let outputs: Vec<(ValueId, FormId)> =
            outputs.map(|value| (value, self.everywhere)).collect();
        outputs.iter().for_each(|(value, form)| self.need(*value, *form));
        (self.graph, self.forms_of, self.preferred) = around;
        Body { graph, outputs }
    }
}

impl Building<'_> {
    /// Puts the nodes of the device in the place of those in the graphs of a node, and lets the
    /// graphs give what the device has of their outputs.
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

    /// One value for the second outputs of the exchanges in the graph: a byte that has to be there
    /// in the end, so that the device takes part in all of them.
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

    /// A constant vector of one byte.
    fn byte(&mut self) -> ValueId {
        let zero = Tensor::from_slice([1], &[0u8]).expect("a vector has its length");
        self.model.add_initializer(self.graph, "none", &zero)
    }

    /// Gives a node one more output for the last one of its graphs, which holds what their
    /// exchanges leave, and makes a byte of it.
    fn take_token(&mut self, node: NodeId, bodies: &Bodies) {
        let count = bodies.graphs.iter().map(|body| body.outputs.len()).max().unwrap_or(0);
        // The first output of the body of a Loop is its condition.
        let index = count - usize::from(bodies.operator == Operator::Loop);
        self.model.fill_outputs(node, index + 1);
        let Some(output) = self.model.outputs(node).get(index).copied().flatten() else { return };
        if bodies.operator == Operator::If {
            return self.add_token(output);
        }
        append_to_lists(&mut self.model, node);
        // A byte of each iteration, of which there may be none.
        let all = self.constant(&[-1]);
        let (_, bytes) = self.add("Reshape", "", &[Some(output), Some(all)]);
        let none = self.byte();
        let (concat, some) = self.add("Concat", "", &[Some(bytes), Some(none)]);
        self.model.set_attribute(concat, "axis", AttrValue::Int(0));
        let (_, token) = self.add("ReduceMax", "", &[Some(some)]);
        self.add_token(token);
    }
}

/// Lets the lists of a `Scan` that say something of each output say it of one more.
fn append_to_lists(model: &mut Model, node: NodeId) {
    for name in ["scan_output_axes", "scan_output_directions"] {
        let list = model.attribute_of(node, name).and_then(|attribute| attribute.value());
        let Some(AttributeValue::Ints(list)) = list else { continue };
        let list = list.iter().copied().chain([0]).collect::<Vec<i64>>();
        model.set_attribute(node, name, AttrValue::Ints(Cow::Owned(list)));
    }
}

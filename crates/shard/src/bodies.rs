//! `If`, `Loop` and `Scan` whose graphs have annotated nodes.
//!
//! Such a node runs on all devices of the configuration. All take the same branch and the same
//! number of iterations, since conditions are whole on each of them. Nodes in its graphs are placed
//! like those of the main graph. Inputs and outputs of the graphs are whole on all devices.

use std::borrow::Cow;

use sardonyx_model::{
    AttrValue, Attribute, AttributeValue, Dim, GraphId, Model, NodeId, Type, ValueId,
};
use sardonyx_ops::OpDef;
use sardonyx_ops::operators::{IF, LOOP, SCAN};
use sardonyx_passes::annotations;
use sardonyx_passes::order::{inner_graphs, tree};
use sardonyx_tensor::Tensor;

use crate::assign::Assignment;
use crate::local::Building;
use crate::place::Wishes;
use crate::plan::{Computed, FormId};
use crate::planner::Planner;

/// Operators whose graphs can be divided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Operator {
    If,
    Loop,
    Scan,
}

/// Graphs of a node whose nodes are steps of the plan.
#[derive(Debug, Clone)]
pub(super) struct Bodies {
    operator: Operator,
    graphs: Vec<Body>,
}

#[derive(Debug, Clone)]
struct Body {
    graph: GraphId,
    /// Outputs, and the forms in which they leave the graph.
    outputs: Vec<(ValueId, FormId)>,
}

impl Bodies {
    /// Returns the outputs of the graphs with their forms.
    pub(super) fn outputs(&self) -> impl Iterator<Item = (ValueId, FormId)> + '_ {
        self.graphs.iter().flat_map(|body| body.outputs.iter().copied())
    }
}

/// Whether nodes in graphs of nodes have annotations for a configuration, so that these graphs may
/// be divided.
pub fn divides_bodies(model: &Model, configuration: &str) -> bool {
    let inner = model.graphs().filter(|(_, graph)| graph.parent.is_some());
    let mut nodes = inner.flat_map(|(_, graph)| graph.nodes.iter().copied());
    nodes.any(|node| {
        annotations(model, node).any(|one| one.configuration == configuration.as_bytes())
    })
}

impl Planner<'_> {
    /// Returns the operator of a node whose graphs can be divided.
    fn with_bodies(&self, node: NodeId) -> Option<Operator> {
        const OPERATORS: [(&OpDef, Operator); 3] =
            [(&IF, Operator::If), (&LOOP, Operator::Loop), (&SCAN, Operator::Scan)];
        let op = self.resolved.op(node).filter(|op| op.schema.since == op.def.newest())?;
        let found = OPERATORS.iter().find(|(known, _)| std::ptr::eq(*known, op.def));
        found.map(|(_, operator)| *operator)
    }

    /// Whether the sizes of a node's graph inputs are those of the arguments in a run. Declared
    /// sizes of the inputs may differ, and a run ignores them.
    fn has_sizes_of_run(&self, node: NodeId, operator: Operator) -> bool {
        let (skipped, scanned) = match operator {
            Operator::If => return true,
            Operator::Loop => (2, 0),
            Operator::Scan => (0, self.int(node, "num_scan_inputs").unwrap_or(0)),
        };
        let model = &self.plan.model;
        let Some(body) = inner_graphs(model, node).next() else { return false };
        let given: Vec<Option<ValueId>> = model.inputs(node).collect();
        let taken = model.graph(body).inputs.iter().map(|info| info.value);
        let first_scanned = given.len() - usize::try_from(scanned).unwrap_or(0).min(given.len());
        let axes = match model.attribute_of(node, "scan_input_axes").and_then(Attribute::value) {
            Some(AttributeValue::Ints(axes)) => &axes[..],
            _ => &[],
        };
        let mut pairs = given.iter().zip(taken).enumerate().skip(skipped);
        pairs.all(|(index, (given, taken))| {
            let (Some(given), Some(taken)) = (given, taken) else { return false };
            let axis = index.checked_sub(first_scanned);
            let axis = axis.map(|index| axes.get(index).copied().unwrap_or(0));
            let shape = |value| self.plan.types.ty(value).and_then(Type::shape);
            match (shape(*given), shape(taken)) {
                (_, None) => true,
                (Some(given), Some(taken)) => is_shape_of_run(given, axis, taken),
                (None, Some(taken)) => taken.iter().all(|dim| *dim == Dim::Unknown),
            }
        })
    }

    fn int(&self, node: NodeId, name: &str) -> Option<i64> {
        match self.plan.model.attribute_of(node, name).and_then(Attribute::value) {
            Some(AttributeValue::Int(number)) => Some(*number),
            _ => None,
        }
    }

    /// Returns the nodes in the graphs of a node that have annotations for the configuration.
    fn annotated_in(&self, node: NodeId) -> Vec<NodeId> {
        let model = self.resolved.model();
        let graphs = inner_graphs(model, node).flat_map(|graph| tree(model, graph));
        let nodes = graphs.flat_map(|graph| model.graph(graph).nodes.iter().copied());
        nodes.filter(|inner| self.is_annotated(*inner)).collect()
    }

    /// Places a node and the nodes in its graphs, if the graphs can be divided. Returns whether it
    /// did.
    pub(super) fn place_with_bodies(&mut self, node: NodeId, wishes: &Wishes) -> bool {
        let annotated = self.annotated_in(node);
        if annotated.is_empty() {
            return false;
        }
        let may_divide = !self.prepared.whole_bodies && self.columns.is_none();
        let operator = self.with_bodies(node).filter(|_| may_divide);
        let why = match operator {
            Some(operator) if self.has_sizes_of_run(node, operator) => None,
            Some(_) => {
                Some("is in a graph that declares other sizes than those of what it is given")
            }
            None => Some("is in a graph of a node, which runs whole on each of its devices"),
        };
        let (Some(operator), None) = (operator, why) else {
            for inner in annotated {
                self.refuse(inner, None, why.unwrap_or_default());
            }
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
        // Forms that outer values get in the graph do not exist after it.
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

/// Whether the shape of a graph input is that of its argument, or of a slice of the argument along
/// `axis`.
fn is_shape_of_run(given: &[Dim], axis: Option<i64>, taken: &[Dim]) -> bool {
    let rank = i64::try_from(given.len()).unwrap_or(i64::MAX);
    let axis =
        axis.and_then(|axis| usize::try_from(if axis < 0 { axis + rank } else { axis }).ok());
    let given = given.iter().enumerate().filter(|(index, _)| Some(*index) != axis);
    let given: Vec<&Dim> = given.map(|(_, dim)| dim).collect();
    let is_same = |(given, taken): (&&Dim, &Dim)| *taken == Dim::Unknown || *given == taken;
    given.len() == taken.len() && given.iter().zip(taken).all(is_same)
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

//! Placement of `If`, `Loop` and `Scan` whose graphs have annotated nodes.

use sardonyx_model::{Attribute, AttributeValue, Dim, GraphId, NodeId, Type, ValueId};
use sardonyx_ops::OpDef;
use sardonyx_ops::operators::{IF, LOOP, SCAN};
use sardonyx_passes::order::{inner_graphs, tree};

use super::Planner;
use super::requests::Request;
use crate::assign::Assignment;
use crate::bodies::{Bodies, Body, Operator};
use crate::plan::{Computed, FormId};

impl Planner<'_> {
    /// Returns the operator of a node whose graphs can be divided.
    fn with_bodies(&self, node: NodeId) -> Option<Operator> {
        const OPERATORS: [(&OpDef, Operator); 3] =
            [(&IF, Operator::If), (&LOOP, Operator::Loop), (&SCAN, Operator::Scan)];
        let op = self.prepared.resolved.op(node).filter(|op| op.schema.since == op.def.newest())?;
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
        let model = &self.typed.model;
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
            let shape = |value| self.typed.ty(value).and_then(Type::shape);
            match (shape(*given), shape(taken)) {
                (_, None) => true,
                (Some(given), Some(taken)) => is_shape_of_run(given, axis, taken),
                (None, Some(taken)) => taken.iter().all(|dim| *dim == Dim::Unknown),
            }
        })
    }

    /// Returns an integer attribute of a node.
    fn int(&self, node: NodeId, name: &str) -> Option<i64> {
        match self.typed.model.attribute_of(node, name).and_then(Attribute::value) {
            Some(AttributeValue::Int(number)) => Some(*number),
            _ => None,
        }
    }

    /// Returns the nodes in the graphs of a node that have annotations for the configuration.
    fn annotated_in(&self, node: NodeId) -> Vec<NodeId> {
        let model = self.prepared.resolved.model();
        let graphs = inner_graphs(model, node).flat_map(|graph| tree(model, graph));
        let nodes = graphs.flat_map(|graph| model.graph(graph).nodes.iter().copied());
        nodes.filter(|inner| self.requests.is_annotated(*inner)).collect()
    }

    /// Places a node and the nodes in its graphs, if the graphs can be divided. Returns whether it
    /// did.
    pub(super) fn place_with_bodies(&mut self, node: NodeId, request: &Request) -> bool {
        let annotated = self.annotated_in(node);
        if annotated.is_empty() {
            return false;
        }
        let operator = match self.divisible(node) {
            Ok(operator) => operator,
            Err(why) => {
                annotated.into_iter().for_each(|inner| self.steps.refuse(inner, None, why));
                return false;
            }
        };
        self.note_without_rule(node, request);
        if request.stage.is_some() {
            let why = "does not run on the devices of its stage alone: \
                       nodes in its graphs are divided among all devices";
            self.steps.refuse(node, None, why);
        }
        let whole = self.forms.everywhere;
        let inputs: Vec<Option<ValueId>> = self.typed.model.inputs(node).collect();
        inputs.iter().flatten().for_each(|value| self.need(*value, whole));
        let graphs: Vec<GraphId> = inner_graphs(&self.typed.model, node).collect();
        let graphs = graphs.into_iter().map(|graph| self.place_body(graph)).collect();
        let outputs = self.typed.model.outputs(node).iter().map(|value| value.map(|_| whole));
        let computed = Computed {
            node,
            inputs: inputs.iter().map(|value| value.map(|_| whole)).collect(),
            outputs: outputs.collect(),
            captured: Vec::new(),
            changes: Vec::new(),
            assignment: Assignment::whole(self.forms.all()),
            bodies: Some(Bodies { operator, graphs }),
        };
        self.run(computed);
        self.leave(node, request);
        true
    }

    /// Returns the operator of a node whose graphs are divided.
    ///
    /// # Errors
    ///
    /// The reason why they are not, as a sentence without its subject, which is a node in them.
    fn divisible(&self, node: NodeId) -> Result<Operator, &'static str> {
        let may_divide = !self.prepared.whole_bodies && self.requests.search.is_none();
        match self.with_bodies(node).filter(|_| may_divide) {
            Some(operator) if self.has_sizes_of_run(node, operator) => Ok(operator),
            Some(_) => {
                Err("is in a graph that declares other sizes than those of what it is given")
            }
            None => Err("is in a graph of a node, which runs whole on each of its devices"),
        }
    }

    /// Places the nodes of a graph, and moves its outputs to all devices.
    fn place_body(&mut self, graph: GraphId) -> Body {
        let (around, outside) = (self.steps.graph, self.locations.enter());
        self.place_nodes_of(graph);
        let outputs = self.typed.model.graph(graph).outputs.iter().filter_map(|info| info.value);
        let everywhere = self.forms.everywhere;
        let outputs: Vec<(ValueId, FormId)> = outputs.map(|value| (value, everywhere)).collect();
        outputs.iter().for_each(|(value, form)| self.need(*value, *form));
        self.steps.graph = around;
        self.locations.leave(outside);
        Body { graph, outputs }
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

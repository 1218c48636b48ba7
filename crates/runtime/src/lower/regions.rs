//! Lowering of nodes with inner graphs to [regions](crate::program::Region).

use hashbrown::{HashMap, HashSet};
use sardonyx_model::{GraphId, Id, Model, NodeAttributes, NodeId, ValueId, ValueInfo};
use sardonyx_ops::operators::{IF, LOOP, SCAN};
use sardonyx_ops::{AttrValue, AttributeView, Attributes};
use sardonyx_tensor::Bool8;

use super::{Making, Scope, refuse_node};
use crate::error::CompileError;
use crate::program::{Along, Op, Region, RegionKind, Slot};

impl Making<'_> {
    /// Lowers a node to a region, if its graphs become programs.
    pub(super) fn region(
        &mut self,
        scope: &mut Scope,
        node: NodeId,
    ) -> Result<Option<Op>, CompileError> {
        let Some(kind) = self.region_kind(scope, node)? else {
            return Ok(None);
        };
        let model = self.lowering.resolved.model();
        let mut bodies = Vec::new();
        for name in kind.attributes() {
            let attributes = NodeAttributes::new(model, node);
            let Some(AttrValue::Graph(graph)) = attributes.attribute(name) else {
                return Err(refuse_node(model, node, format!("there is no graph '{name}'")));
            };
            bodies.push(self.body(node, graph, &kind)?);
        }
        let mut captured: Vec<ValueId> = Vec::new();
        let all = bodies.iter().flat_map(|body| &body.captures);
        let mut seen = HashSet::new();
        captured.extend(all.map(|(value, _)| *value).filter(|value| seen.insert(*value)));
        let captures = captured.iter().map(|value| self.slot(scope, *value)).collect();
        let bodies = bodies.into_iter().map(|mut body| {
            let slots: HashMap<ValueId, Slot> = body.captures.into_iter().collect();
            let inputs = captured.iter().map(|value| slots.get(value).copied());
            body.program.inputs.extend(inputs);
            body.program
        });
        Ok(Some(Op::Region(Box::new(Region { kind, captures, bodies: bodies.collect() }))))
    }

    /// Returns the branch of an `If` with a known condition. Its nodes become part of the graph
    /// around it.
    pub(super) fn taken_branch(&self, node: NodeId) -> Option<GraphId> {
        let resolved = self.lowering.resolved;
        if !resolved.is(node, &IF) {
            return None;
        }
        let model = resolved.model();
        let condition = self.constants.get(model.inputs(node).next().flatten()?)?;
        let [is_true] = condition.to_vec::<Bool8>().ok()?[..] else { return None };
        let name = if is_true.get() { "then_branch" } else { "else_branch" };
        match NodeAttributes::new(model, node).attribute(name)? {
            AttrValue::Graph(graph) if gives_as_many(model, graph, node) => Some(graph),
            _ => None,
        }
    }

    /// Makes the outputs of `graph` the outputs of `node`.
    pub(super) fn give_as(&mut self, scope: &mut Scope, graph: GraphId, node: NodeId) {
        let model = self.lowering.resolved.model();
        let outputs = model.outputs(node).iter().zip(&model.graph(graph).outputs);
        for (output, info) in outputs {
            if let (Some(output), Some(value)) = (output, info.value)
                && self.is_read[output.index()]
            {
                let slot = self.slot(scope, value);
                scope.outer.push((*output, self.slots[output.index()]));
                self.slots[output.index()] = (scope.number, slot);
            }
        }
    }

    /// Lowers a graph of a node to the body of a region.
    fn body(
        &mut self,
        node: NodeId,
        graph: GraphId,
        kind: &RegionKind,
    ) -> Result<Scope, CompileError> {
        let model = self.lowering.resolved.model();
        let inputs = &model.graph(graph).inputs;
        let wanted = kind.input_count();
        check_inputs(model, graph, wanted).map_err(|fact| refuse_node(model, node, fact))?;
        let mut body = Scope::new(&mut self.scopes);
        let inputs = inputs.iter().take(wanted).map(|info| {
            let value = info.value.filter(|value| self.is_read[value.index()])?;
            Some(self.define(&mut body, value))
        });
        body.program.inputs = inputs.collect();
        body.program.graph = Some(graph);
        self.graph(&mut body, graph)?;
        for (value, slot) in body.outer.drain(..).rev() {
            self.slots[value.index()] = slot;
        }
        let (gives, wanted) = (body.program.outputs.len(), model.outputs(node).len());
        if gives != kind.kept_outputs() + wanted {
            let wanted = kind.kept_outputs() + wanted;
            return Err(refuse_node(
                model,
                node,
                format!("its graph has {gives} outputs, but {wanted} are needed"),
            ));
        }
        Ok(body)
    }

    /// Returns the kind of region of a node; `None` for a node without one.
    fn region_kind(
        &mut self,
        scope: &mut Scope,
        node: NodeId,
    ) -> Result<Option<RegionKind>, CompileError> {
        let resolved = self.lowering.resolved;
        let model = resolved.model();
        let inputs: Vec<Option<ValueId>> = model.inputs(node).collect();
        let mut slot = |value: ValueId| self.slot(scope, value);
        let missing = |index: usize| refuse_node(model, node, format!("input {index} is missing"));
        if resolved.is(node, &IF) {
            let condition = inputs.first().copied().flatten().ok_or_else(|| missing(0))?;
            return Ok(Some(RegionKind::If { condition: slot(condition) }));
        }
        let mut all_from = |first: usize| {
            let inputs = inputs.iter().enumerate().skip(first);
            let slots = inputs.map(|(index, value)| Ok(slot(value.ok_or_else(|| missing(index))?)));
            slots.collect::<Result<Vec<Slot>, CompileError>>()
        };
        if resolved.is(node, &LOOP) {
            let carried = all_from(2)?;
            let at = |index: usize| inputs.get(index).copied().flatten();
            let [trip_count, condition] = [at(0), at(1)].map(|value| value.map(&mut slot));
            return Ok(Some(RegionKind::Loop { trip_count, condition, carried }));
        }
        if !resolved.is(node, &SCAN) {
            return Ok(None);
        }
        let Some(schema) = resolved.schema(node) else { return Ok(None) };
        // A `Scan` with sequence lengths keeps its version, as newer ones lack that input.
        let has_lengths = schema.since < 9;
        let mut carried = all_from(usize::from(has_lengths))?;
        let lengths = inputs.first().copied().flatten().filter(|_| has_lengths).map(&mut slot);
        let outputs = model.outputs(node).len();
        let attributes = NodeAttributes::new(model, node);
        let attributes = AttributeView::new(schema, &attributes);
        let count = attributes.int("num_scan_inputs").and_then(|count| usize::try_from(count).ok());
        let count = count.filter(|count| (1..=carried.len()).contains(count));
        let states = count.map(|count| carried.len() - count).filter(|count| *count <= outputs);
        let Some(states) = states else {
            let fact = "num_scan_inputs does not match the inputs and outputs".to_string();
            return Err(refuse_node(model, node, fact));
        };
        let along = |of: &str, count: usize| {
            let [axes, directions] =
                ["axes", "directions"].map(|what| attributes.ints(&format!("scan_{of}_{what}")));
            let wrong = [&axes, &directions].into_iter().flatten().any(|list| list.len() != count);
            if wrong {
                let fact = format!("its lists of axes and directions do not have {count} {of}s");
                return Err(refuse_node(model, node, fact));
            }
            let at = |list: &Option<Vec<i64>>, index: usize| list.as_ref().map_or(0, |l| l[index]);
            let along = (0..count).map(|index| Along {
                axis: at(&axes, index),
                is_backward: at(&directions, index) != 0,
            });
            Ok(along.collect::<Vec<Along>>())
        };
        let ways = match attributes.ints("directions").filter(|_| has_lengths) {
            None => along("input", carried.len() - states)?,
            Some(directions) => {
                let back = directions.iter().map(|direction| *direction != 0);
                back.map(|is_backward| Along { axis: 0, is_backward }).collect()
            }
        };
        if ways.len() != carried.len() - states {
            let fact = "its directions do not match its scan inputs".to_string();
            return Err(refuse_node(model, node, fact));
        }
        let stacked = along("output", outputs - states)?;
        let scanned = carried.split_off(states).into_iter().zip(ways).collect();
        Ok(Some(RegionKind::Scan { lengths, carried, scanned, stacked }))
    }
}

/// Whether a graph has a value for each output of a node.
fn gives_as_many(model: &Model, graph: GraphId, node: NodeId) -> bool {
    let outputs = &model.graph(graph).outputs;
    outputs.len() == model.outputs(node).len() && outputs.iter().all(|info| info.value.is_some())
}

/// Compares the inputs of a graph with the number that its node passes by position. Only before
/// version 4 of the format may there be more, which are constants.
fn check_inputs(model: &Model, graph: GraphId, given: usize) -> Result<(), String> {
    let graph = model.graph(graph);
    let is_constant = |info: &ValueInfo| {
        let mut initializers = graph.initializers.iter();
        info.value.is_some() && initializers.any(|initializer| initializer.value == info.value)
    };
    let inputs = &graph.inputs;
    let own = inputs.iter().skip(given).filter(|info| is_constant(info)).count();
    let (has, others) = (inputs.len(), inputs.len() - own);
    if others != given {
        return Err(format!("its graph has {others} inputs, but the node passes {given}"));
    }
    match inputs.iter().take(given).position(is_constant) {
        Some(index) => Err(format!(
            "input {index} of {has} of its graph is an initializer, but the node passes a value"
        )),
        None => Ok(()),
    }
}

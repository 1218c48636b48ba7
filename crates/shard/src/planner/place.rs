//! Placement of a node: the devices that run it, and the parts that each computes.

use std::cmp::Reverse;

use sardonyx_model::{Dim, NodeId, ValueId};
use sardonyx_ops::{Change, Factor, Factors, Operands, SplitFn};

use super::Planner;
use super::requests::{Operand, Request};
use crate::assign::{Assigning, Assignment};
use crate::form::{Device, Form};
use crate::plan::FormId;

impl Planner<'_> {
    /// Adds the steps of a node: moves of its inputs, the node, and moves of its outputs.
    pub(super) fn place(&mut self, node: NodeId) {
        let request = self.request(node);
        if !self.place_with_bodies(node, &request) {
            self.place_as(node, &request);
        }
    }

    /// Adds the steps of a node whose only output is needed in a form.
    pub(super) fn place_for(&mut self, node: NodeId, form: FormId) {
        let mut request = Request::new(self.typed.model.inputs(node).len(), 1);
        request.outputs[0] = Some(form);
        self.place_as(node, &request);
    }

    fn place_as(&mut self, node: NodeId, request: &Request) {
        let operands = self.reads_of(node);
        let outputs = self.typed.model.outputs(node).iter().flatten();
        if !operands.iter().chain(outputs).all(|value| self.typed.can_move(*value)) {
            // A value that cannot be sent is computed on each device.
            return self.compute(node, Assignment::whole(self.forms.all()), None, request);
        }
        if self.place_on_sums(node) {
            return;
        }
        let mut rule = self.rule(node);
        if let Some(rule) = &mut rule {
            self.refine(node, rule, request);
        }
        match rule.as_ref().and_then(|rule| self.assign(node, rule, request)) {
            Some(assignment) => self.compute(node, assignment, rule.as_ref(), request),
            None => {
                if rule.is_none() {
                    self.note_without_rule(node, request);
                }
                let devices = self.devices_of(node, request);
                self.compute(node, Assignment::whole(devices), None, request);
            }
        }
    }

    /// Records a node that needs whole operands of which devices have parts, if it can be expanded
    /// into nodes that can be computed in parts.
    fn note_whole(&mut self, node: NodeId) {
        let op = self.prepared.resolved.op(node);
        if op.is_some_and(|op| op.def.has_split_nodes()) {
            self.needs_whole.insert(node);
        }
    }

    /// Records for each operand that the annotation splits that the node runs whole.
    pub(super) fn note_without_rule(&mut self, node: NodeId, request: &Request) {
        let model = &self.typed.model;
        let op = model.display(model.node(node).op_type).into_owned();
        let outputs = model.outputs(node).iter().copied().zip(&request.outputs);
        let operands = model.inputs(node).zip(&request.inputs).chain(outputs);
        let in_parts = operands.filter_map(|(value, form)| {
            let form = self.forms.get((*form)?);
            (!form.is_whole()).then_some(value?)
        });
        for value in in_parts.collect::<Vec<_>>() {
            let name = self.typed.name(value).into_bytes();
            let why =
                format!("asks for parts, but {op} is computed whole, as it has no rule for parts");
            self.steps.refuse(node, Some(&name), why);
        }
    }

    /// Returns the rule by which the axes of a node's operands correspond. `None` if the operator
    /// has no rule for the node, or the sizes of an operand are not known.
    pub(crate) fn rule(&self, node: NodeId) -> Option<Factors> {
        let op = self.prepared.resolved.op(node)?;
        let schema = self.prepared.resolved.schema(node)?;
        let rule: SplitFn = op.def.split_rule().filter(|_| schema.since == op.def.newest())?;
        let operand = |value: Option<ValueId>| match value {
            Some(value) => self.typed.operand(value).map(Some),
            None => Some(None),
        };
        let model = &self.typed.model;
        let inputs: Vec<_> = model.inputs(node).map(operand).collect::<Option<_>>()?;
        let outputs = model.outputs(node).iter().copied();
        let outputs: Vec<_> = outputs.map(operand).collect::<Option<_>>()?;
        let found = rule(&Operands::new(model, node, schema, &inputs, &outputs))?;
        // Parts of factors are parts of an axis only if the factors multiply to the size of the
        // axis.
        let operands = inputs.iter().zip(&found.inputs).chain(outputs.iter().zip(&found.outputs));
        let mut axes = operands
            .flat_map(|(operand, axes)| operand.iter().flat_map(|operand| &operand.dims).zip(axes));
        let size = |axis: &[usize]| {
            axis.iter().fold(Dim::Known(1), |all, factor| all.mul(&found.factors[*factor].size))
        };
        axes.all(|(dim, axis)| axis.is_empty() || *dim == size(axis)).then_some(found)
    }

    /// Splits factors of a rule that are fused axes into the factors that the forms of operands
    /// have.
    fn refine(&mut self, node: NodeId, rule: &mut Factors, request: &Request) {
        let inputs: Vec<Option<ValueId>> = self.typed.model.inputs(node).collect();
        for (index, value) in inputs.into_iter().enumerate() {
            let Some(value) = value else { continue };
            let form = self.form_read(value, request.inputs[index]);
            refine(rule, Operand::Input(index), self.forms.get(form));
        }
        for (index, form) in request.outputs.iter().enumerate() {
            if let Some(form) = form {
                refine(rule, Operand::Output(index), self.forms.get(*form));
            }
        }
    }

    /// Returns the form in which an input is read: the requested one, else the default.
    fn form_read(&mut self, value: ValueId, requested: Option<FormId>) -> FormId {
        match requested {
            Some(form) => form,
            None => self.current(value),
        }
    }

    /// Assigns parts of a node to devices. `None` if the node is computed whole.
    fn assign(&mut self, node: NodeId, rule: &Factors, request: &Request) -> Option<Assignment> {
        let inputs = self.typed.model.inputs(node).enumerate();
        let inputs = inputs.filter_map(|(index, value)| Some((index, value?)));
        let mut inputs: Vec<(usize, ValueId)> = inputs.collect();
        // Annotated operands come first, then the others; larger ones precede smaller ones.
        inputs.sort_by_key(|(index, value)| {
            (request.inputs[*index].is_none(), Reverse(self.typed.bits(*value)))
        });
        let mut assigning = Assigning::new(rule);
        for (index, value) in inputs {
            let requested = request.inputs[index];
            let form = self.form_read(value, requested);
            if let Err(why) = assigning.take(&rule.inputs[index], self.forms.get(form)) {
                self.note_whole(node);
                if requested.is_some() {
                    let name = self.typed.name(value).into_bytes();
                    self.steps.refuse(node, Some(&name), format!("asks for parts, but {why}"));
                }
            }
        }
        assigning.finish().or_else(|| self.assign_by_outputs(rule, request))
    }

    /// Assigns parts of a node whose whole inputs can be read in parts, as the annotation splits an
    /// output.
    fn assign_by_outputs(&self, rule: &Factors, request: &Request) -> Option<Assignment> {
        let mut assigning = Assigning::new(rule);
        for (index, form) in request.outputs.iter().enumerate() {
            let Some(form) = form.map(|form| self.forms.get(form)) else { continue };
            if form.partial().is_none() {
                // On an error the output is computed whole, and then split.
                let _ = assigning.take(&rule.outputs[index], form);
            }
        }
        assigning.finish()
    }

    /// Chooses the devices of a node that is computed whole: those of an annotated operand, else
    /// those of its largest input that is not on all devices, if they are in the node's stage, else
    /// the devices of the stage. A node without any of these runs on all devices.
    fn devices_of(&mut self, node: NodeId, request: &Request) -> Vec<Device> {
        let requested = request.outputs.iter().chain(&request.inputs).flatten().next();
        if let Some(form) = requested {
            return self.forms.get(*form).devices().collect();
        }
        let mut largest: Option<(u64, FormId)> = None;
        for value in self.reads_of(node) {
            let form = self.current(value);
            let bits = self.typed.bits(value);
            if form != self.forms.everywhere && largest.is_none_or(|(most, _)| bits > most) {
                largest = Some((bits, form));
            }
        }
        let devices = largest.map(|(_, form)| self.forms.get(form).devices().collect::<Vec<_>>());
        let stage = request.stage.and_then(|stage| self.requests.stage(stage));
        match (devices, stage) {
            (Some(devices), None) => devices,
            (Some(devices), Some(stage)) if devices.iter().all(|one| stage.contains(one)) => {
                devices
            }
            (_, Some(stage)) => stage.iter().copied().collect(),
            (None, None) => self.forms.all().collect(),
        }
    }
}

/// Splits each factor that is a whole axis of an operand into the factors that `form` has for this
/// axis.
fn refine(rule: &mut Factors, operand: Operand, form: &Form) {
    for (axis, splits) in form.axes().iter().enumerate().filter(|(_, splits)| splits.len() > 1) {
        let axes = match operand {
            Operand::Input(index) => &rule.inputs[index],
            Operand::Output(index) => &rule.outputs[index],
        };
        let Some(&[factor]) = axes.get(axis).map(|factors| &factors[..]) else { continue };
        let is_in_attribute = rule.changes.iter().any(|change| match change {
            Change::Attribute { factors, .. } => factors.contains(&Some(factor)),
            // Positions get the first index of the part added, so that the part must be one range.
            Change::Places { factor: own, .. } => *own == factor,
            _ => false,
        });
        let size: usize = splits.iter().map(|split| split.size).product();
        if is_in_attribute || Some(size) != rule.factors[factor].size.size() {
            continue;
        }
        let cut = rule.factors[factor].cut;
        rule.factors[factor].size = splits[0].size.into();
        let first = rule.factors.len();
        let inner = splits[1..].iter().map(|split| Factor { size: split.size.into(), cut });
        rule.factors.extend(inner);
        let inner: Vec<usize> = (first..rule.factors.len()).collect();
        for axis in rule.inputs.iter_mut().chain(&mut rule.outputs).flatten() {
            if let Some(at) = axis.iter().position(|known| *known == factor) {
                axis.insert_many(at + 1, inner.iter().copied());
            }
        }
    }
}

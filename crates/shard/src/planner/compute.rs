//! Steps of a node whose devices and parts are decided.

use std::collections::BTreeSet;

use sardonyx_model::{NodeId, ValueId};
use sardonyx_ops::{Change, Cut, Factors, Then, scalar};

use super::Planner;
use super::requests::{Operand, Request};
use crate::assign::{Assignment, form_of};
use crate::form::Device;
use crate::plan::{Computed, FormId};

/// Forms of the operands of a node that is computed as assigned.
#[derive(Clone, Copy)]
struct Operands<'a> {
    assignment: &'a Assignment,
    /// Rule of the node; `None` if it is computed whole.
    rule: Option<&'a Factors>,
    /// Form of an operand that is not split.
    whole: FormId,
}

impl Planner<'_> {
    /// Adds the step of a node, after moves of its inputs to the forms in which it reads them.
    pub(super) fn compute(
        &mut self,
        node: NodeId,
        assignment: Assignment,
        rule: Option<&Factors>,
        request: &Request,
    ) {
        let whole = self.forms.whole(assignment.places.keys().copied());
        let rule = rule.filter(|_| assignment.is_cut());
        let inputs: Vec<Option<ValueId>> = self.typed.model.inputs(node).collect();
        let outputs: Vec<Option<ValueId>> = self.typed.model.outputs(node).to_vec();
        let changes = rule.map_or_else(Vec::new, |rule| rule.changes.clone());
        let operands = Operands { assignment: &assignment, rule, whole };
        let mut left = Vec::with_capacity(outputs.len());
        for (index, value) in outputs.iter().enumerate() {
            let form = |value| self.operand_form(value, operands, Operand::Output(index));
            left.push(value.map(form));
        }
        let mut read = Vec::with_capacity(inputs.len());
        for (index, value) in inputs.iter().enumerate() {
            let Some(value) = value else {
                read.push(None);
                continue;
            };
            let mut form = self.operand_form(*value, operands, Operand::Input(index));
            let is_once =
                |change: &Change| matches!(change, Change::Once { input, .. } if *input == index);
            if changes.iter().any(is_once)
                && let Some(Some(left)) = left.first()
            {
                form = self.forms.only_first(form, *left);
            }
            self.need(*value, form);
            read.push(Some(form));
        }
        let captured = self.read_in_graphs(node, &inputs, whole);
        let computed = Computed {
            node,
            inputs: read,
            outputs: left,
            captured,
            changes,
            assignment,
            bodies: None,
        };
        self.note_columns(&computed);
        match self.combining(&computed, rule) {
            Some(combining) => self.compute_partly(computed, combining),
            None => self.run(computed),
        }
        self.leave(node, request);
    }

    /// Moves the values that only graphs in a node read to the devices of the node, and returns
    /// them.
    fn read_in_graphs(
        &mut self,
        node: NodeId,
        inputs: &[Option<ValueId>],
        whole: FormId,
    ) -> Vec<(ValueId, FormId)> {
        let mut captured = self.reads_of(node);
        captured.retain(|value| !inputs.contains(&Some(*value)));
        captured.iter().for_each(|value| self.need(*value, whole));
        captured.into_iter().map(|value| (value, whole)).collect()
    }

    /// Adds the step of a node and records the forms of its outputs.
    pub(super) fn run(&mut self, computed: Computed) {
        let outputs = self.typed.model.outputs(computed.node).iter().zip(&computed.outputs);
        for (value, form) in outputs {
            if let (Some(value), Some(form)) = (value, form) {
                self.locations.set(*value, *form);
            }
        }
        self.steps.add_node(computed);
    }

    /// Moves the outputs of a node to the forms that its annotation requests.
    pub(super) fn leave(&mut self, node: NodeId, request: &Request) {
        let outputs = self.typed.model.outputs(node).to_vec();
        for (value, form) in outputs.iter().zip(&request.outputs) {
            if let (Some(value), Some(form)) = (value, form) {
                self.need(*value, *form);
                self.locations.prefer(*value, *form);
            }
        }
    }

    /// Records the products that cause the splits of a node's outputs, in a search for annotations.
    fn note_columns(&mut self, computed: &Computed) {
        let Some(columns) = &mut self.requests.search else { return };
        let is_split = |form: &FormId| {
            let form = self.forms.get(*form);
            !form.is_whole() && form.partial().is_none()
        };
        let split = |value: Option<ValueId>, form: &Option<FormId>| {
            form.as_ref().is_some_and(is_split).then_some(value).flatten()
        };
        let model = &self.typed.model;
        let inputs = model.inputs(computed.node).zip(&computed.inputs);
        let inputs: Vec<ValueId> = inputs.filter_map(|(value, form)| split(value, form)).collect();
        let outputs = model.outputs(computed.node).iter().zip(&computed.outputs);
        let outputs: Vec<ValueId> =
            outputs.filter_map(|(value, form)| split(*value, form)).collect();
        columns.note(computed.node, &inputs, &outputs);
    }

    /// Returns the form in which a node reads an input or computes an output.
    fn operand_form(&mut self, value: ValueId, of: Operands<'_>, operand: Operand) -> FormId {
        let is_sized = self.typed.tensor(value).is_some_and(|(_, dims)| dims.is_some());
        let Some(rule) = of.rule.filter(|_| is_sized) else { return of.whole };
        let (axes, is_output) = match operand {
            Operand::Input(index) => (&rule.inputs[index], false),
            Operand::Output(index) => (&rule.outputs[index], true),
        };
        self.forms.number(form_of(rule, axes, of.assignment, is_output))
    }

    /// Returns how partial results of a node are combined, if the node needs another operator for
    /// them.
    fn combining(&self, computed: &Computed, rule: Option<&Factors>) -> Option<Combining> {
        let mut forms = computed.outputs.iter().flatten();
        if !forms.any(|form| self.forms.get(*form).partial().is_some()) {
            return None;
        }
        let output = self.typed.model.outputs(computed.node).first().copied().flatten()?;
        let form = computed.outputs.first().copied().flatten()?;
        let (operator, then) = computed.changes.iter().find_map(|change| match change {
            Change::Partly { operator, then } => Some((*operator, *then)),
            _ => None,
        })?;
        let factors = rule.map_or(&[][..], |rule| &rule.factors);
        let summed = factors.iter().filter(|factor| matches!(factor.cut, Cut::Combined(_)));
        let count = summed.filter_map(|factor| factor.size.size()).product();
        Some(Combining { operator, then, count, output, form })
    }

    /// Adds the step of a node that computes partial results with another operator, and of a new
    /// node that computes the result from the combined ones. A mean, for example, becomes a sum and
    /// a division.
    fn compute_partly(&mut self, computed: Computed, combining: Combining) {
        let Combining { operator, then, count, output, form } = combining;
        let node = computed.node;
        let Some((elem, dims)) = self.typed.tensor(output) else { return };
        let typed = &mut self.typed;
        let graph = typed.model.node(node).graph;
        let raw = typed.model.add_value(graph, "partial");
        typed.model.redefine_output(node, 0, raw);
        let op_type = Some(typed.model.intern(operator));
        typed.model.node_mut(node).op_type = op_type;
        let (op, divisor) = match then {
            Then::Sqrt => ("Sqrt", None),
            Then::Log => ("Log", None),
            Then::Divide => {
                let divisor = scalar(elem, count as f64);
                ("Div", Some(typed.add_constant(graph, "count", &divisor)))
            }
        };
        let inputs: Vec<Option<ValueId>> = std::iter::once(raw).chain(divisor).map(Some).collect();
        let last = typed.model.add_node(graph, op, "", &inputs, 1);
        typed.model.redefine_output(last, 0, output);
        typed.set_type(raw, elem, dims);
        self.run(computed);
        let combined = self.forms.get(form).combined();
        let devices: BTreeSet<Device> = combined.devices().collect();
        let combined = self.forms.number(combined);
        self.need(raw, combined);
        let whole = self.forms.whole(devices.iter().copied());
        let mut read = vec![Some(combined)];
        if let Some(divisor) = divisor {
            self.need(divisor, whole);
            read.push(Some(whole));
        }
        self.run(Computed {
            node: last,
            inputs: read,
            outputs: vec![Some(combined)],
            captured: Vec::new(),
            changes: Vec::new(),
            assignment: Assignment::whole(devices),
            bodies: None,
        });
    }
}

/// Combination of a node's partial results.
struct Combining {
    /// Operator that computes partial results.
    operator: &'static str,
    /// Function of the combined result.
    then: Then,
    /// Number of elements that each result combines.
    count: usize,
    /// Result of the node, and the form of its partial results.
    output: ValueId,
    form: FormId,
}

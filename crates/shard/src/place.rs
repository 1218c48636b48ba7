//! Placement of a node: the devices that run it, and the forms of its operands.

use std::collections::BTreeSet;

use sardonyx_model::{Dim, NodeId, ValueId};
use sardonyx_ops::{Change, Cut, Factor, Factors, Operand, Operands, SplitFn, Then, scalar};
use sardonyx_passes::{NodeAnnotation, ShardingSpec, annotations, configurations};
use sardonyx_proto::shown;

use crate::assign::{Assigning, Assignment, form_of};
use crate::form::{Device, Form};
use crate::plan::{Computed, FormId, Step};
use crate::planner::Planner;
use crate::sizes::nominal;
use crate::spec::Reading;

/// Forms and stage that a node's annotation for the chosen configuration requests.
#[derive(Default)]
pub(super) struct Wishes {
    /// Requested form of each input.
    inputs: Vec<Option<FormId>>,
    /// Requested form of each output.
    outputs: Vec<Option<FormId>>,
    pub(super) stage: Option<i64>,
}

impl Planner<'_> {
    /// Determines the devices of each pipeline stage: the devices that annotations of its nodes
    /// list. A stage without such devices gets an even share of all devices, by the order of stage
    /// numbers.
    pub(super) fn find_stages(&mut self) {
        let main = self.resolved.main();
        let nodes = self.resolved.order_of(main).to_vec();
        for node in nodes {
            let Some(annotation) = self.annotation(node) else { continue };
            let Some(stage) = annotation.stage else { continue };
            let named = annotation.specs.iter().flat_map(devices_of);
            let named = named.filter_map(|device| Device::try_from(device).ok());
            let count = self.plan.devices;
            let named: Vec<Device> = named.filter(|device| (*device as usize) < count).collect();
            self.stages.entry(stage).or_default().extend(named);
        }
        let count = self.stages.len();
        let devices = self.plan.devices;
        for (index, stage) in self.stages.values_mut().enumerate() {
            if stage.is_empty() {
                let (from, to) = (index * devices / count, (index + 1) * devices / count);
                let range = from..to.max(from + 1).min(devices);
                stage.extend(range.filter_map(|device| Device::try_from(device).ok()));
            }
        }
    }

    /// Returns a node's annotation for the chosen configuration.
    fn annotation(&self, node: NodeId) -> Option<NodeAnnotation<'_>> {
        let name = self.plan.configuration.as_bytes();
        annotations(self.resolved.model(), node).find(|one| one.configuration == name)
    }

    fn wishes(&mut self, node: NodeId) -> Wishes {
        let inputs: Vec<Option<ValueId>> = self.plan.model.inputs(node).collect();
        let outputs: Vec<Option<ValueId>> = self.plan.model.outputs(node).to_vec();
        let mut wishes = Wishes {
            inputs: vec![None; inputs.len()],
            outputs: vec![None; outputs.len()],
            stage: None,
        };
        if self.columns.is_some() {
            let (rows, columns) = (self.rows_of(node), self.columns_of(node));
            for (wish, form) in wishes.inputs.iter_mut().zip([rows, columns]) {
                *wish = form;
            }
            return wishes;
        }
        self.refuse_unknown(node);
        let Some(annotation) = self.annotation(node) else { return wishes };
        wishes.stage = annotation.stage;
        let mut found = Vec::new();
        for spec in &annotation.specs {
            found.push((spec.tensor.to_vec(), self.read(spec, node)));
        }
        for (tensor, form) in found {
            match form {
                Ok((places, form)) => {
                    let id = self.number(form);
                    for (is_output, index) in places {
                        let list = if is_output { &mut wishes.outputs } else { &mut wishes.inputs };
                        // The planner may have removed inputs, such as that of a `CastLike`.
                        if let Some(wish) = list.get_mut(index) {
                            *wish = Some(id);
                        }
                    }
                }
                Err(why) => self.refuse(node, Some(&tensor), why),
            }
        }
        wishes
    }

    /// Records annotations of a node for configurations that the model does not have.
    fn refuse_unknown(&mut self, node: NodeId) {
        let model = self.resolved.model();
        let chosen = self.plan.configuration.as_bytes();
        let names = annotations(model, node).map(|one| one.configuration);
        // Most nodes have no annotation, or one for the chosen configuration.
        let others: Vec<&[u8]> = names.filter(|name| *name != chosen).collect();
        if others.is_empty() {
            return;
        }
        let known = configurations(model);
        let unknown = others.into_iter().filter(|name| known.iter().all(|one| one.name != *name));
        let unknown: Vec<String> = unknown.map(|name| shown(name).to_string()).collect();
        for name in unknown {
            let why =
                format!("refers to the configuration '{name}', which the model does not have");
            self.refuse(node, None, why);
        }
    }

    /// Returns the operands that a specification applies to, and the form that it requests.
    ///
    /// # Errors
    ///
    /// The reason why the form is not available, as a sentence without its subject, which is the
    /// specification.
    fn read(
        &self,
        spec: &ShardingSpec<'_>,
        node: NodeId,
    ) -> Result<(Vec<(bool, usize)>, Form), String> {
        // Specifications have names of the resolved model. The planner has replaced known values by
        // constants with other names.
        let model = self.resolved.model();
        let is_it = |value: &ValueId| model.text(model.value(*value).name) == spec.tensor;
        let inputs = model.inputs(node).enumerate();
        let inputs = inputs.filter(|(_, value)| value.as_ref().is_some_and(is_it));
        let mut places: Vec<(bool, usize)> = inputs.map(|(index, _)| (false, index)).collect();
        let mut value = places.first().and_then(|(_, index)| model.inputs(node).nth(*index)?);
        for (index, output) in model.outputs(node).iter().enumerate() {
            if output.as_ref().is_some_and(is_it) {
                places.push((true, index));
                value = value.or(*output);
            }
        }
        let value = value.ok_or("is about a tensor that the node neither reads nor makes")?;
        if !self.can_move(value) {
            return Err("is about a value that is not a tensor of numbers".into());
        }
        let symbol = |name: &str| self.symbols.get(name).copied();
        let reading = Reading { devices: self.plan.devices, symbol: &symbol };
        let dims = self.tensor(value).and_then(|(_, dims)| dims);
        Ok((places, reading.form(spec, dims.as_deref())?))
    }

    /// Whether a node has an annotation for the chosen configuration.
    pub(super) fn is_annotated(&self, node: NodeId) -> bool {
        self.annotation(node).is_some()
    }

    /// Adds the steps of a node: moves of its inputs, the node, and moves of its outputs.
    pub(super) fn place(&mut self, node: NodeId) {
        let wishes = self.wishes(node);
        if self.place_with_bodies(node, &wishes) {
            return;
        }
        self.place_as(node, &wishes);
    }

    /// Adds the steps of a node whose only output is needed in a form.
    pub(super) fn place_for(&mut self, node: NodeId, form: FormId) {
        let inputs = vec![None; self.plan.model.inputs(node).len()];
        self.place_as(node, &Wishes { inputs, outputs: vec![Some(form)], stage: None });
    }

    fn place_as(&mut self, node: NodeId, wishes: &Wishes) {
        let operands = self.reads_of(node);
        let outputs: Vec<ValueId> =
            self.plan.model.outputs(node).iter().flatten().copied().collect();
        let all_move = operands.iter().chain(&outputs).all(|value| self.can_move(*value));
        if !all_move {
            // A value that cannot be sent is computed on each device.
            self.compute(node, Assignment::whole(self.all()), None, wishes);
            return;
        }
        if self.place_linear(node) {
            return;
        }
        let mut rule = self.rule(node);
        if let Some(rule) = &mut rule {
            self.refine(node, rule, wishes);
        }
        match rule.as_ref().and_then(|rule| self.assign(node, rule, wishes)) {
            Some(assignment) => self.compute(node, assignment, rule.as_ref(), wishes),
            None => {
                if rule.is_none() {
                    self.note_without_rule(node, wishes);
                }
                let devices = self.devices_of(node, wishes);
                self.compute(node, Assignment::whole(devices), None, wishes);
            }
        }
    }

    /// Records a node that needs whole operands of which devices have parts, if it can be expanded
    /// into nodes that can be computed in parts.
    fn note_whole(&mut self, node: NodeId) {
        if self.resolved.op(node).is_some_and(|op| op.def.has_split_nodes()) {
            self.needs_whole.insert(node);
        }
    }

    /// Records for each operand that the annotation splits that the node runs whole.
    pub(super) fn note_without_rule(&mut self, node: NodeId, wishes: &Wishes) {
        let model = &self.plan.model;
        let op = model.display(model.node(node).op_type).into_owned();
        let outputs = model.outputs(node).iter().copied().zip(&wishes.outputs);
        let operands = model.inputs(node).zip(&wishes.inputs).chain(outputs);
        let in_parts = operands.filter_map(|(value, form)| {
            let form = self.plan.form((*form)?);
            (!form.is_whole()).then_some(value?)
        });
        for value in in_parts.collect::<Vec<_>>() {
            let name = self.name(value).into_bytes();
            let why =
                format!("asks for parts, but {op} is computed whole, as it has no rule for parts");
            self.refuse(node, Some(&name), why);
        }
    }

    /// Returns the rule by which the axes of a node's operands correspond. `None` if the operator
    /// has no rule for the node, or the sizes of an operand are not known.
    pub(super) fn rule(&self, node: NodeId) -> Option<Factors> {
        let op = self.resolved.op(node)?;
        let schema = self.resolved.schema(node)?;
        let rule: SplitFn = op.def.split_rule().filter(|_| schema.since == op.def.newest())?;
        let known = |value: Option<ValueId>| match value {
            Some(value) => self.operand(value).map(Some),
            None => Some(None),
        };
        let model = &self.plan.model;
        let inputs: Option<Vec<Option<Operand>>> = model.inputs(node).map(known).collect();
        let outputs: Option<Vec<Option<Operand>>> =
            model.outputs(node).iter().map(|value| known(*value)).collect();
        let (inputs, outputs) = (inputs?, outputs?);
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
    fn refine(&mut self, node: NodeId, rule: &mut Factors, wishes: &Wishes) {
        let inputs: Vec<Option<ValueId>> = self.plan.model.inputs(node).collect();
        for (index, value) in inputs.into_iter().enumerate() {
            let Some(value) = value else { continue };
            let form = match wishes.inputs[index] {
                Some(form) => form,
                None => self.current(value),
            };
            refine(rule, (false, index), self.plan.form(form));
        }
        for (index, form) in wishes.outputs.iter().enumerate() {
            if let Some(form) = form {
                refine(rule, (true, index), self.plan.form(*form));
            }
        }
    }

    /// Assigns parts of a node to devices. `None` if the node is computed whole.
    fn assign(&mut self, node: NodeId, rule: &Factors, wishes: &Wishes) -> Option<Assignment> {
        let inputs: Vec<Option<ValueId>> = self.plan.model.inputs(node).collect();
        let mut assigning = Assigning::new(rule);
        // Annotated operands come first, then the others; larger ones precede smaller ones.
        let mut order: Vec<(bool, u64, usize)> = Vec::new();
        for (index, value) in inputs.iter().enumerate() {
            let Some(value) = value else { continue };
            order.push((wishes.inputs[index].is_none(), u64::MAX - self.bytes(*value), index));
        }
        order.sort_unstable();
        for (is_own_form, _, index) in order {
            let Some(value) = inputs[index] else { continue };
            let form = match wishes.inputs[index] {
                Some(form) => form,
                None => self.current(value),
            };
            let form = self.plan.form(form).clone();
            let taken = assigning.take(&rule.inputs[index], &form);
            if taken.is_err() {
                self.note_whole(node);
            }
            if let (Err(why), false) = (taken, is_own_form) {
                let name = self.name(value).into_bytes();
                self.refuse(node, Some(&name), format!("asks for parts, but {why}"));
            }
        }
        if let Some(found) = assigning.finish() {
            return Some(found);
        }
        // Whole inputs can be read in parts if the annotation splits an output.
        let mut assigning = Assigning::new(rule);
        for (index, form) in wishes.outputs.iter().enumerate() {
            let Some(form) = form else { continue };
            let form = self.plan.form(*form).clone();
            if form.partial().is_none() {
                // On an error the output is computed whole, and then split.
                let _ = assigning.take(&rule.outputs[index], &form);
            }
        }
        assigning.finish()
    }

    /// Estimates the size of a value, in bits, to compare it with other values.
    pub(super) fn bytes(&self, value: ValueId) -> u64 {
        let elem = self.tensor(value).and_then(|(elem, _)| elem.bits());
        self.elements(value).saturating_mul(elem.unwrap_or(0) as u64)
    }

    /// Estimates the number of elements of a value; 0 if it is not a tensor.
    pub(super) fn elements(&self, value: ValueId) -> u64 {
        let Some((_, dims)) = self.tensor(value) else { return 0 };
        dims.iter().flatten().fold(1u64, |all, size| all.saturating_mul(nominal(size)))
    }

    /// Chooses the devices of a node that is computed whole: those of an annotated operand, else
    /// those of its largest input that is not on all devices, if they are in the node's stage, else
    /// the devices of the stage. A node without any of these runs on all devices.
    fn devices_of(&mut self, node: NodeId, wishes: &Wishes) -> Vec<Device> {
        let asked = wishes.outputs.iter().chain(&wishes.inputs).flatten().next();
        if let Some(form) = asked {
            return self.plan.form(*form).devices().collect();
        }
        let stage = wishes.stage.and_then(|stage| self.stages.get(&stage).cloned());
        let mut largest: Option<(u64, Vec<Device>)> = None;
        let mut values: Vec<ValueId> = self.reads_of(node).into_iter().collect();
        values.sort_unstable();
        for value in values {
            let form = self.current(value);
            if form == self.everywhere {
                continue;
            }
            let bytes = self.bytes(value);
            if largest.as_ref().is_none_or(|(most, _)| bytes > *most) {
                largest = Some((bytes, self.plan.form(form).devices().collect()));
            }
        }
        match (largest, stage) {
            (Some((_, devices)), None) => devices,
            (Some((_, devices)), Some(stage)) if devices.iter().all(|one| stage.contains(one)) => {
                devices
            }
            (_, Some(stage)) => stage.into_iter().collect(),
            (None, None) => self.all().collect(),
        }
    }

    /// Adds the step of a node, after moves of its inputs to the forms in which it reads them.
    fn compute(
        &mut self,
        node: NodeId,
        assignment: Assignment,
        rule: Option<&Factors>,
        wishes: &Wishes,
    ) {
        let whole = self.number(Form::whole(assignment.places.keys().copied()));
        let rule = rule.filter(|_| assignment.is_cut());
        let inputs: Vec<Option<ValueId>> = self.plan.model.inputs(node).collect();
        let outputs: Vec<Option<ValueId>> = self.plan.model.outputs(node).to_vec();
        let changes = rule.map_or_else(Vec::new, |rule| rule.changes.clone());
        let mut left = Vec::with_capacity(outputs.len());
        for (index, value) in outputs.iter().enumerate() {
            left.push(
                value
                    .map(|value| self.operand_form(value, whole, &assignment, rule, (true, index))),
            );
        }
        let mut read = Vec::with_capacity(inputs.len());
        for (index, value) in inputs.iter().enumerate() {
            let Some(value) = value else {
                read.push(None);
                continue;
            };
            let mut form = self.operand_form(*value, whole, &assignment, rule, (false, index));
            let is_once =
                |change: &Change| matches!(change, Change::Once { input, .. } if *input == index);
            if changes.iter().any(is_once)
                && let Some(Some(left)) = left.first()
            {
                form = self.only_first(form, *left);
            }
            self.need(*value, form);
            read.push(Some(form));
        }
        let mut captured = Vec::new();
        for value in self.reads_of(node) {
            if !inputs.contains(&Some(value)) {
                self.need(value, whole);
                captured.push((value, whole));
            }
        }
        captured.sort_unstable();
        let is_partial =
            left.iter().flatten().any(|form| self.plan.form(*form).partial().is_some());
        let partly = changes.iter().find_map(|change| match change {
            Change::Partly { operator, then } if is_partial => Some((*operator, *then)),
            _ => None,
        });
        let divisor: usize = rule.map_or(1, |rule| {
            let summed =
                rule.factors.iter().filter(|factor| matches!(factor.cut, Cut::Combined(_)));
            summed.filter_map(|factor| factor.size.size()).product()
        });
        self.note_columns(node, (&inputs, &read), (&outputs, &left));
        let computed = Computed {
            node,
            inputs: read,
            outputs: left.clone(),
            captured,
            changes,
            assignment,
            bodies: None,
        };
        match (partly, outputs.first().copied().flatten(), left.first().copied().flatten()) {
            (Some((operator, then)), Some(output), Some(form)) => {
                self.compute_partly(computed, operator, (then, divisor), output, form);
            }
            _ => {
                self.run(computed);
            }
        }
        self.leave(node, wishes);
    }

    /// Adds the step of a node and records the forms of its outputs.
    pub(super) fn run(&mut self, computed: Computed) {
        let outputs = self.plan.model.outputs(computed.node).iter().zip(&computed.outputs);
        let outputs = outputs.filter_map(|(value, form)| Some(((*value)?, vec![(*form)?])));
        self.forms_of.extend(outputs);
        self.plan.steps.push(Step::Node(computed));
    }

    /// Moves the outputs of a node to the forms that its annotation requests.
    pub(super) fn leave(&mut self, node: NodeId, wishes: &Wishes) {
        let outputs = self.plan.model.outputs(node).to_vec();
        for (value, form) in outputs.iter().zip(&wishes.outputs) {
            if let (Some(value), Some(form)) = (value, form) {
                self.need(*value, *form);
                self.preferred.insert(*value, *form);
            }
        }
    }

    /// Records the products that cause the splits of a node's outputs, in a search for annotations.
    fn note_columns(
        &mut self,
        node: NodeId,
        inputs: (&[Option<ValueId>], &[Option<FormId>]),
        outputs: (&[Option<ValueId>], &[Option<FormId>]),
    ) {
        let Some(columns) = &mut self.columns else { return };
        let plan = &self.plan;
        let split = |(values, forms): (&[Option<ValueId>], &[Option<FormId>])| {
            let both = values.iter().zip(forms).filter_map(|(value, form)| (*value).zip(*form));
            let is_split = |form: &FormId| {
                let form = plan.form(*form);
                !form.is_whole() && form.partial().is_none()
            };
            both.filter(|(_, form)| is_split(form)).map(|(value, _)| value).collect::<Vec<_>>()
        };
        columns.note(node, &split(inputs), &split(outputs));
    }

    /// Returns the form in which a node reads an input or computes an output.
    fn operand_form(
        &mut self,
        value: ValueId,
        whole: FormId,
        assignment: &Assignment,
        rule: Option<&Factors>,
        (is_output, index): (bool, usize),
    ) -> FormId {
        let is_sized = self.tensor(value).is_some_and(|(_, dims)| dims.is_some());
        let Some(rule) = rule.filter(|_| is_sized) else { return whole };
        let axes = if is_output { &rule.outputs[index] } else { &rule.inputs[index] };
        self.number(form_of(rule, axes, assignment, is_output))
    }

    /// Returns `form` restricted to the devices that have the first partial result of `partial`.
    pub(super) fn only_first(&mut self, form: FormId, partial: FormId) -> FormId {
        let partial = self.plan.form(partial);
        let first = partial.devices().filter(|device| partial.partial_of(*device) == 0);
        let first: BTreeSet<Device> = first.collect();
        let only = self.plan.form(form).only_on(&first);
        self.number(only)
    }

    /// Adds the step of a node that computes partial results with another operator, and of a new
    /// node that computes the result from the combined ones. A mean, for example, becomes a sum and
    /// a division.
    fn compute_partly(
        &mut self,
        computed: Computed,
        operator: &str,
        (then, divisor): (Then, usize),
        output: ValueId,
        form: FormId,
    ) {
        let node = computed.node;
        let Some((elem, dims)) = self.tensor(output) else { return };
        let model = &mut self.plan.model;
        let graph = model.node(node).graph;
        let raw = model.add_value(graph, "partial");
        model.redefine_output(node, 0, raw);
        let op_type = Some(model.intern(operator));
        model.node_mut(node).op_type = op_type;
        let (op, operand) = match then {
            Then::Sqrt => ("Sqrt", None),
            Then::Log => ("Log", None),
            Then::Divide => ("Div", Some(divisor)),
        };
        let mut inputs = vec![Some(raw)];
        if let Some(number) = operand {
            let number = scalar(elem, number as f64);
            let constant = model.add_initializer(graph, "count", &number);
            let dims = number.dims().iter().map(|size| Dim::from(*size)).collect();
            self.plan.added.insert(constant, (elem, Some(dims)));
            inputs.push(Some(constant));
        }
        let model = &mut self.plan.model;
        let last = model.add_node(graph, op, "", &inputs, 1);
        model.redefine_output(last, 0, output);
        self.plan.added.insert(raw, (elem, dims));
        self.plan.steps.push(Step::Node(computed));
        self.forms_of.insert(raw, vec![form]);
        let combined = self.plan.form(form).combined();
        let devices: BTreeSet<Device> = combined.devices().collect();
        let combined = self.number(combined);
        self.need(raw, combined);
        let whole = self.number(Form::whole(devices.iter().copied()));
        let inputs = inputs.iter().enumerate();
        let inputs = inputs.map(|(index, _)| Some(if index == 0 { combined } else { whole }));
        let inputs: Vec<_> = inputs.collect();
        let constant = self.plan.model.inputs(last).nth(1).flatten();
        if let Some(constant) = constant {
            self.need(constant, whole);
        }
        self.plan.steps.push(Step::Node(Computed {
            node: last,
            inputs,
            outputs: vec![Some(combined)],
            captured: Vec::new(),
            changes: Vec::new(),
            assignment: Assignment::whole(devices),
            bodies: None,
        }));
        self.forms_of.insert(output, vec![combined]);
    }
}

/// Splits each factor that is a whole axis of an operand into the factors that `form` has for this
/// axis.
fn refine(rule: &mut Factors, (is_output, index): (bool, usize), form: &Form) {
    for (axis, splits) in form.axes().iter().enumerate().filter(|(_, splits)| splits.len() > 1) {
        let axes = if is_output { &rule.outputs[index] } else { &rule.inputs[index] };
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

/// Returns the devices that a specification lists, with groups expanded.
fn devices_of<'s>(spec: &'s ShardingSpec<'_>) -> impl Iterator<Item = i64> + 's {
    spec.devices.iter().flat_map(|entry| match spec.groups.get(entry) {
        Some(group) => group.clone(),
        None => vec![*entry],
    })
}

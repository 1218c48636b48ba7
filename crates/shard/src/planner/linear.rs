//! Linear nodes on partial sums, which allow two partial sums to be combined as one.
//!
//! A partial sum is usually combined before a node reads it. If two partial sums are transposed or
//! scaled and then added, it takes half the messages when each device adds its own two sums first
//! and only the result is combined. A first plan shows which values are partial sums. In a second
//! plan, the nodes between two partial sums and their addition run on partial sums. Other operands
//! of an addition are added once: by the devices that have the first partial sum.

use hashbrown::{HashMap, HashSet};
use sardonyx_model::{NodeId, ValueId};
use sardonyx_ops::{Change, Combine, Linear};
use sardonyx_tensor::DataType;

use super::Planner;
use crate::assign::Assignment;
use crate::form::{Device, Form};
use crate::plan::{Computed, FormId, Plan, Step};
use crate::prepare::Prepared;
use crate::typed::TypedModel;

/// Node that can compute a partial sum from partial sums.
struct OnSums {
    node: NodeId,
    /// Inputs of the node that are or can be partial sums.
    sums: Vec<ValueId>,
}

/// Returns the nodes of a plan that can run on partial sums so that two of these are combined as
/// one.
pub(crate) fn find_nodes(plan: &Plan, prepared: &Prepared) -> HashSet<NodeId> {
    let model = prepared.resolved.model();
    let mut forms = partial_sums(plan);
    let mut on_sums: HashMap<ValueId, OnSums> = HashMap::new();
    let mut joined = Vec::new();
    for node in prepared.resolved.order().iter().copied() {
        let [Some(output)] = *model.outputs(node) else { continue };
        let linear = prepared.linear(node);
        let is_annotated = prepared.annotation(node).is_some();
        if linear == Linear::No || forms.contains_key(&output) || is_annotated {
            continue;
        }
        // No other node reads the value, so that no other node needs it combined.
        let is_free = |value: &ValueId| {
            forms.contains_key(value)
                && !model.value(*value).is_output
                && model.uses(*value).count() == 1
        };
        let inputs = model.inputs(node).enumerate();
        let sums = inputs.filter_map(|(index, value)| Some((index, value.filter(is_free)?)));
        let sums: Vec<(usize, ValueId)> = sums.collect();
        let Some((first, value)) = sums.first().copied() else { continue };
        let fits = match linear {
            Linear::No => false,
            Linear::First => first == 0 && sums.len() == 1,
            Linear::Factor => sums.len() == 1,
            Linear::Sum(_) => true,
        };
        let sums: Vec<ValueId> = sums.into_iter().map(|(_, value)| value).collect();
        let form = forms[&value];
        let is_alike = |value: &ValueId| forms[value] == form;
        // If the output is larger than all partial sums, it is cheaper to combine these first.
        let grows = sums.iter().all(|value| plan.typed.bits(*value) < plan.typed.bits(output));
        if !fits || grows || !sums.iter().all(is_alike) || !plan.typed.can_be_sum(output) {
            continue;
        }
        forms.insert(output, form);
        joined.extend((sums.len() > 1).then_some(output));
        on_sums.insert(output, OnSums { node, sums });
    }
    let mut found = HashSet::new();
    while let Some(value) = joined.pop() {
        if let Some(OnSums { node, sums }) = on_sums.get(&value)
            && found.insert(*node)
        {
            joined.extend(sums);
        }
    }
    found
}

/// Returns the outputs of nodes that are partial sums, with their forms.
fn partial_sums(plan: &Plan) -> HashMap<ValueId, FormId> {
    let mut forms = HashMap::new();
    for step in plan.steps() {
        let Step::Node(computed) = step else { continue };
        let outputs = plan.model().outputs(computed.node).iter().zip(&computed.outputs);
        for (value, form) in outputs {
            if let (Some(value), Some(form)) = (value, form)
                && plan.typed.is_sum(*value, plan.form(*form))
            {
                forms.insert(*value, *form);
            }
        }
    }
    forms
}

impl Prepared {
    /// Returns the rule by which the result of a node follows from partial sums.
    fn linear(&self, node: NodeId) -> Linear {
        let op = self.resolved.op(node);
        let op = op.filter(|op| op.schema.since == op.def.newest());
        op.map_or(Linear::No, |op| op.def.linear())
    }
}

impl TypedModel {
    /// Whether a linear node on partial sums of a value has a valid result: sums of narrow floats
    /// may overflow, and integer division rounds.
    fn can_be_sum(&self, value: ValueId) -> bool {
        let elem = self.tensor(value).map(|(elem, _)| elem);
        matches!(elem, Some(DataType::Float | DataType::Double))
    }

    /// Whether a form has partial sums of a value, each of the size of the whole value.
    fn is_sum(&self, value: ValueId, form: &Form) -> bool {
        let is_sum = matches!(form.partial(), Some((Combine::Sum, _)));
        is_sum && form.axes().is_empty() && self.can_be_sum(value)
    }
}

impl Planner<'_> {
    /// Places a node on partial sums, if it was chosen for that and its inputs are partial sums.
    /// Returns whether it did.
    pub(super) fn place_on_sums(&mut self, node: NodeId) -> bool {
        if self.typed.model.outputs(node).len() != 1 || !self.on_sums.contains(&node) {
            return false;
        }
        let inputs: Vec<Option<ValueId>> = self.typed.model.inputs(node).collect();
        let partial = |value: ValueId| {
            let form = self.locations.computed(value)?;
            self.typed.is_sum(value, self.forms.get(form)).then_some(form)
        };
        let partial: Vec<Option<FormId>> =
            inputs.iter().map(|value| value.and_then(partial)).collect();
        let Some(form) = partial.iter().flatten().next().copied() else { return false };
        let linear = self.prepared.linear(node);
        let count = partial.iter().flatten().count();
        let fits = match linear {
            Linear::No => false,
            Linear::First => count == 1 && partial[0].is_some(),
            Linear::Factor => count == 1,
            Linear::Sum(_) => partial.iter().flatten().all(|own| *own == form),
        };
        if !fits {
            return false;
        }
        let devices: Vec<Device> = self.forms.get(form).devices().collect();
        let whole = self.forms.whole(devices.iter().copied());
        let once = self.forms.only_first(whole, form);
        let (mut read, mut changes) = (Vec::with_capacity(inputs.len()), Vec::new());
        for (index, (value, partial)) in inputs.iter().zip(&partial).enumerate() {
            let own = match (partial, linear) {
                (Some(form), _) => *form,
                (None, Linear::Sum(rest)) => {
                    let rest = rest.get(index).or(rest.last()).copied();
                    changes.push(Change::Once { input: index, rest });
                    once
                }
                _ => whole,
            };
            if let (Some(value), None) = (value, partial) {
                self.need(*value, own);
            }
            read.push(value.map(|_| own));
        }
        self.run(Computed {
            node,
            inputs: read,
            outputs: vec![Some(form)],
            captured: Vec::new(),
            changes,
            assignment: Assignment::whole(devices),
            bodies: None,
        });
        true
    }
}

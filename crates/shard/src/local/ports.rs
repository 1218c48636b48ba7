//! Inputs, outputs and constants of the model of a device.

use hashbrown::HashSet;
use sardonyx_model::{Model, Type, ValueId};
use sardonyx_passes::declaration;
use sardonyx_passes::order::tree;

use super::Building;
use crate::plan::FormId;

impl Building<'_> {
    /// Declares the types of residents, which are the device's parts, and of inputs with
    /// initializers, which the plan has inferred: symbols in their declarations may stand for other
    /// sizes elsewhere. Other inputs keep the types of the model, as a branch that is not taken may
    /// contradict the types of a run.
    pub(super) fn declare_inputs(&mut self) {
        let plan = self.plan;
        let graph = plan.model().graph(self.graph);
        let has_default =
            |input: &ValueId| graph.initializers.iter().any(|one| one.value == Some(*input));
        let inputs = graph.inputs.iter().filter_map(|info| info.value).filter(has_default);
        let whole = inputs.filter_map(|input| Some((input, plan.typed.ty(input)?.clone())));
        let whole: Vec<(ValueId, Type)> = whole.filter(|(_, ty)| ty.shape().is_some()).collect();
        for (input, ty) in whole.into_iter().chain(plan.parts_on(self.device)) {
            let ty = declaration(&mut self.model, &ty);
            let inputs = &mut self.model.graph_mut(self.graph).inputs;
            if let Some(info) = inputs.iter_mut().find(|info| info.value == Some(input)) {
                info.ty = Some(ty);
            }
        }
    }

    /// Sets the outputs of the local model: outputs of the whole model that the device returns, its
    /// parts of new values of residents, and values that keep exchanges alive. Returns the indices
    /// of the outputs for each output of the whole model and for each resident.
    pub(super) fn outputs(&mut self) -> (Vec<Option<usize>>, Vec<Option<usize>>) {
        self.model.retain_outputs(self.graph, |_, _| false);
        let mut left: Vec<ValueId> = Vec::new();
        let mut place = |(value, form): (ValueId, FormId)| {
            let held = self.held(value, form);
            left.iter().position(|known| *known == held).unwrap_or_else(|| {
                left.push(held);
                left.len() - 1
            })
        };
        let given = self.plan.outputs.iter().map(|given| {
            let own = given.filter(|given| self.plan.gives(*given, self.device))?;
            Some(place((own.value, own.form)))
        });
        let given = given.collect();
        let kept = self.plan.kept.iter().map(|kept| {
            let own = kept.new.filter(|(_, form)| self.is_on(*form))?;
            Some(place(own))
        });
        let kept = kept.collect();
        left.append(&mut self.take_tokens());
        for value in left {
            self.model.add_graph_output(self.graph, value);
        }
        (given, kept)
    }

    /// Removes inputs and constants that the device does not read.
    pub(super) fn drop_unread(&mut self) {
        self.drop_unread_constants();
        let inputs: Vec<ValueId> =
            self.model.graph(self.graph).inputs.iter().filter_map(|info| info.value).collect();
        let is_needed =
            |model: &Model, value: ValueId| model.is_read(value) || model.value(value).is_output;
        let kept: HashSet<ValueId> =
            inputs.iter().copied().filter(|value| is_needed(&self.model, *value)).collect();
        self.model.retain_inputs(self.graph, |info| {
            info.value.is_some_and(|value| kept.contains(&value))
        });
    }

    /// Removes constants that the device does not read.
    pub(crate) fn drop_unread_constants(&mut self) {
        for graph in tree(&self.model, self.graph) {
            self.model.retain_initializers(graph, |model, initializer| {
                let is_needed =
                    |value: ValueId| model.is_read(value) || model.value(value).is_output;
                initializer.value.is_some_and(is_needed)
            });
        }
    }
}

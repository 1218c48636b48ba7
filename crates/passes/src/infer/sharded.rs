//! Axes of shardings compared with the inferred ranks of their tensors.

use hashbrown::HashSet;
use sardonyx_model::{GraphId, Model, NodeId, TypeKind, ValueId};

use super::Inference;
use crate::annotations::{ShardingSpec, annotations};
use crate::codes;
use crate::finding::{Code, Findings, Severity, Spot};
use crate::order::tree;

impl Inference {
    /// Adds a finding for each sharding of an axis that its tensor does not have, if only inference
    /// knows the rank. The check without types compares declared ranks.
    pub fn sharded_axes(
        &self,
        model: &Model,
        found: &mut Findings,
        level: impl Fn(&'static Code) -> Option<Severity>,
    ) {
        let code = &codes::SHARDED_AXIS;
        let (Some(severity), Some(main)) = (level(code), model.main) else { return };
        // A node refers to a configuration of the model.
        if model.header.configuration.is_empty() {
            return;
        }
        // Ranks in a function's body differ between calls.
        for graph in tree(model, main) {
            for node in &model.graph(graph).nodes {
                for (index, annotation) in annotations(model, *node).enumerate() {
                    let facts = annotation.specs.iter();
                    let facts = facts.filter_map(|spec| self.wrong_axis(model, *node, spec));
                    for fact in facts {
                        let spot = Spot::node(*node).item("device_configurations", index);
                        found.add(model, code, severity, spot, || (fact, code.help.into()));
                    }
                }
            }
        }
    }

    /// Describes an axis that the tensor of a sharding does not have, or a duplicate axis.
    fn wrong_axis(&self, model: &Model, node: NodeId, spec: &ShardingSpec<'_>) -> Option<String> {
        let operands = model.inputs(node).chain(model.outputs(node).iter().copied());
        let mut operands = operands.flatten();
        let value = operands.find(|value| model.text(model.value(*value).name) == spec.tensor)?;
        let rank = self.ty(value)?.shape()?.len();
        let count = i64::try_from(rank).ok()?;
        let mut seen = HashSet::new();
        let fact = spec.dims.iter().filter_map(|dim| dim.axis).find_map(|axis| {
            if !(-count..count).contains(&axis) {
                return Some(format!(
                    "axis {axis} is out of range: the tensor has {rank} dimensions"
                ));
            }
            let from_front = if axis < 0 { axis + count } else { axis };
            (!seen.insert(from_front)).then(|| format!("axis {axis} is split twice"))
        })?;
        (!declares_rank(model, model.node(node).graph, value)).then_some(fact)
    }
}

/// Whether a graph declares the rank of a value.
fn declares_rank(model: &Model, graph: GraphId, value: ValueId) -> bool {
    let graph = model.graph(graph);
    let has_shape =
        |kind: Option<&TypeKind>| matches!(kind, Some(TypeKind::Tensor { shape: Some(_), .. }));
    let infos = graph.inputs.iter().chain(&graph.outputs).chain(&graph.value_info);
    let mut infos = infos.filter(|info| info.value == Some(value));
    infos.any(|info| has_shape(info.ty.as_ref().and_then(|ty| ty.kind.as_ref())))
        || graph.initializers.iter().any(|own| own.value == Some(value))
}

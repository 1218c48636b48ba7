//! Integers that shapes are computed with: known ones become constants, equal ones are computed
//! once.

use hashbrown::HashMap;
use sardonyx_model::{Dim, GraphId, ValueId};
use sardonyx_ops::Known;
use sardonyx_ops::operators::CONSTANT;
use sardonyx_tensor::DataType;

use super::constants::become_constant;
use super::rule::SIZES;
use super::{Job, Scope, is_plain};
use crate::infer::Inference;
use crate::order::inner_graphs;

/// Element type, sizes and elements of a value of symbolic integers.
type Symbolic = (DataType, Vec<usize>, Vec<Dim>);

impl Job<'_> {
    /// Makes constants of integers that are known, and lets readers of equal symbolic integers read
    /// the first value that has them.
    pub(super) fn compute_sizes(&mut self, scope: Scope, inference: &Inference) -> usize {
        let main = self.resolved.main();
        let mut first: Vec<HashMap<Symbolic, ValueId>> = Vec::new();
        let count = self.sizes_of(scope, main, inference, &mut first);
        self.note(SIZES.name, count, 0);
        count
    }

    fn sizes_of(
        &mut self,
        scope: Scope,
        graph: GraphId,
        inference: &Inference,
        first: &mut Vec<HashMap<Symbolic, ValueId>>,
    ) -> usize {
        let mut count = 0;
        first.push(HashMap::new());
        for node in self.resolved.order_of(graph).to_vec() {
            let inner: Vec<GraphId> = inner_graphs(self.resolved.model(), node).collect();
            for graph in inner {
                count += self.sizes_of(scope, graph, inference, first);
            }
            let model = self.resolved.model();
            let [Some(value)] = *model.outputs(node) else { continue };
            if self.resolved.is(node, &CONSTANT) || self.resolved.op(node).is_none() {
                continue;
            }
            let Some(found @ Known::Ints { elem, dims, values }) = inference.known(value) else {
                continue;
            };
            if let Some(tensor) = found.to_tensor() {
                // Inference also tracks whole floats, such as those of a small weight.
                if is_plain(model, node) && !self.must_stay_computed(inference, value) {
                    become_constant(&mut self.resolved, node, tensor, scope.opset);
                    count += 1;
                }
                continue;
            }
            // Of floats, the sign of a zero is not known.
            if values.iter().any(Dim::is_unknown) || elem.is_float() || values.is_empty() {
                continue;
            }
            let key: Symbolic = (*elem, dims.to_vec(), values.clone());
            match first.iter().rev().find_map(|scope| scope.get(&key)).copied() {
                Some(before) => {
                    if model.uses(value).next().is_some() {
                        self.resolved.model_mut().replace_uses(value, before, None);
                        count += 1;
                    }
                }
                None => {
                    first.last_mut().map(|scope| scope.insert(key, value));
                }
            }
        }
        first.pop();
        count
    }
}

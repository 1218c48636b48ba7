//! Costs of function bodies, computed during inference while the types of a call are known.

use std::cell::RefCell;

use hashbrown::HashMap;
use sardonyx_model::{Bindings, Model, NodeId};
use sardonyx_ops::Registry;

use super::sum::Sum;
use super::walk::Walk;
use crate::infer::Inference;

/// Costs of the calls of functions. Inference fills the table.
#[derive(Debug, Default)]
pub struct CallCosts {
    bodies: RefCell<Vec<BodyCost>>,
    /// Index of the last call of each node, which belongs to the last pass over the graph around
    /// it.
    of: RefCell<HashMap<NodeId, usize>>,
}

/// Cost of the body of a function in one call.
#[derive(Debug, Clone)]
pub(super) struct BodyCost {
    pub(super) multiply_adds: Sum,
    pub(super) elements: Sum,
    pub(super) peak: Sum,
    pub(super) bodies_counted_once: usize,
}

impl CallCosts {
    /// Records the cost of a function's body whose types were just inferred, and returns its index.
    pub(crate) fn record_call(
        &self,
        model: &Model,
        registry: &Registry,
        found: &Inference,
        function: usize,
        bindings: &Bindings,
    ) -> usize {
        let function = &model.functions[function];
        let walk = Walk::new(model, registry, found, self, &function.opset_import);
        let cost = walk.in_call(bindings).cost_of(function.body);
        let mut bodies = self.bodies.borrow_mut();
        bodies.push(BodyCost {
            multiply_adds: cost.total.multiply_adds,
            elements: cost.total.elements,
            peak: cost.peak.bytes,
            bodies_counted_once: cost.bodies_counted_once,
        });
        bodies.len() - 1
    }

    /// Records that a node makes the call with an index.
    pub(crate) fn is_made_by(&self, node: NodeId, call: usize) {
        self.of.borrow_mut().insert(node, call);
    }

    /// Returns the cost of the call that a node makes.
    pub(super) fn of(&self, node: NodeId) -> Option<BodyCost> {
        let index = *self.of.borrow().get(&node)?;
        self.bodies.borrow().get(index).cloned()
    }
}

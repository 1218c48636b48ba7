//! State of the search for products that can be split by columns.

use std::collections::BTreeSet;

use hashbrown::{HashMap, HashSet};
use sardonyx_model::{NodeId, ValueId};

/// Products that a plan splits by columns, and the values that are split because of them.
#[derive(Default)]
pub(crate) struct Columns {
    /// Products that are not to be split.
    declined: HashSet<NodeId>,
    /// Products that are split in the plan.
    chosen: BTreeSet<NodeId>,
    /// Products whose split each value has.
    from: HashMap<ValueId, BTreeSet<NodeId>>,
}

impl Columns {
    pub(super) fn new(declined: &HashSet<NodeId>) -> Columns {
        Columns { declined: declined.clone(), ..Columns::default() }
    }

    /// Whether a product is not to be split.
    pub(crate) fn is_declined(&self, product: NodeId) -> bool {
        self.declined.contains(&product)
    }

    /// Records that the plan splits a product by columns.
    pub(crate) fn choose(&mut self, product: NodeId) {
        self.chosen.insert(product);
    }

    /// Records the products from which the splits of a node's outputs come.
    pub(crate) fn note(
        &mut self,
        node: NodeId,
        split_inputs: &[ValueId],
        split_outputs: &[ValueId],
    ) {
        let mut from: BTreeSet<NodeId> =
            split_inputs.iter().flat_map(|value| self.products_of(*value)).collect();
        from.extend(self.chosen.get(&node));
        for value in split_outputs {
            self.from.insert(*value, from.clone());
        }
    }

    /// Returns the products whose split a value has.
    pub(super) fn products_of(&self, value: ValueId) -> impl Iterator<Item = NodeId> + '_ {
        self.from.get(&value).into_iter().flatten().copied()
    }
}

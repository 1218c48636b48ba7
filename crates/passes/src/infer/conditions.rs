//! Conditions under which results over open sizes hold for the numbers that replace them.

use sardonyx_model::{Computed, Dim, Formula, Formulas, Id, Type, ValueId};
use sardonyx_ops::Demand;

use super::Inference;

/// Conditions on the numbers that replace [`super::InferOptions::sizes`], under which the results
/// over open sizes equal those over the numbers: the conditions of nodes, and that no tensor is
/// empty.
#[derive(Debug)]
pub struct Conditions {
    /// Sizes of all values.
    dims: Vec<Formula>,
    demands: Vec<Condition>,
}

/// Condition on the numbers of formulas.
#[derive(Debug)]
enum Condition {
    Equal(Formula, Formula),
    Broadcast(Formula, Formula),
    BroadcastTo(Formula, Formula),
    NotNegative(Formula),
}

impl Conditions {
    /// Collects the conditions of the results for `values` values of a model, as formulas over the
    /// open sizes. `None` if one is too large.
    pub fn new(
        inference: &Inference,
        values: usize,
        formulas: &mut Formulas,
    ) -> Option<Conditions> {
        // Rules about a dimension hold for tensors with elements. Values that a program does not
        // keep count too.
        let types = (0..values).filter_map(|value| inference.ty(ValueId::new(value)));
        let dims = types.filter_map(Type::shape).flatten();
        let dims = dims.filter(|dim| dim.known().is_none());
        let mut dims: Vec<Formula> = dims.filter_map(|dim| formulas.add(dim)).collect();
        dims.sort_unstable();
        dims.dedup();
        let demands = inference.demands().iter().map(|demand| condition(demand, formulas));
        Some(Conditions { dims, demands: demands.collect::<Option<_>>()? })
    }

    /// Whether the conditions hold.
    pub fn hold(&self, computed: &Computed) -> bool {
        let number = |formula: &Formula| computed.number(*formula);
        // Sizes of empty tensors may differ from the formulas: a division by 0 elements has no
        // result.
        self.dims.iter().all(|dim| number(dim) > 0)
            && self.demands.iter().all(|condition| match condition {
                Condition::Equal(a, b) => number(a) == number(b),
                Condition::Broadcast(a, b) => {
                    number(a) == number(b) || number(a) == 1 || number(b) == 1
                }
                Condition::BroadcastTo(from, to) => number(from) == number(to) || number(from) == 1,
                Condition::NotNegative(dim) => number(dim) >= 0,
            })
    }
}

/// Converts a demand to formulas; `None` if it is too large.
fn condition(demand: &Demand, formulas: &mut Formulas) -> Option<Condition> {
    let mut add = |dim: &Dim| formulas.add(dim);
    Some(match demand {
        Demand::Equal(a, b) => Condition::Equal(add(a)?, add(b)?),
        Demand::Broadcast(a, b) => Condition::Broadcast(add(a)?, add(b)?),
        Demand::BroadcastTo(from, to) => Condition::BroadcastTo(add(from)?, add(to)?),
        Demand::NotNegative(dim) => Condition::NotNegative(add(dim)?),
    })
}

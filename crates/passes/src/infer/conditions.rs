//! When what inference says over open sizes holds for numbers in their place.

use sardonyx_model::{Computed, Dim, Formula, Formulas, Id, Type, ValueId};
use sardonyx_ops::Demand;

use super::Inference;

/// What must hold of numbers in the place of [`super::InferOptions::sizes`], so that what inference
/// says over these is what it would say of the numbers: what nodes demand, and that no tensor is
/// empty.
#[derive(Debug)]
pub struct Conditions {
    /// The sizes of all values.
    dims: Vec<Formula>,
    demands: Vec<Condition>,
}

/// What must hold of the numbers of formulas.
#[derive(Debug)]
enum Condition {
    Equal(Formula, Formula),
    Broadcast(Formula, Formula),
    BroadcastTo(Formula, Formula),
    NotNegative(Formula),
}

impl Conditions {
    /// The conditions of what inference says of so many values of a model, from formulas over the
    /// open sizes. `None` if one is too large to be looked at.
    pub fn new(
        inference: &Inference,
        values: usize,
        formulas: &mut Formulas,
    ) -> Option<Conditions> {
        // Rules say of a dimension what holds where there are elements. Values that a program does
        // not keep count as well.
        let types = (0..values).filter_map(|value| inference.ty(ValueId::new(value)));
        let dims = types.filter_map(Type::shape).flatten();
        let dims = dims.filter(|dim| dim.known().is_none());
        let mut dims: Vec<Formula> = dims.filter_map(|dim| formulas.add(dim)).collect();
        dims.sort_unstable();
        dims.dedup();
        let demands = inference.demands().iter().map(|demand| condition(demand, formulas));
        Some(Conditions { dims, demands: demands.collect::<Option<_>>()? })
    }

    /// Whether they hold.
    pub fn hold(&self, computed: &Computed) -> bool {
        let number = |formula: &Formula| computed.number(*formula);
        // Of nothing at all, sizes need not be what they are of something: 0 divides by nothing.
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

/// `None` if the demand is too large to be looked at.
fn condition(demand: &Demand, formulas: &mut Formulas) -> Option<Condition> {
    let mut add = |dim: &Dim| formulas.add(dim);
    Some(match demand {
        Demand::Equal(a, b) => Condition::Equal(add(a)?, add(b)?),
        Demand::Broadcast(a, b) => Condition::Broadcast(add(a)?, add(b)?),
        Demand::BroadcastTo(from, to) => Condition::BroadcastTo(add(from)?, add(to)?),
        Demand::NotNegative(dim) => Condition::NotNegative(add(dim)?),
    })
}

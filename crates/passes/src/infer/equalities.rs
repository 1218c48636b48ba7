//! Conditions of nodes on sizes: equality of two expressions.

use hashbrown::{HashMap, HashSet};
use sardonyx_model::{Dim, NodeId, Type};
use sardonyx_ops::Demand;

/// Two sizes that a node requires to be equal, or it fails when it runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Equality {
    /// The node.
    pub node: NodeId,
    /// First size.
    pub left: Dim,
    /// Second size.
    pub right: Dim,
}

/// Maximum number of equalities of each kind. Each solved one adds work for all following types.
const MOST: usize = 1000;

/// Symbols that are replaced by other sizes.
#[derive(Debug, Default)]
pub(super) struct Equalities {
    /// Replacement of each symbol. No replaced symbol occurs in a replacement.
    replaced: HashMap<String, Dim>,
    learned: Vec<Equality>,
    /// Equalities that cannot be solved for a symbol, without duplicates.
    unsolved: HashSet<(Dim, Dim)>,
}

impl Equalities {
    pub(super) fn is_empty(&self) -> bool {
        self.replaced.is_empty()
    }

    /// Returns the number of replaced symbols.
    pub(super) fn count(&self) -> usize {
        self.replaced.len()
    }

    /// Learns that two sizes are equal. Of two symbols it replaces the one for which `is_ours`
    /// holds, else one that is not among `sizes`, else the later one in the alphabet: any order
    /// works as long as it is deterministic.
    pub(super) fn learn(
        &mut self,
        node: NodeId,
        a: &Dim,
        b: &Dim,
        sizes: Option<&HashSet<String>>,
        is_ours: impl Fn(&str) -> bool,
    ) {
        let (left, right) = (self.apply(a), self.apply(b));
        if left == right || left.is_unknown() || right.is_unknown() {
            return;
        }
        let goes = |name: &str| is_ours(name) || sizes.is_some_and(|sizes| !sizes.contains(name));
        match left.sub(&right).solve_for_zero(&goes) {
            Some((symbol, value)) => {
                if self.replaced.len() < MOST && value.known().is_none_or(|value| value >= 0) {
                    let only = |name: &str| (name == symbol).then(|| value.clone());
                    for known in self.replaced.values_mut() {
                        *known = known.substitute(&only);
                    }
                    if !is_ours(&symbol) {
                        self.learned.push(Equality { node, left, right });
                    }
                    self.replaced.insert(symbol, value);
                }
            }
            // It does not determine other sizes, but users may need it as a condition on their
            // data.
            None => {
                let is_known = left.known().is_some() && right.known().is_some();
                let mut symbols = left.symbols().into_iter().chain(right.symbols());
                let has_ours = symbols.any(|symbol| is_ours(&symbol));
                let is_worth_it = !is_known && !has_ours && self.unsolved.len() < MOST;
                if is_worth_it && self.unsolved.insert((left.clone(), right.clone())) {
                    self.learned.push(Equality { node, left, right });
                }
            }
        }
    }

    /// Replaces the symbols of a size.
    pub(super) fn apply(&self, dim: &Dim) -> Dim {
        match dim {
            Dim::Expr(_) if !self.is_empty() => {
                dim.substitute(&|name| self.replaced.get(name).cloned())
            }
            _ => dim.clone(),
        }
    }

    /// Replaces the symbols in all sizes of a type.
    pub(super) fn apply_to(&self, ty: &mut Type) {
        if !self.is_empty() {
            ty.for_each_dim(&mut |dim| {
                if let Dim::Expr(_) = dim {
                    *dim = self.apply(dim);
                }
            });
        }
    }

    /// Expresses a size in terms of `sizes`, as far as equalities allow. These themselves are not
    /// replaced, even if they are equal to others.
    fn in_terms_of(&self, sizes: &HashSet<String>, dim: &Dim) -> Dim {
        dim.substitute(&|name| self.replaced.get(name).filter(|_| !sizes.contains(name)).cloned())
    }

    pub(super) fn into_learned(self) -> Vec<Equality> {
        self.learned
    }
}

/// Returns the demands that only involve `sizes`, in a deterministic order.
pub(super) fn over_sizes(
    demands: HashSet<Demand>,
    equalities: &Equalities,
    sizes: &HashSet<String>,
) -> Vec<Demand> {
    let in_terms = |dim: &Dim| equalities.in_terms_of(sizes, dim);
    let is_over_sizes = |dim: &Dim| dim.symbols().iter().all(|name| sizes.contains(name));
    let demands = demands.into_iter().map(|demand| match demand {
        Demand::Equal(a, b) => Demand::Equal(in_terms(&a), in_terms(&b)),
        Demand::Broadcast(a, b) => Demand::Broadcast(in_terms(&a), in_terms(&b)),
        Demand::BroadcastTo(from, to) => Demand::BroadcastTo(in_terms(&from), in_terms(&to)),
        Demand::NotNegative(dim) => Demand::NotNegative(in_terms(&dim)),
    });
    let mut demands: Vec<Demand> = demands
        .filter(|demand| match demand {
            Demand::Equal(a, b) | Demand::Broadcast(a, b) | Demand::BroadcastTo(a, b) => {
                is_over_sizes(a) && is_over_sizes(b)
            }
            Demand::NotNegative(dim) => is_over_sizes(dim),
        })
        .collect();
    demands.sort();
    demands.dedup();
    demands
}

//! What nodes demand of sizes: that two expressions are equal.

use std::collections::{HashMap, HashSet};

use sardonyx_model::{Dim, NodeId, Type};

/// Two sizes that a node demands to be equal, or it fails when it runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Equality {
    /// The node.
    pub node: NodeId,
    /// One size.
    pub left: Dim,
    /// The other.
    pub right: Dim,
}

/// Equalities kept of each kind. One that was solved costs work for every type that follows.
const MOST: usize = 1000;

/// Symbols that others stand for.
#[derive(Debug, Default)]
pub(super) struct Equalities {
    /// What a symbol is known to be. No replaced symbol occurs in what replaces others.
    replaced: HashMap<String, Dim>,
    learned: Vec<Equality>,
    /// Equalities that no symbol can be solved for, each listed once.
    unsolved: HashSet<(Dim, Dim)>,
}

impl Equalities {
    pub(super) fn is_empty(&self) -> bool {
        self.replaced.is_empty()
    }

    /// Learns that two sizes are equal. Of two symbols the one that `is_ours` goes, else the one
    /// that is named later in the alphabet: any order will do, as long as it is the same in every
    /// run.
    pub(super) fn learn(&mut self, node: NodeId, a: &Dim, b: &Dim, is_ours: impl Fn(&str) -> bool) {
        let (left, right) = (self.apply(a), self.apply(b));
        if left == right || left.is_unknown() || right.is_unknown() {
            return;
        }
        match left.sub(&right).solve_for_zero(&is_ours) {
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
            // It says nothing about other sizes, but people may want to know what their data must
            // be like.
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

    /// A size with symbols replaced by what they are known to be.
    pub(super) fn apply(&self, dim: &Dim) -> Dim {
        match dim {
            Dim::Expr(_) if !self.is_empty() => {
                dim.substitute(&|name| self.replaced.get(name).cloned())
            }
            _ => dim.clone(),
        }
    }

    /// The same for all sizes in a type.
    pub(super) fn apply_to(&self, ty: &mut Type) {
        if !self.is_empty() {
            ty.for_each_dim(&mut |dim| {
                if let Dim::Expr(_) = dim {
                    *dim = self.apply(dim);
                }
            });
        }
    }

    pub(super) fn into_learned(self) -> Vec<Equality> {
        self.learned
    }
}

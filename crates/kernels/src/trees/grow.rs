//! Conversion of described trees to nodes in the order of walks.

use super::walk::{Check, Forest, Key, LANES, Node, Tree};
use super::{Ensemble, Next, Split, Test};

/// Reason why trees cannot be grown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Two branches lead to this split: it is in a cycle, or in two trees.
    TwoWays(usize),
    /// No branch leads to this split.
    NoWay(usize),
    /// There are more nodes than 31 bits can count.
    TooMany,
}

/// Creates the nodes of all trees, level by level, with both children of a node side by side.
pub(super) fn grow_forest<K: Key>(
    ensemble: &Ensemble,
    columns: &[usize],
) -> Result<Forest<K>, Fault> {
    let most = ensemble.splits.len().saturating_mul(2).saturating_add(ensemble.roots.len());
    let planes = 1 + usize::from(ensemble.splits.iter().any(|split| plane(split) == 1));
    let slots = planes * columns.len().max(1);
    if most > i32::MAX as usize || slots > i32::MAX as usize / LANES {
        return Err(Fault::TooMany);
    }
    let mut made = Forest {
        nodes: Vec::with_capacity(most),
        leaf: Vec::with_capacity(most),
        trees: Vec::with_capacity(ensemble.roots.len()),
        checks: Vec::new(),
        members: Vec::new(),
        slots,
        steps: 0,
    };
    if ensemble.splits.iter().any(|split| !is_order(split.test)) {
        made.checks.reserve_exact(most);
    }
    let (todo, seen) = (Vec::new(), vec![false; ensemble.splits.len()]);
    let mut growth = Growth { ensemble, columns, made, todo, seen };
    for root in &ensemble.roots {
        growth.grow_tree(*root)?;
    }
    match growth.seen.iter().position(|seen| !seen) {
        Some(split) if ensemble.is_whole => Err(Fault::NoWay(split)),
        _ => Ok(growth.made),
    }
}

/// State of [`grow_forest`].
struct Growth<'a, K> {
    ensemble: &'a Ensemble,
    /// Columns that some node reads, in ascending order.
    columns: &'a [usize],
    /// Trees so far.
    made: Forest<K>,
    /// Targets of the branches to the nodes of the current tree, level by level.
    todo: Vec<Next>,
    /// Whether each split is in a tree.
    seen: Vec<bool>,
}

impl<K: Key> Growth<'_, K> {
    /// Adds the tree with this root.
    fn grow_tree(&mut self, root: Next) -> Result<(), Fault> {
        let Growth { ensemble, columns, made, todo, seen } = self;
        let start = made.nodes.len();
        todo.clear();
        todo.push(root);
        let (mut at, mut level_end, mut depth, mut is_plain) = (0, 1, 0, true);
        while at < todo.len() {
            if at == level_end {
                (level_end, depth) = (todo.len(), depth + 1);
            }
            let child = (start + todo.len()) as u32;
            match todo[at] {
                Next::Leaf(leaf) => {
                    assert!(leaf + 1 < ensemble.leaves.len(), "a leaf that there is");
                    made.nodes.push(Node { key: K::LEAF, slot: 0, child: (start + at) as u32 });
                    made.leaf.push(leaf as u32);
                    if made.checks.capacity() > 0 {
                        made.checks.push(Check::Leaf);
                    }
                }
                Next::Split(place) => {
                    if std::mem::replace(&mut seen[place], true) {
                        return Err(Fault::TwoWays(place));
                    }
                    let split = &ensemble.splits[place];
                    let (key, check, is_swapped) = make_check(split, ensemble, &mut made.members);
                    let column = columns.binary_search(&split.feature).expect("all are listed");
                    let slot = ((column + plane(split) * columns.len()) * LANES) as u32;
                    made.nodes.push(Node { key, slot, child });
                    made.leaf.push(0);
                    if made.checks.capacity() > 0 {
                        made.checks.push(check);
                    }
                    is_plain &= matches!(check, Check::Less);
                    let (first, second) = match is_swapped {
                        Swapped::No => (split.on_false, split.on_true),
                        Swapped::Yes => (split.on_true, split.on_false),
                    };
                    todo.extend([first, second]);
                }
            }
            at += 1;
        }
        made.steps += depth as usize + 1;
        made.trees.push(Tree { root: start as u32, depth, is_plain });
        Ok(())
    }
}

/// Whether the check of a node is the opposite of the split's test.
enum Swapped {
    No,
    Yes,
}

/// Returns the key that a feature's key is compared with, and the comparison for which the second
/// child is next if it holds.
fn make_check<K: Key>(
    split: &Split,
    ensemble: &Ensemble,
    sets: &mut Vec<Vec<K>>,
) -> (K, Check, Swapped) {
    let threshold = split.threshold;
    // No number compares with NaN: only the least key, that of missing features in the second
    // plane, is below `NEVER`, and all keys but the greatest, that of missing features in the first
    // plane, are below `MISSING`.
    let unless_nan = |key: K, other: K| if threshold.is_nan() { other } else { key };
    let (key, above) = (K::from_number(threshold), K::from_number(threshold).successor());
    match split.test {
        Test::Less => (unless_nan(key, K::NEVER), Check::Less, Swapped::No),
        Test::LessOrEqual => (unless_nan(above, K::NEVER), Check::Less, Swapped::No),
        Test::GreaterOrEqual => (unless_nan(key, K::MISSING), Check::Less, Swapped::Yes),
        Test::Greater => (unless_nan(above, K::MISSING), Check::Less, Swapped::Yes),
        Test::Equal => (unless_nan(key, K::NEVER), Check::Equal, Swapped::No),
        Test::NotEqual => (unless_nan(key, K::NEVER), Check::Equal, Swapped::Yes),
        Test::Member(from, to) => {
            let members = ensemble.members[from..to].iter().filter(|member| !member.is_nan());
            let mut set: Vec<K> = members.map(|member| K::from_number(*member)).collect();
            set.sort_unstable();
            sets.push(set);
            (K::place(sets.len() - 1), Check::Member, Swapped::No)
        }
    }
}

/// Returns the plane of keys that the node reads: 0, where missing features have the greatest key,
/// or 1, where they have the least.
fn plane(split: &Split) -> usize {
    // A check with the least key always holds, so that the second child is next.
    let is_swapped = matches!(split.test, Test::GreaterOrEqual | Test::Greater | Test::NotEqual);
    usize::from(split.missing != is_swapped)
}

/// Whether the test compares by order.
fn is_order(test: Test) -> bool {
    matches!(test, Test::Less | Test::LessOrEqual | Test::GreaterOrEqual | Test::Greater)
}

//! Walks from roots to leaves.

use super::{Aggregate, Trees};

/// Geometry: walks that advance together.
pub(super) const LANES: usize = 8;

/// Geometry: steps between two tests whether all walks have ended.
const STEPS: u32 = 4;

/// Choice: most rows of an incomplete group that are walked one by one, through eight trees
/// together.
const FEW: usize = 3;

/// Integer with the order of floats.
pub(super) trait Key: Copy + Ord + Send + Sync + std::fmt::Debug {
    /// Key of leaves: no key is less.
    const LEAF: Self;
    /// Key that no number equals: only [`LEAF`](Key::LEAF) is less.
    const NEVER: Self;
    /// Key of NaN, greater than that of all numbers.
    const MISSING: Self;

    /// Returns the key of a number. Both zeros have one key.
    fn from_number(value: f64) -> Self;
    /// Returns the next greater key.
    fn successor(self) -> Self;
    /// Converts an index in a list to a key.
    fn place(place: usize) -> Self;
    /// Converts a key back to the index in a list.
    fn as_place(self) -> usize;
    /// Reinterprets integers of 64 bits as memory for keys.
    fn keys_in(words: &mut [u64]) -> &mut [Self];
}

macro_rules! key {
    ($key:ty, $signed:ty, $float:ty) => {
        impl Key for $key {
            const LEAF: Self = 0;
            const NEVER: Self = 1;
            const MISSING: Self = <$key>::MAX;

            #[inline(always)]
            fn from_number(value: f64) -> Self {
                if value.is_nan() {
                    return Self::MISSING;
                }
                let bits = (value as $float + 0.0).to_bits();
                let sign = bits as $signed >> (<$key>::BITS - 1);
                bits ^ (sign as $key | 1 << (<$key>::BITS - 1))
            }

            fn successor(self) -> Self {
                self.saturating_add(1)
            }

            fn place(place: usize) -> Self {
                place as $key
            }

            fn as_place(self) -> usize {
                self as usize
            }

            fn keys_in(words: &mut [u64]) -> &mut [Self] {
                let len = size_of_val(words) / size_of::<Self>();
                // SAFETY: the bytes are those of `words`, and a key needs no greater alignment.
                unsafe { std::slice::from_raw_parts_mut(words.as_mut_ptr().cast(), len) }
            }
        }
    };
}

key!(u32, i32, f32);
key!(u64, i64, f64);

/// Node of a tree.
#[derive(Clone, Copy, Debug)]
pub(super) struct Node<K> {
    /// Key that the feature's key is compared with.
    pub(super) key: K,
    /// Offset in a group's keys of those of its feature, for eight rows.
    pub(super) slot: u32,
    /// Index of the node that follows if the check fails; the one that follows if it holds is
    /// adjacent. A leaf has its own index.
    pub(super) child: u32,
}

/// Comparison of a feature's key with the node's key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Check {
    /// Less.
    Less,
    /// Equal, or the least key.
    Equal,
    /// Member of a set, or the least key.
    Member,
    /// Node is a leaf.
    Leaf,
}

/// Root and depth of a tree.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tree {
    pub(super) root: u32,
    /// Number of steps from the root to the deepest leaf.
    pub(super) depth: u32,
    /// Whether all checks are [`Check::Less`].
    pub(super) is_plain: bool,
}

/// Trees that are walked by keys. Each node's `child` is a valid index, and so is the next one
/// unless the node is a leaf; each `slot` is below `LANES * slots`.
#[derive(Debug)]
pub(super) struct Forest<K> {
    pub(super) nodes: Vec<Node<K>>,
    /// Index of the leaf, for each node that is one.
    pub(super) leaf: Vec<u32>,
    pub(super) trees: Vec<Tree>,
    /// Check of each node. Empty if all trees are plain.
    pub(super) checks: Vec<Check>,
    /// Sorted sets of [`Check::Member`].
    pub(super) members: Vec<Vec<K>>,
    /// Number of keys of a row.
    pub(super) slots: usize,
    /// Number of nodes on the path to a deepest leaf, summed over all trees.
    pub(super) steps: usize,
}

/// Columns of the features that become keys.
#[derive(Clone, Copy)]
pub(super) struct KeyReader<'a> {
    /// Columns that trees read.
    pub(super) columns: &'a [usize],
    /// Number of columns of a row.
    pub(super) width: usize,
    /// Number of keys of a row.
    pub(super) slots: usize,
    /// Whether there is a second plane, in which missing features have the least key.
    pub(super) planes: bool,
}

impl KeyReader<'_> {
    /// Writes the keys of the rows in `x`, in groups of eight rows, by slot and row.
    pub(super) fn keys<T: Copy, K: Key>(
        &self,
        x: &[T],
        number: impl Fn(T) -> f64 + Copy,
        keys: &mut [K],
    ) {
        if self.columns.is_empty() {
            return;
        }
        let groups = x.chunks(LANES * self.width).zip(keys.chunks_exact_mut(LANES * self.slots));
        for (x, keys) in groups {
            let (most, least) = keys.split_at_mut(LANES * self.columns.len());
            for (column, keys) in self.columns.iter().zip(most.chunks_exact_mut(LANES)) {
                for (row, key) in x.chunks_exact(self.width).zip(keys) {
                    *key = K::from_number(number(row[*column]));
                }
            }
            if self.planes {
                for (least, most) in least.iter_mut().zip(most) {
                    *least = if *most == K::MISSING { K::LEAF } else { *most };
                }
            }
        }
    }
}

impl<K: Key> Forest<K> {
    /// Combines the leaves of some rows, whose keys are given in groups of eight rows.
    pub(super) fn combine(
        &self,
        trees: &Trees,
        how: Aggregate,
        keys: &[K],
        rows: usize,
        sums: &mut [f64],
    ) {
        let targets = trees.targets;
        let per_group = LANES * self.slots;
        let tail = rows % LANES;
        let together = if tail <= FEW { rows - tail } else { rows };
        for tree in &self.trees {
            let groups =
                keys.chunks_exact(per_group).zip(sums.chunks_mut((LANES * targets).max(1)));
            for (keys, sums) in groups.take(together.div_ceil(LANES)) {
                let at = if tree.is_plain {
                    self.walk::<true>(keys, [tree.root; LANES], tree.depth)
                } else {
                    std::array::from_fn(|lane| self.walk_any(keys, tree, lane))
                };
                for (at, sums) in at.into_iter().zip(sums.chunks_exact_mut(targets.max(1))) {
                    how.combine(trees.weights_of(self.leaf[at as usize]), sums);
                }
            }
        }
        for row in together..rows {
            let keys = &keys[row / LANES * per_group..][..per_group];
            self.combine_row(trees, how, keys, row % LANES, &mut sums[row * targets..][..targets]);
        }
    }

    /// Combines the leaves of one row, walking through eight trees together.
    fn combine_row(
        &self,
        trees: &Trees,
        how: Aggregate,
        keys: &[K],
        lane: usize,
        sums: &mut [f64],
    ) {
        for several in self.trees.chunks(LANES) {
            let (mut at, mut depth) = ([several[0].root; LANES], 0);
            for (at, tree) in at.iter_mut().zip(several) {
                if tree.is_plain {
                    (*at, depth) = (tree.root, depth.max(tree.depth));
                } else {
                    // A leaf leads to itself, so the walk below does not change it.
                    *at = self.walk_any(keys, tree, lane);
                }
            }
            let at = self.walk::<false>(&keys[lane..], at, depth);
            for at in at.into_iter().take(several.len()) {
                how.combine(trees.weights_of(self.leaf[at as usize]), sums);
            }
        }
    }

    /// Walks through plain trees from eight nodes to leaves: with the keys of eight rows, or with
    /// those of one row.
    #[inline(always)]
    fn walk<const ROWS: bool>(&self, keys: &[K], mut at: [u32; LANES], depth: u32) -> [u32; LANES] {
        let least = if ROWS { LANES * self.slots } else { LANES * (self.slots - 1) + 1 };
        assert!(keys.len() >= least, "a key for each slot");
        let mut left = depth;
        while left > 0 {
            for _ in 0..left.min(STEPS) {
                for (lane, at) in at.iter_mut().enumerate() {
                    // SAFETY: roots are valid indices, and so are children; slots are below
                    // `LANES * slots`, in steps of `LANES`, and `keys` is long enough.
                    let (node, key) = unsafe {
                        let node = self.nodes.get_unchecked(*at as usize);
                        let lane = if ROWS { lane } else { 0 };
                        (node, *keys.get_unchecked(node.slot as usize + lane))
                    };
                    *at = node.child + u32::from(key < node.key);
                }
            }
            left = left.saturating_sub(STEPS);
            // SAFETY: `at` is the index of a root or a child, which are valid.
            let is_leaf =
                |at: &u32| unsafe { self.nodes.get_unchecked(*at as usize) }.key == K::LEAF;
            if left > 0 && at.iter().all(is_leaf) {
                break;
            }
        }
        at
    }

    /// Walks through a tree with any checks, for one row.
    fn walk_any(&self, keys: &[K], tree: &Tree, lane: usize) -> u32 {
        let mut at = tree.root as usize;
        loop {
            let node = &self.nodes[at];
            let key = keys[node.slot as usize + lane];
            let holds = match self.checks[at] {
                Check::Less => key < node.key,
                Check::Equal => key == node.key || key == K::LEAF,
                Check::Member => {
                    let set = &self.members[node.key.as_place()];
                    key == K::LEAF || set.binary_search(&key).is_ok()
                }
                Check::Leaf => return at as u32,
            };
            at = node.child as usize + usize::from(holds);
        }
    }
}

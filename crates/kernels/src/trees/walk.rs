//! Walks from roots to leaves.

use super::{Aggregate, Trees};

/// Geometry: walks that go on at the same time.
pub(super) const LANES: usize = 8;

/// Geometry: steps between two checks whether all walks have ended.
const STEPS: u32 = 4;

/// Choice: rows of the last eight that are walked one by one, through eight trees at the same time.
const FEW: usize = 3;

/// A float as an integer of the same order.
pub(super) trait Key: Copy + Ord + Send + Sync + std::fmt::Debug {
    /// What a leaf is compared with: nothing is less.
    const LEAF: Self;
    /// Only [`LEAF`](Key::LEAF) is less, and no number is equal.
    const NEVER: Self;
    /// Greater than any number: the key of NaN.
    const MISSING: Self;

    /// The key of a number. Both zeros have one.
    fn of(value: f64) -> Self;
    /// The next key.
    fn above(self) -> Self;
    /// A place in a list, in place of a key.
    fn place(place: usize) -> Self;
    /// That place.
    fn as_place(self) -> usize;
    /// Room for keys.
    fn keys_in(words: &mut [u64]) -> &mut [Self];
}

macro_rules! key {
    ($key:ty, $signed:ty, $float:ty) => {
        impl Key for $key {
            const LEAF: Self = 0;
            const NEVER: Self = 1;
            const MISSING: Self = <$key>::MAX;

            #[inline(always)]
            fn of(value: f64) -> Self {
                if value.is_nan() {
                    return Self::MISSING;
                }
                let bits = (value as $float + 0.0).to_bits();
                let sign = bits as $signed >> (<$key>::BITS - 1);
                bits ^ (sign as $key | 1 << (<$key>::BITS - 1))
            }

            fn above(self) -> Self {
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
                // SAFETY: the same bytes, as integers that need no greater alignment.
                unsafe { std::slice::from_raw_parts_mut(words.as_mut_ptr().cast(), len) }
            }
        }
    };
}

key!(u32, i32, f32);
key!(u64, i64, f64);

/// A node of a tree.
#[derive(Clone, Copy, Debug)]
pub(super) struct Node<K> {
    pub(super) key: K,
    /// Where the keys of its feature are, for eight rows.
    pub(super) slot: u32,
    /// The node that follows where the check fails. The one that follows where it holds is next to
    /// it. A leaf is its own.
    pub(super) child: u32,
}

/// What is asked at a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Check {
    Less,
    /// Equal, or the least.
    Equal,
    /// Among the members of a set, or the least.
    Member,
    Leaf,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Tree {
    pub(super) root: u32,
    /// Steps to its deepest leaf.
    pub(super) depth: u32,
    /// Whether all checks are [`Check::Less`].
    pub(super) is_plain: bool,
}

/// Trees that are walked by keys. Each node's `child` is a node and so is the one after it, unless
/// the node is a leaf; each `slot` is below `LANES * slots`.
#[derive(Debug)]
pub(super) struct Forest<K> {
    pub(super) nodes: Vec<Node<K>>,
    /// By node: the leaf that it is.
    pub(super) leaf: Vec<u32>,
    pub(super) trees: Vec<Tree>,
    /// By node: what is asked there. Empty where all trees are plain.
    pub(super) checks: Vec<Check>,
    /// Sets, sorted.
    pub(super) members: Vec<Vec<K>>,
    /// Keys that a row has.
    pub(super) slots: usize,
    /// Nodes from a root to a deepest leaf, of all trees together.
    pub(super) steps: usize,
}

/// How keys are read from rows.
#[derive(Clone, Copy)]
pub(super) struct Read<'a> {
    pub(super) columns: &'a [usize],
    /// Columns of a row.
    pub(super) width: usize,
    pub(super) slots: usize,
    /// Whether there is a plane in which what is missing is the least.
    pub(super) planes: bool,
}

impl Read<'_> {
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
                    *key = K::of(number(row[*column]));
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
    /// Combines the leaves of some rows, whose keys are given for eight at a time.
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
            self.row(trees, how, (keys, row % LANES), &mut sums[row * targets..][..targets]);
        }
    }

    /// The same for one row, through eight trees at a time.
    fn row(&self, trees: &Trees, how: Aggregate, (keys, lane): (&[K], usize), sums: &mut [f64]) {
        for several in self.trees.chunks(LANES) {
            let (mut at, mut depth) = ([several[0].root; LANES], 0);
            for (at, tree) in at.iter_mut().zip(several) {
                if tree.is_plain {
                    (*at, depth) = (tree.root, depth.max(tree.depth));
                } else {
                    // A leaf leads to itself.
                    *at = self.walk_any(keys, tree, lane);
                }
            }
            let at = self.walk::<false>(&keys[lane..], at, depth);
            for at in at.into_iter().take(several.len()) {
                how.combine(trees.weights_of(self.leaf[at as usize]), sums);
            }
        }
    }

    /// Eight walks from given nodes of plain trees, or from leaves: of eight rows, or of the first.
    #[inline(always)]
    fn walk<const ROWS: bool>(&self, keys: &[K], mut at: [u32; LANES], depth: u32) -> [u32; LANES] {
        let least = if ROWS { LANES * self.slots } else { LANES * (self.slots - 1) + 1 };
        assert!(keys.len() >= least, "a key for each slot");
        let mut left = depth;
        while left > 0 {
            for _ in 0..left.min(STEPS) {
                for (lane, at) in at.iter_mut().enumerate() {
                    // SAFETY: roots are nodes, and so is what follows a node; slots are below
                    // `LANES * slots`, in steps of `LANES`.
                    let (node, key) = unsafe {
                        let node = self.nodes.get_unchecked(*at as usize);
                        let lane = if ROWS { lane } else { 0 };
                        (node, *keys.get_unchecked(node.slot as usize + lane))
                    };
                    *at = node.child + u32::from(key < node.key);
                }
            }
            left = left.saturating_sub(STEPS);
            // SAFETY: as above.
            let is_leaf =
                |at: &u32| unsafe { self.nodes.get_unchecked(*at as usize) }.key == K::LEAF;
            if left > 0 && at.iter().all(is_leaf) {
                break;
            }
        }
        at
    }

    /// One walk of a tree of any checks.
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

//! Ensembles of decision trees: the sums of the leaves that the rows of a matrix lead to.
//!
//! Floats become integers of the same order, so that each comparison is `less`, and both children
//! of a node are adjacent, so that the result of the comparison is added to the index of the first.
//! So a step has no branch, and eight independent walks hide the latency of loads. A leaf leads to
//! itself: the number of steps is the depth of the deepest leaf, and every few steps there is a
//! test whether all walks have ended.
//!
//! Blocks of rows go through tree after tree: a tree and the keys of a block stay in the cache, and
//! the leaves of a row are combined in the order of the trees for each division of the rows.

mod finish;
mod grow;
mod walk;

use half::f16;

use crate::RowDims;
use sardonyx_simd::Level;
use sardonyx_simd::chunks::Shared;
use sardonyx_simd::{Ended, Exec, Operation, Pool, Work, split_even};

pub use finish::{Aggregate, Finish, Outputs, Scores};
pub use grow::Fault;
use walk::{Forest, Key, LANES};

#[cfg(test)]
mod tests;

/// Comparison of a feature with the threshold of its node, which comes second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Test {
    LessOrEqual,
    Less,
    GreaterOrEqual,
    Greater,
    Equal,
    NotEqual,
    /// Whether the feature is one of `Ensemble::members[from..to]`.
    Member(usize, usize),
}

/// Target of a branch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Index in `Ensemble::splits`.
    Split(usize),
    /// Index of a leaf.
    Leaf(usize),
}

/// Interior node.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Split {
    /// Column of the feature.
    pub feature: usize,
    pub test: Test,
    pub threshold: f64,
    /// Whether the test is true for NaN.
    pub missing: bool,
    pub on_true: Next,
    pub on_false: Next,
}

/// Description of trees.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Ensemble {
    pub splits: Vec<Split>,
    /// Sets of [`Test::Member`], one after the other.
    pub members: Vec<f64>,
    /// Index in `weights` of each leaf's first weight, and the end of the last leaf's.
    pub leaves: Vec<usize>,
    /// Targets and weights of leaves, one leaf after the other.
    pub weights: Vec<(usize, f64)>,
    /// Root of each tree.
    pub roots: Vec<Next>,
    /// Number of values of a row.
    pub targets: usize,
    /// Whether features or thresholds need 64 bits; else both are 32-bit floats or smaller.
    pub is_wide: bool,
    /// Whether each split must be in a tree.
    pub is_whole: bool,
}

/// Rows of features, one after the other.
#[derive(Clone, Copy, Debug)]
pub enum Rows<'a> {
    Half(&'a [f16]),
    Single(&'a [f32]),
    Double(&'a [f64]),
    Short(&'a [i32]),
    Long(&'a [i64]),
}

/// Scratch memory of [`Trees::predict`], of the lengths that [`Trees::scratch`] returns.
#[derive(Debug)]
pub struct TreeMemory<'a> {
    pub keys: &'a mut [u64],
    pub sums: &'a mut [f64],
}

/// Trees in the form in which they are walked.
#[derive(Debug)]
pub struct Trees {
    forest: AnyForest,
    /// Columns that some node reads, in ascending order.
    columns: Vec<usize>,
    /// Index in `weights` of each leaf's first weight, and the end of the last leaf's.
    leaves: Vec<usize>,
    /// Targets and weights of leaves.
    weights: Vec<(u32, f64)>,
    /// Number of values of a row.
    targets: usize,
}

/// Nodes with keys of 32 or 64 bits.
#[derive(Debug)]
enum AnyForest {
    Narrow(Forest<u32>),
    Wide(Forest<u64>),
}

/// Division of rows between threads, and scratch memory of a chunk.
#[derive(Clone, Copy, Debug)]
struct Division {
    /// Number of threads.
    threads: usize,
    /// Rows that go through the trees together: a multiple of [`LANES`].
    block: usize,
    /// Number of chunks.
    chunks: usize,
    /// Number of 64-bit integers for the keys of a block.
    keys: usize,
    /// Number of values of a block.
    sums: usize,
}

/// Cache: most bytes of keys, or of sums, of a block of rows. Four times as many are up to 7 %
/// slower with a second-level cache of 2 MB.
const BLOCK_BYTES: usize = 96 * 1024;

/// Work: most rows of a block.
const MOST_ROWS: usize = 1024;

/// Work: fewest rows for which loading all trees from a distant cache pays. Chunks for threads that
/// start late have at least as many.
const WORTH_ROWS: usize = 256;

impl Trees {
    /// Prepares trees.
    ///
    /// # Errors
    ///
    /// If two branches lead to one split, there are too many nodes, or a split that must be in a
    /// tree is in none.
    ///
    /// # Panics
    ///
    /// If the index of a split, leaf or target is out of range.
    pub fn grow(ensemble: &Ensemble) -> Result<Trees, Fault> {
        let mut columns: Vec<usize> = ensemble.splits.iter().map(|split| split.feature).collect();
        columns.sort_unstable();
        columns.dedup();
        let forest = if ensemble.is_wide {
            AnyForest::Wide(grow::grow_forest(ensemble, &columns)?)
        } else {
            AnyForest::Narrow(grow::grow_forest(ensemble, &columns)?)
        };
        let weights = ensemble.weights.iter().map(|(target, weight)| {
            assert!(*target < ensemble.targets, "a target that there is");
            (*target as u32, *weight)
        });
        Ok(Trees {
            forest,
            columns,
            leaves: ensemble.leaves.clone(),
            weights: weights.collect(),
            targets: ensemble.targets,
        })
    }

    /// Returns the number of trees.
    pub fn count(&self) -> usize {
        match &self.forest {
            AnyForest::Narrow(forest) => forest.trees.len(),
            AnyForest::Wide(forest) => forest.trees.len(),
        }
    }

    /// Returns the least number of columns that rows must have.
    pub fn columns(&self) -> usize {
        self.columns.last().map_or(0, |last| last + 1)
    }

    /// Returns the numbers of integers and floats of scratch memory that
    /// [`predict`](Trees::predict) needs for so many rows.
    pub fn scratch(&self, pool: &Pool, rows: usize) -> [usize; 2] {
        let cut = self.divide(pool, rows);
        [cut.keys, cut.sums].map(|len| len.saturating_mul(cut.chunks))
    }

    /// Combines the leaves that each row of `x`, with dims `[rows, columns]`, leads to.
    ///
    /// # Panics
    ///
    /// If lengths do not fit the dims, or there are fewer columns than the trees read.
    pub fn predict(
        &self,
        exec: &Exec<'_>,
        RowDims { count: rows, width: columns }: RowDims,
        x: Rows<'_>,
        finish: &Finish,
        out: Outputs<'_>,
        memory: TreeMemory<'_>,
    ) -> Result<(), Ended> {
        let TreeMemory { keys, sums } = memory;
        assert_eq!(x.len(), rows * columns, "the features have other dims");
        assert!(
            self.columns() <= columns || rows == 0,
            "the trees read columns that are not there"
        );
        let out = out.into_shared(rows, finish.columns(self.targets));
        let (cut, level) = (self.divide(exec.pool, rows), Level::new(exec.isa));
        let (keys, sums) = (Shared::new(keys), Shared::new(sums));
        exec.pool.run_on(cut.threads, cut.chunks, |chunk| {
            // SAFETY: each chunk has its own part.
            let keys = unsafe { keys.part(chunk * cut.keys, cut.keys) };
            // SAFETY: each chunk has its own part.
            let sums = unsafe { sums.part(chunk * cut.sums, cut.sums) };
            for block in split_even(rows.div_ceil(cut.block), cut.chunks, chunk) {
                let first = block * cut.block;
                let count = cut.block.min(rows - first);
                let sums = &mut sums[..count * self.targets];
                sums.fill(finish.start());
                match &self.forest {
                    AnyForest::Narrow(forest) => {
                        let keys = u32::keys_in(keys);
                        x.keys(forest, &self.columns, columns, first, count, keys);
                        forest.combine(self, finish.aggregate, keys, count, sums);
                    }
                    AnyForest::Wide(forest) => {
                        x.keys(forest, &self.columns, columns, first, count, keys);
                        forest.combine(self, finish.aggregate, keys, count, sums);
                    }
                }
                let block = finish::Block { trees: self.count(), targets: self.targets, first };
                finish.finish_rows(level, block, sums, &out);
            }
        })
    }

    /// Divides `rows` rows between threads.
    fn divide(&self, pool: &Pool, rows: usize) -> Division {
        let (steps, key_bytes) = match &self.forest {
            AnyForest::Narrow(forest) => (forest.steps, 4 * forest.slots),
            AnyForest::Wide(forest) => (forest.steps, 8 * forest.slots),
        };
        let per_row = key_bytes.max(8 * self.targets).max(1);
        let most = MOST_ROWS.min(BLOCK_BYTES / per_row).max(1);
        let work = Work::new(Operation::TreeStep, rows.saturating_mul(steps.max(1)));
        let parts = work.in_pieces(rows.div_ceil(LANES)).cut(pool);
        let per_thread = rows.div_ceil(parts.threads);
        let most_each = if parts.threads == 1 { 1 } else { parts.count / parts.threads };
        let each = (per_thread / WORTH_ROWS).clamp(1, most_each);
        let block = per_thread.div_ceil(each).clamp(1, most).next_multiple_of(LANES);
        Division {
            threads: parts.threads,
            block,
            chunks: rows.div_ceil(block).min(each * parts.threads),
            keys: (key_bytes.saturating_mul(block)).div_ceil(8),
            sums: block.saturating_mul(self.targets),
        }
    }

    /// Returns the targets and weights of a leaf.
    #[inline]
    fn weights_of(&self, leaf: u32) -> &[(u32, f64)] {
        &self.weights[self.leaves[leaf as usize]..self.leaves[leaf as usize + 1]]
    }
}

impl Rows<'_> {
    /// Returns the number of features in all rows.
    fn len(&self) -> usize {
        match self {
            Rows::Half(x) => x.len(),
            Rows::Single(x) => x.len(),
            Rows::Double(x) => x.len(),
            Rows::Short(x) => x.len(),
            Rows::Long(x) => x.len(),
        }
    }

    /// Writes the keys of `count` rows from row `first` on: in groups of eight rows, by slot and
    /// row.
    fn keys<K: Key>(
        self,
        forest: &Forest<K>,
        read: &[usize],
        columns: usize,
        first: usize,
        count: usize,
        keys: &mut [K],
    ) {
        let (from, to) = (first * columns, (first + count) * columns);
        let planes = forest.slots > read.len().max(1);
        let read = walk::KeyReader { columns: read, width: columns, slots: forest.slots, planes };
        match self {
            Rows::Half(x) => read.keys(&x[from..to], |x| x.to_f64(), keys),
            Rows::Single(x) => read.keys(&x[from..to], f64::from, keys),
            Rows::Double(x) => read.keys(&x[from..to], |x| x, keys),
            Rows::Short(x) => read.keys(&x[from..to], f64::from, keys),
            Rows::Long(x) => read.keys(&x[from..to], |x| x as f64, keys),
        }
    }
}

//! Ensembles of decision trees: what the leaves add up to that the rows of a matrix lead to.
//!
//! The one idea: floats become integers of the same order, so that each comparison is `less`, and
//! the two nodes after a node are neighbours, so that the result of the comparison is added to
//! where they are. A step has no branch then, and eight walks that do not depend on each other hide
//! what one waits for. Leaves lead to themselves: the number of steps is that of the deepest leaf,
//! and every few steps it is asked whether all walks have ended.
//!
//! Blocks of rows go through tree after tree: a tree and the keys of a block stay in the cache, and
//! the leaves of a row are combined in the order of the trees, however rows are split.

mod finish;
mod grow;
mod walk;

use half::f16;

use sardonyx_simd::Level;
use sardonyx_simd::chunks::Shared;
use sardonyx_simd::{Ended, Exec, Operation, Pool, Work, split_even};

pub use finish::{Aggregate, Finish, Outputs, Scores};
pub use grow::Fault;
use walk::{Forest, Key, LANES};

#[cfg(test)]
mod tests;

/// A comparison of a feature with the threshold of its node, which comes second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Test {
    LessOrEqual,
    Less,
    GreaterOrEqual,
    Greater,
    Equal,
    NotEqual,
    /// Whether the feature is one of `Ensemble::members`, from the first of these places to before
    /// the second.
    Member(usize, usize),
}

/// Where a way leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// To a place in `Ensemble::splits`.
    Split(usize),
    /// To a leaf.
    Leaf(usize),
}

/// An interior node.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Split {
    /// The column of the features.
    pub feature: usize,
    pub test: Test,
    pub threshold: f64,
    /// Whether NaN counts as true.
    pub missing: bool,
    pub on_true: Next,
    pub on_false: Next,
}

/// Trees as they are described.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Ensemble {
    pub splits: Vec<Split>,
    /// The sets of [`Test::Member`].
    pub members: Vec<f64>,
    /// By leaf: where its weights begin. One more than there are leaves.
    pub leaves: Vec<usize>,
    /// Targets and weights of leaves.
    pub weights: Vec<(usize, f64)>,
    /// Where each tree begins.
    pub roots: Vec<Next>,
    /// How many numbers there are for a row.
    pub targets: usize,
    /// Whether features or thresholds need 64 bits. Without, both are 32-bit floats or smaller.
    pub is_wide: bool,
    /// Whether each of the splits must be in a tree.
    pub is_whole: bool,
}

/// Rows of features, one after another.
#[derive(Clone, Copy, Debug)]
pub enum Rows<'a> {
    Half(&'a [f16]),
    Single(&'a [f32]),
    Double(&'a [f64]),
    Short(&'a [i32]),
    Long(&'a [i64]),
}

/// Trees as they are walked.
#[derive(Debug)]
pub struct Trees {
    forest: Kind,
    /// The columns that some node reads, in order.
    columns: Vec<usize>,
    /// By leaf: where its weights begin.
    leaves: Vec<usize>,
    weights: Vec<(u32, f64)>,
    targets: usize,
}

#[derive(Debug)]
enum Kind {
    Narrow(Forest<u32>),
    Wide(Forest<u64>),
}

/// How the rows of a call are cut, and the scratch memory of a chunk.
#[derive(Clone, Copy, Debug)]
struct Cut {
    threads: usize,
    /// Rows that go through the trees together: a multiple of `LANES`.
    block: usize,
    chunks: usize,
    /// Integers of 64 bits for the keys of a block.
    keys: usize,
    /// Numbers that a block has.
    sums: usize,
}

/// Cache: bytes of keys, or of sums, that a block of rows may have. Four times as many are up to 7
/// percent slower with a second-level cache of 2 MB.
const BLOCK_BYTES: usize = 96 * 1024;

/// Work: most rows of a block.
const MOST_ROWS: usize = 1024;

/// Work: rows for which reading all trees from a distant cache is worth it. Parts for threads that
/// start late have at least as many.
const WORTH_ROWS: usize = 256;

impl Trees {
    /// Prepares trees.
    ///
    /// # Errors
    ///
    /// If two ways lead to one split, if there are too many nodes, or if a split is in no tree
    /// where each must be.
    ///
    /// # Panics
    ///
    /// If a place, a leaf or a target is outside of what there is.
    pub fn grow(ensemble: &Ensemble) -> Result<Trees, Fault> {
        let mut columns: Vec<usize> = ensemble.splits.iter().map(|split| split.feature).collect();
        columns.sort_unstable();
        columns.dedup();
        let forest = if ensemble.is_wide {
            Kind::Wide(grow::forest(ensemble, &columns)?)
        } else {
            Kind::Narrow(grow::forest(ensemble, &columns)?)
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
            Kind::Narrow(forest) => forest.trees.len(),
            Kind::Wide(forest) => forest.trees.len(),
        }
    }

    /// Returns the least number of columns that rows must have.
    pub fn columns(&self) -> usize {
        self.columns.last().map_or(0, |last| last + 1)
    }

    /// Returns the numbers of integers and floats of scratch memory that
    /// [`predict`](Trees::predict) takes for that many rows.
    pub fn scratch(&self, pool: &Pool, rows: usize) -> [usize; 2] {
        let cut = self.cut(pool, rows);
        [cut.keys, cut.sums].map(|len| len.saturating_mul(cut.chunks))
    }

    /// Combines the leaves that each row of `x`, with dims `[rows, columns]`, leads to.
    ///
    /// # Panics
    ///
    /// If lengths do not fit the dims, or if there are fewer columns than the trees read.
    pub fn predict(
        &self,
        exec: &Exec<'_>,
        dims: [usize; 2],
        x: Rows<'_>,
        finish: &Finish,
        out: Outputs<'_>,
        (keys, sums): (&mut [u64], &mut [f64]),
    ) -> Result<(), Ended> {
        let [rows, columns] = dims;
        assert_eq!(x.len(), rows * columns, "the features have other dims");
        assert!(
            self.columns() <= columns || rows == 0,
            "the trees read columns that are not there"
        );
        let out = out.shared(rows, finish.columns(self.targets));
        let (cut, level) = (self.cut(exec.pool, rows), Level::new(exec.isa));
        let (keys, sums) = (Shared::new(keys), Shared::new(sums));
        exec.pool.run_on(cut.threads, cut.chunks, |chunk| {
            // SAFETY: each chunk has its own part.
            let keys = unsafe { keys.part(chunk * cut.keys, cut.keys) };
            // SAFETY: as above.
            let sums = unsafe { sums.part(chunk * cut.sums, cut.sums) };
            for block in split_even(rows.div_ceil(cut.block), cut.chunks, chunk) {
                let first = block * cut.block;
                let count = cut.block.min(rows - first);
                let sums = &mut sums[..count * self.targets];
                sums.fill(finish.start());
                match &self.forest {
                    Kind::Narrow(forest) => {
                        let keys = u32::keys_in(keys);
                        x.keys(forest, &self.columns, columns, first, count, keys);
                        forest.combine(self, finish.aggregate, keys, count, sums);
                    }
                    Kind::Wide(forest) => {
                        x.keys(forest, &self.columns, columns, first, count, keys);
                        forest.combine(self, finish.aggregate, keys, count, sums);
                    }
                }
                finish.rows(level, [self.count(), self.targets, first], sums, &out);
            }
        })
    }

    fn cut(&self, pool: &Pool, rows: usize) -> Cut {
        let (steps, key_bytes) = match &self.forest {
            Kind::Narrow(forest) => (forest.steps, 4 * forest.slots),
            Kind::Wide(forest) => (forest.steps, 8 * forest.slots),
        };
        let per_row = key_bytes.max(8 * self.targets).max(1);
        let most = MOST_ROWS.min(BLOCK_BYTES / per_row).max(1);
        let work = Work::new(Operation::TreeStep, rows.saturating_mul(steps.max(1)));
        let parts = work.in_pieces(rows.div_ceil(LANES)).cut(pool);
        let per_thread = rows.div_ceil(parts.threads);
        let most_each = if parts.threads == 1 { 1 } else { parts.count / parts.threads };
        let each = (per_thread / WORTH_ROWS).clamp(1, most_each);
        let block = per_thread.div_ceil(each).clamp(1, most).next_multiple_of(LANES);
        Cut {
            threads: parts.threads,
            block,
            chunks: rows.div_ceil(block).min(each * parts.threads),
            keys: (key_bytes.saturating_mul(block)).div_ceil(8),
            sums: block.saturating_mul(self.targets),
        }
    }

    /// Returns the weights of a leaf.
    #[inline]
    fn weights_of(&self, leaf: u32) -> &[(u32, f64)] {
        &self.weights[self.leaves[leaf as usize]..self.leaves[leaf as usize + 1]]
    }
}

impl Rows<'_> {
    fn len(&self) -> usize {
        match self {
            Rows::Half(x) => x.len(),
            Rows::Single(x) => x.len(),
            Rows::Double(x) => x.len(),
            Rows::Short(x) => x.len(),
            Rows::Long(x) => x.len(),
        }
    }

    /// Writes the keys of some rows, for each eight of them by slot and by row.
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
        let read = walk::Read { columns: read, width: columns, slots: forest.slots, planes };
        match self {
            Rows::Half(x) => read.keys(&x[from..to], |x| x.to_f64(), keys),
            Rows::Single(x) => read.keys(&x[from..to], f64::from, keys),
            Rows::Double(x) => read.keys(&x[from..to], |x| x, keys),
            Rows::Short(x) => read.keys(&x[from..to], f64::from, keys),
            Rows::Long(x) => read.keys(&x[from..to], |x| x as f64, keys),
        }
    }
}

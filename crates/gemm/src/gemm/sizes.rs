//! Decisions by the sizes of a product: its orientation, the operands that are packed first, and
//! the scratch memory for that.

use super::gemv::{self, Gemv};
use super::matrix::MatRef;
use super::pack::panel_width;
use sardonyx_simd::{Isa, Operation, Pool, Work};

/// Choice: most columns for which the transposed orientation is considered, which needs a copy of
/// its output in scratch memory.
pub(super) const TRANSPOSED_COLS: usize = 256;
/// Choice: most values per step of the narrow operand for which it is read in place.
pub(super) const NARROW: usize = 12;
/// Limit: most floats of B that are packed whole. The patches of a convolution can be a hundred
/// times as large as its operands.
const WHOLE_FLOATS: usize = 64 << 20;

/// Geometry: row stride in floats at which rows share a few sets of a first-level cache. Its ways
/// have 4 KB on every processor.
pub(super) const ALIASED: usize = 1024;

/// Ways in which products can read a matrix in memory in place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MatrixLayout {
    /// Whether products of few rows can read it in place.
    suits_few: bool,
    /// Whether tiles can read it in place as the narrow operand: the steps of a column are
    /// adjacent, and columns do not evict each other from the first-level cache.
    has_rows: bool,
}

impl MatrixLayout {
    /// Describes a matrix of steps by columns.
    pub(crate) fn from_matrix(matrix: &MatRef<'_>) -> MatrixLayout {
        let (step, column) = (matrix.row_stride(), matrix.col_stride());
        let has_rows = step == 1 && !column.is_multiple_of(ALIASED);
        MatrixLayout { suits_few: Gemv::suits(matrix), has_rows }
    }
}

/// Kind of memory in which an operand is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OperandKind {
    Panels,
    /// A matrix in memory.
    Matrix(MatrixLayout),
    Source,
}

/// Sizes of a product, and the kinds of its operands.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sizes {
    pub(crate) isa: Isa,
    pub(crate) m: usize,
    pub(crate) n: usize,
    pub(crate) k: usize,
    pub(crate) a: OperandKind,
    pub(crate) b: OperandKind,
    /// Whether B may be the narrow operand of tiles.
    pub(crate) may_turn: bool,
}

/// Operand with few rows or columns in a product that reads the other one once, in place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FewRows {
    /// A has few rows.
    Left,
    /// B has few columns, so that the transposed problem has few rows.
    Right,
}

/// Returns the number of threads that are worth using for a product of these sizes.
pub(super) fn count_threads(pool: &Pool, m: usize, n: usize, k: usize) -> usize {
    let macs = m.saturating_mul(n).saturating_mul(k);
    let values = m.saturating_mul(k).saturating_add(n.saturating_mul(k));
    let bytes = values.saturating_mul(size_of::<f32>());
    Work::new(Operation::MultiplyAdd, macs).with_bytes(bytes).threads(pool)
}

impl Sizes {
    /// Returns the side with very few rows or columns if the other operand is an unpacked matrix
    /// that such a product can read.
    pub(super) fn few_rows(&self) -> Option<FewRows> {
        match (self.a, self.b) {
            (OperandKind::Matrix(_), OperandKind::Matrix(MatrixLayout { suits_few: true, .. }))
                if self.m <= gemv::ROWS =>
            {
                Some(FewRows::Left)
            }
            (OperandKind::Matrix(MatrixLayout { suits_few: true, .. }), OperandKind::Matrix(_))
                if self.n <= gemv::ROWS =>
            {
                Some(FewRows::Right)
            }
            _ => None,
        }
    }

    /// Returns the number of threads that are worth using.
    pub(super) fn threads(&self, pool: &Pool) -> usize {
        count_threads(pool, self.m, self.n, self.k)
    }

    /// Whether to vectorize along the rows of C instead of its columns: when the last vector of a
    /// row would be mostly empty and rows fill vectors better, as with the 7 x 7 planes at the end
    /// of image networks.
    pub(super) fn prefers_transposed(&self) -> bool {
        if self.n > TRANSPOSED_COLS || !self.may_turn {
            return false;
        }
        let lanes = panel_width(self.isa) / 2;
        // Work in vector lanes for each orientation. Transposing the output costs extra, more so
        // when k is short.
        let normal = self.m * self.n.next_multiple_of(lanes);
        let transposed = self.n * self.m.next_multiple_of(lanes);
        let toll = self.m * self.n * 16 / self.k.max(1);
        transposed + toll + normal / 16 < normal
    }

    /// Whether all of A is packed before the product begins. Tiles read rows in place if they can;
    /// few rows are read once per column panel, which is cheaper than packing them with their
    /// padding.
    pub(super) fn packs_a(&self) -> bool {
        match self.a {
            OperandKind::Panels => false,
            OperandKind::Matrix(MatrixLayout { has_rows, .. }) => {
                (self.m > NARROW && !has_rows) || self.prefers_transposed()
            }
            OperandKind::Source => true,
        }
    }

    /// Returns the way in which B becomes panels.
    pub(super) fn packs_b(&self, threads: usize) -> PacksB {
        let transposed = self.prefers_transposed();
        match self.b {
            OperandKind::Panels => PacksB::Not,
            OperandKind::Matrix(_) if transposed && self.n <= NARROW => PacksB::Not,
            _ if !transposed && self.packs_locally(threads) => PacksB::ByChunk,
            _ => PacksB::Whole,
        }
    }

    /// Whether each chunk packs its own columns of B instead of all threads packing B first.
    fn packs_locally(&self, threads: usize) -> bool {
        let panels = self.n.div_ceil(panel_width(self.isa));
        threads == 1 || panels >= 8 * threads || self.n.saturating_mul(self.k) > WHOLE_FLOATS
    }

    /// Returns the floats of scratch memory that grow with the sizes: operands that are packed
    /// whole, and the copy of the output in the transposed orientation. Blocks that a thread packs
    /// for a chunk do not count: they have a fixed bound, less than a second-level cache.
    pub(crate) fn scratch_floats(&self, pool: &Pool) -> usize {
        if let Some(few) = self.few_rows() {
            let (rows, others) = match few {
                FewRows::Left => (self.m, self.n),
                FewRows::Right => (self.n, self.m),
            };
            // A single column of the matrix may be copied, too.
            return (rows + usize::from(others == 1)).saturating_mul(self.k);
        }
        let padded = |width: usize| width.next_multiple_of(panel_width(self.isa));
        let panels = |width: usize| padded(width).saturating_mul(self.k);
        let mut floats = 0usize;
        if self.packs_a() {
            floats = panels(self.m);
        }
        if self.packs_b(self.threads(pool)) == PacksB::Whole {
            floats = floats.saturating_add(panels(self.n));
        }
        if self.prefers_transposed() {
            floats = floats.saturating_add(padded(self.m).saturating_mul(padded(self.n)));
        }
        floats
    }
}

/// Way in which the right operand becomes panels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PacksB {
    /// B is panels already, or is read in place.
    Not,
    /// Each chunk packs its own columns.
    ByChunk,
    /// All threads pack all of B first.
    Whole,
}

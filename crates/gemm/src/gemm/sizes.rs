//! What the sizes of a product decide: how it is oriented, which operands are packed first, and the
//! scratch memory that takes.

use super::gemv::{self, Gemv};
use super::matrix::MatRef;
use super::pack::panel_width;
use sardonyx_simd::{Isa, Operation, Pool, Work};

/// Choice: most columns for which the transposed orientation is considered; it needs a copy of its
/// output in scratch.
pub(super) const TRANSPOSED_COLS: usize = 256;
/// Choice: most values of the narrow operand per step for which it is read where it lies.
pub(super) const NARROW: usize = 12;
/// Limit: most floats of B that are packed whole. The patches of a convolution can be a hundred
/// times as large as its operands.
const WHOLE_FLOATS: usize = 64 << 20;

/// Geometry: distance in floats at which rows fall into the same few sets of a first-level cache:
/// ways of 4 KB, on every processor.
pub(super) const ALIASED: usize = 1024;

/// How a matrix in memory lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Lies {
    /// Whether products of a few rows can read it there.
    suits_few: bool,
    /// Whether tiles can read it there as the narrow operand: the steps of a column are adjacent,
    /// and columns are found together in the first-level cache.
    has_rows: bool,
}

impl Lies {
    /// Of a matrix as steps by columns.
    pub(crate) fn of(matrix: &MatRef<'_>) -> Lies {
        let (step, column) = (matrix.row_stride(), matrix.col_stride());
        let has_rows = step == 1 && !column.is_multiple_of(ALIASED);
        Lies { suits_few: Gemv::suits(matrix), has_rows }
    }
}

/// The form in which an operand is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OperandKind {
    Panels,
    /// A matrix in memory.
    Matrix(Lies),
    Source,
}

/// The sizes of a product, and how its operands are given.
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

/// A product that reads a matrix once, where it lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FewRows {
    /// A has the few rows.
    Left,
    /// B has few columns: the transposed problem.
    Right,
}

/// How many threads are worth using for a product of m, n and k.
pub(super) fn threads(pool: &Pool, [m, n, k]: [usize; 3]) -> usize {
    let macs = m.saturating_mul(n).saturating_mul(k);
    let values = m.saturating_mul(k).saturating_add(n.saturating_mul(k));
    let bytes = values.saturating_mul(size_of::<f32>());
    Work::new(Operation::MultiplyAdd, macs).with_bytes(bytes).threads(pool)
}

impl Sizes {
    /// Whether this is a product of very few rows or columns with an unpacked matrix.
    pub(super) fn few_rows(&self) -> Option<FewRows> {
        match (self.a, self.b) {
            (OperandKind::Matrix(_), OperandKind::Matrix(Lies { suits_few: true, .. }))
                if self.m <= gemv::ROWS =>
            {
                Some(FewRows::Left)
            }
            (OperandKind::Matrix(Lies { suits_few: true, .. }), OperandKind::Matrix(_))
                if self.n <= gemv::ROWS =>
            {
                Some(FewRows::Right)
            }
            _ => None,
        }
    }

    pub(super) fn threads(&self, pool: &Pool) -> usize {
        threads(pool, [self.m, self.n, self.k])
    }

    /// Whether to vectorise along the rows of C instead of its columns: when the last vector of a
    /// row would be mostly empty and rows fill vectors better, as with the 7 x 7 planes at the end
    /// of image networks.
    pub(super) fn prefers_transposed(&self) -> bool {
        if self.n > TRANSPOSED_COLS || !self.may_turn {
            return false;
        }
        let lanes = panel_width(self.isa) / 2;
        // Work in vector lanes for each orientation; transposing the output costs extra, more so
        // when k is short.
        let normal = self.m * self.n.next_multiple_of(lanes);
        let transposed = self.n * self.m.next_multiple_of(lanes);
        let toll = self.m * self.n * 16 / self.k.max(1);
        transposed + toll + normal / 16 < normal
    }

    /// Whether all of A is packed before the product begins. Tiles read rows where they lie if they
    /// can; few rows are read once per column panel, which is cheaper than packing them with their
    /// padding.
    pub(super) fn packs_a(&self) -> bool {
        match self.a {
            OperandKind::Panels => false,
            OperandKind::Matrix(Lies { has_rows, .. }) => {
                (self.m > NARROW && !has_rows) || self.prefers_transposed()
            }
            OperandKind::Source => true,
        }
    }

    /// How B becomes panels.
    pub(super) fn packs_b(&self, threads: usize) -> PacksB {
        let transposed = self.prefers_transposed();
        match self.b {
            OperandKind::Panels => PacksB::Not,
            OperandKind::Matrix(_) if transposed && self.n <= NARROW => PacksB::Not,
            _ if !transposed && self.packs_locally(threads) => PacksB::ByChunk,
            _ => PacksB::Whole,
        }
    }

    fn packs_locally(&self, threads: usize) -> bool {
        let panels = self.n.div_ceil(panel_width(self.isa));
        threads == 1 || panels >= 8 * threads || self.n.saturating_mul(self.k) > WHOLE_FLOATS
    }

    /// Floats of scratch memory that grow with the sizes: operands that are packed whole, and the
    /// copy of the output in the transposed orientation. What a thread holds of a chunk is left
    /// out; it has a fixed bound, less than a second-level cache.
    pub(crate) fn scratch_floats(&self, pool: &Pool) -> usize {
        if let Some(few) = self.few_rows() {
            let (rows, others) = match few {
                FewRows::Left => (self.m, self.n),
                FewRows::Right => (self.n, self.m),
            };
            // A single column of the matrix may be copied too.
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

/// How the right operand becomes panels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PacksB {
    /// It is panels, or is read where it lies.
    Not,
    /// Each chunk packs its own columns.
    ByChunk,
    /// All threads pack all of it first.
    Whole,
}

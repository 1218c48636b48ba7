//! Products that read both operands in place: with a short inner axis, of few rows or small.
//!
//! Packing costs about as much as some ten rows of a product. Here a tile reads whole vectors of
//! rows of B in place, with masks at the end of a row. Groups of rows of C are written in order, so
//! that a large C is written front to back. A sum is one chain over k, as in a block of a packed
//! product, so that results have the same bits.

use std::ops::Range;

use super::blocked::KC;
use super::epilogue::TileEpilogue;
use super::matrix::MatRef;
use super::pack::SendPtr;
use super::tile::{TileEnd, finish_shared};
use sardonyx_simd::{Body, Ended, Isa, Pool, Simd, dispatch, split_even};

/// Choice: steps of an inner axis that count as short.
const SHORT: usize = 16;
/// Choice: rows of A up to which packing B does not pay, as each row would read it once.
const FEW_ROWS: usize = 16;
/// Choice: multiply-adds of a small product, which takes no longer than the calls around packing.
const SMALL: usize = 1 << 15;
/// Geometry: most rows of a tile: sums of two vectors fill 12 of 16 registers.
const ROWS: usize = 6;
/// Work: number of parts per thread.
const PARTS_PER_THREAD: usize = 4;
/// Work: fewest columns of a part.
const LEAST_COLUMNS: usize = 64;

/// A product of matrices in memory with checked sizes.
pub(super) struct Short<'a> {
    pub(super) isa: Isa,
    /// Left operand, m x k.
    pub(super) a: MatRef<'a>,
    /// Right operand, k x n, rows of adjacent elements.
    pub(super) b: MatRef<'a>,
    pub(super) c: SendPtr,
    pub(super) ldc: usize,
    pub(super) epilogue: TileEpilogue,
}

impl Short<'_> {
    /// Whether a product of `m` rows with `b` takes less time in place than packed.
    pub(super) fn suits(m: usize, b: &MatRef<'_>) -> bool {
        let (k, n) = (b.rows(), b.cols());
        let is_small = m.saturating_mul(n).saturating_mul(k) <= SMALL;
        let pays = k <= SHORT || m <= FEW_ROWS || is_small;
        k <= KC && b.col_stride() == 1 && pays
    }

    /// Computes the product.
    ///
    /// # Safety
    ///
    /// The demands of `Product::run` must hold.
    pub(super) unsafe fn run(&self, pool: &Pool, threads: usize) -> Result<(), Ended> {
        let (m, n) = (self.a.rows(), self.b.cols());
        let groups = m.div_ceil(ROWS);
        let wanted = if threads == 1 { 1 } else { threads * PARTS_PER_THREAD };
        let row_parts = groups.min(wanted);
        let blocks = n.div_ceil(LEAST_COLUMNS);
        let col_parts = wanted.div_ceil(row_parts).min(blocks);
        pool.run_on(threads, row_parts * col_parts, |part| {
            let groups = split_even(groups, row_parts, part % row_parts);
            let blocks = split_even(blocks, col_parts, part / row_parts);
            let rows = groups.start * ROWS..m.min(groups.end * ROWS);
            let cols = blocks.start * LEAST_COLUMNS..n.min(blocks.end * LEAST_COLUMNS);
            // SAFETY: the caller upholds the demands of `Product::run`; the machine has `isa`, and
            // the part owns this rectangle.
            unsafe { dispatch(self.isa, Part { product: self, rows, cols }) };
        })
    }
}

/// Some rows and columns of a product.
struct Part<'a> {
    product: &'a Short<'a>,
    rows: Range<usize>,
    cols: Range<usize>,
}

impl Body for Part<'_> {
    type Out = ();

    /// Computes the part.
    ///
    /// # Safety
    ///
    /// The demands of [`Short::run`] must hold.
    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        let Part { product: p, rows, cols } = self;
        let n = cols.end;
        let is_plain = p.epilogue.is_plain();
        let groups = rows.len().div_ceil(ROWS);
        for group in 0..groups {
            let group = split_even(rows.len(), groups, group);
            let first = rows.start + group.start;
            let mut col = cols.start;
            while col < n {
                let vectors = (n - col).div_ceil(S::LANES).min(2);
                let count = (n - col).min(vectors * S::LANES);
                let epilogue;
                let tile = InPlace {
                    k: p.b.rows(),
                    a: p.a.as_ptr().wrapping_add(first * p.a.row_stride()),
                    a_rs: p.a.row_stride(),
                    a_ks: p.a.col_stride(),
                    b: p.b.as_ptr().wrapping_add(col),
                    b_ks: p.b.row_stride(),
                    end: TileEnd {
                        c: p.c.get().wrapping_add(first * p.ldc + col),
                        ldc: p.ldc,
                        n: count,
                        epilogue: if is_plain {
                            std::ptr::null()
                        } else {
                            epilogue = p.epilogue.at(first, col);
                            &epilogue
                        },
                    },
                };
                // SAFETY: the caller upholds the demands of `Short::run`; the tile is inside the
                // part.
                unsafe { tile.run::<S>(group.len(), vectors) };
                col += count;
            }
        }
    }
}

/// A tile whose operands are read in place.
struct InPlace {
    k: usize,
    a: *const f32,
    a_rs: usize,
    a_ks: usize,
    b: *const f32,
    b_ks: usize,
    end: TileEnd,
}

impl InPlace {
    /// Computes a tile of some rows and vectors.
    ///
    /// # Safety
    ///
    /// The demands of [`Rows`] must hold.
    #[inline(always)]
    unsafe fn run<S: Simd>(&self, rows: usize, vectors: usize) {
        macro_rules! each {
            ($($rows:literal)*) => {
                match (rows, vectors) {
                    // SAFETY: the caller upholds the demands of `Rows`.
                    $(($rows, 1) => unsafe { S::call(Rows::<$rows, 1>(self)) },
                    // SAFETY: the caller upholds the demands of `Rows`.
                    ($rows, _) => unsafe { S::call(Rows::<$rows, 2>(self)) },)*
                    _ => {}
                }
            };
        }
        each!(1 2 3 4 5 6);
    }
}

/// `R` rows by `V` vectors of a tile.
struct Rows<'a, const R: usize, const V: usize>(&'a InPlace);

impl<const R: usize, const V: usize> Body for Rows<'_, R, V> {
    type Out = ();

    /// Computes the tile.
    ///
    /// # Safety
    ///
    /// `R` rows of A and as many columns of B as the output has must be readable: more than `V - 1`
    /// vectors and at most `V`.
    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        let t = self.0;
        // SAFETY: the caller has these rows and columns readable, and the output writable.
        unsafe {
            let mut sums = [[S::splat(0.0); V]; R];
            let (mut a, mut b) = (t.a, t.b);
            let last = S::first(t.end.n - (V - 1) * S::LANES);
            for _ in 0..t.k {
                let mut wide = [S::splat(0.0); V];
                for (v, wide) in wide.iter_mut().enumerate() {
                    let b = b.add(v * S::LANES);
                    *wide = if v + 1 < V { S::load(b) } else { S::load_m(b, last) };
                }
                for (r, sums) in sums.iter_mut().enumerate() {
                    let narrow = S::splat(*a.add(r * t.a_rs));
                    for (sum, wide) in sums.iter_mut().zip(&wide) {
                        *sum = S::fma(narrow, *wide, *sum);
                    }
                }
                a = a.wrapping_add(t.a_ks);
                b = b.wrapping_add(t.b_ks);
            }
            finish_shared::<S, R, V>(&t.end, &sums);
        }
    }
}

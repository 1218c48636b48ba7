//! Products of a few rows with a matrix in memory, at the speed of reading that matrix once.
//!
//! Packing would cost more than the product. The layout of the matrix selects one of two loops:
//!
//! - steps far apart, columns adjacent: multiples of rows of the matrix are added to a block of
//!   results that stays in the first-level cache, four rows at a time;
//! - steps adjacent: dot products in vector accumulators, four columns at a time.
//!
//! A product with a few *columns* is the transposed problem.

use super::blocked::FinishRow;
use super::epilogue::{ApplyFunction, TileEpilogue};
use super::matrix::MatRef;
use super::pack::SendPtr;
use sardonyx_simd::Isa;
use sardonyx_simd::buffer::with_scratch;
use sardonyx_simd::{Body, Ended, Simd, dispatch};
use sardonyx_simd::{Pool, split_even};

/// Sums: most rows of the left operand, whose sums are chains over all of k.
pub(super) const ROWS: usize = 4;
/// Cache: most columns of a block of results. `ROWS` rows of these, and four rows of the matrix,
/// fit a first-level cache of 32 KB. Larger blocks are not faster with one of 48 KB.
const BLOCK: usize = 1024;
/// Work: fewest columns of a chunk.
const MIN_BLOCK: usize = 64;

/// A product of few rows with checked sizes.
pub(super) struct Gemv<'a> {
    pub(super) isa: Isa,
    /// Left operand, m x k with m at most [`ROWS`].
    pub(super) x: MatRef<'a>,
    /// Right operand, k x n, with a stride of 1 unless it is a single column.
    pub(super) b: MatRef<'a>,
    pub(super) c: SendPtr,
    pub(super) ldc: usize,
    pub(super) epilogue: TileEpilogue,
    /// Whether the output is C transposed: n rows of m values, `ldc` apart.
    pub(super) transposed: bool,
}

impl Gemv<'_> {
    /// Whether there is a loop for the layout of `b`.
    pub(super) fn suits(b: &MatRef<'_>) -> bool {
        b.row_stride() == 1 || b.col_stride() == 1 || b.cols() == 1
    }

    /// Computes the product.
    ///
    /// # Safety
    ///
    /// The demands of `Product::run` must hold.
    pub(super) unsafe fn run(&self, pool: &Pool, threads: usize) -> Result<(), Ended> {
        let (m, n, k) = (self.x.rows(), self.b.cols(), self.b.rows());
        let most = n.div_ceil(MIN_BLOCK);
        let parts = n.div_ceil(BLOCK).max((threads * 4).min(most));
        let parts = if threads == 1 { n.div_ceil(BLOCK) } else { parts };
        // The stride of a single column is arbitrary, so it must not choose the order of sums.
        let dots = n == 1 || (self.b.row_stride() == 1 && self.b.col_stride() != 1);
        // Dot products read both operands as vectors.
        let x_copy = if dots && self.x.col_stride() != 1 { m * k } else { 0 };
        let b_copy = if dots && self.b.row_stride() != 1 { k } else { 0 };
        with_scratch(x_copy + b_copy, |buf| {
            let (x_buf, b_buf) = buf.split_at_mut(x_copy);
            let (mut x, mut matrix) = (self.x, self.b);
            if x_copy > 0 {
                for (i, row) in x_buf.chunks_exact_mut(k).enumerate() {
                    for (p, to) in row.iter_mut().enumerate() {
                        *to = self.x.get(i, p);
                    }
                }
                x = MatRef::row_major(x_buf, m, k);
            }
            if b_copy > 0 {
                for (p, to) in b_buf.iter_mut().enumerate() {
                    *to = self.b.get(p, 0);
                }
                matrix = MatRef::col_major(b_buf, k, 1);
            }
            let one = |part: usize| {
                let cols = split_even(n, parts, part);
                with_scratch(m * cols.len(), |acc| {
                    let b = matrix.as_ptr().wrapping_add(cols.start * matrix.col_stride());
                    // SAFETY: operands are valid for their sizes, the accumulators have m rows of
                    // the chunk's columns, the chunk owns these columns of C, and the machine has
                    // `isa`.
                    unsafe {
                        if dots {
                            let (b_ws, n) = (matrix.col_stride(), cols.len());
                            dispatch(self.isa, Dots { x, b, b_ws, n, acc });
                        } else {
                            let (b_ks, n) = (matrix.row_stride(), cols.len());
                            dispatch(self.isa, Axpy { x, b, b_ks, n, acc });
                        }
                        self.store(acc, cols);
                    }
                });
            };
            pool.run_on(threads, parts, one)
        })
    }

    /// Applies the epilogue to the sums of some columns and stores them.
    unsafe fn store(&self, acc: &[f32], cols: std::ops::Range<usize>) {
        let (m, n) = (self.x.rows(), cols.len());
        let rows = if self.transposed { n } else { m };
        let before = self.epilogue.before_function();
        if self.transposed && before.is_column_bias() {
            let body = FinishNarrow {
                src: &acc[..m * n],
                rows: n,
                bias: before.at(cols.start, 0).col_bias,
                out: self.c.get().wrapping_add(cols.start * self.ldc),
                ldc: self.ldc,
            };
            // SAFETY: the machine has `isa`, and the chunk owns these rows of C.
            unsafe { dispatch(self.isa, body) };
        } else {
            // SAFETY: the machine has `isa`, and the chunk owns these columns of C.
            unsafe { self.store_rows(acc, cols.clone(), rows, &before) };
        }
        if self.epilogue.activation.is_function() {
            let (row, col) = if self.transposed { (cols.start, 0) } else { (0, cols.start) };
            let body = ApplyFunction {
                epilogue: self.epilogue.at(row, col),
                out: self.c.get().wrapping_add(row * self.ldc + col),
                rows,
                cols: if self.transposed { m } else { n },
                ldc: self.ldc,
            };
            // SAFETY: the machine has `isa`, and the chunk has written these columns of C.
            unsafe { dispatch(self.isa, body) };
        }
    }

    /// Applies the epilogue up to a function to the sums of some columns and stores them row by
    /// row.
    unsafe fn store_rows(
        &self,
        acc: &[f32],
        cols: std::ops::Range<usize>,
        rows: usize,
        before: &TileEpilogue,
    ) {
        let (m, n) = (self.x.rows(), cols.len());
        for i in 0..rows {
            let (row, col) = if self.transposed { (cols.start + i, 0) } else { (i, cols.start) };
            let body = FinishRow {
                src: acc[if self.transposed { i } else { i * n }..].as_ptr(),
                stride: if self.transposed { n } else { 1 },
                out: self.c.get().wrapping_add(row * self.ldc + col),
                n: if self.transposed { m } else { n },
                epilogue: before.at(row, col),
            };
            // SAFETY: the machine has `isa`, and the chunk owns these columns of C.
            unsafe { dispatch(self.isa, body) };
        }
    }
}

/// Body that writes rows of a few results each from columns of sums, and adds a bias to each
/// column.
struct FinishNarrow<'a> {
    src: &'a [f32],
    rows: usize,
    /// One number for each column, or null.
    bias: *const f32,
    out: *mut f32,
    ldc: usize,
}

impl Body for FinishNarrow<'_> {
    type Out = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        for (column, src) in self.src.chunks_exact(self.rows).enumerate() {
            // SAFETY: a bias has a number for each column. Adding -0 changes nothing.
            let bias = if self.bias.is_null() { -0.0 } else { unsafe { *self.bias.add(column) } };
            for (row, x) in src.iter().enumerate() {
                // SAFETY: `store` makes the body for rows that it owns.
                unsafe { *self.out.add(row * self.ldc + column) = x + bias };
            }
        }
    }
}

/// Body that computes `acc = x * b` by adding multiples of rows.
struct Axpy<'a> {
    x: MatRef<'a>,
    b: *const f32,
    b_ks: usize,
    n: usize,
    acc: &'a mut [f32],
}

impl Body for Axpy<'_> {
    type Out = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        let (m, k, n) = (self.x.rows(), self.x.cols(), self.n);
        self.acc.fill(0.0);
        let mut p = 0;
        while p < k {
            let steps = 4.min(k - p);
            for i in 0..m {
                let x =
                    self.x.as_ptr().wrapping_add(i * self.x.row_stride() + p * self.x.col_stride());
                let acc = self.acc[i * n..].as_mut_ptr();
                let b = self.b.wrapping_add(p * self.b_ks);
                // SAFETY: `steps` values of `x` and rows of `b`, `n` columns of each row and of
                // `acc`.
                unsafe {
                    if steps == 4 {
                        let x0 = S::splat(*x);
                        let x1 = S::splat(*x.add(self.x.col_stride()));
                        let x2 = S::splat(*x.add(2 * self.x.col_stride()));
                        let x3 = S::splat(*x.add(3 * self.x.col_stride()));
                        let mut j = 0;
                        while j < n {
                            let mask = S::first(n - j);
                            let b = b.add(j);
                            let mut v = S::load_m(acc.add(j), mask);
                            v = S::fma(x0, S::load_m(b, mask), v);
                            v = S::fma(x1, S::load_m(b.wrapping_add(self.b_ks), mask), v);
                            v = S::fma(x2, S::load_m(b.wrapping_add(2 * self.b_ks), mask), v);
                            v = S::fma(x3, S::load_m(b.wrapping_add(3 * self.b_ks), mask), v);
                            S::store_m(acc.add(j), mask, v);
                            j += S::LANES;
                        }
                    } else {
                        for s in 0..steps {
                            let xs = S::splat(*x.add(s * self.x.col_stride()));
                            let b = b.wrapping_add(s * self.b_ks);
                            let mut j = 0;
                            while j < n {
                                let mask = S::first(n - j);
                                let v = S::load_m(acc.add(j), mask);
                                let v = S::fma(xs, S::load_m(b.add(j), mask), v);
                                S::store_m(acc.add(j), mask, v);
                                j += S::LANES;
                            }
                        }
                    }
                }
            }
            p += steps;
        }
    }
}

/// Body that computes `acc = x * b` by dot products; rows of `x` are contiguous.
struct Dots<'a> {
    x: MatRef<'a>,
    b: *const f32,
    b_ws: usize,
    n: usize,
    acc: &'a mut [f32],
}

impl Body for Dots<'_> {
    type Out = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        let (m, k, n) = (self.x.rows(), self.x.cols(), self.n);
        let mut j = 0;
        while j < n {
            let count = 4.min(n - j);
            let b = self.b.wrapping_add(j * self.b_ws);
            // A short last group repeats its last column, so that one loop serves all and reads no
            // other memory.
            let b1 = b.wrapping_add(1.min(count - 1) * self.b_ws);
            let b2 = b.wrapping_add(2.min(count - 1) * self.b_ws);
            let b3 = b.wrapping_add(3.min(count - 1) * self.b_ws);
            for i in 0..m {
                let x = self.x.as_ptr().wrapping_add(i * self.x.row_stride());
                // SAFETY: columns and rows have `k` values.
                unsafe {
                    let zero = S::splat(0.0);
                    let (mut s0, mut s1, mut s2, mut s3) = (zero, zero, zero, zero);
                    let mut p = 0;
                    while p < k {
                        let mask = S::first(k - p);
                        let v = S::load_m(x.add(p), mask);
                        s0 = S::fma(v, S::load_m(b.add(p), mask), s0);
                        s1 = S::fma(v, S::load_m(b1.add(p), mask), s1);
                        s2 = S::fma(v, S::load_m(b2.add(p), mask), s2);
                        s3 = S::fma(v, S::load_m(b3.add(p), mask), s3);
                        p += S::LANES;
                    }
                    let sums = [S::sum(s0), S::sum(s1), S::sum(s2), S::sum(s3)];
                    self.acc[i * n + j..][..count].copy_from_slice(&sums[..count]);
                }
            }
            j += count;
        }
    }
}

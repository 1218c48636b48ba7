//! Many products of one size: matrix products with leading dimensions that broadcast.

use std::ops::Range;

use super::gemv;
use super::matrix::strided_len;
use super::pack::{PackSource, SendPtr, panel_width};
use super::{Bias, Epilogue, Lhs, MatRef, Number, PackedB, Rhs, gemm, gemm_generic, gemm_scratch};
use sardonyx_simd::buffer::with_scratch;
use sardonyx_simd::{Body, Ended, Simd, check_isa, dispatch};
use sardonyx_simd::{Exec, Isa, Operation, Pool, Work, split_even};

/// Matrices at regular distances: matrix (i0, i1, ...) starts at `data[i0 * batch_strides[0] + i1 *
/// batch_strides[1] + ...]`. A stride of 0 broadcasts.
#[derive(Clone, Copy, Debug)]
pub struct BatchMat<'a, T = f32> {
    pub data: &'a [T],
    pub rows: usize,
    pub cols: usize,
    pub row_stride: usize,
    pub col_stride: usize,
    /// Stride of each batch dimension, in elements.
    pub batch_strides: &'a [usize],
}

/// The right operands of a batch.
#[derive(Clone, Copy, Debug)]
pub enum BatchRhs<'a> {
    Plain(BatchMat<'a>),
    /// One constant for all products.
    Packed(&'a PackedB),
}

impl<'a, T> BatchMat<'a, T> {
    /// Panics unless all matrices are inside the data.
    fn check(&self, dims: &[usize]) {
        assert_eq!(self.batch_strides.len(), dims.len(), "batch dimensions");
        if dims.contains(&0) {
            return;
        }
        let last = dims
            .iter()
            .zip(self.batch_strides)
            .try_fold(0usize, |at, (&d, &s)| at.checked_add((d - 1).checked_mul(s)?));
        let len = strided_len(self.rows, self.cols, self.row_stride, self.col_stride);
        let end = match (last, len) {
            (_, Some(0)) => Some(0),
            (Some(last), Some(len)) => last.checked_add(len),
            _ => None,
        };
        assert!(
            end.is_some_and(|end| end <= self.data.len()),
            "batch {dims:?} of {} x {} in {}",
            self.rows,
            self.cols,
            self.data.len()
        );
    }

    /// Returns the offset of matrix `index`, counted with the last dimension fastest.
    fn start(&self, dims: &[usize], mut index: usize) -> usize {
        let mut start = 0;
        for (&d, &s) in dims.iter().zip(self.batch_strides).rev() {
            start += index % d * s;
            index /= d;
        }
        start
    }

    /// Returns matrix `index`, counted with the last dimension fastest.
    fn matrix(&self, dims: &[usize], index: usize) -> MatRef<'a, T> {
        // An empty matrix may start beyond the data.
        let data = self.data.get(self.start(dims, index)..).unwrap_or(&[]);
        MatRef::new(data, self.rows, self.cols, self.row_stride, self.col_stride)
    }

    /// Returns the elements of row `index` of all matrices together, from column `col` on, with the
    /// elements between them if columns are not adjacent.
    fn row_from(&self, dims: &[usize], index: usize, col: usize) -> &'a [T] {
        let start = self.start(dims, index / self.rows) + index % self.rows * self.row_stride;
        let Some(last) = self.cols.checked_sub(1).filter(|last| col <= *last) else {
            return &[];
        };
        &self.data[start + col * self.col_stride..=start + last * self.col_stride]
    }

    /// Whether all matrices are one matrix in memory.
    fn is_shared(&self, dims: &[usize]) -> bool {
        dims.iter().zip(self.batch_strides).all(|(&d, &s)| d == 1 || s == 0)
    }

    /// Whether the rows of all matrices together are the rows of one matrix, in order.
    fn is_stacked(&self, dims: &[usize]) -> bool {
        let mut expect = self.rows.checked_mul(self.row_stride);
        for (&d, &s) in dims.iter().zip(self.batch_strides).rev() {
            if d != 1 && Some(s) != expect {
                return false;
            }
            expect = expect.and_then(|e| e.checked_mul(d));
        }
        true
    }
}

/// Computes products in any number type, matrix by matrix. The results follow each other in `y`.
///
/// # Panics
///
/// If the depths of `a` and `b` differ, an operand does not fit its data, `y` has another size, or
/// this machine does not have the instructions of `exec`.
pub fn gemm_batch_generic<T: Number>(
    exec: &Exec<'_>,
    dims: &[usize],
    a: BatchMat<'_, T>,
    b: BatchMat<'_, T>,
    y: &mut [T],
) -> Result<(), Ended> {
    a.check(dims);
    b.check(dims);
    let (count, size) = (dims.iter().product::<usize>(), a.rows * b.cols);
    assert_eq!(y.len(), count * size, "{dims:?} results of {} x {}", a.rows, b.cols);
    for (index, y) in y.chunks_exact_mut(size.max(1)).enumerate() {
        gemm_generic(exec, T::ONE, a.matrix(dims, index), b.matrix(dims, index), None, y, b.cols)?;
    }
    Ok(())
}

/// Choice: most rows for which packing panels does not pay.
const FEW_ROWS: usize = 12;

/// The rows of all matrices of a batch, as the columns of one matrix.
struct Rows<'a> {
    of: BatchMat<'a>,
    dims: &'a [usize],
    /// Number of matrices.
    count: usize,
}

impl Rows<'_> {
    /// Whether the rows are copied side by side first. The order of sums with a matrix in memory
    /// depends on the number of rows and columns where one of them is small, so rows that are apart
    /// must be counted together, like rows that are side by side.
    fn are_copied(&self, b: &BatchRhs<'_>) -> bool {
        match b {
            BatchRhs::Plain(b) => self.width() <= FEW_ROWS || b.cols <= gemv::ROWS,
            BatchRhs::Packed(_) => false,
        }
    }

    /// Returns the number of elements of all rows.
    fn floats(&self) -> usize {
        self.width().saturating_mul(self.depth())
    }

    /// Copies the rows to contiguous memory on the threads of a pool. The order of strides stays,
    /// as it decides the order of sums, too.
    fn copy_to<'m>(&self, pool: &Pool, to: &'m mut [f32]) -> Result<MatRef<'m>, Ended> {
        let (width, depth) = (self.width(), self.depth());
        let of = self.of;
        let within = (of.rows > 1).then_some(of.row_stride);
        let between = self
            .dims
            .iter()
            .zip(of.batch_strides)
            .filter(|(d, _)| **d > 1)
            .map(|(_, stride)| *stride);
        let least = within.into_iter().chain(between).filter(|step| *step > 0).min();
        let by_steps = least.is_some_and(|least| least < of.col_stride);
        let (row_step, col_step) = if by_steps { (1, width) } else { (depth, 1) };
        assert_eq!(to.len(), self.floats(), "{width} rows of {depth}");
        let target = SendPtr(to.as_mut_ptr());
        let bytes = to.len().saturating_mul(2 * size_of::<f32>());
        let work = Work::new(Operation::Element, to.len()).with_bytes(bytes).in_pieces(width);
        let parts = work.cut(pool);
        parts.run(pool, |part| {
            for index in split_even(width, parts.count, part) {
                let row = of.row_from(self.dims, index, 0);
                let start = target.get().wrapping_add(index * row_step);
                for step in 0..depth {
                    let x = row[step * of.col_stride];
                    // SAFETY: `to` has an element for each step of each row, and the part owns the
                    // elements of its rows.
                    unsafe { *start.add(step * col_step) = x };
                }
            }
        })?;
        Ok(MatRef::new(to, width, depth, row_step, col_step))
    }
}

impl PackSource for Rows<'_> {
    fn depth(&self) -> usize {
        self.of.cols
    }

    fn width(&self) -> usize {
        self.count * self.of.rows
    }

    fn pack(&self, isa: Isa, depth: Range<usize>, start: usize, out: &mut [f32]) {
        check_isa(isa);
        let w = panel_width(isa);
        assert!(depth.start <= depth.end && depth.end <= self.depth());
        assert_eq!(out.len(), depth.len() * w);
        let mut rows = [&[][..]; 32];
        let width = w.min(self.width().saturating_sub(start));
        for (row, index) in rows.iter_mut().zip(start..start + width) {
            *row = self.of.row_from(self.dims, index, depth.start);
        }
        let body =
            GatherRows { rows: &rows[..width], step: self.of.col_stride, depth: depth.len(), out };
        // SAFETY: the machine has `isa`.
        unsafe { dispatch(isa, body) }
    }
}

/// Body that packs a part of a panel whose columns are slices, every `step`th element of them.
struct GatherRows<'a> {
    rows: &'a [&'a [f32]],
    step: usize,
    depth: usize,
    out: &'a mut [f32],
}

impl Body for GatherRows<'_> {
    type Out = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        let (lanes, row) = (S::LANES, 2 * S::LANES);
        let mut block = [0.0f32; 256];
        for half in 0..2 {
            let rows = self.rows.get(half * lanes..).unwrap_or_default();
            let rows = &rows[..lanes.min(rows.len())];
            let mut k = 0;
            if rows.len() == lanes && self.step == 1 {
                while k + lanes <= self.depth {
                    for (block, row) in block.chunks_exact_mut(lanes).zip(rows) {
                        block.copy_from_slice(&row[k..k + lanes]);
                    }
                    let out = self.out[k * row + half * lanes..].as_mut_ptr();
                    // SAFETY: the block holds `LANES` rows of `LANES` floats. `out` has `LANES`
                    // rows of two vectors from there on; the second vector of the last row, which
                    // `half` leaves out, is not written.
                    unsafe { S::transpose(block.as_ptr(), lanes, out, row) };
                    k += lanes;
                }
            }
            for k in k..self.depth {
                let out = &mut self.out[k * row + half * lanes..][..lanes];
                out.fill(0.0);
                for (out, row) in out.iter_mut().zip(rows) {
                    *out = row[k * self.step];
                }
            }
        }
    }
}

/// Work: multiply-adds from which a product shares threads inside. Smaller products run whole, each
/// on one thread.
const WHOLE_PRODUCT_MACS: usize = 2 << 20;

impl<'a> BatchRhs<'a> {
    /// Whether all products have one operand.
    fn is_shared(&self, dims: &[usize]) -> bool {
        match self {
            BatchRhs::Plain(b) => b.is_shared(dims),
            BatchRhs::Packed(_) => true,
        }
    }

    /// Returns the operand of product `index`.
    fn operand(&self, dims: &[usize], index: usize) -> Rhs<'a> {
        match self {
            BatchRhs::Plain(b) => Rhs::Plain(b.matrix(dims, index)),
            BatchRhs::Packed(b) => Rhs::Packed(b),
        }
    }
}

/// Whether products run whole, each on one thread.
fn runs_whole(pool: &Pool, count: usize, macs: usize) -> bool {
    macs < WHOLE_PRODUCT_MACS || count >= 4 * pool.threads()
}

/// Returns an upper bound of the scratch memory in bytes that [`gemm_batch`] takes for these
/// operands, counted like [`gemm_scratch`].
///
/// # Panics
///
/// In the cases of [`gemm_batch`] that concern the operands.
pub fn gemm_batch_scratch(
    exec: &Exec<'_>,
    dims: &[usize],
    a: BatchMat<'_>,
    b: BatchRhs<'_>,
) -> usize {
    let &Exec { pool, isa, .. } = exec;
    let count = dims.iter().fold(1usize, |n, &d| n.saturating_mul(d));
    if count == 0 {
        return 0;
    }
    if let BatchRhs::Plain(b) = &b {
        b.check(dims);
    }
    a.check(dims);
    let (left, right) = (Lhs::Plain(a.matrix(dims, 0)), b.operand(dims, 0));
    let macs = a.rows.saturating_mul(right.size().1);
    let whole = runs_whole(pool, count, macs.saturating_mul(a.cols));
    let each = if whole {
        gemm_scratch(&Exec::new(Pool::serial(), isa), &left, &right)
            .saturating_mul(count.min(pool.threads()))
    } else {
        gemm_scratch(exec, &left, &right)
    };
    if count == 1 || !b.is_shared(dims) {
        return each;
    }
    let tall = Rows { of: a, dims, count };
    let copied = if tall.are_copied(&b) { tall.floats() } else { 0 };
    // Panels take at least as much as the copy of a matrix.
    let panels = gemm_scratch(exec, &Lhs::Virtual(&tall), &right);
    each.max(panels.saturating_add(copied.saturating_mul(size_of::<f32>())))
}

/// Output of a batch: product i (last dimension fastest) goes to `data[i * stride..]`, with a row
/// stride of `ldc`.
#[derive(Debug)]
pub struct BatchOut<'a> {
    pub data: &'a mut [f32],
    pub ldc: usize,
    pub stride: usize,
}

/// Computes one product per element of `dims`. The epilogue applies to each of them; its residual
/// and its factor have the layout of the output.
///
/// If one right operand serves all left operands, these become one tall operand, even if they are
/// not adjacent.
///
/// # Panics
///
/// In the cases of [`gemm`], if strides are not one per dimension, if an operand reaches outside
/// its slice, or if products overlap.
pub fn gemm_batch(
    exec: &Exec<'_>,
    dims: &[usize],
    a: BatchMat<'_>,
    b: BatchRhs<'_>,
    out: BatchOut<'_>,
    epilogue: &Epilogue<'_>,
) -> Result<(), Ended> {
    let pool = exec.pool;
    let BatchOut { data: c, ldc, stride: c_stride } = out;
    let count =
        dims.iter().try_fold(1usize, |n, &d| n.checked_mul(d)).expect("a batch that fits memory");
    let (k, n) = match &b {
        BatchRhs::Plain(b) => {
            b.check(dims);
            (b.rows, b.cols)
        }
        BatchRhs::Packed(b) => (b.depth(), b.cols()),
    };
    a.check(dims);
    assert_eq!(a.cols, k, "depth of A and B");
    let m = a.rows;
    if count == 0 || m == 0 || n == 0 {
        return Ok(());
    }
    let c_len = strided_len(m, n, ldc, 1).expect("a matrix that fits memory");
    assert!(count == 1 || c_stride >= c_len, "products overlap in C");
    let end = (count - 1).checked_mul(c_stride).and_then(|x| x.checked_add(c_len));
    assert!(end.is_some_and(|end| end <= c.len()), "{count} products of {m} x {n} in {}", c.len());
    if let Some(residual) = epilogue.residual {
        assert!(end.is_some_and(|end| end <= residual.len()), "residual");
    }
    if let Some(factor) = epilogue.factor {
        assert!(end.is_some_and(|end| end <= factor.len()), "factor");
    }

    let by_row = epilogue.addend.is_some() || matches!(epilogue.bias, Some(Bias::Row(_)));
    let rhs = |index: usize| b.operand(dims, index);
    if b.is_shared(dims) && !by_row && (count == 1 || c_stride == m * ldc) {
        if a.is_stacked(dims) {
            let tall = MatRef::new(a.data, count * m, k, a.row_stride, a.col_stride);
            return gemm(exec, Lhs::Plain(tall), rhs(0), c, ldc, epilogue);
        }
        let tall = Rows { of: a, dims, count };
        if tall.are_copied(&b) {
            return with_scratch(tall.floats(), |rows| {
                let rows = tall.copy_to(exec.pool, rows)?;
                gemm(exec, Lhs::Plain(rows), rhs(0), c, ldc, epilogue)
            });
        }
        if count * m > FEW_ROWS {
            return gemm(exec, Lhs::Virtual(&tall), rhs(0), c, ldc, epilogue);
        }
    }
    let out = SendPtr(c.as_mut_ptr());
    let one = |pool: &Pool, index: usize| {
        let start = index * c_stride;
        // SAFETY: products do not overlap and end inside `c`, which is borrowed mutably for the
        // whole call.
        let c = unsafe { std::slice::from_raw_parts_mut(out.get().add(start), c_len) };
        let epilogue = Epilogue {
            residual: epilogue.residual.map(|r| &r[start..]),
            factor: epilogue.factor.map(|f| &f[start..]),
            ..*epilogue
        };
        let lhs = Lhs::Plain(a.matrix(dims, index));
        gemm(&Exec { pool, ..*exec }, lhs, rhs(index), c, ldc, &epilogue)
    };
    let macs = m.saturating_mul(n).saturating_mul(k);
    if runs_whole(pool, count, macs) {
        // Chunks of several products: a tiny product costs less than handing it out.
        let all = Work::new(Operation::MultiplyAdd, count.saturating_mul(macs));
        let parts = all.in_pieces(count).cut(pool);
        parts.run(pool, |part| {
            split_even(count, parts.count, part).try_for_each(|i| one(Pool::serial(), i))
        })
    } else {
        (0..count).try_for_each(|i| one(pool, i))
    }
}

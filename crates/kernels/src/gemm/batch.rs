//! Many products of one size: the leading dimensions of a matrix product with broadcasting.

use super::matrix::strided_len;
use super::pack::SendPtr;
use super::{Bias, Epilogue, Lhs, MatRef, PackedB, Rhs, gemm};
use crate::{Isa, Pool};

/// Matrices at regular distances: matrix (i0, i1, ...) starts at `data[i0 * batch_strides[0] + i1 * batch_strides[1] + ...]`.
/// A stride of 0 broadcasts.
#[derive(Clone, Copy, Debug)]
pub struct BatchMat<'a> {
    pub data: &'a [f32],
    pub rows: usize,
    pub cols: usize,
    pub row_stride: usize,
    pub col_stride: usize,
    /// One per batch dimension.
    pub batch_strides: &'a [usize],
}

/// The right operands of a batch.
#[derive(Clone, Copy, Debug)]
pub enum BatchRhs<'a> {
    Plain(BatchMat<'a>),
    /// One constant for all products.
    Packed(&'a PackedB),
}

impl<'a> BatchMat<'a> {
    fn check(&self, dims: &[usize]) {
        assert_eq!(self.batch_strides.len(), dims.len(), "batch dimensions");
        if dims.contains(&0) {
            return;
        }
        let last = dims
            .iter()
            .zip(self.batch_strides)
            .try_fold(0usize, |at, (&d, &s)| {
                at.checked_add((d - 1).checked_mul(s)?)
            });
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

    /// Matrix number `index`, dimensions counted with the last fastest.
    fn matrix(&self, dims: &[usize], mut index: usize) -> MatRef<'a> {
        let mut start = 0;
        for (&d, &s) in dims.iter().zip(self.batch_strides).rev() {
            start += index % d * s;
            index /= d;
        }
        // An empty matrix may lie anywhere.
        let data = self.data.get(start..).unwrap_or(&[]);
        MatRef::new(data, self.rows, self.cols, self.row_stride, self.col_stride)
    }

    /// Whether all matrices are the same one.
    fn is_shared(&self, dims: &[usize]) -> bool {
        dims.iter()
            .zip(self.batch_strides)
            .all(|(&d, &s)| d == 1 || s == 0)
    }

    /// Whether the rows of all matrices together are rows of one matrix, in order.
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

/// Products of at least this many multiply-adds share threads inside; smaller ones are shared out whole.
const WHOLE_PRODUCT_MACS: usize = 2 << 20;

/// One product per element of `dims`: product number i (last dimension fastest) goes to `c[i * c_stride..]`, rows `ldc`
/// apart. The epilogue applies to each product alike; its residual and its factor have the layout of `c`.
///
/// When one right operand serves stacked left operands, all become one tall product.
///
/// # Panics
///
/// As [`gemm`], if strides are not one per dimension, if an operand reaches outside its slice, or if products overlap in
/// `c`.
pub fn gemm_batch(
    pool: &Pool,
    isa: Isa,
    dims: &[usize],
    a: BatchMat<'_>,
    b: BatchRhs<'_>,
    c: &mut [f32],
    ldc: usize,
    c_stride: usize,
    epilogue: &Epilogue<'_>,
) {
    let count = dims
        .iter()
        .try_fold(1usize, |n, &d| n.checked_mul(d))
        .expect("a batch that fits memory");
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
        return;
    }
    let c_len = strided_len(m, n, ldc, 1).expect("a matrix that fits memory");
    assert!(count == 1 || c_stride >= c_len, "products overlap in C");
    let end = (count - 1)
        .checked_mul(c_stride)
        .and_then(|x| x.checked_add(c_len));
    assert!(
        end.is_some_and(|end| end <= c.len()),
        "{count} products of {m} x {n} in {}",
        c.len()
    );
    if let Some(residual) = epilogue.residual {
        assert!(end.is_some_and(|end| end <= residual.len()), "residual");
    }
    if let Some(factor) = epilogue.factor {
        assert!(end.is_some_and(|end| end <= factor.len()), "factor");
    }

    let shared = match &b {
        BatchRhs::Plain(b) => b.is_shared(dims),
        BatchRhs::Packed(_) => true,
    };
    let by_row = epilogue.addend.is_some() || matches!(epilogue.bias, Some(Bias::Row(_)));
    let rhs = |index: usize| match &b {
        BatchRhs::Plain(b) => Rhs::Plain(b.matrix(dims, index)),
        BatchRhs::Packed(b) => Rhs::Packed(b),
    };
    if shared && !by_row && a.is_stacked(dims) && (count == 1 || c_stride == m * ldc) {
        let tall = MatRef::new(a.data, count * m, k, a.row_stride, a.col_stride);
        return gemm(pool, isa, Lhs::Plain(tall), rhs(0), c, ldc, epilogue);
    }
    let out = SendPtr(c.as_mut_ptr());
    let one = |pool: &Pool, index: usize| {
        let start = index * c_stride;
        // SAFETY: products do not overlap, and all end inside `c`, which is borrowed mutably for the whole call.
        let c = unsafe { std::slice::from_raw_parts_mut(out.get().add(start), c_len) };
        let epilogue = Epilogue {
            residual: epilogue.residual.map(|r| &r[start..]),
            factor: epilogue.factor.map(|f| &f[start..]),
            ..*epilogue
        };
        let lhs = Lhs::Plain(a.matrix(dims, index));
        gemm(pool, isa, lhs, rhs(index), c, ldc, &epilogue);
    };
    let macs = m.saturating_mul(n).saturating_mul(k);
    if macs < WHOLE_PRODUCT_MACS || count >= 4 * pool.threads() {
        // Chunks of several products: a tiny product costs less than handing it out.
        let chunks = count.min(pool.threads() * 8);
        let chunks = if count.saturating_mul(macs) < 40_000 {
            1
        } else {
            chunks
        };
        pool.run(chunks, |chunk| {
            crate::split_even(count, chunks, chunk).for_each(|i| one(Pool::serial(), i));
        });
    } else {
        (0..count).for_each(|i| one(pool, i));
    }
}

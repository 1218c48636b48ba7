//! Walking over operands that are broadcast to common output dims.
//!
//! The one idea: dims that all operands step through evenly are merged first, which turns nearly every case into rows
//! whose operands are contiguous or constant. Operands that step otherwise are copied to a small block on the stack, so
//! loops only ever see contiguous or constant operands.

/// The most dims, after merging, that kernels with strides accept. Merging needs at most the rank of the tensors.
pub const MAX_RANK: usize = 32;

/// The element strides of a contiguous operand with dims `dims` when it is broadcast to `out_dims` (dims aligned at the
/// end, 1 stretched), written to `strides`. `None` if it does not broadcast.
///
/// # Panics
///
/// If `strides` has another length than `out_dims`.
pub fn broadcast_strides(dims: &[usize], out_dims: &[usize], strides: &mut [usize]) -> Option<()> {
    assert_eq!(strides.len(), out_dims.len(), "one stride per output dim");
    let added = out_dims.len().checked_sub(dims.len())?;
    strides[..added].fill(0);
    let mut stride = 1;
    for (d, &dim) in dims.iter().enumerate().rev() {
        let out = out_dims[added + d];
        if dim != out && dim != 1 {
            return None;
        }
        strides[added + d] = if dim == 1 { 0 } else { stride };
        stride *= dim;
    }
    Some(())
}

/// `N` operands over merged dims.
#[derive(Clone, Copy)]
pub(crate) struct Walk<const N: usize> {
    rank: usize,
    dims: [usize; MAX_RANK],
    /// The strides of all operands in a dim.
    strides: [[usize; N]; MAX_RANK],
    /// Output elements.
    pub(crate) len: usize,
}

impl<const N: usize> Walk<N> {
    /// `strides[i]` belong to operand `i`, which has `lens[i]` elements.
    ///
    /// # Panics
    ///
    /// If lengths differ, an operand would be read outside, or more than [`MAX_RANK`] dims remain.
    pub(crate) fn new(dims: &[usize], strides: [&[usize]; N], lens: [usize; N]) -> Walk<N> {
        let len: usize = dims.iter().product();
        let mut walk = Walk {
            rank: 0,
            dims: [1; MAX_RANK],
            strides: [[0; N]; MAX_RANK],
            len,
        };
        for (operand, &available) in strides.iter().zip(&lens) {
            assert_eq!(operand.len(), dims.len(), "one stride per dim");
            let last = |(&dim, &stride): (&usize, &usize)| dim.saturating_sub(1) * stride;
            let reach: usize = dims.iter().zip(*operand).map(last).sum();
            assert!(len == 0 || reach < available, "operand too short");
        }
        for (d, &dim) in dims.iter().enumerate() {
            if dim == 1 {
                continue;
            }
            let steps = std::array::from_fn(|i| strides[i][d]);
            if let Some(last) = walk.rank.checked_sub(1) {
                let outer = walk.strides[last];
                if (0..N).all(|i| outer[i] == steps[i] * dim) {
                    walk.dims[last] *= dim;
                    walk.strides[last] = steps;
                    continue;
                }
            }
            assert!(walk.rank < MAX_RANK, "more than {MAX_RANK} dims");
            walk.dims[walk.rank] = dim;
            walk.strides[walk.rank] = steps;
            walk.rank += 1;
        }
        if walk.rank == 0 {
            walk.rank = 1;
        }
        walk
    }

    /// The strides of the operands along a row.
    pub(crate) fn steps(&self) -> [usize; N] {
        self.strides[self.rank - 1]
    }

    /// Calls `row(offsets, out_start, len)` for the rows, or parts of rows, that make up outputs `start..end`.
    #[inline]
    pub(crate) fn rows(
        &self,
        start: usize,
        end: usize,
        mut row: impl FnMut([usize; N], usize, usize),
    ) {
        let inner = self.rank - 1;
        let mut index = [0; MAX_RANK];
        let mut offsets = [0; N];
        let mut rest = start;
        for d in (0..self.rank).rev() {
            index[d] = rest % self.dims[d];
            rest /= self.dims[d];
            for (offset, stride) in offsets.iter_mut().zip(&self.strides[d]) {
                *offset += index[d] * stride;
            }
        }
        let mut at = start;
        while at < end {
            let len = (self.dims[inner] - index[inner]).min(end - at);
            row(offsets, at, len);
            at += len;
            // The next row starts at its beginning.
            for (offset, stride) in offsets.iter_mut().zip(&self.strides[inner]) {
                *offset -= index[inner] * stride;
            }
            index[inner] = 0;
            for d in (0..inner).rev() {
                index[d] += 1;
                for (offset, stride) in offsets.iter_mut().zip(&self.strides[d]) {
                    *offset += stride;
                }
                if index[d] < self.dims[d] {
                    break;
                }
                for (offset, stride) in offsets.iter_mut().zip(&self.strides[d]) {
                    *offset -= self.dims[d] * stride;
                }
                index[d] = 0;
            }
        }
    }
}

/// Elements of a block on the stack.
pub(crate) const BLOCK: usize = 128;

/// An operand of a row. Public only because hidden methods of public traits take it.
#[derive(Clone, Copy, Debug)]
pub enum Operand<'a, T> {
    Slice(&'a [T]),
    Constant(T),
}

/// Calls `body(a, b, out)` on pieces of a row of two operands, gathering the ones that are neither contiguous nor
/// constant.
#[inline]
pub(crate) fn row_of_two<T: Copy + Default, O>(
    a: &[T],
    b: &[T],
    [step_a, step_b]: [usize; 2],
    out: &mut [O],
    mut body: impl FnMut(Operand<'_, T>, Operand<'_, T>, &mut [O]),
) {
    if step_a < 2 && step_b < 2 {
        let n = out.len();
        return body(operand(a, step_a, n), operand(b, step_b, n), out);
    }
    let (mut block_a, mut block_b) = ([T::default(); BLOCK], [T::default(); BLOCK]);
    for (i, out) in out.chunks_mut(BLOCK).enumerate() {
        let (n, start) = (out.len(), i * BLOCK);
        body(
            gathered(&a[start * step_a..], step_a, n, &mut block_a),
            gathered(&b[start * step_b..], step_b, n, &mut block_b),
            out,
        );
    }
}

#[inline]
fn operand<T: Copy>(x: &[T], step: usize, n: usize) -> Operand<'_, T> {
    if step == 0 {
        Operand::Constant(x[0])
    } else {
        Operand::Slice(&x[..n])
    }
}

/// `n` elements of `x`, `step` apart.
#[inline]
pub(crate) fn gathered<'a, T: Copy>(
    x: &'a [T],
    step: usize,
    n: usize,
    block: &'a mut [T; BLOCK],
) -> Operand<'a, T> {
    if step < 2 {
        return operand(x, step, n);
    }
    for (to, from) in block.iter_mut().zip(x.iter().step_by(step)).take(n) {
        *to = *from;
    }
    Operand::Slice(&block[..n])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strides_of_broadcast_operands() {
        for (dims, out, expected) in [
            (&[2, 3][..], &[2, 3][..], Some(vec![3, 1])),
            (&[3], &[2, 3], Some(vec![0, 1])),
            (&[2, 1], &[2, 3], Some(vec![1, 0])),
            (&[], &[2, 3], Some(vec![0, 0])),
            (&[1, 4, 1], &[5, 4, 0], Some(vec![0, 1, 0])),
            (&[2], &[3], None),
            (&[1, 1], &[1], None),
        ] {
            let mut strides = vec![7; out.len()];
            let found = broadcast_strides(dims, out, &mut strides).map(|()| strides);
            assert_eq!(found, expected, "{dims:?} to {out:?}");
        }
    }

    #[test]
    fn dims_that_all_operands_step_through_evenly_merge() {
        let walk = Walk::new(&[2, 3, 1, 4], [&[12, 4, 4, 1], &[0, 0, 0, 0]], [24, 1]);
        assert_eq!((walk.rank, walk.dims[0], walk.steps()), (1, 24, [1, 0]));
        let walk = Walk::new(&[2, 3, 4], [&[12, 4, 1], &[0, 1, 0]], [24, 3]);
        assert_eq!((walk.rank, walk.dims[2], walk.steps()), (3, 4, [1, 0]));
    }
}

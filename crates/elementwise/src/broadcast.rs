//! Walks over operands that are broadcast to common output dims.
//!
//! Dims that all operands step through evenly are merged first, so that nearly all cases become
//! rows whose operands are contiguous or constant. Other operands are copied to a small block on
//! the stack, so that loops see only contiguous or constant ones.

use sardonyx_simd::Level;
use sardonyx_simd::number::Number;

/// Limit: most dims, after merging, in kernels with strides. Merging needs at most the rank of the
/// tensors.
pub const MAX_RANK: usize = 32;

/// Operand that is broadcast to the dims of an output. The stride of a dim counts elements of
/// `data`; 0 repeats one element (see [`broadcast_strides`]).
#[derive(Clone, Copy, Debug)]
pub struct Strided<'a, T> {
    pub data: &'a [T],
    pub strides: &'a [usize],
}

impl<'a, T> Strided<'a, T> {
    /// Creates an operand with one stride for each output dim.
    pub fn new(data: &'a [T], strides: &'a [usize]) -> Self {
        Strided { data, strides }
    }

    /// Creates a contiguous operand of one dim.
    pub fn flat(data: &'a [T]) -> Self {
        Strided { data, strides: &[1] }
    }
}

/// Computes the strides with which a contiguous operand of dims `dims` is broadcast to `out_dims`:
/// dims are aligned at the end, and dims of 1 repeat. Returns `None` if it cannot be broadcast.
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

/// Walk of `N` operands over merged dims.
#[derive(Clone, Copy, Debug)]
pub struct Walk<const N: usize> {
    rank: usize,
    dims: [usize; MAX_RANK],
    /// Strides of all operands, for each dim.
    strides: [[isize; N]; MAX_RANK],
    /// Offset of the first element of each operand.
    starts: [isize; N],
    /// Number of output elements.
    pub len: usize,
}

impl<const N: usize> Walk<N> {
    /// Creates the walk over `dims`. Operand `i` has strides `strides[i]` and `lens[i]` elements.
    ///
    /// # Panics
    ///
    /// If lengths differ, an operand is too short for its strides, or more than [`MAX_RANK`] dims
    /// remain.
    pub fn new(dims: &[usize], strides: [&[usize]; N], lens: [usize; N]) -> Walk<N> {
        for operand in strides {
            assert_eq!(operand.len(), dims.len(), "one stride per dim");
        }
        Self::with_starts(dims, |i, d| strides[i][d] as isize, [0; N], lens)
    }

    /// Creates a walk whose operands start at `starts`. `stride(i, d)` is the stride of operand `i`
    /// in dim `d`.
    pub fn with_starts(
        dims: &[usize],
        stride: impl Fn(usize, usize) -> isize,
        starts: [isize; N],
        lens: [usize; N],
    ) -> Walk<N> {
        let len: usize = dims.iter().product();
        let mut walk =
            Walk { rank: 0, dims: [1; MAX_RANK], strides: [[0; N]; MAX_RANK], starts, len };
        for i in 0..N {
            // Least and greatest offset. `i128`, as strides come from models.
            let (mut low, mut high) = (starts[i] as i128, starts[i] as i128);
            for (d, &dim) in dims.iter().enumerate() {
                let reach = dim.saturating_sub(1) as i128 * stride(i, d) as i128;
                *(if reach < 0 { &mut low } else { &mut high }) += reach;
            }
            let inside = low >= 0 && high < lens[i] as i128;
            assert!(len == 0 || inside, "operand {i} is too short");
        }
        for (d, &dim) in dims.iter().enumerate() {
            if dim == 1 {
                continue;
            }
            let steps: [isize; N] = std::array::from_fn(|i| stride(i, d));
            if let Some(last) = walk.rank.checked_sub(1) {
                let outer = walk.strides[last];
                if (0..N).all(|i| outer[i] == steps[i].wrapping_mul(dim as isize)) {
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

    /// Returns the merged dims, at least one.
    pub fn dims(&self) -> &[usize] {
        &self.dims[..self.rank]
    }

    /// Returns the strides of the operands in a merged dim.
    pub fn strides(&self, d: usize) -> [isize; N] {
        self.strides[d]
    }

    /// Returns the strides of the operands along a row, for walks without negative strides.
    pub fn steps(&self) -> [usize; N] {
        self.strides[self.rank - 1].map(|stride| stride as usize)
    }

    /// Returns the rows, or parts of rows, that make up outputs `start..end`: offsets of the
    /// operands, index of the first output, and length.
    #[inline(always)]
    pub fn rows(&self, start: usize, end: usize) -> Rows<'_, N> {
        let mut rows =
            Rows { walk: self, index: [0; MAX_RANK], offsets: self.starts, at: start, end };
        let mut rest = start;
        let mut d = self.rank;
        while d > 0 && rest > 0 {
            d -= 1;
            // A dim of 0 has no outputs, so `rest` is 0 and its index is never used.
            let dim = self.dims[d].max(1);
            rows.index[d] = rest % dim;
            rest /= dim;
            let mut i = 0;
            while i < N {
                rows.offsets[i] += rows.index[d] as isize * self.strides[d][i];
                i += 1;
            }
        }
        rows
    }
}

/// Paths of `N` operands through the output dims.
#[derive(Clone, Copy)]
pub(crate) enum Way<'a, const N: usize> {
    /// Each operand has one step throughout.
    Even([usize; N]),
    /// The operands need a walk.
    Walk(&'a Walk<N>),
}

impl<'a, const N: usize> Way<'a, N> {
    /// Finds the paths of operands like [`Walk::new`]. Creates a walk, which is costly for a few
    /// elements, in `walk` only if needed.
    ///
    /// # Panics
    ///
    /// If lengths differ, an operand is too short for its strides, or more than [`MAX_RANK`] dims
    /// remain.
    #[inline]
    pub(crate) fn new(
        dims: &[usize],
        strides: [&[usize]; N],
        lens: [usize; N],
        walk: &'a mut Option<Walk<N>>,
    ) -> Way<'a, N> {
        let mut steps = [0; N];
        for i in 0..N {
            match even_step(dims, strides[i], lens[i]) {
                Some(step) => steps[i] = step,
                None => return Way::Walk(walk.insert(Walk::new(dims, strides, lens))),
            }
        }
        Way::Even(steps)
    }

    /// Returns the strides of the operands along a row.
    pub(crate) fn steps(&self) -> [usize; N] {
        match self {
            Way::Even(steps) => *steps,
            Way::Walk(walk) => walk.steps(),
        }
    }

    /// Calls `body` with the items of [`Walk::rows`].
    #[inline(always)]
    pub(crate) fn rows(
        &self,
        start: usize,
        end: usize,
        mut body: impl FnMut([usize; N], usize, usize),
    ) {
        match self {
            Way::Even(steps) => body(steps.map(|step| start * step), start, end - start),
            Way::Walk(walk) => {
                for (offsets, at, n) in walk.rows(start, end) {
                    body(offsets, at, n);
                }
            }
        }
    }
}

/// Returns the step with which an operand of `len` elements goes through all of `dims`. `None` if
/// there are several, the operand is too short, or the output is empty.
fn even_step(dims: &[usize], strides: &[usize], len: usize) -> Option<usize> {
    assert_eq!(strides.len(), dims.len(), "one stride per dim");
    let (mut step, mut count) = (None, 1_usize);
    for (&dim, &stride) in dims.iter().zip(strides).rev() {
        if dim == 1 {
            continue;
        }
        if stride != count.checked_mul(*step.get_or_insert(stride))? {
            return None;
        }
        count = count.checked_mul(dim)?;
    }
    let step = step.unwrap_or(0);
    let last = count.checked_sub(1)?.checked_mul(step)?;
    (last < len).then_some(step)
}

/// Iterator of [`Walk::rows`].
#[derive(Debug)]
pub struct Rows<'a, const N: usize> {
    walk: &'a Walk<N>,
    index: [usize; MAX_RANK],
    offsets: [isize; N],
    at: usize,
    end: usize,
}

impl<const N: usize> Iterator for Rows<'_, N> {
    type Item = ([usize; N], usize, usize);

    #[inline(always)]
    fn next(&mut self) -> Option<Self::Item> {
        if self.at >= self.end {
            return None;
        }
        let walk = self.walk;
        let inner = walk.rank - 1;
        let len = (walk.dims[inner] - self.index[inner]).min(self.end - self.at);
        let row = (self.offsets.map(|offset| offset as usize), self.at, len);
        self.at += len;
        // Offsets at the beginning of this row, from which the next one's follow.
        for i in 0..N {
            self.offsets[i] -= self.index[inner] as isize * walk.strides[inner][i];
        }
        self.index[inner] = 0;
        let mut d = inner;
        while d > 0 {
            d -= 1;
            self.index[d] += 1;
            for i in 0..N {
                self.offsets[i] += walk.strides[d][i];
            }
            if self.index[d] < walk.dims[d] {
                break;
            }
            for i in 0..N {
                self.offsets[i] -= walk.dims[d] as isize * walk.strides[d][i];
            }
            self.index[d] = 0;
        }
        Some(row)
    }
}

/// Cache: elements of a block on the stack.
pub(crate) const BLOCK: usize = 128;

/// Operand of a row. Public only as an argument of hidden methods.
#[derive(Clone, Copy, Debug)]
pub enum Operand<'a, T> {
    Slice(&'a [T]),
    Constant(T),
}

impl<T: Copy> Operand<'_, T> {
    /// Returns the `len` elements from element `start` on.
    pub fn part(&self, start: usize, len: usize) -> Self {
        match self {
            Operand::Slice(x) => Operand::Slice(&x[start..][..len]),
            Operand::Constant(x) => Operand::Constant(*x),
        }
    }
}

impl<'a, T: Number> Operand<'a, T> {
    /// Widens the elements, at most [`BLOCK`], into `block`; elements of a type that computes in
    /// itself are returned unchanged.
    pub(crate) fn widen<'b>(&self, level: Level, block: &'b mut [T::Wide]) -> Operand<'b, T::Wide>
    where
        'a: 'b,
    {
        match *self {
            Operand::Constant(x) => Operand::Constant(x.widen()),
            Operand::Slice(x) => Operand::Slice(match T::as_wide(x) {
                Some(x) => x,
                None => {
                    let block = &mut block[..x.len()];
                    T::widen_all(level, x, block);
                    block
                }
            }),
        }
    }
}

/// Calls `body(a, b, out)` on pieces of a row of two operands, after gathering operands that are
/// neither contiguous nor constant.
#[inline]
pub(crate) fn for_each_piece<T: Copy + Default, O>(
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
            gather(&a[start * step_a..], step_a, n, &mut block_a),
            gather(&b[start * step_b..], step_b, n, &mut block_b),
            out,
        );
    }
}

/// Returns `n` elements of `x`, contiguous for step 1 or constant for step 0.
#[inline]
fn operand<T: Copy>(x: &[T], step: usize, n: usize) -> Operand<'_, T> {
    if step == 0 { Operand::Constant(x[0]) } else { Operand::Slice(&x[..n]) }
}

/// Returns `n` elements of `x`, `step` apart, gather into `block` if they are neither contiguous
/// nor constant.
#[inline]
pub(crate) fn gather<'a, T: Copy>(
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
    fn operands_that_step_evenly_need_no_walk() {
        for (dims, strides, len, expected) in [
            (&[2, 3][..], &[3, 1][..], 6, Some(1)),
            (&[2, 3], &[0, 0], 1, Some(0)),
            (&[2, 3], &[6, 2], 11, Some(2)),
            (&[1, 3, 1], &[9, 1, 9], 3, Some(1)),
            (&[], &[], 1, Some(0)),
            (&[1], &[1], 1, Some(0)),
            (&[2, 3], &[0, 1], 3, None),
            (&[2, 3], &[1, 2], 6, None),
            (&[2, 3], &[3, 1], 5, None),
            (&[2, 0], &[0, 1], 6, None),
            (&[], &[], 0, None),
            (&[2, usize::MAX], &[usize::MAX, 1], 6, None),
        ] {
            let found = even_step(dims, strides, len);
            assert_eq!(found, expected, "{strides:?} over {dims:?}");
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

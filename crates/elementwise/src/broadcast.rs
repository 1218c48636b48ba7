//! Walking over operands that are broadcast to common output dims.
//!
//! The one idea: dims that all operands step through evenly are merged first, which turns nearly
//! every case into rows whose operands are contiguous or constant. Operands that step otherwise are
//! copied to a small block on the stack, so loops only ever see contiguous or constant operands.

use sardonyx_simd::Level;
use sardonyx_simd::number::Number;

/// Limit: most dims, after merging, that kernels with strides accept. Merging needs at most the
/// rank of the tensors.
pub const MAX_RANK: usize = 32;

/// An operand that is broadcast to the dims of an output: along each of them, neighbours are so
/// many elements of `data` apart, 0 where the operand has one for all (see [`broadcast_strides`]).
#[derive(Clone, Copy, Debug)]
pub struct Strided<'a, T> {
    pub data: &'a [T],
    pub strides: &'a [usize],
}

impl<'a, T> Strided<'a, T> {
    pub fn new(data: &'a [T], strides: &'a [usize]) -> Self {
        Strided { data, strides }
    }

    /// Neighbours along the only dim.
    pub fn flat(data: &'a [T]) -> Self {
        Strided { data, strides: &[1] }
    }
}

/// The element strides of a contiguous operand with dims `dims` when it is broadcast to `out_dims`
/// (dims aligned at the end, 1 broadcast), written to `strides`. `None` if it does not broadcast.
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
#[derive(Clone, Copy, Debug)]
pub struct Walk<const N: usize> {
    rank: usize,
    dims: [usize; MAX_RANK],
    /// The strides of all operands in a dim.
    strides: [[isize; N]; MAX_RANK],
    /// Where the operands start.
    starts: [isize; N],
    /// Output elements.
    pub len: usize,
}

impl<const N: usize> Walk<N> {
    /// `strides[i]` belong to operand `i`, which has `lens[i]` elements.
    ///
    /// # Panics
    ///
    /// If lengths differ, an operand would be read outside, or more than [`MAX_RANK`] dims remain.
    pub fn new(dims: &[usize], strides: [&[usize]; N], lens: [usize; N]) -> Walk<N> {
        for operand in strides {
            assert_eq!(operand.len(), dims.len(), "one stride per dim");
        }
        Self::merged(dims, |i, d| strides[i][d] as isize, [0; N], lens)
    }

    /// As [`Walk::new`], with the stride of operand `i` in dim `d` from a function and starts other
    /// than zero.
    pub fn merged(
        dims: &[usize],
        stride: impl Fn(usize, usize) -> isize,
        starts: [isize; N],
        lens: [usize; N],
    ) -> Walk<N> {
        let len: usize = dims.iter().product();
        let mut walk =
            Walk { rank: 0, dims: [1; MAX_RANK], strides: [[0; N]; MAX_RANK], starts, len };
        for i in 0..N {
            // The least and the greatest offset; i128 because strides come from outside.
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

    /// The merged dims, at least one.
    pub fn dims(&self) -> &[usize] {
        &self.dims[..self.rank]
    }

    /// The strides of the operands in a merged dim.
    pub fn strides(&self, d: usize) -> [isize; N] {
        self.strides[d]
    }

    /// The strides of the operands along a row, for walks without negative ones.
    pub fn steps(&self) -> [usize; N] {
        self.strides[self.rank - 1].map(|stride| stride as usize)
    }

    /// The rows, or parts of rows, that make up outputs `start..end`: offsets of the operands,
    /// first output, length.
    #[inline(always)]
    pub fn rows(&self, start: usize, end: usize) -> Rows<'_, N> {
        let mut rows =
            Rows { walk: self, index: [0; MAX_RANK], offsets: self.starts, at: start, end };
        let mut rest = start;
        let mut d = self.rank;
        while d > 0 && rest > 0 {
            d -= 1;
            // A zero dim has no outputs, so nobody asks for rows.
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

/// How `N` operands go through output dims.
#[derive(Clone, Copy)]
pub(crate) enum Way<'a, const N: usize> {
    /// Each with the same step everywhere.
    Even([usize; N]),
    Walk(&'a Walk<N>),
}

impl<'a, const N: usize> Way<'a, N> {
    /// As [`Walk::new`]. A walk, which is much to set up for a few elements, is only put into
    /// `walk` if it is needed.
    ///
    /// # Panics
    ///
    /// As [`Walk::new`].
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

    /// The strides of the operands along a row.
    pub(crate) fn steps(&self) -> [usize; N] {
        match self {
            Way::Even(steps) => *steps,
            Way::Walk(walk) => walk.steps(),
        }
    }

    /// Calls `body` with each of [`Walk::rows`].
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

/// The one step with which an operand of `len` elements goes through all of `dims`. `None` if there
/// are several, it is too short, or there are no outputs.
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

/// See [`Walk::rows`].
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
        // The next row starts at its beginning.
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

/// An operand of a row. Public only because hidden methods of public traits take it.
#[derive(Clone, Copy, Debug)]
pub enum Operand<'a, T> {
    Slice(&'a [T]),
    Constant(T),
}

impl<T: Copy> Operand<'_, T> {
    /// The `len` elements from number `start` on.
    pub fn part(&self, start: usize, len: usize) -> Self {
        match self {
            Operand::Slice(x) => Operand::Slice(&x[start..][..len]),
            Operand::Constant(x) => Operand::Constant(*x),
        }
    }
}

impl<'a, T: Number> Operand<'a, T> {
    /// Widens the elements, at most [`BLOCK`], into `block`, but for a type that computes in
    /// itself.
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

/// Calls `body(a, b, out)` on pieces of a row of two operands, gathering the ones that are neither
/// contiguous nor constant.
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
    if step == 0 { Operand::Constant(x[0]) } else { Operand::Slice(&x[..n]) }
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

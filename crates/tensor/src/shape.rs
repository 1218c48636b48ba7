//! Shapes: element counts, strides, broadcasting, axes, and the loop over strided operands.
//!
//! Dims are slices of `usize`; symbolic and unknown dims do not exist at this level. Every product
//! here is checked: the dims of a shape that passes [`elems`] can be multiplied in any order
//! without overflow. Counts and strides are in elements.

use smallvec::SmallVec;

use crate::error::{TensorError, err};

/// Dims of a tensor, outermost first; ranks up to 6 need no allocation.
pub type Dims = SmallVec<[usize; 6]>;

/// Strides in elements, one for each dim; 0 repeats an element, a negative stride goes backwards.
pub type Strides = SmallVec<[isize; 6]>;

/// Maximum rank of a tensor, as in NumPy. It bounds the work for each dim. 63 dims of 2 are already
/// as many elements as can be addressed, so more dims can only be of size 1 or 0.
pub const RANK_LIMIT: usize = 64;

/// Checks that a tensor can have this rank.
///
/// # Errors
/// The rank is above [`RANK_LIMIT`].
pub fn demand_rank(rank: usize) -> Result<(), TensorError> {
    if rank > RANK_LIMIT {
        return err!(Range, "the rank is {rank}, but a tensor has at most {RANK_LIMIT} dimensions");
    }
    Ok(())
}

/// Returns the number of elements of a tensor; 1 for a scalar, 0 if any dim is 0.
///
/// # Errors
/// There are more than [`RANK_LIMIT`] dims, or the product of the nonzero ones exceeds
/// `isize::MAX`. Zero dims do not excuse the others, so that strides never overflow.
pub fn elems(dims: &[usize]) -> Result<usize, TensorError> {
    demand_rank(dims.len())?;
    stored_elems(dims)
}

/// Returns the number of elements of a tensor that is only stored: a file may have any number of
/// dims.
///
/// # Errors
/// The product of the nonzero dims exceeds `isize::MAX`.
pub fn stored_elems(dims: &[usize]) -> Result<usize, TensorError> {
    let mut product = 1usize;
    let mut empty = false;
    for &dim in dims {
        if dim == 0 {
            empty = true;
            continue;
        }
        product = match product.checked_mul(dim) {
            Some(p) if p <= isize::MAX as usize => p,
            _ => {
                return err!(
                    Overflow,
                    "dims {:?} have more elements than can be addressed",
                    &dims[..dims.len().min(RANK_LIMIT)]
                );
            }
        };
    }
    Ok(if empty { 0 } else { product })
}

/// Returns row-major strides. Untrusted dims must pass [`elems`] first; here the product saturates.
pub fn strides(dims: &[usize]) -> Strides {
    let mut strides: Strides = SmallVec::from_elem(0, dims.len());
    let mut step = 1usize;
    for (stride, &dim) in strides.iter_mut().zip(dims).rev() {
        *stride = step as isize;
        step = step.saturating_mul(dim.max(1)).min(isize::MAX as usize);
    }
    strides
}

/// Computes the common dims of operands by multidirectional (NumPy) broadcasting.
///
/// # Errors
/// Two operands have different sizes, neither 1, in one dim (the message names them), or the result
/// is too large.
pub fn broadcast_dims(operands: &[&[usize]]) -> Result<Dims, TensorError> {
    let rank = operands.iter().map(|dims| dims.len()).max().unwrap_or(0);
    let mut out: Dims = SmallVec::from_elem(1, rank);
    for dims in operands {
        let skip = rank - dims.len();
        for (axis, &dim) in dims.iter().enumerate() {
            let have = &mut out[skip + axis];
            if *have == 1 {
                *have = dim;
            } else if dim != 1 && dim != *have {
                return err!(
                    Shape,
                    "shapes {operands:?} do not broadcast: {} and {dim} in dim {} from the back",
                    *have,
                    dims.len() - axis
                );
            }
        }
    }
    elems(&out)?;
    Ok(out)
}

/// Computes the strides, in elements, with which a dense operand of dims `from` is read as `to`
/// (unidirectional broadcasting).
///
/// # Errors
/// `from` does not broadcast to exactly `to`.
pub fn broadcast_strides(from: &[usize], to: &[usize]) -> Result<Strides, TensorError> {
    broadcast_strides_of(from, &strides(from), to)
}

/// Computes the strides of broadcasting like [`broadcast_strides`], for an operand with its own
/// strides.
///
/// # Errors
/// `from` does not broadcast to exactly `to`.
pub fn broadcast_strides_of(
    from: &[usize],
    from_strides: &[isize],
    to: &[usize],
) -> Result<Strides, TensorError> {
    let Some(skip) = to.len().checked_sub(from.len()) else {
        return err!(Shape, "{from:?} does not broadcast to {to:?}: its rank is larger");
    };
    let mut out: Strides = SmallVec::from_elem(0, to.len());
    for axis in 0..from.len() {
        if from[axis] == to[skip + axis] {
            out[skip + axis] = from_strides[axis];
        } else if from[axis] != 1 {
            return err!(
                Shape,
                "{from:?} does not broadcast to {to:?}: dim {axis} is neither 1 nor equal"
            );
        }
    }
    Ok(out)
}

/// Converts an axis to an index: negative ones count from the end.
///
/// # Errors
/// `axis` is not in `-rank..rank`.
pub fn normalize_axis(axis: i64, rank: usize) -> Result<usize, TensorError> {
    let index = if axis < 0 { axis.checked_add(rank as i64) } else { Some(axis) };
    match index.and_then(|i| usize::try_from(i).ok()) {
        Some(i) if i < rank => Ok(i),
        _ => err!(Range, "axis {axis} is out of range for rank {rank}"),
    }
}

/// Loop over `N` operands with common dims and different strides.
///
/// Dims of size 1 are removed, and neighbours that are contiguous in every operand are joined, so
/// that the innermost run is as long as possible and most loops have one or two levels. A kernel
/// handles the inner run, this type the outer loops:
///
/// ```
/// use sardonyx_tensor::shape::{NdLoop, broadcast_strides, strides};
/// // A row [3] added to each row of [2, 3].
/// let dims = [2, 3];
/// let (a, row) = (strides(&dims), broadcast_strides(&[3], &dims)?);
/// let mut runs = Vec::new();
/// let nd = NdLoop::new(&dims, [&a, &row])?;
/// nd.for_each(|[a, row]| runs.push((a, row)));
/// assert_eq!((nd.inner_len(), nd.inner_strides()), (3, [1, 1]));
/// assert_eq!(runs, [(0, 0), (3, 0)]);
/// # Ok::<(), sardonyx_tensor::TensorError>(())
/// ```
#[derive(Debug, Clone)]
pub struct NdLoop<const N: usize> {
    /// Outer dims, outermost first, without the innermost one.
    dims: Dims,
    strides: [Strides; N],
    inner_len: usize,
    inner_strides: [isize; N],
    outer_len: usize,
}

impl<const N: usize> NdLoop<N> {
    /// Plans the loop over `dims`; `strides[k]` are the strides of operand `k`, in elements.
    ///
    /// # Errors
    /// The number of strides differs from the rank, or the dims overflow.
    pub fn new(dims: &[usize], strides: [&[isize]; N]) -> Result<Self, TensorError> {
        for s in strides {
            if s.len() != dims.len() {
                return err!(Shape, "{} strides for rank {}", s.len(), dims.len());
            }
        }
        let total = elems(dims)?;
        let mut out_dims = Dims::new();
        let mut out: [Strides; N] = std::array::from_fn(|_| Strides::new());
        for axis in 0..dims.len() {
            if dims[axis] == 1 {
                continue;
            }
            if let Some(last) = out_dims.last_mut() {
                let span = dims[axis] as isize;
                let joins = |k: usize| out[k].last().copied() == strides[k][axis].checked_mul(span);
                if (0..N).all(joins) {
                    *last *= dims[axis];
                    for k in 0..N {
                        if let Some(stride) = out[k].last_mut() {
                            *stride = strides[k][axis];
                        }
                    }
                    continue;
                }
            }
            out_dims.push(dims[axis]);
            for k in 0..N {
                out[k].push(strides[k][axis]);
            }
        }
        let inner_len = out_dims.pop().unwrap_or(1);
        let inner_strides = std::array::from_fn(|k| out[k].pop().unwrap_or(1));
        let empty = total == 0;
        Ok(NdLoop {
            outer_len: if empty { 0 } else { out_dims.iter().product() },
            dims: out_dims,
            strides: out,
            inner_len: if empty { 0 } else { inner_len },
            inner_strides,
        })
    }

    /// Returns the number of elements of an inner run; 0 if the loop is empty.
    pub fn inner_len(&self) -> usize {
        self.inner_len
    }

    /// Returns the strides of each operand along the inner run, in elements.
    pub fn inner_strides(&self) -> [isize; N] {
        self.inner_strides
    }

    /// Returns the number of inner runs; 0 if the loop is empty.
    pub fn outer_len(&self) -> usize {
        self.outer_len
    }

    /// Calls `body` with the offsets of each operand at the start of every inner run, in row-major
    /// order.
    pub fn for_each(&self, body: impl FnMut([isize; N])) {
        self.for_range(0..self.outer_len, body);
    }

    /// Calls `body` like [`NdLoop::for_each`], for a range of the runs, so that threads can share
    /// the loop.
    pub fn for_range(&self, runs: std::ops::Range<usize>, mut body: impl FnMut([isize; N])) {
        let runs = runs.start..runs.end.min(self.outer_len);
        if runs.is_empty() {
            return;
        }
        let mut index: Dims = SmallVec::from_elem(0, self.dims.len());
        let mut offsets = [0isize; N];
        let mut rest = runs.start;
        for axis in (0..self.dims.len()).rev() {
            index[axis] = rest % self.dims[axis];
            rest /= self.dims[axis];
            for (k, offset) in offsets.iter_mut().enumerate() {
                *offset += index[axis] as isize * self.strides[k][axis];
            }
        }
        for _ in runs {
            body(offsets);
            for axis in (0..self.dims.len()).rev() {
                index[axis] += 1;
                if index[axis] < self.dims[axis] {
                    for (k, offset) in offsets.iter_mut().enumerate() {
                        *offset += self.strides[k][axis];
                    }
                    break;
                }
                index[axis] = 0;
                for (k, offset) in offsets.iter_mut().enumerate() {
                    *offset -= (self.dims[axis] as isize - 1) * self.strides[k][axis];
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_checked() {
        assert_eq!(elems(&[]).unwrap(), 1); // TENSOR-03
        assert_eq!(elems(&[0, 5]).unwrap(), 0); // TENSOR-04
        assert_eq!(elems(&[2, 3, 4]).unwrap(), 24); // TENSOR-01
        // TENSOR-32
        assert!(elems(&[1 << 40, 1 << 40]).is_err());
        assert!(elems(&[0, 1 << 40, 1 << 40]).is_err());
        assert!(elems(&[usize::MAX]).is_err());
        assert_eq!(elems(&[1; RANK_LIMIT]).unwrap(), 1);
        let error = elems(&[1; RANK_LIMIT + 1]).unwrap_err().to_string();
        assert_eq!(error, "the rank is 65, but a tensor has at most 64 dimensions");
        assert_eq!(stored_elems(&[1; RANK_LIMIT + 1]).unwrap(), 1);
    }

    #[test]
    fn row_major() {
        // TENSOR-08
        assert_eq!(strides(&[2, 3, 4]).as_slice(), [12, 4, 1]);
        assert_eq!(strides(&[]).as_slice(), [0isize; 0]);
        assert_eq!(strides(&[5, 0, 2]).as_slice(), [2, 2, 1]);
    }

    #[test]
    fn broadcasting() {
        let ok = |ops: &[&[usize]], want: &[usize]| {
            assert_eq!(broadcast_dims(ops).unwrap().as_slice(), want, "{ops:?}");
        };
        ok(&[&[2, 3, 4, 5], &[]], &[2, 3, 4, 5]);
        ok(&[&[4, 5], &[2, 3, 4, 5]], &[2, 3, 4, 5]);
        ok(&[&[1, 4, 5], &[2, 3, 1, 1]], &[2, 3, 4, 5]);
        ok(&[&[0], &[1]], &[0]);
        ok(&[&[3, 0], &[1, 1], &[]], &[3, 0]);
        ok(&[], &[]);
        assert!(broadcast_dims(&[&[2, 3], &[3, 2]]).is_err());
        assert!(broadcast_dims(&[&[0], &[2]]).is_err());
        assert!(broadcast_dims(&[&[1 << 40, 1], &[1 << 40]]).is_err());
        assert_eq!(broadcast_strides(&[3, 1], &[2, 3, 4]).unwrap().as_slice(), [0, 1, 0]);
        assert!(broadcast_strides(&[2, 3], &[3]).is_err());
        assert!(broadcast_strides(&[3], &[1]).is_err());
    }

    #[test]
    fn axes() {
        assert_eq!(normalize_axis(-1, 3).unwrap(), 2);
        assert_eq!(normalize_axis(0, 1).unwrap(), 0);
        for (axis, rank) in [(3, 3), (-4, 3), (0, 0), (-1, 0), (i64::MIN, 3), (i64::MAX, 3)] {
            assert!(normalize_axis(axis, rank).is_err(), "{axis} {rank}");
        }
    }

    /// Lists the operand offsets of every element that the loop visits.
    fn visit<const N: usize>(nd: &NdLoop<N>, runs: std::ops::Range<usize>) -> Vec<[isize; N]> {
        let mut out = Vec::new();
        nd.for_range(runs, |offsets| {
            for i in 0..nd.inner_len() as isize {
                out.push(std::array::from_fn(|k| offsets[k] + i * nd.inner_strides()[k]));
            }
        });
        out
    }

    #[test]
    fn loops_visit_everything_in_order() {
        let cases: &[(&[usize], &[isize], &[isize])] = &[
            (&[], &[], &[]),
            (&[1, 1], &[1, 1], &[0, 7]),
            (&[2, 3, 4], &[12, 4, 1], &[0, 1, 3]),
            (&[2, 3, 4], &[12, 4, 1], &[0, 4, 1]),
            (&[2, 1, 3], &[3, 3, 1], &[-3, 99, 1]),
            (&[2, 2, 2, 2], &[8, 4, 2, 1], &[8, 4, 0, 1]),
            (&[3, 4], &[0, 0], &[4, 1]),
            (&[2, 0, 3], &[3, 3, 1], &[3, 3, 1]),
        ];
        for (dims, a, b) in cases {
            let nd = NdLoop::new(dims, [a, b]).unwrap();
            let total = elems(dims).unwrap();
            let own = strides(dims);
            let want: Vec<[isize; 2]> = (0..total)
                .map(|i| {
                    let at = |s: &[isize]| {
                        (0..dims.len())
                            .map(|d| ((i as isize / own[d]) % dims[d] as isize) * s[d])
                            .sum()
                    };
                    [at(a), at(b)]
                })
                .collect();
            assert_eq!(visit(&nd, 0..usize::MAX), want, "{dims:?} {a:?} {b:?}");
            let half = nd.outer_len() / 2;
            let mut parts = visit(&nd, 0..half);
            parts.extend(visit(&nd, half..nd.outer_len()));
            assert_eq!(parts, want);
        }
        let dense = strides(&[2, 3, 4]);
        let nd = NdLoop::new(&[2, 3, 4], [&dense, &dense]).unwrap();
        assert_eq!((nd.outer_len(), nd.inner_len()), (1, 24));
        assert!(NdLoop::new(&[2], [&[][..]]).is_err());
    }
}

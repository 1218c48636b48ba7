//! Softmax, its logarithm, and hardmax along one axis.
//!
//! The maximum is subtracted before exponentials are taken, so that nothing overflows; a row
//! without a finite maximum becomes NaN, by definition. Sums are accurate like those of
//! [`reduce`](super::reduce).

use crate::reduce::{Maximum, Sum, run};
use crate::wide::{Slices, by_slices};
use crate::{AxisDims, RowDims};
use sardonyx_simd::Exec;
use sardonyx_simd::chunks::{Shared, ranges};
use sardonyx_simd::number::{Arith, Math, Number};
use sardonyx_simd::{Ended, Level, Loop};

/// Function along an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Softmax {
    /// `exp(x) / sum(exp(x))`
    Softmax,
    /// `x - ln(sum(exp(x)))`: the logarithm of softmax.
    LogSoftmax,
    /// 1 at the first maximum, else 0.
    Hardmax,
}

/// Computes `y = op(x)` along the middle axis of dims `[outer, axis, inner]`.
///
/// # Panics
///
/// If lengths do not fit the dims.
pub fn softmax<T: Number>(
    exec: &Exec<'_>,
    op: Softmax,
    dims: AxisDims,
    x: &[T],
    y: &mut [T],
) -> Result<(), Ended> {
    assert_eq!(x.len(), y.len(), "one output per input");
    let AxisDims { axis, inner, .. } = dims;
    assert_eq!(y.len(), dims.elements(), "the output has other dims");
    by_slices(exec, slices(dims), Some(x), y, &|exec, slices, x, y| {
        apply(exec, op, AxisDims { outer: slices.len(), axis, inner }, Some(x), y)
    })
}

/// Computes `x = op(x)` along the middle axis of dims `[outer, axis, inner]`.
///
/// # Panics
///
/// If the length does not fit the dims.
pub fn softmax_in_place<T: Number>(
    exec: &Exec<'_>,
    op: Softmax,
    dims: AxisDims,
    x: &mut [T],
) -> Result<(), Ended> {
    let AxisDims { axis, inner, .. } = dims;
    if let Some(x) = T::as_wide_mut(x) {
        return apply(exec, op, dims, None, x);
    }
    assert_eq!(x.len(), dims.elements(), "the output has other dims");
    by_slices(exec, slices(dims), None, x, &|exec, slices, x, y| {
        apply(exec, op, AxisDims { outer: slices.len(), axis, inner }, Some(x), y)
    })
}

/// Returns the slices, which are computed one by one.
fn slices(AxisDims { outer, axis, inner }: AxisDims) -> Slices {
    let len = axis * inner;
    Slices { count: outer, input: len, output: len, work: COST * len }
}

/// Computes `op` in place in `y`. Copies `x` to it piece by piece, so that a piece is in the cache.
fn apply<T: Arith>(
    exec: &Exec<'_>,
    op: Softmax,
    AxisDims { outer, axis, inner }: AxisDims,
    x: Option<&[T]>,
    y: &mut [T],
) -> Result<(), Ended> {
    let &Exec { pool, isa, .. } = exec;
    assert_eq!(y.len(), outer * axis * inner, "the output has other dims");
    if y.is_empty() {
        return Ok(());
    }
    let level = Level::new(isa);
    let work = COST * axis;
    if inner == 1 {
        let shared = Shared::new(y);
        return each_row(exec, op, RowDims { count: outer, width: axis }, |i| {
            // SAFETY: `each_row` calls this once for each row.
            let y = unsafe { shared.part(i * axis, axis) };
            if let Some(x) = x {
                y.copy_from_slice(&x[i * axis..][..axis]);
            }
            y
        });
    }
    // Pieces are groups of columns, whose rows are apart in the buffer: each row is borrowed by
    // itself.
    let per_outer = inner.div_ceil(COLUMNS);
    let shared = Shared::new(y);
    ranges(pool, outer * per_outer, work * COLUMNS.min(inner), |pieces| {
        for piece in pieces {
            let column = piece % per_outer * COLUMNS;
            let first = piece / per_outer * axis * inner + column;
            let width = COLUMNS.min(inner - column);
            T::run(level, Columns { op, axis, inner, first, width, x, y: &shared });
        }
    })
}

/// Work: approximate cost of an exponential, in operations.
const COST: usize = 8;

/// Computes `op` of `count` rows of `width` elements in place. Calls `row` once for each row, on
/// the thread that computes it.
pub(crate) fn each_row<'a, T: Number>(
    exec: &Exec<'_>,
    op: Softmax,
    RowDims { count, width }: RowDims,
    row: impl Fn(usize) -> &'a mut [T] + Sync,
) -> Result<(), Ended> {
    let level = Level::new(exec.isa);
    ranges(exec.pool, count, COST * width, |rows| {
        for i in rows {
            T::run(level, Row { op, row: row(i) });
        }
    })
}

/// Loop over one row in place.
pub(crate) struct Row<'a, T> {
    pub(crate) op: Softmax,
    pub(crate) row: &'a mut [T],
}

impl<T: Number> Loop for Row<'_, T> {
    type Out = ();
    #[inline(always)]
    fn run<const FMA: bool>(self) {
        let (op, row) = (self.op, self.row);
        let max = T::Wide::from_total(run(Maximum, row));
        if op == Softmax::Hardmax {
            let found = row.iter().position(|x| {
                let x = x.widen();
                x == max || x.is_nan()
            });
            row.fill(T::ZERO);
            // A row has at least one element, so it has a maximum.
            if let Some(found) = found {
                row[found] = T::ONE;
            }
            return;
        }
        let max = T::narrow(max).to_real();
        if op == Softmax::Softmax {
            for x in row.iter_mut() {
                *x = T::from_real(Math::exp_nonpositive::<FMA>(x.to_real().sub(max)));
            }
            let scale = 1.0 / run(Sum, row).to_f64();
            let scale = T::Real::from_f64(scale);
            for x in row {
                *x = T::from_real(x.to_real().mul(scale));
            }
            return;
        }
        let mut block = [T::Real::ZERO; 128];
        let mut sum = 0.0;
        for x in row.chunks(block.len()) {
            for (e, x) in block.iter_mut().zip(x) {
                *e = Math::exp_nonpositive::<FMA>(x.to_real().sub(max));
            }
            sum += run(Sum, &block[..x.len()]).to_f64();
        }
        let log = T::Real::from_f64(sum.ln());
        for x in row {
            *x = T::from_real(x.to_real().sub(max).sub(log));
        }
    }
}

/// Cache: elements of short rows whose exponentials are computed together.
const TOGETHER: usize = 256;

/// Loop that computes softmax of short rows in place, with the same bits as [`Row`]. A short row
/// does not fill a vector, so the exponentials of several rows are computed together.
pub(crate) struct ShortRows<'a, T> {
    pub(crate) width: usize,
    pub(crate) rows: &'a mut [T],
}

impl<T> ShortRows<'_, T> {
    /// Choice: row length below which rows are short.
    pub(crate) const SHORT: usize = 16;
}

impl<T: Number> Loop for ShortRows<'_, T> {
    type Out = ();
    #[inline(always)]
    fn run<const FMA: bool>(self) {
        let width = self.width;
        for rows in self.rows.chunks_mut(width * (TOGETHER / width).max(1)) {
            for row in rows.chunks_exact_mut(width) {
                let max = T::narrow(T::Wide::from_total(run(Maximum, row))).to_real();
                for x in row {
                    *x = T::from_real(x.to_real().sub(max));
                }
            }
            for x in rows.iter_mut() {
                *x = T::from_real(Math::exp_nonpositive::<FMA>(x.to_real()));
            }
            for row in rows.chunks_exact_mut(width) {
                let scale = T::Real::from_f64(1.0 / run(Sum, row).to_f64());
                for x in row {
                    *x = T::from_real(x.to_real().mul(scale));
                }
            }
        }
    }
}

/// Cache: columns that are computed together.
const COLUMNS: usize = 64;

/// Loop down a group of columns.
struct Columns<'a, T> {
    op: Softmax,
    axis: usize,
    inner: usize,
    /// Offset of the first element.
    first: usize,
    /// Number of columns, at most [`COLUMNS`].
    width: usize,
    x: Option<&'a [T]>,
    y: &'a Shared<'a, T>,
}

impl<T: Number> Columns<'_, T> {
    /// Returns row `i` of the columns.
    #[inline(always)]
    #[allow(clippy::mut_from_ref)] // Like `Shared::part`.
    fn row(&self, i: usize) -> &mut [T] {
        // SAFETY: pieces are disjoint sets of columns, and one row of a piece is borrowed at a
        // time.
        unsafe { self.y.part(self.first + i * self.inner, self.width) }
    }
}

impl<T: Number> Loop for Columns<'_, T> {
    type Out = ();
    #[inline(always)]
    fn run<const FMA: bool>(self) {
        if let Some(x) = self.x {
            for i in 0..self.axis {
                let x = &x[self.first + i * self.inner..][..self.width];
                self.row(i).copy_from_slice(x);
            }
        }
        let mut max = [T::Real::LOWEST; COLUMNS];
        for i in 0..self.axis {
            for (max, x) in max.iter_mut().zip(&*self.row(i)) {
                *max = Arith::max(*max, x.to_real());
            }
        }
        if self.op == Softmax::Hardmax {
            let mut found = [false; COLUMNS];
            for i in 0..self.axis {
                for ((x, max), found) in self.row(i).iter_mut().zip(&max).zip(&mut found) {
                    let real = x.to_real();
                    let here = !*found && (real == *max || real.is_nan());
                    *found |= here;
                    *x = if here { T::ONE } else { T::ZERO };
                }
            }
            return;
        }
        let holds = self.op == Softmax::Softmax;
        let mut sums = [0.0; COLUMNS];
        for i in 0..self.axis {
            let columns = self.row(i).iter_mut().zip(&max).zip(&mut sums);
            if holds {
                for ((x, max), sum) in columns {
                    let e = Math::exp_nonpositive::<FMA>(x.to_real().sub(*max));
                    *x = T::from_real(e);
                    *sum += e.to_f64();
                }
            } else {
                for ((x, max), sum) in columns {
                    *sum += Math::exp_nonpositive::<FMA>(x.to_real().sub(*max)).to_f64();
                }
            }
        }
        let mut last = [T::Real::ZERO; COLUMNS];
        for (last, sum) in last.iter_mut().zip(&sums) {
            *last =
                T::Real::from_f64(if self.op == Softmax::Softmax { 1.0 / sum } else { sum.ln() });
        }
        for i in 0..self.axis {
            if holds {
                for (x, last) in self.row(i).iter_mut().zip(&last) {
                    *x = T::from_real(x.to_real().mul(*last));
                }
                continue;
            }
            for ((x, max), last) in self.row(i).iter_mut().zip(&max).zip(&last) {
                *x = T::from_real(x.to_real().sub(*max).sub(*last));
            }
        }
    }
}

#[cfg(test)]
mod tests;

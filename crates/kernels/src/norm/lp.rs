//! Division by the norm along an axis.

use crate::AxisDims;
use crate::reduce::{Norm1, Squares, run};
use crate::wide::{Slices, by_slices};
use sardonyx_simd::Exec;
use sardonyx_simd::chunks::{Shared, ranges, rows};
use sardonyx_simd::number::{Arith, Math, Number};
use sardonyx_simd::{Ended, Level, Loop};

/// Norm that elements are divided by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Norm {
    /// Sum of absolute values.
    L1,
    /// Square root of the sum of squares.
    L2,
}

/// Divides by the norm along the middle axis of dims `[outer, axis, inner]`: `y = x / norm(x)`, or
/// 0 where the norm is 0.
///
/// # Panics
///
/// If lengths do not fit the dims.
pub fn lp_norm<T: Number>(
    exec: &Exec<'_>,
    norm: Norm,
    AxisDims { outer, axis, inner }: AxisDims,
    x: &[T],
    y: &mut [T],
) -> Result<(), Ended> {
    assert_eq!(x.len(), outer * axis * inner, "the input has other dims");
    assert_eq!(y.len(), x.len(), "one output per input");
    let len = axis * inner;
    let slices = Slices { count: outer, input: len, output: len, work: 2 * len };
    by_slices(exec, slices, Some(x), y, &|exec, slices, x, y| {
        divide(exec, norm, AxisDims { outer: slices.len(), axis, inner }, x, y)
    })
}

/// Divides like [`lp_norm`], in a type with arithmetic.
fn divide<T: Arith>(
    exec: &Exec<'_>,
    norm: Norm,
    AxisDims { outer, axis, inner }: AxisDims,
    x: &[T],
    y: &mut [T],
) -> Result<(), Ended> {
    let &Exec { pool, isa, .. } = exec;
    if y.is_empty() {
        return Ok(());
    }
    let level = Level::new(isa);
    if inner == 1 {
        return rows(pool, y, axis, 2 * axis, |first, y| {
            for (y, x) in y.chunks_exact_mut(axis).zip(x[first * axis..].chunks_exact(axis)) {
                T::run(level, Row { norm, x, y });
            }
        });
    }
    // Pieces are groups of columns, whose rows are apart in the buffer: each row is borrowed by
    // itself.
    let per_outer = inner.div_ceil(COLUMNS);
    let pieces = outer * per_outer;
    let shared = Shared::new(y);
    ranges(pool, pieces, 2 * axis * COLUMNS.min(inner), |pieces| {
        for piece in pieces {
            let column = piece % per_outer * COLUMNS;
            T::run(
                level,
                Columns {
                    norm,
                    axis,
                    inner,
                    first: piece / per_outer * axis * inner + column,
                    width: COLUMNS.min(inner - column),
                    x,
                    y: &shared,
                },
            );
        }
    })
}

/// Returns the reciprocal of the norm, or 0 for norm 0. `total` is the sum of absolute values or of
/// squares.
#[inline(always)]
fn norm_factor<R: Math>(norm: Norm, total: f64) -> R {
    let norm = match norm {
        Norm::L1 => total,
        Norm::L2 => total.sqrt(),
    };
    R::from_f64(if norm == 0.0 { 0.0 } else { 1.0 / norm })
}

/// Loop over one contiguous row.
struct Row<'a, T> {
    norm: Norm,
    x: &'a [T],
    y: &'a mut [T],
}

impl<T: Number> Loop for Row<'_, T> {
    type Out = ();
    #[inline(always)]
    fn run<const FMA: bool>(self) {
        let total = match self.norm {
            Norm::L1 => run(Norm1, self.x).to_f64(),
            Norm::L2 => run(Squares, self.x).to_f64(),
        };
        let factor: T::Real = norm_factor(self.norm, total);
        for (y, x) in self.y.iter_mut().zip(self.x) {
            *y = T::from_real(x.to_real().mul(factor));
        }
    }
}

/// Cache: columns that are divided together.
const COLUMNS: usize = 64;

/// Loop down a group of columns.
struct Columns<'a, T> {
    norm: Norm,
    axis: usize,
    inner: usize,
    /// Offset of the first element.
    first: usize,
    /// Number of columns, at most [`COLUMNS`].
    width: usize,
    x: &'a [T],
    y: &'a Shared<'a, T>,
}

impl<T: Number> Loop for Columns<'_, T> {
    type Out = ();
    #[inline(always)]
    fn run<const FMA: bool>(self) {
        let mut totals = [0.0; COLUMNS];
        for i in 0..self.axis {
            let x = &self.x[self.first + i * self.inner..][..self.width];
            for (total, x) in totals.iter_mut().zip(x) {
                let x = x.to_f64();
                *total += match self.norm {
                    Norm::L1 => x.abs(),
                    Norm::L2 => x * x,
                };
            }
        }
        let factors = totals.map(|total| norm_factor::<T::Real>(self.norm, total));
        for i in 0..self.axis {
            let at = self.first + i * self.inner;
            // SAFETY: pieces are disjoint sets of columns, and one row of a piece is borrowed at a
            // time.
            let y = unsafe { self.y.part(at, self.width) };
            for ((y, x), factor) in y.iter_mut().zip(&self.x[at..]).zip(&factors) {
                *y = T::from_real(x.to_real().mul(*factor));
            }
        }
    }
}

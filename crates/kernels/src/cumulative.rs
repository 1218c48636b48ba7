//! Cumulative sums and products along an axis.
//!
//! Floats accumulate in f64, so that the rounding error does not grow with the length of the axis.

use std::marker::PhantomData;

use crate::AxisDims;
use crate::wide::{Slices, by_slices};
use sardonyx_simd::Exec;
use sardonyx_simd::chunks::{Shared, ranges, rows};
use sardonyx_simd::number::{Arith, Number};
use sardonyx_simd::{Ended, Level, Loop};

/// Operation that combines the elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CumulativeOp {
    Sum,
    Product,
}

/// Operation, inclusion and direction of a cumulative sum or product.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cumulative {
    /// Operation.
    pub op: CumulativeOp,
    /// Whether an element is left out of its own result.
    pub exclusive: bool,
    /// Whether to accumulate from the end.
    pub reverse: bool,
}

/// Accumulates along the middle axis of dims `[outer, axis, inner]`: `y[o, a, i] = x[o, 0, i] +
/// .. + x[o, a, i]`, or the product. Integers wrap.
///
/// # Panics
///
/// If lengths do not fit the dims.
pub fn cumulative<T: Number>(
    exec: &Exec<'_>,
    which: Cumulative,
    dims: AxisDims,
    x: &[T],
    y: &mut [T],
) -> Result<(), Ended> {
    let AxisDims { outer, axis, inner } = dims;
    assert_eq!(x.len(), dims.elements(), "the input has other dims");
    assert_eq!(y.len(), x.len(), "one output per input");
    let len = axis * inner;
    let slices = Slices { count: outer, input: len, output: len, work: 4 * len };
    by_slices(exec, slices, Some(x), y, &|exec, slices, x, y| {
        let dims = AxisDims { outer: slices.len(), axis, inner };
        match which.op {
            CumulativeOp::Sum => accumulate::<_, Sum>(exec, which, dims, x, y),
            CumulativeOp::Product => accumulate::<_, Product>(exec, which, dims, x, y),
        }
    })
}

/// Operation of [`CumulativeOp`] as a type, so that loops are compiled for each.
trait Join: Send + Sync {
    /// Returns the neutral element.
    fn neutral<A: Arith>() -> A;
    /// Combines the total of earlier elements with one more.
    fn join<A: Arith>(total: A, x: A) -> A;
}

/// [`CumulativeOp::Sum`].
struct Sum;

impl Join for Sum {
    #[inline(always)]
    fn neutral<A: Arith>() -> A {
        A::ZERO
    }

    #[inline(always)]
    fn join<A: Arith>(total: A, x: A) -> A {
        total.add(x)
    }
}

/// [`CumulativeOp::Product`].
struct Product;

impl Join for Product {
    #[inline(always)]
    fn neutral<A: Arith>() -> A {
        A::ONE
    }

    #[inline(always)]
    fn join<A: Arith>(total: A, x: A) -> A {
        total.mul(x)
    }
}

/// Accumulates along the middle axis like [`cumulative`], in a type with arithmetic.
fn accumulate<T: Arith, J: Join>(
    exec: &Exec<'_>,
    which: Cumulative,
    AxisDims { outer, axis, inner }: AxisDims,
    x: &[T],
    y: &mut [T],
) -> Result<(), Ended> {
    let &Exec { pool, isa, .. } = exec;
    if y.is_empty() {
        return Ok(());
    }
    if inner == 1 {
        return rows(pool, y, axis, 4 * axis, |first, y| {
            for (y, x) in y.chunks_exact_mut(axis).zip(x[first * axis..].chunks_exact(axis)) {
                accumulate_row::<T, J>(which, x, y);
            }
        });
    }
    let level = Level::new(isa);
    // Pieces are groups of columns, whose rows are apart in the buffer: each row is borrowed by
    // itself.
    let per_outer = inner.div_ceil(COLUMNS);
    let pieces = outer * per_outer;
    let shared = Shared::new(y);
    ranges(pool, pieces, axis * COLUMNS.min(inner), |pieces| {
        for piece in pieces {
            let column = piece % per_outer * COLUMNS;
            T::run(
                level,
                Columns::<T, J> {
                    which,
                    axis,
                    inner,
                    first: piece / per_outer * axis * inner + column,
                    width: COLUMNS.min(inner - column),
                    x,
                    y: &shared,
                    join: PhantomData,
                },
            );
        }
    })
}

/// Accumulates one contiguous row.
fn accumulate_row<T: Arith, J: Join>(which: Cumulative, x: &[T], y: &mut [T]) {
    let mut total: T::Total = J::neutral();
    let mut accumulate = |(y, x): (&mut T, &T)| {
        let before = total;
        total = J::join(total, x.to_total());
        let found = if which.exclusive { before } else { total };
        *y = T::from_total(found);
    };
    let pairs = y.iter_mut().zip(x);
    if which.reverse {
        pairs.rev().for_each(&mut accumulate);
    } else {
        pairs.for_each(&mut accumulate);
    }
}

/// Cache: columns that are accumulated together.
const COLUMNS: usize = 64;

/// Loop that accumulates down a group of columns.
struct Columns<'a, T, J> {
    which: Cumulative,
    axis: usize,
    inner: usize,
    /// Offset of the first element.
    first: usize,
    /// Number of columns, at most [`COLUMNS`].
    width: usize,
    x: &'a [T],
    y: &'a Shared<'a, T>,
    join: PhantomData<J>,
}

impl<T: Arith, J: Join> Loop for Columns<'_, T, J> {
    type Out = ();
    #[inline(always)]
    fn run<const FMA: bool>(self) {
        let mut totals: [T::Total; COLUMNS] = [J::neutral(); COLUMNS];
        for i in 0..self.axis {
            let i = if self.which.reverse { self.axis - 1 - i } else { i };
            let at = self.first + i * self.inner;
            let x = &self.x[at..][..self.width];
            // SAFETY: pieces are disjoint sets of columns, and one row of a piece is borrowed at a
            // time.
            let y = unsafe { self.y.part(at, self.width) };
            for ((y, x), total) in y.iter_mut().zip(x).zip(&mut totals) {
                let before = *total;
                *total = J::join(before, x.to_total());
                let found = if self.which.exclusive { before } else { *total };
                *y = T::from_total(found);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use half::f16;

    use super::*;
    use sardonyx_simd::{Isa, Pool};

    fn check<T: Number>() {
        check_op::<T>(CumulativeOp::Sum);
        check_op::<T>(CumulativeOp::Product);
    }

    /// Compares [`cumulative`] with sums and products of filtered elements.
    fn check_op<T: Number>(op: CumulativeOp) {
        for &isa in Isa::available() {
            for dims in [
                [3, 7, 1],
                [2, 5, 3],
                [1, 300, 65],
                [4, 9, 128],
                [1, 1, 1],
                [0, 3, 2],
                [2, 0, 3],
                [2, 3, 0],
                [50, 120, 1],
            ] {
                let [outer, axis, inner] = dims;
                // Sums of small integers are exact in every type but the narrowest, as are products
                // of few factors of two.
                let x: Vec<T> = (0..outer * axis * inner)
                    .map(|i| match op {
                        CumulativeOp::Sum => T::from_f64((i * 7 % 3) as f64),
                        CumulativeOp::Product if i % 41 == 5 => T::from_f64(2.0),
                        CumulativeOp::Product => T::ONE,
                    })
                    .collect();
                for which in [(false, false), (false, true), (true, false), (true, true)] {
                    let (exclusive, reverse) = which;
                    let which = Cumulative { op, exclusive, reverse };
                    let mut y = vec![T::ONE; x.len()];
                    cumulative(&Exec::new(&Pool::new(2), isa), which, dims.into(), &x, &mut y)
                        .unwrap();
                    for (at, y) in y.iter().enumerate() {
                        let (o, a, i) = (at / inner / axis, at / inner % axis, at % inner);
                        let joined = (0..axis)
                            .filter(|other| {
                                if reverse {
                                    *other > a || (*other == a && !exclusive)
                                } else {
                                    *other < a || (*other == a && !exclusive)
                                }
                            })
                            .map(|other| x[(o * axis + other) * inner + i].to_f64());
                        let found: f64 = match op {
                            CumulativeOp::Sum => joined.sum(),
                            CumulativeOp::Product => joined.product(),
                        };
                        // Integers wrap: compare the low 7 bits.
                        let expected = if T::IS_FLOAT {
                            T::from_f64(found)
                        } else {
                            T::from_f64((found as i64 as u8 & 0x7f).into())
                        };
                        let found = if T::IS_FLOAT {
                            *y
                        } else {
                            T::from_f64((y.to_f64() as i64 as u8 & 0x7f).into())
                        };
                        assert_eq!(found, expected, "{isa:?} {dims:?} {which:?} {at}");
                    }
                }
            }
        }
    }

    #[test]
    fn every_type() {
        check::<f32>();
        check::<f64>();
        check::<f16>();
        check::<i32>();
        check::<u64>();
    }

    #[test]
    fn what_is_no_number_stays() {
        let x = [1.0f32, f32::NAN, 2.0, f32::INFINITY];
        let mut y = [0.0; 4];
        let which = Cumulative { op: CumulativeOp::Sum, exclusive: true, reverse: false };
        cumulative(&Exec::new(&Pool::new(1), Isa::detect()), which, [1, 4, 1].into(), &x, &mut y)
            .unwrap();
        assert_eq!(y[..2], [0.0, 1.0]);
        assert!(y[2].is_nan() && y[3].is_nan());
    }
}

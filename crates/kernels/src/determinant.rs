//! Determinants of square matrices.
//!
//! Computed by elimination with partial pivoting (Golub and Van Loan, "Matrix Computations",
//! section 3.4), in f64 for each type. The product of the pivots has an exponent of its own, so
//! that it neither overflows nor underflows on the way.

use sardonyx_simd::Exec;
use sardonyx_simd::buffer::with_scratch_of;
use sardonyx_simd::chunks::rows;
use sardonyx_simd::number::Number;
use sardonyx_simd::{Ended, Isa, Pool};
use sardonyx_simd::{Level, Loop};

/// Computes the determinants of the matrices in `x`, of `size` rows and columns each; 1 for
/// matrices without elements. A matrix whose elimination leaves no pivot has determinant 0, even
/// with NaN or infinities elsewhere.
///
/// # Panics
///
/// If lengths do not fit.
pub fn determinants<T: Number>(
    exec: &Exec<'_>,
    size: usize,
    x: &[T],
    y: &mut [T],
) -> Result<(), Ended> {
    let &Exec { pool, isa, .. } = exec;
    let len = size * size;
    assert_eq!(x.len(), y.len() * len, "one output per matrix");
    if len == 0 {
        y.fill(T::ONE);
        return Ok(());
    }
    let determinant_of = |pool: Option<&Pool>, matrix: usize| {
        let x = &x[matrix * len..][..len];
        with_scratch_of(len, |a: &mut [f64]| {
            a.iter_mut().zip(x).for_each(|(a, x)| *a = x.to_f64());
            Ok(T::from_f64(determinant(pool, isa, size, a)?))
        })
    };
    // Few matrices: all threads work on each, with one round of the pool per column.
    if y.len() < pool.threads() {
        for (matrix, y) in y.iter_mut().enumerate() {
            *y = determinant_of(Some(pool), matrix)?;
        }
        Ok(())
    } else {
        rows(pool, y, 1, len.saturating_mul(size), |first, y| {
            for (y, matrix) in y.iter_mut().zip(first..) {
                *y = determinant_of(None, matrix)?;
            }
            Ok(())
        })
    }
}

/// Computes the determinant of a matrix and overwrites the matrix.
fn determinant(pool: Option<&Pool>, isa: Isa, size: usize, a: &mut [f64]) -> Result<f64, Ended> {
    let mut product = Scaled { value: 1.0, exponent: 0 };
    for column in 0..size {
        Pool::check_ended()?;
        let pivot = (column..size).fold(column, |best, row| {
            let [x, most] = [row, best].map(|row| a[row * size + column].abs());
            // A NaN becomes the pivot and makes the result NaN.
            if x > most || (x.is_nan() && !most.is_nan()) { row } else { best }
        });
        if pivot != column {
            let (before, after) = a.split_at_mut(pivot * size);
            before[column * size..][..size].swap_with_slice(&mut after[..size]);
            product.value = -product.value;
        }
        let (head, rest) = a.split_at_mut((column + 1) * size);
        let head = &head[column * size + column..];
        product.multiply(head[0]);
        if head[0] == 0.0 {
            return Ok(0.0);
        }
        let level = Level::new(isa);
        let eliminate = |rows: &mut [f64]| f64::run(level, Eliminate { size, column, head, rows });
        match pool {
            Some(pool) => rows(pool, rest, size, 2 * head.len(), |_, rows| eliminate(rows))?,
            None => eliminate(rest),
        }
    }
    Ok(product.get())
}

/// Loop that subtracts a multiple of `head` from each row so that its first element becomes 0.
struct Eliminate<'a> {
    size: usize,
    /// Column of the pivot: first column of `head` and of the part of each row that changes.
    column: usize,
    head: &'a [f64],
    rows: &'a mut [f64],
}

impl Loop for Eliminate<'_> {
    type Out = ();
    #[inline(always)]
    fn run<const FMA: bool>(self) {
        for row in self.rows.chunks_exact_mut(self.size) {
            let row = &mut row[self.column..];
            let factor = row[0] / self.head[0];
            for (x, head) in row.iter_mut().zip(self.head) {
                *x -= factor * head;
            }
        }
    }
}

/// A number `value * STEP^exponent`.
struct Scaled {
    value: f64,
    exponent: i64,
}

/// Value: `2^256`. The product of two numbers between `1 / STEP` and `STEP` neither overflows nor
/// underflows.
const STEP: f64 = f64::from_bits((1023 + 256) << 52);

impl Scaled {
    /// Multiplies the number by `x`.
    fn multiply(&mut self, x: f64) {
        let mut x = Scaled { value: x, exponent: 0 };
        x.normalize();
        self.value *= x.value;
        self.exponent += x.exponent;
        self.normalize();
    }

    /// Brings the value between `1 / STEP` and `STEP`, unless it is 0, NaN or infinite.
    fn normalize(&mut self) {
        while self.value.is_finite() && self.value.abs() > STEP {
            self.value /= STEP;
            self.exponent += 1;
        }
        while self.value != 0.0 && self.value.abs() < 1.0 / STEP {
            self.value *= STEP;
            self.exponent -= 1;
        }
    }

    /// Converts the number to a float: infinity or 0 if it is out of range.
    fn get(mut self) -> f64 {
        // After 16 factors of `2^256` each value is infinite or 0.
        for _ in 0..self.exponent.unsigned_abs().min(16) {
            self.value = if self.exponent > 0 { self.value * STEP } else { self.value / STEP };
        }
        self.value
    }
}

#[cfg(test)]
mod tests {
    use half::f16;

    use super::*;

    /// Computes a determinant by expansion along the first row.
    fn naive(size: usize, a: &[f64]) -> f64 {
        if size == 0 {
            return 1.0;
        }
        let terms = (0..size).map(|column| {
            let sign = if column % 2 == 0 { 1.0 } else { -1.0 };
            let rest = a.iter().enumerate().skip(size);
            let minor: Vec<f64> =
                rest.filter(|(at, _)| at % size != column).map(|(_, a)| *a).collect();
            sign * a[column] * naive(size - 1, &minor)
        });
        terms.sum()
    }

    fn check<T: Number>(tolerance: f64) {
        for &isa in Isa::available() {
            for (count, size) in [(3, 0), (0, 2), (5, 1), (4, 2), (3, 3), (7, 4), (1, 6), (2, 7)] {
                let x: Vec<T> = (0..count * size * size)
                    .map(|at| T::from_f64((at * 37 % 23) as f64 / 8.0 - 1.0))
                    .collect();
                for threads in [1, 3] {
                    let mut y = vec![T::LOWEST; count];
                    determinants(&Exec::new(&Pool::new(threads), isa), size, &x, &mut y).unwrap();
                    for (matrix, y) in y.iter().enumerate() {
                        let x: Vec<f64> = x[matrix * size * size..][..size * size]
                            .iter()
                            .map(|x| x.to_f64())
                            .collect();
                        let expected = naive(size, &x);
                        let error = (y.to_f64() - expected).abs();
                        assert!(error <= tolerance * expected.abs().max(1.0), "{size} {error}");
                    }
                }
            }
        }
    }

    #[test]
    fn expansion_by_a_row() {
        check::<f64>(1e-12);
        check::<f32>(1e-6);
        check::<f16>(1e-3);
    }

    /// Computes the determinant of one matrix.
    fn determinant_of(size: usize, x: &[f64]) -> f64 {
        let mut y = [0.0];
        let pool = Pool::new(2);
        let exec = Exec::new(&pool, Isa::detect());
        determinants(&exec, size, x, &mut y).unwrap();
        y[0]
    }

    #[test]
    fn at_the_edges() {
        assert_eq!(determinant_of(2, &[0.0, 1.0, 1.0, 0.0]), -1.0);
        assert_eq!(determinant_of(2, &[1.0, 2.0, 2.0, 4.0]), 0.0);
        assert_eq!(determinant_of(2, &[0.0, 1.0, 0.0, f64::NAN]), 0.0);
        assert!(determinant_of(2, &[0.0, 1.0, f64::NAN, 1.0]).is_nan());
        assert!(determinant_of(2, &[1.0, f64::NAN, 1.0, 1.0]).is_nan());
        let (tiny, large, small) = (f64::from_bits(1), 2f64.powi(1000), 2f64.powi(-1000));
        assert_eq!(determinant_of(3, &[large, 0.0, 0.0, 0.0, large, 0.0, 0.0, 0.0, small]), large);
        assert_eq!(determinant_of(2, &[tiny, 0.0, 0.0, large]), tiny * large);
        assert_eq!(determinant_of(2, &[large, 0.0, 0.0, large]), f64::INFINITY);
        assert_eq!(determinant_of(2, &[-tiny, 0.0, 0.0, tiny]), 0.0);
    }

    #[test]
    fn threads_do_not_matter() {
        // Large enough for several threads.
        let size = 200;
        let x: Vec<f32> = (0..size * size).map(|at| (at * 7919 % 101) as f32 / 101.0).collect();
        let found = [1, 2, 5].map(|threads| {
            let mut y = [0f32];
            let pool = Pool::new(threads);
            let exec = Exec::new(&pool, Isa::detect());
            determinants(&exec, size, &x, &mut y).unwrap();
            y[0].to_bits()
        });
        assert_eq!(found[0], found[1]);
        assert_eq!(found[0], found[2]);
    }
}

//! Conversion of sums of integer products to integers of few bits.
//!
//! Sums have up to 32 bits and factors 24, so products are computed in f64, where their only
//! rounding is far below the step of the result.

use super::{Code, Precision};
use sardonyx_simd::Exec;
use sardonyx_simd::chunks::rows;
use sardonyx_simd::{Ended, Level, Loop};

/// Scales of a product. The factor of a sum is the scale of its row times that of its column,
/// divided by that of the result.
#[derive(Clone, Copy, Debug)]
pub struct Factors<'a> {
    /// Scales of the rows: one for all, or one for each.
    pub rows: &'a [f32],
    /// Scales of the columns: one for all, or one for each.
    pub columns: &'a [f32],
    /// Scale of the result.
    pub result: f32,
    /// Type of the scales, to which each step of a factor is rounded.
    pub precision: Precision,
}

impl Factors<'_> {
    /// Returns the factor for the scales of a row and a column.
    #[inline(always)]
    pub fn of(&self, row: f32, column: f32) -> f32 {
        self.precision.round(self.precision.round(row * column) / self.result)
    }
}

/// Value: number whose last bit has value 1, as in all its sums with integers of 32 bits.
const ONES: f64 = 6_755_399_441_055_744.0;

/// Conversion of a sum to an integer of few bits.
#[derive(Clone, Copy, Debug)]
pub struct Requantize {
    /// Limits of the product, before it is rounded.
    low: f64,
    high: f64,
    zero: f64,
}

impl Requantize {
    /// Creates the conversion to a type with zero point `zero`.
    pub fn to<T: Code>(zero: T) -> Requantize {
        let zero = zero.to_f64();
        Requantize { low: T::LOWEST.to_f64() - zero, high: T::HIGHEST.to_f64() - zero, zero }
    }

    /// Converts a sum: `sum * factor` is rounded to the nearest integer, ties to even, the zero
    /// point is added, and the result is clamped to the range of the type. NaN becomes the lowest
    /// integer.
    #[inline(always)]
    pub fn of<T: Code>(self, sum: i32, factor: f32) -> T {
        let product = f64::from(sum) * f64::from(factor);
        let product = if product > self.low { product } else { self.low };
        let product = if product < self.high { product } else { self.high };
        let sum = (product + ONES) - ONES + self.zero;
        T::of_low_bits((sum + ONES).to_bits() as u32)
    }
}

/// Loop over rows of sums, from row `first` on.
struct Run<'a, T> {
    factors: &'a Factors<'a>,
    to: Requantize,
    first: usize,
    columns: usize,
    sums: &'a [i32],
    out: &'a mut [T],
}

impl<T: Code> Loop for Run<'_, T> {
    type Out = ();

    #[inline(always)]
    fn run<const FMA: bool>(self) {
        let Run { factors, to, first, columns, sums, out } = self;
        let both = out.chunks_exact_mut(columns).zip(sums.chunks_exact(columns));
        for (index, (out, sums)) in both.enumerate() {
            let pairs = out.iter_mut().zip(sums);
            let row = match factors.rows {
                [one] => *one,
                several => several[first + index],
            };
            if let [column] = factors.columns {
                let factor = factors.of(row, *column);
                pairs.for_each(|(out, sum)| *out = to.of(*sum, factor));
            } else if factors.precision == Precision::Same {
                let plain = Factors { precision: Precision::Same, ..*factors };
                for ((out, sum), column) in pairs.zip(factors.columns) {
                    *out = to.of(*sum, plain.of(row, *column));
                }
            } else {
                for ((out, sum), column) in pairs.zip(factors.columns) {
                    *out = to.of(*sum, factors.of(row, *column));
                }
            }
        }
    }
}

/// Converts rows of `columns` sums to integers of few bits, see [`Requantize::of`].
///
/// # Panics
///
/// If lengths do not fit, or this machine lacks the instruction set.
pub fn requantize<T: Code>(
    exec: &Exec<'_>,
    factors: &Factors<'_>,
    zero: T,
    columns: usize,
    sums: &[i32],
    out: &mut [T],
) -> Result<(), Ended> {
    assert_eq!(sums.len(), out.len(), "as many results as sums");
    if out.is_empty() {
        return Ok(());
    }
    assert!(sums.len().is_multiple_of(columns), "whole rows");
    for (count, most) in [(factors.rows, sums.len() / columns), (factors.columns, columns)] {
        assert!(count.len() == 1 || count.len() == most, "{} scales for {most}", count.len());
    }
    let (level, to) = (Level::new(exec.isa), Requantize::to(zero));
    rows(exec.pool, out, columns, 4 * columns, |first, out| {
        let sums = &sums[first * columns..][..out.len()];
        level.run(Run { factors, to, first, columns, sums, out });
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use sardonyx_simd::number::Number;
    use sardonyx_simd::{Isa, Pool};

    /// Converts a sum in integer arithmetic: the factor is `numerator / 2^shift`.
    fn naive(sum: i32, numerator: i64, shift: u32, zero: i64, low: i64, high: i64) -> i64 {
        let product = i128::from(sum) * i128::from(numerator);
        let (floor, rest) = (product >> shift, product & ((1 << shift) - 1));
        let half = 1i128 << shift >> 1;
        let up = rest > half || rest == half && floor & 1 == 1;
        let rounded = floor + i128::from(up && shift > 0);
        (rounded + i128::from(zero)).clamp(low.into(), high.into()) as i64
    }

    fn check<T: Code>(zeros: [T; 3]) {
        let sums = [
            0,
            1,
            -1,
            2,
            3,
            5,
            -3,
            4,
            6,
            7,
            127,
            128,
            255,
            256,
            1000,
            -1000,
            65_536,
            1 << 24,
            i32::MAX,
            i32::MIN,
            1021,
            12_345,
            -54_321,
            99,
            33,
        ];
        for (numerator, shift) in
            [(1, 0), (1, 1), (1, 2), (3, 3), (1, 20), (12_582_911, 30), (0, 1)]
        {
            let factor = numerator as f32 / (1u64 << shift) as f32;
            for zero in zeros {
                let limits = (T::LOWEST.to_f64() as i64, T::HIGHEST.to_f64() as i64);
                let want = sums.map(|sum| {
                    naive(sum, numerator, shift, zero.to_f64() as i64, limits.0, limits.1) as f64
                });
                for &isa in Isa::available() {
                    let pool = Pool::new(2);
                    let exec = Exec::new(&pool, isa);
                    // The factor by rows, by columns, and by both with a result.
                    let (all, half) = ([factor; 5], [2.0 * factor; 5]);
                    for (rows, columns, result) in [
                        (&all[..1], &[1.0f32][..], 1.0),
                        (&all, &[1.0], 1.0),
                        (&[1.0], &all, 1.0),
                        (&half, &all[..1], 2.0 * factor),
                        (&half, &all, 2.0 * factor),
                    ] {
                        let precision = Precision::Same;
                        let factors = Factors { rows, columns, result, precision };
                        if factors.of(rows[0], columns[0]) != factor {
                            continue;
                        }
                        let mut out = [T::ZERO; 25];
                        requantize(&exec, &factors, zero, 5, &sums, &mut out).unwrap();
                        assert_eq!(
                            out.map(Number::to_f64),
                            want,
                            "{numerator} / 2^{shift}, {zero:?}"
                        );
                    }
                }
            }
        }
    }

    #[test]
    fn sums_are_rounded_once() {
        check::<u8>([0, 255, 3]);
        check::<i8>([-128, 127, 1]);
    }

    #[test]
    fn factors_in_halves_and_what_is_no_number() {
        let exec = Exec::new(Pool::serial(), Isa::detect());
        let factors =
            Factors { rows: &[0.1], columns: &[0.1, 0.3], result: 0.7, precision: Precision::F16 };
        let round = |x: f32| half::f16::from_f32(x).to_f32();
        assert_eq!(factors.of(0.1, 0.3), round(round(0.1 * 0.3) / 0.7));
        let mut out = [0u8; 4];
        requantize(&exec, &factors, 1, 2, &[1000, 1000, -7, 100_000], &mut out).unwrap();
        assert_eq!(out, [15, 44, 1, 255]);
        for (result, want) in [(0.0, [128u8, 255, 0, 255]), (f32::NAN, [0; 4])] {
            let factors =
                Factors { rows: &[1.0], columns: &[1.0], result, precision: Precision::Same };
            let want = if result == 0.0 { [0, want[1], want[2], want[3]] } else { want };
            requantize(&exec, &factors, 128, 2, &[0, 5, -5, 7], &mut out).unwrap();
            assert_eq!(out, want);
        }
        requantize::<u8>(&exec, &factors, 1, 0, &[], &mut []).unwrap();
    }
}

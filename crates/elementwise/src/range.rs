//! Numbers at equal distances.

use half::{bf16, f16};

use sardonyx_simd::Exec;
use sardonyx_simd::chunks::fill;
use sardonyx_simd::number::Number;
use sardonyx_simd::{Ended, Level, Loop};

/// Element type of [`range`]: floats and signed integers.
pub trait Ranged: Number {
    /// Returns `start + index * delta`, rounded once for floats, wrapping for integers.
    #[doc(hidden)]
    fn at(start: Self, delta: Self, index: usize) -> Self;

    /// Counts the steps from `start` to `limit`, rounded up. The count is negative if `delta` has
    /// the wrong sign, and not finite if it is zero. The difference of two f32 is rounded to f32;
    /// for narrow floats, difference and quotient are rounded to f32 unless `double`.
    fn steps(start: Self, limit: Self, delta: Self, double: bool) -> f64;
}

macro_rules! floats {
    ($($t:ty, |$start:ident, $limit:ident, $delta:ident, $double:ident| $steps:expr;)*) => { $(
        impl Ranged for $t {
            #[inline(always)]
            fn at(start: $t, delta: $t, index: usize) -> $t {
                // Repeated addition would accumulate rounding errors.
                <$t as Number>::from_f64(start.to_f64() + index as f64 * delta.to_f64())
            }

            fn steps(start: $t, limit: $t, delta: $t, $double: bool) -> f64 {
                let ($start, $limit, $delta) = (start.to_f64(), limit.to_f64(), delta.to_f64());
                let steps: f64 = $steps;
                steps.ceil()
            }
        }
    )* };
}

/// Counts the steps between narrow floats, not yet rounded up.
fn narrow_steps(start: f64, limit: f64, delta: f64, double: bool) -> f64 {
    if double { (limit - start) / delta } else { f64::from((limit - start) as f32 / delta as f32) }
}

floats! {
    f32, |start, limit, delta, _double| f64::from((limit - start) as f32) / delta;
    f64, |start, limit, delta, _double| (limit - start) / delta;
    f16, |start, limit, delta, double| narrow_steps(start, limit, delta, double);
    bf16, |start, limit, delta, double| narrow_steps(start, limit, delta, double);
}

macro_rules! integers {
    ($($t:ty),*) => { $(
        impl Ranged for $t {
            #[inline(always)]
            fn at(start: $t, delta: $t, index: usize) -> $t {
                start.wrapping_add((index as $t).wrapping_mul(delta))
            }

            fn steps(start: $t, limit: $t, delta: $t, _: bool) -> f64 {
                let (distance, delta) = (i128::from(limit) - i128::from(start), i128::from(delta));
                if delta == 0 {
                    return f64::NAN;
                }
                // Division truncates: one step more if that rounded down.
                let rest = distance % delta;
                let up = rest != 0 && (rest < 0) == (delta < 0);
                (distance / delta + i128::from(up)) as f64
            }
        }
    )* };
}

integers!(i8, i16, i32, i64);

/// Fills `y` with `y[i] = start + i * delta`.
pub fn range<T: Ranged>(exec: &Exec<'_>, start: T, delta: T, y: &mut [T]) -> Result<(), Ended> {
    let &Exec { pool, isa, .. } = exec;
    let level = Level::new(isa);
    fill(pool, y, 1, |first, y| {
        T::run(level, Steps { start, delta, first, y });
    })
}

/// Loop of [`range`], from index `first` on.
struct Steps<'a, T> {
    start: T,
    delta: T,
    first: usize,
    y: &'a mut [T],
}

impl<T: Ranged> Loop for Steps<'_, T> {
    type Out = ();
    #[inline(always)]
    fn run<const FMA: bool>(self) {
        for (i, y) in self.y.iter_mut().enumerate() {
            *y = T::at(self.start, self.delta, self.first + i);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sardonyx_simd::{Isa, Pool};

    fn check<T: Ranged>(start: f64, delta: f64) {
        for &isa in Isa::available() {
            for n in [0, 1, 7, 33, 20_001] {
                let mut y = vec![T::ONE; n];
                let (start, delta) = (T::from_f64(start), T::from_f64(delta));
                range(&Exec::new(&Pool::new(2), isa), start, delta, &mut y).unwrap();
                for (i, y) in y.iter().enumerate() {
                    let expected = start.to_f64() + i as f64 * delta.to_f64();
                    assert_eq!(*y, T::from_f64(expected), "{isa:?} {n} {i}");
                }
            }
        }
    }

    #[test]
    fn every_type() {
        check::<f32>(0.1, 0.3);
        check::<f64>(-5.0, 0.7);
        check::<f16>(3.0, -0.5);
        check::<bf16>(3.0, 0.125);
        check::<i16>(-20_000.0, 2.0);
        check::<i32>(9.0, -3.0);
        check::<i64>(1e15, 3.0);
    }

    #[test]
    fn steps_round_up() {
        for (start, limit, delta, expected) in [
            (0i64, 10, 3, 4.0),
            (0, 9, 3, 3.0),
            (10, 0, -3, 4.0),
            (0, 10, -3, -3.0),
            (10, 0, 3, -3.0),
            (i64::MIN, i64::MAX, 1, 18_446_744_073_709_551_615.0),
            (5, 5, 1, 0.0),
        ] {
            assert_eq!(i64::steps(start, limit, delta, false), expected);
        }
        assert!(i16::steps(0, 1, 0, false).is_nan());
        assert_eq!(f32::steps(1.0, 2.0, 0.3, false), 4.0);
        assert_eq!(f64::steps(0.0, f64::INFINITY, 1.0, false), f64::INFINITY);
        assert_eq!(f16::steps(f16::ZERO, f16::ONE, f16::from_f32(0.25), false), 4.0);
        assert_eq!(bf16::steps(bf16::ONE, bf16::ZERO, bf16::from_f32(-0.3), true), 4.0);
    }

    #[test]
    fn more_numbers_than_the_type_has_positive_ones() {
        let mut y = vec![0i16; 65_535];
        range(&Exec::new(&Pool::new(1), Isa::detect()), i16::MIN, 1, &mut y).unwrap();
        assert!(y.iter().zip(i16::MIN..).all(|(y, expected)| *y == expected));
    }
}

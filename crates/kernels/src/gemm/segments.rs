//! The Gaussian error linear unit by a table, where a permutation looks up 16 numbers at once.
//!
//! `x Phi(x) = x / 2 + |x| (Phi(|x|) - 1/2)`, and the function in brackets is a polynomial of
//! degree 4 in each of 31 segments of one width; from there on it is 1/2. Coefficients interpolate
//! at the Chebyshev nodes of a segment, which leaves 5e-9 of error before rounding.

use std::sync::LazyLock;

use crate::simd::Simd;
use crate::vecmath::erf_f64;

/// Segments in a unit. A float holds it.
const PER_UNIT: f64 = 5.5;
const SEGMENTS: usize = 32;
const COEFFICIENTS: usize = 5;

/// By coefficient, constant term first, and by segment: of the distance from the middle of the
/// segment, in widths.
static TABLE: LazyLock<[[f32; SEGMENTS]; COEFFICIENTS]> = LazyLock::new(|| {
    let mut table = [[0.0; SEGMENTS]; COEFFICIENTS];
    for segment in 0..SEGMENTS {
        let function = |at: f64| {
            let x = (segment as f64 + 0.5 + at) / PER_UNIT;
            erf_f64(x * std::f64::consts::FRAC_1_SQRT_2) / 2.0
        };
        let is_last = segment == SEGMENTS - 1;
        let of_segment = if is_last { [0.5, 0.0, 0.0, 0.0, 0.0] } else { interpolated(function) };
        for (row, coefficient) in table.iter_mut().zip(of_segment) {
            row[segment] = coefficient as f32;
        }
    }
    table
});

/// The coefficients of the polynomial that a function agrees with at the Chebyshev nodes of
/// [-1/2, 1/2].
fn interpolated(f: impl Fn(f64) -> f64) -> [f64; COEFFICIENTS] {
    let nodes: [f64; COEFFICIENTS] = std::array::from_fn(|i| {
        0.5 * (std::f64::consts::PI * (2 * i + 1) as f64 / (2 * COEFFICIENTS) as f64).cos()
    });
    // Newton's divided differences, then the products multiplied out.
    let mut differences = nodes.map(f);
    for order in 1..COEFFICIENTS {
        for i in (order..COEFFICIENTS).rev() {
            let run = nodes[i] - nodes[i - order];
            differences[i] = (differences[i] - differences[i - 1]) / run;
        }
    }
    let mut coefficients = [0.0; COEFFICIENTS];
    for i in (0..COEFFICIENTS).rev() {
        for j in (0..COEFFICIENTS).rev() {
            let lower = if j > 0 { coefficients[j - 1] } else { 0.0 };
            coefficients[j] = lower - nodes[i] * coefficients[j];
        }
        coefficients[0] += differences[i];
    }
    coefficients
}

/// Applies the function to each number.
///
/// # Safety
///
/// As [`Simd`].
#[inline(always)]
pub(super) unsafe fn on<S: Simd>(numbers: &mut [f32]) {
    let table = &*TABLE;
    let (len, start) = (numbers.len(), numbers.as_mut_ptr());
    let whole = len / S::LANES * S::LANES;
    // SAFETY: the caller's promise; lanes beyond the end are masked.
    unsafe {
        for at in (0..whole).step_by(S::LANES) {
            let p = start.add(at);
            S::store(p, of::<S>(table, S::load(p)));
        }
        if whole < len {
            let (p, mask) = (start.add(whole), S::first(len - whole));
            S::store_m(p, mask, of::<S>(table, S::load_m(p, mask)));
        }
    }
}

/// # Safety
///
/// As [`Simd`].
#[inline(always)]
unsafe fn of<S: Simd>(table: &[[f32; SEGMENTS]; COEFFICIENTS], x: S::V) -> S::V {
    // SAFETY: the caller's promise.
    unsafe {
        let half = S::splat(0.5);
        let last = (SEGMENTS - 1) as f32;
        let size = S::abs(x);
        // The last segment has no end, and no slope.
        let at = S::min(S::splat(last + 0.5), S::mul(size, S::splat(PER_UNIT as f32)));
        let segment = S::trunc(at);
        let d = S::sub(at, S::add(segment, half));
        let mut sum = S::look_up_32(table[COEFFICIENTS - 1].as_ptr(), segment);
        for row in table[..COEFFICIENTS - 1].iter().rev() {
            sum = S::fma(sum, d, S::look_up_32(row.as_ptr(), segment));
        }
        S::fma(size, sum, S::mul(half, x))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Isa;
    use crate::simd::{Body, dispatch};

    struct On<'a>(&'a mut [f32]);
    impl Body for On<'_> {
        type Out = ();
        #[inline(always)]
        unsafe fn run<S: Simd>(self) {
            // SAFETY: dispatched for this instruction set.
            unsafe { on::<S>(self.0) }
        }
    }

    #[test]
    fn it_is_within_a_few_units_of_the_function() {
        let (inf, nan) = (f32::INFINITY, f32::NAN);
        let mut given: Vec<f32> = (0..200_000).map(|i| (i as f32 - 100_000.0) * 8e-5).collect();
        given.extend((0..1000).map(|i| f32::from_bits(i * 4_000_003)));
        given.extend([0.0, -0.0, 5.635, 5.637, -5.636, 1e30, -1e30, inf, nan]);
        for &isa in Isa::available() {
            let mut found = given.clone();
            // SAFETY: the machine has `isa`.
            unsafe { dispatch(isa, On(&mut found)) };
            for (x, y) in given.iter().zip(found) {
                let wide = f64::from(*x);
                let phi = erf_f64(wide.abs() * std::f64::consts::FRAC_1_SQRT_2) / 2.0;
                let want = wide / 2.0 + wide.abs() * phi;
                if want.is_nan() || want.is_infinite() {
                    assert_eq!(want.is_nan(), y.is_nan(), "{x}");
                    assert_eq!(want.is_infinite(), y.is_infinite(), "{x}");
                    continue;
                }
                let error = (f64::from(y) - want).abs();
                let bound = (2.0 * f64::from(f32::EPSILON) * want.abs()).max(6e-8 * wide.abs());
                assert!(error <= bound.max(1e-45), "{isa:?} {x}: {y}, not {want}");
            }
        }
    }
}

//! Gates, `x G(x)` with a `G` that rises from 0 to 1, by tables where a permutation looks up 16
//! numbers at once.
//!
//! `G(x) = 1 - G(-x)` for all of them, so that `x G(x) = max(x, 0) - |x| G(-|x|)`. `G(-|x|)` is a
//! polynomial of degree 5 around each of 31 evenly spaced numbers, and 0 beyond them, where the
//! function is below 2e-8. Coefficients interpolate at the Chebyshev nodes of a segment. Small
//! values thus have about the relative precision of large ones.

use std::sync::LazyLock;

use sardonyx_simd::Simd;
use sardonyx_simd::vecmath::erf_f64;

/// Value: number of segments of a function, and of coefficients of each.
const SEGMENTS: usize = 32;
const COEFFICIENTS: usize = 6;
/// Index of the last segment, which has no end.
const LAST: f32 = (SEGMENTS - 1) as f32;
/// 1.5 * 2^23: adding it rounds to an integer and leaves that integer in the low bits.
const ROUND: f32 = 12_582_912.0;
/// Replacement for 0. Exact products with it vanish beside any other number, but make NaN of minus
/// infinity, as infinity times 0 is, and infinity of infinity.
const TINY: f32 = f32::from_bits((127 - 64) << 23);

/// Function with which `x` is multiplied.
#[derive(Clone, Copy, Debug)]
pub(super) enum Gate {
    /// Distribution function of the normal distribution.
    Normal,
    /// Approximation of `Normal` with tanh.
    NormalTanh,
    /// `1 / (1 + exp(-x))`.
    Logistic,
}

impl Gate {
    /// Computes the gate in double precision.
    fn at(self, x: f64) -> f64 {
        let sigmoid = |x: f64| 1.0 / (1.0 + (-x).exp());
        match self {
            Gate::Normal => 0.5 * (1.0 + erf_f64(x * std::f64::consts::FRAC_1_SQRT_2)),
            Gate::NormalTanh => {
                let root = (2.0 / std::f64::consts::PI).sqrt();
                sigmoid(2.0 * root * x * (1.0 + 0.044_715 * x * x))
            }
            Gate::Logistic => sigmoid(x),
        }
    }

    /// Returns the table of the gate, which is made once.
    fn table(self) -> &'static Table {
        static NORMAL: LazyLock<Table> = LazyLock::new(|| Table::new(Gate::Normal, 5.5));
        static TANH: LazyLock<Table> = LazyLock::new(|| Table::new(Gate::NormalTanh, 5.75));
        static LOGISTIC: LazyLock<Table> = LazyLock::new(|| Table::new(Gate::Logistic, 1.71875));
        match self {
            Gate::Normal => &NORMAL,
            Gate::NormalTanh => &TANH,
            Gate::Logistic => &LOGISTIC,
        }
    }
}

/// Coefficients of `-G(-x)` for positive `x`.
struct Table {
    /// Number of segments per unit of `x`.
    per_unit: f32,
    /// Coefficients of all segments, constant term first. The variable is the distance from the
    /// middle of the segment, in widths of a segment.
    rows: [[f32; SEGMENTS]; COEFFICIENTS],
}

impl Table {
    fn new(gate: Gate, per_unit: f32) -> Table {
        let mut rows = [[0.0; SEGMENTS]; COEFFICIENTS];
        for segment in 0..SEGMENTS - 1 {
            let function = |at: f64| -gate.at(-(segment as f64 + at) / f64::from(per_unit));
            for (row, coefficient) in rows.iter_mut().zip(interpolate(function)) {
                row[segment] = coefficient as f32;
            }
        }
        rows[0][SEGMENTS - 1] = TINY;
        Table { per_unit, rows }
    }
}

/// Returns the coefficients of the polynomial that interpolates a function at the Chebyshev nodes
/// of [-1/2, 1/2].
fn interpolate(f: impl Fn(f64) -> f64) -> [f64; COEFFICIENTS] {
    let nodes: [f64; COEFFICIENTS] = std::array::from_fn(|i| {
        0.5 * (std::f64::consts::PI * (2 * i + 1) as f64 / (2 * COEFFICIENTS) as f64).cos()
    });
    // Newton's divided differences, then the products expanded.
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

/// Replaces each number `x` by the product `x G(scale x)`. The scale is not negative.
///
/// # Safety
///
/// The demands of [`Simd`] must hold.
#[inline(always)]
pub(super) unsafe fn apply_to_slice<S: Simd>(gate: Gate, scale: f32, numbers: &mut [f32]) {
    let Table { per_unit, rows } = gate.table();
    let per_unit = per_unit * scale;
    let (len, start) = (numbers.len(), numbers.as_mut_ptr());
    let whole = len / S::LANES * S::LANES;
    // SAFETY: the caller runs on a machine with `S`; lanes beyond the end are masked.
    unsafe {
        let mut loaded = [S::load_32(rows[0].as_ptr()); COEFFICIENTS];
        for (to, row) in loaded.iter_mut().zip(rows) {
            *to = S::load_32(row.as_ptr());
        }
        for at in (0..whole).step_by(S::LANES) {
            let p = start.add(at);
            S::store(p, apply_gate::<S>(&loaded, per_unit, S::load(p)));
        }
        if whole < len {
            let (p, mask) = (start.add(whole), S::first(len - whole));
            S::store_m(p, mask, apply_gate::<S>(&loaded, per_unit, S::load_m(p, mask)));
        }
    }
}

/// Computes `x G(x)` for a vector from tables in registers, with `per_unit` segments per unit of
/// `x`.
///
/// # Safety
///
/// The demands of [`Simd`] must hold.
#[inline(always)]
unsafe fn apply_gate<S: Simd>(rows: &[S::Of32; COEFFICIENTS], per_unit: f32, x: S::V) -> S::V {
    // SAFETY: the caller runs on a machine with `S`.
    unsafe {
        let (size, round) = (S::abs(x), S::splat(ROUND));
        let at = S::min(S::splat(LAST), S::mul(size, S::splat(per_unit)));
        let segment = S::add(at, round);
        let d = S::sub(at, S::sub(segment, round));
        let mut sum = S::look_up_32(rows[COEFFICIENTS - 1], segment);
        for &row in rows[..COEFFICIENTS - 1].iter().rev() {
            sum = S::fma(sum, d, S::look_up_32(row, segment));
        }
        S::fma(size, sum, S::max(S::mul(S::splat(TINY), x), x))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sardonyx_simd::Isa;
    use sardonyx_simd::{Body, dispatch};

    struct On<'a>(Gate, f32, &'a mut [f32]);
    impl Body for On<'_> {
        type Out = ();
        #[inline(always)]
        unsafe fn run<S: Simd>(self) {
            // SAFETY: dispatched for this instruction set.
            unsafe { apply_to_slice::<S>(self.0, self.1, self.2) }
        }
    }

    fn numbers() -> Vec<f32> {
        let (inf, nan) = (f32::INFINITY, f32::NAN);
        let mut numbers: Vec<f32> = (0..200_000).map(|i| (i as f32 - 100_000.0) * 2e-4).collect();
        numbers.extend((0..1074).map(|i| f32::from_bits(i * 4_000_003)));
        numbers.extend([0.0, -0.0, 5.635, 5.637, -5.636, 17.7, -17.8, 1e30, -1e30, inf, -inf, nan]);
        numbers
    }

    #[test]
    fn gates_are_within_a_few_units_of_the_functions() {
        let given = numbers();
        let mut gates = vec![(Gate::Normal, 1.0), (Gate::NormalTanh, 1.0)];
        gates.extend([0.0, 0.5, 1.0, 1.702, 3.0].map(|scale| (Gate::Logistic, scale)));
        for (gate, scale) in gates {
            for &isa in Isa::available() {
                let mut found = given.clone();
                // SAFETY: the machine has `isa`.
                unsafe { dispatch(isa, On(gate, scale, &mut found)) };
                for (x, y) in given.iter().zip(found) {
                    let wide = f64::from(*x);
                    let want = wide * gate.at(f64::from(scale) * wide);
                    if want.is_nan() || want.is_infinite() {
                        assert_eq!(want.is_nan(), y.is_nan(), "{gate:?} {isa:?} {x}: {y}");
                        assert_eq!(want.is_infinite(), y.is_infinite(), "{gate:?} {isa:?} {x}");
                        continue;
                    }
                    let error = (f64::from(y) - want).abs();
                    let bound = (2.0 * f64::from(f32::EPSILON) * want.abs()).max(3e-8 * wide.abs());
                    assert!(
                        error <= bound.max(1e-45),
                        "{gate:?} {scale} {isa:?} {x}: {y}, not {want}"
                    );
                }
            }
        }
    }
}

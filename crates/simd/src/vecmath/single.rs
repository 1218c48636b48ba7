//! Elementary functions on f32.
//!
//! Arguments are reduced after Cody and Waite ("Software Manual for the Elementary Functions",
//! 1980): the multiple of a constant is subtracted in parts, the first of which have so few bits
//! that their products are exact. The polynomials are minimax fits (Remez exchange in 40 digits,
//! weighted for relative error of the function, unless stated); their own error is given with each.
//! Everything is branch-free: see the parent module.

use super::inverse::{self, Series};
use super::lanes::{Function, Lane, Lanes};
use crate::number::{Arith, Math};

/// 1.5 * 2^23: adding it rounds to an integer and leaves that integer in the low bits.
const ROUND: f32 = 12_582_912.0;
/// The first 9 bits of ln 2, and the rest.
const LN2_HIGH: f32 = 0.693_359_4;
const LN2_LOW: f32 = -2.121_944_4e-4;

/// Largest magnitude that [`sin_reduced`] and [`cos_reduced`] accept.
pub const MAX_REDUCED: f32 = 8192.0;

#[inline(always)]
fn fma<const FMA: bool>(a: f32, b: f32, c: f32) -> f32 {
    if FMA { a.mul_add(b, c) } else { a * b + c }
}

/// Polynomial with these coefficients, constant term first.
struct Polynomial<const N: usize>([f32; N]);

impl<const N: usize> Polynomial<N> {
    /// Computes the value at `x` by Horner's rule.
    #[inline(always)]
    fn at<L: Lanes>(self, x: L) -> L {
        let Polynomial(coefficients) = self;
        let mut sum = L::splat(coefficients[N - 1]);
        let mut i = N - 1;
        while i > 0 {
            i -= 1;
            sum = sum.fma(x, L::splat(coefficients[i]));
        }
        sum
    }

    /// Computes [`Polynomial::at`] for one number.
    #[inline(always)]
    fn at_number<const FMA: bool>(self, x: f32) -> f32 {
        self.at(Lane::<FMA>(x)).0
    }
}

/// Returns `2^n` for `-126 <= n <= 127`.
#[inline(always)]
fn power_of_two(n: i32) -> f32 {
    f32::from_bits((n.wrapping_add(127) as u32) << 23)
}

/// Coefficients of `(exp(r) - 1 - r) / r^2` for `|r| <= ln(2) / 2`, constant term first. The error
/// leaves 2^-26 of `expm1(r)`.
const EXP_TAIL: [f32; 5] = [0.5, 0.166_665_42, 0.041_666_28, 0.008_366_71, 0.001_394_667];

/// Returns `(p, n)` with `exp(x) = (1 + p) * 2^n` and `|p| <= 0.42`, for `|x| <= 1000`.
#[inline(always)]
fn reduced_exp<const FMA: bool>(x: f32) -> (f32, i32) {
    let shifted = fma::<FMA>(x, std::f32::consts::LOG2_E, ROUND);
    let n = shifted.to_bits().wrapping_sub(ROUND.to_bits()) as i32;
    let n_float = shifted - ROUND;
    let r = fma::<FMA>(n_float, -LN2_HIGH, x);
    let r = fma::<FMA>(n_float, -LN2_LOW, r);
    let tail = Polynomial(EXP_TAIL).at_number::<FMA>(r);
    (fma::<FMA>(r * r, tail, r), n)
}

/// Limits `x` to the range from `low` to `high`; NaN stays.
#[inline(always)]
fn clamp(x: f32, low: f32, high: f32) -> f32 {
    let x = if x > high { high } else { x };
    if x < low { low } else { x }
}

/// Offset of the exponent in the bits of a float.
const BIAS: f32 = 127.0;

/// Returns `(r, shifted)` with `x = n ln(2) + r` for `|x| <= 1000`. The low 9 bits of `shifted` are
/// `n + bias`, which makes a power of two by one shift.
#[inline(always)]
fn reduce<L: Lanes>(x: L, bias: f32) -> (L, L) {
    let round = L::splat(ROUND + bias);
    let shifted = x.fma(L::splat(std::f32::consts::LOG2_E), round);
    let n = shifted.sub(round);
    let r = n.fma(L::splat(-LN2_HIGH), x);
    (n.fma(L::splat(-LN2_LOW), r), shifted)
}

/// Returns `(exp(x) / 2^n, shifted)` for `|x| <= 1000`. The low 9 bits of `shifted` are `n + bias`.
#[inline(always)]
fn split_exp<L: Lanes>(x: L, bias: f32) -> (L, L) {
    let (r, shifted) = reduce(x, bias);
    let [a, b, c, d, e] = EXP_TAIL;
    (Polynomial([1.0, 1.0, a, b, c, d, e]).at(r), shifted)
}

#[inline(always)]
pub(crate) fn exp<const FMA: bool>(x: f32) -> f32 {
    // Beyond these bounds the scaling below gives infinity and zero by itself.
    scaled_exp::<FMA>(clamp(x, -104.0, 89.0), 1.0)
}

/// Computes `exp(x) * scale` for `|x| <= 120` and a power of two.
#[inline(always)]
fn scaled_exp<const FMA: bool>(x: f32, scale: f32) -> f32 {
    let (Lane(e), Lane(shifted)) = split_exp(Lane::<FMA>(x), 2.0 * BIAS);
    // 2^n may overflow or be subnormal while the result is neither, so scale in two steps; the
    // first is exact. The first half of n + 2 * 127 has one bias in it, and so has the rest.
    let bits = shifted.to_bits();
    let half = f32::from_bits((bits >> 1) << 23);
    let rest = f32::from_bits(bits.wrapping_sub(bits >> 1) << 23);
    e * half * (rest * scale)
}

/// Computes `exp(x)` of a number up to 0 by one clamp and one scaling. Exponentials below 2^-126.5
/// become 0.
#[inline(always)]
pub(crate) fn exp_nonpositive<const FMA: bool>(x: f32) -> f32 {
    // n is -127 here, and its power 0.
    const LEAST: f32 = -88.0;
    let (e, shifted) = split_exp(Lane::<FMA>(x).at_least(LEAST), BIAS);
    e.mul(shifted.low_bits_power()).0
}

#[inline(always)]
pub(crate) fn expm1<const FMA: bool>(x: f32) -> f32 {
    let (p, n) = reduced_exp::<FMA>(clamp(x, -104.0, 89.0));
    let half = n >> 1;
    let rest = n.wrapping_sub(half);
    // p * 2^n + (2^n - 1), everything divided by 2^rest first so that nothing overflows early. For
    // n = 0 the sum in brackets is zero and the relative precision of p is kept.
    let (high, low) = (power_of_two(half), power_of_two(rest));
    fma::<FMA>(p, high, high - power_of_two(rest.wrapping_neg())) * low
}

/// The quotient `expm1(2|x|) / (expm1(2|x|) + 2)` with the sign of x, which keeps relative
/// precision near zero without a second branch.
#[derive(Clone, Copy, Debug)]
pub struct Tanh;

impl Function for Tanh {
    #[inline(always)]
    fn apply<L: Lanes>(self, x: L) -> L {
        // tanh(10) is 1 to well below half an ULP.
        let size = x.abs().at_most(10.0);
        let (r, shifted) = reduce(size.add(size), BIAS);
        let p = r.mul(r).fma(Polynomial(EXP_TAIL).at(r), r);
        // As in `expm1`, where neither part is too large.
        let power = shifted.low_bits_power();
        let t = p.fma(power, power.sub(L::splat(1.0)));
        t.div(t.add(L::splat(2.0))).copysign(x)
    }
}

/// Factor 2^64 of numerator and denominator: a small quotient becomes subnormal only in the
/// division, which rounds once.
const SCALE: f32 = f32::from_bits((127 + 64) << 23);
/// Biased exponent of [`SCALE`].
const SCALE_BIAS: f32 = BIAS + 64.0;

/// The logistic function `e / (1 + e)` with `e = exp(x)`. The small side keeps its relative
/// precision.
#[derive(Clone, Copy, Debug)]
pub struct Sigmoid;

impl Function for Sigmoid {
    #[inline(always)]
    fn apply<L: Lanes>(self, x: L) -> L {
        // From 17 on the quotient is 1, and up to 40 nothing overflows.
        let (e, shifted) = split_exp(x.at_most(40.0).at_least(-104.0), SCALE_BIAS);
        let e = e.mul(shifted.low_bits_power());
        e.div(L::splat(SCALE).add(e))
    }
}

/// The product `x sigmoid(alpha x)`.
#[derive(Clone, Copy, Debug)]
pub struct Swish(pub f32);

impl Function for Swish {
    #[inline(always)]
    fn apply<L: Lanes>(self, x: L) -> L {
        x.mul(Sigmoid.apply(x.mul(L::splat(self.0))))
    }
}

/// Returns `(2^t / 2^n, shifted)` for `|t| <= 1000`. The low 9 bits of `shifted` are `n + bias`.
#[inline(always)]
fn split_exp2<L: Lanes>(t: L, bias: f32) -> (L, L) {
    let round = L::splat(ROUND + bias);
    let shifted = t.add(round);
    let r = t.sub(shifted.sub(round));
    // 2^r for |r| <= 1/2 within 3.0e-9 of itself, fitted by Lawson's algorithm.
    let power = Polynomial([
        1.0,
        std::f32::consts::LN_2,
        0.240_226_48,
        0.055_503_596,
        0.009_618_498,
        0.001_339_097_3,
        1.532_976e-4,
    ])
    .at(r);
    (power, shifted)
}

/// The product `x Φ(x) = max(x, 0) - |x| Φ(-|x|)` with the normal distribution function Φ.
///
/// `Φ(-2h)` is `2^(p(h) - 1)`, which takes no division. `p` has degree 8 and no constant term. It
/// was fitted to `log2(2 Φ(-2h))` at 700 Chebyshev nodes of h up to 2.8, weighted by Φ(-2h), with
/// Lawson's algorithm (reweighted least squares); each coefficient was rounded to f32, up or down,
/// before the later ones were fitted again. Φ(-2h) is within 8.1e-9 in exact arithmetic. Beyond
/// 2.8, `p` falls faster than the logarithm, so that small values have no relative precision.
#[derive(Clone, Copy, Debug)]
pub struct Gelu;

impl Function for Gelu {
    #[inline(always)]
    fn apply<L: Lanes>(self, x: L) -> L {
        // p is -127 here, whose power is 0.
        const MOST: f32 = 4.984;
        let half = x.mul(L::splat(0.5));
        let size = half.abs();
        // max(x, 0); NaN for minus infinity, as a product with 0 is.
        let positive = half.add(size);
        let h = size.at_most(MOST);
        let square = h.mul(h);
        // Even and odd terms apart, which halves the latency.
        let even =
            Polynomial([-2.302_210_3, -0.419_960_8, -0.004_343_038_4, 0.005_054_167_5]).at(square);
        let odd =
            Polynomial([-1.836_834_2, 0.112_989_54, -0.011_948_071, -7.280_665e-4]).at(square);
        let (e, shifted) = split_exp2(odd.fma(h, even).mul(h), BIAS);
        h.neg().fma(e.mul(shifted.low_bits_power()), positive)
    }
}

/// The product `x / 2 (1 + tanh(u)) = x sigmoid(2 u)` with `u = sqrt(2/π) (x + 0.044715 x^3)`.
#[derive(Clone, Copy, Debug)]
pub struct GeluTanh;

impl Function for GeluTanh {
    #[inline(always)]
    fn apply<L: Lanes>(self, x: L) -> L {
        // In units of ln 2: 2 sqrt(2/π) log2(e), and 0.044715 of that.
        let factor = x.mul(x).fma(L::splat(0.102_943_24), L::splat(2.302_208_2));
        // The quotient is 0 and 1 there.
        let t = factor.mul(x).at_most(60.0).at_least(-151.0);
        let (e, shifted) = split_exp2(t, SCALE_BIAS);
        let e = e.mul(shifted.low_bits_power());
        x.mul(e.div(L::splat(SCALE).add(e)))
    }
}

#[inline(always)]
pub(crate) fn ln<const FMA: bool>(x: f32) -> f32 {
    let subnormal = x < f32::MIN_POSITIVE;
    let scaled = if subnormal { x * 8_388_608.0 } else { x };
    let shift = if subnormal { -23.0 } else { 0.0 };
    let bits = scaled.to_bits() as i32;
    // x = 2^e * (1 + f) with 1 + f between sqrt(1/2), whose bits are subtracted here, and sqrt(2).
    let e = bits.wrapping_sub(0x3f35_04f3) >> 23;
    let f = f32::from_bits(bits.wrapping_sub(e << 23) as u32) - 1.0;
    let e = e as f32 + shift;
    // (ln(1 + f) - f + f^2/2) / f^3; the error leaves 2^-27 of ln(1 + f).
    let tail = Polynomial([
        0.333_333_16,
        -0.250_008_1,
        0.200_022_86,
        -0.166_245_55,
        0.141_811_89,
        -0.131_287_5,
        0.128_816_6,
        -0.078_596_36,
    ])
    .at_number::<FMA>(f);
    let square = f * f;
    let small = fma::<FMA>(e, LN2_LOW, square * f * tail);
    let small = fma::<FMA>(square, -0.5, small);
    let finite = fma::<FMA>(e, LN2_HIGH, f + small);
    let positive = if x < f32::INFINITY { finite } else { x };
    let other = if x == 0.0 { f32::NEG_INFINITY } else { f32::NAN };
    if x > 0.0 { positive } else { other }
}

#[inline(always)]
pub(crate) fn softplus<const FMA: bool>(x: f32) -> f32 {
    let e = exp::<FMA>(-x.abs());
    // ln(1 + e), corrected for what rounding 1 + e lost (Kahan's form, in Higham, "Accuracy and
    // Stability", 1.14.1).
    let sum = 1.0 + e;
    let log = if sum == 1.0 { e } else { ln::<FMA>(sum) * (e / (sum - 1.0)) };
    Arith::max(x, 0.0) + log
}

#[inline(always)]
pub(crate) fn erf<const FMA: bool>(x: f32) -> f32 {
    let a = clamp(x.abs(), 0.0, 4.0);
    let t = a * a;
    // erf(x) / x - 1 up to x^2 = 0.87, within 2^-31.
    let near = Polynomial([
        0.128_379_17,
        -0.376_126_35,
        0.112_836_91,
        -0.026_859_12,
        0.005_200_261,
        -8.133_215e-4,
        8.327_485e-5,
    ])
    .at_number::<FMA>(t);
    let near = fma::<FMA>(x, near, x);
    // -ln(erfc(a)) / a from 0.92 to 4 (where erf rounds to 1); the error leaves 2^-30 of erf.
    let far = Polynomial([
        1.128_651_5,
        0.635_138_4,
        0.106_259_525,
        -0.023_782_792,
        0.003_652_911_4,
        -3.255_548_7e-4,
        1.152_623_6e-5,
    ])
    .at_number::<FMA>(a);
    let far = (1.0 - exp::<FMA>(-a * far)).copysign(x);
    if a < 0.921_875 { near } else { far }
}

/// Returns `(r, n)` with `x = n * pi/2 + r` and `|r| <= pi/4` (a little more by rounding).
#[inline(always)]
fn reduced_angle<const FMA: bool>(x: f32) -> (f32, i32) {
    let shifted = fma::<FMA>(x, std::f32::consts::FRAC_2_PI, ROUND);
    let n = shifted.to_bits().wrapping_sub(ROUND.to_bits()) as i32;
    let n_float = shifted - ROUND;
    // pi/2 in three parts of 8, 11 and 24 bits.
    let r = fma::<FMA>(n_float, -1.570_312_5, x);
    let r = fma::<FMA>(n_float, -4.837_513e-4, r);
    (fma::<FMA>(n_float, -7.549_79e-8, r), n)
}

/// Computes the sine and the cosine of an angle up to an eighth of a circle.
#[inline(always)]
fn sin_and_cos<const FMA: bool>(r: f32) -> (f32, f32) {
    let t = r * r;
    // (sin(r) - r) / r^3 within 2^-37, (cos(r) - 1 + r^2/2) / r^4 within 2^-33.
    let sin = Polynomial([-0.166_666_67, 0.008_333_329, -1.983_933_5e-4, 2.718_311_6e-6])
        .at_number::<FMA>(t);
    let cos = Polynomial([0.041_666_646, -0.001_388_736_8, 2.443_845_4e-5]).at_number::<FMA>(t);
    let sin = fma::<FMA>(r * t, sin, r);
    let cos = fma::<FMA>(t * t, cos, fma::<FMA>(t, -0.5, 1.0));
    (sin, cos)
}

/// Computes the sine of a quarter circle's multiple `n` plus `r`.
#[inline(always)]
fn sin_of_parts<const FMA: bool>(r: f32, n: i32) -> f32 {
    let (sin, cos) = sin_and_cos::<FMA>(r);
    let value = if n & 1 == 0 { sin } else { cos };
    // Half circles change the sign.
    f32::from_bits(value.to_bits() ^ ((n as u32) & 2) << 30)
}

/// Computes the sine of `x` for `|x| <= MAX_REDUCED`.
#[inline(always)]
pub fn sin_reduced<const FMA: bool>(x: f32) -> f32 {
    let (r, n) = reduced_angle::<FMA>(x);
    sin_of_parts::<FMA>(r, n)
}

/// Computes the cosine of `x` for `|x| <= MAX_REDUCED`.
#[inline(always)]
pub fn cos_reduced<const FMA: bool>(x: f32) -> f32 {
    let (r, n) = reduced_angle::<FMA>(x);
    sin_of_parts::<FMA>(r, n.wrapping_add(1))
}

/// Computes the tangent of `x` for `|x| <= MAX_REDUCED`. Next to its poles the angle needs more
/// digits than floats have, hence the reduction in double precision.
#[inline(always)]
pub fn tan_reduced<const FMA: bool>(x: f32) -> f32 {
    /// 1.5 * 2^52: adding it rounds to an integer, like [`ROUND`].
    const ROUND: f64 = 6_755_399_441_055_744.0;
    /// The first 33 bits of pi/2, whose product with a quadrant is exact, and the rest.
    const HIGH: f64 = 1.570_796_326_734_125_6;
    const LOW: f64 = 6.077_100_506_506_192e-11;
    let angle = f64::from(x);
    let shifted = angle * std::f64::consts::FRAC_2_PI + ROUND;
    let quadrant = shifted - ROUND;
    let r = (angle - quadrant * HIGH - quadrant * LOW) as f32;
    let (sin, cos) = sin_and_cos::<FMA>(r);
    let is_odd = shifted.to_bits() as u32 & 1 != 0;
    if is_odd { -cos / sin } else { sin / cos }
}

impl Series for f32 {
    const QUARTER: [f32; 2] = [std::f32::consts::FRAC_PI_2, -4.371_139e-8];
    #[inline(always)]
    fn atan_tail<const FMA: bool>(z: f32) -> f32 {
        // Leaves 2^-30 of the arc tangent.
        Polynomial([-0.333_333_15, 0.199_984_85, -0.142_437_77, 0.105_955_09, -0.060_822_765])
            .at_number::<FMA>(z)
    }
    #[inline(always)]
    fn asin_tail<const FMA: bool>(z: f32) -> f32 {
        // Leaves 2^-31 of the arc sine.
        Polynomial([
            0.166_666_6,
            0.075_005_11,
            0.044_515_793,
            0.031_816_94,
            0.014_405_267,
            0.037_561_38,
        ])
        .at_number::<FMA>(z)
    }
    #[inline(always)]
    fn sinh_tail<const FMA: bool>(z: f32) -> f32 {
        // Leaves 2^-34 of the hyperbolic sine.
        Polynomial([0.166_666_67, 0.008_333_351, 1.983_605_9e-4, 2.817_475_6e-6])
            .at_number::<FMA>(z)
    }
    #[inline(always)]
    fn half_exp<const FMA: bool>(self) -> f32 {
        scaled_exp::<FMA>(clamp(self, -104.0, 90.0), 0.5)
    }
}

impl Math for f32 {
    #[inline(always)]
    fn mul_add<const FMA: bool>(self, b: f32, c: f32) -> f32 {
        fma::<FMA>(self, b, c)
    }
    #[inline(always)]
    fn sqrt(self) -> f32 {
        f32::sqrt(self)
    }
    #[inline(always)]
    fn ceil(self) -> f32 {
        f32::ceil(self)
    }
    #[inline(always)]
    fn floor(self) -> f32 {
        f32::floor(self)
    }
    #[inline(always)]
    fn round_even(self) -> f32 {
        self.round_ties_even()
    }
    #[inline(always)]
    fn exp<const FMA: bool>(self) -> f32 {
        exp::<FMA>(self)
    }
    #[inline(always)]
    fn exp_nonpositive<const FMA: bool>(self) -> f32 {
        exp_nonpositive::<FMA>(self)
    }
    #[inline(always)]
    fn ln<const FMA: bool>(self) -> f32 {
        ln::<FMA>(self)
    }
    #[inline(always)]
    fn softplus<const FMA: bool>(self) -> f32 {
        softplus::<FMA>(self)
    }
    #[inline(always)]
    fn expm1<const FMA: bool>(self) -> f32 {
        expm1::<FMA>(self)
    }
    #[inline(always)]
    fn tanh<const FMA: bool>(self) -> f32 {
        Tanh.apply(Lane::<FMA>(self)).0
    }
    #[inline(always)]
    fn sigmoid<const FMA: bool>(self) -> f32 {
        Sigmoid.apply(Lane::<FMA>(self)).0
    }
    #[inline(always)]
    fn gelu<const FMA: bool>(self) -> f32 {
        Gelu.apply(Lane::<FMA>(self)).0
    }
    #[inline(always)]
    fn gelu_tanh<const FMA: bool>(self) -> f32 {
        GeluTanh.apply(Lane::<FMA>(self)).0
    }
    #[inline(always)]
    fn erf<const FMA: bool>(self) -> f32 {
        erf::<FMA>(self)
    }
    #[inline(always)]
    fn sin<const FMA: bool>(self) -> f32 {
        if self.abs() <= MAX_REDUCED { sin_reduced::<FMA>(self) } else { f32::sin(self) }
    }
    #[inline(always)]
    fn cos<const FMA: bool>(self) -> f32 {
        if self.abs() <= MAX_REDUCED { cos_reduced::<FMA>(self) } else { f32::cos(self) }
    }
    #[inline(always)]
    fn tan<const FMA: bool>(self) -> f32 {
        if self.abs() <= MAX_REDUCED {
            tan_reduced::<FMA>(self)
        } else {
            f64::from(self).tan() as f32
        }
    }
    #[inline(always)]
    fn asin<const FMA: bool>(self) -> f32 {
        inverse::asin::<f32, FMA>(self)
    }
    #[inline(always)]
    fn acos<const FMA: bool>(self) -> f32 {
        inverse::acos::<f32, FMA>(self)
    }
    #[inline(always)]
    fn atan<const FMA: bool>(self) -> f32 {
        inverse::atan::<f32, FMA>(self)
    }
    #[inline(always)]
    fn sinh<const FMA: bool>(self) -> f32 {
        inverse::sinh::<f32, FMA>(self)
    }
    #[inline(always)]
    fn cosh<const FMA: bool>(self) -> f32 {
        inverse::cosh::<f32, FMA>(self)
    }
    #[inline(always)]
    fn asinh<const FMA: bool>(self) -> f32 {
        inverse::asinh::<f32, FMA>(self)
    }
    #[inline(always)]
    fn acosh<const FMA: bool>(self) -> f32 {
        inverse::acosh::<f32, FMA>(self)
    }
    #[inline(always)]
    fn atanh<const FMA: bool>(self) -> f32 {
        inverse::atanh::<f32, FMA>(self)
    }
    #[inline(always)]
    fn copysign(self, sign: f32) -> f32 {
        f32::copysign(self, sign)
    }
    #[inline(always)]
    fn is_infinite(self) -> bool {
        f32::is_infinite(self)
    }
}

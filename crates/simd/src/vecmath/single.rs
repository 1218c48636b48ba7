//! Elementary functions on f32.
//!
//! Arguments are reduced after Cody and Waite ("Software Manual for the Elementary Functions",
//! 1980): the multiple of a constant is subtracted in parts, the first of which have so few bits
//! that their products are exact. The polynomials are minimax fits (Remez exchange in 40 digits,
//! weighted for relative error of the function); their own error is given with each. Everything is
//! branch-free: see the parent module.

use crate::number::{Arith, Math};

/// 1.5 * 2^23: adding it rounds to an integer and leaves that integer in the low bits.
const ROUND: f32 = 12_582_912.0;
/// The first 9 bits of ln 2, and the rest.
const LN2_HIGH: f32 = 0.693_359_4;
const LN2_LOW: f32 = -2.121_944_4e-4;

/// Where [`sin_reduced`] and [`cos_reduced`] end.
pub const MAX_REDUCED: f32 = 8192.0;

#[inline(always)]
fn fma<const FMA: bool>(a: f32, b: f32, c: f32) -> f32 {
    if FMA { a.mul_add(b, c) } else { a * b + c }
}

/// The polynomial with these coefficients, constant term first, by Horner's rule.
#[inline(always)]
fn horner<const FMA: bool, const N: usize>(x: f32, coefficients: [f32; N]) -> f32 {
    let mut sum = coefficients[N - 1];
    let mut i = N - 1;
    while i > 0 {
        i -= 1;
        sum = fma::<FMA>(sum, x, coefficients[i]);
    }
    sum
}

/// `2^n` for `-126 <= n <= 127`.
#[inline(always)]
fn power_of_two(n: i32) -> f32 {
    f32::from_bits((n.wrapping_add(127) as u32) << 23)
}

/// `(p, n)` with `exp(x) = (1 + p) * 2^n` and `|p| <= 0.42`, for `|x| <= 1000`.
#[inline(always)]
fn reduced_exp<const FMA: bool>(x: f32) -> (f32, i32) {
    let shifted = fma::<FMA>(x, std::f32::consts::LOG2_E, ROUND);
    let n = shifted.to_bits().wrapping_sub(ROUND.to_bits()) as i32;
    let n_float = shifted - ROUND;
    let r = fma::<FMA>(n_float, -LN2_HIGH, x);
    let r = fma::<FMA>(n_float, -LN2_LOW, r);
    // (exp(r) - 1 - r) / r^2; the error leaves 2^-26 of expm1(r).
    let tail = horner::<FMA, 5>(r, [0.5, 0.166_665_42, 0.041_666_28, 0.008_366_71, 0.001_394_667]);
    (fma::<FMA>(r * r, tail, r), n)
}

/// `x` between `low` and `high`; NaN stays.
#[inline(always)]
fn clamp(x: f32, low: f32, high: f32) -> f32 {
    let x = if x > high { high } else { x };
    if x < low { low } else { x }
}

#[inline(always)]
pub(crate) fn exp<const FMA: bool>(x: f32) -> f32 {
    // Beyond these bounds the scaling below gives infinity and zero by itself.
    let (p, n) = reduced_exp::<FMA>(clamp(x, -104.0, 89.0));
    // 2^n may overflow or be subnormal while the result is neither, so scale in two steps; the
    // first is exact.
    let half = n >> 1;
    (1.0 + p) * power_of_two(half) * power_of_two(n.wrapping_sub(half))
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

/// `expm1(2|x|) / (expm1(2|x|) + 2)`, which keeps relative precision near zero without a second
/// branch.
#[inline(always)]
pub(crate) fn tanh<const FMA: bool>(x: f32) -> f32 {
    // tanh(10) is 1 to well below half an ULP.
    let (p, n) = reduced_exp::<FMA>(2.0 * clamp(x.abs(), 0.0, 10.0));
    // As in `expm1`, where neither part is too large.
    let power = power_of_two(n);
    let t = fma::<FMA>(p, power, power - 1.0);
    (t / (t + 2.0)).copysign(x)
}

/// `e / (1 + e)` with `e = exp(x)`, where the small side keeps its relative precision.
#[inline(always)]
pub(crate) fn sigmoid<const FMA: bool>(x: f32) -> f32 {
    // From 17 on the quotient is 1, and up to 40 nothing overflows.
    let (p, n) = reduced_exp::<FMA>(clamp(x, -104.0, 40.0));
    // The first power never gives a subnormal number, the second is a constant.
    let e = (1.0 + p) * power_of_two(n.wrapping_add(64)) * power_of_two(-64);
    e / (1.0 + e)
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
    let tail = horner::<FMA, 8>(
        f,
        [
            0.333_333_16,
            -0.250_008_1,
            0.200_022_86,
            -0.166_245_55,
            0.141_811_89,
            -0.131_287_5,
            0.128_816_6,
            -0.078_596_36,
        ],
    );
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
    let near = horner::<FMA, 7>(
        t,
        [
            0.128_379_17,
            -0.376_126_35,
            0.112_836_91,
            -0.026_859_12,
            0.005_200_261,
            -8.133_215e-4,
            8.327_485e-5,
        ],
    );
    let near = fma::<FMA>(x, near, x);
    // -ln(erfc(a)) / a from 0.92 to 4 (where erf rounds to 1); the error leaves 2^-30 of erf.
    let far = horner::<FMA, 7>(
        a,
        [
            1.128_651_5,
            0.635_138_4,
            0.106_259_525,
            -0.023_782_792,
            0.003_652_911_4,
            -3.255_548_7e-4,
            1.152_623_6e-5,
        ],
    );
    let far = (1.0 - exp::<FMA>(-a * far)).copysign(x);
    if a < 0.921_875 { near } else { far }
}

/// `(r, n)` with `x = n * pi/2 + r`, `|r| <= pi/4` (a little more by rounding).
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

/// The sine of a quarter circle's multiple `n` plus `r`.
#[inline(always)]
fn sin_of_parts<const FMA: bool>(r: f32, n: i32) -> f32 {
    let t = r * r;
    // (sin(r) - r) / r^3 within 2^-37, (cos(r) - 1 + r^2/2) / r^4 within 2^-33.
    let sin = horner::<FMA, 4>(t, [-0.166_666_67, 0.008_333_329, -1.983_933_5e-4, 2.718_311_6e-6]);
    let cos = horner::<FMA, 3>(t, [0.041_666_646, -0.001_388_736_8, 2.443_845_4e-5]);
    let sin = fma::<FMA>(r * t, sin, r);
    let cos = fma::<FMA>(t * t, cos, fma::<FMA>(t, -0.5, 1.0));
    let value = if n & 1 == 0 { sin } else { cos };
    // Half circles change the sign.
    f32::from_bits(value.to_bits() ^ ((n as u32) & 2) << 30)
}

/// The sine, for `|x| <= MAX_REDUCED`.
#[inline(always)]
pub fn sin_reduced<const FMA: bool>(x: f32) -> f32 {
    let (r, n) = reduced_angle::<FMA>(x);
    sin_of_parts::<FMA>(r, n)
}

/// The cosine, for `|x| <= MAX_REDUCED`.
#[inline(always)]
pub fn cos_reduced<const FMA: bool>(x: f32) -> f32 {
    let (r, n) = reduced_angle::<FMA>(x);
    sin_of_parts::<FMA>(r, n.wrapping_add(1))
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
        tanh::<FMA>(self)
    }
    #[inline(always)]
    fn sigmoid<const FMA: bool>(self) -> f32 {
        sigmoid::<FMA>(self)
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
    fn libm(self, f64_function: fn(f64) -> f64) -> f32 {
        f64_function(f64::from(self)) as f32
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

//! Elementary functions on f64.
//!
//! Like [`single`](super::single) in double precision: scalar and branch-free, so that loops around
//! the functions vectorize. Sine, cosine and tangent come from the standard library.

use super::inverse::{self, Series};
use crate::number::{Arith, Math};
use std::f64::consts::LOG2_E;

/// 1.5 * 2^52: adding it rounds to an integer and leaves that integer in the low bits.
const ROUND: f64 = 6_755_399_441_055_744.0;
/// Upper 33 bits of ln 2, and the rest.
const LN2_HIGH: f64 = 0.693_147_180_369_123_8;
const LN2_LOW: f64 = 1.908_214_929_270_587_7e-10;
/// Offset of the exponent in the bits of a double.
const BIAS: f64 = 1023.0;
/// Bits of a double below its exponent.
const MANTISSA: u32 = 52;

#[inline(always)]
fn fma<const FMA: bool>(a: f64, b: f64, c: f64) -> f64 {
    if FMA { a.mul_add(b, c) } else { a * b + c }
}

/// Computes a polynomial, whose constant term is the first coefficient, by Horner's rule.
#[inline(always)]
fn polynomial<const FMA: bool>(coefficients: &[f64], x: f64) -> f64 {
    let mut i = coefficients.len() - 1;
    let mut sum = coefficients[i];
    while i > 0 {
        i -= 1;
        sum = fma::<FMA>(sum, x, coefficients[i]);
    }
    sum
}

/// Limits `x` to the range from `low` to `high`; NaN stays.
#[inline(always)]
fn clamp(x: f64, low: f64, high: f64) -> f64 {
    let x = if x > high { high } else { x };
    if x < low { low } else { x }
}

/// Returns the power of two whose biased exponent is in the low 11 bits, if bit 11 is 0. A biased
/// exponent of 0 gives 0.
#[inline(always)]
fn power_of_bits(bits: u64) -> f64 {
    f64::from_bits(bits << MANTISSA)
}

/// Returns `(p, bits)` with `exp(x) = (1 + p) 2^n` and `|p| <= 0.42`, for `|x| <= 1000`. The low 12
/// bits of `bits` are `n + bias`. The terms up to degree 13 of the exponential's series leave 2^-57
/// of `p`.
#[inline(always)]
fn reduced_exp<const FMA: bool>(x: f64, bias: f64) -> (f64, u64) {
    let shifted = fma::<FMA>(x, LOG2_E, ROUND + bias);
    let n = shifted - (ROUND + bias);
    let r = fma::<FMA>(n, -LN2_HIGH, x);
    let r = fma::<FMA>(n, -LN2_LOW, r);
    let tail = polynomial::<FMA>(
        &[
            0.5,
            1.0 / 6.0,
            1.0 / 24.0,
            1.0 / 120.0,
            1.0 / 720.0,
            1.0 / 5_040.0,
            1.0 / 40_320.0,
            1.0 / 362_880.0,
            1.0 / 3_628_800.0,
            1.0 / 39_916_800.0,
            1.0 / 479_001_600.0,
            1.0 / 6_227_020_800.0,
        ],
        r,
    );
    (fma::<FMA>(r * r, tail, r), shifted.to_bits())
}

#[inline(always)]
fn exp<const FMA: bool>(x: f64) -> f64 {
    // Beyond these bounds the scaling below gives infinity and zero by itself.
    scaled_exp::<FMA>(clamp(x, -746.0, 710.0), 1.0)
}

/// Computes `exp(x) * scale` for `|x| <= 750` and a power of two.
#[inline(always)]
fn scaled_exp<const FMA: bool>(x: f64, scale: f64) -> f64 {
    let (p, bits) = reduced_exp::<FMA>(x, 2.0 * BIAS);
    // 2^n may overflow or be subnormal while the result is neither, so scale in two steps; the
    // first is exact. The first half of n + 2 * 1023 has one bias in it, and so has the rest.
    let rest = power_of_bits(bits.wrapping_sub(bits >> 1));
    (1.0 + p) * power_of_bits(bits >> 1) * (rest * scale)
}

/// Computes `exp(x)` of a number up to 0 by one clamp and one scaling. Exponentials below
/// 2^-1022.5 become 0.
#[inline(always)]
fn exp_nonpositive<const FMA: bool>(x: f64) -> f64 {
    // n is -1023 here, and its power 0.
    const LEAST: f64 = -709.0;
    let (p, bits) = reduced_exp::<FMA>(if x < LEAST { LEAST } else { x }, BIAS);
    (1.0 + p) * power_of_bits(bits)
}

#[inline(always)]
fn expm1<const FMA: bool>(x: f64) -> f64 {
    let (p, bits) = reduced_exp::<FMA>(clamp(x, -746.0, 710.0), 2.0 * BIAS);
    let rest = bits.wrapping_sub(bits >> 1);
    // p * 2^n + (2^n - 1), everything divided by 2^rest first so that nothing overflows early. For
    // n = 0 the sum in brackets is zero and the relative precision of p is kept.
    let high = power_of_bits(bits >> 1);
    let inverse = power_of_bits((2.0 * BIAS) as u64 - (rest & 0x7ff));
    fma::<FMA>(p, high, high - inverse) * power_of_bits(rest)
}

/// Computes the quotient `expm1(2|x|) / (expm1(2|x|) + 2)` with the sign of x, which keeps relative
/// precision near zero without a second branch.
#[inline(always)]
fn tanh<const FMA: bool>(x: f64) -> f64 {
    // tanh(22) is 1 to well below half an ULP.
    let size = clamp(x.abs(), 0.0, 22.0);
    let (p, bits) = reduced_exp::<FMA>(size + size, BIAS);
    // As in `expm1`, where neither part is too large.
    let power = power_of_bits(bits);
    let t = fma::<FMA>(p, power, power - 1.0);
    (t / (t + 2.0)).copysign(x)
}

/// Computes the logistic function `e / (1 + e)` with `e = exp(x)`. The small side keeps its
/// relative precision.
#[inline(always)]
fn sigmoid<const FMA: bool>(x: f64) -> f64 {
    /// Biased exponent of a factor of numerator and denominator: a small quotient becomes subnormal
    /// only in the division, which rounds once.
    const SCALE_BIAS: f64 = BIAS + 64.0;
    // From 38 on the quotient is 1, and up to 40 nothing overflows.
    let (p, bits) = reduced_exp::<FMA>(clamp(x, -746.0, 40.0), SCALE_BIAS);
    let e = (1.0 + p) * power_of_bits(bits);
    e / (power_of_bits(SCALE_BIAS as u64) + e)
}

/// Computes the logarithm as twice the inverse hyperbolic tangent of `s = f / (2 + f)`, by its
/// series up to `s^21`.
#[inline(always)]
fn ln<const FMA: bool>(x: f64) -> f64 {
    /// Bits of the square root of 1/2.
    const ROOT: u64 = 0x3fe6_a09e_667f_3bcd;
    /// 2^52: with an integer below it in the low bits, the sum of both.
    const LOW: u64 = 0x4330_0000_0000_0000;
    let subnormal = x < f64::MIN_POSITIVE;
    let scaled = if subnormal { x * 18_014_398_509_481_984.0 } else { x };
    let shift = if subnormal { -54.0 } else { 0.0 };
    // x = 2^e * (1 + f) with 1 + f between sqrt(1/2) and sqrt(2); the exponent is biased, so that
    // no number is negative.
    let bits = scaled.to_bits();
    let biased = bits.wrapping_sub(ROOT).wrapping_add((BIAS as u64) << MANTISSA) >> MANTISSA;
    let exponent = biased.wrapping_sub(BIAS as u64) << MANTISSA;
    let f = f64::from_bits(bits.wrapping_sub(exponent)) - 1.0;
    let e = f64::from_bits(LOW | biased) - (f64::from_bits(LOW) + BIAS) + shift;
    let s = f / (2.0 + f);
    let z = s * s;
    let tail = polynomial::<FMA>(
        &[
            2.0 / 3.0,
            2.0 / 5.0,
            2.0 / 7.0,
            2.0 / 9.0,
            2.0 / 11.0,
            2.0 / 13.0,
            2.0 / 15.0,
            2.0 / 17.0,
            2.0 / 19.0,
            2.0 / 21.0,
        ],
        z,
    ) * z;
    // 2 s = f - s f, and f^2 / 2 = f - s f + s f^2 / 2.
    let half_square = 0.5 * f * f;
    let small = fma::<FMA>(s, half_square + tail, e * LN2_LOW);
    let finite = fma::<FMA>(e, LN2_HIGH, f - (half_square - small));
    let positive = if x < f64::INFINITY { finite } else { x };
    let other = if x == 0.0 { f64::NEG_INFINITY } else { f64::NAN };
    if x > 0.0 { positive } else { other }
}

#[inline(always)]
fn softplus<const FMA: bool>(x: f64) -> f64 {
    let e = exp::<FMA>(-x.abs());
    // ln(1 + e), corrected for what rounding 1 + e lost (Kahan's form, in Higham, "Accuracy and
    // Stability", 1.14.1).
    let sum = 1.0 + e;
    let log = if sum == 1.0 { e } else { ln::<FMA>(sum) * (e / (sum - 1.0)) };
    Arith::max(x, 0.0) + log
}

#[inline(always)]
fn vector_erf<const FMA: bool>(x: f64) -> f64 {
    let a = clamp(x.abs(), 0.0, 6.0);
    let t = a * a;
    // erf(x) / x - 1 up to x^2 = 0.86, within 2^-53.
    let near = polynomial::<FMA>(
        &[
            0.128_379_167_095_512_48,
            -0.376_126_389_031_813_8,
            0.112_837_916_708_460_98,
            -0.026_866_170_625_543_577,
            0.005_223_977_444_371_954_5,
            -0.000_854_831_722_617_326_8,
            0.000_120_550_012_255_483_54,
            -1.491_839_848_581_035_4e-5,
            1.635_945_977_326_689_3e-6,
            -1.544_984_772_022_044_1e-7,
            1.002_027_176_917_140_7e-8,
        ],
        t,
    );
    let near = fma::<FMA>(x, near, x);
    // exp(a^2) erfc(a) in powers of a - 2 from 0.92 to 6 (where erf rounds to 1), fitted by
    // Lawson's algorithm (reweighted least squares); the error leaves 2^-54 of erf.
    let far = polynomial::<FMA>(
        &[
            0.255_395_676_310_504_6,
            -0.106_796_461_853_485_6,
            0.041_802_752_603_699_33,
            -0.015_460_637_764_064_013,
            0.005_440_738_534_227_056,
            -0.001_831_664_282_085_969_6,
            0.000_592_470_015_047_962_1,
            -0.000_184_778_322_190_026_6,
            5.572_826_149_258_561e-5,
            -1.629_385_895_118_043_7e-5,
            4.628_257_089_541_012e-6,
            -1.279_291_825_860_469_7e-6,
            3.447_676_322_653_82e-7,
            -9.095_664_593_652_097e-8,
            2.341_801_234_355_53e-8,
            -5.758_826_857_092_201e-9,
            1.395_565_170_384_846_6e-9,
            -3.798_838_877_035_656_7e-10,
            1.037_743_446_781_774_2e-10,
            -1.923_548_347_751_703_7e-11,
            1.567_038_823_580_314_4e-12,
        ],
        a - 2.0,
    );
    let far = (1.0 - exp::<FMA>(-t) * far).copysign(x);
    if a < 0.921_875 { near } else { far }
}

/// Computes the error function of one number.
pub fn erf(x: f64) -> f64 {
    vector_erf::<false>(x)
}

impl Series for f64 {
    const QUARTER: [f64; 2] = [std::f64::consts::FRAC_PI_2, 6.123_233_995_736_766e-17];
    #[inline(always)]
    fn atan_tail<const FMA: bool>(z: f64) -> f64 {
        // Leaves 2^-59 of the arc tangent.
        polynomial::<FMA>(
            &[
                -0.333_333_333_333_332,
                0.199_999_999_999_538_3,
                -0.142_857_142_802_263_33,
                0.111_111_107_851_176_26,
                -0.090_908_978_088_121_6,
                0.076_920_611_678_176_36,
                -0.066_631_152_474_556_63,
                0.058_479_727_118_350_42,
                -0.050_396_867_732_477_87,
                0.038_074_382_832_355_85,
                -0.017_918_056_422_681_096,
            ],
            z,
        )
    }
    #[inline(always)]
    fn asin_tail<const FMA: bool>(z: f64) -> f64 {
        // Leaves 2^-59 of the arc sine.
        polynomial::<FMA>(
            &[
                0.166_666_666_666_667_6,
                0.074_999_999_999_710_88,
                0.044_642_857_174_257_73,
                0.030_381_942_725_912_29,
                0.022_372_214_487_857_96,
                0.017_351_620_372_124_05,
                0.013_980_730_230_447_696,
                0.011_399_563_122_166_612,
                0.010_777_095_682_152_828,
                0.003_716_580_675_936_195,
                0.021_686_597_893_486_924,
                -0.020_974_486_691_965_147,
                0.032_615_958_047_960_81,
            ],
            z,
        )
    }
    #[inline(always)]
    fn sinh_tail<const FMA: bool>(z: f64) -> f64 {
        // Leaves 2^-63 of the hyperbolic sine.
        polynomial::<FMA>(
            &[
                0.166_666_666_666_666_67,
                0.008_333_333_333_333_139,
                1.984_126_984_143_785e-4,
                2.755_731_915_529_235e-6,
                2.505_212_340_468_024_2e-8,
                1.605_723_991_871_408_4e-10,
                7.759_323_755_940_098e-13,
            ],
            z,
        )
    }
    #[inline(always)]
    fn half_exp<const FMA: bool>(self) -> f64 {
        scaled_exp::<FMA>(clamp(self, -746.0, 711.0), 0.5)
    }
}

impl Math for f64 {
    #[inline(always)]
    fn mul_add<const FMA: bool>(self, b: f64, c: f64) -> f64 {
        if FMA { f64::mul_add(self, b, c) } else { self * b + c }
    }
    #[inline(always)]
    fn sqrt(self) -> f64 {
        f64::sqrt(self)
    }
    #[inline(always)]
    fn ceil(self) -> f64 {
        f64::ceil(self)
    }
    #[inline(always)]
    fn floor(self) -> f64 {
        f64::floor(self)
    }
    #[inline(always)]
    fn round_even(self) -> f64 {
        self.round_ties_even()
    }
    #[inline(always)]
    fn exp<const FMA: bool>(self) -> f64 {
        exp::<FMA>(self)
    }
    #[inline(always)]
    fn exp_nonpositive<const FMA: bool>(self) -> f64 {
        exp_nonpositive::<FMA>(self)
    }
    #[inline(always)]
    fn ln<const FMA: bool>(self) -> f64 {
        ln::<FMA>(self)
    }
    #[inline(always)]
    fn softplus<const FMA: bool>(self) -> f64 {
        softplus::<FMA>(self)
    }
    #[inline(always)]
    fn expm1<const FMA: bool>(self) -> f64 {
        expm1::<FMA>(self)
    }
    #[inline(always)]
    fn tanh<const FMA: bool>(self) -> f64 {
        tanh::<FMA>(self)
    }
    #[inline(always)]
    fn sigmoid<const FMA: bool>(self) -> f64 {
        sigmoid::<FMA>(self)
    }
    #[inline(always)]
    fn gelu<const FMA: bool>(self) -> f64 {
        let half = self * 0.5;
        Math::mul_add::<FMA>(half, vector_erf::<FMA>(self * std::f64::consts::FRAC_1_SQRT_2), half)
    }
    #[inline(always)]
    fn gelu_tanh<const FMA: bool>(self) -> f64 {
        // x/2 (1 + tanh(u)) = x sigmoid(2 u) with u = sqrt(2/pi) (x + 0.044715 x^3)
        let cubic = Math::mul_add::<FMA>(self * self, 0.044_715, 1.0) * self;
        let root = (2.0 / std::f64::consts::PI).sqrt();
        self * Math::sigmoid::<FMA>(cubic * (2.0 * root))
    }
    #[inline(always)]
    fn erf<const FMA: bool>(self) -> f64 {
        vector_erf::<FMA>(self)
    }
    #[inline(always)]
    fn sin<const FMA: bool>(self) -> f64 {
        f64::sin(self)
    }
    #[inline(always)]
    fn cos<const FMA: bool>(self) -> f64 {
        f64::cos(self)
    }
    #[inline(always)]
    fn tan<const FMA: bool>(self) -> f64 {
        f64::tan(self)
    }
    #[inline(always)]
    fn asin<const FMA: bool>(self) -> f64 {
        inverse::asin::<f64, FMA>(self)
    }
    #[inline(always)]
    fn acos<const FMA: bool>(self) -> f64 {
        inverse::acos::<f64, FMA>(self)
    }
    #[inline(always)]
    fn atan<const FMA: bool>(self) -> f64 {
        inverse::atan::<f64, FMA>(self)
    }
    #[inline(always)]
    fn sinh<const FMA: bool>(self) -> f64 {
        inverse::sinh::<f64, FMA>(self)
    }
    #[inline(always)]
    fn cosh<const FMA: bool>(self) -> f64 {
        inverse::cosh::<f64, FMA>(self)
    }
    #[inline(always)]
    fn asinh<const FMA: bool>(self) -> f64 {
        inverse::asinh::<f64, FMA>(self)
    }
    #[inline(always)]
    fn acosh<const FMA: bool>(self) -> f64 {
        inverse::acosh::<f64, FMA>(self)
    }
    #[inline(always)]
    fn atanh<const FMA: bool>(self) -> f64 {
        inverse::atanh::<f64, FMA>(self)
    }
    #[inline(always)]
    fn copysign(self, sign: f64) -> f64 {
        f64::copysign(self, sign)
    }
    #[inline(always)]
    fn is_infinite(self) -> bool {
        f64::is_infinite(self)
    }
}

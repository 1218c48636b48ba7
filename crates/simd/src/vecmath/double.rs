//! Elementary functions on f64: the standard library's, and an error function of our own.
//!
//! f64 models are rare, so nothing here is vectorised; it also serves the tests as the reference
//! for f32.

use crate::number::Math;
use std::f64::consts::LN_2;

/// The error function to about 1e-15.
///
/// Abramowitz and Stegun 7.1.6 (a series of positive terms) up to 1, the continued fraction 7.1.14
/// for the complement beyond.
pub fn erf(x: f64) -> f64 {
    let a = x.abs();
    if a.is_nan() {
        return x;
    }
    if a >= 6.0 {
        return 1f64.copysign(x);
    }
    let gauss = (-a * a).exp();
    let value = if a < 1.0 {
        // From the inside out, so that rounding errors of the terms do not add up: 1 + z/3 (1 + z/5
        // (1 + ...)).
        let z = 2.0 * a * a;
        let sum = (1..=20).rev().fold(1.0, |inner, n| 1.0 + inner * z / f64::from(2 * n + 1));
        std::f64::consts::FRAC_2_SQRT_PI * a * gauss * sum
    } else {
        // erfc(a) = exp(-a^2)/sqrt(pi) * 1/(a + (1/2)/(a + 1/(a + (3/2)/(a + ...)))), from the
        // inside out. Its error falls as exp(-2 a sqrt(2 terms)): this many leave less than 1e-16.
        let terms = (180.0 / (a * a)) as u32 + 10;
        let tail = (1..=terms).rev().fold(a, |below, k| a + f64::from(k) * 0.5 / below);
        1.0 - 0.5 * std::f64::consts::FRAC_2_SQRT_PI * gauss / tail
    };
    value.copysign(x)
}

/// The standard library's overflows for the greatest arguments, where the logarithm is the answer.
pub fn asinh(x: f64) -> f64 {
    if x.abs() < LARGE { x.asinh() } else { (x.abs().ln() + LN_2).copysign(x) }
}

/// The standard library's loses half of the digits near 1, because it takes the logarithm of a
/// rounded sum.
pub fn acosh(x: f64) -> f64 {
    if x < 1.0 {
        f64::NAN
    } else if x < LARGE {
        let above = x - 1.0;
        (above + (above * (x + 1.0)).sqrt()).ln_1p()
    } else {
        x.ln() + LN_2
    }
}

/// The standard library's is accurate near 1, but loses most of the digits near -1.
pub fn atanh(x: f64) -> f64 {
    x.abs().atanh().copysign(x)
}

/// From here on `asinh(x)` and `acosh(x)` are `ln(2 x)` to less than half an ULP.
const LARGE: f64 = 1e9;

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
        f64::exp(self)
    }
    #[inline(always)]
    fn exp_nonpositive<const FMA: bool>(self) -> f64 {
        f64::exp(self)
    }
    #[inline(always)]
    fn ln<const FMA: bool>(self) -> f64 {
        f64::ln(self)
    }
    #[inline(always)]
    fn softplus<const FMA: bool>(self) -> f64 {
        crate::number::Arith::max(self, 0.0) + (-self.abs()).exp().ln_1p()
    }
    #[inline(always)]
    fn expm1<const FMA: bool>(self) -> f64 {
        self.exp_m1()
    }
    #[inline(always)]
    fn tanh<const FMA: bool>(self) -> f64 {
        f64::tanh(self)
    }
    #[inline(always)]
    fn sigmoid<const FMA: bool>(self) -> f64 {
        let e = (-self.abs()).exp();
        (if self < 0.0 { e } else { 1.0 }) / (1.0 + e)
    }
    #[inline(always)]
    fn gelu<const FMA: bool>(self) -> f64 {
        let half = self * 0.5;
        Math::mul_add::<FMA>(half, erf(self * std::f64::consts::FRAC_1_SQRT_2), half)
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
        erf(self)
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
    fn libm(self, f64_function: fn(f64) -> f64) -> f64 {
        f64_function(self)
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

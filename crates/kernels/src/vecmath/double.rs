//! Elementary functions on f64: the standard library's, and an error function of our own.
//!
//! f64 models are rare, so nothing here is vectorised; it also serves the tests as the reference for f32.

use crate::number::Math;

/// The error function to about 1e-15.
///
/// Abramowitz and Stegun 7.1.6 (a series of positive terms) up to 3, the continued fraction 7.1.14 for the complement
/// beyond.
pub(crate) fn erf(x: f64) -> f64 {
    let a = x.abs();
    if a.is_nan() {
        return x;
    }
    if a >= 6.0 {
        return 1f64.copysign(x);
    }
    let gauss = (-a * a).exp();
    let value = if a < 3.0 {
        let (mut term, mut sum, mut k) = (a, a, 1.0);
        while term > sum * 1e-17 {
            k += 2.0;
            term *= 2.0 * a * a / k;
            sum += term;
        }
        std::f64::consts::FRAC_2_SQRT_PI * gauss * sum
    } else {
        // erfc(a) = exp(-a^2)/sqrt(pi) * 1/(a + (1/2)/(a + 1/(a + (3/2)/(a + ...)))), from the inside out.
        let tail = (1..=60)
            .rev()
            .fold(a, |below, k| a + f64::from(k) * 0.5 / below);
        1.0 - 0.5 * std::f64::consts::FRAC_2_SQRT_PI * gauss / tail
    };
    value.copysign(x)
}

impl Math for f64 {
    #[inline(always)]
    fn mul_add<const FMA: bool>(self, b: f64, c: f64) -> f64 {
        if FMA {
            f64::mul_add(self, b, c)
        } else {
            self * b + c
        }
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

//! Definitions of the functions in f64, written for accuracy alone: without cancellation, and by
//! other methods than the code under test where the standard library lacks a function.

use std::f64::consts::{FRAC_1_SQRT_2, FRAC_2_SQRT_PI, LN_2, PI};

/// Value: parameters of the tested functions. None is a power of two, by which multiplication is
/// exact.
pub(super) const LEAKY: f32 = 0.01;
pub(super) const ELU: f32 = 0.7;
pub(super) const SELU: (f32, f32) = (1.673_263_2, 1.050_701);
pub(super) const CELU: f32 = 1.3;
pub(super) const HARD_SIGMOID: (f32, f32) = (0.2, 0.5);
pub(super) const SWISH: f32 = 1.702;
pub(super) const SHRINK: (f32, f32) = (0.6, 0.3);

/// Returns `(n/2)^2` and `exp(-(n/2)^2)` for n from 1, until the exponential is negligible.
fn weights() -> impl Iterator<Item = (f64, f64)> {
    (1..=13).map(|n| {
        let square = 0.25 * f64::from(n * n);
        (square, (-square).exp())
    })
}

/// Computes the complementary error function, with a relative error of a few times 1e-16 for `x <
/// 1` and of about `x^2` times that beyond.
///
/// Uses the trapezoidal rule with step h = 1/2 for its integral representation from 0.5 on
/// (Chiarella and Reichl, "On the evaluation of integrals related to the error function", 1968),
/// whose own error is exp(-(pi/h)^2) = 7e-18, and the series of the error function below.
pub(super) fn erfc(x: f64) -> f64 {
    if x < 0.5 {
        return if x < -0.5 { 2.0 - erfc(-x) } else { 1.0 - erf(x) };
    }
    if x >= 40.0 {
        // Below the least positive number; the formula would give NaN for infinity.
        return 0.0;
    }
    let square = x * x;
    let sum: f64 = weights().map(|(n, weight)| weight / (n + square)).sum();
    let integral = x * (-square).exp() / PI * (0.5 / square + sum);
    // Correction for the poles of the rule, which applies below 2 pi.
    let poles = if x < 2.0 * PI { 2.0 / (4.0 * PI * x).exp_m1() } else { 0.0 };
    integral - poles
}

pub(super) fn erf(x: f64) -> f64 {
    if x.abs() >= 0.5 {
        return (1.0 - erfc(x.abs())).copysign(x);
    }
    // Maclaurin series x - x^3/3 + x^5/10 - ...: the relative error after 15 terms is below 1e-20.
    let (mut power, mut sum) = (x, 0.0);
    for n in 0..15 {
        sum += power / f64::from(2 * n + 1);
        power *= -x * x / f64::from(n + 1);
    }
    FRAC_2_SQRT_PI * sum
}

pub(super) fn sigmoid(x: f64) -> f64 {
    if x < 0.0 { x.exp() / (1.0 + x.exp()) } else { 1.0 / (1.0 + (-x).exp()) }
}

pub(super) fn softplus(x: f64) -> f64 {
    if x > 0.0 { x + (-x).exp().ln_1p() } else { x.exp().ln_1p() }
}

pub(super) fn gelu(x: f64) -> f64 {
    0.5 * x * erfc(-x * FRAC_1_SQRT_2)
}

pub(super) fn gelu_tanh(x: f64) -> f64 {
    // (1 + tanh(u)) / 2 = sigmoid(2 u)
    x * sigmoid(2.0 * (2.0 / PI).sqrt() * (x + 0.044_715 * x * x * x))
}

pub(super) fn mish(x: f64) -> f64 {
    x * softplus(x).tanh()
}

pub(super) fn asinh(x: f64) -> f64 {
    let a = x.abs();
    let value =
        if a > 1e10 { a.ln() + LN_2 } else { (a + a * a / (1.0 + (1.0 + a * a).sqrt())).ln_1p() };
    value.copysign(x)
}

pub(super) fn acosh(x: f64) -> f64 {
    if x < 1.0 {
        return f64::NAN;
    }
    if x > 1e10 {
        return x.ln() + LN_2;
    }
    2.0 * asinh((0.5 * (x - 1.0)).sqrt())
}

pub(super) fn atanh(x: f64) -> f64 {
    0.5 * (x.ln_1p() - (-x).ln_1p())
}

pub(super) fn elu(x: f64, alpha: f32) -> f64 {
    if x < 0.0 { f64::from(alpha) * x.exp_m1() } else { x }
}

pub(super) fn celu(x: f64, alpha: f32) -> f64 {
    let alpha = f64::from(alpha);
    if x < 0.0 { alpha * (x / alpha).exp_m1() } else { x }
}

pub(super) fn shrink(x: f64) -> f64 {
    let (lambda, bias) = (f64::from(SHRINK.0), f64::from(SHRINK.1));
    match x {
        x if x < -lambda => x + bias,
        x if x > lambda => x - bias,
        // NaN, too, gives 0: both comparisons of the definition in the standard are false.
        _ => 0.0,
    }
}

#[test]
fn the_error_functions_agree_with_tables() {
    // Abramowitz and Stegun, tables 7.1 and 7.3.
    for (x, expected) in [(0.5, 0.520_499_877_8), (1.0, 0.842_700_792_9), (1.9, 0.992_790_429_2)] {
        assert!((erf(x) - expected).abs() < 1e-10, "{x}: {}", erf(x));
        assert!((erf(-x) + expected).abs() < 1e-10);
        assert!((erfc(-x) - 1.0 - expected).abs() < 1e-10);
    }
    for (x, expected) in [(2.0, 4.677_734_981_047e-3), (5.0, 1.537_459_794_428e-12)] {
        let off = (erfc(x) / expected - 1.0).abs();
        assert!(off < 1e-11, "{x}: {}", erfc(x));
    }
    // The two methods agree where they meet, and so do both sides of the poles' end.
    for x in [0.5, 2.0 * PI] {
        let step = erfc(x * (1.0 - 1e-15)) / erfc(x * (1.0 + 1e-15)) - 1.0;
        assert!(step.abs() < 1e-12, "{x}: {step}");
    }
}

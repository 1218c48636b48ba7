//! Inverse and hyperbolic functions of f32 and f64.
//!
//! Both types share the reduction of arguments. Polynomials and scalings are in the file of each
//! type, which implements [`Series`]. Arguments are reduced by the identities in Hart, "Computer
//! Approximations" (1968).

use crate::number::{Arith, Math};

/// Parts of functions whose coefficients depend on the type.
pub(super) trait Series: Math {
    /// A quarter circle: the rounded value, and the error of rounding.
    const QUARTER: [Self; 2];
    /// Computes `(atan(t) - t) / t^3` of `z = t^2` up to `tan(π/8)^2`.
    fn atan_tail<const FMA: bool>(z: Self) -> Self;
    /// Computes `(asin(t) - t) / t^3` of `z = t^2` up to 1/4.
    fn asin_tail<const FMA: bool>(z: Self) -> Self;
    /// Computes `(sinh(t) - t) / t^3` of `z = t^2` up to 1.
    fn sinh_tail<const FMA: bool>(z: Self) -> Self;
    /// Computes `exp(x) / 2`, which is infinite only where the hyperbolic sine is.
    fn half_exp<const FMA: bool>(self) -> Self;
}

/// Computes `t + t^3 tail`.
#[inline(always)]
fn add_tail<W: Series, const FMA: bool>(t: W, z: W, tail: W) -> W {
    t.mul(z).mul_add::<FMA>(tail, t)
}

/// Computes the arc tangent of `-1 / a` or `(a - 1) / (a + 1)` for numbers from an eighth of a
/// circle on, so that the polynomial sees at most a sixteenth.
#[inline(always)]
pub(super) fn atan<W: Series, const FMA: bool>(x: W) -> W {
    /// Tangent of 3π/8.
    const FAR: f64 = 2.414_213_562_373_095;
    /// Tangent of π/8.
    const NEAR: f64 = 0.414_213_562_373_095_03;
    let a = Arith::abs(x);
    let (is_far, is_near) = (a > W::from_f64(FAR), a <= W::from_f64(NEAR));
    let half = W::from_f64(0.5);
    let above = if is_far { W::ONE.neg() } else { a.sub(W::ONE) };
    let below = if is_far { a } else { a.add(W::ONE) };
    let t = if is_near { a } else { above }.div(if is_near { W::ONE } else { below });
    let z = t.mul(t);
    let base = if is_far { W::ONE } else { half };
    let base = if is_near { W::ZERO } else { base };
    let [high, low] = W::QUARTER;
    // Rounding a tail and the low part together leaves less than adding one after the other.
    let small = t.mul(z).mul_add::<FMA>(W::atan_tail::<FMA>(z), base.mul(low)).add(t);
    base.mul(high).add(small).copysign(x)
}

/// Computes `(asin(t), is_near)` of the size of `x` up to 1/2, else of the root of half the
/// distance to 1, whose double is the distance to a quarter circle.
#[inline(always)]
fn reduced_asin<W: Series, const FMA: bool>(x: W) -> (W, bool) {
    let a = Arith::abs(x);
    let half = W::from_f64(0.5);
    let is_near = a <= half;
    let rest = W::ONE.sub(a).mul(half);
    let z = if is_near { a.mul(a) } else { rest };
    let t = if is_near { a } else { Math::sqrt(rest) };
    (add_tail::<W, FMA>(t, z, W::asin_tail::<FMA>(z)), is_near)
}

#[inline(always)]
pub(super) fn asin<W: Series, const FMA: bool>(x: W) -> W {
    let (part, is_near) = reduced_asin::<W, FMA>(x);
    let [high, low] = W::QUARTER;
    let far = high.sub(part.add(part).sub(low));
    if is_near { part } else { far }.copysign(x)
}

#[inline(always)]
pub(super) fn acos<W: Series, const FMA: bool>(x: W) -> W {
    let (part, is_near) = reduced_asin::<W, FMA>(x);
    let [high, low] = W::QUARTER;
    let near = high.sub(part.copysign(x).sub(low));
    let double = part.add(part);
    let below = high.add(high).sub(double.sub(low.add(low)));
    let far = if x < W::ZERO { below } else { double };
    if is_near { near } else { far }
}

#[inline(always)]
pub(super) fn sinh<W: Series, const FMA: bool>(x: W) -> W {
    let a = Arith::abs(x);
    let z = a.mul(a);
    let near = add_tail::<W, FMA>(a, z, W::sinh_tail::<FMA>(z));
    let half = a.half_exp::<FMA>();
    let far = half.sub(W::from_f64(0.25).div(half));
    if a <= W::ONE { near } else { far }.copysign(x)
}

#[inline(always)]
pub(super) fn cosh<W: Series, const FMA: bool>(x: W) -> W {
    let half = Arith::abs(x).half_exp::<FMA>();
    half.add(W::from_f64(0.25).div(half))
}

/// Computes `ln(1 + u)`, corrected for the part of `1 + u` that rounding lost (Kahan's form, in
/// Higham, "Accuracy and Stability", 1.14.1).
#[inline(always)]
fn ln_1p<W: Series, const FMA: bool>(u: W) -> W {
    let sum = W::ONE.add(u);
    let log = Math::ln::<FMA>(sum);
    let corrected = log.mul(u.div(sum.sub(W::ONE)));
    let finite = if sum == W::ONE { u } else { corrected };
    if u < W::HIGHEST { finite } else { log }
}

/// Least number whose `asinh` and `acosh` are `ln(2 x)` to less than half an ULP.
const LARGE: f64 = 1e9;

/// Computes `ln(1 + u)` for numbers up to [`LARGE`], else `ln(2 x)`.
#[inline(always)]
fn ln_of_double<W: Series, const FMA: bool>(x: W, u: W) -> W {
    let is_large = x > W::from_f64(LARGE);
    let log = ln_1p::<W, FMA>(if is_large { x.sub(W::ONE) } else { u });
    log.add(if is_large { W::from_f64(std::f64::consts::LN_2) } else { W::ZERO })
}

#[inline(always)]
pub(super) fn asinh<W: Series, const FMA: bool>(x: W) -> W {
    let a = Arith::abs(x);
    let square = a.mul(a);
    let root = Math::sqrt(square.add(W::ONE));
    ln_of_double::<W, FMA>(a, a.add(square.div(root.add(W::ONE)))).copysign(x)
}

#[inline(always)]
pub(super) fn acosh<W: Series, const FMA: bool>(x: W) -> W {
    let above = x.sub(W::ONE);
    let root = Math::sqrt(above.mul(x.add(W::ONE)));
    let log = ln_of_double::<W, FMA>(x, above.add(root));
    if x < W::ONE { W::from_f64(f64::NAN) } else { log }
}

#[inline(always)]
pub(super) fn atanh<W: Series, const FMA: bool>(x: W) -> W {
    let a = Arith::abs(x);
    let ratio = a.add(a).div(W::ONE.sub(a));
    ln_1p::<W, FMA>(ratio).mul(W::from_f64(0.5)).copysign(x)
}

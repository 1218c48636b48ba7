//! Unary operations on one element, as types that loops are generic over.

use sardonyx_simd::number::{Arith, Math};

/// Operation on one element of a float type that computes in itself.
pub trait Map<W: Math>: Copy + Sync {
    /// Computes the operation.
    fn apply<const FMA: bool>(self, x: W) -> W;
}

/// Counts names, for the lengths of arrays in types.
pub const fn count(names: &[&str]) -> usize {
    names.len()
}

/// Declares operations: a name, its parameters (all of the float type), and its value for `x`.
///
/// `Neg |x, FMA| x.neg();` becomes a zero-sized struct whose `apply::<FMA>(x)` is `x.neg()`;
/// `LeakyRelu(alpha) |x, FMA| ..` one with the parameter `alpha`. Each operation must be a type,
/// not a function, to get a loop of its own.
macro_rules! operations {
    ($($name:ident $(($($p:ident),+))? |$x:ident, $fma:ident| $value:expr;)*) => { $(
        #[allow(missing_debug_implementations)] // `derive` does not accept the computed array length.
        pub struct $name<W>(
            pub std::marker::PhantomData<W>,
            pub [W; $crate::operations::count(&[$($(stringify!($p)),+)?])],
        );

        // Not derived, for the same reason.
        impl<W: Copy> Clone for $name<W> {
            fn clone(&self) -> Self {
                *self
            }
        }
        impl<W: Copy> Copy for $name<W> {}

        impl<W: Math> Map<W> for $name<W> {
            #[inline(always)]
            fn apply<const $fma: bool>(self, $x: W) -> W {
                $(let $name(_, [$($p),+]) = self;)?
                $value
            }
        }
    )* };
    (@W $p:ident) => { W };
}

operations! {
    Abs |x, FMA| Arith::abs(x);
    Neg |x, FMA| Arith::neg(x);
    Ceil |x, FMA| Math::ceil(x);
    Floor |x, FMA| Math::floor(x);
    Round |x, FMA| x.round_even();
    Sign |x, FMA| Arith::sign(x);
    Sqrt |x, FMA| Math::sqrt(x);
    Reciprocal |x, FMA| W::ONE.div(x);
    Square |x, FMA| x.mul(x);
    Exp |x, FMA| Math::exp::<FMA>(x);
    Log |x, FMA| Math::ln::<FMA>(x);
    Tanh |x, FMA| Math::tanh::<FMA>(x);
    Sigmoid |x, FMA| Math::sigmoid::<FMA>(x);
    Erf |x, FMA| Math::erf::<FMA>(x);
    Sin |x, FMA| Math::sin::<FMA>(x);
    Cos |x, FMA| Math::cos::<FMA>(x);
    Tan |x, FMA| Math::tan::<FMA>(x);
    Asin |x, FMA| Math::asin::<FMA>(x);
    Acos |x, FMA| Math::acos::<FMA>(x);
    Atan |x, FMA| Math::atan::<FMA>(x);
    Sinh |x, FMA| Math::sinh::<FMA>(x);
    Cosh |x, FMA| Math::cosh::<FMA>(x);
    Asinh |x, FMA| Math::asinh::<FMA>(x);
    Acosh |x, FMA| Math::acosh::<FMA>(x);
    Atanh |x, FMA| Math::atanh::<FMA>(x);
    Relu |x, FMA| Arith::max(x, W::ZERO);
    Softplus |x, FMA| x.softplus::<FMA>();
    Softsign |x, FMA| x.div(W::ONE.add(Arith::abs(x)));
    Silu |x, FMA| silu::<W, FMA>(x, W::ONE);
    Gelu |x, FMA| x.gelu::<FMA>();
    GeluTanh |x, FMA| x.gelu_tanh::<FMA>();
    Mish |x, FMA| {
        // With e = exp(x), tanh(ln(1 + e)) is n / (n + 2) for n = e (e + 2), and 1 from 20 on.
        let e = Math::exp::<FMA>(Arith::min(x, W::from_f64(20.0)));
        let n = e.mul(e.add(W::from_f64(2.0)));
        x.mul(n.div(n.add(W::from_f64(2.0))))
    };
    HardSwish |x, FMA| {
        let gate = x.mul_add::<FMA>(W::from_f64(1.0 / 6.0), W::from_f64(0.5));
        x.mul(clamp(gate, W::ZERO, W::ONE))
    };
    // The operations below return `x` itself on the positive side, so that infinity is never
    // multiplied by zero.
    LeakyRelu(alpha) |x, FMA| if x < W::ZERO { x.mul(alpha) } else { x };
    Elu(alpha) |x, FMA| {
        let negative = alpha.mul(x.expm1::<FMA>());
        if x < W::ZERO { negative } else { x }
    };
    Selu(alpha, gamma) |x, FMA| {
        let negative = alpha.mul(x.expm1::<FMA>());
        gamma.mul(if x < W::ZERO { negative } else { x })
    };
    Celu(alpha) |x, FMA| {
        let negative = alpha.mul(x.div(alpha).expm1::<FMA>());
        if x < W::ZERO { negative } else { x }
    };
    HardSigmoid(alpha, beta) |x, FMA| clamp(x.mul_add::<FMA>(alpha, beta), W::ZERO, W::ONE);
    Swish(alpha) |x, FMA| silu::<W, FMA>(x, alpha);
    ThresholdedRelu(alpha) |x, FMA| if x > alpha { x } else { W::ZERO };
    Shrink(lambda, bias) |x, FMA| {
        let low = if x < lambda.neg() { x.add(bias) } else { W::ZERO };
        if x > lambda { x.sub(bias) } else { low }
    };
}

/// Computes `x * sigmoid(alpha x)`.
#[inline(always)]
fn silu<W: Math, const FMA: bool>(x: W, alpha: W) -> W {
    x.mul(Math::sigmoid::<FMA>(x.mul(alpha)))
}

/// Clamps `x` to `low..=high`; NaN stays.
#[inline(always)]
pub fn clamp<W: PartialOrd + Copy>(x: W, low: W, high: W) -> W {
    let x = if x < low { low } else { x };
    if x > high { high } else { x }
}

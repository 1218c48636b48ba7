//! Elementary functions on f32 and f64, and how loops over them are compiled per instruction set.
//!
//! The one idea: a function is *scalar and branch-free* (integer arithmetic on the bits,
//! polynomials, selects), so the compiler vectorises any loop around it. [`Level::run`] compiles
//! such a loop three times: for AVX-512, for AVX2 with FMA, and for what the target guarantees. An
//! element gives the same bits wherever it lies in a buffer, because the vector body and the scalar
//! tail of a loop are the same arithmetic.
//!
//! How far results may be from the exact ones, over all numbers (tests in
//! `vecmath/tests/accuracy.rs` read this table). A bound holds in units in the last place (ULP)
//! *or* in the column beside it: absolutely, or as a part of the argument x. 0.5 ULP is the float
//! nearest to what f64 gives. For f64 the reference is the standard library, so that what comes
//! from there directly (0.5) is as good as the platform's C library, usually to 1 ULP.
//!
//! | function | f32: ULP | or | f64: ULP | or |
//! | --- | --- | --- | --- | --- |
//! | Sqrt, Reciprocal, Square, LeakyRelu, Shrink | 0.5 | | 0.5 | |
//! | Exp | 1.5 | | 0.5 | |
//! | Log | 1 | | 0.5 | |
//! | Sin, Cos | 2 | 1e-14 x | 0.5 | |
//! | Tan, Asin, Acos, Atan, Sinh, Cosh | 0.5 | | 0.5 | |
//! | Tanh | 3 | | 0.5 | |
//! | Asinh, Acosh, Atanh | 0.5 | | 3 | |
//! | expm1 | 2 | | | |
//! | Erf | 1.5 | | 7 | |
//! | Sigmoid | 2.5 | | 2 | |
//! | Softplus | 3 | | 2 | |
//! | Softsign | 1.5 | | 1.5 | |
//! | Silu | 3.5 | 1e-43 | 2 | 1e-320 |
//! | Mish | 5 | 1e-43 | 3 | 1e-320 |
//! | Swish | 4 | 2e-8 x | 4 | 1e-16 x |
//! | Gelu | 2 | 6e-8 x | 4 | 3e-16 x |
//! | GeluTanh | 4 | 1e-7 x | 4 | 2e-16 x |
//! | HardSwish | 2 | 6e-8 x | 2 | 2e-16 x |
//! | HardSigmoid | 1 | 6e-8 | 1 | 2e-16 |
//! | Elu, Selu, Celu | 2.5 | | 3 | |
//! | Pow | 1.5 | | 1.5 | |
//!
//! Elu and its relatives, LeakyRelu and the like are as far off with any parameters of their own
//! type; Swish with those up to about 2. A parameter is an f32, also for f64. Pow takes the C
//! library, except for exponents 2, 3, 0.5 and -1. f16 and bf16 compute in f32 and round once more.

mod double;
mod single;

#[cfg(test)]
mod tests;

#[cfg(test)]
pub(crate) use double::erf as erf_f64;
pub(crate) use double::{acosh, asinh, atanh};
pub(crate) use single::{MAX_REDUCED, cos_reduced, sin_reduced};

use crate::Isa;

/// A loop to be compiled per instruction set. `run` must be `inline(always)`, as must all it calls,
/// or it keeps the instruction set of the target. Public only because a hidden method of
/// [`Number`](crate::number::Number) takes it.
pub trait Body {
    type Out;
    /// `FMA`: multiply-add is one instruction here.
    fn run<const FMA: bool>(self) -> Self::Out;
}

/// An instruction set this machine is known to have. Public only because hidden methods of public
/// traits take it.
#[derive(Copy, Clone, Debug)]
pub struct Level(Isa);

impl Level {
    /// # Panics
    ///
    /// If this machine lacks `isa`.
    pub(crate) fn new(isa: Isa) -> Level {
        assert!(isa.is_available(), "this machine has no {isa:?}");
        Level(isa)
    }

    /// Runs `body` compiled for this instruction set.
    #[inline(always)]
    pub(crate) fn run<B: Body>(self, body: B) -> B::Out {
        match self.0 {
            #[cfg(target_arch = "x86_64")]
            // SAFETY: `new` checked that the machine has it.
            Isa::Avx512 => unsafe { avx512(body) },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: as above.
            Isa::Avx2 => unsafe { avx2(body) },
            _ => body.run::<false>(),
        }
    }

    /// As [`Level::run`], without a copy of the code for AVX-512.
    #[inline(always)]
    pub(crate) fn run_avx2<B: Body>(self, body: B) -> B::Out {
        match self.0 {
            #[cfg(target_arch = "x86_64")]
            // SAFETY: `new` checked that the machine has AVX2 or better.
            Isa::Avx512 | Isa::Avx2 => unsafe { avx2(body) },
            _ => body.run::<false>(),
        }
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,bmi2")]
fn avx512<B: Body>(body: B) -> B::Out {
    body.run::<true>()
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
fn avx2<B: Body>(body: B) -> B::Out {
    body.run::<true>()
}

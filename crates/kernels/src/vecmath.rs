//! Elementary functions on f32 and f64, and how loops over them are compiled per instruction set.
//!
//! The one idea: a function is *scalar and branch-free* (integer arithmetic on the bits, polynomials, selects), so the
//! compiler vectorises any loop around it. [`Level::run`] compiles such a loop three times: for AVX-512, for AVX2 with
//! FMA, and for what the target guarantees. An element gives the same bits wherever it lies in a buffer, because the
//! vector body and the scalar tail of a loop are the same arithmetic.
//!
//! Error bounds for f32, against f64, over all finite inputs (tests in `vecmath/tests.rs` measure them):
//!
//! | function | bound |
//! | --- | --- |
//! | exp | 1.5 ULP, subnormal results included |
//! | ln | 1.5 ULP |
//! | expm1, tanh, sigmoid | 3 ULP |
//! | erf | 2 ULP |
//! | softplus | 3 ULP |
//! | sin, cos | 1.5e-7 absolute up to 8192, the C library's beyond |

mod double;
mod single;

#[cfg(test)]
mod tests;

#[cfg(test)]
pub(crate) use double::erf as erf_f64;
pub(crate) use single::{MAX_REDUCED, cos_reduced, sin_reduced};

use crate::Isa;

/// A loop to be compiled per instruction set. `run` must be `inline(always)`, as must all it calls, or it keeps the
/// instruction set of the target. Public only because a hidden method of [`Number`](crate::number::Number) takes it.
pub trait Body {
    type Out;
    /// `FMA`: multiply-add is one instruction here.
    fn run<const FMA: bool>(self) -> Self::Out;
}

/// An instruction set this machine is known to have. Public only because hidden methods of public traits take it.
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

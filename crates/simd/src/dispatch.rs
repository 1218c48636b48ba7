//! From an instruction set to the code that was compiled for it.

use crate::Isa;
use crate::Simd;
#[cfg(target_arch = "x86_64")]
use crate::avx2::Avx2;
#[cfg(target_arch = "x86_64")]
use crate::avx512::Avx512;
#[cfg(target_arch = "aarch64")]
use crate::neon::Neon;
use crate::portable::Portable;

/// A kernel body to be run with some [`Simd`].
pub trait Body {
    type Out;
    /// # Safety
    ///
    /// Must run inside a function that enables `S::ISA`, with whatever the implementing body asks
    /// for beside that.
    unsafe fn run<S: Simd>(self) -> Self::Out;
}

/// A loop that the compiler vectorises for an instruction set. `run` must be `inline(always)`, as
/// must all it calls, or it keeps the instruction set of the target. Public only because a hidden
/// method of [`Number`](crate::number::Number) takes it.
pub trait Loop {
    type Out;
    /// `FMA`: multiply-add is one instruction here.
    fn run<const FMA: bool>(self) -> Self::Out;
}

/// Runs `body` compiled for `isa`.
///
/// # Safety
///
/// The machine must have `isa`, and the body's own demands must hold.
#[inline]
pub unsafe fn dispatch<B: Body>(isa: Isa, body: B) -> B::Out {
    // SAFETY: the caller's promise.
    unsafe { by_isa!(isa, avx512(body), avx2(body), neon(body), body.run::<Portable>()) }
}

#[cfg(target_arch = "x86_64")]
enable!(
    avx512,
    unsafe fn avx512<B: Body>(body: B) -> B::Out {
        // SAFETY: the instructions are enabled here; the rest is the caller's promise.
        unsafe { body.run::<Avx512>() }
    }
);

#[cfg(target_arch = "x86_64")]
enable!(
    avx2,
    unsafe fn avx2<B: Body>(body: B) -> B::Out {
        // SAFETY: the instructions are enabled here; the rest is the caller's promise.
        unsafe { body.run::<Avx2>() }
    }
);

// A function of its own, which `cargo xtask copies` counts: without an attribute that keeps them
// apart, it would be inlined beside portable code.
#[cfg(target_arch = "aarch64")]
enable!(
    neon,
    #[inline(never)]
    unsafe fn neon<B: Body>(body: B) -> B::Out {
        // SAFETY: the caller's promise.
        unsafe { body.run::<Neon>() }
    }
);

/// A loop as a body.
struct Vectorized<L>(L);

impl<L: Loop> Body for Vectorized<L> {
    type Out = L::Out;

    #[inline(always)]
    unsafe fn run<S: Simd>(self) -> L::Out {
        S::run_loop(self.0)
    }
}

/// An instruction set this machine is known to have. Public only because hidden methods of public
/// traits take it.
#[derive(Copy, Clone, Debug)]
pub struct Level(Isa);

impl Level {
    /// # Panics
    ///
    /// If this machine lacks `isa`.
    pub fn new(isa: Isa) -> Level {
        check_isa(isa);
        Level(isa)
    }

    /// Runs `body` compiled for this instruction set.
    #[inline(always)]
    pub fn run<L: Loop>(self, body: L) -> L::Out {
        // SAFETY: `new` checked that the machine has it, and loops demand no more.
        unsafe { dispatch(self.0, Vectorized(body)) }
    }

    /// Runs a body over vectors, compiled for this instruction set.
    ///
    /// # Safety
    ///
    /// The body's own demands must hold.
    #[inline(always)]
    pub unsafe fn run_body<B: Body>(self, body: B) -> B::Out {
        // SAFETY: `new` checked that the machine has it; the rest is the caller's promise.
        unsafe { dispatch(self.0, body) }
    }

    /// As [`Level::run`], without a copy of the code for AVX-512.
    #[inline(always)]
    pub fn run_avx2<L: Loop>(self, body: L) -> L::Out {
        let body = Vectorized(body);
        // SAFETY: `new` checked that the machine has `self`, and so all below it.
        unsafe { by_isa!(self.0, avx2(body), avx2(body), neon(body), body.run::<Portable>()) }
    }
}

/// Panics unless this machine has `isa`; the gate of every safe entry point that takes one.
pub fn check_isa(isa: Isa) {
    assert!(isa.is_available(), "this machine has no {isa:?}");
}

//! Selection of the code that was compiled for an instruction set.

use crate::Isa;
use crate::Simd;
#[cfg(target_arch = "x86_64")]
use crate::avx2::Avx2;
#[cfg(target_arch = "x86_64")]
use crate::avx512::Avx512;
#[cfg(target_arch = "aarch64")]
use crate::neon::Neon;
use crate::portable::Portable;

/// A kernel body that is generic over [`Simd`].
pub trait Body {
    type Out;
    /// Runs the body with the vectors of `S`.
    ///
    /// # Safety
    ///
    /// Must run inside a function that enables `S::ISA`, and the demands of the implementing body
    /// must hold.
    unsafe fn run<S: Simd>(self) -> Self::Out;
}

/// A loop that the compiler vectorizes for an instruction set. `run` and all functions it calls
/// must be `inline(always)`; otherwise they are compiled for the instruction set of the target.
/// Public only because a hidden method of [`Number`](crate::number::Number) takes it.
pub trait Loop {
    type Out;
    /// Runs the loop. `FMA` is true if multiply-add is one instruction.
    fn run<const FMA: bool>(self) -> Self::Out;
}

/// Runs `body` compiled for `isa`.
///
/// # Safety
///
/// The machine must have `isa`, and the body's own demands must hold.
#[inline]
pub unsafe fn dispatch<B: Body>(isa: Isa, body: B) -> B::Out {
    // SAFETY: the caller has checked that the machine has `isa`, and upholds the body's demands.
    unsafe { by_isa!(isa, avx512(body), avx2(body), neon(body), body.run::<Portable>()) }
}

#[cfg(target_arch = "x86_64")]
enable!(
    avx512,
    unsafe fn avx512<B: Body>(body: B) -> B::Out {
        // SAFETY: the instructions are enabled here; the caller upholds the body's demands.
        unsafe { body.run::<Avx512>() }
    }
);

#[cfg(target_arch = "x86_64")]
enable!(
    avx2,
    unsafe fn avx2<B: Body>(body: B) -> B::Out {
        // SAFETY: the instructions are enabled here; the caller upholds the body's demands.
        unsafe { body.run::<Avx2>() }
    }
);

// A function of its own, which `cargo xtask copies` counts. Without an attribute that separates
// them, it would be inlined beside portable code.
#[cfg(target_arch = "aarch64")]
enable!(
    neon,
    #[inline(never)]
    unsafe fn neon<B: Body>(body: B) -> B::Out {
        // SAFETY: all processors of the target have NEON; the caller upholds the body's demands.
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

/// An instruction set that this machine is known to have. Public only because hidden methods of
/// public traits take it.
#[derive(Copy, Clone, Debug)]
pub struct Level(Isa);

impl Level {
    /// Checks that this machine has `isa`.
    ///
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
        // SAFETY: `new` checked that the machine has the set, and a loop has no other demands.
        unsafe { dispatch(self.0, Vectorized(body)) }
    }

    /// Runs a body over vectors, compiled for this instruction set.
    ///
    /// # Safety
    ///
    /// The body's own demands must hold.
    #[inline(always)]
    pub unsafe fn run_body<B: Body>(self, body: B) -> B::Out {
        // SAFETY: `new` checked that the machine has the set; the caller upholds the body's
        // demands.
        unsafe { dispatch(self.0, body) }
    }

    /// Runs `body` like [`Level::run`], but compiled for AVX2 where the machine has AVX-512, which
    /// saves a copy of the code.
    #[inline(always)]
    pub fn run_avx2<L: Loop>(self, body: L) -> L::Out {
        let body = Vectorized(body);
        // SAFETY: `new` checked that the machine has the set, and so all sets below it.
        unsafe { by_isa!(self.0, avx2(body), avx2(body), neon(body), body.run::<Portable>()) }
    }
}

/// Panics unless this machine has `isa`. Every safe entry point that takes an instruction set calls
/// it.
pub fn check_isa(isa: Isa) {
    assert!(isa.is_available(), "this machine has no {isa:?}");
}

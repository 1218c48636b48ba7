//! The microkernel of direct convolution: neighbouring output pixels by vectors of channels, in
//! registers, over all runs of the kernel.
//!
//! The narrow operand is the input in place: the values that one weight meets for neighbouring
//! outputs are `a_rs` floats apart. The wide operand is weights, one vector of output channels for
//! each step, vector after vector.
//!
//! A step is a float of both operands, or two neighbouring channels rounded to bfloat16 in a word
//! of the size of a float.

use std::mem::MaybeUninit;

use super::Operands;
use crate::gemm::tile::{Floats, Mac};
use crate::gemm::{TileEnd, TileEpilogue, finish};
use sardonyx_simd::buffer::AnyBits;
use sardonyx_simd::{Body, Rows, Simd, dispatch, opaque};

/// Steps whose inputs are adjacent in memory.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(super) struct Run {
    /// Offset of the run's first input from the first input of the window, in floats.
    pub(super) offset: usize,
    /// Twice the number of steps, plus one if a chain of sums ends with the run.
    pub(super) code: usize,
}

// SAFETY: two words without padding.
unsafe impl AnyBits for Run {}

impl Run {
    pub(super) fn new(offset: usize, steps: usize, ends_chain: bool) -> Run {
        Run { offset, code: 2 * steps + usize::from(ends_chain) }
    }

    #[inline(always)]
    pub(super) fn steps(self) -> usize {
        self.code / 2
    }

    #[inline(always)]
    pub(super) fn ends_chain(self) -> bool {
        self.code % 2 == 1
    }
}

/// Work of one tile. Pointers are valid for the sizes given.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tile<'a> {
    pub(super) runs: &'a [Run],
    /// First input of the window of the first output.
    pub(super) a: *const f32,
    /// Stride between the windows of neighbouring outputs, in floats.
    pub(super) a_rs: usize,
    /// Weights of the first vector, one vector per step, over all runs.
    pub(super) b: *const f32,
    /// Stride between the weights of neighbouring vectors, in floats.
    pub(super) b_vs: usize,
    /// Data to prefetch into the second-level cache meanwhile.
    pub(super) ahead: [Ahead; 2],
    /// Outputs and their epilogue. Rows are pixels, columns channels, more than `V - 1` vectors of
    /// them and at most `V`.
    pub(super) end: TileEnd,
    /// Whether to prefetch the lines of the output, and of the residual, first.
    pub(super) fetches: bool,
}

/// Data that a tile prefetches step by step.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ahead {
    pub(super) at: *const f32,
    /// Floats prefetched in each step.
    pub(super) step: usize,
}

impl Ahead {
    /// Returns a prefetch of the line `now`, which is in use and costs nothing.
    pub(super) fn none(now: *const f32) -> Ahead {
        Ahead { at: now, step: 0 }
    }
}

/// Function that computes one tile of a fixed size.
pub(super) type TileFn = unsafe fn(&Tile<'_>);

/// Geometry: most pixels of a tile.
const MAX_PIXELS: usize = 16;
/// Geometry: most vectors of output channels in a tile.
pub(super) const MAX_VECTORS: usize = 4;

/// Tile functions of an instruction set, for 1, 2, 3 … pixels, by the number of vectors less one.
pub(super) type TileTable = [&'static [TileFn]; MAX_VECTORS];

/// Geometry: distance in steps at which weights are prefetched.
const PREFETCH_STEPS: usize = 8;
/// Geometry: most pixels of a tile that waits for its weights to come from memory.
const FEW_PIXELS: usize = 4;
/// Geometry: distance in steps at which weights are prefetched from memory.
const STREAM_STEPS: usize = 64;

/// Computes a tile of `R` pixels and `V` vectors.
///
/// # Safety
///
/// The demands of [`Simd`] and [`Mac`] must hold, and the pointers of `t` must be valid for its
/// sizes.
#[inline(always)]
pub(super) unsafe fn tile_body<S: Simd, M: Mac<S>, const R: usize, const V: usize>(t: &Tile<'_>) {
    // SAFETY: the caller has a valid tile; every access is inside its sizes.
    unsafe {
        const { assert!(R <= MAX_PIXELS) };
        let zero = S::splat(0.0);
        if t.fetches {
            let TileEnd { c, ldc, epilogue, .. } = t.end;
            let e = if epilogue.is_null() { &TileEpilogue::PLAIN } else { &*epilogue };
            for r in 0..R {
                for v in 0..V {
                    S::prefetch_write(c.wrapping_add(r * ldc + v * S::LANES));
                    if !e.residual.is_null() {
                        let at = r * e.residual_rs + v * S::LANES;
                        S::prefetch(e.residual.wrapping_add(at));
                    }
                }
            }
        }
        let mut acc = [[zero; V]; R];
        // Sum of the chains that have ended. Uninitialized until the first one ends.
        let mut total = [[MaybeUninit::<S::V>::uninit(); V]; R];
        let mut has_ended = false;
        let mut b = t.b;
        let fetches = S::FETCHES || R <= FEW_PIXELS;
        let steps_ahead = if R <= FEW_PIXELS { STREAM_STEPS } else { PREFETCH_STEPS };
        let [mut first, mut second] = [t.ahead[0].at, t.ahead[1].at];
        let [first_step, second_step] = [t.ahead[0].step, t.ahead[1].step];
        for run in t.runs {
            let mut rows = Rows::<R>::new(t.a.add(run.offset), t.a_rs);
            // One step at a time: for two, the compiler would read both inputs of a pixel together
            // and keep them in memory.
            for _ in 0..run.steps() {
                let mut wide = [zero; V];
                for (v, x) in wide.iter_mut().enumerate() {
                    let p = b.add(v * t.b_vs);
                    if fetches {
                        S::prefetch(p.wrapping_add(steps_ahead * S::LANES));
                    }
                    *x = S::load(p);
                }
                // Not a loop, as the compiler does not unroll one of so many rows.
                macro_rules! rows {
                    ($($r:literal)*) => {$(
                        if $r < R {
                            let narrow = S::splat(*rows.row::<$r>());
                            for (x, &w) in acc[if $r < R { $r } else { 0 }].iter_mut().zip(&wide) {
                                *x = M::mac(narrow, w, *x);
                            }
                        }
                    )*};
                }
                rows!(0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15);
                S::prefetch_far(first);
                S::prefetch_far(second);
                first = first.wrapping_add(first_step);
                second = second.wrapping_add(second_step);
                rows.step(1);
                b = opaque(b.wrapping_add(S::LANES));
            }
            if run.ends_chain() {
                for (row, all) in acc.iter_mut().zip(&mut total) {
                    for (x, all) in row.iter_mut().zip(all) {
                        let sum = if has_ended { S::add(all.assume_init(), *x) } else { *x };
                        all.write(sum);
                        *x = zero;
                    }
                }
                has_ended = true;
            }
        }
        // Most convolutions with a short sum have one chain.
        if has_ended {
            for (row, all) in acc.iter_mut().zip(&total) {
                for (x, all) in row.iter_mut().zip(all) {
                    *x = S::add(all.assume_init(), *x);
                }
            }
        }
        finish::<S, R, V>(&t.end, acc);
    }
}

/// Defines the tile functions of one instruction set and multiply-add, for the given pixel counts
/// by number of vectors.
macro_rules! conv_tiles {
    // NEON has multiply-adds by a lane.
    ($name:ident, Neon, $mac:ty, $set:ident, $($counts:tt)*) => {
        conv_tiles!(@table $name, $set, [super::super::by_lane::tile_by_lanes::<$mac, R, V>], $($counts)*);
    };
    ($name:ident, $simd:ty, $mac:ty, $set:ident, $($counts:tt)*) => {
        conv_tiles!(@table $name, $set, [super::tile_body::<$simd, $mac, R, V>], $($counts)*);
    };
    (@table $name:ident, $set:ident, [$($body:tt)*], [$($one:literal)*] [$($two:literal)*] [$($three:literal)*] [$($four:literal)*]) => {
        pub(super) static $name: super::TileTable = {
            enable!(
                $set,
                unsafe fn tile<const R: usize, const V: usize>(t: &super::Tile<'_>) {
                    // SAFETY: the instructions are enabled here; the caller has a valid tile.
                    unsafe { $($body)*(t) }
                }
            );
            [
                &[$(tile::<$one, 1>),*],
                &[$(tile::<$two, 2>),*],
                &[$(tile::<$three, 3>),*],
                &[$(tile::<$four, 4>),*],
            ]
        };
    };
}

/// At most eight registers of four lanes are sums, as the baseline of x86 has 16 registers.
mod portable {
    use crate::gemm::tile::Floats;
    use sardonyx_simd::portable::Portable;

    conv_tiles!(TILES, Portable, Floats, portable, [1 2 3 4] [1 2 3 4] [1 2] [1 2]);
}

/// Sums, four steps of all vectors and inputs of two pixels fit 32 registers.
#[cfg(target_arch = "aarch64")]
mod neon {
    use crate::gemm::tile::Floats;

    conv_tiles!(
        TILES, Neon, Floats, neon,
        [1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16] [1 2 3 4 5 6 7 8 9 10] [1 2 3 4 5] [1 2 3]
    );
}

/// 12 of 16 registers are sums.
#[cfg(target_arch = "x86_64")]
mod avx2 {
    use crate::gemm::tile::Floats;
    use sardonyx_simd::avx2::Avx2;

    conv_tiles!(
        TILES, Avx2, Floats, avx2,
        [1 2 3 4 5 6 7 8 9 10 11 12] [1 2 3 4 5 6] [1 2 3 4] [1 2 3]
    );
}

/// At most 28 of 32 registers are sums.
#[cfg(target_arch = "x86_64")]
mod avx512 {
    use crate::gemm::bf16::tiles::Pairs;
    use crate::gemm::tile::Floats;
    use sardonyx_simd::avx512::Avx512;

    conv_tiles!(
        TILES, Avx512, Floats, avx512,
        [1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16]
        [1 2 3 4 5 6 7 8 9 10 11 12 13 14]
        [1 2 3 4 5 6 7 8 9]
        [1 2 3 4 5 6]
    );
    conv_tiles!(
        PAIRS, Avx512, Pairs, avx512_bf16,
        [1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16]
        [1 2 3 4 5 6 7 8 9 10 11 12 13 14]
        [1 2 3 4 5 6 7 8 9]
        [1 2 3 4 5 6]
    );

    enable!(
        avx512_bf16,
        /// Runs a loop that writes pairs.
        ///
        /// # Safety
        ///
        /// The demands of [`write_operands`](super::write_operands) must hold.
        pub(super) unsafe fn write_pairs<W: super::WriteOperands>(body: W) {
            // SAFETY: the instructions are enabled here; the caller upholds the loop's demands.
            unsafe { body.write::<Avx512, Pairs>() }
        }
    );
}

/// A loop that writes narrow operands.
pub(super) trait WriteOperands: Sized {
    /// Runs the loop.
    ///
    /// # Safety
    ///
    /// The demands of [`Body::run`] and [`Mac`] must hold.
    unsafe fn write<S: Simd, M: Mac<S>>(self);
}

/// Runs a loop on an instruction set, for the operands that its [`tiles`] multiply.
///
/// # Safety
///
/// The demands of [`dispatch`] must hold.
pub(super) unsafe fn write_operands(
    isa: sardonyx_simd::Isa,
    operands: Operands,
    body: impl WriteOperands,
) {
    struct Floating<W>(W);

    impl<W: WriteOperands> Body for Floating<W> {
        type Out = ();

        #[inline(always)]
        unsafe fn run<S: Simd>(self) {
            // SAFETY: the caller upholds the loop's demands.
            unsafe { self.0.write::<S, Floats>() }
        }
    }

    // SAFETY: the caller upholds the loop's demands; packed weights for pairs exist only where the
    // machine has the instructions.
    unsafe {
        match operands {
            Operands::Exact => dispatch(isa, Floating(body)),
            #[cfg(target_arch = "x86_64")]
            Operands::Rounded | Operands::Tiles => avx512::write_pairs(body),
            #[cfg(not(target_arch = "x86_64"))]
            Operands::Rounded | Operands::Tiles => {
                unreachable!("no machine but x86 multiplies pairs")
            }
        }
    }
}

/// Returns the tile functions of an instruction set. Functions for rounded operands exist where the
/// machine [multiplies pairs](crate::gemm::bf16::is_available). Those of AMX are not among them.
pub(super) fn tiles(isa: sardonyx_simd::Isa, operands: Operands) -> &'static TileTable {
    match operands {
        Operands::Exact => {
            by_isa!(isa, &avx512::TILES, &avx2::TILES, &neon::TILES, &portable::TILES)
        }
        #[cfg(target_arch = "x86_64")]
        Operands::Rounded => &avx512::PAIRS,
        #[cfg(not(target_arch = "x86_64"))]
        Operands::Rounded => unreachable!("no machine but x86 multiplies pairs"),
        Operands::Tiles => unreachable!("convolutions by AMX have no tile functions of vectors"),
    }
}

//! The microkernel of direct convolution on NEON, whose multiply-adds take one lane of an input: a
//! load brings four steps of an output pixel.

use std::arch::aarch64::*;
use std::mem::MaybeUninit;

use super::tile::Tile;
use crate::gemm::by_lane::{InPlace, MacByLane, STEPS, Sums, Vectors};
use crate::gemm::finish;
use sardonyx_simd::Simd;
use sardonyx_simd::neon::Neon;

/// Computes a tile of `R` pixels and `V` vectors like [`tile_body`](super::tile::tile_body).
///
/// # Safety
///
/// The demands of [`Simd`] must hold, and the pointers of `t` must be valid for its sizes.
#[inline(always)]
pub(super) unsafe fn tile_by_lanes<M: MacByLane, const R: usize, const V: usize>(t: &Tile<'_>) {
    // SAFETY: the caller has a valid tile; every access is inside its sizes.
    unsafe {
        let mut acc = Sums::<R, V>::zeros();
        // Sum of the chains that have ended. Uninitialized until the first one ends.
        let mut total = [[MaybeUninit::<float32x4_t>::uninit(); V]; R];
        let mut has_ended = false;
        let mut b = Vectors::new(t.b, t.b_vs).separate();
        for run in t.runs {
            let mut rows = InPlace::<R>::new(t.a.wrapping_add(run.offset), t.a_rs);
            for _ in 0..run.steps() / STEPS {
                acc.add_four_steps::<M>(&rows, b, Neon::LANES);
                rows.advance(STEPS);
                b = b.skip(STEPS * Neon::LANES);
            }
            for _ in 0..run.steps() % STEPS {
                acc.add_step::<M>(&rows, b);
                rows.advance(1);
                b = b.skip(Neon::LANES);
            }
            if run.ends_chain() {
                for (row, all) in acc.0.iter().zip(&mut total) {
                    for (x, all) in row.iter().zip(all) {
                        let sum = if has_ended { vaddq_f32(all.assume_init(), *x) } else { *x };
                        all.write(sum);
                    }
                }
                acc = Sums::zeros();
                has_ended = true;
            }
        }
        let mut acc = acc.0;
        if has_ended {
            for (row, all) in acc.iter_mut().zip(&total) {
                for (x, all) in row.iter_mut().zip(all) {
                    *x = vaddq_f32(all.assume_init(), *x);
                }
            }
        }
        finish::<Neon, R, V>(&t.end, acc);
    }
}

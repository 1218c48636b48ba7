//! The microkernel on NEON, which has multiply-adds by one lane of the narrow operand.
//!
//! A load brings four steps of a row that is read in place, or one step of four packed rows, where
//! other instruction sets broadcast each number: a tile of 10 rows and two vectors takes 18 loads
//! for 80 multiply-adds. Twelve rows would fill the registers with sums and leave room for two
//! steps of a row at a time, which takes 28 loads for 96. Sums add up in the order of
//! [`tile_body`](super::tile::tile_body), so that their bits do not depend on the choice between
//! both.

use std::arch::aarch64::*;
use std::ptr;

use super::halves::{Bf16, F16};
#[cfg(feature = "quantization")]
use super::tile::Shorts;
use super::tile::{
    Ending, Floats, MAX_VECTORS, Mac, Tile, TileEnd, finish, finish_shared, store, tile_body,
};
use sardonyx_simd::neon::Neon;
use sardonyx_simd::{Simd, opaque};

/// A [`Mac`] by one lane of the narrow operand.
pub(crate) trait MacByLane: Mac<Neon> {
    /// Loads a vector of the wide operand in the form that [`MacByLane::mac_by_lane`] takes.
    ///
    /// # Safety
    ///
    /// The conditions of [`Simd::load`] hold.
    #[inline(always)]
    unsafe fn wide_by_lane(p: *const f32) -> float32x4_t {
        // SAFETY: the caller has a vector readable at `p`.
        unsafe { Self::wide(p) }
    }

    /// Adds to `sum` the products of `wide` and a lane of `narrow`.
    ///
    /// # Safety
    ///
    /// The machine must have the instruction.
    #[inline(always)]
    unsafe fn mac_by_lane<const LANE: i32>(
        narrow: float32x4_t,
        wide: float32x4_t,
        sum: float32x4_t,
    ) -> float32x4_t {
        // SAFETY: the target has the instruction.
        unsafe { vfmaq_laneq_f32::<LANE>(sum, wide, narrow) }
    }
}

impl MacByLane for Floats {}
impl MacByLane for F16 {}
impl MacByLane for Bf16 {}

#[cfg(feature = "quantization")]
impl MacByLane for Shorts {
    #[inline(always)]
    unsafe fn wide_by_lane(p: *const f32) -> float32x4_t {
        // SAFETY: the caller has a vector readable at `p`; the target has the instructions.
        unsafe {
            // The first integers of all pairs, then the second ones.
            let pairs = vreinterpretq_s16_f32(<Shorts as Mac<Neon>>::wide(p));
            let (first, second) = (vuzp1q_s16(pairs, pairs), vuzp2q_s16(pairs, pairs));
            vreinterpretq_f32_s16(vcombine_s16(vget_low_s16(first), vget_low_s16(second)))
        }
    }

    #[inline(always)]
    unsafe fn mac_by_lane<const LANE: i32>(
        narrow: float32x4_t,
        wide: float32x4_t,
        sum: float32x4_t,
    ) -> float32x4_t {
        // SAFETY: the target has the instructions.
        unsafe {
            let narrow = vreinterpretq_s16_f32(narrow);
            let wide = vreinterpretq_s16_f32(wide);
            let sum = vreinterpretq_s32_f32(sum);
            macro_rules! add_pair {
                ($first:literal, $second:literal) => {{
                    let sum = vmlal_laneq_s16::<$first>(sum, vget_low_s16(wide), narrow);
                    vmlal_high_laneq_s16::<$second>(sum, wide, narrow)
                }};
            }
            vreinterpretq_f32_s32(match LANE {
                0 => add_pair!(0, 1),
                1 => add_pair!(2, 3),
                2 => add_pair!(4, 5),
                _ => add_pair!(6, 7),
            })
        }
    }
}

/// Calls [`MacByLane::mac_by_lane`] for a lane that is a constant once loops are unrolled.
#[inline(always)]
unsafe fn mac_at<M: MacByLane>(
    lane: usize,
    narrow: float32x4_t,
    wide: float32x4_t,
    sum: float32x4_t,
) -> float32x4_t {
    // SAFETY: the caller runs on a machine with the instruction of `M`.
    unsafe {
        match lane {
            0 => M::mac_by_lane::<0>(narrow, wide, sum),
            1 => M::mac_by_lane::<1>(narrow, wide, sum),
            2 => M::mac_by_lane::<2>(narrow, wide, sum),
            _ => M::mac_by_lane::<3>(narrow, wide, sum),
        }
    }
}

/// Geometry: steps of a row in place in one load.
pub(crate) const STEPS: usize = 4;

/// Runs the body for each row of a tile. Not a loop, as the compiler does not unroll one of so many
/// rows.
macro_rules! each_row {
    ($most:ident, |$row:ident| $body:block) => {
        each_row!(@rows $most, $row, $body, 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15)
    };
    (@rows $most:ident, $row:ident, $body:block, $($r:literal)*) => {$(
        if $r < $most {
            // Rows beyond those of the tile are not reached, but need a valid index.
            let $row = if $r < $most { $r } else { 0 };
            $body
        }
    )*};
}

/// Rows of the narrow operand, read in place.
#[derive(Clone, Copy)]
pub(crate) struct InPlace<const R: usize> {
    rows: [*const f32; R],
    /// Offset of the next step in bytes.
    at: usize,
}

impl<const R: usize> InPlace<R> {
    /// Makes the addresses of rows that are `distance` floats apart.
    #[inline(always)]
    pub(crate) fn new(first: *const f32, distance: usize) -> InPlace<R> {
        let mut rows = [first; R];
        for (r, row) in rows.iter_mut().enumerate() {
            // One register each, instead of sums that are recomputed in each block.
            *row = opaque(first.wrapping_add(r * distance));
        }
        InPlace { rows, at: 0 }
    }

    /// Advances all rows by `floats` floats.
    #[inline(always)]
    pub(crate) fn advance(&mut self, floats: usize) {
        let at = self.at + floats * size_of::<f32>();
        // Hides the offset: the compiler would recompute it from the number of blocks in each
        // block.
        self.at = opaque(ptr::without_provenance(at)).addr();
    }

    #[inline(always)]
    fn row(&self, row: usize) -> *const f32 {
        self.rows[row].wrapping_byte_add(self.at)
    }
}

/// Addresses of the vectors of the wide operand in a step, in the form that [`MacByLane`] reads.
#[derive(Clone, Copy)]
pub(crate) struct Vectors<const V: usize>([*const f32; V]);

impl<const V: usize> Vectors<V> {
    /// Makes the addresses of vectors that are `distance` floats of memory apart.
    #[inline(always)]
    pub(crate) fn new(first: *const f32, distance: usize) -> Vectors<V> {
        let mut vectors = [first; V];
        for (v, vector) in vectors.iter_mut().enumerate() {
            *vector = first.wrapping_add(v * distance);
        }
        Vectors(vectors)
    }

    /// Keeps the compiler from recomputing each pointer from the first.
    #[inline(always)]
    pub(crate) fn separate(mut self) -> Vectors<V> {
        for vector in &mut self.0 {
            *vector = opaque(*vector);
        }
        self
    }

    /// Returns the addresses `floats` floats of memory later.
    #[inline(always)]
    pub(crate) fn skip(mut self, floats: usize) -> Vectors<V> {
        for vector in &mut self.0 {
            *vector = vector.wrapping_add(floats);
        }
        self
    }

    /// Loads the vectors.
    #[inline(always)]
    unsafe fn load<M: MacByLane>(self) -> [float32x4_t; V] {
        // SAFETY: the caller has the vectors readable.
        unsafe {
            let mut wide = [vdupq_n_f32(0.0); V];
            for (x, vector) in wide.iter_mut().zip(self.0) {
                *x = M::wide_by_lane(vector);
            }
            wide
        }
    }
}

/// Sums of a tile of `R` rows and `V` vectors.
pub(crate) struct Sums<const R: usize, const V: usize>(pub(crate) [[float32x4_t; V]; R]);

impl<const R: usize, const V: usize> Sums<R, V> {
    #[inline(always)]
    pub(crate) fn zeros() -> Sums<R, V> {
        // SAFETY: the target has the instruction.
        Sums([[unsafe { vdupq_n_f32(0.0) }; V]; R])
    }

    /// Adds the products of four steps of rows in place, and of vectors, whose steps are `ks`
    /// floats of memory apart.
    ///
    /// # Safety
    ///
    /// The steps must be readable, and the machine must have the instruction.
    #[inline(always)]
    pub(crate) unsafe fn add_four_steps<M: MacByLane>(
        &mut self,
        rows: &InPlace<R>,
        vectors: Vectors<V>,
        ks: usize,
    ) {
        // SAFETY: the caller has four steps readable, and the instruction.
        unsafe {
            let mut wide = [[vdupq_n_f32(0.0); V]; STEPS];
            for (s, wide) in wide.iter_mut().enumerate() {
                *wide = vectors.skip(s * ks).load::<M>();
            }
            each_row!(R, |r| {
                let narrow = vld1q_f32(rows.row(r));
                for (s, wide) in wide.iter().enumerate() {
                    for (x, &w) in self.0[r].iter_mut().zip(wide) {
                        *x = mac_at::<M>(s, narrow, w, *x);
                    }
                }
            });
        }
    }

    /// Adds the products of one step of rows in place.
    ///
    /// # Safety
    ///
    /// The step must be readable, and the machine must have the instruction.
    #[inline(always)]
    pub(crate) unsafe fn add_step<M: MacByLane>(&mut self, rows: &InPlace<R>, vectors: Vectors<V>) {
        // SAFETY: the caller has the step readable, and the instruction.
        unsafe {
            let wide = vectors.load::<M>();
            each_row!(R, |r| {
                let narrow = vld1q_dup_f32(rows.row(r));
                for (x, &w) in self.0[r].iter_mut().zip(&wide) {
                    *x = M::mac_by_lane::<0>(narrow, w, *x);
                }
            });
        }
    }

    /// Adds the products of one step of packed rows, which are adjacent at `a`.
    ///
    /// # Safety
    ///
    /// The step must be readable, and the machine must have the instruction.
    #[inline(always)]
    unsafe fn add_packed_step<M: MacByLane>(&mut self, a: *const f32, vectors: Vectors<V>) {
        // SAFETY: the caller has the step readable, and the instruction; no float beyond the rows
        // is read.
        unsafe {
            let wide = vectors.load::<M>();
            each_row!(R, |r| {
                // Rows after the last whole vector are in a vector that overlaps it, or are fewer
                // than four. The compiler loads each vector once.
                let start = if r < R / 4 * 4 { r / 4 * 4 } else { R.saturating_sub(4) };
                let narrow = Neon::load_m(a.wrapping_add(start), Neon::first(R - start));
                for (x, &w) in self.0[r].iter_mut().zip(&wide) {
                    *x = mac_at::<M>(r - start, narrow, w, *x);
                }
            });
        }
    }
}

/// Computes a tile like [`tile_body`], which still computes strips.
///
/// # Safety
///
/// The demands of [`Simd`] must hold, and the pointers of `t` must be valid for its sizes.
#[inline(always)]
pub(crate) unsafe fn tile_by_lanes<
    M: MacByLane,
    const R: usize,
    const V: usize,
    const UNIT: bool,
>(
    t: &Tile,
) {
    // SAFETY: the caller has a valid tile; every access below is inside its sizes.
    unsafe {
        if V > MAX_VECTORS {
            return tile_body::<Neon, M, R, V, UNIT>(t);
        }
        let mut sums = Sums::<R, V>::zeros();
        // Constant strides are immediate offsets of the loads.
        let width = MAX_VECTORS * Neon::LANES;
        let ks = if M::HALVES { width / 2 } else { width };
        let is_panel = t.b_ks == ks && t.a_ks == if UNIT { width } else { 1 };
        let blocks = if is_panel { t.k / STEPS } else { 0 };
        let mut rows = InPlace::<R>::new(t.a, if UNIT { 1 } else { t.a_rs });
        let (mut a, mut b) = (t.a, t.b);
        for _ in 0..blocks {
            let vectors = Vectors::new(b, ks / MAX_VECTORS);
            if UNIT {
                for s in 0..STEPS {
                    let a = a.wrapping_add(s * width);
                    sums.add_packed_step::<M>(a, vectors.skip(s * ks));
                }
                a = a.wrapping_add(STEPS * width);
            } else {
                sums.add_four_steps::<M>(&rows, vectors, ks);
                rows.advance(STEPS);
            }
            b = b.wrapping_add(STEPS * ks);
        }
        if UNIT {
            rows.advance(blocks * STEPS * t.a_ks);
        }
        for _ in blocks * STEPS..t.k {
            sums.add_step::<M>(&rows, Vectors::new(b, t.b_vs));
            rows.advance(t.a_ks);
            b = b.wrapping_add(t.b_ks);
        }
        let mut sums = sums.0;
        if t.resume {
            for (r, row) in sums.iter_mut().enumerate() {
                for (v, x) in row.iter_mut().enumerate() {
                    let mask = Neon::first(t.n - v * Neon::LANES);
                    let before = Neon::load_m(t.c.add(r * t.ldc + v * Neon::LANES), mask);
                    *x = M::add(*x, before);
                }
            }
        }
        let end = TileEnd { c: t.c, ldc: t.ldc, n: t.n, epilogue: t.epilogue };
        match M::ENDING {
            Ending::Inline => finish::<Neon, R, V>(&end, sums),
            Ending::Shared => finish_shared::<Neon, R, V>(&end, &sums),
            Ending::Plain => store::<Neon, R, V>(&end, &sums),
        }
    }
}

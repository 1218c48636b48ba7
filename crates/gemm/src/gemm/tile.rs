//! The microkernel, which computes one tile of a product in registers.
//!
//! A tile multiplies a few scalars (up to [`Tiles::rows`]) of the *narrow* operand with one or two
//! vectors of the *wide* operand per step of k. The driver chooses which of A and B is narrow; both
//! come from panels of one form. A *strip* is a tile of one row over several panels of the wide
//! operand: the multiply-adds of two sums in two registers would wait for each other, those of
//! eight do not.
//!
//! An output element is one sum whatever the tile shape or the orientation: chains of multiply-adds
//! in order over blocks of k, which depend on k alone, added up in order. So results do not depend
//! on the partition. Chains of limited length also keep the rounding error of long sums small.

use std::cell::UnsafeCell;

use super::epilogue::{Activation, TileEpilogue};
use sardonyx_simd::vecmath::RowPair;
use sardonyx_simd::{Body, Integers, Rows, Simd};

/// Work of one tile. Pointers are valid for the sizes given.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tile {
    /// Number of steps.
    pub(crate) k: usize,
    /// Narrow operand, `R` values per step.
    pub(crate) a: *const f32,
    /// Stride between the values of a step of `a`, in floats.
    pub(crate) a_rs: usize,
    /// Stride between steps of `a`, in floats.
    pub(crate) a_ks: usize,
    /// Wide operand, `V` whole vectors per step, in the form that the tile function reads. Its
    /// strides are in floats of memory.
    pub(crate) b: *const f32,
    /// Stride between the vectors of a step of `b`.
    pub(crate) b_vs: usize,
    /// Stride between steps of `b`.
    pub(crate) b_ks: usize,
    /// Stride between panels of `b`, for strips.
    pub(crate) b_ps: usize,
    /// Data to prefetch into the second-level cache meanwhile, one line per two steps.
    pub(crate) ahead: *const f32,
    /// Distance of the prefetched lines, in floats.
    pub(crate) ahead_step: usize,
    /// Output, `R` rows of `n` values.
    pub(crate) c: *mut f32,
    /// Row stride of `c`, in floats.
    pub(crate) ldc: usize,
    /// Number of columns, more than `V - 1` vectors and at most `V`.
    pub(crate) n: usize,
    /// Whether to add the values in `c`, the sums of earlier k blocks.
    pub(crate) resume: bool,
    /// Epilogue to apply to the sums; null to store them as they are.
    pub(crate) epilogue: *const TileEpilogue,
}

/// Geometry: distance in steps at which both operands are prefetched. The tile reads faster than
/// the second-level cache answers without it: 112 GFLOP/s without, 141 with (Cascade Lake, 11 x 32
/// x 256, both operands in that cache).
const PREFETCH_STEPS: usize = 8;

/// Geometry: most rows of a tile that waits for the wide operand to come from memory, panel after
/// panel in one stream.
const FEW_ROWS: usize = 4;
/// Geometry: distance in steps at which the wide operand is prefetched from memory.
const STREAM_STEPS: usize = 64;
/// Geometry: distance in steps at which strips prefetch. They read several panels at once: 64 steps
/// of all of them are more requests than a core keeps under way, 8 are too few (Xeon with AMX, 1 x
/// 9216 x 4096 from memory).
const STRIP_STEPS: usize = 16;

/// Function that computes one tile of a fixed size.
pub(crate) type TileFn = unsafe fn(&Tile);

/// The tile functions of an instruction set for operands in one form.
#[derive(Debug)]
pub(crate) struct Tiles {
    /// Functions by rows - 1, vectors - 1, and whether the rows of the narrow operand are adjacent
    /// (1) or not (0).
    by_rows: &'static [[[TileFn; 2]; MAX_VECTORS]],
    /// Functions for rows over the panels of [`STRIPS`], and whether the wide operand is prefetched
    /// from memory (1) or lies in a cache (0).
    strips: [[TileFn; 2]; STRIPS.len()],
}

/// Tile functions in a static table.
pub(crate) type TileTable = &'static Tiles;

impl Tiles {
    pub(crate) const fn new(
        by_rows: &'static [[[TileFn; 2]; MAX_VECTORS]],
        strips: [[TileFn; 2]; STRIPS.len()],
    ) -> Tiles {
        Tiles { by_rows, strips }
    }

    /// Returns the most rows of a tile.
    pub(crate) fn rows(&self) -> usize {
        self.by_rows.len()
    }

    /// Returns the function for tiles of this size. `is_unit` means adjacent rows of the narrow
    /// operand.
    pub(crate) fn tile(&self, rows: usize, vectors: usize, is_unit: bool) -> TileFn {
        self.by_rows[rows - 1][vectors - 1][usize::from(is_unit)]
    }

    /// Returns the function for a row over as many panels as fit `vectors` vectors, and the number
    /// of panels; `None` if a tile covers them.
    pub(crate) fn strip(&self, vectors: usize, fetches: bool) -> Option<(TileFn, usize)> {
        let fits = |panels: &usize| panels * MAX_VECTORS <= vectors;
        let index = STRIPS.iter().position(fits)?;
        Some((self.strips[index][usize::from(fetches)], STRIPS[index]))
    }
}

/// Geometry: most vectors of the wide operand in a tile, the width of a panel.
pub(crate) const MAX_VECTORS: usize = 2;

/// Geometry: panels of strips. Sums of eight vectors keep two units for multiply-adds busy, each of
/// which takes four cycles: 77 GFLOP/s in place of 44 (AVX-512), 62 in place of 31 (AVX2) and 33 in
/// place of 25 (portable) for 1 x 1024 x 256.
pub(crate) const STRIPS: [usize; 2] = [4, 2];

/// Place of the code that finishes a tile. Tiles with hot loops have a copy each.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ending {
    /// Code in the tile function, with the sums in registers.
    Inline,
    /// A function that all tiles of one size share and that reads a copy of the sums: 24 stores and
    /// loads beside the 3,000 multiply-adds of a block of 256 steps.
    Shared,
    /// No code: sums are stored as they are.
    Plain,
}

/// Interpretation of the words of panels: the multiply-add of a lane of both operands to a sum.
///
/// Elements and sums are words of 32 bits in the lanes of vectors. An element is a float, a half
/// that is widened, or several steps of k in one word: two bfloat16, two integers of 16 bits, four
/// bytes. Sums are floats, or integers of 32 bits, which have no epilogue.
pub(crate) trait Mac<S: Simd> {
    /// Whether elements have 16 bits, so that two vectors share a cache line.
    const HALVES: bool = false;
    /// Place of the code that finishes tiles.
    const ENDING: Ending = Ending::Inline;

    /// Loads a vector of the wide operand.
    ///
    /// # Safety
    ///
    /// The demands of [`Simd::load`] must hold.
    #[inline(always)]
    unsafe fn wide(p: *const f32) -> S::V {
        // SAFETY: the caller upholds the demands of `Simd::load`.
        unsafe { S::load(p) }
    }

    /// Computes `a * b + c` in each lane.
    ///
    /// # Safety
    ///
    /// The demands of [`Simd`] must hold, on a machine with the instruction.
    #[inline(always)]
    unsafe fn mac(a: S::V, b: S::V, c: S::V) -> S::V {
        // SAFETY: the caller runs on a machine with `S`.
        unsafe { S::fma(a, b, c) }
    }

    /// Writes a vector of floats as elements of the narrow operand, adjacent from element `index`
    /// on.
    ///
    /// # Safety
    ///
    /// The demands of [`Simd::store`] must hold, on a machine with the instructions.
    #[inline(always)]
    unsafe fn put(p: *mut f32, index: usize, v: S::V) {
        // SAFETY: the caller upholds the demands of `Simd::store`.
        unsafe { S::store(p.wrapping_add(index), v) }
    }

    /// Adds two vectors of sums.
    ///
    /// # Safety
    ///
    /// The demands of [`Simd`] must hold.
    #[inline(always)]
    unsafe fn add(a: S::V, b: S::V) -> S::V {
        // SAFETY: the caller runs on a machine with `S`.
        unsafe { S::add(a, b) }
    }
}

/// Panels of floats.
pub(crate) struct Floats;

impl<S: Simd> Mac<S> for Floats {}

/// Panels of pairs of integers of 16 bits, added up as integers of 32 bits.
pub(crate) struct Shorts;

impl<S: Simd> Mac<S> for Shorts {
    const ENDING: Ending = Ending::Plain;

    #[inline(always)]
    unsafe fn mac(a: S::V, b: S::V, c: S::V) -> S::V {
        // SAFETY: the caller runs on a machine with `S`.
        unsafe { S::I32::of_bits(a).dot_pairs(S::I32::of_bits(b), S::I32::of_bits(c)).to_bits() }
    }

    #[inline(always)]
    unsafe fn add(a: S::V, b: S::V) -> S::V {
        // SAFETY: the caller runs on a machine with `S`.
        unsafe { S::I32::of_bits(a).add(S::I32::of_bits(b)).to_bits() }
    }
}

/// Computes a tile of `R` rows and `V` vectors. `UNIT` fixes `a_rs` to 1. In strips, which have one
/// row and more than [`MAX_VECTORS`], it means that the wide operand is prefetched instead.
///
/// # Safety
///
/// The demands of [`Simd`] must hold, and the pointers of `t` must be valid for its sizes.
#[inline(always)]
pub(crate) unsafe fn tile_body<
    S: Simd,
    P: Mac<S>,
    const R: usize,
    const V: usize,
    const UNIT: bool,
>(
    t: &Tile,
) {
    // SAFETY: the caller has a valid tile; every access below is inside its sizes.
    unsafe {
        let zero = S::splat(0.0);
        let mut acc = [[zero; V]; R];
        // No closures around vectors: until inlined, they are functions without the instruction
        // set, and inlining is not guaranteed.
        let mut masks = [S::first(0); V];
        for (v, mask) in masks.iter_mut().enumerate() {
            *mask = S::first(t.n - v * S::LANES);
        }
        let a_rs = if UNIT { 1 } else { t.a_rs };
        let (mut a, mut b) = (t.a, t.b);
        let mut ahead = t.ahead;
        let is_strip = V > MAX_VECTORS;
        let steps_ahead = match R {
            _ if is_strip => STRIP_STEPS * (1 + P::HALVES as usize),
            ..=FEW_ROWS => STREAM_STEPS * (1 + P::HALVES as usize),
            _ => PREFETCH_STEPS,
        };
        let fetches = if is_strip { UNIT } else { S::FETCHES || R <= FEW_ROWS };
        // Rows in place, each of which is read at an address of its own.
        let mut rows = Rows::<R>::new(a, a_rs);
        macro_rules! each_row {
            ($wide:ident, $($r:literal)*) => {$(
                if $r < R {
                    let narrow = S::splat(*rows.row::<$r>());
                    // Rows beyond those of the tile are not reached, but need a valid index.
                    for (x, &w) in acc[if $r < R { $r } else { 0 }].iter_mut().zip(&$wide) {
                        *x = P::mac(narrow, w, *x);
                    }
                }
            )*};
        }
        macro_rules! step {
            () => {
                for v in (0..if fetches { V } else { 0 }).step_by(1 + P::HALVES as usize) {
                    let vector = v / MAX_VECTORS * t.b_ps + v % MAX_VECTORS * t.b_vs;
                    S::prefetch(b.wrapping_add(vector + steps_ahead * t.b_ks));
                }
                // The hardware prefetcher follows rows in place, where a line holds many steps.
                if UNIT && !is_strip && S::FETCHES {
                    S::prefetch(a.wrapping_add(PREFETCH_STEPS * t.a_ks));
                }
                let mut wide = [zero; V];
                for (v, x) in wide.iter_mut().enumerate() {
                    *x = P::wide(b.add(v / MAX_VECTORS * t.b_ps + v % MAX_VECTORS * t.b_vs));
                }
                if UNIT || is_strip {
                    for (r, row) in acc.iter_mut().enumerate() {
                        let narrow = S::splat(*a.add(r * a_rs));
                        for (x, &w) in row.iter_mut().zip(&wide) {
                            *x = P::mac(narrow, w, *x);
                        }
                    }
                } else {
                    each_row!(wide, 0 1 2 3 4 5 6 7 8 9 10 11);
                    rows.step(t.a_ks);
                }
            };
        }
        for _ in 0..t.k / 2 {
            if !is_strip {
                S::prefetch_far(ahead);
                ahead = ahead.wrapping_add(t.ahead_step);
            }
            step!();
            a = a.wrapping_add(t.a_ks);
            b = b.wrapping_add(t.b_ks);
            step!();
            a = a.wrapping_add(t.a_ks);
            b = b.wrapping_add(t.b_ks);
        }
        if t.k % 2 == 1 {
            step!();
        }
        // The loops over `acc` must stay small: the compiler keeps `acc` in registers only if it
        // unrolls them all.
        if t.resume {
            for (r, row) in acc.iter_mut().enumerate() {
                for (v, x) in row.iter_mut().enumerate() {
                    *x = P::add(*x, S::load_m(t.c.add(r * t.ldc + v * S::LANES), masks[v]));
                }
            }
        }
        let end = TileEnd { c: t.c, ldc: t.ldc, n: t.n, epilogue: t.epilogue };
        match P::ENDING {
            Ending::Inline if !is_strip => finish::<S, R, V>(&end, acc),
            Ending::Inline | Ending::Shared => finish_shared::<S, R, V>(&end, &acc),
            Ending::Plain => store::<S, R, V>(&end, &acc),
        }
    }
}

/// Output of a tile, and the epilogue of its sums.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TileEnd {
    /// Output, rows of `n` values.
    pub(crate) c: *mut f32,
    /// Row stride of `c`, in floats.
    pub(crate) ldc: usize,
    /// Number of columns.
    pub(crate) n: usize,
    /// Epilogue to apply to the sums; null to store them as they are.
    pub(crate) epilogue: *const TileEpilogue,
}

/// Applies the epilogue to the sums of a tile and stores them.
///
/// # Safety
///
/// The demands of [`Simd`] must hold. The output has `R` rows of more than `V - 1` vectors and at
/// most `V`, and the epilogue is valid for it.
#[inline(always)]
pub(crate) unsafe fn finish<S: Simd, const R: usize, const V: usize>(
    t: &TileEnd,
    mut acc: [[S::V; V]; R],
) {
    // SAFETY: the caller has an output and an epilogue that are valid for these rows; masks leave
    // out other lanes.
    unsafe {
        let mut masks = [S::first(0); V];
        for (v, mask) in masks.iter_mut().enumerate() {
            *mask = S::first(t.n - v * S::LANES);
        }
        let e = if t.epilogue.is_null() { &TileEpilogue::PLAIN } else { &*t.epilogue };
        if e.alpha != 1.0 || !e.addend.is_null() {
            return finish_in_memory::<S, R, V>(t, e, &acc);
        }
        if !e.row_bias.is_null() {
            for (r, row) in acc.iter_mut().enumerate() {
                let bias = S::splat(*e.row_bias.add(r));
                for x in row.iter_mut() {
                    *x = S::add(*x, bias);
                }
            }
        }
        if !e.col_bias.is_null() {
            for v in 0..V {
                let bias = S::load_m(e.col_bias.add(v * S::LANES), masks[v]);
                for row in acc.iter_mut() {
                    row[v] = S::add(row[v], bias);
                }
            }
        }
        if !e.residual.is_null() {
            for (r, row) in acc.iter_mut().enumerate() {
                for (v, x) in row.iter_mut().enumerate() {
                    let p = e.residual.add(r * e.residual_rs + v * S::LANES);
                    *x = S::add(*x, S::load_m(p, masks[v]));
                }
            }
        }
        match e.activation {
            Activation::None => {}
            Activation::Relu | Activation::Clip(..) => {
                let (lo, hi) = e.limits();
                let (lo, hi) = (S::splat(lo), S::splat(hi));
                for row in &mut acc {
                    for x in row.iter_mut() {
                        *x = S::min(hi, S::max(lo, *x));
                    }
                }
            }
            Activation::HardSwish => {
                let prepared = Activation::HardSwish.prepare::<S>();
                for row in &mut acc {
                    for x in row.iter_mut() {
                        *x = prepared.apply(*x);
                    }
                }
            }
            activation if activation.is_function() => {
                copy_sums::<S, R, V>(&acc);
                return S::call(FinishFunction { tile: t, epilogue: e, size: [R, V] });
            }
            _ => return finish_in_memory::<S, R, V>(t, &e.after_residual(), &acc),
        }
        if !e.factor.is_null() {
            for (r, row) in acc.iter_mut().enumerate() {
                for (v, x) in row.iter_mut().enumerate() {
                    let p = e.factor.add(r * e.factor_rs + v * S::LANES);
                    *x = S::mul(*x, S::load_m(p, masks[v]));
                }
            }
        }
        store::<S, R, V>(t, &acc);
    }
}

/// Stores the sums of a tile as they are.
///
/// # Safety
///
/// The output must be valid like that of [`finish`].
#[inline(always)]
pub(super) unsafe fn store<S: Simd, const R: usize, const V: usize>(
    t: &TileEnd,
    acc: &[[S::V; V]; R],
) {
    // SAFETY: the caller has an output with these rows; masks leave out other lanes.
    unsafe {
        let mut masks = [S::first(0); V];
        for (v, mask) in masks.iter_mut().enumerate() {
            *mask = S::first(t.n - v * S::LANES);
        }
        for (r, row) in acc.iter().enumerate() {
            for (v, &x) in row.iter().enumerate() {
                S::store_m(t.c.add(r * t.ldc + v * S::LANES), masks[v], x);
            }
        }
    }
}

/// Copies the sums of a tile to [`sums_of_thread`], vector after vector.
#[inline(always)]
unsafe fn copy_sums<S: Simd, const R: usize, const V: usize>(acc: &[[S::V; V]; R]) {
    const { assert!(R * V * S::LANES <= MOST_SUMS) };
    let sums = sums_of_thread();
    for (r, row) in acc.iter().enumerate() {
        for (v, &x) in row.iter().enumerate() {
            // SAFETY: the caller runs on a machine with `S`, and the copy has room.
            unsafe { S::store(sums.add((r * V + v) * S::LANES), x) };
        }
    }
}

/// Finishes a tile like [`finish`], in a function that all tiles of one size share.
#[inline(always)]
pub(super) unsafe fn finish_shared<S: Simd, const R: usize, const V: usize>(
    t: &TileEnd,
    acc: &[[S::V; V]; R],
) {
    // SAFETY: the caller upholds the demands of `finish`.
    unsafe {
        if t.epilogue.is_null() {
            return store::<S, R, V>(t, acc);
        }
        copy_sums::<S, R, V>(acc);
        S::call(FinishCopied::<R, V>(t));
    }
}

/// Body that finishes a tile whose sums have been copied.
struct FinishCopied<'a, const R: usize, const V: usize>(&'a TileEnd);

impl<const R: usize, const V: usize> Body for FinishCopied<'_, R, V> {
    type Out = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        // SAFETY: the caller upholds the demands of `finish`; as many sums have been copied.
        unsafe {
            let sums = sums_of_thread();
            let mut acc = [[S::splat(0.0); V]; R];
            for (r, row) in acc.iter_mut().enumerate() {
                for (v, x) in row.iter_mut().enumerate() {
                    *x = S::load(sums.add((r * V + v) * S::LANES));
                }
            }
            finish::<S, R, V>(self.0, acc);
        }
    }
}

/// Finishes a tile whose epilogue takes more than a few instructions per vector. All of it but a
/// function is applied to sums that have been stored in the output.
#[inline(always)]
unsafe fn finish_in_memory<S: Simd, const R: usize, const V: usize>(
    t: &TileEnd,
    e: &TileEpilogue,
    acc: &[[S::V; V]; R],
) {
    // SAFETY: the caller upholds the demands of `finish`.
    unsafe {
        store::<S, R, V>(t, acc);
        S::call(FinishRows { tile: t, epilogue: e, size: [R, V] });
    }
}

/// Body that finishes stored sums row by row. It exists once per instruction set.
struct FinishRows<'a> {
    /// Tile whose output holds the sums.
    tile: &'a TileEnd,
    epilogue: &'a TileEpilogue,
    /// Numbers of rows and of vectors in each.
    size: [usize; 2],
}

impl Body for FinishRows<'_> {
    type Out = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        let FinishRows { tile, epilogue, size } = self;
        let before = epilogue.before_function();
        let is_function = epilogue.activation.is_function();
        let mut sums = sums_of_thread();
        // SAFETY: rows and vectors are inside the tile, whose sums have room in the copy.
        unsafe {
            for r in 0..size[0] {
                let e = before.at(r, 0);
                for col in (0..size[1] * S::LANES).step_by(S::LANES) {
                    let left = tile.n - col;
                    let (p, mask) = (tile.c.add(r * tile.ldc + col), S::first(left));
                    let x = e.finish_linear::<S>(S::load_m(p, mask), col, left);
                    if is_function {
                        S::store(sums, x);
                        sums = sums.add(S::LANES);
                    } else {
                        S::store_m(p, mask, x);
                    }
                }
            }
            if is_function {
                FinishFunction { tile, epilogue, size }.run::<S>();
            }
        }
    }
}

/// Body that applies the function of an epilogue, and the parts after it, to the copied sums of a
/// tile and stores them.
struct FinishFunction<'a> {
    tile: &'a TileEnd,
    epilogue: &'a TileEpilogue,
    /// Numbers of rows and of vectors in each.
    size: [usize; 2],
}

impl Body for FinishFunction<'_> {
    type Out = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        let &TileEnd { c, ldc, n, .. } = self.tile;
        let &TileEpilogue { activation, factor, factor_rs, .. } = self.epilogue;
        let [rows, vectors] = self.size;
        let sums = sums_of_thread();
        // SAFETY: rows and vectors are inside the tile; as many sums have been copied.
        unsafe {
            if factor.is_null() && n == vectors * S::LANES && activation.is_arithmetic::<S>() {
                // Whole vectors go from the copy to the output.
                let places =
                    RowPair { from: sums, to: c, rows, cols: n, from_stride: n, to_stride: ldc };
                return activation.write_function::<S>(&places);
            }
            let all = std::slice::from_raw_parts_mut(sums, rows * vectors * S::LANES);
            activation.apply_function_to::<S>(all);
            for v in 0..vectors {
                let (col, mask) = (v * S::LANES, S::first(n - v * S::LANES));
                for r in 0..rows {
                    let mut x = S::load(sums.add((r * vectors + v) * S::LANES));
                    if !factor.is_null() {
                        x = S::mul(x, S::load_m(factor.add(r * factor_rs + col), mask));
                    }
                    S::store_m(c.add(r * ldc + col), mask, x);
                }
            }
        }
    }
}

/// Geometry: floats of the largest tile.
const MOST_SUMS: usize = 448;

/// Copy of the sums of a tile, vector after vector, so that functions are applied to all of them at
/// once. A row alone is one or two vectors, too few to fill the pipelines, with more loop ends than
/// iterations. The output does not serve as the copy: it is mostly in no cache yet, and stores to
/// it delay all later stores.
#[repr(align(64))]
struct Sums(UnsafeCell<[f32; MOST_SUMS]>);

/// Returns the address of [`Sums`] of this thread. They are not in the frame of a tile: with room
/// for them there, the compiler keeps the sums in memory in the loop over k, too, which made
/// convolutions 3/2 times as slow.
#[inline(always)]
fn sums_of_thread() -> *mut f32 {
    thread_local! {
        static SUMS: Sums = const { Sums(UnsafeCell::new([0.0; MOST_SUMS])) };
    }
    SUMS.with(|sums| sums.0.get().cast())
}

/// Defines the tile functions of one instruction set for the given row counts.
///
/// `tile_table!(FLOATS, Avx2, Floats, avx2, 1 2)` becomes a function `tile::<R, V, UNIT>` with the
/// instructions of `avx2` enabled that calls [`tile_body`], and `static FLOATS` with its eight
/// instances, and those of strips. A generic function cannot replace the macro: the attribute takes
/// a literal, and generic arguments cannot be computed. On the portable set `UNIT` makes no
/// difference worth a copy: nothing is prefetched, and tiles have at most four rows.
macro_rules! tile_table {
    ($name:ident, $simd:ty, $mac:ty, portable, $($rows:literal)*) => {
        tile_table!(
            @table $name, portable, [$crate::gemm::tile::tile_body::<$simd, $mac, R, V, UNIT>],
            false, $($rows)*
        );
    };
    // NEON has multiply-adds by a lane.
    ($name:ident, Neon, $mac:ty, $set:ident, $($rows:literal)*) => {
        tile_table!(
            @table $name, $set, [$crate::gemm::by_lane::tile_by_lanes::<$mac, R, V, UNIT>],
            true, $($rows)*
        );
    };
    ($name:ident, $simd:ty, $mac:ty, $set:ident, $($rows:literal)*) => {
        tile_table!(
            @table $name, $set, [$crate::gemm::tile::tile_body::<$simd, $mac, R, V, UNIT>],
            true, $($rows)*
        );
    };
    (@table $name:ident, $set:ident, [$($body:tt)*], $unit:literal, $($rows:literal)*) => {
        pub(crate) static $name: $crate::gemm::tile::TileTable = {
            enable!(
                $set,
                unsafe fn tile<const R: usize, const V: usize, const UNIT: bool>(
                    t: &$crate::gemm::tile::Tile,
                ) {
                    // SAFETY: the instructions are enabled here; the caller has a valid tile.
                    unsafe { $($body)*(t) }
                }
            );
            let by_rows: &[_] = &[$([
                [tile::<$rows, 1, false> as $crate::gemm::tile::TileFn, tile::<$rows, 1, $unit>],
                [tile::<$rows, 2, false>, tile::<$rows, 2, $unit>],
            ]),*];
            &$crate::gemm::tile::Tiles::new(
                by_rows,
                [
                    [tile::<1, 8, false>, tile::<1, 8, $unit>],
                    [tile::<1, 4, false>, tile::<1, 4, $unit>],
                ],
            )
        };
    };
}

//! Products of few bits with left operands of 8 bits.
//!
//! Each block of a row of A becomes signed bytes and a scale, so that its largest magnitude is 127.
//! Codes become unsigned bytes by a mask, without a conversion, and bytes are multiplied four to a
//! lane. Sums over a block are integers. The contribution of the zero point is subtracted from
//! them, exactly, and the difference times both scales is added to the total. Totals have the same
//! bits on all instruction sets, as multiplying and adding them are two roundings everywhere.
//!
//! - **`VPDPBUSD`** adds four products to a lane of 32 bits.
//! - **`VPMADDUBSW`** adds two products to a lane of 16 bits and saturates, which codes of 4 bits
//!   cannot reach; codes of 8 bits are multiplied as two of 4. A few such sums fit 16 bits before
//!   they are added to those of 32.

use super::super::epilogue::{Epilogue, TileEpilogue};
use super::super::matrix::{MatRef, strided_len};
use super::super::pack::{SendPtr, panel_width};
use super::super::tile::{TileEnd, finish_shared};
use super::{FewBits, MOST_STEPS, lay_out, load_row};
use sardonyx_simd::buffer::with_scratch;
use sardonyx_simd::portable::Portable;
use sardonyx_simd::{Body, Ended, Exec, Integers, Isa, Loop, Operation, Simd, Work};
use sardonyx_simd::{check_isa, dispatch, split_even};

/// Limit: magnitude below which all elements of a block count as zero: 2^-100. The inverse of their
/// scale would overflow.
const LEAST: f32 = f32::from_bits((127 - 100) << 23);
/// The largest magnitude of a signed byte.
const MOST: f32 = 127.0;
/// 1.5 * 2^23: added to a number of a magnitude below 2^22, it leaves the nearest integer, ties to
/// even, in the lowest bits.
const TO_INTEGER: f32 = 12_582_912.0;

/// Returns the bytes of scratch memory that [`gemm_few_bits_in_bytes`] takes for these operands.
pub fn gemm_few_bits_in_bytes_scratch(a: &MatRef<'_>, b: &FewBits) -> usize {
    a.rows().saturating_mul(row_words(b)).saturating_mul(size_of::<f32>())
}

/// Computes C = epilogue(A B) like [`gemm_few_bits`](super::gemm_few_bits), with each block of a
/// row of A rounded to 8 bits. The error of an element of A is at most a 254th of the largest
/// magnitude of its block. Blocks of more than 256 steps are rounded in parts. A row with an
/// element that is not finite has a result of NaN.
///
/// The bits of C are the same for all instruction sets and threads, except for functions of the
/// epilogue.
///
/// # Panics
///
/// If the sizes of the operands, of `c` or of a part of the epilogue do not fit each other, rows of
/// C overlap, B was packed for another instruction set, or this machine does not have it.
pub fn gemm_few_bits_in_bytes(
    exec: &Exec<'_>,
    a: MatRef<'_>,
    b: &FewBits,
    c: &mut [f32],
    ldc: usize,
    epilogue: &Epilogue<'_>,
) -> Result<(), Ended> {
    multiply(exec, a, b, c, ldc, epilogue, Instructions::best(b.isa))
}

/// Computes the product by these instructions.
fn multiply(
    exec: &Exec<'_>,
    a: MatRef<'_>,
    b: &FewBits,
    c: &mut [f32],
    ldc: usize,
    epilogue: &Epilogue<'_>,
    by: Instructions,
) -> Result<(), Ended> {
    let (m, n) = (a.rows(), b.cols);
    check_isa(b.isa);
    assert_eq!(b.isa, exec.isa, "instruction set of the packed B");
    assert_eq!(a.cols(), b.depth, "depth of A and B");
    assert!(ldc >= n || m <= 1, "rows of C overlap: {ldc} < {n}");
    let c_len = strided_len(m, n, ldc, 1);
    assert!(c_len.is_some_and(|len| len <= c.len()), "{m} x {n}, rows {ldc} apart");
    epilogue.check(m, n, c_len.unwrap_or(0));
    if m == 0 || n == 0 {
        return Ok(());
    }
    let c = SendPtr(c.as_mut_ptr());
    with_scratch(m * row_words(b), |rows| {
        round_rows(exec, a, b, rows)?;
        InBytes { b, rows, m, c, ldc, epilogue: epilogue.raw(ldc), by }.run(exec)
    })
}

/// Returns the number of words of a row of A in bytes: its bytes, then a scale for each segment,
/// then a correction for the zero points of each segment.
fn row_words(b: &FewBits) -> usize {
    b.pitch / 4 + 2 * b.segments.len()
}

/// Rounds all rows of A.
fn round_rows(exec: &Exec<'_>, a: MatRef<'_>, b: &FewBits, rows: &mut [f32]) -> Result<(), Ended> {
    let (m, words) = (a.rows(), row_words(b));
    assert_eq!(rows.len(), m * words, "room for {m} rows");
    let rows = SendPtr(rows.as_mut_ptr());
    let work = Work::new(Operation::Element, m.saturating_mul(b.depth)).in_pieces(m);
    let parts = work.cut(exec.pool);
    parts.run(exec.pool, |part| {
        with_scratch(b.pitch, |floats| {
            for i in split_even(m, parts.count, part) {
                lay_out(b, &a, i, floats);
                // SAFETY: rows are disjoint, and each belongs to one part.
                let to =
                    unsafe { std::slice::from_raw_parts_mut(rows.get().add(i * words), words) };
                // SAFETY: the machine has the instruction set of B, which was checked.
                unsafe { dispatch(b.isa, RoundRow { b, floats, to }) };
            }
        });
    })
}

/// Body and loop that round a row of A that is laid out like panels.
struct RoundRow<'a> {
    b: &'a FewBits,
    floats: &'a [f32],
    to: &'a mut [f32],
}

impl Body for RoundRow<'_> {
    type Out = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        S::run_loop(self);
    }
}

impl Loop for RoundRow<'_> {
    type Out = ();

    #[inline(always)]
    fn run<const FMA: bool>(self) {
        let RoundRow { b, floats, to } = self;
        let (words, beside) = to.split_at_mut(b.pitch / 4);
        let (scales, corrections) = beside.split_at_mut(b.segments.len());
        let numbers = scales.iter_mut().zip(corrections);
        for (segment, (scale, correction)) in b.segments.iter().zip(numbers) {
            let places = segment.rows * (32 / b.bits);
            let x = &floats[segment.a_at..][..places];
            // Magnitudes are ordered like their bits, and those of NaN are the largest.
            let magnitudes = x.iter().map(|x| x.to_bits() & (u32::MAX >> 1));
            let most = f32::from_bits(magnitudes.fold(0, u32::max));
            let inverse;
            (*scale, inverse) = if !most.is_finite() {
                (f32::NAN, 0.0)
            } else if most < LEAST {
                (0.0, 0.0)
            } else {
                (most / MOST, MOST / most)
            };
            let mut bytes = [0u8; MOST_STEPS];
            let bytes = &mut bytes[..places];
            for (to, x) in bytes.iter_mut().zip(x) {
                *to = (x * inverse + TO_INTEGER).to_bits() as u8;
            }
            let sum: i32 = bytes.iter().map(|byte| i32::from(byte.cast_signed())).sum();
            *correction = match b.zero {
                Some(zero) => f32::from_bits((-(zero as i32) * sum).cast_unsigned()),
                None => sum as f32,
            };
            spread(b.bits, bytes, &mut words[segment.a_at / 4..][..places / 4]);
        }
    }
}

/// Writes bytes in the order in which masks extract codes from words: a word for each phase of the
/// bits in a byte.
#[inline(always)]
fn spread(bits: usize, bytes: &[u8], words: &mut [f32]) {
    match bits {
        8 => {
            for (word, bytes) in words.iter_mut().zip(bytes.as_chunks::<4>().0) {
                *word = f32::from_bits(u32::from_le_bytes(*bytes));
            }
        }
        4 => {
            for (words, bytes) in words.as_chunks_mut::<2>().0.iter_mut().zip(bytes.as_chunks().0) {
                let all = u64::from_le_bytes(*bytes);
                *words = [all, all >> 8].map(|bytes| f32::from_bits(even_bytes(bytes)));
            }
        }
        _ => {
            for (words, bytes) in
                words.as_chunks_mut::<4>().0.iter_mut().zip(bytes.as_chunks::<16>().0)
            {
                for (phase, word) in words.iter_mut().enumerate() {
                    let some = [0, 4, 8, 12].map(|at| bytes[at + phase]);
                    *word = f32::from_bits(u32::from_le_bytes(some));
                }
            }
        }
    }
}

/// Returns every second byte, from the lowest on.
#[inline(always)]
fn even_bytes(bytes: u64) -> u32 {
    let spaced = bytes & 0x00ff_00ff_00ff_00ff;
    let pairs = (spaced | spaced >> 8) & 0x0000_ffff_0000_ffff;
    (pairs | pairs >> 16) as u32
}

/// Instructions that multiply bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Instructions {
    /// Instructions of an instruction set.
    Plain(Isa),
    /// `VPDPBUSD` of AVX-512.
    #[cfg(target_arch = "x86_64")]
    Quads,
}

impl Instructions {
    /// Returns the fastest instructions of this machine on `isa`.
    fn best(isa: Isa) -> Instructions {
        #[cfg(target_arch = "x86_64")]
        if isa == Isa::Avx512 && is_x86_feature_detected!("avx512vnni") {
            return Instructions::Quads;
        }
        Instructions::Plain(isa)
    }

    #[cfg(test)]
    fn isa(self) -> Isa {
        match self {
            Instructions::Plain(isa) => isa,
            #[cfg(target_arch = "x86_64")]
            Instructions::Quads => Isa::Avx512,
        }
    }

    /// Returns the function for tiles of 1, 2 or 4 rows.
    fn tile(self, bits: usize, rows: usize) -> TileFn {
        match self {
            #[cfg(target_arch = "x86_64")]
            Instructions::Quads => x86::quads(bits, rows),
            #[cfg(target_arch = "x86_64")]
            Instructions::Plain(Isa::Avx512) => x86::shorts_of_avx512(bits, rows),
            #[cfg(target_arch = "x86_64")]
            Instructions::Plain(Isa::Avx2) => x86::shorts_of_avx2(bits, rows),
            Instructions::Plain(_) => portable(bits, rows),
        }
    }
}

/// A product in bytes with checked sizes.
struct InBytes<'a> {
    b: &'a FewBits,
    /// Rows of A, rounded, [`row_words`] apart.
    rows: &'a [f32],
    m: usize,
    c: SendPtr,
    ldc: usize,
    epilogue: TileEpilogue,
    by: Instructions,
}

impl InBytes<'_> {
    /// Computes the product.
    fn run(&self, exec: &Exec<'_>) -> Result<(), Ended> {
        let (b, w) = (self.b, panel_width(self.b.isa));
        let panels = b.cols.div_ceil(w);
        // Rows that stay in the second-level cache meet one panel after the other.
        let kept = (exec.caches.own_floats(1, 4) / row_words(b).max(1)).max(4);
        let blocks = self.m.div_ceil(kept);
        let pieces = panels * blocks;
        let macs = self.m.saturating_mul(b.cols).saturating_mul(b.depth);
        let work = Work::new(Operation::MultiplyAdd, macs).with_bytes(b.bytes()).in_pieces(pieces);
        let parts = work.cut(exec.pool);
        parts.run(exec.pool, |part| {
            for piece in split_even(pieces, parts.count, part) {
                let rows = split_even(self.m, blocks, piece / panels);
                // SAFETY: the machine has the instructions, sizes were checked, and the part owns
                // the columns of this panel in these rows.
                unsafe { self.multiply_panel(piece % panels, rows) };
            }
        })
    }

    /// Multiplies some rows by a panel.
    ///
    /// # Safety
    ///
    /// The machine must have the instructions, and no other thread may use these elements of C.
    unsafe fn multiply_panel(&self, panel: usize, rows: std::ops::Range<usize>) {
        let (b, w) = (self.b, panel_width(self.b.isa));
        let (words, col) = (row_words(b), panel * w);
        let is_plain = self.epilogue.is_plain();
        let mut row = rows.start;
        while row < rows.end {
            let count = match rows.end - row {
                1 => 1,
                2 | 3 => 2,
                _ => 4,
            };
            let epilogue;
            let tile = Tile {
                b,
                panel: b.data.as_ptr().wrapping_add(panel * b.stride),
                a: self.rows.as_ptr().wrapping_add(row * words),
                end: TileEnd {
                    c: self.c.get().wrapping_add(row * self.ldc + col),
                    ldc: self.ldc,
                    n: w.min(b.cols - col),
                    epilogue: if is_plain {
                        std::ptr::null()
                    } else {
                        epilogue = self.epilogue.at(row, col);
                        &epilogue
                    },
                },
            };
            // SAFETY: the caller owns these elements of C; the rows and the panel are valid.
            unsafe { self.by.tile(b.bits, count)(&tile) };
            row += count;
        }
    }
}

/// A tile: some rows of A in bytes, and a panel.
pub(super) struct Tile<'a> {
    b: &'a FewBits,
    panel: *const f32,
    /// Rows of A, [`row_words`] apart.
    a: *const f32,
    end: TileEnd,
}

/// Function that computes one tile.
pub(super) type TileFn = unsafe fn(&Tile<'_>);

/// Multiplication of bytes on an instruction set.
trait Dot<S: Simd> {
    /// Whether products add up in lanes of 16 bits.
    const IN_SHORTS: bool;

    /// Adds to each lane the products of four unsigned bytes, the codes, and four signed bytes.
    ///
    /// # Safety
    ///
    /// The machine must have the instruction, and sums of 16 bits must fit.
    unsafe fn dot(codes: S::I32, a: u32, sums: S::I32) -> S::I32;

    /// Converts integers that floats hold exactly.
    ///
    /// # Safety
    ///
    /// The machine must have the instruction set.
    unsafe fn to_floats(sums: S::I32) -> S::V;
}

/// Returns the number of rows of words whose products fit sums of 16 bits. Codes of 4 bits, or
/// halves of codes of 8, add at most 3,810 in each phase, codes of 2 bits 762.
const fn rows_in_shorts(bits: usize) -> usize {
    match bits {
        4 => 4,
        _ => 8,
    }
}

/// Computes a tile of `R` rows.
///
/// # Safety
///
/// The machine has the instructions of [`Simd`] and `D`. `R` rows of A, the panel and the output
/// must be valid.
#[inline(always)]
unsafe fn multiply_tile<S: Simd, D: Dot<S>, const BITS: usize, const R: usize>(t: &Tile<'_>) {
    let b = t.b;
    let (w, pitch) = (2 * S::LANES, row_words(b));
    let (zeros_at, words_at) = b.offsets();
    // Codes of 8 bits are split into two halves if sums have 16 bits.
    let in_halves = D::IN_SHORTS && BITS == 8;
    // SAFETY: the caller has the instructions and valid rows, panel and output.
    unsafe {
        let (zero, none) = (S::splat(0.0), S::I32::splat(0));
        let mut totals = [[zero; 2]; R];
        let scales = t.a.add(b.pitch / 4);
        let corrections = scales.add(b.segments.len());
        for (index, segment) in b.segments.iter().enumerate() {
            let start = t.panel.add(segment.at);
            let mut words = start.add(words_at);
            let mut a = t.a.add(segment.a_at / 4);
            let mut sums = [[none; 2]; R];
            if b.zero.is_some() {
                for (r, sums) in sums.iter_mut().enumerate() {
                    let correction = (*corrections.add(r * pitch + index)).to_bits();
                    *sums = [S::I32::splat(correction.cast_signed()); 2];
                }
            }
            let mut left = segment.rows;
            while left > 0 {
                let rows = if D::IN_SHORTS { left.min(rows_in_shorts(BITS)) } else { left };
                left -= rows;
                // Sums of 16 bits, and those of the upper halves of codes.
                let (mut low, mut high) = ([[none; 2]; R], [[none; 2]; R]);
                for _ in 0..rows {
                    let all = load_row::<S>(words);
                    macro_rules! each_phase {
                        ($($phase:literal)*) => {$(
                            if $phase < 8 / BITS {
                                for v in 0..2 {
                                    let codes = part_of_bytes::<S>(all[v], BITS, $phase * BITS);
                                    let lower = part_of_bytes::<S>(all[v], 4, 0);
                                    let upper = part_of_bytes::<S>(all[v], 4, 4);
                                    for r in 0..R {
                                        let a = (*a.add(r * pitch + $phase)).to_bits();
                                        if in_halves {
                                            low[r][v] = D::dot(lower, a, low[r][v]);
                                            high[r][v] = D::dot(upper, a, high[r][v]);
                                        } else if D::IN_SHORTS {
                                            low[r][v] = D::dot(codes, a, low[r][v]);
                                        } else {
                                            sums[r][v] = D::dot(codes, a, sums[r][v]);
                                        }
                                    }
                                }
                            }
                        )*};
                    }
                    each_phase!(0 1 2 3);
                    words = words.add(w);
                    a = a.add(8 / BITS);
                }
                if D::IN_SHORTS {
                    let (ones, sixteens) = (S::I32::splat(0x1_0001), S::I32::splat(0x10_0010));
                    for r in 0..R {
                        for v in 0..2 {
                            sums[r][v] = low[r][v].dot_pairs(ones, sums[r][v]);
                            if in_halves {
                                sums[r][v] = high[r][v].dot_pairs(sixteens, sums[r][v]);
                            }
                        }
                    }
                }
            }
            let zeros = b.zeros::<S>(start, zeros_at);
            for v in 0..2 {
                let of_columns = b.scales.load::<S>(start, v * S::LANES);
                for r in 0..R {
                    let mut sum = D::to_floats(sums[r][v]);
                    if b.zero.is_none() {
                        let all = S::splat(*corrections.add(r * pitch + index));
                        sum = S::sub(sum, S::mul(zeros[v], all));
                    }
                    let scale = S::mul(of_columns, S::splat(*scales.add(r * pitch + index)));
                    totals[r][v] = S::add(totals[r][v], S::mul(scale, sum));
                }
            }
        }
        if t.end.n > S::LANES {
            finish_shared::<S, R, 2>(&t.end, &totals);
        } else {
            let mut half = [[zero; 1]; R];
            for (half, total) in half.iter_mut().zip(&totals) {
                half[0] = total[0];
            }
            finish_shared::<S, R, 1>(&t.end, &half);
        }
    }
}

/// Returns `bits` bits of each byte from bit `at` on.
///
/// # Safety
///
/// The machine has the instructions of [`Simd`].
#[inline(always)]
unsafe fn part_of_bytes<S: Simd>(words: S::I32, bits: usize, at: usize) -> S::I32 {
    // SAFETY: the caller runs on a machine with `S`.
    unsafe {
        let words = if at > 0 { words.shift_right(at as u32) } else { words };
        let mask = (0x0101_0101u32 * ((1 << bits) - 1)).cast_signed();
        if bits == 8 { words } else { words.and(S::I32::splat(mask)) }
    }
}

/// Defines the functions for tiles on an instruction set.
macro_rules! byte_tiles {
    ($name:ident, $simd:ty, $dot:ty, $set:ident) => {
        /// Returns the function for tiles of `rows` rows with codes of `bits` bits.
        pub(super) fn $name(bits: usize, rows: usize) -> TileFn {
            enable!(
                $set,
                unsafe fn tile<const BITS: usize, const R: usize>(t: &Tile<'_>) {
                    // SAFETY: the instructions are enabled here; the caller has a valid tile.
                    unsafe { multiply_tile::<$simd, $dot, BITS, R>(t) }
                }
            );
            match (bits, rows) {
                (2, 1) => tile::<2, 1>,
                (2, 2) => tile::<2, 2>,
                (2, _) => tile::<2, 4>,
                (4, 1) => tile::<4, 1>,
                (4, 2) => tile::<4, 2>,
                (4, _) => tile::<4, 4>,
                (_, 1) => tile::<8, 1>,
                (_, 2) => tile::<8, 2>,
                (..) => tile::<8, 4>,
            }
        }
    };
}

/// Returns the even and the odd signed bytes of a word, each as a pair of integers of 16 bits.
#[inline(always)]
fn pairs_of(word: u32) -> [i32; 2] {
    let [a, b, c, d] = word.to_le_bytes().map(|byte| i32::from(byte.cast_signed()));
    [[a, c], [b, d]].map(|[low, high]| high << 16 | low & 0xffff)
}

/// Bytes widened to pairs of integers of 16 bits.
struct Pairs;

impl Dot<Portable> for Pairs {
    const IN_SHORTS: bool = false;

    #[inline(always)]
    unsafe fn dot(
        codes: <Portable as Simd>::I32,
        a: u32,
        sums: <Portable as Simd>::I32,
    ) -> <Portable as Simd>::I32 {
        let [even, odd] = pairs_of(a);
        // SAFETY: every machine has the portable instruction set.
        unsafe {
            let mask = Integers::splat(0x00ff_00ff);
            let sums = codes.and(mask).dot_pairs(Integers::splat(even), sums);
            codes.shift_right(8).and(mask).dot_pairs(Integers::splat(odd), sums)
        }
    }

    #[inline(always)]
    unsafe fn to_floats(sums: <Portable as Simd>::I32) -> <Portable as Simd>::V {
        let mut lanes = [0.0; Portable::LANES];
        // SAFETY: every machine has the portable instruction set; a vector has these lanes.
        unsafe {
            Portable::store(lanes.as_mut_ptr(), sums.to_bits());
            let floats = lanes.map(|lane| lane.to_bits().cast_signed() as f32);
            Portable::load(floats.as_ptr())
        }
    }
}

byte_tiles!(portable, Portable, Pairs, portable);

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::*;

    use super::{Dot, Tile, TileFn, multiply_tile};
    use sardonyx_simd::avx2::Avx2;
    use sardonyx_simd::avx512::Avx512;

    /// Four products in one instruction, `VPDPBUSD`.
    struct Quads;

    impl Dot<Avx512> for Quads {
        const IN_SHORTS: bool = false;

        #[inline(always)]
        unsafe fn dot(codes: __m512i, a: u32, sums: __m512i) -> __m512i {
            // SAFETY: the caller's machine has the instruction.
            unsafe { _mm512_dpbusd_epi32(sums, codes, _mm512_set1_epi32(a.cast_signed())) }
        }

        #[inline(always)]
        unsafe fn to_floats(sums: __m512i) -> __m512 {
            // SAFETY: the caller's machine has AVX-512.
            unsafe { _mm512_cvtepi32_ps(sums) }
        }
    }

    /// Two products in one instruction, `VPMADDUBSW`, in sums of 16 bits.
    struct Shorts;

    impl Dot<Avx512> for Shorts {
        const IN_SHORTS: bool = true;

        #[inline(always)]
        unsafe fn dot(codes: __m512i, a: u32, sums: __m512i) -> __m512i {
            // SAFETY: the caller's machine has AVX-512.
            unsafe {
                let a = _mm512_set1_epi32(a.cast_signed());
                _mm512_add_epi16(sums, _mm512_maddubs_epi16(codes, a))
            }
        }

        #[inline(always)]
        unsafe fn to_floats(sums: __m512i) -> __m512 {
            // SAFETY: the caller's machine has AVX-512.
            unsafe { _mm512_cvtepi32_ps(sums) }
        }
    }

    impl Dot<Avx2> for Shorts {
        const IN_SHORTS: bool = true;

        #[inline(always)]
        unsafe fn dot(codes: __m256i, a: u32, sums: __m256i) -> __m256i {
            // SAFETY: the caller's machine has AVX2.
            unsafe {
                let a = _mm256_set1_epi32(a.cast_signed());
                _mm256_add_epi16(sums, _mm256_maddubs_epi16(codes, a))
            }
        }

        #[inline(always)]
        unsafe fn to_floats(sums: __m256i) -> __m256 {
            // SAFETY: the caller's machine has AVX2.
            unsafe { _mm256_cvtepi32_ps(sums) }
        }
    }

    byte_tiles!(quads, Avx512, Quads, avx512_vnni);
    byte_tiles!(shorts_of_avx512, Avx512, Shorts, avx512);
    byte_tiles!(shorts_of_avx2, Avx2, Shorts, avx2);
}

#[cfg(test)]
mod tests {
    use super::super::tests::{Example, ExampleForm, ExampleZeros, forms};
    use super::super::{MOST_STEPS, segment_steps};
    use super::*;
    use crate::gemm::tests::random;
    use crate::gemm::{Activation, Bias};
    use sardonyx_simd::Pool;

    /// Lists the instructions for bytes that this machine has.
    fn all_instructions() -> Vec<Instructions> {
        let sets = Isa::available().iter().copied();
        let mut all: Vec<Instructions> =
            sets.flat_map(|isa| [Instructions::Plain(isa), Instructions::best(isa)]).collect();
        all.dedup();
        all
    }

    fn product(
        threads: usize,
        by: Instructions,
        a: MatRef<'_>,
        b: &FewBits,
        epilogue: &Epilogue<'_>,
    ) -> Vec<u32> {
        let pool = Pool::new(threads);
        let mut c = vec![f32::NAN; a.rows() * b.cols()];
        multiply(&Exec::new(&pool, b.isa), a, b, &mut c, b.cols(), epilogue, by).unwrap();
        c.iter().map(|x| x.to_bits()).collect()
    }

    /// Checks that results have the same bits everywhere and differ from the sum in double
    /// precision by no more than rounding to 8 bits allows.
    #[test]
    fn products_in_bytes_are_within_the_bound() {
        for form in forms() {
            let example = Example::new(form);
            let [depth, cols, block] = form.sizes;
            for rows in [1, 2, 3, 4, 7, 40] {
                let (a, bias) = (random(rows * depth, 3), random(cols, 4));
                let epilogue = Epilogue {
                    bias: Some(Bias::Col(&bias)),
                    activation: Activation::Relu,
                    ..Epilogue::default()
                };
                let a = MatRef::row_major(&a, rows, depth);
                let mut all = all_instructions().into_iter().map(|by| {
                    let b = FewBits::new(by.isa(), &example.matrix()).unwrap();
                    let one = product(1, by, a, &b, &epilogue);
                    for threads in [2, 8] {
                        let found = product(threads, by, a, &b, &epilogue);
                        assert_eq!(found, one, "{form:?} {by:?} {rows} {threads}");
                    }
                    (by, one)
                });
                let (_, found) = all.next().expect("an instruction set");
                for (by, other) in all {
                    assert_eq!(other, found, "{form:?} {by:?} {rows}");
                }
                let steps = segment_steps(block, form.bits).min(MOST_STEPS);
                for (i, j) in (0..rows).flat_map(|i| (0..cols).map(move |j| (i, j))) {
                    let (mut sum, mut magnitude, mut allowed) = (0.0, 0.0, 0.0);
                    for start in (0..depth).step_by(block) {
                        let end = depth.min(start + block);
                        for first in (start..end).step_by(steps) {
                            let (mut most, mut weights) = (0.0f64, 0.0);
                            for place in first..end.min(first + steps) {
                                let step = example.step(place);
                                let (x, y) = (f64::from(a.get(i, step)), example.get(place, j));
                                sum += x * y;
                                magnitude += (x * y).abs();
                                most = most.max(x.abs());
                                weights += y.abs();
                            }
                            allowed += most / 254.0 * weights;
                        }
                    }
                    let want = (sum + f64::from(bias[j])).max(0.0);
                    let found = f64::from(f32::from_bits(found[i * cols + j]));
                    let allowed = allowed + 16.0 * f64::from(f32::EPSILON) * (magnitude + 1.0);
                    assert!(
                        (found - want).abs() <= allowed,
                        "{form:?} {rows}: ({i}, {j}) is {found}, not {want} within {allowed}"
                    );
                }
            }
        }
    }

    /// Checks sums of the largest products, at which sums of 16 bits must not saturate. They are
    /// exact, as A consists of one magnitude.
    #[test]
    fn extremes_are_exact() {
        for bits in [2, 4, 8] {
            let (depth, cols) = (512, 40);
            let most = (1u32 << bits) - 1;
            let codes = vec![0xff; depth * cols * bits / 8];
            let one = [1.0];
            for (zero, signs) in [(0.0, depth), (most as f32, depth), (0.0, 2), (0.0, 100)] {
                let zeros = [zero];
                let once =
                    |numbers| super::super::PerBlock { numbers, block_stride: 0, col_stride: 0 };
                let matrix = super::super::BlockMatrix {
                    codes: sardonyx_elementwise::quantized::Codes {
                        bytes: &codes,
                        bits,
                        signed: false,
                    },
                    depth,
                    cols,
                    step_stride: 1,
                    col_stride: depth,
                    block: 256,
                    scales: once(&one),
                    zeros: once(&zeros),
                    order: &[],
                };
                let a: Vec<f32> = (0..depth)
                    .map(|k| if (k / signs).is_multiple_of(2) { -127.0 } else { 127.0 })
                    .collect();
                let sum: f32 = a.iter().sum();
                let expected = sum * (most as f32 - zero);
                for by in all_instructions() {
                    let b = FewBits::new(by.isa(), &matrix).unwrap();
                    let a = MatRef::row_major(&a, 1, depth);
                    let found = product(1, by, a, &b, &Epilogue::default());
                    let found: Vec<f32> = found.into_iter().map(f32::from_bits).collect();
                    assert_eq!(found, vec![expected; cols], "{bits} {by:?} {zero} {signs}");
                }
            }
        }
    }

    const SMALL: ExampleForm = ExampleForm {
        bits: 4,
        signed: false,
        sizes: [64, 5, 16],
        in_columns: true,
        zeros: ExampleZeros::Each,
        halves: false,
        is_sorted: true,
    };

    /// Checks that only rows with elements that are not finite have results that are not, and that
    /// zeros and the smallest numbers cause no division by zero.
    #[test]
    fn numbers_without_a_scale() {
        let example = Example::new(SMALL);
        let mut a = vec![0.0; 5 * 64];
        a[64 + 3] = f32::NAN;
        a[2 * 64 + 40] = f32::NEG_INFINITY;
        a[3 * 64..4 * 64].fill(1e-40);
        a[4 * 64..].fill(f32::MAX / 1e6);
        for by in all_instructions() {
            let b = FewBits::new(by.isa(), &example.matrix()).unwrap();
            let a = MatRef::row_major(&a, 5, 64);
            let found = product(1, by, a, &b, &Epilogue::default());
            for (at, x) in found.into_iter().map(f32::from_bits).enumerate() {
                match at / 5 {
                    0 | 3 => assert_eq!(x, 0.0, "{by:?} {at}"),
                    1 | 2 => assert!(x.is_nan(), "{by:?} {at}: {x}"),
                    _ => assert!(x.is_finite(), "{by:?} {at}: {x}"),
                }
            }
        }
    }

    /// Checks that bytes are rounded to the nearest, ties to even, and that a block of one
    /// magnitude keeps its elements.
    #[test]
    fn elements_of_a_block_are_multiples_of_its_scale() {
        let form = ExampleForm { sizes: [32, 1, 32], zeros: ExampleZeros::One(0.0), ..SMALL };
        let mut example = Example::new(form);
        example.scales = vec![1.0];
        for (x, rounded) in
            [(0.5, 0.0), (1.5, 2.0), (2.5, 2.0), (-0.5, 0.0), (-63.5, -64.0), (0.501, 1.0)]
        {
            for by in all_instructions() {
                // Only the first code is multiplied by `x`, the second by 127.
                let mut a = [0.0; 32];
                (a[0], a[1]) = (x, 127.0);
                let b = FewBits::new(by.isa(), &example.matrix()).unwrap();
                let a = MatRef::row_major(&a, 1, 32);
                let found = product(1, by, a, &b, &Epilogue::default())[0];
                let want = rounded * example.get(0, 0) + 127.0 * example.get(1, 0);
                assert_eq!(f64::from(f32::from_bits(found)), want, "{by:?} {x}");
            }
        }
    }

    #[test]
    fn nothing_is_multiplied() {
        for (sizes, rows) in [([0, 3, 16], 2), ([16, 0, 16], 2), ([16, 3, 16], 0)] {
            let example = Example::new(ExampleForm { sizes, ..SMALL });
            for by in all_instructions() {
                let b = FewBits::new(by.isa(), &example.matrix()).unwrap();
                let a = vec![1.0; rows * sizes[0]];
                let a = MatRef::row_major(&a, rows, sizes[0]);
                let found = product(1, by, a, &b, &Epilogue::default());
                assert_eq!(found.len(), rows * sizes[1]);
                assert!(sizes[0] > 0 || found.iter().all(|x| *x == 0));
            }
        }
    }
}

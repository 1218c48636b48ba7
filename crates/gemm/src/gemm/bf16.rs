//! Products of operands rounded to bfloat16, two at a time: twice the multiply-adds per
//! instruction.
//!
//! A *pair* of neighbouring steps of k takes the place of one float. Panels of pairs have the form
//! of panels of floats with half as many steps, so the code around the microkernel serves both.
//! Only the multiply-add is another instruction (`VDPBF16PS`), which multiplies both halves and
//! adds them to a float. Operands are rounded to nearest, ties to even; sums are floats. Both
//! operands become pairs during the product: it has so many rows that this costs little, and
//! constants stay in a form that products of few rows read without rounding the left operand. A
//! panel of B is converted in the first-level cache, while the next one is being fetched.

use super::halves::Storage;
use super::pack::{PackSource, Panels, SendPtr, for_each_chunk, panel_width};
use sardonyx_simd::buffer::with_scratch;
use sardonyx_simd::{Ended, Exec, Isa};

/// Whether this machine has the instruction, on that instruction set.
pub(crate) fn is_available(isa: Isa) -> bool {
    #[cfg(target_arch = "x86_64")]
    return isa == Isa::Avx512 && isa.is_available() && is_x86_feature_detected!("avx512bf16");
    // Processors of other architectures have no code for it.
    #[cfg(not(target_arch = "x86_64"))]
    return isa == Isa::Avx512 && isa.is_available();
}

/// Whether this machine multiplies pairs of bfloat16 faster than floats. Processors of Intel are
/// assumed not to: on a Xeon with AMX, the only one measured, the instruction has half the rate of
/// multiply-adds of floats (119 and 239 GFLOP/s).
pub(crate) fn is_faster(isa: Isa) -> bool {
    is_available(isa) && !is_of_intel()
}

/// Whether the vendor of the processor is Intel.
#[cfg(target_arch = "x86_64")]
fn is_of_intel() -> bool {
    static FOUND: std::sync::OnceLock<bool> = std::sync::OnceLock::new();
    *FOUND.get_or_init(|| {
        let vendor = std::arch::x86_64::__cpuid(0);
        let name = [vendor.ebx, vendor.edx, vendor.ecx].map(u32::to_le_bytes);
        name.as_flattened() == b"GenuineIntel"
    })
}

#[cfg(not(target_arch = "x86_64"))]
fn is_of_intel() -> bool {
    false
}

/// Returns the bits of the bfloat16 nearest to `x` in the upper half of a word. NaN stays NaN.
#[inline(always)]
fn round_bits(x: f32) -> u32 {
    let bits = x.to_bits();
    let nearest = bits.wrapping_add(0x7fff + (bits >> 16 & 1)) & 0xffff_0000;
    let nan = bits & 0xffff_0000 | 0x0040_0000;
    if x.is_nan() { nan } else { nearest }
}

/// Makes a pair as the bits of a float, with the earlier step in the lower half.
#[inline(always)]
fn make_pair(first: f32, second: f32) -> f32 {
    f32::from_bits(round_bits(first) >> 16 | round_bits(second))
}

/// Rounds `depth` rows of `width` floats to rows of pairs. The partner of an odd last row is zero.
pub(crate) fn round_to_pairs(depth: usize, width: usize, from: &[f32], to: &mut [f32]) {
    for step in 0..depth.div_ceil(2) {
        let first = &from[2 * step * width..][..width];
        let to = &mut to[step * width..][..width];
        if 2 * step + 1 < depth {
            let second = &from[(2 * step + 1) * width..][..width];
            for ((to, first), second) in to.iter_mut().zip(first).zip(second) {
                *to = make_pair(*first, *second);
            }
        } else {
            for (to, first) in to.iter_mut().zip(first) {
                *to = make_pair(*first, 0.0);
            }
        }
    }
}

/// Writes `steps` steps of a panel in 16 bits to `to` as pairs. The partner of an odd last step is
/// zero.
///
/// # Safety
///
/// The machine must multiply pairs. `steps` rows of the panel must be readable, and half as many
/// rows of floats, rounded up, writable.
#[inline]
pub(super) unsafe fn make_pairs(storage: Storage, panel: *const f32, steps: usize, to: *mut f32) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the caller has the instructions, the rows of the panel and room for the pairs.
    unsafe {
        match storage {
            Storage::F16 => tiles::make_pairs_of_f16(panel.cast(), steps, to),
            Storage::Bf16 => tiles::make_pairs_of_bf16(panel.cast(), steps, to),
            Storage::F32 => unreachable!("floats are not stored in 16 bits"),
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    unreachable!("no machine but x86 multiplies pairs: {storage:?} {panel:?} {steps} {to:?}");
}

/// Rows of floats to round to pairs of neighbouring numbers.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(not(target_arch = "x86_64"), allow(dead_code, reason = "only the instructions read it"))]
pub(crate) struct Rows {
    /// Source, `count` rows of `len` floats, `from_step` apart.
    pub(crate) from: *const f32,
    pub(crate) from_step: usize,
    pub(crate) count: usize,
    pub(crate) len: usize,
    /// Target, as many rows of `words` pairs, `to_step` apart. There are at least as many pairs as
    /// numbers for them; zeros fill the rest.
    pub(crate) to: *mut f32,
    pub(crate) to_step: usize,
    pub(crate) words: usize,
}

impl Rows {
    /// Rounds the rows.
    ///
    /// # Safety
    ///
    /// The machine must multiply pairs, and the rows must be readable and writable.
    #[inline]
    pub(crate) unsafe fn round(&self) {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: the caller has the instructions and valid rows.
        unsafe {
            tiles::round_rows(self);
        }
        #[cfg(not(target_arch = "x86_64"))]
        unreachable!("no machine but x86 multiplies pairs: {self:?}");
    }
}

/// Planes whose pixels are rounded to pairs of neighbouring planes.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(not(target_arch = "x86_64"), allow(dead_code, reason = "only the instructions read it"))]
pub(crate) struct Planes {
    /// Source, the first pixel of `count` planes, `plane` floats apart.
    pub(crate) from: *const f32,
    pub(crate) plane: usize,
    pub(crate) count: usize,
    pub(crate) pixels: usize,
    /// Target, a row of `words` pairs for each pixel, `step` floats apart.
    pub(crate) to: *mut f32,
    pub(crate) step: usize,
    pub(crate) words: usize,
}

impl Planes {
    /// Limit: most planes that [`Planes::round`] takes.
    pub(crate) const MOST: usize = 15;

    /// Rounds the pixels of all planes.
    ///
    /// # Safety
    ///
    /// The machine must multiply pairs, the pixels must be readable and the rows writable.
    #[inline]
    pub(crate) unsafe fn round(&self) {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: the caller has the instructions, readable pixels and writable rows.
        unsafe {
            tiles::round_planes(self);
        }
        #[cfg(not(target_arch = "x86_64"))]
        unreachable!("no machine but x86 multiplies pairs: {self:?}");
    }
}

/// Sums: fewest rows for which operands are rounded. Fewer rows take about as long with widened
/// halves, which are more exact.
pub(super) const MIN_ROWS: usize = 24;

/// Returns the floats of memory that the pairs of `width` columns of `depth` steps take.
pub(super) fn pairs_len(isa: Isa, width: usize, depth: usize) -> usize {
    let padded = width.next_multiple_of(panel_width(isa));
    padded.saturating_mul(depth.div_ceil(2))
}

/// Rounds the columns of a matrix to pairs in scratch memory and lends their panels to `f`.
pub(super) fn with_pairs<R>(
    exec: &Exec<'_>,
    source: &dyn PackSource,
    f: impl FnOnce(Panels) -> Result<R, Ended>,
) -> Result<R, Ended> {
    let &Exec { pool, isa, .. } = exec;
    let (k, w) = (source.depth(), panel_width(isa));
    let (steps, panels) = (k.div_ceil(2), source.width().div_ceil(w));
    with_scratch(pairs_len(isa, source.width(), k), |pairs| {
        let out = SendPtr(pairs.as_mut_ptr());
        for_each_chunk(pool, k, 0..panels, w, |panel, chunk| {
            with_scratch(chunk.len() * w, |floats| {
                source.pack(isa, chunk.clone(), panel * w, floats);
                // SAFETY: chunks begin at even steps, so their pairs are disjoint parts of the
                // scratch memory.
                let to = unsafe {
                    let start = out.get().add((panel * steps + chunk.start / 2) * w);
                    std::slice::from_raw_parts_mut(start, chunk.len().div_ceil(2) * w)
                };
                round_to_pairs(chunk.len(), w, floats, to);
            });
        })?;
        f(Panels::from_packed(isa, pairs, steps))
    })
}

/// The multiply-add of pairs, and the conversion of panels of 16 bits to pairs.
#[cfg(target_arch = "x86_64")]
pub(crate) mod tiles {
    use std::arch::x86_64::*;

    use crate::gemm::tile::Mac;
    use sardonyx_simd::avx512::Avx512;

    /// Panels of pairs of bfloat16, added up in floats.
    pub(crate) struct Pairs;

    impl Mac<Avx512> for Pairs {
        #[inline(always)]
        unsafe fn mac(a: __m512, b: __m512, c: __m512) -> __m512 {
            // SAFETY: both types are 64 bytes without invalid values; the caller's machine has the
            // instruction.
            unsafe {
                let a = std::mem::transmute::<__m512, __m512bh>(a);
                let b = std::mem::transmute::<__m512, __m512bh>(b);
                _mm512_dpbf16_ps(c, a, b)
            }
        }

        #[inline(always)]
        unsafe fn put(p: *mut f32, index: usize, v: __m512) {
            // SAFETY: both types are 32 bytes without invalid values; the caller has room for them.
            unsafe {
                let halves = std::mem::transmute::<__m256bh, __m256i>(_mm512_cvtneps_pbh(v));
                _mm256_storeu_si256(p.cast::<u16>().wrapping_add(index).cast(), halves);
            }
        }
    }

    enable!(
        avx512_bf16,
        /// Makes pairs of a panel of f16, see [`make_pairs`](super::make_pairs).
        pub(super) unsafe fn make_pairs_of_f16(from: *const u16, steps: usize, to: *mut f32) {
            // SAFETY: the caller has the instructions, the rows of the panel and room for the
            // pairs.
            unsafe {
                for_each_pair(from, steps, to, |first, second| {
                    let (first, second) = (_mm512_cvtph_ps(first), _mm512_cvtph_ps(second));
                    // Both types are 64 bytes without invalid values.
                    std::mem::transmute::<__m512bh, __m512i>(_mm512_cvtne2ps_pbh(second, first))
                });
            }
        }
    );

    enable!(
        avx512_bf16,
        /// Makes pairs of a panel of bfloat16, see [`make_pairs`](super::make_pairs).
        pub(super) unsafe fn make_pairs_of_bf16(from: *const u16, steps: usize, to: *mut f32) {
            // SAFETY: the caller has the instructions, the rows of the panel and room for the
            // pairs.
            unsafe {
                for_each_pair(from, steps, to, |first, second| {
                    _mm512_inserti64x4::<1>(_mm512_castsi256_si512(first), second)
                });
            }
        }
    );

    enable!(
        avx512_bf16,
        /// Rounds rows, see [`Rows::round`](super::Rows::round).
        pub(super) unsafe fn round_rows(rows: &super::Rows) {
            let &super::Rows { from, from_step, count, len, to, to_step, words } = rows;
            for row in 0..count {
                let (from, to) =
                    (from.wrapping_add(row * from_step), to.wrapping_add(row * to_step));
                // SAFETY: the caller has `len` floats readable and `words` words writable.
                unsafe {
                    let whole = len / 32 * 16;
                    for at in (0..whole).step_by(16) {
                        let from = from.add(2 * at);
                        let pairs = _mm512_cvtne2ps_pbh(
                            _mm512_loadu_ps(from.add(16)),
                            _mm512_loadu_ps(from),
                        );
                        // Both types are 64 bytes without invalid values.
                        let pairs = std::mem::transmute::<__m512bh, __m512i>(pairs);
                        _mm512_storeu_si512(to.add(at).cast(), pairs);
                    }
                    for at in (whole..words).step_by(16) {
                        let left = len.saturating_sub(2 * at);
                        let from = from.wrapping_add(2 * at);
                        let first = _mm512_maskz_loadu_ps(first_of(left), from);
                        let second = _mm512_maskz_loadu_ps(
                            first_of(left.saturating_sub(16)),
                            from.wrapping_add(16),
                        );
                        let pairs = _mm512_cvtne2ps_pbh(second, first);
                        let pairs = std::mem::transmute::<__m512bh, __m512i>(pairs);
                        _mm512_mask_storeu_epi32(to.add(at).cast(), first_of(words - at), pairs);
                    }
                }
            }
        }
    );

    enable!(
        avx512_bf16,
        /// Rounds planes, see [`Planes::round`](super::Planes::round).
        pub(super) unsafe fn round_planes(planes: &super::Planes) {
            let &super::Planes { from, plane, count, pixels, to, step, words } = planes;
            let lower = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
            let upper = _mm512_add_epi32(lower, _mm512_set1_epi32(16));
            let interleave = _mm512_or_si512(lower, _mm512_slli_epi32::<16>(upper));
            let places = _mm512_mullo_epi32(lower, _mm512_set1_epi32(step as i32));
            for first in (0..pixels).step_by(16) {
                let mask = first_of(pixels - first);
                let of = |index: usize| {
                    let mask = if index < count { mask } else { 0 };
                    // SAFETY: the caller has these pixels of the plane readable.
                    unsafe { _mm512_maskz_loadu_ps(mask, from.wrapping_add(index * plane + first)) }
                };
                for word in 0..words {
                    let pairs = _mm512_cvtne2ps_pbh(of(2 * word + 1), of(2 * word));
                    // SAFETY: both types are 64 bytes without invalid values.
                    let pairs = unsafe { std::mem::transmute::<__m512bh, __m512i>(pairs) };
                    let pairs = _mm512_permutexvar_epi16(interleave, pairs);
                    let to = to.wrapping_add(first * step + word).cast::<i32>();
                    // SAFETY: the caller has a word writable for each of these pixels.
                    unsafe { _mm512_mask_i32scatter_epi32::<4>(to, mask, places, pairs) };
                }
            }
        }
    );

    /// Returns a mask of the lowest `count` bits, at most 16.
    #[inline(always)]
    fn first_of(count: usize) -> u16 {
        if count >= 16 { u16::MAX } else { (1 << count) - 1 }
    }

    /// Makes pairs of each two steps of a panel. `join` returns 16 bfloat16 of the first step,
    /// followed by 16 of the second.
    #[inline(always)]
    unsafe fn for_each_pair(
        from: *const u16,
        steps: usize,
        to: *mut f32,
        join: impl Fn(__m256i, __m256i) -> __m512i,
    ) {
        // SAFETY: the caller has `steps` rows of 32 readable, and half as many rows of 32 floats,
        // rounded up, writable.
        unsafe {
            let lower = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
            let upper = _mm512_add_epi32(lower, _mm512_set1_epi32(16));
            let interleave = _mm512_or_si512(lower, _mm512_slli_epi32::<16>(upper));
            for step in 0..steps.div_ceil(2) {
                for half in 0..2 {
                    let at = from.add(step * 64 + half * 16);
                    let first = _mm256_loadu_si256(at.cast());
                    let second = if 2 * step + 1 < steps {
                        _mm256_loadu_si256(at.add(32).cast())
                    } else {
                        _mm256_setzero_si256()
                    };
                    let pairs = _mm512_permutexvar_epi16(interleave, join(first, second));
                    _mm512_storeu_si512(to.add(step * 32 + half * 16).cast(), pairs);
                }
            }
        }
    }

    tile_table!(PAIRS, Avx512, Pairs, avx512_bf16, 1 2 3 4 5 6 7 8 9 10 11 12);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gemm::tests::CACHES;
    use crate::gemm::{Epilogue, LeMatrix, Lhs, ManyRows, MatRef, PackedB, Rhs, amx, gemm};
    use sardonyx_simd::Pool;

    #[test]
    fn rounding_is_that_of_the_type() {
        let edge = [
            0.0,
            -0.0,
            1.0,
            -1.5,
            3.3,
            1e-40,
            f32::MAX,
            f32::INFINITY,
            f32::NEG_INFINITY,
            f32::from_bits(0x3f80_8000),
            f32::from_bits(0x3f81_8000),
            f32::from_bits(0x3f80_8001),
        ];
        for x in edge {
            assert_eq!(round_bits(x) >> 16, u32::from(half::bf16::from_f32(x).to_bits()), "{x}");
        }
        assert!(f32::from_bits(round_bits(f32::NAN)).is_nan());
        assert!(f32::from_bits(round_bits(f32::from_bits(0x7f80_0001))).is_nan());
    }

    /// Numbers of rows, columns and steps.
    const SIZES: [[usize; 3]; 10] = [
        [MIN_ROWS, 33, 70],
        [24, 5, 1],
        [25, 64, 513],
        [40, 31, 2],
        [70, 100, 700],
        [128, 7, 40],
        [40, 700, 300],
        [33, 16, 1026],
        [513, 48, 96],
        [600, 200, 1100],
    ];

    fn numbers(len: usize, by: usize) -> Vec<f32> {
        (0..len).map(|i| ((i * by) % 1009) as f32 / 504.0 - 1.0).collect()
    }

    /// Packs a matrix of k x n numbers: floats in the range of f16, floats outside of it, or
    /// bfloat16, by `turn`. Returns it with the stored numbers.
    fn pack_numbers(isa: Isa, k: usize, n: usize, turn: usize) -> (PackedB, Vec<f32>) {
        let mut b = numbers(k * n, 71);
        let which = turn % 3;
        if which == 1 {
            b.iter_mut().for_each(|x| *x *= 1e6);
        }
        let (bytes, source): (Vec<u8>, _) = match which {
            2 => {
                let halves = b.iter().flat_map(|x| half::bf16::from_f32(*x).to_le_bytes());
                (halves.collect(), Storage::Bf16)
            }
            _ => (b.iter().flat_map(|x| x.to_le_bytes()).collect(), Storage::F32),
        };
        let packed =
            PackedB::rounded_from_le(isa, &LeMatrix::row_major(&bytes, source, k, n)).unwrap();
        let storage = [Storage::F16, Storage::Bf16, Storage::Bf16][which];
        assert_eq!(packed.storage(), storage);
        if storage == Storage::F16 {
            b.iter_mut().for_each(|x| *x = half::f16::from_f32(*x).to_f32());
        }
        (packed, b)
    }

    #[test]
    fn products_are_those_of_rounded_operands() {
        let isa = Isa::Avx512;
        for (many_rows, is_available, what) in [
            (ManyRows::Pairs, is_available(isa), "multiply bfloat16 in vectors"),
            (ManyRows::Tiles, amx::is_available(isa), "multiply bfloat16 in tiles, or may not"),
        ] {
            if !is_available {
                eprintln!("skipped: this machine does not {what}");
                continue;
            }
            for (turn, [m, n, k]) in SIZES.into_iter().enumerate() {
                check_product(isa, many_rows, m, n, k, turn);
            }
        }
    }

    /// Checks a product against one in f64 with rounded operands.
    fn check_product(isa: Isa, many_rows: ManyRows, m: usize, n: usize, k: usize, turn: usize) {
        let round = |x: f32| f64::from(f32::from_bits(round_bits(x)));
        let (mut packed, b) = pack_numbers(isa, k, n, turn);
        packed.beside = many_rows;
        let (a, bias) = (numbers(m * k, 37), numbers(n, 13));
        let mut transposed = vec![0.0; m * k];
        for (at, x) in a.iter().enumerate() {
            transposed[at % k * m + at / k] = *x;
        }
        let b: Vec<f64> = b.iter().map(|x| round(*x)).collect();
        let rounded_a: Vec<f64> = a.iter().map(|x| round(*x)).collect();
        let epilogue =
            Epilogue { bias: Some(crate::gemm::Bias::Col(&bias)), ..Epilogue::default() };
        let mut first = None;
        let by_columns = MatRef::col_major(&transposed, m, k);
        let steps = by_columns.transpose();
        for lhs in
            [Lhs::Plain(MatRef::row_major(&a, m, k)), Lhs::Plain(by_columns), Lhs::Virtual(&steps)]
        {
            for (threads, caches) in [1, 2, 3].into_iter().zip(CACHES) {
                let mut c = vec![0.0; m * n];
                let pool = Pool::new(threads);
                let exec = Exec::new(&pool, isa).with_caches(caches);
                gemm(&exec, lhs, Rhs::Packed(&packed), &mut c, n, &epilogue).unwrap();
                let bits: Vec<u32> = c.iter().map(|c| c.to_bits()).collect();
                let want = first.get_or_insert_with(|| bits.clone());
                assert!(*want == bits, "{many_rows:?} {lhs:?}, {threads} threads, {caches}");
            }
        }
        for (at, c) in first.expect("products").into_iter().map(f32::from_bits).enumerate() {
            let (i, j) = (at / n, at % n);
            let products = (0..k).map(|p| rounded_a[i * k + p] * b[p * n + j]);
            let (sum, size) = products.fold((0.0, 0.0), |(s, z), x| (s + x, z + x.abs()));
            let want = sum + f64::from(bias[j]);
            let bound = 4e-7 * (size + 1.0) * (k as f64).sqrt().max(2.0);
            assert!(
                (f64::from(c) - want).abs() <= bound,
                "{many_rows:?} {m}x{n}x{k} at {i},{j}: {c} not {want}"
            );
        }
    }
}

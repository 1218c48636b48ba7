//! Multiply-adds of integers of 8 bits by the instructions that machines have.

/// Multiply-add of words of four bytes.
#[cfg(target_arch = "x86_64")]
pub(in crate::gemm) mod quads {
    use std::arch::x86_64::*;

    use crate::gemm::tile::{Ending, Mac};
    use sardonyx_simd::Integers;
    use sardonyx_simd::avx512::Avx512;

    /// Panels of words of four bytes, unsigned in A and signed in B.
    pub(crate) struct Quads;

    impl Mac<Avx512> for Quads {
        const ENDING: Ending = Ending::Plain;

        #[inline(always)]
        unsafe fn mac(a: __m512, b: __m512, c: __m512) -> __m512 {
            // SAFETY: the caller's machine has the instruction.
            unsafe {
                let (a, b) = (_mm512_castps_si512(a), _mm512_castps_si512(b));
                _mm512_castsi512_ps(_mm512_dpbusd_epi32(_mm512_castps_si512(c), a, b))
            }
        }

        #[inline(always)]
        unsafe fn add(a: __m512, b: __m512) -> __m512 {
            // SAFETY: the caller's machine has AVX-512.
            unsafe { __m512i::of_bits(a).add(__m512i::of_bits(b)).to_bits() }
        }
    }

    tile_table!(QUADS, Avx512, Quads, avx512_vnni, 1 2 3 4 5 6 7 8 9 10 11 12);
}

/// Multiply-add of words of four bytes.
#[cfg(target_arch = "aarch64")]
pub(in crate::gemm) mod quads {
    use std::arch::aarch64::*;

    use crate::gemm::by_lane::MacByLane;
    use crate::gemm::tile::{Ending, Mac};
    use sardonyx_simd::Integers;
    use sardonyx_simd::neon::Neon;

    /// Panels of words of four signed bytes.
    pub(crate) struct Quads;

    /// Adds to each lane of a sum the products of four bytes of both operands. Assembly, as the
    /// intrinsics are not stable.
    macro_rules! sdot {
        ($sum:expr, $wide:expr, $narrow:expr, $form:literal $(, $lane:ident)?) => {{
            let mut sum = $sum;
            // SAFETY: the instruction changes only the register of the sum, and the caller's
            // machine has it.
            unsafe {
                std::arch::asm!(
                    concat!("sdot {sum:v}.4s, {wide:v}.16b, {narrow:v}.", $form),
                    sum = inout(vreg) sum,
                    wide = in(vreg) $wide,
                    narrow = in(vreg) $narrow,
                    $(lane = const $lane,)?
                    options(pure, nomem, nostack, preserves_flags)
                );
            }
            sum
        }};
    }

    impl Mac<Neon> for Quads {
        const ENDING: Ending = Ending::Plain;

        #[inline(always)]
        unsafe fn mac(a: float32x4_t, b: float32x4_t, c: float32x4_t) -> float32x4_t {
            sdot!(c, b, a, "16b")
        }

        #[inline(always)]
        unsafe fn add(a: float32x4_t, b: float32x4_t) -> float32x4_t {
            // SAFETY: the target has the instruction.
            unsafe { int32x4_t::of_bits(a).add(int32x4_t::of_bits(b)).to_bits() }
        }
    }

    impl MacByLane for Quads {
        #[inline(always)]
        unsafe fn mac_by_lane<const LANE: i32>(
            narrow: float32x4_t,
            wide: float32x4_t,
            sum: float32x4_t,
        ) -> float32x4_t {
            sdot!(sum, wide, narrow, "4b[{lane}]", LANE)
        }
    }

    tile_table!(QUADS, Neon, Quads, neon_dotprod, 1 2 3 4 5 6 7 8 9 10);
}

/// Multiply-add of pairs of integers of 16 bits, where those of the wide operand are bytes in
/// memory.
#[cfg(target_arch = "x86_64")]
pub(in crate::gemm) mod pairs_of_bytes {
    use std::arch::x86_64::*;

    use crate::gemm::tile::{Ending, Mac};
    use sardonyx_simd::Integers;
    use sardonyx_simd::avx2::Avx2;

    /// Panels of pairs: integers of 16 bits in A, bytes in B.
    pub(crate) struct PairsOfBytes;

    impl Mac<Avx2> for PairsOfBytes {
        const HALVES: bool = true;
        const ENDING: Ending = Ending::Plain;

        #[inline(always)]
        unsafe fn wide(p: *const f32) -> __m256 {
            // SAFETY: the caller has AVX2 and 16 bytes readable at `p`.
            unsafe { _mm256_castsi256_ps(_mm256_cvtepi8_epi16(_mm_loadu_si128(p.cast()))) }
        }

        #[inline(always)]
        unsafe fn mac(a: __m256, b: __m256, c: __m256) -> __m256 {
            // SAFETY: the caller's machine has AVX2.
            unsafe {
                let (a, b) = (__m256i::of_bits(a), __m256i::of_bits(b));
                a.dot_pairs(b, __m256i::of_bits(c)).to_bits()
            }
        }

        #[inline(always)]
        unsafe fn add(a: __m256, b: __m256) -> __m256 {
            // SAFETY: the caller's machine has AVX2.
            unsafe { __m256i::of_bits(a).add(__m256i::of_bits(b)).to_bits() }
        }
    }
}

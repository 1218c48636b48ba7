//! [`Simd`] on AVX2, FMA and F16C: 8 lanes, 16 registers.

use std::arch::x86_64::*;

use crate::Isa;
use crate::{Body, Integers, Loop, Simd, Vector};

#[derive(Clone, Copy, Debug)]
pub struct Avx2;

// The unsafe operations below are intrinsics of AVX2, FMA or F16C, or accesses to lanes that the
// caller has valid.
impl Simd for Avx2 {
    type V = __m256;
    type F64 = __m256d;
    type I32 = __m256i;
    type M = usize;
    type Of32 = *const f32;
    const ISA: Isa = Isa::Avx2;
    const LANES: usize = 8;
    const FETCHES: bool = false;

    #[inline(always)]
    fn run_loop<L: Loop>(body: L) -> L::Out {
        body.run::<true>()
    }

    #[inline(always)]
    unsafe fn call<B: Body>(body: B) -> B::Out {
        enable!(
            avx2,
            #[inline(never)]
            unsafe fn separate<B: Body>(body: B) -> B::Out {
                // SAFETY: the instructions are enabled here; the caller upholds the body's demands.
                unsafe { body.run::<Avx2>() }
            }
        );
        // SAFETY: see the head of this impl; the caller upholds the body's demands.
        unsafe { separate(body) }
    }

    #[inline(always)]
    unsafe fn splat(x: f32) -> __m256 {
        // SAFETY: see the head of this impl.
        unsafe { _mm256_set1_ps(x) }
    }

    #[inline(always)]
    unsafe fn load(p: *const f32) -> __m256 {
        // SAFETY: see the head of this impl.
        unsafe { _mm256_loadu_ps(p) }
    }

    #[inline(always)]
    unsafe fn store(p: *mut f32, v: __m256) {
        // SAFETY: see the head of this impl.
        unsafe { _mm256_storeu_ps(p, v) }
    }

    #[inline(always)]
    unsafe fn first(n: usize) -> usize {
        n.min(8)
    }

    #[inline(always)]
    unsafe fn load_m(p: *const f32, m: usize) -> __m256 {
        // SAFETY: see the head of this impl; masked lanes are not read.
        unsafe { if m == 8 { Self::load(p) } else { _mm256_maskload_ps(p, mask_of((1 << m) - 1)) } }
    }

    #[inline(always)]
    unsafe fn store_m(p: *mut f32, m: usize, v: __m256) {
        // SAFETY: see the head of this impl; masked lanes are not written.
        unsafe {
            if m == 8 {
                Self::store(p, v)
            } else {
                _mm256_maskstore_ps(p, mask_of((1 << m) - 1), v)
            }
        }
    }

    #[inline(always)]
    unsafe fn fma(a: __m256, b: __m256, c: __m256) -> __m256 {
        // SAFETY: see the head of this impl.
        unsafe { _mm256_fmadd_ps(a, b, c) }
    }

    #[inline(always)]
    unsafe fn add(a: __m256, b: __m256) -> __m256 {
        // SAFETY: see the head of this impl.
        unsafe { _mm256_add_ps(a, b) }
    }

    #[inline(always)]
    unsafe fn mul(a: __m256, b: __m256) -> __m256 {
        // SAFETY: see the head of this impl.
        unsafe { _mm256_mul_ps(a, b) }
    }

    #[inline(always)]
    unsafe fn div(a: __m256, b: __m256) -> __m256 {
        // SAFETY: see the head of this impl.
        unsafe { _mm256_div_ps(a, b) }
    }

    #[inline(always)]
    unsafe fn sqrt(a: __m256) -> __m256 {
        // SAFETY: see the head of this impl.
        unsafe { _mm256_sqrt_ps(a) }
    }

    #[inline(always)]
    unsafe fn max(a: __m256, b: __m256) -> __m256 {
        // SAFETY: see the head of this impl.
        unsafe { _mm256_max_ps(a, b) }
    }

    #[inline(always)]
    unsafe fn min(a: __m256, b: __m256) -> __m256 {
        // SAFETY: see the head of this impl.
        unsafe { _mm256_min_ps(a, b) }
    }

    #[inline(always)]
    unsafe fn max_or_nan(a: __m256, b: __m256) -> __m256 {
        // SAFETY: see the head of this impl. The instruction gives `a` where either is NaN.
        unsafe { _mm256_blendv_ps(_mm256_max_ps(b, a), b, _mm256_cmp_ps::<_CMP_UNORD_Q>(b, b)) }
    }

    #[inline(always)]
    unsafe fn min_or_nan(a: __m256, b: __m256) -> __m256 {
        // SAFETY: see the head of this impl. The instruction gives `a` where either is NaN.
        unsafe { _mm256_blendv_ps(_mm256_min_ps(b, a), b, _mm256_cmp_ps::<_CMP_UNORD_Q>(b, b)) }
    }

    #[inline(always)]
    unsafe fn select(v: __m256, lanes: u32, p: *const f32, stride: usize) -> __m256 {
        // SAFETY: see the head of this impl; only selected lanes are read.
        unsafe {
            let mask = mask_of(lanes);
            if stride == 1 {
                _mm256_blendv_ps(v, _mm256_maskload_ps(p, mask), _mm256_castsi256_ps(mask))
            } else {
                let mut out = [0.0f32; 8];
                _mm256_storeu_ps(out.as_mut_ptr(), v);
                for (i, x) in out.iter_mut().enumerate() {
                    if lanes >> i & 1 != 0 {
                        *x = p.wrapping_add(i * stride).read_unaligned();
                    }
                }
                _mm256_loadu_ps(out.as_ptr())
            }
        }
    }

    #[inline(always)]
    unsafe fn sub(a: __m256, b: __m256) -> __m256 {
        // SAFETY: see the head of this impl.
        unsafe { _mm256_sub_ps(a, b) }
    }

    #[inline(always)]
    unsafe fn abs(a: __m256) -> __m256 {
        // SAFETY: see the head of this impl.
        unsafe { _mm256_andnot_ps(_mm256_set1_ps(-0.0), a) }
    }

    #[inline(always)]
    unsafe fn copysign(a: __m256, sign: __m256) -> __m256 {
        // SAFETY: see the head of this impl.
        unsafe {
            let bit = _mm256_set1_ps(-0.0);
            _mm256_or_ps(_mm256_andnot_ps(bit, a), _mm256_and_ps(bit, sign))
        }
    }

    #[inline(always)]
    unsafe fn load_32(p: *const f32) -> *const f32 {
        p
    }

    #[inline(always)]
    unsafe fn look_up_32(numbers: *const f32, indices: __m256) -> __m256 {
        // SAFETY: see the head of this impl; indices of 5 bits are inside the table.
        unsafe {
            let five = _mm256_set1_epi32(31);
            let indices = _mm256_and_si256(_mm256_castps_si256(indices), five);
            _mm256_i32gather_ps::<4>(numbers, indices)
        }
    }

    #[inline(always)]
    unsafe fn prefetch(p: *const f32) {
        // SAFETY: a prefetch never faults.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(p.cast()) }
    }

    #[inline(always)]
    unsafe fn prefetch_write(p: *const f32) {
        // SAFETY: a prefetch never faults.
        unsafe { _mm_prefetch::<_MM_HINT_ET0>(p.cast()) }
    }

    #[inline(always)]
    unsafe fn prefetch_far(p: *const f32) {
        // SAFETY: a prefetch never faults.
        unsafe { _mm_prefetch::<_MM_HINT_T1>(p.cast()) }
    }

    #[inline(always)]
    unsafe fn load_f16(p: *const u16) -> __m256 {
        // SAFETY: see the head of this impl.
        unsafe { _mm256_cvtph_ps(_mm_loadu_si128(p.cast())) }
    }

    #[inline(always)]
    unsafe fn store_f16(p: *mut u16, v: __m256) {
        // SAFETY: see the head of this impl.
        unsafe { _mm_storeu_si128(p.cast(), _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(v)) }
    }

    #[inline(always)]
    unsafe fn load_bf16(p: *const u16) -> __m256 {
        // SAFETY: see the head of this impl.
        unsafe {
            // A shuffle leaves the units that multiply more time than widening and a shift.
            let twice = _mm256_broadcastsi128_si256(_mm_loadu_si128(p.cast()));
            let places = _mm256_setr_epi8(
                -1, -1, 0, 1, -1, -1, 2, 3, -1, -1, 4, 5, -1, -1, 6, 7, //
                -1, -1, 8, 9, -1, -1, 10, 11, -1, -1, 12, 13, -1, -1, 14, 15,
            );
            _mm256_castsi256_ps(_mm256_shuffle_epi8(twice, places))
        }
    }

    #[inline(always)]
    unsafe fn store_bf16(p: *mut u16, v: __m256) {
        // SAFETY: see the head of this impl.
        unsafe {
            let bits = _mm256_castps_si256(v);
            let odd = _mm256_and_si256(_mm256_srli_epi32::<16>(bits), _mm256_set1_epi32(1));
            let half = _mm256_add_epi32(_mm256_set1_epi32(0x7fff), odd);
            let rounded = _mm256_add_epi32(bits, half);
            // Rounding could carry a NaN into infinity.
            let quiet = _mm256_or_si256(bits, _mm256_set1_epi32(0x40_0000));
            let is_nan = _mm256_castps_si256(_mm256_cmp_ps::<_CMP_UNORD_Q>(v, v));
            let words = _mm256_srli_epi32::<16>(_mm256_blendv_epi8(rounded, quiet, is_nan));
            let low = _mm256_castsi256_si128(words);
            let high = _mm256_extracti128_si256::<1>(words);
            _mm_storeu_si128(p.cast(), _mm_packus_epi32(low, high));
        }
    }

    #[inline(always)]
    unsafe fn sum(v: __m256) -> f32 {
        // SAFETY: see the head of this impl.
        unsafe {
            let v = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps::<1>(v));
            let v = _mm_add_ps(v, _mm_movehl_ps(v, v));
            _mm_cvtss_f32(_mm_add_ss(v, _mm_shuffle_ps::<1>(v, v)))
        }
    }

    #[inline(always)]
    unsafe fn transpose(src: *const f32, src_stride: usize, dst: *mut f32, dst_stride: usize) {
        // SAFETY: see the head of this impl; both blocks are valid.
        unsafe {
            // Interleave pairs of rows, then pairs of pairs within 128-bit halves, then swap
            // halves.
            let mut t = [_mm256_setzero_ps(); 8];
            for i in 0..4 {
                let a = _mm256_loadu_ps(src.add(2 * i * src_stride));
                let b = _mm256_loadu_ps(src.add((2 * i + 1) * src_stride));
                t[2 * i] = _mm256_unpacklo_ps(a, b);
                t[2 * i + 1] = _mm256_unpackhi_ps(a, b);
            }
            let mut u = [_mm256_setzero_ps(); 8];
            for i in 0..2 {
                for h in 0..2 {
                    let (a, b) = (t[4 * i + h], t[4 * i + 2 + h]);
                    u[4 * i + 2 * h] = _mm256_shuffle_ps::<0x44>(a, b);
                    u[4 * i + 2 * h + 1] = _mm256_shuffle_ps::<0xee>(a, b);
                }
            }
            for i in 0..4 {
                let lo = _mm256_permute2f128_ps::<0x20>(u[i], u[4 + i]);
                let hi = _mm256_permute2f128_ps::<0x31>(u[i], u[4 + i]);
                _mm256_storeu_ps(dst.add(i * dst_stride), lo);
                _mm256_storeu_ps(dst.add((4 + i) * dst_stride), hi);
            }
        }
    }
}

/// Sets all bits of lane `i` for each bit `i` set in `lanes`.
#[inline(always)]
unsafe fn mask_of(lanes: u32) -> __m256i {
    // SAFETY: plain AVX2; callers have it enabled.
    unsafe {
        let bit = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
        let all = _mm256_set1_epi32(lanes as i32);
        _mm256_cmpeq_epi32(_mm256_and_si256(all, bit), bit)
    }
}

// The unsafe operations below are intrinsics of the set, or accesses to lanes that the caller has
// valid.
impl Vector for __m256d {
    type Element = f64;
    const LANES: usize = 4;

    #[inline(always)]
    unsafe fn splat(x: f64) -> __m256d {
        // SAFETY: see the head of this impl.
        unsafe { _mm256_set1_pd(x) }
    }

    #[inline(always)]
    unsafe fn load(p: *const f64) -> __m256d {
        // SAFETY: see the head of this impl.
        unsafe { _mm256_loadu_pd(p) }
    }

    #[inline(always)]
    unsafe fn store(self, p: *mut f64) {
        // SAFETY: see the head of this impl.
        unsafe { _mm256_storeu_pd(p, self) }
    }

    #[inline(always)]
    unsafe fn fma(self, b: __m256d, c: __m256d) -> __m256d {
        // SAFETY: see the head of this impl.
        unsafe { _mm256_fmadd_pd(self, b, c) }
    }
}

// The unsafe operations below are intrinsics of the set.
impl Integers for __m256i {
    type Floats = __m256;

    #[inline(always)]
    unsafe fn of_bits(floats: __m256) -> __m256i {
        // SAFETY: see the head of this impl.
        unsafe { _mm256_castps_si256(floats) }
    }

    #[inline(always)]
    unsafe fn to_bits(self) -> __m256 {
        // SAFETY: see the head of this impl.
        unsafe { _mm256_castsi256_ps(self) }
    }

    #[inline(always)]
    unsafe fn splat(x: i32) -> __m256i {
        // SAFETY: see the head of this impl.
        unsafe { _mm256_set1_epi32(x) }
    }

    #[inline(always)]
    unsafe fn add(self, other: __m256i) -> __m256i {
        // SAFETY: see the head of this impl.
        unsafe { _mm256_add_epi32(self, other) }
    }

    #[inline(always)]
    unsafe fn and(self, other: __m256i) -> __m256i {
        // SAFETY: see the head of this impl.
        unsafe { _mm256_and_si256(self, other) }
    }

    #[inline(always)]
    unsafe fn or(self, other: __m256i) -> __m256i {
        // SAFETY: see the head of this impl.
        unsafe { _mm256_or_si256(self, other) }
    }

    #[inline(always)]
    unsafe fn shift_right(self, count: u32) -> __m256i {
        // SAFETY: see the head of this impl.
        unsafe { _mm256_srl_epi32(self, _mm_cvtsi32_si128(count.cast_signed())) }
    }

    #[inline(always)]
    unsafe fn shift_left_23(self) -> __m256i {
        // SAFETY: see the head of this impl.
        unsafe { _mm256_slli_epi32::<23>(self) }
    }

    #[inline(always)]
    unsafe fn dot_pairs(self, other: __m256i, sum: __m256i) -> __m256i {
        // SAFETY: see the head of this impl.
        unsafe { _mm256_add_epi32(_mm256_madd_epi16(self, other), sum) }
    }
}

//! [`Simd`] on AVX-512: 16 lanes, 32 registers.

use std::arch::x86_64::*;

use crate::Isa;
use crate::{Body, Integers, Loop, Simd, Vector};

#[derive(Clone, Copy, Debug)]
pub struct Avx512;

// The unsafe operations below are intrinsics of AVX-512, or accesses to lanes that the caller has
// valid.
impl Simd for Avx512 {
    type V = __m512;
    type F64 = __m512d;
    type I32 = __m512i;
    type M = __mmask16;
    type Of32 = [__m512; 2];
    const ISA: Isa = Isa::Avx512;
    const LANES: usize = 16;
    const FETCHES: bool = true;

    #[inline(always)]
    fn run_loop<L: Loop>(body: L) -> L::Out {
        body.run::<true>()
    }

    #[inline(always)]
    unsafe fn call<B: Body>(body: B) -> B::Out {
        enable!(
            avx512,
            #[inline(never)]
            unsafe fn separate<B: Body>(body: B) -> B::Out {
                // SAFETY: the instructions are enabled here; the caller upholds the body's demands.
                unsafe { body.run::<Avx512>() }
            }
        );
        // SAFETY: see the head of this impl; the caller upholds the body's demands.
        unsafe { separate(body) }
    }

    #[inline(always)]
    unsafe fn splat(x: f32) -> __m512 {
        // SAFETY: see the head of this impl.
        unsafe { _mm512_set1_ps(x) }
    }

    #[inline(always)]
    unsafe fn load(p: *const f32) -> __m512 {
        // SAFETY: see the head of this impl.
        unsafe { _mm512_loadu_ps(p) }
    }

    #[inline(always)]
    unsafe fn store(p: *mut f32, v: __m512) {
        // SAFETY: see the head of this impl.
        unsafe { _mm512_storeu_ps(p, v) }
    }

    #[inline(always)]
    unsafe fn first(n: usize) -> __mmask16 {
        ((1u32 << n.min(16)) - 1) as __mmask16
    }

    #[inline(always)]
    unsafe fn load_m(p: *const f32, m: __mmask16) -> __m512 {
        // SAFETY: see the head of this impl; masked lanes are not read.
        unsafe { _mm512_maskz_loadu_ps(m, p) }
    }

    #[inline(always)]
    unsafe fn store_m(p: *mut f32, m: __mmask16, v: __m512) {
        // SAFETY: see the head of this impl; masked lanes are not written.
        unsafe { _mm512_mask_storeu_ps(p, m, v) }
    }

    #[inline(always)]
    unsafe fn fma(a: __m512, b: __m512, c: __m512) -> __m512 {
        // SAFETY: see the head of this impl.
        unsafe { _mm512_fmadd_ps(a, b, c) }
    }

    #[inline(always)]
    unsafe fn add(a: __m512, b: __m512) -> __m512 {
        // SAFETY: see the head of this impl.
        unsafe { _mm512_add_ps(a, b) }
    }

    #[inline(always)]
    unsafe fn mul(a: __m512, b: __m512) -> __m512 {
        // SAFETY: see the head of this impl.
        unsafe { _mm512_mul_ps(a, b) }
    }

    #[inline(always)]
    unsafe fn div(a: __m512, b: __m512) -> __m512 {
        // SAFETY: see the head of this impl.
        unsafe { _mm512_div_ps(a, b) }
    }

    #[inline(always)]
    unsafe fn sqrt(a: __m512) -> __m512 {
        // SAFETY: see the head of this impl.
        unsafe { _mm512_sqrt_ps(a) }
    }

    #[inline(always)]
    unsafe fn max(a: __m512, b: __m512) -> __m512 {
        // SAFETY: see the head of this impl.
        unsafe { _mm512_max_ps(a, b) }
    }

    #[inline(always)]
    unsafe fn min(a: __m512, b: __m512) -> __m512 {
        // SAFETY: see the head of this impl.
        unsafe { _mm512_min_ps(a, b) }
    }

    #[inline(always)]
    unsafe fn max_or_nan(a: __m512, b: __m512) -> __m512 {
        // SAFETY: see the head of this impl. The instruction gives `a` where either is NaN.
        unsafe {
            _mm512_mask_mov_ps(_mm512_max_ps(b, a), _mm512_cmp_ps_mask::<_CMP_UNORD_Q>(b, b), b)
        }
    }

    #[inline(always)]
    unsafe fn min_or_nan(a: __m512, b: __m512) -> __m512 {
        // SAFETY: see the head of this impl. The instruction gives `a` where either is NaN.
        unsafe {
            _mm512_mask_mov_ps(_mm512_min_ps(b, a), _mm512_cmp_ps_mask::<_CMP_UNORD_Q>(b, b), b)
        }
    }

    #[inline(always)]
    unsafe fn select(v: __m512, lanes: u32, p: *const f32, stride: usize) -> __m512 {
        // SAFETY: see the head of this impl; only selected lanes are read, masked lanes do not
        // fault.
        unsafe {
            match stride {
                1 => _mm512_mask_loadu_ps(v, lanes as __mmask16, p),
                2 => {
                    // Two loads of every second float and one permutation: a third of the cost of a
                    // gather.
                    let spread = _pdep_u32(lanes, 0x5555_5555);
                    let lo = _mm512_maskz_loadu_ps(spread as __mmask16, p);
                    let hi = _mm512_maskz_loadu_ps((spread >> 16) as __mmask16, p.wrapping_add(16));
                    let even = _mm512_setr_epi32(
                        0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30,
                    );
                    let picked = _mm512_permutex2var_ps(lo, even, hi);
                    _mm512_mask_mov_ps(v, lanes as __mmask16, picked)
                }
                _ if stride <= (i32::MAX / 64) as usize => {
                    let lane =
                        _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
                    let index = _mm512_mullo_epi32(lane, _mm512_set1_epi32(stride as i32));
                    _mm512_mask_i32gather_ps::<4>(v, lanes as __mmask16, index, p)
                }
                _ => {
                    let mut out = [0.0f32; 16];
                    _mm512_storeu_ps(out.as_mut_ptr(), v);
                    for (i, x) in out.iter_mut().enumerate() {
                        if lanes >> i & 1 != 0 {
                            *x = p.wrapping_add(i * stride).read_unaligned();
                        }
                    }
                    _mm512_loadu_ps(out.as_ptr())
                }
            }
        }
    }

    #[inline(always)]
    unsafe fn sub(a: __m512, b: __m512) -> __m512 {
        // SAFETY: see the head of this impl.
        unsafe { _mm512_sub_ps(a, b) }
    }

    #[inline(always)]
    unsafe fn abs(a: __m512) -> __m512 {
        // SAFETY: see the head of this impl.
        unsafe { _mm512_abs_ps(a) }
    }

    #[inline(always)]
    unsafe fn copysign(a: __m512, sign: __m512) -> __m512 {
        // SAFETY: see the head of this impl.
        unsafe {
            let bit = _mm512_set1_ps(-0.0);
            _mm512_or_ps(_mm512_andnot_ps(bit, a), _mm512_and_ps(bit, sign))
        }
    }

    #[inline(always)]
    unsafe fn load_32(p: *const f32) -> [__m512; 2] {
        // SAFETY: see the head of this impl; 32 floats are there.
        unsafe { [_mm512_loadu_ps(p), _mm512_loadu_ps(p.add(16))] }
    }

    #[inline(always)]
    unsafe fn look_up_32([low, high]: [__m512; 2], indices: __m512) -> __m512 {
        // SAFETY: see the head of this impl.
        unsafe { _mm512_permutex2var_ps(low, _mm512_castps_si512(indices), high) }
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
    unsafe fn load_f16(p: *const u16) -> __m512 {
        // SAFETY: see the head of this impl.
        unsafe { _mm512_cvtph_ps(_mm256_loadu_si256(p.cast())) }
    }

    #[inline(always)]
    unsafe fn store_f16(p: *mut u16, v: __m512) {
        // SAFETY: see the head of this impl.
        unsafe { _mm256_storeu_si256(p.cast(), _mm512_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(v)) }
    }

    #[inline(always)]
    unsafe fn load_bf16(p: *const u16) -> __m512 {
        // SAFETY: see the head of this impl.
        unsafe {
            let words = _mm512_cvtepu16_epi32(_mm256_loadu_si256(p.cast()));
            _mm512_castsi512_ps(_mm512_slli_epi32::<16>(words))
        }
    }

    #[inline(always)]
    unsafe fn store_bf16(p: *mut u16, v: __m512) {
        // SAFETY: see the head of this impl.
        unsafe {
            let bits = _mm512_castps_si512(v);
            let odd = _mm512_and_si512(_mm512_srli_epi32::<16>(bits), _mm512_set1_epi32(1));
            let half = _mm512_add_epi32(_mm512_set1_epi32(0x7fff), odd);
            let rounded = _mm512_add_epi32(bits, half);
            // Rounding could carry a NaN into infinity.
            let is_nan = _mm512_cmp_ps_mask::<_CMP_UNORD_Q>(v, v);
            let rounded = _mm512_mask_or_epi32(rounded, is_nan, bits, _mm512_set1_epi32(0x40_0000));
            let halves = _mm512_cvtepi32_epi16(_mm512_srli_epi32::<16>(rounded));
            _mm256_storeu_si256(p.cast(), halves);
        }
    }

    #[inline(always)]
    unsafe fn sum(v: __m512) -> f32 {
        // SAFETY: see the head of this impl.
        unsafe { _mm512_reduce_add_ps(v) }
    }

    #[inline(always)]
    unsafe fn transpose(src: *const f32, src_stride: usize, dst: *mut f32, dst_stride: usize) {
        // SAFETY: see the head of this impl; both blocks are valid.
        unsafe {
            let zero = _mm512_setzero_ps();
            // Interleave pairs of rows, then pairs of pairs: 4 x 4 blocks are transposed inside
            // their 128-bit lanes.
            let mut t = [zero; 16];
            for i in 0..8 {
                let a = _mm512_loadu_ps(src.add(2 * i * src_stride));
                let b = _mm512_loadu_ps(src.add((2 * i + 1) * src_stride));
                t[2 * i] = _mm512_unpacklo_ps(a, b);
                t[2 * i + 1] = _mm512_unpackhi_ps(a, b);
            }
            let mut u = [zero; 16];
            for i in 0..4 {
                for h in 0..2 {
                    let (a, b) = (t[4 * i + h], t[4 * i + 2 + h]);
                    u[4 * i + 2 * h] = _mm512_shuffle_ps::<0x44>(a, b);
                    u[4 * i + 2 * h + 1] = _mm512_shuffle_ps::<0xee>(a, b);
                }
            }
            // u[4 * i + j] holds, in 128-bit lane l, column 4 * l + j of rows 4 * i .. 4 * i + 4: a
            // 4 x 4 transpose of 128-bit lanes is left.
            for j in 0..4 {
                let (a, b, c, d) = (u[j], u[4 + j], u[8 + j], u[12 + j]);
                let ab02 = _mm512_shuffle_f32x4::<0x88>(a, b);
                let ab13 = _mm512_shuffle_f32x4::<0xdd>(a, b);
                let cd02 = _mm512_shuffle_f32x4::<0x88>(c, d);
                let cd13 = _mm512_shuffle_f32x4::<0xdd>(c, d);
                let out = [
                    _mm512_shuffle_f32x4::<0x88>(ab02, cd02),
                    _mm512_shuffle_f32x4::<0x88>(ab13, cd13),
                    _mm512_shuffle_f32x4::<0xdd>(ab02, cd02),
                    _mm512_shuffle_f32x4::<0xdd>(ab13, cd13),
                ];
                for (l, v) in out.into_iter().enumerate() {
                    _mm512_storeu_ps(dst.add((4 * l + j) * dst_stride), v);
                }
            }
        }
    }
}

// The unsafe operations below are intrinsics of the set, or accesses to lanes that the caller has
// valid.
impl Vector for __m512d {
    type Element = f64;
    const LANES: usize = 8;

    #[inline(always)]
    unsafe fn splat(x: f64) -> __m512d {
        // SAFETY: see the head of this impl.
        unsafe { _mm512_set1_pd(x) }
    }

    #[inline(always)]
    unsafe fn load(p: *const f64) -> __m512d {
        // SAFETY: see the head of this impl.
        unsafe { _mm512_loadu_pd(p) }
    }

    #[inline(always)]
    unsafe fn store(self, p: *mut f64) {
        // SAFETY: see the head of this impl.
        unsafe { _mm512_storeu_pd(p, self) }
    }

    #[inline(always)]
    unsafe fn fma(self, b: __m512d, c: __m512d) -> __m512d {
        // SAFETY: see the head of this impl.
        unsafe { _mm512_fmadd_pd(self, b, c) }
    }
}

// The unsafe operations below are intrinsics of the set.
impl Integers for __m512i {
    type Floats = __m512;

    #[inline(always)]
    unsafe fn of_bits(floats: __m512) -> __m512i {
        // SAFETY: see the head of this impl.
        unsafe { _mm512_castps_si512(floats) }
    }

    #[inline(always)]
    unsafe fn to_bits(self) -> __m512 {
        // SAFETY: see the head of this impl.
        unsafe { _mm512_castsi512_ps(self) }
    }

    #[inline(always)]
    unsafe fn splat(x: i32) -> __m512i {
        // SAFETY: see the head of this impl.
        unsafe { _mm512_set1_epi32(x) }
    }

    #[inline(always)]
    unsafe fn add(self, other: __m512i) -> __m512i {
        // SAFETY: see the head of this impl.
        unsafe { _mm512_add_epi32(self, other) }
    }

    #[inline(always)]
    unsafe fn and(self, other: __m512i) -> __m512i {
        // SAFETY: see the head of this impl.
        unsafe { _mm512_and_si512(self, other) }
    }

    #[inline(always)]
    unsafe fn or(self, other: __m512i) -> __m512i {
        // SAFETY: see the head of this impl.
        unsafe { _mm512_or_si512(self, other) }
    }

    #[inline(always)]
    unsafe fn shift_right(self, count: u32) -> __m512i {
        // SAFETY: see the head of this impl.
        unsafe { _mm512_srl_epi32(self, _mm_cvtsi32_si128(count.cast_signed())) }
    }

    #[inline(always)]
    unsafe fn shift_left_23(self) -> __m512i {
        // SAFETY: see the head of this impl.
        unsafe { _mm512_slli_epi32::<23>(self) }
    }

    #[inline(always)]
    unsafe fn dot_pairs(self, other: __m512i, sum: __m512i) -> __m512i {
        // SAFETY: see the head of this impl.
        unsafe { _mm512_add_epi32(_mm512_madd_epi16(self, other), sum) }
    }
}

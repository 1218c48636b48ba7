//! [`Simd`] on NEON: 4 lanes, 32 registers.
//!
//! A vector is one register, not a pair. 32 registers take the tile shapes of AVX-512: a product of
//! 12 rows by two vectors has its 24 sums and both operands in registers, and fewer channels are
//! padded. Loops that are not tiles take two vectors at a time already.
//!
//! Nothing is prefetched in software, as prefetch distances were not measured on such a machine.
//!
//! Every processor of the target has NEON, so functions need no attribute.

use std::arch::aarch64::*;

use crate::Isa;
use crate::{Body, Integers, Loop, Simd, Vector};

#[derive(Clone, Copy, Debug)]
pub struct Neon;

// The unsafe operations below are intrinsics of NEON, which the target has, or accesses to lanes
// that the caller has valid.
impl Simd for Neon {
    type V = float32x4_t;
    type F64 = float64x2_t;
    type I32 = int32x4_t;
    type M = usize;
    type Of32 = [uint8x16x4_t; 2];
    const ISA: Isa = Isa::Neon;
    const LANES: usize = 4;
    const FETCHES: bool = false;

    #[inline(always)]
    fn run_loop<L: Loop>(body: L) -> L::Out {
        body.run::<true>()
    }

    #[inline(always)]
    unsafe fn call<B: Body>(body: B) -> B::Out {
        enable!(
            neon,
            #[inline(never)]
            unsafe fn separate<B: Body>(body: B) -> B::Out {
                // SAFETY: the target has NEON; the caller upholds the body's demands.
                unsafe { body.run::<Neon>() }
            }
        );
        // SAFETY: see the head of this impl; the caller upholds the body's demands.
        unsafe { separate(body) }
    }

    #[inline(always)]
    unsafe fn splat(x: f32) -> float32x4_t {
        // SAFETY: see the head of this impl.
        unsafe { vdupq_n_f32(x) }
    }

    #[inline(always)]
    unsafe fn load(p: *const f32) -> float32x4_t {
        // SAFETY: see the head of this impl.
        unsafe { vld1q_f32(p) }
    }

    #[inline(always)]
    unsafe fn store(p: *mut f32, v: float32x4_t) {
        // SAFETY: see the head of this impl.
        unsafe { vst1q_f32(p, v) }
    }

    #[inline(always)]
    unsafe fn first(n: usize) -> usize {
        n.min(4)
    }

    #[inline(always)]
    unsafe fn load_m(p: *const f32, m: usize) -> float32x4_t {
        // SAFETY: see the head of this impl.
        unsafe {
            let zero = vdupq_n_f32(0.0);
            match m {
                0 => zero,
                1 => vld1q_lane_f32::<0>(p, zero),
                2 => vcombine_f32(vld1_f32(p), vdup_n_f32(0.0)),
                3 => {
                    let third = vld1_lane_f32::<0>(p.add(2), vdup_n_f32(0.0));
                    vcombine_f32(vld1_f32(p), third)
                }
                _ => vld1q_f32(p),
            }
        }
    }

    #[inline(always)]
    unsafe fn store_m(p: *mut f32, m: usize, v: float32x4_t) {
        // SAFETY: see the head of this impl; masked lanes are not written.
        unsafe {
            match m {
                0 => {}
                1 => vst1q_lane_f32::<0>(p, v),
                2 => vst1_f32(p, vget_low_f32(v)),
                3 => {
                    vst1_f32(p, vget_low_f32(v));
                    vst1q_lane_f32::<2>(p.add(2), v);
                }
                _ => vst1q_f32(p, v),
            }
        }
    }

    #[inline(always)]
    unsafe fn fma(a: float32x4_t, b: float32x4_t, c: float32x4_t) -> float32x4_t {
        // SAFETY: see the head of this impl.
        unsafe { vfmaq_f32(c, a, b) }
    }

    #[inline(always)]
    unsafe fn add(a: float32x4_t, b: float32x4_t) -> float32x4_t {
        // SAFETY: see the head of this impl.
        unsafe { vaddq_f32(a, b) }
    }

    #[inline(always)]
    unsafe fn mul(a: float32x4_t, b: float32x4_t) -> float32x4_t {
        // SAFETY: see the head of this impl.
        unsafe { vmulq_f32(a, b) }
    }

    #[inline(always)]
    unsafe fn div(a: float32x4_t, b: float32x4_t) -> float32x4_t {
        // SAFETY: see the head of this impl.
        unsafe { vdivq_f32(a, b) }
    }

    #[inline(always)]
    unsafe fn sqrt(a: float32x4_t) -> float32x4_t {
        // SAFETY: see the head of this impl.
        unsafe { vsqrtq_f32(a) }
    }

    #[inline(always)]
    unsafe fn max(a: float32x4_t, b: float32x4_t) -> float32x4_t {
        // SAFETY: see the head of this impl.
        unsafe {
            // `fmax` gives NaN where either is, and takes 0 for more than -0.
            vbslq_f32(vcgtq_f32(a, b), a, b)
        }
    }

    #[inline(always)]
    unsafe fn min(a: float32x4_t, b: float32x4_t) -> float32x4_t {
        // SAFETY: see the head of this impl.
        unsafe {
            // `fmin` gives NaN where either is, and takes -0 for less than 0.
            vbslq_f32(vcltq_f32(a, b), a, b)
        }
    }

    #[inline(always)]
    unsafe fn max_or_nan(a: float32x4_t, b: float32x4_t) -> float32x4_t {
        // SAFETY: see the head of this impl.
        unsafe { vmaxq_f32(a, b) }
    }

    #[inline(always)]
    unsafe fn min_or_nan(a: float32x4_t, b: float32x4_t) -> float32x4_t {
        // SAFETY: see the head of this impl.
        unsafe { vminq_f32(a, b) }
    }

    #[inline(always)]
    unsafe fn select(v: float32x4_t, lanes: u32, p: *const f32, stride: usize) -> float32x4_t {
        // SAFETY: see the head of this impl.
        unsafe {
            let mut v = v;
            if lanes & 0xf == 0xf && stride == 1 {
                return vld1q_f32(p);
            }
            if lanes & 1 != 0 {
                v = vld1q_lane_f32::<0>(p, v);
            }
            if lanes & 2 != 0 {
                v = vld1q_lane_f32::<1>(p.wrapping_add(stride), v);
            }
            if lanes & 4 != 0 {
                v = vld1q_lane_f32::<2>(p.wrapping_add(2 * stride), v);
            }
            if lanes & 8 != 0 {
                v = vld1q_lane_f32::<3>(p.wrapping_add(3 * stride), v);
            }
            v
        }
    }

    #[inline(always)]
    unsafe fn sub(a: float32x4_t, b: float32x4_t) -> float32x4_t {
        // SAFETY: see the head of this impl.
        unsafe { vsubq_f32(a, b) }
    }

    #[inline(always)]
    unsafe fn abs(a: float32x4_t) -> float32x4_t {
        // SAFETY: see the head of this impl.
        unsafe { vabsq_f32(a) }
    }

    #[inline(always)]
    unsafe fn copysign(a: float32x4_t, sign: float32x4_t) -> float32x4_t {
        // SAFETY: see the head of this impl.
        unsafe { vbslq_f32(vdupq_n_u32(1 << 31), sign, a) }
    }

    #[inline(always)]
    unsafe fn load_32(p: *const f32) -> [uint8x16x4_t; 2] {
        // SAFETY: see the head of this impl.
        unsafe {
            let p = p.cast::<u8>();
            [vld1q_u8_x4(p), vld1q_u8_x4(p.add(64))]
        }
    }

    #[inline(always)]
    unsafe fn look_up_32(numbers: Self::Of32, indices: float32x4_t) -> float32x4_t {
        // SAFETY: see the head of this impl.
        unsafe {
            // The bytes of float number i are bytes 4 i to 4 i + 3 of a table of 128.
            let indices = vandq_u32(vreinterpretq_u32_f32(indices), vdupq_n_u32(31));
            let bytes = vmlaq_n_u32(vdupq_n_u32(0x0302_0100), indices, 0x0404_0404);
            let bytes = vreinterpretq_u8_u32(bytes);
            // Bytes beyond a table are zero in the first instruction, and stay in the second.
            let found = vqtbl4q_u8(numbers[0], bytes);
            let found = vqtbx4q_u8(found, numbers[1], vsubq_u8(bytes, vdupq_n_u8(64)));
            vreinterpretq_f32_u8(found)
        }
    }

    #[inline(always)]
    unsafe fn load_f16(p: *const u16) -> float32x4_t {
        // SAFETY: see the head of this impl.
        unsafe { vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(p))) }
    }

    #[inline(always)]
    unsafe fn store_f16(p: *mut u16, v: float32x4_t) {
        // SAFETY: see the head of this impl.
        unsafe { vst1_u16(p, vreinterpret_u16_f16(vcvt_f16_f32(v))) }
    }

    #[inline(always)]
    unsafe fn load_bf16(p: *const u16) -> float32x4_t {
        // SAFETY: see the head of this impl.
        unsafe { vreinterpretq_f32_u32(vshll_n_u16::<16>(vld1_u16(p))) }
    }

    #[inline(always)]
    unsafe fn store_bf16(p: *mut u16, v: float32x4_t) {
        // SAFETY: see the head of this impl.
        unsafe {
            let bits = vreinterpretq_u32_f32(v);
            let odd = vandq_u32(vshrq_n_u32::<16>(bits), vdupq_n_u32(1));
            let rounded = vaddq_u32(bits, vaddq_u32(vdupq_n_u32(0x7fff), odd));
            // Rounding could carry a NaN into infinity.
            let quiet = vorrq_u32(bits, vdupq_n_u32(0x40_0000));
            let words = vbslq_u32(vceqq_f32(v, v), rounded, quiet);
            vst1_u16(p, vshrn_n_u32::<16>(words))
        }
    }

    #[inline(always)]
    unsafe fn sum(v: float32x4_t) -> f32 {
        // SAFETY: see the head of this impl.
        unsafe { vpadds_f32(vadd_f32(vget_low_f32(v), vget_high_f32(v))) }
    }

    #[inline(always)]
    unsafe fn transpose(src: *const f32, src_stride: usize, dst: *mut f32, dst_stride: usize) {
        // SAFETY: see the head of this impl; both blocks are valid.
        unsafe {
            let (a, b) = (vld1q_f32(src), vld1q_f32(src.add(src_stride)));
            let (c, d) = (vld1q_f32(src.add(2 * src_stride)), vld1q_f32(src.add(3 * src_stride)));
            // Pairs of rows, then pairs of pairs.
            let of_pairs =
                [[vtrn1q_f32(a, b), vtrn1q_f32(c, d)], [vtrn2q_f32(a, b), vtrn2q_f32(c, d)]];
            for (j, pair) in of_pairs.into_iter().enumerate() {
                let [ab, cd] = pair.map(|x| vreinterpretq_f64_f32(x));
                let (first, third) = (vtrn1q_f64(ab, cd), vtrn2q_f64(ab, cd));
                vst1q_f32(dst.add(j * dst_stride), vreinterpretq_f32_f64(first));
                vst1q_f32(dst.add((j + 2) * dst_stride), vreinterpretq_f32_f64(third));
            }
        }
    }
}

// The unsafe operations below are intrinsics of NEON, which the target has, or accesses to lanes
// that the caller has valid.
impl Vector for float64x2_t {
    type Element = f64;
    const LANES: usize = 2;

    #[inline(always)]
    unsafe fn splat(x: f64) -> float64x2_t {
        // SAFETY: see the head of this impl.
        unsafe { vdupq_n_f64(x) }
    }

    #[inline(always)]
    unsafe fn load(p: *const f64) -> float64x2_t {
        // SAFETY: see the head of this impl.
        unsafe { vld1q_f64(p) }
    }

    #[inline(always)]
    unsafe fn store(self, p: *mut f64) {
        // SAFETY: see the head of this impl.
        unsafe { vst1q_f64(p, self) }
    }

    #[inline(always)]
    unsafe fn fma(self, b: float64x2_t, c: float64x2_t) -> float64x2_t {
        // SAFETY: see the head of this impl.
        unsafe { vfmaq_f64(c, self, b) }
    }
}

// The unsafe operations below are intrinsics of NEON, which the target has.
impl Integers for int32x4_t {
    type Floats = float32x4_t;

    #[inline(always)]
    unsafe fn of_bits(floats: float32x4_t) -> int32x4_t {
        // SAFETY: see the head of this impl.
        unsafe { vreinterpretq_s32_f32(floats) }
    }

    #[inline(always)]
    unsafe fn to_bits(self) -> float32x4_t {
        // SAFETY: see the head of this impl.
        unsafe { vreinterpretq_f32_s32(self) }
    }

    #[inline(always)]
    unsafe fn splat(x: i32) -> int32x4_t {
        // SAFETY: see the head of this impl.
        unsafe { vdupq_n_s32(x) }
    }

    #[inline(always)]
    unsafe fn add(self, other: int32x4_t) -> int32x4_t {
        // SAFETY: see the head of this impl.
        unsafe { vaddq_s32(self, other) }
    }

    #[inline(always)]
    unsafe fn and(self, other: int32x4_t) -> int32x4_t {
        // SAFETY: see the head of this impl.
        unsafe { vandq_s32(self, other) }
    }

    #[inline(always)]
    unsafe fn or(self, other: int32x4_t) -> int32x4_t {
        // SAFETY: see the head of this impl.
        unsafe { vorrq_s32(self, other) }
    }

    #[inline(always)]
    unsafe fn shift_right(self, count: u32) -> int32x4_t {
        // SAFETY: see the head of this impl.
        unsafe {
            let count = vdupq_n_s32(-count.cast_signed());
            vreinterpretq_s32_u32(vshlq_u32(vreinterpretq_u32_s32(self), count))
        }
    }

    #[inline(always)]
    unsafe fn shift_left_23(self) -> int32x4_t {
        // SAFETY: see the head of this impl.
        unsafe { vshlq_n_s32::<23>(self) }
    }

    #[inline(always)]
    unsafe fn dot_pairs(self, other: int32x4_t, sum: int32x4_t) -> int32x4_t {
        // SAFETY: see the head of this impl.
        unsafe {
            let (a, b) = (vreinterpretq_s16_s32(self), vreinterpretq_s16_s32(other));
            let low = vmull_s16(vget_low_s16(a), vget_low_s16(b));
            vaddq_s32(sum, vpaddq_s32(low, vmull_high_s16(a, b)))
        }
    }
}

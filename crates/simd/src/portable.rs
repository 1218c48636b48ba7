//! [`Simd`] without intrinsics: arrays of four that the compiler maps to SSE2, NEON or scalar code.

use half::{bf16, f16};

use crate::Isa;
use crate::number::{Arith, bf16_to_f32, f16_to_f32, f32_to_f16};
use crate::{Body, Loop, Simd};

#[derive(Clone, Copy, Debug)]
pub struct Portable;

/// Four lanes; aligned so that the compiler may keep it in one register.
#[derive(Clone, Copy, Debug)]
#[repr(align(16))]
pub struct F4([f32; 4]);

#[inline(always)]
fn map2(a: F4, b: F4, f: impl Fn(f32, f32) -> f32) -> F4 {
    F4([f(a.0[0], b.0[0]), f(a.0[1], b.0[1]), f(a.0[2], b.0[2]), f(a.0[3], b.0[3])])
}

impl Simd for Portable {
    type V = F4;
    type M = usize;
    type Of32 = *const f32;
    const ISA: Isa = Isa::Portable;
    const LANES: usize = 4;
    const FETCHES: bool = true;

    #[inline(always)]
    fn run_loop<L: Loop>(body: L) -> L::Out {
        body.run::<false>()
    }

    #[inline(always)]
    unsafe fn call<B: Body>(body: B) -> B::Out {
        enable!(
            portable,
            #[inline(never)]
            unsafe fn apart<B: Body>(body: B) -> B::Out {
                // SAFETY: the caller's promise.
                unsafe { body.run::<Portable>() }
            }
        );
        // SAFETY: see the head of this impl; the rest is the caller's promise.
        unsafe { apart(body) }
    }

    #[inline(always)]
    unsafe fn splat(x: f32) -> F4 {
        F4([x; 4])
    }

    #[inline(always)]
    unsafe fn load(p: *const f32) -> F4 {
        // SAFETY: four readable floats, the caller's promise. Unaligned, as packing reads straight
        // from files.
        F4(unsafe { p.cast::<[f32; 4]>().read_unaligned() })
    }

    #[inline(always)]
    unsafe fn store(p: *mut f32, v: F4) {
        // SAFETY: four writable floats, the caller's promise.
        unsafe { *p.cast::<[f32; 4]>() = v.0 }
    }

    #[inline(always)]
    unsafe fn first(n: usize) -> usize {
        n.min(4)
    }

    #[inline(always)]
    unsafe fn load_m(p: *const f32, m: usize) -> F4 {
        // SAFETY: only the first `m` floats are read.
        unsafe {
            if m == 4 {
                return Self::load(p);
            }
            let mut v = [0.0; 4];
            for (i, x) in v.iter_mut().enumerate().take(m) {
                *x = p.add(i).read_unaligned();
            }
            F4(v)
        }
    }

    #[inline(always)]
    unsafe fn store_m(p: *mut f32, m: usize, v: F4) {
        // SAFETY: only the first `m` floats are written.
        unsafe {
            if m == 4 {
                return Self::store(p, v);
            }
            for (i, x) in v.0.iter().enumerate().take(m) {
                *p.add(i) = *x;
            }
        }
    }

    #[inline(always)]
    unsafe fn fma(a: F4, b: F4, c: F4) -> F4 {
        // Not `mul_add`: without the instruction that is a library call per lane.
        F4([
            a.0[0] * b.0[0] + c.0[0],
            a.0[1] * b.0[1] + c.0[1],
            a.0[2] * b.0[2] + c.0[2],
            a.0[3] * b.0[3] + c.0[3],
        ])
    }

    #[inline(always)]
    unsafe fn add(a: F4, b: F4) -> F4 {
        map2(a, b, |a, b| a + b)
    }

    #[inline(always)]
    unsafe fn sub(a: F4, b: F4) -> F4 {
        map2(a, b, |a, b| a - b)
    }

    #[inline(always)]
    unsafe fn abs(a: F4) -> F4 {
        F4(a.0.map(f32::abs))
    }

    #[inline(always)]
    unsafe fn copysign(a: F4, sign: F4) -> F4 {
        map2(a, sign, f32::copysign)
    }

    #[inline(always)]
    unsafe fn load_32(p: *const f32) -> *const f32 {
        p
    }

    #[inline(always)]
    unsafe fn look_up_32(numbers: *const f32, indices: F4) -> F4 {
        // SAFETY: indices of 5 bits are inside the table.
        F4(indices.0.map(|index| unsafe { *numbers.add(index.to_bits() as usize & 31) }))
    }

    #[inline(always)]
    unsafe fn mul(a: F4, b: F4) -> F4 {
        map2(a, b, |a, b| a * b)
    }

    #[inline(always)]
    unsafe fn div(a: F4, b: F4) -> F4 {
        map2(a, b, |a, b| a / b)
    }

    #[inline(always)]
    unsafe fn sqrt(a: F4) -> F4 {
        F4(a.0.map(f32::sqrt))
    }

    #[inline(always)]
    unsafe fn add_i32(a: F4, b: F4) -> F4 {
        map2(a, b, |a, b| f32::from_bits(a.to_bits().wrapping_add(b.to_bits())))
    }

    #[inline(always)]
    unsafe fn low_bits_power(v: F4) -> F4 {
        F4(v.0.map(|x| f32::from_bits(x.to_bits() << 23)))
    }

    #[inline(always)]
    unsafe fn dot_i16(a: F4, b: F4, c: F4) -> F4 {
        let products = map2(a, b, |a, b| {
            let (a, b) = (a.to_bits().cast_signed(), b.to_bits().cast_signed());
            // The earlier step is the lower half.
            let (first, second) =
                (i32::from(a as i16) * i32::from(b as i16), (a >> 16) * (b >> 16));
            f32::from_bits(first.wrapping_add(second).cast_unsigned())
        });
        // SAFETY: plain arithmetic.
        unsafe { Self::add_i32(products, c) }
    }

    #[inline(always)]
    unsafe fn max(a: F4, b: F4) -> F4 {
        map2(a, b, |a, b| if a > b { a } else { b })
    }

    #[inline(always)]
    unsafe fn min(a: F4, b: F4) -> F4 {
        map2(a, b, |a, b| if a < b { a } else { b })
    }

    #[inline(always)]
    unsafe fn max_or_nan(a: F4, b: F4) -> F4 {
        map2(a, b, Arith::max)
    }

    #[inline(always)]
    unsafe fn min_or_nan(a: F4, b: F4) -> F4 {
        map2(a, b, Arith::min)
    }

    #[inline(always)]
    unsafe fn select(mut v: F4, lanes: u32, p: *const f32, stride: usize) -> F4 {
        for (i, x) in v.0.iter_mut().enumerate() {
            if lanes >> i & 1 != 0 {
                // SAFETY: selected lanes are readable, the caller's promise.
                *x = unsafe { p.wrapping_add(i * stride).read_unaligned() };
            }
        }
        v
    }

    #[inline(always)]
    unsafe fn load_f16(p: *const u16) -> F4 {
        // SAFETY: four readable halves, the caller's promise.
        let halves = unsafe { p.cast::<[u16; 4]>().read_unaligned() };
        F4(halves.map(|x| f16_to_f32(f16::from_bits(x))))
    }

    #[inline(always)]
    unsafe fn store_f16(p: *mut u16, v: F4) {
        let halves = v.0.map(|x| f32_to_f16(x).to_bits());
        // SAFETY: four writable halves, the caller's promise.
        unsafe { p.cast::<[u16; 4]>().write_unaligned(halves) }
    }

    #[inline(always)]
    unsafe fn load_bf16(p: *const u16) -> F4 {
        // SAFETY: four readable halves, the caller's promise.
        let halves = unsafe { p.cast::<[u16; 4]>().read_unaligned() };
        F4(halves.map(|x| bf16_to_f32(bf16::from_bits(x))))
    }

    #[inline(always)]
    unsafe fn sum(v: F4) -> f32 {
        (v.0[0] + v.0[2]) + (v.0[1] + v.0[3])
    }

    #[inline(always)]
    unsafe fn transpose(src: *const f32, src_stride: usize, dst: *mut f32, dst_stride: usize) {
        for i in 0..4 {
            for j in 0..4 {
                // SAFETY: both blocks are valid, the caller's promise.
                unsafe {
                    *dst.add(j * dst_stride + i) = src.add(i * src_stride + j).read_unaligned();
                }
            }
        }
    }
}

//! [`Simd`] without intrinsics: arrays of four lanes that the compiler maps to SSE2, NEON or scalar
//! code.

use half::{bf16, f16};

use crate::Isa;
use crate::number::{Arith, bf16_to_f32, f16_to_f32, f32_to_f16};
use crate::{Body, Integers, Loop, Simd, Vector};

#[derive(Clone, Copy, Debug)]
pub struct Portable;

/// Four lanes, aligned so that the compiler may keep them in one register.
#[derive(Clone, Copy, Debug)]
#[repr(align(16))]
pub struct F4([f32; 4]);

#[inline(always)]
fn map2(a: F4, b: F4, f: impl Fn(f32, f32) -> f32) -> F4 {
    F4([f(a.0[0], b.0[0]), f(a.0[1], b.0[1]), f(a.0[2], b.0[2]), f(a.0[3], b.0[3])])
}

impl Simd for Portable {
    type V = F4;
    type F64 = D2;
    type I32 = I4;
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
            unsafe fn separate<B: Body>(body: B) -> B::Out {
                // SAFETY: the caller upholds the body's demands.
                unsafe { body.run::<Portable>() }
            }
        );
        // SAFETY: every machine has the instructions of the target; the caller upholds the body's
        // demands.
        unsafe { separate(body) }
    }

    #[inline(always)]
    unsafe fn splat(x: f32) -> F4 {
        F4([x; 4])
    }

    #[inline(always)]
    unsafe fn load(p: *const f32) -> F4 {
        // SAFETY: the caller has four readable floats at `p`. Unaligned, as packing reads straight
        // from files.
        F4(unsafe { p.cast::<[f32; 4]>().read_unaligned() })
    }

    #[inline(always)]
    unsafe fn store(p: *mut f32, v: F4) {
        // SAFETY: the caller has four writable floats at `p`.
        unsafe { *p.cast::<[f32; 4]>() = v.0 }
    }

    #[inline(always)]
    unsafe fn first(n: usize) -> usize {
        n.min(4)
    }

    #[inline(always)]
    unsafe fn load_m(p: *const f32, m: usize) -> F4 {
        // SAFETY: only the first `m` floats are read, which the caller has at `p`.
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
        // SAFETY: only the first `m` floats are written, which the caller has at `p`.
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
                // SAFETY: the caller has the selected lanes readable.
                *x = unsafe { p.wrapping_add(i * stride).read_unaligned() };
            }
        }
        v
    }

    #[inline(always)]
    unsafe fn load_f16(p: *const u16) -> F4 {
        // SAFETY: the caller has four readable halves at `p`.
        let halves = unsafe { p.cast::<[u16; 4]>().read_unaligned() };
        F4(halves.map(|x| f16_to_f32(f16::from_bits(x))))
    }

    #[inline(always)]
    unsafe fn store_f16(p: *mut u16, v: F4) {
        let halves = v.0.map(|x| f32_to_f16(x).to_bits());
        // SAFETY: the caller has four writable halves at `p`.
        unsafe { p.cast::<[u16; 4]>().write_unaligned(halves) }
    }

    #[inline(always)]
    unsafe fn load_bf16(p: *const u16) -> F4 {
        // SAFETY: the caller has four readable halves at `p`.
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
                // SAFETY: the caller has both blocks valid.
                unsafe {
                    *dst.add(j * dst_stride + i) = src.add(i * src_stride + j).read_unaligned();
                }
            }
        }
    }
}

/// Two lanes of doubles, aligned so that the compiler may keep them in one register.
#[derive(Clone, Copy, Debug)]
#[repr(align(16))]
pub struct D2([f64; 2]);

impl Vector for D2 {
    type Element = f64;
    const LANES: usize = 2;

    #[inline(always)]
    unsafe fn splat(x: f64) -> D2 {
        D2([x; 2])
    }

    #[inline(always)]
    unsafe fn load(p: *const f64) -> D2 {
        // SAFETY: the caller has two readable doubles at `p`.
        D2(unsafe { p.cast::<[f64; 2]>().read_unaligned() })
    }

    #[inline(always)]
    unsafe fn store(self, p: *mut f64) {
        // SAFETY: the caller has two writable doubles at `p`.
        unsafe { p.cast::<[f64; 2]>().write_unaligned(self.0) }
    }

    #[inline(always)]
    unsafe fn fma(self, b: D2, c: D2) -> D2 {
        // Not `mul_add`: without the instruction that is a library call per lane.
        D2([self.0[0] * b.0[0] + c.0[0], self.0[1] * b.0[1] + c.0[1]])
    }
}

/// Four lanes of integers, aligned so that the compiler may keep them in one register.
#[derive(Clone, Copy, Debug)]
#[repr(align(16))]
pub struct I4([i32; 4]);

impl Integers for I4 {
    type Floats = F4;

    #[inline(always)]
    unsafe fn of_bits(floats: F4) -> I4 {
        I4(floats.0.map(|x| x.to_bits().cast_signed()))
    }

    #[inline(always)]
    unsafe fn to_bits(self) -> F4 {
        F4(self.0.map(|x| f32::from_bits(x.cast_unsigned())))
    }

    #[inline(always)]
    unsafe fn splat(x: i32) -> I4 {
        I4([x; 4])
    }

    #[inline(always)]
    unsafe fn add(self, other: I4) -> I4 {
        I4(std::array::from_fn(|i| self.0[i].wrapping_add(other.0[i])))
    }

    #[inline(always)]
    unsafe fn and(self, other: I4) -> I4 {
        I4(std::array::from_fn(|i| self.0[i] & other.0[i]))
    }

    #[inline(always)]
    unsafe fn or(self, other: I4) -> I4 {
        I4(std::array::from_fn(|i| self.0[i] | other.0[i]))
    }

    #[inline(always)]
    unsafe fn shift_right(self, count: u32) -> I4 {
        I4(self.0.map(|x| (x.cast_unsigned() >> count).cast_signed()))
    }

    #[inline(always)]
    unsafe fn shift_left_23(self) -> I4 {
        I4(self.0.map(|x| x << 23))
    }

    #[inline(always)]
    unsafe fn dot_pairs(self, other: I4, sum: I4) -> I4 {
        I4(std::array::from_fn(|i| {
            let (a, b) = (self.0[i], other.0[i]);
            // The earlier step is the lower half.
            let first = i32::from(a as i16) * i32::from(b as i16);
            sum.0[i].wrapping_add(first).wrapping_add((a >> 16).wrapping_mul(b >> 16))
        }))
    }
}

//! Tests of every operation on every instruction set of the machine against its definition for one
//! number.

use crate::{Body, Integers, Isa, Simd, Vector, dispatch};

/// Returns numbers with both zeros, infinities and NaN, starting `offset` places into the sequence.
fn numbers(offset: usize) -> [f32; 64] {
    let special = [0.0, -0.0, 1.5, -2.25, f32::INFINITY, f32::NEG_INFINITY, f32::NAN, 1e-40, -7.0];
    std::array::from_fn(|i| match (i + offset) % 13 {
        index if index < special.len() => special[index],
        index => (i * 7 + index) as f32 / 8.0 - 3.0,
    })
}

/// Runs a body on each instruction set.
fn on_each_isa(body: impl Body<Out = ()> + Copy) {
    for &isa in Isa::available() {
        // SAFETY: the machine has the set, and the bodies below have no other demands.
        unsafe { dispatch(isa, body) };
    }
}

/// Whether both are one number or NaN.
fn is_same(a: f32, b: f32) -> bool {
    a.to_bits() == b.to_bits() || a.is_nan() && b.is_nan()
}

/// Copies the lanes of a vector.
///
/// # Safety
///
/// The demands of [`Simd`] must hold.
#[inline(always)]
unsafe fn copy_lanes<S: Simd>(v: S::V) -> [f32; 16] {
    let mut lanes = [0.0; 16];
    // SAFETY: the caller runs on a machine with `S`; a vector has at most 16 lanes.
    unsafe { S::store(lanes.as_mut_ptr(), v) };
    lanes
}

/// Compares the lanes of a vector with the definition for one lane.
///
/// # Safety
///
/// The demands of [`Simd`] must hold.
#[inline(always)]
unsafe fn check<S: Simd>(name: &str, found: S::V, one: impl Fn(usize) -> f32) {
    // SAFETY: the caller runs on a machine with `S`.
    let found = unsafe { copy_lanes::<S>(found) };
    for (lane, found) in found.into_iter().enumerate().take(S::LANES) {
        let (expected, isa) = (one(lane), S::ISA);
        assert!(
            is_same(found, expected),
            "{name} on {isa:?}, lane {lane}: {found:e}, {expected:e}"
        );
    }
}

#[derive(Clone, Copy)]
struct Arithmetic;

impl Body for Arithmetic {
    type Out = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        for offset in 0..13 {
            let (a, b, c) = (numbers(offset), numbers(3 * offset + 1), numbers(5 * offset + 2));
            // SAFETY: the machine has the instruction set; 16 numbers are there.
            unsafe {
                let (x, y) = (S::load(a.as_ptr()), S::load(b.as_ptr()));
                check::<S>("add", S::add(x, y), |i| a[i] + b[i]);
                check::<S>("sub", S::sub(x, y), |i| a[i] - b[i]);
                check::<S>("mul", S::mul(x, y), |i| a[i] * b[i]);
                check::<S>("div", S::div(x, y), |i| a[i] / b[i]);
                check::<S>("sqrt", S::sqrt(x), |i| a[i].sqrt());
                check::<S>("abs", S::abs(x), |i| a[i].abs());
                check::<S>("splat", S::splat(a[1]), |_| a[1]);
                check::<S>("copysign", S::copysign(x, y), |i| a[i].copysign(b[i]));
                check::<S>("max", S::max(x, y), |i| if a[i] > b[i] { a[i] } else { b[i] });
                check::<S>("min", S::min(x, y), |i| if a[i] < b[i] { a[i] } else { b[i] });
                let z = S::load(c.as_ptr());
                let is_fused = S::ISA != Isa::Portable;
                check::<S>("fma", S::fma(x, y, z), |i| {
                    if is_fused { a[i].mul_add(b[i], c[i]) } else { a[i] * b[i] + c[i] }
                });
                for (name, found, is_max) in
                    [("max", S::max_or_nan(x, y), true), ("min", S::min_or_nan(x, y), false)]
                {
                    for (i, found) in copy_lanes::<S>(found).iter().enumerate().take(S::LANES) {
                        let (a, b) = (a[i], b[i]);
                        let expected = match () {
                            () if a.is_nan() || b.is_nan() => f32::NAN,
                            () if is_max => a.max(b),
                            () => a.min(b),
                        };
                        // Either sign of zero is correct.
                        let fits = is_same(*found, expected) || *found == 0.0 && expected == 0.0;
                        assert!(fits, "{name}_or_nan({a:e}, {b:e}) on {:?} is {found:e}", S::ISA);
                    }
                }
            }
        }
    }
}

#[derive(Clone, Copy)]
struct Masks;

impl Body for Masks {
    type Out = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        for count in 0..=S::LANES + 1 {
            let given: Vec<f32> = (1..=count.min(S::LANES)).map(|i| i as f32).collect();
            let mut stored = vec![-1.0; S::LANES];
            let mut partly = given.clone();
            // SAFETY: the machine has the instruction set; lanes that the mask leaves out are
            // beyond the ends of `given` and `partly`.
            unsafe {
                let mask = S::first(count);
                let v = S::load_m(given.as_ptr(), mask);
                S::store(stored.as_mut_ptr(), v);
                S::store_m(partly.as_mut_ptr(), mask, S::add(v, S::splat(1.0)));
            }
            for (i, x) in stored.iter().enumerate() {
                let expected = given.get(i).copied().unwrap_or(0.0);
                assert_eq!(*x, expected, "{count} lanes on {:?}", S::ISA);
            }
            let more: Vec<f32> = given.iter().map(|x| x + 1.0).collect();
            assert_eq!(partly, more, "{count} lanes on {:?}", S::ISA);
        }
        let from: Vec<f32> = (0u8..120).map(f32::from).collect();
        for stride in 1..8 {
            for lanes in (0..1u32 << S::LANES).step_by(if S::LANES > 8 { 37 } else { 1 }) {
                let mut found = [0.0; 16];
                // SAFETY: 15 * 7 is inside.
                unsafe {
                    let v = S::select(S::splat(-1.0), lanes, from.as_ptr(), stride);
                    S::store(found.as_mut_ptr(), v);
                }
                for (i, x) in found.iter().enumerate().take(S::LANES) {
                    let expected = if lanes >> i & 1 != 0 { from[i * stride] } else { -1.0 };
                    assert_eq!(*x, expected, "{lanes:#b}, stride {stride} on {:?}", S::ISA);
                }
            }
        }
    }
}

#[derive(Clone, Copy)]
struct Moves;

impl Body for Moves {
    type Out = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        let from: Vec<f32> = (0u16..400).map(f32::from).collect();
        let mut to = vec![0.0; 400];
        let mut found = [0.0; 16];
        for first in 0..40u32 {
            let indices: [f32; 16] =
                std::array::from_fn(|i| f32::from_bits((first + 11 * i as u32) | 0xffff_ff00));
            // SAFETY: the machine has the instruction set; blocks of 16 rows 20 apart are inside.
            unsafe {
                let v = S::look_up_32(S::load_32(from.as_ptr()), S::load(indices.as_ptr()));
                S::store(found.as_mut_ptr(), v);
                S::transpose(from.as_ptr(), 20, to.as_mut_ptr(), 17);
                assert_eq!(
                    S::sum(S::load(from[1..].as_ptr())),
                    (1..=S::LANES).sum::<usize>() as f32
                );
            }
            for (index, x) in indices.iter().zip(found).take(S::LANES) {
                assert_eq!(x, from[index.to_bits() as usize & 31], "{:?}", S::ISA);
            }
        }
        for i in 0..S::LANES {
            for j in 0..S::LANES {
                assert_eq!(to[j * 17 + i], from[i * 20 + j], "{:?}", S::ISA);
            }
        }
    }
}

/// Returns words whose bits differ everywhere.
fn words(salt: u32) -> [u32; 16] {
    std::array::from_fn(|i| (i as u32 + salt).wrapping_mul(0x9e37_79b9).rotate_left(7))
}

/// Adds the products of both integers of 16 bits.
fn add_pairs(a: u32, b: u32, sum: u32) -> u32 {
    let low = i32::from(a as i16).wrapping_mul(i32::from(b as i16));
    let high = i32::from((a >> 16) as i16).wrapping_mul(i32::from((b >> 16) as i16));
    sum.wrapping_add_signed(low).wrapping_add_signed(high)
}

/// Compares the lanes of a vector of integers with the definition for one lane.
///
/// # Safety
///
/// The demands of [`Simd`] must hold.
#[inline(always)]
unsafe fn check_words<S: Simd>(name: &str, found: S::I32, one: impl Fn(usize) -> u32) {
    // SAFETY: the caller runs on a machine with `S`.
    let found = unsafe { copy_lanes::<S>(found.to_bits()) };
    for (i, x) in found.iter().enumerate().take(S::LANES) {
        assert_eq!(x.to_bits(), one(i), "{name} on {:?}", S::ISA);
    }
}

#[derive(Clone, Copy)]
struct OfIntegers;

impl Body for OfIntegers {
    type Out = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        let (a, b, c) = (words(1), words(50), words(99));
        // SAFETY: the machine has the instruction set; words are as large as floats.
        unsafe {
            let x = S::I32::of_bits(S::load(a.as_ptr().cast()));
            let y = S::I32::of_bits(S::load(b.as_ptr().cast()));
            let z = S::I32::of_bits(S::load(c.as_ptr().cast()));
            check_words::<S>("add", x.add(y), |i| a[i].wrapping_add(b[i]));
            check_words::<S>("and", x.and(y), |i| a[i] & b[i]);
            check_words::<S>("or", x.or(y), |i| a[i] | b[i]);
            check_words::<S>("splat", S::I32::splat(-5), |_| (-5i32).cast_unsigned());
            check_words::<S>("shift_right", x.shift_right(4), |i| a[i] >> 4);
            check_words::<S>("shift_right", x.shift_right(0), |i| a[i]);
            check_words::<S>("shift_left_23", x.shift_left_23(), |i| a[i] << 23);
            check_words::<S>("dot_pairs", x.dot_pairs(y, z), |i| add_pairs(a[i], b[i], c[i]));
            let doubles: [f64; 8] = std::array::from_fn(|i| i as f64 + 0.1);
            let mut found = [0.0; 8];
            let v = S::F64::load(doubles.as_ptr());
            v.fma(S::F64::splat(3.0), v).store(found.as_mut_ptr());
            for (x, found) in doubles.iter().zip(found).take(S::F64::LANES) {
                let [fused, apart] = [x.mul_add(3.0, *x), x * 3.0 + x];
                assert_eq!(found, if S::ISA == Isa::Portable { apart } else { fused });
            }
        }
    }
}

#[test]
fn arithmetic_is_that_of_numbers() {
    on_each_isa(Arithmetic);
}

#[test]
fn masks_leave_out_lanes() {
    on_each_isa(Masks);
}

#[test]
fn lanes_move_to_their_places() {
    on_each_isa(Moves);
}

#[test]
fn integers_wrap() {
    on_each_isa(OfIntegers);
}

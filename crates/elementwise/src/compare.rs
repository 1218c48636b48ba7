//! Comparisons, logic on booleans (bytes 0 and 1), bit operations, and selection between two
//! operands.

use std::mem::transmute_copy;

use super::broadcast::{BLOCK, Operand, Strided, Way, for_each_piece, gather};
use sardonyx_simd::chunks::fill;
use sardonyx_simd::number::{Arith as _, Number};
use sardonyx_simd::{Ended, Exec, Pool};
use sardonyx_simd::{Level, Loop};

/// Comparison. All are false if an operand is NaN.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compare {
    Equal,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

/// Operation on booleans.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Logic {
    And,
    Or,
    Xor,
}

/// Operation on the bits of integers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bitwise {
    And,
    Or,
    Xor,
    /// Left shift, which shifts zeros in. A shift by the width or more, or by a negative number,
    /// gives 0.
    ShiftLeft,
    /// Right shift, which shifts zeros in, or copies of the sign for signed types. A shift by the
    /// width or more, or by a negative number, leaves only these.
    ShiftRight,
}

/// Computes `out = op(a, b)` as 0 or 1. Operands are broadcast like those of
/// [`binary`](super::binary).
///
/// # Panics
///
/// If the length of `out` is not the product of `dims`, a stride list has another length than
/// `dims`, or an operand is too short for its strides.
pub fn compare<T: Number>(
    exec: &Exec<'_>,
    op: Compare,
    dims: &[usize],
    a: Strided<'_, T>,
    b: Strided<'_, T>,
    out: &mut [u8],
) -> Result<(), Ended> {
    let &Exec { pool, isa, .. } = exec;
    let level = Level::new(isa);
    rows(pool, dims, a, b, out, |a, b, out| {
        if const { size_of::<T>() == size_of::<T::Wide>() } {
            return compare_row(level, op, a, b, out);
        }
        // Narrow floats are widened for the loops of f32.
        let (mut wide_a, mut wide_b) = ([T::Wide::ZERO; BLOCK], [T::Wide::ZERO; BLOCK]);
        for (i, out) in out.chunks_mut(BLOCK).enumerate() {
            let (start, n) = (i * BLOCK, out.len());
            let a = a.part(start, n).widen(level, &mut wide_a);
            let b = b.part(start, n).widen(level, &mut wide_b);
            compare_row(level, op, a, b, out);
        }
    })
}

/// Compares the elements of a row.
fn compare_row<T: Number>(
    level: Level,
    op: Compare,
    a: Operand<'_, T>,
    b: Operand<'_, T>,
    out: &mut [u8],
) {
    macro_rules! run {
        ($holds:ident) => {
            T::run(level, Row::<_, _, $holds> { a, b, out, op: $holds })
        };
    }
    match op {
        Compare::Equal => run!(Equal),
        Compare::Less => run!(Less),
        Compare::LessOrEqual => run!(LessOrEqual),
        Compare::Greater => run!(Greater),
        Compare::GreaterOrEqual => run!(GreaterOrEqual),
    }
}

/// Computes `out = op(a, b)` on booleans in bytes, of which 0 is false and others are true; `out`
/// receives 0 and 1. Operands are broadcast like those of [`binary`](super::binary).
///
/// # Panics
///
/// If the length of `out` is not the product of `dims`, a stride list has another length than
/// `dims`, or an operand is too short for its strides.
pub fn logic(
    exec: &Exec<'_>,
    op: Logic,
    dims: &[usize],
    a: Strided<'_, u8>,
    b: Strided<'_, u8>,
    out: &mut [u8],
) -> Result<(), Ended> {
    let &Exec { pool, isa, .. } = exec;
    let level = Level::new(isa);
    rows(pool, dims, a, b, out, |a, b, out| match op {
        Logic::And => level.run_avx2(Row { a, b, out, op: AndBool }),
        Logic::Or => level.run_avx2(Row { a, b, out, op: OrBool }),
        Logic::Xor => level.run_avx2(Row { a, b, out, op: XorBool }),
    })
}

/// Computes `out = op(a, b)` on integers. Operands are broadcast like those of
/// [`binary`](super::binary).
///
/// # Panics
///
/// If the length of `out` is not the product of `dims`, a stride list has another length than
/// `dims`, or an operand is too short for its strides.
pub fn bitwise<T: Integer>(
    exec: &Exec<'_>,
    op: Bitwise,
    dims: &[usize],
    a: Strided<'_, T>,
    b: Strided<'_, T>,
    out: &mut [T],
) -> Result<(), Ended> {
    let &Exec { pool, isa, .. } = exec;
    let level = Level::new(isa);
    rows(pool, dims, a, b, out, |a, b, out| match op {
        Bitwise::And => T::run(level, Row { a, b, out, op: AndBits }),
        Bitwise::Or => T::run(level, Row { a, b, out, op: OrBits }),
        Bitwise::Xor => T::run(level, Row { a, b, out, op: XorBits }),
        Bitwise::ShiftLeft => T::run(level, Row { a, b, out, op: ShiftLeft }),
        Bitwise::ShiftRight => T::run(level, Row { a, b, out, op: ShiftRight }),
    })
}

/// Writes 1 for zeros in `x` and 0 for other elements.
///
/// # Panics
///
/// If the lengths differ.
pub fn not(pool: &Pool, x: &[u8], out: &mut [u8]) -> Result<(), Ended> {
    test_each(pool, x, out, |x| x == 0)
}

/// Writes 1 for NaN in `x` and 0 for other elements.
///
/// # Panics
///
/// If the lengths differ.
pub fn is_nan<T: Number>(pool: &Pool, x: &[T], out: &mut [u8]) -> Result<(), Ended> {
    test_each(pool, x, out, |x| x.widen().is_nan())
}

/// Writes 1 for minus infinity (if `negative`) and infinity (if `positive`) in `x`, and 0 for other
/// elements.
///
/// # Panics
///
/// If the lengths differ.
pub fn is_inf<T: Number>(
    pool: &Pool,
    negative: bool,
    positive: bool,
    x: &[T],
    out: &mut [u8],
) -> Result<(), Ended> {
    test_each(pool, x, out, |x| {
        T::IS_FLOAT && ((negative && x == T::LOWEST) || (positive && x == T::HIGHEST))
    })
}

/// Writes whether each element passes a test, as 0 or 1.
fn test_each<T: Copy + Sync>(
    pool: &Pool,
    x: &[T],
    out: &mut [u8],
    holds: impl Fn(T) -> bool + Sync,
) -> Result<(), Ended> {
    assert_eq!(x.len(), out.len(), "one output per input");
    fill(pool, out, 1, |start, out| {
        for (out, &x) in out.iter_mut().zip(&x[start..]) {
            *out = u8::from(holds(x));
        }
    })
}

/// Selects elements: `out = a` where `condition` is not zero, else `b`. All three are broadcast
/// like operands of [`binary`](super::binary).
///
/// Elements are only copied, so `T` may be any plain type of their width.
///
/// # Panics
///
/// If the length of `out` is not the product of `dims`, a stride list has another length than
/// `dims`, or an operand is too short for its strides.
pub fn select<T: Copy + Default + Send + Sync>(
    pool: &Pool,
    dims: &[usize],
    condition: Strided<'_, u8>,
    a: Strided<'_, T>,
    b: Strided<'_, T>,
    out: &mut [T],
) -> Result<(), Ended> {
    assert_eq!(out.len(), dims.iter().product(), "the output has other dims");
    let mut walk = None;
    let strides = [condition.strides, a.strides, b.strides];
    let (condition, a, b) = (condition.data, a.data, b.data);
    let way = Way::new(dims, strides, [condition.len(), a.len(), b.len()], &mut walk);
    let [step_c, step_a, step_b] = way.steps();
    fill(pool, out, 2, |start, out| {
        let mut flags = [0; BLOCK];
        let (mut block_a, mut block_b) = ([T::default(); BLOCK], [T::default(); BLOCK]);
        way.rows(start, start + out.len(), |[at_c, at_a, at_b], at, n| {
            for (i, out) in out[at - start..][..n].chunks_mut(BLOCK).enumerate() {
                let first = i * BLOCK;
                let n = out.len();
                let a = gather(&a[at_a + first * step_a..], step_a, n, &mut block_a);
                let b = gather(&b[at_b + first * step_b..], step_b, n, &mut block_b);
                match gather(&condition[at_c + first * step_c..], step_c, n, &mut flags) {
                    Operand::Constant(0) => copy_operand(b, out),
                    Operand::Constant(_) => copy_operand(a, out),
                    Operand::Slice(flags) => choose(flags, out, a, b),
                }
            }
        });
    })
}

/// Writes an operand to `out`.
fn copy_operand<T: Copy>(x: Operand<'_, T>, out: &mut [T]) {
    match x {
        Operand::Slice(x) => out.copy_from_slice(x),
        Operand::Constant(x) => out.fill(x),
    }
}

/// Writes elements of `a` where flags are not 0, else those of `b`.
#[inline(always)]
fn choose<T: Copy>(flags: &[u8], out: &mut [T], a: Operand<'_, T>, b: Operand<'_, T>) {
    let n = flags.len().min(out.len());
    let (flags, out) = (&flags[..n], &mut out[..n]);
    // Constants stay in registers: rows are often shorter than a block of copies.
    match (a, b) {
        (Operand::Slice(a), Operand::Slice(b)) => {
            let (a, b) = (&a[..n], &b[..n]);
            choose_by(flags, out, |i| a[i], |i| b[i]);
        }
        (Operand::Slice(a), Operand::Constant(b)) => {
            let a = &a[..n];
            choose_by(flags, out, |i| a[i], |_| b);
        }
        (Operand::Constant(a), Operand::Slice(b)) => {
            let b = &b[..n];
            choose_by(flags, out, |_| a, |i| b[i]);
        }
        (Operand::Constant(a), Operand::Constant(b)) => choose_by(flags, out, |_| a, |_| b),
    }
}

/// Writes `a(i)` where flag `i` is not 0, else `b(i)`, as integers of their size: selecting floats,
/// or pairs of bytes, compiles to a branch for each element.
#[inline(always)]
fn choose_by<T: Copy>(flags: &[u8], out: &mut [T], a: impl Fn(usize) -> T, b: impl Fn(usize) -> T) {
    macro_rules! choose_as {
        ($t:ty) => {{
            for (i, (out, flag)) in out.iter_mut().zip(flags).enumerate() {
                // SAFETY: the integer has the size of the element, of which all bytes are kept.
                unsafe {
                    let (a, b) = (transmute_copy::<T, $t>(&a(i)), transmute_copy::<T, $t>(&b(i)));
                    let mask = <$t>::from(*flag != 0).wrapping_neg();
                    *out = transmute_copy(&(b ^ ((a ^ b) & mask)));
                }
            }
        }};
    }
    match const { size_of::<T>() } {
        1 => choose_as!(u8),
        2 => choose_as!(u16),
        4 => choose_as!(u32),
        8 => choose_as!(u64),
        _ => {
            for (i, (out, flag)) in out.iter_mut().zip(flags).enumerate() {
                *out = if *flag != 0 { a(i) } else { b(i) };
            }
        }
    }
}

/// Computes `row` for all rows of two operands, for operations whose output type differs from
/// theirs.
fn rows<T: Copy + Default + Sync, O: Send>(
    pool: &Pool,
    dims: &[usize],
    a: Strided<'_, T>,
    b: Strided<'_, T>,
    out: &mut [O],
    row: impl Fn(Operand<'_, T>, Operand<'_, T>, &mut [O]) + Sync,
) -> Result<(), Ended> {
    assert_eq!(out.len(), dims.iter().product(), "the output has other dims");
    let mut walk = None;
    let way = Way::new(dims, [a.strides, b.strides], [a.data.len(), b.data.len()], &mut walk);
    let (a, b) = (a.data, b.data);
    let steps = way.steps();
    fill(pool, out, 1, |start, out| {
        way.rows(start, start + out.len(), |[at_a, at_b], at, n| {
            let out = &mut out[at - start..][..n];
            for_each_piece(&a[at_a..], &b[at_b..], steps, out, &row);
        });
    })
}

/// Operation on two elements.
trait Test<T, O>: Copy {
    /// Computes the operation.
    fn apply(self, a: T, b: T) -> O;
}

/// Loop over one row.
struct Row<'a, T, O, F> {
    a: Operand<'a, T>,
    b: Operand<'a, T>,
    out: &'a mut [O],
    op: F,
}

impl<T: Copy, O: Copy, F: Test<T, O>> Loop for Row<'_, T, O, F> {
    type Out = ();
    #[inline(always)]
    fn run<const FMA: bool>(self) {
        let (op, out) = (self.op, self.out);
        match (self.a, self.b) {
            (Operand::Slice(a), Operand::Slice(b)) => {
                for ((out, a), b) in out.iter_mut().zip(a).zip(b) {
                    *out = op.apply(*a, *b);
                }
            }
            (Operand::Slice(a), Operand::Constant(b)) => {
                for (out, a) in out.iter_mut().zip(a) {
                    *out = op.apply(*a, b);
                }
            }
            (Operand::Constant(a), Operand::Slice(b)) => {
                for (out, b) in out.iter_mut().zip(b) {
                    *out = op.apply(a, *b);
                }
            }
            (Operand::Constant(a), Operand::Constant(b)) => out.fill(op.apply(a, b)),
        }
    }
}

macro_rules! tests_of_two {
    ($($name:ident: $bound:ident -> $out:ty, |$a:ident, $b:ident| $value:expr;)*) => { $(
        #[derive(Clone, Copy)]
        struct $name;
        impl<T: $bound> Test<T, $out> for $name {
            #[inline(always)]
            fn apply(self, $a: T, $b: T) -> $out { $value }
        }
    )* };
}

tests_of_two! {
    Equal: Number -> u8, |a, b| u8::from(a.widen() == b.widen());
    Less: Number -> u8, |a, b| u8::from(a.widen() < b.widen());
    LessOrEqual: Number -> u8, |a, b| u8::from(a.widen() <= b.widen());
    Greater: Number -> u8, |a, b| u8::from(a.widen() > b.widen());
    GreaterOrEqual: Number -> u8, |a, b| u8::from(a.widen() >= b.widen());
    AndBits: Integer -> T, |a, b| a.and(b);
    OrBits: Integer -> T, |a, b| a.or(b);
    XorBits: Integer -> T, |a, b| a.xor(b);
    ShiftLeft: Integer -> T, |a, b| a.shift_left(b);
    ShiftRight: Integer -> T, |a, b| a.shift_right(b);
}

#[derive(Clone, Copy)]
struct AndBool;
#[derive(Clone, Copy)]
struct OrBool;
#[derive(Clone, Copy)]
struct XorBool;

impl Test<u8, u8> for AndBool {
    #[inline(always)]
    fn apply(self, a: u8, b: u8) -> u8 {
        u8::from(a != 0) & u8::from(b != 0)
    }
}

impl Test<u8, u8> for OrBool {
    #[inline(always)]
    fn apply(self, a: u8, b: u8) -> u8 {
        u8::from(a | b != 0)
    }
}

impl Test<u8, u8> for XorBool {
    #[inline(always)]
    fn apply(self, a: u8, b: u8) -> u8 {
        u8::from(a != 0) ^ u8::from(b != 0)
    }
}

/// Integer type of [`bitwise`].
pub trait Integer: Number {
    /// Computes the bitwise and.
    #[doc(hidden)]
    fn and(self, other: Self) -> Self;
    /// Computes the bitwise or.
    #[doc(hidden)]
    fn or(self, other: Self) -> Self;
    /// Computes the bitwise exclusive or.
    #[doc(hidden)]
    fn xor(self, other: Self) -> Self;
    /// Shifts left, see [`Bitwise::ShiftLeft`].
    #[doc(hidden)]
    fn shift_left(self, by: Self) -> Self;
    /// Shifts right, see [`Bitwise::ShiftRight`].
    #[doc(hidden)]
    fn shift_right(self, by: Self) -> Self;
}

macro_rules! integers {
    ($($t:ty),*) => { $(
        impl Integer for $t {
            #[inline(always)]
            fn and(self, other: $t) -> $t { self & other }
            #[inline(always)]
            fn or(self, other: $t) -> $t { self | other }
            #[inline(always)]
            fn xor(self, other: $t) -> $t { self ^ other }
            #[inline(always)]
            fn shift_left(self, by: $t) -> $t {
                #[allow(unused_comparisons)]
                let inside = by >= 0 && (by as u64) < u64::from(<$t>::BITS);
                if inside { self.wrapping_shl(by as u32) } else { 0 }
            }
            #[inline(always)]
            fn shift_right(self, by: $t) -> $t {
                #[allow(unused_comparisons)]
                let (inside, negative) = (by >= 0 && (by as u64) < u64::from(<$t>::BITS), self < 0);
                if inside {
                    self.wrapping_shr(by as u32)
                } else if negative {
                    !0
                } else {
                    0
                }
            }
        }
    )* };
}

integers!(i8, i16, i32, i64, u8, u16, u32, u64);

#[cfg(test)]
mod tests;

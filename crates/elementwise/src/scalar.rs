//! Functions of single elements, for programs over a few numbers: counters, indices, conditions.
//!
//! An element is a word with the bits of its type in the low bytes and zeros above, so that one
//! array can hold elements of all types. Results are bit-identical to those of the loops over
//! slices; functions that these compute differently on each instruction set are left out.

use super::binary::Binary;
use super::compare::{Compare, Logic};
use super::unary::Unary;
use sardonyx_simd::number::{Arith, Math};

/// Function of two elements, or of one element if it ignores the second.
pub type ScalarFn = fn(u64, u64) -> u64;

/// Element type that fits a word and computes in itself.
pub trait ScalarElement: Arith {
    /// Converts the low bytes of a word to an element.
    fn of_word(word: u64) -> Self;
    /// Converts the element to a word.
    fn to_word(self) -> u64;

    /// Returns the function of an operation on two elements; `None` for an operation that is left
    /// out.
    fn scalar_binary(op: Binary) -> Option<ScalarFn> {
        Some(match op {
            Binary::Add => |a, b| two(a, b, Self::add),
            Binary::Sub => |a, b| two(a, b, Self::sub),
            Binary::Mul => |a, b| two(a, b, Self::mul),
            Binary::Div => |a, b| two(a, b, Self::div),
            Binary::Max => |a, b| two(a, b, <Self as Arith>::max),
            Binary::Min => |a, b| two(a, b, <Self as Arith>::min),
            Binary::Mod => |a, b| two(a, b, Self::modulo),
            Binary::Fmod => |a, b| two(a, b, <Self as Arith>::rem),
            Binary::SquaredDifference => |a, b| {
                two(a, b, |a: Self, b| {
                    let difference = a.sub(b);
                    difference.mul(difference)
                })
            },
            Binary::UsedSlope => {
                |a, b| {
                    two(a, b, |a: Self, b: Self| {
                        if a == Self::ZERO && b.sub(b) != Self::ZERO { Self::ZERO } else { b }
                    })
                }
            }
            Binary::UsedDivisor => |a, b| {
                two(a, b, |a: Self, b: Self| {
                    let is_none = b == Self::ZERO || b.is_nan();
                    if a == Self::ZERO && is_none { Self::ONE } else { b }
                })
            },
            Binary::Pow | Binary::PRelu => return None,
        })
    }

    /// Returns the function of an operation on one element; `None` for an operation that is left
    /// out.
    fn scalar_unary(op: Unary) -> Option<ScalarFn> {
        Some(match op {
            Unary::Abs => |a, _| one(a, <Self as Arith>::abs),
            Unary::Neg => |a, _| one(a, <Self as Arith>::neg),
            Unary::Sign => |a, _| one(a, <Self as Arith>::sign),
            Unary::Square => |a, _| one(a, |a: Self| a.mul(a)),
            Unary::Relu => |a, _| one(a, |a: Self| Arith::max(a, Self::ZERO)),
            Unary::Ceil | Unary::Floor | Unary::Round if !Self::IS_FLOAT => |a, _| a,
            Unary::Ceil => |a, _| one(a, |a: Self| Self::from_real(a.to_real().ceil())),
            Unary::Floor => |a, _| one(a, |a: Self| Self::from_real(a.to_real().floor())),
            Unary::Round => |a, _| one(a, |a: Self| Self::from_real(a.to_real().round_even())),
            Unary::Sqrt if Self::IS_FLOAT => {
                |a, _| one(a, |a: Self| Self::from_real(Math::sqrt(a.to_real())))
            }
            Unary::Reciprocal if Self::IS_FLOAT => |a, _| one(a, |a: Self| Self::ONE.div(a)),
            _ => return None,
        })
    }

    /// Returns the function of a comparison, with result 0 or 1.
    fn scalar_compare(op: Compare) -> ScalarFn {
        match op {
            Compare::Equal => |a, b| truth(a, b, |a: &Self, b| a == b),
            Compare::Less => |a, b| truth(a, b, |a: &Self, b| a < b),
            Compare::LessOrEqual => |a, b| truth(a, b, |a: &Self, b| a <= b),
            Compare::Greater => |a, b| truth(a, b, |a: &Self, b| a > b),
            Compare::GreaterOrEqual => |a, b| truth(a, b, |a: &Self, b| a >= b),
        }
    }
}

/// Applies a function to one word.
#[inline(always)]
fn one<T: ScalarElement>(a: u64, f: impl Fn(T) -> T) -> u64 {
    f(T::of_word(a)).to_word()
}

/// Applies a function to two words.
#[inline(always)]
fn two<T: ScalarElement>(a: u64, b: u64, f: impl Fn(T, T) -> T) -> u64 {
    f(T::of_word(a), T::of_word(b)).to_word()
}

/// Applies a predicate to two words.
#[inline(always)]
fn truth<T: ScalarElement>(a: u64, b: u64, f: impl Fn(&T, &T) -> bool) -> u64 {
    u64::from(f(&T::of_word(a), &T::of_word(b)))
}

/// Returns the function of an operation on booleans, with result 0 or 1. Words other than 0 are
/// true.
pub fn scalar_logic(op: Logic) -> ScalarFn {
    match op {
        Logic::And => |a, b| u64::from(a != 0 && b != 0),
        Logic::Or => |a, b| u64::from(a != 0 || b != 0),
        Logic::Xor => |a, b| u64::from((a != 0) != (b != 0)),
    }
}

macro_rules! integers {
    ($($t:ty as $unsigned:ty),*) => { $(
        impl ScalarElement for $t {
            #[inline(always)]
            fn of_word(word: u64) -> $t { word as $unsigned as $t }
            #[inline(always)]
            fn to_word(self) -> u64 { u64::from(self as $unsigned) }
        }
    )* };
}

integers!(
    i8 as u8, i16 as u16, i32 as u32, i64 as u64, u8 as u8, u16 as u16, u32 as u32, u64 as u64
);

impl ScalarElement for f32 {
    #[inline(always)]
    fn of_word(word: u64) -> f32 {
        f32::from_bits(word as u32)
    }
    #[inline(always)]
    fn to_word(self) -> u64 {
        u64::from(self.to_bits())
    }
}

impl ScalarElement for f64 {
    #[inline(always)]
    fn of_word(word: u64) -> f64 {
        f64::from_bits(word)
    }
    #[inline(always)]
    fn to_word(self) -> u64 {
        self.to_bits()
    }
}

#[cfg(test)]
mod tests;

//! Reads and writes number literals, one at a time and by the million.
//!
//! Most of the text of a model is weights, so this module determines the speed. Common literals
//! take a path without data-dependent branches (eight digits at a time in a word, signs and lengths
//! as arithmetic), because a mispredicted branch on random digits costs more than all the
//! arithmetic of a number. Uncommon ones (long digit strings, large exponents, words, errors) take
//! plain code and the standard library.
//!
//! A literal is
//!
//! ```text
//! int   = ["-"] digit+
//! float = ["-"] digit+ "." digit* [exp] | ["-"] digit+ exp
//!       | ["-"] ("inf" | "infinity" | "nan") | "nan(" hex+ ")"
//! exp   = ("e" | "E") ["+" | "-"] digit+
//! ```
//!
//! with the words in any letter case. `nan(7fc00001)` gives all bits of a NaN that is not the
//! canonical one. No letter, digit, `_` or `.` may follow directly.

mod read;
mod read_lists;
#[cfg(test)]
mod tests;
mod write;

pub(crate) use read::{read_f32, read_f64, read_i64, read_u64, scan};
pub(crate) use read_lists::{
    ListEnd, ListError, ListProblem, read_floats, read_list, read_signed, read_signed_varints,
    read_unsigned, read_unsigned_varints,
};
pub(crate) use write::{
    FloatForm, Print, Wrap, push_f32, push_f64, push_i64, push_le_list, push_list, push_u64,
};

/// Type of a number literal by its notation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Literal {
    Int,
    Float,
}

/// Reason why a text is not a number of the required type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NumberError {
    /// No digit and no number word (after the sign, if there is one).
    NoDigits,
    /// `1e`, `1e+`: no digit after the `e` of an exponent.
    EmptyExponent,
    /// A letter, a digit, `_` or `.` directly after the number: `12abc`, `inf9`, `1.2.3`.
    Malformed,
    /// The number is out of range for the type, or not in the required range.
    OutOfRange,
    /// A sign although only unsigned numbers are allowed.
    Negative,
    /// A float literal although an integer is required.
    NotInteger,
    /// The digits in `nan(…)` are not the bits of a NaN of the type, or a sign precedes it.
    NanBits,
}

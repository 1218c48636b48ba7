//! Number literals: reading and writing them, one at a time and by the million.
//!
//! The weights of a model in text are nearly all of the text, so its speed is decided here. The one
//! idea: the common literal runs through code without branches that depend on the data (eight
//! digits at a time in a word, signs and lengths as arithmetic), because a branch on random digits
//! costs more than all the arithmetic of a number; what is uncommon (long digit strings, large
//! exponents, words, errors) leaves that path for plain code and the standard library.
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
//! with the words in any letter case. `nan(7fc00001)` gives all bits of a NaN, for those that are
//! not the canonical one. No letter, digit, `_` or `.` may follow directly.

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
    Form, Print, Wrap, push_f32, push_f64, push_i64, push_le_list, push_list, push_u64,
};

/// What kind of number a literal is by its form.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Literal {
    Int,
    Float,
}

/// Why there is no number of the wanted type at a place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NumberError {
    /// No digit and no number word stands there (after the sign, if there is one).
    NoDigits,
    /// `1e`, `1e+`: no digit follows the mark of the exponent.
    EmptyExponent,
    /// A letter, a digit, `_` or `.` stands directly after the number: `12abc`, `inf9`, `1.2.3`.
    Malformed,
    /// The number is no value of the type, or not within the wanted range.
    OutOfRange,
    /// A sign where only numbers without one are allowed.
    Negative,
    /// A float literal where an integer is wanted.
    NotInteger,
    /// What stands in `nan(…)` is not the bits of a NaN of the type, or there is a sign before it.
    NanBits,
}

//! Linear quantization in the functions of several operators: codes become floats and floats become
//! codes, with scalar scales and zero points.
//!
//! ONNX Runtime rounds in one of two places. For most operators it adds the zero point to the
//! rounded quotient, like the standard's `QuantizeLinear`. For sums, products and average pools it
//! adds the zero point first, so that a quotient half way between two integers is rounded to an
//! even code. The bodies follow it, since whole tensors of such quotients are common: they occur if
//! scales are multiples of each other.

use std::fmt::{Arguments, Write};

use sardonyx_tensor::DataType::{Int8, Uint8};

use crate::function::{Expand, FLOAT, float_scalar, scalar};
use crate::typeset::TypeSet;

/// Types of codes.
pub(super) const BYTES: TypeSet = TypeSet::tensors(&[Int8, Uint8]);

/// Input of a node: its index, and its name in the schema.
pub(super) type Given = (usize, &'static str);

/// Names of a tensor of codes, and of the scale and the zero point of its codes.
#[derive(Clone, Copy)]
pub(super) struct Codes {
    pub(super) value: &'static str,
    pub(super) scale: &'static str,
    pub(super) zero: Given,
}

/// Nodes of a function, line by line, after the constants that they read.
pub(super) struct Lines<'a> {
    cx: &'a Expand<'a>,
    /// Input of the type of all codes.
    like: &'static str,
    has_one: bool,
    has_no_code: bool,
    text: String,
}

impl<'a> Lines<'a> {
    /// Creates the nodes of an operator whose codes all have the type of the input `like`.
    pub(super) fn new(cx: &'a Expand<'a>, like: &'static str) -> Self {
        Lines { cx, like, has_one: false, has_no_code: false, text: String::new() }
    }

    pub(super) fn line(&mut self, line: Arguments<'_>) {
        let _ = writeln!(self.text, "{line}");
    }

    pub(super) fn finish(self) -> String {
        let mut text = String::new();
        if self.has_one {
            text += &float_scalar("one", 1.0);
        }
        if self.has_no_code {
            let _ = writeln!(
                text,
                "{}no_code = CastLike (no_code_number, {})",
                scalar("no_code_number", 0),
                self.like
            );
        }
        text + &self.text
    }

    /// Returns the name of the number 1.
    pub(super) fn one(&mut self) -> &'static str {
        self.has_one = true;
        "one"
    }

    /// Returns the name of the code 0.
    fn no_code(&mut self) -> &'static str {
        self.has_no_code = true;
        "no_code"
    }

    /// Dequantizes codes.
    pub(super) fn dequantize(&mut self, codes: Codes, into: &str) {
        self.subtract_zero(codes.value, codes.scale, codes.zero, into);
    }

    /// Subtracts the zero point from codes, as floats.
    pub(super) fn center(&mut self, codes: Codes, into: &str) {
        let one = self.one();
        self.subtract_zero(codes.value, one, codes.zero, into);
    }

    fn subtract_zero(&mut self, value: &str, scale: &str, zero: Given, into: &str) {
        match self.zero_point(zero) {
            Some(zero) => {
                self.line(format_args!("{into} = DequantizeLinear ({value}, {scale}, {zero})"));
            }
            None => self.line(format_args!("{into} = DequantizeLinear ({value}, {scale})")),
        }
    }

    /// Returns the name of a zero point, if the node has it.
    fn zero_point(&self, (index, name): Given) -> Option<&'static str> {
        self.cx.has_input(index).then_some(name)
    }

    /// Converts a zero point to a float and returns its name. A missing one is 0.
    pub(super) fn zero_float(&mut self, zero: Given) -> String {
        let float = format!("{}_float", zero.1);
        match self.zero_point(zero) {
            Some(zero) => self.line(format_args!("{float} = Cast <to = {FLOAT}> ({zero})")),
            None => self.text += &float_scalar(&float, 0.0),
        }
        float
    }

    /// Quantizes floats, and adds the zero point after rounding.
    pub(super) fn quantize(&mut self, value: &str, scale: &str, zero: Given, into: &str) {
        let zero = match self.zero_point(zero) {
            Some(zero) => zero,
            None => self.no_code(),
        };
        self.line(format_args!("{into} = QuantizeLinear ({value}, {scale}, {zero})"));
    }

    /// Rounds floats that are codes already, including the zero point, to integers in the range of
    /// codes.
    pub(super) fn round(&mut self, value: &str, into: &str) {
        let (one, no_code) = (self.one(), self.no_code());
        self.line(format_args!("{into} = QuantizeLinear ({value}, {one}, {no_code})"));
    }

    /// Quantizes floats, and adds the zero point before rounding.
    pub(super) fn quantize_moved(&mut self, value: &str, scale: &str, zero: Given, into: &str) {
        self.line(format_args!("{value}_quotient = Div ({value}, {scale})"));
        let zero = self.zero_float(zero);
        self.line(format_args!("{value}_moved = Add ({value}_quotient, {zero})"));
        self.round(&format!("{value}_moved"), into);
    }
}

/// Returns the permutation that moves the last axis to the second position.
pub(super) fn channels_first(rank: usize) -> Vec<usize> {
    std::iter::once(0).chain(rank.checked_sub(1)).chain(1..rank.max(1) - 1).collect()
}

/// Undoes [`channels_first`].
pub(super) fn channels_last(rank: usize) -> Vec<usize> {
    std::iter::once(0).chain(2..rank).chain([1]).collect()
}

//! Elementwise functions of one operand or of two.
//!
//! No stability: names and signatures change with any release. Use the crate `sardonyx`.
//!
//! An operation is a small type with an inlined `apply`, and a few loop bodies generic over it are
//! compiled for each instruction set: for all three with f32, for two with other floats, for the
//! baseline of the target with integers.
//!
//! - [`unary`], [`clip`]: one operand, out of place and in place.
//! - [`binary`], [`compare`], [`logic`], [`bitwise`], [`select`]: operands with strides, broadcast
//!   to common dims.
//! - [`range`]: no operand.
//! - [`pointwise`]: a chain of unary and binary operations in one pass over memory.
//! - [`update`]: several functions with several results, which may replace operands.
//! - [`ScalarElement`]: cheap functions of single elements.
//! - `quantized`, with the feature `quantization`: conversions between floats and integers of few
//!   bits.
//!
//! `sardonyx-kernels` re-exports this crate, with all other kernels and the rules that hold for
//! them: use that.

// SIMD loads and stores, scratch memory shared between threads and masked edges need raw pointers.
// All of that is behind safe functions that check sizes first.
#![allow(unsafe_code)]

#[macro_use]
extern crate sardonyx_simd;

#[cfg(test)]
mod accuracy;
mod binary;
mod broadcast;
mod compare;
mod halves;
pub mod operations;
mod per_type;
mod pointwise;
#[cfg(feature = "quantization")]
pub mod quantized;
mod range;
mod scalar;
mod unary;
mod update;

pub use binary::{Binary, BinaryElement, Side, binary, binary_in_place};
pub use broadcast::{MAX_RANK, Strided, Walk, broadcast_strides};
pub use compare::{
    Bitwise, Compare, Integer, Logic, bitwise, compare, is_inf, is_nan, logic, not, select,
};
pub use halves::{narrow, widen};
#[cfg(feature = "quantization")]
pub use per_type::{CodeLoops, DividendLoops, StoredLoops};
pub use per_type::{ElementLoops, NarrowLoops, UpdateLoops};
pub use pointwise::{Link, MAX_LINKS, pointwise, pointwise_in_place};
pub use range::{Ranged, range};
pub use scalar::{ScalarElement, ScalarFn, scalar_logic};
pub use unary::{Unary, UnaryElement, clip, clip_in_place, unary, unary_in_place};
pub use update::{Applied, Function, MAX_RESULTS, Source, Update, update};

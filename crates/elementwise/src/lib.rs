//! Functions of one element, or of one element from each of two operands.
//!
//! No stability: names and signatures change with any release. Use the crate `sardonyx`.
//!
//! The one idea: an operation is a small type with an inlined `apply`, and a few loop bodies
//! generic over it are compiled per instruction set. f32 gets all three sets, other floats two,
//! integers the target's own.
//!
//! - [`unary`], [`clip`]: one operand, out of place and in place.
//! - [`binary`], [`compare`], [`logic`], [`bitwise`], [`select`]: operands with strides, broadcast
//!   to common dims.
//! - [`range`]: no operand.
//! - [`pointwise`]: several of the first two, one after the other, in one pass over memory.
//! - [`update`]: several with several results, which may lie over operands.
//! - [`ScalarElement`]: the cheap ones of single elements.
//! - `quantized`, with the feature `quantization`: from floats to integers of few bits and back.
//!
//! `sardonyx-kernels` shows all of it, with all other kernels and the rules that hold for them: use
//! that.

// SIMD loads and stores, scratch memory shared between threads and masked edges need raw pointers.
// All of that is kept behind safe functions that check sizes first.
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

//! Matrix products and convolutions of Sardonyx.
//!
//! No stability: names and signatures change with any release. Use the crate `sardonyx`.
//!
//! `sardonyx-kernels` reexports both, with all other kernels and the rules that hold for them: use
//! that.

// SIMD loads and stores, scratch memory shared between threads and masked edges need raw pointers.
// All of that is kept behind safe functions that check sizes first.
#![allow(unsafe_code)]
// Some parts of products have users only in optional families of kernels.
#![cfg_attr(not(feature = "default"), allow(dead_code))]

#[macro_use]
extern crate sardonyx_simd;

#[macro_use]
pub mod gemm;
pub mod conv;
mod per_type;

#[cfg(feature = "quantization")]
pub use per_type::ByteConvLoops;
pub use per_type::NarrowConvLoops;

//! The loops of Sardonyx: matrix products, convolution and the threads they run on. No ONNX in it.
//!
//! No stability: names and signatures change with any release. Use the crate `sardonyx`.
//!
//! Kernels write into buffers they are given, know no operator names and allocate nothing per call
//! once their scratch memory has grown to the sizes in use. Three rules hold everywhere:
//!
//! - **One body, three instruction sets.** A kernel is written once over a small SIMD trait and
//!   compiled for AVX-512, AVX2 with FMA, and whatever the target guarantees. [`Isa`] picks one at
//!   run time; tests run all of them.
//! - **The same bits for any number of threads.** Work is cut along outputs only. No sum is ever
//!   split by thread count.
//! - **A naive twin.** Every fast kernel has a plain loop beside it that says what it must compute;
//!   tests compare them.
//! - **A family is a feature.** Loops that only the operators of one family run are compiled with
//!   the feature of that family; all are by default.
//! - **Kernels end early by returning.** A kernel that shares its work between threads, or works
//!   for long, returns [`Ended`] when [`Pool::until`] says so. Its outputs then hold any values and
//!   are not read.

// SIMD loads and stores, scratch memory shared between threads and masked edges need raw pointers.
// All of that is kept behind safe functions that check sizes first.
#![allow(unsafe_code)]
// Loops that several families share.
#![cfg_attr(not(feature = "default"), allow(dead_code))]

#[macro_use]
extern crate sardonyx_simd;

pub mod attention;
#[cfg(feature = "vision")]
pub mod boxes;
pub mod choose;
#[cfg(feature = "vision")]
pub mod columns;
pub mod copy;
pub mod cumulative;
#[cfg(feature = "vision")]
pub mod deform;
pub mod determinant;
// Of kernels of all families.
#[cfg(test)]
#[cfg(feature = "default")]
mod ending_tests;
#[cfg(feature = "signal")]
pub mod fourier;
#[cfg(feature = "vision")]
pub mod grid;
#[cfg(feature = "training")]
pub mod loss;
#[cfg(feature = "ml")]
pub mod ml;
pub mod norm;
#[cfg(feature = "training")]
pub mod optimizer;
pub mod peak;
mod per_type;
pub mod pixels;
pub mod pooling;
pub mod random;
#[cfg(feature = "recurrent")]
pub mod recurrent;
pub mod reduce;
// Converts features as well.
#[cfg(any(feature = "ml", feature = "vision"))]
pub mod resize;
#[cfg(feature = "vision")]
pub mod roi;
pub mod rotary;
pub mod softmax;
mod sorting;
#[cfg(feature = "ml")]
pub mod trees;
pub mod unique;
mod wide;

#[cfg(feature = "recurrent")]
pub use per_type::RecurrentLoops;
#[cfg(feature = "vision")]
pub use per_type::ResizeLoops;
#[cfg(feature = "training")]
pub use per_type::TrainingLoops;
pub use per_type::{CumulativeLoops, FloatLoops, Loops, MaxPoolLoops, MoveLoops, ScatterLoops};
#[cfg(feature = "ml")]
pub use per_type::{FeatureLoops, ScoreLoops};
pub use sardonyx_elementwise::{self as elementwise, ElementLoops, NarrowLoops, UpdateLoops};
#[cfg(feature = "quantization")]
pub use sardonyx_elementwise::{CodeLoops, DividendLoops, StoredLoops, quantized};
#[cfg(feature = "quantization")]
pub use sardonyx_gemm::ByteConvLoops;
pub use sardonyx_gemm::{NarrowConvLoops, conv, gemm};
pub use sardonyx_simd::{
    Caches, Ended, Exec, Failure, Isa, Operation, Pace, Panic, Pool, Region, UnknownCaches,
    UnknownIsa, Work, caught, keep_panic_places, number, record, split_even,
};
pub use wide::scratch_bytes;

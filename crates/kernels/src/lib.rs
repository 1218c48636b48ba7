//! Loops of operators, without ONNX: attention, pooling, normalization, copies, classical machine
//! learning and more. Matrix products, convolution and elementwise loops are re-exported.
//!
//! No stability: names and signatures change with any release. Use the crate `sardonyx`.
//!
//! Kernels write into buffers of the caller, know no operator names, and do not allocate per call
//! once their scratch memory has grown to the sizes in use. These rules hold everywhere:
//!
//! - **One body for all instruction sets.** A kernel is written once over a small SIMD trait and
//!   compiled for AVX-512, AVX2 with FMA, and the baseline of the target. [`Isa`] selects one at
//!   run time; tests run all of them.
//! - **The same bits for any number of threads.** Work is divided along outputs only. No sum
//!   depends on the number of threads.
//! - **A naive twin.** Each fast kernel has a plain loop beside it that defines its result; tests
//!   compare them.
//! - **A family is a feature.** Loops used only by the operators of one family are compiled with
//!   the feature of that family; all features are on by default.
//! - **Kernels stop by returning.** A kernel that divides its work between threads, or runs long,
//!   returns [`Ended`] once [`Pool::run_until`] cancels it. Its outputs are then unspecified, and
//!   callers do not read them.

// SIMD loads and stores, scratch memory shared between threads and masked edges need raw pointers.
// All of that is behind safe functions that check sizes first.
#![allow(unsafe_code)]
// Without some families, loops shared with them have no callers.
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
mod dims;
// Tests kernels of all families.
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
// Used by the conversion of features, too.
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

#[cfg(feature = "vision")]
pub use dims::ImageDims;
pub use dims::{AxisDims, RowDims};
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
    UnknownIsa, Work, catch_panic, keep_panic_places, number, record, split_even,
};
pub use wide::scratch_bytes;

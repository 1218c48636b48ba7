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
//! - **Kernels end early by returning.** A kernel that shares its work between threads, or works
//!   for long, returns [`Ended`] when [`Pool::until`] says so. Its outputs then hold any values and
//!   are not read.

// SIMD loads and stores, scratch memory shared between threads and masked edges need raw pointers.
// All of that is kept behind safe functions that check sizes first.
#![allow(unsafe_code)]

#[macro_use]
extern crate sardonyx_simd;

pub mod attention;
pub mod boxes;
pub mod choose;
pub mod columns;
pub mod copy;
pub mod cumulative;
pub mod deform;
pub mod determinant;
#[cfg(test)]
mod ending_tests;
pub mod fourier;
pub mod grid;
pub mod loss;
pub mod ml;
pub mod norm;
pub mod optimizer;
pub mod peak;
mod per_type;
pub mod pixels;
pub mod pooling;
pub mod random;
pub mod recurrent;
pub mod reduce;
pub mod resize;
pub mod roi;
pub mod rotary;
pub mod softmax;
mod sorting;
pub mod trees;
pub mod unique;
mod wide;

pub use per_type::{
    CumulativeLoops, FeatureLoops, FloatLoops, Loops, MaxPoolLoops, MoveLoops, RecurrentLoops,
    ResizeLoops, ScatterLoops, ScoreLoops, TrainingLoops,
};
pub use sardonyx_elementwise::{
    self as elementwise, CodeLoops, DividendLoops, ElementLoops, NarrowLoops, StoredLoops,
    UpdateLoops, quantized,
};
pub use sardonyx_gemm::{ByteConvLoops, NarrowConvLoops, conv, gemm};
pub use sardonyx_simd::{
    Caches, Ended, Exec, Failure, Isa, Operation, Pace, Panic, Pool, Region, UnknownCaches,
    UnknownIsa, Work, caught, keep_panic_places, number, record, split_even,
};
pub use wide::scratch_bytes;

//! The loops of Sardonyx: matrix products, convolution and the threads they run on. No ONNX in it.
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

// SIMD loads and stores, scratch memory shared between threads and masked edges need raw pointers.
// All of that is kept behind safe functions that check sizes first.
#![allow(unsafe_code)]

#[macro_use]
mod simd;

mod exec;
mod isa;
mod pace;
mod pool;

pub mod attention;
pub mod boxes;
pub mod choose;
pub mod columns;
pub mod conv;
pub mod copy;
pub mod cumulative;
pub mod deform;
pub mod determinant;
pub mod elementwise;
pub mod fourier;
pub mod gemm;
pub mod grid;
pub mod loss;
pub mod ml;
pub mod norm;
pub mod number;
pub mod optimizer;
pub mod peak;
mod per_type;
pub mod pixels;
pub mod pooling;
pub mod quantized;
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
mod vecmath;

pub use exec::Exec;
pub use isa::{Isa, UnknownIsa};
pub use pace::Pace;
pub use per_type::{
    CodeLoops, CumulativeLoops, DividendLoops, FeatureLoops, FloatLoops, Loops, MaxPoolLoops,
    MoveLoops, RecurrentLoops, ResizeLoops, ScatterLoops, ScoreLoops, StoredLoops, TrainingLoops,
};
pub use pool::{Ended, Pool, split_even};

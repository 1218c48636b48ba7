//! Engine: compiles a model once into a [`Session`], which runs it any number of times.
//!
//! No stability: names and signatures change with any release. Use the crate `sardonyx`.
//!
//! Compilation ([`compile`](mod@compile)) goes from data to data as long as it can: resolve, infer
//! at the file's own versions, upgrade to the newest forms, infer again, eliminate common
//! subexpressions, fold constants, fuse decomposed operators (all in `passes`, on graphs);
//! [`lower`] the graph to a [`program`], [`rewrite`] that, and [`select`] kernels, which pack
//! weights. For each set of input dimensions, [`sizes`] computes the size of each value, [`plan`]
//! its place, and [`schedule`] the operands of each step. A run ([`run`]) only walks that list.
//!
//! An operator becomes an operation, and an operation a [`Kernel`](kernel::Kernel), in `ops/`, at
//! the path that its definition has in the crate `sardonyx-ops`. Kernels decide and dispatch; the
//! loops are in `sardonyx-kernels`, and this crate has no SIMD.

// Parts of kernels that several families share.
#![cfg_attr(not(feature = "default"), allow(dead_code))]

mod account;
mod border;
mod branch_inputs;
mod compile;
mod constants;
mod custom;
mod declared;
mod details;
mod dims;
mod error;
mod executable;
mod expanded;
mod features;
mod fold;
mod images;
mod inputs;
mod iteration_plan;
#[cfg(feature = "serde")]
mod json_form;
mod kernel;
mod layout;
mod lower;
mod make;
mod memory;
mod node_error;
mod ops;
mod options;
mod plan;
mod precision;
mod program;
mod random;
mod registers;
mod report;
mod rewrite;
mod right;
mod run;
mod scalar_iterations;
mod schedule;
mod scratch;
mod select;
mod session;
mod sizes;
mod spans;
mod stop;
mod thread_pool;
mod unsupported;
mod weights;

pub use account::MemoryBudget;
pub use custom::{CustomKernel, CustomOperators, OperatorCall};
pub use details::{OperandDetails, RunDetails, StepDetails};
pub use dims::check as check_dims;
pub use error::{CompileError, InputError, Internal, OperatorError, RunError, UnsupportedOperator};
pub use expanded::has_kernel;
pub use features::{RequiredFeature, find_features};
pub use images::{EncodedImage, ImageDecoder, PixelFormat};
pub use inputs::Port;
pub use node_error::{NodeError, NodeInput};
pub use options::{Optimization, Options, RunOptions};
pub use precision::Precision;
pub use program::StatePorts;
pub use report::CompileReport;
pub use rewrite::rewrites;
pub use run::StepEvent;
pub use sardonyx_kernels::{Panic, catch_panic, keep_panic_places};
pub use session::{
    Input, KeptPorts, KeptState, Lend, OldValue, Pending, PendingError, Session, StateUse, StepInfo,
};
pub use stop::{StopFlag, StopReason, Stopped};
pub use thread_pool::ThreadPool;
pub use unsupported::unsupported;
pub use weights::SharedWeights;

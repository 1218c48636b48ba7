//! The engine: a model is compiled once into a [`Session`], which then runs it any number of times.
//!
//! Compilation ([`compile`](mod@compile)) is a list of steps, each in a file of its own or in
//! `passes`: resolve, infer at the file's own versions, upgrade to the newest forms, infer again,
//! share what is computed twice, fold constants, fuse what exporters spelled out, choose kernels,
//! absorb tails, join chains, and, per set of input dimensions, plan memory and views ([`plan`])
//! and a [`schedule`]. A run ([`run`]) then only walks that list.
//!
//! An operator becomes a [`Kernel`](kernel::Kernel) by its binding in `ops/`, at the same path as
//! its meaning in the crate `sardonyx-ops`. Bindings decide and dispatch; the loops are in
//! `sardonyx-kernels`, and this crate has no SIMD.

mod account;
mod compile;
mod constants;
mod details;
mod dims;
mod error;
mod executable;
mod expanded;
mod inputs;
mod kernel;
mod layout;
mod lower;
mod ops;
mod plan;
mod precision;
mod program;
mod report;
mod rewrite;
mod run;
mod schedule;
mod select;
mod session;
mod unsupported;
mod weights;

pub use compile::{Optimization, Options};
pub use details::{OperandDetails, RunDetails, StepDetails};
pub use error::{CompileError, InputError, RunError};
pub use inputs::Port;
pub use precision::Precision;
pub use report::CompileReport;
pub use session::{Session, StepEvent, StepInfo};
pub use unsupported::{UnsupportedOperator, unsupported};
pub use weights::SharedWeights;

//! Building blocks of kernels: vectors of four instruction sets, number types, the threads that
//! share work, and memory that is kept between calls. It has no kernels.
//!
//! No stability: names and signatures change with any release. Use the crate `sardonyx`.
//!
//! A kernel is a [`Body`] over vectors ([`Simd`]) or a [`Loop`] that the compiler vectorizes. Both
//! are generic, `inline(always)`, and run inside one function per instruction set that enables it.
//! [`dispatch()`] chooses the function. All operations of [`Simd`] are unsafe because they may only
//! run there.
//!
//! Minimum and maximum have the semantics of x86: they return the *second* operand when either is
//! NaN or both are zero. `max(zero, x)` is thus a ReLU that keeps NaN.
//!
//! Kernels are in `sardonyx-elementwise`, `sardonyx-gemm` and `sardonyx-kernels`. The last one
//! reexports all of them: use that.

// SIMD loads and stores, scratch memory shared between threads and masked edges need raw pointers.
#![allow(unsafe_code)]
#![allow(clippy::missing_safety_doc)] // Traits such as [`Simd`] state the demands of all their functions.

#[macro_use]
mod features;
mod per_type;

#[cfg(target_arch = "x86_64")]
pub mod avx2;
#[cfg(target_arch = "x86_64")]
pub mod avx512;
pub mod buffer;
mod caches;
pub mod chunks;
mod dispatch;
mod exec;
pub mod halves;
mod isa;
#[cfg(target_arch = "aarch64")]
pub mod neon;
pub mod number;
mod pace;
mod panics;
mod pool;
pub mod portable;
mod recording;
mod rows;
pub mod vecmath;
mod vectors;
mod work;

pub use caches::{Caches, UnknownCaches};
pub use dispatch::{Body, Level, Loop, check_isa, dispatch};
pub use exec::Exec;
pub use isa::{Isa, UnknownIsa};
pub use pace::Pace;
pub use panics::{Panic, catch_panic, keep_panic_places};
pub use pool::{Ended, Failure, Outcome, Pool, split_even};
pub use recording::{Region, record};
pub use rows::{Rows, opaque};
pub use vectors::{Integers, Simd, Vector};
pub use work::{Grid, Operation, Parts, Work};

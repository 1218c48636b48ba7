//! Runs models in sessions of one or several devices, keeps state between runs, and configures
//! memory, threads and precision.

#[doc(inline)]
pub use crate::large_pages::LargePages;
#[doc(inline)]
pub use crate::runner::{Run, Runner};
#[doc(inline)]
pub use crate::state::{SessionState, StateBuilder, StatePair};
#[doc(inline)]
pub use sardonyx_runtime::{MemoryBudget, Optimization, Precision, StepEvent, ThreadPool};

//! Runs: the trait of everything that runs a model, and how sessions compute.

#[doc(inline)]
pub use crate::large_pages::LargePages;
#[doc(inline)]
pub use crate::runner::{Run, Runner};
#[doc(inline)]
pub use sardonyx_runtime::{MemoryBudget, Optimization, Precision, StepEvent, ThreadPool};

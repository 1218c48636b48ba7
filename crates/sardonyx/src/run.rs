//! Running models: the trait of sessions, and options of their computation.

#[doc(inline)]
pub use crate::large_pages::LargePages;
#[doc(inline)]
pub use crate::runner::{Run, Runner};
#[doc(inline)]
pub use sardonyx_runtime::{MemoryBudget, Optimization, Precision, StepEvent, ThreadPool};

//! The jobs: functions from a model (and options) to a model or to findings, one file each.
//!
//! A job does no input or output, works inside subgraphs, and never copies weights. It reports everything that it
//! finds, as [`Finding`]s, not the first thing.

mod attributes;
mod finding;
mod infer;
mod resolve;
mod upgrade;

pub use attributes::NodeAttributes;
pub use finding::{Finding, place_of_node};
pub use infer::{InferOptions, Inference, infer};
pub use resolve::{Resolved, resolve};
pub use upgrade::upgrade;

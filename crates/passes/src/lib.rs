//! The jobs: functions from a model (and options) to a model or to findings, one file each.
//!
//! A job does no input or output, works inside subgraphs, and never copies weights. It reports everything that it
//! finds, as [`Finding`]s, not the first thing.

mod attributes;
mod finding;
mod infer;
mod ir_version;
mod resolve;
mod strip;
mod upgrade;

pub use attributes::NodeAttributes;
pub use finding::{Finding, place_of_node};
pub use infer::{InferOptions, Inference, infer};
pub use ir_version::{FormatNeed, format_needs};
pub use resolve::{Resolved, resolve};
pub use strip::{StripOptions, StripReport, strip};
pub use upgrade::upgrade;

//! Other forms of models and tensors: messages as protobuf JSON and protobuf text format, tensors
//! as safetensors and npz.
//!
//! No stability: names and signatures change with any release. Use the crate `sardonyx`.
//!
//! The forms of messages follow the field table of `sardonyx-proto`; no code here depends on the
//! name of a field.

#![deny(missing_docs)]
// In a test, a panic is the report.
#![cfg_attr(test, allow(clippy::unwrap_used))]

mod assembly;
mod cursor;
mod error;
pub mod json;
mod left_out;
mod names;
pub mod npz;
mod numerals;
mod parser;
pub mod safetensors;
mod sink;
pub mod text_format;
mod walk;

pub use error::{Error, ErrorKind, Position};
pub use left_out::{LeftOut, UnknownField};
pub use sardonyx_proto::Limits;

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
// Parts that several formats share.
#![cfg_attr(not(feature = "default"), allow(dead_code))]

#[cfg(any(feature = "json", feature = "textproto"))]
mod assembly;
#[cfg(any(feature = "json", feature = "textproto"))]
mod cursor;
mod error;
#[cfg(feature = "json")]
pub mod json;
mod left_out;
#[cfg(any(feature = "json", feature = "textproto"))]
mod names;
#[cfg(feature = "npz")]
pub mod npz;
#[cfg(any(feature = "json", feature = "textproto"))]
mod numerals;
#[cfg(any(feature = "json", feature = "textproto"))]
mod parser;
#[cfg(feature = "safetensors")]
pub mod safetensors;
#[cfg(any(feature = "json", feature = "textproto"))]
mod sink;
#[cfg(feature = "textproto")]
pub mod text_format;
#[cfg(any(feature = "json", feature = "textproto"))]
mod walk;

pub use error::{Error, ErrorKind, Position};
pub use left_out::{LeftOut, UnknownField};
pub use sardonyx_proto::Limits;

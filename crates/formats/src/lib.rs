//! Other forms of the same content: messages as protobuf JSON and protobuf text format, tensors as safetensors and npz.
//!
//! The forms of messages follow the field table of `sardonyx-proto`; nothing here knows a field by name.

#![deny(missing_docs)]
// In a test, a panic is the report.
#![cfg_attr(test, allow(clippy::unwrap_used))]

pub mod json;
pub mod npz;
pub mod safetensors;
pub mod text_format;

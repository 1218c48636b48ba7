//! Messages as protobuf JSON.
//!
//! [`write()`] returns the bytes that the protobuf package for Python writes with the names of the
//! table (`preserving_proto_field_name`) and an indentation of two: names in ascending order of
//! numbers, 64-bit integers as strings, bytes as base64, enumerations by name, lists with one
//! element per line. [`read()`] accepts the output of any writer of protobuf JSON: either spelling
//! of names, numbers as numbers or strings, `null` for absent values.
//!
//! ```
//! use sardonyx_formats::{Limits, json};
//! use sardonyx_proto::OperatorSetIdProto;
//!
//! let text = br#"{ "domain": "", "version": 23 }"#;
//! let bytes = json::read::<OperatorSetIdProto>(text, Limits::default())?;
//! assert_eq!(bytes, b"\x0a\x00\x10\x17");
//! let mut text = Vec::new();
//! let options = json::WriteOptions::default();
//! let left_out = json::write::<OperatorSetIdProto>(&bytes, options, &mut text)?;
//! assert_eq!(text, b"{\n  \"domain\": \"\",\n  \"version\": \"23\"\n}");
//! assert!(left_out.is_empty());
//! # Ok::<(), sardonyx_formats::Error>(())
//! ```
//!
//! The reader has its own tokenizer instead of serde_json: the field table must determine the type
//! of a value before it is read (a payload of hundreds of megabytes goes from base64 straight to
//! bytes, without a string in between), errors need line, column and field, and nesting must be
//! bounded by a value and not by the stack.

mod read;
mod write;

pub use read::read;
pub use write::{WriteOptions, write};

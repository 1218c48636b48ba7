//! Messages as protobuf text format.
//!
//! [`write()`] returns the text of the protobuf package for Python: fields in ascending order of
//! numbers, each element of a list on its own line, bytes with C escapes. [`read()`] accepts all
//! that this package accepts: comments, lists in brackets, `<` and `>` around messages, separators,
//! strings in parts, numbers in several bases.
//!
//! ```
//! use sardonyx_formats::{Limits, text_format};
//! use sardonyx_proto::TensorProto;
//!
//! let text = b"dims: [2, 0x3] name: 'W' # weights";
//! let bytes = text_format::read::<TensorProto>(text, Limits::default())?;
//! assert_eq!(bytes, b"\x08\x02\x08\x03\x42\x01W");
//! let mut text = Vec::new();
//! let options = text_format::WriteOptions::default();
//! let left_out = text_format::write::<TensorProto>(&bytes, options, &mut text)?;
//! assert_eq!(text, b"dims: 2\ndims: 3\nname: \"W\"\n");
//! assert!(left_out.is_empty());
//! # Ok::<(), sardonyx_formats::Error>(())
//! ```

mod read;
mod write;

pub use read::read;
pub use write::{WriteOptions, write};

//! The ONNX file, as it lies on the wire.
//!
//! No stability: names and signatures change with any release. Use the crate `sardonyx`.
//!
//! One table ([`messages`]) holds every field of every message, one line each. From it come the
//! pull reader ([`Reader`]: typed fields with their byte offsets, borrowed from the source, nothing
//! allocated), the writer ([`Encoder`]: small things together, payloads straight from their slices)
//! and, for tools, the descriptions of all messages ([`MESSAGES`]).
//!
//! ```
//! use sardonyx_proto::{ModelField, ModelProto, Reader};
//!
//! let bytes = [0x08, 0x0a, 0x12, 0x03, b'm', b'e', b'!']; // ir_version: 10, producer_name: "me!"
//! for field in Reader::<ModelProto>::new(&bytes) {
//!     match field? {
//!         ModelField::IrVersion(version) => assert_eq!(version, 10),
//!         ModelField::ProducerName(name) => assert_eq!(name.bytes, b"me!"),
//!         other => panic!("{other:?}"),
//!     }
//! }
//! # Ok::<(), sardonyx_proto::Error>(())
//! ```
//!
//! This crate knows where a field is and what it is called; it knows no meaning. What a model
//! means, which fields exclude each other, whether a tensor has the right number of values: that is
//! `sardonyx-model` and the checker.

mod dynamic;
mod enums;
mod error;
mod kinds;
mod messages;
mod payload;
mod place;
mod read;
mod rewrite;
mod skim;
mod structure;
pub mod suggest;
#[doc(hidden)]
pub mod switch;
mod table;
mod wire;
mod write;

pub use dynamic::{DynamicMessage, DynamicValue, Records, push_bytes, push_tag, push_varint};
pub use enums::{
    AttributeType, DataLocation, DataType, OperatorStatus, OptionalElemType, SequenceElemType,
    TypedField,
};
pub use error::{Error, ErrorKind};
pub use kinds::{
    Blob, Chunk, Double, Enum, FieldKind, Float, Int32, Int64, Kind, Label, Message, OneOf,
    Optional, Packed, Repeated, Scalar, Text, Uint64, Word,
};
pub use messages::*;
pub use payload::{Typed, decode_typed, encode_typed, oversized_entry};
pub use place::{path, place_of, shown, without_middle};
pub use read::{Limits, RawField, Reader, Slice, Unknown};
pub use rewrite::rewrite;
pub use skim::{SkimError, Skimmed, discard, skim};
pub use structure::{VALUE_BYTES, value_ranges};
pub use suggest::closest;
pub use table::{Field, FieldDef, MessageDef, MessageType};
pub use wire::{WireType, varint_len, zigzag_decode, zigzag_encode};
pub use write::{Encode, Encoded, Encoder, MessageKind, Put, encode_to_vec, encode_to_write};

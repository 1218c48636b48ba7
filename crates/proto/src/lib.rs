//! The ONNX file on the wire.
//!
//! No stability: names and signatures change with any release. Use the crate `sardonyx`.
//!
//! One table ([`messages`]) holds every field of every message, one line each. It generates the
//! pull reader ([`Reader`]: typed fields with their byte offsets, borrowed from the source, without
//! allocation), the writer ([`Encoder`]: small fields in one buffer, payloads written from their
//! slices) and the descriptions of all messages for tools ([`MESSAGES`]).
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
//! This crate knows the positions and names of fields, not their meaning. `sardonyx-model` and the
//! checker know the meaning of a model, which fields exclude each other, and how many values a
//! tensor must have.

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
    Blob, Chunk, Double, Enum, FieldCodec, FieldKind, Float, Int32, Int64, Label, Message, OneOf,
    Optional, Packed, Repeated, Scalar, Text, Uint64, ValueCodec,
};
pub use messages::*;
pub use payload::{Typed, decode_typed, encode_typed, find_oversized_entry};
pub use place::{elide_middle, find_place, join_path, push_shown, shown};
pub use read::{Limits, RawField, Reader, Slice, Unknown};
pub use rewrite::rewrite;
pub use skim::{SkimError, Skimmed, discard, skim};
pub use structure::{VALUE_BYTES, find_value_ranges};
pub use suggest::closest;
pub use table::{Field, FieldDef, MessageDef, MessageType};
pub use wire::{WireType, varint_len, zigzag_decode, zigzag_encode};
pub use write::{Encode, Encoded, Encoder, MessageCodec, Put, encode_to_vec, encode_to_write};

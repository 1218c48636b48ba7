//! Traits and descriptions that a line of the table expands to.

use crate::error::Error;
use crate::kinds::{FieldCodec, FieldKind, Label};
use crate::read::{RawField, Reader};

/// Message type of the table. Implementors are empty marker types.
pub trait MessageType: Sized + 'static {
    /// Typed fields, borrowed from the source.
    type Field<'a>: Copy + std::fmt::Debug;
    /// Description of the message and its fields.
    const DEF: &'static MessageDef;

    /// Looks up a raw field in the table and reads its value.
    #[doc(hidden)]
    fn field<'a>(raw: RawField<'a>, reader: &Reader<'a, Self>) -> Result<Self::Field<'a>, Error>;
    /// Reads a field on the fast path, after its tag, and returns it with the position after it.
    /// The value begins at `pos`. Returns `None` for every other encoding, which
    /// [`field`](MessageType::field) reads.
    #[doc(hidden)]
    fn read_usual_field<'a>(
        number: u32,
        wire_type: u32,
        pos: usize,
        reader: &Reader<'a, Self>,
    ) -> Option<(Self::Field<'a>, usize)>;
    /// Whether the field is outside the table.
    fn is_unknown(field: &Self::Field<'_>) -> bool;
    /// Writes a field in the encoding in which it was read.
    #[doc(hidden)]
    fn write_field<'a>(field: Self::Field<'a>, out: &mut crate::Encoder<'a>) -> Result<(), Error>;
}

/// Field of the table, as a type for the writer.
pub trait Field {
    /// The message that has the field.
    type Message: MessageType;
    /// Codec of the field: label and value type, such as `Repeated<Int64>`.
    type Codec: FieldCodec;
    /// Field number.
    const NUMBER: u32;
}

/// Description of a message type.
#[derive(Debug)]
pub struct MessageDef {
    /// Name within the package `onnx`, such as `TypeProto.Tensor`.
    pub name: &'static str,
    /// Fields in ascending order of numbers.
    pub fields: &'static [FieldDef],
}

impl MessageDef {
    /// Returns the field with the number `number`.
    pub fn field(&self, number: u32) -> Option<&'static FieldDef> {
        self.fields
            .binary_search_by_key(&number, |field| field.number)
            .ok()
            .map(|index| &self.fields[index])
    }
}

/// Description of a field.
#[derive(Debug)]
pub struct FieldDef {
    /// Field number.
    pub number: u32,
    /// Name in text format and JSON.
    pub name: &'static str,
    /// Type of the value.
    pub kind: FieldKind,
    /// Number of occurrences, and the encoding of repeated numbers.
    pub label: Label,
}

/// Expands the table into types. The entry
///
/// ```text
/// /// One imported operator set.
/// "OperatorSetIdProto" OperatorSetIdProto OperatorSetIdField operator_set_id {
///     1 Domain "domain" Optional<Text>,
/// }
/// ```
///
/// expands to the marker `OperatorSetIdProto`, the enum `OperatorSetIdField<'a> {
/// Domain(Slice<'a>), Unknown(Unknown<'a>) }`, the module `operator_set_id` with the empty type
/// `Domain` that implements [`Field`], and the implementation of [`MessageType`]. This is a macro
/// because each field needs a type of its own.
macro_rules! messages {
    ($( $(#[$doc:meta])* $name:literal $message:ident $field:ident $module:ident {
        $( $number:literal $variant:ident $text:literal $codec:ty, )*
    } )*) => {
        /// Every message of the format.
        pub static MESSAGES: &[&MessageDef] = &[$( $message::DEF, )*];
        $(
            $(#[$doc])*
            #[derive(Debug, Clone, Copy, PartialEq, Eq)]
            pub struct $message;

            #[doc = concat!("A field of `", $name, "`.")]
            #[derive(Debug, Clone, Copy, PartialEq)]
            pub enum $field<'a> {
                $(
                    #[doc = concat!("`", $text, "`, number ", stringify!($number), ".")]
                    $variant(<$codec as FieldCodec>::Value<'a>),
                )*
                /// Field outside the table.
                Unknown(Unknown<'a>),
            }

            #[doc = concat!("Fields of `", $name, "` by name, for writing.")]
            pub mod $module {
                $(
                    #[doc = concat!("`", $text, "`, number ", stringify!($number), ".")]
                    #[derive(Debug, Clone, Copy)]
                    pub struct $variant;
                )*
            }

            // The implementations are outside the module, so that a field and a type of one name
            // cannot be confused.
            $(
                impl Field for $module::$variant {
                    type Message = $message;
                    type Codec = $codec;
                    const NUMBER: u32 = $number;
                }
            )*

            impl MessageType for $message {
                type Field<'a> = $field<'a>;
                const DEF: &'static MessageDef = &MessageDef {
                    name: $name,
                    fields: &[$( FieldDef {
                        number: $number,
                        name: $text,
                        kind: <$codec as FieldCodec>::KIND,
                        label: <$codec as FieldCodec>::LABEL,
                    }, )*],
                };

                #[inline(always)]
                fn read_usual_field<'a>(
                    number: u32,
                    wire_type: u32,
                    pos: usize,
                    reader: &Reader<'a, Self>,
                ) -> Option<($field<'a>, usize)> {
                    match number {
                        $( $number => {
                            let (value, pos) = <$codec as FieldCodec>::read_usual(wire_type, pos, reader)?;
                            Some(($field::$variant(value), pos))
                        } )*
                        _ => None,
                    }
                }

                fn field<'a>(raw: RawField<'a>, reader: &Reader<'a, Self>) -> Result<$field<'a>, Error> {
                    match raw.number {
                        $( $number => if let Some(value) = <$codec as FieldCodec>::read(&raw, reader)? {
                            return Ok($field::$variant(value));
                        }, )*
                        _ => {}
                    }
                    let after = reader.last_known();
                    Ok($field::Unknown(Unknown { number: raw.number, after, record: raw.record }))
                }

                #[inline]
                fn is_unknown(field: &$field<'_>) -> bool {
                    matches!(field, $field::Unknown(_))
                }

                fn write_field<'a>(field: $field<'a>, out: &mut Encoder<'a>) -> Result<(), Error> {
                    match field {
                        $( $field::$variant(value) => <$codec as FieldCodec>::copy($number, value, out), )*
                        $field::Unknown(unknown) => { out.put_records(unknown.record.bytes); Ok(()) }
                    }
                }
            }
        )*
    };
}
pub(crate) use messages;

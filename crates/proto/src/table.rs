//! What a line of the table is: the traits that tie a message, its fields and their kinds together.

use crate::error::Error;
use crate::kinds::{FieldKind, Kind, Label};
use crate::read::{RawField, Reader};

/// A message type of the table; the implementors are empty marker types.
pub trait MessageType: Sized + 'static {
    /// The typed fields, borrowed from the source.
    type Field<'a>: Copy + std::fmt::Debug;
    /// Name and fields.
    const DEF: &'static MessageDef;

    /// Looks the meaning of a raw field up.
    #[doc(hidden)]
    fn field<'a>(raw: RawField<'a>, reader: &Reader<'a, Self>) -> Result<Self::Field<'a>, Error>;
    /// The field whose tag has been read and whose value begins at `pos`, and where it ends. `None`
    /// for whatever is not of the usual form; then [`field`](MessageType::field) finds out what it
    /// is.
    #[doc(hidden)]
    fn usual_field<'a>(
        number: u32,
        wire_type: u32,
        pos: usize,
        reader: &Reader<'a, Self>,
    ) -> Option<(Self::Field<'a>, usize)>;
    /// Whether the field is outside the table.
    fn is_unknown(field: &Self::Field<'_>) -> bool;
    /// Writes a field as it was read.
    #[doc(hidden)]
    fn write_field<'a>(field: Self::Field<'a>, out: &mut crate::Encoder<'a>) -> Result<(), Error>;
}

/// A line of the table, as a type: what the writer needs to know of a field.
pub trait Field {
    /// The message that has the field.
    type Message: MessageType;
    /// Label and type, such as `Repeated<Int64>`.
    type Kind: Kind;
    /// Field number.
    const NUMBER: u32;
}

/// A message, described.
#[derive(Debug)]
pub struct MessageDef {
    /// Name within the package `onnx`, such as `TypeProto.Tensor`.
    pub name: &'static str,
    /// Its fields, in ascending order of numbers.
    pub fields: &'static [FieldDef],
}

impl MessageDef {
    /// The field with that number.
    pub fn field(&self, number: u32) -> Option<&'static FieldDef> {
        self.fields
            .binary_search_by_key(&number, |field| field.number)
            .ok()
            .map(|index| &self.fields[index])
    }
}

/// A field, described.
#[derive(Debug)]
pub struct FieldDef {
    /// Field number.
    pub number: u32,
    /// Name, as in text format and JSON.
    pub name: &'static str,
    /// Type of the value.
    pub kind: FieldKind,
    /// How often it may occur, and how repeated numbers are written.
    pub label: Label,
}

/// Turns the table into types: one expansion, for
///
/// ```text
/// /// One imported operator set.
/// "OperatorSetIdProto" OperatorSetIdProto OperatorSetIdField operator_set_id {
///     1 Domain "domain" Optional<Text>,
/// }
/// ```
///
/// is the marker `OperatorSetIdProto`, the enum
/// `OperatorSetIdField<'a> { Domain(Slice<'a>), Unknown(Unknown<'a>) }`, the module
/// `operator_set_id` with the empty type `Domain` that implements [`Field`], and the implementation
/// of [`MessageType`]. A function could not do it: the point is that each field has its own type.
macro_rules! messages {
    ($( $(#[$doc:meta])* $name:literal $message:ident $field:ident $module:ident {
        $( $number:literal $variant:ident $text:literal $kind:ty, )*
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
                    $variant(<$kind as Kind>::Value<'a>),
                )*
                /// Anything else.
                Unknown(Unknown<'a>),
            }

            #[doc = concat!("The fields of `", $name, "` by name, for writing.")]
            pub mod $module {
                $(
                    #[doc = concat!("`", $text, "`, number ", stringify!($number), ".")]
                    #[derive(Debug, Clone, Copy)]
                    pub struct $variant;
                )*
            }

            // Outside the module, where a field and a type of the same name cannot be confused.
            $(
                impl Field for $module::$variant {
                    type Message = $message;
                    type Kind = $kind;
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
                        kind: <$kind as Kind>::KIND,
                        label: <$kind as Kind>::LABEL,
                    }, )*],
                };

                #[inline(always)]
                fn usual_field<'a>(
                    number: u32,
                    wire_type: u32,
                    pos: usize,
                    reader: &Reader<'a, Self>,
                ) -> Option<($field<'a>, usize)> {
                    match number {
                        $( $number => {
                            let (value, pos) = <$kind as Kind>::read_usual(wire_type, pos, reader)?;
                            Some(($field::$variant(value), pos))
                        } )*
                        _ => None,
                    }
                }

                fn field<'a>(raw: RawField<'a>, reader: &Reader<'a, Self>) -> Result<$field<'a>, Error> {
                    match raw.number {
                        $( $number => if let Some(value) = <$kind as Kind>::read(&raw, reader)? {
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
                        $( $field::$variant(value) => <$kind as Kind>::copy($number, value, out), )*
                        $field::Unknown(unknown) => { out.records(unknown.record.bytes); Ok(()) }
                    }
                }
            }
        )*
    };
}
pub(crate) use messages;

//! Codecs of fields: the label and the value type of a field, as types that the table names.
//!
//! In `Optional<Int64>`, `Repeated<Text>`, `Packed<Float>` or `OneOf<Message<TensorTypeProto>>` the
//! outer type is the label and the inner one the value type. Each reads its value from a raw field
//! and writes it.

use std::fmt::Debug;
use std::marker::PhantomData;

use crate::error::{Error, ErrorKind};
use crate::read::{RawField, Reader, Slice};
use crate::table::{MessageDef, MessageType};
use crate::wire::{WireType, read_varint, read_varints};
use crate::write::Encoder;

/// Type of a value, for tools that work from the descriptions of messages.
#[derive(Clone, Copy)]
pub enum FieldKind {
    /// `int64`
    Int64,
    /// `int32`
    Int32,
    /// `uint64`
    Uint64,
    /// `float`
    Float,
    /// `double`
    Double,
    /// `string`, UTF-8 by contract
    Text,
    /// `bytes`
    Blob,
    /// An enumeration; the function returns the name of a number, if it has one.
    Enum(fn(i32) -> Option<&'static str>),
    /// A message; the function breaks the cycle of message types that contain themselves.
    Message(fn() -> &'static MessageDef),
}

impl Debug for FieldKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            FieldKind::Int64 => "int64",
            FieldKind::Int32 => "int32",
            FieldKind::Uint64 => "uint64",
            FieldKind::Float => "float",
            FieldKind::Double => "double",
            FieldKind::Text => "string",
            FieldKind::Blob => "bytes",
            FieldKind::Enum(_) => "enum",
            FieldKind::Message(def) => def().name,
        })
    }
}

/// Number of occurrences of a field and, for lists of numbers, their encoding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Label {
    /// At most once, with presence.
    Optional,
    /// At most once, and only if no other member of the `oneof` occurs.
    OneOf,
    /// Any number of times, one tag each.
    Repeated,
    /// Any number of numbers, written as one block.
    Packed,
}

/// Reads and writes a field with one label and one value type.
pub trait FieldCodec {
    /// Value that the reader yields.
    type Value<'a>: Copy + Debug + PartialEq;
    /// Description of the value type.
    const KIND: FieldKind;
    /// Description of the label.
    const LABEL: Label;

    /// Reads the value of a raw field, or returns `None` if the wire type does not match.
    #[doc(hidden)]
    fn read<'a, M: MessageType>(
        raw: &RawField<'a>,
        reader: &Reader<'a, M>,
    ) -> Result<Option<Self::Value<'a>>, Error>;
    /// Reads the value at `pos` on the fast path and returns it with the position after it. Returns
    /// `None` for everything that `read` would reject or treat specially.
    #[doc(hidden)]
    fn read_usual<'a, M: MessageType>(
        wire_type: u32,
        pos: usize,
        reader: &Reader<'a, M>,
    ) -> Option<(Self::Value<'a>, usize)>;
    /// Writes the value in the encoding in which it was read.
    #[doc(hidden)]
    fn copy<'a>(number: u32, value: Self::Value<'a>, out: &mut Encoder<'a>) -> Result<(), Error>;
}

/// Reads and writes values of one type, once or several times a field.
pub trait ValueCodec {
    /// Value that the reader yields for a field that occurs once.
    type Value<'a>: Copy + Debug + PartialEq;
    /// Value that the reader yields per tag of a repeated field.
    type Many<'a>: Copy + Debug + PartialEq;
    /// Description of the value type.
    const KIND: FieldKind;

    #[doc(hidden)]
    fn read_one<'a, M: MessageType>(
        raw: &RawField<'a>,
        reader: &Reader<'a, M>,
    ) -> Result<Option<Self::Value<'a>>, Error>;
    #[doc(hidden)]
    fn read_many<'a, M: MessageType>(
        raw: &RawField<'a>,
        reader: &Reader<'a, M>,
    ) -> Result<Option<Self::Many<'a>>, Error>;
    #[doc(hidden)]
    fn read_usual_one<'a, M: MessageType>(
        wire_type: u32,
        pos: usize,
        reader: &Reader<'a, M>,
    ) -> Option<(Self::Value<'a>, usize)>;
    #[doc(hidden)]
    fn read_usual_many<'a, M: MessageType>(
        wire_type: u32,
        pos: usize,
        reader: &Reader<'a, M>,
    ) -> Option<(Self::Many<'a>, usize)>;
    #[doc(hidden)]
    fn copy_one<'a>(
        number: u32,
        value: Self::Value<'a>,
        out: &mut Encoder<'a>,
    ) -> Result<(), Error>;
    #[doc(hidden)]
    fn copy_many<'a>(
        number: u32,
        value: Self::Many<'a>,
        out: &mut Encoder<'a>,
    ) -> Result<(), Error>;
}

/// A type whose values are numbers and may be packed.
pub trait Scalar: ValueCodec {
    /// Rust type of the number.
    type Item: Copy + Debug + PartialEq;
    /// Varint, or four or eight bytes.
    const WIRE_TYPE: WireType;
    /// Converts from the bits on the wire.
    fn from_word(word: u64) -> Self::Item;
    /// Converts to the bits on the wire.
    fn to_word(item: Self::Item) -> u64;
}

macro_rules! labels {
    ($( $(#[$doc:meta])* $label:ident $value:ident $read:ident $usual:ident $copy:ident; )*) => { $(
        $(#[$doc])*
        #[derive(Debug)]
        pub struct $label<W>(PhantomData<W>);

        impl<W: ValueCodec> FieldCodec for $label<W> {
            type Value<'a> = W::$value<'a>;
            const KIND: FieldKind = W::KIND;
            const LABEL: Label = Label::$label;

            fn read<'a, M: MessageType>(raw: &RawField<'a>, reader: &Reader<'a, M>) -> Result<Option<Self::Value<'a>>, Error> {
                W::$read(raw, reader)
            }

            #[inline(always)]
            fn read_usual<'a, M: MessageType>(wire_type: u32, pos: usize, reader: &Reader<'a, M>) -> Option<(Self::Value<'a>, usize)> {
                W::$usual(wire_type, pos, reader)
            }

            fn copy<'a>(number: u32, value: Self::Value<'a>, out: &mut Encoder<'a>) -> Result<(), Error> {
                W::$copy(number, value, out)
            }
        }
    )* };
}

labels! {
    /// At most once.
    Optional Value read_one read_usual_one copy_one;
    /// At most once among the members of its `oneof`.
    OneOf Value read_one read_usual_one copy_one;
    /// Any number of times, one tag each when written.
    Repeated Many read_many read_usual_many copy_many;
    /// Numbers, one block when written.
    Packed Many read_many read_usual_many copy_many;
}

/// Content of one tag of a repeated number: one number or a packed block.
pub enum Chunk<'a, S: Scalar> {
    /// One number.
    One(S::Item),
    /// A block. Its length is a multiple of the width of four- and eight-byte numbers.
    Packed(Slice<'a>),
}

impl<S: Scalar> Clone for Chunk<'_, S> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<S: Scalar> Copy for Chunk<'_, S> {}

impl<S: Scalar> Debug for Chunk<'_, S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.iter().take(16)).finish()
    }
}

impl<S: Scalar> PartialEq for Chunk<'_, S> {
    fn eq(&self, other: &Self) -> bool {
        self.iter().eq(other.iter())
    }
}

impl<'a, S: Scalar> Chunk<'a, S> {
    /// Iterates over the numbers. A block of varints may turn out to be malformed.
    pub fn iter(self) -> impl Iterator<Item = Result<S::Item, Error>> + 'a
    where
        S::Item: 'a,
    {
        let (mut one, block) = match self {
            Chunk::One(item) => (Some(item), Slice::default()),
            Chunk::Packed(block) => (None, block),
        };
        let mut pos = 0;
        std::iter::from_fn(move || {
            if let Some(item) = one.take() {
                return Some(Ok(item));
            }
            let rest = block.bytes.get(pos..).filter(|rest| !rest.is_empty())?;
            let word = match S::WIRE_TYPE {
                WireType::Fixed32 => {
                    pos += 4;
                    rest.first_chunk().map(|b| u64::from(u32::from_le_bytes(*b)))
                }
                WireType::Fixed64 => {
                    pos += 8;
                    rest.first_chunk().map(|b| u64::from_le_bytes(*b))
                }
                _ => {
                    let start = pos;
                    match read_varint(block.bytes, &mut pos) {
                        Ok(word) => Some(word),
                        Err(kind) => {
                            pos = block.bytes.len();
                            return Some(Err(Error::new(kind, block.offset + start as u64)));
                        }
                    }
                }
            };
            word.map(|word| Ok(S::from_word(word)))
        })
    }
}

impl<S: Scalar> Chunk<'_, S> {
    /// Whether this is a block without numbers.
    pub fn is_empty(self) -> bool {
        matches!(self, Chunk::Packed(block) if block.bytes.is_empty())
    }

    /// Appends the numbers to `list`, faster than [`iter`](Self::iter). A caller that decodes
    /// several chunks, or knows the number of values, should reserve capacity first or reuse the
    /// list.
    ///
    /// # Errors
    ///
    /// A malformed varint in a packed block.
    pub fn decode_into(self, list: &mut Vec<S::Item>) -> Result<(), Error> {
        match (self, S::WIRE_TYPE) {
            (Chunk::Packed(block), WireType::Fixed32) => {
                let numbers = block.bytes.as_chunks().0.iter();
                list.extend(numbers.map(|b| S::from_word(u64::from(u32::from_le_bytes(*b)))));
                Ok(())
            }
            (Chunk::Packed(block), WireType::Fixed64) => {
                let numbers = block.bytes.as_chunks().0.iter();
                list.extend(numbers.map(|b| S::from_word(u64::from_le_bytes(*b))));
                Ok(())
            }
            _ => {
                self.visit_words(|words| list.extend(words.iter().map(|word| S::from_word(*word))))
            }
        }
    }

    /// Passes the bits of the numbers to `take`, in batches and without allocating. For varints
    /// only.
    ///
    /// # Errors
    ///
    /// A malformed varint in a packed block; `take` has received the numbers before it.
    pub fn visit_words(self, mut take: impl FnMut(&[u64])) -> Result<(), Error> {
        match self {
            Chunk::One(item) => {
                take(&[S::to_word(item)]);
                Ok(())
            }
            Chunk::Packed(block) => read_varints(block.bytes, take)
                .map_err(|(kind, at)| Error::new(kind, block.offset + at as u64)),
        }
    }
}

fn read_scalar<'a, S: Scalar>(raw: &RawField<'a>) -> Option<S::Item> {
    (raw.wire_type == S::WIRE_TYPE).then(|| S::from_word(raw.word))
}

fn read_scalars<'a, S: Scalar>(raw: &RawField<'a>) -> Result<Option<Chunk<'a, S>>, Error> {
    if raw.wire_type != WireType::Len {
        return Ok(read_scalar::<S>(raw).map(Chunk::One));
    }
    let length = raw.content.bytes.len() as u64;
    let width = packed_width::<S>();
    if !length.is_multiple_of(width) {
        return Err(Error::new(ErrorKind::PackedLength { length, width }, raw.content.offset));
    }
    Ok(Some(Chunk::Packed(raw.content)))
}

/// Returns the number of bytes that the length of a packed block is a multiple of.
fn packed_width<S: Scalar>() -> u64 {
    match S::WIRE_TYPE {
        WireType::Fixed32 => 4,
        WireType::Fixed64 => 8,
        _ => 1,
    }
}

/// Implements the `ValueCodec` methods that all numbers share.
macro_rules! scalar_word {
    () => {
        type Value<'a> = <Self as Scalar>::Item;
        type Many<'a> = Chunk<'a, Self>;

        #[inline]
        fn read_one<'a, M: MessageType>(
            raw: &RawField<'a>,
            _: &Reader<'a, M>,
        ) -> Result<Option<Self::Value<'a>>, Error> {
            Ok(read_scalar::<Self>(raw))
        }

        #[inline]
        fn read_many<'a, M: MessageType>(
            raw: &RawField<'a>,
            _: &Reader<'a, M>,
        ) -> Result<Option<Self::Many<'a>>, Error> {
            read_scalars::<Self>(raw)
        }

        #[inline(always)]
        fn read_usual_one<'a, M: MessageType>(
            wire_type: u32,
            pos: usize,
            reader: &Reader<'a, M>,
        ) -> Option<(Self::Value<'a>, usize)> {
            if wire_type != Self::WIRE_TYPE.number() {
                return None;
            }
            let (word, end) = reader.read_usual_word(Self::WIRE_TYPE, pos)?;
            Some((Self::from_word(word), end))
        }

        #[inline(always)]
        fn read_usual_many<'a, M: MessageType>(
            wire_type: u32,
            pos: usize,
            reader: &Reader<'a, M>,
        ) -> Option<(Self::Many<'a>, usize)> {
            if wire_type != WireType::Len.number() {
                let (item, end) = Self::read_usual_one(wire_type, pos, reader)?;
                return Some((Chunk::One(item), end));
            }
            let (block, end) = reader.read_usual_content(pos)?;
            let whole = (block.bytes.len() as u64).is_multiple_of(packed_width::<Self>());
            whole.then_some((Chunk::Packed(block), end))
        }

        fn copy_one<'a>(
            number: u32,
            value: Self::Value<'a>,
            out: &mut Encoder<'a>,
        ) -> Result<(), Error> {
            out.push_word(number, Self::WIRE_TYPE, Self::to_word(value));
            Ok(())
        }

        fn copy_many<'a>(
            number: u32,
            value: Self::Many<'a>,
            out: &mut Encoder<'a>,
        ) -> Result<(), Error> {
            match value {
                Chunk::One(item) => out.push_word(number, Self::WIRE_TYPE, Self::to_word(item)),
                Chunk::Packed(block) => out.push_payload(number, block.bytes),
            }
            Ok(())
        }
    };
}

macro_rules! scalars {
    ($( $(#[$doc:meta])* $name:ident($item:ty) $wire:ident, $from:expr, $to:expr; )*) => { $(
        $(#[$doc])*
        #[derive(Debug)]
        pub struct $name;

        impl Scalar for $name {
            type Item = $item;
            const WIRE_TYPE: WireType = WireType::$wire;
            #[inline]
            fn from_word(word: u64) -> $item {
                let from: fn(u64) -> $item = $from;
                from(word)
            }
            #[inline]
            fn to_word(item: $item) -> u64 {
                let to: fn($item) -> u64 = $to;
                to(item)
            }
        }

        impl ValueCodec for $name {
            const KIND: FieldKind = FieldKind::$name;
            scalar_word!();
        }
    )* };
}

scalars! {
    /// `int64`: a varint, two's complement.
    Int64(i64) Varint, |word| word as i64, |item| item as u64;
    /// `int32`: a varint whose low 32 bits count; negative numbers are written as ten bytes.
    Int32(i32) Varint, |word| word as i32, |item| i64::from(item) as u64;
    /// `uint64`: a varint.
    Uint64(u64) Varint, |word| word, |item| item;
    /// `float`: four bytes.
    Float(f32) Fixed32, |word| f32::from_bits(word as u32), |item| u64::from(item.to_bits());
    /// `double`: eight bytes.
    Double(f64) Fixed64, f64::from_bits, f64::to_bits;
}

/// A number with names for some of its values; `E` is an open enumeration.
#[derive(Debug)]
pub struct Enum<E>(PhantomData<E>);

/// An open enumeration: any number is a value, some have names.
pub trait OpenEnum: Copy + Debug + PartialEq + 'static {
    /// Converts from the number.
    fn from_number(number: i32) -> Self;
    /// Returns the number.
    fn number(self) -> i32;
    /// Returns the name of `number`, if it has one.
    fn name_of(number: i32) -> Option<&'static str>;
}

impl<E: OpenEnum> Scalar for Enum<E> {
    type Item = E;
    const WIRE_TYPE: WireType = WireType::Varint;

    fn from_word(word: u64) -> E {
        E::from_number(word as i32)
    }

    fn to_word(item: E) -> u64 {
        i64::from(item.number()) as u64
    }
}

impl<E: OpenEnum> ValueCodec for Enum<E> {
    const KIND: FieldKind = FieldKind::Enum(E::name_of);
    scalar_word!();
}

/// Implements the `ValueCodec` methods of length-prefixed types, which have one value per tag,
/// repeated or not.
macro_rules! one_per_tag {
    () => {
        #[inline]
        fn read_many<'a, M: MessageType>(
            raw: &RawField<'a>,
            reader: &Reader<'a, M>,
        ) -> Result<Option<Self::Many<'a>>, Error> {
            Self::read_one(raw, reader)
        }

        #[inline(always)]
        fn read_usual_many<'a, M: MessageType>(
            wire_type: u32,
            pos: usize,
            reader: &Reader<'a, M>,
        ) -> Option<(Self::Many<'a>, usize)> {
            Self::read_usual_one(wire_type, pos, reader)
        }

        fn copy_many<'a>(
            number: u32,
            value: Self::Many<'a>,
            out: &mut Encoder<'a>,
        ) -> Result<(), Error> {
            Self::copy_one(number, value, out)
        }
    };
}

macro_rules! slices {
    ($( $(#[$doc:meta])* $name:ident; )*) => { $(
        $(#[$doc])*
        #[derive(Debug)]
        pub struct $name;

        impl ValueCodec for $name {
            type Value<'a> = Slice<'a>;
            type Many<'a> = Slice<'a>;
            const KIND: FieldKind = FieldKind::$name;

            #[inline]
            fn read_one<'a, M: MessageType>(raw: &RawField<'a>, _: &Reader<'a, M>) -> Result<Option<Slice<'a>>, Error> {
                Ok((raw.wire_type == WireType::Len).then_some(raw.content))
            }

            #[inline(always)]
            fn read_usual_one<'a, M: MessageType>(wire_type: u32, pos: usize, reader: &Reader<'a, M>) -> Option<(Slice<'a>, usize)> {
                if wire_type != WireType::Len.number() {
                    return None;
                }
                reader.read_usual_content(pos)
            }

            fn copy_one<'a>(number: u32, value: Slice<'a>, out: &mut Encoder<'a>) -> Result<(), Error> {
                out.push_payload(number, value.bytes);
                Ok(())
            }

            one_per_tag!();
        }
    )* };
}

slices! {
    /// `string`. The reader accepts any bytes; code that displays or compares the text validates
    /// them.
    Text;
    /// `bytes`.
    Blob;
}

/// A nested message of type `M`.
#[derive(Debug)]
pub struct Message<M>(PhantomData<M>);

impl<N: MessageType> ValueCodec for Message<N> {
    type Value<'a> = Reader<'a, N>;
    type Many<'a> = Reader<'a, N>;
    const KIND: FieldKind = FieldKind::Message(|| N::DEF);

    #[inline]
    fn read_one<'a, M: MessageType>(
        raw: &RawField<'a>,
        reader: &Reader<'a, M>,
    ) -> Result<Option<Reader<'a, N>>, Error> {
        if raw.wire_type == WireType::Len {
            reader.open_child(raw.content).map(Some)
        } else {
            Ok(None)
        }
    }

    #[inline(always)]
    fn read_usual_one<'a, M: MessageType>(
        wire_type: u32,
        pos: usize,
        reader: &Reader<'a, M>,
    ) -> Option<(Reader<'a, N>, usize)> {
        if wire_type != WireType::Len.number() {
            return None;
        }
        let (content, end) = reader.read_usual_content(pos)?;
        Some((reader.open_child(content).ok()?, end))
    }

    fn copy_one<'a>(number: u32, value: Reader<'a, N>, out: &mut Encoder<'a>) -> Result<(), Error> {
        out.push_message(number, |out| crate::rewrite::copy_fields(value, out))
    }

    one_per_tag!();
}

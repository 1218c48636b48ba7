//! The pull reader: yields the typed fields of one message in the order of the bytes, borrowed from
//! the source.
//!
//! A nested message is yielded as another [`Reader`] that has read nothing yet. Skipping it is
//! free, and nothing here recurses. A field that is not in the table, or has another wire type than
//! in the table, is yielded as [`Unknown`] with all its bytes, so that it can be preserved.

use std::marker::PhantomData;

use crate::error::{Error, ErrorKind};
use crate::table::MessageType;
use crate::wire::{WireType, read_usual_varint, read_varint};

/// Bounds of a reader. The defaults suit files from any source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Maximum depth of nested messages, in levels. One nested graph takes three. protobuf's own
    /// limit is 100.
    pub depth: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Limits { depth: 1_000 }
    }
}

/// Bytes of the source and their offset.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub struct Slice<'a> {
    /// The bytes.
    pub bytes: &'a [u8],
    /// Offset of the first byte, from the start of the source.
    pub offset: u64,
}

impl std::fmt::Debug for Slice<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let shown = &self.bytes[..self.bytes.len().min(40)];
        write!(f, "{:?}@{}+{}", String::from_utf8_lossy(shown), self.offset, self.bytes.len())
    }
}

/// Field that is not in the table, or whose wire type differs from the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unknown<'a> {
    /// Field number.
    pub number: u32,
    /// Number of the last known field before it, or 0. A writer puts the record after that field.
    pub after: u32,
    /// Tag and value, to be written back unchanged.
    pub record: Slice<'a>,
}

/// Field that has not been looked up in the table.
#[derive(Debug, Clone, Copy)]
pub struct RawField<'a> {
    /// Field number.
    pub number: u32,
    /// Wire type of the value.
    pub wire_type: WireType,
    /// Value of a varint, or the bits of a 4- or 8-byte value.
    pub word: u64,
    /// The content of a length-prefixed value.
    pub content: Slice<'a>,
    /// Tag and value.
    pub record: Slice<'a>,
}

/// Reads the fields of one message of type `M`.
pub struct Reader<'a, M> {
    bytes: &'a [u8],
    pos: usize,
    base: u64,
    depth_left: u32,
    last_known: u32,
    limits: Limits,
    message: PhantomData<fn() -> M>,
}

impl<M> Clone for Reader<'_, M> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<M> Copy for Reader<'_, M> {}

impl<M: MessageType> std::fmt::Debug for Reader<'_, M> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}@{}+{}", M::DEF.name, self.base, self.bytes.len())
    }
}

impl<M> PartialEq for Reader<'_, M> {
    fn eq(&self, other: &Self) -> bool {
        (self.base, self.pos, self.bytes) == (other.base, other.pos, other.bytes)
    }
}

impl<'a, M: MessageType> Reader<'a, M> {
    /// Creates a reader of `bytes` as one message, with the default limits.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self::with_limits(bytes, Limits::default())
    }

    /// Creates a reader of `bytes` as one message.
    pub fn with_limits(bytes: &'a [u8], limits: Limits) -> Self {
        Self::new_nested(Slice { bytes, offset: 0 }, limits.depth, limits)
    }

    #[inline]
    fn new_nested(slice: Slice<'a>, depth_left: u32, limits: Limits) -> Self {
        Reader {
            bytes: slice.bytes,
            pos: 0,
            base: slice.offset,
            depth_left,
            last_known: 0,
            limits,
            message: PhantomData,
        }
    }

    /// Returns the bytes of the whole message.
    #[inline]
    pub fn slice(&self) -> Slice<'a> {
        Slice { bytes: self.bytes, offset: self.base }
    }

    /// Returns the offset of the next field, in bytes from the start of the source.
    #[inline]
    pub fn offset(&self) -> u64 {
        self.base + self.pos as u64
    }

    /// Returns the number of the last known field that was read, or 0.
    pub(crate) fn last_known(&self) -> u32 {
        self.last_known
    }

    pub(crate) fn open_child<N: MessageType>(
        &self,
        content: Slice<'a>,
    ) -> Result<Reader<'a, N>, Error> {
        let Some(depth_left) = self.depth_left.checked_sub(1) else {
            return Err(Error::new(
                ErrorKind::TooDeep { limit: self.limits.depth },
                content.offset,
            ));
        };
        Ok(Reader::new_nested(content, depth_left, self.limits))
    }

    /// Returns the next field without looking it up in the table, or `None` at the end.
    ///
    /// # Errors
    ///
    /// Any [`ErrorKind`]. After an error the reader is at its end.
    pub fn next_raw(&mut self) -> Result<Option<RawField<'a>>, Error> {
        if self.pos == self.bytes.len() {
            return Ok(None);
        }
        let start = self.pos;
        self.read_raw().map(Some).map_err(|kind| {
            self.pos = self.bytes.len();
            Error::new(kind, self.base + start as u64)
        })
    }

    /// Reads a field at the position, whose record need not be known to the table.
    fn read_raw(&mut self) -> Result<RawField<'a>, ErrorKind> {
        let start = self.pos;
        let (number, wire_type) = read_tag(self.bytes, &mut self.pos)?;
        let (word, content) = match wire_type {
            WireType::StartGroup => {
                skip_group(self.bytes, &mut self.pos, number, self.limits.depth)?;
                (0, self.pos..self.pos)
            }
            WireType::EndGroup => return Err(ErrorKind::UnbalancedGroup),
            _ => read_value(self.bytes, &mut self.pos, wire_type)?,
        };
        let slice = |range: std::ops::Range<usize>| Slice {
            offset: self.base + range.start as u64,
            bytes: self.bytes.get(range).unwrap_or_default(),
        };
        Ok(RawField {
            number,
            wire_type,
            word,
            content: slice(content),
            record: slice(start..self.pos),
        })
    }

    /// Reads the next field on the fast path: a tag of one or two bytes and the wire type of the
    /// table. Returns `None` and reads nothing in all other cases, including malformed bytes and
    /// the end.
    #[inline(always)]
    fn read_usual(&mut self) -> Option<M::Field<'a>> {
        let (tag, pos) = read_usual_tag(self.bytes, self.pos)?;
        let number = tag >> 3;
        let (field, pos) = M::read_usual_field(number, tag & 7, pos, self)?;
        self.pos = pos;
        self.last_known = number;
        Some(field)
    }

    /// Reads the next field in any encoding. Takes and returns the reader by value: a reader
    /// without references to it can stay in registers.
    #[cold]
    #[inline(never)]
    fn read_unusual(mut self) -> (Option<Result<M::Field<'a>, Error>>, Self) {
        let field = match self.next_raw() {
            Ok(None) => None,
            Ok(Some(raw)) => {
                let field = M::field(raw, &self);
                match &field {
                    Ok(field) if M::is_unknown(field) => {}
                    Ok(_) => self.last_known = raw.number,
                    Err(_) => self.pos = self.bytes.len(),
                }
                Some(field)
            }
            Err(error) => Some(Err(error)),
        };
        (field, self)
    }

    /// Reads the length at `pos` and the content after it (a text, blob, packed block or message),
    /// and returns the content with the position after it.
    #[inline(always)]
    pub(crate) fn read_usual_content(&self, pos: usize) -> Option<(Slice<'a>, usize)> {
        let (length, start) = read_usual_varint(self.bytes, pos)?;
        let end = start.checked_add(usize::try_from(length).ok()?)?;
        let content =
            Slice { bytes: self.bytes.get(start..end)?, offset: self.base + start as u64 };
        Some((content, end))
    }

    /// Reads the bits of the number at `pos` and returns them with the position after it.
    #[inline(always)]
    pub(crate) fn read_usual_word(&self, wire_type: WireType, pos: usize) -> Option<(u64, usize)> {
        let rest = self.bytes.get(pos..)?;
        match wire_type {
            WireType::Varint => read_usual_varint(self.bytes, pos),
            WireType::Fixed32 => {
                let word = u32::from_le_bytes(*rest.first_chunk()?);
                Some((u64::from(word), pos + 4))
            }
            WireType::Fixed64 => Some((u64::from_le_bytes(*rest.first_chunk()?), pos + 8)),
            WireType::Len | WireType::StartGroup | WireType::EndGroup => None,
        }
    }
}

impl<'a, M: MessageType> Iterator for Reader<'a, M> {
    type Item = Result<M::Field<'a>, Error>;

    // Inlined always: a field is built in one match and taken apart in another, and the compiler
    // joins the two only if it sees both.
    #[inline(always)]
    fn next(&mut self) -> Option<Self::Item> {
        if self.pos == self.bytes.len() {
            return None;
        }
        if let Some(field) = self.read_usual() {
            return Some(Ok(field));
        }
        let (field, after) = self.read_unusual();
        *self = after;
        field
    }
}

/// Reads a tag of one or two bytes, like all tags of the table. Returns `None` for longer tags and
/// at the end.
#[inline(always)]
fn read_usual_tag(bytes: &[u8], pos: usize) -> Option<(u32, usize)> {
    let first = *bytes.get(pos)?;
    if first < 0x80 {
        return Some((u32::from(first), pos + 1));
    }
    let second = *bytes.get(pos + 1)?;
    let tag = u32::from(first & 0x7f) | u32::from(second) << 7;
    (second < 0x80).then_some((tag, pos + 2))
}

fn read_tag(bytes: &[u8], pos: &mut usize) -> Result<(u32, WireType), ErrorKind> {
    let tag = read_varint(bytes, pos)?;
    let number = tag >> 3;
    if number == 0 || number >= 1 << 29 {
        return Err(ErrorKind::FieldNumber(number));
    }
    Ok((number as u32, WireType::from_low_bits(tag)?))
}

/// Reads the value after a tag and returns its bits (numbers) or the range of its content
/// (length-prefixed values).
fn read_value(
    bytes: &[u8],
    pos: &mut usize,
    wire_type: WireType,
) -> Result<(u64, std::ops::Range<usize>), ErrorKind> {
    match wire_type {
        WireType::Varint => Ok((read_varint(bytes, pos)?, *pos..*pos)),
        WireType::Fixed64 => {
            let word =
                bytes.get(*pos..).and_then(|b| b.first_chunk::<8>()).ok_or(ErrorKind::Truncated)?;
            *pos += 8;
            Ok((u64::from_le_bytes(*word), *pos..*pos))
        }
        WireType::Fixed32 => {
            let word =
                bytes.get(*pos..).and_then(|b| b.first_chunk::<4>()).ok_or(ErrorKind::Truncated)?;
            *pos += 4;
            Ok((u64::from(u32::from_le_bytes(*word)), *pos..*pos))
        }
        WireType::Len => {
            let length = read_varint(bytes, pos)?;
            let available = (bytes.len() - *pos) as u64;
            if length > available {
                return Err(ErrorKind::LengthBeyondEnd { length, available });
            }
            let start = *pos;
            *pos += length as usize;
            Ok((0, start..*pos))
        }
        WireType::StartGroup | WireType::EndGroup => Err(ErrorKind::UnbalancedGroup),
    }
}

/// Skips the rest of a group, including nested groups, after its opening tag.
fn skip_group(bytes: &[u8], pos: &mut usize, number: u32, depth: u32) -> Result<(), ErrorKind> {
    let mut open = vec![number];
    while let Some(&innermost) = open.last() {
        if *pos == bytes.len() {
            return Err(ErrorKind::Truncated);
        }
        let (number, wire_type) = read_tag(bytes, pos)?;
        match wire_type {
            WireType::StartGroup if open.len() as u64 >= u64::from(depth) => {
                return Err(ErrorKind::TooDeep { limit: depth });
            }
            WireType::StartGroup => open.push(number),
            WireType::EndGroup if number == innermost => {
                open.pop();
            }
            WireType::EndGroup => return Err(ErrorKind::UnbalancedGroup),
            _ => {
                read_value(bytes, pos, wire_type)?;
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Chunk;
    use crate::messages::*;

    fn fields<M: MessageType>(bytes: &[u8]) -> Result<Vec<M::Field<'_>>, Error> {
        Reader::<M>::new(bytes).collect()
    }

    fn error<M: MessageType>(bytes: &[u8]) -> ErrorKind {
        fields::<M>(bytes).expect_err("the bytes are wrong").kind()
    }

    #[test]
    fn fields_come_in_the_order_of_the_bytes() {
        // WIRE-01+, WIRE-02+, WIRE-03+, WIRE-12, WIRE-13+
        let bytes = b"\x12\x02me\x3a\x03\x12\x01g\x08\x0a";
        let read = fields::<ModelProto>(bytes).expect("well-formed");
        let [ModelField::ProducerName(name), ModelField::Graph(graph), ModelField::IrVersion(10)] =
            read[..]
        else {
            panic!("{read:?}")
        };
        assert_eq!((name.bytes, name.offset), (&b"me"[..], 2));
        let graph: Vec<_> = graph.collect::<Result<_, _>>().expect("well-formed");
        assert_eq!(graph, [GraphField::Name(Slice { bytes: b"g", offset: 8 })]);
    }

    #[test]
    fn packed_and_unpacked_lists_are_both_read() {
        // WIRE-14+, WIRE-15+, WIRE-37+
        let dims = |bytes: &[u8]| -> Vec<i64> {
            fields::<TensorProto>(bytes)
                .expect("well-formed")
                .into_iter()
                .flat_map(|field| match field {
                    TensorField::Dims(chunk) => {
                        chunk.iter().collect::<Result<Vec<_>, _>>().expect("well-formed")
                    }
                    other => panic!("{other:?}"),
                })
                .collect()
        };
        assert_eq!(dims(b"\x08\x02\x08\x03"), [2, 3]);
        assert_eq!(dims(b"\x0a\x02\x02\x03"), [2, 3]);
        assert_eq!(dims(b"\x0a\x02\x01\x02\x08\x03"), [1, 2, 3]);
        assert_eq!(dims(b"\x0a\x00"), []);
        assert_eq!(dims(b"\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"), [-1]); // WIRE-09+
    }

    #[test]
    fn packed_floats_must_be_whole() {
        // TENSOR-39+-, WIRE-23+
        let mut bytes = vec![0x22, 24];
        for value in [1.0f32, -0.0, f32::INFINITY, 2.5, f32::from_bits(0x7fc1_2345), 3.0] {
            bytes.extend(value.to_le_bytes());
        }
        let read = fields::<TensorProto>(&bytes).expect("well-formed");
        let TensorField::FloatData(chunk) = read[0] else { panic!("{read:?}") };
        let values: Vec<u32> = chunk.iter().map(|v| v.expect("well-formed").to_bits()).collect();
        assert_eq!(values[4], 0x7fc1_2345, "the bits of a NaN are kept");
        assert_eq!(values.len(), 6);
        bytes[1] = 23;
        bytes.pop();
        assert_eq!(error::<TensorProto>(&bytes), ErrorKind::PackedLength { length: 23, width: 4 });
    }

    #[test]
    fn a_32_bit_field_takes_the_low_bits() {
        // WIRE-11+
        let read = fields::<TensorProto>(b"\x2a\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01")
            .expect("well-formed");
        let TensorField::Int32Data(chunk) = read[0] else { panic!("{read:?}") };
        assert_eq!(chunk.iter().collect::<Result<Vec<_>, _>>(), Ok(vec![-1]));
    }

    #[test]
    fn bytes_outside_the_table_are_kept_whole() {
        // WIRE-05-, WIRE-19+, WIRE-25-, ATTR-19-, FUNC-30-: a string in an integer field, field 999
        // with each wire type, a group
        let rows: [&[u8]; 6] = [
            b"\x0a\x01x",
            b"\xb8\x3e\x05",
            b"\xb9\x3e\x01\x02\x03\x04\x05\x06\x07\x08",
            b"\xba\x3e\x02ab",
            b"\xbd\x3e\x01\x02\x03\x04",
            b"\xbb\x3e\x08\x01\x13\x14\xbc\x3e",
        ];
        for bytes in rows {
            let read = fields::<ModelProto>(bytes).expect("well-formed");
            let [ModelField::Unknown(unknown)] = read[..] else { panic!("{read:?}") };
            assert_eq!(unknown.record.bytes, bytes);
        }
        for retired in
            [&b"\x62\x00"[..], b"\x80\x01\x01", b"\x8a\x01\x00", b"\x92\x01\x00", b"\x9a\x01\x00"]
        {
            assert!(matches!(
                fields::<AttributeProto>(retired).expect("well-formed")[..],
                [AttributeField::Unknown(_)]
            ));
        }
        for retired in [b"\x10\x01", b"\x18\x01"] {
            assert!(matches!(
                fields::<FunctionProto>(retired).expect("well-formed")[..],
                [FunctionField::Unknown(_)]
            ));
        }
    }

    #[test]
    fn an_enum_number_outside_the_table_is_a_number() {
        // WIRE-24+, ATTR-18
        let read = fields::<AttributeProto>(b"\xa0\x01\x63").expect("well-formed");
        assert_eq!(read, [AttributeField::Type(crate::AttributeType(99))]);
    }

    #[test]
    fn broken_bytes_are_named() {
        // WIRE-04-, WIRE-05-, WIRE-06-, WIRE-07-, WIRE-12-, WIRE-19-
        let rows: [(&[u8], ErrorKind); 11] = [
            (b"\x00", ErrorKind::FieldNumber(0)),
            (b"\x80\x80\x80\x80\x10\x00", ErrorKind::FieldNumber(1 << 29)),
            (b"\x0e", ErrorKind::WireType(6)),
            (b"\x0f", ErrorKind::WireType(7)),
            (b"\x08", ErrorKind::Truncated),
            (b"\x08\x80", ErrorKind::Truncated),
            (b"\xb9\x3e\x01", ErrorKind::Truncated),
            (b"\x12\x05me", ErrorKind::LengthBeyondEnd { length: 5, available: 2 }),
            (
                b"\x12\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
                ErrorKind::LengthBeyondEnd { length: u64::MAX, available: 0 },
            ),
            (b"\x0c", ErrorKind::UnbalancedGroup),
            (b"\xbb\x3e\x14", ErrorKind::UnbalancedGroup),
        ];
        for (bytes, expected) in rows {
            assert_eq!(error::<ModelProto>(bytes), expected, "{bytes:x?}");
        }
        assert_eq!(fields::<ModelProto>(b""), Ok(vec![])); // WIRE-36
    }

    #[test]
    fn unusual_forms_are_read_like_usual_ones() {
        // WIRE-07, WIRE-08+: tags, lengths and numbers in more bytes than necessary
        let rows: [&[u8]; 4] = [
            b"\x08\x0a\x12\x02me",
            b"\x88\x00\x0a\x92\x00\x02me",
            b"\x88\x80\x00\x8a\x00\x92\x80\x80\x00\x82\x00me",
            b"\x08\x8a\x80\x80\x80\x80\x80\x80\x80\x80\x00\x12\x82\x80\x80\x00me",
        ];
        for bytes in rows {
            let read = fields::<ModelProto>(bytes).expect("well-formed");
            let [ModelField::IrVersion(10), ModelField::ProducerName(name)] = read[..] else {
                panic!("{read:?}")
            };
            let offset = bytes.len() as u64 - 2;
            assert_eq!((name.bytes, name.offset), (&b"me"[..], offset));
        }
        let mut reader = Reader::<ModelProto>::new(b"\x08\x80");
        assert!(reader.next().is_some_and(|field| field.is_err()));
        assert!(reader.next().is_none(), "an error is the end");
    }

    #[test]
    fn depth_is_bounded() {
        // WIRE-32+-
        let nested = |levels: usize| {
            let mut bytes = Vec::new();
            for _ in 0..levels {
                // SequenceProto.sequence_values
                let mut outer = vec![0x2a];
                crate::push_varint(&mut outer, bytes.len() as u64);
                outer.extend(&bytes);
                bytes = outer;
            }
            bytes
        };
        let depth = |bytes: &[u8]| -> Result<usize, Error> {
            let mut reader = Reader::<SequenceProto>::new(bytes);
            let mut levels = 0;
            while let Some(field) = reader.next() {
                let SequenceField::SequenceValues(inner) = field? else { panic!() };
                reader = inner;
                levels += 1;
            }
            Ok(levels)
        };
        assert_eq!(depth(&nested(100)), Ok(100));
        assert_eq!(
            depth(&nested(5_000)).expect_err("too deep").kind(),
            ErrorKind::TooDeep { limit: 1_000 }
        );
        let groups = [0x0b].repeat(100_000);
        assert_eq!(error::<ModelProto>(&groups), ErrorKind::TooDeep { limit: 1_000 });
    }

    #[test]
    fn chunks_say_their_form() {
        let read = fields::<TensorProto>(b"\x08\x02").expect("well-formed");
        assert!(matches!(read[..], [TensorField::Dims(Chunk::One(2))]));
    }
}

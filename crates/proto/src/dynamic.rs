//! Reads messages by their descriptions, for tools that treat all message types alike, such as the
//! JSON and text format converters.
//!
//! The typed [`Reader`] yields fields in the order of the bytes. A printer needs them in the order
//! of the table, lists in one piece, and repeated occurrences resolved by protobuf's rules: the
//! last number, text or byte string wins, messages are merged, and the last member of a `oneof`
//! wins.
//!
//! Nothing is decoded or copied in advance. One pass over a message records the runs of adjacent
//! records of each field (ordinary writers produce one run per field); values are read from these
//! runs later.

use std::ops::Range;

use crate::error::{Error, ErrorKind};
use crate::kinds::{Chunk, Double, FieldKind, Float, Int32, Int64, Label, Scalar, Uint64};
use crate::messages::ModelProto;
use crate::read::{Limits, RawField, Reader, Slice};
use crate::table::{FieldDef, MessageDef, MessageType};
use crate::wire::{Varint, WireType};

/// Index in place of a field's own for fields outside the table. No message has so many fields.
const UNKNOWN: u16 = u16::MAX;

/// Exclusive upper bound of the numbers that are tried for an enumeration name. The largest number
/// in the table is 14.
const ENUM_NUMBERS: i32 = 64;

impl FieldKind {
    /// Returns the wire type of a value outside a packed block.
    pub fn wire_type(self) -> WireType {
        match self {
            FieldKind::Int64 | FieldKind::Int32 | FieldKind::Uint64 | FieldKind::Enum(_) => {
                WireType::Varint
            }
            FieldKind::Float => WireType::Fixed32,
            FieldKind::Double => WireType::Fixed64,
            FieldKind::Text | FieldKind::Blob | FieldKind::Message(_) => WireType::Len,
        }
    }

    /// Returns the number called `name`, if this is an enumeration that has one.
    pub fn enum_number(self, name: &str) -> Option<i32> {
        let FieldKind::Enum(name_of) = self else {
            return None;
        };
        (0..ENUM_NUMBERS).find(|number| name_of(*number) == Some(name))
    }
}

impl FieldDef {
    /// Whether the field may have several values.
    pub fn is_list(&self) -> bool {
        matches!(self.label, Label::Repeated | Label::Packed)
    }

    fn accepts(&self, wire_type: WireType) -> bool {
        wire_type == self.kind.wire_type() || (wire_type == WireType::Len && self.is_list())
    }
}

/// Appends the tag of a field, for tools that build messages from descriptions.
pub fn push_tag(out: &mut Vec<u8>, number: u32, wire_type: WireType) {
    push_varint(out, u64::from(number << 3 | wire_type.number()));
}

/// Appends the minimal varint of `value`.
#[inline]
pub fn push_varint(out: &mut Vec<u8>, value: u64) {
    out.extend_from_slice(Varint::new(value).as_bytes());
}

/// Appends a length-prefixed field with the content `bytes`.
pub fn push_bytes(out: &mut Vec<u8>, number: u32, bytes: &[u8]) {
    push_tag(out, number, WireType::Len);
    push_varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// Reads one message along its description: call [`next_field`](Self::next_field), and for each
/// field [`next_value`](Self::next_value), until they return `None`.
#[derive(Debug, Clone)]
pub struct DynamicMessage<'a> {
    def: &'static MessageDef,
    source: &'a [u8],
    limits: Limits,
    depth_left: u32,
    /// Runs sorted by field; the runs of one field are in the order of the bytes.
    runs: Vec<Run>,
    field: Option<&'static FieldDef>,
    /// Indices of the current field's runs that are still to be read.
    current: Range<usize>,
    records: Records<'a>,
}

/// Adjacent records of one field.
#[derive(Debug, Clone, Copy)]
struct Run {
    /// Index in the table, or [`UNKNOWN`].
    field: u16,
    start: usize,
    end: usize,
}

/// Value or chunk of values that follows one tag of a field.
#[derive(Debug, Clone)]
pub enum DynamicValue<'a> {
    /// `int64`
    Int64(Chunk<'a, Int64>),
    /// `int32`
    Int32(Chunk<'a, Int32>),
    /// `uint64`
    Uint64(Chunk<'a, Uint64>),
    /// `float`
    Float(Chunk<'a, Float>),
    /// `double`
    Double(Chunk<'a, Double>),
    /// Numbers of an enumeration, with or without names.
    Enum(Chunk<'a, Int32>),
    /// `string`, not checked to be UTF-8.
    Text(Slice<'a>),
    /// `bytes`
    Blob(Slice<'a>),
    /// A message; all occurrences of a singular field are merged into one.
    Message(DynamicMessage<'a>),
}

impl<'a> DynamicMessage<'a> {
    /// Reads `bytes` as one message of type `M`.
    ///
    /// # Errors
    ///
    /// Any [`ErrorKind`], about the fields of this message. Nested messages are read when they are
    /// reached.
    pub fn new<M: MessageType>(bytes: &'a [u8], limits: Limits) -> Result<Self, Error> {
        Self::from_def(M::DEF, bytes, limits)
    }

    /// Reads `bytes` as one message of the type described by `def`.
    ///
    /// # Errors
    ///
    /// See [`new`](Self::new).
    pub fn from_def(
        def: &'static MessageDef,
        bytes: &'a [u8],
        limits: Limits,
    ) -> Result<Self, Error> {
        let mut message = Self::empty(def, bytes, limits, limits.depth);
        let mut state = OneOfState::default();
        message.gather(Slice { bytes, offset: 0 }, &mut state)?;
        message.resolve_oneof(&state);
        Ok(message)
    }

    fn empty(def: &'static MessageDef, source: &'a [u8], limits: Limits, depth_left: u32) -> Self {
        DynamicMessage {
            def,
            source,
            limits,
            depth_left,
            runs: Vec::new(),
            field: None,
            current: 0..0,
            records: Records::new(Slice::default(), limits),
        }
    }

    /// Returns the description of the message.
    pub fn def(&self) -> &'static MessageDef {
        self.def
    }

    /// Records the runs of `content`, which is one occurrence of the message.
    fn gather(&mut self, content: Slice<'a>, state: &mut OneOfState) -> Result<(), Error> {
        let mut records = Records::new(content, self.limits);
        while let Some(raw) = records.next_record()? {
            let field = self.find_field(&raw);
            let start = raw.record.offset as usize;
            let end = start + raw.record.bytes.len();
            match self.runs.last_mut() {
                Some(run) if run.field == field && run.end == start => run.end = end,
                _ => {
                    self.runs.push(Run { field, start, end });
                    state.record_run(self.def, field, self.runs.len() - 1);
                }
            }
        }
        Ok(())
    }

    /// Returns the field's index in the table, or [`UNKNOWN`] if the number or the wire type does
    /// not match.
    fn find_field(&self, raw: &RawField<'_>) -> u16 {
        let index = self.def.fields.binary_search_by_key(&raw.number, |field| field.number);
        match index {
            Ok(index) if self.def.fields[index].accepts(raw.wire_type) => index as u16,
            _ => UNKNOWN,
        }
    }

    fn resolve_oneof(&mut self, state: &OneOfState) {
        if state.switched {
            let mut index = 0;
            self.runs.retain(|run| {
                index += 1;
                index > state.member_from || !is_member(self.def, run.field)
            });
        }
        // The sort is stable and takes linear time on runs that are already in order.
        self.runs.sort_by_key(|run| run.field);
    }

    /// Moves to the next field that occurs, in ascending order of numbers. Unread values of the
    /// current field are skipped.
    pub fn next_field(&mut self) -> Option<&'static FieldDef> {
        let from = self.current.end;
        let index = self.runs.get(from).map_or(UNKNOWN, |run| run.field);
        let len = self.runs[from..].iter().take_while(|run| run.field == index).count();
        self.current = from..from + len;
        self.records = Records::new(Slice::default(), self.limits);
        self.field = self.def.fields.get(usize::from(index));
        self.field
    }

    /// Returns the next value of the current field: for lists the content of one tag, otherwise the
    /// value that wins.
    ///
    /// A list of numbers may consist of empty blocks only: then it occurs but has no elements.
    ///
    /// # Errors
    ///
    /// Any [`ErrorKind`], about the value; for a message also about its fields.
    pub fn next_value(&mut self) -> Result<Option<DynamicValue<'a>>, Error> {
        let Some(field) = self.field else {
            return Ok(None);
        };
        match field.kind {
            FieldKind::Message(def) if !field.is_list() => self.merge_occurrences(def()),
            _ if !field.is_list() => {
                let mut last = None;
                while let Some(raw) = self.next_record()? {
                    last = Some(raw);
                }
                last.map(|raw| self.decode_value(field, &raw)).transpose()
            }
            _ => match self.next_record()? {
                Some(raw) => self.decode_value(field, &raw).map(Some),
                None => Ok(None),
            },
        }
    }

    /// Returns the next field outside the table, in the order of the bytes, once
    /// [`next_field`](Self::next_field) has returned `None`.
    ///
    /// # Errors
    ///
    /// None that reading the message has not reported before.
    pub fn next_unknown(&mut self) -> Result<Option<RawField<'a>>, Error> {
        match self.field {
            Some(_) => Ok(None),
            None => self.next_record(),
        }
    }

    fn next_record(&mut self) -> Result<Option<RawField<'a>>, Error> {
        loop {
            if let Some(raw) = self.records.next_record()? {
                return Ok(Some(raw));
            }
            let Some(run) = self.current.next().map(|index| self.runs[index]) else {
                return Ok(None);
            };
            let slice = Slice {
                bytes: self.source.get(run.start..run.end).unwrap_or_default(),
                offset: run.start as u64,
            };
            self.records = Records::new(slice, self.limits);
        }
    }

    fn decode_value(
        &self,
        field: &'static FieldDef,
        raw: &RawField<'a>,
    ) -> Result<DynamicValue<'a>, Error> {
        Ok(match field.kind {
            FieldKind::Int64 => DynamicValue::Int64(read_chunk(raw)?),
            FieldKind::Int32 => DynamicValue::Int32(read_chunk(raw)?),
            FieldKind::Uint64 => DynamicValue::Uint64(read_chunk(raw)?),
            FieldKind::Float => DynamicValue::Float(read_chunk(raw)?),
            FieldKind::Double => DynamicValue::Double(read_chunk(raw)?),
            FieldKind::Enum(_) => DynamicValue::Enum(read_chunk(raw)?),
            FieldKind::Text => DynamicValue::Text(raw.content),
            FieldKind::Blob => DynamicValue::Blob(raw.content),
            FieldKind::Message(def) => {
                let mut child = self.open_child(def(), raw.content.offset)?;
                let mut state = OneOfState::default();
                child.gather(raw.content, &mut state)?;
                child.resolve_oneof(&state);
                DynamicValue::Message(child)
            }
        })
    }

    /// Merges all occurrences of the current field into one message.
    fn merge_occurrences(
        &mut self,
        def: &'static MessageDef,
    ) -> Result<Option<DynamicValue<'a>>, Error> {
        let Some(mut raw) = self.next_record()? else {
            return Ok(None);
        };
        let mut child = self.open_child(def, raw.content.offset)?;
        let mut state = OneOfState::default();
        loop {
            child.gather(raw.content, &mut state)?;
            match self.next_record()? {
                Some(next) => raw = next,
                None => break,
            }
        }
        child.resolve_oneof(&state);
        Ok(Some(DynamicValue::Message(child)))
    }

    fn open_child(&self, def: &'static MessageDef, offset: u64) -> Result<Self, Error> {
        match self.depth_left.checked_sub(1) {
            Some(depth_left) => Ok(Self::empty(def, self.source, self.limits, depth_left)),
            None => {
                let limit = self.limits.depth;
                Err(Error::new(ErrorKind::TooDeep { limit }, offset))
            }
        }
    }
}

/// State of the `oneof` while the runs of a message are gathered: its last member. No message of
/// the format has more than one `oneof`.
#[derive(Debug, Default)]
struct OneOfState {
    member: Option<u16>,
    /// Number of leading runs whose members were replaced by a later member.
    member_from: usize,
    switched: bool,
}

impl OneOfState {
    fn record_run(&mut self, def: &MessageDef, field: u16, index: usize) {
        if is_member(def, field) && self.member != Some(field) {
            self.switched |= self.member.is_some();
            self.member = Some(field);
            self.member_from = index;
        }
    }
}

fn is_member(def: &MessageDef, field: u16) -> bool {
    def.fields.get(usize::from(field)).is_some_and(|field| field.label == Label::OneOf)
}

fn read_chunk<'a, S: Scalar>(raw: &RawField<'a>) -> Result<Chunk<'a, S>, Error> {
    if raw.wire_type == S::WIRE_TYPE {
        return Ok(Chunk::One(S::from_word(raw.word)));
    }
    let width = match S::WIRE_TYPE {
        WireType::Fixed32 => 4,
        WireType::Fixed64 => 8,
        _ => 1,
    };
    let length = raw.content.bytes.len() as u64;
    if !length.is_multiple_of(width) {
        let kind = ErrorKind::PackedLength { length, width };
        return Err(Error::new(kind, raw.content.offset));
    }
    Ok(Chunk::Packed(raw.content))
}

/// Iterates over the raw fields of a byte range in their order, without a description.
#[derive(Debug, Clone, Copy)]
pub struct Records<'a> {
    /// Reader of an arbitrary message type, as only raw fields are read.
    reader: Reader<'a, ModelProto>,
    base: u64,
}

impl<'a> Records<'a> {
    /// Creates an iterator over the fields of `content`.
    pub fn new(content: Slice<'a>, limits: Limits) -> Self {
        Records { reader: Reader::with_limits(content.bytes, limits), base: content.offset }
    }

    /// Returns the next field, with offsets from the start of the source.
    ///
    /// # Errors
    ///
    /// Any [`ErrorKind`]. After an error the iteration is at its end.
    #[inline]
    pub fn next_record(&mut self) -> Result<Option<RawField<'a>>, Error> {
        match self.reader.next_raw() {
            Ok(Some(mut raw)) => {
                raw.record.offset += self.base;
                raw.content.offset += self.base;
                Ok(Some(raw))
            }
            Ok(None) => Ok(None),
            Err(error) => Err(Error::new(error.kind(), error.offset() + self.base)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::messages::*;

    /// Formats a message as one line.
    fn format_message(message: &mut DynamicMessage<'_>) -> Result<String, Error> {
        fn numbers<S: Scalar>(chunk: Chunk<'_, S>) -> String {
            let numbers = chunk.iter().map(|item| format!("{:?}", item.unwrap()));
            numbers.collect::<Vec<_>>().join(" ")
        }
        let mut parts = Vec::new();
        while let Some(field) = message.next_field() {
            let mut values = Vec::new();
            while let Some(value) = message.next_value()? {
                values.push(match value {
                    DynamicValue::Int64(chunk) => numbers(chunk),
                    DynamicValue::Int32(chunk) | DynamicValue::Enum(chunk) => numbers(chunk),
                    DynamicValue::Uint64(chunk) => numbers(chunk),
                    DynamicValue::Float(chunk) => numbers(chunk),
                    DynamicValue::Double(chunk) => numbers(chunk),
                    DynamicValue::Text(slice) | DynamicValue::Blob(slice) => {
                        String::from_utf8_lossy(slice.bytes).into_owned()
                    }
                    DynamicValue::Message(mut inner) => {
                        format!("{{{}}}", format_message(&mut inner)?)
                    }
                });
            }
            parts.push(format!("{}={}", field.name, values.join(",")));
        }
        while let Some(raw) = message.next_unknown()? {
            parts.push(format!("#{}@{}", raw.number, raw.record.offset));
        }
        Ok(parts.join(" "))
    }

    fn read<M: MessageType>(bytes: &[u8]) -> Result<String, Error> {
        format_message(&mut DynamicMessage::new::<M>(bytes, Limits::default())?)
    }

    #[test]
    fn fields_come_in_the_order_of_the_table() {
        // WIRE-02+, WIRE-15+, WIRE-18, WIRE-22: interleaved, both forms, an empty block, an
        // unexpected wire type, an unknown number
        let rows: [(&[u8], &str); 6] = [
            (b"", ""),
            (b"\x42\x01W\x08\x02\x10\x01\x08\x03", "dims=2,3 data_type=1 name=W"),
            (b"\x0a\x02\x02\x03\x08\x04\x0a\x00", "dims=2 3,4,"),
            (b"\x10\x01\x10\x07", "data_type=7"),
            (b"\x12\x01x\x10\x07\xb8\x3e\x05", "data_type=7 #2@0 #999@5"),
            (b"\x22\x04\x00\x00\x80\x3f\x25\x00\x00\x00\xc0", "float_data=1.0,-2.0"),
        ];
        for (bytes, expected) in rows {
            assert_eq!(read::<TensorProto>(bytes).as_deref(), Ok(expected), "{bytes:x?}");
        }
    }

    #[test]
    fn a_size_and_a_name_of_a_shard_exclude_each_other() {
        // DIST-14-: the last member wins; both may be absent
        let rows: [(&[u8], &str); 3] = [
            (b"\x08\x03\x12\x01N\x18\x02", "dim_param=N num_shards=2"),
            (b"\x12\x01N\x08\x03\x18\x02", "dim_value=3 num_shards=2"),
            (b"\x18\x02", "num_shards=2"),
        ];
        for (bytes, expected) in rows {
            let found = read::<SimpleShardedDimProto>(bytes);
            assert_eq!(found.as_deref(), Ok(expected), "{bytes:x?}");
        }
    }

    #[test]
    fn repeated_occurrences_are_resolved() {
        // WIRE-21+, WIRE-22+
        let rows: [(&[u8], &str); 5] = [
            // Messages merge; numbers in them are replaced.
            (b"\x0a\x02\x08\x01\x0a\x04\x08\x06\x12\x00", "tensor_type={elem_type=6 shape={}}"),
            // The last member wins; values of it that precede another member are dropped.
            (
                b"\x0a\x02\x08\x01\x22\x00\x32\x01d\x0a\x02\x12\x00",
                "tensor_type={shape={}} denotation=d",
            ),
            (b"\x0a\x02\x08\x01\x22\x00", "sequence_type={}"),
            // The rule also spans the occurrences of a merged message.
            (
                b"\x22\x06\x0a\x04\x0a\x02\x08\x01\x22\x04\x0a\x02\x22\x00",
                "sequence_type={elem_type={sequence_type={}}}",
            ),
            (
                b"\x22\x06\x0a\x04\x0a\x02\x08\x01\x22\x06\x0a\x04\x0a\x02\x12\x00",
                "sequence_type={elem_type={tensor_type={elem_type=1 shape={}}}}",
            ),
        ];
        for (bytes, expected) in rows {
            assert_eq!(read::<TypeProto>(bytes).as_deref(), Ok(expected), "{bytes:x?}");
        }
    }

    #[test]
    fn no_message_has_two_oneofs() {
        // `OneOfState` supports one `oneof` per message: these are the messages with one.
        let with: Vec<&str> = MESSAGES
            .iter()
            .filter(|def| def.fields.iter().any(|field| field.label == Label::OneOf))
            .map(|def| def.name)
            .collect();
        assert_eq!(with, ["TensorShapeProto.Dimension", "TypeProto", "SimpleShardedDimProto"]);
    }

    #[test]
    fn enumerations_are_found_by_name() {
        let kind = AttributeProto::DEF.field(20).unwrap().kind;
        assert_eq!(kind.enum_number("TYPE_PROTOS"), Some(14));
        assert_eq!(kind.enum_number("type_protos"), None);
        assert_eq!(FieldKind::Int64.enum_number("FLOAT"), None);
    }

    #[test]
    fn errors_have_their_place() {
        let rows: [(&[u8], ErrorKind, u64); 3] = [
            (b"\x3a\x02\x08", ErrorKind::LengthBeyondEnd { length: 2, available: 1 }, 0),
            (b"\x3a\x03\x12\x05x", ErrorKind::LengthBeyondEnd { length: 5, available: 1 }, 2),
            (
                b"\x3a\x06\x2a\x04\x22\x02\x00\x00",
                ErrorKind::PackedLength { length: 2, width: 4 },
                6,
            ),
        ];
        for (bytes, kind, offset) in rows {
            let error = read::<ModelProto>(bytes).expect_err("broken");
            assert_eq!((error.kind(), error.offset()), (kind, offset), "{bytes:x?}");
        }
    }

    #[test]
    fn depth_is_bounded() {
        // WIRE-32: SequenceProto.sequence_values in itself
        let mut bytes = Vec::new();
        for _ in 0..20 {
            let mut outer = vec![0x2a, bytes.len() as u8];
            outer.extend(&bytes);
            bytes = outer;
        }
        let levels = |depth| {
            let mut message = DynamicMessage::new::<SequenceProto>(&bytes, Limits { depth })?;
            format_message(&mut message)
        };
        assert!(levels(20).is_ok());
        assert_eq!(levels(19).expect_err("too deep").kind(), ErrorKind::TooDeep { limit: 19 });
    }
}

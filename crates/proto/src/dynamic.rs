//! Messages by description: for tools that treat all messages alike, such as the forms JSON and
//! text format.
//!
//! The typed [`Reader`] yields fields as they come. Who prints a message wants them in the order of
//! the table, lists in one piece, and what occurs more than once already settled by protobuf's
//! rules: of a number, a text or bytes the last one counts, of a message all count as if they were
//! one, and of the members of a `oneof` the last one counts.
//!
//! Nothing is decoded or copied in advance. One pass over a message remembers where runs of the
//! same field lie (in files from ordinary writers: one run per field that occurs); reading goes to
//! these places again.

use std::ops::Range;

use crate::error::{Error, ErrorKind};
use crate::kinds::{Chunk, Double, FieldKind, Float, Int32, Int64, Label, Scalar, Uint64};
use crate::messages::ModelProto;
use crate::read::{Limits, RawField, Reader, Slice};
use crate::table::{FieldDef, MessageDef, MessageType};
use crate::wire::{WireType, write_varint};

/// No message has so many fields, so as an index it means: outside the table.
const UNKNOWN: u16 = u16::MAX;

/// Names of enumeration numbers are looked for below this number. The largest of the table is 14.
const ENUM_NUMBERS: i32 = 64;

impl FieldKind {
    /// How a value is delimited when it is not in a packed block.
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

    /// The number with that name, if this is an enumeration that has one.
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

    fn fits(&self, wire_type: WireType) -> bool {
        wire_type == self.kind.wire_type() || (wire_type == WireType::Len && self.is_list())
    }
}

/// Appends the tag of a field, for tools that put messages together from descriptions.
pub fn push_tag(out: &mut Vec<u8>, number: u32, wire_type: WireType) {
    push_varint(out, u64::from(number << 3 | wire_type.number()));
}

/// Appends the minimal varint of `value`.
#[inline]
pub fn push_varint(out: &mut Vec<u8>, value: u64) {
    let mut bytes = [0; 10];
    let len = write_varint(&mut bytes, value);
    out.extend_from_slice(&bytes[..len]);
}

/// Appends a field that is bytes.
pub fn push_bytes(out: &mut Vec<u8>, number: u32, bytes: &[u8]) {
    push_tag(out, number, WireType::Len);
    push_varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// Reads one message along its description: [`next_field`](Self::next_field), and for each field
/// [`next_value`](Self::next_value) until there is none.
#[derive(Debug, Clone)]
pub struct DynamicMessage<'a> {
    def: &'static MessageDef,
    source: &'a [u8],
    limits: Limits,
    depth_left: u32,
    /// Sorted by field. The runs of a field are in the order of the bytes.
    runs: Vec<Run>,
    field: Option<&'static FieldDef>,
    /// The runs of the current field that have not been begun.
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

/// What one tag of a field brings.
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
    /// Numbers of an enumeration, with or without a name.
    Enum(Chunk<'a, Int32>),
    /// `string`. Whether it is UTF-8 has not been looked at.
    Text(Slice<'a>),
    /// `bytes`
    Blob(Slice<'a>),
    /// A message; where a field that may occur once occurs several times, all of them as one.
    Message(DynamicMessage<'a>),
}

impl<'a> DynamicMessage<'a> {
    /// Takes `bytes` as one message of type `M`.
    ///
    /// # Errors
    ///
    /// What [`ErrorKind`] lists, about the fields of this message. Nested ones are looked at when
    /// they are reached.
    pub fn new<M: MessageType>(bytes: &'a [u8], limits: Limits) -> Result<Self, Error> {
        Self::of(M::DEF, bytes, limits)
    }

    /// Takes `bytes` as one message of a description.
    ///
    /// # Errors
    ///
    /// See [`new`](Self::new).
    pub fn of(def: &'static MessageDef, bytes: &'a [u8], limits: Limits) -> Result<Self, Error> {
        let mut message = Self::empty(def, bytes, limits, limits.depth);
        let mut gathering = Gathering::default();
        message.gather(Slice { bytes, offset: 0 }, &mut gathering)?;
        message.settle(&gathering);
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

    /// Its description.
    pub fn def(&self) -> &'static MessageDef {
        self.def
    }

    /// Remembers the runs of one stretch of the message.
    fn gather(&mut self, content: Slice<'a>, gathering: &mut Gathering) -> Result<(), Error> {
        let mut records = Records::new(content, self.limits);
        while let Some(raw) = records.next_record()? {
            let field = self.index_of(&raw);
            let start = raw.record.offset as usize;
            let end = start + raw.record.bytes.len();
            match self.runs.last_mut() {
                Some(run) if run.field == field && run.end == start => run.end = end,
                _ => {
                    self.runs.push(Run { field, start, end });
                    gathering.run(self.def, field, self.runs.len() - 1);
                }
            }
        }
        Ok(())
    }

    /// The field's index in the table if its wire type fits, too.
    fn index_of(&self, raw: &RawField<'_>) -> u16 {
        let index = self.def.fields.binary_search_by_key(&raw.number, |field| field.number);
        match index {
            Ok(index) if self.def.fields[index].fits(raw.wire_type) => index as u16,
            _ => UNKNOWN,
        }
    }

    fn settle(&mut self, gathering: &Gathering) {
        if gathering.switched {
            let mut index = 0;
            self.runs.retain(|run| {
                index += 1;
                index > gathering.member_from || !is_member(self.def, run.field)
            });
        }
        // Stable, and no more than a glance at runs that are in order.
        self.runs.sort_by_key(|run| run.field);
    }

    /// Moves to the next field that occurs, in ascending order of numbers. Values of the one before
    /// that have not been read are passed over.
    pub fn next_field(&mut self) -> Option<&'static FieldDef> {
        let from = self.current.end;
        let index = self.runs.get(from).map_or(UNKNOWN, |run| run.field);
        let len = self.runs[from..].iter().take_while(|run| run.field == index).count();
        self.current = from..from + len;
        self.records = Records::new(Slice::default(), self.limits);
        self.field = self.def.fields.get(usize::from(index));
        self.field
    }

    /// The next value of the current field: for lists what one tag brings, otherwise the one that
    /// counts.
    ///
    /// A list of numbers may bring empty blocks only, and then has no elements although it occurs.
    ///
    /// # Errors
    ///
    /// What [`ErrorKind`] lists, about the value; for messages about their fields, too.
    pub fn next_value(&mut self) -> Result<Option<DynamicValue<'a>>, Error> {
        let Some(field) = self.field else {
            return Ok(None);
        };
        match field.kind {
            FieldKind::Message(def) if !field.is_list() => self.merged(def()),
            _ if !field.is_list() => {
                let mut last = None;
                while let Some(raw) = self.next_record()? {
                    last = Some(raw);
                }
                last.map(|raw| self.value(field, &raw)).transpose()
            }
            _ => match self.next_record()? {
                Some(raw) => self.value(field, &raw).map(Some),
                None => Ok(None),
            },
        }
    }

    /// The next field outside the table, in the order of the bytes, once
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

    fn value(
        &self,
        field: &'static FieldDef,
        raw: &RawField<'a>,
    ) -> Result<DynamicValue<'a>, Error> {
        Ok(match field.kind {
            FieldKind::Int64 => DynamicValue::Int64(chunk(raw)?),
            FieldKind::Int32 => DynamicValue::Int32(chunk(raw)?),
            FieldKind::Uint64 => DynamicValue::Uint64(chunk(raw)?),
            FieldKind::Float => DynamicValue::Float(chunk(raw)?),
            FieldKind::Double => DynamicValue::Double(chunk(raw)?),
            FieldKind::Enum(_) => DynamicValue::Enum(chunk(raw)?),
            FieldKind::Text => DynamicValue::Text(raw.content),
            FieldKind::Blob => DynamicValue::Blob(raw.content),
            FieldKind::Message(def) => {
                let mut child = self.child(def(), raw.content.offset)?;
                let mut gathering = Gathering::default();
                child.gather(raw.content, &mut gathering)?;
                child.settle(&gathering);
                DynamicValue::Message(child)
            }
        })
    }

    /// All occurrences of the current field as one message.
    fn merged(&mut self, def: &'static MessageDef) -> Result<Option<DynamicValue<'a>>, Error> {
        let Some(mut raw) = self.next_record()? else {
            return Ok(None);
        };
        let mut child = self.child(def, raw.content.offset)?;
        let mut gathering = Gathering::default();
        loop {
            child.gather(raw.content, &mut gathering)?;
            match self.next_record()? {
                Some(next) => raw = next,
                None => break,
            }
        }
        child.settle(&gathering);
        Ok(Some(DynamicValue::Message(child)))
    }

    fn child(&self, def: &'static MessageDef, offset: u64) -> Result<Self, Error> {
        match self.depth_left.checked_sub(1) {
            Some(depth_left) => Ok(Self::empty(def, self.source, self.limits, depth_left)),
            None => {
                let limit = self.limits.depth;
                Err(Error::new(ErrorKind::TooDeep { limit }, offset))
            }
        }
    }
}

/// What must be known of a message as a whole while its runs are gathered: which member of its
/// `oneof` is the last. No message of the format has more than one `oneof`.
#[derive(Debug, Default)]
struct Gathering {
    member: Option<u16>,
    /// The runs before this one lost against a later member.
    member_from: usize,
    switched: bool,
}

impl Gathering {
    fn run(&mut self, def: &MessageDef, field: u16, index: usize) {
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

fn chunk<'a, S: Scalar>(raw: &RawField<'a>) -> Result<Chunk<'a, S>, Error> {
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

/// The fields of a stretch of bytes without any meaning, in their order.
#[derive(Debug, Clone, Copy)]
pub struct Records<'a> {
    /// Of any message type: only raw fields are read.
    reader: Reader<'a, ModelProto>,
    base: u64,
}

impl<'a> Records<'a> {
    /// Reads the fields of `content`.
    pub fn new(content: Slice<'a>, limits: Limits) -> Self {
        Records { reader: Reader::with_limits(content.bytes, limits), base: content.offset }
    }

    /// The next field, with places from the start of the source.
    ///
    /// # Errors
    ///
    /// What [`ErrorKind`] lists. After an error there are no more fields.
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

    /// A message as one line.
    fn shown(message: &mut DynamicMessage<'_>) -> Result<String, Error> {
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
                    DynamicValue::Message(mut inner) => format!("{{{}}}", shown(&mut inner)?),
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
        shown(&mut DynamicMessage::new::<M>(bytes, Limits::default())?)
    }

    #[test]
    fn fields_come_in_the_order_of_the_table() {
        // WIRE-02+, WIRE-15+, WIRE-18, WIRE-22: interleaved, both forms, an empty block, a foreign
        // wire type, an unknown number
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
        // DIST-14-: the last one stays; and neither need be there
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
    fn what_occurs_twice_is_settled() {
        // WIRE-21+, WIRE-22+
        let rows: [(&[u8], &str); 5] = [
            // Messages merge, numbers in them do not.
            (b"\x0a\x02\x08\x01\x0a\x04\x08\x06\x12\x00", "tensor_type={elem_type=6 shape={}}"),
            // The last member wins; what it was before another member does not count.
            (
                b"\x0a\x02\x08\x01\x22\x00\x32\x01d\x0a\x02\x12\x00",
                "tensor_type={shape={}} denotation=d",
            ),
            (b"\x0a\x02\x08\x01\x22\x00", "sequence_type={}"),
            // Also across the parts of a merged message.
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
        // The rule for members above knows one per message: these are they, by first member.
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
            shown(&mut message)
        };
        assert!(levels(20).is_ok());
        assert_eq!(levels(19).expect_err("too deep").kind(), ErrorKind::TooDeep { limit: 19 });
    }
}

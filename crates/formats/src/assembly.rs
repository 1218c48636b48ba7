//! Assembly of a message from fields in any order.
//!
//! Texts name fields in any order and do not state the length of a message, whereas the wire needs
//! ascending numbers and lengths first. So fields are collected as a tree of pieces, the length of
//! each message is known when it ends, and one pass at the end writes all pieces. No piece is moved
//! twice, however deeply it is nested. A large payload is freed once it is written, so that it
//! takes memory only once.

use std::ops::Range;

use sardonyx_proto::{
    FieldDef, Label, Limits, MessageDef, MessageType, WireType, join_path, push_tag, push_varint,
    varint_len,
};

use crate::error::ErrorKind;

/// Size in bytes from which a payload is kept in its own buffer.
const LARGE_BYTES: usize = 64 << 10;

/// End of a list of pieces.
const NONE: usize = usize::MAX;

/// Fields of a message and of the messages in it.
pub(crate) struct Assembly {
    limits: Limits,
    /// Small contents: whole records, and blocks of numbers.
    data: Vec<u8>,
    /// Large contents.
    payloads: Vec<Vec<u8>>,
    pieces: Vec<Piece>,
    open: Vec<Open>,
    /// Pieces of the message that is ending.
    order: Vec<usize>,
}

/// Part of a message.
struct Piece {
    number: u32,
    /// Index of the next piece of the same message.
    next: usize,
    content: Content,
}

#[derive(Clone)]
enum Content {
    /// Records with their tags, in `data`.
    Records(Range<usize>),
    /// Numbers of a packed list, in `data`. Adjacent blocks of a field are merged.
    Block(Range<usize>),
    /// Index in `payloads`.
    Payload(usize),
    Message {
        first: usize,
        length: u64,
    },
}

/// Message that has not ended.
struct Open {
    def: &'static MessageDef,
    /// Field of the enclosing message.
    field: Option<&'static FieldDef>,
    first: usize,
    last: usize,
    /// Whether the pieces are in ascending order so far.
    ascending: bool,
    /// One bit for each field that must not occur again.
    claimed: u64,
    /// Member of the `oneof` that has a value.
    member: Option<&'static str>,
}

impl Assembly {
    pub(crate) fn new<M: MessageType>(limits: Limits) -> Self {
        let mut assembly = Assembly {
            limits,
            data: Vec::new(),
            payloads: Vec::new(),
            pieces: Vec::new(),
            open: Vec::new(),
            order: Vec::new(),
        };
        assembly.push_open(M::DEF, None);
        assembly
    }

    fn push_open(&mut self, def: &'static MessageDef, field: Option<&'static FieldDef>) {
        self.open.push(Open {
            def,
            field,
            first: NONE,
            last: NONE,
            ascending: true,
            claimed: 0,
            member: None,
        });
    }

    /// Returns the description of the current message.
    pub(crate) fn def(&self) -> Option<&'static MessageDef> {
        self.open.last().map(|open| open.def)
    }

    /// Records that the field at `index` of the current message occurs. Refuses a second occurrence
    /// of a field that is not a list, and a second member of the `oneof`.
    pub(crate) fn claim(&mut self, index: usize, claim: Claim) -> Result<(), ErrorKind> {
        let Some(open) = self.open.last_mut() else {
            return Ok(());
        };
        let field = &open.def.fields[index];
        let bit = 1u64 << index;
        if open.claimed & bit != 0 {
            let field = field.name;
            return Err(ErrorKind::Twice { field });
        }
        if claim != Claim::Value || !field.is_list() {
            open.claimed |= bit;
        }
        if field.label == Label::OneOf && claim != Claim::Null {
            if let Some(other) = open.member {
                let field = field.name;
                return Err(ErrorKind::Exclusive { field, other });
            }
            open.member = Some(field.name);
        }
        Ok(())
    }

    /// Begins a message in the current one.
    pub(crate) fn begin(
        &mut self,
        def: &'static MessageDef,
        field: &'static FieldDef,
    ) -> Result<(), ErrorKind> {
        let limit = self.limits.depth;
        if self.open.len() as u64 > u64::from(limit) {
            return Err(ErrorKind::TooDeep { limit });
        }
        self.push_open(def, Some(field));
        Ok(())
    }

    /// Ends the current message. Returns whether it was the outermost.
    pub(crate) fn end(&mut self) -> bool {
        let Some(mut open) = self.open.pop() else {
            return true;
        };
        if !open.ascending {
            self.sort(&mut open);
        }
        let content = Content::Message { first: open.first, length: self.length(open.first) };
        match open.field {
            Some(field) => {
                self.push(field.number, content);
                false
            }
            None => {
                self.pieces.push(Piece { number: 0, next: NONE, content });
                true
            }
        }
    }

    /// Sorts the pieces of a message by field number; pieces of one field keep their order.
    fn sort(&mut self, open: &mut Open) {
        self.order.clear();
        let mut piece = open.first;
        while piece != NONE {
            self.order.push(piece);
            piece = self.pieces[piece].next;
        }
        let pieces = &mut self.pieces;
        self.order.sort_by_key(|piece| pieces[*piece].number);
        open.first = NONE;
        for piece in self.order.iter().rev() {
            pieces[*piece].next = open.first;
            open.first = *piece;
        }
    }

    /// Adds a number. In packed lists it is appended to the preceding numbers.
    pub(crate) fn word(&mut self, field: &FieldDef, word: u64) {
        let start = self.data.len();
        let wire_type = field.kind.wire_type();
        let packed = field.label == Label::Packed;
        if !packed {
            push_tag(&mut self.data, field.number, wire_type);
        }
        match wire_type {
            WireType::Fixed32 => self.data.extend_from_slice(&(word as u32).to_le_bytes()),
            WireType::Fixed64 => self.data.extend_from_slice(&word.to_le_bytes()),
            _ => push_varint(&mut self.data, word),
        }
        self.extend(field.number, start, packed);
    }

    /// Adds a string or bytes. Large ones are moved out of `value`.
    pub(crate) fn bytes(&mut self, field: &FieldDef, value: &mut Vec<u8>) {
        if value.len() < LARGE_BYTES {
            return self.small_bytes(field, value);
        }
        self.payloads.push(std::mem::take(value));
        self.push(field.number, Content::Payload(self.payloads.len() - 1));
    }

    /// Adds a copy of a string or bytes.
    pub(crate) fn small_bytes(&mut self, field: &FieldDef, value: &[u8]) {
        let start = self.data.len();
        push_tag(&mut self.data, field.number, WireType::Len);
        push_varint(&mut self.data, value.len() as u64);
        self.data.extend_from_slice(value);
        self.extend(field.number, start, false);
    }

    /// Adds the contents of `data` from `start` on to the current message, to its last piece if
    /// that is of the same kind.
    fn extend(&mut self, number: u32, start: usize, packed: bool) {
        let end = self.data.len();
        let last = self.open.last().map_or(NONE, |open| open.last);
        if let Some(last) = self.pieces.get_mut(last)
            && last.number == number
            && let Content::Records(range) | Content::Block(range) = &mut last.content
            && range.end == start
        {
            range.end = end;
            return;
        }
        let range = start..end;
        self.push(number, if packed { Content::Block(range) } else { Content::Records(range) });
    }

    fn push(&mut self, number: u32, content: Content) {
        let index = self.pieces.len();
        let Some(open) = self.open.last_mut() else {
            return;
        };
        match self.pieces.get_mut(open.last) {
            Some(last) => {
                open.ascending &= last.number <= number;
                last.next = index;
            }
            None => open.first = index,
        }
        open.last = index;
        self.pieces.push(Piece { number, next: NONE, content });
    }

    /// Returns the length in bytes of the pieces from `piece` on.
    fn length(&self, mut piece: usize) -> u64 {
        let mut length = 0;
        while let Some(found) = self.pieces.get(piece) {
            length += match &found.content {
                Content::Records(range) => range.len() as u64,
                Content::Block(_) => {
                    let (bytes, after) = self.block(piece);
                    piece = after;
                    length += prefixed_length(found.number, bytes);
                    continue;
                }
                Content::Payload(index) => {
                    prefixed_length(found.number, self.payloads[*index].len() as u64)
                }
                Content::Message { length, .. } => prefixed_length(found.number, *length),
            };
            piece = found.next;
        }
        length
    }

    /// Returns the length in bytes of the adjacent blocks of one field, and the piece after them.
    fn block(&self, mut piece: usize) -> (u64, usize) {
        let number = self.pieces[piece].number;
        let mut bytes = 0;
        while let Some(found) = self.pieces.get(piece)
            && found.number == number
            && let Content::Block(range) = &found.content
        {
            bytes += range.len() as u64;
            piece = found.next;
        }
        (bytes, piece)
    }

    /// Returns the bytes of the outermost message, which must have ended.
    pub(crate) fn finish(mut self) -> Vec<u8> {
        let Some(Content::Message { first, length }) =
            self.pieces.last().map(|root| root.content.clone())
        else {
            return Vec::new();
        };
        // This is the sum of the collected bytes, so it fits in memory.
        let mut out = Vec::with_capacity(usize::try_from(length).unwrap_or(0));
        // Pieces of the enclosing messages that remain to be written.
        let mut rest = vec![first];
        while let Some(piece) = rest.pop() {
            let Some(found) = self.pieces.get(piece) else {
                continue;
            };
            let mut next = found.next;
            match &found.content {
                Content::Records(range) => out.extend_from_slice(&self.data[range.clone()]),
                Content::Block(_) => {
                    let (bytes, after) = self.block(piece);
                    begin_prefixed(&mut out, found.number, bytes);
                    self.copy_blocks(piece, after, &mut out);
                    next = after;
                }
                Content::Payload(index) => {
                    let payload = std::mem::take(&mut self.payloads[*index]);
                    begin_prefixed(&mut out, found.number, payload.len() as u64);
                    out.extend_from_slice(&payload);
                }
                Content::Message { first, length } => {
                    begin_prefixed(&mut out, found.number, *length);
                    rest.push(next);
                    next = *first;
                }
            }
            rest.push(next);
        }
        out
    }

    fn copy_blocks(&self, mut piece: usize, end: usize, out: &mut Vec<u8>) {
        while piece != end
            && let Some(found) = self.pieces.get(piece)
        {
            if let Content::Block(range) = &found.content {
                out.extend_from_slice(&self.data[range.clone()]);
            }
            piece = found.next;
        }
    }

    /// Returns the path of the current message or of a field in it. `index` counts in a list whose
    /// elements are not messages.
    pub(crate) fn place(&self, field: Option<&FieldDef>, index: Option<u64>) -> String {
        let mut steps = Vec::new();
        let mut around = None;
        for open in &self.open {
            if let (Some(field), Some(around)) = (open.field, around) {
                let index = field.is_list().then(|| self.count(around, field.number));
                steps.push(field.step(index));
            }
            around = Some(open);
        }
        if let Some(field) = field {
            steps.push(field.step(index));
        }
        join_path(&steps)
    }

    /// Returns the path of the next message in a list of the current one.
    pub(crate) fn next_place_in_list(&self, field: &FieldDef) -> String {
        let index = self.open.last().map(|open| self.count(open, field.number));
        self.place(Some(field), index)
    }

    /// Counts the messages in a field of an open message that have ended.
    fn count(&self, open: &Open, number: u32) -> u64 {
        let mut count = 0;
        let mut piece = open.first;
        while let Some(found) = self.pieces.get(piece) {
            count += u64::from(found.number == number);
            piece = found.next;
        }
        count
    }
}

/// Kind of an occurrence of a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Claim {
    /// A value; lists may have several.
    Value,
    /// A key with all values of the field.
    Key,
    /// A key without a value.
    Null,
}

fn prefixed_length(number: u32, length: u64) -> u64 {
    varint_len(u64::from(number) << 3) + varint_len(length) + length
}

fn begin_prefixed(out: &mut Vec<u8>, number: u32, length: u64) {
    push_tag(out, number, WireType::Len);
    push_varint(out, length);
}

#[cfg(test)]
mod tests {
    use super::*;
    use sardonyx_proto::{MESSAGES, ModelProto, TensorProto};

    #[test]
    fn every_field_has_a_bit() {
        assert!(MESSAGES.iter().all(|def| def.fields.len() <= 64));
    }

    #[test]
    fn fields_are_put_in_order() {
        // WIRE-16, WIRE-33: given as name, data, dims, data again
        let field = |number| TensorProto::DEF.field(number).unwrap();
        let mut assembly = Assembly::new::<TensorProto>(Limits::default());
        assembly.small_bytes(field(8), b"W");
        assembly.word(field(5), 7);
        assembly.word(field(5), 8);
        assembly.word(field(1), 2);
        assembly.word(field(1), 3);
        assembly.word(field(5), u64::MAX);
        assert!(assembly.end());
        assert_eq!(
            assembly.finish(),
            b"\x08\x02\x08\x03\x2a\x0c\x07\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01\x42\x01W"
        );
    }

    #[test]
    fn messages_get_their_lengths() {
        let model = ModelProto::DEF;
        let graph = model.field(7).unwrap();
        let sardonyx_proto::FieldKind::Message(graph_def) = graph.kind else { panic!() };
        let name = graph_def().field(2).unwrap();
        let mut assembly = Assembly::new::<ModelProto>(Limits::default());
        assembly.begin(graph_def(), graph).unwrap();
        let mut large = vec![b'x'; LARGE_BYTES];
        assembly.bytes(name, &mut large);
        assert!(large.is_empty());
        assert_eq!(assembly.place(Some(name), None), "graph.name");
        assert!(!assembly.end());
        assembly.word(model.field(1).unwrap(), 10);
        assert!(assembly.end());
        let bytes = assembly.finish();
        assert_eq!(bytes[..10], *b"\x08\x0a\x3a\x84\x80\x04\x12\x80\x80\x04");
        assert_eq!(bytes.len(), LARGE_BYTES + 10);
        assert_eq!(bytes.capacity(), bytes.len());
    }

    #[test]
    fn duplicate_fields_are_refused() {
        let mut assembly = Assembly::new::<sardonyx_proto::Dimension>(Limits::default());
        assert!(assembly.claim(0, Claim::Value).is_ok());
        assert!(matches!(
            assembly.claim(0, Claim::Value),
            Err(ErrorKind::Twice { field: "dim_value" })
        ));
        assert!(matches!(
            assembly.claim(1, Claim::Value),
            Err(ErrorKind::Exclusive { field: "dim_param", other: "dim_value" })
        ));
        assert!(assembly.claim(2, Claim::Value).is_ok());
        let mut assembly = Assembly::new::<sardonyx_proto::Dimension>(Limits::default());
        assert!(assembly.claim(0, Claim::Null).is_ok());
        assert!(assembly.claim(1, Claim::Key).is_ok());
        assert!(assembly.claim(0, Claim::Key).is_err());
    }
}

//! Messages without a syntax of their own: `{field: value, ...}` with the names of the standard.

use std::ops::Range;

use sardonyx_model::Span;
use sardonyx_proto::{
    FieldDef, FieldKind, Label, Limits, MessageDef, Records, Slice, WireType, push_tag, push_varint,
};
use smallvec::SmallVec;

use super::{Parse, Parser};
use crate::numbers;
use crate::tree::SyntaxKind;

impl Parser<'_, '_> {
    /// A list of messages, each as the bytes that it is in a file.
    pub(super) fn messages(&mut self, def: &'static MessageDef) -> Parse<Vec<Span>> {
        let mut spans = Vec::new();
        self.list(b'[', b']', "messages, as [{...}]", |parser| {
            let at = parser.offset();
            let counted = parser.build.count::<Span>(at);
            parser.built(counted)?;
            let bytes = parser.message(def, MESSAGE_LEVELS)?;
            spans.push(parser.build.keep(&bytes));
            Ok(())
        })?;
        Ok(spans)
    }

    /// A message: its fields, or its bytes.
    pub(super) fn message(&mut self, def: &'static MessageDef, levels: u32) -> Parse<Vec<u8>> {
        if self.at_quoted() {
            return Ok(self.quoted()?.bytes().to_vec());
        }
        let part = self.open(SyntaxKind::Message);
        let keys: SmallVec<[&str; 16]> =
            def.fields.iter().map(|field| field.name).chain(["unknown"]).collect();
        let mut bytes = Vec::new();
        self.key_list(b'{', b'}', &keys, &mut |parser, key| {
            let field = def.fields.iter().find(|field| field.name.as_bytes() == key);
            match field {
                Some(field) => parser.field(field, levels, &mut bytes),
                // The other key: records, which stand where they stand.
                None => {
                    let record = parser.string("records, as x\"...\"")?;
                    bytes.extend_from_slice(record.bytes());
                    Ok(())
                }
            }
        })?;
        self.close(part);
        Ok(bytes)
    }

    /// The values of a field.
    fn field(&mut self, field: &'static FieldDef, levels: u32, out: &mut Vec<u8>) -> Parse {
        match field.label {
            Label::Packed => {
                let mut block = Vec::new();
                self.list(b'[', b']', "`[`", |parser| parser.scalar(field, levels, &mut block))?;
                push_tag(out, field.number, WireType::Len);
                push_varint(out, block.len() as u64);
                out.extend_from_slice(&block);
                Ok(())
            }
            Label::Repeated => self.list(b'[', b']', "`[`", |parser| {
                push_tag(out, field.number, field.kind.wire_type());
                parser.scalar(field, levels, out)
            }),
            _ => {
                push_tag(out, field.number, field.kind.wire_type());
                self.scalar(field, levels, out)
            }
        }
    }

    /// A value, without its tag.
    fn scalar(&mut self, field: &'static FieldDef, levels: u32, out: &mut Vec<u8>) -> Parse {
        match field.kind {
            FieldKind::Int64 | FieldKind::Int32 | FieldKind::Enum(_) => {
                let value = self.integer("a number")?;
                push_varint(out, value as u64);
            }
            FieldKind::Uint64 => {
                self.cursor.next();
                match numbers::read_u64(&self.cursor.text[self.cursor.pos..]) {
                    Ok((value, length)) => {
                        self.cursor.pos += length;
                        push_varint(out, value);
                    }
                    Err(error) => return self.number_error(error, "a number"),
                }
            }
            FieldKind::Float => {
                let value = self.float("a number")?;
                out.extend_from_slice(&value.to_le_bytes());
            }
            FieldKind::Double => {
                self.cursor.next();
                match numbers::read_f64(&self.cursor.text[self.cursor.pos..]) {
                    Ok((value, length)) => {
                        self.cursor.pos += length;
                        out.extend_from_slice(&value.to_le_bytes());
                    }
                    Err(error) => return self.number_error(error, "a number"),
                }
            }
            FieldKind::Text | FieldKind::Blob => {
                let text = self.string("a text in quotes")?;
                push_varint(out, text.bytes().len() as u64);
                out.extend_from_slice(text.bytes());
            }
            FieldKind::Message(inner) => {
                let at = self.offset() as usize;
                let Some(levels) = levels.checked_sub(1) else {
                    return self.fail(at..at + 1, "messages are nested too deeply");
                };
                let bytes = self.message(inner(), levels)?;
                push_varint(out, bytes.len() as u64);
                out.extend_from_slice(&bytes);
            }
        }
        Ok(())
    }
}

/// Levels of messages within messages. Those that are written like this have at most four.
pub(crate) const MESSAGE_LEVELS: u32 = 16;

/// Whether bytes are whole records.
pub(super) fn are_records(bytes: &[u8]) -> bool {
    records(bytes, |_, _| true)
}

/// The records of typed lists in some bytes, neighbours of one list together: field number and
/// place. `None` if they are something else.
pub(super) fn typed_runs(bytes: &[u8]) -> Option<Vec<(u32, Range<usize>)>> {
    let mut runs: Vec<(u32, Range<usize>)> = Vec::new();
    let all = records(bytes, |number, range| {
        match runs.last_mut() {
            Some((last, run)) if *last == number => run.end = range.end,
            _ => runs.push((number, range)),
        }
        matches!(number, 4..=7 | 10 | 11)
    });
    all.then_some(runs)
}

/// Calls `each` with number and place of every record while it wants more; whether it saw them all.
fn records(bytes: &[u8], mut each: impl FnMut(u32, Range<usize>) -> bool) -> bool {
    let mut records = Records::new(Slice { bytes, offset: 0 }, Limits::default());
    loop {
        match records.next_record() {
            Ok(Some(record)) => {
                let start = record.record.offset as usize;
                if !each(record.number, start..start + record.record.bytes.len()) {
                    return false;
                }
            }
            Ok(None) => return true,
            Err(_) => return false,
        }
    }
}

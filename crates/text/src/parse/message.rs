//! Parses messages without a syntax of their own: `{field: value, ...}` with the field names of the
//! standard.

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
    /// Parses a list of messages and returns them encoded.
    pub(super) fn parse_messages(&mut self, def: &'static MessageDef) -> Parse<Vec<Span>> {
        let mut spans = Vec::new();
        self.parse_list(b'[', b']', "messages, as [{...}]", |parser| {
            let at = parser.next_offset();
            let counted = parser.build.count::<Span>(at);
            parser.check_built(counted)?;
            let bytes = parser.parse_message(def, MESSAGE_LEVELS)?;
            spans.push(parser.build.keep(&bytes));
            Ok(())
        })?;
        Ok(spans)
    }

    /// Parses a message: its fields, or its bytes.
    pub(super) fn parse_message(
        &mut self,
        def: &'static MessageDef,
        levels: u32,
    ) -> Parse<Vec<u8>> {
        if self.at_quoted() {
            return Ok(self.parse_quoted()?.bytes().to_vec());
        }
        let part = self.open(SyntaxKind::Message);
        let keys: SmallVec<[&str; 16]> =
            def.fields.iter().map(|field| field.name).chain(["unknown"]).collect();
        let mut bytes = Vec::new();
        self.parse_key_list(b'{', b'}', &keys, &mut |parser, key| {
            let field = def.fields.iter().find(|field| field.name.as_bytes() == key);
            match field {
                Some(field) => parser.parse_field(field, levels, &mut bytes),
                // The key `unknown`: records, written at this position.
                None => {
                    let record = parser.parse_string("records, as x\"...\"")?;
                    bytes.extend_from_slice(record.bytes());
                    Ok(())
                }
            }
        })?;
        self.close(part);
        Ok(bytes)
    }

    /// Parses the values of a field.
    fn parse_field(&mut self, field: &'static FieldDef, levels: u32, out: &mut Vec<u8>) -> Parse {
        match field.label {
            Label::Packed => {
                let mut block = Vec::new();
                self.parse_list(b'[', b']', "`[`", |parser| {
                    parser.parse_scalar(field, levels, &mut block)
                })?;
                push_tag(out, field.number, WireType::Len);
                push_varint(out, block.len() as u64);
                out.extend_from_slice(&block);
                Ok(())
            }
            Label::Repeated => self.parse_list(b'[', b']', "`[`", |parser| {
                push_tag(out, field.number, field.kind.wire_type());
                parser.parse_scalar(field, levels, out)
            }),
            _ => {
                push_tag(out, field.number, field.kind.wire_type());
                self.parse_scalar(field, levels, out)
            }
        }
    }

    /// Parses a value, without its tag.
    fn parse_scalar(&mut self, field: &'static FieldDef, levels: u32, out: &mut Vec<u8>) -> Parse {
        match field.kind {
            FieldKind::Int64 | FieldKind::Int32 | FieldKind::Enum(_) => {
                let value = self.parse_integer("a number")?;
                push_varint(out, value as u64);
            }
            FieldKind::Uint64 => {
                self.cursor.next();
                match numbers::read_u64(&self.cursor.text[self.cursor.pos..]) {
                    Ok((value, length)) => {
                        self.cursor.pos += length;
                        push_varint(out, value);
                    }
                    Err(error) => return self.fail_number(error, "a number"),
                }
            }
            FieldKind::Float => {
                let value = self.parse_float("a number")?;
                out.extend_from_slice(&value.to_le_bytes());
            }
            FieldKind::Double => {
                self.cursor.next();
                match numbers::read_f64(&self.cursor.text[self.cursor.pos..]) {
                    Ok((value, length)) => {
                        self.cursor.pos += length;
                        out.extend_from_slice(&value.to_le_bytes());
                    }
                    Err(error) => return self.fail_number(error, "a number"),
                }
            }
            FieldKind::Text | FieldKind::Blob => {
                let text = self.parse_string("a text in quotes")?;
                push_varint(out, text.bytes().len() as u64);
                out.extend_from_slice(text.bytes());
            }
            FieldKind::Message(inner) => {
                let at = self.next_offset() as usize;
                let Some(levels) = levels.checked_sub(1) else {
                    return self.fail(at..at + 1, "messages are nested too deeply");
                };
                let bytes = self.parse_message(inner(), levels)?;
                push_varint(out, bytes.len() as u64);
                out.extend_from_slice(&bytes);
            }
        }
        Ok(())
    }
}

/// Maximum number of nested levels of messages. The ones with this notation have at most four.
pub(crate) const MESSAGE_LEVELS: u32 = 16;

/// Whether the bytes are whole records.
pub(super) fn are_records(bytes: &[u8]) -> bool {
    visit_records(bytes, |_, _| true)
}

/// Splits bytes into runs of adjacent records of one typed list: field number and range. Returns
/// `None` if there are other fields.
pub(super) fn split_typed_runs(bytes: &[u8]) -> Option<Vec<(u32, Range<usize>)>> {
    let mut runs: Vec<(u32, Range<usize>)> = Vec::new();
    let all = visit_records(bytes, |number, range| {
        match runs.last_mut() {
            Some((last, run)) if *last == number => run.end = range.end,
            _ => runs.push((number, range)),
        }
        matches!(number, 4..=7 | 10 | 11)
    });
    all.then_some(runs)
}

/// Calls `each` with number and range of every record until it returns false; returns whether it
/// saw all records.
fn visit_records(bytes: &[u8], mut each: impl FnMut(u32, Range<usize>) -> bool) -> bool {
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

//! Walk over the protobuf bytes of a model: reports malformed and hidden bytes, and fields that
//! other readers interpret differently.
//!
//! One pass with a stack of open messages instead of recursion. Tensor data is skipped.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use sardonyx_model::ReadLimits;
use sardonyx_proto::{
    DataType, ErrorKind, FieldDef, FieldKind, Label, Limits, MessageDef, MessageType, ModelProto,
    RawField, Records, Slice, WireType, join_path, shown,
};

use super::ScanOptions;
use super::codes;
use super::report::Findings;

/// Maximum nesting depth of protobuf messages that libprotobuf reads.
const LIBPROTOBUF_DEPTH: u32 = 100;
/// Length in bytes above which a name is reported.
const LONG_NAME: usize = 64 << 10;
/// Maximum number of distinct unknown protobuf fields that are counted separately.
const UNKNOWN_KINDS: usize = 1000;
/// Maximum number of elements in all lists of numbers and strings, without tensor data. An element
/// takes up to 24 bytes in memory but may be one byte in the file.
const LIST_ELEMENTS: u64 = 1 << 26;
/// Maximum number of fields that a message has in the table of protobuf fields.
const MOST_FIELDS: usize = 24;

/// Summary of a walk over the bytes of a model.
#[derive(Debug, Default)]
pub(super) struct Walked {
    /// Number of protobuf messages, plus the elements of string lists.
    pub(super) messages: u64,
    /// Number of levels of nested protobuf messages.
    pub(super) depth: u32,
    /// Whether the walk reached the end of the bytes: they are a well-formed protobuf message.
    pub(super) complete: bool,
}

/// An open protobuf message on the stack of the walk.
struct Open<'a> {
    def: &'static MessageDef,
    records: Records<'a>,
    /// Field that holds the message, and the message's index among the occurrences of the field;
    /// `None` for the model.
    held_by: Option<(&'static FieldDef, u32)>,
    /// Number of occurrences so far of each field of the message.
    seen: [u32; MOST_FIELDS],
}

/// Kind of unknown protobuf field: a field number that is not in the table, or has another wire
/// type in the table.
#[derive(PartialEq, Eq, Hash)]
struct UnknownKind {
    message: &'static str,
    number: u32,
    wrong_type: bool,
}

/// Number and size of the occurrences of one kind of unknown protobuf field.
struct UnknownTotal {
    count: u64,
    bytes: u64,
    /// Path of the first occurrence.
    first: String,
    /// Byte offset of the first occurrence.
    offset: u64,
}

/// State of a walk over the bytes of a model.
struct Walk<'a, 'f> {
    /// Stack of open messages, the innermost last.
    open: Vec<Open<'a>>,
    limits: ReadLimits,
    /// Maximum number of messages.
    messages: u64,
    found: &'f mut Findings,
    unknown: HashMap<UnknownKind, UnknownTotal>,
    /// Number of elements so far in lists of numbers and strings.
    elements: u64,
    walked: Walked,
}

/// Walks the protobuf bytes of a model, and reports problems to `found`.
pub(super) fn walk(bytes: &[u8], options: &ScanOptions, found: &mut Findings) -> Walked {
    let content = Slice { bytes, offset: 0 };
    let mut walk = Walk {
        open: Vec::new(),
        limits: options.limits,
        messages: options.messages,
        found,
        unknown: HashMap::new(),
        elements: 0,
        walked: Walked::default(),
    };
    walk.open(ModelProto::DEF, content, None);
    walk.walked.complete = walk.run();
    walk.report_unknown();
    walk.walked
}

impl<'a> Walk<'a, '_> {
    /// Pushes a protobuf message on the stack.
    fn open(
        &mut self,
        def: &'static MessageDef,
        content: Slice<'a>,
        held_by: Option<(&'static FieldDef, u32)>,
    ) {
        let limits = Limits { depth: self.limits.depth };
        self.open.push(Open {
            def,
            records: Records::new(content, limits),
            held_by,
            seen: [0; MOST_FIELDS],
        });
    }

    /// Walks to the end of the bytes, a malformed byte or a limit. Returns whether the bytes are a
    /// well-formed message within the limits.
    fn run(&mut self) -> bool {
        while let Some(innermost) = self.open.last_mut() {
            match innermost.records.next_record() {
                Ok(None) => {
                    self.open.pop();
                }
                Ok(Some(raw)) => {
                    if !self.check_record(raw) {
                        return false;
                    }
                }
                Err(error) => {
                    self.report_malformed(error.kind(), error.offset());
                    return false;
                }
            }
        }
        true
    }

    /// Checks a record (an occurrence of a field), and opens it if it is a message. Returns whether
    /// the walk goes on.
    fn check_record(&mut self, raw: RawField<'a>) -> bool {
        let Some(message) = self.open.last_mut() else {
            return false;
        };
        let def = message.def;
        let index = def.fields.binary_search_by_key(&raw.number, |field| field.number);
        let field = index.ok().map(|index| &def.fields[index]);
        let Some(field) = field.filter(|field| fits_wire_type(field, raw.wire_type)) else {
            self.count_unknown(def, &raw, field.is_some());
            return true;
        };
        let occurrences = &mut message.seen[index.unwrap_or(0).min(MOST_FIELDS - 1)];
        let index = *occurrences;
        *occurrences = occurrences.saturating_add(1);
        if index > 0 && !field.is_list() {
            self.found.add(&codes::FIELD_TWICE, || {
                let message =
                    format!("the field {} of {} occurs more than once", field.name, def.name);
                (self.open.describe_field(field, index, raw.record.offset), message)
            });
        }
        if is_kept_list(def, field) && !self.count_elements(field.kind, &raw) {
            return false;
        }
        match field.kind {
            FieldKind::Message(inner) => return self.enter_message(inner(), field, index, &raw),
            FieldKind::Text => {
                if field.is_list() && !self.count_message(&raw) {
                    return false;
                }
                self.check_text(def, field, index, &raw);
            }
            FieldKind::Enum(name_of) => {
                let name = name_of(raw.word as i32);
                self.check_enum(name, field, index, &raw);
            }
            FieldKind::Int32 if is_element_type(def, field) => {
                let name = DataType(raw.word as i32).name();
                self.check_enum(name, field, index, &raw);
            }
            kind if raw.wire_type == WireType::Len => {
                return self.check_packed(kind, field, index, &raw);
            }
            _ => {}
        }
        true
    }

    /// Counts a protobuf message, and reports the first above the limit. Returns whether the limit
    /// is kept.
    fn count_message(&mut self, raw: &RawField<'_>) -> bool {
        self.walked.messages += 1;
        let limit = self.messages;
        if self.walked.messages <= limit {
            return true;
        }
        self.found.add(&codes::TOO_MANY_MESSAGES, || {
            let message = format!("the file has more than {limit} protobuf messages");
            (format!("byte {}", raw.record.offset), message)
        });
        false
    }

    /// Counts the elements that a record adds to a list of numbers or strings. Returns whether the
    /// limit [`LIST_ELEMENTS`] is kept.
    fn count_elements(&mut self, kind: FieldKind, raw: &RawField<'_>) -> bool {
        self.elements += match (raw.wire_type, kind) {
            (WireType::Len, FieldKind::Float) => raw.content.bytes.len() as u64 / 4,
            // An upper bound, as a number has at least one byte.
            (WireType::Len, FieldKind::Int64) => raw.content.bytes.len() as u64,
            _ => 1,
        };
        if self.elements <= LIST_ELEMENTS {
            return true;
        }
        self.found.add(&codes::TOO_MANY_MESSAGES, || {
            let message = format!("lists of attributes have more than {LIST_ELEMENTS} elements");
            (format!("byte {}", raw.record.offset), message)
        });
        false
    }

    /// Opens a nested protobuf message. Returns whether the limits on depth and number of messages
    /// are kept.
    fn enter_message(
        &mut self,
        def: &'static MessageDef,
        field: &'static FieldDef,
        index: u32,
        raw: &RawField<'a>,
    ) -> bool {
        if !self.count_message(raw) {
            return false;
        }
        let depth = self.open.len() as u32;
        if depth > self.limits.depth {
            let limit = self.limits.depth;
            self.report_malformed(ErrorKind::TooDeep { limit }, raw.record.offset);
            return false;
        }
        if depth > self.walked.depth {
            self.walked.depth = depth;
            if depth == LIBPROTOBUF_DEPTH + 1 {
                self.found.add(&codes::DEEP_NESTING, || {
                    let message =
                        format!("messages are nested more than {LIBPROTOBUF_DEPTH} levels deep");
                    (self.open.describe_field(field, index, raw.record.offset), message)
                });
            }
        }
        self.open(def, raw.content, Some((field, index)));
        true
    }

    /// Reports the malformed byte or exceeded depth that ends the walk.
    fn report_malformed(&mut self, kind: ErrorKind, offset: u64) {
        let at_top = self.open.len() == 1;
        let code = match kind {
            ErrorKind::TooDeep { .. } => &codes::TOO_DEEP,
            ErrorKind::Truncated | ErrorKind::LengthBeyondEnd { .. } if at_top => &codes::TRUNCATED,
            _ => &codes::MALFORMED,
        };
        self.found.add(code, || (self.open.describe_byte(offset), kind.to_string()));
    }

    /// Counts an occurrence of an unknown field.
    fn count_unknown(&mut self, def: &'static MessageDef, raw: &RawField<'_>, wrong_type: bool) {
        let kinds = self.unknown.len();
        let kind = UnknownKind { message: def.name, number: raw.number, wrong_type };
        let bytes = raw.record.bytes.len() as u64;
        match self.unknown.entry(kind) {
            Entry::Occupied(mut known) => {
                let total = known.get_mut();
                total.count += 1;
                total.bytes += bytes;
            }
            Entry::Vacant(new) if kinds < UNKNOWN_KINDS => {
                new.insert(UnknownTotal {
                    count: 1,
                    bytes,
                    first: self.open.describe_byte(raw.record.offset),
                    offset: raw.record.offset,
                });
            }
            Entry::Vacant(_) => {}
        }
    }

    /// Reports the counted unknown fields, one finding for each kind, in the order of the file.
    fn report_unknown(&mut self) {
        let mut unknown: Vec<_> = self.unknown.drain().collect();
        unknown.sort_by_key(|(_, total)| total.offset);
        for (kind, total) in unknown {
            let code = if kind.wrong_type { &codes::WIRE_TYPE } else { &codes::UNKNOWN_FIELD };
            self.found.add(code, || {
                let what = if kind.wrong_type {
                    "does not have the wire type of the standard"
                } else {
                    "is not in the standard"
                };
                let times = match total.count {
                    1 => "once".to_string(),
                    n => format!("{n} times"),
                };
                let message = format!(
                    "field {} of {} {what}: {times}, {} bytes in total",
                    kind.number, kind.message, total.bytes
                );
                (total.first, message)
            });
        }
    }

    /// Reports an enum field whose number the standard does not define: `name` is `None`.
    fn check_enum(
        &mut self,
        name: Option<&'static str>,
        field: &'static FieldDef,
        index: u32,
        raw: &RawField<'_>,
    ) {
        if name.is_none() {
            self.found.add(&codes::UNKNOWN_ENUM, || {
                let number = raw.word as i32;
                let message = format!("the field {} is {number}, which is not defined", field.name);
                (self.open.describe_field(field, index, raw.record.offset), message)
            });
        }
    }

    /// Checks by length and last byte that a packed protobuf field holds complete numbers. Returns
    /// whether the walk goes on.
    fn check_packed(
        &mut self,
        kind: FieldKind,
        field: &'static FieldDef,
        index: u32,
        raw: &RawField<'_>,
    ) -> bool {
        let length = raw.content.bytes.len() as u64;
        let width = match kind {
            FieldKind::Float => 4,
            FieldKind::Double => 8,
            FieldKind::Int32 | FieldKind::Int64 | FieldKind::Uint64 => 1,
            _ => return true,
        };
        let problem = if !length.is_multiple_of(width) {
            ErrorKind::PackedLength { length, width }
        } else if width == 1 && raw.content.bytes.last().is_some_and(|byte| *byte >= 0x80) {
            ErrorKind::Truncated
        } else {
            return true;
        };
        self.found.add(&codes::MALFORMED, || {
            let place = self.open.describe_field(field, index, raw.content.offset);
            (place, problem.to_string())
        });
        false
    }

    /// Reports a text field that is not UTF-8, has control or invisible characters, is too long, or
    /// is a Python pickle.
    fn check_text(
        &mut self,
        def: &'static MessageDef,
        field: &'static FieldDef,
        index: u32,
        raw: &RawField<'_>,
    ) {
        let bytes = raw.content.bytes;
        let is_name = field.name != "doc_string" && field.name != "value";
        // Fast path: nearly all names are short and printable ASCII.
        if bytes.len() < LONG_NAME && bytes.iter().all(|byte| matches!(byte, b' '..=b'~')) {
            if field.name == "value" && def.name == "StringStringEntryProto" {
                self.check_pickle(bytes, field, index, raw);
            }
            return;
        }
        let place = || self.open.describe_field(field, index, raw.record.offset);
        let text = match std::str::from_utf8(bytes) {
            Ok(text) => text,
            Err(error) => {
                let byte = error.valid_up_to();
                self.found.add(&codes::INVALID_UTF8, || {
                    let message =
                        format!("the text '{}' is not UTF-8 at byte {byte}", shown(bytes));
                    (place(), message)
                });
                return;
            }
        };
        let mut controls = text.chars().filter(|c| c.is_control());
        if let Some(c) = controls.find(|c| is_name || !matches!(c, '\n' | '\r' | '\t')) {
            self.found.add(&codes::CONTROL_CHARACTERS, || {
                let message =
                    format!("the text '{}' contains the control character {c:?}", shown(bytes));
                (place(), message)
            });
        }
        if let Some(c) = text.chars().find(|c| is_name && is_deceptive(*c)) {
            self.found.add(&codes::DECEPTIVE_CHARACTERS, || {
                let (name, code) = (shown(bytes), u32::from(c));
                let message =
                    format!("the name '{name}' contains the invisible character U+{code:04X}");
                (place(), message)
            });
        }
        if is_name && bytes.len() > LONG_NAME {
            self.found.add(&codes::LONG_NAME, || {
                let message = format!(
                    "the name has {} bytes, more than {LONG_NAME}: '{}'",
                    bytes.len(),
                    shown(bytes)
                );
                (place(), message)
            });
        }
        if def.name == "StringStringEntryProto" {
            self.check_pickle(bytes, field, index, raw);
        }
    }

    /// Reports a text field that looks like a Python pickle of protocol 4 or 5 in base64: begins
    /// like a pickle, and has only base64 characters.
    fn check_pickle(
        &mut self,
        bytes: &[u8],
        field: &'static FieldDef,
        index: u32,
        raw: &RawField<'_>,
    ) {
        let begins = [&b"gASV"[..], b"gAWV"].iter().any(|start| bytes.starts_with(start));
        if begins
            && bytes.len() >= 16
            && bytes.len().is_multiple_of(4)
            && bytes
                .iter()
                .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'='))
        {
            self.found.add(&codes::PICKLE, || {
                let message =
                    format!("the text is a Python pickle in base64, of {} characters", bytes.len());
                (self.open.describe_field(field, index, raw.record.offset), message)
            });
        }
    }
}

/// Descriptions of places in the innermost message of a stack of open messages.
trait Placed {
    /// Describes the place of a field in the innermost open message: byte offset and path.
    fn describe_field(&self, field: &FieldDef, index: u32, offset: u64) -> String;
    /// Describes the place of a byte in the innermost open message: byte offset and path.
    fn describe_byte(&self, offset: u64) -> String;
    /// Returns the parts of the innermost open message's path, one for each field.
    fn list_steps(&self) -> Vec<String>;
}

impl Placed for Vec<Open<'_>> {
    fn describe_field(&self, field: &FieldDef, index: u32, offset: u64) -> String {
        let mut steps = self.list_steps();
        steps.push(format_step(field, index));
        format!("byte {offset}, field {}", join_path(&steps))
    }

    fn describe_byte(&self, offset: u64) -> String {
        let steps = self.list_steps();
        if steps.is_empty() {
            format!("byte {offset}")
        } else {
            format!("byte {offset}, field {}", join_path(&steps))
        }
    }

    fn list_steps(&self) -> Vec<String> {
        self.iter()
            .filter_map(|open| open.held_by)
            .map(|(field, index)| format_step(field, index))
            .collect()
    }
}

/// Formats a field for a path, with an index if the field is a list.
fn format_step(field: &FieldDef, index: u32) -> String {
    field.step(field.is_list().then_some(index.into()))
}

/// Whether a protobuf field may have a wire type: the type of its kind, or the packed type if it is
/// a list.
fn fits_wire_type(field: &FieldDef, wire_type: WireType) -> bool {
    let own = field.kind.wire_type();
    wire_type == own || (wire_type == WireType::Len && field.is_list())
}

/// Whether a field is a list of numbers or strings that readers copy into memory. Tensor data stays
/// in the file.
fn is_kept_list(def: &MessageDef, field: &FieldDef) -> bool {
    let is_payload = def.name == "TensorProto" && field.name != "dims";
    field.label == Label::Repeated
        && !is_payload
        && !matches!(field.kind, FieldKind::Message(_) | FieldKind::Text)
}

/// Whether a field of a `TypeProto` holds the number of an element type. The element types of
/// stored tensors are checked with the tensors.
fn is_element_type(def: &MessageDef, field: &FieldDef) -> bool {
    def.name.starts_with("TypeProto.") && matches!(field.name, "elem_type" | "key_type")
}

/// Whether a character is invisible, or reorders the text around it (bidirectional controls).
fn is_deceptive(c: char) -> bool {
    matches!(
        c,
        '\u{ad}'
            | '\u{61c}'
            | '\u{200b}'..='\u{200f}'
            | '\u{202a}'..='\u{202e}'
            | '\u{2060}'..='\u{2064}'
            | '\u{2066}'..='\u{2069}'
            | '\u{feff}'
            | '\u{e0000}'..='\u{e007f}'
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_message_has_room_for_its_fields() {
        let most = sardonyx_proto::MESSAGES.iter().map(|def| def.fields.len());
        assert!(most.max().is_some_and(|most| most <= MOST_FIELDS));
    }
}

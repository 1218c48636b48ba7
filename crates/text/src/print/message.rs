//! Prints messages without a syntax of their own.

use sardonyx_model::Span;
use sardonyx_proto::{DynamicMessage, DynamicValue, Limits, MessageDef};

use super::Printer;
use crate::numbers::{self, FloatForm};

impl Printer<'_, '_, '_> {
    /// Writes a list of messages: their fields, or their bytes if parsing the fields would give
    /// other bytes.
    pub(super) fn write_messages(&mut self, def: &'static MessageDef, spans: &[Span]) {
        self.push("[");
        let mut first = true;
        for span in spans {
            self.write_separator(&mut first);
            let bytes = self.model.bytes(*span);
            let start = self.out.len();
            let printed = DynamicMessage::from_def(def, bytes, Limits::default())
                .ok()
                .and_then(|message| self.write_message(message));
            if printed.is_none()
                || crate::parse::encode_message(def, &self.out[start..]).as_deref() != Some(bytes)
            {
                self.out.truncate(start);
                self.write_hexadecimal(bytes);
            }
        }
        self.push("]");
    }

    /// Writes `{field: value, …}`; returns `None` if a part has no such notation.
    fn write_message(&mut self, mut message: DynamicMessage<'_>) -> Option<()> {
        self.push("{");
        let mut first = true;
        while let Some(field) = message.next_field() {
            self.write_separator(&mut first);
            self.push(field.name);
            self.push(": ");
            let list = field.is_list();
            if list {
                self.push("[");
            }
            let mut first_value = true;
            while let Some(value) = message.next_value().ok()? {
                self.write_message_value(value, &mut first_value)?;
            }
            if list {
                self.push("]");
            }
        }
        self.push("}");
        Some(())
    }

    fn write_message_value(&mut self, value: DynamicValue<'_>, first: &mut bool) -> Option<()> {
        macro_rules! numbers {
            ($chunk:expr, $push:expr) => {
                for number in $chunk.iter() {
                    self.write_separator(first);
                    let push: fn(&mut Vec<u8>, _) = $push;
                    push(&mut self.out, number.ok()?);
                }
            };
        }
        match value {
            DynamicValue::Int64(chunk) => numbers!(chunk, numbers::push_i64),
            DynamicValue::Int32(chunk) | DynamicValue::Enum(chunk) => {
                numbers!(chunk, |out, number: i32| numbers::push_i64(out, number.into()))
            }
            DynamicValue::Uint64(chunk) => numbers!(chunk, numbers::push_u64),
            DynamicValue::Float(chunk) => {
                numbers!(chunk, |out, number| numbers::push_f32(out, number, FloatForm::Shortest))
            }
            DynamicValue::Double(chunk) => {
                numbers!(chunk, |out, number| numbers::push_f64(out, number, FloatForm::Shortest))
            }
            DynamicValue::Text(text) | DynamicValue::Blob(text) => {
                self.write_separator(first);
                self.write_quoted(text.bytes);
            }
            DynamicValue::Message(message) => {
                self.write_separator(first);
                self.write_message(message)?;
            }
        }
        Some(())
    }
}

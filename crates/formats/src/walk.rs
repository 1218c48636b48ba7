//! Traversal of a message for all printers: fields in the order of the table, lists collected.
//!
//! Levels are on an explicit stack, so that no depth of nesting exhausts the thread's.

use sardonyx_proto::{
    Chunk, DynamicMessage, DynamicValue, FieldDef, FieldKind, Limits, MessageType, RawField,
    Scalar, Slice, join_path,
};

use crate::error::{Error, ErrorKind, Fault, Position};
use crate::left_out::{LeftOut, UnknownField};
use crate::sink::Sink;

/// Value that is not a message.
pub(crate) enum Leaf<'a> {
    Int64(i64),
    Int32(i32),
    Uint64(u64),
    Float(f32),
    Double(f64),
    Enum(i32, Option<&'static str>),
    Text(&'a str),
    Blob(&'a [u8]),
}

/// Receiver of a message, piece by piece. A field is begun only if it has a value.
pub(crate) trait Printer {
    fn begin_message(&mut self, out: &mut Sink<'_>);
    /// Ends a message. `empty` is set if no field was begun.
    fn end_message(&mut self, out: &mut Sink<'_>, empty: bool);
    fn begin_field(&mut self, out: &mut Sink<'_>, field: &FieldDef, first: bool);
    fn end_field(&mut self, out: &mut Sink<'_>, field: &FieldDef);
    fn begin_value(&mut self, out: &mut Sink<'_>, field: &FieldDef, first: bool);
    fn leaf(&mut self, out: &mut Sink<'_>, leaf: Leaf<'_>);
    fn end_value(&mut self, out: &mut Sink<'_>);
    /// Prints a field outside the table. Returns whether it could.
    fn unknown(&mut self, out: &mut Sink<'_>, raw: &RawField<'_>) -> bool;
}

struct Level<'a> {
    message: DynamicMessage<'a>,
    field: Option<&'static FieldDef>,
    /// Number of fields that have begun.
    fields: u64,
    /// Number of values of the current field that have begun.
    values: u64,
}

impl<'a> Level<'a> {
    fn new(message: DynamicMessage<'a>) -> Self {
        Level { message, field: None, fields: 0, values: 0 }
    }
}

struct Walk<'a, 'o, P> {
    levels: Vec<Level<'a>>,
    out: Sink<'o>,
    printer: P,
    left_out: LeftOut,
}

/// Prints a message of type `M`.
pub(crate) fn print<M: MessageType>(
    bytes: &[u8],
    limits: Limits,
    sink: &mut dyn std::io::Write,
    printer: impl Printer,
) -> Result<LeftOut, Error> {
    let mut walk =
        Walk { levels: Vec::new(), out: Sink::new(sink), printer, left_out: LeftOut::default() };
    let done = DynamicMessage::new::<M>(bytes, limits)
        .map_err(Fault::from)
        .and_then(|root| walk.run(root));
    if let Err(fault) = done {
        let position = Position::Byte(fault.offset);
        return Err(Error::new(fault.kind, position, walk.place()));
    }
    match walk.out.finish() {
        Ok(()) => Ok(walk.left_out),
        Err(error) => {
            let position = Position::Byte(bytes.len() as u64);
            Err(Error::new(ErrorKind::Sink(error), position, String::new()))
        }
    }
}

impl<'a, P: Printer> Walk<'a, '_, P> {
    fn run(&mut self, root: DynamicMessage<'a>) -> Result<(), Fault> {
        self.printer.begin_message(&mut self.out);
        self.levels.push(Level::new(root));
        while let Some(level) = self.levels.last_mut() {
            if self.out.has_failed() {
                return Ok(());
            }
            let Some(field) = level.field else {
                level.field = level.message.next_field();
                level.values = 0;
                if level.field.is_none() {
                    self.end_message()?;
                }
                continue;
            };
            let value = level.message.next_value().inspect_err(|_| {
                level.values += 1; // The broken value is the one after those that were printed.
            })?;
            match value {
                Some(DynamicValue::Message(inner)) => {
                    self.begin_value(field);
                    self.printer.begin_message(&mut self.out);
                    self.levels.push(Level::new(inner));
                }
                Some(value) => self.leaves(field, value)?,
                None => {
                    level.field = None;
                    if level.values > 0 {
                        self.printer.end_field(&mut self.out, field);
                    }
                }
            }
        }
        Ok(())
    }

    fn end_message(&mut self) -> Result<(), Fault> {
        self.unknown_fields()?;
        if let Some(level) = self.levels.pop() {
            self.printer.end_message(&mut self.out, level.fields == 0);
            if !self.levels.is_empty() {
                self.printer.end_value(&mut self.out);
            }
        }
        Ok(())
    }

    fn unknown_fields(&mut self) -> Result<(), Fault> {
        while let Some(level) = self.levels.last_mut()
            && let Some(raw) = level.message.next_unknown()?
        {
            if self.printer.unknown(&mut self.out, &raw) {
                continue;
            }
            self.left_out.unknown_fields += 1;
            if self.left_out.first.len() < LeftOut::MAX_LISTED {
                let unknown = UnknownField {
                    place: self.place(),
                    number: raw.number,
                    offset: raw.record.offset,
                };
                self.left_out.first.push(unknown);
            }
        }
        Ok(())
    }

    fn leaves(&mut self, field: &'static FieldDef, value: DynamicValue<'a>) -> Result<(), Fault> {
        match value {
            DynamicValue::Int64(chunk) => self.numbers(field, chunk, Leaf::Int64),
            DynamicValue::Int32(chunk) => self.numbers(field, chunk, Leaf::Int32),
            DynamicValue::Uint64(chunk) => self.numbers(field, chunk, Leaf::Uint64),
            DynamicValue::Float(chunk) => {
                let odd = |item: &f32| item.is_nan() && item.to_bits() != 0x7fc0_0000;
                self.left_out.nan_payloads += count(chunk, odd);
                self.numbers(field, chunk, Leaf::Float)
            }
            DynamicValue::Double(chunk) => {
                let odd = |item: &f64| item.is_nan() && item.to_bits() != 0x7ff8_0000_0000_0000;
                self.left_out.nan_payloads += count(chunk, odd);
                self.numbers(field, chunk, Leaf::Double)
            }
            DynamicValue::Enum(chunk) => self.numbers(field, chunk, |number| {
                let name = match field.kind {
                    FieldKind::Enum(name_of) => name_of(number),
                    _ => None,
                };
                Leaf::Enum(number, name)
            }),
            DynamicValue::Text(slice) => {
                self.begin_value(field);
                let text = text(slice)?;
                self.end_leaf(Leaf::Text(text));
                Ok(())
            }
            DynamicValue::Blob(slice) => {
                self.begin_value(field);
                self.end_leaf(Leaf::Blob(slice.bytes));
                Ok(())
            }
            DynamicValue::Message(_) => Ok(()),
        }
    }

    fn numbers<S: Scalar>(
        &mut self,
        field: &'static FieldDef,
        chunk: Chunk<'a, S>,
        leaf: impl Fn(S::Item) -> Leaf<'static>,
    ) -> Result<(), Fault>
    where
        S::Item: 'a,
    {
        for item in chunk.iter() {
            let item = item?;
            self.begin_value(field);
            self.end_leaf(leaf(item));
        }
        Ok(())
    }

    fn begin_value(&mut self, field: &'static FieldDef) {
        let Some(level) = self.levels.last_mut() else {
            return;
        };
        let first = level.values == 0;
        if first {
            self.printer.begin_field(&mut self.out, field, level.fields == 0);
            level.fields += 1;
        }
        level.values += 1;
        self.printer.begin_value(&mut self.out, field, first);
    }

    fn end_leaf(&mut self, leaf: Leaf<'_>) {
        self.printer.leaf(&mut self.out, leaf);
        self.printer.end_value(&mut self.out);
    }

    /// Returns the path of the field that is being printed.
    fn place(&self) -> String {
        let steps: Vec<String> = (self.levels.iter())
            .filter_map(|level| {
                let field = level.field?;
                let index = field.is_list().then(|| level.values.saturating_sub(1));
                Some(field.step(index))
            })
            .collect();
        join_path(&steps)
    }
}

fn text(slice: Slice<'_>) -> Result<&str, Fault> {
    std::str::from_utf8(slice.bytes).map_err(|error| Fault {
        kind: ErrorKind::NotUtf8,
        offset: slice.offset + error.valid_up_to() as u64,
    })
}

fn count<'a, S: Scalar>(chunk: Chunk<'a, S>, odd: impl Fn(&S::Item) -> bool) -> u64
where
    S::Item: 'a,
{
    chunk.iter().flatten().filter(odd).count() as u64
}

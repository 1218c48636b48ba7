//! Parser of messages that the readers of all text forms share.
//!
//! A form brings its grammar as a [`Syntax`]. Messages that have not ended are in the assembly and
//! on a stack of the parser, so that no depth of nesting exhausts the thread's stack.

use std::marker::PhantomData;

use sardonyx_proto::{FieldDef, FieldKind, shown};

use crate::assembly::{Assembly, Claim};
use crate::cursor::{Cursor, fault_at, position};
use crate::error::{Error, ErrorKind, Fault};
use crate::names::{Spelling, find};
use crate::numerals::parse_radix;

/// Grammar of a text form. Each function reads from the cursor and leaves it after what it has
/// read.
pub(crate) trait Syntax: Sized {
    /// Whether a finite number beyond the range of `float` is read as infinite.
    const FLOAT_OVERFLOWS: bool;

    /// Skips space and comments.
    fn skip_space(cursor: &mut Cursor<'_>);

    /// Skips the separator that may follow a field.
    fn skip_separator(cursor: &mut Cursor<'_>);

    /// Begins the outermost message. Returns the byte that ends it, `None` for the end of the text.
    fn begin_text(cursor: &mut Cursor<'_>) -> Result<Option<u8>, Fault>;

    /// Begins a message in a field. Returns the byte that ends it.
    fn begin_message(cursor: &mut Cursor<'_>) -> Result<u8, Fault>;

    /// Reads the name of a field, then its value or the beginning of its list through
    /// [`Parser::parse_value`] and [`Parser::begin_list`].
    fn parse_field(parser: &mut Parser<'_, Self>, frame: Frame) -> Result<(), Fault>;

    /// Reads the text of a number.
    fn take_number<'t>(cursor: &mut Cursor<'t>) -> Result<Token<'t>, Fault>;

    /// Returns the whole number that `text` stands for.
    fn parse_integer(text: &[u8]) -> Option<i128>;

    /// Returns the number that `text` stands for, of a NaN the sign.
    fn parse_double(text: &[u8]) -> Option<f64>;

    /// Reads the name or number of a value of the enumeration of `field`.
    fn take_enum_number(cursor: &mut Cursor<'_>, field: &FieldDef) -> Result<i32, Fault>;

    /// Reads a UTF-8 string. Returns it if it is part of the text, else puts it into `scratch`.
    fn take_string<'t>(
        cursor: &mut Cursor<'t>,
        scratch: &mut Vec<u8>,
    ) -> Result<Option<&'t [u8]>, Fault>;

    /// Reads bytes into `scratch`.
    fn take_bytes(cursor: &mut Cursor<'_>, scratch: &mut Vec<u8>) -> Result<(), Fault>;
}

/// Reads the message that `assembly` was made for.
pub(crate) fn parse_message<S: Syntax>(text: &[u8], assembly: Assembly) -> Result<Vec<u8>, Error> {
    let mut parser = Parser::<S> {
        cursor: Cursor::new(text),
        assembly,
        frames: Vec::new(),
        field: None,
        element: None,
        scratch: Vec::new(),
        syntax: PhantomData,
    };
    match parser.run() {
        Ok(()) => Ok(parser.assembly.finish()),
        Err(fault) => {
            let list = parser.frames.last().and_then(|frame| frame.list);
            let place = match list {
                Some(list) if is_message(list.field) => {
                    parser.assembly.next_place_in_list(list.field)
                }
                _ => parser.assembly.place(parser.field, parser.element),
            };
            Err(Error::new(fault.kind, position(text, fault.offset), place))
        }
    }
}

/// State of a text that is being read.
pub(crate) struct Parser<'t, S> {
    pub(crate) cursor: Cursor<'t>,
    assembly: Assembly,
    /// One per message that has not ended.
    frames: Vec<Frame>,
    /// The field whose value is being read, for error messages.
    pub(crate) field: Option<&'static FieldDef>,
    /// Index of the value in a list whose elements are not messages.
    element: Option<u64>,
    /// Strings without their escape sequences.
    pub(crate) scratch: Vec<u8>,
    syntax: PhantomData<S>,
}

/// State of a message that has not ended.
#[derive(Clone, Copy)]
pub(crate) struct Frame {
    /// The byte that ends it, `None` for the end of the text.
    pub(crate) closing: Option<u8>,
    /// Whether a field precedes.
    pub(crate) has_field: bool,
    list: Option<List>,
}

/// A list in brackets that has not ended.
#[derive(Clone, Copy)]
struct List {
    field: &'static FieldDef,
    has_element: bool,
}

impl Frame {
    fn new(closing: Option<u8>) -> Self {
        Frame { closing, has_field: false, list: None }
    }
}

/// A number or name in the text.
pub(crate) struct Token<'t> {
    pub(crate) text: &'t [u8],
    /// Offset of its first byte, or of the quote before it.
    pub(crate) start: usize,
}

impl Token<'_> {
    /// Narrows `value`, the number that the token stands for, to the type named `kind`.
    pub(crate) fn narrow<T: TryFrom<i128>>(
        &self,
        value: Option<i128>,
        kind: &'static str,
    ) -> Result<T, Fault> {
        let narrow = value.and_then(|value| T::try_from(value).ok());
        narrow.ok_or_else(|| self.mismatch(kind))
    }

    /// Returns the number of the enumeration value of `field` that the token names.
    pub(crate) fn find_enum_number(&self, field: &FieldDef) -> Result<i32, Fault> {
        let name = std::str::from_utf8(self.text).ok();
        let number = name.and_then(|name| field.kind.enum_number(name));
        number.ok_or_else(|| fault_at(ErrorKind::EnumName { name: shown(self.text) }, self.start))
    }

    fn mismatch(&self, kind: &'static str) -> Fault {
        let text = format!("`{}`", shown(self.text));
        fault_at(ErrorKind::Number { kind, text }, self.start)
    }
}

impl<'t, S: Syntax> Parser<'t, S> {
    fn run(&mut self) -> Result<(), Fault> {
        let closing = S::begin_text(&mut self.cursor)?;
        self.frames.push(Frame::new(closing));
        while let Some(frame) = self.frames.last_mut() {
            S::skip_space(&mut self.cursor);
            if let Some(list) = frame.list {
                self.parse_elements(list)?;
                continue;
            }
            self.field = None;
            self.element = None;
            let ends = match frame.closing {
                Some(closing) => self.cursor.take(closing),
                None => self.cursor.rest().is_empty(),
            };
            if ends {
                self.end_message();
            } else {
                let before = *frame;
                frame.has_field = true;
                S::parse_field(self, before)?;
            }
        }
        S::skip_space(&mut self.cursor);
        match self.cursor.rest() {
            [] => Ok(()),
            _ => Err(self.cursor.unexpected("the end of the text")),
        }
    }

    fn end_message(&mut self) {
        self.frames.pop();
        self.assembly.end();
        if self.frames.last().is_some_and(|frame| frame.list.is_none()) {
            S::skip_separator(&mut self.cursor);
        }
    }

    /// Returns the field of the current message called `name`, and its index.
    pub(crate) fn find(
        &self,
        name: Token<'_>,
        spelling: Spelling,
    ) -> Result<(usize, &'static FieldDef), Fault> {
        match self.assembly.def() {
            Some(def) => find(def, name.text, spelling).map_err(|kind| fault_at(kind, name.start)),
            None => Err(self.cursor.unexpected("the end of the text")),
        }
    }

    /// Refuses the field at `index` of the current message if it must not occur again. The error is
    /// at `start`.
    pub(crate) fn claim(&mut self, index: usize, claim: Claim, start: usize) -> Result<(), Fault> {
        self.assembly.claim(index, claim).map_err(|kind| fault_at(kind, start))
    }

    /// Begins a list of values of `field`, after its bracket.
    pub(crate) fn begin_list(&mut self, field: &'static FieldDef) {
        self.element = Some(0);
        self.set_list(Some(List { field, has_element: false }));
    }

    fn set_list(&mut self, list: Option<List>) {
        if let Some(frame) = self.frames.last_mut() {
            frame.list = list;
        }
    }

    /// Reads elements of a list, up to after the first byte of a message or to the end of the list.
    fn parse_elements(&mut self, mut list: List) -> Result<(), Fault> {
        while !self.cursor.take(b']') {
            if list.has_element {
                self.cursor.expect(b',', "`,` or `]`")?;
                S::skip_space(&mut self.cursor);
                self.element = self.element.map(|index| index + 1);
            }
            list.has_element = true;
            if is_message(list.field) {
                self.set_list(Some(list));
                return self.parse_value(list.field, self.cursor.pos);
            }
            self.parse_value(list.field, self.cursor.pos)?;
            S::skip_space(&mut self.cursor);
        }
        self.set_list(None);
        S::skip_separator(&mut self.cursor);
        Ok(())
    }

    /// Reads a value. A message is only begun; if it is nested too deeply, the error is at `start`.
    pub(crate) fn parse_value(
        &mut self,
        field: &'static FieldDef,
        start: usize,
    ) -> Result<(), Fault> {
        let word = match field.kind {
            FieldKind::Message(def) => {
                let closing = S::begin_message(&mut self.cursor)?;
                self.assembly.begin(def(), field).map_err(|kind| fault_at(kind, start))?;
                self.field = None;
                self.frames.push(Frame::new(Some(closing)));
                return Ok(());
            }
            FieldKind::Text => {
                match S::take_string(&mut self.cursor, &mut self.scratch)? {
                    Some(plain) => self.assembly.small_bytes(field, plain),
                    None => self.assembly.bytes(field, &mut self.scratch),
                }
                return Ok(());
            }
            FieldKind::Blob => {
                S::take_bytes(&mut self.cursor, &mut self.scratch)?;
                self.assembly.bytes(field, &mut self.scratch);
                return Ok(());
            }
            FieldKind::Enum(_) => i64::from(S::take_enum_number(&mut self.cursor, field)?) as u64,
            FieldKind::Int64 => self.take_integer::<i64>("int64")? as u64,
            FieldKind::Int32 => i64::from(self.take_integer::<i32>("int32")?) as u64,
            FieldKind::Uint64 => self.take_integer("uint64")?,
            FieldKind::Float => self.take_float()?.into(),
            FieldKind::Double => {
                let value = self.take_double("double")?.1;
                let sign = u64::from(value.is_sign_negative()) << 63;
                if value.is_nan() { 0x7ff8_0000_0000_0000 | sign } else { value.to_bits() }
            }
        };
        self.assembly.word(field, word);
        Ok(())
    }

    fn take_integer<T: TryFrom<i128>>(&mut self, kind: &'static str) -> Result<T, Fault> {
        let token = S::take_number(&mut self.cursor)?;
        token.narrow(S::parse_integer(token.text), kind)
    }

    fn take_double(&mut self, kind: &'static str) -> Result<(Token<'t>, f64), Fault> {
        let token = S::take_number(&mut self.cursor)?;
        match S::parse_double(token.text) {
            Some(value) => Ok((token, value)),
            None => Err(token.mismatch(kind)),
        }
    }

    /// Reads the bits of a `float`. The number is rounded to a double first, like in protobuf,
    /// which rounds twice.
    fn take_float(&mut self) -> Result<u32, Fault> {
        let (token, value) = self.take_double("float")?;
        let narrow = value as f32;
        if narrow.is_infinite() && value.is_finite() && !S::FLOAT_OVERFLOWS {
            return Err(token.mismatch("float"));
        }
        let sign = u32::from(value.is_sign_negative()) << 31;
        Ok(if value.is_nan() { 0x7fc0_0000 | sign } else { narrow.to_bits() })
    }
}

fn is_message(field: &FieldDef) -> bool {
    matches!(field.kind, FieldKind::Message(_))
}

/// Reads a `\u` escape with four digits, or two that encode a surrogate pair. Returns the character
/// and the length of its escape in bytes.
pub(crate) fn unicode_escape(text: &[u8]) -> Option<(char, usize)> {
    let unit = |from: usize| {
        let digits = text.get(from..)?.strip_prefix(b"\\u")?.get(..4)?;
        u16::try_from(parse_radix(digits, 16)?).ok()
    };
    let first = unit(0)?;
    if let Some(character) = char::from_u32(first.into()) {
        return Some((character, 6));
    }
    let character = char::decode_utf16([first, unit(6)?]).next()?.ok()?;
    Some((character, 12))
}

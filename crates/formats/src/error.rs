//! Errors of conversions between messages and text.

use std::fmt;
use std::io;

/// Error with its position and field.
#[derive(Debug)]
pub struct Error(Box<Inner>);

#[derive(Debug)]
struct Inner {
    kind: ErrorKind,
    position: Position,
    place: String,
}

/// Position in the input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Position {
    /// Offset in a message, in bytes from its start.
    Byte(u64),
    /// Position in a text. Line and column count from 1; a column is a character.
    Text {
        /// Line.
        line: u64,
        /// Column.
        column: u64,
    },
}

/// Causes of a failed conversion. More may be added.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The bytes are not a protobuf message.
    #[error("{0}")]
    Wire(sardonyx_proto::ErrorKind),
    /// A field of type `string` is not UTF-8.
    #[error("a string is not UTF-8")]
    NotUtf8,
    /// The destination failed.
    #[error("writing failed: {0}")]
    Sink(io::Error),
    /// Another token was expected.
    #[error("expected {expected}, found {found}")]
    Unexpected {
        /// Permitted tokens.
        expected: &'static str,
        /// Token in the text.
        found: String,
    },
    /// A field name that the message does not have.
    #[error("{message} has no field `{name}`{}", did_you_mean(suggestion))]
    UnknownField {
        /// The message, such as `TensorProto`.
        message: &'static str,
        /// Name in the text.
        name: String,
        /// Field with a similar name.
        suggestion: Option<&'static str>,
    },
    /// A field that may occur once, or a key of an object, occurs twice.
    #[error("duplicate field `{field}`")]
    Twice {
        /// Name of the field.
        field: &'static str,
    },
    /// Two members of a `oneof` have values.
    #[error("`{field}` and `{other}` exclude each other")]
    Exclusive {
        /// Second member.
        field: &'static str,
        /// First member.
        other: &'static str,
    },
    /// A number that the field's type cannot hold.
    #[error("{text} is not a value of type {kind}")]
    Number {
        /// Name of the type, such as `int32`.
        kind: &'static str,
        /// Number in the text.
        text: String,
    },
    /// A name that the enumeration does not have.
    #[error("the enumeration has no value named `{name}`")]
    EnumName {
        /// Name in the text.
        name: String,
    },
    /// Bytes that are not base64.
    #[cfg(feature = "json")]
    #[error("this is not base64: {0}")]
    Base64(base64::DecodeError),
    /// The escape sequence does not exist, or does not represent a character or byte.
    #[error("the escape sequence `{0}` is not allowed here")]
    Escape(String),
    /// Messages nested more deeply than the limit.
    #[error("messages are nested more than {limit} levels deep")]
    TooDeep {
        /// Maximum number of levels.
        limit: u32,
    },
}

/// Cause of a failure and its offset in the input. A caller that knows line and field makes an
/// [`Error`] of it.
pub(crate) struct Fault {
    pub(crate) kind: ErrorKind,
    pub(crate) offset: u64,
}

impl From<sardonyx_proto::Error> for Fault {
    fn from(error: sardonyx_proto::Error) -> Self {
        Fault { kind: ErrorKind::Wire(error.kind()), offset: error.offset() }
    }
}

fn did_you_mean(suggestion: &Option<&'static str>) -> String {
    match suggestion {
        Some(name) => format!("; did you mean `{name}`?"),
        None => String::new(),
    }
}

impl Error {
    pub(crate) fn new(kind: ErrorKind, position: Position, place: String) -> Self {
        Error(Box::new(Inner { kind, position, place }))
    }

    /// Returns the cause.
    pub fn kind(&self) -> &ErrorKind {
        &self.0.kind
    }

    /// Returns the position in the input.
    pub fn position(&self) -> Position {
        self.0.position
    }

    /// Returns the path of the field, such as `graph.node[3].attribute[0].t`. Empty at the
    /// outermost level.
    pub fn place(&self) -> &str {
        &self.0.place
    }
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Position::Byte(offset) => write!(f, "byte {offset}"),
            Position::Text { line, column } => write!(f, "line {line}, column {column}"),
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({}", self.0.kind, self.0.position)?;
        if !self.0.place.is_empty() {
            write!(f, ", in {}", self.0.place)?;
        }
        f.write_str(")")
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match &self.0.kind {
            ErrorKind::Sink(error) => Some(error),
            _ => None,
        }
    }
}

//! Errors in bytes that are read as a model.

use std::fmt;

use sardonyx_proto as proto;

/// Error of reading a model, with its byte offset and field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Error(Box<Inner>);

#[derive(Debug, Clone, PartialEq, Eq)]
struct Inner {
    kind: ErrorKind,
    offset: u64,
    place: String,
}

/// Kinds of errors of reading a model. More may be added.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The bytes are not a protobuf message.
    Wire(proto::ErrorKind),
    /// A name or text has 4 GiB or more.
    TextTooLong {
        /// Length in bytes.
        length: u64,
    },
    /// The structure (nodes, values, attributes, lists …) exceeds the memory limit.
    TooMuchStructure {
        /// Limit, in bytes.
        limit: u64,
    },
    /// Types are nested deeper than the limit.
    TypeTooDeep {
        /// Limit, in levels.
        limit: u32,
    },
}

impl Error {
    pub(crate) fn new(kind: ErrorKind, offset: u64, place: String) -> Self {
        Error(Box::new(Inner { kind, offset, place }))
    }

    /// Returns the kind of the error.
    pub fn kind(&self) -> &ErrorKind {
        &self.0.kind
    }

    /// Returns the offset of the error, in bytes from the start of the file.
    pub fn offset(&self) -> u64 {
        self.0.offset
    }

    /// Returns the path of the field, such as `graph.node[3].attribute[0].t`; empty if the bytes
    /// belong to no field of the format.
    pub fn place(&self) -> &str {
        &self.0.place
    }
}

impl fmt::Display for ErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ErrorKind::Wire(kind) => write!(f, "{kind}"),
            ErrorKind::TextTooLong { length } => {
                write!(f, "a string has {length} bytes; at most 2^32 - 1 are allowed")
            }
            ErrorKind::TooMuchStructure { limit } => write!(
                f,
                "its nodes, values and attributes need more than {} MiB of memory, which is too much for a file of this size",
                limit >> 20
            ),
            ErrorKind::TypeTooDeep { limit } => {
                write!(f, "types are nested more than {limit} levels deep")
            }
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (byte {}", self.0.kind, self.0.offset)?;
        if !self.0.place.is_empty() {
            write!(f, ", in {}", self.0.place)?;
        }
        f.write_str(")")
    }
}

impl std::error::Error for Error {}

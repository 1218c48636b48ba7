//! Errors in bytes that are read as a message.

use std::fmt;

use crate::enums::DataType;

/// Error of reading a message, with its byte offset in the source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Error {
    kind: ErrorKind,
    offset: u64,
}

/// Kinds of reading errors. More may be added.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The data ends inside a value.
    Truncated,
    /// A length prefix reaches beyond the end of the enclosing message.
    LengthBeyondEnd {
        /// Declared length, in bytes.
        length: u64,
        /// Remaining length, in bytes.
        available: u64,
    },
    /// A varint of more than ten bytes.
    VarintTooLong,
    /// Wire type 6 or 7, which does not exist.
    WireType(u8),
    /// Field number 0, or above 2^29 - 1.
    FieldNumber(u64),
    /// An end-group tag without an open group, or with the number of another group.
    UnbalancedGroup,
    /// A packed block of 4- or 8-byte numbers whose length is not a multiple of that size.
    PackedLength {
        /// Length of the block in bytes.
        length: u64,
        /// Size of one number in bytes.
        width: u64,
    },
    /// Messages nested deeper than the limit.
    TooDeep {
        /// Limit, in levels.
        limit: u32,
    },
    /// An entry of a typed list that is out of range for the tensor's element type.
    Oversized {
        /// Entry, sign-extended to 64 bits.
        entry: u64,
        /// Number of the element type.
        data_type: i32,
    },
}

impl Error {
    pub(crate) fn new(kind: ErrorKind, offset: u64) -> Self {
        Error { kind, offset }
    }

    /// Returns the kind of the error.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// Returns the offset of the error, in bytes from the start of the source.
    pub fn offset(&self) -> u64 {
        self.offset
    }
}

impl fmt::Display for ErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ErrorKind::Truncated => f.write_str("the data ends inside a value"),
            ErrorKind::LengthBeyondEnd { length, available } => {
                write!(
                    f,
                    "a value of {length} bytes is declared, but only {available} bytes are left"
                )
            }
            ErrorKind::VarintTooLong => {
                f.write_str("a variable-length number has more than ten bytes")
            }
            ErrorKind::WireType(t) => write!(f, "wire type {t} does not exist"),
            ErrorKind::FieldNumber(n) => write!(f, "field number {n} is not allowed"),
            ErrorKind::UnbalancedGroup => f.write_str("end of a group without a start"),
            ErrorKind::PackedLength { length, width } => {
                write!(
                    f,
                    "a packed list of {length} bytes does not hold a whole number of {width}-byte values"
                )
            }
            ErrorKind::TooDeep { limit } => {
                write!(f, "messages are nested more than {limit} levels deep")
            }
            ErrorKind::Oversized { entry, data_type } => {
                let name = DataType(*data_type).name().unwrap_or_default().to_lowercase();
                // Only types of up to 32 bits report such entries, so a larger `u64` is a negative
                // entry.
                let entry = *entry as i64;
                write!(f, "an entry of a typed list is {entry}, which {name} cannot hold")
            }
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "byte {}: {}", self.offset, self.kind)
    }
}

impl std::error::Error for Error {}

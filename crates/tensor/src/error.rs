//! Error type of this crate: the kind of the violated rule, and a message.
//!
//! One pointer wide, so that `Result<&[f32], TensorError>` stays small.

use std::fmt;

/// Category of a [`TensorError`], for programs that branch on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum TensorErrorKind {
    /// Dims, strides or axes do not fit each other.
    Shape,
    /// The number of bytes or elements is not the one that type and dims imply.
    Size,
    /// A product or sum exceeds what this machine can address, or memory is refused.
    Overflow,
    /// The element type is not the expected one.
    Type,
    /// The bytes are not aligned for the element type.
    Alignment,
    /// An index or a range is out of bounds.
    Range,
    /// Text or a file header is malformed.
    Parse,
    /// The operation is valid, but this crate does not support it.
    Unsupported,
}

/// Error of an operation on tensors, values or buffers.
#[derive(Clone, PartialEq, Eq)]
pub struct TensorError(Box<Inner>);

#[derive(Clone, PartialEq, Eq)]
struct Inner {
    kind: TensorErrorKind,
    message: String,
}

impl TensorError {
    /// Makes an error. The message names the object, the rule and the fact.
    #[cold]
    pub fn new(kind: TensorErrorKind, message: impl Into<String>) -> Self {
        TensorError(Box::new(Inner { kind, message: message.into() }))
    }

    /// Returns the category of the error, for programs that branch on it.
    pub fn kind(&self) -> TensorErrorKind {
        self.0.kind
    }

    /// Returns the message, which `Display` prints too.
    pub fn message(&self) -> &str {
        &self.0.message
    }
}

impl fmt::Display for TensorError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.message)
    }
}

impl fmt::Debug for TensorError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TensorError({:?}: {})", self.0.kind, self.0.message)
    }
}

impl std::error::Error for TensorError {}

/// Creates an `Err` of this crate: `err!(Kind, "format", args)`.
macro_rules! err {
    ($kind:ident, $($arg:tt)*) => {
        Err($crate::TensorError::new($crate::TensorErrorKind::$kind, format!($($arg)*)))
    };
}
pub(crate) use err;

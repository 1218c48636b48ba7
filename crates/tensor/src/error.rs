//! The error of this crate: what kind of rule was broken, and a sentence with the facts.
//!
//! One pointer wide, so that `Result<&[f32], TensorError>` costs nothing on the good path.

use std::fmt;

/// What went wrong, for callers that branch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// Dims, strides or axes do not fit each other.
    Shape,
    /// The number of bytes or elements is not the one that type and dims imply.
    Size,
    /// A product or sum exceeds what this machine can address, or memory is refused.
    Overflow,
    /// The element type is another one than asked for.
    Type,
    /// The bytes are not aligned for the element type.
    Alignment,
    /// An index or a range lies outside.
    Range,
    /// Text or a file header is malformed.
    Parse,
    /// Well-formed, but not something this crate does.
    Unsupported,
}

/// The error of all fallible functions here.
#[derive(Clone, PartialEq, Eq)]
pub struct TensorError(Box<Inner>);

#[derive(Clone, PartialEq, Eq)]
struct Inner {
    kind: ErrorKind,
    message: String,
}

impl TensorError {
    /// An error of `kind`; `message` names the thing, the rule and the fact.
    #[cold]
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        TensorError(Box::new(Inner { kind, message: message.into() }))
    }

    /// What went wrong.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// The sentence, as `Display` prints it.
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

/// `err!(Kind, "format", args)`: an `Err` of this crate.
macro_rules! err {
    ($kind:ident, $($arg:tt)*) => {
        Err($crate::TensorError::new($crate::ErrorKind::$kind, format!($($arg)*)))
    };
}
pub(crate) use err;

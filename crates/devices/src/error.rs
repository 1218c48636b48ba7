//! Error type of this crate: a kind, the worker with the cause, and a message.

use std::fmt;

/// Category of a [`TransportError`], for programs that branch on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum TransportErrorKind {
    /// The arguments of a call are invalid: a worker that does not exist, an unsorted group, or
    /// parts of a wrong total length.
    Argument,
    /// A worker did not answer within the deadline.
    Deadline,
    /// A worker reported that it failed ([`Transport::fail`](crate::Transport::fail)).
    Failed,
    /// A run ended early ([`Transport::end_run`](crate::Transport::end_run)); other runs continue.
    RunEnded,
    /// A worker is lost: its process or thread ended unexpectedly.
    Lost,
    /// A worker ended its work regularly, so that an expected message cannot arrive any more.
    Ended,
    /// A message does not have the length that the receiver expects.
    Size,
    /// Workers do not run the same model, options or version ([`agree`](crate::agree)).
    Disagreement,
    /// The operation does not exist for the element type.
    Unsupported,
    /// The operating system, or the library that moves the bytes, refused a request.
    System,
}

/// Error of a transport.
#[derive(Clone, PartialEq, Eq)]
pub struct TransportError(Box<Inner>);

#[derive(Clone, PartialEq, Eq)]
struct Inner {
    kind: TransportErrorKind,
    worker: Option<usize>,
    message: String,
}

impl TransportError {
    /// Makes an error that does not concern a single worker.
    #[cold]
    pub fn new(kind: TransportErrorKind, message: impl Into<String>) -> TransportError {
        TransportError(Box::new(Inner { kind, worker: None, message: message.into() }))
    }

    /// Makes an error whose cause is at `worker`. The message should name the worker.
    #[cold]
    pub fn at(
        kind: TransportErrorKind,
        worker: usize,
        message: impl Into<String>,
    ) -> TransportError {
        TransportError(Box::new(Inner { kind, worker: Some(worker), message: message.into() }))
    }

    /// Returns the category of the error, for programs that branch on it.
    pub fn kind(&self) -> TransportErrorKind {
        self.0.kind
    }

    /// Returns the number of the worker with the cause, if it is a single worker.
    pub fn worker(&self) -> Option<usize> {
        self.0.worker
    }

    /// Returns the message, which `Display` prints too.
    pub fn message(&self) -> &str {
        &self.0.message
    }
}

impl fmt::Display for TransportError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.message)
    }
}

impl fmt::Debug for TransportError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TransportError({:?}, worker {:?}: {})", self.kind(), self.worker(), self)
    }
}

impl std::error::Error for TransportError {}

/// Creates an `Err` without a worker as its cause: `err!(Kind, "format", args)`.
macro_rules! err {
    ($kind:ident, $($arg:tt)*) => {
        Err($crate::TransportError::new($crate::TransportErrorKind::$kind, format!($($arg)*)))
    };
}
pub(crate) use err;

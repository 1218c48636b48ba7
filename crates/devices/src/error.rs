//! The error of this crate: what kind of thing went wrong, at which worker, and a sentence.

use std::fmt;

/// What went wrong, for callers that branch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The call is wrong: a worker that does not exist, a group that is not sorted, parts that do
    /// not add up.
    Argument,
    /// A worker did not answer within the deadline.
    Deadline,
    /// A worker said that it failed ([`Transport::fail`](crate::Transport::fail)).
    Failed,
    /// A run ended early ([`Transport::end_run`](crate::Transport::end_run)); others go on.
    RunEnded,
    /// A worker is gone without a word: its process or thread ended while it should have worked.
    Lost,
    /// A worker ended its work in good order and will not send what is waited for.
    Ended,
    /// A message has another length than the receiver expects.
    Size,
    /// Workers disagree about what to run ([`agree`](crate::agree)).
    Disagreement,
    /// An element type that the operation does not exist for.
    Unsupported,
    /// The operating system, or the library that moves the bytes, refuses something.
    System,
}

/// The error of all fallible functions here.
#[derive(Clone, PartialEq, Eq)]
pub struct TransportError(Box<Inner>);

#[derive(Clone, PartialEq, Eq)]
struct Inner {
    kind: ErrorKind,
    worker: Option<usize>,
    message: String,
}

impl TransportError {
    /// An error of `kind` that is about no single worker.
    #[cold]
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> TransportError {
        TransportError(Box::new(Inner { kind, worker: None, message: message.into() }))
    }

    /// An error of `kind` whose cause is at `worker`. The message names the worker.
    #[cold]
    pub fn at(kind: ErrorKind, worker: usize, message: impl Into<String>) -> TransportError {
        TransportError(Box::new(Inner { kind, worker: Some(worker), message: message.into() }))
    }

    /// What went wrong.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// The worker where the cause is, if it is one.
    pub fn worker(&self) -> Option<usize> {
        self.0.worker
    }

    /// The sentence, as `Display` prints it.
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

/// `err!(Kind, "format", args)`: an `Err` of this crate that is about no single worker.
macro_rules! err {
    ($kind:ident, $($arg:tt)*) => {
        Err($crate::TransportError::new($crate::ErrorKind::$kind, format!($($arg)*)))
    };
}
pub(crate) use err;

//! The error type of the public API: a kind, a message, a place and advice.

use sardonyx_runtime::{Internal, NodeError, Panic, Stopped, UnsupportedOperator};
use sardonyx_tensor::TensorError;
use std::error::Error as StdError;
use std::fmt;

use crate::results::InvalidResult;

/// Error of an operation on a model, a session or a file.
///
/// Displays as a message with its place, and advice on a line of its own. The type has the size of
/// one pointer.
///
/// ```
/// use sardonyx::{ErrorKind, Model};
///
/// let error = Model::from_bytes(Vec::new()).unwrap_err();
/// assert_eq!(error.kind(), ErrorKind::Format);
/// assert!(error.to_string().contains("empty"));
/// ```
pub struct Error(Box<Inner>);

/// Content of an [`Error`], boxed so that results stay small.
struct Inner {
    kind: ErrorKind,
    message: String,
    place: Option<String>,
    help: Option<String>,
    /// Part of the help before the list of inputs; `None` if the help has no such list.
    before_inputs: Option<String>,
    unsupported: Vec<UnsupportedOperator>,
    source: Option<Box<dyn StdError + Send + Sync>>,
}

/// Category of an [`Error`], for programs that branch on it. Later releases may add categories.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// A file could not be opened, read or written.
    Io,
    /// The bytes of a file are not an ONNX model, or not a value of the expected type.
    Format,
    /// The model uses operators that sessions cannot compute; see [`Error::unsupported_operators`].
    Unsupported,
    /// The model contradicts itself or the ONNX standard, so that it cannot be run or converted.
    Invalid,
    /// An external data file is missing or too short, or a tensor's byte range lies outside of the
    /// file.
    ExternalData,
    /// An argument or option has a value that does not exist or does not fit the model, such as a
    /// size for a name that no input has.
    Argument,
    /// A model input is missing, unknown, or of another type or shape than the model declares.
    Input,
    /// A requested output does not exist in the model, or is of another type than requested.
    Output,
    /// An operator failed while the model ran.
    Run,
    /// The run was cancelled or exceeded its time limit; see [`RunOptions`](crate::RunOptions).
    Stopped,
    /// Another worker of a model on several devices failed, exited, does not answer, or runs
    /// another model or training step.
    Worker,
    /// A panic: a bug of this library, or of code that the program supplies, such as an operator.
    /// [`Error::place`] has the line of code in programs that record this, as the command and the
    /// Python package do. The operation is abandoned. A session can run again; a
    /// [`Trainer`](crate::Trainer) whose state was being written fails until the state is
    /// initialized or loaded again.
    Internal,
}

impl ErrorKind {
    /// All error categories.
    const ALL: [ErrorKind; 12] = [
        ErrorKind::Io,
        ErrorKind::Format,
        ErrorKind::Unsupported,
        ErrorKind::Invalid,
        ErrorKind::ExternalData,
        ErrorKind::Argument,
        ErrorKind::Input,
        ErrorKind::Output,
        ErrorKind::Run,
        ErrorKind::Stopped,
        ErrorKind::Worker,
        ErrorKind::Internal,
    ];

    /// Looks up an error category by its stable name; `None` if no category has it. Inverse of
    /// [`ErrorKind::name`].
    ///
    /// ```
    /// # use sardonyx::ErrorKind;
    /// assert_eq!(ErrorKind::from_name("external-data"), Some(ErrorKind::ExternalData));
    /// assert_eq!(ErrorKind::from_name("nothing"), None);
    /// ```
    pub fn from_name(name: &str) -> Option<ErrorKind> {
        ErrorKind::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// Returns the stable name of the error category, such as `external-data`.
    pub fn name(self) -> &'static str {
        match self {
            ErrorKind::Io => "io",
            ErrorKind::Format => "format",
            ErrorKind::Unsupported => "unsupported",
            ErrorKind::Invalid => "invalid",
            ErrorKind::ExternalData => "external-data",
            ErrorKind::Argument => "argument",
            ErrorKind::Input => "input",
            ErrorKind::Output => "output",
            ErrorKind::Run => "run",
            ErrorKind::Stopped => "stopped",
            ErrorKind::Worker => "worker",
            ErrorKind::Internal => "internal",
        }
    }
}

impl Error {
    /// Creates an error without a place, advice or a source.
    pub(crate) fn new(kind: ErrorKind, message: impl Into<String>) -> Error {
        Error(Box::new(Inner {
            kind,
            message: shorten_lines(message.into()),
            place: None,
            help: None,
            before_inputs: None,
            unsupported: Vec::new(),
            source: None,
        }))
    }

    /// Makes an error about a file format whose feature of this crate is not compiled in.
    #[cfg(not(all(
        feature = "json",
        feature = "npz",
        feature = "safetensors",
        feature = "textproto"
    )))]
    pub(crate) fn without_feature(feature: &str, format: &str) -> Error {
        let message = format!("{format} is not compiled into this program");
        let help = format!("build it with the feature `{feature}` of the crate sardonyx");
        Error::new(ErrorKind::Unsupported, message).with_help(help)
    }

    /// Converts a caught panic outside of a run to [`ErrorKind::Internal`].
    #[cold]
    pub(crate) fn from_caught_panic(panic: Panic) -> Error {
        Error::from_panic(&panic, panic.place.clone().unwrap_or_default())
    }

    /// Converts a panic during a run to [`ErrorKind::Internal`], with the node that was running.
    #[cold]
    pub(crate) fn from_panic_in_run(internal: Internal) -> Error {
        Error::from_panic(&internal.panic, internal.places()).with_source(internal)
    }

    /// Makes the error for a panic at `place`, a node or a line of code.
    fn from_panic(panic: &Panic, place: String) -> Error {
        let error = Error::new(ErrorKind::Internal, format!("internal error: {}", panic.what));
        error.with_place(place).with_help(
            "a panic is a bug in sardonyx, unless its place is in your own code; please report the \
             bug, with the model if you can share it",
        )
    }

    /// Sets the place of the fault: a file, a field with its byte offset, or a node. Empty text
    /// means that the place is unknown.
    pub(crate) fn with_place(mut self, place: impl Into<String>) -> Error {
        let place = shorten_lines(place.into());
        self.0.place = (!place.is_empty()).then_some(place);
        self
    }

    /// Sets advice on how to resolve the error.
    pub(crate) fn with_help(mut self, help: impl Into<String>) -> Error {
        self.0.help = Some(help.into());
        self
    }

    /// Sets the help to `hint` and a list of the inputs of a run.
    pub(crate) fn with_inputs(mut self, hint: Option<String>, inputs: &str) -> Error {
        let before = hint.map_or(String::new(), |hint| hint + "\n");
        self.0.help = Some(format!("{before}{inputs}"));
        self.0.before_inputs = Some(before);
        self
    }

    /// Replaces the list of inputs in the help, if it has one.
    pub(crate) fn replace_inputs(mut self, inputs: impl FnOnce() -> String) -> Error {
        if let Some(before) = &self.0.before_inputs {
            self.0.help = Some(format!("{before}{}", inputs()));
        }
        self
    }

    /// Sets the error that caused this one.
    pub(crate) fn with_source(mut self, source: impl StdError + Send + Sync + 'static) -> Error {
        self.0.source = Some(Box::new(source));
        self
    }

    /// Sets the operators that sessions cannot compute.
    pub(crate) fn with_unsupported(mut self, operators: Vec<UnsupportedOperator>) -> Error {
        self.0.unsupported = operators;
        self
    }

    /// Returns the category of the error, for programs that branch on it.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// Returns the error message without the place and the advice.
    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// Returns the place of the fault: a file, a field with its byte offset, or a node; `None` if
    /// the message names it or it is unknown.
    pub fn place(&self) -> Option<&str> {
        self.0.place.as_deref()
    }

    /// Returns advice on how to resolve the error, if there is any. The text may have several
    /// lines.
    pub fn help(&self) -> Option<&str> {
        self.0.help.as_deref()
    }

    /// Returns all syntax errors if parsing ONNX text failed; `None` for other errors.
    pub fn syntax(&self) -> Option<&sardonyx_text::ParseError> {
        self.0.source.as_deref()?.downcast_ref()
    }

    /// Returns the node that failed during a run or constant folding, with its enclosing nodes and
    /// the types of its inputs; `None` for other errors.
    #[doc(hidden)]
    pub fn node(&self) -> Option<&NodeError> {
        self.0.source.as_deref()?.downcast_ref()
    }

    /// Returns the reason for which a run was stopped and the node that would have run next, for
    /// errors of [`ErrorKind::Stopped`]; `None` for other errors.
    #[doc(hidden)]
    pub fn as_stopped(&self) -> Option<&Stopped> {
        self.0.source.as_deref()?.downcast_ref()
    }

    /// Returns the rejected model and its errors, if an operation on a model would have added
    /// errors that the model did not have; `None` for other errors.
    pub fn invalid_result(&self) -> Option<&InvalidResult> {
        self.0.source.as_deref()?.downcast_ref()
    }

    /// Returns every operator of the model that sessions cannot compute, for errors of
    /// [`ErrorKind::Unsupported`]; empty for other errors.
    pub fn unsupported_operators(&self) -> &[UnsupportedOperator] {
        &self.0.unsupported
    }
}

/// Calls `work`, and converts a panic in `work` to an error of [`ErrorKind::Internal`].
pub(crate) fn catch_panic<T>(work: impl FnOnce() -> Result<T, Error>) -> Result<T, Error> {
    sardonyx_runtime::catch_panic(work).unwrap_or_else(|panic| Err(Error::from_caught_panic(panic)))
}

/// Shortens each line of a message by leaving out its middle: a hostile file may have names of
/// megabytes.
fn shorten_lines(text: String) -> String {
    let lines: Vec<_> =
        (text.lines()).map(|line| sardonyx_proto::elide_middle(line, 800, 200)).collect();
    lines.join("\n")
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.message)?;
        if let Some(place) = &self.0.place {
            write!(f, " (in {place})")?;
        }
        let given = self.node().map(NodeError::given).filter(|given| !given.is_empty());
        if let Some(given) = given {
            write!(f, "\n  inputs: {given}")?;
        }
        for operator in &self.0.unsupported {
            write!(f, "\n  {operator}")?;
        }
        if let Some(help) = &self.0.help {
            write!(f, "\nhelp: {help}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {self}", self.0.kind)
    }
}

impl From<TensorError> for Error {
    /// Converts a tensor error, such as a shape that does not fit the number of elements, to
    /// [`ErrorKind::Argument`].
    fn from(error: TensorError) -> Error {
        Error::new(ErrorKind::Argument, error.to_string())
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.0.source.as_deref().map(|source| source as &(dyn StdError + 'static))
    }
}

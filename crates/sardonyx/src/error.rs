//! The error of the public API: what kind of thing went wrong, one message, where, and what to do
//! about it.

use sardonyx_runtime::{Internal, NodeError, Panic, Stopped, UnsupportedOperator, caught};
use sardonyx_tensor::TensorError;
use std::error::Error as StdError;
use std::fmt;

use crate::results::InvalidResult;

/// Why an operation failed.
///
/// Prints as one message with its place; the advice follows on a line of its own. One pointer wide.
///
/// ```
/// use sardonyx::{ErrorKind, Model};
///
/// let error = Model::from_bytes(Vec::new()).unwrap_err();
/// assert_eq!(error.kind(), ErrorKind::Format);
/// assert!(error.to_string().contains("empty"));
/// ```
pub struct Error(Box<Inner>);

struct Inner {
    kind: ErrorKind,
    message: String,
    place: Option<String>,
    help: Option<String>,
    unsupported: Vec<UnsupportedOperator>,
    source: Option<Box<dyn StdError + Send + Sync>>,
}

/// What kind of thing went wrong. More kinds may be added.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// A file could not be opened, read or written.
    Io,
    /// The bytes are no ONNX model, or no value of the type asked for.
    Format,
    /// The model uses operators that cannot run; see [`Error::unsupported`].
    Unsupported,
    /// The model contradicts itself or the standard in a way that leaves nothing to run.
    Invalid,
    /// Values that lie outside the model file are missing, too short or out of bounds.
    ExternalData,
    /// An argument or option has a value that does not exist or that does not fit the model, such
    /// as a size for a name that no input has.
    Argument,
    /// An input is missing, unknown, or has another type or shape than the model wants.
    Input,
    /// An output was asked for that the model does not have, or as something that it is not.
    Output,
    /// An operator failed while the model ran.
    Run,
    /// The run was to end early: see [`RunOptions`](crate::RunOptions).
    Stopped,
    /// Another worker of a model on several devices failed, is gone, does not answer, or is about
    /// to run something else.
    Worker,
    /// A panic: a bug of this library, or of code that the program brings, such as an operator.
    /// The place says where it began, if [`keep_panic_places`](crate::keep_panic_places) was called
    /// before. What was being done is dropped; a session can run again, and a
    /// [`Trainer`](crate::Trainer) whose state was being written refuses to until it is
    /// initialized or loaded.
    Internal,
}

impl ErrorKind {
    /// All kinds.
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

    /// The kind of this name; `None` if there is none. Inverse of [`ErrorKind::name`].
    ///
    /// ```
    /// # use sardonyx::ErrorKind;
    /// assert_eq!(ErrorKind::from_name("external-data"), Some(ErrorKind::ExternalData));
    /// assert_eq!(ErrorKind::from_name("nothing"), None);
    /// ```
    pub fn from_name(name: &str) -> Option<ErrorKind> {
        ErrorKind::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// A name for programs, such as `external-data`. Names stay.
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
    pub(crate) fn new(kind: ErrorKind, message: impl Into<String>) -> Error {
        Error(Box::new(Inner {
            kind,
            message: bounded(message.into()),
            place: None,
            help: None,
            unsupported: Vec::new(),
            source: None,
        }))
    }

    /// The error for a panic.
    #[cold]
    pub(crate) fn internal(panic: Panic) -> Error {
        Error::of_panic(&panic, panic.place.clone().unwrap_or_default())
    }

    /// The error for a panic of a run.
    #[cold]
    pub(crate) fn internal_in_run(internal: Internal) -> Error {
        Error::of_panic(&internal.panic, internal.places()).with_source(internal)
    }

    fn of_panic(panic: &Panic, place: String) -> Error {
        let error = Error::new(ErrorKind::Internal, format!("internal error: {}", panic.what));
        error.with_place(place).with_help(
            "this is a bug in sardonyx, unless the place is in code of your own; please report it, \
             with the model if you can share it",
        )
    }

    /// Whether a run panicked when it had begun to write over its inputs.
    pub(crate) fn has_written(&self) -> bool {
        let source = self.0.source.as_deref().and_then(|source| source.downcast_ref::<Internal>());
        source.is_some_and(|internal| internal.has_written)
    }

    pub(crate) fn with_place(mut self, place: impl Into<String>) -> Error {
        let place = bounded(place.into());
        self.0.place = (!place.is_empty()).then_some(place);
        self
    }

    pub(crate) fn with_help(mut self, help: impl Into<String>) -> Error {
        self.0.help = Some(help.into());
        self
    }

    pub(crate) fn with_source(mut self, source: impl StdError + Send + Sync + 'static) -> Error {
        self.0.source = Some(Box::new(source));
        self
    }

    pub(crate) fn with_unsupported(mut self, operators: Vec<UnsupportedOperator>) -> Error {
        self.0.unsupported = operators;
        self
    }

    /// What kind of thing went wrong, for callers that branch.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// What went wrong, without place and advice.
    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// Where: a file, a field of it with its byte, or a node.
    pub fn place(&self) -> Option<&str> {
        self.0.place.as_deref()
    }

    /// What can be done about it. May have several lines.
    pub fn help(&self) -> Option<&str> {
        self.0.help.as_deref()
    }

    /// Everything that is wrong with a text in the notation, if that is what went wrong.
    pub fn syntax(&self) -> Option<&sardonyx_text::ParseError> {
        self.0.source.as_deref()?.downcast_ref()
    }

    /// The node that failed while a model ran or its constants were computed, with the nodes around
    /// it and what it was given, if that is what went wrong.
    #[doc(hidden)]
    pub fn node(&self) -> Option<&NodeError> {
        self.0.source.as_deref()?.downcast_ref()
    }

    /// Why a run ended early and what would have been next, if that is what went wrong.
    #[doc(hidden)]
    pub fn stopped(&self) -> Option<&Stopped> {
        self.0.source.as_deref()?.downcast_ref()
    }

    /// The result of a job that has errors which its input does not have, if that is what went
    /// wrong.
    pub fn invalid_result(&self) -> Option<&InvalidResult> {
        self.0.source.as_deref()?.downcast_ref()
    }

    /// Every operator that cannot run, if that is what went wrong; otherwise empty.
    pub fn unsupported(&self) -> &[UnsupportedOperator] {
        &self.0.unsupported
    }
}

/// Calls a function, whose panic becomes an error.
pub(crate) fn guarded<T>(work: impl FnOnce() -> Result<T, Error>) -> Result<T, Error> {
    caught(work).unwrap_or_else(|panic| Err(Error::internal(panic)))
}

/// An error is for a screen, however long the names in a file are: the middle of a longer line is
/// left out.
fn bounded(text: String) -> String {
    let lines: Vec<_> =
        (text.lines()).map(|line| sardonyx_proto::without_middle(line, 800, 200)).collect();
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
    /// Makes an error of the kind [`ErrorKind::Argument`]: a shape, an element type or a number of
    /// elements that does not fit.
    fn from(error: TensorError) -> Error {
        Error::new(ErrorKind::Argument, error.to_string())
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.0.source.as_deref().map(|source| source as &(dyn StdError + 'static))
    }
}

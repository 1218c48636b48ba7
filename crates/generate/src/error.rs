//! The error type of the crate: a category, a message, a place and advice.

use std::error::Error as StdError;
use std::fmt;
use std::path::Path;

use sardonyx::ErrorKind;

/// Error of opening a directory, of tokenizing, or of running a model.
///
/// Displays as a message with its place, and advice on a line of its own. Categories are those of
/// the library; see [`ErrorKind`].
pub struct Error(Box<Inner>);

struct Inner {
    kind: ErrorKind,
    message: String,
    place: Option<String>,
    help: Option<String>,
    source: Option<sardonyx::Error>,
}

/// Maximum number of bytes of a message that another crate made, as it may quote a whole file.
const MAX_QUOTED: usize = 2_000;

impl Error {
    /// Creates an error without a place or advice.
    pub(crate) fn new(kind: ErrorKind, message: impl Into<String>) -> Error {
        let mut message = message.into();
        if message.len() > MAX_QUOTED {
            message.truncate(message.floor_char_boundary(MAX_QUOTED));
            message.push('…');
        }
        Error(Box::new(Inner { kind, message, place: None, help: None, source: None }))
    }

    /// Creates an error about a file of the directory that contradicts itself or others.
    pub(crate) fn invalid(message: impl Into<String>) -> Error {
        Error::new(ErrorKind::Invalid, message)
    }

    /// Creates an error about an option or an argument.
    pub(crate) fn argument(message: impl Into<String>) -> Error {
        Error::new(ErrorKind::Argument, message)
    }

    /// Creates an error about a model that this crate cannot use.
    pub(crate) fn refusal(message: impl Into<String>) -> Error {
        Error::new(ErrorKind::Unsupported, message)
    }

    /// Sets the file that is at fault.
    pub(crate) fn at(mut self, path: &Path) -> Error {
        self.0.place = Some(path.display().to_string());
        self
    }

    /// Sets the advice on how to resolve the error.
    pub(crate) fn with_help(mut self, help: impl Into<String>) -> Error {
        self.0.help = Some(help.into());
        self
    }

    /// Returns the category of the error, for programs that branch on it.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// Returns the message, without place and advice.
    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// Returns the file or node that is at fault, if it is known.
    pub fn place(&self) -> Option<&str> {
        self.0.place.as_deref()
    }

    /// Returns the advice on how to resolve the error, if there is any.
    pub fn help(&self) -> Option<&str> {
        self.0.help.as_deref()
    }

    /// Returns the error of the engine or of reading a model, if it caused this one.
    pub fn into_engine(self) -> Result<sardonyx::Error, Error> {
        let Inner { kind, message, place, help, source } = *self.0;
        match source {
            Some(source) => Ok(source),
            None => Err(Error(Box::new(Inner { kind, message, place, help, source: None }))),
        }
    }
}

impl From<sardonyx::Error> for Error {
    fn from(error: sardonyx::Error) -> Error {
        Error(Box::new(Inner {
            kind: error.kind(),
            message: error.message().to_string(),
            place: error.place().map(str::to_string),
            help: error.help().map(str::to_string),
            source: Some(error),
        }))
    }
}

impl From<sardonyx::value::TensorError> for Error {
    fn from(error: sardonyx::value::TensorError) -> Error {
        Error::new(ErrorKind::Run, error.to_string())
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let inner = &self.0;
        match &inner.place {
            Some(place) => write!(f, "{place}: {}", inner.message)?,
            None => f.write_str(&inner.message)?,
        }
        match &inner.help {
            Some(help) => write!(f, "\nhelp: {help}"),
            None => Ok(()),
        }
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Error")
            .field("kind", &self.0.kind)
            .field("message", &self.0.message)
            .field("place", &self.0.place)
            .finish_non_exhaustive()
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.0.source.as_ref().map(|source| source as _)
    }
}

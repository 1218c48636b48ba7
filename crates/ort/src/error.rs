//! Errors with the status codes of onnxruntime.

use std::error::Error as StdError;
use std::fmt;

use sardonyx::ErrorKind;

use crate::status::Status;

/// Error of a call, with its status code.
///
/// Its text is that of the error in Sardonyx: one message with its place, and advice on a line of
/// its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Error {
    /// Status code that onnxruntime returns.
    pub status: Status,
    /// Kind of error in Sardonyx.
    pub kind: ErrorKind,
    /// One sentence, without place and advice.
    pub message: String,
    /// Place: a file, a field of it with its byte, or a node.
    pub place: Option<String>,
    /// Advice.
    pub help: Option<String>,
    /// Description of each operator that cannot run.
    pub unsupported: Vec<String>,
    /// Message, place and advice as one text.
    text: Box<str>,
}

impl Error {
    /// Creates an error without a place.
    pub fn new(status: Status, kind: ErrorKind, message: impl Into<String>) -> Error {
        let message = message.into();
        Error {
            status,
            kind,
            text: message.clone().into(),
            message,
            place: None,
            help: None,
            unsupported: Vec::new(),
        }
    }

    /// Adds advice.
    #[must_use]
    pub fn with_help(mut self, help: impl Into<String>) -> Error {
        let help = help.into();
        self.text = format!("{}\nhelp: {help}", self.message).into();
        self.help = Some(help);
        self
    }

    /// Creates an error about an invalid argument.
    pub(crate) fn argument(message: impl Into<String>, help: impl Into<String>) -> Error {
        Error::new(Status::InvalidArgument, ErrorKind::Argument, message).with_help(help)
    }

    /// Converts an error of Sardonyx, with a status.
    pub fn from_sardonyx(status: Status, error: &sardonyx::Error) -> Error {
        Error {
            status,
            kind: error.kind(),
            message: error.message().to_string(),
            place: error.place().map(str::to_string),
            help: error.help().map(str::to_string),
            unsupported: error.unsupported_operators().iter().map(ToString::to_string).collect(),
            text: error.to_string().into(),
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl StdError for Error {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_has_all_that_an_error_of_sardonyx_says() {
        let error = sardonyx::Model::from_bytes(b"\x07garbage".to_vec()).unwrap_err();
        let made = Error::from_sardonyx(Status::InvalidProtobuf, &error);
        assert_eq!((made.kind, made.to_string()), (ErrorKind::Format, error.to_string()));
        assert_eq!(made.place.as_deref(), error.place());
        let made = Error::argument("the size is 5", "give 4");
        assert_eq!(made.to_string(), "the size is 5\nhelp: give 4");
        assert_eq!(
            (made.message.as_str(), made.help.as_deref()),
            ("the size is 5", Some("give 4"))
        );
    }
}

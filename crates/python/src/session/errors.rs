//! Errors of the engine as exceptions of Python.

use std::fmt::Display;

use pyo3::PyErr;
use pyo3::prelude::*;
use pyo3::types::PyList;
use sardonyx::ErrorKind;

use crate::errors::Error;

/// The exception for an error of the library.
pub(crate) fn raised(py: Python<'_>, error: &sardonyx::Error) -> PyErr {
    let exception = Error::new_err(error.to_string());
    let unsupported = error.unsupported_operators().iter().map(ToString::to_string);
    let unsupported: Vec<String> = unsupported.collect();
    set(py, exception, error.kind(), error.message(), error.place(), error.help(), unsupported)
}

/// The exception for an input that is not what the model wants.
pub(crate) fn refused(py: Python<'_>, what: impl Display) -> PyErr {
    of_kind(py, ErrorKind::Input, what, None)
}

/// The exception for an argument that cannot be, with what to do about it.
pub(crate) fn wrong_argument(py: Python<'_>, what: impl Display, help: Option<&str>) -> PyErr {
    of_kind(py, ErrorKind::Argument, what, help)
}

/// What is wrong with an argument, and what to do about it.
pub(crate) struct Wrong {
    pub(crate) what: String,
    pub(crate) help: Option<String>,
}

impl Wrong {
    /// An argument that names what does not exist.
    pub(crate) fn unknown(argument: &str, given: &str, names: &[&str]) -> Wrong {
        Wrong {
            what: format!("{argument} is '{given}', which does not exist"),
            help: Some(format!("use one of: {}", names.join(", "))),
        }
    }

    /// The same with advice.
    pub(crate) fn help(self, help: &str) -> Wrong {
        Wrong { help: Some(help.to_string()), ..self }
    }

    /// The exception.
    pub(crate) fn raised(self, py: Python<'_>) -> PyErr {
        wrong_argument(py, self.what, self.help.as_deref())
    }
}

impl<T: Into<String>> From<T> for Wrong {
    fn from(what: T) -> Wrong {
        Wrong { what: what.into(), help: None }
    }
}

/// An exception of a kind, with advice.
pub(crate) fn of_kind(
    py: Python<'_>,
    kind: ErrorKind,
    what: impl Display,
    help: Option<&str>,
) -> PyErr {
    let what = what.to_string();
    let text = match help {
        Some(help) => format!("{what}\nhelp: {help}"),
        None => what.clone(),
    };
    set(py, Error::new_err(text), kind, &what, None, help, Vec::new())
}

/// Gives an exception its attributes.
pub(super) fn set(
    py: Python<'_>,
    exception: PyErr,
    kind: ErrorKind,
    message: &str,
    place: Option<&str>,
    help: Option<&str>,
    unsupported: Vec<String>,
) -> PyErr {
    let value = exception.value(py);
    let attributes = || {
        value.setattr("code", kind.name())?;
        value.setattr("message", message)?;
        value.setattr("place", place)?;
        value.setattr("help", help)?;
        value.setattr("unsupported", PyList::new(py, unsupported)?)
    };
    match attributes() {
        Ok(()) => exception,
        Err(error) => error,
    }
}

//! Conversion of errors to `sardonyx.Error` exceptions.

use std::fmt::Display;

use pyo3::PyErr;
use pyo3::prelude::*;
use pyo3::types::PyList;
use sardonyx::ErrorKind;

use crate::errors::Error;

/// Converts an error of the library to an exception with its code, message, place and advice.
pub(crate) fn to_exception(py: Python<'_>, error: &sardonyx::Error) -> PyErr {
    let exception = Error::new_err(error.to_string());
    let unsupported = error.unsupported_operators().iter().map(ToString::to_string);
    let unsupported: Vec<String> = unsupported.collect();
    set_attributes(
        py,
        exception,
        error.kind(),
        error.message(),
        error.place(),
        error.help(),
        unsupported,
    )
}

/// Makes the exception (code `input`) for an input value that the model does not accept.
pub(crate) fn input_error(py: Python<'_>, what: impl Display) -> PyErr {
    new_error(py, ErrorKind::Input, what, None)
}

/// Makes the exception (code `argument`) for an invalid argument, with optional advice.
pub(crate) fn argument_error(py: Python<'_>, what: impl Display, help: Option<&str>) -> PyErr {
    new_error(py, ErrorKind::Argument, what, help)
}

/// Invalid Python argument, as a message and optional advice.
pub(crate) struct ArgumentProblem {
    /// Message about the argument.
    pub(crate) what: String,
    /// Advice to the caller.
    pub(crate) help: Option<String>,
}

impl ArgumentProblem {
    /// Creates the problem of an argument whose value `given` is not one of `names`, which become
    /// the advice.
    pub(crate) fn unknown_value(argument: &str, given: &str, names: &[&str]) -> ArgumentProblem {
        ArgumentProblem {
            what: format!("{argument} is '{given}', which does not exist"),
            help: Some(format!("use one of: {}", names.join(", "))),
        }
    }

    /// Sets the advice about the invalid argument.
    pub(crate) fn with_help(self, help: &str) -> ArgumentProblem {
        ArgumentProblem { help: Some(help.to_string()), ..self }
    }

    /// Converts the problem to an exception.
    pub(crate) fn into_exception(self, py: Python<'_>) -> PyErr {
        argument_error(py, self.what, self.help.as_deref())
    }
}

impl<T: Into<String>> From<T> for ArgumentProblem {
    fn from(what: T) -> ArgumentProblem {
        ArgumentProblem { what: what.into(), help: None }
    }
}

/// Creates a `sardonyx.Error` with the code of `kind` and optional advice.
pub(crate) fn new_error(
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
    set_attributes(py, Error::new_err(text), kind, &what, None, help, Vec::new())
}

/// Sets the attributes of a `sardonyx.Error`.
pub(crate) fn set_attributes(
    py: Python<'_>,
    exception: PyErr,
    kind: ErrorKind,
    message: &str,
    place: Option<&str>,
    help: Option<&str>,
    unsupported: Vec<String>,
) -> PyErr {
    let value = exception.value(py);
    let set = value
        .setattr("code", kind.name())
        .and_then(|()| value.setattr("message", message))
        .and_then(|()| value.setattr("place", place))
        .and_then(|()| value.setattr("help", help))
        .and_then(|()| value.setattr("unsupported", PyList::new(py, unsupported)?));
    match set {
        Ok(()) => exception,
        Err(error) => error,
    }
}

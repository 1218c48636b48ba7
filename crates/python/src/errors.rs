//! The exceptions of the module.

use pyo3::PyErr;
use pyo3::create_exception;
use pyo3::exceptions::{PyException, PyNotImplementedError};

create_exception!(
    sardonyx.defs,
    SchemaError,
    PyException,
    "An operator is not there, or its schema is refused."
);
create_exception!(
    sardonyx.checker,
    ValidationError,
    PyException,
    "A model or a part of one breaks the standard."
);
create_exception!(
    sardonyx.shape_inference,
    InferenceError,
    PyException,
    "Types or shapes contradict each other."
);
create_exception!(
    sardonyx.version_converter,
    ConvertError,
    PyException,
    "A model is one that the converter cannot hold."
);

create_exception!(
    sardonyx,
    NotAvailable,
    PyNotImplementedError,
    "This version of Sardonyx cannot do that yet; the message says what to use meanwhile."
);

/// The answer of a function that this version does not have.
///
/// Nothing falls back to the installed extension of the `onnx` package: whose answer it is must not
/// depend on what happens to be installed. The message says how to ask the extension.
pub(crate) fn not_available(what: &str, meanwhile: &str) -> PyErr {
    NotAvailable::new_err(format!(
        "{what} is not available yet in this version of Sardonyx. Meanwhile: {meanwhile}"
    ))
}

/// How to do with the extension what this module cannot do, for [`not_available`].
pub(crate) fn with_the_extension(function: &str) -> String {
    format!(
        "call {function} with the extension of the onnx package, which means in a process that does not call \
         sardonyx.use_as_onnx_core(), or after undo() of what that gave."
    )
}

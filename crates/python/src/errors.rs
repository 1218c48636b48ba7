//! The exceptions of the module.

use pyo3::PyErr;
use pyo3::create_exception;
use pyo3::exceptions::PyException;

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
    PyException,
    "This version of Sardonyx cannot do that yet. No kind of RuntimeError, by which others refuse a model."
);

/// The answer of a function that this version does not have.
pub(crate) fn not_available(what: &str) -> PyErr {
    NotAvailable::new_err(format!(
        "{what} is not available yet in this version of Sardonyx"
    ))
}

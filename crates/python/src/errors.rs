//! The exceptions of the module.

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

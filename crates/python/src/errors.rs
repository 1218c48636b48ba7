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
create_exception!(
    sardonyx,
    Error,
    PyException,
    "A model cannot be opened or run.\n\n\
     `code` says what kind of thing went wrong, for programs: `io`, `format`, `unsupported`,\n\
     `invalid`, `external-data`, `argument`, `input`, `output`, `run`, `stopped`, `worker` or `internal`.\n\
     `message` is one sentence, `place` says where (a file, a field of it or a node), `help` what can be done about\n\
     it; both may be None. `unsupported` lists every operator that cannot run."
);

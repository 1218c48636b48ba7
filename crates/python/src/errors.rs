//! Exception classes of the Python module.

use pyo3::create_exception;
use pyo3::exceptions::PyException;

create_exception!(
    sardonyx.defs,
    SchemaError,
    PyException,
    "Error about an operator that does not exist, or a schema that cannot be registered."
);
create_exception!(
    sardonyx.checker,
    ValidationError,
    PyException,
    "Error about a model, or a part of one, that violates the ONNX standard."
);
create_exception!(
    sardonyx.shape_inference,
    InferenceError,
    PyException,
    "Error about types or shapes that contradict each other."
);
create_exception!(
    sardonyx.version_converter,
    ConvertError,
    PyException,
    "Error about a model that the version converter of the onnx package cannot represent."
);
create_exception!(
    sardonyx,
    Error,
    PyException,
    "Error when a model is opened or run.\n\n\
     `code` is the kind of the error, for programs: `io`, `format`, `unsupported`, `invalid`,\n\
     `external-data`, `argument`, `input`, `output`, `run`, `stopped`, `worker` or `internal`.\n\
     `message` is one sentence. `place` is the file, field or node, and `help` is advice;\n\
     both may be None. `unsupported` lists every operator of the model that cannot run."
);

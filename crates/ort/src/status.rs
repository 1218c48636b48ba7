//! Status codes of onnxruntime, and their assignment to errors of Sardonyx.

use std::path::Path;

use sardonyx::ErrorKind;
use sardonyx::ops::UnsupportedOperator;

use crate::opening::Source;

/// Status code of onnxruntime other than success; its value is the number in `OrtErrorCode`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(i32)]
pub enum Status {
    /// Error without a code of its own: an operator fails, a run is stopped.
    Fail = 1,
    /// Invalid input, output or option.
    InvalidArgument = 2,
    /// File of the model does not exist.
    NoSuchFile = 3,
    /// Never returned.
    NoModel = 4,
    /// Never returned.
    EngineError = 5,
    /// Never returned.
    RuntimeException = 6,
    /// Bytes that are not a model.
    InvalidProtobuf = 7,
    /// Never returned.
    ModelLoaded = 8,
    /// Model or call needs a feature that Sardonyx lacks.
    NotImplemented = 9,
    /// Model contradicts itself, or uses operators that are not in the standard.
    InvalidGraph = 10,
    /// Never returned.
    EpFail = 11,
    /// Never returned.
    ModelLoadCanceled = 12,
    /// Never returned.
    ModelRequiresCompilation = 13,
    /// Never returned.
    NotFound = 14,
    /// Never returned.
    DeviceReset = 15,
}

impl Status {
    /// All codes, by number.
    pub const ALL: [Status; 15] = [
        Status::Fail,
        Status::InvalidArgument,
        Status::NoSuchFile,
        Status::NoModel,
        Status::EngineError,
        Status::RuntimeException,
        Status::InvalidProtobuf,
        Status::ModelLoaded,
        Status::NotImplemented,
        Status::InvalidGraph,
        Status::EpFail,
        Status::ModelLoadCanceled,
        Status::ModelRequiresCompilation,
        Status::NotFound,
        Status::DeviceReset,
    ];

    /// Returns the number in `OrtErrorCode`.
    pub fn number(self) -> i32 {
        self as i32
    }

    /// Returns the name of the code's exception class in onnxruntime.
    pub fn name(self) -> &'static str {
        match self {
            Status::Fail => "Fail",
            Status::InvalidArgument => "InvalidArgument",
            Status::NoSuchFile => "NoSuchFile",
            Status::NoModel => "NoModel",
            Status::EngineError => "EngineError",
            Status::RuntimeException => "RuntimeException",
            Status::InvalidProtobuf => "InvalidProtobuf",
            Status::ModelLoaded => "ModelLoaded",
            Status::NotImplemented => "NotImplemented",
            Status::InvalidGraph => "InvalidGraph",
            Status::EpFail => "EPFail",
            Status::ModelLoadCanceled => "ModelLoadCanceled",
            Status::ModelRequiresCompilation => "ModelRequiresCompilation",
            Status::NotFound => "NotFound",
            Status::DeviceReset => "DeviceReset",
        }
    }

    /// Returns the status of an error of a run.
    pub fn of_run(kind: ErrorKind) -> Status {
        match kind {
            ErrorKind::Input | ErrorKind::Output => Status::InvalidArgument,
            _ => Status::Fail,
        }
    }

    /// Returns the status of an error of opening a model or of creating a session.
    pub fn of_model(error: &sardonyx::Error, source: &Source) -> Status {
        match error.kind() {
            ErrorKind::Unsupported => operators_status(error.unsupported_operators()),
            ErrorKind::Io => file_status(source),
            ErrorKind::Format if source.is_empty() => Status::InvalidArgument,
            ErrorKind::Format => Status::InvalidProtobuf,
            ErrorKind::Invalid => Status::InvalidGraph,
            ErrorKind::Input => Status::InvalidArgument,
            _ => Status::Fail,
        }
    }
}

/// Returns the status of a file that cannot be opened or read: `InvalidProtobuf` for a directory,
/// `Fail` for other errors of the system, such as too many open files.
fn file_status(source: &Source) -> Status {
    match source {
        Source::Path(path) if !exists(path) => Status::NoSuchFile,
        Source::Path(path) if path.is_dir() => Status::InvalidProtobuf,
        _ => Status::Fail,
    }
}

/// Whether a path exists, perhaps as a link with no target.
fn exists(path: &Path) -> bool {
    path.symlink_metadata().is_ok()
}

/// Returns the status of a model with operators that cannot run: `Fail` for opset versions newer
/// than the newest known, for unknown domains, and without operators, which means a newer IR
/// version; else `InvalidGraph`.
fn operators_status(operators: &[UnsupportedOperator]) -> Status {
    let is_known =
        |operator: &UnsupportedOperator| matches!(&*operator.domain, "" | "ai.onnx" | "ai.onnx.ml");
    let is_too_new = operators.iter().any(|operator| operator.newest_opset.is_some());
    if operators.is_empty() || is_too_new || !operators.iter().all(is_known) {
        Status::Fail
    } else {
        Status::InvalidGraph
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sardonyx::{Model, Session};

    #[test]
    fn numbers_are_those_of_the_c_header() {
        let numbers: Vec<i32> = Status::ALL.iter().map(|status| status.number()).collect();
        assert_eq!(numbers, Vec::from_iter(1..=15));
        let names: std::collections::HashSet<_> = Status::ALL.iter().map(|s| s.name()).collect();
        assert_eq!(names.len(), 15);
    }

    #[test]
    fn models_that_cannot_be_opened() {
        let directory = std::env::temp_dir();
        let missing = Source::Path(directory.join("missing: no such model.onnx"));
        let bytes = |bytes: &[u8]| Source::Bytes(bytes.to_vec().into());
        for (source, status) in [
            (missing, Status::NoSuchFile),
            (Source::Path(directory), Status::InvalidProtobuf),
            (bytes(b""), Status::InvalidArgument),
            (bytes(b"\x07garbage"), Status::InvalidProtobuf),
        ] {
            let error = source.open(&sardonyx::OpenOptions::new()).unwrap_err();
            assert_eq!(Status::of_model(&error, &source), status, "{error}");
        }
    }

    #[test]
    fn operators_that_cannot_run() {
        let rows = [
            ("\"\": 17", "Foo", Status::InvalidGraph),
            ("\"\": 999", "Relu", Status::Fail),
            ("\"\": 999", "Foo", Status::InvalidGraph),
            ("\"\": 17, \"com.x\": 1", "com.x.Foo", Status::Fail),
            ("\"\": 17, \"ai.onnx.ml\": 3", "ai.onnx.ml.Foo", Status::InvalidGraph),
        ];
        for (opsets, operator, status) in rows {
            let text = format!(
                "<ir_version: 8, opset_import: [{opsets}]> g (float[N] x) => (float[N] y) {{ y = {operator} (x) }}"
            );
            let error = Session::new(&Model::from_text(&text).unwrap()).unwrap_err();
            let source = Source::Bytes(Vec::new().into());
            assert_eq!(Status::of_model(&error, &source), status, "{error}");
        }
    }

    #[test]
    fn errors_of_runs() {
        for (kind, status) in [
            (ErrorKind::Input, Status::InvalidArgument),
            (ErrorKind::Output, Status::InvalidArgument),
            (ErrorKind::Run, Status::Fail),
            (ErrorKind::Stopped, Status::Fail),
            (ErrorKind::Internal, Status::Fail),
        ] {
            assert_eq!(Status::of_run(kind), status, "{kind:?}");
        }
    }
}

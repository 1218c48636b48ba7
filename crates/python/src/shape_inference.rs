//! `shape_inference`: types and shapes of all values.

mod context;
mod functions;
mod protos;
mod single;

use std::io::Write;
use std::path::{Path, PathBuf};

use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::PyBytes;
use sardonyx::infer::{InferOptions, Inferred};
use sardonyx::io::{Access, ExternalFiles};
use sardonyx::tool::infer::{Naming, Problem, ProblemKind, Style};
use sardonyx::tool::schema::Registry;
use sardonyx::tool::{ModelExt, WholeFile};
use sardonyx::{ErrorKind, Model, tool};

use crate::checker::{like_onnx, verdict};
use crate::errors::{InferenceError, ValidationError};
use crate::message;
use crate::registry;

pub(crate) use context::StandardRule;
use context::{GraphInferencer, InferenceContext};
pub(crate) use functions::Functions;
pub(crate) use single::node_outputs;

pub(crate) fn fill(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("InferenceError", module.py().get_type::<InferenceError>())?;
    module.add_class::<InferenceContext>()?;
    module.add_class::<GraphInferencer>()?;
    module.add_function(wrap_pyfunction!(infer_shapes, module)?)?;
    module.add_function(wrap_pyfunction!(infer_shapes_path, module)?)?;
    module.add_function(wrap_pyfunction!(infer_function_output_types, module)?)?;
    module.add_function(wrap_pyfunction!(_infer_shapes, module)?)?;
    module.add_function(wrap_pyfunction!(_infer_shapes_path, module)?)
}

/// Writes inferred types into a serialized ModelProto.
#[pyfunction]
#[pyo3(signature = (bytes, check_type=false, strict_mode=false, data_prop=false))]
fn infer_shapes<'py>(
    py: Python<'py>,
    bytes: PyBackedBytes,
    check_type: bool,
    strict_mode: bool,
    data_prop: bool,
) -> PyResult<Bound<'py, PyBytes>> {
    let mode = Mode::new(check_type, strict_mode, data_prop);
    mode.infer_bytes(py, bytes)
}

/// The same for the package's own function: there operators of a set that is not imported only mean
/// that less is known.
#[pyfunction]
#[pyo3(signature = (bytes, check_type, strict_mode, data_prop, /))]
fn _infer_shapes<'py>(
    py: Python<'py>,
    bytes: PyBackedBytes,
    check_type: bool,
    strict_mode: bool,
    data_prop: bool,
) -> PyResult<Bound<'py, PyBytes>> {
    let mode = Mode::new(check_type, strict_mode, data_prop);
    mode.without_imports().infer_bytes(py, bytes)
}

/// Writes inferred types into a model file.
#[pyfunction]
#[pyo3(signature = (model_path, output_path, check_type, strict_mode, data_prop, /))]
fn infer_shapes_path(
    py: Python<'_>,
    model_path: PathBuf,
    output_path: PathBuf,
    check_type: bool,
    strict_mode: bool,
    data_prop: bool,
) -> PyResult<()> {
    let mode = Mode::new(check_type, strict_mode, data_prop);
    mode.infer_file(py, &model_path, &output_path)
}

/// The same for the package's own function, see [`_infer_shapes`].
#[pyfunction]
#[pyo3(signature = (model_path, output_path, check_type, strict_mode, data_prop, /))]
fn _infer_shapes_path(
    py: Python<'_>,
    model_path: PathBuf,
    output_path: PathBuf,
    check_type: bool,
    strict_mode: bool,
    data_prop: bool,
) -> PyResult<()> {
    let mode = Mode::new(check_type, strict_mode, data_prop);
    mode.without_imports().infer_file(py, &model_path, &output_path)
}

/// Reads a model file.
///
/// # Errors
///
/// `ValidationError` if that cannot be done.
pub(crate) fn read_file(path: &Path) -> PyResult<Model> {
    // The result may take the place of the file.
    let options = message::open_options().access(Access::Read).external(ExternalFiles::Never);
    options.open(path).map_err(|error| {
        let what = match error.kind() {
            ErrorKind::Io => "Unable to open model file",
            _ => "Unable to parse model from file",
        };
        ValidationError::new_err(format!("{what}: {}: {error}", path.display()))
    })
}

/// How to infer.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Mode {
    /// Whether the types of operands are compared with what operators take.
    check_types: bool,
    /// Whether what does not fit is an error.
    strict: bool,
    /// Whether the values that shapes are made of are followed.
    data_prop: bool,
    /// Whether an operator of a set that is not imported is an error also where less may be known,
    /// as in the `onnx` package.
    demands_imports: bool,
}

impl Mode {
    /// As a full check infers.
    pub(crate) const FULL_CHECK: Mode =
        Mode { check_types: true, strict: true, data_prop: false, demands_imports: true };

    /// As the `onnx` package infers.
    fn new(check_types: bool, strict: bool, data_prop: bool) -> Mode {
        Mode { check_types, strict, data_prop, demands_imports: true }
    }

    fn without_imports(self) -> Mode {
        Mode { demands_imports: false, ..self }
    }

    /// Looks for what does not fit.
    ///
    /// # Errors
    ///
    /// `ValidationError` if a function calls itself; `InferenceError` with all that counts of what
    /// does not fit; the exception of an inference function of Python.
    pub(crate) fn check(self, py: Python<'_>, model: &Model) -> PyResult<Inferred> {
        let operators = registry::snapshot();
        refuse_cycles(model, &operators.registry)?;
        let functions = operators.functions(None);
        let options = as_reference(self.data_prop)
            .check_types(self.check_types)
            .naming(Naming::Reference)
            .registry(operators.registry.clone());
        let found = functions::with_functions(py, &operators.registry, &functions, |rules| {
            model.infer_with(&options, rules)
        })?;
        // The others are reasons why less is known.
        let counts = |kind| match kind {
            ProblemKind::Signature | ProblemKind::Limit => true,
            ProblemKind::NotImported => self.strict || self.demands_imports,
            _ => self.strict,
        };
        raise(found.problems(model, counts))?;
        Ok(found)
    }

    fn infer(self, py: Python<'_>, mut model: Model) -> PyResult<Model> {
        let found = self.check(py, &model)?;
        model.add_types(&found);
        Ok(model)
    }

    fn infer_bytes(self, py: Python<'_>, bytes: PyBackedBytes) -> PyResult<Bound<'_, PyBytes>> {
        let inferred = self.infer(py, message::read_shared(bytes)?)?;
        Ok(PyBytes::new(py, &inferred.to_bytes()))
    }

    /// The output is written beside its path and renamed: it may be the model's own file.
    fn infer_file(self, py: Python<'_>, from: &Path, to: &Path) -> PyResult<()> {
        let inferred = self.infer(py, read_file(from)?)?;
        let save = || {
            let mut file = WholeFile::create(to)?;
            file.write_all(&inferred.to_bytes())?;
            file.finish()
        };
        py.detach(save).map_err(|error| {
            ValidationError::new_err(format!(
                "Unable to save inferred model to the target path: {}: {error}",
                to.display()
            ))
        })
    }
}

/// How the reference implementation infers.
pub(crate) fn as_reference(data_prop: bool) -> InferOptions {
    InferOptions::new().style(Style::Reference { data_prop }).without_reasons(true)
}

/// Functions that call themselves have no types.
fn refuse_cycles(model: &Model, registry: &Registry) -> PyResult<()> {
    if model.functions().is_empty() {
        return Ok(());
    }
    let mut report = model.check_part(tool::CheckPart::Functions, &like_onnx(registry.clone()));
    report.findings.retain(|finding| finding.code.name == "recursive-function");
    verdict(report)
}

/// Problems as an exception, one line each.
fn raise(problems: impl Iterator<Item = Problem>) -> PyResult<()> {
    let lines: Vec<String> =
        problems.take(100).map(|problem| format!("\n[ShapeInferenceError] {problem}")).collect();
    if lines.is_empty() {
        Ok(())
    } else {
        Err(InferenceError::new_err(format!("Inference error(s):{}", lines.concat())))
    }
}

/// The types of the outputs of a serialized FunctionProto for types of its inputs and values of its
/// attributes.
#[pyfunction]
#[pyo3(signature = (function, input_types, attributes, /))]
fn infer_function_output_types<'py>(
    py: Python<'py>,
    function: &[u8],
    input_types: Vec<Vec<u8>>,
    attributes: Vec<Vec<u8>>,
) -> PyResult<Vec<Bound<'py, PyBytes>>> {
    let outputs = single::function_outputs(py, function, &input_types, &attributes)?;
    Ok(outputs.iter().map(|ty| PyBytes::new(py, ty)).collect())
}

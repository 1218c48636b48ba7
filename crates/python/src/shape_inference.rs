//! The Python submodule `shape_inference`: infers types and shapes of the values of a model.

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

use crate::checker::{make_onnx_options, raise_errors};
use crate::errors::{InferenceError, ValidationError};
use crate::items::Items;
use crate::message;
use crate::registry;

pub(crate) use context::StandardRule;
use context::{GraphInferencer, InferenceContext};
pub(crate) use functions::Functions;
pub(crate) use single::infer_node_outputs;

/// Adds the classes and functions of `sardonyx._core.shape_inference` to `module`.
pub(crate) fn fill_module(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("InferenceError", module.py().get_type::<InferenceError>())?;
    module.add_class::<InferenceContext>()?;
    module.add_class::<GraphInferencer>()?;
    module.add_function(wrap_pyfunction!(infer_shapes, module)?)?;
    module.add_function(wrap_pyfunction!(infer_shapes_path, module)?)?;
    module.add_function(wrap_pyfunction!(infer_function_output_types, module)?)?;
    module.add_function(wrap_pyfunction!(_infer_shapes, module)?)?;
    module.add_function(wrap_pyfunction!(_infer_shapes_path, module)?)
}

/// Infers types and shapes of a serialized ModelProto and returns the model with them.
///
/// `check_type` compares operand types with the schemas. `strict_mode` raises `InferenceError` for
/// every contradiction. `data_prop` also propagates the values of shape tensors.
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

/// Infers like `infer_shapes`, but accepts operators of domains that the model does not import,
/// whose outputs stay untyped.
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

/// Infers types and shapes of a model file and writes the model with them to `output_path`, which
/// may be the same file. The other arguments are those of `infer_shapes`.
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

/// Infers like `infer_shapes_path`, but accepts operators of domains that the model does not
/// import, whose outputs stay untyped.
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

/// Reads a model file without its data files.
///
/// # Errors
///
/// `ValidationError` if the file cannot be read.
pub(crate) fn read_file(path: &Path) -> PyResult<Model> {
    // Copies the file, which may be replaced by the result.
    let options = message::make_open_options().access(Access::Read).external(ExternalFiles::Never);
    options.open(path).map_err(|error| {
        let what = match error.kind() {
            ErrorKind::Io => "Unable to open model file",
            _ => "Unable to parse model from file",
        };
        ValidationError::new_err(format!("{what}: {}: {error}", path.display()))
    })
}

/// Options of type and shape inference.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Mode {
    /// Whether operand types are compared with the schemas.
    check_types: bool,
    /// Whether every contradiction is an error.
    strict: bool,
    /// Whether values of shape tensors are propagated.
    data_prop: bool,
    /// Whether an operator of a domain that is not imported is an error even if `strict` is false,
    /// like in the onnx package.
    demands_imports: bool,
}

impl Mode {
    /// Options of the checker's argument `full_check`.
    pub(crate) const FULL_CHECK: Mode =
        Mode { check_types: true, strict: true, data_prop: false, demands_imports: true };

    /// Creates inference options with the rules of the onnx package.
    fn new(check_types: bool, strict: bool, data_prop: bool) -> Mode {
        Mode { check_types, strict, data_prop, demands_imports: true }
    }

    /// Returns inference options that accept operators of domains which the model does not import.
    fn without_imports(self) -> Mode {
        Mode { demands_imports: false, ..self }
    }

    /// Infers types and shapes of a model, and raises an exception for contradictions.
    ///
    /// # Errors
    ///
    /// `ValidationError` if a function is recursive; `InferenceError` with the problems that count
    /// as errors; the exception of an inference function of Python code.
    pub(crate) fn check(self, py: Python<'_>, model: &Model) -> PyResult<Inferred> {
        let operators = registry::take_snapshot();
        refuse_cycles(model, &operators.registry)?;
        let functions = operators.collect_functions(None);
        let options = make_reference_options(self.data_prop)
            .check_types(self.check_types)
            .naming(Naming::Reference)
            .registry(operators.registry.clone());
        let found = functions::with_functions(py, &operators.registry, &functions, |rules| {
            model.infer_with(&options, rules)
        })?;
        raise_problems(found.problems(model, |kind| match kind {
            ProblemKind::Signature | ProblemKind::Limit => true,
            ProblemKind::NotImported => self.strict || self.demands_imports,
            // Any other problem only leaves types unknown.
            _ => self.strict,
        }))?;
        Ok(found)
    }

    /// Infers types and shapes of a model and returns the model with them.
    fn infer(self, py: Python<'_>, mut model: Model) -> PyResult<Model> {
        let found = self.check(py, &model)?;
        model.add_types(&found);
        Ok(model)
    }

    /// Infers types and shapes of a serialized model and serializes the result.
    fn infer_bytes(self, py: Python<'_>, bytes: PyBackedBytes) -> PyResult<Bound<'_, PyBytes>> {
        let inferred = self.infer(py, message::read_shared(bytes)?)?;
        Ok(PyBytes::new(py, &inferred.to_bytes()))
    }

    /// Infers types and shapes of the model file `from` and writes the model with them to `to`
    /// atomically. Both may be the same file.
    fn infer_file(self, py: Python<'_>, from: &Path, to: &Path) -> PyResult<()> {
        let inferred = self.infer(py, read_file(from)?)?;
        let saved = py.detach(|| {
            let mut file = WholeFile::create(to)?;
            file.write_all(&inferred.to_bytes())?;
            file.finish()
        });
        saved.map_err(|error| {
            ValidationError::new_err(format!(
                "Unable to save inferred model to the target path: {}: {error}",
                to.display()
            ))
        })
    }
}

/// Returns options with the inference rules of the onnx package.
pub(crate) fn make_reference_options(data_prop: bool) -> InferOptions {
    InferOptions::new().style(Style::Reference { data_prop }).without_reasons(true)
}

/// Checks that no function calls itself, because its outputs would have no types.
///
/// # Errors
///
/// `ValidationError` with the recursive functions.
fn refuse_cycles(model: &Model, registry: &Registry) -> PyResult<()> {
    if model.functions().is_empty() {
        return Ok(());
    }
    let mut report =
        model.check_part(tool::CheckPart::Functions, &make_onnx_options(registry.clone()));
    report.findings.retain(|finding| finding.code.name == "recursive-function");
    raise_errors(report)
}

/// Raises the first 100 problems of shape inference as one exception, with one line per problem.
///
/// # Errors
///
/// `InferenceError` if there is a problem.
fn raise_problems(problems: impl Iterator<Item = Problem>) -> PyResult<()> {
    let lines: Vec<String> =
        problems.take(100).map(|problem| format!("\n[ShapeInferenceError] {problem}")).collect();
    if lines.is_empty() {
        Ok(())
    } else {
        Err(InferenceError::new_err(format!("Inference error(s):{}", lines.concat())))
    }
}

/// Infers the output types of a serialized FunctionProto and returns them as serialized TypeProtos.
///
/// `input_types` are serialized TypeProtos, and `attributes` serialized AttributeProtos. Raises
/// `InferenceError` for contradictions.
#[pyfunction]
#[pyo3(signature = (function, input_types, attributes, /))]
fn infer_function_output_types<'py>(
    py: Python<'py>,
    function: &[u8],
    input_types: Items<PyBackedBytes>,
    attributes: Items<PyBackedBytes>,
) -> PyResult<Vec<Bound<'py, PyBytes>>> {
    let outputs = single::infer_function_outputs(py, function, &input_types.0, &attributes.0)?;
    Ok(outputs.iter().map(|ty| PyBytes::new(py, ty)).collect())
}

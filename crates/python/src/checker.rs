//! The Python submodule `checker`: checks models, and parts of models, against the ONNX standard.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use sardonyx::check::{CheckOptions, CheckReport, Finding, Severity};
use sardonyx::io::ModelFormat;
use sardonyx::tool::schema::Registry;
use sardonyx::tool::{DataAccess, ModelExt, open_data_file};
use sardonyx::{ErrorKind, OpenOptions};

use crate::errors::ValidationError;
use crate::message::{self, Header, Part};
use crate::registry;
use crate::shape_inference::{self, Mode};

/// Adds the classes and functions of `sardonyx._core.checker` to `module`.
pub(crate) fn fill_module(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("ValidationError", module.py().get_type::<ValidationError>())?;
    module.add_class::<CheckerContext>()?;
    module.add_class::<LexicalScopeContext>()?;
    module.add_function(wrap_pyfunction!(check_value_info, module)?)?;
    module.add_function(wrap_pyfunction!(check_tensor, module)?)?;
    module.add_function(wrap_pyfunction!(check_sparse_tensor, module)?)?;
    module.add_function(wrap_pyfunction!(check_attribute, module)?)?;
    module.add_function(wrap_pyfunction!(check_node, module)?)?;
    module.add_function(wrap_pyfunction!(check_function, module)?)?;
    module.add_function(wrap_pyfunction!(check_graph, module)?)?;
    module.add_function(wrap_pyfunction!(check_model, module)?)?;
    module.add_function(wrap_pyfunction!(check_model_path, module)?)?;
    module.add_function(wrap_pyfunction!(_open_external_data, module)?)
}

/// Facts about the model for which a part, such as one node, is checked.
#[pyclass(module = "sardonyx.checker")]
pub(crate) struct CheckerContext {
    /// IR version of the model; -1 until it is set.
    #[pyo3(get, set)]
    ir_version: i32,
    /// Versions of the operator sets that the model imports, by domain. Reading it returns a copy.
    #[pyo3(get, set)]
    opset_imports: BTreeMap<String, i32>,
}

#[pymethods]
impl CheckerContext {
    #[new]
    fn new() -> CheckerContext {
        CheckerContext { ir_version: -1, opset_imports: BTreeMap::new() }
    }
}

/// Outer names that a checked part of a model, such as a node, can use. Always empty: parts are
/// checked as members of a main graph.
#[pyclass(module = "sardonyx.checker")]
pub(crate) struct LexicalScopeContext(());

#[pymethods]
impl LexicalScopeContext {
    #[new]
    fn new() -> LexicalScopeContext {
        LexicalScopeContext(())
    }
}

impl CheckerContext {
    /// Converts the Python context to the options of a model check.
    fn to_context(&self) -> CheckContext {
        let versions = self.opset_imports.iter();
        CheckContext {
            header: Header {
                ir_version: Some(self.ir_version.into()),
                opset_imports: versions
                    .map(|(domain, version)| (domain.clone(), i64::from(*version)))
                    .collect(),
            },
            ..CheckContext::default()
        }
    }
}

/// Options for the check of a model, or of a part of a model such as a node.
#[derive(Debug, Clone, Default)]
struct CheckContext {
    /// IR version and opset imports of the model that the checked part belongs to.
    header: Header,
    /// Whether functions may import versions of an operator set that conflict with the model's.
    any_function_versions: bool,
    /// Whether operators of custom domains must be registered too.
    all_domains: bool,
}

impl CheckContext {
    /// Creates the check options for a whole model, whose IR version and opset imports are in the
    /// model itself.
    fn for_model(any_function_versions: bool, all_domains: bool) -> CheckContext {
        CheckContext { any_function_versions, all_domains, ..CheckContext::default() }
    }

    /// Returns check options with the rules of the onnx package's checker.
    fn to_options(&self) -> CheckOptions {
        make_onnx_options(registry::take_snapshot().registry)
            .skip_opset_compatibility(self.any_function_versions)
            .custom_domains(self.all_domains)
    }
}

/// Returns options that apply exactly the rules of the onnx package's checker, for the operators in
/// `registry`.
pub(crate) fn make_onnx_options(registry: Registry) -> CheckOptions {
    CheckOptions::new().like_onnx(true).registry(registry)
}

/// Checks a serialized part of a model, such as a NodeProto, against the ONNX standard.
///
/// # Errors
///
/// `ValueError` if the bytes are not a message of the type `part`; `ValidationError` if the message
/// violates the standard.
fn check_part(bytes: &[u8], part: Part, context: &CheckContext) -> PyResult<()> {
    let model = message::read_part(bytes, part, &context.header)?;
    raise_errors(model.check_part(part.into(), &context.to_options()))
}

/// Phrases of the onnx package's messages that programs search for, by code of the finding.
const KNOWN_WORDS: &[(&str, &str)] = &[
    ("recursive-function", "Cycle detected in model-local function references"),
    ("six-bit-range", "6-bit floats must use only bits 0-5"),
];

/// Raises the errors of a check report as one exception, with one line per error.
///
/// # Errors
///
/// `ValidationError` if the report has an error.
pub(crate) fn raise_errors(report: CheckReport) -> PyResult<()> {
    let errors = report.findings.iter();
    let errors = errors.filter(|found| found.severity == Severity::Error);
    let lines: Vec<String> = errors.map(format_finding).collect();
    if lines.is_empty() { Ok(()) } else { Err(ValidationError::new_err(lines.join("\n"))) }
}

/// Formats a finding of the checker, with the onnx package's phrase for the finding, if any, as
/// prefix.
fn format_finding(finding: &Finding) -> String {
    let known = KNOWN_WORDS.iter().find(|(code, _)| *code == finding.code.name);
    known.map_or(finding.to_string(), |(_, words)| format!("{words}: {finding}"))
}

/// Checks a serialized ValueInfoProto. Raises `ValidationError` if it violates the standard.
#[pyfunction]
#[pyo3(signature = (bytes, checker_context, /))]
fn check_value_info(
    py: Python<'_>,
    bytes: &[u8],
    checker_context: PyRef<'_, CheckerContext>,
) -> PyResult<()> {
    let context = checker_context.to_context();
    py.detach(|| check_part(bytes, Part::ValueInfo, &context))
}

/// Checks a serialized TensorProto. Raises `ValidationError` if it violates the standard.
#[pyfunction]
#[pyo3(signature = (bytes, checker_context, /))]
fn check_tensor(
    py: Python<'_>,
    bytes: &[u8],
    checker_context: PyRef<'_, CheckerContext>,
) -> PyResult<()> {
    let context = checker_context.to_context();
    py.detach(|| check_part(bytes, Part::Tensor, &context))
}

/// Checks a serialized SparseTensorProto. Raises `ValidationError` if it violates the standard.
#[pyfunction]
#[pyo3(signature = (bytes, checker_context, /))]
fn check_sparse_tensor(
    py: Python<'_>,
    bytes: &[u8],
    checker_context: PyRef<'_, CheckerContext>,
) -> PyResult<()> {
    let context = checker_context.to_context();
    py.detach(|| check_part(bytes, Part::SparseTensor, &context))
}

macro_rules! checks_in_scope {
    ($($function:ident $part:ident $doc:literal;)*) => { $(
        #[doc = $doc]
        #[pyfunction]
        #[pyo3(signature = (bytes, checker_context, lexical_scope_context, /))]
        fn $function(
            py: Python<'_>,
            bytes: &[u8],
            checker_context: PyRef<'_, CheckerContext>,
            lexical_scope_context: PyRef<'_, LexicalScopeContext>,
        ) -> PyResult<()> {
            let LexicalScopeContext(()) = *lexical_scope_context;
            let context = checker_context.to_context();
            py.detach(|| check_part(bytes, Part::$part, &context))
        }
    )* };
}

// A macro, because a Python function cannot be generic over the part.
checks_in_scope! {
    check_attribute Attribute
        "Checks a serialized AttributeProto. Raises `ValidationError` if it violates the standard.";
    check_node Node
        "Checks a serialized NodeProto. Raises `ValidationError` if it violates the standard.";
    check_function Function
        "Checks a serialized FunctionProto. Raises `ValidationError` if it violates the standard.";
    check_graph Graph
        "Checks a serialized GraphProto. Raises `ValidationError` if it violates the standard.";
}

/// Checks a serialized ModelProto. Raises `ValidationError` if it violates the standard.
///
/// `full_check` also infers types and shapes, and raises `InferenceError` for contradictions.
/// `skip_opset_compatibility_check` accepts functions that import other versions of an operator set
/// than the model. `check_custom_domain` requires operators of custom domains to be registered.
#[pyfunction]
#[pyo3(signature = (
    bytes,
    full_check=false,
    skip_opset_compatibility_check=false,
    check_custom_domain=false,
))]
fn check_model(
    py: Python<'_>,
    bytes: PyBackedBytes,
    full_check: bool,
    skip_opset_compatibility_check: bool,
    check_custom_domain: bool,
) -> PyResult<()> {
    let context = CheckContext::for_model(skip_opset_compatibility_check, check_custom_domain);
    let model = py.detach(|| {
        let model = message::read_shared(bytes)?;
        raise_errors(model.check(&context.to_options()))?;
        PyResult::Ok(model)
    })?;
    if full_check {
        Mode::FULL_CHECK.check(py, &model)?;
    }
    Ok(())
}

/// Checks a model file with its data files. Raises `ValidationError` if it violates the standard,
/// or cannot be read.
///
/// `full_check` also infers types and shapes, and raises `InferenceError` for contradictions.
/// `skip_opset_compatibility_check` accepts functions that import other versions of an operator set
/// than the model. `check_custom_domain` requires operators of custom domains to be registered.
#[pyfunction]
#[pyo3(signature = (
    path,
    full_check=false,
    skip_opset_compatibility_check=false,
    check_custom_domain=false,
))]
fn check_model_path(
    py: Python<'_>,
    path: PathBuf,
    full_check: bool,
    skip_opset_compatibility_check: bool,
    check_custom_domain: bool,
) -> PyResult<()> {
    let context = CheckContext::for_model(skip_opset_compatibility_check, check_custom_domain);
    py.detach(|| check_file(&path, &context))?;
    if full_check {
        let model = py.detach(|| shape_inference::read_file(&path))?;
        Mode::FULL_CHECK.check(py, &model)?;
    }
    Ok(())
}

/// Checks a model file and its data files against the ONNX standard. Rejects symlinks among the
/// data files.
///
/// # Errors
///
/// `ValidationError` with the violations of the standard, or if the model cannot be read.
fn check_file(path: &Path, context: &CheckContext) -> PyResult<()> {
    let open = OpenOptions::new().form(ModelFormat::Binary).follow_links(false);
    let model = open.open(path).map_err(|error| {
        ValidationError::new_err(match error.kind() {
            ErrorKind::Io => format!("Unable to open proto file: {}: {error}", path.display()),
            _ => format!("Unable to parse proto file {}: {error}", path.display()),
        })
    })?;
    raise_errors(model.check(&context.to_options()))
}

/// Opens the data file `location` of a model in `base_dir` and returns its file descriptor, which
/// the caller must close. Raises `ValidationError` if the location leads out of the directory, has
/// a symlink, or the file cannot be opened. `base_dir` is trusted and may be a symlink.
#[pyfunction]
#[pyo3(signature = (base_dir, location, tensor_name, read_only, /))]
fn _open_external_data(
    py: Python<'_>,
    base_dir: &str,
    location: &str,
    tensor_name: &str,
    read_only: bool,
) -> PyResult<i32> {
    let access = if read_only { DataAccess::Read } else { DataAccess::Write };
    let opened = py.detach(|| open_data_file(Path::new(base_dir), location, access));
    let file = opened.map_err(|error| {
        ValidationError::new_err(format!(
            "Data of TensorProto ( tensor name: {tensor_name}): {error}"
        ))
    })?;
    into_descriptor(file)
}

/// Releases the file descriptor of a file to the caller.
#[cfg(unix)]
fn into_descriptor(file: std::fs::File) -> PyResult<i32> {
    Ok(std::os::fd::IntoRawFd::into_raw_fd(file))
}

/// Raises `NotImplementedError`: this system has no file descriptors.
#[cfg(not(unix))]
fn into_descriptor(_: std::fs::File) -> PyResult<i32> {
    Err(pyo3::exceptions::PyNotImplementedError::new_err(
        "this system has no file descriptors; open the data file with open(), after making sure that its location \
         does not lead out of the directory of the model",
    ))
}

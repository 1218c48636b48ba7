//! `checker`: does a model keep to the standard?

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use sardonyx::check::{CheckOptions, CheckReport, Finding, Severity};
use sardonyx::io::Form;
use sardonyx::tool::schema::Registry;
use sardonyx::tool::{DataAccess, ModelExt, open_data_file};
use sardonyx::{ErrorKind, OpenOptions};

use crate::errors::ValidationError;
use crate::message::{self, Header, Part};
use crate::registry;
use crate::shape_inference::{self, Mode};

pub(crate) fn fill(module: &Bound<'_, PyModule>) -> PyResult<()> {
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

/// The model that a part is to be checked for.
#[pyclass(module = "sardonyx.checker")]
pub(crate) struct CheckerContext {
    /// IR version of the model.
    #[pyo3(get, set)]
    ir_version: i32,
    /// Versions of the operator sets that the model imports, by domain. A copy.
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

/// The names that are visible around a part. Empty: parts are checked as if they stood in a main
/// graph.
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
    fn context(&self) -> Context {
        let versions = self.opset_imports.iter();
        Context {
            header: Header {
                ir_version: Some(self.ir_version.into()),
                opset_imports: versions
                    .map(|(domain, version)| (domain.clone(), i64::from(*version)))
                    .collect(),
            },
            ..Context::default()
        }
    }
}

/// How to check.
#[derive(Debug, Clone, Default)]
struct Context {
    /// What the model around a part says.
    header: Header,
    /// Whether functions may import other versions of an operator set than the model.
    any_function_versions: bool,
    /// Whether operators of all domains must be known.
    all_domains: bool,
}

impl Context {
    /// For a whole model, which says the rest itself.
    fn of_model(any_function_versions: bool, all_domains: bool) -> Context {
        Context { any_function_versions, all_domains, ..Context::default() }
    }

    /// What the checker of the `onnx` package would look at, and nothing else.
    fn options(&self) -> CheckOptions {
        like_onnx(registry::snapshot().registry)
            .skip_opset_compatibility(self.any_function_versions)
            .custom_domains(self.all_domains)
    }
}

/// What the checker of the `onnx` package would look at, with these operators.
pub(crate) fn like_onnx(registry: Registry) -> CheckOptions {
    CheckOptions::new().like_onnx(true).registry(registry)
}

/// Checks a part of a model.
///
/// # Errors
///
/// `ValueError` if the bytes are no such message, `ValidationError` with what is wrong with it.
fn judge(bytes: &[u8], part: Part, context: &Context) -> PyResult<()> {
    let model = message::read(bytes, part, &context.header)?;
    verdict(model.check_part(part.into(), &context.options()))
}

/// Words that programs look for in the messages of the `onnx` package, by code.
const KNOWN_WORDS: &[(&str, &str)] = &[
    ("recursive-function", "Cycle detected in model-local function references"),
    ("six-bit-range", "6-bit floats must use only bits 0-5"),
];

/// Errors as an exception, one line each.
pub(crate) fn verdict(report: CheckReport) -> PyResult<()> {
    let errors = report.findings.iter();
    let errors = errors.filter(|found| found.severity == Severity::Error);
    let line = |found: &Finding| {
        let known = KNOWN_WORDS.iter().find(|(code, _)| *code == found.code.name);
        known.map_or(found.to_string(), |(_, words)| format!("{words}: {found}"))
    };
    let lines: Vec<String> = errors.map(line).collect();
    if lines.is_empty() { Ok(()) } else { Err(ValidationError::new_err(lines.join("\n"))) }
}

/// Checks a serialized ValueInfoProto.
#[pyfunction]
#[pyo3(signature = (bytes, checker_context, /))]
fn check_value_info(
    py: Python<'_>,
    bytes: &[u8],
    checker_context: PyRef<'_, CheckerContext>,
) -> PyResult<()> {
    let context = checker_context.context();
    py.detach(|| judge(bytes, Part::ValueInfo, &context))
}

/// Checks a serialized TensorProto.
#[pyfunction]
#[pyo3(signature = (bytes, checker_context, /))]
fn check_tensor(
    py: Python<'_>,
    bytes: &[u8],
    checker_context: PyRef<'_, CheckerContext>,
) -> PyResult<()> {
    let context = checker_context.context();
    py.detach(|| judge(bytes, Part::Tensor, &context))
}

/// Checks a serialized SparseTensorProto.
#[pyfunction]
#[pyo3(signature = (bytes, checker_context, /))]
fn check_sparse_tensor(
    py: Python<'_>,
    bytes: &[u8],
    checker_context: PyRef<'_, CheckerContext>,
) -> PyResult<()> {
    let context = checker_context.context();
    py.detach(|| judge(bytes, Part::SparseTensor, &context))
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
            let context = checker_context.context();
            py.detach(|| judge(bytes, Part::$part, &context))
        }
    )* };
}

// Four equal functions; one that is told the part could not be one of Python's.
checks_in_scope! {
    check_attribute Attribute "Checks a serialized AttributeProto.";
    check_node Node "Checks a serialized NodeProto.";
    check_function Function "Checks a serialized FunctionProto.";
    check_graph Graph "Checks a serialized GraphProto.";
}

/// Checks a serialized ModelProto.
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
    let context = Context::of_model(skip_opset_compatibility_check, check_custom_domain);
    let model = py.detach(|| {
        let model = message::read_shared(bytes)?;
        verdict(model.check(&context.options()))?;
        PyResult::Ok(model)
    })?;
    if full_check {
        Mode::FULL_CHECK.check(py, &model)?;
    }
    Ok(())
}

/// Checks a model file, with its data files.
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
    let context = Context::of_model(skip_opset_compatibility_check, check_custom_domain);
    py.detach(|| judge_file(&path, &context))?;
    if full_check {
        let model = py.detach(|| shape_inference::read_file(&path))?;
        Mode::FULL_CHECK.check(py, &model)?;
    }
    Ok(())
}

fn judge_file(path: &Path, context: &Context) -> PyResult<()> {
    let open = OpenOptions::new().form(Form::Binary).follow_links(false);
    let model = open.open(path).map_err(|error| {
        ValidationError::new_err(match error.kind() {
            ErrorKind::Io => format!("Unable to open proto file: {}: {error}", path.display()),
            _ => format!("Unable to parse proto file {}: {error}", path.display()),
        })
    })?;
    verdict(model.check(&context.options()))
}

/// Opens a data file of a model, beneath a directory and nowhere else, and gives its file
/// descriptor, which the caller closes.
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
    descriptor(file)
}

#[cfg(unix)]
fn descriptor(file: std::fs::File) -> PyResult<i32> {
    Ok(std::os::fd::IntoRawFd::into_raw_fd(file))
}

#[cfg(not(unix))]
fn descriptor(_: std::fs::File) -> PyResult<i32> {
    Err(pyo3::exceptions::PyNotImplementedError::new_err(
        "this system has no file descriptors; open the file in the directory of the model with open(), after making sure \
         that its location does not lead out of that directory",
    ))
}

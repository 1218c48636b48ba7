//! `shape_inference`: types and shapes of all values.

mod context;
mod functions;
mod protos;
mod single;

use std::fs;
use std::path::{Path, PathBuf};

use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::PyBytes;
use sardonyx_model::Model;
use sardonyx_ops::Registry;
use sardonyx_passes::check::Levels;
use sardonyx_passes::{
    CheckOptions, CheckPart, InferOptions, Inference, Naming, Places, Problem, ProblemKind, Style,
    annotate, check_part, infer_model,
};

use crate::checker::verdict;
use crate::errors::{InferenceError, ValidationError};
use crate::message;
use crate::registry;

pub(crate) use context::StandardRule;
use context::{GraphInferencer, InferenceContext};
pub(crate) use functions::Functions;
pub(crate) use protos::read_types;
pub(crate) use single::{Around, node_outputs};

pub(crate) fn fill(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("InferenceError", module.py().get_type::<InferenceError>())?;
    module.add_class::<InferenceContext>()?;
    module.add_class::<GraphInferencer>()?;
    module.add_function(wrap_pyfunction!(infer_shapes, module)?)?;
    module.add_function(wrap_pyfunction!(infer_shapes_path, module)?)?;
    module.add_function(wrap_pyfunction!(infer_function_output_types, module)?)
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
    let mode = Mode {
        check_types: check_type,
        strict: strict_mode,
        data_prop,
    };
    let inferred = mode.infer(py, message::read_shared(bytes)?)?;
    Ok(PyBytes::new(py, &inferred.to_bytes()))
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
    let mode = Mode {
        check_types: check_type,
        strict: strict_mode,
        data_prop,
    };
    let inferred = mode.infer(py, read_file(&model_path)?)?;
    fs::write(&output_path, inferred.to_bytes()).map_err(|error| {
        ValidationError::new_err(format!(
            "Unable to save inferred model to the target path: {}: {error}",
            output_path.display()
        ))
    })
}

/// Reads a model file.
///
/// # Errors
///
/// `ValidationError` if that cannot be done.
pub(crate) fn read_file(path: &Path) -> PyResult<Model> {
    let refused =
        |what, error| ValidationError::new_err(format!("{what}: {}: {error}", path.display()));
    let bytes =
        fs::read(path).map_err(|error| refused("Unable to open model file", error.to_string()))?;
    Model::read(bytes.into())
        .map_err(|error| refused("Unable to parse model from file", error.to_string()))
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
}

impl Mode {
    /// As a full check infers.
    pub(crate) const FULL_CHECK: Mode = Mode {
        check_types: true,
        strict: true,
        data_prop: false,
    };

    /// Looks for what does not fit.
    ///
    /// # Errors
    ///
    /// `ValidationError` if a function calls itself; `InferenceError` with all that counts of what does not fit; the exception of an inference function of Python.
    pub(crate) fn check(self, py: Python<'_>, model: &Model) -> PyResult<Inference> {
        let operators = registry::snapshot();
        refuse_cycles(model, &operators.registry)?;
        let functions = operators.functions(None);
        let found = functions::with_functions(py, &operators.registry, &functions, |rules| {
            let options = InferOptions {
                style: Style::Reference {
                    data_prop: self.data_prop,
                },
                check_types: self.check_types,
                rules,
                ..InferOptions::default()
            };
            infer_model(model, &operators.registry, options)
        })?;
        // The others are reasons why less is known.
        let always = [
            ProblemKind::Signature,
            ProblemKind::NotImported,
            ProblemKind::Limit,
        ];
        let counts = |problem: &Problem| self.strict || always.contains(&problem.kind);
        raise(model, found.problems(), counts)?;
        Ok(found)
    }

    fn infer(self, py: Python<'_>, mut model: Model) -> PyResult<Model> {
        let found = self.check(py, &model)?;
        annotate(&mut model, &found, Naming::Reference, &[]);
        Ok(model)
    }
}

/// Functions that call themselves have no types.
fn refuse_cycles(model: &Model, registry: &Registry) -> PyResult<()> {
    if model.functions.is_empty() {
        return Ok(());
    }
    let options = CheckOptions {
        registry: registry.clone(),
        levels: Levels::shared(),
        ..CheckOptions::default()
    };
    let mut report = check_part(model, CheckPart::Functions, &options);
    report
        .findings
        .retain(|finding| finding.code.name == "recursive-function");
    verdict(report)
}

/// Problems that count as an exception, one line each.
fn raise(model: &Model, problems: &[Problem], counts: impl Fn(&Problem) -> bool) -> PyResult<()> {
    let mut places = Places::default();
    let lines: Vec<String> = problems
        .iter()
        .filter(|problem| counts(problem))
        .take(100)
        .map(|problem| {
            format!(
                "\n[ShapeInferenceError] {}",
                problem_text(model, &mut places, problem)
            )
        })
        .collect();
    match lines.is_empty() {
        true => Ok(()),
        false => Err(InferenceError::new_err(format!(
            "Inference error(s):{}",
            lines.concat()
        ))),
    }
}

fn problem_text(model: &Model, places: &mut Places, problem: &Problem) -> String {
    let place = places.of(model, problem.spot);
    format!("{place}: {}", problem.fact)
}

/// The types of the outputs of a serialized FunctionProto for types of its inputs and values of its attributes.
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

//! Python functions `sardonyx.extract`, `sardonyx.reduce`, `sardonyx.diff` and
//! `sardonyx.utils.extract_model`. The Python package declares the options with their defaults and
//! passes them as a dict.

use std::path::PathBuf;

use pyo3::prelude::*;
use sardonyx::check::diff::DiffOptions;
use sardonyx::edit::{CheckAnswer, EditError, ExtractOptions, ExtractReport, ReduceOptions};
use sardonyx::io::Weights;
use sardonyx::{Model, SaveOptions};

use super::errors::to_exception;
use super::opened::{find_parser, open_model, to_argument_form};
use super::training::change_model;
use crate::items::Items;

/// Arguments of `sardonyx.extract`.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct ExtractArguments {
    inputs: Option<Items<String>>,
    outputs: Option<Items<String>>,
    node: Option<String>,
    depth: usize,
    inside: Option<String>,
    graph: Option<String>,
}

/// Returns a part of a model as an object of the same class or as bytes.
#[pyfunction]
#[pyo3(signature = (model, arguments, /))]
pub(crate) fn extract<'py>(
    model: &Bound<'py, PyAny>,
    arguments: ExtractArguments,
) -> PyResult<Bound<'py, PyAny>> {
    let ExtractArguments { inputs, outputs, node, depth, inside, graph } = arguments;
    let mut options = ExtractOptions::new();
    if let Some(inputs) = inputs {
        options = options.from(inputs.0);
    }
    if let Some(outputs) = outputs {
        options = options.to(outputs.0);
    }
    if let Some(node) = node {
        options = options.node(node, depth);
    }
    if let Some(inside) = inside {
        options = options.body_of(inside);
    }
    if let Some(graph) = graph {
        options = options.graph(graph);
    }
    change_model(model, |model| Ok(model.extract(&options)?.0))
}

/// Extracts the part of a model file between values, and saves it. Returns the names of inputs that
/// the part reads beyond `inputs`, for which nothing is written, and the reason if it does not
/// exist (else None).
#[pyfunction]
#[pyo3(signature = (input_path, output_path, inputs, outputs, /))]
pub(crate) fn extract_file(
    py: Python<'_>,
    input_path: PathBuf,
    output_path: PathBuf,
    inputs: Items<String>,
    outputs: Items<String>,
) -> PyResult<(Vec<String>, Option<String>)> {
    py.detach(|| {
        let model = Model::open(input_path)?;
        let options = ExtractOptions::new().from(inputs.0).to(outputs.0);
        let (mut part, report) = match model.extract(&options) {
            Ok(extracted) => extracted,
            Err(error @ EditError::Invalid(_)) => return Err(error.into()),
            Err(refusal) => return Ok((Vec::new(), Some(refusal.to_string()))),
        };
        let ExtractReport { added, .. } = report;
        if added.is_empty() {
            part.set_producer_name("onnx.utils.extract_model");
            part.set_producer_version("");
            let save = SaveOptions::new().weights(Weights::Keep);
            save.save(&part, output_path)?;
        }
        Ok((added, None))
    })
    .map_err(|error: sardonyx::Error| to_exception(py, &error))
}

/// Reduces a model as long as the function `check` returns a true value for a candidate, which it
/// gets as an object of the same class or as bytes. Returns the reduced model, or None if `check`
/// returns a false value for the model itself.
#[pyfunction]
#[pyo3(signature = (model, check, limit, /))]
pub(crate) fn reduce<'py>(
    model: &Bound<'py, PyAny>,
    check: &Bound<'py, PyAny>,
    limit: u64,
) -> PyResult<Option<Bound<'py, PyAny>>> {
    let py = model.py();
    let class = find_parser(model)?;
    let (opened, source) = open_model(model)?;
    let mut raised = None;
    let options = ReduceOptions { checks: limit };
    let (reduced, report) = opened.reduce(&options, &mut |candidate| {
        let answer = to_argument_form(py, candidate.clone(), &source, class.as_ref())
            .and_then(|candidate| check.call1((candidate,))?.is_truthy());
        match answer {
            Ok(true) => CheckAnswer::Fails,
            Ok(false) => CheckAnswer::Passes,
            Err(error) => {
                raised = Some(error);
                CheckAnswer::Stop
            }
        }
    });
    match raised {
        Some(error) => Err(error),
        None if report.never_failed => Ok(None),
        None => to_argument_form(py, reduced, &source, class.as_ref()).map(Some),
    }
}

/// Compares two models. Returns their differences as JSON.
#[pyfunction]
#[pyo3(signature = (before, after, values, /))]
pub(crate) fn diff(
    before: &Bound<'_, PyAny>,
    after: &Bound<'_, PyAny>,
    values: bool,
) -> PyResult<String> {
    let py = before.py();
    let ((before, _), (after, _)) = (open_model(before)?, open_model(after)?);
    let options = DiffOptions::new().with_values(values);
    let text = py.detach(|| serde_json::to_string(&before.diff(&after, &options)));
    text.map_err(|error| super::errors::argument_error(py, error, None))
}

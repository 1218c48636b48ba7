//! Python function `sardonyx.compare`: runs two models on the same inputs and finds the first value
//! that differs. The Python package declares the options with their defaults and passes them as a
//! dict.

use std::collections::HashMap;

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString};
use sardonyx::check::{CompareOptions, FillOptions};
use sardonyx::infer::InferOptions;
use sardonyx::{Model, Port, Type, Value};
use serde_json::json;

use super::errors::{argument_error, to_exception};
use super::opened::open_model;
use super::settings::parse_dims;
use super::take::{InputConverter, as_dict};

/// Arguments of `sardonyx.compare`.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct CompareArguments {
    rtol: Option<f64>,
    atol: Option<f64>,
    seed: u64,
    all: bool,
    bisect: bool,
}

/// Second side of a comparison.
enum Other {
    Model(Box<Model>),
    Stored(Vec<(String, Value)>),
    Double,
}

/// Compares a model with another one, with stored values in a dict, or with itself in double
/// (None). Returns the result as JSON.
#[pyfunction]
#[pyo3(signature = (model, other, inputs, dims, arguments, /))]
pub(crate) fn compare(
    model: &Bound<'_, PyAny>,
    other: &Bound<'_, PyAny>,
    inputs: &Bound<'_, PyAny>,
    dims: Option<&Bound<'_, PyDict>>,
    arguments: CompareArguments,
) -> PyResult<String> {
    let py = model.py();
    let (model, _) = open_model(model)?;
    let ports: HashMap<String, Port> =
        model.inputs().into_iter().map(|port| (port.name().to_string(), port)).collect();
    let inputs = if inputs.is_none() {
        Vec::new()
    } else {
        convert_values(&as_dict(inputs)?, &|name| ports.get(name).cloned())?
    };
    let other = if other.is_none() {
        Other::Double
    } else if other.is_instance_of::<PyDict>() {
        let types = model.infer(&InferOptions::new().without_reasons(true));
        let types: HashMap<String, Type> = types
            .values(&model)
            .filter_map(|found| Some((found.name, found.ty?.clone())))
            .collect();
        let stored = convert_values(&as_dict(other)?, &|name| {
            Some(Port::new(name.to_string(), types.get(name).cloned(), true))
        });
        Other::Stored(stored?)
    } else {
        Other::Model(Box::new(open_model(other)?.0))
    };
    let mut fill = FillOptions::new().seed(arguments.seed);
    for (name, size) in parse_dims(dims)? {
        fill = fill.dim(name, size);
    }
    let found = py.detach(|| run_comparison(&model, other, inputs, fill, &arguments));
    let answer = found.map_err(|error| to_exception(py, &error))?;
    answer.map_err(|error| argument_error(py, error, None))
}

/// Runs the comparison, and returns its JSON form.
fn run_comparison(
    model: &Model,
    other: Other,
    inputs: Vec<(String, Value)>,
    fill: FillOptions,
    arguments: &CompareArguments,
) -> Result<Result<String, serde_json::Error>, sardonyx::Error> {
    let mut options =
        CompareOptions::new().inputs(inputs).fill(fill).all(arguments.all).bisect(arguments.bisect);
    if let Some(rtol) = arguments.rtol {
        options = options.rtol(rtol);
    }
    if let Some(atol) = arguments.atol {
        options = options.atol(atol);
    }
    let found = match other {
        Other::Model(other) => model.compare(&other, &options),
        Other::Stored(stored) => model.compare_stored(stored, &options),
        Other::Double => model.compare_with_double(&options),
    }?;
    Ok(serde_json::to_string(&json!({"comparison": found, "values": found.values})))
}

/// Converts a dict of names and arrays. `find_port` returns the type of a name.
fn convert_values(
    values: &Bound<'_, PyDict>,
    find_port: &dyn Fn(&str) -> Option<Port>,
) -> PyResult<Vec<(String, Value)>> {
    let mut converted = Vec::new();
    for (name, value) in values {
        let name = name.cast::<PyString>()?.to_str()?.to_string();
        let port = find_port(&name).unwrap_or_else(|| Port::new(name.clone(), None, true));
        let value = InputConverter::with_copies().convert_value(&value, &port)?;
        converted.push((name, value));
    }
    Ok(converted)
}

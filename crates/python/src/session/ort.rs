//! The Python submodule `sardonyx._core.ort`: the crate `sardonyx-ort` for the Python package
//! `sardonyx.ort`, which offers the API of onnxruntime.

mod binding;
mod errors;
mod opening;
mod options;
mod profile;
mod runner;

use std::collections::BTreeMap;

use pyo3::exceptions::PyKeyError;
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use sardonyx_ort::{Status, options as tables, providers, refused};

use crate::items::Items;
use errors::to_exception;

/// Adds the constants, classes and functions of `sardonyx._core.ort` to `module`.
pub(crate) fn fill_module(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("VERSION", sardonyx_ort::VERSION)?;
    module.add("VENDOR", sardonyx_ort::VENDOR)?;
    module.add("NO_MODEL_VERSION", sardonyx_ort::NO_MODEL_VERSION)?;
    module.add("CPU_PROVIDER", providers::CPU_PROVIDER)?;
    module.add("CPU_MEMORY", providers::CPU_MEMORY)?;
    module.add("AVAILABLE_PROVIDERS", PyTuple::new(module.py(), providers::AVAILABLE)?)?;
    module.add_class::<runner::Runner>()?;
    module.add_class::<binding::Binding>()?;
    module.add_class::<options::SessionOptions>()?;
    module.add_class::<options::RunOptions>()?;
    module.add_class::<profile::Profile>()?;
    module.add_function(wrap_pyfunction!(build_info, module)?)?;
    module.add_function(wrap_pyfunction!(levels, module)?)?;
    module.add_function(wrap_pyfunction!(statuses, module)?)?;
    module.add_function(wrap_pyfunction!(set_seed, module)?)?;
    module.add_function(wrap_pyfunction!(normalize_providers, module)?)?;
    module.add_function(wrap_pyfunction!(demand_provider, module)?)?;
    module.add_function(wrap_pyfunction!(demand_device, module)?)?;
    module.add_function(wrap_pyfunction!(demand_memory, module)?)?;
    module.add_function(wrap_pyfunction!(refusal, module)?)
}

/// Returns a text that describes the build.
#[pyfunction]
fn build_info() -> String {
    sardonyx_ort::build_info()
}

/// Returns enumerations of onnxruntime, such as `GraphOptimizationLevel`: names and numbers of
/// their members, by the name of the type.
#[pyfunction]
fn levels() -> BTreeMap<&'static str, Vec<(&'static str, i64)>> {
    tables::LEVELS.iter().map(|levels| (levels.name, levels.members.to_vec())).collect()
}

/// Returns the status codes of onnxruntime, by the name of their exception class.
#[pyfunction]
fn statuses() -> BTreeMap<&'static str, i32> {
    Status::ALL.iter().map(|status| (status.name(), status.number())).collect()
}

/// Sets the seed of random operators without an attribute `seed`, for sessions made later.
#[pyfunction]
#[pyo3(signature = (seed, /))]
fn set_seed(seed: u64) {
    sardonyx_ort::set_seed(seed);
}

/// Removes duplicate execution providers. Returns the others with their options, and warnings about
/// duplicates and unavailable providers.
#[pyfunction]
#[pyo3(signature = (given, available, /))]
fn normalize_providers(
    given: Items<(String, Items<(String, String)>)>,
    available: Items<String>,
) -> (Vec<providers::Provider>, Vec<String>) {
    let given = given.0.into_iter().map(|(name, options)| (name, options.0));
    let normalized = providers::normalize(given.collect(), &available.0);
    (normalized.providers, normalized.warnings)
}

/// Raises an exception for any execution provider but that of the CPU.
#[pyfunction]
#[pyo3(signature = (name, /))]
fn demand_provider(py: Python<'_>, name: &str) -> PyResult<()> {
    providers::demand_provider(name).map_err(|error| to_exception(py, &error))
}

/// Raises an exception for memory of any device but the CPU.
#[pyfunction]
#[pyo3(signature = (name, /))]
fn demand_device(py: Python<'_>, name: &str) -> PyResult<()> {
    providers::demand_device(name).map_err(|error| to_exception(py, &error))
}

/// Raises an exception for the name of any memory but that of the CPU.
#[pyfunction]
#[pyo3(signature = (name, /))]
fn demand_memory(py: Python<'_>, name: &str) -> PyResult<()> {
    providers::demand_memory(name).map_err(|error| to_exception(py, &error))
}

/// Makes the exception for a feature of onnxruntime that Sardonyx does not have. `key` identifies
/// the feature; `names` are inserted into the message. Raises `KeyError` for an unknown key.
#[pyfunction]
#[pyo3(signature = (key, /, *names))]
fn refusal<'py>(key: &Bound<'py, PyAny>, names: Items<String>) -> PyResult<Bound<'py, PyAny>> {
    let names: Vec<&str> = names.0.iter().map(String::as_str).collect();
    match refused::find(&key.extract::<String>()?, &names) {
        Some(error) => {
            Ok(to_exception(key.py(), &error).into_value(key.py()).into_bound(key.py()).into_any())
        }
        None => Err(PyKeyError::new_err(key.clone().unbind())),
    }
}

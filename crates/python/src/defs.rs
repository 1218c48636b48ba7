//! `defs`: which operators there are.

mod classes;
pub(crate) mod default_value;
pub(crate) mod description;
mod enums;
mod standard;

use std::collections::BTreeMap;
use std::sync::Arc;

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use sardonyx::tool::schema::RegistryError;

use crate::errors::SchemaError;
use crate::registry;
use classes::OpSchema;

pub(crate) fn fill(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("SchemaError", module.py().get_type::<SchemaError>())?;
    classes::fill(module)?;
    module.add_function(wrap_pyfunction!(has_schema, module)?)?;
    module.add_function(wrap_pyfunction!(schema_version_map, module)?)?;
    module.add_function(wrap_pyfunction!(get_schema, module)?)?;
    module.add_function(wrap_pyfunction!(get_all_schemas, module)?)?;
    module.add_function(wrap_pyfunction!(get_all_schemas_with_history, module)?)?;
    module.add_function(wrap_pyfunction!(set_domain_to_version, module)?)?;
    module.add_function(wrap_pyfunction!(register_schema, module)?)?;
    module.add_function(wrap_pyfunction!(deregister_schema, module)?)
}

/// What is looked up: the second argument may be a version or a domain.
struct Wanted {
    version: Option<i64>,
    domain: String,
}

impl Wanted {
    fn new(second: Option<&Bound<'_, PyAny>>, domain: Option<String>) -> PyResult<Wanted> {
        let Some(second) = second else {
            return Ok(Wanted { version: None, domain: domain.unwrap_or_default() });
        };
        if let Ok(version) = second.extract::<i32>() {
            return Ok(Wanted {
                version: Some(version.into()),
                domain: domain.unwrap_or_default(),
            });
        }
        match (second.extract::<String>(), domain) {
            (Ok(domain), None) => Ok(Wanted { version: None, domain }),
            _ => Err(PyTypeError::new_err(
                "wanted: (op_type, max_inclusive_version, domain=\"\") or (op_type, domain=\"\")",
            )),
        }
    }
}

/// Whether there is an operator, in some version up to the one given.
#[pyfunction]
#[pyo3(signature = (op_type, max_inclusive_version=None, domain=None))]
fn has_schema(
    op_type: &str,
    max_inclusive_version: Option<Bound<'_, PyAny>>,
    domain: Option<String>,
) -> PyResult<bool> {
    let wanted = Wanted::new(max_inclusive_version.as_ref(), domain)?;
    let operators = registry::snapshot();
    Ok(operators.find(op_type, wanted.version, &wanted.domain).is_some())
}

/// The schema of an operator in the newest version up to the one given.
#[pyfunction]
#[pyo3(signature = (op_type, max_inclusive_version=None, domain=None))]
fn get_schema(
    op_type: &str,
    max_inclusive_version: Option<Bound<'_, PyAny>>,
    domain: Option<String>,
) -> PyResult<OpSchema> {
    let Wanted { version, domain } = Wanted::new(max_inclusive_version.as_ref(), domain)?;
    let found = registry::snapshot().find(op_type, version, &domain);
    found.map(OpSchema).ok_or_else(|| {
        let up_to = version.map_or(String::new(), |version| format!(" up to version {version}"));
        let domain = if domain.is_empty() { "ai.onnx" } else { &domain };
        SchemaError::new_err(format!(
            "operator '{op_type}'{up_to} does not exist in the domain '{domain}'"
        ))
    })
}

/// The newest version of every operator.
#[pyfunction]
fn get_all_schemas() -> Vec<OpSchema> {
    let operators = registry::snapshot();
    let newest: BTreeMap<_, _> =
        operators.registry.schemas().map(|schema| ((schema.domain, schema.name), schema)).collect();
    let described = newest.into_values().map(|schema| operators.describe(schema));
    described.map(OpSchema).collect()
}

/// Every version of every operator.
#[pyfunction]
fn get_all_schemas_with_history() -> Vec<OpSchema> {
    let operators = registry::snapshot();
    let described = operators.registry.schemas().map(|schema| operators.describe(schema));
    described.map(OpSchema).collect()
}

/// Oldest and newest version of every operator set, by domain.
#[pyfunction]
fn schema_version_map() -> BTreeMap<&'static str, (u32, u32)> {
    registry::snapshot().registry.domains()
}

/// Says which versions an operator set has.
#[pyfunction]
#[pyo3(signature = (domain, min_version, max_version, last_release_version=-1))]
fn set_domain_to_version(
    domain: &str,
    min_version: i32,
    max_version: i32,
    last_release_version: i32,
) -> PyResult<()> {
    // Which version was released last, nothing here depends on.
    let _ = last_release_version;
    // What is negative is refused like zero.
    let version = |number: i32| u32::try_from(number).unwrap_or(0);
    registry::change(|operators| {
        operators.registry.set_versions(domain, version(min_version), version(max_version))
    })
    .map_err(refused)
}

/// Adds a version of an operator.
#[pyfunction]
fn register_schema(schema: PyRef<'_, OpSchema>) -> PyResult<()> {
    let description = Arc::clone(&schema.0);
    // What is negative is refused like zero.
    let since = u32::try_from(description.since).unwrap_or(0);
    let schema = description.schema(since)?;
    let key = (schema.domain, schema.name, since);
    registry::change(|operators| {
        operators.registry.register(schema)?;
        operators.remember(key, description);
        Ok(())
    })
    .map_err(refused)
}

/// Takes a version of an operator away.
#[pyfunction]
fn deregister_schema(op_type: &str, version: i32, domain: &str) -> PyResult<()> {
    let since = u32::try_from(version).unwrap_or(0);
    registry::change(|operators| {
        operators.registry.remove(domain, op_type, since)?;
        operators.forget(domain, op_type, since);
        Ok(())
    })
    .map_err(refused)
}

fn refused(error: RegistryError) -> PyErr {
    SchemaError::new_err(error.to_string())
}

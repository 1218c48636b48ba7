//! The Python submodule `defs`: looks up and registers operator schemas.

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
use sardonyx::tool::shown_domain;

use crate::errors::SchemaError;
use crate::registry;
use classes::OpSchema;

/// Adds the classes and functions of `sardonyx._core.defs` to `module`.
pub(crate) fn fill_module(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("SchemaError", module.py().get_type::<SchemaError>())?;
    classes::fill_module(module)?;
    module.add_function(wrap_pyfunction!(has_schema, module)?)?;
    module.add_function(wrap_pyfunction!(schema_version_map, module)?)?;
    module.add_function(wrap_pyfunction!(get_schema, module)?)?;
    module.add_function(wrap_pyfunction!(get_all_schemas, module)?)?;
    module.add_function(wrap_pyfunction!(get_all_schemas_with_history, module)?)?;
    module.add_function(wrap_pyfunction!(set_domain_to_version, module)?)?;
    module.add_function(wrap_pyfunction!(register_schema, module)?)?;
    module.add_function(wrap_pyfunction!(deregister_schema, module)?)
}

/// Arguments of a schema look-up, whose second one may be a version or a domain.
struct SchemaQuery {
    /// Greatest version of the operator to find; `None` for the newest.
    version: Option<i64>,
    /// Domain of the operator; empty for `ai.onnx`.
    domain: String,
}

impl SchemaQuery {
    /// Converts the arguments of a schema look-up that follow the operator name.
    ///
    /// # Errors
    ///
    /// `TypeError` if the arguments are not a version and a domain, in this order.
    fn new(second: Option<&Bound<'_, PyAny>>, domain: Option<String>) -> PyResult<SchemaQuery> {
        let Some(second) = second else {
            return Ok(SchemaQuery { version: None, domain: domain.unwrap_or_default() });
        };
        if let Ok(version) = second.extract::<i32>() {
            return Ok(SchemaQuery {
                version: Some(version.into()),
                domain: domain.unwrap_or_default(),
            });
        }
        match (second.extract::<String>(), domain) {
            (Ok(domain), None) => Ok(SchemaQuery { version: None, domain }),
            _ => Err(PyTypeError::new_err(
                "expected the arguments (op_type, max_inclusive_version, domain=\"\") or (op_type, domain=\"\")",
            )),
        }
    }
}

/// Whether an operator exists, in a version up to `max_inclusive_version` if that is given.
#[pyfunction]
#[pyo3(signature = (op_type, max_inclusive_version=None, domain=None))]
fn has_schema(
    op_type: &str,
    max_inclusive_version: Option<Bound<'_, PyAny>>,
    domain: Option<String>,
) -> PyResult<bool> {
    let wanted = SchemaQuery::new(max_inclusive_version.as_ref(), domain)?;
    let operators = registry::take_snapshot();
    Ok(operators.find(op_type, wanted.version, &wanted.domain).is_some())
}

/// Returns the schema of an operator in the newest version up to `max_inclusive_version`; in the
/// newest of all by default. Raises `SchemaError` if the operator has no such version.
#[pyfunction]
#[pyo3(signature = (op_type, max_inclusive_version=None, domain=None))]
fn get_schema(
    op_type: &str,
    max_inclusive_version: Option<Bound<'_, PyAny>>,
    domain: Option<String>,
) -> PyResult<OpSchema> {
    let SchemaQuery { version, domain } = SchemaQuery::new(max_inclusive_version.as_ref(), domain)?;
    let found = registry::take_snapshot().find(op_type, version, &domain);
    found.map(OpSchema).ok_or_else(|| {
        let up_to = version.map_or(String::new(), |version| format!(" up to version {version}"));
        let domain = shown_domain(&domain);
        SchemaError::new_err(format!(
            "operator '{op_type}'{up_to} does not exist in the domain '{domain}'"
        ))
    })
}

/// Returns the schema of every operator in its newest version.
#[pyfunction]
fn get_all_schemas() -> Vec<OpSchema> {
    let operators = registry::take_snapshot();
    let newest: BTreeMap<_, _> =
        operators.registry.schemas().map(|schema| ((schema.domain, schema.name), schema)).collect();
    let described = newest.into_values().map(|schema| operators.describe(schema));
    described.map(OpSchema).collect()
}

/// Returns the schema of every version of every operator.
#[pyfunction]
fn get_all_schemas_with_history() -> Vec<OpSchema> {
    let operators = registry::take_snapshot();
    let described = operators.registry.schemas().map(|schema| operators.describe(schema));
    described.map(OpSchema).collect()
}

/// Returns the oldest and newest version of every operator set, by domain.
#[pyfunction]
fn schema_version_map() -> BTreeMap<&'static str, (u32, u32)> {
    registry::take_snapshot().registry.domains()
}

/// Sets the oldest and newest version of an operator set, a known or a new one.
/// `last_release_version` is ignored. Raises `SchemaError` for an empty range or a version below 1.
#[pyfunction]
#[pyo3(signature = (domain, min_version, max_version, last_release_version=-1))]
fn set_domain_to_version(
    domain: &str,
    min_version: i32,
    max_version: i32,
    last_release_version: i32,
) -> PyResult<()> {
    let _ = last_release_version;
    let (oldest, newest) = (to_version(min_version), to_version(max_version));
    registry::update_registry(|operators| operators.registry.set_versions(domain, oldest, newest))
        .map_err(to_schema_error)
}

/// Converts the version number of an operator set. A negative number becomes 0, which the registry
/// rejects.
fn to_version(number: i32) -> u32 {
    u32::try_from(number).unwrap_or(0)
}

/// Registers a version of an operator. Raises `SchemaError` if the schema is invalid or the version
/// exists already.
#[pyfunction]
fn register_schema(schema: PyRef<'_, OpSchema>) -> PyResult<()> {
    let description = Arc::clone(&schema.0);
    let since = to_version(description.since);
    let schema = description.to_schema(since)?;
    let key = (schema.domain, schema.name, since);
    registry::update_registry(|operators| {
        operators.registry.register(schema)?;
        operators.store_description(key, description);
        Ok(())
    })
    .map_err(to_schema_error)
}

/// Removes a version of an operator. Raises `SchemaError` if it is not registered.
#[pyfunction]
fn deregister_schema(op_type: &str, version: i32, domain: &str) -> PyResult<()> {
    let since = to_version(version);
    registry::update_registry(|operators| {
        operators.registry.remove(domain, op_type, since)?;
        operators.remove_description(domain, op_type, since);
        Ok(())
    })
    .map_err(to_schema_error)
}

/// Converts an error of the operator registry to a `SchemaError`.
fn to_schema_error(error: RegistryError) -> PyErr {
    SchemaError::new_err(error.to_string())
}

//! Operator schemas as Python code sees them: with documentation, default values and inference
//! functions.
//!
//! A [`Schema`] has only the fields that the engine needs. A [`Description`] keeps the rest too,
//! even for operators that are not registered.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use pyo3::PyErr;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use sardonyx::tool::schema::{
    Arity, AttrType, Attribute, Differentiability, Param, Registry, Schema, TypeSet, TypeVar,
};
use sardonyx::tool::schema::{OpDef, intern};

use super::default_value;
use super::enums::{Determinism, ParameterOption};
use super::standard;
use crate::errors::SchemaError;

/// Operator schema with documentation, default values and inference function.
#[derive(Debug, Clone)]
pub(crate) struct Description {
    pub(crate) name: String,
    pub(crate) domain: String,
    pub(crate) doc: String,
    /// Opset version that introduced this version of the operator.
    pub(crate) since: i32,
    pub(crate) deprecated: bool,
    pub(crate) inputs: Vec<Arc<Parameter>>,
    pub(crate) outputs: Vec<Arc<Parameter>>,
    /// Type variables of the operator, with their allowed types.
    pub(crate) types: Vec<Arc<TypeConstraint>>,
    pub(crate) attributes: Vec<Arc<AttributeDescription>>,
    pub(crate) determinism: Determinism,
    /// Minimum and maximum number of inputs, then of outputs; `None` for no maximum.
    pub(crate) counts: [(usize, Option<usize>); 2],
    /// Definition of the operator in the ONNX standard; `None` for an operator that Python code
    /// defines.
    pub(crate) standard: Option<&'static OpDef>,
    /// Type and shape inference function that Python code set for the operator; `None` for none.
    pub(crate) inference: Option<Arc<Py<PyAny>>>,
}

/// Formal input or output of an operator.
#[derive(Debug, Clone)]
pub(crate) struct Parameter {
    pub(crate) name: String,
    /// Name of a type variable, such as `T`, or of a type, such as `tensor(float)`.
    pub(crate) type_str: String,
    pub(crate) description: String,
    pub(crate) option: ParameterOption,
    /// Whether all values of a variadic parameter must have the same type.
    pub(crate) is_homogeneous: bool,
    /// Minimum number of values of a variadic parameter.
    pub(crate) min_arity: i32,
    pub(crate) category: Differentiability,
    /// Names of the allowed types; empty before the parameter belongs to an operator.
    pub(crate) types: Vec<String>,
}

/// Type variable of an operator with its allowed types.
#[derive(Debug, Clone)]
pub(crate) struct TypeConstraint {
    pub(crate) name: String,
    /// Names of the allowed types, such as `tensor(float)`.
    pub(crate) allowed: Vec<String>,
    pub(crate) description: String,
}

/// Formal attribute of an operator.
#[derive(Debug, Clone)]
pub(crate) struct AttributeDescription {
    pub(crate) name: String,
    pub(crate) description: String,
    pub(crate) ty: AttrType,
    pub(crate) required: bool,
    /// Default value as a serialized AttributeProto; empty for no default.
    pub(crate) default: Vec<u8>,
}

/// Returns the description of a schema of the ONNX standard. The first call describes all standard
/// schemas.
pub(crate) fn from_standard(schema: &Schema) -> Arc<Description> {
    type Key = (&'static str, &'static str, u32);
    static ALL: OnceLock<HashMap<Key, Arc<Description>>> = OnceLock::new();
    let all = ALL.get_or_init(|| {
        let registry = Registry::standard();
        let schemas = registry.schemas();
        let described = schemas.map(|schema| {
            let key = (schema.domain, schema.name, schema.since);
            (key, Arc::new(describe(schema)))
        });
        described.collect()
    });
    match all.get(&(schema.domain, schema.name, schema.since)) {
        Some(found) => Arc::clone(found),
        None => Arc::new(describe(schema)),
    }
}

/// Describes a schema of the ONNX standard for Python code.
fn describe(schema: &Schema) -> Description {
    let standard = Registry::standard().operator(schema.domain, schema.name);
    let inputs = schema.inputs.iter().map(|param| {
        let description = schema.about_input(param);
        Arc::new(Parameter::from_schema(param, schema, description))
    });
    let outputs = schema.outputs.iter().map(|param| {
        let description = schema.about_output(param);
        Arc::new(Parameter::from_schema(param, schema, description))
    });
    Description {
        name: schema.name.to_string(),
        domain: schema.domain.to_string(),
        doc: standard.map_or(String::new(), |operator| {
            let notes = schema.notes.iter().copied();
            let sentences: Vec<&str> = std::iter::once(operator.about).chain(notes).collect();
            sentences.join("\n")
        }),
        since: i32::try_from(schema.since).unwrap_or(i32::MAX),
        deprecated: schema.deprecated,
        inputs: inputs.collect(),
        outputs: outputs.collect(),
        types: schema
            .types
            .iter()
            .map(|var| {
                Arc::new(TypeConstraint {
                    name: var.name.to_string(),
                    allowed: var.allowed.names(),
                    description: schema.about_type(var.name),
                })
            })
            .collect(),
        attributes: schema
            .attributes
            .iter()
            .map(|attribute| {
                let default = attribute.default;
                Arc::new(AttributeDescription {
                    name: attribute.name.to_string(),
                    description: schema.about_attribute(attribute),
                    ty: attribute.ty,
                    required: attribute.required,
                    default: default.map_or(Vec::new(), |value| {
                        default_value::serialize(attribute.name, value)
                    }),
                })
            })
            .collect(),
        determinism: standard::find_determinism(schema),
        counts: [schema.input_count(), schema.output_count()],
        standard,
        inference: None,
    }
}

impl Parameter {
    /// Describes a formal input or output of `schema` for Python code.
    fn from_schema(param: &Param, schema: &Schema, description: String) -> Parameter {
        let (option, is_homogeneous, min_arity) = match param.arity {
            Arity::Single => (ParameterOption::Single, true, 1),
            Arity::Optional => (ParameterOption::Optional, true, 1),
            Arity::Variadic { min, homogeneous } => {
                (ParameterOption::Variadic, homogeneous, i32::try_from(min).unwrap_or(i32::MAX))
            }
        };
        Parameter {
            name: param.name.to_string(),
            type_str: param.ty.to_string(),
            description,
            option,
            is_homogeneous,
            min_arity,
            category: param.differentiability,
            types: list_type_names(param.ty, schema),
        }
    }

    /// Converts the parameter to the `Param` of a registered schema.
    fn to_param(&self) -> Param {
        let arity = match self.option {
            ParameterOption::Single => Arity::Single,
            ParameterOption::Optional => Arity::Optional,
            ParameterOption::Variadic => Arity::Variadic {
                min: u32::try_from(self.min_arity).unwrap_or(0),
                homogeneous: self.is_homogeneous,
            },
        };
        Param {
            name: intern::text(&self.name),
            ty: intern::text(&self.type_str),
            arity,
            differentiability: self.category,
        }
    }
}

/// Returns the names of the types that `ty` allows: a type variable of `schema`, or a single type.
/// Empty for any other text.
fn list_type_names(ty: &str, schema: &Schema) -> Vec<String> {
    let allowed = schema.type_var(ty).map(|var| var.allowed);
    let allowed = allowed.or_else(|| TypeSet::parse([ty]).ok());
    allowed.map_or(Vec::new(), |set| set.names())
}

impl Description {
    /// Validates the description of an operator that Python code defines, and derives parameter
    /// types, counts and determinism.
    ///
    /// # Errors
    ///
    /// `ValueError` for a text that is not a type; `SchemaError` for any other problem.
    pub(crate) fn complete(mut self, determinism: Determinism) -> Result<Description, PyErr> {
        // The version is validated when the schema is registered.
        let schema = self.to_schema(1)?;
        schema.check().map_err(|error| SchemaError::new_err(error.to_string()))?;
        for parameter in self.inputs.iter_mut().chain(&mut self.outputs) {
            Arc::make_mut(parameter).types = list_type_names(&parameter.type_str, &schema);
        }
        self.counts = [schema.input_count(), schema.output_count()];
        // A subgraph may contain random operators.
        let mut attributes = schema.attributes.iter();
        let runs_graph =
            attributes.any(|found| matches!(found.ty, AttrType::Graph | AttrType::Graphs));
        self.determinism = match (determinism, runs_graph) {
            (Determinism::Unknown, true) => Determinism::NonDeterministic,
            (Determinism::Unknown, false) => Determinism::Deterministic,
            (known, _) => known,
        };
        Ok(self)
    }

    /// Converts the description to a schema of the operator registry, as version `since` of the
    /// operator.
    ///
    /// # Errors
    ///
    /// `ValueError` for a text that is not a type, or a default that is not an AttributeProto.
    pub(crate) fn to_schema(&self, since: u32) -> Result<Schema, PyErr> {
        let mut schema = Schema::new(&self.domain, &self.name, since);
        schema.deprecated = self.deprecated;
        schema.inputs = self.inputs.iter().map(|parameter| parameter.to_param()).collect();
        schema.outputs = self.outputs.iter().map(|parameter| parameter.to_param()).collect();
        for constraint in &self.types {
            let names = constraint.allowed.iter().map(String::as_str);
            let allowed = TypeSet::parse(names);
            schema.types.push(TypeVar {
                name: intern::text(&constraint.name),
                allowed: allowed.map_err(|error| PyValueError::new_err(error.to_string()))?,
            });
        }
        for parameter in self.inputs.iter().chain(&self.outputs) {
            let ty = parameter.type_str.as_str();
            if schema.type_var(ty).is_none()
                && let Err(error) = TypeSet::parse([ty])
            {
                return Err(PyValueError::new_err(format!(
                    "parameter '{}': {error}, nor a type variable of the operator",
                    parameter.name
                )));
            }
        }
        for attribute in &self.attributes {
            let default = if attribute.default.is_empty() {
                None
            } else {
                default_value::parse(&attribute.default)?
            };
            schema.attributes.push(Attribute {
                name: intern::text(&attribute.name),
                ty: attribute.ty,
                required: attribute.required,
                default,
            });
        }
        Ok(schema)
    }
}

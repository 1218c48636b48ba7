//! Conditions on a schema that a program defines, and errors about those that break them.

use std::collections::HashSet;
use std::fmt;

use sardonyx_model::shown_domain;

use crate::schema::{Arity, Param, Schema};
use crate::typeset::TypeSet;

/// Reason why a registry refuses a change.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum RegistryError {
    /// The registry already has this version of the operator.
    Duplicate {
        /// Domain of the operator.
        domain: &'static str,
        /// Name of the operator.
        name: &'static str,
        /// Version.
        since: u32,
    },
    /// The operator set does not have this version number.
    OutsideOfSet {
        /// Domain of the operator.
        domain: &'static str,
        /// Name of the operator.
        name: &'static str,
        /// Version.
        since: u32,
        /// Versions of the set, if there is one.
        versions: Option<(u32, u32)>,
    },
    /// The registry has no such version of an operator.
    Unknown {
        /// Domain of the operator.
        domain: String,
        /// Name of the operator.
        name: String,
        /// Version.
        since: u32,
    },
    /// An operator set cannot have this range of versions.
    NoVersions {
        /// Domain of the set.
        domain: &'static str,
        /// First version of the range.
        oldest: u32,
        /// Last version of the range.
        newest: u32,
    },
    /// The schema contradicts itself.
    Malformed {
        /// Domain of the operator.
        domain: &'static str,
        /// Name of the operator.
        name: &'static str,
        /// The contradiction, as a clause.
        fact: String,
    },
}

impl fmt::Display for RegistryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RegistryError::Duplicate { domain, name, since } => write!(
                f,
                "operator '{name}' of the domain '{}' has a version {since} already",
                shown_domain(domain)
            ),
            RegistryError::OutsideOfSet { domain, name, since, versions } => {
                let domain = shown_domain(domain);
                write!(f, "operator '{name}' cannot have the version {since}: ")?;
                match versions {
                    Some((oldest, newest)) => write!(
                        f,
                        "the operator set '{domain}' has the versions {oldest} to {newest}"
                    ),
                    None => write!(f, "operator set '{domain}' does not exist"),
                }
            }
            RegistryError::Unknown { domain, name, since } => write!(
                f,
                "operator '{name}' of the domain '{}' has no version {since}",
                shown_domain(domain)
            ),
            RegistryError::NoVersions { domain, oldest, newest } => write!(
                f,
                "the operator set '{}' cannot have the versions {oldest} to {newest}: versions count from 1 upwards",
                shown_domain(domain)
            ),
            RegistryError::Malformed { domain, name, fact } => {
                write!(f, "operator '{name}' of the domain '{}': {fact}", shown_domain(domain))
            }
        }
    }
}

impl std::error::Error for RegistryError {}

fn has_meaning(schema: &Schema, param: &Param) -> bool {
    schema.type_var(param.ty).is_some() || TypeSet::parse([param.ty]).is_ok()
}

impl Schema {
    /// Checks that the schema is consistent: names are present and distinct, types have a meaning,
    /// and only the last input and output are variadic.
    ///
    /// # Errors
    ///
    /// [`RegistryError::Malformed`] with the first contradiction.
    pub fn check(&self) -> Result<(), RegistryError> {
        let schema = self;
        let fail = |fact: String| {
            Err(RegistryError::Malformed { domain: schema.domain, name: schema.name, fact })
        };
        if schema.name.is_empty() {
            return fail("it has no name".to_string());
        }
        if schema.since == 0 {
            return fail("versions count from 1 upwards".to_string());
        }
        let lists: [(&str, Vec<&str>); 4] = [
            ("input", schema.inputs.iter().map(|param| param.name).collect()),
            ("output", schema.outputs.iter().map(|param| param.name).collect()),
            ("attribute", schema.attributes.iter().map(|item| item.name).collect()),
            ("type variable", schema.types.iter().map(|var| var.name).collect()),
        ];
        for (what, names) in lists {
            let mut seen = HashSet::new();
            for name in names {
                if name.is_empty() {
                    return fail(format!("one {what} has no name"));
                }
                if !seen.insert(name) {
                    return fail(format!("two of its {what}s have the name '{name}'"));
                }
            }
        }
        for (what, params) in [("input", &schema.inputs), ("output", &schema.outputs)] {
            for (index, param) in params.iter().enumerate() {
                let is_last = index + 1 == params.len();
                if matches!(param.arity, Arity::Variadic { .. }) && !is_last {
                    return fail(format!(
                        "{what} '{}' is variadic, which only the last one may be",
                        param.name
                    ));
                }
                if !has_meaning(schema, param) {
                    return fail(format!(
                        "the type '{}' of {what} '{}' is neither a type variable of the operator nor a type",
                        param.ty, param.name
                    ));
                }
            }
        }
        Ok(())
    }

    /// Returns the names that an attribute shares with an input or output. They are discouraged,
    /// though some operators of the standard have them.
    pub fn ambiguous_names(&self) -> impl Iterator<Item = &'static str> {
        let params = || self.inputs.iter().chain(&self.outputs);
        let names = self.attributes.iter().map(|attribute| attribute.name);
        names.filter(move |name| params().any(|param| param.name == *name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::{AttrType, Attribute, Differentiability, TypeVar};

    fn param(name: &'static str, ty: &'static str, arity: Arity) -> Param {
        Param { name, ty, arity, differentiability: Differentiability::Unknown }
    }

    fn attribute(name: &'static str) -> Attribute {
        Attribute { name, ty: AttrType::Int, required: false, default: None }
    }

    #[test]
    fn a_malformed_schema_is_refused_with_the_reason() {
        let changed = |change: &dyn Fn(&mut Schema)| {
            let mut schema = Schema::new("com.example", "Blur", 1);
            schema
                .types
                .push(TypeVar { name: "T", allowed: TypeSet::parse(["tensor(float)"]).unwrap() });
            schema.inputs.push(param("x", "T", Arity::Single));
            schema.outputs.push(param("x", "T", Arity::Single));
            change(&mut schema);
            schema.check().map_err(|error| error.to_string())
        };
        let variadic = Arity::Variadic { min: 1, homogeneous: true };
        assert_eq!(changed(&|_| {}), Ok(()));
        assert_eq!(changed(&|s| s.inputs.push(param("y", "int32", variadic))), Ok(()));
        let refused: [(&str, &dyn Fn(&mut Schema)); 9] = [
            // VER-09-
            ("count from 1", &|s| s.since = 0),
            ("has no name", &|s| s.name = ""),
            ("one input has no name", &|s| s.inputs[0].name = ""),
            ("one type variable has no name", &|s| s.types[0].name = ""),
            // NODE-10-
            ("only the last", &|s| {
                s.outputs.insert(0, param("y", "T", variadic));
            }),
            ("neither a type variable", &|s| s.inputs[0].ty = "U"),
            ("neither a type variable", &|s| s.inputs[0].ty = "tensor(real)"),
            ("two of its inputs", &|s| s.inputs.push(s.inputs[0])),
            ("two of its attributes", &|s| {
                s.attributes.extend([attribute("a"), attribute("a")]);
            }),
        ];
        for (wanted, change) in refused {
            let error = changed(change).unwrap_err();
            assert!(error.contains(wanted), "{wanted}: {error}");
        }
    }

    #[test]
    fn reports_an_attribute_with_the_name_of_an_input() {
        // NAME-09
        let mut schema = Schema::new("com.example", "Blur", 1);
        schema.inputs.push(param("axis", "int64", Arity::Single));
        schema.attributes.push(attribute("axis"));
        schema.attributes.push(attribute("mode"));
        assert_eq!(schema.ambiguous_names().collect::<Vec<_>>(), ["axis"]);
    }
}

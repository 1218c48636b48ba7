//! Invariants of the history of operator sets, over all operators in all versions.

use std::collections::{BTreeMap, BTreeSet};

use sardonyx_ops::{AttrType, Registry, RegistryError, Schema, TypeSet};
use sardonyx_proto::AttributeType;

/// Returns the versions of the operators that a set consists of, by name.
fn content(registry: &Registry, domain: &str, version: u32) -> BTreeMap<&'static str, u32> {
    let operators = registry.operators().filter(|op| op.domain == domain);
    operators
        .filter_map(|op| Some((op.name, registry.schema(domain, op.name, version)?.since)))
        .collect()
}

#[test]
fn each_version_of_a_set_has_its_own_content() {
    // VER-16+, OPSET-13+, OPSET-03+: versions count from 1 without a gap, each changes something,
    // and takes nothing back.
    let registry = Registry::standard();
    for (domain, (oldest, newest)) in registry.domains() {
        assert_eq!(oldest, 1, "{domain}");
        let mut before = BTreeMap::new();
        for version in oldest..=newest {
            let now = content(&registry, domain, version);
            assert_ne!(now, before, "version {version} of '{domain}'");
            for (name, since) in &before {
                assert!(now[name] >= *since, "{name} at version {version} of '{domain}'");
            }
            assert!(now.values().all(|since| *since <= version), "{domain}");
            before = now;
        }
        assert_eq!(content(&registry, domain, newest + 1), before, "{domain}");
    }
}

#[test]
fn a_change_is_a_new_version_and_published_versions_stay() {
    // VER-15+: Add changed its attributes and types, each time with a version of its own.
    let registry = Registry::standard();
    let since = |opset| registry.schema("", "Add", opset).map(|schema| schema.since);
    let found: BTreeSet<u32> = (1..=28).filter_map(since).collect();
    assert_eq!(found, BTreeSet::from([1, 6, 7, 13, 14]));
    // OPSET-18+: a version is the same for every set up to the next version. The files of `schemas`
    // check that it is the published one.
    for operator in registry.operators() {
        let (domain, name) = (operator.domain, operator.name);
        let newest = registry.versions(domain).unwrap().1;
        let versions: Vec<u32> = operator.versions().map(|version| version.since).collect();
        for (index, first) in versions.iter().enumerate() {
            let published = operator.schema_at(*first).unwrap().to_string();
            let next = versions.get(index + 1).copied().unwrap_or(newest + 1);
            for opset in *first..next {
                let bound = registry.schema(domain, name, opset).unwrap();
                assert_eq!(bound.to_string(), published, "{name} at {opset}");
            }
        }
    }
    // VER-03+: a look-up at version 12 returns the form that was valid then.
    let relu = |opset| registry.schema("", "Relu", opset).unwrap().since;
    assert_eq!([relu(12), relu(13), relu(14), relu(28)], [6, 13, 14, 14]);
}

#[test]
fn other_content_needs_another_version() {
    // VER-15-, VER-16-, OPSET-03-: what exists is not replaced, and the set does not grow under its
    // number.
    let mut registry = Registry::standard();
    for operator in registry.operators() {
        for version in operator.versions() {
            let mut other = operator.schema_at(version.since).unwrap();
            other.deprecated = !other.deprecated;
            let refused = registry.register(other);
            assert!(
                matches!(refused, Err(RegistryError::Duplicate { since, .. }) if since == version.since),
                "{} {}",
                operator.name,
                version.since
            );
        }
        let newest = registry.versions(operator.domain).unwrap().1;
        let later = Schema::new(operator.domain, operator.name, newest + 1);
        let refused = registry.register(later);
        assert!(matches!(refused, Err(RegistryError::OutsideOfSet { .. })));
    }
}

#[test]
fn operands_and_attributes_have_types_of_their_own() {
    // ATTR-20+: an operand is a tensor or made of tensors, never a graph or a number by itself; an
    // attribute is never a sequence, a map or an optional.
    let registry = Registry::standard();
    for schema in registry.schemas() {
        for param in schema.inputs.iter().chain(&schema.outputs) {
            let variable = schema.types.iter().find(|variable| variable.name == param.ty);
            let names = match variable {
                Some(variable) => variable.allowed.names(),
                None => TypeSet::parse([param.ty]).unwrap().names(),
            };
            assert!(!names.is_empty());
            for name in names {
                let kinds = ["tensor(", "sparse_tensor(", "seq(", "map(", "optional("];
                assert!(kinds.iter().any(|kind| name.starts_with(kind)), "{}: {name}", schema.name);
            }
        }
        // OPSET-22+: a schema lists operands, which are computed, and attributes, which are fixed,
        // separately.
        for attribute in &schema.attributes {
            assert_ne!(attribute.ty.in_file(), AttributeType::UNDEFINED);
        }
    }
    for word in ["graph", "int", "ints", "type_proto"] {
        assert!(TypeSet::parse([word]).is_err(), "{word}");
    }
    let kinds: Vec<AttrType> =
        (0..=100).filter_map(|number| AttrType::of_file(AttributeType(number))).collect();
    assert_eq!(kinds.len(), 14);
    let values = ["Sequence", "Map", "Optional"];
    for kind in kinds {
        assert!(!values.contains(&format!("{kind:?}").as_str()));
    }
}

//! The list of all definitions, and looking operators up.

use std::collections::HashMap;
use std::sync::OnceLock;

use crate::def::OpDef;
use crate::schema::Schema;

/// Newest version of each operator set that this release knows.
pub const DOMAIN_VERSIONS: &[(&str, u32)] =
    &[("", 28), ("ai.onnx.ml", 5), ("ai.onnx.preview", 1), ("ai.onnx.preview.training", 1)];

/// Every operator, by domain and name. One line each; a test compares the list with the files.
static OPERATORS: &[&OpDef] = &[
];

/// Where operators are looked up. A value to pass around: user-defined operators will be a layer over the standard's.
#[derive(Debug, Clone, Copy)]
pub struct Registry(());

impl Registry {
    /// The operators of the standard.
    pub fn standard() -> Registry {
        Registry(())
    }

    /// All operators, by domain and name.
    pub fn operators(self) -> impl Iterator<Item = &'static OpDef> {
        OPERATORS.iter().copied()
    }

    /// An operator in all of its versions.
    pub fn operator(self, domain: &str, name: &str) -> Option<&'static OpDef> {
        let domain = if domain == "ai.onnx" { "" } else { domain };
        OPERATORS.binary_search_by(|op| (op.domain, op.name).cmp(&(domain, name))).ok().map(|index| OPERATORS[index])
    }

    /// What an operator says at an opset version. Expanded once and kept.
    pub fn schema(self, domain: &str, name: &str, opset: u32) -> Option<&'static Schema> {
        static EXPANDED: OnceLock<HashMap<(&'static str, &'static str, u32), Schema>> = OnceLock::new();
        let op = self.operator(domain, name)?;
        let since = op.version_at(opset)?;
        let expanded = EXPANDED.get_or_init(|| {
            let versions = OPERATORS.iter().flat_map(|op| op.versions().map(|version| (*op, version.since)));
            versions
                .filter_map(|(op, since)| Some(((op.domain, op.name, since), op.schema_at(since)?)))
                .collect()
        });
        expanded.get(&(op.domain, op.name, since))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_is_sorted_and_every_version_expands() {
        assert!(OPERATORS.windows(2).all(|pair| (pair[0].domain, pair[0].name) < (pair[1].domain, pair[1].name)));
        for op in OPERATORS {
            let versions: Vec<u32> = op.versions().map(|version| version.since).collect();
            assert!(versions.windows(2).all(|pair| pair[0] < pair[1]), "{}", op.name);
            for since in versions {
                assert_eq!(op.schema_at(since).map(|schema| schema.since), Some(since), "{}", op.name);
            }
            for adapter in op.adapters() {
                let boundary = adapter.from.max(adapter.to);
                assert!(op.versions().any(|version| version.since == boundary), "{} has no version {boundary}", op.name);
            }
        }
    }
}

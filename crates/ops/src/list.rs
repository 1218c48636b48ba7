//! Lists of definitions with look-up by name.

use std::cmp::Ordering;
use std::sync::OnceLock;

use crate::def::OpDef;
use crate::schema::Schema;

/// Definitions, sorted by domain and name, with all of their versions.
pub(crate) struct List {
    operators: &'static [&'static OpDef],
    /// Versions of each operator, expanded on first use.
    expanded: OnceLock<Vec<Vec<Schema>>>,
}

impl List {
    pub(crate) const fn new(operators: &'static [&'static OpDef]) -> List {
        List { operators, expanded: OnceLock::new() }
    }

    /// Returns all definitions.
    pub(crate) fn operators(&self) -> &'static [&'static OpDef] {
        self.operators
    }

    /// Returns the position of an operator in the list.
    pub(crate) fn find(&'static self, domain: &str, name: &str) -> Option<Place> {
        let order =
            |op: &&OpDef| compare_domains(op.domain, domain).then_with(|| op.name.cmp(name));
        let position = self.operators.binary_search_by(order).ok()?;
        Some(Place { list: self, position })
    }

    /// Returns all positions, in order.
    pub(crate) fn places(&'static self) -> impl Iterator<Item = Place> {
        (0..self.operators.len()).map(move |position| Place { list: self, position })
    }
}

/// Position of an operator in a list.
#[derive(Clone, Copy)]
pub(crate) struct Place {
    list: &'static List,
    position: usize,
}

impl Place {
    /// Returns the operator in all of its versions.
    pub(crate) fn def(self) -> &'static OpDef {
        self.list.operators[self.position]
    }

    /// Returns the version of the operator that an opset version introduced.
    pub(crate) fn version(self, since: u32) -> Option<&'static Schema> {
        let expanded = self.list.expanded.get_or_init(|| {
            let expand = |op: &&OpDef| {
                let versions = op.versions();
                versions.filter_map(|version| op.schema_at(version.since)).collect()
            };
            self.list.operators.iter().map(expand).collect()
        });
        expanded[self.position].iter().find(|schema| schema.since == since)
    }

    /// Returns the version of the operator that is current at an opset version.
    pub(crate) fn at(self, opset: u32) -> Option<&'static Schema> {
        self.version(self.def().version_at(opset)?)
    }
}

/// Compares two domains. Handles empty ones, which most are, before it compares bytes: for those, C
/// libraries do a masked load from an unmapped address, which takes processors longer than the rest
/// of finding an operator.
pub fn compare_domains(a: &str, b: &str) -> Ordering {
    match (a.is_empty(), b.is_empty()) {
        (false, false) => a.cmp(b),
        (a, b) => b.cmp(&a),
    }
}

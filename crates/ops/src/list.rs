//! Lists of definitions, and looking operators up in them.

use std::cmp::Ordering;
use std::sync::OnceLock;

use crate::def::OpDef;
use crate::schema::Schema;

/// Definitions, sorted by domain and name, with all of their versions.
pub(crate) struct List {
    operators: &'static [&'static OpDef],
    /// By operator, its versions. All are expanded once and kept.
    expanded: OnceLock<Vec<Vec<Schema>>>,
}

impl List {
    pub(crate) const fn new(operators: &'static [&'static OpDef]) -> List {
        List { operators, expanded: OnceLock::new() }
    }

    /// Every definition.
    pub(crate) fn operators(&self) -> &'static [&'static OpDef] {
        self.operators
    }

    /// Where an operator is in the list.
    pub(crate) fn find(&'static self, domain: &str, name: &str) -> Option<Place> {
        let order =
            |op: &&OpDef| compare_domains(op.domain, domain).then_with(|| op.name.cmp(name));
        let position = self.operators.binary_search_by(order).ok()?;
        Some(Place { list: self, position })
    }

    /// Every place, in order.
    pub(crate) fn places(&'static self) -> impl Iterator<Item = Place> {
        (0..self.operators.len()).map(move |position| Place { list: self, position })
    }
}

/// Where an operator is in a list.
#[derive(Clone, Copy)]
pub(crate) struct Place {
    list: &'static List,
    position: usize,
}

impl Place {
    /// The operator in all of its versions.
    pub(crate) fn def(self) -> &'static OpDef {
        self.list.operators[self.position]
    }

    /// The version of the operator that an opset version brought.
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

    /// The version of the operator that an opset version has.
    pub(crate) fn at(self, opset: u32) -> Option<&'static Schema> {
        self.version(self.def().version_at(opset)?)
    }
}

/// The order of domains. Most are empty, and C libraries compare even nothing by a masked load from
/// an address that is no memory, for which processors take longer than for all the rest of finding
/// an operator.
pub fn compare_domains(a: &str, b: &str) -> Ordering {
    match (a.is_empty(), b.is_empty()) {
        (false, false) => a.cmp(b),
        (a, b) => b.cmp(&a),
    }
}

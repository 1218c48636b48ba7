//! What a conversion did.

use std::collections::BTreeMap;

use hashbrown::HashMap;
use sardonyx_model::Model;
use sardonyx_ops::{Assumption, OpRef};

use crate::expand::Expansions;
use crate::finding::{Finding, Place};

/// A converted model, and what was done.
#[derive(Debug, Clone)]
pub struct Converted {
    /// The model.
    pub model: Model,
    /// What was done.
    pub report: Conversion,
}

/// Why a model was not converted.
#[derive(Debug, Clone)]
pub enum ConvertError {
    /// What it was to be converted to does not exist, or means nothing for this model.
    Target(String),
    /// Everything that has no exact equivalent there.
    Refused(Vec<Finding>),
    /// What the reference implementation cannot hold, whose converter was asked for.
    NotHeld(Box<Finding>),
}

/// What a conversion did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Conversion {
    /// Operator sets of the model, and of functions that have others, that were asked for.
    pub imports: Vec<ConvertedImport>,
    /// Version of the format before and after.
    pub ir_version: (Option<i64>, i64),
    /// How many nodes mean the same as they stand.
    pub unchanged: usize,
    /// Operators whose nodes were rewritten, by domain, name and version.
    pub operators: Vec<ConvertedOperator>,
    /// How many nodes were made beside others.
    pub made: usize,
    /// How many nodes do now in a graph of their own, or between two nodes, what they did.
    pub wrapped: usize,
    /// How many nodes of operators became the bodies of their functions, by domain and name.
    pub expanded: Expansions,
    /// How many nodes of operators became constants, by domain and name, as they give the same in
    /// every run and have no equivalent.
    pub constants: Expansions,
    /// Where something had to be granted.
    pub assumed: Vec<Assumed>,
}

/// A node that means the same only if what the caller grants holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Assumed {
    /// What is granted.
    pub assumption: Assumption,
    /// The node.
    pub place: Place,
}

/// An operator set.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ConvertedImport {
    /// Domain; empty for `ai.onnx`.
    pub domain: String,
    /// The version that the model had, or a function.
    pub from: i64,
    /// The version that it has now.
    pub to: u32,
}

/// Nodes of one operator that were rewritten.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ConvertedOperator {
    /// Domain; empty for `ai.onnx`.
    pub domain: &'static str,
    /// The operator.
    pub op: &'static str,
    /// The opset version of the nodes.
    pub from: u32,
    /// The opset version that they were brought to.
    pub to: u32,
    /// How many were rewritten.
    pub rewritten: usize,
}

impl Conversion {
    pub(super) fn new(model: &Model, goal: &HashMap<String, u32>) -> Conversion {
        let functions = model.functions.iter().map(|function| &function.opset_import);
        let imports = std::iter::once(&model.header.opset_import).chain(functions);
        let mut found = BTreeMap::new();
        for imports in imports {
            for (domain, from) in model.opsets_in(imports) {
                if let Some(to) = goal.get(&*domain) {
                    let (domain, to) = (domain.into_owned(), *to);
                    let import = ConvertedImport { domain, from, to };
                    found.insert((import.domain.clone(), from), import);
                }
            }
        }
        Conversion { imports: found.into_values().collect(), ..Conversion::default() }
    }

    pub(super) fn rewritten(&mut self, op: OpRef, to: u32, made: usize) {
        self.made += made;
        let key = (op.def.domain, op.def.name, op.opset);
        let place = self.operators.binary_search_by_key(&key, |op| (op.domain, op.op, op.from));
        let index = place.unwrap_or_else(|index| {
            let (domain, op, from) = key;
            let none = ConvertedOperator { domain, op, from, to, rewritten: 0 };
            self.operators.insert(index, none);
            index
        });
        self.operators[index].rewritten += 1;
    }
}

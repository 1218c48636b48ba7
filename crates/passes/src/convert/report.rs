//! What a conversion did.

use std::collections::BTreeMap;

use hashbrown::{HashMap, HashSet};
use sardonyx_model::{GraphId, Model, NodeId};
use sardonyx_ops::{Assumption, OpRef};

use crate::expand::Expansions;
use crate::finding::{Finding, Place};
use crate::function_id::FunctionId;
use crate::order::tree;
use crate::results::{Origins, Rejected};

/// A converted model, and what was done.
#[derive(Debug, Clone)]
pub struct Converted {
    /// The model.
    pub model: Model,
    /// What was done.
    pub report: ConvertReport,
    /// For which nodes of the model that was given its nodes were made.
    pub origins: Origins,
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
    /// A result that has errors which the model does not have.
    Invalid(Box<Rejected>),
}

/// What a conversion did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ConvertReport {
    /// Operator sets of the model, and of functions that have others, that were asked for.
    pub imports: Vec<ConvertedImport>,
    /// Version of the format before and after.
    pub ir_version: (Option<i64>, i64),
    /// How many nodes stay as they stand. All nodes of the model before are these, those that
    /// were rewritten, expanded, became constants or were removed.
    pub unchanged: usize,
    /// Operators whose nodes were rewritten, by domain, name and version.
    pub operators: Vec<ConvertedOperator>,
    /// How many nodes are new, those of bodies too.
    pub made: usize,
    /// How many nodes are gone that nothing took the place of: constants that nobody reads any
    /// more, as their values are attributes now.
    pub removed: usize,
    /// How many nodes do now in a graph of their own, or between two nodes, what they did.
    pub wrapped: usize,
    /// How many nodes of operators became the bodies of their functions, by domain and name.
    pub expanded: Expansions,
    /// How many nodes of operators became constants, by domain and name, as they give the same in
    /// every run and have no equivalent.
    pub constants: Expansions,
    /// Where something had to be granted.
    pub assumed: Vec<Assumed>,
    /// Functions that were added for calls that leave inputs out, each with the function that it
    /// takes the place of there.
    pub added: Vec<(FunctionId, FunctionId)>,
}

/// The graphs of a model that are in no node.
fn roots_of(model: &Model) -> impl Iterator<Item = GraphId> + '_ {
    let steps = model.training_info.iter();
    let steps = steps.flat_map(|step| [step.initialization, step.algorithm]);
    let bodies = model.functions.iter().map(|function| Some(function.body));
    std::iter::once(model.main).chain(steps).chain(bodies).flatten()
}

/// Nodes of a model in whose place others are.
#[derive(Debug, Default)]
pub(super) struct Replaced {
    /// Those that became the bodies of their functions.
    pub(super) expanded: HashSet<NodeId>,
    /// Those that became constants.
    pub(super) constants: HashSet<NodeId>,
}

/// A node that means the same only if what the caller grants holds.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Assumed {
    /// What is granted.
    pub assumption: Assumption,
    /// The node.
    pub place: Place,
}

/// An operator set.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
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

impl ConvertReport {
    pub(super) fn new(model: &Model, goal: &HashMap<String, u32>) -> ConvertReport {
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
        ConvertReport { imports: found.into_values().collect(), ..ConvertReport::default() }
    }

    fn rewritten(&mut self, op: OpRef, to: u32) {
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

    /// Counts what became of the nodes of a model. Of those that were `rewritten`, some are gone,
    /// as their values are attributes now.
    pub(super) fn count(
        &mut self,
        before: &Model,
        after: &Model,
        replaced: &Replaced,
        rewritten: &[(NodeId, OpRef, u32)],
    ) {
        // Bodies of functions of operators are kept beside these graphs.
        let nodes = |model: &Model| -> HashSet<NodeId> {
            let graphs = roots_of(model).flat_map(|root| tree(model, root));
            graphs.flat_map(|graph| model.graph(graph).nodes.iter().copied()).collect()
        };
        let (before, after) = (nodes(before), nodes(after));
        for (node, op, to) in rewritten {
            if before.contains(node) && after.contains(node) {
                self.rewritten(*op, *to);
            }
        }
        let counts = |node: &&NodeId| !replaced.expanded.contains(*node);
        let rest = before.iter().filter(counts).filter(|node| !replaced.constants.contains(*node));
        let (kept, removed): (Vec<&NodeId>, Vec<&NodeId>) =
            rest.partition(|node| after.contains(*node));
        let rewritten: usize = self.operators.iter().map(|op| op.rewritten).sum();
        self.unchanged = kept.len().saturating_sub(rewritten);
        self.removed = removed.len();
        self.made = after.difference(&before).count();
    }
}

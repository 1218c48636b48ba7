//! Results of a conversion.

use std::collections::BTreeMap;

use hashbrown::{HashMap, HashSet};
use sardonyx_model::{GraphId, Model, NodeId};
use sardonyx_ops::{Assumption, OpRef};

use crate::expand::Expansions;
use crate::finding::{Finding, Place};
use crate::function_id::FunctionId;
use crate::order::tree;
use crate::origins::Origins;
use crate::results::Rejected;

/// Converted model, with a report.
#[derive(Debug, Clone)]
pub struct Converted {
    /// The model.
    pub model: Model,
    /// Changes of the model.
    pub report: ConvertReport,
    /// Nodes of the input model from which the nodes of the result were made.
    pub origins: Origins,
}

/// Error of a conversion.
#[derive(Debug, Clone)]
pub enum ConvertError {
    /// The target does not exist, or does not apply to the model.
    Target(String),
    /// Nodes and features without an exact equivalent in the target.
    Refused(Vec<Finding>),
    /// Fault that the reference implementation cannot represent, if its behavior was requested.
    NotHeld(Box<Finding>),
    /// The result has errors that the model does not have.
    Invalid(Box<Rejected>),
}

/// Changes of a model by a conversion.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ConvertReport {
    /// Operator sets whose versions the target sets, of the model and of functions that import
    /// other versions.
    pub imports: Vec<ConvertedImport>,
    /// Version of the file format before and after the conversion.
    pub ir_version: (Option<i64>, i64),
    /// Number of nodes that did not change. The other nodes of the original model were rewritten,
    /// expanded, replaced by constants or removed.
    pub unchanged: usize,
    /// Operators whose nodes were rewritten, in the order of domain, name and version.
    pub operators: Vec<ConvertedOperator>,
    /// Number of new nodes, including those of expanded function bodies.
    pub made: usize,
    /// Number of nodes that were removed without a replacement: constants that no node reads any
    /// more, because their values became attributes.
    pub removed: usize,
    /// Number of nodes that were moved into a subgraph, or placed between two new nodes.
    pub wrapped: usize,
    /// Number of nodes that were expanded to the body of their operator's function, by domain and
    /// name.
    pub expanded: Expansions,
    /// Number of nodes that were replaced by their constant outputs because the target has no
    /// equivalent, by domain and name.
    pub constants: Expansions,
    /// Nodes whose conversion is exact only under an [assumption](Assumption).
    pub assumed: Vec<Assumed>,
    /// Functions that were added for calls with omitted inputs, each with the function that it
    /// replaces in these calls.
    pub added: Vec<(FunctionId, FunctionId)>,
}

/// Returns the graphs of a model that are not in a node.
fn roots_of(model: &Model) -> impl Iterator<Item = GraphId> + '_ {
    let steps = model.training_info.iter();
    let steps = steps.flat_map(|step| [step.initialization, step.algorithm]);
    let bodies = model.functions.iter().map(|function| Some(function.body));
    std::iter::once(model.main).chain(steps).chain(bodies).flatten()
}

/// Nodes of a model that were replaced.
#[derive(Debug, Default)]
pub(super) struct Replaced {
    /// Nodes that were replaced by the bodies of their functions.
    pub(super) expanded: HashSet<NodeId>,
    /// Nodes that became constants.
    pub(super) constants: HashSet<NodeId>,
}

/// Node whose conversion is exact only under an assumption of the caller.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Assumed {
    /// Assumption on which the conversion relies.
    pub assumption: Assumption,
    /// Place of the node.
    pub place: Place,
}

/// Change of the version of an imported operator set.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub struct ConvertedImport {
    /// Domain of the operator set; empty for `ai.onnx`.
    pub domain: String,
    /// Version that the model or a function imported before.
    pub from: i64,
    /// Version that it imports now.
    pub to: u32,
}

/// Number of rewritten nodes of one operator.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ConvertedOperator {
    /// Domain of the operator; empty for `ai.onnx`.
    pub domain: &'static str,
    /// Name of the operator.
    pub op: &'static str,
    /// Operator set version of the nodes before.
    pub from: u32,
    /// Operator set version of the nodes now.
    pub to: u32,
    /// Number of nodes that were rewritten.
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

    fn add_rewritten(&mut self, op: OpRef, to: u32) {
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

    /// Counts the nodes of a model by their fate. Some `rewritten` nodes do not exist afterwards,
    /// as their values became attributes.
    pub(super) fn count(
        &mut self,
        before: &Model,
        after: &Model,
        replaced: &Replaced,
        rewritten: &[(NodeId, OpRef, u32)],
    ) {
        // Excludes the bodies of operators' functions, which are in other graphs.
        let nodes = |model: &Model| -> HashSet<NodeId> {
            let graphs = roots_of(model).flat_map(|root| tree(model, root));
            graphs.flat_map(|graph| model.graph(graph).nodes.iter().copied()).collect()
        };
        let (before, after) = (nodes(before), nodes(after));
        for (node, op, to) in rewritten {
            if before.contains(node) && after.contains(node) {
                self.add_rewritten(*op, *to);
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

//! Checks whether a model follows the rules of the standard, and where and why it does not.
//!
//! A check returns all findings at once, each with a [`Code`], the requirement behind it, its place
//! and advice. It is one walk over the graphs without recursion. Only the few rules about values
//! read weights, piece by piece. Work and memory are linear in the size of the model, so that a
//! hostile model costs no more than an honest one of its size.

mod attribute;
mod devices;
mod documents;
mod function;
mod graph;
mod header;
mod levels;
mod node;
mod operand_types;
mod operator;
mod operator_set;
mod signature;
mod sparse;
mod tensor;
#[cfg(test)]
mod tests;
mod texts;
mod training;
mod unused;
mod value_info;

use std::borrow::Cow;

use hashbrown::HashMap;
use sardonyx_model::{GraphId, Id, Model, NodeId, Symbol, Texts};
use sardonyx_ops::Registry;
use sardonyx_proto::shown;

use crate::codes;
use crate::finding::{CheckReport, Code, Finding, Findings, Spot};

pub use documents::{Document, check_document};
pub(crate) use graph::{describe_undefined, describe_undefined_output};
pub use levels::{Levels, UnknownCode};
pub use operator_set::{DeclaredOperator, OPERATOR_SET_MAGIC, OperatorSet};

/// Extent and strictness of a check.
#[derive(Debug, Clone)]
pub struct CheckOptions {
    /// Known operators.
    pub registry: Registry,
    /// Severities of the codes.
    pub levels: Levels,
    /// Whether functions may import other versions of operator sets than the model.
    pub skip_opset_compatibility: bool,
    /// Whether operators outside of the standard's domains must be known.
    pub custom_domains: bool,
    /// Whether operators that other projects add to the standard's own domain are known.
    pub added_operators: bool,
    /// Known operators of other domains, by name only. All operators that a model uses from such a
    /// domain must be known.
    pub operator_sets: Vec<OperatorSet>,
    /// Maximum number of listed findings of each code; further ones are counted.
    pub per_code: usize,
}

impl Default for CheckOptions {
    fn default() -> Self {
        CheckOptions {
            registry: Registry::with_microsoft(),
            levels: Levels::default(),
            skip_opset_compatibility: false,
            custom_domains: false,
            added_operators: false,
            operator_sets: Vec::new(),
            per_code: 20,
        }
    }
}

/// Part of a model that can be checked by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum CheckPart {
    /// Types of the main graph's inputs.
    Inputs,
    /// Constants of the main graph.
    Initializers,
    /// Sparse constants of the main graph.
    SparseInitializers,
    /// Nodes of the main graph by themselves: their inputs may be defined elsewhere.
    Nodes,
    /// Nodes of the main graph, compared only with the operators that they call.
    Signatures,
    /// Attributes of the main graph's nodes by themselves.
    Attributes,
    /// The main graph with all its contents.
    Graph,
    /// Functions, independently of the model around them.
    Functions,
    /// All stored tensors, each by itself, including those that nothing refers to. For a sparse
    /// tensor, the two tensors that it consists of.
    Tensors,
    /// Duplicate names of the values of a graph, or of functions, including those that nothing
    /// refers to.
    Definitions,
}

/// Checks a model.
pub fn check(model: &Model, options: &CheckOptions) -> CheckReport {
    let mut checker = Checker::new(model, options);
    checker.check_all();
    checker.found.report()
}

/// Checks a model, and adds the findings to `found`.
pub(crate) fn check_into(model: &Model, options: &CheckOptions, found: Findings) -> Findings {
    let mut checker = Checker { found, ..Checker::new(model, options) };
    checker.check_all();
    checker.found
}

/// Checks the fields of a model outside of its graph, and adds the findings to `found`.
pub(crate) fn check_header_into(
    model: &Model,
    options: &CheckOptions,
    found: Findings,
) -> Findings {
    let mut checker = Checker { found, ..Checker::new(model, options) };
    checker.header();
    checker.found
}

/// Checks a part of a model by itself.
pub fn check_part(model: &Model, part: CheckPart, options: &CheckOptions) -> CheckReport {
    let mut checker = Checker::new(model, options);
    match part {
        CheckPart::Tensors => checker.tensors_alone(),
        CheckPart::Definitions => checker.definitions_alone(),
        _ => {}
    }
    let Some(main) = model.main else {
        return checker.found.report();
    };
    if matches!(part, CheckPart::Nodes | CheckPart::Graph) {
        checker.configurations();
    }
    match part {
        CheckPart::Inputs => checker.inputs_alone(main),
        CheckPart::Initializers => checker.initializers_alone(main),
        CheckPart::SparseInitializers => checker.sparse_initializers_alone(main),
        CheckPart::Nodes => checker.nodes_alone(main),
        CheckPart::Signatures => {
            for node in &model.graph(main).nodes {
                checker.signature(*node, Root::Main);
            }
        }
        CheckPart::Attributes => checker.attributes_alone(main),
        CheckPart::Graph => checker.check_tree(main, Root::Main),
        CheckPart::Functions => checker.functions(),
        // These parts need no main graph.
        CheckPart::Tensors | CheckPart::Definitions => {}
    }
    checker.found.report()
}

/// Findings that prevent running a model, although the checker of the `onnx` package accepts it.
const RUNNING_ONLY: &[&Code] = &[&codes::NAMELESS_VARIADIC_INPUT];

/// Finds faults that prevent running graphs, except undefined names and cycles: nodes that do not
/// call operators as defined, as far as running depends on it, and nodes whose outputs redefine a
/// name of the graph. Ignores unknown operators. `trees` are graphs with the functions that contain
/// them; the facts about the model are collected once for all of them.
pub(crate) fn find_running_faults<'g>(
    model: &Model,
    trees: impl Iterator<Item = (Option<usize>, Cow<'g, [GraphId]>)>,
    registry: &Registry,
) -> CheckReport {
    let options = CheckOptions {
        registry: registry.clone(),
        levels: Levels::shared().and_also(RUNNING_ONLY),
        // All are listed, since they are the reasons why a model does not run.
        per_code: 1000,
        ..CheckOptions::default()
    };
    let mut checker = Checker::new(model, &options);
    for (scope, graphs) in trees {
        let root = scope.map_or(Root::Main, Root::Function);
        for graph in &*graphs {
            checker.definitions(*graph);
            for node in &model.graph(*graph).nodes {
                checker.signature(*node, root);
            }
        }
    }
    checker.found.report()
}

/// Finds faults that a tool cannot preserve when it changes the nodes of a model: values without a
/// name, undefined names, nodes in an order in which they cannot run, references that also have a
/// value, and absent operands that an operator or function requires.
pub(crate) fn find_changing_faults(model: &Model, registry: &Registry) -> Vec<Finding> {
    const CODES: [&Code; 9] = [
        &codes::NAMELESS_VALUE,
        &codes::UNDEFINED_VALUE,
        &codes::CYCLE,
        &codes::USED_TOO_EARLY,
        &codes::OUTER_TOO_EARLY,
        &codes::REFERENCE_WITH_VALUE,
        &codes::INPUT_COUNT,
        &codes::MISSING_INPUT,
        &codes::CALL_WITHOUT_INPUT,
    ];
    let levels = Levels::default().keep_only(CODES.map(|code| code.name).to_vec());
    let options = CheckOptions { registry: registry.clone(), levels, ..CheckOptions::default() };
    check(model, &options).findings
}

/// Root of a tree of graphs, which determines the imported operator sets and whether attributes may
/// be references.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Root {
    /// Body of a function, by index.
    Main,
    /// The body of a function, by position.
    Function(usize),
    /// Graph of a training step, by index.
    Training(usize),
}

/// A check in progress.
struct Checker<'a> {
    model: &'a Model,
    texts: Texts<'a>,
    options: &'a CheckOptions,
    found: Findings,
    /// Version of the format.
    ir_version: i64,
    /// Symbol of the empty text, and of the long name of the default domain.
    empty: Option<Symbol>,
    long_domain: Option<Symbol>,
    /// Position of each node in its graph.
    position: Vec<u32>,
    /// Last definition of each symbol.
    defined: Vec<graph::Defined>,
    /// Number of the last graph that has a node with that name, by symbol. Graphs count from 1.
    node_names: Vec<u32>,
    /// Values whose names several graphs define.
    scopes: graph::Scopes,
    /// Versions of operator sets by the tree that imports them.
    imports: HashMap<Root, operator::Imports>,
    callees: operator::Callees<'a>,
    /// Names of the graphs so far, if duplicates are reported.
    graph_names: hashbrown::HashSet<Symbol>,
    /// Number of names of operators that do not exist.
    unknown_operators: usize,
    /// Known type of each value. Empty if types are not needed.
    types: Vec<operand_types::Brief>,
    functions: function::Index,
    /// Graphs in the attributes of the node that was checked last.
    inner: Vec<GraphId>,
    /// Whether names are checked against the recommended form.
    lints_names: bool,
    /// Number of searches for a cycle after a wrong order that remain.
    order_searches: u32,
    /// Number of iterations of the loops that may be long. Tests use it to show that work is linear
    /// in the size of the model.
    steps: u64,
    /// Configurations that nodes may refer to.
    configurations: devices::Configurations<'a>,
    /// Declared number of dimensions by graph and name. Filled on demand.
    ranks: HashMap<GraphId, HashMap<Symbol, i64>>,
}

impl<'a> Checker<'a> {
    fn new(model: &'a Model, options: &'a CheckOptions) -> Self {
        let mut checker = Checker {
            model,
            texts: model.texts(),
            options,
            found: Findings::new(options.per_code),
            ir_version: model.header.ir_version.unwrap_or(0),
            empty: model.symbol(b""),
            long_domain: model.symbol(b"ai.onnx"),
            position: vec![0; model.node_count()],
            defined: vec![graph::Defined::default(); model.symbol_count()],
            node_names: vec![0; model.symbol_count()],
            scopes: graph::Scopes::new(model),
            imports: HashMap::new(),
            callees: operator::Callees::default(),
            graph_names: hashbrown::HashSet::new(),
            unknown_operators: 0,
            types: match options.levels.of(&codes::INPUT_TYPE) {
                Some(_) => vec![operand_types::Brief::default(); model.value_count()],
                None => Vec::new(),
            },
            functions: function::Index::default(),
            inner: Vec::new(),
            lints_names: options.levels.of(&codes::NAME_NO_IDENTIFIER).is_some(),
            order_searches: 20,
            steps: 0,
            configurations: devices::Configurations::new(),
            ranks: HashMap::new(),
        };
        checker.functions = function::Index::new(&checker);
        checker
    }

    /// Checks the whole model.
    fn check_all(&mut self) {
        self.header();
        self.configurations();
        self.functions();
        match self.model.main {
            Some(main) => self.check_tree(main, Root::Main),
            None => self.add(&codes::NO_GRAPH, Spot::MODEL, |_| "the model has no graph".into()),
        }
        self.training();
        self.texts();
    }

    /// Adds a finding with the advice of its code.
    #[cfg_attr(debug_assertions, track_caller)]
    fn add(&mut self, code: &'static Code, spot: Spot, fact: impl FnOnce(&'a Model) -> String) {
        self.add_with(code, spot, |model| (fact(model), "".into()));
    }

    /// Adds a finding with its own advice.
    #[cfg_attr(debug_assertions, track_caller)]
    fn add_with(
        &mut self,
        code: &'static Code,
        spot: Spot,
        words: impl FnOnce(&'a Model) -> (String, Cow<'static, str>),
    ) {
        if let Some(severity) = self.options.levels.of(code) {
            let model = self.model;
            self.found.add(model, code, severity, spot, || words(model));
        }
    }

    /// Whether findings of a code are reported.
    fn wants(&self, code: &'static Code) -> bool {
        self.options.levels.of(code).is_some()
    }

    /// Normalizes a domain for comparison: the default domain is `None` in all of its spellings.
    fn domain(&self, domain: Option<Symbol>) -> Option<Symbol> {
        domain.filter(|_| domain != self.empty && domain != self.long_domain)
    }

    /// Checks the keys of a list of keys and values for duplicates. The model's own list has a
    /// stricter code than others.
    fn keys(&mut self, entries: &[sardonyx_model::Entry], spot: Spot, field: &'static str) {
        let code = match (spot == Spot::MODEL, field) {
            (true, "metadata_props") => &codes::DUPLICATE_METADATA,
            _ => &codes::DUPLICATE_METADATA_BELOW,
        };
        if entries.len() > 1 {
            let mut seen = hashbrown::HashSet::with_capacity(entries.len());
            for (index, entry) in entries.iter().enumerate() {
                // An empty key counts as an absent one.
                if !seen.insert(entry.key.filter(|key| Some(*key) != self.empty)) {
                    self.add(code, spot.item(field, index), |model| {
                        let key = model.maybe_text(entry.key).unwrap_or_default();
                        format!("duplicate key '{}'", shown(key))
                    });
                }
            }
        }
        if field == "metadata_props" {
            for (index, entry) in entries.iter().enumerate() {
                if self.model.is_blank(entry.key) {
                    self.add(&codes::METADATA_WITHOUT_KEY, spot.item(field, index), |model| {
                        let value = model.maybe_text(entry.value).unwrap_or_default();
                        format!("the value '{}' has no key", shown(value))
                    });
                }
            }
        }
        if self.ir_version >= 10
            && field == "metadata_props"
            && self.wants(&codes::UNQUALIFIED_METADATA)
        {
            for (index, entry) in entries.iter().enumerate() {
                let key = self.model.maybe_text(entry.key).unwrap_or_default();
                if !key.is_empty() && !key.contains(&b'.') && !header::is_known_key(key) {
                    self.add(&codes::UNQUALIFIED_METADATA, spot.item(field, index), |_| {
                        format!("the key '{}' has no prefix", shown(key))
                    });
                }
            }
        }
    }

    /// Checks a graph and all graphs in it, outer ones first.
    fn check_tree(&mut self, root_graph: GraphId, root: Root) {
        let mut left = vec![root_graph];
        while let Some(graph) = left.pop() {
            self.graph(graph, root);
            left.extend(self.inner.drain(..).rev());
        }
    }

    fn position(&self, node: NodeId) -> u32 {
        self.position[node.index()]
    }
}

/// Returns a count with its unit, in the singular or plural.
fn count(number: impl Into<u128>, what: &str) -> String {
    let number = number.into();
    let plural = match (number, what.strip_suffix('y')) {
        (1, _) => return format!("1 {what}"),
        (_, Some(stem)) => format!("{stem}ies"),
        (_, None) => format!("{what}s"),
    };
    format!("{number} {plural}")
}

/// Whether a text is an identifier of C.
fn is_identifier(text: &[u8]) -> bool {
    let letter = |byte: u8| byte.is_ascii_alphabetic() || byte == b'_';
    text.first().is_some_and(|first| letter(*first))
        && text.iter().all(|byte| letter(*byte) || byte.is_ascii_digit())
}

//! Infers types of a whole model, and describes the results by names and places of the file.

mod alone;
mod rules;

use std::borrow::Cow;
use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::sync::Arc;

use sardonyx_model::{self as graph, Dim, DimValue, GraphId, NodeId, Type, TypeProto, ValueId};
use sardonyx_ops::Registry;
use sardonyx_passes::{self as passes, CheckReport, Findings, Inference, Places};
use sardonyx_proto::shown;

pub use alone::{
    NamedMessages, NodeContext, NodeOutputs, infer_function_outputs, infer_node_outputs,
};
pub use rules::{InferRules, NodeTypes};
use sardonyx_passes::{Missing, Naming, ProblemKind, Style};

use crate::model::Model;

/// Options for inferring types and shapes, and for writing them into a model.
#[derive(Debug, Clone)]
pub struct InferOptions {
    symbols: Vec<(String, i64)>,
    style: Style,
    naming: Naming,
    check_types: Option<bool>,
    without_reasons: bool,
    pub(crate) registry: Registry,
}

impl Default for InferOptions {
    fn default() -> InferOptions {
        InferOptions {
            symbols: Vec::new(),
            style: Style::default(),
            naming: Naming::default(),
            check_types: None,
            without_reasons: false,
            registry: Registry::with_microsoft(),
        }
    }
}

impl InferOptions {
    /// Creates the default options: inferred dimensions may be symbolic expressions, and no symbol
    /// is set to a size.
    pub fn new() -> InferOptions {
        InferOptions::default()
    }

    /// Sets a symbolic dimension of the model, such as `batch`, to a size, in all types.
    #[must_use]
    pub fn set(mut self, symbol: &str, size: i64) -> InferOptions {
        self.symbols.push((symbol.to_string(), size));
        self
    }

    /// Sets the style of inference: with symbolic expressions, or like the reference
    /// implementation.
    #[must_use]
    #[doc(hidden)]
    pub fn style(mut self, style: Style) -> InferOptions {
        self.style = style;
        self
    }

    /// Sets how [`Model::add_types`] writes dimensions that are symbolic expressions, such as
    /// `2*N`.
    #[must_use]
    #[doc(hidden)]
    pub fn naming(mut self, naming: Naming) -> InferOptions {
        self.naming = naming;
        self
    }

    /// Sets whether the types of a node's inputs are checked against its operator. On by default.
    #[must_use]
    pub fn check_types(mut self, check: bool) -> InferOptions {
        self.check_types = Some(check);
        self
    }

    /// Sets whether inference skips recording why types and dimensions stay
    /// unknown, which saves time. Off by default.
    #[must_use]
    pub fn without_reasons(mut self, without: bool) -> InferOptions {
        self.without_reasons = without;
        self
    }

    /// Sets the registry of known operators: operators of the standard and operators that the
    /// program adds.
    #[must_use]
    #[doc(hidden)]
    pub fn registry(mut self, registry: Registry) -> InferOptions {
        self.registry = registry;
        self
    }

    /// Converts these options to those of the inference pass.
    pub(crate) fn to_pass_options(&self) -> passes::InferOptions<'_> {
        passes::InferOptions {
            symbols: &self.symbols,
            style: self.style,
            check_types: self.check_types.unwrap_or(self.style == Style::Algebra),
            explain: !self.without_reasons,
            ..passes::InferOptions::default()
        }
    }
}

/// Inferred types of a model's values, with contradictions and the reasons for unknown types.
#[derive(Debug, Clone)]
pub struct Inferred {
    pub(crate) found: Inference,
    options: InferOptions,
}

/// Graph input or node output with its inferred type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InferredValue<'a> {
    /// Graph that has the value, as a path through the protobuf messages of the model, such as
    /// `graph` or `graph.node[3] 'then_branch'`.
    pub graph: Arc<str>,
    /// Name of the graph input or node output.
    pub name: String,
    /// Inferred type of the value; `None` if unknown.
    pub ty: Option<&'a Type>,
    /// Name of the operator that computes the value, or `input` for a graph input.
    pub made_by: Cow<'a, str>,
}

/// Contradiction between types, or obstacle to inferring more types.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Problem {
    /// Category of the contradiction or obstacle.
    pub kind: ProblemKind,
    /// Description of the node or value that has the contradiction or obstacle.
    pub place: String,
    /// Message about the contradiction or obstacle, without the node or value that has it.
    pub fact: String,
}

impl Problem {
    /// Converts a problem of the inference pass; describes its place in `model`.
    fn new(model: &graph::Model, places: &mut Places, problem: &passes::Problem) -> Problem {
        let place = places.of(model, problem.spot).to_string();
        Problem { kind: problem.kind, place, fact: problem.fact.clone() }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.fact)
    }
}

/// Number of values of a model, and number of values whose type is incomplete.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TypeCounts {
    /// Number of graph inputs and node outputs.
    pub values: usize,
    /// Number of values whose type lacks the element type, the rank or a dimension. Symbolic
    /// dimensions count as known.
    pub open: usize,
}

/// Type or dimension that inference could not find, at the first value that lacks it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct UnknownValue {
    /// Name of the value whose type or dimension is unknown.
    pub value: String,
    /// Part of the value's type that is unknown.
    pub missing: Missing,
    /// Description of the node that computes the value, or `the input` for a graph input.
    pub node: String,
    /// Reason for which inference does not know the type or dimension.
    pub reason: String,
    /// New symbol for an unknown dimension, used in the types of later values; `None` if the type
    /// itself is unknown.
    pub symbol: Option<String>,
}

/// Two dimensions that a node requires to be equal.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Equality {
    /// First of the two equal dimensions.
    pub left: Dim,
    /// Second of the two equal dimensions.
    pub right: Dim,
    /// Description of the node that requires the dimensions to be equal.
    pub node: String,
}

impl Model {
    /// Infers the types and shapes of all values of the model, those in subgraphs included. Weights
    /// are not read.
    pub fn infer(&self, options: &InferOptions) -> Inferred {
        self.infer_with(options, None)
    }

    /// Infers the types of all values, like [`infer`](Model::infer), but inference rules that the
    /// program supplies take precedence over rules of the standard.
    pub(crate) fn infer_with(
        &self,
        options: &InferOptions,
        rules: Option<&dyn InferRules>,
    ) -> Inferred {
        let rules = rules.map(rules::ProgramRules);
        let rules = rules.as_ref().map(|rules| rules as &dyn passes::Rules);
        let settings = passes::InferOptions { rules, ..options.to_pass_options() };
        Inferred {
            found: passes::infer_model(&self.graph, &options.registry, settings),
            options: options.clone(),
        }
    }

    /// Writes inferred types into the model: declares the type of each node output, and completes
    /// existing declarations. Changes nothing else.
    pub fn add_types(&mut self, found: &Inferred) {
        let options = &found.options;
        passes::annotate(&mut self.graph, &found.found, options.naming, &options.symbols);
    }

    /// Collects the symbols in declared shapes, such as `batch`. Symbols in expressions such as
    /// `2*N` are included.
    pub fn symbols(&self) -> BTreeSet<String> {
        let mut names = BTreeSet::new();
        for (_, graph) in self.graph.graphs() {
            let infos = graph.inputs.iter().chain(&graph.outputs);
            let types = infos.chain(&graph.value_info).filter_map(|info| info.ty.as_ref());
            let shapes = types.filter_map(TypeProto::innermost_shape);
            for dim in shapes.flat_map(|shape| &shape.dims) {
                if let Some(DimValue::Param(name)) = dim.value
                    && let Ok(text) = std::str::from_utf8(self.graph.text(name))
                {
                    names.extend(Dim::parse(text).symbols());
                }
            }
        }
        names
    }
}

impl Inferred {
    /// Looks up the inferred type of a value of the main graph by name; `None` if the value or its
    /// type is unknown. Takes time linear in the number of values; [`values`](Inferred::values)
    /// lists all at once.
    pub fn ty(&self, model: &Model, name: &str) -> Option<&Type> {
        let symbol = model.graph.symbol(name.as_bytes())?;
        let mut values = model.graph.values();
        let (id, _) = values
            .find(|(_, value)| value.name == symbol && Some(value.graph) == model.graph.main)?;
        self.found.ty(id)
    }

    /// Returns the number of nodes that inference visited. Nodes of a loop body or function body
    /// count once for each pass over the body.
    #[doc(hidden)]
    pub fn visits(&self) -> u64 {
        self.found.visits()
    }

    /// Iterates over graph inputs and node outputs with their inferred types, graph by graph in the
    /// order of the file. Values in function bodies are left out, as their types depend on the
    /// call.
    pub fn values<'a>(&'a self, model: &'a Model) -> impl Iterator<Item = InferredValue<'a>> {
        let graph = &model.graph;
        let places: HashMap<GraphId, Arc<str>> =
            graph.graph_places().into_iter().map(|(id, place)| (id, place.into())).collect();
        self.list_defined_values(model).map(move |defined| InferredValue {
            graph: places.get(&defined.graph).cloned().unwrap_or_default(),
            name: shown(graph.text(graph.value(defined.value).name)),
            ty: self.found.ty(defined.value),
            made_by: match defined.node {
                Some(node) => graph.display(graph.node(node).op_type),
                None => "input".into(),
            },
        })
    }

    /// Counts graph inputs and node outputs, and how many of them have an incomplete type.
    #[doc(hidden)]
    pub fn count_types(&self, model: &Model) -> TypeCounts {
        let mut counts = TypeCounts::default();
        for defined in self.list_defined_values(model) {
            let ty = self.found.ty(defined.value);
            counts.values += 1;
            counts.open += usize::from(!ty.is_some_and(Type::is_whole));
        }
        counts
    }

    /// Iterates over the graph inputs and node outputs of the main graph and its subgraphs, in the
    /// order of the file.
    fn list_defined_values<'a>(&'a self, model: &'a Model) -> impl Iterator<Item = Defined> + 'a {
        let model = &model.graph;
        let mut graphs = Vec::new();
        let mut left: Vec<GraphId> = model.main.into_iter().collect();
        while let Some(id) = left.pop() {
            graphs.push(id);
            let attributes = model.graph(id).nodes.iter();
            let attributes = attributes.flat_map(|node| model.attributes(*node));
            let inner = attributes.flat_map(|id| model.attribute(*id).graphs());
            let at = left.len();
            left.extend(inner);
            left[at..].reverse();
        }
        graphs.into_iter().flat_map(move |graph| {
            let found = model.graph(graph);
            let inputs = found.inputs.iter().filter_map(|info| info.value);
            let inputs = inputs.map(|value| (None, value));
            let made = found.nodes.iter().flat_map(|node| {
                let values = model.outputs(*node).iter().flatten();
                values.map(|value| (Some(*node), *value))
            });
            inputs.chain(made).map(move |(node, value)| Defined { graph, node, value })
        })
    }

    /// Lists the types and dimensions that inference could not find, in the order of the nodes.
    /// Types that are unknown only because of an earlier unknown type are left out.
    #[doc(hidden)]
    pub fn unknown(&self, model: &Model) -> Vec<UnknownValue> {
        let listed = self.found.unknown().iter();
        listed
            .map(|unknown| UnknownValue {
                value: format_name(&model.graph, unknown.value),
                missing: unknown.missing,
                node: unknown.node.map_or("the input".to_string(), |node| {
                    passes::place_of_node(&model.graph, node)
                }),
                reason: match unknown.call {
                    Some(call) => {
                        let place = passes::place_of_node(&model.graph, call);
                        format!("{}, when called by {place}", unknown.reason)
                    }
                    None => unknown.reason.clone(),
                },
                symbol: unknown.symbol.clone(),
            })
            .collect()
    }

    /// Lists pairs of dimensions that nodes require to be equal although declared types do not
    /// imply it. A pair `mod(a, b)` and 0 means that `b` divides `a`.
    #[doc(hidden)]
    pub fn equalities(&self, model: &Model) -> Vec<Equality> {
        let learned = self.found.equalities().iter();
        learned
            .map(|equality| Equality {
                left: equality.left.clone(),
                right: equality.right.clone(),
                node: passes::place_of_node(&model.graph, equality.node),
            })
            .collect()
    }

    /// Iterates over the problems that inference found, of the kinds that `is_wanted` selects.
    #[doc(hidden)]
    pub fn problems<'a>(
        &'a self,
        model: &'a Model,
        is_wanted: impl Fn(ProblemKind) -> bool + 'a,
    ) -> impl Iterator<Item = Problem> + 'a {
        let mut places = Places::default();
        let wanted = self.found.problems().iter().filter(move |problem| is_wanted(problem.kind));
        wanted.map(move |problem| Problem::new(&model.graph, &mut places, problem))
    }

    /// Reports contradictions between inferred types as findings, like [`Model::check`].
    pub fn report(&self, model: &Model) -> CheckReport {
        let mut found = Findings::new(20);
        self.found.findings(&model.graph, &mut found, |code| code.severity);
        found.report()
    }
}

/// Value with its graph and the node that computes it; graph inputs have no node.
struct Defined {
    graph: GraphId,
    node: Option<NodeId>,
    value: ValueId,
}

/// Returns the name of a value, decoded for messages.
fn format_name(model: &graph::Model, value: ValueId) -> String {
    shown(model.text(model.value(value).name))
}

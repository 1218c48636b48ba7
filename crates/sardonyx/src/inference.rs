//! Inference of a whole model, and its results in terms of the file.

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

pub use alone::{Around, Named, NodeOutputs, function_outputs, node_outputs};
pub use rules::{InferRules, NodeTypes};
use sardonyx_passes::{Missing, Naming, ProblemKind, Style};

use crate::model::Model;

/// How to infer, and how to write what is found.
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
    /// The defaults: expressions, with nothing set.
    pub fn new() -> InferOptions {
        InferOptions::default()
    }

    /// Gives a number to a symbol of the file, in every type.
    #[must_use]
    pub fn set(mut self, symbol: &str, size: i64) -> InferOptions {
        self.symbols.push((symbol.to_string(), size));
        self
    }

    /// How to reason.
    #[must_use]
    #[doc(hidden)]
    pub fn style(mut self, style: Style) -> InferOptions {
        self.style = style;
        self
    }

    /// How sizes that are expressions are written.
    #[must_use]
    #[doc(hidden)]
    pub fn naming(mut self, naming: Naming) -> InferOptions {
        self.naming = naming;
        self
    }

    /// Whether the types of operands are compared with what operators take. The default is to do
    /// so, except with [`Style::Reference`]: the reference implementation does so only if it is
    /// told to.
    #[must_use]
    pub fn check_types(mut self, check: bool) -> InferOptions {
        self.check_types = Some(check);
        self
    }

    /// Whether reasons are left out why something stays [unknown](Inferred::unknown), which takes
    /// less time.
    #[must_use]
    pub fn without_reasons(mut self, without: bool) -> InferOptions {
        self.without_reasons = without;
        self
    }

    /// The operators that exist: the standard's, and those that were registered.
    #[must_use]
    #[doc(hidden)]
    pub fn registry(mut self, registry: Registry) -> InferOptions {
        self.registry = registry;
        self
    }

    /// The same for inference.
    pub(crate) fn settings(&self) -> passes::InferOptions<'_> {
        passes::InferOptions {
            symbols: &self.symbols,
            style: self.style,
            check_types: self.check_types.unwrap_or(self.style == Style::Algebra),
            explain: !self.without_reasons,
            ..passes::InferOptions::default()
        }
    }
}

/// What inference found out about a model.
#[derive(Debug, Clone)]
pub struct Inferred {
    pub(crate) found: Inference,
    options: InferOptions,
}

/// A value of a graph, and what is known of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InferredValue<'a> {
    /// The graph, as a way through the messages of the file such as `graph` or
    /// `graph.node[3] 'then_branch'`.
    pub graph: Arc<str>,
    /// Its name.
    pub name: String,
    /// Its type; `None` if nothing is known.
    pub ty: Option<&'a Type>,
    /// What it is: `input`, or the operator that makes it.
    pub made_by: Cow<'a, str>,
}

/// Something that does not fit, or that keeps inference from knowing more.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Problem {
    /// What kind of thing it is.
    pub kind: ProblemKind,
    /// Where, in words.
    pub place: String,
    /// What.
    pub fact: String,
}

impl Problem {
    fn of(model: &graph::Model, places: &mut Places, problem: &passes::Problem) -> Problem {
        let place = places.of(model, problem.spot).to_string();
        Problem { kind: problem.kind, place, fact: problem.fact.clone() }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.fact)
    }
}

/// How many values there are, and of how many not everything is known.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TypeCounts {
    /// The values that inputs and nodes define.
    pub values: usize,
    /// Those whose types leave something open. Sizes that are called by names are not open.
    pub open: usize,
}

/// Something that stays unknown, where that begins.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct UnknownValue {
    /// The name of the value.
    pub value: String,
    /// What of it.
    pub missing: Missing,
    /// The node that could not say it, in words.
    pub node: String,
    /// Why.
    pub reason: String,
    /// What an unknown size is called from here on.
    pub symbol: Option<String>,
}

/// Two sizes that a node demands to be equal.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Equality {
    /// One size.
    pub left: Dim,
    /// The other.
    pub right: Dim,
    /// The node, in words.
    pub node: String,
}

impl Model {
    /// Infers the types of all values, in graphs inside of nodes too. Weights are not read.
    pub fn infer(&self, options: &InferOptions) -> Inferred {
        self.infer_with(options, None)
    }

    /// The same with rules of the program, which are asked first.
    pub(crate) fn infer_with(
        &self,
        options: &InferOptions,
        rules: Option<&dyn InferRules>,
    ) -> Inferred {
        let rules = rules.map(rules::OfProgram);
        let rules = rules.as_ref().map(|rules| rules as &dyn passes::Rules);
        let settings = passes::InferOptions { rules, ..options.settings() };
        Inferred {
            found: passes::infer_model(&self.graph, &options.registry, settings),
            options: options.clone(),
        }
    }

    /// Writes inferred types into the model: a type for each value that a node makes, and what
    /// existing declarations leave open. Nothing else changes.
    pub fn add_types(&mut self, found: &Inferred) {
        let options = &found.options;
        passes::annotate(&mut self.graph, &found.found, options.naming, &options.symbols);
    }

    /// The symbols in declared types, each once, those in expressions too.
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
    /// The type of a value of the main graph.
    pub fn ty(&self, model: &Model, name: &str) -> Option<&Type> {
        let symbol = model.graph.symbol(name.as_bytes())?;
        let mut values = model.graph.values();
        let (id, _) = values
            .find(|(_, value)| value.name == symbol && Some(value.graph) == model.graph.main)?;
        self.found.ty(id)
    }

    /// How many nodes were looked at: those of bodies as often as these were walked through.
    #[doc(hidden)]
    pub fn visits(&self) -> u64 {
        self.found.visits()
    }

    /// The values that inputs, constants and nodes define, graph by graph in the order of the file.
    /// Those of functions are left out: what they are depends on the call. Each is looked up when
    /// the iterator comes to it.
    pub fn values<'a>(&'a self, model: &'a Model) -> impl Iterator<Item = InferredValue<'a>> {
        let graph = &model.graph;
        let places: HashMap<GraphId, Arc<str>> =
            graph.graph_places().into_iter().map(|(id, place)| (id, place.into())).collect();
        self.defined(model).map(move |defined| InferredValue {
            graph: places.get(&defined.graph).cloned().unwrap_or_default(),
            name: shown(graph.text(graph.value(defined.value).name)),
            ty: self.found.ty(defined.value),
            made_by: match defined.node {
                Some(node) => graph.display(graph.node(node).op_type),
                None => "input".into(),
            },
        })
    }

    /// How many [`values`](Inferred::values) there are, and of how many something is open.
    #[doc(hidden)]
    pub fn type_counts(&self, model: &Model) -> TypeCounts {
        let mut counts = TypeCounts::default();
        for defined in self.defined(model) {
            let ty = self.found.ty(defined.value);
            counts.values += 1;
            counts.open += usize::from(!ty.is_some_and(Type::is_whole));
        }
        counts
    }

    /// The values of the main graph and the graphs in it, in the order of the file.
    fn defined<'a>(&'a self, model: &'a Model) -> impl Iterator<Item = Defined> + 'a {
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

    /// What stays unknown, in the order of the nodes. What merely follows from it is not listed
    /// again.
    #[doc(hidden)]
    pub fn unknown(&self, model: &Model) -> Vec<UnknownValue> {
        let listed = self.found.unknown().iter();
        listed
            .map(|unknown| UnknownValue {
                value: name_of(&model.graph, unknown.value),
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

    /// Sizes that nodes demand to be equal, or to divide (`mod(a, b) = 0`), although the file does
    /// not say so.
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

    /// What does not fit, of these kinds. Each is put into words when the iterator comes to it.
    #[doc(hidden)]
    pub fn problems<'a>(
        &'a self,
        model: &'a Model,
        is_wanted: impl Fn(ProblemKind) -> bool + 'a,
    ) -> impl Iterator<Item = Problem> + 'a {
        let mut places = Places::default();
        let wanted = self.found.problems().iter().filter(move |problem| is_wanted(problem.kind));
        wanted.map(move |problem| Problem::of(&model.graph, &mut places, problem))
    }

    /// What contradicts itself, as findings with places.
    pub fn report(&self, model: &Model) -> CheckReport {
        let mut found = Findings::new(20);
        self.found.findings(&model.graph, &mut found, |code| code.severity);
        found.report()
    }
}

/// A value, the graph that it is in, and the node that makes it unless it is an input.
struct Defined {
    graph: GraphId,
    node: Option<NodeId>,
    value: ValueId,
}

fn name_of(model: &graph::Model, value: ValueId) -> String {
    shown(model.text(model.value(value).name))
}

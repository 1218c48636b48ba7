//! Inference of symbolic types and shapes, and of the values that shapes are computed from.
//!
//! One walk over the nodes of a graph in order. The rule of a node whose attributes are graphs
//! infers these (`If` joins them, `Loop` repeats until nothing changes), and a call of a function
//! walks through its body once for every kind of call. Declared types count unless they contradict
//! the outputs of nodes.
//!
//! There are two styles. [`Style::Algebra`] keeps expressions over the symbols of the file,
//! propagates the integers that shapes are made of, learns equalities, and names unknown sizes so
//! that they can be propagated too. [`Style::Reference`] infers like the reference implementation:
//! a size that is neither a number nor a name of the file gets a new name.

mod annotate;
mod callees;
mod calls;
mod conditions;
mod declarations;
mod denotations;
mod differences;
mod engine;
mod equalities;
mod everywhere;
mod fixed;
mod inner;
mod judged;
mod newer;
mod operands;
mod outputs;
mod problems;
mod reference;
mod repeats;
mod rulebook;
mod sharded;
mod style;
mod table;
mod undefined;
mod unknown;
mod windows;

use std::panic::Location;

use hashbrown::{HashMap, HashSet};
use sardonyx_model::{Bindings, GraphId, Id, Model, NodeId, Symbol, Type, ValueId};
use sardonyx_ops::{Demand, Infer, Known, Registry, Schema, ValueTypes};
use sardonyx_proto::switch;

use crate::codes;
use crate::finding::{Code, Finding, Findings, Places, Severity, Spot, SpotPart};
use crate::resolve::Resolved;

pub(crate) use annotate::complete_declaration;
pub use annotate::declaration;
pub use annotate::{Naming, annotate};
pub use conditions::Conditions;
pub use differences::find_differences;
pub use equalities::Equality;
pub use newer::newer_types;
pub use unknown::{Missing, Unknown};

pub(crate) use operands::{Bound, wrong_count};

use engine::Engine;
pub(crate) use engine::element;
use table::TypeTable;

/// Method of inference.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Style {
    /// Uses expressions, equalities and the values of shapes.
    #[default]
    Algebra,
    /// Infers like the reference implementation: sizes are numbers or names, and equalities are not
    /// learned.
    Reference {
        /// Whether the values that shapes are made of are propagated through nodes. Constants are
        /// known in any case.
        data_prop: bool,
    },
}

/// Inference rules in addition to those of the standard's operators.
pub trait Rules {
    /// Applies the rule of an operator to a node of the model, if there is one.
    fn infer(&self, model: &Model, node: NodeId, schema: &Schema, cx: &mut Infer<'_>)
    -> RuleAnswer;
}

/// Result of a custom inference rule for a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RuleAnswer {
    /// No rule: the rule of the standard is applied, or, for other operators, the declared types
    /// hold.
    NoRule,
    /// The rule has set the types of the outputs, as far as it knows them.
    Inferred,
    /// The rule failed, and the program knows of it: output types stay unknown, and no problem is
    /// reported.
    Failed,
    /// The node does not conform to its operator; a problem with this message is reported.
    Misfit(String),
}

/// Observer of the calls of functions: the types in a body are those of one call only while
/// inference is there.
pub trait CallObserver {
    /// Observes a body whose types were just inferred. Returns a number for that call.
    fn observe(&self, body: CalledBody<'_>) -> usize;

    /// Takes note of a node that makes the call with a number, or one that equals it.
    fn note(&self, node: NodeId, call: usize);
}

/// The body of a function in one call.
#[derive(Debug, Clone, Copy)]
pub struct CalledBody<'a> {
    /// The model around it.
    pub model: &'a Model,
    /// The operators that exist.
    pub registry: &'a Registry,
    /// The types of the body's values in this call.
    pub found: &'a Inference,
    /// Position of the function.
    pub function: usize,
    /// The attributes that the call gives.
    pub bindings: &'a Bindings,
}

/// Facts beyond the model, and the way of reasoning.
#[derive(Clone, Copy, Default)]
pub struct InferOptions<'a> {
    /// Types of graph inputs that replace the declared ones, by position; `None` keeps the declared
    /// one.
    pub inputs: &'a [Option<Type>],
    /// Returns values of constants that are not in the model's file, such as those computed before.
    pub known: Option<&'a dyn Fn(ValueId) -> Option<Known>>,
    /// Numbers that replace symbols of the file.
    pub symbols: &'a [(String, i64)],
    /// Symbols in the types of [`inputs`](InferOptions::inputs), if the results must hold for all
    /// numbers that replace them. Types that only the file declares are then ignored, because
    /// inference with numbers may find others, and [`Inference::demands`] are listed.
    pub sizes: Option<&'a HashSet<String>>,
    /// Whether nodes in inner graphs may contradict the conditions of their operators: a branch
    /// that only fits other inputs is not taken for these. Only [`infer`] and [`infer_inside`] use
    /// it.
    pub inner_may_contradict: bool,
    /// Method of inference.
    pub style: Style,
    /// Whether the types of operands are compared with those that operators accept.
    pub check_types: bool,
    /// Whether [`Inference::unknown`] lists unknown types and sizes with their reasons.
    pub explain: bool,
    /// Whether [`Inference::differences`] lists nodes whose outputs differ on ONNX Runtime.
    pub differences: bool,
    /// Rules in addition to those of the standard's operators.
    pub rules: Option<&'a dyn Rules>,
    /// Observer of the calls of functions.
    pub calls: Option<&'a dyn CallObserver>,
}

impl InferOptions<'_> {
    /// Infers like the checker of the `onnx` package for a full check. Each problem then makes that
    /// checker refuse the model.
    pub const FULL_CHECK: InferOptions<'static> = InferOptions {
        inputs: &[],
        known: None,
        symbols: &[],
        sizes: None,
        inner_may_contradict: false,
        style: Style::Reference { data_prop: false },
        check_types: true,
        explain: false,
        differences: false,
        rules: None,
        calls: None,
    };
}

impl std::fmt::Debug for InferOptions<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("InferOptions")
            .field("inputs", &self.inputs)
            .field("symbols", &self.symbols)
            .field("sizes", &self.sizes)
            .field("style", &self.style)
            .field("check_types", &self.check_types)
            .field("explain", &self.explain)
            .finish_non_exhaustive()
    }
}

/// Results of inference, by value.
#[derive(Debug, Clone, Default)]
pub struct Inference {
    types: TypeTable,
    known: Vec<Option<Box<Known>>>,
    problems: Vec<Problem>,
    equalities: Vec<Equality>,
    demands: Vec<Demand>,
    unknown: Vec<Unknown>,
    cut_windows: Vec<(NodeId, String)>,
    denotations: HashMap<ValueId, denotations::Denotations>,
    /// Differences of the outputs of nodes on ONNX Runtime.
    differences: HashMap<NodeId, String>,
    /// Functions that the model calls; filled by [`infer_everywhere`].
    called: HashSet<usize>,
    visits: u64,
    /// Number of names that were made up.
    names: usize,
}

impl Inference {
    /// Returns the type of a value.
    pub fn ty(&self, value: ValueId) -> Option<&Type> {
        self.types.get(value)
    }

    /// Whether the model calls a function, by index. Facts about its values then hold in all of
    /// these calls. Only [`infer_everywhere`] finds out.
    pub(crate) fn is_called(&self, function: usize) -> bool {
        self.called.contains(&function)
    }

    /// Returns the contents of a value, as far as they are known before a run.
    pub fn known(&self, value: ValueId) -> Option<&Known> {
        self.known.get(value.index())?.as_deref()
    }

    /// Forgets contents that are in mapped files.
    pub fn forget_mapped(&mut self) {
        for known in &mut self.known {
            let is_mapped = matches!(known.as_deref(), Some(Known::Tensor(tensor))
                if tensor.buffer().is_some_and(sardonyx_tensor::Buffer::is_mapped));
            if is_mapped {
                *known = None;
            }
        }
    }

    /// Returns the denotations of a value's dimensions, declared or derived from others.
    pub fn denotations(&self, value: ValueId) -> Option<&[Option<Symbol>]> {
        self.denotations.get(&value).map(|found| found.as_slice())
    }

    /// Returns the contradictions, in the order of the nodes.
    pub fn problems(&self) -> &[Problem] {
        &self.problems
    }

    /// Returns pairs of sizes that nodes require to be equal, or to divide (`mod(a, b) = 0`),
    /// although the file does not declare it.
    pub fn equalities(&self) -> &[Equality] {
        &self.equalities
    }

    /// Returns the conditions under which the results hold if numbers replace
    /// [`InferOptions::sizes`]. Conditions that involve other symbols are left out, since those
    /// numbers do not determine them.
    pub fn demands(&self) -> &[Demand] {
        &self.demands
    }

    /// Returns the unknown types and sizes at the values where they first occur, if
    /// [`InferOptions::explain`] is set.
    pub fn unknown(&self) -> &[Unknown] {
        &self.unknown
    }

    /// Returns the number of node visits. Nodes of bodies count once per walk.
    pub fn visits(&self) -> u64 {
        self.visits
    }

    #[cfg_attr(debug_assertions, track_caller)]
    fn add_problem(&mut self, problem: Problem) {
        if !switch::is_off(problem.code().name, Location::caller()) {
            self.problems.push(problem);
        }
    }

    /// Adds the problems to `found`, each with the severity of its code; `None` ignores it.
    pub fn findings(
        &self,
        model: &Model,
        found: &mut Findings,
        level: impl Fn(&'static Code) -> Option<Severity>,
    ) {
        for problem in &self.problems {
            let Some(severity) = level(problem.code()) else {
                continue;
            };
            found.add(model, problem.code(), severity, problem.spot, || {
                (problem.fact.clone(), problem.advice.clone().into())
            });
        }
    }
}

impl ValueTypes for Inference {
    fn ty(&self, value: ValueId) -> Option<&Type> {
        self.ty(value)
    }

    fn known(&self, value: ValueId) -> Option<&Known> {
        Inference::known(self, value)
    }
}

/// Contradiction in a model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// Node, or constant of a graph.
    pub spot: Spot,
    /// Kind of the contradiction.
    pub kind: ProblemKind,
    /// Description of the contradiction.
    pub fact: String,
    /// Known types of the node's inputs, or advice about the constant.
    pub advice: String,
}

/// Kinds of [`Problem`]s.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProblemKind {
    /// The node cannot run: its operator does not accept its inputs.
    Node,
    /// The numbers or types of the node's inputs and outputs are not those of its operator.
    Signature,
    /// The node makes another type than the file declares, or a constant has another.
    Declared,
    /// The operator set of the node is not imported.
    NotImported,
    /// A limit on the work was reached.
    Limit,
    /// A value has more dimensions than supported.
    Rank,
    /// Dimensions of an input have other denotations than the operator expects.
    Denotation,
    /// The node reads, or the graph returns, a name that is not defined.
    Undefined,
    /// An input of a graph, or a sparse initializer, has no name.
    Nameless,
}

impl Problem {
    /// Returns the code of findings about the problem.
    pub fn code(&self) -> &'static Code {
        match self.kind {
            ProblemKind::Node | ProblemKind::Signature | ProblemKind::Declared => {
                &codes::TYPES_CONTRADICT
            }
            ProblemKind::NotImported => &codes::OPSET_NOT_IMPORTED,
            ProblemKind::Limit => &codes::TOO_MUCH_TO_INFER,
            ProblemKind::Rank => &codes::RANK_ABOVE_LIMIT,
            ProblemKind::Denotation => &codes::DENOTATION_MISMATCH,
            ProblemKind::Undefined if self.spot.field == "output" => &codes::UNDEFINED_OUTPUT,
            ProblemKind::Undefined => &codes::UNDEFINED_VALUE,
            ProblemKind::Nameless if self.spot.field == "sparse_initializer" => {
                &codes::NAMELESS_INITIALIZER
            }
            ProblemKind::Nameless => &codes::NAMELESS_VALUE,
        }
    }
}

/// Infers the types of all values of a model, including those in inner graphs.
pub fn infer_model(model: &Model, registry: &Registry, options: InferOptions<'_>) -> Inference {
    Engine::new(model, registry, options).run()
}

/// Infers the types of all values of a model, including those in training steps.
pub(crate) fn infer_with_training(
    model: &Model,
    registry: &Registry,
    options: InferOptions<'_>,
) -> Inference {
    Engine::new(model, registry, options).run_with_training()
}

/// Infers types also in training steps and in bodies of functions. There, only facts that hold in
/// every call of the model are kept; for a function without calls, facts that hold in any call.
pub(crate) fn infer_everywhere(
    model: &Model,
    registry: &Registry,
    options: InferOptions<'_>,
) -> Inference {
    Engine::new(model, registry, options).run_everywhere()
}

/// Infers the outputs of one node of the main graph according to a given schema; the graph
/// determines the types of its inputs. Returns the results of the rule: unknown sizes get no names,
/// and declared types of outputs are ignored. Lists problems of the node and of nodes in its
/// graphs.
pub fn infer_node(
    model: &Model,
    registry: &Registry,
    node: NodeId,
    schema: &Schema,
    options: InferOptions<'_>,
) -> (Vec<Option<Type>>, Vec<Problem>) {
    Engine::new(model, registry, options).infer_as_operator(node, schema)
}

/// Infers the outputs of a function of the model, given by its index, for a node of the main graph
/// that calls it. The body may not call other functions of the model. Otherwise like
/// [`infer_node`].
pub fn infer_function(
    model: &Model,
    registry: &Registry,
    node: NodeId,
    function: usize,
    options: InferOptions<'_>,
) -> (Vec<Option<Type>>, Vec<Problem>) {
    Engine::new(model, registry, options).infer_as_call(node, function)
}

/// Infers the types of all values of a resolved model.
///
/// # Errors
///
/// All nodes whose inputs contradict the conditions of their operators. Declared types of the
/// outputs of nodes are ignored where they do not fit.
pub fn infer(resolved: &Resolved, options: InferOptions<'_>) -> Result<Inference, Vec<Finding>> {
    let root = resolved.model().main.filter(|_| options.inner_may_contradict);
    refuse_contradictions(resolved, Engine::for_resolved(resolved, options).run(), root)
}

/// Infers the types of the values of one inner graph, and of graphs in it, for other types of its
/// inputs and of values that it reads from outer graphs. `around` has the results for these.
///
/// # Errors
///
/// Like the errors of [`infer`].
pub fn infer_inside(
    resolved: &Resolved,
    graph: GraphId,
    around: &Inference,
    given: &[(ValueId, Type)],
    options: InferOptions<'_>,
) -> Result<Inference, Vec<Finding>> {
    let root = Some(graph).filter(|_| options.inner_may_contradict);
    let found = Engine::for_resolved(resolved, options).run_inside(graph, around, given);
    refuse_contradictions(resolved, found, root)
}

/// Returns the results, unless the model contradicts itself; with a graph, unless the nodes of this
/// graph do.
fn refuse_contradictions(
    resolved: &Resolved,
    found: Inference,
    root: Option<GraphId>,
) -> Result<Inference, Vec<Finding>> {
    let model = resolved.model();
    let mut places = Places::default();
    let is_inner = |problem: &Problem| match (problem.spot.part, root) {
        (SpotPart::Node(node), Some(root)) => !model.graph(root).nodes.contains(&node),
        _ => false,
    };
    let wrong = found.problems.iter().filter(|problem| match problem.kind {
        ProblemKind::Declared | ProblemKind::NotImported => false,
        ProblemKind::Limit => true,
        _ => !is_inner(problem),
    });
    let findings: Vec<Finding> = wrong
        .take(1000)
        .map(|problem| Finding {
            code: problem.code(),
            severity: problem.code().severity.unwrap_or(Severity::Error),
            place: places.of(model, problem.spot),
            fact: problem.fact.clone(),
            advice: problem.advice.clone().into(),
        })
        .collect();
    if findings.is_empty() { Ok(found) } else { Err(findings) }
}

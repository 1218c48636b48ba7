//! Inference of types and shapes, symbolic, and of the values that shapes are computed from.
//!
//! One walk over the nodes of a graph in their order; a node whose attributes are graphs has these
//! inferred by its rule (`If` joins them, `Loop` repeats until nothing changes), and a call of a
//! function walks through its body once for every kind of call. What the file declares is believed
//! as far as it does not contradict what nodes make.
//!
//! Two styles. [`Style::Algebra`] keeps expressions over the symbols of the file, follows the
//! integers that shapes are made of, learns equalities, and names what stays unknown so that it can
//! be followed further. [`Style::Reference`] says what the reference implementation says: a size
//! that is neither a number nor a name of the file gets a new name.

mod annotate;
mod calls;
mod conditions;
mod denotations;
mod differences;
mod engine;
mod equalities;
mod everywhere;
mod fixed;
mod inner;
mod newer;
mod operands;
mod outputs;
mod reference;
mod repeats;
mod sharded;
mod table;
mod undefined;
mod unknown;
mod windows;

use std::panic::Location;

use hashbrown::{HashMap, HashSet};
use sardonyx_model::{GraphId, Id, Model, NodeId, Symbol, Type, ValueId};
use sardonyx_ops::{Demand, Infer, Known, Registry, Schema, ValueTypes};
use sardonyx_proto::switch;

use crate::check::codes;
use crate::cost::CallCosts;
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

/// How inference reasons.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Style {
    /// With expressions, equalities and the values of shapes.
    #[default]
    Algebra,
    /// As the reference implementation does: sizes are numbers or names, and nothing is known of
    /// equalities.
    Reference {
        /// Whether the values that shapes are made of are followed through nodes. Constants are
        /// known in any case.
        data_prop: bool,
    },
}

/// Rules beyond those of the standard's operators.
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

/// What is known beyond the model, and how to reason.
#[derive(Clone, Copy, Default)]
pub struct InferOptions<'a> {
    /// Types of graph inputs in place of the declared ones, by position; `None` keeps the declared
    /// one.
    pub inputs: &'a [Option<Type>],
    /// Values of constants that are not in the model's file, such as those computed before.
    pub known: Option<&'a dyn Fn(ValueId) -> Option<Known>>,
    /// Numbers for symbols of the file.
    pub symbols: &'a [(String, i64)],
    /// Symbols that the types of [`inputs`](InferOptions::inputs) are written in, if inference is
    /// to hold for all numbers that these may be. It then says nothing that only the file
    /// declares, because inference with numbers may find something else, and it lists
    /// [`Inference::demands`].
    pub sizes: Option<&'a HashSet<String>>,
    /// Whether nodes in graphs of nodes may contradict what their operators demand: a branch that
    /// fits other inputs only is not taken for these. It holds for [`infer`] and [`infer_inside`].
    pub inner_may_contradict: bool,
    /// How to reason.
    pub style: Style,
    /// Whether the types of operands are compared with what operators take.
    pub check_types: bool,
    /// Whether [`Inference::unknown`] lists what stays unknown, with the reasons in words.
    pub explain: bool,
    /// Whether [`Inference::differences`] lists nodes whose outputs differ on ONNX Runtime.
    pub differences: bool,
    /// Rules beyond those of the standard's operators.
    pub rules: Option<&'a dyn Rules>,
    /// Where the costs of calls of functions are kept: the types in their bodies are known while
    /// inference is there.
    pub calls: Option<&'a CallCosts>,
}

impl InferOptions<'_> {
    /// As the checker of the `onnx` package infers for a full check. Each problem that is found
    /// then makes it refuse the model.
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

/// What inference found, by value.
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
    /// By node, how its outputs differ on ONNX Runtime.
    differences: HashMap<NodeId, String>,
    /// The functions that the model calls, after [`infer_everywhere`].
    called: HashSet<usize>,
    visits: u64,
    /// How many names were made up.
    names: usize,
}

impl Inference {
    /// The type of a value.
    pub fn ty(&self, value: ValueId) -> Option<&Type> {
        self.types.get(value)
    }

    /// Whether the model calls a function, by position: what is known of its values is so in all of
    /// these calls. [`infer_everywhere`] knows it.
    pub(crate) fn is_called(&self, function: usize) -> bool {
        self.called.contains(&function)
    }

    /// The value itself, as far as known before anything runs.
    pub fn known(&self, value: ValueId) -> Option<&Known> {
        self.known.get(value.index())?.as_deref()
    }

    /// Forgets values that lie in mapped files.
    pub fn forget_mapped(&mut self) {
        for known in &mut self.known {
            let is_mapped = matches!(known.as_deref(), Some(Known::Tensor(tensor))
                if tensor.buffer().is_some_and(sardonyx_tensor::Buffer::is_mapped));
            if is_mapped {
                *known = None;
            }
        }
    }

    /// What the dimensions of a value mean, where the file denotes that or where it follows from
    /// such dimensions.
    pub fn denotations(&self, value: ValueId) -> Option<&[Option<Symbol>]> {
        self.denotations.get(&value).map(|found| found.as_slice())
    }

    /// What contradicts itself, in the order of the nodes.
    pub fn problems(&self) -> &[Problem] {
        &self.problems
    }

    /// Sizes that nodes demand to be equal, or to divide (`mod(a, b) = 0`), although the file does
    /// not say so.
    pub fn equalities(&self) -> &[Equality] {
        &self.equalities
    }

    /// Under which conditions what was found holds for numbers in the place of
    /// [`InferOptions::sizes`]. Those that are about other symbols too are left out: numbers in
    /// the place of sizes say nothing about them either.
    pub fn demands(&self) -> &[Demand] {
        &self.demands
    }

    /// What stays unknown, and where that begins, if [`InferOptions::explain`] asked for it.
    pub fn unknown(&self) -> &[Unknown] {
        &self.unknown
    }

    /// How many nodes were looked at: those of bodies as often as these were walked through.
    pub fn visits(&self) -> u64 {
        self.visits
    }

    #[cfg_attr(debug_assertions, track_caller)]
    fn add_problem(&mut self, problem: Problem) {
        if !switch::is_off(problem.code().name, Location::caller()) {
            self.problems.push(problem);
        }
    }

    /// The problems as findings, each of the level that its code has; `None` passes it over.
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

/// Something that contradicts itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// The node, or the constant of a graph.
    pub spot: Spot,
    /// What kind.
    pub kind: ProblemKind,
    /// What does not fit.
    pub fact: String,
    /// What is known of the node's inputs, or what to do about the constant.
    pub advice: String,
}

/// Kinds of [`Problem`]s.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProblemKind {
    /// The node cannot run: its inputs are not what its operator takes.
    Node,
    /// The numbers or types of its inputs and outputs are not what its operator takes and makes.
    Signature,
    /// The node makes another type than the file declares, or a constant has another.
    Declared,
    /// The node is of an operator set that is not imported.
    NotImported,
    /// A limit on the work was reached.
    Limit,
    /// A value has more dimensions than a tensor can have.
    Rank,
    /// Dimensions of an input mean something else than the operator expects.
    Denotation,
    /// The node reads a name that nothing defines, or the graph gives one.
    Undefined,
    /// An input of a graph, or a sparse initializer, has no name.
    Nameless,
}

impl Problem {
    /// The code of findings about it.
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

/// Infers the types of all values of a model, in its graphs inside of nodes too.
pub fn infer_model(model: &Model, registry: &Registry, options: InferOptions<'_>) -> Inference {
    Engine::new(model, registry, options).run()
}

/// Infers the types of all values of a model, in training steps too.
pub(crate) fn infer_with_training(
    model: &Model,
    registry: &Registry,
    options: InferOptions<'_>,
) -> Inference {
    Engine::new(model, registry, options).run_with_training()
}

/// Infers types in training steps too, and in bodies of functions as far as it is so in every call
/// of the model; of functions that nothing calls, as far as it is so in any call.
pub(crate) fn infer_everywhere(
    model: &Model,
    registry: &Registry,
    options: InferOptions<'_>,
) -> Inference {
    Engine::new(model, registry, options).run_everywhere()
}

/// Infers the outputs of one node of the main graph, as a node of the operator version that is
/// given; its inputs are what the graph says of their names. Gives what the rule says: sizes that
/// are unknown get no names, and what the file declares of outputs does not count. Problems are
/// listed for the node, and for nodes in its graphs.
pub fn infer_node(
    model: &Model,
    registry: &Registry,
    node: NodeId,
    schema: &Schema,
    options: InferOptions<'_>,
) -> (Vec<Option<Type>>, Vec<Problem>) {
    Engine::new(model, registry, options).alone(node, Ok(schema))
}

/// Infers the outputs of a function of the model, by position, for a node of the main graph that
/// calls it. The body may not call other functions of the model. Otherwise as [`infer_node`].
pub fn infer_function(
    model: &Model,
    registry: &Registry,
    node: NodeId,
    function: usize,
    options: InferOptions<'_>,
) -> (Vec<Option<Type>>, Vec<Problem>) {
    Engine::new(model, registry, options).alone(node, Err(function))
}

/// Infers the types of all values of a model that is resolved.
///
/// # Errors
///
/// Every node whose inputs contradict what its operator demands. What is declared of values that
/// nodes make is passed over where it does not fit.
pub fn infer(resolved: &Resolved, options: InferOptions<'_>) -> Result<Inference, Vec<Finding>> {
    let root = resolved.model().main.filter(|_| options.inner_may_contradict);
    judged(resolved, Engine::for_resolved(resolved, options).run(), root)
}

/// Infers the types of the values of one graph inside of a node, and of those in it, for other
/// types of what the graph is given and reads from the graphs around it. `around` is what was
/// inferred of these.
///
/// # Errors
///
/// As [`infer`].
pub fn infer_inside(
    resolved: &Resolved,
    graph: GraphId,
    around: &Inference,
    given: &[(ValueId, Type)],
    options: InferOptions<'_>,
) -> Result<Inference, Vec<Finding>> {
    let root = Some(graph).filter(|_| options.inner_may_contradict);
    let found = Engine::for_resolved(resolved, options).run_inside(graph, around, given);
    judged(resolved, found, root)
}

/// What was found, unless the model contradicts itself; if a graph is given, in the nodes of this.
fn judged(
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

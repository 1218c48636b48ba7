//! Inlining: replaces calls of functions, and nodes of operators that are defined by functions, by
//! the bodies of these functions.
//!
//! Covers all graphs of a model and the bodies of functions that remain. The result is equivalent
//! and a valid file: every node has the version that the model, or the function around it, imports.
//! The engine's own expansion ([`crate::expand_calls`]) shares the code that replaces calls. There
//! each node keeps the version of its body, so that imports need not match.

mod imports;
mod operators;
mod plans;
mod specialize;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use hashbrown::{HashMap, HashSet};
use sardonyx_model::{
    Function, GraphId, InlineError, Inlined, MadeFor, MadeNodes, Model, NodeBuilder, NodeId,
    OperatorSetId, Producer, ValueId, ValueInfo,
};
use sardonyx_ops::{OpRef, Registry};

use crate::codes;
use crate::expand::{self, Expansions, Host};
use crate::finding::{Code, Finding, Places, Severity, Spot, place_of_node};
use crate::function_id::FunctionId;
use crate::infer::{InferOptions, infer_model};
use crate::ir_version::ir_version_of_opset;
use crate::order::tree;
use crate::origins::Origins;
use crate::required::{MissingInput, RequiredInputs};
use crate::resolve::Scope;
use crate::results::Rejected;

use plans::{Bodies, Plans, roots};

pub(crate) use imports::Versions;
pub(crate) use plans::{Copies, Functions};
pub(crate) use specialize::{Specialized, is_other, specialize, specialize_to_inline};

/// Options of inlining.
#[derive(Clone, Copy)]
pub struct InlineOptions<'a> {
    /// Predicate that selects functions of the model.
    pub functions: &'a dyn Fn(&Model, &Function) -> bool,
    /// Predicate that selects operators of the standard; those without a function are not inlined.
    pub operators: Option<&'a dyn Fn(OpRef) -> bool>,
    /// Maximum number of new nodes.
    pub limit: u64,
    /// Whether calls that cannot be inlined stay in the result. Otherwise such a call is an error.
    pub keep_conflicting: bool,
    /// Whether to convert functions whose operators differ at the versions that the model imports.
    /// Otherwise their calls cannot be inlined.
    pub convert: bool,
}

impl InlineOptions<'_> {
    /// Default of [`limit`](Self::limit).
    pub const LIMIT: u64 = 10_000_000;
}

impl Default for InlineOptions<'_> {
    /// Selects all functions of the model, and no operators.
    fn default() -> Self {
        InlineOptions {
            functions: &|_, _| true,
            operators: None,
            limit: Self::LIMIT,
            keep_conflicting: false,
            convert: true,
        }
    }
}

impl fmt::Debug for InlineOptions<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InlineOptions")
            .field("limit", &self.limit)
            .field("keep_conflicting", &self.keep_conflicting)
            .field("convert", &self.convert)
            .finish_non_exhaustive()
    }
}

/// Calls that were inlined, and other changes of the model.
#[derive(Debug, Clone, Default)]
pub struct InlineReport {
    /// Number of inlined calls of each function of the model, including calls in function bodies.
    pub functions: BTreeMap<FunctionId, usize>,
    /// Number of nodes that were expanded to the body of their operator's function, by domain and
    /// name.
    pub operators: Expansions,
    /// Functions that were removed because no call of them remains.
    pub removed: Vec<FunctionId>,
    /// Calls that were selected but could not be inlined, with the reasons.
    pub kept: Vec<Finding>,
    /// Operator sets that the model newly imports, with their versions.
    pub imported: Vec<(String, i64)>,
    /// Functions whose bodies were converted to the operator set versions of their callers.
    pub converted: Vec<FunctionId>,
    /// Functions that were added for calls with omitted inputs, each with the function that it
    /// replaces in these calls.
    pub added: Vec<(FunctionId, FunctionId)>,
    /// Nodes that were selected but not changed, because they have no body.
    #[doc(hidden)]
    pub without_body: Vec<WithoutBody>,
}

/// Nodes of an operator that have no body, all for the same reason.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct WithoutBody {
    /// Domain of the operator; empty for `ai.onnx`.
    pub domain: String,
    /// Name of the operator.
    pub name: String,
    /// Number of nodes.
    pub nodes: usize,
    /// First of the nodes, in the wording of messages.
    pub first: String,
    /// Whether the standard has a function for other nodes of the operator.
    pub has_function: bool,
    /// Reason why the nodes have no body.
    pub why: String,
}

/// Reasons why a model cannot be inlined.
#[derive(Debug, Clone)]
pub enum InlineRefusal {
    /// Calls that cannot be replaced, or functions that call themselves.
    Findings(Vec<Finding>),
    /// The result would have too many new nodes.
    TooLarge {
        /// Number of new nodes.
        nodes: u64,
        /// Maximum number of new nodes.
        limit: u64,
    },
    /// The result has errors that the model does not have.
    Invalid(Box<Rejected>),
}

/// Returns the selected functions whose operators differ where the functions are called, by the
/// versions that are imported there.
pub(crate) fn conflicting(
    model: &Model,
    registry: &Registry,
    options: &InlineOptions<'_>,
    functions: &Functions,
) -> BTreeMap<Versions, BTreeSet<usize>> {
    let (copies, wanted) = (Copies::none(model), select_functions(model, options));
    Plans::new(model, functions, registry, &copies, wanted).conflicting()
}

/// Returns for each function of the model whether it is selected.
fn select_functions(model: &Model, options: &InlineOptions<'_>) -> Vec<bool> {
    model.functions.iter().map(|function| (options.functions)(model, function)).collect()
}

/// Model with calls inlined.
#[derive(Debug)]
pub struct Inlining {
    /// The model.
    pub model: Model,
    /// Calls that were inlined, and calls that stay.
    pub report: InlineReport,
    /// Nodes of the input model from which the nodes of the result were made.
    pub origins: Origins,
}

/// Inlines calls in a model whose last functions are copies of other functions in other versions.
///
/// # Errors
///
/// Errors of [`inline`](crate::inline).
pub(crate) fn inline_with(
    model: &Model,
    registry: &Registry,
    options: &InlineOptions<'_>,
    functions: &Functions,
    copies: &Copies,
) -> Result<Inlining, InlineRefusal> {
    let mut job = Job::new(model, registry, options, functions);
    let stays = job.functions(copies)?;
    let scopes: Vec<Scope> = std::iter::once(None)
        .chain((0..stays.len()).filter(|index| stays[*index]).map(Some))
        .collect();
    if let Some(wanted) = options.operators {
        while job.operators(&|_, op| wanted(op), &scopes)? {}
    }
    if !job.refused.is_empty() {
        if !options.keep_conflicting {
            return Err(InlineRefusal::Findings(job.refused));
        }
        job.report.kept = std::mem::take(&mut job.refused);
    }
    job.declare(&scopes);
    job.remove(&stays);
    let Job { model, report, made, .. } = job;
    Ok(Inlining { model, report, origins: Origins::default().then_made(made) })
}

/// Model in which nodes of operators were replaced by the bodies of their functions, if they have
/// bodies that are equivalent at the versions imported there.
pub(crate) struct Expanded {
    pub(crate) model: Model,
    pub(crate) made: MadeNodes,
    /// Nodes that were replaced.
    pub(crate) nodes: HashSet<NodeId>,
}

/// Replaces `nodes`, which are nodes of operators, by the bodies of their functions. A node without
/// an equivalent body stays.
///
/// # Errors
///
/// Errors of [`inline`](crate::inline).
pub(crate) fn expand_nodes(
    model: &Model,
    registry: &Registry,
    nodes: &HashSet<NodeId>,
) -> Result<Expanded, InlineRefusal> {
    let functions = Functions::of(model, registry)?;
    // Callers convert the bodies themselves.
    let options = InlineOptions { convert: false, ..InlineOptions::default() };
    let mut job = Job::new(model, registry, &options, &functions);
    let scopes: Vec<Scope> =
        std::iter::once(None).chain((0..model.functions.len()).map(Some)).collect();
    job.operators(&|node, _| nodes.contains(&node), &scopes)?;
    job.declare(&scopes);
    let Job { model, made, expanded, .. } = job;
    Ok(Expanded { model, made, nodes: expanded })
}

struct Job<'a> {
    original: &'a Model,
    model: Model,
    made: MadeNodes,
    registry: &'a Registry,
    options: &'a InlineOptions<'a>,
    functions: &'a Functions,
    /// Inputs of functions that calls must have. `None` while nodes of operators are replaced,
    /// whose bodies are not functions of the model.
    required: Option<&'a RequiredInputs>,
    /// Bodies that replace calls in the current scope.
    bodies: Bodies,
    /// Number of nodes that replace all calls so far.
    expected: u64,
    /// Declarations of values in function bodies, for the copied values.
    declared: Vec<ValueInfo>,
    /// Outputs of calls that were removed.
    redirected: Vec<ValueId>,
    /// Whether `Identity` nodes were added in the current scope.
    needs_identity: bool,
    refused: Vec<Finding>,
    places: Places,
    /// Nodes of operators that were refused.
    left: HashSet<NodeId>,
    /// Nodes of operators that were replaced by bodies.
    expanded: HashSet<NodeId>,
    report: InlineReport,
}

impl Host for Job<'_> {
    fn model(&self) -> &Model {
        &self.model
    }

    fn made(&self) -> &MadeNodes {
        &self.made
    }

    fn function_of(&self, node: NodeId) -> Option<usize> {
        self.bodies.get(&self.called_by(node)?).copied()
    }

    fn inline(&mut self, call: NodeId, function: usize) -> Result<Vec<NodeId>, InlineError> {
        self.inputs_of_call(call)?;
        let inlined = NodeBuilder::new(&mut self.model, &mut self.made, call).inline(function)?;
        let Inlined { copied, declared, redirected } = inlined;
        self.needs_identity |= copied.iter().any(|copied| copied.of == call);
        self.declared.extend(declared);
        self.redirected.extend(redirected);
        Ok(copied.into_iter().map(|copied| copied.node).collect())
    }
}

impl<'a> Job<'a> {
    fn new(
        model: &'a Model,
        registry: &'a Registry,
        options: &'a InlineOptions<'a>,
        functions: &'a Functions,
    ) -> Job<'a> {
        Job {
            original: model,
            model: model.clone(),
            made: MadeNodes::default(),
            registry,
            options,
            functions,
            required: None,
            bodies: Bodies::new(),
            expected: 0,
            declared: Vec::new(),
            redirected: Vec::new(),
            needs_identity: false,
            refused: Vec::new(),
            places: Places::default(),
            left: HashSet::new(),
            expanded: HashSet::new(),
            report: InlineReport::default(),
        }
    }

    /// Refuses a call without an input that nodes of the function need.
    fn inputs_of_call(&self, call: NodeId) -> Result<(), InlineError> {
        let (Some(required), Some(function)) = (self.required, self.called_by(call)) else {
            return Ok(());
        };
        let missing = required.missing(&self.model, call, function);
        let Some(MissingInput { index, reader }) = missing.first().copied() else { return Ok(()) };
        let original = self.original;
        let body = original.graph(original.functions[function].body);
        let name = body.inputs.get(index).and_then(|info| original.maybe_text(info.name));
        Err(InlineError::NoInput {
            index,
            name: sardonyx_proto::shown(name.unwrap_or_default()),
            reader: place_of_node(original, reader),
        })
    }

    /// Returns the index of the function that a node calls. A copied node calls the function that
    /// the node of the body calls.
    fn called_by(&self, node: NodeId) -> Option<usize> {
        let mut node = node;
        while let Some(MadeFor::Call { call, of }) = self.made.made_for(node) {
            if call == of {
                return None;
            }
            node = of;
        }
        self.functions.called_by(node)
    }

    /// Inlines calls of functions of the model. Returns for each function whether it stays.
    fn functions(&mut self, copies: &Copies) -> Result<Vec<bool>, InlineRefusal> {
        let (original, functions) = (self.original, self.functions);
        self.required = Some(functions.find_required(original, self.registry));
        let wanted = select_functions(original, self.options);
        let mut plans = Plans::new(original, functions, self.registry, copies, wanted);
        let mut all = Vec::new();
        // Callers come first, so that the bodies that they copy have not been changed yet.
        for scope in functions.scopes() {
            let Some(plan) = plans.of(scope) else { continue };
            let function_of = |node| plan.bodies.get(&functions.called_by(node)?).copied();
            self.expect(expand::count_expected(original, &function_of, &plan.calls).nodes)?;
            all.push((scope, plan));
        }
        for (call, why) in std::mem::take(&mut plans.refused) {
            self.refuse(call, &codes::FUNCTION_OPSET_MISMATCH, why);
        }
        let mut converted = BTreeSet::new();
        let expected = usize::try_from(self.expected).unwrap_or_default();
        self.model.reserve(expected);
        self.model.reserve_names(2 * expected);
        self.made.reserve(expected);
        for (scope, plan) in all {
            self.import(scope, plan.imports);
            let copied = plan.bodies.iter().filter(|(function, body)| function != body);
            converted.extend(copied.map(|(function, _)| functions.ids[*function].clone()));
            self.bodies = plan.bodies;
            for call in self.replace(plan.calls) {
                self.called_by(call).into_iter().for_each(|called| plans.keep(called));
            }
            self.import_identity(scope);
        }
        self.report.converted = converted.into_iter().collect();
        self.bodies.clear();
        self.made.place(&mut self.model);
        Ok(plans.stays)
    }

    /// Adds to the expected number of new nodes, which must not exceed the limit.
    fn expect(&mut self, nodes: u64) -> Result<(), InlineRefusal> {
        self.expected = self.expected.saturating_add(nodes);
        let (nodes, limit) = (self.expected, self.options.limit);
        if nodes > limit { Err(InlineRefusal::TooLarge { nodes, limit }) } else { Ok(()) }
    }

    fn refuse(&mut self, node: NodeId, code: &'static Code, fact: String) {
        let origin = self.made.origin(node);
        let fact = if origin == node {
            fact
        } else {
            format!("in its body, {}: {fact}", place_of_node(&self.model, node))
        };
        self.refused.push(Finding {
            code,
            severity: code.severity.unwrap_or(Severity::Error),
            place: self.places.of(self.original, Spot::node(origin)),
            fact,
            advice: code.help.into(),
        });
    }

    fn import(&mut self, scope: Scope, sets: Vec<OperatorSetId>) {
        match scope {
            None => {
                for set in &sets {
                    let domain = self.model.display(set.domain).into_owned();
                    self.report.imported.push((domain, set.version.unwrap_or(0)));
                }
                self.model.header.opset_import.extend(sets);
            }
            Some(function) => self.model.functions[function].opset_import.extend(sets),
        }
    }

    /// Imports `ai.onnx` for added `Identity` nodes, if the scope does not import it, in the newest
    /// version that the format version of the model allows.
    fn import_identity(&mut self, scope: Scope) {
        let is_needed = std::mem::take(&mut self.needs_identity);
        if !is_needed || imports::versions_of(&self.model, scope).contains_key("") {
            return;
        }
        let (oldest, newest) = self.registry.versions("").unwrap_or_default();
        let format = self.model.header.ir_version.unwrap_or(0);
        let fits = |version: &u32| {
            let needed = ir_version_of_opset(b"", i64::from(*version));
            needed.is_some_and(|needed| needed <= format)
        };
        let version = (oldest..=newest).rev().find(fits).unwrap_or(oldest);
        let domain = Some(self.model.intern(""));
        let version = Some(i64::from(version));
        self.import(scope, vec![OperatorSetId { domain, version, ..OperatorSetId::default() }]);
    }

    /// Replaces calls by bodies. Returns the calls that stay because they do not match the
    /// function.
    fn replace(&mut self, calls: Vec<(NodeId, usize)>) -> Vec<NodeId> {
        let ids = &self.functions.ids;
        let mut of_functions = std::mem::take(&mut self.report.functions);
        let mut of_operators = std::mem::take(&mut self.report.operators);
        let mut count = |job: &Self, call: NodeId| match job.called_by(call) {
            Some(function) => {
                *of_functions.entry(ids[function].clone()).or_default() += 1;
            }
            None => {
                let domain = job.model.domain_of(call).into_owned();
                let name = job.model.display(job.model.node(call).op_type).into_owned();
                *of_operators.entry((domain, name)).or_default() += 1;
            }
        };
        let misfits = expand::replace(self, calls, &mut count);
        (self.report.functions, self.report.operators) = (of_functions, of_operators);
        for (call, error) in &misfits {
            let code = match error {
                InlineError::TooManyInputs { .. } | InlineError::TooManyOutputs { .. } => {
                    &codes::CALL_ARGUMENTS
                }
                InlineError::NoInput { .. } => &codes::CALL_WITHOUT_INPUT,
                InlineError::NoOutput { .. } | InlineError::DefaultOfCallee { .. } => {
                    &codes::MALFORMED_NODE
                }
            };
            self.left.insert(*call);
            self.refuse(*call, code, error.to_string());
        }
        misfits.into_iter().map(|(call, _)| call).collect()
    }

    /// Adds the declarations of function bodies to the copied values whose inferred types they fit.
    fn declare(&mut self, scopes: &[Scope]) {
        let mut gone: HashMap<GraphId, HashSet<ValueId>> = HashMap::new();
        for value in std::mem::take(&mut self.redirected) {
            gone.entry(self.model.value(value).graph).or_default().insert(value);
        }
        for (graph, gone) in gone {
            let infos = &mut self.model.graph_mut(graph).value_info;
            infos.retain(|info| info.value.is_none_or(|value| !gone.contains(&value)));
        }
        let mut declared = std::mem::take(&mut self.declared);
        let roots = scopes.iter().flat_map(|scope| roots(&self.model, *scope));
        let graphs: Vec<GraphId> = roots.flat_map(|root| tree(&self.model, root)).collect();
        for graph in graphs {
            let owner = self.model.graph(graph).owner;
            if owner.is_some_and(|owner| self.made.made_for(owner).is_some()) {
                declared.append(&mut self.model.graph_mut(graph).value_info);
            }
        }
        let is_there = |info: &ValueInfo| {
            info.value.is_some_and(|value| self.model.value(value).producer != Producer::Nothing)
        };
        declared.retain(is_there);
        if declared.is_empty() {
            return;
        }
        let found = infer_model(&self.model, self.registry, InferOptions::default());
        let mut known = HashSet::new();
        for info in declared {
            let Some(value) = info.value.filter(|value| known.insert(*value)) else { continue };
            let ty = info.ty.as_ref().and_then(|ty| self.model.type_of(ty));
            let fits = match (&ty, found.ty(value)) {
                (Some(declared), Some(inferred)) => inferred.merge(declared).is_some(),
                _ => true,
            };
            if fits {
                let graph = self.model.value(value).graph;
                self.model.graph_mut(graph).value_info.push(info);
            }
        }
    }

    /// Removes functions without calls.
    fn remove(&mut self, stays: &[bool]) {
        let bodies = self.model.functions.iter().map(|function| function.body);
        let removed = bodies.zip(stays).filter(|(_, stays)| !**stays).map(|(body, _)| body);
        // Counts of nodes and weights cover all graphs of the model, so that these are emptied.
        for graph in removed.flat_map(|body| tree(&self.model, body)).collect::<Vec<_>>() {
            let graph = self.model.graph_mut(graph);
            graph.nodes.clear();
            graph.value_info.clear();
            graph.initializers.clear();
            graph.sparse_initializers.clear();
        }
        let mut index = 0;
        self.model.functions.retain(|_| {
            index += 1;
            stays[index - 1]
        });
        let ids = self.functions.ids.iter().zip(stays);
        self.report.removed = ids.filter(|(_, stays)| !**stays).map(|(id, _)| id.clone()).collect();
    }
}

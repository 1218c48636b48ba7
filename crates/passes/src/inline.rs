//! Inlining: calls of functions, and operators that are functions, become what they do.
//!
//! In all graphs of a model and in the bodies of functions that stay. The result means the same and
//! can be written like any model: every node is in the version that the model, or the function
//! around it, imports. The engine's own expansion ([`crate::expand_calls`]) puts bodies in by the
//! same code; as there each node keeps the version of its body, it needs no imports that fit.

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

use crate::check::codes;
use crate::expand::{self, Expansions, Host};
use crate::finding::{Code, Finding, Places, Severity, Spot, place_of_node};
use crate::function_id::FunctionId;
use crate::infer::{InferOptions, infer_model};
use crate::ir_version::ir_version_of_opset;
use crate::order::tree;
use crate::required::{MissingInput, RequiredInputs};
use crate::resolve::Scope;
use crate::results::{Origins, Rejected};

use plans::{Bodies, Plans, roots};

pub(crate) use imports::Versions;
pub(crate) use plans::{Copies, Functions};
pub(crate) use specialize::{Specialized, is_other, specialize, specialize_to_inline};

/// What is inlined, and what it may cost.
#[derive(Clone, Copy)]
pub struct InlineOptions<'a> {
    /// Which functions of the model.
    pub functions: &'a dyn Fn(&Model, &Function) -> bool,
    /// Which operators of the standard, as far as they are functions.
    pub operators: Option<&'a dyn Fn(OpRef) -> bool>,
    /// Nodes that may be made.
    pub limit: u64,
    /// Whether calls that cannot be inlined stay as they are. Otherwise the model does.
    pub keep_conflicting: bool,
    /// Whether functions are converted that mean something else at the versions that the model
    /// imports. Otherwise their calls cannot be inlined.
    pub convert: bool,
}

impl InlineOptions<'_> {
    /// The default of [`limit`](Self::limit).
    pub const LIMIT: u64 = 10_000_000;
}

impl Default for InlineOptions<'_> {
    /// All functions of the model.
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
    /// Nodes that were to be inlined and are as they were, as there is no body for them.
    #[doc(hidden)]
    pub without_body: Vec<WithoutBody>,
}

/// Nodes of an operator that have no body, all for the same reason.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct WithoutBody {
    /// Domain of the operator; empty for `ai.onnx`.
    pub domain: String,
    /// Its name.
    pub name: String,
    /// How many nodes.
    pub nodes: usize,
    /// The first of them, as messages name it.
    pub first: String,
    /// Whether the standard has a function for other nodes of the operator.
    pub has_function: bool,
    /// Why.
    pub why: String,
}

/// Why a model cannot be inlined.
#[derive(Debug, Clone)]
pub enum InlineRefusal {
    /// Calls that cannot be replaced, or functions that call themselves.
    Findings(Vec<Finding>),
    /// Too many nodes would be made.
    TooLarge {
        /// How many.
        nodes: u64,
        /// How many may be made.
        limit: u64,
    },
    /// A result that has errors which the model does not have.
    Invalid(Box<Rejected>),
}

/// The functions that are to be inlined and mean something else where they are called, by the
/// versions that count there.
pub(crate) fn conflicting(
    model: &Model,
    registry: &Registry,
    options: &InlineOptions<'_>,
    functions: &Functions,
) -> BTreeMap<Versions, BTreeSet<usize>> {
    let (copies, wanted) = (Copies::none(model), wanted(model, options));
    Plans::new(model, functions, registry, &copies, wanted).conflicting()
}

/// Which functions are to be inlined.
fn wanted(model: &Model, options: &InlineOptions<'_>) -> Vec<bool> {
    model.functions.iter().map(|function| (options.functions)(model, function)).collect()
}

/// A model with calls inlined.
#[derive(Debug)]
pub struct Inlining {
    /// The model.
    pub model: Model,
    /// The calls that were inlined, and those that stay.
    pub report: InlineReport,
    /// For which nodes of the model that was given its nodes were made.
    pub origins: Origins,
}

/// A model with calls inlined, and what was done. Its last functions are copies of others in other
/// versions.
///
/// # Errors
///
/// As for [`inline`](crate::inline).
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

/// A model in which these nodes of operators are the bodies of their functions, as far as they have
/// any that mean the same where the nodes are.
pub(crate) struct Expanded {
    pub(crate) model: Model,
    pub(crate) made: MadeNodes,
    /// The nodes that are bodies now.
    pub(crate) nodes: HashSet<NodeId>,
}

/// Puts the bodies of their functions into the places of these nodes of operators.
///
/// # Errors
///
/// As for [`inline`]; a node that has no such body stays.
pub(crate) fn expand_nodes(
    model: &Model,
    registry: &Registry,
    nodes: &HashSet<NodeId>,
) -> Result<Expanded, InlineRefusal> {
    let functions = Functions::of(model, registry)?;
    // What is in the place of a node here is converted by who asks for it.
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
    /// Inputs of functions that calls cannot leave out. `None` while nodes become bodies that are
    /// no functions of the model.
    required: Option<&'a RequiredInputs>,
    /// What takes the place of calls in the scope at hand.
    bodies: Bodies,
    /// Nodes that come in the place of all calls so far.
    expected: u64,
    /// What functions declare of values, for the copies.
    declared: Vec<ValueInfo>,
    /// Outputs of calls that are gone.
    redirected: Vec<ValueId>,
    /// Whether nodes were made in the scope at hand that hand on a value.
    needs_identity: bool,
    refused: Vec<Finding>,
    places: Places,
    /// Nodes of operators that were refused.
    left: HashSet<NodeId>,
    /// Nodes of operators that are bodies now.
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

    /// Refuses a call that leaves out what nodes of the function need.
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

    /// The function that a node calls, by position: of a copy, what the node of the body calls.
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

    /// Inlines calls of functions of the model. Says which functions stay.
    fn functions(&mut self, copies: &Copies) -> Result<Vec<bool>, InlineRefusal> {
        let (original, functions) = (self.original, self.functions);
        self.required = Some(functions.required(original, self.registry));
        let wanted = wanted(original, self.options);
        let mut plans = Plans::new(original, functions, self.registry, copies, wanted);
        let mut all = Vec::new();
        // Callers come first: a body that is copied is still as it was.
        for scope in functions.scopes() {
            let Some(plan) = plans.of(scope) else { continue };
            let function_of = |node| plan.bodies.get(&functions.called_by(node)?).copied();
            self.expect(expand::expected(original, &function_of, &plan.calls).nodes)?;
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

    /// Counts nodes before they are made.
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

    /// Imports the operator set of nodes that only hand on a value, where there are some and the
    /// scope has none: in the newest version that the format of the model may have.
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

    /// Puts bodies into the place of calls. Gives those that stay, as they do not fit.
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

    /// Writes down what functions declare of values in their bodies, where it is so in the call.
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

    /// Removes functions that nothing calls any more.
    fn remove(&mut self, stays: &[bool]) {
        let bodies = self.model.functions.iter().map(|function| function.body);
        let removed = bodies.zip(stays).filter(|(_, stays)| !**stays).map(|(body, _)| body);
        // What counts nodes or weights of the model looks at all graphs that there are.
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

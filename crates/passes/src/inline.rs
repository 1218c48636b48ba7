//! Inlining: calls of functions, and operators that are functions, become what they do.
//!
//! In all graphs of a model and in the bodies of functions that stay. The result means the same and
//! can be written like any model: every node is in the version that the model, or the function
//! around it, imports. The engine's own expansion ([`crate::expand_calls`]) puts bodies in by the
//! same code; as there each node keeps the version of its body, it needs no imports that fit.

mod imports;
mod plans;

use std::collections::BTreeMap;
use std::fmt;

use hashbrown::{HashMap, HashSet};
use sardonyx_model::{
    Function, GraphId, InlineError, Inlined, MadeNodes, Model, NodeBuilder, NodeId, OperatorSetId,
    Producer, Type, ValueId, ValueInfo,
};
use sardonyx_ops::{OpRef, Registry};
use sardonyx_tensor::Buffer;
use sardonyx_text::{ParseOptions, parse_function};

use crate::check::codes;
use crate::expand::{self, Expansions, Host, function_of_call, nodes_of_tree};
use crate::finding::{Code, Finding, Spot, place_of_node};
use crate::function_id::FunctionId;
use crate::infer::{InferOptions, infer_everywhere, infer_model};
use crate::order::tree;
use crate::resolve::Scope;

use imports::{Body, Imports};
use plans::{Functions, Plans, roots};

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

/// What was done.
#[derive(Debug, Clone, Default)]
pub struct InlineReport {
    /// How many calls of each function of the model became its body, those in bodies too.
    pub functions: BTreeMap<FunctionId, usize>,
    /// How many nodes of operators became the body of their function, by domain and name.
    pub operators: Expansions,
    /// Functions that were removed, as nothing calls them any more.
    pub removed: Vec<FunctionId>,
    /// Why calls stay that were to be inlined.
    pub kept: Vec<Finding>,
    /// Operator sets that the model imports now, with their versions.
    pub imported: Vec<(String, i64)>,
    /// Functions whose bodies were converted to the versions that the model imports.
    pub converted: Vec<FunctionId>,
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
}

/// The functions that are to be inlined in graphs of the model and mean something else at its
/// versions, by position.
///
/// # Errors
///
/// Functions that call themselves, and two of the same id.
pub(crate) fn conflicting(
    model: &Model,
    registry: &Registry,
    options: &InlineOptions<'_>,
) -> Result<Vec<usize>, InlineRefusal> {
    let functions = Functions::new(model).map_err(InlineRefusal::Findings)?;
    Ok(Plans::new(model, &functions, registry, wanted(model, options)).conflicting())
}

/// Which functions are to be inlined.
fn wanted(model: &Model, options: &InlineOptions<'_>) -> Vec<bool> {
    model.functions.iter().map(|function| (options.functions)(model, function)).collect()
}

/// A model with calls inlined, and what was done; no function is converted.
///
/// # Errors
///
/// As for [`inline`](crate::inline).
pub(crate) fn inline_as_they_are(
    model: &Model,
    registry: &Registry,
    options: &InlineOptions<'_>,
) -> Result<(Model, InlineReport), InlineRefusal> {
    let functions = Functions::new(model).map_err(InlineRefusal::Findings)?;
    let mut job = Job::new(model, registry, options, &functions);
    let stays = job.functions()?;
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
    Ok((job.model, job.report))
}

/// A model in which these nodes of operators are the bodies of their functions, as far as they have
/// any that mean the same where the nodes are.
pub(crate) struct Expanded {
    pub(crate) model: Model,
    pub(crate) made: MadeNodes,
    /// The nodes that are bodies now.
    pub(crate) nodes: HashSet<NodeId>,
    /// Their operators.
    pub(crate) operators: Expansions,
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
    let functions = Functions::new(model).map_err(InlineRefusal::Findings)?;
    let options = InlineOptions::default();
    let mut job = Job::new(model, registry, &options, &functions);
    let scopes: Vec<Scope> =
        std::iter::once(None).chain((0..model.functions.len()).map(Some)).collect();
    job.operators(&|node, _| nodes.contains(&node), &scopes)?;
    job.declare(&scopes);
    let Job { model, made, expanded, report, .. } = job;
    Ok(Expanded { model, made, nodes: expanded, operators: report.operators })
}

struct Job<'a> {
    original: &'a Model,
    model: Model,
    made: MadeNodes,
    registry: &'a Registry,
    options: &'a InlineOptions<'a>,
    functions: &'a Functions,
    /// Functions that take the place of their calls in the scope at hand.
    inlined: HashSet<usize>,
    /// Nodes that come in the place of all calls so far.
    expected: u64,
    /// What functions declare of values, for the copies.
    declared: Vec<ValueInfo>,
    /// Outputs of calls that are gone.
    redirected: Vec<ValueId>,
    refused: Vec<Finding>,
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
        let function = self.functions.called_by(&self.model, node)?;
        self.inlined.contains(&function).then_some(function)
    }

    fn inline(&mut self, call: NodeId, function: usize) -> Result<Vec<NodeId>, InlineError> {
        let inlined = NodeBuilder::new(&mut self.model, &mut self.made, call).inline(function)?;
        let Inlined { copied, declared, redirected } = inlined;
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
            inlined: HashSet::new(),
            expected: 0,
            declared: Vec::new(),
            redirected: Vec::new(),
            refused: Vec::new(),
            left: HashSet::new(),
            expanded: HashSet::new(),
            report: InlineReport::default(),
        }
    }

    /// Inlines calls of functions of the model. Says which functions stay.
    fn functions(&mut self) -> Result<Vec<bool>, InlineRefusal> {
        let (original, functions) = (self.original, self.functions);
        let wanted = wanted(original, self.options);
        let mut plans = Plans::new(original, functions, self.registry, wanted);
        let mut all = Vec::new();
        // Callers come first: a body that is copied is still as it was.
        for scope in functions.scopes() {
            let Some(plan) = plans.of(scope) else { continue };
            let function_of = |node| {
                let function = functions.called_by(original, node)?;
                plan.inlined.contains(&function).then_some(function)
            };
            self.expect(expand::expected(original, &function_of, &plan.calls).nodes)?;
            all.push((scope, plan));
        }
        self.refused.append(&mut plans.refused);
        for (scope, plan) in all {
            self.import(scope, plan.imports);
            self.inlined = plan.inlined;
            for call in self.replace(plan.calls) {
                let called = functions.called_by(&self.model, call);
                called.into_iter().for_each(|called| plans.keep(called));
            }
        }
        self.inlined.clear();
        self.made.place(&mut self.model);
        Ok(plans.stays)
    }

    /// Inlines nodes of operators, but not those that come in their place. Whether there were any.
    fn operators(
        &mut self,
        wanted: &dyn Fn(NodeId, OpRef) -> bool,
        scopes: &[Scope],
    ) -> Result<bool, InlineRefusal> {
        let (registry, functions) = (self.registry, self.functions);
        let types = infer_everywhere(&self.model, registry, InferOptions::default());
        let before = self.model.functions.len();
        // Many nodes have few bodies.
        let mut bodies: HashMap<String, usize> = HashMap::new();
        let mut calls = Vec::new();
        for scope in scopes {
            let mut imports = Imports::of(&self.model, *scope);
            let mut fits: HashMap<usize, Result<(), String>> = HashMap::new();
            let roots = roots(&self.model, *scope).into_iter();
            let nodes = roots.flat_map(|root| nodes_of_tree(&self.model, root));
            let nodes: Vec<NodeId> = nodes.filter(|node| !self.left.contains(node)).collect();
            for node in nodes {
                let op = imports.operator(&self.model, registry, node);
                let Some(op) = op.filter(|op| wanted(node, *op)) else { continue };
                if functions.called_by(&self.model, node).is_some() {
                    continue;
                }
                let model = &self.model;
                let ty = |value: Option<ValueId>| types.ty(value?).cloned();
                let inputs: Vec<Option<Type>> = model.inputs(node).map(ty).collect();
                // In the version of the scope if the body means the same there.
                let text = function_of_call(model, registry, node, &inputs, op.opset)
                    .or_else(|| expand::expansion(model, registry, node, &inputs, op));
                let Some(text) = text else { continue };
                let function = match bodies.get(&text) {
                    Some(function) => *function,
                    None => {
                        let function = self.read_body(node, &text)?;
                        bodies.insert(text, function);
                        function
                    }
                };
                let fits = fits.entry(function).or_insert_with(|| {
                    let body = Body { function, is_operator: true };
                    imports.take(&self.model, registry, functions, body, &HashSet::new())
                });
                if let Err(why) = fits {
                    let why = why.clone();
                    self.left.insert(node);
                    self.refuse(node, &codes::FUNCTION_OPSET_MISMATCH, why);
                    continue;
                }
                let size = expand::expected(&self.model, &|_| None, &[(node, function)]);
                self.expect(size.nodes)?;
                expand::give_defaults(&mut self.model, node, op);
                calls.push((node, function));
            }
            self.import(*scope, imports.added);
        }
        let are_some = !calls.is_empty();
        self.expanded.extend(calls.iter().map(|(node, _)| *node));
        for misfit in self.replace(calls) {
            self.expanded.remove(&misfit);
        }
        self.made.place(&mut self.model);
        self.model.functions.truncate(before);
        Ok(are_some)
    }

    /// Reads the body of an operator into the model.
    fn read_body(&mut self, node: NodeId, text: &str) -> Result<usize, InlineRefusal> {
        let buffer = Buffer::from_vec(text.as_bytes().to_vec());
        match parse_function(&mut self.model, buffer, ParseOptions::default()) {
            Ok(_) => Ok(self.model.functions.len() - 1),
            Err(error) => {
                let fact = format!("its function cannot be read: {error}");
                self.refuse(node, &codes::MALFORMED_NODE, fact);
                Err(InlineRefusal::Findings(std::mem::take(&mut self.refused)))
            }
        }
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
        self.refused.push(Finding::new(self.original, code, Spot::node(origin), fact));
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

    /// Puts bodies into the place of calls. Gives those that stay, as they do not fit.
    fn replace(&mut self, calls: Vec<(NodeId, usize)>) -> Vec<NodeId> {
        let functions = self.functions;
        let mut of_functions = std::mem::take(&mut self.report.functions);
        let mut of_operators = std::mem::take(&mut self.report.operators);
        let mut count = |model: &Model, call: NodeId| match functions.called_by(model, call) {
            Some(function) => {
                *of_functions.entry(functions.ids[function].clone()).or_default() += 1;
            }
            None => {
                let domain = model.domain_of(call).into_owned();
                let name = model.display(model.node(call).op_type).into_owned();
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

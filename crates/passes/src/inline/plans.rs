//! Plans of inlining: the calls that are inlined in each scope, and the functions that stay.

use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet};

use hashbrown::{HashMap, HashSet};
use sardonyx_model::{Attribute, GraphId, Id, Model, NodeId, OperatorSetId};
use sardonyx_ops::Registry;

use super::InlineRefusal;
use super::imports::{Conflict, Imports, Versions, is_operator, versions_of};
use crate::codes;
use crate::expand::{callees, nodes_of};
use crate::finding::{Finding, Spot};
use crate::function_id::{FunctionId, FunctionKey, function_key, functions_by_key};
use crate::order::nodes_of_tree;
use crate::required::{Called, RequiredInputs};
use crate::resolve::Scope;

/// Functions of a model and their call graph.
pub(crate) struct Functions {
    /// Index of the function that each node calls.
    called_by: Vec<Option<u32>>,
    pub(super) ids: Vec<FunctionId>,
    /// Functions that each function calls.
    callees: Vec<Vec<usize>>,
    /// All functions, each after the functions that it calls.
    order: Vec<usize>,
    /// Inputs that calls must have, computed when they are first read.
    required: OnceCell<RequiredInputs>,
}

impl Functions {
    /// Collects the functions of a model without copies.
    ///
    /// # Errors
    ///
    /// A function that calls itself, or two functions with equal ids.
    pub(crate) fn of(model: &Model, registry: &Registry) -> Result<Functions, InlineRefusal> {
        let functions = Functions::new(model, registry, &Copies::none(model));
        functions.map_err(InlineRefusal::Findings)
    }

    /// Collects the functions of a model. The last ones are copies without calls.
    ///
    /// # Errors
    ///
    /// A function that calls itself, or two functions with equal ids.
    pub(crate) fn new(
        model: &Model,
        registry: &Registry,
        copies: &Copies,
    ) -> Result<Functions, Vec<Finding>> {
        let count = copies.functions;
        let by_key = functions_by_key(model).map_err(|finding| vec![*finding])?;
        let mut called_by: Vec<Option<u32>> = Vec::new();
        if !by_key.is_empty() {
            called_by.resize(model.node_count(), None);
            for scope in std::iter::once(None).chain((0..model.functions.len()).map(Some)) {
                find_called(model, registry, &by_key, scope, &mut called_by);
            }
        }
        let mut functions = Functions {
            called_by,
            ids: model.functions.iter().take(count).map(|f| FunctionId::of(model, f)).collect(),
            callees: Vec::new(),
            order: Vec::new(),
            required: OnceCell::new(),
        };
        let called_by = |node| functions.called_by(node);
        functions.callees = (0..count).map(|index| callees(model, index, &called_by)).collect();
        match functions.sort() {
            Ok(order) => Ok(Functions { order, ..functions }),
            Err(function) => {
                let spot = Spot::function(function);
                let fact = "it calls itself";
                Err(vec![Finding::new(model, &codes::RECURSIVE_FUNCTION, spot, fact)])
            }
        }
    }

    /// Returns the index of the function that a node of the file calls.
    pub(super) fn called_by(&self, node: NodeId) -> Option<usize> {
        self.called_by.get(node.index()).copied().flatten().map(|function| function as usize)
    }

    /// Returns the inputs that calls of the functions must have. `model` is their model.
    pub(super) fn find_required(&self, model: &Model, registry: &Registry) -> &RequiredInputs {
        self.required.get_or_init(|| find_required(model, self, registry))
    }

    /// Returns the functions that the model or its functions call, with duplicates.
    pub(super) fn all_called(&self, model: &Model) -> impl Iterator<Item = usize> {
        let main = roots(model, None).into_iter().flat_map(|root| nodes_of_tree(model, root));
        let called = main.filter_map(|node| self.called_by(node));
        called.chain(self.callees.iter().flatten().copied())
    }

    /// Returns the model and then its functions, each before the functions that it calls.
    pub(super) fn scopes(&self) -> impl Iterator<Item = Scope> {
        std::iter::once(None).chain(self.order.iter().rev().copied().map(Some))
    }

    /// Returns all functions, each after the functions that it calls. The error is a function that
    /// calls itself. Does not recurse, as calls may be nested deeply.
    fn sort(&self) -> Result<Vec<usize>, usize> {
        let mut order = Vec::with_capacity(self.callees.len());
        // `Some(false)` for a function on the current path, `Some(true)` for one in `order`.
        let mut done: Vec<Option<bool>> = vec![None; self.callees.len()];
        for start in 0..self.callees.len() {
            if done[start].is_some() {
                continue;
            }
            done[start] = Some(false);
            let mut path = vec![(start, 0)];
            while let Some((function, next)) = path.last_mut() {
                match self.callees[*function].get(*next).copied() {
                    Some(callee) => {
                        *next += 1;
                        match done[callee] {
                            Some(false) => return Err(callee),
                            Some(true) => {}
                            None => {
                                done[callee] = Some(false);
                                path.push((callee, 0));
                            }
                        }
                    }
                    None => {
                        done[*function] = Some(true);
                        order.push(*function);
                        path.pop();
                    }
                }
            }
        }
        Ok(order)
    }
}

/// Finds the functions that the nodes of a scope call. As in the engine, a name means an operator
/// if the operator set of the scope has it, and a function otherwise.
fn find_called(
    model: &Model,
    registry: &Registry,
    by_key: &HashMap<FunctionKey, usize>,
    scope: Scope,
    called_by: &mut [Option<u32>],
) {
    let versions = versions_of(model, scope);
    let mut kinds: HashMap<FunctionKey, Option<u32>> = HashMap::new();
    for node in roots(model, scope).into_iter().flat_map(|root| nodes_of_tree(model, root)) {
        let found = model.node(node);
        let kind = (found.domain, found.op_type, found.overload);
        called_by[node.index()] = *kinds.entry(kind).or_insert_with(|| {
            let key = function_key(model, found.domain, found.op_type, found.overload);
            let function = *by_key.get(&key)?;
            let (domain, name) = (model.domain_of(node), model.display(found.op_type));
            let version = versions.get(&*domain).copied().unwrap_or(0);
            (!is_operator(registry, &domain, &name, version)).then_some(function as u32)
        });
    }
}

/// Finds the inputs that calls of the functions of a model must have.
fn find_required(model: &Model, functions: &Functions, registry: &Registry) -> RequiredInputs {
    let mut versions = (usize::MAX, HashMap::new());
    RequiredInputs::new(model, functions.ids.len(), |index, node| {
        if let Some(function) = functions.called_by(node) {
            return Called::Function(function);
        }
        if versions.0 != index {
            versions = (index, versions_of(model, Some(index)));
        }
        let domain = model.domain_of(node);
        let version = versions.1.get(&*domain).and_then(|version| u32::try_from(*version).ok());
        let name = model.display(model.node(node).op_type);
        let op = version.and_then(|version| registry.op_ref(&domain, &name, version));
        op.map_or(Called::Unknown, |op| Called::Operator(op.schema))
    })
}

/// Functions that are inlined in a scope, also from bodies, each with the function whose body
/// replaces the call: the function itself, or a converted copy.
pub(super) type Bodies = HashMap<usize, usize>;

/// Copies of functions in other versions, the last functions of a model.
pub(crate) struct Copies {
    /// Number of functions before the copies.
    functions: usize,
    /// Copies by function and version.
    by_versions: HashMap<(usize, Versions), usize>,
}

impl Copies {
    /// Creates an empty set of copies.
    pub(crate) fn none(model: &Model) -> Copies {
        Copies { functions: model.functions.len(), by_versions: HashMap::new() }
    }

    /// Adds copies of functions at `versions`, as pairs of the function and its copy.
    pub(crate) fn add(&mut self, versions: &Versions, copies: Vec<(usize, usize)>) {
        let copies = copies.into_iter().map(|(f, copy)| ((f, versions.clone()), copy));
        self.by_versions.extend(copies);
    }

    fn get(&self, function: usize, versions: &Versions) -> Option<usize> {
        self.by_versions.get(&(function, versions.clone())).copied()
    }
}

/// Changes of one scope.
pub(super) struct Plan {
    /// Calls with the functions whose bodies replace them. Calls in subgraphs follow calls around
    /// them.
    pub(super) calls: Vec<(NodeId, usize)>,
    /// Bodies that replace calls.
    pub(super) bodies: Bodies,
    /// Operator sets to import in the scope.
    pub(super) imports: Vec<OperatorSetId>,
}

/// Functions that can be inlined in a scope, and functions that cannot.
struct Fit {
    /// Operator sets that the bodies need and the scope does not import.
    imports: Vec<OperatorSetId>,
    bodies: Bodies,
    /// Reasons why other functions cannot be inlined.
    conflicts: HashMap<usize, Conflict>,
}

/// State of the plans for all scopes.
pub(super) struct Plans<'a> {
    model: &'a Model,
    functions: &'a Functions,
    registry: &'a Registry,
    copies: &'a Copies,
    /// Whether each function is selected for inlining.
    wanted: Vec<bool>,
    /// Whether each function stays, as far as the scopes so far decide.
    pub(super) stays: Vec<bool>,
    /// Calls that cannot be inlined, with the reasons.
    pub(super) refused: Vec<(NodeId, String)>,
}

impl<'a> Plans<'a> {
    pub(super) fn new(
        model: &'a Model,
        functions: &'a Functions,
        registry: &'a Registry,
        copies: &'a Copies,
        wanted: Vec<bool>,
    ) -> Plans<'a> {
        // A function that nothing calls stays, unless it is a copy.
        let mut stays = vec![false; model.functions.len()];
        stays[..functions.ids.len()].fill(true);
        for called in functions.all_called(model) {
            stays[called] = false;
        }
        Plans { model, functions, registry, copies, wanted, stays, refused: Vec::new() }
    }

    /// Makes the plan of a scope; `None` for a function that does not stay. Scopes that call a
    /// function must be planned before it.
    pub(super) fn of(&mut self, scope: Scope) -> Option<Plan> {
        if scope.is_some_and(|function| !self.stays[function]) {
            return None;
        }
        let mut calls = self.calls(scope);
        let Fit { imports, bodies, conflicts } = self.fit(scope, &calls);
        self.settle(&calls, &bodies, conflicts);
        calls.retain_mut(|(_, function)| match bodies.get(function) {
            Some(body) => {
                *function = *body;
                true
            }
            None => false,
        });
        Some(Plan { calls, bodies, imports })
    }

    /// Determines which of the functions that calls in a scope reach can be inlined there.
    fn fit(&self, scope: Scope, calls: &[(NodeId, usize)]) -> Fit {
        let (model, functions) = (self.model, self.functions);
        let reached = self.find_reached(calls);
        let mut imports = Imports::of(model, scope);
        let mut bodies = Bodies::new();
        let mut conflicts: HashMap<usize, Conflict> = HashMap::new();
        for function in functions.order.iter().copied().filter(|f| reached.contains(f)) {
            let mut take = |body: usize| {
                let inlined = |callee: usize| bodies.contains_key(&callee);
                imports.take(model, self.registry, functions, body, inlined)
            };
            let body = match take(function) {
                Ok(()) => Ok(function),
                Err(conflict) => match self.copies.get(function, &conflict.wanted) {
                    Some(copy) => take(copy).map(|()| copy),
                    None => Err(conflict),
                },
            };
            match body {
                Ok(body) => {
                    bodies.insert(function, body);
                }
                Err(conflict) => {
                    conflicts.insert(function, conflict);
                }
            }
        }
        Fit { imports: imports.added, bodies, conflicts }
    }

    /// Returns the functions to be inlined in scopes where their operators differ, by the versions
    /// that they need there.
    pub(super) fn conflicting(&mut self) -> BTreeMap<Versions, BTreeSet<usize>> {
        let mut conflicting: BTreeMap<Versions, BTreeSet<usize>> = BTreeMap::new();
        for scope in self.functions.scopes() {
            if scope.is_some_and(|function| !self.stays[function]) {
                continue;
            }
            let calls = self.calls(scope);
            let Fit { bodies, conflicts, .. } = self.fit(scope, &calls);
            for (function, conflict) in &conflicts {
                if !conflict.wanted.is_empty() && !self.becomes_operator(*function, conflict) {
                    conflicting.entry(conflict.wanted.clone()).or_default().insert(*function);
                }
            }
            self.settle(&calls, &bodies, conflicts);
        }
        conflicting
    }

    /// Whether a function calls another function whose name belongs to an operator at the versions
    /// of the scope.
    fn becomes_operator(&self, function: usize, conflict: &Conflict) -> bool {
        let model = self.model;
        let mut called =
            nodes_of(model, function).filter(|node| self.functions.called_by(*node).is_some());
        called.any(|node| {
            let domain = model.domain_of(node);
            let name = model.display(model.node(node).op_type);
            let wanted = conflict.wanted.get(&*domain);
            wanted.is_some_and(|version| {
                is_operator(self.registry, &domain, &name, i64::from(*version))
            })
        })
    }

    /// Returns the calls of functions in a scope.
    fn calls(&self, scope: Scope) -> Vec<(NodeId, usize)> {
        let (model, functions) = (self.model, self.functions);
        let nodes = roots(model, scope).into_iter().flat_map(|root| nodes_of_tree(model, root));
        nodes.filter_map(|node| Some((node, functions.called_by(node)?))).collect()
    }

    /// Marks a function and all functions that it calls as staying.
    pub(super) fn keep(&mut self, function: usize) {
        let mut open = vec![function];
        while let Some(function) = open.pop() {
            if !std::mem::replace(&mut self.stays[function], true) {
                open.extend(&self.functions.callees[function]);
            }
        }
    }

    /// Returns the selected functions that calls reach, also through each other.
    fn find_reached(&self, calls: &[(NodeId, usize)]) -> HashSet<usize> {
        let mut reached = HashSet::new();
        let mut open: Vec<usize> = calls.iter().map(|(_, function)| *function).collect();
        while let Some(function) = open.pop() {
            if self.wanted[function] && reached.insert(function) {
                open.extend(&self.functions.callees[function]);
            }
        }
        reached
    }

    /// Records the functions that stay, and the reasons for those that are selected.
    fn settle(
        &mut self,
        calls: &[(NodeId, usize)],
        bodies: &Bodies,
        mut conflicts: HashMap<usize, Conflict>,
    ) {
        let model = self.model;
        let mut seen = HashSet::new();
        let mut open: Vec<(NodeId, usize)> = calls.iter().rev().copied().collect();
        while let Some((call, function)) = open.pop() {
            if !seen.insert(function) {
                continue;
            }
            if bodies.contains_key(&function) {
                let nodes = nodes_of(model, function);
                open.extend(nodes.filter_map(|node| Some((node, self.functions.called_by(node)?))));
                continue;
            }
            self.stays[function] = true;
            if let Some(conflict) = conflicts.remove(&function) {
                self.refused.push((call, conflict.why));
            }
        }
    }
}

/// Returns the graphs of a scope that are not in a node: the main graph and the graphs of training
/// steps, or the body of a function and the graphs that are defaults of its attributes.
pub(super) fn roots(model: &Model, scope: Scope) -> Vec<GraphId> {
    match scope {
        None => {
            let training = model.training_info.iter();
            let training =
                training.flat_map(|step| step.initialization.into_iter().chain(step.algorithm));
            model.main.into_iter().chain(training).collect()
        }
        Some(function) => {
            let function = &model.functions[function];
            let defaults = function.attribute_protos.iter().flat_map(Attribute::graphs);
            std::iter::once(function.body).chain(defaults).collect()
        }
    }
}

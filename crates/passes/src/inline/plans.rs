//! What becomes of the calls of functions: which are inlined where, and which functions stay.

use hashbrown::{HashMap, HashSet};
use sardonyx_model::{Attribute, GraphId, Model, NodeId, OperatorSetId};
use sardonyx_ops::Registry;

use super::imports::{Body, Imports};
use crate::check::codes;
use crate::expand::{callees, nodes_of, nodes_of_tree};
use crate::finding::{Finding, Spot};
use crate::function_id::{FunctionId, FunctionKey, function_key, functions_by_key};
use crate::resolve::Scope;

/// The functions of a model, and which calls which.
pub(super) struct Functions {
    by_key: HashMap<FunctionKey, usize>,
    pub(super) ids: Vec<FunctionId>,
    /// By function: those that it calls.
    callees: Vec<Vec<usize>>,
    /// All functions, each after those that it calls.
    order: Vec<usize>,
}

impl Functions {
    /// Looks at the functions of a model.
    ///
    /// # Errors
    ///
    /// Functions that call themselves, and two of the same id.
    pub(super) fn new(model: &Model) -> Result<Functions, Vec<Finding>> {
        let mut functions = Functions {
            by_key: functions_by_key(model).map_err(|finding| vec![*finding])?,
            ids: model.functions.iter().map(|f| FunctionId::of(model, f)).collect(),
            callees: Vec::new(),
            order: Vec::new(),
        };
        let called_by = |node| functions.called_by(model, node);
        let all = 0..model.functions.len();
        let callees = all.map(|index| callees(model, index, &called_by)).collect();
        functions.callees = callees;
        match functions.sorted() {
            Ok(order) => Ok(Functions { order, ..functions }),
            Err(function) => {
                let spot = Spot::function(function);
                let fact = "it calls itself";
                Err(vec![Finding::new(model, &codes::RECURSIVE_FUNCTION, spot, fact)])
            }
        }
    }

    /// The function that a node calls, by position.
    pub(super) fn called_by(&self, model: &Model, node: NodeId) -> Option<usize> {
        if self.by_key.is_empty() {
            return None;
        }
        let found = model.node(node);
        let key = function_key(model, found.domain, found.op_type, found.overload);
        self.by_key.get(&key).copied()
    }

    /// The model, then its functions, each before those that it calls.
    pub(super) fn scopes(&self) -> impl Iterator<Item = Scope> {
        std::iter::once(None).chain(self.order.iter().rev().copied().map(Some))
    }

    /// All functions, each after those that it calls, or one that calls itself. Not by recursion:
    /// calls may go deep.
    fn sorted(&self) -> Result<Vec<usize>, usize> {
        let mut order = Vec::with_capacity(self.callees.len());
        // By function that was seen: whether it is done.
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

/// What is done in one scope.
pub(super) struct Plan {
    /// Calls, those in graphs of nodes after those around them.
    pub(super) calls: Vec<(NodeId, usize)>,
    /// The functions that take the place of their calls, also of calls that come from bodies.
    pub(super) inlined: HashSet<usize>,
    /// Operator sets that the scope needs then.
    pub(super) imports: Vec<OperatorSetId>,
}

/// Whether functions may come into a scope.
struct Fit {
    /// Operator sets that the scope needs for those that may.
    imports: Vec<OperatorSetId>,
    inlined: HashSet<usize>,
    /// Why the others may not.
    conflicts: HashMap<usize, String>,
}

/// Plans for all scopes.
pub(super) struct Plans<'a> {
    model: &'a Model,
    functions: &'a Functions,
    registry: &'a Registry,
    /// Which functions are to be inlined.
    wanted: Vec<bool>,
    /// Which functions stay, as far as the scopes before say.
    pub(super) stays: Vec<bool>,
    /// Calls that cannot be inlined.
    pub(super) refused: Vec<Finding>,
}

impl<'a> Plans<'a> {
    pub(super) fn new(
        model: &'a Model,
        functions: &'a Functions,
        registry: &'a Registry,
        wanted: Vec<bool>,
    ) -> Plans<'a> {
        // A function that nothing calls stays.
        let mut stays = vec![true; model.functions.len()];
        let main = roots(model, None).into_iter().flat_map(|root| nodes_of_tree(model, root));
        let called = main.filter_map(|node| functions.called_by(model, node));
        for called in called.chain(functions.callees.iter().flatten().copied()) {
            stays[called] = false;
        }
        Plans { model, functions, registry, wanted, stays, refused: Vec::new() }
    }

    /// What is done in a scope; nothing if it is a function that does not stay. Those that call it
    /// were asked for before.
    pub(super) fn of(&mut self, scope: Scope) -> Option<Plan> {
        if scope.is_some_and(|function| !self.stays[function]) {
            return None;
        }
        let mut calls = self.calls(scope);
        let Fit { imports, inlined, conflicts } = self.fit(scope, &calls);
        self.settle(&calls, &inlined, conflicts);
        calls.retain(|(_, function)| inlined.contains(function));
        Some(Plan { calls, inlined, imports })
    }

    /// Which functions that calls in a scope reach mean the same there.
    fn fit(&self, scope: Scope, calls: &[(NodeId, usize)]) -> Fit {
        let (model, functions) = (self.model, self.functions);
        let reached = self.reached(calls);
        let mut imports = Imports::of(model, scope);
        let mut inlined = HashSet::new();
        let mut conflicts: HashMap<usize, String> = HashMap::new();
        for function in functions.order.iter().copied().filter(|f| reached.contains(f)) {
            let body = Body { function, is_operator: false };
            match imports.take(model, self.registry, functions, body, &inlined) {
                Ok(()) => {
                    inlined.insert(function);
                }
                Err(why) => {
                    conflicts.insert(function, why);
                }
            }
        }
        Fit { imports: imports.added, inlined, conflicts }
    }

    /// The functions that the graphs of the model reach and that mean something else at its
    /// versions, in the order in which they are listed.
    pub(super) fn conflicting(&self) -> Vec<usize> {
        let fit = self.fit(None, &self.calls(None));
        let mut conflicting: Vec<usize> = fit.conflicts.into_keys().collect();
        conflicting.sort_unstable();
        conflicting
    }

    /// The calls of functions in a scope.
    fn calls(&self, scope: Scope) -> Vec<(NodeId, usize)> {
        let (model, functions) = (self.model, self.functions);
        let nodes = roots(model, scope).into_iter().flat_map(|root| nodes_of_tree(model, root));
        nodes.filter_map(|node| Some((node, functions.called_by(model, node)?))).collect()
    }

    /// Lets a function stay, with all that it calls.
    pub(super) fn keep(&mut self, function: usize) {
        let mut open = vec![function];
        while let Some(function) = open.pop() {
            if !std::mem::replace(&mut self.stays[function], true) {
                open.extend(&self.functions.callees[function]);
            }
        }
    }

    /// The functions that are to be inlined, which calls reach through each other.
    fn reached(&self, calls: &[(NodeId, usize)]) -> HashSet<usize> {
        let mut reached = HashSet::new();
        let mut open: Vec<usize> = calls.iter().map(|(_, function)| *function).collect();
        while let Some(function) = open.pop() {
            if self.wanted[function] && reached.insert(function) {
                open.extend(&self.functions.callees[function]);
            }
        }
        reached
    }

    /// Notes which functions stay, and why those that were to be inlined do.
    fn settle(
        &mut self,
        calls: &[(NodeId, usize)],
        inlined: &HashSet<usize>,
        mut conflicts: HashMap<usize, String>,
    ) {
        let model = self.model;
        let mut seen = HashSet::new();
        let mut open: Vec<(NodeId, usize)> = calls.iter().rev().copied().collect();
        while let Some((call, function)) = open.pop() {
            if !seen.insert(function) {
                continue;
            }
            if inlined.contains(&function) {
                let nodes = nodes_of(model, function);
                open.extend(
                    nodes.filter_map(|node| Some((node, self.functions.called_by(model, node)?))),
                );
                continue;
            }
            self.stays[function] = true;
            if let Some(why) = conflicts.remove(&function) {
                let spot = Spot::node(call);
                let found = Finding::new(model, &codes::FUNCTION_OPSET_MISMATCH, spot, why);
                self.refused.push(found);
            }
        }
    }
}

/// The graphs of a scope that are in no node: the main graph and those of training steps, or the
/// body of a function with the graphs that are defaults of its attributes.
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

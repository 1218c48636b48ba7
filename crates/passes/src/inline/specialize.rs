//! Specialized functions for calls that omit inputs.
//!
//! The nodes that replace a node of an operator depend on which of its inputs exist. In the body of
//! a function, this depends on the call. Calls that omit the same inputs therefore get their own
//! function, in which no node reads these inputs. If all calls of a function omit the same inputs,
//! the function itself is changed; otherwise calls get copies of it.

use std::collections::{BTreeMap, BTreeSet};

use hashbrown::{HashMap, HashSet};
use sardonyx_model::{Function, Model, NodeId, Producer, ValueId};
use sardonyx_ops::{OpRef, Registry};

use super::imports::{Versions, versions_of};
use super::plans::{Functions, roots};
use super::{InlineOptions, InlineRefusal, InlineReport, Inlining};
use crate::expand::nodes_of;
use crate::finding::{Finding, Place, Places, Spot, SpotPart};
use crate::function_id::FunctionId;
use crate::order::nodes_of_tree;
use crate::origins::Origins;
use crate::required::{Reading, inputs_that_matter};
use crate::resolve::Scope;

/// Model in which all calls of a function omit the same inputs, as far as these are relevant.
pub(crate) struct Specialized {
    pub(crate) model: Model,
    /// Nodes of the file by the nodes that are copies of them.
    origins: HashMap<NodeId, NodeId>,
    /// Functions of the file by the functions that are copies of them, by position.
    copies: HashMap<usize, usize>,
    /// Ids of functions of the file by the ids of their copies.
    ids: BTreeMap<FunctionId, FunctionId>,
    /// The ids of all functions.
    taken: HashSet<FunctionId>,
}

/// Function for some calls: its index in the file, and the indices of the inputs that the calls
/// omit.
type Key = (usize, Vec<usize>);

/// Specializes functions in which nodes of operators change. `None` if no call omits a relevant
/// input.
///
/// # Errors
///
/// The copies have more nodes than the limit.
pub(crate) fn specialize(
    model: &Model,
    registry: &Registry,
    limit: u64,
    changes: &dyn Fn(Scope, OpRef) -> bool,
) -> Result<Option<Specialized>, InlineRefusal> {
    if model.functions.is_empty() {
        return Ok(None);
    }
    // The job itself reports errors of the functions.
    let Ok(functions) = Functions::of(model, registry) else { return Ok(None) };
    specialize_known(model, registry, &functions, limit, changes)
}

/// Specializes functions like [`specialize`], but takes the functions of the model.
fn specialize_known(
    model: &Model,
    registry: &Registry,
    functions: &Functions,
    limit: u64,
    changes: &dyn Fn(Scope, OpRef) -> bool,
) -> Result<Option<Specialized>, InlineRefusal> {
    if model.functions.is_empty() {
        return Ok(None);
    }
    let matter = inputs_that_change(model, registry, functions, changes);
    let calls = Calls::find(model, functions, &matter, limit)?;
    Ok(calls.has_absent_inputs().then(|| calls.specialize(model, registry)))
}

/// Finds for each function the inputs that are read by nodes that change, also through calls of
/// other functions.
fn inputs_that_change(
    model: &Model,
    registry: &Registry,
    functions: &Functions,
    changes: &dyn Fn(Scope, OpRef) -> bool,
) -> Vec<HashSet<usize>> {
    let mut versions = (usize::MAX, HashMap::new());
    let found = inputs_that_matter(model, functions.ids.len(), |function, node, _| {
        if let Some(callee) = functions.called_by(node) {
            return Reading::Passed(callee);
        }
        if versions.0 != function {
            versions = (function, versions_of(model, Some(function)));
        }
        let domain = model.domain_of(node);
        let version = versions.1.get(&*domain).and_then(|version| u32::try_from(*version).ok());
        let name = model.display(model.node(node).op_type);
        let op = version.and_then(|version| registry.op_ref(&domain, &name, version));
        match op {
            Some(op) if changes(Some(function), op) => Reading::Matters,
            _ => Reading::Other,
        }
    });
    let required = functions.find_required(model, registry);
    let found = found.into_iter().enumerate();
    let found = found.map(|(function, inputs)| {
        let formals = &model.graph(model.functions[function].body).inputs;
        // An input that is also an output is required wherever the output is read.
        let has_to_be_given = |index: &usize| {
            let value = formals.get(*index).and_then(|formal| formal.value);
            let is_output = value.is_some_and(|value| model.value(value).is_output);
            is_output || required.has(function, *index)
        };
        inputs.into_keys().filter(|index| !has_to_be_given(index)).collect()
    });
    found.collect()
}

/// Calls of functions, grouped by the inputs that they omit.
struct Calls {
    /// Calls in the model and in each specialized function, with the functions that replace their
    /// callees.
    found: BTreeMap<Option<Key>, Vec<(NodeId, Key)>>,
    /// Sets of inputs that calls of each function omit, without duplicates.
    absent: BTreeMap<usize, BTreeSet<Vec<usize>>>,
}

impl Calls {
    /// Finds all calls, beginning with calls outside of functions.
    fn find(
        model: &Model,
        functions: &Functions,
        matter: &[HashSet<usize>],
        limit: u64,
    ) -> Result<Calls, InlineRefusal> {
        let mut calls = Calls { found: BTreeMap::new(), absent: BTreeMap::new() };
        let mut nodes = 0u64;
        let called: HashSet<usize> = functions.all_called(model).collect();
        let mut open: Vec<Option<Key>> = vec![None];
        for function in (0..functions.ids.len()).filter(|function| !called.contains(function)) {
            calls.absent.entry(function).or_default().insert(Vec::new());
            open.push(Some((function, Vec::new())));
        }
        while let Some(scope) = open.pop() {
            let found = calls_in(model, functions, matter, scope.as_ref());
            for (_, (function, absent)) in &found {
                if !calls.absent.entry(*function).or_default().insert(absent.clone()) {
                    continue;
                }
                if !absent.is_empty() {
                    let count = nodes_of(model, *function).count();
                    nodes = nodes.saturating_add(count.try_into().unwrap_or(u64::MAX));
                    if nodes > limit {
                        return Err(InlineRefusal::TooLarge { nodes, limit });
                    }
                }
                open.push(Some((*function, absent.clone())));
            }
            calls.found.insert(scope, found);
        }
        Ok(calls)
    }

    /// Whether a call omits a relevant input.
    fn has_absent_inputs(&self) -> bool {
        self.absent.values().flatten().any(|absent| !absent.is_empty())
    }

    /// Adds copies of functions, and redirects calls to them.
    fn specialize(&self, model: &Model, registry: &Registry) -> Specialized {
        let mut special = Specialized {
            model: model.clone(),
            origins: HashMap::new(),
            copies: HashMap::new(),
            ids: BTreeMap::new(),
            taken: model.functions.iter().map(|function| FunctionId::of(model, function)).collect(),
        };
        // Index of each copy.
        let mut positions: HashMap<Key, usize> = HashMap::new();
        // Node in a copy, by the index of the copy and the node of the file.
        let mut nodes: HashMap<(usize, NodeId), NodeId> = HashMap::new();
        for (function, all) in &self.absent {
            // The function itself takes the first set, which is empty if some calls omit nothing.
            for (number, absent) in all.iter().enumerate().skip(1) {
                let name = special.free_name(registry, *function, number, absent);
                let position = special.add(*function, name, &mut nodes);
                positions.insert((*function, absent.clone()), position);
            }
        }
        let position_of = |key: &Key| positions.get(key).copied().unwrap_or(key.0);
        for (scope, calls) in &self.found {
            let scope = scope.as_ref().map(position_of);
            for (call, callee) in calls {
                let copy = scope.and_then(|scope| nodes.get(&(scope, *call)));
                let name = special.model.functions[position_of(callee)].name;
                special.model.node_mut(*copy.unwrap_or(call)).op_type = name;
            }
        }
        for (function, all) in &self.absent {
            for absent in all {
                let position = position_of(&(*function, absent.clone()));
                for value in inputs_of(&special.model, position, absent) {
                    special.model.leave_out(value);
                }
            }
        }
        special
    }
}

impl Specialized {
    /// Adds a copy of a function under a name, and returns its index.
    fn add(
        &mut self,
        function: usize,
        name: String,
        nodes: &mut HashMap<(usize, NodeId), NodeId>,
    ) -> usize {
        let model = &mut self.model;
        let id = FunctionId::of(model, &model.functions[function]);
        let copied = model.copy_function(function);
        let position = model.functions.len() - 1;
        model.functions[position].name = Some(model.intern(&name));
        let added = FunctionId { name, ..id.clone() };
        self.taken.insert(added.clone());
        self.ids.insert(added, id);
        self.copies.insert(position, function);
        for copied in copied {
            nodes.insert((position, copied.of), copied.node);
            self.origins.insert(copied.node, copied.of);
        }
        position
    }

    /// Makes a name for a copy of a function from the inputs that its calls omit. No function and
    /// no operator of its domain has this name. `number` differs between the copies of a function.
    fn free_name(
        &self,
        registry: &Registry,
        function: usize,
        number: usize,
        absent: &[usize],
    ) -> String {
        const MOST_NAMED: usize = 3;
        const LONGEST: usize = 64;
        let model = &self.model;
        let id = FunctionId::of(model, &model.functions[function]);
        let formals = &model.graph(model.functions[function].body).inputs;
        let named =
            absent.iter().map(|index| match formals.get(*index).map(|formal| formal.name) {
                Some(name) if is_word(&model.display(name)) => model.display(name).into_owned(),
                _ => index.to_string(),
            });
        let mut inputs = match absent.len() {
            ..=MOST_NAMED => named.collect::<Vec<_>>().join("_"),
            count => format!("{count}_inputs_{number}"),
        };
        inputs.truncate(inputs.floor_char_boundary(LONGEST));
        let wanted = format!("{}_without_{inputs}", id.name);
        let is_free = |name: &str| {
            let id = FunctionId { name: name.to_string(), ..id.clone() };
            !self.taken.contains(&id) && registry.operator(&id.domain, name).is_none()
        };
        let numbered = (number..).map(|number| format!("{wanted}_{number}"));
        std::iter::once(wanted.clone()).chain(numbered).find(|name| is_free(name)).unwrap_or(wanted)
    }

    /// Returns the nodes of the file from which the nodes of copies were made.
    pub(crate) fn origins(&self) -> Origins {
        Origins::default().then_for(self.origins.clone())
    }

    /// Returns the node of the file from which a node was copied, or the node itself.
    pub(crate) fn origin(&self, node: NodeId) -> NodeId {
        self.origins.get(&node).copied().unwrap_or(node)
    }

    /// Returns the function of the file from which a function was copied, or the function itself.
    fn function_of_file(&self, function: usize) -> usize {
        self.copies.get(&function).copied().unwrap_or(function)
    }

    /// Moves findings from nodes of copies to the nodes of the file, and removes duplicates.
    pub(crate) fn place_findings(&self, file: &Model, findings: &mut Vec<Finding>) {
        findings.iter_mut().for_each(|finding| self.place(file, &mut finding.place));
        let mut seen = HashSet::new();
        findings.retain(|found| seen.insert((found.place.path.clone(), found.fact.clone())));
    }

    /// Replaces a place in a copy by the place in the file.
    pub(crate) fn place(&self, file: &Model, place: &mut Place) {
        let part = match place.spot.part {
            SpotPart::Node(node) => SpotPart::Node(self.origin(node)),
            SpotPart::Function(function) => SpotPart::Function(self.function_of_file(function)),
            _ => return,
        };
        if part != place.spot.part {
            *place = Places::default().of(file, Spot { part, ..place.spot });
        }
    }

    /// Runs `inline` on the specialized model, and reports the functions of the file.
    pub(crate) fn inline(
        &self,
        file: &Model,
        options: &InlineOptions<'_>,
        inline: impl FnOnce(&InlineOptions<'_>) -> Result<Inlining, InlineRefusal>,
    ) -> Result<Inlining, InlineRefusal> {
        let of_file: HashMap<FunctionId, usize> = (file.functions.iter().enumerate())
            .map(|(index, function)| (FunctionId::of(file, function), index))
            .collect();
        let functions = |model: &Model, function: &Function| {
            let id = FunctionId::of(model, function);
            let id = self.ids.get(&id).unwrap_or(&id);
            let index = of_file.get(id);
            index.is_some_and(|index| (options.functions)(file, &file.functions[*index]))
        };
        match inline(&InlineOptions { functions: &functions, ..*options }) {
            Ok(Inlining { model, mut report, origins }) => {
                self.place_findings(file, &mut report.kept);
                self.name_functions(&model, &mut report);
                Ok(Inlining { model, report, origins: self.origins().append(origins) })
            }
            Err(InlineRefusal::Findings(mut findings)) => {
                self.place_findings(file, &mut findings);
                Err(InlineRefusal::Findings(findings))
            }
            Err(refusal) => Err(refusal),
        }
    }

    /// Replaces copies in a report by the functions of the file, and lists the copies that stay.
    fn name_functions(&self, inlined: &Model, report: &mut InlineReport) {
        for (id, count) in std::mem::take(&mut report.functions) {
            let id = self.ids.get(&id).cloned().unwrap_or(id);
            *report.functions.entry(id).or_default() += count;
        }
        report.removed.retain(|id| !self.ids.contains_key(id));
        for id in &mut report.converted {
            if let Some(of) = self.ids.get(id) {
                *id = of.clone();
            }
        }
        report.converted.sort();
        report.converted.dedup();
        report.added = self.list_added(inlined);
    }

    /// Lists the added functions that `model` still has, each with its original.
    pub(crate) fn list_added(&self, model: &Model) -> Vec<(FunctionId, FunctionId)> {
        let there: BTreeSet<FunctionId> =
            model.functions.iter().map(|function| FunctionId::of(model, function)).collect();
        let added = self.ids.iter().filter(|(id, _)| there.contains(*id));
        added.map(|(id, of)| (id.clone(), of.clone())).collect()
    }
}

/// Specializes functions for [`inline`](crate::inline), which changes nodes of operators that are
/// replaced by bodies, and nodes of functions that are converted to the versions of their callers.
pub(crate) fn specialize_to_inline(
    model: &Model,
    registry: &Registry,
    options: &InlineOptions<'_>,
    functions: &Functions,
    conflicting: &BTreeMap<Versions, BTreeSet<usize>>,
) -> Result<Option<Specialized>, InlineRefusal> {
    if options.operators.is_none() && conflicting.is_empty() {
        return Ok(None);
    }
    let changes = |scope: Scope, op: OpRef| {
        let Some(function) = scope else { return false };
        let has_body = || !op.def.functions_of(op.schema.since).is_empty();
        let is_wanted = options.operators.is_some_and(|wanted| wanted(op)) && has_body();
        let mut conflicts =
            conflicting.iter().filter(|(_, functions)| functions.contains(&function));
        is_wanted
            || conflicts.any(|(versions, _)| {
                let version = versions.get(op.def.domain);
                version.is_some_and(|version| is_other(op, *version))
            })
    };
    specialize_known(model, registry, functions, options.limit, &changes)
}

/// Whether an operator differs at an opset version, or does not exist there.
pub(crate) fn is_other(op: OpRef, version: u32) -> bool {
    op.def.version_at(version) != Some(op.schema.since)
}

/// Finds the calls in the model or in a specialized function, each with the function to call
/// instead.
fn calls_in(
    model: &Model,
    functions: &Functions,
    matter: &[HashSet<usize>],
    scope: Option<&Key>,
) -> Vec<(NodeId, Key)> {
    let absent: HashSet<ValueId> = match scope {
        Some((function, absent)) => inputs_of(model, *function, absent).into_iter().collect(),
        None => HashSet::new(),
    };
    let roots = roots(model, scope.map(|(function, _)| *function));
    let nodes = roots.into_iter().flat_map(|root| nodes_of_tree(model, root));
    let calls = nodes.filter_map(|call| {
        let function = functions.called_by(call)?;
        let given: Vec<bool> = model
            .inputs(call)
            .map(|value| value.is_some_and(|value| !absent.contains(&value)))
            .collect();
        let is_left_out = |index: &usize| !given.get(*index).copied().unwrap_or(false);
        let mut left_out: Vec<usize> = matter[function].iter().copied().collect();
        left_out.retain(is_left_out);
        left_out.sort_unstable();
        Some((call, (function, left_out)))
    });
    calls.collect()
}

/// Returns the inputs of a function at some indices.
fn inputs_of(model: &Model, function: usize, positions: &[usize]) -> Vec<ValueId> {
    let formals = &model.graph(model.functions[function].body).inputs;
    let values = positions.iter().filter_map(|index| formals.get(*index)?.value);
    values.filter(|value| matches!(model.value(*value).producer, Producer::Input(_))).collect()
}

/// Whether a name is a plain word, which can be part of another name.
fn is_word(name: &str) -> bool {
    !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

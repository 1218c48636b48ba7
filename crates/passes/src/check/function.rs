//! Rules about functions of the model: names, signatures, bodies, and calls.

use hashbrown::{HashMap, HashSet};
use sardonyx_model::{GraphId, NodeId, Symbol, shown_domain};
use sardonyx_proto::shown;

use super::{Checker, Root, count};
use crate::codes;
use crate::finding::{Spot, place_of_node};
use crate::required::{Called, MissingInput, RequiredInputs};

/// Maximum number of functions of a model, and maximum depth of calls, in the reference
/// implementation.
const MOST_FUNCTIONS: usize = 10_000;
const DEEPEST_CALLS: u32 = 100;

/// Indexes of the functions of a model. Each look-up takes constant time.
#[derive(Default)]
pub(super) struct Index {
    /// Function by domain and name: the one without an overload or, if there is none, the first
    /// one.
    by_name: HashMap<(Option<Symbol>, Option<Symbol>), usize>,
    /// Function by domain, name and overload.
    by_id: HashMap<Id, usize>,
    domains: HashSet<Option<Symbol>>,
    /// Attributes of each function, with the indices of their defaults. Filled on demand.
    attributes: HashMap<usize, HashMap<Symbol, Option<usize>>>,
    /// Inputs that no call can omit. Computed for the first call that omits any.
    required: Option<RequiredInputs>,
}

/// Domain, name and overload; empty ones are `None`.
type Id = (Option<Symbol>, Option<Symbol>, Option<Symbol>);

impl Index {
    pub(super) fn new(checker: &Checker<'_>) -> Index {
        let mut index = Index::default();
        // Functions exist since IR version 8, and older readers ignore the field.
        if checker.ir_version < 8 {
            return index;
        }
        for (position, function) in checker.model.functions.iter().enumerate() {
            let id = checker.function_id(function.domain, function.name, function.overload);
            index.by_id.entry(id).or_insert(position);
            index.by_name.entry((id.0, id.1)).or_insert(position);
            index.domains.insert(id.0);
        }
        index
    }

    pub(super) fn has_name(&self, domain: Option<Symbol>, name: Option<Symbol>) -> bool {
        self.by_name.contains_key(&(domain, name))
    }

    pub(super) fn has_domain(&self, domain: Option<Symbol>) -> bool {
        self.domains.contains(&domain)
    }
}

impl Checker<'_> {
    fn function_id(
        &self,
        domain: Option<Symbol>,
        name: Option<Symbol>,
        overload: Option<Symbol>,
    ) -> Id {
        let overload = overload.filter(|overload| Some(*overload) != self.empty);
        (self.domain(domain), name, overload)
    }

    /// Returns whether a function has an attribute with a name, and the index of its default in the
    /// function's list.
    pub(super) fn formal_attribute(
        &mut self,
        function: usize,
        name: Symbol,
    ) -> Option<Option<usize>> {
        let formals = self.functions.attributes.entry(function).or_insert_with(|| {
            let function = &self.model.functions[function];
            let defaults = function.attribute_protos.iter().enumerate();
            let defaults = defaults.filter_map(|(index, found)| Some((found.name?, Some(index))));
            let mut formals: HashMap<Symbol, Option<usize>> = HashMap::new();
            for (name, default) in
                defaults.chain(function.attributes.iter().map(|name| (*name, None)))
            {
                formals.entry(name).or_insert(default);
            }
            formals
        });
        formals.get(&name).copied()
    }

    /// Checks the definitions of all graphs and functions for duplicates.
    pub(super) fn definitions_alone(&mut self) {
        let model = self.model;
        for (id, _) in model.graphs() {
            self.definitions(id);
        }
        let mut ids = HashSet::new();
        for index in 0..model.functions.len() {
            self.function_name(index, &mut ids);
        }
    }

    /// Checks whether an earlier function has the same name.
    fn function_name(&mut self, index: usize, ids: &mut HashSet<Id>) {
        let function = &self.model.functions[index];
        // Overloads exist since IR version 10.
        let overload = function.overload.filter(|_| self.ir_version >= 10);
        let overload = overload.filter(|overload| Some(*overload) != self.empty);
        if !ids.insert((self.domain(function.domain), function.name, overload)) {
            self.add(&codes::DUPLICATE_FUNCTION, Spot::function(index), |_| {
                "duplicate function: same domain, name and overload".into()
            });
        }
    }

    pub(super) fn functions(&mut self) {
        let model = self.model;
        let count = model.functions.len();
        // Functions that older readers ignore are not checked. Their presence has its own finding.
        if count == 0 || self.ir_version < 8 {
            return;
        }
        if count > MOST_FUNCTIONS {
            self.add(&codes::TOO_MANY_FUNCTIONS, Spot::MODEL.field("functions"), |_| {
                format!("the model has {count} functions; at most {MOST_FUNCTIONS} are allowed")
            });
            return;
        }
        let mut ids = HashSet::new();
        for (index, function) in model.functions.iter().enumerate() {
            let spot = Spot::function(index);
            if self.model.is_blank(function.name) {
                self.add(&codes::NAMELESS_FUNCTION, spot, |_| "the name is missing".into());
            }
            if function.domain.is_none() {
                self.add(&codes::FUNCTION_WITHOUT_DOMAIN, spot, |_| {
                    "the function has no domain".into()
                });
            }
            self.function_name(index, &mut ids);
            self.function_attributes(index);
            self.check_imports(&function.opset_import, spot);
            self.keys(&function.metadata_props, spot, "metadata_props");
            self.check_markup(function.doc_string, spot);
            self.check_tree(function.body, Root::Function(index));
        }
        self.opset_compatibility();
        self.find_recursion();
    }

    fn function_attributes(&mut self, index: usize) {
        let model = self.model;
        let function = &model.functions[index];
        let spot = Spot::function(index);
        let mut names = HashSet::new();
        for (position, name) in function.attributes.iter().enumerate() {
            if !names.insert(*name) {
                self.add(
                    &codes::DUPLICATE_FUNCTION_ATTRIBUTE,
                    spot.item("attribute", position),
                    |_| format!("'{}' is listed twice", shown(model.text(*name))),
                );
            }
        }
        for (position, attribute) in function.attribute_protos.iter().enumerate() {
            let spot = spot.item("attribute_proto", position);
            if let Some(name) = attribute.name
                && !names.insert(name)
            {
                self.add(&codes::ATTRIBUTE_WITH_AND_WITHOUT_DEFAULT, spot, |_| {
                    format!("'{}' is listed twice", shown(model.text(name)))
                });
            }
            // The checker of the `onnx` package does not check defaults.
            if !self.options.levels.shared_only {
                self.attribute(attribute, spot, Root::Function(index));
            }
        }
    }

    /// Checks a node that calls a function of the model.
    pub(super) fn call(&mut self, id: NodeId, root: Root) {
        let model = self.model;
        let node = model.node(id);
        let callee = self.callee(id, root);
        // An operator of the standard takes precedence.
        if self.callees.get(callee).schema.is_some() {
            return;
        }
        let key = self.function_id(node.domain, node.op_type, node.overload);
        let Some(found) = self.functions.by_id.get(&key).copied() else {
            let spot = Spot::node(id).field("overload");
            let same_name = self.functions.by_name.get(&(key.0, key.1)).copied();
            self.add_with(&codes::UNKNOWN_OVERLOAD, spot, |_| {
                let name = |symbol| shown(model.maybe_text(symbol).unwrap_or_default());
                let fact = match key.2 {
                    Some(_) => format!(
                        "there is no overload '{}' of the function '{}'",
                        name(node.overload),
                        name(node.op_type)
                    ),
                    None => {
                        format!("the function '{}' has only named overloads", name(node.op_type))
                    }
                };
                let known = same_name.map(|index| name(model.functions[index].overload));
                let advice = match known {
                    Some(known) if known.is_empty() => {
                        "the model has it without an overload".into()
                    }
                    Some(known) => format!("the model has the overload '{known}'"),
                    None => String::new(),
                };
                (fact, advice.into())
            });
            return;
        };
        let function = &model.functions[found];
        let body = model.graph(function.body);
        for (what, actual, formal) in [
            ("input", model.inputs(id).len(), body.inputs.len()),
            ("output", model.outputs(id).len(), body.outputs.len()),
        ] {
            if actual > formal {
                let spot = Spot::node(id).item(what, formal);
                self.add(&codes::CALL_ARGUMENTS, spot, |_| {
                    format!(
                        "the function takes {}, but the node has {actual}",
                        count(formal as u64, what)
                    )
                });
            }
        }
        let leaves_out = model.inputs(id).len() < body.inputs.len()
            || model.inputs(id).any(|value| value.is_none());
        if leaves_out {
            self.required_inputs(id, found);
        }
        for (index, attribute) in model.attributes(id).iter().enumerate() {
            let attribute = model.attribute(*attribute);
            let Some(name) = attribute.name else { continue };
            let declared = self.formal_attribute(found, name).is_some();
            if !declared && !model.text(name).starts_with(b"__") {
                let spot = Spot::node(id).item("attribute", index);
                self.add(&codes::CALL_ATTRIBUTE, spot, |_| {
                    format!("the function has no attribute '{}'", shown(model.text(name)))
                });
            }
        }
    }

    /// Checks a call of a function for absent inputs that nodes of its body need.
    fn required_inputs(&mut self, id: NodeId, function: usize) {
        let model = self.model;
        // Calls that are nested too deeply have their own finding.
        let count = model.functions.len();
        if count > MOST_FUNCTIONS {
            return;
        }
        let required = match self.functions.required.take() {
            Some(required) => required,
            None => RequiredInputs::new(model, count, |index, node| {
                self.steps += 1;
                let callee = self.callee(node, Root::Function(index));
                if let Some(schema) = self.callees.get(callee).schema {
                    return Called::Operator(schema);
                }
                let found = model.node(node);
                let key = self.function_id(found.domain, found.op_type, found.overload);
                let called = self.functions.by_id.get(&key).copied();
                called.map_or(Called::Unknown, Called::Function)
            }),
        };
        for MissingInput { index, reader } in required.missing(model, id, function) {
            let is_beyond = index >= model.inputs(id).len();
            let spot = if is_beyond { Spot::node(id) } else { Spot::node(id).item("input", index) };
            self.add(&codes::CALL_WITHOUT_INPUT, spot, |model| {
                let body = model.graph(model.functions[function].body);
                let name = body.inputs.get(index).and_then(|info| model.maybe_text(info.name));
                format!(
                    "input {index} ({}) is missing, but {} requires it",
                    shown(name.unwrap_or_default()),
                    place_of_node(model, reader)
                )
            });
        }
        self.functions.required = Some(required);
    }

    /// Checks that operators in bodies mean the same at the version that the function imports and
    /// at that of the model.
    fn opset_compatibility(&mut self) {
        let model = self.model;
        if self.options.skip_opset_compatibility {
            return;
        }
        for index in 0..model.functions.len() {
            let root = Root::Function(index);
            // Operators that have been compared.
            let mut seen = HashSet::new();
            self.each_node(model.functions[index].body, |checker, node| {
                let found = model.node(node);
                let domain = checker.domain(found.domain);
                if !seen.insert((domain, found.op_type)) {
                    return;
                }
                let (Some(own), Some(outer)) =
                    (checker.version(root, domain), checker.version(Root::Main, domain))
                else {
                    return;
                };
                if own == outer {
                    return;
                }
                let domain_text = model.domain_of(node);
                let name = model.display(found.op_type);
                let since = |version: i64| {
                    let version = u32::try_from(version).unwrap_or(0);
                    let registry = &checker.options.registry;
                    let schema = registry.schema(&domain_text, &name, version);
                    schema.map(|schema| schema.since)
                };
                if since(own) == since(outer) {
                    return;
                }
                let spot = Spot::node(node).field("op_type");
                checker.add(&codes::FUNCTION_OPSET_MISMATCH, spot, |_| {
                    let set = shown_domain(&domain_text);
                    format!(
                        "the function imports version {own} of '{set}' and the model version \
                         {outer}, and {name} differs between them"
                    )
                });
            });
        }
    }

    /// Calls `take` for each node of a graph and of all graphs in it.
    fn each_node(&mut self, graph: GraphId, mut take: impl FnMut(&mut Self, NodeId)) {
        let model = self.model;
        let mut left = vec![graph];
        while let Some(graph) = left.pop() {
            for node in &model.graph(graph).nodes {
                self.steps += 1;
                take(self, *node);
                for attribute in model.attributes(*node) {
                    left.extend(model.attribute(*attribute).graphs());
                }
            }
        }
    }

    /// Finds functions that call each other in a cycle, or too deeply. A depth-first search with a
    /// list instead of recursion, which leaves each function once.
    fn find_recursion(&mut self) {
        let calls = self.find_calls();
        #[derive(Clone, Copy, PartialEq)]
        enum State {
            New,
            Open,
            /// Number of levels of calls below.
            Done(u32),
        }
        let mut states = vec![State::New; calls.len()];
        let mut deepest: Option<(u32, usize)> = None;
        for start in 0..calls.len() {
            if states[start] != State::New {
                continue;
            }
            states[start] = State::Open;
            let mut path = vec![(start, 0usize)];
            while let Some((function, next)) = path.last_mut() {
                let (function, position) = (*function, *next);
                *next += 1;
                self.steps += 1;
                if let Some(callee) = calls[function].get(position).copied() {
                    match states[callee] {
                        State::New => {
                            states[callee] = State::Open;
                            path.push((callee, 0));
                        }
                        State::Open => self.report_cycle(&path, callee),
                        State::Done(_) => {}
                    }
                    continue;
                }
                let below = calls[function].iter().map(|callee| match states[*callee] {
                    State::Done(depth) => depth + 1,
                    _ => 1,
                });
                let depth = below.max().unwrap_or(0);
                states[function] = State::Done(depth);
                deepest = deepest.max(Some((depth, function)));
                path.pop();
            }
        }
        if let Some((depth, function)) = deepest.filter(|(depth, _)| *depth >= DEEPEST_CALLS) {
            self.add(&codes::CALLS_TOO_DEEP, Spot::function(function), |_| {
                format!("calls are nested {depth} levels deep; at most {DEEPEST_CALLS} are allowed")
            });
        }
    }

    fn report_cycle(&mut self, path: &[(usize, usize)], callee: usize) {
        let model = self.model;
        self.add(&codes::RECURSIVE_FUNCTION, Spot::function(callee), |_| {
            /// Maximum number of functions of a cycle that are named.
            const NAMED: usize = 6;
            let start = path.iter().position(|(function, _)| *function == callee);
            let cycle = &path[start.unwrap_or(0)..];
            let name = |index: usize| {
                let name = model.maybe_text(model.functions[index].name);
                format!("'{}'", shown(name.unwrap_or_default()))
            };
            let mut names: Vec<String> =
                cycle.iter().take(NAMED).map(|(function, _)| name(*function)).collect();
            if cycle.len() > NAMED {
                names.push("…".to_string());
            }
            names.push(name(callee));
            format!("the function calls itself: {}", names.join(" calls "))
        });
    }

    /// Returns the functions that each function calls, without duplicates.
    fn find_calls(&mut self) -> Vec<Vec<usize>> {
        let model = self.model;
        let mut calls = Vec::with_capacity(model.functions.len());
        for function in &model.functions {
            let mut called = Vec::new();
            let mut seen = HashSet::new();
            self.each_node(function.body, |checker, node| {
                let found = model.node(node);
                let key = checker.function_id(found.domain, found.op_type, found.overload);
                if let Some(callee) = checker.functions.by_id.get(&key)
                    && seen.insert(*callee)
                {
                    called.push(*callee);
                }
            });
            calls.push(called);
        }
        calls
    }
}

//! Resolution: checks that a model can run, and binds its nodes to operators.
//!
//! A [`Resolved`] model guarantees that each name has one definition, that the graph is acyclic,
//! that operators and their versions are known, and that every node has the inputs and attributes
//! that its operator requires. Other findings are left to the checker, and do not prevent a run.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::collections::btree_map::{BTreeMap, Entry};
use std::ops::Range;
use std::panic::Location;

use hashbrown::HashMap;
use sardonyx_model::{
    Copied, GraphId, Id, InlineError, MadeNodes, Model, NodeBuilder, NodeId, OperatorSetId,
    Producer, Symbol, ValueId, shown_domain,
};
use sardonyx_ops::{OpDef, OpRef, Registry, Schema};
use sardonyx_proto::switch;

use crate::check;
use crate::codes;
use crate::finding::{Finding, Findings, Severity, Spot};
use crate::function_id::{FunctionKey, function_key, functions_by_key};
use crate::node_path::NodePath;
use crate::order::{sort_nodes, tree};
use crate::origins::Origins;

/// Maximum number of findings: a person reads the first few, and a malformed file may have one for
/// every few of its bytes.
const MOST_FINDINGS: usize = 1000;

/// Model whose nodes are sorted and bound to operators.
#[derive(Debug, Clone)]
pub struct Resolved {
    model: Model,
    main: GraphId,
    registry: Registry,
    /// Main graph and its subgraphs, each after the graph around it. Their nodes are in topological
    /// order.
    graphs: Vec<GraphId>,
    calls: Calls,
    made: MadeNodes,
    /// Node whose gradient rule made each node of a gradient, or from which it was copied.
    derived_from: HashMap<NodeId, NodeId>,
}

/// Scope of operator sets: the model (`None`), or the index of a function.
pub(crate) type Scope = Option<usize>;

/// Callees of nodes.
#[derive(Debug, Clone, Default)]
struct Calls {
    /// Operators that nodes call, one entry for each form.
    ops: Vec<OpRef>,
    /// Callee of each node in the main graph, its subgraphs and called functions.
    of_node: Vec<Callee>,
    /// Operators by domain, name and opset version.
    known: HashMap<(Option<Symbol>, Option<Symbol>, u32), Option<OpId>>,
    functions: HashMap<FunctionKey, usize>,
}

/// Number of an operator in one form.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OpId(u32);

impl OpId {
    /// Returns the index in lists with an entry for each operator of a model.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// Callee of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Callee {
    /// Unknown operator or function.
    Unknown,
    Operator(OpId),
    /// Function of the model.
    Function(u32),
}

/// Resolves a model.
///
/// # Errors
///
/// Findings because of which the model cannot run, except unknown operators: their nodes have no
/// [`op`](Resolved::op), which callers that run them report.
pub fn resolve(model: Model, registry: Registry) -> Result<Resolved, Vec<Finding>> {
    let Some(main) = model.main else {
        let finding = Finding::new(&model, &codes::NO_GRAPH, Spot::MODEL, "the model has no graph");
        return Err(vec![finding]);
    };
    let graphs = tree(&model, main);
    let functions = functions_by_key(&model).map_err(|finding| vec![*finding])?;
    let calls = Calls { functions, ..Calls::default() };
    let made = MadeNodes::default();
    let derived_from = HashMap::new();
    let mut resolved = Resolved { model, main, registry, graphs, calls, made, derived_from };
    let mut findings = resolved.scope(None);
    let mut open = resolved.called_by(None);
    let mut callees: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    while let Some(function) = open.pop() {
        if let Entry::Vacant(vacant) = callees.entry(function) {
            findings.extend(resolved.scope(Some(function)));
            let called = vacant.insert(resolved.called_by(Some(function)));
            open.extend(called.iter());
        }
    }
    findings.extend(
        resolved
            .find_running_faults(std::iter::once(None).chain(callees.keys().copied().map(Some))),
    );
    findings.extend(circle(&callees).map(|function| {
        let spot = Spot::function(function);
        Finding::new(&resolved.model, &codes::RECURSIVE_FUNCTION, spot, "it calls itself")
    }));
    findings.retain(|found| !switch::is_off(found.code.name, Location::caller()));
    if findings.is_empty() { Ok(resolved) } else { Err(findings) }
}

impl Resolved {
    /// Returns the model.
    pub fn model(&self) -> &Model {
        &self.model
    }

    /// Returns the model, and the nodes from which other nodes were made.
    pub(crate) fn into_parts(self) -> (Model, Origins) {
        let origins = Origins::default().then_made(self.made).then_for(self.derived_from);
        (self.model, origins)
    }

    /// Records the nodes that the gradient rule of a node made.
    pub(crate) fn note_derived(&mut self, node: NodeId, made: &[NodeId]) {
        self.derived_from.extend(made.iter().map(|made| (*made, node)));
    }

    /// Records that nodes have the origin of another node, unless they have one already.
    pub(crate) fn note_derived_alike(&mut self, other: NodeId, made: &[NodeId]) {
        let Some(node) = self.derived_from.get(&other).copied() else { return };
        for made in made {
            self.derived_from.entry(*made).or_insert(node);
        }
    }

    /// Returns the registry of operators.
    pub fn registry(&self) -> &Registry {
        &self.registry
    }

    /// Returns the main graph.
    pub fn main(&self) -> GraphId {
        self.main
    }

    /// Returns the main graph and its subgraphs, each after the graph around it.
    pub fn graphs(&self) -> &[GraphId] {
        &self.graphs
    }

    /// Returns the nodes of the main graph in topological order.
    pub fn order(&self) -> &[NodeId] {
        self.order_of(self.main)
    }

    /// Returns the nodes of one of the [`graphs`](Self::graphs) in topological order.
    pub fn order_of(&self, graph: GraphId) -> &[NodeId] {
        &self.model.graph(graph).nodes
    }

    /// Returns the operator that a node calls, in the form of the node.
    pub fn op(&self, node: NodeId) -> Option<OpRef> {
        Some(self.calls.ops[self.op_id(node)?.index()])
    }

    /// Returns the number of the operator that a node calls, for tables with an entry per operator.
    pub fn op_id(&self, node: NodeId) -> Option<OpId> {
        match self.calls.of_node.get(node.index())? {
            Callee::Operator(op) => Some(*op),
            Callee::Unknown | Callee::Function(_) => None,
        }
    }

    /// Evaluates a property of each operator that nodes call. The list is indexed by [`OpId`].
    /// Models have many nodes of few operators.
    pub fn of_operators<T>(&self, what: impl Fn(OpRef) -> T) -> Vec<T> {
        self.calls.ops.iter().copied().map(what).collect()
    }

    /// Returns the operator with a number.
    pub(crate) fn op_of_id(&self, id: OpId) -> OpRef {
        self.calls.ops[id.index()]
    }

    /// Returns the index of the function of the model that a node calls.
    pub fn function_of(&self, node: NodeId) -> Option<usize> {
        match self.calls.of_node.get(node.index())? {
            Callee::Function(index) => Some(*index as usize),
            Callee::Unknown | Callee::Operator(_) => None,
        }
    }

    /// Returns the schema of the operator that a node calls.
    pub fn schema(&self, node: NodeId) -> Option<&'static Schema> {
        Some(self.op(node)?.schema)
    }

    /// Whether a node calls an operator, in any version.
    pub fn is(&self, node: NodeId, operator: &OpDef) -> bool {
        self.op(node).is_some_and(|op| std::ptr::eq(op.def, operator))
    }

    /// Makes a graph the one that passes work on, with the graphs in its nodes: the body of a
    /// function that the model calls, or the main graph.
    pub(crate) fn enter(&mut self, root: GraphId) {
        self.main = root;
        self.graphs = tree(&self.model, root);
    }

    /// Returns the functions that the main graph calls, directly or not, in ascending order.
    pub(crate) fn called_functions(&self) -> Vec<usize> {
        let mut called = BTreeSet::new();
        let mut open = self.called_by(None);
        while let Some(function) = open.pop() {
            if called.insert(function) {
                open.extend(self.called_by(Some(function)));
            }
        }
        called.into_iter().collect()
    }

    /// Removes a node; [`place_made`](Resolved::place_made) removes it from its graph.
    pub(crate) fn remove(&mut self, node: NodeId) {
        self.made.remove(&mut self.model, node);
    }

    /// Forgets which small constants were made, after some of them were removed.
    pub(crate) fn forget_constants(&mut self) {
        self.made.forget_constants();
    }

    /// Gives the nodes of the standard's operators the forms of an opset version again, after a
    /// pass has made some in their newest forms.
    pub(crate) fn set_opset_of_all(&mut self, opset: u32) {
        for graph in self.graphs.clone() {
            for node in self.model.graph(graph).nodes.clone() {
                if self.op(node).is_some_and(|op| op.def.domain.is_empty()) {
                    self.set_opset(node, opset);
                }
            }
        }
    }

    /// Returns the model for changes. Callers must preserve the guarantees of a resolved model, or
    /// call [`set_order`](Resolved::set_order).
    pub(crate) fn model_mut(&mut self) -> &mut Model {
        &mut self.model
    }

    /// Sets the opset version of the form of a new or changed node.
    pub(crate) fn set_opset(&mut self, node: NodeId, opset: u32) {
        let callee = match self.calls.operator(&self.model, &self.registry, node, opset) {
            Some(op) => Callee::Operator(op),
            None => Callee::Unknown,
        };
        self.calls.set(node, callee);
    }

    /// Sets the callees of copied nodes to those of the originals.
    pub(crate) fn take_callees(&mut self, copied: &[Copied]) {
        for copy in copied {
            if let Some(callee) = self.calls.of_node.get(copy.of.index()).copied() {
                self.calls.set(copy.node, callee);
            }
        }
    }

    /// Returns the nodes that were made.
    pub(crate) fn made(&self) -> &MadeNodes {
        &self.made
    }

    /// Returns a builder of nodes beside a node. [`place_made`](Resolved::place_made) adds them to
    /// the order.
    pub(crate) fn build(&mut self, beside: NodeId) -> NodeBuilder<'_> {
        NodeBuilder::new(&mut self.model, &mut self.made, beside)
    }

    /// Returns the model and the list of made nodes, to change and make nodes.
    /// [`set_opset`](Resolved::set_opset) must be called for these.
    pub(crate) fn parts_mut(&mut self) -> (&mut Model, &mut MadeNodes, &Registry) {
        (&mut self.model, &mut self.made, &self.registry)
    }

    /// Inserts new nodes into the order, beside the nodes for which they were made.
    pub(crate) fn place_made(&mut self) {
        if !self.made.is_waiting() {
            return;
        }
        self.made.place(&mut self.model);
        self.graphs = tree(&self.model, self.main);
    }

    /// Updates the list of graphs by the subgraphs of new nodes: a `Scan` over a batch, for
    /// example, contains the `Scan` of one item.
    pub(crate) fn find_graphs(&mut self) {
        self.graphs = tree(&self.model, self.main);
    }

    /// Removes subgraphs of removed nodes from the list of graphs.
    pub(crate) fn forget_graphs(&mut self) {
        if self.graphs.len() > 1 {
            self.find_graphs();
        }
    }

    /// Returns the node of the file for which a node was made; a node of the file is its own
    /// origin.
    pub fn origin(&self, node: NodeId) -> NodeId {
        self.made.origin(node)
    }

    /// Returns the name of a value, with a limited length.
    pub fn name_of(&self, value: ValueId) -> String {
        sardonyx_proto::shown(self.model.text(self.model.value(value).name))
    }

    /// Returns the path of a node for messages and reports, with the nodes around it, the calls
    /// that were inlined, and the node of the file for which a pass made it.
    pub fn path_of(&self, node: NodeId) -> NodePath {
        NodePath::new(&self.model, &self.made, node, &[])
    }

    /// Returns the path like [`path_of`](Self::path_of), but in one iteration of the nodes around
    /// it. `iterations` has the number of the iteration for each of these.
    pub fn path_in_iterations(&self, node: NodeId, iterations: &[(NodeId, usize)]) -> NodePath {
        NodePath::new(&self.model, &self.made, node, iterations)
    }

    /// Replaces the nodes of a graph by `order`, which must be a topological order.
    pub(crate) fn set_order(&mut self, graph: GraphId, order: Vec<NodeId>) {
        self.model.graph_mut(graph).nodes = order;
    }

    /// Resolves the nodes of functions. Returns the findings because of which they cannot run.
    pub(crate) fn resolve_functions(&mut self, functions: Range<usize>) -> Vec<Finding> {
        if functions.is_empty() {
            return Vec::new();
        }
        let mut findings = Vec::new();
        for function in functions.clone() {
            findings.extend(self.scope(Some(function)));
        }
        findings.extend(self.find_running_faults(functions.map(Some)));
        findings
    }

    /// Returns the findings because of which nodes cannot run, in scopes whose names are bound.
    fn find_running_faults(&self, scopes: impl Iterator<Item = Scope>) -> Vec<Finding> {
        let trees = scopes.map(|scope| (scope, self.graphs_of(scope)));
        check::find_running_faults(&self.model, trees, &self.registry).findings
    }

    /// Returns the main graph, or the body of a function, with its subgraphs.
    fn graphs_of(&self, scope: Scope) -> Cow<'_, [GraphId]> {
        match scope {
            None => Cow::Borrowed(&self.graphs),
            Some(function) => Cow::Owned(tree(&self.model, self.model.functions[function].body)),
        }
    }

    /// Binds names and operators in the graphs of a scope, and sorts their nodes.
    fn scope(&mut self, scope: Scope) -> Vec<Finding> {
        let graphs = self.graphs_of(scope).into_owned();
        let mut found = Findings::new(MOST_FINDINGS);
        self.find_operators(scope, &graphs, &mut found);
        self.bind_names(scope, &graphs, &mut found);
        let mut findings = found.report().findings;
        for graph in &graphs {
            findings.extend(self.sort(*graph).err().map(|finding| *finding));
        }
        findings
    }

    /// Returns the functions that nodes of a scope call, each once.
    fn called_by(&self, scope: Scope) -> Vec<usize> {
        if self.model.functions.is_empty() {
            return Vec::new();
        }
        let graphs = self.graphs_of(scope);
        let nodes = graphs.iter().flat_map(|graph| self.order_of(*graph));
        let called: BTreeSet<usize> = nodes.filter_map(|node| self.function_of(*node)).collect();
        called.into_iter().collect()
    }

    fn find_operators(&mut self, scope: Scope, graphs: &[GraphId], findings: &mut Findings) {
        let Resolved { model, registry, calls, .. } = self;
        let imports: &[OperatorSetId] = match scope {
            None => &model.header.opset_import,
            Some(function) => &model.functions[function].opset_import,
        };
        let imported = model.opsets_in(imports);
        let mut missing: BTreeSet<String> = BTreeSet::new();
        // A model has many nodes of few kinds.
        let mut kinds: HashMap<FunctionKey, Callee> = HashMap::new();
        for node in graphs.iter().flat_map(|graph| &model.graph(*graph).nodes) {
            let found = model.node(*node);
            let kind = (found.domain, found.op_type, found.overload);
            let callee = *kinds.entry(kind).or_insert_with(|| {
                let domain = model.domain_of(*node);
                let version = imported.get(&domain);
                if version.is_none() && missing.len() < MOST_FINDINGS {
                    missing.insert(domain.into_owned());
                }
                let opset = version.and_then(|version| u32::try_from(*version).ok());
                match calls.operator(model, registry, *node, opset.unwrap_or(0)) {
                    // A function of the model takes precedence over an operator outside of the
                    // standard, as domains are not reserved there.
                    Some(op) if calls.ops[op.index()].is_added() => {
                        match calls.function(model, *node) {
                            Callee::Unknown => Callee::Operator(op),
                            function => function,
                        }
                    }
                    Some(op) => Callee::Operator(op),
                    None => calls.function(model, *node),
                }
            });
            calls.set(*node, callee);
        }
        for domain in missing {
            let (spot, who) = match scope {
                None => (Spot::MODEL.field("opset_import"), "the model"),
                Some(function) => (Spot::function(function).field("opset_import"), "the function"),
            };
            findings.note(model, &codes::OPSET_NOT_IMPORTED, spot, || {
                let domain = shown_domain(&domain);
                format!("nodes use the operator set '{domain}', which {who} does not import")
            });
        }
    }

    fn bind_names(&self, scope: Scope, graphs: &[GraphId], findings: &mut Findings) {
        let model = &self.model;
        for node in graphs.iter().flat_map(|graph| &model.graph(*graph).nodes) {
            for (index, value) in model.inputs(*node).enumerate() {
                let Some(value) = value else { continue };
                if model.value(value).producer == Producer::Nothing {
                    let spot = Spot::node(*node).item("input", index);
                    let code = &codes::UNDEFINED_VALUE;
                    let severity = code.severity.unwrap_or(Severity::Error);
                    findings.add(model, code, severity, spot, || {
                        let (graph, name) = (model.node(*node).graph, model.value(value).name);
                        check::describe_undefined(model, graph, name, index, true)
                    });
                }
            }
            if scope.is_some() {
                continue;
            }
            for (index, attribute) in model.attributes(*node).iter().enumerate() {
                let Some(name) = model.attribute(*attribute).ref_attr_name() else {
                    continue;
                };
                // Without a function the attribute has no value. It must not count as absent, which
                // would select the operator's default.
                let spot = Spot::node(*node).item("attribute", index);
                findings.note(model, &codes::REFERENCE_OUTSIDE_FUNCTION, spot, || {
                    let name = sardonyx_proto::shown(model.text(name));
                    format!("the attribute refers to the function attribute '{name}' outside of a function")
                });
            }
        }
        // The body of a function may have undefined outputs, as calls select the ones that they
        // read.
        let body = scope.map(|function| model.functions[function].body);
        for graph in graphs.iter().filter(|graph| Some(**graph) != body) {
            for (index, input) in model.graph(*graph).inputs.iter().enumerate() {
                if model.is_blank(input.name) {
                    let spot = Spot::graph(*graph).item("input", index);
                    findings.note(model, &codes::NAMELESS_VALUE, spot, || {
                        "the name is missing".to_string()
                    });
                }
            }
            for (index, sparse) in model.graph(*graph).sparse_initializers.iter().enumerate() {
                let name = sparse.tensor.values.as_ref().and_then(|values| values.name);
                if model.is_blank(name) {
                    let spot = Spot::graph(*graph).item("sparse_initializer", index);
                    findings.note(model, &codes::NAMELESS_INITIALIZER, spot, || {
                        "the name is missing".to_string()
                    });
                }
            }
            for (index, output) in model.graph(*graph).outputs.iter().enumerate() {
                let is_undefined = |value| model.value(value).producer == Producer::Nothing;
                if output.value.is_none_or(is_undefined) {
                    let spot = Spot::graph(*graph).item("output", index);
                    findings.note(model, &codes::UNDEFINED_OUTPUT, spot, || {
                        "it is not defined in the graph".to_string()
                    });
                }
            }
        }
    }

    /// Sorts the nodes of a graph topologically.
    fn sort(&mut self, graph: GraphId) -> Result<(), Box<Finding>> {
        match sort_nodes(&self.model, &self.model.graph(graph).nodes) {
            Ok(None) => Ok(()),
            Ok(Some(order)) => {
                self.model.graph_mut(graph).nodes = order;
                Ok(())
            }
            Err((stuck, count)) => Err(Box::new(Finding::new(
                &self.model,
                &codes::CYCLE,
                Spot::node(stuck),
                format!("the node is in, or depends on, a cycle of {count} nodes"),
            ))),
        }
    }
}

/// Finds a function that calls itself, directly or indirectly. Uses a depth-first search that
/// visits each function once, with an explicit stack.
fn circle(callees: &BTreeMap<usize, Vec<usize>>) -> Option<usize> {
    // `false` for a function on the current path, `true` for one that was left.
    let mut done: HashMap<usize, bool> = HashMap::new();
    for start in callees.keys() {
        let mut path = vec![(*start, 0)];
        while let Some((function, next)) = path.last_mut() {
            let function = *function;
            done.entry(function).or_insert(false);
            match callees[&function].get(*next) {
                Some(callee) => {
                    *next += 1;
                    match done.get(callee) {
                        None => path.push((*callee, 0)),
                        Some(false) => return Some(*callee),
                        Some(true) => {}
                    }
                }
                None => {
                    done.insert(function, true);
                    path.pop();
                }
            }
        }
    }
    None
}

impl Resolved {
    /// Replaces a call by the body of a function, which must be resolved. Returns the new nodes,
    /// also in subgraphs.
    pub(crate) fn inline_call(
        &mut self,
        node: NodeId,
        function: usize,
    ) -> Result<Vec<NodeId>, InlineError> {
        let copied = self.build(node).inline(function)?.copied;
        let (_, newest) = self.registry.versions("").unwrap_or_default();
        self.take_callees(&copied);
        // An `Identity` node that was made for the call.
        for copy in copied.iter().filter(|copy| copy.of == node) {
            self.set_opset(copy.node, newest);
        }
        Ok(copied.into_iter().map(|copied| copied.node).collect())
    }
}

impl Calls {
    fn set(&mut self, node: NodeId, callee: Callee) {
        if self.of_node.len() <= node.index() {
            self.of_node.resize(node.index() + 1, Callee::Unknown);
        }
        self.of_node[node.index()] = callee;
    }

    /// Returns the number of the operator that a node calls at an opset version.
    fn operator(
        &mut self,
        model: &Model,
        registry: &Registry,
        node: NodeId,
        opset: u32,
    ) -> Option<OpId> {
        let found = model.node(node);
        let key = (found.domain, found.op_type, opset);
        *self.known.entry(key).or_insert_with(|| {
            let name = model.display(found.op_type);
            let domain = model.domain_of(node);
            let registered = registry.registered(&domain, &name, opset);
            let op = registered.or_else(|| registry.op_ref(&domain, &name, opset))?;
            self.ops.push(op);
            Some(OpId(self.ops.len() as u32 - 1))
        })
    }

    fn function(&self, model: &Model, node: NodeId) -> Callee {
        let found = model.node(node);
        let key = function_key(model, found.domain, found.op_type, found.overload);
        self.functions.get(&key).map_or(Callee::Unknown, |index| Callee::Function(*index as u32))
    }
}

#[cfg(test)]
mod tests {
    use sardonyx_tensor::Buffer;
    use sardonyx_text::{ParseOptions, parse_model};

    use super::*;

    /// Returns code, path and fact of each finding because of which a graph of floats cannot run.
    fn find_faults(graph: &str) -> Vec<(&'static str, String, String)> {
        let text = format!(
            "<ir_version: 10, opset_import: [\"\": 21]> g (float[2] x) => (float[2] y) {graph}"
        );
        let parsed = parse_model(Buffer::from(text.into_bytes()), ParseOptions::default());
        let model = parsed.expect("the text is a model").model;
        let findings = resolve(model, Registry::standard()).err().unwrap_or_default();
        let findings = findings.into_iter();
        findings.map(|found| (found.code.name, found.place.path, found.fact)).collect()
    }

    /// Checks ATTR-11-: without the reference the operator's default would be taken.
    #[test]
    fn a_reference_outside_of_a_function_is_refused() {
        let expected = (
            "reference-outside-function",
            "graph.node[0].attribute[0]".to_string(),
            "the attribute refers to the function attribute 'a' outside of a function".to_string(),
        );
        assert_eq!(find_faults("{ y = LeakyRelu<alpha: float = @a>(x) }"), [expected]);
    }

    /// Checks GRAPH-18: a duplicate would have the type of one value and the elements of the other.
    #[test]
    fn an_output_with_an_existing_name_is_refused() {
        let refused = |graph: &str, node: usize, fact: &str| {
            let path = format!("graph.node[{node}].output[0]");
            let expected = ("duplicate-definition", path, fact.to_string());
            assert_eq!(find_faults(graph), [expected], "{graph}");
        };
        refused(
            "<float[2] c = {1, 2}> { c = Relu(x) y = Neg(c) }",
            0,
            "the output 'c' has the name of an initializer of the graph",
        );
        // Even if no node reads it.
        refused(
            "<float[2] c = {1, 2}> { c = Relu(x) y = Neg(x) }",
            0,
            "the output 'c' has the name of an initializer of the graph",
        );
        refused(
            "{ x = Relu(x) y = Neg(x) }",
            0,
            "the output 'x' has the name of an input of the graph",
        );
        refused(
            "{ a = Relu(x) a = Neg(x) y = Neg(a) }",
            1,
            "the output 'a' is also an output of Relu node that makes 'a'",
        );
        assert_eq!(find_faults("<float[2] c = {1, 2}> { y = Add(x, c) }"), []);
        let found = find_faults("<float[2] c = {1, 2}, float[2] c = {3, 4}> { y = Add(x, c) }");
        let expected = ("duplicate-initializer", "graph.initializer[1]".to_string());
        let found = found.into_iter().map(|(code, path, _)| (code, path));
        assert_eq!(found.collect::<Vec<_>>(), [expected], "which of them would be read?");
        // A constant may be the default value of an input.
        let default = "<float[2] x = {1, 2}> { y = Neg(x) }";
        assert_eq!(find_faults(default), []);
    }
}

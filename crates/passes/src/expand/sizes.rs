//! Number of nodes that calls expand to, computed before the expansion.

use hashbrown::{HashMap, HashSet};
use sardonyx_model::{Attribute, GraphId, Model, NodeId, Symbol};

use crate::order::{inner_graphs, nodes_of_tree};

/// Lookup of the index of the function whose body replaces a node.
pub(crate) type FunctionOf<'a> = &'a dyn Fn(NodeId) -> Option<usize>;

/// Number of nodes that each function expands to, with the functions that it calls.
#[derive(Default)]
pub(crate) struct Sizes(HashMap<usize, Size>);

/// Number of nodes, and number of uses of each attribute of the enclosing function that holds a
/// graph.
#[derive(Debug, Clone, Default)]
struct Size {
    nodes: u64,
    graphs: HashMap<Symbol, u64>,
}

impl Size {
    /// Adds `times` multiples of another size.
    fn add(&mut self, other: &Size, times: u64) {
        self.nodes = self.nodes.saturating_add(other.nodes.saturating_mul(times));
        for (name, count) in &other.graphs {
            self.add_graphs(*name, count.saturating_mul(times));
        }
    }

    fn add_graphs(&mut self, name: Symbol, times: u64) {
        let count = self.graphs.entry(name).or_default();
        *count = count.saturating_add(times);
    }
}

impl Sizes {
    /// Returns the number of nodes that a call expands to. Functions must not call themselves.
    pub(crate) fn of_call(
        &mut self,
        model: &Model,
        function_of: FunctionOf<'_>,
        call: NodeId,
        function: usize,
    ) -> u64 {
        self.know(model, function_of, function);
        // Graphs that the call passes may have calls as well.
        for node in nodes_inside(model, call) {
            if let Some(function) = function_of(node) {
                self.know(model, function_of, function);
            }
        }
        self.call(model, function_of, call, function).nodes
    }

    /// Computes the sizes of a function and of all functions that it calls, if they are not known.
    /// Does not recurse, as calls may be nested deeply.
    fn know(&mut self, model: &Model, function_of: FunctionOf<'_>, function: usize) {
        let mut open = vec![function];
        while let Some(function) = open.last().copied() {
            if self.0.contains_key(&function) {
                open.pop();
                continue;
            }
            let before = open.len();
            let called = callees(model, function, function_of);
            open.extend(called.into_iter().filter(|callee| !self.0.contains_key(callee)));
            if open.len() == before {
                let size = self.graph(model, function_of, model.functions[function].body);
                self.0.insert(function, size);
                open.pop();
            }
        }
    }

    /// Returns the size of a graph after expansion. The sizes of its callees must be known.
    fn graph(&self, model: &Model, function_of: FunctionOf<'_>, graph: GraphId) -> Size {
        let mut size = Size::default();
        for node in &model.graph(graph).nodes {
            match function_of(*node) {
                Some(function) => size.add(&self.call(model, function_of, *node, function), 1),
                None => {
                    size.nodes = size.nodes.saturating_add(1);
                    for attribute in model.attributes(*node) {
                        self.attribute(
                            model,
                            function_of,
                            model.attribute(*attribute),
                            1,
                            &mut size,
                        );
                    }
                }
            }
        }
        size
    }

    /// Adds the size of the graphs of an attribute that is used `times` times.
    fn attribute(
        &self,
        model: &Model,
        function_of: FunctionOf<'_>,
        attribute: &Attribute,
        times: u64,
        size: &mut Size,
    ) {
        if let Some(name) = attribute.ref_attr_name() {
            return size.add_graphs(name, times);
        }
        for graph in attribute.graphs() {
            size.add(&self.graph(model, function_of, graph), times);
        }
    }

    /// Returns the size of a call after expansion.
    fn call(
        &self,
        model: &Model,
        function_of: FunctionOf<'_>,
        call: NodeId,
        function: usize,
    ) -> Size {
        let Some(callee) = self.0.get(&function) else {
            return Size::default();
        };
        let mut size = Size { nodes: callee.nodes, ..Size::default() };
        let defaults = model.functions[function].attribute_protos.iter();
        let given = model.attributes(call).iter().map(|id| model.attribute(*id));
        // Attributes of the call follow, and thus override, defaults.
        let all = defaults.chain(given).filter_map(|attribute| Some((attribute.name?, attribute)));
        let all: HashMap<Symbol, &Attribute> = all.collect();
        for (name, times) in &callee.graphs {
            if let Some(attribute) = all.get(name) {
                self.attribute(model, function_of, attribute, *times, &mut size);
            }
        }
        size
    }
}

/// Returns the functions that the nodes of a function call, also in its default values and
/// subgraphs, each once, in the order of their first calls.
pub(crate) fn callees(model: &Model, function: usize, function_of: FunctionOf<'_>) -> Vec<usize> {
    let mut seen = HashSet::new();
    let found = nodes_of(model, function).filter_map(function_of);
    found.filter(|callee| seen.insert(*callee)).collect()
}

/// Returns the nodes of a function in all its graphs, including default values of attributes.
pub(crate) fn nodes_of(model: &Model, function: usize) -> impl Iterator<Item = NodeId> + '_ {
    let function = &model.functions[function];
    let defaults = function.attribute_protos.iter().flat_map(Attribute::graphs);
    let graphs = std::iter::once(function.body).chain(defaults);
    graphs.flat_map(|graph| nodes_of_tree(model, graph))
}

fn nodes_inside(model: &Model, node: NodeId) -> impl Iterator<Item = NodeId> + '_ {
    inner_graphs(model, node).flat_map(|graph| nodes_of_tree(model, graph))
}

//! Checks of function calls: recursion, and inlining that multiplies nodes exponentially ("billion
//! laughs"). Nodes are counted along the call graph, without inlining.

use std::collections::HashMap;

use sardonyx_model::{GraphId, Id, Model};

use super::ScanOptions;
use super::codes;
use super::nodes::{format_large, read_name};
use super::places::function_path;
use super::report::Findings;

/// Domain, name and overload that identify a function of a model.
type Name<'m> = (&'m [u8], &'m [u8], &'m [u8]);

/// Call graph of the functions of a model. A caller is the index of a function, or `functions` for
/// all graphs outside of functions together.
struct Calls {
    /// Number of functions of the model.
    functions: usize,
    /// Number of nodes of each caller that call no function.
    own: Vec<f64>,
    /// Functions that each caller calls, with the number of calls.
    calls: Vec<HashMap<usize, f64>>,
}

/// Reports recursive functions, and models with too many nodes after inlining.
pub(super) fn check(model: &Model, options: &ScanOptions, found: &mut Findings) {
    if model.functions.is_empty() {
        return;
    }
    let calls = Calls::new(model, &index_functions(model));
    let recursive = calls.find_recursive();
    for function in &recursive {
        found.add(&codes::RECURSION, || {
            let message = if calls.calls[*function].contains_key(function) {
                "the function calls itself"
            } else {
                "the function calls itself indirectly"
            };
            (function_path(model, *function), message.to_string())
        });
    }
    if recursive.is_empty() {
        let nodes = calls.count_inlined_nodes();
        let limit = options.expanded_nodes;
        if nodes > limit as f64 {
            found.add(&codes::BILLION_LAUGHS, || {
                let (functions, nodes) = (calls.functions, format_large(nodes));
                let message =
                    format!("with {functions} functions inlined, the model has {nodes} nodes");
                (String::new(), message)
            });
        }
    }
}

/// Maps the names of functions to their indices. A duplicate name maps to the first function.
fn index_functions(model: &Model) -> HashMap<Name<'_>, usize> {
    let mut by_name = HashMap::new();
    for (index, function) in model.functions.iter().enumerate() {
        let overload = model.maybe_text(function.overload).unwrap_or_default();
        let name = (
            read_name(model, function.domain),
            model.maybe_text(function.name).unwrap_or_default(),
            overload,
        );
        by_name.entry(name).or_insert(index);
    }
    by_name
}

impl Calls {
    /// Builds the call graph of a model, whose functions `by_name` maps from names to indices.
    fn new(model: &Model, by_name: &HashMap<Name<'_>, usize>) -> Calls {
        let functions = model.functions.len();
        let bodies: HashMap<GraphId, usize> = model
            .functions
            .iter()
            .enumerate()
            .map(|(index, function)| (function.body, index))
            .collect();
        let mut calls = Calls {
            functions,
            own: vec![0.0; functions + 1],
            calls: vec![HashMap::new(); functions + 1],
        };
        let mut roots: Vec<usize> = Vec::new();
        for (id, graph) in model.graphs() {
            // Outer graphs precede their inner graphs, so the root of the parent is known.
            let outer = graph.parent.and_then(|parent| roots.get(parent.index()));
            let root = outer.or(bodies.get(&id)).copied().unwrap_or(functions);
            roots.push(root);
            for node in &graph.nodes {
                let node = model.node(*node);
                let name = (
                    read_name(model, node.domain),
                    model.maybe_text(node.op_type).unwrap_or_default(),
                    model.maybe_text(node.overload).unwrap_or_default(),
                );
                match by_name.get(&name) {
                    Some(callee) => *calls.calls[root].entry(*callee).or_insert(0.0) += 1.0,
                    None => calls.own[root] += 1.0,
                }
            }
        }
        calls
    }

    /// Returns the indices of functions on a cycle of calls, or on a path between two cycles.
    fn find_recursive(&self) -> Vec<usize> {
        let mut callers: Vec<Vec<usize>> = vec![Vec::new(); self.functions];
        let mut callees: Vec<Vec<usize>> = vec![Vec::new(); self.functions];
        for (caller, called) in self.calls[..self.functions].iter().enumerate() {
            for callee in called.keys() {
                callers[*callee].push(caller);
                callees[caller].push(*callee);
            }
        }
        let mut left = vec![true; self.functions];
        trim_acyclic(&callers, &callees, &mut left);
        trim_acyclic(&callees, &callers, &mut left);
        (0..self.functions).filter(|index| left[*index]).collect()
    }

    /// Counts the nodes that the model would have with all function calls inlined. Functions must
    /// not be recursive.
    fn count_inlined_nodes(&self) -> f64 {
        // Topological order: the size of a function is final once those of all its callees are.
        let mut callers: Vec<Vec<(usize, f64)>> = vec![Vec::new(); self.functions];
        let mut waits: Vec<usize> = vec![0; self.functions + 1];
        for (caller, called) in self.calls.iter().enumerate() {
            waits[caller] = called.len();
            for (callee, times) in called {
                callers[*callee].push((caller, *times));
            }
        }
        let mut size = self.own.clone();
        let mut ready: Vec<usize> = (0..self.functions).filter(|f| waits[*f] == 0).collect();
        while let Some(function) = ready.pop() {
            for (caller, times) in &callers[function] {
                size[*caller] += times * size[function];
                waits[*caller] -= 1;
                if waits[*caller] == 0 && *caller < self.functions {
                    ready.push(*caller);
                }
            }
        }
        size[self.functions]
    }
}

/// Removes vertices without incoming edges from `left`, until each remaining vertex has an incoming
/// edge. A second call with swapped directions leaves the vertices on cycles and between cycles.
/// `back` holds the sources of each vertex's incoming edges, `forth` the targets of its outgoing
/// edges.
pub(super) fn trim_acyclic(back: &[Vec<usize>], forth: &[Vec<usize>], left: &mut [bool]) {
    let mut degree: Vec<usize> =
        back.iter().map(|from| from.iter().filter(|index| left[**index]).count()).collect();
    let mut free: Vec<usize> =
        (0..left.len()).filter(|index| left[*index] && degree[*index] == 0).collect();
    while let Some(index) = free.pop() {
        left[index] = false;
        for next in &forth[index] {
            degree[*next] -= 1;
            if degree[*next] == 0 && left[*next] {
                free.push(*next);
            }
        }
    }
}

//! Functions that call each other: in circles, or so often that expanding them never ends in
//! practice. Found by counting, not by expanding.

use std::collections::HashMap;

use sardonyx_model::{GraphId, Id, Model};

use super::ScanOptions;
use super::codes;
use super::nodes::{rounded, text};
use super::places::of_function;
use super::report::Findings;

/// Domain, name, overload.
type Name<'m> = (&'m [u8], &'m [u8], &'m [u8]);

/// A root of graphs: the bodies of functions by position, then everything else as one.
struct Calls {
    /// Number of functions.
    functions: usize,
    /// Nodes of each root that call no function.
    own: Vec<f64>,
    /// For each root, which functions it calls how often.
    calls: Vec<HashMap<usize, f64>>,
}

/// Checks how functions call each other.
pub(super) fn check(model: &Model, options: &ScanOptions, found: &mut Findings) {
    if model.functions.is_empty() {
        return;
    }
    let by_name = by_name(model);
    let calls = Calls::of(model, &by_name);
    let in_circles = calls.in_circles();
    for function in &in_circles {
        found.add(&codes::RECURSION, || {
            let message = if calls.calls[*function].contains_key(function) {
                "it calls itself"
            } else {
                "it calls itself indirectly"
            };
            (of_function(model, *function), message.to_string())
        });
    }
    if in_circles.is_empty() {
        let nodes = calls.expanded();
        let limit = options.expanded_nodes;
        if nodes > limit as f64 {
            found.add(&codes::BILLION_LAUGHS, || {
                let (functions, nodes) = (calls.functions, rounded(nodes));
                let message =
                    format!("with its {functions} functions inlined the model has {nodes} nodes");
                (String::new(), message)
            });
        }
    }
}

/// Functions by name, the first of each.
fn by_name(model: &Model) -> HashMap<Name<'_>, usize> {
    let mut by_name = HashMap::new();
    for (index, function) in model.functions.iter().enumerate() {
        let overload = model.maybe_text(function.overload).unwrap_or_default();
        let name = (
            text(model, function.domain),
            model.maybe_text(function.name).unwrap_or_default(),
            overload,
        );
        by_name.entry(name).or_insert(index);
    }
    by_name
}

impl Calls {
    fn of(model: &Model, by_name: &HashMap<Name<'_>, usize>) -> Calls {
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
            // A graph comes after the one around it.
            let around = graph.parent.and_then(|parent| roots.get(parent.index()));
            let root = around.or(bodies.get(&id)).copied().unwrap_or(functions);
            roots.push(root);
            for node in &graph.nodes {
                let node = model.node(*node);
                let name = (
                    text(model, node.domain),
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

    /// The functions that are part of a circle, or between two.
    fn in_circles(&self) -> Vec<usize> {
        let mut callers: Vec<Vec<usize>> = vec![Vec::new(); self.functions];
        let mut callees: Vec<Vec<usize>> = vec![Vec::new(); self.functions];
        for (caller, called) in self.calls[..self.functions].iter().enumerate() {
            for callee in called.keys() {
                callers[*callee].push(caller);
                callees[caller].push(*callee);
            }
        }
        let mut left = vec![true; self.functions];
        trim(&callers, &callees, &mut left);
        trim(&callees, &callers, &mut left);
        (0..self.functions).filter(|index| left[*index]).collect()
    }

    /// Nodes of everything that is no function, once all calls are replaced by what they call. Only
    /// without circles.
    fn expanded(&self) -> f64 {
        // Functions without calls are known; each makes those that call it known once it was the
        // last.
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

/// Takes away, again and again, what nothing that is left leads to. `back` and `forth` are the
/// edges in both directions.
pub(super) fn trim(back: &[Vec<usize>], forth: &[Vec<usize>], left: &mut [bool]) {
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

//! Reduces a model to a small one for which a check still fails, for bug reports.
//!
//! Delta debugging (Zeller and Hildebrandt, "Simplifying and Isolating Failure-Inducing Input",
//! IEEE Transactions on Software Engineering 28, 2002) over the parts of a model: outputs, nodes,
//! graphs in nodes, constants, sizes, inputs and attributes. Every candidate is a model without
//! errors that the original does not have. The order of candidates depends on the model and the
//! answers alone, so that a reduction can be replayed from its answers.

mod candidates;
mod sizes;

use std::collections::BTreeMap;

use hashbrown::HashSet;
use sardonyx_model::{GraphId, Model, NodeId, ValueId};
use sardonyx_ops::Registry;

use crate::align::inline;
use crate::diff::ModelWithData;
use crate::extract::{Cut, extract_unchecked};
use crate::inline::InlineOptions;
use crate::order::{inner_graphs, tree};
use crate::origins::Origins;
use crate::results::{JobInput, JobKind};
use crate::strip::{StripOptions, StripReport, strip};

/// Answer of a check about a candidate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CheckAnswer {
    /// The check fails, as for the original model: the candidate is kept.
    Fails,
    /// The check does not fail: the candidate is dropped.
    Passes,
    /// The reduction ends with the smallest model so far.
    Stop,
}

/// Options of a reduction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReduceOptions {
    /// Maximum number of checks.
    pub checks: u64,
}

impl Default for ReduceOptions {
    fn default() -> Self {
        ReduceOptions { checks: 10_000 }
    }
}

/// Sizes of a model before and after a reduction, and the steps between them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReduceReport {
    /// Number of checks, with that of the model itself.
    pub checks: u64,
    /// Number of accepted candidates by kind of step, such as `nodes` or `constants`.
    pub steps: BTreeMap<&'static str, usize>,
    /// Number of nodes in all graphs of the original model.
    pub nodes_before: usize,
    /// Number of nodes in all graphs of the reduced model.
    pub nodes: usize,
    /// Number of elements of the original model's constants.
    pub elements_before: u64,
    /// Number of elements of the reduced model's constants.
    pub elements: u64,
    /// Whether the check does not fail for the original model, so that nothing was reduced.
    pub never_failed: bool,
    /// Whether the reduction ended early, by an answer or by the maximum number of checks.
    pub stopped: bool,
}

/// Reduced model.
#[derive(Debug)]
pub struct Reduced {
    /// Smallest model for which the check fails.
    pub model: Model,
    /// Sizes and steps.
    pub report: ReduceReport,
}

/// Reduces a model as long as `check` fails.
pub fn reduce(
    model: ModelWithData<'_>,
    registry: &Registry,
    options: &ReduceOptions,
    check: &mut dyn FnMut(&Model) -> CheckAnswer,
) -> Reduced {
    let original = model.model;
    let mut reducer = Reducer {
        original: model,
        registry,
        options: *options,
        check,
        best: original.clone(),
        report: ReduceReport {
            nodes_before: count_nodes(original),
            elements_before: candidates::count_elements(original),
            ..ReduceReport::default()
        },
    };
    reducer.report.checks = 1;
    match (reducer.check)(original) {
        CheckAnswer::Fails => reducer.run(),
        CheckAnswer::Passes => reducer.report.never_failed = true,
        CheckAnswer::Stop => reducer.report.stopped = true,
    }
    let Reducer { best, mut report, .. } = reducer;
    report.nodes = count_nodes(&best);
    report.elements = candidates::count_elements(&best);
    Reduced { model: best, report }
}

/// Counts the nodes of all graphs.
fn count_nodes(model: &Model) -> usize {
    model.graphs().map(|(_, graph)| graph.nodes.len()).sum()
}

/// A reduction in progress.
struct Reducer<'a> {
    original: ModelWithData<'a>,
    registry: &'a Registry,
    options: ReduceOptions,
    check: &'a mut dyn FnMut(&Model) -> CheckAnswer,
    /// Smallest model for which the check failed.
    best: Model,
    report: ReduceReport,
}

/// Nodes of a reduced model up to which each attribute is tried by itself.
const FEW_NODES: usize = 200;

impl Reducer<'_> {
    fn run(&mut self) {
        let Some(main) = self.best.main else { return };
        self.expand_functions();
        self.drop_outputs(main);
        // Models without weights are cheap to write and to check.
        self.generate_constants();
        loop {
            let before = self.report.steps.values().sum::<usize>();
            self.enter_bodies();
            self.shorten();
            self.drop_nodes();
            self.bypass_nodes();
            let Some(main) = self.best.main else { return };
            self.drop_outputs(main);
            self.generate_constants();
            if self.report.stopped || self.report.steps.values().sum::<usize>() == before {
                break;
            }
        }
        self.shrink_sizes();
        self.merge_inputs();
        self.drop_attributes();
        self.strip();
    }

    /// Runs the check on a candidate, and keeps it if the check fails. Returns whether it did.
    fn attempt(&mut self, step: &'static str, candidate: Model) -> bool {
        if self.report.stopped || !self.is_valid(&candidate) {
            return false;
        }
        if self.report.checks >= self.options.checks {
            self.report.stopped = true;
            return false;
        }
        self.report.checks += 1;
        match (self.check)(&candidate) {
            CheckAnswer::Fails => {
                self.best = candidate;
                *self.report.steps.entry(step).or_default() += 1;
                true
            }
            CheckAnswer::Passes => false,
            CheckAnswer::Stop => {
                self.report.stopped = true;
                false
            }
        }
    }

    /// Whether a candidate has no errors that the original model does not have.
    fn is_valid(&self, candidate: &Model) -> bool {
        let input =
            JobInput { job: JobKind::Reduce, model: self.original.model, registry: self.registry };
        input.check(candidate, &Origins::default()).is_ok()
    }

    fn attempt_cut(&mut self, step: &'static str, cut: &Cut) -> bool {
        if self.report.stopped {
            return false;
        }
        match extract_unchecked(&self.best, self.registry, cut) {
            Ok(extracted) => self.attempt(step, extracted.model),
            Err(_) => false,
        }
    }

    /// Removes as many `items` as possible: halves, quarters and so on, down to single ones.
    fn drop_items<T: Copy>(
        &mut self,
        mut items: Vec<T>,
        drop: &mut dyn FnMut(&mut Self, &[T]) -> bool,
    ) {
        let mut chunk = items.len();
        while chunk > 0 && !self.report.stopped {
            let mut start = 0;
            while start < items.len() && !self.report.stopped {
                let end = items.len().min(start + chunk);
                if drop(self, &items[start..end]) {
                    items.drain(start..end);
                } else {
                    start = end;
                }
            }
            chunk = if chunk == 1 { 0 } else { chunk.div_ceil(2).min(items.len()) };
        }
    }

    /// Replaces calls of functions by their bodies.
    fn expand_functions(&mut self) {
        if self.best.functions.is_empty() {
            return;
        }
        let options = InlineOptions { keep_conflicting: true, ..InlineOptions::default() };
        if let Ok((candidate, _)) = inline(&self.best, self.registry, &options) {
            self.attempt("functions", candidate);
        }
    }

    fn drop_outputs(&mut self, main: GraphId) {
        let outputs = self.list_outputs(main);
        self.drop_items(outputs, &mut |reducer, dropped| {
            let mut kept = reducer.list_outputs(main);
            kept.retain(|value| !dropped.contains(value));
            !kept.is_empty() && reducer.attempt_cut("outputs", &cut_to(main, kept))
        });
    }

    fn list_outputs(&self, graph: GraphId) -> Vec<ValueId> {
        self.best.graph(graph).outputs.iter().filter_map(|info| info.value).collect()
    }

    /// Makes a graph in a node the main graph.
    fn enter_bodies(&mut self) {
        'entered: loop {
            let Some(main) = self.best.main else { return };
            let graphs: Vec<GraphId> = tree(&self.best, main).into_iter().skip(1).collect();
            for graph in graphs {
                let outputs = self.list_outputs(graph);
                let cut = Cut { keeps_inputs: true, ..cut_to(graph, outputs) };
                if self.attempt_cut("graphs", &cut) {
                    continue 'entered;
                }
            }
            break;
        }
    }

    /// Removes nodes from the end and from the beginning, in halves first.
    fn shorten(&mut self) {
        for from_end in [true, false] {
            let Some(main) = self.best.main else { return };
            let mut step = self.best.graph(main).nodes.len() / 2;
            while step > 0 && !self.report.stopped {
                let nodes = &self.best.graph(main).nodes;
                let count = nodes.len();
                if step >= count {
                    step = count / 2;
                    continue;
                }
                let cut = if from_end {
                    candidates::keep_first(&self.best, main, count - step)
                } else {
                    candidates::keep_last(&self.best, main, count - step)
                };
                if !cut.is_some_and(|cut| self.attempt_cut("nodes", &cut)) {
                    step /= 2;
                }
            }
        }
    }

    /// Removes nodes anywhere. Values that others read from them become inputs.
    fn drop_nodes(&mut self) {
        let Some(main) = self.best.main else { return };
        let nodes = self.best.graph(main).nodes.clone();
        self.drop_items(nodes, &mut |reducer, dropped| {
            let cut = candidates::without_nodes(&reducer.best, main, dropped);
            cut.is_some_and(|cut| reducer.attempt_cut("nodes", &cut))
        });
    }

    /// Removes nodes, in graphs of nodes as well, of which an input has the type of the output:
    /// the input takes the place of the output.
    fn bypass_nodes(&mut self) {
        let Some(main) = self.best.main else { return };
        let graphs = tree(&self.best, main);
        let nodes: Vec<NodeId> =
            graphs.iter().flat_map(|graph| self.best.graph(*graph).nodes.clone()).collect();
        self.drop_items(nodes, &mut |reducer, dropped| {
            let candidate = candidates::bypass(&reducer.best, reducer.registry, dropped);
            candidate.is_some_and(|candidate| reducer.attempt("bypassed", candidate))
        });
    }

    /// Replaces constants by nodes that generate zeros.
    fn generate_constants(&mut self) {
        let Some(main) = self.best.main else { return };
        let large = candidates::list_large_constants(&self.best, main);
        self.drop_items(large, &mut |reducer, dropped| {
            let candidate = candidates::with_zeros(&reducer.best, main, dropped);
            candidate.is_some_and(|candidate| reducer.attempt("constants", candidate))
        });
    }

    /// Replaces inputs by others of their types.
    fn merge_inputs(&mut self) {
        let Some(main) = self.best.main else { return };
        let inputs: Vec<ValueId> =
            self.best.graph(main).inputs.iter().filter_map(|info| info.value).collect();
        self.drop_items(inputs, &mut |reducer, dropped| {
            let candidate = candidates::without_inputs(&reducer.best, main, dropped);
            candidate.is_some_and(|candidate| reducer.attempt("inputs", candidate))
        });
    }

    /// Lowers sizes that inputs and constants share, the largest first.
    fn shrink_sizes(&mut self) {
        let mut tried = HashSet::new();
        while let Some(size) =
            sizes::list_sizes(&self.best).into_iter().rev().find(|size| !tried.contains(size))
        {
            tried.insert(size);
            for smaller in [1, 2, size / 2] {
                if smaller >= size || smaller < 1 || self.report.stopped {
                    continue;
                }
                let model = ModelWithData { model: &self.best, data: self.original.data };
                let candidate = sizes::with_size(model, self.registry, size, smaller);
                if candidate.is_some_and(|candidate| self.attempt("sizes", candidate)) {
                    break;
                }
            }
        }
    }

    /// Removes attributes that operators do not need.
    fn drop_attributes(&mut self) {
        let Some(main) = self.best.main else { return };
        if count_nodes(&self.best) > FEW_NODES {
            return;
        }
        for graph in tree(&self.best, main) {
            for node in self.best.graph(graph).nodes.clone() {
                if inner_graphs(&self.best, node).next().is_some() {
                    continue;
                }
                let attributes = self.best.attributes(node).iter();
                let names: Vec<String> = attributes
                    .map(|id| self.best.display(self.best.attribute(*id).name).into_owned())
                    .collect();
                for name in names {
                    let mut candidate = self.best.clone();
                    candidate.remove_attribute(node, &name);
                    self.attempt("attributes", candidate);
                }
            }
        }
    }

    /// Removes texts, and types of intermediate values.
    fn strip(&mut self) {
        let options = StripOptions {
            docs: true,
            names: true,
            metadata: true,
            unused_initializers: true,
            training: true,
            inferred_types: true,
        };
        let mut candidate = self.best.clone();
        if strip(&mut candidate, &options) != StripReport::default() {
            self.attempt("texts", candidate);
        }
    }
}

/// Returns the part of a graph that ends at `outputs` and begins at the inputs of the graph.
fn cut_to(graph: GraphId, outputs: Vec<ValueId>) -> Cut {
    Cut { graph, inputs: Vec::new(), stops: Vec::new(), outputs, keeps_inputs: false }
}

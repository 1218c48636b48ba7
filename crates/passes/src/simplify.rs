//! Simplification: replaces a model by one that computes the same with fewer nodes.
//!
//! A table of rules ([`simplify_rules`]) and jobs that look at whole graphs, in every graph: the
//! main graph, bodies of functions, and graphs of nodes. Nodes are read and made at the versions of
//! operator sets that the model imports, and inputs, outputs and their types stay. Rounds repeat
//! until nothing changes, up to a limit, and each is linear in the size of the model.
//!
//! A value keeps its meaning for as long as a round lasts, whatever becomes of the node that makes
//! it. So the facts that inference found at the beginning of a round holds to its end, and a value
//! that is made in a round has no type until the next one.

mod arithmetic;
mod branches;
mod chains;
mod constants;
mod fold;
mod linear;
mod no_ops;
mod region;
mod report;
mod rule;
mod shapes;
mod sizes;
mod spelled;
mod splits;
mod states;
mod verify;
mod views;

use hashbrown::{HashMap, HashSet};
use sardonyx_model::{
    ExternalData, GraphId, Model, NodeId, OperatorSetId, Producer, Symbol, Type, ValueId, ValueInfo,
};
use sardonyx_ops::Registry;
use sardonyx_ops::operators::CONSTANT;
use sardonyx_tensor::{DataType, Tensor};

use crate::cse::eliminate_common_except;
use crate::dead::remove_dead;
use crate::finding::{Finding, place_of_node};
use crate::fuse::{Made, apply};
use crate::infer::{InferOptions, Inference, infer_everywhere};
use crate::ir_version::PLAIN_INITIALIZERS;
use crate::matcher::{Match, Matcher, Rewrite};
use crate::origins::Origins;
use crate::resolve::{Resolved, resolve};
use crate::results::{Accepted, JobInput, JobKind, Rejected};
use crate::sequences::unpack_sequences;

pub use report::{NearMiss, RejectedRewrite, RuleUse, SimplifyReport, Tally};
pub use rule::{SimplifyLevel, SimplifyRule, simplify_rules};

use constants::Constants;
use rule::{
    BRANCHES, CONSTANTS, DEAD, DUPLICATES, FOLD, NODE_RULES, NodeRule, PRODUCTS, SEQUENCES, SIZES,
    SLICES, ZERO_STATES,
};
use verify::{Verdict, Verifier};

/// Limit: rounds. Each moves what is done one step through chains of rules.
const MOST_ROUNDS: usize = 12;

/// First version of `ai.onnx` in which sequences are replaced by nodes in their newest forms.
const UNPACKED_FROM: u32 = 13;

/// Computes small models: parts of the model whose inputs are given or constant.
pub trait Evaluate {
    /// Runs a model without any optimization. Inputs are in the order of the model's inputs, and so
    /// are outputs.
    ///
    /// # Errors
    ///
    /// A message: the model cannot be run, or fails on these inputs.
    fn evaluate(&self, model: Model, inputs: Vec<Tensor>) -> Result<Vec<Tensor>, String>;
}

/// Options of simplification.
#[derive(Clone, Copy)]
pub struct SimplifyOptions<'a> {
    /// Level of the rewrites.
    pub level: SimplifyLevel,
    /// Bytes by which folded constants may be larger, in all, than what they make unnecessary; by
    /// default a hundredth of the model's constants, and from 16 KiB to 1 MiB.
    pub grow: Option<u64>,
    /// Names of rules that are left out.
    pub without: &'a [String],
    /// Values of constants that are stored outside of the model.
    pub external: &'a dyn ExternalData,
    /// Computes constants and verifies rewrites. Without it, only constants that inference knows
    /// are folded, and nothing is verified.
    pub evaluate: Option<&'a dyn Evaluate>,
    /// Whether rewrites are verified on drawn inputs. One that fails is left out.
    pub verify: bool,
}

impl std::fmt::Debug for SimplifyOptions<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SimplifyOptions")
            .field("level", &self.level)
            .field("grow", &self.grow)
            .field("without", &self.without)
            .field("verify", &self.verify)
            .finish_non_exhaustive()
    }
}

impl SimplifyOptions<'_> {
    /// Least and largest default of [`grow`](Self::grow), in bytes.
    const LEAST_GROWTH: u64 = 1 << 14;
    const MOST_GROWTH: u64 = 1 << 20;

    /// Returns the bytes by which a model with these constants may grow.
    fn growth(&self, constant_bytes: u64) -> u64 {
        let default = (constant_bytes / 100).clamp(Self::LEAST_GROWTH, Self::MOST_GROWTH);
        self.grow.unwrap_or(default)
    }
}

/// A simplified model.
#[derive(Debug)]
pub struct Simplified {
    /// The model.
    pub model: Model,
    /// Rewrites and near misses.
    pub report: SimplifyReport,
    /// Nodes of the input model from which the nodes of the result were made.
    pub origins: Origins,
}

/// Reasons why a model cannot be simplified.
#[derive(Debug, Clone)]
pub enum SimplifyError {
    /// A rule that does not exist.
    UnknownRule(String),
    /// The model cannot run.
    Findings(Vec<Finding>),
    /// The result has errors that the model does not have.
    Invalid(Box<Rejected>),
}

/// Simplifies a model. Returns a new model and leaves `model` unchanged.
///
/// # Errors
///
/// A model that cannot run, such as one with undefined names; a result with errors that the model
/// does not have.
pub fn simplify(
    model: &Model,
    registry: &Registry,
    options: &SimplifyOptions<'_>,
) -> Result<Simplified, SimplifyError> {
    let rules = simplify_rules();
    let mut names = options.without.iter();
    if let Some(unknown) = names.find(|name| !rules.iter().any(|rule| rule.name == **name)) {
        return Err(SimplifyError::UnknownRule(unknown.clone()));
    }
    let mut job = Job::new(model, registry, options)?;
    job.run();
    let (result, report, origins) = job.finish();
    let input = JobInput { job: JobKind::Simplify, model, registry };
    match input.accept(result, &origins) {
        Ok(Accepted { model, .. }) => Ok(Simplified { model, report, origins }),
        Err(rejected) => Err(SimplifyError::Invalid(rejected)),
    }
}

/// Graphs that share their operator sets: the main graph, or the body of a function, with the
/// graphs of their nodes.
#[derive(Debug, Clone, Copy)]
struct Scope {
    root: GraphId,
    /// Index of the function; `None` for the main graph.
    function: Option<usize>,
    /// Version of `ai.onnx` that is imported.
    opset: u32,
}

/// Inputs and constants of a main graph before IR version 4.
struct OldLists {
    /// Inputs, with the constants among them.
    inputs: Vec<ValueInfo>,
    /// Constants that are not inputs, although they have to be.
    plain: HashSet<ValueId>,
}

struct Job<'a> {
    registry: &'a Registry,
    options: &'a SimplifyOptions<'a>,
    resolved: Resolved,
    constants: Constants<'a>,
    verifier: Verifier<'a>,
    /// Lists of the main graph in a model before IR version 4, where constants are inputs, too.
    old_lists: Option<OldLists>,
    /// Bytes that folded constants may still add.
    grow: u64,
    report: SimplifyReport,
    /// Near misses that were reported, by rule and node.
    near: HashSet<(&'static str, NodeId)>,
    /// Rewrites that were rejected, by rule and node.
    rejected: HashSet<(&'static str, NodeId)>,
}

impl<'a> Job<'a> {
    fn new(
        original: &Model,
        registry: &'a Registry,
        options: &'a SimplifyOptions<'a>,
    ) -> Result<Job<'a>, SimplifyError> {
        let mut report = SimplifyReport { level: options.level, ..SimplifyReport::default() };
        report.before = Tally::from_model(original);
        let mut model = original.clone();
        let mut old_lists = None;
        if model.header.ir_version.unwrap_or(0) < PLAIN_INITIALIZERS
            && let Some(main) = model.main
        {
            old_lists = Some(OldLists {
                inputs: model.graph(main).inputs.clone(),
                plain: constants::list_plain(&model, main),
            });
            model.fix_default_inputs(main);
        }
        let state = names_in_use(&model);
        let resolved = resolve(model, registry.clone()).map_err(SimplifyError::Findings)?;
        Ok(Job {
            registry,
            options,
            resolved,
            constants: Constants::new(options.external, state),
            verifier: Verifier::new(options, registry),
            old_lists,
            grow: options.growth(report.before.constant_bytes),
            report,
            near: HashSet::new(),
            rejected: HashSet::new(),
        })
    }

    /// Whether a rule is applied.
    fn applies(&self, rule: SimplifyRule) -> bool {
        rule.level <= self.options.level
            && !self.options.without.iter().any(|name| name == rule.name)
    }

    fn run(&mut self) {
        let main = self.resolved.main();
        for _ in 0..MOST_ROUNDS {
            let inference = self.infer();
            let mut changes = 0;
            for scope in self.scopes(main) {
                self.resolved.enter(scope.root);
                changes += self.round(scope, &inference);
            }
            self.resolved.enter(main);
            self.report.rounds += 1;
            if changes == 0 {
                break;
            }
        }
    }

    fn infer(&mut self) -> Inference {
        // Constants that were made are read like others.
        self.constants.forget();
        infer_everywhere(self.resolved.model(), self.registry, InferOptions::default())
    }

    /// Lists the main graph and the functions that it calls, directly or not.
    fn scopes(&self, main: GraphId) -> Vec<Scope> {
        let model = self.resolved.model();
        let mut scopes = Vec::new();
        // Without the standard's operators, constants cannot be made either.
        if let Some(opset) = opset_of(model, &model.header.opset_import) {
            scopes.push(Scope { root: main, function: None, opset });
        }
        for function in self.resolved.called_functions() {
            let called = &model.functions[function];
            if let Some(opset) = opset_of(model, &called.opset_import) {
                scopes.push(Scope { root: called.body, function: Some(function), opset });
            }
        }
        scopes
    }

    /// Applies all rules once; how often one was.
    fn round(&mut self, scope: Scope, inference: &Inference) -> usize {
        let mut changes = 0;
        if self.applies(BRANCHES) {
            changes += self.take_branches(scope, inference);
        }
        if self.applies(SEQUENCES) && scope.opset >= UNPACKED_FROM {
            let count = unpack_sequences(&mut self.resolved, inference);
            self.note(SEQUENCES.name, count, 0);
            if count > 0 {
                self.resolved.set_opset_of_all(scope.opset);
            }
            changes += count;
        }
        if self.applies(SIZES) {
            changes += self.compute_sizes(scope, inference);
        }
        if self.applies(FOLD) {
            changes += self.fold(scope, inference);
        }
        if self.applies(DUPLICATES) {
            changes += self.remove_duplicates(inference);
        }
        if self.applies(ZERO_STATES) {
            changes += self.omit_zero_states(scope, inference);
        }
        if self.applies(SLICES) {
            changes += self.join_slices(scope, inference);
        }
        for graph in self.resolved.graphs().to_vec() {
            changes += self.apply_node_rules(scope, graph, inference);
        }
        self.resolved.place_made();
        if self.applies(CONSTANTS) {
            changes += self.store_constants(scope);
        }
        if self.applies(DEAD) {
            let dead = remove_dead(&mut self.resolved);
            self.note(DEAD.name, dead, dead);
            self.remove_unused_initializers();
        }
        changes
    }

    fn remove_duplicates(&mut self, inference: &Inference) -> usize {
        let model = self.resolved.model();
        let graphs = self.resolved.graphs().iter();
        let initializers = graphs.flat_map(|graph| &model.graph(*graph).initializers);
        let small = initializers.filter(|found| {
            model.implied_bytes(&found.tensor).is_none_or(|bytes| bytes <= constants::LARGE)
        });
        let values = small.filter_map(|found| found.value);
        let stored =
            values.filter_map(|value| Some((value, self.constants.read_stored(model, value)?)));
        let stored: HashMap<ValueId, Tensor> = stored.collect();
        let computed = self.list_computed_floats(inference);
        let constant = |value: ValueId| stored.get(&value).cloned();
        let found = eliminate_common_except(&mut self.resolved, inference, &constant, computed);
        let main = self.resolved.main();
        let large = if self.report.rounds == 0 { self.merge_large(main) } else { 0 };
        let count = found.nodes + found.constants + large;
        self.note(DUPLICATES.name, count, found.nodes);
        count
    }

    /// Lists the floats that nodes compute although inference knows them. At level `exact`, they
    /// are not merged with constants, which products sum in another order.
    fn list_computed_floats(&self, inference: &Inference) -> HashSet<ValueId> {
        if self.options.level > SimplifyLevel::Exact {
            return HashSet::new();
        }
        let model = self.resolved.model();
        let graphs = self.resolved.graphs().iter();
        let nodes = graphs.flat_map(|graph| self.resolved.order_of(*graph));
        let computing = nodes.filter(|node| !self.resolved.is(**node, &CONSTANT));
        let values = computing.flat_map(|node| model.outputs(*node)).flatten().copied();
        let is_known_float = |value: &ValueId| {
            let elem = inference.ty(*value).and_then(Type::elem);
            inference.known(*value).is_some() && elem.is_none_or(DataType::is_float)
        };
        values.filter(is_known_float).collect()
    }

    /// Applies the rules that look at single nodes.
    fn apply_node_rules(&mut self, scope: Scope, graph: GraphId, inference: &Inference) -> usize {
        let by_op: Vec<Vec<&'static NodeRule>> = self.resolved.of_operators(|op| {
            let rules = NODE_RULES.iter().filter(|rule| {
                self.applies(rule.rule) && rule.ops.iter().any(|found| op.def.is(found))
            });
            rules.collect()
        });
        let mut made = Made::default();
        let mut changes = 0;
        for node in self.resolved.order_of(graph).to_vec() {
            let Some(op) = self.resolved.op_id(node) else { continue };
            let Some(rules) = by_op.get(op.index()) else { continue };
            for rule in rules {
                let name = rule.rule.name;
                if self.rejected.contains(&(name, node)) {
                    continue;
                }
                let Some(found) = self.find(scope, graph, inference, rule, node) else { continue };
                let rewrite = match found {
                    Match::No => continue,
                    Match::Nearly(why) => {
                        if self.near.insert((name, node)) {
                            let place = place_of_node(self.resolved.model(), node);
                            self.report.note_near(name, place, why);
                        }
                        continue;
                    }
                    Match::Yes(rewrite) => rewrite,
                };
                if !self.is_verified(scope, inference, rule, node, &rewrite) {
                    continue;
                }
                let place = place_of_node(self.resolved.model(), node);
                if self.apply_rewrite(scope, node, rewrite, &mut made) {
                    self.note(name, 1, 0);
                    self.report.remove_near(name, &place);
                    self.report.note_place(name, place);
                    changes += 1;
                    break;
                }
            }
        }
        changes
    }

    /// Looks for a rewrite whose nodes the model's operator sets have.
    fn find(
        &self,
        scope: Scope,
        graph: GraphId,
        inference: &Inference,
        rule: &NodeRule,
        node: NodeId,
    ) -> Option<Match> {
        let model = self.resolved.model();
        let output = (*model.outputs(node).first()?)?;
        if self.constants.is_constant(&self.resolved, inference, output) {
            return None;
        }
        let found = self.with_matcher(scope, graph, inference, |matcher| {
            match (rule.find)(matcher, node) {
                Match::Yes(rewrite) if self.makes_operand(inference, output, &rewrite) => Match::No,
                Match::Yes(rewrite) => {
                    let has_ops = rewrite.steps.iter().all(|step| matcher.has_op(step.op));
                    let mut nodes = rewrite.fused.iter().copied().chain([node]);
                    let is_plain = nodes.all(|node| is_plain(model, node));
                    if has_ops && is_plain { Match::Yes(rewrite) } else { Match::No }
                }
                other => other,
            }
        });
        Some(found)
    }

    /// Whether a rewrite makes a constant of an operand of a product, which keeps its bits only at
    /// level `close`.
    fn makes_operand(&self, inference: &Inference, output: ValueId, rewrite: &Rewrite) -> bool {
        let is_constant = rewrite
            .value
            .is_some_and(|value| self.constants.is_constant(&self.resolved, inference, value));
        is_constant && self.must_stay_computed(inference, output)
    }

    /// Whether a value must not become a constant, as a product of floats reads it. Functions and
    /// operators of other domains may consist of products.
    fn must_stay_computed(&self, inference: &Inference, value: ValueId) -> bool {
        let elem = inference.ty(value).and_then(Type::elem);
        let may_sum = |reader: NodeId| {
            let op = self.resolved.op(reader);
            op.is_none_or(|op| !op.def.domain.is_empty() || PRODUCTS.iter().any(|p| op.def.is(p)))
        };
        self.options.level == SimplifyLevel::Exact
            && elem.is_none_or(DataType::is_float)
            && self.resolved.model().uses(value).any(|(reader, _)| may_sum(reader))
    }

    /// Calls `look` with the surroundings of the nodes of a graph.
    fn with_matcher<T>(
        &self,
        scope: Scope,
        graph: GraphId,
        inference: &Inference,
        look: impl FnOnce(&Matcher<'_>) -> T,
    ) -> T {
        look(&Matcher {
            resolved: &self.resolved,
            model: self.resolved.model(),
            graph,
            inference,
            is_constant: &|value| self.constants.is_constant(&self.resolved, inference, value),
            constant: &|value| self.constants.get(&self.resolved, inference, value),
            opset: Some(scope.opset),
        })
    }

    /// Whether a rewrite gives the results of the nodes that it replaces, as far as that is
    /// verified.
    fn is_verified(
        &mut self,
        scope: Scope,
        inference: &Inference,
        rule: &NodeRule,
        node: NodeId,
        rewrite: &Rewrite,
    ) -> bool {
        if !self.options.verify {
            return true;
        }
        let region = region::Change {
            resolved: &self.resolved,
            inference,
            opset: scope.opset,
            anchor: node,
            rewrite,
            constant: &|value| self.constants.get(&self.resolved, inference, value),
        };
        match self.verifier.verify(&region, rule.rule) {
            Verdict::Same => {
                self.report.verified += 1;
                true
            }
            Verdict::Unknown => {
                self.report.unverified += 1;
                true
            }
            Verdict::Differs(why) => {
                let place = place_of_node(self.resolved.model(), node);
                self.report.rejected.push(RejectedRewrite { rule: rule.rule.name, place, why });
                self.rejected.insert((rule.rule.name, node));
                false
            }
        }
    }

    /// Makes a rewrite. Returns whether anything changed.
    fn apply_rewrite(
        &mut self,
        scope: Scope,
        anchor: NodeId,
        rewrite: Rewrite,
        made: &mut Made,
    ) -> bool {
        let Some(value) = rewrite.value else {
            apply(&mut self.resolved, anchor, rewrite, made, Some(scope.opset));
            return true;
        };
        let Some(output) = self.resolved.model().outputs(anchor).first().copied().flatten() else {
            return false;
        };
        for edit in rewrite.edits {
            let source = match edit.source {
                crate::matcher::Source::Value(value) => value,
                crate::matcher::Source::Constant(tensor) => {
                    let hint = self
                        .resolved
                        .model()
                        .display(self.resolved.model().node(edit.node).op_type);
                    let hint = hint.into_owned();
                    self.resolved.build(edit.node).constant(&hint, &tensor)
                }
                _ => continue,
            };
            self.resolved.model_mut().set_input(edit.node, edit.index, Some(source));
        }
        self.read_instead(anchor, output, value)
    }

    /// Lets readers of `output`, the first output of a node, read an equal value. An output of a
    /// graph keeps its name: the node that makes the value gives it instead, if that is a node of
    /// the same graph whose own name is free to go.
    fn read_instead(&mut self, node: NodeId, output: ValueId, value: ValueId) -> bool {
        let kept = self.constants.is_named(self.resolved.model(), output);
        let model = self.resolved.model_mut();
        if !model.value(output).is_output && !kept {
            let is_read = model.is_read(output);
            model.replace_uses(output, value, None);
            return is_read;
        }
        let is_free = {
            let found = model.value(value);
            matches!(found.producer, Producer::Node(..))
                && !found.is_output
                && found.graph == model.value(output).graph
                && !self.constants.is_named(model, value)
        };
        match model.value(value).producer {
            Producer::Node(producer, index) if is_free => {
                model.drop_output(node, 0);
                model.replace_uses(value, output, None);
                model.redefine_output(producer, index as usize, output);
                self.resolved.remove(node);
                true
            }
            _ => {
                // Others may read the value itself.
                let readers = model.uses(output).count();
                model.replace_uses(output, value, None);
                readers > 0
            }
        }
    }

    fn note(&mut self, rule: &'static str, count: usize, nodes: usize) {
        self.report.note(rule, count, nodes);
    }

    /// Completes the model.
    fn finish(mut self) -> (Model, SimplifyReport, Origins) {
        let scopes = self.scopes(self.resolved.main());
        let (mut model, origins) = self.resolved.into_parts();
        // The model may have been read in an order that only resolving found out.
        if self.options.level >= DEAD.level
            && !self.options.without.iter().any(|name| name == DEAD.name)
        {
            self.report.functions_removed = constants::remove_functions(&mut model, &scopes);
        }
        let roots: Vec<GraphId> = model.functions.iter().map(|function| function.body).collect();
        for root in roots {
            constants::turn_into_nodes(&mut model, root, self.options.external, &|_| true);
        }
        constants::prune_declarations(&mut model);
        if let (Some(lists), Some(main)) = (self.old_lists, model.main) {
            constants::restore_lists(&mut model, main, lists, self.options.external);
        }
        self.report.after = Tally::from_model(&model);
        (model, self.report, origins)
    }
}

/// Returns the version of `ai.onnx` in a list of imports.
fn opset_of(model: &Model, imports: &[OperatorSetId]) -> Option<u32> {
    model.opset_in(imports, "").and_then(|version| u32::try_from(version).ok())
}

/// Whether a node has no device annotations, which are about its inputs and outputs.
fn is_plain(model: &Model, node: NodeId) -> bool {
    model.extras(node).is_none_or(|extras| extras.device_configurations.is_empty())
}

/// Names that the model refers to outside of its graphs: in the bindings of training steps and in
/// annotations of quantized tensors.
fn names_in_use(model: &Model) -> HashMap<Symbol, constants::NameUse> {
    let mut names = HashMap::new();
    for (_, graph) in model.graphs() {
        for annotation in &graph.quantization_annotation {
            let parameters = annotation.quant_parameter_tensor_names.iter();
            for name in
                annotation.tensor_name.into_iter().chain(parameters.filter_map(|entry| entry.value))
            {
                names.insert(name, constants::NameUse::Annotation);
            }
        }
    }
    let steps = model.training_info.iter();
    let bindings =
        steps.flat_map(|step| step.initialization_binding.iter().chain(&step.update_binding));
    for name in bindings.flat_map(|entry| [entry.key, entry.value]).flatten() {
        names.insert(name, constants::NameUse::State);
    }
    names
}

//! Conversion: replaces a model by an equivalent one with other versions of operator sets.
//!
//! Each node of all graphs (the main graph, subgraphs, bodies of functions, training steps) is
//! unchanged, rewritten, or refused. If a node is refused, so is the model, with all reasons.
//! Everything else in the file, such as names of values and metadata, is unchanged.

mod constants;
mod reference;
mod report;
mod target;

use std::collections::BTreeMap;

use hashbrown::{HashMap, HashSet};
use sardonyx_model::{
    AttributeValue, GraphId, Id, MadeNodes, Model, NodeId, OperatorSetId, Symbol, ValueId,
    normalize_domain, shown_domain,
};
use sardonyx_ops::operators::CONSTANT;
use sardonyx_ops::{Assumption, OpRef, Refusal, Registry};
use sardonyx_tensor::Tensor;

use crate::check::find_changing_faults;
use crate::codes;
use crate::cross::{Crossings, Goal, Stop, Types, Why};
use crate::expand::Expansions;
use crate::finding::{Code, Finding, Places, Severity, Spot};
use crate::infer::{InferOptions, infer_everywhere};
use crate::inline::{InlineRefusal, Specialized, expand_nodes, is_other, specialize};
use crate::ir_version::{PLAIN_INITIALIZERS, format_needs, ir_version_of_opset, set_ir_version};
use crate::order::tree;
use crate::origins::Origins;
use crate::results::{Accepted, JobInput, JobKind};
use crate::same_meaning::was_added_before;

pub use report::{
    Assumed, ConvertError, ConvertReport, Converted, ConvertedImport, ConvertedOperator,
};
pub use target::{RELEASES, Release, Target};

use constants::become_constant;
use report::Replaced;

/// Maximum number of nodes in all copies of functions for calls that omit inputs: a few functions
/// that call each other twice can need more copies than fit in memory.
const MOST_COPIED: u64 = 1 << 18;

/// Maximum number of refusals that are listed.
const MOST_REFUSALS: usize = 1000;

/// Options of a conversion.
#[derive(Debug, Clone)]
pub struct ConvertOptions {
    /// Target versions of the model.
    pub target: Target,
    /// Whether a node without an equivalent may be replaced by the body of its function.
    pub expand: bool,
    /// Assumptions about the model that the caller grants. Each use is reported.
    pub granted: Vec<Assumption>,
    /// Whether to follow the converter of the reference implementation where both results are
    /// equivalent to the model. New constants are then `Constant` nodes, not initializers.
    pub like_reference: bool,
}

/// Converts a model. Returns a new model and leaves `model` unchanged.
///
/// # Errors
///
/// A target that does not exist; nodes without an exact equivalent in the target; a result with
/// errors that the model does not have. If one of these occurs, or if the result has errors that
/// the model has as well, faults that cannot be carried over take precedence: undefined names,
/// nodes in an invalid order, references to attributes that also have a value, and missing required
/// operands. With [`like_reference`](ConvertOptions::like_reference) they do not.
pub fn convert(
    model: &Model,
    registry: &Registry,
    options: &ConvertOptions,
) -> Result<Converted, ConvertError> {
    let input = JobInput { job: JobKind::Convert, model, registry };
    match convert_in_any_order(model, registry, options) {
        Ok(Converted { model, report, origins }) => match input.accept(model, &origins) {
            Ok(Accepted { model, has_errors }) => {
                match has_errors.then(|| find_lost_faults(input, options)).flatten() {
                    Some(error) => Err(error),
                    None => Ok(Converted { model, report, origins }),
                }
            }
            Err(rejected) => {
                Err(find_lost_faults(input, options).unwrap_or(ConvertError::Invalid(rejected)))
            }
        },
        Err(error @ ConvertError::Target(_)) => Err(error),
        Err(error) => Err(find_lost_faults(input, options).unwrap_or(error)),
    }
}

/// Finds faults of a model that conversion cannot carry over. They are errors of the result as
/// well, or prevent one, so that callers search for them only then.
fn find_lost_faults(input: JobInput<'_>, options: &ConvertOptions) -> Option<ConvertError> {
    let found =
        (!options.like_reference).then(|| find_changing_faults(input.model, input.registry))?;
    (!found.is_empty()).then_some(ConvertError::Refused(found))
}

/// Converts a model like [`convert`], but takes nodes in any order and does not check the result.
pub fn convert_in_any_order(
    model: &Model,
    registry: &Registry,
    options: &ConvertOptions,
) -> Result<Converted, ConvertError> {
    let special =
        if options.like_reference { None } else { specialize_to_convert(model, registry, options) };
    let Some(special) = special else {
        return convert_part(model, model, registry, options, None);
    };
    let special = special?;
    match convert_part(model, &special.model, registry, options, None) {
        Ok(mut converted) => {
            for assumed in &mut converted.report.assumed {
                special.place(model, &mut assumed.place);
            }
            converted.report.added = special.list_added(&converted.model);
            converted.origins = special.origins().append(converted.origins);
            Ok(converted)
        }
        Err(ConvertError::Refused(mut findings)) => {
            special.place_findings(model, &mut findings);
            Err(ConvertError::Refused(findings))
        }
        Err(error) => Err(error),
    }
}

/// Specializes functions in which nodes change. `None` if this is not needed.
fn specialize_to_convert(
    model: &Model,
    registry: &Registry,
    options: &ConvertOptions,
) -> Option<Result<Specialized, ConvertError>> {
    let changes = |_: Option<usize>, op: OpRef| {
        let to = options.target.version_of(op.def.domain);
        to.is_some_and(|to| is_other(op, to))
    };
    match specialize(model, registry, MOST_COPIED, &changes) {
        Ok(special) => special.map(Ok),
        Err(InlineRefusal::Findings(findings)) => Some(Err(ConvertError::Refused(findings))),
        Err(InlineRefusal::Invalid(rejected)) => Some(Err(ConvertError::Invalid(rejected))),
        Err(InlineRefusal::TooLarge { limit, .. }) => {
            let fact = format!(
                "functions for calls that leave inputs out have more than {limit} nodes in all"
            );
            let advice = "inline the functions first: inline";
            let finding = Finding::new(model, &codes::NO_EXACT_CONVERSION, Spot::MODEL, fact);
            Some(Err(ConvertError::Refused(vec![finding.with_advice(advice)])))
        }
    }
}

/// Converts some functions of a model, by index, and nothing around them.
///
/// # Errors
///
/// Errors of [`convert`].
pub(crate) fn convert_functions(
    model: &Model,
    registry: &Registry,
    options: &ConvertOptions,
    functions: &HashSet<usize>,
) -> Result<Converted, ConvertError> {
    convert_part(model, model, registry, options, Some(functions))
}

/// Converts some functions, or the whole model. The report counts nodes of `file`, the model before
/// functions were added.
fn convert_part(
    file: &Model,
    model: &Model,
    registry: &Registry,
    options: &ConvertOptions,
    functions: Option<&HashSet<usize>>,
) -> Result<Converted, ConvertError> {
    let target = &options.target;
    if let Some(unknown) = target.unknown(registry) {
        return Err(ConvertError::Target(unknown));
    }
    if options.like_reference
        && let Some(found) = reference::not_held(model)
    {
        return Err(ConvertError::NotHeld(Box::new(found)));
    }
    let mut job = Job::new(model, registry, options, functions)?;
    job.functions_that_would_be_operators();
    job.nodes();
    if job.refused.is_empty() || !options.expand {
        return job.finish(file, &Replaced::default());
    }
    drop(job);
    convert_expanded(file, model, registry, options, functions)
}

/// Converts a model and replaces nodes without an equivalent by the bodies of their functions. The
/// bodies are converted like the other nodes, and their nodes may be replaced in turn.
fn convert_expanded(
    file: &Model,
    original: &Model,
    registry: &Registry,
    options: &ConvertOptions,
    functions: Option<&HashSet<usize>>,
) -> Result<Converted, ConvertError> {
    let mut replaced = Replaced::default();
    let mut model = original.clone();
    // Inputs of nodes that became constants.
    let mut dead: Vec<ValueId> = Vec::new();
    // Node of the file for each node of a body.
    let mut origins: HashMap<NodeId, NodeId> = HashMap::new();
    loop {
        let mut job = Job::new(&model, registry, options, functions)?;
        job.of_bodies = Some(&origins);
        job.constants.clone_from(&replaced.constants);
        job.operands.clone_from(&dead);
        job.functions_that_would_be_operators();
        job.nodes();
        let refused = std::mem::take(&mut job.refused);
        if refused.is_empty() {
            let mut converted = job.finish(file, &replaced)?;
            converted.origins = Origins::default().then_for(origins).append(converted.origins);
            converted.report.expanded = by_operator(file, &replaced.expanded);
            converted.report.constants = by_operator(file, &replaced.constants);
            return Ok(converted);
        }
        // A value that inference knows needs no operator.
        let known = std::mem::take(&mut job.known);
        if !known.is_empty() {
            for (node, value) in known {
                if !origins.contains_key(&node) {
                    replaced.constants.insert(node);
                }
                dead.extend(model.inputs(node).flatten());
                become_constant(&mut model, node, value);
            }
            continue;
        }
        let nodes: HashSet<NodeId> = refused.iter().map(|(node, _)| *node).collect();
        let next = expand_nodes(&model, registry, &nodes);
        let is_left = |node: NodeId| match &next {
            Ok(next) => !next.nodes.contains(&node),
            Err(_) => true,
        };
        if nodes.iter().any(|node| is_left(*node)) {
            // Nodes with a body may still have an equivalent; the others have none.
            let mut refusals = job.refusals;
            let left = refused.into_iter().filter(|(node, _)| is_left(*node));
            for (node, refusal) in left.take(MOST_REFUSALS) {
                let advice = advice(&refusal);
                let why = refusal.why;
                let origin = origins.get(&node).copied();
                let fact = match origin {
                    Some(_) => {
                        format!("neither the operator nor its function has an equivalent: {why}")
                    }
                    None => why,
                };
                let spot = Spot::node(origin.unwrap_or(node));
                let finding = Finding::new(original, &codes::NO_EXACT_CONVERSION, spot, fact);
                refusals.push(match advice {
                    Some(advice) => finding.with_advice(advice),
                    None => finding,
                });
            }
            return Err(ConvertError::Refused(refusals));
        }
        let Ok(next) = next else { return job.finish(file, &replaced) };
        for (id, _) in next.model.graphs() {
            for node in &next.model.graph(id).nodes {
                let origin = next.made.origin(*node);
                if origin != *node {
                    let origin = origins.get(&origin).copied().unwrap_or(origin);
                    origins.insert(*node, origin);
                }
            }
        }
        let of_file = next.nodes.iter().filter(|node| !origins.contains_key(*node));
        replaced.expanded.extend(of_file);
        model = next.model;
    }
}

/// Graphs that share their operator sets: the main graph, a function, or a training step, with
/// their subgraphs.
struct Scope {
    root: GraphId,
    /// Versions before the conversion, for domains that the target changes.
    from: HashMap<String, u32>,
    /// Versions of all domains after the conversion.
    to: HashMap<String, u32>,
    /// Index of the function; `None` outside of functions.
    function: Option<usize>,
}

struct Job<'a> {
    original: &'a Model,
    model: Model,
    registry: &'a Registry,
    granted: &'a [Assumption],
    /// Functions to convert; `None` for the whole model.
    functions: Option<&'a HashSet<usize>>,
    /// Nodes of bodies of operators, with the nodes that they replace.
    of_bodies: Option<&'a HashMap<NodeId, NodeId>>,
    /// Nodes of the file that became constants.
    constants: HashSet<NodeId>,
    /// Nodes of the file that were rewritten, with their operators and their new versions.
    rewritten: Vec<(NodeId, OpRef, u32)>,
    /// Whether to follow the reference implementation.
    like_reference: bool,
    /// Constants that stay initializers when others become nodes.
    kept: HashSet<ValueId>,
    /// Known values of nodes without an equivalent.
    known: HashMap<NodeId, Tensor>,
    goal: HashMap<String, u32>,
    wanted_ir_version: Option<i64>,
    made: MadeNodes,
    /// Inputs of rewritten nodes.
    operands: Vec<ValueId>,
    report: ConvertReport,
    refusals: Vec<Finding>,
    /// Number of refusals that are not listed.
    unlisted: usize,
    /// Nodes of operators without an equivalent, with the reasons.
    refused: Vec<(NodeId, Refusal)>,
    places: Places,
}

impl<'a> Job<'a> {
    fn new(
        model: &'a Model,
        registry: &'a Registry,
        options: &'a ConvertOptions,
        functions: Option<&'a HashSet<usize>>,
    ) -> Result<Job<'a>, ConvertError> {
        let target = &options.target;
        let imports = model.functions.iter().map(|function| &function.opset_import);
        let imports = std::iter::once(&model.header.opset_import).chain(imports);
        let mut goal = HashMap::new();
        for imports in imports {
            for domain in model.opsets_in(imports).into_keys() {
                if let Some(missing) = target.not_in_release(&domain) {
                    return Err(ConvertError::Target(missing));
                }
                if let Some(version) = target.version_of(&domain) {
                    goal.insert(domain.into_owned(), version);
                }
            }
        }
        if let Some(missing) = target.list_named().find(|domain| !goal.contains_key(*domain)) {
            return Err(ConvertError::Target(format!(
                "the model does not import the operator set {}",
                shown_domain(missing)
            )));
        }
        let report = ConvertReport::new(model, &goal);
        Ok(Job {
            original: model,
            model: model.clone(),
            registry,
            granted: &options.granted,
            functions,
            of_bodies: None,
            constants: HashSet::new(),
            rewritten: Vec::new(),
            like_reference: options.like_reference,
            kept: HashSet::new(),
            known: HashMap::new(),
            goal,
            wanted_ir_version: target.wanted_ir_version(),
            made: MadeNodes::default(),
            operands: Vec::new(),
            report,
            refusals: Vec::new(),
            unlisted: 0,
            refused: Vec::new(),
            places: Places::default(),
        })
    }

    /// Returns the versions that a scope imports of the operator sets to convert.
    fn from(&mut self, imports: &[OperatorSetId], spot: Spot) -> HashMap<String, u32> {
        let mut from = HashMap::new();
        let imported: BTreeMap<_, _> = self.original.opsets_in(imports).into_iter().collect();
        for (domain, version) in imported {
            if !self.goal.contains_key(&*domain) {
                continue;
            }
            let (oldest, newest) = self.registry.versions(&domain).unwrap_or_default();
            match u32::try_from(version).ok().filter(|found| (oldest..=newest).contains(found)) {
                Some(version) => {
                    from.insert(domain.into_owned(), version);
                }
                None => {
                    let shown = shown_domain(&domain);
                    let fact = format!(
                        "version {version} of the operator set {shown} is unknown; versions are {oldest} to {newest}"
                    );
                    self.refuse(spot.field("opset_import"), fact);
                }
            }
        }
        from
    }

    /// Returns the versions of a scope after the conversion.
    fn to(&self, imports: &[OperatorSetId]) -> HashMap<String, u32> {
        let imported = self.original.opsets_in(imports).into_iter();
        let imported = imported.filter_map(|(domain, version)| {
            let goal = self.goal.get(&*domain).copied();
            Some((domain.into_owned(), goal.or_else(|| u32::try_from(version).ok())?))
        });
        imported.collect()
    }

    /// Whether graphs outside of functions are converted.
    fn takes_graphs(&self) -> bool {
        self.functions.is_none()
    }

    fn takes_function(&self, index: usize) -> bool {
        self.functions.is_none_or(|functions| functions.contains(&index))
    }

    fn scopes(&mut self) -> Vec<Scope> {
        let model = self.original;
        let mut scopes = Vec::new();
        if self.takes_graphs() {
            let from = self.from(&model.header.opset_import, Spot::MODEL);
            let steps = model.training_info.iter();
            let steps = steps.flat_map(|step| [step.initialization, step.algorithm]);
            let roots = std::iter::once(model.main).chain(steps).flatten();
            let to = self.to(&model.header.opset_import);
            let scope = |root| Scope { root, from: from.clone(), to: to.clone(), function: None };
            scopes.extend(roots.map(scope));
        }
        for (index, function) in model.functions.iter().enumerate() {
            if !self.takes_function(index) {
                continue;
            }
            let from = self.from(&function.opset_import, Spot::function(index));
            let to = self.to(&function.opset_import);
            scopes.push(Scope { root: function.body, from, to, function: Some(index) });
        }
        scopes
    }

    fn refuse(&mut self, spot: Spot, fact: String) {
        self.refuse_as(&codes::NO_EXACT_CONVERSION, spot, fact, None);
    }

    fn refuse_as(&mut self, code: &'static Code, spot: Spot, fact: String, advice: Option<String>) {
        if self.refusals.len() >= MOST_REFUSALS {
            self.unlisted += 1;
        } else {
            self.refusals.push(Finding {
                code,
                severity: Severity::Error,
                place: self.places.of(self.original, spot),
                fact,
                advice: advice.map_or(code.help.into(), Into::into),
            });
        }
    }

    /// Refuses functions whose name is an operator in the target version: their calls would become
    /// nodes of the operator.
    fn functions_that_would_be_operators(&mut self) {
        if !self.takes_graphs() {
            return;
        }
        for (index, function) in self.original.functions.iter().enumerate() {
            let model = self.original;
            let domain = model.display(function.domain);
            let domain = normalize_domain(&domain);
            let Some(to) = self.goal.get(domain).copied() else { continue };
            let from = model.opset(domain).and_then(|from| u32::try_from(from).ok());
            let name = model.display(function.name);
            let is_operator = |opset| self.registry.schema(domain, &name, opset).is_some();
            if is_operator(to) && !from.is_some_and(is_operator) {
                let shown = shown_domain(domain);
                let fact = format!(
                    "the operator set {shown} has an operator {name} in version {to}, which nodes would call instead"
                );
                self.refuse(Spot::function(index), fact);
            }
        }
    }

    /// Converts all nodes.
    fn nodes(&mut self) {
        let scopes = self.scopes();
        if !self.refusals.is_empty() {
            return;
        }
        let found = infer_everywhere(self.original, self.registry, InferOptions::default());
        let mut types = Types::new(&found);
        types.learn_declared(self.original);
        if self.granted.contains(&Assumption::DefaultInputs) {
            types.learn_defaults(self.original);
        }
        let goal = self.goal.clone();
        let mut trees = Vec::new();
        for scope in scopes {
            let graphs = tree(self.original, scope.root);
            if let Some(function) = scope.function {
                types.open(function, &graphs);
            }
            trees.push((scope, graphs));
        }
        let mut crossings = Crossings::new(Goal::Opsets(&goal), types).granting(self.granted);
        for (scope, graphs) in &trees {
            let mut callees: HashMap<(Option<Symbol>, Option<Symbol>), Option<OpRef>> =
                HashMap::new();
            crossings.import(scope.to.clone());
            for graph in graphs {
                for node in self.original.graph(*graph).nodes.iter().copied() {
                    let found = self.original.node(node);
                    let key = (found.domain, found.op_type);
                    let callee = *callees.entry(key).or_insert_with(|| self.callee(scope, node));
                    match callee {
                        Some(op) => self.node(&mut crossings, node, op),
                        None => self.other(scope, node),
                    }
                }
            }
        }
        self.remove_constants();
        if self.made.is_waiting() {
            self.made.place(&mut self.model);
        }
        let are_nodes = self.like_reference || self.lacks_plain_initializers();
        for (scope, graphs) in trees {
            for graph in graphs {
                self.remove_dead_constants(graph);
                // A body has no initializers.
                let is_body = scope.function.is_some() && graph == scope.root;
                if is_body || are_nodes {
                    let nodes = self.constants_become_nodes(graph);
                    if !self.like_reference {
                        self.bring_constants(&mut crossings, &scope, &nodes);
                    }
                }
            }
        }
        if self.made.is_waiting() {
            self.made.place(&mut self.model);
        }
    }

    /// Returns the operator that a node calls, if its domain is converted.
    fn callee(&self, scope: &Scope, node: NodeId) -> Option<OpRef> {
        let model = self.original;
        let domain = model.domain_of(node);
        let from = *scope.from.get(&*domain)?;
        let name = model.display(model.node(node).op_type);
        self.registry.op_ref(&domain, &name, from)
    }

    /// Refuses a node without an operator of the standard if it may change or is not known.
    fn other(&mut self, scope: &Scope, node: NodeId) {
        let model = self.original;
        let domain = model.domain_of(node);
        let name = model.display(model.node(node).op_type);
        if let (Some(from), Some(to)) = (scope.from.get(&*domain), self.goal.get(&*domain)) {
            let schema = |opset: &u32| self.registry.schema(&domain, &name, *opset);
            let is_function = model.functions.iter().any(|function| {
                let found = model.display(function.domain);
                normalize_domain(&found) == domain && function.name == model.node(node).op_type
            });
            // Schemas of registered operators declare the versions in which they changed.
            let since = |opset| schema(opset).map(|schema| schema.since);
            let stays = || {
                let versions = [*from, *to];
                !self.like_reference && was_added_before(self.registry, &domain, &name, versions)
            };
            if !is_function && (schema(from).is_none() || since(from) != since(to)) && !stays() {
                let shown = shown_domain(&domain);
                let fact = match schema(from) {
                    None => {
                        let near = self.registry.similar(&domain, &name);
                        let near = near.map(|near| format!("; did you mean {near}?"));
                        let near = near.unwrap_or_default();
                        format!(
                            "the operator set {shown} has no operator {name} in version {from}{near}"
                        )
                    }
                    Some(_) => {
                        format!("how {name} of {shown} changed up to version {to} is not known")
                    }
                };
                self.refuse(Spot::node(node), fact);
                return;
            }
        }
        if self.like_reference
            && let Some(fact) = reference::refuses_other(model, node)
        {
            self.refuse(Spot::node(node), fact.to_string());
            return;
        }
        if let Some(fact) = self.graph_of_function(scope, node) {
            self.refuse(Spot::node(node), fact);
        }
    }

    /// Returns the reason why a node of another operator set cannot stay, if it cannot: its
    /// function contains subgraphs of the node, whose versions would be older than those that it
    /// requires.
    fn graph_of_function(&self, scope: &Scope, node: NodeId) -> Option<String> {
        let model = self.original;
        let attributes = model.attributes(node).iter().map(|id| model.attribute(*id));
        let has_graph = attributes
            .map(|attribute| attribute.value())
            .any(|value| matches!(value, Some(AttributeValue::Graph(_))));
        let (from, to) = (scope.from.get("")?, self.goal.get("")?);
        let domain = model.domain_of(node);
        let name = model.display(model.node(node).op_type);
        let is_operator = self.registry.operator(&domain, &name).is_some();
        (has_graph && is_operator && to < from).then(|| {
            format!(
                "the function of {name} contains its subgraphs, and requires a newer version of ai.onnx than {to}"
            )
        })
    }

    fn node(&mut self, crossings: &mut Crossings<'_>, node: NodeId, op: OpRef) {
        let goal = self.goal[op.def.domain];
        let Job { original, model, made, registry, like_reference, .. } = &mut *self;
        if *like_reference
            && let Some(fact) = reference::refuses(original, crossings, node, op, goal)
        {
            self.refused.push((node, fact.to_string().into()));
            return;
        }
        let crossed = crossings.cross(model, made, registry, node, op);
        if *like_reference && crossed.stops.is_empty() {
            let kept = reference::complete(model, made, crossings, node, op, goal);
            self.kept.extend(kept);
        }
        // A body is written for some types. With inputs of other types, its nodes may be invalid.
        let is_of_body = self.of_bodies.is_some_and(|bodies| bodies.contains_key(&node));
        if is_of_body && crossed.stops.is_empty() {
            let misfit = crossings.misfit(&self.model, self.registry, &crossed);
            self.refused.extend(misfit.map(|fact| (node, fact.into())));
        }
        if !crossed.stops.is_empty()
            && let &[Some(output)] = self.original.outputs(node)
            && op.def.domain.is_empty()
            && !op.def.is(&CONSTANT)
        {
            self.known.extend(crossings.constant(output).map(|value| (node, value)));
        }
        for stop in crossed.stops {
            let mut fact = refusal(op, goal, &stop);
            if is_of_body {
                // At another version of the model the body would be another one.
                fact.instead = None;
            }
            self.refused.push((self.made.origin(stop.node), fact));
        }
        for assumption in crossed.assumed {
            let place = self.places.of(self.original, Spot::node(node));
            self.report.assumed.push(Assumed { assumption, place });
        }
        if crossed.is_rewritten {
            // Nodes of bodies are not in the file, and new constants are reported separately.
            if !is_of_body && !self.constants.contains(&node) {
                self.rewritten.push((node, op, goal));
            }
            self.report.wrapped += usize::from(crossed.is_wrapped);
            let made = crossed.forms.iter().map(|(made, _)| *made).filter(|made| *made != node);
            self.model.share_devices(node, made);
            self.operands.extend(self.original.inputs(node).flatten());
        }
    }

    /// Completes the model and its report, which counts nodes of the model `before`.
    fn finish(mut self, before: &Model, replaced: &Replaced) -> Result<Converted, ConvertError> {
        for (node, refusal) in std::mem::take(&mut self.refused) {
            let (code, advice) = (&codes::NO_EXACT_CONVERSION, advice(&refusal));
            self.refuse_as(code, Spot::node(node), refusal.why, advice);
        }
        if self.refusals.is_empty() {
            self.imports();
            if self.takes_graphs() {
                self.ir_version();
            }
        }
        if self.refusals.is_empty() {
            self.report.count(before, &self.model, replaced, &self.rewritten);
            let origins = Origins::default().then_made(self.made);
            Ok(Converted { model: self.model, report: self.report, origins })
        } else {
            if self.unlisted > 0 {
                let fact = format!("{} more have no equivalent and are not listed", self.unlisted);
                let code = &codes::NO_EXACT_CONVERSION;
                self.refusals.push(Finding::new(self.original, code, Spot::MODEL, fact));
            }
            Err(ConvertError::Refused(self.refusals))
        }
    }

    /// Sets the imports of the model and its functions to the target versions.
    fn imports(&mut self) {
        let Job { original, model, goal, functions, .. } = self;
        let change = |imports: &mut Vec<OperatorSetId>| {
            let mut seen = HashSet::new();
            imports.retain_mut(|import| {
                let domain = original.display(import.domain);
                let domain = normalize_domain(&domain);
                let Some(version) = goal.get(domain) else { return true };
                import.version = Some(i64::from(*version));
                // Further entries of an operator set are duplicates now.
                seen.insert(domain.to_string())
            });
        };
        for (index, function) in model.functions.iter_mut().enumerate() {
            if functions.is_none_or(|functions| functions.contains(&index)) {
                change(&mut function.opset_import);
            }
        }
        if functions.is_some() {
            return;
        }
        change(&mut model.header.opset_import);
        // Very old models import no operator set, which implies version 1.
        if let (true, Some(version)) = (model.header.opset_import.is_empty(), goal.get("")) {
            let domain = Some(model.intern(""));
            let version = Some(i64::from(*version));
            let import = OperatorSetId { domain, version, ..OperatorSetId::default() };
            model.header.opset_import.push(import);
        }
    }

    /// Returns the lowest version of the format that the result may have: the higher one of that of
    /// the model and those that were released with the target operator sets.
    fn least_ir_version(&self) -> i64 {
        let from = self.original.header.ir_version.unwrap_or(0);
        let of_opset = |(domain, version): (&String, &u32)| {
            ir_version_of_opset(domain.as_bytes(), i64::from(*version))
        };
        from.max(self.goal.iter().filter_map(of_opset).max().unwrap_or(3))
    }

    /// Whether the format version of the result requires an input for every initializer.
    fn lacks_plain_initializers(&self) -> bool {
        let to = self.wanted_ir_version.unwrap_or_else(|| self.least_ir_version());
        self.takes_graphs() && to < PLAIN_INITIALIZERS
    }

    fn ir_version(&mut self) {
        let to = match self.wanted_ir_version {
            Some(wanted) => {
                for need in format_needs(&self.model, wanted) {
                    let fact = format!("IR version {wanted} does not support {}", need.feature);
                    let spot = Spot::MODEL.field("ir_version");
                    let other = format!("convert to IR version {} or more", need.ir_version);
                    let advice = match need.removed_by {
                        Some(command) => format!("run `{command}` first, or {other}"),
                        None => other,
                    };
                    self.refuse_as(&codes::IR_VERSION_TOO_OLD, spot, fact, Some(advice));
                }
                wanted
            }
            None => {
                let least = self.least_ir_version();
                let needs = format_needs(&self.model, least);
                needs.iter().map(|need| need.ir_version).max().unwrap_or(least)
            }
        };
        set_ir_version(&mut self.model, to);
        self.report.ir_version = (self.original.header.ir_version, to);
    }
}

/// Returns advice on a refused node that is more specific than that of its code: the assumption to
/// grant, or the versions that the node can have.
fn advice(refusal: &Refusal) -> Option<String> {
    let instead = refusal.instead.as_ref().map(|instead| format!("{instead}, or change the node"));
    let Some(assumption) = refusal.unless else { return instead };
    let (condition, name) = (assumption.condition(), assumption.name());
    let other = instead.as_deref().unwrap_or(codes::NO_EXACT_CONVERSION.help);
    Some(format!("if {condition}, assume it: convert --assume {name}; otherwise, {other}"))
}

/// Returns advice on the target: the last version that a refused node can have, or one beyond it.
fn advise_target(op: OpRef, goal: u32, stop: &Stop) -> Option<String> {
    let last = stop.last.filter(|_| stop.op.def.domain == op.def.domain)?;
    let beyond = if last > goal { "newer" } else { "older" };
    let set = match op.def.domain {
        "" => String::new(),
        domain => format!(" of {domain}"),
    };
    Some(format!("convert to opset version {last}{set} or {beyond}"))
}

/// Counts nodes of the model by the domain and the name of their operators.
fn by_operator(model: &Model, nodes: &HashSet<NodeId>) -> Expansions {
    let mut found = Expansions::default();
    for node in nodes.iter().filter(|node| node.index() < model.node_count()) {
        let name = model.display(model.node(*node).op_type).into_owned();
        *found.entry((model.domain_of(*node).into_owned(), name)).or_default() += 1;
    }
    found
}

/// Makes the refusal of a node.
fn refusal(op: OpRef, goal: u32, stop: &Stop) -> Refusal {
    let (name, from) = (op.def.full_name(), op.opset);
    let at = match &stop.why {
        Why::Refused(_) if stop.to != goal => format!(" (at version {})", stop.to),
        _ => String::new(),
    };
    let made = if stop.op.def.is(op.def) {
        String::new()
    } else {
        format!("{}, which it requires: ", stop.op.def.full_name())
    };
    let unless = match &stop.why {
        Why::Refused(refusal) => refusal.unless,
        _ => None,
    };
    let why = format!(
        "{name} cannot be converted from opset version {from} to {goal}{at}: {made}{}",
        stop.why
    );
    Refusal { why, unless, instead: advise_target(op, goal, stop) }
}

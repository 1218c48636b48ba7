//! Gradients in files: adds gradients of a value as outputs of a model, or expands its `Gradient`
//! nodes.

use std::fmt;

use hashbrown::{HashMap, HashSet};
use sardonyx_model::{GraphId, Model, NodeId, Producer, Symbol, ValueId};
use sardonyx_ops::Registry;

use crate::addition::{Added, Addition, TRAINING, import_operator_set};
use crate::differentiate::is_gradient;
use crate::expand::Expansions;
use crate::finding::Finding;
use crate::infer::Inference;
use crate::ir_version::raise_ir_version;
use crate::order::{inner_graphs, sort_nodes, tree};
use crate::origins::Origins;
use crate::results::{Accepted, JobInput, JobKind, Rejected};

/// Options of the gradients to add to a model.
pub struct GradientOptions<'a> {
    /// Name of the value to differentiate; by default the only output of the model. If the value is
    /// not a scalar, the sum of its elements is differentiated.
    pub of: Option<&'a str>,
    /// Predicate that selects the values to differentiate with respect to, by name: inputs,
    /// initializers and values of nodes. No selected value may depend on another one.
    pub by: &'a dyn Fn(&str, GradientBy) -> bool,
    /// Whether a `Gradient` node, which few runtimes support, computes the gradients. Otherwise it
    /// is expanded to other nodes.
    pub gradient_node: bool,
}

impl fmt::Debug for GradientOptions<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let GradientOptions { of, gradient_node, .. } = self;
        let mut debug = f.debug_struct("GradientOptions");
        debug.field("of", of).field("gradient_node", gradient_node).finish_non_exhaustive()
    }
}

/// Source of a value to differentiate with respect to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GradientBy {
    /// Input of the model.
    Input,
    /// Initializer.
    Initializer,
    /// Output of a node.
    Made,
}

/// Description of the gradients that were added to a model.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct GradientReport {
    /// Name of the differentiated value.
    pub of: String,
    /// Pairs of a value and the output that is the gradient with respect to it.
    pub gradients: Vec<(String, String)>,
    /// Number of nodes that were added.
    pub nodes: usize,
    /// Number of `Gradient` nodes that were replaced.
    pub replaced: usize,
    /// Version of `ai.onnx` before and after.
    pub opset: (u32, u32),
    /// Number of nodes that were expanded to the body of their operator's function, by domain and
    /// name.
    pub expansions: Expansions,
}

/// Reasons why gradients or training information were not added to a model.
#[derive(Debug, Clone)]
pub enum DeriveError {
    /// The options do not fit the model.
    Option(String),
    /// Findings in the model.
    Refused(Vec<Finding>),
    /// The result has errors that the model does not have.
    Invalid(Box<Rejected>),
}

impl From<Box<Rejected>> for DeriveError {
    fn from(rejected: Box<Rejected>) -> Self {
        DeriveError::Invalid(rejected)
    }
}

impl From<Vec<Finding>> for DeriveError {
    fn from(findings: Vec<Finding>) -> Self {
        DeriveError::Refused(findings)
    }
}

/// Adds gradients to the outputs of a model. Existing nodes are unchanged.
///
/// # Errors
///
/// Options that do not fit the model; operators between the values that have no gradient.
pub fn add_gradients(
    model: &Model,
    registry: &Registry,
    options: &GradientOptions<'_>,
) -> Result<(Model, GradientReport), DeriveError> {
    let (result, origins, report) = with_gradients(model, registry, options)?;
    let input = JobInput { job: JobKind::Differentiate, model, registry };
    let Accepted { model, .. } = input.accept(result, &origins)?;
    Ok((model, report))
}

/// Adds gradients to the outputs of a model without a check of the result. Also returns the origins
/// of its nodes.
fn with_gradients(
    model: &Model,
    registry: &Registry,
    options: &GradientOptions<'_>,
) -> Result<(Model, Origins, GradientReport), DeriveError> {
    let mut add = Addition::new(model.clone(), registry, &[])?;
    let types = add.types()?;
    let of = value_of(&add, options.of)?;
    let found = find_reached(model, &add, &types, options, of)?;
    let made = add.gradient(of, &found.xs, &found.zs, options.gradient_node);
    let y = add.name(of);
    let mut gradients = Vec::new();
    for (x, value) in found.xs.iter().zip(made) {
        add.output(value);
        gradients.push((add.name(*x), add.name(value)));
    }
    if !options.gradient_node {
        add.derive()?;
    }
    let expansions = add.expansions.clone();
    let Added { model: mut result, graph, opset, nodes, origins } = add.finish(1)?;
    if let Some(main) = result.main {
        result.append_graph(main, graph);
    }
    if options.gradient_node {
        import_operator_set(&mut result, TRAINING.0, TRAINING.1);
    }
    raise_ir_version(&mut result, 0);
    let report = GradientReport { of: y, gradients, nodes, replaced: 0, opset, expansions };
    Ok((result, origins, report))
}

/// Returns the value to differentiate: the one with this name, or the only output.
fn value_of(add: &Addition, name: Option<&str>) -> Result<ValueId, DeriveError> {
    match name {
        Some(name) => {
            let missing = || DeriveError::Option(add.no_value(name));
            add.value(name).ok_or_else(missing)
        }
        None => add.main_output(None).map_err(DeriveError::Option),
    }
}

/// Values to differentiate with respect to, and further inputs that the differentiated value
/// depends on.
struct Reached {
    xs: Vec<ValueId>,
    zs: Vec<ValueId>,
}

/// Finds the selected values among the values that `of` depends on.
fn find_reached(
    original: &Model,
    add: &Addition,
    types: &Inference,
    options: &GradientOptions<'_>,
    of: ValueId,
) -> Result<Reached, DeriveError> {
    let model = add.model();
    let influences = add.influences(of);
    let graph = model.graph(add.graph());
    let inputs = graph.inputs.iter().filter_map(|info| Some((info.value?, GradientBy::Input)));
    let is_input = |value: ValueId| matches!(model.value(value).producer, Producer::Input(_));
    let constants = graph.initializers.iter().filter_map(|found| found.value);
    let constants = constants.filter(|value| !is_input(*value));
    let constants = constants.map(|value| (value, GradientBy::Initializer));
    let nodes = graph.nodes.iter().flat_map(|node| model.outputs(*node).iter().flatten());
    let made = nodes.map(|value| (*value, GradientBy::Made));
    // Before IR version 4, the copy treats an input with an initializer as a constant. The written
    // model, which may have a later version, has it as an input.
    let inputs_of_original: HashSet<Option<Symbol>> = original
        .main
        .map(|main| original.graph(main).inputs.iter().map(|info| info.name).collect())
        .unwrap_or_default();
    let stays_input = |value| {
        options.gradient_node && inputs_of_original.contains(&Some(model.value(value).name))
    };
    let (mut xs, mut zs) = (Vec::new(), Vec::new());
    for (value, kind) in inputs.chain(constants).chain(made) {
        if value == of || !influences.contains(&value) {
            continue;
        }
        let elem = types.ty(value).and_then(|ty| ty.elem());
        let is_float = elem.is_some_and(sardonyx_tensor::DataType::is_float);
        if is_float && (options.by)(&add.name(value), kind) {
            xs.push(value);
        } else if kind == GradientBy::Input || stays_input(value) {
            zs.push(value);
        }
    }
    if xs.is_empty() {
        let of = add.name(of);
        return Err(DeriveError::Option(format!(
            "'{of}' does not depend on any of the floating-point tensors to differentiate with respect to"
        )));
    }
    Ok(Reached { xs, zs })
}

/// Replaces all `Gradient` nodes of the main graph and of algorithms of training information by
/// nodes of `ai.onnx`.
///
/// # Errors
///
/// Nodes that name values which do not exist; operators between the values that have no gradient.
pub fn expand_gradients(
    model: &Model,
    registry: &Registry,
) -> Result<(Model, GradientReport), DeriveError> {
    let input = JobInput { job: JobKind::Differentiate, model, registry };
    let mut origins = Origins::default();
    let mut model = model.clone();
    let mut report = GradientReport::default();
    report.opset.0 = model.opset("").and_then(|opset| u32::try_from(opset).ok()).unwrap_or(1);
    for step in 0..model.training_info.len() {
        let Some(algorithm) = model.training_info[step].algorithm else { continue };
        let count = gradients_in(&model, algorithm);
        if count == 0 {
            continue;
        }
        report.replaced += count;
        let outputs = &model.graph(algorithm).outputs;
        let outputs: Vec<String> =
            outputs.iter().map(|output| model.display(output.name).into_owned()).collect();
        let name = model.graph(algorithm).name;
        let before = model.graph(algorithm).nodes.len();
        let mut add = Addition::new(model, registry, &[algorithm])?;
        add.derive()?;
        for output in outputs {
            if let Some(value) = add.value(&output) {
                add.output(value);
            }
        }
        merge(&mut report.expansions, &add.expansions);
        let added = add.finish(1)?;
        let Added { model: found, graph, nodes, .. } = added;
        origins = origins.append(added.origins);
        model = found;
        report.nodes += (nodes + count).saturating_sub(before);
        model.graph_mut(graph).name = name;
        model.training_info[step].algorithm = Some(graph);
    }
    if let Some(main) = model.main
        && gradients_in(&model, main) > 0
    {
        let (expanded, made) = expand_in_main(model, registry, main, &mut report)?;
        (model, origins) = (expanded, origins.append(made));
    }
    report.opset.1 = model.opset("").and_then(|opset| u32::try_from(opset).ok()).unwrap_or(1);
    raise_ir_version(&mut model, 0);
    let Accepted { model, .. } = input.accept(model, &origins)?;
    Ok((model, report))
}

/// Replaces the `Gradient` nodes of the main graph, and nodes with `Gradient` nodes in subgraphs.
fn expand_in_main(
    model: Model,
    registry: &Registry,
    main: GraphId,
    report: &mut GradientReport,
) -> Result<(Model, Origins), DeriveError> {
    let replaced: Vec<NodeId> = model.graph(main).nodes.clone();
    let gradients = |node: NodeId| {
        let inside = inner_graphs(&model, node).map(|graph| gradients_in(&model, graph));
        usize::from(is_gradient(&model, node)) + inside.sum::<usize>()
    };
    let count: usize = replaced.iter().map(|node| gradients(*node)).sum();
    let replaced: Vec<NodeId> = replaced.into_iter().filter(|node| gradients(*node) > 0).collect();
    let outputs = replaced.iter().flat_map(|node| model.outputs(*node).iter().flatten());
    let outputs: Vec<ValueId> = outputs.copied().collect();
    let names: Vec<String> = outputs
        .iter()
        .map(|value| model.display(Some(model.value(*value).name)).into_owned())
        .collect();
    let mut add = Addition::new(model, registry, &[])?;
    for name in &names {
        if let Some(value) = add.value(name) {
            add.take_over(value);
        }
    }
    add.derive()?;
    merge(&mut report.expansions, &add.expansions);
    let Added { mut model, graph, nodes, origins, .. } = add.finish(1)?;
    report.nodes += nodes;
    report.replaced += count;
    for node in replaced {
        model.remove_node(node);
    }
    model.retain_outputs(graph, |_, _| false);
    model.append_graph(main, graph);
    let made: HashMap<Symbol, ValueId> = outputs
        .iter()
        .filter_map(|old| {
            let name = model.value(*old).name;
            let is_new = |value: &sardonyx_model::Value| {
                value.graph == main && value.name == name && value.producer != Producer::Nothing
            };
            let found = model.values().find(|(_, value)| is_new(value));
            Some((name, found?.0))
        })
        .collect();
    for old in &outputs {
        if let Some(new) = made.get(&model.value(*old).name) {
            model.replace_uses(*old, *new, None);
        }
    }
    for graph in tree(&model, main) {
        let found = model.graph_mut(graph);
        for info in found.outputs.iter_mut().chain(&mut found.value_info) {
            if let Some(value) = info.value.as_mut().filter(|value| outputs.contains(value)) {
                *value = info.name.and_then(|name| made.get(&name).copied()).unwrap_or(*value);
            }
        }
    }
    let sorted = sort_nodes(&model, &model.graph(main).nodes).ok().flatten();
    if let Some(order) = sorted {
        model.graph_mut(main).nodes = order;
    }
    Ok((model, origins))
}

/// Returns the number of `Gradient` nodes in a graph and the graphs in it.
pub fn gradients_in(model: &Model, graph: GraphId) -> usize {
    let graphs = tree(model, graph);
    let nodes = graphs.iter().flat_map(|graph| &model.graph(*graph).nodes);
    nodes.filter(|node| is_gradient(model, **node)).count()
}

fn merge(into: &mut Expansions, from: &Expansions) {
    for (operator, count) in from {
        *into.entry(operator.clone()).or_default() += count;
    }
}

#[cfg(test)]
mod tests {
    use sardonyx_model::Id;
    use sardonyx_tensor::Buffer;
    use sardonyx_text::{ParseOptions, parse_model};

    use super::*;

    #[test]
    fn nodes_of_inner_gradients_come_from_inner_nodes() {
        let loops =
            "y = Loop <body = turn (int64 i, bool c, float[2] a) => (bool c2, float[2] a2) {
            c2 = Identity (c)
            p = Mul (a, w)
            a2 = Sin (p)
        }> (n, , x)";
        let scans = "y, all = Scan <num_scan_inputs = 1, body = turn (float[2] a, float[2] r)
            => (float[2] a2, float[2] e) {
            p = Mul (a, w)
            q = Add (p, r)
            a2 = Sin (q)
            e = Identity (q)
        }> (x, rows)";
        let branches = "y = If (b) <
            then_branch = yes () => (float[2] t) { p = Mul (x, w) t = Sin (p) },
            else_branch = no () => (float[2] f) { f = Mul (x, x) }
        >";
        for nodes in [loops, scans, branches] {
            let text = format!(
                "<ir_version: 10, opset_import: [\"\": 21]>
                 g (float[2] x, float[2] w, float[3, 2] rows, int64 n, bool b) => (float[2] y) {{ {nodes} }}"
            );
            let bytes = Buffer::from_vec(text.into_bytes());
            let input = parse_model(bytes, ParseOptions::default()).unwrap().model;
            let options =
                GradientOptions { of: None, by: &|name, _| name == "w", gradient_node: false };
            let made = with_gradients(&input, &Registry::standard(), &options);
            let (result, origins, _) = made.unwrap();
            let main = result.main.unwrap();
            let inner = tree(&result, main).into_iter().filter(|graph| *graph != main);
            let nodes = inner.flat_map(|graph| result.graph(graph).nodes.clone());
            let mut seen = HashSet::new();
            for node in nodes.filter(|node| node.index() >= input.node_count()) {
                let mut from = origins.of(node).into_iter();
                let from = from.find(|from| from.index() < input.node_count());
                let op = op_of(&result, node);
                // Sums and copies are made for all nodes together, and have no origin.
                let from = from.map_or("nothing".to_string(), |from| op_of(&input, from));
                seen.insert((op, from));
            }
            let has = |made: &str, from: &str| seen.contains(&(made.to_string(), from.to_string()));
            assert!(has("Cos", "Sin") && !has("Cos", "nothing"), "{seen:?}");
            assert!(has("Mul", "Mul") && !has("Mul", "nothing"), "{seen:?}");
        }
    }

    fn op_of(model: &Model, node: NodeId) -> String {
        model.display(model.node(node).op_type).into_owned()
    }
}

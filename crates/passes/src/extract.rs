//! Extracts a part of a model, between two sets of values, as a model of its own.
//!
//! The part has the nodes from which its outputs are computed, back to its inputs, with the
//! constants, functions, imports and annotations that these need. A part of a graph in a node reads
//! values of the graphs around: its constants are copied, all other values become inputs. Weights
//! are not copied, and the work is linear in the size of the model.

use std::fmt;

use hashbrown::{HashMap, HashSet};
use sardonyx_model::{
    GraphId, Id, Model, NodeId, OperatorSetId, Producer, Span, Symbol, TensorAnnotation, TypeKind,
    TypeProto, ValueId, ValueInfo, normalize_domain,
};
use sardonyx_ops::Registry;

use crate::annotations::{annotations, configuration};
use crate::function_id::{FunctionKey, function_key};
use crate::infer::{InferOptions, Inference, complete_declaration, infer_model};
use crate::order::{reads, tree};
use crate::origins::Origins;
use crate::results::{JobInput, JobKind, Rejected};

/// First IR version in which an initializer need not be an input.
const CONSTANTS_ALONE: i64 = 4;

/// Part of a graph, between values.
#[derive(Debug, Clone)]
pub struct Cut {
    /// Graph that has the part: the main graph, or a graph in a node.
    pub graph: GraphId,
    /// Values that become inputs, in this order, even if the part does not read them.
    pub inputs: Vec<ValueId>,
    /// Values that become inputs if the part reads them, in this order after `inputs`.
    pub stops: Vec<ValueId>,
    /// Values that become outputs, in this order.
    pub outputs: Vec<ValueId>,
    /// Whether all inputs of the graph stay inputs, even if the part does not read them.
    pub keeps_inputs: bool,
}

/// Sizes and interface of an extracted part.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ExtractReport {
    /// Names of the inputs.
    pub inputs: Vec<String>,
    /// Names of inputs that the cut does not list, but the part reads.
    pub added: Vec<String>,
    /// Names of the outputs.
    pub outputs: Vec<String>,
    /// Names of inputs and outputs whose shapes are unknown, so that none is declared.
    pub shapeless: Vec<String>,
    /// Number of constants that the part captures from the graphs around the one that was cut.
    pub captured: usize,
    /// Number of nodes of the graph that was cut that the part has, without those in its nodes.
    pub nodes: usize,
    /// Number of nodes in the graph that was cut, without those in its nodes.
    pub nodes_before: usize,
    /// Number of constants of the graph that was cut that the part has.
    pub constants: usize,
    /// Number of constants of the graph that was cut.
    pub constants_before: usize,
    /// Number of functions of the part.
    pub functions: usize,
    /// Number of functions of the model.
    pub functions_before: usize,
}

/// Extracted part of a model.
#[derive(Debug)]
pub struct Extracted {
    /// The part.
    pub model: Model,
    /// Its sizes and interface.
    pub report: ExtractReport,
}

/// Reason why a part cannot be a model.
#[derive(Debug, Clone)]
pub enum ExtractRefusal {
    /// Names of values that would be inputs or outputs, but whose types are unknown.
    Untyped(Vec<String>),
    /// The part has errors that the model does not have.
    Invalid(Box<Rejected>),
}

impl fmt::Display for ExtractRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ExtractRefusal::Untyped(names) => {
                write!(f, "the element type of {} is unknown", quote_names(names))
            }
            ExtractRefusal::Invalid(rejected) => rejected.errors.fmt(f),
        }
    }
}

/// Formats the first names, and the number of further ones.
fn quote_names(names: &[String]) -> String {
    const SHOWN: usize = 10;
    let shown: Vec<String> = names.iter().take(SHOWN).map(|name| format!("'{name}'")).collect();
    let more = names.len().saturating_sub(SHOWN);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    shown.join(", ") + &more
}

/// Extracts a part of a model, and checks it.
///
/// # Errors
///
/// Inputs or outputs without a type, or a part with errors that the model does not have.
pub fn extract(model: &Model, registry: &Registry, cut: &Cut) -> Result<Extracted, ExtractRefusal> {
    let Extracted { model: part, report } = extract_unchecked(model, registry, cut)?;
    let input = JobInput { job: JobKind::Extract, model, registry };
    // Nodes of the part are nodes of the model with the same ids.
    let accepted = input.accept(part, &Origins::default()).map_err(ExtractRefusal::Invalid)?;
    Ok(Extracted { model: accepted.model, report })
}

/// Extracts a part of a model without checking the result.
///
/// # Errors
///
/// Inputs or outputs without a type.
pub(crate) fn extract_unchecked(
    model: &Model,
    registry: &Registry,
    cut: &Cut,
) -> Result<Extracted, ExtractRefusal> {
    let needs = Needs::find(model, cut);
    let ports = Ports::choose(model, cut, &needs);
    let mut part = model.clone();
    let declared = Declared::new(&mut part, registry, &ports)?;
    let before = model.graph(cut.graph);
    let mut report = ExtractReport {
        inputs: show_names(model, &ports.inputs),
        added: show_names(model, &ports.added),
        outputs: show_names(model, &ports.outputs),
        shapeless: declared.shapeless.clone(),
        nodes_before: before.nodes.len(),
        constants_before: before.initializers.len() + before.sparse_initializers.len(),
        functions_before: model.functions.len(),
        ..ExtractReport::default()
    };
    Builder { part: &mut part, cut, needs: &needs, ports: &ports }.build(declared);
    let after = part.graph(cut.graph);
    let nodes = before.nodes.iter().filter(|node| needs.nodes[node.index()]);
    report.nodes = nodes.count();
    report.captured = ports.constants.len();
    let made = ports
        .constants
        .iter()
        .filter(|value| matches!(model.value(**value).producer, Producer::Node(..)));
    report.constants =
        after.initializers.len() + after.sparse_initializers.len() + made.count() - report.captured;
    report.functions = part.functions.len();
    Ok(Extracted { model: part, report })
}

fn show_names(model: &Model, values: &[ValueId]) -> Vec<String> {
    let texts = values.iter().map(|value| model.text(model.value(*value).name));
    texts.map(sardonyx_proto::shown).collect()
}

/// Nodes and values from which the outputs of a part are computed.
struct Needs {
    /// Whether the part has a node of the cut graph, by node.
    nodes: Vec<bool>,
    /// Whether the part reads a value or outputs it, by value.
    values: Vec<bool>,
    /// Values of graphs around the cut one that the part reads, in the order of reading.
    captured: Vec<ValueId>,
}

impl Needs {
    fn find(model: &Model, cut: &Cut) -> Needs {
        let mut needs = Needs {
            nodes: vec![false; model.node_count()],
            values: vec![false; model.value_count()],
            captured: Vec::new(),
        };
        let mut ends = vec![false; model.value_count()];
        cut.inputs.iter().chain(&cut.stops).for_each(|value| ends[value.index()] = true);
        needs.follow(model, cut.graph, cut.outputs.clone(), &ends);
        let graph = model.graph(cut.graph);
        if !graph.quantization_annotation.is_empty() {
            let named: HashMap<Symbol, ValueId> = model
                .values()
                .filter(|(_, value)| value.graph == cut.graph)
                .map(|(id, value)| (value.name, id))
                .collect();
            // Parameters of an annotation may be annotated in turn.
            loop {
                let annotations = graph.quantization_annotation.iter();
                let annotations = annotations.filter(|found| needs.has_annotated(&named, found));
                let parameters = annotations.flat_map(|found| &found.quant_parameter_tensor_names);
                let open: Vec<ValueId> = parameters
                    .filter_map(|entry| named.get(&entry.value?).copied())
                    .filter(|value| !needs.values[value.index()])
                    .collect();
                if open.is_empty() {
                    break;
                }
                needs.follow(model, cut.graph, open, &ends);
            }
        }
        if graph.parent.is_some() {
            needs.captured = needs.list_captured(model, cut);
        }
        needs
    }

    /// Adds values, and what they are computed from, back to the values in `ends`.
    fn follow(&mut self, model: &Model, graph: GraphId, mut open: Vec<ValueId>, ends: &[bool]) {
        while let Some(id) = open.pop() {
            if std::mem::replace(&mut self.values[id.index()], true) || ends[id.index()] {
                continue;
            }
            let value = model.value(id);
            if let Producer::Node(node, _) = value.producer
                && value.graph == graph
                && !std::mem::replace(&mut self.nodes[node.index()], true)
            {
                open.extend(reads(model, node));
            }
        }
    }

    /// Whether the part has the tensor of an annotation.
    fn has_annotated(&self, named: &HashMap<Symbol, ValueId>, found: &TensorAnnotation) -> bool {
        let value = found.tensor_name.and_then(|name| named.get(&name));
        value.is_some_and(|value| self.values[value.index()])
    }

    /// Lists the values of graphs around the cut one that the part reads.
    fn list_captured(&self, model: &Model, cut: &Cut) -> Vec<ValueId> {
        let within: HashSet<GraphId> = tree(model, cut.graph).into_iter().collect();
        let nodes = model.graph(cut.graph).nodes.iter();
        let nodes = nodes.filter(|node| self.nodes[node.index()]);
        let read = nodes.flat_map(|node| reads(model, *node)).chain(cut.outputs.iter().copied());
        let mut seen = HashSet::new();
        read.filter(|value| !within.contains(&model.value(*value).graph) && seen.insert(*value))
            .collect()
    }
}

/// Inputs and outputs of a part.
struct Ports {
    inputs: Vec<ValueId>,
    /// Inputs that the cut does not list.
    added: Vec<ValueId>,
    outputs: Vec<ValueId>,
    /// Captured values that the part has as constants.
    constants: Vec<ValueId>,
    /// Inputs of the cut graph.
    own: HashSet<ValueId>,
}

impl Ports {
    fn choose(model: &Model, cut: &Cut, needs: &Needs) -> Ports {
        let graph = model.graph(cut.graph);
        let own: Vec<ValueId> = graph.inputs.iter().filter_map(|info| info.value).collect();
        let mut ports = Ports {
            inputs: Vec::new(),
            added: Vec::new(),
            outputs: Vec::new(),
            constants: Vec::new(),
            own: own.iter().copied().collect(),
        };
        let mut seen = HashSet::new();
        ports.inputs.extend(cut.inputs.iter().copied().filter(|value| seen.insert(*value)));
        if cut.keeps_inputs {
            ports.inputs.extend(own.iter().copied().filter(|value| seen.insert(*value)));
        }
        let stops = cut.stops.iter().copied().filter(|value| needs.values[value.index()]);
        ports.inputs.extend(stops.filter(|value| seen.insert(*value)));
        let is_selected = !cut.inputs.is_empty() || !cut.stops.is_empty();
        let needs_input = !is_selected || model.header.ir_version.unwrap_or(0) < CONSTANTS_ALONE;
        let dense: HashSet<ValueId> =
            graph.initializers.iter().filter_map(|found| found.value).collect();
        let own = own.into_iter().filter(|value| needs.values[value.index()]);
        for value in own.filter(|value| seen.insert(*value)) {
            let has_default = dense.contains(&value);
            if has_default && !needs_input {
                continue;
            }
            ports.inputs.push(value);
            if is_selected && !has_default {
                ports.added.push(value);
            }
        }
        for value in needs.captured.iter().copied().filter(|value| seen.insert(*value)) {
            if is_constant(model, value) {
                ports.constants.push(value);
            } else {
                ports.inputs.push(value);
                ports.added.push(value);
            }
        }
        let mut seen = HashSet::new();
        ports.outputs.extend(cut.outputs.iter().copied().filter(|value| seen.insert(*value)));
        ports
    }
}

/// Whether a value is a constant: an initializer, or the output of a `Constant` node.
fn is_constant(model: &Model, value: ValueId) -> bool {
    match model.value(value).producer {
        Producer::Initializer(_) | Producer::SparseInitializer(_) => true,
        Producer::Node(node, _) => is_constant_node(model, node),
        Producer::Input(_) | Producer::Nothing => false,
    }
}

fn is_constant_node(model: &Model, node: NodeId) -> bool {
    model.maybe_text(model.node(node).op_type) == Some(b"Constant")
        && model.domain_of(node).is_empty()
        && model.inputs(node).len() == 0
}

/// Declarations of inputs and outputs.
struct Declared {
    inputs: Vec<ValueInfo>,
    outputs: Vec<ValueInfo>,
    /// Names of values without a shape.
    shapeless: Vec<String>,
}

impl Declared {
    /// Declares inputs and outputs: as the model does, completed by inference if it leaves types or
    /// shapes open.
    fn new(
        model: &mut Model,
        registry: &Registry,
        ports: &Ports,
    ) -> Result<Declared, ExtractRefusal> {
        let listed = list_declarations(model, ports);
        let mut inputs = declare_values(model, &listed, &ports.inputs);
        let mut outputs = declare_values(model, &listed, &ports.outputs);
        if inputs.iter().chain(&outputs).any(is_open) {
            let found = infer_model(model, registry, InferOptions::default());
            let infos = inputs.iter_mut().chain(&mut outputs);
            for info in infos.filter(|info| is_open(info)) {
                complete(model, &found, info);
            }
        }
        let (mut untyped, mut shapeless) = (Vec::new(), Vec::new());
        for info in inputs.iter().chain(&outputs).filter(|info| is_open(info)) {
            let name = sardonyx_proto::shown(model.maybe_text(info.name).unwrap_or_default());
            if is_typed(info) { &mut shapeless } else { &mut untyped }.push(name);
        }
        if untyped.is_empty() {
            Ok(Declared { inputs, outputs, shapeless })
        } else {
            Err(ExtractRefusal::Untyped(untyped))
        }
    }
}

/// Declares values: as in `listed`, or by the type of the initializer.
fn declare_values(
    model: &Model,
    listed: &HashMap<ValueId, ValueInfo>,
    values: &[ValueId],
) -> Vec<ValueInfo> {
    let declared = values.iter().map(|value| match listed.get(value) {
        Some(info) => info.clone(),
        None => {
            let name = Some(model.value(*value).name);
            let ty = model.type_of_initializer(*value);
            ValueInfo { name, value: Some(*value), ty, ..ValueInfo::default() }
        }
    });
    declared.collect()
}

/// Collects the declarations of inputs and outputs in the lists of their graphs.
fn list_declarations(model: &Model, ports: &Ports) -> HashMap<ValueId, ValueInfo> {
    let wanted: HashSet<ValueId> = ports.inputs.iter().chain(&ports.outputs).copied().collect();
    let graphs: HashSet<GraphId> = wanted.iter().map(|value| model.value(*value).graph).collect();
    let mut listed: HashMap<ValueId, ValueInfo> = HashMap::new();
    for id in graphs {
        let graph = model.graph(id);
        // Declarations of inputs and outputs are more likely to be complete.
        let lists = graph.inputs.iter().chain(&graph.outputs).chain(&graph.value_info);
        for info in lists {
            if let Some(value) = info.value.filter(|value| wanted.contains(value))
                && model.value(value).graph == id
            {
                let known = listed.entry(value).or_insert_with(|| info.clone());
                if !is_typed(known) && is_typed(info) {
                    known.ty.clone_from(&info.ty);
                }
            }
        }
    }
    listed
}

/// Completes the type of a declaration by inference.
fn complete(model: &mut Model, found: &Inference, info: &mut ValueInfo) {
    let Some(ty) = info.value.and_then(|value| found.ty(value)) else { return };
    complete_declaration(model, info.ty.get_or_insert_default(), ty);
}

/// Whether a declaration leaves the element type or the shape open.
fn is_open(info: &ValueInfo) -> bool {
    !is_typed(info) || !has_shape(info)
}

/// Whether a declaration has a type, and all tensors in it an element type.
fn is_typed(info: &ValueInfo) -> bool {
    let mut next = info.ty.as_ref();
    // A loop suffices: a type contains at most one other type.
    loop {
        match next.and_then(|ty| ty.kind.as_ref()) {
            Some(
                TypeKind::Sequence { elem_type: inner, .. }
                | TypeKind::Optional { elem_type: inner, .. }
                | TypeKind::Map { value_type: inner, .. },
            ) => next = inner.as_deref(),
            Some(TypeKind::Tensor { elem_type, .. } | TypeKind::SparseTensor { elem_type, .. }) => {
                return elem_type.is_some_and(|elem| elem != 0);
            }
            Some(TypeKind::Opaque { .. }) => return true,
            None => return false,
        }
    }
}

/// Whether a declaration of a tensor has a shape. Other types need none.
fn has_shape(info: &ValueInfo) -> bool {
    match info.ty.as_ref().and_then(|ty: &TypeProto| ty.kind.as_ref()) {
        Some(TypeKind::Tensor { shape, .. } | TypeKind::SparseTensor { shape, .. }) => {
            shape.is_some()
        }
        _ => true,
    }
}

/// A copy of the model that becomes the part.
struct Builder<'a> {
    part: &'a mut Model,
    cut: &'a Cut,
    needs: &'a Needs,
    ports: &'a Ports,
}

impl Builder<'_> {
    fn build(mut self, declared: Declared) {
        let id = self.cut.graph;
        self.part.remove_training(None);
        let adopted = self.adopt_constants();
        self.remove_nodes(&adopted);
        self.part.retain_inputs(id, |_| false);
        self.retain_constants();
        self.free_inputs();
        for info in declared.inputs {
            let Some(value) = info.value else { continue };
            if self.part.value(value).graph != id {
                self.part.move_value(value, id);
            }
            self.part.make_input(id, value, None);
            if let Some(added) = self.part.graph_mut(id).inputs.last_mut() {
                *added = info;
            }
        }
        self.part.retain_outputs(id, |_, _| false);
        for info in declared.outputs {
            let Some(value) = info.value else { continue };
            self.part.add_graph_output(id, value);
            if let Some(added) = self.part.graph_mut(id).outputs.last_mut() {
                *added = info;
            }
        }
        self.part.main = Some(id);
        self.allow_constants_alone(id);
        if self.part.is_blank(self.part.graph(id).name) {
            // The name of a graph in a node may be missing, that of the main graph may not.
            self.part.graph_mut(id).name = Some(self.part.intern("part"));
        }
        let graph = self.part.graph_mut(id);
        (graph.owner, graph.parent) = (None, None);
        self.retain_annotations();
        self.retain_functions();
        self.retain_imports();
    }

    /// Moves captured constants into the part. Returns the `Constant` nodes among them.
    fn adopt_constants(&mut self) -> HashSet<NodeId> {
        let id = self.cut.graph;
        let mut nodes = Vec::new();
        for value in &self.ports.constants {
            match self.part.value(*value).producer {
                Producer::Node(node, _) => nodes.push(node),
                _ => self.part.adopt_initializer(*value, id),
            }
        }
        self.part.move_nodes(&nodes, id);
        nodes.into_iter().collect()
    }

    /// Removes the nodes of the cut graph that the part does not need, and those around it.
    fn remove_nodes(&mut self, adopted: &HashSet<NodeId>) {
        let id = self.cut.graph;
        let mut gone: Vec<NodeId> = Vec::new();
        if let Some(owner) = self.part.graph(id).owner {
            // Detaching a node detaches those in its graphs as well.
            self.part.clear_attributes(owner);
            gone.extend(self.part.main.into_iter().flat_map(|main| &self.part.graph(main).nodes));
        }
        let nodes = std::mem::take(&mut self.part.graph_mut(id).nodes);
        let (kept, dead): (Vec<NodeId>, Vec<NodeId>) = nodes.into_iter().partition(|node| {
            self.needs.nodes.get(node.index()) == Some(&true) || adopted.contains(node)
        });
        gone.extend(dead);
        gone.into_iter().for_each(|node| self.part.detach_node(node));
        self.part.graph_mut(id).nodes = kept;
    }

    /// Removes the initializers that the part does not read, or has as inputs. The default of an
    /// input stays with it.
    fn retain_constants(&mut self) {
        let Builder { part, cut, needs, ports } = self;
        let inputs = ports.inputs.iter().copied();
        let replaced: HashSet<ValueId> =
            inputs.filter(|value| !ports.own.contains(value)).collect();
        let adopted: HashSet<ValueId> = ports.constants.iter().copied().collect();
        let graph = part.graph(cut.graph);
        let dense = graph.initializers.iter().map(|found| found.value);
        let sparse = graph.sparse_initializers.iter().map(|found| found.value);
        let read = dense.chain(sparse).flatten().filter(|value| {
            let is_read = needs.values[value.index()] || adopted.contains(value);
            is_read && !replaced.contains(value)
        });
        let kept: HashSet<Option<ValueId>> = read.map(Some).collect();
        part.retain_initializers(cut.graph, |_, found| kept.contains(&found.value));
        part.retain_sparse_initializers(cut.graph, |_, found| kept.contains(&found.value));
    }

    /// Gives new names to outputs of nodes that stay, but whose values become inputs: other outputs
    /// of these nodes are read.
    fn free_inputs(&mut self) {
        for value in &self.ports.inputs {
            if let Producer::Node(node, index) = self.part.value(*value).producer {
                let hint = self.part.display(Some(self.part.value(*value).name)).into_owned();
                let unused = self.part.add_value(self.cut.graph, &hint);
                self.part.redefine_output(node, index as usize, unused);
            }
        }
    }

    /// Keeps declared types and quantization parameters of the values that the part has.
    fn retain_annotations(&mut self) {
        let id = self.cut.graph;
        let mut graph = std::mem::take(self.part.graph_mut(id));
        let infos = graph.inputs.iter().chain(&graph.outputs);
        let listed: HashSet<ValueId> = infos.filter_map(|info| info.value).collect();
        let part = &*self.part;
        graph.value_info.retain(|info| {
            info.value.is_some_and(|value| {
                part.value(value).producer != Producer::Nothing && !listed.contains(&value)
            })
        });
        if !graph.quantization_annotation.is_empty() {
            let values = part.values().filter(|(_, value)| {
                value.graph == id && (value.producer != Producer::Nothing || value.is_output)
            });
            let names: HashSet<Symbol> = values.map(|(_, value)| value.name).collect();
            let annotations = &mut graph.quantization_annotation;
            annotations.retain(|found| found.tensor_name.is_some_and(|name| names.contains(&name)));
        }
        *self.part.graph_mut(id) = graph;
    }

    /// Keeps the functions that the part calls, directly or in other functions, and empties all
    /// graphs that cannot be reached any more: counts of nodes and weights cover all graphs.
    fn retain_functions(&mut self) {
        let part = &*self.part;
        let mut by_key: HashMap<FunctionKey, Vec<usize>> = HashMap::new();
        for (index, found) in part.functions.iter().enumerate() {
            let key = function_key(part, found.domain, found.name, found.overload);
            by_key.entry(key).or_default().push(index);
        }
        let mut called = vec![false; part.functions.len()];
        let mut kept: HashSet<GraphId> = HashSet::new();
        let mut open = vec![self.cut.graph];
        while let Some(root) = open.pop() {
            for graph in tree(part, root) {
                kept.insert(graph);
                for id in &part.graph(graph).nodes {
                    let node = part.node(*id);
                    let key = function_key(part, node.domain, node.op_type, node.overload);
                    for index in by_key.remove(&key).unwrap_or_default() {
                        called[index] = true;
                        open.push(part.functions[index].body);
                    }
                }
            }
        }
        let mut called = called.into_iter();
        self.part.functions.retain(|_| called.next().unwrap_or(false));
        let gone: Vec<GraphId> =
            self.part.graphs().map(|(id, _)| id).filter(|id| !kept.contains(id)).collect();
        for id in gone {
            let graph = self.part.graph_mut(id);
            graph.nodes.clear();
            graph.value_info.clear();
            graph.initializers.clear();
            graph.sparse_initializers.clear();
        }
    }

    /// Keeps the imports of operator sets and the device configurations that the part uses.
    fn retain_imports(&mut self) {
        let part = &*self.part;
        let mut domains: HashSet<String> = HashSet::new();
        let mut configurations: HashSet<Vec<u8>> = HashSet::new();
        let mut symbols: HashSet<Option<Symbol>> = HashSet::new();
        let bodies = part.functions.iter().map(|function| function.body);
        for graph in std::iter::once(self.cut.graph).chain(bodies).flat_map(|id| tree(part, id)) {
            for id in &part.graph(graph).nodes {
                symbols.insert(part.node(*id).domain);
                let named = annotations(part, *id).map(|found| found.configuration.to_vec());
                configurations.extend(named);
            }
        }
        let imports = part.functions.iter().flat_map(|function| &function.opset_import);
        symbols.extend(imports.map(|import| import.domain));
        domains.extend(
            symbols.into_iter().map(|domain| normalize_domain(&part.display(domain)).to_string()),
        );
        let header = &part.header;
        let used = header
            .opset_import
            .iter()
            .filter(|import| domains.contains(normalize_domain(&part.display(import.domain))));
        let mut opset_import: Vec<OperatorSetId> = used.cloned().collect();
        if opset_import.is_empty() {
            // A model without nodes has to import something as well.
            opset_import.clone_from(&header.opset_import);
        }
        let configuration: Vec<Span> = header
            .configuration
            .iter()
            .filter(|span| configurations.contains(configuration(part.bytes(**span)).name))
            .copied()
            .collect();
        self.part.header.opset_import = opset_import;
        self.part.header.configuration = configuration;
    }

    /// Raises the IR version if the graph has constants that are not inputs, as inner graphs may
    /// have in any version, but main graphs only from [`CONSTANTS_ALONE`] on.
    fn allow_constants_alone(&mut self, id: GraphId) {
        let part = &mut *self.part;
        let constants = part.graph(id).initializers.iter().filter_map(|found| found.value);
        let is_alone = |value| matches!(part.value(value).producer, Producer::Initializer(_));
        let version = part.header.ir_version.unwrap_or(0);
        if version < CONSTANTS_ALONE && constants.into_iter().any(is_alone) {
            part.header.ir_version = Some(CONSTANTS_ALONE);
        }
    }
}

/// Finds the nodes around `center` in its graph, up to `depth` values before and after it, and
/// returns the part that they are: their inputs and outputs. Constants are not counted as nodes.
pub fn cut_around(model: &Model, center: NodeId, depth: usize) -> Cut {
    let id = model.node(center).graph;
    let graph = model.graph(id);
    let mut chosen: HashSet<NodeId> = HashSet::from_iter([center]);
    let mut front = vec![center];
    for _ in 0..depth {
        let mut next = Vec::new();
        for node in front {
            for value in reads(model, node) {
                let value = model.value(value);
                if let Producer::Node(maker, _) = value.producer
                    && value.graph == id
                    && !is_constant_node(model, maker)
                    && chosen.insert(maker)
                {
                    next.push(maker);
                }
            }
            for (reader, _) in model.outputs(node).iter().flatten().flat_map(|v| model.uses(*v)) {
                let reader = find_ancestor(model, reader, id);
                next.extend(reader.filter(|reader| chosen.insert(*reader)));
            }
        }
        front = next;
    }
    let mut cut = Cut {
        graph: id,
        inputs: Vec::new(),
        stops: Vec::new(),
        outputs: Vec::new(),
        keeps_inputs: false,
    };
    let within: HashSet<GraphId> = tree(model, id).into_iter().collect();
    let mut seen = HashSet::new();
    for node in graph.nodes.iter().filter(|node| chosen.contains(*node)) {
        for value in reads(model, *node) {
            let found = model.value(value);
            let is_inner = found.graph != id && within.contains(&found.graph);
            let is_made =
                matches!(found.producer, Producer::Node(node, _) if chosen.contains(&node));
            if !is_made && !is_constant(model, value) && !is_inner && seen.insert(value) {
                cut.inputs.push(value);
            }
        }
    }
    for node in graph.nodes.iter().filter(|node| chosen.contains(*node)) {
        for value in model.outputs(*node).iter().flatten() {
            let mut readers =
                model.uses(*value).filter_map(|(reader, _)| find_ancestor(model, reader, id));
            let is_read = readers.any(|reader| !chosen.contains(&reader));
            let is_last = model.uses(*value).next().is_none();
            if is_read || is_last || model.value(*value).is_output {
                cut.outputs.push(*value);
            }
        }
    }
    cut
}

/// Returns the node of `graph` that is `node` or has it in one of its graphs.
fn find_ancestor(model: &Model, mut node: NodeId, graph: GraphId) -> Option<NodeId> {
    while model.node(node).graph != graph {
        node = model.graph(model.node(node).graph).owner?;
    }
    Some(node)
}

//! Replaces calls by the bodies of their functions.

use std::fmt;

use hashbrown::HashMap;
use smallvec::SmallVec;

use crate::attribute::{Attribute, AttributeValue};
use crate::devices::{NodeDevices, give_devices, set_messages};
use crate::dim::Dim;
use crate::graph::{Function, Graph, Model, Node, NodeExtras, Producer, Range, ValueInfo};
use crate::ids::{GraphId, Id, NodeId, ValueId};
use crate::inner_names::InnerNames;
use crate::made::NodeBuilder;
use crate::names::Symbol;
use crate::type_proto::{DimValue, TypeProto};

/// Copy of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Copied {
    /// The copy.
    pub node: NodeId,
    /// Node that was copied.
    pub of: NodeId,
}

/// Result of inlining a call.
#[derive(Debug, Clone, Default)]
pub struct Inlined {
    /// Copies of the body's nodes, including those in graphs of nodes; each before those in its
    /// graphs.
    pub copied: Vec<Copied>,
    /// Types that the function declares for values of its body, for the copies of these values.
    /// They may be wrong in this call, as a function may be called with different types.
    pub declared: Vec<ValueInfo>,
    /// Outputs of the call whose readers were redirected to another value. They are undefined now.
    pub redirected: Vec<ValueId>,
}

/// Reason why a call cannot be inlined.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum InlineError {
    /// The call has more inputs than the function.
    TooManyInputs {
        /// Number of inputs of the call.
        given: usize,
        /// Number of inputs of the function.
        formal: usize,
    },
    /// The call has more outputs than the function.
    TooManyOutputs {
        /// Number of outputs of the call.
        taken: usize,
        /// Number of outputs of the function.
        formal: usize,
    },
    /// An output of the function is undefined, or is an input that the call omits.
    NoOutput {
        /// Position of the output.
        index: usize,
    },
    /// The call omits an input that a node of the body requires.
    NoInput {
        /// Position of the input.
        index: usize,
        /// Name of the input.
        name: String,
        /// Description of the node.
        reader: String,
    },
    /// The call is in another function and passes on an attribute of that function which may have
    /// no value, while the called function has a default for it. After inlining, the default could
    /// not be expressed.
    DefaultOfCallee {
        /// Attribute of the called function.
        attribute: String,
    },
}

impl fmt::Display for InlineError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            InlineError::TooManyInputs { given, formal } => {
                write!(f, "the call has {given} inputs, but the function has {formal}")
            }
            InlineError::TooManyOutputs { taken, formal } => {
                write!(f, "the call has {taken} outputs, but the function has {formal}")
            }
            InlineError::NoOutput { index } => {
                write!(f, "the function does not compute its output {index} in this call")
            }
            InlineError::NoInput { index, name, reader } => {
                write!(f, "input {index} ({name}) is missing, but {reader} requires it")
            }
            InlineError::DefaultOfCallee { attribute } => write!(
                f,
                "it passes an attribute of the enclosing function that may have no value, and the function has a default for '{attribute}'"
            ),
        }
    }
}

impl std::error::Error for InlineError {}

impl NodeBuilder<'_> {
    /// Replaces the anchor, a call of the function at this index, by a copy of the function's body.
    /// Copies in the graph of the call keep the topological order of the function.
    ///
    /// Inputs that the call omits are omitted in the copies. References to attributes of the
    /// function are replaced by the value of the call, else by the default, else removed. Outputs
    /// of the call keep their names; names of other values and nodes are prefixed with the name of
    /// the call. Symbolic dimensions of the function differ from the caller's ones with the same
    /// names, so they are removed from declared types.
    ///
    /// # Errors
    ///
    /// The call does not match the function. Nothing is changed then.
    pub fn inline(&mut self, function: usize) -> Result<Inlined, InlineError> {
        let call = self.anchor();
        let model = self.model();
        let callee = &model.functions[function];
        let body = model.graph(callee.body);
        let (given, taken) = (model.inputs(call).len(), model.outputs(call).len());
        if given > body.inputs.len() {
            return Err(InlineError::TooManyInputs { given, formal: body.inputs.len() });
        }
        if taken > body.outputs.len() {
            return Err(InlineError::TooManyOutputs { taken, formal: body.outputs.len() });
        }
        if let Some(attribute) = find_uncertain_default(model, callee, call) {
            return Err(InlineError::DefaultOfCallee { attribute });
        }
        let mut copying = Copying::default();
        let nodes = model.graphs[callee.body].nodes.len();
        copying.values.reserve(body.inputs.len() + nodes);
        copying.copied.reserve(nodes);
        let actual = model.inputs(call).chain(std::iter::repeat(None));
        for (formal, actual) in body.inputs.iter().zip(actual) {
            copying.values.extend(formal.value.map(|formal| (formal, actual)));
        }
        // Pairs of an output of the function and the value of the call that it defines.
        let mut outputs: Vec<(ValueId, ValueId)> = Vec::new();
        let mut made_here: HashMap<ValueId, ValueId> = HashMap::new();
        for (index, (output, wanted)) in body.outputs.iter().zip(model.outputs(call)).enumerate() {
            let Some(wanted) = *wanted else { continue };
            let made = output.value.ok_or(InlineError::NoOutput { index })?;
            match (model.value(made).producer, copying.values.get(&made)) {
                (Producer::Node(..), None) => {
                    // A function may list a value twice. Prefer the value that is an output of the
                    // caller's graph, as its name must stay.
                    let kept = made_here.entry(made).or_insert(wanted);
                    if model.value(wanted).is_output && !model.value(*kept).is_output {
                        *kept = wanted;
                    }
                }
                (_, Some(Some(_))) => {}
                _ => return Err(InlineError::NoOutput { index }),
            }
            outputs.push((made, wanted));
        }
        copying.of_call = made_here.values().copied().collect();
        copying.values.extend(made_here.into_iter().map(|(made, wanted)| (made, Some(wanted))));
        copying.attributes = collect_attributes(model, callee, call);
        copying.prefix = self.prefix_of_call();
        copying.names = std::mem::take(self.inner_names());
        let (from, to) = (callee_body(self.model(), function), self.model().node(call).graph);

        let model = self.model_mut();
        copying.names.collect(model);
        let output = model.outputs(call).iter().flatten().next().copied();
        let range = model.nodes[call].outputs.indices();
        model.output_lists[range].fill(None);
        let mut nodes = copying.copy_graph_nodes(model, from, to);
        let declared = copying.collect_declared(model, from);
        let mut redirected = Vec::new();
        for (made, wanted) in outputs {
            let source = copying.values[&made];
            let Some(value) = source.filter(|value| *value != wanted) else {
                continue;
            };
            // An output without a node of its own needs an `Identity` only if its name must stay.
            if copying.is_name_needed(model, wanted, value) {
                let (node, _) = model.new_node(to, "Identity", "", &[source], 1);
                model.redefine_output(node, 0, wanted);
                nodes.push(node);
                copying.copied.push(Copied { node, of: call });
            } else {
                model.replace_uses(wanted, value, None);
                model.values[wanted].producer = Producer::Nothing;
                redirected.push(wanted);
            }
        }
        copying.share_devices(model, call);
        model.detach_node(call);
        let Copying { names, copied, .. } = copying;
        *self.inner_names() = names;
        self.put_in_place(output, nodes, &copied);
        Ok(Inlined { copied, declared, redirected })
    }

    /// Copies nodes, which must be in topological order, to before the anchor. The copies read the
    /// values on the right of `others` in place of those on the left, and outputs of each other.
    /// Returns the copies, including those in graphs of nodes, and the replacement of each of
    /// `values`.
    pub fn copy_before(
        &mut self,
        nodes: &[NodeId],
        others: &HashMap<ValueId, ValueId>,
        values: &[ValueId],
    ) -> (Vec<Copied>, Vec<ValueId>) {
        let others = others.iter().map(|(old, new)| (*old, Some(*new))).collect();
        let mut copying = self.start_copying(others);
        let anchor = self.anchor();
        let model = self.model_mut();
        let to = model.node(anchor).graph;
        let copies = copying.copy_nodes(model, nodes, to);
        let values = values.iter().map(|value| copying.value(*value).unwrap_or(*value)).collect();
        (self.put_copies(copying, copies), values)
    }

    /// Copies a graph of a node, to be the value of an attribute of `owner`. The copy captures the
    /// same outer values. Its nodes count as made for the anchor. Returns the copy and all nodes in
    /// it.
    pub fn copy_graph(&mut self, graph: GraphId, owner: NodeId) -> (GraphId, Vec<Copied>) {
        let mut copying = self.start_copying(HashMap::new());
        let copy = copying.copy_graph(self.model_mut(), graph, Some(owner));
        (copy, self.put_copies(copying, Vec::new()))
    }

    /// Starts copying on behalf of the anchor, with replacements of values.
    fn start_copying(&mut self, values: HashMap<ValueId, Option<ValueId>>) -> Copying {
        let prefix = self.prefix_of_call();
        let mut names = std::mem::take(self.inner_names());
        names.collect(self.model());
        Copying { values, author: Author::Caller, prefix, names, ..Copying::default() }
    }

    /// Finishes copying: puts the nodes `before` before the anchor, and returns all copies.
    fn put_copies(&mut self, copying: Copying, before: Vec<NodeId>) -> Vec<Copied> {
        let Copying { names, copied, .. } = copying;
        *self.inner_names() = names;
        self.put_before(before, &copied);
        copied
    }

    /// Builds the prefix for names of copies: the name of the anchor. A call without a name
    /// contributes its function's name, after the prefix of the call that it was inlined from.
    fn prefix_of_call(&self) -> String {
        const LONGEST: usize = 1024;
        let model = self.model();
        let (mut parts, mut len, mut next) = (Vec::new(), 0, Some(self.anchor()));
        while let Some(call) = next {
            let node = model.node(call);
            let name = model.display(node.name);
            let has_name = !name.is_empty();
            let part = if has_name { name } else { model.display(node.op_type) };
            len += part.len() + 1;
            parts.push(part);
            if len > LONGEST {
                parts.truncate(1);
                break;
            }
            next = self.made_nodes().call_of(call).filter(|_| !has_name);
        }
        parts.reverse();
        let mut prefix = parts.join("/");
        prefix.truncate(prefix.floor_char_boundary(LONGEST));
        prefix
    }
}

impl Model {
    /// Appends a copy of a function, with the same names, to the functions. The caller must rename
    /// the function itself. Returns the nodes, including those in graphs of nodes.
    pub fn copy_function(&mut self, function: usize) -> Vec<Copied> {
        let mut copy = self.functions[function].clone();
        let mut copying = Copying::for_caller();
        copy.body = copying.copy_graph(self, copy.body, None);
        for default in &mut copy.attribute_protos {
            copying.copy_graphs(self, default, None);
        }
        self.functions.push(copy);
        copying.copied
    }

    /// Omits `value`, one of a function's inputs, in all nodes of the function that read it, as in
    /// a call that omits it.
    pub fn leave_out(&mut self, value: ValueId) {
        let mut readers: Vec<NodeId> = self.uses(value).map(|(reader, _)| reader).collect();
        readers.sort_unstable();
        readers.dedup();
        for reader in readers {
            let inputs: Inputs = self.inputs(reader).collect();
            let inputs = replace_inputs(&inputs, |input| (input != value).then_some(input));
            self.set_inputs(reader, &inputs);
        }
    }

    /// Copies a graph to one without a parent, with the same names. Payloads are shared.
    pub fn copy_graph(&mut self, graph: GraphId) -> GraphId {
        Copying::for_caller().copy_graph(self, graph, None)
    }

    /// Adds an undefined value with a name that other graphs may use as well.
    pub fn add_named_value(&mut self, graph: GraphId, name: &str) -> ValueId {
        let name = self.intern(name);
        self.new_value(graph, name)
    }

    /// Whether an attribute refers to an attribute parameter without a default of the enclosing
    /// function, so that it has a value in some calls only.
    pub fn may_have_no_value(&self, node: NodeId, attribute: &Attribute) -> bool {
        let Some(reference) = attribute.ref_attr_name() else { return false };
        let mut root = self.node(node).graph;
        while let Some(parent) = self.graph(root).parent {
            root = parent;
        }
        let around = self.functions.iter().find(|function| function.body == root);
        let mut defaults = around.into_iter().flat_map(|around| &around.attribute_protos);
        !defaults.any(|default| default.name == Some(reference))
    }
}

/// Inputs of a node.
type Inputs = SmallVec<[Option<ValueId>; 6]>;

/// Replaces the inputs of a node, `None` for omitted ones. Removes trailing inputs that become
/// omitted.
fn replace_inputs(inputs: &Inputs, value: impl Fn(ValueId) -> Option<ValueId>) -> Inputs {
    let mut left: Inputs = inputs.iter().map(|input| value((*input)?)).collect();
    while left.last() == Some(&None) && inputs[left.len() - 1].is_some() {
        left.pop();
    }
    left
}

fn callee_body(model: &Model, function: usize) -> GraphId {
    model.functions[function].body
}

/// Finds an attribute with a default for which the call passes on an attribute that may have no
/// value. It is not certain then whether the default applies.
fn find_uncertain_default(model: &Model, callee: &Function, call: NodeId) -> Option<String> {
    let is_default = |name| callee.attribute_protos.iter().any(|found| found.name == Some(name));
    let mut given = model.attributes(call).iter().map(|id| model.attribute(*id));
    let open = given
        .find(|given| given.name.is_some_and(is_default) && model.may_have_no_value(call, given))?;
    Some(model.display(open.name).into_owned())
}

/// Collects the values of a function's attributes in a call, by name.
fn collect_attributes(
    model: &Model,
    callee: &Function,
    call: NodeId,
) -> HashMap<Symbol, (Attribute, Author)> {
    let named = |attribute: &Attribute, of| Some((attribute.name?, (attribute.clone(), of)));
    let defaults = callee.attribute_protos.iter();
    let mut attributes: HashMap<_, _> =
        defaults.filter_map(|default| named(default, Author::Default)).collect();
    let given = model.attributes(call).iter().map(|id| model.attribute(*id));
    attributes.extend(given.filter_map(|given| named(given, Author::Caller)));
    attributes
}

/// Origin of copied content, which determines the scope of dimension and attribute names in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Author {
    /// Body of the function.
    #[default]
    Body,
    /// Default of an attribute of the function. References from it to attributes that hold graphs
    /// are dropped, as they may be cyclic.
    Default,
    /// Caller: names belong to the graph around the call.
    Caller,
}

/// State of copying.
#[derive(Default)]
struct Copying {
    /// Copy of each copied value; `None` for an input that the call omits.
    values: HashMap<ValueId, Option<ValueId>>,
    /// Values of the function's attributes, by name.
    attributes: HashMap<Symbol, (Attribute, Author)>,
    /// Origin of the content that is being copied.
    author: Author,
    /// Outputs of the call that copies define.
    of_call: Vec<ValueId>,
    /// Prefix of names.
    prefix: String,
    /// Whether names are kept unchanged.
    keeps_names: bool,
    names: InnerNames,
    copied: Vec<Copied>,
}

impl Copying {
    /// Starts a plain copy: the same names, no replacements.
    fn for_caller() -> Copying {
        Copying { keeps_names: true, author: Author::Caller, ..Copying::default() }
    }

    /// Copies the nodes of the graph `from` into `to`, and returns the copies in `to`.
    fn copy_graph_nodes(&mut self, model: &mut Model, from: GraphId, to: GraphId) -> Vec<NodeId> {
        let nodes = model.graphs[from].nodes.clone();
        self.copy_nodes(model, &nodes, to)
    }

    /// Copies nodes into a graph.
    fn copy_nodes(&mut self, model: &mut Model, nodes: &[NodeId], to: GraphId) -> Vec<NodeId> {
        // All outputs exist before any inputs are set, so the nodes may be in any order.
        let copies: Vec<NodeId> =
            nodes.iter().map(|node| self.copy_node(model, *node, to)).collect();
        for (old, new) in nodes.iter().zip(&copies) {
            self.copied.push(Copied { node: *new, of: *old });
            let inputs: Inputs = model.inputs(*old).collect();
            inputs.iter().flatten().for_each(|value| self.keep_undefined(model, *value, to));
            let copies = replace_inputs(&inputs, |value| self.value(value));
            model.set_inputs(*new, &copies);
            self.update_devices(model, *old, *new);
            self.copy_attributes(model, *old, *new);
        }
        copies
    }

    /// Gives a value that the function does not define an undefined copy of its own: the graph
    /// around the call may define its name.
    fn keep_undefined(&mut self, model: &mut Model, value: ValueId, graph: GraphId) {
        let is_undefined = model.values[value].producer == Producer::Nothing;
        if is_undefined && self.author == Author::Body && !self.values.contains_key(&value) {
            self.define(model, value, graph, Producer::Nothing);
        }
    }

    /// Returns the value that a copy reads in place of `value`: itself if it is not copied.
    fn value(&self, value: ValueId) -> Option<ValueId> {
        self.values.get(&value).copied().unwrap_or(Some(value))
    }

    /// Copies a node with its outputs, but not its inputs.
    fn copy_node(&mut self, model: &mut Model, old: NodeId, graph: GraphId) -> NodeId {
        let id: NodeId = Id::new(model.nodes.len());
        let node = model.nodes[old];
        let start = model.output_lists.len() as u32;
        for (index, position) in node.outputs.indices().enumerate() {
            let producer = Producer::Node(id, index as u32);
            let output = model.output_lists[position];
            let output = output.map(|old| self.define(model, old, graph, producer));
            model.output_lists.push(output);
        }
        let extras = node.extras.map(|extras| {
            let extras = model.extras[extras].clone();
            model.extras.push(extras)
        });
        let name = node.name.filter(|name| !model.text(*name).is_empty());
        let name = name.map(|name| {
            if self.keeps_names {
                name
            } else {
                self.names.new_node_name(model, &self.prefix, name)
            }
        });
        let outputs = Range { start, len: node.outputs.len };
        let (inputs, attributes) = (Range::default(), Range::default());
        model.nodes.push(Node { name, graph, extras, inputs, outputs, attributes, ..node })
    }

    /// Defines the copy of a value.
    fn define(
        &mut self,
        model: &mut Model,
        old: ValueId,
        graph: GraphId,
        producer: Producer,
    ) -> ValueId {
        let (name, is_output) = (model.values[old].name, model.values[old].is_output);
        // An output of the function is an output of the call.
        let of_call = self.values.get(&old).copied().flatten().filter(|_| is_output);
        let of_call = of_call.filter(|of_call| model.values[*of_call].graph == graph);
        let new = of_call.unwrap_or_else(|| {
            let name = if self.keeps_names {
                name
            } else {
                self.names.new_value_name(model, &self.prefix, name)
            };
            model.new_value(graph, name)
        });
        model.values[new].producer = producer;
        self.values.insert(old, Some(new));
        new
    }

    fn copy_attributes(&mut self, model: &mut Model, old: NodeId, new: NodeId) {
        let ids = model.attributes(old).to_vec();
        let mut list = Vec::with_capacity(ids.len());
        for id in ids {
            let attribute = model.attributes[id].clone();
            let author = self.author;
            let reference = attribute.ref_attr_name().filter(|_| author != Author::Caller);
            let mut attribute = match reference {
                Some(name) => match self.attributes.get(&name) {
                    Some((given, _))
                        if author == Author::Default && given.graphs().next().is_some() =>
                    {
                        continue;
                    }
                    Some((given, of)) => {
                        self.author = *of;
                        Attribute { name: attribute.name, ..given.clone() }
                    }
                    None => continue,
                },
                None => attribute,
            };
            self.copy_graphs(model, &mut attribute, Some(new));
            self.author = author;
            list.push(model.attributes.push(attribute));
        }
        let start = model.attribute_lists.len() as u32;
        let len = list.len() as u32;
        model.attribute_lists.extend(list);
        model.nodes[new].attributes = Range { start, len };
    }

    /// Replaces the graphs of an attribute by copies.
    fn copy_graphs(&mut self, model: &mut Model, attribute: &mut Attribute, owner: Option<NodeId>) {
        for value in attribute.values.iter_mut() {
            match value {
                AttributeValue::Graph(graph) => *graph = self.copy_graph(model, *graph, owner),
                AttributeValue::Graphs(graphs) => {
                    for graph in graphs {
                        *graph = self.copy_graph(model, *graph, owner);
                    }
                }
                _ => {}
            }
        }
    }

    /// Copies a graph of a node or function.
    fn copy_graph(&mut self, model: &mut Model, old: GraphId, owner: Option<NodeId>) -> GraphId {
        let parent = owner.map(|owner| model.nodes[owner].graph);
        let id = model.graphs.push(Graph { owner, parent, ..Graph::default() });
        let mut graph = model.graphs[old].clone();
        (graph.owner, graph.parent) = (owner, parent);
        for (index, info) in graph.inputs.iter_mut().enumerate() {
            self.update_info(model, info, id, Some(Producer::Input(index as u32)));
        }
        // A constant that is an input as well shares the input's value.
        let own =
            |copying: &mut Self, model: &mut Model, value: ValueId, producer: Producer| match model
                .values[value]
                .producer
            {
                Producer::Input(_) => copying.values[&value],
                _ => Some(copying.define(model, value, id, producer)),
            };
        for (index, found) in graph.initializers.iter_mut().enumerate() {
            let producer = Producer::Initializer(index as u32);
            found.value = found.value.and_then(|value| own(self, model, value, producer));
            found.tensor.name = found.value.map(|value| model.values[value].name);
        }
        for (index, found) in graph.sparse_initializers.iter_mut().enumerate() {
            let producer = Producer::SparseInitializer(index as u32);
            found.value = found.value.and_then(|value| own(self, model, value, producer));
            if let Some(values) = &mut found.tensor.values {
                values.name = found.value.map(|value| model.values[value].name);
            }
        }
        graph.nodes = self.copy_graph_nodes(model, old, id);
        for info in graph.outputs.iter_mut().chain(&mut graph.value_info) {
            self.update_info(model, info, id, None);
        }
        graph.value_info.retain(|info| info.value.is_some());
        self.update_annotations(model, &mut graph);
        for value in graph.outputs.iter().filter_map(|info| info.value) {
            model.values[value].is_output = true;
        }
        model.graphs[id] = graph;
        id
    }

    /// Updates a value info to the copy of its value, which is defined here if it is an input.
    fn update_info(
        &mut self,
        model: &mut Model,
        info: &mut ValueInfo,
        graph: GraphId,
        defines: Option<Producer>,
    ) {
        // A name without a value in the graph stays.
        if let Some(value) = info.value {
            info.value = match defines {
                Some(producer) => Some(self.define(model, value, graph, producer)),
                None => self.value(value),
            };
            info.name = info.value.map(|value| model.values[value].name);
        }
        if let Some(ty) = info.ty.as_mut().filter(|_| self.author != Author::Caller) {
            forget_names(model, ty);
        }
    }
}

impl Copying {
    /// Collects the function's declared types for the copies of values.
    fn collect_declared(&self, model: &Model, from: GraphId) -> Vec<ValueInfo> {
        let infos = model.graphs[from].value_info.clone();
        let is_made = |value| matches!(model.values[value].producer, Producer::Node(..));
        let mut infos: Vec<ValueInfo> =
            infos.into_iter().filter(|info| info.value.is_some_and(is_made)).collect();
        infos.retain_mut(|info| {
            info.value = info.value.and_then(|value| self.value(value));
            info.name = info.value.map(|value| model.values[value].name);
            if let Some(ty) = &mut info.ty {
                forget_names(model, ty);
            }
            info.value.is_some_and(|value| !self.of_call.contains(&value))
        });
        infos
    }

    /// Whether the output `wanted` of the call must keep its name, although it equals `other`.
    fn is_name_needed(&self, model: &Model, wanted: ValueId, other: ValueId) -> bool {
        let found = &model.values[wanted];
        if found.is_output {
            return true;
        }
        let annotations = &model.graphs[found.graph].quantization_annotation;
        let is_annotated = annotations.iter().any(|annotation| {
            let parameters = &annotation.quant_parameter_tensor_names;
            annotation.tensor_name == Some(found.name)
                || parameters.iter().any(|entry| entry.value == Some(found.name))
        });
        // An inner graph may use `other`'s name for a value of its own.
        let is_shared = self.names.is_shared(model.values[other].name);
        is_annotated
            || model.uses(wanted).any(|(reader, _)| {
                let says_of_devices =
                    |extras: &NodeExtras| !extras.device_configurations.is_empty();
                model.extras(reader).is_some_and(says_of_devices)
                    || is_shared && model.node(reader).graph != found.graph
            })
    }

    /// Updates the quantization annotations of a copied graph to the copies.
    fn update_annotations(&self, model: &Model, graph: &mut Graph) {
        if graph.quantization_annotation.is_empty() {
            return;
        }
        let names: HashMap<Symbol, Option<Symbol>> = self
            .values
            .iter()
            .map(|(old, new)| (model.values[*old].name, new.map(|new| model.values[new].name)))
            .collect();
        let renamed = |name: Symbol| names.get(&name).copied().unwrap_or(Some(name));
        graph.quantization_annotation.retain_mut(|annotation| {
            annotation.tensor_name = annotation.tensor_name.and_then(renamed);
            annotation.quant_parameter_tensor_names.retain_mut(|entry| {
                entry.value = entry.value.and_then(renamed);
                entry.value.is_some()
            });
            annotation.tensor_name.is_some()
        });
    }

    /// Updates the device configurations of a copied node to the copies of its operands.
    fn update_devices(&self, model: &mut Model, old: NodeId, new: NodeId) {
        let spans = model.extras(new).map(|extras| extras.device_configurations.clone());
        let Some(spans) = spans.filter(|spans| !spans.is_empty()) else {
            return;
        };
        let name = |value: ValueId| model.text(model.values[value].name);
        let operands = model.inputs(old).chain(model.outputs(old).iter().copied()).flatten();
        let names: HashMap<&[u8], Option<&[u8]>> =
            operands.map(|old| (name(old), self.value(old).map(name))).collect();
        let messages = spans.iter().map(|span| {
            let mut devices = NodeDevices::read(model.bytes(*span));
            devices.rename(|tensor| match names.get(tensor) {
                Some(copy) => copy.map(<[u8]>::to_vec),
                None => Some(tensor.to_vec()),
            });
            devices.to_bytes()
        });
        let messages = messages.collect();
        drop(names);
        set_messages(model, new, messages);
    }

    /// Adds the device configurations of the call to the copies.
    fn share_devices(&self, model: &mut Model, call: NodeId) {
        let spans = model.extras(call).map(|extras| extras.device_configurations.clone());
        let Some(spans) = spans.filter(|spans| !spans.is_empty()) else {
            return;
        };
        for copied in &self.copied {
            give_devices(model, &spans, copied.node);
        }
    }
}

/// Removes the names of dimensions. Texts that name no size stay.
fn forget_names(model: &Model, ty: &mut TypeProto) {
    let dims = ty.innermost_shape_mut().into_iter().flat_map(|shape| &mut shape.dims);
    for dim in dims {
        if matches!(dim.value, Some(DimValue::Param(name)) if Dim::is_name(model.text(name))) {
            dim.value = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use sardonyx_tensor::Buffer;

    use super::*;
    use crate::attribute_values::{AttrValue, Attributes, NodeAttributes};
    use crate::made::MadeNodes;

    /// Builds a model with a main graph and a function `F <k> (a, b) => (s, t, a)`, where `s = Add
    /// (a, b)` with the attribute `k = @k`, and `t` is an `If` with the branch `u = Mul (b, s)`.
    fn model() -> Model {
        let mut model = Model::read(Buffer::from_vec(vec![0x3a, 0])).expect("an empty graph");
        let graph = |model: &mut Model| model.graphs.push(Graph::default());
        let body = graph(&mut model);
        let info = |model: &mut Model, graph: GraphId, name: &str| {
            let value = model.add_value(graph, name);
            ValueInfo {
                name: Some(model.values[value].name),
                value: Some(value),
                ..Default::default()
            }
        };
        for (index, name) in ["a", "b"].into_iter().enumerate() {
            let input = info(&mut model, body, name);
            let value = input.value.expect("a value");
            model.values[value].producer = Producer::Input(index as u32);
            model.graphs[body].inputs.push(input);
        }
        let inputs: Vec<_> = model.graphs[body].inputs.iter().map(|info| info.value).collect();
        let add = model.add_node(body, "Add", "", &inputs, 1);
        let k = model.intern("k");
        model.set_attribute(add, "k", 0);
        let of_add = model.attributes(add)[0];
        let attribute = model.attribute_mut(of_add);
        attribute.values = Default::default();
        attribute.set_ref_attr_name(k, b"k");
        let sum = model.outputs(add)[0];
        let branch = model.add_node(body, "If", "", &[sum], 1);
        let inner = graph(&mut model);
        (model.graphs[inner].owner, model.graphs[inner].parent) = (Some(branch), Some(body));
        let mul = model.add_node(inner, "Mul", "", &[inputs[1], sum], 1);
        let as_output = |model: &mut Model, value: Option<ValueId>| {
            let value = value.expect("a value");
            model.values[value].is_output = true;
            let name = Some(model.values[value].name);
            ValueInfo { name, value: Some(value), ..Default::default() }
        };
        let product = model.outputs(mul)[0];
        let output = as_output(&mut model, product);
        model.graphs[inner].outputs.push(output);
        model.set_attribute(branch, "then_branch", AttrValue::Graph(inner));
        for value in [sum, model.outputs(branch)[0], inputs[0]] {
            let output = as_output(&mut model, value);
            model.graphs[body].outputs.push(output);
        }
        let name = Some(model.intern("F"));
        model.functions.push(Function {
            name,
            domain: None,
            overload: None,
            doc_string: None,
            attributes: vec![k],
            attribute_protos: Vec::new(),
            opset_import: Vec::new(),
            body,
            metadata_props: Vec::new(),
            unknown: Default::default(),
        });
        model
    }

    /// Calls the function in the main graph and inlines the call.
    fn inline(
        model: &mut Model,
        inputs: usize,
        outputs: usize,
        k: Option<i64>,
    ) -> Result<Vec<NodeId>, InlineError> {
        let main = model.main.expect("the main graph");
        let given: Vec<_> = (0..inputs).map(|_| Some(model.add_value(main, "x"))).collect();
        let call = model.add_node(main, "F", "", &given, outputs);
        if let Some(k) = k {
            model.set_attribute(call, "k", k);
        }
        let made_by_call = model.outputs(call).to_vec();
        let mut made = MadeNodes::default();
        let inlined = NodeBuilder::new(model, &mut made, call).inline(0)?;
        made.place(model);
        let nodes = model.graph(main).nodes.clone();
        let is_there = |value: &ValueId| !inlined.redirected.contains(value);
        for (index, value) in made_by_call.into_iter().flatten().filter(is_there).enumerate() {
            let Producer::Node(maker, _) = model.value(value).producer else {
                panic!("output {index} is made");
            };
            assert!(nodes.contains(&maker));
            assert_eq!(made.origin(maker), call);
        }
        Ok(nodes)
    }

    fn text(model: &Model, nodes: &[NodeId]) -> String {
        let value = |value: Option<ValueId>| {
            let name = value.map(|value| model.display(Some(model.value(value).name)));
            name.map_or("_".into(), |name| name.split("__").next().unwrap_or_default().to_string())
        };
        let names = |values: &[Option<ValueId>]| {
            values.iter().map(|v| value(*v)).collect::<Vec<_>>().join(", ")
        };
        let node = |node: &NodeId| {
            let op = model.display(model.node(*node).op_type);
            let inputs: Vec<_> = model.inputs(*node).collect();
            format!("{} = {op}({})", names(model.outputs(*node)), names(&inputs))
        };
        nodes.iter().map(node).collect::<Vec<_>>().join("; ")
    }

    #[test]
    fn a_call_becomes_the_nodes_of_the_body() {
        let mut model = model();
        let nodes = inline(&mut model, 2, 3, Some(7)).expect("it fits");
        assert_eq!(text(&model, &nodes), "F = Add(x, x); F = If(F)");
        assert_eq!(NodeAttributes::new(&model, nodes[0]).int("k"), Some(7));
        // The graph of the copied node reads the copies.
        let Some(AttrValue::Graph(inner)) =
            NodeAttributes::new(&model, nodes[1]).attribute("then_branch")
        else {
            panic!("the copy has a graph");
        };
        let graph = model.graph(inner).clone();
        assert_eq!((graph.owner, graph.parent), (Some(nodes[1]), model.main));
        assert_eq!(text(&model, &graph.nodes), "F/Mul = Mul(x, F)");
        let product = graph.outputs[0].value.expect("a value");
        assert_eq!(model.outputs(graph.nodes[0]), [Some(product)]);
        assert!(model.value(product).is_output);
        assert_eq!(Some(model.value(product).name), graph.outputs[0].name);
    }

    #[test]
    fn omitted_inputs_stay_omitted() {
        let mut model = model();
        let nodes = inline(&mut model, 1, 1, None).expect("it fits");
        assert_eq!(text(&model, &nodes), "F = Add(x); F/If = If(F)");
        assert!(model.attributes(nodes[0]).is_empty(), "the reference has no value");
    }

    #[test]
    fn a_call_that_does_not_fit_stays() {
        let mut model = model();
        let before = model.node_count();
        let refused = [(3, 1), (1, 4), (0, 3)]
            .map(|(inputs, outputs)| inline(&mut model, inputs, outputs, None).unwrap_err());
        let expected = [
            InlineError::TooManyInputs { given: 3, formal: 2 },
            InlineError::TooManyOutputs { taken: 4, formal: 3 },
            InlineError::NoOutput { index: 2 },
        ];
        assert_eq!(refused, expected);
        assert_eq!(model.node_count(), before + 3, "the calls alone");
    }

    /// Checks that nodes in graphs that a call passes on are copied and that the originals lose
    /// their inputs.
    #[test]
    fn an_inlined_node_reads_nothing() {
        let mut model = model();
        let main = model.main.expect("the main graph");
        let x = model.add_value(main, "x");
        let call = model.add_node(main, "F", "", &[Some(x)], 1);
        let inner =
            model.graphs.push(Graph { owner: Some(call), parent: Some(main), ..Graph::default() });
        model.add_node(inner, "Neg", "", &[Some(x)], 1);
        model.set_attribute(call, "g", AttrValue::Graph(inner));
        let mut made = MadeNodes::default();
        NodeBuilder::new(&mut model, &mut made, call).inline(0).expect("it fits");
        let readers: Vec<_> = model.uses(x).map(|(node, _)| model.node(node).op_type).collect();
        assert_eq!(readers.iter().map(|op| model.display(*op)).collect::<Vec<_>>(), ["Add"]);
    }
}

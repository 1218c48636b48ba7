//! The model and what it is made of.

use std::borrow::Cow;
use std::collections::HashMap;

use sardonyx_tensor::Buffer;

use crate::attribute::Attribute;
use crate::constant::{SparseTensorProto, TensorProto};
use crate::domain::normalize_domain;
use crate::ids::{Arena, AttributeId, ExtrasId, GraphId, NodeId, SourceId, UseId, ValueId};
use crate::names::{Names, Near, Symbol};
use crate::source::{Span, Unknowns};
use crate::type_proto::TypeProto;

/// A model in memory. Cloning copies the structure and shares all payloads.
#[derive(Debug, Clone, Default)]
pub struct Model {
    /// Everything about the model that is not its graph.
    pub header: Header,
    /// The main graph.
    pub main: Option<GraphId>,
    /// Model-local functions.
    pub functions: Vec<Function>,
    /// Training steps.
    pub training_info: Vec<TrainingInfo>,
    pub(crate) sources: Arena<SourceId, Buffer>,
    pub(crate) names: Names,
    pub(crate) graphs: Arena<GraphId, Graph>,
    pub(crate) nodes: Arena<NodeId, Node>,
    pub(crate) values: Arena<ValueId, Value>,
    pub(crate) attributes: Arena<AttributeId, Attribute>,
    pub(crate) uses: Arena<UseId, Use>,
    /// Lists of node outputs, of which each node has a range.
    pub(crate) output_lists: Vec<Option<ValueId>>,
    /// Lists of node attributes, of which each node has a range.
    pub(crate) attribute_lists: Vec<AttributeId>,
    pub(crate) extras: Arena<ExtrasId, NodeExtras>,
}

/// The fields of a model outside its graph.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Header {
    /// Version of the format.
    pub ir_version: Option<i64>,
    /// Operator sets and their versions.
    pub opset_import: Vec<OperatorSetId>,
    /// Tool that made the model.
    pub producer_name: Option<Symbol>,
    /// Version of that tool.
    pub producer_version: Option<Symbol>,
    /// Name space of the model, reverse DNS.
    pub domain: Option<Symbol>,
    /// Version of the model itself.
    pub model_version: Option<i64>,
    /// Documentation.
    pub doc_string: Option<Symbol>,
    /// Named texts.
    pub metadata_props: Vec<Entry>,
    /// Device configurations, each as the bytes of its message.
    pub configuration: Vec<Span>,
    /// Fields of the future.
    pub unknown: Unknowns,
}

/// An operator set with its version.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct OperatorSetId {
    /// Domain; absent or empty for `ai.onnx`.
    pub domain: Option<Symbol>,
    /// Version.
    pub version: Option<i64>,
    /// Fields of the future.
    pub unknown: Unknowns,
}

/// A key with a value.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Entry {
    /// Key.
    pub key: Option<Symbol>,
    /// Value.
    pub value: Option<Symbol>,
    /// Fields of the future.
    pub unknown: Unknowns,
}

/// A list of nodes with its inputs and outputs: a graph, or the body of a function.
#[derive(Debug, Clone, Default)]
pub struct Graph {
    /// Name.
    pub name: Option<Symbol>,
    /// Documentation.
    pub doc_string: Option<Symbol>,
    /// Nodes in the order of the file.
    pub nodes: Vec<NodeId>,
    /// Inputs.
    pub inputs: Vec<ValueInfo>,
    /// Outputs.
    pub outputs: Vec<ValueInfo>,
    /// Types of values in between.
    pub value_info: Vec<ValueInfo>,
    /// Constants.
    pub initializers: Vec<Initializer>,
    /// Sparse constants.
    pub sparse_initializers: Vec<SparseInitializer>,
    /// Which tensors scale and shift which.
    pub quantization_annotation: Vec<TensorAnnotation>,
    /// Named texts.
    pub metadata_props: Vec<Entry>,
    /// The node whose attribute holds this graph; `None` for the main graph and bodies of
    /// functions.
    pub owner: Option<NodeId>,
    /// The graph whose values this one sees.
    pub parent: Option<GraphId>,
    /// Fields of the future.
    pub unknown: Unknowns,
}

/// A call of an operator or function.
// Models have many: plain data, and no more than needed.
#[derive(Debug, Clone, Copy)]
pub struct Node {
    /// Name.
    pub name: Option<Symbol>,
    /// Operator or function.
    pub op_type: Option<Symbol>,
    /// Its domain; absent or empty for `ai.onnx`.
    pub domain: Option<Symbol>,
    /// Which of several functions of that name.
    pub overload: Option<Symbol>,
    /// The graph it stands in.
    pub graph: GraphId,
    pub(crate) extras: Option<ExtrasId>,
    pub(crate) inputs: Range,
    pub(crate) outputs: Range,
    pub(crate) attributes: Range,
}

impl Node {
    /// A node of a graph without anything.
    pub(crate) fn new(graph: GraphId) -> Node {
        Node {
            name: None,
            op_type: None,
            domain: None,
            overload: None,
            graph,
            extras: None,
            inputs: Range::default(),
            outputs: Range::default(),
            attributes: Range::default(),
        }
    }
}

/// What few nodes have.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct NodeExtras {
    /// Documentation.
    pub doc_string: Option<Symbol>,
    /// Named texts.
    pub metadata_props: Vec<Entry>,
    /// Device annotations, each as the bytes of its message.
    pub device_configurations: Vec<Span>,
    /// Fields of the future.
    pub unknown: Unknowns,
}

/// A part of one of the model's lists.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Range {
    pub(crate) start: u32,
    pub(crate) len: u32,
}

impl Range {
    /// One that begins at the end of a list and grows with it.
    pub(crate) fn empty(start: u32) -> Range {
        Range { start, len: 0 }
    }

    pub(crate) fn indices(self) -> std::ops::Range<usize> {
        self.start as usize..self.start as usize + self.len as usize
    }
}

/// A value of a graph.
#[derive(Debug, Clone)]
pub struct Value {
    /// Name.
    pub name: Symbol,
    /// The graph it belongs to.
    pub graph: GraphId,
    /// Where it comes from.
    pub producer: Producer,
    /// Whether the graph gives it back.
    pub is_output: bool,
    pub(crate) first_use: Option<UseId>,
}

/// Where a value comes from. An initializer that is also an input counts as an input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Producer {
    /// Nothing defines the name.
    Nothing,
    /// The graph's input at this position.
    Input(u32),
    /// The graph's initializer at this position.
    Initializer(u32),
    /// The graph's sparse initializer at this position.
    SparseInitializer(u32),
    /// An output of a node.
    Node(NodeId, u32),
}

/// An input position of a node.
#[derive(Debug, Clone, Copy)]
pub struct Use {
    /// What is read there; `None` for an input left out.
    pub value: Option<ValueId>,
    /// Who reads it.
    pub node: NodeId,
    /// Neighbours in the list of all uses of the value.
    pub(crate) next: Option<UseId>,
    pub(crate) previous: Option<UseId>,
}

/// Name, type and documentation of a value.
#[derive(Debug, Clone, Default)]
pub struct ValueInfo {
    /// Name.
    pub name: Option<Symbol>,
    /// The value of that name.
    pub value: Option<ValueId>,
    /// Declared type.
    pub ty: Option<TypeProto>,
    /// Documentation.
    pub doc_string: Option<Symbol>,
    /// Named texts.
    pub metadata_props: Vec<Entry>,
    /// Fields of the future.
    pub unknown: Unknowns,
}

/// A constant of a graph.
#[derive(Debug, Clone)]
pub struct Initializer {
    /// The value it gives.
    pub value: Option<ValueId>,
    /// Its content.
    pub tensor: TensorProto,
}

/// A sparse constant of a graph.
#[derive(Debug, Clone)]
pub struct SparseInitializer {
    /// The value it gives; its name is that of the tensor of values.
    pub value: Option<ValueId>,
    /// Its content.
    pub tensor: SparseTensorProto,
}

/// Which tensors hold scale and zero point of another.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct TensorAnnotation {
    /// The annotated tensor.
    pub tensor_name: Option<Symbol>,
    /// `SCALE_TENSOR`, `ZERO_POINT_TENSOR`, each with a name.
    pub quant_parameter_tensor_names: Vec<Entry>,
    /// Fields of the future.
    pub unknown: Unknowns,
}

/// A model-local function.
#[derive(Debug, Clone)]
pub struct Function {
    /// Name.
    pub name: Option<Symbol>,
    /// Domain.
    pub domain: Option<Symbol>,
    /// Which of several of that name.
    pub overload: Option<Symbol>,
    /// Documentation.
    pub doc_string: Option<Symbol>,
    /// Parameters without default.
    pub attributes: Vec<Symbol>,
    /// Parameters with default.
    pub attribute_protos: Vec<Attribute>,
    /// Operator sets of the body.
    pub opset_import: Vec<OperatorSetId>,
    /// Inputs, outputs, nodes and types of values.
    pub body: GraphId,
    /// Named texts.
    pub metadata_props: Vec<Entry>,
    /// Fields of the future.
    pub unknown: Unknowns,
}

/// A training step.
#[derive(Debug, Clone, Default)]
pub struct TrainingInfo {
    /// Gives the state its first values.
    pub initialization: Option<GraphId>,
    /// One step.
    pub algorithm: Option<GraphId>,
    /// Which output of `initialization` goes into which initializer.
    pub initialization_binding: Vec<Entry>,
    /// Which output of a step goes into which initializer.
    pub update_binding: Vec<Entry>,
    /// Fields of the future.
    pub unknown: Unknowns,
}

/// Interned texts of a model.
#[derive(Debug, Clone, Copy)]
pub struct Texts<'m> {
    model: &'m Model,
    near: Near<'m>,
}

impl<'m> Texts<'m> {
    /// Interned text.
    #[inline]
    pub fn text(self, symbol: Symbol) -> &'m [u8] {
        let Model { names, sources, .. } = self.model;
        names.text_near(symbol, self.near, sources)
    }

    /// The attribute of a node with a name.
    pub fn attribute_of(self, node: NodeId, name: &str) -> Option<&'m Attribute> {
        let attributes = self.model.attributes(node).iter();
        attributes.map(|id| self.model.attribute(*id)).find(|attribute| {
            let found = attribute.name.map(|name| self.text(name));
            found == Some(name.as_bytes())
        })
    }
}

impl Model {
    /// The main graph, if the model has one.
    pub fn main_graph(&self) -> Option<&Graph> {
        self.main.map(|graph| &self.graphs[graph])
    }

    /// A graph.
    #[inline]
    pub fn graph(&self, id: GraphId) -> &Graph {
        &self.graphs[id]
    }

    /// All graphs.
    pub fn graphs(&self) -> impl Iterator<Item = (GraphId, &Graph)> {
        self.graphs.iter()
    }

    /// A node.
    #[inline]
    pub fn node(&self, id: NodeId) -> &Node {
        &self.nodes[id]
    }

    /// A value.
    #[inline]
    pub fn value(&self, id: ValueId) -> &Value {
        &self.values[id]
    }

    /// How many nodes the model has, in all graphs: the bound of [`NodeId`]'s index.
    pub fn node_count(&self) -> usize {
        self.nodes.len()
    }

    /// How many nodes there are, with all that they read, make and have as attributes, and declared
    /// values.
    pub fn part_count(&self) -> usize {
        let lists = |graph: &Graph| {
            graph.inputs.len()
                + graph.outputs.len()
                + graph.value_info.len()
                + graph.initializers.len()
        };
        let declared: usize = self.graphs.iter().map(|(_, graph)| lists(graph)).sum();
        let of_nodes = self.uses.len() + self.output_lists.len() + self.attribute_lists.len();
        self.nodes.len() + of_nodes + declared
    }

    /// How many different texts the model has: the bound of [`Symbol`]'s index.
    pub fn symbol_count(&self) -> usize {
        self.names.len()
    }

    /// All texts of the model that are names, documentation, keys or values, each once.
    pub fn all_texts(&self) -> impl Iterator<Item = &[u8]> {
        let near = self.names.near(&self.sources);
        let symbols = (0..self.names.len()).map(crate::ids::Id::new);
        symbols.map(move |symbol| self.names.text_near(symbol, near, &self.sources))
    }

    /// All values with their ids, in all graphs.
    pub fn values(&self) -> impl Iterator<Item = (ValueId, &Value)> {
        self.values.iter()
    }

    /// How many values the model has, in all graphs: the bound of [`ValueId`]'s index.
    pub fn value_count(&self) -> usize {
        self.values.len()
    }

    /// An attribute.
    #[inline]
    pub fn attribute(&self, id: AttributeId) -> &Attribute {
        &self.attributes[id]
    }

    /// The attributes of all nodes, in no particular order, also those that edits have left over.
    pub fn all_attributes(&self) -> impl Iterator<Item = &Attribute> {
        self.attributes.iter().map(|(_, attribute)| attribute)
    }

    /// The attribute of a node with a name.
    pub fn attribute_of(&self, node: NodeId, name: &str) -> Option<&Attribute> {
        self.texts().attribute_of(node, name)
    }

    /// The attributes of a node, in the order of the file.
    #[inline]
    pub fn attributes(&self, node: NodeId) -> &[AttributeId] {
        &self.attribute_lists[self.nodes[node].attributes.indices()]
    }

    /// Whether there may be nodes with [`extras`](Self::extras).
    pub fn has_extras(&self) -> bool {
        !self.extras.is_empty()
    }

    /// What few nodes have.
    #[inline]
    pub fn extras(&self, node: NodeId) -> Option<&NodeExtras> {
        Some(&self.extras[self.nodes[node].extras?])
    }

    /// What a node reads; `None` where an input is left out.
    #[inline]
    pub fn inputs(
        &self,
        node: NodeId,
    ) -> impl ExactSizeIterator<Item = Option<ValueId>> + DoubleEndedIterator + '_ {
        let uses = self.use_ids(node);
        uses.map(|id| self.uses[id].value)
    }

    /// What a node produces; `None` where an output is left out.
    #[inline]
    pub fn outputs(&self, node: NodeId) -> &[Option<ValueId>] {
        &self.output_lists[self.nodes[node].outputs.indices()]
    }

    /// Who reads a value, and at which input position.
    #[inline]
    pub fn uses(&self, value: ValueId) -> impl Iterator<Item = (NodeId, usize)> + '_ {
        let mut next = self.values[value].first_use;
        std::iter::from_fn(move || {
            let id = next?;
            let used = &self.uses[id];
            next = used.next;
            let index = crate::ids::Id::index(id) - self.nodes[used.node].inputs.start as usize;
            Some((used.node, index))
        })
    }

    /// Whether a node reads a value or the graph gives it back.
    #[inline]
    pub fn is_read(&self, value: ValueId) -> bool {
        let value = &self.values[value];
        value.is_output || value.first_use.is_some()
    }

    #[inline]
    pub(crate) fn use_ids(
        &self,
        node: NodeId,
    ) -> impl ExactSizeIterator<Item = UseId> + DoubleEndedIterator + use<> {
        self.nodes[node].inputs.indices().map(crate::ids::Id::new)
    }

    /// The constant behind a value, if it is an initializer that no input overrides.
    pub fn initializer(&self, value: ValueId) -> Option<&Initializer> {
        let Value { graph, producer: Producer::Initializer(index), .. } = self.values[value] else {
            return None;
        };
        self.graphs[graph].initializers.get(index as usize)
    }

    /// Interned text.
    pub fn text(&self, symbol: Symbol) -> &[u8] {
        self.names.text(symbol, &self.sources)
    }

    /// A way to [`text`](Self::text) for who asks for many of them.
    pub fn texts(&self) -> Texts<'_> {
        Texts { model: self, near: self.names.near(&self.sources) }
    }

    /// Interned text that may be absent.
    pub fn maybe_text(&self, symbol: Option<Symbol>) -> Option<&[u8]> {
        symbol.map(|symbol| self.text(symbol))
    }

    /// Whether a text is absent or empty.
    pub fn is_blank(&self, symbol: Option<Symbol>) -> bool {
        self.maybe_text(symbol).is_none_or(<[u8]>::is_empty)
    }

    /// Interned text for people: empty if absent, replacement characters where it is not UTF-8.
    pub fn display(&self, symbol: Option<Symbol>) -> Cow<'_, str> {
        String::from_utf8_lossy(self.maybe_text(symbol).unwrap_or_default())
    }

    /// The symbol of a text, if the model has it.
    pub fn symbol(&self, text: &[u8]) -> Option<Symbol> {
        self.names.find(text, &self.sources)
    }

    /// The bytes of a span.
    pub fn bytes(&self, span: Span) -> &[u8] {
        &self.sources[span.source].as_slice()[span.offset as usize..][..span.len as usize]
    }

    /// All bytes of a source.
    pub fn source(&self, id: SourceId) -> &[u8] {
        self.sources[id].as_slice()
    }

    /// The bytes of a span, sharing the source.
    pub fn buffer(&self, span: Span) -> Buffer {
        let range = span.offset as usize..(span.offset + span.len) as usize;
        self.sources[span.source].slice(range).expect("a span lies in its source")
    }

    /// The domain of a node as the registry writes it: `ai.onnx` is empty.
    pub fn domain_of(&self, node: NodeId) -> Cow<'_, str> {
        normal_domain(self.display(self.nodes[node].domain))
    }

    /// The versions of all operator sets that the model imports, by domain as the registry writes
    /// it. The same as [`opset`](Model::opset), for whoever asks more than a few times.
    pub fn opsets(&self) -> HashMap<Cow<'_, str>, i64> {
        self.opsets_in(&self.header.opset_import)
    }

    /// The same among the imports of a function.
    pub fn opsets_in<'m>(&'m self, imports: &'m [OperatorSetId]) -> HashMap<Cow<'m, str>, i64> {
        let effective = self.effective_imports(imports);
        let mut versions: HashMap<Cow<'_, str>, i64> = effective
            .into_iter()
            .map(|(domain, import)| (domain, import.version.unwrap_or(0)))
            .collect();
        if let Some(version) = self.implied_opset(imports) {
            versions.insert("".into(), version);
        }
        versions
    }

    /// The import of each domain that counts: the last one.
    pub(crate) fn effective_imports<'m>(
        &'m self,
        imports: &'m [OperatorSetId],
    ) -> HashMap<Cow<'m, str>, &'m OperatorSetId> {
        let mut effective = HashMap::new();
        let mut last = None;
        for import in imports.iter().rev() {
            // Usually all are different; if there are many, most of them are the same.
            if last != Some(import.domain) {
                let domain = normal_domain(self.display(import.domain));
                effective.entry(domain).or_insert(import);
                last = Some(import.domain);
            }
        }
        effective
    }

    /// The version of an operator set that the model imports. The last entry of a domain counts.
    pub fn opset(&self, domain: &str) -> Option<i64> {
        self.opset_in(&self.header.opset_import, domain)
    }

    /// The version of an operator set among imports.
    pub fn opset_in(&self, imports: &[OperatorSetId], domain: &str) -> Option<i64> {
        let domain = normal_domain(domain.into());
        let import = imports
            .iter()
            .rev()
            .find(|import| normal_domain(self.display(import.domain)) == domain);
        match import {
            Some(import) => Some(import.version.unwrap_or(0)),
            None if domain.is_empty() => self.implied_opset(imports),
            None => None,
        }
    }

    /// Before IR version 3 a model could not say which version of `ai.onnx` it uses; version 1 is
    /// meant.
    fn implied_opset(&self, imports: &[OperatorSetId]) -> Option<i64> {
        (imports.is_empty() && self.header.ir_version.unwrap_or(0) < 3).then_some(1)
    }
}

/// Like [`normalize_domain`], but keeps a domain that is normal.
fn normal_domain(domain: Cow<'_, str>) -> Cow<'_, str> {
    if normalize_domain(&domain).is_empty() { Cow::Borrowed("") } else { domain }
}

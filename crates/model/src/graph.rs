//! The model, its graphs, nodes and values.

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
    /// Fields of the model outside its main graph.
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
    /// Lists of node outputs; each node owns a range.
    pub(crate) output_lists: Vec<Option<ValueId>>,
    /// Lists of node attributes; each node owns a range.
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
    /// Metadata, as keys and values.
    pub metadata_props: Vec<Entry>,
    /// Device configurations, each as the bytes of its message.
    pub configuration: Vec<Span>,
    /// Fields of newer format versions.
    pub unknown: Unknowns,
}

/// An operator set with its version.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct OperatorSetId {
    /// Domain; absent or empty for `ai.onnx`.
    pub domain: Option<Symbol>,
    /// Version.
    pub version: Option<i64>,
    /// Fields of newer format versions.
    pub unknown: Unknowns,
}

/// A key with a value.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Entry {
    /// Key.
    pub key: Option<Symbol>,
    /// Value.
    pub value: Option<Symbol>,
    /// Fields of newer format versions.
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
    /// Declared types of intermediate values.
    pub value_info: Vec<ValueInfo>,
    /// Constants, or defaults of inputs.
    pub initializers: Vec<Initializer>,
    /// Sparse constants.
    pub sparse_initializers: Vec<SparseInitializer>,
    /// Quantization parameters of values.
    pub quantization_annotation: Vec<TensorAnnotation>,
    /// Metadata, as keys and values.
    pub metadata_props: Vec<Entry>,
    /// Node whose attribute holds this graph; `None` for the main graph, bodies of functions and
    /// graphs of training steps.
    pub owner: Option<NodeId>,
    /// Enclosing graph, whose values this graph sees.
    pub parent: Option<GraphId>,
    /// Fields of newer format versions.
    pub unknown: Unknowns,
}

/// Call of an operator or function.
// Models have many nodes, so this is small and `Copy`.
#[derive(Debug, Clone, Copy)]
pub struct Node {
    /// Name.
    pub name: Option<Symbol>,
    /// Operator or function.
    pub op_type: Option<Symbol>,
    /// Domain of the operator; absent or empty for `ai.onnx`.
    pub domain: Option<Symbol>,
    /// Overload, which selects one of several functions with the same name.
    pub overload: Option<Symbol>,
    /// Graph that contains the node.
    pub graph: GraphId,
    pub(crate) extras: Option<ExtrasId>,
    pub(crate) inputs: Range,
    pub(crate) outputs: Range,
    pub(crate) attributes: Range,
}

impl Node {
    /// Creates a node without inputs, outputs and attributes.
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

/// Fields that few nodes have.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct NodeExtras {
    /// Documentation.
    pub doc_string: Option<Symbol>,
    /// Metadata, as keys and values.
    pub metadata_props: Vec<Entry>,
    /// Device annotations, each as the bytes of its message.
    pub device_configurations: Vec<Span>,
    /// Fields of newer format versions.
    pub unknown: Unknowns,
}

/// Range of one of the model's lists.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Range {
    pub(crate) start: u32,
    pub(crate) len: u32,
}

impl Range {
    /// Creates an empty range at `start`, the end of a list, that grows with the list.
    pub(crate) fn empty(start: u32) -> Range {
        Range { start, len: 0 }
    }

    pub(crate) fn indices(self) -> std::ops::Range<usize> {
        self.start as usize..self.start as usize + self.len as usize
    }
}

/// Value of a graph.
#[derive(Debug, Clone)]
pub struct Value {
    /// Name.
    pub name: Symbol,
    /// Graph that defines the value.
    pub graph: GraphId,
    /// Definition of the value.
    pub producer: Producer,
    /// Whether the value is an output of its graph.
    pub is_output: bool,
    pub(crate) first_use: Option<UseId>,
}

/// Definition of a value. An initializer that is also an input counts as an input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Producer {
    /// The name is not defined.
    Nothing,
    /// Input of the graph at this position.
    Input(u32),
    /// Initializer of the graph at this position.
    Initializer(u32),
    /// Sparse initializer of the graph at this position.
    SparseInitializer(u32),
    /// Output of a node, at this position.
    Node(NodeId, u32),
}

/// Input position of a node.
#[derive(Debug, Clone, Copy)]
pub struct Use {
    /// Value that is read; `None` for an omitted input.
    pub value: Option<ValueId>,
    /// Node that reads the value.
    pub node: NodeId,
    /// Next and previous use in the list of the value's uses.
    pub(crate) next: Option<UseId>,
    pub(crate) previous: Option<UseId>,
}

/// Name, type and documentation of a value.
#[derive(Debug, Clone, Default)]
pub struct ValueInfo {
    /// Name.
    pub name: Option<Symbol>,
    /// Value of that name in the graph.
    pub value: Option<ValueId>,
    /// Declared type.
    pub ty: Option<TypeProto>,
    /// Documentation.
    pub doc_string: Option<Symbol>,
    /// Metadata, as keys and values.
    pub metadata_props: Vec<Entry>,
    /// Fields of newer format versions.
    pub unknown: Unknowns,
}

/// Initializer of a graph.
#[derive(Debug, Clone)]
pub struct Initializer {
    /// Value that the initializer defines.
    pub value: Option<ValueId>,
    /// Elements of the initializer.
    pub tensor: TensorProto,
}

/// Sparse initializer of a graph.
#[derive(Debug, Clone)]
pub struct SparseInitializer {
    /// Value that the initializer defines; its name is that of the tensor of values.
    pub value: Option<ValueId>,
    /// Elements of the initializer.
    pub tensor: SparseTensorProto,
}

/// Scale and zero point of a quantized tensor.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct TensorAnnotation {
    /// Name of the annotated tensor.
    pub tensor_name: Option<Symbol>,
    /// Names of the parameters, by the keys `SCALE_TENSOR` and `ZERO_POINT_TENSOR`.
    pub quant_parameter_tensor_names: Vec<Entry>,
    /// Fields of newer format versions.
    pub unknown: Unknowns,
}

/// Model-local function.
#[derive(Debug, Clone)]
pub struct Function {
    /// Name.
    pub name: Option<Symbol>,
    /// Domain.
    pub domain: Option<Symbol>,
    /// Overload, which selects one of several functions with the same name.
    pub overload: Option<Symbol>,
    /// Documentation.
    pub doc_string: Option<Symbol>,
    /// Attribute parameters without a default.
    pub attributes: Vec<Symbol>,
    /// Attribute parameters with a default.
    pub attribute_protos: Vec<Attribute>,
    /// Operator sets of the body.
    pub opset_import: Vec<OperatorSetId>,
    /// Body: inputs, outputs, nodes and types of values.
    pub body: GraphId,
    /// Metadata, as keys and values.
    pub metadata_props: Vec<Entry>,
    /// Fields of newer format versions.
    pub unknown: Unknowns,
}

/// Training step.
#[derive(Debug, Clone, Default)]
pub struct TrainingInfo {
    /// Graph that computes the initial state.
    pub initialization: Option<GraphId>,
    /// Graph that computes one step.
    pub algorithm: Option<GraphId>,
    /// Initializers that outputs of `initialization` are assigned to.
    pub initialization_binding: Vec<Entry>,
    /// Initializers that outputs of a step are assigned to.
    pub update_binding: Vec<Entry>,
    /// Fields of newer format versions.
    pub unknown: Unknowns,
}

/// Lookup of interned texts that keeps the bytes of the main source at hand.
#[derive(Debug, Clone, Copy)]
pub struct Texts<'m> {
    model: &'m Model,
    near: Near<'m>,
}

impl<'m> Texts<'m> {
    /// Returns an interned text.
    #[inline]
    pub fn text(self, symbol: Symbol) -> &'m [u8] {
        let Model { names, sources, .. } = self.model;
        names.text_near(symbol, self.near, sources)
    }

    /// Returns the attribute `name` of a node.
    pub fn attribute_of(self, node: NodeId, name: &str) -> Option<&'m Attribute> {
        let attributes = self.model.attributes(node).iter();
        attributes.map(|id| self.model.attribute(*id)).find(|attribute| {
            let found = attribute.name.map(|name| self.text(name));
            found == Some(name.as_bytes())
        })
    }
}

impl Model {
    /// Returns the main graph, if the model has one.
    pub fn main_graph(&self) -> Option<&Graph> {
        self.main.map(|graph| &self.graphs[graph])
    }

    /// Returns a graph.
    #[inline]
    pub fn graph(&self, id: GraphId) -> &Graph {
        &self.graphs[id]
    }

    /// Iterates over all graphs.
    pub fn graphs(&self) -> impl Iterator<Item = (GraphId, &Graph)> {
        self.graphs.iter()
    }

    /// Returns a node.
    #[inline]
    pub fn node(&self, id: NodeId) -> &Node {
        &self.nodes[id]
    }

    /// Returns a value.
    #[inline]
    pub fn value(&self, id: ValueId) -> &Value {
        &self.values[id]
    }

    /// Returns the number of nodes in all graphs: the bound of [`NodeId`]'s index.
    pub fn node_count(&self) -> usize {
        self.nodes.len()
    }

    /// Returns the number of nodes, their inputs, outputs and attributes, and declared values.
    pub fn part_count(&self) -> usize {
        let declared = self.graphs.iter().map(|(_, graph)| {
            graph.inputs.len()
                + graph.outputs.len()
                + graph.value_info.len()
                + graph.initializers.len()
        });
        let of_nodes = self.uses.len() + self.output_lists.len() + self.attribute_lists.len();
        self.nodes.len() + of_nodes + declared.sum::<usize>()
    }

    /// Returns the number of distinct texts: the bound of [`Symbol`]'s index.
    pub fn symbol_count(&self) -> usize {
        self.names.len()
    }

    /// Iterates over all distinct texts: names, documentation, keys and values.
    pub fn all_texts(&self) -> impl Iterator<Item = &[u8]> {
        let near = self.names.home_source(&self.sources);
        let symbols = (0..self.names.len()).map(crate::ids::Id::new);
        symbols.map(move |symbol| self.names.text_near(symbol, near, &self.sources))
    }

    /// Iterates over the values of all graphs.
    pub fn values(&self) -> impl Iterator<Item = (ValueId, &Value)> {
        self.values.iter()
    }

    /// Returns the number of values in all graphs: the bound of [`ValueId`]'s index.
    pub fn value_count(&self) -> usize {
        self.values.len()
    }

    /// Returns an attribute.
    #[inline]
    pub fn attribute(&self, id: AttributeId) -> &Attribute {
        &self.attributes[id]
    }

    /// Iterates over the attributes of all nodes in no particular order, including those that edits
    /// have removed from their nodes.
    pub fn all_attributes(&self) -> impl Iterator<Item = &Attribute> {
        self.attributes.iter().map(|(_, attribute)| attribute)
    }

    /// Returns the attribute `name` of a node.
    pub fn attribute_of(&self, node: NodeId, name: &str) -> Option<&Attribute> {
        self.texts().attribute_of(node, name)
    }

    /// Returns the attributes of a node, in the order of the file.
    #[inline]
    pub fn attributes(&self, node: NodeId) -> &[AttributeId] {
        &self.attribute_lists[self.nodes[node].attributes.indices()]
    }

    /// Whether there may be nodes with [`extras`](Self::extras).
    pub fn has_extras(&self) -> bool {
        !self.extras.is_empty()
    }

    /// Returns the rare fields of a node, if it has any.
    #[inline]
    pub fn extras(&self, node: NodeId) -> Option<&NodeExtras> {
        Some(&self.extras[self.nodes[node].extras?])
    }

    /// Iterates over the inputs of a node; `None` for an omitted input.
    #[inline]
    pub fn inputs(
        &self,
        node: NodeId,
    ) -> impl ExactSizeIterator<Item = Option<ValueId>> + DoubleEndedIterator + '_ {
        let uses = self.use_ids(node);
        uses.map(|id| self.uses[id].value)
    }

    /// Returns the input of a node at a position; `None` if it is omitted or there is none.
    #[inline]
    pub fn input(&self, node: NodeId, index: usize) -> Option<ValueId> {
        let id = self.nodes[node].inputs.indices().nth(index)?;
        self.uses[crate::ids::Id::new(id)].value
    }

    /// Returns the outputs of a node; `None` for an omitted output.
    #[inline]
    pub fn outputs(&self, node: NodeId) -> &[Option<ValueId>] {
        &self.output_lists[self.nodes[node].outputs.indices()]
    }

    /// Iterates over the nodes that read a value, each with the input position.
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

    /// Whether a node reads a value or the value is an output of its graph.
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

    /// Returns the initializer that defines a value, unless an input can override it.
    pub fn initializer(&self, value: ValueId) -> Option<&Initializer> {
        let Value { graph, producer: Producer::Initializer(index), .. } = self.values[value] else {
            return None;
        };
        self.graphs[graph].initializers.get(index as usize)
    }

    /// Returns an interned text.
    pub fn text(&self, symbol: Symbol) -> &[u8] {
        self.names.text(symbol, &self.sources)
    }

    /// Returns a faster way to look up many texts.
    pub fn texts(&self) -> Texts<'_> {
        Texts { model: self, near: self.names.home_source(&self.sources) }
    }

    /// Returns an interned text that may be absent.
    pub fn maybe_text(&self, symbol: Option<Symbol>) -> Option<&[u8]> {
        symbol.map(|symbol| self.text(symbol))
    }

    /// Whether a text is absent or empty.
    pub fn is_blank(&self, symbol: Option<Symbol>) -> bool {
        self.maybe_text(symbol).is_none_or(<[u8]>::is_empty)
    }

    /// Returns an interned text for display: empty if absent, with replacement characters where it
    /// is not UTF-8.
    pub fn display(&self, symbol: Option<Symbol>) -> Cow<'_, str> {
        String::from_utf8_lossy(self.maybe_text(symbol).unwrap_or_default())
    }

    /// Returns the symbol of a text, if the text is interned.
    pub fn symbol(&self, text: &[u8]) -> Option<Symbol> {
        self.names.find(text, &self.sources)
    }

    /// Returns the bytes of a span.
    pub fn bytes(&self, span: Span) -> &[u8] {
        &self.sources[span.source].as_slice()[span.offset as usize..][..span.len as usize]
    }

    /// Returns all bytes of a source.
    pub fn source(&self, id: SourceId) -> &[u8] {
        self.sources[id].as_slice()
    }

    /// Returns the bytes of a span as a buffer that shares the source.
    pub fn buffer(&self, span: Span) -> Buffer {
        let range = span.offset as usize..(span.offset + span.len) as usize;
        self.sources[span.source].slice(range).expect("a span lies in its source")
    }

    /// Returns the domain of a node in the registry's form: `ai.onnx` is empty.
    pub fn domain_of(&self, node: NodeId) -> Cow<'_, str> {
        normal_domain(self.display(self.nodes[node].domain))
    }

    /// Returns the versions of all imported operator sets, by domain in the registry's form. Faster
    /// than repeated calls of [`opset`](Model::opset).
    pub fn opsets(&self) -> HashMap<Cow<'_, str>, i64> {
        self.opsets_in(&self.header.opset_import)
    }

    /// Returns the versions of the operator sets in a function's imports.
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

    /// Returns the import of each domain that takes effect: the last one.
    pub(crate) fn effective_imports<'m>(
        &'m self,
        imports: &'m [OperatorSetId],
    ) -> HashMap<Cow<'m, str>, &'m OperatorSetId> {
        let mut effective = HashMap::new();
        let mut last = None;
        for import in imports.iter().rev() {
            // In a long list most entries repeat the previous domain, which needs no lookup.
            if last != Some(import.domain) {
                let domain = normal_domain(self.display(import.domain));
                effective.entry(domain).or_insert(import);
                last = Some(import.domain);
            }
        }
        effective
    }

    /// Returns the version of an imported operator set. The last entry of a domain takes effect.
    pub fn opset(&self, domain: &str) -> Option<i64> {
        self.opset_in(&self.header.opset_import, domain)
    }

    /// Returns the version of an operator set in a list of imports.
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

    /// Returns version 1 for `ai.onnx` if no import is required: before IR version 3 a model could
    /// not import a version.
    fn implied_opset(&self, imports: &[OperatorSetId]) -> Option<i64> {
        (imports.is_empty() && self.header.ir_version.unwrap_or(0) < 3).then_some(1)
    }
}

/// Maps `ai.onnx` to the empty domain.
fn normal_domain(domain: Cow<'_, str>) -> Cow<'_, str> {
    if normalize_domain(&domain).is_empty() { Cow::Borrowed("") } else { domain }
}

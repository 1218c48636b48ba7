//! From bytes to the graph, straight from the pull reader.
//!
//! Two steps per graph: first everything is read and every definition gets its value; then the inputs of nodes are bound
//! by name, in the graph itself and then in the ones around it. Subgraphs wait in a queue until the graph around them is
//! complete, so that nothing depends on the order of nodes, and depth costs no stack.

use std::collections::VecDeque;

use hashbrown::HashMap;
use sardonyx_proto::{
    self as proto, AttributeField, Chunk, DimensionField, FunctionField, GraphField, Limits,
    MapTypeField, ModelField, NodeField, OpaqueTypeField, OperatorSetIdField, OptionalTypeField,
    Reader, SequenceTypeField, Slice, SparseTensorField, SparseTensorTypeField,
    StringStringEntryField, TensorAnnotationField, TensorField, TensorSegmentField,
    TensorShapeField, TensorTypeField, TrainingInfoField, TypeField, ValueInfoField, place_of,
};
use sardonyx_tensor::Buffer;
use smallvec::SmallVec;

use crate::attribute::{Attribute, AttributeValue};
use crate::constant::{Segment, SparseTensorProto, TensorProto, TypedRun};
use crate::error::{Error, ErrorKind};
use crate::graph::{
    Entry, Function, Graph, Initializer, Model, Node, NodeExtras, OperatorSetId, Producer, Range,
    SparseInitializer, TensorAnnotation, TrainingInfo, Use, Value, ValueInfo,
};
use crate::ids::{Arena, GraphId, Id, NodeId, SourceId, UseId, ValueId};
use crate::names::{Symbol, same};
use crate::source::{Span, UnknownField, Unknowns};
use crate::type_proto::{DimProto, DimValue, ShapeProto, TypeKind, TypeProto};

/// Bounds on what reading a model may cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReadLimits {
    /// Levels of nested messages.
    pub depth: u32,
    /// Bytes of memory that the structure (nodes, values, attributes, lists …) of any file may take.
    pub memory: u64,
    /// Bytes of memory that it may take on top of that for each byte of the file. Models take 0.1 to 9; a file of empty
    /// messages, two bytes each, would take hundreds.
    pub expansion: u32,
}

impl ReadLimits {
    /// Bytes of structure that a file may have; so few that no arena can have more entries than an id can tell apart.
    fn memory(self, file: usize) -> u64 {
        let memory = (file as u64).saturating_mul(self.expansion.into());
        memory.saturating_add(self.memory).min(16 << 30)
    }
}

impl Default for ReadLimits {
    fn default() -> Self {
        ReadLimits {
            depth: Limits::default().depth,
            memory: 16 << 20,
            expansion: 12,
        }
    }
}

/// Levels of types within types. Unlike graphs they are read, compared and printed by recursion.
const TYPE_LEVELS: u32 = 64;

impl Model {
    /// Reads a model. Names and payloads are not copied: the model keeps `source`.
    ///
    /// # Errors
    ///
    /// Bytes that are no protobuf message, or more than the limits allow.
    pub fn read(source: Buffer) -> Result<Model, Error> {
        Model::read_with(source, ReadLimits::default())
    }

    /// Reads a model under limits.
    ///
    /// # Errors
    ///
    /// See [`read`](Model::read).
    pub fn read_with(source: Buffer, limits: ReadLimits) -> Result<Model, Error> {
        let bytes = source.as_slice();
        let mut model = Model::default();
        let id = model.sources.push(source.clone());
        let mut build = Build::new(&mut model, id, limits);
        build.bytes = bytes;
        build.memory_left = limits.memory(bytes.len());
        let limits = Limits {
            depth: limits.depth,
        };
        let result = build
            .model(Reader::with_limits(bytes, limits))
            .and_then(|()| build.bind_everything());
        result.map_err(|failure| {
            let place = place_of::<proto::ModelProto>(bytes, failure.offset, limits);
            Error::new(failure.kind, failure.offset, place)
        })?;
        Ok(model)
    }
}

/// An error that does not know its place yet.
pub(crate) struct Failure {
    pub(crate) kind: ErrorKind,
    pub(crate) offset: u64,
}

impl From<proto::Error> for Failure {
    fn from(error: proto::Error) -> Self {
        Failure {
            kind: ErrorKind::Wire(error.kind()),
            offset: error.offset(),
        }
    }
}

pub(crate) type Built<T = ()> = Result<T, Failure>;

/// What names mean in which graph. Most names are defined in one graph only, so that a list by symbol answers nearly every
/// question; a table has the rest.
#[derive(Default)]
struct Scopes {
    /// By symbol, the first value of that name, in whichever graph.
    first: Vec<Option<ValueId>>,
    /// Values of other graphs whose names were taken.
    others: HashMap<(GraphId, Symbol), ValueId>,
}

impl Scopes {
    #[inline]
    fn get(&self, graph: GraphId, name: Symbol, values: &Arena<ValueId, Value>) -> Option<ValueId> {
        let first = (*self.first.get(name.index())?)?;
        if values[first].graph == graph {
            return Some(first);
        }
        self.others.get(&(graph, name)).copied()
    }

    /// Gives a name that the graph does not define yet its value.
    #[inline]
    fn insert(&mut self, graph: GraphId, name: Symbol, value: ValueId) {
        if self.first.len() <= name.index() {
            self.first.resize(name.index() + 1, None);
        }
        match &mut self.first[name.index()] {
            Some(_) => {
                self.others.insert((graph, name), value);
            }
            none => *none = Some(value),
        }
    }
}

/// Places for frequent names.
const FREQUENT: usize = 64;

/// Names that are looked up together. Nearly all the time a name takes is waiting for memory, first for its slot in the
/// table, then for the entry, then for its text in the file; the waits of a batch overlap.
const BATCH: usize = 32;

/// A name that has no symbol yet.
struct PendingName<'a> {
    text: Slice<'a>,
    place: NamePlace,
    hash: u32,
}

/// What a name belongs to.
#[derive(Clone, Copy)]
enum NamePlace {
    /// A node.
    Node(NodeId),
    /// The input at this position of the model's uses.
    Input(u32),
    /// The output at this position of the model's output lists: which one of which node, in which graph.
    Output(u32, GraphId, NodeId, u32),
}

type Waiting<'a> = (GraphId, Reader<'a, proto::GraphProto>);

pub(crate) struct Build<'m, 'a> {
    model: &'m mut Model,
    source: SourceId,
    /// The bytes of the source, or none: then names are only found more slowly.
    bytes: &'a [u8],
    /// Bytes that the structure may still take.
    memory_left: u64,
    limits: ReadLimits,
    scopes: Scopes,
    /// Names of nodes and their inputs and outputs that have no symbol yet.
    pending: Vec<PendingName<'a>>,
    /// The output that was named last: what the next node is most likely to read.
    recent: Option<(&'a [u8], Symbol)>,
    /// Operators and names of attributes: there are few of them, and comparing with the one seen last is faster than looking
    /// for it among all names.
    frequent: [Option<(&'a [u8], Symbol)>; FREQUENT],
    /// Graphs that wait for the graph around them.
    waiting: VecDeque<Waiting<'a>>,
    /// Names of inputs that are not bound yet; the positions are those of the model's uses. `None` for the empty name.
    unbound: Vec<Option<Symbol>>,
}

impl<'m, 'a> Build<'m, 'a> {
    pub(crate) fn new(model: &'m mut Model, source: SourceId, limits: ReadLimits) -> Self {
        Build {
            model,
            source,
            bytes: &[],
            memory_left: limits.memory(0),
            limits,
            scopes: Scopes::default(),
            pending: Vec::new(),
            recent: None,
            frequent: [None; FREQUENT],
            waiting: VecDeque::new(),
            unbound: Vec::new(),
        }
    }

    fn model(&mut self, reader: Reader<'a, proto::ModelProto>) -> Built {
        for field in reader {
            match field? {
                ModelField::IrVersion(version) => self.model.header.ir_version = Some(version),
                ModelField::ProducerName(text) => {
                    self.model.header.producer_name = Some(self.name(text)?)
                }
                ModelField::ProducerVersion(text) => {
                    self.model.header.producer_version = Some(self.name(text)?)
                }
                ModelField::Domain(text) => self.model.header.domain = Some(self.name(text)?),
                ModelField::ModelVersion(version) => {
                    self.model.header.model_version = Some(version)
                }
                ModelField::DocString(text) => {
                    self.model.header.doc_string = Some(self.name(text)?)
                }
                ModelField::Graph(graph) => {
                    let id = match self.model.main {
                        Some(id) => id,
                        None => self.model.graphs.push(Graph::default()),
                    };
                    self.model.main = Some(id);
                    self.graph(id, graph)?;
                }
                ModelField::OpsetImport(import) => {
                    let import = self.opset(import)?;
                    self.model.header.opset_import.push(import);
                }
                ModelField::MetadataProps(entry) => {
                    let entry = self.entry(entry)?;
                    self.model.header.metadata_props.push(entry);
                }
                ModelField::TrainingInfo(info) => {
                    let info = self.training_info(info)?;
                    self.model.training_info.push(info);
                }
                ModelField::Functions(function) => {
                    let function = self.function(function)?;
                    self.model.functions.push(function);
                }
                ModelField::Configuration(message) => {
                    self.count::<Span>(message.offset())?;
                    let span = self.span(message.slice());
                    self.model.header.configuration.push(span);
                }
                ModelField::Unknown(unknown) => {
                    let unknown = self.unknown(unknown)?;
                    self.model.header.unknown.push(unknown);
                }
            }
        }
        Ok(())
    }

    /// Makes room for what a graph brings. Its fields are counted first, which costs little: they are not looked into.
    fn reserve(&mut self, id: GraphId, reader: Reader<'a, proto::GraphProto>) {
        /// Below this size, growing step by step costs less than counting.
        const SMALL: usize = 4 << 10;
        if reader.slice().bytes.len() < SMALL {
            return;
        }
        let (mut nodes, mut initializers, mut infos) = (0, 0, 0);
        for field in reader.map_while(Result::ok) {
            match field {
                GraphField::Node(_) => nodes += 1,
                GraphField::Initializer(_) => initializers += 1,
                GraphField::ValueInfo(_) => infos += 1,
                _ => {}
            }
        }
        // A file of empty messages may have more of them than may be read.
        let most = self.memory_left as usize / size_of::<Node>();
        let graph = &mut self.model.graphs[id];
        graph.nodes.reserve(nodes.min(most));
        graph.initializers.reserve(initializers.min(most));
        graph.value_info.reserve(infos.min(most));
        self.model.nodes.reserve(nodes.min(most));
        // What is in them nobody knows yet. So much is usual, but not in messages without room for it. A little more than
        // usual costs nothing, as memory that nobody touches is none; a little less means moving everything.
        let most = most.min(reader.slice().bytes.len() / 32);
        let nodes = (nodes + nodes / 8).min(most);
        let initializers = initializers.min(most);
        let values = nodes + initializers + 64;
        let names = nodes + values;
        self.model.attributes.reserve(2 * nodes);
        self.model.output_lists.reserve(nodes);
        self.model.uses.reserve(2 * nodes);
        self.unbound.reserve(2 * nodes);
        self.model.values.reserve(values);
        self.model.names.reserve(names);
        self.scopes.first.reserve(names);
    }

    fn graph(&mut self, id: GraphId, reader: Reader<'a, proto::GraphProto>) -> Built {
        self.reserve(id, reader);
        for field in reader {
            match field? {
                GraphField::Node(node) => self.node(id, node)?,
                GraphField::Name(text) => self.model.graphs[id].name = Some(self.name(text)?),
                GraphField::Initializer(tensor) => {
                    self.count::<Value>(tensor.offset())?;
                    let mut proto = TensorProto::default();
                    self.tensor(&mut proto, tensor)?;
                    let index = self.model.graphs[id].initializers.len() as u32;
                    let value = proto.name.map(|name| {
                        self.define_after_nodes(id, name, Producer::Initializer(index))
                    });
                    self.model.graphs[id].initializers.push(Initializer {
                        value,
                        tensor: proto,
                    });
                }
                GraphField::DocString(text) => {
                    self.model.graphs[id].doc_string = Some(self.name(text)?)
                }
                GraphField::Input(info) => {
                    self.count::<Value>(info.offset())?;
                    let mut info = self.value_info(info)?;
                    let index = self.model.graphs[id].inputs.len() as u32;
                    info.value = info
                        .name
                        .map(|name| self.define_after_nodes(id, name, Producer::Input(index)));
                    self.model.graphs[id].inputs.push(info);
                }
                GraphField::Output(info) => {
                    let info = self.value_info(info)?;
                    self.model.graphs[id].outputs.push(info);
                }
                GraphField::ValueInfo(info) => {
                    let info = self.value_info(info)?;
                    self.model.graphs[id].value_info.push(info);
                }
                GraphField::QuantizationAnnotation(annotation) => {
                    let annotation = self.annotation(annotation)?;
                    self.model.graphs[id]
                        .quantization_annotation
                        .push(annotation);
                }
                GraphField::SparseInitializer(tensor) => {
                    self.count::<Value>(tensor.offset())?;
                    let tensor = self.sparse_tensor(tensor)?;
                    let index = self.model.graphs[id].sparse_initializers.len() as u32;
                    let name = tensor.values.as_ref().and_then(|values| values.name);
                    let value = name.map(|name| {
                        self.define_after_nodes(id, name, Producer::SparseInitializer(index))
                    });
                    self.model.graphs[id]
                        .sparse_initializers
                        .push(SparseInitializer { value, tensor });
                }
                GraphField::MetadataProps(entry) => {
                    let entry = self.entry(entry)?;
                    self.model.graphs[id].metadata_props.push(entry);
                }
                GraphField::Unknown(unknown) => {
                    let unknown = self.unknown(unknown)?;
                    self.model.graphs[id].unknown.push(unknown);
                }
            }
        }
        self.settle();
        Ok(())
    }

    fn node(&mut self, graph: GraphId, reader: Reader<'a, proto::NodeProto>) -> Built {
        self.count::<(Node, NodeId)>(reader.offset())?;
        let id: NodeId = Id::new(self.model.nodes.len());
        let mut node = Node {
            name: None,
            op_type: None,
            domain: None,
            overload: None,
            graph,
            attributes: SmallVec::new(),
            extras: None,
            inputs: Range::default(),
            outputs: Range {
                start: self.model.output_lists.len() as u32,
                len: 0,
            },
        };
        node.inputs.start = self.model.uses.len() as u32;
        let mut name = None;
        for field in reader {
            match field? {
                NodeField::Input(text) => {
                    self.count::<(Use, Option<Symbol>)>(text.offset)?;
                    // Bound once the graph is complete.
                    self.model.uses.push(Use {
                        value: None,
                        node: id,
                        next: None,
                        previous: None,
                    });
                    self.unbound.push(None);
                    node.inputs.len += 1;
                    if !text.bytes.is_empty() {
                        self.later(text, NamePlace::Input(self.unbound.len() as u32 - 1))?;
                    }
                }
                NodeField::Output(text) => {
                    self.count::<Value>(text.offset)?;
                    let index = node.outputs.len;
                    self.model.output_lists.push(None);
                    node.outputs.len += 1;
                    if !text.bytes.is_empty() {
                        let position = self.model.output_lists.len() as u32 - 1;
                        self.later(text, NamePlace::Output(position, graph, id, index))?;
                    }
                }
                NodeField::Name(text) => name = Some(text),
                NodeField::OpType(text) => node.op_type = Some(self.frequent_name(text)?),
                NodeField::Attribute(attribute) => {
                    let attribute = self.attribute(attribute, Some((graph, id)))?;
                    node.attributes.push(self.model.attributes.push(attribute));
                }
                NodeField::DocString(text) => {
                    let doc_string = Some(self.name(text)?);
                    self.extras(&mut node, text.offset)?.doc_string = doc_string;
                }
                NodeField::Domain(text) => node.domain = Some(self.name(text)?),
                NodeField::Overload(text) => node.overload = Some(self.name(text)?),
                NodeField::MetadataProps(entry) => {
                    let offset = entry.offset();
                    let entry = self.entry(entry)?;
                    self.extras(&mut node, offset)?.metadata_props.push(entry);
                }
                NodeField::DeviceConfigurations(message) => {
                    self.count::<Span>(message.offset())?;
                    let span = self.span(message.slice());
                    let extras = self.extras(&mut node, message.offset())?;
                    extras.device_configurations.push(span);
                }
                NodeField::Unknown(unknown) => {
                    let offset = unknown.record.offset;
                    let unknown = self.unknown(unknown)?;
                    self.extras(&mut node, offset)?.unknown.push(unknown);
                }
            }
        }
        self.model.nodes.push(node);
        self.model.graphs[graph].nodes.push(id);
        if let Some(name) = name {
            self.later(name, NamePlace::Node(id))?;
        }
        Ok(())
    }

    /// What few nodes have, of a node that turns out to be one of them.
    fn extras<'n>(&mut self, node: &'n mut Node, offset: u64) -> Built<&'n mut NodeExtras> {
        if node.extras.is_none() {
            self.count::<NodeExtras>(offset)?;
        }
        Ok(node.extras.get_or_insert_default())
    }

    /// An attribute; `place` is the node it belongs to and that node's graph, which its own graphs see.
    fn attribute(
        &mut self,
        reader: Reader<'a, proto::AttributeProto>,
        place: Option<(GraphId, NodeId)>,
    ) -> Built<Attribute> {
        let offset = reader.offset();
        self.count::<Attribute>(offset)?;
        let mut attribute = Attribute::default();
        /// The value field of a kind, made if it is not there yet, so that a field that occurs twice is merged.
        macro_rules! value {
            ($variant:ident, $default:expr) => {{
                let found = attribute
                    .values
                    .iter()
                    .position(|value| matches!(value, AttributeValue::$variant(_)));
                let index = found.unwrap_or_else(|| {
                    let value = AttributeValue::$variant($default);
                    let number = value.number();
                    let index = attribute.values.partition_point(|v| v.number() < number);
                    attribute.values.insert(index, value);
                    index
                });
                match &mut attribute.values[index] {
                    AttributeValue::$variant(value) => value,
                    _ => unreachable!("the index is that of the variant"),
                }
            }};
        }
        for field in reader {
            match field? {
                AttributeField::Name(text) => attribute.name = Some(self.frequent_name(text)?),
                AttributeField::F(number) => *value!(Float, 0.0) = number,
                AttributeField::I(number) => *value!(Int, 0) = number,
                AttributeField::S(text) => {
                    let span = self.span(text);
                    *value!(String, span) = span;
                }
                AttributeField::T(tensor) => self.tensor(value!(Tensor, Box::default()), tensor)?,
                AttributeField::G(graph) => {
                    self.count::<(Graph, Waiting<'_>)>(graph.offset())?;
                    let id = *value!(Graph, self.nested_graph(place));
                    self.waiting.push_back((id, graph));
                }
                // A block without numbers is no value.
                AttributeField::Floats(chunk) if chunk.is_empty() => {}
                AttributeField::Ints(chunk) if chunk.is_empty() => {}
                AttributeField::Floats(chunk) => {
                    self.collect(value!(Floats, Vec::new()), chunk, offset)?
                }
                AttributeField::Ints(chunk) => {
                    self.collect(value!(Ints, Vec::new()), chunk, offset)?
                }
                AttributeField::Strings(text) => {
                    self.count::<Span>(text.offset)?;
                    let span = self.span(text);
                    value!(Strings, Vec::new()).push(span);
                }
                AttributeField::Tensors(tensor) => {
                    let mut proto = TensorProto::default();
                    self.tensor(&mut proto, tensor)?;
                    value!(Tensors, Vec::new()).push(proto);
                }
                AttributeField::Graphs(graph) => {
                    self.count::<(Graph, Waiting<'_>)>(graph.offset())?;
                    let id = self.nested_graph(place);
                    self.waiting.push_back((id, graph));
                    value!(Graphs, Vec::new()).push(id);
                }
                AttributeField::DocString(text) => attribute.doc_string = Some(self.name(text)?),
                AttributeField::Tp(ty) => {
                    self.type_proto(value!(Type, Box::default()), ty, TYPE_LEVELS)?
                }
                AttributeField::TypeProtos(ty) => {
                    let mut proto = TypeProto::default();
                    self.type_proto(&mut proto, ty, TYPE_LEVELS)?;
                    value!(Types, Vec::new()).push(proto);
                }
                AttributeField::Type(ty) => attribute.ty = Some(ty),
                AttributeField::RefAttrName(text) => {
                    attribute.ref_attr_name = Some(self.name(text)?)
                }
                AttributeField::SparseTensor(tensor) => {
                    **value!(SparseTensor, Box::default()) = self.sparse_tensor(tensor)?;
                }
                AttributeField::SparseTensors(tensor) => {
                    let tensor = self.sparse_tensor(tensor)?;
                    value!(SparseTensors, Vec::new()).push(tensor);
                }
                AttributeField::Unknown(unknown) => attribute.unknown.push(self.unknown(unknown)?),
            }
        }
        if attribute.values.spilled() {
            self.count_list::<AttributeValue>(attribute.values.capacity(), offset)?;
        }
        Ok(attribute)
    }

    fn nested_graph(&mut self, place: Option<(GraphId, NodeId)>) -> GraphId {
        self.model.graphs.push(Graph {
            owner: place.map(|(_, node)| node),
            parent: place.map(|(graph, _)| graph),
            ..Graph::default()
        })
    }

    pub(crate) fn tensor(
        &mut self,
        proto: &mut TensorProto,
        reader: Reader<'a, proto::TensorProto>,
    ) -> Built {
        let offset = reader.offset();
        self.count::<TensorProto>(offset)?;
        let mut rest = reader;
        loop {
            let start = rest.offset();
            let Some(field) = rest.next() else {
                break;
            };
            let number = match field? {
                TensorField::Dims(chunk) => {
                    self.dims(&mut proto.dims, chunk, offset)?;
                    continue;
                }
                TensorField::DataType(number) => {
                    proto.data_type = Some(number);
                    continue;
                }
                TensorField::Segment(segment) => {
                    self.segment(proto.segment.get_or_insert_default(), segment)?;
                    continue;
                }
                TensorField::FloatData(_) => 4,
                TensorField::Int32Data(_) => 5,
                TensorField::StringData(_) => 6,
                TensorField::Int64Data(_) => 7,
                TensorField::DoubleData(_) => 10,
                TensorField::Uint64Data(_) => 11,
                TensorField::Name(text) => {
                    proto.name = Some(self.name(text)?);
                    continue;
                }
                TensorField::RawData(bytes) => {
                    proto.raw_data = Some(self.span(bytes));
                    continue;
                }
                TensorField::DocString(text) => {
                    proto.doc_string = Some(self.name(text)?);
                    continue;
                }
                TensorField::ExternalData(entry) => {
                    let entry = self.entry(entry)?;
                    proto.external_data.push(entry);
                    continue;
                }
                TensorField::DataLocation(location) => {
                    proto.data_location = Some(location);
                    continue;
                }
                TensorField::MetadataProps(entry) => {
                    let entry = self.entry(entry)?;
                    proto.metadata_props.push(entry);
                    continue;
                }
                TensorField::Unknown(unknown) => {
                    proto.unknown.push(self.unknown(unknown)?);
                    continue;
                }
            };
            // Records of one typed list that touch each other become one run.
            match proto.typed.last_mut() {
                Some(run)
                    if run.number == number && run.records.offset + run.records.len == start =>
                {
                    run.records.len += rest.offset() - start;
                }
                _ => {
                    self.count::<TypedRun>(start)?;
                    let records = Span {
                        source: self.source,
                        offset: start,
                        len: rest.offset() - start,
                    };
                    proto.typed.push(TypedRun { number, records });
                }
            }
        }
        // As they are written.
        if !proto.typed.is_sorted_by_key(|run| run.number) {
            proto.typed.sort_by_key(|run| run.number);
        }
        Ok(())
    }

    fn segment(
        &mut self,
        segment: &mut Segment,
        reader: Reader<'a, proto::TensorSegment>,
    ) -> Built {
        for field in reader {
            match field? {
                TensorSegmentField::Begin(begin) => segment.begin = Some(begin),
                TensorSegmentField::End(end) => segment.end = Some(end),
                TensorSegmentField::Unknown(unknown) => {
                    segment.unknown.push(self.unknown(unknown)?)
                }
            }
        }
        Ok(())
    }

    pub(crate) fn sparse_tensor(
        &mut self,
        reader: Reader<'a, proto::SparseTensorProto>,
    ) -> Built<SparseTensorProto> {
        let offset = reader.offset();
        self.count::<SparseTensorProto>(offset)?;
        let mut sparse = SparseTensorProto::default();
        for field in reader {
            match field? {
                SparseTensorField::Values(tensor) => {
                    self.tensor(sparse.values.get_or_insert_default(), tensor)?
                }
                SparseTensorField::Indices(tensor) => {
                    self.tensor(sparse.indices.get_or_insert_default(), tensor)?
                }
                SparseTensorField::Dims(chunk) => self.dims(&mut sparse.dims, chunk, offset)?,
                SparseTensorField::Unknown(unknown) => sparse.unknown.push(self.unknown(unknown)?),
            }
        }
        Ok(sparse)
    }

    fn value_info(&mut self, reader: Reader<'a, proto::ValueInfoProto>) -> Built<ValueInfo> {
        self.count::<ValueInfo>(reader.offset())?;
        let mut info = ValueInfo::default();
        for field in reader {
            match field? {
                ValueInfoField::Name(text) => info.name = Some(self.name(text)?),
                ValueInfoField::Type(ty) => {
                    self.type_proto(info.ty.get_or_insert_default(), ty, TYPE_LEVELS)?
                }
                ValueInfoField::DocString(text) => info.doc_string = Some(self.name(text)?),
                ValueInfoField::MetadataProps(entry) => {
                    info.metadata_props.push(self.entry(entry)?)
                }
                ValueInfoField::Unknown(unknown) => info.unknown.push(self.unknown(unknown)?),
            }
        }
        Ok(info)
    }

    /// A type, in at most so many levels.
    fn type_proto(
        &mut self,
        proto: &mut TypeProto,
        reader: Reader<'a, proto::TypeProto>,
        levels: u32,
    ) -> Built {
        let offset = reader.offset();
        self.count::<TypeProto>(offset)?;
        let Some(levels) = levels.checked_sub(1) else {
            return Err(Failure {
                kind: ErrorKind::TypeTooDeep { limit: TYPE_LEVELS },
                offset,
            });
        };
        /// The parts of a kind. Of several kinds the last one stays; the same kind twice is merged.
        macro_rules! parts {
            ($kind:ident $($part:ident)*) => {
                if !matches!(proto.kind, Some(TypeKind::$kind { .. })) {
                    proto.kind = Some(TypeKind::$kind { $($part: Default::default()),* });
                }
                let Some(TypeKind::$kind { $($part),* }) = &mut proto.kind else {
                    unreachable!("it was just made of that kind");
                };
            };
        }
        for field in reader {
            match field? {
                TypeField::TensorType(reader) => {
                    parts!(Tensor elem_type shape unknown);
                    for field in reader {
                        match field? {
                            TensorTypeField::ElemType(number) => *elem_type = Some(number),
                            TensorTypeField::Shape(reader) => {
                                self.shape(shape.get_or_insert_default(), reader)?
                            }
                            TensorTypeField::Unknown(field) => unknown.push(self.unknown(field)?),
                        }
                    }
                }
                TypeField::SparseTensorType(reader) => {
                    parts!(SparseTensor elem_type shape unknown);
                    for field in reader {
                        match field? {
                            SparseTensorTypeField::ElemType(number) => *elem_type = Some(number),
                            SparseTensorTypeField::Shape(reader) => {
                                self.shape(shape.get_or_insert_default(), reader)?
                            }
                            SparseTensorTypeField::Unknown(field) => {
                                unknown.push(self.unknown(field)?)
                            }
                        }
                    }
                }
                TypeField::SequenceType(reader) => {
                    parts!(Sequence elem_type unknown);
                    for field in reader {
                        match field? {
                            SequenceTypeField::ElemType(ty) => {
                                self.type_proto(elem_type.get_or_insert_default(), ty, levels)?
                            }
                            SequenceTypeField::Unknown(field) => unknown.push(self.unknown(field)?),
                        }
                    }
                }
                TypeField::OptionalType(reader) => {
                    parts!(Optional elem_type unknown);
                    for field in reader {
                        match field? {
                            OptionalTypeField::ElemType(ty) => {
                                self.type_proto(elem_type.get_or_insert_default(), ty, levels)?
                            }
                            OptionalTypeField::Unknown(field) => unknown.push(self.unknown(field)?),
                        }
                    }
                }
                TypeField::MapType(reader) => {
                    parts!(Map key_type value_type unknown);
                    for field in reader {
                        match field? {
                            MapTypeField::KeyType(number) => *key_type = Some(number),
                            MapTypeField::ValueType(ty) => {
                                self.type_proto(value_type.get_or_insert_default(), ty, levels)?
                            }
                            MapTypeField::Unknown(field) => unknown.push(self.unknown(field)?),
                        }
                    }
                }
                TypeField::OpaqueType(reader) => {
                    parts!(Opaque domain name unknown);
                    for field in reader {
                        match field? {
                            OpaqueTypeField::Domain(text) => *domain = Some(self.name(text)?),
                            OpaqueTypeField::Name(text) => *name = Some(self.name(text)?),
                            OpaqueTypeField::Unknown(field) => unknown.push(self.unknown(field)?),
                        }
                    }
                }
                TypeField::Denotation(text) => proto.denotation = Some(self.name(text)?),
                TypeField::Unknown(unknown) => proto.unknown.push(self.unknown(unknown)?),
            }
        }
        Ok(())
    }

    fn shape(
        &mut self,
        shape: &mut ShapeProto,
        reader: Reader<'a, proto::TensorShapeProto>,
    ) -> Built {
        for field in reader {
            match field? {
                TensorShapeField::Dim(reader) => {
                    // Whoever reasons about the type makes a dimension of it.
                    self.count::<(DimProto, crate::Dim)>(reader.offset())?;
                    let mut dim = DimProto::default();
                    for field in reader {
                        match field? {
                            DimensionField::DimValue(value) => {
                                dim.value = Some(DimValue::Value(value))
                            }
                            DimensionField::DimParam(text) => {
                                dim.value = Some(DimValue::Param(self.name(text)?))
                            }
                            DimensionField::Denotation(text) => {
                                dim.denotation = Some(self.name(text)?)
                            }
                            DimensionField::Unknown(field) => {
                                dim.unknown.push(self.unknown(field)?)
                            }
                        }
                    }
                    shape.dims.push(dim);
                }
                TensorShapeField::Unknown(field) => shape.unknown.push(self.unknown(field)?),
            }
        }
        Ok(())
    }

    fn function(&mut self, reader: Reader<'a, proto::FunctionProto>) -> Built<Function> {
        self.count::<(Function, Graph)>(reader.offset())?;
        let body = self.model.graphs.push(Graph::default());
        let mut function = Function {
            name: None,
            domain: None,
            overload: None,
            doc_string: None,
            attributes: Vec::new(),
            attribute_protos: Vec::new(),
            opset_import: Vec::new(),
            body,
            metadata_props: Vec::new(),
            unknown: Unknowns::default(),
        };
        for field in reader {
            match field? {
                FunctionField::Name(text) => function.name = Some(self.name(text)?),
                FunctionField::Input(text) => {
                    self.count::<(ValueInfo, Value)>(text.offset)?;
                    let name = self.name(text)?;
                    let index = self.model.graphs[body].inputs.len() as u32;
                    let value = Some(self.define_after_nodes(body, name, Producer::Input(index)));
                    self.model.graphs[body].inputs.push(ValueInfo {
                        name: Some(name),
                        value,
                        ..ValueInfo::default()
                    });
                }
                FunctionField::Output(text) => {
                    self.count::<(ValueInfo, Value)>(text.offset)?;
                    let name = Some(self.name(text)?);
                    self.model.graphs[body].outputs.push(ValueInfo {
                        name,
                        ..ValueInfo::default()
                    });
                }
                FunctionField::Attribute(text) => {
                    self.count::<Symbol>(text.offset)?;
                    function.attributes.push(self.name(text)?)
                }
                FunctionField::Node(node) => self.node(body, node)?,
                FunctionField::DocString(text) => function.doc_string = Some(self.name(text)?),
                FunctionField::OpsetImport(import) => {
                    function.opset_import.push(self.opset(import)?)
                }
                FunctionField::Domain(text) => function.domain = Some(self.name(text)?),
                FunctionField::AttributeProto(attribute) => {
                    function
                        .attribute_protos
                        .push(self.attribute(attribute, None)?);
                }
                FunctionField::ValueInfo(info) => {
                    let info = self.value_info(info)?;
                    self.model.graphs[body].value_info.push(info);
                }
                FunctionField::Overload(text) => function.overload = Some(self.name(text)?),
                FunctionField::MetadataProps(entry) => {
                    function.metadata_props.push(self.entry(entry)?)
                }
                FunctionField::Unknown(unknown) => function.unknown.push(self.unknown(unknown)?),
            }
        }
        self.settle();
        Ok(function)
    }

    fn training_info(
        &mut self,
        reader: Reader<'a, proto::TrainingInfoProto>,
    ) -> Built<TrainingInfo> {
        self.count::<TrainingInfo>(reader.offset())?;
        let mut info = TrainingInfo::default();
        for field in reader {
            match field? {
                TrainingInfoField::Initialization(graph) => {
                    self.count::<(Graph, Waiting<'_>)>(graph.offset())?;
                    let id = *info
                        .initialization
                        .get_or_insert_with(|| self.model.graphs.push(Graph::default()));
                    self.waiting.push_back((id, graph));
                }
                TrainingInfoField::Algorithm(graph) => {
                    self.count::<(Graph, Waiting<'_>)>(graph.offset())?;
                    // A step sees what the main graph defines.
                    let parent = self.model.main;
                    let id = *info.algorithm.get_or_insert_with(|| {
                        self.model.graphs.push(Graph {
                            parent,
                            ..Graph::default()
                        })
                    });
                    self.waiting.push_back((id, graph));
                }
                TrainingInfoField::InitializationBinding(entry) => {
                    info.initialization_binding.push(self.entry(entry)?)
                }
                TrainingInfoField::UpdateBinding(entry) => {
                    info.update_binding.push(self.entry(entry)?)
                }
                TrainingInfoField::Unknown(unknown) => info.unknown.push(self.unknown(unknown)?),
            }
        }
        Ok(info)
    }

    fn opset(&mut self, reader: Reader<'a, proto::OperatorSetIdProto>) -> Built<OperatorSetId> {
        self.count::<OperatorSetId>(reader.offset())?;
        let mut import = OperatorSetId::default();
        for field in reader {
            match field? {
                OperatorSetIdField::Domain(text) => import.domain = Some(self.name(text)?),
                OperatorSetIdField::Version(version) => import.version = Some(version),
                OperatorSetIdField::Unknown(unknown) => import.unknown.push(self.unknown(unknown)?),
            }
        }
        Ok(import)
    }

    fn annotation(
        &mut self,
        reader: Reader<'a, proto::TensorAnnotation>,
    ) -> Built<TensorAnnotation> {
        self.count::<TensorAnnotation>(reader.offset())?;
        let mut annotation = TensorAnnotation::default();
        for field in reader {
            match field? {
                TensorAnnotationField::TensorName(text) => {
                    annotation.tensor_name = Some(self.name(text)?)
                }
                TensorAnnotationField::QuantParameterTensorNames(entry) => {
                    annotation
                        .quant_parameter_tensor_names
                        .push(self.entry(entry)?);
                }
                TensorAnnotationField::Unknown(unknown) => {
                    annotation.unknown.push(self.unknown(unknown)?);
                }
            }
        }
        Ok(annotation)
    }

    fn entry(&mut self, reader: Reader<'a, proto::StringStringEntryProto>) -> Built<Entry> {
        self.count::<Entry>(reader.offset())?;
        let mut entry = Entry::default();
        for field in reader {
            match field? {
                StringStringEntryField::Key(text) => entry.key = Some(self.name(text)?),
                StringStringEntryField::Value(text) => entry.value = Some(self.name(text)?),
                StringStringEntryField::Unknown(unknown) => {
                    entry.unknown.push(self.unknown(unknown)?)
                }
            }
        }
        Ok(entry)
    }

    /// Counts what becomes a `T` in memory against the limit. Names do not count: they are as long in the file.
    #[inline]
    fn count<T>(&mut self, offset: u64) -> Built {
        self.count_list::<T>(1, offset)
    }

    /// Counts a list.
    #[inline]
    fn count_list<T>(&mut self, length: usize, offset: u64) -> Built {
        let bytes = (length as u64).saturating_mul(size_of::<T>() as u64);
        match self.memory_left.checked_sub(bytes) {
            Some(left) => {
                self.memory_left = left;
                Ok(())
            }
            None => Err(Failure {
                kind: ErrorKind::TooMuchStructure {
                    limit: self.limits.memory(self.bytes.len()),
                },
                offset,
            }),
        }
    }

    /// A field that the table does not know, to be kept.
    fn unknown(&mut self, field: proto::Unknown<'_>) -> Built<UnknownField> {
        self.count::<UnknownField>(field.record.offset)?;
        Ok(UnknownField {
            after: field.after,
            record: self.span(field.record),
        })
    }

    /// Appends a block of numbers to a list.
    fn collect<S: proto::Scalar>(
        &mut self,
        list: &mut Vec<S::Item>,
        chunk: Chunk<'a, S>,
        offset: u64,
    ) -> Built {
        let before = list.len();
        chunk.decode_into(list)?;
        self.count_list::<S::Item>(list.len() - before, offset)
    }

    /// Appends a block of dimensions to those of a tensor.
    fn dims(
        &mut self,
        dims: &mut SmallVec<[i64; 4]>,
        chunk: Chunk<'a, proto::Int64>,
        offset: u64,
    ) -> Built {
        for dim in chunk.iter() {
            dims.push(dim?);
            if dims.spilled() {
                self.count::<i64>(offset)?;
            }
        }
        Ok(())
    }

    #[inline]
    fn span(&self, slice: Slice<'_>) -> Span {
        Span::of(self.source, slice)
    }

    /// A name of which there are few. Each has one place, which it may have to leave to another.
    fn frequent_name(&mut self, slice: Slice<'a>) -> Built<Symbol> {
        let [first, .., last] = *slice.bytes else {
            return self.name(slice);
        };
        let place = slice.bytes.len() + usize::from(first) * 3 + usize::from(last) * 5;
        let place = place % FREQUENT;
        match self.frequent[place] {
            Some((text, name)) if same(text, slice.bytes) => Ok(name),
            _ => {
                let name = self.name(slice)?;
                self.frequent[place] = Some((slice.bytes, name));
                Ok(name)
            }
        }
    }

    #[inline]
    fn name(&mut self, slice: Slice<'_>) -> Built<Symbol> {
        check_length(slice)?;
        let hash = self.model.names.hash(slice.bytes);
        Ok(self.hashed_name(slice, hash))
    }

    #[inline]
    fn hashed_name(&mut self, slice: Slice<'_>, hash: u32) -> Symbol {
        self.model.names.intern(
            slice.bytes,
            hash,
            Span::of(self.source, slice),
            self.bytes,
            &self.model.sources,
        )
    }

    /// A name that gets its symbol with others, at the latest when [`settle`](Self::settle) is called.
    #[inline]
    fn later(&mut self, text: Slice<'a>, place: NamePlace) -> Built {
        check_length(text)?;
        let hash = self.model.names.hash(text.bytes);
        self.pending.push(PendingName { text, place, hash });
        if self.pending.len() == BATCH {
            self.settle();
        }
        Ok(())
    }

    /// Gives the names that wait their symbols.
    fn settle(&mut self) {
        if self.pending.is_empty() {
            return;
        }
        let pending = std::mem::take(&mut self.pending);
        self.model
            .names
            .fetch::<BATCH>(pending.iter().map(|name| name.hash), self.bytes);
        for &PendingName { text, place, hash } in &pending {
            match place {
                NamePlace::Node(node) => {
                    self.model.nodes[node].name = Some(self.hashed_name(text, hash))
                }
                NamePlace::Input(position) => {
                    let name = match self.recent {
                        Some((recent, name)) if same(recent, text.bytes) => name,
                        _ => self.hashed_name(text, hash),
                    };
                    self.unbound[position as usize] = Some(name)
                }
                NamePlace::Output(position, graph, node, index) => {
                    let name = self.hashed_name(text, hash);
                    self.recent = Some((text.bytes, name));
                    let value = self.define(graph, name, Producer::Node(node, index));
                    self.model.output_lists[position as usize] = Some(value);
                }
            }
        }
        self.pending = pending;
        self.pending.clear();
    }

    /// The value that a definition gives, after those of all nodes so far.
    fn define_after_nodes(&mut self, graph: GraphId, name: Symbol, producer: Producer) -> ValueId {
        self.settle();
        self.define(graph, name, producer)
    }

    /// The value that a definition gives. An input and an initializer of one name are one value; any other second
    /// definition is a value of its own, which nobody can refer to.
    fn define(&mut self, graph: GraphId, name: Symbol, producer: Producer) -> ValueId {
        let defined = self.scopes.get(graph, name, &self.model.values);
        if let Some(id) = defined {
            let value = &mut self.model.values[id];
            match (value.producer, producer) {
                (Producer::Initializer(_), Producer::Input(_)) => {
                    value.producer = producer;
                    return id;
                }
                (Producer::Input(_), Producer::Initializer(_)) => return id,
                _ => {}
            }
        }
        let id = self.model.values.push(Value {
            name,
            graph,
            producer,
            is_output: false,
            first_use: None,
        });
        if defined.is_none() {
            self.scopes.insert(graph, name, id);
        }
        id
    }

    /// Reads the waiting graphs and binds the inputs of all nodes.
    fn bind_everything(&mut self) -> Built {
        let mut bound = 0;
        loop {
            // Uses were made graph by graph, so everything up to here belongs to graphs that are complete.
            for index in bound..self.model.uses.len() {
                self.bind(index);
            }
            bound = self.model.uses.len();
            let Some((id, graph)) = self.waiting.pop_front() else {
                break;
            };
            self.graph(id, graph)?;
        }
        for index in 0..self.model.graphs.len() {
            self.bind_infos(Id::new(index));
        }
        Ok(())
    }

    fn bind(&mut self, index: usize) {
        let id: UseId = Id::new(index);
        let Some(name) = self.unbound[index] else {
            return;
        };
        let graph = self.model.nodes[self.model.uses[id].node].graph;
        let value = self.look_up(graph, name).unwrap_or_else(|| {
            let value = Value {
                name,
                graph,
                producer: Producer::Nothing,
                is_output: false,
                first_use: None,
            };
            let value = self.model.values.push(value);
            self.scopes.insert(graph, name, value);
            value
        });
        self.model.link(id, value);
    }

    /// Ties declared outputs and types to their values.
    fn bind_infos(&mut self, graph: GraphId) {
        let Model { graphs, values, .. } = &mut *self.model;
        let Graph {
            outputs,
            value_info,
            ..
        } = &mut graphs[graph];
        for info in outputs.iter_mut() {
            let value = info
                .name
                .and_then(|name| self.scopes.get(graph, name, values));
            info.value = value;
            if let Some(value) = value {
                values[value].is_output = true;
            }
        }
        for info in value_info {
            info.value = info
                .name
                .and_then(|name| self.scopes.get(graph, name, values));
        }
    }

    fn look_up(&self, graph: GraphId, name: Symbol) -> Option<ValueId> {
        let mut next = Some(graph);
        while let Some(graph) = next {
            let value = self.scopes.get(graph, name, &self.model.values);
            if value.is_some() {
                return value;
            }
            next = self.model.graphs[graph].parent;
        }
        None
    }
}

/// Lengths of texts are kept in 32 bits.
#[inline]
fn check_length(text: Slice<'_>) -> Built {
    match u32::try_from(text.bytes.len()) {
        Ok(_) => Ok(()),
        Err(_) => Err(Failure {
            kind: ErrorKind::TextTooLong {
                length: text.bytes.len() as u64,
            },
            offset: text.offset,
        }),
    }
}

//! Reads bytes into the graph, directly from the pull reader.
//!
//! Each graph takes two steps. First all fields are read: every definition gets its value, and
//! inputs of nodes that the graph has already defined are bound. Then the remaining inputs are
//! bound by name, in the graph itself and then in the enclosing ones. Subgraphs wait in a queue
//! until the enclosing graph is complete, so that the order of nodes does not matter and depth
//! takes no stack.
//! stack.

use std::collections::VecDeque;

use sardonyx_proto::{
    self as proto, AttributeField, Chunk, DimensionField, FunctionField, GraphField, Limits,
    MapTypeField, ModelField, NodeField, OpaqueTypeField, OperatorSetIdField, OptionalTypeField,
    Reader, SequenceTypeField, SparseTensorField, SparseTensorTypeField, StringStringEntryField,
    TensorAnnotationField, TensorField, TensorSegmentField, TensorShapeField, TensorTypeField,
    TrainingInfoField, TypeField, ValueInfoField, find_place,
};
use sardonyx_tensor::Buffer;
use smallvec::SmallVec;

use crate::attribute::{Attribute, AttributeExtras, AttributeValue};
use crate::build::{Builder, Built, Failure, Text};
use crate::constant::{Segment, SparseTensorProto, TensorProto, TypedRun};
use crate::error::{Error, ErrorKind};
use crate::graph::{
    Entry, Function, Graph, Model, Node, NodeExtras, OperatorSetId, Range, TensorAnnotation,
    TrainingInfo, Value, ValueInfo,
};
use crate::ids::{GraphId, Id, NodeId};
use crate::names::Symbol;
use crate::source::{Span, UnknownField, Unknowns};
use crate::type_proto::{DimProto, DimValue, ShapeProto, TypeKind, TypeProto};

/// Limits on nesting and memory when a model is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReadLimits {
    /// Maximum number of levels of nested messages. The default is 1000.
    pub depth: u32,
    /// Maximum memory of the structure (nodes, values, attributes, lists) of a file of any size, in
    /// bytes. The default is 16 MiB. Weights do not count.
    pub memory: u64,
    /// Additional bytes of memory that the structure may take for each byte of the file. The
    /// default is 12. Models take 0.1 to 9; a malicious file of empty messages, two bytes each,
    /// would take hundreds.
    pub expansion: u32,
}

impl ReadLimits {
    /// Returns the maximum number of bytes of structure for a file of `file` bytes. The cap of 16
    /// GiB keeps the entries of each arena below the range of an id.
    pub(crate) fn memory(self, file: usize) -> u64 {
        let memory = (file as u64).saturating_mul(self.expansion.into());
        memory.saturating_add(self.memory).min(16 << 30)
    }
}

impl Default for ReadLimits {
    fn default() -> Self {
        ReadLimits { depth: Limits::default().depth, memory: 16 << 20, expansion: 12 }
    }
}

/// Maximum depth of nested types. Unlike graphs they are read, compared and printed recursively.
pub const TYPE_LEVELS: u32 = 64;

impl Model {
    /// Reads a model. Names and payloads are not copied: the model keeps `source`.
    ///
    /// # Errors
    ///
    /// The bytes are not a protobuf message, or exceed the limits.
    pub fn read(source: Buffer) -> Result<Model, Error> {
        Model::read_with(source, ReadLimits::default())
    }

    /// Reads a model with explicit limits.
    ///
    /// # Errors
    ///
    /// See [`read`](Model::read).
    pub fn read_with(source: Buffer, limits: ReadLimits) -> Result<Model, Error> {
        let bytes = source.as_slice();
        let mut model = Model::default();
        let id = model.sources.push(source.clone());
        let build = Builder::new(&mut model, id, bytes, limits);
        let mut reading = Reading::new(build);
        let limits = Limits { depth: limits.depth };
        let result = reading
            .model(Reader::with_limits(bytes, limits))
            .and_then(|()| reading.bind_everything());
        result.map_err(|failure| {
            let place = find_place::<proto::ModelProto>(bytes, failure.offset, limits);
            Error::new(failure.kind, failure.offset, place)
        })?;
        Ok(model)
    }
}

type Waiting<'a> = (GraphId, Reader<'a, proto::GraphProto>);

pub(crate) struct Reading<'m, 'a> {
    build: Builder<'m, 'a>,
    /// Graphs whose enclosing graph is not complete yet.
    waiting: VecDeque<Waiting<'a>>,
}

impl<'m, 'a> Reading<'m, 'a> {
    pub(crate) fn new(build: Builder<'m, 'a>) -> Self {
        Reading { build, waiting: VecDeque::new() }
    }

    fn model(&mut self, reader: Reader<'a, proto::ModelProto>) -> Built {
        for field in reader {
            match field? {
                ModelField::IrVersion(version) => {
                    self.build.model.header.ir_version = Some(version)
                }
                ModelField::ProducerName(text) => {
                    self.build.model.header.producer_name = Some(self.build.name(text)?)
                }
                ModelField::ProducerVersion(text) => {
                    self.build.model.header.producer_version = Some(self.build.name(text)?)
                }
                ModelField::Domain(text) => {
                    self.build.model.header.domain = Some(self.build.name(text)?)
                }
                ModelField::ModelVersion(version) => {
                    self.build.model.header.model_version = Some(version)
                }
                ModelField::DocString(text) => {
                    self.build.model.header.doc_string = Some(self.build.name(text)?)
                }
                ModelField::Graph(graph) => {
                    let id = match self.build.model.main {
                        Some(id) => id,
                        None => self.build.model.graphs.push(Graph::default()),
                    };
                    self.build.model.main = Some(id);
                    self.graph(id, graph)?;
                }
                ModelField::OpsetImport(import) => {
                    let import = self.opset(import)?;
                    self.build.model.header.opset_import.push(import);
                }
                ModelField::MetadataProps(entry) => {
                    let entry = self.entry(entry)?;
                    self.build.model.header.metadata_props.push(entry);
                }
                ModelField::TrainingInfo(info) => {
                    let info = self.training_info(info)?;
                    self.build.model.training_info.push(info);
                }
                ModelField::Functions(function) => {
                    let function = self.function(function)?;
                    self.build.model.functions.push(function);
                }
                ModelField::Configuration(message) => {
                    self.build.count::<Span>(message.offset())?;
                    let span = self.build.span(message.slice());
                    self.build.model.header.configuration.push(span);
                }
                ModelField::Unknown(unknown) => {
                    let unknown = self.unknown(unknown)?;
                    self.build.model.header.unknown.push(unknown);
                }
            }
        }
        Ok(())
    }

    /// Reserves capacity for a graph. Counts its fields first, which is cheap as nested messages
    /// are skipped.
    fn reserve(&mut self, id: GraphId, reader: Reader<'a, proto::GraphProto>) {
        /// Size in bytes below which growing step by step costs less than counting.
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
        // A malicious file of empty messages may have more of them than may be read.
        let most = self.build.memory_left as usize / size_of::<Node>();
        let graph = &mut self.build.model.graphs[id];
        graph.nodes.reserve(nodes.min(most));
        graph.initializers.reserve(initializers.min(most));
        graph.value_info.reserve(infos.min(most));
        self.build.model.nodes.reserve(nodes.min(most));
        // The numbers of attributes, inputs and outputs are unknown, so usual ones are assumed,
        // limited by the size of the message. Reserving an eighth more is free, as untouched memory
        // is not committed; reserving too little means moving everything.
        let most = most.min(reader.slice().bytes.len() / 32);
        let nodes = (nodes + nodes / 8).min(most);
        let initializers = initializers.min(most);
        let values = nodes + initializers + 64;
        let names = nodes + values;
        self.build.model.attributes.reserve(2 * nodes);
        self.build.model.attribute_lists.reserve(2 * nodes);
        self.build.model.output_lists.reserve(nodes);
        self.build.model.uses.reserve(2 * nodes);
        self.build.model.values.reserve(values);
        self.build.model.names.reserve(names);
        self.build.scopes.reserve(self.build.model.names.len() + names);
    }

    fn graph(&mut self, id: GraphId, reader: Reader<'a, proto::GraphProto>) -> Built {
        self.reserve(id, reader);
        for field in reader {
            match field? {
                GraphField::Node(node) => self.node(id, node)?,
                GraphField::Name(text) => {
                    self.build.model.graphs[id].name = Some(self.build.name(text)?)
                }
                GraphField::Initializer(tensor) => {
                    let offset = tensor.offset();
                    let mut proto = TensorProto::default();
                    self.tensor(&mut proto, tensor)?;
                    self.build.add_initializer(id, proto, offset)?;
                }
                GraphField::DocString(text) => {
                    self.build.model.graphs[id].doc_string = Some(self.build.name(text)?)
                }
                GraphField::Input(info) => {
                    let offset = info.offset();
                    let info = self.value_info(info)?;
                    self.build.add_graph_input(id, info, offset)?;
                }
                GraphField::Output(info) => {
                    let info = self.value_info(info)?;
                    self.build.model.graphs[id].outputs.push(info);
                }
                GraphField::ValueInfo(info) => {
                    let info = self.value_info(info)?;
                    self.build.model.graphs[id].value_info.push(info);
                }
                GraphField::QuantizationAnnotation(annotation) => {
                    let annotation = self.annotation(annotation)?;
                    self.build.model.graphs[id].quantization_annotation.push(annotation);
                }
                GraphField::SparseInitializer(tensor) => {
                    let offset = tensor.offset();
                    let tensor = self.sparse_tensor(tensor)?;
                    self.build.add_sparse_initializer(id, tensor, offset)?;
                }
                GraphField::MetadataProps(entry) => {
                    let entry = self.entry(entry)?;
                    self.build.model.graphs[id].metadata_props.push(entry);
                }
                GraphField::Unknown(unknown) => {
                    let unknown = self.unknown(unknown)?;
                    self.build.model.graphs[id].unknown.push(unknown);
                }
            }
        }
        self.build.intern_pending();
        Ok(())
    }

    fn node(&mut self, graph: GraphId, reader: Reader<'a, proto::NodeProto>) -> Built {
        self.build.count::<(Node, NodeId)>(reader.offset())?;
        let id: NodeId = Id::new(self.build.model.nodes.len());
        let mut node = Node {
            inputs: Range::empty(self.build.model.uses.len() as u32),
            outputs: Range::empty(self.build.model.output_lists.len() as u32),
            attributes: Range::empty(self.build.model.attribute_lists.len() as u32),
            ..Node::new(graph)
        };
        let mut name = None;
        for field in reader {
            match field? {
                NodeField::Input(text) => {
                    node.inputs.len += 1;
                    self.build.push_use(graph, id, Text::Here(text))?;
                }
                NodeField::Output(text) => {
                    let index = node.outputs.len;
                    node.outputs.len += 1;
                    self.build.push_output(graph, id, index, Text::Here(text))?;
                }
                NodeField::Name(text) => name = Some(text),
                NodeField::OpType(text) => node.op_type = Some(self.build.frequent_name(text)?),
                NodeField::Attribute(attribute) => {
                    node.attributes.len += 1;
                    let offset = attribute.offset();
                    let attribute = self.attribute(attribute, Some((graph, id)))?;
                    let attribute = self.build.add_attribute(attribute, offset)?;
                    self.build.model.attribute_lists.push(attribute);
                }
                NodeField::DocString(text) => {
                    let doc_string = Some(self.build.name(text)?);
                    self.extras(&mut node, text.offset)?.doc_string = doc_string;
                }
                NodeField::Domain(text) => node.domain = Some(self.build.name(text)?),
                NodeField::Overload(text) => node.overload = Some(self.build.name(text)?),
                NodeField::MetadataProps(entry) => {
                    let offset = entry.offset();
                    let entry = self.entry(entry)?;
                    self.extras(&mut node, offset)?.metadata_props.push(entry);
                }
                NodeField::DeviceConfigurations(message) => {
                    self.build.count::<Span>(message.offset())?;
                    let span = self.build.span(message.slice());
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
        self.build.model.nodes.push(node);
        self.build.model.graphs[graph].nodes.push(id);
        if let Some(name) = name {
            self.build.name_node(id, Text::Here(name))?;
        }
        Ok(())
    }

    /// Returns the rare fields of a node, which are added if it has none.
    #[cold]
    fn extras(&mut self, node: &mut Node, offset: u64) -> Built<&mut NodeExtras> {
        let id = match node.extras {
            Some(id) => id,
            None => {
                self.build.count::<NodeExtras>(offset)?;
                self.build.model.extras.push(NodeExtras::default())
            }
        };
        node.extras = Some(id);
        Ok(&mut self.build.model.extras[id])
    }

    /// Reads an attribute; `place` is the node that it belongs to and the graph of that node, which
    /// its own graphs see.
    fn attribute(
        &mut self,
        reader: Reader<'a, proto::AttributeProto>,
        place: Option<(GraphId, NodeId)>,
    ) -> Built<Attribute> {
        let offset = reader.offset();
        let mut attribute = Attribute::default();
        /// Returns the value field of a type, which is added if absent, so that repeated fields are
        /// merged.
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
                AttributeField::Name(text) => {
                    attribute.name = Some(self.build.frequent_name(text)?)
                }
                AttributeField::F(number) => *value!(Float, 0.0) = number,
                AttributeField::I(number) => *value!(Int, 0) = number,
                AttributeField::S(text) => {
                    let span = self.build.span(text);
                    *value!(String, span) = span;
                }
                AttributeField::T(tensor) => self.tensor(value!(Tensor, Box::default()), tensor)?,
                AttributeField::G(graph) => {
                    self.build.count::<(Graph, Waiting<'_>)>(graph.offset())?;
                    let id = *value!(Graph, self.nested_graph(place));
                    self.waiting.push_back((id, graph));
                }
                // A block without numbers adds no value field.
                AttributeField::Floats(chunk) if chunk.is_empty() => {}
                AttributeField::Ints(chunk) if chunk.is_empty() => {}
                AttributeField::Floats(chunk) => {
                    self.collect(value!(Floats, Vec::new()), chunk, offset)?
                }
                AttributeField::Ints(chunk) => {
                    self.collect(value!(Ints, Vec::new()), chunk, offset)?
                }
                AttributeField::Strings(text) => {
                    self.build.count::<Span>(text.offset)?;
                    let span = self.build.span(text);
                    value!(Strings, Vec::new()).push(span);
                }
                AttributeField::Tensors(tensor) => {
                    let mut proto = TensorProto::default();
                    self.tensor(&mut proto, tensor)?;
                    value!(Tensors, Vec::new()).push(proto);
                }
                AttributeField::Graphs(graph) => {
                    self.build.count::<(Graph, Waiting<'_>)>(graph.offset())?;
                    let id = self.nested_graph(place);
                    self.waiting.push_back((id, graph));
                    value!(Graphs, Vec::new()).push(id);
                }
                AttributeField::DocString(text) => {
                    let doc_string = Some(self.build.name(text)?);
                    self.attribute_extras(&mut attribute, offset)?.doc_string = doc_string;
                }
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
                    let name = self.build.name(text)?;
                    self.attribute_extras(&mut attribute, offset)?;
                    attribute.set_ref_attr_name(name, text.bytes);
                }
                AttributeField::SparseTensor(tensor) => {
                    **value!(SparseTensor, Box::default()) = self.sparse_tensor(tensor)?;
                }
                AttributeField::SparseTensors(tensor) => {
                    let tensor = self.sparse_tensor(tensor)?;
                    value!(SparseTensors, Vec::new()).push(tensor);
                }
                AttributeField::Unknown(unknown) => {
                    let unknown = self.unknown(unknown)?;
                    let extras = self.attribute_extras(&mut attribute, offset)?;
                    extras.unknown.push(unknown);
                }
            }
        }
        if attribute.values.len() > 1 {
            // Counts twice the length, as the list grows by doubling.
            let most = 2 * attribute.values.len();
            self.build.count_list::<AttributeValue>(most, offset)?;
        }
        Ok(attribute)
    }

    /// Returns the rare parts of an attribute, which are added if it has none.
    #[cold]
    fn attribute_extras<'n>(
        &mut self,
        attribute: &'n mut Attribute,
        offset: u64,
    ) -> Built<&'n mut AttributeExtras> {
        if attribute.extras.is_none() {
            self.build.count::<AttributeExtras>(offset)?;
        }
        Ok(attribute.extras_mut())
    }

    fn nested_graph(&mut self, place: Option<(GraphId, NodeId)>) -> GraphId {
        self.build.model.graphs.push(Graph {
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
        self.build.count::<TensorProto>(offset)?;
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
                    proto.name = Some(self.build.name(text)?);
                    continue;
                }
                TensorField::RawData(bytes) => {
                    proto.raw_data = Some(self.build.span(bytes));
                    continue;
                }
                TensorField::DocString(text) => {
                    proto.doc_string = Some(self.build.name(text)?);
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
            // Adjacent records of one typed list become one run.
            match proto.typed.last_mut() {
                Some(run)
                    if run.number == number && run.records.offset + run.records.len == start =>
                {
                    run.records.len += rest.offset() - start;
                }
                _ => {
                    self.build.count::<TypedRun>(start)?;
                    let records = Span {
                        source: self.build.source,
                        offset: start,
                        len: rest.offset() - start,
                    };
                    proto.typed.push(TypedRun { number, records });
                }
            }
        }
        // Sorted by field number, like in a written file.
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
        self.build.count::<SparseTensorProto>(offset)?;
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
        self.build.count::<ValueInfo>(reader.offset())?;
        let mut info = ValueInfo::default();
        for field in reader {
            match field? {
                ValueInfoField::Name(text) => info.name = Some(self.build.name(text)?),
                ValueInfoField::Type(ty) => {
                    self.type_proto(info.ty.get_or_insert_default(), ty, TYPE_LEVELS)?
                }
                ValueInfoField::DocString(text) => info.doc_string = Some(self.build.name(text)?),
                ValueInfoField::MetadataProps(entry) => {
                    info.metadata_props.push(self.entry(entry)?)
                }
                ValueInfoField::Unknown(unknown) => info.unknown.push(self.unknown(unknown)?),
            }
        }
        Ok(info)
    }

    /// Reads a type with at most `levels` nested levels.
    fn type_proto(
        &mut self,
        proto: &mut TypeProto,
        reader: Reader<'a, proto::TypeProto>,
        levels: u32,
    ) -> Built {
        let offset = reader.offset();
        self.build.count::<TypeProto>(offset)?;
        let Some(levels) = levels.checked_sub(1) else {
            let kind = ErrorKind::TypeTooDeep { limit: TYPE_LEVELS };
            return Err(Failure::new(kind, offset));
        };
        /// Returns the fields of a type variant. The last variant wins; a repeated variant is
        /// merged.
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
                            OpaqueTypeField::Domain(text) => *domain = Some(self.build.name(text)?),
                            OpaqueTypeField::Name(text) => *name = Some(self.build.name(text)?),
                            OpaqueTypeField::Unknown(field) => unknown.push(self.unknown(field)?),
                        }
                    }
                }
                TypeField::Denotation(text) => proto.denotation = Some(self.build.name(text)?),
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
                    // Also counts the `Dim` that type inference makes of it.
                    self.build.count::<(DimProto, crate::Dim)>(reader.offset())?;
                    let mut dim = DimProto::default();
                    for field in reader {
                        match field? {
                            DimensionField::DimValue(value) => {
                                dim.value = Some(DimValue::Value(value))
                            }
                            DimensionField::DimParam(text) => {
                                dim.value = Some(DimValue::Param(self.build.name(text)?))
                            }
                            DimensionField::Denotation(text) => {
                                dim.denotation = Some(self.build.name(text)?)
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
        self.build.count::<(Function, Graph)>(reader.offset())?;
        let body = self.build.model.graphs.push(Graph::default());
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
                FunctionField::Name(text) => function.name = Some(self.build.name(text)?),
                FunctionField::Input(text) => {
                    self.build.count::<ValueInfo>(text.offset)?;
                    let info =
                        ValueInfo { name: Some(self.build.name(text)?), ..ValueInfo::default() };
                    self.build.add_graph_input(body, info, text.offset)?;
                }
                FunctionField::Output(text) => {
                    self.build.count::<(ValueInfo, Value)>(text.offset)?;
                    let name = Some(self.build.name(text)?);
                    self.build.model.graphs[body]
                        .outputs
                        .push(ValueInfo { name, ..ValueInfo::default() });
                }
                FunctionField::Attribute(text) => {
                    self.build.count::<Symbol>(text.offset)?;
                    function.attributes.push(self.build.name(text)?)
                }
                FunctionField::Node(node) => self.node(body, node)?,
                FunctionField::DocString(text) => {
                    function.doc_string = Some(self.build.name(text)?)
                }
                FunctionField::OpsetImport(import) => {
                    function.opset_import.push(self.opset(import)?)
                }
                FunctionField::Domain(text) => function.domain = Some(self.build.name(text)?),
                FunctionField::AttributeProto(attribute) => {
                    self.build.count::<Attribute>(attribute.offset())?;
                    function.attribute_protos.push(self.attribute(attribute, None)?);
                }
                FunctionField::ValueInfo(info) => {
                    let info = self.value_info(info)?;
                    self.build.model.graphs[body].value_info.push(info);
                }
                FunctionField::Overload(text) => function.overload = Some(self.build.name(text)?),
                FunctionField::MetadataProps(entry) => {
                    function.metadata_props.push(self.entry(entry)?)
                }
                FunctionField::Unknown(unknown) => function.unknown.push(self.unknown(unknown)?),
            }
        }
        self.build.intern_pending();
        Ok(function)
    }

    fn training_info(
        &mut self,
        reader: Reader<'a, proto::TrainingInfoProto>,
    ) -> Built<TrainingInfo> {
        self.build.count::<TrainingInfo>(reader.offset())?;
        let mut info = TrainingInfo::default();
        for field in reader {
            match field? {
                TrainingInfoField::Initialization(graph) => {
                    self.build.count::<(Graph, Waiting<'_>)>(graph.offset())?;
                    let id = *info
                        .initialization
                        .get_or_insert_with(|| self.build.model.graphs.push(Graph::default()));
                    self.waiting.push_back((id, graph));
                }
                TrainingInfoField::Algorithm(graph) => {
                    self.build.count::<(Graph, Waiting<'_>)>(graph.offset())?;
                    // A training step sees the values of the main graph.
                    let parent = self.build.model.main;
                    let id = *info.algorithm.get_or_insert_with(|| {
                        self.build.model.graphs.push(Graph { parent, ..Graph::default() })
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
        self.build.count::<OperatorSetId>(reader.offset())?;
        let mut import = OperatorSetId::default();
        for field in reader {
            match field? {
                OperatorSetIdField::Domain(text) => import.domain = Some(self.build.name(text)?),
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
        self.build.count::<TensorAnnotation>(reader.offset())?;
        let mut annotation = TensorAnnotation::default();
        for field in reader {
            match field? {
                TensorAnnotationField::TensorName(text) => {
                    annotation.tensor_name = Some(self.build.name(text)?)
                }
                TensorAnnotationField::QuantParameterTensorNames(entry) => {
                    annotation.quant_parameter_tensor_names.push(self.entry(entry)?);
                }
                TensorAnnotationField::Unknown(unknown) => {
                    annotation.unknown.push(self.unknown(unknown)?);
                }
            }
        }
        Ok(annotation)
    }

    fn entry(&mut self, reader: Reader<'a, proto::StringStringEntryProto>) -> Built<Entry> {
        self.build.count::<Entry>(reader.offset())?;
        let mut entry = Entry::default();
        for field in reader {
            match field? {
                StringStringEntryField::Key(text) => entry.key = Some(self.build.name(text)?),
                StringStringEntryField::Value(text) => entry.value = Some(self.build.name(text)?),
                StringStringEntryField::Unknown(unknown) => {
                    entry.unknown.push(self.unknown(unknown)?)
                }
            }
        }
        Ok(entry)
    }

    /// Converts a field outside the table, to be preserved.
    fn unknown(&mut self, field: proto::Unknown<'_>) -> Built<UnknownField> {
        self.build.count::<UnknownField>(field.record.offset)?;
        Ok(UnknownField { after: field.after, record: self.build.span(field.record) })
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
        self.build.count_list::<S::Item>(list.len() - before, offset)
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
                self.build.count::<i64>(offset)?;
            }
        }
        Ok(())
    }

    /// Reads the queued graphs and binds the inputs of all nodes.
    fn bind_everything(&mut self) -> Built {
        // All graphs read so far are complete.
        self.build.bind();
        while let Some((id, graph)) = self.waiting.pop_front() {
            self.graph(id, graph)?;
            self.build.bind();
        }
        self.build.bind_infos();
        Ok(())
    }
}

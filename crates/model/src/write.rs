//! Writes the graph to bytes: known fields in ascending order, unknown ones at their old positions.

use std::io;

use sardonyx_proto::{
    self as proto, Encode, Encoded, Encoder, Field, attribute, dimension, encode_to_vec, function,
    graph, map_type, model, node, opaque_type, operator_set_id, optional_type, sequence_type,
    sparse_tensor, sparse_tensor_type, string_string_entry, tensor, tensor_annotation,
    tensor_segment, tensor_shape, tensor_type, training_info, type_, value_info,
};

use crate::attribute::{Attribute, AttributeValue};
use crate::constant::{SparseTensorProto, TensorProto};
use crate::graph::{
    Entry, Function, Model, OperatorSetId, TensorAnnotation, Texts, TrainingInfo, ValueInfo,
};
use crate::ids::{GraphId, NodeId};
use crate::names::Symbol;
use crate::source::{Span, Unknowns};
use crate::type_proto::{DimValue, ShapeProto, TypeKind, TypeProto};

impl Model {
    /// Encodes the model as a file, in pieces: payloads are not copied.
    pub fn to_encoded(&self) -> Encoded<'_> {
        Encoded::new(self)
    }

    /// Encodes the model as a file, in one vector.
    pub fn to_bytes(&self) -> Vec<u8> {
        self.to_encoded().into_vec()
    }

    /// Writes the model to `sink`, payloads directly from their sources. Returns the number of
    /// bytes.
    ///
    /// # Errors
    ///
    /// An error of `sink`.
    pub fn write_to(&self, sink: &mut dyn io::Write) -> io::Result<u64> {
        self.to_encoded().write_to(sink)
    }
}

/// ModelPart of a model that is a message of its own.
#[derive(Debug, Clone, Copy)]
pub enum ModelPart<'m> {
    /// A graph, as a `GraphProto`.
    Graph(GraphId),
    /// A function, as a `FunctionProto`.
    Function(&'m Function),
    /// A node, as a `NodeProto`.
    Node(NodeId),
    /// An attribute, as an `AttributeProto`.
    Attribute(&'m Attribute),
    /// A tensor, as a `TensorProto`.
    Tensor(&'m TensorProto),
    /// A sparse tensor, as a `SparseTensorProto`.
    SparseTensor(&'m SparseTensorProto),
    /// A type, as a `TypeProto`.
    Type(&'m TypeProto),
}

impl Model {
    /// Encodes a part of the model as its message.
    pub fn part_to_bytes(&self, part: ModelPart<'_>) -> Vec<u8> {
        encode_to_vec(&PartOf { model: self, part })
    }
}

struct PartOf<'m> {
    model: &'m Model,
    part: ModelPart<'m>,
}

impl Encode for PartOf<'_> {
    fn encode<'a>(&'a self, out: &mut Encoder<'a>) {
        let writer = Writer::new(self.model);
        match self.part {
            ModelPart::Graph(graph) => writer.write_graph(out, graph),
            ModelPart::Function(function) => writer.write_function(out, function),
            ModelPart::Node(node) => writer.write_node(out, node),
            ModelPart::Attribute(attribute) => writer.write_attribute(out, attribute),
            ModelPart::Tensor(tensor) => writer.write_tensor(out, tensor),
            ModelPart::SparseTensor(tensor) => writer.write_sparse(out, tensor),
            ModelPart::Type(ty) => writer.write_type(out, ty),
        }
    }
}

/// Upper estimate of the size in bytes of a typical part in a file.
const BYTES_PER_PART: usize = 32;

/// Writes the parts of a model.
#[derive(Clone, Copy)]
struct Writer<'a> {
    model: &'a Model,
    texts: Texts<'a>,
}

impl<'a> Writer<'a> {
    fn new(model: &'a Model) -> Self {
        Writer { model, texts: model.texts() }
    }
}

/// Writes the fields of one message and inserts the unknown ones between them.
struct Fields<'f, 'a> {
    writer: Writer<'a>,
    out: &'f mut Encoder<'a>,
    unknown: &'f Unknowns,
    /// Number of unknown fields that are written.
    next: usize,
}

impl<'f, 'a> Fields<'f, 'a> {
    fn new(writer: Writer<'a>, out: &'f mut Encoder<'a>, unknown: &'f Unknowns) -> Self {
        Fields { writer, out, unknown, next: 0 }
    }

    fn put_unknowns(&mut self, number: u32) {
        if !self.unknown.is_empty() {
            for record in self.unknown.take_before(number, &mut self.next) {
                self.out.put_records(self.writer.model.bytes(record));
            }
        }
    }

    fn put<F: Field<Codec: proto::Put>>(
        &mut self,
        field: F,
        value: <F::Codec as proto::Put>::Input<'_>,
    ) {
        self.put_unknowns(F::NUMBER);
        self.out.put(field, value);
    }

    fn put_some<F: Field<Codec: proto::Put>>(
        &mut self,
        field: F,
        value: Option<<F::Codec as proto::Put>::Input<'_>>,
    ) {
        if let Some(value) = value {
            self.put(field, value);
        }
    }

    fn put_text<F>(&mut self, field: F, text: Option<Symbol>)
    where
        F: Field<Codec: for<'b> proto::Put<Input<'b> = &'b [u8]>>,
    {
        if let Some(symbol) = text {
            self.put(field, self.writer.texts.text(symbol));
        }
    }

    /// Writes bytes that may be long.
    fn put_payload<F>(&mut self, field: F, bytes: &'a [u8])
    where
        F: Field<Codec: for<'b> proto::Put<Input<'b> = &'b [u8]>>,
    {
        self.put_unknowns(F::NUMBER);
        self.out.put_payload(field, bytes);
    }

    /// Writes a text that may be long, such as documentation.
    fn put_long_text<F>(&mut self, field: F, text: Option<Symbol>)
    where
        F: Field<Codec: for<'b> proto::Put<Input<'b> = &'b [u8]>>,
    {
        if let Some(symbol) = text {
            self.put_payload(field, self.writer.texts.text(symbol));
        }
    }

    fn put_message<F: Field<Codec: proto::MessageCodec>>(
        &mut self,
        field: F,
        body: impl FnOnce(&mut Encoder<'a>),
    ) {
        self.put_unknowns(F::NUMBER);
        self.out.put_message(field, |out| body(out));
    }

    fn put_entries<F: Field<Codec: proto::MessageCodec> + Copy>(
        &mut self,
        field: F,
        entries: &'a [Entry],
    ) {
        for entry in entries {
            let writer = self.writer;
            self.put_message(field, |out| writer.write_entry(out, entry));
        }
    }

    /// Writes messages that are stored as bytes.
    fn put_raw_messages<F: Field<Codec: proto::MessageCodec> + Copy>(
        &mut self,
        field: F,
        messages: &[Span],
    ) {
        for message in messages {
            let bytes = self.writer.model.bytes(*message);
            // The bytes are the content of the message: written unchanged, like a record.
            self.put_message(field, |out| out.put_records(bytes));
        }
    }

    fn finish(mut self) {
        self.put_unknowns(u32::MAX);
    }
}

impl Encode for Model {
    fn encode<'a>(&'a self, out: &mut Encoder<'a>) {
        out.reserve(BYTES_PER_PART * self.part_count());
        let header = &self.header;
        let writer = Writer::new(self);
        let mut fields = Fields::new(writer, out, &header.unknown);
        fields.put_some(model::IrVersion, header.ir_version);
        fields.put_text(model::ProducerName, header.producer_name);
        fields.put_text(model::ProducerVersion, header.producer_version);
        fields.put_text(model::Domain, header.domain);
        fields.put_some(model::ModelVersion, header.model_version);
        fields.put_long_text(model::DocString, header.doc_string);
        if let Some(main) = self.main {
            fields.put_message(model::Graph, |out| writer.write_graph(out, main));
        }
        for import in &header.opset_import {
            fields.put_message(model::OpsetImport, |out| writer.write_opset(out, import));
        }
        fields.put_entries(model::MetadataProps, &header.metadata_props);
        for info in &self.training_info {
            fields.put_message(model::TrainingInfo, |out| writer.write_training_info(out, info));
        }
        for function in &self.functions {
            fields.put_message(model::Functions, |out| writer.write_function(out, function));
        }
        fields.put_raw_messages(model::Configuration, &header.configuration);
        fields.finish();
    }
}

impl<'a> Writer<'a> {
    fn write_graph(self, out: &mut Encoder<'a>, id: GraphId) {
        let graph = self.model.graph(id);
        let mut fields = Fields::new(self, out, &graph.unknown);
        for node in &graph.nodes {
            fields.put_message(graph::Node, |out| self.write_node(out, *node));
        }
        fields.put_text(graph::Name, graph.name);
        for initializer in &graph.initializers {
            fields
                .put_message(graph::Initializer, |out| self.write_tensor(out, &initializer.tensor));
        }
        fields.put_long_text(graph::DocString, graph.doc_string);
        for info in &graph.inputs {
            fields.put_message(graph::Input, |out| self.write_value_info(out, info));
        }
        for info in &graph.outputs {
            fields.put_message(graph::Output, |out| self.write_value_info(out, info));
        }
        for info in &graph.value_info {
            fields.put_message(graph::ValueInfo, |out| self.write_value_info(out, info));
        }
        for annotation in &graph.quantization_annotation {
            fields.put_message(graph::QuantizationAnnotation, |out| {
                self.write_annotation(out, annotation)
            });
        }
        for sparse in &graph.sparse_initializers {
            fields.put_message(graph::SparseInitializer, |out| {
                self.write_sparse(out, &sparse.tensor)
            });
        }
        fields.put_entries(graph::MetadataProps, &graph.metadata_props);
        fields.finish();
    }

    fn write_node(self, out: &mut Encoder<'a>, id: NodeId) {
        let node = self.model.node(id);
        let extras = self.model.extras(id);
        let none = Unknowns::default();
        let unknown = extras.map_or(&none, |extras| &extras.unknown);
        let mut fields = Fields::new(self, out, unknown);
        let name = |value: Option<crate::ValueId>| {
            value.map_or(&b""[..], |value| self.texts.text(self.model.value(value).name))
        };
        for input in self.model.inputs(id) {
            fields.put(node::Input, name(input));
        }
        for output in self.model.outputs(id) {
            fields.put(node::Output, name(*output));
        }
        fields.put_text(node::Name, node.name);
        fields.put_text(node::OpType, node.op_type);
        for attribute in self.model.attributes(id) {
            fields.put_message(node::Attribute, |out| {
                self.write_attribute(out, self.model.attribute(*attribute))
            });
        }
        fields.put_long_text(node::DocString, extras.and_then(|extras| extras.doc_string));
        fields.put_text(node::Domain, node.domain);
        fields.put_text(node::Overload, node.overload);
        if let Some(extras) = extras {
            fields.put_entries(node::MetadataProps, &extras.metadata_props);
            fields.put_raw_messages(node::DeviceConfigurations, &extras.device_configurations);
        }
        fields.finish();
    }

    fn write_attribute(self, out: &mut Encoder<'a>, attribute: &'a Attribute) {
        let none = Default::default();
        let extras = attribute.extras.as_deref().unwrap_or(&none);
        let mut fields = Fields::new(self, out, &extras.unknown);
        fields.put_text(attribute::Name, attribute.name);
        // Field numbers of values and other fields interleave: 13 lies between `graphs` and `tp`,
        // 20 and 21 before the sparse ones.
        for value in &attribute.values {
            match value {
                AttributeValue::Float(value) => fields.put(attribute::F, *value),
                AttributeValue::Int(value) => fields.put(attribute::I, *value),
                AttributeValue::String(text) => {
                    fields.put_payload(attribute::S, self.model.bytes(*text))
                }
                AttributeValue::Tensor(tensor) => {
                    fields.put_message(attribute::T, |out| self.write_tensor(out, tensor))
                }
                AttributeValue::Graph(graph) => {
                    fields.put_message(attribute::G, |out| self.write_graph(out, *graph))
                }
                AttributeValue::Floats(values) => fields.put(attribute::Floats, values),
                AttributeValue::Ints(values) => fields.put(attribute::Ints, values),
                AttributeValue::Strings(texts) => {
                    for text in texts {
                        fields.put_payload(attribute::Strings, self.model.bytes(*text));
                    }
                }
                AttributeValue::Tensors(tensors) => {
                    for tensor in tensors {
                        fields
                            .put_message(attribute::Tensors, |out| self.write_tensor(out, tensor));
                    }
                }
                AttributeValue::Graphs(graphs) => {
                    for graph in graphs {
                        fields.put_message(attribute::Graphs, |out| self.write_graph(out, *graph));
                    }
                }
                _ => {}
            }
        }
        fields.put_long_text(attribute::DocString, extras.doc_string);
        for value in &attribute.values {
            match value {
                AttributeValue::Type(ty) => {
                    fields.put_message(attribute::Tp, |out| self.write_type(out, ty))
                }
                AttributeValue::Types(types) => {
                    for ty in types {
                        fields.put_message(attribute::TypeProtos, |out| self.write_type(out, ty));
                    }
                }
                _ => {}
            }
        }
        fields.put_some(attribute::Type, attribute.ty);
        if attribute.has_empty_ref_attr_name() {
            fields.put(attribute::RefAttrName, &b""[..]);
        }
        fields.put_text(attribute::RefAttrName, attribute.ref_attr_name());
        for value in &attribute.values {
            match value {
                AttributeValue::SparseTensor(tensor) => {
                    fields
                        .put_message(attribute::SparseTensor, |out| self.write_sparse(out, tensor));
                }
                AttributeValue::SparseTensors(tensors) => {
                    for tensor in tensors {
                        fields.put_message(attribute::SparseTensors, |out| {
                            self.write_sparse(out, tensor)
                        });
                    }
                }
                _ => {}
            }
        }
        fields.finish();
    }

    fn write_tensor(self, out: &mut Encoder<'a>, tensor: &'a TensorProto) {
        let mut fields = Fields::new(self, out, &tensor.unknown);
        fields.put(tensor::Dims, &tensor.dims);
        fields.put_some(tensor::DataType, tensor.data_type);
        if let Some(segment) = &tensor.segment {
            fields.put_message(tensor::Segment, |out| {
                let mut fields = Fields::new(self, out, &segment.unknown);
                fields.put_some(tensor_segment::Begin, segment.begin);
                fields.put_some(tensor_segment::End, segment.end);
                fields.finish();
            });
        }
        let runs = |fields: &mut Fields<'_, 'a>, numbers: std::ops::RangeInclusive<u32>| {
            for run in tensor.typed.iter().filter(|run| numbers.contains(&run.number)) {
                fields.put_unknowns(run.number);
                fields.out.put_records(self.model.bytes(run.records));
            }
        };
        runs(&mut fields, 4..=7);
        fields.put_text(tensor::Name, tensor.name);
        if let Some(raw) = tensor.raw_data {
            fields.put_payload(tensor::RawData, self.model.bytes(raw));
        }
        runs(&mut fields, 10..=11);
        fields.put_long_text(tensor::DocString, tensor.doc_string);
        fields.put_entries(tensor::ExternalData, &tensor.external_data);
        fields.put_some(tensor::DataLocation, tensor.data_location);
        fields.put_entries(tensor::MetadataProps, &tensor.metadata_props);
        fields.finish();
    }

    fn write_sparse(self, out: &mut Encoder<'a>, sparse: &'a SparseTensorProto) {
        let mut fields = Fields::new(self, out, &sparse.unknown);
        if let Some(values) = &sparse.values {
            fields.put_message(sparse_tensor::Values, |out| self.write_tensor(out, values));
        }
        if let Some(indices) = &sparse.indices {
            fields.put_message(sparse_tensor::Indices, |out| self.write_tensor(out, indices));
        }
        fields.put(sparse_tensor::Dims, &sparse.dims);
        fields.finish();
    }

    fn write_value_info(self, out: &mut Encoder<'a>, info: &'a ValueInfo) {
        let mut fields = Fields::new(self, out, &info.unknown);
        fields.put_text(value_info::Name, info.name);
        if let Some(ty) = &info.ty {
            fields.put_message(value_info::Type, |out| self.write_type(out, ty));
        }
        fields.put_long_text(value_info::DocString, info.doc_string);
        fields.put_entries(value_info::MetadataProps, &info.metadata_props);
        fields.finish();
    }

    fn write_type(self, out: &mut Encoder<'a>, ty: &'a TypeProto) {
        let mut fields = Fields::new(self, out, &ty.unknown);
        // Variants with numbers below `denotation`, which is 6; those above follow it.
        match &ty.kind {
            Some(TypeKind::Tensor { elem_type, shape, unknown }) => {
                fields.put_message(type_::TensorType, |out| {
                    let mut fields = Fields::new(self, out, unknown);
                    fields.put_some(tensor_type::ElemType, *elem_type);
                    if let Some(shape) = shape {
                        fields.put_message(tensor_type::Shape, |out| self.write_shape(out, shape));
                    }
                    fields.finish();
                })
            }
            Some(TypeKind::Sequence { elem_type, unknown }) => {
                fields.put_message(type_::SequenceType, |out| {
                    let mut fields = Fields::new(self, out, unknown);
                    if let Some(ty) = elem_type {
                        fields.put_message(sequence_type::ElemType, |out| self.write_type(out, ty));
                    }
                    fields.finish();
                })
            }
            Some(TypeKind::Map { key_type, value_type, unknown }) => {
                fields.put_message(type_::MapType, |out| {
                    let mut fields = Fields::new(self, out, unknown);
                    fields.put_some(map_type::KeyType, *key_type);
                    if let Some(ty) = value_type {
                        fields.put_message(map_type::ValueType, |out| self.write_type(out, ty));
                    }
                    fields.finish();
                })
            }
            _ => {}
        }
        fields.put_text(type_::Denotation, ty.denotation);
        match &ty.kind {
            Some(TypeKind::Opaque { domain, name, unknown }) => {
                fields.put_message(type_::OpaqueType, |out| {
                    let mut fields = Fields::new(self, out, unknown);
                    fields.put_text(opaque_type::Domain, *domain);
                    fields.put_text(opaque_type::Name, *name);
                    fields.finish();
                })
            }
            Some(TypeKind::SparseTensor { elem_type, shape, unknown }) => {
                fields.put_message(type_::SparseTensorType, |out| {
                    let mut fields = Fields::new(self, out, unknown);
                    fields.put_some(sparse_tensor_type::ElemType, *elem_type);
                    if let Some(shape) = shape {
                        fields.put_message(sparse_tensor_type::Shape, |out| {
                            self.write_shape(out, shape)
                        });
                    }
                    fields.finish();
                })
            }
            Some(TypeKind::Optional { elem_type, unknown }) => {
                fields.put_message(type_::OptionalType, |out| {
                    let mut fields = Fields::new(self, out, unknown);
                    if let Some(ty) = elem_type {
                        fields.put_message(optional_type::ElemType, |out| self.write_type(out, ty));
                    }
                    fields.finish();
                })
            }
            _ => {}
        }
        fields.finish();
    }

    fn write_shape(self, out: &mut Encoder<'a>, shape: &'a ShapeProto) {
        let mut fields = Fields::new(self, out, &shape.unknown);
        for dim in &shape.dims {
            fields.put_message(tensor_shape::Dim, |out| {
                let mut fields = Fields::new(self, out, &dim.unknown);
                match dim.value {
                    Some(DimValue::Value(value)) => fields.put(dimension::DimValue, value),
                    Some(DimValue::Param(name)) => {
                        fields.put(dimension::DimParam, self.texts.text(name))
                    }
                    None => {}
                }
                fields.put_text(dimension::Denotation, dim.denotation);
                fields.finish();
            });
        }
        fields.finish();
    }

    fn write_function(self, out: &mut Encoder<'a>, function: &'a Function) {
        let body = self.model.graph(function.body);
        let mut fields = Fields::new(self, out, &function.unknown);
        fields.put_text(function::Name, function.name);
        for info in &body.inputs {
            fields.put_text(function::Input, info.name);
        }
        for info in &body.outputs {
            fields.put_text(function::Output, info.name);
        }
        for name in &function.attributes {
            fields.put_text(function::Attribute, Some(*name));
        }
        for node in &body.nodes {
            fields.put_message(function::Node, |out| self.write_node(out, *node));
        }
        fields.put_long_text(function::DocString, function.doc_string);
        for import in &function.opset_import {
            fields.put_message(function::OpsetImport, |out| self.write_opset(out, import));
        }
        fields.put_text(function::Domain, function.domain);
        for attribute in &function.attribute_protos {
            fields
                .put_message(function::AttributeProto, |out| self.write_attribute(out, attribute));
        }
        for info in &body.value_info {
            fields.put_message(function::ValueInfo, |out| self.write_value_info(out, info));
        }
        fields.put_text(function::Overload, function.overload);
        fields.put_entries(function::MetadataProps, &function.metadata_props);
        fields.finish();
    }

    fn write_training_info(self, out: &mut Encoder<'a>, info: &'a TrainingInfo) {
        let mut fields = Fields::new(self, out, &info.unknown);
        if let Some(graph) = info.initialization {
            fields.put_message(training_info::Initialization, |out| self.write_graph(out, graph));
        }
        if let Some(graph) = info.algorithm {
            fields.put_message(training_info::Algorithm, |out| self.write_graph(out, graph));
        }
        fields.put_entries(training_info::InitializationBinding, &info.initialization_binding);
        fields.put_entries(training_info::UpdateBinding, &info.update_binding);
        fields.finish();
    }

    fn write_opset(self, out: &mut Encoder<'a>, import: &'a OperatorSetId) {
        let mut fields = Fields::new(self, out, &import.unknown);
        fields.put_text(operator_set_id::Domain, import.domain);
        fields.put_some(operator_set_id::Version, import.version);
        fields.finish();
    }

    fn write_annotation(self, out: &mut Encoder<'a>, annotation: &'a TensorAnnotation) {
        let mut fields = Fields::new(self, out, &annotation.unknown);
        fields.put_text(tensor_annotation::TensorName, annotation.tensor_name);
        fields.put_entries(
            tensor_annotation::QuantParameterTensorNames,
            &annotation.quant_parameter_tensor_names,
        );
        fields.finish();
    }

    fn write_entry(self, out: &mut Encoder<'a>, entry: &'a Entry) {
        let mut fields = Fields::new(self, out, &entry.unknown);
        fields.put_text(string_string_entry::Key, entry.key);
        fields.put_long_text(string_string_entry::Value, entry.value);
        fields.finish();
    }
}

#[cfg(test)]
mod tests {
    use sardonyx_tensor::Buffer;

    use super::*;

    /// Builds a message with every field that a model can hold, along the table, with unknown
    /// fields after each known one.
    fn full(def: &proto::MessageDef, depth: usize) -> Vec<u8> {
        let mut bytes = Vec::new();
        fn varint(bytes: &mut Vec<u8>, mut value: u64) {
            while value >= 0x80 {
                bytes.push(value as u8 | 0x80);
                value >>= 7;
            }
            bytes.push(value as u8);
        }
        let mut oneof_done = false;
        for field in def.fields {
            if field.label == proto::Label::OneOf && std::mem::replace(&mut oneof_done, true) {
                continue;
            }
            let times = if matches!(field.label, proto::Label::Repeated) { 2 } else { 1 };
            for time in 0..times {
                let (wire, content) = match (field.kind, field.label) {
                    (_, proto::Label::Packed) => (2, [1u8, 0, 0, 0, 1, 0, 0, 0].to_vec()),
                    (proto::FieldKind::Int64 | proto::FieldKind::Uint64, _) => (0, Vec::new()),
                    (proto::FieldKind::Int32 | proto::FieldKind::Enum(_), _) => (0, Vec::new()),
                    (proto::FieldKind::Float, _) => (5, 1.5f32.to_le_bytes().to_vec()),
                    (proto::FieldKind::Double, _) => (1, 1.5f64.to_le_bytes().to_vec()),
                    (proto::FieldKind::Text | proto::FieldKind::Blob, _) => {
                        (2, format!("{}{time}", field.name).into_bytes())
                    }
                    (proto::FieldKind::Message(_), _) if depth == 0 => (2, Vec::new()),
                    (proto::FieldKind::Message(inner), _) => (2, full(inner(), depth - 1)),
                };
                varint(&mut bytes, u64::from(field.number) << 3 | wire);
                match wire {
                    0 => varint(&mut bytes, 3 + time),
                    2 => varint(&mut bytes, content.len() as u64),
                    _ => {}
                }
                bytes.extend(content);
            }
            // Field 999; no message has this field.
            bytes.extend(b"\xb8\x3e\x05");
        }
        bytes
    }

    #[test]
    fn bytes_to_model_to_bytes_loses_nothing() {
        // MODEL-20+-, MODEL-23+-, WIRE-16+, WIRE-18+-, WIRE-20+-, WIRE-33+, SHAPE-01, SHAPE-02-,
        // META-01
        let bytes = full(<proto::ModelProto as proto::MessageType>::DEF, 6);
        let model = Model::read(Buffer::from_vec(bytes.clone())).expect("well-formed");
        let written = model.to_bytes();
        let at = bytes.iter().zip(&written).position(|(a, b)| a != b);
        let place = at.map(|at| {
            proto::find_place::<proto::ModelProto>(&bytes, at as u64, Default::default())
        });
        assert!(bytes == written, "first difference at {at:?} of {}: {place:?}", bytes.len());
        let mut streamed = Vec::new();
        model.write_to(&mut streamed).expect("a vector takes every byte");
        assert!(bytes == streamed);
    }
}

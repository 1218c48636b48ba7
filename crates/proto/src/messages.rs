//! The table: every message of the format and every field, one line each.
//!
//! A line is number, name as a type, name in the format, and codec. `Optional` fields have
//! presence; members of a `OneOf` exclude each other; `Packed` lists are written as one block,
//! `Repeated` numbers with one tag each (either encoding is read for both). Message types that the
//! format nests in another (`TypeProto.Tensor`) have a flat name here. Source: the field table of
//! the standard, release 1.23 (IR version 14).

use crate::enums::{AttributeType, DataLocation, OperatorStatus};
use crate::error::Error;
use crate::kinds::{
    Blob, Double, Enum, FieldCodec, Float, Int32, Int64, Message, OneOf, Optional, Packed,
    Repeated, Text, Uint64,
};
use crate::read::{RawField, Reader, Unknown};
use crate::table::{Field, FieldDef, MessageDef, MessageType, messages};
use crate::write::Encoder;

messages! {
    /// Top-level file object.
    "ModelProto" ModelProto ModelField model {
        1 IrVersion "ir_version" Optional<Int64>,
        2 ProducerName "producer_name" Optional<Text>,
        3 ProducerVersion "producer_version" Optional<Text>,
        4 Domain "domain" Optional<Text>,
        5 ModelVersion "model_version" Optional<Int64>,
        6 DocString "doc_string" Optional<Text>,
        7 Graph "graph" Optional<Message<GraphProto>>,
        8 OpsetImport "opset_import" Repeated<Message<OperatorSetIdProto>>,
        14 MetadataProps "metadata_props" Repeated<Message<StringStringEntryProto>>,
        20 TrainingInfo "training_info" Repeated<Message<TrainingInfoProto>>,
        25 Functions "functions" Repeated<Message<FunctionProto>>,
        26 Configuration "configuration" Repeated<Message<DeviceConfigurationProto>>,
    }
    /// One imported operator set.
    "OperatorSetIdProto" OperatorSetIdProto OperatorSetIdField operator_set_id {
        1 Domain "domain" Optional<Text>,
        2 Version "version" Optional<Int64>,
    }
    /// Graph: nodes, initializers, inputs and outputs.
    "GraphProto" GraphProto GraphField graph {
        1 Node "node" Repeated<Message<NodeProto>>,
        2 Name "name" Optional<Text>,
        5 Initializer "initializer" Repeated<Message<TensorProto>>,
        10 DocString "doc_string" Optional<Text>,
        11 Input "input" Repeated<Message<ValueInfoProto>>,
        12 Output "output" Repeated<Message<ValueInfoProto>>,
        13 ValueInfo "value_info" Repeated<Message<ValueInfoProto>>,
        14 QuantizationAnnotation "quantization_annotation" Repeated<Message<TensorAnnotation>>,
        15 SparseInitializer "sparse_initializer" Repeated<Message<SparseTensorProto>>,
        16 MetadataProps "metadata_props" Repeated<Message<StringStringEntryProto>>,
    }
    /// Call of an operator or a function.
    "NodeProto" NodeProto NodeField node {
        1 Input "input" Repeated<Text>,
        2 Output "output" Repeated<Text>,
        3 Name "name" Optional<Text>,
        4 OpType "op_type" Optional<Text>,
        5 Attribute "attribute" Repeated<Message<AttributeProto>>,
        6 DocString "doc_string" Optional<Text>,
        7 Domain "domain" Optional<Text>,
        8 Overload "overload" Optional<Text>,
        9 MetadataProps "metadata_props" Repeated<Message<StringStringEntryProto>>,
        10 DeviceConfigurations "device_configurations" Repeated<Message<NodeDeviceConfigurationProto>>,
    }
    /// Named attribute of a node.
    "AttributeProto" AttributeProto AttributeField attribute {
        1 Name "name" Optional<Text>,
        2 F "f" Optional<Float>,
        3 I "i" Optional<Int64>,
        4 S "s" Optional<Blob>,
        5 T "t" Optional<Message<TensorProto>>,
        6 G "g" Optional<Message<GraphProto>>,
        7 Floats "floats" Repeated<Float>,
        8 Ints "ints" Repeated<Int64>,
        9 Strings "strings" Repeated<Blob>,
        10 Tensors "tensors" Repeated<Message<TensorProto>>,
        11 Graphs "graphs" Repeated<Message<GraphProto>>,
        13 DocString "doc_string" Optional<Text>,
        14 Tp "tp" Optional<Message<TypeProto>>,
        15 TypeProtos "type_protos" Repeated<Message<TypeProto>>,
        20 Type "type" Optional<Enum<AttributeType>>,
        21 RefAttrName "ref_attr_name" Optional<Text>,
        22 SparseTensor "sparse_tensor" Optional<Message<SparseTensorProto>>,
        23 SparseTensors "sparse_tensors" Repeated<Message<SparseTensorProto>>,
    }
    /// Name, type and shape of a value.
    "ValueInfoProto" ValueInfoProto ValueInfoField value_info {
        1 Name "name" Optional<Text>,
        2 Type "type" Optional<Message<TypeProto>>,
        3 DocString "doc_string" Optional<Text>,
        4 MetadataProps "metadata_props" Repeated<Message<StringStringEntryProto>>,
    }
    /// Values of a tensor, in the message or in a file.
    "TensorProto" TensorProto TensorField tensor {
        1 Dims "dims" Repeated<Int64>,
        2 DataType "data_type" Optional<Int32>,
        3 Segment "segment" Optional<Message<TensorSegment>>,
        4 FloatData "float_data" Packed<Float>,
        5 Int32Data "int32_data" Packed<Int32>,
        6 StringData "string_data" Repeated<Blob>,
        7 Int64Data "int64_data" Packed<Int64>,
        8 Name "name" Optional<Text>,
        9 RawData "raw_data" Optional<Blob>,
        10 DoubleData "double_data" Packed<Double>,
        11 Uint64Data "uint64_data" Packed<Uint64>,
        12 DocString "doc_string" Optional<Text>,
        13 ExternalData "external_data" Repeated<Message<StringStringEntryProto>>,
        14 DataLocation "data_location" Optional<Enum<DataLocation>>,
        16 MetadataProps "metadata_props" Repeated<Message<StringStringEntryProto>>,
    }
    /// Bounds of a chunk of a tensor.
    "TensorProto.Segment" TensorSegment TensorSegmentField tensor_segment {
        1 Begin "begin" Optional<Int64>,
        2 End "end" Optional<Int64>,
    }
    /// Values of a sparse tensor.
    "SparseTensorProto" SparseTensorProto SparseTensorField sparse_tensor {
        1 Values "values" Optional<Message<TensorProto>>,
        2 Indices "indices" Optional<Message<TensorProto>>,
        3 Dims "dims" Repeated<Int64>,
    }
    /// Dimensions of a tensor type.
    "TensorShapeProto" TensorShapeProto TensorShapeField tensor_shape {
        1 Dim "dim" Repeated<Message<Dimension>>,
    }
    /// One dimension.
    "TensorShapeProto.Dimension" Dimension DimensionField dimension {
        1 DimValue "dim_value" OneOf<Int64>,
        2 DimParam "dim_param" OneOf<Text>,
        3 Denotation "denotation" Optional<Text>,
    }
    /// Type of a value.
    "TypeProto" TypeProto TypeField type_ {
        1 TensorType "tensor_type" OneOf<Message<TensorTypeProto>>,
        4 SequenceType "sequence_type" OneOf<Message<SequenceTypeProto>>,
        5 MapType "map_type" OneOf<Message<MapTypeProto>>,
        6 Denotation "denotation" Optional<Text>,
        7 OpaqueType "opaque_type" OneOf<Message<OpaqueTypeProto>>,
        8 SparseTensorType "sparse_tensor_type" OneOf<Message<SparseTensorTypeProto>>,
        9 OptionalType "optional_type" OneOf<Message<OptionalTypeProto>>,
    }
    /// One alternative of `TypeProto`.
    "TypeProto.Tensor" TensorTypeProto TensorTypeField tensor_type {
        1 ElemType "elem_type" Optional<Int32>,
        2 Shape "shape" Optional<Message<TensorShapeProto>>,
    }
    /// One alternative of `TypeProto`.
    "TypeProto.Sequence" SequenceTypeProto SequenceTypeField sequence_type {
        1 ElemType "elem_type" Optional<Message<TypeProto>>,
    }
    /// One alternative of `TypeProto`.
    "TypeProto.Map" MapTypeProto MapTypeField map_type {
        1 KeyType "key_type" Optional<Int32>,
        2 ValueType "value_type" Optional<Message<TypeProto>>,
    }
    /// One alternative of `TypeProto`.
    "TypeProto.Optional" OptionalTypeProto OptionalTypeField optional_type {
        1 ElemType "elem_type" Optional<Message<TypeProto>>,
    }
    /// One alternative of `TypeProto`.
    "TypeProto.SparseTensor" SparseTensorTypeProto SparseTensorTypeField sparse_tensor_type {
        1 ElemType "elem_type" Optional<Int32>,
        2 Shape "shape" Optional<Message<TensorShapeProto>>,
    }
    /// One alternative of `TypeProto`.
    "TypeProto.Opaque" OpaqueTypeProto OpaqueTypeField opaque_type {
        1 Domain "domain" Optional<Text>,
        2 Name "name" Optional<Text>,
    }
    /// Model-local function.
    "FunctionProto" FunctionProto FunctionField function {
        1 Name "name" Optional<Text>,
        4 Input "input" Repeated<Text>,
        5 Output "output" Repeated<Text>,
        6 Attribute "attribute" Repeated<Text>,
        7 Node "node" Repeated<Message<NodeProto>>,
        8 DocString "doc_string" Optional<Text>,
        9 OpsetImport "opset_import" Repeated<Message<OperatorSetIdProto>>,
        10 Domain "domain" Optional<Text>,
        11 AttributeProto "attribute_proto" Repeated<Message<AttributeProto>>,
        12 ValueInfo "value_info" Repeated<Message<ValueInfoProto>>,
        13 Overload "overload" Optional<Text>,
        14 MetadataProps "metadata_props" Repeated<Message<StringStringEntryProto>>,
    }
    /// Training algorithm of a model.
    "TrainingInfoProto" TrainingInfoProto TrainingInfoField training_info {
        1 Initialization "initialization" Optional<Message<GraphProto>>,
        2 Algorithm "algorithm" Optional<Message<GraphProto>>,
        3 InitializationBinding "initialization_binding" Repeated<Message<StringStringEntryProto>>,
        4 UpdateBinding "update_binding" Repeated<Message<StringStringEntryProto>>,
    }
    /// Entry of a map from strings to strings.
    "StringStringEntryProto" StringStringEntryProto StringStringEntryField string_string_entry {
        1 Key "key" Optional<Text>,
        2 Value "value" Optional<Text>,
    }
    /// Quantization parameters of one tensor.
    "TensorAnnotation" TensorAnnotation TensorAnnotationField tensor_annotation {
        1 TensorName "tensor_name" Optional<Text>,
        2 QuantParameterTensorNames "quant_parameter_tensor_names" Repeated<Message<StringStringEntryProto>>,
    }
    /// Multi-device configuration of a model.
    "DeviceConfigurationProto" DeviceConfigurationProto DeviceConfigurationField device_configuration {
        1 Name "name" Optional<Text>,
        2 NumDevices "num_devices" Optional<Int32>,
        3 Device "device" Repeated<Text>,
    }
    /// Multi-device annotation of a node.
    "NodeDeviceConfigurationProto" NodeDeviceConfigurationProto NodeDeviceConfigurationField node_device_configuration {
        1 ConfigurationId "configuration_id" Optional<Text>,
        2 ShardingSpec "sharding_spec" Repeated<Message<ShardingSpecProto>>,
        3 PipelineStage "pipeline_stage" Optional<Int32>,
    }
    /// Sharding of one tensor.
    "ShardingSpecProto" ShardingSpecProto ShardingSpecField sharding_spec {
        1 TensorName "tensor_name" Optional<Text>,
        2 Device "device" Repeated<Int64>,
        3 IndexToDeviceGroupMap "index_to_device_group_map" Repeated<Message<IntIntListEntryProto>>,
        4 ShardedDim "sharded_dim" Repeated<Message<ShardedDimProto>>,
    }
    /// Entry of a map from an id to a list of devices.
    "IntIntListEntryProto" IntIntListEntryProto IntIntListEntryField int_int_list_entry {
        1 Key "key" Optional<Int64>,
        2 Value "value" Repeated<Int64>,
    }
    /// Sharding of one axis.
    "ShardedDimProto" ShardedDimProto ShardedDimField sharded_dim {
        1 Axis "axis" Optional<Int64>,
        2 SimpleSharding "simple_sharding" Repeated<Message<SimpleShardedDimProto>>,
    }
    /// Division of N blocks into M shards.
    "SimpleShardedDimProto" SimpleShardedDimProto SimpleShardedDimField simple_sharded_dim {
        1 DimValue "dim_value" OneOf<Int64>,
        2 DimParam "dim_param" OneOf<Text>,
        3 NumShards "num_shards" Optional<Int64>,
    }
    /// Operator set document (top-level file object).
    "OperatorSetProto" OperatorSetProto OperatorSetField operator_set {
        1 Magic "magic" Optional<Text>,
        2 IrVersion "ir_version" Optional<Int64>,
        3 IrVersionPrerelease "ir_version_prerelease" Optional<Text>,
        4 Domain "domain" Optional<Text>,
        5 OpsetVersion "opset_version" Optional<Int64>,
        6 DocString "doc_string" Optional<Text>,
        7 IrBuildMetadata "ir_build_metadata" Optional<Text>,
        8 Operator "operator" Repeated<Message<OperatorProto>>,
        9 Functions "functions" Repeated<Message<FunctionProto>>,
    }
    /// Operator declaration.
    "OperatorProto" OperatorProto OperatorField operator {
        1 OpType "op_type" Optional<Text>,
        2 SinceVersion "since_version" Optional<Int64>,
        3 Status "status" Optional<Enum<OperatorStatus>>,
        10 DocString "doc_string" Optional<Text>,
    }
    /// Sequence value (test data files).
    "SequenceProto" SequenceProto SequenceField sequence {
        1 Name "name" Optional<Text>,
        2 ElemType "elem_type" Optional<Int32>,
        3 TensorValues "tensor_values" Repeated<Message<TensorProto>>,
        4 SparseTensorValues "sparse_tensor_values" Repeated<Message<SparseTensorProto>>,
        5 SequenceValues "sequence_values" Repeated<Message<SequenceProto>>,
        6 MapValues "map_values" Repeated<Message<MapProto>>,
        7 OptionalValues "optional_values" Repeated<Message<OptionalProto>>,
    }
    /// Map value (test data files).
    "MapProto" MapProto MapField map {
        1 Name "name" Optional<Text>,
        2 KeyType "key_type" Optional<Int32>,
        3 Keys "keys" Repeated<Int64>,
        4 StringKeys "string_keys" Repeated<Blob>,
        5 Values "values" Optional<Message<SequenceProto>>,
    }
    /// Optional value (test data files).
    "OptionalProto" OptionalProto OptionalField optional {
        1 Name "name" Optional<Text>,
        2 ElemType "elem_type" Optional<Int32>,
        3 TensorValue "tensor_value" Optional<Message<TensorProto>>,
        4 SparseTensorValue "sparse_tensor_value" Optional<Message<SparseTensorProto>>,
        5 SequenceValue "sequence_value" Optional<Message<SequenceProto>>,
        6 MapValue "map_value" Optional<Message<MapProto>>,
        7 OptionalValue "optional_value" Optional<Message<OptionalProto>>,
    }
}

//! Annotations of a model for devices: its configurations, and the annotations of nodes for one.
//! The model stores the messages as bytes, as few callers need them; they are read here.

use std::collections::BTreeMap;

use sardonyx_model::{Model, NodeId, Span};
use sardonyx_proto::{
    DeviceConfigurationField, DeviceConfigurationProto, IntIntListEntryField,
    NodeDeviceConfigurationField, NodeDeviceConfigurationProto, Reader, ShardedDimField,
    ShardedDimProto, ShardingSpecField, ShardingSpecProto, SimpleShardedDimField,
    SimpleShardedDimProto, WireType, push_bytes, push_tag, push_varint,
};
use sardonyx_tensor::Buffer;

/// Configuration of devices.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Configuration<'m> {
    /// Name of the configuration; empty if it has none.
    pub name: &'m [u8],
    /// Number of devices, if it is given.
    pub num_devices: Option<i64>,
    /// Names of devices.
    pub devices: Vec<&'m [u8]>,
}

/// Annotation of a node for the devices of a configuration.
#[derive(Debug, Clone, Default)]
pub struct NodeAnnotation<'m> {
    /// Name of the configuration; empty if it is not given.
    pub configuration: &'m [u8],
    /// Specifications of tensors.
    pub specs: Vec<ShardingSpec<'m>>,
    /// Pipeline stage.
    pub stage: Option<i64>,
}

/// Specification of the way in which a tensor is split or replicated.
#[derive(Debug, Clone, Default)]
pub struct ShardingSpec<'m> {
    /// Name of the tensor; empty if it is not given.
    pub tensor: &'m [u8],
    /// Device or key of `groups` for each shard.
    pub devices: Vec<i64>,
    /// Groups of devices, by key.
    pub groups: BTreeMap<i64, Vec<i64>>,
    /// Axes that are split. The outermost for the order of shards is the first.
    pub dims: Vec<ShardedDim<'m>>,
}

/// Division of an axis.
#[derive(Debug, Clone, Default)]
pub struct ShardedDim<'m> {
    /// Axis; a negative one counts from the end.
    pub axis: Option<i64>,
    /// Factors of the axis, the outermost first; mostly one.
    pub factors: Vec<SimpleShardedDim<'m>>,
}

/// Factor of an axis.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SimpleShardedDim<'m> {
    /// Size of the factor, if it is given.
    pub size: Option<FactorSize<'m>>,
    /// Number of parts.
    pub num_shards: Option<i64>,
}

/// Size of a factor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FactorSize<'m> {
    /// Number.
    Value(i64),
    /// Symbol.
    Param(&'m [u8]),
}

/// Reads the configurations of a model, in order.
pub fn configurations(model: &Model) -> Vec<Configuration<'_>> {
    let spans = model.header.configuration.iter();
    spans.map(|span| configuration(model.bytes(*span))).collect()
}

/// Reads the message of a configuration.
pub(crate) fn configuration(bytes: &[u8]) -> Configuration<'_> {
    let mut found = Configuration { name: b"", num_devices: None, devices: Vec::new() };
    let reader = Reader::<DeviceConfigurationProto>::new(bytes);
    for field in reader.map_while(Result::ok) {
        match field {
            DeviceConfigurationField::Name(text) => found.name = text.bytes,
            DeviceConfigurationField::NumDevices(number) => {
                found.num_devices = Some(i64::from(number));
            }
            DeviceConfigurationField::Device(name) => found.devices.push(name.bytes),
            DeviceConfigurationField::Unknown(_) => {}
        }
    }
    found
}

/// Reads the annotations of a node, an item for each configuration that it refers to.
pub fn annotations(model: &Model, node: NodeId) -> impl Iterator<Item = NodeAnnotation<'_>> {
    let extras = model.extras(node).into_iter();
    extras.flat_map(|extras| &extras.device_configurations).map(|span| annotation(model, *span))
}

/// Reads the message of an annotation.
pub(crate) fn annotation(model: &Model, span: Span) -> NodeAnnotation<'_> {
    let mut found = NodeAnnotation::default();
    let reader = Reader::<NodeDeviceConfigurationProto>::new(model.bytes(span));
    for field in reader.map_while(Result::ok) {
        match field {
            NodeDeviceConfigurationField::ConfigurationId(text) => found.configuration = text.bytes,
            NodeDeviceConfigurationField::ShardingSpec(reader) => {
                found.specs.push(read_spec(reader))
            }
            NodeDeviceConfigurationField::PipelineStage(stage) => {
                found.stage = Some(i64::from(stage));
            }
            NodeDeviceConfigurationField::Unknown(_) => {}
        }
    }
    found
}

fn read_spec<'m>(reader: Reader<'m, ShardingSpecProto>) -> ShardingSpec<'m> {
    let mut found = ShardingSpec::default();
    for field in reader.map_while(Result::ok) {
        match field {
            ShardingSpecField::TensorName(text) => found.tensor = text.bytes,
            ShardingSpecField::Device(chunk) => {
                // Broken records were found when the model was read.
                let _ = chunk.decode_into(&mut found.devices);
            }
            ShardingSpecField::IndexToDeviceGroupMap(entry) => {
                let (mut key, mut group) = (0, Vec::new());
                for field in entry.map_while(Result::ok) {
                    match field {
                        IntIntListEntryField::Key(number) => key = number,
                        IntIntListEntryField::Value(chunk) => {
                            let _ = chunk.decode_into(&mut group);
                        }
                        IntIntListEntryField::Unknown(_) => {}
                    }
                }
                found.groups.insert(key, group);
            }
            ShardingSpecField::ShardedDim(reader) => found.dims.push(read_dim(reader)),
            ShardingSpecField::Unknown(_) => {}
        }
    }
    found
}

fn read_dim<'m>(reader: Reader<'m, ShardedDimProto>) -> ShardedDim<'m> {
    let mut found = ShardedDim::default();
    for field in reader.map_while(Result::ok) {
        match field {
            ShardedDimField::Axis(number) => found.axis = Some(number),
            ShardedDimField::SimpleSharding(reader) => found.factors.push(read_factor(reader)),
            ShardedDimField::Unknown(_) => {}
        }
    }
    found
}

fn read_factor<'m>(reader: Reader<'m, SimpleShardedDimProto>) -> SimpleShardedDim<'m> {
    let mut found = SimpleShardedDim::default();
    for field in reader.map_while(Result::ok) {
        match field {
            // The fields are alternatives, of which the last one counts.
            SimpleShardedDimField::DimValue(number) => {
                found.size = Some(FactorSize::Value(number));
            }
            SimpleShardedDimField::DimParam(text) => {
                found.size = Some(FactorSize::Param(text.bytes));
            }
            SimpleShardedDimField::NumShards(number) => found.num_shards = Some(number),
            SimpleShardedDimField::Unknown(_) => {}
        }
    }
    found
}

impl NodeAnnotation<'_> {
    /// Encodes the message.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = Vec::new();
        push_bytes(&mut out, 1, self.configuration);
        for spec in &self.specs {
            push_bytes(&mut out, 2, &spec.to_bytes());
        }
        if let Some(stage) = self.stage {
            push_int(&mut out, 3, stage);
        }
        out
    }
}

impl ShardingSpec<'_> {
    fn to_bytes(&self) -> Vec<u8> {
        let mut out = Vec::new();
        push_bytes(&mut out, 1, self.tensor);
        self.devices.iter().for_each(|device| push_int(&mut out, 2, *device));
        for (key, group) in &self.groups {
            let mut entry = Vec::new();
            push_int(&mut entry, 1, *key);
            group.iter().for_each(|device| push_int(&mut entry, 2, *device));
            push_bytes(&mut out, 3, &entry);
        }
        for dim in &self.dims {
            let mut message = Vec::new();
            if let Some(axis) = dim.axis {
                push_int(&mut message, 1, axis);
            }
            for factor in &dim.factors {
                push_bytes(&mut message, 2, &factor.to_bytes());
            }
            push_bytes(&mut out, 4, &message);
        }
        out
    }
}

impl SimpleShardedDim<'_> {
    fn to_bytes(self) -> Vec<u8> {
        let mut out = Vec::new();
        match self.size {
            Some(FactorSize::Value(size)) => push_int(&mut out, 1, size),
            Some(FactorSize::Param(name)) => push_bytes(&mut out, 2, name),
            None => {}
        }
        if let Some(shards) = self.num_shards {
            push_int(&mut out, 3, shards);
        }
        out
    }
}

fn push_int(out: &mut Vec<u8>, number: u32, value: i64) {
    push_tag(out, number, WireType::Varint);
    push_varint(out, value.cast_unsigned());
}

/// Adds a configuration of `devices` devices to a model.
pub fn add_configuration(model: &mut Model, name: &str, devices: usize) {
    let mut message = Vec::new();
    push_bytes(&mut message, 1, name.as_bytes());
    push_int(&mut message, 2, i64::try_from(devices).unwrap_or(i64::MAX));
    let span = model.add_bytes(Buffer::from_vec(message));
    model.header.configuration.push(span);
}

/// Annotates a node, in place of an annotation for the same configuration.
pub fn annotate_devices(model: &mut Model, node: NodeId, annotation: &NodeAnnotation<'_>) {
    let message = annotation.to_bytes();
    let span = model.add_bytes(Buffer::from_vec(message));
    let spans = model.extras(node).map(|extras| extras.device_configurations.clone());
    let mut spans = spans.unwrap_or_default();
    spans.retain(|span| self::annotation(model, *span).configuration != annotation.configuration);
    spans.push(span);
    model.set_devices(node, spans);
}

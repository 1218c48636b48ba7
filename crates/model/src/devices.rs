//! Device configurations of nodes. The messages stay in the model as bytes; this module changes
//! them.

use std::borrow::Cow;

use sardonyx_tensor::Buffer;

use crate::graph::{Model, NodeExtras};
use crate::ids::NodeId;
use crate::source::Span;

use sardonyx_proto::{
    NodeDeviceConfigurationProto, RawField, Reader, ShardingSpecProto, push_bytes,
};

/// Field numbers of the messages.
const CONFIGURATION_ID: u32 = 1;
const SHARDING_SPEC: u32 = 2;
const PIPELINE_STAGE: u32 = 3;
const TENSOR_NAME: u32 = 1;

/// Configuration of a node for one set of devices.
#[derive(Debug, Clone, Default)]
pub(crate) struct NodeDevices<'a> {
    /// Identifier of the device configuration.
    pub(crate) id: &'a [u8],
    /// Sharding specs, each after the name of its tensor.
    specs: Vec<(Cow<'a, [u8]>, Cow<'a, [u8]>)>,
    /// Record of the pipeline stage.
    stage: Option<&'a [u8]>,
    /// Records of other fields.
    others: Vec<&'a [u8]>,
}

impl<'a> NodeDevices<'a> {
    /// Creates an empty configuration.
    pub(crate) fn new(id: &'a [u8]) -> NodeDevices<'a> {
        NodeDevices { id, ..NodeDevices::default() }
    }

    /// Reads a message up to its end or the first error.
    pub(crate) fn read(bytes: &'a [u8]) -> NodeDevices<'a> {
        let mut devices = NodeDevices::default();
        let mut reader = Reader::<NodeDeviceConfigurationProto>::new(bytes);
        while let Ok(Some(field)) = reader.next_raw() {
            match field.number {
                CONFIGURATION_ID => devices.id = field.content.bytes,
                SHARDING_SPEC => {
                    let spec = field.content.bytes;
                    devices.specs.push((tensor_of(spec).into(), spec.into()));
                }
                PIPELINE_STAGE => devices.stage = Some(field.record.bytes),
                _ => devices.others.push(field.record.bytes),
            }
        }
        devices
    }

    /// Renames tensors. Removes the sharding of tensors for which `name` returns `None`.
    pub(crate) fn rename(&mut self, name: impl Fn(&[u8]) -> Option<Vec<u8>>) {
        self.specs.retain_mut(|(tensor, spec)| {
            let Some(new) = name(tensor) else { return false };
            if new.as_slice() != &**tensor {
                *spec = rename_spec(spec, &new).into();
                *tensor = new.into();
            }
            true
        });
    }

    /// Inherits from the configuration of the call that the node replaces: the stage if it has
    /// none, and the sharding of tensors that the node `touches`. Returns whether anything was
    /// added.
    pub(crate) fn inherit(
        &mut self,
        call: &NodeDevices<'a>,
        touches: impl Fn(&[u8]) -> bool,
    ) -> bool {
        let mut any = self.stage.is_none() && call.stage.is_some();
        self.stage = self.stage.or(call.stage);
        for (tensor, spec) in &call.specs {
            let is_known = self.specs.iter().any(|(known, _)| known == tensor);
            if !is_known && touches(tensor) {
                self.specs.push((tensor.clone(), spec.clone()));
                any = true;
            }
        }
        any
    }

    /// Removes the sharding of tensors that the node does not touch. Returns whether there was any.
    fn retain_specs(&mut self, touches: impl Fn(&[u8]) -> bool) -> bool {
        let before = self.specs.len();
        self.specs.retain(|(tensor, _)| touches(tensor));
        self.specs.len() != before
    }

    /// Encodes the message.
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        push_bytes(&mut bytes, CONFIGURATION_ID, self.id);
        for (_, spec) in &self.specs {
            push_bytes(&mut bytes, SHARDING_SPEC, spec);
        }
        for record in self.stage.iter().chain(&self.others) {
            bytes.extend_from_slice(record);
        }
        bytes
    }
}

impl Model {
    /// Replaces the device configurations of a node, messages of type
    /// `NodeDeviceConfigurationProto`.
    pub fn set_devices(&mut self, node: NodeId, messages: Vec<Span>) {
        match self.extras_mut(node) {
            Some(extras) => extras.device_configurations = messages,
            None => {
                let extras =
                    NodeExtras { device_configurations: messages, ..NodeExtras::default() };
                self.set_extras(node, extras);
            }
        }
    }

    /// Passes the device configurations of `node` on to the nodes that were made for it: they get
    /// its pipeline stages, and each gets the sharding of the tensors that it touches. The sharding
    /// of tensors that no node touches is removed.
    pub fn share_devices(&mut self, node: NodeId, made: impl Iterator<Item = NodeId>) {
        let spans = devices_of(self, node);
        if spans.is_empty() {
            return;
        }
        made.for_each(|made| give_devices(self, &spans, made));
        let mut own: Vec<NodeDevices<'_>> =
            spans.iter().map(|span| NodeDevices::read(self.bytes(*span))).collect();
        let operands = operands(self, node);
        let touches = |tensor: &[u8]| operands.contains(&tensor);
        let changed = own.iter_mut().map(|devices| devices.retain_specs(touches));
        // `fold` rather than `any`, which would stop at the first changed configuration.
        if changed.fold(false, |any, one| any | one) {
            let messages = own.iter().map(NodeDevices::to_bytes).collect();
            set_messages(self, node, messages);
        }
    }
}

/// Replaces the device configurations of a node by encoded messages.
pub(crate) fn set_messages(model: &mut Model, node: NodeId, messages: Vec<Vec<u8>>) {
    let add = |message| model.add_bytes(Buffer::from_vec(message));
    let spans = messages.into_iter().map(add).collect();
    model.set_devices(node, spans);
}

fn devices_of(model: &Model, node: NodeId) -> Vec<Span> {
    let spans = model.extras(node).map(|extras| extras.device_configurations.clone());
    spans.unwrap_or_default()
}

/// Returns the names of a node's inputs and outputs.
fn operands(model: &Model, node: NodeId) -> Vec<&[u8]> {
    let operands = model.inputs(node).chain(model.outputs(node).iter().copied());
    operands.flatten().map(|value| model.text(model.values[value].name)).collect()
}

/// Adds the configurations in `messages` to a node, as far as the node has none of its own and
/// touches the tensors.
pub(crate) fn give_devices(model: &mut Model, messages: &[Span], node: NodeId) {
    let own = devices_of(model, node);
    let mut own: Vec<NodeDevices<'_>> =
        own.iter().map(|span| NodeDevices::read(model.bytes(*span))).collect();
    let operands = operands(model, node);
    let touches = |tensor: &[u8]| operands.contains(&tensor);
    let mut any = false;
    for span in messages {
        let given = NodeDevices::read(model.bytes(*span));
        match own.iter_mut().find(|own| own.id == given.id) {
            Some(own) => any |= own.inherit(&given, touches),
            None => {
                let mut new = NodeDevices::new(given.id);
                if new.inherit(&given, touches) {
                    any = true;
                    own.push(new);
                }
            }
        }
    }
    if any {
        let messages = own.iter().map(NodeDevices::to_bytes).collect();
        set_messages(model, node, messages);
    }
}

fn fields(spec: &[u8]) -> impl Iterator<Item = RawField<'_>> {
    let mut reader = Reader::<ShardingSpecProto>::new(spec);
    std::iter::from_fn(move || reader.next_raw().ok().flatten())
}

/// Returns the name of the sharded tensor.
fn tensor_of(spec: &[u8]) -> &[u8] {
    let names = fields(spec).filter(|field| field.number == TENSOR_NAME);
    names.last().map_or(&[], |field| field.content.bytes)
}

fn rename_spec(spec: &[u8], name: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    push_bytes(&mut bytes, TENSOR_NAME, name);
    for field in fields(spec).filter(|field| field.number != TENSOR_NAME) {
        bytes.extend_from_slice(field.record.bytes);
    }
    bytes
}

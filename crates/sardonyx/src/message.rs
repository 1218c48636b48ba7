//! Reads single protobuf messages, such as a node, a tensor or a function, without a model.
//!
//! The result is a model that has only the message, to be checked ([`Model::check_part`]) or
//! printed ([`PrintOptions::print_message`]); [`infer_node_outputs`] infers the outputs of a single
//! node.
//!
//! ```
//! use sardonyx::{check, tool};
//! use sardonyx::tool::ModelExt;
//! use sardonyx::tool::message::{self, Header, MessagePart};
//!
//! let node = tool::parse_part(tool::TextPart::Node, b"y = Relu <alpha = 1> (x)".to_vec())?;
//! let header = Header { opset_imports: [(String::new(), 21)].into(), ..Header::default() };
//! let model = message::read(&node, MessagePart::Node, &header)?;
//! let report = model.check_part(MessagePart::Node.into(), &check::CheckOptions::new());
//! assert_eq!(report.findings[0].code.name, "unknown-attribute");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! [`PrintOptions::print_message`]: crate::text::PrintOptions::print_message
//! [`infer_node_outputs`]: crate::inference::infer_node_outputs

mod attributes;
mod types;

use std::collections::BTreeMap;

use sardonyx_model::ReadLimits;
use sardonyx_passes::CheckPart;
use sardonyx_proto::{Encode, Encoder, encode_to_vec, graph, model, node, operator_set_id};
use sardonyx_tensor::Buffer;

use crate::error::{Error, ErrorKind};
use crate::load::read_graph;
use crate::model::Model;

pub(crate) use attributes::{attribute_to_bytes, sparse_constant_to_bytes};
pub use attributes::{default_from_bytes, default_to_bytes, read_attribute_type};
pub use sardonyx_proto::AttributeType;
pub use types::{shape_to_bytes, type_to_bytes, types_from_bytes};

/// Type of a protobuf message that can be read without a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum MessagePart {
    /// `GraphProto`.
    Graph,
    /// `FunctionProto`.
    Function,
    /// `NodeProto`.
    Node,
    /// `AttributeProto`.
    Attribute,
    /// `TensorProto`.
    Tensor,
    /// `SparseTensorProto`.
    SparseTensor,
    /// `ValueInfoProto`.
    ValueInfo,
}

impl MessagePart {
    /// Returns the name of the message type in `onnx.proto`.
    pub fn name(self) -> &'static str {
        match self {
            MessagePart::Graph => "GraphProto",
            MessagePart::Function => "FunctionProto",
            MessagePart::Node => "NodeProto",
            MessagePart::Attribute => "AttributeProto",
            MessagePart::Tensor => "TensorProto",
            MessagePart::SparseTensor => "SparseTensorProto",
            MessagePart::ValueInfo => "ValueInfoProto",
        }
    }
}

/// Returns the part of a model to check if the model was read from a message of this type.
impl From<MessagePart> for CheckPart {
    fn from(part: MessagePart) -> CheckPart {
        match part {
            MessagePart::Graph => CheckPart::Graph,
            MessagePart::Function => CheckPart::Functions,
            MessagePart::Node => CheckPart::Nodes,
            MessagePart::Attribute => CheckPart::Attributes,
            MessagePart::Tensor => CheckPart::Initializers,
            MessagePart::SparseTensor => CheckPart::SparseInitializers,
            MessagePart::ValueInfo => CheckPart::Inputs,
        }
    }
}

/// Header fields of a model that the meaning of its nodes and tensors depends on.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Header {
    /// IR version, which is the version of the file format.
    pub ir_version: Option<i64>,
    /// Imported operator set versions by operator domain.
    pub opset_imports: BTreeMap<String, i64>,
}

/// Reads a serialized protobuf message of type `part`, and makes a model with `header` that has
/// only this message.
///
/// # Errors
///
/// [`ErrorKind::Format`] if the bytes are not a message of type `part`, are nested too deeply or
/// are too large.
pub fn read(bytes: &[u8], part: MessagePart, header: &Header) -> Result<Model, Error> {
    match part {
        MessagePart::Function => read_in_model(None, Some(bytes), header),
        _ => read_in_model(Some((part, bytes)), None, header),
    }
}

/// Reads a serialized `GraphProto` and `FunctionProto`, and makes a model with `header`, this main
/// graph and this function.
pub(crate) fn read_with_function(
    graph: &[u8],
    function: &[u8],
    header: &Header,
) -> Result<Model, Error> {
    read_in_model(Some((MessagePart::Graph, graph)), Some(function), header)
}

/// Reads serialized messages by wrapping them in a model: `function` as its only function, and
/// `in_graph` as its main graph or as a part of an empty main graph.
///
/// # Errors
///
/// [`ErrorKind::Format`] like [`read`].
fn read_in_model(
    in_graph: Option<(MessagePart, &[u8])>,
    function: Option<&[u8]>,
    header: &Header,
) -> Result<Model, Error> {
    let message = InModel { in_graph, function, header };
    let mut limits = ReadLimits::default();
    // The message is wrapped in up to 3 others: model, graph and node.
    limits.depth += 3;
    let bytes = Buffer::from_vec(encode_to_vec(&message));
    let graph = read_graph(bytes, limits, true).map_err(|refusal| {
        let part = in_graph.map_or(MessagePart::Function, |(part, _)| part);
        let message = format!("the bytes are not a {}, or are damaged: {refusal}", part.name());
        Error::new(ErrorKind::Format, message)
    })?;
    Ok(Model::in_memory(graph))
}

/// Encodes a model that wraps a message and a function.
struct InModel<'a> {
    /// Message with its type: the main graph, or a message to put into the main graph.
    in_graph: Option<(MessagePart, &'a [u8])>,
    /// Serialized `FunctionProto` to add.
    function: Option<&'a [u8]>,
    header: &'a Header,
}

impl Encode for InModel<'_> {
    fn encode<'a>(&'a self, out: &mut Encoder<'a>) {
        out.put_some(model::IrVersion, self.header.ir_version);
        if let Some((part, bytes)) = self.in_graph {
            let put_part = |out: &mut Encoder<'a>| out.put_records(bytes);
            out.put_message(model::Graph, |out| match part {
                MessagePart::Graph | MessagePart::Function => put_part(out),
                MessagePart::Node => out.put_message(graph::Node, put_part),
                MessagePart::Attribute => {
                    out.put_message(graph::Node, |out| out.put_message(node::Attribute, put_part));
                }
                MessagePart::Tensor => out.put_message(graph::Initializer, put_part),
                MessagePart::SparseTensor => out.put_message(graph::SparseInitializer, put_part),
                MessagePart::ValueInfo => out.put_message(graph::Input, put_part),
            });
        }
        for (domain, version) in &self.header.opset_imports {
            out.put_message(model::OpsetImport, |out| {
                out.put(operator_set_id::Domain, domain.as_bytes());
                out.put(operator_set_id::Version, *version);
            });
        }
        if let Some(function) = self.function {
            out.put_message(model::Functions, |out| out.put_records(function));
        }
    }
}

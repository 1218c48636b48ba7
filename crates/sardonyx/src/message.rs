//! Messages that stand alone: a node, a tensor, a function, as the bytes that they are in a file.
//!
//! A program that has a part of a model, and not the model, reads it here, to check it
//! ([`Model::check_part`]), print it ([`PrintOptions::print_message`]) or infer what comes out of
//! it ([`infer::node_outputs`]).
//!
//! ```
//! use sardonyx::{check, tool};
//! use sardonyx::tool::ModelExt;
//! use sardonyx::tool::message::{self, Header, MessagePart};
//!
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
//! [`infer::node_outputs`]: crate::infer::node_outputs

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

pub(crate) use attributes::{attribute_of_node, sparse_constant};
pub use attributes::{default_from_bytes, default_to_bytes, type_of_attribute};
pub use sardonyx_proto::AttributeType;
pub use types::{shape_to_bytes, type_to_bytes, types_from_bytes};

/// A message that can be read alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum MessagePart {
    /// A `GraphProto`.
    Graph,
    /// A `FunctionProto`.
    Function,
    /// A `NodeProto`.
    Node,
    /// An `AttributeProto`.
    Attribute,
    /// A `TensorProto`.
    Tensor,
    /// A `SparseTensorProto`.
    SparseTensor,
    /// A `ValueInfoProto`.
    ValueInfo,
}

impl MessagePart {
    /// The message, as the standard calls it.
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

/// What is checked of a model that has nothing but this part.
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

/// What a model says that a part of it does not.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Header {
    /// Version of the file format.
    pub ir_version: Option<i64>,
    /// Versions of the operator sets by domain.
    pub opset_imports: BTreeMap<String, i64>,
}

/// Reads a message as the only part of a model with this header.
///
/// # Errors
///
/// [`ErrorKind::Format`] if the bytes are no such message, are nested too deeply or too large.
pub fn read(bytes: &[u8], part: MessagePart, header: &Header) -> Result<Model, Error> {
    match part {
        MessagePart::Function => read_inside(None, Some(bytes), header),
        _ => read_inside(Some((part, bytes)), None, header),
    }
}

/// Reads a graph, and a function that it may call, as a model with this header.
pub(crate) fn read_with_function(
    graph: &[u8],
    function: &[u8],
    header: &Header,
) -> Result<Model, Error> {
    read_inside(Some((MessagePart::Graph, graph)), Some(function), header)
}

fn read_inside(
    in_graph: Option<(MessagePart, &[u8])>,
    function: Option<&[u8]>,
    header: &Header,
) -> Result<Model, Error> {
    let message = InModel { in_graph, function, header };
    let mut limits = ReadLimits::default();
    // The levels around the part.
    limits.depth += 3;
    let bytes = Buffer::from_vec(encode_to_vec(&message));
    let graph = read_graph(bytes, limits, true).map_err(|refusal| {
        let part = in_graph.map_or(MessagePart::Function, |(part, _)| part);
        let message = format!("this is not a {}, or it is damaged: {refusal}", part.name());
        Error::new(ErrorKind::Format, message)
    })?;
    Ok(Model::in_memory(graph))
}

/// Parts of a model, with what it takes to be in one around them.
struct InModel<'a> {
    /// The main graph, or a part of it.
    in_graph: Option<(MessagePart, &'a [u8])>,
    function: Option<&'a [u8]>,
    header: &'a Header,
}

impl Encode for InModel<'_> {
    fn encode<'a>(&'a self, out: &mut Encoder<'a>) {
        out.put_some(model::IrVersion, self.header.ir_version);
        if let Some((part, bytes)) = self.in_graph {
            let ready = |out: &mut Encoder<'a>| out.records(bytes);
            out.message(model::Graph, |out| match part {
                MessagePart::Graph | MessagePart::Function => ready(out),
                MessagePart::Node => out.message(graph::Node, ready),
                MessagePart::Attribute => {
                    out.message(graph::Node, |out| out.message(node::Attribute, ready));
                }
                MessagePart::Tensor => out.message(graph::Initializer, ready),
                MessagePart::SparseTensor => out.message(graph::SparseInitializer, ready),
                MessagePart::ValueInfo => out.message(graph::Input, ready),
            });
        }
        for (domain, version) in &self.header.opset_imports {
            out.message(model::OpsetImport, |out| {
                out.put(operator_set_id::Domain, domain.as_bytes());
                out.put(operator_set_id::Version, *version);
            });
        }
        if let Some(function) = self.function {
            out.message(model::Functions, |out| out.records(function));
        }
    }
}

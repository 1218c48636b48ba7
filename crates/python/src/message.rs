//! Messages as bytes: reading a model, and a part of a model as if it stood in one.

use std::collections::BTreeMap;
use std::sync::Arc;

use pyo3::PyErr;
use pyo3::exceptions::PyValueError;
use pyo3::pybacked::PyBackedBytes;
use sardonyx_model::{Model, ReadLimits};
use sardonyx_proto::{Encode, Encoder, encode_to_vec, graph, model, node, operator_set_id};
use sardonyx_tensor::Buffer;

/// A message that can be given alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    Model,
    Graph,
    Function,
    Node,
    Attribute,
    Tensor,
    SparseTensor,
    ValueInfo,
}

/// What a model says that a part of it does not.
#[derive(Debug, Clone, Default)]
pub(crate) struct Header {
    pub(crate) ir_version: Option<i64>,
    /// Versions by domain.
    pub(crate) opset_imports: BTreeMap<String, i64>,
}

/// Reads a message: a model as it is, a part of one as the only part of a model with this header.
///
/// # Errors
///
/// `ValueError` if the bytes are no such message, are nested too deeply or too large.
pub(crate) fn read(bytes: &[u8], part: Part, header: &Header) -> Result<Model, PyErr> {
    match part {
        // A model keeps its source, and bytes of Python may not outlive the call.
        Part::Model => read_within(Buffer::from_vec(bytes.to_vec()), ReadLimits::default()),
        Part::Function => read_inside(None, Some(bytes), header),
        _ => read_inside(Some((part, bytes)), None, header),
    }
}

/// Reads a function and a graph that calls it as a model with this header.
///
/// # Errors
///
/// See [`read`].
pub(crate) fn read_call(function: &[u8], graph: &[u8], header: &Header) -> Result<Model, PyErr> {
    read_inside(Some((Part::Graph, graph)), Some(function), header)
}

fn read_inside(
    in_graph: Option<(Part, &[u8])>,
    function: Option<&[u8]>,
    header: &Header,
) -> Result<Model, PyErr> {
    let message = InModel { in_graph, function, header };
    let mut limits = ReadLimits::default();
    // The levels around the part.
    limits.depth += 3;
    read_within(Buffer::from_vec(encode_to_vec(&message)), limits)
}

/// Reads a model from bytes that Python keeps, without a copy.
///
/// # Errors
///
/// See [`read`].
pub(crate) fn read_shared(bytes: PyBackedBytes) -> Result<Model, PyErr> {
    read_within(Buffer::from_shared(Arc::new(bytes)), ReadLimits::default())
}

fn read_within(bytes: Buffer, limits: ReadLimits) -> Result<Model, PyErr> {
    Model::read_with(bytes, limits).map_err(|error| {
        PyValueError::new_err(format!("Unable to parse proto from the given bytes: {error}"))
    })
}

/// Parts of a model, with what it takes to be in one around them.
struct InModel<'a> {
    /// The main graph, or a part of it.
    in_graph: Option<(Part, &'a [u8])>,
    function: Option<&'a [u8]>,
    header: &'a Header,
}

impl Encode for InModel<'_> {
    fn encode<'a>(&'a self, out: &mut Encoder<'a>) {
        out.put_some(model::IrVersion, self.header.ir_version);
        if let Some((part, bytes)) = self.in_graph {
            let ready = |out: &mut Encoder<'a>| out.records(bytes);
            out.message(model::Graph, |out| match part {
                Part::Model | Part::Graph | Part::Function => ready(out),
                Part::Node => out.message(graph::Node, ready),
                Part::Attribute => {
                    out.message(graph::Node, |out| out.message(node::Attribute, ready));
                }
                Part::Tensor => out.message(graph::Initializer, ready),
                Part::SparseTensor => out.message(graph::SparseInitializer, ready),
                Part::ValueInfo => out.message(graph::Input, ready),
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

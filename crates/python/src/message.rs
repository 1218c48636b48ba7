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
    // A model keeps its source, and bytes of Python may not outlive the call.
    let (bytes, levels_around) = match part {
        Part::Model => (bytes.to_vec(), 0),
        _ => {
            let message = InModel {
                bytes,
                part,
                header,
            };
            (encode_to_vec(&message), 3)
        }
    };
    let mut limits = ReadLimits::default();
    limits.depth += levels_around;
    read_within(Buffer::from_vec(bytes), limits)
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
        PyValueError::new_err(format!(
            "Unable to parse proto from the given bytes: {error}"
        ))
    })
}

/// A part of a model, with what it takes to be in one around it.
struct InModel<'a> {
    bytes: &'a [u8],
    part: Part,
    header: &'a Header,
}

impl Encode for InModel<'_> {
    fn encode(&self, out: &mut Encoder<'_>) {
        let ready = |out: &mut Encoder<'_>| out.unknown(self.bytes);
        out.put_some(model::IrVersion, self.header.ir_version);
        if self.part != Part::Function {
            out.message(model::Graph, |out| match self.part {
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
        if self.part == Part::Function {
            out.message(model::Functions, ready);
        }
    }
}

//! The graph: one in-memory form of a model for every job.
//!
//! No stability: names and signatures change with any release. Use the crate `sardonyx`.
//!
//! Nodes, values, attributes and graphs live in arenas and are named by typed ids ([`NodeId`],
//! [`ValueId`], …). Names are interned; payloads and long texts stay where they are, as [`Span`]s
//! of reference-counted sources. A value knows what produces it and who uses it; subgraphs see the
//! values around them.
//!
//! ```
//! use sardonyx_model::Model;
//! use sardonyx_tensor::Buffer;
//!
//! let bytes = b"\x08\x0a\x3a\x03\x12\x01g".to_vec(); // ir_version 10, a graph called g
//! let model = Model::read(Buffer::from_vec(bytes.clone()))?;
//! assert_eq!(model.header.ir_version, Some(10));
//! assert_eq!(model.to_bytes(), bytes);
//! # Ok::<(), sardonyx_model::Error>(())
//! ```
//!
//! A model can hold whatever a file can hold, valid or not: duplicate names, cycles, missing
//! inputs, unknown fields. Nothing here judges. Reading and writing loses nothing, presence and
//! unknown fields included.

mod append;
mod attribute;
mod attribute_values;
mod build;
mod constant;
mod devices;
mod dim;
mod domain;
mod edit;
mod error;
mod graph;
mod ids;
mod inline;
mod inner_names;
#[cfg(feature = "serde")]
mod json_form;
mod made;
mod names;
mod own_memory;
mod read;
mod source;
mod tensors;
mod type_proto;
mod types;
mod value_files;
mod write;

pub use attribute::{Attribute, AttributeExtras, AttributeValue, AttributeValues};
pub use attribute_values::{AttrValue, Attributes, Bindings, NodeAttributes};
pub use build::{Builder, Built, Failure, Text};
pub use constant::{
    ConstantError, ExternalData, ExternalReference, NoExternalData, NotStored, Segment,
    SparseTensorProto, StoredValues, TensorProto, TypedRun,
};
pub use dim::{Computed, Dim, Expr, Formula, Formulas};
pub use domain::{normalize_domain, shown_domain};
pub use error::{Error, ErrorKind};
pub use graph::{
    Entry, Function, Graph, Header, Initializer, Model, Node, NodeExtras, OperatorSetId, Producer,
    SparseInitializer, TensorAnnotation, Texts, TrainingInfo, Use, Value, ValueInfo,
};
pub use ids::{Arena, AttributeId, GraphId, Id, NodeId, SourceId, UseId, ValueId};
pub use inline::{Copied, InlineError, Inlined};
pub use made::{MadeFor, MadeNodes, NodeBuilder};
pub use names::Symbol;
pub use read::{ReadLimits, TYPE_LEVELS};
pub use source::{Span, Unknowns};
pub use tensors::{InAttribute, SparsePart, TensorId, path_of_initializer};
pub use type_proto::{DimProto, DimValue, ShapeProto, TypeKind, TypeProto};
pub use types::{Shape, TensorType, Type};
pub use value_files::{read_value, tensor_to_bytes, write_value};
pub use write::Part;

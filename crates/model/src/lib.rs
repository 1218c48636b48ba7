//! The graph: the in-memory form of a model that all other crates use.
//!
//! No stability: names and signatures change with any release. Use the crate `sardonyx`.
//!
//! Nodes, values, attributes and graphs live in arenas and are addressed by typed ids ([`NodeId`],
//! [`ValueId`], …). Names are interned; payloads and long texts are [`Span`]s of reference-counted
//! sources. Each value links to its producer and its uses; subgraphs see the values of enclosing
//! graphs.
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
//! A model can hold the content of any file, valid or not: duplicate names, cycles, missing inputs,
//! unknown fields. This crate does not validate. Reading and writing preserve everything, including
//! presence and unknown fields.

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
mod gather;
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
pub use write::ModelPart;

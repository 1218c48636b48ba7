//! Definitions of all operators, in every version.
//!
//! No stability: names and signatures change with any release. Use the crate `sardonyx`.
//!
//! An operator has one place: a `static` [`OpDef`] in the file of its family. It holds the first
//! version in full and later ones as differences (`facts`), type and shape inference ([`Infer`]),
//! adapters that turn a node of an older version into the newer form ([`Adapt`]), and the
//! operator's function in terms of other operators (`Expand`). `registry::OPERATORS` lists all
//! definitions of the standard; `microsoft` lists those of ONNX Runtime's own domain. Other code
//! reads them through [`Registry`].
//!
//! ```
//! use sardonyx_ops::Registry;
//!
//! let registry = Registry::standard();
//! let concat = registry.schema("", "Concat", 12).expect("Concat exists since opset 1");
//! assert_eq!(concat.since, 11);
//! assert!(concat.attribute("axis").is_some_and(|axis| axis.required));
//! ```
//!
//! Public items form two groups: facts about operators, and the interface through which jobs and
//! the engine use definitions. The form of a definition is private to this crate.
//!
//! This crate is facts. Walking a graph, reacting to an error and running nodes belong to `passes`
//! and `runtime`.

mod adapt;
mod attributes;
mod boundary;
pub mod cost;
mod def;
mod denotation;
mod downward;
mod facts;
mod function;
mod function_text;
mod gradient;
mod infer;
pub mod intern;
mod known;
mod list;
mod meanings;
pub mod operators;
mod registry;
mod rules;
mod schema;
mod sharding;
mod typeset;
mod user;

mod control;
mod image;
mod math;
mod microsoft;
mod ml;
mod nn;
mod optional;
mod quantization;
mod random;
mod reduction;
mod sequence;
mod signal;
mod tensor;
mod text;
mod training;

// Facts about operators, which the crate `sardonyx` re-exports.
pub use def::{OpDef, Version};
pub use function::FunctionVersion;
pub use list::compare_domains;
pub use registry::{DOMAIN_VERSIONS, Registry};
pub use schema::{
    Arity, AttrDefault, AttrType, Attribute, Determinism, Differentiability, Param, Schema, TypeVar,
};
pub use typeset::{TypeSet, UnknownType, read_type, spell};
pub use user::RegistryError;

// Interface through which jobs and the engine use definitions.
pub use adapt::{Adapt, Adapted, Assumption, Refusal, ValueTypes};
pub use attributes::{AttrValue, AttributeView, Attributes};
pub use boundary::Boundary;
pub use def::{Adapter, AdapterFn, Crossing, DiffersFn, InferFn};
pub use denotation::Format;
pub use function::{Call, GraphText};
pub use gradient::{Around, Backward, Derived, Given, GradientFn, scalar};
pub use image::factors::{Resized, resized};
pub use infer::{Demand, Infer, InferError, Inferred, Present, RuleOutcome, Subgraphs};
pub use known::{Dims, Known, MAX_KNOWN};
pub use math::einsum::{Equation, Term};
pub use registry::OpRef;
pub use sequence::items::{MadeSequence, PerItem, append_in_body, make_per_item};
pub use sharding::{
    Axis, Change, Combine, Cut, Factor, Factors, Linear, Operand, Operands, Sizes, SplitFn, Then,
};

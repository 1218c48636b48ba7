//! The operators of the standard, in all of their versions, and those that a program adds.
//!
//! ```
//! use sardonyx::ops::Registry;
//!
//! let registry = Registry::standard();
//! let concat = registry.schema("", "Concat", 12).expect("Concat exists since opset 1");
//! assert_eq!(concat.since, 11);
//! assert!(concat.attribute("axis").is_some_and(|axis| axis.required));
//! ```
//!
//! What is here is promised: schemas, the registry, and what can be asked of an operator. How
//! definitions are written, and what inference and the engine ask them with, is not.

pub use sardonyx_ops::{
    Arity, AttrDefault, AttrType, AttrValue, Attribute, AttributeView, DOMAIN_VERSIONS,
    Determinism, Differentiability, FunctionVersion, OpDef, Param, Registry, RegistryError, Schema,
    TypeSet, TypeVar, UnknownType, Version, compare_domains, intern, read_type, spell,
};

//! Describes the operators of the standard, and has the traits for operators that a program adds.
//!
//! ```
//! use sardonyx::ops::Operator;
//!
//! let concat = Operator::find("", "Concat").expect("an operator of the standard");
//! assert_eq!(concat.version_at(12), Some(11));
//! assert!(concat.has_kernel());
//! ```
//!
//! A program adds an operator of its own with
//! [`SessionBuilder::operator`](crate::SessionBuilder::operator): a closure, or a type that
//! implements [`CustomOperator`].

use std::fmt;

use sardonyx_ops::{OpDef, Registry};

#[doc(inline)]
pub use crate::custom::CustomOperator;
#[doc(inline)]
pub use crate::inference::NodeTypes;
#[doc(inline)]
pub use sardonyx_ops::AttributeView;
#[doc(inline)]
pub use sardonyx_passes::RuleAnswer;
#[doc(inline)]
pub use sardonyx_runtime::{
    EncodedImage, ImageDecoder, OperatorCall, OperatorError, PixelFormat, RequiredFeature,
    UnsupportedOperator,
};

/// Operator of the ONNX standard, in all of its versions.
#[derive(Clone, Copy)]
pub struct Operator(&'static OpDef);

impl Operator {
    /// Iterates over the operators of the ONNX standard, sorted by domain and name.
    pub fn all() -> impl Iterator<Item = Operator> {
        Registry::standard().operators().map(Operator)
    }

    /// Looks up an operator of the ONNX standard; `None` if the standard has no such operator. An
    /// empty domain means `ai.onnx`.
    pub fn find(domain: &str, name: &str) -> Option<Operator> {
        Registry::standard().operator(domain, name).map(Operator)
    }

    /// Returns the domain of the operator; empty for `ai.onnx`.
    pub fn domain(self) -> &'static str {
        self.0.domain
    }

    /// Returns the name of the operator, such as `Conv`.
    pub fn name(self) -> &'static str {
        self.0.name
    }

    /// Returns a description of what the operator computes, in a few sentences.
    pub fn description(self) -> &'static str {
        self.0.about
    }

    /// Iterates over the operator set versions that introduced or changed the operator, ascending.
    pub fn versions(self) -> impl DoubleEndedIterator<Item = u32> {
        self.0.versions().map(|version| version.since)
    }

    /// Returns the operator's version in operator set `opset`: the newest of its
    /// [versions](Operator::versions) up to `opset`; `None` if the operator is newer.
    pub fn version_at(self, opset: u32) -> Option<u32> {
        self.0.version_at(opset)
    }

    /// Whether the engine has a kernel for the operator. Without one, a session computes the
    /// operator by its function, if the standard defines one.
    pub fn has_kernel(self) -> bool {
        let registry = Registry::standard();
        let newest = registry.op_ref(self.0.domain, self.0.name, self.0.newest());
        newest.is_some_and(sardonyx_runtime::has_kernel)
    }
}

impl fmt::Debug for Operator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Operator({})", self.0.full_name())
    }
}

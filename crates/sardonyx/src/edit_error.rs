//! The error of operations that rewrite a model, such as conversion and inlining.

use std::fmt;

use sardonyx_passes::{self as passes, DeriveError, Finding, InlineRefusal};

use crate::error::{Error, ErrorKind};
use crate::model::Model;
use crate::results::InvalidResult;

/// Error of an operation that rewrites a model: [`Model::convert`], [`Model::extract`],
/// [`Model::inline`], [`Model::simplify`], [`Model::strip`], [`Model::add_training`],
/// [`Model::add_gradients`] and [`Model::expand_gradients`]. The model stays unchanged.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum EditError {
    /// An option that does not fit the model or does not exist, such as a target version of an
    /// operator set that was never published.
    Option(String),
    /// An inlining pattern that matches no function of the model.
    UnknownFunction {
        /// Pattern without a match.
        pattern: String,
        /// Name of the model's function that is most similar to the pattern, if one is similar.
        similar: Option<String>,
    },
    /// An inlining pattern that matches no operator of the standard.
    UnknownOperator {
        /// Pattern without a match.
        pattern: String,
        /// Name of the operator that is most similar to the pattern, if one is similar.
        similar: Option<String>,
    },
    /// A name or pattern of a part to extract that no value or node of the model has.
    UnknownValue {
        /// Name or pattern without a match.
        name: String,
        /// Most similar name of a value or node, if one is similar.
        similar: Option<String>,
    },
    /// Inlining would create more nodes than
    /// [`InlineOptions::limit`](crate::edit::InlineOptions::limit) allows.
    TooLarge {
        /// Number of nodes that inlining would create.
        nodes: u64,
        /// Maximum number of nodes that inlining may create.
        limit: u64,
    },
    /// Reason why the selected part cannot be a model of its own.
    NotExtractable(String),
    /// Findings about nodes without an exact equivalent in the target versions of a conversion.
    NotConvertible(Vec<Finding>),
    /// Findings about nodes and values that have no gradient or cannot be trained.
    NotDifferentiable(Vec<Finding>),
    /// Findings about functions and calls that cannot be inlined, such as recursive functions.
    NotInlinable(Vec<Finding>),
    /// Findings because of which a model cannot run, so that it cannot be simplified either.
    NotSimplifiable(Vec<Finding>),
    /// With [`ConvertOptions::like_onnx`](crate::convert::ConvertOptions::like_onnx): a part of the
    /// model that the converter of the `onnx` package cannot represent.
    NotRepresentable(Box<Finding>),
    /// The rewritten model has errors that the original does not have, which is a bug of Sardonyx.
    Invalid(Box<InvalidResult>),
}

impl EditError {
    /// Converts an error of [`Model::convert`] on `model`.
    pub(crate) fn from_conversion(model: &Model, error: passes::ConvertError) -> EditError {
        match error {
            passes::ConvertError::Target(message) => EditError::Option(message),
            passes::ConvertError::Refused(findings) => EditError::NotConvertible(findings),
            passes::ConvertError::NotHeld(finding) => EditError::NotRepresentable(finding),
            passes::ConvertError::Invalid(rejected) => EditError::from_rejected(model, *rejected),
        }
    }

    /// Converts an error of [`Model::inline`] on `model`.
    pub(crate) fn from_inlining(model: &Model, refusal: InlineRefusal) -> EditError {
        match refusal {
            InlineRefusal::Findings(findings) => EditError::NotInlinable(findings),
            InlineRefusal::TooLarge { nodes, limit } => EditError::TooLarge { nodes, limit },
            InlineRefusal::Invalid(rejected) => EditError::from_rejected(model, *rejected),
        }
    }

    /// Converts an error of adding gradients or training steps to `model`.
    pub(crate) fn from_derivation(model: &Model, error: DeriveError) -> EditError {
        match error {
            DeriveError::Option(message) => EditError::Option(message),
            DeriveError::Refused(findings) => EditError::NotDifferentiable(findings),
            DeriveError::Invalid(rejected) => EditError::from_rejected(model, *rejected),
        }
    }

    /// Converts the rejected result of an operation on `model`.
    pub(crate) fn from_rejected(model: &Model, rejected: passes::Rejected) -> EditError {
        EditError::Invalid(Box::new(InvalidResult::new(model, rejected)))
    }

    /// Returns the name of the function, operator or value that is most similar to the unmatched
    /// pattern of this error; `None` for other errors.
    fn similar_name(&self) -> Option<&str> {
        match self {
            EditError::UnknownFunction { similar, .. }
            | EditError::UnknownOperator { similar, .. }
            | EditError::UnknownValue { similar, .. } => similar.as_deref(),
            _ => None,
        }
    }
}

impl fmt::Display for EditError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (rule, findings) = match self {
            EditError::Option(message) => return f.write_str(message),
            EditError::UnknownFunction { pattern, .. } => {
                return write!(f, "no function of the model matches '{pattern}'");
            }
            EditError::UnknownOperator { pattern, .. } => {
                return write!(f, "no operator of the standard matches '{pattern}'");
            }
            EditError::UnknownValue { name, .. } if name.contains('*') => {
                return write!(f, "no value or node of the graph matches '{name}'");
            }
            EditError::UnknownValue { name, .. } => {
                return write!(f, "the graph has no value or node '{name}'");
            }
            EditError::NotExtractable(why) => {
                return write!(f, "the part cannot be extracted: {why}");
            }
            EditError::TooLarge { nodes, limit } => {
                return write!(
                    f,
                    "the function bodies have {nodes} nodes; at most {limit} are allowed"
                );
            }
            EditError::NotRepresentable(finding) => return finding.fmt(f),
            EditError::Invalid(result) => return result.fmt(f),
            EditError::NotConvertible(findings) => ("converted exactly", findings),
            EditError::NotDifferentiable(findings) => ("differentiated", findings),
            EditError::NotInlinable(findings) => ("inlined", findings),
            EditError::NotSimplifiable(findings) => ("simplified", findings),
        };
        write!(f, "the model cannot be {rule}")?;
        findings.iter().try_for_each(|finding| write!(f, "\n{finding}"))
    }
}

impl std::error::Error for EditError {}

impl From<EditError> for Error {
    fn from(error: EditError) -> Error {
        if let EditError::Invalid(result) = error {
            return (*result).into();
        }
        let public = Error::new(ErrorKind::Invalid, error.to_string());
        let public = match error.similar_name() {
            Some(similar) => public.with_help(format!("did you mean {similar}?")),
            None => public,
        };
        public.with_source(error)
    }
}

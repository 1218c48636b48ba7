//! Why a model does not compile, and why a run fails.

use std::fmt;

use sardonyx_model::ConstantError;
use sardonyx_passes::Finding;

use crate::unsupported::UnsupportedOperator;

/// Why no session can be made. More kinds may be added.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum CompileError {
    /// The model contradicts itself or the standard.
    Invalid(Vec<Finding>),
    /// Operators, or types of operators, that this release cannot run. All of them.
    Unsupported(Vec<UnsupportedOperator>),
    /// A constant that cannot be read.
    Constant(ConstantError),
    /// Memory is refused, or a thread cannot be started.
    Resources(String),
    /// An option that does not fit the model.
    Option(String),
}

impl fmt::Display for CompileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CompileError::Invalid(findings) => {
                f.write_str("the model is not valid")?;
                for finding in findings {
                    write!(f, "\n  {finding}")?;
                }
                Ok(())
            }
            CompileError::Unsupported(operators) => {
                f.write_str("the model needs what this release cannot run")?;
                for operator in operators {
                    write!(f, "\n  {operator}")?;
                }
                Ok(())
            }
            CompileError::Constant(error) => error.fmt(f),
            CompileError::Resources(what) | CompileError::Option(what) => f.write_str(what),
        }
    }
}

impl std::error::Error for CompileError {}

/// Why a run fails. More kinds may be added.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum RunError {
    /// An input is missing, unknown, or not of the declared type.
    Input(String),
    /// A node cannot compute its outputs from what it is given.
    Node {
        /// The node of the file, for people.
        place: String,
        /// What is wrong.
        what: String,
    },
    /// Memory is refused.
    Resources(String),
}

impl fmt::Display for RunError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RunError::Input(what) | RunError::Resources(what) => f.write_str(what),
            RunError::Node { place, what } => write!(f, "{place}: {what}"),
        }
    }
}

impl std::error::Error for RunError {}

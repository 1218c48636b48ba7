//! Errors of compilation and of runs.

use std::fmt;

use sardonyx_kernels::conv::ConvError;
use sardonyx_kernels::{Ended, Failure, Panic};
use sardonyx_model::{ConstantError, NodeId};
use sardonyx_passes::{Finding, Resolved};
use sardonyx_tensor::TensorError;

use crate::account::Refused;
use crate::node_error::NodeError;
use crate::stop::Stopped;

/// Reason why a model cannot be compiled. More kinds may be added.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum CompileError {
    /// The model contradicts itself or the standard.
    Invalid(Vec<Finding>),
    /// All operators, or types of operators, that this release cannot run.
    Unsupported(Vec<UnsupportedOperator>),
    /// A constant that cannot be read.
    Constant(ConstantError),
    /// A node that fails while constants are computed, before any run.
    Node(Box<NodeError>),
    /// Memory was refused, or a thread could not be started.
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
                f.write_str("the model uses features that this release does not support")?;
                for operator in operators {
                    write!(f, "\n  {operator}")?;
                }
                Ok(())
            }
            CompileError::Constant(error) => error.fmt(f),
            CompileError::Node(error) => error.fmt(f),
            CompileError::Resources(what) | CompileError::Option(what) => f.write_str(what),
        }
    }
}

impl std::error::Error for CompileError {}

impl From<Vec<Finding>> for CompileError {
    fn from(findings: Vec<Finding>) -> Self {
        CompileError::Invalid(findings)
    }
}

/// Operator that a model uses and that a session cannot run.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct UnsupportedOperator {
    /// Domain of the operator; empty for `ai.onnx`.
    pub domain: String,
    /// Name of the operator.
    pub name: String,
    /// Imported version of the domain's operator set; `None` if the model imports none.
    pub opset: Option<i64>,
    /// Newest known version of the operator set; `None` unless the model imports a newer one.
    pub newest_opset: Option<u32>,
    /// Number of nodes that use the operator.
    pub nodes: usize,
    /// Reason for which the operator cannot run.
    pub why: String,
    /// Description of the first node that uses the operator, such as `node 'conv1' (Conv)`.
    pub place: String,
}

impl UnsupportedOperator {
    /// Returns the name with its domain in front, unless that is `ai.onnx`.
    pub fn full_name(&self) -> String {
        let dot = if self.domain.is_empty() { "" } else { "." };
        format!("{}{dot}{}", self.domain, self.name)
    }
}

impl fmt::Display for UnsupportedOperator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.full_name())?;
        if let Some(opset) = self.opset {
            write!(f, ", opset {opset}")?;
        }
        write!(f, ", {} node{}: {}", self.nodes, if self.nodes == 1 { "" } else { "s" }, self.why)
    }
}

/// Mismatch between the arguments of a run and the model, in the caller's terms.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InputError {
    /// Description of the mismatch.
    pub what: String,
    /// Advice, without the list of inputs.
    pub hint: Option<String>,
    /// List of the model's inputs with their types, on several lines, if the error is about them.
    pub inputs: Option<String>,
}

impl InputError {
    pub(crate) fn new(what: impl Into<String>) -> InputError {
        InputError { what: what.into(), hint: None, inputs: None }
    }
}

impl fmt::Display for InputError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)?;
        let mut start = "\nhelp: ";
        for part in self.hint.iter().chain(&self.inputs) {
            write!(f, "{start}{part}")?;
            start = "\n";
        }
        Ok(())
    }
}

impl std::error::Error for InputError {}

impl From<InputError> for RunError {
    fn from(error: InputError) -> RunError {
        RunError::Input(error)
    }
}

/// Reason why a run fails. More kinds may be added.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum RunError {
    /// An input is missing, unknown, or not of the declared type; an output is unknown or does not
    /// fit its memory.
    Input(InputError),
    /// A node cannot compute its outputs from its inputs, or its memory was refused.
    Node(Box<NodeError>),
    /// Memory that belongs to no single node was refused.
    Resources(String),
    /// The run was stopped early: see [`RunOptions`](crate::RunOptions).
    Stopped(Box<Stopped>),
    /// A panic of the engine, a custom operator or an observer. The run's memory and plan are
    /// dropped; the session can run again.
    Internal(Box<Internal>),
}

/// A panic during a run.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Internal {
    /// Message and place of the panic.
    pub panic: Panic,
    /// Description of the step that ran; `None` before the first.
    pub step: Option<String>,
}

impl fmt::Display for Internal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "internal error: {}", self.panic.what)?;
        match self.places() {
            places if places.is_empty() => Ok(()),
            places => write!(f, " (in {places})"),
        }
    }
}

impl std::error::Error for Internal {}

impl Internal {
    /// Describes the place and step of the panic for a message; empty if neither is known.
    pub fn places(&self) -> String {
        let places = [&self.panic.place, &self.step].into_iter().flatten();
        places.map(String::as_str).collect::<Vec<_>>().join(", ")
    }
}

impl RunError {
    /// Adds the iteration of an enclosing node to the place of the error.
    pub(crate) fn in_iteration(
        mut self,
        resolved: &Resolved,
        around: NodeId,
        iteration: usize,
    ) -> RunError {
        match &mut self {
            RunError::Node(error) => error.add_iteration(resolved, around, iteration),
            RunError::Stopped(stopped) => stopped.add_iteration(resolved, around, iteration),
            RunError::Input(_) | RunError::Resources(_) | RunError::Internal(_) => {}
        }
        self
    }
}

impl fmt::Display for RunError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RunError::Input(error) => error.fmt(f),
            RunError::Resources(what) => f.write_str(what),
            RunError::Node(error) => error.fmt(f),
            RunError::Stopped(stopped) => stopped.fmt(f),
            RunError::Internal(internal) => internal.fmt(f),
        }
    }
}

impl std::error::Error for RunError {}

/// Error of a custom operator or image decoder: any error type, or a text.
pub type OperatorError = Box<dyn std::error::Error + Send + Sync>;

/// Failure of a kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum KernelError {
    /// The kernel cannot compute its outputs: the cause, for a message.
    Failed(String),
    /// The run was cancelled during the kernel; its outputs are incomplete.
    Ended(Ended),
}

impl KernelError {
    /// Converts a failure and describes its operand. A cancelled run stays one.
    pub(crate) fn from_failure<E>(
        failure: Failure<E>,
        describe: impl FnOnce(E) -> String,
    ) -> KernelError {
        match failure {
            Failure::Operand(operand) => KernelError::Failed(describe(operand)),
            Failure::Ended(ended) => KernelError::Ended(ended),
        }
    }
}

impl fmt::Display for KernelError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            KernelError::Failed(what) => f.write_str(what),
            KernelError::Ended(_) => f.write_str("the run was ended"),
        }
    }
}

impl std::error::Error for KernelError {}

impl From<Refused> for KernelError {
    fn from(refused: Refused) -> Self {
        KernelError::Failed(refused.to_string())
    }
}

impl From<TensorError> for KernelError {
    fn from(error: TensorError) -> Self {
        KernelError::Failed(error.to_string())
    }
}

impl From<String> for KernelError {
    fn from(what: String) -> Self {
        KernelError::Failed(what)
    }
}

impl From<Ended> for KernelError {
    fn from(ended: Ended) -> Self {
        KernelError::Ended(ended)
    }
}

impl From<ConvError> for KernelError {
    fn from(error: ConvError) -> Self {
        match error {
            ConvError::Ended(ended) => KernelError::Ended(ended),
            error => KernelError::Failed(error.to_string()),
        }
    }
}

/// Returns a formatted error.
macro_rules! fail {
    ($($arg:tt)*) => { return Err($crate::error::KernelError::Failed(format!($($arg)*)).into()) };
}
pub(crate) use fail;

/// Reason why a node has no kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum BindError {
    /// The operator exists, but not for these types or in this form.
    Unsupported(String),
    /// The node contradicts the standard.
    Invalid(String),
}

impl From<KernelError> for BindError {
    fn from(error: KernelError) -> Self {
        BindError::Invalid(error.to_string())
    }
}

impl From<TensorError> for BindError {
    fn from(error: TensorError) -> Self {
        BindError::Invalid(error.to_string())
    }
}

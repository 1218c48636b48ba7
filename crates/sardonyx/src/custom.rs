//! Operators that a program implements and adds with
//! [`SessionBuilder::operator`](crate::SessionBuilder::operator).

use sardonyx_model as graph;
use sardonyx_ops::{Determinism, Infer, Schema};
use sardonyx_passes::{RuleAnswer, Rules};
use sardonyx_runtime::{CustomKernel, OperatorCall, OperatorError};

use crate::inference::NodeTypes;

/// Operator that a program implements: a function that computes the outputs of a node and,
/// optionally, a rule for their types. A closure that takes an [`OperatorCall`] is an operator
/// without such a rule.
///
/// ```
/// use sardonyx::ops::{CustomOperator, NodeTypes, OperatorCall, OperatorError, RuleAnswer};
/// use sardonyx::{Model, RunOptions, Session, Tensor};
///
/// /// Each element times the attribute `by`.
/// struct Scale;
///
/// impl CustomOperator for Scale {
///     fn run(&self, call: &mut OperatorCall<'_, '_>) -> Result<(), OperatorError> {
///         let by = call.attributes().float("by").ok_or("the attribute 'by' is missing")?;
///         let dims = call.dims(0)?.to_vec();
///         let x = call.slice::<f32>(0)?;
///         let y = call.output_slice::<f32>(0, &dims)?;
///         y.iter_mut().zip(x).for_each(|(y, x)| *y = x * by);
///         Ok(())
///     }
///
///     /// The output is like the input: its memory is planned, and later nodes know its type.
///     fn infer(&self, node: &mut NodeTypes<'_, '_>) -> RuleAnswer {
///         let Some(x) = node.input(0).cloned() else { return RuleAnswer::NoRule };
///         node.set_output(0, x);
///         RuleAnswer::Inferred
///     }
/// }
///
/// let model = Model::from_text(
///     "<ir_version: 10, opset_import: [\"\": 21, \"com.example\": 1]>
///      g (float[N] x) => (float[N] y) {
///          scaled = com.example.Scale <by = 3.0> (x)
///          y = Relu (scaled)
///      }",
/// )?;
/// let session = Session::builder(&model).operator("com.example", "Scale", Scale).build()?;
/// let x = Tensor::from_vec([2], vec![1.5f32, -1.0])?;
/// let outputs = session.run([("x", x)], &RunOptions::default())?;
/// assert_eq!(outputs.tensor("y")?.as_slice::<f32>()?, [4.5, 0.0]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait CustomOperator: Send + Sync {
    /// Computes the outputs of one node. Several threads may call this method at once.
    ///
    /// # Errors
    ///
    /// The reason for which the node cannot be computed. The run then fails with an error of
    /// [`ErrorKind::Run`](crate::ErrorKind::Run), which contains this reason and names the node.
    fn run(&self, call: &mut OperatorCall<'_, '_>) -> Result<(), OperatorError>;

    /// Infers the types of a node's outputs; the shapes may be symbolic. If not implemented, the
    /// outputs have the types that the model declares. An output that operators of the standard
    /// read needs an inferred or declared element type.
    fn infer(&self, node: &mut NodeTypes<'_, '_>) -> RuleAnswer {
        let _ = node;
        RuleAnswer::NoRule
    }

    /// Returns the schema that nodes are checked against: inputs, outputs, attributes with their
    /// defaults, types. The session replaces the schema's domain and name by those under which the
    /// operator is added. If not implemented, all nodes are accepted.
    #[doc(hidden)]
    fn schema(&self) -> Option<Schema> {
        None
    }

    /// Whether equal inputs always give equal outputs. If so, nodes that depend only on constants
    /// are folded when the session is built, and duplicate nodes are merged.
    fn is_deterministic(&self) -> bool {
        true
    }
}

impl<F> CustomOperator for F
where
    F: Fn(&mut OperatorCall<'_, '_>) -> Result<(), OperatorError> + Send + Sync,
{
    fn run(&self, call: &mut OperatorCall<'_, '_>) -> Result<(), OperatorError> {
        self(call)
    }
}

/// Makes the schema under which `operator` is registered. If the operator has no schema, any
/// inputs, outputs and attributes are valid.
pub(crate) fn make_schema(domain: &str, name: &str, operator: &dyn CustomOperator) -> Schema {
    let open = Schema::open(domain, name);
    let determinism = if operator.is_deterministic() {
        Determinism::Deterministic
    } else {
        Determinism::NonDeterministic
    };
    match operator.schema() {
        Some(own) => Schema { domain: open.domain, name: open.name, determinism, ..own },
        None => Schema { determinism, ..open },
    }
}

/// Adapts a [`CustomOperator`] to the traits of kernels and of type inference.
pub(crate) struct Adapter<O>(pub(crate) O);

impl<O: CustomOperator> CustomKernel for Adapter<O> {
    fn run(&self, call: &mut OperatorCall<'_, '_>) -> Result<(), OperatorError> {
        self.0.run(call)
    }
}

impl<O: CustomOperator> Rules for Adapter<O> {
    fn infer(
        &self,
        model: &graph::Model,
        node: graph::NodeId,
        schema: &Schema,
        known: &mut Infer<'_>,
    ) -> RuleAnswer {
        self.0.infer(&mut NodeTypes::new(model, node, schema, known))
    }
}

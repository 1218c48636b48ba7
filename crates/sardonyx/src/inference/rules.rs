//! Inference rules that a program supplies.

use std::fmt;

use sardonyx_model::{self as graph, Dim, NodeId, Type};
use sardonyx_ops::{AttributeView, Infer, InferError, Inferred, Known, Registry, Schema};
use sardonyx_passes as passes;
use sardonyx_tensor::Tensor;

use sardonyx_passes::RuleAnswer;

use crate::message::{attribute_to_bytes, sparse_constant_to_bytes};

/// Type inference rules that a program supplies, which take precedence over rules of the standard.
/// A rule may be called several times for a node, with other input types each time.
///
/// ```
/// use sardonyx::infer::InferOptions;
/// use sardonyx::ops::{NodeTypes, RuleAnswer};
/// use sardonyx::tool::{ModelExt, infer::InferRules};
/// use sardonyx::{DataType, Model, Type};
///
/// struct Halves;
///
/// impl InferRules for Halves {
///     fn infer(&self, node: &mut NodeTypes<'_, '_>) -> RuleAnswer {
///         if node.schema().name != "Relu" {
///             return RuleAnswer::NoRule;
///         }
///         node.set_output(0, Type::unranked(DataType::Float16));
///         RuleAnswer::Inferred
///     }
/// }
///
/// let model = Model::from_text(
///     "<ir_version: 10, opset_import: [\"\": 21]>
///      g (float[N] x) => (y) { y = Relu (x) }",
/// )?;
/// let found = model.infer_with(&InferOptions::new(), Some(&Halves));
/// let ty = found.ty(&model, "y").and_then(Type::as_tensor);
/// assert_eq!(ty.and_then(|ty| ty.elem), Some(DataType::Float16));
/// # Ok::<(), sardonyx::Error>(())
/// ```
pub trait InferRules {
    /// Sets the types of a node's outputs, or returns [`RuleAnswer::NoRule`] for operators that the
    /// program has no rule for.
    fn infer(&self, node: &mut NodeTypes<'_, '_>) -> RuleAnswer;
}

/// Node for which a rule infers output types. Gives access to the node's inputs and attributes, and
/// takes the types of its outputs.
pub struct NodeTypes<'a, 'i> {
    model: &'a graph::Model,
    node: NodeId,
    schema: &'a Schema,
    known: &'a mut Infer<'i>,
}

impl fmt::Debug for NodeTypes<'_, '_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "NodeTypes({})", self.describe())
    }
}

impl<'a, 'i> NodeTypes<'a, 'i> {
    /// Wraps a node for a rule. `known` holds the known types of its inputs and takes those of its
    /// outputs.
    pub(crate) fn new(
        model: &'a graph::Model,
        node: NodeId,
        schema: &'a Schema,
        known: &'a mut Infer<'i>,
    ) -> NodeTypes<'a, 'i> {
        NodeTypes { model, node, schema, known }
    }

    /// Returns the schema of the node's operator, in the operator set version that the model
    /// imports.
    #[doc(hidden)]
    pub fn schema(&self) -> &Schema {
        self.schema
    }

    /// Describes the node by operator, domain and name, such as `node Relu (first)`.
    pub fn describe(&self) -> String {
        let node = self.model.node(self.node);
        let mut words = format!("node {}", self.model.display(node.op_type));
        let domain = self.model.display(node.domain);
        if !domain.is_empty() {
            words += &format!("[{domain}]");
        }
        let name = self.model.display(node.name);
        if !name.is_empty() {
            words += &format!(" ({name})");
        }
        words
    }

    /// Returns the number of the node's inputs, omitted inputs included.
    pub fn input_count(&self) -> usize {
        self.model.inputs(self.node).len()
    }

    /// Whether the node has an input at `index` that is not omitted.
    pub fn has_input(&self, index: usize) -> bool {
        self.known.has_input(index)
    }

    /// Iterates over the node's outputs: `true` for a named output, `false` for an omitted one.
    pub fn outputs(&self) -> impl Iterator<Item = bool> {
        self.model.outputs(self.node).iter().map(Option::is_some)
    }

    /// Returns the type of the node's input at `index`; `None` if the input is omitted or its type
    /// is unknown.
    pub fn input(&self, index: usize) -> Option<&Type> {
        self.known.input(index)
    }

    /// Returns the tensor of the node's input at `index` if the input is a dense constant.
    pub fn constant(&self, index: usize) -> Option<&Tensor> {
        match self.known.known_value(index)? {
            Known::Tensor(tensor) => Some(tensor),
            Known::Ints { .. } => None,
        }
    }

    /// Serializes the node's input at `index` as a `SparseTensorProto`; `None` if the input is not
    /// a sparse initializer.
    #[doc(hidden)]
    pub fn sparse_constant(&self, index: usize) -> Option<Vec<u8>> {
        sparse_constant_to_bytes(self.model, self.model.inputs(self.node).nth(index)??)
    }

    /// Returns the elements of an integer input that is not a constant but has known elements,
    /// perhaps symbolic, such as the output of `Shape`; `None` for other inputs.
    pub fn sizes(&self, index: usize) -> Option<&[Dim]> {
        match self.known.known_value(index)? {
            Known::Tensor(_) => None,
            Known::Ints { values, .. } => Some(values),
        }
    }

    /// Returns the attributes of the node; missing attributes have the defaults of the operator's
    /// schema. In a function body, references to attributes of the function have the values of the
    /// call.
    pub fn attributes(&self) -> AttributeView<'_> {
        self.known.attributes()
    }

    /// Serializes an attribute of the node as an `AttributeProto`; `None` if the node does not have
    /// it. In a function body, a reference to an attribute of the function has the value of the
    /// call.
    #[doc(hidden)]
    pub fn attribute(&self, name: &str) -> Option<Vec<u8>> {
        attribute_to_bytes(self.model, self.node, name, || self.known.attribute(name))
    }

    /// Infers the output types of a subgraph from the types of the subgraph's inputs. `attribute`
    /// is the name of the node attribute that holds the subgraph; the result is empty if the node
    /// has no such attribute.
    ///
    /// # Errors
    ///
    /// A message about a contradiction between types in the subgraph.
    pub fn graph_outputs(
        &self,
        attribute: &str,
        inputs: Vec<Option<Type>>,
    ) -> Result<Vec<Option<Type>>, String> {
        let inputs = inputs.into_iter().map(|ty| Inferred { ty, known: None });
        let inputs: Vec<Inferred> = inputs.collect();
        let found = self.known.subgraph(attribute, &inputs).map_err(to_message)?;
        Ok(found.unwrap_or_default().into_iter().map(|output| output.ty).collect())
    }

    /// Infers the node's output types by the inference rule of another operator or version; empty
    /// if the operator has no such rule.
    ///
    /// # Errors
    ///
    /// A message about an input or attribute of the node that the rule rejects.
    #[doc(hidden)]
    pub fn infer_by_rule(
        &self,
        registry: &Registry,
        domain: &str,
        operator: &str,
        version: u32,
    ) -> Result<Vec<Option<Type>>, String> {
        let schema = registry.schema(domain, operator, version);
        let found = schema.and_then(|schema| registry.definition(schema));
        let rule = found.and_then(|operator| operator.inference_at(version));
        match schema.zip(rule) {
            Some((schema, rule)) => {
                let inferred = self.known.apply_rule_of(schema, rule).map_err(to_message)?;
                Ok(inferred.types.into_vec())
            }
            None => Ok(Vec::new()),
        }
    }

    /// Sets the type of the node's output at `index`. Does nothing if the node omits that output.
    pub fn set_output(&mut self, index: usize, ty: Type) {
        self.known.set(index, ty);
    }
}

/// Converts an inference error to its message.
fn to_message(error: InferError) -> String {
    error.0
}

/// Adapts [`InferRules`] to the trait that the inference pass takes.
pub(super) struct ProgramRules<'r>(pub(super) &'r dyn InferRules);

impl passes::Rules for ProgramRules<'_> {
    fn infer(
        &self,
        model: &graph::Model,
        node: NodeId,
        schema: &Schema,
        known: &mut Infer<'_>,
    ) -> RuleAnswer {
        self.0.infer(&mut NodeTypes::new(model, node, schema, known))
    }
}

//! Rules of the program for operators that it added.

use std::fmt;

use sardonyx_model::{self as graph, Dim, NodeId, Type};
use sardonyx_ops::{AttributeView, Infer, InferError, Inferred, Known, Registry, Schema};
use sardonyx_passes as passes;
use sardonyx_tensor::Tensor;

use sardonyx_passes::RuleAnswer;

use crate::message::{attribute_of_node, sparse_constant};

/// What a program says of the outputs of nodes, before the rules of the standard are asked. One may
/// be asked often for a node, with different types.
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
///         RuleAnswer::Said
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
    /// Says the types of a node's outputs, or that there is no rule for its operator.
    fn infer(&self, node: &mut NodeTypes<'_, '_>) -> RuleAnswer;
}

/// A node whose outputs a rule types: what is known of it, and what is said.
pub struct NodeTypes<'a, 'i> {
    model: &'a graph::Model,
    node: NodeId,
    schema: &'a Schema,
    known: &'a mut Infer<'i>,
}

impl fmt::Debug for NodeTypes<'_, '_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "NodeTypes({})", self.words())
    }
}

impl<'a, 'i> NodeTypes<'a, 'i> {
    pub(crate) fn new(
        model: &'a graph::Model,
        node: NodeId,
        schema: &'a Schema,
        known: &'a mut Infer<'i>,
    ) -> NodeTypes<'a, 'i> {
        NodeTypes { model, node, schema, known }
    }

    /// The version of the operator that it calls.
    #[doc(hidden)]
    pub fn schema(&self) -> &Schema {
        self.schema
    }

    /// The node in words.
    pub fn words(&self) -> String {
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

    /// How many inputs it has, those that are left out counted.
    pub fn input_count(&self) -> usize {
        self.model.inputs(self.node).len()
    }

    /// Whether it has an input.
    pub fn has_input(&self, index: usize) -> bool {
        self.known.has_input(index)
    }

    /// For each output whether it is there; they may be left out, too.
    pub fn outputs(&self) -> impl Iterator<Item = bool> {
        self.model.outputs(self.node).iter().map(Option::is_some)
    }

    /// The type of an input, as far as it is known.
    pub fn input(&self, index: usize) -> Option<&Type> {
        self.known.input(index)
    }

    /// An input that is a constant.
    pub fn constant(&self, index: usize) -> Option<&Tensor> {
        match self.known.known(index)? {
            Known::Tensor(tensor) => Some(tensor),
            Known::Ints { .. } => None,
        }
    }

    /// An input that is a sparse constant, as a `SparseTensorProto`.
    #[doc(hidden)]
    pub fn sparse_constant(&self, index: usize) -> Option<Vec<u8>> {
        sparse_constant(self.model, self.model.inputs(self.node).nth(index)??)
    }

    /// The integers that an input is known to consist of, if it is not a constant: those of a
    /// shape, for instance.
    pub fn sizes(&self, index: usize) -> Option<&[Dim]> {
        match self.known.known(index)? {
            Known::Tensor(_) => None,
            Known::Ints { values, .. } => Some(values),
        }
    }

    /// The attributes that it has, and the defaults of its schema. In a function, what refers to an
    /// attribute of that is what the caller gives.
    pub fn attributes(&self) -> AttributeView<'_> {
        self.known.attributes()
    }

    /// An attribute that it has, as an `AttributeProto`. In a function, what refers to an attribute
    /// of that is what the caller gives.
    #[doc(hidden)]
    pub fn attribute(&self, name: &str) -> Option<Vec<u8>> {
        attribute_of_node(self.model, self.node, name, || self.known.attribute(name))
    }

    /// The types of the outputs of a graph that is an attribute, for types of its inputs; nothing
    /// if it has no such graph.
    ///
    /// # Errors
    ///
    /// What does not fit in the graph, in words.
    pub fn graph_outputs(
        &self,
        attribute: &str,
        inputs: Vec<Option<Type>>,
    ) -> Result<Vec<Option<Type>>, String> {
        let inputs = inputs.into_iter().map(|ty| Inferred { ty, known: None });
        let inputs: Vec<Inferred> = inputs.collect();
        let found = self.known.subgraph(attribute, &inputs).map_err(in_words)?;
        Ok(found.unwrap_or_default().into_iter().map(|output| output.ty).collect())
    }

    /// What the rule of another operator, at a version, says of the outputs; nothing if it has no
    /// rule.
    ///
    /// # Errors
    ///
    /// What does not fit, in words.
    #[doc(hidden)]
    pub fn by_rule_of(
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
                let said = self.known.by_rule_of(schema, rule).map_err(in_words)?;
                Ok(said.types.into_vec())
            }
            None => Ok(Vec::new()),
        }
    }

    /// Says the type of an output. One that the node does not have is passed over.
    pub fn set_output(&mut self, index: usize, ty: Type) {
        self.known.set(index, ty);
    }
}

fn in_words(error: InferError) -> String {
    error.0
}

/// The rules of a program, as inference asks for them.
pub(super) struct OfProgram<'r>(pub(super) &'r dyn InferRules);

impl passes::Rules for OfProgram<'_> {
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

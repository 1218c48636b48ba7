//! Python classes that are passed to inference functions of Python code.

use std::sync::{Arc, Mutex, PoisonError};

use pyo3::exceptions::{PyRuntimeError, PyTypeError};
use pyo3::prelude::*;
use sardonyx::tool::schema::AttrType;

use super::functions::{InferenceLink, NodeFacts};
use super::protos;
use crate::defs::default_value;
use crate::errors::InferenceError;
use crate::items::Items;
use crate::registry::Key;

/// Node whose output types an inference function infers. Made by shape inference only.
#[pyclass(module = "sardonyx.shape_inference", frozen)]
pub(crate) struct InferenceContext {
    /// Facts about the node, as serialized messages.
    facts: NodeFacts,
    /// Serialized TypeProtos of the outputs; empty for an unknown type.
    outputs: Mutex<Vec<Vec<u8>>>,
    /// Connection to the inference thread.
    link: Arc<InferenceLink>,
    /// Nesting depth of the inference function that the context was made for.
    depth: usize,
}

impl InferenceContext {
    /// Makes the context of an inference function at a nesting depth.
    pub(super) fn new(
        facts: NodeFacts,
        link: Arc<InferenceLink>,
        depth: usize,
    ) -> InferenceContext {
        InferenceContext {
            outputs: Mutex::new(vec![Vec::new(); facts.has_output.len()]),
            facts,
            link,
            depth,
        }
    }

    /// Returns the output types that were set, as serialized TypeProtos; empty for an unknown type.
    pub(super) fn outputs(&self) -> Vec<Vec<u8>> {
        self.with_outputs(|outputs| outputs.clone())
    }

    /// Calls `work` with the output types, which are locked meanwhile.
    fn with_outputs<R>(&self, work: impl FnOnce(&mut Vec<Vec<u8>>) -> R) -> R {
        work(&mut self.outputs.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Sets the output types by the inference rule of a standard operator.
    fn apply_rule(&self, py: Python<'_>, key: Key) -> PyResult<()> {
        let inferred = self.link.infer_by_rule(py, self.depth, key)?;
        self.with_outputs(|outputs| {
            for (output, inferred) in outputs.iter_mut().zip(inferred) {
                if !inferred.is_empty() {
                    *output = inferred;
                }
            }
        });
        Ok(())
    }
}

/// Index of an input or output. Anything but an int of 0 or more is a `TypeError`.
struct Index(usize);

impl<'py> FromPyObject<'_, 'py> for Index {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Index> {
        let number = object.extract();
        number.map(Index).map_err(|_| {
            PyTypeError::new_err("the index of an input or output is not an int of 0 or more")
        })
    }
}

/// Converts a fact about an input, such as its type, to a message object of the onnx package;
/// `None` if the fact is unknown.
///
/// # Errors
///
/// `RuntimeError` if the input does not exist.
fn fact_to_python<'py>(
    py: Python<'py>,
    class: &str,
    facts: &[Option<Vec<u8>>],
    Index(index): Index,
) -> PyResult<Option<Bound<'py, PyAny>>> {
    let fact = facts.get(index).ok_or_else(|| index_error("Input", index))?;
    let object = fact.as_ref().map(|bytes| protos::to_python(py, class, bytes));
    object.transpose()
}

/// Makes the exception for the index of an input or output that is out of range.
fn index_error(what: &str, index: usize) -> PyErr {
    PyRuntimeError::new_err(format!("{what} {index} is out of bounds."))
}

#[pymethods]
impl InferenceContext {
    #[new]
    fn refuse_construction() -> PyResult<InferenceContext> {
        Err(PyTypeError::new_err("only shape inference can create an InferenceContext"))
    }

    /// Returns an attribute of the node as an AttributeProto; None if the node does not have it.
    fn get_attribute<'py>(
        &self,
        py: Python<'py>,
        name: &str,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        let found = self.link.query_attribute(py, self.depth, name)?;
        let object = found.map(|bytes| protos::to_python(py, "AttributeProto", &bytes));
        object.transpose()
    }

    /// Returns the number of the node's inputs, omitted ones included.
    fn get_num_inputs(&self) -> usize {
        self.facts.types.len()
    }

    /// Returns the type of an input as a TypeProto; None if it is unknown.
    fn get_input_type<'py>(
        &self,
        py: Python<'py>,
        idx: Index,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        fact_to_python(py, "TypeProto", &self.facts.types, idx)
    }

    /// Whether the node has the input.
    fn has_input(&self, idx: Index) -> bool {
        self.facts.has_input.get(idx.0).copied().unwrap_or(false)
    }

    /// Returns the value of a constant input as a TensorProto; None if it is not constant.
    fn get_input_data<'py>(
        &self,
        py: Python<'py>,
        idx: Index,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        fact_to_python(py, "TensorProto", &self.facts.data, idx)
    }

    /// Returns the number of the node's outputs, omitted ones included.
    fn get_num_outputs(&self) -> usize {
        self.facts.has_output.len()
    }

    /// Returns the type of an output that has been set so far, as a TypeProto.
    fn get_output_type<'py>(&self, py: Python<'py>, idx: Index) -> PyResult<Bound<'py, PyAny>> {
        let ty = self.with_outputs(|outputs| outputs.get(idx.0).cloned());
        protos::to_python(py, "TypeProto", &ty.ok_or_else(|| index_error("Output", idx.0))?)
    }

    /// Sets the type of an output to a TypeProto. Returns True. Raises `RuntimeError` if the node
    /// does not have the output.
    fn set_output_type(&self, idx: Index, type_proto: Bound<'_, PyAny>) -> PyResult<bool> {
        let ty = protos::from_python(&type_proto)?;
        self.with_outputs(|outputs| match outputs.get_mut(idx.0) {
            Some(output) => {
                *output = ty;
                Ok(true)
            }
            None => Err(index_error("Output", idx.0)),
        })
    }

    /// Whether the node has the output.
    fn has_output(&self, idx: Index) -> bool {
        self.facts.has_output.get(idx.0).copied().unwrap_or(false)
    }

    /// Returns an object that infers the subgraph in an attribute. Raises `InferenceError` if the
    /// attribute is not a graph.
    fn get_graph_attribute_inferencer(
        slf: Bound<'_, InferenceContext>,
        attr_name: &str,
    ) -> PyResult<GraphInferencer> {
        let context = slf.get();
        let found = context.link.query_attribute(slf.py(), context.depth, attr_name)?;
        let is_graph = found
            .is_some_and(|bytes| matches!(default_value::parse_type(&bytes), Ok(AttrType::Graph)));
        if is_graph {
            Ok(GraphInferencer { attribute: attr_name.to_string(), context: slf.unbind() })
        } else {
            Err(InferenceError::new_err(format!("Attribute {attr_name} does not contain a graph.")))
        }
    }

    /// Returns the value of a constant sparse input as a SparseTensorProto; None if it is not a
    /// sparse constant.
    fn get_input_sparse_data<'py>(
        &self,
        py: Python<'py>,
        idx: Index,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        fact_to_python(py, "SparseTensorProto", &self.facts.sparse_data, idx)
    }

    /// Returns the elements of an input that inference has computed, as a TensorShapeProto; None if
    /// they are unknown or the input is constant.
    fn get_symbolic_input<'py>(
        &self,
        py: Python<'py>,
        idx: Index,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        fact_to_python(py, "TensorShapeProto", &self.facts.symbolic, idx)
    }

    /// Returns a text that identifies the node in messages.
    fn get_display_name(&self) -> &str {
        &self.facts.name
    }
}

/// Inference of the subgraph in an attribute of a node. Made by shape inference only.
#[pyclass(module = "sardonyx.shape_inference", frozen)]
pub(crate) struct GraphInferencer {
    /// Name of the attribute with the subgraph.
    attribute: String,
    /// Context of the node that has the attribute.
    context: Py<InferenceContext>,
}

#[pymethods]
impl GraphInferencer {
    #[new]
    fn refuse_construction() -> PyResult<GraphInferencer> {
        Err(PyTypeError::new_err("only shape inference can create a GraphInferencer"))
    }

    /// Infers the subgraph for these types of its inputs (TypeProtos or None) and returns the types
    /// of its outputs as TypeProtos. `input_data` is validated but not used.
    fn do_inferencing<'py>(
        &self,
        py: Python<'py>,
        input_types: Items<Option<Bound<'py, PyAny>>>,
        input_data: Items<Option<Bound<'py, PyAny>>>,
    ) -> PyResult<Vec<Bound<'py, PyAny>>> {
        for data in input_data.0.iter().flatten() {
            protos::from_python(data)?;
        }
        let inputs: Vec<Vec<u8>> = input_types
            .0
            .iter()
            .map(|ty| ty.as_ref().map_or(Ok(Vec::new()), protos::from_python))
            .collect::<PyResult<_>>()?;
        let context = self.context.get();
        let link = &context.link;
        let outputs = link.infer_subgraph(py, context.depth, &self.attribute, inputs)?;
        outputs.iter().map(|ty| protos::to_python(py, "TypeProto", ty)).collect()
    }
}

/// Inference rule of a standard operator as a callable. Does nothing for an operator without a
/// rule.
#[pyclass(module = "sardonyx.shape_inference", frozen)]
pub(crate) struct StandardRule(pub(crate) Option<Key>);

#[pymethods]
impl StandardRule {
    fn __call__(&self, py: Python<'_>, context: PyRef<'_, InferenceContext>) -> PyResult<()> {
        self.0.map_or(Ok(()), |key| context.apply_rule(py, key))
    }
}

//! What inference functions of Python are called with.

use std::sync::{Arc, Mutex, PoisonError};

use pyo3::exceptions::{PyRuntimeError, PyTypeError};
use pyo3::prelude::*;
use sardonyx::tool::schema::AttrType;

use super::functions::{Facts, Line};
use super::protos;
use crate::defs::default_value;
use crate::errors::InferenceError;
use crate::registry::Key;

/// What an inference function knows of the node whose outputs it types. Made by the library only.
#[pyclass(module = "sardonyx.shape_inference", frozen)]
pub(crate) struct InferenceContext {
    facts: Facts,
    /// TypeProtos; empty where nothing is said.
    outputs: Mutex<Vec<Vec<u8>>>,
    line: Arc<Line>,
    depth: usize,
}

impl InferenceContext {
    pub(super) fn new(facts: Facts, line: Arc<Line>, depth: usize) -> InferenceContext {
        InferenceContext {
            outputs: Mutex::new(vec![Vec::new(); facts.has_output.len()]),
            facts,
            line,
            depth,
        }
    }

    /// What was said of the outputs.
    pub(super) fn outputs(&self) -> Vec<Vec<u8>> {
        self.with_outputs(|outputs| outputs.clone())
    }

    fn with_outputs<R>(&self, work: impl FnOnce(&mut Vec<Vec<u8>>) -> R) -> R {
        work(&mut self.outputs.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Applies the rule of an operator of the standard.
    fn apply(&self, py: Python<'_>, key: Key) -> PyResult<()> {
        let said = self.line.rule(py, self.depth, key)?;
        self.with_outputs(|outputs| {
            for (output, said) in outputs.iter_mut().zip(said) {
                if !said.is_empty() {
                    *output = said;
                }
            }
        });
        Ok(())
    }
}

/// A position. Anything else than a number from 0 on is of the wrong type.
struct Index(usize);

impl<'py> FromPyObject<'_, 'py> for Index {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Index> {
        let number = object.extract();
        number.map(Index).map_err(|_| PyTypeError::new_err("a position is a number from 0 on"))
    }
}

/// One of the facts about an input, as an object.
fn fact<'py>(
    py: Python<'py>,
    class: &str,
    facts: &[Option<Vec<u8>>],
    Index(index): Index,
) -> PyResult<Option<Bound<'py, PyAny>>> {
    let fact = facts.get(index).ok_or_else(|| beyond("Input", index))?;
    let object = fact.as_ref().map(|bytes| protos::to_python(py, class, bytes));
    object.transpose()
}

fn beyond(what: &str, index: usize) -> PyErr {
    PyRuntimeError::new_err(format!("{what} {index} is out of bounds."))
}

#[pymethods]
impl InferenceContext {
    #[new]
    fn made_by_python() -> PyResult<InferenceContext> {
        Err(PyTypeError::new_err("an InferenceContext is made by shape inference"))
    }

    /// An attribute that the node has, as an AttributeProto.
    fn get_attribute<'py>(
        &self,
        py: Python<'py>,
        name: &str,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        let found = self.line.attribute(py, self.depth, name)?;
        let object = found.map(|bytes| protos::to_python(py, "AttributeProto", &bytes));
        object.transpose()
    }

    /// How many inputs the node has, those that are left out counted.
    fn get_num_inputs(&self) -> usize {
        self.facts.types.len()
    }

    /// The type of an input as a TypeProto, if it is known.
    fn get_input_type<'py>(
        &self,
        py: Python<'py>,
        idx: Index,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        fact(py, "TypeProto", &self.facts.types, idx)
    }

    /// Whether the node has an input.
    fn has_input(&self, idx: Index) -> bool {
        self.facts.has_input.get(idx.0).copied().unwrap_or(false)
    }

    /// An input that is a constant, as a TensorProto.
    fn get_input_data<'py>(
        &self,
        py: Python<'py>,
        idx: Index,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        fact(py, "TensorProto", &self.facts.data, idx)
    }

    /// How many outputs the node has, those that are left out counted.
    fn get_num_outputs(&self) -> usize {
        self.facts.has_output.len()
    }

    /// What was said of an output so far, as a TypeProto.
    fn get_output_type<'py>(&self, py: Python<'py>, idx: Index) -> PyResult<Bound<'py, PyAny>> {
        let said = self.with_outputs(|outputs| outputs.get(idx.0).cloned());
        protos::to_python(py, "TypeProto", &said.ok_or_else(|| beyond("Output", idx.0))?)
    }

    /// Says the type of an output.
    fn set_output_type(&self, idx: Index, type_proto: Bound<'_, PyAny>) -> PyResult<bool> {
        let ty = protos::from_python(&type_proto)?;
        self.with_outputs(|outputs| match outputs.get_mut(idx.0) {
            Some(output) => {
                *output = ty;
                Ok(true)
            }
            None => Err(beyond("Output", idx.0)),
        })
    }

    /// Whether the node has an output.
    fn has_output(&self, idx: Index) -> bool {
        self.facts.has_output.get(idx.0).copied().unwrap_or(false)
    }

    /// Who infers the graph that is an attribute.
    fn get_graph_attribute_inferencer(
        slf: Bound<'_, InferenceContext>,
        attr_name: &str,
    ) -> PyResult<GraphInferencer> {
        let context = slf.get();
        let found = context.line.attribute(slf.py(), context.depth, attr_name)?;
        let is_graph = found
            .is_some_and(|bytes| matches!(default_value::type_of(&bytes), Ok(AttrType::Graph)));
        if is_graph {
            Ok(GraphInferencer { attribute: attr_name.to_string(), context: slf.unbind() })
        } else {
            Err(InferenceError::new_err(format!("Attribute {attr_name} does not contain a graph.")))
        }
    }

    /// An input that is a sparse constant, as a SparseTensorProto.
    fn get_input_sparse_data<'py>(
        &self,
        py: Python<'py>,
        idx: Index,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        fact(py, "SparseTensorProto", &self.facts.sparse_data, idx)
    }

    /// The integers that an input is known to consist of, as a TensorShapeProto. No constants.
    fn get_symbolic_input<'py>(
        &self,
        py: Python<'py>,
        idx: Index,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        fact(py, "TensorShapeProto", &self.facts.symbolic, idx)
    }

    /// The node, for people.
    fn get_display_name(&self) -> &str {
        &self.facts.name
    }
}

/// Infers a graph that is an attribute. Made by the library only.
#[pyclass(module = "sardonyx.shape_inference", frozen)]
pub(crate) struct GraphInferencer {
    attribute: String,
    context: Py<InferenceContext>,
}

#[pymethods]
impl GraphInferencer {
    #[new]
    fn made_by_python() -> PyResult<GraphInferencer> {
        Err(PyTypeError::new_err("a GraphInferencer is made by shape inference"))
    }

    /// Types of the outputs of the graph, as TypeProtos, for types of its inputs. Values of inputs
    /// are not looked at.
    fn do_inferencing<'py>(
        &self,
        py: Python<'py>,
        input_types: Vec<Option<Bound<'py, PyAny>>>,
        input_data: Vec<Option<Bound<'py, PyAny>>>,
    ) -> PyResult<Vec<Bound<'py, PyAny>>> {
        for data in input_data.iter().flatten() {
            protos::from_python(data)?;
        }
        let inputs: Vec<Vec<u8>> = input_types
            .iter()
            .map(|ty| ty.as_ref().map_or(Ok(Vec::new()), protos::from_python))
            .collect::<PyResult<_>>()?;
        let context = self.context.get();
        let line = &context.line;
        let outputs = line.graph(py, context.depth, &self.attribute, inputs)?;
        outputs.iter().map(|ty| protos::to_python(py, "TypeProto", ty)).collect()
    }
}

/// The rule of an operator of the standard as a callable. It does nothing if there is none.
#[pyclass(module = "sardonyx.shape_inference", frozen)]
pub(crate) struct StandardRule(pub(crate) Option<Key>);

#[pymethods]
impl StandardRule {
    fn __call__(&self, py: Python<'_>, context: PyRef<'_, InferenceContext>) -> PyResult<()> {
        self.0.map_or(Ok(()), |key| context.apply(py, key))
    }
}

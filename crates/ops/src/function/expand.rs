//! View of a call for the function that depends on it.

use std::fmt;

use sardonyx_model::{TensorType, Type};

use crate::attributes::{AttrValue, AttributeView, Attributes};
use crate::schema::Schema;

/// Call of an operator, reduced to the properties that its function may depend on.
#[derive(Clone, Copy)]
pub struct Call<'a> {
    /// Attributes of the node.
    pub attributes: &'a dyn Attributes,
    /// Whether the node has each of the inputs.
    pub inputs: &'a [bool],
    /// Whether the node has each of the outputs.
    pub outputs: &'a [bool],
    /// Types of the inputs, as far as known.
    pub types: &'a [Option<Type>],
    /// Returns the graph of an attribute as text. All names that the graph defines begin with the
    /// prefix, so that they do not collide with others.
    pub graphs: &'a dyn Fn(&str, &str) -> Option<GraphText>,
}

impl fmt::Debug for Call<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Call")
            .field("inputs", &self.inputs)
            .field("outputs", &self.outputs)
            .field("types", &self.types)
            .finish_non_exhaustive()
    }
}

/// Parts of a graph for insertion into a function. Names are quoted where ONNX text requires it.
#[derive(Debug, Clone)]
pub struct GraphText {
    /// Names of the inputs.
    pub inputs: Vec<String>,
    /// Names of the outputs.
    pub outputs: Vec<String>,
    /// Types of the outputs.
    pub output_types: Vec<Option<Type>>,
    /// Nodes, with a `Constant` for each initializer.
    pub nodes: String,
}

/// Call of an operator as the builders of this crate see it.
#[derive(Debug)]
pub(crate) struct Expand<'a> {
    opset: u32,
    schema: &'a Schema,
    attributes: AttributeView<'a>,
    call: &'a Call<'a>,
}

impl<'a> Expand<'a> {
    pub(crate) fn new(schema: &'a Schema, opset: u32, call: &'a Call<'a>) -> Self {
        Expand { opset, schema, attributes: AttributeView::new(schema, call.attributes), call }
    }

    /// Returns the opset version that the function is written for.
    pub(crate) fn opset(&self) -> u32 {
        self.opset
    }

    /// Returns the version of the operator.
    pub(crate) fn since(&self) -> u32 {
        self.schema.since
    }

    /// Whether the node itself has an attribute.
    pub(crate) fn has(&self, attribute: &str) -> bool {
        self.attributes.get(attribute).is_some()
    }

    /// Returns an integer attribute, or its default.
    pub(crate) fn int(&self, attribute: &str) -> Option<i64> {
        self.attributes.int(attribute)
    }

    /// Returns a float attribute, or its default.
    pub(crate) fn float(&self, attribute: &str) -> Option<f32> {
        self.attributes.float(attribute)
    }

    /// Returns a string attribute, or its default.
    pub(crate) fn string(&self, attribute: &str) -> Option<String> {
        self.attributes.string(attribute)
    }

    /// Returns an attribute of integers, or its default.
    pub(crate) fn ints(&self, attribute: &str) -> Option<Vec<i64>> {
        self.attributes.ints(attribute)
    }

    /// Returns an attribute of floats that the node itself has.
    pub(crate) fn floats(&self, attribute: &str) -> Option<Vec<f32>> {
        match self.attributes.get(attribute)? {
            AttrValue::Floats(floats) => Some(floats.to_vec()),
            _ => None,
        }
    }

    /// Returns an attribute of strings that the node itself has.
    pub(crate) fn strings(&self, attribute: &str) -> Option<Vec<String>> {
        match self.attributes.get(attribute)? {
            AttrValue::Strings(texts) => {
                let texts = texts.iter().map(|text| String::from_utf8_lossy(text).into_owned());
                Some(texts.collect())
            }
            _ => None,
        }
    }

    /// Returns the graph of an attribute, with names that begin with `prefix`.
    pub(crate) fn graph(&self, attribute: &str, prefix: &str) -> Option<GraphText> {
        (self.call.graphs)(attribute, prefix)
    }

    /// Returns the number of inputs, including absent ones.
    pub(crate) fn input_count(&self) -> usize {
        self.call.inputs.len()
    }

    /// Whether the node has an input at a position.
    pub(crate) fn has_input(&self, index: usize) -> bool {
        self.call.inputs.get(index) == Some(&true)
    }

    /// Whether the node has an output at a position.
    pub(crate) fn has_output(&self, index: usize) -> bool {
        self.call.outputs.get(index) == Some(&true)
    }

    /// Returns the type of an input, if known.
    pub(crate) fn input_type(&self, index: usize) -> Option<&'a Type> {
        self.call.types.get(index)?.as_ref()
    }

    /// Returns the type of an input that is known to be a tensor.
    pub(crate) fn tensor(&self, index: usize) -> Option<&'a TensorType> {
        self.input_type(index)?.as_tensor()
    }

    /// Returns the number of an input's element type, as attributes hold it.
    pub(crate) fn elem(&self, index: usize) -> Option<i64> {
        Some(self.tensor(index)?.elem?.number().into())
    }

    /// Returns the reason why a function is missing while the type of an input is unknown.
    pub(crate) fn needs_type(&self, index: usize) -> String {
        format!("its function depends on types, and the type of input {index} is unknown")
    }

    /// Returns the number of axes of an input.
    pub(crate) fn rank(&self, index: usize) -> Option<usize> {
        Some(self.tensor(index)?.shape.as_ref()?.len())
    }

    /// Returns the size of an axis of an input.
    pub(crate) fn dim(&self, index: usize, axis: usize) -> Option<i64> {
        self.tensor(index)?.shape.as_ref()?.get(axis)?.known()
    }
}

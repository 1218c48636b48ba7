//! Inference of one node, and of one function, with nothing around it but types.

use pyo3::prelude::*;
use sardonyx_model::{Model, NodeId, Type};
use sardonyx_passes::check::Levels;
use sardonyx_passes::{
    CheckOptions, CheckPart, InferOptions, NEWEST_IR_VERSION, Places, Problem, ProblemKind, Spot,
    Style, check_part, infer_function, infer_node,
};
use sardonyx_proto::{
    Encode, Encoder, encode_to_vec, graph, node, sparse_tensor, tensor, value_info,
};

use super::functions::with_functions;
use super::{problem_text, protos};
use crate::checker::verdict;
use crate::defs::description::Description;
use crate::errors::{InferenceError, ValidationError};
use crate::message::{self, Header, Part};
use crate::registry;

const STYLE: Style = Style::Reference { data_prop: false };

/// Messages by name.
pub(crate) type Named = Vec<(String, Vec<u8>)>;

/// What is known around a node.
pub(crate) struct Around {
    /// Types of values, as TypeProtos.
    pub(crate) types: Named,
    /// Constants, as TensorProtos.
    pub(crate) data: Named,
    /// Constants, as SparseTensorProtos.
    pub(crate) sparse_data: Named,
    pub(crate) header: Header,
}

/// The types of the outputs of a NodeProto, by name, as a version of an operator infers them.
///
/// # Errors
///
/// `ValidationError` if the node is not as the operator demands, `InferenceError` if its inputs
/// contradict each other.
pub(crate) fn node_outputs(
    py: Python<'_>,
    description: &Description,
    node: &[u8],
    mut around: Around,
) -> PyResult<Named> {
    let (operators, schema) = registry::snapshot().with(description)?;
    let own_version = [(description.domain.clone(), i64::from(description.since))];
    let alone =
        Header { ir_version: around.header.ir_version, opset_imports: own_version.clone().into() };
    let options = CheckOptions {
        registry: operators.registry.clone(),
        levels: Levels::shared(),
        ..CheckOptions::default()
    };
    let checked = message::read(node, Part::Node, &alone)?;
    verdict(check_part(&checked, CheckPart::Signatures, &options))?;

    for (_, sparse) in &around.sparse_data {
        message::read(sparse, Part::SparseTensor, &alone)?;
    }
    if around.header.opset_imports.is_empty() {
        around.header.opset_imports = own_version.into();
    }
    let inside = encode_to_vec(&NodeInGraph { around: &around, node });
    let model = message::read(&inside, Part::Graph, &around.header)?;
    let Some(node) = first_node(&model) else {
        return Ok(Named::new());
    };
    let functions = operators.functions(Some((description, &schema)));
    let (types, problems) = with_functions(py, &operators.registry, &functions, |rules| {
        let options = InferOptions { style: STYLE, rules, ..InferOptions::default() };
        infer_node(&model, &operators.registry, node, &schema, options)
    })?;
    // What goes wrong in graphs inside only means that less is known.
    let is_error = |problem: &&Problem| {
        problem.spot == Spot::node(node) || problem.kind == ProblemKind::NotImported
    };
    if let Some(problem) = problems.iter().find(is_error) {
        let words = problem_text(&model, &mut Places::default(), problem);
        return Err(match problem.kind {
            ProblemKind::Signature => ValidationError::new_err(words),
            _ => InferenceError::new_err(words),
        });
    }
    let names = model.outputs(node).iter().map(|output| {
        let name = output.map(|output| model.display(Some(model.value(output).name)));
        name.unwrap_or_default().into_owned()
    });
    Ok(names.zip(messages(&types)).collect())
}

/// The types of the outputs of a FunctionProto for types of its inputs and values of its
/// attributes.
///
/// # Errors
///
/// `InferenceError` with all that does not fit.
pub(super) fn function_outputs(
    py: Python<'_>,
    function: &[u8],
    input_types: &[Vec<u8>],
    attributes: &[Vec<u8>],
) -> PyResult<Vec<Vec<u8>>> {
    let header = Header { ir_version: Some(NEWEST_IR_VERSION), ..Header::default() };
    let outputs = {
        let model = message::read(function, Part::Function, &header)?;
        let body = model.functions.first().map(|function| function.body);
        body.map_or(0, |body| model.graph(body).outputs.len())
    };
    let call = encode_to_vec(&CallInGraph { input_types, attributes, outputs });
    let model = message::read_call(function, &call, &header)?;
    let Some(node) = first_node(&model) else {
        return Ok(Vec::new());
    };
    let operators = registry::snapshot();
    let functions = operators.functions(None);
    let (types, problems) = with_functions(py, &operators.registry, &functions, |rules| {
        let options =
            InferOptions { style: STYLE, check_types: true, rules, ..InferOptions::default() };
        infer_function(&model, &operators.registry, node, 0, options)
    })?;
    super::raise(&model, &problems, |_| true)?;
    Ok(messages(&types).collect())
}

fn first_node(model: &Model) -> Option<NodeId> {
    model.main_graph()?.nodes.first().copied()
}

fn messages(types: &[Option<Type>]) -> impl Iterator<Item = Vec<u8>> {
    types.iter().map(|ty| protos::type_message(ty.as_ref()))
}

/// A graph that consists of a node, and whose inputs are all that is known around it.
struct NodeInGraph<'a> {
    around: &'a Around,
    node: &'a [u8],
}

impl Encode for NodeInGraph<'_> {
    fn encode<'a>(&'a self, out: &mut Encoder<'a>) {
        out.message(graph::Node, |out| out.records(self.node));
        for (name, data) in &self.around.data {
            out.message(graph::Initializer, |out| {
                out.records(data);
                // The last name counts.
                out.put(tensor::Name, name.as_bytes());
            });
        }
        for (name, data) in &self.around.sparse_data {
            out.message(graph::SparseInitializer, |out| {
                out.records(data);
                // Further fields of the values, of which the last name counts.
                out.message(sparse_tensor::Values, |out| {
                    out.put(tensor::Name, name.as_bytes());
                });
            });
        }
        for (name, ty) in &self.around.types {
            input(out, name, ty);
        }
    }
}

/// A graph that consists of a call, of whose arguments only the types are known. One without a type
/// is left out.
struct CallInGraph<'a> {
    input_types: &'a [Vec<u8>],
    attributes: &'a [Vec<u8>],
    outputs: usize,
}

impl Encode for CallInGraph<'_> {
    fn encode<'a>(&'a self, out: &mut Encoder<'a>) {
        let names: Vec<String> = self
            .input_types
            .iter()
            .enumerate()
            .map(|(index, ty)| if ty.is_empty() { String::new() } else { format!("input_{index}") })
            .collect();
        out.message(graph::Node, |out| {
            for name in &names {
                out.put(node::Input, name.as_bytes());
            }
            for index in 0..self.outputs {
                out.put(node::Output, format!("output_{index}").as_bytes());
            }
            for attribute in self.attributes {
                out.message(node::Attribute, |out| out.records(attribute));
            }
        });
        for (name, ty) in names.iter().zip(self.input_types) {
            if !name.is_empty() {
                input(out, name, ty);
            }
        }
    }
}

fn input<'a>(out: &mut Encoder<'a>, name: &str, ty: &'a [u8]) {
    out.message(graph::Input, |out| {
        out.put(value_info::Name, name.as_bytes());
        out.message(value_info::Type, |out| out.records(ty));
    });
}

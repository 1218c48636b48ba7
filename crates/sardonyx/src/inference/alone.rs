//! Infers outputs of a single node or function, without a model around it.

use sardonyx_model::{self as graphs, NodeId, Type};
use sardonyx_ops::Schema;
use sardonyx_passes::{
    self as passes, NEWEST_IR_VERSION, Places, ProblemKind, Spot, infer_function, infer_node,
};
use sardonyx_proto::{
    Encode, Encoder, encode_to_vec, graph, node, sparse_tensor, tensor, value_info,
};

use super::rules::ProgramRules;
use super::{InferOptions, InferRules, Problem};
use crate::error::Error;
use crate::message::{self, Header, MessagePart};

/// Pairs of a value's name and a serialized protobuf message about the value.
pub type NamedMessages = Vec<(String, Vec<u8>)>;

/// Context of a single node: types and constants of its inputs, and header fields of its model.
#[derive(Debug, Clone, Default)]
pub struct NodeContext {
    /// Types of the node's inputs by name, as `TypeProto`s.
    pub types: NamedMessages,
    /// Dense constants that the node reads, as `TensorProto`s by name.
    pub constants: NamedMessages,
    /// Sparse constants that the node reads, as `SparseTensorProto`s by name.
    pub sparse_constants: NamedMessages,
    /// IR version and operator set imports of the node's model.
    pub header: Header,
}

/// Inferred types of the outputs of a node or a function.
#[derive(Debug, Clone)]
pub struct NodeOutputs {
    /// Names of the outputs, each with its type; `None` if the type is unknown.
    pub types: Vec<(String, Option<Type>)>,
    /// Problems of the node or the function.
    pub problems: Vec<Problem>,
}

/// Infers the output types of a serialized `NodeProto` by the inference rule of one operator
/// version. Problems in subgraphs of the node are not reported: they only leave types unknown.
///
/// # Errors
///
/// [`ErrorKind::Format`](crate::ErrorKind::Format) if the bytes are not a `NodeProto`.
pub fn infer_node_outputs(
    node: &[u8],
    context: &NodeContext,
    schema: &Schema,
    options: &InferOptions,
    rules: Option<&dyn InferRules>,
) -> Result<NodeOutputs, Error> {
    let inside = encode_to_vec(&NodeInGraph { context, node });
    let model = message::read(&inside, MessagePart::Graph, &context.header)?.graph;
    let Some(node) = find_first_node(&model) else {
        return Ok(NodeOutputs { types: Vec::new(), problems: Vec::new() });
    };
    let rules = rules.map(ProgramRules);
    let settings = make_pass_options(options, rules.as_ref());
    let (types, mut problems) = infer_node(&model, &options.registry, node, schema, settings);
    problems.retain(|problem| {
        problem.spot == Spot::node(node) || problem.kind == ProblemKind::NotImported
    });
    Ok(collect_outputs(&model, node, types, &problems))
}

/// Infers the output types of a serialized `FunctionProto` for one call. `input_types` are
/// `TypeProto`s, or empty bytes for omitted inputs; `attributes` are the call's `AttributeProto`s.
///
/// # Errors
///
/// [`ErrorKind::Format`](crate::ErrorKind::Format) if the bytes are not a `FunctionProto`.
pub fn infer_function_outputs<B: AsRef<[u8]>>(
    function: &[u8],
    input_types: &[B],
    attributes: &[B],
    options: &InferOptions,
    rules: Option<&dyn InferRules>,
) -> Result<NodeOutputs, Error> {
    let header = Header { ir_version: Some(NEWEST_IR_VERSION), ..Header::default() };
    let count = {
        let model = message::read(function, MessagePart::Function, &header)?.graph;
        let body = model.functions.first().map(|function| function.body);
        body.map_or(0, |body| model.graph(body).outputs.len())
    };
    let call = encode_to_vec(&CallInGraph { input_types, attributes, outputs: count });
    let model = message::read_with_function(&call, function, &header)?.graph;
    let Some(node) = find_first_node(&model) else {
        return Ok(NodeOutputs { types: Vec::new(), problems: Vec::new() });
    };
    let rules = rules.map(ProgramRules);
    let settings = make_pass_options(options, rules.as_ref());
    let (types, problems) = infer_function(&model, &options.registry, node, 0, settings);
    Ok(collect_outputs(&model, node, types, &problems))
}

/// Converts options to those of the inference pass, with rules that the program supplies.
fn make_pass_options<'a>(
    options: &'a InferOptions,
    rules: Option<&'a ProgramRules<'a>>,
) -> passes::InferOptions<'a> {
    passes::InferOptions {
        rules: rules.map(|rules| rules as &dyn passes::Rules),
        explain: false,
        ..options.to_pass_options()
    }
}

/// Collects the names and inferred types of a node's outputs, and formats problems.
fn collect_outputs(
    model: &graphs::Model,
    node: NodeId,
    types: Vec<Option<Type>>,
    problems: &[passes::Problem],
) -> NodeOutputs {
    let names = model.outputs(node).iter().map(|output| {
        let name = output.map(|output| model.display(Some(model.value(output).name)));
        name.unwrap_or_default().into_owned()
    });
    let mut places = Places::default();
    NodeOutputs {
        types: names.zip(types).collect(),
        problems: problems
            .iter()
            .map(|problem| Problem::new(model, &mut places, problem))
            .collect(),
    }
}

/// Returns the first node of the main graph.
fn find_first_node(model: &graphs::Model) -> Option<NodeId> {
    model.main_graph()?.nodes.first().copied()
}

/// Graph that has only one node, and the node's context as graph inputs and initializers.
struct NodeInGraph<'a> {
    context: &'a NodeContext,
    node: &'a [u8],
}

impl Encode for NodeInGraph<'_> {
    fn encode<'a>(&'a self, out: &mut Encoder<'a>) {
        out.put_message(graph::Node, |out| out.put_records(self.node));
        for (name, data) in &self.context.constants {
            out.put_message(graph::Initializer, |out| {
                out.put_records(data);
                // Of a repeated field, the last one is in effect: it overrides the tensor's name.
                out.put(tensor::Name, name.as_bytes());
            });
        }
        for (name, data) in &self.context.sparse_constants {
            out.put_message(graph::SparseInitializer, |out| {
                out.put_records(data);
                // Repeated messages are merged: this overrides only the name of the values.
                out.put_message(sparse_tensor::Values, |out| {
                    out.put(tensor::Name, name.as_bytes());
                });
            });
        }
        for (name, ty) in &self.context.types {
            encode_input(out, name, ty);
        }
    }
}

/// Graph that has only a call of a function, with a graph input for each of the call's input types.
/// An input without a type is omitted from the call.
struct CallInGraph<'a, B> {
    input_types: &'a [B],
    attributes: &'a [B],
    outputs: usize,
}

impl<B: AsRef<[u8]>> Encode for CallInGraph<'_, B> {
    fn encode<'a>(&'a self, out: &mut Encoder<'a>) {
        let names: Vec<String> = self
            .input_types
            .iter()
            .enumerate()
            .map(
                |(index, ty)| {
                    if ty.as_ref().is_empty() { String::new() } else { format!("input_{index}") }
                },
            )
            .collect();
        out.put_message(graph::Node, |out| {
            for name in &names {
                out.put(node::Input, name.as_bytes());
            }
            for index in 0..self.outputs {
                out.put(node::Output, format!("output_{index}").as_bytes());
            }
            for attribute in self.attributes {
                out.put_message(node::Attribute, |out| out.put_records(attribute.as_ref()));
            }
        });
        for (name, ty) in names.iter().zip(self.input_types) {
            if !name.is_empty() {
                encode_input(out, name, ty.as_ref());
            }
        }
    }
}

/// Encodes a graph input with a name and a serialized `TypeProto`.
fn encode_input<'a>(out: &mut Encoder<'a>, name: &str, ty: &'a [u8]) {
    out.put_message(graph::Input, |out| {
        out.put(value_info::Name, name.as_bytes());
        out.put_message(value_info::Type, |out| out.put_records(ty));
    });
}

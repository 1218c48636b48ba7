//! Functions of operators: what they do, said with other operators, in the notation or as
//! `FunctionProto`.
//!
//! ```
//! use sardonyx::functions::OperatorFunction;
//! use sardonyx::text::{Part, parse_part};
//!
//! let hard_swish = OperatorFunction::of("", "HardSwish", 22);
//! let hard_swish = hard_swish.expect("a function that does not depend on the call");
//! assert_eq!(
//!     hard_swish.text(),
//!     "<domain: \"\", opset_import: [\"\": 22]>\n\
//!      HardSwish (X) => (Y)\n\
//!      {\n  \
//!        gate = HardSigmoid <alpha = 0.16666667, beta = 0.5> (X)\n  \
//!        Y = Mul (X, gate)\n\
//!      }\n"
//! );
//!
//! // What `Clip` does depends on which limits the call has.
//! assert_eq!(OperatorFunction::of("", "Clip", 13), None);
//! let node = parse_part(Part::Node, b"y = Clip (x, low)".to_vec())?;
//! let clip = OperatorFunction::of_call(node, &[], 13)?.expect("a function for this call");
//! assert!(clip.text().contains("output = Where (below, min, input)"));
//! assert!(!clip.text().contains("above"));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::collections::{HashMap, HashSet};

use sardonyx_model::{
    self as graph, AttrValue, GraphId, NoExternalData, NodeAttributes, NodeId, Producer, Type,
    ValueId,
};
use sardonyx_ops::{Attributes, Call, GraphText, Registry};
use sardonyx_proto::{Encode, Encoder, encode_to_vec, graph as graph_fields, model};
use sardonyx_tensor::Buffer;
use sardonyx_text::{PrintOptions, PrintPart};

use crate::error::{Error, ErrorKind};
use crate::text::{Part, parse_part};

/// An operator of the standard as a function of other operators.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OperatorFunction {
    text: String,
}

impl OperatorFunction {
    /// The function of an operator at an opset version of its domain; `None` if it has none, if
    /// that depends on the call, or if operators in it changed between the version that it is
    /// written for and this one.
    pub fn of(domain: &str, operator: &str, opset: u32) -> Option<OperatorFunction> {
        let operator = Registry::standard().operator(domain, operator)?;
        let text = operator.function_text(opset, None)?;
        Some(OperatorFunction { text })
    }

    /// The function of an operator for a call: a serialized `NodeProto`, with the types of its
    /// inputs as far as known (the list may be shorter). `None` if there is no function for that
    /// call, or if it needs a graph of the node that reads values from outside.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Format`] if the bytes are no node.
    pub fn of_call(
        node: impl Into<Buffer>,
        types: &[Option<Type>],
        opset: u32,
    ) -> Result<Option<OperatorFunction>, Error> {
        let bytes = encode_to_vec(&AroundNode(node.into().as_slice()));
        let wrapped = graph::Model::read(Buffer::from_vec(bytes));
        let wrapped = wrapped.map_err(|error| Error::new(ErrorKind::Format, error.to_string()))?;
        let node = wrapped.main_graph().and_then(|graph| graph.nodes.first());
        let Some(&node) = node else {
            return Err(Error::new(ErrorKind::Format, "there is no node"));
        };
        let text = function_of(&wrapped, node, types, opset);
        Ok(text.map(|text| OperatorFunction { text }))
    }

    /// The function in the notation.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The function as a serialized `FunctionProto`.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Format`] if a graph of the call that went into the function cannot be said in
    /// the notation.
    pub fn to_bytes(&self) -> Result<Vec<u8>, Error> {
        parse_part(Part::Function, self.text.clone().into_bytes())
            .map_err(|error| Error::new(ErrorKind::Format, error.to_string()).with_source(error))
    }
}

/// A model of one node, which is there as bytes.
struct AroundNode<'a>(&'a [u8]);

impl Encode for AroundNode<'_> {
    fn encode<'a>(&'a self, out: &mut Encoder<'a>) {
        out.message(model::Graph, |out| {
            out.message(graph_fields::Node, |out| out.records(self.0));
        });
    }
}

fn function_of(
    model: &graph::Model,
    node: NodeId,
    types: &[Option<Type>],
    opset: u32,
) -> Option<String> {
    let name = model.display(model.node(node).op_type);
    let operator = Registry::standard().operator(&model.domain_of(node), &name)?;
    let inputs: Vec<bool> = model.inputs(node).map(|input| input.is_some()).collect();
    let outputs = model.outputs(node).iter();
    let outputs: Vec<bool> = outputs.map(Option::is_some).collect();
    let call = Call {
        attributes: &NodeAttributes::new(model, node),
        inputs: &inputs,
        outputs: &outputs,
        types,
        graphs: &|attribute, prefix| graph_text(model, node, attribute, prefix),
    };
    operator.function_text(opset, Some(&call))
}

/// The graph of an attribute in pieces, with new names; nothing if it reads values of the graph
/// around the node.
fn graph_text(
    model: &graph::Model,
    node: NodeId,
    attribute: &str,
    prefix: &str,
) -> Option<GraphText> {
    let attributes = NodeAttributes::new(model, node);
    let Some(AttrValue::Graph(graph)) = attributes.attribute(attribute) else {
        return None;
    };
    let graphs = with_graphs_inside(model, graph);
    if read_from_outside(model, &graphs) {
        return None;
    }
    let mut model = model.clone_to_run();
    for inner in graphs {
        rename_all(&mut model, inner, prefix);
    }
    constants_as_nodes(&mut model, graph)?;
    let found = model.graph(graph);
    let name = |info: &graph::ValueInfo| {
        let value = model.value(info.value?);
        let text = std::str::from_utf8(model.text(value.name)).ok()?;
        // What the graph does not define itself has a name of its own.
        (value.graph == graph && text.starts_with(prefix)).then(|| text.to_string())
    };
    let mut nodes = Vec::new();
    for node in &found.nodes {
        let options = PrintOptions::default();
        let (text, _) =
            sardonyx_text::part_to_text(&model, PrintPart::Node(*node), options).ok()?;
        nodes.extend_from_slice(&text);
    }
    Some(GraphText {
        inputs: found.inputs.iter().map(name).collect::<Option<_>>()?,
        outputs: found.outputs.iter().map(name).collect::<Option<_>>()?,
        output_types: found
            .outputs
            .iter()
            .map(|output| model.type_of(output.ty.as_ref()?))
            .collect(),
        nodes: String::from_utf8(nodes).ok()?,
    })
}

/// A graph and all graphs in its nodes.
fn with_graphs_inside(model: &graph::Model, graph: GraphId) -> Vec<GraphId> {
    let mut inside: HashMap<GraphId, Vec<GraphId>> = HashMap::new();
    for (id, graph) in model.graphs() {
        if let Some(parent) = graph.parent {
            inside.entry(parent).or_default().push(id);
        }
    }
    let mut found = vec![graph];
    let mut next = 0;
    while let Some(outer) = found.get(next) {
        // Nothing is inside of two graphs.
        found.extend(inside.remove(outer).unwrap_or_default());
        next += 1;
    }
    found
}

/// Whether nodes of some graphs read values that none of these graphs defines. In a function such
/// names could mean something else.
fn read_from_outside(model: &graph::Model, graphs: &[GraphId]) -> bool {
    let known: HashSet<&GraphId> = graphs.iter().collect();
    let nodes = graphs.iter().flat_map(|graph| &model.graph(*graph).nodes);
    let mut read = nodes.flat_map(|node| model.inputs(*node)).flatten();
    read.any(|value| {
        let value = model.value(value);
        value.producer == Producer::Nothing || !known.contains(&value.graph)
    })
}

/// Gives every value that a graph defines a name that nothing else has.
fn rename_all(model: &mut graph::Model, graph: GraphId, prefix: &str) {
    let mut renamed: HashMap<ValueId, ValueId> = HashMap::new();
    let mut rename = |model: &mut graph::Model, old: ValueId| {
        let new = renamed.entry(old);
        *new.or_insert_with(|| model.add_value(graph, prefix))
    };
    let mut found = model.graph(graph).clone();
    for input in &mut found.inputs {
        if let Some(old) = input.value {
            let new = rename(model, old);
            (input.name, input.value) = (Some(model.value(new).name), Some(new));
        }
    }
    for initializer in &mut found.initializers {
        if let Some(old) = initializer.value {
            let new = rename(model, old);
            (initializer.tensor.name, initializer.value) = (Some(model.value(new).name), Some(new));
        }
    }
    for node in &found.nodes {
        for index in 0..model.outputs(*node).len() {
            if let Some(old) = model.outputs(*node)[index] {
                let new = rename(model, old);
                model.redefine_output(*node, index, new);
            }
        }
    }
    for (old, new) in &renamed {
        model.replace_uses(*old, *new, None);
    }
    for info in found.outputs.iter_mut().chain(&mut found.value_info) {
        if let Some(new) = info.value.and_then(|old| renamed.get(&old)) {
            (info.name, info.value) = (Some(model.value(*new).name), Some(*new));
        }
    }
    *model.graph_mut(graph) = found;
}

/// Puts a `Constant` in the place of each initializer of a graph.
fn constants_as_nodes(model: &mut graph::Model, graph: GraphId) -> Option<()> {
    if !model.graph(graph).sparse_initializers.is_empty() {
        return None;
    }
    let initializers = std::mem::take(&mut model.graph_mut(graph).initializers);
    let nodes = model.graph(graph).nodes.len();
    for initializer in &initializers {
        let tensor = model.tensor(&initializer.tensor, &NoExternalData).ok()?;
        let node = model.add_node(graph, "Constant", "", &[], 1);
        model.set_attribute(node, "value", AttrValue::Tensor(tensor));
        model.redefine_output(node, 0, initializer.value?);
    }
    // Constants come first.
    model.graph_mut(graph).nodes.rotate_left(nodes);
    Some(())
}

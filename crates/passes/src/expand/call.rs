//! A node as a call of its operator's function: what the function may depend on.

use std::collections::{HashMap, HashSet};

use sardonyx_model::{
    AttrValue, Attributes, GraphId, Model, NoExternalData, NodeAttributes, NodeId, Producer, Type,
    ValueId, ValueInfo,
};
use sardonyx_ops::{Call, GraphText, OpRef, Registry};
use sardonyx_text::{PrintOptions, PrintPart};

/// The function of the operator that a node calls, in ONNX text, at an opset version; with the
/// types of the node's inputs as far as known (the list may be shorter). `None` if there is no
/// function for that call, if operators in it changed between the version that it is written for
/// and this one, or if it needs a graph of the node that reads values from outside.
pub fn function_of_call(
    model: &Model,
    registry: &Registry,
    node: NodeId,
    types: &[Option<Type>],
    opset: u32,
) -> Option<String> {
    let name = model.display(model.node(node).op_type);
    let operator = registry.operator(&model.domain_of(node), &name)?;
    with_call(model, node, types, |call| operator.function_text(registry, opset, Some(call)))
}

/// The same to take the place of the node: for the opset version that it is written for.
pub(crate) fn expansion(
    model: &Model,
    registry: &Registry,
    node: NodeId,
    types: &[Option<Type>],
    op: OpRef,
) -> Option<String> {
    with_call(model, node, types, |call| op.def.expansion_text(registry, op.opset, call))
}

/// Why there is no function for a node.
pub(crate) fn why_no_function(
    model: &Model,
    node: NodeId,
    types: &[Option<Type>],
    op: OpRef,
) -> String {
    if op.def.functions_of(op.schema.since).is_empty() {
        return "the standard does not say by other operators what it does".to_string();
    }
    let graphs = model.attributes(node).iter().flat_map(|id| model.attribute(*id).graphs());
    for graph in graphs {
        if read_from_outside(model, &with_graphs_inside(model, graph)) {
            return "a graph of it reads values from outside".to_string();
        }
    }
    let attributes = model.attributes(node).iter().map(|id| model.attribute(*id));
    let mut references = attributes.filter(|attribute| attribute.ref_attr_name().is_some());
    if let Some(reference) = references.next() {
        let name = model.display(reference.name);
        return format!("its function depends on '{name}', an attribute of the function around it");
    }
    let mut known = model.inputs(node).zip(types);
    let is_unknown = |ty: &Option<Type>| match ty {
        Some(Type::Tensor(tensor)) => tensor.elem.is_none() || tensor.shape.is_none(),
        Some(_) => false,
        None => true,
    };
    match known.position(|(input, ty)| input.is_some() && is_unknown(ty)) {
        Some(index) => {
            format!("its function depends on types, and that of input {index} is not known")
        }
        None => "the standard has no function for such a node".to_string(),
    }
}

fn with_call(
    model: &Model,
    node: NodeId,
    types: &[Option<Type>],
    function: impl FnOnce(&Call<'_>) -> Option<String>,
) -> Option<String> {
    let inputs: Vec<bool> = model.inputs(node).map(|input| input.is_some()).collect();
    let outputs = model.outputs(node).iter();
    let outputs: Vec<bool> = outputs.map(Option::is_some).collect();
    function(&Call {
        attributes: &NodeAttributes::new(model, node),
        inputs: &inputs,
        outputs: &outputs,
        types,
        graphs: &|attribute, prefix| graph_text(model, node, attribute, prefix),
    })
}

/// The graph of an attribute in pieces, with new names; nothing if it reads values of the graph
/// around the node.
fn graph_text(model: &Model, node: NodeId, attribute: &str, prefix: &str) -> Option<GraphText> {
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
    let name = |info: &ValueInfo| {
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
fn with_graphs_inside(model: &Model, graph: GraphId) -> Vec<GraphId> {
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
fn read_from_outside(model: &Model, graphs: &[GraphId]) -> bool {
    let known: HashSet<&GraphId> = graphs.iter().collect();
    let nodes = graphs.iter().flat_map(|graph| &model.graph(*graph).nodes);
    let mut read = nodes.flat_map(|node| model.inputs(*node)).flatten();
    read.any(|value| {
        let value = model.value(value);
        value.producer == Producer::Nothing || !known.contains(&value.graph)
    })
}

/// Gives every value that a graph defines a name that nothing else has.
fn rename_all(model: &mut Model, graph: GraphId, prefix: &str) {
    let mut renamed: HashMap<ValueId, ValueId> = HashMap::new();
    let mut rename = |model: &mut Model, old: ValueId| {
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
fn constants_as_nodes(model: &mut Model, graph: GraphId) -> Option<()> {
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

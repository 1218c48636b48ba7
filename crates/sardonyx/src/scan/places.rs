//! Paths of graphs, nodes and tensors in a model, as text of bounded length: names in a hostile
//! file may have megabytes, and graphs may be nested deeply.

use sardonyx_model::{
    Attribute, AttributeId, AttributeValue, GraphId, Model, NodeId, SparsePart, Symbol, TensorProto,
};
use sardonyx_passes::{Place, SpotPart};
use sardonyx_proto::{join_path, shown};

/// Returns the text of a symbol, truncated and with escapes for unprintable characters; empty if
/// absent.
pub(super) fn show_symbol(model: &Model, symbol: Option<Symbol>) -> String {
    shown(model.maybe_text(symbol).unwrap_or_default())
}

/// Returns the path of a graph in the model, such as `graph.node[3] 'then_branch'`.
pub(super) fn graph_path(model: &Model, graph: GraphId) -> String {
    join_path(&list_graph_steps(model, graph))
}

/// Returns the parts of a graph's path, the outermost first.
fn list_graph_steps(model: &Model, graph: GraphId) -> Vec<String> {
    let mut steps = Vec::new();
    let mut next = graph;
    while let Some(node) = model.graph(next).owner {
        let mut attributes = model.attributes(node).iter().map(|id| model.attribute(*id));
        let holder = attributes.find(|attribute| attribute.graphs().any(|held| held == next));
        let name = holder.and_then(|attribute| attribute.name);
        let index = find_node_index(model, node);
        steps.push(format!("node[{index}] '{}'", show_symbol(model, name)));
        next = model.node(node).graph;
    }
    steps.push(root_path(model, next));
    steps.reverse();
    steps
}

/// Returns the path of a graph that is not in a node: main graph, function body, training graph.
fn root_path(model: &Model, graph: GraphId) -> String {
    if model.main == Some(graph) {
        return "graph".to_string();
    }
    if let Some(index) = model.functions.iter().position(|function| function.body == graph) {
        return function_path(model, index);
    }
    for (index, info) in model.training_info.iter().enumerate() {
        if info.initialization == Some(graph) {
            return format!("training_info[{index}].initialization");
        }
        if info.algorithm == Some(graph) {
            return format!("training_info[{index}].algorithm");
        }
    }
    "a graph among the defaults of a function".to_string()
}

/// Returns the path of a function in the model, such as `functions[2] 'Gelu'`.
pub(super) fn function_path(model: &Model, index: usize) -> String {
    let name = model.functions.get(index).and_then(|function| function.name);
    format!("functions[{index}] '{}'", show_symbol(model, name))
}

/// Returns the path of a node in the model, such as `graph.node[3] 'conv1' (Conv)`.
pub(super) fn node_path(model: &Model, id: NodeId) -> String {
    let node = model.node(id);
    let graph = graph_path(model, node.graph);
    let index = find_node_index(model, id);
    let op = show_symbol(model, node.op_type);
    match model.maybe_text(node.name) {
        None | Some(b"") => format!("{graph}.node[{index}] ({op})"),
        Some(name) => format!("{graph}.node[{index}] '{}' ({op})", shown(name)),
    }
}

/// Returns the index of a node in its graph.
fn find_node_index(model: &Model, node: NodeId) -> usize {
    let nodes = &model.graph(model.node(node).graph).nodes;
    nodes.iter().position(|id| *id == node).unwrap_or(0)
}

/// Converts the place of a model checker's finding into a path of bounded length.
pub(super) fn spot_path(model: &Model, place: &Place) -> String {
    let spot = place.spot;
    let holder = match (spot.part, spot.field, spot.index) {
        (SpotPart::Graph(graph), "initializer", Some(index)) => {
            let found = model.graph(graph).initializers.get(index as usize);
            let name = found.and_then(|found| model.maybe_text(found.tensor.name));
            let name = name.map_or(String::new(), |name| format!(" '{}'", shown(name)));
            return Holder::Initializer(graph, index).describe_place(model) + &name;
        }
        (SpotPart::Graph(graph), "sparse_initializer", Some(index)) => Holder::Sparse(graph, index),
        (SpotPart::Graph(graph), ..) => return graph_path(model, graph),
        (SpotPart::Node(node), "attribute", Some(index)) => {
            match model.attributes(node).get(index as usize) {
                Some(attribute) => Holder::Attribute(node, *attribute),
                None => return node_path(model, node),
            }
        }
        (SpotPart::Node(node), ..) => return node_path(model, node),
        (SpotPart::Function(function), "attribute_proto", Some(index)) => {
            Holder::Default(function as u32, index)
        }
        (SpotPart::Function(function), ..) => return function_path(model, function),
        (SpotPart::Model | SpotPart::Document | SpotPart::Training(_), ..) => {
            return place.path.clone();
        }
    };
    holder.describe_place(model)
}

/// A dense tensor stored in the model file, with the message that holds it.
#[derive(Clone, Copy)]
pub(super) struct Stored<'m> {
    pub(super) tensor: &'m TensorProto,
    holder: Holder,
    /// Role in a sparse tensor: values or indices; `None` for any other dense tensor.
    part: Option<SparsePart>,
}

/// A sparse tensor stored in the model file, with the message that holds it.
#[derive(Clone, Copy)]
pub(super) struct StoredSparse<'m> {
    pub(super) tensor: &'m sardonyx_model::SparseTensorProto,
    holder: Holder,
}

/// Protobuf message that holds a stored tensor.
#[derive(Clone, Copy)]
enum Holder {
    /// Graph and index of a dense initializer.
    Initializer(GraphId, u32),
    /// Graph and index of a sparse initializer.
    Sparse(GraphId, u32),
    /// Node, and its attribute that holds the tensor.
    Attribute(NodeId, AttributeId),
    /// Index of a function, and index among its attribute defaults.
    Default(u32, u32),
}

impl Stored<'_> {
    /// Returns the path of the dense tensor in the model, with its name.
    pub(super) fn describe_place(&self, model: &Model) -> String {
        let part = match self.part {
            Some(SparsePart::Values) => ".values",
            Some(SparsePart::Indices) => ".indices",
            None => "",
        };
        let place = self.holder.describe_place(model);
        match model.maybe_text(self.tensor.name) {
            None | Some(b"") => format!("{place}{part}"),
            Some(name) => format!("{place}{part} '{}'", shown(name)),
        }
    }
}

impl StoredSparse<'_> {
    /// Returns the path of the sparse tensor in the model.
    pub(super) fn describe_place(&self, model: &Model) -> String {
        self.holder.describe_place(model)
    }
}

impl Holder {
    /// Returns the path of the message in the model.
    fn describe_place(self, model: &Model) -> String {
        match self {
            Holder::Initializer(graph, index) => {
                format!("{}.initializer[{index}]", graph_path(model, graph))
            }
            Holder::Sparse(graph, index) => {
                format!("{}.sparse_initializer[{index}]", graph_path(model, graph))
            }
            Holder::Attribute(node, attribute) => {
                let name = show_symbol(model, model.attribute(attribute).name);
                format!("{} '{name}'", node_path(model, node))
            }
            Holder::Default(function, attribute) => {
                let function = function_path(model, function as usize);
                format!("{function}.attribute_proto[{attribute}]")
            }
        }
    }
}

/// A dense or sparse tensor stored in the model file, as [`visit_tensors`] visits it.
pub(super) enum StoredTensor<'m> {
    Dense(Stored<'m>),
    Sparse(StoredSparse<'m>),
}

/// Calls `found` for every tensor stored in the model file, also in unreachable graphs. Visits a
/// sparse tensor first, then its values and its indices as dense tensors.
pub(super) fn visit_tensors<'m>(model: &'m Model, mut found: impl FnMut(StoredTensor<'m>)) {
    for (id, graph) in model.graphs() {
        for (index, initializer) in graph.initializers.iter().enumerate() {
            found(StoredTensor::Dense(Stored {
                tensor: &initializer.tensor,
                holder: Holder::Initializer(id, index as u32),
                part: None,
            }));
        }
        for (index, sparse) in graph.sparse_initializers.iter().enumerate() {
            visit_sparse(&sparse.tensor, Holder::Sparse(id, index as u32), &mut found);
        }
        for node in &graph.nodes {
            for attribute in model.attributes(*node) {
                let holder = Holder::Attribute(*node, *attribute);
                visit_attribute(model.attribute(*attribute), holder, &mut found);
            }
        }
    }
    for (index, function) in model.functions.iter().enumerate() {
        for (position, attribute) in function.attribute_protos.iter().enumerate() {
            let holder = Holder::Default(index as u32, position as u32);
            visit_attribute(attribute, holder, &mut found);
        }
    }
}

/// Calls `found` for every tensor of an attribute.
fn visit_attribute<'m>(
    attribute: &'m Attribute,
    holder: Holder,
    found: &mut impl FnMut(StoredTensor<'m>),
) {
    for value in &attribute.values {
        match value {
            AttributeValue::Tensor(tensor) => {
                found(StoredTensor::Dense(Stored { tensor, holder, part: None }));
            }
            AttributeValue::Tensors(tensors) => {
                for tensor in tensors {
                    found(StoredTensor::Dense(Stored { tensor, holder, part: None }));
                }
            }
            AttributeValue::SparseTensor(sparse) => visit_sparse(sparse, holder, found),
            AttributeValue::SparseTensors(list) => {
                for sparse in list {
                    visit_sparse(sparse, holder, found);
                }
            }
            _ => {}
        }
    }
}

/// Calls `found` for a sparse tensor, then for its values and its indices as dense tensors.
fn visit_sparse<'m>(
    sparse: &'m sardonyx_model::SparseTensorProto,
    holder: Holder,
    found: &mut impl FnMut(StoredTensor<'m>),
) {
    found(StoredTensor::Sparse(StoredSparse { tensor: sparse, holder }));
    let parts = [(SparsePart::Values, &sparse.values), (SparsePart::Indices, &sparse.indices)];
    for (part, tensor) in parts {
        if let Some(tensor) = tensor {
            found(StoredTensor::Dense(Stored { tensor, holder, part: Some(part) }));
        }
    }
}

//! Where something stands in a model, in words of bounded length: names in a hostile file may be
//! megabytes, and nested as deeply as the file likes.

use sardonyx_model::{
    Attribute, AttributeId, AttributeValue, GraphId, Model, NodeId, SparsePart, Symbol, TensorProto,
};
use sardonyx_passes::{Place, SpotPart};
use sardonyx_proto::{path, shown};

/// Interned text that may be absent, likewise.
pub(super) fn shown_symbol(model: &Model, symbol: Option<Symbol>) -> String {
    shown(model.maybe_text(symbol).unwrap_or_default())
}

/// Where a graph stands, such as `graph.node[3] 'then_branch'`.
pub(super) fn of_graph(model: &Model, graph: GraphId) -> String {
    path(&graph_steps(model, graph))
}

fn graph_steps(model: &Model, graph: GraphId) -> Vec<String> {
    let mut steps = Vec::new();
    let mut next = graph;
    while let Some(node) = model.graph(next).owner {
        let holds = |id: &&AttributeId| model.attribute(**id).graphs().any(|held| held == next);
        let attribute = model.attributes(node).iter().find(holds);
        let name = attribute.and_then(|id| model.attribute(*id).name);
        let index = position(model, node);
        steps.push(format!("node[{index}] '{}'", shown_symbol(model, name)));
        next = model.node(node).graph;
    }
    steps.push(root(model, next));
    steps.reverse();
    steps
}

/// The name of a graph that no node holds.
fn root(model: &Model, graph: GraphId) -> String {
    if model.main == Some(graph) {
        return "graph".to_string();
    }
    if let Some(index) = model.functions.iter().position(|function| function.body == graph) {
        return of_function(model, index);
    }
    let steps = model.training_info.iter().enumerate();
    for (index, info) in steps {
        if info.initialization == Some(graph) {
            return format!("training_info[{index}].initialization");
        }
        if info.algorithm == Some(graph) {
            return format!("training_info[{index}].algorithm");
        }
    }
    "a graph among the defaults of a function".to_string()
}

/// A function, such as `functions[2] 'Gelu'`.
pub(super) fn of_function(model: &Model, index: usize) -> String {
    let name = model.functions.get(index).and_then(|function| function.name);
    format!("functions[{index}] '{}'", shown_symbol(model, name))
}

/// A node, such as `graph.node[3] 'conv1' (Conv)`.
pub(super) fn of_node(model: &Model, id: NodeId) -> String {
    let node = model.node(id);
    let graph = of_graph(model, node.graph);
    let index = position(model, id);
    let op = shown_symbol(model, node.op_type);
    match model.maybe_text(node.name) {
        None | Some(b"") => format!("{graph}.node[{index}] ({op})"),
        Some(name) => format!("{graph}.node[{index}] '{}' ({op})", shown(name)),
    }
}

fn position(model: &Model, node: NodeId) -> usize {
    let nodes = &model.graph(model.node(node).graph).nodes;
    nodes.iter().position(|id| *id == node).unwrap_or(0)
}

/// Where the checker found something.
pub(super) fn of_spot(model: &Model, place: &Place) -> String {
    let spot = place.spot;
    let holder = match (spot.part, spot.field, spot.index) {
        (SpotPart::Graph(graph), "initializer", Some(index)) => {
            let found = model.graph(graph).initializers.get(index as usize);
            let name = found.and_then(|found| model.maybe_text(found.tensor.name));
            let name = name.map_or(String::new(), |name| format!(" '{}'", shown(name)));
            return Holder::Initializer(graph, index).place(model) + &name;
        }
        (SpotPart::Graph(graph), "sparse_initializer", Some(index)) => Holder::Sparse(graph, index),
        (SpotPart::Graph(graph), ..) => return of_graph(model, graph),
        (SpotPart::Node(node), "attribute", Some(index)) => {
            match model.attributes(node).get(index as usize) {
                Some(attribute) => Holder::Attribute(node, *attribute),
                None => return of_node(model, node),
            }
        }
        (SpotPart::Node(node), ..) => return of_node(model, node),
        (SpotPart::Function(function), "attribute_proto", Some(index)) => {
            Holder::Default(function as u32, index)
        }
        (SpotPart::Function(function), ..) => return of_function(model, function),
        (SpotPart::Model | SpotPart::Document | SpotPart::Training(_), ..) => {
            return place.path.clone();
        }
    };
    holder.place(model)
}

/// A stored tensor and what holds it.
#[derive(Clone, Copy)]
pub(super) struct Stored<'m> {
    pub(super) tensor: &'m TensorProto,
    holder: Holder,
    part: Option<SparsePart>,
}

/// A stored sparse tensor and what holds it.
#[derive(Clone, Copy)]
pub(super) struct StoredSparse<'m> {
    pub(super) tensor: &'m sardonyx_model::SparseTensorProto,
    holder: Holder,
}

#[derive(Clone, Copy)]
enum Holder {
    Initializer(GraphId, u32),
    Sparse(GraphId, u32),
    Attribute(NodeId, AttributeId),
    /// A default of a function, by positions.
    Default(u32, u32),
}

impl Stored<'_> {
    /// Where it stands, with its name.
    pub(super) fn place(&self, model: &Model) -> String {
        let part = match self.part {
            Some(SparsePart::Values) => ".values",
            Some(SparsePart::Indices) => ".indices",
            None => "",
        };
        let place = self.holder.place(model);
        match model.maybe_text(self.tensor.name) {
            None | Some(b"") => format!("{place}{part}"),
            Some(name) => format!("{place}{part} '{}'", shown(name)),
        }
    }
}

impl StoredSparse<'_> {
    /// Where it stands.
    pub(super) fn place(&self, model: &Model) -> String {
        self.holder.place(model)
    }
}

impl Holder {
    fn place(self, model: &Model) -> String {
        match self {
            Holder::Initializer(graph, index) => {
                format!("{}.initializer[{index}]", of_graph(model, graph))
            }
            Holder::Sparse(graph, index) => {
                format!("{}.sparse_initializer[{index}]", of_graph(model, graph))
            }
            Holder::Attribute(node, attribute) => {
                let name = shown_symbol(model, model.attribute(attribute).name);
                format!("{} '{name}'", of_node(model, node))
            }
            Holder::Default(function, attribute) => {
                let function = of_function(model, function as usize);
                format!("{function}.attribute_proto[{attribute}]")
            }
        }
    }
}

/// What is told about each stored tensor.
pub(super) enum Found<'m> {
    Dense(Stored<'m>),
    Sparse(StoredSparse<'m>),
}

/// Goes through all stored tensors, those of graphs that nothing reaches included. The parts of a
/// sparse tensor come as tensors after it.
pub(super) fn each_tensor<'m>(model: &'m Model, mut found: impl FnMut(Found<'m>)) {
    for (id, graph) in model.graphs() {
        for (index, initializer) in graph.initializers.iter().enumerate() {
            found(Found::Dense(Stored {
                tensor: &initializer.tensor,
                holder: Holder::Initializer(id, index as u32),
                part: None,
            }));
        }
        for (index, sparse) in graph.sparse_initializers.iter().enumerate() {
            each_part(&sparse.tensor, Holder::Sparse(id, index as u32), &mut found);
        }
        for node in &graph.nodes {
            for attribute in model.attributes(*node) {
                let holder = Holder::Attribute(*node, *attribute);
                in_attribute(model.attribute(*attribute), holder, &mut found);
            }
        }
    }
    for (index, function) in model.functions.iter().enumerate() {
        for (position, attribute) in function.attribute_protos.iter().enumerate() {
            let holder = Holder::Default(index as u32, position as u32);
            in_attribute(attribute, holder, &mut found);
        }
    }
}

fn in_attribute<'m>(attribute: &'m Attribute, holder: Holder, found: &mut impl FnMut(Found<'m>)) {
    let dense = |tensor: &'m TensorProto| Found::Dense(Stored { tensor, holder, part: None });
    for value in &attribute.values {
        match value {
            AttributeValue::Tensor(tensor) => found(dense(tensor)),
            AttributeValue::Tensors(tensors) => tensors.iter().map(dense).for_each(&mut *found),
            AttributeValue::SparseTensor(sparse) => each_part(sparse, holder, found),
            AttributeValue::SparseTensors(list) => {
                for sparse in list {
                    each_part(sparse, holder, found);
                }
            }
            _ => {}
        }
    }
}

fn each_part<'m>(
    sparse: &'m sardonyx_model::SparseTensorProto,
    holder: Holder,
    found: &mut impl FnMut(Found<'m>),
) {
    found(Found::Sparse(StoredSparse { tensor: sparse, holder }));
    let parts = [(SparsePart::Values, &sparse.values), (SparsePart::Indices, &sparse.indices)];
    for (part, tensor) in parts {
        if let Some(tensor) = tensor {
            found(Found::Dense(Stored { tensor, holder, part: Some(part) }));
        }
    }
}

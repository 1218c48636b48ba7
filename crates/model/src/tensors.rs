//! Every stored tensor of a model, wherever it stands: in graphs, subgraphs, attributes, functions
//! and training steps.

use std::collections::HashMap;

use sardonyx_proto::{Skimmed, elide_middle, shown};
use sardonyx_tensor::Buffer;

use crate::attribute::{Attribute, AttributeValue};
use crate::constant::{ConstantError, ExternalData, SparseTensorProto, TensorProto};
use crate::error::Error;
use crate::graph::Model;
use crate::ids::{AttributeId, GraphId, NodeId};
use crate::names::Symbol;
use crate::read::ReadLimits;

/// Where a stored tensor stands. Valid as long as the lists that it leads through are not changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TensorId {
    /// An initializer of a graph, by position.
    Initializer(GraphId, u32),
    /// A part of a sparse initializer of a graph, by position.
    Sparse(GraphId, u32, SparsePart),
    /// A tensor in an attribute of a node.
    Attribute(AttributeId, InAttribute),
    /// A tensor in a default value of a function, by positions of the function and of its
    /// attribute.
    Default(u32, u32, InAttribute),
}

/// A tensor among the value fields of an attribute.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct InAttribute {
    /// Which value field.
    field: u32,
    /// Which element of a list; 0 for a single value.
    element: u32,
    /// Which part of a sparse tensor; `None` for a dense one.
    part: Option<SparsePart>,
}

/// The two tensors that make a sparse one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SparsePart {
    /// The values that are not zero.
    Values,
    /// Where they stand.
    Indices,
}

const PARTS: [SparsePart; 2] = [SparsePart::Values, SparsePart::Indices];

/// Tensors to which a longer path leads have none.
const LONGEST_PATH: usize = 4096;

impl SparsePart {
    /// How the part is called at the end of a path.
    fn suffix(self) -> &'static [u8] {
        match self {
            SparsePart::Values => b"[values]",
            SparsePart::Indices => b"[indices]",
        }
    }
}

/// The path of an initializer of the main graph; see [`Model::tensor_paths`].
pub fn path_of_initializer(name: &[u8]) -> Vec<u8> {
    joined(b"", name)
}

/// A path with a name after it.
fn joined(place: &[u8], name: &[u8]) -> Vec<u8> {
    let mut path = place.to_vec();
    push_escaped(&mut path, name);
    path
}

/// A name in a path, where some signs mean something.
fn push_escaped(path: &mut Vec<u8>, name: &[u8]) {
    for byte in name {
        match byte {
            b'>' | b'[' | b'(' | b':' | b'+' | b'%' => path.extend(format!("%{byte:02x}").bytes()),
            _ => path.push(*byte),
        }
    }
}

impl SparseTensorProto {
    fn part(&self, part: SparsePart) -> Option<&TensorProto> {
        match part {
            SparsePart::Values => self.values.as_ref(),
            SparsePart::Indices => self.indices.as_ref(),
        }
    }

    fn part_mut(&mut self, part: SparsePart) -> Option<&mut TensorProto> {
        match part {
            SparsePart::Values => self.values.as_mut(),
            SparsePart::Indices => self.indices.as_mut(),
        }
    }
}

impl TensorId {
    /// Which part of a sparse tensor it is; `None` for a dense one.
    pub fn sparse_part(self) -> Option<SparsePart> {
        match self {
            TensorId::Sparse(_, _, part) => Some(part),
            TensorId::Attribute(_, place) | TensorId::Default(_, _, place) => place.part,
            TensorId::Initializer(..) => None,
        }
    }

    /// Whether the tensor is a constant of a graph, not part of a node.
    pub fn is_initializer(self) -> bool {
        matches!(self, TensorId::Initializer(..) | TensorId::Sparse(..))
    }
}

impl Model {
    /// Reads a model from which large payloads were left out. Each tensor that lost some knows how
    /// many bytes.
    ///
    /// # Errors
    ///
    /// See [`read`](Model::read).
    pub fn read_skimmed(skimmed: Skimmed, limits: ReadLimits) -> Result<Model, Error> {
        let mut model = Model::read_with(Buffer::from_vec(skimmed.bytes), limits)?;
        let skipped = |end: u64| {
            let found = skimmed.skipped.binary_search_by_key(&end, |(at, _)| *at);
            found.ok().map(|index| skimmed.skipped[index].1)
        };
        for id in model.tensors() {
            let tensor = model.stored_mut(id);
            let raw = tensor.raw_data.filter(|raw| raw.len == 0);
            let ends = raw.iter().map(|raw| raw.offset);
            // Runs of empty lists may have become one.
            let runs = tensor.typed.iter().flat_map(|run| {
                let records = run.records;
                (records.offset + 1..=records.offset + records.len).rev()
            });
            let bytes: u64 = ends.chain(runs).filter_map(skipped).sum();
            tensor.skipped = (bytes > 0).then_some(bytes);
        }
        Ok(model)
    }

    /// Whether values were left out when the model was read.
    pub fn is_skimmed(&self) -> bool {
        let mut tensors = self.tensors().into_iter();
        tensors.any(|id| self.stored(id).skipped.is_some())
    }

    /// All stored tensors, in the order of the file: the main graph with what its nodes hold,
    /// training steps, functions. Only what can be reached from there; graphs of removed nodes do
    /// not count.
    pub fn tensors(&self) -> Vec<TensorId> {
        let mut found = Vec::new();
        // A look at all attributes one after the other costs little, a walk over the nodes much.
        let in_nodes = self.all_attributes().any(|attribute| {
            let mut holds_tensors = false;
            in_attribute(attribute, |_| holds_tensors = true);
            holds_tensors || attribute.graphs().next().is_some()
        });
        self.tensors_of_graphs(self.main, in_nodes, &mut found);
        for info in &self.training_info {
            self.tensors_of_graphs(info.initialization, in_nodes, &mut found);
            self.tensors_of_graphs(info.algorithm, in_nodes, &mut found);
        }
        for (index, function) in self.functions.iter().enumerate() {
            for (position, attribute) in function.attribute_protos.iter().enumerate() {
                in_attribute(attribute, |place| {
                    found.push(TensorId::Default(index as u32, position as u32, place));
                });
                for graph in attribute.graphs() {
                    self.tensors_of_graphs(Some(graph), in_nodes, &mut found);
                }
            }
            self.tensors_of_graphs(Some(function.body), in_nodes, &mut found);
        }
        found
    }

    /// The tensors of a graph and of all graphs in it; `in_nodes` says whether attributes of nodes
    /// can hold any. A list of what is left to do instead of recursion: depth is whatever a file
    /// says.
    fn tensors_of_graphs(&self, root: Option<GraphId>, in_nodes: bool, found: &mut Vec<TensorId>) {
        let mut left: Vec<GraphId> = root.into_iter().collect();
        while let Some(id) = left.pop() {
            let graph = self.graph(id);
            let initializers = 0..graph.initializers.len() as u32;
            found.extend(initializers.map(|index| TensorId::Initializer(id, index)));
            for (index, sparse) in graph.sparse_initializers.iter().enumerate() {
                let parts = PARTS.into_iter().filter(|part| sparse.tensor.part(*part).is_some());
                found.extend(parts.map(|part| TensorId::Sparse(id, index as u32, part)));
            }
            if !in_nodes {
                continue;
            }
            let first_new = left.len();
            for node in &graph.nodes {
                for attribute in self.attributes(*node) {
                    let content = self.attribute(*attribute);
                    in_attribute(content, |place| {
                        found.push(TensorId::Attribute(*attribute, place));
                    });
                    left.extend(content.graphs());
                }
            }
            // The first subgraph is taken next.
            left[first_new..].reverse();
        }
    }

    /// Whether values of a tensor in an attribute, of a node or by default of a function, lie
    /// outside the message.
    pub fn has_external_attributes(&self) -> bool {
        let defaults = self.functions.iter().flat_map(|function| &function.attribute_protos);
        self.all_attributes().chain(defaults).any(|attribute| {
            let mut is_external = false;
            in_attribute(attribute, |place| {
                is_external |= place.find(attribute).is_some_and(TensorProto::is_external);
            });
            is_external
        })
    }

    /// The tensors in attributes of a node whose values lie outside the message, each with the
    /// name of its attribute.
    pub fn external_tensors_of(&self, node: NodeId) -> Vec<(TensorId, Option<Symbol>)> {
        let mut found = Vec::new();
        for id in self.attributes(node) {
            let attribute = self.attribute(*id);
            in_attribute(attribute, |place| {
                if place.find(attribute).is_some_and(TensorProto::is_external) {
                    found.push((TensorId::Attribute(*id, place), attribute.name));
                }
            });
        }
        found
    }

    /// The tensors in default values of a function whose values lie outside the message, each
    /// with the name of its attribute.
    pub fn external_defaults_of(&self, function: usize) -> Vec<(TensorId, Option<Symbol>)> {
        let mut found = Vec::new();
        for (index, default) in self.functions[function].attribute_protos.iter().enumerate() {
            in_attribute(default, |place| {
                if place.find(default).is_some_and(TensorProto::is_external) {
                    let id = TensorId::Default(function as u32, index as u32, place);
                    found.push((id, default.name));
                }
            });
        }
        found
    }

    /// Puts the values of a tensor that lie outside the message into the model. They are shared
    /// with `external`, not copied.
    ///
    /// # Errors
    ///
    /// See [`tensor`](Model::tensor).
    pub fn load_stored(
        &mut self,
        id: TensorId,
        external: &dyn ExternalData,
    ) -> Result<(), ConstantError> {
        let stored = self.stored(id);
        let name = stored.name;
        let tensor = self.tensor(stored, external)?;
        let loaded = self.tensor_proto(&tensor);
        *self.stored_mut(id) = TensorProto { name, ..loaded };
        Ok(())
    }

    /// For each stored tensor that is `wanted`, which one it is, in a form that holds while nodes
    /// and tensors come and go: the name of an initializer of the main graph, for others the way
    /// there through outputs of nodes and attributes, `y>body>z>value`. Tensors that have no such
    /// way are left out; two may have the same.
    pub fn tensor_paths(&self, wanted: impl Fn(&TensorProto) -> bool) -> Vec<(TensorId, Vec<u8>)> {
        let mut found = Vec::new();
        let mut left: Vec<(GraphId, Vec<u8>)> = Vec::new();
        left.extend(self.main.map(|main| (main, Vec::new())));
        for (index, info) in self.training_info.iter().enumerate() {
            for (graph, field) in
                [(info.initialization, "initialization"), (info.algorithm, "algorithm")]
            {
                left.extend(graph.map(|graph| (graph, format!("({index}:{field})>").into_bytes())));
            }
        }
        for (index, function) in self.functions.iter().enumerate() {
            let mut place = b"(".to_vec();
            for (sign, part) in
                [("", function.domain), (":", function.name), (":", function.overload)]
            {
                place.extend(sign.as_bytes());
                push_escaped(&mut place, self.maybe_text(part).unwrap_or_default());
            }
            place.extend(b")>");
            for (position, attribute) in function.attribute_protos.iter().enumerate() {
                let id = |inside| TensorId::Default(index as u32, position as u32, inside);
                self.paths_inside(attribute, &place, id, &wanted, &mut found, &mut left);
            }
            left.push((function.body, place));
        }
        let in_nodes = self.all_attributes().any(|attribute| {
            let mut holds_wanted = false;
            in_attribute(attribute, |place| {
                holds_wanted |= place.find(attribute).is_some_and(&wanted);
            });
            holds_wanted || attribute.graphs().next().is_some()
        });
        while let Some((id, place)) = left.pop() {
            // Names nest as deeply as a file likes, and each level would copy those around it.
            if place.len() > LONGEST_PATH {
                continue;
            }
            let graph = self.graph(id);
            for (index, initializer) in graph.initializers.iter().enumerate() {
                if let Some(name) = initializer.tensor.name
                    && wanted(&initializer.tensor)
                {
                    let path = joined(&place, self.text(name));
                    found.push((TensorId::Initializer(id, index as u32), path));
                }
            }
            for (index, sparse) in graph.sparse_initializers.iter().enumerate() {
                let name = sparse.tensor.values.as_ref().and_then(|values| values.name);
                let Some(name) = name else { continue };
                for part in PARTS {
                    if sparse.tensor.part(part).is_some_and(&wanted) {
                        let mut path = joined(&place, self.text(name));
                        path.extend(part.suffix());
                        found.push((TensorId::Sparse(id, index as u32, part), path));
                    }
                }
            }
            let nodes = if in_nodes { &graph.nodes[..] } else { &[] };
            for node in nodes {
                let mut outputs = self.outputs(*node).iter().flatten();
                let name = outputs.find_map(|value| {
                    let name = self.text(self.value(*value).name);
                    (!name.is_empty()).then_some(name)
                });
                let Some(name) = name else { continue };
                for attribute in self.attributes(*node) {
                    let content = self.attribute(*attribute);
                    if content.graphs().next().is_none() {
                        let mut holds_wanted = false;
                        in_attribute(content, |place| {
                            holds_wanted |= place.find(content).is_some_and(&wanted);
                        });
                        if !holds_wanted {
                            continue;
                        }
                    }
                    let mut place = joined(&place, name);
                    place.push(b'>');
                    let id = |inside| TensorId::Attribute(*attribute, inside);
                    self.paths_inside(content, &place, id, &wanted, &mut found, &mut left);
                }
            }
        }
        found
    }

    /// The paths of the tensors in an attribute, and of the graphs in it, if its node is at
    /// `place`.
    fn paths_inside(
        &self,
        attribute: &Attribute,
        place: &[u8],
        id: impl Fn(InAttribute) -> TensorId,
        wanted: &impl Fn(&TensorProto) -> bool,
        found: &mut Vec<(TensorId, Vec<u8>)>,
        graphs: &mut Vec<(GraphId, Vec<u8>)>,
    ) {
        let place = joined(place, self.maybe_text(attribute.name).unwrap_or_default());
        in_attribute(attribute, |inside| {
            if !inside.find(attribute).is_some_and(wanted) {
                return;
            }
            let mut path = place.clone();
            // A second value field is not what the attribute means.
            path.extend(vec![b'+'; inside.field as usize]);
            let is_list = matches!(
                attribute.values.get(inside.field as usize),
                Some(AttributeValue::Tensors(_) | AttributeValue::SparseTensors(_))
            );
            if is_list {
                path.extend(format!("[{}]", inside.element).as_bytes());
            }
            path.extend(inside.part.iter().flat_map(|part| part.suffix()));
            found.push((id(inside), path));
        });
        for (number, graph) in attribute.graphs().enumerate() {
            let mut place = place.clone();
            if number > 0 {
                place.extend(format!("[{number}]").as_bytes());
            }
            place.push(b'>');
            graphs.push((graph, place));
        }
    }

    /// For each of [`tensors`](Model::tensors) in turn, where it stands in the file, in words for
    /// people.
    pub fn tensor_places(&self) -> Vec<String> {
        let graphs = self.graph_places();
        let attributes = self.attribute_places(&graphs);
        let part = |part| match part {
            SparsePart::Values => ".values",
            SparsePart::Indices => ".indices",
        };
        let inside = |attribute: &Attribute, place: InAttribute| {
            let is_list = matches!(
                attribute.values.get(place.field as usize),
                Some(AttributeValue::Tensors(_) | AttributeValue::SparseTensors(_))
            );
            let element = if is_list { format!("[{}]", place.element) } else { String::new() };
            format!(
                " '{}'{element}{}",
                shown(self.maybe_text(attribute.name).unwrap_or_default()),
                place.part.map_or("", part)
            )
        };
        let place = |id| match id {
            TensorId::Initializer(graph, index) => {
                format!("{}.initializer[{index}]", graphs[&graph])
            }
            TensorId::Sparse(graph, index, which) => {
                format!("{}.sparse_initializer[{index}]{}", graphs[&graph], part(which))
            }
            TensorId::Attribute(attribute, place) => {
                let inside = inside(self.attribute(attribute), place);
                attributes[&attribute].clone() + &inside
            }
            TensorId::Default(function, attribute, place) => {
                let protos = &self.functions[function as usize].attribute_protos;
                let inside = inside(&protos[attribute as usize], place);
                format!("functions[{function}].attribute_proto[{attribute}]{inside}")
            }
        };
        self.tensors().into_iter().map(place).collect()
    }

    /// Where each graph stands in the file, as a path through its messages.
    pub fn graph_places(&self) -> HashMap<GraphId, String> {
        let mut places = HashMap::new();
        let mut left: Vec<(GraphId, String)> = Vec::new();
        left.extend(self.main.map(|main| (main, "graph".to_string())));
        for (index, info) in self.training_info.iter().enumerate() {
            let name = |graph, field| (graph, format!("training_info[{index}].{field}"));
            left.extend(info.initialization.map(|graph| name(graph, "initialization")));
            left.extend(info.algorithm.map(|graph| name(graph, "algorithm")));
        }
        for (index, function) in self.functions.iter().enumerate() {
            left.push((function.body, format!("functions[{index}]")));
            for (position, attribute) in function.attribute_protos.iter().enumerate() {
                let place = format!("functions[{index}].attribute_proto[{position}]");
                left.extend(self.places_inside(attribute, &place));
            }
        }
        while let Some((id, place)) = left.pop() {
            for (index, node) in self.graph(id).nodes.iter().enumerate() {
                for attribute in self.attributes(*node) {
                    let attribute = self.attribute(*attribute);
                    if attribute.graphs().next().is_some() {
                        // Graphs nest as deeply as a file likes.
                        let place = format!("{place}.node[{index}]");
                        let place = elide_middle(&place, 200, 400);
                        left.extend(self.places_inside(attribute, &place));
                    }
                }
            }
            places.insert(id, place);
        }
        places
    }

    /// Where the graphs of an attribute stand, if its node stands at `place`.
    fn places_inside(&self, attribute: &Attribute, place: &str) -> Vec<(GraphId, String)> {
        let name = shown(self.maybe_text(attribute.name).unwrap_or_default());
        let graphs = attribute.graphs().enumerate();
        graphs
            .map(|(number, graph)| match number {
                0 => (graph, format!("{place} '{name}'")),
                number => (graph, format!("{place} '{name}'[{number}]")),
            })
            .collect()
    }

    /// Where each attribute that holds tensors stands in the file.
    fn attribute_places(&self, graphs: &HashMap<GraphId, String>) -> HashMap<AttributeId, String> {
        let mut places = HashMap::new();
        for (graph, place) in graphs {
            for (index, node) in self.graph(*graph).nodes.iter().enumerate() {
                for id in self.attributes(*node) {
                    let mut holds_tensors = false;
                    in_attribute(self.attribute(*id), |_| holds_tensors = true);
                    if holds_tensors {
                        places.insert(*id, format!("{place}.node[{index}]"));
                    }
                }
            }
        }
        places
    }

    /// A stored tensor.
    ///
    /// # Panics
    ///
    /// If the lists that lead there have been changed since the id was given out.
    pub fn stored(&self, id: TensorId) -> &TensorProto {
        let found = match id {
            TensorId::Initializer(graph, index) => {
                let initializers = &self.graphs[graph].initializers;
                initializers.get(index as usize).map(|found| &found.tensor)
            }
            TensorId::Sparse(graph, index, part) => {
                let sparse = self.graphs[graph].sparse_initializers.get(index as usize);
                sparse.and_then(|sparse| sparse.tensor.part(part))
            }
            TensorId::Attribute(attribute, place) => place.find(&self.attributes[attribute]),
            TensorId::Default(function, attribute, place) => self
                .functions
                .get(function as usize)
                .and_then(|function| function.attribute_protos.get(attribute as usize))
                .and_then(|attribute| place.find(attribute)),
        };
        found.expect("the tensor is where it was")
    }

    /// A stored tensor, to be changed.
    ///
    /// # Panics
    ///
    /// See [`stored`](Model::stored).
    pub fn stored_mut(&mut self, id: TensorId) -> &mut TensorProto {
        let found = match id {
            TensorId::Initializer(graph, index) => {
                let initializers = &mut self.graphs[graph].initializers;
                let found = initializers.get_mut(index as usize);
                found.map(|found| &mut found.tensor)
            }
            TensorId::Sparse(graph, index, part) => {
                let sparse = &mut self.graphs[graph].sparse_initializers;
                let found = sparse.get_mut(index as usize);
                found.and_then(|sparse| sparse.tensor.part_mut(part))
            }
            TensorId::Attribute(attribute, place) => {
                place.find_mut(&mut self.attributes[attribute])
            }
            TensorId::Default(function, attribute, place) => self
                .functions
                .get_mut(function as usize)
                .and_then(|function| function.attribute_protos.get_mut(attribute as usize))
                .and_then(|attribute| place.find_mut(attribute)),
        };
        found.expect("the tensor is where it was")
    }
}

/// Gives `found` every tensor of an attribute.
fn in_attribute(attribute: &Attribute, mut found: impl FnMut(InAttribute)) {
    for (field, value) in attribute.values.iter().enumerate() {
        let mut push = |element: usize, part| {
            found(InAttribute { field: field as u32, element: element as u32, part });
        };
        match value {
            AttributeValue::Tensor(_) => push(0, None),
            AttributeValue::Tensors(tensors) => (0..tensors.len()).for_each(|i| push(i, None)),
            AttributeValue::SparseTensor(sparse) => {
                let parts = PARTS.into_iter().filter(|part| sparse.part(*part).is_some());
                parts.for_each(|part| push(0, Some(part)));
            }
            AttributeValue::SparseTensors(list) => {
                for (i, sparse) in list.iter().enumerate() {
                    let parts = PARTS.into_iter().filter(|part| sparse.part(*part).is_some());
                    parts.for_each(|part| push(i, Some(part)));
                }
            }
            _ => {}
        }
    }
}

impl InAttribute {
    fn find(self, attribute: &Attribute) -> Option<&TensorProto> {
        let element = self.element as usize;
        match (attribute.values.get(self.field as usize)?, self.part) {
            (AttributeValue::Tensor(tensor), None) => Some(tensor),
            (AttributeValue::Tensors(tensors), None) => tensors.get(element),
            (AttributeValue::SparseTensor(sparse), Some(part)) => sparse.part(part),
            (AttributeValue::SparseTensors(list), Some(part)) => list.get(element)?.part(part),
            _ => None,
        }
    }

    fn find_mut(self, attribute: &mut Attribute) -> Option<&mut TensorProto> {
        let element = self.element as usize;
        match (attribute.values.get_mut(self.field as usize)?, self.part) {
            (AttributeValue::Tensor(tensor), None) => Some(tensor),
            (AttributeValue::Tensors(tensors), None) => tensors.get_mut(element),
            (AttributeValue::SparseTensor(sparse), Some(part)) => sparse.part_mut(part),
            (AttributeValue::SparseTensors(list), Some(part)) => {
                list.get_mut(element)?.part_mut(part)
            }
            _ => None,
        }
    }
}

//! Enumerates the stored tensors of a model: in graphs, subgraphs, attributes, functions and
//! training steps.

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

/// Position of a stored tensor. Valid until one of the lists that it indexes changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TensorId {
    /// Initializer of a graph, by position.
    Initializer(GraphId, u32),
    /// Part of a sparse initializer of a graph, by position.
    Sparse(GraphId, u32, SparsePart),
    /// Tensor in an attribute of a node.
    Attribute(AttributeId, InAttribute),
    /// Tensor in a default value of a function, by positions of the function and of its attribute.
    Default(u32, u32, InAttribute),
}

/// Position of a tensor in the value fields of an attribute.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct InAttribute {
    /// Index of the value field.
    field: u32,
    /// Index in a list; 0 for a single value.
    element: u32,
    /// Part of a sparse tensor; `None` for a dense one.
    part: Option<SparsePart>,
}

/// Tensors that a sparse tensor consists of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SparsePart {
    /// The values that are not zero.
    Values,
    /// Positions of these values.
    Indices,
}

const PARTS: [SparsePart; 2] = [SparsePart::Values, SparsePart::Indices];

/// Maximum length of a path, in bytes. Tensors at a longer path have none.
const LONGEST_PATH: usize = 4096;

impl SparsePart {
    /// Returns the part's suffix in a path.
    fn suffix(self) -> &'static [u8] {
        match self {
            SparsePart::Values => b"[values]",
            SparsePart::Indices => b"[indices]",
        }
    }
}

/// Returns the path of an initializer of the main graph; see [`Model::tensor_paths`].
pub fn path_of_initializer(name: &[u8]) -> Vec<u8> {
    join_path(b"", name)
}

/// Appends a name to a path.
fn join_path(place: &[u8], name: &[u8]) -> Vec<u8> {
    let mut path = place.to_vec();
    push_escaped(&mut path, name);
    path
}

/// Appends a name to a path and escapes the characters that have a meaning in paths.
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
    /// Returns the part of a sparse tensor; `None` for a dense one.
    pub fn sparse_part(self) -> Option<SparsePart> {
        match self {
            TensorId::Sparse(_, _, part) => Some(part),
            TensorId::Attribute(_, place) | TensorId::Default(_, _, place) => place.part,
            TensorId::Initializer(..) => None,
        }
    }

    /// Whether the tensor is an initializer of a graph rather than part of a node.
    pub fn is_initializer(self) -> bool {
        matches!(self, TensorId::Initializer(..) | TensorId::Sparse(..))
    }
}

impl Model {
    /// Reads a model from which large payloads were skipped. Each tensor that lost some records the
    /// number of bytes.
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
            let tensor = model.stored_tensor_mut(id);
            let raw = tensor.raw_data.filter(|raw| raw.len == 0);
            let ends = raw.iter().map(|raw| raw.offset);
            // Several runs of empty lists may have been joined.
            let runs = tensor.typed.iter().flat_map(|run| {
                let records = run.records;
                (records.offset + 1..=records.offset + records.len).rev()
            });
            let bytes: u64 = ends.chain(runs).filter_map(skipped).sum();
            tensor.skipped = (bytes > 0).then_some(bytes);
        }
        Ok(model)
    }

    /// Whether values were skipped when the model was read.
    pub fn is_skimmed(&self) -> bool {
        let mut tensors = self.tensors().into_iter();
        tensors.any(|id| self.stored_tensor(id).skipped.is_some())
    }

    /// Returns all stored tensors in the order of the file: main graph with the tensors of its
    /// nodes, training steps, functions. Tensors in removed nodes are not included.
    pub fn tensors(&self) -> Vec<TensorId> {
        let mut found = Vec::new();
        // Scanning all attributes is much cheaper than walking over the nodes.
        let in_nodes = self.all_attributes().any(|attribute| {
            let mut holds_tensors = false;
            for_each_in_attribute(attribute, |_| holds_tensors = true);
            holds_tensors || attribute.graphs().next().is_some()
        });
        self.tensors_of_graphs(self.main, in_nodes, &mut found);
        for info in &self.training_info {
            self.tensors_of_graphs(info.initialization, in_nodes, &mut found);
            self.tensors_of_graphs(info.algorithm, in_nodes, &mut found);
        }
        for (index, function) in self.functions.iter().enumerate() {
            for (position, attribute) in function.attribute_protos.iter().enumerate() {
                for_each_in_attribute(attribute, |place| {
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

    /// Collects the tensors of a graph and of all graphs in it; `in_nodes` is whether attributes of
    /// nodes can hold any. Uses a list of pending graphs instead of recursion, as the nesting depth
    /// of a file is not bounded.
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
                    for_each_in_attribute(content, |place| {
                        found.push(TensorId::Attribute(*attribute, place));
                    });
                    left.extend(content.graphs());
                }
            }
            // The first subgraph is popped next.
            left[first_new..].reverse();
        }
    }

    /// Whether a tensor in an attribute, or in a default value of a function, has values outside
    /// the message.
    pub fn has_external_attributes(&self) -> bool {
        let defaults = self.functions.iter().flat_map(|function| &function.attribute_protos);
        self.all_attributes().chain(defaults).any(|attribute| {
            let mut is_external = false;
            for_each_in_attribute(attribute, |place| {
                is_external |= place.find(attribute).is_some_and(TensorProto::is_external);
            });
            is_external
        })
    }

    /// Returns the tensors in a node's attributes whose values are outside the message, each with
    /// the name of its attribute.
    pub fn external_tensors_of(&self, node: NodeId) -> Vec<(TensorId, Option<Symbol>)> {
        let mut found = Vec::new();
        for id in self.attributes(node) {
            let attribute = self.attribute(*id);
            for_each_in_attribute(attribute, |place| {
                if place.find(attribute).is_some_and(TensorProto::is_external) {
                    found.push((TensorId::Attribute(*id, place), attribute.name));
                }
            });
        }
        found
    }

    /// Returns the tensors in a function's default values whose values are outside the message,
    /// each with the name of its attribute.
    pub fn external_defaults_of(&self, function: usize) -> Vec<(TensorId, Option<Symbol>)> {
        let mut found = Vec::new();
        for (index, default) in self.functions[function].attribute_protos.iter().enumerate() {
            for_each_in_attribute(default, |place| {
                if place.find(default).is_some_and(TensorProto::is_external) {
                    let id = TensorId::Default(function as u32, index as u32, place);
                    found.push((id, default.name));
                }
            });
        }
        found
    }

    /// Moves the values of a tensor from outside the message into the model. They are shared with
    /// `external`, not copied.
    ///
    /// # Errors
    ///
    /// See [`tensor`](Model::tensor).
    pub fn load_stored(
        &mut self,
        id: TensorId,
        external: &dyn ExternalData,
    ) -> Result<(), ConstantError> {
        let stored = self.stored_tensor(id);
        let name = stored.name;
        let tensor = self.tensor(stored, external)?;
        let loaded = self.tensor_proto(&tensor);
        *self.stored_tensor_mut(id) = TensorProto { name, ..loaded };
        Ok(())
    }

    /// Returns the path of each stored tensor for which `wanted` returns true. Paths stay valid
    /// when other nodes and tensors are added or removed: the name of an initializer of the main
    /// graph, for other tensors the outputs of nodes and the attributes that lead there, such as
    /// `y>body>z>value`. Tensors without a path are left out; two tensors may have the same path.
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
                self.add_paths(attribute, &place, id, &wanted, &mut found, &mut left);
            }
            left.push((function.body, place));
        }
        let in_nodes = self.all_attributes().any(|attribute| {
            let mut holds_wanted = false;
            for_each_in_attribute(attribute, |place| {
                holds_wanted |= place.find(attribute).is_some_and(&wanted);
            });
            holds_wanted || attribute.graphs().next().is_some()
        });
        while let Some((id, place)) = left.pop() {
            // Files may nest to any depth, and each level would copy the names of the enclosing
            // ones.
            if place.len() > LONGEST_PATH {
                continue;
            }
            let graph = self.graph(id);
            for (index, initializer) in graph.initializers.iter().enumerate() {
                if let Some(name) = initializer.tensor.name
                    && wanted(&initializer.tensor)
                {
                    let path = join_path(&place, self.text(name));
                    found.push((TensorId::Initializer(id, index as u32), path));
                }
            }
            for (index, sparse) in graph.sparse_initializers.iter().enumerate() {
                let name = sparse.tensor.values.as_ref().and_then(|values| values.name);
                let Some(name) = name else { continue };
                for part in PARTS {
                    if sparse.tensor.part(part).is_some_and(&wanted) {
                        let mut path = join_path(&place, self.text(name));
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
                        for_each_in_attribute(content, |place| {
                            holds_wanted |= place.find(content).is_some_and(&wanted);
                        });
                        if !holds_wanted {
                            continue;
                        }
                    }
                    let mut place = join_path(&place, name);
                    place.push(b'>');
                    let id = |inside| TensorId::Attribute(*attribute, inside);
                    self.add_paths(content, &place, id, &wanted, &mut found, &mut left);
                }
            }
        }
        found
    }

    /// Adds the paths of the tensors in an attribute, and of the graphs in it, for a node at
    /// `place`.
    fn add_paths(
        &self,
        attribute: &Attribute,
        place: &[u8],
        id: impl Fn(InAttribute) -> TensorId,
        wanted: &impl Fn(&TensorProto) -> bool,
        found: &mut Vec<(TensorId, Vec<u8>)>,
        graphs: &mut Vec<(GraphId, Vec<u8>)>,
    ) {
        let place = join_path(place, self.maybe_text(attribute.name).unwrap_or_default());
        for_each_in_attribute(attribute, |inside| {
            if !inside.find(attribute).is_some_and(wanted) {
                return;
            }
            let mut path = place.clone();
            // The second and later value fields have no effect, so their paths are marked.
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

    /// Describes the position in the file of each of [`tensors`](Model::tensors), for messages.
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

    /// Returns the path of each graph through the messages of the file.
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
                left.extend(self.list_graph_places(attribute, &place));
            }
        }
        while let Some((id, place)) = left.pop() {
            for (index, node) in self.graph(id).nodes.iter().enumerate() {
                for attribute in self.attributes(*node) {
                    let attribute = self.attribute(*attribute);
                    if attribute.graphs().next().is_some() {
                        // Graphs may be nested to any depth.
                        let place = format!("{place}.node[{index}]");
                        let place = elide_middle(&place, 200, 400);
                        left.extend(self.list_graph_places(attribute, &place));
                    }
                }
            }
            places.insert(id, place);
        }
        places
    }

    /// Returns the paths of an attribute's graphs, for a node at `place`.
    fn list_graph_places(&self, attribute: &Attribute, place: &str) -> Vec<(GraphId, String)> {
        let name = shown(self.maybe_text(attribute.name).unwrap_or_default());
        let graphs = attribute.graphs().enumerate();
        graphs
            .map(|(number, graph)| match number {
                0 => (graph, format!("{place} '{name}'")),
                number => (graph, format!("{place} '{name}'[{number}]")),
            })
            .collect()
    }

    /// Returns the path of each attribute that holds tensors.
    fn attribute_places(&self, graphs: &HashMap<GraphId, String>) -> HashMap<AttributeId, String> {
        let mut places = HashMap::new();
        for (graph, place) in graphs {
            for (index, node) in self.graph(*graph).nodes.iter().enumerate() {
                for id in self.attributes(*node) {
                    let mut holds_tensors = false;
                    for_each_in_attribute(self.attribute(*id), |_| holds_tensors = true);
                    if holds_tensors {
                        places.insert(*id, format!("{place}.node[{index}]"));
                    }
                }
            }
        }
        places
    }

    /// Returns a stored tensor.
    ///
    /// # Panics
    ///
    /// Panics if the lists that lead there have changed since the id was created.
    pub fn stored_tensor(&self, id: TensorId) -> &TensorProto {
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

    /// Returns a stored tensor, to be changed.
    ///
    /// # Panics
    ///
    /// See [`stored_tensor`](Model::stored_tensor).
    pub fn stored_tensor_mut(&mut self, id: TensorId) -> &mut TensorProto {
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

/// Calls `found` for every tensor of an attribute.
fn for_each_in_attribute(attribute: &Attribute, mut found: impl FnMut(InAttribute)) {
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

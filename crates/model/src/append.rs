//! Appends graphs and turns initializers into inputs, to build the program of a training step.

use hashbrown::{HashMap, HashSet};

use crate::graph::{Graph, Model, Producer, Value, ValueInfo};
use crate::ids::{GraphId, NodeId, ValueId};
use crate::source::Unknowns;
use crate::type_proto::{DimProto, DimValue, ShapeProto, TypeKind, TypeProto};

impl Model {
    /// Appends the content of the graph `from` to the graph `to`: inputs, initializers, outputs,
    /// nodes and types, each list after that of `to`. `from` must see the values of `to`, as the
    /// algorithm of a training step sees those of the main graph. All names stay, and `from` is
    /// empty afterwards. An output that `to` already lists is not added again.
    ///
    /// Does not check names: a name that both graphs define is defined twice afterwards.
    pub fn append_graph(&mut self, to: GraphId, from: GraphId) {
        let first = {
            let graph = &self.graphs[to];
            let lists =
                [graph.inputs.len(), graph.initializers.len(), graph.sparse_initializers.len()];
            lists.map(|len| len as u32)
        };
        for value in self.values.iter_mut().filter(|value| value.graph == from) {
            value.graph = to;
            value.producer = match value.producer {
                Producer::Input(index) => Producer::Input(first[0] + index),
                Producer::Initializer(index) => Producer::Initializer(first[1] + index),
                Producer::SparseInitializer(index) => Producer::SparseInitializer(first[2] + index),
                other => other,
            };
        }
        let moved = std::mem::take(&mut self.graphs[from]);
        for node in &moved.nodes {
            self.nodes[*node].graph = to;
        }
        for graph in self.graphs.iter_mut().filter(|graph| graph.parent == Some(from)) {
            graph.parent = Some(to);
        }
        let Graph { inputs, outputs, initializers, sparse_initializers, nodes, value_info, .. } =
            moved;
        let outputs = self.bind_outputs(to, outputs);
        let graph = &mut self.graphs[to];
        graph.inputs.extend(inputs);
        graph.initializers.extend(initializers);
        graph.sparse_initializers.extend(sparse_initializers);
        graph.nodes.extend(nodes);
        graph.value_info.extend(value_info);
        graph.quantization_annotation.extend(moved.quantization_annotation);
        let mut listed: HashSet<_> = graph.outputs.iter().map(|info| info.name).collect();
        graph.outputs.extend(outputs.into_iter().filter(|info| listed.insert(info.name)));
    }

    /// Binds the outputs that `graph` receives from another graph: their names may be those of
    /// values that the other graph captured.
    fn bind_outputs(&mut self, graph: GraphId, mut outputs: Vec<ValueInfo>) -> Vec<ValueInfo> {
        let unbound = outputs.iter().filter(|info| info.value.is_none());
        let unbound: HashSet<_> = unbound.filter_map(|info| info.name).collect();
        let mut found = HashMap::new();
        for (id, value) in self.values.iter() {
            if value.graph == graph
                && value.producer != Producer::Nothing
                && unbound.contains(&value.name)
            {
                found.entry(value.name).or_insert(id);
            }
        }
        for info in &mut outputs {
            info.value = info.value.or_else(|| found.get(&info.name?).copied());
            if let Some(value) = info.value {
                self.values[value].is_output = true;
            }
        }
        outputs
    }

    /// Turns the initializers of a graph, dense and sparse, for which `is_input` returns true into
    /// inputs of the initializer's type. An initializer that is the default of an input is only
    /// removed: the input keeps its position and, unless `exact` is true, its declared type.
    pub fn make_inputs(
        &mut self,
        graph: GraphId,
        exact: bool,
        is_input: impl Fn(&Model, ValueId) -> bool,
    ) {
        let chosen: Vec<(ValueId, TypeProto)> = {
            let initializers = self.graphs[graph].initializers.iter();
            let dense = initializers.map(|initializer| {
                (initializer.value, initializer.tensor.data_type, &initializer.tensor.dims)
            });
            let sparse = self.graphs[graph].sparse_initializers.iter().map(|initializer| {
                let values = initializer.tensor.values.as_ref();
                let elem = values.and_then(|values| values.data_type);
                (initializer.value, elem, &initializer.tensor.dims)
            });
            let chosen = dense.chain(sparse).filter_map(|(value, elem, dims)| {
                let value = value.filter(|value| is_input(self, *value))?;
                Some((value, type_of(elem, dims)))
            });
            chosen.collect()
        };
        let values: HashSet<ValueId> = chosen.iter().map(|(value, _)| *value).collect();
        let stays = |value: Option<ValueId>| value.is_none_or(|value| !values.contains(&value));
        self.retain_initializers(graph, |_, initializer| stays(initializer.value));
        self.retain_sparse_initializers(graph, |_, initializer| stays(initializer.value));
        let Model { graphs, values: all, .. } = self;
        let graph = &mut graphs[graph];
        // An input's type is declared in the list of inputs only.
        graph.value_info.retain(|info| stays(info.value));
        for (value, ty) in chosen {
            if let Producer::Input(index) = all[value].producer {
                if exact {
                    graph.inputs[index as usize].ty = Some(ty);
                }
                continue;
            }
            all[value].producer = Producer::Input(graph.inputs.len() as u32);
            let (name, value, ty) = (Some(all[value].name), Some(value), Some(ty));
            graph.inputs.push(ValueInfo { name, value, ty, ..ValueInfo::default() });
        }
    }

    /// Makes a value without a definition an input of its graph.
    pub fn make_input(&mut self, graph: GraphId, value: ValueId, ty: Option<TypeProto>) {
        let inputs = &mut self.graphs[graph].inputs;
        self.values[value].producer = Producer::Input(inputs.len() as u32);
        let name = Some(self.values[value].name);
        inputs.push(ValueInfo { name, value: Some(value), ty, ..ValueInfo::default() });
    }

    /// Moves a value of another graph into `graph`, where nothing defines it.
    pub fn move_value(&mut self, value: ValueId, graph: GraphId) {
        let value = &mut self.values[value];
        (value.graph, value.producer, value.is_output) = (graph, Producer::Nothing, false);
    }

    /// Moves an initializer of another graph, dense or sparse, into `graph`. Any other value
    /// becomes an undefined value of `graph`.
    pub fn adopt_initializer(&mut self, value: ValueId, graph: GraphId) {
        let Value { graph: home, producer, .. } = self.values[value];
        self.move_value(value, graph);
        match producer {
            Producer::Initializer(index) => {
                let found = self.graphs[home].initializers.get(index as usize).cloned();
                let initializers = &mut self.graphs[graph].initializers;
                if let Some(found) = found {
                    self.values[value].producer = Producer::Initializer(initializers.len() as u32);
                    initializers.push(found);
                }
            }
            Producer::SparseInitializer(index) => {
                let found = self.graphs[home].sparse_initializers.get(index as usize).cloned();
                let sparse = &mut self.graphs[graph].sparse_initializers;
                if let Some(found) = found {
                    self.values[value].producer = Producer::SparseInitializer(sparse.len() as u32);
                    sparse.push(found);
                }
            }
            _ => {}
        }
    }

    /// Moves nodes of other graphs, with their outputs, to the front of `graph`. The graph must see
    /// the values that they read.
    pub fn move_nodes(&mut self, nodes: &[NodeId], graph: GraphId) {
        let moved: HashSet<NodeId> = nodes.iter().copied().collect();
        let homes: HashSet<GraphId> = nodes.iter().map(|node| self.nodes[*node].graph).collect();
        for home in homes {
            self.graphs[home].nodes.retain(|node| !moved.contains(node));
        }
        for node in nodes {
            self.nodes[*node].graph = graph;
            for index in self.nodes[*node].outputs.indices() {
                if let Some(value) = self.output_lists[index] {
                    self.values[value].graph = graph;
                    self.values[value].is_output = false;
                }
            }
        }
        self.graphs[graph].nodes.splice(0..0, nodes.iter().copied());
    }

    /// Returns the type of the tensor that an initializer stores; `None` for other values.
    pub fn type_of_initializer(&self, value: ValueId) -> Option<TypeProto> {
        let Value { graph, producer, .. } = &self.values[value];
        let graph = &self.graphs[*graph];
        match *producer {
            Producer::Initializer(index) => {
                let tensor = &graph.initializers.get(index as usize)?.tensor;
                Some(type_of(tensor.data_type, &tensor.dims))
            }
            Producer::SparseInitializer(index) => {
                let tensor = &graph.sparse_initializers.get(index as usize)?.tensor;
                let elem = tensor.values.as_ref().and_then(|values| values.data_type);
                Some(type_of(elem, &tensor.dims))
            }
            _ => None,
        }
    }

    /// Lists initializers of a graph among its inputs, too, as their defaults.
    pub fn make_inputs_of_initializers(&mut self, graph: GraphId, values: &[ValueId]) {
        let wanted: HashSet<ValueId> = values.iter().copied().collect();
        let initializers = self.graphs[graph].initializers.iter();
        let chosen = initializers.filter_map(|found| {
            let value = found.value.filter(|value| wanted.contains(value))?;
            Some((value, type_of(found.tensor.data_type, &found.tensor.dims)))
        });
        let chosen: Vec<(ValueId, TypeProto)> = chosen.collect();
        for (value, ty) in chosen {
            self.make_input(graph, value, Some(ty));
        }
    }

    /// Adds an empty graph without a parent.
    pub fn add_graph(&mut self, name: &str) -> GraphId {
        let name = Some(self.intern(name));
        self.graphs.push(Graph { name, ..Graph::default() })
    }

    /// Keeps the outputs of a graph for which `keep` returns true.
    pub fn retain_outputs(&mut self, graph: GraphId, keep: impl Fn(&Model, &ValueInfo) -> bool) {
        let outputs = std::mem::take(&mut self.graphs[graph].outputs);
        let (kept, dropped): (Vec<_>, Vec<_>) =
            outputs.into_iter().partition(|info| keep(self, info));
        for value in dropped.iter().filter_map(|info| info.value) {
            self.values[value].is_output = false;
        }
        for value in kept.iter().filter_map(|info| info.value) {
            self.values[value].is_output = true;
        }
        self.graphs[graph].outputs = kept;
    }
}

/// Returns the type of a stored tensor.
fn type_of(elem_type: Option<i32>, dims: &[i64]) -> TypeProto {
    let dim = |dim: &i64| DimProto { value: Some(DimValue::Value(*dim)), ..DimProto::default() };
    let shape = ShapeProto { dims: dims.iter().map(dim).collect(), ..ShapeProto::default() };
    let kind = TypeKind::Tensor { elem_type, shape: Some(shape), unknown: Unknowns::default() };
    TypeProto { kind: Some(kind), ..TypeProto::default() }
}

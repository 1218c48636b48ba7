//! One graph after another, and initializers that become inputs: of these the program of a training
//! step is made.

use hashbrown::{HashMap, HashSet};

use crate::graph::{Graph, Model, Producer, ValueInfo};
use crate::ids::{GraphId, ValueId};
use crate::source::Unknowns;
use crate::type_proto::{DimProto, DimValue, ShapeProto, TypeKind, TypeProto};

impl Model {
    /// Appends to a graph what is in another one, which sees the values of the first, as the
    /// algorithm of a training step sees those of the main graph: inputs, initializers, outputs,
    /// nodes and types, each list in that order. All names stay. The other graph is empty
    /// afterwards. An output that is listed already is not listed again.
    ///
    /// Nothing is judged: a name that both define is defined twice afterwards.
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
        let outputs = self.bound_in(to, outputs);
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

    /// Outputs that are now those of another graph: their names may be those of values that their
    /// own graph only saw.
    fn bound_in(&mut self, graph: GraphId, mut outputs: Vec<ValueInfo>) -> Vec<ValueInfo> {
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

    /// Makes inputs of those initializers of a graph, dense and sparse, for which `is_input`
    /// returns true. One that is an input already stays where it is, and loses only its default;
    /// its declared type becomes that of the initializer if `exact` is true. Types of the others
    /// are those of the initializers.
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
        // The type of an input is said where it is declared.
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

    /// Makes an input of a value that nothing in its graph defines any more.
    pub fn make_input(&mut self, graph: GraphId, value: ValueId, ty: Option<TypeProto>) {
        let inputs = &mut self.graphs[graph].inputs;
        self.values[value].producer = Producer::Input(inputs.len() as u32);
        let name = Some(self.values[value].name);
        inputs.push(ValueInfo { name, value: Some(value), ty, ..ValueInfo::default() });
    }

    /// A new graph that stands alone, without anything in it.
    pub fn add_graph(&mut self, name: &str) -> GraphId {
        let name = Some(self.intern(name));
        self.graphs.push(Graph { name, ..Graph::default() })
    }

    /// Keeps those outputs of a graph for which `keep` says so.
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

/// The type of a stored tensor.
fn type_of(elem_type: Option<i32>, dims: &[i64]) -> TypeProto {
    let dim = |dim: &i64| DimProto { value: Some(DimValue::Value(*dim)), ..DimProto::default() };
    let shape = ShapeProto { dims: dims.iter().map(dim).collect(), ..ShapeProto::default() };
    let kind = TypeKind::Tensor { elem_type, shape: Some(shape), unknown: Unknowns::default() };
    TypeProto { kind: Some(kind), ..TypeProto::default() }
}

//! The nodes of a model one by one: operators, and the values that they read and make.

use std::collections::HashMap;
use std::sync::Arc;

use sardonyx_model::{self as graph, GraphId, NodeId, Producer, ValueId};
use sardonyx_passes::place_of_node;
use sardonyx_proto::closest;
use sardonyx_tensor::DataType;

use crate::error::{Error, ErrorKind};
use crate::inference::Inferred;
use crate::model::Model;
use sardonyx_model::Type;

/// A node of a graph.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct NodeInfo {
    /// The graph that it stands in, as a path through the messages of the file: `graph` for the
    /// main graph, else such as `graph.node[3] 'then_branch'` or `functions[0]`.
    pub graph: Arc<str>,
    /// Its position in that graph.
    pub index: usize,
    /// Its name; may be empty.
    pub name: String,
    /// The domain of its operator; empty for `ai.onnx`.
    pub domain: String,
    /// The name of its operator or function.
    pub operator: String,
    /// What messages call it, such as `node 'conv1' (Conv)`.
    pub place: String,
    /// What it reads, by position; `None` for an input that is left out.
    pub inputs: Vec<Option<NodeValue>>,
    /// What it makes, by position; `None` for an output that is left out.
    pub outputs: Vec<Option<NodeValue>>,
}

impl NodeInfo {
    /// Whether it stands in the main graph.
    pub fn is_in_main_graph(&self) -> bool {
        &*self.graph == "graph"
    }
}

/// A value that a node reads or makes.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct NodeValue {
    /// Its name.
    pub name: String,
    /// Its type, if types were given and it is known.
    pub ty: Option<Type>,
    /// Where it comes from.
    pub source: ValueSource,
    /// Whether its graph has it as an output.
    pub is_output: bool,
}

/// Where a value comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ValueSource {
    /// An input of the graph.
    Input,
    /// An initializer of the graph.
    Initializer,
    /// The node of the same graph at this position.
    Node(usize),
    /// A graph around that of the node.
    Outside,
    /// Nothing defines it.
    Nothing,
}

impl Model {
    /// The nodes of all graphs: the main graph and those within its nodes first, then functions and
    /// training steps. Types are those that [`infer`](Model::infer) found, if it is given.
    ///
    /// ```
    /// # use sardonyx::Model;
    /// # use sardonyx::inspect::ValueSource;
    /// # let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/digits/digits.onnx");
    /// let model = Model::open(path)?;
    /// let nodes = model.nodes(None);
    /// assert_eq!((&*nodes[0].operator, &*nodes[0].graph), ("Conv", "graph"));
    /// let image = nodes[0].inputs[0].as_ref().unwrap();
    /// assert_eq!((&*image.name, image.source), ("image", ValueSource::Input));
    /// # Ok::<(), sardonyx::Error>(())
    /// ```
    pub fn nodes(&self, types: Option<&Inferred>) -> Vec<NodeInfo> {
        let model = &self.graph;
        let places = model.graph_places();
        let graphs = self.graphs_in_order();
        let positions: HashMap<NodeId, usize> = graphs
            .iter()
            .flat_map(|id| model.graph(*id).nodes.iter().enumerate())
            .map(|(index, node)| (*node, index))
            .collect();
        let mut nodes = Vec::new();
        for id in graphs {
            let place: Arc<str> = places.get(&id).map_or("", String::as_str).into();
            let value = |value: ValueId| self.node_value(id, value, &positions, types);
            for (index, node) in model.graph(id).nodes.iter().enumerate() {
                nodes.push(NodeInfo {
                    graph: Arc::clone(&place),
                    index,
                    name: model.display(model.node(*node).name).into_owned(),
                    domain: model.domain_of(*node).into_owned(),
                    operator: model.display(model.node(*node).op_type).into_owned(),
                    place: place_of_node(model, *node),
                    inputs: model.inputs(*node).map(|input| input.map(value)).collect(),
                    outputs: model.outputs(*node).iter().map(|output| output.map(value)).collect(),
                });
            }
        }
        nodes
    }

    /// All graphs: the main one and those in its nodes, then the others in the same way.
    fn graphs_in_order(&self) -> Vec<GraphId> {
        let model = &self.graph;
        let steps = model.training_info.iter();
        let steps = steps.flat_map(|info| [info.initialization, info.algorithm]);
        let functions = model.functions.iter().map(|function| function.body);
        let mut left: Vec<GraphId> =
            model.main.into_iter().chain(functions).chain(steps.flatten()).collect();
        left.reverse();
        let mut graphs = Vec::new();
        while let Some(id) = left.pop() {
            graphs.push(id);
            let at = left.len();
            left.extend(inner_graphs(model, id));
            left[at..].reverse();
        }
        graphs
    }

    /// A value as the nodes of a graph see it.
    fn node_value(
        &self,
        graph: GraphId,
        id: ValueId,
        positions: &HashMap<NodeId, usize>,
        types: Option<&Inferred>,
    ) -> NodeValue {
        let model = &self.graph;
        let value = model.value(id);
        let source = match value.producer {
            Producer::Nothing => ValueSource::Nothing,
            _ if value.graph != graph => ValueSource::Outside,
            Producer::Input(_) => ValueSource::Input,
            Producer::Initializer(_) | Producer::SparseInitializer(_) => ValueSource::Initializer,
            Producer::Node(node, _) => {
                positions.get(&node).map_or(ValueSource::Nothing, |index| ValueSource::Node(*index))
            }
        };
        let found = types.and_then(|types| types.found.ty(id).cloned());
        NodeValue {
            name: model.display(Some(value.name)).into_owned(),
            ty: found.or_else(|| types.and_then(|_| self.initializer_type(id))),
            source,
            is_output: value.is_output,
        }
    }

    /// The type of an initializer, as it is stored.
    pub(crate) fn initializer_type(&self, id: ValueId) -> Option<Type> {
        let tensor = &self.graph.initializer(id)?.tensor;
        let elem = DataType::from_number(tensor.data_type?)?;
        Some(Type::tensor(elem, tensor.dims.iter().copied()))
    }

    /// A copy of the model whose main graph has these values of it as outputs as well, after its
    /// own. They are the values of the model as it is written, whatever a session changes.
    ///
    /// ```
    /// # use sardonyx::{Model, RunOptions, Session, Tensor};
    /// let model = Model::from_text(
    ///     "<ir_version: 10, opset_import: [\"\": 21]>
    ///      g (float[N] x) => (float[N] y) { a = Exp (x) y = Neg (a) }",
    /// )?;
    /// let session = Session::new(&model.with_outputs(["a"])?)?;
    /// let x = Tensor::from_vec([1], vec![0f32])?;
    /// let outputs = session.run([("x", x)], &RunOptions::default())?;
    /// assert_eq!(outputs.names().collect::<Vec<_>>(), ["y", "a"]);
    /// assert_eq!(outputs.tensor("a")?.as_slice::<f32>()?, [1.0]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Output`] for a name that no value of the main graph has.
    pub fn with_outputs<'n>(
        &self,
        names: impl IntoIterator<Item = &'n str>,
    ) -> Result<Model, Error> {
        let mut values: HashMap<String, ValueId> = HashMap::new();
        for (id, value) in self.graph.values() {
            let is_here = Some(value.graph) == self.graph.main;
            if is_here && value.producer != Producer::Nothing {
                let name = self.graph.display(Some(value.name)).into_owned();
                values.entry(name).or_insert(id);
            }
        }
        let mut wanted = Vec::new();
        for name in names {
            wanted.push(*values.get(name).ok_or_else(|| {
                let message = format!("the main graph has no value '{name}'");
                let error = Error::new(ErrorKind::Output, message);
                if let Some(outputs) = self.outputs_of_node(name) {
                    return error.with_help(format!(
                        "'{name}' is a node; use the name of an output of it: {}",
                        outputs.join(", ")
                    ));
                }
                match closest(name, values.keys().map(String::as_str)) {
                    Some(near) => error.with_help(format!("did you mean '{near}'?")),
                    None => error.with_help("`sardonyx infer --show` lists the values"),
                }
            })?);
        }
        Ok(self.with_output_values(wanted))
    }

    /// The names of what a node of the main graph makes, if one has this name.
    fn outputs_of_node(&self, name: &str) -> Option<Vec<String>> {
        let model = &self.graph;
        let name = model.symbol(name.as_bytes())?;
        let nodes = &model.graph(model.main?).nodes;
        let node = nodes.iter().find(|node| model.node(**node).name == Some(name))?;
        let outputs = model.outputs(*node).iter().flatten();
        let names = outputs.map(|value| model.display(Some(model.value(*value).name)).into_owned());
        Some(names.collect())
    }

    /// As [`with_outputs`](Model::with_outputs), by id.
    pub(crate) fn with_output_values(&self, values: impl IntoIterator<Item = ValueId>) -> Model {
        let mut model = self.clone();
        if let Some(main) = model.graph.main {
            for value in values {
                if !model.graph.value(value).is_output {
                    model.graph.add_graph_output(main, value);
                }
            }
        }
        model
    }
}

/// The graphs in the attributes of a graph's nodes.
fn inner_graphs(model: &graph::Model, id: GraphId) -> impl Iterator<Item = GraphId> + '_ {
    let attributes = model.graph(id).nodes.iter().flat_map(|node| model.attributes(*node));
    attributes.flat_map(|id| model.attribute(*id).graphs())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inference::InferOptions;

    #[test]
    fn nodes_have_their_graphs_and_the_sources_of_their_inputs() {
        let model = Model::from_text(
            "<ir_version: 10, opset_import: [\"\": 21, \"local\": 1]>
             g (bool c, float[2] x) => (float[2] y) <float[2] w = {1, 2}> {
                 [first] a = Add (x, w)
                 y = If (c) <
                     then_branch = yes () => (t) { t = Clip (a, , u) },
                     else_branch = no () => (e) { e = local.F (a) }>
             }
             <domain: \"local\", opset_import: [\"\": 21]> F (p) => (q) { q = Neg (p) }",
        )
        .unwrap();
        let types = model.infer(&InferOptions::new());
        let nodes = model.nodes(Some(&types));
        let places: Vec<(&str, usize, &str)> =
            nodes.iter().map(|node| (&*node.graph, node.index, &*node.operator)).collect();
        assert_eq!(
            places,
            [
                ("graph", 0, "Add"),
                ("graph", 1, "If"),
                ("graph.node[1] 'then_branch'", 0, "Clip"),
                ("graph.node[1] 'else_branch'", 0, "F"),
                ("functions[0]", 0, "Neg"),
            ]
        );
        let sources = |node: usize| -> Vec<Option<ValueSource>> {
            let inputs = nodes[node].inputs.iter();
            inputs.map(|input| input.as_ref().map(|input| input.source)).collect()
        };
        assert_eq!(sources(0), [Some(ValueSource::Input), Some(ValueSource::Initializer)]);
        let inner = [Some(ValueSource::Outside), None, Some(ValueSource::Nothing)];
        assert_eq!(sources(2), inner);
        let ty = |node: usize, input: usize| {
            let input = nodes[node].inputs[input].as_ref().unwrap();
            input.ty.as_ref().unwrap().to_string()
        };
        assert_eq!((ty(0, 1), ty(2, 0)), ("float[2]".to_string(), "float[2]".to_string()));
        assert_eq!(nodes[0].place, "node 'first' (Add)");
        assert!(nodes[1].outputs[0].as_ref().unwrap().is_output);
    }

    #[test]
    fn values_become_outputs_once() {
        let model = Model::from_text(
            "<ir_version: 10, opset_import: [\"\": 21]>
             g (float[N] x) => (float[N] y) { hidden = Exp (x) y = Neg (hidden) }",
        )
        .unwrap();
        let more = model.with_outputs(["y", "hidden", "hidden"]).unwrap();
        let names: Vec<String> =
            more.outputs().iter().map(|port| port.name().to_string()).collect();
        assert_eq!(names, ["y", "hidden"]);
        assert_eq!(model.outputs().len(), 1);
        let error = model.with_outputs(["hiden"]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Output);
        assert_eq!(error.help(), Some("did you mean 'hidden'?"));
    }
}

//! Lists the nodes of a model with their inputs and outputs.

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

/// Node of a model, with its graph, operator, inputs and outputs.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct NodeInfo {
    /// Graph that has the node, as a path through the protobuf messages of the model: `graph` for
    /// the main graph, otherwise for example `graph.node[3] 'then_branch'` or `functions[0]`.
    pub graph: Arc<str>,
    /// Index of the node in its graph's list of nodes.
    pub index: usize,
    /// Name of the node; may be empty.
    pub name: String,
    /// Domain of the node's operator; empty for `ai.onnx`.
    pub domain: String,
    /// Name of the node's operator, or of the function that the node calls.
    pub operator: String,
    /// Description of the node in messages, such as `node 'conv1' (Conv)`.
    pub place: String,
    /// Inputs of the node, in order; `None` for an omitted input.
    pub inputs: Vec<Option<NodeValue>>,
    /// Outputs of the node, in order; `None` for an omitted output.
    pub outputs: Vec<Option<NodeValue>>,
}

impl NodeInfo {
    /// Whether the node is in the main graph.
    pub fn is_in_main_graph(&self) -> bool {
        &*self.graph == "graph"
    }
}

/// Input or output of a node: its name, type and origin.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct NodeValue {
    /// Name of the input or output.
    pub name: String,
    /// Inferred type of the value; `None` if it is unknown or [`Model::nodes`] got no inferred
    /// types.
    pub ty: Option<Type>,
    /// Origin of the value: graph input, initializer or node.
    pub source: ValueSource,
    /// Whether the value is also an output of its graph.
    pub is_output: bool,
}

/// Origin of a value that a node reads or computes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ValueSource {
    /// Graph input of the node's graph.
    Input,
    /// Initializer of the node's graph.
    Initializer,
    /// Output of a node of the node's graph; holds the index of the producing node.
    Node(usize),
    /// Value captured from an enclosing graph.
    Outside,
    /// Undefined: no graph input, initializer or node output has the value's name.
    Nothing,
}

impl Model {
    /// Lists the nodes of all graphs: first the main graph and its subgraphs, then functions, then
    /// training steps. Values have types only if `types`, a result of [`infer`](Model::infer), is
    /// given.
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
        let graphs = self.list_graphs();
        let positions: HashMap<NodeId, usize> = graphs
            .iter()
            .flat_map(|id| model.graph(*id).nodes.iter().enumerate())
            .map(|(index, node)| (*node, index))
            .collect();
        let mut nodes = Vec::new();
        for id in graphs {
            let place: Arc<str> = places.get(&id).map_or("", String::as_str).into();
            let value = |value: ValueId| self.describe_value(id, value, &positions, types);
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

    /// Lists the ids of all graphs: the main graph, function bodies, then training steps, each
    /// followed by its subgraphs.
    fn list_graphs(&self) -> Vec<GraphId> {
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
            left.extend(list_subgraphs(model, id));
            left[at..].reverse();
        }
        graphs
    }

    /// Describes a value that a node of `graph` reads or computes. `positions` has the index of
    /// each node in its graph.
    fn describe_value(
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

    /// Returns element type and shape of a dense initializer; `None` for other values.
    pub(crate) fn initializer_type(&self, id: ValueId) -> Option<Type> {
        let tensor = &self.graph.initializer(id)?.tensor;
        let elem = DataType::from_number(tensor.data_type?)?;
        Some(Type::tensor(elem, tensor.dims.iter().copied()))
    }

    /// Copies the model and adds intermediate values of its main graph as graph outputs, after the
    /// existing outputs. A session computes added outputs exactly as the model defines them, even
    /// if it would otherwise fuse their nodes.
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
    /// [`ErrorKind::Output`] if no value of the main graph has one of the `names`.
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
                if let Some(outputs) = self.find_node_outputs(name) {
                    return error.with_help(format!(
                        "'{name}' is a node; use the name of one of its outputs: {}",
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

    /// Lists the names of the outputs of the main graph's node called `name`; `None` for an
    /// unknown name.
    fn find_node_outputs(&self, name: &str) -> Option<Vec<String>> {
        let model = &self.graph;
        let name = model.symbol(name.as_bytes())?;
        let nodes = &model.graph(model.main?).nodes;
        let node = nodes.iter().find(|node| model.node(**node).name == Some(name))?;
        let outputs = model.outputs(*node).iter().flatten();
        let names = outputs.map(|value| model.display(Some(model.value(*value).name)).into_owned());
        Some(names.collect())
    }

    /// Copies the model and adds intermediate values of its main graph, given by their ids, as
    /// graph outputs.
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

/// Iterates over the subgraphs in the node attributes of a graph.
fn list_subgraphs(model: &graph::Model, id: GraphId) -> impl Iterator<Item = GraphId> + '_ {
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

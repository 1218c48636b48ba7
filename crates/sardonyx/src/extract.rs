//! Extracts a part of a model as a model of its own.

use std::collections::HashSet;

use sardonyx_model::{self as graph, GraphId, NodeId, Producer, ValueId};
use sardonyx_ops::Registry;
use sardonyx_passes::order::tree;
use sardonyx_passes::place_of_node;
use sardonyx_passes::{self as passes, Cut, ExtractRefusal, ExtractReport, FunctionId};
use sardonyx_proto::closest;

use crate::edit::InlineOptions;
use crate::edit_error::EditError;
use crate::glob::Glob;
use crate::model::Model;
use crate::results::InvalidResult;

/// Selection of the part that [`Model::extract`] makes a model of: between values, around a node,
/// or inside of one.
#[derive(Debug, Clone, Default)]
pub struct ExtractOptions {
    from: Vec<String>,
    to: Vec<String>,
    node: Option<(String, usize)>,
    body_of: Option<String>,
    graph: Option<String>,
}

impl ExtractOptions {
    /// Selects the whole main graph.
    pub fn new() -> ExtractOptions {
        ExtractOptions::default()
    }

    /// Selects the values at which the part begins. They become its inputs, in this order: inputs,
    /// results of nodes or constants of the model, by name or by a pattern with `*` and `?`. A
    /// pattern matches inputs and results, or if it matches none of these, constants; of its values
    /// only those that the part reads become inputs. By default the part begins at the inputs of
    /// the model.
    #[must_use]
    pub fn from(mut self, values: impl IntoIterator<Item = impl Into<String>>) -> ExtractOptions {
        self.from = values.into_iter().map(Into::into).collect();
        self
    }

    /// Selects the values at which the part ends. They become its outputs, in this order, by name
    /// or by a pattern, which matches results of nodes. By default these are the outputs of the
    /// model that are computed from the values that [`from`](Self::from) selects.
    #[must_use]
    pub fn to(mut self, values: impl IntoIterator<Item = impl Into<String>>) -> ExtractOptions {
        self.to = values.into_iter().map(Into::into).collect();
        self
    }

    /// Selects a node and the nodes up to `depth` values before and after it. The node is given by
    /// its name, the name of one of its outputs, or its position in the main graph.
    #[must_use]
    pub fn node(mut self, node: impl Into<String>, depth: usize) -> ExtractOptions {
        self.node = Some((node.into(), depth));
        self
    }

    /// Selects the graph in a node, such as the body of a `Loop`, or the body of the function that
    /// the node calls. Values of the graphs around it become inputs, and their constants constants.
    /// The other selections apply to the values of this graph.
    #[must_use]
    pub fn body_of(mut self, node: impl Into<String>) -> ExtractOptions {
        self.body_of = Some(node.into());
        self
    }

    /// Selects one of the graphs in the node of [`body_of`](Self::body_of) by the name of its
    /// attribute, such as `then_branch`, or its own name.
    #[must_use]
    pub fn graph(mut self, name: impl Into<String>) -> ExtractOptions {
        self.graph = Some(name.into());
        self
    }
}

impl Model {
    /// Extracts the part of the model that `options` select, with the nodes, constants, functions,
    /// imports and annotations that it needs. Weights are not copied.
    ///
    /// Values that the part reads, but that are not selected, become further inputs:
    /// [`ExtractReport::added`] lists them. Types of new inputs and outputs are those that the
    /// model declares, or that inference finds. From IR version 4 on, a default of an input that is
    /// not selected becomes a constant.
    ///
    /// ```
    /// use sardonyx::{Model, edit::ExtractOptions};
    ///
    /// let model = Model::from_text(
    ///     "<ir_version: 10, opset_import: [\"\": 21]>
    ///      g (float[N] x) => (float[N] y) { a = Exp (x) b = Neg (a) y = Abs (b) }",
    /// )?;
    /// let (part, report) = model.extract(&ExtractOptions::new().from(["a"]).to(["b"]))?;
    /// assert_eq!(part.inputs()[0].to_string(), "a: float[N]");
    /// assert_eq!((report.nodes, report.nodes_before), (1, 3));
    /// # Ok::<(), sardonyx::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`EditError::UnknownValue`] and [`EditError::Option`] for names that do not fit the model,
    /// [`EditError::NotExtractable`] if the type of an input or output is unknown.
    pub fn extract(&self, options: &ExtractOptions) -> Result<(Model, ExtractReport), EditError> {
        if let Some(called) = self.open_call(options)? {
            let inner = ExtractOptions { body_of: None, graph: None, ..options.clone() };
            return called.extract(&inner);
        }
        let cut = Selection { model: &self.graph, options }.resolve()?;
        let extracted = passes::extract(&self.graph, &Registry::with_microsoft(), &cut);
        match extracted {
            Ok(passes::Extracted { model, report }) => Ok((self.with_graph(model), report)),
            Err(ExtractRefusal::Invalid(rejected)) => {
                Err(EditError::Invalid(Box::new(InvalidResult::new(self, *rejected))))
            }
            Err(refusal) => Err(EditError::NotExtractable(refusal.to_string())),
        }
    }

    /// Returns a model of a call alone, with the body of the function in its place, if the node of
    /// [`ExtractOptions::body_of`] calls a function. Attributes have the values of the call.
    fn open_call(&self, options: &ExtractOptions) -> Result<Option<Model>, EditError> {
        let Some(wanted) = &options.body_of else { return Ok(None) };
        let model = &self.graph;
        let node = Selection { model, options }.find_node(wanted)?;
        let Some(id) = FunctionId::called_by(model, node) else { return Ok(None) };
        let cut = passes::cut_around(model, node, 0);
        let alone = passes::extract(model, &Registry::with_microsoft(), &cut);
        let alone = alone.map_err(|refusal| EditError::NotExtractable(refusal.to_string()))?;
        let mut called = self.with_graph(alone.model);
        let mut pattern = id.to_string();
        if id.overload.is_empty() {
            // The empty overload, and not all overloads.
            pattern.push(':');
        }
        let inlined = called.inline(&InlineOptions::new().functions([pattern]));
        inlined.map_err(|refusal| EditError::NotExtractable(refusal.to_string()))?;
        Ok(Some(called))
    }
}

/// Options that select a part of a model.
struct Selection<'a> {
    model: &'a graph::Model,
    options: &'a ExtractOptions,
}

impl Selection<'_> {
    fn resolve(&self) -> Result<Cut, EditError> {
        let ExtractOptions { from, to, node, body_of, graph: name } = self.options;
        let mut graph = self.model.main.ok_or_else(|| option("the model has no graph"))?;
        match body_of {
            Some(node) => graph = self.find_body(node, name.as_deref())?,
            None if name.is_some() => return Err(option("the graph of no node is selected")),
            None => {}
        }
        if let Some((node, depth)) = node {
            if !from.is_empty() || !to.is_empty() {
                return Err(option("a part around a node has no other beginning or end"));
            }
            let node = self.find_node_in(graph, node)?;
            return Ok(passes::cut_around(self.model, node, *depth));
        }
        if body_of.is_none() {
            graph = self.find_graph(graph)?;
        }
        let mut cut = Cut {
            graph,
            inputs: Vec::new(),
            stops: Vec::new(),
            outputs: Vec::new(),
            keeps_inputs: from.is_empty() && to.is_empty(),
        };
        for wanted in from {
            if self.is_pattern(wanted) {
                cut.stops.extend(self.match_inputs(graph, wanted)?);
            } else {
                cut.inputs.push(self.find_value(graph, wanted)?);
            }
        }
        for wanted in to {
            if self.is_pattern(wanted) {
                cut.outputs.extend(self.match_results(graph, wanted)?);
            } else {
                cut.outputs.push(self.find_value(graph, wanted)?);
            }
        }
        self.refuse_duplicates(from, "inputs")?;
        self.refuse_duplicates(to, "outputs")?;
        if to.is_empty() {
            cut.outputs = self.list_computed_outputs(&cut);
            if cut.outputs.is_empty() && !from.is_empty() {
                return Err(option(format!("no output is computed from {}", from.join(", "))));
            }
        }
        Ok(cut)
    }

    /// Whether a text is a pattern, and not the name of a value.
    fn is_pattern(&self, text: &str) -> bool {
        Glob::is_pattern(text) && self.list_values_named(text).is_empty()
    }

    /// Fails if a name is listed twice. Patterns may overlap.
    fn refuse_duplicates(&self, names: &[String], ports: &str) -> Result<(), EditError> {
        let mut seen = HashSet::new();
        match names.iter().find(|name| !seen.insert(*name)) {
            Some(name) => Err(option(format!("'{name}' is listed twice among the {ports}"))),
            None => Ok(()),
        }
    }

    /// Returns the outputs of the graph that are computed from the values at which the part begins;
    /// all outputs if it begins at the inputs of the graph.
    fn list_computed_outputs(&self, cut: &Cut) -> Vec<ValueId> {
        let (model, id) = (self.model, cut.graph);
        let outputs = model.graph(id).outputs.iter().filter_map(|info| info.value);
        if self.options.from.is_empty() {
            return outputs.collect();
        }
        let mut open: Vec<ValueId> = cut.inputs.iter().chain(&cut.stops).copied().collect();
        let mut computed: HashSet<ValueId> = open.iter().copied().collect();
        let mut visited = HashSet::new();
        // Results of graphs in nodes may be values from the graphs around, which no node reads.
        let mut results: Vec<(ValueId, NodeId)> = Vec::new();
        for graph in tree(model, id).into_iter().skip(1) {
            let Some(owner) = model.graph(graph).owner else { continue };
            let values = model.graph(graph).outputs.iter().filter_map(|info| info.value);
            let outer = values.filter(|value| model.value(*value).graph != graph);
            results.extend(outer.map(|value| (value, owner)));
        }
        results.sort_unstable();
        while let Some(value) = open.pop() {
            let mut readers: Vec<NodeId> = model.uses(value).map(|(node, _)| node).collect();
            let first = results.partition_point(|(other, _)| *other < value);
            let owners = results[first..].iter().take_while(|(other, _)| *other == value);
            readers.extend(owners.map(|(_, owner)| *owner));
            for reader in readers {
                let Some(node) = self.find_ancestor(reader, id) else { continue };
                if visited.insert(node) {
                    let made = model.outputs(node).iter().flatten().copied();
                    open.extend(made.filter(|value| computed.insert(*value)));
                }
            }
        }
        outputs.filter(|value| computed.contains(value)).collect()
    }

    /// Returns the node of `graph` that is `node` or has it in one of its graphs.
    fn find_ancestor(&self, mut node: NodeId, graph: GraphId) -> Option<NodeId> {
        while self.model.node(node).graph != graph {
            node = self.model.graph(self.model.node(node).graph).owner?;
        }
        Some(node)
    }

    /// Finds the graph in a node.
    fn find_body(&self, node: &str, body: Option<&str>) -> Result<GraphId, EditError> {
        let id = self.find_node(node)?;
        let model = self.model;
        let attributes = model.attributes(id).iter().map(|id| model.attribute(*id));
        let graphs: Vec<(String, GraphId)> = attributes
            .flat_map(|attribute| {
                let name = model.display(attribute.name);
                attribute.graphs().map(move |graph| (name.to_string(), graph))
            })
            .collect();
        let place = place_of_node(model, id);
        let matching: Vec<GraphId> = graphs
            .iter()
            .filter(|(attribute, graph)| {
                let own = model.display(model.graph(*graph).name);
                body.is_none_or(|body| attribute == body || own == body)
            })
            .map(|(_, graph)| *graph)
            .collect();
        let names: Vec<&str> = graphs.iter().map(|(name, _)| name.as_str()).collect();
        match (matching.as_slice(), names.as_slice(), body) {
            ([graph], ..) => Ok(*graph),
            (_, [], _) => Err(option(format!("the {place} has no graph and calls no function"))),
            (_, names, Some(body)) => Err(option(format!(
                "the {place} has no graph '{body}' of its own; it has {}",
                names.join(", ")
            ))),
            (_, names, None) => Err(option(format!(
                "the {place} has several graphs; select one of {}",
                names.join(", ")
            ))),
        }
    }

    /// Finds a node of the main graph or of a graph in a node.
    fn find_node(&self, wanted: &str) -> Result<NodeId, EditError> {
        let main = self.model.main.ok_or_else(|| option("the model has no graph"))?;
        self.find_node_in(main, wanted)
    }

    /// Finds a node of a graph, or of a graph in its nodes: by its name, the name of an output, or
    /// its position in the graph.
    fn find_node_in(&self, root: GraphId, wanted: &str) -> Result<NodeId, EditError> {
        let model = self.model;
        let graphs = tree(model, root);
        let nodes: Vec<NodeId> =
            graphs.iter().flat_map(|graph| model.graph(*graph).nodes.iter().copied()).collect();
        if let Some(symbol) = model.symbol(wanted.as_bytes()).filter(|_| !wanted.is_empty()) {
            let named = nodes.iter().copied().filter(|node| model.node(*node).name == Some(symbol));
            let mut found: Vec<NodeId> = named.collect();
            if found.is_empty() {
                let makers = nodes.iter().copied().filter(|node| {
                    let mut outputs = model.outputs(*node).iter().flatten();
                    outputs.any(|value| model.value(*value).name == symbol)
                });
                found = makers.collect();
            }
            match found.as_slice() {
                [] => {}
                [node] => return Ok(*node),
                several => {
                    let outputs = several
                        .iter()
                        .filter_map(|node| model.outputs(*node).iter().flatten().next().copied());
                    let outputs: Vec<String> =
                        outputs.take(3).map(|value| format!("'{}'", self.name_of(value))).collect();
                    return Err(option(format!(
                        "{} nodes are called '{wanted}'; select one by its output, such as {}",
                        several.len(),
                        outputs.join(", ")
                    )));
                }
            }
        }
        let position = wanted.parse::<usize>().ok();
        let position = position.and_then(|index| model.graph(root).nodes.get(index).copied());
        position.ok_or_else(|| {
            let names = nodes.iter().flat_map(|node| {
                let outputs = model.outputs(*node).iter().flatten();
                let outputs = outputs.map(|value| Some(model.value(*value).name));
                std::iter::once(model.node(*node).name).chain(outputs)
            });
            let names: Vec<String> = names.map(|name| model.display(name).into_owned()).collect();
            EditError::UnknownValue {
                name: wanted.to_string(),
                similar: closest(wanted, names.iter().map(String::as_str)).map(str::to_string),
            }
        })
    }

    /// Finds the graph that has the values of the cut: the main graph, or else the only graph in a
    /// node that has them.
    fn find_graph(&self, main: GraphId) -> Result<GraphId, EditError> {
        let ExtractOptions { from, to, .. } = self.options;
        let wanted = to.iter().chain(from).find(|wanted| !self.is_pattern(wanted));
        let Some(wanted) = wanted else { return Ok(main) };
        let values = self.list_values_named(wanted);
        let inner = tree(self.model, main);
        let graphs: Vec<GraphId> = values.iter().map(|id| self.model.value(*id).graph).collect();
        if graphs.contains(&main) {
            return Ok(main);
        }
        let mut found: Vec<GraphId> =
            inner.into_iter().filter(|graph| graphs.contains(graph)).collect();
        match (found.pop(), found.len()) {
            (Some(graph), 0) => Ok(graph),
            (Some(_), more) => Err(option(format!(
                "'{wanted}' is a value of {} graphs; select the node of one of them",
                more + 1
            ))),
            (None, _) => {
                let functions = self.model.functions.iter();
                let mut owners = functions.filter(|function| {
                    tree(self.model, function.body).iter().any(|graph| graphs.contains(graph))
                });
                match owners.next() {
                    Some(function) => Err(option(format!(
                        "'{wanted}' is a value of the function {}; select a node that calls it",
                        FunctionId::of(self.model, function)
                    ))),
                    None => Err(self.refuse_value(main, wanted)),
                }
            }
        }
    }

    /// Lists the defined values of all graphs that have a name.
    fn list_values_named(&self, name: &str) -> Vec<ValueId> {
        let Some(symbol) = self.model.symbol(name.as_bytes()) else { return Vec::new() };
        let values = self.model.values();
        let named =
            values.filter(|(_, value)| value.name == symbol && value.producer != Producer::Nothing);
        named.map(|(id, _)| id).collect()
    }

    /// Finds a value of a graph, or of the graphs around it.
    fn find_value(&self, graph: GraphId, name: &str) -> Result<ValueId, EditError> {
        let values = self.list_values_named(name);
        let mut next = Some(graph);
        while let Some(id) = next {
            if let Some(value) = values.iter().find(|value| self.model.value(**value).graph == id) {
                return Ok(*value);
            }
            next = self.model.graph(id).parent;
        }
        if let Some(value) = values.first() {
            let place = match self.model.graph(self.model.value(*value).graph).owner {
                Some(owner) => format!("a graph in the {}", place_of_node(self.model, owner)),
                None => "another graph".to_string(),
            };
            return Err(option(format!("'{name}' is a value of {place}, outside of the part")));
        }
        Err(self.refuse_value(graph, name))
    }

    /// Makes the error for a name that no value of a graph has.
    fn refuse_value(&self, graph: GraphId, name: &str) -> EditError {
        let values = self.list_inputs(graph).into_iter().chain(self.list_results(graph));
        let names: Vec<String> = values.map(|value| self.name_of(value)).collect();
        let similar = closest(name, names.iter().map(String::as_str)).map(str::to_string);
        EditError::UnknownValue { name: name.to_string(), similar }
    }

    fn name_of(&self, value: ValueId) -> String {
        self.model.display(Some(self.model.value(value).name)).into_owned()
    }

    fn list_inputs(&self, graph: GraphId) -> Vec<ValueId> {
        self.model.graph(graph).inputs.iter().filter_map(|info| info.value).collect()
    }

    /// Lists the outputs of the nodes of a graph.
    fn list_results(&self, graph: GraphId) -> Vec<ValueId> {
        let nodes = self.model.graph(graph).nodes.iter();
        nodes.flat_map(|node| self.model.outputs(*node).iter().flatten().copied()).collect()
    }

    /// Finds the values at which a part may begin that match a pattern.
    fn match_inputs(&self, graph: GraphId, pattern: &str) -> Result<Vec<ValueId>, EditError> {
        let mut values = self.list_inputs(graph);
        values.extend(self.list_results(graph));
        let found = self.match_values(values, pattern);
        if !found.is_empty() {
            return Ok(found);
        }
        let graph = self.model.graph(graph);
        let dense = graph.initializers.iter().map(|found| found.value);
        let sparse = graph.sparse_initializers.iter().map(|found| found.value);
        let found = self.match_values(dense.chain(sparse).flatten().collect(), pattern);
        self.demand_match(found, pattern)
    }

    /// Finds the results of nodes that match a pattern.
    fn match_results(&self, graph: GraphId, pattern: &str) -> Result<Vec<ValueId>, EditError> {
        let found = self.match_values(self.list_results(graph), pattern);
        self.demand_match(found, pattern)
    }

    fn match_values(&self, mut values: Vec<ValueId>, pattern: &str) -> Vec<ValueId> {
        match Glob::parse(pattern) {
            Ok(glob) => values.retain(|value| glob.matches(&self.name_of(*value))),
            Err(_) => values.clear(),
        }
        values
    }

    fn demand_match(&self, found: Vec<ValueId>, name: &str) -> Result<Vec<ValueId>, EditError> {
        if found.is_empty() {
            return Err(EditError::UnknownValue { name: name.to_string(), similar: None });
        }
        Ok(found)
    }
}

/// Makes the error for an option that does not fit the model.
fn option(message: impl Into<String>) -> EditError {
    EditError::Option(message.into())
}

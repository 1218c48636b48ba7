//! Content of the picture of a graph: vertices with lines of text, and edges between them.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use sardonyx::Type;
use sardonyx::inspect::{NodeInfo, NodeValue, ValueSource};
use sardonyx::tool::shown_domain;

use super::folds::Folds;
use crate::human;
use crate::operator_name::qualified_name;

/// Maximum width of a line in a vertex, in columns.
const COLUMNS: usize = 34;
/// Maximum number of constants to list in a vertex.
const SHOWN_CONSTANTS: usize = 4;

/// Maximum number of operators to list in a vertex that stands for several nodes.
const SHOWN_OPERATORS: usize = 5;
/// Maximum number of values to list at an edge, or at a vertex that stands for several inputs.
const SHOWN_VALUES: usize = 100;

/// Role of a vertex of the picture in the model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum VertexKind {
    Input,
    Output,
    Node,
    /// Neighbour outside of the picture, where the model continues.
    More,
}

/// Box in the picture of a graph.
#[derive(Debug)]
pub(crate) struct Vertex {
    pub(crate) kind: VertexKind,
    /// Text in the box. The first line is the title.
    pub(crate) lines: Vec<String>,
    /// Number of nodes that the vertex stands for.
    pub(crate) repeats: usize,
    /// Index in the main graph of the first node that the vertex stands for; `None` if it stands
    /// for no node.
    pub(crate) node: Option<usize>,
    /// Whether the vertex stands for several consecutive nodes.
    pub(crate) is_shared: bool,
    /// Labels and texts that the HTML page shows for a selected vertex.
    pub(crate) details: Vec<(String, String)>,
}

/// Arrow of the picture between two vertices, given by their indices.
#[derive(Debug)]
pub(crate) struct Edge {
    pub(crate) from: usize,
    pub(crate) to: usize,
    /// Names and types of the values that the edge stands for.
    pub(crate) values: Vec<String>,
}

/// Picture of a graph: boxes and arrows between them.
#[derive(Debug)]
pub(crate) struct Drawing {
    pub(crate) vertices: Vec<Vertex>,
    pub(crate) edges: Vec<Edge>,
}

/// Nodes of the main graph of a model, and the values that they exchange.
pub(crate) struct Graph {
    pub(crate) nodes: Vec<NodeInfo>,
    /// Values of the main graph that subgraphs capture, by the index of the node that has the
    /// subgraph.
    captured: HashMap<usize, Vec<NodeValue>>,
}

impl Graph {
    /// Selects the nodes of the main graph from the nodes of all graphs of a model.
    pub(crate) fn new(all: Vec<NodeInfo>) -> Graph {
        let (nodes, others): (Vec<_>, Vec<_>) =
            all.into_iter().partition(NodeInfo::is_in_main_graph);
        let mut values: HashMap<&str, &NodeValue> = HashMap::new();
        for value in nodes.iter().flat_map(|node| node.inputs.iter().flatten()) {
            values.insert(&value.name, value);
        }
        let mut made: HashMap<&str, NodeValue> = HashMap::new();
        for node in &nodes {
            for value in node.outputs.iter().flatten() {
                made.insert(&value.name, value.clone());
            }
        }
        let mut captured: HashMap<usize, Vec<NodeValue>> = HashMap::new();
        for inner in &others {
            let Some(owner) = find_owner_node(&inner.graph) else { continue };
            for value in inner.inputs.iter().flatten() {
                let name = value.name.as_str();
                let found = made.get(name).or(values.get(name).copied());
                if value.source == ValueSource::Outside
                    && let Some(found) = found
                    && captured.entry(owner).or_default().iter().all(|known| known.name != name)
                {
                    captured.entry(owner).or_default().push(found.clone());
                }
            }
        }
        Graph { nodes, captured }
    }

    /// Returns the values of the main graph that a node or its subgraphs read.
    fn list_inputs(&self, node: usize) -> impl Iterator<Item = &NodeValue> {
        let captured = self.captured.get(&node).into_iter().flatten();
        self.nodes[node].inputs.iter().flatten().chain(captured)
    }

    /// Whether a node is a `Constant`, which is not drawn but listed in the nodes that read it.
    fn is_constant(&self, node: usize) -> bool {
        let NodeInfo { operator, domain, inputs, .. } = &self.nodes[node];
        operator == "Constant" && domain.is_empty() && inputs.is_empty()
    }

    /// Returns the index of the node that computes a value; `None` if no node does, or the node is
    /// not drawn as a vertex.
    fn find_maker(&self, value: &NodeValue) -> Option<usize> {
        match value.source {
            ValueSource::Node(node) if !self.is_constant(node) => Some(node),
            _ => None,
        }
    }

    /// Returns the indices of the nodes that are drawn as vertices.
    pub(crate) fn list_drawn_nodes(&self) -> Vec<usize> {
        (0..self.nodes.len()).filter(|node| !self.is_constant(*node)).collect()
    }

    /// Returns the indices of `centre`, of the nodes from which at most `depth` edges lead to
    /// `centre`, and of the nodes to which at most `depth` edges lead from `centre`.
    pub(crate) fn find_neighborhood(&self, centre: usize, depth: usize) -> Vec<usize> {
        let mut before: Vec<Vec<usize>> = vec![Vec::new(); self.nodes.len()];
        let mut after: Vec<Vec<usize>> = vec![Vec::new(); self.nodes.len()];
        for node in self.list_drawn_nodes() {
            for maker in self.list_inputs(node).filter_map(|value| self.find_maker(value)) {
                before[node].push(maker);
                after[maker].push(node);
            }
        }
        let mut found = vec![false; self.nodes.len()];
        for neighbours in [&before, &after] {
            let mut seen = HashSet::from([centre]);
            let mut nodes = vec![centre];
            for _ in 0..depth {
                let next = nodes.iter().flat_map(|node| &neighbours[*node]).copied();
                nodes = next.filter(|node| seen.insert(*node)).collect();
                if nodes.is_empty() {
                    break;
                }
            }
            seen.into_iter().for_each(|node| found[node] = true);
        }
        (0..self.nodes.len()).filter(|node| found[*node]).collect()
    }

    /// Draws the nodes at the indices `shown`. With `is_part`, vertices of the kind
    /// [`VertexKind::More`] mark where the graph continues beyond these nodes.
    pub(crate) fn draw(&self, shown: &[usize], folds: &Folds, is_part: bool) -> Drawing {
        let mut builder =
            DrawingBuilder { graph: self, folds, vertices: Vec::new(), edges: BTreeMap::new() };
        let mut vertex_of = HashMap::new();
        for node in shown.iter().filter(|node| folds.find_box(**node) == **node) {
            vertex_of.insert(*node, builder.vertices.len());
            let vertex = match folds.boxes.get(node) {
                Some(members) => builder.make_group_vertex(members),
                None => builder.make_node_vertex(*node),
            };
            builder.vertices.push(vertex);
        }
        builder.connect(shown, &vertex_of, is_part);
        let edges = builder.edges.into_iter();
        let edges = edges.map(|((from, to), values)| Edge { from, to, values }).collect();
        Drawing { vertices: builder.vertices, edges }
    }
}

/// Returns the index of the main graph's node that has the subgraph at the path `graph`; `None` if
/// the path does not lead through a node of the main graph.
fn find_owner_node(graph: &str) -> Option<usize> {
    let (number, _) = graph.strip_prefix("graph.node[")?.split_once(']')?;
    number.parse().ok()
}

/// Builder of the picture of a graph.
struct DrawingBuilder<'g> {
    graph: &'g Graph,
    folds: &'g Folds,
    vertices: Vec<Vertex>,
    edges: BTreeMap<(usize, usize), Vec<String>>,
}

impl DrawingBuilder<'_> {
    /// Creates the vertex that stands for a single node of the graph.
    fn make_node_vertex(&self, index: usize) -> Vertex {
        let node = &self.graph.nodes[index];
        let repeats = self.folds.repeats[index];
        let operator = qualified_name(&node.domain, &node.operator);
        let title = if repeats > 1 { format!("{operator} × {repeats}") } else { operator };
        let mut lines = vec![shorten_line(&title)];
        if !node.name.is_empty() {
            lines.push(shorten_line(&node.name));
        }
        let mut constants: Vec<&NodeValue> = Vec::new();
        for value in node.inputs.iter().flatten() {
            let is_computed = matches!(value.source, ValueSource::Node(_));
            if value.source == ValueSource::Initializer
                || is_computed && self.graph.find_maker(value).is_none()
            {
                constants.push(value);
            }
        }
        lines.extend(
            constants.iter().take(SHOWN_CONSTANTS).map(|value| shorten_line(&format_value(value))),
        );
        if constants.len() > SHOWN_CONSTANTS {
            lines.push(format!("… {} more constants", constants.len() - SHOWN_CONSTANTS));
        }
        let types = node.outputs.iter().flatten().filter_map(|value| value.ty.as_ref());
        lines.extend(types.take(1).map(|ty| shorten_line(&format!("→ {ty}"))));
        let pair = |key: &str, value: String| (key.to_string(), value);
        let mut details = vec![
            pair("operator", node.operator.clone()),
            pair("domain", shown_domain(&node.domain).to_string()),
            pair("name", node.name.clone()),
            pair("position", format!("{}[{index}]", node.graph)),
        ];
        if repeats > 1 {
            details.push(pair("repeated", format!("{repeats} times; this node is the first")));
        }
        let listed = |what: &str, values: &[Option<NodeValue>]| -> Vec<(String, String)> {
            let values = values.iter().enumerate();
            let details = values.map(|(at, value)| {
                let text = value.as_ref().map_or("omitted".to_string(), format_value);
                (format!("{what} {at}"), text)
            });
            details.collect()
        };
        details.extend(listed("input", &node.inputs));
        details.extend(listed("output", &node.outputs));
        Vertex {
            kind: VertexKind::Node,
            lines,
            repeats,
            node: Some(index),
            is_shared: false,
            details,
        }
    }

    /// Creates the vertex that stands for several consecutive nodes, given by their indices.
    fn make_group_vertex(&self, members: &[usize]) -> Vertex {
        let nodes = || members.iter().map(|node| &self.graph.nodes[*node]);
        let mut operators: BTreeMap<String, usize> = BTreeMap::new();
        for (index, node) in members.iter().zip(nodes()) {
            let operator = qualified_name(&node.domain, &node.operator);
            *operators.entry(operator).or_default() += self.folds.repeats[*index];
        }
        let count: usize = operators.values().sum();
        let mut operators: Vec<(String, usize)> = operators.into_iter().collect();
        operators.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        let mut lines = vec![human::format_count(count, "node")];
        let scope = find_common_scope(nodes().map(|node| node.name.as_str()));
        lines.extend(scope.as_deref().map(shorten_line));
        for (operator, count) in operators.iter().take(SHOWN_OPERATORS) {
            lines.push(match count {
                1 => shorten_line(operator),
                count => shorten_line(&format!("{operator} × {count}")),
            });
        }
        if operators.len() > SHOWN_OPERATORS {
            let more = operators.len() - SHOWN_OPERATORS;
            lines.push(format!("… {}", human::format_count(more, "more operator")));
        }
        let last = nodes().next_back().and_then(|node| node.outputs.iter().flatten().next());
        lines.extend(
            last.and_then(|value| value.ty.as_ref()).map(|ty| shorten_line(&format!("→ {ty}"))),
        );
        let pair = |key: &str, value: String| (key.to_string(), value);
        let position = |node: Option<&usize>| node.map_or(0, |node| *node);
        let (first, last) = (position(members.first()), position(members.last()));
        let mut details = vec![
            pair("nodes", count.to_string()),
            pair("positions", format!("{first} to {last}")),
            pair("part", scope.unwrap_or_default()),
        ];
        details.extend(
            operators.iter().map(|(operator, count)| (operator.clone(), count.to_string())),
        );
        Vertex {
            kind: VertexKind::Node,
            lines,
            repeats: count,
            node: Some(first),
            is_shared: true,
            details,
        }
    }

    /// Adds edges, and vertices for inputs and outputs of the model and for neighbours outside of
    /// the picture.
    fn connect(&mut self, shown: &[usize], vertex_of: &HashMap<usize, usize>, is_part: bool) {
        let graph = self.graph;
        let mut others: HashMap<(bool, String), usize> = HashMap::new();
        let mut more: BTreeMap<usize, usize> = BTreeMap::new();
        for node in shown {
            let own = self.folds.find_box(*node);
            let to = vertex_of[&own];
            for value in graph.list_inputs(*node) {
                let maker = graph.find_maker(value);
                let from = maker.map(|maker| self.folds.find_box(maker));
                let is_folded = own != *node || from != maker;
                let from = match (from.and_then(|from| vertex_of.get(&from)), value.source) {
                    // An edge from one repetition into the next would lead back.
                    (Some(from), _)
                        if is_folded && self.vertices[*from].node >= self.vertices[to].node =>
                    {
                        continue;
                    }
                    (Some(from), _) => *from,
                    // Only inputs of the first repetition are drawn, as an example for the others.
                    (None, ValueSource::Input) if self.folds.shown_as[*node] != *node => continue,
                    (None, ValueSource::Input) => {
                        self.find_or_add_end(&mut others, VertexKind::Input, value, to)
                    }
                    (None, ValueSource::Node(_)) if is_part && maker.is_some() => {
                        self.find_or_add_end(&mut others, VertexKind::More, value, to)
                    }
                    _ => continue,
                };
                self.add_edge(from, to, value);
            }
            let first = &graph.nodes[self.folds.shown_as[*node]].outputs;
            for (value, first) in graph.nodes[*node].outputs.iter().zip(first) {
                let Some(value) = value.as_ref().filter(|value| value.is_output) else { continue };
                let is_first = self.folds.shown_as[*node] == *node;
                if !is_first && first.as_ref().is_some_and(|first| first.is_output) {
                    continue;
                }
                let end = self.find_or_add_end(&mut others, VertexKind::Output, value, to);
                self.add_edge(to, end, value);
            }
        }
        if !is_part {
            return;
        }
        for reader in
            graph.list_drawn_nodes().into_iter().filter(|node| !vertex_of.contains_key(node))
        {
            let makers = graph.list_inputs(reader).filter_map(|value| graph.find_maker(value));
            let from: BTreeSet<usize> =
                makers.filter_map(|maker| vertex_of.get(&maker).copied()).collect();
            from.into_iter().for_each(|from| *more.entry(from).or_default() += 1);
        }
        for (from, readers) in more {
            let line = format!("… {}", human::format_count(readers, "reader"));
            let end = self.vertices.len();
            self.vertices.push(Vertex {
                kind: VertexKind::More,
                lines: vec![line],
                repeats: 1,
                node: None,
                is_shared: false,
                details: Vec::new(),
            });
            self.edges.entry((from, end)).or_default();
        }
    }

    /// Adds a value to the edge between two vertices, and creates the edge if there is none. Values
    /// beyond [`SHOWN_VALUES`] become `…`.
    fn add_edge(&mut self, from: usize, to: usize, value: &NodeValue) {
        let values = self.edges.entry((from, to)).or_default();
        let text = format_value(value);
        if values.len() > SHOWN_VALUES || values.contains(&text) {
            return;
        }
        values.push(if values.len() == SHOWN_VALUES { "…".to_string() } else { text });
    }

    /// Returns the index of the vertex at which a value enters or leaves the picture, and creates
    /// the vertex if there is none. `at` is the vertex at the other end of the edge.
    fn find_or_add_end(
        &mut self,
        others: &mut HashMap<(bool, String), usize>,
        kind: VertexKind,
        value: &NodeValue,
        at: usize,
    ) -> usize {
        let what = match kind {
            VertexKind::Input => "input of the model",
            VertexKind::Output => "output of the model",
            _ => "value of a node that is not shown",
        };
        // Quotes keep a value with a number as its name apart from the number of a vertex.
        let key = if self.folds.joins_ends { at.to_string() } else { format!("'{}'", value.name) };
        let key = (kind == VertexKind::Output, key);
        if let (true, Some(known)) = (self.folds.joins_ends, others.get(&key)) {
            let vertex = &mut self.vertices[*known];
            let detail = (what.to_string(), format_value(value));
            if vertex.details.len() <= SHOWN_VALUES && !vertex.details.contains(&detail) {
                vertex.details.push(detail);
                let most = if vertex.details.len() > SHOWN_VALUES { " and more" } else { "" };
                let shown = vertex.details.len().min(SHOWN_VALUES);
                let noun = if kind == VertexKind::Output { "output" } else { "input" };
                vertex.lines = vec![format!("{}{most}", human::format_count(shown, noun))];
            }
            return *known;
        }
        *others.entry(key).or_insert_with(|| {
            let mut lines = vec![shorten_line(&value.name)];
            lines.extend(value.ty.iter().map(|ty| shorten_line(&ty.to_string())));
            if kind == VertexKind::More {
                lines[0] = format!("… {}", lines[0]);
            }
            self.vertices.push(Vertex {
                kind,
                lines,
                repeats: 1,
                node: None,
                is_shared: false,
                details: vec![(what.to_string(), format_value(value))],
            });
            self.vertices.len() - 1
        })
    }
}

/// Returns the longest scope that the names of nodes have in common, such as `encoder/layer.0`;
/// `None` if there is none.
fn find_common_scope<'n>(names: impl Iterator<Item = &'n str>) -> Option<String> {
    let scopes = names.filter_map(|name| Some(name.rsplit_once('/')?.0));
    let common = scopes.reduce(|a, b| {
        let same = a.split('/').zip(b.split('/')).take_while(|(a, b)| a == b);
        let length = same.map(|(part, _)| part.len() + 1).sum::<usize>();
        &a[..length.saturating_sub(1)]
    });
    common.filter(|scope| !scope.is_empty()).map(str::to_string)
}

/// Shortens a text to one line of at most [`COLUMNS`] columns.
fn shorten_line(text: &str) -> String {
    human::shorten(&human::to_one_line(text), COLUMNS).into_owned()
}

/// Formats the name of a value, followed by the type if it is known.
fn format_value(value: &NodeValue) -> String {
    match &value.ty {
        Some(ty) => format!("{}: {}", value.name, Type::to_string(ty)),
        None => value.name.clone(),
    }
}

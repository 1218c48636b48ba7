//! What a picture shows: vertices with lines of text, and edges between them.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use sardonyx::Type;
use sardonyx::inspect::{NodeInfo, NodeValue, ValueSource};

use super::folds::Folds;
use crate::human;
use crate::info::{domain_name, qualified_name};

/// Columns of a line in a vertex.
const COLUMNS: usize = 34;
/// Constants that are listed in a vertex.
const SHOWN_CONSTANTS: usize = 4;

/// Operators that are listed in a vertex of several nodes.
const SHOWN_OPERATORS: usize = 5;
/// Values that are listed at an edge, and at a vertex of several inputs.
const SHOWN_VALUES: usize = 100;

/// What a vertex is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Input,
    Output,
    Node,
    /// Where the picture ends, but not the model.
    More,
}

#[derive(Debug)]
pub(crate) struct Vertex {
    pub(crate) kind: Kind,
    /// What stands in it; the first line is its title.
    pub(crate) lines: Vec<String>,
    /// How many nodes it stands for.
    pub(crate) repeats: usize,
    /// The position of its node in the main graph, of several the first.
    pub(crate) node: Option<usize>,
    /// Whether it stands for nodes that follow each other.
    pub(crate) is_shared: bool,
    /// Names and texts that a reader can look up.
    pub(crate) details: Vec<(String, String)>,
}

#[derive(Debug)]
pub(crate) struct Edge {
    pub(crate) from: usize,
    pub(crate) to: usize,
    /// The values that go there, with their types.
    pub(crate) values: Vec<String>,
}

#[derive(Debug)]
pub(crate) struct Drawing {
    pub(crate) vertices: Vec<Vertex>,
    pub(crate) edges: Vec<Edge>,
}

/// The nodes of a main graph, and what is between them.
pub(crate) struct Graph {
    pub(crate) nodes: Vec<NodeInfo>,
    /// Values of the main graph that graphs within a node read, by the position of the node.
    captured: HashMap<usize, Vec<NodeValue>>,
}

impl Graph {
    /// From the nodes of all graphs.
    pub(crate) fn of(all: Vec<NodeInfo>) -> Graph {
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
            let Some(owner) = owner(&inner.graph) else { continue };
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

    /// What a node reads, directly or in the graphs within it.
    fn read(&self, node: usize) -> impl Iterator<Item = &NodeValue> {
        let captured = self.captured.get(&node).into_iter().flatten();
        self.nodes[node].inputs.iter().flatten().chain(captured)
    }

    /// Whether a node is only a constant, which is shown where it is read.
    fn is_constant(&self, node: usize) -> bool {
        let NodeInfo { operator, domain, inputs, .. } = &self.nodes[node];
        operator == "Constant" && domain.is_empty() && inputs.is_empty()
    }

    /// The node that makes a value, if it is shown as a vertex.
    fn maker(&self, value: &NodeValue) -> Option<usize> {
        match value.source {
            ValueSource::Node(node) if !self.is_constant(node) => Some(node),
            _ => None,
        }
    }

    /// The positions of the nodes that are shown as vertices.
    pub(crate) fn listed(&self) -> Vec<usize> {
        (0..self.nodes.len()).filter(|node| !self.is_constant(*node)).collect()
    }

    /// The nodes from which at most so many edges lead to one, or that are so far after it.
    pub(crate) fn around(&self, centre: usize, depth: usize) -> Vec<usize> {
        let mut before: Vec<Vec<usize>> = vec![Vec::new(); self.nodes.len()];
        let mut after: Vec<Vec<usize>> = vec![Vec::new(); self.nodes.len()];
        for node in self.listed() {
            for maker in self.read(node).filter_map(|value| self.maker(value)) {
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

    /// The picture of some nodes. `is_part` says that the others are shown as places where the
    /// picture ends.
    pub(crate) fn drawing(&self, shown: &[usize], folds: &Folds, is_part: bool) -> Drawing {
        let mut making =
            Making { graph: self, folds, vertices: Vec::new(), edges: BTreeMap::new() };
        let mut vertex_of = HashMap::new();
        for node in shown.iter().filter(|node| folds.box_of(**node) == **node) {
            vertex_of.insert(*node, making.vertices.len());
            let vertex = match folds.boxes.get(node) {
                Some(members) => making.several(members),
                None => making.node(*node),
            };
            making.vertices.push(vertex);
        }
        making.connect(shown, &vertex_of, is_part);
        let edges = making.edges.into_iter();
        let edges = edges.map(|((from, to), values)| Edge { from, to, values }).collect();
        Drawing { vertices: making.vertices, edges }
    }
}

/// The position of the node of the main graph that a graph is in, by the place of the graph.
fn owner(graph: &str) -> Option<usize> {
    let (number, _) = graph.strip_prefix("graph.node[")?.split_once(']')?;
    number.parse().ok()
}

/// A picture that is being made.
struct Making<'g> {
    graph: &'g Graph,
    folds: &'g Folds,
    vertices: Vec<Vertex>,
    edges: BTreeMap<(usize, usize), Vec<String>>,
}

impl Making<'_> {
    fn node(&self, index: usize) -> Vertex {
        let node = &self.graph.nodes[index];
        let repeats = self.folds.repeats[index];
        let operator = qualified_name(&node.domain, &node.operator);
        let title = if repeats > 1 { format!("{operator} × {repeats}") } else { operator };
        let mut lines = vec![cut(&title)];
        if !node.name.is_empty() {
            lines.push(cut(&node.name));
        }
        let is_constant = |value: &&NodeValue| {
            value.source == ValueSource::Initializer
                || matches!(value.source, ValueSource::Node(_)) && self.graph.maker(value).is_none()
        };
        let constants: Vec<&NodeValue> = node.inputs.iter().flatten().filter(is_constant).collect();
        lines.extend(constants.iter().take(SHOWN_CONSTANTS).map(|value| cut(&value_text(value))));
        if constants.len() > SHOWN_CONSTANTS {
            lines.push(format!("… {} more constants", constants.len() - SHOWN_CONSTANTS));
        }
        let types = node.outputs.iter().flatten().filter_map(|value| value.ty.as_ref());
        lines.extend(types.take(1).map(|ty| cut(&format!("→ {ty}"))));
        let pair = |key: &str, value: String| (key.to_string(), value);
        let mut details = vec![
            pair("operator", node.operator.clone()),
            pair("domain", domain_name(&node.domain).to_string()),
            pair("name", node.name.clone()),
            pair("position", format!("{}[{index}]", node.graph)),
        ];
        if repeats > 1 {
            details.push(pair("repeated", format!("{repeats} times; this is the first")));
        }
        let listed = |what: &str, values: &[Option<NodeValue>]| -> Vec<(String, String)> {
            let values = values.iter().enumerate();
            let text = |value: &Option<NodeValue>| {
                value.as_ref().map_or("left out".to_string(), value_text)
            };
            values.map(|(at, value)| (format!("{what} {at}"), text(value))).collect()
        };
        details.extend(listed("input", &node.inputs));
        details.extend(listed("output", &node.outputs));
        Vertex { kind: Kind::Node, lines, repeats, node: Some(index), is_shared: false, details }
    }

    /// A box for nodes that follow each other.
    fn several(&self, members: &[usize]) -> Vertex {
        let nodes = || members.iter().map(|node| &self.graph.nodes[*node]);
        let mut operators: BTreeMap<String, usize> = BTreeMap::new();
        for (index, node) in members.iter().zip(nodes()) {
            let operator = qualified_name(&node.domain, &node.operator);
            *operators.entry(operator).or_default() += self.folds.repeats[*index];
        }
        let count: usize = operators.values().sum();
        let mut operators: Vec<(String, usize)> = operators.into_iter().collect();
        operators.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        let times = |(operator, count): &(String, usize)| match count {
            1 => operator.clone(),
            count => format!("{operator} × {count}"),
        };
        let mut lines = vec![human::count(count, "node")];
        let scope = common_scope(nodes().map(|node| node.name.as_str()));
        lines.extend(scope.as_deref().map(cut));
        lines.extend(operators.iter().take(SHOWN_OPERATORS).map(|found| cut(&times(found))));
        if operators.len() > SHOWN_OPERATORS {
            let more = operators.len() - SHOWN_OPERATORS;
            lines.push(format!("… {}", human::count(more, "more operator")));
        }
        let last = nodes().next_back().and_then(|node| node.outputs.iter().flatten().next());
        lines.extend(last.and_then(|value| value.ty.as_ref()).map(|ty| cut(&format!("→ {ty}"))));
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
            kind: Kind::Node,
            lines,
            repeats: count,
            node: Some(first),
            is_shared: true,
            details,
        }
    }

    /// Adds edges, and vertices for inputs, outputs and places where the picture ends.
    fn connect(&mut self, shown: &[usize], vertex_of: &HashMap<usize, usize>, is_part: bool) {
        let graph = self.graph;
        let mut others: HashMap<(bool, String), usize> = HashMap::new();
        let mut more: BTreeMap<usize, usize> = BTreeMap::new();
        for node in shown {
            let own = self.folds.box_of(*node);
            let to = vertex_of[&own];
            for value in graph.read(*node) {
                let maker = graph.maker(value);
                let from = maker.map(|maker| self.folds.box_of(maker));
                let is_folded = own != *node || from != maker;
                let from = match (from.and_then(|from| vertex_of.get(&from)), value.source) {
                    // What goes from one repetition into the next would lead back.
                    (Some(from), _)
                        if is_folded && self.vertices[*from].node >= self.vertices[to].node =>
                    {
                        continue;
                    }
                    (Some(from), _) => *from,
                    // The first repetition shows what kind of input each of them has.
                    (None, ValueSource::Input) if self.folds.shown_as[*node] != *node => continue,
                    (None, ValueSource::Input) => self.end(&mut others, Kind::Input, value, to),
                    (None, ValueSource::Node(_)) if is_part && maker.is_some() => {
                        self.end(&mut others, Kind::More, value, to)
                    }
                    _ => continue,
                };
                self.connected(from, to, value);
            }
            let first = &graph.nodes[self.folds.shown_as[*node]].outputs;
            for (value, first) in graph.nodes[*node].outputs.iter().zip(first) {
                let Some(value) = value.as_ref().filter(|value| value.is_output) else { continue };
                let is_first = self.folds.shown_as[*node] == *node;
                if !is_first && first.as_ref().is_some_and(|first| first.is_output) {
                    continue;
                }
                let end = self.end(&mut others, Kind::Output, value, to);
                self.connected(to, end, value);
            }
        }
        if !is_part {
            return;
        }
        for reader in graph.listed().into_iter().filter(|node| !vertex_of.contains_key(node)) {
            let makers = graph.read(reader).filter_map(|value| graph.maker(value));
            let from: BTreeSet<usize> =
                makers.filter_map(|maker| vertex_of.get(&maker).copied()).collect();
            from.into_iter().for_each(|from| *more.entry(from).or_default() += 1);
        }
        for (from, readers) in more {
            let line = format!("… {}", human::count(readers, "reader"));
            let end = self.vertices.len();
            self.vertices.push(Vertex {
                kind: Kind::More,
                lines: vec![line],
                repeats: 1,
                node: None,
                is_shared: false,
                details: Vec::new(),
            });
            self.edges.entry((from, end)).or_default();
        }
    }

    fn connected(&mut self, from: usize, to: usize, value: &NodeValue) {
        let values = self.edges.entry((from, to)).or_default();
        let text = value_text(value);
        if values.len() > SHOWN_VALUES || values.contains(&text) {
            return;
        }
        values.push(if values.len() == SHOWN_VALUES { "…".to_string() } else { text });
    }

    /// The vertex of a value that comes from outside of the picture, or leaves the graph. `at` is
    /// the vertex that it is connected with.
    fn end(
        &mut self,
        others: &mut HashMap<(bool, String), usize>,
        kind: Kind,
        value: &NodeValue,
        at: usize,
    ) -> usize {
        let what = match kind {
            Kind::Input => "input of the model",
            Kind::Output => "output of the model",
            _ => "value of a node that is not shown",
        };
        // A name is quoted, a number of a vertex is not.
        let key = if self.folds.joins_ends { at.to_string() } else { format!("'{}'", value.name) };
        let key = (kind == Kind::Output, key);
        if let (true, Some(known)) = (self.folds.joins_ends, others.get(&key)) {
            let vertex = &mut self.vertices[*known];
            let detail = (what.to_string(), value_text(value));
            if vertex.details.len() <= SHOWN_VALUES && !vertex.details.contains(&detail) {
                vertex.details.push(detail);
                let most = if vertex.details.len() > SHOWN_VALUES { " and more" } else { "" };
                let shown = vertex.details.len().min(SHOWN_VALUES);
                let noun = if kind == Kind::Output { "output" } else { "input" };
                vertex.lines = vec![format!("{}{most}", human::count(shown, noun))];
            }
            return *known;
        }
        *others.entry(key).or_insert_with(|| {
            let mut lines = vec![cut(&value.name)];
            lines.extend(value.ty.iter().map(|ty| cut(&ty.to_string())));
            if kind == Kind::More {
                lines[0] = format!("… {}", lines[0]);
            }
            self.vertices.push(Vertex {
                kind,
                lines,
                repeats: 1,
                node: None,
                is_shared: false,
                details: vec![(what.to_string(), value_text(value))],
            });
            self.vertices.len() - 1
        })
    }
}

/// The part that the names of some nodes have in common, up to the last `/`.
fn common_scope<'n>(names: impl Iterator<Item = &'n str>) -> Option<String> {
    let scopes = names.filter_map(|name| Some(name.rsplit_once('/')?.0));
    let common = scopes.reduce(|a, b| {
        let same = a.split('/').zip(b.split('/')).take_while(|(a, b)| a == b);
        let length = same.map(|(part, _)| part.len() + 1).sum::<usize>();
        &a[..length.saturating_sub(1)]
    });
    common.filter(|scope| !scope.is_empty()).map(str::to_string)
}

fn cut(text: &str) -> String {
    human::shorten(&human::one_line(text), COLUMNS).into_owned()
}

fn value_text(value: &NodeValue) -> String {
    match &value.ty {
        Some(ty) => format!("{}: {}", value.name, Type::to_string(ty)),
        None => value.name.clone(),
    }
}

//! Rules about graphs: names, definitions, order, scopes.

use std::borrow::Cow;

use hashbrown::{HashMap, HashSet};
use sardonyx_model::{Graph, GraphId, Id, Model, NodeId, Producer, Symbol, ValueId};

use super::{Checker, Root, is_identifier};
use crate::codes;
use crate::finding::{Spot, place_of_node};

/// Kind of the definition of a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Definition {
    Input,
    Initializer,
    /// A constant that is the default value of an input.
    Both,
    Node,
}

/// Last graph that defined a name, and the kind of the definition: one word, since there is one per
/// name. The default stands for none.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Defined(u32);

impl Defined {
    const DEFINITIONS: [Definition; 4] =
        [Definition::Input, Definition::Initializer, Definition::Both, Definition::Node];

    fn new(graph: GraphId, definition: Definition) -> Defined {
        // A graph takes hundreds of bytes, so its number has bits to spare.
        Defined(graph_number(graph) << 2 | definition as u32)
    }

    /// Returns the kind of the definition, if this graph made it.
    fn definition_in(self, graph: GraphId) -> Option<Definition> {
        let definition = Defined::DEFINITIONS[(self.0 & 3) as usize];
        (self.0 >> 2 == graph_number(graph)).then_some(definition)
    }
}

/// Definitions of names that several graphs define, which are rare.
#[derive(Debug, Default)]
pub(super) struct Scopes {
    by_place: HashMap<(Symbol, GraphId), ValueId>,
}

impl Scopes {
    /// Collects definitions of names that are defined in more than one graph.
    pub(super) fn new(model: &Model) -> Scopes {
        let mut scopes = Scopes::default();
        if !model.graphs().any(|(_, graph)| graph.parent.is_some()) {
            return scopes;
        }
        let mut first: Vec<Option<ValueId>> = vec![None; model.symbol_count()];
        for (id, value) in model.values() {
            if value.producer == Producer::Nothing {
                continue;
            }
            match first[value.name.index()] {
                None => first[value.name.index()] = Some(id),
                Some(earlier) => {
                    for id in [earlier, id] {
                        let place = (value.name, model.value(id).graph);
                        scopes.by_place.entry(place).or_insert(id);
                    }
                }
            }
        }
        scopes
    }

    fn get(&self, name: Symbol, graph: GraphId) -> Option<ValueId> {
        self.by_place.get(&(name, graph)).copied()
    }
}

impl<'a> Checker<'a> {
    /// Checks a graph by itself; the graphs in its nodes follow later.
    pub(super) fn graph(&mut self, id: GraphId, root: Root) {
        let model = self.model;
        let graph = model.graph(id);
        let is_body = matches!(root, Root::Function(index) if model.functions[index].body == id);
        for (position, node) in graph.nodes.iter().enumerate() {
            self.position[node.index()] = position as u32;
        }
        if !is_body && self.model.is_blank(graph.name) {
            self.add(&codes::GRAPH_WITHOUT_NAME, Spot::graph(id).field("name"), |_| {
                "the name is missing".into()
            });
        }
        if !is_body && self.wants(&codes::DUPLICATE_GRAPH_NAME) {
            self.graph_name(id);
        }
        self.graph_inputs(id, is_body);
        self.initializers(id);
        self.outputs(id, root, is_body);
        self.declared_types(id);
        for node in &graph.nodes {
            self.node(*node, root, false);
        }
        self.value_infos(id);
        self.annotations(id);
        if !is_body {
            self.check_markup(graph.doc_string, Spot::graph(id));
            self.keys(&graph.metadata_props, Spot::graph(id), "metadata_props");
        }
        self.report_unused(id, root);
    }

    /// Checks whether another graph has the same name.
    fn graph_name(&mut self, id: GraphId) {
        let name = self.model.graph(id).name;
        if let Some(name) = name.filter(|name| Some(*name) != self.empty)
            && !self.graph_names.insert(name)
        {
            let spot = Spot::graph(id).field("name");
            self.add(&codes::DUPLICATE_GRAPH_NAME, spot, |model| {
                format!("duplicate graph name '{}'", text(model, name))
            });
        }
    }

    fn graph_inputs(&mut self, id: GraphId, is_body: bool) {
        let model = self.model;
        let is_main = model.main == Some(id);
        for (index, info) in model.graph(id).inputs.iter().enumerate() {
            let spot = Spot::graph(id).item("input", index);
            self.check_named(info, spot);
            self.check_declaration(info, spot, is_main);
            let Some(name) = info.name else { continue };
            let code =
                if is_body { &codes::DUPLICATE_FUNCTION_INPUT } else { &codes::DUPLICATE_INPUT };
            if self.defined_here(id, name).is_some() {
                self.add(code, spot, |_| format!("duplicate input name '{}'", text(model, name)));
            }
            self.define(id, name, Definition::Input);
            self.shadowing(id, name, spot, false);
        }
    }

    fn initializers(&mut self, id: GraphId) {
        let model = self.model;
        let graph = model.graph(id);
        for (spot, name) in constants(id, graph) {
            let Some(name) = name.filter(|name| Some(*name) != self.empty) else {
                self.add(&codes::NAMELESS_INITIALIZER, spot, |_| "the name is missing".into());
                continue;
            };
            let definition = match self.defined_here(id, name) {
                None => {
                    if self.ir_version < 4 {
                        self.add(&codes::INITIALIZER_NOT_INPUT, spot, |model| {
                            let version = model.header.ir_version.unwrap_or(0);
                            format!("the initializer is not an input of the graph, as IR version {version} requires")
                        });
                    }
                    self.shadowing(id, name, spot, false);
                    Definition::Initializer
                }
                Some(Definition::Input) => {
                    if graph.owner.is_some() && self.ir_version >= 4 {
                        self.add(&codes::INITIALIZED_SUBGRAPH_INPUT, spot, |_| {
                            "the initializer has the name of an input of the graph".into()
                        });
                    }
                    Definition::Both
                }
                Some(other) => {
                    self.two_constants(name, spot);
                    other
                }
            };
            self.define(id, name, definition);
        }
        self.check_constants_follow_inputs(id);
        for (index, initializer) in graph.initializers.iter().enumerate() {
            self.tensor(&initializer.tensor, Spot::graph(id).item("initializer", index));
        }
        for (index, initializer) in graph.sparse_initializers.iter().enumerate() {
            let spot = Spot::graph(id).item("sparse_initializer", index);
            self.sparse_tensor(&initializer.tensor, spot);
        }
    }

    /// Checks that constants come after the inputs that are passed, which inner graphs need up to
    /// IR version 3.
    fn check_constants_follow_inputs(&mut self, id: GraphId) {
        let graph = self.model.graph(id);
        if self.ir_version >= 4 || graph.owner.is_none() || graph.initializers.is_empty() {
            return;
        }
        let is_constant = |checker: &Self, name: Option<Symbol>| {
            name.is_some_and(|name| checker.defined_here(id, name) == Some(Definition::Both))
        };
        let mut seen = None;
        for (index, info) in graph.inputs.iter().enumerate() {
            if is_constant(self, info.name) {
                seen.get_or_insert(index);
            } else if let Some(constant) = seen {
                let spot = Spot::graph(id).item("input", constant);
                self.add(&codes::PASSED_CONSTANT_INPUT, spot, |_| {
                    "an input that is an initializer comes before one that the node passes".into()
                });
                return;
            }
        }
    }

    fn two_constants(&mut self, name: Symbol, spot: Spot) {
        self.add(&codes::DUPLICATE_INITIALIZER, spot, |model| {
            format!("duplicate initializer name '{}'", text(model, name))
        });
    }

    /// Checks only for duplicate names of inputs and constants of a graph, and for outputs of nodes
    /// that redefine a name.
    pub(super) fn definitions(&mut self, id: GraphId) {
        let model = self.model;
        let graph = model.graph(id);
        for (index, info) in graph.inputs.iter().enumerate() {
            let Some(name) = info.name else { continue };
            if self.defined_here(id, name).is_some() {
                let spot = Spot::graph(id).item("input", index);
                self.add(&codes::DUPLICATE_INPUT, spot, |_| {
                    format!("duplicate input name '{}'", text(model, name))
                });
            }
            self.define(id, name, Definition::Input);
        }
        for (spot, name) in constants(id, graph) {
            let Some(name) = name.filter(|name| Some(*name) != self.empty) else {
                continue;
            };
            let definition = match self.defined_here(id, name) {
                None => Definition::Initializer,
                Some(Definition::Input) => Definition::Both,
                Some(other) => {
                    self.two_constants(name, spot);
                    other
                }
            };
            self.define(id, name, definition);
        }
        for node in &graph.nodes {
            for (index, value) in model.outputs(*node).iter().enumerate() {
                if let Some(value) = value {
                    self.check_output(*node, index, *value);
                }
            }
        }
    }

    fn outputs(&mut self, id: GraphId, root: Root, is_body: bool) {
        let model = self.model;
        let is_main = model.main == Some(id);
        let mut names = HashSet::new();
        for (index, info) in model.graph(id).outputs.iter().enumerate() {
            let spot = Spot::graph(id).item("output", index);
            self.check_named(info, spot);
            self.check_declaration(info, spot, is_main);
            let Some(name) = info.name else { continue };
            if is_body && !names.insert(name) {
                self.add(&codes::DUPLICATE_FUNCTION_OUTPUT, spot, |_| {
                    format!("duplicate output name '{}'", text(model, name))
                });
            }
            let made =
                info.value.is_some_and(|value| model.value(value).producer != Producer::Nothing);
            if made || Some(name) == self.empty {
                continue;
            }
            if matches!(root, Root::Function(_)) && is_body {
                self.add(&codes::UNDEFINED_FUNCTION_OUTPUT, spot, |_| {
                    format!("the output '{}' is not defined in the function", text(model, name))
                });
                continue;
            }
            self.add_with(&codes::UNDEFINED_OUTPUT, spot, |model| {
                describe_undefined_output(model, id, name)
            });
        }
    }

    /// Checks the value that a node reads at an input position.
    pub(super) fn check_input(&mut self, node: NodeId, index: usize, value: ValueId) {
        let model = self.model;
        let graph = model.node(node).graph;
        let found = model.value(value);
        let spot = Spot::node(node).item("input", index);
        let made_by = match found.producer {
            Producer::Node(made_by, _) => made_by,
            Producer::Nothing => {
                self.add_with(&codes::UNDEFINED_VALUE, spot, |model| {
                    describe_undefined(model, graph, found.name, index, true)
                });
                return;
            }
            _ => return,
        };
        if found.graph == graph {
            if self.position(made_by) >= self.position(node) {
                self.too_early(node, made_by, spot, found.name);
            }
            return;
        }
        // Node of the outer graph that contains this one. A training step sees all of the main
        // graph.
        let Some(owner) = owner_within(model, graph, found.graph) else {
            return;
        };
        if self.position(made_by) >= self.position(owner) {
            self.add(&codes::OUTER_TOO_EARLY, spot, |model| {
                format!(
                    "'{}' is computed by {}, which comes after {}",
                    text(model, found.name),
                    place_of_node(model, made_by),
                    place_of_node(model, owner),
                )
            });
        }
    }

    fn too_early(&mut self, node: NodeId, made_by: NodeId, spot: Spot, name: Symbol) {
        if made_by == node {
            self.add(&codes::CYCLE, spot, |model| {
                format!("the node uses its own output '{}'", text(model, name))
            });
            return;
        }
        if self.depends_on(made_by, node) {
            self.add(&codes::CYCLE, spot, |model| {
                format!(
                    "the node uses '{}' of {}, which depends on this node",
                    text(model, name),
                    place_of_node(model, made_by)
                )
            });
            return;
        }
        self.add(&codes::USED_TOO_EARLY, spot, |model| {
            format!(
                "the node uses '{}' before {} computes it",
                text(model, name),
                place_of_node(model, made_by)
            )
        });
    }

    /// Whether the outputs of a node depend, within its graph, on those of another. Searches a
    /// bounded number of nodes, and only for the first findings; otherwise a wrong order would take
    /// time quadratic in the size of the model.
    fn depends_on(&mut self, node: NodeId, other: NodeId) -> bool {
        const MOST_NODES: usize = 100_000;
        if self.order_searches == 0 {
            return false;
        }
        self.order_searches -= 1;
        let model = self.model;
        let graph = model.node(node).graph;
        let mut seen = HashSet::new();
        let mut left = vec![node];
        while let Some(next) = left.pop() {
            self.steps += 1;
            if next == other {
                return true;
            }
            if seen.len() > MOST_NODES {
                return false;
            }
            if !seen.insert(next) {
                continue;
            }
            for value in model.inputs(next).flatten() {
                let value = model.value(value);
                if let (Producer::Node(producer, _), true) = (value.producer, value.graph == graph)
                {
                    left.push(producer);
                }
            }
        }
        false
    }

    /// Checks the value that a node makes at an output position.
    pub(super) fn check_output(&mut self, node: NodeId, index: usize, value: ValueId) {
        let model = self.model;
        let found = model.value(value);
        let graph = model.node(node).graph;
        let spot = Spot::node(node).item("output", index);
        if let Some(before) = self.defined_here(graph, found.name) {
            self.add(&codes::DUPLICATE_DEFINITION, spot, |model| {
                let name = text(model, found.name);
                match before {
                    Definition::Node => match first_maker(model, graph, found.name, node) {
                        Some(maker) => {
                            format!(
                                "the output '{name}' is also an output of {}",
                                place_of_node(model, maker)
                            )
                        }
                        None => format!("the node has two outputs '{name}'"),
                    },
                    Definition::Input | Definition::Both => {
                        format!("the output '{name}' has the name of an input of the graph")
                    }
                    Definition::Initializer => {
                        format!("the output '{name}' has the name of an initializer of the graph")
                    }
                }
            });
            return;
        }
        self.define(graph, found.name, Definition::Node);
        self.shadowing(graph, found.name, spot, true);
    }

    /// Checks whether a definition hides one of an outer graph.
    fn shadowing(&mut self, graph: GraphId, name: Symbol, spot: Spot, by_node: bool) {
        let model = self.model;
        if self.scopes.get(name, graph).is_none() {
            return;
        }
        let mut inner = graph;
        // Models are nested a few levels deep, which the reader bounds.
        while let Some(outer) = model.graph(inner).parent {
            self.steps += 1;
            let owner = model.graph(inner).owner;
            let hidden = self.scopes.get(name, outer);
            let is_visible =
                hidden.is_some_and(|value| match (model.value(value).producer, owner) {
                    (Producer::Node(made_by, _), Some(owner)) => {
                        self.position(made_by) < self.position(owner)
                    }
                    _ => true,
                });
            if is_visible {
                // A training step and the main graph have one set of names, which `training`
                // checks.
                let Some(owner) = owner else { return };
                let code = if by_node { &codes::SHADOWED_VALUE } else { &codes::SHADOWED_NAME };
                self.add(code, spot, |model| {
                    format!(
                        "'{}' is also the name of a value of a graph that encloses {}",
                        text(model, name),
                        place_of_node(model, owner)
                    )
                });
                return;
            }
            inner = outer;
        }
    }

    fn value_infos(&mut self, id: GraphId) {
        let model = self.model;
        let graph = model.graph(id);
        let mut names = HashSet::with_capacity(graph.value_info.len());
        for (index, info) in graph.value_info.iter().enumerate() {
            let spot = Spot::graph(id).item("value_info", index);
            self.check_declaration(info, spot, false);
            let Some(name) = info.name.filter(|name| Some(*name) != self.empty) else {
                self.add(&codes::TYPE_OF_NOTHING, spot, |_| "the name is missing".into());
                continue;
            };
            if !names.insert(name) {
                self.add(&codes::DUPLICATE_TYPE, spot, |_| {
                    format!("duplicate type of '{}'", text(model, name))
                });
            }
            let defined =
                info.value.is_some_and(|value| model.value(value).producer != Producer::Nothing);
            if !defined {
                self.add(&codes::TYPE_OF_NOTHING, spot, |_| {
                    format!("no value '{}' exists", text(model, name))
                });
            }
        }
    }

    fn annotations(&mut self, id: GraphId) {
        let model = self.model;
        for (index, annotation) in model.graph(id).quantization_annotation.iter().enumerate() {
            let spot = Spot::graph(id).item("quantization_annotation", index);
            let exists = |checker: &Self, name: Option<Symbol>| {
                name.is_some_and(|name| checker.defined_here(id, name).is_some())
            };
            if !exists(self, annotation.tensor_name) {
                self.add(&codes::ANNOTATION_OF_NOTHING, spot, |_| {
                    let name = model.maybe_text(annotation.tensor_name).unwrap_or_default();
                    format!("no tensor '{}' exists", sardonyx_proto::shown(name))
                });
            }
            for entry in &annotation.quant_parameter_tensor_names {
                let key = model.maybe_text(entry.key).unwrap_or_default();
                if !matches!(key, b"SCALE_TENSOR" | b"ZERO_POINT_TENSOR") {
                    self.add(&codes::UNKNOWN_ANNOTATION, spot, |_| {
                        format!("its key is '{}'", sardonyx_proto::shown(key))
                    });
                } else if !exists(self, entry.value) {
                    self.add(&codes::ANNOTATION_OF_NOTHING, spot, |_| {
                        let name = model.maybe_text(entry.value).unwrap_or_default();
                        format!(
                            "{} is '{}', which does not exist",
                            sardonyx_proto::shown(key),
                            sardonyx_proto::shown(name)
                        )
                    });
                }
            }
            self.keys(
                &annotation.quant_parameter_tensor_names,
                Spot::graph(id),
                "quantization_annotation",
            );
        }
    }

    /// Returns the kind of the definition of a name in the current graph so far.
    pub(super) fn defined_here(&self, graph: GraphId, name: Symbol) -> Option<Definition> {
        self.defined[name.index()].definition_in(graph)
    }

    pub(super) fn define(&mut self, graph: GraphId, name: Symbol, definition: Definition) {
        self.defined[name.index()] = Defined::new(graph, definition);
        if self.lints_names {
            let name_text = self.texts.text(name);
            if !is_identifier(name_text) {
                self.add(&codes::NAME_NO_IDENTIFIER, Spot::graph(graph), |model| {
                    format!("the name '{}' is not an identifier", text(model, name))
                });
            }
        }
    }
}

/// Returns the number of a graph, from 1, so that 0 stands for none.
pub(super) fn graph_number(graph: GraphId) -> u32 {
    graph.index() as u32 + 1
}

/// Returns the spots and the names of the constants of a graph, dense ones first.
fn constants(id: GraphId, graph: &Graph) -> impl Iterator<Item = (Spot, Option<Symbol>)> {
    let dense = graph.initializers.iter().enumerate();
    let dense = dense.map(move |(index, found)| {
        let spot = Spot::graph(id).item("initializer", index);
        (spot, found.tensor.name)
    });
    let sparse = graph.sparse_initializers.iter().enumerate();
    let sparse = sparse.map(move |(index, found)| {
        let spot = Spot::graph(id).item("sparse_initializer", index);
        (spot, found.tensor.values.as_ref().and_then(|values| values.name))
    });
    dense.chain(sparse)
}

pub(super) fn text(model: &Model, name: Symbol) -> String {
    sardonyx_proto::shown(model.text(name))
}

/// Returns the node of graph `outer` that contains graph `inner` at any depth.
fn owner_within(model: &Model, inner: GraphId, outer: GraphId) -> Option<NodeId> {
    let mut graph = inner;
    loop {
        let parent = model.graph(graph).parent?;
        if parent == outer {
            return model.graph(graph).owner;
        }
        graph = parent;
    }
}

/// Whether an outer graph defines a name.
fn outer_value(model: &Model, graph: GraphId, name: Symbol) -> bool {
    let mut outer = Vec::new();
    let mut inner = graph;
    while let Some(parent) = model.graph(inner).parent {
        outer.push(parent);
        inner = parent;
    }
    model.values().any(|(_, value)| {
        value.name == name && value.producer != Producer::Nothing && outer.contains(&value.graph)
    })
}

/// Returns the first other node of a graph that makes a value of a name.
fn first_maker(model: &Model, graph: GraphId, name: Symbol, not: NodeId) -> Option<NodeId> {
    let nodes = model.graph(graph).nodes.iter().copied();
    nodes.take_while(|node| *node != not).find(|node| {
        let mut outputs = model.outputs(*node).iter().flatten();
        outputs.any(|value| model.value(*value).name == name)
    })
}

/// Returns the outermost graph around this one.
fn outermost(model: &Model, graph: GraphId) -> GraphId {
    let mut graph = graph;
    while let Some(parent) = model.graph(graph).parent {
        graph = parent;
    }
    graph
}

/// Describes an output of a graph that nothing in it defines, with advice.
pub(crate) fn describe_undefined_output(
    model: &Model,
    graph: GraphId,
    name: Symbol,
) -> (String, Cow<'static, str>) {
    let fact = format!("the output '{}' is not defined in the graph", text(model, name));
    let advice = if outer_value(model, graph, name) {
        "add an Identity node: the value is one of the enclosing graph"
    } else {
        ""
    };
    (fact, advice.into())
}

/// Describes an undefined name. If `advised`, the advice names another graph that has it, or a
/// similar name; it may be empty.
pub(crate) fn describe_undefined(
    model: &Model,
    graph: GraphId,
    name: Symbol,
    index: usize,
    advised: bool,
) -> (String, Cow<'static, str>) {
    /// Maximum number of names that are compared.
    const MOST_NAMES: usize = 10_000;
    let shown = text(model, name);
    let fact = format!("input {index}, '{shown}', is not defined");
    if !advised {
        return (fact, "".into());
    }
    let elsewhere = model.values().find(|(_, value)| {
        value.name == name && value.producer != Producer::Nothing && value.graph != graph
    });
    if let Some((_, value)) = elsewhere {
        let body = outermost(model, graph);
        let advice = match model.graph(value.graph).owner {
            _ if model.functions.iter().any(|found| found.body == body) => {
                "functions can use only their inputs: add the value as an input".to_string()
            }
            Some(owner) => format!(
                "a value of that name exists in a subgraph of {}: make it an output of the subgraph",
                place_of_node(model, owner)
            ),
            None => "a value of that name exists in another graph, which is not visible here"
                .to_string(),
        };
        return (fact, advice.into());
    }
    let names = model.values().take(MOST_NAMES).filter_map(|(_, value)| {
        let visible = value.producer != Producer::Nothing && value.graph == graph;
        visible.then(|| std::str::from_utf8(model.text(value.name)).ok())?
    });
    match sardonyx_proto::closest(&shown, names) {
        Some(near) => (fact, format!("did you mean '{near}'?").into()),
        None => (fact, "".into()),
    }
}

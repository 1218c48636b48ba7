//! Findings about a model: codes, places, and the collector that limits their number.

use std::borrow::Cow;
use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};
use std::fmt;
use std::panic::Location;

use sardonyx_model::{GraphId, MadeNodes, Model, NodeId, Symbol};
use sardonyx_proto::switch;

use crate::node_path::{NodePath, PathNode};

/// Severity of a finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Severity {
    /// An observation that needs no action.
    Note,
    /// A departure from a recommendation of the standard, or a point that tools treat differently.
    Warning,
    /// A violation of the standard.
    Error,
}

impl Severity {
    /// Returns `note`, `warning` or `error`.
    pub fn name(self) -> &'static str {
        match self {
            Severity::Note => "note",
            Severity::Warning => "warning",
            Severity::Error => "error",
        }
    }
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Kind of finding. Names are stable across releases; messages are not.
#[derive(Debug, PartialEq, Eq)]
pub struct Code {
    /// Name of the code, such as `unknown-operator`.
    pub name: &'static str,
    /// Default severity of its findings; `None` for pedantic findings, which only strict checks
    /// report.
    pub severity: Option<Severity>,
    /// Requirement that the code enforces, such as `OPSET-14`; empty if there is none.
    pub requirement: &'static str,
    /// Advice for findings without advice of their own, as a clause.
    pub help: &'static str,
    /// Meaning and consequences of the finding, in a few sentences.
    pub about: &'static str,
    /// Whether the checker of the `onnx` package refuses a model for it, too.
    #[doc(hidden)]
    pub reference: Reference,
}

/// What the checker of the `onnx` package does with a model that has a finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reference {
    /// It refuses the model.
    Refuses,
    /// It refuses the model if it was asked for a full check, which infers types and shapes as
    /// well.
    RefusesInFull,
    /// It does not see it.
    Accepts,
}

/// Where in a model. Cheap to make; [`Place`] is the same in words.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Spot {
    /// The part of the model.
    pub part: SpotPart,
    /// The field of the part, such as `input`; empty for the part as a whole.
    pub field: &'static str,
    /// Which element of the field, if that is a list.
    pub index: Option<u32>,
    /// A field within that element, such as its `doc_string`; `None` for the element as a whole.
    pub inner: Option<InnerSpot>,
}

/// A field of an element of a list, such as the third entry in `metadata_props` of an initializer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct InnerSpot {
    /// The fields that lead to the message, such as `t` from an attribute to its tensor; empty for
    /// the element itself.
    pub through: &'static str,
    /// The field; empty for the message as a whole.
    pub field: &'static str,
    /// Position of the element in the field, if that is a list.
    pub index: Option<u32>,
}

/// A part of a model that findings are about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SpotPart {
    /// The model itself.
    Model,
    /// A file that is no model: an operator set, a stored value.
    Document,
    /// A graph.
    Graph(GraphId),
    /// A node.
    Node(NodeId),
    /// A function, by position.
    Function(usize),
    /// A training step, by position.
    Training(usize),
}

impl Spot {
    /// The model as a whole.
    pub const MODEL: Spot = Spot { part: SpotPart::Model, field: "", index: None, inner: None };

    /// A graph as a whole.
    #[inline]
    pub fn graph(graph: GraphId) -> Spot {
        Spot { part: SpotPart::Graph(graph), ..Spot::MODEL }
    }

    /// A node as a whole.
    #[inline]
    pub fn node(node: NodeId) -> Spot {
        Spot { part: SpotPart::Node(node), ..Spot::MODEL }
    }

    /// A function as a whole.
    #[inline]
    pub fn function(index: usize) -> Spot {
        Spot { part: SpotPart::Function(index), ..Spot::MODEL }
    }

    /// A training step as a whole.
    #[inline]
    pub fn training(index: usize) -> Spot {
        Spot { part: SpotPart::Training(index), ..Spot::MODEL }
    }

    /// A field of the part, or of the element that the spot is.
    #[inline]
    pub fn field(self, field: &'static str) -> Spot {
        self.at(field, None)
    }

    /// An element of a list of the part, or of the element that the spot is.
    #[inline]
    pub fn item(self, field: &'static str, index: usize) -> Spot {
        self.at(field, Some(index as u32))
    }

    /// The message to which fields lead from the element that the spot is, such as `t` from an
    /// attribute to its tensor.
    #[inline]
    pub fn through(self, through: &'static str) -> Spot {
        Spot { inner: Some(InnerSpot { through, field: "", index: None }), ..self }
    }

    #[inline]
    fn at(self, field: &'static str, index: Option<u32>) -> Spot {
        if self.index.is_none() {
            return Spot { field, index, ..self };
        }
        let through = self.inner.map_or("", |inner| inner.through);
        Spot { inner: Some(InnerSpot { through, field, index }), ..self }
    }
}

/// Place in a model, as a path for programs and as a description for messages.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Place {
    /// The spot.
    #[doc(hidden)]
    pub spot: Spot,
    /// Path through the messages of the file, such as `graph.node[3].input[0]`.
    pub path: String,
    /// Description, such as `node 'conv1' (Conv)`.
    pub words: String,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.words)
    }
}

/// Problem of a model, or of an option that does not fit the model.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Finding {
    /// Kind of the finding.
    pub code: &'static Code,
    /// Severity of the finding. Options of a check may change the default of its code.
    pub severity: Severity,
    /// Place of the problem.
    pub place: Place,
    /// Description of the problem, without its place.
    pub fact: String,
    /// Advice on how to solve the problem; may be empty.
    pub advice: Cow<'static, str>,
}

/// Prints one line: place, description, and advice in parentheses. Severity and code are left out.
impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.fact)?;
        if !self.advice.is_empty() {
            write!(f, " ({})", self.advice)?;
        }
        Ok(())
    }
}

impl Finding {
    /// A finding of a job that has found few, with the advice of its code.
    #[doc(hidden)]
    pub fn new(model: &Model, code: &'static Code, spot: Spot, fact: impl Into<String>) -> Finding {
        Finding {
            code,
            severity: code.severity.unwrap_or(Severity::Note),
            place: Places::default().of(model, spot),
            fact: fact.into(),
            advice: code.help.into(),
        }
    }

    /// The same with other advice.
    #[must_use]
    #[doc(hidden)]
    pub fn with_advice(self, advice: impl Into<Cow<'static, str>>) -> Finding {
        Finding { advice: advice.into(), ..self }
    }
}

/// Names a node for people: by its name, else by what it produces.
pub fn place_of_node(model: &Model, node: NodeId) -> String {
    PathNode::new(model, node, model.outputs(node).iter().flatten().next().copied()).to_string()
}

/// The name of a node, or that of its first output if it has none; bounded in length.
pub fn name_of_node(model: &Model, node: NodeId) -> String {
    let name = model.maybe_text(model.node(node).name);
    let name = name.filter(|name| !name.is_empty());
    let output = || {
        let value = model.outputs(node).iter().flatten().next()?;
        Some(model.text(model.value(*value).name))
    };
    sardonyx_proto::shown(name.or_else(output).unwrap_or_default())
}

/// Turns spots into places. What takes a walk through the model is found once, and only if anybody
/// asks.
#[derive(Debug, Default)]
pub struct Places {
    graphs: Option<HashMap<GraphId, String>>,
}

impl Places {
    /// The place of a spot.
    pub fn of(&mut self, model: &Model, spot: Spot) -> Place {
        let step = |field: &str, index: Option<u32>| match (field, index) {
            ("", _) => String::new(),
            (field, None) => format!(".{field}"),
            (field, Some(index)) => format!(".{field}[{index}]"),
        };
        let mut item = step(spot.field, spot.index);
        if let Some(inner) = spot.inner.filter(|inner| !inner.field.is_empty()) {
            item += &step(inner.through, None);
            item += &step(inner.field, inner.index);
        }
        let whole = self.path(model, spot.part);
        let path = match (whole.is_empty(), item.strip_prefix('.')) {
            (true, Some(item)) => item.to_string(),
            _ => whole + &item,
        };
        Place { spot, path, words: words(model, spot) }
    }

    fn path(&mut self, model: &Model, part: SpotPart) -> String {
        match part {
            SpotPart::Model | SpotPart::Document => String::new(),
            SpotPart::Graph(graph) => self.graph(model, graph),
            SpotPart::Node(node) => {
                let graph = model.node(node).graph;
                let nodes = &model.graph(graph).nodes;
                // In a model as it was read the ids ascend; a search from the front for each of
                // many findings would take quadratic time.
                let position = nodes.binary_search(&node);
                let position =
                    position.or_else(|_| nodes.iter().position(|id| *id == node).ok_or(()));
                let position = position.unwrap_or(0);
                format!("{}.node[{position}]", self.graph(model, graph))
            }
            SpotPart::Function(index) => format!("functions[{index}]"),
            SpotPart::Training(index) => format!("training_info[{index}]"),
        }
    }

    fn graph(&mut self, model: &Model, graph: GraphId) -> String {
        let places = self.graphs.get_or_insert_with(|| model.graph_places());
        places.get(&graph).cloned().unwrap_or_default()
    }
}

/// The place of a spot in words, with the nodes around it.
pub(crate) fn words(model: &Model, spot: Spot) -> String {
    let item = item_words(model, spot);
    let whole = match spot.part {
        SpotPart::Model => "the model".to_string(),
        SpotPart::Document => "the file".to_string(),
        SpotPart::Graph(graph) => graph_words(model, graph),
        SpotPart::Node(node) => node_words(model, node),
        SpotPart::Function(index) => function_words(model, index),
        SpotPart::Training(index) => format!("training step {index}"),
    };
    let item = item.map(|item| match spot.inner {
        Some(InnerSpot { field, index: Some(index), .. }) => format!("{field} {index} of {item}"),
        _ => item,
    });
    match item {
        Some(item) if matches!(spot.part, SpotPart::Model | SpotPart::Document) => item,
        Some(item) => format!("{item} of {whole}"),
        None => whole,
    }
}

/// The name of an element of a list of a graph; `None` if the elements of the list have no names,
/// or the list has no such element.
pub(crate) fn name_of_element(
    model: &Model,
    graph: GraphId,
    field: &str,
    index: usize,
) -> Option<Option<Symbol>> {
    let graph = model.graph(graph);
    Some(match field {
        "input" => graph.inputs.get(index)?.name,
        "output" => graph.outputs.get(index)?.name,
        "value_info" => graph.value_info.get(index)?.name,
        "initializer" => graph.initializers.get(index)?.tensor.name,
        "sparse_initializer" => {
            let values = graph.sparse_initializers.get(index)?.tensor.values.as_ref();
            values.and_then(|values| values.name)
        }
        "quantization_annotation" => graph.quantization_annotation.get(index)?.tensor_name,
        _ => return None,
    })
}

/// Whether the elements of a list of a graph have names.
fn has_names(field: &str) -> bool {
    matches!(
        field,
        "input"
            | "output"
            | "value_info"
            | "initializer"
            | "sparse_initializer"
            | "quantization_annotation"
    )
}

/// The element of a list, by name where it has one.
fn item_words(model: &Model, spot: Spot) -> Option<String> {
    let index = spot.index? as usize;
    let named = |name: Option<Symbol>| {
        let name = model.maybe_text(name).filter(|name| !name.is_empty());
        let what = match spot.field {
            "sparse_initializer" => "sparse initializer",
            "value_info" => "the type of",
            "quantization_annotation" => "the quantization annotation of",
            field => field,
        };
        match name {
            Some(name) => format!("{what} '{}'", sardonyx_proto::shown(name)),
            None if what.ends_with(" of") => format!("{} {index}", spot.field),
            None => format!("{what} {index}"),
        }
    };
    Some(match (spot.part, spot.field) {
        (SpotPart::Graph(graph), field) if has_names(field) => {
            named(name_of_element(model, graph, field, index)?)
        }
        (SpotPart::Node(node), "attribute") => {
            let attribute = model.attributes(node).get(index)?;
            named(model.attribute(*attribute).name)
        }
        (SpotPart::Model | SpotPart::Document, field) => format!("{field}[{index}]"),
        (_, field) => format!("{field} {index}"),
    })
}

fn graph_words(model: &Model, graph: GraphId) -> String {
    if let Some(index) = model.functions.iter().position(|found| found.body == graph) {
        return function_words(model, index);
    }
    let name = sardonyx_proto::shown(model.maybe_text(model.graph(graph).name).unwrap_or_default());
    let called = if name.is_empty() {
        "a graph without a name".to_string()
    } else {
        format!("graph '{name}'")
    };
    match model.graph(graph).owner {
        Some(owner) => format!("{called} in {}", node_words(model, owner)),
        None if model.main == Some(graph) => "the graph".to_string(),
        None => called,
    }
}

/// A node, what it is a part of, and the outermost graph, unless that is the main one.
fn node_words(model: &Model, node: NodeId) -> String {
    let outermost = outermost(model, node);
    let path = NodePath::new(model, &MadeNodes::default(), node, &[]);
    if model.main == Some(outermost) {
        path.to_string()
    } else {
        format!("{path} in {}", graph_words(model, outermost))
    }
}

/// The graph that a node stands in, through all graphs of nodes.
fn outermost(model: &Model, node: NodeId) -> GraphId {
    let mut graph = model.node(node).graph;
    while let Some(owner) = model.graph(graph).owner {
        graph = model.node(owner).graph;
    }
    graph
}

fn function_words(model: &Model, index: usize) -> String {
    let Some(function) = model.functions.get(index) else {
        return format!("function {index}");
    };
    let text = |symbol| sardonyx_proto::shown(model.maybe_text(symbol).unwrap_or_default());
    let mut name = text(function.name);
    let (domain, overload) = (text(function.domain), text(function.overload));
    if !domain.is_empty() {
        name = format!("{domain}.{name}");
    }
    if !overload.is_empty() {
        name = format!("{name}:{overload}");
    }
    format!("function '{name}'")
}

/// A finding without its words.
pub(crate) type Fault = (&'static str, Spot);

/// The findings that are kept, and their subjects.
#[derive(Debug)]
enum FindingsKind {
    /// Some of each code, with their words.
    All,
    /// The places of all errors, without words.
    Errors(Vec<Fault>),
    /// Some of each code, of these alone.
    Only(HashSet<Fault>),
}

/// Findings while they are gathered. Of each code a few are kept, the rest is counted: a file
/// cannot make a report large.
#[derive(Debug)]
pub struct Findings {
    kind: FindingsKind,
    per_code: usize,
    kept: Vec<Finding>,
    totals: HashMap<&'static str, (Severity, u64)>,
    places: Places,
}

/// Findings of a check, with their total numbers.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct CheckReport {
    /// Findings, the most severe first, otherwise in the order of the file. The number of findings
    /// that are listed for each code is limited.
    pub findings: Vec<Finding>,
    /// Number of errors, including those that are not listed.
    pub errors: u64,
    /// Number of warnings, including those that are not listed.
    pub warnings: u64,
    /// Number of notes, including those that are not listed.
    pub notes: u64,
    /// Names of codes with more findings than are listed, each with the number of the others.
    pub more: Vec<(&'static str, u64)>,
    /// Whether types and shapes were inferred and compared with the declared ones.
    pub types_checked: bool,
}

impl Findings {
    /// Keeps this many findings of each code.
    pub fn new(per_code: usize) -> Findings {
        Findings {
            kind: FindingsKind::All,
            per_code: per_code.max(1),
            kept: Vec::new(),
            totals: HashMap::new(),
            places: Places::default(),
        }
    }

    /// Gathers where errors are, and leaves all words out.
    pub(crate) fn of_errors() -> Findings {
        Findings { kind: FindingsKind::Errors(Vec::new()), ..Findings::new(1) }
    }

    /// Gathers these findings and no others.
    pub(crate) fn only(faults: HashSet<Fault>, per_code: usize) -> Findings {
        Findings { kind: FindingsKind::Only(faults), ..Findings::new(per_code) }
    }

    /// The errors that [`of_errors`](Findings::of_errors) gathered.
    pub(crate) fn into_errors(self) -> Vec<Fault> {
        match self.kind {
            FindingsKind::Errors(errors) => errors,
            FindingsKind::All | FindingsKind::Only(_) => Vec::new(),
        }
    }

    /// Adds a finding. The words are only put together if it is kept. Advice that is empty becomes
    /// that of the code.
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn add(
        &mut self,
        model: &Model,
        code: &'static Code,
        severity: Severity,
        spot: Spot,
        words: impl FnOnce() -> (String, Cow<'static, str>),
    ) {
        if switch::is_off(code.name, Location::caller()) {
            return;
        }
        // All but the words is compiled once: 180 rules call this.
        if self.counts(code, severity, spot) {
            let (fact, advice) = words();
            self.keep(model, code, severity, spot, fact, advice);
        }
    }

    #[inline(never)]
    fn keep(
        &mut self,
        model: &Model,
        code: &'static Code,
        severity: Severity,
        spot: Spot,
        fact: String,
        advice: Cow<'static, str>,
    ) {
        let advice = if advice.is_empty() { code.help.into() } else { advice };
        let place = self.places.of(model, spot);
        self.kept.push(Finding { code, severity, place, fact, advice });
    }

    /// Counts a finding and returns whether it is kept.
    #[inline(never)]
    fn counts(&mut self, code: &'static Code, severity: Severity, spot: Spot) -> bool {
        match &mut self.kind {
            FindingsKind::All => {}
            FindingsKind::Errors(errors) => {
                if severity == Severity::Error {
                    errors.push((code.name, spot));
                }
                return false;
            }
            FindingsKind::Only(wanted) if !wanted.contains(&(code.name, spot)) => return false,
            FindingsKind::Only(_) => {}
        }
        let total = self.totals.entry(code.name).or_insert((severity, 0));
        total.1 += 1;
        total.1 <= self.per_code as u64
    }

    /// Adds a finding of the severity and with the advice of its code.
    #[cfg_attr(debug_assertions, track_caller)]
    pub(crate) fn note(
        &mut self,
        model: &Model,
        code: &'static Code,
        spot: Spot,
        fact: impl FnOnce() -> String,
    ) {
        let severity = code.severity.unwrap_or(Severity::Note);
        self.add(model, code, severity, spot, || (fact(), "".into()));
    }

    /// Into a report.
    pub fn report(mut self) -> CheckReport {
        self.kept.sort_by_key(|found| Reverse(found.severity));
        let mut report = CheckReport { findings: self.kept, ..CheckReport::default() };
        for (code, (severity, count)) in self.totals {
            *match severity {
                Severity::Error => &mut report.errors,
                Severity::Warning => &mut report.warnings,
                Severity::Note => &mut report.notes,
            } += count;
            let more = count.saturating_sub(self.per_code as u64);
            if more > 0 {
                report.more.push((code, more));
            }
        }
        report.more.sort_unstable();
        report
    }
}

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

/// Behavior of the checker of the `onnx` package for a model that has a finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reference {
    /// The model is refused.
    Refuses,
    /// The model is refused by a full check, which infers types and shapes as well.
    RefusesInFull,
    /// The fault is not found.
    Accepts,
}

/// Place in a model that is cheap to make. [`Place`] describes it in words.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Spot {
    /// Part of the model.
    pub part: SpotPart,
    /// Field of the part, such as `input`; empty for the part as a whole.
    pub field: &'static str,
    /// Position of the element in the field, if that is a list.
    pub index: Option<u32>,
    /// Field within that element, such as its `doc_string`; `None` for the element as a whole.
    pub inner: Option<InnerSpot>,
}

/// Field of an element of a list, such as the third entry in `metadata_props` of an initializer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct InnerSpot {
    /// Fields that lead to the message, such as `t` from an attribute to its tensor; empty for the
    /// element itself.
    pub through: &'static str,
    /// Field of the message; empty for the message as a whole.
    pub field: &'static str,
    /// Position of the element in the field, if that is a list.
    pub index: Option<u32>,
}

/// Part of a model that findings are about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SpotPart {
    /// Model itself.
    Model,
    /// File that is not a model: an operator set or a stored value.
    Document,
    /// Graph.
    Graph(GraphId),
    /// Node.
    Node(NodeId),
    /// Function, by position.
    Function(usize),
    /// Training step, by position.
    Training(usize),
}

impl Spot {
    /// Model as a whole.
    pub const MODEL: Spot = Spot { part: SpotPart::Model, field: "", index: None, inner: None };

    /// Returns the spot of a graph as a whole.
    #[inline]
    pub fn graph(graph: GraphId) -> Spot {
        Spot { part: SpotPart::Graph(graph), ..Spot::MODEL }
    }

    /// Returns the spot of a node as a whole.
    #[inline]
    pub fn node(node: NodeId) -> Spot {
        Spot { part: SpotPart::Node(node), ..Spot::MODEL }
    }

    /// Returns the spot of a function as a whole.
    #[inline]
    pub fn function(index: usize) -> Spot {
        Spot { part: SpotPart::Function(index), ..Spot::MODEL }
    }

    /// Returns the spot of a training step as a whole.
    #[inline]
    pub fn training(index: usize) -> Spot {
        Spot { part: SpotPart::Training(index), ..Spot::MODEL }
    }

    /// Returns the spot of a field of this part or element.
    #[inline]
    pub fn field(self, field: &'static str) -> Spot {
        self.at(field, None)
    }

    /// Returns the spot of an element of a list of this part or element.
    #[inline]
    pub fn item(self, field: &'static str, index: usize) -> Spot {
        self.at(field, Some(index as u32))
    }

    /// Returns the spot of the message to which fields lead from this element, such as `t` from an
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
    /// Compact form of the place.
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

/// Writes one line: place, description, and advice in parentheses. Severity and code are left out.
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
    /// Makes a finding with the advice of its code, for a job that finds few.
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

    /// Replaces the advice.
    #[must_use]
    #[doc(hidden)]
    pub fn with_advice(self, advice: impl Into<Cow<'static, str>>) -> Finding {
        Finding { advice: advice.into(), ..self }
    }
}

/// Describes a node by its name or else by its output.
pub fn place_of_node(model: &Model, node: NodeId) -> String {
    PathNode::new(model, node, model.outputs(node).iter().flatten().next().copied()).to_string()
}

/// Returns the name of a node, or that of its first output if it has none, with a limited length.
pub fn name_of_node(model: &Model, node: NodeId) -> String {
    let name = model.maybe_text(model.node(node).name);
    let name = name.filter(|name| !name.is_empty());
    let output = || {
        let value = model.outputs(node).iter().flatten().next()?;
        Some(model.text(model.value(*value).name))
    };
    sardonyx_proto::shown(name.or_else(output).unwrap_or_default())
}

/// Converts spots to places. Walks through the model are done at most once, and only if a spot
/// needs them.
#[derive(Debug, Default)]
pub struct Places {
    graphs: Option<HashMap<GraphId, String>>,
}

impl Places {
    /// Returns the place of a spot.
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
        Place { spot, path, words: describe_spot(model, spot) }
    }

    fn path(&mut self, model: &Model, part: SpotPart) -> String {
        match part {
            SpotPart::Model | SpotPart::Document => String::new(),
            SpotPart::Graph(graph) => self.graph(model, graph),
            SpotPart::Node(node) => {
                let graph = model.node(node).graph;
                let nodes = &model.graph(graph).nodes;
                // The ids of a model that was read ascend. A search from the front for each of many
                // findings would take quadratic time.
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

/// Describes the place of a spot in words, with the nodes around it.
pub(crate) fn describe_spot(model: &Model, spot: Spot) -> String {
    let item = describe_item(model, spot);
    let whole = match spot.part {
        SpotPart::Model => "the model".to_string(),
        SpotPart::Document => "the file".to_string(),
        SpotPart::Graph(graph) => describe_graph(model, graph),
        SpotPart::Node(node) => describe_node(model, node),
        SpotPart::Function(index) => describe_function(model, index),
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

/// Returns the name of an element of a list of a graph. Returns `None` if the elements of the list
/// have no names, or the list has no such element.
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

/// Returns whether the elements of a list of a graph have names.
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

/// Describes the element of a list, by name if it has one.
fn describe_item(model: &Model, spot: Spot) -> Option<String> {
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

fn describe_graph(model: &Model, graph: GraphId) -> String {
    if let Some(index) = model.functions.iter().position(|found| found.body == graph) {
        return describe_function(model, index);
    }
    let name = sardonyx_proto::shown(model.maybe_text(model.graph(graph).name).unwrap_or_default());
    let called = if name.is_empty() {
        "a graph without a name".to_string()
    } else {
        format!("graph '{name}'")
    };
    match model.graph(graph).owner {
        Some(owner) => format!("{called} in {}", describe_node(model, owner)),
        None if model.main == Some(graph) => "the graph".to_string(),
        None => called,
    }
}

/// Describes a node with the nodes that contain it, and the outermost graph unless it is the main
/// one.
fn describe_node(model: &Model, node: NodeId) -> String {
    let outermost = find_outermost(model, node);
    let path = NodePath::new(model, &MadeNodes::default(), node, &[]);
    if model.main == Some(outermost) {
        path.to_string()
    } else {
        format!("{path} in {}", describe_graph(model, outermost))
    }
}

/// Returns the outermost graph that contains a node.
fn find_outermost(model: &Model, node: NodeId) -> GraphId {
    let mut graph = model.node(node).graph;
    while let Some(owner) = model.graph(graph).owner {
        graph = model.node(owner).graph;
    }
    graph
}

fn describe_function(model: &Model, index: usize) -> String {
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

/// Code and spot of a finding, without its words.
pub(crate) type Fault = (&'static str, Spot);

/// Selection of the findings that are kept.
#[derive(Debug)]
enum FindingsKind {
    /// All findings, up to a limit for each code, with their words.
    All,
    /// All errors, without words.
    Errors(Vec<Fault>),
    /// Only these findings, up to a limit for each code.
    Only(HashSet<Fault>),
}

/// Collector of findings. Keeps a few of each code and counts the rest, so that no file can make a
/// report large.
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
    /// Creates a collector that keeps `per_code` findings of each code.
    pub fn new(per_code: usize) -> Findings {
        Findings {
            kind: FindingsKind::All,
            per_code: per_code.max(1),
            kept: Vec::new(),
            totals: HashMap::new(),
            places: Places::default(),
        }
    }

    /// Creates a collector of the places of errors, without words.
    pub(crate) fn of_errors() -> Findings {
        Findings { kind: FindingsKind::Errors(Vec::new()), ..Findings::new(1) }
    }

    /// Creates a collector that keeps these findings only.
    pub(crate) fn keep_only(faults: HashSet<Fault>, per_code: usize) -> Findings {
        Findings { kind: FindingsKind::Only(faults), ..Findings::new(per_code) }
    }

    /// Returns the errors of a collector that [`of_errors`](Findings::of_errors) created.
    pub(crate) fn into_errors(self) -> Vec<Fault> {
        match self.kind {
            FindingsKind::Errors(errors) => errors,
            FindingsKind::All | FindingsKind::Only(_) => Vec::new(),
        }
    }

    /// Adds a finding. The words are made only if the finding is kept. Empty advice becomes that of
    /// the code.
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
        // Everything but the words is compiled once, as 180 rules call this.
        if self.count(code, severity, spot) {
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
    fn count(&mut self, code: &'static Code, severity: Severity, spot: Spot) -> bool {
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

    /// Returns the report of the findings.
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

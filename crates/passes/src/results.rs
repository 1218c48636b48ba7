//! Checks the result of a job before it is written.
//!
//! A result is checked like by `check --full`: rules, types and shapes. A model without errors
//! costs nothing more. Only if the result has errors, the input of the job is checked too. An error
//! that the input does not have is a fault of the job, and its result is rejected.
//!
//! An error of the result counts as one of the input if the input has an error of the same code at
//! a node for which the faulty node was made, or at the same element of the model.

mod edits;

use std::fmt;
use std::thread;

use hashbrown::HashSet;
use sardonyx_model::{GraphId, Id, Model, NodeId, Symbol};
use sardonyx_ops::Registry;

use crate::check::{CheckOptions, Levels, check_header_into, check_into};
use crate::check_types::{add_contradictions, infer_to_check};
use crate::codes;
use crate::finding::{Fault, Finding, Findings, Place, Places, Spot, SpotPart, name_of_element};
use crate::infer::Inference;
use crate::origins::Origins;

pub use edits::Edit;

/// Maximum number of listed errors of each code.
const LISTED: usize = 20;

/// Number of nodes from which rules and types are checked in parallel: starting a thread takes as
/// long as checking about 200 nodes.
const MANY_NODES: usize = 10_000;

/// Job that makes a model from a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum JobKind {
    /// Adding training information.
    AddTraining,
    /// Converting to other versions of operator sets.
    Convert,
    /// Adding gradients, or expanding `Gradient` nodes.
    Differentiate,
    /// Extracting a part.
    Extract,
    /// Inlining calls of functions and operators.
    Inline,
    /// Reducing to a small example.
    Reduce,
    /// Changing the header.
    Set,
    /// Dividing a model among devices.
    Shard,
    /// Simplifying.
    Simplify,
    /// Removing parts that do not affect results.
    Strip,
}

impl JobKind {
    /// Returns the name of the command that does the job.
    pub fn name(self) -> &'static str {
        match self {
            JobKind::AddTraining => "add-training",
            JobKind::Convert => "convert",
            JobKind::Differentiate => "differentiate",
            JobKind::Extract => "extract",
            JobKind::Inline => "inline",
            JobKind::Reduce => "reduce",
            JobKind::Set => "set",
            JobKind::Shard => "shard",
            JobKind::Simplify => "simplify",
            JobKind::Strip => "strip",
        }
    }
}

impl fmt::Display for JobKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Error in the result of a job that its input does not have.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct NewError {
    /// Error, with its place in the result.
    pub finding: Finding,
    /// Node of the input for which the faulty node was made, if the error is about a node.
    pub origin: Option<Place>,
    /// Operator or function that this node of the input calls, with its domain unless that is
    /// `ai.onnx`.
    pub operator: Option<String>,
}

impl fmt::Display for NewError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let NewError { finding, origin, operator } = self;
        write!(f, "{finding} [{}", finding.code.name)?;
        if !finding.code.requirement.is_empty() {
            write!(f, ", rule {}", finding.code.requirement)?;
        }
        if let (Some(origin), Some(operator)) = (origin, operator) {
            write!(f, "; from {origin} of the input, operator {operator}")?;
        }
        f.write_str("]")
    }
}

/// Errors in the result of a job that its input does not have.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct NewErrors {
    /// Job.
    pub job: JobKind,
    /// Errors, up to a number of each code.
    pub listed: Vec<NewError>,
    /// Number of errors that are not listed.
    pub more: u64,
}

impl fmt::Display for NewErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let NewErrors { job, listed, more } = self;
        let total = listed.len() as u64 + more;
        let errors = if total == 1 { "error" } else { "errors" };
        write!(f, "{job} made a model with {total} {errors} that its input does not have")?;
        listed.iter().try_for_each(|error| write!(f, "\n{error}"))?;
        if *more > 0 {
            write!(f, "\nand {more} more")?;
        }
        Ok(())
    }
}

impl std::error::Error for NewErrors {}

/// Result with errors that its input does not have.
#[derive(Debug, Clone)]
pub struct Rejected {
    /// Errors.
    pub errors: NewErrors,
    /// Result, for a report of the bug.
    pub model: Model,
}

/// Result without new errors.
#[derive(Debug, Clone)]
pub struct Accepted {
    /// Result.
    pub model: Model,
    /// Whether it has errors, all of which the input also has.
    pub has_errors: bool,
}

/// Job and its input.
#[derive(Debug, Clone, Copy)]
pub struct JobInput<'a> {
    /// Job.
    pub job: JobKind,
    /// Model that the job gets.
    pub model: &'a Model,
    /// Operators that the job knows.
    pub registry: &'a Registry,
}

impl JobInput<'_> {
    /// Accepts a result without new errors.
    ///
    /// # Errors
    ///
    /// Errors of the result that the input does not have.
    pub fn accept(self, result: Model, origins: &Origins) -> Result<Accepted, Box<Rejected>> {
        match self.judge(&result, origins) {
            Ok(has_errors) => Ok(Accepted { model: result, has_errors }),
            Err(errors) => Err(Box::new(Rejected { errors, model: result })),
        }
    }

    /// Checks a result. `origins` has the nodes of the input for which its nodes were made.
    ///
    /// # Errors
    ///
    /// Errors of the result that the input does not have.
    pub fn check(self, result: &Model, origins: &Origins) -> Result<(), NewErrors> {
        self.judge(result, origins).map(drop)
    }

    /// Returns whether the result has errors, all of which the input also has.
    fn judge(self, result: &Model, origins: &Origins) -> Result<bool, NewErrors> {
        let options = self.options();
        let (rules, inferred) = faults(result, &options);
        let types = faults_of_types(result, &options, &inferred);
        if rules.is_empty() && types.is_empty() {
            return Ok(false);
        }
        let compare = Comparison { input: self.model, result, origins };
        let (input_rules, input_inferred) = faults(self.model, &options);
        let input_types = faults_of_types(self.model, &options, &input_inferred);
        // A fault that inference finds in the input breaks a rule where a job declares the type.
        let new = compare.new_faults(rules, [input_rules, input_types.clone()].concat());
        if !new.is_empty() {
            let found = check_into(result, &options, Findings::keep_only(new, LISTED));
            return Err(compare.list_errors(self.job, found));
        }
        let new = compare.new_faults(types, input_types);
        if new.is_empty() {
            return Ok(true);
        }
        let mut found = Findings::keep_only(new, LISTED);
        add_contradictions(result, &options, &inferred, &mut found);
        Err(compare.list_errors(self.job, found))
    }

    /// Checks the rules that edits can break, and types if edits can change operators.
    ///
    /// # Errors
    ///
    /// Errors of the result that the input does not have.
    pub fn check_edits(self, result: &Model, edits: &[Edit]) -> Result<(), NewErrors> {
        let mut options = self.options();
        if edits.iter().any(|edit| edit.changes_operators()) {
            return self.check(result, &Origins::default());
        }
        let rules: Vec<&'static str> =
            edits.iter().flat_map(|edit| edit.rules()).map(|code| code.name).collect();
        if rules.is_empty() {
            return Ok(());
        }
        options.levels = options.levels.keep_only(rules);
        let is_of_header = edits.iter().all(|edit| edit.is_of_header());
        let check = if is_of_header { check_header_into } else { check_into };
        let of_rules = |model| check(model, &options, Findings::of_errors()).into_errors();
        let found = of_rules(result);
        if found.is_empty() {
            return Ok(());
        }
        let origins = Origins::default();
        let compare = Comparison { input: self.model, result, origins: &origins };
        let new = compare.new_faults(found, of_rules(self.model));
        if new.is_empty() {
            return Ok(());
        }
        let found = check(result, &options, Findings::keep_only(new, LISTED));
        Err(compare.list_errors(self.job, found))
    }

    fn options(self) -> CheckOptions {
        let levels = match self.job {
            // A shape that inference does not find cannot be declared.
            JobKind::Extract | JobKind::Reduce => {
                Levels::errors().suppress(&codes::SHAPELESS_VALUE)
            }
            _ => Levels::errors(),
        };
        CheckOptions {
            registry: self.registry.clone().including_microsoft(),
            levels,
            // Models of ranks have collectives of an engine, in the engine's domain.
            added_operators: self.job == JobKind::Shard,
            ..CheckOptions::default()
        }
    }
}

/// Finds violations of rules, and infers types in parallel.
fn faults(model: &Model, options: &CheckOptions) -> (Vec<Fault>, Inference) {
    let rules = || check_into(model, options, Findings::of_errors()).into_errors();
    if model.node_count() < MANY_NODES {
        return (rules(), infer_to_check(model, options));
    }
    thread::scope(|scope| {
        // Inference stays on this thread, since it visits inner graphs by recursion.
        let other = thread::Builder::new().spawn_scoped(scope, rules);
        let inferred = infer_to_check(model, options);
        let rules = match other.map(thread::ScopedJoinHandle::join) {
            Ok(Ok(found)) => found,
            Ok(Err(panic)) => std::panic::resume_unwind(panic),
            // The system has no thread to spare.
            Err(_) => rules(),
        };
        (rules, inferred)
    })
}

/// Finds contradictions of types and shapes.
fn faults_of_types(model: &Model, options: &CheckOptions, inferred: &Inference) -> Vec<Fault> {
    let mut found = Findings::of_errors();
    add_contradictions(model, options, inferred, &mut found);
    found.into_errors()
}

/// Comparison of the result of a job with its input.
struct Comparison<'a> {
    input: &'a Model,
    result: &'a Model,
    origins: &'a Origins,
}

/// Subject of an error, in a form that a job preserves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Subject {
    /// Node of the input, or a graph in it.
    Node(NodeId),
    /// Element of a graph that is not in a node, by field and name; of the graph as a whole if the
    /// elements have no names.
    Element(Root, &'static str, Option<Symbol>),
    /// Model.
    Model(&'static str),
}

impl Subject {
    /// Returns the graph of an element.
    fn root(self) -> Option<Root> {
        match self {
            Subject::Element(root, ..) => Some(root),
            Subject::Node(_) | Subject::Model(_) => None,
        }
    }
}

/// Graph that is not in a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Root {
    Main,
    /// Body of a function, by domain, name and overload.
    Function(Option<Symbol>, Option<Symbol>, Option<Symbol>),
    Training(usize),
}

impl Comparison<'_> {
    /// Returns the faults of the result that the input does not have.
    fn new_faults(
        &self,
        of_result: Vec<Fault>,
        of_input: Vec<Fault>,
    ) -> std::collections::HashSet<Fault> {
        let known: HashSet<(&str, Subject)> =
            of_input.iter().map(|(code, spot)| (*code, subject(self.input, *spot))).collect();
        // Bodies of removed functions are in the places of their calls.
        let functions: HashSet<Root> = roots_of_functions(self.result).collect();
        let moved: HashSet<&str> = known
            .iter()
            .filter(|(_, subject)| match subject {
                Subject::Element(root @ Root::Function(..), ..) => !functions.contains(root),
                _ => false,
            })
            .map(|(code, _)| *code)
            .collect();
        let roots: HashSet<(&str, Option<Root>)> =
            known.iter().map(|(code, subject)| (*code, subject.root())).collect();
        let ports = ports_of_main(self.input);
        let of_nodes = known.iter().filter(|(_, subject)| matches!(subject, Subject::Node(_)));
        let of_nodes: HashSet<&str> = of_nodes.map(|(code, _)| *code).collect();
        let is_known = |(code, spot): &Fault| match subject(self.result, *spot) {
            Subject::Node(node) => {
                let origins = self.origins_of(node);
                // For a node that a job made for no specific node, only the code is compared.
                origins.is_empty() && of_nodes.contains(code)
                    || origins.iter().any(|node| known.contains(&(*code, Subject::Node(*node))))
            }
            subject => {
                // An added input or output is compared with the others of the graph.
                let is_added = is_port(subject) && !ports.contains(&subject);
                known.contains(&(*code, subject))
                    || moved.contains(code)
                    || is_added && roots.contains(&(*code, subject.root()))
            }
        };
        of_result.into_iter().filter(|fault| !is_known(fault)).collect()
    }

    /// Returns the findings, each with the node of the input that it comes from.
    fn list_errors(&self, job: JobKind, found: Findings) -> NewErrors {
        let report = found.report();
        let more = report.more.iter().map(|(_, more)| more).sum();
        let mut places = Places::default();
        let listed = report.findings.into_iter().map(|finding| {
            let origin = self.origin(finding.place.spot);
            NewError {
                finding,
                origin: origin.map(|node| places.of(self.input, Spot::node(node))),
                operator: origin.map(|node| operator_of(self.input, node)),
            }
        });
        NewErrors { job, listed: listed.collect(), more }
    }

    /// Returns the node of the input from which a part of the result comes.
    fn origin(&self, spot: Spot) -> Option<NodeId> {
        let Subject::Node(node) = subject(self.result, spot) else { return None };
        self.origins_of(node).first().copied()
    }

    /// Returns the nodes of the input from which a node of the result comes, as far as they are
    /// known.
    fn origins_of(&self, node: NodeId) -> Vec<NodeId> {
        if self.origins.are_unknown() {
            return Vec::new();
        }
        let mut origins = self.origins.of(node);
        origins.retain(|node| node.index() < self.input.node_count());
        origins
    }
}

/// Returns the operator of a node, with the domain unless that is `ai.onnx`.
fn operator_of(model: &Model, node: NodeId) -> String {
    let name =
        sardonyx_proto::shown(model.maybe_text(model.node(node).op_type).unwrap_or_default());
    match &*model.domain_of(node) {
        "" => name,
        domain => format!("{}.{name}", sardonyx_proto::shown(domain.as_bytes())),
    }
}

fn roots_of_functions(model: &Model) -> impl Iterator<Item = Root> + '_ {
    model
        .functions
        .iter()
        .map(|function| Root::Function(function.domain, function.name, function.overload))
}

/// Whether a subject is an input or output of the main graph.
fn is_port(subject: Subject) -> bool {
    matches!(subject, Subject::Element(Root::Main, "input" | "output", Some(_)))
}

/// Returns the inputs and outputs of the main graph.
fn ports_of_main(model: &Model) -> HashSet<Subject> {
    let Some(main) = model.main.map(|main| model.graph(main)) else { return HashSet::new() };
    let element = |field, name| Subject::Element(Root::Main, field, name);
    let inputs = main.inputs.iter().map(|info| element("input", info.name));
    let outputs = main.outputs.iter().map(|info| element("output", info.name));
    inputs.chain(outputs).collect()
}

/// Finds the subject of a spot.
fn subject(model: &Model, spot: Spot) -> Subject {
    match spot.part {
        SpotPart::Model | SpotPart::Document => Subject::Model(spot.field),
        SpotPart::Node(node) => Subject::Node(node),
        SpotPart::Function(index) => match roots_of_functions(model).nth(index) {
            Some(root) => Subject::Element(root, spot.field, None),
            None => Subject::Model(spot.field),
        },
        SpotPart::Training(index) => Subject::Element(Root::Training(index), spot.field, None),
        SpotPart::Graph(graph) => {
            if let Some(owner) = model.graph(graph).owner {
                return Subject::Node(owner);
            }
            let index = spot.index.map(|index| index as usize);
            let name = index.and_then(|index| name_of_element(model, graph, spot.field, index));
            Subject::Element(root_of(model, graph), spot.field, name.flatten())
        }
    }
}

/// Returns the outermost graph around an element that is not in a node.
fn root_of(model: &Model, graph: GraphId) -> Root {
    let function = model.functions.iter().position(|function| function.body == graph);
    if let Some(root) = function.and_then(|index| roots_of_functions(model).nth(index)) {
        return root;
    }
    let of_step = |step: &sardonyx_model::TrainingInfo| {
        [step.initialization, step.algorithm].contains(&Some(graph))
    };
    model.training_info.iter().position(of_step).map_or(Root::Main, Root::Training)
}

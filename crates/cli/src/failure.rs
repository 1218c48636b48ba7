//! Failure of a command: message, place and advice, shown on at most one screen or as JSON.

use std::fmt::Display;
use std::io;

use sardonyx::ops::UnsupportedOperator;
use sardonyx::text::{ParseError, Position};
use sardonyx::tool::failure::{NodeError, NodePath, PathPart, StopReason, Stopped};
use sardonyx::tool::npz::NpzError;
use sardonyx::tool::safetensors::SafetensorsError;
use sardonyx::tool::shown_domain;
use sardonyx::value::TensorError;
use sardonyx::{ErrorKind, Type};
use serde_json::{Value, json};

/// Failure of a command, which ends without its answer. The exit code is 2, except after the reader
/// of stdout has closed the pipe.
#[derive(Debug, Default)]
pub(crate) struct Failure {
    code: Code,
    message: String,
    /// Place of the failure, such as a file or a tensor in a file.
    place: Option<String>,
    /// Individual problems, if the message summarizes several.
    details: Vec<Detail>,
    /// Cause that ended a run, if a run was in progress.
    end: Option<Box<End>>,
    /// Advice on how to avoid the failure.
    help: Option<Box<str>>,
    /// Rendered problems of a text file, each with its line, to show before the message.
    diagnostics: Option<Box<str>>,
    /// Whether the reader of stdout has closed the pipe, so that nothing is reported.
    pub(crate) broken_pipe: bool,
    /// Whether another process reports the failure, so that this process prints nothing.
    pub(crate) is_reported_elsewhere: bool,
}

/// Cause that ended a run before its outputs were computed.
#[derive(Debug)]
enum End {
    /// Error of a node.
    Node(NodeError),
    /// Deadline, iteration limit or cancellation.
    Stopped(Stopped),
}

/// Category of a failure, for programs that read the JSON answer.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Code {
    /// Arguments contradict each other, or name something that does not exist.
    #[default]
    Usage,
    /// A text file has syntax errors; the details have their positions.
    Syntax,
    /// Memory could not be allocated.
    Memory,
    /// This program has a bug.
    Internal,
    /// An error of the library.
    Library(ErrorKind),
}

impl Code {
    /// Returns the name that the category has in JSON. Names never change.
    fn name(self) -> &'static str {
        match self {
            Code::Usage => "usage",
            Code::Syntax => "syntax",
            Code::Memory => "memory",
            Code::Internal => "internal",
            Code::Library(kind) => kind.name(),
        }
    }
}

impl Failure {
    /// Creates a failure that another process reports.
    pub(crate) fn reported_elsewhere() -> Failure {
        Failure { is_reported_elsewhere: true, ..Failure::default() }
    }

    /// Formats place and message of the failure in one line, to be sent to other processes.
    pub(crate) fn to_line(&self) -> String {
        match &self.place {
            Some(place) => format!("{place}: {}", self.message),
            None => self.message.clone(),
        }
    }
}

impl From<ErrorKind> for Code {
    fn from(kind: ErrorKind) -> Code {
        match kind {
            // The arguments of a library function come from the command line.
            ErrorKind::Argument => Code::Usage,
            kind => Code::Library(kind),
        }
    }
}

/// One of several problems that a failure lists.
#[derive(Debug)]
enum Detail {
    Operator(UnsupportedOperator),
    /// Problem at a position of a text file.
    Diagnostic {
        message: String,
        position: Position,
        /// The problem as an object of the JSON answer.
        form: Value,
    },
    /// Argument of the command line, with its role in the error.
    Argument {
        role: &'static str,
        text: String,
    },
}

impl Detail {
    /// Returns the line that describes the detail to people. Returns `None` for diagnostics, which
    /// are shown with the lines of the file, and for arguments, which are part of the message.
    fn to_line(&self) -> Option<String> {
        match self {
            Detail::Operator(operator) => Some(operator.to_string()),
            Detail::Diagnostic { .. } | Detail::Argument { .. } => None,
        }
    }

    /// Returns the name of the operator that the detail is about, for lists that are too long for a
    /// line each; `None` for other details.
    fn operator_name(&self) -> Option<String> {
        match self {
            Detail::Operator(operator) => Some(operator.full_name()),
            Detail::Diagnostic { .. } | Detail::Argument { .. } => None,
        }
    }

    fn json(&self) -> Value {
        match self {
            Detail::Operator(operator) => json!({
                "code": "unsupported-operator",
                "message": operator.why,
                "domain": shown_domain(&operator.domain),
                "operator": operator.name,
                "opset": operator.opset,
                "nodes": operator.nodes,
            }),
            Detail::Diagnostic { form, .. } => form.clone(),
            Detail::Argument { role, text } => json!({"code": role, "message": text}),
        }
    }
}

/// Name and version of the schema of a failure in JSON. The version rises when the meaning of a key
/// changes, not when a key is added.
const SCHEMA: &str = "sardonyx.error/2";

/// Maximum number of details of a failure to show in a line each. The names of further details
/// share one line.
const SHOWN_DETAILS: usize = 16;
/// Maximum number of lines to show of a message or an advice.
const SHOWN_LINES: usize = 14;

impl Failure {
    pub(crate) fn new(message: impl Into<String>) -> Failure {
        Failure { message: message.into(), ..Failure::default() }
    }

    /// Sets the category of the failure, which is [`Code::Usage`] by default.
    pub(crate) fn code(mut self, code: impl Into<Code>) -> Failure {
        self.code = code.into();
        self
    }

    /// Returns the node that failed while the model ran; `None` if no node did.
    fn node(&self) -> Option<&NodeError> {
        match self.end.as_deref() {
            Some(End::Node(error)) => Some(error),
            _ => None,
        }
    }

    /// Returns the message of the failure, without place and advice.
    pub(crate) fn message(&self) -> &str {
        &self.message
    }

    /// Adds the place of the failure, such as a file. A place that is already set, such as a tensor
    /// in the file, follows the new place in the text.
    pub(crate) fn at(mut self, place: impl Display) -> Failure {
        let place = place.to_string();
        self.place = Some(match self.place {
            Some(finer) if finer != place => format!("{place}, {finer}"),
            _ => place,
        });
        self
    }

    /// Sets the advice on how to avoid the failure.
    pub(crate) fn help(mut self, help: impl Into<String>) -> Failure {
        self.help = Some(help.into().into());
        self
    }

    /// Sets the advice on how to avoid the failure, unless it has an advice.
    pub(crate) fn help_if_none(mut self, help: &str) -> Failure {
        self.help.get_or_insert_with(|| help.into());
        self
    }

    /// Returns the name that the category of the failure has in JSON.
    pub(crate) fn code_name(&self) -> &'static str {
        self.code.name()
    }

    /// Returns the message and the position of each problem of a text file.
    pub(crate) fn diagnostics(&self) -> impl Iterator<Item = (&str, Option<Position>)> {
        self.details.iter().filter_map(|detail| match detail {
            Detail::Diagnostic { message, position, .. } => {
                Some((message.as_str(), Some(*position)))
            }
            _ => None,
        })
    }

    /// Returns the JSON answer of a command that failed.
    pub(crate) fn answer(&self) -> Value {
        json!({"schema": SCHEMA, "error": self.json()})
    }

    /// Returns the failure as an object of a JSON answer.
    pub(crate) fn json(&self) -> Value {
        json!({
            "code": self.code_name(),
            "message": self.message,
            "place": self.place,
            "node": self.node().map(node_to_json),
            "stopped": match self.end.as_deref() {
                Some(End::Stopped(stopped)) => Some(stopped_to_json(stopped)),
                _ => None,
            },
            "help": self.help,
            "details": self.details.iter().map(Detail::json).collect::<Vec<_>>(),
        })
    }

    /// Formats the failure for people; `paint` colours the labels.
    pub(crate) fn render(&self, paint: &dyn Fn(&str) -> String) -> String {
        let mut text = String::new();
        if let Some(diagnostics) = &self.diagnostics {
            text += &paint_labels(diagnostics, paint);
            text += "\n\n";
        }
        text += &format!("{} {}\n", paint("error:"), truncate_lines(&self.message));
        // Diagnostics have positions, and the message about them names the file.
        let place = self.place.as_ref().filter(|_| self.diagnostics.is_none());
        if let Some(place) = place {
            text += &format!("  {} {}\n", paint("in"), truncate_lines(place));
        }
        let given = self.node().map(NodeError::given).filter(|given| !given.is_empty());
        if let Some(given) = given {
            text += &format!("  {} {}\n", paint("inputs:"), truncate_lines(&given));
        }
        let details: Vec<String> = self.details.iter().filter_map(Detail::to_line).collect();
        let shown = details.len().min(SHOWN_DETAILS);
        for detail in &details[..shown] {
            text += &format!("  {}\n", truncate_lines(detail));
        }
        if shown < details.len() {
            // Lists only the names of the rest: readers search a long list for names.
            let rest: Vec<String> =
                self.details.iter().filter_map(Detail::operator_name).skip(shown).collect();
            text += &format!("  and {} more: {}\n", rest.len(), rest.join(", "));
        }
        if let Some(help) = &self.help {
            text += &format!("{} {}\n", paint("help:"), truncate_lines(help));
        }
        text
    }
}

/// Colours the labels `error:` and `warning:` in rendered diagnostics.
fn paint_labels(diagnostics: &str, paint: &dyn Fn(&str) -> String) -> String {
    let mut lines = Vec::new();
    for line in diagnostics.lines() {
        let mut labels = ["error:", "warning:"].into_iter();
        let labelled = labels.find_map(|label| Some((label, line.strip_prefix(label)?)));
        lines.push(match labelled {
            Some((label, rest)) => paint(label) + rest,
            None => line.to_string(),
        });
    }
    lines.join("\n")
}

/// Converts the problems of a text file called `name` to a failure.
pub(crate) fn syntax_failure(error: &ParseError, name: &str) -> Failure {
    let count = error.diagnostics().len();
    let forms = json!(error);
    let forms = forms.as_array().into_iter().flatten().cloned();
    let details = error.diagnostics().iter().zip(forms).map(|(found, form)| Detail::Diagnostic {
        message: found.message.clone(),
        position: error.position(found),
        form,
    });
    Failure {
        code: Code::Syntax,
        details: details.collect(),
        place: Some(name.to_string()),
        diagnostics: Some(error.clone().in_file(name).to_string().into()),
        ..Failure::new(format!("{name}: {}", crate::human::format_count(count, "problem")))
    }
}

/// Formats the path of a node as JSON: the node and the nodes around it, innermost first.
fn path_to_json(path: &NodePath) -> Value {
    let path = path.0.iter().map(|node| {
        let (part, graph) = match &node.part {
            Some(PathPart::Graph(name)) => (Some("graph"), Some(name)),
            Some(PathPart::Iteration { graph, .. }) => (Some("graph"), Some(graph)),
            Some(PathPart::Body) => (Some("body"), None),
            Some(PathPart::MadeFor) => (Some("made-for"), None),
            _ => (None, None),
        };
        let iteration = match &node.part {
            Some(PathPart::Iteration { iteration, .. }) => Some(iteration),
            _ => None,
        };
        json!({
            "domain": shown_domain(&node.domain),
            "operator": node.operator,
            "node": (!node.name.is_empty()).then_some(&node.name),
            "output": node.output,
            "part": part,
            "graph": graph,
            "iteration": iteration,
        })
    });
    path.collect()
}

/// Formats the reason that stopped a run, and the node that would have run next, as JSON.
fn stopped_to_json(stopped: &Stopped) -> Value {
    let (reason, limit) = match stopped.reason {
        StopReason::Deadline => ("deadline", None),
        StopReason::Iterations(limit) => ("iterations", Some(limit)),
        _ => ("flag", None),
    };
    json!({
        "reason": reason,
        "limit": limit,
        "next": stopped.next.as_ref().map(path_to_json),
        "iteration": stopped.next_iteration,
    })
}

/// Formats a failed node as JSON: its path, the nodes fused with it, and its inputs.
fn node_to_json(error: &NodeError) -> Value {
    let inputs = error.inputs.iter().map(|input| {
        let input = input.as_ref()?;
        Some(json!({"name": input.name, "type": input.ty.as_ref().map(Type::to_string)}))
    });
    json!({
        "path": path_to_json(&error.path),
        "with": error.with,
        "inputs": inputs.collect::<Vec<_>>(),
        "constant": error.is_constant,
    })
}

/// Truncates a text to [`SHOWN_LINES`] lines of at most 1,000 characters, as names in a model may
/// have megabytes.
fn truncate_lines(text: &str) -> String {
    let lines: Vec<String> = text
        .lines()
        .take(SHOWN_LINES)
        .map(|line| match line.char_indices().nth(1000) {
            Some((end, _)) => format!("{}…", &line[..end]),
            None => line.to_string(),
        })
        .collect();
    let more = text.lines().count().saturating_sub(SHOWN_LINES);
    let mut text = lines.join("\n");
    if more > 0 {
        text += &format!("\n  ... and {more} more lines");
    }
    text
}

impl From<sardonyx::Error> for Failure {
    fn from(error: sardonyx::Error) -> Failure {
        if let Some(found) = error.syntax() {
            return syntax_failure(found, error.place().unwrap_or("standard input"));
        }
        let operators = error.unsupported_operators().iter().cloned();
        let node = error.node().cloned().map(End::Node);
        let end = node.or_else(|| error.as_stopped().cloned().map(End::Stopped));
        Failure {
            code: error.kind().into(),
            place: error.place().map(str::to_string),
            details: operators.map(Detail::Operator).collect(),
            end: end.map(Box::new),
            help: error.help().map(Box::from),
            ..Failure::new(error.message())
        }
    }
}

impl From<&clap::Error> for Failure {
    fn from(error: &clap::Error) -> Failure {
        let told = crate::usage::describe_error(error);
        let arguments = told.arguments.into_iter();
        Failure {
            details: arguments.map(|(role, text)| Detail::Argument { role, text }).collect(),
            help: told.help.map(Box::from),
            ..Failure::new(told.message)
        }
    }
}

impl From<TensorError> for Failure {
    fn from(error: TensorError) -> Failure {
        Failure::new(error.to_string()).code(ErrorKind::Format)
    }
}

impl From<NpzError> for Failure {
    fn from(error: NpzError) -> Failure {
        let failure = Failure::new(error.to_string()).code(ErrorKind::Format);
        match error {
            NpzError::Write(error) => Failure::from(error),
            NpzError::TooLarge { .. } => {
                failure.help("if the array is this large, pass it as .npy")
            }
            NpzError::Array { .. } => {
                failure.help("use a .pb file, which can hold every element type")
            }
            _ => failure,
        }
    }
}

impl From<SafetensorsError> for Failure {
    fn from(error: SafetensorsError) -> Failure {
        match error {
            SafetensorsError::Write(error) => Failure::from(error),
            other => Failure::new(other.to_string()).code(ErrorKind::Format),
        }
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Failure {
        Failure {
            broken_pipe: error.kind() == io::ErrorKind::BrokenPipe,
            ..Failure::new(error.to_string()).code(ErrorKind::Io)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_fits_on_a_screen() {
        let failure = Failure { message: "x\n".repeat(100), ..Failure::default() };
        let text = failure.help("short").render(&|label| label.to_string());
        assert!(text.lines().count() <= 20, "{text}");
        let named = Failure::new("bad")
            .at("inner")
            .at("file")
            .help("a\nb")
            .render(&|label| label.to_string());
        assert_eq!(named, "error: bad\n  in file, inner\nhelp: a\nb\n");
    }
}

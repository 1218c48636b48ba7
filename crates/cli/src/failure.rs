//! What a command says when it cannot go on: one screen, with place and advice.

use std::fmt::Display;
use std::io;

use sardonyx::ops::UnsupportedOperator;
use sardonyx::text::{ParseError, Position};
use sardonyx::tool::failure::{NodeError, NodePath, PathPart, StopReason, Stopped};
use sardonyx::tool::npz::NpzError;
use sardonyx::tool::safetensors::SafetensorsError;
use sardonyx::value::TensorError;
use sardonyx::{ErrorKind, Type};
use serde_json::{Value, json};

/// Why a command ends without its answer. Always exit code 2, except when the reader of stdout has
/// gone.
#[derive(Debug, Default)]
pub(crate) struct Failure {
    code: Code,
    message: String,
    place: Option<String>,
    details: Vec<Detail>,
    /// What ended a run.
    end: Option<Box<End>>,
    help: Option<Box<str>>,
    /// What is wrong with a text, each with its line; comes before the rest.
    diagnostics: Option<Box<str>>,
    /// The reader of stdout has gone: nothing to say, and nothing wrong.
    pub(crate) broken_pipe: bool,
    /// Another process says what is wrong.
    pub(crate) is_told_elsewhere: bool,
}

/// What ended a run before it gave its outputs.
#[derive(Debug)]
enum End {
    /// A node that failed.
    Node(NodeError),
    /// It was to end early.
    Stopped(Stopped),
}

/// What kind of failure it is, for programs.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Code {
    /// The arguments contradict each other, or ask for something that does not exist.
    #[default]
    Usage,
    /// A text is not in the notation; the details say where.
    Syntax,
    /// There is not enough memory.
    Memory,
    /// A bug in this program.
    Internal,
    /// A failure of the library.
    Library(ErrorKind),
}

impl Code {
    /// The name in JSON. Names stay.
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
    /// A failure that another process reports.
    pub(crate) fn told_elsewhere() -> Failure {
        Failure { is_told_elsewhere: true, ..Failure::default() }
    }

    /// The failure in a line, for those that other processes tell.
    pub(crate) fn in_a_line(&self) -> String {
        match &self.place {
            Some(place) => format!("{place}: {}", self.message),
            None => self.message.clone(),
        }
    }
}

impl From<ErrorKind> for Code {
    fn from(kind: ErrorKind) -> Code {
        match kind {
            // What the library calls arguments, the command gets from its own.
            ErrorKind::Argument => Code::Usage,
            kind => Code::Library(kind),
        }
    }
}

/// One of several things that are wrong.
#[derive(Debug)]
enum Detail {
    Operator(UnsupportedOperator),
    /// A place in a text.
    Diagnostic {
        message: String,
        position: Position,
        /// Object in the JSON answer.
        form: Value,
    },
    /// An argument of the command line, by its role in the error.
    Argument {
        role: &'static str,
        text: String,
    },
}

impl Detail {
    /// The line for people. What a text has is shown with the lines of the text instead, and what
    /// is said about arguments is part of the message.
    fn line(&self) -> Option<String> {
        match self {
            Detail::Operator(operator) => Some(operator.to_string()),
            Detail::Diagnostic { .. } | Detail::Argument { .. } => None,
        }
    }

    /// The name of the thing that [`Detail::line`] describes.
    fn name(&self) -> Option<String> {
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
                "domain": crate::info::domain_name(&operator.domain),
                "operator": operator.name,
                "opset": operator.opset,
                "nodes": operator.nodes,
            }),
            Detail::Diagnostic { form, .. } => form.clone(),
            Detail::Argument { role, text } => json!({"code": role, "message": text}),
        }
    }
}

/// The name and version of the form of a failure in JSON. New keys may be added; a change of
/// meaning gets a new number.
const SCHEMA: &str = "sardonyx.error/2";

/// Lines of details that are shown; what is more goes into one line.
const SHOWN_DETAILS: usize = 16;
/// Lines of message or advice that are shown.
const SHOWN_LINES: usize = 14;

impl Failure {
    pub(crate) fn new(message: impl Into<String>) -> Failure {
        Failure { message: message.into(), ..Failure::default() }
    }

    /// With another code than that of wrong arguments.
    pub(crate) fn code(mut self, code: impl Into<Code>) -> Failure {
        self.code = code.into();
        self
    }

    /// The node that failed while the model ran.
    fn node(&self) -> Option<&NodeError> {
        match self.end.as_deref() {
            Some(End::Node(error)) => Some(error),
            _ => None,
        }
    }

    /// What went wrong, without place and advice.
    pub(crate) fn message(&self) -> &str {
        &self.message
    }

    /// With its place, in front of a finer one if there is one already.
    pub(crate) fn at(mut self, place: impl Display) -> Failure {
        let place = place.to_string();
        self.place = Some(match self.place {
            Some(finer) if finer != place => format!("{place}, {finer}"),
            _ => place,
        });
        self
    }

    pub(crate) fn help(mut self, help: impl Into<String>) -> Failure {
        self.help = Some(help.into().into());
        self
    }

    /// Advice where there is none yet.
    pub(crate) fn help_if_none(mut self, help: &str) -> Failure {
        self.help.get_or_insert_with(|| help.into());
        self
    }

    /// The name of the code.
    pub(crate) fn code_name(&self) -> &'static str {
        self.code.name()
    }

    /// What is wrong with a text, one by one, with its places.
    pub(crate) fn diagnostics(&self) -> impl Iterator<Item = (&str, Option<Position>)> {
        self.details.iter().filter_map(|detail| match detail {
            Detail::Diagnostic { message, position, .. } => {
                Some((message.as_str(), Some(*position)))
            }
            _ => None,
        })
    }

    /// The answer in JSON of a command that failed.
    pub(crate) fn answer(&self) -> Value {
        json!({"schema": SCHEMA, "error": self.json()})
    }

    /// The failure as a part of an answer.
    pub(crate) fn json(&self) -> Value {
        json!({
            "code": self.code_name(),
            "message": self.message,
            "place": self.place,
            "node": self.node().map(node_json),
            "stopped": match self.end.as_deref() {
                Some(End::Stopped(stopped)) => Some(stopped_json(stopped)),
                _ => None,
            },
            "help": self.help,
            "details": self.details.iter().map(Detail::json).collect::<Vec<_>>(),
        })
    }

    /// The text, `paint` colouring the label of each part.
    pub(crate) fn render(&self, paint: &dyn Fn(&str) -> String) -> String {
        let mut text = String::new();
        if let Some(diagnostics) = &self.diagnostics {
            text += &painted(diagnostics, paint);
            text += "\n\n";
        }
        text += &format!("{} {}\n", paint("error:"), first_lines(&self.message));
        // Diagnostics have their places, and the message about them names the file.
        let place = self.place.as_ref().filter(|_| self.diagnostics.is_none());
        if let Some(place) = place {
            text += &format!("  {} {}\n", paint("in"), first_lines(place));
        }
        let given = self.node().map(NodeError::given).filter(|given| !given.is_empty());
        if let Some(given) = given {
            text += &format!("  {} {}\n", paint("inputs:"), first_lines(&given));
        }
        let details: Vec<String> = self.details.iter().filter_map(Detail::line).collect();
        let shown = details.len().min(SHOWN_DETAILS);
        for detail in &details[..shown] {
            text += &format!("  {}\n", first_lines(detail));
        }
        if shown < details.len() {
            // Only the names of the rest, which is what a long list is read for.
            let rest: Vec<String> =
                self.details.iter().filter_map(Detail::name).skip(shown).collect();
            text += &format!("  and {} more: {}\n", rest.len(), rest.join(", "));
        }
        if let Some(help) = &self.help {
            text += &format!("{} {}\n", paint("help:"), first_lines(help));
        }
        text
    }
}

/// Diagnostics with the labels coloured.
fn painted(diagnostics: &str, paint: &dyn Fn(&str) -> String) -> String {
    let label = |line: &str| {
        for label in ["error:", "warning:"] {
            if let Some(rest) = line.strip_prefix(label) {
                return paint(label) + rest;
            }
        }
        line.to_string()
    };
    let lines: Vec<String> = diagnostics.lines().map(label).collect();
    lines.join("\n")
}

/// The diagnostics of a text in a file, for people.
pub(crate) fn syntax(error: &ParseError, name: &str) -> Failure {
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
        ..Failure::new(format!("{name}: {}", crate::human::count(count, "problem")))
    }
}

/// A node and those around it, the innermost first.
fn path_json(path: &NodePath) -> Value {
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
            "domain": crate::info::domain_name(&node.domain),
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

/// What ended a run, and the node that would have been next.
fn stopped_json(stopped: &Stopped) -> Value {
    let (reason, limit) = match stopped.reason {
        StopReason::Deadline => ("deadline", None),
        StopReason::Iterations(limit) => ("iterations", Some(limit)),
        _ => ("flag", None),
    };
    json!({
        "reason": reason,
        "limit": limit,
        "next": stopped.next.as_ref().map(path_json),
        "iteration": stopped.next_iteration,
    })
}

/// The node that failed: itself and the nodes around it, and what it was given.
fn node_json(error: &NodeError) -> Value {
    let inputs = error.inputs.iter().map(|input| {
        let input = input.as_ref()?;
        Some(json!({"name": input.name, "type": input.ty.as_ref().map(Type::to_string)}))
    });
    json!({
        "path": path_json(&error.path),
        "with": error.with,
        "inputs": inputs.collect::<Vec<_>>(),
        "constant": error.is_constant,
    })
}

/// At most some lines, of bounded length: names in a model may be megabytes.
fn first_lines(text: &str) -> String {
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
            return syntax(found, error.place().unwrap_or("standard input"));
        }
        let operators = error.unsupported().iter().cloned();
        let node = error.node().cloned().map(End::Node);
        let end = node.or_else(|| error.stopped().cloned().map(End::Stopped));
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
        let told = crate::usage::told(error);
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
                failure.help("if it is this large, pass the array as .npy")
            }
            NpzError::Array { .. } => failure.help("use a .pb file, which can hold every type"),
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

//! What a command says when it cannot go on: one screen, with place and advice.

use std::fmt::Display;
use std::io;

use sardonyx::npz::NpzError;
use sardonyx::safetensors::SafetensorsError;
use sardonyx::text::ParseError;
use sardonyx::{TensorError, UnsupportedOperator};

/// Why a command ends without its answer. Always exit code 2, except when nobody reads the answer any more.
#[derive(Debug, Default)]
pub(crate) struct Failure {
    message: String,
    place: Option<String>,
    details: Vec<String>,
    help: Option<String>,
    /// What is wrong with a text, each with its line; comes before the rest.
    diagnostics: Option<Box<str>>,
    /// The reader of stdout has gone: nothing to say, and nothing wrong.
    pub(crate) broken_pipe: bool,
}

/// Lines of details that are shown; what is more goes into one line.
const SHOWN_DETAILS: usize = 16;
/// Lines of message or advice that are shown.
const SHOWN_LINES: usize = 14;

impl Failure {
    pub(crate) fn new(message: impl Into<String>) -> Failure {
        Failure {
            message: message.into(),
            ..Failure::default()
        }
    }

    /// What went wrong, without place and advice.
    pub(crate) fn message(&self) -> &str {
        &self.message
    }

    /// With its place, in front of a finer one if there is one already.
    pub(crate) fn at(mut self, place: impl Display) -> Failure {
        self.place = Some(match self.place {
            Some(finer) => format!("{place}, {finer}"),
            None => place.to_string(),
        });
        self
    }

    pub(crate) fn help(mut self, help: impl Into<String>) -> Failure {
        self.help = Some(help.into());
        self
    }

    /// The text, `paint` colouring the label of each part.
    pub(crate) fn render(&self, paint: &dyn Fn(&str) -> String) -> String {
        let mut text = String::new();
        if let Some(diagnostics) = &self.diagnostics {
            text += &painted(diagnostics, paint);
            text += "\n\n";
        }
        text += &format!("{} {}\n", paint("error:"), first_lines(&self.message));
        if let Some(place) = &self.place {
            text += &format!("  {} {}\n", paint("in"), first_lines(place));
        }
        let shown = self.details.len().min(SHOWN_DETAILS);
        for detail in &self.details[..shown] {
            text += &format!("  {}\n", first_lines(detail));
        }
        if shown < self.details.len() {
            // Only the names of the rest, which is what a long list is read for.
            let rest: Vec<&str> = self.details[shown..]
                .iter()
                .map(|detail| detail.split(',').next().unwrap_or(detail))
                .collect();
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
    Failure {
        diagnostics: Some(error.clone().in_file(name).to_string().into()),
        ..Failure::new(format!("{name}: {}", crate::human::count(count, "problem")))
    }
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
        text += &format!("\n  … and {more} more lines");
    }
    text
}

impl From<sardonyx::Error> for Failure {
    fn from(error: sardonyx::Error) -> Failure {
        if let Some(found) = error.syntax() {
            return syntax(found, error.place().unwrap_or("standard input"));
        }
        Failure {
            diagnostics: None,
            message: error.message().to_string(),
            place: error.place().map(str::to_string),
            details: error
                .unsupported()
                .iter()
                .map(UnsupportedOperator::to_string)
                .collect(),
            help: error.help().map(str::to_string),
            broken_pipe: false,
        }
    }
}

impl From<TensorError> for Failure {
    fn from(error: TensorError) -> Failure {
        Failure::new(error.to_string())
    }
}

impl From<NpzError> for Failure {
    fn from(error: NpzError) -> Failure {
        let message = error.to_string();
        match error {
            NpzError::Write(error) => Failure::from(error),
            NpzError::TooLarge { .. } => Failure::new(message)
                .help("if it is meant to be that large, give the array as .npy"),
            NpzError::Array { .. } => Failure::new(message)
                .help("NumPy does not have all types; .pb files hold every one"),
            _ => Failure::new(message),
        }
    }
}

impl From<SafetensorsError> for Failure {
    fn from(error: SafetensorsError) -> Failure {
        match error {
            SafetensorsError::Write(error) => Failure::from(error),
            other => Failure::new(other.to_string()),
        }
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Failure {
        Failure {
            broken_pipe: error.kind() == io::ErrorKind::BrokenPipe,
            ..Failure::new(error.to_string())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_fits_on_a_screen() {
        let failure = Failure {
            message: "x\n".repeat(100),
            details: (0..200).map(|i| format!("Op{i}, opset 21: why")).collect(),
            ..Failure::default()
        };
        let text = failure.help("short").render(&|label| label.to_string());
        assert!(text.lines().count() <= 40, "{text}");
        assert!(text.contains("Op199"), "{text}");
        let named = Failure::new("bad")
            .at("inner")
            .at("file")
            .help("a\nb")
            .render(&|label| label.to_string());
        assert_eq!(named, "error: bad\n  in file, inner\nhelp: a\nb\n");
    }
}

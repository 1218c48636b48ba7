//! `sardonyx info DIR`: what a directory of a language model or encoder is, and what it lacks.

use std::path::Path;

use sardonyx_generate::{DirectoryKind, DirectorySummary};
use serde_json::json;

use crate::failure::Failure;
use crate::human::{cut_line, format_bytes, group_digits};
use crate::terminal::Terminal;

/// Schema of the JSON answer: its name and version. A key that changes its meaning raises the
/// version, a new key does not.
const SCHEMA: &str = "sardonyx.info-directory/1";

/// Maximum number of files or labels that are listed.
const SHOWN: usize = 20;

/// Prints a summary of the directory.
pub(crate) fn print_directory(
    path: &Path,
    as_json: bool,
    terminal: &Terminal,
) -> Result<(), Failure> {
    let summary = DirectorySummary::read(path)?;
    if as_json {
        let answer = json!({
            "schema": SCHEMA,
            "directory": path.display().to_string(),
            "kind": summary.kind.name(),
            "command": find_command(summary.kind),
            "model_type": summary.model_type,
            "model": summary.model,
            "models": summary.models,
            "context_length": summary.context_length,
            "vocab_size": summary.vocab_size,
            "chat_template": summary.has_chat_template,
            "state_bytes_per_token": summary.state_bytes_per_token,
            "labels": summary.labels,
            "problems": summary.problems,
        });
        return terminal.json(&answer, true);
    }
    terminal.print(&as_text(&summary))
}

/// Returns the command that runs a directory of this kind.
fn find_command(kind: DirectoryKind) -> Option<&'static str> {
    match kind {
        DirectoryKind::Generator => Some("generate"),
        DirectoryKind::Embedder => Some("embed"),
        DirectoryKind::Classifier | DirectoryKind::TokenClassifier => Some("classify"),
        _ => None,
    }
}

/// Rows of a table without headings: a name and a text.
#[derive(Default)]
struct Rows(Vec<[String; 2]>);

impl Rows {
    /// Adds a row, unless the text is empty.
    fn push(&mut self, name: &str, text: String) {
        if !text.is_empty() {
            self.0.push([name.to_string(), text]);
        }
    }

    /// Adds a row with a number of tokens, if it is known.
    fn push_tokens(&mut self, name: &str, count: Option<usize>) {
        if let Some(count) = count {
            self.push(name, format!("{} tokens", group_digits(count as u64)));
        }
    }
}

fn as_text(summary: &DirectorySummary) -> String {
    let mut rows = Rows::default();
    rows.push("kind", summary.kind.name().to_string());
    if let Some(command) = find_command(summary.kind) {
        rows.push("command", format!("sardonyx {command}"));
    }
    rows.push("type", cut_line(&summary.model_type));
    rows.push("model", summary.model.clone().unwrap_or_default());
    let others = summary.models.iter().filter(|file| Some(*file) != summary.model.as_ref());
    for file in others.take(SHOWN) {
        rows.push("other model", cut_line(file));
    }
    rows.push_tokens("context", summary.context_length);
    rows.push_tokens("tokenizer", summary.vocab_size);
    rows.push("chat", if summary.has_chat_template { "template" } else { "" }.to_string());
    if let Some(bytes) = summary.state_bytes_per_token {
        rows.push("state", format!("{} a token", format_bytes(bytes as u64)));
    }
    for label in summary.labels.iter().take(SHOWN) {
        rows.push("label", cut_line(label));
    }
    for problem in &summary.problems {
        rows.push("problem", problem.replace('\n', "; "));
    }
    let width = rows.0.iter().map(|[name, _]| name.len()).max().unwrap_or(0);
    rows.0.iter().map(|[name, text]| format!("{name:width$}  {text}\n")).collect()
}

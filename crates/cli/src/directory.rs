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

fn as_text(summary: &DirectorySummary) -> String {
    let mut rows: Vec<[String; 2]> = Vec::new();
    let mut push = |name: &str, text: String| {
        if !text.is_empty() {
            rows.push([name.to_string(), text]);
        }
    };
    push("kind", summary.kind.name().to_string());
    push(
        "command",
        find_command(summary.kind).map_or(String::new(), |name| format!("sardonyx {name}")),
    );
    push("type", cut_line(&summary.model_type));
    push("model", summary.model.clone().unwrap_or_default());
    for file in
        summary.models.iter().filter(|file| Some(*file) != summary.model.as_ref()).take(SHOWN)
    {
        push("other model", cut_line(file));
    }
    let count = |count: usize| group_digits(count as u64);
    push(
        "context",
        summary.context_length.map_or(String::new(), |length| format!("{} tokens", count(length))),
    );
    push(
        "tokenizer",
        summary.vocab_size.map_or(String::new(), |size| format!("{} tokens", count(size))),
    );
    push("chat", if summary.has_chat_template { "template" } else { "" }.to_string());
    push(
        "state",
        summary
            .state_bytes_per_token
            .map_or(String::new(), |bytes| format!("{} a token", format_bytes(bytes as u64))),
    );
    for label in summary.labels.iter().take(SHOWN) {
        push("label", cut_line(label));
    }
    for problem in &summary.problems {
        push("problem", problem.replace('\n', "; "));
    }
    let width = rows.iter().map(|[name, _]| name.len()).max().unwrap_or(0);
    let lines = rows.iter().map(|[name, text]| format!("{name:width$}  {text}\n"));
    lines.collect()
}

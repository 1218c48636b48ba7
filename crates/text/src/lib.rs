//! ONNX text: parser, printer and formatter.
//!
//! No stability: names and signatures change with any release. Use the crate `sardonyx`.

mod cursor;
mod diagnostic;
mod format;
#[cfg(feature = "serde")]
mod json_form;
mod layout;
mod left_out;
mod numbers;
mod parse;
mod print;
mod tree;
pub mod words;

pub use diagnostic::{Diagnostic, DiagnosticSeverity, ParseError, Position, marked_line, render};
pub use format::format;
pub use left_out::{LeftOut, LeftOutKind};
pub use parse::{
    ParseOptions, Parsed, TextPart, looks_like_text, parse_function, parse_model, parse_part,
    syntax_tree,
};
pub use print::{
    Excerpt, NodeMark, Payloads, Placed, PrintOptions, PrintPart, TextForm, Weights,
    attribute_excerpt, model_to_text, node_excerpt, part_to_text, print_model, tensor_excerpt,
    value_excerpt,
};
pub use tree::{SyntaxKind, SyntaxPart, SyntaxTree};

/// Formats a count with its noun: `1 value`, `2 values`.
pub(crate) fn plural(count: usize, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}

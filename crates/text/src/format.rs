//! Formats texts in the layout of the printer.

use sardonyx_tensor::Buffer;

use crate::diagnostic::{DiagnosticSeverity, ParseError};
use crate::layout;
use crate::parse::diagnose;

/// Formats a text in the layout in which models are printed, with its comments. The meaning does
/// not change, and formatting the result again changes nothing.
///
/// # Errors
///
/// All errors of a text that cannot be parsed.
pub fn format(text: Buffer) -> Result<Vec<u8>, ParseError> {
    let diagnostics = diagnose(&text);
    if diagnostics.iter().any(|found| found.severity == DiagnosticSeverity::Error) {
        return Err(ParseError::new(text, diagnostics));
    }
    Ok(layout::lay_out_text(text.as_slice()))
}

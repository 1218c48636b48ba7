//! One look for texts that people write.

use sardonyx_tensor::Buffer;

use crate::diagnostic::{DiagnosticSeverity, ParseError};
use crate::layout;
use crate::parse::diagnose;

/// A text in the layout in which models are printed, with its comments. Its meaning stays the same,
/// and formatting it again changes nothing.
///
/// # Errors
///
/// Everything that is wrong with a text that cannot be read.
pub fn format(text: Buffer) -> Result<Vec<u8>, ParseError> {
    let diagnostics = diagnose(&text);
    if diagnostics.iter().any(|found| found.severity == DiagnosticSeverity::Error) {
        return Err(ParseError::new(text, diagnostics));
    }
    Ok(layout::text(text.as_slice()))
}

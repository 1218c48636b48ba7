//! Parses parts of a model in the notation.

use sardonyx_tensor::Buffer;
use sardonyx_text::{ParseError, ParseOptions};

pub use sardonyx_text::TextPart;

/// Parses a part of a model (a node, a type, …) in ONNX text and returns its protobuf message.
///
/// # Errors
///
/// All syntax errors in the text.
pub fn parse_part(part: TextPart, text: impl Into<Buffer>) -> Result<Vec<u8>, ParseError> {
    sardonyx_text::parse_part(part, text.into(), ParseOptions::default())
}

/// Parses a part of a model in ONNX text like [`parse_part`], but accepts tensors whose number of
/// values does not match their shape: the parser of the `onnx` package does not compare them.
///
/// # Errors
///
/// All other syntax errors in the text.
pub fn parse_part_like_onnx(
    part: TextPart,
    text: impl Into<Buffer>,
) -> Result<Vec<u8>, ParseError> {
    let options = ParseOptions { any_count: true, ..ParseOptions::default() };
    sardonyx_text::parse_part(part, text.into(), options)
}

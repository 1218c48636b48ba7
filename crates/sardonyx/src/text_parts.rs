//! Parts of a model in the notation, read alone.

use sardonyx_tensor::Buffer;
use sardonyx_text::{ParseError, ParseOptions};

pub use sardonyx_text::Part as TextPart;

/// Reads a part of a model alone (a node, a type, …) and gives its protobuf message.
///
/// # Errors
///
/// Everything that is wrong with the text.
pub fn parse_part(part: TextPart, text: impl Into<Buffer>) -> Result<Vec<u8>, ParseError> {
    sardonyx_text::parse_part(part, text.into(), ParseOptions::default())
}

/// Reads a part of a model like [`parse_part`], but accepts tensors whose number of values is not
/// that of their shape: the parser of the `onnx` package does not count them.
///
/// # Errors
///
/// Everything that is wrong with the text.
pub fn parse_part_like_onnx(
    part: TextPart,
    text: impl Into<Buffer>,
) -> Result<Vec<u8>, ParseError> {
    let options = ParseOptions { any_count: true, ..ParseOptions::default() };
    sardonyx_text::parse_part(part, text.into(), options)
}

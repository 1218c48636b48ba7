//! Checks files that hold operator sets or stored values instead of models.

use std::path::Path;

use sardonyx_passes as passes;
use sardonyx_passes::check::{Document, OPERATOR_SET_MAGIC};
use sardonyx_passes::{CheckReport, Finding};
use sardonyx_proto::{MapProto, OperatorSetProto, OptionalProto, SequenceProto};

use super::{CheckOptions, render_with_excerpt};
use crate::error::{Error, ErrorKind};
use crate::load::{read_message, read_start};

/// Recognizes an operator set by its magic number. Returns `None` for every other file, for pipes,
/// which can be read only once, and for files that cannot be read.
pub fn recognise(path: impl AsRef<Path>) -> Option<Document> {
    // The first field is the magic: 1 byte of tag, 1 byte of length, then the text.
    let start = read_start(path.as_ref(), OPERATOR_SET_MAGIC.len() as u64 + 2)?;
    (start.get(2..) == Some(OPERATOR_SET_MAGIC)).then_some(Document::OperatorSet)
}

/// Checks a file with an operator set or a stored value. The file may be in any form of models
/// except ONNX text.
///
/// # Errors
///
/// [`ErrorKind::Io`] if the file cannot be read, [`ErrorKind::Format`] if it is not a document of
/// this kind.
pub fn check_document(
    path: impl AsRef<Path>,
    document: Document,
    options: &CheckOptions,
) -> Result<CheckReport, Error> {
    let path = path.as_ref();
    let bytes = document_bytes(path, document)?;
    passes::check::check_document(&bytes, document, &options.passes)
        .map_err(|error| document_error(document, path, &error))
}

pub(super) fn document_error(
    document: Document,
    path: &Path,
    why: &dyn std::fmt::Display,
) -> Error {
    let message = format!("this is not an {}: {why}", document_name(document));
    Error::new(ErrorKind::Format, message).with_place(path.display().to_string())
}

fn document_name(document: Document) -> &'static str {
    match document {
        Document::OperatorSet => "operator set",
        Document::Sequence => "ONNX sequence",
        Document::Map => "ONNX map",
        Document::Optional => "ONNX optional",
    }
}

/// Reads a document in any form except ONNX text, and returns it in binary form.
pub(super) fn document_bytes(path: &Path, document: Document) -> Result<Vec<u8>, Error> {
    let what = document_name(document);
    match document {
        Document::OperatorSet => read_message::<OperatorSetProto>(path, what),
        Document::Sequence => read_message::<SequenceProto>(path, what),
        Document::Map => read_message::<MapProto>(path, what),
        Document::Optional => read_message::<OptionalProto>(path, what),
    }
}

/// Renders a finding of [`check_document`] on several lines, like [`render`](super::render) but
/// without an excerpt.
pub fn render_document(finding: &Finding, file: &str) -> String {
    render_with_excerpt(finding, file, None)
}

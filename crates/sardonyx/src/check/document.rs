//! Checks files that hold operator sets or stored values instead of models.

use std::path::Path;

use sardonyx_passes as passes;
use sardonyx_passes::check::{Document, OPERATOR_SET_MAGIC};
use sardonyx_passes::{CheckReport, Finding};
use sardonyx_proto::{MapProto, OperatorSetProto, OptionalProto, SequenceProto};

use super::{CheckOptions, render_with_excerpt};
use crate::error::{Error, ErrorKind};
use crate::load::{read_message, read_start};

/// Recognizes a file with an `OperatorSetProto` by its magic number. Returns `None` for all other
/// files, for pipes, which can be read only once, and for files that cannot be read.
pub fn recognize_document(path: impl AsRef<Path>) -> Option<Document> {
    // The first field is the magic: 1 byte of tag, 1 byte of length, then the text.
    let start = read_start(path.as_ref(), OPERATOR_SET_MAGIC.len() as u64 + 2)?;
    (start.get(2..) == Some(OPERATOR_SET_MAGIC)).then_some(Document::OperatorSet)
}

/// Checks a file that holds an operator set, a sequence, a map or an optional. The file may have
/// any format of models except ONNX text.
///
/// # Errors
///
/// [`ErrorKind::Io`] if the file cannot be read, [`ErrorKind::Format`] if its content is not of the
/// type that `document` names.
pub fn check_document(
    path: impl AsRef<Path>,
    document: Document,
    options: &CheckOptions,
) -> Result<CheckReport, Error> {
    let path = path.as_ref();
    let bytes = read_document(path, document)?;
    passes::check::check_document(&bytes, document, &options.passes)
        .map_err(|error| document_error(document, path, &error))
}

/// Makes the error for a file whose content is not of the type that `document` names.
pub(super) fn document_error(
    document: Document,
    path: &Path,
    why: &dyn std::fmt::Display,
) -> Error {
    let message = format!("the file is not an {}: {why}", name_document(document));
    Error::new(ErrorKind::Format, message).with_place(path.display().to_string())
}

/// Returns the name of a document type for messages, such as `ONNX map`.
fn name_document(document: Document) -> &'static str {
    match document {
        Document::OperatorSet => "operator set",
        Document::Sequence => "ONNX sequence",
        Document::Map => "ONNX map",
        Document::Optional => "ONNX optional",
    }
}

/// Reads a file with a message of the type that `document` names, in any format of models except
/// ONNX text, and converts it to binary protobuf.
pub(super) fn read_document(path: &Path, document: Document) -> Result<Vec<u8>, Error> {
    let what = name_document(document);
    match document {
        Document::OperatorSet => read_message::<OperatorSetProto>(path, what),
        Document::Sequence => read_message::<SequenceProto>(path, what),
        Document::Map => read_message::<MapProto>(path, what),
        Document::Optional => read_message::<OptionalProto>(path, what),
    }
}

/// Renders a finding of [`check_document`] on several lines, like
/// [`Model::render_finding`](crate::Model::render_finding), but without an excerpt. `file` is a
/// name to print.
pub fn render_document(finding: &Finding, file: &str) -> String {
    render_with_excerpt(finding, file, None)
}

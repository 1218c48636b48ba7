//! The serialisations of a model: the binary one that everybody reads, the notation, and the two
//! textual forms of protobuf.

use std::fmt;
use std::io::{self, Write};
use std::path::Path;

use sardonyx_formats::{LeftOut, Limits, json, text_format};
use sardonyx_model::{self as graph, ExternalData, ReadLimits};
use sardonyx_proto::{Encoded, MessageType, ModelProto};
use sardonyx_tensor::Buffer;

use crate::error::{Error, ErrorKind};

/// A serialisation of the messages of the format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum Form {
    /// Protobuf, what `.onnx` and `.pb` files hold.
    #[default]
    Binary,
    /// The notation, ONNX text: `.onnxtxt`, `.onnxtext`. See [`text`](crate::text).
    Notation,
    /// Protobuf JSON: `.json`, `.onnxjson`.
    Json,
    /// Protobuf text format: `.textproto`, `.txtpb`, `.prototxt`, `.pbtxt`.
    TextFormat,
}

const SUFFIXES: &[(&str, Form)] = &[
    ("onnx", Form::Binary),
    ("pb", Form::Binary),
    ("onnxtxt", Form::Notation),
    ("onnxtext", Form::Notation),
    ("json", Form::Json),
    ("onnxjson", Form::Json),
    ("textproto", Form::TextFormat),
    ("txtpb", Form::TextFormat),
    ("prototxt", Form::TextFormat),
    ("pbtxt", Form::TextFormat),
];

impl Form {
    /// The form that a suffix stands for, if it stands for one.
    ///
    /// ```
    /// use std::path::Path;
    /// use sardonyx::io::Form;
    ///
    /// assert_eq!(Form::of_path(Path::new("model.pbtxt")), Some(Form::TextFormat));
    /// assert_eq!(Form::of_path(Path::new("model.bin")), None);
    /// ```
    pub fn of_path(path: &Path) -> Option<Form> {
        let suffix = path.extension()?.to_str()?;
        let row = SUFFIXES.iter().find(|(known, _)| suffix.eq_ignore_ascii_case(known));
        row.map(|(_, form)| *form)
    }

    /// The form of bytes that come without a name. Text is recognised where no binary model could
    /// begin like it.
    pub(crate) fn of_bytes(bytes: &[u8]) -> Form {
        let start = &bytes[..bytes.len().min(4096)];
        let trimmed = start.trim_ascii_start();
        // The byte of `{` opens a group with number 15, which no field has.
        if trimmed.starts_with(b"{") {
            return Form::Json;
        }
        if sardonyx_text::looks_like_text(trimmed) {
            return Form::Notation;
        }
        let lines = trimmed.split(|byte| *byte == b'\n');
        let first = lines
            .into_iter()
            .map(<[u8]>::trim_ascii)
            .find(|line| !line.is_empty() && !line.starts_with(b"#"));
        let is_field = first.is_some_and(|line| {
            let name =
                line.iter().take_while(|byte| byte.is_ascii_lowercase() || **byte == b'_').count();
            name >= 4 && matches!(line[name..].trim_ascii_start().first(), Some(b':' | b'{' | b'<'))
        });
        if is_field { Form::TextFormat } else { Form::Binary }
    }

    /// From this form to the binary one. The notation may refer to values in files, which
    /// `external` finds.
    pub(crate) fn read(
        self,
        text: &Buffer,
        limits: ReadLimits,
        external: &dyn ExternalData,
    ) -> Result<Vec<u8>, Error> {
        match self {
            Form::Notation => {
                Ok(crate::text::parse(text.clone(), limits, external)?.model.to_bytes())
            }
            form => form.read_message::<ModelProto>(text.as_slice(), limits, "ONNX model"),
        }
    }

    /// From this form to the binary one, for any message of the format; `what` it is, for error
    /// messages. The notation has no other messages than models.
    pub(crate) fn read_message<M: MessageType>(
        self,
        text: &[u8],
        limits: ReadLimits,
        what: &str,
    ) -> Result<Vec<u8>, Error> {
        let limits = Limits { depth: limits.depth };
        let read = match self {
            Form::Binary => Ok(text.to_vec()),
            Form::Notation => {
                let message = format!("ONNX text is for models only, not for an {what}");
                return Err(Error::new(ErrorKind::Format, message));
            }
            Form::Json => json::read::<M>(text, limits),
            Form::TextFormat => text_format::read::<M>(text, limits),
        };
        read.map_err(|error| {
            let place = match error.place() {
                "" => error.position().to_string(),
                place => format!("{}, field {place}", error.position()),
            };
            let message = format!("this is not an {what} in {self}: {}", error.kind());
            Error::new(ErrorKind::Format, message).with_place(place).with_source(error)
        })
    }

    /// Writes a model, whose binary form this is, in this form. What cannot be expressed is left
    /// out and listed.
    pub(crate) fn write(
        self,
        graph: &graph::Model,
        encoded: Encoded<'_>,
        sink: &mut dyn Write,
    ) -> io::Result<Vec<String>> {
        let left_out = match self {
            Form::Binary => {
                encoded.write_to(sink)?;
                return Ok(Vec::new());
            }
            Form::Notation => {
                let options = sardonyx_text::PrintOptions::default();
                let left_out = sardonyx_text::print_model(graph, options, sink)?;
                return Ok(left_out.to_string().lines().map(String::from).collect());
            }
            Form::Json => {
                let options = json::WriteOptions::default();
                json::write::<ModelProto>(&encoded.into_vec(), options, sink)
            }
            Form::TextFormat => text_format::write::<ModelProto>(
                &encoded.into_vec(),
                text_format::WriteOptions::default(),
                sink,
            ),
        };
        left_out.map(|left_out| listed(&left_out)).map_err(|error| match error.kind() {
            sardonyx_formats::ErrorKind::Sink(cause) => io::Error::new(cause.kind(), error),
            _ => io::Error::new(
                io::ErrorKind::InvalidData,
                format!("{self} cannot represent it: {error}"),
            ),
        })
    }
}

impl fmt::Display for Form {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Form::Binary => "binary form",
            Form::Notation => "ONNX text",
            Form::Json => "protobuf JSON",
            Form::TextFormat => "protobuf text format",
        })
    }
}

/// What was left out, in lines for people.
fn listed(left_out: &LeftOut) -> Vec<String> {
    let mut lines: Vec<String> = left_out
        .first
        .iter()
        .map(|field| match field.place.as_str() {
            "" => format!("unknown field {} of the model", field.number),
            place => format!("unknown field {} of {place}", field.number),
        })
        .collect();
    let more = left_out.unknown_fields.saturating_sub(lines.len() as u64);
    if more > 0 {
        lines.push(format!("{more} more unknown fields"));
    }
    if left_out.nan_payloads > 0 {
        lines.push(format!("the bits of {} NaN values", left_out.nan_payloads));
    }
    lines
}

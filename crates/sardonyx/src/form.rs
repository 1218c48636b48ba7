//! Serialization formats of models: binary protobuf, ONNX text, protobuf JSON and protobuf text
//! format.

use std::fmt;
use std::io::{self, Write};
use std::path::Path;

#[cfg(feature = "json")]
use sardonyx_formats::json;
#[cfg(feature = "textproto")]
use sardonyx_formats::text_format;
#[cfg(any(feature = "json", feature = "textproto"))]
use sardonyx_formats::{LeftOut, Limits};
use sardonyx_model::{self as graph, ExternalData, ReadLimits};
use sardonyx_proto::{Encoded, MessageType, ModelProto};
use sardonyx_tensor::Buffer;

use crate::error::{Error, ErrorKind};

/// Serialization format of a model file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum ModelFormat {
    /// Binary protobuf, for the suffixes `.onnx` and `.pb`.
    #[default]
    Binary,
    /// ONNX text, for the suffixes `.onnxtxt` and `.onnxtext`; see [`text`](crate::text).
    Notation,
    /// Protobuf JSON, for the suffixes `.json` and `.onnxjson`.
    Json,
    /// Protobuf text format, for the suffixes `.textproto`, `.txtpb`, `.prototxt` and `.pbtxt`.
    TextFormat,
}

/// Suffixes of model files in lower case, each with its format.
const SUFFIXES: &[(&str, ModelFormat)] = &[
    ("onnx", ModelFormat::Binary),
    ("pb", ModelFormat::Binary),
    ("onnxtxt", ModelFormat::Notation),
    ("onnxtext", ModelFormat::Notation),
    ("json", ModelFormat::Json),
    ("onnxjson", ModelFormat::Json),
    ("textproto", ModelFormat::TextFormat),
    ("txtpb", ModelFormat::TextFormat),
    ("prototxt", ModelFormat::TextFormat),
    ("pbtxt", ModelFormat::TextFormat),
];

impl ModelFormat {
    /// Returns the model format that a path's suffix stands for; `None` for unknown suffixes.
    ///
    /// ```
    /// use std::path::Path;
    /// use sardonyx::io::ModelFormat;
    ///
    /// assert_eq!(ModelFormat::from_path(Path::new("model.pbtxt")), Some(ModelFormat::TextFormat));
    /// assert_eq!(ModelFormat::from_path(Path::new("model.bin")), None);
    /// ```
    pub fn from_path(path: &Path) -> Option<ModelFormat> {
        let suffix = path.extension()?.to_str()?;
        let row = SUFFIXES.iter().find(|(known, _)| suffix.eq_ignore_ascii_case(known));
        row.map(|(_, form)| *form)
    }

    /// Recognizes the format of a model file by its content. A text format is recognized only if no
    /// binary model can begin with the same bytes.
    pub(crate) fn from_bytes(bytes: &[u8]) -> ModelFormat {
        let start = &bytes[..bytes.len().min(4096)];
        let trimmed = start.trim_ascii_start();
        // The byte of `{` opens a group with number 15, which no field has.
        if trimmed.starts_with(b"{") {
            return ModelFormat::Json;
        }
        if sardonyx_text::looks_like_text(trimmed) {
            return ModelFormat::Notation;
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
        if is_field { ModelFormat::TextFormat } else { ModelFormat::Binary }
    }

    /// Converts a model from this format to binary protobuf. `external` loads the tensors that an
    /// ONNX text takes from data files.
    pub(crate) fn read(
        self,
        text: &Buffer,
        limits: ReadLimits,
        external: &dyn ExternalData,
    ) -> Result<Vec<u8>, Error> {
        match self {
            ModelFormat::Notation => {
                Ok(crate::text::parse(text.clone(), limits, external)?.model.to_bytes())
            }
            form => form.read_message::<ModelProto>(text.as_slice(), limits, "ONNX model"),
        }
    }

    /// Converts a protobuf message from this format to binary protobuf. `what` names the message
    /// type in errors. Fails for [`ModelFormat::Notation`]: ONNX text has only models.
    #[cfg_attr(
        not(any(feature = "json", feature = "textproto")),
        allow(unused_variables, clippy::extra_unused_type_parameters)
    )]
    pub(crate) fn read_message<M: MessageType>(
        self,
        text: &[u8],
        limits: ReadLimits,
        what: &str,
    ) -> Result<Vec<u8>, Error> {
        #[cfg(any(feature = "json", feature = "textproto"))]
        let limits = Limits { depth: limits.depth };
        match self {
            ModelFormat::Binary => Ok(text.to_vec()),
            ModelFormat::Notation => {
                let message = format!("ONNX text is for models only, not for an {what}");
                Err(Error::new(ErrorKind::Format, message))
            }
            #[cfg(feature = "json")]
            ModelFormat::Json => {
                json::read::<M>(text, limits).map_err(|e| self.read_error(e, what))
            }
            #[cfg(feature = "textproto")]
            ModelFormat::TextFormat => {
                text_format::read::<M>(text, limits).map_err(|e| self.read_error(e, what))
            }
            #[cfg(not(all(feature = "json", feature = "textproto")))]
            other => Err(other.without_feature()),
        }
    }

    /// Converts an error of reading a message. `what` names the message type.
    #[cfg(any(feature = "json", feature = "textproto"))]
    fn read_error(self, error: sardonyx_formats::Error, what: &str) -> Error {
        let place = match error.place() {
            "" => error.position().to_string(),
            place => format!("{}, field {place}", error.position()),
        };
        let message = format!("the content is not an {what} in {self}: {}", error.kind());
        Error::new(ErrorKind::Format, message).with_place(place).with_source(error)
    }

    /// Makes the error about a format whose feature is not compiled in.
    #[cfg(not(all(feature = "json", feature = "textproto")))]
    fn without_feature(self) -> Error {
        let feature = if self == ModelFormat::Json { "json" } else { "textproto" };
        Error::without_feature(feature, &self.to_string())
    }

    /// Writes a model in this format. `encoded` is the model as binary protobuf. Returns
    /// descriptions of the parts of the model that this format cannot express; the written file
    /// lacks them.
    pub(crate) fn write(
        self,
        graph: &graph::Model,
        encoded: Encoded<'_>,
        sink: &mut dyn Write,
    ) -> io::Result<Vec<String>> {
        match self {
            ModelFormat::Binary => {
                encoded.write_to(sink)?;
                Ok(Vec::new())
            }
            ModelFormat::Notation => {
                let options = sardonyx_text::PrintOptions::default();
                let left_out = sardonyx_text::print_model(graph, options, sink)?;
                Ok(left_out.to_string().lines().map(String::from).collect())
            }
            #[cfg(feature = "json")]
            ModelFormat::Json => {
                let options = json::WriteOptions::default();
                let left_out = json::write::<ModelProto>(&encoded.into_vec(), options, sink);
                self.describe_written(left_out)
            }
            #[cfg(feature = "textproto")]
            ModelFormat::TextFormat => {
                let options = text_format::WriteOptions::default();
                let left_out = text_format::write::<ModelProto>(&encoded.into_vec(), options, sink);
                self.describe_written(left_out)
            }
            #[cfg(not(all(feature = "json", feature = "textproto")))]
            other => Err(io::Error::new(io::ErrorKind::Unsupported, other.without_feature())),
        }
    }

    /// Describes the parts that a written file lacks, and converts errors of writing it.
    #[cfg(any(feature = "json", feature = "textproto"))]
    fn describe_written(
        self,
        left_out: Result<LeftOut, sardonyx_formats::Error>,
    ) -> io::Result<Vec<String>> {
        left_out.map(|left_out| describe_left_out(&left_out)).map_err(|error| match error.kind() {
            sardonyx_formats::ErrorKind::Sink(cause) => io::Error::new(cause.kind(), error),
            _ => io::Error::new(
                io::ErrorKind::InvalidData,
                format!("{self} cannot represent the model: {error}"),
            ),
        })
    }
}

impl fmt::Display for ModelFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ModelFormat::Binary => "binary form",
            ModelFormat::Notation => "ONNX text",
            ModelFormat::Json => "protobuf JSON",
            ModelFormat::TextFormat => "protobuf text format",
        })
    }
}

/// Describes the fields and values of a model that a text format cannot express, one per line.
#[cfg(any(feature = "json", feature = "textproto"))]
fn describe_left_out(left_out: &LeftOut) -> Vec<String> {
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

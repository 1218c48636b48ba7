//! The serialisations of a model: the binary one that everybody reads, and the two textual forms of protobuf.

use std::io::Write;
use std::path::Path;

use sardonyx_model::ReadLimits;

use crate::error::{Error, ErrorKind};

/// A serialisation of the messages of the format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum Form {
    /// Protobuf, what `.onnx` and `.pb` files hold.
    #[default]
    Binary,
    /// Protobuf JSON: `.json`, `.onnxjson`.
    Json,
    /// Protobuf text format: `.textproto`, `.txtpb`, `.prototxt`, `.pbtxt`.
    TextFormat,
}

const SUFFIXES: &[(&str, Form)] = &[
    ("onnx", Form::Binary),
    ("pb", Form::Binary),
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
    /// use sardonyx::Form;
    ///
    /// assert_eq!(Form::of_path(Path::new("model.pbtxt")), Some(Form::TextFormat));
    /// assert_eq!(Form::of_path(Path::new("model.bin")), None);
    /// ```
    pub fn of_path(path: &Path) -> Option<Form> {
        let suffix = path.extension()?.to_str()?;
        let row = SUFFIXES
            .iter()
            .find(|(known, _)| suffix.eq_ignore_ascii_case(known));
        row.map(|(_, form)| *form)
    }

    /// The form of bytes that come without a name. Text is recognised where no binary model could begin like it.
    pub(crate) fn of_bytes(bytes: &[u8]) -> Form {
        let start = &bytes[..bytes.len().min(4096)];
        let trimmed = start.trim_ascii_start();
        // The byte of `{` opens a group with number 15, which no field has.
        if trimmed.starts_with(b"{") {
            return Form::Json;
        }
        let lines = trimmed.split(|byte| *byte == b'\n');
        let first = lines
            .into_iter()
            .map(<[u8]>::trim_ascii)
            .find(|line| !line.is_empty() && !line.starts_with(b"#"));
        let is_field = first.is_some_and(|line| {
            let name = line
                .iter()
                .take_while(|byte| byte.is_ascii_lowercase() || **byte == b'_')
                .count();
            name >= 4
                && matches!(
                    line[name..].trim_ascii_start().first(),
                    Some(b':' | b'{' | b'<')
                )
        });
        match is_field {
            true => Form::TextFormat,
            false => Form::Binary,
        }
    }

    /// From this form to the binary one.
    pub(crate) fn read(self, _text: &[u8], _limits: ReadLimits) -> Result<Vec<u8>, Error> {
        Err(Error::new(ErrorKind::Format, "not yet"))
    }

    /// From the binary form to this one. What cannot be expressed is left out and listed.
    pub(crate) fn write(self, _bytes: &[u8], _sink: &mut dyn Write) -> Result<Vec<String>, Error> {
        Err(Error::new(ErrorKind::Format, "not yet"))
    }
}

//! Writes tensors to files and stdout as NumPy arrays, safetensors, protobuf, text, CSV or raw
//! bytes, and reads `.npy` files.

use std::io::{self, BufWriter, Cursor, Seek, Write};
use std::path::Path;

use sardonyx::io::write_value;
use sardonyx::tool::npz::Packing;
use sardonyx::tool::{npy, npz, safetensors};
use sardonyx::value::Buffer;
use sardonyx::{DataType, Tensor};

use crate::failure::Failure;
use crate::files;
use crate::saving::{self, Target};
use crate::show::{self, Piece};
use crate::terminal::Terminal;

/// File format of tensors that a command writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Format {
    /// NumPy `.npy`: a single array.
    Npy,
    /// NumPy `.npz`: an archive of named arrays.
    Npz,
    /// A single serialized `TensorProto`.
    Proto,
    Safetensors,
    /// Elements separated by spaces, one line for each row.
    Text,
    /// Elements separated by commas, one line for each row (RFC 4180).
    Csv,
    /// Bytes of the elements, without a header.
    Raw,
}

/// File extensions of the formats in which tensors are written, for messages.
pub(crate) const SUFFIXES: &str = ".npy, .npz, .pb, .safetensors, .txt or .csv";

impl Format {
    /// Returns the format that the file extension of `path` selects; `None` if it selects none.
    pub(crate) fn from_path(path: &Path) -> Option<Format> {
        let suffix = path.extension()?.to_str()?.to_ascii_lowercase();
        Some(match suffix.as_str() {
            "npy" => Format::Npy,
            "npz" => Format::Npz,
            "pb" => Format::Proto,
            "safetensors" => Format::Safetensors,
            "txt" => Format::Text,
            "csv" => Format::Csv,
            _ => return None,
        })
    }

    /// Whether a file of this format holds exactly one tensor.
    pub(crate) fn holds_single_tensor(self) -> bool {
        !matches!(self, Format::Npz | Format::Safetensors)
    }

    fn is_text(self) -> bool {
        matches!(self, Format::Text | Format::Csv)
    }
}

/// Named tensors to write to a file, and metadata texts, which only safetensors files can hold.
#[derive(Debug, Default)]
pub(crate) struct Content {
    pub(crate) tensors: Vec<(String, Tensor)>,
    pub(crate) metadata: Vec<(String, String)>,
}

impl Content {
    fn iter_by_name(&self) -> impl Iterator<Item = (&str, &Tensor)> {
        let pairs = self.tensors.iter();
        pairs.map(|(name, tensor)| (name.as_str(), tensor))
    }
}

/// Writes each tensor of `content` under its name. Fails if a file of `format` holds exactly one
/// tensor and `content` does not.
pub(crate) fn write(
    target: &Target,
    format: Format,
    content: &Content,
    terminal: &Terminal,
) -> Result<(), Failure> {
    let tensors = &content.tensors;
    if format.holds_single_tensor() && tensors.len() != 1 {
        let message = format!("the file format holds one tensor, not {}", tensors.len());
        return Err(Failure::new(message).help("write several tensors to .npz or .safetensors"));
    }
    let total = tensors.iter().map(|(_, tensor)| tensor.bytes().len() as u64);
    let bar = terminal.progress_bytes("writing", total.sum());
    let written = match target {
        Target::File(path) => files::write(path, |file| match format {
            Format::Npz => write_archive(content, bar.wrap_write(file)),
            _ => write_plain(format, content, &mut BufWriter::new(bar.wrap_write(file))),
        }),
        Target::Stdout => write_to_stdout(format, content),
    };
    bar.finish_and_clear();
    written
}

/// Writes `content` as an uncompressed `.npz` archive.
fn write_archive(content: &Content, sink: impl Write + Seek) -> Result<(), Failure> {
    npz::write(sink, content.iter_by_name(), Packing::Stored)?;
    Ok(())
}

/// Writes `content` to stdout. Fails for a binary format if stdout is a terminal.
fn write_to_stdout(format: Format, content: &Content) -> Result<(), Failure> {
    if !format.is_text() {
        saving::check_stdout(false, None)?;
    }
    let mut stdout = BufWriter::new(io::stdout().lock());
    match format {
        Format::Npz => {
            // The archive writer seeks back to fill in sizes, which stdout cannot do.
            let mut bytes = Cursor::new(Vec::new());
            write_archive(content, &mut bytes)?;
            stdout.write_all(bytes.get_ref())?;
        }
        _ => write_plain(format, content, &mut stdout)?,
    }
    Ok(stdout.flush()?)
}

/// Writes `content` in any format but `.npz`, an archive that needs a seekable sink.
fn write_plain(format: Format, content: &Content, sink: &mut dyn Write) -> Result<(), Failure> {
    if format == Format::Safetensors {
        let metadata = content.metadata.iter();
        let metadata = metadata.map(|(key, text)| (key.as_str(), text.as_str()));
        safetensors::write(sink, content.iter_by_name(), metadata)?;
        return Ok(sink.flush()?);
    }
    for (name, tensor) in &content.tensors {
        match format {
            Format::Npy => write_npy(tensor, sink).map_err(|failure| failure.at(name))?,
            Format::Proto => sink.write_all(&write_value(&tensor.clone().into(), name)?)?,
            Format::Raw => {
                sink.write_all(as_raw_bytes(tensor).map_err(|failure| failure.at(name))?)?
            }
            _ => write_lines(format, tensor, sink)?,
        }
    }
    Ok(sink.flush()?)
}

fn write_npy(tensor: &Tensor, sink: &mut dyn Write) -> Result<(), Failure> {
    let bytes = npy::write(tensor).map_err(|error| {
        Failure::from(error).help("use a .pb file, which can hold every element type")
    })?;
    Ok(sink.write_all(&bytes)?)
}

/// Returns the bytes of the elements of a tensor. Fails for a tensor of strings.
fn as_raw_bytes(tensor: &Tensor) -> Result<&[u8], Failure> {
    match tensor.strings() {
        Some(_) => Err(Failure::new("strings cannot be written as raw bytes")
            .help("write strings to .txt or .npy")),
        None => Ok(tensor.bytes()),
    }
}

/// Writes one line of text for each row of `tensor` along its last axis.
fn write_lines(format: Format, tensor: &Tensor, sink: &mut dyn Write) -> Result<(), Failure> {
    let is_text = tensor.data_type() == DataType::String;
    let separator = match format {
        Format::Csv => ",",
        _ => " ",
    };
    show::for_each_row(tensor, |_, cells, Piece { is_first, is_last }| {
        let cells: Vec<String> = match (is_text, format) {
            (true, Format::Csv) => cells.iter().map(|cell| format_csv_cell(cell)).collect(),
            (true, _) => cells.iter().map(|cell| format!("{cell:?}")).collect(),
            (false, _) => cells,
        };
        if !is_first {
            sink.write_all(separator.as_bytes())?;
        }
        sink.write_all(cells.join(separator).as_bytes())?;
        if is_last {
            sink.write_all(b"\n")?;
        }
        Ok(())
    })
}

/// Formats a CSV cell: quotes `text` if it contains a comma, a quote or a line break (RFC 4180).
fn format_csv_cell(text: &str) -> String {
    if text.contains(['"', ',', '\n', '\r']) {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text.to_string()
    }
}

/// Reads the array of a `.npy` file. If NumPy lacks the element type of the array, such as
/// bfloat16, its bytes are read as elements of type `wanted`.
pub(crate) fn read_npy(file: &Buffer, wanted: Option<DataType>) -> Result<Tensor, Failure> {
    match (npy::read(file), wanted) {
        (Ok(tensor), _) => Ok(tensor),
        (Err(error), Some(wanted)) => Ok(npy::read_as(file, wanted).map_err(|_| error)?),
        (Err(error), None) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn format_lines(format: Format, tensor: &Tensor) -> String {
        let mut bytes = Vec::new();
        write_lines(format, tensor, &mut bytes).unwrap();
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn elements_are_written_in_lines() {
        let numbers = Tensor::from_vec([2, 1, 2], vec![1.0f32, -0.5, 1e-7, f32::NAN]).unwrap();
        assert_eq!(format_lines(Format::Csv, &numbers), "1.0,-0.5\n1e-07,nan\n");
        assert_eq!(format_lines(Format::Text, &Tensor::scalar(7u8)), "7\n");
        let empty = Tensor::zeros(DataType::Float, [0, 3]).unwrap();
        assert_eq!(format_lines(Format::Csv, &empty), "");
        let texts: sardonyx::value::StringArray = ["a", "b,c", "\"d\""].into_iter().collect();
        let texts = Tensor::from_strings([3], texts).unwrap();
        assert_eq!(format_lines(Format::Csv, &texts), "a,\"b,c\",\"\"\"d\"\"\"\n");
        assert_eq!(format_lines(Format::Text, &texts), "\"a\" \"b,c\" \"\\\"d\\\"\"\n");
        let long = Tensor::from_vec([200_000], vec![1u8; 200_000]).unwrap();
        assert_eq!(format_lines(Format::Csv, &long).len(), 400_000);
    }
}

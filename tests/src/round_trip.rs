//! Round trips of every file of the onnx wheel: bytes to model to bytes, bytes to message to bytes,
//! and model to text to model. Each must keep its bytes.

use sardonyx_proto::{
    GraphField, GraphProto, Limits, MapProto, MessageType, ModelField, ModelProto, OptionalProto,
    Reader, SequenceProto, SparseTensorProto, TensorField, TensorProto, TypeField, ValueInfoField,
    ValueInfoProto, rewrite,
};
use std::fs;
use std::path::{Path, PathBuf};

/// Number of files that stayed unchanged, and the failures of the others.
#[derive(Debug, Default)]
pub struct RoundTrips {
    pub models: usize,
    pub values: usize,
    pub failures: Vec<String>,
}

/// Reads and writes every file of the list: an `.onnx` file as a model, a `.pb` file as a value.
pub fn check_round_trips(files: &[PathBuf]) -> RoundTrips {
    let mut trips = RoundTrips::default();
    for file in files {
        let is_model = file.extension().is_some_and(|extension| extension == "onnx");
        match if is_model { check_model(file) } else { check_value(file) } {
            Ok(()) if is_model => trips.models += 1,
            Ok(()) => trips.values += 1,
            Err(why) => trips.failures.push(format!("{}: {why}", file.display())),
        }
    }
    trips
}

fn check_model(file: &Path) -> Result<(), String> {
    let bytes = read(file)?;
    let model = sardonyx::Model::from_bytes(bytes.clone()).map_err(|error| error.to_string())?;
    compare_bytes(&bytes, &model.to_bytes())?;
    // Also through the notation.
    let text = model.to_text();
    let again = sardonyx::Model::from_text(&text).map_err(|error| error.to_string())?;
    compare_bytes(&bytes, &again.to_bytes()).map_err(|why| format!("as text: {why}"))?;
    let formatted = sardonyx::Model::format_text(text.clone().into_bytes());
    let formatted = formatted.map_err(|error| error.to_string())?;
    compare_bytes(text.as_bytes(), &formatted).map_err(|why| format!("formatted: {why}"))
}

fn check_value(file: &Path) -> Result<(), String> {
    let bytes = read(file)?;
    let again = match find_kind(file)? {
        ValueKind::Tensor => rewrite_message::<TensorProto>(&bytes),
        ValueKind::Sparse => rewrite_message::<SparseTensorProto>(&bytes),
        ValueKind::Sequence => rewrite_message::<SequenceProto>(&bytes),
        ValueKind::Map => rewrite_message::<MapProto>(&bytes),
        ValueKind::Optional => rewrite_message::<OptionalProto>(&bytes),
    };
    compare_bytes(&bytes, &again?)
}

fn rewrite_message<M: MessageType>(bytes: &[u8]) -> Result<Vec<u8>, String> {
    rewrite::<M>(bytes, Limits::default()).map_err(|error| error.to_string())
}

fn compare_bytes(before: &[u8], after: &[u8]) -> Result<(), String> {
    if before == after {
        return Ok(());
    }
    let same = before.iter().zip(after).take_while(|(a, b)| a == b).count();
    Err(format!(
        "{} bytes became {}; the first difference is at byte {same}",
        before.len(),
        after.len()
    ))
}

fn read(file: &Path) -> Result<Vec<u8>, String> {
    fs::read(file).map_err(|error| error.to_string())
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum ValueKind {
    Tensor,
    Sparse,
    Sequence,
    Map,
    Optional,
}

/// Finds the message type of a file of a value by the type of the input or output of the model that
/// it belongs to, since the file does not hold it. `<case>/test_data_set_0/input_1.pb` belongs to
/// `<case>/model.onnx`, `light_x_output_0.pb` to `light_x.onnx`.
fn find_kind(file: &Path) -> Result<ValueKind, String> {
    let stem = file.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
    let (before, index) = stem.rsplit_once('_').ok_or("no index in the name of the file")?;
    let index: usize = index.parse().map_err(|_| "no index in the name of the file")?;
    let (is_input, model) = match before.strip_suffix("_output") {
        Some(model) => (false, file.with_file_name(format!("{model}.onnx"))),
        None => {
            let case = file.parent().and_then(Path::parent).ok_or("no case around the file")?;
            (before == "input", case.join("model.onnx"))
        }
    };
    kind_in(&read(&model)?, is_input, index).map_err(|error| error.to_string())
}

/// Returns the kind of a model's input or output with an index. Initializers do not count as
/// inputs.
fn kind_in(model: &[u8], is_input: bool, index: usize) -> Result<ValueKind, sardonyx_proto::Error> {
    let (mut initializers, mut infos) = (Vec::new(), Vec::new());
    for field in Reader::<ModelProto>::new(model) {
        let ModelField::Graph(graph) = field? else {
            continue;
        };
        for field in graph as Reader<'_, GraphProto> {
            match field? {
                GraphField::Input(info) if is_input => infos.push(name_and_kind(info)?),
                GraphField::Output(info) if !is_input => infos.push(name_and_kind(info)?),
                GraphField::Initializer(tensor) => {
                    for field in tensor {
                        if let TensorField::Name(name) = field? {
                            initializers.push(name.bytes);
                        }
                    }
                }
                _ => {}
            }
        }
    }
    infos.retain(|(name, _)| !is_input || !initializers.contains(name));
    Ok(infos.get(index).map_or(ValueKind::Tensor, |(_, kind)| *kind))
}

fn name_and_kind(
    info: Reader<'_, ValueInfoProto>,
) -> Result<(&[u8], ValueKind), sardonyx_proto::Error> {
    let (mut name, mut kind) = (&[][..], ValueKind::Tensor);
    for field in info {
        match field? {
            ValueInfoField::Name(text) => name = text.bytes,
            ValueInfoField::Type(fields) => {
                for field in fields {
                    kind = match field? {
                        TypeField::SparseTensorType(_) => ValueKind::Sparse,
                        TypeField::SequenceType(_) => ValueKind::Sequence,
                        TypeField::MapType(_) => ValueKind::Map,
                        TypeField::OptionalType(_) => ValueKind::Optional,
                        _ => kind,
                    };
                }
            }
            _ => {}
        }
    }
    Ok((name, kind))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Writes a field that holds bytes: text or another message.
    fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
        [&[number << 3 | 2, bytes.len() as u8], bytes].concat()
    }

    #[test]
    fn the_kind_of_a_file_is_the_type_of_its_port() -> Result<(), sardonyx_proto::Error> {
        let info =
            |name: &[u8], type_field| [field(1, name), field(2, &field(type_field, b""))].concat();
        let graph = [
            field(11, &info(b"weights", 1)),
            field(11, &info(b"items", 4)),
            field(12, &info(b"table", 5)),
            field(12, &info(b"maybe", 9)),
            // TensorProto.name
            field(5, &field(8, b"weights")),
        ];
        let model = field(7, &graph.concat());
        for (is_input, index, kind) in [
            (true, 0, ValueKind::Sequence),
            (false, 0, ValueKind::Map),
            (false, 1, ValueKind::Optional),
            (false, 2, ValueKind::Tensor),
        ] {
            assert_eq!(kind_in(&model, is_input, index)?, kind, "{is_input} {index}");
        }
        Ok(())
    }
}

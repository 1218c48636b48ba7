//! Assigns tensors to data files and offsets.

use std::collections::HashSet;

use sardonyx_model as graph;
use sardonyx_model::{Entry, TensorId, TensorProto};
use sardonyx_proto::DataLocation;
use sardonyx_tensor::Buffer;

use super::{Layout, SaveOptions, Weights, external_error};
use crate::error::Error;
use crate::external::DataFiles;

/// Alignment in bytes of tensors that are smaller than the chosen alignment: the page size of most
/// systems.
const SMALL_ALIGNMENT: u64 = 4096;

/// Tensors and size of a data file that a save writes.
#[derive(Debug, Default)]
pub(super) struct PlannedFile {
    /// Suffix that makes the file's name unique among the data files of the model; empty for a
    /// single file.
    pub(super) label: String,
    /// Tensors in the file, by ascending offset.
    pub(super) parts: Vec<PlannedTensor>,
    /// Size of the file in bytes.
    pub(super) size: u64,
}

/// Position of a tensor in a data file.
#[derive(Debug, Clone, Copy)]
pub(super) struct PlannedTensor {
    pub(super) id: TensorId,
    /// Offset in bytes of the first byte in the file.
    pub(super) offset: u64,
    /// Number of bytes.
    pub(super) len: u64,
}

/// Plans the data files: lists the tensors to be moved out of the model file, or copied from old
/// data files, with their offsets.
pub(super) fn plan(
    model: &graph::Model,
    data: &DataFiles,
    options: &SaveOptions,
    stays_in_directory: bool,
) -> Result<Vec<PlannedFile>, Error> {
    let mut files: Vec<PlannedFile> = Vec::new();
    let mut labels = HashSet::new();
    for id in model.tensors() {
        let Some(len) = count_moved_bytes(model, data, id, options, stays_in_directory)? else {
            continue;
        };
        let tensor = model.stored_tensor(id);
        let new_file = match options.layout {
            _ if files.is_empty() => true,
            Layout::OneFile => false,
            Layout::PerTensor => true,
            Layout::Shards(limit) => {
                let last = files.last().map_or(0, |file| file.size);
                align(last, len, options).checked_add(len).is_none_or(|end| end > limit)
            }
        };
        if new_file {
            let label = match options.layout {
                Layout::PerTensor => make_label(&model.display(tensor.name), &mut labels),
                _ => String::new(),
            };
            files.push(PlannedFile { label, ..PlannedFile::default() });
        }
        if let Some(file) = files.last_mut() {
            let offset = align(file.size, len, options);
            file.parts.push(PlannedTensor { id, offset, len });
            file.size = offset + len;
        }
    }
    if matches!(options.layout, Layout::Shards(_)) && files.len() > 1 {
        for (index, file) in files.iter_mut().enumerate() {
            file.label = (index + 1).to_string();
        }
    }
    Ok(files)
}

/// Returns the size in bytes of a tensor in a new data file; `None` if the tensor keeps its
/// storage.
fn count_moved_bytes(
    model: &graph::Model,
    data: &DataFiles,
    id: TensorId,
    options: &SaveOptions,
    stays_in_directory: bool,
) -> Result<Option<u64>, Error> {
    let tensor = model.stored_tensor(id);
    if tensor.is_external() {
        let stays = match options.weights {
            Weights::Keep => stays_in_directory,
            Weights::Inside => true,
            Weights::Outside => false,
        };
        return if stays { Ok(None) } else { count_external_bytes(model, data, tensor).map(Some) };
    }
    if options.weights != Weights::Outside || !(id.is_initializer() || options.attributes) {
        return Ok(None);
    }
    // The reference implementation does not read external parts of sparse tensors.
    if id.sparse_part().is_some() {
        return Ok(None);
    }
    let len = match tensor.raw_data {
        Some(raw) => Some(raw.len),
        None if options.typed && !tensor.typed.is_empty() => model.implied_bytes(tensor),
        None => None,
    };
    Ok(len.filter(|len| *len > 0 && *len >= options.threshold))
}

/// Returns the size in bytes of an external tensor: its `length`, else the size that type and shape
/// imply, else the bytes of its data file from the offset on.
fn count_external_bytes(
    model: &graph::Model,
    data: &DataFiles,
    tensor: &TensorProto,
) -> Result<u64, Error> {
    let reference = model.external_reference(tensor).map_err(external_error)?;
    let len = reference.length.or_else(|| model.implied_bytes(tensor));
    match len {
        Some(len) => Ok(len),
        None => data
            .find_file_size(&reference.location)
            .map(|size| size.saturating_sub(reference.offset))
            .map_err(external_error),
    }
}

/// Rounds the end of a data file up to the offset of a tensor of `len` bytes.
fn align(end: u64, len: u64, options: &SaveOptions) -> u64 {
    let alignment = if len < options.alignment {
        options.alignment.min(SMALL_ALIGNMENT)
    } else {
        options.alignment
    };
    end.checked_next_multiple_of(alignment).unwrap_or(u64::MAX)
}

/// Makes the label of a data file from the name of a tensor: replaces special characters, and
/// appends a number if another file has the label.
fn make_label(name: &str, taken: &mut HashSet<String>) -> String {
    let safe: String = name
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() || matches!(c, '.' | '-') { c } else { '_' })
        .take(100)
        .collect();
    let safe = match safe.trim_matches(['.', '_']) {
        "" => "tensor".to_string(),
        trimmed => trimmed.to_string(),
    };
    let mut label = safe.clone();
    let mut number = 1;
    // On a case-insensitive file system, names that differ only in case collide.
    while !taken.insert(label.to_ascii_lowercase()) {
        number += 1;
        label = format!("{safe}.{number}");
    }
    label
}

/// Returns the bytes of a tensor as its data file stores them; fails if their number differs from
/// the plan.
pub(super) fn read_tensor_bytes(
    model: &graph::Model,
    data: &DataFiles,
    part: PlannedTensor,
) -> Result<Buffer, Error> {
    let tensor = model.stored_tensor(part.id);
    let bytes = match tensor.raw_data {
        _ if tensor.is_external() => model.external_bytes(tensor, data).map_err(external_error)?,
        Some(raw) => model.buffer(raw),
        None => {
            let value = model.tensor(tensor, data).map_err(external_error)?;
            value.buffer().cloned().unwrap_or_else(Buffer::empty)
        }
    };
    if bytes.len() as u64 == part.len {
        Ok(bytes)
    } else {
        Err(external_error(format!(
            "the values of the tensor '{}' have {} bytes, expected {}",
            model.display(tensor.name),
            bytes.len(),
            part.len
        )))
    }
}

/// Makes the tensors of a planned data file refer to the file at `location`.
pub(super) fn refer_to_file(
    model: &mut graph::Model,
    file: &PlannedFile,
    location: &str,
    checksum: Option<&str>,
) {
    for part in &file.parts {
        let mut pairs = vec![
            ("location", location.to_string()),
            ("offset", part.offset.to_string()),
            ("length", part.len.to_string()),
        ];
        pairs.extend(checksum.map(|checksum| ("checksum", checksum.to_string())));
        let entries = pairs
            .iter()
            .map(|(key, value)| Entry {
                key: Some(model.intern(key)),
                value: Some(model.intern(value)),
                ..Entry::default()
            })
            .collect();
        let tensor = model.stored_tensor_mut(part.id);
        tensor.raw_data = None;
        tensor.typed.clear();
        tensor.external_data = entries;
        tensor.data_location = Some(DataLocation::EXTERNAL);
    }
}

/// Reads the values of all external tensors into the model, as `raw_data`.
pub(crate) fn embed(model: &mut graph::Model, data: &DataFiles) -> Result<(), Error> {
    for id in model.tensors() {
        if !model.stored_tensor(id).is_external() {
            continue;
        }
        let bytes = model.external_bytes(model.stored_tensor(id), data).map_err(external_error)?;
        let span = model.add_bytes(bytes);
        let tensor = model.stored_tensor_mut(id);
        tensor.raw_data = Some(span);
        tensor.external_data.clear();
        tensor.data_location = None;
    }
    Ok(())
}

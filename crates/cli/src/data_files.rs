//! Finds the external data files of a model and their sizes, without opening them.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

use sardonyx::inspect::{StoredTensor, TensorStorage};

use crate::model_arg::ModelArg;

/// Status of an external data file that a model refers to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum DataFileStatus {
    /// Existing regular file, with its size in bytes.
    Bytes(u64),
    /// No file at the location.
    Missing,
    /// Location that cannot be a data file, with the reason, such as `is empty`.
    Refused(&'static str),
    /// Location that cannot be searched, as the model was read from stdin and has no directory.
    Unknown,
}

/// Finder of external data files by their locations, with a cache of the results.
pub(crate) struct DataFiles {
    /// Directories to search; empty if the model was read from stdin.
    directories: Vec<PathBuf>,
    /// Status of each location that was searched.
    found: HashMap<String, DataFileStatus>,
}

impl DataFiles {
    /// Creates a finder for the directory of the model file and, if the model file is a symlink,
    /// for the directory of its target.
    pub(crate) fn new(model: &ModelArg) -> DataFiles {
        let real = fs::canonicalize(&model.path).ok();
        let paths = std::iter::once(&model.path).chain(&real);
        let directories: Vec<PathBuf> = if model.is_stdin() {
            Vec::new()
        } else {
            paths.map(|path| path.parent().unwrap_or(Path::new("")).to_path_buf()).collect()
        };
        DataFiles { directories, found: HashMap::new() }
    }

    /// Returns the status of the data file at `location`, a path relative to the model.
    pub(crate) fn find(&mut self, location: &str) -> DataFileStatus {
        if let Some(found) = self.found.get(location) {
            return found.clone();
        }
        let found = self.search(location);
        self.found.insert(location.to_string(), found.clone());
        found
    }

    /// Returns the paths of the data files that exist at `locations` in the searched directories.
    pub(crate) fn find_paths<'a>(
        &self,
        locations: impl IntoIterator<Item = &'a str>,
    ) -> Vec<PathBuf> {
        let inside = locations.into_iter().filter(|location| find_refusal(location).is_none());
        inside
            .flat_map(|location| {
                self.directories.iter().map(move |directory| directory.join(location))
            })
            .filter(|path| path.is_file())
            .collect()
    }

    /// Searches the directories for the data file at `location`, without the cache.
    fn search(&self, location: &str) -> DataFileStatus {
        if let Some(why) = find_refusal(location) {
            return DataFileStatus::Refused(why);
        }
        if self.directories.is_empty() {
            return DataFileStatus::Unknown;
        }
        for directory in &self.directories {
            match fs::metadata(directory.join(location)) {
                Ok(metadata) if metadata.is_file() => return DataFileStatus::Bytes(metadata.len()),
                Ok(_) => return DataFileStatus::Refused("is not a regular file"),
                Err(_) => {}
            }
        }
        DataFileStatus::Missing
    }

    /// Returns the reason why the values of a tensor cannot be read: its data file is missing,
    /// refused or too short. Returns `None` if the file can be used.
    pub(crate) fn find_problem(&mut self, tensor: &StoredTensor) -> Option<String> {
        let TensorStorage::External { location, offset, .. } = &tensor.storage else {
            return None;
        };
        match self.find(location) {
            DataFileStatus::Missing => Some(format!("the data file '{location}' is missing")),
            DataFileStatus::Refused(why) => {
                Some(format!("the data file location '{location}' {why}"))
            }
            DataFileStatus::Unknown => None,
            DataFileStatus::Bytes(size) => {
                let end = offset.checked_add(tensor.bytes.unwrap_or(0));
                let fits = end.is_some_and(|end| end <= size);
                (!fits).then(|| {
                    format!("values go beyond the end of '{location}', which has {size} bytes")
                })
            }
        }
    }
}

/// Returns the reason for not searching the location of a data file, such as a path that leaves the
/// directory of the model; `None` if it is searched. The library applies stricter rules when it
/// opens the file.
fn find_refusal(location: &str) -> Option<&'static str> {
    let bytes = location.as_bytes();
    let is_absolute = matches!(bytes.first(), Some(b'/' | b'\\'))
        || (bytes.first().is_some_and(u8::is_ascii_alphabetic) && bytes.get(1) == Some(&b':'));
    if bytes.is_empty() {
        Some("is empty")
    } else if bytes[0] == b'#' || location.contains('\0') {
        Some("is not a file name")
    } else if is_absolute || location.split(['/', '\\']).any(|part| part == "..") {
        Some("is outside of the model's directory")
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::find_refusal;

    #[test]
    fn only_the_directory_of_the_model_is_looked_at() {
        let rows = [
            ("weights.bin", true),
            ("sub/weights.bin", true),
            ("..weights", true),
            ("", false),
            ("/etc/passwd", false),
            ("a/../../b", false),
            ("C:weights", false),
            ("\\\\server\\x", false),
            ("#memory", false),
        ];
        for (location, is_inside) in rows {
            assert_eq!(find_refusal(location).is_none(), is_inside, "{location}");
        }
    }
}

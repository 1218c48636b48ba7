//! Directories that tests read, and copies of them to change.

use std::fs;
use std::path::{Path, PathBuf};

/// Returns the path of a directory of the repository with a small model.
pub(crate) fn tiny(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/generate").join(name)
}

/// Copies the files of a directory of the repository to a temporary one.
pub(crate) fn copy(name: &str) -> tempfile::TempDir {
    let copy = tempfile::tempdir().unwrap();
    for entry in fs::read_dir(tiny(name)).unwrap() {
        let entry = entry.unwrap();
        fs::copy(entry.path(), copy.path().join(entry.file_name())).unwrap();
    }
    copy
}

//! Property: whatever locations and offsets a model names for its data files, nothing outside its
//! directory is read, and values are those of the file.
//!
//! Checked with files in memory and in a directory that also has links, directories and a socket.

use std::collections::HashMap;
use std::fs;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use sardonyx::inspect::TensorStorage;
use sardonyx::value::Buffer;
use sardonyx::{Model, OpenOptions};
use tempfile::TempDir;

/// Bytes of the files in the directory and of those outside.
const INSIDE: u8 = 0x11;
const OUTSIDE: u8 = 0xee;

/// Reads the bytes as a model and all its tensors, wherever they lie.
pub(crate) fn check(input: &[u8]) {
    static DIRECTORY: OnceLock<Option<TempDir>> = OnceLock::new();
    let Some(directory) = DIRECTORY.get_or_init(|| make_directory().ok()) else {
        panic!("no temporary directory");
    };
    let mut options = OpenOptions::new().verify_checksums(input.len().is_multiple_of(2));
    if input.len().is_multiple_of(3) {
        options = options.follow_links(false);
    }
    let in_memory = options.clone().resolver(Arc::new(make_files()));
    if let Ok(model) = in_memory.from_bytes(input.to_vec()) {
        read_all(&model);
        let in_directory = options.directory(directory.path().join("model"));
        if let Ok(model) = in_directory.from_bytes(input.to_vec()) {
            read_all(&model);
        }
    }
}

fn read_all(model: &Model) {
    for file in model.external_files() {
        assert!(file.tensors > 0);
    }
    for tensor in model.tensors() {
        let TensorStorage::External { offset, .. } = &tensor.storage else {
            continue;
        };
        match model.value_of(&tensor) {
            Ok(value) => {
                assert_eq!(value.rank(), tensor.dims.len());
                assert!(value.bytes().iter().all(|byte| *byte == INSIDE), "read outside");
                assert!(value.is_empty() || *offset <= FILE_BYTES as u64);
            }
            Err(error) => assert!(!error.to_string().is_empty()),
        }
    }
}

const FILE_BYTES: usize = 96;

fn make_files() -> HashMap<String, Buffer> {
    let file = |bytes: usize| Buffer::from_vec(vec![INSIDE; bytes]);
    HashMap::from([
        ("w.bin".to_string(), file(FILE_BYTES)),
        ("d/w.bin".to_string(), file(FILE_BYTES)),
        ("empty".to_string(), file(0)),
    ])
}

/// Makes a directory for a model, with every kind of entry that a location might lead to.
fn make_directory() -> std::io::Result<TempDir> {
    let scratch = tempfile::tempdir()?;
    let model = scratch.path().join("model");
    fs::create_dir_all(model.join("d"))?;
    for (name, bytes) in make_files() {
        fs::write(model.join(name), bytes.as_slice())?;
    }
    fs::write(scratch.path().join("secret"), [OUTSIDE; FILE_BYTES])?;
    make_links(scratch.path(), &model)?;
    Ok(scratch)
}

#[cfg(unix)]
fn make_links(outside: &Path, model: &Path) -> std::io::Result<()> {
    use std::os::unix::fs::symlink;
    symlink("../secret", model.join("out"))?;
    symlink(outside, model.join("up"))?;
    symlink("circle", model.join("circle"))?;
    symlink("d/w.bin", model.join("in"))?;
    // A socket because the standard library cannot make a pipe. Opening either could block for
    // ever.
    std::os::unix::net::UnixListener::bind(model.join("socket")).map(drop)
}

#[cfg(not(unix))]
fn make_links(_: &Path, _: &Path) -> std::io::Result<()> {
    Ok(())
}

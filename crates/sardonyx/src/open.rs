//! Opening files: mapped or read, with errors that name the file. Also where saving happens.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use sardonyx_tensor::Buffer;

use crate::error::{Error, ErrorKind};
use crate::mapping;
use crate::model::Model;

/// How the bytes of a model file, and of the data files beside it, come into memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Access {
    /// Mapped: pages come in when touched, and are shared between processes. If somebody truncates a mapped file, touching
    /// the missing part ends the process (SIGBUS); if somebody overwrites it in place, values change. For files that
    /// stay as they are.
    #[default]
    Map,
    /// Read into memory of our own: slower to open and as large as the file, but nothing that happens to the file later
    /// matters.
    Read,
}

/// How to open a model.
///
/// ```
/// use sardonyx::{Access, OpenOptions};
///
/// # let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/digits/digits.onnx");
/// let model = OpenOptions::new().access(Access::Read).open(path)?;
/// assert_eq!(model.ir_version(), Some(10));
/// # Ok::<(), sardonyx::Error>(())
/// ```
#[derive(Debug, Clone, Default)]
pub struct OpenOptions {
    access: Access,
}

impl OpenOptions {
    /// The defaults: files are mapped.
    pub fn new() -> OpenOptions {
        OpenOptions::default()
    }

    /// Whether files are mapped or read.
    pub fn access(mut self, access: Access) -> OpenOptions {
        self.access = access;
        self
    }

    /// Opens a model. Files that hold its external data are opened when a [`Session`](crate::Session) needs them; they are
    /// looked for beside the model.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Io`] if the file cannot be read, [`ErrorKind::Format`] if it is no ONNX model.
    pub fn open(&self, path: impl AsRef<Path>) -> Result<Model, Error> {
        let path = path.as_ref();
        let bytes = read_file(path, self.access)?;
        Model::from_file(bytes, path, self.access)
    }
}

/// The content of a file. Pipes are always read; folders and devices are refused.
fn read_file(path: &Path, access: Access) -> Result<Buffer, Error> {
    let failed = |error: io::Error| io_error("cannot read", path, error);
    let file = File::open(path).map_err(failed)?;
    let metadata = file.metadata().map_err(failed)?;
    if metadata.is_dir() {
        return Err(folder_given(path));
    }
    if metadata.is_file() && access == Access::Map {
        return mapping::map(&file).map_err(failed);
    }
    if is_device(&metadata) {
        return Err(Error::new(ErrorKind::Io, "a device is no model").with_place(shown(path)));
    }
    let mut bytes = Vec::new();
    // A file's size is known, so that memory that is not there is an error before it is used.
    let len = usize::try_from(metadata.len()).unwrap_or(usize::MAX);
    bytes.try_reserve_exact(len).map_err(|_| {
        Error::new(ErrorKind::Io, format!("no memory for {len} bytes")).with_place(shown(path))
    })?;
    let mut file = file;
    file.read_to_end(&mut bytes).map_err(failed)?;
    Ok(Buffer::from_vec(bytes))
}

#[cfg(unix)]
fn is_device(metadata: &fs::Metadata) -> bool {
    use std::os::unix::fs::FileTypeExt;
    metadata.file_type().is_char_device() || metadata.file_type().is_block_device()
}

#[cfg(not(unix))]
fn is_device(_: &fs::Metadata) -> bool {
    false
}

fn folder_given(path: &Path) -> Error {
    let mut inside: Vec<String> = fs::read_dir(path)
        .into_iter()
        .flatten()
        .flatten()
        .filter(|entry| {
            entry
                .path()
                .extension()
                .is_some_and(|suffix| suffix == "onnx")
        })
        .take(6)
        .map(|entry| entry.path().display().to_string())
        .collect();
    inside.sort();
    let error =
        Error::new(ErrorKind::Io, "this is a folder, not a model file").with_place(shown(path));
    match inside.is_empty() {
        true => error.with_help("give the path of the .onnx file"),
        false => error.with_help(format!("models inside: {}", inside.join(", "))),
    }
}

/// An I/O error as one of ours, with the file's name and advice where there is any.
pub(crate) fn io_error(what: &str, path: &Path, error: io::Error) -> Error {
    let reason = match error.kind() {
        io::ErrorKind::NotFound => "there is no such file".to_string(),
        io::ErrorKind::PermissionDenied => "permission denied".to_string(),
        _ => error.to_string(),
    };
    let not_found = error.kind() == io::ErrorKind::NotFound;
    let message = format!("{what} '{}': {reason}", path.display());
    let made = Error::new(ErrorKind::Io, message).with_source(error);
    match not_found.then(|| similar_file(path)).flatten() {
        Some(similar) => made.with_help(format!("did you mean '{}'?", similar.display())),
        None => made,
    }
}

/// A file of the same folder with a similar name.
fn similar_file(path: &Path) -> Option<PathBuf> {
    let wanted = path.file_name()?.to_str()?;
    let folder = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let names: Vec<String> = fs::read_dir(folder)
        .ok()?
        .flatten()
        .take(1000)
        .filter_map(|entry| entry.file_name().into_string().ok())
        .collect();
    let closest = crate::suggest::closest(wanted, names.iter().map(String::as_str))?;
    Some(path.with_file_name(closest))
}

pub(crate) fn shown(path: &Path) -> String {
    path.display().to_string()
}

/// Writes a file whole or not at all: into a temporary file in the same folder, which then takes the name.
pub(crate) fn write_atomically(
    path: &Path,
    write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> Result<(), Error> {
    let failed = |error: io::Error| io_error("cannot write", path, error);
    let Some(name) = path.file_name() else {
        return Err(Error::new(ErrorKind::Io, "a file name is missing").with_place(shown(path)));
    };
    if path.is_dir() {
        return Err(
            Error::new(ErrorKind::Io, "this is a folder; a file name is missing")
                .with_place(shown(path)),
        );
    }
    let mut temporary_name = std::ffi::OsString::from(".");
    temporary_name.push(name);
    // The process id keeps two savers of one file apart.
    temporary_name.push(format!(".{}.tmp", std::process::id()));
    let temporary = path.with_file_name(temporary_name);
    let result = (|| {
        let mut file = io::BufWriter::new(File::create_new(&temporary)?);
        write(&mut file)?;
        let file = file.into_inner().map_err(io::IntoInnerError::into_error)?;
        if let Ok(old) = fs::metadata(path) {
            // Whoever could read the old file can read the new one.
            let _ = file.set_permissions(old.permissions());
        }
        file.sync_all()?;
        fs::rename(&temporary, path)
    })();
    result.map_err(|error| {
        // Nothing more can be done if even this fails.
        let _ = fs::remove_file(&temporary);
        failed(error)
    })
}

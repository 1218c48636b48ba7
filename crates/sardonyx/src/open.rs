//! Maps or reads the bytes of model files, with errors that name the file.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use sardonyx_tensor::Buffer;

use crate::error::{Error, ErrorKind};
use crate::form::ModelFormat;
use crate::mapping;
use crate::stamp::Stamp;

/// Way in which a model file and its external data files get into memory: mapped or read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Access {
    /// Memory-mapped: pages are loaded when touched. Suits files that no other program changes
    /// meanwhile: if one truncates a mapped file, touching the missing part ends the process
    /// (SIGBUS); if one overwrites it in place, values change. A [`Session`](crate::Session) copies
    /// the weights it needs: once built, it does not read the files.
    #[default]
    Map,
    /// Memory-mapped, and sessions use weights in place in the mapped files where kernels can read
    /// the stored layout, so that processes share this memory. Each run first compares inode, size
    /// and times of the files with those at opening, and fails if a file has changed. A file that
    /// is truncated while a run reads it ends the process (SIGBUS).
    Share,
    /// Read into private memory: slower to open, and takes as much memory as the file has bytes,
    /// but later changes of the file have no effect.
    Read,
}

impl Access {
    /// Whether this access maps regular files into memory.
    pub(crate) fn is_mapped(self) -> bool {
        matches!(self, Access::Map | Access::Share)
    }
}

/// Returns the content of a file. A pipe is read to its end even if `access` maps files;
/// directories and devices are errors.
pub(crate) fn read_file(
    path: &Path,
    access: Access,
    max_bytes: Option<u64>,
) -> Result<Buffer, Error> {
    open_file(path, access, max_bytes).map(|(bytes, _)| bytes)
}

/// Returns the content of a file, like [`read_file`], and the file's identity, size and times if it
/// was mapped.
pub(crate) fn open_file(
    path: &Path,
    access: Access,
    max_bytes: Option<u64>,
) -> Result<(Buffer, Option<Stamp>), Error> {
    let failed = |error: io::Error| io_error("cannot read", path, error);
    let mut file = File::open(path).map_err(failed)?;
    let metadata = file.metadata().map_err(failed)?;
    if metadata.is_dir() {
        return Err(directory_error(path));
    }
    if metadata.is_file() && access.is_mapped() {
        // Before it is mapped: a change between the two is found later.
        let stamp = Stamp::new(path, &file).map_err(failed)?;
        return Ok((mapping::map_file(&file).map_err(failed)?, Some(stamp)));
    }
    if is_device(&metadata) {
        return Err(
            Error::new(ErrorKind::Io, "a device is not a model").with_place(display_path(path))
        );
    }
    Ok((read_stream(&mut file, metadata.len(), max_bytes).map_err(failed)?, None))
}

/// Reads a stream to its end, which must come within `max_bytes`. `expected` is the length of the
/// stream in bytes as far as known; memory for it is allocated ahead.
pub(crate) fn read_stream(
    stream: &mut dyn Read,
    expected: u64,
    max_bytes: Option<u64>,
) -> io::Result<Buffer> {
    let limit = max_bytes.unwrap_or(u64::MAX);
    let too_long = || {
        io::Error::new(
            io::ErrorKind::FileTooLarge,
            format!("the content exceeds the limit of {limit} bytes"),
        )
    };
    if expected > limit {
        return Err(too_long());
    }
    let mut bytes = Vec::new();
    // Fails with an error where `Vec::with_capacity` would abort the process.
    let len = usize::try_from(expected).unwrap_or(usize::MAX);
    bytes.try_reserve_exact(len).map_err(|_| {
        io::Error::new(io::ErrorKind::OutOfMemory, format!("not enough memory for {len} bytes"))
    })?;
    stream.take(limit.saturating_add(1)).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > limit { Err(too_long()) } else { Ok(Buffer::from_vec(bytes)) }
}

/// Whether a file is a character or block device.
#[cfg(unix)]
fn is_device(metadata: &fs::Metadata) -> bool {
    use std::os::unix::fs::FileTypeExt;
    metadata.file_type().is_char_device() || metadata.file_type().is_block_device()
}

/// Returns `false`: this system has no device files.
#[cfg(not(unix))]
fn is_device(_: &fs::Metadata) -> bool {
    false
}

/// Makes the error for a directory in place of a model file, and suggests `.onnx` files in it.
pub(crate) fn directory_error(path: &Path) -> Error {
    let mut inside: Vec<String> = fs::read_dir(path)
        .into_iter()
        .flatten()
        .flatten()
        .filter(|entry| entry.path().extension().is_some_and(|suffix| suffix == "onnx"))
        .take(6)
        .map(|entry| entry.path().display().to_string())
        .collect();
    inside.sort();
    let error = Error::new(ErrorKind::Io, "the path is a directory, not a model file")
        .with_place(display_path(path));
    if inside.is_empty() {
        error.with_help("give the path of the .onnx file")
    } else {
        error.with_help(format!("use a model in the directory: {}", inside.join(", ")))
    }
}

/// Converts an I/O error to an [`Error`] that names the file. `what` begins the message, such as
/// `cannot read`. Suggests a file with a similar name if `path` does not exist.
pub(crate) fn io_error(what: &str, path: &Path, error: io::Error) -> Error {
    let reason = describe_io_error(path, &error);
    let not_found = error.kind() == io::ErrorKind::NotFound;
    let message = format!("{what} '{}': {reason}", path.display());
    let made = Error::new(ErrorKind::Io, message).with_source(error);
    let is_absent = not_found && find_dangling_link(path).is_none();
    match is_absent.then(|| find_similar_file(path)).flatten() {
        Some(similar) => made.with_help(format!("did you mean '{}'?", similar.display())),
        None => made,
    }
}

/// Describes why a file could not be opened, read or written. Names the missing directory or the
/// dangling symlink in the path, if that is the cause.
pub fn describe_io_error(path: &Path, error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => match (find_dangling_link(path), find_missing_directory(path)) {
            (Some((link, target)), _) if link == path => {
                format!("the path is a link to '{}', which does not exist", target.display())
            }
            (Some((link, target)), _) => format!(
                "'{}' is a link to '{}', which does not exist",
                link.display(),
                target.display()
            ),
            (None, Some(missing)) => format!("no such directory: '{}'", missing.display()),
            (None, None) => "no such file".to_string(),
        },
        io::ErrorKind::PermissionDenied => "permission denied".to_string(),
        _ => error.to_string(),
    }
}

/// Finds the first component of a path that is a dangling symlink. Returns the path of that symlink
/// and its target; `None` if no component is a dangling symlink.
fn find_dangling_link(path: &Path) -> Option<(&Path, PathBuf)> {
    let links = path.ancestors().filter_map(|part| Some((part, fs::read_link(part).ok()?)));
    let dangling = links.filter(|(link, _)| {
        fs::metadata(link).is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
    });
    dangling.last()
}

/// Finds the first parent directory in a path that does not exist; `None` if all parent directories
/// exist.
fn find_missing_directory(path: &Path) -> Option<&Path> {
    let directories = path.ancestors().skip(1);
    let missing = directories.take_while(|directory| {
        !directory.as_os_str().is_empty() && fs::symlink_metadata(directory).is_err()
    });
    missing.last()
}

/// Finds a file with a name similar to that of `path` in the directory of `path`: a model file if
/// `path` has the suffix of a model format or no suffix, otherwise a file with the suffix of
/// `path`.
fn find_similar_file(path: &Path) -> Option<PathBuf> {
    // Only stems are compared: equal suffixes would make short names look similar.
    let stem = |name: &str| Path::new(name).file_stem()?.to_str().map(str::to_string);
    let wanted = path.file_stem()?.to_str()?;
    let directory = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let names: Vec<String> = fs::read_dir(directory)
        .ok()?
        .flatten()
        .take(1000)
        // Leaves out dangling symlinks.
        .filter(|entry| entry.path().exists())
        .filter_map(|entry| entry.file_name().into_string().ok())
        .filter(|name| match (ModelFormat::from_path(path), path.extension()) {
            // The suffix of a model may have been left out.
            (Some(_), _) | (None, None) => ModelFormat::from_path(Path::new(name)).is_some(),
            (None, suffix) => Path::new(name).extension() == suffix,
        })
        .collect();
    let stems: Vec<String> = names.iter().filter_map(|name| stem(name)).collect();
    let closest = sardonyx_proto::closest(wanted, stems.iter().map(String::as_str))?;
    let found = names.iter().find(|name| stem(name).as_deref() == Some(closest))?;
    Some(path.with_file_name(found))
}

/// Formats a path for messages.
pub(crate) fn display_path(path: &Path) -> String {
    path.display().to_string()
}

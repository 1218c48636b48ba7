//! The bytes of files: mapped or read, with errors that name the file. What becomes of them is in
//! `load`.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use sardonyx_tensor::Buffer;

use crate::error::{Error, ErrorKind};
use crate::form::Form;
use crate::mapping;
use crate::stamp::Stamp;

/// How the bytes of a model file, and of the data files beside it, come into memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Access {
    /// Mapped: pages come in when touched. If another program truncates a mapped file, touching the
    /// missing part ends the process (SIGBUS); if it overwrites the file in place, values change.
    /// For looking into files that stay as they are meanwhile. A [`Session`](crate::Session) copies
    /// what it needs: once it has been made, it reads no byte of the files.
    #[default]
    Map,
    /// Mapped, and sessions keep their weights in the mapped files as far as kernels read them as
    /// they are: memory that processes share. Each run first compares identity, size and times of
    /// the files with what they were, and fails if one has changed. A file that is truncated while
    /// a run reads it ends the process (SIGBUS).
    Share,
    /// Read into memory of our own: slower to open and as large as the file, but nothing that
    /// happens to the file later matters.
    Read,
}

impl Access {
    /// Whether files are mapped.
    pub(crate) fn maps(self) -> bool {
        matches!(self, Access::Map | Access::Share)
    }
}

/// The content of a file. Pipes are always read; directories and devices are refused.
pub(crate) fn read_file(
    path: &Path,
    access: Access,
    max_bytes: Option<u64>,
) -> Result<Buffer, Error> {
    open_file(path, access, max_bytes).map(|(bytes, _)| bytes)
}

/// The content of a file, as for [`read_file`], and if it is mapped, what the file was then.
pub(crate) fn open_file(
    path: &Path,
    access: Access,
    max_bytes: Option<u64>,
) -> Result<(Buffer, Option<Stamp>), Error> {
    let failed = |error: io::Error| io_error("cannot read", path, error);
    let mut file = File::open(path).map_err(failed)?;
    let metadata = file.metadata().map_err(failed)?;
    if metadata.is_dir() {
        return Err(directory_given(path));
    }
    if metadata.is_file() && access.maps() {
        // Before it is mapped: a change between the two is found later.
        let stamp = Stamp::new(path, &file).map_err(failed)?;
        return Ok((mapping::map(&file).map_err(failed)?, Some(stamp)));
    }
    if is_device(&metadata) {
        return Err(Error::new(ErrorKind::Io, "a device is not a model").with_place(shown(path)));
    }
    Ok((read_stream(&mut file, metadata.len(), max_bytes).map_err(failed)?, None))
}

/// The rest of a stream, of which `expected` bytes are known to come.
pub(crate) fn read_stream(
    stream: &mut dyn Read,
    expected: u64,
    max_bytes: Option<u64>,
) -> io::Result<Buffer> {
    let limit = max_bytes.unwrap_or(u64::MAX);
    let too_long = || {
        io::Error::new(
            io::ErrorKind::FileTooLarge,
            format!("it exceeds the limit of {limit} bytes"),
        )
    };
    if expected > limit {
        return Err(too_long());
    }
    let mut bytes = Vec::new();
    // Memory that is not there is an error before it is used.
    let len = usize::try_from(expected).unwrap_or(usize::MAX);
    bytes.try_reserve_exact(len).map_err(|_| {
        io::Error::new(io::ErrorKind::OutOfMemory, format!("not enough memory for {len} bytes"))
    })?;
    stream.take(limit.saturating_add(1)).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > limit { Err(too_long()) } else { Ok(Buffer::from_vec(bytes)) }
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

pub(crate) fn directory_given(path: &Path) -> Error {
    let mut inside: Vec<String> = fs::read_dir(path)
        .into_iter()
        .flatten()
        .flatten()
        .filter(|entry| entry.path().extension().is_some_and(|suffix| suffix == "onnx"))
        .take(6)
        .map(|entry| entry.path().display().to_string())
        .collect();
    inside.sort();
    let error =
        Error::new(ErrorKind::Io, "this is a directory, not a model file").with_place(shown(path));
    if inside.is_empty() {
        error.with_help("give the path of the .onnx file")
    } else {
        error.with_help(format!("use a model in it: {}", inside.join(", ")))
    }
}

/// An I/O error as one of ours, with the file's name and advice where there is any.
pub(crate) fn io_error(what: &str, path: &Path, error: io::Error) -> Error {
    let reason = io_reason(path, &error);
    let not_found = error.kind() == io::ErrorKind::NotFound;
    let message = format!("{what} '{}': {reason}", path.display());
    let made = Error::new(ErrorKind::Io, message).with_source(error);
    let is_absent = not_found && dangling_link(path).is_none();
    match is_absent.then(|| similar_file(path)).flatten() {
        Some(similar) => made.with_help(format!("did you mean '{}'?", similar.display())),
        None => made,
    }
}

/// Why a file could not be opened, read or written, in words. If a directory on the way to it is
/// missing, that is said.
pub fn io_reason(path: &Path, error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => match (dangling_link(path), missing_directory(path)) {
            (Some((link, target)), _) if link == path => {
                format!("it is a link to '{}', which does not exist", target.display())
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

/// The first link on the way to a file that leads nowhere, and its target as it is written.
fn dangling_link(path: &Path) -> Option<(&Path, PathBuf)> {
    let links = path.ancestors().filter_map(|part| Some((part, fs::read_link(part).ok()?)));
    let dangling = links.filter(|(link, _)| {
        fs::metadata(link).is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
    });
    dangling.last()
}

/// The first directory on the way to a file that does not exist.
fn missing_directory(path: &Path) -> Option<&Path> {
    let directories = path.ancestors().skip(1);
    let missing = directories.take_while(|directory| {
        !directory.as_os_str().is_empty() && fs::symlink_metadata(directory).is_err()
    });
    missing.last()
}

/// A file of the same directory with a similar name, which could hold the same: a model for a
/// model, else a file with the same suffix.
fn similar_file(path: &Path) -> Option<PathBuf> {
    // Suffixes are alike anyhow.
    let stem = |name: &str| Path::new(name).file_stem()?.to_str().map(str::to_string);
    let wanted = path.file_stem()?.to_str()?;
    let directory = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let is_same_kind = |name: &str| {
        let name = Path::new(name);
        match (Form::of_path(path), path.extension()) {
            // A name without suffix is that of a model whose suffix was left out.
            (Some(_), _) | (None, None) => Form::of_path(name).is_some(),
            (None, suffix) => name.extension() == suffix,
        }
    };
    let names: Vec<String> = fs::read_dir(directory)
        .ok()?
        .flatten()
        .take(1000)
        // A link may lead nowhere.
        .filter(|entry| entry.path().exists())
        .filter_map(|entry| entry.file_name().into_string().ok())
        .filter(|name| is_same_kind(name))
        .collect();
    let stems: Vec<String> = names.iter().filter_map(|name| stem(name)).collect();
    let closest = sardonyx_proto::closest(wanted, stems.iter().map(String::as_str))?;
    let found = names.iter().find(|name| stem(name).as_deref() == Some(closest))?;
    Some(path.with_file_name(found))
}

pub(crate) fn shown(path: &Path) -> String {
    path.display().to_string()
}

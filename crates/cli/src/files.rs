//! Reads input files and writes output files atomically.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use sardonyx::ErrorKind;
use sardonyx::tool::WholeFile;
use sardonyx::value::Buffer;

use crate::failure::{Code, Failure};

/// Reads all bytes of a file or pipe. Fails for directories and devices.
pub(crate) fn read(path: &Path) -> Result<Buffer, Failure> {
    let failed = |error: io::Error| io_failure("cannot read", path, &error);
    let mut file = File::open(path).map_err(failed)?;
    let metadata = file.metadata().map_err(failed)?;
    if metadata.is_dir() {
        return Err(Failure::new("expected a file, found a directory")
            .code(ErrorKind::Io)
            .at(path.display()));
    }
    if !metadata.is_file() && !is_pipe(&metadata) {
        return Err(Failure::new("expected a file or a pipe, found another kind of file")
            .code(ErrorKind::Io)
            .at(path.display()));
    }
    let mut bytes = Vec::new();
    let len = usize::try_from(metadata.len()).unwrap_or(usize::MAX);
    if bytes.try_reserve_exact(len).is_err() {
        return Err(Failure::new(format!("not enough memory for {len} bytes"))
            .code(Code::Memory)
            .at(path.display()));
    }
    file.read_to_end(&mut bytes).map_err(failed)?;
    Ok(Buffer::from_vec(bytes))
}

/// Lists the files PREFIX0.pb, PREFIX1.pb, … of a directory with their numbers, in ascending order.
/// Returns an empty list if there are none.
pub(crate) fn list_numbered_files(
    directory: &Path,
    prefix: &str,
) -> Result<Vec<(usize, PathBuf)>, Failure> {
    let mut files = Vec::new();
    for path in list_directory(directory)? {
        let name = path.file_name().and_then(|name| name.to_str());
        let number = name.and_then(|name| name.strip_prefix(prefix)?.strip_suffix(".pb"));
        if let Some(number) = number.and_then(|number| number.parse().ok()) {
            files.push((number, path));
        }
    }
    files.sort_unstable();
    Ok(files)
}

/// Lists the paths of the files and subdirectories of a directory, sorted.
pub(crate) fn list_directory(directory: &Path) -> Result<Vec<PathBuf>, Failure> {
    let cannot = |error: io::Error| io_failure("cannot read the directory", directory, &error);
    let entries = fs::read_dir(directory).map_err(cannot)?;
    let paths: io::Result<Vec<PathBuf>> =
        entries.map(|entry| entry.map(|entry| entry.path())).collect();
    let mut paths = paths.map_err(cannot)?;
    paths.sort_unstable();
    Ok(paths)
}

/// Whether a file is a named pipe.
#[cfg(unix)]
fn is_pipe(metadata: &fs::Metadata) -> bool {
    use std::os::unix::fs::FileTypeExt;
    metadata.file_type().is_fifo()
}

/// Returns false, as this system has no named pipes in its file system.
#[cfg(not(unix))]
fn is_pipe(_: &fs::Metadata) -> bool {
    false
}

/// Creates the failure for an I/O error at `path`. `what` begins the message, such as
/// `cannot read`.
pub(crate) fn io_failure(what: &str, path: &Path, error: &io::Error) -> Failure {
    let reason = sardonyx::tool::describe_io_error(path, error);
    Failure::new(format!("{what} '{}': {reason}", path.display())).code(ErrorKind::Io)
}

/// Input files of a command, which it must not overwrite.
#[derive(Default)]
pub(crate) struct Protected(Vec<PathBuf>);

impl Protected {
    /// Adds a file that must not be overwritten, if it exists.
    pub(crate) fn add(&mut self, path: &Path) {
        // The path of stdin does not exist, so it needs no protection.
        self.0.extend(fs::canonicalize(path));
    }

    /// Returns an error if `path` is one of the protected files.
    pub(crate) fn check(&self, path: &Path) -> Result<(), Failure> {
        match fs::canonicalize(path) {
            Ok(real) if self.0.contains(&real) => Err(Failure::new(format!(
                "'{}' is an input file and is not overwritten",
                path.display()
            ))
            .help("choose another file with --output")),
            _ => Ok(()),
        }
    }
}

/// Checks, before a model is computed, that `path` names a file in an existing directory, and that
/// the model would not replace arrays or an image.
pub(crate) fn check_model_path(path: &Path) -> Result<(), Failure> {
    let shown = path.display();
    if path.is_dir() || ends_as_directory(path) {
        let example = path.join("model.onnx");
        return Err(Failure::new(format!("'{shown}' is a directory"))
            .help(format!("give a file, such as {}", example.display())));
    }
    check_parent(path)?;
    let held = match read_first_bytes(path).map(|bytes| detect_kind(path, &bytes)) {
        Some(FileKind::Npy | FileKind::Npz) => "arrays",
        Some(FileKind::Image) => "an image",
        Some(FileKind::Proto | FileKind::Unknown(_)) | None => return Ok(()),
    };
    Err(Failure::new(format!("'{shown}' holds {held}, which a model would replace"))
        .help("choose another file, or remove the existing file first"))
}

/// Whether a path ends with a separator, so that it can only name a directory.
pub(crate) fn ends_as_directory(path: &Path) -> bool {
    path.to_str().and_then(|path| path.chars().next_back()).is_some_and(std::path::is_separator)
}

/// Whether two paths name the same entry of a directory. The entry need not exist.
pub(crate) fn is_same_place(one: &Path, other: &Path) -> bool {
    let directory = |path: &Path| {
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
        fs::canonicalize(parent.unwrap_or(Path::new("."))).ok()
    };
    one.file_name() == other.file_name() && directory(one) == directory(other)
}

/// Returns an error if the directory of `path` does not exist.
pub(crate) fn check_parent(path: &Path) -> Result<(), Failure> {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    if parent.is_none_or(Path::exists) {
        return Ok(());
    }
    let missing = io_failure("cannot write", path, &io::ErrorKind::NotFound.into());
    Err(missing.help("create the directory first"))
}

/// Checks that a file can be created beside `path`, whose directory may be read-only.
pub(crate) fn check_writable(path: &Path) -> Result<(), Failure> {
    let file = WholeFile::create(path);
    file.map(drop).map_err(|error| io_failure("cannot write", path, &error))
}

/// Reads the first bytes of a file, as many as [`detect_kind`] needs. Returns `None` if the file
/// cannot be read.
fn read_first_bytes(path: &Path) -> Option<Vec<u8>> {
    /// Number of bytes to read, at least the length of the longest signature.
    const LENGTH: u64 = 64;
    if !path.is_file() {
        return None;
    }
    let mut bytes = Vec::new();
    File::open(path).ok()?.take(LENGTH).read_to_end(&mut bytes).ok()?;
    Some(bytes)
}

/// Writes a file atomically: after a failure the file has its old content.
pub(crate) fn write(
    path: &Path,
    write: impl FnOnce(&mut WholeFile) -> Result<(), Failure>,
) -> Result<(), Failure> {
    if path.file_name().is_none() {
        return Err(Failure::new(format!("'{}' is not a file name", path.display())));
    }
    let cannot = |error: io::Error| io_failure("cannot write", path, &error);
    let mut file = WholeFile::create(path).map_err(cannot)?;
    write(&mut file)?;
    file.finish().map_err(cannot)
}

/// Type of an input file by its signature, or by its suffix if it has no known signature.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FileKind {
    Npy,
    Npz,
    Image,
    /// Protobuf message, which has no signature.
    Proto,
    /// Unsupported file, with a description of its format if the signature is known.
    Unknown(Option<&'static str>),
}

/// Determines the type of an input file from its path and its first bytes.
pub(crate) fn detect_kind(path: &Path, bytes: &[u8]) -> FileKind {
    let signatures: [(&[u8], FileKind); 10] = [
        (b"\x93NUMPY", FileKind::Npy),
        (b"PK\x03\x04", FileKind::Npz),
        (b"PK\x05\x06", FileKind::Npz),
        (b"\x89PNG", FileKind::Image),
        (b"\xff\xd8\xff", FileKind::Image),
        (b"GIF8", FileKind::Unknown(Some("a GIF image"))),
        (b"BM", FileKind::Unknown(Some("a BMP image"))),
        (b"RIFF", FileKind::Unknown(Some("a WebP image or a WAV file"))),
        (b"II*\0", FileKind::Unknown(Some("a TIFF image"))),
        (b"%PDF", FileKind::Unknown(Some("a PDF document"))),
    ];
    let suffix =
        path.extension().and_then(|suffix| suffix.to_str()).unwrap_or("").to_ascii_lowercase();
    // A .pb file has no signature, and its bytes may equal any other.
    if suffix == "pb" {
        return FileKind::Proto;
    }
    if let Some((_, kind)) = signatures.iter().find(|(magic, _)| bytes.starts_with(magic)) {
        return *kind;
    }
    match suffix.as_str() {
        "npy" => FileKind::Npy,
        "npz" => FileKind::Npz,
        "png" | "jpg" | "jpeg" => FileKind::Image,
        "pb" => FileKind::Proto,
        _ => FileKind::Unknown(None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_decides_before_the_suffix() {
        let rows: [(&str, &[u8], FileKind); 5] = [
            ("a.bin", b"\x93NUMPY\x01", FileKind::Npy),
            ("a.npy", b"\x89PNG", FileKind::Image),
            ("a.pb", b"BM", FileKind::Proto),
            ("a.JPG", b"", FileKind::Image),
            ("a.txt", b"1 2 3", FileKind::Unknown(None)),
        ];
        for (path, bytes, expected) in rows {
            assert_eq!(detect_kind(Path::new(path), bytes), expected, "{path}");
        }
    }
}

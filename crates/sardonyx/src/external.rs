//! External data: tensor values in files beside the model.
//!
//! A location comes from the model and is untrusted. It may only lead to regular files in the
//! model's directory or, if the model file is a symlink, in the directory of its target: in a
//! Hugging Face cache, a directory of symlinks points into a directory of blobs. The check is the
//! opening itself, which is confined to those directories.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::fmt;
use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use sardonyx_model::{ExternalData, NotStored, StoredValues};
use sardonyx_passes::payload::bad_location;
use sardonyx_runtime::SharedWeights;
use sardonyx_tensor::Buffer;
use sha1::{Digest, Sha1};

use crate::beneath::{Directory, Identity, Refusal, read_identity};
use crate::error::{Error, ErrorKind};
use crate::mapping;
use crate::open::{Access, read_stream};
use crate::stamp::{MappedFile, Stamp};
use crate::stored::{self, Found, TakenFrom, Tensors, Wanted};

/// Source of external data in place of data files: memory, an archive, a remote store.
///
/// ```
/// use std::collections::HashMap;
/// use std::sync::Arc;
/// use sardonyx::OpenOptions;
/// use sardonyx::value::Buffer;
///
/// let files = HashMap::from([("weights.bin".to_string(), Buffer::from_vec(vec![0; 64]))]);
/// let bytes = b"\x08\x0a\x3a\x03\x12\x01g".to_vec();
/// let model = OpenOptions::new().resolver(Arc::new(files)).from_bytes(bytes)?;
/// # assert_eq!(model.node_count(), 0);
/// # Ok::<(), sardonyx::Error>(())
/// ```
pub trait DataResolver: Send + Sync {
    /// Returns the content of the data file that a model calls `location`. Called once per
    /// location. The location is untrusted text from the model, passed on unchecked.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::NotFound`] if the data file does not exist, otherwise the error of reading
    /// the file.
    fn resolve(&self, location: &str) -> io::Result<Buffer>;
}

impl<S: std::hash::BuildHasher + Send + Sync> DataResolver for HashMap<String, Buffer, S> {
    fn resolve(&self, location: &str) -> io::Result<Buffer> {
        let found = self.get(location).cloned();
        found.ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}

/// External data files of a model. Each file is opened once, for all tensors and all sessions.
pub(crate) struct DataFiles {
    place: Place,
    options: DataOptions,
    opened: Mutex<Opened>,
    /// Data files from which tensors of an ONNX text were loaded.
    taken: Mutex<Vec<TakenFrom>>,
}

/// Source of the external data files of a model.
enum Place {
    /// Directories in which data files are searched, in this order.
    Directories(Vec<Directory>),
    /// Source of data files that the program supplies.
    Resolver(Arc<dyn DataResolver>),
    /// The model cannot have external data files. Holds the reason.
    Nowhere(&'static str),
}

/// Data files that have been opened.
#[derive(Default)]
struct Opened {
    /// Data files by the location that a model has for them.
    by_location: HashMap<String, Arc<DataFile>>,
    /// Data files by device and inode numbers: several locations may lead to one file.
    by_identity: HashMap<Identity, Arc<DataFile>>,
}

/// External data file that has been opened.
struct DataFile {
    content: Content,
    /// Device and inode numbers of the file, where the system has them.
    identity: Option<Identity>,
    /// Identity, size and times that the data file had when it was opened first; `None` for copies
    /// in memory.
    stamp: Option<Arc<Stamp>>,
    /// SHA-1 of the file's content in hexadecimal, computed on demand.
    digest: Mutex<Option<String>>,
    /// Full content of the data file, read on demand if `content` does not have it.
    whole: OnceLock<Buffer>,
    /// Digest by which an ONNX text recognizes an unchanged data file, computed on demand.
    file_digest: OnceLock<Option<String>>,
    /// Tensors in the data file, parsed on demand: an ONNX text finds its tensors in a changed file
    /// by their names.
    tensors: OnceLock<Result<Tensors, String>>,
}

/// Content of an external data file.
enum Content {
    /// All bytes of the file, in memory or mapped.
    Whole(Buffer),
    /// Location and size in bytes of a data file that is reopened for each read: a model may have
    /// hundreds of data files, and file descriptors are limited.
    Apart(String, u64),
}

impl fmt::Debug for DataFiles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.place {
            Place::Directories(directories) => {
                f.debug_list().entries(directories.iter().map(Directory::path)).finish()
            }
            Place::Resolver(_) => f.write_str("DataResolver"),
            Place::Nowhere(why) => f.write_str(why),
        }
    }
}

/// Options for opening external data files.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct DataOptions {
    /// Whether data files are mapped or read.
    pub(crate) access: Access,
    /// Whether a data file that is not mapped is read in full when it is opened.
    pub(crate) whole: bool,
    /// Whether a data file is opened only if no component of its path is a symlink.
    pub(crate) refuse_links: bool,
    /// Whether the SHA-1 checksums that the model has for its data files are verified.
    pub(crate) verify: bool,
}

impl DataFiles {
    /// Looks up data files in the directory of a model file and, if the model file is a symlink,
    /// also in the directory of the symlink's target.
    pub(crate) fn from_model_path(model: &Path, options: DataOptions) -> DataFiles {
        let of_link = Directory::open(get_directory(model)).ok();
        let of_file = fs::canonicalize(model)
            .ok()
            .filter(|_| !options.refuse_links)
            .and_then(|real| Directory::open(get_directory(&real)).ok());
        let mut directories: Vec<Directory> = of_link.into_iter().chain(of_file).collect();
        directories.dedup_by(|a, b| a.path() == b.path());
        DataFiles::new(Place::Directories(directories), options)
    }

    /// Looks up data files in one directory.
    pub(crate) fn from_directory(directory: &Path, options: DataOptions) -> io::Result<DataFiles> {
        let directories = vec![Directory::open(directory)?];
        Ok(DataFiles::new(Place::Directories(directories), options))
    }

    /// Looks up data files with a resolver that the program supplies.
    pub(crate) fn from_resolver(
        resolver: Arc<dyn DataResolver>,
        options: DataOptions,
    ) -> DataFiles {
        DataFiles::new(Place::Resolver(resolver), options)
    }

    /// Makes a set of data files in which every access fails. `why` completes the message "values
    /// are in the file …, and".
    pub(crate) fn unavailable(why: &'static str) -> DataFiles {
        DataFiles::new(Place::Nowhere(why), DataOptions::default())
    }

    /// Creates the data files of `place`; opens none yet.
    fn new(place: Place, options: DataOptions) -> DataFiles {
        DataFiles { place, options, opened: Mutex::default(), taken: Mutex::default() }
    }

    /// Whether the model can have external data files: there is a directory or a resolver for them.
    pub(crate) fn can_have_files(&self) -> bool {
        !matches!(self.place, Place::Nowhere(_))
    }

    /// Returns the directory in which data files are searched first; `None` without a directory.
    pub(crate) fn directory(&self) -> Option<&Path> {
        match &self.place {
            Place::Directories(directories) => directories.first().map(Directory::path),
            _ => None,
        }
    }

    /// Returns the size in bytes of the data file at `location`, and opens the file at first use.
    ///
    /// # Errors
    ///
    /// A message with the reason for which the data file cannot be opened.
    pub(crate) fn find_file_size(&self, location: &str) -> Result<u64, String> {
        self.open_once(location).map(|file| file.size())
    }

    /// Returns the data file at `location`, and opens the file at first use. An error is a
    /// message.
    fn open_once(&self, location: &str) -> Result<Arc<DataFile>, String> {
        let mut opened = lock(&self.opened);
        if let Some(file) = opened.by_location.get(location) {
            return Ok(Arc::clone(file));
        }
        let (content, identity, stamp) = match &self.place {
            Place::Directories(directories) => {
                let found = self.find(directories, location);
                let FoundFile { file, path, len, identity, .. } =
                    found.map_err(|missed| missed.format_message(location))?;
                let failed = |error| describe_read_failure(location, &error);
                let stamp = Stamp::new(&path, &file).map_err(failed)?;
                let known = identity.and_then(|identity| opened.by_identity.get(&identity));
                if let Some(known) = known.map(Arc::clone) {
                    opened.by_location.insert(location.to_string(), Arc::clone(&known));
                    return Ok(known);
                }
                let content = match self.options.access {
                    Access::Map | Access::Share => {
                        Content::Whole(mapping::map_file(&file).map_err(failed)?)
                    }
                    Access::Read if self.options.whole => {
                        Content::Whole(read_stream(&mut &file, len, None).map_err(failed)?)
                    }
                    Access::Read => Content::Apart(location.to_string(), len),
                };
                (content, identity, Some(Arc::new(stamp)))
            }
            Place::Resolver(resolver) => {
                let found = resolver.resolve(location);
                let found = found.map_err(|error| describe_read_failure(location, &error))?;
                (Content::Whole(found), None, None)
            }
            Place::Nowhere(why) => {
                let shown = location.escape_debug();
                return Err(format!("values are in the file '{shown}', and {why}"));
            }
        };
        let file = Arc::new(DataFile {
            content,
            identity,
            stamp,
            digest: Mutex::default(),
            whole: OnceLock::new(),
            file_digest: OnceLock::new(),
            tensors: OnceLock::new(),
        });
        opened.by_location.insert(location.to_string(), Arc::clone(&file));
        if let Some(identity) = identity {
            opened.by_identity.insert(identity, Arc::clone(&file));
        }
        Ok(file)
    }

    /// Returns the mapped data files.
    pub(crate) fn list_mapped_files(&self) -> Vec<MappedFile> {
        if !self.options.access.is_mapped() {
            return Vec::new();
        }
        let opened = lock(&self.opened);
        let mut seen = HashSet::new();
        let files = opened.by_location.values().filter(|file| seen.insert(Arc::as_ptr(file)));
        let files = files.filter_map(|file| match (&file.content, &file.stamp) {
            (Content::Whole(bytes), Some(stamp)) => {
                Some(MappedFile { bytes: bytes.clone(), stamp: Arc::clone(stamp) })
            }
            _ => None,
        });
        files.collect()
    }

    /// Copies the data files at `locations` into private memory. Other data files are still opened
    /// on demand.
    ///
    /// # Errors
    ///
    /// A message, if memory is refused or a data file cannot be read. A missing file is an error
    /// only once its tensors are needed.
    pub(crate) fn copy_to_own_memory(
        &self,
        locations: BTreeSet<String>,
        weights: &SharedWeights,
    ) -> Result<DataFiles, String> {
        let place = match &self.place {
            Place::Directories(directories) => Place::Directories(directories.clone()),
            Place::Resolver(resolver) => Place::Resolver(Arc::clone(resolver)),
            Place::Nowhere(why) => Place::Nowhere(why),
        };
        let options = DataOptions { access: Access::Read, whole: true, ..self.options };
        let own = DataFiles::new(place, options);
        let mut opened = Opened::default();
        for location in locations {
            // A file that cannot be opened is an error only once its values are needed.
            let Ok(file) = self.open_once(&location) else { continue };
            let whole = self.read_whole(&file);
            let whole = whole.map_err(|error| describe_read_failure(&location, &error))?;
            let whole = if whole.is_mapped() {
                weights.copy_of(whole).map_err(|error| error.to_string())?
            } else {
                whole.clone()
            };
            let copy = Arc::new(DataFile {
                content: Content::Whole(whole),
                identity: file.identity,
                stamp: None,
                digest: Mutex::new(lock(&file.digest).clone()),
                whole: OnceLock::new(),
                file_digest: OnceLock::new(),
                tensors: OnceLock::new(),
            });
            opened.by_location.insert(location, copy);
        }
        *lock(&own.opened) = opened;
        Ok(own)
    }

    /// Reopens a data file whose content is not in memory.
    ///
    /// # Errors
    ///
    /// The data file was changed or replaced since it was first opened, or cannot be opened.
    fn reopen(&self, location: &str, file: &DataFile) -> io::Result<File> {
        let Place::Directories(directories) = &self.place else {
            return Err(io::ErrorKind::NotFound.into());
        };
        let found = self.find(directories, location);
        let found = found.map_err(|missed| match missed {
            OpenFailure::Refused(Refusal::Io(error)) => error,
            OpenFailure::Missing(_) => io::ErrorKind::NotFound.into(),
            other => io::Error::other(other.format_message(location)),
        })?;
        match &file.stamp {
            Some(stamp) if !stamp.matches(&found.file)? => Err(io::Error::other(
                "the file has been changed or replaced since it was first read",
            )),
            _ => Ok(found.file),
        }
    }

    /// Returns the full content of a data file, and reads the file if its content is not in memory.
    fn read_whole<'f>(&self, file: &'f DataFile) -> io::Result<&'f Buffer> {
        let (location, size) = match &file.content {
            Content::Whole(bytes) => return Ok(bytes),
            Content::Apart(location, size) => (location, *size),
        };
        if let Some(bytes) = file.whole.get() {
            return Ok(bytes);
        }
        let bytes = read_stream(&mut &self.reopen(location, file)?, size, None)?;
        Ok(file.whole.get_or_init(|| bytes))
    }

    /// Returns the SHA-1 of a data file in hexadecimal, computed once.
    fn compute_digest(&self, file: &DataFile) -> io::Result<String> {
        let mut known = lock(&file.digest);
        if let Some(digest) = &*known {
            return Ok(digest.clone());
        }
        let digest = match &file.content {
            Content::Whole(bytes) => encode_hex(&Sha1::digest(bytes.as_slice())),
            Content::Apart(location, _) => compute_sha1(&self.reopen(location, file)?)?,
        };
        *known = Some(digest.clone());
        Ok(digest)
    }

    /// Opens the data file at `location` without reading it. Fails without a directory for data
    /// files.
    pub(crate) fn open(&self, location: &str) -> Result<FoundFile, OpenFailure> {
        match &self.place {
            Place::Directories(directories) => self.find(directories, location),
            Place::Resolver(_) | Place::Nowhere(_) => Err(OpenFailure::Missing(Vec::new())),
        }
    }

    /// Opens the data file at `location` in the first of `directories` that has it.
    fn find(&self, directories: &[Directory], location: &str) -> Result<FoundFile, OpenFailure> {
        check_location(location).map_err(OpenFailure::Location)?;
        let mut looked = Vec::new();
        for directory in directories {
            let mut through_link = false;
            let opened = match directory.open_file(Path::new(location)) {
                Err(Refusal::Link) if !self.options.refuse_links => {
                    through_link = true;
                    open_symlink_target(directories, &directory.path().join(location))?
                }
                other => other,
            };
            let path = directory.path().join(location);
            let found = opened.and_then(|file| {
                let (len, identity) = (file.metadata()?.len(), read_identity(&file)?);
                Ok(FoundFile { file, path, len, identity, through_link })
            });
            match found {
                Err(Refusal::Io(error)) if error.kind() == io::ErrorKind::NotFound => {
                    looked.push(directory.path().join(location));
                }
                other => return other.map_err(OpenFailure::Refused),
            }
        }
        Err(OpenFailure::Missing(looked))
    }
}

/// Purpose for which [`open_data_file`] opens a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum DataAccess {
    /// Reading only.
    Read,
    /// Reading and writing. A missing file is created with mode 0600.
    Write,
}

/// Opens the external data file at `location` in a directory. Accepts only regular files with one
/// hard link, and no symlinks in the location, which comes from a model and is untrusted.
///
/// `directory` is trusted: the caller chooses it, as the path of a model file is chosen, so
/// symlinks in it are followed, and it may be one. The file is confined to the directory that it
/// leads to.
///
/// # Errors
///
/// [`ErrorKind::ExternalData`] if the data file is missing or violates these rules.
pub fn open_data_file(
    directory: impl AsRef<Path>,
    location: &str,
    access: DataAccess,
) -> Result<File, Error> {
    let directory = directory.as_ref();
    let refused = |why| Error::new(ErrorKind::ExternalData, why);
    check_location(location).map_err(refused)?;
    // An empty path means the current directory, as in paths of files.
    let path = if directory.as_os_str().is_empty() { Path::new(".") } else { directory };
    let opened = Directory::open(path).map_err(Refusal::Io).and_then(|directory| match access {
        DataAccess::Read => directory.open_file(Path::new(location)),
        DataAccess::Write => directory.open_to_write(Path::new(location)),
    });
    opened.map_err(|refusal| refused(OpenFailure::Refused(refusal).format_message(location)))
}

/// External data file that has been opened but not read.
pub(crate) struct FoundFile {
    pub(crate) file: File,
    /// Path of the data file, with symlinks not resolved.
    pub(crate) path: PathBuf,
    /// Size of the data file in bytes.
    pub(crate) len: u64,
    /// Device and inode numbers of the data file, where the system has them.
    pub(crate) identity: Option<Identity>,
    /// Whether a symlink in the path of the data file was followed.
    pub(crate) through_link: bool,
}

/// Reason for which an external data file is not opened.
#[derive(Debug)]
pub(crate) enum OpenFailure {
    /// The location of the data file is invalid. Holds the message.
    Location(String),
    /// The data file is missing. Holds the paths at which it was looked up.
    Missing(Vec<PathBuf>),
    /// The location of the data file is a symlink whose target is missing.
    DanglingLink,
    /// The location of the data file is a symlink out of the permitted directories. Holds the
    /// symlink's target.
    Outside(PathBuf),
    /// The data file exists but must not or cannot be opened.
    Refused(Refusal),
}

impl OpenFailure {
    /// Formats the failure as a message about the data file at `location`.
    pub(crate) fn format_message(&self, location: &str) -> String {
        match self {
            OpenFailure::Location(why) => why.clone(),
            OpenFailure::Missing(looked) => {
                let looked: Vec<String> =
                    looked.iter().map(|path| path.display().to_string()).collect();
                format!(
                    "values are in the file '{location}', which is missing; looked for {}",
                    looked.join(" and ")
                )
            }
            OpenFailure::DanglingLink => {
                format!("the data file '{location}' is a link to a missing file")
            }
            OpenFailure::Outside(real) => format!(
                "the data file '{location}' is a link to {}, outside of the model's directory, and is not read",
                real.display()
            ),
            OpenFailure::Refused(Refusal::Link) => {
                format!(
                    "the data file's path '{location}' has a symbolic link, and links are not followed"
                )
            }
            OpenFailure::Refused(Refusal::Kind(kind)) => {
                format!(
                    "the data file '{location}' is {kind}; values are read only from regular files"
                )
            }
            OpenFailure::Refused(Refusal::HardLink) => format!(
                "the data file '{location}' has more than one hard link, so it may be another user's file, and is not read; a copy of the file can be used"
            ),
            OpenFailure::Refused(Refusal::Io(error)) => describe_read_failure(location, error),
        }
    }
}

/// Opens the target of a path with symlinks, if the target lies in one of `directories`.
fn open_symlink_target(
    directories: &[Directory],
    path: &Path,
) -> Result<Result<File, Refusal>, OpenFailure> {
    let real = match fs::canonicalize(path) {
        Ok(real) => real,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Err(OpenFailure::DanglingLink);
        }
        Err(error) => return Err(OpenFailure::Refused(Refusal::Io(error))),
    };
    // The canonical path has no symlinks, and opening it permits none, so it fails if another
    // process has put one there meanwhile.
    for directory in directories {
        if let Ok(relative) = real.strip_prefix(directory.path()) {
            return Ok(directory.open_file(relative));
        }
    }
    Err(OpenFailure::Outside(real))
}

/// Formats an I/O error as a message about the data file at `location`.
fn describe_read_failure(location: &str, error: &io::Error) -> String {
    let reason = match error.kind() {
        io::ErrorKind::NotFound => "no such file".to_string(),
        io::ErrorKind::PermissionDenied => "permission denied".to_string(),
        // The standard library has no stable `ErrorKind` for ELOOP.
        _ if error.to_string().contains("symbolic links") => {
            "the path's symbolic links form a cycle".to_string()
        }
        _ => error.to_string(),
    };
    format!("the data file '{location}' cannot be read: {reason}")
}

/// Returns the parent directory of a file's path: `.` if the path has only a file name.
pub(crate) fn get_directory(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

// A poisoned lock is usable: no critical section can panic halfway through a change.
/// Locks a mutex, even if a thread panicked while it held the lock.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Maximum length of a data file's location in bytes. No system opens longer paths.
const LONGEST_LOCATION: usize = 4096;

/// Rejects locations of data files that are not relative paths within a directory on all operating
/// systems: a model that is accepted here must not be harmful on another system.
pub(crate) fn check_location(location: &str) -> Result<(), String> {
    let refused =
        |why: &str| Err(format!("the data file location '{}' {why}", location.escape_debug()));
    let bytes = location.as_bytes();
    if bytes.is_empty() {
        return refused("is empty");
    }
    if bytes.len() > LONGEST_LOCATION {
        return Err(format!(
            "the data file location has {} bytes, which is too long for a path",
            bytes.len()
        ));
    }
    if bytes[0] == b'#' {
        return refused("refers to memory of the program that wrote the model");
    }
    match bad_location(bytes) {
        Some(why) => refused(why),
        None => Ok(()),
    }
}

impl DataFile {
    /// Returns the size of the data file in bytes.
    fn size(&self) -> u64 {
        match &self.content {
            Content::Whole(bytes) => bytes.len() as u64,
            Content::Apart(_, size) => *size,
        }
    }
}

/// Computes the SHA-1 of an open file's full content, in hexadecimal.
pub(crate) fn compute_sha1(mut file: &File) -> io::Result<String> {
    let mut hasher = Sha1::new();
    file.seek(SeekFrom::Start(0))?;
    io::copy(&mut file, &mut HashWriter(&mut hasher))?;
    Ok(encode_hex(&hasher.finalize()))
}

/// Writer that feeds all bytes to a digest and keeps none.
pub(crate) struct HashWriter<'a, D>(pub(crate) &'a mut D);

impl<D: Digest> io::Write for HashWriter<'_, D> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.update(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Encodes bytes as lower-case hexadecimal digits.
pub(crate) fn encode_hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

impl ExternalData for DataFiles {
    fn load(&self, location: &str, offset: u64, length: Option<u64>) -> Result<Buffer, String> {
        let file = self.open_once(location)?;
        let size = file.size();
        let end = match length {
            Some(length) => offset.checked_add(length),
            None => Some(size),
        };
        let Some(end) = end.filter(|end| *end <= size && offset <= *end) else {
            let values = match length {
                Some(length) => format!("{length} bytes at offset {offset} are"),
                None => format!("offset {offset} is"),
            };
            return Err(format!(
                "{values} beyond the end of '{location}', which has {size} bytes; the file may be truncated"
            ));
        };
        let range = |n: u64| {
            usize::try_from(n)
                .map_err(|_| format!("byte {n} of the file '{location}' cannot be addressed"))
        };
        match &file.content {
            Content::Whole(bytes) => {
                bytes.slice(range(offset)?..range(end)?).map_err(|error| error.to_string())
            }
            Content::Apart(location, _) => {
                let mut bytes = Vec::new();
                let len = range(end - offset)?;
                bytes.try_reserve_exact(len).map_err(|_| {
                    format!("not enough memory for {len} bytes of the file '{location}'")
                })?;
                let read = self.reopen(location, &file).and_then(|mut file| {
                    file.seek(SeekFrom::Start(offset))?;
                    file.take(end - offset).read_to_end(&mut bytes)
                });
                match read {
                    Ok(n) if n == len => Ok(Buffer::from_vec(bytes)),
                    Ok(_) => {
                        Err(format!("the data file '{location}' was truncated while it was read"))
                    }
                    Err(error) => Err(describe_read_failure(location, &error)),
                }
            }
        }
    }

    fn verify(&self, location: &str, checksum: &str) -> Result<(), String> {
        if !self.options.verify {
            return Ok(());
        }
        let digest = self.compute_digest(&*self.open_once(location)?);
        let digest = digest.map_err(|error| describe_read_failure(location, &error))?;
        if digest.eq_ignore_ascii_case(checksum.trim()) {
            Ok(())
        } else {
            Err(format!(
                "the data file '{location}' is not the one that the model was written with: its SHA-1 is {digest}, but the model has the checksum {}",
                checksum.escape_debug()
            ))
        }
    }

    fn load_stored(&self, wanted: &StoredValues<'_>) -> Result<Buffer, NotStored> {
        let file = self.open_once(wanted.location).map_err(|message| NotStored {
            message,
            help: Some(stored::ADVICE_ON_FILE.to_string()),
            is_of_file: true,
        })?;
        let bytes = self.load_stored_from(&file, wanted)?;
        if let Some(expected) = wanted.sha256
            && !expected.eq_ignore_ascii_case(&stored::sha256(bytes.as_slice()))
        {
            let what = match wanted.tensor {
                Some(path) => format!("the values of '{}'", sardonyx_proto::shown(path)),
                None => "the values of a tensor".to_string(),
            };
            return Err(stored::changed_error(
                wanted.location,
                &format!(
                    "no longer has {what}: their SHA-256 differs from the one in the ONNX text"
                ),
            ));
        }
        let mut taken = lock(&self.taken);
        let known = taken.iter_mut().find(|known| known.location == wanted.location);
        match known {
            Some(known) => known.values.push(Wanted::from_values(wanted).with_bytes(&bytes)),
            None => taken.push(TakenFrom {
                location: wanted.location.to_string(),
                identity: file.identity,
                values: vec![Wanted::from_values(wanted).with_bytes(&bytes)],
            }),
        }
        Ok(bytes)
    }
}

impl DataFiles {
    /// Loads the elements of a tensor that an ONNX text takes from a data file: at the stated
    /// offset if the digest shows that the file is unchanged, otherwise by the name of the tensor.
    fn load_stored_from(
        &self,
        file: &DataFile,
        wanted: &StoredValues<'_>,
    ) -> Result<Buffer, NotStored> {
        let location = wanted.location;
        let load_at_offset = || {
            let loaded = self.load(location, wanted.offset, wanted.length);
            loaded.map_err(NotStored::new)
        };
        let Some(expected) = wanted.file_digest else {
            return load_at_offset();
        };
        let whole = self
            .read_whole(file)
            .map_err(|error| NotStored::new(describe_read_failure(location, &error)))?;
        let digest = file.file_digest.get_or_init(|| stored::compute_file_digest(whole.as_slice()));
        if digest.as_deref() == Some(expected) {
            return load_at_offset();
        }
        let tensors = file.tensors.get_or_init(|| Tensors::read(whole));
        let tensors = tensors.as_ref().map_err(|why| NotStored {
            is_of_file: true,
            ..stored::changed_error(
                location,
                &format!("has changed since the text was written: {why}"),
            )
        })?;
        let found = tensors.find(&Wanted::from_values(wanted));
        match found.map_err(|why| stored::changed_error(location, &why))? {
            Found::Here(span) => {
                let range = span.offset as usize..(span.offset + span.len) as usize;
                whole.slice(range).map_err(|error| NotStored::new(error.to_string()))
            }
            Found::Beside(reference) => {
                let beside = stored::path_beside(location, &reference.location);
                self.load(&beside, reference.offset, reference.length).map_err(NotStored::new)
            }
        }
    }

    /// Fails if an ONNX text takes tensors from the file `replaced`, which is about to be
    /// overwritten, and would not find them in its new content `successor`; `None` stands for
    /// content that is not a model.
    pub(crate) fn check_successor(
        &self,
        replaced: Identity,
        successor: Option<&sardonyx_model::Model>,
    ) -> Result<(), Error> {
        let taken = lock(&self.taken);
        let mut same = taken.iter().filter(|taken| taken.identity == Some(replaced));
        same.try_for_each(|taken| match successor {
            Some(model) => taken.check_successor(model),
            None => Err(stored::still_needed_error(&taken.location)),
        })
    }

    /// Lists the paths of existing data files from which tensors of an ONNX text were loaded.
    pub(crate) fn list_text_sources(&self) -> Vec<PathBuf> {
        let Place::Directories(directories) = &self.place else {
            return Vec::new();
        };
        let taken = lock(&self.taken);
        let paths = taken.iter().flat_map(|taken| {
            directories.iter().map(|directory| directory.path().join(&taken.location))
        });
        paths.filter(|path| path.exists()).collect()
    }
}

/// Wrapper of [`DataFiles`] that records whether loading a tensor failed: the engine reports only
/// that a tensor has no value.
pub(crate) struct WatchedFiles<'a> {
    files: &'a DataFiles,
    failed: AtomicBool,
}

impl<'a> WatchedFiles<'a> {
    /// Wraps data files; no load has failed yet.
    pub(crate) fn new(files: &'a DataFiles) -> WatchedFiles<'a> {
        WatchedFiles { files, failed: AtomicBool::new(false) }
    }

    /// Whether loading or verifying a tensor failed.
    pub(crate) fn has_failed(&self) -> bool {
        self.failed.load(Ordering::Relaxed)
    }

    /// Records whether `result` is an error, and returns it unchanged.
    fn record_failure<T>(&self, result: Result<T, String>) -> Result<T, String> {
        if result.is_err() {
            self.failed.store(true, Ordering::Relaxed);
        }
        result
    }
}

impl ExternalData for WatchedFiles<'_> {
    fn load(&self, location: &str, offset: u64, length: Option<u64>) -> Result<Buffer, String> {
        self.record_failure(self.files.load(location, offset, length))
    }

    fn verify(&self, location: &str, checksum: &str) -> Result<(), String> {
        self.record_failure(self.files.verify(location, checksum))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn make_options(access: Access) -> DataOptions {
        DataOptions { access, ..DataOptions::default() }
    }

    #[test]
    fn ranges_are_served_from_files_in_the_directory() {
        // EXT-01+, EXT-04+, EXT-06, EXT-08+, EXT-25+
        let scratch = tempfile::tempdir().unwrap();
        let scratch = scratch.path();
        fs::create_dir(scratch.join("données")).unwrap();
        fs::write(scratch.join("données/w.bin"), (0..100).collect::<Vec<u8>>()).unwrap();
        for access in [Access::Map, Access::Read] {
            let directory =
                DataFiles::from_model_path(&scratch.join("model.onnx"), make_options(access));
            let load = |offset, length| directory.load("données/w.bin", offset, length);
            assert_eq!(load(10, Some(3)).unwrap().as_slice(), [10, 11, 12]);
            assert_eq!(load(98, None).unwrap().as_slice(), [98, 99]);
            assert!(load(100, Some(0)).unwrap().is_empty());
            // EXT-14-
            for (offset, length) in
                [(0, Some(101)), (0, Some(1 << 50)), (101, None), (u64::MAX, Some(2))]
            {
                let error = load(offset, length).unwrap_err();
                assert!(error.contains("100 bytes"), "{error}");
            }
        }
    }

    #[test]
    fn locations_that_lead_outside_are_refused() {
        // EXT-02, EXT-09-, EXT-10-, EXT-26-
        let scratch = tempfile::tempdir().unwrap();
        let scratch = scratch.path();
        let directory = DataFiles::from_directory(scratch, DataOptions::default()).unwrap();
        for location in [
            "",
            "../w.bin",
            "a/../w.bin",
            "a\\..\\w.bin",
            "/etc/passwd",
            "\\w.bin",
            "C:w.bin",
            "c:\\w",
            "#mem",
            "a\0b",
        ] {
            let error = directory.load(location, 0, None).unwrap_err();
            assert!(error.starts_with("the data file location"), "{location}: {error}");
        }
        let error = directory.load("w.bin", 0, None).unwrap_err();
        assert!(error.contains("missing") && error.contains("w.bin"), "{error}");
    }

    #[cfg(unix)]
    #[test]
    fn links_may_lead_to_the_real_model_s_directory_only() {
        // EXT-11-, with the exception for caches of links
        use std::os::unix::fs::symlink;
        let scratch = tempfile::tempdir().unwrap();
        let scratch = scratch.path();
        let (snapshot, blobs, elsewhere) =
            (scratch.join("snapshot"), scratch.join("blobs"), scratch.join("elsewhere"));
        for directory in [&snapshot, &blobs, &elsewhere] {
            fs::create_dir(directory).unwrap();
        }
        fs::write(blobs.join("1"), b"model").unwrap();
        fs::write(blobs.join("2"), b"data").unwrap();
        fs::write(elsewhere.join("3"), b"secret").unwrap();
        symlink("../blobs/1", snapshot.join("model.onnx")).unwrap();
        symlink("../blobs/2", snapshot.join("good")).unwrap();
        symlink("../elsewhere/3", snapshot.join("bad")).unwrap();
        symlink("../elsewhere", snapshot.join("sub")).unwrap();
        let directory =
            DataFiles::from_model_path(&snapshot.join("model.onnx"), DataOptions::default());
        assert_eq!(directory.load("good", 0, None).unwrap().as_slice(), b"data");
        // A data file that exists only beside the target of the model's symlink.
        assert_eq!(directory.load("2", 0, None).unwrap().as_slice(), b"data");
        for location in ["bad", "sub/3"] {
            let error = directory.load(location, 0, None).unwrap_err();
            assert!(error.contains("outside"), "{error}");
        }
        let error = directory.load(".", 0, None).unwrap_err();
        assert!(error.contains("regular"), "{error}");
    }

    #[cfg(unix)]
    #[test]
    fn strict_readers_follow_no_link() {
        // EXT-11+-
        use std::os::unix::fs::symlink;
        let scratch = tempfile::tempdir().unwrap();
        let scratch = scratch.path();
        fs::create_dir(scratch.join("sub")).unwrap();
        fs::write(scratch.join("sub/w"), b"data").unwrap();
        symlink("sub/w", scratch.join("link")).unwrap();
        symlink("sub", scratch.join("directory")).unwrap();
        symlink("round", scratch.join("round")).unwrap();
        fs::write(scratch.join("first"), b"data").unwrap();
        fs::hard_link(scratch.join("first"), scratch.join("second")).unwrap();
        let files = |refuse_links| {
            let options = DataOptions { refuse_links, ..DataOptions::default() };
            DataFiles::from_model_path(&scratch.join("m.onnx"), options)
        };
        let (lenient, strict) = (files(false), files(true));
        for location in ["link", "directory/w"] {
            assert_eq!(lenient.load(location, 0, None).unwrap().as_slice(), b"data");
            let error = strict.load(location, 0, None).unwrap_err();
            assert!(error.contains("links are not followed"), "{error}");
        }
        fs::write(scratch.join("plain"), b"plain").unwrap();
        for files in [&lenient, &strict] {
            assert_eq!(files.load("plain", 0, None).unwrap().as_slice(), b"plain");
            let error = files.load("second", 0, None).unwrap_err();
            assert!(error.contains("hard link"), "{error}");
        }
        let error = lenient.load("round", 0, None).unwrap_err();
        assert!(error.contains("symbolic links form a cycle"), "{error}");
    }

    #[cfg(unix)]
    #[test]
    fn a_trusted_directory_may_be_a_link_but_its_files_may_not() {
        // EXT-11+-: the caller chooses the directory, the model only the location
        use std::os::unix::fs::symlink;
        let scratch = tempfile::tempdir().unwrap();
        let scratch = scratch.path();
        let (real, directory) = (scratch.join("real"), scratch.join("directory"));
        fs::create_dir(&real).unwrap();
        symlink("real", &directory).unwrap();
        fs::write(real.join("w"), b"data").unwrap();
        fs::write(scratch.join("outside"), b"secret").unwrap();
        symlink("w", real.join("inside")).unwrap();
        symlink("../outside", real.join("out")).unwrap();
        let strict = DataFiles::from_model_path(
            &directory.join("m.onnx"),
            DataOptions { refuse_links: true, ..DataOptions::default() },
        );
        assert_eq!(strict.load("w", 0, None).unwrap().as_slice(), b"data");
        for access in [DataAccess::Read, DataAccess::Write] {
            let mut file = open_data_file(&directory, "w", access).unwrap();
            let mut content = String::new();
            file.read_to_string(&mut content).unwrap();
            assert_eq!(content, "data");
            for location in ["inside", "out", "../outside", "../real/w"] {
                let error = open_data_file(&directory, location, access).unwrap_err();
                assert_eq!(error.kind(), ErrorKind::ExternalData, "{location}: {error}");
            }
        }
    }

    #[test]
    fn one_file_is_opened_once_and_digests_are_compared_on_request() {
        // EXT-05+-
        let scratch = tempfile::tempdir().unwrap();
        fs::write(scratch.path().join("w"), b"abc").unwrap();
        let files = |access, verify| {
            let options = DataOptions { access, verify, ..DataOptions::default() };
            DataFiles::from_model_path(&scratch.path().join("m.onnx"), options)
        };
        let mapped = files(Access::Map, true);
        let start = |location| mapped.load(location, 0, None).unwrap().as_slice().as_ptr();
        #[cfg(unix)]
        assert_eq!(start("w"), start("./w"));
        for files in [mapped, files(Access::Read, true)] {
            let right = "A9993E364706816aba3e25717850c26c9cd0d89d";
            files.verify("w", right).unwrap();
            let error = files.verify("w", "00").unwrap_err();
            assert!(error.contains("a9993e"), "{error}");
        }
        files(Access::Map, false).verify("w", "00").unwrap();
    }

    #[test]
    fn a_file_that_is_read_in_parts_stays_the_same_or_is_refused() {
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join("w");
        fs::write(&path, b"abcdef").unwrap();
        let whole = DataOptions { whole: true, ..make_options(Access::Read) };
        let [apart, whole] = [make_options(Access::Read), whole]
            .map(|options| DataFiles::from_model_path(&scratch.path().join("m.onnx"), options));
        for files in [&apart, &whole] {
            assert_eq!(files.load("w", 1, Some(2)).unwrap().as_slice(), b"bc");
            assert!(files.list_mapped_files().is_empty());
        }
        fs::write(&path, b"ABC").unwrap();
        for length in [1, 4] {
            let error = apart.load("w", 2, Some(length)).unwrap_err();
            assert!(error.contains("has been changed or replaced"), "{error}");
        }
        assert_eq!(whole.load("w", 2, Some(4)).unwrap().as_slice(), b"cdef");
        fs::remove_file(&path).unwrap();
        let error = apart.load("w", 0, None).unwrap_err();
        assert!(error.contains("no such file"), "{error}");
    }
}

//! Values that lie in files beside the model.
//!
//! A location comes from the model, and so from whoever made it. It may only lead to regular files
//! in the model's directory, or, when the model file is itself a link (as in a Hugging Face cache,
//! where a directory of links points into a directory of blobs), in the directory of the real model
//! file. That is decided by opening it beneath those directories.

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

use crate::beneath::{Directory, Identity, Refusal, identity};
use crate::error::{Error, ErrorKind};
use crate::mapping;
use crate::open::{Access, read_stream};
use crate::stamp::Stamp;
use crate::stored::{self, Found, TakenFrom, Tensors, Wanted};

/// Finds the data files of a model by their locations: in memory, in an archive, in a store of
/// one's own.
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
    /// The whole file that a location means. Asked once per location. The location is what the
    /// model says, unchecked.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::NotFound`] if there is no such file, else whatever kept it from being read.
    fn resolve(&self, location: &str) -> io::Result<Buffer>;
}

impl<S: std::hash::BuildHasher + Send + Sync> DataResolver for HashMap<String, Buffer, S> {
    fn resolve(&self, location: &str) -> io::Result<Buffer> {
        let found = self.get(location).cloned();
        found.ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}

/// The data files of a model. Each is opened once, for all tensors and all sessions.
pub(crate) struct DataFiles {
    place: Place,
    options: DataOptions,
    opened: Mutex<Opened>,
    /// The files from which a text took values.
    taken: Mutex<Vec<TakenFrom>>,
}

enum Place {
    /// Where to look, in this order. Files must lie in one of them.
    Directories(Vec<Directory>),
    Resolver(Arc<dyn DataResolver>),
    /// Not to be found, for this reason.
    Nowhere(&'static str),
}

#[derive(Default)]
struct Opened {
    by_location: HashMap<String, Arc<DataFile>>,
    /// One file may have several locations.
    by_identity: HashMap<Identity, Arc<DataFile>>,
}

struct DataFile {
    content: Content,
    identity: Option<Identity>,
    /// The file as it was when it was mapped or first looked at.
    stamp: Option<Arc<Stamp>>,
    /// SHA-1 of the content, hexadecimal, once it was asked for.
    digest: Mutex<Option<String>>,
    /// All of it, if it was needed whole and is not already.
    whole: OnceLock<Buffer>,
    /// What tells it from others for texts that refer to it.
    file_digest: OnceLock<Option<String>>,
    /// Its tensors, if it is a model and a text looks for them.
    tensors: OnceLock<Result<Tensors, String>>,
}

enum Content {
    Whole(Buffer),
    /// In a file of that location and size, which is opened for each read: a model may have
    /// hundreds of data files, and a process only so many descriptors.
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

/// How data files are opened.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct DataOptions {
    pub(crate) access: Access,
    /// Whether files that are not mapped are read whole when they are opened.
    pub(crate) whole: bool,
    /// Whether data files are opened only if no component of their path is a symbolic link.
    pub(crate) refuse_links: bool,
    /// Whether digests are compared.
    pub(crate) verify: bool,
}

impl DataFiles {
    /// Those beside a model file, and beside the real file if it is a link.
    pub(crate) fn beside(model: &Path, options: DataOptions) -> DataFiles {
        let of_link = Directory::open(directory_of(model)).ok();
        let of_file = fs::canonicalize(model)
            .ok()
            .filter(|_| !options.refuse_links)
            .and_then(|real| Directory::open(directory_of(&real)).ok());
        let mut directories: Vec<Directory> = of_link.into_iter().chain(of_file).collect();
        directories.dedup_by(|a, b| a.path() == b.path());
        DataFiles::new(Place::Directories(directories), options)
    }

    /// Those in a directory named by the caller.
    pub(crate) fn at(directory: &Path, options: DataOptions) -> io::Result<DataFiles> {
        let directories = vec![Directory::open(directory)?];
        Ok(DataFiles::new(Place::Directories(directories), options))
    }

    pub(crate) fn from_resolver(
        resolver: Arc<dyn DataResolver>,
        options: DataOptions,
    ) -> DataFiles {
        DataFiles::new(Place::Resolver(resolver), options)
    }

    /// None at all; `why` completes "values are in the file …, and".
    pub(crate) fn nowhere(why: &'static str) -> DataFiles {
        DataFiles::new(Place::Nowhere(why), DataOptions::default())
    }

    fn new(place: Place, options: DataOptions) -> DataFiles {
        DataFiles { place, options, opened: Mutex::default(), taken: Mutex::default() }
    }

    /// Whether there is a place where files could be.
    pub(crate) fn has_place(&self) -> bool {
        !matches!(self.place, Place::Nowhere(_))
    }

    /// The directory whose files a location means first.
    pub(crate) fn directory(&self) -> Option<&Path> {
        match &self.place {
            Place::Directories(directories) => directories.first().map(Directory::path),
            _ => None,
        }
    }

    /// Size of a data file in bytes.
    ///
    /// # Errors
    ///
    /// In words for people; see [`ExternalData::load`].
    pub(crate) fn size(&self, location: &str) -> Result<u64, String> {
        self.file(location).map(|file| file.size())
    }

    fn file(&self, location: &str) -> Result<Arc<DataFile>, String> {
        let mut opened = lock(&self.opened);
        if let Some(file) = opened.by_location.get(location) {
            return Ok(Arc::clone(file));
        }
        let (content, identity, stamp) = match &self.place {
            Place::Directories(directories) => {
                let found = self.find(directories, location);
                let FoundFile { file, path, len, identity, .. } =
                    found.map_err(|missed| missed.words(location))?;
                let failed = |error| unreadable(location, &error);
                let stamp = Stamp::of(&path, &file).map_err(failed)?;
                let known = identity.and_then(|identity| opened.by_identity.get(&identity));
                if let Some(known) = known.map(Arc::clone) {
                    opened.by_location.insert(location.to_string(), Arc::clone(&known));
                    return Ok(known);
                }
                let content = match self.options.access {
                    Access::Map | Access::Share => {
                        Content::Whole(mapping::map(&file).map_err(failed)?)
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
                let found = found.map_err(|error| unreadable(location, &error))?;
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

    /// The data files that are mapped, as they were then.
    pub(crate) fn stamps(&self) -> Vec<Arc<Stamp>> {
        if !self.options.access.maps() {
            return Vec::new();
        }
        let opened = lock(&self.opened);
        let mut seen = HashSet::new();
        let files = opened.by_location.values().filter(|file| seen.insert(Arc::as_ptr(file)));
        files.filter_map(|file| file.stamp.clone()).collect()
    }

    /// The same files, of which those of some locations are in memory of their own.
    ///
    /// # Errors
    ///
    /// In words for people, if memory is refused. A file that is missing stays so.
    pub(crate) fn in_own_memory(
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
            // What cannot be opened is told of where its values are needed.
            let Ok(file) = self.file(&location) else { continue };
            let unreadable = |error: io::Error| unreadable(&location, &error);
            let whole = self.whole(&file).map_err(unreadable)?;
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

    /// Opens a file again that is not in memory.
    ///
    /// # Errors
    ///
    /// It is another file by now, has been changed, or cannot be opened.
    fn reopen(&self, location: &str, file: &DataFile) -> io::Result<File> {
        let Place::Directories(directories) = &self.place else {
            return Err(io::ErrorKind::NotFound.into());
        };
        let found = self.find(directories, location);
        let found = found.map_err(|missed| match missed {
            Missed::Refused(Refusal::Io(error)) => error,
            Missed::Missing(_) => io::ErrorKind::NotFound.into(),
            other => io::Error::other(other.words(location)),
        })?;
        match &file.stamp {
            Some(stamp) if !stamp.is_of(&found.file)? => {
                Err(io::Error::other("it has been changed or replaced since it was first read"))
            }
            _ => Ok(found.file),
        }
    }

    /// All of a file.
    fn whole<'f>(&self, file: &'f DataFile) -> io::Result<&'f Buffer> {
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

    /// SHA-1 of the content of a file, hexadecimal.
    fn digest(&self, file: &DataFile) -> io::Result<String> {
        let mut known = lock(&file.digest);
        if let Some(digest) = &*known {
            return Ok(digest.clone());
        }
        let digest = match &file.content {
            Content::Whole(bytes) => hex(&Sha1::digest(bytes.as_slice())),
            Content::Apart(location, _) => sha1_of(&self.reopen(location, file)?)?,
        };
        *known = Some(digest.clone());
        Ok(digest)
    }

    /// Looks at the file that a location means, without reading it.
    pub(crate) fn look(&self, location: &str) -> Result<FoundFile, Missed> {
        match &self.place {
            Place::Directories(directories) => self.find(directories, location),
            Place::Resolver(_) | Place::Nowhere(_) => Err(Missed::Missing(Vec::new())),
        }
    }

    /// Opens the file that a location means in the first directory that has one.
    fn find(&self, directories: &[Directory], location: &str) -> Result<FoundFile, Missed> {
        check_location(location).map_err(Missed::Location)?;
        let mut looked = Vec::new();
        for directory in directories {
            let mut through_link = false;
            let opened = match directory.open_file(Path::new(location)) {
                Err(Refusal::Link) if !self.options.refuse_links => {
                    through_link = true;
                    follow(directories, &directory.path().join(location))?
                }
                other => other,
            };
            let looked_at = |file: File| {
                Ok(FoundFile {
                    path: directory.path().join(location),
                    len: file.metadata()?.len(),
                    identity: identity(&file)?,
                    file,
                    through_link,
                })
            };
            match opened.and_then(|file| looked_at(file).map_err(Refusal::Io)) {
                Err(Refusal::Io(error)) if error.kind() == io::ErrorKind::NotFound => {
                    looked.push(directory.path().join(location));
                }
                other => return other.map_err(Missed::Refused),
            }
        }
        Err(Missed::Missing(looked))
    }
}

/// What a data file is opened for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum DataAccess {
    /// Reading.
    Read,
    /// Reading and writing. A file that is not there is made, for its owner only.
    Write,
}

/// Opens the data file that a location means in a directory. As strict as can be: no links, also
/// not to the directory itself, no file with a second name, nothing but regular files.
///
/// # Errors
///
/// [`ErrorKind::ExternalData`] if the file is missing or refused.
pub fn open_data_file(
    directory: impl AsRef<Path>,
    location: &str,
    access: DataAccess,
) -> Result<File, Error> {
    let directory = directory.as_ref();
    let refused = |why| Error::new(ErrorKind::ExternalData, why);
    check_location(location).map_err(refused)?;
    // An empty path is the directory of the process, as for files.
    let path = if directory.as_os_str().is_empty() { Path::new(".") } else { directory };
    let opened = Directory::open(path).map_err(Refusal::Io).and_then(|directory| match access {
        DataAccess::Read => directory.open_file(Path::new(location)),
        DataAccess::Write => directory.open_to_write(Path::new(location)),
    });
    opened.map_err(|refusal| refused(Missed::Refused(refusal).words(location)))
}

/// A data file, open.
pub(crate) struct FoundFile {
    pub(crate) file: File,
    /// The path by which it was found.
    pub(crate) path: PathBuf,
    /// Its size in bytes.
    pub(crate) len: u64,
    pub(crate) identity: Option<Identity>,
    /// Whether a link led there.
    pub(crate) through_link: bool,
}

/// Why a data file is not opened.
#[derive(Debug)]
pub(crate) enum Missed {
    /// Its location is refused, for this reason.
    Location(String),
    /// It is in none of these places.
    Missing(Vec<PathBuf>),
    /// It is a link, and what that leads to is missing.
    DanglingLink,
    /// It is a link that leads here, out of the directories.
    Outside(PathBuf),
    /// It is there and is not opened.
    Refused(Refusal),
}

impl Missed {
    /// In words for people.
    pub(crate) fn words(&self, location: &str) -> String {
        match self {
            Missed::Location(why) => why.clone(),
            Missed::Missing(looked) => {
                let looked: Vec<String> =
                    looked.iter().map(|path| path.display().to_string()).collect();
                format!(
                    "values are in the file '{location}', which is missing; looked for {}",
                    looked.join(" and ")
                )
            }
            Missed::DanglingLink => format!("'{location}' is a link to a file that is missing"),
            Missed::Outside(real) => format!(
                "'{location}' is a link to {}, outside of the model's directory, and is not read",
                real.display()
            ),
            Missed::Refused(Refusal::Link) => {
                format!("'{location}' is or contains a symbolic link, and links are not followed")
            }
            Missed::Refused(Refusal::Kind(kind)) => {
                format!("'{location}' is {kind}; values are read only from regular files")
            }
            Missed::Refused(Refusal::HardLink) => format!(
                "'{location}' has more than one hard link, so it may be another user's file, and is not read; a copy of it can be used"
            ),
            Missed::Refused(Refusal::Io(error)) => unreadable(location, error),
        }
    }
}

/// Opens what a path with links leads to, if that lies in one of the directories.
fn follow(directories: &[Directory], path: &Path) -> Result<Result<File, Refusal>, Missed> {
    let real = match fs::canonicalize(path) {
        Ok(real) => real,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(Missed::DanglingLink),
        Err(error) => return Err(Missed::Refused(Refusal::Io(error))),
    };
    // The real path has no links, and none are allowed when it is opened: if one was put there
    // meanwhile, that fails.
    for directory in directories {
        if let Ok(relative) = real.strip_prefix(directory.path()) {
            return Ok(directory.open_file(relative));
        }
    }
    Err(Missed::Outside(real))
}

fn unreadable(location: &str, error: &io::Error) -> String {
    let reason = match error.kind() {
        io::ErrorKind::NotFound => "no such file".to_string(),
        io::ErrorKind::PermissionDenied => "permission denied".to_string(),
        // Its kind has no stable name yet.
        _ if error.to_string().contains("symbolic links") => {
            "its symbolic links form a cycle".to_string()
        }
        _ => error.to_string(),
    };
    format!("its file '{location}' cannot be read: {reason}")
}

/// The directory of a file, as a path that can be opened.
pub(crate) fn directory_of(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

// A panic elsewhere cannot leave what is behind these locks half changed.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Bytes. No system opens longer paths.
const LONGEST_LOCATION: usize = 4096;

/// Refuses what cannot be a path within the directory, by the rules of every system: a model must
/// not be safe here and harmful elsewhere.
pub(crate) fn check_location(location: &str) -> Result<(), String> {
    let refused = |why: &str| Err(format!("its location '{}' {why}", location.escape_debug()));
    let bytes = location.as_bytes();
    if bytes.is_empty() {
        return refused("is empty");
    }
    if bytes.len() > LONGEST_LOCATION {
        return Err(format!(
            "its location has {} bytes, which is too long for a path",
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
    fn size(&self) -> u64 {
        match &self.content {
            Content::Whole(bytes) => bytes.len() as u64,
            Content::Apart(_, size) => *size,
        }
    }
}

/// SHA-1 of a file, hexadecimal.
pub(crate) fn sha1_of(mut file: &File) -> io::Result<String> {
    let mut hasher = Sha1::new();
    file.seek(SeekFrom::Start(0))?;
    io::copy(&mut file, &mut HashWriter(&mut hasher))?;
    Ok(hex(&hasher.finalize()))
}

/// Feeds what is written to a digest.
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

/// Bytes as lower-case hexadecimal digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

impl ExternalData for DataFiles {
    fn load(&self, location: &str, offset: u64, length: Option<u64>) -> Result<Buffer, String> {
        let file = self.file(location)?;
        let size = file.size();
        let end = match length {
            Some(length) => offset.checked_add(length),
            None => Some(size),
        };
        let Some(end) = end.filter(|end| *end <= size && offset <= *end) else {
            let wanted = length.map_or(String::new(), |length| format!("{length} bytes "));
            return Err(format!(
                "its {wanted}at {offset} are beyond the end of '{location}', which has {size} bytes; the file may be truncated"
            ));
        };
        let range = |n: u64| {
            usize::try_from(n).map_err(|_| format!("byte {n} of '{location}' cannot be addressed"))
        };
        match &file.content {
            Content::Whole(bytes) => {
                bytes.slice(range(offset)?..range(end)?).map_err(|error| error.to_string())
            }
            Content::Apart(location, _) => {
                let mut bytes = Vec::new();
                let len = range(end - offset)?;
                bytes
                    .try_reserve_exact(len)
                    .map_err(|_| format!("not enough memory for its {len} bytes"))?;
                let read = self.reopen(location, &file).and_then(|mut file| {
                    file.seek(SeekFrom::Start(offset))?;
                    file.take(end - offset).read_to_end(&mut bytes)
                });
                match read {
                    Ok(n) if n == len => Ok(Buffer::from_vec(bytes)),
                    Ok(_) => Err(format!("'{location}' was truncated while it was read")),
                    Err(error) => Err(unreadable(location, &error)),
                }
            }
        }
    }

    fn verify(&self, location: &str, checksum: &str) -> Result<(), String> {
        if !self.options.verify {
            return Ok(());
        }
        let digest = self.digest(&*self.file(location)?);
        let digest = digest.map_err(|error| unreadable(location, &error))?;
        if digest.eq_ignore_ascii_case(checksum.trim()) {
            Ok(())
        } else {
            Err(format!(
                "'{location}' is not the file that the model was written with: its SHA-1 is {digest}, but the model has {}",
                checksum.escape_debug()
            ))
        }
    }

    fn stored(&self, wanted: &StoredValues<'_>) -> Result<Buffer, NotStored> {
        let of_file = |message| NotStored {
            message,
            help: Some(stored::ADVICE_ON_FILE.to_string()),
            is_of_file: true,
        };
        let file = self.file(wanted.location).map_err(of_file)?;
        let bytes = self.stored_in(&file, wanted)?;
        let digest = wanted.sha256.map(|said| (said, stored::sha256(bytes.as_slice())));
        if let Some((said, digest)) = digest
            && !said.eq_ignore_ascii_case(&digest)
        {
            let what = match wanted.tensor {
                Some(path) => format!("the values of '{}'", sardonyx_proto::shown(path)),
                None => "these values".to_string(),
            };
            return Err(stored::changed(
                wanted.location,
                &format!(
                    "does not have {what} any longer: the SHA-256 differs from the one in the text"
                ),
            ));
        }
        let mut taken = lock(&self.taken);
        let known = taken.iter_mut().find(|known| known.location == wanted.location);
        match known {
            Some(known) => known.values.push(Wanted::of(wanted).with(&bytes)),
            None => taken.push(TakenFrom {
                location: wanted.location.to_string(),
                identity: file.identity,
                values: vec![Wanted::of(wanted).with(&bytes)],
            }),
        }
        Ok(bytes)
    }
}

impl DataFiles {
    /// Values that a text has in a file: where it says if the file is still what it was, otherwise
    /// where they are now.
    fn stored_in(&self, file: &DataFile, wanted: &StoredValues<'_>) -> Result<Buffer, NotStored> {
        let location = wanted.location;
        let here = || {
            let loaded = self.load(location, wanted.offset, wanted.length);
            loaded.map_err(NotStored::new)
        };
        let Some(said) = wanted.file_digest else {
            return here();
        };
        let whole =
            self.whole(file).map_err(|error| NotStored::new(unreadable(location, &error)))?;
        let digest = file.file_digest.get_or_init(|| stored::file_digest(whole.as_slice()));
        if digest.as_deref() == Some(said) {
            return here();
        }
        let tensors = file.tensors.get_or_init(|| Tensors::of(whole));
        let tensors = tensors.as_ref().map_err(|why| NotStored {
            is_of_file: true,
            ..stored::changed(location, &format!("has changed since the text was written: {why}"))
        })?;
        let found = tensors.find(&Wanted::of(wanted));
        match found.map_err(|why| stored::changed(location, &why))? {
            Found::Here(span) => {
                let range = span.offset as usize..(span.offset + span.len) as usize;
                whole.slice(range).map_err(|error| NotStored::new(error.to_string()))
            }
            Found::Beside(reference) => {
                let beside = stored::beside(location, &reference.location);
                self.load(&beside, reference.offset, reference.length).map_err(NotStored::new)
            }
        }
    }

    /// Refuses `successor`, which is going to replace a file, if a text took values from that file
    /// and would not find them again.
    pub(crate) fn check_successor(
        &self,
        replaced: Identity,
        successor: Option<&sardonyx_model::Model>,
    ) -> Result<(), Error> {
        let taken = lock(&self.taken);
        let mut same = taken.iter().filter(|taken| taken.identity == Some(replaced));
        same.try_for_each(|taken| match successor {
            Some(model) => taken.check_successor(model),
            None => Err(stored::still_needed(&taken.location)),
        })
    }

    /// Where the files are from which a text took values.
    pub(crate) fn taken_from(&self) -> Vec<PathBuf> {
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

/// Loads and remembers whether that failed: whoever compiles the model reports only that some
/// tensor has no value.
pub(crate) struct Watched<'a> {
    files: &'a DataFiles,
    failed: AtomicBool,
}

impl<'a> Watched<'a> {
    pub(crate) fn new(files: &'a DataFiles) -> Watched<'a> {
        Watched { files, failed: AtomicBool::new(false) }
    }

    pub(crate) fn failed(&self) -> bool {
        self.failed.load(Ordering::Relaxed)
    }

    fn watch<T>(&self, result: Result<T, String>) -> Result<T, String> {
        if result.is_err() {
            self.failed.store(true, Ordering::Relaxed);
        }
        result
    }
}

impl ExternalData for Watched<'_> {
    fn load(&self, location: &str, offset: u64, length: Option<u64>) -> Result<Buffer, String> {
        self.watch(self.files.load(location, offset, length))
    }

    fn verify(&self, location: &str, checksum: &str) -> Result<(), String> {
        self.watch(self.files.verify(location, checksum))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(access: Access) -> DataOptions {
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
            let directory = DataFiles::beside(&scratch.join("model.onnx"), options(access));
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
        let directory = DataFiles::at(scratch, DataOptions::default()).unwrap();
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
            assert!(error.starts_with("its location"), "{location}: {error}");
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
        let directory = DataFiles::beside(&snapshot.join("model.onnx"), DataOptions::default());
        assert_eq!(directory.load("good", 0, None).unwrap().as_slice(), b"data");
        // A sidecar that only lies beside the real file.
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
            DataFiles::beside(&scratch.join("m.onnx"), options)
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

    #[test]
    fn one_file_is_opened_once_and_digests_are_compared_on_request() {
        // EXT-05+-
        let scratch = tempfile::tempdir().unwrap();
        fs::write(scratch.path().join("w"), b"abc").unwrap();
        let files = |access, verify| {
            let options = DataOptions { access, verify, ..DataOptions::default() };
            DataFiles::beside(&scratch.path().join("m.onnx"), options)
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
        let whole = DataOptions { whole: true, ..options(Access::Read) };
        let [apart, whole] = [options(Access::Read), whole]
            .map(|options| DataFiles::beside(&scratch.path().join("m.onnx"), options));
        for files in [&apart, &whole] {
            assert_eq!(files.load("w", 1, Some(2)).unwrap().as_slice(), b"bc");
            assert!(files.stamps().is_empty());
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

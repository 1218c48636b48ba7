//! Detects changes of a file since it was mapped or first read, by inode, size and times.

use std::fs::{self, File, Metadata};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use sardonyx_tensor::Buffer;

use crate::beneath::Identity;
use crate::error::{Error, ErrorKind};

/// Inode, size and times of a file when it was opened. Holds no descriptor.
#[derive(Debug, Clone)]
pub(crate) struct Stamp {
    /// Absolute path, so that it stays valid if the process changes its working directory.
    path: PathBuf,
    facts: Facts,
}

/// A file that is mapped into memory.
#[derive(Debug, Clone)]
pub(crate) struct MappedFile {
    /// All bytes of the file.
    pub(crate) bytes: Buffer,
    /// Identity, size and times when it was mapped.
    pub(crate) stamp: Arc<Stamp>,
}

/// Inode, size and times of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Facts {
    identity: Option<Identity>,
    len: u64,
    /// Time of the last change of the content (mtime).
    written: Time,
    /// Time of the last change of content, name or permissions (ctime), which programs cannot set
    /// back.
    changed: Time,
}

/// Seconds and nanoseconds since the epoch.
type Time = (i64, i64);

impl Facts {
    /// Reads inode, size and times from the metadata of a file.
    #[cfg(unix)]
    fn from_metadata(metadata: &Metadata) -> Facts {
        use std::os::unix::fs::MetadataExt;
        Facts {
            identity: Some((metadata.dev(), metadata.ino())),
            len: metadata.len(),
            written: (metadata.mtime(), metadata.mtime_nsec()),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        }
    }

    /// Reads size and modification time from the metadata of a file.
    #[cfg(not(unix))]
    fn from_metadata(metadata: &Metadata) -> Facts {
        let since = metadata.modified().ok();
        let since = since.and_then(|time| time.duration_since(std::time::UNIX_EPOCH).ok());
        let written = since.map_or((0, 0), |since| {
            (i64::try_from(since.as_secs()).unwrap_or(i64::MAX), i64::from(since.subsec_nanos()))
        });
        Facts { identity: None, len: metadata.len(), written, changed: written }
    }
}

/// Opens a file for reading. Does not wait for a writer if the path leads to a pipe by now.
#[cfg(unix)]
fn open_file(path: &Path) -> io::Result<File> {
    use rustix::fs::{Mode, open};
    Ok(File::from(open(path, crate::beneath::READ, Mode::empty())?))
}

/// Opens a file for reading.
#[cfg(not(unix))]
fn open_file(path: &Path) -> io::Result<File> {
    File::open(path)
}

impl Stamp {
    /// Reads the stamp of an open file.
    pub(crate) fn new(path: &Path, file: &File) -> io::Result<Stamp> {
        let path = std::path::absolute(path)?;
        Ok(Stamp { path, facts: Facts::from_metadata(&file.metadata()?) })
    }

    /// Opens the file. `None` if its path leads to another file, or its content was changed.
    pub(crate) fn reopen(&self) -> Option<File> {
        // Without an inode, another file at the path could pass for it.
        self.facts.identity?;
        let file = open_file(&self.path).ok()?;
        self.matches(&file).is_ok_and(|matches| matches).then_some(file)
    }

    /// Whether an open file has the same inode, size and time of the last write.
    pub(crate) fn matches(&self, file: &File) -> io::Result<bool> {
        let facts = Facts::from_metadata(&file.metadata()?);
        Ok(facts.identity == self.facts.identity && !self.has_other_content(facts))
    }

    /// Whether size or modification time differ from those of the stamp.
    fn has_other_content(&self, found: Facts) -> bool {
        (found.len, found.written) != (self.facts.len, self.facts.written)
    }

    /// Fails if the file was replaced, changed, touched or removed since the stamp was taken.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Io`] with the path of the file.
    pub(crate) fn demand_unchanged(&self) -> Result<(), Error> {
        let found = match fs::metadata(&self.path) {
            Ok(metadata) => Facts::from_metadata(&metadata),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(self.changed_error("is missing"));
            }
            Err(error) => {
                return Err(self.changed_error(&format!("cannot be inspected: {error}")));
            }
        };
        if found == self.facts {
            return Ok(());
        }
        Err(if found.identity != self.facts.identity {
            self.changed_error("has been replaced by another file since it was opened")
        } else if found.len != self.facts.len {
            let (len, before) = (found.len, self.facts.len);
            self.changed_error(&format!("has {len} bytes and had {before} when it was opened"))
        } else {
            self.changed_error("has been changed since it was opened")
        })
    }

    /// Fails if the content of the file was changed in place since the stamp was taken. A replaced
    /// or removed file is accepted, because a mapping keeps its old content.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Io`] with the path of the file.
    pub(crate) fn demand_unchanged_content(&self) -> Result<(), Error> {
        let Ok(metadata) = fs::metadata(&self.path) else { return Ok(()) };
        let found = Facts::from_metadata(&metadata);
        if found.identity == self.facts.identity && self.has_other_content(found) {
            return Err(self.changed_error("has been changed in place since it was opened"));
        }
        Ok(())
    }

    /// Makes the error about a changed file; `how` completes "the file …".
    fn changed_error(&self, how: &str) -> Error {
        let message = format!("the file {how}; its weights are not used");
        Error::new(ErrorKind::Io, message).with_place(self.path.display().to_string()).with_help(
            "open the model again; save models as new files that replace the old ones, or make \
             sessions that have weights of their own (the default)",
        )
    }
}

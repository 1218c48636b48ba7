//! Identity, size and times of a file, which reveal changes since it was mapped or first read.

use std::fs::{self, File, Metadata};
use std::io;
use std::path::{Path, PathBuf};

use crate::beneath::Identity;
use crate::error::{Error, ErrorKind};

/// A file as it was when it was opened: identity, size and times. Takes no descriptor.
#[derive(Debug, Clone)]
pub(crate) struct Stamp {
    /// Absolute, so that it means the same wherever the process goes.
    path: PathBuf,
    facts: Facts,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Facts {
    identity: Option<Identity>,
    len: u64,
    /// When the content changed last, as the system says it.
    written: Time,
    /// When content, name or rights changed last. Programs cannot set it back.
    changed: Time,
}

/// Seconds and nanoseconds.
type Time = (i64, i64);

impl Facts {
    #[cfg(unix)]
    fn of(metadata: &Metadata) -> Facts {
        use std::os::unix::fs::MetadataExt;
        Facts {
            identity: Some((metadata.dev(), metadata.ino())),
            len: metadata.len(),
            written: (metadata.mtime(), metadata.mtime_nsec()),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        }
    }

    #[cfg(not(unix))]
    fn of(metadata: &Metadata) -> Facts {
        let since = metadata.modified().ok();
        let since = since.and_then(|time| time.duration_since(std::time::UNIX_EPOCH).ok());
        let written = since.map_or((0, 0), |since| {
            (i64::try_from(since.as_secs()).unwrap_or(i64::MAX), i64::from(since.subsec_nanos()))
        });
        Facts { identity: None, len: metadata.len(), written, changed: written }
    }
}

impl Stamp {
    /// The stamp of an open file.
    pub(crate) fn new(path: &Path, file: &File) -> io::Result<Stamp> {
        let path = std::path::absolute(path)?;
        Ok(Stamp { path, facts: Facts::of(&file.metadata()?) })
    }

    /// Whether an open file is the same, with the same content as far as size and times tell.
    pub(crate) fn matches(&self, file: &File) -> io::Result<bool> {
        let facts = Facts::of(&file.metadata()?);
        Ok(facts.identity == self.facts.identity && !self.has_other_content(facts))
    }

    fn has_other_content(&self, found: Facts) -> bool {
        (found.len, found.written) != (self.facts.len, self.facts.written)
    }

    /// Refuses a file that is not the one that was mapped, or was touched since.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Io`] with the path of the file.
    pub(crate) fn demand_same(&self) -> Result<(), Error> {
        let found = match fs::metadata(&self.path) {
            Ok(metadata) => Facts::of(&metadata),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(self.changed("is missing"));
            }
            Err(error) => return Err(self.changed(&format!("cannot be looked at: {error}"))),
        };
        if found == self.facts {
            return Ok(());
        }
        Err(if found.identity != self.facts.identity {
            self.changed("has been replaced by another file since it was opened")
        } else if found.len != self.facts.len {
            let (len, before) = (found.len, self.facts.len);
            self.changed(&format!("has {len} bytes and had {before} when it was opened"))
        } else {
            self.changed("has been changed since it was opened")
        })
    }

    /// Refuses a file whose content has been changed where it lies. A file that was replaced or
    /// removed stays what it was for those that have it mapped.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Io`] with the path of the file.
    pub(crate) fn demand_same_content(&self) -> Result<(), Error> {
        let Ok(metadata) = fs::metadata(&self.path) else { return Ok(()) };
        let found = Facts::of(&metadata);
        if found.identity == self.facts.identity && self.has_other_content(found) {
            return Err(self.changed("has been changed where it lies since it was opened"));
        }
        Ok(())
    }

    fn changed(&self, how: &str) -> Error {
        let message = format!("the file {how}; its weights are not used");
        Error::new(ErrorKind::Io, message).with_place(self.path.display().to_string()).with_help(
            "open the model again; save models as new files that replace the old ones, or make \
             sessions that have weights of their own (the default)",
        )
    }
}

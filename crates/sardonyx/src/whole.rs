//! Files that are created atomically.

use std::fs;
use std::io::{self, BufWriter, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use crate::external::get_directory;
use crate::unfinished::{Unfinished, remove_abandoned_once};

/// A file that is written under a temporary name, or none, and renamed to its path when it is
/// complete. A file that is dropped before is removed; if the process is killed, the next process
/// that writes to the directory removes the unfinished file. [`Model::save`](crate::Model::save)
/// also replaces data files.
#[derive(Debug)]
pub struct WholeFile {
    file: BufWriter<Content>,
    path: PathBuf,
}

/// Unbuffered unfinished file. Dropping it removes its temporary name.
#[derive(Debug)]
struct Content(Unfinished);

impl WholeFile {
    /// Creates an empty file that will have this path when it is finished.
    ///
    /// # Errors
    ///
    /// [`io::Error`] if the path has no file name, or no file can be created in its directory.
    pub fn create(path: impl Into<PathBuf>) -> io::Result<WholeFile> {
        let path = path.into();
        let name = path.file_name().ok_or(io::ErrorKind::InvalidFilename)?;
        let directory = get_directory(&path);
        remove_abandoned_once(directory, name);
        let file = Content(Unfinished::create(directory)?);
        Ok(WholeFile { file: BufWriter::new(file), path })
    }

    /// Sets the permissions of the file, for instance to those of the file that it will replace.
    ///
    /// # Errors
    ///
    /// [`io::Error`] if the system does not allow it.
    pub fn set_permissions(&self, permissions: fs::Permissions) -> io::Result<()> {
        self.file.get_ref().0.file().set_permissions(permissions)
    }

    /// Completes the file: renames it to its path, and replaces an existing file.
    ///
    /// # Errors
    ///
    /// [`io::Error`] of writing and renaming; the file is removed then.
    pub fn finish(self) -> io::Result<()> {
        let path = self.path.clone();
        self.finish_as(&path)
    }

    /// Completes the file: renames it to another path in the same directory, and replaces an
    /// existing file.
    pub(crate) fn finish_as(mut self, path: &Path) -> io::Result<()> {
        self.file.flush()?;
        self.file.get_mut().0.rename_to(path)
    }
}

impl Write for Content {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.file().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.file().flush()
    }
}

impl Seek for Content {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.0.file().seek(to)
    }
}

impl Drop for Content {
    fn drop(&mut self) {
        self.0.discard();
    }
}

impl Write for WholeFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl Seek for WholeFile {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.file.seek(to)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_there_when_it_is_complete() -> io::Result<()> {
        let directory = tempfile::tempdir()?;
        let path = directory.path().join("a");
        let files = || fs::read_dir(directory.path()).map(Iterator::count);
        let mut file = WholeFile::create(&path)?;
        file.write_all(b"new")?;
        assert!(!path.exists());
        drop(file);
        assert_eq!(files()?, 0);

        fs::write(&path, b"old")?;
        let mut file = WholeFile::create(&path)?;
        file.write_all(b"new")?;
        assert_eq!(fs::read(&path)?, b"old");
        file.finish()?;
        assert_eq!(fs::read(&path)?, b"new");
        assert_eq!(files()?, 1);
        Ok(())
    }
}

//! Files that appear whole or not at all.

use std::fs::{self, File};
use std::io::{self, BufWriter, Seek, SeekFrom, Write};
use std::path::PathBuf;

/// A file that is written beside the one it will replace, and takes its name when it is complete.
/// Dropped before that, it is removed. What a save of a model does beyond this is in
/// [`Model::save`](crate::Model::save).
#[derive(Debug)]
pub struct WholeFile {
    file: BufWriter<File>,
    /// Its name until then; empty once it has its own.
    temporary: PathBuf,
    path: PathBuf,
}

impl WholeFile {
    /// Begins a file that will have this path.
    ///
    /// # Errors
    ///
    /// The path has no file name, or nothing can be written beside it.
    pub fn create(path: impl Into<PathBuf>) -> io::Result<WholeFile> {
        let path = path.into();
        let name = path.file_name().ok_or(io::ErrorKind::InvalidFilename)?;
        let mut temporary = std::ffi::OsString::from(".");
        temporary.push(name);
        temporary.push(format!(".{}.tmp", std::process::id()));
        let temporary = path.with_file_name(temporary);
        Ok(WholeFile { file: BufWriter::new(File::create_new(&temporary)?), temporary, path })
    }

    /// Lets the file be read and written by others than a new one may be.
    ///
    /// # Errors
    ///
    /// The system does not allow it.
    pub fn set_permissions(&self, permissions: fs::Permissions) -> io::Result<()> {
        self.file.get_ref().set_permissions(permissions)
    }

    /// Gives the file its name.
    ///
    /// # Errors
    ///
    /// Those of writing and renaming; then the file is removed.
    pub fn finish(self) -> io::Result<()> {
        let path = self.path.clone();
        self.finish_as(path)
    }

    /// Gives the file another name than it was begun for, in the same directory.
    pub(crate) fn finish_as(mut self, path: PathBuf) -> io::Result<()> {
        self.file.flush()?;
        self.path = path;
        fs::rename(&self.temporary, &self.path)?;
        self.temporary = PathBuf::new();
        Ok(())
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

impl Drop for WholeFile {
    fn drop(&mut self) {
        if !self.temporary.as_os_str().is_empty() {
            // Nothing more can be done if even this fails.
            let _ = fs::remove_file(&self.temporary);
        }
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

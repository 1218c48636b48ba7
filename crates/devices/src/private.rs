//! Private directories for temporary files, each owned by one process.

use std::collections::hash_map::RandomState;
use std::ffi::OsStr;
use std::fs::{self, DirBuilder, File};
use std::hash::BuildHasher;
use std::io;
use std::path::{Path, PathBuf};

/// Name of the lock file.
const LOCK: &str = "lock";

/// Prefix of directory names. A random number of 16 hexadecimal digits follows.
const START: &str = "sardonyx-run-";

/// Directory in the system's directory for temporary files that only the current user can access.
/// Dropping the value removes it. If the process is killed, the next process that creates such a
/// directory removes it.
///
/// The process holds a lock on a file in the directory, so a directory whose file is not locked
/// belongs to an ended process. The directory itself is not locked, because saving a model locks
/// the directory to which it writes.
#[derive(Debug)]
pub struct PrivateDirectory {
    path: PathBuf,
    _lock: File,
}

impl PrivateDirectory {
    /// Creates a directory with a random name, and removes directories of ended processes.
    ///
    /// # Errors
    /// The directory cannot be created.
    pub fn new() -> io::Result<PrivateDirectory> {
        PrivateDirectory::new_in(&std::env::temp_dir())
    }

    fn new_in(temporary: &Path) -> io::Result<PrivateDirectory> {
        let mut builder = DirBuilder::new();
        #[cfg(unix)]
        std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
        for _ in 0..16 {
            // The system seeds each `RandomState` differently.
            let random = RandomState::new().hash_one(std::process::id());
            let path = temporary.join(format!("{START}{random:016x}"));
            // Fails if the name exists, even as a link.
            match builder.create(&path) {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => continue,
                Err(error) => return Err(error),
            }
            let lock = File::create_new(path.join(LOCK))?;
            // On systems without file locks, abandoned directories are never removed.
            let _ = lock.lock();
            // Another process may have removed the directory before it was locked.
            if path.exists() {
                remove_abandoned(temporary, &path);
                return Ok(PrivateDirectory { path, _lock: lock });
            }
        }
        Err(io::Error::new(io::ErrorKind::AlreadyExists, "no name is free"))
    }

    /// Returns the path of the directory.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for PrivateDirectory {
    fn drop(&mut self) {
        // The error is ignored: a leftover in a directory for temporary files does no harm.
        let _ = fs::remove_dir_all(&self.path);
    }
}

fn is_private_name(name: &OsStr) -> bool {
    let number = name.to_str().and_then(|name| name.strip_prefix(START));
    number.is_some_and(|number| number.len() == 16 && number.bytes().all(|b| b.is_ascii_hexdigit()))
}

/// Removes directories of ended processes that have the owner of `own`.
fn remove_abandoned(temporary: &Path, own: &Path) {
    for entry in fs::read_dir(temporary).into_iter().flatten().flatten() {
        let path = entry.path();
        if !is_private_name(&entry.file_name()) || path == own || !is_like(&path, own) {
            continue;
        }
        // A directory without the file may just have been created.
        let Ok(lock) = File::options().read(true).write(true).open(path.join(LOCK)) else {
            continue;
        };
        if lock.try_lock().is_ok() {
            let _ = fs::remove_dir_all(&path);
        }
    }
}

/// Returns whether `path` is a directory with the owner of `own` and without access for others.
/// Does not follow links.
#[cfg(unix)]
fn is_like(path: &Path, own: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    let facts = |path: &Path| {
        let metadata = fs::symlink_metadata(path).ok()?;
        Some((metadata.is_dir(), metadata.uid(), metadata.mode() & 0o077))
    };
    let found = facts(path);
    found.is_some() && found == facts(own)
}

#[cfg(not(unix))]
fn is_like(path: &Path, _: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|metadata| metadata.is_dir())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(unix)]
    #[test]
    fn directories_of_ended_processes_are_removed_and_no_others() {
        let scratch = PrivateDirectory::new().unwrap();
        let at = |name: &str| scratch.path().join(name);
        let mut private = DirBuilder::new();
        std::os::unix::fs::DirBuilderExt::mode(&mut private, 0o700);
        let abandoned = at("sardonyx-run-0123456789abcdef");
        private.create(&abandoned).unwrap();
        fs::write(abandoned.join(LOCK), b"").unwrap();
        fs::write(abandoned.join("model"), b"x").unwrap();
        let others = ["sardonyx-run-0123", "sardonyx-0123456789abcdef", "else"].map(at);
        others.iter().for_each(|path| private.create(path).unwrap());
        let open = at("sardonyx-run-00000000000000ff");
        fs::create_dir(&open).unwrap();
        fs::write(open.join(LOCK), b"").unwrap();
        fs::set_permissions(&open, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        let link = at("sardonyx-run-00000000000000fe");
        std::os::unix::fs::symlink(&others[2], &link).unwrap();

        let first = PrivateDirectory::new_in(scratch.path()).unwrap();
        assert!(!abandoned.exists());
        let second = PrivateDirectory::new_in(scratch.path()).unwrap();
        let kept = others.iter().chain([&open, &link]).map(PathBuf::as_path);
        for path in kept.chain([first.path(), second.path()]) {
            assert!(path.exists(), "{}", path.display());
        }
        let path = first.path().to_path_buf();
        drop(first);
        assert!(!path.exists());
    }
}

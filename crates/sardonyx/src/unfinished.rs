//! Temporary files that get their final name when they are complete.
//!
//! On Linux such a file has no name (`O_TMPFILE`), so that a killed process leaves nothing. On
//! other systems, and in the moment before it replaces another file, it has a temporary name. The
//! process holds a lock on each file: an unlocked temporary file belongs to a process that has
//! ended, even if its process id is in use again, and the next process that writes to the directory
//! removes it.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::external::get_directory;

/// Prefix of the names of temporary files. Process id and file number follow.
const START: &str = ".sardonyx-";
/// Suffix of the names of temporary files.
const END: &str = ".tmp";

/// An open file that has no name or a temporary one. Dropping it does not remove the temporary
/// name.
#[derive(Debug)]
pub(crate) struct Unfinished {
    file: File,
    /// Path with the temporary name; `None` if the file has no name.
    temporary: Option<PathBuf>,
}

impl Unfinished {
    /// Creates an empty file in a directory, without a name if the system allows it.
    pub(crate) fn create(directory: &Path) -> io::Result<Unfinished> {
        if let Some(file) = create_nameless(directory) {
            // If locking is not supported, other processes cannot lock the file either and do not
            // remove it.
            let _ = file.lock();
            return Ok(Unfinished { file, temporary: None });
        }
        Unfinished::create_named(directory)
    }

    /// Creates an empty file with a temporary name.
    fn create_named(directory: &Path) -> io::Result<Unfinished> {
        loop {
            let path = directory.join(make_temporary_name());
            let file = match OpenOptions::new().read(true).write(true).create_new(true).open(&path)
            {
                Ok(file) => file,
                // A process with this id left it, or another machine writes to the directory.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => continue,
                Err(error) => return Err(error),
            };
            let _ = file.lock();
            // Another process may have removed the file before it was locked.
            if fs::symlink_metadata(&path).is_ok() {
                return Ok(Unfinished { file, temporary: Some(path) });
            }
        }
    }

    /// Returns the open file.
    pub(crate) fn file(&self) -> &File {
        &self.file
    }

    /// Gives the file its final name; replaces an existing file only if the system cannot link
    /// files.
    pub(crate) fn take_name(&mut self, path: &Path) -> io::Result<()> {
        if self.temporary.is_none() {
            match link(&self.file, path) {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                    self.take_temporary_name(get_directory(path))?;
                }
                done => return done,
            }
        }
        self.rename_to(path)
    }

    /// Gives the file a temporary name, unless the file has one.
    pub(crate) fn take_temporary_name(&mut self, directory: &Path) -> io::Result<()> {
        while self.temporary.is_none() {
            let path = directory.join(make_temporary_name());
            match link(&self.file, &path) {
                Ok(()) => self.temporary = Some(path),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                // The file system supports O_TMPFILE, but not linking the file.
                Err(_) => *self = self.copy_named(directory)?,
            }
        }
        Ok(())
    }

    /// Copies content and permissions to a new file with a temporary name.
    fn copy_named(&self, directory: &Path) -> io::Result<Unfinished> {
        let mut copy = Unfinished::create_named(directory)?;
        let mut content = &self.file;
        let copied = content.seek(SeekFrom::Start(0)).and_then(|_| {
            io::copy(&mut content, &mut &copy.file)?;
            copy.file.set_permissions(self.file.metadata()?.permissions())?;
            copy.file.sync_all()
        });
        if copied.is_err() {
            copy.discard();
        }
        copied.map(|()| copy)
    }

    /// Renames the file to `path`, and replaces an existing file there.
    pub(crate) fn rename_to(&mut self, path: &Path) -> io::Result<()> {
        self.take_temporary_name(get_directory(path))?;
        if let Some(temporary) = &self.temporary {
            fs::rename(temporary, path)?;
        }
        self.temporary = None;
        Ok(())
    }

    /// Removes the file if it has a temporary name.
    pub(crate) fn discard(&mut self) {
        if let Some(temporary) = self.temporary.take() {
            // If removing fails too, the next save cleans up.
            let _ = fs::remove_file(temporary);
        }
    }
}

/// Makes a temporary name that is unique in this process.
fn make_temporary_name() -> String {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    format!("{START}{}-{number}{END}", std::process::id())
}

/// Whether a file name is one that [`make_temporary_name`] makes in some process.
fn is_temporary_name(name: &OsStr) -> bool {
    let numbers = name.to_str().and_then(|name| name.strip_prefix(START)?.strip_suffix(END));
    let numbers = numbers.and_then(|numbers| numbers.split_once('-'));
    numbers.is_some_and(|(process, file)| is_number(process) && is_number(file))
}

/// Whether a text consists of decimal digits.
fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit())
}

/// Removes temporary files of ended processes from a directory.
pub(crate) fn remove_abandoned(directory: &Path) {
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        if is_temporary_name(&entry.file_name()) && entry.file_type().is_ok_and(|ty| ty.is_file()) {
            remove_if_free(&entry.path());
        }
    }
}

/// Removes temporary files of ended processes and of earlier releases, unless the last call was for
/// this directory: a program that writes many files scans their directory once.
pub(crate) fn remove_abandoned_once(directory: &Path, name: &OsStr) {
    static LAST: Mutex<Option<PathBuf>> = Mutex::new(None);
    let mut last = LAST.lock().unwrap_or_else(PoisonError::into_inner);
    if last.as_deref() != Some(directory) {
        remove_abandoned(directory);
        remove_earlier_release_files(directory, name);
        *last = Some(directory.to_path_buf());
    }
}

/// Removes the temporary files that earlier releases left beside a file: `.NAME.PROCESS.tmp` and
/// `.NAME.PROCESS.LABEL.tmp`. Not all of them were locked, so a temporary file is kept while a
/// process with its number may be running.
pub(crate) fn remove_earlier_release_files(directory: &Path, name: &OsStr) {
    let mut start = OsString::from(".");
    start.push(name);
    start.push(".");
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        let found = entry.file_name();
        let rest = found.as_encoded_bytes().strip_prefix(start.as_encoded_bytes());
        let rest = rest.and_then(|rest| rest.strip_suffix(END.as_bytes()));
        let Some(rest) = rest.and_then(|rest| str::from_utf8(rest).ok()) else { continue };
        let (process, label) = rest.split_once('.').unwrap_or((rest, "0"));
        let is_label = label.bytes().all(|byte| byte.is_ascii_digit());
        let Ok(process) = process.parse() else { continue };
        if is_label && has_ended(process) && entry.file_type().is_ok_and(|ty| ty.is_file()) {
            remove_if_free(&entry.path());
        }
    }
}

/// Whether a process with this id has certainly ended; false if `/proc` does not exist.
fn has_ended(process: u32) -> bool {
    let directory = Path::new("/proc");
    let runs = directory.join(process.to_string()).exists();
    directory.join("self").exists() && (!runs || process == std::process::id())
}

/// Removes a file unless another process has locked it.
fn remove_if_free(path: &Path) {
    // On NFS, only a file that is open for writing can be locked.
    let Ok(file) = OpenOptions::new().read(true).write(true).open(path) else { return };
    if file.try_lock().is_ok() && is_at(&file, path) {
        let _ = fs::remove_file(path);
    }
}

/// Whether a path still leads to the open file.
#[cfg(unix)]
fn is_at(file: &File, path: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    let open = file.metadata().ok();
    let found = fs::symlink_metadata(path).ok();
    open.zip(found)
        .is_some_and(|(open, found)| (open.dev(), open.ino()) == (found.dev(), found.ino()))
}

/// Whether a path exists: on this system an open file cannot be replaced.
#[cfg(not(unix))]
fn is_at(_: &File, path: &Path) -> bool {
    path.exists()
}

/// Creates a file without a name (`O_TMPFILE`); `None` if the system does not support it.
#[cfg(target_os = "linux")]
fn create_nameless(directory: &Path) -> Option<File> {
    use rustix::fs::{Mode, OFlags, open};
    // Linking the file requires /proc, which a sandbox may lack.
    if !Path::new("/proc/self/fd").exists() {
        return None;
    }
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    let mode = Mode::from_raw_mode(0o666);
    open(directory, flags, mode).ok().map(File::from)
}

/// Returns `None`: this system has no files without a name.
#[cfg(not(target_os = "linux"))]
fn create_nameless(_: &Path) -> Option<File> {
    None
}

/// Links an open file to a path; fails if the path exists.
#[cfg(target_os = "linux")]
fn link(file: &File, path: &Path) -> io::Result<()> {
    use rustix::fs::{AtFlags, CWD, linkat};
    use std::os::fd::AsRawFd;
    let magic = format!("/proc/self/fd/{}", file.as_raw_fd());
    linkat(CWD, magic, CWD, path, AtFlags::SYMLINK_FOLLOW)?;
    Ok(())
}

/// Fails: this system cannot link open files.
#[cfg(not(target_os = "linux"))]
fn link(_: &File, _: &Path) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lists the names of the files in a directory, sorted.
    fn list_names(directory: &Path) -> Vec<String> {
        let entries = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name());
        let mut names: Vec<String> = entries.map(|name| name.into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn files_of_ended_processes_are_removed_and_no_others() {
        let scratch = tempfile::tempdir().unwrap();
        let at = |name: &str| scratch.path().join(name);
        let abandoned = [".sardonyx-1-0.tmp", ".sardonyx-4294967295-12.tmp"];
        let own = format!(".sardonyx-{}-99999.tmp", std::process::id());
        let others = [".sardonyx-1-.tmp", ".sardonyx-x-0.tmp", "sardonyx-1-0.tmp", ".a.1.tmp"];
        for name in abandoned.iter().chain(&others).chain([&own.as_str()]) {
            fs::write(at(name), b"x").unwrap();
        }
        fs::create_dir(at(".sardonyx-1-7.tmp")).unwrap();
        let mut written = Unfinished::create_named(scratch.path()).unwrap();
        let temporary = written.temporary.clone().unwrap();
        remove_abandoned(scratch.path());
        assert!(temporary.exists(), "the temporary file of a running process was removed");
        let mut kept: Vec<String> = others.map(String::from).to_vec();
        kept.push(".sardonyx-1-7.tmp".to_string());
        kept.push(temporary.file_name().unwrap().to_str().unwrap().to_string());
        kept.sort();
        assert_eq!(list_names(scratch.path()), kept);
        written.rename_to(&at("done")).unwrap();
        assert!(at("done").exists() && !temporary.exists());

        // Dropping without `discard` leaves the state of a killed process.
        let temporary = Unfinished::create_named(scratch.path()).unwrap().temporary.unwrap();
        assert!(temporary.exists());
        remove_abandoned(scratch.path());
        assert!(!temporary.exists());
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn files_of_earlier_releases_are_removed_if_their_process_has_ended() {
        let scratch = tempfile::tempdir().unwrap();
        let mut ended = std::process::Command::new("true").spawn().unwrap();
        ended.wait().unwrap();
        let (ended, own, parent) =
            (ended.id(), std::process::id(), std::os::unix::process::parent_id());
        let removed =
            [format!(".a.{ended}.tmp"), format!(".a.{ended}.3.tmp"), format!(".a.{own}.tmp")];
        let kept = [
            format!(".a.{parent}.tmp"),
            format!(".a.b.{ended}.tmp"),
            format!(".a.{ended}.notes.tmp"),
            ".a.tmp".to_string(),
        ];
        removed
            .iter()
            .chain(&kept)
            .for_each(|name| fs::write(scratch.path().join(name), b"x").unwrap());
        remove_earlier_release_files(scratch.path(), OsStr::new("a"));
        let mut expected = kept.to_vec();
        expected.sort();
        assert_eq!(list_names(scratch.path()), expected);
    }
}

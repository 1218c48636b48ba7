//! Files under construction.
//!
//! On Linux they have no name (`O_TMPFILE`), so that nothing is left of a process that is killed.
//! Elsewhere, and for the moment before they take the place of another file, they have a temporary
//! one. Their process holds a lock on each: a temporary name without a lock belongs to a process
//! that has ended, however numbers of processes are given out, and the next process that writes to
//! the directory removes it.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::external::directory_of;

/// Start and end of the temporary names. Between them are the numbers of the process and of the
/// file.
const START: &str = ".sardonyx-";
const END: &str = ".tmp";

/// A file that has no name, or a temporary one. Dropping it leaves the name.
#[derive(Debug)]
pub(crate) struct Unfinished {
    file: File,
    /// Its temporary path, if it has one.
    temporary: Option<PathBuf>,
}

impl Unfinished {
    /// Creates an empty file in a directory, without a name if possible.
    pub(crate) fn create(directory: &Path) -> io::Result<Unfinished> {
        if let Some(file) = create_nameless(directory) {
            // Systems without locks do without: nothing is removed there.
            let _ = file.lock();
            return Ok(Unfinished { file, temporary: None });
        }
        Unfinished::create_named(directory)
    }

    fn create_named(directory: &Path) -> io::Result<Unfinished> {
        loop {
            let path = directory.join(next_name());
            let file = match OpenOptions::new().read(true).write(true).create_new(true).open(&path)
            {
                Ok(file) => file,
                // A file of a process that has the same number elsewhere, or had it earlier.
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

    pub(crate) fn file(&self) -> &File {
        &self.file
    }

    /// Gives the file a name of its directory that is free.
    pub(crate) fn take_name(&mut self, path: &Path) -> io::Result<()> {
        if self.temporary.is_none() {
            match link(&self.file, path) {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                    self.take_temporary_name(directory_of(path))?;
                }
                done => return done,
            }
        }
        self.replace(path)
    }

    /// Gives the file a temporary name, if it has none.
    pub(crate) fn take_temporary_name(&mut self, directory: &Path) -> io::Result<()> {
        while self.temporary.is_none() {
            let path = directory.join(next_name());
            match link(&self.file, &path) {
                Ok(()) => self.temporary = Some(path),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                // The system has files without a name, but none that get one.
                Err(_) => *self = self.copied(directory)?,
            }
        }
        Ok(())
    }

    /// A copy with a temporary name.
    fn copied(&self, directory: &Path) -> io::Result<Unfinished> {
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

    /// Gives the file a name of its directory, also one that another file has.
    pub(crate) fn replace(&mut self, path: &Path) -> io::Result<()> {
        self.take_temporary_name(directory_of(path))?;
        if let Some(temporary) = &self.temporary {
            fs::rename(temporary, path)?;
        }
        self.temporary = None;
        Ok(())
    }

    /// Removes the temporary name.
    pub(crate) fn discard(&mut self) {
        if let Some(temporary) = self.temporary.take() {
            // Nothing more can be done if even this fails.
            let _ = fs::remove_file(temporary);
        }
    }
}

/// A temporary name that no other file of this process has.
fn next_name() -> String {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    format!("{START}{}-{number}{END}", std::process::id())
}

fn is_temporary_name(name: &OsStr) -> bool {
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    let numbers = name.to_str().and_then(|name| name.strip_prefix(START)?.strip_suffix(END));
    let numbers = numbers.and_then(|numbers| numbers.split_once('-'));
    numbers.is_some_and(|(process, file)| is_number(process) && is_number(file))
}

/// Removes what processes that have ended left in a directory: files under construction.
pub(crate) fn remove_abandoned(directory: &Path) {
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        if is_temporary_name(&entry.file_name()) && entry.file_type().is_ok_and(|ty| ty.is_file()) {
            remove_if_free(&entry.path());
        }
    }
}

/// Like [`remove_abandoned`] and [`remove_of_earlier_releases`], but skips the directory that it
/// was called for last: a program that writes many files looks through their directory once.
pub(crate) fn remove_abandoned_once(directory: &Path, name: &OsStr) {
    static LAST: Mutex<Option<PathBuf>> = Mutex::new(None);
    let mut last = LAST.lock().unwrap_or_else(PoisonError::into_inner);
    if last.as_deref() != Some(directory) {
        remove_abandoned(directory);
        remove_of_earlier_releases(directory, name);
        *last = Some(directory.to_path_buf());
    }
}

/// Removes what earlier releases left beside a file: `.NAME.PROCESS.tmp` and
/// `.NAME.PROCESS.LABEL.tmp`, of which not all were locked. A number of a process that may be in
/// use keeps them.
pub(crate) fn remove_of_earlier_releases(directory: &Path, name: &OsStr) {
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

/// Whether a process has certainly ended.
fn has_ended(process: u32) -> bool {
    let directory = Path::new("/proc");
    let runs = directory.join(process.to_string()).exists();
    directory.join("self").exists() && (!runs || process == std::process::id())
}

/// Removes a file that is not locked.
fn remove_if_free(path: &Path) {
    // A network file system locks only files that are open for writing.
    let Ok(file) = OpenOptions::new().read(true).write(true).open(path) else { return };
    if file.try_lock().is_ok() && is_at(&file, path) {
        let _ = fs::remove_file(path);
    }
}

/// Whether a path leads to an open file.
#[cfg(unix)]
fn is_at(file: &File, path: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    let identity = |metadata: fs::Metadata| (metadata.dev(), metadata.ino());
    let open = file.metadata().map(identity).ok();
    open.is_some() && open == fs::symlink_metadata(path).map(identity).ok()
}

/// Whether a path leads to a file. While it is open it cannot be replaced.
#[cfg(not(unix))]
fn is_at(_: &File, path: &Path) -> bool {
    path.exists()
}

#[cfg(target_os = "linux")]
fn create_nameless(directory: &Path) -> Option<File> {
    use rustix::fs::{Mode, OFlags, open};
    // It gets its name through /proc, which a sandbox may lack.
    if !Path::new("/proc/self/fd").exists() {
        return None;
    }
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    let mode = Mode::from_raw_mode(0o666);
    open(directory, flags, mode).ok().map(File::from)
}

#[cfg(not(target_os = "linux"))]
fn create_nameless(_: &Path) -> Option<File> {
    None
}

#[cfg(target_os = "linux")]
fn link(file: &File, path: &Path) -> io::Result<()> {
    use rustix::fs::{AtFlags, CWD, linkat};
    use std::os::fd::AsRawFd;
    let magic = format!("/proc/self/fd/{}", file.as_raw_fd());
    linkat(CWD, magic, CWD, path, AtFlags::SYMLINK_FOLLOW)?;
    Ok(())
}

#[cfg(not(target_os = "linux"))]
fn link(_: &File, _: &Path) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(directory: &Path) -> Vec<String> {
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
        assert!(temporary.exists(), "it is under construction");
        let mut kept: Vec<String> = others.map(String::from).to_vec();
        kept.push(".sardonyx-1-7.tmp".to_string());
        kept.push(temporary.file_name().unwrap().to_str().unwrap().to_string());
        kept.sort();
        assert_eq!(names(scratch.path()), kept);
        written.replace(&at("done")).unwrap();
        assert!(at("done").exists() && !temporary.exists());

        // Dropped without being finished, as the end of its process does it.
        let temporary = Unfinished::create_named(scratch.path()).unwrap().temporary.unwrap();
        assert!(temporary.exists());
        remove_abandoned(scratch.path());
        assert!(!temporary.exists());
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn files_of_earlier_releases_are_removed_if_their_process_has_ended() {
        let scratch = tempfile::tempdir().unwrap();
        let at = |name: &str| scratch.path().join(name);
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
        removed.iter().chain(&kept).for_each(|name| fs::write(at(name), b"x").unwrap());
        remove_of_earlier_releases(scratch.path(), OsStr::new("a"));
        let mut expected = kept.to_vec();
        expected.sort();
        assert_eq!(names(scratch.path()), expected);
    }
}

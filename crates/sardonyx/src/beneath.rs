//! Opening files beneath a folder, and nowhere else.
//!
//! Whether a path stays in its folder is decided by opening it, one handle at a time, never by looking at its text
//! first: between a look and an opening, anybody may put a link in its place. Where the system can do the whole walk at
//! once (`openat2` on Linux), it does; elsewhere the parts of the path are opened one after the other.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

/// A folder, kept open.
#[derive(Debug)]
pub(crate) struct Folder {
    /// Its real path.
    path: PathBuf,
    #[cfg(unix)]
    handle: File,
}

/// Why a file beneath a folder is not opened.
#[derive(Debug)]
pub(crate) enum Refusal {
    /// A part of the path is a link.
    Link,
    /// It is no regular file, but this.
    Kind(&'static str),
    /// The file has other names, so what it holds may be meant for somebody else.
    HardLink,
    /// The system refuses.
    Io(io::Error),
}

impl From<io::Error> for Refusal {
    fn from(error: io::Error) -> Refusal {
        Refusal::Io(error)
    }
}

/// What tells a file from all others while it is open.
pub(crate) type Identity = (u64, u64);

impl Folder {
    pub(crate) fn open(path: &Path) -> io::Result<Folder> {
        let path = fs::canonicalize(path)?;
        #[cfg(unix)]
        let handle = {
            use rustix::fs::{Mode, OFlags};
            // To find a file in a folder is allowed more often than to list it.
            #[cfg(target_os = "linux")]
            let access = OFlags::PATH;
            #[cfg(not(target_os = "linux"))]
            let access = OFlags::RDONLY;
            let flags = access | OFlags::DIRECTORY | OFlags::CLOEXEC;
            File::from(rustix::fs::open(&path, flags, Mode::empty())?)
        };
        Ok(Folder {
            path,
            #[cfg(unix)]
            handle,
        })
    }

    /// Its real path.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

#[cfg(unix)]
impl Folder {
    /// Opens a regular file at a path without links, `..` and absolute parts.
    pub(crate) fn open_file(&self, relative: &Path) -> Result<File, Refusal> {
        use rustix::fs::{AtFlags, FileType, statat};

        // Opening a device may already do something, so the look comes first. It decides nothing: the open file is
        // looked at again.
        let before = statat(&self.handle, relative, AtFlags::SYMLINK_NOFOLLOW);
        let before = before.map_err(io::Error::from)?;
        match FileType::from_raw_mode(before.st_mode) {
            FileType::RegularFile => {}
            FileType::Symlink => return Err(Refusal::Link),
            kind => return Err(Refusal::Kind(name_of(kind))),
        }
        let file = self.open_without_links(relative)?;
        let metadata = file.metadata()?;
        if !metadata.is_file() {
            return Err(Refusal::Kind("not a regular file"));
        }
        if std::os::unix::fs::MetadataExt::nlink(&metadata) > 1 {
            return Err(Refusal::HardLink);
        }
        Ok(file)
    }

    #[cfg(target_os = "linux")]
    fn open_without_links(&self, relative: &Path) -> Result<File, Refusal> {
        use rustix::fs::{Mode, ResolveFlags, openat2};
        use rustix::io::Errno;

        let resolve =
            ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
        // The kernel asks to try again when something is renamed under the walk.
        for _ in 0..16 {
            return match openat2(&self.handle, relative, READ, Mode::empty(), resolve) {
                Ok(file) => Ok(File::from(file)),
                Err(Errno::AGAIN) => continue,
                Err(Errno::LOOP) => Err(Refusal::Link),
                // Older than Linux 5.6, or a sandbox that does not know the call.
                Err(Errno::NOSYS | Errno::PERM | Errno::INVAL) => self.walk(relative),
                Err(error) => Err(Refusal::Io(error.into())),
            };
        }
        self.walk(relative)
    }

    #[cfg(not(target_os = "linux"))]
    fn open_without_links(&self, relative: &Path) -> Result<File, Refusal> {
        self.walk(relative)
    }

    /// Opens the folders of a path one after the other, each in the one before, then the file.
    fn walk(&self, relative: &Path) -> Result<File, Refusal> {
        use rustix::fs::{AtFlags, FileType, Mode, OFlags, openat, statat};
        use std::path::Component;

        let mut parts = Vec::new();
        for part in relative.components() {
            match part {
                Component::Normal(part) => parts.push(part),
                Component::CurDir => {}
                _ => return Err(Refusal::Io(io::ErrorKind::InvalidInput.into())),
            }
        }
        let Some((name, folders)) = parts.split_last() else {
            return Err(Refusal::Kind("a folder"));
        };
        let mut folder = self.handle.try_clone()?;
        for part in folders {
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            folder = match openat(&folder, *part, flags, Mode::empty()) {
                Ok(next) => File::from(next),
                Err(error) => {
                    let is_link = statat(&folder, *part, AtFlags::SYMLINK_NOFOLLOW)
                        .is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode).is_symlink());
                    return Err(match is_link {
                        true => Refusal::Link,
                        false => Refusal::Io(error.into()),
                    });
                }
            };
        }
        match openat(&folder, *name, READ | OFlags::NOFOLLOW, Mode::empty()) {
            Ok(file) => Ok(File::from(file)),
            Err(rustix::io::Errno::LOOP) => Err(Refusal::Link),
            Err(error) => Err(Refusal::Io(error.into())),
        }
    }
}

/// For reading; without waiting for the other end of a pipe, should there be one after all.
#[cfg(unix)]
const READ: rustix::fs::OFlags = rustix::fs::OFlags::RDONLY
    .union(rustix::fs::OFlags::CLOEXEC)
    .union(rustix::fs::OFlags::NONBLOCK)
    .union(rustix::fs::OFlags::NOCTTY);

#[cfg(unix)]
fn name_of(kind: rustix::fs::FileType) -> &'static str {
    use rustix::fs::FileType;
    match kind {
        FileType::Directory => "a folder",
        FileType::Fifo => "a pipe",
        FileType::CharacterDevice | FileType::BlockDevice => "a device",
        FileType::Socket => "a socket",
        _ => "not a regular file",
    }
}

#[cfg(unix)]
pub(crate) fn identity(file: &File) -> io::Result<Option<Identity>> {
    use std::os::unix::fs::MetadataExt;
    let metadata = file.metadata()?;
    Ok(Some((metadata.dev(), metadata.ino())))
}

#[cfg(not(unix))]
pub(crate) fn identity(_: &File) -> io::Result<Option<Identity>> {
    Ok(None)
}

#[cfg(not(unix))]
impl Folder {
    /// Opens a regular file. This system has no handles to folders in the standard library, so the path is compared
    /// after links are followed, and again after opening.
    pub(crate) fn open_file(&self, relative: &Path) -> Result<File, Refusal> {
        let path = self.path.join(relative);
        let metadata = fs::symlink_metadata(&path)?;
        if metadata.is_symlink() {
            return Err(Refusal::Link);
        }
        if !metadata.is_file() {
            return Err(Refusal::Kind("not a regular file"));
        }
        let file = File::open(&path)?;
        match fs::canonicalize(&path)? == path {
            true => Ok(file),
            false => Err(Refusal::Link),
        }
    }
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn both_ways_of_opening_agree() {
        let scratch = tempfile::tempdir().unwrap();
        let scratch = scratch.path();
        fs::create_dir_all(scratch.join("folder/deep")).unwrap();
        fs::write(scratch.join("folder/deep/file"), b"x").unwrap();
        fs::write(scratch.join("outside"), b"y").unwrap();
        symlink("../outside", scratch.join("folder/out")).unwrap();
        symlink("deep/file", scratch.join("folder/in")).unwrap();
        symlink("deep", scratch.join("folder/link")).unwrap();
        let folder = Folder::open(&scratch.join("folder")).unwrap();
        for open in [Folder::open_without_links, Folder::walk] {
            assert!(open(&folder, Path::new("deep/file")).is_ok());
            assert!(open(&folder, Path::new("./deep//file")).is_ok());
            for link in ["out", "in", "link/file"] {
                let opened = open(&folder, Path::new(link));
                assert!(matches!(opened, Err(Refusal::Link)), "{link}: {opened:?}");
            }
            for outside in ["../outside", "deep/../../outside", "/etc/passwd", "none"] {
                assert!(open(&folder, Path::new(outside)).is_err(), "{outside}");
            }
        }
    }
}

//! Opens files that are confined to a directory.
//!
//! The text of a path is not checked before opening: between the check and the opening (TOCTOU),
//! another process may put a symlink in its place. Instead, opening itself refuses to leave the
//! directory. Linux does this in one call (`openat2`); other systems open the components of the
//! path one after the other, each relative to the handle of the previous one.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

#[cfg(unix)]
use rustix::fs::{Mode, OFlags};

/// Directory to which the files opened through it are confined. Holds no file descriptor, as
/// descriptors are limited and a model may live long: the directory is reopened for each file.
#[derive(Debug, Clone)]
pub(crate) struct Directory {
    /// Canonical path of the directory.
    path: PathBuf,
    /// Device and inode numbers of the directory, which reveal whether another directory has taken
    /// its path.
    #[cfg(unix)]
    identity: Identity,
}

/// Reason for which a [`Directory`] does not open a file.
#[derive(Debug)]
pub(crate) enum Refusal {
    /// A component of the file's path is a symlink.
    Link,
    /// The path leads to a file that is not regular, such as `a pipe`.
    Kind(&'static str),
    /// The file has more than one hard link, so it may be another user's secret.
    HardLink,
    /// Error of the operating system.
    Io(io::Error),
}

impl From<io::Error> for Refusal {
    fn from(error: io::Error) -> Refusal {
        Refusal::Io(error)
    }
}

/// Device and inode numbers, which identify a file while it exists.
pub(crate) type Identity = (u64, u64);

impl Directory {
    /// Resolves the symlinks of a directory's path, and records its device and inode numbers.
    pub(crate) fn open(path: &Path) -> io::Result<Directory> {
        let path = fs::canonicalize(path)?;
        let metadata = fs::metadata(&path)?;
        if !metadata.is_dir() {
            return Err(io::ErrorKind::NotADirectory.into());
        }
        Ok(Directory {
            path,
            #[cfg(unix)]
            identity: to_identity(&metadata),
        })
    }

    /// Returns the canonical path of the directory.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

#[cfg(unix)]
impl Directory {
    /// Opens the directory itself. Fails if another directory has taken its path since it was
    /// opened first.
    fn open_handle(&self) -> io::Result<File> {
        // O_PATH needs only search permission, which is granted more often than read permission.
        #[cfg(target_os = "linux")]
        let access = OFlags::PATH;
        #[cfg(not(target_os = "linux"))]
        let access = OFlags::RDONLY;
        let flags = access | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let handle = File::from(rustix::fs::open(&self.path, flags, Mode::empty())?);
        if to_identity(&handle.metadata()?) != self.identity {
            let message =
                format!("another directory has taken the place of '{}'", self.path.display());
            return Err(io::Error::other(message));
        }
        Ok(handle)
    }

    /// Opens a regular file of the directory for reading. The path must be relative and have no
    /// symlinks and no `..`.
    pub(crate) fn open_file(&self, relative: &Path) -> Result<File, Refusal> {
        self.open_regular(relative, READ)
    }

    /// Opens a regular file of the directory for reading and writing. The path must be relative and
    /// have no symlinks and no `..`. A missing file is created with mode 0600.
    pub(crate) fn open_to_write(&self, relative: &Path) -> Result<File, Refusal> {
        self.open_regular(relative, WRITE)
    }

    /// Opens a file of the directory, and fails unless the file is regular and has one hard link.
    fn open_regular(&self, relative: &Path, flags: OFlags) -> Result<File, Refusal> {
        use rustix::fs::{AtFlags, FileType, statat};
        use rustix::io::Errno;

        // Checked before opening, as merely opening a device may have effects. This check can be
        // outrun, so the open file is checked again below.
        let directory = self.open_handle()?;
        match statat(&directory, relative, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(before) => match FileType::from_raw_mode(before.st_mode) {
                FileType::RegularFile => {}
                FileType::Symlink => return Err(Refusal::Link),
                kind => return Err(Refusal::Kind(describe_file_type(kind))),
            },
            Err(Errno::NOENT) if flags.contains(OFlags::CREATE) => {}
            Err(error) => return Err(Refusal::Io(error.into())),
        }
        let file = open_without_links(directory, relative, flags)?;
        let metadata = file.metadata()?;
        if !metadata.is_file() {
            return Err(Refusal::Kind("not a regular file"));
        }
        if std::os::unix::fs::MetadataExt::nlink(&metadata) > 1 {
            return Err(Refusal::HardLink);
        }
        Ok(file)
    }
}

/// Opens a file relative to a directory with `openat2`, which fails if the path has a symlink or
/// leaves the directory.
#[cfg(target_os = "linux")]
fn open_without_links(directory: File, relative: &Path, flags: OFlags) -> Result<File, Refusal> {
    use rustix::fs::{ResolveFlags, openat2};
    use rustix::io::Errno;

    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    // EAGAIN: a component was renamed while the kernel resolved the path. Retries 16 times.
    for _ in 0..16 {
        return match openat2(&directory, relative, flags, choose_creation_mode(flags), resolve) {
            Ok(file) => Ok(File::from(file)),
            Err(Errno::AGAIN) => continue,
            Err(Errno::LOOP) => Err(Refusal::Link),
            // Linux before 5.6 lacks openat2, and some sandboxes refuse it.
            Err(Errno::NOSYS | Errno::PERM | Errno::INVAL) => {
                open_by_components(directory, relative, flags)
            }
            Err(error) => Err(Refusal::Io(error.into())),
        };
    }
    open_by_components(directory, relative, flags)
}

/// Opens a file relative to a directory; fails if the path has a symlink or leaves the directory.
#[cfg(all(unix, not(target_os = "linux")))]
fn open_without_links(directory: File, relative: &Path, flags: OFlags) -> Result<File, Refusal> {
    open_by_components(directory, relative, flags)
}

/// Opens a file without `openat2`: opens each directory of the path relative to the previous one,
/// then the file.
#[cfg(unix)]
fn open_by_components(
    mut directory: File,
    relative: &Path,
    flags: OFlags,
) -> Result<File, Refusal> {
    use rustix::fs::{AtFlags, FileType, openat, statat};
    use std::path::Component;

    let mut parts = Vec::new();
    for part in relative.components() {
        match part {
            Component::Normal(part) => parts.push(part),
            Component::CurDir => {}
            _ => return Err(Refusal::Io(io::ErrorKind::InvalidInput.into())),
        }
    }
    let Some((name, directories)) = parts.split_last() else {
        return Err(Refusal::Kind("a directory"));
    };
    for part in directories {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        directory = match openat(&directory, *part, flags, Mode::empty()) {
            Ok(next) => File::from(next),
            Err(error) => {
                let is_link = statat(&directory, *part, AtFlags::SYMLINK_NOFOLLOW)
                    .is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode).is_symlink());
                return Err(if is_link { Refusal::Link } else { Refusal::Io(error.into()) });
            }
        };
    }
    match openat(&directory, *name, flags | OFlags::NOFOLLOW, choose_creation_mode(flags)) {
        Ok(file) => Ok(File::from(file)),
        Err(rustix::io::Errno::LOOP) => Err(Refusal::Link),
        Err(error) => Err(Refusal::Io(error.into())),
    }
}

/// Flags for opening a file for reading. NONBLOCK keeps the call from waiting for the writer of a
/// pipe that was put in the place of the file.
#[cfg(unix)]
pub(crate) const READ: OFlags =
    OFlags::RDONLY.union(OFlags::CLOEXEC).union(OFlags::NONBLOCK).union(OFlags::NOCTTY);

/// Flags for opening a file for reading and writing, and for creating it if it is missing.
#[cfg(unix)]
const WRITE: OFlags = OFlags::RDWR
    .union(OFlags::CREATE)
    .union(OFlags::CLOEXEC)
    .union(OFlags::NONBLOCK)
    .union(OFlags::NOCTTY);

/// Returns the mode of a file that opening with `flags` may create: 0600. Without CREATE the mode
/// must be 0, or `openat2` fails.
#[cfg(unix)]
fn choose_creation_mode(flags: OFlags) -> Mode {
    if flags.contains(OFlags::CREATE) { Mode::RUSR | Mode::WUSR } else { Mode::empty() }
}

/// Describes a file that is not regular, such as `a pipe`.
#[cfg(unix)]
fn describe_file_type(kind: rustix::fs::FileType) -> &'static str {
    use rustix::fs::FileType;
    match kind {
        FileType::Directory => "a directory",
        FileType::Fifo => "a pipe",
        FileType::CharacterDevice | FileType::BlockDevice => "a device",
        FileType::Socket => "a socket",
        _ => "not a regular file",
    }
}

/// Returns the device and inode numbers of an open file.
#[cfg(unix)]
pub(crate) fn read_identity(file: &File) -> io::Result<Option<Identity>> {
    Ok(Some(to_identity(&file.metadata()?)))
}

/// Returns the device and inode numbers in a file's metadata.
#[cfg(unix)]
fn to_identity(metadata: &fs::Metadata) -> Identity {
    use std::os::unix::fs::MetadataExt;
    (metadata.dev(), metadata.ino())
}

/// Returns `None`: files have no device and inode numbers on this system.
#[cfg(not(unix))]
pub(crate) fn read_identity(_: &File) -> io::Result<Option<Identity>> {
    Ok(None)
}

#[cfg(not(unix))]
impl Directory {
    /// Opens a regular file of the directory for reading. The standard library has no handles to
    /// directories on this system, so the canonical path of the file is compared after opening.
    pub(crate) fn open_file(&self, relative: &Path) -> Result<File, Refusal> {
        self.open_regular(relative, File::options().read(true))
    }

    /// Opens a regular file of the directory for reading and writing. A missing file is created.
    pub(crate) fn open_to_write(&self, relative: &Path) -> Result<File, Refusal> {
        let mut options = File::options();
        self.open_regular(relative, options.read(true).write(true).create(true))
    }

    /// Opens a file of the directory, and fails unless the file is regular and no symlink leads to
    /// it.
    fn open_regular(&self, relative: &Path, options: &fs::OpenOptions) -> Result<File, Refusal> {
        let path = self.path.join(relative);
        match fs::symlink_metadata(&path) {
            Ok(metadata) if metadata.is_symlink() => return Err(Refusal::Link),
            Ok(metadata) if !metadata.is_file() => {
                return Err(Refusal::Kind("not a regular file"));
            }
            // A missing file is created or is an error, depending on the options.
            Ok(_) | Err(_) => {}
        }
        let file = options.open(&path)?;
        if fs::canonicalize(&path)? == path { Ok(file) } else { Err(Refusal::Link) }
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
        fs::create_dir_all(scratch.join("directory/deep")).unwrap();
        fs::write(scratch.join("directory/deep/file"), b"x").unwrap();
        fs::write(scratch.join("outside"), b"y").unwrap();
        symlink("../outside", scratch.join("directory/out")).unwrap();
        symlink("deep/file", scratch.join("directory/in")).unwrap();
        symlink("deep", scratch.join("directory/link")).unwrap();
        let directory = Directory::open(&scratch.join("directory")).unwrap();
        let both: [(fn(File, &Path, OFlags) -> Result<File, Refusal>, &str); 2] =
            [(open_without_links, "deep/new1"), (open_by_components, "deep/new2")];
        for (open, new) in both {
            let open = |path: &str, flags: OFlags| {
                open(directory.open_handle().unwrap(), Path::new(path), flags)
            };
            for flags in [READ, WRITE] {
                assert!(open("deep/file", flags).is_ok());
                assert!(open("./deep//file", flags).is_ok());
                for link in ["out", "in", "link/file"] {
                    let opened = open(link, flags);
                    assert!(matches!(opened, Err(Refusal::Link)), "{link}: {opened:?}");
                }
                for outside in ["../outside", "deep/../../outside", "/etc/passwd", "none/x"] {
                    assert!(open(outside, flags).is_err(), "{outside}");
                }
            }
            assert!(open(new, READ).is_err());
            assert!(open(new, WRITE).is_ok());
            let made = fs::metadata(scratch.join("directory").join(new)).unwrap();
            let mode = std::os::unix::fs::PermissionsExt::mode(&made.permissions());
            assert_eq!(mode & 0o777, 0o600);
        }
    }

    #[test]
    fn only_regular_files_with_one_name_are_opened_to_write() {
        let scratch = tempfile::tempdir().unwrap();
        let scratch = scratch.path();
        fs::write(scratch.join("one"), b"x").unwrap();
        fs::hard_link(scratch.join("one"), scratch.join("two")).unwrap();
        fs::create_dir(scratch.join("directory")).unwrap();
        symlink("nowhere", scratch.join("link")).unwrap();
        let directory = Directory::open(scratch).unwrap();
        let refused = |name| directory.open_to_write(Path::new(name)).unwrap_err();
        assert!(matches!(refused("one"), Refusal::HardLink));
        assert!(matches!(refused("directory"), Refusal::Kind("a directory")));
        assert!(matches!(refused("link"), Refusal::Link));
        assert!(!scratch.join("nowhere").exists());
    }

    #[test]
    fn a_directory_in_the_place_of_another_is_refused() {
        let scratch = tempfile::tempdir().unwrap();
        let scratch = scratch.path();
        for name in ["one", "two"] {
            fs::create_dir(scratch.join(name)).unwrap();
            fs::write(scratch.join(name).join("w"), name).unwrap();
        }
        let directory = Directory::open(&scratch.join("one")).unwrap();
        assert!(directory.open_file(Path::new("w")).is_ok());
        fs::rename(scratch.join("one"), scratch.join("away")).unwrap();
        let missing = directory.open_file(Path::new("w")).unwrap_err();
        assert!(matches!(missing, Refusal::Io(error) if error.kind() == io::ErrorKind::NotFound));
        symlink("two", scratch.join("one")).unwrap();
        assert!(directory.open_file(Path::new("w")).is_err());
        fs::remove_file(scratch.join("one")).unwrap();
        fs::rename(scratch.join("two"), scratch.join("one")).unwrap();
        let Err(Refusal::Io(error)) = directory.open_file(Path::new("w")) else {
            panic!("another directory is opened")
        };
        assert!(error.to_string().contains("another directory"), "{error}");
        assert!(Directory::open(&scratch.join("one/w")).is_err());
    }
}

//! Values that lie in files beside the model.
//!
//! A location comes from the model, and so from whoever made it. It may only lead to regular files in the model's folder, or, when
//! the model file is itself a link (as in a Hugging Face cache, where a folder of links points into a folder of
//! blobs), in the folder of the real model file. That is decided on the opened file, not on the text of its path.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use sardonyx_model::{ExternalData, NoExternalData};
use sardonyx_tensor::Buffer;

use crate::mapping;
use crate::open::Access;

/// The folder in which a model's data files are looked for. Each file is opened once.
#[derive(Debug)]
pub(crate) struct Folder {
    /// Where to look, in this order, as real paths. Files must lie in one of them.
    roots: Vec<PathBuf>,
    access: Access,
    files: Mutex<HashMap<String, Arc<DataFile>>>,
}

#[derive(Debug)]
enum DataFile {
    Mapped(Buffer),
    /// Read piece by piece.
    Open(Mutex<File>, u64),
}

impl Folder {
    /// The folder of a model file, and that of the real file if it is a link.
    pub(crate) fn beside(model: &Path, access: Access) -> Folder {
        let folder = match model.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            _ => Path::new("."),
        };
        let of_link = fs::canonicalize(folder).ok();
        let of_file = fs::canonicalize(model)
            .ok()
            .and_then(|real| real.parent().map(Path::to_path_buf));
        let mut roots: Vec<PathBuf> = of_link.into_iter().chain(of_file).collect();
        roots.dedup();
        Folder::with_roots(roots, access)
    }

    /// A folder named by the caller.
    pub(crate) fn at(folder: &Path, access: Access) -> io::Result<Folder> {
        Ok(Folder::with_roots(vec![fs::canonicalize(folder)?], access))
    }

    fn with_roots(roots: Vec<PathBuf>, access: Access) -> Folder {
        Folder {
            roots,
            access,
            files: Mutex::default(),
        }
    }

    fn file(&self, location: &str) -> Result<Arc<DataFile>, String> {
        // A panic elsewhere cannot leave the map half changed.
        let mut files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(file) = files.get(location) {
            return Ok(Arc::clone(file));
        }
        let file = Arc::new(self.open(location)?);
        files.insert(location.to_string(), Arc::clone(&file));
        Ok(file)
    }

    fn open(&self, location: &str) -> Result<DataFile, String> {
        check_location(location)?;
        let failed = |error: &dyn std::fmt::Display| {
            format!("its file '{location}' cannot be read: {error}")
        };
        let mut looked = Vec::new();
        for root in &self.roots {
            let path = root.join(location);
            let real = match fs::canonicalize(&path) {
                Ok(real) => real,
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    looked.push(path.display().to_string());
                    continue;
                }
                Err(error) => return Err(failed(&error)),
            };
            self.check_inside(location, &real)?;
            // Before opening, because opening a pipe would wait for a writer; and again on the open file.
            let regular = |metadata: &fs::Metadata| match metadata.is_file() {
                true => Ok(()),
                false => Err(format!(
                    "'{location}' is not a regular file, so its values are not read from it"
                )),
            };
            let before = fs::symlink_metadata(&real).map_err(|error| failed(&error))?;
            regular(&before)?;
            let file = File::open(&real).map_err(|error| failed(&error))?;
            let metadata = file.metadata().map_err(|error| failed(&error))?;
            regular(&metadata)?;
            match opened_path(&file) {
                Some(opened) => self.check_inside(location, &opened)?,
                None if !same_file(&before, &metadata) => {
                    return Err(failed(&"it was exchanged while it was opened"));
                }
                None => {}
            }
            return match self.access {
                Access::Map => mapping::map(&file)
                    .map(DataFile::Mapped)
                    .map_err(|error| failed(&error)),
                Access::Read => Ok(DataFile::Open(Mutex::new(file), metadata.len())),
            };
        }
        Err(format!(
            "its values are in the file '{location}', which is missing; looked for {}",
            looked.join(" and ")
        ))
    }

    fn check_inside(&self, location: &str, real: &Path) -> Result<(), String> {
        match self.roots.iter().any(|root| real.starts_with(root)) {
            true => Ok(()),
            false => Err(format!(
                "'{location}' leads to {}, outside the model's folder, so it is not read",
                real.display()
            )),
        }
    }
}

/// Where an open file really lies, if the system can say.
#[cfg(target_os = "linux")]
fn opened_path(file: &File) -> Option<PathBuf> {
    use std::os::fd::AsRawFd;
    let path = fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd())).ok()?;
    path.is_absolute().then_some(path)
}

#[cfg(not(target_os = "linux"))]
fn opened_path(_: &File) -> Option<PathBuf> {
    None
}

#[cfg(unix)]
fn same_file(a: &fs::Metadata, b: &fs::Metadata) -> bool {
    use std::os::unix::fs::MetadataExt;
    (a.dev(), a.ino()) == (b.dev(), b.ino())
}

#[cfg(not(unix))]
fn same_file(_: &fs::Metadata, _: &fs::Metadata) -> bool {
    true
}

/// Refuses what cannot be a path within the folder, by the rules of every system: a model must not be safe here and
/// harmful elsewhere.
fn check_location(location: &str) -> Result<(), String> {
    let refused = |why: &str| Err(format!("its location '{}' {why}", location.escape_debug()));
    let bytes = location.as_bytes();
    if bytes.is_empty() {
        return refused("is empty");
    }
    if bytes[0] == b'#' {
        return refused("stands for memory of the program that wrote the model");
    }
    if location.contains('\0') {
        return refused("holds a NUL character");
    }
    if matches!(bytes[0], b'/' | b'\\')
        || (bytes[0].is_ascii_alphabetic() && bytes.get(1) == Some(&b':'))
    {
        return refused("is an absolute path; it must be relative to the model's folder");
    }
    if location.split(['/', '\\']).any(|part| part == "..") {
        return refused("has a '..' part; it must stay in the model's folder");
    }
    Ok(())
}

impl ExternalData for Folder {
    fn load(&self, location: &str, offset: u64, length: Option<u64>) -> Result<Buffer, String> {
        let file = self.file(location)?;
        let size = match &*file {
            DataFile::Mapped(bytes) => bytes.len() as u64,
            DataFile::Open(_, size) => *size,
        };
        let end = match length {
            Some(length) => offset.checked_add(length),
            None => Some(size),
        };
        let Some(end) = end.filter(|end| *end <= size && offset <= *end) else {
            let wanted = length.map_or(String::new(), |length| format!("{length} bytes "));
            return Err(format!(
                "its {wanted}at {offset} lie beyond the end of '{location}', which has {size} bytes; is the file cut off?"
            ));
        };
        let range = |n: u64| {
            usize::try_from(n).map_err(|_| format!("byte {n} of '{location}' cannot be addressed"))
        };
        match &*file {
            DataFile::Mapped(bytes) => bytes
                .slice(range(offset)?..range(end)?)
                .map_err(|error| error.to_string()),
            DataFile::Open(file, _) => {
                let mut bytes = Vec::new();
                let len = range(end - offset)?;
                bytes
                    .try_reserve_exact(len)
                    .map_err(|_| format!("no memory for its {len} bytes"))?;
                let mut file = file.lock().unwrap_or_else(PoisonError::into_inner);
                let read = file
                    .seek(SeekFrom::Start(offset))
                    .and_then(|_| (&mut *file).take(end - offset).read_to_end(&mut bytes));
                match read {
                    Ok(n) if n == len => Ok(Buffer::from_vec(bytes)),
                    Ok(_) => Err(format!("'{location}' became shorter while it was read")),
                    Err(error) => Err(format!("'{location}' cannot be read: {error}")),
                }
            }
        }
    }
}

/// Loads from a folder, or from nowhere, and remembers whether that failed: whoever compiles the model reports only that some
/// tensor has no value.
pub(crate) struct Watched<'a> {
    folder: Option<&'a Folder>,
    failed: AtomicBool,
}

impl<'a> Watched<'a> {
    pub(crate) fn new(folder: Option<&'a Folder>) -> Watched<'a> {
        Watched {
            folder,
            failed: AtomicBool::new(false),
        }
    }

    pub(crate) fn failed(&self) -> bool {
        self.failed.load(Ordering::Relaxed)
    }
}

impl ExternalData for Watched<'_> {
    fn load(&self, location: &str, offset: u64, length: Option<u64>) -> Result<Buffer, String> {
        let result = match self.folder {
            Some(folder) => folder.load(location, offset, length),
            None => NoExternalData.load(location, offset, length),
        };
        if result.is_err() {
            self.failed.store(true, Ordering::Relaxed);
        }
        result
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A fresh folder under the system's temporary one, removed at the end.
    struct Scratch(PathBuf);

    impl Scratch {
        fn new(name: &str) -> Scratch {
            let path = std::env::temp_dir().join(format!("sardonyx-{name}-{}", std::process::id()));
            let _ = fs::remove_dir_all(&path);
            fs::create_dir_all(&path).unwrap();
            Scratch(path)
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn ranges_are_served_from_files_in_the_folder() {
        // EXT-01, EXT-04, EXT-06, EXT-08, EXT-25
        let scratch = Scratch::new("ranges");
        fs::create_dir(scratch.0.join("données")).unwrap();
        fs::write(
            scratch.0.join("données/w.bin"),
            (0..100).collect::<Vec<u8>>(),
        )
        .unwrap();
        for access in [Access::Map, Access::Read] {
            let folder = Folder::beside(&scratch.0.join("model.onnx"), access);
            let load = |offset, length| folder.load("données/w.bin", offset, length);
            assert_eq!(load(10, Some(3)).unwrap().as_slice(), [10, 11, 12]);
            assert_eq!(load(98, None).unwrap().as_slice(), [98, 99]);
            assert!(load(100, Some(0)).unwrap().is_empty());
            // EXT-14
            for (offset, length) in [
                (0, Some(101)),
                (0, Some(1 << 50)),
                (101, None),
                (u64::MAX, Some(2)),
            ] {
                let error = load(offset, length).unwrap_err();
                assert!(error.contains("100 bytes"), "{error}");
            }
        }
    }

    #[test]
    fn locations_that_lead_outside_are_refused() {
        // EXT-02, EXT-09, EXT-10, EXT-26
        let scratch = Scratch::new("outside");
        let folder = Folder::at(&scratch.0, Access::Map).unwrap();
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
            let error = folder.load(location, 0, None).unwrap_err();
            assert!(error.starts_with("its location"), "{location}: {error}");
        }
        let error = folder.load("w.bin", 0, None).unwrap_err();
        assert!(
            error.contains("missing") && error.contains("w.bin"),
            "{error}"
        );
    }

    #[cfg(unix)]
    #[test]
    fn links_may_lead_to_the_real_model_s_folder_only() {
        // EXT-11, with the exception for caches of links
        use std::os::unix::fs::symlink;
        let scratch = Scratch::new("links");
        let (snapshot, blobs, elsewhere) = (
            scratch.0.join("snapshot"),
            scratch.0.join("blobs"),
            scratch.0.join("elsewhere"),
        );
        for folder in [&snapshot, &blobs, &elsewhere] {
            fs::create_dir(folder).unwrap();
        }
        fs::write(blobs.join("1"), b"model").unwrap();
        fs::write(blobs.join("2"), b"data").unwrap();
        fs::write(elsewhere.join("3"), b"secret").unwrap();
        symlink("../blobs/1", snapshot.join("model.onnx")).unwrap();
        symlink("../blobs/2", snapshot.join("good")).unwrap();
        symlink("../elsewhere/3", snapshot.join("bad")).unwrap();
        symlink("../elsewhere", snapshot.join("sub")).unwrap();
        let folder = Folder::beside(&snapshot.join("model.onnx"), Access::Map);
        assert_eq!(folder.load("good", 0, None).unwrap().as_slice(), b"data");
        // A sidecar that only lies beside the real file.
        assert_eq!(folder.load("2", 0, None).unwrap().as_slice(), b"data");
        for location in ["bad", "sub/3"] {
            let error = folder.load(location, 0, None).unwrap_err();
            assert!(error.contains("outside"), "{error}");
        }
        let error = folder.load(".", 0, None).unwrap_err();
        assert!(error.contains("regular"), "{error}");
    }
}

//! Copies ranges of mapped files by the system, from file to file, without touching their pages.

use std::fs::File;

use crate::stamp::MappedFile;

/// Size in bytes from which a range is copied by the system. Shorter ones are written with their
/// neighbours in one call.
const LEAST_BYTES: usize = 64 << 10;

/// Copies ranges of mapped files into other files.
pub(super) struct FileCopier {
    /// Mapped files, by address.
    mapped: Vec<MappedFile>,
    /// The file that was opened last, and the address of its first byte.
    opened: Option<(usize, File)>,
    /// Whether the system has copied everything so far.
    works: bool,
}

impl FileCopier {
    /// Creates a copier of ranges of mapped files.
    pub(super) fn new(mut mapped: Vec<MappedFile>) -> FileCopier {
        mapped.retain(|file| !file.bytes.is_empty());
        mapped.sort_unstable_by_key(address_of_file);
        FileCopier { mapped, opened: None, works: cfg!(target_os = "linux") }
    }

    /// Whether a range is long enough and in a mapped file.
    pub(super) fn has(&self, bytes: &[u8]) -> bool {
        self.works && self.find(bytes).is_some()
    }

    /// Copies the beginning of `bytes`, a range of a mapped file, to the position of `target`,
    /// which advances. Returns the number of bytes; `None` if nothing was copied, so that `bytes`
    /// must be written: they are short or not mapped, the file is not at its path any more, or the
    /// system does not copy between these files.
    pub(super) fn copy(&mut self, bytes: &[u8], target: &File) -> Option<usize> {
        if !self.works {
            return None;
        }
        let index = self.find(bytes)?;
        let copied = self.copy_from(index, bytes, target).filter(|count| *count > 0);
        // The next call would fail as well; an error of the target is reported by the write.
        self.works = copied.is_some();
        copied
    }

    /// Finds the mapped file in which a range lies.
    fn find(&self, bytes: &[u8]) -> Option<usize> {
        if bytes.len() < LEAST_BYTES {
            return None;
        }
        let start = address_of(bytes);
        let after = self.mapped.partition_point(|file| address_of_file(file) <= start);
        let index = after.checked_sub(1)?;
        let file = self.mapped.get(index)?;
        let end = address_of_file(file) + file.bytes.len();
        (start + bytes.len() <= end).then_some(index)
    }

    fn copy_from(&mut self, index: usize, bytes: &[u8], target: &File) -> Option<usize> {
        let mapped = self.mapped.get(index)?;
        let address = address_of_file(mapped);
        if self.opened.as_ref().is_none_or(|(opened, _)| *opened != address) {
            self.opened = Some((address, mapped.stamp.reopen()?));
        }
        let (_, file) = self.opened.as_ref()?;
        let offset = (address_of(bytes) - address) as u64;
        copy_range(file, offset, target, bytes.len())
    }
}

/// Returns the address of the first byte of a mapped file.
fn address_of_file(file: &MappedFile) -> usize {
    address_of(file.bytes.as_slice())
}

/// Returns the address of the first byte.
fn address_of(bytes: &[u8]) -> usize {
    bytes.as_ptr().addr()
}

/// Copies up to `len` bytes of a file from `offset` on to the position of `target`. `None` if the
/// system does not.
#[cfg(target_os = "linux")]
fn copy_range(source: &File, offset: u64, target: &File, len: usize) -> Option<usize> {
    let mut offset = offset;
    rustix::fs::copy_file_range(source, Some(&mut offset), target, None, len).ok()
}

/// Copies nothing: this system has no such call.
#[cfg(not(target_os = "linux"))]
fn copy_range(_: &File, _: u64, _: &File, _: usize) -> Option<usize> {
    None
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::Write;
    use std::path::Path;
    use std::sync::Arc;

    use super::*;
    use crate::open::{Access, open_file};

    /// Offset and length of the range that is copied: neither is a multiple of a page.
    const RANGE: (usize, usize) = (4099, LEAST_BYTES + 1001);

    /// Writes a file and maps it.
    fn map_new_file(path: &Path) -> MappedFile {
        let bytes: Vec<u8> = (0..4 * LEAST_BYTES).map(|index| (index % 251) as u8).collect();
        fs::write(path, bytes).unwrap();
        let (bytes, stamp) = open_file(path, Access::Map, None).unwrap();
        MappedFile { bytes, stamp: Arc::new(stamp.unwrap()) }
    }

    /// Copies a range of the bytes of a file behind three other bytes. Returns what the copier
    /// returned, and the file.
    fn copy_range_of(
        bytes: &[u8],
        mapped: &MappedFile,
        directory: &Path,
    ) -> (Option<usize>, Vec<u8>) {
        let target = directory.join("target");
        let mut file = File::create(&target).unwrap();
        file.write_all(b"abc").unwrap();
        let other = map_new_file(&directory.join("other"));
        let mut copier = FileCopier::new(vec![mapped.clone(), other]);
        let range = &bytes[RANGE.0..RANGE.0 + RANGE.1];
        let copied = copier.copy(range, &file);
        assert_eq!(copier.has(range), copied.is_some());
        // The next write follows what was copied.
        file.write_all(b"xyz").unwrap();
        (copied, fs::read(target).unwrap())
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_range_is_copied_from_the_mapped_file() {
        let scratch = tempfile::tempdir().unwrap();
        let mapped = map_new_file(&scratch.path().join("source"));
        let bytes = mapped.bytes.as_slice();
        let (copied, found) = copy_range_of(bytes, &mapped, scratch.path());
        let copied = copied.unwrap();
        assert!((1..=RANGE.1).contains(&copied));
        let mut expected = b"abc".to_vec();
        expected.extend(&bytes[RANGE.0..RANGE.0 + copied]);
        expected.extend(b"xyz");
        assert!(found == expected);
    }

    #[test]
    fn bytes_of_another_file_are_not_copied() {
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join("source");
        let mapped = map_new_file(&path);
        let copy = mapped.bytes.as_slice().to_vec();
        let nothing = (None, b"abcxyz".to_vec());
        assert_eq!(copy_range_of(&copy, &mapped, scratch.path()), nothing);
        fs::remove_file(&path).unwrap();
        assert_eq!(copy_range_of(mapped.bytes.as_slice(), &mapped, scratch.path()), nothing);
        // As long as the mapped file, at its path.
        fs::write(&path, vec![7; copy.len()]).unwrap();
        assert_eq!(copy_range_of(mapped.bytes.as_slice(), &mapped, scratch.path()), nothing);
    }
}

//! `.npz`: a zip archive of `.npy` files, one per array.
//!
//! Members may be stored, as by NumPy's `savez`, or deflated, as by its `savez_compressed`. A
//! stored member is a slice of the archive, without a copy. The unpacked size of a deflated one is
//! bounded by the size in its entry and, over all members, by the size of the archive, so that a
//! small file cannot fill the memory.

use std::collections::HashSet;
use std::fmt::Display;
use std::io::{self, BufWriter, Cursor, Read, Seek, Write};

use sardonyx_tensor::{Buffer, Tensor, TensorError, npy};
use zip::read::ZipFile;
use zip::result::ZipError;
use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, ZipArchive, ZipWriter};

/// Causes of a failure to read or write an archive. More may be added.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NpzError {
    /// The bytes are not a zip archive.
    #[error("this is not an .npz archive, or it is damaged: {0}")]
    Archive(String),
    /// A member is damaged, or packed by an unsupported method.
    #[error("the array '{name}' cannot be read: {what}")]
    Member {
        /// Name of the member.
        name: String,
        /// Description of the defect.
        what: String,
    },
    /// A member is not an array.
    #[error("'{name}' in the archive is not an .npy file")]
    NotAnArray {
        /// Name of the member.
        name: String,
    },
    /// Two members have the same name or the same bytes.
    #[error("the archive has two arrays with the same {0}")]
    Twice(&'static str),
    /// A member unpacks to more bytes than an archive of that size may contain.
    #[error("with the array '{name}' the archive unpacks to more than {limit} bytes")]
    TooLarge {
        /// Name of the member.
        name: String,
        /// Maximum unpacked size of all members together, in bytes.
        limit: u64,
    },
    /// NumPy has no form for an array.
    #[error("the array '{name}' cannot be written: {error}")]
    Array {
        /// Name of the array.
        name: String,
        /// Cause.
        #[source]
        error: TensorError,
    },
    /// Two arrays have one name.
    #[error("two arrays would have the name '{name}'")]
    Duplicate {
        /// Name of both arrays.
        name: String,
    },
    /// The destination failed.
    #[error("the archive cannot be written: {0}")]
    Write(#[source] io::Error),
}

/// Unpacked size in bytes that every archive may have.
const ALWAYS_ALLOWED: u64 = 1 << 30;

/// Allowed ratio of the unpacked size to the size of the archive, beyond [`ALWAYS_ALLOWED`].
/// Deflate reaches about 1,000; arrays that are not all zeros are far below 100.
const ALLOWED_RATIO: u64 = 100;

/// Returns the arrays of an archive in its order, each as the bytes of its `.npy` file under the
/// name without suffix, for [`npy::read`] or [`npy::read_as`].
///
/// # Errors
/// If the bytes are not a consistent archive, a member is damaged (checksums are verified) or is
/// not an `.npy` file, two members overlap, or they unpack to more than 1 GiB and more than 100
/// times the size of the archive.
pub fn read(archive: &Buffer) -> Result<Vec<(String, Buffer)>, NpzError> {
    let bytes = archive.as_slice();
    let mut zip = ZipArchive::new(Cursor::new(bytes)).map_err(archive_error)?;
    if zip.has_duplicate_names() {
        return Err(NpzError::Twice("name"));
    }
    // Members that share their bytes let a small archive unpack to any size.
    if zip.has_overlapping_files().map_err(archive_error)? {
        return Err(NpzError::Twice("bytes"));
    }
    // Names are stored twice. Programs that read one copy and programs that read the other must see
    // the same archive.
    zip.validate_header_consistency().map_err(archive_error)?;
    let limit = (bytes.len() as u64).saturating_mul(ALLOWED_RATIO).max(ALWAYS_ALLOWED);
    let mut left = limit;
    let mut arrays = Vec::new();
    for index in 0..zip.len() {
        let member = zip.by_index(index).map_err(archive_error)?;
        if member.is_dir() {
            continue;
        }
        let name = member.name().map_err(archive_error)?.into_owned();
        let Some(name) = name.strip_suffix(".npy").map(str::to_string) else {
            return Err(NpzError::NotAnArray { name });
        };
        if member.compression() == CompressionMethod::Stored {
            let data = read_stored(archive, member, &name)?;
            arrays.push((name, data));
            continue;
        }
        // An honest entry is refused before unpacking, and a dishonest one at the limit.
        let Some(rest) = left.checked_sub(member.size()) else {
            return Err(NpzError::TooLarge { name, limit });
        };
        left = rest;
        let data = unpack(member, &name)?;
        arrays.push((name, data));
    }
    Ok(arrays)
}

fn archive_error(error: ZipError) -> NpzError {
    NpzError::Archive(error.to_string())
}

fn bad_member(name: &str, what: impl Display) -> NpzError {
    NpzError::Member { name: name.to_string(), what: what.to_string() }
}

/// Returns the bytes of a member that is not packed, as a slice of the archive, after checking its
/// checksum.
fn read_stored(
    archive: &Buffer,
    mut member: ZipFile<'_, Cursor<&[u8]>>,
    name: &str,
) -> Result<Buffer, NpzError> {
    let (size, packed) = (member.size(), member.compressed_size());
    if size != packed {
        return Err(bad_member(
            name,
            format!("it is not packed, but has {packed} bytes packed and {size} unpacked"),
        ));
    }
    let start = member.data_start().ok_or_else(|| bad_member(name, "its position is unknown"))?;
    let end = start.checked_add(size);
    let range = usize::try_from(start).ok().zip(end.and_then(|end| usize::try_from(end).ok()));
    let (start, end) = range.ok_or_else(|| bad_member(name, "it cannot be addressed"))?;
    let data = archive.slice(start..end).map_err(|error| bad_member(name, error))?;
    // Reading to the end compares the checksum.
    io::copy(&mut member, &mut io::sink()).map_err(|error| bad_member(name, error))?;
    Ok(data)
}

/// Returns the bytes of a packed member, or an error if their number is not that of its entry.
fn unpack(member: ZipFile<'_, Cursor<&[u8]>>, name: &str) -> Result<Buffer, NpzError> {
    let size = member.size();
    let mut bytes = Vec::new();
    // One more byte detects a member that is longer than its entry. The vector grows with the data.
    member
        .take(size.saturating_add(1))
        .read_to_end(&mut bytes)
        .map_err(|error| bad_member(name, error))?;
    if bytes.len() as u64 != size {
        return Err(bad_member(
            name,
            format!("its unpacked size differs from the {size} bytes that the archive declares"),
        ));
    }
    Ok(Buffer::from_vec(bytes))
}

/// Packing of the arrays of a new archive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Packing {
    /// None, like NumPy's `savez`.
    #[default]
    Stored,
    /// Deflate, like NumPy's `savez_compressed`.
    Deflated,
}

/// Writes an archive, array by array. Equal arrays result in equal bytes, since no dates are
/// stored.
///
/// ```
/// use sardonyx_formats::npz::{Packing, Writer, read};
/// use sardonyx_tensor::{Buffer, Tensor, npy};
///
/// let mut writer = Writer::new(std::io::Cursor::new(Vec::new()), Packing::Stored);
/// writer.add("x", &Tensor::from_vec([2], vec![1.0f32, 2.0])?)?;
/// let archive = Buffer::from_vec(writer.finish()?.into_inner());
/// let (name, file) = &read(&archive)?[0];
/// assert_eq!(name, "x");
/// assert_eq!(npy::read(file)?.to_vec::<f32>()?, [1.0, 2.0]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Writer<W: Write + Seek> {
    zip: ZipWriter<BufWriter<W>>,
    names: HashSet<String>,
    packing: Packing,
}

impl<W: Write + Seek> Writer<W> {
    /// Creates an archive without arrays. `sink` is written from its current position.
    pub fn new(sink: W, packing: Packing) -> Writer<W> {
        Writer { zip: ZipWriter::new(BufWriter::new(sink)), names: HashSet::new(), packing }
    }

    /// Adds an array. Numbers go from the tensor directly to the destination; only strings and
    /// packed elements are collected first.
    ///
    /// # Errors
    /// If NumPy has no form for it, which is the case for some strings, the archive has an array of
    /// that name already, or the destination fails.
    pub fn add(&mut self, name: &str, tensor: &Tensor) -> Result<(), NpzError> {
        let (start, rest) = parts_of(name, tensor)?;
        if !self.names.insert(name.to_string()) {
            return Err(NpzError::Duplicate { name: name.to_string() });
        }
        let size = start.len() as u64 + rest.len() as u64;
        let method = match self.packing {
            Packing::Stored => CompressionMethod::Stored,
            Packing::Deflated => CompressionMethod::Deflated,
        };
        let options = SimpleFileOptions::default()
            .compression_method(method)
            // Leaves room for data that cannot be packed and grows a little.
            .large_file(size.saturating_add(size / 1000) >= u64::from(u32::MAX) - 1024);
        self.zip.start_file(format!("{name}.npy"), options).map_err(write_error)?;
        self.zip.write_all(&start).and_then(|()| self.zip.write_all(rest)).map_err(NpzError::Write)
    }

    /// Writes the archive's directory and returns the destination, flushed.
    ///
    /// # Errors
    /// If the destination fails.
    pub fn finish(self) -> Result<W, NpzError> {
        let sink = self.zip.finish().map_err(write_error)?;
        let mut sink = sink.into_inner().map_err(|error| NpzError::Write(error.into_error()))?;
        sink.flush().map_err(NpzError::Write)?;
        Ok(sink)
    }
}

/// Returns the bytes of the `.npy` file of a tensor: those that were made, and the tensor's own
/// that follow.
fn parts_of<'t>(name: &str, tensor: &'t Tensor) -> Result<(Vec<u8>, &'t [u8]), NpzError> {
    let unfit = |error| NpzError::Array { name: name.to_string(), error };
    // On other machines bytes have to be swapped, which is a copy anyway; packed elements get a
    // byte each.
    let straight = tensor.strings().is_none()
        && !tensor.data_type().is_packed()
        && cfg!(target_endian = "little");
    if straight {
        let header = npy::header(tensor.data_type(), tensor.dims()).map_err(unfit)?;
        return Ok((header, tensor.bytes()));
    }
    Ok((npy::write(tensor).map_err(unfit)?, &[]))
}

/// Checks for the errors of [`write`], without writing elements.
///
/// # Errors
/// All errors of [`Writer::add`] except those of a destination.
pub fn check<'a>(arrays: impl IntoIterator<Item = (&'a str, &'a Tensor)>) -> Result<(), NpzError> {
    let mut zip = ZipWriter::new(Cursor::new(Vec::new()));
    let mut names = HashSet::new();
    for (name, tensor) in arrays {
        parts_of(name, tensor)?;
        if !names.insert(name) {
            return Err(NpzError::Duplicate { name: name.to_string() });
        }
        zip.start_file(format!("{name}.npy"), SimpleFileOptions::default()).map_err(write_error)?;
    }
    zip.finish().map(drop).map_err(write_error)
}

fn write_error(error: ZipError) -> NpzError {
    NpzError::Write(error.into())
}

/// Writes a whole archive; see [`Writer`].
///
/// # Errors
/// All errors of [`Writer::add`] and [`Writer::finish`].
pub fn write<'a, W: Write + Seek>(
    sink: W,
    arrays: impl IntoIterator<Item = (&'a str, &'a Tensor)>,
    packing: Packing,
) -> Result<W, NpzError> {
    let mut writer = Writer::new(sink, packing);
    for (name, tensor) in arrays {
        writer.add(name, tensor)?;
    }
    writer.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use sardonyx_tensor::{DataType, StringArray};

    fn arrays() -> Vec<(&'static str, Tensor)> {
        vec![
            ("weights", Tensor::from_vec([2, 3], vec![1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0]).unwrap()),
            ("empty", Tensor::zeros(DataType::Int64, [0, 4]).unwrap()),
            ("größe", Tensor::scalar(-7i16)),
            (
                "names",
                Tensor::from_strings([2], ["one", "zwei"].into_iter().collect::<StringArray>())
                    .unwrap(),
            ),
            ("zeros", Tensor::zeros(DataType::Double, [500]).unwrap()),
        ]
    }

    fn archive(packing: Packing) -> Vec<u8> {
        let arrays = arrays();
        let pairs = arrays.iter().map(|(name, tensor)| (*name, tensor));
        write(Cursor::new(Vec::new()), pairs, packing).unwrap().into_inner()
    }

    #[test]
    fn written_arrays_are_read_back() {
        for packing in [Packing::Stored, Packing::Deflated] {
            let bytes = archive(packing);
            assert_eq!(bytes, archive(packing), "the same bytes every time");
            let back = read(&Buffer::from_vec(bytes)).unwrap();
            assert_eq!(back.len(), arrays().len());
            for ((name, file), (expected, tensor)) in back.iter().zip(arrays()) {
                assert_eq!(name, expected);
                assert_eq!(file.as_slice(), npy::write(&tensor).unwrap());
                assert_eq!(npy::read(file).unwrap(), tensor);
            }
        }
        assert!(archive(Packing::Deflated).len() < archive(Packing::Stored).len() / 2);
    }

    #[test]
    fn errors_are_found_before_writing() {
        let all = arrays();
        let pairs = || all.iter().map(|(name, tensor)| (*name, tensor));
        check(pairs()).unwrap();
        let long = "x".repeat(1 << 16);
        let one = Tensor::scalar(1u8);
        let bad = Tensor::from_strings([1], ["a\0"].into_iter().collect::<StringArray>()).unwrap();
        for (name, tensor) in [("weights", &one), (long.as_str(), &one), ("bad", &bad)] {
            let arrays = || pairs().chain([(name, tensor)]);
            let error = check(arrays()).unwrap_err().to_string();
            let written = write(Cursor::new(Vec::new()), arrays(), Packing::Stored);
            assert_eq!(written.unwrap_err().to_string(), error);
        }
    }

    /// Checks that types without a name in NumPy are bare bytes, and that elements of less than a
    /// byte get one each.
    #[test]
    fn every_type_of_numbers_has_a_form() {
        for data_type in DataType::ALL.into_iter().filter(|ty| *ty != DataType::String) {
            let tensor = Tensor::zeros(data_type, [3, 5]).unwrap();
            let written = write(Cursor::new(Vec::new()), [("x", &tensor)], Packing::Stored);
            let back = read(&Buffer::from_vec(written.unwrap().into_inner())).unwrap();
            assert_eq!(npy::read_as(&back[0].1, data_type).unwrap(), tensor);
        }
    }

    #[test]
    fn stored_arrays_are_slices_of_the_archive() {
        let buffer = Buffer::from_vec(archive(Packing::Stored));
        let inside = buffer.as_slice().as_ptr_range();
        for (name, file) in read(&buffer).unwrap() {
            assert!(inside.contains(&file.as_slice().as_ptr()), "{name}");
        }
    }

    #[test]
    fn every_damage_is_an_error() {
        for packing in [Packing::Stored, Packing::Deflated] {
            let good = archive(packing);
            for end in 0..good.len() {
                assert!(read(&Buffer::from_vec(good[..end].to_vec())).is_err());
            }
            // A bit of the content: the checksum or the decoder detects it.
            let at = good.windows(6).position(|w| w == b"\x93NUMPY").unwrap_or(60);
            let mut flipped = good.clone();
            flipped[at + 3] ^= 4;
            let error = read(&Buffer::from_vec(flipped)).unwrap_err().to_string();
            assert!(error.contains("'weights'"), "{error}");
        }
    }

    /// Makes a zip archive with another library's writer.
    fn zip(members: &[(&str, &[u8], CompressionMethod)]) -> Vec<u8> {
        let mut zip = ZipWriter::new(Cursor::new(Vec::new()));
        for (name, bytes, method) in members {
            zip.start_file(*name, SimpleFileOptions::default().compression_method(*method))
                .unwrap();
            zip.write_all(bytes).unwrap();
        }
        zip.finish().unwrap().into_inner()
    }

    fn error(bytes: Vec<u8>) -> String {
        read(&Buffer::from_vec(bytes)).unwrap_err().to_string()
    }

    #[test]
    fn other_files_are_named() {
        assert!(error(Vec::new()).contains("not an .npz archive"));
        assert!(error(b"PK\x03\x04 and nothing".to_vec()).contains("not an .npz archive"));
        assert!(
            error(zip(&[("notes.txt", b"x", CompressionMethod::Stored)])).contains("'notes.txt'")
        );
        let with_directory = zip(&[("a.npy", b"x", CompressionMethod::Stored)]);
        assert_eq!(read(&Buffer::from_vec(with_directory)).unwrap().len(), 1);
    }

    /// Changes the 4-byte number at `offset` of each record that begins with `magic`.
    fn patch(bytes: &mut [u8], magic: &[u8; 4], offset: usize, value: u32) {
        for at in 0..bytes.len() - 4 {
            if bytes[at..].starts_with(magic) {
                bytes[at + offset..][..4].copy_from_slice(&value.to_le_bytes());
            }
        }
    }

    #[test]
    fn bombs_are_refused_before_they_unpack() {
        let zeros = vec![0u8; 1 << 20];
        let honest = zip(&[("a.npy", &zeros, CompressionMethod::Deflated)]);
        assert!(honest.len() < 2000);
        // An entry of 4 GiB is refused at once. An entry of one byte is detected after two.
        for (size, words) in [(u32::MAX - 1, "more than 1073741824 bytes"), (1, "larger than")] {
            let mut bytes = honest.clone();
            patch(&mut bytes, b"PK\x03\x04", 22, size);
            patch(&mut bytes, b"PK\x01\x02", 24, size);
            let error = error(bytes);
            assert!(error.contains("'a'") && error.contains(words), "{error}");
        }
        // Two members with one content.
        let mut twice = zip(&[
            ("a.npy", &zeros, CompressionMethod::Deflated),
            ("b.npy", &zeros, CompressionMethod::Deflated),
        ]);
        patch(&mut twice, b"PK\x01\x02", 42, 0);
        assert!(error(twice).contains("same bytes"));
        let mut same_name = zip(&[
            ("a.npy", b"x", CompressionMethod::Stored),
            ("b.npy", b"x", CompressionMethod::Stored),
        ]);
        for byte in &mut same_name {
            if *byte == b'b' {
                *byte = b'a';
            }
        }
        assert!(error(same_name).contains("same name"));
        let mut two_names = zip(&[("a.npy", b"x", CompressionMethod::Stored)]);
        let at = two_names.iter().rposition(|byte| *byte == b'a').unwrap();
        two_names[at] = b'b';
        assert!(error(two_names).contains("not an .npz archive"));
    }

    #[test]
    fn duplicate_names_are_refused() {
        let mut writer = Writer::new(Cursor::new(Vec::new()), Packing::Stored);
        let tensor = Tensor::scalar(1u8);
        writer.add("x", &tensor).unwrap();
        assert!(writer.add("x", &tensor).is_err(), "twice");
    }
}

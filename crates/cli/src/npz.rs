//! `.npz`: a zip archive of `.npy` files, one per array.

use std::fs::File;
use std::io::{Cursor, Read, Write};

use sardonyx::{Buffer, Tensor, npy};
use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, ZipArchive, ZipWriter};

use crate::failure::Failure;

/// The arrays of an archive, each as the bytes of its `.npy` file under the name without suffix.
pub(crate) fn read(archive: &Buffer) -> Result<Vec<(String, Buffer)>, Failure> {
    let bad = |what: &dyn std::fmt::Display| {
        Failure::new(format!("this is no .npz archive, or a damaged one: {what}"))
    };
    let mut zip = ZipArchive::new(Cursor::new(archive.as_slice())).map_err(|error| bad(&error))?;
    let mut arrays = Vec::new();
    for index in 0..zip.len() {
        let member = zip.by_index(index).map_err(|error| bad(&error))?;
        if member.is_dir() {
            continue;
        }
        let name = member.name().map_err(|error| bad(&error))?.into_owned();
        let Some(name) = name.strip_suffix(".npy").map(str::to_string) else {
            return Err(bad(&format!("'{name}' inside is no .npy file")));
        };
        let limit = limit(member.compressed_size());
        let mut bytes = Vec::new();
        member
            .take(limit + 1)
            .read_to_end(&mut bytes)
            .map_err(|error| bad(&format!("'{name}': {error}")))?;
        if bytes.len() as u64 > limit {
            return Err(Failure::new(format!(
                "the array '{name}' unpacks to more than {limit} bytes, out of all proportion"
            ))
            .help("if it is meant to be that large, give it as .npy"));
        }
        arrays.push((name, Buffer::from_vec(bytes)));
    }
    Ok(arrays)
}

/// How much a member may unpack to: a small archive must not fill the memory.
fn limit(compressed: u64) -> u64 {
    compressed.saturating_mul(100).max(1 << 30)
}

/// Writes arrays as NumPy's `savez` does: stored, not compressed, and the same bytes every time.
pub(crate) fn write(file: &mut File, arrays: &[(String, &Tensor)]) -> Result<(), Failure> {
    let failed =
        |error: zip::result::ZipError| Failure::new(format!("cannot write the archive: {error}"));
    let mut zip = ZipWriter::new(std::io::BufWriter::new(file));
    for (name, tensor) in arrays {
        let bytes = npy::write(tensor).map_err(|error| {
            Failure::from(error)
                .at(format!("output '{name}'"))
                .help("write to a folder instead: --output DIR")
        })?;
        let options = SimpleFileOptions::default()
            .compression_method(CompressionMethod::Stored)
            .large_file(bytes.len() >= u32::MAX as usize);
        zip.start_file(format!("{name}.npy"), options)
            .map_err(failed)?;
        zip.write_all(&bytes)?;
    }
    zip.finish().map_err(failed)?.flush()?;
    Ok(())
}

//! Reads and writes files of tensors: `.npy`, `.npz` and safetensors.

#[cfg(feature = "npz")]
use std::io::Cursor;

#[cfg(feature = "npz")]
use sardonyx_formats::npz::{self, Packing};
#[cfg(feature = "safetensors")]
use sardonyx_formats::safetensors;
use sardonyx_tensor::{Buffer, Tensor, npy};

use crate::error::{Error, ErrorKind};

/// Format of a file of tensors: `.npy`, `.npz` or safetensors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum TensorFormat {
    /// NumPy `.npy`: one array without a name.
    Npy,
    /// NumPy `.npz`: a zip archive of named arrays. Written without compression.
    Npz,
    /// Safetensors: named tensors after a JSON header.
    Safetensors,
}

impl TensorFormat {
    /// Recognizes the format of a file of tensors by its magic number. Safetensors has no magic
    /// number, so every file that is neither `.npy` nor `.npz` counts as safetensors.
    fn from_bytes(bytes: &[u8]) -> TensorFormat {
        match bytes {
            [0x93, b'N', b'U', b'M', b'P', b'Y', ..] => TensorFormat::Npy,
            [b'P', b'K', ..] => TensorFormat::Npz,
            _ => TensorFormat::Safetensors,
        }
    }

    /// Makes the error about a format whose feature is not compiled in.
    #[cfg(not(all(feature = "npz", feature = "safetensors")))]
    fn without_feature(self) -> Error {
        match self {
            TensorFormat::Npz => Error::without_feature("npz", "the format npz"),
            _ => Error::without_feature("safetensors", "the format safetensors"),
        }
    }
}

/// Reads all tensors of a file with their names, and recognizes the file's [`TensorFormat`]. The
/// tensor of an `.npy` file has an empty name.
///
/// ```
/// use sardonyx::Tensor;
/// use sardonyx::io::{TensorFormat, read_tensors, write_tensors};
///
/// let w = Tensor::from_vec([2], vec![1.0f32, 2.0])?;
/// let file = write_tensors(TensorFormat::Npz, [("w", &w)])?;
/// assert_eq!(read_tensors(file)?, [("w".to_string(), w)]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
///
/// [`ErrorKind::Format`] if the file is not a valid `.npy`, `.npz` or safetensors file, or is
/// an archive that unpacks to more than 1 GiB and more than 100 times its own size.
pub fn read_tensors(file: impl Into<Buffer>) -> Result<Vec<(String, Tensor)>, Error> {
    let file = file.into();
    match TensorFormat::from_bytes(file.as_slice()) {
        TensorFormat::Npy => Ok(vec![(String::new(), npy::read(&file).map_err(format_error)?)]),
        #[cfg(feature = "npz")]
        TensorFormat::Npz => {
            let members = npz::read(&file).map_err(format_error)?;
            let read = members.into_iter().map(|(name, member)| match npy::read(&member) {
                Ok(tensor) => Ok((name, tensor)),
                Err(error) => Err(format_error(error).with_place(name)),
            });
            read.collect()
        }
        #[cfg(feature = "safetensors")]
        TensorFormat::Safetensors => Ok(safetensors::read(&file).map_err(format_error)?.tensors),
        #[cfg(not(all(feature = "npz", feature = "safetensors")))]
        other => Err(other.without_feature()),
    }
}

/// Serializes named tensors to the bytes of a file. The format `.npy` holds exactly one tensor,
/// without its name.
///
/// # Errors
///
/// [`ErrorKind::Argument`] if the format lacks the element type of a tensor, a name occurs twice,
/// or the tensors are too many for the format.
pub fn write_tensors<'a>(
    format: TensorFormat,
    tensors: impl IntoIterator<Item = (&'a str, &'a Tensor)>,
) -> Result<Vec<u8>, Error> {
    let mut tensors = tensors.into_iter();
    match format {
        TensorFormat::Npy => match (tensors.next(), tensors.next()) {
            (Some((_, tensor)), None) => npy::write(tensor).map_err(argument_error),
            _ => Err(Error::new(ErrorKind::Argument, "an .npy file holds exactly one tensor")
                .with_help("use the format npz for several tensors")),
        },
        #[cfg(feature = "npz")]
        TensorFormat::Npz => {
            let sink = npz::write(Cursor::new(Vec::new()), tensors, Packing::Stored);
            Ok(sink.map_err(argument_error)?.into_inner())
        }
        #[cfg(feature = "safetensors")]
        TensorFormat::Safetensors => {
            let mut file = Vec::new();
            safetensors::write(&mut file, tensors, []).map_err(argument_error)?;
            Ok(file)
        }
        #[cfg(not(all(feature = "npz", feature = "safetensors")))]
        other => Err(other.without_feature()),
    }
}

/// Converts an error of reading a file of tensors to [`ErrorKind::Format`].
fn format_error(error: impl std::error::Error + Send + Sync + 'static) -> Error {
    Error::new(ErrorKind::Format, error.to_string()).with_source(error)
}

/// Converts an error of writing a file of tensors to [`ErrorKind::Argument`].
fn argument_error(error: impl std::error::Error + Send + Sync + 'static) -> Error {
    Error::new(ErrorKind::Argument, error.to_string()).with_source(error)
}

#[cfg(all(test, feature = "npz", feature = "safetensors"))]
mod tests {
    use super::*;

    #[test]
    fn each_format_reads_back() {
        let (w, b) = (Tensor::from_vec([2], vec![1.5f32, -2.0]).unwrap(), Tensor::scalar(7i64));
        for format in [TensorFormat::Npz, TensorFormat::Safetensors] {
            let file = write_tensors(format, [("w", &w), ("b", &b)]).unwrap();
            let mut read = read_tensors(file).unwrap();
            read.sort_by(|one, other| other.0.cmp(&one.0));
            assert_eq!(read, [("w".to_string(), w.clone()), ("b".to_string(), b.clone())]);
        }
        let file = write_tensors(TensorFormat::Npy, [("w", &w)]).unwrap();
        assert_eq!(read_tensors(file).unwrap(), [(String::new(), w.clone())]);
        let error = write_tensors(TensorFormat::Npy, [("w", &w), ("b", &b)]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Argument);
        assert_eq!(read_tensors(b"<html>".to_vec()).unwrap_err().kind(), ErrorKind::Format);
    }
}

//! Property: any bytes are an archive of arrays or an error, and arrays that were read are equal
//! after a round trip through an archive.

use std::io::Cursor;

use sardonyx_formats::npz::{self, Packing};
use sardonyx_tensor::{Buffer, Tensor, npy};

/// Reads the bytes as an archive and writes its arrays with each packing.
pub(crate) fn check(input: &[u8]) {
    let archive = Buffer::from_vec(input.to_vec());
    let files = match npz::read(&archive) {
        Ok(files) => files,
        Err(error) => {
            assert!(!error.to_string().is_empty());
            return;
        }
    };
    let mut arrays: Vec<(String, Tensor)> = Vec::new();
    for (name, file) in files {
        if let Ok(tensor) = npy::read(&file)
            && npy::write(&tensor).is_ok()
        {
            arrays.push((name, tensor));
        }
    }
    for packing in [Packing::Stored, Packing::Deflated] {
        let pairs = arrays.iter().map(|(name, tensor)| (name.as_str(), tensor));
        // The writer refuses some names that the reader accepts.
        let Ok(written) = npz::write(Cursor::new(Vec::new()), pairs, packing) else {
            continue;
        };
        let again = npz::read(&Buffer::from_vec(written.into_inner()));
        let again = again.expect("what was written can be read");
        assert_eq!(again.len(), arrays.len());
        for ((name, file), (expected, tensor)) in again.iter().zip(&arrays) {
            assert_eq!(name, expected);
            assert_eq!(npy::read(file).as_ref(), Ok(tensor));
        }
    }
}

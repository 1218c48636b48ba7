//! SHA-256 of files, and lists of them that `sha256sum --check` reads.

use crate::Result;
use crate::workspace::readable_path;
use sha2::{Digest, Sha256};
use std::fmt::Write;
use std::fs;
use std::path::Path;

/// Renders bytes as lower-case hexadecimal digits.
pub(crate) fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// Computes the digest of a file.
pub(crate) fn hash_file(path: &Path) -> Result<String> {
    let bytes = fs::read(path).map_err(|error| format!("{}: {error}", readable_path(path)))?;
    Ok(to_hex(&Sha256::digest(&bytes)))
}

/// Formats the digests of files below `directory`, which the paths are relative to.
pub(crate) fn list_digests(directory: &Path, paths: &[String]) -> Result<String> {
    let mut list = String::new();
    for path in paths {
        list += &format!("{}  {path}\n", hash_file(&directory.join(path))?);
    }
    Ok(list)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_have_the_form_of_sha256sum() {
        let directory =
            std::env::temp_dir().join(format!("sardonyx-digest-{}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        fs::write(directory.join("empty"), "").unwrap();
        let list = list_digests(&directory, &["empty".to_string()]).unwrap();
        fs::remove_dir_all(&directory).unwrap();
        let digest = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        assert_eq!(list, format!("{digest}  empty\n"));
    }
}

//! Recognises other file formats by their first bytes, for error messages about files that are not
//! models.

/// Identifies the format of a file by its first bytes. Returns a noun phrase for the file and
/// advice to the user; `None` if the format is unknown.
pub(crate) fn recognise(bytes: &[u8]) -> Option<(&'static str, &'static str)> {
    let found = SIGNATURES.iter().find(|signature| {
        bytes.get(signature.offset..).is_some_and(|rest| rest.starts_with(signature.magic))
    });
    if let Some(signature) = found {
        return Some((signature.what, signature.advice));
    }
    // A safetensors file begins with the length of its header in 8 bytes, then the header in JSON.
    if bytes.len() > 9 && bytes[8] == b'{' && bytes[4..8] == [0; 4] {
        return Some((
            "a safetensors file",
            "a safetensors file contains weights only; export the model to ONNX",
        ));
    }
    let start = &bytes[..bytes.len().min(4096)];
    let text = match std::str::from_utf8(start) {
        Ok(text) => text,
        // The first 4096 bytes may end inside a character.
        Err(error) if error.valid_up_to() + 4 > start.len() => {
            std::str::from_utf8(&start[..error.valid_up_to()]).ok()?
        }
        Err(_) => return None,
    };
    let mut controls = text.chars().filter(|c| c.is_control());
    if text.is_empty() || !controls.all(|c| matches!(c, '\n' | '\r' | '\t')) {
        return None;
    }
    let text = text.trim_start();
    let lower = text.get(..text.len().min(64)).unwrap_or(text).to_ascii_lowercase();
    Some(if lower.starts_with("version https://git-lfs") {
        ("a Git LFS pointer, not the file itself", "fetch the file with `git lfs pull`")
    } else if lower.starts_with("<!doctype html") || lower.starts_with("<html") {
        (
            "a web page",
            "the download probably returned a web page instead of the file; download the file itself",
        )
    } else if lower.starts_with('{') || lower.starts_with('[') {
        ("JSON text", "if the file is a model in protobuf JSON, use the extension .json")
    } else {
        (
            "plain text",
            "if the file is a model in protobuf text format, use the extension .textproto",
        )
    })
}

/// First bytes of a file format, a noun phrase for such files, and advice to the user.
struct Signature {
    offset: usize,
    magic: &'static [u8],
    what: &'static str,
    advice: &'static str,
}

/// Makes a signature; `magic` is at `offset` bytes from the start of the file.
const fn make_signature(
    offset: usize,
    magic: &'static [u8],
    what: &'static str,
    advice: &'static str,
) -> Signature {
    Signature { offset, magic, what, advice }
}

const NOT_A_MODEL: &str = "pass the .onnx file as the model, and this file as an input";
const UNPACK: &str = "unpack the file and use the .onnx file in it";

static SIGNATURES: &[Signature] = &[
    make_signature(0, b"\x89PNG", "a PNG image", NOT_A_MODEL),
    make_signature(0, b"\xff\xd8\xff", "a JPEG image", NOT_A_MODEL),
    make_signature(0, b"GIF8", "a GIF image", NOT_A_MODEL),
    make_signature(0, b"BM", "a BMP image", NOT_A_MODEL),
    make_signature(0, b"\x93NUMPY", "a NumPy array", NOT_A_MODEL),
    make_signature(
        0,
        b"PK\x03\x04",
        "a zip archive (or a PyTorch .pt, Keras .keras or NumPy .npz file)",
        "unpack the archive, or export the model to ONNX",
    ),
    make_signature(0, b"\x1f\x8b", "gzip data", UNPACK),
    make_signature(0, b"\x28\xb5\x2f\xfd", "zstd data", UNPACK),
    make_signature(0, b"BZh", "bzip2 data", UNPACK),
    make_signature(0, b"\xfd7zXZ", "xz data", UNPACK),
    make_signature(0, b"7z\xbc\xaf", "a 7-Zip archive", UNPACK),
    make_signature(
        0,
        b"\x89HDF",
        "an HDF5 file (Keras .h5)",
        "export the model to ONNX, for instance with tf2onnx",
    ),
    make_signature(
        0,
        b"GGUF",
        "a GGUF file",
        "GGUF is a format of llama.cpp; look for an ONNX export of the model",
    ),
    make_signature(
        4,
        b"TFL3",
        "a TensorFlow Lite model",
        "convert the model to ONNX, for instance with tf2onnx --tflite",
    ),
    make_signature(
        4,
        b"ORTM",
        "an ONNX Runtime .ort file",
        "use the .onnx file that the .ort file was made from",
    ),
    make_signature(
        0,
        b"\x80\x02",
        "a Python pickle (an old PyTorch .pt file)",
        "export the model to ONNX with torch.onnx.export",
    ),
    make_signature(0, b"%PDF", "a PDF document", NOT_A_MODEL),
    make_signature(0, b"\x7fELF", "a program", NOT_A_MODEL),
];

#[cfg(test)]
mod tests {
    use super::recognise;

    #[test]
    fn common_mistakes_are_named() {
        let rows: [(&[u8], &str); 8] = [
            (b"\x89PNG\r\n\x1a\n", "PNG"),
            (b"version https://git-lfs.github.com/spec/v1\n", "Git LFS"),
            (b"  <!DOCTYPE html><html>", "web page"),
            (b"{\"a\": 1}", "JSON"),
            ("größer".as_bytes(), "plain text"),
            (b"PK\x03\x04....", "zip"),
            (b"\x1c\0\0\0TFL3", "TensorFlow"),
            (b"\x10\x01\0\0\0\0\0\0{\"w\":", "safetensors"),
        ];
        for (bytes, what) in rows {
            assert!(recognise(bytes).is_some_and(|(found, _)| found.contains(what)), "{what}");
        }
        assert_eq!(recognise(b"\x08\x0a\x3a\x03\x12\x01g"), None);
        assert_eq!(recognise(b""), None);
    }
}

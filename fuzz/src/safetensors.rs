//! Property: any bytes are a safetensors file or an error, and writing a file that was read is
//! stable and loses nothing.

use sardonyx_formats::safetensors::{self, Safetensors};
use sardonyx_tensor::Buffer;

/// Reads the bytes and checks the round trip of the content.
pub(crate) fn check(input: &[u8]) {
    let content = match safetensors::read(&Buffer::from_vec(input.to_vec())) {
        Ok(content) => content,
        Err(error) => {
            assert!(!error.to_string().is_empty());
            return;
        }
    };
    let payload: usize = content.tensors.iter().map(|(_, tensor)| tensor.bytes().len()).sum();
    assert!(payload < input.len(), "the tensors are a part of the file");
    let once = write(&content);
    let mut again =
        safetensors::read(&Buffer::from_vec(once.clone())).expect("what was written can be read");
    assert!(once == write(&again), "writing is not stable");
    let mut content = content;
    for tensors in [&mut content.tensors, &mut again.tensors] {
        tensors.sort_by(|a, b| a.0.cmp(&b.0));
    }
    assert!(content == again, "something was lost");
}

fn write(content: &Safetensors) -> Vec<u8> {
    let mut file = Vec::new();
    let tensors = content.tensors.iter().map(|(name, tensor)| (name.as_str(), tensor));
    let metadata = content.metadata.iter().map(|(name, text)| (name.as_str(), text.as_str()));
    let written =
        safetensors::write(&mut file, tensors, metadata).expect("what was read can be written");
    assert_eq!(written, file.len() as u64);
    file
}

/// Sets the length of the header to the distance up to the last brace.
pub(crate) fn repair(input: &mut [u8]) {
    if let Some(end) = input.iter().rposition(|byte| *byte == b'}')
        && end >= 8
    {
        let length = (end + 1 - 8) as u64;
        input[..8].copy_from_slice(&length.to_le_bytes());
    }
}

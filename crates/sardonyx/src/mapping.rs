//! Mapping files into memory.
//!
//! A mapping costs nothing until its pages are touched, so a model of many gigabytes opens at once, and several processes
//! share one copy. The price: if somebody truncates the file while it is mapped, touching a page that is gone ends the
//! process (SIGBUS), and if somebody overwrites it in place, its values change under us. No check before mapping can
//! rule that out. Whoever cannot trust the file to stay as it is reads it instead; see [`OpenOptions`](crate::OpenOptions).

// Needed because a mapping is memory that other processes can change, which no safe interface can express.
#![allow(unsafe_code)]

use std::fs::File;
use std::io;
use std::sync::Arc;

use sardonyx_tensor::Buffer;

/// The whole content of a regular file, mapped for reading.
pub(crate) fn map(file: &File) -> io::Result<Buffer> {
    if file.metadata()?.len() == 0 {
        // Mapping no bytes is an error on most systems.
        return Ok(Buffer::empty());
    }
    // SAFETY: The mapping is private and read-only, so nothing in this process writes to it. Changes by other processes
    // are what the caller accepts by mapping: every reader of these bytes (the pull reader, decoding of payloads,
    // packing of weights) checks what it reads as it reads it and relies on no earlier check of bytes read again, and
    // the bytes are never handed out as a type with invalid values (`str`, `bool`, enums) without being checked or copied.
    let mapping = unsafe { memmap2::Mmap::map(file)? };
    Ok(Buffer::from_shared(Arc::new(mapping)))
}

//! Maps files into memory.
//!
//! A mapping costs nothing until its pages are touched, so a model of many gigabytes opens at once,
//! and several processes share one copy. The price: if another process truncates the file while it
//! is mapped, touching a missing page ends this process (SIGBUS), and if another process overwrites
//! it in place, values change. No check before mapping can rule that out. So a session copies the
//! weights it needs and does not read the mapping once it has been built, unless it shares weights
//! with other processes; see [`Access`](crate::io::Access). A mapping needs no file descriptor.

// Other processes can change mapped memory, which no safe interface can express.
#![allow(unsafe_code)]

use std::fs::File;
use std::io;
use std::ops::Range;
use std::sync::Arc;

use sardonyx_tensor::{Buffer, Pages};

/// Maps the content of a regular file into memory for reading; an empty file gives an empty buffer.
pub(crate) fn map_file(file: &File) -> io::Result<Buffer> {
    if file.metadata()?.len() == 0 {
        // Mapping 0 bytes is an error on most systems.
        return Ok(Buffer::empty());
    }
    // SAFETY: The mapping is private and read-only, so nothing in this process writes to it.
    // Changes by other processes are what the caller accepts by mapping: every reader of these
    // bytes (the pull reader, decoding of payloads, packing of weights) checks what it reads as it
    // reads it and relies on no earlier check of bytes read again, and the bytes are never handed
    // out as a type with invalid values (`str`, `bool`, enums) without being checked or copied.
    let mapping = unsafe { memmap2::Mmap::map(file)? };
    Ok(Buffer::from_pages(Arc::new(Mapping(mapping))))
}

/// Memory mapping of a file, whose pages can be fetched ahead and given back.
struct Mapping(memmap2::Mmap);

impl AsRef<[u8]> for Mapping {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl Pages for Mapping {
    fn fetch(&self, range: Range<usize>) {
        // Prefaults the range in one call. Linux before 5.14 refuses it; then each page faults
        // when it is touched.
        #[cfg(target_os = "linux")]
        let _ = self.0.advise_range(memmap2::Advice::PopulateRead, range.start, range.len());
        #[cfg(not(target_os = "linux"))]
        let _ = range;
    }

    fn give_back(&self, range: Range<usize>) {
        #[cfg(unix)]
        {
            // Partial pages at both ends also hold data of other tensors.
            let start = range.start.next_multiple_of(PAGE);
            let end = range.end / PAGE * PAGE;
            if start < end {
                // SAFETY: The mapping is private and was never written, so a page that is dropped
                // is read again from the file when it is touched; that its content may have changed
                // is what mapping accepts.
                let _ = unsafe {
                    self.0.unchecked_advise_range(
                        memmap2::UncheckedAdvice::DontNeed,
                        start,
                        end - start,
                    )
                };
            }
        }
        #[cfg(not(unix))]
        let _ = range;
    }
}

/// Largest page size of supported systems, in bytes. `madvise` fails for a range that does not
/// begin at a page, so ranges are rounded to this size on every system.
#[cfg(unix)]
const PAGE: usize = 1 << 16;

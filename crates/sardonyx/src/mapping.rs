//! Mapping files into memory.
//!
//! A mapping costs nothing until its pages are touched, so a model of many gigabytes opens at once,
//! and several processes share one copy. The price: if somebody truncates the file while it is
//! mapped, touching a page that is gone ends the process (SIGBUS), and if somebody overwrites it in
//! place, its values change under us. No check before mapping can rule that out. So a session
//! copies what it needs, and reads no byte of a mapping once it has been made, unless it is to
//! share its weights with other processes; see [`Access`](crate::Access). A mapping takes no
//! descriptor.

// Needed because a mapping is memory that other processes can change, which no safe interface can
// express.
#![allow(unsafe_code)]

use std::fs::File;
use std::io;
use std::ops::Range;
use std::sync::Arc;

use sardonyx_tensor::{Buffer, Pages};

/// The whole content of a regular file, mapped for reading.
pub(crate) fn map(file: &File) -> io::Result<Buffer> {
    if file.metadata()?.len() == 0 {
        // Mapping no bytes is an error on most systems.
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

struct Mapping(memmap2::Mmap);

impl AsRef<[u8]> for Mapping {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl Pages for Mapping {
    fn fetch(&self, range: Range<usize>) {
        // One call instead of a fault every few pages. Older systems refuse, and then pages come
        // one by one.
        #[cfg(target_os = "linux")]
        let _ = self.0.advise_range(memmap2::Advice::PopulateRead, range.start, range.len());
        #[cfg(not(target_os = "linux"))]
        let _ = range;
    }

    fn give_back(&self, range: Range<usize>) {
        #[cfg(unix)]
        {
            // Pages at the ends may hold what others read.
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

/// The largest page of the systems at hand; advice for ranges of smaller ones is rounded to it.
#[cfg(unix)]
const PAGE: usize = 1 << 16;

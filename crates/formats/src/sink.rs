//! Output text, collected and written in large pieces.

use std::io::{self, Write};

/// Size in bytes at which the buffer is written.
const BUFFER_BYTES: usize = 64 << 10;

/// Buffer in front of a destination. Keeps the first failure and drops all later output.
pub(crate) struct Sink<'w> {
    destination: &'w mut dyn Write,
    buffer: Vec<u8>,
    failure: Option<io::Error>,
}

impl<'w> Sink<'w> {
    pub(crate) fn new(destination: &'w mut dyn Write) -> Self {
        Sink {
            destination,
            buffer: Vec::with_capacity(BUFFER_BYTES + (BUFFER_BYTES >> 2)),
            failure: None,
        }
    }

    /// Returns the buffer, with room for about `BUFFER_BYTES / 4` more before it grows.
    #[inline]
    pub(crate) fn buffer(&mut self) -> &mut Vec<u8> {
        if self.buffer.len() >= BUFFER_BYTES {
            self.hand_over();
        }
        &mut self.buffer
    }

    #[inline]
    pub(crate) fn put(&mut self, bytes: &[u8]) {
        if bytes.len() < BUFFER_BYTES {
            self.buffer().extend_from_slice(bytes);
        } else {
            self.hand_over();
            self.write(bytes);
        }
    }

    /// Appends two spaces per level.
    #[inline]
    pub(crate) fn indent(&mut self, levels: usize) {
        let buffer = self.buffer();
        buffer.resize(buffer.len() + 2 * levels, b' ');
    }

    /// Whether the destination has failed, so that further output is lost.
    pub(crate) fn has_failed(&self) -> bool {
        self.failure.is_some()
    }

    pub(crate) fn finish(mut self) -> io::Result<()> {
        self.hand_over();
        match self.failure {
            Some(failure) => Err(failure),
            None => Ok(()),
        }
    }

    fn hand_over(&mut self) {
        let mut buffer = std::mem::take(&mut self.buffer);
        self.write(&buffer);
        buffer.clear();
        self.buffer = buffer;
    }

    fn write(&mut self, bytes: &[u8]) {
        if self.failure.is_none()
            && let Err(failure) = self.destination.write_all(bytes)
        {
            self.failure = Some(failure);
        }
    }
}

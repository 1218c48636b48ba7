//! What goes over a connection between two workers: frames, each with a header.

use crate::transport::Tag;

/// Of a header.
pub(crate) const HEADER_BYTES: usize = 24;

/// What a frame is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Frame {
    /// A message with a tag.
    Message = 0,
    /// A worker failed; the text says why.
    Failed = 1,
    /// A worker is lost; the text says so.
    Lost = 2,
    /// The sender will send nothing more.
    End = 3,
    /// The sender waits for a worker longer than its deadline.
    Overdue = 4,
    /// The sender is there, and has nothing to say.
    Here = 5,
    /// A run has ended early; the text says why.
    RunEnded = 6,
}

/// By number.
const ALL: [Frame; 7] = [
    Frame::Message,
    Frame::Failed,
    Frame::Lost,
    Frame::End,
    Frame::Overdue,
    Frame::Here,
    Frame::RunEnded,
];

/// What a frame begins with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) frame: Frame,
    /// The tag of a message, the number of the worker that is meant, or a run with that number in
    /// the place of a tag's.
    pub(crate) tag: Tag,
    /// The bytes that follow.
    pub(crate) len: usize,
}

impl Header {
    pub(crate) fn to_bytes(self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[..4].copy_from_slice(&(self.frame as u32).to_le_bytes());
        bytes[8..16].copy_from_slice(&self.tag.to_le_bytes());
        bytes[16..].copy_from_slice(&(self.len as u64).to_le_bytes());
        bytes
    }

    /// `None` if these are not the bytes of a header.
    pub(crate) fn from_bytes(bytes: &[u8]) -> Option<Header> {
        let word = |at: usize| bytes.get(at..at + 8)?.try_into().ok().map(u64::from_le_bytes);
        let number = |word: u64| usize::try_from(word).ok();
        Some(Header { frame: *ALL.get(number(word(0)?)?)?, tag: word(8)?, len: number(word(16)?)? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_read_as_they_are_written() {
        for frame in ALL {
            let header = Header { frame, tag: 0x7_ffff_0001, len: 1 << 40 };
            assert_eq!(Header::from_bytes(&header.to_bytes()), Some(header));
        }
        assert_eq!(Header::from_bytes(&[7; HEADER_BYTES]), None);
        assert_eq!(Header::from_bytes(&[0; HEADER_BYTES - 1]), None);
    }
}

//! Format of the connections between workers: frames, each with a header.

use crate::transport::Tag;

/// Length of an encoded header.
pub(crate) const HEADER_BYTES: usize = 24;

/// Type of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Frame {
    /// Message with a tag.
    Message = 0,
    /// Failure of a worker. The text is the reason.
    Failed = 1,
    /// Loss of a worker. The text is the error message.
    Lost = 2,
    /// End of the sender's work. No more frames follow.
    End = 3,
    /// Notice that the sender waits for a worker beyond its deadline.
    Overdue = 4,
    /// Heartbeat of the sender.
    Here = 5,
    /// Early end of a run. The text is the reason.
    RunEnded = 6,
}

/// All frames, by number.
const ALL: [Frame; 7] = [
    Frame::Message,
    Frame::Failed,
    Frame::Lost,
    Frame::End,
    Frame::Overdue,
    Frame::Here,
    Frame::RunEnded,
];

/// Start of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) frame: Frame,
    /// Tag of a message. Other frames have the number of the worker concerned here, `RunEnded`
    /// together with the number of the run.
    pub(crate) tag: Tag,
    /// Length of the data that follows, in bytes.
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

    /// Decodes a header. Returns `None` if `bytes` is not a header.
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

//! Reads a message from a stream but drops the payloads of its tensors, so that the structure of a
//! model of any size fits in little memory, from a pipe as well as from a file.

use std::io::{self, Read};

use crate::dynamic::push_varint;
use crate::error::{Error, ErrorKind};
use crate::kinds::FieldKind;
use crate::read::Limits;
use crate::table::{MessageDef, MessageType};
use crate::wire::{WireType, read_varint};

/// Message without its large payloads.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Skimmed {
    /// Encoding of the message, with an empty payload in place of each dropped one.
    pub bytes: Vec<u8>,
    /// Offset in `bytes` and length in bytes of each dropped payload, in ascending order.
    pub skipped: Vec<(u64, u64)>,
}

/// Reason why a stream cannot be skimmed.
#[derive(Debug)]
pub enum SkimError {
    /// Reading the stream failed.
    Io(io::Error),
    /// The stream does not hold such a message. The offset is relative to the start of the stream.
    Wire(Error),
    /// The part to keep exceeds this limit, in bytes.
    TooLarge(u64),
}

impl From<io::Error> for SkimError {
    fn from(error: io::Error) -> SkimError {
        SkimError::Io(error)
    }
}

/// Message that is being read.
struct Frame {
    def: &'static MessageDef,
    /// Field number in the enclosing message.
    number: u32,
    /// End offset in the stream; `None` for the outermost message, whose end is unknown.
    end: Option<u64>,
    kept: Skimmed,
}

/// Reads a message of type `M` to the end of `stream`, without payloads of `threshold` bytes or
/// more: `raw_data` and packed lists of tensors. `skip` skips bytes of the stream; see [`discard`].
/// Keeps up to `max_bytes`.
///
/// # Errors
///
/// An error of the stream, or of the pull reader on the same bytes.
pub fn skim<M: MessageType, R: Read>(
    stream: &mut R,
    mut skip: impl FnMut(&mut R, u64) -> io::Result<()>,
    threshold: u64,
    max_bytes: u64,
    limits: Limits,
) -> Result<Skimmed, SkimError> {
    let mut input = Input { stream, pos: 0 };
    let mut frames = vec![Frame::new(M::DEF, 0, None)];
    let mut kept_bytes = 0u64;
    while let Some(frame) = frames.last_mut() {
        if frame.end == Some(input.pos) {
            let done = frames.pop();
            if let (Some(done), Some(outer)) = (done, frames.last_mut()) {
                outer.embed(done);
            }
            continue;
        }
        let start = input.pos;
        let wrong = |kind| SkimError::Wire(Error::new(kind, start));
        let Some(tag) = input.read_varint()? else {
            if frame.end.is_none() {
                break;
            }
            return Err(wrong(ErrorKind::Truncated));
        };
        let number = tag >> 3;
        if number == 0 || number >= 1 << 29 {
            return Err(wrong(ErrorKind::FieldNumber(number)));
        }
        let wire_type = WireType::from_low_bits(tag).map_err(wrong)?;
        let is_message = wire_type == WireType::Len
            && matches!(frame.def.field(number as u32), Some(known) if matches!(known.kind, FieldKind::Message(_)));
        // The tag of a message is written together with its length, when the message is complete.
        if !is_message {
            push_varint(&mut frame.kept.bytes, tag);
        }
        match wire_type {
            WireType::Varint => {
                let word = input.read_varint()?.ok_or_else(|| wrong(ErrorKind::Truncated))?;
                push_varint(&mut frame.kept.bytes, word);
            }
            WireType::Fixed32 => input.copy(4, &mut frame.kept.bytes)?,
            WireType::Fixed64 => input.copy(8, &mut frame.kept.bytes)?,
            // No message of the format has groups, so they are rejected here although the pull
            // reader skips them.
            WireType::StartGroup | WireType::EndGroup => {
                return Err(wrong(ErrorKind::UnbalancedGroup));
            }
            WireType::Len => {
                let length = input.read_varint()?.ok_or_else(|| wrong(ErrorKind::Truncated))?;
                let available =
                    frame.end.map_or(u64::MAX - input.pos, |end| end.saturating_sub(input.pos));
                if length > available {
                    return Err(wrong(ErrorKind::LengthBeyondEnd { length, available }));
                }
                let known = frame.def.field(number as u32);
                match known.map(|known| known.kind) {
                    Some(FieldKind::Message(def)) => {
                        if frames.len() as u64 > u64::from(limits.depth) {
                            let limit = limits.depth;
                            return Err(wrong(ErrorKind::TooDeep { limit }));
                        }
                        frames.push(Frame::new(def(), number as u32, Some(input.pos + length)));
                    }
                    _ if length >= threshold && is_payload(frame.def, number as u32) => {
                        frame.kept.bytes.push(0);
                        frame.kept.skipped.push((frame.kept.bytes.len() as u64, length));
                        skip(input.stream, length)?;
                        input.pos += length;
                    }
                    _ => {
                        kept_bytes = kept_bytes.saturating_add(length);
                        if kept_bytes > max_bytes {
                            return Err(SkimError::TooLarge(max_bytes));
                        }
                        push_varint(&mut frame.kept.bytes, length);
                        input.copy(length, &mut frame.kept.bytes)?;
                    }
                }
            }
        }
        kept_bytes = kept_bytes.saturating_add(4);
        if kept_bytes > max_bytes {
            return Err(SkimError::TooLarge(max_bytes));
        }
        let end = frames.last().and_then(|frame| frame.end);
        if end.is_some_and(|end| input.pos > end) {
            return Err(SkimError::Wire(Error::new(ErrorKind::Truncated, start)));
        }
    }
    Ok(frames.pop().map_or_else(Skimmed::default, |frame| frame.kept))
}

/// Skips bytes by reading them, for streams that cannot seek.
///
/// # Errors
///
/// An error of the stream, including an early end.
pub fn discard<R: Read>(stream: &mut R, length: u64) -> io::Result<()> {
    let passed = io::copy(&mut stream.take(length), &mut io::sink())?;
    if passed == length { Ok(()) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
}

/// Whether the field is a list of a tensor's values, which may be long.
pub(crate) fn is_payload(def: &MessageDef, number: u32) -> bool {
    def.name == crate::TensorProto::DEF.name && matches!(number, 4 | 5 | 7 | 9 | 10 | 11)
}

impl Frame {
    fn new(def: &'static MessageDef, number: u32, end: Option<u64>) -> Frame {
        Frame { def, number, end, kept: Skimmed::default() }
    }

    fn embed(&mut self, inner: Frame) {
        push_varint(&mut self.kept.bytes, u64::from(inner.number) << 3 | 2);
        push_varint(&mut self.kept.bytes, inner.kept.bytes.len() as u64);
        let base = self.kept.bytes.len() as u64;
        self.kept.bytes.extend_from_slice(&inner.kept.bytes);
        let moved = inner.kept.skipped.iter().map(|(at, len)| (base + at, *len));
        self.kept.skipped.extend(moved);
    }
}

struct Input<'s, R> {
    stream: &'s mut R,
    pos: u64,
}

impl<R: Read> Input<'_, R> {
    /// Reads the next varint; returns `None` at the end of the stream.
    fn read_varint(&mut self) -> Result<Option<u64>, SkimError> {
        let start = self.pos;
        let mut bytes = [0; 10];
        for len in 1..=bytes.len() {
            match self.stream.read_exact(&mut bytes[len - 1..len]) {
                Ok(()) => self.pos += 1,
                Err(error) if error.kind() != io::ErrorKind::UnexpectedEof => {
                    return Err(SkimError::Io(error));
                }
                Err(_) if len == 1 => return Ok(None),
                Err(_) => return Err(SkimError::Wire(Error::new(ErrorKind::Truncated, start))),
            }
            if bytes[len - 1] < 0x80 {
                let word = read_varint(&bytes[..len], &mut 0);
                return word.map(Some).map_err(|kind| SkimError::Wire(Error::new(kind, start)));
            }
        }
        Err(SkimError::Wire(Error::new(ErrorKind::VarintTooLong, start)))
    }

    fn copy(&mut self, length: u64, out: &mut Vec<u8>) -> Result<(), SkimError> {
        // The buffer grows with the bytes that arrive, not with the declared length, which may be
        // false.
        let copied = (&mut *self.stream).take(length).read_to_end(out)? as u64;
        let start = self.pos;
        self.pos += copied;
        if copied == length {
            Ok(())
        } else {
            Err(SkimError::Wire(Error::new(ErrorKind::Truncated, start)))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ModelProto, Reader};

    /// Builds a model with a tensor "w" of `len` raw bytes, and one of `len` packed bytes.
    fn model(len: usize) -> Vec<u8> {
        let field = |out: &mut Vec<u8>, number: u32, content: &[u8]| {
            push_varint(out, u64::from(number) << 3 | 2);
            push_varint(out, content.len() as u64);
            out.extend(content);
        };
        let mut graph = Vec::new();
        for number in [9, 5] {
            let mut tensor = b"\x10\x02\x42\x01w".to_vec();
            field(&mut tensor, number, &vec![7; len]);
            tensor.extend(b"\x62\x03doc");
            field(&mut graph, 5, &tensor);
        }
        graph.extend(b"\x12\x01g");
        let mut bytes = b"\x08\x0a".to_vec();
        field(&mut bytes, 7, &graph);
        bytes.extend(b"\xb9\x3e\x01\x02\x03\x04\x05\x06\x07\x08\xbd\x3e\x01\x02\x03\x04");
        bytes
    }

    fn skim_bytes(bytes: &[u8], threshold: u64) -> Result<Skimmed, SkimError> {
        let limits = Limits { depth: 20 };
        skim::<ModelProto, _>(&mut &*bytes, discard, threshold, 10_000, limits)
    }

    #[test]
    fn payloads_are_left_out_and_all_else_stays() {
        let whole = model(200);
        let all = skim_bytes(&whole, 1000).expect("well-formed");
        assert_eq!((all.bytes, all.skipped), (whole.clone(), vec![]));
        let skimmed = skim_bytes(&whole, 100).expect("well-formed");
        assert_eq!(skimmed.bytes, model(0));
        let lengths: Vec<u64> = skimmed.skipped.iter().map(|(_, len)| *len).collect();
        assert_eq!(lengths, [200, 200]);
        // Each offset points right behind the empty payload.
        for ((at, _), number) in skimmed.skipped.iter().zip([9u8, 5]) {
            let head = &skimmed.bytes[*at as usize - 2..*at as usize];
            assert_eq!(head, [number << 3 | 2, 0]);
        }
    }

    #[test]
    fn every_cut_is_an_error_or_the_beginning_of_the_model() {
        let whole = model(200);
        for cut in 0..whole.len() {
            let result = skim_bytes(&whole[..cut], 100);
            let is_message = Reader::<ModelProto>::new(&whole[..cut]).all(|field| field.is_ok());
            assert_eq!(result.is_ok(), is_message, "{cut}: {result:?}");
        }
    }

    #[test]
    fn hostile_streams_are_bounded() {
        // SequenceType in SequenceType, without end; each level declares all remaining bytes as its
        // length.
        let mut deep = b"\x3a\xff\xff\xff\x7f\x5a\xff\xff\xff\x7e\x12\xff\xff\xff\x7d".to_vec();
        for level in (0x50..0x7d).rev() {
            deep.extend([0x22, 0xff, 0xff, 0xff, level, 0x0a, 0xff, 0xff, 0xfe, level]);
        }
        let error = skim_bytes(&deep, 100).expect_err("too deep");
        assert!(
            matches!(&error, SkimError::Wire(e) if matches!(e.kind(), ErrorKind::TooDeep { .. })),
            "{error:?}"
        );
        let endless = io::repeat(0x08);
        let result =
            skim::<ModelProto, _>(&mut { endless }, discard, 100, 10_000, Limits::default());
        assert!(matches!(result, Err(SkimError::TooLarge(10_000))), "{result:?}");
    }
}

//! Reads lists of literals, up to the closing brace, into the bytes of tensors.
//!
//! Each number is first tried on the fast path in a window of fixed size, where accesses need no
//! bounds checks. Numbers that it rejects, and the last bytes of a text, take the reader of single
//! literals.

use std::ops::RangeInclusive;

use super::NumberError;
use super::read::{Number, window};

/// End of a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ListEnd {
    /// Number of values in the list.
    pub(crate) count: usize,
    /// Offset of the closing `}`.
    pub(crate) position: usize,
}

/// Error in a list, with its offset.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ListError {
    /// Offset of the bad literal, or of the unexpected character.
    pub(crate) position: usize,
    pub(crate) problem: ListProblem,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ListProblem {
    Number(NumberError),
    /// `{1,}`, `{,1}`, or the text ends after a comma or the brace.
    MissingValue,
    /// Neither `,` nor `}` follows a number.
    ExpectedCommaOrBrace,
}

/// Reads numbers separated by commas up to the closing `}` and passes each to `take`, whose error
/// is reported at the number's offset.
///
/// `text` starts after the opening brace; offsets are relative to it. Blanks, line breaks and
/// comments may surround each number. Numbers that were passed before an error are not taken back.
#[inline(always)]
pub(crate) fn read_list<T: Number>(
    text: &[u8],
    mut take: impl FnMut(T) -> Result<(), NumberError>,
) -> Result<ListEnd, ListError> {
    let mut at = skip_blanks(text, 0);
    let mut count = 0;
    if text.get(at) == Some(&b'}') {
        return Ok(ListEnd { count, position: at });
    }
    loop {
        let start = at;
        let usual = window(text, at).and_then(T::read_usual);
        let value = if let Some((value, length)) = usual {
            at += length;
            value
        } else {
            match T::read_at(text, at) {
                Ok((value, end)) => {
                    at = end;
                    value
                }
                Err(error) => return Err(make_error(text, at, error)),
            }
        };
        if let Err(error) = take(value) {
            return Err(make_error(text, start, error));
        }
        count += 1;
        if usual.is_none() && text.get(at) != Some(&b',') {
            at = skip_blanks(text, at);
            match text.get(at) {
                Some(b',') => {}
                Some(b'}') => {
                    return Ok(ListEnd { count, position: at });
                }
                _ => {
                    return Err(ListError {
                        position: at,
                        problem: ListProblem::ExpectedCommaOrBrace,
                    });
                }
            }
        }
        // Nearly always exactly one blank follows.
        at += 1;
        if text.get(at) == Some(&b' ') {
            at += 1;
        }
        if text.get(at).is_some_and(|byte| *byte <= b'#') {
            at = skip_blanks(text, at);
        }
    }
}

/// Reads a list of floats and appends them in little-endian order.
pub(crate) fn read_floats<T: Number + Bytes>(
    text: &[u8],
    out: &mut Vec<u8>,
) -> Result<ListEnd, ListError> {
    read_list(text, |value: T| {
        value.append(out);
        Ok(())
    })
}

/// Reads a list of integers within `range` and appends the lowest `WIDTH` bytes of each in
/// little-endian order.
pub(crate) fn read_signed<const WIDTH: usize>(
    text: &[u8],
    range: RangeInclusive<i64>,
    out: &mut Vec<u8>,
) -> Result<ListEnd, ListError> {
    read_list(text, |value: i64| {
        if !range.contains(&value) {
            return Err(NumberError::OutOfRange);
        }
        append_low::<WIDTH>(value as u64, out);
        Ok(())
    })
}

/// Reads a list of unsigned integers up to `max` and appends the lowest `WIDTH` bytes of each in
/// little-endian order.
pub(crate) fn read_unsigned<const WIDTH: usize>(
    text: &[u8],
    max: u64,
    out: &mut Vec<u8>,
) -> Result<ListEnd, ListError> {
    read_list(text, |value: u64| {
        if value > max {
            return Err(NumberError::OutOfRange);
        }
        append_low::<WIDTH>(value, out);
        Ok(())
    })
}

/// Reads a list of integers within `range` and appends them in protobuf's encoding of `int32` and
/// `int64`: as varints of 64 bits, so that a negative number takes ten bytes.
pub(crate) fn read_signed_varints(
    text: &[u8],
    range: RangeInclusive<i64>,
    out: &mut Vec<u8>,
) -> Result<ListEnd, ListError> {
    let mut staged = Staged::new();
    let end = read_list(text, |value: i64| {
        if !range.contains(&value) {
            return Err(NumberError::OutOfRange);
        }
        staged.append_varint(value as u64, out);
        Ok(())
    });
    staged.flush(out);
    end
}

/// Reads a list of unsigned integers up to `max` and appends them as varints.
pub(crate) fn read_unsigned_varints(
    text: &[u8],
    max: u64,
    out: &mut Vec<u8>,
) -> Result<ListEnd, ListError> {
    let mut staged = Staged::new();
    let end = read_list(text, |value: u64| {
        if value > max {
            return Err(NumberError::OutOfRange);
        }
        staged.append_varint(value, out);
        Ok(())
    });
    staged.flush(out);
    end
}

/// Returns the offset of the next byte that is neither blank nor part of a comment, or the end of
/// the text.
fn skip_blanks(text: &[u8], mut at: usize) -> usize {
    while let Some(byte) = text.get(at) {
        match byte {
            b' ' | b'\t' | b'\n' | b'\r' | 0x0b | 0x0c => at += 1,
            b'#' => {
                let rest = &text[at..];
                at += rest.iter().position(|byte| *byte == b'\n').unwrap_or(rest.len());
            }
            _ => break,
        }
    }
    at
}

/// Creates the error for a list entry that is not a number or was rejected.
#[cold]
fn make_error(text: &[u8], at: usize, error: NumberError) -> ListError {
    let missing = matches!(text.get(at), None | Some(b',' | b'}'));
    ListError {
        position: at,
        problem: if missing { ListProblem::MissingValue } else { ListProblem::Number(error) },
    }
}

/// Float that is appended as bytes.
pub(crate) trait Bytes {
    fn append(self, out: &mut Vec<u8>);
}

impl Bytes for f32 {
    #[inline(always)]
    fn append(self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.to_le_bytes());
    }
}

impl Bytes for f64 {
    #[inline(always)]
    fn append(self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.to_le_bytes());
    }
}

#[inline(always)]
fn append_low<const WIDTH: usize>(value: u64, out: &mut Vec<u8>) {
    const { assert!(WIDTH <= 8) };
    let bytes = value.to_le_bytes();
    let mut low = [0; WIDTH];
    low.copy_from_slice(&bytes[..WIDTH]);
    out.extend_from_slice(&low);
}

/// High bits of the first eight bytes of a varint, by its length: set in all but the last byte.
const MORE: [u64; 16] = {
    let mut more = [0x8080_8080_8080_8080; 16];
    let mut length = 1;
    while length <= 8 {
        more[length] &= (1 << (8 * (length - 1))) - 1;
        length += 1;
    }
    more
};

/// Buffer for varints that are appended to a vector.
///
/// Each varint is written as ten bytes, of which only its length counts; the next one overwrites
/// the rest. This needs room after the varint. Appending a number of bytes that is not a
/// compile-time constant to a vector would be a call for each number.
struct Staged {
    bytes: [u8; 512],
    filled: usize,
}

impl Staged {
    fn new() -> Self {
        Staged { bytes: [0; 512], filled: 0 }
    }

    #[inline(always)]
    fn append_varint(&mut self, value: u64, out: &mut Vec<u8>) {
        if self.filled > self.bytes.len() - 16 {
            self.flush(out);
        }
        let bits = 64 - (value | 1).leading_zeros() as usize;
        let length = bits.div_ceil(7);
        // Spreads seven bits to each byte, in three steps: words of 28 bits, half-words of 14,
        // bytes of 7.
        let low = value & ((1 << 56) - 1);
        let low = (low & 0x0fff_ffff) | ((low & 0x00ff_ffff_f000_0000) << 4);
        let low = (low & 0x0000_3fff_0000_3fff) | ((low & 0x0fff_c000_0fff_c000) << 2);
        let low = (low & 0x007f_007f_007f_007f) | ((low & 0x3f80_3f80_3f80_3f80) << 1);
        let low = low | MORE[length & 15];
        // The last bit has a byte of its own, whose presence it also marks.
        let high = (value >> 56) as u16;
        let high = high | (high & 0x80) << 1;
        let target = &mut self.bytes[self.filled..self.filled + 10];
        target[..8].copy_from_slice(&low.to_le_bytes());
        target[8..].copy_from_slice(&high.to_le_bytes());
        self.filled += length;
    }

    fn flush(&mut self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.bytes[..self.filled]);
        self.filled = 0;
    }
}

//! The wire format's alphabet: varints, tags and the six wire types.

use crate::error::ErrorKind;

/// Encoding of a value, which determines its length.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WireType {
    /// One to ten bytes, seven bits each.
    Varint,
    /// Eight bytes, little-endian.
    Fixed64,
    /// A varint length, then that many bytes.
    Len,
    /// Start of a group. ONNX has no groups; they are skipped.
    StartGroup,
    /// End of a group.
    EndGroup,
    /// Four bytes, little-endian.
    Fixed32,
}

impl WireType {
    pub(crate) fn from_low_bits(tag: u64) -> Result<Self, ErrorKind> {
        Ok(match tag & 7 {
            0 => WireType::Varint,
            1 => WireType::Fixed64,
            2 => WireType::Len,
            3 => WireType::StartGroup,
            4 => WireType::EndGroup,
            5 => WireType::Fixed32,
            other => return Err(ErrorKind::WireType(other as u8)),
        })
    }

    #[inline]
    pub(crate) fn number(self) -> u32 {
        match self {
            WireType::Varint => 0,
            WireType::Fixed64 => 1,
            WireType::Len => 2,
            WireType::StartGroup => 3,
            WireType::EndGroup => 4,
            WireType::Fixed32 => 5,
        }
    }
}

/// Reads the varint at `*pos` and advances `*pos`. Accepts non-minimal encodings.
#[inline]
pub(crate) fn read_varint(bytes: &[u8], pos: &mut usize) -> Result<u64, ErrorKind> {
    match bytes.get(*pos) {
        Some(&byte) if byte < 0x80 => {
            *pos += 1;
            Ok(u64::from(byte))
        }
        _ => read_long_varint(bytes, pos),
    }
}

/// Reads the varint at `pos` and returns it with the position after it, or `None` if it is
/// malformed.
#[inline(always)]
pub(crate) fn read_usual_varint(bytes: &[u8], pos: usize) -> Option<(u64, usize)> {
    let first = *bytes.get(pos)?;
    if first < 0x80 {
        return Some((u64::from(first), pos + 1));
    }
    let second = *bytes.get(pos + 1)?;
    if second < 0x80 {
        let value = u64::from(first & 0x7f) | u64::from(second) << 7;
        return Some((value, pos + 2));
    }
    let mut end = pos;
    let value = read_long_varint(bytes, &mut end).ok()?;
    Some((value, end))
}

#[inline(never)]
fn read_long_varint(bytes: &[u8], pos: &mut usize) -> Result<u64, ErrorKind> {
    let mut value = 0u64;
    for index in 0..10 {
        let Some(&byte) = bytes.get(*pos + index) else {
            return Err(ErrorKind::Truncated);
        };
        // The tenth byte has room for one bit; other protobuf readers drop the excess bits, too.
        value |= u64::from(byte & 0x7f) << (7 * index);
        if byte < 0x80 {
            *pos += index + 1;
            return Ok(value);
        }
    }
    Err(ErrorKind::VarintTooLong)
}

/// Decodes a block of varints and passes the values to `take` in batches. An error carries the
/// offset of the malformed varint; the values before it may not have been passed.
///
/// Decoding varints one by one is slow because each start depends on the varint before. This
/// function first finds the ends of all varints within 64 bytes. Each varint is then one load and
/// branch-free arithmetic, which the compiler vectorizes.
pub(crate) fn read_varints(
    block: &[u8],
    mut take: impl FnMut(&[u64]),
) -> Result<(), (ErrorKind, usize)> {
    let mut words = [0; WINDOW];
    let mut start = 0;
    while start < block.len() {
        let (count, length) = match decode_short(&block[start..], &mut words) {
            Some(done) => done,
            None => decode_some(block, start, &mut words[..8])?,
        };
        take(&words[..count]);
        start += length;
    }
    Ok(())
}

/// Decodes the varints that end in the first 64 bytes and returns their number and their total
/// length. Returns `None` if the block is shorter or a varint is longer than eight bytes.
#[inline]
fn decode_short(block: &[u8], words: &mut Words) -> Option<(usize, usize)> {
    let bytes: &Window = block.first_chunk()?;
    let mut ends = find_ends(bytes);
    if ends == 0 || has_eight_ones(!ends) {
        return None;
    }
    let count = ends.count_ones() as usize;
    let mut next = 0;
    for word in &mut words[..count] {
        *word = load(bytes, next);
        // The top bit is for the compiler: it removes the case of a word without any one bit.
        next = (ends | 1 << 63).trailing_zeros() as usize + 1;
        ends &= ends.wrapping_sub(1);
    }
    for word in &mut words[..count] {
        *word = decode_first(*word);
    }
    Some((count, next))
}

/// Decodes varints of any length until `words` is full or the block ends.
fn decode_some(
    block: &[u8],
    start: usize,
    words: &mut [u64],
) -> Result<(usize, usize), (ErrorKind, usize)> {
    let (mut count, mut pos) = (0, start);
    for word in words {
        if pos == block.len() {
            break;
        }
        let begin = pos;
        *word = read_varint(block, &mut pos).map_err(|kind| (kind, begin))?;
        count += 1;
    }
    Ok((count, pos - start))
}

/// Number of bytes that are scanned together.
const WINDOW: usize = 64;

/// Bytes that are scanned together, and eight more so that eight bytes can be loaded at each of
/// them.
type Window = [u8; WINDOW + 8];

/// Varints that may end within a window.
type Words = [u64; WINDOW];

/// Returns a mask of the first 64 bytes that end a varint, with the first byte in the lowest bit.
#[inline]
fn find_ends(bytes: &Window) -> u64 {
    let mut ends = 0;
    for (index, eight) in bytes.as_chunks::<8>().0.iter().take(8).enumerate() {
        let top_bits = !u64::from_le_bytes(*eight) >> 7 & 0x0101_0101_0101_0101;
        // The product has the bit of byte i at position 56 + i.
        ends |= (top_bits.wrapping_mul(0x0102_0408_1020_4080) >> 56) << (8 * index);
    }
    ends
}

/// Whether eight adjacent bits are set.
#[inline]
fn has_eight_ones(bits: u64) -> bool {
    let two = bits & bits >> 1;
    let four = two & two >> 2;
    four & four >> 4 != 0
}

#[inline]
fn load(bytes: &Window, start: usize) -> u64 {
    let eight = bytes.get(start..).and_then(|rest| rest.first_chunk());
    eight.map_or(0, |eight| u64::from_le_bytes(*eight))
}

/// Decodes the varint of up to eight bytes at the start of `word`.
#[inline]
fn decode_first(word: u64) -> u64 {
    let stops = !word & 0x8080_8080_8080_8080;
    // Keeps the bits up to the lowest cleared top bit, which ends the varint.
    let word = word & (stops ^ stops.wrapping_sub(1));
    // Merges groups of seven bits into groups of 14, then 28, then 56.
    let word = word & 0x7f7f_7f7f_7f7f_7f7f;
    let word = word & 0x007f_007f_007f_007f | (word & 0x7f00_7f00_7f00_7f00) >> 1;
    let word = word & 0x0000_3fff_0000_3fff | (word & 0x3fff_0000_3fff_0000) >> 2;
    word & 0x0fff_ffff | (word & 0x0fff_ffff_0000_0000) >> 4
}

/// Returns the length in bytes of the minimal varint of `value`.
#[inline]
pub fn varint_len(value: u64) -> u64 {
    let bits = 64 - (value | 1).leading_zeros() as u64;
    bits.div_ceil(7)
}

/// Minimal varint of a number.
pub(crate) struct Varint {
    bytes: [u8; 10],
    len: usize,
}

impl Varint {
    /// Encodes `value`.
    #[inline]
    pub(crate) fn new(mut value: u64) -> Self {
        let (mut bytes, mut len) = ([0; 10], 0);
        while value >= 0x80 {
            bytes[len] = value as u8 | 0x80;
            value >>= 7;
            len += 1;
        }
        bytes[len] = value as u8;
        Varint { bytes, len: len + 1 }
    }

    /// Returns the encoded bytes, one to ten.
    #[inline]
    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

/// Encodes `value` in the zigzag code of protobuf's `sint64`. No ONNX field uses it, but tools that
/// inspect foreign messages do.
pub fn zigzag_encode(value: i64) -> u64 {
    ((value << 1) ^ (value >> 63)) as u64
}

/// Decodes the zigzag code; the inverse of [`zigzag_encode`].
pub fn zigzag_decode(code: u64) -> i64 {
    (code >> 1) as i64 ^ -((code & 1) as i64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn varints() {
        // WIRE-07+-, WIRE-08+, WIRE-09-, WIRE-34
        let rows: [(&[u8], Result<u64, ErrorKind>); 9] = [
            (&[0], Ok(0)),
            (&[0xac, 0x02], Ok(300)),
            (&[0x80, 0x00], Ok(0)),
            (&[0x81, 0x00], Ok(1)),
            (&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01], Ok(u64::MAX)),
            (&[], Err(ErrorKind::Truncated)),
            (&[0x80], Err(ErrorKind::Truncated)),
            (&[0x80; 10], Err(ErrorKind::VarintTooLong)),
            (&[0x80; 11], Err(ErrorKind::VarintTooLong)),
        ];
        for (bytes, expected) in rows {
            let mut pos = 0;
            assert_eq!(read_varint(bytes, &mut pos), expected, "{bytes:x?}");
            if expected.is_ok() {
                assert_eq!(pos, bytes.len());
            }
        }
        for value in [0, 1, 127, 128, 300, u64::from(u32::MAX), 1 << 62, u64::MAX] {
            let varint = Varint::new(value);
            assert_eq!(varint.as_bytes().len() as u64, varint_len(value));
            let mut pos = 0;
            assert_eq!(read_varint(varint.as_bytes(), &mut pos), Ok(value));
        }
    }

    #[test]
    fn blocks_of_varints() {
        // WIRE-07, WIRE-08, WIRE-14: every length, minimal or not, at every offset in the windows
        let decode = |block: &[u8]| {
            let mut words = Vec::new();
            read_varints(block, |some| words.extend(some)).map(|()| words)
        };
        for skip in 0..70 {
            let mut block = vec![1; skip];
            let mut expected = vec![1; skip];
            for round in 0..40 {
                let value = u64::MAX >> (round * 13 % 64);
                block.extend(Varint::new(value).as_bytes());
                block.extend([0x81, 0x80, 0x00]);
                expected.extend([value, 1]);
            }
            assert_eq!(decode(&block), Ok(expected), "{skip}");
        }
        for skip in 0..200 {
            // A varint of more than ten bytes, at the end and in the middle; then a truncated
            // varint.
            for rest in [0, 1, 100] {
                let block = [&vec![5; skip][..], &[0x80; 10], &vec![1; rest]].concat();
                let error = Err((ErrorKind::VarintTooLong, skip));
                assert_eq!(decode(&block), error, "{skip} {rest}");
            }
            let block = [&vec![5; skip][..], &[0x80; 3]].concat();
            assert_eq!(decode(&block), Err((ErrorKind::Truncated, skip)), "{skip}");
        }
    }

    #[test]
    fn zigzag() {
        // WIRE-10+
        assert_eq!(zigzag_encode(-2), 3);
        assert_eq!(zigzag_decode(3), -2);
        for value in [0, -1, 1, i64::MAX, i64::MIN] {
            assert_eq!(zigzag_decode(zigzag_encode(value)), value);
        }
    }
}

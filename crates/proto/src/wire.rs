//! The wire's alphabet: varints, tags and the six wire types.

use crate::error::ErrorKind;

/// How the bytes of a value are delimited.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WireType {
    /// One to ten bytes, seven bits each.
    Varint,
    /// Eight bytes, little-endian.
    Fixed64,
    /// A varint length, then that many bytes.
    Len,
    /// Opens a group. ONNX has none; they are skipped.
    StartGroup,
    /// Closes a group.
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

/// Reads a varint at `*pos`, which moves past it. Non-minimal forms are accepted.
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

/// The varint at a position and the position after it, or `None` if there is no good one.
#[inline(always)]
pub(crate) fn usual_varint(bytes: &[u8], pos: usize) -> Option<(u64, usize)> {
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
        // The tenth byte has room for one bit; what does not fit is dropped, as every protobuf
        // reader does.
        value |= u64::from(byte & 0x7f) << (7 * index);
        if byte < 0x80 {
            *pos += index + 1;
            return Ok(value);
        }
    }
    Err(ErrorKind::VarintTooLong)
}

/// Decodes a block of varints, handing them over some at a time. An error comes with the position
/// of the broken varint; what stands before it may or may not have been handed over.
///
/// Reading varints one after the other is slow because where one begins is known only once the one
/// before it is decoded. Here the ends of all varints within 64 bytes are found first. Then each is
/// one load, and taking it out of what was loaded is arithmetic that the compiler does for several
/// at once.
pub(crate) fn read_varints(
    block: &[u8],
    mut take: impl FnMut(&[u64]),
) -> Result<(), (ErrorKind, usize)> {
    let mut words = [0; WINDOW];
    let mut start = 0;
    while start < block.len() {
        let (count, length) = match short_varints(&block[start..], &mut words) {
            Some(done) => done,
            None => some_varints(block, start, &mut words[..8])?,
        };
        take(&words[..count]);
        start += length;
    }
    Ok(())
}

/// The varints that end in the first 64 bytes: how many, and their length. `None` if the block is
/// shorter or they are longer than eight bytes.
#[inline]
fn short_varints(block: &[u8], words: &mut [u64; WINDOW]) -> Option<(usize, usize)> {
    // Eight bytes can be loaded wherever in the window a varint begins.
    let bytes: &[u8; WINDOW + 8] = block.first_chunk()?;
    let mut ends = ends(bytes);
    if ends == 0 || has_eight_ones(!ends) {
        return None;
    }
    let count = ends.count_ones() as usize;
    let mut next = 0;
    for word in &mut words[..count] {
        *word = load(bytes, next);
        // The highest bit is for the compiler: it need not think of numbers without any.
        next = (ends | 1 << 63).trailing_zeros() as usize + 1;
        ends &= ends.wrapping_sub(1);
    }
    for word in &mut words[..count] {
        *word = first_value(*word);
    }
    Some((count, next))
}

/// As many varints as there is room for or are left, of any length.
fn some_varints(
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

/// How many bytes are looked at together.
const WINDOW: usize = 64;

/// Which of the first 64 bytes end a varint, the first one lowest.
#[inline]
fn ends(bytes: &[u8; WINDOW + 8]) -> u64 {
    let mut ends = 0;
    for (index, eight) in bytes.as_chunks::<8>().0.iter().take(8).enumerate() {
        let top_bits = !u64::from_le_bytes(*eight) >> 7 & 0x0101_0101_0101_0101;
        // The product has the bit of byte i at place 56 + i.
        ends |= (top_bits.wrapping_mul(0x0102_0408_1020_4080) >> 56) << (8 * index);
    }
    ends
}

/// Whether there are eight ones side by side.
#[inline]
fn has_eight_ones(bits: u64) -> bool {
    let two = bits & bits >> 1;
    let four = two & two >> 2;
    four & four >> 4 != 0
}

#[inline]
fn load(bytes: &[u8; WINDOW + 8], start: usize) -> u64 {
    let eight = bytes.get(start..).and_then(|rest| rest.first_chunk());
    eight.map_or(0, |eight| u64::from_le_bytes(*eight))
}

/// The value of the varint, of up to eight bytes, that these eight bytes begin with.
#[inline]
fn first_value(word: u64) -> u64 {
    let stops = !word & 0x8080_8080_8080_8080;
    // Everything up to the lowest top bit that is not set.
    let word = word & (stops ^ stops.wrapping_sub(1));
    // Groups of seven bits become groups of 14, then 28, then 56.
    let word = word & 0x7f7f_7f7f_7f7f_7f7f;
    let word = word & 0x007f_007f_007f_007f | (word & 0x7f00_7f00_7f00_7f00) >> 1;
    let word = word & 0x0000_3fff_0000_3fff | (word & 0x3fff_0000_3fff_0000) >> 2;
    word & 0x0fff_ffff | (word & 0x0fff_ffff_0000_0000) >> 4
}

/// Bytes of the minimal varint of `value`.
#[inline]
pub fn varint_len(value: u64) -> u64 {
    let bits = 64 - (value | 1).leading_zeros() as u64;
    bits.div_ceil(7)
}

/// Writes the minimal varint of `value` into `out` and returns its length.
#[inline]
pub(crate) fn write_varint(out: &mut [u8; 10], mut value: u64) -> usize {
    let mut len = 0;
    while value >= 0x80 {
        out[len] = value as u8 | 0x80;
        value >>= 7;
        len += 1;
    }
    out[len] = value as u8;
    len + 1
}

/// The zigzag code of protobuf's `sint64`, which no ONNX field uses: for tools that look into
/// foreign messages.
pub fn zigzag_encode(value: i64) -> u64 {
    ((value << 1) ^ (value >> 63)) as u64
}

/// The inverse of [`zigzag_encode`].
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
            let mut out = [0; 10];
            let len = write_varint(&mut out, value);
            assert_eq!(len as u64, varint_len(value));
            let mut pos = 0;
            assert_eq!(read_varint(&out[..len], &mut pos), Ok(value));
        }
    }

    #[test]
    fn blocks_of_varints() {
        // WIRE-07, WIRE-08, WIRE-14: every length, minimal or not, at every place of the windows
        let decode = |block: &[u8]| {
            let mut words = Vec::new();
            read_varints(block, |some| words.extend(some)).map(|()| words)
        };
        for skip in 0..70 {
            let mut block = vec![1; skip];
            let mut expected = vec![1; skip];
            for round in 0..40 {
                let value = u64::MAX >> (round * 13 % 64);
                let mut out = [0; 10];
                let len = write_varint(&mut out, value);
                block.extend(&out[..len]);
                block.extend([0x81, 0x80, 0x00]);
                expected.extend([value, 1]);
            }
            assert_eq!(decode(&block), Ok(expected), "{skip}");
        }
        for skip in 0..200 {
            // More than ten bytes, at the end and in the middle; then a varint that is cut off.
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

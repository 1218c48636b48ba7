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

fn read_long_varint(bytes: &[u8], pos: &mut usize) -> Result<u64, ErrorKind> {
    let mut value = 0u64;
    for index in 0..10 {
        let Some(&byte) = bytes.get(*pos + index) else {
            return Err(ErrorKind::Truncated);
        };
        // The tenth byte has room for one bit; what does not fit is dropped, as every protobuf reader does.
        value |= u64::from(byte & 0x7f) << (7 * index);
        if byte < 0x80 {
            *pos += index + 1;
            return Ok(value);
        }
    }
    Err(ErrorKind::VarintTooLong)
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

/// The zigzag code of protobuf's `sint64`, which no ONNX field uses: for tools that look into foreign messages.
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
        // WIRE-07, WIRE-08, WIRE-09, WIRE-34
        let rows: [(&[u8], Result<u64, ErrorKind>); 9] = [
            (&[0], Ok(0)),
            (&[0xac, 0x02], Ok(300)),
            (&[0x80, 0x00], Ok(0)),
            (&[0x81, 0x00], Ok(1)),
            (
                &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01],
                Ok(u64::MAX),
            ),
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
    fn zigzag() {
        // WIRE-10
        assert_eq!(zigzag_encode(-2), 3);
        assert_eq!(zigzag_decode(3), -2);
        for value in [0, -1, 1, i64::MAX, i64::MIN] {
            assert_eq!(zigzag_decode(zigzag_encode(value)), value);
        }
    }
}

//! Elements narrower than one byte: codes of 2, 4 or 6 bits in packed bytes, in the layout of
//! `raw_data`.
//!
//! The first element is in the lowest bits. Two- and four-bit codes never span bytes; four six-bit
//! codes fill three bytes as one little-endian 24-bit number. Unused bits of the last byte are
//! written as zero and ignored when read. A *code* is the bit pattern in the low bits of a `u8`;
//! its value depends on the type ([`code_to_f32`], [`code_to_i8`]).

use crate::element::{Class, DataType};
use crate::error::{TensorError, err};
use crate::small_float::{FLOAT4E2M1, FLOAT6E2M3, FLOAT6E3M2};

/// Returns the code of element `index`, for codes of `bits` (2, 4, 6 or 8) bits.
///
/// # Panics
/// If `bytes` is too short.
#[inline]
pub fn get(bytes: &[u8], bits: usize, index: usize) -> u8 {
    let at = index * bits;
    let (byte, shift) = (at / 8, at % 8);
    let mut word = bytes[byte] as u16;
    if shift + bits > 8 {
        word |= (bytes[byte + 1] as u16) << 8;
    }
    (word >> shift) as u8 & mask(bits)
}

/// Replaces the code of element `index`; bits of `code` beyond `bits` are dropped.
///
/// # Panics
/// If `bytes` is too short.
#[inline]
pub fn set(bytes: &mut [u8], bits: usize, index: usize, code: u8) {
    let at = index * bits;
    let (byte, shift) = (at / 8, at % 8);
    let hole = (mask(bits) as u16) << shift;
    let word = ((code & mask(bits)) as u16) << shift;
    bytes[byte] = bytes[byte] & !(hole as u8) | word as u8;
    if shift + bits > 8 {
        bytes[byte + 1] = bytes[byte + 1] & !((hole >> 8) as u8) | (word >> 8) as u8;
    }
}

/// Iterates over the codes of the first `elems` elements.
///
/// # Panics
/// While iterating, if `bytes` is too short.
pub fn iter(bytes: &[u8], bits: usize, elems: usize) -> impl ExactSizeIterator<Item = u8> {
    (0..elems).map(move |i| get(bytes, bits, i))
}

/// Unpacks codes until `codes` is full.
///
/// # Errors
/// `bits` is not 2, 4, 6 or 8, or `packed` is too short.
pub fn unpack_to_u8(packed: &[u8], bits: usize, codes: &mut [u8]) -> Result<(), TensorError> {
    let packed = exact(packed, bits, codes.len())?;
    // Whole groups have constant shifts, which vectorise; the rest is unpacked one by one.
    let done = match bits {
        2 => {
            for (out, &b) in codes.chunks_exact_mut(4).zip(packed) {
                out.copy_from_slice(&[b & 3, b >> 2 & 3, b >> 4 & 3, b >> 6]);
            }
            codes.len() / 4 * 4
        }
        4 => {
            for (out, &b) in codes.chunks_exact_mut(2).zip(packed) {
                out.copy_from_slice(&[b & 15, b >> 4]);
            }
            codes.len() / 2 * 2
        }
        6 => {
            for (out, b) in codes.chunks_exact_mut(4).zip(packed.chunks_exact(3)) {
                let w = u32::from_le_bytes([b[0], b[1], b[2], 0]);
                out.copy_from_slice(&[
                    (w & 63) as u8,
                    (w >> 6 & 63) as u8,
                    (w >> 12 & 63) as u8,
                    (w >> 18) as u8,
                ]);
            }
            codes.len() / 4 * 4
        }
        _ => {
            codes.copy_from_slice(packed);
            codes.len()
        }
    };
    for (i, code) in codes.iter_mut().enumerate().skip(done) {
        *code = get(packed, bits, i);
    }
    Ok(())
}

/// Packs all `codes`; bits beyond `bits` are dropped, unused bits of the last byte become zero.
///
/// # Errors
/// `bits` is not 2, 4, 6 or 8, or `packed` does not have exactly the size that the codes need.
pub fn pack_from_codes(codes: &[u8], bits: usize, packed: &mut [u8]) -> Result<(), TensorError> {
    let need = exact(packed, bits, codes.len())?.len();
    if need != packed.len() {
        return err!(
            Size,
            "{} codes of {bits} bits need {need} bytes, not {}",
            codes.len(),
            packed.len()
        );
    }
    let group = match bits {
        2 => {
            for (c, out) in codes.chunks_exact(4).zip(packed.iter_mut()) {
                *out = c[0] & 3 | (c[1] & 3) << 2 | (c[2] & 3) << 4 | c[3] << 6;
            }
            4
        }
        4 => {
            for (c, out) in codes.chunks_exact(2).zip(packed.iter_mut()) {
                *out = c[0] & 15 | c[1] << 4;
            }
            2
        }
        6 => {
            for (c, out) in codes.chunks_exact(4).zip(packed.chunks_exact_mut(3)) {
                let part = |i: usize| (c[i] as u32 & 63) << (6 * i);
                let w = part(0) | part(1) | part(2) | part(3);
                out.copy_from_slice(&w.to_le_bytes()[..3]);
            }
            4
        }
        _ => {
            packed.copy_from_slice(codes);
            1
        }
    };
    let done = codes.len() / group * group;
    packed[done * bits / 8..].fill(0);
    for (i, &code) in codes.iter().enumerate().skip(done) {
        set(packed, bits, i, code);
    }
    Ok(())
}

/// Whether the unused bits of the last byte are zero, as the standard requires (TENSOR-17,
/// TENSOR-40).
pub fn padding_is_zero(packed: &[u8], bits: usize, elems: usize) -> bool {
    let used = elems * bits % 8;
    match packed.last() {
        Some(last) if used != 0 => last >> used == 0,
        _ => true,
    }
}

/// Returns the value of an integer code: sign-extended for `int4` and `int2`, unchanged for `uint4`
/// and `uint2`. `None` for other types.
#[inline]
pub fn code_to_i8(data_type: DataType, code: u8) -> Option<i8> {
    let bits = data_type.bits().filter(|_| data_type.is_packed())?;
    match data_type.class() {
        Class::Signed => Some(sign_extend(code, bits)),
        Class::Unsigned => Some((code & mask(bits)) as i8),
        _ => None,
    }
}

/// Returns the exact value of a code of any packed type; `None` for types that are not packed.
#[inline]
pub fn code_to_f32(data_type: DataType, code: u8) -> Option<f32> {
    match data_type {
        DataType::Float4e2m1 => Some(FLOAT4E2M1.decode(code)),
        DataType::Float6e2m3 => Some(FLOAT6E2M3.decode(code)),
        DataType::Float6e3m2 => Some(FLOAT6E3M2.decode(code)),
        _ => code_to_i8(data_type, code).map(f32::from),
    }
}

/// Sign-extends the low `bits` bits of `code`.
#[inline]
pub(crate) fn sign_extend(code: u8, bits: usize) -> i8 {
    let shift = 8 - bits as u32;
    ((code << shift) as i8) >> shift
}

#[inline]
fn mask(bits: usize) -> u8 {
    0xFF >> (8 - bits)
}

/// Returns the bytes that `elems` codes fill.
fn exact(packed: &[u8], bits: usize, elems: usize) -> Result<&[u8], TensorError> {
    if !matches!(bits, 2 | 4 | 6 | 8) {
        return err!(Unsupported, "codes of {bits} bits");
    }
    let need = elems / 8 * bits + (elems % 8 * bits).div_ceil(8);
    match packed.get(..need) {
        Some(bytes) => Ok(bytes),
        None => err!(Size, "{elems} codes of {bits} bits need {need} bytes, not {}", packed.len()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layout_is_that_of_the_standard() {
        let pack = |bits, codes: &[u8], want: &[u8]| {
            let mut bytes = vec![0xEE; want.len()];
            pack_from_codes(codes, bits, &mut bytes).unwrap();
            assert_eq!(bytes, want);
            let mut back = vec![0; codes.len()];
            unpack_to_u8(want, bits, &mut back).unwrap();
            assert_eq!(back, codes);
        };
        pack(4, &[1, 2, 3], &[0x21, 0x03]); // TENSOR-15+-
        pack(2, &[0, 1, 2, 3], &[0xE4]); // TENSOR-16+
        pack(6, &[1, 2, 3, 4], &[0x81, 0x30, 0x10]); // TENSOR-40+
        pack(2, &[3, 3, 3, 3, 1], &[0xFF, 0x01]); // TENSOR-17+
        pack(6, &[63], &[0x3F]);
    }

    #[test]
    fn bulk_and_single_agree_at_every_length() {
        for bits in [2, 4, 6, 8] {
            for elems in 0..40 {
                let codes: Vec<u8> =
                    (0..elems).map(|i| (i as u8).wrapping_mul(37) & mask(bits)).collect();
                let mut bytes = vec![0xFF; (elems * bits).div_ceil(8)];
                pack_from_codes(&codes, bits, &mut bytes).unwrap();
                assert!(padding_is_zero(&bytes, bits, elems));
                assert_eq!(iter(&bytes, bits, elems).collect::<Vec<_>>(), codes);
                let mut other = vec![0xFF; bytes.len()];
                codes
                    .iter()
                    .enumerate()
                    .for_each(|(i, &c)| set(&mut other, bits, i, c | !mask(bits)));
                assert_eq!(iter(&other, bits, elems).collect::<Vec<_>>(), codes);
                let mut back = vec![0; elems];
                unpack_to_u8(&other, bits, &mut back).unwrap();
                assert_eq!(back, codes);
            }
        }
    }

    #[test]
    fn wrong_sizes_are_errors() {
        assert!(unpack_to_u8(&[0], 4, &mut [0; 3]).is_err()); // TENSOR-17-: 1 byte for 3 int4
        assert!(pack_from_codes(&[0; 3], 4, &mut [0]).is_err());
        assert!(pack_from_codes(&[0; 3], 4, &mut [0; 3]).is_err());
        assert!(pack_from_codes(&[0; 3], 3, &mut [0; 3]).is_err());
        assert!(!padding_is_zero(&[0x21, 0x13], 4, 3));
        assert!(!padding_is_zero(&[0x40], 6, 1));
    }

    #[test]
    fn values() {
        // TYPE-03+, TYPE-13+
        assert_eq!(code_to_i8(DataType::Int4, 0xF), Some(-1));
        assert_eq!(code_to_i8(DataType::Int4, 8), Some(-8));
        assert_eq!(code_to_i8(DataType::Uint4, 0xF), Some(15));
        assert_eq!(code_to_i8(DataType::Int2, 2), Some(-2));
        assert_eq!(code_to_i8(DataType::Uint2, 3), Some(3));
        assert_eq!(code_to_i8(DataType::Int8, 3), None);
        assert_eq!(code_to_f32(DataType::Float4e2m1, 0xF), Some(-6.0));
        assert_eq!(code_to_f32(DataType::Int2, 3), Some(-1.0));
        assert_eq!(code_to_f32(DataType::Float, 3), None);
    }
}

//! The two encodings of tensor values: typed lists and raw bytes.
//!
//! All other crates see only the layout of `raw_data`: little-endian, row-major, types below a byte
//! packed from the lowest bits up, the last byte filled with zero bits. Only this module knows the
//! differences: `int32_data` stores 8- and 16-bit types as unsigned bit patterns, one per entry; 4-
//! and 2-bit types packed, one byte per entry; 6-bit floats one per entry, although `raw_data`
//! packs them.

use std::ops::RangeInclusive;

use crate::enums::{DataType, TypedField};
use crate::error::{Error, ErrorKind};
use crate::kinds::{Chunk, Double, Float, Int32, Int64, Uint64};

/// Chunk of a typed list, which follows one tag.
#[derive(Debug, Clone, Copy)]
pub enum Typed<'a> {
    /// Chunk of `float_data`.
    Float(Chunk<'a, Float>),
    /// Chunk of `int32_data`.
    Int32(Chunk<'a, Int32>),
    /// Chunk of `int64_data`.
    Int64(Chunk<'a, Int64>),
    /// Chunk of `double_data`.
    Double(Chunk<'a, Double>),
    /// Chunk of `uint64_data`.
    Uint64(Chunk<'a, Uint64>),
}

impl Typed<'_> {
    /// Returns the field that the chunk belongs to.
    pub fn field(&self) -> TypedField {
        match self {
            Typed::Float(_) => TypedField::Float,
            Typed::Int32(_) => TypedField::Int32,
            Typed::Int64(_) => TypedField::Int64,
            Typed::Double(_) => TypedField::Double,
            Typed::Uint64(_) => TypedField::Uint64,
        }
    }
}

/// Returns the entries of `field` that convert to elements of `data_type` without losing bits;
/// `None` if all do.
///
/// Writers differ in whether they extend the sign of elements of up to 16 bits, so both forms are
/// in range.
fn entry_range(data_type: DataType, field: TypedField) -> Option<RangeInclusive<i64>> {
    match (field, data_type.bits()?) {
        (TypedField::Int32, 16) => Some(-0x8000..=0xffff),
        (TypedField::Int32, 6) => Some(0..=0x3f),
        (TypedField::Int32, 2 | 4 | 8) => Some(-0x80..=0xff),
        (TypedField::Uint64, 32) => Some(0..=u32::MAX.into()),
        _ => None,
    }
}

/// Finds the first entry of a chunk that is out of range for an element of `data_type`, such as 300
/// for int8.
///
/// # Errors
///
/// A malformed varint in a packed block.
pub fn find_oversized_entry(data_type: DataType, chunk: Typed<'_>) -> Result<Option<u64>, Error> {
    let chunk_field = chunk.field();
    let Some(range) = entry_range(data_type, chunk_field) else {
        return Ok(None);
    };
    let mut found = None;
    let look = |words: &[u64]| found = found.or_else(|| find_outside(words, chunk_field, &range));
    match chunk {
        Typed::Int32(chunk) => chunk.visit_words(look)?,
        Typed::Uint64(chunk) => chunk.visit_words(look)?,
        Typed::Float(_) | Typed::Int64(_) | Typed::Double(_) => {}
    }
    Ok(found)
}

/// Returns the first entry of `field` outside `range`. The bits of an `int32_data` entry above 32
/// are dropped, as in other protobuf readers; an `uint64_data` entry of more than 63 bits is
/// outside every range.
fn find_outside(words: &[u64], field: TypedField, range: &RangeInclusive<i64>) -> Option<u64> {
    let mut entries = words.iter().map(|word| match field {
        TypedField::Int32 => i64::from(*word as i32),
        _ => *word as i64,
    });
    entries.find(|entry| !range.contains(entry)).map(|entry| entry as u64)
}

/// Appends the values of one chunk of a typed list to `raw`, in the layout of `raw_data`.
///
/// `raw` must hold the values of the preceding chunks. Six-bit floats are packed across chunks, so
/// `entries` counts the entries so far and is advanced.
///
/// # Errors
///
/// A malformed varint in a packed block, or an entry that is out of range for the element type.
pub fn decode_typed(
    data_type: DataType,
    chunk: Typed<'_>,
    entries: &mut usize,
    raw: &mut Vec<u8>,
) -> Result<(), Error> {
    let field = chunk.field();
    let range = entry_range(data_type, field);
    let mut outside = None;
    let mut look = |words: &[u64]| {
        if let (Some(range), None) = (&range, outside) {
            outside = find_outside(words, field, range);
        }
    };
    match chunk {
        Typed::Float(Chunk::Packed(block)) => raw.extend_from_slice(block.bytes),
        Typed::Double(Chunk::Packed(block)) => raw.extend_from_slice(block.bytes),
        Typed::Float(Chunk::One(value)) => raw.extend(value.to_le_bytes()),
        Typed::Double(Chunk::One(value)) => raw.extend(value.to_le_bytes()),
        Typed::Int64(chunk) => chunk.visit_words(|words| append(raw, words, u64::to_le_bytes))?,
        Typed::Uint64(chunk) if data_type == DataType::UINT32 => chunk.visit_words(|words| {
            look(words);
            append(raw, words, |word| (word as u32).to_le_bytes());
        })?,
        Typed::Uint64(chunk) => chunk.visit_words(|words| append(raw, words, u64::to_le_bytes))?,
        Typed::Int32(chunk) => match data_type.bits() {
            Some(32) => {
                chunk.visit_words(|words| append(raw, words, |word| (word as u32).to_le_bytes()))?
            }
            Some(16) => chunk.visit_words(|words| {
                look(words);
                append(raw, words, |word| (word as u16).to_le_bytes());
            })?,
            Some(6) => chunk.visit_words(|words| {
                look(words);
                for word in words {
                    push_six_bits(raw, *entries, *word as u8 & 0x3f);
                    *entries += 1;
                }
            })?,
            // Eight-bit types have one element per entry, four- and two-bit types one packed byte
            // per entry.
            _ => chunk.visit_words(|words| {
                look(words);
                append(raw, words, |word| [word as u8]);
            })?,
        },
    }
    match outside {
        None => Ok(()),
        Some(entry) => Err(Error::new(ErrorKind::Oversized { entry, data_type: data_type.0 }, 0)),
    }
}

/// Appends `N` bytes of each word.
fn append<const N: usize>(raw: &mut Vec<u8>, words: &[u64], bytes: impl Fn(u64) -> [u8; N]) {
    let start = raw.len();
    raw.resize(start + N * words.len(), 0);
    let places = raw[start..].as_chunks_mut().0;
    for (place, word) in places.iter_mut().zip(words) {
        *place = bytes(*word);
    }
}

/// Appends the element at `index` to packed six-bit values: four elements in three bytes, lowest
/// bits first.
fn push_six_bits(raw: &mut Vec<u8>, index: usize, code: u8) {
    let shift = (index * 6) % 8;
    let wide = u16::from(code) << shift;
    if shift == 0 {
        raw.push(wide as u8);
        return;
    }
    if let Some(last) = raw.last_mut() {
        *last |= wide as u8;
    }
    if shift > 2 {
        raw.push((wide >> 8) as u8);
    }
}

/// Converts `raw` (in the layout of `raw_data`) to the entries of its typed list: `int32_data`,
/// `int64_data` and `uint64_data` entries as the bits of the value sign-extended to 64 bits,
/// `float_data` and `double_data` entries as their bits. `elems` is the number of elements. Returns
/// `None` for strings and unnamed types.
pub fn encode_typed(data_type: DataType, raw: &[u8], elems: usize) -> Option<Vec<u64>> {
    let field = data_type.typed_field()?;
    let words = |width: usize| -> Vec<u64> {
        raw.chunks_exact(width)
            .map(|bytes| bytes.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte)))
            .collect()
    };
    Some(match (field, data_type.bits()?) {
        (TypedField::Float, _) => words(4),
        (TypedField::Int32, 32) => {
            words(4).into_iter().map(|word| i64::from(word as u32 as i32) as u64).collect()
        }
        // Signed types are sign-extended; bit patterns are zero-extended.
        (TypedField::Int32, 16) if data_type == DataType::INT16 => {
            words(2).into_iter().map(|word| i64::from(word as u16 as i16) as u64).collect()
        }
        (TypedField::Int32, 16) => words(2),
        (TypedField::Int32, 6) => (0..elems)
            .map(|index| {
                let bit = index * 6;
                let low = raw.get(bit / 8).copied().unwrap_or(0);
                let high = raw.get(bit / 8 + 1).copied().unwrap_or(0);
                u64::from((u16::from_le_bytes([low, high]) >> (bit % 8)) & 0x3f)
            })
            .collect(),
        (TypedField::Int32, _) if data_type == DataType::INT8 => {
            raw.iter().map(|byte| i64::from(*byte as i8) as u64).collect()
        }
        (TypedField::Int32, _) => raw.iter().map(|byte| u64::from(*byte)).collect(),
        (TypedField::Uint64, 32) => words(4),
        _ => words(8),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::read::Slice;

    fn pack_varints(values: &[i64]) -> Vec<u8> {
        let mut block = Vec::new();
        for value in values {
            crate::push_varint(&mut block, *value as u64);
        }
        block
    }

    fn decode_int32(data_type: DataType, values: &[i64]) -> Vec<u8> {
        let block = pack_varints(values);
        let mut raw = Vec::new();
        decode_typed(
            data_type,
            Typed::Int32(Chunk::Packed(Slice { bytes: &block, offset: 0 })),
            &mut 0,
            &mut raw,
        )
        .expect("well-formed");
        // The result must not depend on whether entries are packed.
        let (mut one_by_one, mut entries) = (Vec::new(), 0);
        for value in values {
            decode_typed(
                data_type,
                Typed::Int32(Chunk::One(*value as i32)),
                &mut entries,
                &mut one_by_one,
            )
            .expect("a number");
        }
        assert_eq!(raw, one_by_one, "{data_type:?}");
        raw
    }

    #[test]
    fn int32_data_of_every_width() {
        // TENSOR-13, TENSOR-14+-, TENSOR-15+-, TENSOR-16+, TENSOR-17, TENSOR-40+, TENSOR-41+,
        // TENSOR-22+-
        let rows: [(DataType, &[i64], &[u8]); 12] = [
            (DataType::INT32, &[-1, 2], &[255, 255, 255, 255, 2, 0, 0, 0]),
            (DataType::INT16, &[-2, 300], &[254, 255, 44, 1]),
            (DataType::UINT16, &[65535], &[255, 255]),
            (DataType::FLOAT16, &[15360], &[0x00, 0x3c]),
            (DataType::BFLOAT16, &[0x3f80], &[0x80, 0x3f]),
            (DataType::INT8, &[-128, 127], &[128, 127]),
            (DataType::BOOL, &[1, 0, 1], &[1, 0, 1]),
            (DataType::FLOAT8E5M2, &[0x7c], &[0x7c]),
            (DataType::INT4, &[0x21, 0x03], &[0x21, 0x03]),
            (DataType::UINT2, &[0xe4], &[0xe4]),
            (DataType::FLOAT6E2M3, &[1, 2, 3, 4], &[0x81, 0x30, 0x10]),
            (DataType::FLOAT6E3M2, &[63, 0, 0, 0, 63], &[0x3f, 0, 0, 0x3f]),
        ];
        for (data_type, entries, raw) in rows {
            assert_eq!(decode_int32(data_type, entries), raw, "{data_type:?}");
            let elems = match data_type.bits() {
                Some(6) => entries.len(),
                Some(bits) => raw.len() * 8 / bits as usize,
                None => 0,
            };
            let back = encode_typed(data_type, raw, elems).expect("a number type");
            assert_eq!(
                back,
                entries.iter().map(|entry| *entry as u64).collect::<Vec<_>>(),
                "{data_type:?}"
            );
        }
    }

    #[test]
    fn the_other_lists() {
        // TENSOR-12+, TENSOR-19, TENSOR-20, TENSOR-21+, TENSOR-25
        let decode = |data_type, chunk| {
            let mut raw = Vec::new();
            decode_typed(data_type, chunk, &mut 0, &mut raw).expect("well-formed");
            raw
        };
        let block = pack_varints(&[u32::MAX.into()]);
        let slice = Slice { bytes: &block, offset: 0 };
        assert_eq!(
            decode(DataType::UINT32, Typed::Uint64(Chunk::Packed(slice))),
            u32::MAX.to_le_bytes()
        );
        assert_eq!(decode(DataType::UINT64, Typed::Uint64(Chunk::One(u64::MAX))), [255; 8]);
        assert_eq!(decode(DataType::INT64, Typed::Int64(Chunk::One(-2))), (-2i64).to_le_bytes());
        let pair: Vec<u8> = [1f32, 2.0].iter().flat_map(|v| v.to_le_bytes()).collect();
        let slice = Slice { bytes: &pair, offset: 0 };
        assert_eq!(decode(DataType::COMPLEX64, Typed::Float(Chunk::Packed(slice))), pair);
        assert_eq!(
            encode_typed(DataType::COMPLEX64, &pair, 1),
            Some(vec![0x3f80_0000, 0x4000_0000])
        );
        assert_eq!(decode(DataType::DOUBLE, Typed::Double(Chunk::One(1.0))), 1f64.to_le_bytes());
        assert_eq!(
            encode_typed(DataType::COMPLEX128, &1f64.to_le_bytes(), 0),
            Some(vec![1f64.to_bits()])
        );
        assert_eq!(encode_typed(DataType::UINT64, &[255; 8], 1), Some(vec![u64::MAX]));
        assert_eq!(encode_typed(DataType::STRING, b"", 0), None);
    }

    #[test]
    fn entries_that_elements_cannot_hold_are_errors() {
        // TENSOR-13-, TENSOR-14-, TENSOR-21-, TENSOR-41-
        let rows: [(DataType, &[i64], &[i64]); 9] = [
            (DataType::INT8, &[-128, 127, 255], &[300, 256, -129]),
            (DataType::UINT8, &[0, 255], &[256]),
            (DataType::BOOL, &[0, 1, 2], &[256]),
            (DataType::FLOAT8E5M2, &[0xff], &[0x100]),
            (DataType::INT16, &[-32768, 32767, 65535], &[65536, -32769]),
            (DataType::FLOAT16, &[0x3c00, 0xfc00], &[65536]),
            (DataType::INT4, &[0x21, 0xff, -8], &[0x100]),
            (DataType::FLOAT6E2M3, &[0, 63], &[64, -1]),
            (DataType::INT32, &[i32::MIN.into(), i32::MAX.into()], &[]),
        ];
        for (data_type, fine, outside) in rows {
            for (entry, fits) in
                fine.iter().map(|entry| (entry, true)).chain(outside.iter().map(|e| (e, false)))
            {
                // Entries are checked both in a packed block and alone.
                let block = pack_varints(&[0, *entry]);
                let slice = Slice { bytes: &block, offset: 0 };
                for chunk in [Chunk::Packed(slice), Chunk::One(*entry as i32)] {
                    let chunk = Typed::Int32(chunk);
                    let found = find_oversized_entry(data_type, chunk).expect("well-formed");
                    assert_eq!(found, (!fits).then_some(*entry as u64), "{data_type:?} {entry}");
                    let decoded = decode_typed(data_type, chunk, &mut 0, &mut Vec::new());
                    assert_eq!(decoded.is_ok(), fits, "{data_type:?} {entry}");
                }
            }
        }
        for (entry, fits) in [(u64::from(u32::MAX), true), (1 << 32, false), (u64::MAX, false)] {
            let decode = |data_type| {
                let chunk = Typed::Uint64(Chunk::One(entry));
                decode_typed(data_type, chunk, &mut 0, &mut Vec::new())
            };
            assert_eq!(decode(DataType::UINT32).is_ok(), fits, "{entry}");
            assert!(decode(DataType::UINT64).is_ok());
        }
        let error =
            decode_typed(DataType::INT8, Typed::Int32(Chunk::One(300)), &mut 0, &mut Vec::new());
        let words = error.map_err(|error| error.kind().to_string());
        assert_eq!(words, Err("an entry of a typed list is 300, which int8 cannot hold".into()));
    }

    #[test]
    fn a_broken_varint_is_an_error() {
        let slice = Slice { bytes: b"\x01\x80", offset: 10 };
        let error = decode_typed(
            DataType::INT32,
            Typed::Int32(Chunk::Packed(slice)),
            &mut 0,
            &mut Vec::new(),
        );
        assert_eq!(error.map_err(|e| e.offset()), Err(11));
    }
}

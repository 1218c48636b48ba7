//! Conversion between element types, element by element, as specified by the operator Cast.
//!
//! The 26 byte-stored real types would need 676 loops. Instead, elements are converted in chunks
//! through one of five *lanes* (f32, f64, i32, i64, u64), the narrowest that represents every value
//! of the source exactly; the target rounds, truncates or wraps from there. So each conversion
//! rounds exactly once, and a type takes one loop to load and five to store.
//!
//! Where the standard leaves the result undefined:
//! - Float to integer truncates. NaN and numbers out of range give the results of x86 and so of
//!   NumPy: integers of up to 32 bits take the low bits of a truncation to i32 (u32: to i64), which
//!   gives the minimum if the number does not fit; i64 gives its minimum; u64 takes the low bits of
//!   a truncation to i64, shifted by 2^63 for large numbers.
//! - Integer to integer wraps (the standard defines this).
//! - Text that is not a number, or an integer out of range of its target, is an error. `100.5` to
//!   an integer gives 100.
//! - Complex numbers convert from real ones and to other complex ones; dropping an imaginary part
//!   is an error.

use std::borrow::Cow;

use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};

use crate::buffer::Buffer;
use crate::element::DataType;
use crate::error::{TensorError, TensorErrorKind, err};
use crate::packed;
use crate::small_float::{
    self, FLOAT4E2M1_VALUES, FLOAT6E2M3_VALUES, FLOAT6E3M2_VALUES, Float8e8m0, Parts, RoundMode,
    SmallFloat,
};
use crate::strings::StringArray;
use crate::tensor::{Tensor, storage_bytes};
use crate::text::{self, Number};

/// Attributes of Cast besides the type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CastOptions {
    /// Whether float8 targets saturate: numbers that are too large, including infinities, become
    /// the largest number rather than infinity or NaN. 4- and 6-bit floats always saturate, wider
    /// floats never.
    pub saturate: bool,
    /// Rounding mode for float8e8m0.
    pub round_mode: RoundMode,
}

impl Default for CastOptions {
    fn default() -> Self {
        CastOptions { saturate: true, round_mode: RoundMode::Up }
    }
}

/// Converts every element to `to`; shares the elements if they have this type already.
///
/// # Errors
/// A string is not a number in the range of the target, an imaginary part would be dropped, or
/// memory cannot be allocated.
pub fn cast(source: &Tensor, to: DataType, options: CastOptions) -> Result<Tensor, TensorError> {
    let from = source.data_type();
    if from == to {
        return Ok(source.clone());
    }
    if to == DataType::String {
        // Strings of about a dozen bytes each share one allocation.
        let mut out = StringArray::with_capacity(source.len(), 8 * source.len());
        for i in 0..source.len() {
            out.push(text::format_element(from, source.bytes(), i));
        }
        return Tensor::from_strings(source.dims(), out);
    }
    let mut out = Buffer::zeroed(storage_bytes(to, source.len())?)?;
    match source.strings() {
        Some(strings) => parse_strings(strings, to, out.make_mut()?, options)?,
        None => cast_slices(from, source.bytes(), to, out.make_mut()?, source.len(), options)?,
    }
    Tensor::from_buffer(to, source.dims(), out)
}

/// Converts `elems` elements into a buffer of the caller. Neither buffer needs to be aligned;
/// strings are not supported.
///
/// # Errors
/// A size is not exactly the one that its type implies, a type is `string`, or an imaginary part
/// would be dropped.
pub fn cast_slices(
    from: DataType,
    source: &[u8],
    to: DataType,
    target: &mut [u8],
    elems: usize,
    options: CastOptions,
) -> Result<(), TensorError> {
    for (data_type, have) in [(from, source.len()), (to, target.len())] {
        let need = storage_bytes(data_type, elems)?;
        if need != have {
            return err!(Size, "{elems} {data_type} elements need {need} bytes, not {have}");
        }
    }
    if from == to {
        target.copy_from_slice(source);
        return Ok(());
    }
    if from.is_complex() {
        return cast_complex(from, source, to, target);
    }
    if elems <= FEW {
        let mut memory = Memory::<FEW>::new();
        cast_in_lanes(&mut memory.lanes(), from, source, to, target, elems, options)
    } else {
        let mut memory = Memory::<CHUNK>::new();
        cast_in_lanes(&mut memory.lanes(), from, source, to, target, elems, options)
    }
}

/// Converts elements like [`cast_slices`], chunk by chunk.
fn cast_in_lanes(
    lanes: &mut Lanes<'_>,
    from: DataType,
    source: &[u8],
    to: DataType,
    target: &mut [u8],
    elems: usize,
    options: CastOptions,
) -> Result<(), TensorError> {
    let (mut done, mut source, mut target) = (0, source, target);
    while done < elems {
        let count = (elems - done).min(CHUNK);
        // In every type, a whole chunk takes a whole number of bytes.
        let (s, t) = (storage_bytes(from, count)?, storage_bytes(to, count)?);
        let (head, rest) = target.split_at_mut(t);
        let lane = lanes.load(from, &source[..s], count)?;
        lanes.store(lane, to, head, count, options)?;
        source = &source[s..];
        target = rest;
        done += count;
    }
    Ok(())
}

/// Number of elements per chunk: a multiple of 8, so that packed chunks start on bytes, and small
/// enough for the L1 cache.
const CHUNK: usize = 512;
/// Number of elements up to which smaller lanes are used: clearing the lanes of a whole chunk takes
/// longer than converting so few. A multiple of 8 as well.
const FEW: usize = 16;

/// Type that a chunk is converted through.
#[derive(Clone, Copy)]
enum Lane {
    F32,
    F64,
    I32,
    I64,
    U64,
}

/// Memory of the lanes for `N` elements.
struct Memory<const N: usize> {
    f32: [f32; N],
    f64: [f64; N],
    i32: [i32; N],
    i64: [i64; N],
    u64: [u64; N],
    codes: [u8; N],
    half: [u16; N],
}

impl<const N: usize> Memory<N> {
    fn new() -> Memory<N> {
        Memory {
            f32: [0.0; N],
            f64: [0.0; N],
            i32: [0; N],
            i64: [0; N],
            u64: [0; N],
            codes: [0; N],
            half: [0; N],
        }
    }

    fn lanes(&mut self) -> Lanes<'_> {
        Lanes {
            f32: &mut self.f32,
            f64: &mut self.f64,
            i32: &mut self.i32,
            i64: &mut self.i64,
            u64: &mut self.u64,
            codes: &mut self.codes,
            half: &mut self.half,
        }
    }
}

struct Lanes<'m> {
    f32: &'m mut [f32],
    f64: &'m mut [f64],
    i32: &'m mut [i32],
    i64: &'m mut [i64],
    u64: &'m mut [u64],
    codes: &'m mut [u8],
    half: &'m mut [u16],
}

impl Lanes<'_> {
    /// Loads `count` elements into the narrowest lane that represents them exactly.
    fn load(&mut self, from: DataType, source: &[u8], count: usize) -> Result<Lane, TensorError> {
        macro_rules! numbers {
            ($t:ty => $field:ident $lane:ident) => {{
                const WIDTH: usize = size_of::<$t>();
                let (chunks, _) = source.as_chunks::<WIDTH>();
                for (out, bytes) in self.$field.iter_mut().zip(chunks) {
                    *out = <$t>::from_ne_bytes(*bytes) as _;
                }
                Lane::$lane
            }};
        }
        macro_rules! codes {
            ($values:expr) => {{
                let bits = from.bits().unwrap_or(8);
                packed::unpack_to_u8(source, bits, &mut self.codes[..count])?;
                for (out, &code) in self.f32.iter_mut().zip(&self.codes[..count]) {
                    *out = $values[code as usize];
                }
                Lane::F32
            }};
        }
        Ok(match from {
            DataType::Float => numbers!(f32 => f32 F32),
            DataType::Double => numbers!(f64 => f64 F64),
            DataType::Int8 => numbers!(i8 => i32 I32),
            DataType::Int16 => numbers!(i16 => i32 I32),
            DataType::Int32 => numbers!(i32 => i32 I32),
            DataType::Int64 => numbers!(i64 => i64 I64),
            DataType::Uint8 => numbers!(u8 => i32 I32),
            DataType::Uint16 => numbers!(u16 => i32 I32),
            DataType::Uint32 => numbers!(u32 => i64 I64),
            DataType::Uint64 => numbers!(u64 => u64 U64),
            DataType::Bool => {
                for (out, &byte) in self.i32.iter_mut().zip(source) {
                    *out = (byte != 0) as i32;
                }
                Lane::I32
            }
            DataType::Float16 | DataType::Bfloat16 => {
                // Conversions of whole slices use hardware instructions where available.
                let half = &mut self.half[..count];
                bytemuck::cast_slice_mut::<u16, u8>(half).copy_from_slice(source);
                let out = &mut self.f32[..count];
                match from {
                    DataType::Float16 => {
                        bytemuck::cast_slice::<u16, f16>(half).convert_to_f32_slice(out)
                    }
                    _ => bytemuck::cast_slice::<u16, bf16>(half).convert_to_f32_slice(out),
                }
                Lane::F32
            }
            DataType::Float8e4m3fn => codes!(small_float::Float8e4m3fn::VALUES),
            DataType::Float8e4m3fnuz => codes!(small_float::Float8e4m3fnuz::VALUES),
            DataType::Float8e5m2 => codes!(small_float::Float8e5m2::VALUES),
            DataType::Float8e5m2fnuz => codes!(small_float::Float8e5m2fnuz::VALUES),
            DataType::Float8e8m0 => codes!(Float8e8m0::VALUES),
            DataType::Float4e2m1 => codes!(FLOAT4E2M1_VALUES),
            DataType::Float6e2m3 => codes!(FLOAT6E2M3_VALUES),
            DataType::Float6e3m2 => codes!(FLOAT6E3M2_VALUES),
            DataType::Int4 | DataType::Int2 | DataType::Uint4 | DataType::Uint2 => {
                let bits = from.bits().unwrap_or(8);
                packed::unpack_to_u8(source, bits, &mut self.codes[..count])?;
                let signed = from.is_signed();
                for (out, &code) in self.i32.iter_mut().zip(&self.codes[..count]) {
                    *out =
                        if signed { packed::sign_extend(code, bits) as i32 } else { code as i32 };
                }
                Lane::I32
            }
            DataType::String | DataType::Complex64 | DataType::Complex128 => {
                return err!(Unsupported, "{from} elements are not real numbers");
            }
        })
    }

    /// Stores `count` elements of a lane as type `to`.
    fn store(
        &mut self,
        lane: Lane,
        to: DataType,
        target: &mut [u8],
        count: usize,
        options: CastOptions,
    ) -> Result<(), TensorError> {
        /// Expands to one loop for each lane, which writes `$write` of each number into a place of
        /// `$out`.
        macro_rules! each {
            ($place:ident in $out:expr, $x:ident => $write:expr) => {
                match lane {
                    Lane::F32 => $out.zip(&self.f32[..count]).for_each(|($place, &$x)| $write),
                    Lane::F64 => $out.zip(&self.f64[..count]).for_each(|($place, &$x)| $write),
                    Lane::I32 => $out.zip(&self.i32[..count]).for_each(|($place, &$x)| $write),
                    Lane::I64 => $out.zip(&self.i64[..count]).for_each(|($place, &$x)| $write),
                    Lane::U64 => $out.zip(&self.u64[..count]).for_each(|($place, &$x)| $write),
                }
            };
        }
        macro_rules! numbers {
            ($width:literal, $x:ident => $convert:expr) => {
                each!(out in target.as_chunks_mut::<$width>().0.iter_mut(), $x => *out = $convert.to_ne_bytes())
            };
        }
        // Packed types are written as codes and then packed; 8-bit codes go directly to the target.
        macro_rules! codes {
            ($x:ident => $convert:expr) => {
                match to.bits() {
                    Some(8) => each!(out in target.iter_mut(), $x => *out = $convert as u8),
                    _ => {
                        let codes = &mut self.codes[..count];
                        each!(out in codes.iter_mut(), $x => *out = $convert as u8);
                        packed::pack_from_codes(&self.codes[..count], to.bits().unwrap_or(8), target)?;
                    }
                }
            };
        }
        let CastOptions { saturate, round_mode } = options;
        match to {
            DataType::Float => numbers!(4, x => x.as_f32()),
            DataType::Double => numbers!(8, x => x.as_f64()),
            DataType::Float16 | DataType::Bfloat16 if matches!(lane, Lane::F32) => {
                let (half, numbers) = (&mut self.half[..count], &self.f32[..count]);
                match to {
                    DataType::Float16 => {
                        bytemuck::cast_slice_mut::<u16, f16>(half).convert_from_f32_slice(numbers);
                    }
                    _ => {
                        bytemuck::cast_slice_mut::<u16, bf16>(half).convert_from_f32_slice(numbers)
                    }
                }
                target.copy_from_slice(bytemuck::cast_slice(half));
            }
            DataType::Float16 => numbers!(2, x => small_float::FLOAT16.encode(x.to_parts(), false)),
            DataType::Bfloat16 => {
                numbers!(2, x => small_float::BFLOAT16.encode(x.to_parts(), false))
            }
            DataType::Int8 | DataType::Uint8 => codes!(x => x.low32()),
            DataType::Int16 | DataType::Uint16 => numbers!(2, x => (x.low32() as u16)),
            DataType::Int32 => numbers!(4, x => x.low32()),
            DataType::Uint32 => numbers!(4, x => (x.low64() as u32)),
            DataType::Int64 => numbers!(8, x => x.low64()),
            DataType::Uint64 => numbers!(8, x => x.as_u64()),
            DataType::Bool => {
                each!(out in target.iter_mut(), x => *out = (x != Default::default()) as u8)
            }
            DataType::Int4 | DataType::Uint4 | DataType::Int2 | DataType::Uint2 => {
                codes!(x => x.low32())
            }
            DataType::Float8e4m3fn => {
                codes!(x => small_float::FLOAT8E4M3FN.encode(x.to_parts(), saturate))
            }
            DataType::Float8e4m3fnuz => {
                codes!(x => small_float::FLOAT8E4M3FNUZ.encode(x.to_parts(), saturate))
            }
            DataType::Float8e5m2 => {
                codes!(x => small_float::FLOAT8E5M2.encode(x.to_parts(), saturate))
            }
            DataType::Float8e5m2fnuz => {
                codes!(x => small_float::FLOAT8E5M2FNUZ.encode(x.to_parts(), saturate))
            }
            DataType::Float8e8m0 => {
                codes!(x => Float8e8m0::encode(x.to_parts(), saturate, round_mode).0)
            }
            DataType::Float4e2m1 => codes!(x => small_float::FLOAT4E2M1.encode(x.to_parts(), true)),
            DataType::Float6e2m3 => codes!(x => small_float::FLOAT6E2M3.encode(x.to_parts(), true)),
            DataType::Float6e3m2 => codes!(x => small_float::FLOAT6E3M2.encode(x.to_parts(), true)),
            DataType::Complex64 => each!(out in target.as_chunks_mut::<8>().0.iter_mut(), x => {
                *out = bytemuck::cast([x.as_f32(), 0.0]);
            }),
            DataType::Complex128 => each!(out in target.as_chunks_mut::<16>().0.iter_mut(), x => {
                *out = bytemuck::cast([x.as_f64(), 0.0]);
            }),
            DataType::String => {
                return err!(Unsupported, "string elements are not stored as bytes");
            }
        }
        Ok(())
    }
}

/// Conversions that the target types need from a lane's numbers.
trait LaneNumber: Copy {
    fn as_f32(self) -> f32;
    fn as_f64(self) -> f64;
    /// Returns the low 32 bits of an integer; truncates a float to i32 like x86.
    fn low32(self) -> i32;
    /// Returns the low 64 bits of an integer; truncates a float to i64 like x86.
    fn low64(self) -> i64;
    fn as_u64(self) -> u64;
    fn to_parts(self) -> Parts;
}

macro_rules! integer_lane {
    ($t:ty, $parts:expr) => {
        impl LaneNumber for $t {
            #[inline]
            fn as_f32(self) -> f32 {
                self as f32
            }
            #[inline]
            fn as_f64(self) -> f64 {
                self as f64
            }
            #[inline]
            fn low32(self) -> i32 {
                self as i32
            }
            #[inline]
            fn low64(self) -> i64 {
                self as i64
            }
            #[inline]
            fn as_u64(self) -> u64 {
                self as u64
            }
            #[inline]
            fn to_parts(self) -> Parts {
                $parts(self.into())
            }
        }
    };
}

integer_lane!(i32, Parts::from_i64);
integer_lane!(i64, Parts::from_i64);
integer_lane!(u64, Parts::from_u64);

macro_rules! float_lane {
    ($t:ty, $parts:expr) => {
        impl LaneNumber for $t {
            #[inline]
            fn as_f32(self) -> f32 {
                self as f32
            }
            #[inline]
            fn as_f64(self) -> f64 {
                self as f64
            }
            #[inline]
            fn low32(self) -> i32 {
                // `as` saturates, which is right at the low end, but not at the high end and for
                // NaN.
                if self < 2147483648.0 { self as i32 } else { i32::MIN }
            }
            #[inline]
            fn low64(self) -> i64 {
                if self < 9223372036854775808.0 { self as i64 } else { i64::MIN }
            }
            #[inline]
            fn as_u64(self) -> u64 {
                const HALF: $t = 9223372036854775808.0;
                if self >= HALF {
                    (self - HALF).low64() as u64 ^ (1 << 63)
                } else {
                    self.low64() as u64
                }
            }
            #[inline]
            fn to_parts(self) -> Parts {
                $parts(self)
            }
        }
    };
}

float_lane!(f32, Parts::from_f32);
float_lane!(f64, Parts::from_f64);

fn cast_complex(
    from: DataType,
    source: &[u8],
    to: DataType,
    target: &mut [u8],
) -> Result<(), TensorError> {
    let halves = source.len() / (from.element_bytes().unwrap_or(8) / 2);
    let (from, to) = match (from, to) {
        (DataType::Complex64, DataType::Complex128) => (DataType::Float, DataType::Double),
        (DataType::Complex128, DataType::Complex64) => (DataType::Double, DataType::Float),
        _ => return err!(Unsupported, "{from} to {to} would drop the imaginary parts"),
    };
    cast_slices(from, source, to, target, halves, CastOptions::default())
}

/// Parses strings in blocks, so that the loops of the lanes write the target.
fn parse_strings(
    strings: &StringArray,
    to: DataType,
    target: &mut [u8],
    options: CastOptions,
) -> Result<(), TensorError> {
    let mut memory = Memory::<CHUNK>::new();
    let mut lanes = memory.lanes();
    let mut target = target;
    let mut start = 0;
    while start < strings.len() {
        let count = (strings.len() - start).min(CHUNK);
        let mut lane = Lane::F64;
        for i in 0..count {
            let string = strings.get(start + i);
            let at =
                |e: TensorError| TensorError::new(e.kind(), format!("element {}: {e}", start + i));
            match to {
                DataType::Float | DataType::Complex64 => {
                    lane = Lane::F32;
                    lanes.f32[i] = text::parse_f32(string).map_err(at)?;
                }
                DataType::Bool => {
                    lane = Lane::I32;
                    lanes.i32[i] = text::parse_bool(string).map_err(at)? as i32;
                }
                _ if to.is_integer() => {
                    // Both 64-bit ranges are stored as bits; narrower targets take the low ones.
                    lane = Lane::I64;
                    lanes.i64[i] =
                        text::parse_number(string).and_then(|n| to_integer(n, to)).map_err(at)?;
                }
                _ => lanes.f64[i] = text::parse_f64(string).map_err(at)?,
            }
        }
        let (head, rest) = target.split_at_mut(storage_bytes(to, count)?);
        lanes.store(lane, to, head, count, options)?;
        target = rest;
        start += count;
    }
    Ok(())
}

/// Converts a number to an integer of type `to`, as the bits of an i64.
fn to_integer(number: Number, to: DataType) -> Result<i64, TensorError> {
    let value = match number {
        Number::Integer(value) => value,
        Number::Real(value) if value.is_finite() => value as i128, // truncates; saturates far outside every range
        Number::Real(value) => return Err(range_error(value, to)),
    };
    let bits = to.bits().unwrap_or(64);
    let (low, high) = if to.is_signed() {
        (-(1i128 << (bits - 1)), (1i128 << (bits - 1)) - 1)
    } else {
        (0, (1i128 << bits) - 1)
    };
    if value < low || value > high {
        return Err(range_error(value, to));
    }
    Ok(value as i64)
}

fn range_error(value: impl std::fmt::Display, to: DataType) -> TensorError {
    TensorError::new(TensorErrorKind::Range, format!("{value} is out of the range of {to}"))
}

/// Converts real elements to f64, rounding 64-bit integers; for comparison and printing, not for
/// Cast. Complex elements give two numbers each; strings are an error.
pub(crate) fn to_f64(tensor: &Tensor) -> Result<Cow<'_, [f64]>, TensorError> {
    let (from, elems) = match tensor.data_type() {
        DataType::Double => return tensor.to_cow::<f64>(),
        DataType::Complex64 => (DataType::Float, 2 * tensor.len()),
        DataType::Complex128 => (DataType::Double, 2 * tensor.len()),
        other => (other, tensor.len()),
    };
    let mut out = vec![0.0f64; elems];
    let bytes = bytemuck::cast_slice_mut(&mut out);
    cast_slices(from, tensor.bytes(), DataType::Double, bytes, elems, CastOptions::default())?;
    Ok(Cow::Owned(out))
}

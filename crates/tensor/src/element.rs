//! Element types: numbers, names and widths of ONNX, and the Rust types that hold elements.
//!
//! All facts about a type are in one table, `data_types!` below; everything else is derived from
//! it. [`Element`] maps the types whose elements fill whole bytes to Rust types. Types narrower
//! than one byte have no Rust type: they are codes in packed bytes, see [`packed`](crate::packed).
//! Strings have an array of their own, see [`StringArray`](crate::StringArray).

use std::fmt;

use bytemuck::{Pod, Zeroable};
use half::{bf16, f16};

use crate::error::{TensorError, err};

/// Class of numbers or other elements that an element type holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Class {
    /// Binary floating point, of any width.
    Float,
    /// Two's complement integer.
    Signed,
    /// Unsigned integer.
    Unsigned,
    /// Truth value, one byte each.
    Bool,
    /// Pair of floats, real part first.
    Complex,
    /// Byte string of any length.
    String,
}

struct Facts {
    name: &'static str,
    /// Width of one element in bits; 0 for strings.
    bits: u8,
    class: Class,
}

/// Expands one row per type (variant, number in files, name in ONNX text, width in bits, class) to
/// the enum, `ALL`, `facts` and `from_name`. A function cannot declare an enum.
macro_rules! data_types {
    ($($variant:ident = $number:literal $name:literal $bits:literal $class:ident)*) => {
        /// Element type of a tensor, with the number that `TensorProto.DataType` gives it.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(i32)]
        pub enum DataType {
            $(
                #[doc = concat!("Element type `", $name, "`, number ", $number, " in files.")]
                $variant = $number,
            )*
        }

        impl DataType {
            /// All types, ordered by number.
            pub const ALL: [DataType; 28] = [$(DataType::$variant),*];

            #[inline]
            const fn facts(self) -> Facts {
                match self {
                    $(DataType::$variant => Facts { name: $name, bits: $bits, class: Class::$class },)*
                }
            }

            /// Looks up a type by its name in ONNX text, such as `float` or `int64`.
            pub fn from_name(name: impl AsRef<[u8]>) -> Option<DataType> {
                let name = name.as_ref();
                $(if name == const { $name.as_bytes() } {
                    return Some(DataType::$variant);
                })*
                None
            }
        }
    };
}

data_types! {
    Float          = 1  "float"          32  Float
    Uint8          = 2  "uint8"          8   Unsigned
    Int8           = 3  "int8"           8   Signed
    Uint16         = 4  "uint16"         16  Unsigned
    Int16          = 5  "int16"          16  Signed
    Int32          = 6  "int32"          32  Signed
    Int64          = 7  "int64"          64  Signed
    String         = 8  "string"         0   String
    Bool           = 9  "bool"           8   Bool
    Float16        = 10 "float16"        16  Float
    Double         = 11 "double"         64  Float
    Uint32         = 12 "uint32"         32  Unsigned
    Uint64         = 13 "uint64"         64  Unsigned
    Complex64      = 14 "complex64"      64  Complex
    Complex128     = 15 "complex128"     128 Complex
    Bfloat16       = 16 "bfloat16"       16  Float
    Float8e4m3fn   = 17 "float8e4m3fn"   8   Float
    Float8e4m3fnuz = 18 "float8e4m3fnuz" 8   Float
    Float8e5m2     = 19 "float8e5m2"     8   Float
    Float8e5m2fnuz = 20 "float8e5m2fnuz" 8   Float
    Uint4          = 21 "uint4"          4   Unsigned
    Int4           = 22 "int4"           4   Signed
    Float4e2m1     = 23 "float4e2m1"     4   Float
    Float8e8m0     = 24 "float8e8m0"     8   Float
    Uint2          = 25 "uint2"          2   Unsigned
    Int2           = 26 "int2"           2   Signed
    Float6e2m3     = 27 "float6e2m3"     6   Float
    Float6e3m2     = 28 "float6e3m2"     6   Float
}

impl DataType {
    /// Looks up a type by its number in a file; `None` for 0 (undefined) and unknown numbers.
    pub fn from_number(number: i32) -> Option<DataType> {
        let index = usize::try_from(number).ok()?.checked_sub(1)?;
        Self::ALL.get(index).copied()
    }

    /// Returns the type's number in a file.
    #[inline]
    pub const fn number(self) -> i32 {
        self as i32
    }

    /// Returns the type's name in ONNX text, such as `float` or `float8e4m3fn`.
    pub const fn name(self) -> &'static str {
        self.facts().name
    }

    /// Returns the width of one element in bits; `None` for strings.
    #[inline]
    pub const fn bits(self) -> Option<usize> {
        match self.facts().bits {
            0 => None,
            bits => Some(bits as usize),
        }
    }

    /// Returns the width of one element in bytes; `None` for strings and for types narrower than
    /// one byte.
    #[inline]
    pub const fn element_bytes(self) -> Option<usize> {
        match self.bits() {
            Some(bits) if bits % 8 == 0 => Some(bits / 8),
            _ => None,
        }
    }

    /// Returns the number of bytes that `elems` elements take, with the padding of the last byte;
    /// `None` for strings and on overflow.
    #[inline]
    pub const fn storage_bytes(self, elems: usize) -> Option<usize> {
        let Some(bits) = self.bits() else { return None };
        // 8 elements of `bits` bits fill `bits` bytes; the rest is rounded up. Computed like this,
        // the size only overflows if the result does.
        match (elems / 8).checked_mul(bits) {
            Some(whole) => whole.checked_add((elems % 8 * bits).div_ceil(8)),
            None => None,
        }
    }

    /// Returns the class of the elements.
    #[doc(hidden)]
    pub const fn class(self) -> Class {
        self.facts().class
    }

    /// Whether the type is a real floating-point type of any width.
    pub const fn is_float(self) -> bool {
        matches!(self.class(), Class::Float)
    }

    /// Whether the type is an integer type of any width, signed or unsigned. `bool` is not.
    pub const fn is_integer(self) -> bool {
        matches!(self.class(), Class::Signed | Class::Unsigned)
    }

    /// Whether the type has negative numbers: signed integers, complex numbers, and all floats
    /// except `float8e8m0`.
    pub const fn is_signed(self) -> bool {
        match self.class() {
            Class::Float => !matches!(self, DataType::Float8e8m0),
            Class::Signed | Class::Complex => true,
            Class::Unsigned | Class::Bool | Class::String => false,
        }
    }

    /// Whether the type is `complex64` or `complex128`.
    pub const fn is_complex(self) -> bool {
        matches!(self.class(), Class::Complex)
    }

    /// Whether several elements share a byte: types of 2, 4 and 6 bits.
    pub const fn is_packed(self) -> bool {
        matches!(self.bits(), Some(bits) if bits < 8)
    }
}

impl fmt::Display for DataType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl fmt::Debug for DataType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Reverses the bytes of every number in place: between little-endian files and a big-endian host,
/// and for big-endian files. Complex elements are two numbers each; packed and one-byte types do
/// not change.
///
/// # Errors
/// `bytes` is not a whole number of elements, or the type is `string`.
pub fn swap_bytes(data_type: DataType, bytes: &mut [u8]) -> Result<(), TensorError> {
    let Some(bits) = data_type.bits() else {
        return err!(Type, "string elements have no byte order");
    };
    let width = match bits {
        0..=8 => return Ok(()),
        _ if data_type.is_complex() => bits / 16,
        _ => bits / 8,
    };
    if !bytes.len().is_multiple_of(bits / 8) {
        return err!(Size, "{} bytes are not a whole number of {data_type} elements", bytes.len());
    }
    bytes.chunks_exact_mut(width).for_each(<[u8]>::reverse);
    Ok(())
}

pub(crate) mod sealed {
    pub trait Sealed {}
}

/// Rust type whose values are the elements of a [`DataType`] of at least one byte. Every bit
/// pattern is a valid value. Sealed: other crates cannot implement it.
pub trait Element: Pod + Send + Sync + fmt::Debug + PartialEq + sealed::Sealed {
    /// Element type of tensors with these elements.
    const DATA_TYPE: DataType;
}

/// Truth value as a file stores it, in one byte: 0 is false, every other byte is true.
///
/// A file may hold any byte, but a Rust `bool` must be 0 or 1. Other bytes are kept and read as
/// true. Code that makes a new value should store 0 or 1.
#[derive(Clone, Copy, Default, Pod, Zeroable)]
#[repr(transparent)]
pub struct Bool8(pub u8);

impl Bool8 {
    /// Converts the value to a Rust `bool`.
    #[inline]
    pub const fn get(self) -> bool {
        self.0 != 0
    }
}

impl From<bool> for Bool8 {
    #[inline]
    fn from(value: bool) -> Self {
        Bool8(value as u8)
    }
}

impl From<Bool8> for bool {
    #[inline]
    fn from(value: Bool8) -> Self {
        value.get()
    }
}

impl PartialEq for Bool8 {
    fn eq(&self, other: &Self) -> bool {
        self.get() == other.get()
    }
}

impl Eq for Bool8 {}

impl fmt::Debug for Bool8 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.get())
    }
}

/// Complex number of two `f32`, with the layout of the type `complex64` in files.
#[derive(Debug, Clone, Copy, Default, PartialEq, Pod, Zeroable)]
#[repr(C)]
pub struct Complex64 {
    /// Real part.
    pub re: f32,
    /// Imaginary part.
    pub im: f32,
}

/// Complex number of two `f64`, with the layout of the type `complex128` in files.
#[derive(Debug, Clone, Copy, Default, PartialEq, Pod, Zeroable)]
#[repr(C)]
pub struct Complex128 {
    /// Real part.
    pub re: f64,
    /// Imaginary part.
    pub im: f64,
}

macro_rules! elements {
    ($($rust:ty => $variant:ident)*) => {$(
        impl sealed::Sealed for $rust {}
        impl Element for $rust {
            const DATA_TYPE: DataType = DataType::$variant;
        }
    )*};
}

elements! {
    f32 => Float
    f64 => Double
    f16 => Float16
    bf16 => Bfloat16
    i8 => Int8
    i16 => Int16
    i32 => Int32
    i64 => Int64
    u8 => Uint8
    u16 => Uint16
    u32 => Uint32
    u64 => Uint64
    Bool8 => Bool
    Complex64 => Complex64
    Complex128 => Complex128
    crate::Float8e4m3fn => Float8e4m3fn
    crate::Float8e4m3fnuz => Float8e4m3fnuz
    crate::Float8e5m2 => Float8e5m2
    crate::Float8e5m2fnuz => Float8e5m2fnuz
    crate::Float8e8m0 => Float8e8m0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_names_round_trip() {
        for (i, t) in DataType::ALL.into_iter().enumerate() {
            assert_eq!(t.number(), i as i32 + 1);
            assert_eq!(DataType::from_number(t.number()), Some(t));
            assert_eq!(DataType::from_name(t.name()), Some(t));
        }
        // TYPE-19: 0 is "undefined" , not a type.
        for bad in [0, -1, 29, i32::MAX, i32::MIN] {
            assert_eq!(DataType::from_number(bad), None);
        }
        assert_eq!(DataType::from_name("Float"), None);
    }

    #[test]
    fn storage_is_rounded_up_to_bytes() {
        // TENSOR-15, TENSOR-16, TENSOR-17+, TENSOR-24+-, TENSOR-40
        for (t, elems, bytes) in [
            (DataType::Int4, 3, 2),
            (DataType::Uint4, 4, 2),
            (DataType::Int2, 5, 2),
            (DataType::Uint2, 0, 0),
            (DataType::Float6e2m3, 1, 1),
            (DataType::Float6e2m3, 2, 2),
            (DataType::Float6e3m2, 3, 3),
            (DataType::Float6e3m2, 4, 3),
            (DataType::Float6e3m2, 9, 7),
            (DataType::Bool, 3, 3),
            (DataType::Complex64, 1, 8),
            (DataType::Complex128, 3, 48),
            (DataType::Float, 7, 28),
        ] {
            assert_eq!(t.storage_bytes(elems), Some(bytes), "{t} x {elems}");
        }
        // TENSOR-32
        assert_eq!(DataType::Double.storage_bytes(usize::MAX / 4), None);
        assert_eq!(DataType::Int4.storage_bytes(usize::MAX), Some(usize::MAX / 2 + 1));
        assert_eq!(DataType::String.storage_bytes(1), None);
    }

    #[test]
    fn classes() {
        assert!(DataType::Float8e8m0.is_float() && !DataType::Float8e8m0.is_signed());
        assert!(
            DataType::Int2.is_integer() && DataType::Int2.is_signed() && DataType::Int2.is_packed()
        );
        assert!(!DataType::Bool.is_integer());
        assert_eq!(DataType::ALL.into_iter().filter(|t| t.is_packed()).count(), 7);
        // 26 numeric types, bool and string.
        let others = [DataType::Bool, DataType::String];
        assert_eq!(DataType::ALL.into_iter().filter(|t| !others.contains(t)).count(), 26);
    }

    #[test]
    fn odd_bool_bytes_are_true() {
        // TYPE-07
        assert!(Bool8(2).get());
        assert_eq!(Bool8(2), Bool8::from(true));
        assert!(!Bool8(0).get());
    }

    #[test]
    fn swapping_keeps_complex_pairs_in_order() {
        // TENSOR-25
        let mut bytes = [1, 2, 3, 4, 5, 6, 7, 8];
        swap_bytes(DataType::Complex64, &mut bytes).unwrap();
        assert_eq!(bytes, [4, 3, 2, 1, 8, 7, 6, 5]);
        assert!(swap_bytes(DataType::Int64, &mut bytes[..7]).is_err());
        swap_bytes(DataType::Int4, &mut bytes[..7]).unwrap();
    }
}

//! Element types: what numpy, ml_dtypes and the buffer protocol call them.

use sardonyx::DataType;

/// The element types, each with what numpy or ml_dtypes calls it. Strings are arrays of objects.
const NAMES: [(DataType, &str); 27] = [
    (DataType::Float, "float32"),
    (DataType::Uint8, "uint8"),
    (DataType::Int8, "int8"),
    (DataType::Uint16, "uint16"),
    (DataType::Int16, "int16"),
    (DataType::Int32, "int32"),
    (DataType::Int64, "int64"),
    (DataType::Bool, "bool"),
    (DataType::Float16, "float16"),
    (DataType::Double, "float64"),
    (DataType::Uint32, "uint32"),
    (DataType::Uint64, "uint64"),
    (DataType::Complex64, "complex64"),
    (DataType::Complex128, "complex128"),
    (DataType::Bfloat16, "bfloat16"),
    (DataType::Float8e4m3fn, "float8_e4m3fn"),
    (DataType::Float8e4m3fnuz, "float8_e4m3fnuz"),
    (DataType::Float8e5m2, "float8_e5m2"),
    (DataType::Float8e5m2fnuz, "float8_e5m2fnuz"),
    (DataType::Uint4, "uint4"),
    (DataType::Int4, "int4"),
    (DataType::Float4e2m1, "float4_e2m1fn"),
    (DataType::Float8e8m0, "float8_e8m0fnu"),
    (DataType::Uint2, "uint2"),
    (DataType::Int2, "int2"),
    (DataType::Float6e2m3, "float6_e2m3fn"),
    (DataType::Float6e3m2, "float6_e3m2fn"),
];

/// The type that numpy or ml_dtypes calls so.
pub(crate) fn named(name: &str) -> Option<DataType> {
    NAMES.iter().find(|(_, known)| *known == name).map(|(data_type, _)| *data_type)
}

/// What numpy or ml_dtypes calls a type; `object` for strings.
pub(crate) fn name_of(data_type: DataType) -> &'static str {
    let found = NAMES.iter().find(|(known, _)| *known == data_type);
    found.map_or("object", |(_, name)| *name)
}

/// Whether it is ml_dtypes that has the type, and not numpy.
pub(crate) fn is_of_ml_dtypes(data_type: DataType) -> bool {
    data_type.is_packed()
        || data_type == DataType::Bfloat16
        || data_type.is_float() && data_type.bits() == Some(8)
}

/// The elements of a buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Format {
    /// Numbers, and whether their bytes are in the other order than those of this machine.
    Numbers(DataType, bool),
    /// Text of a fixed width, bytes of one, or objects.
    Objects,
}

/// What a format of the buffer protocol says, for items of this many bytes.
pub(crate) fn format(format: &[u8], itemsize: usize) -> Option<Format> {
    let (order, code) = match format {
        [order @ (b'@' | b'=' | b'<' | b'>' | b'!'), code @ ..] => (*order, code),
        code => (b'@', code),
    };
    let is_swapped = match order {
        b'<' => cfg!(target_endian = "big"),
        b'>' | b'!' => cfg!(target_endian = "little"),
        _ => false,
    };
    let data_type = match (code, itemsize) {
        (b"f", 4) => DataType::Float,
        (b"d" | b"g", 8) => DataType::Double,
        (b"e", 2) => DataType::Float16,
        (b"?", 1) => DataType::Bool,
        (b"b", 1) => DataType::Int8,
        (b"B" | b"", 1) => DataType::Uint8,
        (b"h", 2) => DataType::Int16,
        (b"H", 2) => DataType::Uint16,
        (b"i" | b"l", 4) => DataType::Int32,
        (b"I" | b"L", 4) => DataType::Uint32,
        (b"l" | b"q" | b"n", 8) => DataType::Int64,
        (b"L" | b"Q" | b"N", 8) => DataType::Uint64,
        (b"Zf", 8) => DataType::Complex64,
        (b"Zd", 16) => DataType::Complex128,
        ([.., b'w' | b's' | b'O'], _) => return Some(Format::Objects),
        _ => return None,
    };
    Some(Format::Numbers(data_type, is_swapped))
}

//! Names of element types in numpy, ml_dtypes and the buffer protocol.

use sardonyx::DataType;

/// Element types with their dtype names in numpy or ml_dtypes. Strings are missing: they are arrays
/// of objects.
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

/// Returns the element type with a dtype name of numpy or ml_dtypes; `None` for an unknown name.
pub(crate) fn find_type(name: &str) -> Option<DataType> {
    NAMES.iter().find(|(_, known)| *known == name).map(|(data_type, _)| *data_type)
}

/// Returns the dtype name of an element type in numpy or ml_dtypes; `object` for strings.
pub(crate) fn find_dtype_name(data_type: DataType) -> &'static str {
    let found = NAMES.iter().find(|(known, _)| *known == data_type);
    found.map_or("object", |(_, name)| *name)
}

/// Whether the dtype of an element type comes from ml_dtypes rather than numpy.
pub(crate) fn is_of_ml_dtypes(data_type: DataType) -> bool {
    data_type.is_packed()
        || data_type == DataType::Bfloat16
        || data_type.is_float() && data_type.bits() == Some(8)
}

/// Format of the elements of a Python buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Format {
    /// Numbers of an element type, and whether their bytes must be swapped on this machine.
    Numbers(DataType, bool),
    /// Fixed-width text, fixed-width bytes, or Python objects.
    Objects,
}

/// Parses a format string of the buffer protocol (PEP 3118) for items of `itemsize` bytes; `None`
/// if ONNX has no such type.
pub(crate) fn parse_format(format: &[u8], itemsize: usize) -> Option<Format> {
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

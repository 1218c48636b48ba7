//! Open enumerations: any number is representable, so numbers of newer releases survive.

use crate::kinds::OpenEnum;

macro_rules! open_enums {
    ($( $(#[$doc:meta])* $name:ident { $( $number:literal $constant:ident, )* } )*) => { $(
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
        pub struct $name(pub i32);

        impl $name {
            $(
                #[doc = concat!("`", stringify!($constant), "`, ", stringify!($number), ".")]
                pub const $constant: $name = $name($number);
            )*

            /// Returns the name in the standard, if this release defines one for the number.
            pub fn name(self) -> Option<&'static str> {
                match self.0 {
                    $( $number => Some(stringify!($constant)), )*
                    _ => None,
                }
            }
        }

        impl OpenEnum for $name {
            fn from_number(number: i32) -> Self {
                $name(number)
            }
            fn number(self) -> i32 {
                self.0
            }
            fn name_of(number: i32) -> Option<&'static str> {
                $name(number).name()
            }
        }
    )* };
}

open_enums! {
    /// `TensorProto.DataType`: element types. Stored as plain `int32` in most messages.
    DataType {
        0 UNDEFINED,
        1 FLOAT,
        2 UINT8,
        3 INT8,
        4 UINT16,
        5 INT16,
        6 INT32,
        7 INT64,
        8 STRING,
        9 BOOL,
        10 FLOAT16,
        11 DOUBLE,
        12 UINT32,
        13 UINT64,
        14 COMPLEX64,
        15 COMPLEX128,
        16 BFLOAT16,
        17 FLOAT8E4M3FN,
        18 FLOAT8E4M3FNUZ,
        19 FLOAT8E5M2,
        20 FLOAT8E5M2FNUZ,
        21 UINT4,
        22 INT4,
        23 FLOAT4E2M1,
        24 FLOAT8E8M0,
        25 UINT2,
        26 INT2,
        27 FLOAT6E2M3,
        28 FLOAT6E3M2,
    }
    /// `AttributeProto.AttributeType`: selects the value field of an attribute.
    AttributeType {
        0 UNDEFINED,
        1 FLOAT,
        2 INT,
        3 STRING,
        4 TENSOR,
        5 GRAPH,
        6 FLOATS,
        7 INTS,
        8 STRINGS,
        9 TENSORS,
        10 GRAPHS,
        11 SPARSE_TENSOR,
        12 SPARSE_TENSORS,
        13 TYPE_PROTO,
        14 TYPE_PROTOS,
    }
    /// `TensorProto.DataLocation`: whether the values are stored in the message or outside it.
    DataLocation {
        0 DEFAULT,
        1 EXTERNAL,
    }
    /// `OperatorStatus` of a declaration in an operator set file.
    OperatorStatus {
        0 EXPERIMENTAL,
        1 STABLE,
    }
    /// `SequenceProto.DataType`: selects the list of a sequence that holds its elements.
    SequenceElemType {
        0 UNDEFINED,
        1 TENSOR,
        2 SPARSE_TENSOR,
        3 SEQUENCE,
        4 MAP,
        5 OPTIONAL,
    }
    /// `OptionalProto.DataType`: selects the field of an optional that holds its element.
    OptionalElemType {
        0 UNDEFINED,
        1 TENSOR,
        2 SPARSE_TENSOR,
        3 SEQUENCE,
        4 MAP,
        5 OPTIONAL,
    }
}

/// Typed list of a `TensorProto` that holds the values of an element type if `raw_data` does not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TypedField {
    /// `float_data`, number 4.
    Float,
    /// `int32_data`, number 5.
    Int32,
    /// `string_data`, number 6.
    String,
    /// `int64_data`, number 7.
    Int64,
    /// `double_data`, number 10.
    Double,
    /// `uint64_data`, number 11.
    Uint64,
}

impl TypedField {
    /// Returns the field's name in the format.
    pub fn name(self) -> &'static str {
        match self {
            TypedField::Float => "float_data",
            TypedField::Int32 => "int32_data",
            TypedField::String => "string_data",
            TypedField::Int64 => "int64_data",
            TypedField::Double => "double_data",
            TypedField::Uint64 => "uint64_data",
        }
    }
}

impl DataType {
    /// Returns the typed list for this element type; `None` for `UNDEFINED` and unnamed numbers.
    pub fn typed_field(self) -> Option<TypedField> {
        Some(match self {
            DataType::FLOAT | DataType::COMPLEX64 => TypedField::Float,
            DataType::DOUBLE | DataType::COMPLEX128 => TypedField::Double,
            DataType::INT64 => TypedField::Int64,
            DataType::UINT64 | DataType::UINT32 => TypedField::Uint64,
            DataType::STRING => TypedField::String,
            DataType::UNDEFINED => return None,
            other => {
                other.name()?;
                TypedField::Int32
            }
        })
    }

    /// Returns the bits per element in `raw_data`; `None` for strings, `UNDEFINED` and unnamed
    /// numbers.
    pub fn bits(self) -> Option<u32> {
        Some(match self {
            DataType::UINT2 | DataType::INT2 => 2,
            DataType::UINT4 | DataType::INT4 | DataType::FLOAT4E2M1 => 4,
            DataType::FLOAT6E2M3 | DataType::FLOAT6E3M2 => 6,
            DataType::UINT16 | DataType::INT16 | DataType::FLOAT16 | DataType::BFLOAT16 => 16,
            DataType::FLOAT | DataType::INT32 | DataType::UINT32 => 32,
            DataType::DOUBLE | DataType::INT64 | DataType::UINT64 | DataType::COMPLEX64 => 64,
            DataType::COMPLEX128 => 128,
            DataType::UNDEFINED | DataType::STRING => return None,
            other => {
                other.name()?;
                8
            }
        })
    }
}

//! Pieces of text that many bodies share: constants, and numbers that have the type of another
//! value.

use sardonyx_model::{Dim, TensorType};
use sardonyx_tensor::DataType;

/// Expands to nodes that make a number of the element type of a value: `number_like!("zero", "0",
/// "X")`.
macro_rules! number_like {
    ($name:literal, $number:literal, $value:literal) => {
        concat!(
            $name,
            "_number = Constant <value = float {",
            $number,
            "}> ()\n",
            $name,
            " = CastLike (",
            $name,
            "_number, ",
            $value,
            ")\n",
        )
    };
}

/// Expands to nodes that give a float attribute the element type of a value, under the attribute's
/// name: `attribute_like!("alpha", "X")`.
macro_rules! attribute_like {
    ($name:literal, $value:literal) => {
        concat!(
            $name,
            "_number = Constant <value_float: float = @",
            $name,
            "> ()\n",
            $name,
            " = CastLike (",
            $name,
            "_number, ",
            $value,
            ")\n",
        )
    };
}

pub(crate) use {attribute_like, number_like};

/// Numbers of element types, as attributes hold them.
pub(crate) const FLOAT: i64 = DataType::Float.number() as i64;
pub(crate) const FLOAT16: i64 = DataType::Float16.number() as i64;
pub(crate) const BFLOAT16: i64 = DataType::Bfloat16.number() as i64;
pub(crate) const DOUBLE: i64 = DataType::Double.number() as i64;

/// Returns a node that makes a scalar `int64`.
pub(crate) fn scalar(name: &str, value: i64) -> String {
    format!("{name} = Constant <value = int64 {{{value}}}> ()\n")
}

/// Returns a node that makes a vector of `int64`.
pub(crate) fn vector(name: &str, values: &[i64]) -> String {
    let (len, values) = (values.len(), list(values));
    format!("{name} = Constant <value = int64[{len}] {{{values}}}> ()\n")
}

/// Returns a node that makes a scalar `float`.
pub(crate) fn float_scalar(name: &str, value: f32) -> String {
    format!("{name} = Constant <value = float {{{value:?}}}> ()\n")
}

/// Returns a node that makes a vector of one `float`.
pub(crate) fn float_vector(name: &str, value: f32) -> String {
    format!("{name} = Constant <value = float[1] {{{value:?}}}> ()\n")
}

fn list(values: &[i64]) -> String {
    let values: Vec<_> = values.iter().map(i64::to_string).collect();
    values.join(", ")
}

/// Returns a tensor type in ONNX text.
pub(crate) fn type_text(ty: &TensorType) -> Option<String> {
    let elem = ty.elem?.name();
    Some(match &ty.shape {
        None => format!("{elem}[]"),
        Some(shape) if shape.is_empty() => elem.to_string(),
        Some(shape) => {
            let dims: Vec<_> = shape.iter().map(dim_text).collect();
            format!("{elem}[{}]", dims.join(", "))
        }
    })
}

fn dim_text(dim: &Dim) -> String {
    match dim {
        Dim::Known(size) => size.to_string(),
        Dim::Unknown => "?".to_string(),
        Dim::Expr(expr) => quoted(&expr.to_string()),
    }
}

fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('\\', "\\\\").replace('"', "\\\""))
}

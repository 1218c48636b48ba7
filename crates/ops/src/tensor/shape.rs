//! `Shape`: the sizes of the axes, as a vector.
//!
//! Since 1; 13 adds bfloat16; 15 adds `start` and `end`, a range of axes; 19 adds 8-bit floats; 21
//! adds 4-bit integers; 23 adds the 4-bit float; 24 adds the power-of-two scale; 25 adds 2-bit
//! integers.

use sardonyx_model::Dim;
use sardonyx_tensor::DataType;

use super::{INT64, widened};
use crate::attributes::Attributes;
use crate::facts::*;
use crate::math::shape_values::{self, Ints};
use crate::sharding::movement;
use crate::tensor::slice::SLICE;
use crate::{Adapt, Infer, InferError, OpDef, Refusal};

pub static SHAPE: OpDef = OpDef::new("Shape")
    .about("Shape of a tensor as a 1-D int64 tensor. Since version 15 `start` and `end` select a range \
         of axes.")
    .since(1, &[input("data", "T"), output("shape", "T1"), types("T", ALL), types("T1", INT64)])
    .since(
        13,
        &[
            input("data", "T").non_differentiable(),
            output("shape", "T1").non_differentiable(),
            types("T", ALL_IR4),
        ],
    )
    .widens()
    .since(15, &[int("end"), int("start").or(0)])
    .same_up()
    .since(19, widened!("T", ALL_IR9))
    .widens()
    .since(21, widened!("T", ALL_IR10))
    .widens()
    .since(23, widened!("T", ALL_IR11))
    .widens()
    .since(24, widened!("T", ALL_IR12))
    .widens()
    .since(25, widened!("T", ALL_IR13))
    .widens()
    .split_by(movement::shape)
    .infer(infer)
    .adapter(15, 14, slice_shape);

fn infer(cx: &mut Infer<'_>) -> Result<(), InferError> {
    let Some(shape) = cx.shape(0) else {
        cx.set_tensor(0, Some(DataType::Int64), Some([Dim::Unknown].into_iter().collect()));
        return Ok(());
    };
    let bound = |axis: i64| {
        let rank = shape.len() as i64;
        let axis = if axis < 0 { axis.saturating_add(rank) } else { axis };
        axis.clamp(0, rank) as usize
    };
    let start = bound(cx.int("start").unwrap_or(0));
    let end = bound(cx.int("end").unwrap_or(i64::MAX)).max(start);
    let values = shape[start..end].to_vec();
    cx.set_tensor(0, Some(DataType::Int64), Some([values.len().into()].into_iter().collect()));
    shape_values::set(cx, Ints::vector(DataType::Int64, values));
    Ok(())
}

/// Slices the range of axes out of the whole shape: in both operators negative numbers count from
/// the end, and numbers out of range are limited.
fn slice_shape(cx: &mut Adapt<'_>) -> Result<(), Refusal> {
    let (start, end) = (cx.int("start").unwrap_or(0), cx.int("end"));
    cx.remove("start");
    cx.remove("end");
    if start != 0 || end.is_some() {
        let bounds = [start, end.unwrap_or(i64::MAX), 0].map(|bound| Some(cx.add_ints(&[bound])));
        cx.after(0, SLICE.name, &bounds, &[]);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::SHAPE;
    use crate::AttrValue::{self, Int};
    use crate::math::testing::{infer, ty};

    #[test]
    fn sizes_become_values() {
        let rows: [(&[(&str, AttrValue<'static>)], &str, &str, &str); 11] = [
            (&[], "float[2, N, 4]", "int64[3]", "[2, N, 4]"),
            // TENSOR-06
            (&[], "float", "int64[0]", "[]"),
            (&[], "float[?, 3]", "int64[2]", "[?, 3]"),
            (&[], "float[...]", "int64[?]", "-"),
            (&[], "-", "int64[?]", "-"),
            (&[("start", Int(-1))], "float[2, N, 4]", "int64[1]", "[4]"),
            (&[("end", Int(-1))], "float[2, N, 4]", "int64[2]", "[2, N]"),
            (&[("start", Int(1)), ("end", Int(2))], "float[2, N, 4]", "int64[1]", "[N]"),
            (&[("start", Int(-9)), ("end", Int(9))], "float[2, N, 4]", "int64[3]", "[2, N, 4]"),
            (&[("start", Int(2)), ("end", Int(1))], "float[2, N, 4]", "int64[0]", "[]"),
            (&[("start", Int(i64::MIN)), ("end", Int(i64::MAX))], "float[2]", "int64[1]", "[2]"),
        ];
        for (attributes, input, expected, value) in rows {
            let (types, values) =
                infer(&SHAPE, 15, attributes, &[ty(input)], &[], 1).expect("no contradiction");
            assert_eq!(types[0].as_ref().expect("a type").to_string(), expected, "{input}");
            let found = values[0]
                .as_ref()
                .map_or("-".to_string(), |known| format!("{:?}", known.ints().expect("integers")));
            assert_eq!(found, value, "{input}");
        }
    }
}

//! `Size`: the number of elements, as a scalar.
//!
//! Since 1; 13 adds bfloat16; 19 adds 8-bit floats; 21 adds 4-bit integers; 23 adds the 4-bit
//! float; 24 adds the power-of-two scale; 25 adds 2-bit integers.

use sardonyx_model::Shape;
use sardonyx_tensor::DataType;

use super::{INT64, product, widened};
use crate::facts::*;
use crate::math::shape_values::{self, Ints};
use crate::{Infer, InferError, OpDef};

pub(crate) static SIZE: OpDef = OpDef::new("Size")
    .about("Number of elements of a tensor, as an int64 scalar.")
    .since(1, &[input("data", "T"), output("size", "T1"), types("T", ALL), types("T1", INT64)])
    .since(
        13,
        &[
            input("data", "T").non_differentiable(),
            output("size", "T1").non_differentiable(),
            types("T", ALL_IR4),
        ],
    )
    .widens()
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
    .infer(infer);

fn infer(cx: &mut Infer<'_>) -> Result<(), InferError> {
    cx.set_tensor(0, Some(DataType::Int64), Some(Shape::new()));
    if let Some(shape) = cx.shape(0) {
        shape_values::set(cx, Ints::scalar(DataType::Int64, product(shape)));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::SIZE;
    use crate::known::Known;
    use crate::math::testing::{infer, ty};

    #[test]
    fn all_sizes_are_multiplied() {
        let rows = [
            ("float[2, N, 4]", "Some([8*N])"),
            ("float", "Some([1])"),
            ("float[?, 0]", "Some([0])"),
            ("float[?, 3]", "None"),
            ("float[...]", "None"),
        ];
        for (input, expected) in rows {
            let (types, values) =
                infer(&SIZE, 13, &[], &[ty(input)], &[], 1).expect("no contradiction");
            assert_eq!(types[0].as_ref().expect("a type").to_string(), "int64");
            assert_eq!(
                format!("{:?}", values[0].as_ref().and_then(Known::ints)),
                expected,
                "{input}"
            );
        }
    }
}

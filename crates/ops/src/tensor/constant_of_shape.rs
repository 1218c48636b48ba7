//! `ConstantOfShape`: a tensor of equal elements, whose shape is an input.
//!
//! Since 9; 20 adds bfloat16 and 8-bit floats; 21 adds 4-bit integers; 23 adds the 4-bit float; 24
//! adds the power-of-two scale; 25 adds 2-bit integers.

use sardonyx_model::{Dim, Shape};
use sardonyx_tensor::{DataType, Tensor};

use super::{INT64, unknown_dims, vector_len, widened};
use crate::AttrValue;
use crate::facts::*;
use crate::known::Known;
use crate::math::shape_values::{self, Ints};
use crate::{Infer, InferError, OpDef};

pub static CONSTANT_OF_SHAPE: OpDef = OpDef::new("ConstantOfShape")
    .about(
        "Produces a tensor of a given shape in which every element is the same value. An empty \
         `input` gives a scalar.",
    )
    .since(
        9,
        &[
            input("input", "T1"),
            output("output", "T2"),
            tensor("value"),
            types("T1", INT64),
            types("T2", ALL.except(UNSUPPORTED)),
        ],
    )
    .since(20, widened!("T2", ALL_IR9.except(UNSUPPORTED)))
    .widens()
    .since(21, widened!("T2", ALL_IR10.except(UNSUPPORTED)))
    .widens()
    .since(23, widened!("T2", ALL_IR11.except(UNSUPPORTED)))
    .widens()
    .since(24, widened!("T2", ALL_IR12.except(UNSUPPORTED)))
    .widens()
    .since(25, widened!("T2", ALL_IR13.except(UNSUPPORTED)))
    .widens()
    .infer(infer)
    .shapes_by(&[0]);

/// Element types that no version accepts.
const UNSUPPORTED: &[DataType] = &[DataType::String, DataType::Complex64, DataType::Complex128];

fn infer(cx: &mut Infer<'_>) -> Result<(), InferError> {
    let value = match cx.attribute("value") {
        Some(AttrValue::Tensor(value)) if value.len() != 1 => {
            return cx.fail(format_args!("value must have one element, not {}", value.len()));
        }
        Some(AttrValue::Tensor(value)) => Some(value),
        _ => None,
    };
    cx.demand_rank(0, 1)?;
    let shape: Option<Shape> = match cx.known_ints(0) {
        Some(dims) => {
            if let Some(size) = dims.iter().filter_map(Dim::known).find(|size| *size < 0) {
                return cx.fail(format_args!("the shape has the negative size {size}"));
            }
            Some(dims.into())
        }
        None => vector_len(cx, 0).map(unknown_dims),
    };
    cx.set_tensor(
        0,
        Some(value.as_ref().map_or(DataType::Float, Tensor::data_type)),
        shape.clone(),
    );
    if let (Some(value), Some(shape)) = (value, shape) {
        fill_ints(cx, &value, &shape);
    }
    Ok(())
}

fn fill_ints(cx: &mut Infer<'_>, value: &Tensor, shape: &Shape) {
    let element = Known::Tensor(value.clone()).elements();
    if let (Some([element]), Some(dims)) = (element.as_deref(), shape_values::sizes(shape)) {
        let filled = Ints::build(value.data_type(), dims, |_| element.clone());
        shape_values::set_if(cx, filled);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::math::testing::infer_value;
    use crate::tensor::testing::check;

    fn value(elements: Vec<i64>) -> (&'static str, AttrValue<'static>) {
        (
            "value",
            AttrValue::Tensor(Tensor::from_vec([elements.len()], elements).expect("the sizes fit")),
        )
    }

    #[test]
    fn the_input_is_the_shape() {
        check(
            &CONSTANT_OF_SHAPE,
            9,
            &[
                (&[], "=[N, 3]", "float[N, 3]"),
                (&[], "=[]", "float"),
                (&[value(vec![7])], "=[0]", "int64[0]"),
                (&[value(vec![7])], "int64[2]", "int64[?, ?]"),
                (&[], "int64[?]", "float[...]"),
                (&[], "-", "float[...]"),
                (&[], "=[2, -1]", "ConstantOfShape: the shape has the negative size -1"),
                (&[], "=3", "ConstantOfShape: input 0 must have rank 1, not 0"),
                (
                    &[value(vec![7, 8])],
                    "=[2]",
                    "ConstantOfShape: value must have one element, not 2",
                ),
            ],
        );
    }

    #[test]
    fn small_integers_are_known() {
        assert_eq!(infer_value(&CONSTANT_OF_SHAPE, 9, &[value(vec![7])], "[3]"), "[7, 7, 7]");
        assert_eq!(infer_value(&CONSTANT_OF_SHAPE, 9, &[value(vec![7])], "[]"), "7");
        assert_eq!(
            infer_value(&CONSTANT_OF_SHAPE, 9, &[value(vec![7])], "[2, 2]"),
            "[[7, 7], [7, 7]]"
        );
        for shape in ["[N]", "[1000000000000]"] {
            assert_eq!(infer_value(&CONSTANT_OF_SHAPE, 9, &[value(vec![7])], shape), "-");
        }
    }
}

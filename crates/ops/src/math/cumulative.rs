//! `CumSum` and `CumProd`: running sums and products along an axis.

use sardonyx_model::Dim;
use sardonyx_tensor::DataType::{Float16, Int32, Int64};

use crate::def::OpDef;
use crate::facts::{HIGH_PRECISION, HIGH_PRECISION_IR4, input, int, output, types};
use crate::infer::{Infer, InferError};
use crate::known::keep_if_exact;
use crate::math::gradients;
use crate::math::shape_values::{self, Ints};
use crate::rules::same_as_first;
use crate::sharding::elements;
use crate::typeset::TypeSet;

pub(crate) static CUM_PROD: OpDef = OpDef::new("CumProd")
    .about(
        "Cumulative product of the elements along an axis. Output element `j` is the product of \
         elements 0 to `j`, or of 0 to `j - 1` if `exclusive` is 1. With `reverse` the product \
         starts at the end of the axis. The product of no elements is 1.",
    )
    .since(
        26,
        &[
            input("x", "T").differentiable(),
            input("axis", "T2").non_differentiable(),
            output("y", "T").differentiable(),
            int("exclusive").or(0),
            int("reverse").or(0),
            types("T", HIGH_PRECISION_IR4),
            types("T2", TypeSet::tensors(&[Int32, Int64])),
        ],
    )
    .infer(|cx| infer_cumulative(cx, Dim::mul, 1))
    .gradient(gradients::cum_prod)
    .split_by(elements::along_axis_input);

pub(crate) static CUM_SUM: OpDef = OpDef::new("CumSum")
    .about(
        "Cumulative sum of the elements along an axis. Output element `j` is the sum of elements 0 \
         to `j`, or of 0 to `j - 1` if `exclusive` is 1. With `reverse` the sum starts at the end \
         of the axis. The sum of no elements is 0.",
    )
    .since(
        11,
        &[
            input("x", "T").differentiable(),
            input("axis", "T2").non_differentiable(),
            output("y", "T").differentiable(),
            int("exclusive").or(0),
            int("reverse").or(0),
            types("T", HIGH_PRECISION.except(&[Float16])),
            types("T2", TypeSet::tensors(&[Int32, Int64])),
        ],
    )
    .since(14, &[types("T", HIGH_PRECISION_IR4)])
    .widens()
    .infer(|cx| infer_cumulative(cx, Dim::add, 0))
    .gradient(gradients::cum_sum)
    .split_by(elements::along_axis_input);

type Combine = fn(&Dim, &Dim) -> Dim;

fn infer_cumulative(cx: &mut Infer<'_>, f: Combine, initial: i64) -> Result<(), InferError> {
    let axis = match cx.constant_ints(1).as_deref() {
        Some([axis]) => Some(*axis),
        Some(axes) => {
            return cx.fail(format_args!("the axis must have one element, not {}", axes.len()));
        }
        None => None,
    };
    if let (Some(axis), Some(rank)) = (axis, cx.rank(0)) {
        cx.axis(axis, rank)?;
    }
    same_as_first(cx)?;
    if let Some(axis) = axis {
        let values = fold_ints(cx, axis, f, initial);
        shape_values::set_if(cx, values);
    }
    Ok(())
}

fn fold_ints(cx: &Infer<'_>, axis: i64, f: Combine, initial: i64) -> Option<Ints> {
    let mut ints = shape_values::of_input(cx, 0)?;
    let axis = cx.axis(axis, ints.dims.len()).ok()?;
    let (exclusive, reverse) = (cx.int("exclusive") == Some(1), cx.int("reverse") == Some(1));
    let (size, inner) = (ints.dims[axis], ints.dims[axis + 1..].iter().product::<usize>());
    for line in 0..ints.values.len() {
        // Each line along the axis begins at its first element.
        if inner == 0 || (line / inner) % size != 0 {
            continue;
        }
        let mut sum = Dim::Known(initial);
        for step in 0..size {
            let step = if reverse { size - 1 - step } else { step };
            let value = &mut ints.values[line + step * inner];
            let with = keep_if_exact(ints.elem, f(&sum, value));
            let without = std::mem::replace(&mut sum, with);
            *value = if exclusive { without } else { sum.clone() };
        }
    }
    Some(ints)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attributes::AttrValue::Int;
    use crate::math::testing::{infer_type, infer_value};

    #[test]
    fn shape_values_are_accumulated() {
        // SHAPE-16, SHAPE-25
        assert_eq!(infer_type(&CUM_SUM, 14, &[], "float[2, N]; int64"), "float[2, N]");
        assert_eq!(infer_type(&CUM_PROD, 26, &[], "-; int64"), "-");
        let (exclusive, reverse) = (("exclusive", Int(1)), ("reverse", Int(1)));
        let rows = [
            (&CUM_SUM, vec![], "[N, 2, 3]; 0", "[N, N + 2, N + 5]"),
            (&CUM_SUM, vec![exclusive.clone()], "[N, 2, 3]; [-1]", "[0, N, N + 2]"),
            (&CUM_SUM, vec![reverse.clone()], "[N, 2, 3]; 0", "[N + 5, 5, 3]"),
            (&CUM_SUM, vec![], "[[1, 2], [3, 4]]; 0", "[[1, 2], [4, 6]]"),
            (&CUM_PROD, vec![reverse, exclusive], "[N, 2, 3]; 0", "[6, 3, 1]"),
            (&CUM_SUM, vec![], "[1]; 1", "CumSum: axis 1 is out of range for rank 1"),
            (&CUM_SUM, vec![], "[1]; [0, 0]", "CumSum: the axis must have one element, not 2"),
        ];
        for (def, attributes, inputs, expected) in rows {
            assert_eq!(infer_value(def, 26, &attributes, inputs), expected, "{inputs}");
        }
    }
}

//! `Reshape`: the same elements in another shape. In the target, one -1 stands for the size that
//! follows from the number of elements, and 0 copies the size of the input.
//!
//! Since 1; 5 makes the target an input and takes every type; 13 adds bfloat16; 14 adds
//! `allowzero`, with which 0 is a size; 19 adds 8-bit floats; 21 adds 4-bit integers; 23 adds the
//! 4-bit float; 24 adds the power-of-two scale; 25 adds 2-bit integers.

use sardonyx_model::{Dim, Shape};

use super::{product, unknown_dims, vector_len, widened};
use crate::attributes::Attributes;
use crate::downward::{ints_of, ints_to_attribute};
use crate::facts::*;
use crate::infer::Rule;
use crate::math::shape_values;
use crate::sharding::{Linear, movement};
use crate::tensor::gradients;
use crate::{Adapt, Assumption, Infer, InferError, OpDef, Refusal};

pub static RESHAPE: OpDef = OpDef::new("Reshape")
    .about("Changes the shape of a tensor without changing its elements. In `shape`, one -1 stands for \
         the size that the number of elements requires. 0 copies the size from the input, unless \
         `allowzero` is 1.")
    .since(
        1,
        &[
            input("data", "T"),
            output("reshaped", "T"),
            ints("consumed_inputs"),
            ints("shape"),
            types("T", FLOATS),
        ],
    )
    .since(
        5,
        &[
            input("shape", "tensor(int64)"),
            without_attribute("consumed_inputs"),
            without_attribute("shape"),
            types("T", ALL),
        ],
    )
    .since(
        13,
        &[
            input("data", "T").differentiable(),
            input("shape", "tensor(int64)").non_differentiable(),
            output("reshaped", "T").differentiable(),
            types("T", ALL_IR4),
        ],
    )
    .widens()
    .since(14, &[int("allowzero").or(0)])
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
    .infer(infer)
    .infer_as_reference(infer_as_reference)
    .adapter(4, 5, move_target_to_input)
    .adapter(5, 4, |cx| {
        if cx.input(1).is_none() {
            return Err(cx.refuse("the input shape is missing"));
        }
        ints_to_attribute(cx, 1, "shape")
    })
    .adapter(14, 13, demand_copied_zeros)
    .shapes_by(&[1])
    .without_reference_rule(&[1])
.gradient(gradients::reshape)
    .split_by(movement::reshape)
    .linear_in(Linear::First);

fn infer(cx: &mut Infer<'_>) -> Result<(), InferError> {
    infer_by(cx, Rule::Operator)
}

fn infer_as_reference(cx: &mut Infer<'_>) -> Result<(), InferError> {
    infer_by(cx, Rule::Reference)
}

fn infer_by(cx: &mut Infer<'_>, rule: Rule) -> Result<(), InferError> {
    let target = if cx.since() < 5 {
        cx.ints("shape").map(|target| target.into_iter().map(Dim::Known).collect())
    } else {
        cx.demand_rank(1, 1)?;
        cx.known_ints(1)
    };
    let shape = match target {
        Some(target) => Some(infer_target(cx, target, rule)?),
        None => vector_len(cx, 1).map(unknown_dims),
    };
    cx.set_tensor(0, cx.elem(0), shape.clone());
    shape_values::pass(cx, shape.as_ref());
    Ok(())
}

fn infer_target(cx: &Infer<'_>, target: Vec<Dim>, rule: Rule) -> Result<Shape, InferError> {
    let input = cx.shape(0);
    let copies_zero = cx.int("allowzero").unwrap_or(0) == 0;
    if !copies_zero && target.contains(&Dim::Known(0)) && target.contains(&Dim::Known(-1)) {
        return cx.fail("with allowzero, the shape must not have both 0 and -1");
    }
    let mut shape = Shape::from_vec(target);
    let mut copied = Vec::new();
    let mut left_over = None;
    for (axis, size) in shape.iter_mut().enumerate() {
        match size.known() {
            Some(0) if copies_zero => {
                *size = match input.map(|input| input.get(axis)) {
                    Some(Some(size)) => size.clone(),
                    Some(None) => {
                        return cx.fail(format_args!(
                            "0 in the shape copies axis {axis}, which the input does not have"
                        ));
                    }
                    None => Dim::Unknown,
                };
                copied.push(axis);
            }
            Some(-1) if left_over.is_some() => return cx.fail("the target has more than one -1"),
            Some(-1) => {
                left_over = Some(axis);
                *size = Dim::Unknown;
            }
            Some(size) if size < 0 => {
                return cx.fail(format_args!("the shape has the negative size {size}"));
            }
            _ => {}
        }
    }
    let Some(input) = input else { return Ok(shape) };
    // Copied sizes are on both sides of the division, so they may be unknown.
    let rest = |shape: &Shape| {
        product(
            shape
                .iter()
                .enumerate()
                .filter(|(axis, _)| !copied.contains(axis))
                .map(|(_, size)| size),
        )
    };
    match left_over {
        Some(axis) => {
            let elems = rest(input);
            shape[axis] = Dim::Known(1);
            // The reference implementation refuses -1 beside a size of 0, copied or not.
            if shape.contains(&Dim::Known(0)) && rule == Rule::Reference {
                return cx.fail("the target has -1 beside a size of 0");
            }
            let divisor = rest(&shape);
            let is_empty =
                copied.iter().any(|axis| input[*axis].known().is_none_or(|size| size == 0));
            shape[axis] = match elems.exact_div(&divisor) {
                Some(size) => size,
                None if elems.known().is_none() || divisor.known().is_none() => {
                    cx.quotient(&elems, &divisor)
                }
                // Any size fits zero elements.
                None if is_empty => Dim::Unknown,
                None => {
                    return cx
                        .fail(format_args!("{elems} elements cannot be divided by {divisor}"));
                }
            };
        }
        None => {
            let (before, after) = (product(input), product(&shape));
            if before.surely_differs(&after) {
                return cx.fail(format_args!(
                    "the input has {before} elements, but the shape has {after}"
                ));
            }
            cx.equate(&before, &after);
        }
    }
    Ok(shape)
}

fn move_target_to_input(cx: &mut Adapt<'_>) -> Result<(), Refusal> {
    cx.remove("consumed_inputs");
    let Some(target) = cx.ints("shape") else {
        return Err(cx.refuse("attribute 'shape' is missing"));
    };
    cx.remove("shape");
    let target = cx.add_ints(&target);
    cx.set_input(1, Some(target));
    Ok(())
}

/// Whether every size of the output is known and positive. Then the target has no 0 either.
fn has_positive_sizes(cx: &Adapt<'_>) -> bool {
    let shape = cx.output_type(0).and_then(|ty| ty.shape());
    shape.is_some_and(|dims| dims.iter().all(|dim| dim.known().is_some_and(|size| size > 0)))
}

/// Refuses a 0 in the target that means an empty axis: without `allowzero` it copies a size.
fn demand_copied_zeros(cx: &mut Adapt<'_>) -> Result<(), Refusal> {
    if cx.int("allowzero").unwrap_or(0) != 0 {
        match cx.constant(1).and_then(|target| ints_of(&target)) {
            Some(target) if target.contains(&0) => {
                return Err(cx.refuse("with allowzero = 1, the shape has a 0"));
            }
            None if !has_positive_sizes(cx) => {
                cx.demand(Assumption::SizesNotZero, "with allowzero = 1, the shape may have a 0")?;
            }
            _ => {}
        }
        cx.remove("allowzero");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::RESHAPE;
    use crate::AttrValue::Int;
    use crate::math::testing::raise_version;
    use crate::math::testing::{infer, ty, value};
    use crate::tensor::testing::{check, ints};
    use sardonyx_model::AttrValue;

    #[test]
    fn known_targets_set_the_shape() {
        check(
            &RESHAPE,
            13,
            &[
                (&[], "float[2, 3, 4]; =[6, 4]", "float[6, 4]"),
                (&[], "float[2, 3, 4]; =[0, -1]", "float[2, 12]"),
                (&[], "float[2, 3, 4]; =[-1, 0, 2]", "float[4, 3, 2]"),
                (&[], "float[1]; =[]", "float"),
                (&[], "float[0, 3]; =[3, -1]", "float[3, 0]"),
                (&[], "float[0, 3]; =[0, 5]", "float[0, 5]"),
                (&[], "float[2, 3]; =[4, -1]", "Reshape: 6 elements cannot be divided by 4"),
                (
                    &[],
                    "float[2, 3]; =[4, 2]",
                    "Reshape: the input has 6 elements, but the shape has 8",
                ),
                (&[], "float[2, 3]; =[-1, -1]", "Reshape: the target has more than one -1"),
                (&[], "float[2, 3]; =[-2]", "Reshape: the shape has the negative size -2"),
                (
                    &[],
                    "float[2]; =[2, 0]",
                    "Reshape: 0 in the shape copies axis 1, which the input does not have",
                ),
                (&[], "float[2]; =2", "Reshape: input 1 must have rank 1, not 0"),
            ],
        );
        check(
            &RESHAPE,
            14,
            &[
                (&[("allowzero", Int(1))], "float[0, 3]; =[3, 0]", "float[3, 0]"),
                (
                    &[("allowzero", Int(1))],
                    "float[2, 3]; =[2, 0]",
                    "Reshape: the input has 6 elements, but the shape has 0",
                ),
                (
                    &[("allowzero", Int(1))],
                    "float[0, 3]; =[0, -1]",
                    "Reshape: with allowzero, the shape must not have both 0 and -1",
                ),
            ],
        );
        check(&RESHAPE, 1, &[(&[("shape", ints(&[-1, 2]))], "float[N, 2]", "float[N, 2]")]);
    }

    #[test]
    fn symbolic_targets_stay_symbolic() {
        check(
            &RESHAPE,
            21,
            &[
                (&[], "float[N, 3, 4]; =[N, -1]", "float[N, 12]"),
                (&[], "float[N, 3, 4]; =[0, -1]", "float[N, 12]"),
                // Copied sizes may be unknown.
                (&[], "float[?, 3, 4]; =[0, -1]", "float[?, 12]"),
                (&[], "float[N, S, 64]; =[N, S, 8, 8]", "float[N, S, 8, 8]"),
                (&[], "float[N, S, 64]; =[N, S, 8, -1]", "float[N, S, 8, 8]"),
                (&[], "float[N, 6]; =[-1, 4]", "float[floor((6*N)/4), 4]"),
                (&[], "float[N, ?]; =[N, -1]", "float[N, ?]"),
                (&[], "float[...]; =[2, 0, -1]", "float[2, ?, ?]"),
                (&[], "float[2, 3]; int64[3]", "float[?, ?, ?]"),
                (&[], "float[2, 3]; int64[?]", "float[...]"),
                (&[], "float[2, 3]; =[2, ?]", "float[2, ?]"),
                (&[], "float[N, 3]; =[2, N, 3]", "float[2, N, 3]"),
            ],
        );
    }

    #[test]
    fn known_integers_pass() {
        let rows = [
            ("N", "[1]", "[N]", false),
            ("[N]", "[]", "[N]", true),
            ("[N, 2]", "[-1]", "[N, 2]", false),
        ];
        for (data, target, expected, scalar) in rows {
            let known = [value(data), value(target)];
            let (_, values) = infer(&RESHAPE, 13, &[], &[ty("int64[...]"), None], &known, 1)
                .expect("no contradiction");
            let found = values[0].as_ref().expect("a value");
            assert_eq!(
                (format!("{:?}", found.ints().expect("integers")), found.is_scalar()),
                (expected.to_string(), scalar)
            );
        }
    }

    #[test]
    fn the_target_becomes_an_input() {
        let given =
            [("shape", AttrValue::from(&[0, -1])), ("consumed_inputs", AttrValue::from(&[0]))];
        assert_eq!(raise_version(&RESHAPE, 4, &given, "float[2, 2]"), "y = Reshape(a, [0, -1])");
        assert_eq!(
            raise_version(&RESHAPE, 4, &[], "float[2, 2]"),
            "Reshape: attribute 'shape' is missing"
        );
    }
}

//! `Transpose`: permutes the axes, or reverses them without a permutation.
//!
//! Since 1; 13 adds bfloat16; 21 adds 8-bit floats and 4-bit integers; 23 adds the 4-bit float; 24
//! adds the power-of-two scale; 25 adds 2-bit integers.

use sardonyx_model::Shape;

use super::{unknown_dims, widened};
use crate::facts::*;
use crate::infer::Rule;
use crate::known::Dims;
use crate::math::shape_values::{self, Ints};
use crate::sharding::{Linear, movement};
use crate::tensor::gradients;
use crate::{Infer, InferError, OpDef};

pub static TRANSPOSE: OpDef = OpDef::new("Transpose")
    .about("Permutes the axes of a tensor. Without `perm` their order is reversed.")
    .since(1, &[input("data", "T"), output("transposed", "T"), ints("perm"), types("T", ALL)])
    .since(
        13,
        &[
            input("data", "T").differentiable(),
            output("transposed", "T").differentiable(),
            types("T", ALL_IR4),
        ],
    )
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
    .gradient(gradients::transpose)
    .split_by(movement::transpose)
    .linear_in(Linear::First);

fn infer(cx: &mut Infer<'_>) -> Result<(), InferError> {
    infer_by(cx, Rule::Operator)
}

fn infer_as_reference(cx: &mut Infer<'_>) -> Result<(), InferError> {
    infer_by(cx, Rule::Reference)
}

fn infer_by(cx: &mut Infer<'_>, rule: Rule) -> Result<(), InferError> {
    let shape = match (cx.shape(0), cx.ints("perm")) {
        (Some(shape), Some(perm)) => Some(permute_shape(cx, shape, &perm, rule)?),
        (Some(shape), None) => Some(shape.iter().rev().cloned().collect()),
        // The permutation determines the rank.
        (None, Some(perm)) => Some(permute_shape(cx, &unknown_dims(perm.len()), &perm, rule)?),
        (None, None) => None,
    };
    cx.set_tensor(0, cx.elem(0), shape);
    if let Some(ints) = shape_values::of_input(cx, 0) {
        let transposed = permute_ints(cx, &ints);
        shape_values::set_if(cx, transposed);
    }
    Ok(())
}

/// Permutes a value. The permutation was checked against the type, and a value has the same rank.
fn permute_ints(cx: &Infer<'_>, ints: &Ints) -> Option<Ints> {
    let rank = ints.dims.len();
    let perm: Dims = match cx.ints("perm") {
        Some(perm) => perm
            .into_iter()
            .map(|axis| usize::try_from(axis).ok().filter(|axis| *axis < rank))
            .collect::<Option<_>>()?,
        None => (0..rank).rev().collect(),
    };
    if perm.len() != rank {
        return None;
    }
    let dims = perm.iter().map(|axis| ints.dims[*axis]).collect();
    ints.pick(dims, |index| {
        let mut from = Dims::from_elem(0, rank);
        for (position, axis) in index.iter().zip(&perm) {
            from[*axis] = *position;
        }
        Some(from)
    })
}

fn permute_shape(
    cx: &Infer<'_>,
    shape: &Shape,
    perm: &[i64],
    rule: Rule,
) -> Result<Shape, InferError> {
    // The reference implementation accepts a permutation of fewer axes, and treats an empty one as
    // absent.
    if perm.len() != shape.len() && rule == Rule::Operator {
        return cx.fail(format_args!(
            "perm has {} elements, but the input has rank {}",
            perm.len(),
            shape.len()
        ));
    }
    let mut seen = vec![false; shape.len()];
    let mut result = Shape::new();
    for axis in perm {
        let index = usize::try_from(*axis).ok().filter(|index| *index < shape.len());
        let Some(index) = index else {
            return cx.fail(format_args!(
                "perm names axis {axis}, but the input has rank {}",
                shape.len()
            ));
        };
        if std::mem::replace(&mut seen[index], true) {
            return cx.fail(format_args!("perm names axis {axis} twice"));
        }
        result.push(shape[index].clone());
    }
    Ok(result)
}

#[cfg(test)]
mod tests {
    use super::TRANSPOSE;
    use crate::math::testing::infer_value;
    use crate::tensor::testing::{check, ints};

    #[test]
    fn sizes_are_permuted() {
        check(
            &TRANSPOSE,
            13,
            &[
                (&[("perm", ints(&[1, 0, 2]))], "float[N, 2, ?]", "float[2, N, ?]"),
                (&[], "float[N, 2, 3]", "float[3, 2, N]"),
                (&[], "float", "float"),
                (&[("perm", ints(&[1, 0]))], "float[...]", "float[?, ?]"),
                (&[], "float[...]", "float[...]"),
                (
                    &[("perm", ints(&[1, 0]))],
                    "float[1, 2, 3]",
                    "Transpose: perm has 2 elements, but the input has rank 3",
                ),
                (&[("perm", ints(&[1, 1]))], "float[1, 2]", "Transpose: perm names axis 1 twice"),
                (
                    &[("perm", ints(&[-1, 0]))],
                    "float[1, 2]",
                    "Transpose: perm names axis -1, but the input has rank 2",
                ),
            ],
        );
        assert_eq!(infer_value(&TRANSPOSE, 13, &[], "[N, 2]"), "[N, 2]");
        assert_eq!(
            infer_value(&TRANSPOSE, 13, &[], "[[N, 2, 3], [4, 5, 6]]"),
            "[[N, 4], [2, 5], [3, 6]]"
        );
    }
}

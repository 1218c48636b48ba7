//! `Det`, the determinant, and `Einsum`.

use sardonyx_model::Dim;

use crate::def::OpDef;
use crate::facts::{
    FLOATS, FLOATS_IR4, NUMERIC, NUMERIC_IR4, input, inputs, output, string, types,
};
use crate::infer::{Infer, InferError};
use crate::math::{einsum, linear_gradients};
use crate::rules::demand_rank_from;
use crate::sharding::contraction;

pub(crate) static DET: OpDef = OpDef::new("Det")
    .about("Determinant of square matrices in the last two axes. The determinant of an empty matrix is \
         1.")
    .since(
        11,
        &[input("X", "T").differentiable(), output("Y", "T").differentiable(), types("T", FLOATS)],
    )
    .since(22, &[types("T", FLOATS_IR4)])
    .widens()
    .infer(determinant)
    .unknown_cost()
    .gradient(linear_gradients::det);

pub static EINSUM: OpDef = OpDef::new("Einsum")
    .about("Einstein summation: products and sums over the labeled axes of an equation such as \
         `ij,jk->ik` (matrix product). Axes whose label is not in the output are summed. `...` \
         stands for the axes that are not labeled, which are broadcast. Without `->` the output has \
         the labels that occur exactly once, in alphabetical order. A label that is repeated within \
         one operand takes the diagonal.")
    .since(
        12,
        &[
            inputs("Inputs", "T").differentiable(),
            output("Output", "T").differentiable(),
            string("equation").required(),
            types("T", NUMERIC),
        ],
    )
    .since(28, &[types("T", NUMERIC_IR4)])
    .widens()
    .infer(einsum::infer)
    .cost(|node| einsum::multiply_adds(node.cx))
    .gradient(linear_gradients::einsum)
    .split_by(contraction::einsum);

fn determinant(cx: &mut Infer<'_>) -> Result<(), InferError> {
    demand_rank_from(cx, 0, 2)?;
    let stack = match cx.shape(0).map(|shape| &shape[..]) {
        Some([stack @ .., rows, columns]) => {
            cx.same_dim(rows, columns, "rows and columns")?;
            Some(stack.iter().map(Dim::clone).collect())
        }
        _ => None,
    };
    cx.set_tensor(0, cx.elem(0), stack);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::math::testing::infer_type;

    #[test]
    fn matrices_are_square() {
        // SHAPE-16, SHAPE-20
        let rows = [
            ("float[4, N, 7, 7]", "float[4, N]"),
            ("float[N, M]", "float"),
            ("-", "?[...]"),
            ("float[2, 3]", "Det: rows and columns differ (2 and 3)"),
            ("float[2]", "Det: input 0 must have rank 2 or more, not 1"),
        ];
        for (input, expected) in rows {
            assert_eq!(infer_type(&DET, 11, &[], input), expected);
        }
    }
}

//! `MatMul`: the matrix product, also of stacks of matrices.
//!
//! The axes before the last two broadcast. A vector counts as one row on the left and as one column
//! on the right, and that axis is not in the result.
//!
//! Since 1; 9 adds integers; 13 adds bfloat16.

use sardonyx_model::{Dim, Shape};

use crate::def::OpDef;
use crate::facts::{FLOATS, HIGH_PRECISION, HIGH_PRECISION_IR4, input, output, types};
use crate::infer::{Infer, InferError};
use crate::math::gradients;
use crate::rules;
use crate::sharding::contraction;

pub static MATMUL: OpDef = OpDef::new("MatMul")
    .about(
        "Matrix product, as `numpy.matmul`. The last two axes hold matrices; the axes before them \
         are broadcast. A 1-D left operand counts as a row and a 1-D right operand as a column; \
         that axis is not in the output.",
    )
    .since(1, &[input("A", "T"), input("B", "T"), output("Y", "T"), types("T", FLOATS)])
    .since(9, &[types("T", HIGH_PRECISION)])
    .widens()
    .since(
        13,
        &[
            input("A", "T").differentiable(),
            input("B", "T").differentiable(),
            output("Y", "T").differentiable(),
            types("T", HIGH_PRECISION_IR4),
        ],
    )
    .widens()
    .infer(infer)
    .cost(|node| node.matrix_product(0, 1))
    .gradient(gradients::matmul)
    .split_by(contraction::matmul);

fn infer(cx: &mut Infer<'_>) -> Result<(), InferError> {
    let shape = match (cx.shape(0), cx.shape(1)) {
        (Some(a), Some(b)) => Some(product_shape(cx, a, b)?),
        _ => None,
    };
    cx.set_tensor(0, cx.elem(0).or(cx.elem(1)), shape);
    Ok(())
}

/// Infers the shape of the matrix product of inputs of these shapes.
pub(crate) fn product_shape(cx: &Infer<'_>, a: &Shape, b: &Shape) -> Result<Shape, InferError> {
    let [a_rest @ .., a_inner] = &a[..] else {
        return cx.fail("input 0 must not be a scalar");
    };
    let (b_rest, b_inner, column) = match &b[..] {
        [] => return cx.fail("input 1 must not be a scalar"),
        [inner] => (&[][..], inner, None),
        [rest @ .., inner, column] => (rest, inner, Some(column)),
    };
    cx.same_dim(a_inner, b_inner, "the inner sizes")?;
    let (a_batch, row) = match a_rest {
        [] => (&[][..], None),
        [batch @ .., row] => (batch, Some(row)),
    };
    let (a_batch, b_batch): (Shape, Shape) =
        (a_batch.iter().cloned().collect(), b_rest.iter().cloned().collect());
    let mut shape = rules::broadcast_shapes(cx, &[&a_batch, &b_batch])?;
    shape.extend([row, column].into_iter().flatten().map(Dim::clone));
    Ok(shape)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::math::testing::infer_type;

    #[test]
    fn shapes_of_products() {
        // SHAPE-13+-, SHAPE-16, SHAPE-19
        let rows = [
            ("float[K, M]; float[M, N]", "float[K, N]"),
            ("float[2, 3]; float[4, 5]", "MatMul: the inner sizes differ (3 and 4)"),
            ("float[2, ?]; float[4, 5]", "float[2, 5]"),
            ("float[3]; float[3]", "float"),
            ("float[3]; float[3, 5]", "float[5]"),
            ("float[2, 3]; float[3]", "float[2]"),
            ("float[B, 2, 3]; float[3]", "float[B, 2]"),
            ("float[3]; float[B, 3, 5]", "float[B, 5]"),
            ("float[7, 1, 2, 3]; float[6, 3, 5]", "float[7, 6, 2, 5]"),
            ("float[B, 1, T, H]; float[1, 8, H, T]", "float[B, 8, T, T]"),
            ("float[2, 2, 3]; float[4, 3, 5]", "MatMul: sizes 2 and 4 of axis 0 do not broadcast"),
            ("float; float[3]", "MatMul: input 0 must not be a scalar"),
            ("float[3]; float", "MatMul: input 1 must not be a scalar"),
            ("float[...]; float[3, 5]", "float[...]"),
            ("-; double[3, 5]", "double[...]"),
            ("-; -", "?[...]"),
        ];
        for (inputs, expected) in rows {
            assert_eq!(infer_type(&MATMUL, 13, &[], inputs), expected, "{inputs}");
        }
    }
}

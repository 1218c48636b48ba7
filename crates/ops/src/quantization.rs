//! `ConvInteger`, `MatMulInteger`, `QLinearConv` and `QLinearMatMul`: products and convolutions of
//! quantized values.

pub(crate) mod linear;

use sardonyx_model::Shape;
use sardonyx_tensor::DataType::{
    Bfloat16, Float, Float4e2m1, Float6e2m3, Float6e3m2, Float8e4m3fn, Float8e4m3fnuz, Float8e5m2,
    Float8e5m2fnuz, Float8e8m0, Float16, Int2, Int4, Int8, Int16, Int32, Uint2, Uint4, Uint8,
    Uint16,
};

use crate::def::OpDef;
use crate::denotation::{FILTERS, IMAGES};
use crate::facts::{input, int, ints, output, string, types};
use crate::infer::{Infer, InferError};
use crate::math::matmul::product_shape;
use crate::nn::conv::Convolution;
use crate::sharding::{contraction, layers};
use crate::typeset::TypeSet;

/// Quantized types, by the IR version that introduced the last of them.
const BYTES: TypeSet = TypeSet::tensors(&[Int8, Uint8]);
const CODES_IR9: TypeSet =
    BYTES.and(TypeSet::tensors(&[Float8e4m3fn, Float8e4m3fnuz, Float8e5m2, Float8e5m2fnuz]));
const CODES_IR10: TypeSet = CODES_IR9.and(TypeSet::tensors(&[Int16, Uint16, Int4, Uint4]));
const CODES_IR11: TypeSet = CODES_IR10.and(TypeSet::tensors(&[Float4e2m1]));
const CODES_IR13: TypeSet = CODES_IR11.and(TypeSet::tensors(&[Int2, Uint2]));
const CODES_IR14: TypeSet = CODES_IR13.and(TypeSet::tensors(&[Float6e2m3, Float6e3m2]));
/// Type of sums of products of bytes.
const INT32: TypeSet = TypeSet::tensors(&[Int32]);
const SCALES: TypeSet = TypeSet::tensors(&[Float16, Float, Bfloat16]);
const SCALES_IR12: TypeSet = SCALES.and(TypeSet::tensors(&[Float8e8m0]));

pub(crate) static CONV_INTEGER: OpDef = OpDef::new("ConvInteger")
    .about(
        "Convolution of 8-bit integers with an int32 result. The zero points are subtracted from \
         input and weights first.",
    )
    .since(
        10,
        &[
            input("x", "T1"),
            input("w", "T2"),
            input("x_zero_point", "T1").optional(),
            input("w_zero_point", "T2").optional(),
            output("y", "T3"),
            string("auto_pad").or_word("NOTSET"),
            ints("dilations"),
            int("group").or(1),
            ints("kernel_shape"),
            ints("pads"),
            ints("strides"),
            types("T1", BYTES),
            types("T2", BYTES),
            types("T3", INT32),
        ],
    )
    .infer(infer_conv_integer)
    .infer_as_reference(infer_conv_integer_as_reference)
    .keeps_format(&[(0, IMAGES), (1, FILTERS)])
    .cost(|node| node.convolution(1))
    .split_by(layers::conv_integer);

pub static MATMUL_INTEGER: OpDef = OpDef::new("MatMulInteger")
    .about("Matrix product of 8-bit integers with an int32 result. The zero points are subtracted from \
         the operands first.")
    .since(
        10,
        &[
            input("A", "T1").non_differentiable(),
            input("B", "T2").non_differentiable(),
            input("a_zero_point", "T1").optional().non_differentiable(),
            input("b_zero_point", "T2").optional().non_differentiable(),
            output("Y", "T3").non_differentiable(),
            types("T1", BYTES),
            types("T2", BYTES),
            types("T3", INT32),
        ],
    )
    .infer(infer_matmul_integer)
    .cost(|node| node.matrix_product(0, 1))
    .split_by(contraction::matmul_integer);

pub(crate) static QLINEAR_CONV: OpDef = OpDef::new("QLinearConv")
    .about("Convolution of quantized tensors with a quantized result. Input, weights and output have a \
         scale and a zero point each. The bias is int32 with the scale `x_scale * w_scale`. Rounds \
         half to even and saturates.").since(
    10,
    &[
        input("x", "T1"),
        input("x_scale", "tensor(float)"),
        input("x_zero_point", "T1"),
        input("w", "T2"),
        input("w_scale", "tensor(float)"),
        input("w_zero_point", "T2"),
        input("y_scale", "tensor(float)"),
        input("y_zero_point", "T3"),
        input("B", "T4").optional(),
        output("y", "T3"),
        string("auto_pad").or_word("NOTSET"),
        ints("dilations"),
        int("group").or(1),
        ints("kernel_shape"),
        ints("pads"),
        ints("strides"),
        types("T1", BYTES),
        types("T2", BYTES),
        types("T3", BYTES),
        types("T4", INT32),
    ],
)
.infer(infer_qlinear_conv)
    .infer_as_reference(infer_qlinear_conv_as_reference)
.keeps_format(&[(0, IMAGES), (3, FILTERS)])
    .cost(|node| node.convolution(3));

pub(crate) static QLINEAR_MATMUL: OpDef = OpDef::new("QLinearMatMul")
    .about(
        "Matrix product of quantized tensors with a quantized result. Both operands and the output \
         have a scale and a zero point each. Rounds half to even and saturates.",
    )
    .since(
        10,
        &[
            input("a", "T1").non_differentiable(),
            input("a_scale", "tensor(float)").non_differentiable(),
            input("a_zero_point", "T1").non_differentiable(),
            input("b", "T2").non_differentiable(),
            input("b_scale", "tensor(float)").non_differentiable(),
            input("b_zero_point", "T2").non_differentiable(),
            input("y_scale", "tensor(float)").non_differentiable(),
            input("y_zero_point", "T3").non_differentiable(),
            output("y", "T3").non_differentiable(),
            types("T1", BYTES),
            types("T2", BYTES),
            types("T3", BYTES),
        ],
    )
    .since_anew(
        21,
        &[
            input("a", "T1").non_differentiable(),
            input("a_scale", "TS").non_differentiable(),
            input("a_zero_point", "T1").non_differentiable(),
            input("b", "T2").non_differentiable(),
            input("b_scale", "TS").non_differentiable(),
            input("b_zero_point", "T2").non_differentiable(),
            input("y_scale", "TS").non_differentiable(),
            input("y_zero_point", "T3").non_differentiable(),
            output("y", "T3").non_differentiable(),
            types("TS", SCALES),
            types("T1", CODES_IR9),
            types("T2", CODES_IR9),
            types("T3", CODES_IR9),
        ],
    )
    .widens()
    .infer(infer_qlinear_matmul)
    .cost(|node| node.matrix_product(0, 3))
    .split_by(contraction::qlinear_matmul);

fn infer_conv_integer(cx: &mut Infer<'_>) -> Result<(), InferError> {
    conv_integer(cx, Convolution::output_shape)
}

fn infer_conv_integer_as_reference(cx: &mut Infer<'_>) -> Result<(), InferError> {
    conv_integer(cx, Convolution::shape_as_reference)
}

/// Computes the output shape of a convolution.
type ShapeOf = fn(&Convolution, &Infer<'_>) -> Result<Option<Shape>, InferError>;

fn conv_integer(cx: &mut Infer<'_>, shape: ShapeOf) -> Result<(), InferError> {
    check_zero_point(cx, 0, 2)?;
    check_zero_point(cx, 1, 3)?;
    let shape = shape(&Convolution { x: 0, w: 1, bias: None }, cx)?;
    cx.set_tensor(0, Some(Int32), shape);
    Ok(())
}

fn infer_qlinear_conv(cx: &mut Infer<'_>) -> Result<(), InferError> {
    qlinear_conv(cx, Convolution::output_shape)
}

fn infer_qlinear_conv_as_reference(cx: &mut Infer<'_>) -> Result<(), InferError> {
    qlinear_conv(cx, Convolution::shape_as_reference)
}

fn qlinear_conv(cx: &mut Infer<'_>, shape: ShapeOf) -> Result<(), InferError> {
    check_zero_point(cx, 0, 2)?;
    check_zero_point(cx, 3, 5)?;
    let shape = shape(&Convolution { x: 0, w: 3, bias: Some(8) }, cx)?;
    cx.set_tensor(0, cx.elem(7), shape);
    Ok(())
}

fn infer_matmul_integer(cx: &mut Infer<'_>) -> Result<(), InferError> {
    check_zero_point(cx, 0, 2)?;
    check_zero_point(cx, 1, 3)?;
    let shape = product(cx, 0, 1)?;
    cx.set_tensor(0, Some(Int32), shape);
    Ok(())
}

fn infer_qlinear_matmul(cx: &mut Infer<'_>) -> Result<(), InferError> {
    check_zero_point(cx, 0, 2)?;
    check_zero_point(cx, 3, 5)?;
    let shape = product(cx, 0, 3)?;
    cx.set_tensor(0, cx.elem(7), shape);
    Ok(())
}

fn product(cx: &Infer<'_>, a: usize, b: usize) -> Result<Option<Shape>, InferError> {
    let both = cx.shape(a).zip(cx.shape(b));
    both.map(|(a, b)| product_shape(cx, a, b)).transpose()
}

/// Checks that a zero point has the type of its input.
fn check_zero_point(cx: &Infer<'_>, input: usize, zero_point: usize) -> Result<(), InferError> {
    match (cx.elem(input), cx.elem(zero_point)) {
        (Some(elem), Some(found)) if elem != found => cx.fail(format_args!(
            "input {input} is {elem}, but its zero point, input {zero_point}, is {found}"
        )),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tensor::testing::{check, ints};

    #[test]
    fn products_multiply_matrices() {
        // SHAPE-13, SHAPE-16, SHAPE-19
        check(
            &MATMUL_INTEGER,
            10,
            &[
                (&[], "uint8[5, 1, N, 2]; int8[1, 3, 2, 3]", "int32[5, 3, N, 3]"),
                (&[], "-; -", "int32[...]"),
                (&[], "uint8[2, 3]; int8[4, 5]", "MatMulInteger: the inner sizes differ (3 and 4)"),
                (
                    &[],
                    "uint8[2, 3]; -; int8",
                    "MatMulInteger: input 0 is uint8, but its zero point, input 2, is int8",
                ),
            ],
        );
        for opset in [10, 21] {
            check(
                &QLINEAR_MATMUL,
                opset,
                &[
                    (
                        &[],
                        "uint8[4, ?]; float; uint8; int8[2, A]; float; int8; float; int8",
                        "int8[4, A]",
                    ),
                    (&[], "-; -; -; uint8[2]; -; -; -; uint8", "uint8[...]"),
                    (
                        &[],
                        "uint8[4, 2]; -; int8; -; -; -; -; -",
                        "QLinearMatMul: input 0 is uint8, but its zero point, input 2, is int8",
                    ),
                ],
            );
        }
    }

    #[test]
    fn convolutions_have_shapes_of_conv() {
        check(
            &CONV_INTEGER,
            10,
            &[
                (&[], "uint8[N, 4, 8]; int8[5, 4, 3]; uint8; int8", "int32[N, 5, 6]"),
                (&[], "uint8[3, 4, 8]; int8[5, 4, ?]", "int32[3, 5, ?]"),
            ],
        );
        let pads = || [("pads", ints(&[1, 1]))];
        check(
            &QLINEAR_CONV,
            10,
            &[
                (
                    &pads(),
                    "uint8[N, 4, ?]; -; uint8; int8[5, 4, 3]; -; int8; -; uint8; int32[5]",
                    "uint8[N, 5, ?]",
                ),
                (
                    &pads(),
                    "uint8[N, 4, 8]; -; uint8; int8[5, 4, 3]; -; int8; -; uint8; int32[6]",
                    "QLinearConv: output channels of W and B differ (5 and 6)",
                ),
            ],
        );
    }
}

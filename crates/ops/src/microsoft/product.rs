//! `FusedMatMul`, `FusedGemm` and `FusedConv`: products and convolutions with transposed or scaled
//! operands, and activations of the result.

use sardonyx_model::{Dim, Shape};
use sardonyx_tensor::DataType::{Bfloat16, Double, Float, Float16};

use super::DOMAIN;
use super::activation::{build_activation, find_activation};
use crate::def::OpDef;
use crate::facts::{
    FLOATS, HIGH_PRECISION, float, floats, input, int, ints, output, string, types,
};
use crate::function::{Expand, float_scalar};
use crate::infer::{Infer, InferError};
use crate::math::gemm::GEMM;
use crate::math::matmul::product_shape;
use crate::nn::conv::CONV;
use crate::typeset::TypeSet;

pub(crate) static FUSED_CONV: OpDef = OpDef::new("FusedConv")
    .domain(DOMAIN)
    .about("`Conv`, plus an optional tensor of the shape of the result, followed by an activation.")
    .since(
        1,
        &[
            input("X", "T"),
            input("W", "T"),
            input("B", "T").optional(),
            input("Z", "T").optional(),
            output("Y", "T"),
            string("activation"),
            floats("activation_params"),
            string("auto_pad").or_word("NOTSET"),
            ints("dilations"),
            int("group").or(1),
            ints("kernel_shape"),
            ints("pads"),
            ints("strides"),
            types("T", FLOATS),
        ],
    )
    .infer(|cx| infer_like(cx, &CONV))
    .body_or_reason(1, fused_conv)
    .cost(|node| node.convolution(1));

pub(crate) static FUSED_GEMM: OpDef = OpDef::new("FusedGemm")
    .domain(DOMAIN)
    .about("`Gemm` followed by an activation.")
    .since(
        1,
        &[
            input("A", "T"),
            input("B", "T"),
            input("C", "T").optional(),
            output("Y", "T"),
            string("activation"),
            float("activation_alpha"),
            float("activation_beta"),
            float("activation_gamma"),
            float("alpha").or_float(1.0),
            float("beta").or_float(1.0),
            int("transA").or(0),
            int("transB").or(0),
            types("T", HIGH_PRECISION),
        ],
    )
    .infer(|cx| infer_like(cx, &GEMM))
    .body_or_reason(1, fused_gemm)
    .cost(|node| {
        let is_turned = node.cx.int("transA")? != 0;
        let summed = node.shape(0)?.get(usize::from(!is_turned))?;
        Some(node.output_elements()?.mul(summed))
    });

pub(crate) static FUSED_MATMUL: OpDef = OpDef::new("FusedMatMul")
    .domain(DOMAIN)
    .about(
        "`MatMul` with optional transposes of both operands and a scale factor: `Y = alpha * A' * \
         B'`. `transBatchA` and `transBatchB` move the rows of an operand before its batch axes.",
    )
    .since(
        1,
        &[
            input("A", "T"),
            input("B", "T"),
            output("Y", "T"),
            float("alpha").or_float(1.0),
            int("transA").or(0),
            int("transB").or(0),
            int("transBatchA").or(0),
            int("transBatchB").or(0),
            types("T", TypeSet::tensors(&[Float16, Float, Double, Bfloat16])),
        ],
    )
    .infer(infer_fused_matmul)
    .body_or_reason(1, fused_matmul)
    .cost(|node| {
        let a = node.shape(0)?;
        let [order, _] = ["A", "B"].map(|operand| {
            order(
                node.cx.int(&format!("trans{operand}")),
                node.cx.int(&format!("transBatch{operand}")),
                a.len(),
            )
        });
        Some(node.output_elements()?.mul(a.get(*order.last()?)?))
    });

/// Infers like another operator with the same inputs and attributes.
pub(super) fn infer_like(cx: &mut Infer<'_>, operator: &OpDef) -> Result<(), InferError> {
    let newest = operator.newest();
    let (Some(schema), Some(rule)) = (operator.schema_at(newest), operator.inference_at(newest))
    else {
        return Ok(());
    };
    let outcome = cx.apply_rule_of(&schema, rule)?;
    cx.adopt(outcome);
    Ok(())
}

fn fused_conv(cx: &Expand<'_>) -> Result<String, String> {
    let params = cx.floats("activation_params").unwrap_or_default();
    let parameter = |name: &str| match name {
        "alpha" | "min" => params.first().copied(),
        "beta" | "max" => params.get(1).copied(),
        _ => None,
    };
    let bias = if cx.has_input(2) { ", B" } else { "" };
    let activated = find_activation(cx);
    let (sum, result) = match (cx.has_input(3), &activated) {
        (true, Some(_)) => ("sum = Add (convolved, Z)\n", "sum"),
        (true, None) => ("Y = Add (convolved, Z)\n", ""),
        (false, Some(_)) => ("", "convolved"),
        (false, None) => ("Y = Identity (convolved)\n", ""),
    };
    let last = match activated {
        Some(name) => build_activation(&name, &parameter, result, "Y")?,
        None => String::new(),
    };
    Ok(format!(
        "convolved = Conv <
            auto_pad: string = @auto_pad,
            dilations: ints = @dilations,
            group: int = @group,
            kernel_shape: ints = @kernel_shape,
            pads: ints = @pads,
            strides: ints = @strides
        > (X, W{bias})
        {sum}{last}"
    ))
}

fn fused_gemm(cx: &Expand<'_>) -> Result<String, String> {
    let parameter = |name: &str| cx.float(&format!("activation_{name}"));
    let addend = if cx.has_input(2) { ", C" } else { "" };
    let (product, last) = match find_activation(cx) {
        Some(name) => ("product", build_activation(&name, &parameter, "product", "Y")?),
        None => ("Y", String::new()),
    };
    Ok(format!(
        "{product} = Gemm <
            alpha: float = @alpha,
            beta: float = @beta,
            transA: int = @transA,
            transB: int = @transB
        > (A, B{addend})
        {last}"
    ))
}

/// Returns the permutation of the axes of an operand. A vector is not transposed.
fn order(transposed: Option<i64>, batch_second: Option<i64>, rank: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..rank).collect();
    if rank < 2 {
        return order;
    }
    if batch_second.unwrap_or(0) != 0 {
        order[..rank - 1].rotate_left(1);
    }
    if transposed.unwrap_or(0) != 0 {
        order.swap(rank - 2, rank - 1);
    }
    order
}

fn infer_fused_matmul(cx: &mut Infer<'_>) -> Result<(), InferError> {
    let operand = |index: usize, name: &str| -> Option<Shape> {
        let shape = cx.shape(index)?;
        let [transposed, batch_second] =
            ["trans", "transBatch"].map(|prefix| cx.int(&format!("{prefix}{name}")));
        let axes = order(transposed, batch_second, shape.len());
        Some(axes.into_iter().map(|axis| Dim::clone(&shape[axis])).collect())
    };
    let shape = match (operand(0, "A"), operand(1, "B")) {
        (Some(a), Some(b)) => Some(product_shape(cx, &a, &b)?),
        _ => None,
    };
    cx.set_tensor(0, cx.elem(0).or(cx.elem(1)), shape);
    Ok(())
}

fn fused_matmul(cx: &Expand<'_>) -> Result<String, String> {
    let [Some(a), Some(b)] = [0, 1].map(|input| cx.rank(input)) else {
        return Err("the ranks of its operands are unknown".to_string());
    };
    let alpha = cx.float("alpha").unwrap_or(1.0);
    let is_given = |name: &str| cx.int(name).unwrap_or(0) != 0;
    // `Gemm` has the factor and both flags itself.
    if (a, b) == (2, 2) && !is_given("transBatchA") && !is_given("transBatchB") {
        return Ok("Y = Gemm <
                alpha: float = @alpha, transA: int = @transA, transB: int = @transB
            > (A, B)"
            .to_string());
    }
    let mut text = String::new();
    let mut operand = |name: &str, rank: usize| {
        let [transposed, batch_second] =
            ["trans", "transBatch"].map(|prefix| cx.int(&format!("{prefix}{name}")));
        let axes = order(transposed, batch_second, rank);
        if axes.is_sorted() {
            return name.to_string();
        }
        text += &format!("{name}_transposed = Transpose <perm = {axes:?}> ({name})\n");
        format!("{name}_transposed")
    };
    let (a, b) = (operand("A", a), operand("B", b));
    Ok(if alpha == 1.0 {
        format!("{text}Y = MatMul ({a}, {b})")
    } else {
        format!(
            "{text}{}
            factor = CastLike (alpha_number, A)
            product = MatMul ({a}, {b})
            Y = Mul (product, factor)",
            float_scalar("alpha_number", alpha)
        )
    })
}

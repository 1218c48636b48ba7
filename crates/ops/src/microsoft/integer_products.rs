//! `MatMulIntegerToFloat`, `DynamicQuantizeMatMul` and `QGemm`: matrix products of integers, whose
//! exact sums are scaled afterwards.

use sardonyx_model::{Dim, Shape};
use sardonyx_tensor::DataType::{Float, Float16, Int8, Int32, Uint8};

use super::DOMAIN;
use super::linear::{BYTES, Lines};
use crate::def::OpDef;
use crate::facts::{float, input, int, output, types};
use crate::function::{Expand, FLOAT, float_scalar};
use crate::infer::{Infer, InferError};
use crate::math::matmul::product_shape;
use crate::rules::broadcast_over;
use crate::typeset::TypeSet;

pub(crate) static MATMUL_INTEGER_TO_FLOAT: OpDef = OpDef::new("MatMulIntegerToFloat")
    .domain(DOMAIN)
    .about(
        "`MatMulInteger`, scaled to floats, plus an optional bias. The right operand may have a scale \
         and a zero point for each column.",
    )
    .since(
        1,
        &[
            input("A", "T1"),
            input("B", "T2"),
            input("a_scale", "T3"),
            input("b_scale", "T3"),
            input("a_zero_point", "T1").optional(),
            input("b_zero_point", "T2").optional(),
            input("bias", "T3").optional(),
            output("Y", "T3"),
            types("T1", BYTES),
            types("T2", BYTES),
            types("T3", TypeSet::tensors(&[Float, Float16])),
        ],
    )
    .infer(|cx| {
        let elem = cx.elem(2).or(cx.elem(3)).or(cx.elem(6));
        let shape = product(cx)?;
        cx.set_tensor(0, elem, shape);
        Ok(())
    })
    .body_or_reason(1, to_float)
    .scalars(&[2, 4])
    .cost(|node| node.matrix_product(0, 1));

pub(crate) static DYNAMIC_QUANTIZE_MATMUL: OpDef = OpDef::new("DynamicQuantizeMatMul")
    .domain(DOMAIN)
    .about(
        "Product of a matrix of floats, quantized with a scale and a zero point of the whole tensor, \
         and a quantized matrix, plus an optional bias. The right operand may have a scale and a \
         zero point for each column.",
    )
    .since(
        1,
        &[
            input("A", "T1"),
            input("B", "T2"),
            input("b_scale", "T1"),
            input("b_zero_point", "T2").optional(),
            input("bias", "T1").optional(),
            output("Y", "T1"),
            types("T1", TypeSet::tensors(&[Float])),
            types("T2", BYTES),
        ],
    )
    .infer(|cx| {
        let elem = cx.elem(0).or(cx.elem(2));
        let shape = product(cx)?;
        cx.set_tensor(0, elem, shape);
        Ok(())
    })
    .body_from(1, dynamic)
    .cost(|node| node.matrix_product(0, 1));

pub(crate) static QGEMM: OpDef = OpDef::new("QGemm")
    .domain(DOMAIN)
    .about(
        "`Gemm` of quantized matrices with a float or a quantized result: `alpha * A' * B' + C`. `C` \
         is added to the sums of integers, so its scale is `alpha * a_scale * b_scale`.",
    )
    .since(
        1,
        &[
            input("A", "TA"),
            input("a_scale", "T"),
            input("a_zero_point", "TA"),
            input("B", "TB"),
            input("b_scale", "T"),
            input("b_zero_point", "TB"),
            input("C", "TC").optional(),
            input("y_scale", "T").optional(),
            input("y_zero_point", "TYZ").optional(),
            output("Y", "TY"),
            float("alpha").or_float(1.0),
            int("transA").or(0),
            int("transB").or(0),
            types("T", TypeSet::tensors(&[Float])),
            types("TA", BYTES),
            types("TB", BYTES),
            types("TC", TypeSet::tensors(&[Int32])),
            types("TY", TypeSet::tensors(&[Float, Int8, Uint8])),
            types("TYZ", BYTES),
        ],
    )
    .infer(infer_gemm)
    .body_or_reason(1, gemm)
    .scalars(&[1, 2, 7, 8])
    .cost(|node| {
        let is_turned = node.cx.int("transA")? != 0;
        let summed = node.shape(0)?.get(usize::from(!is_turned))?;
        Some(node.output_elements()?.mul(summed))
    });

fn product(cx: &Infer<'_>) -> Result<Option<Shape>, InferError> {
    let both = cx.shape(0).zip(cx.shape(1));
    both.map(|(a, b)| product_shape(cx, a, b)).transpose()
}

/// Product of integers with a result of floats.
pub(super) struct Sums<'a> {
    /// Left operand.
    pub(super) left: (&'a str, &'a str, Option<&'a str>),
    pub(super) right: (&'a str, &'a str, Option<&'a str>),
    pub(super) bias: Option<&'a str>,
    /// Value of the type of the result.
    pub(super) like: &'a str,
    /// Whether scales, bias and result are 32-bit floats.
    pub(super) is_float: bool,
}

impl Sums<'_> {
    /// Builds the nodes of the product. 16-bit floats are scaled in 32 bits, since sums may exceed
    /// their range.
    pub(super) fn text(&self, into: &str) -> String {
        let (a, a_scale, a_zero) = self.left;
        let (b, b_scale, b_zero) = self.right;
        let zeros = match (a_zero, b_zero) {
            (None, None) => String::new(),
            (Some(a), None) => format!(", {a}"),
            (a, Some(b)) => format!(", {}, {b}", a.unwrap_or("\"\"")),
        };
        let mut text = format!(
            "{into}_sums = MatMulInteger ({a}, {b}{zeros})
            {into}_floats = Cast <to = {FLOAT}> ({into}_sums)\n"
        );
        let mut wide = |name: &str, what: &str| {
            if self.is_float {
                return name.to_string();
            }
            text += &format!("{into}_{what} = Cast <to = {FLOAT}> ({name})\n");
            format!("{into}_{what}")
        };
        let (a_scale, b_scale) = (wide(a_scale, "left_scale"), wide(b_scale, "right_scale"));
        let bias = self.bias.map(|bias| wide(bias, "bias"));
        text += &format!("{into}_scale = Mul ({a_scale}, {b_scale})\n");
        let (scaled, added) = match (&bias, self.is_float) {
            (None, true) => (into.to_string(), None),
            (Some(_), true) => (format!("{into}_scaled"), Some(into.to_string())),
            (None, false) => (format!("{into}_wide"), None),
            (Some(_), false) => (format!("{into}_scaled"), Some(format!("{into}_wide"))),
        };
        text += &format!("{scaled} = Mul ({into}_floats, {into}_scale)\n");
        if let (Some(bias), Some(added)) = (bias, added) {
            text += &format!("{added} = Add ({scaled}, {bias})\n");
        }
        if !self.is_float {
            text += &format!("{into} = CastLike ({into}_wide, {})\n", self.like);
        }
        text
    }
}

fn to_float(cx: &Expand<'_>) -> Result<String, String> {
    if let Some(count) = cx.dim(2, 0)
        && count != 1
    {
        return Err(format!("a_scale has {count} elements, but A can have one scale alone"));
    }
    let zero = |index, name| cx.has_input(index).then_some(name);
    let sums = Sums {
        left: ("A", "a_scale", zero(4, "a_zero_point")),
        right: ("B", "b_scale", zero(5, "b_zero_point")),
        bias: zero(6, "bias"),
        like: "a_scale",
        is_float: cx.elem(2) == Some(FLOAT),
    };
    Ok(sums.text("Y"))
}

fn dynamic(cx: &Expand<'_>) -> Option<String> {
    let sums = Sums {
        left: ("A_codes", "A_scale", Some("A_zero_point")),
        right: ("B", "b_scale", cx.has_input(3).then_some("b_zero_point")),
        bias: cx.has_input(4).then_some("bias"),
        like: "A",
        is_float: true,
    };
    let text = sums.text("Y");
    Some(format!("A_codes, A_scale, A_zero_point = DynamicQuantizeLinear (A)\n{text}"))
}

fn infer_gemm(cx: &mut Infer<'_>) -> Result<(), InferError> {
    let side = |index: usize, name: &str| -> Result<[Dim; 2], InferError> {
        cx.demand_rank(index, 2)?;
        let mut sizes = match cx.shape(index) {
            Some(shape) => [shape[0].clone(), shape[1].clone()],
            None => [Dim::Unknown, Dim::Unknown],
        };
        if cx.int(name).unwrap_or(0) != 0 {
            sizes.reverse();
        }
        Ok(sizes)
    };
    let ([rows, a_inner], [b_inner, columns]) = (side(0, "transA")?, side(3, "transB")?);
    cx.same_dim(&a_inner, &b_inner, "the inner sizes")?;
    let mut shape = Shape::from_iter([rows, columns]);
    if let Some(addend) = cx.shape(6).filter(|_| cx.has_input(6)) {
        shape = broadcast_over(cx, &shape, addend, "C")?;
    }
    let elem = if cx.has_input(8) { cx.elem(8) } else { Some(Float) };
    cx.set_tensor(0, elem, Some(shape));
    Ok(())
}

fn gemm(cx: &Expand<'_>) -> Result<String, String> {
    let is_quantized = match (cx.has_input(7), cx.has_input(8)) {
        (false, false) => false,
        (true, true) => true,
        _ => return Err("y_scale and y_zero_point must both be present or absent".to_string()),
    };
    let mut lines = Lines::new(cx, "y_zero_point");
    let mut operand = |name: &'static str| {
        if cx.int(&format!("trans{name}")).unwrap_or(0) == 0 {
            return name.to_string();
        }
        lines.line(format_args!("{name}_transposed = Transpose <perm = [1, 0]> ({name})"));
        format!("{name}_transposed")
    };
    let (a, b) = (operand("A"), operand("B"));
    lines.line(format_args!("sums = MatMulInteger ({a}, {b}, a_zero_point, b_zero_point)"));
    let mut sums = "sums";
    if cx.has_input(6) {
        lines.line(format_args!("all_sums = Add (sums, C)"));
        sums = "all_sums";
    }
    lines.line(format_args!(
        "{}a_factor = Mul (alpha_number, a_scale)
        factor = Mul (a_factor, b_scale)
        sum_floats = Cast <to = {FLOAT}> ({sums})",
        float_scalar("alpha_number", cx.float("alpha").unwrap_or(1.0))
    ));
    if is_quantized {
        lines.line(format_args!(
            "ratio = Div (factor, y_scale)
            scaled = Mul (sum_floats, ratio)"
        ));
        let one = lines.one();
        lines.quantize("scaled", one, (8, "y_zero_point"), "Y");
    } else {
        lines.line(format_args!("Y = Mul (sum_floats, factor)"));
    }
    Ok(lines.finish())
}

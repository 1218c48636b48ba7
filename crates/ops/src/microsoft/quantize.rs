//! `QuantizeLinear` and `DequantizeLinear` of ONNX Runtime, which had types of 4 and 16 bits before
//! the standard.

use sardonyx_tensor::DataType::{
    self, Float, Float16, Int4, Int8, Int16, Int32, Uint4, Uint8, Uint16,
};

use super::DOMAIN;
use crate::def::OpDef;
use crate::facts::{input, int, output, types};
use crate::function::{Expand, FLOAT};
use crate::infer::{Infer, InferError};
use crate::typeset::TypeSet;

const FLOATS: TypeSet = TypeSet::tensors(&[Float, Float16]);
const CODES: TypeSet = TypeSet::tensors(&[Int4, Uint4, Int8, Uint8, Int16, Uint16]);

pub(crate) static QUANTIZE: OpDef = OpDef::new("QuantizeLinear")
    .domain(DOMAIN)
    .about(
        "The standard's `QuantizeLinear`, with a scale and a zero point for the whole tensor, or for \
         each position on `axis` if that is given.",
    )
    .since(
        1,
        &[
            input("x", "T1"),
            input("y_scale", "T1"),
            input("y_zero_point", "T2").optional(),
            output("y", "T2"),
            int("axis"),
            types("T1", FLOATS),
            types("T2", CODES),
        ],
    )
    .infer(|cx| {
        let elem = if cx.has_input(2) { cx.elem(2) } else { Some(Uint8) };
        infer(cx, elem)
    })
    .body_from(1, |cx| Some(quantize(cx)));

pub(crate) static DEQUANTIZE: OpDef = OpDef::new("DequantizeLinear")
    .domain(DOMAIN)
    .about(
        "The standard's `DequantizeLinear`, with a scale and a zero point for the whole tensor, or for \
         each position on `axis` if that is given.",
    )
    .since(
        1,
        &[
            input("x", "T1"),
            input("x_scale", "T2"),
            input("x_zero_point", "T1").optional(),
            output("y", "T2"),
            int("axis"),
            types("T1", CODES.and(TypeSet::tensors(&[Int32]))),
            types("T2", FLOATS),
        ],
    )
    .infer(|cx| {
        let elem = cx.elem(1);
        infer(cx, elem)
    })
    .body_from(1, |cx| {
        let (text, operands) = operands(cx, ["x", "x_scale", "x_zero_point"]);
        Some(format!("{text}y = DequantizeLinear{} ({})", axis(cx), operands.join(", ")))
    });

fn infer(cx: &mut Infer<'_>, elem: Option<DataType>) -> Result<(), InferError> {
    if let (Some(axis), Some(rank)) = (cx.int("axis"), cx.rank(0)) {
        cx.axis(axis, rank)?;
    }
    let shape = cx.shape(0).cloned();
    cx.set_tensor(0, elem, shape);
    Ok(())
}

/// Returns the names of the inputs that a node has, after nodes that make scalars of vectors of one
/// element without an axis.
fn operands(cx: &Expand<'_>, inputs: [&str; 3]) -> (String, Vec<String>) {
    let mut text = String::new();
    let mut names = Vec::new();
    for (index, name) in inputs.into_iter().enumerate().filter(|(index, _)| cx.has_input(*index)) {
        if index == 0 || cx.has("axis") || cx.rank(index) == Some(0) {
            names.push(name.to_string());
        } else {
            text += &format!("{name}_scalar = Squeeze ({name})\n");
            names.push(format!("{name}_scalar"));
        }
    }
    (text, names)
}

fn axis(cx: &Expand<'_>) -> &'static str {
    if cx.has("axis") { " <axis: int = @axis>" } else { "" }
}

/// Builds the quantization. 16-bit floats are divided in 32 bits, since 16-bit codes have more
/// digits than their quotient.
fn quantize(cx: &Expand<'_>) -> String {
    let (mut text, mut operands) = operands(cx, ["x", "y_scale", "y_zero_point"]);
    if cx.elem(0) != Some(FLOAT) {
        for operand in operands.iter_mut().take(2) {
            text += &format!("{operand}_wide = Cast <to = {FLOAT}> ({operand})\n");
            *operand += "_wide";
        }
    }
    format!("{text}y = QuantizeLinear{} ({})", axis(cx), operands.join(", "))
}

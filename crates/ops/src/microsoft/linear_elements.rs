//! `QLinearAdd`, `QLinearMul`, `QLinearSigmoid`, `QLinearLeakyRelu`, `QLinearSoftmax`,
//! `QLinearConcat` and `QLinearWhere`: elementwise operators on quantized tensors.

use sardonyx_model::{Shape, Type};
use sardonyx_tensor::DataType::{Bool, Float};

use super::DOMAIN;
use super::linear::{BYTES, Codes, Given, Lines};
use crate::def::OpDef;
use crate::facts::{Fact, float, input, inputs, int, output, types};
use crate::function::{Expand, FLOAT};
use crate::infer::{Infer, InferError};
use crate::rules::{broadcast_shapes, same_as_first};
use crate::tensor::concat::CONCAT;
use crate::typeset::TypeSet;

const FLOATS: TypeSet = TypeSet::tensors(&[Float]);

const PAIR: &[Fact] = &[
    input("A", "T"),
    input("A_scale", "tensor(float)"),
    input("A_zero_point", "T").optional(),
    input("B", "T"),
    input("B_scale", "tensor(float)"),
    input("B_zero_point", "T").optional(),
    input("C_scale", "tensor(float)"),
    input("C_zero_point", "T").optional(),
    output("C", "T"),
    types("T", BYTES),
];

pub(crate) static ADD: OpDef = OpDef::new("QLinearAdd")
    .domain(DOMAIN)
    .about(
        "Sum of two quantized tensors, quantized; the shapes are broadcast. Rounds the sum after the \
         zero point of the result is added to it, half to even, and saturates.",
    )
    .since(1, PAIR)
    .infer(infer_pair)
    .body_from(1, add)
    .scalars(&[1, 2, 4, 5, 6, 7]);

pub(crate) static MUL: OpDef = OpDef::new("QLinearMul")
    .domain(DOMAIN)
    .about(
        "Product of two quantized tensors element by element, quantized; the shapes are broadcast. \
         Rounds the product after the zero point of the result is added to it, half to even, and \
         saturates.",
    )
    .since(1, PAIR)
    .infer(infer_pair)
    .body_from(1, mul)
    .scalars(&[1, 2, 4, 5, 6, 7]);

pub(crate) static SIGMOID: OpDef = OpDef::new("QLinearSigmoid")
    .domain(DOMAIN)
    .about("`Sigmoid` of a quantized tensor, quantized.")
    .since(
        1,
        &[
            input("X", "T"),
            input("X_scale", "tensor(float)"),
            input("X_zero_point", "T").optional(),
            input("Y_scale", "tensor(float)"),
            input("Y_zero_point", "T").optional(),
            output("Y", "T"),
            types("T", BYTES),
        ],
    )
    .infer(same_as_first)
    .body_from(1, |cx| Some(build_elementwise(cx, "Sigmoid (X_float)")))
    .scalars(&[1, 2, 3, 4]);

pub(crate) static LEAKY_RELU: OpDef = OpDef::new("QLinearLeakyRelu")
    .domain(DOMAIN)
    .about("`LeakyRelu` of a quantized tensor, quantized.")
    .since(
        1,
        &[
            input("X", "T"),
            input("X_scale", "tensor(float)"),
            input("X_zero_point", "T").optional(),
            input("Y_scale", "tensor(float)"),
            input("Y_zero_point", "T").optional(),
            output("Y", "T"),
            float("alpha").or_float(0.01),
            types("T", BYTES),
        ],
    )
    .infer(same_as_first)
    .body_from(1, |cx| Some(build_elementwise(cx, "LeakyRelu <alpha: float = @alpha> (X_float)")))
    .scalars(&[1, 2, 3, 4]);

pub(crate) static SOFTMAX: OpDef = OpDef::new("QLinearSoftmax")
    .domain(DOMAIN)
    .about(
        "`Softmax` of a quantized tensor, quantized, in the version of an opset: along one axis since \
         13, over all axes from `axis` on before. The reciprocal of the scale of the result is rounded \
         down to an integer.",
    )
    .since(
        1,
        &[
            input("X", "T"),
            input("X_scale", "tensor(float)"),
            input("x_zero_point", "T").optional(),
            input("y_scale", "tensor(float)"),
            input("y_zero_point", "T"),
            output("Y", "T"),
            int("axis").or(-1),
            int("opset").required(),
            types("T", BYTES),
        ],
    )
    .infer(same_as_first)
    .body_from(1, softmax)
    .scalars(&[1, 2, 3, 4]);

pub(crate) static CONCAT_CODES: OpDef = OpDef::new("QLinearConcat")
    .domain(DOMAIN)
    .about(
        "Concatenates quantized tensors along an axis and quantizes them alike. After the scale and \
         the zero point of the result, each tensor comes with a scale and a zero point.",
    )
    .since(
        1,
        &[
            input("Y_scale", "TF"),
            input("Y_zero_point", "T8"),
            inputs("inputs", "TV").mixed(1),
            output("Y", "T8"),
            int("axis").required(),
            types("T8", BYTES),
            types("TF", FLOATS),
            types("TV", BYTES.and(FLOATS)),
        ],
    )
    .infer(infer_concat)
    .body_or_reason(1, concat)
    .scalars(&[0, 1]);

pub(crate) static WHERE: OpDef = OpDef::new("QLinearWhere")
    .domain(DOMAIN)
    .about("`Where` of two quantized tensors, quantized alike; the shapes are broadcast.")
    .since(
        1,
        &[
            input("condition", "B"),
            input("X", "T"),
            input("x_scale", "TF"),
            input("x_zero_point", "T"),
            input("Y", "T"),
            input("y_scale", "TF"),
            input("y_zero_point", "T"),
            input("z_scale", "TF"),
            input("z_zero_point", "T"),
            output("Z", "T"),
            types("B", TypeSet::tensors(&[Bool])),
            types("TF", FLOATS),
            types("T", BYTES),
        ],
    )
    .infer(infer_where)
    .body_from(1, where_codes)
    .scalars(&[2, 3, 5, 6, 7, 8]);

const A: Codes = Codes { value: "A", scale: "A_scale", zero: (2, "A_zero_point") };
const B: Codes = Codes { value: "B", scale: "B_scale", zero: (5, "B_zero_point") };
const C_ZERO: Given = (7, "C_zero_point");

/// Infers the shape to which inputs 0 and 3 broadcast.
fn infer_pair(cx: &mut Infer<'_>) -> Result<(), InferError> {
    let shape = match (cx.shape(0), cx.shape(3)) {
        (Some(a), Some(b)) => Some(broadcast_shapes(cx, &[a, b])?),
        _ => None,
    };
    cx.set_tensor(0, cx.elem(0).or(cx.elem(3)), shape);
    Ok(())
}

/// Builds products of codes with the ratios of their scales to that of the result, and adds the
/// contribution of all zero points at once: one product and one sum for each operand.
fn add(cx: &Expand<'_>) -> Option<String> {
    let mut lines = Lines::new(cx, "A");
    let (a_zero, b_zero) = (lines.zero_float(A.zero), lines.zero_float(B.zero));
    let c_zero = lines.zero_float(C_ZERO);
    lines.line(format_args!(
        "A_ratio = Div (A_scale, C_scale)
        B_ratio = Div (B_scale, C_scale)
        A_shift = Mul (A_ratio, {a_zero})
        B_shift = Mul (B_ratio, {b_zero})
        shift = Add (A_shift, B_shift)
        offset = Sub ({c_zero}, shift)
        A_float = Cast <to = {FLOAT}> (A)
        B_float = Cast <to = {FLOAT}> (B)
        A_part = Mul (A_float, A_ratio)
        B_part = Mul (B_float, B_ratio)
        B_moved = Add (B_part, offset)
        sum = Add (B_moved, A_part)"
    ));
    lines.round("sum", "C");
    Some(lines.finish())
}

fn mul(cx: &Expand<'_>) -> Option<String> {
    let mut lines = Lines::new(cx, "A");
    lines.center(A, "A_centered");
    lines.center(B, "B_centered");
    let c_zero = lines.zero_float(C_ZERO);
    lines.line(format_args!(
        "scales = Mul (A_scale, B_scale)
        factor = Div (scales, C_scale)
        product = Mul (A_centered, B_centered)
        scaled = Mul (product, factor)
        moved = Add (scaled, {c_zero})"
    ));
    lines.round("moved", "C");
    Some(lines.finish())
}

/// Builds a node on floats between dequantization and quantization.
fn build_elementwise(cx: &Expand<'_>, node: &str) -> String {
    let mut lines = Lines::new(cx, "X");
    let x = Codes { value: "X", scale: "X_scale", zero: (2, "X_zero_point") };
    lines.dequantize(x, "X_float");
    lines.line(format_args!("Y_float = {node}"));
    lines.quantize("Y_float", "Y_scale", (4, "Y_zero_point"), "Y");
    lines.finish()
}

fn softmax(cx: &Expand<'_>) -> Option<String> {
    let mut lines = Lines::new(cx, "X");
    let x = Codes { value: "X", scale: "X_scale", zero: (2, "x_zero_point") };
    lines.dequantize(x, "X_float");
    if cx.int("opset")? < 13 {
        lines.line(format_args!(
            "sizes = Shape (X)
            rows = Flatten <axis: int = @axis> (X_float)
            row_parts = Softmax <axis = 1> (rows)
            Y_float = Reshape (row_parts, sizes)"
        ));
    } else {
        lines.line(format_args!("Y_float = Softmax <axis: int = @axis> (X_float)"));
    }
    // ONNX Runtime has a whole number of steps between 0 and 1.
    lines.line(format_args!(
        "steps_exactly = Reciprocal (y_scale)
        steps = Floor (steps_exactly)
        scaled = Mul (Y_float, steps)"
    ));
    let one = lines.one();
    lines.quantize("scaled", one, (4, "y_zero_point"), "Y");
    Some(lines.finish())
}

/// Index of the first tensor that is concatenated; each has three inputs.
const FIRST: usize = 2;

/// Returns the indices of concatenated tensors. Fails unless each has a scale and a zero point.
fn find_concatenated(count: usize) -> Result<std::ops::Range<usize>, String> {
    let given = count.saturating_sub(FIRST);
    if given == 0 || !given.is_multiple_of(3) {
        return Err(format!(
            "inputs must be a tensor, its scale and its zero point for each part, but there are {given}"
        ));
    }
    Ok(0..given / 3)
}

fn infer_concat(cx: &mut Infer<'_>) -> Result<(), InferError> {
    let parts = match find_concatenated(cx.input_count()) {
        Ok(parts) => parts,
        Err(why) => return cx.fail(why),
    };
    let tensors: Vec<Option<&Type>> = parts.map(|part| cx.input(FIRST + 3 * part)).collect();
    let mut shape = None;
    if let Some(rule) = CONCAT.inference_at(CONCAT.newest()) {
        let mut outcome = cx.apply_rule_with(rule, &tensors)?;
        shape = outcome.types.first_mut().and_then(Option::take).and_then(|ty| ty.shape().cloned());
        outcome.types.clear();
        cx.adopt(outcome);
    }
    let elem = cx.elem(1).or(cx.elem(FIRST));
    cx.set_tensor(0, elem, shape);
    Ok(())
}

fn concat(cx: &Expand<'_>) -> Result<String, String> {
    let mut lines = Lines::new(cx, "Y_zero_point");
    let mut names = Vec::new();
    for part in find_concatenated(cx.input_count())? {
        let first = FIRST + 3 * part;
        let (scale, zero) = (first + 1, first + 2);
        // They are scalars, or vectors of one element.
        lines.line(format_args!(
            "scale_{part} = Squeeze (inputs_{scale})
            zero_point_{part} = Squeeze (inputs_{zero})
            float_{part} = DequantizeLinear (inputs_{first}, scale_{part}, zero_point_{part})"
        ));
        names.push(format!("float_{part}"));
    }
    lines.line(format_args!("joined = Concat <axis: int = @axis> ({})", names.join(", ")));
    lines.quantize("joined", "Y_scale", (1, "Y_zero_point"), "Y");
    Ok(lines.finish())
}

fn infer_where(cx: &mut Infer<'_>) -> Result<(), InferError> {
    let shapes: Option<Vec<&Shape>> = [0, 1, 4].into_iter().map(|index| cx.shape(index)).collect();
    let shape = shapes.map(|shapes| broadcast_shapes(cx, &shapes)).transpose()?;
    cx.set_tensor(0, cx.elem(1).or(cx.elem(4)), shape);
    Ok(())
}

fn where_codes(cx: &Expand<'_>) -> Option<String> {
    let mut lines = Lines::new(cx, "X");
    let x = Codes { value: "X", scale: "x_scale", zero: (3, "x_zero_point") };
    let y = Codes { value: "Y", scale: "y_scale", zero: (6, "y_zero_point") };
    lines.dequantize(x, "X_float");
    lines.dequantize(y, "Y_float");
    lines.line(format_args!("Z_float = Where (condition, X_float, Y_float)"));
    lines.quantize("Z_float", "z_scale", (8, "z_zero_point"), "Z");
    Some(lines.finish())
}

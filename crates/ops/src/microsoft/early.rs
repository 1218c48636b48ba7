//! Operators of the standard that ONNX Runtime has in its default domain at all versions, also
//! before the standard introduced them.
//!
//! Its optimizer fuses nodes of exports from before version 17 into `LayerNormalization`, and saves
//! the model with the version of the export. These definitions apply below the first version of the
//! standard's, and repeat it.

use sardonyx_tensor::DataType::{Double, Float, Float16};

use super::product::infer_like;
use crate::def::OpDef;
use crate::facts::{FLOATS_IR4, float, input, int, output, types};
use crate::function::{DOUBLE, Expand, FLOAT};
use crate::nn::layer_normalization;
use crate::rules::same_as_first;
use crate::typeset::TypeSet;

pub(crate) static LAYER_NORMALIZATION: OpDef = OpDef::new("LayerNormalization")
    .about(
        "The standard's `LayerNormalization`, in versions of the operator set that do not have it \
         yet.",
    )
    .since(
        1,
        &[
            input("X", "T"),
            input("Scale", "V"),
            input("B", "V").optional(),
            output("Y", "V"),
            output("Mean", "U").optional(),
            output("InvStdDev", "U").optional(),
            int("axis").or(-1),
            float("epsilon").or_float(1e-05),
            int("stash_type").or(1),
            types("T", FLOATS_IR4),
            types("U", TypeSet::tensors(&[Float, Double])),
            types("V", FLOATS_IR4),
        ],
    )
    .infer(|cx| {
        infer_like(cx, &layer_normalization::LAYER_NORMALIZATION)?;
        let elem = cx.elem(1).or(cx.elem(0));
        let shape = cx.shape(0).cloned();
        cx.set_tensor(0, elem, shape);
        Ok(())
    })
    .body_or_reason(1, build_normalization);

pub(crate) static THRESHOLDED_RELU: OpDef = OpDef::new("ThresholdedRelu")
    .about(
        "The standard's `ThresholdedRelu`, in versions of the operator set that do not have it \
         yet.",
    )
    .since(
        1,
        &[
            input("X", "T"),
            output("Y", "T"),
            float("alpha").or_float(1.0),
            types("T", TypeSet::tensors(&[Double, Float, Float16])),
        ],
    )
    .infer(same_as_first)
    .body(&[1], "Y = ThresholdedRelu <alpha: float = @alpha> (X)");

fn build_normalization(cx: &Expand<'_>) -> Result<String, String> {
    let operands = &["X", "Scale", "B"][..if cx.has_input(2) { 3 } else { 2 }];
    let statistics = match (cx.has_output(1), cx.has_output(2)) {
        (false, false) => "",
        (true, false) => ", Mean",
        (_, true) => ", Mean, InvStdDev",
    };
    let Common { casts, operands, output, last } = cast_to_common_type(cx, operands)?;
    Ok(format!(
        "{casts}{output}{statistics} = LayerNormalization <
            axis: int = @axis, epsilon: float = @epsilon, stash_type: int = @stash_type
        > ({operands})
        {last}"
    ))
}

/// Call of an operator whose operands have one type.
pub(super) struct Common {
    /// Nodes before the call.
    pub(super) casts: String,
    /// Names of the operands, separated by commas.
    pub(super) operands: String,
    /// Name of the output.
    pub(super) output: &'static str,
    /// Nodes after the call.
    pub(super) last: String,
}

/// Casts operands, which are the first inputs of a node, to one type. `Y` is computed in that type
/// and then cast to the type of the second operand. ONNX Runtime's optimizer drops a Cast before a
/// normalization, so that 16-bit floats are scaled by 32-bit ones.
pub(super) fn cast_to_common_type(cx: &Expand<'_>, operands: &[&str]) -> Result<Common, String> {
    let types: Vec<Option<i64>> = (0..operands.len()).map(|input| cx.elem(input)).collect();
    if types.windows(2).all(|pair| pair[0] == pair[1]) {
        let operands = operands.join(", ");
        return Ok(Common { casts: String::new(), operands, output: "Y", last: String::new() });
    }
    if let Some(input) = types.iter().position(Option::is_none) {
        return Err(cx.needs_type(input));
    }
    let wide = if types.contains(&Some(DOUBLE)) { DOUBLE } else { FLOAT };
    let casts = operands.iter().map(|name| format!("{name}_wide = Cast <to = {wide}> ({name})\n"));
    let names: Vec<String> = operands.iter().map(|name| format!("{name}_wide")).collect();
    Ok(Common {
        casts: casts.collect(),
        operands: names.join(", "),
        output: "wide_output",
        last: format!("Y = CastLike (wide_output, {})\n", operands[1]),
    })
}

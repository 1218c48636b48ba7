//! `Gelu`, `BiasGelu`, `FastGelu` and `QuickGelu` of ONNX Runtime, and the activations of its fused
//! products.

use sardonyx_tensor::DataType::{Bfloat16, Double, Float, Float16};

use super::DOMAIN;
use crate::def::OpDef;
use crate::facts::{FLOATS_IR4, float, input, output, types};
use crate::function::Expand;
use crate::rules::same_as_first;
use crate::typeset::TypeSet;

pub(crate) static BIAS_GELU: OpDef = OpDef::new("BiasGelu")
    .domain(DOMAIN)
    .about("Adds a bias along the last axis and applies the exact Gelu: `C = Gelu(A + B)`.")
    .since(1, &[input("A", "T"), input("B", "T"), output("C", "T"), types("T", FLOATS_IR4)])
    .infer(same_as_first)
    .body(&[1], "sum = Add (A, B)\nC = Gelu (sum)");

pub(crate) static FAST_GELU: OpDef = OpDef::new("FastGelu")
    .domain(DOMAIN)
    .about("Tanh approximation of Gelu, of `X` or of `X + bias`.")
    .since(
        1,
        &[
            input("X", "T"),
            input("bias", "T").optional(),
            output("Y", "T"),
            types("T", TypeSet::tensors(&[Float, Double, Float16, Bfloat16])),
        ],
    )
    .infer(same_as_first)
    .body_from(1, |cx| {
        const GELU: &str = "Gelu <approximate = \"tanh\">";
        Some(if cx.has_input(1) {
            format!("sum = Add (X, bias)\nY = {GELU} (sum)")
        } else {
            format!("Y = {GELU} (X)")
        })
    });

pub(crate) static GELU: OpDef = OpDef::new("Gelu")
    .domain(DOMAIN)
    .about("Gaussian error linear unit, exact: `Y = 0.5 * X * (1 + erf(X / sqrt(2)))`. The same as the \
         standard's `Gelu` with `approximate` `none`.")
    .since(1, &[input("X", "T"), output("Y", "T"), types("T", FLOATS_IR4)])
    .infer(same_as_first)
    .body(&[1], "Y = Gelu (X)");

pub(crate) static QUICK_GELU: OpDef = OpDef::new("QuickGelu")
    .domain(DOMAIN)
    .about(
        "Sigmoid approximation of Gelu: `Y = X * sigmoid(alpha * X)`. The default of `alpha` makes \
         it approximate Gelu.",
    )
    .since(
        1,
        &[
            input("X", "T"),
            output("Y", "T"),
            float("alpha").or_float(1.702),
            types("T", FLOATS_IR4),
        ],
    )
    .infer(same_as_first)
    .body(&[1], "Y = Swish <alpha: float = @alpha> (X)");

/// Builds the node that applies the activation of a fused product, from `before` to `after`.
/// `parameter` returns the numbers that it depends on by their names in the standard.
pub(super) fn build_activation(
    name: &str,
    parameter: &dyn Fn(&str) -> Option<f32>,
    before: &str,
    after: &str,
) -> Result<String, String> {
    let parameters: &[&str] = match name {
        "Relu" | "Sigmoid" | "Softplus" | "Softsign" | "Tanh" => &[],
        "Celu" | "Elu" | "LeakyRelu" | "ThresholdedRelu" => &["alpha"],
        "HardSigmoid" => &["alpha", "beta"],
        "Selu" => &["alpha", "gamma"],
        "Clip" => return clip(parameter, before, after),
        _ => return Err(format!("its activation '{name}' is not implemented")),
    };
    let given = parameters.iter().filter_map(|name| Some((name, parameter(name)?)));
    let given: Vec<String> = given.map(|(name, value)| format!("{name} = {value:?}")).collect();
    let attributes =
        if given.is_empty() { String::new() } else { format!(" <{}>", given.join(", ")) };
    Ok(format!("{after} = {name}{attributes} ({before})"))
}

/// Builds a `Clip`, whose limits are inputs of the type of its operand.
fn clip(
    parameter: &dyn Fn(&str) -> Option<f32>,
    before: &str,
    after: &str,
) -> Result<String, String> {
    let [Some(least), Some(most)] = ["min", "max"].map(parameter) else {
        return Err("its activation Clip requires both limits".to_string());
    };
    Ok(format!(
        "least_number = Constant <value = float {{{least:?}}}> ()
        most_number = Constant <value = float {{{most:?}}}> ()
        least = CastLike (least_number, {before})
        most = CastLike (most_number, {before})
        {after} = Clip ({before}, least, most)"
    ))
}

/// Returns the attribute `activation` of a node; `None` if nothing is applied.
pub(super) fn find_activation(cx: &Expand<'_>) -> Option<String> {
    cx.string("activation").filter(|name| !name.is_empty())
}

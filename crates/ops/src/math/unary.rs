//! Elementwise operators on one tensor, as rows: functions, signs and rounding, activations.
//!
//! The output always has the type of the input.
//!
//! - `Exp`, `Log`, `Reciprocal`, `Sqrt`, `Sigmoid`, `Tanh`, `Ceil`, `Floor`: since 1; 6 drops
//!   `consumed_inputs`; 13 adds bfloat16. `Relu`, which sets negative elements to 0, the same; 14
//!   adds signed integers.
//! - `Abs`: since 1; 6 adds integers; 13 adds bfloat16. `Neg` the same with signed integers only.
//! - `Elu`, `HardSigmoid`, `LeakyRelu`, `Selu`: since 1; 6 drops `consumed_inputs`, and `Selu` gets
//!   defaults with more digits; bfloat16 since 22, for `LeakyRelu` since 16.
//! - `Softplus`, `Softsign`: since 1; 22 adds bfloat16. So do `HardSwish` (since 14), `Mish` (since
//!   18) and `ThresholdedRelu` (since 10). `Celu`: since 12, for float; 28 for all floats. `Gelu`:
//!   since 20.
//! - `Sin`, `Cos`, `Tan` and their inverses: since 7; the hyperbolic ones: since 9; 22 adds
//!   bfloat16.
//! - `Erf`: since 9, for integers too; 13 for floats only, with bfloat16.
//! - `Sign`: since 9; 13 adds bfloat16. `Round`, half to even: since 11; 22 adds bfloat16.
//! - `Not` of truth values: since 1. `BitwiseNot`: since 18.

use sardonyx_model::Dim;
use sardonyx_tensor::DataType;

use crate::adapt::{Adapt, Refusal};
use crate::def::{InferFn, OpDef};
use crate::facts::{
    FLOATS, FLOATS_IR4, Fact, INTEGERS, NUMERIC, NUMERIC_IR4, SIGNED, float, input, ints, output,
    string, types, without_attribute,
};
use crate::function::{Expand, attribute_like, float_scalar, float_vector, number_like};
use crate::infer::{Infer, InferError};
use crate::math::gradients;
use crate::math::{consumed_inputs, floats_only, shape_values};
use crate::rules;
use crate::sharding::{Linear, elements};
use crate::typeset::TypeSet;

pub static ABS: OpDef = OpDef::new("Abs")
    .about("Absolute value of each element.")
    .since(1, &[X, Y, IN_PLACE, types("T", FLOATS)])
    .since(6, &[NOT_IN_PLACE, types("T", NUMERIC)])
    .types_down()
    .since(13, &[SMOOTH_X, SMOOTH_Y, types("T", NUMERIC_IR4)])
    .widens()
    .infer(|cx| infer_elementwise(cx, shape_values::absolute))
    .adapter(5, 6, consumed_inputs::remove)
    .without_reference_rule(&[1])
    .gradient(gradients::abs)
    .split_by(elements::elementwise);

pub(crate) static ACOS: OpDef = smooth_named("Acos", 7)
    .about("Inverse cosine (arccosine) of each element, in radians. NaN outside of -1 to 1.")
    .gradient(gradients::acos);

pub(crate) static ACOSH: OpDef = smooth_named("Acosh", 9)
    .about("Inverse hyperbolic cosine of each element. NaN below 1.")
    .gradient(gradients::acosh);

pub(crate) static ASIN: OpDef = smooth_named("Asin", 7)
    .about("Inverse sine (arcsine) of each element, in radians. NaN outside of -1 to 1.")
    .gradient(gradients::asin);

pub(crate) static ASINH: OpDef = smooth_named("Asinh", 9)
    .about("Inverse hyperbolic sine of each element.")
    .gradient(gradients::asinh);

pub(crate) static ATAN: OpDef = smooth_named("Atan", 7)
    .about("Inverse tangent (arctangent) of each element, in radians.")
    .gradient(gradients::atan);

pub(crate) static ATANH: OpDef = smooth_named("Atanh", 9)
    .about("Inverse hyperbolic tangent of each element. Infinite at -1 and 1, NaN beyond.")
    .gradient(gradients::atanh);

pub(crate) static BITWISE_NOT: OpDef = OpDef::new("BitwiseNot")
    .about("Bitwise NOT of each element.")
    .since(18, &[FIXED_X, FIXED_Y, types("T", INTEGERS)])
    .infer(rules::same_as_first)
    .split_by(elements::elementwise);

pub static CEIL: OpDef = rounding("Ceil")
    .about("Rounds each element up to an integer. Infinities, NaN and integers stay as they are.")
    .gradient(gradients::zero);

pub(crate) static CELU: OpDef = OpDef::new("Celu")
    .about(
        "Continuously differentiable exponential linear unit: `Y = max(0, X) + min(0, alpha * \
         (exp(X / alpha) - 1))`.",
    )
    .since(
        12,
        &[
            SMOOTH_X,
            SMOOTH_Y,
            float("alpha").or_float(1.0),
            types("T", TypeSet::tensors(&[DataType::Float])),
        ],
    )
    .since(28, &[types("T", FLOATS_IR4)])
    .widens()
    .infer(rules::same_as_first)
    .body_from(12, |cx| {
        let alpha = float_vector("alpha", cx.float("alpha")?);
        Some(alpha + celu!())
    })
    .body(&[28], concat!(attribute_like!("alpha", "X"), celu!()))
    .call_body(build_celu)
    .gradient(gradients::celu)
    .split_by(elements::elementwise);

/// Builds `Celu` with a scalar `alpha`. Before version 28 the function of the standard has a
/// vector, which gives a scalar an axis.
fn build_celu(cx: &Expand<'_>) -> Result<Option<String>, String> {
    if cx.since() >= 28 || cx.rank(0).is_some_and(|rank| rank > 0) {
        return Ok(None);
    }
    Ok(cx.float("alpha").map(|alpha| float_scalar("alpha", alpha) + celu!()))
}

pub static COS: OpDef =
    smooth_named("Cos", 7).about("Cosine of each element, in radians.").gradient(gradients::cos);

pub(crate) static COSH: OpDef =
    smooth_named("Cosh", 9).about("Hyperbolic cosine of each element.").gradient(gradients::cosh);

pub(crate) static ELU: OpDef =
    activation("Elu", &[X, Y, float("alpha").or_float(1.0), IN_PLACE, types("T", FLOATS)], 22)
        .about("Exponential linear unit: `Y = X` where `X >= 0`, else `Y = alpha * (exp(X) - 1)`.")
        .body(
            &[18],
            concat!(
                attribute_like!("alpha", "X"),
                number_like!("zero", "0", "X"),
                number_like!("one", "1", "X"),
                "below = Less (X, zero)
        power = Exp (X)
        shifted = Sub (power, one)
        bent = Mul (alpha, shifted)
        Y = Where (below, bent, X)",
            ),
        )
        .gradient(gradients::elu);

pub static ERF: OpDef = OpDef::new("Erf")
    .about("Error function of each element.")
    .since(9, &[input("input", "T"), output("output", "T"), types("T", NUMERIC)])
    .since(13, SMOOTH_NAMED)
    .types_down()
    .infer(rules::same_as_first)
    .adapter(12, 13, floats_only::check)
    .gradient(gradients::erf)
    .split_by(elements::elementwise);

pub static EXP: OpDef = function("Exp", NAMED, SMOOTH_NAMED)
    .about("Exponential of each element: `Y = e^X`.")
    .gradient(gradients::exp);

pub static FLOOR: OpDef = rounding("Floor")
    .about("Rounds each element down to an integer. Infinities, NaN and integers stay as they are.")
    .gradient(gradients::zero);

pub static GELU: OpDef = OpDef::new("Gelu")
    .about(
        "Gaussian error linear unit, `Y = X * Φ(X)`; exact (erf) or the tanh approximation. `Φ` is \
         the cumulative distribution function of the standard normal distribution. Exact: `0.5 * X \
         * (1 + erf(X / sqrt(2)))`. Approximation: `0.5 * X * (1 + tanh(sqrt(2 / pi) * (X + \
         0.044715 * X^3)))`.",
    )
    .since(20, &[SMOOTH_X, SMOOTH_Y, string("approximate").or_word("none"), types("T", FLOATS_IR4)])
    .infer(rules::same_as_first)
    .body_from(20, gelu)
    .split_by(elements::elementwise);

pub static HARD_SIGMOID: OpDef = activation(
    "HardSigmoid",
    &[
        X,
        Y,
        float("alpha").or_float(0.2),
        float("beta").or_float(0.5),
        IN_PLACE,
        types("T", FLOATS),
    ],
    22,
)
.about("Piecewise linear approximation of the sigmoid: `Y = max(0, min(1, alpha * X + beta))`.")
.body(
    &[18],
    concat!(
        attribute_like!("alpha", "X"),
        attribute_like!("beta", "X"),
        number_like!("zero", "0", "X"),
        number_like!("one", "1", "X"),
        "scaled = Mul (X, alpha)
        line = Add (scaled, beta)
        not_above = Min (line, one)
        Y = Max (not_above, zero)",
    ),
);

pub static HARD_SWISH: OpDef = smooth_xy("HardSwish", 14)
    .about("Hard swish activation: `Y = X * max(0, min(1, X / 6 + 0.5))`.")
    .body(
        &[14, 22],
        "gate = HardSigmoid <alpha = 0.16666667, beta = 0.5> (X)
        Y = Mul (X, gate)",
    );

pub(crate) static LEAKY_RELU: OpDef = activation(
    "LeakyRelu",
    &[X, Y, float("alpha").or_float(0.01), IN_PLACE, types("T", FLOATS)],
    16,
)
.about("Leaky rectified linear unit: `Y = X` where `X >= 0`, else `Y = alpha * X`.")
.body(&[16], concat!(attribute_like!("alpha", "X"), slope_below_zero!("alpha")));

pub static LOG: OpDef = function("Log", NAMED, SMOOTH_NAMED)
    .about("Natural logarithm of each element. Minus infinity at 0, NaN below 0.")
    .gradient(gradients::log);

pub static MISH: OpDef =
    smooth_xy("Mish", 18).about("Mish activation: `Y = X * tanh(log(1 + exp(X)))`.").body(
        &[18, 22],
        "positive = Softplus (X)
        gate = Tanh (positive)
        Y = Mul (X, gate)",
    );

pub static NEG: OpDef = OpDef::new("Neg")
    .about("Negates each element: `Y = -X`. The smallest signed integer stays as it is.")
    .since(1, &[X, Y, IN_PLACE, types("T", FLOATS)])
    .since(6, &[NOT_IN_PLACE, types("T", FLOATS.and(SIGNED))])
    .types_down()
    .since(13, &[SMOOTH_X, SMOOTH_Y, types("T", FLOATS_IR4.and(SIGNED))])
    .widens()
    .infer(|cx| infer_elementwise(cx, shape_values::negate))
    .adapter(5, 6, consumed_inputs::remove)
    .without_reference_rule(&[1])
    .gradient(gradients::neg)
    .linear_in(Linear::First)
    .split_by(elements::elementwise);

pub static NOT: OpDef = OpDef::new("Not")
    .about("Logical NOT of each element.")
    .since(1, &[FIXED_X, FIXED_Y, types("T", TypeSet::tensors(&[DataType::Bool]))])
    .infer(|cx| infer_elementwise(cx, |value| Dim::Known(1).sub(value)))
    .split_by(elements::elementwise);

pub static RECIPROCAL: OpDef = function("Reciprocal", XY, SMOOTH_XY)
    .about("Reciprocal of each element: `Y = 1 / X`.")
    .gradient(gradients::reciprocal);

pub static RELU: OpDef = function("Relu", XY, SMOOTH_XY)
    .about("Rectified linear unit: `Y = max(0, X)`. NaN stays NaN.")
    .since(14, &[types("T", FLOATS_IR4.and(SIGNED))])
    .widens()
    .body(&[18], concat!(number_like!("zero", "0", "X"), "Y = Max (X, zero)"))
    .gradient(gradients::relu);

pub static ROUND: OpDef = OpDef::new("Round")
    .about(
        "Rounds each element to the nearest integer, half to even. Infinities, NaN and integers \
         stay as they are.",
    )
    .since(11, &[FIXED_X, FIXED_Y, types("T", FLOATS)])
    .since(22, &[types("T", FLOATS_IR4)])
    .widens()
    .infer(rules::same_as_first)
    .gradient(gradients::zero)
    .split_by(elements::elementwise);

pub(crate) static SELU: OpDef = OpDef::new("Selu")
    .about(
        "Scaled exponential linear unit: `Y = gamma * X` where `X > 0`, else `Y = gamma * alpha * \
         (exp(X) - 1)`.",
    )
    .since(
        1,
        &[
            X,
            Y,
            float("alpha").or_float(OLD_SELU_ALPHA),
            float("gamma").or_float(OLD_SELU_GAMMA),
            IN_PLACE,
            types("T", FLOATS),
        ],
    )
    .since(
        6,
        &[
            SMOOTH_X,
            SMOOTH_Y,
            float("alpha").or_float(SELU_ALPHA),
            float("gamma").or_float(SELU_GAMMA),
            NOT_IN_PLACE,
        ],
    )
    .since(22, &[types("T", FLOATS_IR4)])
    .widens()
    .infer(rules::same_as_first)
    .adapter(5, 6, write_old_selu)
    .adapter(6, 5, |cx| write_selu(cx, SELU_ALPHA, SELU_GAMMA))
    .body(
        &[18],
        concat!(
            attribute_like!("alpha", "X"),
            attribute_like!("gamma", "X"),
            number_like!("zero", "0", "X"),
            "power = Exp (X)
            scaled = Mul (alpha, power)
            shifted = Sub (scaled, alpha)
            negative = Mul (gamma, shifted)
            positive = Mul (gamma, X)
            below = Less (X, zero)
            Y = Where (below, negative, positive)",
        ),
    )
    .without_reference_rule(&[1])
    .gradient(gradients::selu)
    .split_by(elements::elementwise);

pub static SIGMOID: OpDef = function("Sigmoid", XY, SMOOTH_XY)
    .about("Logistic sigmoid of each element: `Y = 1 / (1 + exp(-X))`.")
    .gradient(gradients::sigmoid);

pub static SIGN: OpDef = OpDef::new("Sign")
    .about("Sign of each element: -1, 0 or 1. NaN stays NaN.")
    .since(9, &[input("input", "T"), output("output", "T"), types("T", NUMERIC)])
    .since(
        13,
        &[
            input("input", "T").non_differentiable(),
            output("output", "T").non_differentiable(),
            types("T", NUMERIC_IR4),
        ],
    )
    .widens()
    .infer(rules::same_as_first)
    .gradient(gradients::zero)
    .split_by(elements::elementwise);

pub static SIN: OpDef =
    smooth_named("Sin", 7).about("Sine of each element, in radians.").gradient(gradients::sin);

pub(crate) static SINH: OpDef =
    smooth_named("Sinh", 9).about("Hyperbolic sine of each element.").gradient(gradients::sinh);

pub static SOFTPLUS: OpDef = smooth_xy("Softplus", 1)
    .about("Softplus activation: `Y = log(1 + exp(X))`.")
    .body(
        &[18],
        concat!(
            number_like!("one", "1", "X"),
            "power = Exp (X)
            sum = Add (power, one)
            Y = Log (sum)",
        ),
    )
    .gradient(gradients::softplus);

pub static SOFTSIGN: OpDef =
    smooth_named("Softsign", 1).about("Softsign activation: `Y = X / (1 + abs(X))`.").body(
        &[18],
        concat!(
            number_like!("one", "1", "input"),
            "size = Abs (input)
            sum = Add (one, size)
            output = Div (input, sum)",
        ),
    );

pub static SQRT: OpDef = function("Sqrt", XY, SMOOTH_XY)
    .about("Square root of each element. NaN below 0.")
    .gradient(gradients::sqrt);

pub(crate) static TAN: OpDef =
    smooth_named("Tan", 7).about("Tangent of each element, in radians.").gradient(gradients::tan);

pub static TANH: OpDef = function("Tanh", NAMED, SMOOTH_NAMED)
    .about("Hyperbolic tangent of each element.")
    .gradient(gradients::tanh);

pub(crate) static THRESHOLDED_RELU: OpDef = OpDef::new("ThresholdedRelu")
    .about("Thresholded rectified linear unit: `Y = X` where `X > alpha`, else 0.")
    .since(10, &[SMOOTH_X, SMOOTH_Y, float("alpha").or_float(1.0), types("T", FLOATS)])
    .since(22, &[types("T", FLOATS_IR4)])
    .widens()
    .infer(rules::same_as_first)
    .body(
        &[18],
        concat!(
            attribute_like!("alpha", "X"),
            number_like!("zero", "0", "X"),
            "above = Less (alpha, X)
            Y = Where (above, X, zero)",
        ),
    )
    .split_by(elements::elementwise);

const X: Fact = input("X", "T");
const Y: Fact = output("Y", "T");
const SMOOTH_X: Fact = X.differentiable();
const SMOOTH_Y: Fact = Y.differentiable();
const FIXED_X: Fact = X.non_differentiable();
const FIXED_Y: Fact = Y.non_differentiable();
const IN_PLACE: Fact = ints("consumed_inputs");
const NOT_IN_PLACE: Fact = without_attribute("consumed_inputs");

// Some operators name their tensors X and Y, others input and output.
const XY: &[Fact] = &[X, Y, IN_PLACE, types("T", FLOATS)];
const SMOOTH_XY: &[Fact] = &[SMOOTH_X, SMOOTH_Y, types("T", FLOATS_IR4)];
const NAMED: &[Fact] = &[input("input", "T"), output("output", "T"), IN_PLACE, types("T", FLOATS)];
const SMOOTH_NAMED: &[Fact] = &[
    input("input", "T").differentiable(),
    output("output", "T").differentiable(),
    types("T", FLOATS_IR4),
];

/// Expands to nodes that multiply negative elements by a slope.
macro_rules! slope_below_zero {
    ($slope:literal) => {
        concat!(
            number_like!("zero", "0", "X"),
            "below = Less (X, zero)\n",
            "scaled = Mul (",
            $slope,
            ", X)\n",
            "Y = Where (below, scaled, X)",
        )
    };
}
pub(crate) use slope_below_zero;

macro_rules! celu {
    () => {
        "scaled = Div (X, alpha)
        bent = Elu <alpha = 1.0> (scaled)
        Y = Mul (alpha, bent)"
    };
}
use celu;

fn gelu(cx: &Expand<'_>) -> Option<String> {
    let numbers = concat!(number_like!("half", "0.5", "X"), number_like!("one", "1", "X"));
    let share = if cx.string("approximate").as_deref() == Some("tanh") {
        concat!(
            number_like!("two_over_pi", "0.63661977236", "X"),
            number_like!("factor", "0.044715", "X"),
            number_like!("three", "3", "X"),
            "slope = Sqrt (two_over_pi)
            cube = Pow (X, three)
            bend = Mul (factor, cube)
            bent = Sum (X, bend)
            scaled = Mul (slope, bent)
            error = Tanh (scaled)\n",
        )
    } else {
        concat!(
            number_like!("two", "2", "X"),
            "root = Sqrt (two)
            scaled = Div (X, root)
            error = Erf (scaled)\n",
        )
    };
    let product = "twice = Sum (one, error)
        halved = Mul (half, X)
        Y = Mul (halved, twice)";
    Some([numbers, share, product].concat())
}

const fn function(
    name: &'static str,
    first: &'static [Fact],
    bfloat16_too: &'static [Fact],
) -> OpDef {
    function_inferred(name, first, bfloat16_too, rules::same_as_first)
}

const fn function_inferred(
    name: &'static str,
    first: &'static [Fact],
    bfloat16_too: &'static [Fact],
    infer: InferFn,
) -> OpDef {
    OpDef::new(name)
        .split_by(elements::elementwise)
        .since(1, first)
        .since(6, const { &[NOT_IN_PLACE] })
        .same_down()
        .since(13, bfloat16_too)
        .widens()
        .infer(infer)
        .without_reference_rule(&[1])
        .adapter(5, 6, consumed_inputs::remove)
}

const fn rounding(name: &'static str) -> OpDef {
    function_inferred(
        name,
        XY,
        const { &[FIXED_X, FIXED_Y, types("T", FLOATS_IR4)] },
        // Whole numbers do not change.
        |cx| infer_elementwise(cx, Dim::clone),
    )
}

const fn smooth_named(name: &'static str, first: u32) -> OpDef {
    const FIRST: &[Fact] = &[
        input("input", "T").differentiable(),
        output("output", "T").differentiable(),
        types("T", FLOATS),
    ];
    OpDef::new(name)
        .split_by(elements::elementwise)
        .since(first, FIRST)
        .since(22, const { &[types("T", FLOATS_IR4)] })
        .widens()
        .infer(rules::same_as_first)
}

const fn smooth_xy(name: &'static str, first: u32) -> OpDef {
    OpDef::new(name)
        .split_by(elements::elementwise)
        .since(first, const { &[SMOOTH_X, SMOOTH_Y, types("T", FLOATS)] })
        .since(22, const { &[types("T", FLOATS_IR4)] })
        .widens()
        .infer(rules::same_as_first)
}

const fn activation(name: &'static str, first: &'static [Fact], bfloat16_since: u32) -> OpDef {
    OpDef::new(name)
        .split_by(elements::elementwise)
        .since(1, first)
        .since(6, const { &[SMOOTH_X, SMOOTH_Y, NOT_IN_PLACE] })
        .same_down()
        .since(bfloat16_since, const { &[types("T", FLOATS_IR4)] })
        .widens()
        .infer(rules::same_as_first)
        .without_reference_rule(&[1])
        .adapter(5, 6, consumed_inputs::remove)
}

fn infer_elementwise(cx: &mut Infer<'_>, f: fn(&Dim) -> Dim) -> Result<(), InferError> {
    rules::same_as_first(cx)?;
    shape_values::map(cx, f);
    Ok(())
}

const SELU_ALPHA: f32 = 1.673_263_2;
const SELU_GAMMA: f32 = 1.050_701;
const OLD_SELU_ALPHA: f32 = 1.6732;
const OLD_SELU_GAMMA: f32 = 1.0507;

/// Writes the defaults of version 1, which have fewer digits.
fn write_old_selu(cx: &mut Adapt<'_>) -> Result<(), Refusal> {
    write_selu(cx, OLD_SELU_ALPHA, OLD_SELU_GAMMA)?;
    consumed_inputs::remove(cx)
}

/// Writes the defaults of a version, which differ from those of its neighbour.
fn write_selu(cx: &mut Adapt<'_>, alpha: f32, gamma: f32) -> Result<(), Refusal> {
    for (name, default) in [("alpha", alpha), ("gamma", gamma)] {
        if !cx.has(name) {
            cx.set(name, default);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use sardonyx_model::AttrValue;

    use super::*;
    use crate::math::testing::{infer_type, infer_value, raise_version};

    #[test]
    fn the_output_is_like_the_input() {
        // SHAPE-16, SHAPE-22
        for def in [&EXP, &RELU, &ABS, &ERF, &SIN, &NOT, &SELU, &CEIL, &SOFTPLUS] {
            for ty in ["float[2, N, ?]", "float16", "double[...]", "?[3]", "-"] {
                assert_eq!(infer_type(def, 13, &[], ty), ty, "{}", def.name);
            }
        }
    }

    #[test]
    fn signs_of_shape_values() {
        let rows = [
            (&NEG, "[N, 3]", "[-N, -3]"),
            (&ABS, "[N, -3]", "[N, 3]"),
            (&ABS, "-3", "3"),
            (&NEG, "-", "-"),
            (&FLOOR, "float:[2, N]", "[2, N]"),
            (&NOT, "bool:[0, 1, ?]", "[1, 0, ?]"),
        ];
        for (def, input, expected) in rows {
            assert_eq!(infer_value(def, 13, &[], input), expected, "{} of {input}", def.name);
        }
    }

    #[test]
    fn defaults_belong_to_versions() {
        // NODE-22
        let alpha = |opset| {
            SELU.schema_at(opset)
                .and_then(|schema| schema.attribute("alpha").and_then(|a| a.default))
        };
        assert_ne!(alpha(1), alpha(6));
        assert_eq!(alpha(6), alpha(22));
    }

    #[test]
    fn older_nodes_keep_their_meaning() {
        let hint = ("consumed_inputs", AttrValue::from(&[0]));
        let alpha = ("alpha", AttrValue::Float(2.0));
        assert_eq!(raise_version(&RELU, 5, std::slice::from_ref(&hint), "-"), "y = Relu(a)");
        assert_eq!(raise_version(&SELU, 5, &[hint], "-"), "y = Selu(a) alpha=1.6732 gamma=1.0507");
        assert_eq!(raise_version(&SELU, 5, &[alpha], "-"), "y = Selu(a) alpha=2 gamma=1.0507");
        assert_eq!(raise_version(&ERF, 12, &[], "float[N]"), "y = Erf(a)");
        assert_eq!(
            raise_version(&ERF, 12, &[], "int8[N]"),
            "Erf: the newer version supports only floats, not int8"
        );
    }
}

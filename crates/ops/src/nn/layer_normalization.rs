//! Normalizations that look at one example only.

use sardonyx_tensor::DataType::{Bfloat16, Float};

use crate::def::OpDef;
use crate::facts::{FLOATS, FLOATS_IR4, deprecated, float, input, int, ints, output, types};
use crate::function::{
    BFLOAT16, DOUBLE, Expand, FLOAT, FLOAT16, float_scalar, float_vector, scalar, vector,
};
use crate::typeset::TypeSet;

pub(crate) static GROUP_NORMALIZATION: OpDef = OpDef::new("GroupNormalization")
    .about("Brings each group of channels to mean 0 and variance 1, then scales and shifts; since 21 with a factor for \
         each channel instead of each group.")
    .since(
        18,
        &[
            input("X", "T").differentiable(),
            input("scale", "T").differentiable(),
            input("bias", "T").differentiable(),
            output("Y", "T").differentiable(),
            float("epsilon").or_float(1e-05),
            int("num_groups").required(),
            types("T", FLOATS_IR4),
            deprecated(),
        ],
    )
    .since(21, &[int("stash_type").or(1)])
    .body_from(18, group_normalization);

pub(crate) static LAYER_NORMALIZATION: OpDef = OpDef::new("LayerNormalization")
    .about("Brings what lies behind an axis to mean 0 and variance 1, then scales and shifts it.")
    .since(
        17,
        &[
            input("X", "T"),
            input("Scale", "T"),
            input("B", "T").optional(),
            output("Y", "T"),
            output("Mean", "U").optional(),
            output("InvStdDev", "U").optional(),
            int("axis").or(-1),
            float("epsilon").or_float(1e-05),
            int("stash_type").or(1),
            types("T", FLOATS_IR4),
            types("U", TypeSet::tensors(&[Float, Bfloat16])),
        ],
    )
    .body_from(17, layer_normalization)
    .body_from(18, layer_normalization);

pub(crate) static LP_NORMALIZATION: OpDef = OpDef::new("LpNormalization")
    .about("Divides by the 1-norm or 2-norm along an axis.")
    .since(
        1,
        &[
            input("input", "T").differentiable(),
            output("output", "T").differentiable(),
            int("axis").or(-1),
            int("p").or(2),
            types("T", FLOATS),
        ],
    )
    .since(22, &[types("T", FLOATS_IR4)]);

pub(crate) static MEAN_VARIANCE_NORMALIZATION: OpDef = OpDef::new("MeanVarianceNormalization")
    .about("Subtracts the mean over some axes and divides by the standard deviation.")
    .since(
        9,
        &[
            input("X", "T"),
            output("Y", "T"),
            ints("axes").or_ints(&[0, 2, 3]),
            types("T", FLOATS),
        ],
    )
    .since(
        13,
        &[
            input("X", "T").differentiable(),
            output("Y", "T").differentiable(),
            types("T", FLOATS_IR4),
        ],
    )
    .body(
        &[9, 13],
        mean_variance!("ReduceMean <axes: ints = @axes> (", ")"),
    )
    .body(
        &[18],
        concat!(
            "axes = Constant <value_ints: ints = @axes> ()\n",
            mean_variance!("ReduceMean (", ", axes)"),
        ),
    );

/// The mean of a value is what stands between two pieces of text.
macro_rules! mean_variance {
    ($mean:literal, $end:literal) => {
        concat!(
            "two = Constant <value = float {2}> ()
            epsilon = Constant <value = float {1e-9}> ()
            mean = ",
            $mean,
            "X",
            $end,
            "
            squared_mean = Pow (mean, two)
            squares = Pow (X, two)
            mean_of_squares = ",
            $mean,
            "squares",
            $end,
            "
            variance = Sub (mean_of_squares, squared_mean)
            deviation = Sqrt (variance)
            centred = Sub (X, mean)
            divisor = Add (deviation, epsilon)
            Y = Div (centred, divisor)",
        )
    };
}
use mean_variance;

pub(crate) static RMS_NORMALIZATION: OpDef = OpDef::new("RMSNormalization")
    .about("Divides what lies behind an axis by the root of its mean square, then scales it.")
    .since(
        23,
        &[
            input("X", "T"),
            input("scale", "V"),
            output("Y", "V"),
            int("axis").or(-1),
            float("epsilon").or_float(1e-05),
            int("stash_type").or(1),
            types("T", FLOATS_IR4),
            types("V", FLOATS_IR4),
        ],
    )
    .body_from(23, rms_normalization);

/// Variance as the mean of squares less the square of the mean, and with them what is normalized. The means are what
/// stands between two pieces of text.
fn normalized(of: &str, mean: &str, end: &str) -> String {
    format!(
        "mean = {mean}{of}{end}
        squares = Mul ({of}, {of})
        mean_of_squares = {mean}squares{end}
        squared_mean = Mul (mean, mean)
        variance = Sub (mean_of_squares, squared_mean)
        raised = Add (variance, epsilon)
        deviation = Sqrt (raised)
        centred = Sub ({of}, mean)
        normalized = Div (centred, deviation)\n"
    )
}

fn layer_normalization(cx: &Expand<'_>) -> Option<String> {
    let (elem, stash, axis) = (cx.elem(0)?, cx.int("stash_type")?, cx.int("axis")?);
    if ![FLOAT, BFLOAT16].contains(&stash) {
        return None;
    }
    let constants = [
        float_scalar("float_epsilon", cx.float("epsilon")?),
        vector("zeros", &[0]),
        vector("axes", &[axis]),
    ];
    let reduced = if axis >= 0 {
        "Sub (rank, axes)"
    } else {
        "Neg (axes)"
    };
    // What lies behind the axis counts as one axis.
    let normalized = match cx.opset() {
        ..18 => normalized("wide", "ReduceMean <axes = [1]> (", ")"),
        _ => vector("second", &[1]) + &normalized("wide", "ReduceMean (", ", second)"),
    };
    let bias = match cx.has_input(2) {
        true => "bias = Flatten <axis = 0> (B)\nbiased = Add (scaled, bias)",
        false => "biased = Identity (scaled)",
    };
    let mean = if cx.has_output(1) {
        "Mean = Reshape (mean, reduced_sizes)"
    } else {
        ""
    };
    let inverse = match cx.has_output(2) {
        true => "InvStdDev = Reshape (inverse, reduced_sizes)",
        false => "",
    };
    Some(format!(
        "{}
        epsilon = Cast <to = {stash}> (float_epsilon)
        sizes = Shape (X)
        rank = Size (sizes)
        outer_sizes = Slice (sizes, zeros, axes)
        reduced_count = {reduced}
        reduced_ones = ConstantOfShape <value = int64[1] {{1}}> (reduced_count)
        reduced_sizes = Concat <axis = 0> (outer_sizes, reduced_ones)
        matrix = Flatten <axis = {axis}> (X)
        wide = Cast <to = {stash}> (matrix)
        {normalized}
        narrow = Cast <to = {elem}> (normalized)
        scale = Flatten <axis = 0> (Scale)
        scaled = Mul (narrow, scale)
        {bias}
        Y = Reshape (biased, sizes)
        inverse = Reciprocal (deviation)
        {mean}
        {inverse}",
        constants.concat(),
    ))
}

fn group_normalization(cx: &Expand<'_>) -> Option<String> {
    let (elem, groups) = (cx.elem(0)?, cx.int("num_groups")?);
    let constants = [
        float_vector("float_epsilon", cx.float("epsilon")?),
        vector("groups", &[groups]),
        vector("third", &[2]),
    ]
    .concat();
    let normalized = normalized("flat", "ReduceMean (", ", third)");
    // Before 21 everything was computed in the element type, with a scale and a bias for each group.
    let (stash, wide, typed) = match cx.since() {
        ..21 => (elem, "X", "normalized"),
        _ => (cx.int("stash_type")?, "wide", "typed"),
    };
    let (mut widened, mut by_channel) = (String::new(), String::new());
    if cx.since() >= 21 {
        if ![FLOAT, BFLOAT16, FLOAT16, DOUBLE].contains(&stash) {
            return None;
        }
        widened = format!("wide = Cast <to = {stash}> (X)");
        by_channel = format!(
            "restored = Reshape (normalized, sizes)
            channels_apart = Reshape (restored, flat_sizes)
            typed = Cast <to = {elem}> (channels_apart)"
        );
    }
    Some(format!(
        "{constants}
        epsilon = Cast <to = {stash}> (float_epsilon)
        {widened}
        sizes = Shape ({wide})
        channels = Shape <start = 1, end = 2> (X)
        group_size = Div (channels, groups)
        batch = Shape <start = 0, end = 1> (X)
        inner_sizes = Shape <start = 2> (X)
        grouped_sizes = Concat <axis = 0> (batch, groups, group_size, inner_sizes)
        grouped = Reshape ({wide}, grouped_sizes)
        flat_sizes = Constant <value_ints: ints = [0, 0, -1]> ()
        flat = Reshape (grouped, flat_sizes)
        {normalized}
        {by_channel}
        by_second = Constant <value_ints: ints = [1, -1, 1]> ()
        typed_scale = Cast <to = {elem}> (scale)
        typed_bias = Cast <to = {elem}> (bias)
        factors = Reshape (typed_scale, by_second)
        shifts = Reshape (typed_bias, by_second)
        scaled = Mul (factors, {typed})
        biased = Add (scaled, shifts)
        Y = Reshape (biased, sizes)"
    ))
}

fn rms_normalization(cx: &Expand<'_>) -> Option<String> {
    let (elem, stash, axis) = (cx.elem(0)?, cx.int("stash_type")?, cx.int("axis")?);
    if ![FLOAT, BFLOAT16, FLOAT16, DOUBLE].contains(&stash) {
        return None;
    }
    let constants = [
        float_scalar("float_epsilon", cx.float("epsilon")?),
        scalar("axis", axis),
        scalar("one", 1),
    ]
    .concat();
    let first = if axis >= 0 {
        "Identity (axis)"
    } else {
        "Add (rank, axis)"
    };
    Some(format!(
        "{constants}
        epsilon = Cast <to = {stash}> (float_epsilon)
        sizes = Shape (X)
        rank = Size (sizes)
        first = {first}
        axes = Range (first, rank, one)
        wide = Cast <to = {stash}> (X)
        squares = Mul (wide, wide)
        mean_square = ReduceMean (squares, axes)
        raised = Add (mean_square, epsilon)
        root = Sqrt (raised)
        normalized = Div (wide, root)
        narrow = Cast <to = {elem}> (normalized)
        Y = Mul (narrow, scale)"
    ))
}

//! Normalizations within one example: `GroupNormalization`, `LayerNormalization`,
//! `LpNormalization`, `MeanVarianceNormalization`, `RMSNormalization`.

use sardonyx_model::{Dim, Shape, Type, ValueId};
use sardonyx_tensor::DataType::{Bfloat16, Float};

use crate::adapt::{Adapt, Refusal};
use crate::attributes::{AttrValue, Attributes};
use crate::def::OpDef;
use crate::facts::{FLOATS, FLOATS_IR4, deprecated, float, input, int, ints, output, types};
use crate::function::{
    BFLOAT16, DOUBLE, Expand, FLOAT, FLOAT16, float_scalar, float_vector, scalar, vector,
};
use crate::infer::{Demand, Infer, InferError};
use crate::nn::gradients;
use crate::rules::{broadcast_over, demand_rank_from, elem_attribute, same_as_first, shared_dim};
use crate::sharding::{elements, layers};
use crate::typeset::TypeSet;

pub(crate) static GROUP_NORMALIZATION: OpDef = OpDef::new("GroupNormalization")
    .about("Group normalization: normalizes groups of channels of each sample. `Y = scale * (X - mean) \
         / sqrt(var + epsilon) + bias`. Since version 21 `scale` and `bias` have one element for \
         each channel; version 18, which is deprecated, has one for each group.")
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
    .never_down("the operator is deprecated in that version, where it scales groups instead of channels")
    .infer(infer_groups)
    .adapter(20, 21, write_factors_per_channel)
    .body_from(18, group_normalization)
    .without_reference_rule(&[18, 21])
    .split_by(layers::batch);

pub static LAYER_NORMALIZATION: OpDef = OpDef::new("LayerNormalization")
    .about(
        "Layer normalization over all axes from `axis` on. `Y = (X - mean) / sqrt(var + epsilon) * \
         Scale + B`. Mean and variance are computed in the type of `stash_type`.",
    )
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
    .infer(infer_layer)
    .body_from(17, layer_normalization)
    .body_from(18, layer_normalization)
    .call_body(broadcasting_layer_normalization)
    .gradient(gradients::layer_normalization)
    .split_by(elements::normalized_from_axis);

pub(crate) static LP_NORMALIZATION: OpDef = OpDef::new("LpNormalization")
    .about("Divides by the L1 or L2 norm along an axis. Where the norm is 0 the output is 0.")
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
    .since(22, &[types("T", FLOATS_IR4)])
    .widens()
    .infer(infer_along_axis)
    .gradient(gradients::lp_normalization)
    .split_by(elements::along_axis);

pub(crate) static MEAN_VARIANCE_NORMALIZATION: OpDef = OpDef::new("MeanVarianceNormalization")
    .about("Normalizes to mean 0 and variance 1 over `axes`: `Y = (X - mean) / sqrt(var)`.")
    .since(
        9,
        &[input("X", "T"), output("Y", "T"), ints("axes").or_ints(&[0, 2, 3]), types("T", FLOATS)],
    )
    .since(
        13,
        &[
            input("X", "T").differentiable(),
            output("Y", "T").differentiable(),
            types("T", FLOATS_IR4),
        ],
    )
    .widens()
    .infer(infer_over_axes)
    .infer_as_reference(infer_over_axes_as_reference)
    .body(&[9, 13], mean_variance!("ReduceMean <axes: ints = @axes> (", ")"))
    .body(
        &[18],
        concat!(
            "axes = Constant <value_ints: ints = @axes> ()\n",
            mean_variance!("ReduceMean (", ", axes)"),
        ),
    )
    .call_body(typed_mean_variance)
    .gradient(gradients::mean_variance_normalization)
    .split_by(elements::normalized_over_axes);

/// Expands to the function of `MeanVarianceNormalization`. The mean of a value is the value between
/// two pieces of text.
macro_rules! mean_variance {
    ($mean:literal, $end:literal) => {
        concat!(
            "two = Constant <value = float {2}> ()
            epsilon = Constant <value = float {1e-9}> ()\n",
            mean_variance!("X", "Y", $mean, $end)
        )
    };
    ($of:literal, $normalized:literal, $mean:literal, $end:literal) => {
        concat!(
            "mean = ",
            $mean,
            $of,
            $end,
            "
            squared_mean = Pow (mean, two)
            squares = Pow (",
            $of,
            ", two)
            mean_of_squares = ",
            $mean,
            "squares",
            $end,
            "
            variance = Sub (mean_of_squares, squared_mean)
            deviation = Sqrt (variance)
            centred = Sub (",
            $of,
            ", mean)
            divisor = Add (deviation, epsilon)\n",
            $normalized,
            " = Div (centred, divisor)\n",
        )
    };
}
use mean_variance;

/// Builds the function so that it computes 16-bit floats in float32 and double in double. The
/// function of the standard adds constants of float32, so it fits only that type.
fn typed_mean_variance(cx: &Expand<'_>) -> Result<Option<String>, String> {
    let elem = match cx.elem(0) {
        Some(FLOAT) => return Ok(None),
        Some(elem) => elem,
        None => return Err(cx.needs_type(0)),
    };
    let wide = if elem == DOUBLE { DOUBLE } else { FLOAT };
    let (axes, nodes) = match cx.opset() {
        ..18 => ("", mean_variance!("wide", "wide_Y", "ReduceMean <axes: ints = @axes> (", ")")),
        _ => (
            "axes = Constant <value_ints: ints = @axes> ()\n",
            mean_variance!("wide", "wide_Y", "ReduceMean (", ", axes)"),
        ),
    };
    Ok(Some(format!(
        "{axes}two_float = Constant <value = float {{2}}> ()
        two = Cast <to = {wide}> (two_float)
        epsilon_float = Constant <value = float {{1e-9}}> ()
        epsilon = Cast <to = {wide}> (epsilon_float)
        wide = Cast <to = {wide}> (X)
        {nodes}
        Y = Cast <to = {elem}> (wide_Y)"
    )))
}

pub static RMS_NORMALIZATION: OpDef = OpDef::new("RMSNormalization")
    .about(
        "Root mean square normalization over all axes from `axis` on: `Y = X / sqrt(mean(X^2) + \
         epsilon) * scale`. The norm is computed in the type of `stash_type`.",
    )
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
    .infer(infer_root_mean_square)
    .body_from(23, rms_normalization)
    .call_body(typed_rms_normalization)
    .split_by(elements::normalized_from_axis);

/// Infers the output like the input. Means and deviations keep the reduced axes with size 1.
fn infer_layer(cx: &mut Infer<'_>) -> Result<(), InferError> {
    let stash = elem_attribute(cx, "stash_type")?;
    let (shape, reduced) = split_at_axis(cx)?;
    cx.set_tensor(0, cx.elem(0), shape);
    for output in [1, 2] {
        cx.set_tensor(output, stash, reduced.clone());
    }
    Ok(())
}

fn infer_root_mean_square(cx: &mut Infer<'_>) -> Result<(), InferError> {
    let (shape, _) = split_at_axis(cx)?;
    cx.set_tensor(0, cx.elem(1).or(cx.elem(0)), shape);
    Ok(())
}

/// Returns the shape of the input, to which the other inputs broadcast, and the shape of a
/// statistic over the axes from `axis` on.
fn split_at_axis(cx: &Infer<'_>) -> Result<(Option<Shape>, Option<Shape>), InferError> {
    let Some(shape) = cx.shape(0) else {
        return Ok((None, None));
    };
    let axis = cx.axis(cx.int("axis").unwrap_or(-1), shape.len())?;
    let mut shape = shape.clone();
    for (input, name) in [(1, "the scale"), (2, "the bias")] {
        if let Some(other) = cx.shape(input) {
            shape = broadcast_over(cx, &shape, other, name)?;
        }
    }
    let mut reduced = shape.clone();
    reduced[axis..].fill(Dim::Known(1));
    Ok((Some(shape), Some(reduced)))
}

/// Infers the output like the input, whose channels must split into groups.
fn infer_groups(cx: &mut Infer<'_>) -> Result<(), InferError> {
    demand_rank_from(cx, 0, 2)?;
    let groups = cx.int("num_groups");
    if let Some(groups) = groups.filter(|groups| *groups < 1) {
        return cx.fail(format_args!("num_groups must be positive, not {groups}"));
    }
    cx.demand_rank(1, 1)?;
    cx.demand_rank(2, 1)?;
    let channels = if cx.since() < 21 {
        let factors = shared_dim(cx, "groups", &[(1, 0), (2, 0)])?;
        let groups = groups.map_or(Dim::Unknown, Dim::Known);
        cx.same_dim(&groups, &factors, "num_groups and the size of the scale")?;
        shared_dim(cx, "channels", &[(0, 1)])?
    } else {
        shared_dim(cx, "channels", &[(0, 1), (1, 0), (2, 0)])?
    };
    if let Some(groups) = groups {
        cx.demand(|| Demand::Equal(channels.rem(&Dim::Known(groups)), Dim::Known(0)));
    }
    if let (Some(channels), Some(groups)) = (channels.known(), groups)
        && channels % groups != 0
    {
        return cx.fail(format_args!("{channels} channels cannot be divided into {groups} groups"));
    }
    same_as_first(cx)
}

fn infer_along_axis(cx: &mut Infer<'_>) -> Result<(), InferError> {
    if let (Some(rank), Some(axis)) = (cx.rank(0), cx.int("axis")) {
        cx.axis(axis, rank)?;
    }
    same_as_first(cx)
}

fn infer_over_axes(cx: &mut Infer<'_>) -> Result<(), InferError> {
    if let (Some(rank), Some(axes)) = (cx.rank(0), cx.ints("axes")) {
        for axis in axes {
            cx.axis(axis, rank)?;
        }
    }
    same_as_first(cx)
}

/// Infers like the reference implementation, which ignores axes before version 13, and requires the
/// attribute since then.
fn infer_over_axes_as_reference(cx: &mut Infer<'_>) -> Result<(), InferError> {
    match cx.since() {
        ..13 => same_as_first(cx),
        _ if cx.attribute("axes").is_none() => cx.fail("the node has no axes"),
        _ => infer_over_axes(cx),
    }
}

/// Builds the variance as the mean of squares minus the square of the mean, and the normalized
/// value. A mean is a value between two pieces of text.
fn build_normalized(of: &str, mean: &str, end: &str) -> String {
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
    let bias = if cx.has_input(2) {
        "bias = Flatten <axis = 0> (B)\nbiased = Add (scaled, bias)"
    } else {
        "biased = Identity (scaled)"
    };
    let scaling = format!(
        "scale = Flatten <axis = 0> (Scale)
        scaled = Mul (narrow, scale)
        {bias}
        Y = Reshape (biased, sizes)"
    );
    layer_normalization_by(cx, "Reshape", &scaling)
}

/// Builds a function that broadcasts scale and bias to the shape of the input. The function of the
/// standard flattens both, so each must have as many elements as a normalized part.
fn broadcasting_layer_normalization(cx: &Expand<'_>) -> Result<Option<String>, String> {
    let Some(axis) = cx.int("axis") else { return Ok(None) };
    let shape = cx.tensor(0).and_then(|input| input.shape.as_ref());
    let is_empty = shape.is_some_and(|shape| shape.contains(&Dim::Known(0)));
    let fits = |index: usize| {
        if !cx.has_input(index) {
            return true;
        }
        let Some(factors) = cx.tensor(index).and_then(|factors| factors.shape.as_ref()) else {
            return false;
        };
        let is_last = axis == -1 || shape.is_some_and(|shape| axis + 1 == shape.len() as i64);
        let whole = shape.and_then(|shape| {
            let first = if axis < 0 { axis + shape.len() as i64 } else { axis };
            shape.get(usize::try_from(first).ok()?..)
        });
        let is_whole = whole.is_some_and(|whole| {
            whole == &factors[..] && whole.iter().all(|size| !size.is_unknown())
        });
        is_whole || is_last && factors.len() <= 1
    };
    if fits(1) && fits(2) && !is_empty {
        return Ok(None);
    }
    let reshape = if is_empty { "Reshape <allowzero = 1>" } else { "Reshape" };
    let biased = if cx.has_input(2) { "Add (scaled, B)" } else { "Identity (scaled)" };
    let scaling = format!(
        "shaped = {reshape} (narrow, sizes)
        scaled = Mul (shaped, Scale)
        Y = {biased}"
    );
    Ok(layer_normalization_by(cx, reshape, &scaling))
}

/// Builds the normalization of layers, followed by nodes that scale the result.
fn layer_normalization_by(cx: &Expand<'_>, reshape: &str, scaling: &str) -> Option<String> {
    let (elem, stash, axis) = (cx.elem(0)?, cx.int("stash_type")?, cx.int("axis")?);
    if ![FLOAT, BFLOAT16].contains(&stash) {
        return None;
    }
    let constants = [
        float_scalar("float_epsilon", cx.float("epsilon")?),
        vector("zeros", &[0]),
        vector("axes", &[axis]),
    ];
    let reduced = if axis >= 0 { "Sub (rank, axes)" } else { "Neg (axes)" };
    // All axes from `axis` on count as one axis.
    let normalized = match cx.opset() {
        ..18 => build_normalized("wide", "ReduceMean <axes = [1]> (", ")"),
        _ => vector("second", &[1]) + &build_normalized("wide", "ReduceMean (", ", second)"),
    };
    let statistic = |output: usize, name: &str, of: &str| {
        let is_there = cx.has_output(output);
        if is_there { format!("{name} = {reshape} ({of}, reduced_sizes)") } else { String::new() }
    };
    let mean = statistic(1, "Mean", "mean");
    let inverse = statistic(2, "InvStdDev", "inverse");
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
        {scaling}
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
    let normalized = build_normalized("flat", "ReduceMean (", ", third)");
    // Before 21 the function computes in the element type, with a scale and a bias for each group.
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
    rms_normalization_by(cx, "Y = Mul (narrow, scale)")
}

/// Casts the product to the type of the scale, which the output has. The function of the standard
/// multiplies numbers of the types of input and scale, which must then be equal.
fn typed_rms_normalization(cx: &Expand<'_>) -> Result<Option<String>, String> {
    let is_same = cx.elem(0).is_some() && cx.elem(0) == cx.elem(1);
    let scaling = "typed = CastLike (narrow, scale)\nY = Mul (typed, scale)";
    Ok(if is_same { None } else { rms_normalization_by(cx, scaling) })
}

/// Builds the normalization by the root mean square, followed by nodes that scale the result.
fn rms_normalization_by(cx: &Expand<'_>, scaling: &str) -> Option<String> {
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
    let first = if axis >= 0 { "Identity (axis)" } else { "Add (rank, axis)" };
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
        {scaling}"
    ))
}

/// Gives each channel its factor and its shift, since before 21 all channels of a group share them.
/// Computes in the element type.
fn write_factors_per_channel(cx: &mut Adapt<'_>) -> Result<(), Refusal> {
    let ty = cx.input_type(0);
    let Some(elem) = ty.and_then(Type::elem) else {
        return Err(cx.refuse("the element type of the input is unknown"));
    };
    let channels = ty.and_then(Type::shape).and_then(|shape| shape.get(1));
    let groups = cx.int("num_groups").filter(|groups| *groups > 0);
    let Some(channels) = channels.and_then(Dim::known) else {
        if let Some(groups) = groups.filter(|_| cx.runs()) {
            let second = [("start", AttrValue::Int(1)), ("end", AttrValue::Int(2))];
            let channels = cx.before("Shape", &[cx.input(0)], &second);
            let groups = cx.add_ints(&[groups]);
            let size = cx.before("Div", &[Some(channels), Some(groups)], &[]);
            let both = [Some(groups), Some(size)];
            let sizes = cx.before("Concat", &both, &[("axis", AttrValue::Int(0))]);
            repeat_factors(cx, sizes);
            cx.set("stash_type", i64::from(elem.number()));
            return Ok(());
        }
        return Err(cx.refuse("the number of channels is unknown"));
    };
    let Some((groups, size)) = groups.and_then(|groups| {
        let size = channels.checked_div(groups)?;
        (size.checked_mul(groups) == Some(channels)).then_some((groups, size))
    }) else {
        return Err(cx.refuse("its channels cannot be divided into num_groups groups"));
    };
    if size != 1 {
        let sizes = cx.add_ints(&[groups, size]);
        repeat_factors(cx, sizes);
    }
    cx.set("stash_type", i64::from(elem.number()));
    Ok(())
}

/// Repeats factors and shifts of groups for the channels of each group. `sizes` holds the number of
/// groups and of channels in a group.
fn repeat_factors(cx: &mut Adapt<'_>, sizes: ValueId) {
    for index in [1, 2] {
        let factors = cx.input(index);
        let (second, all) = (cx.add_ints(&[1]), cx.add_ints(&[-1]));
        let column = cx.before("Unsqueeze", &[factors, Some(second)], &[]);
        let table = cx.before("Expand", &[Some(column), Some(sizes)], &[]);
        let by_channel = cx.before("Reshape", &[Some(table), Some(all)], &[]);
        cx.set_input(index, Some(by_channel));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::AttrValue::Int;
    use crate::tensor::testing::{check, ints, outputs};

    #[test]
    fn statistics_keep_their_axes() {
        // SHAPE-16, SHAPE-20, SHAPE-22
        let rows = [
            (
                vec![],
                "float16[N, 4, 8]; float16[8]; float16[8]",
                "float16[N, 4, 8]; float[N, 4, 1]; float[N, 4, 1]",
            ),
            (
                vec![("axis", Int(1)), ("stash_type", Int(16))],
                "float16[N, 4, ?]; float16[?, 8]",
                "float16[N, 4, 8]; bfloat16[N, 1, 1]; bfloat16[N, 1, 1]",
            ),
            (vec![], "float[...]; -", "float[...]; float[...]; float[...]"),
            (vec![], "-; -", "?[...]; float[...]; float[...]"),
            (vec![], "float; -", "LayerNormalization: axis -1 is out of range for rank 0"),
            (
                vec![("axis", Int(3))],
                "float[1, 2, 3]; -",
                "LayerNormalization: axis 3 is out of range for rank 3",
            ),
            (
                vec![("stash_type", Int(-940))],
                "-; -",
                "LayerNormalization: stash_type = -940 is not an element type",
            ),
            (
                vec![],
                "float[2, 3]; float[2]",
                "LayerNormalization: the sizes of axis 1 of input 0 and the scale differ (3 and 2)",
            ),
            (
                vec![],
                "float[3]; -; float[3, 3]",
                "LayerNormalization: the bias has rank 2, which does not broadcast to rank 1",
            ),
        ];
        for (attributes, inputs, expected) in rows {
            let found = outputs(&LAYER_NORMALIZATION, 17, &attributes, inputs, 3);
            assert_eq!(found, expected, "{inputs}");
        }
    }

    #[test]
    fn scale_broadcasts_to_the_input() {
        check(
            &RMS_NORMALIZATION,
            23,
            &[
                (&[("axis", Int(2))], "float16[N, C, H, W]; float[H, W]", "float[N, C, H, W]"),
                (&[], "float16[N, C]; -", "float16[N, C]"),
                (
                    &[("axis", Int(-3))],
                    "float16[N, C]; -",
                    "RMSNormalization: axis -3 is out of range for rank 2",
                ),
            ],
        );
    }

    #[test]
    fn channels_split_into_groups() {
        let groups = || ("num_groups", Int(2));
        check(
            &GROUP_NORMALIZATION,
            18,
            &[
                (&[groups()], "float[N, 6, H]; float[2]; float[?]", "float[N, 6, H]"),
                (
                    &[groups()],
                    "float[N, 6, H]; float[6]; float[6]",
                    "GroupNormalization: num_groups and the size of the scale differ (2 and 6)",
                ),
            ],
        );
        check(
            &GROUP_NORMALIZATION,
            21,
            &[
                (&[groups()], "float[N, 6, H]; float[6]; float[6]", "float[N, 6, H]"),
                (&[groups()], "-; -; -", "-"),
                (
                    &[groups()],
                    "float[N, 6, H]; float[2]; float[2]",
                    "GroupNormalization: channels of input 1 and of others differ (6 and 2)",
                ),
                (
                    &[groups()],
                    "float[N, 5, H]; -; -",
                    "GroupNormalization: 5 channels cannot be divided into 2 groups",
                ),
                (
                    &[("num_groups", Int(0))],
                    "-; -; -",
                    "GroupNormalization: num_groups must be positive, not 0",
                ),
            ],
        );
    }

    #[test]
    fn axes_must_exist() {
        for opset in [1, 22] {
            check(
                &LP_NORMALIZATION,
                opset,
                &[
                    (&[], "float[3, N, 5]", "float[3, N, 5]"),
                    (
                        &[("axis", Int(3))],
                        "float[3, N, 5]",
                        "LpNormalization: axis 3 is out of range for rank 3",
                    ),
                ],
            );
        }
        for opset in [9, 13] {
            check(
                &MEAN_VARIANCE_NORMALIZATION,
                opset,
                &[
                    (&[], "float[25, 48, H, ?]", "float[25, 48, H, ?]"),
                    (&[("axes", ints(&[-1]))], "float[25]", "float[25]"),
                    (
                        &[],
                        "float[25, 48, 16]",
                        "MeanVarianceNormalization: axis 3 is out of range for rank 3",
                    ),
                ],
            );
        }
    }
}

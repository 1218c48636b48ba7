//! `Resize` and its deprecated predecessor `Upsample`.

use std::fmt;

use sardonyx_model::{Dim, Shape, ValueId};
use sardonyx_tensor::DataType::{Bool, Double, Float, Float16, Int32, Int64};
use sardonyx_tensor::Tensor;

use super::factors::{Policy, resized, scale_size};
use super::gradients;
use crate::adapt::{Adapt, Refusal};
use crate::attributes::{AttrValue, Attributes};
use crate::def::OpDef;
use crate::downward::{constant_floats, constant_ints, from_front};
use crate::facts::{
    ALL, ALL_IR4, FLOATS, deprecated, float, floats, input, int, ints, note, output, string, types,
    without_attribute,
};
use crate::infer::{Infer, InferError, Rule};
use crate::known::MAX_KNOWN;
use crate::rules::{distinct_axes, shared_dim};
use crate::tensor::vector_len;
use crate::typeset::TypeSet;

pub static RESIZE: OpDef = OpDef::new("Resize")
    .about(
        "Resizes a tensor by scale factors or to given sizes, with nearest, linear or cubic \
         interpolation. With `scales` the size of each output axis is `floor(input size * scale)`; \
         with `coordinate_transformation_mode` `tf_crop_and_resize` the input size is that of the \
         region `roi`. A scale that is the 32-bit float nearest to a quotient of two sizes is taken \
         as that quotient. `coordinate_transformation_mode` maps output coordinates to input \
         coordinates. In version 10, mode `nearest` takes the element before the coordinate on axes \
         that grow, and the one after it on axes that shrink.",
    )
    .since(
        10,
        &[
            input("X", "T"),
            input("scales", "tensor(float)"),
            output("Y", "T"),
            string("mode").or_word("nearest"),
            types("T", ALL),
        ],
    )
    .since_anew(
        11,
        &[
            input("X", "T1"),
            input("roi", "T2"),
            input("scales", "tensor(float)"),
            input("sizes", "tensor(int64)").optional(),
            output("Y", "T1"),
            string("coordinate_transformation_mode").or_word("half_pixel"),
            float("cubic_coeff_a").or_float(-0.75),
            int("exclude_outside").or(0),
            float("extrapolation_value").or_float(0.0),
            string("mode").or_word("nearest"),
            string("nearest_mode").or_word("round_prefer_floor"),
            types("T1", ALL),
            types("T2", FLOATS),
        ],
    )
    .since(
        13,
        &[
            input("X", "T1").differentiable(),
            input("roi", "T2").optional().non_differentiable(),
            input("scales", "tensor(float)").optional().non_differentiable(),
            input("sizes", "tensor(int64)").optional().non_differentiable(),
            output("Y", "T1").differentiable(),
            types("T1", ALL_IR4),
        ],
    )
    .since(
        18,
        &[
            int("antialias").or(0),
            ints("axes"),
            string("keep_aspect_ratio_policy").or_word("stretch"),
        ],
    )
    .same_up()
    .since(19, &[note("Adds the coordinate transformation mode `half_pixel_symmetric`.")])
    .same_up()
    .infer(infer_resize)
    .infer_as_reference(infer_resize_as_reference)
    .differs(resize_differs)
    .adapter(10, 11, write_coordinates)
    .adapter(12, 13, rewrite_half_pixel_for_nn)
    .adapter(10, 9, become_upsample)
    .adapter(11, 10, demand_asymmetric)
    .adapter(13, 12, write_absent_inputs)
    .adapter(18, 17, resize_all_axes)
    .adapter(19, 18, |cx| {
        if cx.string("coordinate_transformation_mode").as_deref() == Some("half_pixel_symmetric") {
            return Err(cx.refuse(
                "coordinate_transformation_mode half_pixel_symmetric came with version 19",
            ));
        }
        Ok(())
    })
    .keeps_format(&[])
    .gradient(gradients::resize);

pub(crate) static UPSAMPLE: OpDef = OpDef::new("Upsample")
    .about("Enlarges a tensor by scale factors, with nearest or linear interpolation. Deprecated since \
         version 10: use `Resize`.")
    .since(
        1,
        &[
            input("X", "T"),
            output("Y", "T"),
            float("height_scale").required(),
            string("mode").or_word("nearest"),
            float("width_scale").required(),
            types(
                "T",
                TypeSet::tensors(&[Float16, Float, Double, Int32, Int64, Bool]),
            ),
        ],
    )
    .since(
        7,
        &[
            without_attribute("height_scale"),
            without_attribute("width_scale"),
            floats("scales").required(),
            types("T", ALL),
        ],
    )
    .since(
        9,
        &[
            input("scales", "tensor(float)"),
            without_attribute("scales"),
        ],
    )
    .since(10, &[deprecated()])
    .same_down()
    .infer(infer_upsample)
    .adapter(6, 7, write_all_scales)
    .adapter(7, 6, write_image_scales)
    .adapter(9, 8, move_scales_to_attribute)
    .adapter(8, 9, move_scales_to_input)
    .adapter(9, 10, |cx| {
        cx.become_operator("Resize");
        // No scale is below 1, which version 11 can express, but version 10 cannot.
        if cx.runs() {
            cx.set("nearest_mode", "floor");
        }
        Ok(())
    })
    .replaced_by("Resize")
    .infer_as_reference(infer_upsample_as_reference)
    .differs(|cx| sizes_differ(cx, &upsample_factors(cx)?, None))
    .without_reference_rule(&[1]);

/// Replaces the node by `Upsample`, which only enlarges.
fn become_upsample(cx: &mut Adapt<'_>) -> Result<(), Refusal> {
    let scales = constant_floats(cx, 1, "scales")?;
    if scales.is_none_or(|scales| scales.iter().any(|scale| *scale < 1.0)) {
        return Err(cx.refuse("Upsample requires scales of at least 1"));
    }
    cx.become_operator("Upsample");
    Ok(())
}

fn move_scales_to_attribute(cx: &mut Adapt<'_>) -> Result<(), Refusal> {
    let Some(scales) = constant_floats(cx, 1, "scales")? else {
        return Err(cx.refuse("the input scales is missing"));
    };
    cx.keep_inputs(1);
    cx.set("scales", &scales[..]);
    Ok(())
}

/// Writes the scales of height and width, the only axes that version 1 enlarges.
fn write_image_scales(cx: &mut Adapt<'_>) -> Result<(), Refusal> {
    let scales = match cx.attribute("scales") {
        Some(AttrValue::Floats(scales)) => scales.into_owned(),
        _ => Vec::new(),
    };
    let &[1.0, 1.0, height, width] = &scales[..] else {
        return Err(cx.refuse("version 1 enlarges height and width of an image, and nothing else"));
    };
    if cx.string("mode").as_deref() == Some("linear") {
        cx.set("mode", "bilinear");
    }
    cx.remove("scales");
    cx.set("height_scale", height);
    cx.set("width_scale", width);
    Ok(())
}

/// Refuses coordinates that version 10 lacks: it counts positions from the corner, and reads the
/// element after a position where an axis shrinks, before it where an axis grows.
fn demand_asymmetric(cx: &mut Adapt<'_>) -> Result<(), Refusal> {
    let mode = cx.string("mode").unwrap_or_else(|| "nearest".to_string());
    let places = cx.string("coordinate_transformation_mode");
    if places.as_deref() != Some("asymmetric") {
        return Err(
            cx.refuse("coordinate_transformation_mode must be asymmetric, which version 10 uses")
        );
    }
    match mode.as_str() {
        "linear" => {}
        "nearest" => {
            let nearest = cx.string("nearest_mode");
            demand_nearest_of_10(cx, nearest.as_deref().unwrap_or("round_prefer_floor"))?;
        }
        _ => return Err(cx.refuse(format_args!("version 10 has no mode {mode}"))),
    }
    if is_empty(cx, 2) || !is_empty(cx, 3) {
        return Err(cx.refuse("version 10 takes scales, and the node has sizes"));
    }
    for name in [
        "coordinate_transformation_mode",
        "cubic_coeff_a",
        "exclude_outside",
        "extrapolation_value",
        "nearest_mode",
    ] {
        cx.remove(name);
    }
    cx.set_inputs(&[cx.input(0), cx.input(2)]);
    Ok(())
}

/// Refuses a choice of the nearest element that version 10 would not make from the scale of each
/// axis.
fn demand_nearest_of_10(cx: &Adapt<'_>, nearest: &str) -> Result<(), Refusal> {
    let fits: fn(&f32) -> bool = match nearest {
        "floor" => |scale| *scale >= 1.0,
        "ceil" => |scale| *scale <= 1.0,
        other => {
            return Err(cx.refuse(format_args!(
                "nearest_mode must be floor or ceil, which version 10 uses, not {other}"
            )));
        }
    };
    let scales = cx.constant(2).and_then(|scales| scales.to_vec::<f32>().ok());
    match scales {
        Some(scales) if scales.iter().all(fits) => Ok(()),
        Some(_) => Err(cx.refuse(format_args!(
            "version 10 uses nearest_mode floor where a scale is above 1 and ceil where it is below, \
             and this node uses {nearest} for all scales"
        ))),
        None => Err(cx.refuse(format_args!(
            "version 10 chooses nearest_mode by the scale, and whether all scales mean {nearest} is \
             known only if they are constant"
        ))),
    }
}

/// Whether an input is absent or certain to be empty, which version 11 treats as absent.
fn is_empty(cx: &Adapt<'_>, index: usize) -> bool {
    let shape = cx.input_type(index).and_then(|ty| ty.shape());
    cx.input(index).is_none()
        || shape.is_some_and(|shape| shape[..] == [Dim::Known(0)])
        || cx.constant(index).is_some_and(|values| values.is_empty())
}

/// Writes empty tensors for inputs that newer versions leave out.
fn write_absent_inputs(cx: &mut Adapt<'_>) -> Result<(), Refusal> {
    for index in [1, 2] {
        if cx.input(index).is_none() {
            let nothing = Tensor::from_vec([0], Vec::<f32>::new());
            let nothing = nothing.map_err(|error| cx.refuse(error))?;
            let nothing = cx.add_constant(nothing);
            cx.set_input(index, Some(nothing));
        }
    }
    Ok(())
}

/// Resizes all axes explicitly, since older versions have no list of axes, no antialiasing and only
/// one policy.
fn resize_all_axes(cx: &mut Adapt<'_>) -> Result<(), Refusal> {
    if let Some(antialias) = cx.int("antialias") {
        return Err(cx.refuse(format_args!("antialias={antialias} was added in version 18")));
    }
    if let Some(policy) = cx.string("keep_aspect_ratio_policy") {
        return Err(
            cx.refuse(format_args!("keep_aspect_ratio_policy={policy} was added in version 18"))
        );
    }
    let Some(axes) = cx.ints("axes") else { return Ok(()) };
    if axes.is_empty() {
        // Without a list, all axes change.
        cx.remove("axes");
        return Ok(());
    }
    let Some(rank) = cx.rank(0) else {
        return Err(cx.refuse("axes require the rank of the input, which is unknown"));
    };
    let axes = axes.into_iter().map(|axis| from_front(cx, "axes", axis, Some(rank)));
    let axes = axes.collect::<Result<Vec<i64>, _>>()?;
    cx.remove("axes");
    if axes.iter().copied().eq(0..rank as i64) {
        return Ok(());
    }
    if cx.string("coordinate_transformation_mode").as_deref() == Some("tf_crop_and_resize") {
        return Err(cx.refuse("the region of interest is one of some axes"));
    }
    let place = |axis: &i64| usize::try_from(*axis).ok().filter(|axis| *axis < rank);
    let places: Option<Vec<usize>> = axes.iter().map(place).collect();
    let Some(places) = places else {
        return Err(cx.refuse(format_args!("axes has a value out of range for rank {rank}")));
    };
    if !is_empty(cx, 2) {
        extend_scales(cx, &places, rank)?;
    }
    if !is_empty(cx, 3) {
        extend_sizes(cx, &places, rank)?;
    }
    Ok(())
}

fn extend_scales(cx: &mut Adapt<'_>, places: &[usize], rank: usize) -> Result<(), Refusal> {
    if cx.constant(2).is_none() {
        let one = Tensor::from_slice([1], &[1f32]).map_err(|error| cx.refuse(error))?;
        let one = cx.add_constant(one);
        extend_input(cx, 2, one, places, |_| 0, rank);
        return Ok(());
    }
    let scales = constant_floats(cx, 2, "scales")?.unwrap_or_default();
    let mut all = vec![1f32; rank];
    places.iter().zip(scales).for_each(|(axis, scale)| all[*axis] = scale);
    let all = Tensor::from_vec([rank], all).map_err(|error| cx.refuse(error))?;
    let all = cx.add_constant(all);
    cx.set_input(2, Some(all));
    Ok(())
}

fn extend_sizes(cx: &mut Adapt<'_>, places: &[usize], rank: usize) -> Result<(), Refusal> {
    let shape = cx.input_type(0).and_then(|ty| ty.shape());
    let whole = shape.and_then(|shape| shape.iter().map(Dim::known).collect());
    if let Some::<Vec<i64>>(mut all) = whole.filter(|_| cx.constant(3).is_some()) {
        let sizes = constant_ints(cx, 3, "sizes")?.unwrap_or_default();
        places.iter().zip(sizes).for_each(|(axis, size)| all[*axis] = size);
        let all = cx.add_ints(&all);
        cx.set_input(3, Some(all));
    } else {
        let found = cx.before("Shape", &[cx.input(0)], &[]);
        extend_input(cx, 3, found, places, |axis| axis, rank);
    }
    Ok(())
}

/// Extends an input that has an element for each of some axes to all axes. The other elements come
/// from `others`.
fn extend_input(
    cx: &mut Adapt<'_>,
    index: usize,
    others: ValueId,
    places: &[usize],
    of_other: impl Fn(usize) -> usize,
    rank: usize,
) {
    let of_axis = |axis: usize| {
        let place = places.iter().position(|place| *place == axis);
        place.unwrap_or_else(|| places.len() + of_other(axis)) as i64
    };
    let picked: Vec<i64> = (0..rank).map(of_axis).collect();
    let both = cx.before("Concat", &[cx.input(index), Some(others)], &[("axis", 0i64.into())]);
    let picked = cx.add_ints(&picked);
    let all = cx.before("Gather", &[Some(both), Some(picked)], &[]);
    cx.set_input(index, Some(all));
}

/// Writes the coordinates of version 10, which has one transformation and no region. Its nearest
/// element is the one before a position on an axis that grows, and the one after it on an axis that
/// shrinks.
fn write_coordinates(cx: &mut Adapt<'_>) -> Result<(), Refusal> {
    let scales = cx.input(1);
    let no_region = Tensor::from_slice([0], &[0f32; 0]).expect("a vector of no elements");
    let no_region = cx.add_constant(no_region);
    let is_linear = cx.string("mode").as_deref() == Some("linear");
    // Coming from Upsample, which only enlarges, the node has this attribute.
    let only_grows = cx.has("nearest_mode");
    let known = cx.constant(1).and_then(|scales| scales.to_vec::<f32>().ok());
    let nearest = if is_linear || only_grows {
        "floor"
    } else {
        let is_any =
            |test: fn(&f32) -> bool| known.as_ref().is_none_or(|list| list.iter().any(test));
        match (is_any(|scale| *scale < 1.0), is_any(|scale| *scale > 1.0)) {
            (true, true) => return shrink_and_grow(cx, known.as_deref(), no_region),
            (true, false) => "ceil",
            (false, _) => "floor",
        }
    };
    cx.set("coordinate_transformation_mode", "asymmetric");
    cx.set("nearest_mode", nearest);
    cx.set_inputs(&[cx.input(0), Some(no_region), scales]);
    Ok(())
}

/// Adds one node that shrinks axes and one that grows axes: an axis changes in one of them and has
/// scale 1 in the other.
fn shrink_and_grow(
    cx: &mut Adapt<'_>,
    known: Option<&[f32]>,
    no_region: ValueId,
) -> Result<(), Refusal> {
    if cx.has("mode") && cx.attribute("mode").is_none() {
        return Err(cx.refuse("the mode is that of a call, and axes may shrink and grow"));
    }
    let (smaller, larger) = (
        limit_scales(cx, known, "Min", |scale| if scale > 1.0 { 1.0 } else { scale })?,
        limit_scales(cx, known, "Max", |scale| if scale < 1.0 { 1.0 } else { scale })?,
    );
    let words = |nearest: &'static str| {
        [
            ("coordinate_transformation_mode", "asymmetric".into()),
            ("mode", "nearest".into()),
            ("nearest_mode", nearest.into()),
        ]
    };
    let operands = [cx.input(0), Some(no_region), Some(smaller)];
    let shrunk = cx.before("Resize", &operands, &words("ceil"));
    for (name, word) in words("floor") {
        cx.set(name, word);
    }
    cx.set_inputs(&[Some(shrunk), Some(no_region), Some(larger)]);
    Ok(())
}

/// Limits the scales to at most or at least 1.
fn limit_scales(
    cx: &mut Adapt<'_>,
    known: Option<&[f32]>,
    op: &'static str,
    bound: fn(f32) -> f32,
) -> Result<ValueId, Refusal> {
    let constant = |numbers: Vec<f32>| Tensor::from_vec([numbers.len()], numbers);
    let Some(known) = known else {
        let one = constant(vec![1.0]).map_err(|error| cx.refuse(error))?;
        let one = cx.add_constant(one);
        return Ok(cx.before(op, &[cx.input(1), Some(one)], &[]));
    };
    let numbers = constant(known.iter().map(|scale| bound(*scale)).collect());
    let numbers = numbers.map_err(|error| cx.refuse(error))?;
    Ok(cx.add_constant(numbers))
}

/// Replaces `tf_half_pixel_for_nn`: its positions are half an element further than those of
/// `half_pixel`, so rounding down replaces rounding to the nearest, and so on.
fn rewrite_half_pixel_for_nn(cx: &mut Adapt<'_>) -> Result<(), Refusal> {
    let places = cx.string("coordinate_transformation_mode");
    let Some(places @ "tf_half_pixel_for_nn") = places.as_deref() else {
        return Ok(());
    };
    let mode = cx.string("mode").unwrap_or_else(|| "nearest".to_string());
    let nearest = cx.string("nearest_mode").unwrap_or_else(|| "round_prefer_floor".to_string());
    let nearest = match (mode.as_str(), nearest.as_str()) {
        ("nearest", "floor") => "round_prefer_ceil",
        ("nearest", "round_prefer_floor") => "ceil",
        ("nearest", other) => {
            return Err(cx.refuse(format_args!(
                "versions from 13 on have no mode {places}, nor an equivalent with nearest_mode {other}"
            )));
        }
        (other, _) => {
            return Err(cx.refuse(format_args!(
                "versions from 13 on have no mode {places}, nor an equivalent with mode {other}"
            )));
        }
    };
    cx.set("coordinate_transformation_mode", "half_pixel");
    cx.set("nearest_mode", nearest);
    Ok(())
}

/// Writes the scales of all axes, since the first version scales the last two of four axes.
fn write_all_scales(cx: &mut Adapt<'_>) -> Result<(), Refusal> {
    match cx.rank(0) {
        Some(4) => {}
        // A run with another rank fails, since there are four scales.
        None if cx.runs() => {}
        Some(rank) => return Err(cx.refuse(format_args!("its input has rank {rank}, not 4"))),
        None => return Err(cx.refuse("the rank of its input is unknown")),
    }
    let (Some(height), Some(width)) = (cx.float("height_scale"), cx.float("width_scale")) else {
        return Err(cx.refuse("height_scale or width_scale is missing"));
    };
    if cx.string("mode").as_deref() == Some("bilinear") {
        cx.set("mode", "linear");
    }
    cx.remove("height_scale");
    cx.remove("width_scale");
    cx.set("scales", &[1.0, 1.0, height, width][..]);
    Ok(())
}

fn move_scales_to_input(cx: &mut Adapt<'_>) -> Result<(), Refusal> {
    let scales = match cx.attribute("scales") {
        Some(AttrValue::Floats(scales)) => scales.into_owned(),
        _ => return Err(cx.refuse("scales is missing")),
    };
    cx.remove("scales");
    let scales = Tensor::from_slice([scales.len()], &scales).expect("as many as it has");
    let scales = cx.add_constant(scales);
    cx.set_input(1, Some(scales));
    Ok(())
}

/// Indices of the inputs with scales and sizes, by version.
struct Inputs {
    scales: usize,
    sizes: Option<usize>,
}

/// Returns the indices of the inputs with scales and sizes.
fn find_inputs(cx: &Infer<'_>) -> Inputs {
    match cx.since() {
        ..11 => Inputs { scales: 1, sizes: None },
        _ => Inputs { scales: 2, sizes: Some(3) },
    }
}

/// Infers like the reference implementation, which refuses sizes of unknown number, and takes
/// scales as stored.
fn infer_resize_as_reference(cx: &mut Infer<'_>) -> Result<(), InferError> {
    let sizes = find_inputs(cx).sizes.filter(|input| is_given(cx, *input));
    if let Some(sizes) = sizes
        && cx.rank(0).is_some()
        && cx.known_value(sizes).is_none()
        && vector_len(cx, sizes).is_none()
    {
        return cx.fail("the number of sizes is unknown");
    }
    resize_by(cx, Rule::Reference)
}

fn infer_resize(cx: &mut Infer<'_>) -> Result<(), InferError> {
    resize_by(cx, Rule::Operator)
}

fn resize_by(cx: &mut Infer<'_>, rule: Rule) -> Result<(), InferError> {
    let inputs = find_inputs(cx);
    let policy = Policy::new(cx)?;
    let scales = Some(inputs.scales).filter(|input| is_given(cx, *input));
    let sizes = inputs.sizes.filter(|input| is_given(cx, *input));
    if cx.since() >= 13 && scales.is_some() == sizes.is_some() {
        return cx.fail("either scales or sizes must be given, not both");
    }
    if scales.is_some() && sizes.is_none() && policy.is_some() {
        return cx.fail("keep_aspect_ratio_policy requires sizes");
    }
    let axes = axes(cx)?;
    let (shape, by) = match (sizes, scales) {
        (Some(sizes), _) => (infer_from_sizes(cx, sizes, axes.as_deref(), policy)?, sizes),
        (None, Some(scales)) => {
            let factors = known_floats(cx, scales);
            check_len(cx, "scales", scales, axes.as_deref())?;
            (infer_from_factors(cx, factors.as_deref(), axes.as_deref(), rule)?, scales)
        }
        (None, None) => (None, inputs.scales),
    };
    set_output(cx, shape, by);
    Ok(())
}

fn infer_upsample_as_reference(cx: &mut Infer<'_>) -> Result<(), InferError> {
    upsample_by(cx, Rule::Reference)
}

fn infer_upsample(cx: &mut Infer<'_>) -> Result<(), InferError> {
    upsample_by(cx, Rule::Operator)
}

fn upsample_by(cx: &mut Infer<'_>, rule: Rule) -> Result<(), InferError> {
    match cx.since() {
        ..7 => cx.demand_rank(0, 4)?,
        7..9 => {}
        _ => check_len(cx, "scales", 1, None)?,
    }
    let shape = infer_from_factors(cx, upsample_factors(cx).as_deref(), None, rule)?;
    set_output(cx, shape, 1);
    Ok(())
}

/// Returns the factors of all axes, if they are known.
fn upsample_factors(cx: &Infer<'_>) -> Option<Vec<f32>> {
    match cx.since() {
        ..7 => Some(vec![1.0, 1.0, cx.float("height_scale")?, cx.float("width_scale")?]),
        7..9 => match cx.attribute("scales") {
            Some(AttrValue::Floats(scales)) => Some(scales.into_owned()),
            _ => None,
        },
        _ => known_floats(cx, 1),
    }
}

/// Returns the difference on ONNX Runtime, which computes other sizes for some scales, and rounds
/// the size down in the formulas of `align_corners`.
fn resize_differs(cx: &Infer<'_>) -> Option<String> {
    let inputs = find_inputs(cx);
    if inputs.sizes.is_some_and(|input| is_given(cx, input)) {
        return None;
    }
    let (factors, axes) = (known_floats(cx, inputs.scales)?, axes(cx).ok()?);
    sizes_differ(cx, &factors, axes.as_deref()).or_else(|| {
        let mode = cx.string("coordinate_transformation_mode");
        mode.filter(|mode| mode == "align_corners")?;
        fraction_differs(cx, &factors, axes.as_deref())
    })
}

/// Number of sizes that are tried for an axis of unknown size.
const SIZES_TRIED: i64 = 4096;

/// Returns an example of a size that differs on ONNX Runtime, which multiplies sizes and scales as
/// 32-bit floats.
fn sizes_differ(cx: &Infer<'_>, factors: &[f32], axes: Option<&[usize]>) -> Option<String> {
    let shape = cx.shape(0)?;
    let mut changed = changed_axes(axes, shape.len()).into_iter().zip(factors);
    changed.find_map(|(axis, factor)| {
        let known = shape[axis].known();
        let sizes = known.map_or(1..=SIZES_TRIED, |size| size..=size);
        sizes.filter_map(|size| Some((size, usize::try_from(size).ok()?))).find_map(
            |(size, len)| {
                let ours = resized(len, *factor).size;
                let other = f64::from((factor * len as f32).floor());
                let given = if known.is_none() {
                    format!(" where the input has {size}")
                } else {
                    String::new()
                };
                (ours != other).then(|| {
                    format!("axis {axis} has {ours} elements{given}; ONNX Runtime gives it {other}")
                })
            },
        )
    })
}

/// Returns an example of a size whose product with its scale is not a whole number.
fn fraction_differs(cx: &Infer<'_>, factors: &[f32], axes: Option<&[usize]>) -> Option<String> {
    let shape = cx.shape(0)?;
    let mut changed = changed_axes(axes, shape.len()).into_iter().zip(factors);
    changed.find_map(|(axis, factor)| {
        let len = usize::try_from(shape[axis].known()?).ok()?;
        let exact = len as f64 * resized(len, *factor).scale;
        (exact.fract() != 0.0).then(|| {
            format!(
                "align_corners takes {exact} for the size of axis {axis}; ONNX Runtime takes {}",
                exact.floor()
            )
        })
    })
}

/// Sets the type of the output. Unknown sizes depend on the value of an input.
fn set_output(cx: &mut Infer<'_>, shape: Option<Shape>, by: usize) {
    let is_open = |shape: &Shape| shape.iter().any(Dim::is_unknown);
    if shape.as_ref().is_some_and(is_open) && cx.known_value(by).is_none() && cx.has_input(by) {
        cx.set_reason(0, "the values of the sizes or scales");
    }
    cx.set_tensor(0, cx.elem(0), shape);
}

/// Whether the node has a list. An empty one counts as absent, which it meant before inputs could
/// be absent.
fn is_given(cx: &Infer<'_>, input: usize) -> bool {
    let is_empty = match cx.known_value(input) {
        Some(known) => known.dims() == [0],
        None => cx.shape(input).is_some_and(|shape| shape[..] == [Dim::Known(0)]),
    };
    cx.has_input(input) && !is_empty
}

/// Returns the floats of a constant input.
fn known_floats(cx: &Infer<'_>, input: usize) -> Option<Vec<f32>> {
    let tensor = cx.known_value(input)?.to_tensor()?;
    let is_list = tensor.data_type() == Float && tensor.len() <= MAX_KNOWN;
    tensor.to_vec().ok().filter(|_| is_list)
}

/// Returns the axes that change, or `None` if all do.
fn axes(cx: &Infer<'_>) -> Result<Option<Vec<usize>>, InferError> {
    let (Some(axes), Some(rank)) = (cx.ints("axes"), cx.rank(0)) else {
        return Ok(None);
    };
    let resolved = distinct_axes(cx, &axes, rank)?;
    // The reference treats an empty list as all axes.
    Ok(Some(resolved).filter(|axes| !axes.is_empty()))
}

/// Checks that a list has one element per axis, even if only its length is known.
fn check_len(
    cx: &Infer<'_>,
    name: &str,
    input: usize,
    axes: Option<&[usize]>,
) -> Result<(), InferError> {
    cx.demand_rank(input, 1)?;
    let found = shared_dim(cx, "elements", &[(input, 0)])?;
    let count = match axes {
        Some(axes) => Some(axes.len()),
        None => cx.rank(0).filter(|_| cx.ints("axes").is_none_or(|axes| axes.is_empty())),
    };
    if let Some(count) = count {
        cx.same_dim(&found, &count.into(), format_args!("elements of {name} and axes"))?;
    }
    Ok(())
}

/// Infers the sizes from one factor per axis.
fn infer_from_factors(
    cx: &Infer<'_>,
    factors: Option<&[f32]>,
    axes: Option<&[usize]>,
    rule: Rule,
) -> Result<Option<Shape>, InferError> {
    let Some(factors) = factors else {
        return Ok(open_shape(cx, axes));
    };
    if let Some(factor) = factors.iter().find(|factor| !(**factor > 0.0 && factor.is_finite())) {
        return cx.fail(format_args!("a scale must be positive, not {factor:?}"));
    }
    let Some(shape) = cx.shape(0) else {
        return Ok(None);
    };
    let mut shape = shape.clone();
    for (index, axis) in changed_axes(axes, shape.len()).into_iter().enumerate() {
        let Some(factor) = factors.get(index) else {
            return wrong_count(cx, "scales", factors.len(), axes, shape.len());
        };
        shape[axis] = scale_size(&shape[axis], *factor, rule);
    }
    if axes.is_none() && factors.len() != shape.len() {
        return wrong_count(cx, "scales", factors.len(), axes, shape.len());
    }
    Ok(Some(shape))
}

fn wrong_count<T>(
    cx: &Infer<'_>,
    name: impl fmt::Display,
    found: usize,
    axes: Option<&[usize]>,
    rank: usize,
) -> Result<T, InferError> {
    let count = axes.map_or(rank, <[usize]>::len);
    cx.fail(format_args!("{name} has {found} elements for {count} axes"))
}

/// Returns the axes that change.
fn changed_axes(axes: Option<&[usize]>, rank: usize) -> Vec<usize> {
    axes.map_or_else(|| (0..rank).collect(), <[usize]>::to_vec)
}

/// Returns the shape of the input with unknown sizes of the axes that change.
fn open_shape(cx: &Infer<'_>, axes: Option<&[usize]>) -> Option<Shape> {
    let mut shape = cx.shape(0)?.clone();
    for axis in changed_axes(axes, shape.len()) {
        shape[axis] = Dim::Unknown;
    }
    Some(shape)
}

/// Infers the sizes from one size per axis.
fn infer_from_sizes(
    cx: &Infer<'_>,
    input: usize,
    axes: Option<&[usize]>,
    policy: Option<Policy>,
) -> Result<Option<Shape>, InferError> {
    check_len(cx, "sizes", input, axes)?;
    let Some(wanted) = cx.known_ints(input) else {
        return Ok(open_shape(cx, axes));
    };
    if let Some(size) = wanted.iter().filter_map(Dim::known).find(|size| *size < 0) {
        return cx.fail(format_args!("a size must not be negative, not {size}"));
    }
    let Some(shape) = cx.shape(0) else {
        let is_whole = policy.is_none() && cx.ints("axes").is_none();
        return Ok(is_whole.then(|| wanted.into_iter().collect()));
    };
    let mut shape = shape.clone();
    let places = changed_axes(axes, shape.len());
    if places.len() != wanted.len() {
        return wrong_count(cx, "sizes", wanted.len(), axes, shape.len());
    }
    let sizes: Vec<Dim> = places.iter().map(|axis| shape[*axis].clone()).collect();
    let given = match policy {
        Some(policy) => policy.adjust(&sizes, &wanted),
        None => wanted,
    };
    for (axis, size) in places.into_iter().zip(given) {
        shape[axis] = size;
    }
    Ok(Some(shape))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tensor::testing::{check, ints, word};

    #[test]
    fn factors_set_sizes() {
        let scales = "~[1.0, 1.1, 1.3, 1.9]";
        let x = "int32[2, 4, 3, 5]";
        check(&RESIZE, 10, &[(&[], &format!("{x}; {scales}"), "int32[2, 4, 3, 9]")]);
        for opset in [11, 13, 18, 19] {
            check(
                &RESIZE,
                opset,
                &[
                    (&[], &format!("{x}; float[8]; {scales}"), "int32[2, 4, 3, 9]"),
                    (&[], "float[N, C, H, W]; -; ~[1, 1, 2, 0.5]", "float[N, C, 2*H, floor(W/2)]"),
                    (
                        &[],
                        "float[N, 3, H, ?]; -; ~[1, 1, 0.75, 2]",
                        "float[N, 3, floor((3*H)/4), ?]",
                    ),
                    (&[], "float[1, 1, 1, 16777217]; -; ~[1, 1, 1, 2]", "float[1, 1, 1, 33554434]"),
                    (&[], "float[N, 3]; -; float[2]", "float[?, ?]"),
                    (&[], "float[...]; -; ~[1, 2]", "float[...]"),
                    // An empty list counts as absent.
                    (&[], &format!("{x}; -; {scales}; =[]"), "int32[2, 4, 3, 9]"),
                    (
                        &[],
                        "float[1, 2]; -; ~[1, 2, 3]",
                        "Resize: elements of scales and axes differ (3 and 2)",
                    ),
                    (&[], "float[1, 2]; -; ~[1, -2]", "Resize: a scale must be positive, not -2.0"),
                ],
            );
        }
        check(
            &RESIZE,
            18,
            &[
                (
                    &[("axes", ints(&[3, 2]))],
                    "float[2, N, 3, 5]; _; ~[1.9, 1.3]",
                    "float[2, N, 3, 9]",
                ),
                (&[("axes", ints(&[-1]))], "float[2, N]; _; float[1]", "float[2, ?]"),
                (&[("axes", ints(&[1, -1]))], "float[2, N]; _; -", "Resize: axis 1 is given twice"),
                (
                    &[("axes", ints(&[2]))],
                    "float[2, N]; _; -",
                    "Resize: axis 2 is out of range for rank 2",
                ),
                (
                    &[("keep_aspect_ratio_policy", word("not_larger"))],
                    "float[2, N]; _; -",
                    "Resize: keep_aspect_ratio_policy requires sizes",
                ),
            ],
        );
    }

    #[test]
    fn given_sizes_are_kept() {
        // SHAPE-16, SHAPE-25
        check(&RESIZE, 11, &[(&[], "float[2, 4]; -; float[2]; =[3, N]", "float[3, N]")]);
        for opset in [13, 18, 19] {
            check(
                &RESIZE,
                opset,
                &[
                    (&[], "float[2, 4]; -; _; =[3, N]", "float[3, N]"),
                    (&[], "float[...]; -; _; =[3, N]", "float[3, N]"),
                    (&[], "float[2, 4]; -; float[0]; =[3, 5]", "float[3, 5]"),
                    (&[], "float[2, 4]; -; _; int64[2]", "float[?, ?]"),
                    (&[], "-; -; _; -", "?[...]"),
                    (
                        &[],
                        "float[2, 4]; -; _; =[3]",
                        "Resize: elements of sizes and axes differ (1 and 2)",
                    ),
                    (
                        &[],
                        "float[2, 4]; -; _; =[3, -1]",
                        "Resize: a size must not be negative, not -1",
                    ),
                    (
                        &[],
                        "float[2, 4]; -; float[2]; int64[2]",
                        "Resize: either scales or sizes must be given, not both",
                    ),
                    (
                        &[],
                        "float[2, 4]; -",
                        "Resize: either scales or sizes must be given, not both",
                    ),
                ],
            );
        }
    }

    #[test]
    fn proportions_are_kept() {
        let policy = |name: &'static str| ("keep_aspect_ratio_policy", word(name));
        let axes = || ("axes", ints(&[2, 3]));
        check(
            &RESIZE,
            19,
            &[
                (&[policy("not_larger")], "float[3, 5]; _; _; =[6, 6]", "float[4, 6]"),
                (&[policy("not_smaller")], "float[3, 5]; _; _; =[6, 6]", "float[6, 10]"),
                (
                    &[policy("not_larger"), axes()],
                    "float[N, 4, 3, 5]; _; _; =[6, 6]",
                    "float[N, 4, 4, 6]",
                ),
                (
                    &[policy("not_larger"), axes()],
                    "float[2, 4, 3, W]; _; _; =[6, 6]",
                    "float[2, 4, ?, ?]",
                ),
                (
                    &[policy("not_larger")],
                    "float[16777217, 16777217]; _; _; =[16777217, 16777217]",
                    "float[16777217, 16777217]",
                ),
                (&[policy("not_smaller")], "float[N]; _; _; =[7]", "float[7]"),
                // No factor enlarges an empty axis.
                (&[policy("not_smaller")], "float[0, 2]; _; _; =[7, 7]", "float[?, ?]"),
                (
                    &[policy("larger")],
                    "float[3, 5]; _; _; =[6, 6]",
                    "Resize: keep_aspect_ratio_policy has no value \"larger\"",
                ),
            ],
        );
    }

    #[test]
    fn upsample_scales_sizes() {
        let scales = || ("scales", AttrValue::Floats(vec![1.0, 1.1, 1.3, 1.9].into()));
        let row = [(&[scales()][..], "int32[2, 4, 3, 5]", "int32[2, 4, 3, 9]")];
        check(&UPSAMPLE, 7, &row);
        let first =
            [("height_scale", AttrValue::Float(2.0)), ("width_scale", AttrValue::Float(1.5))];
        check(
            &UPSAMPLE,
            1,
            &[
                (&first, "float[N, 3, H, 5]", "float[N, 3, 2*H, 7]"),
                (&[], "float[N, 3, H, 5]", "float[?, ?, ?, ?]"),
                (&first, "float[3]", "Upsample: input 0 must have rank 4, not 1"),
            ],
        );
        for opset in [9, 10] {
            check(
                &UPSAMPLE,
                opset,
                &[
                    (&[], "float[N, 2]; ~[1, 2]", "float[N, 4]"),
                    (&[], "float[N, 2]; float[2]", "float[?, ?]"),
                    (&[], "-; -", "?[...]"),
                ],
            );
        }
    }

    #[test]
    fn older_forms_are_expressed_by_newer_ones() {
        use crate::math::testing::raise_version;
        assert_eq!(
            raise_version(&RESIZE, 10, &[("mode", "linear".into())], "-; -"),
            "y = Resize(a, [], b) mode=linear coordinate_transformation_mode=asymmetric \
             nearest_mode=floor"
        );
        let mode = |mode: &'static str| [("coordinate_transformation_mode", mode.into())];
        assert_eq!(
            raise_version(&RESIZE, 12, &mode("tf_half_pixel_for_nn"), "-"),
            "y = Resize(a) coordinate_transformation_mode=half_pixel nearest_mode=ceil"
        );
        let [transform] = mode("tf_half_pixel_for_nn");
        assert_eq!(
            raise_version(&RESIZE, 12, &[transform.clone(), ("mode", "linear".into())], "-"),
            "Resize: versions from 13 on have no mode tf_half_pixel_for_nn, nor an equivalent with \
             mode linear"
        );
        assert_eq!(
            raise_version(&RESIZE, 12, &[transform, ("nearest_mode", "ceil".into())], "-"),
            "Resize: versions from 13 on have no mode tf_half_pixel_for_nn, nor an equivalent with \
             nearest_mode ceil"
        );
        assert_eq!(
            raise_version(&RESIZE, 12, &mode("half_pixel"), "-"),
            "y = Resize(a) coordinate_transformation_mode=half_pixel"
        );
        let sides = || {
            vec![("height_scale", AttrValue::Float(2.0)), ("width_scale", AttrValue::Float(3.0))]
        };
        let word_of = |mode: &'static str| ("mode", AttrValue::from(mode));
        assert_eq!(
            raise_version(&UPSAMPLE, 6, &sides(), "float[1, 1, 2, 2]"),
            "y = Upsample(a) scales=[1.0, 1.0, 2.0, 3.0]"
        );
        assert_eq!(
            raise_version(
                &UPSAMPLE,
                6,
                &[sides(), vec![word_of("bilinear")]].concat(),
                "float[1, 1, 2, 2]"
            ),
            "y = Upsample(a) mode=linear scales=[1.0, 1.0, 2.0, 3.0]"
        );
        assert_eq!(
            raise_version(&UPSAMPLE, 6, &sides(), "float[2, 2]"),
            "Upsample: its input has rank 2, not 4"
        );
        assert_eq!(
            raise_version(&UPSAMPLE, 6, &sides(), "-"),
            "Upsample: the rank of its input is unknown"
        );
        let scales = [("scales", AttrValue::Floats(vec![1.0, 2.0].into()))];
        assert_eq!(raise_version(&UPSAMPLE, 8, &scales, "-"), "y = Upsample(a, [1.0, 2.0])");
        assert_eq!(raise_version(&UPSAMPLE, 9, &[], "-; -"), "y = Resize(a, b)");
    }

    #[test]
    fn newer_forms_are_refused_where_older_ones_differ() {
        use crate::math::testing::lower_version;
        let scales = ("scales", AttrValue::Floats(vec![1.0, 1.0, 2.0, 3.0].into()));
        assert_eq!(
            lower_version(&UPSAMPLE, 7, &[scales, ("mode", "linear".into())], "-"),
            "y = Upsample(a) mode=bilinear height_scale=2 width_scale=3"
        );
        let linear =
            [("mode", "linear".into()), ("coordinate_transformation_mode", "asymmetric".into())];
        let sizes = "Resize: version 10 takes scales, and the node has sizes";
        for (inputs, expected) in [
            ("float[2]; _; float[1]", "y = Resize(a, c) mode=linear"),
            ("float[2]; _; float[1]; int64[0]", "y = Resize(a, c) mode=linear"),
            ("float[2]; _; float[0]; int64[1]", sizes),
            ("float[2]; _; float[...]; int64[1]", sizes),
            ("float[2]; _; float[0]", sizes),
            ("float[2]; _; _; =[3]", sizes),
        ] {
            assert_eq!(lower_version(&RESIZE, 11, &linear, inputs), expected, "{inputs}");
        }
        let all = [("axes", ints(&[]))];
        assert_eq!(lower_version(&RESIZE, 18, &all, "-; _; float[2]"), "y = Resize(a, -, c)");
        let some = [("axes", ints(&[-1, 1]))];
        assert_eq!(
            lower_version(&RESIZE, 18, &some, "float[N, 2, 3]; _; float[2]"),
            "t5 = Concat(c, [1.0]) axis=0; t6 = Gather(t5, [2, 1, 0]); y = Resize(a, -, t6)"
        );
        assert_eq!(
            lower_version(&RESIZE, 18, &some, "float[N, 2, 3]; _; float[0]; int64[2]"),
            "t5 = Shape(a); t6 = Concat(d, t5) axis=0; t7 = Gather(t6, [2, 1, 0]); \
             y = Resize(a, -, c, t7)"
        );
        assert_eq!(
            lower_version(&RESIZE, 18, &some, "float[4, 2, 3]; _; _; =[6, 5]"),
            "y = Resize(a, -, -, [4, 5, 6])"
        );
    }
}

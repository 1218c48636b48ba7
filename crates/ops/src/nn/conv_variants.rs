//! `ConvTranspose`, `DeformConv` and `Col2Im`.

use sardonyx_model::{Dim, Shape};

use super::conv::{Convolution, group, kernel_sizes};
use super::window::{Padding, Window, explicit_pads, per_axis};
use crate::attributes::Attributes;
use crate::cost::{Counted, elements};
use crate::def::OpDef;
use crate::facts::{ALL_IR4, FLOATS, FLOATS_IR4, input, int, ints, output, string, types};
use crate::image::gradients::deform_conv;
use crate::infer::Rule;
use crate::infer::{Infer, InferError};
use crate::known::MAX_KNOWN;
use crate::nn::gradients;
use crate::rules;
use crate::sharding::layers;
use crate::{Adapt, Refusal};

pub(crate) static COL2IM: OpDef = OpDef::new("Col2Im")
    .about(
        "Combines columns of image blocks into images; overlapping elements are added. The inverse \
         of the `im2col` rearrangement.",
    )
    .since(
        18,
        &[
            input("input", "T").differentiable(),
            input("image_shape", "tensor(int64)").non_differentiable(),
            input("block_shape", "tensor(int64)").non_differentiable(),
            output("output", "T").differentiable(),
            ints("dilations"),
            ints("pads"),
            ints("strides"),
            types("T", ALL_IR4),
        ],
    )
    .infer(columns_to_image)
    .gradient(gradients::col2im);

// If `output_shape` leaves an odd number of elements to crop, version 1 crops the larger half at
// the end and version 11 at the beginning. With `auto_pad` SAME_UPPER or SAME_LOWER, the document
// of version 1 contradicts itself: its formula puts the larger half at the other end than the
// description of `auto_pad`. The formula of version 11 agrees with the description, which is taken
// for both.
pub static CONV_TRANSPOSE: OpDef = OpDef::new("ConvTranspose")
    .about(
        "Transposed convolution (deconvolution). The size of each spatial output axis is `stride * \
         (D - 1) + output_padding + dilation * (K - 1) + 1 - pad_begin - pad_end`. If \
         `output_shape` is given, the pads are computed from it.",
    )
    .since(
        1,
        &[
            input("X", "T"),
            input("W", "T"),
            input("B", "T").optional(),
            output("Y", "T"),
            string("auto_pad").or_word("NOTSET"),
            ints("dilations"),
            int("group").or(1),
            ints("kernel_shape"),
            ints("output_padding"),
            ints("output_shape"),
            ints("pads"),
            ints("strides"),
            types("T", FLOATS),
        ],
    )
    .since(
        11,
        &[
            input("X", "T").differentiable(),
            input("W", "T").differentiable(),
            input("B", "T").optional().differentiable(),
            output("Y", "T").differentiable(),
        ],
    )
    .since(22, &[types("T", FLOATS_IR4)])
    .widens()
    .infer(infer_transposed)
    .adapter(10, 11, crop_more_at_end)
    .adapter(11, 10, crop_by_pads)
    .infer_as_reference(infer_transposed_as_reference)
    .keeps_format(&[])
    .cost(count_transposed)
    .gradient(gradients::conv_transpose)
    .split_by(layers::conv_transpose);

pub(crate) static DEFORM_CONV: OpDef = OpDef::new("DeformConv")
    .about(
        "Deformable convolution: the sampling positions of the filter are shifted by the input \
         `offset` and weighted by `mask`. Values between elements are interpolated bilinearly; \
         positions outside are 0.",
    )
    .since(
        19,
        &[
            input("X", "T"),
            input("W", "T"),
            input("offset", "T"),
            input("B", "T").optional(),
            input("mask", "T").optional(),
            output("Y", "T"),
            ints("dilations"),
            int("group").or(1),
            ints("kernel_shape"),
            int("offset_group").or(1),
            ints("pads"),
            ints("strides"),
            types("T", FLOATS),
        ],
    )
    .since(22, &[types("T", FLOATS_IR4)])
    .widens()
    .infer(infer_deformed)
    .infer_as_reference(infer_deformed_as_reference)
    .keeps_format(&[])
    .cost(|node| node.convolution(1))
    .gradient(deform_conv);

/// Counts each input element once per element of a kernel, `[C, M / group, K1, …]` without the
/// first axis.
fn count_transposed(node: &Counted<'_>) -> Option<Dim> {
    let kernel = elements(node.shape(1)?.get(1..)?)?;
    Some(node.elements(0)?.mul(&kernel))
}

fn columns_to_image(cx: &mut Infer<'_>) -> Result<(), InferError> {
    let shape = image_shape(cx)?;
    cx.set_tensor(0, cx.elem(0), shape);
    Ok(())
}

/// Infers `[N, C, D1, …]` from `[N, C * K1 * …, L]`.
fn image_shape(cx: &Infer<'_>) -> Result<Option<Shape>, InferError> {
    cx.demand_rank(0, 3)?;
    cx.demand_rank(1, 1)?;
    cx.demand_rank(2, 1)?;
    let (image, block) = (cx.known_ints(1), cx.known_ints(2));
    let Some(axes) = image_axes(cx, image.as_deref(), block.as_deref())? else {
        return Ok(None);
    };
    explicit_pads(cx, axes)?;
    for name in ["dilations", "strides"] {
        per_axis(cx, name, axes, 1)?;
    }
    let columns = rules::shared_dim(cx, "columns", &[(0, 1)])?;
    let channels = match block {
        Some(block) => columns.floor_div(&block_size(cx, &block)?),
        None => Dim::Unknown,
    };
    let batch = rules::shared_dim(cx, "batch", &[(0, 0)])?;
    let image = image.unwrap_or_else(|| vec![Dim::Unknown; axes]);
    Ok(Some([batch, channels].into_iter().chain(image).collect()))
}

/// Returns the number of spatial axes, which follows from any of several inputs and attributes.
fn image_axes(
    cx: &Infer<'_>,
    image: Option<&[Dim]>,
    block: Option<&[Dim]>,
) -> Result<Option<usize>, InferError> {
    let what = "spatial axes";
    let mut axes = rules::shared_dim(cx, what, &[(1, 0), (2, 0)])?;
    let pads = cx.ints("pads");
    if let Some(pads) = pads.as_ref().filter(|pads| pads.len() % 2 != 0) {
        return cx.fail(format_args!("pads has {} elements, an odd number", pads.len()));
    }
    let lengths = [
        image.map(<[Dim]>::len),
        block.map(<[Dim]>::len),
        pads.map(|pads| pads.len() / 2),
        cx.ints("dilations").map(|dilations| dilations.len()),
        cx.ints("strides").map(|strides| strides.len()),
    ];
    for length in lengths.into_iter().flatten() {
        axes = cx.same_dim(&axes, &length.into(), "numbers of spatial axes")?;
    }
    Ok(axes.size().filter(|axes| *axes <= MAX_KNOWN))
}

/// Returns the number of elements of a block.
fn block_size(cx: &Infer<'_>, block: &[Dim]) -> Result<Dim, InferError> {
    let mut elements = Dim::Known(1);
    for size in block {
        if let Some(size) = size.known().filter(|size| *size < 1) {
            return cx.fail(format_args!("a block must have positive sizes, not {size}"));
        }
        let product = elements.mul(size);
        elements = rules::check_overflow(cx, "the size of a block", product, &[&elements, size])?;
    }
    Ok(elements)
}

fn infer_deformed(cx: &mut Infer<'_>) -> Result<(), InferError> {
    let shape = DEFORMED.output_shape(cx)?;
    set_deformed(cx, shape)
}

fn infer_deformed_as_reference(cx: &mut Infer<'_>) -> Result<(), InferError> {
    let shape = DEFORMED.shape_as_reference(cx)?;
    set_deformed(cx, shape)
}

fn set_deformed(cx: &mut Infer<'_>, shape: Option<Shape>) -> Result<(), InferError> {
    if let Some(shape) = &shape {
        // Offsets hold a number for each spatial axis, the mask one factor.
        check_offsets(cx, shape, 2, shape.len() as i64 - 2)?;
        check_offsets(cx, shape, 4, 1)?;
    }
    cx.set_tensor(0, cx.elem(0), shape);
    Ok(())
}

const DEFORMED: Convolution = Convolution { x: 0, w: 1, bias: Some(3) };

/// Checks that offsets or the mask have `per_place` channels for each element of the kernel in each
/// group, and one element per window.
fn check_offsets(
    cx: &Infer<'_>,
    output: &Shape,
    input: usize,
    per_place: i64,
) -> Result<(), InferError> {
    let (Some(found), Some(w)) = (cx.shape(input), cx.shape(1)) else {
        return Ok(());
    };
    cx.demand_rank(input, output.len())?;
    let groups = cx.int("offset_group").unwrap_or(1);
    if groups < 1 {
        return cx.fail(format_args!("offset_group must be positive, not {groups}"));
    }
    let places = w[2..].iter().fold(Dim::Known(1), |all, size| all.mul(size));
    let channels = places.mul(&Dim::Known(groups)).mul(&Dim::Known(per_place));
    let expected = [&output[0], &channels].into_iter().chain(&output[2..]);
    for (axis, (found, expected)) in found.iter().zip(expected).enumerate() {
        let what = format_args!("size {axis} of input {input} and of the kernel");
        cx.same_dim(found, expected, what)?;
    }
    Ok(())
}

/// Whether the cropped elements follow from a given output size without `auto_pad` SAME.
fn crops_output(cx: &Adapt<'_>) -> bool {
    let is_same = matches!(cx.string("auto_pad").as_deref(), Some("SAME_UPPER" | "SAME_LOWER"));
    !is_same && cx.ints("output_shape").is_some_and(|sizes| !sizes.is_empty())
}

/// Crops the larger half at the end like version 1, which SAME_UPPER does. `pads` have no effect
/// then.
fn crop_more_at_end(cx: &mut Adapt<'_>) -> Result<(), Refusal> {
    if crops_output(cx) {
        cx.remove("pads");
        cx.set("auto_pad", "SAME_UPPER");
    }
    Ok(())
}

/// Crops the larger half at the beginning like version 11, which takes explicit pads in version 1.
/// A larger output is padded at the end, by `output_padding`.
fn crop_by_pads(cx: &mut Adapt<'_>) -> Result<(), Refusal> {
    if !crops_output(cx) {
        return Ok(());
    }
    let output = cx.ints("output_shape").unwrap_or_default();
    let known = |index: usize| -> Option<Vec<i64>> {
        let dims = cx.input_type(index)?.shape()?.get(2..)?;
        dims.iter().map(Dim::known).collect()
    };
    let (Some(sizes), Some(kernel)) = (known(0), known(1)) else {
        return Err(
            cx.refuse("the sizes of X and W must be known: output_shape cuts off at the other end")
        );
    };
    let [strides, dilations, mut extra] = [("strides", 1), ("dilations", 1), ("output_padding", 0)]
        .map(|(name, default)| {
            let list = cx.ints(name).filter(|list| !list.is_empty());
            list.unwrap_or(vec![default; output.len()])
        });
    let lists = [&sizes, &kernel, &strides, &dilations, &extra];
    if lists.iter().any(|list| list.len() != output.len()) {
        return Err(cx.refuse("output_shape does not have as many sizes as the input"));
    }
    let (mut begins, mut ends) = (Vec::new(), Vec::new());
    for (axis, wanted) in output.iter().enumerate() {
        let reach = (sizes[axis] as i128 - 1) * strides[axis] as i128
            + (kernel[axis] as i128 - 1) * dilations[axis] as i128
            + extra[axis] as i128
            + 1;
        let cut = reach - *wanted as i128;
        let Some((cut, added)) = i64::try_from(cut.max(0))
            .ok()
            .zip(i64::try_from(extra[axis] as i128 - cut.min(0)).ok())
        else {
            return Err(cx.refuse(format_args!("the sizes of axis {axis} overflow 64 bits")));
        };
        begins.push(cut - cut / 2);
        ends.push(cut / 2);
        extra[axis] = added;
    }
    if extra.iter().any(|size| *size != 0) {
        cx.set("output_padding", &extra[..]);
    }
    cx.remove("output_shape");
    cx.remove("auto_pad");
    cx.set("pads", &[begins, ends].concat()[..]);
    Ok(())
}

fn infer_transposed(cx: &mut Infer<'_>) -> Result<(), InferError> {
    let shape = infer_transposed_shape(cx, Rule::Operator)?;
    cx.set_tensor(0, cx.elem(0), shape);
    Ok(())
}

fn infer_transposed_as_reference(cx: &mut Infer<'_>) -> Result<(), InferError> {
    let shape = infer_transposed_shape(cx, Rule::Reference)?;
    cx.set_tensor(0, cx.elem(0), shape);
    Ok(())
}

fn infer_transposed_shape(cx: &Infer<'_>, rule: Rule) -> Result<Option<Shape>, InferError> {
    for (input, name) in [(0, "input"), (1, "weight tensor")] {
        if let Some(rank) = cx.rank(input).filter(|rank| *rank < 3) {
            return cx.fail(format_args!("the {name} has rank {rank}, not at least 3"));
        }
    }
    let group = group(cx)?;
    let (Some(x), Some(w)) = (cx.shape(0), cx.shape(1)) else {
        return Ok(None);
    };
    if x.len() != w.len() {
        return cx.fail(format_args!(
            "the weight tensor has rank {}, but the input has rank {}",
            w.len(),
            x.len()
        ));
    }
    let given = cx.ints("kernel_shape");
    let kernel = kernel_sizes(cx, Some(w), given.as_deref(), w.len())?;
    let is_open = kernel.iter().any(|size| size.known().is_none());
    let channels = count_transposed_channels(cx, x, w, group)?;
    let spatial = spread(cx, &x[2..], kernel)?;
    // The reference implementation leaves the shape open then, like for `Conv`.
    if is_open && rule == Rule::Reference {
        return Ok(None);
    }
    let all = [x[0].clone(), channels].into_iter().chain(spatial);
    Ok(Some(all.collect()))
}

fn count_transposed_channels(
    cx: &Infer<'_>,
    x: &Shape,
    w: &Shape,
    group: i64,
) -> Result<Dim, InferError> {
    let input = cx.same_dim(&x[1], &w[0], "channels of X and W")?;
    if let Some(channels) = input.known().filter(|channels| channels % group != 0) {
        // Tests of the reference look for these words.
        return cx.fail(format_args!(
            "Input channels C must be divisible by group for ConvTranspose, not {channels} by {group}"
        ));
    }
    let channels = w[1].mul(&Dim::Known(group));
    let channels = rules::check_overflow(cx, "the output channels", channels, &[&w[1]])?;
    cx.demand_rank(2, 1)?;
    match cx.shape(2) {
        Some(bias) => cx.same_dim(&channels, &bias[0], "output channels of W times group and B"),
        None => Ok(channels),
    }
}

/// Infers the spatial sizes of a transposed convolution: elements are a stride apart, and each
/// spreads over the range of the kernel.
fn spread(cx: &Infer<'_>, sizes: &[Dim], kernel: Vec<Dim>) -> Result<Vec<Dim>, InferError> {
    let axes = sizes.len();
    let is_automatic = cx.string("auto_pad").is_some_and(|mode| mode != "NOTSET");
    if is_automatic && cx.attribute("pads").is_some() {
        return cx.fail("pads and auto_pad are both given");
    }
    let window = Window::new(cx, kernel)?;
    let extra = per_axis(cx, "output_padding", axes, 0)?.unwrap_or_else(|| vec![0; axes]);
    if let Some(given) = per_axis(cx, "output_shape", axes, 0)? {
        return Ok(given.into_iter().map(Dim::Known).collect());
    }
    let size = |axis: usize| {
        let (size, stride) = (&sizes[axis], Dim::Known(window.strides[axis]));
        let spread = match &window.padding {
            Padding::Same => size.mul(&stride),
            Padding::Explicit(pads) => size
                .sub(&Dim::Known(1))
                .mul(&stride)
                .add(&window.reach[axis])
                .add(&Dim::Known(extra[axis]))
                .sub(&Dim::Known(pads[axis].0))
                .sub(&Dim::Known(pads[axis].1)),
        };
        let spread = rules::check_overflow(cx, "the output", spread, &[size, &window.reach[axis]])?;
        match spread.known() {
            Some(found) if found < 0 && size.known() != Some(0) => cx.fail(format_args!(
                "the pads are too large: spatial axis {axis} would have size {found}"
            )),
            Some(found) => Ok(Dim::Known(found.max(0))),
            None => Ok(spread),
        }
    };
    (0..axes).map(size).collect()
}

#[cfg(test)]
mod tests {
    use super::{COL2IM, CONV_TRANSPOSE, DEFORM_CONV};
    use crate::AttrValue::Int;
    use crate::math::testing::{lower_version, raise_version};
    use crate::tensor::testing::{check, ints, word};

    #[test]
    fn transposed_convolutions_enlarge_images() {
        // SHAPE-16
        let x = "float[25, 48, 16, 16]; float[48, 32, 3, 3]";
        let strides = || ("strides", ints(&[2, 2]));
        let pads = || ("pads", ints(&[1, 1, 2, 2]));
        for opset in [1, 11, 22] {
            check(
                &CONV_TRANSPOSE,
                opset,
                &[
                    (&[strides()], x, "float[25, 32, 33, 33]"),
                    (&[strides(), pads()], x, "float[25, 32, 30, 30]"),
                    (&[strides(), ("auto_pad", word("SAME_UPPER"))], x, "float[25, 32, 32, 32]"),
                    (
                        &[strides(), pads(), ("dilations", ints(&[3, 3]))],
                        x,
                        "float[25, 32, 34, 34]",
                    ),
                    (&[strides(), ("output_padding", ints(&[1, 0]))], x, "float[25, 32, 34, 33]"),
                    (
                        &[pads(), ("group", Int(2)), ("output_shape", ints(&[36, 37]))],
                        x,
                        "float[25, 64, 36, 37]",
                    ),
                    (
                        &[strides(), ("kernel_shape", ints(&[3, 3]))],
                        "float[N, C, H, ?]; float[48, 32, ?, ?]; float[32]",
                        "float[N, 32, 2*H + 1, ?]",
                    ),
                    (&[], "float[1, 48, 9]; float[48, 32, ?]", "float[1, 32, ?]"),
                    (&[], "float[1, 48, 9]; float[...]", "float[...]"),
                    (&[], "-; -", "?[...]"),
                    (
                        &[pads(), ("auto_pad", word("SAME_UPPER"))],
                        x,
                        "ConvTranspose: pads and auto_pad are both given",
                    ),
                    (
                        &[("group", Int(5))],
                        x,
                        "ConvTranspose: Input channels C must be divisible by group for ConvTranspose, not 48 by 5",
                    ),
                    (
                        &[("output_shape", ints(&[-1, 6]))],
                        x,
                        "ConvTranspose: output_shape must not be negative, not -1",
                    ),
                    (
                        &[("output_padding", ints(&[-1, 0]))],
                        x,
                        "ConvTranspose: output_padding must not be negative, not -1",
                    ),
                    (
                        &[("group", Int(2))],
                        "float[1, 2, 1]; float[2, 9223372036854775807, 1]",
                        "ConvTranspose: the output channels overflows 64 bits",
                    ),
                    (
                        &[],
                        "float[1, 2, 1]; float[2, 3, 1, 1]",
                        "ConvTranspose: the weight tensor has rank 4, but the input has rank 3",
                    ),
                    (
                        &[],
                        "float[1, 2, 1]; float",
                        "ConvTranspose: the weight tensor has rank 0, not at least 3",
                    ),
                    (
                        &[("pads", ints(&[2, 2]))],
                        "float[1, 2, 1]; float[2, 3, 1]",
                        "ConvTranspose: the pads are too large: spatial axis 0 would have size -3",
                    ),
                ],
            );
        }
    }

    #[test]
    fn an_odd_number_is_cropped_at_the_right_end() {
        let shape = || ("output_shape", ints(&[8]));
        let strides = || ("strides", ints(&[2]));
        let x = "float[1, 2, 4]; float[2, 2, 3]";
        let up = [
            (
                vec![strides(), ("pads", ints(&[1, 1]))],
                "y = ConvTranspose(a, b) strides=[2] pads=[1, 1]",
            ),
            (
                vec![strides(), shape(), ("pads", ints(&[1, 1]))],
                "y = ConvTranspose(a, b) strides=[2] output_shape=[8] auto_pad=SAME_UPPER",
            ),
            (
                vec![shape(), ("auto_pad", word("SAME_LOWER"))],
                "y = ConvTranspose(a, b) output_shape=[8] auto_pad=SAME_LOWER",
            ),
        ];
        for (attributes, expected) in up {
            assert_eq!(raise_version(&CONV_TRANSPOSE, 10, &attributes, x), expected);
        }
        let down = [
            (vec![strides(), shape()], x, "y = ConvTranspose(a, b) strides=[2] pads=[1, 0]"),
            (
                vec![strides(), shape()],
                "float[1, 2, N]; float[2, 2, 3]",
                "ConvTranspose: the sizes of X and W must be known: output_shape cuts off at the other end",
            ),
            (vec![shape()], x, "y = ConvTranspose(a, b) output_padding=[2] pads=[0, 0]"),
            (
                vec![shape(), ("auto_pad", word("SAME_UPPER"))],
                "float[1, 2, N]; float[2, 2, 3]",
                "y = ConvTranspose(a, b) output_shape=[8] auto_pad=SAME_UPPER",
            ),
        ];
        for (attributes, inputs, expected) in down {
            assert_eq!(lower_version(&CONV_TRANSPOSE, 11, &attributes, inputs), expected);
        }
    }

    #[test]
    fn offsets_match_windows() {
        check(
            &DEFORM_CONV,
            19,
            &[
                (
                    &[],
                    "float[N, 3, 9, W]; float[8, 3, 2, 2]; float[N, 8, 8, ?]",
                    "float[N, 8, 8, W - 1]",
                ),
                (
                    &[("offset_group", Int(3))],
                    "float[2, 3, 9, 9]; float[8, 3, 2, 2]; float[2, 24, 8, 8]; _; float[2, 12, 8, 8]",
                    "float[2, 8, 8, 8]",
                ),
                // One offset for each spatial axis.
                (&[], "float[1, 2, 5]; float[1, 2, 2]; float[1, 2, 4]", "float[1, 1, 4]"),
                (
                    &[],
                    "float[1, 2, 3, 3, 2]; float[1, 2, 2, 1, 2]; float[1, 12, 2, 3, 1]; _; float[1, 4, 2, 3, 1]",
                    "float[1, 1, 2, 3, 1]",
                ),
                (
                    &[],
                    "float[2, 3, 9, 9]; float[8, 3, 2, 2]; float[2, 9, 8, 8]",
                    "DeformConv: size 1 of input 2 and of the kernel differ (9 and 8)",
                ),
                (
                    &[],
                    "float[2, 3, 9, 9]; float[8, 3, 2, 2]; -; float[7]",
                    "DeformConv: output channels of W and B differ (8 and 7)",
                ),
                (&[], "-; -; -", "?[...]"),
            ],
        );
    }

    #[test]
    fn columns_become_images() {
        let long = "float[1, 1, 8]; int64[9223372036854775807]; int64[9223372036854775807]";
        check(
            &COL2IM,
            18,
            &[
                (&[], "float[1, 5, 5]; =[5, 5]; =[1, 5]", "float[1, 1, 5, 5]"),
                (
                    &[("pads", ints(&[0, 1, 0, 1]))],
                    "float[N, C, 15]; =[H, 5]; =[1, 5]",
                    "float[N, floor(C/5), H, 5]",
                ),
                (
                    &[("strides", ints(&[2, 2]))],
                    "float[1, 9, 4]; int64[?]; int64[?]",
                    "float[1, ?, ?, ?]",
                ),
                (&[], "float[1, 9, 4]; int64[3]; =[1, 3, K]", "float[1, floor(9/(3*K)), ?, ?, ?]"),
                (&[], "float[1, 9, 4]; int64[?]; -", "float[...]"),
                // The length of a list is never taken from a number in the model.
                (&[], long, "float[...]"),
                (
                    &[],
                    "float[1, 9, 4]; =[5]; =[5, 5]",
                    "Col2Im: spatial axes of input 2 and of others differ (1 and 2)",
                ),
                (
                    &[("dilations", ints(&[1, 1, 1]))],
                    "float[1, 9, 4]; =[5, 5]; =[5, 5]",
                    "Col2Im: numbers of spatial axes differ (2 and 3)",
                ),
                (&[], "float[1, 9]; =[5, 5]; =[5, 5]", "Col2Im: input 0 must have rank 3, not 2"),
                (
                    &[],
                    "float[1, 9, 4]; =[5, 5]; =[5, 0]",
                    "Col2Im: a block must have positive sizes, not 0",
                ),
                (
                    &[],
                    "float[1, 1, 1]; =[1, 1]; =[9223372036854775807, 2]",
                    "Col2Im: the size of a block overflows 64 bits",
                ),
            ],
        );
    }
}

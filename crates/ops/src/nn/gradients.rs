//! Gradients of convolutions, pools and normalizations.
//!
//! The gradient of the input of a convolution is a transposed convolution, and that of its weights
//! a convolution of the input with the gradient of the output as weights, in which strides and
//! dilations change places: Dumoulin, Visin, "A guide to convolution arithmetic for deep learning",
//! 2016. Sizes that a stride leaves over are cut off at run time, so none need be known.

use sardonyx_tensor::DataType;

use crate::adapt::Refusal;
use crate::attributes::AttrValue;
use crate::gradient::{Backward, Expr};
use crate::math::gradients::share_among;

type Result<T = ()> = std::result::Result<T, Refusal>;

/// Positions of windows, as the attributes of a node define them.
#[derive(Clone)]
pub(super) struct Windows<'c> {
    /// Number of spatial axes.
    pub(super) rank: usize,
    strides: Vec<i64>,
    dilations: Vec<i64>,
    /// Elements before each axis, then after each.
    pads: Vec<i64>,
    /// Elements that are padded at run time before and after each axis, in addition to `pads`: the
    /// padding of `auto_pad` for sizes that are only known then.
    at_run: Option<[Expr<'c>; 2]>,
    group: i64,
}

/// End of an axis to which `auto_pad` adds the extra element of an odd number.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Same {
    Upper,
    Lower,
}

impl<'c> Windows<'c> {
    /// Reads the attributes, ignoring `auto_pad`.
    fn explicit(cx: &'c Backward<'_>) -> Result<Windows<'c>> {
        // The weights, or the list of their sizes, have as many spatial axes.
        let mut operands = [0, 1].into_iter().filter_map(|index| cx.input_if(index));
        let rank = operands.find_map(|operand| cx.rank_of(operand).ok());
        let listed = || cx.ints("kernel_shape").map(|kernel| kernel.len() + 2);
        let Some(rank) = rank.or_else(listed) else {
            return Err(cx.refuse("its rank is unknown"));
        };
        let Some(rank) = rank.checked_sub(2) else {
            return Err(cx.refuse("its input has no spatial axes"));
        };
        Windows::from_rank(cx, rank)
    }

    /// Reads the attributes for `rank` spatial axes, ignoring `auto_pad`.
    pub(super) fn from_rank(cx: &'c Backward<'_>, rank: usize) -> Result<Windows<'c>> {
        let pads = match cx.string("auto_pad").as_deref() {
            None | Some("NOTSET") => cx.ints_per_axis("pads", 2 * rank, 0)?,
            Some(_) => vec![0; 2 * rank],
        };
        Ok(Windows {
            rank,
            strides: cx.ints_per_axis("strides", rank, 1)?,
            dilations: cx.ints_per_axis("dilations", rank, 1)?,
            pads,
            at_run: None,
            group: cx.int("group").unwrap_or(1),
        })
    }

    /// Reads the attributes for windows over the first input. `kernel` has the sizes of the window,
    /// and `known` those that are equal in every run.
    pub(super) fn new(
        cx: &'c Backward<'_>,
        kernel: Expr<'c>,
        known: Option<Vec<i64>>,
    ) -> Result<Windows<'c>> {
        let mut windows = Windows::explicit(cx)?;
        let Some(same) = same(cx)? else { return Ok(windows) };
        let x = cx.input(0)?;
        let sizes = cx.shape_of(x).and_then(|shape| {
            shape.iter().skip(2).map(|size| size.known()).collect::<Option<Vec<i64>>>()
        });
        if let (Some(kernel), Some(sizes)) = (known.filter(|all| all.len() == windows.rank), sizes)
        {
            windows.pad_same(same, &kernel, &sizes);
            return Ok(windows);
        }
        let [strides, dilations] =
            [&windows.strides, &windows.dilations].map(|list| cx.ints_of(list));
        let sizes = x.sizes(2, None);
        let last = (sizes + (strides - 1.0)) / strides - 1.0;
        let total = last * strides + (kernel - 1.0) * dilations + 1.0 - sizes;
        let total = total.op_with("Max", &[total.number(0.0)], &[]);
        let less = total / 2.0;
        windows.at_run = Some(match same {
            Same::Upper => [less, total - less],
            Same::Lower => [total - less, less],
        });
        Ok(windows)
    }

    /// Adds the padding of one window per stride.
    fn pad_same(&mut self, same: Same, kernel: &[i64], sizes: &[i64]) {
        for axis in 0..self.rank {
            let (stride, reach) =
                (self.strides[axis], (kernel[axis] - 1) * self.dilations[axis] + 1);
            let last = (sizes[axis] + stride - 1) / stride - 1;
            let total = (last * stride + reach - sizes[axis]).max(0);
            let less = total / 2;
            (self.pads[axis], self.pads[axis + self.rank]) = match same {
                Same::Upper => (less, total - less),
                Same::Lower => (total - less, less),
            };
        }
    }

    /// Whether no axis is shorter than the kernel. A shorter one may still have a window, which is
    /// cropped at its end.
    fn surely_fit(&self, cx: &Backward<'_>, x: Expr<'_>, kernel: &[i64]) -> bool {
        let Some(shape) = cx.shape_of(x) else { return false };
        let (before, after) = self.pads.split_at(self.rank);
        let pads = before.iter().zip(after).map(|(before, after)| before.saturating_add(*after));
        let reaches = kernel.iter().zip(&self.dilations);
        let reaches = reaches.map(|(size, by)| size.saturating_sub(1).saturating_mul(*by));
        let mut axes = shape.iter().skip(2).zip(pads.zip(reaches));
        axes.all(|(size, (pads, last))| {
            size.known().is_some_and(|size| size.saturating_add(pads) > last)
        })
    }

    pub(super) fn attributes(&self) -> Vec<(&'static str, AttrValue<'_>)> {
        vec![
            ("strides", AttrValue::from(&self.strides[..])),
            ("dilations", AttrValue::from(&self.dilations[..])),
            ("pads", AttrValue::from(&self.pads[..])),
            ("group", AttrValue::Int(self.group)),
        ]
    }

    /// Makes the transposed convolution of `dy`, in the spatial sizes of `like`. Since the rest
    /// that strides left is unknown, it makes the largest possible result and crops it.
    fn convolve_transposed(
        &self,
        cx: &'c Backward<'_>,
        dy: Expr<'c>,
        weights: Expr<'c>,
        like: Expr<'c>,
    ) -> Expr<'c> {
        let over: Vec<i64> = self.strides.iter().map(|stride| stride - 1).collect();
        let mut attributes = self.attributes();
        attributes.push(("output_padding", AttrValue::from(&over[..])));
        let whole = dy.op_with("ConvTranspose", &[weights], &attributes);
        match self.at_run {
            None if over.iter().all(|over| *over == 0) => whole,
            None => self.cut(cx, whole, like),
            Some([before, _]) => {
                let axes = cx.ints_of(&self.spatial());
                whole.op_with("Slice", &[before, before + like.sizes(2, None), axes], &[])
            }
        }
    }

    /// Adds the part of each window to all elements in it, channel by channel.
    pub(super) fn spread(
        &mut self,
        cx: &'c Backward<'_>,
        parts: Expr<'c>,
        kernel: &[i64],
    ) -> Result<Expr<'c>> {
        let x = cx.input(0)?;
        let images = parts.sizes(0, Some(1)) * parts.sizes(1, Some(2));
        let one_channel = images.concat(&[cx.ints_of(&[1]), parts.sizes(2, None)], 0);
        let images = parts.reshape(one_channel);
        self.group = 1;
        // Each window may be cropped at its end, so the sizes are those of the input.
        let over: Vec<i64> = self.strides.iter().map(|stride| stride - 1).collect();
        let mut attributes = self.attributes();
        attributes.push(("output_padding", AttrValue::from(&over[..])));
        let whole = images.op_with("ConvTranspose", &[ones(cx, parts, kernel)], &attributes);
        let start = match self.at_run {
            Some([before, _]) => before,
            None => cx.ints_of(&vec![0; self.rank]),
        };
        let axes = cx.ints_of(&self.spatial());
        let inside = whole.op_with("Slice", &[start, start + x.sizes(2, None), axes], &[]);
        Ok(inside.reshape(x.shape()))
    }

    /// Replaces positions of images that are not finite and do not contribute, since all results
    /// that depend on them are masked. `back` sums over the windows of a position; it gets images
    /// with one channel and a window of ones.
    fn drop_uncounted_images(
        &self,
        cx: &'c Backward<'_>,
        x: Expr<'c>,
        dy: Expr<'c>,
        weights: Expr<'c>,
        back: impl FnOnce(&Self, Expr<'c>, Expr<'c>) -> Expr<'c>,
    ) -> Expr<'c> {
        // Groups become images.
        let [images, gradients] = [x, dy].map(|value| {
            if self.group == 1 {
                return value;
            }
            let sizes = value.sizes(0, Some(2)) * cx.ints_of(&[self.group, 1]);
            let sizes = sizes / cx.ints_of(&[1, self.group]);
            value.reshape(sizes.concat(&[value.sizes(2, None)], 0))
        });
        let sums = gradients.sum_magnitudes(&[1]);
        let window = match kernel_of(cx, weights) {
            Some(kernel) => ones(cx, sums, &kernel),
            None => {
                let sizes = cx.ints_of(&[1, 1]).concat(&[weights.sizes(2, None)], 0);
                sums.number(1.0).expand(sizes)
            }
        };
        let alone = Windows { group: 1, ..self.clone() };
        let counting = images.drop_unused_lines(&[1], back(&alone, sums, window));
        if self.group == 1 { counting } else { counting.reshape(x.shape()) }
    }

    /// Makes images of ones with a channel for each group, in the spatial sizes of `like`.
    fn one_image(&self, cx: &'c Backward<'_>, like: Expr<'c>) -> Expr<'c> {
        let sizes = cx.ints_of(&[1, self.group]).concat(&[like.sizes(2, None)], 0);
        like.number(1.0).expand(sizes)
    }

    /// Returns the spatial axes.
    fn spatial(&self) -> Vec<i64> {
        (2..self.rank as i64 + 2).collect()
    }

    /// Crops the spatial axes at their ends to the sizes of `like`.
    fn cut(&self, cx: &'c Backward<'_>, value: Expr<'c>, like: Expr<'c>) -> Expr<'c> {
        let starts = cx.ints_of(&vec![0; self.rank]);
        let axes = cx.ints_of(&self.spatial());
        value.op_with("Slice", &[starts, like.sizes(2, None), axes], &[])
    }

    /// Makes the elements that each tap of a window reads in each channel: `[images * channels,
    /// taps, places..]`. That is a convolution with a unit matrix.
    fn columns(&self, cx: &'c Backward<'_>, x: Expr<'c>, kernel: Expr<'c>) -> Expr<'c> {
        let taps = kernel.product();
        let one = cx.ints_of(&[1]);
        let unit = x.number(0.0).expand(taps.concat(&[taps], 0)).op("EyeLike");
        let unit = unit.reshape(taps.concat(&[one, kernel], 0));
        let channels = x.sizes(0, Some(1)) * x.sizes(1, Some(2));
        let alone = x.reshape(channels.concat(&[one, x.sizes(2, None)], 0));
        let mut attributes = self.attributes();
        attributes.pop();
        alone.op_with("Conv", &[unit], &attributes)
    }

    /// Makes the gradient of weights like [`make_weights_gradient`](Self::make_weights_gradient),
    /// by products with the columns of `x`.
    fn make_weights_gradient_by_columns(
        &self,
        cx: &'c Backward<'_>,
        x: Expr<'c>,
        y: Expr<'c>,
        weights: Expr<'c>,
    ) -> Expr<'c> {
        let columns = self.columns(cx, x, weights.sizes(2, None));
        let (images, group) = (x.sizes(0, Some(1)), cx.ints_of(&[self.group]));
        let channels = y.sizes(1, Some(2));
        let apart = |value: Expr<'c>, rows: Expr<'c>, places: Expr<'c>| {
            let places = places.product();
            value.reshape(images.concat(&[group, rows, places], 0))
        };
        let rows = x.sizes(1, Some(2)) * columns.sizes(1, Some(2)) / group;
        let columns = apart(columns, rows, columns.sizes(2, None));
        let y = apart(y, channels / group, y.sizes(2, None));
        let products = y.matmul(columns.transpose(&[0, 1, 3, 2]));
        let sizes = [channels, x.sizes(1, Some(2)) / group, weights.sizes(2, None)];
        products.sum(&[0], false).reshape(sizes[0].concat(&sizes[1..], 0))
    }

    /// Makes the gradient of the weights of a convolution from `x` to `y`: a filter for each
    /// channel of `y`, with the spatial sizes of `weights` and the channels of `x` that a group
    /// shares. If the sizes of `y`, which acts as weights, are only known at run time, it uses
    /// products with columns.
    fn make_weights_gradient(
        &self,
        cx: &'c Backward<'_>,
        x: Expr<'c>,
        y: Expr<'c>,
        weights: Expr<'c>,
    ) -> Expr<'c> {
        // Images act as channels, and channels as images; groups stay channels.
        let spatial = || 2..self.rank as i64 + 2;
        let x = match self.at_run {
            Some([before, after]) => pad_spatial(cx, x, before, after),
            None => x,
        };
        let mut images = [cx.input(0).ok(), cx.output(0).ok()].into_iter().flatten();
        if !images.all(|image| kernel_of(cx, image).is_some()) {
            return self.make_weights_gradient_by_columns(cx, x, y, weights);
        }
        let x = if self.group == 1 {
            x.transpose(&[1, 0].into_iter().chain(spatial()).collect::<Vec<_>>())
        } else {
            let groups = cx.ints_of(&[self.group, -1]);
            let along = [("axis", AttrValue::Int(0))];
            let sizes = x.sizes(0, Some(1)).op_with("Concat", &[groups, x.sizes(2, None)], &along);
            let grouped = x.op_with("Reshape", &[sizes], &[]);
            let axes: Vec<i64> =
                [2, 1, 0].into_iter().chain(spatial().map(|axis| axis + 1)).collect();
            let moved = grouped.transpose(&axes);
            let joined = moved.sizes(0, Some(1));
            let joined =
                joined.op_with("Concat", &[cx.ints_of(&[-1]), moved.sizes(3, None)], &along);
            moved.op_with("Reshape", &[joined], &[])
        };
        let swap: Vec<i64> = [1, 0].into_iter().chain(spatial()).collect();
        let attributes = [
            ("strides", AttrValue::from(&self.dilations[..])),
            ("dilations", AttrValue::from(&self.strides[..])),
            ("pads", AttrValue::from(&self.pads[..])),
            ("group", AttrValue::Int(self.group)),
        ];
        let all = x.op_with("Conv", &[y.transpose(&swap)], &attributes).transpose(&swap);
        let is_exact = self.strides.iter().all(|stride| *stride == 1);
        if is_exact { all } else { self.cut(cx, all, weights) }
    }

    /// Returns all axes except that of channels.
    fn without_channels(&self) -> Vec<i64> {
        std::iter::once(0).chain(2..self.rank as i64 + 2).collect()
    }
}

/// Returns the mode of `auto_pad` if it depends on sizes.
fn same(cx: &Backward<'_>) -> Result<Option<Same>> {
    match cx.string("auto_pad").as_deref() {
        None | Some("NOTSET" | "VALID") => Ok(None),
        Some("SAME_UPPER") => Ok(Some(Same::Upper)),
        Some("SAME_LOWER") => Ok(Some(Same::Lower)),
        Some(other) => Err(cx.refuse(format_args!("auto_pad has no value \"{other}\""))),
    }
}

/// Pads spatial axes with zeros before and after; negative numbers crop.
fn pad_spatial<'c>(
    cx: &'c Backward<'_>,
    value: Expr<'c>,
    before: Expr<'c>,
    after: Expr<'c>,
) -> Expr<'c> {
    let none = cx.ints_of(&[0, 0]);
    let pads = none.concat(&[before, none, after], 0);
    value.op_with("Pad", &[pads, value.number(0.0)], &[])
}

/// Makes a window of ones with one channel, of the type of `like`.
fn ones<'c>(cx: &'c Backward<'_>, like: Expr<'c>, kernel: &[i64]) -> Expr<'c> {
    let sizes: Vec<i64> = [1, 1].iter().chain(kernel).copied().collect();
    like.number(1.0).expand(cx.ints_of(&sizes))
}

/// Returns the sizes of the window of weights, if all are known.
fn kernel_of(cx: &Backward<'_>, weights: Expr<'_>) -> Option<Vec<i64>> {
    cx.shape_of(weights)?.iter().skip(2).map(|size| size.known()).collect()
}

pub(crate) fn conv(cx: &Backward<'_>) -> Result {
    let (x, weights, dy) = (cx.input(0)?, cx.input(1)?, cx.arriving()?);
    let known = kernel_of(cx, weights).or_else(|| cx.ints("kernel_shape"));
    let windows = Windows::new(cx, weights.sizes(2, None), known)?;
    if cx.wants(0) {
        let mut counting = weights;
        if cx.may_be_infinite(1) {
            let sums = dy.sum_magnitudes(&[0]);
            counting = weights.drop_unused(windows.make_weights_gradient(
                cx,
                windows.one_image(cx, x),
                sums,
                weights,
            ));
        }
        cx.give(0, windows.convolve_transposed(cx, dy, counting, x));
    }
    if cx.wants(1) {
        let mut counting = x;
        if cx.may_be_infinite(0) {
            counting = windows.drop_uncounted_images(cx, x, dy, weights, |windows, sums, ones| {
                windows.convolve_transposed(cx, sums, ones, x)
            });
        }
        cx.give(1, windows.make_weights_gradient(cx, counting, dy, weights));
    }
    if cx.wants(2) {
        cx.give(2, dy.sum(&windows.without_channels(), false));
    }
    Ok(())
}

/// Sets the gradients of `ConvTranspose`. If the size of the output does not follow from pads,
/// cropped elements are put back first.
pub(crate) fn conv_transpose<'c>(cx: &'c Backward<'_>) -> Result {
    let mut windows = Windows::explicit(cx)?;
    let (x, weights, dy) = (cx.input(0)?, cx.input(1)?, cx.arriving()?);
    let same = same(cx)?;
    let mut whole = dy;
    if same.is_some() || cx.ints("output_shape").is_some() {
        let rank = windows.rank;
        let extra = cx.ints_per_axis("output_padding", rank, 0)?;
        let [strides, dilations, extra] =
            [&windows.strides, &windows.dilations, &extra].map(|list| cx.ints_of(list));
        let reach = (weights.sizes(2, None) - 1.0) * dilations + 1.0 + extra;
        let cut = (x.sizes(2, None) - 1.0) * strides + reach - dy.sizes(2, None);
        // Rounds down, also below 0.
        let half = |cut: Expr<'c>| (cut - cut.op_with("Mod", &[cut.number(2.0)], &[])) / 2.0;
        let before = match same {
            Some(Same::Upper) => half(cut),
            Some(Same::Lower) => cut - half(cut),
            // Extra `output_shape` padding goes at the end.
            None => {
                let cut = cut.op_with("Max", &[cut.number(0.0)], &[]);
                cut - half(cut)
            }
        };
        whole = pad_spatial(cx, dy, before, cut - before);
        windows.pads.fill(0);
    }
    if cx.wants(0) {
        let mut counting = weights;
        if cx.may_be_infinite(1) {
            let image = windows.one_image(cx, x);
            let mut sums =
                windows.make_weights_gradient(cx, whole.sum_magnitudes(&[0]), image, weights);
            if windows.group > 1 {
                // Filters of groups are adjacent along the axis of inputs.
                let group = cx.ints_of(&[windows.group]);
                let each = weights.sizes(0, Some(1)) / group;
                let sizes = group.concat(&[each, weights.sizes(1, None)], 0);
                sums = sums.unsqueeze(&[1]).expand(sizes).reshape(weights.shape());
            }
            counting = weights.drop_unused(sums);
        }
        let back = whole.op_with("Conv", &[counting], &windows.attributes());
        cx.give(0, windows.cut(cx, back, x));
    }
    if cx.wants(1) {
        let mut counting = x;
        if cx.may_be_infinite(0) {
            let back = |windows: &Windows<'c>, sums: Expr<'c>, ones: Expr<'c>| {
                let sums = sums.op_with("Conv", &[ones], &windows.attributes());
                windows.cut(cx, sums, x)
            };
            counting = windows.drop_uncounted_images(cx, x, whole, weights, back);
        }
        cx.give(1, windows.make_weights_gradient(cx, whole, counting, weights));
    }
    if cx.wants(2) {
        cx.give(2, dy.sum(&windows.without_channels(), false));
    }
    Ok(())
}

/// Sets the gradient of `MaxPool`: adds to the element that was the largest, whose position the
/// node returns. Each image is written on its own, with positions relative to its start.
pub(crate) fn max_pool<'c>(cx: &'c Backward<'_>) -> Result {
    if cx.int("storage_order").unwrap_or(0) != 0 {
        return Err(cx.refuse("storage_order 1 has no gradient"));
    }
    let x = cx.input(0)?;
    let places = cx.also_output(1, DataType::Int64);
    let Some(dy) = cx.arriving_if(0) else { return Ok(()) };
    let count = |value: Expr<'c>| {
        value.sizes(1, None).op_with("ReduceProd", &[], &[("keepdims", 1.into())])
    };
    let size = count(x);
    let rows = dy.sizes(0, Some(1)).concat(&[count(dy)], 0);
    let zeros = dy.number(0.0).op_with("Expand", &[x.sizes(0, Some(1)).concat(&[size], 0)], &[]);
    let places = places.op_with("Mod", &[size], &[]).reshape(rows);
    let attributes = [("axis", 1.into()), ("reduction", "add".into())];
    let operands = [places, dy.reshape(rows)];
    cx.give(0, zeros.op_with("ScatterElements", &operands, &attributes).reshape(x.shape()));
    Ok(())
}

/// Returns the windows of a pool and the sizes of its kernel.
pub(super) fn read_windows<'c>(cx: &'c Backward<'_>) -> Result<(Windows<'c>, Vec<i64>)> {
    let Some(kernel) = cx.ints("kernel_shape") else {
        return Err(cx.refuse("it has no kernel_shape"));
    };
    Ok((Windows::new(cx, cx.ints_of(&kernel), Some(kernel.clone()))?, kernel))
}

/// Sets the gradient of `AveragePool`: each window distributes its gradient to its elements in
/// equal parts. That is a transposed convolution with ones, channel by channel.
pub(crate) fn average_pool(cx: &Backward<'_>) -> Result {
    let (mut windows, kernel) = read_windows(cx)?;
    let (x, dy) = (cx.input(0)?, cx.arriving()?);
    let one_image = cx.ints_of(&[1, 1]).concat(&[x.sizes(2, None)], 0);
    let one_image = x.number(1.0).expand(one_image);
    // The divisor of a window is the number of elements in it, divided by the mean of the window
    // over ones: padding that counts makes the mean less than 1.
    let mut further = windows.pads.clone();
    if cx.int("ceil_mode").unwrap_or(0) != 0 || !windows.surely_fit(cx, x, &kernel) {
        for (after, stride) in further[windows.rank..].iter_mut().zip(&windows.strides) {
            *after += stride - 1;
        }
    }
    let padded = match windows.at_run {
        Some([before, after]) => pad_spatial(cx, one_image, before, after),
        None => one_image,
    };
    let moves = [
        ("strides", AttrValue::from(&windows.strides[..])),
        ("dilations", AttrValue::from(&windows.dilations[..])),
        ("pads", AttrValue::from(&further[..])),
    ];
    let inside = padded.op_with("Conv", &[ones(cx, x, &kernel)], &moves);
    let auto_pad = cx.string("auto_pad").unwrap_or_else(|| "NOTSET".to_string());
    let mut pool = vec![
        ("strides", AttrValue::from(&windows.strides[..])),
        ("dilations", AttrValue::from(&windows.dilations[..])),
        ("kernel_shape", AttrValue::from(&kernel[..])),
        ("auto_pad", AttrValue::from(auto_pad.as_str())),
    ];
    if auto_pad == "NOTSET" {
        pool.push(("pads", AttrValue::from(&windows.pads[..])));
    }
    for name in ["ceil_mode", "count_include_pad"] {
        pool.push((name, AttrValue::Int(cx.int(name).unwrap_or(0))));
    }
    let means = one_image.op_with("AveragePool", &[], &pool);
    let counts = windows.cut(cx, inside, dy) / means;
    let spread = windows.spread(cx, dy / counts, &kernel)?;
    cx.give(0, spread);
    Ok(())
}

pub(crate) fn global_average_pool(cx: &Backward<'_>) -> Result {
    let (x, y, dy) = (cx.input(0)?, cx.output(0)?, cx.arriving()?);
    let [whole, part] = [x, y].map(|value| value.op("Size").with_elem(DataType::Int64));
    let parts = dy / (whole / part).cast(dy.elem());
    cx.give(0, parts.op_with("Expand", &[x.shape()], &[]));
    Ok(())
}

/// Sets the gradient of `GlobalMaxPool`: equal largest elements share.
pub(crate) fn global_max_pool(cx: &Backward<'_>) -> Result {
    let (x, y, dy) = (cx.input(0)?, cx.output(0)?, cx.arriving()?);
    let axes: Vec<i64> = (2..cx.rank_of(x)? as i64).collect();
    let is_taken = x.compare("Equal", y);
    let count = is_taken.cast(x.elem()).sum(&axes, true);
    cx.give(0, share_among(dy, count).for_taken(is_taken));
    Ok(())
}

/// Sets the gradient of a norm of parts of `x`. `spread` distributes a value of each part to its
/// elements. Parts that are 0 get 0.
fn set_norm_gradient<'c>(
    cx: &'c Backward<'_>,
    spread: impl FnOnce(Expr<'c>) -> Result<Expr<'c>>,
) -> Result {
    let (x, y, dy) = (cx.input(0)?, cx.output(0)?, cx.arriving()?);
    let p = cx.int("p").unwrap_or(2);
    if p < 1 {
        return Err(cx.refuse(format_args!("a norm with p = {p} has no gradient")));
    }
    if p == 1 {
        cx.give(0, spread(dy)?.scale_by(x.op("Sign")));
        return Ok(());
    }
    let (zero, one, below) = (y.number(0.0), y.number(1.0), y.number(p as f64 - 1.0));
    let is_zero = y.compare("Equal", zero);
    let norms = is_zero.choose(one, y).op_with("Pow", &[below], &[]);
    let parts = spread(is_zero.choose(zero, dy.divide_by(norms)))?;
    let powers = if p == 2 { x } else { x.op("Sign") * x.op("Abs").op_with("Pow", &[below], &[]) };
    cx.give(0, parts.scale_by(powers));
    Ok(())
}

pub(crate) fn lp_pool(cx: &Backward<'_>) -> Result {
    let (mut windows, kernel) = read_windows(cx)?;
    set_norm_gradient(cx, |parts| windows.spread(cx, parts, &kernel))
}

pub(crate) fn global_lp_pool(cx: &Backward<'_>) -> Result {
    set_norm_gradient(cx, Ok)
}

/// Sets the gradient of `MaxUnpool`: reads the positions that indices hold. All elements with one
/// position get its gradient.
pub(crate) fn max_unpool(cx: &Backward<'_>) -> Result {
    let (x, indices, mut dy) = (cx.input(0)?, cx.input(1)?, cx.arriving()?);
    if cx.input_if(2).is_some() {
        // Indices count in the shape that was pooled, which is at the start of a larger one.
        let kernel = cx.ints("kernel_shape").unwrap_or_default();
        let rank = kernel.len();
        let strides = cx.ints_per_axis("strides", rank, 1)?;
        let pads = cx.ints_per_axis("pads", 2 * rank, 0)?;
        let end = |axis: usize| kernel[axis] - strides[axis] - pads[axis] - pads[axis + rank];
        let ends: Vec<i64> = (0..rank).map(end).collect();
        let sizes = x.sizes(2, None) * cx.ints_of(&strides) + cx.ints_of(&ends);
        let axes: Vec<i64> = (2..rank as i64 + 2).collect();
        let starts = cx.ints_of(&vec![0; rank]);
        dy = dy.op_with("Slice", &[starts, sizes, cx.ints_of(&axes)], &[]);
    }
    cx.give(0, dy.reshape(cx.ints_of(&[-1])).gather(indices, 0));
    Ok(())
}

/// Sets the gradient of `Col2Im` to the blocks of the image.
pub(crate) fn col2im(cx: &Backward<'_>) -> Result {
    let (x, block, dy) = (cx.input(0)?, cx.input(2)?, cx.arriving()?);
    let y = cx.output(0)?;
    let Some(rank) = cx.rank_of(y)?.checked_sub(2) else {
        return Err(cx.refuse("its image has no spatial axes"));
    };
    let windows = Windows::from_rank(cx, rank)?;
    cx.give(0, windows.columns(cx, dy, block).reshape(x.shape()));
    Ok(())
}

/// Sets the gradient of `LRN` (Krizhevsky, Sutskever, Hinton, "ImageNet Classification with Deep
/// Convolutional Neural Networks", 2012). Means over channels are pools over an image whose one
/// channel holds all channels.
pub(crate) fn lrn<'c>(cx: &'c Backward<'_>) -> Result {
    let (x, dy) = (cx.input(0)?, cx.arriving()?);
    let number = |name: &str, default: f64| cx.float(name).map_or(default, f64::from);
    let (alpha, beta) = (number("alpha", 1e-4), number("beta", 0.75));
    let size = cx.int("size").unwrap_or(1);
    let before = (size - 1) / 2;
    let after = size - 1 - before;
    let rest = x.sizes(2, None).product();
    let [batch, channels] = [0, 1].map(|axis| x.shape().gather(cx.ints_of(&[axis]), 0));
    let images = batch.concat(&[cx.ints_of(&[1]), channels, rest], 0);
    let mean = |value: Expr<'c>, before: i64, after: i64| {
        let (kernel, pads) = ([size, 1], [before, 0, after, 0]);
        let attributes = [
            ("kernel_shape", AttrValue::from(&kernel)),
            ("pads", AttrValue::from(&pads)),
            ("count_include_pad", AttrValue::Int(1)),
        ];
        value.reshape(images).op_with("AveragePool", &[], &attributes).reshape(x.shape())
    };
    let squares = mean(x.square(), before, after) * alpha + number("bias", 1.0);
    let inverse = squares.op_with("Pow", &[x.number(-beta)], &[]);
    let of_squares = dy.scale_by(x * inverse).divide_by(squares);
    let around = mean(of_squares, after, before) * (2.0 * alpha * beta);
    cx.give(0, dy.scale_by(inverse) - around.scale_by(x));
    Ok(())
}

/// Sets the gradients of `BatchNormalization` (Ioffe, Szegedy, "Batch Normalization", 2015). The
/// running statistics get none.
pub(crate) fn batch_normalization<'c>(cx: &'c Backward<'_>) -> Result {
    let (x, scale) = (cx.input(0)?, cx.input(1)?);
    let Some(dy) = cx.arriving_if(0) else { return Ok(()) };
    let rank = cx.rank_of(x)? as i64;
    let others: Vec<i64> = (0..rank).filter(|axis| *axis != 1).collect();
    // Gives a value for each channel axes of size 1 after it.
    let after: Vec<i64> = (1..rank - 1).collect();
    let beside = |value: Expr<'c>| {
        let value = value.cast(x.elem());
        if after.is_empty() { value } else { value.unsqueeze(&after) }
    };
    let epsilon = f64::from(cx.float("epsilon").unwrap_or(1e-5));
    let trains = cx.int("training_mode").unwrap_or(0) != 0;
    let mean = if trains { x.mean(&others) } else { beside(cx.input(3)?) };
    let centered = x - mean;
    let variance = if trains { centered.square().mean(&others) } else { beside(cx.input(4)?) };
    let inverse = (variance + epsilon).op("Sqrt").op("Reciprocal");
    let normal = (centered * inverse).drop_unused(dy);
    let factor = beside(scale) * inverse;
    if cx.wants(0) {
        let gradient =
            if trains { dy - dy.mean(&others) - normal * (dy * normal).mean(&others) } else { dy };
        cx.give(0, gradient.scale_by(factor));
    }
    if cx.wants(1) {
        cx.give(1, (dy * normal).sum(&others, false).cast(scale.elem()));
    }
    if cx.wants(2) {
        cx.give(2, dy.sum(&others, false).cast(cx.input(2)?.elem()));
    }
    if trains {
        return Ok(());
    }
    if cx.wants(3) {
        cx.give(3, -dy.scale_by(factor).sum(&others, false).cast(cx.input(3)?.elem()));
    }
    if cx.wants(4) {
        let slope = dy.scale_by(factor * normal * inverse) * -0.5;
        cx.give(4, slope.sum(&others, false).cast(cx.input(4)?.elem()));
    }
    Ok(())
}

/// Makes the gradient by `x` of `normal`, which is `x` minus its mean over axes, times `inverse`,
/// the reciprocal of its standard deviation. In a group that does not contribute, `normal` must be
/// finite.
fn derive_normal<'c>(dy: Expr<'c>, normal: Expr<'c>, inverse: Expr<'c>, axes: &[i64]) -> Expr<'c> {
    (dy - dy.mean(axes) - normal * (dy * normal).mean(axes)).scale_by(inverse)
}

/// Sets the gradients of `LayerNormalization` (Ba, Kiros, Hinton, "Layer Normalization", 2016),
/// computed in `float` or wider.
pub(crate) fn layer_normalization(cx: &Backward<'_>) -> Result {
    let (x, scale) = (cx.input(0)?, cx.input(1)?);
    let Some(dy) = cx.arriving_if(0) else { return Ok(()) };
    let wide = if x.elem() == DataType::Double { DataType::Double } else { DataType::Float };
    let rank = cx.rank_of(x)? as i64;
    let axis = cx.int("axis").unwrap_or(-1);
    let axes: Vec<i64> = (if axis < 0 { axis + rank } else { axis }..rank).collect();
    let epsilon = f64::from(cx.float("epsilon").unwrap_or(1e-5));
    let (wide_x, dy) = (x.cast(wide), dy.cast(wide));
    let centered = wide_x - wide_x.mean(&axes);
    let inverse = (centered.square().mean(&axes) + epsilon).op("Sqrt").op("Reciprocal");
    let normal = (centered * inverse).drop_unused(dy);
    if cx.wants(0) {
        let gradient = derive_normal(dy.scale_by(scale.cast(wide)), normal, inverse, &axes);
        cx.give(0, gradient.cast(x.elem()));
    }
    if cx.wants(1) {
        cx.give_broadcast(1, (dy * normal).cast(scale.elem()))?;
    }
    if cx.wants(2) {
        cx.give_broadcast(2, dy.cast(cx.input(2)?.elem()))?;
    }
    Ok(())
}

/// Sets the gradient of `LpNormalization`; 0 where all elements are 0.
pub(crate) fn lp_normalization(cx: &Backward<'_>) -> Result {
    let (x, y, dy) = (cx.input(0)?, cx.output(0)?, cx.arriving()?);
    let axes = [cx.int("axis").unwrap_or(-1)];
    let is_absolute = cx.int("p") == Some(1);
    let reduction = if is_absolute { "ReduceL1" } else { "ReduceL2" };
    let norm = x.op_with(reduction, &[cx.ints_of(&axes)], &[("keepdims", 1.into())]);
    let y = y.drop_unused(dy);
    let along = (dy * y).sum(&axes, true);
    let slope = if is_absolute { x.op("Sign").drop_unused(along) } else { y };
    let (zero, one) = (norm.number(0.0), norm.number(1.0));
    let is_zero = norm.compare("Equal", zero);
    let gradient = (dy - slope * along).divide_by(is_zero.choose(one, norm));
    cx.give(0, is_zero.choose(zero, gradient));
    Ok(())
}

/// Sets the gradient of `MeanVarianceNormalization`. The deviation is increased by a small number,
/// but the deviation in the derivative of the root is not. In a constant group, whose deviation is
/// 0, only the quotient by that number has a derivative.
pub(crate) fn mean_variance_normalization(cx: &Backward<'_>) -> Result {
    let (x, dy) = (cx.input(0)?, cx.arriving()?);
    let axes = cx.ints("axes").unwrap_or_else(|| vec![0, 2, 3]);
    let centered = x - x.mean(&axes);
    let deviation = centered.square().mean(&axes).op("Sqrt");
    let divisor = deviation + 1e-9;
    let normal = (centered / divisor).drop_unused(dy);
    let slope = (normal * (dy * normal).mean(&axes)).divide_by(deviation);
    cx.give(0, (dy - dy.mean(&axes)).divide_by(divisor) - slope);
    Ok(())
}

/// Sets the gradients of `InstanceNormalization` (Ulyanov, Vedaldi, Lempitsky, "Instance
/// Normalization", 2016).
pub(crate) fn instance_normalization(cx: &Backward<'_>) -> Result {
    let (x, scale, dy) = (cx.input(0)?, cx.input(1)?, cx.arriving()?);
    let rank = cx.rank_of(x)? as i64;
    let spatial: Vec<i64> = (2..rank).collect();
    let others: Vec<i64> = (0..rank).filter(|axis| *axis != 1).collect();
    let after: Vec<i64> = (1..rank - 1).collect();
    let epsilon = f64::from(cx.float("epsilon").unwrap_or(1e-5));
    let centered = x - x.mean(&spatial);
    let inverse = (centered.square().mean(&spatial) + epsilon).op("Sqrt").op("Reciprocal");
    let normal = (centered * inverse).drop_unused(dy);
    if cx.wants(0) {
        let factor = inverse * scale.unsqueeze(&after);
        cx.give(0, derive_normal(dy, normal, factor, &spatial));
    }
    if cx.wants(1) {
        cx.give(1, (dy * normal).sum(&others, false));
    }
    if cx.wants(2) {
        cx.give(2, dy.sum(&others, false));
    }
    Ok(())
}

/// Sets the gradient of `Dropout`: elements that were kept get theirs scaled by the factor that
/// enlarged them.
pub(crate) fn dropout(cx: &Backward<'_>) -> Result {
    let Some(trains) = cx.input_if(2) else {
        if let Some(dy) = cx.arriving_if(0) {
            cx.give(0, dy);
        }
        return Ok(());
    };
    let kept = cx.also_output(1, DataType::Bool);
    let Some(dy) = cx.arriving_if(0) else { return Ok(()) };
    let ratio = match cx.input_if(1) {
        Some(ratio) => ratio.cast(dy.elem()),
        None => dy.number(0.5),
    };
    let factor = trains.with_elem(DataType::Bool).choose(1.0 / (1.0 - ratio), dy.number(1.0));
    cx.give(0, kept.choose(dy * factor, dy.number(0.0)));
    Ok(())
}

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

type Result<T = ()> = std::result::Result<T, Refusal>;

/// How windows move, as attributes say it.
struct Windows {
    /// Spatial axes.
    rank: usize,
    strides: Vec<i64>,
    dilations: Vec<i64>,
    /// Before each axis, then after each.
    pads: Vec<i64>,
    group: i64,
}

impl Windows {
    fn of(cx: &Backward<'_>) -> Result<Windows> {
        let x = cx.input(0)?;
        let Some(rank) = cx.rank_of(x)?.checked_sub(2) else {
            return Err(cx.refuse("its input has no spatial axes"));
        };
        let list = |name: &str, len: usize, value: i64| match cx.ints(name) {
            None => Ok(vec![value; len]),
            Some(values) if values.len() == len => Ok(values),
            Some(values) => Err(cx.refuse(format_args!("{name} has {} elements", values.len()))),
        };
        let strides = list("strides", rank, 1)?;
        let dilations = list("dilations", rank, 1)?;
        let pads = match cx.string("auto_pad").as_deref() {
            Some("VALID") => vec![0; 2 * rank],
            None | Some("NOTSET") => list("pads", 2 * rank, 0)?,
            Some(other) => {
                return Err(cx.refuse(format_args!("auto_pad {other} has no gradient: set pads")));
            }
        };
        Ok(Windows { rank, strides, dilations, pads, group: cx.int("group").unwrap_or(1) })
    }

    fn attributes(&self) -> Vec<(&'static str, AttrValue<'_>)> {
        vec![
            ("strides", AttrValue::from(&self.strides[..])),
            ("dilations", AttrValue::from(&self.dilations[..])),
            ("pads", AttrValue::from(&self.pads[..])),
            ("group", AttrValue::Int(self.group)),
        ]
    }

    /// The transposed convolution of `dy`, in the spatial sizes of `like`. Without knowing how much
    /// strides left over, it makes as much as they may have, which is cut off.
    fn transposed<'c>(
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
        if over.iter().all(|over| *over == 0) {
            return whole;
        }
        self.cut(cx, whole, like)
    }

    /// The first elements along spatial axes, as many as `like` has.
    fn cut<'c>(&self, cx: &'c Backward<'_>, value: Expr<'c>, like: Expr<'c>) -> Expr<'c> {
        let starts = cx.ints_of(&vec![0; self.rank]);
        let axes: Vec<i64> = (2..self.rank as i64 + 2).collect();
        value.op_with("Slice", &[starts, like.sizes(2, None), cx.ints_of(&axes)], &[])
    }

    /// What the weights of a convolution of `x` that gives `y` get, in the shape of `weights`: the
    /// channels of `x` are those that each group shares.
    fn of_weights<'c>(
        &self,
        cx: &'c Backward<'_>,
        x: Expr<'c>,
        y: Expr<'c>,
        weights: Expr<'c>,
    ) -> Expr<'c> {
        // The images take the place of channels, and channels that of images; groups stay channels.
        let spatial = || 2..self.rank as i64 + 2;
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

    /// All axes but that of channels.
    fn without_channels(&self) -> Vec<i64> {
        std::iter::once(0).chain(2..self.rank as i64 + 2).collect()
    }
}

pub(crate) fn conv(cx: &Backward<'_>) -> Result {
    let windows = Windows::of(cx)?;
    let (x, weights, dy) = (cx.input(0)?, cx.input(1)?, cx.arriving()?);
    if cx.wants(0) {
        cx.give(0, windows.transposed(cx, dy, weights, x));
    }
    if cx.wants(1) {
        cx.give(1, windows.of_weights(cx, x, dy, weights));
    }
    if cx.wants(2) {
        cx.give(2, dy.sum(&windows.without_channels(), false));
    }
    Ok(())
}

pub(crate) fn conv_transpose(cx: &Backward<'_>) -> Result {
    if cx.ints("output_shape").is_some() {
        return Err(cx.refuse("output_shape has no gradient: set pads"));
    }
    let windows = Windows::of(cx)?;
    let (x, weights, dy) = (cx.input(0)?, cx.input(1)?, cx.arriving()?);
    if cx.wants(0) {
        let back = dy.op_with("Conv", &[weights], &windows.attributes());
        cx.give(0, windows.cut(cx, back, x));
    }
    if cx.wants(1) {
        cx.give(1, windows.of_weights(cx, dy, x, weights));
    }
    if cx.wants(2) {
        cx.give(2, dy.sum(&windows.without_channels(), false));
    }
    Ok(())
}

/// To the element that was the largest: the node says which.
pub(crate) fn max_pool(cx: &Backward<'_>) -> Result {
    if cx.int("storage_order").unwrap_or(0) != 0 {
        return Err(cx.refuse("storage_order 1 has no gradient"));
    }
    let x = cx.input(0)?;
    let places = cx.also_output(1, DataType::Int64);
    let Some(dy) = cx.arriving_if(0) else { return Ok(()) };
    let flat = cx.ints_of(&[-1]);
    let zeros = dy.number(0.0).op_with("Expand", &[x.op("Size").reshape(flat)], &[]);
    let attributes = [("axis", 0.into()), ("reduction", "add".into())];
    let operands = [places.reshape(flat), dy.reshape(flat)];
    cx.give(0, zeros.op_with("ScatterElements", &operands, &attributes).reshape(x.shape()));
    Ok(())
}

/// Each window hands its gradient to the elements in it, in equal parts: a transposed convolution
/// with ones, of one channel after the other.
pub(crate) fn average_pool<'c>(cx: &'c Backward<'_>) -> Result {
    let mut windows = Windows::of(cx)?;
    let (x, dy) = (cx.input(0)?, cx.arriving()?);
    let Some(kernel) = cx.ints("kernel_shape") else {
        return Err(cx.refuse("it has no kernel_shape"));
    };
    let along = [("axis", AttrValue::Int(0))];
    let alone = |value: Expr<'c>| {
        let sizes = cx.ints_of(&[-1, 1]).op_with("Concat", &[value.sizes(2, None)], &along);
        value.op_with("Reshape", &[sizes], &[])
    };
    let ones = cx.ints_of(&[1, 1]).op_with("Concat", &[cx.ints_of(&kernel)], &along);
    let ones = dy.number(1.0).op_with("Expand", &[ones], &[]);
    let one_image = cx.ints_of(&[1, 1]).op_with("Concat", &[x.sizes(2, None)], &along);
    let one_image = x.number(1.0).op_with("Expand", &[one_image], &[]);
    // How many elements lie in a window, and what the mean of them is if all are 1: with padding
    // that counts it is less. Both say by how many the sum was divided.
    let mut further = windows.pads.clone();
    if cx.int("ceil_mode").unwrap_or(0) != 0 {
        for (after, stride) in further[windows.rank..].iter_mut().zip(&windows.strides) {
            *after += stride - 1;
        }
    }
    let mut moves = windows.attributes();
    moves[2].1 = AttrValue::from(&further[..]);
    let inside = windows.cut(cx, one_image.op_with("Conv", &[ones], &moves), dy);
    let mut pool = windows.attributes();
    pool.pop();
    pool.push(("kernel_shape", AttrValue::from(&kernel[..])));
    for name in ["ceil_mode", "count_include_pad"] {
        pool.push((name, AttrValue::Int(cx.int(name).unwrap_or(0))));
    }
    let counts = inside / one_image.op_with("AveragePool", &[], &pool);
    let parts = alone(dy / counts);
    windows.group = 1;
    let over: Vec<i64> = windows.strides.iter().map(|stride| stride - 1).collect();
    let mut attributes = windows.attributes();
    attributes.push(("output_padding", AttrValue::from(&over[..])));
    let whole = parts.op_with("ConvTranspose", &[ones], &attributes);
    cx.give(0, windows.cut(cx, whole, x).reshape(x.shape()));
    Ok(())
}

pub(crate) fn global_average_pool(cx: &Backward<'_>) -> Result {
    let (x, y, dy) = (cx.input(0)?, cx.output(0)?, cx.arriving()?);
    let [whole, part] = [x, y].map(|value| value.op("Size").of(DataType::Int64));
    let parts = dy / (whole / part).cast(dy.elem());
    cx.give(0, parts.op_with("Expand", &[x.shape()], &[]));
    Ok(())
}

/// Equal largest elements share.
pub(crate) fn global_max_pool(cx: &Backward<'_>) -> Result {
    let (x, y, dy) = (cx.input(0)?, cx.output(0)?, cx.arriving()?);
    let axes: Vec<i64> = (2..cx.rank_of(x)? as i64).collect();
    let taken = x.compare("Equal", y).cast(x.elem());
    cx.give(0, taken * (dy / taken.sum(&axes, true)));
    Ok(())
}

/// Ioffe, Szegedy, "Batch Normalization", 2015. The running statistics get none.
pub(crate) fn batch_normalization<'c>(cx: &'c Backward<'_>) -> Result {
    let (x, scale) = (cx.input(0)?, cx.input(1)?);
    let Some(dy) = cx.arriving_if(0) else { return Ok(()) };
    let rank = cx.rank_of(x)? as i64;
    let others: Vec<i64> = (0..rank).filter(|axis| *axis != 1).collect();
    // A value for each channel, and axes of size 1 after it.
    let after: Vec<i64> = (1..rank - 1).collect();
    let beside = |value: Expr<'c>| {
        let value = value.cast(x.elem());
        if after.is_empty() { value } else { value.unsqueeze(&after) }
    };
    let epsilon = f64::from(cx.float("epsilon").unwrap_or(1e-5));
    let trains = cx.int("training_mode").unwrap_or(0) != 0;
    let mean = if trains { x.mean(&others) } else { beside(cx.input(3)?) };
    let centered = x - mean;
    let variance = if trains { centered.squared().mean(&others) } else { beside(cx.input(4)?) };
    let inverse = (variance + epsilon).op("Sqrt").op("Reciprocal");
    let normal = centered * inverse;
    let factor = beside(scale) * inverse;
    if cx.wants(0) {
        let gradient =
            if trains { dy - dy.mean(&others) - normal * (dy * normal).mean(&others) } else { dy };
        cx.give(0, gradient * factor);
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
        cx.give(3, -(dy * factor).sum(&others, false).cast(cx.input(3)?.elem()));
    }
    if cx.wants(4) {
        let slope = dy * factor * normal * inverse * -0.5;
        cx.give(4, slope.sum(&others, false).cast(cx.input(4)?.elem()));
    }
    Ok(())
}

/// The gradient of `normal`, which is `x` minus its mean over axes, times `inverse`, one divided by
/// its standard deviation, by `x`.
fn of_normal<'c>(dy: Expr<'c>, normal: Expr<'c>, inverse: Expr<'c>, axes: &[i64]) -> Expr<'c> {
    (dy - dy.mean(axes) - normal * (dy * normal).mean(axes)) * inverse
}

/// Ba, Kiros, Hinton, "Layer Normalization", 2016. Computed in `float` or wider.
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
    let inverse = (centered.squared().mean(&axes) + epsilon).op("Sqrt").op("Reciprocal");
    let normal = centered * inverse;
    if cx.wants(0) {
        let gradient = of_normal(dy * scale.cast(wide), normal, inverse, &axes);
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

/// The deviation has a small number added to it, which the one in the derivative of a root has not.
pub(crate) fn mean_variance_normalization(cx: &Backward<'_>) -> Result {
    let (x, dy) = (cx.input(0)?, cx.arriving()?);
    let axes = cx.ints("axes").unwrap_or_else(|| vec![0, 2, 3]);
    let centered = x - x.mean(&axes);
    let deviation = centered.squared().mean(&axes).op("Sqrt");
    let divisor = deviation + 1e-9;
    let normal = centered / divisor;
    let slope = normal * (dy * normal).mean(&axes) / deviation;
    cx.give(0, (dy - dy.mean(&axes)) / divisor - slope);
    Ok(())
}

/// Ulyanov, Vedaldi, Lempitsky, "Instance Normalization", 2016.
pub(crate) fn instance_normalization(cx: &Backward<'_>) -> Result {
    let (x, scale, dy) = (cx.input(0)?, cx.input(1)?, cx.arriving()?);
    let rank = cx.rank_of(x)? as i64;
    let spatial: Vec<i64> = (2..rank).collect();
    let others: Vec<i64> = (0..rank).filter(|axis| *axis != 1).collect();
    let after: Vec<i64> = (1..rank - 1).collect();
    let epsilon = f64::from(cx.float("epsilon").unwrap_or(1e-5));
    let centered = x - x.mean(&spatial);
    let inverse = (centered.squared().mean(&spatial) + epsilon).op("Sqrt").op("Reciprocal");
    let normal = centered * inverse;
    if cx.wants(0) {
        let factor = inverse * scale.unsqueeze(&after);
        cx.give(0, of_normal(dy, normal, factor, &spatial));
    }
    if cx.wants(1) {
        cx.give(1, (dy * normal).sum(&others, false));
    }
    if cx.wants(2) {
        cx.give(2, dy.sum(&others, false));
    }
    Ok(())
}

/// What was kept gets as much more as it was made larger.
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
    let factor = trains.of(DataType::Bool).choose(1.0 / (1.0 - ratio), dy.number(1.0));
    cx.give(0, kept.choose(dy * factor, dy.number(0.0)));
    Ok(())
}

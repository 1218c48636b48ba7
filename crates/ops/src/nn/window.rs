//! Window arithmetic: the number of windows along an axis.
//!
//! Convolution and pooling share it. Everything is computed with [`Dim`]s, so a symbolic size
//! results in a symbolic count, in a form that makes equal counts equal expressions as often as
//! possible.

use sardonyx_model::{Dim, Shape};

use crate::infer::{Infer, InferError, Rule};
use crate::rules;

/// Positions of windows along the spatial axes of an input `[N, C, D1, D2, …]`.
#[derive(Debug)]
pub(super) struct Window {
    /// Size per spatial axis, without dilation.
    pub(super) kernel: Vec<Dim>,
    /// Range per spatial axis, with dilation.
    pub(super) reach: Vec<Dim>,
    pub(super) strides: Vec<i64>,
    pub(super) padding: Padding,
    /// Whether a last window that is only partly inside counts.
    ceil: bool,
    /// Whether an axis that the kernel exceeds by less than a stride has one window, which is
    /// cropped at its end.
    cut: bool,
}

#[derive(Debug)]
pub(super) enum Padding {
    /// Elements before and after, per axis.
    Explicit(Vec<(i64, i64)>),
    /// Enough elements for one window per stride.
    Same,
}

impl Window {
    /// Reads the attributes of a node whose kernel has these sizes.
    ///
    /// `auto_pad` takes precedence over `pads`: the standard forbids both, but exporters write
    /// zeros beside it.
    pub(super) fn new(cx: &Infer<'_>, kernel: Vec<Dim>) -> Result<Window, InferError> {
        let rank = kernel.len();
        if let Some(size) = kernel.iter().filter_map(Dim::known).find(|size| *size < 1) {
            return cx.fail(format_args!("the kernel must have positive sizes, not {size}"));
        }
        let pads = explicit_pads(cx, rank)?;
        let padding = match cx.string("auto_pad").as_deref() {
            Some("SAME_UPPER" | "SAME_LOWER") => Padding::Same,
            Some("VALID") => Padding::Explicit(vec![(0, 0); rank]),
            Some("NOTSET") | None => Padding::Explicit(pads),
            Some(other) => return cx.fail(format_args!("auto_pad has no value \"{other}\"")),
        };
        let strides = per_axis(cx, "strides", rank, 1)?.unwrap_or_else(|| vec![1; rank]);
        let dilations = per_axis(cx, "dilations", rank, 1)?.unwrap_or_else(|| vec![1; rank]);
        Ok(Window {
            reach: reaches(cx, &kernel, &dilations)?,
            kernel,
            strides,
            padding,
            ceil: cx.int("ceil_mode").is_some_and(|mode| mode != 0),
            cut: false,
        })
    }

    /// Counts the windows along each spatial axis of an input shape.
    pub(super) fn counts(
        &self,
        cx: &Infer<'_>,
        input: &Shape,
        rule: Rule,
    ) -> Result<Vec<Dim>, InferError> {
        if input.len() != self.kernel.len() + 2 {
            return cx.fail(format_args!(
                "a kernel with {} spatial axes requires an input of rank {}, not {}",
                self.kernel.len(),
                self.kernel.len() + 2,
                input.len()
            ));
        }
        input[2..].iter().enumerate().map(|(axis, size)| self.count(cx, axis, size, rule)).collect()
    }

    fn count(
        &self,
        cx: &Infer<'_>,
        axis: usize,
        size: &Dim,
        rule: Rule,
    ) -> Result<Dim, InferError> {
        let stride = Dim::Known(self.strides[axis]);
        let Padding::Explicit(pads) = &self.padding else {
            return Ok(ceil_div(size, &stride));
        };
        let (before, after) = pads[axis];
        let one = Dim::Known(1);
        let reach = &self.reach[axis];
        let start = size.add(&Dim::Known(before));
        let room = start.add(&Dim::Known(after)).sub(reach);
        if let (Some(room @ ..0), Some(size)) = (room.known(), size.known()) {
            return self.count_short(cx, axis, size, room, rule).map(Dim::Known);
        }
        let count = if self.ceil {
            // Windows start before the padding at the end (documented since version 22, but always
            // true), and all but the last end within it. Both conditions are divisions of the start
            // of that padding, shifted: the smaller shift decides. For VALID the documents still
            // round down, while implementations round up.
            let shift = Dim::Known(after).sub(reach).add(&stride).smaller(&Dim::Known(0));
            ceil_div(&start.add(&shift), &stride)
        } else {
            start.add(&Dim::Known(after)).sub(reach).floor_div(&stride).add(&one)
        };
        rules::check_overflow(cx, "the number of windows", count, &[size, reach])
    }

    /// Counts the windows along an axis of known size that is shorter than the kernel: `room`, the
    /// size minus the range of the kernel, is negative.
    fn count_short(
        &self,
        cx: &Infer<'_>,
        axis: usize,
        size: i64,
        room: i64,
        rule: Rule,
    ) -> Result<i64, InferError> {
        let (stride, reach) = (self.strides[axis], &self.reach[axis]);
        let cuts = self.cut || rule == Rule::Reference;
        let quotient = if self.ceil || cuts { room / stride } else { room.div_euclid(stride) };
        let count = quotient + 1;
        if rule == Rule::Reference {
            return Ok(count);
        }
        let Padding::Explicit(pads) = &self.padding else { return Ok(count) };
        let (before, after) = pads[axis];
        match (size, count) {
            // An empty axis has no windows, however far the kernel exceeds it.
            (0, _) if self.ceil && before == 0 => Ok(0),
            (0, _) => Ok(count.max(0)),
            (_, count) if count < 0 => cx.fail(format_args!(
                "the kernel spans {reach} elements, but spatial axis {axis} has {size} with \
                 padding {before} and {after}"
            )),
            (_, 1) if !self.ceil => {
                cx.cut_window(format_args!(
                    "the kernel spans {reach} elements, but spatial axis {axis} has {size} with \
                     padding {before} and {after}: one window that is cut off, where the formula \
                     of the standard gives none"
                ));
                Ok(1)
            }
            _ => Ok(count),
        }
    }
}

/// Returns the range of a dilated kernel.
fn reaches(cx: &Infer<'_>, kernel: &[Dim], dilations: &[i64]) -> Result<Vec<Dim>, InferError> {
    let one = Dim::Known(1);
    let reach = |(size, dilation): (&Dim, &i64)| {
        let reach = size.sub(&one).mul(&Dim::Known(*dilation)).add(&one);
        rules::check_overflow(cx, "what the dilated kernel covers", reach, &[size])
    };
    kernel.iter().zip(dilations).map(reach).collect()
}

/// Returns an attribute with an integer for each spatial axis, each at least `least`.
pub(super) fn per_axis(
    cx: &Infer<'_>,
    name: &str,
    rank: usize,
    least: i64,
) -> Result<Option<Vec<i64>>, InferError> {
    let Some(values) = cx.ints(name) else {
        return Ok(None);
    };
    if values.len() != rank {
        return cx.fail(format_args!(
            "{name} has {} elements, but there are {rank} spatial axes",
            values.len()
        ));
    }
    demand_at_least(cx, name, &values, least)?;
    Ok(Some(values))
}

fn demand_at_least(
    cx: &Infer<'_>,
    name: &str,
    values: &[i64],
    least: i64,
) -> Result<(), InferError> {
    let must = if least > 0 { "must be positive" } else { "must not be negative" };
    match values.iter().find(|value| **value < least) {
        Some(value) => cx.fail(format_args!("{name} {must}, not {value}")),
        None => Ok(()),
    }
}

/// Returns the padding before and after each spatial axis.
pub(super) fn explicit_pads(cx: &Infer<'_>, rank: usize) -> Result<Vec<(i64, i64)>, InferError> {
    let Some(pads) = cx.ints("pads") else {
        return Ok(vec![(0, 0); rank]);
    };
    if pads.len() != 2 * rank {
        return cx.fail(format_args!(
            "pads has {} elements, but {rank} spatial axes require {}",
            pads.len(),
            2 * rank
        ));
    }
    demand_at_least(cx, "pads", &pads, 0)?;
    let (before, after) = pads.split_at(rank);
    Ok(before.iter().copied().zip(after.iter().copied()).collect())
}

/// Divides and rounds up, in a form that equals that of explicit padding.
fn ceil_div(size: &Dim, divisor: &Dim) -> Dim {
    match (size, size.exact_div(divisor)) {
        (_, Some(quotient)) => quotient,
        _ => size.sub(&Dim::Known(1)).floor_div(divisor).add(&Dim::Known(1)),
    }
}

/// Infers a pooling operator, whose outputs have one element per window.
///
/// The division in the formula of the standard rounds down. Implementations, including the
/// reference's inference, round it towards zero, and trained models depend on it: an axis that the
/// kernel exceeds by less than a stride has one window. Unknown sizes follow the formula, which
/// agrees wherever it counts windows at all.
pub(super) fn pooled_shape(cx: &Infer<'_>, rule: Rule) -> Result<Option<Shape>, InferError> {
    let Some(kernel) = cx.ints("kernel_shape") else {
        return Ok(None);
    };
    let window = Window::new(cx, kernel.into_iter().map(Dim::Known).collect())?;
    let window = Window { cut: true, ..window };
    let Some(input) = cx.shape(0) else {
        // The kernel determines the rank.
        return Ok(Some(vec![Dim::Unknown; window.kernel.len() + 2].into()));
    };
    let counts = window.counts(cx, input, rule)?;
    Ok(Some(input[..2].iter().cloned().chain(counts).collect()))
}

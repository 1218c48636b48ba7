//! Inference of `CenterCropPad`: the sizes of its output.

use sardonyx_model::{Dim, Shape};

use crate::infer::{Infer, InferError};
use crate::rules::{distinct_axes, shared_dim};

pub(crate) fn infer(cx: &mut Infer<'_>) -> Result<(), InferError> {
    let shape = cropped_shape(cx)?;
    if cx.known_value(1).is_none() {
        cx.set_reason(0, "the values of shape");
    }
    cx.set_tensor(0, cx.elem(0), shape);
    Ok(())
}

/// Returns the shape of the input with the requested sizes.
fn cropped_shape(cx: &Infer<'_>) -> Result<Option<Shape>, InferError> {
    cx.demand_rank(1, 1)?;
    let Some(shape) = cx.shape(0) else {
        return Ok(None);
    };
    let axes = match cx.ints("axes") {
        Some(axes) => distinct_axes(cx, &axes, shape.len())?,
        None => (0..shape.len()).collect(),
    };
    let found = shared_dim(cx, "sizes", &[(1, 0)])?;
    cx.same_dim(&found, &axes.len().into(), "elements of shape and axes")?;
    let mut shape = shape.clone();
    let sizes = match cx.known_ints(1) {
        Some(sizes) => sizes,
        None => vec![Dim::Unknown; axes.len()],
    };
    for (axis, size) in axes.into_iter().zip(sizes) {
        if let Some(size) = size.known().filter(|size| *size < 0) {
            return cx.fail(format_args!("a size must not be negative, not {size}"));
        }
        shape[axis] = size;
    }
    Ok(Some(shape))
}

#[cfg(test)]
mod tests {
    use crate::tensor::rearrange::CENTER_CROP_PAD;
    use crate::tensor::testing::{check, ints};

    #[test]
    fn requested_sizes_are_set() {
        let axes = || [("axes", ints(&[0, -1]))];
        check(
            &CENTER_CROP_PAD,
            18,
            &[
                (&axes(), "float[20, N, 3]; =[10, W]", "float[10, N, W]"),
                (&[], "float[20, ?]; =[10, 8]", "float[10, 8]"),
                (&[], "float[3, 2]; int64[2]", "float[?, ?]"),
                (&[], "-; -", "?[...]"),
                (
                    &[],
                    "float[3, 2]; int64[3]",
                    "CenterCropPad: elements of shape and axes differ (3 and 2)",
                ),
                (
                    &[("axes", ints(&[0, -3]))],
                    "float[20, N, 3]; =[1, 2]",
                    "CenterCropPad: axis 0 is given twice",
                ),
                (
                    &[("axes", ints(&[3]))],
                    "float[20, N, 3]; =[1]",
                    "CenterCropPad: axis 3 is out of range for rank 3",
                ),
                (&[], "float[3]; =[-1]", "CenterCropPad: a size must not be negative, not -1"),
            ],
        );
    }
}

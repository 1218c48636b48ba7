//! Inference of `NonMaxSuppression`.

use sardonyx_model::{Dim, Shape};
use sardonyx_tensor::DataType;

use crate::infer::{Infer, InferError};

/// Infers batch, class and box of each box that is kept.
pub(super) fn infer(cx: &mut Infer<'_>) -> Result<(), InferError> {
    check_inputs(cx)?;
    let shape = Shape::from_iter([Dim::Unknown, Dim::Known(3)]);
    cx.set_tensor(0, Some(DataType::Int64), Some(shape));
    cx.set_reason(0, "the number of boxes that are kept");
    Ok(())
}

fn check_inputs(cx: &Infer<'_>) -> Result<(), InferError> {
    cx.demand_rank(0, 3)?;
    cx.demand_rank(1, 3)?;
    let boxes = cx.shape(0).map(|shape| &shape[..]);
    if let Some([_, _, corners]) = boxes
        && let Some(count) = corners.known().filter(|count| *count != 4)
    {
        return cx.fail(format_args!("a box must have four numbers, not {count}"));
    }
    if let (Some([batch, count, _]), Some([scores_batch, _, scores])) =
        (boxes, cx.shape(1).map(|shape| &shape[..]))
    {
        cx.same_dim(batch, scores_batch, "the batches of boxes and scores")?;
        cx.same_dim(count, scores, "the numbers of boxes and scores")?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::image::NON_MAX_SUPPRESSION;
    use crate::tensor::testing::check;

    #[test]
    fn each_box_gets_three_numbers() {
        // SHAPE-16, SHAPE-20
        check(
            &NON_MAX_SUPPRESSION,
            11,
            &[
                (&[], "float[B, N, 4]; float[B, 80, N]", "int64[?, 3]"),
                (&[], "-; -", "int64[?, 3]"),
                (
                    &[],
                    "float[B, N, 5]; -",
                    "NonMaxSuppression: a box must have four numbers, not 5",
                ),
                (
                    &[],
                    "float[1, 6, 4]; float[1, 80, 7]",
                    "NonMaxSuppression: the numbers of boxes and scores differ (6 and 7)",
                ),
                (&[], "float[6, 4]; -", "NonMaxSuppression: input 0 must have rank 3, not 2"),
            ],
        );
    }
}

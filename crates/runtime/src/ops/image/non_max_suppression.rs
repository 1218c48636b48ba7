//! NonMaxSuppression: the best boxes that do not overlap a better one.

use sardonyx_kernels::boxes::{BoxDims, Suppression, corners, suppress};

use crate::error::{BindError, KernelError, fail};
use crate::kernel::{Call, Kernel, Site};
use crate::ops::math::clip::limit;

struct NonMaxSuppression {
    /// Whether boxes are given by their centres.
    centered: bool,
}

/// Binds `NonMaxSuppression`.
pub(crate) fn bind(site: &Site<'_>) -> Result<Box<dyn Kernel>, BindError> {
    let centered = match site.need_int("center_point_box")? {
        0 => false,
        1 => true,
        other => {
            return Err(BindError::Invalid(format!(
                "attribute 'center_point_box' is {other}, not 0 or 1"
            )));
        }
    };
    Ok(Box::new(NonMaxSuppression { centered }))
}

impl Kernel for NonMaxSuppression {
    fn run(&self, call: &mut Call<'_>) -> Result<(), KernelError> {
        let (box_dims, score_dims) = (call.tensor(0)?.dims(), call.tensor(1)?.dims());
        let (&[batch, count, 4], &[score_batch, classes, score_count]) = (box_dims, score_dims)
        else {
            fail!(
                "boxes must be [batch, boxes, 4] and scores [batch, classes, boxes], not {box_dims:?} and \
                 {score_dims:?}"
            );
        };
        if [batch, count] != [score_batch, score_count] {
            fail!(
                "boxes {box_dims:?} and scores {score_dims:?} differ in batch or number of boxes"
            );
        }
        // A negative number means none, as in the reference.
        let most = usize::try_from(limit(call, 2, 0i64)?).unwrap_or(0).min(count);
        let overlap = limit(call, 3, 0f32)?;
        if !(0.0..=1.0).contains(&overlap) {
            fail!("iou_threshold is {overlap:?}, not from 0 to 1");
        }
        let score = if call.has_input(4) { Some(limit(call, 4, 0f32)?) } else { None };
        if most == 0 {
            // Without boxes, the number of classes is not bounded by memory.
            call.output_slice::<i64>(0, &[0, 3])?;
            return Ok(());
        }
        let (given, scores) = (call.slice::<f32>(0)?, call.slice::<f32>(1)?);
        let mut boxes = call.scratch::<f32>(given.len())?;
        corners(self.centered, given, &mut boxes);
        let mut kept = call.scratch::<i64>(batch * classes * most)?;
        let mut counts = call.scratch::<usize>(batch * classes)?;
        let (exec, how) = (call.exec, Suppression { overlap, score });
        // Each thread sorts all boxes.
        let orders = exec.pool.threads().min(batch * classes).saturating_mul(count);
        call.reserve(orders.saturating_mul(size_of::<[u64; 2]>()))?;
        let dims = BoxDims { batch, classes, boxes: count };
        suppress(exec, how, dims, &boxes, scores, &mut kept, &mut counts)?;
        let out = call.output_slice::<i64>(0, &[counts.iter().sum(), 3])?;
        let mut out = out.as_chunks_mut::<3>().0.iter_mut();
        for (list, found) in counts.iter().enumerate() {
            let [batch, class] = [list / classes, list % classes].map(|index| index as i64);
            let kept = kept[list * most..][..*found].iter();
            for (index, out) in kept.zip(&mut out) {
                *out = [batch, class, *index];
            }
        }
        Ok(())
    }

    fn describe(&self) -> String {
        "boxes that do not overlap".to_string()
    }
}

#[cfg(test)]
mod tests {
    use sardonyx_ops::AttrValue::Int;
    use sardonyx_tensor::Tensor;

    use crate::ops::testing::{run, tensor};

    fn boxes() -> Tensor {
        let boxes = [[0f32, 0.0, 1.0, 1.0], [0.0, 0.1, 1.0, 1.1], [1.0, 2.0, 0.0, 1.0]];
        tensor(&[1, 3, 4], boxes.as_flattened())
    }

    #[test]
    fn the_best_boxes() {
        let scores = tensor(&[1, 2, 3], &[0.5f32, 0.5, 0.75, 0.1, 0.9, f32::NAN]);
        let one = |x: f32| tensor(&[], &[x]);
        // (most, overlap, least score, rows of class and box)
        type SuppressionRow = (i64, f32, Option<f32>, &'static [[i64; 2]]);
        let rows: [SuppressionRow; 7] = [
            (3, 0.5, None, &[[0, 2], [0, 0], [1, 1], [1, 2]]),
            (3, 1.0, None, &[[0, 2], [0, 0], [0, 1], [1, 1], [1, 0], [1, 2]]),
            (3, 1.0, Some(0.5), &[[0, 2], [1, 1]]),
            (i64::MAX, 0.5, Some(0.1), &[[0, 2], [0, 0], [1, 1]]),
            (1, 0.0, None, &[[0, 2], [1, 1]]),
            (0, 0.5, None, &[]),
            (-1, 0.5, None, &[]),
        ];
        for (most, overlap, least, expected) in rows {
            let (most, overlap) = (tensor(&[1], &[most]), one(overlap));
            let least = least.map(one);
            let inputs =
                [Some(&boxes()), Some(&scores), Some(&most), Some(&overlap), least.as_ref()];
            let found = run("NonMaxSuppression", &[], &inputs, 1).unwrap();
            let expected: Vec<i64> =
                expected.iter().flat_map(|[class, index]| [0, *class, *index]).collect();
            assert_eq!(found[0], tensor(&[expected.len() / 3, 3], &expected), "{most:?}");
        }
        let found = run("NonMaxSuppression", &[], &[Some(&boxes()), Some(&scores)], 1).unwrap();
        assert_eq!(found[0].dims(), [0, 3]);
        let nothing =
            [Some(&tensor(&[1, 0, 4], &[0f32; 0])), Some(&tensor(&[1, 2, 0], &[0f32; 0]))];
        assert_eq!(run("NonMaxSuppression", &[], &nothing, 1).unwrap()[0].dims(), [0, 3]);
    }

    #[test]
    fn boxes_by_their_centres() {
        let boxes = [[0.5f32, 0.5, 1.0, 1.0], [0.5, 0.6, 1.0, 1.0], [2.5, 0.5, 1.0, 1.0]];
        let boxes = tensor(&[1, 3, 4], boxes.as_flattened());
        let scores = tensor(&[1, 1, 3], &[0.5f32, 0.6, 0.1]);
        let (most, overlap) = (tensor(&[], &[3i64]), tensor(&[], &[0.5f32]));
        let inputs = [Some(&boxes), Some(&scores), Some(&most), Some(&overlap)];
        let given = [("center_point_box", Int(1))];
        let found = run("NonMaxSuppression", &given, &inputs, 1).unwrap();
        assert_eq!(found[0], tensor(&[2, 3], &[0i64, 0, 1, 0, 0, 2]));
        let found = run("NonMaxSuppression", &[("center_point_box", Int(2))], &inputs, 1);
        assert_eq!(found.unwrap_err(), "attribute 'center_point_box' is 2, not 0 or 1");
    }

    #[test]
    fn what_is_refused() {
        let one = |dims: &[usize]| tensor(dims, &vec![0f32; dims.iter().product()]);
        let (most, scores) = (tensor(&[], &[3i64]), one(&[1, 2, 3]));
        let rows = [
            (
                one(&[1, 3, 5]),
                one(&[1, 2, 3]),
                tensor(&[], &[0.5f32]),
                "not [1, 3, 5] and [1, 2, 3]",
            ),
            (one(&[3, 4]), one(&[1, 2, 3]), tensor(&[], &[0.5f32]), "not [3, 4] and [1, 2, 3]"),
            (
                boxes(),
                one(&[1, 2, 4]),
                tensor(&[], &[0.5f32]),
                "differ in batch or number of boxes",
            ),
            (boxes(), scores.clone(), tensor(&[], &[1.5f32]), "iou_threshold is 1.5, not from 0"),
            (boxes(), scores.clone(), tensor(&[], &[f32::NAN]), "iou_threshold is NaN"),
            (boxes(), scores, one(&[2]), "input 3 must have one element, not 2"),
        ];
        for (boxes, scores, overlap, refusal) in rows {
            let inputs = [Some(&boxes), Some(&scores), Some(&most), Some(&overlap)];
            let found = run("NonMaxSuppression", &[], &inputs, 1).unwrap_err();
            assert!(found.contains(refusal), "{found}");
        }
    }
}

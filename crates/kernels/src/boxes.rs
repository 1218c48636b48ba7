//! Boxes: their corners, and non-maximum suppression.

use crate::choose::Ordered;
use crate::sorting::sort;
use sardonyx_simd::buffer::with_scratch_of;
use sardonyx_simd::chunks::{Shared, ranges};
use sardonyx_simd::{Ended, Exec, Pace};

/// Thresholds of a non-maximum suppression.
#[derive(Clone, Copy, Debug)]
pub struct Suppression {
    /// Largest ratio of intersection to union: a box is dropped if it overlaps a kept box by more.
    pub overlap: f32,
    /// Lower bound of scores: boxes with this score or a lower one are dropped.
    pub score: Option<f32>,
}

/// Sizes of a non-maximum suppression.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BoxDims {
    /// Number of batch elements.
    pub batch: usize,
    /// Number of classes.
    pub classes: usize,
    /// Number of boxes of a batch element.
    pub boxes: usize,
}

/// Converts each box to `[x1, y1, x2, y2]` with the smaller coordinates first. `boxes` are `[y1,
/// x1, y2, x2]`, two opposite corners in any order, or, if `centered`, `[x, y, width, height]` with
/// the centre.
///
/// # Panics
///
/// If the lengths differ or are not multiples of 4.
pub fn corners(centered: bool, boxes: &[f32], corners: &mut [f32]) {
    assert_eq!(boxes.len(), corners.len(), "one box for each");
    let (boxes, rest) = boxes.as_chunks::<4>();
    assert!(rest.is_empty(), "a box has four numbers");
    for (corners, given) in corners.as_chunks_mut::<4>().0.iter_mut().zip(boxes) {
        let [a, b, c, d] = *given;
        *corners = if centered {
            let (width, height) = (c / 2.0, d / 2.0);
            [a - width, b - height, a + width, b + height]
        } else {
            let ((y1, y2), (x1, x2)) = (sort_pair(a, c), sort_pair(b, d));
            [x1, y1, x2, y2]
        };
    }
}

/// Returns the smaller number first.
fn sort_pair(a: f32, b: f32) -> (f32, f32) {
    if a >= b { (b, a) } else { (a, b) }
}

/// Whether the intersection of two boxes is more than the ratio `most` of their union. A box
/// without an area overlaps no box.
fn exceeds_overlap(a: &[f32; 4], b: &[f32; 4], most: f32) -> bool {
    let overlap_along = |axis: usize| a[axis + 2].min(b[axis + 2]) - a[axis].max(b[axis]);
    let area = |of: &[f32; 4]| (of[2] - of[0]) * (of[3] - of[1]);
    let (width, height) = (overlap_along(0), overlap_along(1));
    if !(width > 0.0 && height > 0.0) {
        return false;
    }
    let (shared, areas) = (width * height, [area(a), area(b)]);
    let both = areas[0] + areas[1] - shared;
    let has_area = shared > 0.0 && areas[0] > 0.0 && areas[1] > 0.0 && both > 0.0;
    has_area && shared / both > most
}

/// Selects the boxes that each class of each batch element keeps, best first. Of equal scores the
/// first one is better; NaN is worst.
///
/// `boxes` are corners `[batch, boxes, 4]`, `scores` are `[batch, classes, boxes]`. `kept` receives
/// indices of boxes, with equal room for each list (a class of a batch element), which bounds the
/// number of boxes kept. `counts` receives the number of boxes kept in each list.
///
/// # Panics
///
/// If lengths do not fit.
pub fn suppress(
    exec: &Exec<'_>,
    how: Suppression,
    BoxDims { batch, classes, boxes: count }: BoxDims,
    boxes: &[f32],
    scores: &[f32],
    kept: &mut [i64],
    counts: &mut [usize],
) -> Result<(), Ended> {
    let lists = batch * classes;
    assert_eq!(boxes.len(), 4 * batch * count, "the boxes have other dims");
    assert_eq!(scores.len(), lists * count, "the scores have other dims");
    assert_eq!(counts.len(), lists, "one number for each class of each element of the batch");
    counts.fill(0);
    if kept.is_empty() || count == 0 {
        return Ok(());
    }
    let most = kept.len() / lists;
    assert_eq!(kept.len(), lists * most, "the same room for each");
    let (kept, counts) = (Shared::new(kept), Shared::new(counts));
    let work = count.saturating_mul(8 + most.min(64));
    ranges(exec.pool, lists, work, |range| {
        with_scratch_of(count, |order: &mut [[u64; 2]]| {
            for list in range {
                let boxes = &boxes[4 * (list / classes) * count..][..4 * count];
                let scores = &scores[list * count..][..count];
                // SAFETY: each list is written by one thread, which holds one at a time.
                let (kept, found) = unsafe { (kept.part(list * most, most), counts.part(list, 1)) };
                found[0] = suppress_list(how, boxes.as_chunks().0, scores, order, kept)?;
            }
            Ok(())
        })
    })
}

/// Selects the boxes of one list and returns their number. `order` is scratch memory for a key and
/// an index of each box.
fn suppress_list(
    how: Suppression,
    boxes: &[[f32; 4]],
    scores: &[f32],
    order: &mut [[u64; 2]],
    kept: &mut [i64],
) -> Result<usize, Ended> {
    let mut candidates = 0;
    for (index, score) in scores.iter().enumerate() {
        if how.score.is_none_or(|least| *score > least) {
            let key = if score.is_nan() { u64::MAX } else { !score.key() };
            order[candidates] = [key, index as u64];
            candidates += 1;
        }
    }
    let candidates = &mut order[..candidates];
    let pace = Pace::default();
    sort(candidates, |a, b| a.cmp(b))?;
    let mut count = 0;
    for [_, index] in candidates {
        pace.count(count)?;
        if count == kept.len() {
            break;
        }
        let one = &boxes[*index as usize];
        let suppresses = |kept: &i64| exceeds_overlap(one, &boxes[*kept as usize], how.overlap);
        if !kept[..count].iter().any(suppresses) {
            kept[count] = *index as i64;
            count += 1;
        }
    }
    Ok(count)
}

#[cfg(test)]
mod tests {
    use super::*;
    use sardonyx_simd::{Isa, Pool};

    /// Selects boxes by the definition: takes the best box that is left and removes the boxes that
    /// it overlaps, repeatedly.
    fn naive(how: Suppression, boxes: &[[f32; 4]], scores: &[f32], most: usize) -> Vec<i64> {
        let mut left: Vec<usize> = (0..boxes.len())
            .filter(|at| how.score.is_none_or(|least| scores[*at] > least))
            .collect();
        let mut kept = vec![];
        while kept.len() < most && !left.is_empty() {
            let mut best = 0;
            for at in 0..left.len() {
                let [score, most] = [left[at], left[best]].map(|at| scores[at]);
                if score > most || (most.is_nan() && !score.is_nan()) {
                    best = at;
                }
            }
            let best = left.remove(best);
            kept.push(best as i64);
            left.retain(|other| {
                let [a, b]: [[f64; 4]; 2] =
                    [boxes[best], boxes[*other]].map(|of| of.map(f64::from));
                let side =
                    |axis: usize| (a[axis + 2].min(b[axis + 2]) - a[axis].max(b[axis])).max(0.0);
                let area = |of: [f64; 4]| (of[2] - of[0]) * (of[3] - of[1]);
                let shared = side(0) * side(1);
                shared <= f64::from(how.overlap) * (area(a) + area(b) - shared)
            });
        }
        kept
    }

    #[test]
    fn the_best_that_are_left() {
        for [batch, classes, count] in [[1, 1, 1], [2, 3, 20], [1, 2, 300], [0, 2, 3], [2, 0, 3]] {
            let boxes: Vec<[f32; 4]> = (0..batch * count)
                .map(|at| {
                    let [x, y] = [at * 37 % 19, at * 11 % 13].map(|at| at as f32);
                    [x, y, x + 2.0 + (at % 5) as f32, y + 1.0 + (at % 7) as f32]
                })
                .collect();
            let score_of = |at: usize| if at % 17 == 3 { f32::NAN } else { (at * 7 % 11) as f32 };
            let scores: Vec<f32> = (0..batch * classes * count).map(score_of).collect();
            for (most, score) in [(1, None), (count, None), (count, Some(2.0)), (3, Some(5.0))] {
                let how = Suppression { overlap: 0.25, score };
                for threads in [1, 2] {
                    let pool = Pool::new(threads);
                    let exec = Exec::new(&pool, Isa::detect());
                    let mut kept = vec![-1; batch * classes * most];
                    let mut counts = vec![9; batch * classes];
                    let flat = boxes.as_flattened();
                    let dims = BoxDims { batch, classes, boxes: count };
                    suppress(&exec, how, dims, flat, &scores, &mut kept, &mut counts).unwrap();
                    for (list, found) in counts.iter().enumerate() {
                        let boxes = &boxes[list / classes * count..][..count];
                        let expected = naive(how, boxes, &scores[list * count..][..count], most);
                        assert_eq!(kept[list * most..][..*found], expected, "{dims:?} {list}");
                    }
                }
            }
        }
    }

    #[test]
    fn what_overlaps() {
        let mut found = [0.0; 8];
        corners(false, &[1.0, 4.0, 3.0, 2.0, 0.0, 0.0, 0.0, 0.0], &mut found);
        assert_eq!(found[..4], [2.0, 1.0, 4.0, 3.0]);
        corners(true, &[1.0, 4.0, 3.0, 2.0, 0.0, 0.0, -1.0, 1.0], &mut found);
        assert_eq!(found, [-0.5, 3.0, 2.5, 5.0, 0.5, -0.5, -0.5, 0.5]);
        let square = [0.0, 0.0, 2.0, 2.0];
        // (another box, the share that is just not too much)
        for (other, share) in
            [(square, 1.0), ([1.0, 0.0, 3.0, 2.0], 2.0 / 6.0), ([0.0, 1.0, 2.0, 2.0], 0.5)]
        {
            assert!(!exceeds_overlap(&square, &other, share));
            assert!(exceeds_overlap(&square, &other, share - 0.01));
        }
        for other in
            [[2.0, 0.0, 3.0, 2.0], [1.0, 1.0, 1.0, 1.0], [2.0, 2.0, 0.0, 0.0], [f32::NAN; 4]]
        {
            assert!(!exceeds_overlap(&square, &other, 0.0), "{other:?}");
        }
    }
}

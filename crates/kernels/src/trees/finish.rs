//! From the leaves of a row to its scores.

use half::f16;

use crate::ml::{PostTransform, transform_rows};
use sardonyx_simd::Level;
use sardonyx_simd::chunks::Shared;

/// How the weights of leaves are combined, in f64.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Aggregate {
    Sum,
    /// The sum, over the number of trees.
    Average,
    Min,
    Max,
}

/// What is done at the end.
#[derive(Clone, Debug, PartialEq)]
pub struct Finish {
    pub aggregate: Aggregate,
    /// Added to what is combined: none, one for all targets, or one by target.
    pub bases: Vec<f64>,
    pub transform: PostTransform,
    /// Whether the one number of a row is the score of the second of two classes.
    pub is_binary: bool,
    /// Where the smallest begins, and with a minus the largest: the greatest number of the type of
    /// the scores.
    pub greatest: f64,
}

/// Where scores go, by row.
#[derive(Debug)]
pub enum Scores<'a> {
    Unwanted,
    Half(&'a mut [f16]),
    Single(&'a mut [f32]),
    Double(&'a mut [f64]),
}

/// Where the results of rows go.
#[derive(Debug)]
pub struct Outputs<'a> {
    pub scores: Scores<'a>,
    /// By row: the first of the greatest scores, as 32-bit floats.
    pub best: Option<&'a mut [i64]>,
}

/// The same, for threads that write different rows.
pub(super) struct SharedOutputs<'a> {
    scores: SharedScores<'a>,
    best: Option<Shared<'a, i64>>,
}

enum SharedScores<'a> {
    Unwanted,
    Half(Shared<'a, f16>),
    Single(Shared<'a, f32>),
    Double(Shared<'a, f64>),
}

impl<'a> Outputs<'a> {
    pub(super) fn shared(self, rows: usize, columns: usize) -> SharedOutputs<'a> {
        let check = |len: usize| assert_eq!(len, rows * columns, "one score per row and column");
        let scores = match self.scores {
            Scores::Unwanted => SharedScores::Unwanted,
            Scores::Half(scores) => {
                check(scores.len());
                SharedScores::Half(Shared::new(scores))
            }
            Scores::Single(scores) => {
                check(scores.len());
                SharedScores::Single(Shared::new(scores))
            }
            Scores::Double(scores) => {
                check(scores.len());
                SharedScores::Double(Shared::new(scores))
            }
        };
        let best = self.best.map(|best| {
            assert_eq!(best.len(), rows, "one best class per row");
            Shared::new(best)
        });
        SharedOutputs { scores, best }
    }
}

impl SharedOutputs<'_> {
    /// Writes the scores of a row.
    fn row(&self, row: usize, scores: &[f64]) {
        let start = row * scores.len();
        // SAFETY: each row is written once, by one thread.
        unsafe {
            match &self.scores {
                SharedScores::Unwanted => {}
                SharedScores::Half(out) => {
                    let out = out.part(start, scores.len());
                    out.iter_mut()
                        .zip(scores)
                        .for_each(|(out, score)| *out = f16::from_f64(*score));
                }
                SharedScores::Single(out) => {
                    let out = out.part(start, scores.len());
                    out.iter_mut().zip(scores).for_each(|(out, score)| *out = *score as f32);
                }
                SharedScores::Double(out) => {
                    out.part(start, scores.len()).copy_from_slice(scores);
                }
            }
            if let Some(best) = &self.best {
                best.part(row, 1)[0] = first_greatest(scores) as i64;
            }
        }
    }
}

/// The first of the greatest, as 32-bit floats; NaN is greater than anything.
fn first_greatest(scores: &[f64]) -> usize {
    let mut best = 0;
    for (place, score) in scores.iter().enumerate().skip(1) {
        let (score, other) = (*score as f32, scores[best] as f32);
        if score > other || score.is_nan() && !other.is_nan() {
            best = place;
        }
    }
    best
}

impl Aggregate {
    /// Takes in the weights of a leaf.
    #[inline(always)]
    pub(super) fn combine(self, weights: &[(u32, f64)], sums: &mut [f64]) {
        for (target, weight) in weights {
            let sum = &mut sums[*target as usize];
            match self {
                Aggregate::Sum | Aggregate::Average => *sum += weight,
                Aggregate::Min => *sum = if weight < sum { *weight } else { *sum },
                Aggregate::Max => *sum = if weight > sum { *weight } else { *sum },
            }
        }
    }
}

impl Finish {
    /// How many scores a row has that has that many targets.
    pub fn columns(&self, targets: usize) -> usize {
        if self.is_binary { 2 } else { targets }
    }

    /// Where a number begins that leaves are combined to.
    pub(super) fn start(&self) -> f64 {
        match self.aggregate {
            Aggregate::Sum | Aggregate::Average => 0.0,
            Aggregate::Min => self.greatest,
            Aggregate::Max => -self.greatest,
        }
    }

    /// Writes the scores of rows.
    pub(super) fn rows(
        &self,
        level: Level,
        [trees, targets, first]: [usize; 3],
        sums: &mut [f64],
        out: &SharedOutputs<'_>,
    ) {
        if targets == 0 {
            return;
        }
        for sums in sums.chunks_exact_mut(targets) {
            if self.aggregate == Aggregate::Average {
                sums.iter_mut().for_each(|sum| *sum /= trees as f64);
            }
            sums.iter_mut().zip(self.bases.iter().cycle()).for_each(|(sum, base)| *sum += base);
        }
        if self.is_binary {
            for (row, score) in sums.iter().enumerate() {
                let mut both = self.both(*score);
                transform_rows(level, self.transform, 2, &mut both);
                out.row(first + row, &both);
            }
            return;
        }
        transform_rows(level, self.transform, targets, sums);
        for (row, scores) in sums.chunks_exact(targets).enumerate() {
            out.row(first + row, scores);
        }
    }

    /// The scores of two classes, from that of the second.
    fn both(&self, score: f64) -> [f64; 2] {
        match self.transform {
            PostTransform::None | PostTransform::Probit => [1.0 - score, score],
            PostTransform::Softmax | PostTransform::Logistic | PostTransform::SoftmaxZero => {
                [-score, score]
            }
        }
    }
}

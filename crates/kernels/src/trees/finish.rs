//! Scores of a row from the weights of its leaves.

use half::f16;

use crate::ml::{PostTransform, transform_rows};
use sardonyx_simd::Level;
use sardonyx_simd::chunks::Shared;

/// Combination of the weights of leaves, in f64.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Aggregate {
    Sum,
    /// Sum divided by the number of trees.
    Average,
    Min,
    Max,
}

/// Last steps of a prediction: bases and transform.
#[derive(Clone, Debug, PartialEq)]
pub struct Finish {
    pub aggregate: Aggregate,
    /// Added to the combined weights: nothing, one number for all targets, or one for each.
    pub bases: Vec<f64>,
    pub transform: PostTransform,
    /// Whether a row has one value, the score of the second of two classes.
    pub is_binary: bool,
    /// Largest number of the type of scores: start of a minimum, and negated the start of a
    /// maximum.
    pub greatest: f64,
}

/// Destination of the scores, by row.
#[derive(Debug)]
pub enum Scores<'a> {
    /// Scores are not output.
    Unwanted,
    Half(&'a mut [f16]),
    Single(&'a mut [f32]),
    Double(&'a mut [f64]),
}

/// Outputs of a prediction.
#[derive(Debug)]
pub struct Outputs<'a> {
    pub scores: Scores<'a>,
    /// Receives the first of the greatest scores of each row, compared as 32-bit floats.
    pub best: Option<&'a mut [i64]>,
}

/// [`Outputs`] for threads that write different rows.
pub(super) struct SharedOutputs<'a> {
    scores: SharedScores<'a>,
    best: Option<Shared<'a, i64>>,
}

/// [`Scores`] for threads that write different rows.
enum SharedScores<'a> {
    Unwanted,
    Half(Shared<'a, f16>),
    Single(Shared<'a, f32>),
    Double(Shared<'a, f64>),
}

impl<'a> Outputs<'a> {
    /// Checks lengths, and shares the outputs between threads.
    pub(super) fn into_shared(self, rows: usize, columns: usize) -> SharedOutputs<'a> {
        let check_len =
            |len: usize| assert_eq!(len, rows * columns, "one score per row and column");
        let scores = match self.scores {
            Scores::Unwanted => SharedScores::Unwanted,
            Scores::Half(scores) => {
                check_len(scores.len());
                SharedScores::Half(Shared::new(scores))
            }
            Scores::Single(scores) => {
                check_len(scores.len());
                SharedScores::Single(Shared::new(scores))
            }
            Scores::Double(scores) => {
                check_len(scores.len());
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

/// Finds the first of the greatest scores, compared as 32-bit floats; NaN is greatest.
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
    /// Combines the weights of a leaf with the values of its row.
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

/// Block of rows whose leaves have been combined.
#[derive(Clone, Copy)]
pub(super) struct Block {
    /// Number of trees.
    pub(super) trees: usize,
    /// Number of targets.
    pub(super) targets: usize,
    /// Index of the first row.
    pub(super) first: usize,
}

impl Finish {
    /// Returns the number of scores of a row with `targets` targets.
    pub fn columns(&self, targets: usize) -> usize {
        if self.is_binary { 2 } else { targets }
    }

    /// Returns the value of a target before any leaf.
    pub(super) fn start(&self) -> f64 {
        match self.aggregate {
            Aggregate::Sum | Aggregate::Average => 0.0,
            Aggregate::Min => self.greatest,
            Aggregate::Max => -self.greatest,
        }
    }

    /// Turns the values of rows into scores, and writes them.
    pub(super) fn finish_rows(
        &self,
        level: Level,
        Block { trees, targets, first }: Block,
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
                let mut both = self.class_scores(*score);
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

    /// Returns the scores of both classes, given that of the second.
    fn class_scores(&self, score: f64) -> [f64; 2] {
        match self.transform {
            PostTransform::None | PostTransform::Probit => [1.0 - score, score],
            PostTransform::Softmax | PostTransform::Logistic | PostTransform::SoftmaxZero => {
                [-score, score]
            }
        }
    }
}

//! Losses of classifiers: the negated score of the correct class, for each element.

use sardonyx_simd::number::{Arith, Number};

/// Scores of classes, and the labels of the correct classes.
#[derive(Debug)]
pub struct ClassScores<'a, T, L> {
    pub scores: &'a [T],
    /// Sizes of the scores before, along and after the axis of classes.
    pub split: [usize; 3],
    /// Labels of all positions on the other axes.
    pub labels: &'a [L],
    /// Weight of each class.
    pub weights: Option<&'a [T]>,
    /// Label of positions without a loss.
    pub ignored: Option<i64>,
}

/// A label that is neither a class nor ignored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
/// Position of the label.
pub struct NoClass {
    pub at: usize,
    pub label: i64,
}

impl<T: Number, L: Copy + Into<i64>> ClassScores<'_, T, L> {
    /// Calls `with` for each position with its index, its weighted loss, and its weight.
    ///
    /// # Errors
    ///
    /// Returns the first label that is neither a class nor ignored.
    pub fn each(&self, mut with: impl FnMut(usize, T::Real, T::Real)) -> Result<(), NoClass> {
        let [_, classes, after] = self.split;
        for (at, label) in self.labels.iter().enumerate() {
            let label = (*label).into();
            if self.ignored == Some(label) {
                with(at, T::Real::ZERO, T::Real::ZERO);
                continue;
            }
            let class = usize::try_from(label).ok().filter(|class| *class < classes);
            let Some(class) = class else { return Err(NoClass { at, label }) };
            let score = self.scores[(at / after * classes + class) * after + at % after].to_real();
            let loss = T::Real::ZERO.sub(score);
            match self.weights {
                None => with(at, loss, T::Real::ONE),
                Some(weights) => {
                    let weight = weights[class].to_real();
                    with(at, loss.mul(weight), weight);
                }
            }
        }
        Ok(())
    }

    /// Writes the loss of each position.
    ///
    /// # Errors
    ///
    /// Returns the first label that is neither a class nor ignored.
    pub fn losses(&self, out: &mut [T]) -> Result<(), NoClass> {
        self.each(|at, loss, _| out[at] = T::from_real(loss))
    }

    /// Sums all losses, and their weights.
    ///
    /// # Errors
    ///
    /// Returns the first label that is neither a class nor ignored.
    pub fn sums(&self) -> Result<[f64; 2], NoClass> {
        let mut sums = [0.0; 2];
        self.each(|_, loss, weight| {
            sums[0] += loss.to_f64();
            sums[1] += weight.to_f64();
        })?;
        Ok(sums)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_right_class_counts() {
        let scores = [1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0];
        let scored = ClassScores {
            scores: &scores,
            split: [2, 2, 2],
            labels: &[0i32, 1, 1, -1],
            weights: Some(&[1.0, 0.5]),
            ignored: Some(-1),
        };
        let mut out = [9.0; 4];
        scored.losses(&mut out).unwrap();
        assert_eq!(out, [-1.0, -2.0, -3.5, 0.0]);
        assert_eq!(scored.sums(), Ok([-6.5, 2.0]));
        let scored = ClassScores { ignored: None, ..scored };
        assert_eq!(scored.sums(), Err(NoClass { at: 3, label: -1 }));
        let none = ClassScores { scores: &[], split: [0, 2, 0], labels: &[], ..scored };
        assert_eq!(none.sums(), Ok([0.0; 2]));
    }
}

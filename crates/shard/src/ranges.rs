//! Ranges of indices of an axis.

use std::ops::Range;

use smallvec::{SmallVec, smallvec};

/// Indices of an axis, as ascending ranges that neither overlap nor adjoin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ranges(SmallVec<[Range<usize>; 1]>);

impl Ranges {
    /// Returns all indices of an axis of `size` indices.
    pub fn all(size: usize) -> Ranges {
        Ranges(smallvec![0..size])
    }

    /// Returns the indices of an axis from the size of each of its factors, outermost first, and
    /// the range of indices in it.
    pub(crate) fn of_factors(factors: &[(usize, Range<usize>)]) -> Ranges {
        let mut found: SmallVec<[Range<usize>; 1]> = smallvec![0..1];
        let mut stride = 1;
        for (size, part) in factors.iter().rev() {
            let is_all = found.len() == 1 && found[0] == (0..stride);
            if is_all {
                found = smallvec![part.start * stride..part.end * stride];
            } else {
                let inner = found.clone();
                found.clear();
                for index in part.clone() {
                    let moved =
                        inner.iter().map(|r| r.start + index * stride..r.end + index * stride);
                    moved.for_each(|range| match found.last_mut() {
                        Some(last) if last.end == range.start => last.end = range.end,
                        _ => found.push(range),
                    });
                }
            }
            stride *= size;
        }
        found.retain(|range| range.start < range.end);
        Ranges(found)
    }

    /// Returns the number of indices.
    pub fn len(&self) -> usize {
        self.0.iter().map(Range::len).sum()
    }

    /// Whether there are no indices.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the ranges, in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = &Range<usize>> {
        self.0.iter()
    }

    /// Whether `self` has all indices of `others`.
    pub fn contain(&self, others: &Ranges) -> bool {
        self.shared(others).iter().map(|run| run.len).sum::<usize>() == others.len()
    }

    /// Returns the indices that are in both `self` and `others`, as runs.
    pub fn shared(&self, others: &Ranges) -> Vec<Run> {
        let mut runs = Vec::new();
        let (mut i, mut j, mut at, mut other_at) = (0, 0, 0, 0);
        while let (Some(a), Some(b)) = (self.0.get(i), others.0.get(j)) {
            let both = a.start.max(b.start)..a.end.min(b.end);
            if both.start < both.end {
                let (from, to) = (at + both.start - a.start, other_at + both.start - b.start);
                runs.push(Run { from, to, len: both.len() });
            }
            if a.end <= b.end {
                at += a.len();
                i += 1;
            } else {
                other_at += b.len();
                j += 1;
            }
        }
        runs
    }
}

/// Run of consecutive indices in two [`Ranges`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Run {
    /// Position of its first index among the indices of the first [`Ranges`].
    pub from: usize,
    /// Position of its first index among the indices of the second [`Ranges`].
    pub to: usize,
    /// Number of indices.
    pub len: usize,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_meet_in_runs() {
        let a = Ranges(smallvec![0..4, 8..12]);
        let b = Ranges(smallvec![2..10]);
        let run = |from, to, len| Run { from, to, len };
        assert_eq!(a.shared(&b), [run(2, 0, 2), run(4, 6, 2)]);
        assert!(!a.contain(&b) && Ranges::all(12).contain(&b));
    }
}

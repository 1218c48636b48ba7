//! Weights that are multiplied with a number for each output channel while they are packed.

use std::ops::Range;

use crate::Isa;
use crate::gemm::PackSource;

/// A matrix whose column `i` is multiplied with number `i`.
pub(super) struct Scaled<'a> {
    pub(super) matrix: &'a dyn PackSource,
    pub(super) by: &'a [f64],
}

/// The product of a weight and a number, rounded once.
pub(super) fn product(weight: f32, by: f64) -> f32 {
    (f64::from(weight) * by) as f32
}

impl PackSource for Scaled<'_> {
    fn depth(&self) -> usize {
        self.matrix.depth()
    }

    fn width(&self) -> usize {
        self.matrix.width()
    }

    fn pack(&self, isa: Isa, depth: Range<usize>, start: usize, out: &mut [f32]) {
        let width = out.len() / depth.len().max(1);
        self.matrix.pack(isa, depth, start, out);
        // The rows are in a cache. Columns beyond the matrix have no number, and stay zero.
        let by = &self.by[start.min(self.by.len())..];
        for row in out.chunks_exact_mut(width.max(1)) {
            for (weight, by) in row.iter_mut().zip(by) {
                *weight = product(*weight, *by);
            }
        }
    }

    fn next_columns(&self, columns: Range<usize>) {
        self.matrix.next_columns(columns);
    }
}

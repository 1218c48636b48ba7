//! Masks and windows over the scores of a panel.

use super::lanes::{LaneRows, MOST_LANES, Square};
use super::panels::{Block, Panel};
use super::{Mask, Strides};
use sardonyx_simd::{Body, Simd};
use std::ops::Range;

/// Body that applies mask and window to the scores of a panel with the keys `keys`.
pub(super) struct MaskScores<'a> {
    pub(super) block: &'a Block<'a>,
    pub(super) panel: &'a Panel,
    pub(super) keys: Range<usize>,
    /// Scores, indexed by key and query.
    pub(super) scores: &'a mut [f32],
}

impl Body for MaskScores<'_> {
    type Out = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(mut self) {
        // SAFETY: the caller promises the instruction set of `S`.
        unsafe {
            match self.block.job.mask {
                Some(Mask::Add(mask)) if self.is_shared(mask.strides()) => {
                    self.add_shared::<S>(mask.data, mask.strides());
                }
                Some(Mask::Add(mask)) => self.add_rows::<S>(mask.data, mask.strides()),
                Some(Mask::Keep(mask)) if self.is_shared(mask.strides()) => {
                    self.keep_shared(mask.data, mask.strides());
                }
                Some(Mask::Keep(mask)) => self.keep_rows::<S>(mask.data, mask.strides()),
                None => {}
            }
        }
        if self.keys.start < self.panel.clear.start || self.keys.end > self.panel.clear.end {
            self.apply_window();
        }
    }
}

/// Returns the upper bound of a score: infinity if its mask byte keeps it, minus infinity if the
/// byte is 0.
fn score_limit(kept: u8) -> f32 {
    if kept != 0 { f32::INFINITY } else { f32::NEG_INFINITY }
}

impl MaskScores<'_> {
    /// Whether all queries of the panel share one row of a mask.
    fn is_shared(&self, strides: Strides) -> bool {
        let rows = &self.panel.rows;
        let (first, last) = (self.block.place(rows.start), self.block.place(rows.end - 1));
        let one_head = strides.head == 0 || first.head == last.head;
        let one_query = strides.row == 0 || self.block.job.sizes.queries == 1;
        one_head && one_query
    }

    /// Returns the index of the first key's element in the mask row of the first query.
    fn shared_start(&self, strides: Strides) -> usize {
        let first = self.block.place(self.panel.rows.start);
        self.block.start(strides, first) + self.keys.start * strides.element
    }

    /// Adds the mask row that all queries share.
    #[inline(always)]
    unsafe fn add_shared<S: Simd>(&mut self, mask: &[f32], strides: Strides) {
        let start = self.shared_start(strides);
        for (key, scores) in self.scores.chunks_exact_mut(self.panel.width).enumerate() {
            // SAFETY: the caller promises the instruction set of `S`; rows of scores are whole
            // vectors.
            unsafe {
                let added = S::splat(mask[start + key * strides.element]);
                for score in scores.chunks_exact_mut(S::LANES) {
                    let p = score.as_mut_ptr();
                    S::store(p, S::add(S::load(p), added));
                }
            }
        }
    }

    /// Hides keys by the mask row that all queries share.
    fn keep_shared(&mut self, mask: &[u8], strides: Strides) {
        let start = self.shared_start(strides);
        for (key, scores) in self.scores.chunks_exact_mut(self.panel.width).enumerate() {
            if mask[start + key * strides.element] == 0 {
                scores.fill(f32::NEG_INFINITY);
            }
        }
    }

    /// Adds a mask row of its own to the scores of each query.
    #[inline(always)]
    unsafe fn add_rows<S: Simd>(&mut self, mask: &[f32], strides: Strides) {
        for vector in 0..self.panel.vectors {
            let rows = LaneRows::new::<S>(self.block, self.panel, vector, mask, strides);
            for first in (0..self.keys.len()).step_by(S::LANES) {
                let len = S::LANES.min(self.keys.len() - first);
                // SAFETY: the caller promises the instruction set of `S`; rows of scores and
                // squares are whole vectors.
                unsafe {
                    let added = rows.transpose_part::<S>(self.keys.start + first, len);
                    for (i, added) in added.0[..len].iter().enumerate() {
                        let p = self.score::<S>(first + i, vector);
                        S::store(p, S::add(S::load(p), S::load(added.as_ptr())));
                    }
                }
            }
        }
    }

    /// Hides keys by a mask row of its own for each query.
    #[inline(always)]
    unsafe fn keep_rows<S: Simd>(&mut self, mask: &[u8], strides: Strides) {
        for vector in 0..self.panel.vectors {
            let rows = self.panel.rows_of::<S>(vector);
            let mut starts = [0; MOST_LANES];
            for (start, place) in starts.iter_mut().zip(self.block.places(&rows)) {
                *start = self.block.start(strides, place) + self.keys.start * strides.element;
            }
            for first in (0..self.keys.len()).step_by(S::LANES) {
                let len = S::LANES.min(self.keys.len() - first);
                let mut limits = Square([[f32::INFINITY; MOST_LANES]; MOST_LANES]);
                for (to, start) in limits.0.iter_mut().zip(&starts[..rows.len()]) {
                    if strides.element == 1 && len == S::LANES {
                        // A loop of constant length over adjacent bytes compiles to a few vector
                        // instructions.
                        let kept = &mask[start + first..][..S::LANES];
                        for (limit, kept) in to[..S::LANES].iter_mut().zip(kept) {
                            *limit = score_limit(*kept);
                        }
                    } else {
                        for (i, limit) in to[..len].iter_mut().enumerate() {
                            *limit = score_limit(mask[start + (first + i) * strides.element]);
                        }
                    }
                }
                // SAFETY: the caller promises the instruction set of `S`; rows of scores and
                // squares are whole vectors.
                unsafe {
                    let limits = limits.transpose::<S>();
                    for (i, limit) in limits.0[..len].iter().enumerate() {
                        let p = self.score::<S>(first + i, vector);
                        // Hides NaN too. A kept NaN becomes infinity, and the output is NaN either
                        // way.
                        S::store(p, S::min(S::load(p), S::load(limit.as_ptr())));
                    }
                }
            }
        }
    }

    /// Returns a pointer to the scores of one key in the lanes of one vector. `key` counts from the
    /// first key of `keys`.
    #[inline(always)]
    fn score<S: Simd>(&mut self, key: usize, vector: usize) -> *mut f32 {
        self.scores[key * self.panel.width + vector * S::LANES..][..S::LANES].as_mut_ptr()
    }

    /// Hides the keys outside the window of each query.
    fn apply_window(&mut self) {
        let (keys, width) = (&self.keys, self.panel.width);
        for (lane, place) in self.block.places(&self.panel.rows).enumerate() {
            let seen = self.block.job.seen_keys(place.query);
            let first = seen.start.clamp(keys.start, keys.end);
            let end = seen.end.clamp(first, keys.end);
            for key in (keys.start..first).chain(end..keys.end) {
                self.scores[(key - keys.start) * width + lane] = f32::NEG_INFINITY;
            }
        }
    }
}

//! Kernel positions inside the input, per output row and per output.

use std::ops::Range;

use super::{Divisor, Window};

/// Returns the kernel positions along dim `d` that are inside the input for output coordinate `o`.
#[inline(always)]
pub(crate) fn positions_inside(window: &Window<'_>, d: usize, o: usize) -> Range<usize> {
    positions_between(window, d, o, window.pads_begin[d], window.pads_begin[d] + window.input[d])
}

/// Returns the kernel positions along dim `d` at `low..high`, counted from the start of the
/// padding, for output coordinate `o`.
#[inline(always)]
fn positions_between(
    window: &Window<'_>,
    d: usize,
    o: usize,
    low: usize,
    high: usize,
) -> Range<usize> {
    let (start, dilation) = (o * window.strides[d], window.dilations[d]);
    let first = low.saturating_sub(start).div_ceil(dilation);
    let end = high.saturating_sub(start).div_ceil(dilation).min(window.kernel[d]);
    first.min(end)..end
}

/// Returns the factor of an average's divisor for dim `d`.
#[inline(always)]
pub(crate) fn count(window: &Window<'_>, d: usize, o: usize, divisor: Divisor) -> usize {
    match divisor {
        Divisor::Inside => positions_inside(window, d, o).len(),
        Divisor::WithPadding => {
            let padded = window.pads_begin[d] + window.input[d] + window.pads_end[d];
            positions_between(window, d, o, 0, padded).len()
        }
    }
}

/// Returns the outputs in `0..width` along the last dim for which kernel position `k` is inside the
/// input.
#[inline(always)]
pub(super) fn outputs(window: &Window<'_>, k: usize, width: usize) -> Range<usize> {
    let last = window.input.len() - 1;
    let (stride, offset) = (window.strides[last], k * window.dilations[last]);
    let pad = window.pads_begin[last];
    let first = pad.saturating_sub(offset).div_ceil(stride).min(width);
    let beyond = (pad + window.input[last]).saturating_sub(offset).div_ceil(stride).min(width);
    first..beyond.max(first)
}

/// Limit: most spatial dims before the last. Real models have at most two; the lists are computed
/// for every output row.
const OUTER: usize = 8;

/// Input rows that an output row reads: an iterator that borrows the geometry in each step.
pub(crate) struct Taps {
    /// Kernel positions inside the input, from and to, for each dim but the last.
    inside: [(usize, usize); OUTER],
    /// Output coordinates, for each dim but the last.
    at: [usize; OUTER],
    /// Next kernel position, for each dim but the last.
    k: [usize; OUTER],
    /// Index of the plane.
    plane: usize,
    /// Number of dims before the last.
    outer: usize,
    /// Whether no row is left.
    done: bool,
}

impl Taps {
    /// Creates the iterator for output row `row`, counted over all planes.
    #[inline(always)]
    pub(crate) fn new(window: &Window<'_>, row: usize) -> Taps {
        let outer = window.input.len() - 1;
        assert!(outer <= OUTER, "more than {OUTER} dims before the last");
        let mut taps = Taps {
            inside: [(0, 0); OUTER],
            at: [0; OUTER],
            k: [0; OUTER],
            plane: 0,
            outer,
            done: false,
        };
        let mut rest = row;
        for d in (0..outer).rev() {
            taps.at[d] = rest % window.output[d];
            rest /= window.output[d];
            let range = positions_inside(window, d, taps.at[d]);
            taps.inside[d] = (range.start, range.end);
        }
        taps.plane = rest;
        taps.restart();
        taps
    }

    /// Goes back to the first row.
    #[inline(always)]
    fn restart(&mut self) {
        self.done = false;
        for d in 0..self.outer {
            let (start, end) = self.inside[d];
            self.k[d] = start;
            self.done |= start == end;
        }
    }

    /// Returns the index of the next input row, counted over all planes.
    #[inline(always)]
    pub(crate) fn next_row(&mut self, window: &Window<'_>) -> Option<usize> {
        if self.done {
            return None;
        }
        let mut row = self.plane;
        for d in 0..self.outer {
            row = row * window.input[d] + self.coordinate(window, d);
        }
        self.done = true;
        for d in (0..self.outer).rev() {
            self.k[d] += 1;
            if self.k[d] < self.inside[d].1 {
                self.done = false;
                break;
            }
            self.k[d] = self.inside[d].0;
        }
        Some(row)
    }

    /// Returns the input coordinate of the next kernel position along dim `d`.
    #[inline(always)]
    fn coordinate(&self, window: &Window<'_>, d: usize) -> usize {
        self.at[d] * window.strides[d] + self.k[d] * window.dilations[d] - window.pads_begin[d]
    }

    /// Returns the factor of an average's divisor that all outputs of the row share.
    #[inline(always)]
    pub(crate) fn divisor(&self, window: &Window<'_>, divisor: Divisor) -> usize {
        (0..self.outer).map(|d| count(window, d, self.at[d], divisor)).product()
    }
}

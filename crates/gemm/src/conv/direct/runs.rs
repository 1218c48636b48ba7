//! Runs of a window: steps whose inputs are adjacent, in the order of the kernel, and the ends of
//! chains of sums.

use super::{CHAIN, Direct};
use crate::conv::Operands;
use crate::conv::direct::cut::{Cut, Source};
use crate::conv::tile::Run;
use sardonyx_simd::split_even;

/// Runs that are being written.
struct RunList<'m> {
    runs: &'m mut [Run],
    count: usize,
    /// Offset and steps of a run that may become longer.
    open: Option<Steps>,
}

#[derive(Clone, Copy)]
struct Steps {
    offset: usize,
    count: usize,
}

impl RunList<'_> {
    /// Adds steps to the open run if they are adjacent to it, else to a new one.
    fn add(&mut self, steps: Steps) {
        match &mut self.open {
            Some(open) if open.offset + open.count == steps.offset => open.count += steps.count,
            _ => {
                self.close(false);
                self.open = Some(steps);
            }
        }
    }

    /// Ends the open run, and a chain of sums with it if `ends_chain`.
    fn close(&mut self, ends_chain: bool) {
        if let Some(open) = self.open.take() {
            self.runs[self.count] = Run::new(open.offset, open.count, ends_chain);
            self.count += 1;
        }
    }
}

impl Direct<'_> {
    /// Returns the most steps of a chain of sums. All steps of AMX are one chain.
    fn chain(&self) -> usize {
        if self.conv.algorithm.operands() == Operands::Tiles { usize::MAX } else { CHAIN }
    }

    /// Returns the number of chains into which a tap of more steps than a chain is cut.
    fn pieces(&self) -> usize {
        self.conv.words().div_ceil(self.chain()).max(1)
    }

    /// Returns the most runs of a window.
    pub(super) fn most_runs(&self) -> usize {
        self.geometry.taps() * self.pieces()
    }

    /// Writes the runs of a window, of which there are at most [`Direct::most_runs`].
    pub(super) fn write_runs<'m>(&self, cut: &Cut, runs: &'m mut [Run]) -> &'m [Run] {
        let g = self.geometry;
        let (words, pieces, taps) = (self.conv.words(), self.pieces(), g.taps());
        let [_, in_h, in_w] = self.in_dims;
        // Distances in floats of neighbouring taps along each axis.
        let distances = if cut.source == Source::Rows {
            // A copy has the slices, rows and columns that the kernel meets.
            let [rows, cols] = self.footprints(cut.rows, cut.cols);
            let line = cols.len() * cut.pixel;
            [rows.len() * line, rows.tap * line, cols.tap * cut.pixel]
        } else {
            let line = in_w * cut.pixel;
            [g.dilations[0] * in_h * line, g.dilations[1] * line, g.dilations[2] * cut.pixel]
        };
        // A chain has whole taps, or a part of one; all have about the same length.
        let chains = (taps * words).div_ceil(self.chain()).max(1);
        let taps_of_chain = if pieces > 1 { 1 } else { taps.div_ceil(chains) };
        let mut list = RunList { runs, count: 0, open: None };
        for tap in 0..taps {
            let (row, kw) = (tap / g.kernel[2], tap % g.kernel[2]);
            let (kd, kh) = (row / g.kernel[1], row % g.kernel[1]);
            let at = kd * distances[0] + kh * distances[1] + kw * distances[2];
            for piece in 0..pieces {
                let part = split_even(words, pieces, piece);
                list.add(Steps { offset: at + part.start, count: part.len() });
                let is_last = tap + 1 == taps && piece + 1 == pieces;
                if !is_last && (pieces > 1 || (tap + 1).is_multiple_of(taps_of_chain)) {
                    list.close(true);
                }
            }
        }
        list.close(false);
        let RunList { runs, count, .. } = list;
        &runs[..count]
    }
}

//! Direct convolution by the tile registers of AMX.
//!
//! Strips of neighbouring outputs of a row take the place of tiles, two at a time, of one or of
//! neighbouring rows. All strips of a unit have as many pixels, because the registers are
//! configured once: the last strip of a row overlaps the one before it if the row is not a
//! multiple. Outputs that are computed twice have the same value both times.

use std::ops::Range;

use super::cut::Source;
use super::{Sizes, Unit};
use crate::conv::tiles_of;
use crate::gemm::amx;
use crate::gemm::amx::{Ahead, Operands, Registers, Segment, Sums};
use sardonyx_simd::buffer::with_scratch_of;

/// The strips of a unit.
#[derive(Clone, Copy)]
struct Strips {
    /// Number of pixels of each strip.
    pixels: usize,
    /// Number of strips of a row of outputs, and of its columns.
    in_row: usize,
    cols: usize,
    /// Number of strips of all rows.
    count: usize,
}

impl Strips {
    /// Returns the row of a strip and its first column.
    fn start(&self, strip: usize) -> [usize; 2] {
        let (row, index) = (strip / self.in_row, strip % self.in_row);
        [row, (index * self.pixels).min(self.cols - self.pixels)]
    }
}

/// State shared by the pairs of strips of a unit.
struct Pairs<'a> {
    strips: Strips,
    segments: &'a [Segment],
    registers: Registers,
    sums: Sums,
}

impl Unit<'_> {
    /// Computes all strips. `copy` is scratch memory for pixels that are copied just before a pair
    /// of strips.
    pub(super) fn run_strips(&mut self, copy: &mut [f32]) {
        let (rows, cols) = (self.block.rows.len(), self.block.cols.len());
        if rows * cols == 0 {
            return;
        }
        let (pixels, in_row) = amx::strips_of(cols);
        let strips = Strips { pixels, in_row, cols, count: rows * in_row };
        let (depth, _) = tiles_of(&self.direct.conv.params);
        with_scratch_of::<Segment, _>(self.runs.len(), |segments| {
            let mut end = 0;
            for (segment, run) in segments.iter_mut().zip(self.runs) {
                let (offset, steps) = (run.offset, run.steps());
                let skip = offset.wrapping_sub(end).wrapping_mul(size_of::<f32>());
                *segment = Segment { skip, tiles: steps / depth };
                end = offset + steps;
            }
            // SAFETY: weights are packed for tiles only where the machine multiplies them, and this
            // thread is in no other unit.
            let registers = unsafe { Registers::set_up(pixels, depth) };
            let mut pairs = Pairs { strips, segments, registers, sums: Sums::new() };
            let firsts = (0..strips.count).step_by(amx::STRIPS);
            let ranges = firsts.map(|first| first..strips.count.min(first + amx::STRIPS));
            let panels = self.block.panels.clone();
            if !self.cut.by_pixels {
                for panel in panels {
                    for pair in ranges.clone() {
                        self.run_pair(&mut pairs, panel, pair);
                    }
                }
                return;
            }
            for pair in ranges {
                if self.cut.source == Source::Pixels {
                    // The strips are neighbours in the only row.
                    let [_, first] = strips.start(pair.start);
                    let [_, last] = strips.start(pair.end - 1);
                    self.copy_cols(first..last + pixels, copy);
                }
                for panel in panels.clone() {
                    self.run_pair(&mut pairs, panel, pair.clone());
                }
            }
        });
    }

    /// Computes one or two strips of a panel.
    fn run_pair(&self, pairs: &mut Pairs<'_>, panel: usize, pair: Range<usize>) {
        let Sizes { lanes, depth, .. } = self.sizes;
        let channels = self.channels(panel);
        let vectors = channels.vectors;
        let starts = [pair.start, pair.end - 1].map(|strip| pairs.strips.start(strip));
        let last = channels.weights.wrapping_add((vectors - 1) * depth * lanes);
        let operands = Operands {
            a: starts.map(|[row, col]| self.window(row, col)),
            a_rs: self.windows.col,
            b: [channels.weights, last],
            b_rs: lanes,
        };
        // Weights come from memory for the first strips of a panel, from a cache for the others.
        let ahead = if pair.start == 0 { Ahead::Vectors } else { Ahead::Nothing };
        let Pairs { segments, registers, sums, .. } = pairs;
        // SAFETY: the windows of these outputs are in the copy, and weights were packed for these
        // channels and a machine that multiplies tiles.
        unsafe { registers.multiply(pair.len(), vectors, segments, &operands, sums, ahead) };
        for (strip, [row, col]) in starts.into_iter().enumerate().take(pair.len()) {
            let mut epilogue = None;
            let end = self.end(row, col, &channels, &mut epilogue);
            // SAFETY: the unit owns these outputs.
            unsafe { registers.finish(sums, strip, &end) };
        }
    }
}

//! Direct convolution by the tile registers of AMX.
//!
//! Strips of neighbouring outputs of a row take the place of tiles, two at a time, of the same or
//! of neighbouring rows. All strips of a unit have as many pixels, because the registers are set up
//! once: the last of a row overlaps the one before it where the row is not a multiple. What is
//! computed twice is the same both times.

use std::ops::Range;

use super::{Direct, Order, Unit};
use crate::conv::tiles_of;
use crate::gemm::amx;
use crate::gemm::amx::{Ahead, Operands, Registers, Segment, Sums};
use crate::gemm::{TileEnd, TileEpilogue};
use sardonyx_simd::buffer::with_scratch_of;

/// The strips of a unit.
#[derive(Clone, Copy)]
struct Strips {
    /// Pixels of each.
    pixels: usize,
    /// How many a row of outputs has, of so many columns.
    in_row: usize,
    cols: usize,
    /// How many there are.
    count: usize,
}

impl Strips {
    /// The row of a strip and its first column.
    fn start(&self, strip: usize) -> [usize; 2] {
        let (row, index) = (strip / self.in_row, strip % self.in_row);
        [row, (index * self.pixels).min(self.cols - self.pixels)]
    }
}

/// What the blocks of a unit have in common.
struct Blocks<'a> {
    unit: &'a Unit<'a>,
    strips: Strips,
    segments: &'a [Segment],
    registers: Registers,
}

impl Direct<'_> {
    /// Computes the strips of a unit.
    pub(super) fn strips(&self, unit: &Unit<'_>, copy: &mut [f32]) {
        let Unit { cut, block, runs, panels, .. } = unit;
        let (rows, cols) = (block.rows.len(), block.cols.len());
        if rows * cols == 0 {
            return;
        }
        let (pixels, in_row) = amx::strips_of(cols);
        let strips = Strips { pixels, in_row, cols, count: rows * in_row };
        let (depth, _) = tiles_of(&self.conv.params);
        with_scratch_of::<Segment, _>(runs.len(), |segments| {
            let mut end = 0;
            for (segment, run) in segments.iter_mut().zip(*runs) {
                let (offset, steps) = (run.offset, run.steps());
                let skip = offset.wrapping_sub(end).wrapping_mul(size_of::<f32>());
                *segment = Segment { skip, tiles: steps / depth };
                end = offset + steps;
            }
            // SAFETY: weights are packed for tiles where the machine multiplies them, and this
            // thread is in no other unit.
            let registers = unsafe { Registers::set_up(pixels, depth) };
            let blocks = Blocks { unit, strips, segments, registers };
            let mut sums = Sums::new();
            let pairs = (0..strips.count).step_by(amx::STRIPS);
            let pairs = pairs.map(|first| first..strips.count.min(first + amx::STRIPS));
            if cut.by_pixels {
                for pair in pairs {
                    if cut.copies_tiles {
                        self.copy_strips(&blocks, pair.clone(), copy);
                    }
                    for panel in panels.clone() {
                        self.block_of_strips(&blocks, panel, pair.clone(), &mut sums);
                    }
                }
            } else {
                for panel in panels.clone() {
                    for pair in pairs.clone() {
                        self.block_of_strips(&blocks, panel, pair, &mut sums);
                    }
                }
            }
        });
    }

    /// Copies the pixels of neighbouring strips of the only row.
    fn copy_strips(&self, blocks: &Blocks<'_>, pair: Range<usize>, copy: &mut [f32]) {
        let Unit { cut, block, group, .. } = blocks.unit;
        let strips = &blocks.strips;
        let [_, first] = strips.start(pair.start);
        let [_, last] = strips.start(pair.end - 1);
        let pixels = last + strips.pixels - first;
        let pixel = block.cols.start + first;
        let to = &mut copy[..pixels * cut.pixel];
        self.copy_pixels(cut, block.image, pixel, *group, to);
    }

    /// Computes one or two strips of a panel.
    fn block_of_strips(
        &self,
        blocks: &Blocks<'_>,
        panel: usize,
        pair: Range<usize>,
        sums: &mut Sums,
    ) {
        let Blocks { unit, strips, segments, registers } = blocks;
        let Unit { cut, group, .. } = unit;
        let strides = self.conv.geometry.strides;
        let lanes = self.conv.isa.lanes();
        let (depth, group_out) = (self.conv.depth(), self.group_out());
        let group_vectors = group_out.div_ceil(lanes);
        let first = panel * cut.vectors;
        let vectors = cut.vectors.min(group_vectors - first);
        let (channel, width) = (first * lanes, vectors * lanes);
        let a_rs = strides[2] * cut.pixel;
        let starts = [pair.start, pair.end - 1].map(|strip| strips.start(strip));
        let a = starts.map(|[row, col]| {
            if cut.copies_tiles {
                unit.from.wrapping_add((col - starts[0][1]) * a_rs)
            } else {
                unit.from.wrapping_add(row * strides[1] * unit.from_line + col * a_rs)
            }
        });
        let weights = self.conv.weights[(group * group_vectors + first) * depth * lanes..].as_ptr();
        let b = [weights, weights.wrapping_add((vectors - 1) * depth * lanes)];
        let operands = Operands { a, a_rs, b, b_rs: lanes };
        let is_rows = self.output.order == Order::Rows;
        // Weights come from memory for the first strips of a panel, from a cache for the others.
        let size = [pair.len(), vectors];
        let ahead = if pair.start == 0 { Ahead::Vectors } else { Ahead::Nothing };
        // SAFETY: the windows of these outputs are in the copy; weights were packed for these
        // channels and a machine that multiplies tiles.
        unsafe { registers.multiply(size, segments, &operands, sums, ahead) };
        for (strip, [row, col]) in starts.into_iter().enumerate().take(pair.len()) {
            let epilogue: TileEpilogue;
            let mut end = TileEnd {
                c: unit.to.wrapping_add(row * unit.to_line + col * unit.ldc + channel),
                ldc: unit.ldc,
                n: if is_rows { width } else { (group_out - channel).min(width) },
                epilogue: std::ptr::null(),
            };
            if !is_rows && !unit.epilogue.is_plain() {
                let pixel = row * self.out_dims[2] + col;
                epilogue = unit.epilogue.at(pixel, group * group_out + channel);
                end.epilogue = &raw const epilogue;
            }
            // SAFETY: the unit owns these outputs.
            unsafe { registers.finish(sums, strip, &end) };
        }
    }
}

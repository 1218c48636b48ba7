//! Copies of inputs: rows under a block of outputs with zeros for padding, or the pixels of a tile.
//! Gates are multiplied in on the way.

use std::ops::Range;

use super::{Block, Cut, Direct};
use crate::conv::copy::{CopyPixels, copy_every, is_inside, places_before};
use crate::conv::gated::{GatePixels, select_factors};
use crate::conv::{Operands, Order, Side};
use crate::gemm::SendPtr;
use sardonyx_simd::buffer::with_scratch;
use sardonyx_simd::{Body, Simd, dispatch};

/// Geometry: pixels that are compacted at a time, so that their channels stay in a first-level
/// cache.
const COMPACTED: usize = 64;

/// First of neighbouring pixels of a row of an image.
#[derive(Clone, Copy)]
pub(super) struct PixelStart {
    pub(super) image: usize,
    /// First pixel.
    pub(super) pixel: usize,
    /// Group whose channels are copied.
    pub(super) group: usize,
}

impl Direct<'_> {
    /// Copies the input rows of a block.
    pub(super) fn copy_rows(&self, cut: &Cut, block: &Block, to: &mut [f32]) {
        let g = self.geometry;
        let [in_d, in_h, _] = self.in_dims;
        let [rows, cols] = self.footprints(cut.rows, cut.cols);
        // A block may have fewer outputs than the copy has room for.
        let filled = rows.places - (cut.rows - block.rows.len()) * rows.output;
        let d0 = g.first_input(0, block.depth);
        let h0 = g.first_input(1, block.rows.start);
        let line = cols.len() * cut.pixel;
        for kd in 0..g.kernel[0] {
            let d = d0 + (kd * g.dilations[0]) as isize;
            for (piece, i) in pairs(rows.pieces, filled) {
                let h = h0 + (piece * rows.apart + i * rows.step) as isize;
                let place = (kd * rows.pieces + piece) * rows.places + i;
                let to = &mut to[place * line..][..line];
                if is_inside(d, in_d) && is_inside(h, in_h) {
                    self.copy_row(cut, block, d as usize * in_h + h as usize, to);
                } else {
                    to.fill(0.0);
                }
            }
        }
    }

    /// Copies the columns of a block from row `row` of the input, counted over all slices.
    fn copy_row(&self, cut: &Cut, block: &Block, row: usize, to: &mut [f32]) {
        let in_w = self.in_dims[2];
        let [_, cols] = self.footprints(cut.rows, cut.cols);
        let filled = cols.places - (cut.cols - block.cols.len()) * cols.output;
        let w0 = self.geometry.first_input(2, block.cols.start);
        for piece in 0..cols.pieces {
            let to = &mut to[piece * cols.places * cut.pixel..][..filled * cut.pixel];
            // Places that are inside the input.
            let first = w0 + (piece * cols.apart) as isize;
            let low = places_before(-first, cols.step, filled);
            let high = places_before(in_w as isize - first, cols.step, filled).max(low);
            to[..low * cut.pixel].fill(0.0);
            to[high * cut.pixel..].fill(0.0);
            if low == high {
                continue;
            }
            let pixel = row * in_w + first.wrapping_add_unsigned(low * cols.step) as usize;
            let start = PixelStart { image: block.image, pixel, group: block.group };
            let to = &mut to[low * cut.pixel..high * cut.pixel];
            if cols.step == 1 {
                self.copy_pixels(cut, start, to);
            } else {
                self.copy_strided(cut, start, cols.step, to);
            }
        }
    }

    /// Copies the channels of a group of pixels `distance` apart, in the form of the operands.
    fn copy_strided(&self, cut: &Cut, start: PixelStart, distance: usize, to: &mut [f32]) {
        let PixelStart { image, pixel, group } = start;
        let count = self.group_in();
        let first = self.input.pixel(image, pixel);
        match self.input.order {
            Order::ChannelsLast { pitch } => {
                let order = Order::ChannelsLast { pitch: pitch * distance };
                let data = SendPtr(first.wrapping_add(group * count));
                self.copy_group(cut, &Side { data, order, channels: count, plane: 1 }, to);
            }
            Order::Rows => {
                let plane = self.input.plane;
                for (i, to) in to.chunks_mut(COMPACTED * cut.pixel).enumerate() {
                    let pixels = to.len() / cut.pixel;
                    let first = first.wrapping_add(group * count * plane);
                    let from = first.wrapping_add(i * COMPACTED * distance).cast_const();
                    with_scratch(count * pixels, |rows| {
                        let data = SendPtr(rows.as_mut_ptr());
                        // SAFETY: the caller's pixels are inside the input, and the machine has
                        // `isa`.
                        unsafe {
                            let body = Compact { from, plane, distance, rows, pixels };
                            dispatch(self.conv.isa, body);
                        }
                        let order = Order::Rows;
                        let side = Side { data, order, channels: count, plane: pixels };
                        self.copy_group(cut, &side, to);
                    });
                }
            }
        }
    }

    /// Copies all channels of the first pixels of `input`, which has the channels of one group
    /// only, in the form of the operands.
    fn copy_group(&self, cut: &Cut, input: &Side, to: &mut [f32]) {
        let channels = 0..input.channels;
        let pixels = CopyPixels { input, image: 0, pixel: 0, channels, to, step: cut.pixel };
        // SAFETY: the caller's pixels are inside the input, and the machine has `isa`; weights for
        // rounded operands exist only where instructions round.
        unsafe { pixels.copy(self.conv.isa, self.conv.algorithm.operands(), self.conv.words()) }
    }

    /// Copies the channels of a group of neighbouring pixels, in the form of the operands.
    pub(super) fn copy_pixels(&self, cut: &Cut, start: PixelStart, to: &mut [f32]) {
        let count = self.group_in();
        let PixelStart { image, pixel, group } = start;
        let channels = group * count..(group + 1) * count;
        if let Some(gate) = self.gate {
            return self.copy_gated(cut, start, channels, gate, to);
        }
        let pixels = CopyPixels { input: &self.input, image, pixel, channels, to, step: cut.pixel };
        // SAFETY: the caller's pixels are inside the input, and the machine has `isa`; weights for
        // rounded operands exist only where instructions round.
        unsafe { pixels.copy(self.conv.isa, self.conv.algorithm.operands(), self.conv.words()) }
    }

    /// Copies pixels with each channel multiplied by its factor.
    fn copy_gated(
        &self,
        cut: &Cut,
        start: PixelStart,
        channels: Range<usize>,
        gate: &[f32],
        mut to: &mut [f32],
    ) {
        let plane = self.input.plane;
        let PixelStart { image, mut pixel, group } = start;
        // A joined row of all pixels crosses images.
        while !to.is_empty() {
            let (further, first) = (pixel / plane, pixel % plane);
            let (part, rest) = to.split_at_mut(to.len().min((plane - first) * cut.pixel));
            let all = self.conv.params.in_channels;
            let gate = select_factors(gate, image + further, all, channels.clone());
            let count = part.len() / cut.pixel;
            self.gate_pixels(cut, PixelStart { image, pixel, group }, channels.clone(), gate, part);
            pixel += count;
            to = rest;
        }
    }

    /// Copies pixels with each channel multiplied by its number in `gate`.
    fn gate_pixels(
        &self,
        cut: &Cut,
        start: PixelStart,
        channels: Range<usize>,
        gate: &[f32],
        to: &mut [f32],
    ) {
        let (isa, operands) = (self.conv.isa, self.conv.algorithm.operands());
        let PixelStart { image, pixel, .. } = start;
        let multiply = |to: &mut [f32], step: usize| {
            let channels = channels.clone();
            let pixels = CopyPixels { input: &self.input, image, pixel, channels, to, step };
            // SAFETY: the caller's pixels are inside the input, and the machine has `isa`.
            unsafe { dispatch(isa, GatePixels { pixels, gate }) }
        };
        if operands == Operands::Exact {
            return multiply(to, cut.pixel);
        }
        let (count, width) = (to.len() / cut.pixel, gate.len());
        with_scratch(count * width, |products| {
            multiply(&mut *products, width);
            let data = SendPtr(products.as_mut_ptr());
            let order = Order::ChannelsLast { pitch: width };
            let input = &Side { data, order, channels: width, plane: count };
            self.copy_group(cut, input, to);
        });
    }
}

/// Returns all pairs of numbers below two limits, the second of which changes fastest.
fn pairs(first: usize, second: usize) -> impl Iterator<Item = (usize, usize)> {
    (0..first).flat_map(move |i| (0..second).map(move |j| (i, j)))
}

/// Body that copies elements of planes at a distance, so that they are adjacent.
struct Compact<'a> {
    /// First element of the first plane.
    from: *const f32,
    /// Distance of planes in floats.
    plane: usize,
    /// Distance of the elements in floats.
    distance: usize,
    /// Rows of `pixels` elements, one for each plane.
    rows: &'a mut [f32],
    pixels: usize,
}

impl Body for Compact<'_> {
    type Out = ();

    /// Copies the elements of all planes.
    ///
    /// # Safety
    ///
    /// Each plane must be readable up to the element of the last pixel.
    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        let Compact { from, plane, distance, rows, pixels } = self;
        for (c, row) in rows.chunks_exact_mut(pixels).enumerate() {
            let from = from.wrapping_add(c * plane);
            // SAFETY: the caller has the elements of all pixels readable.
            unsafe { copy_every(from, distance, row) };
        }
    }
}
